/* SPDX-License-Identifier: GPL-2.0 */
/* Events. */
#ifndef STEPPER_EVENT_TEST_H
#define STEPPER_EVENT_TEST_H

#include "stepper_test.h"

STEPPER_CALL(make_event, memwait_event_init(&shared->objects.event, 0) ||
	     (stepper->scenario->number && memwait_event_set(&shared->objects.event)))

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

STEPPER_CALL(release_event, event_set(&shared->objects))

/* If the event is set, the waiters have been woken. Otherwise the next set wakes them. */
static const char *check_event(struct stepper *stepper)
{
	bool clears = stepper->scenario->operation == event_clear;

	start_followers(stepper);
	settle(stepper, event_is_unset);
	if (ended() && (shared->objects.result || event_is_unset() != clears))
		return "it returned, but did not change the event";
	if (event_is_unset()) {
		if (!clears && stepper->releases)
			return "it was set, but is not";
		if (event_set(&shared->objects))
			return "it cannot be set";
	}
	settle(stepper, NULL);
	helper_start(stepper, HELPERS - 1, await_event);
	settle(stepper, NULL);
	if (!all_well(stepper) && memwait_event_destroy(&shared->objects.event))
		return "it cannot be destroyed";
	return all_well(stepper);
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
