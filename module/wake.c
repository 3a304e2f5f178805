// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waking the pollers and readers of a context.
 *
 *	poll, a reader that blocks		notify, timer, end of the context
 *	add itself to .pollers or .readers	add to .completed; set .due; drop the last of .uses
 *	(A) barrier				(B) barrier
 *	load .nr_completed, .due, .uses		is .pollers or .readers empty?
 *
 * (A) is in memwait_poll() and prepare_to_wait_event(), (B) in memwait_context_wake(). Either the
 * waker finds the poller or reader, or that one sees what the waker has stored. So a context
 * without pollers and readers costs a barrier and no lock. A notify takes a reference to the
 * context under the context's lock, together with its completion, and puts the reference after the
 * wake-up.
 *
 * A blocked reader is an exclusive waiter of .readers. One reader is woken, however many
 * completions there are. Each reader that drops read_lock while completions remain wakes the next.
 * read.pml models this.
 *
 * A step wakes a context once for all completions that it added there, and holds no queue's or
 * context's lock meanwhile. A later step of the same call (.woken_by) does not wake the context
 * again if an older completion is still there: a thread that went to sleep in between had found no
 * completion, and the first one after that wakes it.
 *
 * A context may have any number of pollers, and wake_up_poll() calls them all with interrupts
 * disabled, as for an eventfd. So a step wakes its contexts with preemption on, and may be
 * preempted between any two.
 */
#include <linux/lockdep.h>
#include <linux/poll.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "context.h"
#include "memwait.h"

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

/**
 * memwait_context_wake() - wake the pollers and a reader of a context
 * @context: the caller holds a reference
 *
 * Context: any.
 */
void memwait_context_wake(struct memwait_context *context)
{
	__poll_t events = EPOLLIN | EPOLLRDNORM;

	if (unlikely(memwait_context_has_ended(context)))
		events |= EPOLLERR | EPOLLHUP;
	smp_mb();	/* (B) pairs with (A) */
	if (waitqueue_active(&context->pollers))	/* after (B) */
		wake_up_poll(&context->pollers, events);
	if (waitqueue_active(&context->readers))	/* after (B) */
		wake_up(&context->readers);
}
