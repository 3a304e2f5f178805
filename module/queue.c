// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queues: one for each word that somebody waits on, oldest waiter first.
 *
 * A queue exists while it has waiters. It stands in a hash table under its key; its lock protects
 * its list and everything that the list means. The invariant, whenever a queue's lock is free:
 *
 *	in the hash table  <=>  key is set  <=>  has waiters
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
 * the lock from the one who inserted and passed (B), which is ordered before its load.
 *
 * Who ends a wait? There are notify, deadline, signal, cancel and close, and exactly one of them.
 * A thread's wait is claimed by removing it from its queue, under the queue's lock. An async wait
 * is claimed under its context's lock, and only the claimer removes it: notify, which holds the
 * queue's lock already, at once; the others by memwait_queue_leave() afterwards. A notify that
 * comes in between passes over such a waiter and does not count it.
 *
 * (C) A claimed thread must not leave before the waker has done with its waiter, which is on its
 *     stack: it sleeps until the waker's store-release of memwait_thread.woken, its last access.
 *
 * Queues are SLAB_TYPESAFE_BY_RCU: a look-up may lock an object that has been freed, and even one
 * that serves another word by now. Hence the key is compared again under the lock. The object's
 * lock is initialised by the cache's constructor only, and stays valid in between.
 *
 * Lock order: queue->lock -> context (xa_lock of memwait_context.waits) -> hrtimer's locks
 *	       queue->lock -> hash bucket's lock
 * At most one queue's lock is held, but for one exception that cannot block: a new queue, which
 * nobody can find, is locked before it is inserted. All of them are taken in process context only;
 * no interrupt handler of this module takes a lock.
 */
#include <linux/list.h>
#include <linux/rcupdate.h>
#include <linux/rhashtable.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "memwait.h"

/**
 * struct memwait_queue - the waiters of one word
 * @node: in memwait_queues
 * @key: the word; an owner of 0 marks a queue that died. Written under @lock, read without it by
 *	look-ups in the hash table
 * @lock: protects the rest
 * @nr_waiters: length of @waiters
 * @waiters: oldest first
 */
struct memwait_queue {
	struct rhash_head node;
	struct memwait_key key;
	spinlock_t lock;	/* see the top of the file */
	unsigned int nr_waiters;
	struct list_head waiters;
};

static bool memwait_queue_has_key(const struct memwait_queue *queue, const struct memwait_key *key)
{
	return READ_ONCE(queue->key.owner) == key->owner &&
	       READ_ONCE(queue->key.offset) == key->offset;
}

static int memwait_queue_compare(struct rhashtable_compare_arg *arg, const void *queue)
{
	return !memwait_queue_has_key(queue, arg->key);
}

static const struct rhashtable_params memwait_queue_params = {
	.key_len = sizeof(struct memwait_key),
	.key_offset = offsetof(struct memwait_queue, key),
	.head_offset = offsetof(struct memwait_queue, node),
	.obj_cmpfn = memwait_queue_compare,
	.min_size = 4096,	/* 32 KiB, so that an idle machine does not resize all the time */
	.automatic_shrinking = true,
};

static struct rhashtable memwait_queues;
static struct kmem_cache *memwait_queue_cache;

static void memwait_queue_construct(void *object)
{
	struct memwait_queue *queue = object;

	spin_lock_init(&queue->lock);
	INIT_LIST_HEAD(&queue->waiters);
	queue->nr_waiters = 0;
	queue->key.owner = 0;
	queue->key.offset = 0;
}

/* Finds the queue of @key and returns it locked, or NULL if the word has no waiters. */
static struct memwait_queue *memwait_queue_lock(const struct memwait_key *key)
{
	struct memwait_queue *queue;

	rcu_read_lock();
	for (;;) {
		queue = rhashtable_lookup(&memwait_queues, key, memwait_queue_params);
		if (!queue)
			break;

		spin_lock(&queue->lock);
		if (likely(memwait_queue_has_key(queue, key))) {
			/* Balanced by memwait_queue_unlock(): sparse cannot follow. */
			__release(&queue->lock);
			break;
		}
		spin_unlock(&queue->lock);
	}
	rcu_read_unlock();
	return queue;
}

/* Unlocks a queue, and lets it die if its last waiter has left. */
static void memwait_queue_unlock(struct memwait_queue *queue)
{
	bool died = list_empty(&queue->waiters);

	lockdep_assert_held(&queue->lock);
	__acquire(&queue->lock);

	if (died) {
		rhashtable_remove_fast(&memwait_queues, &queue->node, memwait_queue_params);
		WRITE_ONCE(queue->key.owner, 0);
	}
	spin_unlock(&queue->lock);
	if (died)
		kmem_cache_free(memwait_queue_cache, queue);
}

/*
 * Makes @queue the queue of @key, locked. Returns 0, -EEXIST if the key has one already, or
 * -ENOMEM; unless it is 0, the queue is the caller's still.
 */
static int memwait_queue_insert(struct memwait_queue *queue, const struct memwait_key *key)
{
	struct memwait_queue *other;

	spin_lock(&queue->lock);
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
	const struct memwait_key *key = &waiter->word.key;
	struct memwait_queue *queue, *spare = NULL;
	int ret;

	for (;;) {
		queue = memwait_queue_lock(key);
		if (queue)
			break;

		if (!spare) {
			spare = kmem_cache_alloc(memwait_queue_cache, gfp);
			if (!spare)
				return -ENOMEM;
		}
		ret = memwait_queue_insert(spare, key);
		if (!ret) {
			swap(queue, spare);
			break;
		}
		if (ret != -EEXIST) {
			kmem_cache_free(memwait_queue_cache, spare);
			return ret;
		}
	}

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

	if (spare)
		kmem_cache_free(memwait_queue_cache, spare);
	return ret == -EFAULT ? -EAGAIN : ret;
}

/**
 * memwait_queue_remove() - take a waiter out of its queue
 * @waiter: in a queue
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_remove(struct memwait_waiter *waiter)
{
	struct memwait_queue *queue = waiter->queue;

	lockdep_assert_held(&queue->lock);
	list_del(&waiter->node);
	queue->nr_waiters--;
	WRITE_ONCE(waiter->queue, NULL);
}

/**
 * memwait_queue_leave() - take a waiter out of its queue, if it is in one
 * @waiter: joined once; a thread's own, or an async wait that the caller has claimed
 *
 * Context: process context; takes the queue's lock.
 *
 * Return: whether the waiter was still in a queue. If not, a notify has claimed it.
 */
bool memwait_queue_leave(struct memwait_waiter *waiter)
{
	struct memwait_queue *queue;

	rcu_read_lock();
	for (;;) {
		queue = READ_ONCE(waiter->queue);
		if (!queue) {
			rcu_read_unlock();
			return false;
		}
		spin_lock(&queue->lock);
		if (waiter->queue == queue)
			break;
		spin_unlock(&queue->lock);
	}
	rcu_read_unlock();

	memwait_queue_remove(waiter);
	/* Taken again, for sparse, by memwait_queue_unlock(). */
	__release(&queue->lock);
	memwait_queue_unlock(queue);
	return true;
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
	struct memwait_waiter *waiter, *next;
	struct memwait_wakes wakes;
	struct memwait_queue *queue;
	u32 woken = 0;
	unsigned int i;

	smp_mb();	/* (A) pairs with (B) */

	queue = memwait_queue_lock(key);
	if (!queue)
		return 0;

	INIT_LIST_HEAD(&wakes.threads);
	wakes.nr_contexts = 0;

	/* Keeps the contexts to wake: a context is freed after a grace period. */
	rcu_read_lock();
	list_for_each_entry_safe(waiter, next, &queue->waiters, node) {
		if (waiter->ops->wake(waiter, &wakes) && ++woken == count)
			break;
	}
	memwait_queue_unlock(queue);

	for (i = 0; i < wakes.nr_contexts; i++)
		memwait_context_wake(wakes.contexts[i]);
	rcu_read_unlock();

	memwait_wake_threads(&wakes.threads);
	return woken;
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
	struct memwait_queue *queue = memwait_queue_lock(key);
	int nr;

	if (!queue)
		return 0;
	nr = queue->nr_waiters;
	memwait_queue_unlock(queue);
	return nr;
}

int __init memwait_queue_init(void)
{
	int err;

	memwait_queue_cache = kmem_cache_create("memwait_queue", sizeof(struct memwait_queue), 0,
						SLAB_TYPESAFE_BY_RCU, memwait_queue_construct);
	if (!memwait_queue_cache)
		return -ENOMEM;

	err = rhashtable_init(&memwait_queues, &memwait_queue_params);
	if (err)
		kmem_cache_destroy(memwait_queue_cache);
	return err;
}

void memwait_queue_exit(void)
{
	rhashtable_destroy(&memwait_queues);
	kmem_cache_destroy(memwait_queue_cache);
}
