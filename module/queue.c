// SPDX-License-Identifier: GPL-2.0-only
/*
 * Queues of waiters. queue.pml models this design.
 *
 * Words are hashed to buckets. A bucket has a lock and a tree of all waiters of its words, ordered
 * by key and number. The queue of a word is the part of the tree with the word's key, oldest waiter
 * first. A waiter gets its number when it joins, from a counter of the bucket that only increases.
 *
 *	Waiter					Notifier
 *
 *	(1) lock the bucket			(1) store to the word, in user space
 *	(2) increment .nr_waiters		(A) full barrier
 *	(B) full barrier			(2) load .nr_waiters; 0: the word has no
 *	(3) load the word; not the expected	    waiters
 *	    value: decrement, unlock, leave	(3) lock the bucket
 *	(4) add itself to the tree		(4) claim the oldest waiters, dequeue them
 *	(5) unlock, sleep			(5) unlock, wake them
 *
 * No wake-up is lost. If the notifier takes the lock, the lock orders the two sides: a waiter that
 * took the lock earlier is in the tree, and a waiter that takes the lock later loads the word after
 * the notifier's store. If the notifier does not take the lock, (A) and (B) order the two sides, so
 * that at least one of them sees the store of the other:
 *
 *	store .nr_waiters		store the word
 *	(B) smp_mb			(A) smp_mb
 *	load the word			load .nr_waiters
 *
 * A requeue also increases the target's .nr_waiters. A program that then looks at the target's word
 * in user space relies on the same pairing: see (H) in requeue.c. A waiter that is moved is added
 * to the target's count before a store-release removes it from the source's count. A thread that
 * notifies the source and then the target loads the counts in that order, and therefore sees the
 * waiter in one of them.
 *
 * Exactly one of notify, owner's death, deadline, signal, cancel and close ends a wait. A cmpxchg
 * of memwait_group.claimed claims a thread's wait; the .claimed of an async wait is set under its
 * context's lock. A notify and a death claim the wait under the bucket's lock, and dequeue the
 * waiter immediately. The others call memwait_queue_leave() after the claim. A notifier that finds
 * the claimed waiter earlier dequeues it without counting it. For groups, see the end of this file.
 *
 * (C) A notifier's last access to a waiter is a store-release of %NULL to .bucket, under the
 * bucket's lock. This also holds for any other thread that dequeues a waiter for its owner. After
 * that, the notifier may still complete an async wait, and read the wait's key, under the context's
 * lock. An owner whose load-acquire of .bucket reads %NULL takes no lock, and sees all changes made
 * to the waiter under buckets' locks, in particular moves. An owner that reads a bucket takes the
 * lock of that bucket. Therefore the owner waits for at most one critical section of a bucket's
 * lock, never for the notifier to be scheduled.
 *
 * Calls process waiters in steps. A step looks at no more than MEMWAIT_STEP waiters under the lock;
 * a requeue then looks at up to as many again, to move them. If a thread waits for the lock, a step
 * looks at one waiter, see bucket.c. Then the step drops the lock. The next step continues after
 * the number that the previous step has reached. A call must not touch waiters that join after the
 * call began, so it ends at the last number that the bucket had assigned when the call began.
 *
 * A thread that was interrupted by a signal handler returns to its position with its old number,
 * see position.c. A call covers waiters that return while the call is running, because these are as
 * old as other waiters that the call covers. The call skips a waiter whose number it has already
 * passed: that waiter was absent when the call passed its number, and has compared the word since.
 * Therefore a call visits each number once, and a thread that returns, ends its wait and returns
 * again cannot prolong the call.
 *
 * The space of a key in a tree exists, because the waiter has a reference to it. The numbers of
 * interrupted threads may outlive the space, so position.c checks whether the space of a record has
 * been freed.
 *
 * Waiters of other words in the same bucket have two effects: they make the tree deeper, at a cost
 * that grows with the logarithm of their number, and a call waits for steps of other calls, which
 * hold the lock. The hash has a secret seed.
 *
 *	Lock order:	bucket->lock -> memwait_context.lock -> locks of hrtimers
 *			bucket->lock -> memwait_context.lock -> memwait_identity.lock
 *
 * Only requeue holds two buckets' locks, see requeue.c. All of these locks except the hrtimers' are
 * taken in process context only. The only locks of this module that its timers take are those of
 * wait queue heads, see async.c.
 */
#include <linux/cpumask.h>
#include <linux/freezer.h>
#include <linux/jiffies.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/uaccess.h>

#include "owner.h"

/*
 * The number of buckets is the larger of two numbers: MEMWAIT_BUCKETS_PER_CPU for each possible
 * CPU, as for futex(2), so that CPUs rarely contend; and one for each 2^MEMWAIT_BUCKET_SHIFT bytes
 * of memory, so that trees stay low if there are many waiters.
 */
#define MEMWAIT_BUCKETS_PER_CPU	256
#define MEMWAIT_BUCKET_SHIFT	19
#define MEMWAIT_MAX_BUCKETS	(1024 * 1024UL)	/* 64 MiB; on larger machines trees are higher */

struct memwait_bucket *memwait_buckets __ro_after_init;
unsigned int memwait_bucket_mask __ro_after_init;
struct memwait_bucket_seed memwait_bucket_seed __ro_after_init;

/* The position of a waiter. */
struct memwait_spot {
	const struct memwait_key *key;
	u64 number;
};

static int memwait_spot_cmp(const void *spot, const struct rb_node *node)
{
	const struct memwait_spot *a = spot;
	const struct memwait_waiter *b = rb_entry(node, struct memwait_waiter, node);
	int cmp = memwait_key_cmp(a->key, &b->word.key);

	return cmp ?: a->number < b->number ? -1 : a->number > b->number;
}

static bool memwait_waiter_less(struct rb_node *new, const struct rb_node *node)
{
	const struct memwait_waiter *waiter = rb_entry(new, struct memwait_waiter, node);
	const struct memwait_spot spot = { &waiter->word.key, waiter->number };

	return memwait_spot_cmp(&spot, node) < 0;
}

/**
 * memwait_bucket_next() - find the first waiter after a position
 * @bucket: the bucket
 * @key: of the position
 * @number: of the position
 *
 * Context: the bucket's lock is held.
 *
 * Return: the waiter, which may wait for another word; or %NULL.
 */
struct memwait_waiter *memwait_bucket_next(struct memwait_bucket *bucket,
					   const struct memwait_key *key, u64 number)
{
	const struct memwait_spot spot = { key, number };

	lockdep_assert_held(&bucket->lock);
	return memwait_waiter_at(memwait_rb_after(&spot, &bucket->waiters, memwait_spot_cmp));
}

/* Adds @more, which may be -1, to the number of waiters. */
static void memwait_bucket_count(struct memwait_bucket *bucket, int more)
{
	lockdep_assert_held(&bucket->lock);
	WRITE_ONCE(bucket->nr_waiters, bucket->nr_waiters + more);
}

static __always_inline void memwait_queue_insert(struct memwait_bucket *bucket,
						 struct memwait_waiter *waiter)
{
	rb_add(&waiter->node, &bucket->waiters, memwait_waiter_less);
	WRITE_ONCE(waiter->bucket, bucket);
}

/**
 * memwait_queue_join() - join the queue of a word while the word holds the expected value
 * @waiter: after memwait_group_init(); joins at the position of its number, or at the end if the
 *	number is 0
 * @wait: address, expected value and size of the word
 * @lock: if the waiter has joined, the bucket's lock is still held on return, and the caller must
 *	drop it
 *
 * The comparison and the joining are atomic with respect to a notify of the word.
 *
 * Context: process context, may sleep; takes the bucket's lock.
 *
 * Return:
 * * 0: the waiter is in the queue
 * * MEMWAIT_NOT_EQUAL: the word holds another value
 * * MEMWAIT_OWNER_DIED: the owner that the word names is dead; the waiter is in the queue, and the
 *   caller must dequeue it, unless a notify or another death does
 * * -EAGAIN: the word's page is absent: fault it in by a comparison without the lock, and retry
 */
int memwait_queue_join(struct memwait_waiter *waiter, const struct memwait_wait *wait, bool lock)
{
	struct memwait_bucket *bucket = memwait_bucket_of(&waiter->word.key);
	int ret;

	memwait_bucket_lock(bucket);
	memwait_bucket_count(bucket, 1);
	smp_mb();	/* (B) pairs with (A) */
	pagefault_disable();
	ret = memwait_compare(wait->addr, wait->expected, wait->flags);
	pagefault_enable();
	if (likely(!ret)) {
		if (likely(!waiter->number))
			waiter->number = ++bucket->number;
		waiter->since = jiffies;
		memwait_queue_insert(bucket, waiter);
		if (unlikely(waiter->owned) && !memwait_watch_join(waiter, wait))
			ret = MEMWAIT_OWNER_DIED;
	} else {
		memwait_bucket_count(bucket, -1);
	}
	if (lock && !ret)
		__release(&bucket->lock);	/* for sparse */
	else
		spin_unlock(&bucket->lock);
	return ret == -EFAULT ? -EAGAIN : ret;
}

/**
 * memwait_queue_rejoin() - move a waiter to the end of its queue
 * @waiter: in a queue, without MEMWAIT_OWNED
 *
 * Context: the bucket's lock is held.
 */
void memwait_queue_rejoin(struct memwait_waiter *waiter)
{
	struct memwait_bucket *bucket = waiter->bucket;
	const struct memwait_waiter *next = memwait_waiter_at(rb_next(&waiter->node));

	lockdep_assert_held(&bucket->lock);
	if (next && !memwait_key_cmp(&next->word.key, &waiter->word.key)) {
		rb_erase(&waiter->node, &bucket->waiters);
		waiter->number = ++bucket->number;
		rb_add(&waiter->node, &bucket->waiters, memwait_waiter_less);
	} else {
		waiter->number = ++bucket->number;	/* it is the last waiter */
	}
}

/**
 * memwait_queue_remove() - dequeue a waiter
 * @waiter: in a queue. After the store-release, its owner may free the waiter, unless the caller
 *	holds a lock that prevents this
 *
 * Context: the bucket's lock is held.
 */
void memwait_queue_remove(struct memwait_waiter *waiter)
{
	struct memwait_bucket *bucket = waiter->bucket;

	rb_erase(&waiter->node, &bucket->waiters);
	if (unlikely(waiter->owned))
		memwait_watch_leave(waiter);
	memwait_bucket_count(bucket, -1);
	smp_store_release(&waiter->bucket, NULL);	/* (C) pairs with the acquires */
}

/**
 * memwait_queue_remove_claimed() - dequeue a waiter whose wait a notify or a death has claimed
 * @waiter: see memwait_queue_remove(). If the wait has MEMWAIT_OWNED, and other such waiters of the
 *	word remain, the word then watches the waiter's thread or context, see watch.c
 *
 * Context: the bucket's lock is held.
 */
void memwait_queue_remove_claimed(struct memwait_waiter *waiter)
{
	if (unlikely(waiter->owned))
		memwait_watch_claimed(waiter);
	memwait_queue_remove(waiter);
}

/**
 * memwait_queue_move() - move a waiter to the end of another word's queue
 * @waiter: in a queue
 * @to: the bucket of the other word
 * @target: key of the other word
 * @whole: the caller moves the bucket's tree as a whole
 *
 * Context: the locks of both buckets are held.
 */
void memwait_queue_move(struct memwait_waiter *waiter, struct memwait_bucket *to,
			const struct memwait_key *target, bool whole)
{
	struct memwait_bucket *from = waiter->bucket;

	lockdep_assert_held(&to->lock);
	if (!whole)
		rb_erase(&waiter->node, &from->waiters);
	if (unlikely(waiter->owned))
		memwait_watch_leave(waiter);
	if (from != to) {
		memwait_bucket_count(to, 1);
		/*
		 * The waiter is always in one of the counts. Pairs with the acquires of notify.c.
		 */
		smp_store_release(&from->nr_waiters, from->nr_waiters - 1);
	}
	waiter->word.key = *target;
	waiter->number = ++to->number;
	if (whole)
		WRITE_ONCE(waiter->bucket, to);
	else
		memwait_queue_insert(to, waiter);
	if (unlikely(waiter->owned))
		memwait_watch_own(waiter);
}

/**
 * memwait_queue_keep() - keep a waiter in its bucket while the bucket's tree is moved
 * @waiter: in a queue
 * @staying: the tree that the bucket will have afterwards; ordered like the bucket's tree
 *
 * Context: the bucket's lock is held.
 */
void memwait_queue_keep(struct memwait_waiter *waiter, struct rb_root *staying)
{
	lockdep_assert_held(&waiter->bucket->lock);
	rb_erase(&waiter->node, &waiter->bucket->waiters);
	rb_add(&waiter->node, staying, memwait_waiter_less);
}

/**
 * memwait_queue_take_out() - the slow path of memwait_queue_leave()
 * @waiter: see memwait_queue_leave()
 *
 * Context: process context; takes the bucket's lock.
 */
void memwait_queue_take_out(struct memwait_waiter *waiter)
{
	struct memwait_bucket *bucket;

	while ((bucket = smp_load_acquire(&waiter->bucket))) {	/* (C) */
		memwait_bucket_lock(bucket);
		/*
		 * Otherwise a requeue has moved the waiter, or a notifier has dequeued it: look
		 * again.
		 */
		if (likely(READ_ONCE(waiter->bucket) == bucket)) {
			memwait_queue_remove(waiter);
			spin_unlock(&bucket->lock);
			return;
		}
		spin_unlock(&bucket->lock);
	}
}

/**
 * memwait_queue_waiters() - count a word's waiters
 * @key: the word's key
 *
 * Context: process context, may sleep; takes the bucket's lock, in steps.
 *
 * Return: the count, which may be stale, and is too low if the thread was killed.
 */
int memwait_queue_waiters(const struct memwait_key *key)
{
	struct memwait_bucket *bucket = memwait_bucket_of(key);
	struct memwait_waiter *waiter;
	u64 number = 0, last = 0;
	int nr = 0, step;
	bool more, gives_way;

	do {
		gives_way = memwait_bucket_let_others(bucket);
		memwait_bucket_lock(bucket);
		/* Waiters that join during the call cannot prolong it. */
		if (!last)
			last = bucket->number;
		waiter = memwait_queue_next(bucket, key, number);
		for (step = 0; waiter && waiter->number <= last; step++) {
			if (step == MEMWAIT_STEP ||
			    (step && gives_way && memwait_bucket_is_wanted(bucket)))
				break;
			number = waiter->number;
			nr += memwait_group_is_pending(memwait_group_of(waiter));
			waiter = memwait_of_word(memwait_waiter_at(rb_next(&waiter->node)), key);
		}
		more = waiter && waiter->number <= last;
		spin_unlock(&bucket->lock);
		cond_resched();
		try_to_freeze();
	} while (more && !memwait_is_killed());
	return nr;
}

int __init memwait_queue_init(void)
{
	unsigned long nr, i;
	struct sysinfo info;

	si_meminfo(&info);
	nr = (u64)(info.totalram - info.totalhigh) * info.mem_unit >> MEMWAIT_BUCKET_SHIFT;
	nr = max_t(unsigned long, nr, MEMWAIT_BUCKETS_PER_CPU * num_possible_cpus());
	nr = roundup_pow_of_two(min(nr, MEMWAIT_MAX_BUCKETS));
	memwait_buckets = kvmalloc_array(nr, sizeof(*memwait_buckets), GFP_KERNEL);
	if (!memwait_buckets)
		return -ENOMEM;
	memwait_bucket_mask = nr - 1;
	memwait_bucket_seed.add = get_random_u32();
	memwait_bucket_seed.multiply = get_random_u32() | 1;
	for (i = 0; i < nr; i++) {
		spin_lock_init(&memwait_buckets[i].lock);
		memwait_buckets[i].nr_waiters = 0;
		atomic_set(&memwait_buckets[i].nr_locking, 0);
		memwait_buckets[i].futile = jiffies;
		memwait_buckets[i].last = NULL;
		memwait_buckets[i].number = 0;
		memwait_buckets[i].waiters = RB_ROOT;
		memwait_buckets[i].watching = RB_ROOT;
	}
	return 0;
}

/* Called when no context and no waiter is left. */
void memwait_queue_exit(void)
{
	kvfree(memwait_buckets);
}

/*
 * A wait for several words is a group of waiters, one in the queue of each word; a wait for one
 * word is a group of one waiter. The group is claimed once, as a whole, and no bucket's lock
 * protects that claim:
 *
 *	notify of one word (its queue locked)	another notify, a deadline, a signal, ...
 *	(1) claim the group: won		(1) claim the group: lost
 *	(2) take this waiter out		(2) a notify takes this waiter out as well, does not
 *	    of its queue			    count it, and continues with the next waiter
 *	(3) count it, unlock
 *
 * Therefore no notify is lost, and no group consumes two notifies. The group's owner, which is the
 * woken thread or the reader of the completion, dequeues the other waiters, each under the lock of
 * its own queue, before it puts the words. A notify that finds such a waiter earlier dequeues it. A
 * notify therefore accesses a group only under the lock of a queue that contains a waiter of the
 * group. The owner frees the group only after it has found or made every waiter dequeued, see (C).
 *
 * The waiters join one after another. Each compares its word under its bucket's lock. A notify that
 * comes after a waiter has joined finds that waiter and claims the group, even if other waiters
 * have not joined. The joining thread looks for a claim when all waiters have joined, or when a
 * later word is not equal. In both cases a claimed wait ends with the notify, not with
 * MEMWAIT_NOT_EQUAL. A word that changes before its waiter joins is found not equal. Therefore no
 * change is missed, and no two queues are locked together.
 */
