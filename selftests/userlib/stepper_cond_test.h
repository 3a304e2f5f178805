/* SPDX-License-Identifier: GPL-2.0 */
/* Condition variables. */
#ifndef STEPPER_COND_TEST_H
#define STEPPER_COND_TEST_H

#include "stepper_mutex_test.h"

STEPPER_CALL(make_cond, memwait_cond_init(&shared->objects.cond, 0) || make_mutex(stepper))

OPERATION(wait_for_cond, memwait_cond_wait(&objects->cond, &objects->mutex))
OPERATION(signal_cond, memwait_cond_signal(&objects->cond))
OPERATION(broadcast_cond, memwait_cond_broadcast(&objects->cond))

static int await_cond(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();
	int err, result;

	err = memwait_mutex_clocklock(&objects->mutex, CLOCK_MONOTONIC, &deadline);
	err = repair(objects, err);
	if (err)
		return err;
	result = memwait_cond_clockwait(&objects->cond, &objects->mutex, CLOCK_MONOTONIC,
					&deadline);
	result = repair(objects, result);
	check_exclusion(objects);
	err = memwait_mutex_unlock(&objects->mutex);
	return result ? result : err;
}

/*
 * Waiters for the condition may sleep. Waiters for the mutex may sleep only while the mutex is
 * held.
 */
static bool nothing_is_signalled(void)
{
	return mutex_is_held() || !memwait_waiters(&shared->objects.mutex, 0);
}

/*
 * Lets all waiters for the mutex acquire it. Sets *held if the victim died while it held the mutex.
 */
static const char *settle_mutex(struct stepper *stepper, bool *held)
{
	settle(stepper, nothing_is_signalled);
	*held = mutex_is_locked();
	if (!*held)
		return NULL;
	if (shared->kind & ROBUST)
		return "the death of the mutex's owner is not reported";
	if (memwait_mutex_unlock(&shared->objects.mutex))
		return "the mutex could not be unlocked";
	settle(stepper, nothing_is_signalled);
	return NULL;
}

static const char *check_newcomer(struct stepper *stepper)
{
	const char *wrong = all_well(stepper);

	if (wrong)
		return wrong;
	helper_start(stepper, HELPERS - 1, visit);
	settle(stepper, NULL);
	wrong = all_well(stepper);
	return wrong ? wrong : check_deaths(stepper);
}

/* The victim waits, and another waiter is queued after it. */
static const char *check_cond_wait(struct stepper *stepper)
{
	int number = stepper->scenario->number;
	const char *wrong;
	bool held;

	if (number & TWICE && stepper->releases == 1)
		release(stepper);
	wrong = settle_mutex(stepper, &held);
	if (wrong)
		return wrong;
	if (ended() && !held && !(shared->kind & ROBUST))
		return "it returned without the mutex";
	/*
	 * If the victim held the mutex, it had also received the signal. If the mutex is robust,
	 * the victim's death passes the signal on.
	 */
	if (stepper->releases && !ended() && !held && helpers_waiting(await_cond))
		return "a signal was lost with the waiter that it woke";
	start_followers(stepper);
	if (!helpers_waiting(await_cond) && !helpers_done(await_cond, 0))
		return all_well(stepper);
	if (helpers_waiting(await_cond)) {
		if (signal_cond(&shared->objects))
			return "it cannot be signalled";
		settle(stepper, nothing_is_signalled);
	}
	return check_newcomer(stepper);
}

static int release_cond(struct stepper *stepper)
{
	if (!(stepper->scenario->number & TWICE))
		return signal_cond(&shared->objects);
	if (stepper->releases == 1)
		return lock_mutex(&shared->objects) || signal_cond(&shared->objects);
	return unlock_mutex(&shared->objects);
}

STEPPER_CALL(release_cond_by_broadcast, lock_mutex(&shared->objects) ||
	     broadcast_cond(&shared->objects) || unlock_mutex(&shared->objects))

/* Helpers wait, and the victim signals. */
static const char *check_cond_signal(struct stepper *stepper)
{
	int number = stepper->scenario->number, waiters, woken;
	const char *wrong;
	bool held;

	waiters = helpers_waiting(await_cond) + helpers_done(await_cond, 0);
	wrong = settle_mutex(stepper, &held);
	if (wrong)
		return wrong;
	woken = helpers_done(await_cond, 0);
	if (ended() && (shared->objects.result || !woken))
		return say(stepper, "%d were woken, result %d", woken, shared->objects.result);
	if (number & BY_BROADCAST && woken && woken != waiters)
		return say(stepper, "a broadcast woke %d of %d waiters", woken, waiters);
	while (woken < waiters) {
		if (number & BY_BROADCAST ? broadcast_cond(&shared->objects) :
					    signal_cond(&shared->objects))
			return "it cannot be signalled";
		settle(stepper, nothing_is_signalled);
		if (helpers_done(await_cond, 0) <= woken)
			return "a signal woke no waiter";
		woken = helpers_done(await_cond, 0);
		if (number & BY_BROADCAST && woken != waiters)
			return "a broadcast did not wake all waiters";
	}
	return check_newcomer(stepper);
}

#define COND_TEST(id, text, ...) STEPPER_TEST(cond_##id, "condition " text,			\
					      .prepare = make_cond, __VA_ARGS__)

COND_TEST(wait, "wait", .approach = lock_mutex, .operation = wait_for_cond,
	  .behind = { await_cond }, .release = release_cond, .check = check_cond_wait,
	  .number = TAKES)
COND_TEST(wait_contended, "wait, the mutex contended", .approach = lock_mutex, .before = { visit },
	  .operation = wait_for_cond, .behind = { NULL, await_cond }, .release = release_cond,
	  .check = check_cond_wait, .number = TAKES)
COND_TEST(wait_twice, "wait, the mutex held at the signal", .approach = lock_mutex,
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
COND_TEST(robust_wait_twice, "wait, ROBUST mutex held at the signal", .kind = ROBUST,
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
