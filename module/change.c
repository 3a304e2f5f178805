// SPDX-License-Identifier: GPL-2.0-only
/*
 * Change and notify: changes a word and notifies its waiters. The caller cannot die in between.
 *
 * A program that stores to a word in user space and then notifies can die in between, and leave its
 * waiters asleep. This call changes the word with page faults disabled. Between the change and the
 * notify, the call does not sleep on anything that user space can delay, and no signal ends the
 * notify.
 *
 * With MEMWAIT_CHANGE_IF_NONE_WOKEN, the word is changed in the lock section that finds no waiter
 * to wake. A wait compares the word and joins its queue under the same lock, so the wait is either
 * woken or sees the change.
 */
#include <linux/mutex.h>	/* futex.h lacks it on PREEMPT_RT before 6.13 */
#include <linux/futex.h>
#include <linux/pagemap.h>
#include <linux/uaccess.h>
#include <asm/futex.h>

#include "scan.h"
#include "trace.h"

/*
 * Returns the 32-bit word to change. If the waiters' word is smaller, this is the 32-bit word that
 * contains it.
 */
static void __user *memwait_changed_word(const struct memwait_change *change)
{
	return u64_to_user_ptr(change->notify.addr & ~(u64)(sizeof(u32) - 1));
}

/*
 * Tries to change the word once, with the compare-and-swap that futex(2) uses. Fails with -EAGAIN
 * if another thread changes the word at the same time, so that user space cannot prolong the lock
 * section of a bucket. @old is written only if the word was changed.
 */
static int memwait_change_word(const struct memwait_change *change, u32 *old)
{
	u32 __user *word = memwait_changed_word(change);
	const u32 operand = change->operand;
	u32 value = 0, next = 0, seen = 0;
	int err;

	pagefault_disable();
	err = get_user(value, word);
	switch (change->operation & ~MEMWAIT_CHANGE_IF_NONE_WOKEN) {
	case MEMWAIT_CHANGE_SET:
		next = operand;
		break;
	case MEMWAIT_CHANGE_ADD:
		next = value + operand;
		break;
	case MEMWAIT_CHANGE_AND:
		next = value & operand;
		break;
	case MEMWAIT_CHANGE_OR:
		next = value | operand;
		break;
	case MEMWAIT_CHANGE_XOR:
		next = value ^ operand;
		break;
	}
	if (!err)
		err = futex_atomic_cmpxchg_inatomic(&seen, word, value, next);
	pagefault_enable();
	if (!err && seen != value)
		err = -EAGAIN;
	if (!err)
		*old = value;
	return err;
}

/*
 * Returns the number of waiters woken, or an error if nothing was done. Until a waiter has been
 * woken, each step examines all present waiters, starting with the first, and a signal ends the
 * call.
 */
static int memwait_notify_or_change(const struct memwait_change *change,
				    const struct memwait_key *key, u32 *old)
{
	struct memwait_bucket *bucket = memwait_bucket_of(key);
	struct memwait_scan scan __uninitialized;
	int err = 0;
	bool more;

	memwait_scan_init(&scan, change->notify.count, 0);
	scan.kind = MEMWAIT_SCAN_SURE;
	do {
		memwait_bucket_lock(bucket);
		if (!scan.woken)
			memwait_scan_start(&scan, bucket, key);
		more = memwait_scan_claim(&scan);
		if (!more && !scan.woken)
			err = memwait_change_word(change, old);
		memwait_step_begin();
		spin_unlock(&bucket->lock);
		memwait_step_end(&scan);
		if (!more)
			break;
		memwait_scan_pause(&scan);
		if (!scan.woken && signal_pending(current))
			err = -ERESTARTNOINTR;
	} while (!err);
	if (!err && trace_memwait_notify_enabled())
		trace_memwait_notify(key, change->notify.count, scan.woken, false);
	return err ?: scan.woken;
}

/**
 * memwait_ioc_change_notify() - MEMWAIT_IOC_CHANGE_NOTIFY
 * @change: argument from user space, unchecked
 * @user: its user address; receives the old value at the end
 *
 * Context: process context, may sleep.
 *
 * Return: the number of waiters woken; or, with nothing done,
 * * -EINVAL: misaligned address, unknown flag or operation, @change.reserved set; or a word that
 *   does not have 32 bits or, with MEMWAIT_CHANGE_IF_NONE_WOKEN, has more than 32 bits
 * * -EFAULT: the word or @user cannot be written
 * * -EOPNOTSUPP: see memwait_word_get()
 * * -EINTR: the task is being killed
 * * -ERESTARTNOINTR: a signal is pending
 */
int memwait_ioc_change_notify(const struct memwait_change *change,
			      struct memwait_change __user *user)
{
	const bool if_none_woken = change->operation & MEMWAIT_CHANGE_IF_NONE_WOKEN;
	const struct memwait_notify *notify = &change->notify;
	const u32 size = notify->flags & MEMWAIT_SIZE_MASK;
	struct memwait_word word __uninitialized;
	u32 old = 0;
	int ret;

	ret = memwait_check(notify->addr, notify->flags, MEMWAIT_WORD_FLAGS);
	if (ret || (if_none_woken ? size > MEMWAIT_SIZE_U32 : size != MEMWAIT_SIZE_U32))
		return -EINVAL;
	if ((change->operation & ~MEMWAIT_CHANGE_IF_NONE_WOKEN) > MEMWAIT_CHANGE_XOR ||
	    change->reserved)
		return -EINVAL;
	if (put_user(0, &user->old))
		return -EFAULT;

	for (;;) {
		ret = memwait_word_get(&word, notify->addr, notify->flags);
		if (ret)
			return ret;
		if (if_none_woken)
			ret = memwait_notify_or_change(change, &word.key, &old);
		else
			ret = memwait_change_word(change, &old);
		if (likely(ret >= 0))
			break;
		memwait_word_put(&word);
		if (ret != -EFAULT && ret != -EAGAIN)
			return ret;
		if (ret == -EFAULT &&
		    fault_in_safe_writeable(memwait_changed_word(change), sizeof(u32)))
			return -EFAULT;
		/*
		 * Nothing has been done yet. Without this check the loop might never end, because
		 * the page may be unmapped before each attempt, or may belong to a shadow stack.
		 */
		if (signal_pending(current))
			return -ERESTARTNOINTR;
		cond_resched();
	}
	if (!if_none_woken && notify->count)
		ret = memwait_notify_word(&word.key, notify->count, MEMWAIT_SCAN_SURE);
	memwait_word_put(&word);
	/* @user was writable when probed above. The change remains even if this write fails. */
	(void)put_user(old, &user->old);
	return ret;
}
