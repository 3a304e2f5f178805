/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers for tests of waits on several words, on top of several_test.h. */
#ifndef ANY_TEST_H
#define ANY_TEST_H

#include "several_test.h"

#define SMALL	8	/* number of words of a small group */
#define MOST	MEMWAIT_GROUP_MAX

static const uint32_t group_sizes[] = { 1, 2, SMALL, SMALL + 1, MOST };

/* Returns whether none of the n words has a waiter. */
static inline bool nobody(int fd, const struct memwait_wait *waits, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (waiters_of(fd, &waits[i]))
			return false;
	}
	return true;
}

#endif /* ANY_TEST_H */
