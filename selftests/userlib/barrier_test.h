/* SPDX-License-Identifier: GPL-2.0 */
/* Threads that stand still in a call on a barrier. The test has an intercept(). */
#ifndef BARRIER_TEST_H
#define BARRIER_TEST_H

#include "userlib_test.h"
#include "ioctl_test.h"

/* A thread that stands still when it has found all present, and is about to wake them. */
static __thread int *stands_still;

/* Sets *still to 1, and returns when it is 2. */
static void stand_still(int *still)
{
	int begins = 0;

	__atomic_compare_exchange_n(still, &begins, 1, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	spin_until(__atomic_load_n(still, __ATOMIC_ACQUIRE) == 2);
}

/* Of intercept(). */
static void stand_still_before(unsigned long request)
{
	if (stands_still && request == MEMWAIT_IOC_CHANGE_NOTIFY) {
		stand_still(stands_still);
		stands_still = NULL;
	}
}

struct last {
	memwait_barrier_t *barrier;
	int still;
};

static int find_all_and_stand_still(void *arg)
{
	struct last *last = arg;

	stands_still = &last->still;
	return memwait_barrier_wait(last->barrier);
}

#endif
