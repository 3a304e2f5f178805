// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Descriptions of results, and the library's version. */
#include <errno.h>
#include <string.h>

#include "loop.h"
#include "own_words.h"

const char *memwait_strerror(int error)
{
	unsigned int number = error < 0 ? -(unsigned int)error : (unsigned int)error;
	const char *words = memwait_own_words(number);

	/* strerror() of a known number returns a constant string. */
	return words ? words : strerror((int)number);
}

const char *memwait_stroutcome(int result)
{
	switch (result) {
	case MEMWAIT_OK:
		return "Notified";
	case MEMWAIT_NOT_EQUAL:
		return "The word has another value";
	case MEMWAIT_TIMED_OUT:
		return memwait_own_words(ETIMEDOUT);
	case MEMWAIT_PENDING:
		return memwait_own_words(EINPROGRESS);
	case MEMWAIT_OWNER_DIED:
		return "The owner of the word, or a waiter woken before this one, died";
	default:
		return result < 0 ? memwait_strerror(result) : "No outcome";
	}
}

const char *memwait_op_strerror(const memwait_op_t *op, int result)
{
	const struct memwait_op_kind *kind = op ? ((const struct memwait_op *)op)->kind : NULL;

	if (kind && kind->has_outcomes)
		return memwait_stroutcome(result);
	/* Operations on objects have positive error numbers. */
	if (result == MEMWAIT_BARRIER_SERIAL_THREAD)
		return "All participants arrived; this is the serial thread";
	if (kind && kind->epipe && result == EPIPE)
		return kind->epipe;
	return memwait_strerror(result);
}

unsigned int memwait_version(void)
{
	return MEMWAIT_VERSION;
}
