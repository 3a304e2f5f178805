// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/memwait: the device, its ioctls, the module. Each file calls only functions in files that
 * are below it in this list:
 *
 *	main.c			ioctls, module init
 *	owner.c			owners, and the work that handles their deaths
 *	wait.c			blocked threads
 *	read.c			reading completions
 *	arm.c			arming async waits
 *	file.c			the open file: open, poll, fdinfo, close
 *	async.c			cancel, close and deadlines of async waits
 *	alloc.c			memory and ids of async waits
 *	requeue.c		requeue
 *	change.c		change and notify
 *	notify.c		notify, and calls in steps
 *	claim.c			how a wait ends; completions
 *	wake.c			waking readers and pollers
 *	position.c		interrupted threads: their queue positions, the effect of a signal
 *	queue.c			queues of waiters
 *	watch.c			deaths of owners, and which waiters are notified of them
 *	bucket.c		the lock of a bucket
 *	begin.c			the start of a wait
 *	identity.c		ids of threads and contexts
 *	pin.c			pins of files and address spaces
 *	context.c		memory and references of contexts
 *	user.c			users and their limits
 *	word.c			words, values and deadlines from user space
 *	trace.c			tracepoints; names of words
 *
 * debugfs.c walks all queues and is outside this order.
 */
#include <linux/build_bug.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "begin.h"
#include "compat.h"
#include "context.h"
#include "owner.h"
#include "position.h"
#include "scan.h"
#include "trace.h"

/* The ABI is the same in 32-bit and 64-bit builds. */
static_assert(sizeof(struct memwait_info) == 64);
static_assert(sizeof(struct memwait_wait) == 32);
static_assert(sizeof(struct memwait_notify) == 16);
static_assert(sizeof(struct memwait_wait_any) == 32);
static_assert(sizeof(struct memwait_async) == 56);
static_assert(sizeof(struct memwait_wait_async) == 16);
static_assert(sizeof(struct memwait_completion) == 32);
static_assert(sizeof(struct memwait_cancel) == 16);
static_assert(sizeof(struct memwait_requeue) == 48);
static_assert(sizeof(struct memwait_notify_wait) == 56);
static_assert(sizeof(struct memwait_notify_many) == 24);
static_assert(sizeof(struct memwait_owner) == 16);
static_assert(sizeof(struct memwait_change) == 32);
static_assert(offsetof(struct memwait_wait_any, deadline) ==
	      offsetof(struct memwait_wait, deadline));
static_assert(offsetof(struct memwait_wait_any, flags) == offsetof(struct memwait_wait, flags));

module_param_named(max_user_waits, memwait_limits[MEMWAIT_WAITS], ulong, 0644);
MODULE_PARM_DESC(max_user_waits,
		 "Most async waits of a user; each pin counts as 8 (default: one for 16 KiB)");
module_param_named(max_user_contexts, memwait_limits[MEMWAIT_CONTEXTS], ulong, 0644);
MODULE_PARM_DESC(max_user_contexts,
		 "Most open contexts of a user (default: one for 256 KiB)");
module_param_named(max_user_owners, memwait_limits[MEMWAIT_OWNERS], ulong, 0644);
MODULE_PARM_DESC(max_user_owners,
		 "Most threads and contexts of a user with an id (default: one for 64 KiB)");

static __always_inline int memwait_copy_arg(void *to, size_t known, const void __user *from,
					    size_t size)
{
	if (likely(size == known))
		return copy_from_user(to, from, known) ? -EFAULT : 0;
	return size < known ? -EINVAL : copy_struct_from_user(to, known, from, size);
}

union memwait_argument {
	struct memwait_wait wait;
	struct memwait_notify notify;
	struct memwait_wait_async wait_async;
	struct memwait_cancel cancel;
	struct memwait_wait_any wait_any;
	struct memwait_requeue requeue;
	struct memwait_notify_wait notify_wait;
	struct memwait_notify_many notify_many;
	struct memwait_owner owner;
	struct memwait_change change;
};

/* Removes the size of the struct from an ioctl number, because the struct may grow. */
#define MEMWAIT_IOC(cmd)	((cmd) & ~IOCSIZE_MASK)

/**
 * memwait_ioctl() - the ioctls of /dev/memwait
 * @file: the context
 * @cmd: MEMWAIT_IOC_*, with the caller's size of the struct
 * @argp: user address of the struct
 *
 * Context: process context, may sleep.
 *
 * Return: the ioctl's own result, see uapi/linux/memwait.h; or
 * * -ENOTTY: unknown ioctl
 * * -EINVAL: the struct is too small
 * * -E2BIG: the struct is larger than in this version, and the additional bytes are not zero
 * * -EFAULT: the struct cannot be read or written
 */
static long memwait_ioctl(struct file *file, unsigned int cmd, unsigned long argp)
{
	struct memwait_context *context = file->private_data;
	void __user *arg = (void __user *)argp;
	size_t size = _IOC_SIZE(cmd);
	union memwait_argument u __uninitialized;
	LLIST_HEAD(unused);
	int ret;

	switch (MEMWAIT_IOC(cmd)) {
	case MEMWAIT_IOC(MEMWAIT_IOC_INFO):
		return memwait_ioc_info(context, arg, size);
	case MEMWAIT_IOC(MEMWAIT_IOC_WAIT):
		ret = memwait_copy_arg(&u.wait, sizeof(u.wait), arg, size);
		return ret ?: memwait_ioc_wait(&u.wait, context);
	case MEMWAIT_IOC(MEMWAIT_IOC_NOTIFY):
		ret = memwait_copy_arg(&u.notify, sizeof(u.notify), arg, size);
		return ret ?: memwait_ioc_notify(&u.notify);
	case MEMWAIT_IOC(MEMWAIT_IOC_WAITERS):
		ret = memwait_copy_arg(&u.notify, sizeof(u.notify), arg, size);
		return ret ?: memwait_ioc_waiters(&u.notify);
	case MEMWAIT_IOC(MEMWAIT_IOC_WAIT_ASYNC):
		ret = memwait_copy_arg(&u.wait_async, sizeof(u.wait_async), arg, size);
		return ret ?: memwait_ioc_wait_async(context, &u.wait_async);
	case MEMWAIT_IOC(MEMWAIT_IOC_CANCEL):
		ret = memwait_copy_arg(&u.cancel, sizeof(u.cancel), arg, size) ?:
		      memwait_context_use(context);
		if (ret)
			return ret;
		ret = memwait_ioc_cancel(context, &u.cancel, &unused);
		memwait_context_unuse(context);
		memwait_pins_put(context, &unused);
		return ret;
	case MEMWAIT_IOC(MEMWAIT_IOC_WAIT_ANY):
		ret = memwait_copy_arg(&u.wait_any, sizeof(u.wait_any), arg, size);
		return ret ?: memwait_ioc_wait_any(&u.wait_any, arg, context);
	case MEMWAIT_IOC(MEMWAIT_IOC_REQUEUE):
		ret = memwait_copy_arg(&u.requeue, sizeof(u.requeue), arg, size);
		return ret ?: memwait_ioc_requeue(&u.requeue, arg);
	case MEMWAIT_IOC(MEMWAIT_IOC_NOTIFY_WAIT):
		ret = memwait_copy_arg(&u.notify_wait, sizeof(u.notify_wait), arg, size);
		return ret ?: memwait_ioc_notify_wait(&u.notify_wait, arg, context);
	case MEMWAIT_IOC(MEMWAIT_IOC_NOTIFY_MANY):
		ret = memwait_copy_arg(&u.notify_many, sizeof(u.notify_many), arg, size);
		return ret ?: memwait_ioc_notify_many(&u.notify_many);
	case MEMWAIT_IOC(MEMWAIT_IOC_OWNER):
		ret = memwait_copy_arg(&u.owner, sizeof(u.owner), arg, size);
		return ret ?: memwait_ioc_owner(file, &u.owner, arg);
	case MEMWAIT_IOC(MEMWAIT_IOC_CHANGE_NOTIFY):
		ret = memwait_copy_arg(&u.change, sizeof(u.change), arg, size);
		return ret ?: memwait_ioc_change_notify(&u.change, arg);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations memwait_fops = {
	.owner = THIS_MODULE,
	.open = memwait_open,
	.flush = memwait_close_descriptor,
	.release = memwait_release,
	.read_iter = memwait_read_iter,
	.poll = memwait_poll,
	.unlocked_ioctl = memwait_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
#ifdef CONFIG_PROC_FS
	.show_fdinfo = memwait_show_fdinfo,
#endif
};

static struct miscdevice memwait_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "memwait",
	.fops = &memwait_fops,
	.mode = 0666,
};

static int __init memwait_init(void)
{
	int err;

	memwait_user_init(memwait_reap_work, memwait_pin_work);
	memwait_position_init();
	err = memwait_queue_init();
	if (err)
		return err;
	err = memwait_pin_init();
	if (err)
		goto exit_queue;
	err = memwait_context_init();
	if (err)
		goto exit_pin;
	err = memwait_identity_init();
	if (err)
		goto exit_context;
	err = memwait_owner_init();
	if (err)
		goto exit_identity;
	err = misc_register(&memwait_device);
	if (err)
		goto exit_owner;
	memwait_debugfs_init();
	return 0;

exit_owner:
	memwait_owner_exit();
exit_identity:
	memwait_identity_exit();
exit_context:
	memwait_context_exit();
exit_pin:
	memwait_pin_exit();
exit_queue:
	memwait_queue_exit();
	return err;
}

static void __exit memwait_exit(void)
{
	memwait_debugfs_exit();
	misc_deregister(&memwait_device);
	memwait_owner_exit();
	memwait_identity_exit();
	memwait_context_exit();
	memwait_pin_exit();
	memwait_queue_exit();
}

module_init(memwait_init);
module_exit(memwait_exit);

MODULE_DESCRIPTION("Wait for and notify words of memory, from threads and event loops");
MODULE_AUTHOR("memwait authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(MEMWAIT_VERSION);
