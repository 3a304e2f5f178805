/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TIMING_TEST_H
#define TIMING_TEST_H

#include "memwait_test.h"

/*
 * The helpers in this file are only for bounds on time. Other load on the host can make events
 * late, but never early. Therefore a bound that is met once counts as met. selftests/vm/judge-tap
 * reports a test point that has exceeded only such bounds as late, and selftests/vm/run boots
 * again, up to twice, before the point fails. A wrong value, a lost wake-up or a hang fails
 * immediately.
 */
static inline long in_millis(uint64_t ns)
{
	return (long)(ns / NSEC_PER_MSEC);
}

#define EXPECT_IN_TIME(condition) do {			\
	bool in_time_ = (condition);			\
							\
	EXPECT_TRUE(in_time_)				\
		TH_LOG("late: %s", #condition);		\
} while (0)

#define EXPECT_WITHIN_MS(ms, ns) do {			\
	long took_ = in_millis(ns);			\
							\
	EXPECT_GT(ms, took_)				\
		TH_LOG("late: %s: %ld ms", #ns, took_);	\
} while (0)

#endif
