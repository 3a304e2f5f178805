// SPDX-License-Identifier: GPL-2.0-only
/*
 * Deadlines of async waits. A context has a timer for each clock, which runs at its earliest
 * deadline. What the timer finds is ended by a work of the context, because an interrupt must take
 * no lock of this module. The work is bounded: after MEMWAIT_EXPIRE_RUN waits it wakes the pollers,
 * once, and queues itself again behind the works of other contexts. It has no high priority: the
 * waits are those of a user.
 *
 * A wait is ended under the lock of its queue and that of its context, in one step, as by a notify.
 * The work knows the context first, against the lock order, and so tries to lock the queue. If the
 * queue is locked already, the work drops the context's lock, takes both in order, and looks again.
 * RCU keeps the memory of the queue meanwhile, see the top of queue.c.
 */
#include <linux/hrtimer.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/timerqueue.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "context.h"
#include "memwait.h"

/* Waits that are ended in one run of the work. */
#define MEMWAIT_EXPIRE_RUN	1024

static struct workqueue_struct *memwait_expire_queue;

static enum hrtimer_restart memwait_timer_fired(struct memwait_context *context)
{
	queue_work(memwait_expire_queue, &context->expire_work);
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

/* The wait with the earliest deadline, if that has passed, or NULL. */
static struct memwait_async_wait *memwait_first_expired(struct memwait_context *context,
							int clock, ktime_t now)
{
	struct timerqueue_node *first;

	lockdep_assert_held(&context->lock);
	first = timerqueue_getnext(&context->deadlines[clock]);
	if (!first || first->expires > now)
		return NULL;
	return &container_of(first, struct memwait_timed_wait, deadline)->wait;
}

/*
 * Locks the queue of the first expired wait, unless that is a group, and the context. Returns the
 * wait, or NULL; *@queue is NULL, or locked.
 */
static struct memwait_async_wait *memwait_lock_expired(struct memwait_context *context, int clock,
						       ktime_t now, struct memwait_queue **queue)
{
	struct memwait_queue *locked = NULL;
	struct memwait_async_wait *wait;

	rcu_read_lock();
	spin_lock(&context->lock);
	__release(&context->lock);	/* sparse cannot follow, here and below */
	for (;;) {
		wait = memwait_first_expired(context, clock, now);
		*queue = wait && !memwait_async_is_group(wait) ? READ_ONCE(wait->waiter.queue) :
								 NULL;
		if (*queue == locked)
			break;
		if (locked) {
			__acquire(&locked->lock);
			spin_unlock(&locked->lock);
		}
		locked = *queue;
		if (!locked)
			break;
		if (spin_trylock(&locked->lock)) {
			__release(&locked->lock);
			continue;
		}
		__acquire(&context->lock);
		spin_unlock(&context->lock);
		spin_lock(&locked->lock);
		__release(&locked->lock);
		spin_lock(&context->lock);
		__release(&context->lock);
	}
	rcu_read_unlock();
	return wait;
}

/* Ends the first wait whose deadline has passed. Returns whether there was one. */
static bool memwait_expire_one(struct memwait_context *context, int clock, ktime_t now)
{
	struct memwait_group *group = NULL;
	struct memwait_async_wait *wait;
	struct memwait_queue *queue;

	wait = memwait_lock_expired(context, clock, now, &queue);
	if (wait) {
		memwait_async_claim(wait);
		if (queue) {
			memwait_queue_remove(&wait->waiter);
		} else {
			group = &to_group(wait)->group;
			refcount_inc(&group->refs);
		}
		memwait_async_complete(wait, MEMWAIT_TIMED_OUT);
	}
	__acquire(&context->lock);
	spin_unlock(&context->lock);
	if (queue)
		memwait_queue_unlock(queue);
	if (group) {
		memwait_group_leave(group);
		memwait_group_put(group);
	}
	return wait;
}

static void memwait_expire(struct work_struct *work)
{
	struct memwait_context *context =
		container_of(work, struct memwait_context, expire_work);
	struct timerqueue_node *next;
	unsigned int nr = 0;
	ktime_t now;
	int clock;

	for (clock = 0; clock < MEMWAIT_CLOCKS; clock++) {
		now = clock == MEMWAIT_REALTIME ? ktime_get_real() : ktime_get();
		while (nr < MEMWAIT_EXPIRE_RUN && memwait_expire_one(context, clock, now)) {
			nr++;
			cond_resched();
		}
	}
	if (nr)
		memwait_context_wake(context);
	if (nr == MEMWAIT_EXPIRE_RUN) {
		queue_work(memwait_expire_queue, work);
		return;
	}

	spin_lock(&context->lock);
	for (clock = 0; clock < MEMWAIT_CLOCKS && !context->closing; clock++) {
		next = timerqueue_getnext(&context->deadlines[clock]);
		if (next)
			hrtimer_start(&context->timers[clock], next->expires, HRTIMER_MODE_ABS);
	}
	spin_unlock(&context->lock);
}

/**
 * memwait_expire_open() - the deadlines of a new context
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
	INIT_WORK(&context->expire_work, memwait_expire);
}

/**
 * memwait_expire_close() - let no deadline pass any more
 * @context: the context
 *
 * Context: process context, sleeps until a run has ended.
 */
void memwait_expire_close(struct memwait_context *context)
{
	spin_lock(&context->lock);
	context->closing = true;
	spin_unlock(&context->lock);
	hrtimer_cancel(&context->timers[MEMWAIT_MONOTONIC]);
	hrtimer_cancel(&context->timers[MEMWAIT_REALTIME]);
	cancel_work_sync(&context->expire_work);
}

int __init memwait_expire_init(void)
{
	memwait_expire_queue = alloc_workqueue("memwait", WQ_UNBOUND, 0);
	return memwait_expire_queue ? 0 : -ENOMEM;
}

void memwait_expire_exit(void)
{
	destroy_workqueue(memwait_expire_queue);
}
