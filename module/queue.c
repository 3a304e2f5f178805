// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queues: one for each word that has waiters, oldest waiter first. queue.pml is a model of what
 * is argued for here.
 *
 * A queue is in a hash table under its key. Its lock protects its list, and all that follows from
 * it. Whenever that lock is free:
 *
 *	has waiters, is kept, or is held by a call  <=>  in the hash table  <=>  key is set
 *
 * A queue whose last waiter leaves is kept for the next one, as most words are waited on again
 * soon. Without that an async wait takes 1.1 to 1.3 times as long. Each user keeps the last
 * MEMWAIT_KEPT_QUEUES that became empty in a call on one of its contexts, and evicts the oldest for
 * each further one. The last close of its contexts evicts all. So only a user's own calls fill and
 * evict what it keeps, and other users learn nothing from it. A queue that is evicted while it has
 * waiters stays in the table, and is kept again when they have left. An empty queue holds no
 * reference: the owner of its key may be gone, and its address be another owner's, which does no
 * harm.
 *
 *	Waiter					Notifier
 *
 *	(1) find the queue of the key and lock	(1) store to the word, in user space
 *	    it, or insert a new one, locked	(A) full barrier
 *	(B) full barrier, if inserted		(2) find the queue of the key;
 *	(2) load the word; not the expected	    none: the word has no waiters
 *	    value: unlock, leave		(3) lock it
 *	(3) append itself			(4) claim the oldest waiters, take them out
 *	(4) unlock, sleep			(5) unlock, wake them
 *
 * No wake-up is lost. If the notifier finds the queue, its lock orders the two: a waiter that was
 * first is in the list, and a later one loads the word after the notifier's store. If the notifier
 * finds no queue, its (2) precedes the insertion in the order of the hash bucket. (A) orders the
 * store before that look-up, (B) orders the insertion before the load, so the waiter sees the
 * store:
 *
 *	insert queue			store word
 *	(B) smp_mb			(A) smp_mb
 *	load word			look the queue up
 *
 * cannot both miss. A later waiter that finds the queue needs no barrier: the lock orders its load
 * after (B) of the waiter that inserted the queue. An eviction hides no waiter from a notifier: a
 * queue leaves the table empty, and under its lock.
 *
 * Exactly one of notify, deadline, signal, cancel and close ends a wait. A thread's wait is claimed
 * by a compare-and-exchange of memwait_group.claimed; an async wait, under its context's lock. A
 * notify has the queue's lock already, and takes the waiter out at once. The others call
 * memwait_queue_leave() after they have claimed it. A notify that comes in between takes such a
 * waiter out, and does not count it. See group.c for groups.
 *
 * (C) The last access to a waiter by a notifier, or by anything else that takes it out for its
 * owner, is the store-release of %NULL to .queue, under the queue's lock. An owner whose
 * load-acquire finds %NULL takes no lock, and sees all that was done to the waiter under queues'
 * locks, moves above all. An owner that finds a queue takes its lock. So the owner waits for one
 * critical section of a queue's lock at most, and never for the notifier to be scheduled.
 *
 * Many waiters are worked on in steps. A step looks at MEMWAIT_STEP waiters at most, under the
 * lock, and then drops it. A call that comes back to a queue holds it by .nr_calls. It must not
 * touch waiters that have joined after it began. So waiters are numbered as they join, and a call
 * ends at the number that was the last when it began. Waiters are only appended to the list, so it
 * is sorted by number.
 *
 * A thread that comes back from a signal handler returns to its place, with the number that it had:
 * see place.c. Such waiters are in a tree by number, beside the list: inserting one walks no
 * distance that others set. The oldest waiter is the first of the tree or of the list. The numbers
 * of a word do not come again, even if its queue is freed in between: the number goes to
 * memwait_last_number before the queue leaves the table, and a queue that is inserted looks there
 * afterwards. The lock of the hash bucket orders the two.
 *
 * A call covers threads that return while it works, as they are as old as others that it covers;
 * but none with a number that it has passed. Such a thread was not there then, and has compared the
 * word since. So a call comes to each number once, and a thread that returns, ends its wait, and
 * returns again cannot hold it up.
 *
 * Queues are SLAB_TYPESAFE_BY_RCU: a look-up may lock an object that was freed, or serves another
 * word by now. So the key is compared again under the lock. Only the cache's constructor
 * initialises the lock, which stays valid in between.
 *
 *	Lock order:	queue->lock -> memwait_context.lock -> locks of hrtimers and of the id table
 *			queue->lock -> memwait_context.lock -> memwait_identity.lock
 *			queue->lock -> hash bucket's lock
 *
 * Only requeue holds two queues' locks, see requeue.c. A queue that is to be inserted or evicted is
 * locked when no other queue is. expire.c asks for a queue's lock under that of a context, but only
 * tries. All of them are taken in process context only. No interrupt handler of this module takes a
 * lock.
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
 * In half the time that all 16 bytes would take. The words of one owner, which a user can choose,
 * are hashed as well as by all of them, and so are owners that differ in their lower halves.
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
/* No queue that was freed had a greater one. */
static atomic64_t memwait_last_number;

static void memwait_queue_construct(void *object)
{
	struct memwait_queue *queue = object;

	spin_lock_init(&queue->lock);
	INIT_LIST_HEAD(&queue->waiters);
	queue->returned = RB_ROOT;
	INIT_LIST_HEAD(&queue->owned);
	queue->looks_to = NULL;
	queue->mover = NULL;
	queue->nr_waiters = 0;
	queue->number = 0;
	queue->nr_calls = 0;
	queue->kept = false;
	queue->key.owner = 0;
	queue->key.offset = 0;
}

/* Finds the queue of a word and locks it, or returns NULL if the word has none. */
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
 * @key: the word's key; what it names is kept by the caller
 *
 * Context: process context; takes the queue's lock, for memwait_queue_unlock().
 *
 * Return: the queue, or %NULL if the word has none.
 */
struct memwait_queue *memwait_queue_find(const struct memwait_key *key)
{
	return __memwait_queue_find(key);
}

/* Neither waiters nor calls need a locked queue. */
static bool memwait_queue_is_idle(const struct memwait_queue *queue)
{
	lockdep_assert_held(&queue->lock);
	return !queue->nr_waiters && !queue->nr_calls;
}

/* Waiters that join any queue of this word later get greater numbers. */
static void memwait_queue_raise_number(const struct memwait_queue *queue)
{
	s64 last = atomic64_read(&memwait_last_number);

	lockdep_assert_held(&queue->lock);
	while (last < (s64)queue->number &&
	       !atomic64_try_cmpxchg(&memwait_last_number, &last, queue->number))
		;
}

/* Keeps a locked queue no longer: frees it, or leaves it to its waiters and calls. */
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
 * memwait_queue_keep() - keep a queue instead of one that was kept for long
 * @queue: the caller has marked it as kept, by memwait_queue_unlock_only()
 * @kept: as memwait_queue_unlock(); with %NULL the queue is evicted
 *
 * Context: no queue's lock is held; takes that of a queue which it evicts.
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
		/* It is in use, maybe by another user: rather evict the caller's own queue. */
		other = xchg(slot, other);
		if (!other)
			return;
		spin_lock(&other->lock);
	}
	memwait_queue_evict(other);
}

/**
 * memwait_queue_unlock_only() - the first half of memwait_queue_unlock()
 * @queue: as there
 *
 * Context: another queue's lock may be held.
 *
 * Return: whether the caller is to call memwait_queue_keep() when it holds no queue's lock.
 */
bool memwait_queue_unlock_only(struct memwait_queue *queue)
{
	bool idle = memwait_queue_is_idle(queue);
	bool keep = idle && !queue->kept;

	__acquire(&queue->lock);
	if (idle) {
		memwait_queue_look_away(queue);
		memwait_queue_forget_mover(queue);
	}
	if (keep)
		queue->kept = true;
	spin_unlock(&queue->lock);
	return keep;
}

/**
 * memwait_queue_unlock() - drop the lock of a queue
 * @queue: locked; not to be used any more, unless the caller holds it by .nr_calls
 * @kept: of the user by whose context it is called, to keep the queue if it is empty; or %NULL
 *
 * Context: no other queue's lock is held; may take that of a queue which it evicts.
 */
void memwait_queue_unlock(struct memwait_queue *queue, struct memwait_kept_queues *kept)
{
	if (memwait_queue_unlock_only(queue))
		memwait_queue_keep(queue, kept);
}

/*
 * Makes @queue the queue of @key, locked. Returns 0; or, and then the queue is the caller's still,
 * -EEXIST: the key has one already; or -ENOMEM.
 */
static int memwait_queue_insert(struct memwait_queue *queue, const struct memwait_key *key)
{
	struct memwait_queue *other;

	/* A thread with a stale pointer may hold the lock: it will find the wrong key. */
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
 * memwait_queue_find_or_insert() - memwait_queue_find() that inserts a queue if there is none
 * @key: as there
 *
 * Context: process context, may sleep; takes the queue's lock, for memwait_queue_unlock().
 *
 * Return: the queue; or %NULL: there is no memory.
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
 * memwait_queue_try_find() - lock the queue of another word if its lock is free: so in any order
 * @key: the word's key
 * @locked: a queue that the caller has locked, maybe that of the key
 *
 * Context: process context; tries to take the queue's lock, for memwait_queue_unlock().
 *
 * Return: the queue, or @locked; or %NULL: there is none, or its lock is not free.
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
			__release(&queue->lock);	/* as memwait_queue_find() */
		}
	}
	rcu_read_unlock();
	return queue;
}

/**
 * memwait_queue_begin_join() - lock the queue of a word that holds the expected value
 * @waiter: its word and identity are set
 * @wait: address, expected value and size of the word
 * @kept: as memwait_queue_unlock()
 * @queue: set to the locked queue, for memwait_queue_unlock(), if the result is 0
 *
 * The comparison, and what is done until the queue is unlocked, are one step with respect to a
 * notify of the word.
 *
 * Context: process context, may sleep; takes the queue's lock.
 *
 * Return:
 * * 0: it does
 * * MEMWAIT_NOT_EQUAL: the word holds another value
 * * MEMWAIT_OWNER_DIED: the owner that it names is dead
 * * -EAGAIN: the word's page must be faulted in first: compare it once outside and try again
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
	return rb_entry(node, struct memwait_returned, node)->waiter;
}

static bool memwait_returned_less(struct rb_node *a, const struct rb_node *b)
{
	return memwait_returned(a)->number < memwait_returned(b)->number;
}

/**
 * memwait_queue_next_returned() - the next of the waiters that have returned to their places
 * @queue: the queue
 * @number: the waiter with the lowest number above this
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
 * memwait_queue_oldest_returned() - memwait_queue_oldest() of a queue to which waiters returned
 * @queue: the queue
 * @above: as there
 *
 * Context: the queue's lock is held.
 *
 * Return: as there.
 */
struct memwait_waiter *memwait_queue_oldest_returned(struct memwait_queue *queue, u64 above)
{
	struct memwait_waiter *joined, *returned;

	joined = list_first_entry_or_null(&queue->waiters, struct memwait_waiter, node);
	returned = memwait_queue_next_returned(queue, above);
	return returned && !(joined && joined->number < returned->number) ? returned : joined;
}

/*
 * Puts a waiter of a thread back to its place. Among those that are told of deaths it comes first
 * or last: whichever of them is told, it looks at the word.
 */
static void memwait_queue_insert_returned(struct memwait_queue *queue,
					  struct memwait_waiter *waiter)
{
	const struct memwait_waiter *first;

	lockdep_assert_held(&queue->lock);
	waiter->node.next = NULL;
	rb_add(memwait_returned_node(waiter), &queue->returned, memwait_returned_less);
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
 * @waiter: its word, ops and identity are set, the rest is filled in
 * @wait: as memwait_queue_begin_join()
 * @kept: as there
 *
 * Context: process context, may sleep; takes the queue's lock.
 *
 * Return: 0: it is in the queue; or as memwait_queue_begin_join().
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
 * @waiter: as there; its number is that of its place, or 0
 * @wait: as there
 * @kept: as there
 *
 * Context: process context, may sleep; takes the queue's lock.
 *
 * Return: as memwait_queue_join().
 */
int memwait_queue_return(struct memwait_waiter *waiter, const struct memwait_wait *wait,
			 struct memwait_kept_queues *kept)
{
	struct memwait_queue *queue;
	int ret = memwait_queue_begin_join(waiter, wait, kept, &queue);

	if (ret)
		return ret;
	if (waiter->number)
		memwait_queue_insert_returned(queue, waiter);
	else
		memwait_queue_append(queue, waiter);
	memwait_queue_unlock(queue, kept);
	return 0;
}

/**
 * memwait_queue_remove() - take a waiter out of its queue
 * @waiter: in a queue. Its owner may free it as soon as this has been done, unless the caller holds
 *	a lock or a reference that prevents it
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_remove(struct memwait_waiter *waiter)
{
	struct memwait_queue *queue = waiter->queue;

	lockdep_assert_held(&queue->lock);
	if (memwait_waiter_has_returned(waiter))
		rb_erase(memwait_returned_node(waiter), &queue->returned);
	else
		list_del(&waiter->node);
	if (unlikely(waiter->identity))
		list_del(&waiter->owned_node);
	queue->nr_waiters--;
	smp_store_release(&waiter->queue, NULL);	/* (C) pairs with the acquires */
}

/**
 * memwait_queue_move() - move a waiter to the end of a queue, as its youngest
 * @waiter: in a queue
 * @to: the queue, or the same one
 *
 * Context: the locks of both queues are held.
 */
void memwait_queue_move(struct memwait_waiter *waiter, struct memwait_queue *to)
{
	struct memwait_queue *from = waiter->queue;

	lockdep_assert_held(&from->lock);
	lockdep_assert_held(&to->lock);
	if (memwait_waiter_has_returned(waiter)) {
		rb_erase(memwait_returned_node(waiter), &from->returned);
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
 * memwait_queue_remove_claimed() - take a waiter out of its queue that was claimed for its owner
 * @waiter: as memwait_queue_remove(). If it was told, or woken, with MEMWAIT_OWNED, the others look
 *	to it from now on
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_remove_claimed(struct memwait_waiter *waiter)
{
	/* It lives: its owner cannot leave before the waiter is out of the queue. */
	if (unlikely(waiter->identity))
		memwait_queue_look_to(waiter->queue, waiter->identity, waiter->identity);
	memwait_queue_remove(waiter);
}

/**
 * memwait_queue_take_out() - memwait_queue_leave() of a waiter that may be in a queue
 * @waiter: as there
 * @kept: as there
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
		/* If not, it is in another one, whose lock protects it. */
		if (READ_ONCE(waiter->queue) == queue)
			break;
		spin_unlock(&queue->lock);
	}
	rcu_read_unlock();

	memwait_queue_remove(waiter);
	/* Taken again, for sparse, by memwait_queue_unlock(). */
	__release(&queue->lock);
	memwait_queue_unlock(queue, kept);
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

	queue = memwait_queue_find(key);
	if (queue) {
		nr = queue->nr_waiters - memwait_queue_markers(queue);
		memwait_queue_unlock(queue, NULL);
	}
	return nr;
}

/**
 * memwait_queue_evict_all() - keep no queue of a user any longer
 * @kept: the user's. What its calls keep meanwhile may stay
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

/* No context is left, nor any waiter: no queue is kept. */
void memwait_queue_exit(void)
{
	rhashtable_destroy(&memwait_queues);
	kmem_cache_destroy(memwait_queue_cache);
}
