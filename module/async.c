// SPDX-License-Identifier: GPL-2.0-only
/*
 * Async waits: their states, and what ends them. async.pml models this.
 *
 * memwait_context.lock protects the context and the state of its waits, and nests inside a bucket's
 * lock. A wait passes through
 *
 *	MEMWAIT_ARMING -> MEMWAIT_QUEUED --> MEMWAIT_COMPLETED -> freed by read
 *	     |                  |                    ^
 *	     |                  +--> MEMWAIT_CLAIMED -> freed by cancel, close
 *	     +-> freed, not queued                   |
 *	     +-> a group that was notified while it joined
 *
 * The transition from QUEUED, under the context's lock, ends the wait and happens once:
 *
 *	notify	 also holds the bucket's lock: dequeues the wait and completes it. If the deadline
 *		 has passed, completes with TIMED_OUT, and goes on to the next waiter. If the
 *		 process is dying, only dequeues the wait, which stays QUEUED for close, and goes on
 *	death	 of an owner: as notify, with OWNER_DIED
 *	deadline completes the wait, then dequeues it, in read(2), see below
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
 * A group (see queue.c) is one wait with several members. A notify during the join claims the group
 * by memwait_group.claimed, and the arming thread completes the group after the join. The notify or
 * deadline completes a QUEUED group immediately, and dequeues its members after dropping the locks.
 * A read or close dequeues them too. memwait_group.refs keeps the memory until both are done.
 *
 * "Waking the pollers" in notify.c describes how a completion wakes pollers and readers.
 */
#include <linux/fdtable.h>
#include <linux/list_sort.h>
#include <linux/minmax.h>
#include <linux/rculist.h>
#include <linux/string.h>

#include "call.h"
#include "compat.h"
#include "context.h"
#include "trace.h"

/* Puts the pins of a group whose members are in no queue. Returns how many were the last. */
static u32 memwait_async_group_unpin(struct memwait_group *group, struct memwait_context *context,
				     struct llist_head *unused)
{
	u32 i, nr = 0;

	for (i = 0; i < group->nr; i++)
		nr += memwait_pin_put(group->members[i].waiter.word.pin, context, unused);
	return nr;
}

/**
 * memwait_async_leave() - take a wait out of its queues
 * @wait: claimed or completed
 *
 * Context: process context; takes buckets' locks, one at a time.
 */
void memwait_async_leave(struct memwait_async_waiter *wait)
{
	if (memwait_async_is_group(wait))
		memwait_group_leave(&to_group(wait)->group);
	else
		memwait_queue_leave(&wait->waiter);
}

/**
 * memwait_async_end() - release all resources of an ended wait but its id and memory
 * @wait: completed, or claimed by the caller. Only the tree of ids still refers to it, and maybe
 *	its queues and a notify that is about to dequeue the members of a group
 * @unused: receives the pins without other users, for memwait_pins_put(). For each of them a word
 *	stays charged
 *
 * Context: process context; takes buckets' locks, one at a time.
 */
void memwait_async_end(struct memwait_async_waiter *wait, struct llist_head *unused)
{
	u32 nr;

	memwait_async_leave(wait);
	if (memwait_async_is_group(wait))
		nr = memwait_async_group_unpin(&to_group(wait)->group, wait->context, unused);
	else
		nr = memwait_pin_put(wait->waiter.word.pin, wait->context, unused);
	memwait_user_uncharge(wait->context->user, MEMWAIT_WAITS, memwait_async_words(wait) - nr);
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
	struct memwait_context *context = wait->context;

	lockdep_assert_held(&context->lock);
	if (wait->waiter.state != MEMWAIT_QUEUED)
		return false;
	WRITE_ONCE(wait->waiter.state, MEMWAIT_CLAIMED);
	context->nr_pending--;
	if (memwait_async_is_timed(wait))
		timerqueue_del(&context->deadlines[wait->waiter.clock], memwait_deadline(wait));
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
	struct memwait_context *context = wait->context;

	lockdep_assert_held(&context->lock);
	if (wait->waiter.listed)
		return false;
	wait->waiter.listed = true;
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
	lockdep_assert_held(&wait->context->lock);
	WRITE_ONCE(wait->waiter.state, MEMWAIT_COMPLETED);
	wait->waiter.result = result;
	if (!wait->waiter.persistent)
		wait->count = result == MEMWAIT_OK;
	memwait_async_list(wait);
	trace_memwait_async_complete(wait);
}

/**
 * memwait_async_queued() - make a wait pending
 * @wait: others may end and free it as soon as the caller drops the locks
 *
 * Context: the context's lock is held; so is the bucket's lock, unless @wait is a group.
 */
void memwait_async_queued(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->context;
	u8 clock = wait->waiter.clock;

	lockdep_assert_held(&context->lock);
	WRITE_ONCE(wait->waiter.state, MEMWAIT_QUEUED);
	wait->waiter.result = MEMWAIT_OK;
	context->nr_pending++;
	if (memwait_async_is_timed(wait)) {
		struct timerqueue_node *deadline = memwait_deadline(wait);

		if (timerqueue_add(&context->deadlines[clock], deadline))
			hrtimer_start(&context->timers[clock], deadline->expires,
				      HRTIMER_MODE_ABS);
	}
	trace_memwait_async_arm(wait);
}

/*
 * Whether the deadline of a wait has passed, though no reader has noticed yet: such a wait must not
 * take a notify from the next waiter.
 */
static bool memwait_async_is_overdue(struct memwait_async_waiter *wait)
{
	return memwait_async_is_timed(wait) &&
	       memwait_deadline(wait)->expires <= memwait_now(wait->waiter.clock);
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
	const struct files_struct *table = context->owner;
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

/* A notify of a wait with MEMWAIT_PERSISTENT. */
static enum memwait_claim memwait_async_count(struct memwait_async_waiter *wait,
					      struct memwait_wakes *wakes)
{
	struct memwait_context *context = wait->context;

	lockdep_assert_held(&context->lock);
	if (wait->waiter.state != MEMWAIT_QUEUED)
		return MEMWAIT_CLAIM_LOST;
	memwait_queue_rejoin(&wait->waiter);
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
	return MEMWAIT_CLAIM_WON;
}

static enum memwait_claim memwait_async_end_claimed(struct memwait_waiter *waiter, u8 result,
						    struct memwait_wakes *wakes)
{
	struct memwait_async_waiter *wait = to_async(waiter);
	struct memwait_context *context = wait->context;
	enum memwait_claim claim = MEMWAIT_CLAIM_LOST;
	bool overdue;

	spin_lock(&context->lock);
	overdue = memwait_async_is_overdue(wait);
	if (unlikely(memwait_context_is_dying(context, wakes))) {
		claim = MEMWAIT_CLAIM_PASSED_OVER;
		memwait_queue_remove(waiter);
	} else if (wait->waiter.persistent && !overdue) {
		claim = memwait_async_count(wait, wakes);
	} else if (memwait_async_claim(wait)) {
		if (overdue) {
			claim = MEMWAIT_CLAIM_PASSED_OVER;
			memwait_queue_remove(waiter);
			memwait_async_complete(wait, MEMWAIT_TIMED_OUT);
		} else {
			claim = MEMWAIT_CLAIM_WON;
			memwait_queue_remove_claimed(waiter);
			memwait_async_complete(wait, result);
		}
		memwait_wakes_add_context(wakes, context);
	}
	spin_unlock(&context->lock);
	return claim;
}

static bool memwait_async_is_pending(const struct memwait_waiter *waiter)
{
	return READ_ONCE(waiter->state) == MEMWAIT_QUEUED;
}

static void memwait_async_describe_wait(struct memwait_async_waiter *wait,
					struct memwait_description *description)
{
	description->kind = memwait_async_is_group(wait) ? "group" :
			    wait->waiter.persistent ? "persistent" : "async";
	description->pid = wait->context->pid;
	description->context = wait->context->number;
	description->id = wait->id;
	description->expires = memwait_async_is_timed(wait) ? memwait_deadline(wait)->expires :
							      KTIME_MAX;
	description->clock = wait->waiter.clock;
	strscpy(description->command, wait->context->command, sizeof(description->command));
}

static void memwait_async_describe(const struct memwait_waiter *waiter,
				   struct memwait_description *description)
{
	memwait_async_describe_wait(to_async(waiter), description);
}

const struct memwait_waiter_ops memwait_async_ops = {
	.claim = memwait_async_end_claimed,
	.is_pending = memwait_async_is_pending,
	.describe = memwait_async_describe,
};

static struct memwait_async_group *to_async_group(const struct memwait_waiter *waiter)
{
	return container_of(to_member(waiter)->group, struct memwait_async_group, group);
}

/* Ignores @result: groups exclude MEMWAIT_OWNED, so it is always OK. */
static enum memwait_claim memwait_async_group_notified(struct memwait_waiter *waiter, u8 result,
						       struct memwait_wakes *wakes)
{
	struct memwait_async_group *group = to_async_group(waiter);
	struct memwait_async_waiter *wait = &group->timed.wait;
	struct memwait_context *context = wait->context;
	enum memwait_claim claim = MEMWAIT_CLAIM_LOST;
	bool completed, claimed;

	spin_lock(&context->lock);
	if (unlikely(memwait_context_is_dying(context, wakes))) {
		memwait_queue_remove(waiter);
		spin_unlock(&context->lock);
		return MEMWAIT_CLAIM_PASSED_OVER;
	}
	completed = memwait_async_claim(wait);
	claimed = completed ||
		  (wait->waiter.state == MEMWAIT_ARMING && !group->group.claimed);
	if (claimed) {
		WRITE_ONCE(group->group.claimed, to_member(waiter));
		memwait_queue_remove(waiter);
		claim = MEMWAIT_CLAIM_WON;
	}
	if (completed) {
		if (memwait_async_is_overdue(wait))
			claim = MEMWAIT_CLAIM_PASSED_OVER;
		memwait_wakes_defer_group(wakes, &group->group);
		memwait_async_complete(wait, claim == MEMWAIT_CLAIM_WON ? MEMWAIT_OK :
									  MEMWAIT_TIMED_OUT);
		memwait_wakes_add_context(wakes, context);
	}
	spin_unlock(&context->lock);
	return claim;
}

static bool memwait_async_group_is_pending(const struct memwait_waiter *waiter)
{
	const struct memwait_async_group *group = to_async_group(waiter);

	return READ_ONCE(group->timed.wait.waiter.state) <= MEMWAIT_QUEUED &&
	       !READ_ONCE(group->group.claimed);
}

static void memwait_async_group_describe(const struct memwait_waiter *waiter,
					 struct memwait_description *description)
{
	memwait_async_describe_wait(&to_async_group(waiter)->timed.wait, description);
}

const struct memwait_waiter_ops memwait_async_group_ops = {
	.claim = memwait_async_group_notified,
	.is_pending = memwait_async_group_is_pending,
	.describe = memwait_async_group_describe,
};

/*
 * Takes a claimed wait out of its queues. Returns whether the caller is to end and free it; if not,
 * notifies were counted that are yet to be read, and the reader frees it.
 */
static bool memwait_async_withdraw(struct memwait_async_waiter *wait)
{
	struct memwait_context *context = wait->context;
	bool listed;

	if (likely(!wait->waiter.persistent))
		return true;
	memwait_async_leave(wait);
	spin_lock(&context->lock);
	listed = wait->waiter.listed;
	if (listed)
		memwait_async_complete(wait, MEMWAIT_OK);
	spin_unlock(&context->lock);
	return !listed;
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

	trace_memwait_cancel(wait);
	if (memwait_async_withdraw(wait)) {
		memwait_async_end(wait, unused);
		memwait_async_free(context, &wait, 1);
	}
	return 0;
}

static int memwait_async_by_key(void *unused, const struct list_head *a, const struct list_head *b)
{
	cond_resched();
	return memwait_key_cmp(memwait_async_key(list_entry(a, struct memwait_async_waiter, node)),
			       memwait_async_key(list_entry(b, struct memwait_async_waiter, node)));
}

static int memwait_async_by_turn(void *unused, const struct list_head *a,
				 const struct list_head *b)
{
	u64 first = list_entry(a, struct memwait_async_waiter, node)->user_data;
	u64 second = list_entry(b, struct memwait_async_waiter, node)->user_data;

	cond_resched();
	return first < second ? -1 : first > second;
}

/*
 * Brings waits of one word together, and words into the order of their oldest completions. Takes
 * .user_data for that, which nobody will read.
 */
static void memwait_async_sort(struct list_head *completed)
{
	struct memwait_async_waiter *wait, *last = NULL;
	u64 turn = 0;

	list_for_each_entry(wait, completed, node) {
		wait->user_data = turn++;
		cond_resched();
	}
	list_sort(NULL, completed, memwait_async_by_key);	/* stable */
	list_for_each_entry(wait, completed, node) {
		if (last && !memwait_key_cmp(memwait_async_key(last), memwait_async_key(wait)))
			wait->user_data = last->user_data;
		last = wait;
		cond_resched();
	}
	list_sort(NULL, completed, memwait_async_by_turn);
}

/* Counts notifies of a wait that a call has counted once. Returns false if it has ended since. */
static bool memwait_async_inherit(const struct memwait_heir *heir, u64 count)
{
	struct memwait_context *context = heir->context;
	struct memwait_async_waiter *wait;
	bool pending, new = false;

	spin_lock(&context->lock);
	wait = memwait_async_find(context, heir->id);
	pending = wait && wait->waiter.state == MEMWAIT_QUEUED;
	if (pending) {
		wait->count += min_t(u64, count, U32_MAX - wait->count);
		new = memwait_async_list(wait);
		if (new)
			trace_memwait_async_complete(wait);
	}
	memwait_step_begin();
	spin_unlock(&context->lock);
	if (new)
		memwait_context_wake(context);
	memwait_step_done();
	return pending;
}

/* How often notifies look for a wait that takes them all, as the one that they found has ended. */
#define MEMWAIT_HEIRS	4

/*
 * Passes notifies of a word on to those who wait for it now, one each. A wait with
 * MEMWAIT_PERSISTENT takes all that are left: who joins meanwhile gets none, so that nobody can
 * hold up a process that dies. What finds nobody is spent.
 */
static void memwait_async_pass_on(const struct memwait_key *key, u64 count)
{
	struct memwait_heir heir;
	unsigned int i;

	for (i = 0; count && i < MEMWAIT_HEIRS; i++) {
		count -= memwait_pass_on(key, min_t(u64, count, U32_MAX), &heir);
		if (!heir.context)
			return;
		if (count && memwait_async_inherit(&heir, count))
			count = 0;
		memwait_context_put(heir.context);
	}
}

/**
 * memwait_async_end_all() - end all waits of an ending context
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
	struct memwait_async_waiter *wait, *next;
	const struct memwait_key *key;
	LIST_HEAD(completed);
	u64 id = 0, count = 0;
	bool claimed;

	/* Leave every queue first, so that a notify passed on below cannot come back here. */
	for (;;) {
		spin_lock(&context->lock);
		wait = memwait_async_after(context, id);
		claimed = wait && memwait_async_claim(wait);
		id = wait ? wait->id : 0;
		spin_unlock(&context->lock);
		if (!wait)
			break;
		if (claimed)
			trace_memwait_cancel(wait);
		if (claimed && memwait_async_withdraw(wait)) {
			memwait_async_end(wait, unused);
			memwait_async_free_now(wait);
		}
		cond_resched();
	}

	/* One call for each word. */
	spin_lock(&context->lock);
	list_replace_init(&context->completed, &completed);
	WRITE_ONCE(context->nr_completed, 0);
	spin_unlock(&context->lock);
	list_for_each_entry_safe(wait, next, &completed, node) {
		cond_resched();
		if (wait->count)
			continue;
		list_del(&wait->node);
		memwait_async_end(wait, unused);
		memwait_async_free_now(wait);
	}
	memwait_async_sort(&completed);
	list_for_each_entry_safe(wait, next, &completed, node) {
		count += wait->count;
		key = memwait_async_key(wait);
		if (list_entry_is_head(next, &completed, node) ||
		    memwait_key_cmp(key, memwait_async_key(next))) {
			memwait_async_pass_on(key, count);
			count = 0;
		}
		memwait_async_end(wait, unused);
		memwait_async_free_now(wait);
		cond_resched();
	}
}

/**
 * memwait_async_close() - end all waits of a context
 * @context: closed, with its deadlines stopped; see memwait_async_end_all()
 * @unused: see memwait_async_end_all()
 *
 * Context: process context, may sleep.
 */
void memwait_async_close(struct memwait_context *context, struct llist_head *unused)
{
	memwait_async_end_all(context, unused);
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
 * notify.c has the barriers. A poll or read that finds .due set checks the earliest deadlines,
 * under the context's lock. If none has passed, it clears .due and starts the timers for them; one
 * that has passed since fires at once. So while a wait has a deadline, .due is set or a timer runs,
 * and .due stays set while one has passed: another poller or reader may come to sleep any moment.
 * poll(2) ignores a timer whose wait has ended otherwise. A fired timer is not started for waits
 * already queued until the next check. No deadline is missed meanwhile: the pollers that it woke,
 * and those that come to sleep, check first.
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
