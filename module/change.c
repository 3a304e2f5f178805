// SPDX-License-Identifier: GPL-2.0-only
/*
 * Change and notify: a store to a word and the notify that follows it, which no death separates.
 *
 * A program that stores to a word and then notifies can die in between, and its waiters sleep on.
 * Here the change is made with page faults disabled. Nothing between it and the notify sleeps for
 * something that user space can hold up, and no signal ends the notify.
 */
#include <linux/mutex.h>	/* on PREEMPT_RT before 6.13 futex.h forgets it */
#include <linux/futex.h>
#include <linux/pagemap.h>
#include <linux/uaccess.h>
#include <asm/futex.h>

#include "compat.h"
#include "memwait.h"

/* The kernel's operations on words of 32 bits are those of futex(2). */
static int memwait_change_word(const struct memwait_change *change, u32 *old)
{
	u32 __user *word = u64_to_user_ptr(change->notify.addr);
	int operand = change->operand, value = 0, op = 0, err;

	switch (change->operation) {
	case MEMWAIT_CHANGE_SET:
		op = FUTEX_OP_SET;
		break;
	case MEMWAIT_CHANGE_ADD:
		op = FUTEX_OP_ADD;
		break;
	case MEMWAIT_CHANGE_AND:
		op = FUTEX_OP_ANDN;
		operand = ~operand;
		break;
	case MEMWAIT_CHANGE_OR:
		op = FUTEX_OP_OR;
		break;
	case MEMWAIT_CHANGE_XOR:
		op = FUTEX_OP_XOR;
		break;
	}
	pagefault_disable();
	err = arch_futex_atomic_op_inuser(op, operand, &value, word);
	pagefault_enable();
	*old = value;
	return err;
}

/**
 * memwait_change_notify() - MEMWAIT_IOC_CHANGE_NOTIFY
 * @change: as it came from user space
 * @user: where it came from: gets the old value at the end
 * @kept: as memwait_queue_unlock()
 *
 * Context: process context, may sleep before the change.
 *
 * Return: how many waiters were woken; or, and then nothing was done,
 * * -EINVAL: a misaligned address, an unknown flag or operation, not 32 bits, @change.reserved
 * * -EFAULT: the word cannot be written, nor read; or @user cannot be written
 * * -EOPNOTSUPP: a mapping of a device or of an anonymous inode's file
 * * -EINTR: the task is being killed
 * * -ERESTARTNOINTR: a signal has come
 */
int memwait_change_notify(const struct memwait_change *change, struct memwait_change __user *user,
			  struct memwait_kept_queues *kept)
{
	const struct memwait_notify *notify = &change->notify;
	struct memwait_word word __uninitialized;
	int ret;
	u32 old;

	ret = memwait_check(notify->addr, notify->flags, MEMWAIT_WORD_FLAGS);
	if (ret || (notify->flags & MEMWAIT_SIZE_MASK) != MEMWAIT_SIZE_U32)
		return -EINVAL;
	if (change->operation > MEMWAIT_CHANGE_XOR || change->reserved)
		return -EINVAL;
	if (put_user(0, &user->old))
		return -EFAULT;

	for (;;) {
		ret = memwait_word_get(&word, notify->addr, notify->flags);
		if (ret)
			return ret;
		ret = memwait_change_word(change, &old);
		if (likely(!ret))
			break;
		memwait_word_put(&word);
		if (ret != -EFAULT && ret != -EAGAIN)
			return ret;
		if (fault_in_safe_writeable(u64_to_user_ptr(notify->addr), sizeof(u32)))
			return -EFAULT;
		/* Nothing is done yet. The page may go each time, or be one of a shadow stack. */
		if (signal_pending(current))
			return -ERESTARTNOINTR;
		cond_resched();
	}
	if (notify->count)
		ret = memwait_notify_surely(&word.key, notify->count, kept);
	memwait_word_put(&word);
	/* It could be written before. If it cannot be any more, the change is made all the same. */
	(void)put_user(old, &user->old);
	return ret;
}
