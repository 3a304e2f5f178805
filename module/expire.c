// SPDX-License-Identifier: GPL-2.0-only
/*
 * Deadlines of async waits. A context has a timer for each clock, which runs at its earliest
 * deadline. What the timer finds is ended by a work, because an interrupt must take no lock of this
 * module. There is one work for each user, so that a user with many contexts has no more kernel
 * threads at work than another one, and keeps nobody's deadline waiting. The work is bounded: after
 * MEMWAIT_EXPIRE_RUN waits of a context it wakes the pollers, once, puts the context behind the
 * others of the user, and queues itself again. It has no high priority: the waits are those of a
 * user.
 *
 * A timer adds its context to a list of its user without a lock, unless .expiring says that it is
 * there. The work takes it out, clears .expiring, and looks at the deadlines after that: so it sees
 * what the timer has found, or the timer adds the context again. The list has a reference to the
 * context: close does not wait for the work, which may find that close has ended the waits.
 *
 * A wait is ended under the lock of its queue and that of its context, in one step, as by a notify.
 * The work knows the context first, against the lock order, and so tries to lock the queue. If the
 * queue is locked already, the work drops the context's lock, takes both in order, and looks again.
 * RCU keeps the memory of the queue meanwhile, see the top of queue.c.
 */
#include <linux/atomic.h>
#include <linux/hrtimer.h>
#include <linux/llist.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/timerqueue.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "context.h"
#include "memwait.h"

/* Waits of a context that are ended in one run of the work. */
#define MEMWAIT_EXPIRE_RUN	1024

static struct workqueue_struct *memwait_expire_queue;

/* Has the work run once more. The caller has a reference to the user. */
static void memwait_expire_queue_work(struct memwait_user *user)
{
	refcount_inc(&user->refs);
	if (!queue_work(memwait_expire_queue, &user->expire_work))
		refcount_dec(&user->refs);
}

/* Has the work look at a context. The caller has a reference to the context. */
static void memwait_expire_add(struct memwait_context *context)
{
	if (xchg(&context->expiring, true))
		return;
	refcount_inc(&context->refs);
	llist_add(&context->expire_node, &context->user->expired);
	memwait_expire_queue_work(context->user);
}

static enum hrtimer_restart memwait_timer_fired(struct memwait_context *context)
{
	memwait_expire_add(context);
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

/* Ends the waits of a context whose deadlines have passed. Returns whether there may be more. */
static bool memwait_expire_some(struct memwait_context *context)
{
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
	if (nr == MEMWAIT_EXPIRE_RUN)
		return true;

	spin_lock(&context->lock);
	for (clock = 0; clock < MEMWAIT_CLOCKS && !context->closing; clock++) {
		next = timerqueue_getnext(&context->deadlines[clock]);
		if (next)
			hrtimer_start(&context->timers[clock], next->expires, HRTIMER_MODE_ABS);
	}
	spin_unlock(&context->lock);
	return false;
}

/**
 * memwait_expire() - the work of a user: looks at one of the contexts that timers have found
 * @work: in struct memwait_user
 *
 * Context: a kernel thread.
 */
void memwait_expire(struct work_struct *work)
{
	struct memwait_user *user = container_of(work, struct memwait_user, expire_work);
	struct memwait_context *context;

	if (!user->expire_next)
		user->expire_next = llist_reverse_order(llist_del_all(&user->expired));
	if (user->expire_next) {
		context = llist_entry(user->expire_next, struct memwait_context, expire_node);
		user->expire_next = user->expire_next->next;
		xchg(&context->expiring, false);	/* full barrier: see above */
		if (memwait_expire_some(context))
			memwait_expire_add(context);
		memwait_context_put(context);
	}
	if (user->expire_next || !llist_empty(&user->expired))
		memwait_expire_queue_work(user);
	memwait_user_put(user);
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
}

/**
 * memwait_expire_close() - let no timer of a context run any more
 * @context: closed; the work may still be looking at it
 *
 * Context: process context, waits for a timer that is running.
 */
void memwait_expire_close(struct memwait_context *context)
{
	spin_lock(&context->lock);
	context->closing = true;
	spin_unlock(&context->lock);
	hrtimer_cancel(&context->timers[MEMWAIT_MONOTONIC]);
	hrtimer_cancel(&context->timers[MEMWAIT_REALTIME]);
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
