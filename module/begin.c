// SPDX-License-Identifier: GPL-2.0-only
/* The start of a wait: begin.h describes the order of the calls, and has the inline functions. */
#include <linux/uaccess.h>

#include "begin.h"

/**
 * memwait_begin_copy() - copy an array of struct memwait_wait from user space, and check it
 * @waits: the destination
 * @from: user address of the array
 * @nr: length of the array
 *
 * Context: process context, may sleep.
 *
 * Return: 0, -EFAULT, -EINVAL or -EOPNOTSUPP.
 */
int memwait_begin_copy(struct memwait_wait *waits, u64 from, u32 nr)
{
	u32 i;
	int ret;

	if (!memwait_is_address(from) ||
	    copy_from_user(waits, u64_to_user_ptr(from), nr * sizeof(*waits)))
		return -EFAULT;
	for (i = 0; i < nr; i++) {
		ret = memwait_check_wait(&waits[i], MEMWAIT_WORD_FLAGS);
		if (ret)
			return ret;
	}
	return 0;
}

/**
 * memwait_begin_compare() - do all words hold their expected values?
 * @waits: the words
 * @nr: length of @waits
 * @index: set to the first word that differs, if any
 *
 * Context: process context, may fault and sleep.
 *
 * Return: 0 if all are equal; -EFAULT if any word cannot be read; otherwise MEMWAIT_NOT_EQUAL.
 */
int memwait_begin_compare(const struct memwait_wait *waits, u32 nr, u32 *index)
{
	int ret = 0, one;
	u32 i;

	for (i = 0; i < nr; i++) {
		one = memwait_compare(waits[i].addr, waits[i].expected, waits[i].flags);
		if (one < 0)
			return one;
		if (one && !ret) {
			ret = one;
			*index = i;
		}
	}
	return ret;
}

/**
 * memwait_begin_again() - may a call retry after -EAGAIN?
 *
 * The pages of the words may vanish before every retry. Therefore any signal, and the freezer, can
 * end the call.
 *
 * Context: process context, may sleep; the caller has put the words.
 *
 * Return: 0 to retry; or -ERESTARTNOINTR: nothing was done, the call must be restarted.
 */
int memwait_begin_again(void)
{
	if (signal_pending(current))
		return -ERESTARTNOINTR;
	cond_resched();
	return 0;
}
