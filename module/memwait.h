/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared declarations. Each file calls only files below it:
 *
 *	main.c			ioctls, module init
 *	owner.c			owners, and the work that handles their deaths
 *	wait.c			blocked threads
 *	read.c			reading completions
 *	arm.c			arming async waits
 *	file.c			the open file: open, poll, fdinfo, close
 *	async.c			cancel, close and deadlines of async waits
 *	alloc.c			memory and ids of async waits
 *	requeue.c		requeue
 *	change.c		change and notify
 *	notify.c		notify, and calls in steps
 *	claim.c			how a wait ends; completions
 *	wake.c			waking readers and pollers
 *	position.c		interrupted threads: their queue positions, the effect of a signal
 *	queue.c			queues of waiters
 *	watch.c			whose death the waiters of a word are notified of
 *	bucket.c		the lock of a bucket
 *	begin.c			the start of a wait
 *	identity.c		ids of threads and contexts
 *	context.c		memory and references of contexts
 *	user.c			limits and pins
 *	word.c			words, values and deadlines from user space
 *	trace.c			tracepoints; names of words
 *
 * debugfs.c walks all queues and is outside this order.
 *
 * A waker claims a waiter by memwait_claim_waiter(), which records in struct memwait_wakes whom to
 * wake. See context.h for async waits, contexts and pins.
 */
#ifndef MEMWAIT_H
#define MEMWAIT_H

#include <linux/align.h>
#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/container_of.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/jhash.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/preempt.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/timerqueue.h>
#include <linux/types.h>
#include <uapi/linux/memwait.h>

struct memwait_bucket;
struct memwait_context;
struct memwait_group;
struct memwait_identity;
struct memwait_owned;
struct memwait_pin;
struct memwait_waiter;
struct memwait_wakes;

/**
 * struct memwait_key - identifies a word
 * @space: the address_space of a shared mapping, with MEMWAIT_KEY_SHARED set; the mm_struct of
 *	other words
 * @offset: byte offset in the address_space, or address in the mm
 *
 * Equal keys name the same word as long as a reference prevents @space from being freed and reused:
 * see struct memwait_word.
 */
struct memwait_key {
	u64 space;
	u64 offset;
};

#define MEMWAIT_KEY_SHARED	1ULL

/**
 * struct memwait_word - a key with the reference that keeps it valid
 * @key: the word's key
 * @file: in a system call or for a blocked thread: the file of a shared mapping; %NULL for a
 *	private word of the caller's mm, and after the file was put. Put with memwait_word_put()
 * @pin: for an async wait: put with memwait_pin_put()
 *
 * The reference is to an open file, not to an inode, so that umount gets EBUSY.
 */
struct memwait_word {
	struct memwait_key key;
	union {
		struct file *file;
		struct memwait_pin *pin;
	};
};

/* The result for a waiter that a notify or a death has reached. */
enum memwait_claim {
	MEMWAIT_CLAIM_LOST,	/* its wait had already ended; caller dequeues it */
	MEMWAIT_CLAIM_PASSED_OVER, /* overdue, and has timed out; or of a dying process; dequeued */
	MEMWAIT_CLAIM_WON,	/* ended and dequeued, or counted: the notify is spent */
};

/**
 * struct memwait_waiter - a word of a wait: an entry of a queue
 * @node: in its bucket's tree; protected by the bucket's lock
 * @bucket: the bucket, or %NULL: in no queue. Written under the bucket's lock
 * @word: the awaited word; protected by the bucket's lock while queued
 * @number: its position in the queue; protected by the bucket's lock. For memwait_queue_join(): the
 *	position that it returns to, or 0
 * @since: when it joined a queue by itself, in jiffies; a requeue does not change it
 * @index: in &memwait_group.waiters
 * @owned: MEMWAIT_OWNED: it is the waiter of a struct memwait_owned
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
 * struct memwait_group - a wait of a thread, or an async wait, for one word or several
 * @claimed: 0 while the wait is pending; then one more than the index of the notified waiter, or
 *	MEMWAIT_CLAIMED_BY_ITSELF. For an async wait, protected by the context's lock
 * @task: the thread
 * @context: for an async wait: the arming context
 * @deadline: .expires: KTIME_MAX: never; .node: for an async wait with a deadline: queued in the
 *	context while the wait is pending
 * @nr: number of words
 * @async: see struct memwait_async_waiter
 * @state: for an async wait: an enum memwait_state; protected by the context's lock
 * @result: once claimed: MEMWAIT_OK, MEMWAIT_TIMED_OUT or MEMWAIT_OWNER_DIED. For a thread, written
 *	before @claimed, under the lock of the queue of its only word
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

enum memwait_async_clock { MEMWAIT_MONOTONIC, MEMWAIT_REALTIME, MEMWAIT_CLOCKS };

static inline u8 memwait_async_clock(u32 flags)
{
	return flags & MEMWAIT_CLOCK_REALTIME ? MEMWAIT_REALTIME : MEMWAIT_MONOTONIC;
}

static inline ktime_t memwait_now(int clock)
{
	return clock == MEMWAIT_REALTIME ? ktime_get_real() : ktime_get();
}

static inline bool memwait_has_passed(ktime_t expires, int clock)
{
	return expires != KTIME_MAX && expires <= memwait_now(clock);
}

/* Whether the wait has not ended; may be stale immediately. */
static inline bool memwait_group_is_pending(const struct memwait_group *group)
{
	return !READ_ONCE(group->claimed);
}

/* The notified waiter of a wait, or %NULL if there is none. */
static inline const struct memwait_waiter *memwait_group_notified(const struct memwait_group *group)
{
	u32 claimed = READ_ONCE(group->claimed);

	return claimed && claimed != MEMWAIT_CLAIMED_BY_ITSELF ? &group->waiters[claimed - 1] :
								 NULL;
}

/**
 * struct memwait_bucket - the queues of the words whose keys have the same hash
 * @lock: protects the rest; taken by memwait_bucket_lock()
 * @nr_waiters: number of waiters; written under @lock, read without it by a notify
 * @nr_locking: threads that wait for @lock; not protected
 * @last: the thread that took @lock last; read without it
 * @futile: when a call last waited for others to take @lock and none did, in jiffies; not protected
 * @number: the last number that was given to a waiter
 * @waiters: by key and number, so that a word's waiters are adjacent, oldest first
 * @watching: the first MEMWAIT_OWNED waiter of each word that has any, by key; see watch.c
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

/* The seed of memwait_bucket_of(), secret because no user may know which words share a bucket. */
struct memwait_bucket_seed {
	u32 add;
	u32 multiply;
};

/* Charged to the caller. Fails at the cgroup's limit instead of invoking the OOM killer. */
#define MEMWAIT_GFP		(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL)

/*
 * Bounds of one step: waiters examined; threads woken; contexts whose pollers are woken. Behind
 * each poller there may be an epoll instance with pollers of its own, which cannot be counted.
 */
#define MEMWAIT_STEP		64
#define MEMWAIT_STEP_WAKES	16
#define MEMWAIT_STEP_POLLED	4

/**
 * struct memwait_wakes - threads and contexts to wake after dropping the bucket's lock
 * @call: number of a call that may take several steps, or 0
 * @looked: waiters examined
 * @nr_tasks: length of @tasks
 * @nr_contexts: length of @contexts
 * @crowded: the last of @contexts has more than one poller
 * @tasks: claimed threads, and readers of contexts with new completions; a reference to each
 * @contexts: contexts with new completions and with pollers, a reference to each
 */
struct memwait_wakes {
	u64 call;
	unsigned int looked;
	unsigned int nr_tasks;
	unsigned int nr_contexts;
	bool crowded;
	struct task_struct *tasks[MEMWAIT_STEP_WAKES];
	struct memwait_context *contexts[MEMWAIT_STEP_POLLED];
};

/**
 * struct memwait_name - name of a word outside the kernel
 * @ino: the file's inode; for a private word the process, or 0 if it has ended or is not known
 * @offset: byte offset in the file; for a private word the address
 * @dev: the file's device; for a private word 0
 */
struct memwait_name {
	u64 ino;
	u64 offset;
	dev_t dev;
};

/* trace.c */
void memwait_name(struct memwait_name *name, const struct memwait_key *key);

/* word.c */
int memwait_compare(u64 addr, u64 expected, u32 flags);
ktime_t memwait_expires(u64 deadline, u32 flags);
int memwait_word_get(struct memwait_word *word, u64 addr, u32 flags);

/**
 * memwait_is_address() - is the address of an array valid on this kernel?
 * @addr: from user space
 *
 * Context: any.
 *
 * Return: false if a 32-bit kernel would truncate it.
 */
static inline bool memwait_is_address(u64 addr)
{
	return (unsigned long)addr == addr;
}

static inline unsigned int memwait_size(u32 flags)
{
	return 1U << (flags & MEMWAIT_SIZE_MASK);
}

/**
 * memwait_check() - check address and flags of a word
 * @addr: address of the word
 * @flags: flags of the word
 * @known: allowed flags
 *
 * Context: any.
 *
 * Return: 0, or -EINVAL: unknown flag or misaligned address.
 */
static inline int memwait_check(u64 addr, u32 flags, u32 known)
{
	if ((flags & ~known) || !IS_ALIGNED(addr, memwait_size(flags)))
		return -EINVAL;
	return 0;
}

/**
 * memwait_check_wait() - check a word that will be compared
 * @wait: copied from user space
 * @known: allowed flags
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

/* Puts the file of a word, if it still has one. */
static inline void memwait_word_put(struct memwait_word *word)
{
	if (word->file)
		fput(word->file);
	word->file = NULL;
}

/* identity.c */
bool memwait_names_dead_owner(const struct memwait_wait *wait);
int memwait_own_identity(u32 flags, struct memwait_context *context,
			 struct memwait_identity **identity);

/* bucket.c */
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
 * memwait_bucket_lock_nested() - take a bucket's lock, and be counted while waiting for it
 * @bucket: the bucket
 * @subclass: lockdep's, 0 except for the second of two locks
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

/* Whether a thread waits for the lock: the holder of the lock then ends its step. */
static inline bool memwait_bucket_is_wanted(const struct memwait_bucket *bucket)
{
	return unlikely(atomic_read(&bucket->nr_locking));
}

/* watch.c */
bool memwait_watch_join(struct memwait_waiter *waiter, const struct memwait_wait *wait);
void memwait_watch_leave(struct memwait_waiter *waiter);
struct memwait_owned *memwait_watch_own(struct memwait_waiter *waiter);
void memwait_watch_claimed(struct memwait_waiter *waiter);

/* queue.c */
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

/* Orders keys. Returns less than 0, 0, or more. */
static __always_inline int memwait_key_cmp(const struct memwait_key *a, const struct memwait_key *b)
{
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	if (a->space != b->space)
		return a->space < b->space ? -1 : 1;
	return 0;
}

/**
 * memwait_bucket_of() - the bucket of a word
 * @key: the word's key
 *
 * Takes half the time of hashing all 16 bytes. Spreads the words of one space, whose offsets a user
 * can choose. For spaces that differ in their upper halves, no choice of offsets collides with
 * every seed.
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
 * memwait_rb_after() - find the first node after a key; rb_find() finds a node with the key
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

/* The waiter, if there is one and it waits for the word of @key. */
static inline struct memwait_waiter *memwait_of_word(struct memwait_waiter *waiter,
						     const struct memwait_key *key)
{
	return waiter && !memwait_key_cmp(&waiter->word.key, key) ? waiter : NULL;
}

/**
 * memwait_queue_next() - the next waiter of a word
 * @bucket: the word's
 * @key: the word's key
 * @number: of the previous waiter, or 0
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
 * @waiter: after memwait_group_init(); of the current thread, or of a claimed group or async wait
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
 * @group: its words are set, and with MEMWAIT_OWNED the identity
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
 * @joined: %NULL; for an async wait: called while the last waiter's bucket is locked. Others may
 *	free the wait as soon as that lock is dropped
 *
 * A notify may claim the wait as soon as its first waiter has joined. If not all join, the caller
 * claims the wait unless a notify has claimed it, and calls memwait_group_leave(), or lets the
 * reader of the completion do so.
 *
 * Context: process context, may sleep.
 *
 * Return: 0, or the result of @joined: all have joined; or the result of memwait_queue_join() for
 * the first waiter that could not join.
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

/* wake.c */
u64 memwait_new_call(void);

/* claim.c */
enum memwait_claim memwait_claim_waiter(struct memwait_waiter *waiter, u8 result,
					struct memwait_wakes *wakes);

/* notify.c */
void memwait_pass_on(const struct memwait_key *key, u64 number);
int memwait_ioc_notify(const struct memwait_notify *notify);
int memwait_ioc_waiters(const struct memwait_notify *notify);
int memwait_ioc_notify_many(const struct memwait_notify_many *many);

/* change.c */
int memwait_ioc_change_notify(const struct memwait_change *change,
			      struct memwait_change __user *user);

/* requeue.c */
int memwait_ioc_requeue(struct memwait_requeue *requeue, struct memwait_requeue __user *user);

/* Flags of words, and of waits with a deadline of their own. */
#define MEMWAIT_WORD_FLAGS	(MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE)
#define MEMWAIT_WAIT_FLAGS	(MEMWAIT_WORD_FLAGS | MEMWAIT_CLOCK_REALTIME | MEMWAIT_OWNED)
#define MEMWAIT_ASYNC_FLAGS	(MEMWAIT_WAIT_FLAGS | MEMWAIT_PERSISTENT)

/* wait.c */
int memwait_ioc_wait(const struct memwait_wait *wait, struct memwait_context *context);
int memwait_ioc_wait_any(const struct memwait_wait_any *any, struct memwait_wait_any __user *user,
			 struct memwait_context *context);
int memwait_ioc_notify_wait(const struct memwait_notify_wait *arg,
			    struct memwait_notify_wait __user *user,
			    struct memwait_context *context);

/* position.c */
bool memwait_dies_of_signal(void);

/**
 * memwait_is_killed() - has the current thread been killed?
 *
 * Context: process context.
 *
 * Return: true if so.
 */
static inline bool memwait_is_killed(void)
{
	/* Plain load: a concurrent signal is seen now or by the next check. */
	return data_race(fatal_signal_pending(current));
}

/**
 * memwait_is_dying() - will current die before returning to user space?
 *
 * Context: process context.
 *
 * Return: true if so.
 */
static inline bool memwait_is_dying(void)
{
	return unlikely(signal_pending(current)) && memwait_dies_of_signal();
}

/* debugfs.c */
#ifdef CONFIG_DEBUG_FS
void memwait_debugfs_init(void);
void memwait_debugfs_exit(void);
#else
static inline void memwait_debugfs_init(void)
{
}

static inline void memwait_debugfs_exit(void)
{
}
#endif

#endif /* MEMWAIT_H */
