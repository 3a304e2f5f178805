/* SPDX-License-Identifier: GPL-2.0 */
/* Barriers; @number: for how many. */
#ifndef STEPPER_BARRIER_TEST_H
#define STEPPER_BARRIER_TEST_H

#include "stepper_test.h"

STAGE_CALL(make_barrier, memwait_barrier_init(&scene->objects.barrier, 0, stage->scenario->number))

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

/* The last one comes. */
static int release_barrier(struct stage *stage)
{
	helper_start(stage, stage->scenario->number - 2, meet);
	return 0;
}

static bool some_are_missing(void)
{
	return true;
}

/* As many as it takes meet, with those who wait already; with fewer it does not open. */
static const char *meet_again(struct stage *stage)
{
	int i, count = stage->scenario->number;
	const char *wrong;

	scene->objects.serials = 0;
	for (i = 0; helpers_within(meet) < count - 1; i++) {
		if (i == HELPERS)
			return "it has opened for too few";
		if (!helper_is_busy(i))
			helper_run_to_sleep(stage, i, meet);
	}
	settle(stage, some_are_missing);
	if (helpers_within(meet) != count - 1)
		return "it has opened for too few";
	for (i = 0; helper_is_busy(i); i++)
		;
	helper_start(stage, i, meet);
	settle(stage, NULL);
	wrong = all_well(stage);
	if (wrong)
		return wrong;
	return scene->objects.serials == 1 ? NULL : "it has not had one last";
}

static const char *check_barrier(struct stage *stage)
{
	const char *wrong;

	if (ended() || stage->releases) {
		settle(stage, NULL);
		wrong = all_well(stage);
		if (wrong)
			return wrong;
	} else {
		settle(stage, some_are_missing);
	}
	wrong = meet_again(stage);
	return wrong ? wrong : meet_again(stage);
}

#define BARRIER_TEST(id, text, ...) STEPPER_TEST(barrier_##id, "barrier, " text,		\
						 .prepare = make_barrier,			\
						 .operation = arrive, .check = check_barrier,	\
						 __VA_ARGS__)

BARRIER_TEST(first, "the first one", .release = release_barrier, .number = 2)
BARRIER_TEST(second, "the second one of three", .before = { meet }, .release = release_barrier,
	     .number = 3)
BARRIER_TEST(last, "the last one", .before = { meet }, .number = 2)
BARRIER_TEST(last_of_three, "the last one of three", .before = { meet, meet }, .number = 3)

/* As a reset leaves it that has died before it began another generation. */
static int make_half_reset(struct stage *stage)
{
	int ret = make_barrier(stage);

	scene->objects.barrier.reserved[0] |= 2;
	return ret;
}

STEPPER_TEST(barrier_half_reset, "barrier, the first one after half a reset",
	     .prepare = make_half_reset, .operation = arrive, .check = check_barrier,
	     .release = release_barrier, .number = 2)

OPERATION(abort_barrier, memwait_barrier_abort(&objects->barrier))
OPERATION(reset_barrier, memwait_barrier_reset(&objects->barrier))

static int count_before(struct stage *stage)
{
	int n = 0;

	while (stage->scenario->before[n])
		n++;
	return n;
}

/* It is aborted for all, or for nobody; or reset for all, or nobody. It is as new after a reset. */
static const char *check_broken(struct stage *stage)
{
	bool is_broken = memwait_barrier_inspect(&scene->objects.barrier, NULL, NULL) == EPIPE;
	bool is_reset = stage->scenario->operation == reset_barrier;
	int told, n = count_before(stage);

	if (ended() && scene->objects.result)
		return "it has failed";
	if (is_reset ? is_broken : ended() && !is_broken)
		return is_broken ? "a reset has left it broken" : "it is not broken";
	settle(stage, is_broken || ended() ? NULL : some_are_missing);
	told = helpers_done(meet, EPIPE);
	if (told != n && (told || is_broken || ended()))
		return "not all have been told";
	if (is_reset) {
		if (told)
			memset(scene->requests, 0, sizeof(scene->requests));
		return meet_again(stage);
	}
	if (is_broken && memwait_barrier_wait(&scene->objects.barrier) != EPIPE)
		return "one that comes is not told";
	if (memwait_barrier_reset(&scene->objects.barrier))
		return "it cannot be reset";
	settle(stage, NULL);
	if (helpers_done(meet, EPIPE) != n)
		return "not all have been told of the reset";
	memset(scene->requests, 0, sizeof(scene->requests));
	return meet_again(stage);
}

#define BROKEN_TEST(id, text, what, ...) STEPPER_TEST(barrier_##id, "barrier, " text,		\
						      .prepare = make_barrier,			\
						      .operation = what,			\
						      .check = check_broken, __VA_ARGS__)

BROKEN_TEST(abort, "an abort", abort_barrier, .before = { meet, meet }, .number = 3)
BROKEN_TEST(reset, "a reset", reset_barrier, .before = { meet, meet }, .number = 3)

#endif /* STEPPER_BARRIER_TEST_H */
