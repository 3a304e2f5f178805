/* SPDX-License-Identifier: GPL-2.0-only */
/* Waits, and the queues of waiters: see queue.c and bucket.c. */
#ifndef MEMWAIT_QUEUE_H
#define MEMWAIT_QUEUE_H

#include <linux/jhash.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/timerqueue.h>

#include "word.h"

/**
 * struct memwait_waiter - the entry of a wait in the queue of one of its words
 * @node: entry of its bucket's tree; protected by the bucket's lock
 * @bucket: the bucket; %NULL: the waiter is in no queue. Written under the bucket's lock
 * @word: the awaited word; protected by the bucket's lock while queued
 * @number: its position in the queue; protected by the bucket's lock. For memwait_queue_join(): the
 *	position to which the waiter returns, or 0
 * @since: the time, in jiffies, at which it joined its first queue; a requeue does not change it
 * @index: index in &memwait_group.waiters
 * @owned: the wait has MEMWAIT_OWNED, and this is the waiter of a struct memwait_owned
 */
struct memwait_waiter {
	struct rb_node node;
	struct memwait_bucket *bucket;
	struct memwait_word word;
	u64 number;
	u32 since;
	u8 index;
	bool owned;
};

/**
 * struct memwait_group - a thread's wait, or an async wait, for one word or several words
 * @claimed: 0 while the wait is pending; afterwards the index of the notified waiter plus one, or
 *	MEMWAIT_CLAIMED_BY_ITSELF. For an async wait, protected by the context's lock
 * @task: the thread
 * @context: for an async wait: the arming context
 * @deadline: .expires is KTIME_MAX if the wait has no deadline. For an async wait with a deadline,
 *	.node is queued in the context while the wait is pending
 * @nr: number of words
 * @async: see struct memwait_async_waiter
 * @state: for an async wait: an enum memwait_state; protected by the context's lock
 * @result: once claimed: MEMWAIT_OK, MEMWAIT_TIMED_OUT or MEMWAIT_OWNER_DIED. For a thread that
 *	waits for one word, written before @claimed, under the lock of the bucket of that word; for
 *	a thread that waits for several words, stays MEMWAIT_OK
 * @clock: an enum memwait_async_clock
 * @persistent: for an async wait: MEMWAIT_PERSISTENT
 * @listed: for an async wait: it is in a list of completions
 * @waiters: one for each word; with MEMWAIT_OWNED a struct memwait_owned
 */
struct memwait_group {
	u32 claimed;
	union {
		struct task_struct *task;
		struct memwait_context *context;
	};
	struct timerqueue_node deadline;
	u8 nr;
	bool async;
	u8 state;
	u8 result;
	u8 clock;
	bool persistent;
	bool listed;
	struct memwait_waiter waiters[];
};

/* Value of memwait_group.claimed if the wait ended without a notify. */
#define MEMWAIT_CLAIMED_BY_ITSELF	(~0U)

static inline struct memwait_group *memwait_group_of(const struct memwait_waiter *waiter)
{
	return container_of(waiter - waiter->index, struct memwait_group, waiters[0]);
}

/* Whether the wait has not ended; the result may be stale immediately. */
static inline bool memwait_group_is_pending(const struct memwait_group *group)
{
	return !READ_ONCE(group->claimed);
}

/* Returns the notified waiter of a wait, or %NULL if there is none. */
static inline const struct memwait_waiter *memwait_group_notified(const struct memwait_group *group)
{
	u32 claimed = READ_ONCE(group->claimed);

	return claimed && claimed != MEMWAIT_CLAIMED_BY_ITSELF ? &group->waiters[claimed - 1] :
								 NULL;
}

/**
 * struct memwait_bucket - the queues of the words whose keys have the same hash
 * @lock: protects the other members, except as noted; taken by memwait_bucket_lock()
 * @nr_waiters: number of waiters; written under @lock, read without it by a notify
 * @nr_locking: number of threads that wait for @lock; not protected
 * @last: the thread that took @lock last; read without @lock
 * @futile: the time, in jiffies, at which a call last waited for other threads to take @lock and
 *	none did; not protected
 * @number: the last number that was assigned to a waiter
 * @waiters: tree of waiters, by key and number, so that a word's waiters are adjacent, oldest first
 * @watching: tree of the first MEMWAIT_OWNED waiters of words, by key; see watch.c
 */
struct memwait_bucket {
	spinlock_t lock;	/* see the top of queue.c */
	u32 nr_waiters;
	atomic_t nr_locking;
	u32 futile;
	const struct task_struct *last;
	u64 number;
	struct rb_root waiters;
	struct rb_root watching;
} ____cacheline_aligned_in_smp;

/*
 * The seed of memwait_bucket_of(). The seed is secret because no user may know which words share a
 * bucket.
 */
struct memwait_bucket_seed {
	u32 add;
	u32 multiply;
};

/*
 * Bounds of one step: the number of waiters examined, of threads woken, and of contexts whose
 * pollers are woken. A poller may be an epoll instance, which may have any number of pollers of its
 * own.
 */
#define MEMWAIT_STEP		64
#define MEMWAIT_STEP_WAKES	16
#define MEMWAIT_STEP_POLLED	4

/* Disables preemption until memwait_step_end() or memwait_step_done(), see the top of notify.c. */
static inline void memwait_step_begin(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
}

/* Enables preemption after the last wake-up of a step. */
static inline void memwait_step_done(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
}

void memwait_bucket_wait_for_lock(struct memwait_bucket *bucket, int subclass)
	__acquires(&bucket->lock);
bool memwait_bucket_let_others(struct memwait_bucket *bucket);

/**
 * memwait_bucket_lock_nested() - take a bucket's lock; a thread that waits for it is counted
 * @bucket: the bucket
 * @subclass: lockdep's subclass: 0, except for the second of two locks
 *
 * Context: process context.
 */
static __always_inline void memwait_bucket_lock_nested(struct memwait_bucket *bucket, int subclass)
	__acquires(&bucket->lock)
{
	might_lock_nested(&bucket->lock, subclass);	/* spin_trylock() hides this from lockdep */
	if (unlikely(!spin_trylock(&bucket->lock)))
		memwait_bucket_wait_for_lock(bucket, subclass);
	WRITE_ONCE(bucket->last, current);
}

static __always_inline void memwait_bucket_lock(struct memwait_bucket *bucket)
	__acquires(&bucket->lock)
{
	memwait_bucket_lock_nested(bucket, 0);
}

/* Whether a thread is waiting for the lock; if so, the holder of the lock ends its step. */
static inline bool memwait_bucket_is_wanted(const struct memwait_bucket *bucket)
{
	return unlikely(atomic_read(&bucket->nr_locking));
}

/**
 * memwait_is_killed() - has the current thread been killed?
 *
 * Context: process context.
 *
 * Return: true if so.
 */
static inline bool memwait_is_killed(void)
{
	/* A plain load is sufficient: a concurrent signal is seen now or by the next check. */
	return data_race(fatal_signal_pending(current));
}

extern struct memwait_bucket *memwait_buckets;
extern unsigned int memwait_bucket_mask;
extern struct memwait_bucket_seed memwait_bucket_seed;
int memwait_queue_join(struct memwait_waiter *waiter, const struct memwait_wait *wait, bool lock);
void memwait_queue_take_out(struct memwait_waiter *waiter);
void memwait_queue_rejoin(struct memwait_waiter *waiter);
void memwait_queue_remove(struct memwait_waiter *waiter);
void memwait_queue_remove_claimed(struct memwait_waiter *waiter);
void memwait_queue_move(struct memwait_waiter *waiter, struct memwait_bucket *to,
			const struct memwait_key *target, bool whole);
void memwait_queue_keep(struct memwait_waiter *waiter, struct rb_root *staying);
struct memwait_waiter *memwait_bucket_next(struct memwait_bucket *bucket,
					   const struct memwait_key *key, u64 number);
int memwait_queue_waiters(const struct memwait_key *key);
int memwait_queue_init(void);
void memwait_queue_exit(void);

/**
 * memwait_bucket_of() - the bucket of a word
 * @key: the word's key
 *
 * This function takes half the time that hashing all 16 bytes of the key would take. The hash
 * spreads the words of the same space over the buckets, although a user can choose their offsets.
 * If two spaces differ in their upper halves, no choice of offsets in them collides with every
 * seed.
 *
 * Context: any.
 *
 * Return: the bucket.
 */
static __always_inline struct memwait_bucket *memwait_bucket_of(const struct memwait_key *key)
{
	u32 seed = memwait_bucket_seed.add +
		   memwait_bucket_seed.multiply * upper_32_bits(key->space);
	u32 hash = jhash_3words(lower_32_bits(key->space), lower_32_bits(key->offset),
				upper_32_bits(key->offset), seed);

	return &memwait_buckets[hash & memwait_bucket_mask];
}

/**
 * memwait_rb_after() - find the first node after a key
 * @key: the key
 * @tree: the tree
 * @cmp: as for rb_find()
 *
 * Context: the tree's lock is held.
 *
 * Return: the node, or %NULL.
 */
static __always_inline struct rb_node *
memwait_rb_after(const void *key, const struct rb_root *tree,
		 int (*cmp)(const void *key, const struct rb_node *node))
{
	struct rb_node *node = tree->rb_node, *after = NULL;

	while (node) {
		if (cmp(key, node) < 0) {
			after = node;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return after;
}

static inline struct memwait_waiter *memwait_waiter_at(struct rb_node *node)
{
	return rb_entry_safe(node, struct memwait_waiter, node);
}

/* Returns @waiter if it is not NULL and waits for the word of @key; otherwise NULL. */
static inline struct memwait_waiter *memwait_of_word(struct memwait_waiter *waiter,
						     const struct memwait_key *key)
{
	return waiter && !memwait_key_cmp(&waiter->word.key, key) ? waiter : NULL;
}

/**
 * memwait_queue_next() - the next waiter of a word
 * @bucket: the word's bucket
 * @key: the word's key
 * @number: number of the previous waiter, or 0
 *
 * Context: the bucket's lock is held.
 *
 * Return: the waiter, whose wait may have ended; or %NULL.
 */
static inline struct memwait_waiter *memwait_queue_next(struct memwait_bucket *bucket,
							const struct memwait_key *key, u64 number)
{
	return memwait_of_word(memwait_bucket_next(bucket, key, number), key);
}

/**
 * memwait_queue_leave() - dequeue a waiter if queued
 * @waiter: after memwait_group_init(); belongs to the current thread, or to a claimed group or
 *	async wait
 *
 * Context: process context; takes the bucket's lock.
 */
static inline void memwait_queue_leave(struct memwait_waiter *waiter)
{
	if (smp_load_acquire(&waiter->bucket))	/* (C), see the top of queue.c */
		memwait_queue_take_out(waiter);
}

/**
 * memwait_group_init() - initialise a wait that is about to join
 * @group: the wait; its words and, with MEMWAIT_OWNED, its identity are set
 * @nr: number of its words
 *
 * Context: any.
 */
static __always_inline void memwait_group_init(struct memwait_group *group, u32 nr)
{
	u32 i;

	group->claimed = 0;
	group->result = MEMWAIT_OK;
	for (i = 0; i < nr; i++) {
		group->waiters[i].index = i;
		group->waiters[i].bucket = NULL;
		group->waiters[i].number = 0;
	}
}

/**
 * memwait_group_join() - queue the waiters of a wait
 * @group: after memwait_group_init()
 * @waits: the words' expected values
 * @nr: number of words
 * @index: set to the first waiter that could not join, if any; if @nr is 1, the caller has set it
 *	to 0
 * @joined: for an async wait, called while the last waiter's bucket is locked; %NULL for a thread.
 *	Other threads may free the async wait as soon as that lock is dropped
 *
 * A notify may claim the wait as soon as its first waiter has joined. If not all waiters could
 * join, the caller claims the wait, unless a notify has claimed it. Then the caller, or the reader
 * of the completion, must call memwait_group_leave().
 *
 * Context: process context, may sleep.
 *
 * Return: 0, or the result of @joined, if all waiters have joined; otherwise the result of
 * memwait_queue_join() for the first waiter that could not join.
 */
static __always_inline int memwait_group_join(struct memwait_group *group,
					      const struct memwait_wait *waits, u32 nr, u32 *index,
					      int (*joined)(struct memwait_group *group))
{
	struct memwait_bucket *bucket;
	bool last;
	u32 i;
	int ret;

	for (i = 0; i < nr; i++) {
		last = joined && i + 1 == nr;
		ret = memwait_queue_join(&group->waiters[i], &waits[i], last);
		if (last && !ret) {
			bucket = group->waiters[i].bucket;
			__acquire(&bucket->lock);	/* for sparse */
			ret = joined(group);
			spin_unlock(&bucket->lock);
		}
		if (ret) {
			if (nr > 1)
				*index = i;
			return ret;
		}
	}
	return 0;
}

/**
 * memwait_group_leave() - take the waiters of a wait out of their queues
 * @group: claimed; the caller is its owner
 * @nr: number of words
 *
 * Context: process context; takes buckets' locks, one at a time.
 */
static __always_inline void memwait_group_leave(struct memwait_group *group, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		memwait_queue_leave(&group->waiters[i]);
}

#endif /* MEMWAIT_QUEUE_H */
