// SPDX-License-Identifier: GPL-2.0-only
/*
 * Async waits: cancel, close and deadlines. claim.c describes the states of async waits.
 */
#include <linux/minmax.h>

#include "compat.h"
#include "context.h"
#include "scan.h"
#include "trace.h"

/**
 * memwait_async_end() - release all resources of an ended wait except its id and memory
 * @wait: a wait that is completed, or that the caller has claimed. Only the tree of ids, and
 *	perhaps the queues of its words, still refer to the wait
 * @unused: receives the pins that no other wait uses, for memwait_pins_put()
 *
 * Context: process context; takes buckets' locks, one at a time.
 */
void memwait_async_end(struct memwait_async_waiter *wait, struct llist_head *unused)
{
	struct memwait_group *group = &wait->group;
	struct memwait_context *context = group->context;
	u32 i;

	memwait_group_leave(group, group->nr);
	for (i = 0; i < group->nr; i++)
		memwait_pin_put(group->waiters[i].word.pin, context, unused);
	memwait_user_uncharge(context->user, MEMWAIT_WAITS, group->nr);
}

static void memwait_async_end_and_free(struct memwait_async_waiter *wait, struct llist_head *unused)
{
	struct memwait_context *context = wait->group.context;

	memwait_async_end(wait, unused);
	memwait_async_free(context, &wait, 1);
}

/*
 * Takes a claimed wait out of its queues. Frees the wait, unless it has counted notifies that have
 * not been read yet; in that case the reader of these notifies frees the wait.
 */
static void memwait_async_withdraw(struct memwait_async_waiter *wait, struct llist_head *unused)
{
	struct memwait_context *context = wait->group.context;
	bool listed = false;

	trace_memwait_cancel(wait);
	if (unlikely(wait->group.persistent)) {
		memwait_group_leave(&wait->group, wait->group.nr);
		spin_lock(&context->lock);
		listed = wait->group.listed;
		if (listed)
			memwait_async_complete(wait, MEMWAIT_OK);
		spin_unlock(&context->lock);
	}
	if (!listed)
		memwait_async_end_and_free(wait, unused);
}

/**
 * memwait_ioc_cancel() - MEMWAIT_IOC_CANCEL
 * @context: the caller's context, after memwait_context_use()
 * @cancel: argument from user space, unchecked
 * @unused: receives the pins that no other wait uses; after memwait_context_unuse(), pass them to
 *	memwait_pins_put()
 *
 * Context: process context.
 *
 * Return: 0: the wait is cancelled, and no completion will be added; a completion of a wait with
 * MEMWAIT_PERSISTENT that exists already can still be read; -ENOENT: the wait never existed, or has
 * ended and its completion can be read or was read; or -EINVAL.
 */
int memwait_ioc_cancel(struct memwait_context *context, const struct memwait_cancel *cancel,
		       struct llist_head *unused)
{
	struct memwait_async_waiter *wait;
	bool claimed;

	if (cancel->flags || cancel->reserved)
		return -EINVAL;

	spin_lock(&context->lock);
	wait = memwait_async_find(context, cancel->id);
	claimed = wait && memwait_async_claim(wait);
	spin_unlock(&context->lock);
	if (!claimed)
		return -ENOENT;
	memwait_async_withdraw(wait, unused);
	return 0;
}

/**
 * memwait_async_end_all() - end all waits of an ending context, and free its cached waits
 * @context: a context on which no call arms, cancels or reads any more, and whose waits no other
 *	thread ends; notifies may still reach these waits
 * @unused: receives the pins that no other wait uses, for memwait_pins_put()
 *
 * If a wait has counted notifies that were not read, passes on one notify to the next waiter of the
 * word. The work is therefore bounded by the number of waits, however often the waits were
 * notified.
 *
 * Context: process context, may sleep.
 */
void memwait_async_end_all(struct memwait_context *context, struct llist_head *unused)
{
	const u64 number = memwait_new_call();
	struct memwait_async_waiter *wait, *next;
	LIST_HEAD(completed);
	bool claimed;
	u64 id = 0;

	/*
	 * Leave every queue first, so that a notify that is passed on below cannot reach another
	 * wait of this context. Waiters of completed groups may still be queued, but a notify skips
	 * them.
	 */
	for (;;) {
		spin_lock(&context->lock);
		wait = memwait_async_after(context, id);
		claimed = wait && memwait_async_claim(wait);
		id = wait ? wait->id : 0;
		spin_unlock(&context->lock);
		if (!wait)
			break;
		if (claimed)
			memwait_async_withdraw(wait, unused);
		cond_resched();
	}

	spin_lock(&context->lock);
	list_replace_init(&context->completions.list, &completed);
	WRITE_ONCE(context->completions.nr, 0);
	spin_unlock(&context->lock);
	list_for_each_entry_safe(wait, next, &completed, node) {
		if (wait->count)
			memwait_pass_on(memwait_async_key(wait), number);
		memwait_async_end_and_free(wait, unused);
		cond_resched();
	}
	memwait_async_free_all(context);
}

/*
 * Deadlines of async waits. A context has one timer per clock, which fires at the earliest
 * deadline. The timer takes only the lock of .pollers, and therefore cannot end a wait. It sets
 * .due, and wakes pollers and a reader. read(2) ends as many overdue waits as its buffer can hold;
 * this work is done by the reader, at the reader's priority.
 *
 *	timer				poll, a reader that blocks
 *	store .due			add itself to .pollers or .readers
 *	barrier (E)			barrier (D)
 *	wake them if any		load .due
 *
 * wake.c describes the barriers. A poll or read that finds .due set checks the earliest deadlines,
 * under the context's lock. If no deadline has passed, the poll or read clears .due and starts the
 * timers for the earliest deadlines; a timer whose deadline has passed since then fires
 * immediately. Therefore, while a wait has a deadline, .due is set or a timer is running. While a
 * wait is overdue, .due stays set, because another poller or reader may be about to sleep. poll(2)
 * ignores a timer whose wait has ended for another reason. For waits that are already queued, a
 * timer that has fired is not started again until the next check. No deadline is missed until that
 * check: the pollers that the timer woke, and pollers that are about to sleep, check first, and the
 * length of a read that leaves .due set shows that more can be read, see memwait_expire().
 *
 * A reader completes an overdue wait under the context's lock, as a notify does, and takes the wait
 * out of its queue afterwards. A notify between these two steps dequeues the wait without counting
 * it.
 */

/* Called in an interrupt or, on PREEMPT_RT, in a kernel thread. */
static enum hrtimer_restart memwait_timer_fired(struct memwait_context *context)
{
	WRITE_ONCE(context->completions.due, true);
	memwait_context_wake(context);
	return HRTIMER_NORESTART;
}

static enum hrtimer_restart memwait_monotonic_fired(struct hrtimer *timer)
{
	return memwait_timer_fired(container_of(timer, struct memwait_context,
						waits.timers[MEMWAIT_MONOTONIC]));
}

static enum hrtimer_restart memwait_realtime_fired(struct hrtimer *timer)
{
	return memwait_timer_fired(container_of(timer, struct memwait_context,
						waits.timers[MEMWAIT_REALTIME]));
}

/* Returns the wait with the earliest deadline if that deadline has passed; otherwise NULL. */
static struct memwait_async_waiter *memwait_first_expired(struct memwait_context *context,
							  int clock, ktime_t now)
{
	struct timerqueue_node *first;

	lockdep_assert_held(&context->lock);
	first = timerqueue_getnext(&context->waits.deadlines[clock]);
	if (!first || first->expires > now)
		return NULL;
	return container_of(first, struct memwait_async_waiter, group.deadline);
}

/* Ends the first overdue wait. Returns false if no wait is overdue. Called with .read_lock held. */
static bool memwait_expire_one(struct memwait_context *context, int clock, ktime_t now)
{
	struct memwait_async_waiter *wait;

	spin_lock(&context->lock);
	wait = memwait_first_expired(context, clock, now);
	if (wait) {
		memwait_async_claim(wait);
		memwait_async_complete(wait, MEMWAIT_TIMED_OUT);
	}
	spin_unlock(&context->lock);
	/* Only a reader frees a completion. */
	if (wait)
		memwait_group_leave(&wait->group, wait->group.nr);
	return wait;
}

/**
 * memwait_is_due() - has a deadline of a context passed?
 * @context: .due is set
 *
 * Clears .due if no deadline has passed: the wait whose deadline started the timer may have ended
 * for another reason, or the clock may have been set back.
 *
 * Context: any but interrupts; takes the context's lock.
 *
 * Return: whether read(2) will find a wait to end.
 */
bool memwait_is_due(struct memwait_context *context)
{
	struct timerqueue_node *next;
	bool due = false;
	int clock;

	spin_lock(&context->lock);
	for (clock = 0; clock < MEMWAIT_CLOCKS && !due; clock++)
		due = memwait_first_expired(context, clock, memwait_now(clock));
	if (!due) {
		WRITE_ONCE(context->completions.due, false);	/* before a timer fires again */
		for (clock = 0; clock < MEMWAIT_CLOCKS; clock++) {
			next = timerqueue_getnext(&context->waits.deadlines[clock]);
			if (next)
				hrtimer_start(&context->waits.timers[clock], next->expires,
					      HRTIMER_MODE_ABS);
		}
	}
	spin_unlock(&context->lock);
	return due;
}

/**
 * memwait_expire() - end overdue waits of a context
 * @context: .due is set
 * @room: the number of completions that the caller can read, and the maximum number of waits to
 *	end. Completions that already exist do not reduce this maximum, so a stream of completions
 *	cannot delay a deadline
 *
 * A read that returns fewer completions than MEMWAIT_CHUNK, and fewer than fit into its buffer,
 * shows that no completion is left, and an edge-triggered poller may then sleep. Therefore .due
 * stays set only while there are at least that many completions.
 *
 * Context: process context, may sleep; holds context->completions.read_lock; takes buckets' locks.
 */
void memwait_expire(struct memwait_context *context, size_t room)
{
	size_t ended = 0;
	ktime_t now;
	int clock;

	lockdep_assert_held(&context->completions.read_lock);
	do {
		for (clock = 0; clock < MEMWAIT_CLOCKS; clock++) {
			now = memwait_now(clock);
			while (ended < room && memwait_expire_one(context, clock, now)) {
				ended++;
				cond_resched();
				/* With a signal pending, the caller reads only one chunk. */
				if (READ_ONCE(context->completions.nr) >= MEMWAIT_CHUNK &&
				    signal_pending(current))
					room = ended;
			}
		}
	} while (memwait_is_due(context) && ended < room);
}

/**
 * memwait_expire_open() - set up the deadlines of a new context
 * @context: the context
 *
 * Context: process context.
 */
void memwait_expire_open(struct memwait_context *context)
{
	timerqueue_init_head(&context->waits.deadlines[MEMWAIT_MONOTONIC]);
	timerqueue_init_head(&context->waits.deadlines[MEMWAIT_REALTIME]);
	hrtimer_setup(&context->waits.timers[MEMWAIT_MONOTONIC], memwait_monotonic_fired,
		      CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	hrtimer_setup(&context->waits.timers[MEMWAIT_REALTIME], memwait_realtime_fired,
		      CLOCK_REALTIME, HRTIMER_MODE_ABS);
}

/**
 * memwait_expire_close() - stop the timers of a context permanently
 * @context: a closed context: no call arms a wait or checks deadlines
 *
 * Context: process context; waits until a running timer has finished.
 */
void memwait_expire_close(struct memwait_context *context)
{
	hrtimer_cancel(&context->waits.timers[MEMWAIT_MONOTONIC]);
	hrtimer_cancel(&context->waits.timers[MEMWAIT_REALTIME]);
}
