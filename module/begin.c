// SPDX-License-Identifier: GPL-2.0-only
/*
 * How a wait begins: what is not inlined of begin.h.
 */
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "begin.h"
#include "memwait.h"

/**
 * memwait_begin_copy() - copy what is waited for from user space, and check it
 * @waits: gets them
 * @from: address of an array of struct memwait_wait
 * @nr: its length
 *
 * Context: process context, may sleep.
 *
 * Return: 0, -EFAULT, -EINVAL or -EOPNOTSUPP.
 */
int memwait_begin_copy(struct memwait_wait *waits, u64 from, u32 nr)
{
	u32 i;
	int ret;

	if (copy_from_user(waits, u64_to_user_ptr(from), nr * sizeof(*waits)))
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
 * @words: as there
 * @stride: as there
 * @nr: as there
 *
 * Context: as there.
 */
void __memwait_begin_put(struct memwait_word *words, size_t stride, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		memwait_word_put(memwait_word_at(words, stride, i));
}

/**
 * __memwait_begin_get() - memwait_begin_get() of several words
 * @words: as there
 * @stride: as there
 * @waits: as there
 * @nr: as there
 *
 * Context: as there.
 *
 * Return: as there.
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
 * @nr: how many
 * @index: set to the first that does not, unless the result is 0
 *
 * Context: process context, may fault and sleep.
 *
 * Return: 0: they do; MEMWAIT_NOT_EQUAL; or -EFAULT, which comes first whatever the words hold.
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
 * memwait_begin_again() - may a call begin again, after -EAGAIN?
 * @restarts: -ERESTARTSYS: any signal ends it; -EINTR: only one that kills the thread does
 *
 * Context: process context, may sleep; the words were given back.
 *
 * Return: 0; or @restarts.
 */
int memwait_begin_again(int restarts)
{
	if (restarts == -ERESTARTSYS ? signal_pending(current) : memwait_is_killed())
		return restarts;
	cond_resched();
	return 0;
}
