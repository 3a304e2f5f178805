/* SPDX-License-Identifier: GPL-2.0 */
/* Wait groups. */
#ifndef STEPPER_WAITGROUP_TEST_H
#define STEPPER_WAITGROUP_TEST_H

#include "stepper_test.h"

STAGE_CALL(make_group, memwait_waitgroup_init(&scene->objects.group, 0, stage->scenario->number))

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

STAGE_CALL(release_group, group_done(&scene->objects))

static const char *check_group(struct stage *stage)
{
	bool done = stage->scenario->operation == group_done;

	followers_come(stage);
	settle(stage, group_counts);
	if (ended() && (scene->objects.result || group_counts()))
		return "it has returned, and the count is not zero";
	if (group_counts()) {
		if (!done && stage->releases)
			return "it is done, and the count is not zero";
		if (group_done(&scene->objects))
			return "it cannot be done";
	}
	settle(stage, NULL);
	helper_start(stage, HELPERS - 1, await_group);
	settle(stage, NULL);
	/* One that was killed in its wait has not left. */
	if (!all_well(stage) && (done || ended()) &&
	    memwait_waitgroup_destroy(&scene->objects.group))
		return "it cannot be destroyed";
	return all_well(stage);
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
