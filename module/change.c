// SPDX-License-Identifier: GPL-2.0-only
/*
 * Change and notify: stores to a word and notifies, with no chance to die in between.
 *
 * A program that stores and then notifies can die in between, and leave its waiters asleep. Here
 * the change runs with page faults disabled. Nothing between the change and the notify sleeps on
 * anything that user space can delay, and no signal ends the notify.
 */
#include <linux/mutex.h>	/* on PREEMPT_RT before 6.13 futex.h forgets it */
#include <linux/futex.h>
#include <linux/pagemap.h>
#include <linux/uaccess.h>
#include <asm/futex.h>

#include "compat.h"
#include "memwait.h"

/* The kernel's user-space atomics are the 32-bit operations of futex(2). */
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
 * @change: from user space, unchecked
 * @user: its user address; receives the old value at the end
 *
 * Context: process context, may sleep.
 *
 * Return: the number of waiters woken; or, with nothing done,
 * * -EINVAL: misaligned address, unknown flag or operation, not 32 bits, or @change.reserved set
 * * -EFAULT: the word or @user cannot be written
 * * -EOPNOTSUPP: see memwait_word_get()
 * * -EINTR: the task is being killed
 * * -ERESTARTNOINTR: a signal is pending
 */
int memwait_change_notify(const struct memwait_change *change, struct memwait_change __user *user)
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
		/*
		 * Nothing is done yet. The loop may not end by itself: the page may vanish each
		 * time, or be a shadow stack's.
		 */
		if (signal_pending(current))
			return -ERESTARTNOINTR;
		cond_resched();
	}
	if (notify->count)
		ret = memwait_notify_surely(&word.key, notify->count);
	memwait_word_put(&word);
	/* Writable when probed above. The change stands even if this write fails. */
	(void)put_user(old, &user->old);
	return ret;
}
