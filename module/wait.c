// SPDX-License-Identifier: GPL-2.0-only
/*
 * Blocked threads: sleeping, deadlines and signals.
 *
 * A wait for one word is on the thread's stack. The change of memwait_group.claimed from 0 ends the
 * wait. A counted notify takes precedence over a timeout and a signal: a thread whose wait a notify
 * has claimed returns MEMWAIT_OK. Before it returns, the thread waits at most until the notifier
 * has dropped the bucket's lock: see (C) at the top of queue.c.
 */
#include <linux/sched/prio.h>
#include <linux/sched/stat.h>
#include <linux/sched/task.h>
#include <linux/uaccess.h>

#include "begin.h"
#include "compat.h"
#include "position.h"
#include "scan.h"
#include "trace.h"

/*
 * noinline, here and below: without tracing, a wait must not pay for tracing, and must not read the
 * clock.
 */
static noinline u64 memwait_wait_begins(const struct memwait_group *group)
{
	u32 i;

	for (i = 0; i < group->nr; i++)
		trace_memwait_wait_begin(&group->waiters[i].word.key, group->nr);
	return ktime_get_ns();
}

/*
 * @index: the word that @result refers to, if no word was notified. @begun: the start of the wait,
 *	or
 * 0 if it was not traced.
 */
static noinline void memwait_wait_ends(const struct memwait_group *group, u64 begun, u32 index,
				       int result)
{
	const struct memwait_waiter *waiter = memwait_group_notified(group);

	if (!waiter)
		waiter = &group->waiters[index];
	trace_memwait_wait_end(&waiter->word.key, result, begun ? ktime_get_ns() - begun : 0);
}

/* Ends the current thread's wait. Returns false if a notify ended it first. */
static bool memwait_thread_end(struct memwait_group *group)
{
	return !cmpxchg(&group->claimed, 0, MEMWAIT_CLAIMED_BY_ITSELF);
}

static int memwait_thread_sleep(struct memwait_group *group)
{
	clockid_t clock = group->clock == MEMWAIT_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
	ktime_t *expires = &group->deadline.expires;
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
		if (*expires == KTIME_MAX) {
			schedule();
		} else if (!schedule_hrtimeout_range_clock(expires, current->timer_slack_ns,
							   HRTIMER_MODE_ABS, clock)) {
			ret = MEMWAIT_TIMED_OUT;
			break;
		}
	}
	__set_current_state(TASK_RUNNING);
	return ret == MEMWAIT_OK || memwait_thread_end(group) ? ret : MEMWAIT_OK;
}

/*
 * Joins the queues, sleeps, and leaves the queues. If the thread is notified, but dies before it
 * returns or the index cannot be written, the notify is passed to the word's next waiter. A restart
 * by -ERESTARTSYS does not change the deadline, which is absolute.
 */
static __always_inline int memwait_thread_try(struct memwait_group *group,
					      const struct memwait_wait *waits, u32 nr,
					      u32 __user *user_index, u32 *index,
					      struct memwait_position **record)
{
	u64 begun = 0;
	int ret;

	if (trace_memwait_wait_begin_enabled() || trace_memwait_wait_end_enabled())
		begun = memwait_wait_begins(group);
	memwait_group_init(group, nr);
	if (unlikely(*record))
		memwait_position_return(*record, group);
	ret = memwait_group_join(group, waits, nr, index, NULL);
	if (!ret)
		ret = memwait_thread_sleep(group);
	else if (!memwait_thread_end(group))
		ret = MEMWAIT_OK;
	memwait_group_leave(group, nr);

	/*
	 * The death of an owner need not be passed on: if there are other waiters, the word now
	 * watches this thread.
	 */
	if (ret == MEMWAIT_OK && group->result == MEMWAIT_OWNER_DIED) {
		ret = MEMWAIT_OWNER_DIED;
	} else if (ret == MEMWAIT_OK) {
		*index = nr == 1 ? 0 : group->claimed - 1;
		if (user_index && put_user(*index, user_index))
			ret = -EFAULT;
		else if (memwait_is_dying())
			ret = -ERESTARTSYS;
		if (ret)
			memwait_pass_on(&group->waiters[*index].word.key, 0);
	} else if (ret == -ERESTARTSYS) {
		memwait_position_record(record, group);
	}
	if (trace_memwait_wait_end_enabled())
		memwait_wait_ends(group, begun, *index, ret);
	return ret;
}

/*
 * Waits on the words from memwait_begin_get(), and puts them. @user_index, unless %NULL, receives
 * the index of the word for MEMWAIT_OK or MEMWAIT_NOT_EQUAL.
 */
static __always_inline int memwait_thread_wait(struct memwait_group *group,
					       const struct memwait_wait *waits, u32 nr,
					       u64 deadline, u32 flags, u32 __user *user_index,
					       struct memwait_context *context)
{
	struct memwait_position *record = memwait_position_take();
	u32 index = 0;
	int ret;

	group->deadline.expires = memwait_expires(deadline, flags);
	group->clock = memwait_async_clock(flags);
	for (;;) {
		ret = memwait_begin_check(waits, nr, group->deadline.expires, group->clock,
					  &index);
		if (!ret)
			ret = memwait_thread_try(group, waits, nr, user_index, &index, &record);
		memwait_begin_put(group->waiters, nr);
		if (ret != -EAGAIN)
			break;
		ret = memwait_begin_again() ? -ERESTARTSYS :
					      memwait_begin_get(group->waiters, waits, nr);
		if (ret)
			break;
	}
	if (unlikely(record)) {
		if (ret < 0 || ret == MEMWAIT_NOT_EQUAL)
			memwait_position_add(context, record);
		else
			memwait_position_free(record);
	}
	if (ret == MEMWAIT_NOT_EQUAL && user_index && put_user(index, user_index))
		ret = -EFAULT;
	return ret;
}

/* A wait for one word. */
union memwait_one {
	struct memwait_group group;
	u8 bytes[sizeof(struct memwait_group) + sizeof(struct memwait_owned)];
};

static __always_inline int memwait_check_one(struct memwait_waiter *waiter,
					     const struct memwait_wait *wait)
{
	int ret = memwait_check_wait(wait, MEMWAIT_WAIT_FLAGS);
	struct memwait_owned *owned = memwait_owned_of(waiter);

	if (!ret)
		ret = memwait_own_identity(wait->flags, NULL, &owned->identity);
	waiter->owned = !ret && owned->identity;
	return ret;
}

/* Waits on one word. memwait_check_one() and memwait_word_get() have filled in the waiter. */
static __always_inline int memwait_wait_one(struct memwait_group *group,
					    const struct memwait_wait *wait,
					    struct memwait_context *context)
{
	group->nr = 1;
	group->async = false;
	group->task = current;
	return memwait_thread_wait(group, wait, 1, wait->deadline, wait->flags, NULL, context);
}

/**
 * memwait_ioc_wait() - MEMWAIT_IOC_WAIT
 * @wait: argument from user space, unchecked
 * @context: the caller's context
 *
 * Context: process context, sleeps.
 *
 * Return: MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT, MEMWAIT_OWNER_DIED or a negative errno.
 */
int memwait_ioc_wait(const struct memwait_wait *wait, struct memwait_context *context)
{
	union memwait_one one __uninitialized;
	struct memwait_waiter *waiter = one.group.waiters;
	int ret;

	ret = memwait_check_one(waiter, wait);
	if (!ret)
		ret = memwait_word_get(&waiter->word, wait->addr, wait->flags);
	return ret ?: memwait_wait_one(&one.group, wait, context);
}

/**
 * memwait_ioc_wait_any() - MEMWAIT_IOC_WAIT_ANY
 * @any: argument from user space, unchecked
 * @user: its user address
 * @context: the caller's context
 *
 * Context: process context, sleeps.
 *
 * Return: MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT or a negative errno.
 */
int memwait_ioc_wait_any(const struct memwait_wait_any *any, struct memwait_wait_any __user *user,
			 struct memwait_context *context)
{
	struct memwait_group *group;
	struct memwait_wait *waits;
	u32 nr = any->count, i;
	int ret;

	if ((any->flags & ~MEMWAIT_CLOCK_REALTIME) || any->reserved)
		return -EINVAL;
	if (!nr || nr > MEMWAIT_GROUP_MAX)
		return -EINVAL;
	/* Probe the address now, because after the wait it is too late to fail. */
	if (put_user(any->index, &user->index))
		return -EFAULT;

	group = kmalloc(sizeof(*group) + nr * (sizeof(*group->waiters) + sizeof(*waits)),
			MEMWAIT_GFP);
	if (!group)
		return -ENOMEM;
	group->nr = nr;
	group->async = false;
	group->task = current;
	waits = (struct memwait_wait *)(group->waiters + nr);

	for (i = 0; i < nr; i++)
		group->waiters[i].owned = false;
	ret = memwait_begin_copy(waits, any->waits, nr);
	if (!ret)
		ret = memwait_begin_get(group->waiters, waits, nr);
	if (!ret)
		ret = memwait_thread_wait(group, waits, nr, any->deadline, any->flags,
					  &user->index, context);
	kfree(group);
	return ret;
}

/*
 * Whether the caller seems to be about to sleep, and to leave its CPU free for the thread that it
 * notifies. Otherwise that thread would have to wait for this CPU, while another CPU may be idle.
 */
static bool memwait_leaves_processor(const struct memwait_wait *wait)
{
	return single_task_running() && current->prio >= MAX_RT_PRIO && !signal_pending(current) &&
	       !memwait_has_passed(memwait_expires(wait->deadline, wait->flags),
				   memwait_async_clock(wait->flags));
}

/*
 * Does the notify of MEMWAIT_IOC_NOTIFY_WAIT, after a probe of the memory that the wait accesses.
 */
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
		woken = memwait_notify_word(&word.key, arg->notify.count,
					    sleeps ? MEMWAIT_SCAN_HANDS_OVER : MEMWAIT_SCAN);
		if (woken)
			ret = put_user(woken, &user->notified);
	}
	memwait_word_put(&word);
	return ret;
}

/**
 * memwait_ioc_notify_wait() - MEMWAIT_IOC_NOTIFY_WAIT
 * @arg: argument from user space, unchecked
 * @user: its user address
 * @context: the caller's context
 *
 * The notify happens once, even if the system call is restarted after a signal, because the state
 * in the caller's struct is then MEMWAIT_NOTIFIED. A restarted call sets the state to 0 before the
 * wait, so that a wait that is not restarted again writes nothing afterwards.
 *
 * Context: process context, sleeps.
 *
 * Return: MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT, MEMWAIT_OWNER_DIED or a negative errno.
 */
int memwait_ioc_notify_wait(const struct memwait_notify_wait *arg,
			    struct memwait_notify_wait __user *user,
			    struct memwait_context *context)
{
	union memwait_one one __uninitialized;
	struct memwait_waiter *waiter = one.group.waiters;
	int ret;

	if (arg->state > MEMWAIT_NOTIFIED)
		return -EINVAL;
	ret = memwait_check(arg->notify.addr, arg->notify.flags, MEMWAIT_WORD_FLAGS);
	if (!ret)
		ret = memwait_check_one(waiter, &arg->wait);
	if (!ret && arg->state)
		ret = put_user(0, &user->state);
	if (!ret)
		ret = memwait_word_get(&waiter->word, arg->wait.addr, arg->wait.flags);
	if (ret)
		return ret;

	if (!arg->state) {
		ret = memwait_notify_first(arg, user);
		if (ret) {
			memwait_word_put(&waiter->word);
			return ret;
		}
	}
	ret = memwait_wait_one(&one.group, &arg->wait, context);
	/* Without that state a restart would notify again. */
	if (ret == -ERESTARTSYS && put_user(MEMWAIT_NOTIFIED, &user->state))
		ret = -EINTR;
	return ret;
}
