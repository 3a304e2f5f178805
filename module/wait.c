// SPDX-License-Identifier: GPL-2.0-only
/*
 * Blocked threads: sleeping, deadlines and signals.
 *
 * The members of a thread, one for each word that it waits on, live on its stack, or for large
 * groups in memory of its own. Whoever changes memwait_thread.claimed from %NULL ends the wait. A
 * notify that has claimed a thread lets go of it by setting @woken; until then the thread stays,
 * whatever else happens to it: a notify that was counted beats a time-out and a signal.
 */
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/time_namespace.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "group.h"
#include "memwait.h"

/* Groups of up to so many words need no memory but the stack. */
#define MEMWAIT_SMALL_GROUP	8

/**
 * struct memwait_thread - a thread that waits
 * @task: the thread
 * @members: one for each word
 * @nr: how many
 * @woken: a notify has claimed the thread, and touches neither it nor its members any more
 * @claimed: %NULL while the wait is pending; the member that was notified;
 *	or MEMWAIT_CLAIMED_BY_ITSELF
 */
struct memwait_thread {
	struct task_struct *task;
	struct memwait_member *members;
	u32 nr;
	int woken;
	struct memwait_member *claimed;
};

static bool memwait_thread_wake(struct memwait_waiter *waiter, struct memwait_wakes *wakes)
{
	struct memwait_member *member = to_member(waiter);
	struct memwait_thread *thread = member->owner;

	if (cmpxchg(&thread->claimed, NULL, member))
		return false;
	memwait_queue_remove(waiter);
	list_add_tail(&waiter->node, &wakes->threads);
	return true;
}

static bool memwait_thread_is_pending(const struct memwait_waiter *waiter)
{
	const struct memwait_thread *thread = to_member(waiter)->owner;

	return !READ_ONCE(thread->claimed);
}

static const struct memwait_waiter_ops memwait_thread_ops = {
	.wake = memwait_thread_wake,
	.is_pending = memwait_thread_is_pending,
};

/**
 * memwait_wake_threads() - wake the threads that a notify has claimed
 * @threads: list of their waiters, of which nothing is valid any more afterwards
 *
 * Context: within the RCU read-side critical section in which they were claimed; no queue's lock is
 * held, so that a thread that runs at once does not meet it. Takes the locks of the queues that
 * other members of a group are in.
 */
void memwait_wake_threads(struct list_head *threads)
{
	struct memwait_waiter *waiter, *next;

	list_for_each_entry_safe(waiter, next, threads, node) {
		struct memwait_thread *thread = to_member(waiter)->owner;
		struct task_struct *task = thread->task;

		if (thread->nr > 1)
			memwait_group_leave(thread->members, thread->nr);

		/* After the store the thread may return, and even exit, but RCU keeps the task. */
		smp_store_release(&thread->woken, 1);	/* (C) pairs with the acquires below */
		wake_up_process(task);
	}
}

/**
 * memwait_expires() - a deadline of the caller's time namespace as a time of the host
 * @deadline: as it came from user space
 * @flags: MEMWAIT_CLOCK_REALTIME or not
 *
 * Context: process context of the caller.
 *
 * Return: the time; KTIME_MAX, which is reached in 292 years, for never.
 */
ktime_t memwait_expires(u64 deadline, u32 flags)
{
	ktime_t expires = min_t(u64, deadline, KTIME_MAX);

#ifdef CONFIG_TIME_NS
	if (expires != KTIME_MAX && memwait_clock(flags) == CLOCK_MONOTONIC) {
		ktime_t offset =
			timespec64_to_ktime(current->nsproxy->time_ns->offsets.monotonic);

		if (offset > 0)
			expires = max_t(ktime_t, ktime_sub(expires, offset), 0);
		else if (offset < 0)
			expires = ktime_add_safe(expires, -offset);
	}
#endif
	return expires;
}

/**
 * memwait_has_passed() - is it too late to wait?
 * @expires: from memwait_expires()
 * @flags: MEMWAIT_CLOCK_REALTIME or not
 *
 * Context: any.
 *
 * Return: whether the time has come.
 */
bool memwait_has_passed(ktime_t expires, u32 flags)
{
	if (expires == KTIME_MAX)
		return false;
	return expires <= (flags & MEMWAIT_CLOCK_REALTIME ? ktime_get_real() : ktime_get());
}

/* Ends the wait. Returns false if a notify has done so before, and has let go of the thread. */
static bool memwait_thread_end(struct memwait_thread *thread)
{
	if (!cmpxchg(&thread->claimed, NULL, MEMWAIT_CLAIMED_BY_ITSELF))
		return true;

	/* A notify has counted this thread, and is about to say so. */
	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		if (smp_load_acquire(&thread->woken))		/* (C) */
			break;
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	return false;
}

/* Sleeps until the thread is notified, or the deadline or a signal has ended the wait. */
static int memwait_sleep(struct memwait_thread *thread, ktime_t *expires, clockid_t clock)
{
	int ret;

	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE | TASK_FREEZABLE);
		if (smp_load_acquire(&thread->woken)) {		/* (C) */
			__set_current_state(TASK_RUNNING);
			return MEMWAIT_OK;
		}
		if (signal_pending(current)) {
			ret = -ERESTARTSYS;
			break;
		}
		if (!expires) {
			schedule();
		} else if (!schedule_hrtimeout_range_clock(expires, current->timer_slack_ns,
							   HRTIMER_MODE_ABS, clock)) {
			ret = MEMWAIT_TIMED_OUT;
			break;
		}
	}
	__set_current_state(TASK_RUNNING);
	return memwait_thread_end(thread) ? ret : MEMWAIT_OK;
}

/**
 * memwait_dies_of_signal() - memwait_is_dying() of a thread that has a signal pending
 *
 * Either it was killed, or a signal is pending that will make it dump core; all other fatal signals
 * look like SIGKILL by now. What a tracer would make of the signal cannot be known: a traced thread
 * is taken to live.
 *
 * Context: process context.
 *
 * Return: whether it will.
 */
bool memwait_dies_of_signal(void)
{
	struct sighand_struct *sighand;
	bool dying = false;
	sigset_t pending;
	int sig;

	if (memwait_is_killed())
		return true;
	if (READ_ONCE(current->ptrace) || (READ_ONCE(current->signal->flags) & SIGNAL_UNKILLABLE))
		return false;

	sighand = rcu_dereference_protected(current->sighand, true);	/* one's own stays */
	spin_lock_irq(&sighand->siglock);
	sigorsets(&pending, &current->pending.signal, &current->signal->shared_pending.signal);
	sigandnsets(&pending, &pending, &current->blocked);
	for (sig = 1; sig < SIGRTMIN; sig++) {
		if (sigismember(&pending, sig) && sig_kernel_coredump(sig) &&
		    sighand->action[sig - 1].sa.sa_handler == SIG_DFL)
			dying = true;
	}
	spin_unlock_irq(&sighand->siglock);
	return dying;
}

/*
 * Waits on the words that memwait_group_get() has found, and gives them back. The rest of R2's
 * order: values, deadline, then wait. @user_index, unless it is %NULL, gets the word that
 * MEMWAIT_OK or MEMWAIT_NOT_EQUAL is about.
 *
 * A notify that was counted for a thread which dies before it returns, or which cannot be told the
 * index, is passed on to the next waiter of the word. -ERESTARTSYS is right for a restart as well,
 * for the deadline is absolute.
 *
 * Inline, so that for one word no loop is left.
 */
static __always_inline int memwait_wait_members(struct memwait_member *members,
						const struct memwait_wait *waits, u32 nr,
						u64 deadline, u32 flags, u32 __user *user_index)
{
	struct memwait_thread thread = { .task = current, .members = members, .nr = nr };
	gfp_t gfp = nr > 1 ? MEMWAIT_GFP : GFP_KERNEL;
	ktime_t expires;
	u32 i, index;
	int ret;

	for (;;) {
		ret = memwait_group_compare(waits, nr, &index);
		if (ret)
			break;
		expires = memwait_expires(deadline, flags);
		if (memwait_has_passed(expires, flags)) {
			ret = MEMWAIT_TIMED_OUT;
			break;
		}

		thread.claimed = NULL;
		for (i = 0; i < nr; i++) {
			members[i].owner = &thread;
			members[i].waiter.ops = &memwait_thread_ops;
			members[i].waiter.queue = NULL;
		}
		ret = memwait_group_join(members, waits, nr, gfp, &index);
		if (!ret)
			ret = memwait_sleep(&thread, expires == KTIME_MAX ? NULL : &expires,
					    memwait_clock(flags));
		else if (!memwait_thread_end(&thread))
			ret = MEMWAIT_OK;
		memwait_group_leave(members, nr);

		if (ret == MEMWAIT_OK) {
			index = thread.claimed - members;
			if (user_index && put_user(index, user_index))
				ret = -EFAULT;
			else if (memwait_is_dying())
				ret = -ERESTARTSYS;
			if (ret)
				memwait_queue_notify(&thread.claimed->waiter.word.key, 1);
		}
		if (ret != -EAGAIN)
			break;

		/* The comparison above faults in what could not be read. */
		memwait_group_put(members, nr);
		if (signal_pending(current))
			return -ERESTARTSYS;
		cond_resched();
		ret = memwait_group_get(members, waits, nr);
		if (ret)
			return ret;
	}
	memwait_group_put(members, nr);
	if (ret == MEMWAIT_NOT_EQUAL && user_index && put_user(index, user_index))
		ret = -EFAULT;
	return ret;
}

/* The same for many words, but not inline: the frame of memwait_wait_any() is large already. */
static noinline_for_stack int memwait_wait_group(struct memwait_member *members,
						 const struct memwait_wait *waits, u32 nr,
						 u64 deadline, u32 flags, u32 __user *user_index)
{
	return memwait_wait_members(members, waits, nr, deadline, flags, user_index);
}

/**
 * memwait_wait() - MEMWAIT_IOC_WAIT
 * @wait: as it came from user space
 *
 * Context: process context, sleeps.
 *
 * Return: MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT or a negative errno.
 */
int memwait_wait(const struct memwait_wait *wait)
{
	struct memwait_member member __uninitialized;
	int ret;

	ret = memwait_check_wait(wait, MEMWAIT_WAIT_FLAGS);
	if (!ret)
		ret = memwait_word_get(&member.waiter.word, wait->addr, wait->flags);
	if (ret)
		return ret;
	return memwait_wait_members(&member, wait, 1, wait->deadline, wait->flags, NULL);
}

/**
 * memwait_wait_any() - MEMWAIT_IOC_WAIT_ANY
 * @any: as it came from user space
 * @user: where it came from
 *
 * Context: process context, sleeps.
 *
 * Return: MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT or a negative errno.
 */
int memwait_wait_any(const struct memwait_wait_any *any, struct memwait_wait_any __user *user)
{
	struct memwait_wait small_waits[MEMWAIT_SMALL_GROUP], *waits = small_waits;
	struct memwait_member small_members[MEMWAIT_SMALL_GROUP], *members = small_members;
	u32 nr = any->count;
	void *memory = NULL;
	int ret;

	if ((any->flags & ~MEMWAIT_CLOCK_REALTIME) || any->reserved)
		return -EINVAL;
	if (!nr || nr > MEMWAIT_GROUP_MAX)
		return -EINVAL;
	/* Before anything is done, for afterwards it would be too late to find that it fails. */
	if (put_user(any->index, &user->index))
		return -EFAULT;

	if (nr > MEMWAIT_SMALL_GROUP) {
		memory = kmalloc_array(nr, sizeof(*waits) + sizeof(*members), MEMWAIT_GFP);
		if (!memory)
			return -ENOMEM;
		members = memory;
		waits = memory + nr * sizeof(*members);
	}

	ret = memwait_group_copy(waits, any->waits, nr);
	if (!ret)
		ret = memwait_group_get(members, waits, nr);
	if (!ret)
		ret = memwait_wait_group(members, waits, nr, any->deadline, any->flags,
					 &user->index);
	kfree(memory);
	return ret;
}

/* The notify of MEMWAIT_IOC_NOTIFY_WAIT, once it is known that the rest can be done. */
static int memwait_notify_first(const struct memwait_notify_wait *arg,
				struct memwait_notify_wait __user *user)
{
	struct memwait_word word = { .pin = NULL };
	u32 woken = 0;
	int ret;

	ret = memwait_compare(arg->wait.addr, arg->wait.expected, arg->wait.flags);
	if (ret < 0)
		return ret;
	if (arg->notify.count) {
		ret = memwait_word_get(&word, arg->notify.addr, arg->notify.flags);
		if (ret)
			return ret;
	}
	ret = put_user(0, &user->notified);
	if (!ret && arg->notify.count) {
		woken = memwait_queue_notify(&word.key, arg->notify.count);
		if (woken)
			ret = put_user(woken, &user->notified);
	}
	memwait_word_put(&word);
	return ret;
}

/**
 * memwait_notify_wait() - MEMWAIT_IOC_NOTIFY_WAIT
 * @arg: as it came from user space
 * @user: where it came from
 *
 * The notify is done once, even if a signal restarts the system call: then MEMWAIT_NOTIFIED is in
 * the caller's flags. It is taken away before the wait, so that nothing is to be written after it.
 *
 * Context: process context, sleeps.
 *
 * Return: MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT or a negative errno.
 */
int memwait_notify_wait(const struct memwait_notify_wait *arg,
			struct memwait_notify_wait __user *user)
{
	bool notified = arg->notify.flags & MEMWAIT_NOTIFIED;
	u32 flags = arg->notify.flags & ~MEMWAIT_NOTIFIED;
	struct memwait_member member __uninitialized;
	int ret;

	if (arg->reserved)
		return -EINVAL;
	ret = memwait_check(arg->notify.addr, flags, MEMWAIT_WORD_FLAGS);
	if (!ret)
		ret = memwait_check_wait(&arg->wait, MEMWAIT_WAIT_FLAGS);
	if (!ret && notified)
		ret = put_user(flags, &user->notify.flags);
	if (!ret)
		ret = memwait_word_get(&member.waiter.word, arg->wait.addr, arg->wait.flags);
	if (ret)
		return ret;

	if (!notified) {
		ret = memwait_notify_first(arg, user);
		if (ret) {
			memwait_word_put(&member.waiter.word);
			return ret;
		}
	}
	ret = memwait_wait_members(&member, &arg->wait, 1, arg->wait.deadline, arg->wait.flags,
				   NULL);
	/* If it cannot be told, it must not be restarted. */
	if (ret == -ERESTARTSYS && put_user(flags | MEMWAIT_NOTIFIED, &user->notify.flags))
		ret = -EINTR;
	return ret;
}
