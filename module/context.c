// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory and references of contexts. See file.c for the open file, async.c for async waits, and
 * read.c and wake.c for completions.
 */
#include <linux/random.h>

#include "context.h"
#include "owner.h"

/* kmalloc() would round the sizes up to 1 KiB and 512 bytes. */
static struct kmem_cache *memwait_context_cache;
struct kmem_cache *memwait_owned_cache;

/**
 * memwait_context_alloc() - allocate a context that belongs to the caller's user
 *
 * Context: process context, may sleep.
 *
 * Return: the context, with one reference and without timers, for which it is not decided yet which
 * processes may use it (see file.c); %NULL if there is no memory.
 */
struct memwait_context *memwait_context_alloc(void)
{
	struct memwait_context *context;

	context = kmem_cache_zalloc(memwait_context_cache, MEMWAIT_GFP);
	if (!context)
		return NULL;
	context->user = memwait_user_get();
	if (!context->user) {
		kmem_cache_free(memwait_context_cache, context);
		return NULL;
	}
	refcount_set(&context->refs, 1);
	spin_lock_init(&context->lock);
	context->waits.tree = RB_ROOT;
	INIT_LIST_HEAD(&context->completions.list);
	INIT_LIST_HEAD(&context->positions);
	INIT_LIST_HEAD(&context->completions.readers);
	init_waitqueue_head(&context->completions.pollers);
	rcuwait_init(&context->completions.first_reader);
	mutex_init(&context->completions.read_lock);
	refcount_set(&context->binding.uses, 1);
	context->number = get_random_u64() & MEMWAIT_OWNER_MASK;
	context->pid = task_tgid_nr(current);
	get_task_comm(context->command, current);
	return context;
}

/**
 * memwait_context_free() - free a context
 * @context: after its last put, or not opened; it has no waits and no pins
 *
 * Context: any but interrupts.
 */
void memwait_context_free(struct memwait_context *context)
{
	memwait_user_put(context->user);
	kfree(context->pins.cached);
	kmem_cache_free(memwait_context_cache, context);
}

/**
 * memwait_context_init() - create the caches of contexts, and of async waits with MEMWAIT_OWNED
 *
 * Context: process context, may sleep.
 *
 * Return: 0 or -ENOMEM.
 */
int __init memwait_context_init(void)
{
	memwait_context_cache = KMEM_CACHE(memwait_context, 0);
	memwait_owned_cache = kmem_cache_create("memwait_owned",
						sizeof(struct memwait_async_waiter) +
						sizeof(struct memwait_owned), 0, 0, NULL);
	if (memwait_context_cache && memwait_owned_cache)
		return 0;
	memwait_context_exit();
	return -ENOMEM;
}

void memwait_context_exit(void)
{
	kmem_cache_destroy(memwait_owned_cache);
	kmem_cache_destroy(memwait_context_cache);
}
