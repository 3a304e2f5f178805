// SPDX-License-Identifier: GPL-2.0-only
/*
 * Deadlines of async waits. A context has one timer per clock, which fires at the earliest
 * deadline. The timer takes only the locks of .pollers and .readers, so it ends no wait. It sets
 * .due and wakes pollers and a reader. read(2) ends overdue waits, as many as its buffer holds, at
 * the reader's priority and expense.
 *
 *	timer				poll, a reader that blocks
 *	store .due			add itself to .pollers or .readers
 *	barrier (B)			barrier (A)
 *	wake them if any		load .due
 *
 * wake.c has the barriers. A poll or read that finds .due set clears it and checks the earliest
 * deadlines, under the context's lock. It sets .due again if one has passed, and starts the timer
 * for one that has not. A timer that fires meanwhile sets .due after the xchg() that cleared it. So
 * while a wait has a deadline, .due is set or a timer runs. poll(2) ignores a timer whose wait has
 * ended otherwise. Until the check, a fired timer is not started for waits already queued: their
 * deadlines wake nobody.
 *
 * A reader completes an overdue wait under the context's lock, as a notify does, and takes it out
 * of its queue afterwards. A notify in between dequeues it without counting it.
 */
#include <linux/atomic.h>
#include <linux/hrtimer.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/timerqueue.h>

#include "compat.h"
#include "context.h"
#include "memwait.h"

/* In an interrupt; on PREEMPT_RT in a kernel thread. */
static enum hrtimer_restart memwait_timer_fired(struct memwait_context *context)
{
	WRITE_ONCE(context->due, true);
	memwait_context_wake(context);
	return HRTIMER_NORESTART;
}

static enum hrtimer_restart memwait_monotonic_fired(struct hrtimer *timer)
{
	return memwait_timer_fired(container_of(timer, struct memwait_context,
						timers[MEMWAIT_MONOTONIC]));
}

static enum hrtimer_restart memwait_realtime_fired(struct hrtimer *timer)
{
	return memwait_timer_fired(container_of(timer, struct memwait_context,
						timers[MEMWAIT_REALTIME]));
}

/* The wait with the earliest deadline if overdue, or NULL. */
static struct memwait_async_waiter *memwait_first_expired(struct memwait_context *context,
							  int clock, ktime_t now)
{
	struct timerqueue_node *first;

	lockdep_assert_held(&context->lock);
	first = timerqueue_getnext(&context->deadlines[clock]);
	if (!first || first->expires > now)
		return NULL;
	return &container_of(first, struct memwait_timed_wait, deadline)->wait;
}

/* Ends the first overdue wait. Returns whether there was one. Called with .read_lock held. */
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
		memwait_async_leave(wait);
	return wait;
}

/**
 * memwait_is_due() - has a deadline of a context passed?
 * @context: .due is set
 *
 * Corrects .due: the timer's wait may have ended otherwise, or the clock may have been set back.
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
	xchg(&context->due, false);	/* full barrier: see the top of the file */
	for (clock = 0; clock < MEMWAIT_CLOCKS; clock++) {
		next = timerqueue_getnext(&context->deadlines[clock]);
		if (!next)
			continue;
		if (next->expires <= memwait_now(clock))
			due = true;
		else
			hrtimer_start(&context->timers[clock], next->expires, HRTIMER_MODE_ABS);
	}
	if (due)
		WRITE_ONCE(context->due, true);
	spin_unlock(&context->lock);
	return due;
}

/**
 * memwait_expire() - end overdue waits of a context
 * @context: .due is set
 * @room: maximum number of completions, including existing ones
 *
 * Context: process context, may sleep; holds context->read_lock; takes buckets' locks.
 */
void memwait_expire(struct memwait_context *context, size_t room)
{
	unsigned int nr;
	ktime_t now;
	int clock;

	lockdep_assert_held(&context->read_lock);
	for (clock = 0; clock < MEMWAIT_CLOCKS; clock++) {
		now = memwait_now(clock);
		do {
			cond_resched();
			nr = READ_ONCE(context->nr_completed);
			/* A reader with nothing yet must not return EAGAIN because of a signal. */
			if (nr >= room || (nr && signal_pending(current)))
				break;
		} while (memwait_expire_one(context, clock, now));
	}
	memwait_is_due(context);
}

/**
 * memwait_expire_open() - set up the deadlines of a new context
 * @context: the context
 *
 * Context: process context.
 */
void memwait_expire_open(struct memwait_context *context)
{
	timerqueue_init_head(&context->deadlines[MEMWAIT_MONOTONIC]);
	timerqueue_init_head(&context->deadlines[MEMWAIT_REALTIME]);
	hrtimer_setup(&context->timers[MEMWAIT_MONOTONIC], memwait_monotonic_fired,
		      CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	hrtimer_setup(&context->timers[MEMWAIT_REALTIME], memwait_realtime_fired,
		      CLOCK_REALTIME, HRTIMER_MODE_ABS);
}

/**
 * memwait_expire_close() - stop the timers of a context for good
 * @context: closed: no wait is armed, no deadline checked
 *
 * Context: process context, waits for a running timer.
 */
void memwait_expire_close(struct memwait_context *context)
{
	hrtimer_cancel(&context->timers[MEMWAIT_MONOTONIC]);
	hrtimer_cancel(&context->timers[MEMWAIT_REALTIME]);
}
