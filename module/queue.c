// SPDX-License-Identifier: GPL-2.0-only
/*
 * Wait queues: one per word with waiters, oldest waiter first. queue.pml models this design.
 *
 * Queues are hashed by key. A queue's lock protects its fields. Whenever the lock is free:
 *
 *	has waiters, is kept, or is held by a call  <=>  in the hash table  <=>  key is set
 *
 * An empty queue stays cached ("kept"), since most words are soon waited on again; without the
 * cache an async wait takes 1.1 to 1.3 times as long. Each user keeps the last MEMWAIT_KEPT_QUEUES
 * queues that became empty in calls on its contexts; each further one evicts the oldest. The last
 * close of a user's contexts evicts all. Only a user's own calls fill and evict its cache, so
 * others learn nothing from it. A queue evicted while it has waiters stays in the table, and is
 * kept again once empty. An empty queue holds no reference: its key may come to name a new owner at
 * the same address, which is harmless.
 *
 *	Waiter					Notifier
 *
 *	(1) find the queue of the key and lock	(1) store to the word, in user space
 *	    it, or insert a new one, locked	(A) full barrier
 *	(B) full barrier, if inserted		(2) find the queue of the key;
 *	(2) load the word; not the expected	    none: the word has no waiters
 *	    value: unlock, leave		(3) lock it
 *	(3) append itself			(4) claim the oldest waiters, dequeue them
 *	(4) unlock, sleep			(5) unlock, wake them
 *
 * No wake-up is lost. If the notifier finds the queue, the queue's lock orders the two sides: an
 * earlier waiter is in the list, a later waiter loads the word after the notifier's store. If the
 * notifier finds no queue, its look-up precedes the insertion in the order of the hash bucket. (A)
 * orders the store before the look-up and (B) orders the insertion before the load, so the waiter
 * sees the store. The two sides cannot both miss:
 *
 *	insert queue			store word
 *	(B) smp_mb			(A) smp_mb
 *	load word			look the queue up
 *
 * A later waiter that finds the queue needs no barrier: the lock orders its load after the
 * inserter's (B). Eviction hides no waiter from a notifier: a queue leaves the table only while
 * empty and locked.
 *
 * Exactly one of notify, owner's death, deadline, signal, cancel and close ends a wait. A cmpxchg
 * of memwait_group.claimed claims a thread's wait; an async wait is claimed under its context's
 * lock. A notify, a death, and the deadline of an async wait on one word hold the queue's lock and
 * dequeue the waiter immediately. The others call memwait_queue_leave() after the claim. A notifier
 * in between dequeues the claimed waiter without counting it. For groups, see group.c.
 *
 * (C) Whoever dequeues a waiter for its owner, such as a notifier, last accesses the waiter by a
 * store-release of %NULL to .queue, under the queue's lock. It may still complete an async wait
 * afterwards, under the context's lock. An owner whose load-acquire reads %NULL takes no lock, and
 * sees all changes made to the waiter under queue locks, in particular moves. An owner that reads a
 * queue takes its lock. So the owner waits for at most one critical section of a queue's lock,
 * never for the notifier to be scheduled.
 *
 * Calls process waiters in steps. A step looks at no more than MEMWAIT_STEP waiters under the lock
 * (a requeue, at as many again to move), then drops the lock. A call that will return to a queue
 * holds it by .nr_calls. A call must not touch waiters that join after it began. So waiters are
 * numbered as they join, and a call ends at the number that was the last when it began. Joining
 * only appends to the list, so the list is sorted by number.
 *
 * A waiter that was away, in a signal handler or because it was told of a death, returns to its
 * place with its old number, see place.c. Such waiters are in an rbtree by number, so no insertion
 * walks a distance that others control; so are waiters that a requeue has left in their queue. The
 * oldest waiter is the first of the tree or of the list. A word never reuses a number, even if its
 * queue is freed in between: the queue's number goes to memwait_last_number before the queue leaves
 * the table, and an inserter reads memwait_last_number after the insertion. The hash bucket's lock
 * orders the two.
 *
 * A call covers threads that return while it runs, since they are as old as others that it covers.
 * It skips a thread whose number it has passed: that thread was absent then, and has compared the
 * word since. So a call visits each number once, and a thread that returns, ends its wait and
 * returns again cannot hold the call up.
 *
 * Queues are SLAB_TYPESAFE_BY_RCU: a look-up may lock an object that was freed or now serves
 * another word, so it compares the key again under the lock. Only the cache's constructor
 * initialises the lock, which stays valid across reuse.
 *
 *	Lock order:	queue->lock -> memwait_context.lock -> locks of hrtimers and of the id table
 *			queue->lock -> memwait_context.lock -> memwait_identity.lock
 *			queue->lock -> memwait_context.lock -> memwait_user.pin_lock
 *			queue->lock -> hash bucket's lock
 *
 * Only requeue holds two queue locks, see requeue.c. A queue is locked for insertion or eviction
 * only when no other queue is locked. expire.c takes a queue's lock under a context's lock, but
 * only by trylock. All of these but the hrtimers' locks are taken in process context only. The
 * only locks of this module that its timers take are those of wait queue heads, see expire.c.
 */
#include <linux/atomic.h>
#include <linux/jhash.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/rcupdate.h>
#include <linux/rhashtable.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "debugfs.h"
#include "group.h"
#include "memwait.h"

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
 * Takes half the time of hashing all 16 bytes. Spreads the words of one owner, which a user
 * can choose, and owners that differ in their lower halves just as well.
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

struct rhashtable memwait_queues;
static struct kmem_cache *memwait_queue_cache;
/* Upper bound of the numbers of freed queues. */
static atomic64_t memwait_last_number;

static void memwait_queue_construct(void *object)
{
	struct memwait_queue *queue = object;

	spin_lock_init(&queue->lock);
	INIT_LIST_HEAD(&queue->waiters);
	queue->returned = RB_ROOT;
	INIT_LIST_HEAD(&queue->owned);
	queue->watched = NULL;
	queue->mover = NULL;
	queue->nr_waiters = 0;
	queue->number = 0;
	queue->nr_calls = 0;
	queue->may_be_named = false;
	queue->kept = false;
	queue->key.owner = 0;
	queue->key.offset = 0;
}

static __always_inline struct memwait_queue *__memwait_queue_find(const struct memwait_key *key)
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

/**
 * memwait_queue_find() - find the queue of a word and lock it
 * @key: the word's key; the caller holds a reference to its owner
 *
 * Context: process context; takes the queue's lock, for memwait_queue_unlock().
 *
 * Return: the queue, or %NULL if the word has none.
 */
struct memwait_queue *memwait_queue_find(const struct memwait_key *key)
{
	return __memwait_queue_find(key);
}

static bool memwait_queue_is_idle(const struct memwait_queue *queue)
{
	lockdep_assert_held(&queue->lock);
	return !queue->nr_waiters && !queue->nr_calls;
}

/* Makes waiters that join any later queue of this word get greater numbers. */
static void memwait_queue_raise_number(const struct memwait_queue *queue)
{
	s64 last = atomic64_read(&memwait_last_number);

	lockdep_assert_held(&queue->lock);
	while (last < (s64)queue->number &&
	       !atomic64_try_cmpxchg(&memwait_last_number, &last, queue->number))
		;
}

/* Stops caching a locked queue: frees it if idle, else leaves it to its waiters and calls. */
static void memwait_queue_evict(struct memwait_queue *queue)
	__releases(&queue->lock)
{
	bool idle = memwait_queue_is_idle(queue);

	queue->kept = false;
	if (idle) {
		memwait_queue_raise_number(queue);
		rhashtable_remove_fast(&memwait_queues, &queue->node, memwait_queue_params);
		WRITE_ONCE(queue->key.owner, 0);
	}
	spin_unlock(&queue->lock);
	if (idle)
		kmem_cache_free(memwait_queue_cache, queue);
}

/**
 * memwait_queue_keep() - cache a queue and evict the user's oldest one
 * @queue: marked as kept by memwait_queue_unlock_only()
 * @kept: see memwait_queue_unlock(); %NULL evicts @queue
 *
 * Context: no queue's lock is held; takes the lock of a queue that it evicts.
 */
noinline void memwait_queue_keep(struct memwait_queue *queue, struct memwait_kept_queues *kept)
{
	struct memwait_queue **slot, *other;

	if (!kept) {
		spin_lock(&queue->lock);
		memwait_queue_evict(queue);
		return;
	}
	slot = &kept->queues[(unsigned int)atomic_inc_return(&kept->nr) % MEMWAIT_KEPT_QUEUES];
	other = xchg(slot, queue);
	if (!other)
		return;
	if (!spin_trylock(&other->lock)) {
		/* In use, maybe by another user: evict the caller's own queue instead. */
		other = xchg(slot, other);
		if (!other)
			return;
		spin_lock(&other->lock);
	}
	memwait_queue_evict(other);
}

/**
 * memwait_queue_unlock_only() - the first half of memwait_queue_unlock()
 * @queue: see memwait_queue_unlock()
 *
 * Context: another queue's lock may be held.
 *
 * Return: whether the caller must call memwait_queue_keep() once it holds no queue's lock.
 */
bool memwait_queue_unlock_only(struct memwait_queue *queue)
{
	bool idle = memwait_queue_is_idle(queue);
	bool keep = idle && !queue->kept;

	__acquire(&queue->lock);
	if (idle) {
		memwait_queue_unwatch(queue);
		memwait_queue_forget_mover(queue);
	}
	if (keep)
		queue->kept = true;
	spin_unlock(&queue->lock);
	return keep;
}

/**
 * memwait_queue_unlock() - drop the lock of a queue
 * @queue: locked; invalid afterwards, unless the caller holds it by .nr_calls
 * @kept: the cache of the calling context's user, for @queue if it is empty; %NULL: no caching
 *
 * Context: no other queue's lock is held; may take the lock of a queue that it evicts.
 */
void memwait_queue_unlock(struct memwait_queue *queue, struct memwait_kept_queues *kept)
{
	if (memwait_queue_unlock_only(queue))
		memwait_queue_keep(queue, kept);
}

/*
 * Makes @queue the queue of @key, locked. Returns 0; -EEXIST if @key has a queue already; or
 * -ENOMEM. On error the caller still owns @queue.
 */
static int memwait_queue_insert(struct memwait_queue *queue, const struct memwait_key *key)
{
	struct memwait_queue *other;

	/* A look-up with a stale pointer may hold the lock; it will see a wrong key. */
	spin_lock(&queue->lock);
	WRITE_ONCE(queue->key.offset, key->offset);
	WRITE_ONCE(queue->key.owner, key->owner);

	rcu_read_lock();
	other = rhashtable_lookup_get_insert_fast(&memwait_queues, &queue->node,
						  memwait_queue_params);
	rcu_read_unlock();
	if (likely(!other)) {
		smp_mb();	/* (B) pairs with (A) */
		queue->number = max_t(s64, queue->number, atomic64_read(&memwait_last_number));
		/* Balanced by memwait_queue_unlock(). */
		__release(&queue->lock);
		return 0;
	}

	WRITE_ONCE(queue->key.owner, 0);
	spin_unlock(&queue->lock);
	return IS_ERR(other) ? -ENOMEM : -EEXIST;
}

/**
 * memwait_queue_find_or_insert() - memwait_queue_find() that inserts a missing queue
 * @key: see memwait_queue_find()
 *
 * Context: process context, may sleep; takes the queue's lock, for memwait_queue_unlock().
 *
 * Return: the queue, or %NULL if out of memory.
 */
struct memwait_queue *memwait_queue_find_or_insert(const struct memwait_key *key)
{
	struct memwait_queue *queue, *new = NULL;
	int err = -EEXIST;

	while (err == -EEXIST) {
		queue = __memwait_queue_find(key);
		if (likely(queue))
			break;
		if (!new)
			new = kmem_cache_alloc(memwait_queue_cache, MEMWAIT_GFP);
		if (!new)
			return NULL;
		err = memwait_queue_insert(new, key);
		if (!err)
			return new;
	}
	if (unlikely(new))
		kmem_cache_free(memwait_queue_cache, new);
	return queue;
}

/**
 * memwait_queue_try_find() - trylock the queue of another word, which is safe in any lock order
 * @key: the word's key
 * @locked: a queue that the caller has locked, maybe the queue of @key
 *
 * Context: process context; tries to take the queue's lock, for memwait_queue_unlock().
 *
 * Return: the queue, maybe @locked; %NULL if there is none or its lock is taken.
 */
struct memwait_queue *memwait_queue_try_find(const struct memwait_key *key,
					     struct memwait_queue *locked)
{
	struct memwait_queue *queue;

	rcu_read_lock();
	queue = rhashtable_lookup(&memwait_queues, key, memwait_queue_params);
	if (queue && queue != locked) {
		if (!spin_trylock(&queue->lock)) {
			queue = NULL;
		} else if (!memwait_queue_has_key(queue, key)) {
			spin_unlock(&queue->lock);
			queue = NULL;
		} else {
			__release(&queue->lock);	/* see __memwait_queue_find() */
		}
	}
	rcu_read_unlock();
	return queue;
}

/**
 * memwait_queue_begin_join() - lock the queue of a word that holds the expected value
 * @waiter: the caller has set its word and identity
 * @wait: address, expected value and size of the word
 * @kept: see memwait_queue_unlock()
 * @queue: set to the locked queue, for memwait_queue_unlock(), if the result is 0
 *
 * The comparison and everything up to the unlock are atomic with respect to a notify of the word.
 *
 * Context: process context, may sleep; takes the queue's lock.
 *
 * Return:
 * * 0: the word holds the expected value
 * * MEMWAIT_NOT_EQUAL: the word holds another value
 * * MEMWAIT_OWNER_DIED: the owner that the word names is dead
 * * -EAGAIN: fault the word's page in, by a comparison without the lock, and retry
 * * -ENOMEM
 */
int memwait_queue_begin_join(struct memwait_waiter *waiter, const struct memwait_wait *wait,
			     struct memwait_kept_queues *kept, struct memwait_queue **queue)
{
	int ret;

	*queue = memwait_queue_find_or_insert(&waiter->word.key);
	if (!*queue)
		return -ENOMEM;

	pagefault_disable();
	ret = memwait_compare(wait->addr, wait->expected, wait->flags);
	pagefault_enable();
	waiter->flags = memwait_size(wait->flags) == 8 ? MEMWAIT_NAMES_OWNER : 0;
	if (unlikely(waiter->identity) && !ret &&
	    !memwait_queue_name_owner(*queue, wait, waiter->identity))
		ret = MEMWAIT_OWNER_DIED;
	if (likely(!ret))
		return 0;
	memwait_queue_unlock(*queue, kept);
	return ret == -EFAULT ? -EAGAIN : ret;
}

static struct memwait_waiter *memwait_returned(const struct rb_node *node)
{
	return rb_entry(node, struct memwait_waiter, place);
}

static bool memwait_returned_less(struct rb_node *a, const struct rb_node *b)
{
	return memwait_returned(a)->number < memwait_returned(b)->number;
}

/**
 * memwait_queue_next_returned() - the next returned waiter
 * @queue: the queue
 * @number: find the lowest number above this
 *
 * Context: the queue's lock is held.
 *
 * Return: the waiter, or %NULL.
 */
struct memwait_waiter *memwait_queue_next_returned(struct memwait_queue *queue, u64 number)
{
	struct rb_node *node = queue->returned.rb_node;
	struct memwait_waiter *found = NULL;

	lockdep_assert_held(&queue->lock);
	while (node) {
		if (memwait_returned(node)->number > number) {
			found = memwait_returned(node);
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return found;
}

/**
 * memwait_queue_oldest_returned() - memwait_queue_oldest() of a queue with returned waiters
 * @queue: the queue
 * @above: see memwait_queue_oldest()
 *
 * Context: the queue's lock is held.
 *
 * Return: see memwait_queue_oldest().
 */
struct memwait_waiter *memwait_queue_oldest_returned(struct memwait_queue *queue, u64 above)
{
	struct memwait_waiter *joined, *returned;

	joined = list_first_entry_or_null(&queue->waiters, struct memwait_waiter, node);
	returned = memwait_queue_next_returned(queue, above);
	return returned && !(joined && joined->number < returned->number) ? returned : joined;
}

/**
 * memwait_queue_put_back() - put a waiter back in its place
 * @queue: from memwait_queue_begin_join()
 * @waiter: as for memwait_queue_append(); its number is that of its place
 *
 * In .owned the waiter goes first or last: any waiter there can be told of a death, since each then
 * looks at the word.
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_put_back(struct memwait_queue *queue, struct memwait_waiter *waiter)
{
	const struct memwait_waiter *first;

	lockdep_assert_held(&queue->lock);
	waiter->flags |= MEMWAIT_IN_PLACE;
	rb_add(&waiter->place, &queue->returned, memwait_returned_less);
	if (waiter->identity) {
		first = list_first_entry_or_null(&queue->owned, struct memwait_waiter, owned_node);
		if (first && waiter->number < first->number)
			list_add(&waiter->owned_node, &queue->owned);
		else
			list_add_tail(&waiter->owned_node, &queue->owned);
	}
	queue->nr_waiters++;
	waiter->since = jiffies;
	WRITE_ONCE(waiter->queue, queue);
}

/**
 * memwait_queue_join() - join the queue of a word while the word holds the expected value
 * @waiter: the caller has set its word, ops and identity; the rest is filled in
 * @wait: see memwait_queue_begin_join()
 * @kept: see memwait_queue_unlock()
 *
 * Context: process context, may sleep; takes the queue's lock.
 *
 * Return: 0 if @waiter is enqueued; else see memwait_queue_begin_join().
 */
int memwait_queue_join(struct memwait_waiter *waiter, const struct memwait_wait *wait,
		       struct memwait_kept_queues *kept)
{
	struct memwait_queue *queue;
	int ret = memwait_queue_begin_join(waiter, wait, kept, &queue);

	if (ret)
		return ret;
	memwait_queue_append(queue, waiter);
	memwait_queue_unlock(queue, kept);
	return 0;
}

/**
 * memwait_queue_return() - memwait_queue_join() of a thread that may have a place in the queue
 * @waiter: see memwait_queue_join(); its number is the number of its place, or 0
 * @wait: see memwait_queue_begin_join()
 * @kept: see memwait_queue_unlock()
 *
 * Context: process context, may sleep; takes the queue's lock.
 *
 * Return: see memwait_queue_join().
 */
int memwait_queue_return(struct memwait_waiter *waiter, const struct memwait_wait *wait,
			 struct memwait_kept_queues *kept)
{
	struct memwait_queue *queue;
	int ret = memwait_queue_begin_join(waiter, wait, kept, &queue);

	if (ret)
		return ret;
	if (waiter->number)
		memwait_queue_put_back(queue, waiter);
	else
		memwait_queue_append(queue, waiter);
	memwait_queue_unlock(queue, kept);
	return 0;
}

/**
 * memwait_queue_remove() - dequeue a waiter
 * @waiter: in a queue. From the store-release on, its owner may free it, unless the caller holds a
 *	lock or a reference that prevents it
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_remove(struct memwait_waiter *waiter)
{
	struct memwait_queue *queue = waiter->queue;

	lockdep_assert_held(&queue->lock);
	if (memwait_waiter_has_returned(waiter))
		rb_erase(&waiter->place, &queue->returned);
	else
		list_del(&waiter->node);
	if (unlikely(waiter->identity))
		list_del(&waiter->owned_node);
	queue->nr_waiters--;
	smp_store_release(&waiter->queue, NULL);	/* (C) pairs with the acquires */
}

/**
 * memwait_queue_stay() - leave a waiter at its place, and out of the list
 * @waiter: in a queue
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_stay(struct memwait_waiter *waiter)
{
	lockdep_assert_held(&waiter->queue->lock);
	if (memwait_waiter_has_returned(waiter))
		return;
	list_del(&waiter->node);
	waiter->flags |= MEMWAIT_IN_PLACE;
	rb_add(&waiter->place, &waiter->queue->returned, memwait_returned_less);
}

/**
 * memwait_queue_move() - move a waiter to the end of another queue
 * @waiter: in a queue
 * @to: the target
 *
 * Context: the locks of both queues are held.
 */
void memwait_queue_move(struct memwait_waiter *waiter, struct memwait_queue *to)
{
	struct memwait_queue *from = waiter->queue;

	lockdep_assert_held(&from->lock);
	lockdep_assert_held(&to->lock);
	if (memwait_waiter_has_returned(waiter)) {
		rb_erase(&waiter->place, &from->returned);
		waiter->flags &= ~MEMWAIT_IN_PLACE;
		list_add_tail(&waiter->node, &to->waiters);
	} else {
		list_move_tail(&waiter->node, &to->waiters);
	}
	from->nr_waiters--;
	to->nr_waiters++;
	waiter->number = ++to->number;
	WRITE_ONCE(waiter->queue, to);
}

/**
 * memwait_queue_remove_claimed() - dequeue a waiter that was claimed for its owner
 * @waiter: see memwait_queue_remove(). If it waited with MEMWAIT_OWNED, the queue watches its
 *	thread or context from now on, see memwait_queue_watch()
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_remove_claimed(struct memwait_waiter *waiter)
{
	/* The identity is alive: its thread or context stays until the waiter is dequeued. */
	if (unlikely(waiter->identity))
		memwait_queue_watch(waiter->queue, waiter->identity, waiter->identity,
				    waiter->flags & MEMWAIT_NAMES_OWNER);
	memwait_queue_remove(waiter);
}

/**
 * memwait_queue_take_out() - the slow path of memwait_queue_leave()
 * @waiter: see memwait_queue_leave()
 * @kept: see memwait_queue_unlock()
 *
 * Context: process context; takes the queue's lock.
 */
void memwait_queue_take_out(struct memwait_waiter *waiter, struct memwait_kept_queues *kept)
{
	struct memwait_queue *queue;

	rcu_read_lock();
	for (;;) {
		queue = smp_load_acquire(&waiter->queue);	/* (C) */
		if (!queue) {
			rcu_read_unlock();
			return;
		}
		spin_lock(&queue->lock);
		/* Else a requeue moved or a notifier dequeued the waiter: look again. */
		if (READ_ONCE(waiter->queue) == queue)
			break;
		spin_unlock(&queue->lock);
	}
	rcu_read_unlock();

	memwait_queue_remove(waiter);
	/* For sparse: memwait_queue_unlock() acquires it again. */
	__release(&queue->lock);
	memwait_queue_unlock(queue, kept);
}

/**
 * memwait_queue_waiters() - count a word's waiters
 * @key: the word's key
 *
 * Context: process context; takes the queue's lock.
 *
 * Return: the count, stale once the lock is dropped.
 */
int memwait_queue_waiters(const struct memwait_key *key)
{
	struct memwait_queue *queue;
	int nr = 0;

	queue = memwait_queue_find(key);
	if (queue) {
		nr = queue->nr_waiters - memwait_queue_markers(queue);
		memwait_queue_unlock(queue, NULL);
	}
	return nr;
}

/**
 * memwait_queue_evict_all() - evict all queues that a user keeps
 * @kept: the user's cache. Queues that its calls keep concurrently may stay
 *
 * Context: process context, may sleep; takes queues' locks, one at a time.
 */
void memwait_queue_evict_all(struct memwait_kept_queues *kept)
{
	struct memwait_queue *queue;
	unsigned int i;

	for (i = 0; i < MEMWAIT_KEPT_QUEUES; i++) {
		cond_resched();
		if (!READ_ONCE(kept->queues[i]))
			continue;
		queue = xchg(&kept->queues[i], NULL);
		if (!queue)
			continue;
		spin_lock(&queue->lock);
		memwait_queue_evict(queue);
	}
}

int __init memwait_queue_init(void)
{
	int err = -ENOMEM;

	memwait_queue_cache = kmem_cache_create("memwait_queue", sizeof(struct memwait_queue), 0,
						SLAB_TYPESAFE_BY_RCU, memwait_queue_construct);
	if (memwait_queue_cache)
		err = rhashtable_init(&memwait_queues, &memwait_queue_params);
	if (err)
		kmem_cache_destroy(memwait_queue_cache);
	return err;
}

/* No context and no waiter is left, so no queue is kept. */
void memwait_queue_exit(void)
{
	rhashtable_destroy(&memwait_queues);
	kmem_cache_destroy(memwait_queue_cache);
}
