// SPDX-License-Identifier: GPL-2.0-only
/*
 * Async waits: cancel, close and deadlines. claim.c has their states.
 */
#include <linux/minmax.h>

#include "compat.h"
#include "context.h"
#include "trace.h"

/**
 * memwait_async_end() - release all resources of an ended wait but its id and memory
 * @wait: completed, or claimed by the caller. Only the tree of ids still refers to it, and maybe
 *	its queues
 * @unused: receives the pins without other users, for memwait_pins_put()
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
 * Takes a claimed wait out of its queues, and frees it, unless notifies were counted that are yet
 * to be read: then the reader does.
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
 * memwait_cancel() - MEMWAIT_IOC_CANCEL
 * @context: the caller's, after memwait_context_use()
 * @cancel: from user space, unchecked
 * @unused: gets the pins without other users, for memwait_pins_put() after the use
 *
 * Context: process context.
 *
 * Return: 0: there will be no completion beside one of a wait with MEMWAIT_PERSISTENT that is there
 * already; -ENOENT: the wait never existed, or has ended and its
 * completion can be read or was read; or -EINVAL.
 */
int memwait_cancel(struct memwait_context *context, const struct memwait_cancel *cancel,
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

/*
 * Counts notifies of a wait that a call has counted once. Returns false if it has ended since, or
 * was moved to another word.
 */
static bool memwait_async_inherit(const struct memwait_heir *heir, const struct memwait_key *key,
				  u64 count)
{
	struct memwait_context *context = heir->context;
	struct memwait_async_waiter *wait;
	bool pending, new = false;

	spin_lock(&context->lock);
	wait = memwait_async_find(context, heir->id);
	pending = wait && wait->group.state == MEMWAIT_QUEUED &&
		  !memwait_key_cmp(&wait->group.waiters->word.key, key);
	if (pending) {
		wait->count += min_t(u64, count, U32_MAX - wait->count);
		new = memwait_async_list(wait);
		if (new)
			trace_memwait_async_complete(wait);
	}
	memwait_context_unlock_and_wake(context, new);
	return pending;
}

/* How often notifies look for a wait that takes them all, as the one that they found has ended. */
#define MEMWAIT_HEIRS	4

/*
 * Passes notifies of a word on to those who wait for it now, one each. A wait with
 * MEMWAIT_PERSISTENT takes all that are left: who joins meanwhile gets none, so that a process that
 * dies has no more to do than it left. What finds nobody is spent. @number: see memwait_pass_on().
 */
static void memwait_async_pass_on(const struct memwait_key *key, u64 count, u64 number)
{
	struct memwait_heir heir;
	unsigned int i;

	for (i = 0; count && i < MEMWAIT_HEIRS; i++) {
		count -= memwait_pass_on(key, min_t(u64, count, U32_MAX), &heir, number);
		if (!heir.context)
			return;
		if (count && memwait_async_inherit(&heir, key, count))
			count = 0;
		memwait_context_put(heir.context);
	}
}

/**
 * memwait_async_end_all() - end all waits of an ending context, and free its spares
 * @context: no longer arms, cancels or reads, and no other thread ends its waits; notifies may
 *	still reach them
 * @unused: receives the pins without other users, for memwait_pins_put()
 *
 * Passes each notify that was counted and not read on to the next waiter of its word, see
 * memwait_async_pass_on().
 *
 * Context: process context, may sleep.
 */
void memwait_async_end_all(struct memwait_context *context, struct llist_head *unused)
{
	const u64 number = memwait_new_call();
	struct memwait_async_waiter *wait, *next;
	const struct memwait_key *key;
	LIST_HEAD(completed);
	u64 id = 0, count = 0;
	bool claimed;

	/*
	 * Leave every queue first, so that a notify passed on below cannot come back here: it
	 * passes over the words of groups that have ended.
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
	list_replace_init(&context->completed, &completed);
	WRITE_ONCE(context->nr_completed, 0);
	spin_unlock(&context->lock);
	list_for_each_entry_safe(wait, next, &completed, node) {
		cond_resched();
		if (wait->count)
			continue;
		list_del(&wait->node);
		memwait_async_end_and_free(wait, unused);
	}
	list_for_each_entry_safe(wait, next, &completed, node) {
		count += wait->count;
		key = memwait_async_key(wait);
		/* One call for those of a word that follow each other. */
		if (list_entry_is_head(next, &completed, node) ||
		    memwait_key_cmp(key, memwait_async_key(next))) {
			memwait_async_pass_on(key, count, number);
			count = 0;
		}
		memwait_async_end_and_free(wait, unused);
		cond_resched();
	}
	memwait_async_free_all(context);
}

/*
 * Deadlines of async waits. A context has one timer per clock, which fires at the earliest
 * deadline. The timer takes only the lock of .pollers, so it ends no wait. It sets .due and wakes
 * pollers and a reader. read(2) ends overdue waits, as many as its buffer holds, at the reader's
 * priority and expense.
 *
 *	timer				poll, a reader that blocks
 *	store .due			add itself to .pollers or .readers
 *	barrier (E)			barrier (D)
 *	wake them if any		load .due
 *
 * claim.c has the barriers. A poll or read that finds .due set checks the earliest deadlines,
 * under the context's lock. If none has passed, it clears .due and starts the timers for them; one
 * that has passed since fires at once. So while a wait has a deadline, .due is set or a timer runs,
 * and .due stays set while one has passed: another poller or reader may come to sleep any moment.
 * poll(2) ignores a timer whose wait has ended otherwise. A fired timer is not started for waits
 * already queued until the next check. No deadline is missed meanwhile: the pollers that it woke,
 * and those that come to sleep, check first; a read that leaves .due set tells so, see
 * memwait_expire().
 *
 * A reader completes an overdue wait under the context's lock, as a notify does, and takes it out
 * of its queue afterwards. A notify in between dequeues it without counting it.
 */

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
	return container_of(first, struct memwait_async_waiter, group.deadline);
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
		memwait_group_leave(&wait->group, wait->group.nr);
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
	for (clock = 0; clock < MEMWAIT_CLOCKS && !due; clock++)
		due = memwait_first_expired(context, clock, memwait_now(clock));
	if (!due) {
		WRITE_ONCE(context->due, false);	/* before a timer fires anew */
		for (clock = 0; clock < MEMWAIT_CLOCKS; clock++) {
			next = timerqueue_getnext(&context->deadlines[clock]);
			if (next)
				hrtimer_start(&context->timers[clock], next->expires,
					      HRTIMER_MODE_ABS);
		}
	}
	spin_unlock(&context->lock);
	return due;
}

/**
 * memwait_expire() - end overdue waits of a context
 * @context: .due is set
 * @room: how many the caller can read, and ends at most, however many completions there are: so
 *	that other waits always complete delays no deadline
 *
 * A read of fewer than MEMWAIT_CHUNK, and than it has room for, says that nothing is left, and an
 * edge-triggered poller sleeps then: .due stays set only beside as many completions.
 *
 * Context: process context, may sleep; holds context->read_lock; takes buckets' locks.
 */
void memwait_expire(struct memwait_context *context, size_t room)
{
	size_t ended = 0;
	ktime_t now;
	int clock;

	lockdep_assert_held(&context->read_lock);
	do {
		for (clock = 0; clock < MEMWAIT_CLOCKS; clock++) {
			now = memwait_now(clock);
			while (ended < room && memwait_expire_one(context, clock, now)) {
				ended++;
				cond_resched();
				/* As many as the caller reads on for. */
				if (READ_ONCE(context->nr_completed) >= MEMWAIT_CHUNK &&
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
