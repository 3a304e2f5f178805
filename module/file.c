// SPDX-License-Identifier: GPL-2.0-only
/*
 * The open file: open, poll, fdinfo, close.
 *
 * A bound context belongs to a process (.process): only threads of that process may arm, cancel and
 * read. The context ends when no descriptor in the table of that process (.table) refers to it and
 * no such call is in progress, even if other processes hold copies of the descriptor. .uses counts
 * these calls, plus one for the table. The thread that drops the last use ends the context itself,
 * so the contexts of a dead process have ended when waitpid(2) returns. If another process shares
 * the table and outlives .process, the context ends when the other process has closed the context;
 * until then, notifies pass over the waits of the context, see claim.c.
 *
 * memwait_flush() is called with the table whenever a descriptor is removed: by close(2) and
 * dup2(2), by an exec that closes the descriptor, and when the table is freed, after its last user.
 * A dup(2) or dup2(2) that races with a close may come too late, and add a descriptor at a number
 * that the close has already looked at. A binding may race with a close by another thread, and
 * therefore also looks for a descriptor:
 *
 *	close					bind
 *	remove the descriptor			set .table
 *	full barrier				full barrier
 *	load .table: look for other descriptors	look for a descriptor
 *
 * Therefore, while .table names a table, that table has a descriptor of the context, or a thread
 * that uses the table is about to look for a descriptor. In both cases the table's memory is not
 * freed, and no other table has its address.
 *
 * The first call that arms, cancels or reads, or that has MEMWAIT_OWNER_CONTEXT, decides which
 * processes may use the context: with MEMWAIT_OWNER_BIND the context is bound; otherwise every
 * process may use it, and it cannot be bound later. See memwait_context_use() and
 * memwait_identity_bind().
 */
#include <linux/fdtable.h>
#include <linux/minmax.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "context.h"
#include "owner.h"
#include "position.h"

/* Number of descriptors that memwait_has_descriptor() looks at in one RCU section. */
#define MEMWAIT_LOOK	1024

/* memwait_binding.table of a bound context that its process has closed. */
static char memwait_closed;

/**
 * memwait_open() - open(2): create a context
 * @inode: the device's inode
 * @file: receives the context
 *
 * Context: process context, may sleep.
 *
 * Return: 0, -ENOMEM, or -EMFILE: over the user's limit.
 */
int memwait_open(struct inode *inode, struct file *file)
{
	struct memwait_context *context;

	context = memwait_context_alloc();
	if (!context)
		return -ENOMEM;
	if (!memwait_user_charge(context->user, MEMWAIT_CONTEXTS, 1)) {
		memwait_context_free(context);
		return -EMFILE;
	}

	memwait_expire_open(context);
	file->private_data = context;
	file->f_mode |= FMODE_NOWAIT;

	/* Use stream_open(): read(2) calls are not serialized if the file has no position. */
	return stream_open(inode, file);
}

/*
 * At the first use of a context that is not bound, lets every process use the context. Returns
 * .table.
 */
static fl_owner_t memwait_context_decide(struct memwait_context *context)
{
	fl_owner_t table;

	/* memwait_identity_bind() also checks and sets .table under the lock. */
	spin_lock(&context->lock);
	table = context->binding.table;
	if (!table) {
		table = &memwait_unbound;
		WRITE_ONCE(context->binding.table, table);
	}
	spin_unlock(&context->lock);
	return table;
}

/**
 * memwait_context_use() - begin a call that only the process of a bound context may make
 * @context: the context
 *
 * The first call on an unbound context decides that any process may use it.
 *
 * Context: process context.
 *
 * Return: 0: call memwait_context_unuse() at the end; -EPERM: the context is bound to another
 * process, or has ended.
 */
int memwait_context_use(struct memwait_context *context)
{
	fl_owner_t table = smp_load_acquire(&context->binding.table);	/* before .process */

	if (unlikely(!table))
		table = memwait_context_decide(context);
	if (likely(table == &memwait_unbound))
		return 0;
	if (!memwait_context_is_own(context) || !refcount_inc_not_zero(&context->binding.uses))
		return -EPERM;
	return 0;
}

/* Ends a context. No call on it is in progress, and none will begin. */
static void memwait_context_end(struct memwait_context *context)
{
	LLIST_HEAD(unused);

	memwait_context_wake(context);
	memwait_async_end_all(context, &unused);
	/* After the waits: see watch.c. */
	if (context->identity)
		memwait_identity_kill(context->identity, false);
	context->identity = NULL;
	memwait_pins_put(context, &unused);	/* last, may block forever */
}

/**
 * memwait_context_unuse() - end a call that only the process of a bound context may make
 * @context: after memwait_context_use(); the context ends now if it was closed during the call
 *
 * The caller puts unused pins only after this call, because putting them may take forever.
 *
 * Context: process context, may sleep.
 */
void memwait_context_unuse(struct memwait_context *context)
{
	if (READ_ONCE(context->binding.table) != &memwait_unbound &&
	    refcount_dec_and_test(&context->binding.uses))
		memwait_context_end(context);
}

/*
 * Whether a descriptor in the current process's table refers to a context. The file's reference
 * count does not show this, because it includes the references of other tables, of calls in
 * progress and of messages. The search starts at the descriptor that the previous search found, so
 * that closing many descriptors one by one takes linear time.
 */
static bool memwait_has_descriptor(const struct file *file)
{
	struct memwait_context *context = file->private_data;
	struct files_struct *files = current->files;
	unsigned int fd = READ_ONCE(context->binding.descriptor), max, nr;
	bool found = false;

	rcu_read_lock();
	max = files_fdtable(files)->max_fds;
	for (nr = 0; nr < max && !found; nr++) {
		if (nr % MEMWAIT_LOOK == MEMWAIT_LOOK - 1) {
			rcu_read_unlock();
			cond_resched();
			rcu_read_lock();
		}
		fd = fd < max ? fd : 0;
		found = files_lookup_fd_raw(files, fd++) == file;
	}
	rcu_read_unlock();
	if (found)
		WRITE_ONCE(context->binding.descriptor, fd - 1);
	return found;
}

/**
 * memwait_flush() - handle the close of a descriptor, which may end a bound context
 * @file: the context
 * @id: the table that had the descriptor: the current process's table, or a table that is being
 *	freed
 *
 * Context: process context, may sleep.
 *
 * Return: 0.
 */
int memwait_flush(struct file *file, fl_owner_t id)
{
	struct memwait_context *context = file->private_data;
	struct pid *process = NULL;

	smp_mb();	/* pairs with the barrier in memwait_identity_bind() */
	if (!id || READ_ONCE(context->binding.table) != id)
		return 0;
	if (id == current->files && memwait_has_descriptor(file))
		return 0;
	/*
	 * Under the lock, because a notify may look at the process, see memwait_context_is_dying().
	 */
	spin_lock(&context->lock);
	if (context->binding.table == id) {
		process = context->binding.process;
		WRITE_ONCE(context->binding.process, NULL);
		WRITE_ONCE(context->binding.table, &memwait_closed);
	}
	spin_unlock(&context->lock);
	if (process) {
		put_pid(process);
		memwait_context_unuse(context);
	}
	return 0;
}

/**
 * memwait_release() - end the context at its last close
 * @inode: the device's inode
 * @file: the context
 *
 * Context: process context, may sleep.
 *
 * Return: 0.
 */
int memwait_release(struct inode *inode, struct file *file)
{
	struct memwait_context *context = file->private_data;

	memwait_expire_close(context);
	memwait_position_free_all(context);
	memwait_user_uncharge(context->user, MEMWAIT_CONTEXTS, 1);
	memwait_context_end(context);
	memwait_context_put(context);
	return 0;
}

/**
 * memwait_poll() - poll(2)
 * @file: the context
 * @table: the poller's table
 *
 * Context: process context; takes the context's lock if a timer has fired.
 *
 * Return: EPOLLIN | EPOLLRDNORM; EPOLLERR | EPOLLHUP: a bound context has ended; or 0.
 */
__poll_t memwait_poll(struct file *file, poll_table *table)
{
	struct memwait_context *context = file->private_data;

	poll_wait(file, &context->completions.pollers, table);
	smp_mb();	/* (D), see wake.c; since 6.14 poll_wait() has it as well */
	if (unlikely(memwait_context_has_ended(context)))
		return EPOLLERR | EPOLLHUP;
	if (READ_ONCE(context->completions.nr) ||
	    (READ_ONCE(context->completions.due) && memwait_is_due(context)))
		return EPOLLIN | EPOLLRDNORM;
	return 0;
}

/**
 * memwait_ioc_info() - MEMWAIT_IOC_INFO
 * @context: the caller's context
 * @arg: user buffer
 * @size: its size; bytes past struct memwait_info are zeroed
 *
 * Context: process context, may sleep.
 *
 * Return: 0, -EINVAL or -EFAULT.
 */
int memwait_ioc_info(struct memwait_context *context, void __user *arg, size_t size)
{
	struct memwait_user *user = context->user;
	struct memwait_info info = {
		.features = (IS_ENABLED(CONFIG_64BIT) ? MEMWAIT_FEATURE_WAIT_U64 : 0) |
			    (memwait_has_owners ? MEMWAIT_FEATURE_OWNERS : 0),
		.max_user_waits = READ_ONCE(memwait_limits[MEMWAIT_WAITS]),
		.user_waits = atomic_long_read(&user->used[MEMWAIT_WAITS]),
		.max_group = MEMWAIT_GROUP_MAX,
		.max_user_contexts = READ_ONCE(memwait_limits[MEMWAIT_CONTEXTS]),
		.user_contexts = atomic_long_read(&user->used[MEMWAIT_CONTEXTS]),
		.max_user_owners = READ_ONCE(memwait_limits[MEMWAIT_OWNERS]),
		.user_owners = atomic_long_read(&user->used[MEMWAIT_OWNERS]),
	};
	size_t known = min(size, sizeof(info));

	if (size < offsetofend(struct memwait_info, reserved))
		return -EINVAL;
	if (copy_to_user(arg, &info, known) || clear_user(arg + known, size - known))
		return -EFAULT;
	return 0;
}

#ifdef CONFIG_PROC_FS
/**
 * memwait_show_fdinfo() - contents of /proc/PID/fdinfo
 * @seq: where to write
 * @file: the context
 *
 * Context: process context; takes the context's lock.
 */
void memwait_show_fdinfo(struct seq_file *seq, struct file *file)
{
	struct memwait_context *context = file->private_data;
	unsigned int pending, completed, pins, places;

	spin_lock(&context->lock);
	pending = context->waits.nr_pending;
	completed = context->completions.nr;
	pins = atomic_read(&context->pins.nr);
	places = context->nr_positions;
	spin_unlock(&context->lock);
	seq_printf(seq, "pending:\t%u\ncompleted:\t%u\npins:\t%u\nplaces:\t%u\n", pending,
		   completed, pins, places);
	/* Not .identity, which is freed when a bound context ends. */
	seq_printf(seq, "context:\t%llu\nowner:\t%llu\n", context->number,
		   READ_ONCE(context->id));
}
#endif
