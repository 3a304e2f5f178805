/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the module share. Data flows one way:
 * ioctl (main.c) -> key (key.c) -> queue (queue.c) -> thread (wait.c) or async wait (async.c).
 * What threads and async waits on several words have in common is in group.h.
 */
#ifndef MEMWAIT_H
#define MEMWAIT_H

#include <linux/align.h>
#include <linux/atomic.h>
#include <linux/container_of.h>
#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>
#include <linux/types.h>
#include <uapi/linux/memwait.h>

struct file;
struct memwait_context;
struct memwait_queue;
struct memwait_wakes;
struct memwait_waiter;

/**
 * struct memwait_key - what identifies a word
 * @owner: the address_space of a shared mapping, with MEMWAIT_KEY_SHARED set, or the mm_struct;
 *	0: a queue that died
 * @offset: in bytes, within the address_space; or the address within the mm
 *
 * Two keys are the same if, and only if, they name the same word, for as long as something keeps
 * @owner from being freed and used again: see struct memwait_word.
 */
struct memwait_key {
	u64 owner;
	u64 offset;
};

#define MEMWAIT_KEY_SHARED	1ULL

/**
 * struct memwait_word - a key together with what keeps it meaningful
 * @key: the word's key
 * @pin: of a shared word a reference to the file of its mapping. It is the file rather than the
 *	inode so that umount finds the file system busy instead of torn. Of a private word %NULL
 *	while a system call of its own process lasts, or by memwait_word_keep() its mm_struct
 */
struct memwait_word {
	struct memwait_key key;
	void *pin;
};

/**
 * struct memwait_waiter_ops - what differs between a thread and an async wait
 * @joined: the waiter was put into its queue. May be %NULL.
 * @wake: a notify has come to this waiter. Either claims it, takes it out of its queue by
 *	memwait_queue_remove() and returns true: the notify is spent. Or leaves it alone and
 *	returns false: the wait has been ended already, and the caller takes it out for its owner.
 * @is_pending: whether the wait has not been ended; out of date at once.
 *
 * Context: all are called under the lock of the waiter's queue.
 */
struct memwait_waiter_ops {
	void (*joined)(struct memwait_waiter *waiter);
	bool (*wake)(struct memwait_waiter *waiter, struct memwait_wakes *wakes);
	bool (*is_pending)(const struct memwait_waiter *waiter);
};

/**
 * struct memwait_waiter - an entry of a queue
 * @node: in the queue's list; protected by the queue's lock. Once claimed and removed, it is the
 *	claimer's to use
 * @queue: the queue that it is in, or %NULL; written under the queue's lock
 * @ops: what to do with it
 * @word: what it waits on; while it is queued, protected by the queue's lock
 */
struct memwait_waiter {
	struct list_head node;
	struct memwait_queue *queue;
	const struct memwait_waiter_ops *ops;
	struct memwait_word word;
};

/**
 * struct memwait_member - one of the words of a group, or the only one of a thread
 * @waiter: its entry in the queue
 * @owner: the group
 */
struct memwait_member {
	struct memwait_waiter waiter;
	void *owner;
};

static inline struct memwait_member *to_member(const struct memwait_waiter *waiter)
{
	return container_of(waiter, struct memwait_member, waiter);
}

/* Instead of a member that was notified: no notify has claimed the group. */
#define MEMWAIT_CLAIMED_BY_ITSELF	((struct memwait_member *)-1L)

/* Charged to the caller; at the limit of his memory cgroup it fails instead of killing. */
#define MEMWAIT_GFP		(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL)

/* Contexts that a notify remembers by itself; further ones are chained, see the top of async.c. */
#define MEMWAIT_WAKES_CONTEXTS	8

/* How often a notify wakes contexts that another one has chained, with its queue's lock held. */
#define MEMWAIT_WAKES_AT_ONCE	16

/**
 * struct memwait_wakes - what is left to be done once the queue's lock has been dropped
 * @threads: claimed members of sleeping threads, by &memwait_waiter.node
 * @groups: claimed async groups, whose other members are in their queues still
 * @contexts: contexts that got completions
 * @nr_contexts: how many of them there are
 * @more_contexts: further ones, once @contexts is full
 * @nr_at_once: how many have been woken already, because another notify has chained them
 */
struct memwait_wakes {
	struct list_head threads;
	struct list_head groups;
	struct memwait_context *contexts[MEMWAIT_WAKES_CONTEXTS];
	unsigned int nr_contexts;
	struct list_head more_contexts;
	unsigned int nr_at_once;
};

/* key.c */
int memwait_word_get(struct memwait_word *word, u64 addr, u32 flags);
void memwait_word_unpin(struct memwait_word *word);
void memwait_word_keep(struct memwait_word *word);
void memwait_word_move(struct memwait_word *word, const struct memwait_word *target);

static inline unsigned int memwait_size(u32 flags)
{
	return 1U << (flags & MEMWAIT_SIZE_MASK);
}

/**
 * memwait_check() - is an address fit for a word of these flags?
 * @addr: address of the word
 * @flags: of the word
 * @known: which flags are allowed
 *
 * Context: any.
 *
 * Return: 0, or -EINVAL: an unknown flag, a misaligned address.
 */
static inline int memwait_check(u64 addr, u32 flags, u32 known)
{
	if ((flags & ~known) || !IS_ALIGNED(addr, memwait_size(flags)))
		return -EINVAL;
	return 0;
}

/**
 * memwait_check_wait() - the same for a word that is to be compared
 * @wait: as it came from user space
 * @known: which flags are allowed
 *
 * Context: any.
 *
 * Return: 0, -EINVAL; or -EOPNOTSUPP: 64 bits on a 32-bit kernel.
 */
static inline int memwait_check_wait(const struct memwait_wait *wait, u32 known)
{
	int ret = memwait_check(wait->addr, wait->flags, known);

	if (ret || wait->reserved)
		return -EINVAL;
	if (!IS_ENABLED(CONFIG_64BIT) && memwait_size(wait->flags) == 8)
		return -EOPNOTSUPP;
	return 0;
}

/* Gives back what keeps a word; a private one, within its system call, is kept by nothing. */
static inline void memwait_word_put(struct memwait_word *word)
{
	if (word->pin)
		memwait_word_unpin(word);
}

static inline bool memwait_key_equal(const struct memwait_key *a, const struct memwait_key *b)
{
	return a->owner == b->owner && a->offset == b->offset;
}

/* queue.c */
int memwait_compare(u64 addr, u64 expected, u32 flags);
int memwait_queue_join(struct memwait_waiter *waiter, const struct memwait_wait *wait, gfp_t gfp);
void memwait_queue_take_out(struct memwait_waiter *waiter);
void memwait_queue_remove(struct memwait_waiter *waiter);
int memwait_queue_notify(const struct memwait_key *key, u32 count);
void memwait_queue_notify_many(const struct memwait_word *words, u32 *counts, unsigned int nr);
int memwait_queue_requeue(struct memwait_requeue *requeue, struct memwait_word *source,
			  struct memwait_word *target);
int memwait_queue_retry(int ret);
int memwait_queue_waiters(const struct memwait_key *key);
void memwait_queue_expel_all(void);
int memwait_queue_init(void);
void memwait_queue_exit(void);

/**
 * memwait_queue_leave() - take a waiter out of its queue, if it is in one
 * @waiter: joined once; a thread's own, or an async wait that the caller has claimed
 *
 * Context: process context; takes the queue's lock.
 */
static inline void memwait_queue_leave(struct memwait_waiter *waiter)
{
	if (smp_load_acquire(&waiter->queue))	/* (D), see the top of queue.c */
		memwait_queue_take_out(waiter);
}

/* Flags of words in general, and what a wait that has a deadline of its own adds. */
#define MEMWAIT_WORD_FLAGS	(MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE)
#define MEMWAIT_WAIT_FLAGS	(MEMWAIT_WORD_FLAGS | MEMWAIT_CLOCK_REALTIME)

/* wait.c */
ktime_t memwait_expires(u64 deadline, u32 flags);
bool memwait_has_passed(ktime_t expires, u32 flags);
int memwait_wait(const struct memwait_wait *wait);
int memwait_wait_any(const struct memwait_wait_any *any, struct memwait_wait_any __user *user);
int memwait_notify_wait(const struct memwait_notify_wait *arg,
			struct memwait_notify_wait __user *user);
bool memwait_dies_of_signal(void);
void memwait_wake_threads(struct list_head *threads);

/**
 * memwait_is_killed() - has the current thread been killed?
 *
 * Context: process context.
 *
 * Return: whether it has.
 */
static inline bool memwait_is_killed(void)
{
	/* The kernel's look is plain: what is sent meanwhile is seen now, or by who looks next. */
	return data_race(fatal_signal_pending(current));
}

/**
 * memwait_is_dying() - will the current thread die before it returns to user space?
 *
 * Context: process context.
 *
 * Return: whether it will.
 */
static inline bool memwait_is_dying(void)
{
	return unlikely(signal_pending(current)) && memwait_dies_of_signal();
}

static inline clockid_t memwait_clock(u32 flags)
{
	return flags & MEMWAIT_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
}

/* async.c */
extern const struct file_operations memwait_fops;
extern unsigned long memwait_max_user_waits;
int memwait_wait_async(struct memwait_context *context, const struct memwait_wait_async *batch);
int memwait_cancel(struct memwait_context *context, const struct memwait_cancel *cancel);
unsigned long memwait_context_user_waits(struct memwait_context *context);
void memwait_context_wake(struct memwait_context *context);
void memwait_wake_owed(struct list_head *contexts);
void memwait_leave_groups(struct list_head *groups);
int memwait_async_init(void);
void memwait_async_exit(void);

/* main.c */
long memwait_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

#endif /* MEMWAIT_H */
