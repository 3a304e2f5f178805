/* SPDX-License-Identifier: GPL-2.0 */
/* Wait groups. */
#ifndef STEPPER_WAITGROUP_TEST_H
#define STEPPER_WAITGROUP_TEST_H

#include "stepper_test.h"

STEPPER_CALL(make_group, memwait_waitgroup_init(&shared->objects.group, 0,
						stepper->scenario->number))

OPERATION(group_done, memwait_waitgroup_done(&objects->group))
OPERATION(wait_for_group, memwait_waitgroup_wait(&objects->group))

static int await_group(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();

	return memwait_waitgroup_clockwait(&objects->group, CLOCK_MONOTONIC, &deadline);
}

static bool group_counts(void)
{
	struct timespec past = { 0 };

	return memwait_waitgroup_clockwait(&copied()->group, CLOCK_MONOTONIC, &past) == ETIMEDOUT;
}

STEPPER_CALL(release_group, group_done(&shared->objects))

static const char *check_group(struct stepper *stepper)
{
	bool done = stepper->scenario->operation == group_done;

	start_followers(stepper);
	settle(stepper, group_counts);
	if (ended() && (shared->objects.result || group_counts()))
		return "it returned, but the count is not zero";
	if (group_counts()) {
		if (!done && stepper->releases)
			return "it is done, but the count is not zero";
		if (group_done(&shared->objects))
			return "it cannot be done";
	}
	settle(stepper, NULL);
	helper_start(stepper, HELPERS - 1, await_group);
	settle(stepper, NULL);
	/* A victim that was killed in its wait has not left. */
	if (!all_well(stepper) && (done || ended()) &&
	    memwait_waitgroup_destroy(&shared->objects.group))
		return "it cannot be destroyed";
	return all_well(stepper);
}

#define GROUP_TEST(id, text, ...) STEPPER_TEST(waitgroup_##id, "wait group " text,		\
					       .prepare = make_group, .check = check_group,	\
					       __VA_ARGS__)

GROUP_TEST(done, "done", .operation = group_done, .number = 1)
GROUP_TEST(done_waiters, "done, some wait", .before = { await_group, await_group },
	   .operation = group_done, .number = 1)
GROUP_TEST(wait_zero, "wait, nothing to be done", .operation = wait_for_group)
GROUP_TEST(wait, "wait", .operation = wait_for_group, .behind = { await_group },
	   .release = release_group, .number = 1)

#endif /* STEPPER_WAITGROUP_TEST_H */
