// SPDX-License-Identifier: GPL-2.0-only
/*
 * The start of a wait: what begin.h does not inline.
 */
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "begin.h"
#include "memwait.h"

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
 * __memwait_begin_put() - memwait_begin_put() of several words
 * @words: see memwait_begin_put()
 * @stride: see memwait_begin_get()
 * @nr: length of @words
 *
 * Context: process context.
 */
void __memwait_begin_put(struct memwait_word *words, size_t stride, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		memwait_word_put(memwait_word_at(words, stride, i));
}

/**
 * __memwait_begin_get() - memwait_begin_get() of several words
 * @words: see memwait_begin_get()
 * @stride: see memwait_begin_get()
 * @waits: see memwait_begin_get()
 * @nr: length of @words
 *
 * Context: process context, may sleep.
 *
 * Return: see memwait_begin_get().
 */
int __memwait_begin_get(struct memwait_word *words, size_t stride,
			const struct memwait_wait *waits, u32 nr)
{
	u32 i;
	int ret;

	for (i = 0; i < nr; i++) {
		ret = memwait_word_get(memwait_word_at(words, stride, i), waits[i].addr,
				       waits[i].flags);
		if (ret) {
			__memwait_begin_put(words, stride, i);
			return ret;
		}
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
 * Return: 0 if all are equal; MEMWAIT_NOT_EQUAL; or -EFAULT, which takes precedence.
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
 * @restarts: -ERESTARTSYS: any signal ends the call; -EINTR: only a signal that kills the thread
 *
 * Context: process context, may sleep; the caller has put the words.
 *
 * Return: 0 to retry, or @restarts.
 */
int memwait_begin_again(int restarts)
{
	if (restarts == -ERESTARTSYS ? signal_pending(current) : memwait_is_killed())
		return restarts;
	cond_resched();
	return 0;
}
