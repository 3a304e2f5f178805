// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/memwait: the device, its ioctls, the module.
 */
#include <linux/build_bug.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "context.h"
#include "debugfs.h"
#include "identity.h"
#include "memwait.h"

/* The ABI, the same in 32-bit and 64-bit builds. */
static_assert(sizeof(struct memwait_info) == 80);
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
		 "Most async waits of a user, pending or unread (default: one for 16 KiB)");
module_param_named(max_user_contexts, memwait_limits[MEMWAIT_CONTEXTS], ulong, 0644);
MODULE_PARM_DESC(max_user_contexts,
		 "Most open contexts of a user (default: one for 256 KiB)");
module_param_named(max_user_pins, memwait_limits[MEMWAIT_PINS], ulong, 0644);
MODULE_PARM_DESC(max_user_pins,
		 "Most files and address spaces that waits keep (default: one for 512 KiB)");
module_param_named(max_user_owners, memwait_limits[MEMWAIT_OWNERS], ulong, 0644);
MODULE_PARM_DESC(max_user_owners,
		 "Most threads and contexts of a user with an id (default: one for 64 KiB)");

/* INFO is read-only: a caller with a larger struct gets zeros for what is not known here. */
static int memwait_info(struct memwait_context *context, void __user *arg, size_t size)
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
		.max_user_pins = READ_ONCE(memwait_limits[MEMWAIT_PINS]),
		.user_pins = atomic_long_read(&user->used[MEMWAIT_PINS]),
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

static int memwait_ioctl_notify(const struct memwait_notify *notify,
				struct memwait_kept_queues *kept)
{
	struct memwait_word word __uninitialized;
	int ret;

	ret = memwait_check(notify->addr, notify->flags, MEMWAIT_WORD_FLAGS);
	if (ret || !notify->count)
		return ret;
	ret = memwait_word_get(&word, notify->addr, notify->flags);
	if (ret)
		return ret;
	ret = memwait_notify(&word.key, notify->count, kept);
	memwait_word_put(&word);
	return ret;
}

static int memwait_ioctl_waiters(const struct memwait_notify *notify)
{
	struct memwait_word word;
	int ret;

	ret = memwait_check(notify->addr, notify->flags, MEMWAIT_WORD_FLAGS);
	if (ret || notify->count)
		return ret ?: -EINVAL;
	ret = memwait_word_get(&word, notify->addr, notify->flags);
	if (ret)
		return ret;
	ret = memwait_queue_waiters(&word.key);
	memwait_word_put(&word);
	return ret;
}

/* Notifies that are copied, and done, together. */
#define MEMWAIT_NOTIFIES	16

/*
 * Does the first few of them. Returns how many; fewer than @nr only if *@err is set; or -EFAULT:
 * they were done, but the results cannot be told any more.
 */
static int memwait_notify_some(const struct memwait_notify __user *notifies, u32 __user *results,
			       unsigned int nr, u64 call, int *err,
			       struct memwait_kept_queues *kept)
{
	struct memwait_notify notify[MEMWAIT_NOTIFIES] __uninitialized;
	struct memwait_word words[MEMWAIT_NOTIFIES] __uninitialized;
	u32 counts[MEMWAIT_NOTIFIES] __uninitialized;
	unsigned int done, found, i;

	/* Before a hole it may have copied more than it says: then one by one. */
	done = nr - DIV_ROUND_UP(copy_from_user(notify, notifies, nr * sizeof(notify[0])),
				 sizeof(notify[0]));
	while (done < nr && !copy_from_user(&notify[done], &notifies[done], sizeof(notify[0])))
		done++;
	*err = done < nr ? -EFAULT : 0;

	for (i = 0; i < done; i++) {
		int ret = memwait_check(notify[i].addr, notify[i].flags, MEMWAIT_WORD_FLAGS);

		counts[i] = notify[i].count;
		words[i].file = NULL;
		if (!ret && counts[i])
			ret = memwait_word_get(&words[i], notify[i].addr, notify[i].flags);
		if (ret) {
			*err = ret;
			done = i;
		}
	}

	/* Before anything is done: which results can be written? clear_user() may say too few. */
	found = done;
	for (i = 0; results && i < done; i++) {
		if (put_user(0, &results[i])) {
			*err = -EFAULT;
			done = i;
		}
	}

	memwait_notify_many(words, counts, done, call, kept);
	for (i = 0; i < found; i++)
		memwait_word_put(&words[i]);

	if (results && copy_to_user(results, counts, done * sizeof(counts[0])))
		return -EFAULT;
	return done;
}

/*
 * Returns how many entries were processed, or a negative errno if the first one failed, or if
 * results are lost.
 */
static int memwait_ioctl_notify_many(const struct memwait_notify_many *many,
				     struct memwait_kept_queues *kept)
{
	const struct memwait_notify __user *notifies = u64_to_user_ptr(many->notifies);
	u32 __user *results = u64_to_user_ptr(many->woken);
	u64 call = many->count > MEMWAIT_NOTIFIES ? memwait_new_call() : 0;
	u32 done = 0;
	int err = 0, ret;

	if (many->flags || many->count > INT_MAX)
		return -EINVAL;

	while (done < many->count && !err) {
		ret = memwait_notify_some(notifies + done, results ? results + done : NULL,
					  min_t(u32, many->count - done, MEMWAIT_NOTIFIES), call,
					  &err, kept);
		if (ret < 0)
			return ret;
		done += ret;
		cond_resched();
		if (signal_pending(current))
			break;
	}
	return done ?: err;
}

static int memwait_ioctl_requeue(struct memwait_requeue *requeue,
				 struct memwait_requeue __user *user,
				 struct memwait_kept_queues *kept)
{
	struct memwait_word source, target;
	int ret;

	if (requeue->reserved)
		return -EINVAL;
	ret = memwait_check(requeue->addr, requeue->flags, MEMWAIT_WORD_FLAGS);
	if (!ret)
		ret = memwait_check(requeue->target, requeue->flags, MEMWAIT_WORD_FLAGS);
	if (ret)
		return ret;
	if (!IS_ENABLED(CONFIG_64BIT) && memwait_size(requeue->flags) == 8)
		return -EOPNOTSUPP;

	requeue->woken = 0;
	requeue->moved = 0;
	if (put_user(0, &user->woken) || put_user(0, &user->moved))
		return -EFAULT;

	do {
		ret = memwait_word_get(&source, requeue->addr, requeue->flags);
		if (ret)
			return ret;
		ret = memwait_word_get(&target, requeue->target, requeue->flags);
		if (ret)
			goto put_source;
		/* A waiter is given nothing to keep that it did not ask for. */
		ret = source.key.owner == target.key.owner ? 0 : -EXDEV;
		if (!ret)
			ret = memwait_compare(requeue->addr, requeue->expected, requeue->flags);
		if (!ret)
			ret = memwait_requeue(requeue, &source.key, &target.key, kept);
		memwait_word_put(&target);
put_source:
		memwait_word_put(&source);
		ret = memwait_queue_retry(ret);
	} while (ret == -EAGAIN);

	if (!ret && (put_user(requeue->woken, &user->woken) ||
		     put_user(requeue->moved, &user->moved)))
		ret = -EFAULT;
	return ret;
}

/* All structs are of their first version still, so that is the least size as well. */
static __always_inline int memwait_copy_arg(void *to, size_t known, const void __user *from,
					    size_t size)
{
	if (likely(size == known))
		return copy_from_user(to, from, known) ? -EFAULT : 0;
	if (size < known)
		return -EINVAL;
	return copy_struct_from_user(to, known, from, size);
}

/* An ioctl number without the size of its struct, which may grow. */
#define MEMWAIT_IOC(cmd)	((cmd) & ~IOCSIZE_MASK)

/**
 * memwait_ioctl() - the ioctls of /dev/memwait
 * @file: the context
 * @cmd: MEMWAIT_IOC_*, with the size of the struct as the caller knows it
 * @argp: address of that struct
 *
 * Context: process context, may sleep.
 *
 * Return: not negative as uapi/linux/memwait.h says; or
 * * -ENOTTY: unknown ioctl
 * * -EINVAL: a struct that is too small, or what the ioctl says of its fields
 * * -E2BIG: a larger struct with something in it that this version does not know
 * * -EFAULT: the struct cannot be read or written
 */
long memwait_ioctl(struct file *file, unsigned int cmd, unsigned long argp)
{
	struct memwait_context *context = file->private_data;
	struct memwait_kept_queues *kept = &context->user->kept;
	void __user *arg = (void __user *)argp;
	size_t size = _IOC_SIZE(cmd);
	union {
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
	} u __uninitialized;
	int ret;

	switch (MEMWAIT_IOC(cmd)) {
	case MEMWAIT_IOC(MEMWAIT_IOC_INFO):
		return memwait_info(context, arg, size);
	case MEMWAIT_IOC(MEMWAIT_IOC_WAIT):
		ret = memwait_copy_arg(&u.wait, sizeof(u.wait), arg, size);
		return ret ?: memwait_wait(&u.wait, context);
	case MEMWAIT_IOC(MEMWAIT_IOC_NOTIFY):
		ret = memwait_copy_arg(&u.notify, sizeof(u.notify), arg, size);
		return ret ?: memwait_ioctl_notify(&u.notify, kept);
	case MEMWAIT_IOC(MEMWAIT_IOC_WAITERS):
		ret = memwait_copy_arg(&u.notify, sizeof(u.notify), arg, size);
		return ret ?: memwait_ioctl_waiters(&u.notify);
	case MEMWAIT_IOC(MEMWAIT_IOC_WAIT_ASYNC):
		ret = memwait_copy_arg(&u.wait_async, sizeof(u.wait_async), arg, size);
		ret = ret ?: memwait_context_use(context);
		return ret ?: memwait_wait_async(context, &u.wait_async);
	case MEMWAIT_IOC(MEMWAIT_IOC_CANCEL):
		ret = memwait_copy_arg(&u.cancel, sizeof(u.cancel), arg, size);
		ret = ret ?: memwait_context_use(context);
		return ret ?: memwait_cancel(context, &u.cancel);
	case MEMWAIT_IOC(MEMWAIT_IOC_WAIT_ANY):
		ret = memwait_copy_arg(&u.wait_any, sizeof(u.wait_any), arg, size);
		return ret ?: memwait_wait_any(&u.wait_any, arg, context);
	case MEMWAIT_IOC(MEMWAIT_IOC_REQUEUE):
		ret = memwait_copy_arg(&u.requeue, sizeof(u.requeue), arg, size);
		return ret ?: memwait_ioctl_requeue(&u.requeue, arg, kept);
	case MEMWAIT_IOC(MEMWAIT_IOC_NOTIFY_WAIT):
		ret = memwait_copy_arg(&u.notify_wait, sizeof(u.notify_wait), arg, size);
		return ret ?: memwait_notify_wait(&u.notify_wait, arg, context);
	case MEMWAIT_IOC(MEMWAIT_IOC_NOTIFY_MANY):
		ret = memwait_copy_arg(&u.notify_many, sizeof(u.notify_many), arg, size);
		return ret ?: memwait_ioctl_notify_many(&u.notify_many, kept);
	case MEMWAIT_IOC(MEMWAIT_IOC_OWNER):
		ret = memwait_copy_arg(&u.owner, sizeof(u.owner), arg, size);
		return ret ?: memwait_owner(context, &u.owner, arg);
	case MEMWAIT_IOC(MEMWAIT_IOC_CHANGE_NOTIFY):
		ret = memwait_copy_arg(&u.change, sizeof(u.change), arg, size);
		return ret ?: memwait_change_notify(&u.change, arg, kept);
	default:
		return -ENOTTY;
	}
}

static struct miscdevice memwait_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "memwait",
	.fops = &memwait_fops,
	.mode = 0666,
};

static int __init memwait_init(void)
{
	int err;

	memwait_limits_init();
	err = memwait_queue_init();
	if (err)
		return err;
	err = memwait_user_init();
	if (err)
		goto exit_queue;
	err = memwait_async_init();
	if (err)
		goto exit_user;
	memwait_identity_init();
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
	memwait_async_exit();
exit_user:
	memwait_user_exit();
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
	memwait_async_exit();
	memwait_user_exit();
	memwait_queue_exit();
}

module_init(memwait_init);
module_exit(memwait_exit);

MODULE_DESCRIPTION("Wait for and notify words of memory, from threads and event loops");
MODULE_AUTHOR("memwait authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(MEMWAIT_VERSION);
