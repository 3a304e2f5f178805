// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queues: one for each word that somebody waits on, oldest waiter first. queue.pml is a model
 * of what is argued for here.
 *
 * A queue stands in a hash table under its key; its lock protects its list and everything that the
 * list means. The invariant, whenever a queue's lock is free:
 *
 *	has waiters or is kept  <=>  in the hash table  <=>  key is set
 *
 * A queue whose last waiter leaves is kept for the next one: most words are waited on again soon.
 * Each processor keeps the last MEMWAIT_KEPT_QUEUES that became empty there, and expels the one
 * that it has kept longest for each further one; nobody keeps any when the last context is closed.
 * A queue that is expelled while it has waiters lives on, and is kept again when they have left.
 * What an empty queue is the queue of may be gone, and its key another word's by now: that is the
 * same to an empty queue, which holds no reference.
 *
 * Waiter					Waker
 *
 * (1) find the queue of the key and lock it,	(1) store to the word, in user space
 *     or insert a new one that is locked	(A) full barrier
 * (B) full barrier, if inserted		(2) find the queue of the key;
 * (2) load the word; not the expected value:	    none: nobody waits
 *     unlock, leave				(3) lock it
 * (3) append itself				(4) take the oldest waiters out and claim them
 * (4) unlock, sleep				(5) unlock, wake them
 *
 * No wake-up is lost. If the waker finds the queue, both hold its lock in some order: a waiter
 * that was first is in the list, and a waiter that comes later loads the word after the waker's
 * store. If the waker finds no queue, then its (2) came before the insertion in the order of the
 * hash bucket; (A) orders its store before that look-up, (B) the insertion before the waiter's
 * load, so the waiter sees the store:
 *
 *	insert queue			store word
 *	(B) smp_mb			(A) smp_mb
 *	load word			look the queue up
 *
 * cannot both miss. A later waiter that finds the queue needs no barrier of its own: it has taken
 * the lock from the one who inserted and passed (B), which is ordered before its load. Nor can a
 * waker miss a queue that has waiters because it was expelled: it leaves the table empty, and under
 * its lock.
 *
 * Who ends a wait? There are notify, deadline, signal, cancel and close, and exactly one of them.
 * A thread's wait, or group, is claimed by a compare-and-exchange of memwait_thread.claimed; an
 * async wait, or group, under its context's lock. Notify, which holds the queue's lock already,
 * takes what it has claimed out at once; the others call memwait_queue_leave() afterwards. A notify
 * that comes in between does not count such a waiter, and takes it out of the queue for them. See
 * group.h for groups.
 *
 * (C) A claimed thread must not leave before the waker has done with its waiter, which is on its
 *     stack: it sleeps until the waker's store-release of memwait_thread.woken, its last access.
 * (D) Who finds that its waiter is in no queue any more takes no lock. The store-release of %NULL
 *     to .queue is the last access of the one who took it out for it, and the load-acquire makes
 *     what was done to the waiter under queues' locks, a move above all, visible to its owner.
 *
 * Requeue locks both queues, having made those that are missing, and so sees and changes the
 * waiters of both words in one step: a waiter is in the source's queue, or in the target's, whoever
 * looks. Its .queue is never %NULL in between, and who takes it out by memwait_queue_leave() locks
 * the queue that .queue names, and looks at .queue again: so a deadline, signal or cancel follows
 * the waiter wherever it has gone. A waiter that is claimed at the same time may be counted as
 * moved: it was moved first. Requeue needs no (A): it holds the source's queue in any case, and has
 * passed (B) if it made it.
 *
 * Queues are SLAB_TYPESAFE_BY_RCU: a look-up may lock an object that has been freed, and even one
 * that serves another word by now. Hence the key is compared again under the lock. The object's
 * lock is initialised by the cache's constructor only, and stays valid in between.
 *
 * Lock order: queue->lock -> memwait_context.lock -> hrtimer's locks
 *	       queue->lock -> hash bucket's lock
 *	       queue->lock -> pollers of a context -> epoll's locks
 *
 * Two queues' locks are held by requeue only. Of two that others can find, the one with the lower
 * address comes first, and it is held for the right key before the second is asked for. A new queue
 * comes last, just before it is inserted: the object may have been another queue, and somebody with
 * a stale pointer may hold its lock still, but finds the wrong key and lets go without asking for
 * any other lock. A queue that is to be expelled is locked when no other queue is. All of them are
 * taken in process context only; no interrupt handler of this module takes a lock.
 */
#include <linux/atomic.h>
#include <linux/cpumask.h>
#include <linux/jhash.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/rhashtable.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "memwait.h"

/**
 * struct memwait_queue - the waiters of one word
 * @node: in memwait_queues
 * @key: the word; an owner of 0 marks a queue that died. Written under @lock, read without it by
 *	look-ups in the hash table
 * @lock: protects the rest
 * @nr_waiters: length of @waiters
 * @kept: a processor keeps it, or is about to; who expels it resets this, and frees it if empty
 * @waiters: oldest first
 */
struct memwait_queue {
	struct rhash_head node;
	struct memwait_key key;
	spinlock_t lock;	/* see the top of the file */
	unsigned int nr_waiters : 31;
	unsigned int kept : 1;
	struct list_head waiters;
};

/* A power of two, and enough for the words of some batches of async waits. */
#define MEMWAIT_KEPT_QUEUES	512

/**
 * struct memwait_kept_queues - the queues that a processor keeps, see the top of the file
 * @nr: how many were kept here up to now
 * @queues: the last of them, as a ring; some may be %NULL. Exchanged without a lock
 */
struct memwait_kept_queues {
	unsigned int nr;
	struct memwait_queue *queues[MEMWAIT_KEPT_QUEUES];
};

enum { SOURCE, TARGET };	/* of requeue */

static bool memwait_queue_has_key(const struct memwait_queue *queue, const struct memwait_key *key)
{
	return READ_ONCE(queue->key.owner) == key->owner &&
	       READ_ONCE(queue->key.offset) == key->offset;
}

static int memwait_queue_compare(struct rhashtable_compare_arg *arg, const void *queue)
{
	return !memwait_queue_has_key(queue, arg->key);
}

/*
 * In half the time that all 16 bytes would take. The words of one owner, which a user can choose,
 * lose nothing by that, nor do owners that differ in their lower halves.
 */
static __always_inline u32 memwait_queue_hash(const void *data, u32 len, u32 seed)
{
	const struct memwait_key *key = data;

	return jhash_3words(lower_32_bits(key->owner), lower_32_bits(key->offset),
			    upper_32_bits(key->owner) ^ upper_32_bits(key->offset), seed);
}

static const struct rhashtable_params memwait_queue_params = {
	.key_len = sizeof(struct memwait_key),
	.hashfn = memwait_queue_hash,
	.key_offset = offsetof(struct memwait_queue, key),
	.head_offset = offsetof(struct memwait_queue, node),
	.obj_cmpfn = memwait_queue_compare,
	.min_size = 4096,	/* 32 KiB, so that an idle machine does not resize all the time */
	.automatic_shrinking = true,
};

static struct rhashtable memwait_queues;
static struct kmem_cache *memwait_queue_cache;
static struct memwait_kept_queues __percpu *memwait_kept_queues;

static void memwait_queue_construct(void *object)
{
	struct memwait_queue *queue = object;

	spin_lock_init(&queue->lock);
	INIT_LIST_HEAD(&queue->waiters);
	queue->nr_waiters = 0;
	queue->kept = false;
	queue->key.owner = 0;
	queue->key.offset = 0;
}

/*
 * Finds the queue of @key and returns it locked, or NULL if there is none. Called within an RCU
 * read-side critical section, as every look-up.
 */
static struct memwait_queue *memwait_queue_lock(const struct memwait_key *key)
{
	struct memwait_queue *queue;

	for (;;) {
		queue = rhashtable_lookup(&memwait_queues, key, memwait_queue_params);
		if (!queue)
			return NULL;

		spin_lock(&queue->lock);
		if (likely(memwait_queue_has_key(queue, key))) {
			/* Balanced by memwait_queue_unlock(): sparse cannot follow. */
			__release(&queue->lock);
			return queue;
		}
		spin_unlock(&queue->lock);
	}
}

/* Keeps a locked queue no longer: frees it, or leaves it to its waiters. */
static void memwait_queue_expel(struct memwait_queue *queue)
	__releases(&queue->lock)
{
	bool empty = list_empty(&queue->waiters);

	lockdep_assert_held(&queue->lock);
	queue->kept = false;
	if (empty) {
		rhashtable_remove_fast(&memwait_queues, &queue->node, memwait_queue_params);
		WRITE_ONCE(queue->key.owner, 0);
	}
	spin_unlock(&queue->lock);
	if (empty)
		kmem_cache_free(memwait_queue_cache, queue);
}

/* Keeps a queue, which its caller has marked as kept, instead of one that was kept for long. */
static noinline void memwait_queue_keep(struct memwait_queue *queue)
{
	unsigned int i = this_cpu_inc_return(memwait_kept_queues->nr) % MEMWAIT_KEPT_QUEUES;
	struct memwait_queue **slot, *other;

	/* The processor may be another one by now: which of them keeps it does not matter. */
	slot = &raw_cpu_ptr(memwait_kept_queues)->queues[i];
	other = xchg(slot, queue);
	if (!other)
		return;
	if (!spin_trylock(&other->lock)) {
		/* Strangers are at work there, maybe for long: rather one's own. */
		other = xchg(slot, other);
		if (!other)
			return;
		spin_lock(&other->lock);
	}
	memwait_queue_expel(other);
}

/*
 * Unlocks a queue. Returns whether it became empty: then the caller is to call memwait_queue_keep()
 * as soon as it holds no queue's lock.
 */
static bool memwait_queue_unlock_only(struct memwait_queue *queue)
{
	bool keep = list_empty(&queue->waiters) && !queue->kept;

	lockdep_assert_held(&queue->lock);
	__acquire(&queue->lock);

	if (keep)
		queue->kept = true;
	spin_unlock(&queue->lock);
	return keep;
}

static void memwait_queue_unlock(struct memwait_queue *queue)
{
	if (memwait_queue_unlock_only(queue))
		memwait_queue_keep(queue);
}

/*
 * Makes @queue the queue of @key, locked; @depth: how many queues are locked already. Returns 0,
 * -EEXIST if the key has one already, or -ENOMEM; unless it is 0, the queue is the caller's still.
 */
static int memwait_queue_insert(struct memwait_queue *queue, const struct memwait_key *key,
				int depth)
{
	struct memwait_queue *other;

	spin_lock_nested(&queue->lock, depth);
	WRITE_ONCE(queue->key.offset, key->offset);
	WRITE_ONCE(queue->key.owner, key->owner);

	rcu_read_lock();
	other = rhashtable_lookup_get_insert_fast(&memwait_queues, &queue->node,
						  memwait_queue_params);
	rcu_read_unlock();
	if (likely(!other)) {
		smp_mb();	/* (B) pairs with (A) */
		/* Balanced by memwait_queue_unlock(). */
		__release(&queue->lock);
		return 0;
	}

	WRITE_ONCE(queue->key.owner, 0);
	spin_unlock(&queue->lock);
	return IS_ERR(other) ? -ENOMEM : -EEXIST;
}

/* As memwait_queue_lock(), but makes the queue if there is none, or returns an ERR_PTR(). */
static struct memwait_queue *memwait_queue_lock_or_insert(const struct memwait_key *key, gfp_t gfp)
{
	struct memwait_queue *queue, *spare = NULL;
	int err;

	for (;;) {
		rcu_read_lock();
		queue = memwait_queue_lock(key);
		rcu_read_unlock();
		if (queue)
			break;

		if (!spare) {
			spare = kmem_cache_alloc(memwait_queue_cache, gfp);
			if (!spare)
				return ERR_PTR(-ENOMEM);
		}
		err = memwait_queue_insert(spare, key, 0);
		if (!err)
			return spare;
		if (err != -EEXIST) {
			queue = ERR_PTR(err);
			break;
		}
	}
	if (spare)
		kmem_cache_free(memwait_queue_cache, spare);
	return queue;
}

/* One try of memwait_queue_lock_pair(): 0; or -EAGAIN, -EEXIST: try again; or -ENOMEM. */
static int memwait_queue_try_lock_pair(struct memwait_queue *queues[2],
				       struct memwait_queue *spare[2],
				       const struct memwait_key *keys[2], int first)
{
	int depth, i, err;

	for (depth = 0; depth < 2; depth++) {
		i = depth ? !first : first;
		if (queues[i]) {
			spin_lock_nested(&queues[i]->lock, depth);
			err = memwait_queue_has_key(queues[i], keys[i]) ? 0 : -EAGAIN;
			if (err)
				spin_unlock(&queues[i]->lock);
			else
				__release(&queues[i]->lock);	/* as memwait_queue_lock() */
		} else {
			err = memwait_queue_insert(spare[i], keys[i], depth);
			if (!err)
				swap(queues[i], spare[i]);
		}
		if (err) {
			if (depth)
				memwait_queue_unlock(queues[first]);
			return err;
		}
	}
	return 0;
}

/*
 * Finds or makes the queues of two different keys, and locks both. Returns 0 or -ENOMEM. See the
 * top of the file for the order.
 */
static int memwait_queue_lock_pair(struct memwait_queue *queues[2],
				   const struct memwait_key *keys[2])
{
	struct memwait_queue *spare[2] = { NULL, NULL };
	int first, i, err;

	do {
		err = -EAGAIN;
		rcu_read_lock();
		for (i = 0; i < 2; i++)
			queues[i] = rhashtable_lookup(&memwait_queues, keys[i],
						      memwait_queue_params);
		/* The same one twice has been one queue, and then the other. */
		if ((queues[0] || spare[0]) && (queues[1] || spare[1]) &&
		    (!queues[0] || queues[0] != queues[1])) {
			first = !queues[0] || (queues[1] && queues[1] < queues[0]);
			err = memwait_queue_try_lock_pair(queues, spare, keys, first);
		}
		rcu_read_unlock();

		for (i = 0; err == -EAGAIN && i < 2; i++) {
			if (queues[i] || spare[i])
				continue;
			spare[i] = kmem_cache_alloc(memwait_queue_cache, MEMWAIT_GFP);
			if (!spare[i])
				err = -ENOMEM;
		}
	} while (err == -EAGAIN || err == -EEXIST);

	for (i = 0; i < 2; i++) {
		if (spare[i])
			kmem_cache_free(memwait_queue_cache, spare[i]);
	}
	return err;
}

/**
 * memwait_compare() - does a word hold the expected value?
 * @addr: address of the word, aligned, access_ok()
 * @expected: compared on the word's size
 * @flags: MEMWAIT_SIZE_*
 *
 * Context: may fault and sleep, unless page faults are disabled.
 *
 * Return: 0: it does; MEMWAIT_NOT_EQUAL; or -EFAULT.
 */
int memwait_compare(u64 addr, u64 expected, u32 flags)
{
	const void __user *word = u64_to_user_ptr(addr);
	bool equal = false;
	int err = -EFAULT;
	u64 value64;
	u32 value32;
	u16 value16;
	u8 value8;

	switch (flags & MEMWAIT_SIZE_MASK) {
	case MEMWAIT_SIZE_U8:
		err = get_user(value8, (const u8 __user *)word);
		equal = value8 == (u8)expected;
		break;
	case MEMWAIT_SIZE_U16:
		err = get_user(value16, (const u16 __user *)word);
		equal = value16 == (u16)expected;
		break;
	case MEMWAIT_SIZE_U32:
		err = get_user(value32, (const u32 __user *)word);
		equal = value32 == (u32)expected;
		break;
	case MEMWAIT_SIZE_U64:
		err = get_user(value64, (const u64 __user *)word);
		equal = value64 == expected;
		break;
	}
	if (err)
		return err;
	return equal ? 0 : MEMWAIT_NOT_EQUAL;
}

/**
 * memwait_queue_join() - join the queue of a word while the word holds the expected value
 * @waiter: its word and ops are set, the rest is filled in
 * @wait: address, expected value and size of the word
 * @gfp: how to allocate a queue if the word has none: with or without charge
 *
 * The comparison and the joining are one step with respect to a notify of the same word.
 *
 * Context: process context, may sleep.
 *
 * Return:
 * * 0: it is in the queue, and its joined() was called
 * * MEMWAIT_NOT_EQUAL: the word holds another value
 * * -EAGAIN: the word's page must be faulted in first: compare it once outside and try again
 * * -ENOMEM
 */
int memwait_queue_join(struct memwait_waiter *waiter, const struct memwait_wait *wait, gfp_t gfp)
{
	struct memwait_queue *queue = memwait_queue_lock_or_insert(&waiter->word.key, gfp);
	int ret;

	if (IS_ERR(queue))
		return PTR_ERR(queue);

	pagefault_disable();
	ret = memwait_compare(wait->addr, wait->expected, wait->flags);
	pagefault_enable();
	if (likely(!ret)) {
		list_add_tail(&waiter->node, &queue->waiters);
		queue->nr_waiters++;
		WRITE_ONCE(waiter->queue, queue);
		if (waiter->ops->joined)
			waiter->ops->joined(waiter);
	}
	memwait_queue_unlock(queue);
	return ret == -EFAULT ? -EAGAIN : ret;
}

/**
 * memwait_queue_remove() - take a waiter out of its queue
 * @waiter: in a queue. Its owner may free it as soon as this has been done, unless the caller has
 *	claimed it
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_remove(struct memwait_waiter *waiter)
{
	struct memwait_queue *queue = waiter->queue;

	lockdep_assert_held(&queue->lock);
	list_del(&waiter->node);
	queue->nr_waiters--;
	smp_store_release(&waiter->queue, NULL);	/* (D) pairs with the acquire below */
}

/**
 * memwait_queue_take_out() - memwait_queue_leave() of a waiter that may be in a queue
 * @waiter: as there
 *
 * Context: process context; takes the queue's lock.
 */
void memwait_queue_take_out(struct memwait_waiter *waiter)
{
	struct memwait_queue *queue;

	rcu_read_lock();
	for (;;) {
		queue = smp_load_acquire(&waiter->queue);	/* (D) */
		if (!queue) {
			rcu_read_unlock();
			return;
		}
		spin_lock(&queue->lock);
		/* If not, it is in another one, whose lock protects it. */
		if (READ_ONCE(waiter->queue) == queue)
			break;
		spin_unlock(&queue->lock);
	}
	rcu_read_unlock();

	memwait_queue_remove(waiter);
	/* Taken again, for sparse, by memwait_queue_unlock(). */
	__release(&queue->lock);
	memwait_queue_unlock(queue);
}

static void memwait_wakes_init(struct memwait_wakes *wakes)
{
	INIT_LIST_HEAD(&wakes->threads);
	INIT_LIST_HEAD(&wakes->groups);
	wakes->nr_contexts = 0;
	INIT_LIST_HEAD(&wakes->more_contexts);
	wakes->nr_at_once = 0;
}

/*
 * Wakes whom memwait_queue_wake() has claimed, in the same RCU read-side critical section: a
 * context may be freed a grace period after its close, and likewise an async group, and a task
 * after its exit.
 */
static inline void memwait_wakes_finish(struct memwait_wakes *wakes)
{
	unsigned int i;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "what was claimed may be freed");
	if (!list_empty(&wakes->threads))
		memwait_wake_threads(&wakes->threads);
	if (!list_empty(&wakes->groups))
		memwait_leave_groups(&wakes->groups);
	for (i = 0; i < wakes->nr_contexts; i++)
		memwait_context_wake(wakes->contexts[i]);
	if (!list_empty(&wakes->more_contexts))
		memwait_wake_owed(&wakes->more_contexts);
}

/*
 * Claims the oldest waiters of a locked queue, at most @count. Returns how many. Those who have
 * been claimed by others are taken out on the way.
 */
static u32 memwait_queue_wake(struct memwait_queue *queue, u32 count, struct memwait_wakes *wakes)
{
	struct memwait_waiter *waiter, *next;
	u32 woken = 0;

	lockdep_assert_held(&queue->lock);
	list_for_each_entry_safe(waiter, next, &queue->waiters, node) {
		if (woken == count)
			break;
		if (waiter->ops->wake(waiter, wakes))
			woken++;
		else
			memwait_queue_remove(waiter);
	}
	return woken;
}

/* Not inline: who finds nobody, as most notifies do, must not pay for the frame of this one. */
static noinline u32 memwait_queue_notify_locked(struct memwait_queue *queue, u32 count)
{
	struct memwait_wakes wakes __uninitialized;
	u32 woken;

	memwait_wakes_init(&wakes);
	woken = memwait_queue_wake(queue, count, &wakes);
	memwait_queue_unlock(queue);
	memwait_wakes_finish(&wakes);
	return woken;
}

/**
 * memwait_queue_notify() - wake the oldest waiters of a word
 * @key: the word's key; held by the caller
 * @count: at most so many, not 0
 *
 * Allocates nothing and does not look at the word.
 *
 * Context: process context; takes the queue's lock.
 *
 * Return: how many were woken: each of them, and nobody else, will see MEMWAIT_OK.
 */
int memwait_queue_notify(const struct memwait_key *key, u32 count)
{
	struct memwait_queue *queue;
	u32 woken = 0;

	smp_mb();	/* (A) pairs with (B) */

	rcu_read_lock();
	queue = memwait_queue_lock(key);
	if (queue) {
		if (list_empty(&queue->waiters))
			memwait_queue_unlock(queue);
		else
			woken = memwait_queue_notify_locked(queue, count);
	}
	rcu_read_unlock();
	return woken;
}

/**
 * memwait_queue_notify_many() - wake the oldest waiters of several words
 * @words: the words; held by the caller
 * @counts: for each word, at most so many; set to how many were woken
 * @nr: how many words
 *
 * As many calls of memwait_queue_notify(), but a context is woken once for all of its completions.
 *
 * Context: process context; takes the queues' locks, one at a time.
 */
void memwait_queue_notify_many(const struct memwait_word *words, u32 *counts, unsigned int nr)
{
	struct memwait_queue *queue;
	struct memwait_wakes wakes __uninitialized;
	unsigned int i;

	smp_mb();	/* (A) pairs with (B) */

	memwait_wakes_init(&wakes);
	rcu_read_lock();
	for (i = 0; i < nr; i++) {
		queue = counts[i] ? memwait_queue_lock(&words[i].key) : NULL;
		if (!queue) {
			counts[i] = 0;
			continue;
		}
		counts[i] = memwait_queue_wake(queue, counts[i], &wakes);
		memwait_queue_unlock(queue);
	}
	memwait_wakes_finish(&wakes);
	rcu_read_unlock();
}

/* Moves the oldest waiters of one locked queue to the end of another one. Returns how many. */
static u32 memwait_queue_move(struct memwait_queue *source, struct memwait_queue *target,
			      const struct memwait_word *word, u32 move)
{
	struct memwait_waiter *waiter, *next;
	LIST_HEAD(moving);
	u32 moved = 0;

	lockdep_assert_held(&source->lock);
	lockdep_assert_held(&target->lock);
	list_for_each_entry_safe(waiter, next, &source->waiters, node) {
		if (moved == move)
			break;
		if (!waiter->ops->is_pending(waiter)) {
			memwait_queue_remove(waiter);
			continue;
		}
		list_move_tail(&waiter->node, &moving);
		WRITE_ONCE(waiter->queue, target);
		memwait_word_move(&waiter->word, word);
		moved++;
	}
	/* At once, because the two may be the same. */
	list_splice_tail(&moving, &target->waiters);
	source->nr_waiters -= moved;
	target->nr_waiters += moved;
	return moved;
}

/**
 * memwait_queue_requeue() - wake waiters of a word and move others to another word
 * @requeue: as it came from user space, checked; woken and moved are set if the result is 0
 * @source: the word that is compared; held by the caller
 * @target: the word that they are moved to, or the same; held by the caller
 *
 * One step with respect to all other operations on both words.
 *
 * Context: process context, may sleep; takes the queues' locks.
 *
 * Return:
 * * 0
 * * MEMWAIT_NOT_EQUAL: the word holds another value; nothing was done
 * * -EAGAIN: the word's page must be faulted in first: compare it once outside and try again
 * * -ENOMEM: a word that has no waiters needs a queue for a moment
 */
int memwait_queue_requeue(struct memwait_requeue *requeue, struct memwait_word *source,
			  struct memwait_word *target)
{
	const struct memwait_key *keys[2] = { &source->key, &target->key };
	bool same = memwait_key_equal(&source->key, &target->key);
	struct memwait_queue *queues[2];
	struct memwait_wakes wakes __uninitialized;
	bool keep[2];
	int ret = 0;
	int i;

	if (same) {
		queues[SOURCE] = memwait_queue_lock_or_insert(&source->key, MEMWAIT_GFP);
		queues[TARGET] = queues[SOURCE];
		if (IS_ERR(queues[SOURCE]))
			ret = PTR_ERR(queues[SOURCE]);
	} else {
		ret = memwait_queue_lock_pair(queues, keys);
	}
	if (ret)
		return ret;

	memwait_wakes_init(&wakes);
	rcu_read_lock();
	pagefault_disable();
	ret = memwait_compare(requeue->addr, requeue->expected, requeue->flags);
	pagefault_enable();
	if (!ret) {
		requeue->woken = memwait_queue_wake(queues[SOURCE], requeue->count, &wakes);
		requeue->moved = memwait_queue_move(queues[SOURCE], queues[TARGET], target,
						    requeue->move);
	}
	keep[TARGET] = !same && memwait_queue_unlock_only(queues[TARGET]);
	keep[SOURCE] = memwait_queue_unlock_only(queues[SOURCE]);
	for (i = 0; i < 2; i++) {
		if (keep[i])
			memwait_queue_keep(queues[i]);
	}
	memwait_wakes_finish(&wakes);
	rcu_read_unlock();
	return ret == -EFAULT ? -EAGAIN : ret;
}

/**
 * memwait_queue_retry() - shall a call that does not block try again?
 * @ret: what memwait_queue_join() or memwait_queue_requeue() returned, or what came before them
 *
 * No signal interrupts such a call; only who dies need not try again.
 *
 * Context: process context, may sleep.
 *
 * Return: @ret; but -EINTR instead of -EAGAIN if the task is being killed.
 */
int memwait_queue_retry(int ret)
{
	if (ret == -EAGAIN && memwait_is_killed())
		ret = -EINTR;
	cond_resched();
	return ret;
}

/**
 * memwait_queue_waiters() - how many waiters a word has
 * @key: the word's key
 *
 * Context: process context; takes the queue's lock.
 *
 * Return: their number, out of date at once.
 */
int memwait_queue_waiters(const struct memwait_key *key)
{
	struct memwait_queue *queue;
	int nr = 0;

	rcu_read_lock();
	queue = memwait_queue_lock(key);
	if (queue) {
		nr = queue->nr_waiters;
		memwait_queue_unlock(queue);
	}
	rcu_read_unlock();
	return nr;
}

/**
 * memwait_queue_expel_all() - keep no queue any longer
 *
 * Queues that come into use meanwhile may be kept all the same.
 *
 * Context: process context, may sleep; takes queues' locks, one at a time.
 */
void memwait_queue_expel_all(void)
{
	struct memwait_kept_queues *kept;
	struct memwait_queue *queue;
	unsigned int i;
	int cpu;

	for_each_possible_cpu(cpu) {
		kept = per_cpu_ptr(memwait_kept_queues, cpu);
		for (i = 0; i < MEMWAIT_KEPT_QUEUES; i++) {
			if (!READ_ONCE(kept->queues[i]))
				continue;
			queue = xchg(&kept->queues[i], NULL);
			if (!queue)
				continue;
			spin_lock(&queue->lock);
			memwait_queue_expel(queue);
		}
		cond_resched();
	}
}

int __init memwait_queue_init(void)
{
	int err = -ENOMEM;

	memwait_queue_cache = kmem_cache_create("memwait_queue", sizeof(struct memwait_queue), 0,
						SLAB_TYPESAFE_BY_RCU, memwait_queue_construct);
	memwait_kept_queues = alloc_percpu(struct memwait_kept_queues);
	if (memwait_queue_cache && memwait_kept_queues)
		err = rhashtable_init(&memwait_queues, &memwait_queue_params);
	if (err) {
		free_percpu(memwait_kept_queues);
		kmem_cache_destroy(memwait_queue_cache);
	}
	return err;
}

/* No context is left, nor any waiter. */
void memwait_queue_exit(void)
{
	memwait_queue_expel_all();
	rhashtable_destroy(&memwait_queues);
	free_percpu(memwait_kept_queues);
	kmem_cache_destroy(memwait_queue_cache);
}
