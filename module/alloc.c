// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory and ids of async waits.
 *
 * A completion reuses the memory of its wait, so a notify allocates nothing. A context caches ended
 * waits with their index as spares, which saves an allocation and an insertion into the id table:
 * without spares an async wait takes 1.4 to 1.8 times as long. Spares are charged to the user.
 *
 * A wait that ended with MEMWAIT_OWNER_DIED keeps its place, as a thread's does (place.c): a loop
 * looks at the word, and arms the wait again. The spare is kept apart, with the word's key and the
 * wait's number in the queue. A caller that passes the old id takes it, and stands where it stood.
 * Of too many the oldest are freed.
 */
#include <linux/build_bug.h>
#include <linux/init.h>
#include <linux/lockdep.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/xarray.h>

#include "context.h"
#include "group.h"
#include "memwait.h"
#include "watch.h"

/*
 * An id has the wait's index in context->waits in its low bits and the context's running number of
 * waits above. It repeats after 2^40 waits. Index 0 and id 0 are unused.
 */
#define MEMWAIT_ID_INDEX_BITS	24
#define MEMWAIT_ID_INDEX_MASK	((1UL << MEMWAIT_ID_INDEX_BITS) - 1)

/* Maximum spares of each kind per context: covers batches of usual length. */
#define MEMWAIT_MAX_SPARES	256

/* Maximum of waits per context that keep their places: some batches of completions. */
#define MEMWAIT_MAX_TOLD	256

static struct kmem_cache *memwait_async_cache;
static struct kmem_cache *memwait_timed_cache;

static_assert(offsetof(struct memwait_timed_wait, wait) == 0);
static_assert(offsetof(struct memwait_async_group, group) == 0);

static void memwait_async_set_id(struct memwait_async_waiter *wait, u32 index)
{
	lockdep_assert_held(&wait->context->lock);
	wait->id = ++wait->context->nr_armed << MEMWAIT_ID_INDEX_BITS | index;
}

/**
 * memwait_async_number() - give a wait an index and an id
 * @wait: from memwait_async_alloc(), or a group; has none yet
 *
 * Context: process context, may sleep; takes the context's lock.
 *
 * Return: 0, -ENOMEM, or -ENOSPC: no free index.
 */
int memwait_async_number(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->context;
	u32 index;
	int err;

	err = xa_alloc(&context->waits, &index, wait, XA_LIMIT(1, MEMWAIT_ID_INDEX_MASK),
		       MEMWAIT_GFP);
	if (err)
		return err == -EBUSY ? -ENOSPC : err;
	spin_lock(&context->lock);
	memwait_async_set_id(wait, index);
	spin_unlock(&context->lock);
	return 0;
}

/**
 * memwait_async_find() - look a wait up by id
 * @context: the context
 * @id: from user space
 *
 * Context: the context's lock is held.
 *
 * Return: the wait, or %NULL.
 */
struct memwait_async_waiter *memwait_async_find(struct memwait_context *context, u64 id)
{
	struct memwait_async_waiter *wait;

	lockdep_assert_held(&context->lock);
	wait = xa_load(&context->waits, id & MEMWAIT_ID_INDEX_MASK);
	return wait && wait->id == id ? wait : NULL;
}

/**
 * memwait_async_alloc() - allocate a wait on one word
 * @context: the context
 * @timed: whether it has a deadline
 * @owner: the word's
 * @pinned: set to whether @context has a pin of @owner
 *
 * Context: process context, may sleep; takes the context's lock.
 *
 * Return: a spare with a new id; a new wait without an id; or %NULL.
 */
struct memwait_async_waiter *memwait_async_alloc(struct memwait_context *context, bool timed,
						 u64 owner, bool *pinned)
{
	struct memwait_spares *spares = &context->spares[timed];
	struct memwait_async_waiter *wait;

	spin_lock(&context->lock);
	*pinned = memwait_pin_find(context, owner);
	wait = spares->first;
	if (wait) {
		spares->first = wait->next_spare;
		spares->nr--;
		memwait_user_uncharge(context->user, MEMWAIT_SPARES, 1);
		memwait_async_set_id(wait, wait->id & MEMWAIT_ID_INDEX_MASK);
		WRITE_ONCE(wait->waiter.state, MEMWAIT_ARMING);
	}
	spin_unlock(&context->lock);
	if (wait)
		return wait;

	wait = kmem_cache_alloc(timed ? memwait_timed_cache : memwait_async_cache, MEMWAIT_GFP);
	if (wait) {
		wait->waiter.state = MEMWAIT_ARMING;
		wait->waiter.kind = timed ? MEMWAIT_TIMED : MEMWAIT_UNTIMED;
		wait->waiter.result = MEMWAIT_OK;
		wait->waiter.watch = NULL;
		wait->context = context;
		wait->id = 0;
	}
	return wait;
}

/**
 * memwait_async_take_told() - take a wait that was told of a death, to arm it again
 * @context: the context
 * @id: of the wait, or any number, from user space
 * @timed: whether it will have a deadline
 * @word: the word to wait on, from memwait_word_get()
 *
 * Context: process context; takes the context's lock.
 *
 * Return: the wait with a new id, %MEMWAIT_OWNER_DIED for its result, and its number in the queue;
 * %NULL: @id is not of such a wait on @word.
 */
struct memwait_async_waiter *memwait_async_take_told(struct memwait_context *context, u64 id,
						     bool timed, const struct memwait_word *word)
{
	struct memwait_async_waiter *wait;

	spin_lock(&context->lock);
	wait = memwait_async_find(context, id);
	if (wait && wait->waiter.state == MEMWAIT_TOLD && memwait_async_is_timed(wait) == timed &&
	    memwait_word_is_same(word, &wait->waiter.word.key, &wait->waiter.inode)) {
		list_del(&wait->node);
		context->nr_told--;
		memwait_user_uncharge(context->user, MEMWAIT_SPARES, 1);
		memwait_async_set_id(wait, id & MEMWAIT_ID_INDEX_MASK);
		WRITE_ONCE(wait->waiter.state, MEMWAIT_ARMING);
	} else {
		wait = NULL;
	}
	spin_unlock(&context->lock);
	return wait;
}

static void memwait_async_erase(struct memwait_async_waiter *wait)
{
	lockdep_assert_held(&wait->context->lock);
	xa_erase(&wait->context->waits, wait->id & MEMWAIT_ID_INDEX_MASK);
}

/* Frees a wait that has no index. */
static void memwait_async_put(struct memwait_async_waiter *wait)
{
	if (memwait_async_is_group(wait)) {
		memwait_group_put(&to_group(wait)->group);
		return;
	}
	if (unlikely(wait->waiter.watch))
		memwait_watch_free(wait->waiter.watch);
	kmem_cache_free(memwait_async_is_timed(wait) ? memwait_timed_cache : memwait_async_cache,
			wait);
}

/* Keeps a wait that was told of a death. Returns a wait to free: it, or the first of too many. */
static struct memwait_async_waiter *memwait_async_keep_told(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->context;
	struct memwait_async_waiter *unused = NULL;

	lockdep_assert_held(&context->lock);
	if (context->nr_told == MEMWAIT_MAX_TOLD) {
		/* In exchange, so that the charge is never given back. */
		unused = list_first_entry(&context->told, struct memwait_async_waiter,
					  node);
		list_del(&unused->node);
	} else if (memwait_user_charge(context->user, MEMWAIT_SPARES, 1)) {
		context->nr_told++;
	} else {
		return wait;
	}
	WRITE_ONCE(wait->waiter.state, MEMWAIT_TOLD);
	list_add_tail(&wait->node, &context->told);
	return unused;
}

/* Keeps an ended wait as a spare. Returns it if it is to be freed, or NULL. */
static struct memwait_async_waiter *memwait_async_keep_spare(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->context;
	struct memwait_spares *spares = &context->spares[memwait_async_is_timed(wait)];

	lockdep_assert_held(&context->lock);
	if (memwait_async_is_group(wait) || spares->nr == MEMWAIT_MAX_SPARES ||
	    !memwait_user_charge(context->user, MEMWAIT_SPARES, 1))
		return wait;
	WRITE_ONCE(wait->waiter.state, MEMWAIT_SPARE);
	wait->next_spare = spares->first;
	spares->first = wait;
	spares->nr++;
	return NULL;
}

/* Keeps an ended wait. Returns one to free, with its index erased; or NULL. */
static struct memwait_async_waiter *memwait_async_spare(struct memwait_async_waiter *wait)
{
	struct memwait_async_waiter *unused;

	if (unlikely(wait->waiter.result == MEMWAIT_OWNER_DIED))
		unused = memwait_async_keep_told(wait);
	else
		unused = memwait_async_keep_spare(wait);
	if (unused)
		memwait_async_erase(unused);
	return unused;
}

/**
 * memwait_async_free() - free waits or keep them as spares
 * @context: of the waits
 * @waits: after memwait_async_end(); overwritten
 * @nr: number of @waits, at most one step
 *
 * Context: process context; takes the context's lock.
 */
void memwait_async_free(struct memwait_context *context, struct memwait_async_waiter **waits,
			unsigned int nr)
{
	unsigned int i;

	spin_lock(&context->lock);
	for (i = 0; i < nr; i++)
		waits[i] = memwait_async_spare(waits[i]);
	spin_unlock(&context->lock);
	for (i = 0; i < nr; i++) {
		if (waits[i])
			memwait_async_put(waits[i]);
	}
}

/**
 * memwait_async_drop() - free a wait that was neither queued nor charged
 * @wait: from memwait_async_alloc() or memwait_async_take_told(), or a group
 * @id: of the latter: the id that it had, and has again
 *
 * Context: process context; takes the context's lock.
 */
void memwait_async_drop(struct memwait_async_waiter *wait, u64 id)
{
	if (wait->waiter.result == MEMWAIT_OWNER_DIED) {
		spin_lock(&wait->context->lock);
		wait->id = id;
		spin_unlock(&wait->context->lock);
	}
	if (wait->id)
		memwait_async_free(wait->context, &wait, 1);
	else
		memwait_async_put(wait);
}

/**
 * memwait_async_free_now() - free a wait of an ending context
 * @wait: after memwait_async_end(), or a spare
 *
 * Context: process context, may sleep; takes the context's lock.
 */
void memwait_async_free_now(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->context;

	spin_lock(&context->lock);
	memwait_async_erase(wait);
	spin_unlock(&context->lock);
	memwait_async_put(wait);
	cond_resched();
}

/**
 * memwait_async_free_all() - free the spares and id table of an ending context
 * @context: has no waits left
 *
 * Context: process context, may sleep; takes the context's lock.
 */
void memwait_async_free_all(struct memwait_context *context)
{
	struct memwait_async_waiter *wait, *next;
	int kind;

	memwait_user_uncharge(context->user, MEMWAIT_SPARES, context->nr_told);
	list_for_each_entry_safe(wait, next, &context->told, node)
		memwait_async_free_now(wait);
	for (kind = 0; kind < ARRAY_SIZE(context->spares); kind++) {
		memwait_user_uncharge(context->user, MEMWAIT_SPARES, context->spares[kind].nr);
		while ((wait = context->spares[kind].first)) {
			context->spares[kind].first = wait->next_spare;
			memwait_async_free_now(wait);
		}
	}
	xa_destroy(&context->waits);
}

int __init memwait_alloc_init(void)
{
	memwait_async_cache = KMEM_CACHE(memwait_async_waiter, 0);
	memwait_timed_cache = KMEM_CACHE(memwait_timed_wait, 0);
	if (memwait_async_cache && memwait_timed_cache)
		return 0;

	memwait_alloc_exit();
	return -ENOMEM;
}

void memwait_alloc_exit(void)
{
	kmem_cache_destroy(memwait_timed_cache);
	kmem_cache_destroy(memwait_async_cache);
}
