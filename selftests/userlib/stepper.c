// SPDX-License-Identifier: GPL-2.0
/*
 * A process is killed at each instruction of each function on shared objects. Processes that wait
 * for an object that is free must continue.
 */
#include "stepper_barrier_test.h"
#include "stepper_channel_test.h"
#include "stepper_cond_test.h"
#include "stepper_event_test.h"
#include "stepper_mutex_test.h"
#include "stepper_rwlock_test.h"
#include "stepper_sem_test.h"
#include "stepper_waitgroup_test.h"

/* This test must run last. */
TEST_F_TIMEOUT(stepper, total, 300)
{
	ksft_print_msg("all scenarios: %lu instructions, %lu deaths\n", total[0], total[1]);
	if (!total[0])
		SKIP(return, "no scenario ran");
	EXPECT_LT(total[0] / stride(), total[1]);
}

TEST_HARNESS_MAIN
