/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the module share. Each file calls only files below it:
 *
 *	main.c			ioctls, file operations, the module
 *	owner.c			owners, and the work that tells of their deaths
 *	change.c		change and notify
 *	wait.c			blocked threads
 *	context.c		the open file
 *	expire.c		deadlines of async waits
 *	arm.c			how async waits begin
 *	async.c			their states, and what ends them
 *	alloc.c			their memory and ids
 *	requeue.c		requeue
 *	notify.c		notify, and calls in steps
 *	wake.c			pollers and readers
 *	place.c			what a thread that was interrupted keeps of its wait
 *	begin.c			how a wait begins
 *	group.c			several words that are waited for together
 *	queue.c			the queues of waiters
 *	identity.c		ids of threads and contexts, and which queues look to them
 *	user.c			limits and pins
 *	signal.c		what a pending signal will do
 *	word.c			words, values and deadlines, as user space names them
 *	trace.c			tracepoints
 *	name.c			what words are called outside
 *
 * debugfs.c walks along all queues, and stands beside these.
 *
 * A waker calls into a waiter through struct memwait_waiter_ops only, and gets back what it has to
 * wake as data, in struct memwait_wakes. What async waits, contexts and pins consist of is in
 * context.h.
 */
#ifndef MEMWAIT_H
#define MEMWAIT_H

#include <linux/align.h>
#include <linux/atomic.h>
#include <linux/container_of.h>
#include <linux/file.h>
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/rbtree.h>
#include <linux/rhashtable-types.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <uapi/linux/memwait.h>

struct memwait_context;
struct memwait_group;
struct memwait_identity;
struct memwait_pin;
struct memwait_queue;
struct memwait_wakes;
struct memwait_waiter;

/**
 * struct memwait_key - what identifies a word
 * @owner: the address_space of a shared mapping, with MEMWAIT_KEY_SHARED set, or the mm_struct;
 *	0: a queue that was freed
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
 * @file: of a system call and of a blocked thread: a reference to the file of a shared mapping;
 *	%NULL for a private word, of the caller's own mm. Given back with memwait_word_put()
 * @pin: of an async wait that is queued: a reference to a pin. Given back with memwait_pin_put()
 *
 * The file rather than the inode is kept, so that umount finds the file system busy.
 */
struct memwait_word {
	struct memwait_key key;
	union {
		struct file *file;
		struct memwait_pin *pin;
	};
};

/* What a notify, or a death, that has come to a waiter has made of it. */
enum memwait_claim {
	MEMWAIT_NOT_CLAIMED,	/* the wait has ended already: the caller takes the waiter out */
	MEMWAIT_OVERDUE,	/* its deadline has passed: it was ended by that, and taken out */
	MEMWAIT_NOTIFIED_IT,	/* it was ended, and taken out: the notify is spent */
};

/**
 * struct memwait_description - what a waiter is, for root to read
 * @kind: thread, any (a thread on several words), async, or group (an async wait on several words)
 * @pid: the process that waits, or that has opened the context
 * @tid: the thread, or 0
 * @context: the number of the context, or 0
 * @id: of the async wait, or 0
 * @expires: the deadline; KTIME_MAX: never
 * @clock: an enum memwait_async_clock
 * @command: of the thread, or of the one that has opened the context
 */
struct memwait_description {
	const char *kind;
	pid_t pid;
	pid_t tid;
	u64 context;
	u64 id;
	ktime_t expires;
	int clock;
	char command[TASK_COMM_LEN];
};

/**
 * struct memwait_waiter_ops - what differs between threads, async waits and groups
 * @claim: a notify has come to this waiter, or a death, as @result says: MEMWAIT_OK or
 *	MEMWAIT_OWNER_DIED. Ends the wait, if it is pending, takes the waiter out by
 *	memwait_queue_remove_claimed(), and notes in @wakes what is to be woken.
 * @is_pending: whether the wait has not ended; out of date at once.
 * @describe: what it is, of a waiter that was pending. May be %NULL if none ever is.
 *
 * Context: all are called under the lock of the waiter's queue.
 */
struct memwait_waiter_ops {
	enum memwait_claim (*claim)(struct memwait_waiter *waiter, u8 result,
				    struct memwait_wakes *wakes);
	bool (*is_pending)(const struct memwait_waiter *waiter);
	void (*describe)(const struct memwait_waiter *waiter,
			 struct memwait_description *description);
};

/**
 * struct memwait_waiter - an entry of a queue
 * @node: in the queue's list; or @node.next is %NULL: it has returned to its place. Protected by
 *	the queue's lock. Once claimed and removed, it is the claimer's to use
 * @queue: the queue that it is in, or %NULL; written under the queue's lock
 * @ops: what to do with it
 * @word: what it waits on; while it is queued, protected by the queue's lock
 * @identity: of a wait with MEMWAIT_OWNED: the thread or context that waits; otherwise %NULL
 * @owned_node: then, in the queue's list of such waiters; protected by the queue's lock
 * @number: of joining, in its queue; protected by the queue's lock. For memwait_queue_return():
 *	that of the place, or 0
 * @since: when it joined its first queue, in jiffies
 * @state: of an async wait, as are the next three: here, where there is room for them
 * @kind: an enum memwait_async_kind
 * @clock: an enum memwait_async_clock
 * @result: MEMWAIT_OK, MEMWAIT_TIMED_OUT or MEMWAIT_OWNER_DIED
 */
struct memwait_waiter {
	struct list_head node;
	struct memwait_queue *queue;
	const struct memwait_waiter_ops *ops;
	struct memwait_word word;
	struct memwait_identity *identity;
	struct list_head owned_node;
	u64 number;
	u32 since;
	u8 state;
	u8 kind;
	u8 clock;
	u8 result;
};

/**
 * struct memwait_queue - the waiters of one word
 * @node: in the hash table
 * @key: the word; an owner of 0 marks a queue that was freed. Written under @lock, read without it
 *	by look-ups in the hash table
 * @lock: protects the rest
 * @nr_waiters: how many there are
 * @waiters: those that have joined at the end, oldest first
 * @returned: those that have returned to their places, by number
 * @owned: those waiters that are told of deaths, oldest first; see memwait_queue_insert_returned()
 * @looks_to: whose death they are told of, see identity.c
 * @looks_to_node: in &memwait_identity.queues of it; protected by its lock, too
 * @mover: the thread that has moved waiters here last, whose death they are told of as well
 * @mover_node: in &memwait_identity.moved_to of it; likewise
 * @number: that of the last one that has joined
 * @nr_calls: calls that will come back to the queue
 * @kept: a user keeps the queue, or a call is about to keep or evict it
 */
struct memwait_queue {
	struct rhash_head node;
	struct memwait_key key;
	spinlock_t lock;	/* see the top of queue.c */
	u32 nr_waiters;
	struct list_head waiters;
	struct rb_root returned;
	struct list_head owned;
	struct memwait_identity *looks_to;
	struct list_head looks_to_node;
	struct memwait_identity *mover;
	struct list_head mover_node;
	u64 number;
	u32 nr_calls : 31;
	u32 kept : 1;
};

/* Enough for the words of some batches of async waits; struct memwait_user fits into a page. */
#define MEMWAIT_KEPT_QUEUES	480

/**
 * struct memwait_kept_queues - the queues that a user keeps, see the top of queue.c
 * @nr: how many it has kept up to now, modulo 2^32
 * @queues: the last of them, as a ring; some may be %NULL. Exchanged without a lock
 */
struct memwait_kept_queues {
	atomic_t nr;
	struct memwait_queue *queues[MEMWAIT_KEPT_QUEUES];
};

/* Charged to the caller; at the limit of its memory cgroup it fails instead of killing. */
#define MEMWAIT_GFP		(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL)

/*
 * What a step of a call is bounded by: waiters that are looked at, or pollers that are woken;
 * threads and contexts that are woken.
 */
#define MEMWAIT_STEP		64
#define MEMWAIT_STEP_WAKES	16

/**
 * struct memwait_wakes - what is left to be done once the queue's lock has been dropped
 * @call: 0, or the number of a call that may take several steps
 * @looked: so many waiters were looked at, or are members of @groups
 * @nr_tasks: length of @tasks
 * @nr_contexts: length of @contexts
 * @groups: groups that were claimed, whose other members are in their queues still; chained by
 *	&memwait_group.next, with a reference to each
 * @tasks: threads that were claimed, with a reference to each
 * @contexts: contexts that got completions, with a reference to each
 */
struct memwait_wakes {
	u64 call;
	unsigned int looked;
	unsigned int nr_tasks;
	unsigned int nr_contexts;
	struct memwait_group *groups;
	struct task_struct *tasks[MEMWAIT_STEP_WAKES];
	struct memwait_context *contexts[MEMWAIT_STEP_WAKES];
};

/* word.c */
int memwait_compare(u64 addr, u64 expected, u32 flags);
ktime_t memwait_expires(u64 deadline, u32 flags);
bool memwait_has_passed(ktime_t expires, u32 flags);
int memwait_word_get(struct memwait_word *word, u64 addr, u32 flags);

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

/* One of several words, which lie @stride bytes apart. */
static inline struct memwait_word *memwait_word_at(struct memwait_word *words, size_t stride, u32 i)
{
	return (void *)words + i * stride;
}

/* Gives back what keeps a word of a system call or of a blocked thread. */
static inline void memwait_word_put(struct memwait_word *word)
{
	if (word->file)
		fput(word->file);
}

/* identity.c */
void memwait_queue_look_away(struct memwait_queue *queue);
void memwait_queue_moved_by(struct memwait_queue *queue, struct memwait_identity *identity);
void memwait_queue_forget_mover(struct memwait_queue *queue);
bool memwait_queue_look_to(struct memwait_queue *queue, struct memwait_identity *identity,
			   const struct memwait_identity *waiter);
bool memwait_queue_name_owner(struct memwait_queue *queue, const struct memwait_wait *wait,
			      const struct memwait_identity *waiter);
bool memwait_names_the_dead(const struct memwait_wait *wait);
int memwait_own_identity(u32 flags, struct memwait_context *context,
			 struct memwait_identity **identity);

/* queue.c */
extern struct rhashtable memwait_queues;
int memwait_queue_begin_join(struct memwait_waiter *waiter, const struct memwait_wait *wait,
			     struct memwait_kept_queues *kept, struct memwait_queue **queue);
int memwait_queue_join(struct memwait_waiter *waiter, const struct memwait_wait *wait,
		       struct memwait_kept_queues *kept);
int memwait_queue_return(struct memwait_waiter *waiter, const struct memwait_wait *wait,
			 struct memwait_kept_queues *kept);
void memwait_queue_take_out(struct memwait_waiter *waiter, struct memwait_kept_queues *kept);
struct memwait_waiter *memwait_queue_oldest_returned(struct memwait_queue *queue, u64 above);
struct memwait_waiter *memwait_queue_next_returned(struct memwait_queue *queue, u64 number);
void memwait_queue_remove(struct memwait_waiter *waiter);
void memwait_queue_move(struct memwait_waiter *waiter, struct memwait_queue *to);
void memwait_queue_remove_claimed(struct memwait_waiter *waiter);
struct memwait_queue *memwait_queue_find(const struct memwait_key *key);
struct memwait_queue *memwait_queue_find_or_insert(const struct memwait_key *key);
struct memwait_queue *memwait_queue_try_find(const struct memwait_key *key,
					     struct memwait_queue *locked);
void memwait_queue_unlock(struct memwait_queue *queue, struct memwait_kept_queues *kept);
bool memwait_queue_unlock_only(struct memwait_queue *queue);
void memwait_queue_keep(struct memwait_queue *queue, struct memwait_kept_queues *kept);
int memwait_queue_waiters(const struct memwait_key *key);
void memwait_queue_evict_all(struct memwait_kept_queues *kept);
int memwait_queue_init(void);
void memwait_queue_exit(void);

/**
 * memwait_queue_append() - put a waiter at the end of a queue
 * @queue: from memwait_queue_begin_join()
 * @waiter: as there; its ops are set, the rest is filled in
 *
 * Context: the queue's lock is held.
 */
static inline void memwait_queue_append(struct memwait_queue *queue,
					struct memwait_waiter *waiter)
{
	lockdep_assert_held(&queue->lock);
	list_add_tail(&waiter->node, &queue->waiters);
	if (unlikely(waiter->identity))
		list_add_tail(&waiter->owned_node, &queue->owned);
	queue->nr_waiters++;
	waiter->number = ++queue->number;
	waiter->since = jiffies;
	WRITE_ONCE(waiter->queue, queue);
}

/**
 * memwait_queue_oldest() - the waiter that has waited longest
 * @queue: the queue
 * @above: of those that have returned, only such with a greater number
 *
 * Context: the queue's lock is held.
 *
 * Return: the waiter, whose wait may have ended; or %NULL.
 */
static inline struct memwait_waiter *memwait_queue_oldest(struct memwait_queue *queue, u64 above)
{
	lockdep_assert_held(&queue->lock);
	if (unlikely(!RB_EMPTY_ROOT(&queue->returned)))
		return memwait_queue_oldest_returned(queue, above);
	return list_first_entry_or_null(&queue->waiters, struct memwait_waiter, node);
}

/* Whether a waiter that is in a queue has returned to its place. */
static inline bool memwait_waiter_has_returned(const struct memwait_waiter *waiter)
{
	return unlikely(!waiter->node.next);
}

/**
 * memwait_queue_leave() - take a waiter out of its queue, if it is in one
 * @waiter: joined once; of the current thread, or of a group or async wait that has been claimed
 * @kept: as memwait_queue_unlock()
 *
 * Context: process context; takes the queue's lock.
 */
static inline void memwait_queue_leave(struct memwait_waiter *waiter,
				       struct memwait_kept_queues *kept)
{
	if (smp_load_acquire(&waiter->queue))	/* (C), see the top of queue.c */
		memwait_queue_take_out(waiter, kept);
}

/* notify.c */
int memwait_notify_word(const struct memwait_key *key, u32 count,
			struct memwait_kept_queues *kept);
int memwait_notify_surely(const struct memwait_key *key, u32 count,
			  struct memwait_kept_queues *kept);
void memwait_pass_on(const struct memwait_key *key, struct memwait_kept_queues *kept);
u64 memwait_new_call(void);
int memwait_notify(const struct memwait_notify *notify, struct memwait_kept_queues *kept);
int memwait_waiters(const struct memwait_notify *notify);
int memwait_notify_many(const struct memwait_notify_many *many, struct memwait_kept_queues *kept);

/* requeue.c */
int memwait_requeue(struct memwait_requeue *requeue, struct memwait_requeue __user *user,
		    struct memwait_kept_queues *kept);

/* Flags of words in general, and what a wait that has a deadline of its own adds. */
#define MEMWAIT_WORD_FLAGS	(MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE)
#define MEMWAIT_WAIT_FLAGS	(MEMWAIT_WORD_FLAGS | MEMWAIT_CLOCK_REALTIME | MEMWAIT_OWNED)

/* wait.c */
int memwait_wait(const struct memwait_wait *wait, struct memwait_context *context);
int memwait_wait_any(const struct memwait_wait_any *any, struct memwait_wait_any __user *user,
		     struct memwait_context *context);
int memwait_notify_wait(const struct memwait_notify_wait *arg,
			struct memwait_notify_wait __user *user,
			struct memwait_context *context);

/* signal.c */
bool memwait_dies_of_signal(void);

/**
 * memwait_is_killed() - has the current thread been killed?
 *
 * Context: process context.
 *
 * Return: whether it has.
 */
static inline bool memwait_is_killed(void)
{
	/* The kernel's look is plain: what is sent meanwhile is seen now, or by the next look. */
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

/* change.c */
int memwait_change_notify(const struct memwait_change *change, struct memwait_change __user *user,
			  struct memwait_kept_queues *kept);

#endif /* MEMWAIT_H */
