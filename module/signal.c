// SPDX-License-Identifier: GPL-2.0-only
/*
 * The effect of a pending signal on the current thread.
 */
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/signal.h>
#include <linux/spinlock.h>

#include "memwait.h"

/**
 * memwait_dies_of_signal() - memwait_is_dying() of a thread with a pending signal
 *
 * A thread dies if it was killed, or if a pending signal will dump core; all other fatal signals
 * already look like SIGKILL. A tracer may change or drop a signal, so a traced thread counts as
 * alive unless it was killed.
 *
 * Context: process context.
 *
 * Return: whether the thread will die.
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

	sighand = rcu_dereference_protected(current->sighand, true);	/* current's stays */
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
