// SPDX-License-Identifier: GPL-2.0-only
/*
 * Blocked threads: sleeping, deadlines and signals.
 *
 * A thread always waits as a group, see queue.c. A group of one word is on the thread's stack. The
 * change of memwait_group.claimed from %NULL ends the wait. A counted notify beats a time-out and a
 * signal: a thread that finds itself claimed returns MEMWAIT_OK. The thread then waits only for the
 * bucket's lock, if the notifier still holds it: see (C) at the top of queue.c.
 */
#include <linux/sched/prio.h>
#include <linux/sched/stat.h>
#include <linux/sched/task.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "context.h"
#include "trace.h"

static enum memwait_claim memwait_thread_claim(struct memwait_waiter *waiter, u8 result,
					       struct memwait_wakes *wakes)
{
	struct memwait_member *member = to_member(waiter);
	struct memwait_group *group = member->group;

	/* Waits on several words exclude MEMWAIT_OWNED, so their result is always OK. */
	if (group->nr == 1)
		group->result = result;
	if (cmpxchg(&group->claimed, NULL, member))
		return MEMWAIT_CLAIM_LOST;
	wakes->tasks[wakes->nr_tasks++] = get_task_struct(group->task);
	if (group->nr > 1)
		memwait_wakes_defer_group(wakes, group);
	memwait_queue_remove_claimed(waiter);
	return MEMWAIT_CLAIM_WON;
}

static bool memwait_thread_is_pending(const struct memwait_waiter *waiter)
{
	return !READ_ONCE(to_member(waiter)->group->claimed);
}

static void memwait_thread_describe(const struct memwait_waiter *waiter,
				    struct memwait_description *description)
{
	const struct memwait_group *group = to_member(waiter)->group;

	description->kind = group->nr == 1 ? "thread" : "any";
	description->pid = task_tgid_nr(group->task);
	description->tid = task_pid_nr(group->task);
	description->expires = group->expires;
	description->clock = group->flags & MEMWAIT_CLOCK_REALTIME ? MEMWAIT_REALTIME :
								     MEMWAIT_MONOTONIC;
	get_task_comm(description->command, group->task);
}

static const struct memwait_waiter_ops memwait_thread_ops = {
	.claim = memwait_thread_claim,
	.is_pending = memwait_thread_is_pending,
	.describe = memwait_thread_describe,
};

/* noinline, here and below: an untraced wait must not pay for tracing, nor read the clock. */
static noinline void memwait_wait_begins(struct memwait_group *group)
{
	u32 i;

	for (i = 0; i < group->nr; i++)
		trace_memwait_wait_begin(&group->members[i].waiter.word.key, group->nr);
	group->begun = ktime_get_ns();
}

/* @index: the word that @result is about, if none was notified. */
static noinline void memwait_wait_ends(const struct memwait_group *group, u32 index, int result)
{
	const struct memwait_member *member = READ_ONCE(group->claimed);

	if (!member || member == MEMWAIT_CLAIMED_BY_ITSELF)
		member = &group->members[index];
	trace_memwait_wait_end(&member->waiter.word.key, result,
			       group->begun ? ktime_get_ns() - group->begun : 0);
}

/* Ends the current thread's wait. Returns false if a notify ended it first. */
static bool memwait_thread_end(struct memwait_group *group)
{
	return !cmpxchg(&group->claimed, NULL, MEMWAIT_CLAIMED_BY_ITSELF);
}

static int memwait_sleep(struct memwait_group *group, clockid_t clock)
{
	int ret;

	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE | TASK_FREEZABLE);
		if (READ_ONCE(group->claimed)) {
			ret = MEMWAIT_OK;
			break;
		}
		if (signal_pending(current)) {
			ret = -ERESTARTSYS;
			break;
		}
		if (group->expires == KTIME_MAX) {
			schedule();
		} else if (!schedule_hrtimeout_range_clock(&group->expires, current->timer_slack_ns,
							   HRTIMER_MODE_ABS, clock)) {
			ret = MEMWAIT_TIMED_OUT;
			break;
		}
	}
	__set_current_state(TASK_RUNNING);
	return ret == MEMWAIT_OK || memwait_thread_end(group) ? ret : MEMWAIT_OK;
}

static __always_inline int memwait_thread_join(struct memwait_group *group,
					       const struct memwait_wait *waits, bool single,
					       u32 *index, const struct memwait_place *place)
{
	u32 i;

	group->claimed = NULL;
	group->result = MEMWAIT_OK;
	for (i = 0; i < (single ? 1 : group->nr); i++) {
		group->members[i].group = group;
		if (!single)
			group->members[i].waiter.identity = NULL;
		group->members[i].waiter.ops = &memwait_thread_ops;
		group->members[i].waiter.bucket = NULL;
		group->members[i].waiter.number = 0;
	}
	if (unlikely(place))
		memwait_place_return(place, group);
	if (single)
		return memwait_queue_join(&group->members->waiter, waits);
	return memwait_group_join(group, waits, index);
}

static __always_inline void memwait_thread_leave(struct memwait_group *group, bool single)
{
	if (single)
		memwait_queue_leave(&group->members->waiter);
	else
		memwait_group_leave(group);
}

/*
 * Joins, sleeps, and leaves. If the thread is notified, but dies before it returns or the index
 * cannot be written, the notify goes on to the word's next waiter. A restart by -ERESTARTSYS keeps
 * the deadline, which is absolute.
 */
static __always_inline int memwait_thread_try(struct memwait_group *group,
					      const struct memwait_wait *waits, bool single,
					      u32 __user *user_index, u32 *index,
					      struct memwait_place **place)
{
	int ret;

	group->begun = 0;
	if (trace_memwait_wait_begin_enabled() || trace_memwait_wait_end_enabled())
		memwait_wait_begins(group);
	ret = memwait_thread_join(group, waits, single, index, *place);
	if (!ret)
		ret = memwait_sleep(group, memwait_clock(group->flags));
	else if (!memwait_thread_end(group))
		ret = MEMWAIT_OK;
	memwait_thread_leave(group, single);

	/* An owner's death is not passed on: if more wait, the word now watches this thread. */
	if (ret == MEMWAIT_OK && group->result == MEMWAIT_OWNER_DIED) {
		ret = MEMWAIT_OWNER_DIED;
	} else if (ret == MEMWAIT_OK) {
		*index = group->claimed - group->members;
		if (user_index && put_user(*index, user_index))
			ret = -EFAULT;
		else if (memwait_is_dying())
			ret = -ERESTARTSYS;
		if (ret)
			memwait_pass_on(&group->claimed->waiter.word.key, 1, NULL);
	} else if (ret == -ERESTARTSYS) {
		memwait_place_note(place, group);
	}
	if (trace_memwait_wait_end_enabled())
		memwait_wait_ends(group, single ? 0 : *index, ret);
	return ret;
}

/*
 * Waits on the words from memwait_begin_get(), and puts them. @user_index, unless %NULL, receives
 * the index of the word for MEMWAIT_OK or MEMWAIT_NOT_EQUAL.
 */
static __always_inline int memwait_thread_wait(struct memwait_group *group,
					       const struct memwait_wait *waits, bool single,
					       u64 deadline, u32 flags, u32 __user *user_index,
					       struct memwait_context *context)
{
	struct memwait_word *words = &group->members->waiter.word;
	const size_t stride = sizeof(*group->members);
	const u32 nr = single ? 1 : group->nr;
	struct memwait_place *place = memwait_place_take();
	u32 index = 0;
	int ret;

	group->expires = memwait_expires(deadline, flags);
	group->flags = flags;
	for (;;) {
		ret = memwait_begin_check(waits, nr, group->expires, flags, &index);
		if (!ret)
			ret = memwait_thread_try(group, waits, single, user_index, &index, &place);
		memwait_begin_put(words, stride, nr);
		if (ret != -EAGAIN)
			break;
		ret = memwait_begin_again() ? -ERESTARTSYS :
					      memwait_begin_get(words, stride, waits, nr);
		if (ret)
			break;
	}
	if (unlikely(place)) {
		if (ret < 0 || ret == MEMWAIT_NOT_EQUAL)
			memwait_place_keep(context, place);
		else
			memwait_place_free(place);
	}
	if (ret == MEMWAIT_NOT_EQUAL && user_index && put_user(index, user_index))
		ret = -EFAULT;
	return ret;
}

static __always_inline int memwait_check_one(struct memwait_member *member,
					     const struct memwait_wait *wait)
{
	int ret = memwait_check_wait(wait, MEMWAIT_WAIT_FLAGS);

	if (!ret)
		ret = memwait_own_identity(wait->flags, NULL, &member->waiter.identity);
	if (!ret && unlikely(member->waiter.identity))
		member->waiter.watch = member->waiter.identity->watch;
	return ret;
}

/* Waits on one word. memwait_word_get() has filled in the word of @member. */
static __always_inline int memwait_wait_one(struct memwait_member *member,
					    const struct memwait_wait *wait,
					    struct memwait_context *context)
{
	struct memwait_group group __uninitialized;
	int ret;

	group.nr = 1;
	group.members = member;
	group.task = current;
	ret = memwait_thread_wait(&group, wait, true, wait->deadline, wait->flags, NULL, context);
	/* Maybe another one, see watch.c. */
	if (unlikely(member->waiter.identity))
		member->waiter.identity->watch = member->waiter.watch;
	return ret;
}

/**
 * memwait_wait() - MEMWAIT_IOC_WAIT
 * @wait: from user space, unchecked
 * @context: the caller's
 *
 * Context: process context, sleeps.
 *
 * Return: MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT, MEMWAIT_OWNER_DIED or a negative errno.
 */
int memwait_wait(const struct memwait_wait *wait, struct memwait_context *context)
{
	struct memwait_member member __uninitialized;
	int ret;

	ret = memwait_check_one(&member, wait);
	if (!ret)
		ret = memwait_word_get(&member.waiter.word, wait->addr, wait->flags);
	return ret ?: memwait_wait_one(&member, wait, context);
}

/**
 * memwait_wait_any() - MEMWAIT_IOC_WAIT_ANY
 * @any: from user space, unchecked
 * @user: its user address
 * @context: the caller's
 *
 * Context: process context, sleeps.
 *
 * Return: MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT or a negative errno.
 */
int memwait_wait_any(const struct memwait_wait_any *any, struct memwait_wait_any __user *user,
		     struct memwait_context *context)
{
	struct memwait_group *group;
	struct memwait_wait *waits;
	u32 nr = any->count;
	int ret;

	if ((any->flags & ~MEMWAIT_CLOCK_REALTIME) || any->reserved)
		return -EINVAL;
	if (!nr || nr > MEMWAIT_GROUP_MAX)
		return -EINVAL;
	/* Probe now: after the wait it would be too late to fail. */
	if (put_user(any->index, &user->index))
		return -EFAULT;

	/* Not on the stack: a notifier may use the members for longer than this thread. */
	group = kmalloc(sizeof(*group) + nr * (sizeof(*group->members) + sizeof(*waits)),
			MEMWAIT_GFP);
	if (!group)
		return -ENOMEM;
	refcount_set(&group->refs, 1);
	group->nr = nr;
	group->members = (struct memwait_member *)(group + 1);
	group->task = current;
	waits = (struct memwait_wait *)(group->members + nr);

	ret = memwait_begin_copy(waits, any->waits, nr);
	if (!ret)
		ret = memwait_begin_get(&group->members->waiter.word, sizeof(*group->members),
					waits, nr);
	if (!ret)
		ret = memwait_thread_wait(group, waits, false, any->deadline, any->flags,
					  &user->index, context);
	memwait_group_put(group);
	return ret;
}

/*
 * Does it seem that the caller is about to sleep, and that its processor is then free for the
 * thread that it notifies? Otherwise that thread would have to wait for this processor, while
 * another one may be idle.
 */
static bool memwait_leaves_processor(const struct memwait_wait *wait)
{
	return single_task_running() && current->prio >= MAX_RT_PRIO && !signal_pending(current) &&
	       !memwait_has_passed(memwait_expires(wait->deadline, wait->flags), wait->flags);
}

/* The notify of MEMWAIT_IOC_NOTIFY_WAIT, after a probe of what the wait accesses. */
static int memwait_notify_first(const struct memwait_notify_wait *arg,
				struct memwait_notify_wait __user *user)
{
	struct memwait_word word = { .file = NULL };
	bool sleeps;
	u32 woken = 0;
	int ret;

	ret = memwait_compare(arg->wait.addr, arg->wait.expected, arg->wait.flags);
	if (ret < 0)
		return ret;
	sleeps = !ret && memwait_leaves_processor(&arg->wait);
	if (arg->notify.count) {
		ret = memwait_word_get(&word, arg->notify.addr, arg->notify.flags);
		if (ret)
			return ret;
	}
	ret = put_user(0, &user->notified);
	if (!ret && arg->notify.count) {
		woken = sleeps ? memwait_notify_handing_over(&word.key, arg->notify.count) :
				 memwait_notify_word(&word.key, arg->notify.count);
		if (woken)
			ret = put_user(woken, &user->notified);
	}
	memwait_word_put(&word);
	return ret;
}

/**
 * memwait_notify_wait() - MEMWAIT_IOC_NOTIFY_WAIT
 * @arg: from user space, unchecked
 * @user: its user address
 * @context: the caller's
 *
 * The notify happens once, even if a signal restarts the system call: the caller's state is then
 * MEMWAIT_NOTIFIED. A restarted call sets state to 0 before the wait, so a wait that is not
 * restarted writes nothing afterwards.
 *
 * Context: process context, sleeps.
 *
 * Return: MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT, MEMWAIT_OWNER_DIED or a negative errno.
 */
int memwait_notify_wait(const struct memwait_notify_wait *arg,
			struct memwait_notify_wait __user *user,
			struct memwait_context *context)
{
	struct memwait_member member __uninitialized;
	int ret;

	if (arg->state > MEMWAIT_NOTIFIED)
		return -EINVAL;
	ret = memwait_check(arg->notify.addr, arg->notify.flags, MEMWAIT_WORD_FLAGS);
	if (!ret)
		ret = memwait_check_one(&member, &arg->wait);
	if (!ret && arg->state)
		ret = put_user(0, &user->state);
	if (!ret)
		ret = memwait_word_get(&member.waiter.word, arg->wait.addr, arg->wait.flags);
	if (ret)
		return ret;

	if (!arg->state) {
		ret = memwait_notify_first(arg, user);
		if (ret) {
			memwait_word_put(&member.waiter.word);
			return ret;
		}
	}
	ret = memwait_wait_one(&member, &arg->wait, context);
	/* Without the state a restart would notify again. */
	if (ret == -ERESTARTSYS && put_user(MEMWAIT_NOTIFIED, &user->state))
		ret = -EINTR;
	return ret;
}
