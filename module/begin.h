/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The steps that start a thread's wait or an async wait, in the order that R2 requires. Requeue
 * retries in the same way.
 *
 *	memwait_check_wait(),	the arguments
 *	memwait_begin_copy()
 *	memwait_begin_get()	the keys of the words
 *	memwait_begin_check()	values, owner, deadline; faults in pages that are absent
 *	join			each word is compared again, under the lock of its queue.
 *				-EAGAIN: the word could not be read there
 *	memwait_begin_put(),	retry from memwait_begin_get(). An async wait is freed, and its
 *	memwait_begin_again()	entry is armed again
 *
 * A call for one word passes the constant 1 as the number of words. The compiler then removes the
 * loops, which saves a tenth of the time of a wait.
 */
#ifndef MEMWAIT_BEGIN_H
#define MEMWAIT_BEGIN_H

#include "owner.h"

int memwait_begin_copy(struct memwait_wait *waits, u64 from, u32 nr);
int memwait_begin_compare(const struct memwait_wait *waits, u32 nr, u32 *index);
int memwait_begin_again(void);

/**
 * memwait_begin_put() - put the files that memwait_begin_get() got
 * @waiters: the waiters; a thread's waiters are in no queue
 * @nr: number of @waiters
 *
 * Context: process context.
 */
static __always_inline void memwait_begin_put(struct memwait_waiter *waiters, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		memwait_word_put(&waiters[i].word);
}

/**
 * memwait_begin_get() - find the keys of the words of a wait
 * @waiters: the waiters, whose words are filled in on success; put with memwait_begin_put()
 * @waits: address and flags of each word, checked
 * @nr: number of words
 *
 * Context: process context, may sleep.
 *
 * Return: 0, or the error of memwait_word_get() for the first word that has no key.
 */
static __always_inline int memwait_begin_get(struct memwait_waiter *waiters,
					     const struct memwait_wait *waits, u32 nr)
{
	u32 i;
	int ret;

	for (i = 0; i < nr; i++) {
		ret = memwait_word_get(&waiters[i].word, waits[i].addr, waits[i].flags);
		if (ret) {
			memwait_begin_put(waiters, i);
			return ret;
		}
	}
	return 0;
}

/**
 * memwait_begin_check() - check whether the wait would end immediately
 * @waits: the words; MEMWAIT_OWNED only if @nr is 1
 * @nr: number of words
 * @expires: the deadline, from memwait_expires()
 * @clock: its clock
 * @index: on MEMWAIT_NOT_EQUAL, set to the first word that differs; if @nr is 1, the caller has
 *	set it to 0
 *
 * Context: process context, may fault and sleep.
 *
 * Return: 0 if it would not end immediately; MEMWAIT_NOT_EQUAL, MEMWAIT_OWNER_DIED or
 * MEMWAIT_TIMED_OUT; or -EFAULT.
 */
static __always_inline int memwait_begin_check(const struct memwait_wait *waits, u32 nr,
					       ktime_t expires, int clock, u32 *index)
{
	int ret;

	if (nr == 1) {
		ret = memwait_compare(waits->addr, waits->expected, waits->flags);
		if (!ret && memwait_names_dead_owner(waits))
			ret = MEMWAIT_OWNER_DIED;
	} else {
		ret = memwait_begin_compare(waits, nr, index);
	}
	if (!ret && memwait_has_passed(expires, clock))
		ret = MEMWAIT_TIMED_OUT;
	return ret;
}

/* arm.c */
int memwait_ioc_wait_async(struct memwait_context *context, const struct memwait_wait_async *batch);

/* wait.c */
int memwait_ioc_wait(const struct memwait_wait *wait, struct memwait_context *context);
int memwait_ioc_wait_any(const struct memwait_wait_any *any, struct memwait_wait_any __user *user,
			 struct memwait_context *context);
int memwait_ioc_notify_wait(const struct memwait_notify_wait *arg,
			    struct memwait_notify_wait __user *user,
			    struct memwait_context *context);

#endif /* MEMWAIT_BEGIN_H */
