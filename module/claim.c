// SPDX-License-Identifier: GPL-2.0-only
/*
 * Claims: what ends a wait, once, and what becomes of it. async.pml models async waits.
 *
 * A thread's wait is claimed by a cmpxchg of memwait_group.claimed; the rest is about async waits.
 *
 * memwait_context.lock protects the context and the state of its waits, and nests inside a bucket's
 * lock. A wait passes through
 *
 *	MEMWAIT_ARMING -> MEMWAIT_QUEUED --> MEMWAIT_COMPLETED -> freed by read
 *	     |                  |                    ^
 *	     |                  +--> MEMWAIT_CLAIMED -> freed by cancel, close
 *	     +-> freed, not queued                   |
 *	     +-> for several words: notified while it joined
 *
 * The transition from QUEUED, under the context's lock, ends the wait and happens once:
 *
 *	notify	 also holds the bucket's lock: dequeues the wait and completes it. If the deadline
 *		 has passed, completes with TIMED_OUT, and goes on to the next waiter. If the
 *		 process is dying, only dequeues the wait, which stays QUEUED for close, and goes on
 *	death	 of an owner: as notify, with OWNER_DIED
 *	deadline completes the wait, then dequeues it, in read(2), see async.c
 *	cancel	 claims the wait, then dequeues and frees it
 *	close	 as cancel, for all waits; then passes on unread completions with OK
 *
 * So when cancel finds that a wait has ended otherwise, the completion already exists.
 *
 * A notify of a wait with MEMWAIT_PERSISTENT leaves it QUEUED and moves it to the end of its queue.
 * .count counts the notifies, and the wait is put into the list of completions, unless it is there
 * (.listed). A reader tells of .count as it is then, and takes the wait out of the list; notifies
 * that come before the reader has copied that count out put the wait back in the end. A wait that
 * is cancelled or overdue while it is listed becomes COMPLETED there. Its reader frees it when
 * there is nothing left to tell: see memwait_read_settle().
 *
 * A wait is charged, then joins its queues. It becomes QUEUED in the lock section in which it joins
 * the queue of its last word, so nobody finds a wait on one word in a queue before that. A notify
 * that has claimed a wait for several words by then sets .claimed and .result, and the arming
 * thread completes the wait, even if it could not join the rest of its queues.
 *
 * The notify completes a QUEUED wait immediately. Other words of the wait stay in their queues
 * until a read or close takes them out: see the end of queue.c.
 *
 * How a completion wakes pollers and readers stands below.
 */
#include <linux/fdtable.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>

#include "call.h"
#include "compat.h"
#include "context.h"
#include "trace.h"

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
 * Waking the pollers and readers of a context.
 *
 *	poll, a reader that blocks		notify, timer, end of the context
 *	add itself to .pollers or .readers	add to .completed; set .due; drop the last of .uses
 *	(D) barrier				(E) barrier
 *	load .nr_completed, .due, .uses		is .pollers or .readers empty?
 *
 * (D) is in memwait_poll() and memwait_read_block(), (E) in memwait_wakes_add_context(),
 * memwait_context_wake() and rcuwait_wake_up(). Either the waker finds the poller or reader, or
 * that one sees what the waker has stored. So a context without pollers and readers costs a barrier
 * and no lock. A notify takes a reference to a context that has pollers under the context's lock,
 * together with its completion, and puts the reference after the wake-up.
 *
 * A completion takes the first blocked reader out of .readers, under the context's lock, and the
 * step wakes it as it wakes threads, without a lock that it would run into. With PREEMPT_RT it is
 * woken at once: one that goes first waits for the locks of the notifier, which gets its priority.
 * As many are woken as there are completions, and none of them depends on another one. The
 * first access to .woken that sees it set is the reader's last need of the lock: (F), a release and
 * acquires.
 *
 * All other wake-ups leave the reader in the list: they wake the first one (.first_reader, under
 * RCU, so a timer can), who leaves by itself if there is something to read. A reader that was woken
 * either reads, and looks again after it has dropped read_lock, or leaves because of a signal, and
 * looks as well: who finds completions or .due then wakes the first one that still blocks. read.pml
 * models this.
 *
 * A step wakes a context's pollers once for all completions that it added there, and holds no
 * queue's or context's lock meanwhile. A later step of the same call (.woken_by) does not wake them
 * again, unless a reader has looked at the completions since: it takes only those that it has seen,
 * and its caller may go to sleep then, as a read of fewer than 16 says that none are left.
 *
 * A context may have any number of pollers, and wake_up_poll() calls them all with interrupts
 * disabled, as for an eventfd. So more than one poller ends the step.
 */

/*
 * Takes a blocked reader out, which nobody else will wake then. With PREEMPT_RT the notifier may be
 * preempted before the end of its step, so the reader is woken here.
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
 * Notes that a context got a completion and needs a wake-up. @wakes is not full, see
 * memwait_wakes_are_full().
 */
static void memwait_wakes_add_context(struct memwait_wakes *wakes, struct memwait_context *context)
{
	struct memwait_reader *reader;
	unsigned int i;

	lockdep_assert_held(&context->lock);
	reader = list_first_entry_or_null(&context->readers, struct memwait_reader, node);
	if (reader)
		memwait_wakes_add_reader(wakes, context, reader);
	for (i = 0; i < wakes->nr_contexts; i++) {
		if (wakes->contexts[i] == context)
			return;
	}
	if (unlikely(wakes->call)) {
		if (context->woken_by == wakes->call)
			return;
		context->woken_by = wakes->call;
	}
	smp_mb();	/* (E) pairs with (D) */
	if (!waitqueue_active(&context->pollers))	/* after (E) */
		return;
	refcount_inc(&context->refs);
	wakes->contexts[wakes->nr_contexts++] = context;
	/* It may be out of date at once, as it would be with the lock. */
	wakes->crowded = data_race(!list_is_singular(&context->pollers.head));
	/* The call may come back to it in another step. */
	if (unlikely(wakes->crowded) && !wakes->call) {
		wakes->call = memwait_new_call();
		context->woken_by = wakes->call;
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
	wake_up_poll(&context->pollers, events);
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
	if (waitqueue_active(&context->pollers))	/* after (E) */
		memwait_context_wake_pollers(context);
	memwait_context_wake_reader(context);
}

/**
 * memwait_context_unlock_and_wake() - drop a context's lock, after a change for its pollers
 * @context: its lock is held
 * @wake: something has come that they are to be woken for, and a reader
 *
 * They are woken before the caller can be preempted, but on PREEMPT_RT.
 *
 * Context: process context.
 */
void memwait_context_unlock_and_wake(struct memwait_context *context, bool wake)
	__releases(&context->lock)
{
	memwait_step_begin();
	spin_unlock(&context->lock);
	if (wake)
		memwait_context_wake(context);
	memwait_step_done();
}

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
	context->nr_pending--;
	if (wait->group.deadline.expires != KTIME_MAX)
		timerqueue_del(&context->deadlines[wait->group.clock], &wait->group.deadline);
	return true;
}

/**
 * memwait_async_list() - put a wait into its context's list of completions, unless it is in one
 * @wait: the wait
 *
 * Context: the context's lock is held.
 *
 * Return: whether it was in none.
 */
bool memwait_async_list(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->group.context;

	lockdep_assert_held(&context->lock);
	if (wait->group.listed)
		return false;
	wait->group.listed = true;
	list_add_tail(&wait->node, &context->completed);
	WRITE_ONCE(context->nr_completed, context->nr_completed + 1);
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
		*memwait_pin_last(wait->group.context, pin->space) = pin;
	}
}

/* Makes a wait pending that is in the queues of its words, and not claimed. */
static void memwait_async_queued(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->group.context;
	struct timerqueue_node *deadline = &wait->group.deadline;
	u8 clock = wait->group.clock;

	lockdep_assert_held(&context->lock);
	wait->group.state = MEMWAIT_QUEUED;
	context->nr_pending++;
	if (deadline->expires != KTIME_MAX &&
	    timerqueue_add(&context->deadlines[clock], deadline))
		hrtimer_start(&context->timers[clock], deadline->expires, HRTIMER_MODE_ABS);
	trace_memwait_async_arm(wait);
}

/**
 * memwait_async_joined() - make a wait pending
 * @group: of the wait; its last waiter has just joined its queue, where a notify finds it QUEUED
 *
 * Context: the lock of the last word's bucket is held; takes the context's lock.
 *
 * Return: MEMWAIT_PENDING: others may free the wait as soon as the bucket's lock is dropped; or 0
 * if a notify of another word has claimed it.
 */
int memwait_async_joined(struct memwait_group *group)
{
	struct memwait_async_waiter *wait = to_async(group);
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
 * Whether the deadline of a wait has passed, though no reader has noticed yet: such a wait must not
 * take a notify from the next waiter.
 */
static bool memwait_async_is_overdue(struct memwait_async_waiter *wait)
{
	return memwait_has_passed(wait->group.deadline.expires, wait->group.clock);
}

/* Threads of a dying process that one look goes through; and so many count as one waiter. */
#define MEMWAIT_DYING_LOOK	1024
#define MEMWAIT_DYING_WEIGHT	16

/*
 * Whether the process that a context is bound to has begun to die, and nobody will read what its
 * waits get. Its end may take long, or forever: it dumps core, has much memory to give back, or a
 * file to close whose server does not answer. Until it closes its descriptors, notifies pass over
 * its waits.
 *
 * A fatal signal, exit_group(2) and the end of the last thread set SIGNAL_GROUP_EXIT, for good. No
 * thread joins the process any more. But another process may share the table of descriptors, and
 * read. So the users of the table are counted, first all, then those in the process: the former may
 * become less meanwhile, and the latter do not become more.
 *
 *	clone(2)			memwait_context_is_dying()
 *	count the user of the table	load .flags
 *	list the thread			barrier
 *	set SIGNAL_GROUP_EXIT		load the table's number of users
 *					barrier
 *					look at the threads' tables
 *
 * The lock of the threads' signals orders the left side. A thread that ends leaves the table
 * before the table's number of users goes down, which errs on the safe side, as does a process with
 * more threads than one look goes through.
 */
static bool memwait_context_is_dying(struct memwait_context *context, struct memwait_wakes *wakes)
{
	const struct files_struct *table = context->table;
	const struct signal_struct *signal;
	const struct task_struct *thread;
	unsigned int looked = 0;
	int users;

	lockdep_assert_held(&context->lock);
	if (!context->process)
		return false;
	signal = context->process->signal;
	if (likely(!(READ_ONCE(signal->flags) & SIGNAL_GROUP_EXIT)) || context->dying)
		return context->dying;

	smp_rmb();	/* see above */
	users = atomic_read(&table->count);
	smp_rmb();	/* see above */
	rcu_read_lock();
	list_for_each_entry_rcu(thread, &signal->thread_head, thread_node) {
		if (!users || looked == MEMWAIT_DYING_LOOK)
			break;
		looked++;
		users -= READ_ONCE(thread->files) == table;
	}
	rcu_read_unlock();
	wakes->looked += looked / MEMWAIT_DYING_WEIGHT;
	context->dying = !users;
	return context->dying;
}

static enum memwait_claim memwait_claim_thread(struct memwait_waiter *waiter, u8 result,
					       struct memwait_wakes *wakes)
{
	struct memwait_group *group = to_group(waiter);

	/* Waits for several words exclude MEMWAIT_OWNED, so their result is always OK. */
	if (group->nr == 1)
		group->result = result;
	if (cmpxchg(&group->claimed, 0, waiter->index + 1))
		return MEMWAIT_CLAIM_LOST;
	wakes->tasks[wakes->nr_tasks++] = get_task_struct(group->task);
	memwait_queue_remove_claimed(waiter);
	return MEMWAIT_CLAIM_WON;
}

/* A notify of a wait with MEMWAIT_PERSISTENT. */
static void memwait_async_count(struct memwait_async_waiter *wait, struct memwait_wakes *wakes)
{
	struct memwait_context *context = wait->group.context;

	lockdep_assert_held(&context->lock);
	memwait_queue_rejoin(wait->group.waiters);
	wait->count += wait->count < U32_MAX;
	if (unlikely(wakes->heir) && !wakes->heir->context) {
		refcount_inc(&context->refs);
		wakes->heir->context = context;
		wakes->heir->id = wait->id;
	}
	if (memwait_async_list(wait)) {
		memwait_wakes_add_context(wakes, context);
		trace_memwait_async_complete(wait);
	}
}

/* Ends a wait that is not persistent, or overdue. */
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
	struct memwait_async_waiter *wait = to_async(to_group(waiter));
	struct memwait_context *context = wait->group.context;
	enum memwait_claim claim = MEMWAIT_CLAIM_WON;
	bool overdue;

	spin_lock(&context->lock);
	/* A word of a group that has ended: not worth a look at the clock and the process. */
	if (wait->group.claimed) {
		spin_unlock(&context->lock);
		return MEMWAIT_CLAIM_LOST;
	}
	/* Once: the clock may be set back. */
	overdue = memwait_async_is_overdue(wait);
	if (unlikely(memwait_context_is_dying(context, wakes))) {
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
 * memwait_claim_waiter() - handle a notify of a word, or a death that it is told of
 * @waiter: in the queue of the word
 * @result: MEMWAIT_OK or MEMWAIT_OWNER_DIED
 * @wakes: gets whom to wake
 *
 * Ends a pending wait, unless that is MEMWAIT_PERSISTENT, and dequeues the waiter.
 *
 * Context: the lock of the waiter's bucket is held.
 *
 * Return: see enum memwait_claim.
 */
enum memwait_claim memwait_claim_waiter(struct memwait_waiter *waiter, u8 result,
					struct memwait_wakes *wakes)
{
	if (to_group(waiter)->async)
		return memwait_claim_async(waiter, result, wakes);
	return memwait_claim_thread(waiter, result, wakes);
}
