// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory and ids of async waits.
 *
 * A completion uses the memory of its wait, so a notify allocates nothing. A context caches ended
 * waits, which stay in the tree of ids. Reusing a cached wait saves an allocation and an insertion;
 * without the cache an async wait takes 1.4 to 1.8 times as long. Cached waits are charged to the
 * user.
 *
 *	memwait_async_end()		releases the resources of an ended wait, except its memory
 *	memwait_async_free()		then caches or frees the memory; also the memory of a wait
 *					that was not armed
 *	memwait_async_free_all()	frees the cached waits of a context that ends
 */
#include "context.h"

/*
 * context->waits.tree is ordered by id. The high bits of an id are a number that the context counts
 * up from 1. The low bits count how many times the wait was reused with that number; a reuse does
 * not change the wait's position in the tree. A context cannot use up 2^56 numbers.
 */
#define MEMWAIT_ID_REUSE_BITS	8
#define MEMWAIT_ID_REUSE_MASK	((1U << MEMWAIT_ID_REUSE_BITS) - 1)

/* Maximum number of waits in each of a context's two caches; enough for usual batches. */
#define MEMWAIT_MAX_CACHED	256

static struct memwait_async_waiter *memwait_async_at(const struct rb_node *node)
{
	return rb_entry(node, struct memwait_async_waiter, numbered);
}

static bool memwait_async_less(struct rb_node *new, const struct rb_node *node)
{
	return memwait_async_at(new)->id < memwait_async_at(node)->id;
}

static int memwait_async_cmp(const void *id, const struct rb_node *node)
{
	const u64 of_node = memwait_async_at(node)->id;

	return *(const u64 *)id < of_node ? -1 : *(const u64 *)id > of_node;
}

static void memwait_async_insert(struct memwait_async_waiter *wait, u64 id)
{
	lockdep_assert_held(&wait->group.context->lock);
	wait->id = id;
	rb_add(&wait->numbered, &wait->group.context->waits.tree, memwait_async_less);
}

static void memwait_async_erase(struct memwait_async_waiter *wait)
{
	lockdep_assert_held(&wait->group.context->lock);
	rb_erase(&wait->numbered, &wait->group.context->waits.tree);
}

static u64 memwait_async_new_id(struct memwait_context *context)
{
	lockdep_assert_held(&context->lock);
	return ++context->waits.nr_numbered << MEMWAIT_ID_REUSE_BITS;
}

/* Gives a reused wait a new id. */
static void memwait_async_renew_id(struct memwait_async_waiter *wait)
{
	lockdep_assert_held(&wait->group.context->lock);
	if (likely((wait->id & MEMWAIT_ID_REUSE_MASK) != MEMWAIT_ID_REUSE_MASK)) {
		wait->id++;
		return;
	}
	memwait_async_erase(wait);
	memwait_async_insert(wait, memwait_async_new_id(wait->group.context));
}

/**
 * memwait_async_find() - look a wait up by id
 * @context: the context
 * @id: the id, from user space
 *
 * Context: the context's lock is held.
 *
 * Return: the wait, or %NULL.
 */
struct memwait_async_waiter *memwait_async_find(struct memwait_context *context, u64 id)
{
	struct rb_node *node;

	lockdep_assert_held(&context->lock);
	node = rb_find(&id, &context->waits.tree, memwait_async_cmp);
	return node ? memwait_async_at(node) : NULL;
}

/**
 * memwait_async_after() - find the wait with the next id
 * @context: the context
 * @id: any number
 *
 * Context: the context's lock is held.
 *
 * Return: the wait with the lowest id above @id, or %NULL.
 */
struct memwait_async_waiter *memwait_async_after(struct memwait_context *context, u64 id)
{
	struct rb_node *node;

	lockdep_assert_held(&context->lock);
	node = memwait_rb_after(&id, &context->waits.tree, memwait_async_cmp);
	return node ? memwait_async_at(node) : NULL;
}

/* Returns a cached wait with a new id, or NULL. */
static struct memwait_async_waiter *memwait_async_take_cached(struct memwait_context *context,
							      bool owned)
{
	struct memwait_cache *cache = &context->waits.caches[owned];
	struct memwait_async_waiter *wait;

	spin_lock(&context->lock);
	wait = cache->first;
	if (wait) {
		cache->first = wait->next_cached;
		cache->nr--;
		memwait_user_uncharge(context->user, MEMWAIT_CACHED_WAITS, 1);
		memwait_async_renew_id(wait);
		wait->group.state = MEMWAIT_ARMING;
	}
	spin_unlock(&context->lock);
	return wait;
}

/**
 * memwait_async_alloc() - allocate a wait
 * @context: the context
 * @nr: number of words
 * @owned: the wait has MEMWAIT_OWNED, and @nr is 1
 *
 * Context: process context, may sleep; takes the context's lock.
 *
 * Return: a cached or a new wait, with a new id; or %NULL.
 */
struct memwait_async_waiter *memwait_async_alloc(struct memwait_context *context, u32 nr,
						 bool owned)
{
	struct memwait_async_waiter *wait = NULL;
	u32 i;

	if (nr == 1)
		wait = memwait_async_take_cached(context, owned);
	if (wait)
		return wait;
	/*
	 * Without MEMWAIT_OWNED, a wait for one word takes 192 bytes on a 64-bit kernel, which is a
	 * size class of kmalloc().
	 */
	if (unlikely(owned))
		wait = kmem_cache_alloc(memwait_owned_cache, MEMWAIT_GFP);
	else
		wait = kmalloc(struct_size(wait, group.waiters, nr), MEMWAIT_GFP);
	if (!wait)
		return NULL;
	wait->group.nr = nr;
	wait->group.async = true;
	wait->group.state = MEMWAIT_ARMING;
	for (i = 0; i < nr; i++)
		wait->group.waiters[i].owned = owned;
	wait->group.context = context;
	timerqueue_init(&wait->group.deadline);
	spin_lock(&context->lock);
	memwait_async_insert(wait, memwait_async_new_id(context));
	spin_unlock(&context->lock);
	return wait;
}

/* Frees a wait that is not in the tree. */
static void memwait_async_put(struct memwait_async_waiter *wait)
{
	if (unlikely(wait->group.waiters->owned))
		kmem_cache_free(memwait_owned_cache, wait);
	else
		kfree(wait);
}

/*
 * Caches an ended wait. Returns false if the caller must free the wait instead; in that case the
 * wait has been removed from the tree.
 */
static bool memwait_async_cache(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->group.context;
	struct memwait_cache *cache = &context->waits.caches[wait->group.waiters->owned];

	lockdep_assert_held(&context->lock);
	if (wait->group.nr > 1 || cache->nr == MEMWAIT_MAX_CACHED ||
	    !memwait_user_charge(context->user, MEMWAIT_CACHED_WAITS, 1)) {
		memwait_async_erase(wait);
		return false;
	}
	wait->group.state = MEMWAIT_CACHED;
	wait->next_cached = cache->first;
	cache->first = wait;
	cache->nr++;
	return true;
}

/**
 * memwait_async_free() - free waits or cache them
 * @context: the context of the waits
 * @waits: waits after memwait_async_end(), or waits that are neither queued nor charged; the array
 *	is overwritten
 * @nr: number of @waits, at most one step
 *
 * Context: process context; takes the context's lock.
 */
void memwait_async_free(struct memwait_context *context, struct memwait_async_waiter **waits,
			unsigned int nr)
{
	unsigned int i;

	spin_lock(&context->lock);
	for (i = 0; i < nr; i++) {
		if (memwait_async_cache(waits[i]))
			waits[i] = NULL;
	}
	spin_unlock(&context->lock);
	for (i = 0; i < nr; i++) {
		if (waits[i])
			memwait_async_put(waits[i]);
	}
}

static void memwait_cache_free(struct memwait_context *context, struct memwait_cache *cache)
{
	struct memwait_async_waiter *wait;

	while ((wait = cache->first)) {
		spin_lock(&context->lock);
		cache->first = wait->next_cached;
		cache->nr--;
		memwait_async_erase(wait);
		spin_unlock(&context->lock);
		memwait_user_uncharge(context->user, MEMWAIT_CACHED_WAITS, 1);
		memwait_async_put(wait);
		cond_resched();
	}
}

/**
 * memwait_async_free_all() - free the cached waits of an ending context
 * @context: has no waits left
 *
 * Context: process context, may sleep; takes the context's lock.
 */
void memwait_async_free_all(struct memwait_context *context)
{
	memwait_cache_free(context, &context->waits.caches[false]);
	memwait_cache_free(context, &context->waits.caches[true]);
}
