/* SPDX-License-Identifier: GPL-2.0 */
/* Events. */
#ifndef STEPPER_EVENT_TEST_H
#define STEPPER_EVENT_TEST_H

#include "stepper_test.h"

STAGE_CALL(make_event, memwait_event_init(&scene->objects.event, 0) ||
	   (stage->scenario->number && memwait_event_set(&scene->objects.event)))

OPERATION(event_set, memwait_event_set(&objects->event))
OPERATION(event_clear, memwait_event_clear(&objects->event))
OPERATION(wait_for_event, memwait_event_wait(&objects->event))

static int await_event(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();

	return memwait_event_clockwait(&objects->event, CLOCK_MONOTONIC, &deadline);
}

static bool event_is_unset(void)
{
	return !memwait_event_is_set(&copied()->event);
}

STAGE_CALL(release_event, event_set(&scene->objects))

/* Who waits has been woken if it is set, and otherwise by the next set. */
static const char *check_event(struct stage *stage)
{
	bool clears = stage->scenario->operation == event_clear;

	followers_come(stage);
	settle(stage, event_is_unset);
	if (ended() && (scene->objects.result || event_is_unset() != clears))
		return "it has returned, and the event is not as it says";
	if (event_is_unset()) {
		if (!clears && stage->releases)
			return "it was set, and is not";
		if (event_set(&scene->objects))
			return "it cannot be set";
	}
	settle(stage, NULL);
	helper_start(stage, HELPERS - 1, await_event);
	settle(stage, NULL);
	if (!all_well(stage) && memwait_event_destroy(&scene->objects.event))
		return "it cannot be destroyed";
	return all_well(stage);
}

#define EVENT_TEST(id, text, ...) STEPPER_TEST(event_##id, "event " text,		\
					       .prepare = make_event, .check = check_event, \
					       __VA_ARGS__)

EVENT_TEST(set, "set", .operation = event_set)
EVENT_TEST(set_waiters, "set, some wait", .before = { await_event, await_event },
	   .operation = event_set)
EVENT_TEST(clear, "clear", .operation = event_clear, .number = 1)
EVENT_TEST(wait_set, "wait, it is set", .operation = wait_for_event, .number = 1)
EVENT_TEST(wait, "wait", .operation = wait_for_event, .behind = { await_event },
	   .release = release_event)

#endif /* STEPPER_EVENT_TEST_H */
