/* SPDX-License-Identifier: GPL-2.0 */
/* Threads that are stalled inside a call on a barrier. The test provides an intercept(). */
#ifndef BARRIER_TEST_H
#define BARRIER_TEST_H

#include "userlib_test.h"
#include "ioctl_test.h"

/* Set in a thread that is stalled after it found that all have arrived and before it wakes them. */
static __thread int *stalls;

/* Sets *still to 1, and returns when it is 2. */
static void stall(int *still)
{
	int begins = 0;

	__atomic_compare_exchange_n(still, &begins, 1, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	spin_until(__atomic_load_n(still, __ATOMIC_ACQUIRE) == 2);
}

/* To be called by intercept(). */
static void stall_before(unsigned long request)
{
	if (stalls && request == MEMWAIT_IOC_CHANGE_NOTIFY) {
		stall(stalls);
		stalls = NULL;
	}
}

struct last {
	memwait_barrier_t *barrier;
	int still;
};

static int arrive_last_and_stall(void *arg)
{
	struct last *last = arg;

	stalls = &last->still;
	return memwait_barrier_wait(last->barrier);
}

#endif
