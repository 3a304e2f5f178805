// SPDX-License-Identifier: GPL-2.0-only
/*
 * Claims: how a wait ends, exactly once, and the states of async waits. async.pml models async
 * waits.
 *
 * A thread's wait is claimed by a cmpxchg of memwait_group.claimed. The rest of this comment is
 * about async waits.
 *
 * memwait_context.lock protects the context and the state of its waits, and nests inside a bucket's
 * lock. An async wait passes through these states:
 *
 *	MEMWAIT_ARMING -> MEMWAIT_QUEUED --> MEMWAIT_COMPLETED -> freed by read
 *	     |                  |                    ^
 *	     |                  +--> MEMWAIT_CLAIMED -> freed by cancel, close
 *	     +-> freed, not queued                   |
 *	     +-> for several words: notified while it joined
 *
 * The transition from QUEUED, under the context's lock, ends the wait and happens once:
 *
 *	notify	 also holds the bucket's lock. Dequeues the wait and completes it. If the
 *		 deadline has passed, completes it with TIMED_OUT, and continues with the next
 *		 waiter. If the context's process is dying, only dequeues the wait, which stays
 *		 QUEUED for close, and continues with the next waiter
 *	death	 of an owner: like notify, with OWNER_DIED
 *	deadline in read(2): completes the wait, then dequeues it, see async.c
 *	cancel	 claims the wait, then dequeues and frees it
 *	close	 like cancel, for all waits; then passes on the notifies of unread completions
 *		 with OK
 *
 * Therefore, when cancel finds that a wait has already ended, the completion exists.
 *
 * A notify leaves a wait with MEMWAIT_PERSISTENT QUEUED, and moves it to the end of its queue.
 * .count counts the notifies, and the wait is put into the list of completions, unless it is
 * already there (.listed). A reader reports the current .count, and takes the wait out of the list.
 * If further notifies come before that read is done, the reader puts the wait back into the list. A
 * wait that is cancelled or times out while it is listed becomes COMPLETED and stays in the list.
 * The reader frees the wait when there is nothing left to report: see memwait_read_settle().
 *
 * A wait is charged, and then joins its queues. The wait becomes QUEUED in the lock section in
 * which it joins the queue of its last word, so no notify can find a wait on one word in a queue
 * before it is QUEUED. A notify that claims a wait for several words before it is QUEUED sets
 * .claimed and .result. The arming thread then completes the wait, even if the wait could not join
 * all of its queues.
 *
 * A notify completes a QUEUED wait immediately. The waiters for other words of the wait stay in
 * their queues until a read or close takes them out: see the end of queue.c.
 *
 * For how a completion wakes pollers and readers, see wake.c.
 */
#include <linux/rcupdate.h>
#include <linux/sched/task.h>

#include "context.h"
#include "trace.h"

/**
 * memwait_async_claim() - end a wait, if it is pending
 * @wait: the wait
 *
 * Context: the context's lock is held.
 *
 * Return: whether the caller has ended the wait, and must now complete or free it.
 */
bool memwait_async_claim(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->group.context;

	lockdep_assert_held(&context->lock);
	if (wait->group.state != MEMWAIT_QUEUED)
		return false;
	wait->group.state = MEMWAIT_CLAIMED;
	WRITE_ONCE(wait->group.claimed, MEMWAIT_CLAIMED_BY_ITSELF);
	context->waits.nr_pending--;
	if (wait->group.deadline.expires != KTIME_MAX)
		timerqueue_del(&context->waits.deadlines[wait->group.clock], &wait->group.deadline);
	return true;
}

/**
 * memwait_async_list() - put a wait into its context's list of completions, unless it is listed
 * @wait: the wait
 *
 * Context: the context's lock is held.
 *
 * Return: whether the wait was not listed.
 */
bool memwait_async_list(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->group.context;

	lockdep_assert_held(&context->lock);
	if (wait->group.listed)
		return false;
	wait->group.listed = true;
	list_add_tail(&wait->node, &context->completions.list);
	WRITE_ONCE(context->completions.nr, context->completions.nr + 1);
	return true;
}

/**
 * memwait_async_complete() - turn a wait into a completion
 * @wait: claimed
 * @result: MEMWAIT_OK, MEMWAIT_TIMED_OUT or MEMWAIT_OWNER_DIED
 *
 * Context: the context's lock is held.
 */
void memwait_async_complete(struct memwait_async_waiter *wait, u8 result)
{
	lockdep_assert_held(&wait->group.context->lock);
	wait->group.state = MEMWAIT_COMPLETED;
	wait->group.result = result;
	if (!wait->group.persistent)
		wait->count = result == MEMWAIT_OK;
	memwait_async_list(wait);
	trace_memwait_async_complete(wait);
}

/**
 * memwait_async_remember() - let the next wait of the context share the pins of a wait
 * @wait: has joined its queues
 *
 * Context: the context's lock is held.
 */
void memwait_async_remember(struct memwait_async_waiter *wait)
{
	struct memwait_pin *pin;
	u32 i;

	lockdep_assert_held(&wait->group.context->lock);
	for (i = 0; i < wait->group.nr; i++) {
		pin = wait->group.waiters[i].word.pin;
		wait->group.context->pins.last[pin->space & MEMWAIT_KEY_SHARED] = pin;
	}
}

/* Makes a wait pending. The wait is in the queues of all its words, and not claimed. */
static void memwait_async_queued(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->group.context;
	struct timerqueue_node *deadline = &wait->group.deadline;
	u8 clock = wait->group.clock;

	lockdep_assert_held(&context->lock);
	wait->group.state = MEMWAIT_QUEUED;
	context->waits.nr_pending++;
	if (deadline->expires != KTIME_MAX &&
	    timerqueue_add(&context->waits.deadlines[clock], deadline))
		hrtimer_start(&context->waits.timers[clock], deadline->expires, HRTIMER_MODE_ABS);
	trace_memwait_async_arm(wait);
}

/**
 * memwait_async_joined() - make a wait pending
 * @group: group of the wait, whose last waiter has just joined its queue. A notify that finds this
 *	waiter in the queue finds the wait QUEUED
 *
 * Context: the lock of the last word's bucket is held; takes the context's lock.
 *
 * Return: MEMWAIT_PENDING: other threads may free the wait as soon as the bucket's lock is dropped;
 * 0: a notify of another word has claimed the wait.
 */
int memwait_async_joined(struct memwait_group *group)
{
	struct memwait_async_waiter *wait = memwait_async_of(group);
	struct memwait_context *context = group->context;
	int ret = 0;

	spin_lock(&context->lock);
	if (likely(!group->claimed)) {
		memwait_async_remember(wait);
		memwait_async_queued(wait);
		ret = MEMWAIT_PENDING;
	}
	spin_unlock(&context->lock);
	return ret;
}

/*
 * Whether the deadline of a wait has passed, but no reader has ended the wait yet. Such a wait must
 * not take a notify from the next waiter.
 */
static bool memwait_async_is_overdue(struct memwait_async_waiter *wait)
{
	return memwait_has_passed(wait->group.deadline.expires, wait->group.clock);
}

/*
 * Whether the process to which a context is bound has begun to die, so that no thread will read the
 * completions of the context. The process may take a long time to die, or never finish dying, if it
 * dumps core, frees much memory, or closes a file whose server does not answer. Notifies pass over
 * the waits from the beginning of the death until the process has closed the context.
 *
 * A fatal signal, exit_group(2) and the end of the last thread set SIGNAL_GROUP_EXIT permanently. A
 * process that shared its table of descriptors with another process may have ended before the
 * context ends.
 */
static bool memwait_context_is_dying(const struct memwait_context *context)
{
	const struct task_struct *process;
	bool dying;

	lockdep_assert_held(&context->lock);
	if (!context->binding.process)
		return false;
	rcu_read_lock();
	process = pid_task(context->binding.process, PIDTYPE_TGID);
	dying = !process || (READ_ONCE(process->signal->flags) & SIGNAL_GROUP_EXIT);
	rcu_read_unlock();
	return dying;
}

static enum memwait_claim memwait_claim_thread(struct memwait_waiter *waiter, u8 result,
					       struct memwait_wakes *wakes)
{
	struct memwait_group *group = memwait_group_of(waiter);

	/* A wait for several words cannot have MEMWAIT_OWNED, so its result is always OK. */
	if (group->nr == 1)
		group->result = result;
	if (cmpxchg(&group->claimed, 0, waiter->index + 1))
		return MEMWAIT_CLAIM_LOST;
	wakes->tasks[wakes->nr_tasks++] = get_task_struct(group->task);
	memwait_queue_remove_claimed(waiter);
	return MEMWAIT_CLAIM_WON;
}

/* Counts a notify for a wait with MEMWAIT_PERSISTENT. */
static void memwait_async_count(struct memwait_async_waiter *wait, struct memwait_wakes *wakes)
{
	struct memwait_context *context = wait->group.context;

	lockdep_assert_held(&context->lock);
	memwait_queue_rejoin(wait->group.waiters);
	wait->count += wait->count < U32_MAX;
	if (memwait_async_list(wait)) {
		memwait_wakes_add_context(wakes, context);
		trace_memwait_async_complete(wait);
	}
}

/* Ends a wait that is not persistent, or that is overdue. */
static enum memwait_claim memwait_async_notified(struct memwait_async_waiter *wait,
						 struct memwait_waiter *waiter, u8 result,
						 bool overdue, struct memwait_wakes *wakes)
{
	struct memwait_group *group = &wait->group;
	bool queued = memwait_async_claim(wait);

	overdue &= queued;

	WRITE_ONCE(group->claimed, waiter->index + 1);
	if (overdue)
		memwait_queue_remove(waiter);
	else
		memwait_queue_remove_claimed(waiter);
	group->result = result;
	if (queued) {
		memwait_async_complete(wait, overdue ? MEMWAIT_TIMED_OUT : result);
		memwait_wakes_add_context(wakes, wait->group.context);
	}
	return overdue ? MEMWAIT_CLAIM_PASSED_OVER : MEMWAIT_CLAIM_WON;
}

static enum memwait_claim memwait_claim_async(struct memwait_waiter *waiter, u8 result,
					      struct memwait_wakes *wakes)
{
	struct memwait_async_waiter *wait = memwait_async_of(memwait_group_of(waiter));
	struct memwait_context *context = wait->group.context;
	enum memwait_claim claim = MEMWAIT_CLAIM_WON;
	bool overdue;

	spin_lock(&context->lock);
	/* The group has ended: there is no need to check the clock and the process. */
	if (wait->group.claimed) {
		spin_unlock(&context->lock);
		return MEMWAIT_CLAIM_LOST;
	}
	/* Check only once, because the clock may be set back. */
	overdue = memwait_async_is_overdue(wait);
	if (unlikely(memwait_context_is_dying(context))) {
		claim = MEMWAIT_CLAIM_PASSED_OVER;
		memwait_queue_remove(waiter);
	} else if (wait->group.persistent && !overdue) {
		memwait_async_count(wait, wakes);
	} else {
		claim = memwait_async_notified(wait, waiter, result, overdue, wakes);
	}
	spin_unlock(&context->lock);
	return claim;
}

/**
 * memwait_claim_waiter() - handle a notify of a word, or a death that is reported to it
 * @waiter: a waiter in the queue of the word
 * @result: MEMWAIT_OK or MEMWAIT_OWNER_DIED
 * @wakes: receives the threads and contexts to wake
 *
 * Ends a pending wait, unless it is MEMWAIT_PERSISTENT, and dequeues the waiter.
 *
 * Context: the lock of the waiter's bucket is held.
 *
 * Return: see enum memwait_claim.
 */
enum memwait_claim memwait_claim_waiter(struct memwait_waiter *waiter, u8 result,
					struct memwait_wakes *wakes)
{
	if (memwait_group_of(waiter)->async)
		return memwait_claim_async(waiter, result, wakes);
	return memwait_claim_thread(waiter, result, wakes);
}
