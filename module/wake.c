// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waking the pollers and readers of a context.
 *
 *	poll					notify, deadline
 *	add to context->pollers (its lock)	add to context->completed
 *	load context->nr_completed		wake context->pollers (its lock)
 *
 * The lock of context->pollers orders the two: either poll came first and is woken, or poll sees
 * the completion. A notify takes a reference to the context under the context's lock, together with
 * its completion, and puts the reference after it has woken the pollers.
 *
 * A blocked reader is an exclusive waiter of context->readers. The barrier of wq_has_sleeper()
 * pairs with the barrier of prepare_to_wait_event(): either the notify finds the reader, or the
 * reader sees the completion. One reader is woken, however many completions there are. Each reader
 * that drops read_lock while completions remain wakes the next. read.pml models this.
 *
 * A step wakes a context once for all completions that it added there, and holds no queue's or
 * context's lock meanwhile. A later step of the same call (.woken_by) does not wake the context
 * again if an older completion is still there: a thread that went to sleep in between had found no
 * completion, and the first one after that wakes it.
 *
 * A context may have any number of pollers, which are woken with interrupts disabled. So the
 * contexts of a step share MEMWAIT_STEP pollers, at least the first 4 of each. The rest are woken
 * afterwards, with preemption on: by the notifier, or by a work on a workqueue if a timer or the
 * death of a process wakes the pollers. The work needs no memory. A poller may be a daemon that
 * writes dirty pages back, so memory reclaim may wait for the work: WQ_MEM_RECLAIM lets it run
 * without the memory for a new kernel thread.
 */
#include <linux/errno.h>
#include <linux/init.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/poll.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "context.h"
#include "memwait.h"

static struct workqueue_struct *memwait_wake_queue;

/**
 * memwait_wakes_add_context() - note that a context got a completion and needs a wake-up
 * @wakes: the notify's; not full, see memwait_wakes_are_full()
 * @context: the context
 *
 * Context: the context's lock is held.
 */
void memwait_wakes_add_context(struct memwait_wakes *wakes, struct memwait_context *context)
{
	unsigned int i;

	lockdep_assert_held(&context->lock);
	for (i = 0; i < wakes->nr_contexts; i++) {
		if (wakes->contexts[i] == context)
			return;
	}
	if (unlikely(wakes->call)) {
		if (context->woken_by == wakes->call && context->nr_completed > 1)
			return;
		context->woken_by = wakes->call;
	}
	refcount_inc(&context->refs);
	wakes->contexts[wakes->nr_contexts++] = context;
}

/* Returns true if no further poller may be woken. */
static bool memwait_poller_wake(struct wait_queue_entry *poller, __poll_t events)
{
	unsigned int flags = poller->flags;
	int ret = poller->func(poller, TASK_NORMAL, 0, poll_to_key(events));

	return ret < 0 || (ret && (flags & WQ_FLAG_EXCLUSIVE));
}

static __poll_t memwait_context_events(const struct memwait_context *context)
{
	__poll_t events = EPOLLIN | EPOLLRDNORM;

	if (unlikely(memwait_context_has_ended(context)))
		events |= EPOLLERR | EPOLLHUP;
	return events;
}

/**
 * memwait_context_wake_first() - wake a reader and the first pollers of a context
 * @context: the context
 * @most: the most pollers to wake
 *
 * Context: any.
 *
 * Return: whether memwait_context_wake_rest() is needed.
 */
bool memwait_context_wake_first(struct memwait_context *context, unsigned int most)
{
	__poll_t events = memwait_context_events(context);
	struct wait_queue_entry *poller, *next;
	unsigned int nr = 0;
	unsigned long flags;
	bool more = false;

	spin_lock_irqsave(&context->pollers.lock, flags);
	list_for_each_entry_safe(poller, next, &context->pollers.head, entry) {
		more = nr++ == most;
		if (more || memwait_poller_wake(poller, events))
			break;
	}
	spin_unlock_irqrestore(&context->pollers.lock, flags);
	memwait_context_wake_reader(context);
	return more;
}

/* A bookmark in the list of pollers, which every other walk skips. */
static int memwait_no_poller(struct wait_queue_entry *entry, unsigned int mode, int flags,
			     void *key)
{
	return 0;
}

/**
 * memwait_context_wake_rest() - wake all pollers of a context in steps, the first ones again
 * @context: the context. Pollers added meanwhile check for completions themselves
 *
 * Context: process context, may sleep.
 */
void memwait_context_wake_rest(struct memwait_context *context)
{
	__poll_t events = memwait_context_events(context);
	struct wait_queue_head *pollers = &context->pollers;
	struct wait_queue_entry place = { .func = memwait_no_poller };
	struct wait_queue_entry end = { .func = memwait_no_poller };
	struct wait_queue_entry *poller;
	unsigned int nr = 0;

	spin_lock_irq(&pollers->lock);
	list_add(&place.entry, &pollers->head);
	list_add_tail(&end.entry, &pollers->head);
	while ((poller = list_next_entry(&place, entry)) != &end) {
		list_move(&place.entry, &poller->entry);
		if (memwait_poller_wake(poller, events))
			break;
		if (++nr % MEMWAIT_STEP == 0) {
			spin_unlock_irq(&pollers->lock);
			cond_resched();
			spin_lock_irq(&pollers->lock);
		}
	}
	list_del(&place.entry);
	list_del(&end.entry);
	spin_unlock_irq(&pollers->lock);
}

/**
 * memwait_context_wake() - wake the pollers and a reader of a context
 * @context: the caller holds a reference
 *
 * Context: process context, may sleep.
 */
void memwait_context_wake(struct memwait_context *context)
{
	if (memwait_context_wake_first(context, MEMWAIT_STEP))
		memwait_context_wake_rest(context);
}

/**
 * memwait_context_wake_soon() - wake the first pollers and a reader of a context; a work wakes the
 *	rest
 * @context: its close has not come to memwait_expire_close(), which stops the work
 *
 * Context: any.
 */
void memwait_context_wake_soon(struct memwait_context *context)
{
	if (memwait_context_wake_first(context, MEMWAIT_STEP))
		queue_work(memwait_wake_queue, &context->wake_rest);
}

int __init memwait_wake_init(void)
{
	memwait_wake_queue = alloc_workqueue("memwait_wake", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	return memwait_wake_queue ? 0 : -ENOMEM;
}

/* No context exists. */
void memwait_wake_exit(void)
{
	destroy_workqueue(memwait_wake_queue);
}
