// SPDX-License-Identifier: GPL-2.0-only
/*
 * Owners: MEMWAIT_IOC_OWNER, the probes that detect deaths of threads, and the reports to waiters.
 * The top of watch.c says which owner a word watches, and why no death is missed.
 *
 * A user's dead identities are reaped in steps (memwait_reap()). A step reports a death to the
 * waiters of some words, or removes an identity that no word watches from the list of dead
 * identities. The following do such steps:
 *
 *	- a work item of the user, which does all remaining steps. A run of the work item is
 *	  bounded, and queues the work item again for the remaining steps;
 *	- a dying process, when its descriptors are closed, at its own priority: it reports its own
 *	  death, to waiters of its own user;
 *	- a thread whose user is over the limit on ids, because dead identities count until they are
 *	  reaped.
 *
 * Any of these may be preempted for a long time without delaying the others: each reports to the
 * words that the others have not reached yet, word by word under the locks of the buckets. No
 * thread or work item of a user reaps the dead identities of another user.
 */
#include <linux/err.h>
#include <linux/signal.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <trace/events/sched.h>
#include <trace/events/signal.h>

#include "compat.h"
#include "context.h"
#include "owner.h"
#include "scan.h"

/*
 * Number of steps in one run of the work item, at each close by a dying process, and between two
 * checks for signals.
 */
#define MEMWAIT_DEATH_RUN	64

/*
 * Reports the owner's death to the first MEMWAIT_OWNED waiter of a word, whose bucket is locked.
 * The word then watches the identity of that waiter, or no owner if the waiter was the last. If the
 * step is full before a waiter was claimed, the word still watches the dead owner.
 */
static void memwait_watch_report(struct memwait_owned *first, struct memwait_wakes *wakes)
{
	struct memwait_bucket *bucket = first->waiter.bucket;
	const struct memwait_key key = first->waiter.word.key;
	enum memwait_claim claim;

	do {
		wakes->looked++;
		claim = memwait_claim_waiter(&first->waiter, MEMWAIT_OWNER_DIED, wakes);
		if (claim == MEMWAIT_CLAIM_WON)
			break;
		if (claim == MEMWAIT_CLAIM_LOST)
			memwait_queue_remove(&first->waiter);
		first = memwait_watch_find(bucket, &key);
	} while (first && !memwait_wakes_are_full(wakes));
}

/*
 * Reports a death to waiters of some words, in a separate step for each word. @own: report only to
 * words of the owner's user. @number: number of the call. On PREEMPT_RT this call may be preempted
 * before it has woken a context; in that case no other step of the call would wake that context.
 * Returns false if no such word watches the owner, and none will.
 */
static bool memwait_report_death(struct memwait_identity *identity, bool own, u64 number)
{
	struct memwait_scan scan __uninitialized;
	struct memwait_owned *first = NULL;
	struct memwait_bucket *bucket;
	unsigned int nr;

	memwait_scan_init(&scan, 0, 0);
	scan.wakes.call = number;
	for (nr = 0; nr < MEMWAIT_STEP_WAKES; nr++) {
		first = memwait_watch_lock(identity, own);
		if (!first)
			break;
		bucket = first->waiter.bucket;
		__acquire(&bucket->lock);
		if (identity->ended && !first->may_be_named)
			memwait_unwatch(first);
		else
			memwait_watch_report(first, &scan.wakes);
		memwait_step_begin();
		spin_unlock(&bucket->lock);
		memwait_step_end(&scan);
	}
	return first;
}

/*
 * Does one step for a user. @own: the current process is dying, and reports only its own death, and
 * only to words of that user, so that no other user can delay it. Returns false if there is nothing
 * to do.
 */
static bool memwait_reap(struct memwait_user *user, bool own, u64 number)
{
	struct memwait_identity *identity = memwait_identity_dead(user, own);

	if (!identity)
		return false;
	if (!memwait_report_death(identity, own, number))
		memwait_identity_reported(identity, own);
	memwait_identity_put(identity);
	return true;
}

/* Does some steps, see the top of this file. Returns false if nothing is left. */
static bool memwait_reap_some(struct memwait_user *user, bool own)
{
	const u64 number = memwait_new_call();
	unsigned int nr;

	for (nr = 0; nr < MEMWAIT_DEATH_RUN; nr++) {
		if (!memwait_reap(user, own, number))
			return false;
		cond_resched();
	}
	return true;
}

/**
 * memwait_reap_work() - reap the dead identities of a user
 * @work: the user's work item, which has a reference to the user
 *
 * Context: the work item, process context.
 */
void memwait_reap_work(struct work_struct *work)
{
	struct memwait_user *user = container_of(work, struct memwait_user, reap);

	/* If the work item is queued already, the queued item has another reference. */
	if (!memwait_reap_some(user, false) || !queue_work(memwait_reap_queue, work))
		memwait_user_put(user);
}

/**
 * memwait_close_descriptor() - handle the close of a descriptor
 * @file: the context
 * @id: see memwait_flush()
 *
 * A dying process reports its death to its own user's waiters, so that these waiters need not wait
 * for a kernel thread. The process does not report to waiters of other users, of which there may be
 * many.
 *
 * Context: process context, may sleep.
 *
 * Return: 0.
 */
int memwait_close_descriptor(struct file *file, fl_owner_t id)
{
	const struct memwait_context *context = file->private_data;
	int ret = memwait_flush(file, id);

	if (unlikely(current->flags & PF_EXITING) && memwait_user_is_own(context->user))
		memwait_reap_some(context->user, true);
	return ret;
}

/* Gets the id of a context; @bind: binds the context first. Returns 0 or a negative errno. */
static int memwait_owner_context(struct file *file, bool bind, u64 *id)
{
	struct memwait_context *context = file->private_data;
	struct memwait_identity *identity;
	int err = bind ? memwait_identity_bind(context) : memwait_context_use(context);

	/* A bound context's id is no secret to a process that has a descriptor of the context. */
	*id = READ_ONCE(context->id);
	if (bind && !err)
		memwait_flush(file, current->files);	/* a thread may have closed the file */
	if (bind)
		return err;
	if (err)
		return *id ? 0 : err;
	identity = *id ? NULL : memwait_identity_new(context, NULL);
	if (identity && !IS_ERR(identity))
		*id = identity->id;
	memwait_context_unuse(context);
	return PTR_ERR_OR_ZERO(identity);
}

/* Gets the id of the current thread. Returns 0 or a negative errno. */
static int memwait_owner_thread(struct memwait_context *context, u64 *id)
{
	struct memwait_identity *identity = memwait_identity_of(current) ?:
					    memwait_identity_new(context, current);

	if (IS_ERR(identity))
		return PTR_ERR(identity);
	*id = identity->id;
	return 0;
}

/* Ends the id of the current thread, if the thread has an id. Returns 0. */
static int memwait_owner_exits(u64 *id)
{
	struct memwait_identity *identity = memwait_identity_of(current);

	if (identity) {
		*id = identity->id;
		memwait_identity_kill(identity, true);
	}
	return 0;
}

/**
 * memwait_ioc_owner() - MEMWAIT_IOC_OWNER
 * @file: the caller's context
 * @owner: argument from user space, unchecked
 * @user: its user-space address; receives the id
 *
 * Context: process context, may sleep.
 *
 * Return: 0; -EINVAL; -EOPNOTSUPP: this kernel does not report deaths; -EFAULT: @user cannot be
 * written, and nothing was done; -ENOSPC: over the user's limit; -ENOMEM; -EPERM: the context is
 * bound to another process, or has ended; -EBUSY: the context can no longer be bound;
 * -ERESTARTNOINTR: a signal is pending.
 */
int memwait_ioc_owner(struct file *file, const struct memwait_owner *owner,
		      struct memwait_owner __user *user)
{
	struct memwait_context *context = file->private_data;
	u64 id = 0;
	int err;

	if (owner->reserved)
		return -EINVAL;
	if (owner->flags && owner->flags != MEMWAIT_OWNER_CONTEXT &&
	    owner->flags != MEMWAIT_OWNER_EXIT &&
	    owner->flags != (MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND))
		return -EINVAL;
	if (!memwait_has_owners)
		return -EOPNOTSUPP;
	/* Probe the address before anything is done. */
	if (put_user(0, &user->id))
		return -EFAULT;

	do {
		if (owner->flags & MEMWAIT_OWNER_CONTEXT)
			err = memwait_owner_context(file, owner->flags & MEMWAIT_OWNER_BIND, &id);
		else if (owner->flags & MEMWAIT_OWNER_EXIT)
			err = memwait_owner_exits(&id);
		else
			err = memwait_owner_thread(context, &id);
		if (err != -EAGAIN)
			break;
		memwait_reap_some(context->user, false);
	} while (!signal_pending(current));
	if (err)
		return err == -EAGAIN ? -ERESTARTNOINTR : err;
	return put_user(id, &user->id) ? -EFAULT : 0;
}

/*
 * Called when a thread dies of a signal, exits, or executes a program. @ended: the thread has
 * exited by itself, which is not a death.
 */
static void memwait_has_died(const struct task_struct *task, bool ended)
{
	struct memwait_identity *identity = memwait_identity_of(task);

	if (unlikely(identity))
		memwait_identity_kill(identity, ended);
}

/*
 * Whether a thread exits by exit(2). exit_group(2), and a signal that kills the process, set
 * SIGNAL_GROUP_EXIT; an execve(2) by another thread sets .group_exec_task; and if the kernel ends
 * only this thread, the exit code of the thread contains a signal. The last thread of a process may
 * count as killed, because the kernel sets SIGNAL_GROUP_EXIT for it as well.
 */
static bool memwait_ends_by_itself(const struct task_struct *task)
{
	if (READ_ONCE(task->signal->group_exec_task))
		return false;
	smp_rmb();	/* the flag is set before a killed execve() clears .group_exec_task */
	return !(READ_ONCE(task->signal->flags) & SIGNAL_GROUP_EXIT) && !(task->exit_code & 0x7f);
}

#ifdef MEMWAIT_EXIT_HAS_GROUP_DEAD
static void memwait_exit_probe(void *data, struct task_struct *task, bool group_dead)
#else
static void memwait_exit_probe(void *data, struct task_struct *task)
#endif
{
	memwait_has_died(task, memwait_ends_by_itself(task));
}

#ifdef MEMWAIT_HAS_PREPARE_EXEC
#define MEMWAIT_EXEC	"sched_prepare_exec"
static void memwait_exec_probe(void *data, struct task_struct *task, struct linux_binprm *bprm)
#else
#define MEMWAIT_EXEC	"sched_process_exec"
static void memwait_exec_probe(void *data, struct task_struct *task, pid_t old_pid,
			       struct linux_binprm *bprm)
#endif
{
	memwait_has_died(task, false);
}

/*
 * Whether the current thread dies of a signal that it takes, according to the rules in
 * get_signal().
 */
static bool memwait_is_fatal(int sig, const struct k_sigaction *action)
{
	return sig == SIGKILL ||
	       (action->sa.sa_handler == SIG_DFL && !sig_kernel_ignore(sig) &&
		!sig_kernel_stop(sig) && !(READ_ONCE(current->signal->flags) & SIGNAL_UNKILLABLE));
}

/* Called with interrupts disabled, under the thread's siglock. */
static void memwait_signal_probe(void *data, int sig, struct kernel_siginfo *info,
				 struct k_sigaction *action)
{
	if (memwait_is_fatal(sig, action))
		memwait_has_died(current, false);
}

/*
 * The kernel may report an exit late: before 6.16 only after the memory was freed, and in all
 * versions only after a core dump. Therefore a fatal signal already counts as the death. Every
 * thread of a killed process takes such a signal.
 *
 * The tracepoints are not exported by name, but for_each_kernel_tracepoint() finds them. No
 * exported function notifies a module of the end of every thread. If the module were in the kernel
 * tree, do_exit(), get_signal() and begin_new_exec() could call memwait_has_died() instead.
 */
static struct memwait_probe {
	const char *name;
	void *function;
	struct tracepoint *tracepoint;
} memwait_probes[] = {
	{ "signal_deliver", memwait_signal_probe },
	{ "sched_process_exit", memwait_exit_probe },
	{ MEMWAIT_EXEC, memwait_exec_probe },
};

static void memwait_find_tracepoint(struct tracepoint *tracepoint, void *data)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(memwait_probes); i++) {
		if (!strcmp(tracepoint->name, memwait_probes[i].name))
			memwait_probes[i].tracepoint = tracepoint;
	}
}

/* Unregisters the first @nr probes. None of these runs after the function returns. */
static void memwait_unregister_probes(unsigned int nr)
{
	while (nr--)
		tracepoint_probe_unregister(memwait_probes[nr].tracepoint,
					    memwait_probes[nr].function, NULL);
	tracepoint_synchronize_unregister();
}

/* Returns 0 or a negative errno, with no probe registered. */
static int __init memwait_register_probes(void)
{
	unsigned int i;
	int err;

	check_trace_callback_type_signal_deliver(memwait_signal_probe);
	check_trace_callback_type_sched_process_exit(memwait_exit_probe);
#ifdef MEMWAIT_HAS_PREPARE_EXEC
	check_trace_callback_type_sched_prepare_exec(memwait_exec_probe);
#else
	check_trace_callback_type_sched_process_exec(memwait_exec_probe);
#endif
	for (i = 0; i < ARRAY_SIZE(memwait_probes); i++) {
		err = tracepoint_probe_register(memwait_probes[i].tracepoint,
						memwait_probes[i].function, NULL);
		if (err) {
			memwait_unregister_probes(i);
			return err;
		}
	}
	return 0;
}

/**
 * memwait_owner_init() - register the probes, if the kernel reports deaths
 *
 * Context: process context, may sleep.
 *
 * Return: 0; or a negative errno.
 */
int __init memwait_owner_init(void)
{
	unsigned int i;
	int err;

	memwait_reap_queue = alloc_workqueue("memwait_reap", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!memwait_reap_queue)
		return -ENOMEM;

	/* An owner's id with its two flag bits needs a 64-bit word. */
	if (!IS_ENABLED(CONFIG_64BIT) || !IS_ENABLED(CONFIG_TRACEPOINTS))
		return 0;
	for_each_kernel_tracepoint(memwait_find_tracepoint, NULL);
	for (i = 0; i < ARRAY_SIZE(memwait_probes); i++) {
		if (!memwait_probes[i].tracepoint)
			return 0;
	}
	err = memwait_register_probes();
	if (err)
		destroy_workqueue(memwait_reap_queue);
	memwait_has_owners = !err;
	return err;
}

/**
 * memwait_owner_exit() - unregister the probes
 *
 * Context: process context, may sleep; no probe runs after it returns.
 */
void memwait_owner_exit(void)
{
	if (IS_ENABLED(CONFIG_TRACEPOINTS) && memwait_has_owners)
		memwait_unregister_probes(ARRAY_SIZE(memwait_probes));
	destroy_workqueue(memwait_reap_queue);
}
