/* SPDX-License-Identifier: GPL-2.0 */
/* Condition variables. */
#ifndef STEPPER_COND_TEST_H
#define STEPPER_COND_TEST_H

#include "stepper_mutex_test.h"

STAGE_CALL(make_cond, memwait_cond_init(&scene->objects.cond, 0) || make_mutex(stage))

OPERATION(wait_for_cond, memwait_cond_wait(&objects->cond, &objects->mutex))
OPERATION(signal_cond, memwait_cond_signal(&objects->cond))
OPERATION(broadcast_cond, memwait_cond_broadcast(&objects->cond))

static int await_cond(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();
	int err, result;

	err = memwait_mutex_clocklock(&objects->mutex, CLOCK_MONOTONIC, &deadline);
	err = mend(objects, err);
	if (err)
		return err;
	result = memwait_cond_clockwait(&objects->cond, &objects->mutex, CLOCK_MONOTONIC,
					&deadline);
	result = mend(objects, result);
	be_inside(objects);
	err = memwait_mutex_unlock(&objects->mutex);
	return result ? result : err;
}

/* Whoever waits for the condition may sleep; for the mutex only as long as that is had. */
static bool nothing_is_signalled(void)
{
	return mutex_is_had() || !memwait_waiters(&scene->objects.mutex, 0);
}

/* All who wait for the mutex get it. Sets *had if it had died with the victim. */
static const char *settle_mutex(struct stage *stage, bool *had)
{
	settle(stage, nothing_is_signalled);
	*had = mutex_is_locked();
	if (!*had)
		return NULL;
	if (scene->kind & ROBUST)
		return "the death of the mutex's owner is not told";
	if (memwait_mutex_unlock(&scene->objects.mutex))
		return "the mutex could not be unlocked";
	settle(stage, nothing_is_signalled);
	return NULL;
}

static const char *newcomer_visits(struct stage *stage)
{
	const char *wrong = all_well(stage);

	if (wrong)
		return wrong;
	helper_start(stage, HELPERS - 1, visit);
	settle(stage, NULL);
	wrong = all_well(stage);
	return wrong ? wrong : check_deaths(stage);
}

/* The victim waits; behind it somebody else does. */
static const char *check_cond_wait(struct stage *stage)
{
	int number = stage->scenario->number;
	const char *wrong;
	bool had;

	if (number & TWICE && stage->releases == 1)
		release(stage);
	wrong = settle_mutex(stage, &had);
	if (wrong)
		return wrong;
	if (ended() && !had && !(scene->kind & ROBUST))
		return "it has returned without the mutex";
	/* One that had the mutex had the signal as well. Of a robust mutex the next is told. */
	if (stage->releases && !ended() && !had && helpers_within(await_cond))
		return "a signal has died with the waiter that it woke";
	followers_come(stage);
	if (!helpers_within(await_cond) && !helpers_done(await_cond, 0))
		return all_well(stage);
	if (helpers_within(await_cond)) {
		if (signal_cond(&scene->objects))
			return "it cannot be signalled";
		settle(stage, nothing_is_signalled);
	}
	return newcomer_visits(stage);
}

static int release_cond(struct stage *stage)
{
	if (!(stage->scenario->number & TWICE))
		return signal_cond(&scene->objects);
	if (stage->releases == 1)
		return lock_mutex(&scene->objects) || signal_cond(&scene->objects);
	return unlock_mutex(&scene->objects);
}

STAGE_CALL(release_cond_by_broadcast, lock_mutex(&scene->objects) ||
	   broadcast_cond(&scene->objects) || unlock_mutex(&scene->objects))

/* Others wait; the victim signals. */
static const char *check_cond_signal(struct stage *stage)
{
	int number = stage->scenario->number, waiters, woken;
	const char *wrong;
	bool had;

	waiters = helpers_within(await_cond) + helpers_done(await_cond, 0);
	wrong = settle_mutex(stage, &had);
	if (wrong)
		return wrong;
	woken = helpers_done(await_cond, 0);
	if (ended() && (scene->objects.result || !woken))
		return say(stage, "%d were woken, result %d", woken, scene->objects.result);
	if (number & BY_BROADCAST && woken && woken != waiters)
		return say(stage, "a broadcast has woken %d of %d", woken, waiters);
	while (woken < waiters) {
		if (number & BY_BROADCAST ? broadcast_cond(&scene->objects) :
					    signal_cond(&scene->objects))
			return "it cannot be signalled";
		settle(stage, nothing_is_signalled);
		if (helpers_done(await_cond, 0) <= woken)
			return "a signal has woken nobody";
		woken = helpers_done(await_cond, 0);
		if (number & BY_BROADCAST && woken != waiters)
			return "a broadcast has not woken all";
	}
	return newcomer_visits(stage);
}

#define COND_TEST(id, text, ...) STEPPER_TEST(cond_##id, "condition " text,			\
					      .prepare = make_cond, __VA_ARGS__)

COND_TEST(wait, "wait", .approach = lock_mutex, .operation = wait_for_cond,
	  .behind = { await_cond }, .release = release_cond, .check = check_cond_wait,
	  .number = TAKES)
COND_TEST(wait_contended, "wait, the mutex contended", .approach = lock_mutex, .before = { visit },
	  .operation = wait_for_cond, .behind = { NULL, await_cond }, .release = release_cond,
	  .check = check_cond_wait, .number = TAKES)
COND_TEST(wait_twice, "wait, the mutex had at the signal", .approach = lock_mutex,
	  .operation = wait_for_cond, .behind = { await_cond }, .release = release_cond,
	  .check = check_cond_wait, .number = TAKES | TWICE)
COND_TEST(wait_broadcast, "wait, ended by a broadcast", .approach = lock_mutex,
	  .operation = wait_for_cond, .behind = { await_cond },
	  .release = release_cond_by_broadcast, .check = check_cond_wait, .number = TAKES)
COND_TEST(signal, "signal", .before = { await_cond, await_cond }, .operation = signal_cond,
	  .check = check_cond_signal)
COND_TEST(broadcast, "broadcast", .before = { await_cond, await_cond, await_cond },
	  .operation = broadcast_cond, .check = check_cond_signal, .number = BY_BROADCAST)
COND_TEST(broadcast_with_mutex, "broadcast, with the mutex",
	  .before = { await_cond, await_cond, await_cond }, .begin = lock_mutex,
	  .operation = broadcast_cond, .check = check_cond_signal,
	  .number = BY_BROADCAST | WITH_MUTEX)

COND_TEST(robust_wait, "wait, ROBUST mutex", .kind = ROBUST, .approach = lock_mutex,
	  .operation = wait_for_cond, .behind = { await_cond }, .release = release_cond,
	  .check = check_cond_wait, .number = TAKES)
COND_TEST(robust_wait_contended, "wait, ROBUST mutex contended", .kind = ROBUST,
	  .approach = lock_mutex, .before = { visit }, .operation = wait_for_cond,
	  .behind = { NULL, await_cond }, .release = release_cond, .check = check_cond_wait,
	  .number = TAKES)
COND_TEST(robust_wait_twice, "wait, ROBUST mutex had at the signal", .kind = ROBUST,
	  .approach = lock_mutex, .operation = wait_for_cond, .behind = { await_cond },
	  .release = release_cond, .check = check_cond_wait, .number = TAKES | TWICE)
COND_TEST(robust_signal, "signal, ROBUST mutex", .kind = ROBUST,
	  .before = { await_cond, await_cond }, .operation = signal_cond,
	  .check = check_cond_signal)
COND_TEST(robust_broadcast, "broadcast, ROBUST mutex", .kind = ROBUST,
	  .before = { await_cond, await_cond, await_cond }, .operation = broadcast_cond,
	  .check = check_cond_signal, .number = BY_BROADCAST)
COND_TEST(robust_broadcast_with_mutex, "broadcast, with the ROBUST mutex", .kind = ROBUST,
	  .before = { await_cond, await_cond, await_cond }, .begin = lock_mutex,
	  .operation = broadcast_cond, .check = check_cond_signal,
	  .number = BY_BROADCAST | WITH_MUTEX | TAKES)

#endif /* STEPPER_COND_TEST_H */
