/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The start of a wait, in the order of R2, for threads and async waits. Requeue retries likewise.
 *
 *	memwait_check_wait(),	the arguments
 *	memwait_begin_copy()
 *	memwait_begin_get()	the keys of the words
 *	memwait_begin_check()	values, owner, deadline; faults in what cannot be read
 *	join			each word is compared again, under the lock of its queue.
 *				-EAGAIN: the word could not be read there
 *	memwait_begin_put(),	retry from memwait_begin_get(). A group with pins puts the pins
 *	memwait_begin_again()	instead
 *
 * A call for one word passes the constant 1, so the compiler removes the loops: that saves a tenth
 * of a wait.
 */
#ifndef MEMWAIT_BEGIN_H
#define MEMWAIT_BEGIN_H

#include "memwait.h"

int memwait_begin_copy(struct memwait_wait *waits, u64 from, u32 nr);
int __memwait_begin_get(struct memwait_word *words, size_t stride,
			const struct memwait_wait *waits, u32 nr);
void __memwait_begin_put(struct memwait_word *words, size_t stride, u32 nr);
int memwait_begin_compare(const struct memwait_wait *waits, u32 nr, u32 *index);
int memwait_begin_again(int restarts);

/**
 * memwait_begin_get() - find the keys of the words of a wait
 * @words: filled in on success; put with memwait_begin_put()
 * @stride: distance of @words in bytes
 * @waits: address and flags of each word, checked
 * @nr: number of words
 *
 * Context: process context, may sleep.
 *
 * Return: 0, or the error of memwait_word_get() for the first word that has no key.
 */
static __always_inline int memwait_begin_get(struct memwait_word *words, size_t stride,
					     const struct memwait_wait *waits, u32 nr)
{
	if (nr == 1)
		return memwait_word_get(words, waits->addr, waits->flags);
	return __memwait_begin_get(words, stride, waits, nr);
}

/**
 * memwait_begin_put() - put words of memwait_begin_get()
 * @words: with no waiter in a queue, and no pins
 * @stride: see memwait_begin_get()
 * @nr: number of words
 *
 * Context: process context.
 */
static __always_inline void memwait_begin_put(struct memwait_word *words, size_t stride, u32 nr)
{
	if (nr == 1)
		memwait_word_put(words);
	else
		__memwait_begin_put(words, stride, nr);
}

/**
 * memwait_begin_check() - is there something to wait for?
 * @waits: the words; MEMWAIT_OWNED only if @nr is 1
 * @nr: number of words
 * @expires: the deadline, from memwait_expires()
 * @flags: MEMWAIT_CLOCK_REALTIME or not
 * @index: on MEMWAIT_NOT_EQUAL, set to the first word that differs; if @nr is 1, the caller has
 *	set it to 0
 *
 * Context: process context, may fault and sleep.
 *
 * Return: 0: wait; MEMWAIT_NOT_EQUAL, MEMWAIT_OWNER_DIED or MEMWAIT_TIMED_OUT; or -EFAULT.
 */
static __always_inline int memwait_begin_check(const struct memwait_wait *waits, u32 nr,
					       ktime_t expires, u32 flags, u32 *index)
{
	int ret;

	if (nr == 1) {
		ret = memwait_compare(waits->addr, waits->expected, waits->flags);
		if (!ret && memwait_names_the_dead(waits))
			ret = MEMWAIT_OWNER_DIED;
	} else {
		ret = memwait_begin_compare(waits, nr, index);
	}
	if (!ret && memwait_has_passed(expires, flags))
		ret = MEMWAIT_TIMED_OUT;
	return ret;
}

#endif /* MEMWAIT_BEGIN_H */
