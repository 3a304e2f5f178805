// SPDX-License-Identifier: GPL-2.0-only
/*
 * Blocked threads: what every wait checks first, sleeping, deadlines and signals.
 *
 * The waiter of a thread lives on its stack. A notify claims it by taking it out of its queue, and
 * lets go of it by setting @woken; until then the thread stays, whatever else happens to it: a
 * notify that was counted beats a time-out and a signal.
 */
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/time_namespace.h>
#include <linux/uaccess.h>

#include "memwait.h"

/**
 * struct memwait_thread - a thread that waits
 * @waiter: its entry in the queue
 * @task: the thread
 * @woken: a notify has claimed @waiter and does not touch it any more
 */
struct memwait_thread {
	struct memwait_waiter waiter;
	struct task_struct *task;
	int woken;
};

static bool memwait_thread_wake(struct memwait_waiter *waiter, struct memwait_wakes *wakes)
{
	memwait_queue_remove(waiter);
	list_add_tail(&waiter->node, &wakes->threads);
	return true;
}

static const struct memwait_waiter_ops memwait_thread_ops = {
	.wake = memwait_thread_wake,
};

/**
 * memwait_wake_threads() - wake the threads that a notify has claimed
 * @threads: list of their waiters, of which nothing is valid any more afterwards
 *
 * Context: no queue's lock is held, so that a thread that runs at once does not meet it.
 */
void memwait_wake_threads(struct list_head *threads)
{
	struct memwait_waiter *waiter, *next;

	list_for_each_entry_safe(waiter, next, threads, node) {
		struct memwait_thread *thread =
			container_of(waiter, struct memwait_thread, waiter);
		struct task_struct *task = thread->task;

		/* (C): after the store the thread may return, and even exit. */
		get_task_struct(task);
		smp_store_release(&thread->woken, 1);	/* (C) pairs with the acquires below */
		wake_up_process(task);
		put_task_struct(task);
	}
}

/*
 * A deadline of the caller's time namespace as a time of the host. KTIME_MAX, which is reached in
 * 292 years, is never.
 */
static ktime_t memwait_expires(u64 deadline, u32 flags)
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

static bool memwait_has_passed(ktime_t expires, u32 flags)
{
	if (expires == KTIME_MAX)
		return false;
	return expires <= (flags & MEMWAIT_CLOCK_REALTIME ? ktime_get_real() : ktime_get());
}

/**
 * memwait_prepare() - everything about a wait that comes before queueing, in the order of R2
 * @wait: as it came from user space
 * @word: the word, to be given back if the result is 0
 * @expires: the deadline in the host's time, KTIME_MAX for never
 *
 * Context: process context, may sleep.
 *
 * Return: 0: go on and wait; MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT, or a negative errno.
 */
int memwait_prepare(const struct memwait_wait *wait, struct memwait_word *word, ktime_t *expires)
{
	const u32 known = MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE | MEMWAIT_CLOCK_REALTIME;
	int ret;

	if ((wait->flags & ~known) || wait->reserved)
		return -EINVAL;
	if (!IS_ALIGNED(wait->addr, memwait_size(wait->flags)))
		return -EINVAL;
	if (!IS_ENABLED(CONFIG_64BIT) && memwait_size(wait->flags) == 8)
		return -EOPNOTSUPP;

	ret = memwait_word_get(word, wait->addr, wait->flags);
	if (ret)
		return ret;

	ret = memwait_compare(wait->addr, wait->expected, wait->flags);
	if (!ret) {
		*expires = memwait_expires(wait->deadline, wait->flags);
		if (memwait_has_passed(*expires, wait->flags))
			ret = MEMWAIT_TIMED_OUT;
	}
	if (ret)
		memwait_word_put(word);
	return ret;
}

/* Sleeps until the thread is notified, or the deadline or a signal has taken it out. */
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
		if (!schedule_hrtimeout_range_clock(expires, current->timer_slack_ns,
						    HRTIMER_MODE_ABS, clock)) {
			ret = MEMWAIT_TIMED_OUT;
			break;
		}
	}
	__set_current_state(TASK_RUNNING);

	if (memwait_queue_leave(&thread->waiter))
		return ret;

	/* A notify has counted this thread, and is about to say so. */
	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		if (smp_load_acquire(&thread->woken))		/* (C) */
			break;
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	return MEMWAIT_OK;
}

/*
 * Will the current thread die before it returns to user space? Either it was killed, or a signal
 * is pending that will make it dump core; all other fatal signals look like SIGKILL by now. What
 * a tracer would make of the signal cannot be known: a traced thread is taken to live.
 */
static bool memwait_is_dying(void)
{
	struct sighand_struct *sighand;
	bool dying = false;
	sigset_t pending;
	int sig;

	if (likely(!signal_pending(current)))
		return false;
	if (fatal_signal_pending(current))
		return true;
	if (current->ptrace || (current->signal->flags & SIGNAL_UNKILLABLE))
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

/**
 * memwait_wait() - MEMWAIT_IOC_WAIT
 * @wait: as it came from user space
 *
 * A notify that was counted for a thread which dies before it returns is passed on to the next
 * waiter of the word.
 *
 * Context: process context, sleeps.
 *
 * Return: MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT or a negative errno. -ERESTARTSYS is
 * right for a restart as well, for the deadline is absolute.
 */
int memwait_wait(const struct memwait_wait *wait)
{
	struct memwait_thread thread = {
		.waiter.ops = &memwait_thread_ops,
		.task = current,
	};
	struct memwait_word *word = &thread.waiter.word;
	ktime_t expires;
	int ret;

	for (;;) {
		ret = memwait_prepare(wait, word, &expires);
		if (ret)
			return ret;

		ret = memwait_queue_join(&thread.waiter, wait, GFP_KERNEL);
		if (ret != -EAGAIN)
			break;
		memwait_word_put(word);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}

	if (!ret) {
		ret = memwait_sleep(&thread, expires == KTIME_MAX ? NULL : &expires,
				    memwait_clock(wait->flags));
		if (ret == MEMWAIT_OK && memwait_is_dying()) {
			memwait_queue_notify(&word->key, 1);
			ret = -ERESTARTSYS;
		}
	}
	memwait_word_put(word);
	return ret;
}
