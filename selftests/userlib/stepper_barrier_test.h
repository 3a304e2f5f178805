/* SPDX-License-Identifier: GPL-2.0 */
/* Barriers. @number: the number of participants. */
#ifndef STEPPER_BARRIER_TEST_H
#define STEPPER_BARRIER_TEST_H

#include "stepper_test.h"

STEPPER_CALL(make_barrier, memwait_barrier_init(&shared->objects.barrier, 0,
						stepper->scenario->number))

static int note_serial(struct objects *objects, int ret)
{
	if (ret != MEMWAIT_BARRIER_SERIAL_THREAD)
		return ret;
	__atomic_add_fetch(&objects->serials, 1, __ATOMIC_RELAXED);
	return 0;
}

OPERATION(arrive, note_serial(objects, memwait_barrier_wait(&objects->barrier)))

static int meet(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();

	return note_serial(objects, memwait_barrier_clockwait(&objects->barrier, CLOCK_MONOTONIC,
							      &deadline));
}

/* The last participant arrives. */
static int release_barrier(struct stepper *stepper)
{
	helper_start(stepper, stepper->scenario->number - 2, meet);
	return 0;
}

static bool some_are_missing(void)
{
	return true;
}

/*
 * Lets enough participants arrive, including those that already wait. While one participant is
 * missing, the barrier must not open.
 */
static const char *meet_again(struct stepper *stepper)
{
	int i, count = stepper->scenario->number;
	const char *wrong;

	shared->objects.serials = 0;
	for (i = 0; helpers_waiting(meet) < count - 1; i++) {
		if (i == HELPERS)
			return "it opened for too few";
		if (!helper_is_busy(i))
			helper_run_to_sleep(stepper, i, meet);
	}
	settle(stepper, some_are_missing);
	if (helpers_waiting(meet) != count - 1)
		return "it opened for too few";
	for (i = 0; helper_is_busy(i); i++)
		;
	helper_start(stepper, i, meet);
	settle(stepper, NULL);
	wrong = all_well(stepper);
	if (wrong)
		return wrong;
	return shared->objects.serials == 1 ? NULL : "not exactly one got SERIAL_THREAD";
}

static const char *check_barrier(struct stepper *stepper)
{
	const char *wrong;

	if (ended() || stepper->releases) {
		settle(stepper, NULL);
		wrong = all_well(stepper);
		if (wrong)
			return wrong;
	} else {
		settle(stepper, some_are_missing);
	}
	wrong = meet_again(stepper);
	return wrong ? wrong : meet_again(stepper);
}

#define BARRIER_TEST(id, text, ...) STEPPER_TEST(barrier_##id, "barrier, " text,		\
						 .prepare = make_barrier,			\
						 .operation = arrive, .check = check_barrier,	\
						 __VA_ARGS__)

BARRIER_TEST(first, "first arrival", .release = release_barrier, .number = 2)
BARRIER_TEST(second, "second arrival of three", .before = { meet }, .release = release_barrier,
	     .number = 3)
BARRIER_TEST(last, "last arrival", .before = { meet }, .number = 2)
BARRIER_TEST(last_of_three, "last arrival of three", .before = { meet, meet }, .number = 3)

/* Creates the state after a process died in a reset, before it began the next generation. */
static int make_half_reset(struct stepper *stepper)
{
	int ret = make_barrier(stepper);

	shared->objects.barrier.reserved[0] |= 2;
	return ret;
}

STEPPER_TEST(barrier_half_reset, "barrier, first arrival after half a reset",
	     .prepare = make_half_reset, .operation = arrive, .check = check_barrier,
	     .release = release_barrier, .number = 2)

OPERATION(abort_barrier, memwait_barrier_abort(&objects->barrier))
OPERATION(reset_barrier, memwait_barrier_reset(&objects->barrier))

static int count_before(struct stepper *stepper)
{
	int n = 0;

	while (stepper->scenario->before[n])
		n++;
	return n;
}

/*
 * An abort or a reset affects all waiters or none. After a reset the barrier works like a new one.
 */
static const char *check_broken(struct stepper *stepper)
{
	bool is_broken = memwait_barrier_inspect(&shared->objects.barrier, NULL, NULL) == EPIPE;
	bool is_reset = stepper->scenario->operation == reset_barrier;
	int broken, n = count_before(stepper);

	if (ended() && shared->objects.result)
		return "it failed";
	if (is_reset ? is_broken : ended() && !is_broken)
		return is_broken ? "it is broken after a reset" : "it is not broken";
	settle(stepper, is_broken || ended() ? NULL : some_are_missing);
	broken = helpers_done(meet, EPIPE);
	if (broken != n && (broken || is_broken || ended()))
		return "not all waiters got EPIPE";
	if (is_reset) {
		if (broken)
			memset(shared->requests, 0, sizeof(shared->requests));
		return meet_again(stepper);
	}
	if (is_broken && memwait_barrier_wait(&shared->objects.barrier) != EPIPE)
		return "a new participant does not get EPIPE";
	if (memwait_barrier_reset(&shared->objects.barrier))
		return "it cannot be reset";
	settle(stepper, NULL);
	if (helpers_done(meet, EPIPE) != n)
		return "not all waiters got EPIPE of the reset";
	memset(shared->requests, 0, sizeof(shared->requests));
	return meet_again(stepper);
}

#define BROKEN_TEST(id, text, what, ...) STEPPER_TEST(barrier_##id, "barrier, " text,		\
						      .prepare = make_barrier,			\
						      .operation = what,			\
						      .check = check_broken, __VA_ARGS__)

BROKEN_TEST(abort, "an abort", abort_barrier, .before = { meet, meet }, .number = 3)
BROKEN_TEST(reset, "a reset", reset_barrier, .before = { meet, meet }, .number = 3)

#endif /* STEPPER_BARRIER_TEST_H */
