// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waking the pollers and readers of a context.
 *
 *	poll, a reader that blocks		notify, timer, end of the context
 *	add itself to .pollers or .readers	add to .list; set .due; drop the last of .uses
 *	(D) barrier				(E) barrier
 *	load .nr, .due, .uses			is .pollers or .readers empty?
 *
 * (D) is in memwait_poll() and memwait_read_block(), (E) in memwait_wakes_add_context(),
 * memwait_context_wake() and rcuwait_wake_up(). Either the waker finds the poller or reader, or the
 * poller or reader sees the waker's store. Therefore the wake-up of a context without pollers and
 * readers costs a barrier, but no lock. If a context has pollers, a notify takes a reference to the
 * context in the lock section in which it adds the completion, and puts the reference after the
 * wake-up.
 *
 * A notify that adds a completion takes the first blocked reader out of .readers, under the
 * context's lock. At its end, the step wakes that reader like a claimed thread, without holding a
 * lock on which the reader would block. With PREEMPT_RT the reader is woken immediately; if the
 * reader preempts the notifier, the reader blocks on the notifier's locks, and the notifier
 * inherits the reader's priority. As many readers are woken as there are completions, and no reader
 * has to wait for another reader. A reader that has seen .woken set no longer needs the lock,
 * because of the release and the acquires (F).
 *
 * All other wake-ups wake the first reader (.first_reader, under RCU, so that a timer can do this),
 * and leave it in the list. That reader leaves the list by itself if there is something to read. A
 * reader that was woken either reads, and checks again after it has dropped read_lock, or leaves
 * because of a signal, and also checks again. A reader whose second check finds completions or .due
 * wakes the first reader that is still blocked. read.pml models this.
 *
 * A step wakes the pollers of a context once for all completions that the step has added to the
 * context, without holding a queue's or context's lock. A later step of the same call (.woken_by)
 * does not wake the pollers again, unless a reader has looked at the completions since. Such a
 * reader takes only completions that it has seen, and may sleep afterwards, because a read of fewer
 * than 16 shows that none are left.
 *
 * A context may have any number of pollers, and wake_up_poll() calls them all with interrupts
 * disabled, as for an eventfd. Therefore a context with more than one poller ends the step.
 */
#include <linux/sched/task.h>

#include "context.h"

static atomic64_t memwait_nr_calls;

/**
 * memwait_new_call() - number a call that may wake a context more than once
 *
 * Context: any.
 *
 * Return: a unique number, not 0.
 */
u64 memwait_new_call(void)
{
	return atomic64_inc_return(&memwait_nr_calls);
}

/*
 * Takes a blocked reader out of the list. Afterwards no other thread will wake the reader. With
 * PREEMPT_RT the notifier may be preempted before the end of its step, so the reader is woken in
 * this function.
 */
static void memwait_wakes_add_reader(struct memwait_wakes *wakes, struct memwait_context *context,
				     struct memwait_reader *reader)
{
	struct task_struct *task = get_task_struct(reader->task);

	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
	memwait_reader_remove(context, reader);
	smp_store_release(&reader->woken, true);	/* (F) */
	if (!IS_ENABLED(CONFIG_PREEMPT_RT)) {
		wakes->tasks[wakes->nr_tasks++] = task;
		return;
	}
	wake_up_process(task);
	preempt_enable();
	put_task_struct(task);
}

/*
 * Records that a context got a completion and needs a wake-up. @wakes is not full, see
 * memwait_wakes_are_full().
 */
void memwait_wakes_add_context(struct memwait_wakes *wakes, struct memwait_context *context)
{
	struct memwait_reader *reader;
	unsigned int i;

	lockdep_assert_held(&context->lock);
	reader = list_first_entry_or_null(&context->completions.readers, struct memwait_reader,
					  node);
	if (reader)
		memwait_wakes_add_reader(wakes, context, reader);
	for (i = 0; i < wakes->nr_contexts; i++) {
		if (wakes->contexts[i] == context)
			return;
	}
	if (unlikely(wakes->call)) {
		if (context->completions.woken_by == wakes->call)
			return;
		context->completions.woken_by = wakes->call;
	}
	smp_mb();	/* (E) pairs with (D) */
	if (!waitqueue_active(&context->completions.pollers))	/* after (E) */
		return;
	refcount_inc(&context->refs);
	wakes->contexts[wakes->nr_contexts++] = context;
	/* The result may be stale immediately, as it would be if the lock were held. */
	wakes->crowded = data_race(!list_is_singular(&context->completions.pollers.head));
	/* The call may reach this context again in another step. */
	if (unlikely(wakes->crowded) && !wakes->call) {
		wakes->call = memwait_new_call();
		context->completions.woken_by = wakes->call;
	}
}

/**
 * memwait_context_wake_pollers() - wake the pollers of a context
 * @context: the caller holds a reference
 *
 * Context: any.
 */
void memwait_context_wake_pollers(struct memwait_context *context)
{
	__poll_t events = EPOLLIN | EPOLLRDNORM;

	if (unlikely(memwait_context_has_ended(context)))
		events |= EPOLLERR | EPOLLHUP;
	wake_up_poll(&context->completions.pollers, events);
}

/**
 * memwait_context_wake() - wake the pollers and a reader of a context
 * @context: the caller holds a reference
 *
 * Context: any.
 */
void memwait_context_wake(struct memwait_context *context)
{
	smp_mb();	/* (E) pairs with (D) */
	if (waitqueue_active(&context->completions.pollers))	/* after (E) */
		memwait_context_wake_pollers(context);
	memwait_context_wake_reader(context);
}

/**
 * memwait_context_unlock_and_wake() - drop a context's lock after a completion was added
 * @context: its lock is held
 *
 * Wakes pollers and a reader before the caller can be preempted, except on PREEMPT_RT.
 *
 * Context: process context.
 */
void memwait_context_unlock_and_wake(struct memwait_context *context)
	__releases(&context->lock)
{
	memwait_step_begin();
	spin_unlock(&context->lock);
	memwait_context_wake(context);
	memwait_step_done();
}
