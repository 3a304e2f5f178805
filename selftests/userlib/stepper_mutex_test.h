/* SPDX-License-Identifier: GPL-2.0 */
/* Mutexes, blocking and in loops. */
#ifndef STEPPER_MUTEX_TEST_H
#define STEPPER_MUTEX_TEST_H

#include "stepper_test.h"

STEPPER_CALL(make_mutex, memwait_mutex_init(&shared->objects.mutex, shared->kind))

OPERATION(lock_mutex, memwait_mutex_lock(&objects->mutex))
OPERATION(trylock_mutex, memwait_mutex_trylock(&objects->mutex))
OPERATION(unlock_mutex, memwait_mutex_unlock(&objects->mutex))

/* The test's process holds the mutex. */
STEPPER_CALL(make_locked_mutex, make_mutex(stepper) || memwait_mutex_lock(&shared->objects.mutex))

OPERATION(lock_twice, lock_mutex(objects) || lock_mutex(objects))

/* Closes all descriptors, as daemons do. The library must open the device again. */
OPERATION(close_all, close_range(STDERR_FILENO + 1, ~0U, 0))

static int hold_mutex(struct objects *objects, int me)
{
	return lock_mutex(objects);
}

/* A helper holds the mutex. */
static int make_helpers_mutex(struct stepper *stepper)
{
	int err = make_mutex(stepper);

	if (err)
		return err;
	helper_start(stepper, HELPERS - 1, hold_mutex);
	settle(stepper, NULL);
	return shared->requests[HELPERS - 1].result;
}

static int kill_owner(struct stepper *stepper)
{
	helper_kill(stepper, HELPERS - 1);
	helper_fork(stepper, HELPERS - 1);
	return 0;
}

STEPPER_CALL(make_orphaned_mutex, make_helpers_mutex(stepper) || kill_owner(stepper))

OPERATION(lock_orphaned_mutex, lock_mutex(objects) != EOWNERDEAD)

static int repair_and_unlock(struct objects *objects)
{
	return memwait_mutex_consistent(&objects->mutex) ?: unlock_mutex(objects);
}

/* Handles the result of a lock call. Returns 0 if the mutex can be used and unlocked. */
static int repair(struct objects *objects, int err)
{
	if (err == ENOTRECOVERABLE)
		__atomic_add_fetch(&objects->lost, 1, __ATOMIC_RELAXED);
	if (err != EOWNERDEAD)
		return err;
	__atomic_add_fetch(&objects->owner_died, 1, __ATOMIC_RELAXED);
	return memwait_mutex_consistent(&objects->mutex);
}

static void check_exclusion(struct objects *objects)
{
	if (objects->inside++)
		objects->violations++;
	if (--objects->inside)
		objects->violations++;
}

static int visit_once(struct objects *objects, int err)
{
	err = repair(objects, err);
	if (err)
		return err;
	check_exclusion(objects);
	return memwait_mutex_unlock(&objects->mutex);
}

/* Locks and unlocks twice: a mutex whose owner died can be locked again. */
static int visit(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();
	int err, i;

	for (i = 0; i < (shared->kind & ROBUST ? 2 : 1); i++) {
		err = memwait_mutex_clocklock(&objects->mutex, CLOCK_MONOTONIC, &deadline);
		err = visit_once(objects, err);
		if (err)
			return err;
	}
	return 0;
}

/* Called when no other helper is active. */
static int try_to_visit(struct objects *objects, int me)
{
	return visit_once(objects, memwait_mutex_trylock(&objects->mutex));
}

static bool mutex_is_held(void)
{
	return memwait_mutex_trylock(&shared->copy.mutex) == EBUSY;
}

/* Called when no other process changes the mutex. */
static bool mutex_is_locked(void)
{
	copied();
	return mutex_is_held();
}

/* Compares how often a death was reported with the flags in the scenario's number. */
static const char *check_deaths(struct stepper *stepper)
{
	int deaths = shared->objects.owner_died, number = stepper->scenario->number;
	bool must = number & TAKES && ended();

	if (number & WAS_DEAD)
		must = !(number & IS_MENDED);
	if (!(shared->kind & ROBUST))
		must = false;
	if (deaths > 1)
		return say(stepper, "one death was reported %d times", deaths);
	if (must && !deaths)
		return "its owner died, and no waiter got EOWNERDEAD";
	if (!must && ended() && deaths)
		return "it was free, and a death was reported";
	return NULL;
}

/*
 * The sleepers must continue by themselves. Then a new helper comes. If the victim died while it
 * held a mutex that is not robust, the test unlocks the mutex, if its kind allows that.
 */
static const char *check_mutex_with(struct stepper *stepper, helper_function newcomer)
{
	int number = stepper->scenario->number;
	int wanted = number & WAS_DEAD && !(number & IS_MENDED) ? EOWNERDEAD : 0;
	bool robust = shared->kind & ROBUST;
	const char *wrong;

	start_followers(stepper);
	if (release_at_last(stepper))
		return "the waiters could not be released";
	settle(stepper, mutex_is_held);
	if (ended() && number & TAKES && !robust && !mutex_is_locked())
		return "it is not locked";
	if (ended() && shared->objects.result != wanted)
		return say(stepper, "result %d", shared->objects.result);
	/*
	 * The last helper may still be in its previous request. It starts the new request when it
	 * has returned, or it sleeps.
	 */
	helper_start(stepper, HELPERS - 1, robust ? newcomer : visit);
	if (!settle(stepper, mutex_is_held)) {
		if (robust)
			return "the death of its owner is not reported";
		if (ended() && number & GIVES)
			return "it was unlocked, but is locked";
		if (shared->kind & (ERRORCHECK | RECURSIVE | FAIR))
			return NULL;
		if (memwait_mutex_unlock(&shared->objects.mutex))
			return "it could not be unlocked";
		settle(stepper, NULL);
	}
	wrong = all_well(stepper);
	if (!wrong)
		wrong = check_deaths(stepper);
	if (!wrong && memwait_mutex_destroy(&shared->objects.mutex))
		wrong = "it cannot be destroyed";
	return wrong;
}

static const char *check_mutex(struct stepper *stepper)
{
	return check_mutex_with(stepper, visit);
}

static const char *check_mutex_by_trylock(struct stepper *stepper)
{
	return check_mutex_with(stepper, try_to_visit);
}

/*
 * The victim unlocked the mutex without making it consistent. Either all waiters get
 * ENOTRECOVERABLE, or one waiter gets EOWNERDEAD.
 */
static int visit_or_lose(struct objects *objects, int me)
{
	int err = visit(objects, me);

	return err == ENOTRECOVERABLE ? 0 : err;
}

static const char *check_lost_mutex(struct stepper *stepper)
{
	const char *wrong;
	int lost;

	helper_start(stepper, HELPERS - 1, visit_or_lose);
	settle(stepper, NULL);
	wrong = all_well(stepper);
	if (wrong)
		return wrong;
	lost = shared->objects.lost;
	if (lost != 3 && (lost || ended()))
		return say(stepper, "%d callers got ENOTRECOVERABLE", lost);
	if (!lost && shared->objects.owner_died != 1)
		return "no caller got EOWNERDEAD";
	if (lost && trylock_mutex(&shared->objects) != ENOTRECOVERABLE)
		return "it is not recoverable, but can be locked";
	return NULL;
}

STEPPER_CALL(release_mutex, memwait_mutex_unlock(&shared->objects.mutex))

static int lock_too_late(struct objects *objects)
{
	struct timespec past = { 0 };

	return memwait_mutex_clocklock(&objects->mutex, CLOCK_MONOTONIC, &past) != ETIMEDOUT;
}

OPERATION(trylock_in_vain, trylock_mutex(objects) != EBUSY)
OPERATION(lock_in_vain, lock_mutex(objects) != EDEADLK)

#define MUTEX_TEST(id, text, ...) STEPPER_TEST(mutex_##id, "mutex " text,			\
					       .check = check_mutex, __VA_ARGS__)

MUTEX_TEST(lock, "lock", .prepare = make_mutex, .operation = lock_mutex, .number = TAKES)
MUTEX_TEST(lock_first, "lock, contended, without an id", .prepare = make_locked_mutex,
	   .without_id = true, .operation = lock_mutex, .behind = { visit },
	   .release = release_mutex, .number = TAKES)
MUTEX_TEST(lock_closed, "lock, contended, the device closed", .prepare = make_locked_mutex,
	   .approach = close_all, .operation = lock_mutex, .behind = { visit },
	   .release = release_mutex, .number = TAKES)
MUTEX_TEST(lock_contended, "lock, contended", .prepare = make_locked_mutex,
	   .operation = lock_mutex, .behind = { visit, visit }, .release = release_mutex,
	   .number = TAKES)
MUTEX_TEST(lock_behind, "lock, behind another", .prepare = make_locked_mutex, .before = { visit },
	   .operation = lock_mutex, .behind = { NULL, visit }, .release = release_mutex,
	   .number = TAKES)
MUTEX_TEST(lock_late, "lock, until its deadline", .prepare = make_locked_mutex,
	   .operation = lock_too_late, .behind = { visit }, .release = release_mutex,
	   .number = GIVES)
MUTEX_TEST(unlock, "unlock", .prepare = make_mutex, .approach = lock_mutex,
	   .operation = unlock_mutex, .number = GIVES)
MUTEX_TEST(unlock_contended, "unlock, contended", .prepare = make_mutex, .approach = lock_mutex,
	   .before = { visit, visit }, .operation = unlock_mutex, .number = GIVES)

MUTEX_TEST(fair_lock_contended, "FAIR lock, contended", .prepare = make_locked_mutex, .kind = FAIR,
	   .operation = lock_mutex, .behind = { visit }, .release = release_mutex, .number = TAKES)
MUTEX_TEST(fair_unlock, "FAIR unlock", .prepare = make_mutex, .kind = FAIR, .approach = lock_mutex,
	   .operation = unlock_mutex, .number = GIVES)
MUTEX_TEST(fair_unlock_contended, "FAIR unlock, contended", .prepare = make_mutex, .kind = FAIR,
	   .approach = lock_mutex, .before = { visit, visit }, .operation = unlock_mutex,
	   .number = GIVES)

MUTEX_TEST(errorcheck_lock, "ERRORCHECK lock", .prepare = make_mutex, .kind = ERRORCHECK,
	   .operation = lock_mutex, .number = TAKES)
MUTEX_TEST(errorcheck_lock_contended, "ERRORCHECK lock, contended", .prepare = make_locked_mutex,
	   .kind = ERRORCHECK, .operation = lock_mutex, .behind = { visit, visit },
	   .release = release_mutex, .number = TAKES)
MUTEX_TEST(errorcheck_unlock, "ERRORCHECK unlock", .prepare = make_mutex, .kind = ERRORCHECK,
	   .approach = lock_mutex, .operation = unlock_mutex, .number = GIVES)
MUTEX_TEST(errorcheck_unlock_contended, "ERRORCHECK unlock, contended", .prepare = make_mutex,
	   .kind = ERRORCHECK, .approach = lock_mutex, .before = { visit, visit },
	   .operation = unlock_mutex, .number = GIVES)

MUTEX_TEST(robust_first, "ROBUST lock, without an id, the device closed", .prepare = make_mutex,
	   .kind = ROBUST, .without_id = true, .approach = close_all, .operation = lock_mutex,
	   .number = TAKES)
MUTEX_TEST(robust_lock, "ROBUST lock", .prepare = make_mutex, .kind = ROBUST,
	   .operation = lock_mutex, .number = TAKES)
STEPPER_TEST(mutex_robust_lock_tried, "mutex ROBUST lock, then trylock",
	     .prepare = make_mutex, .kind = ROBUST, .operation = lock_mutex, .number = TAKES,
	     .check = check_mutex_by_trylock)
MUTEX_TEST(robust_lock_contended, "ROBUST lock, contended", .prepare = make_locked_mutex,
	   .kind = ROBUST, .operation = lock_mutex, .behind = { visit, visit },
	   .release = release_mutex, .number = TAKES)
MUTEX_TEST(robust_lock_behind, "ROBUST lock, behind another", .prepare = make_locked_mutex,
	   .kind = ROBUST, .before = { visit }, .operation = lock_mutex, .behind = { NULL, visit },
	   .release = release_mutex, .number = TAKES)
MUTEX_TEST(robust_lock_late, "ROBUST lock, until its deadline", .prepare = make_locked_mutex,
	   .kind = ROBUST, .operation = lock_too_late, .behind = { visit },
	   .release = release_mutex, .number = GIVES)
MUTEX_TEST(robust_lock_dead, "ROBUST lock after its owner died", .prepare = make_orphaned_mutex,
	   .kind = ROBUST, .operation = lock_mutex, .number = WAS_DEAD)
MUTEX_TEST(robust_lock_dying, "ROBUST lock, its owner dies", .prepare = make_helpers_mutex,
	   .kind = ROBUST, .operation = lock_mutex, .behind = { visit, visit },
	   .release = kill_owner, .number = WAS_DEAD)
MUTEX_TEST(robust_trylock, "ROBUST trylock", .prepare = make_mutex, .kind = ROBUST,
	   .operation = trylock_mutex, .number = TAKES)
MUTEX_TEST(robust_trylock_in_vain, "ROBUST trylock, locked", .prepare = make_locked_mutex,
	   .kind = ROBUST, .operation = trylock_in_vain, .behind = { visit },
	   .release = release_mutex, .number = GIVES)
MUTEX_TEST(robust_trylock_dead, "ROBUST trylock after its owner died",
	   .prepare = make_orphaned_mutex, .kind = ROBUST, .operation = trylock_mutex,
	   .number = WAS_DEAD)
MUTEX_TEST(robust_unlock, "ROBUST unlock", .prepare = make_mutex, .kind = ROBUST,
	   .approach = lock_mutex, .operation = unlock_mutex, .number = GIVES)
STEPPER_TEST(mutex_robust_unlock_tried, "mutex ROBUST unlock, then trylock",
	     .prepare = make_mutex, .kind = ROBUST, .approach = lock_mutex,
	     .operation = unlock_mutex, .number = GIVES, .check = check_mutex_by_trylock)
MUTEX_TEST(robust_unlock_contended, "ROBUST unlock, contended", .prepare = make_mutex,
	   .kind = ROBUST, .approach = lock_mutex, .before = { visit, visit },
	   .operation = unlock_mutex, .number = GIVES)
MUTEX_TEST(robust_consistent, "ROBUST consistent and unlock", .prepare = make_orphaned_mutex,
	   .kind = ROBUST, .approach = lock_orphaned_mutex, .operation = repair_and_unlock,
	   .number = WAS_DEAD | IS_MENDED)
MUTEX_TEST(robust_consistent_contended, "ROBUST consistent and unlock, contended",
	   .prepare = make_orphaned_mutex, .kind = ROBUST, .approach = lock_orphaned_mutex,
	   .before = { visit, visit }, .operation = repair_and_unlock,
	   .number = WAS_DEAD | IS_MENDED)
STEPPER_TEST(mutex_robust_lost, "mutex ROBUST unlock without consistent",
	     .prepare = make_orphaned_mutex, .kind = ROBUST, .approach = lock_orphaned_mutex,
	     .operation = unlock_mutex, .before = { visit_or_lose, visit_or_lose },
	     .check = check_lost_mutex)

MUTEX_TEST(robust_recursive_lock, "ROBUST RECURSIVE lock", .prepare = make_mutex,
	   .kind = ROBUST | RECURSIVE, .operation = lock_mutex, .number = TAKES)
MUTEX_TEST(robust_recursive_again, "ROBUST RECURSIVE lock once more", .prepare = make_mutex,
	   .kind = ROBUST | RECURSIVE, .approach = lock_mutex, .operation = lock_mutex,
	   .number = TAKES)
MUTEX_TEST(robust_recursive_one, "ROBUST RECURSIVE unlock of one", .prepare = make_mutex,
	   .kind = ROBUST | RECURSIVE, .approach = lock_twice, .before = { visit },
	   .operation = unlock_mutex, .number = TAKES)
MUTEX_TEST(robust_recursive_unlock, "ROBUST RECURSIVE unlock, contended", .prepare = make_mutex,
	   .kind = ROBUST | RECURSIVE, .approach = lock_mutex, .before = { visit, visit },
	   .operation = unlock_mutex, .number = GIVES)
MUTEX_TEST(robust_errorcheck_again, "ROBUST ERRORCHECK lock once more", .prepare = make_mutex,
	   .kind = ROBUST | ERRORCHECK, .approach = lock_mutex, .operation = lock_in_vain,
	   .before = { visit }, .number = TAKES)
MUTEX_TEST(robust_errorcheck_unlock, "ROBUST ERRORCHECK unlock, contended", .prepare = make_mutex,
	   .kind = ROBUST | ERRORCHECK, .approach = lock_mutex, .before = { visit, visit },
	   .operation = unlock_mutex, .number = GIVES)

/* Operations of a loop. */

static memwait_loop_t *loop;
static memwait_op_t op;

static void store_result(memwait_op_t *called, int result, void *data)
{
	*(int *)data = result;
}

static int make_loop(struct objects *objects)
{
	shared->loops[VICTIM] = IDS_OF_A_LOOP;
	if (memwait_loop_new(&loop, 0))
		return -1;
	memwait_op_init(&op, loop, store_result, &objects->called_back);
	return 0;
}

/* Returns the result that the callback received. */
static int after_run(struct objects *objects, int ret)
{
	if (ret != EINPROGRESS)
		return ret;
	ret = memwait_loop_run(loop, NULL, 0);
	return ret ? ret : objects->called_back;
}

OPERATION(lock_by_loop, after_run(objects, memwait_mutex_lock_async(&objects->mutex, &op)))
OPERATION(execute_locked, after_run(objects, memwait_mutex_execute_locked(&objects->mutex, &op)))

/* If the operation has ended, it is undone. */
OPERATION(begin_lock, make_loop(objects) || memwait_mutex_lock_async(&objects->mutex, &op))
OPERATION(begin_lock_orphaned,
	  make_loop(objects) || memwait_mutex_lock_async(&objects->mutex, &op) != EOWNERDEAD)
OPERATION(undo_lock, memwait_op_undo(&op))
OPERATION(undo_lock_orphaned, memwait_op_undo(&op) ?: EOWNERDEAD)

OPERATION(take_by_loop, after_run(objects, memwait_sem_wait_async(&objects->sem, &op)))

/* A helper that waits in a loop. */
static int visit_by_loop(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();
	memwait_op_t visitor;
	memwait_loop_t *own;
	int result, ret;

	shared->loops[me] = IDS_OF_A_LOOP;
	if (memwait_loop_new(&own, 0))
		return -1;
	memwait_op_init(&visitor, own, store_result, &result);
	ret = memwait_mutex_clocklock_async(&objects->mutex, CLOCK_MONOTONIC, &deadline, &visitor);
	if (ret == EINPROGRESS) {
		ret = memwait_loop_run(own, NULL, 0);
		if (!ret)
			ret = result;
	}
	ret = visit_once(objects, ret);
	memwait_loop_close(own);
	shared->loops[me] = 0;
	return ret;
}

MUTEX_TEST(lock_async, "lock_async, contended", .prepare = make_locked_mutex,
	   .approach = make_loop, .operation = lock_by_loop, .behind = { visit, visit },
	   .release = release_mutex, .number = TAKES)
MUTEX_TEST(execute_locked, "execute_locked, contended", .prepare = make_locked_mutex,
	   .approach = make_loop, .operation = execute_locked, .behind = { visit, visit },
	   .release = release_mutex, .number = GIVES)
MUTEX_TEST(robust_lock_async, "ROBUST lock_async, contended", .prepare = make_locked_mutex,
	   .kind = ROBUST, .approach = make_loop, .operation = lock_by_loop,
	   .behind = { visit, visit }, .release = release_mutex, .number = TAKES)
MUTEX_TEST(robust_lock_async_dying, "ROBUST lock_async, its owner dies",
	   .prepare = make_helpers_mutex, .kind = ROBUST, .approach = make_loop,
	   .operation = lock_by_loop, .behind = { visit, visit }, .release = kill_owner,
	   .number = WAS_DEAD)

MUTEX_TEST(op_undo, "undo of lock_async", .prepare = make_mutex, .approach = begin_lock,
	   .before = { visit, visit }, .operation = undo_lock, .number = GIVES)
MUTEX_TEST(robust_op_undo, "undo of ROBUST lock_async", .prepare = make_mutex, .kind = ROBUST,
	   .approach = begin_lock, .before = { visit, visit }, .operation = undo_lock,
	   .number = GIVES)
MUTEX_TEST(robust_op_undo_orphaned, "undo of ROBUST lock_async, its owner has died",
	   .prepare = make_orphaned_mutex, .kind = ROBUST, .approach = begin_lock_orphaned,
	   .before = { visit, visit }, .operation = undo_lock_orphaned, .number = WAS_DEAD)

MUTEX_TEST(unlock_to_loop, "unlock, loops wait", .prepare = make_mutex, .approach = lock_mutex,
	   .before = { visit_by_loop, visit_by_loop }, .operation = unlock_mutex, .number = GIVES)
MUTEX_TEST(robust_unlock_to_loop, "ROBUST unlock, loops wait", .prepare = make_mutex,
	   .kind = ROBUST, .approach = lock_mutex, .before = { visit_by_loop, visit_by_loop },
	   .operation = unlock_mutex, .number = GIVES)
MUTEX_TEST(robust_lock_before_loop, "ROBUST lock, loops wait behind it",
	   .prepare = make_locked_mutex, .kind = ROBUST, .operation = lock_mutex,
	   .behind = { visit_by_loop, visit_by_loop }, .release = release_mutex, .number = TAKES)

#endif /* STEPPER_MUTEX_TEST_H */
