/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TIMING_TEST_H
#define TIMING_TEST_H

#include "memwait_test.h"

/*
 * For bounds on time, and for nothing else. A neighbour of the machine makes things late, and never
 * makes them early: a bound that is met once is met. So selftests/vm/judge-tap takes a point that
 * has missed only such bounds for late, and selftests/vm/run boots anew, up to twice, before the
 * point has failed. A wrong value, a lost wake-up or a hang has failed at once.
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
