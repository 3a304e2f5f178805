// SPDX-License-Identifier: GPL-2.0
/*
 * A process is killed at each instruction of the functions by which processes share objects. Those
 * that wait for what is free go on.
 */
#include "stepper_test.h"

#define NORMAL			MEMWAIT_MUTEX_NORMAL
#define RECURSIVE		MEMWAIT_MUTEX_RECURSIVE
#define ERRORCHECK		MEMWAIT_MUTEX_ERRORCHECK
#define FAIR			MEMWAIT_MUTEX_FAIR
#define ROBUST			MEMWAIT_MUTEX_ROBUST

/* What a scenario's number says of its end, or of its begin. */
enum {
	TAKES = 0x1,		/* whoever returns from the function has the lock */
	GIVES = 0x2,		/* nobody has */
	WAS_DEAD = 0x4,		/* its owner has died before: the next one is to hear of it, */
	IS_MENDED = 0x8,	/* unless the last instruction was executed */
	FOR_READING = 0x10,
	WITH_MUTEX = 0x20,	/* a condition is signalled by who has the mutex */
	BY_BROADCAST = 0x40,
	TWICE = 0x80,		/* when it is let go on first, the mutex is the test's */
};

/* Mutexes */

static int make_mutex(struct stage *stage)
{
	(void)stage;
	return memwait_mutex_init(&scene->objects.mutex, scene->kind);
}

static int lock_mutex(struct objects *objects)
{
	return memwait_mutex_lock(&objects->mutex);
}

static int trylock_mutex(struct objects *objects)
{
	return memwait_mutex_trylock(&objects->mutex);
}

static int unlock_mutex(struct objects *objects)
{
	return memwait_mutex_unlock(&objects->mutex);
}

/* The test's process has it. */
static int make_locked_mutex(struct stage *stage)
{
	return make_mutex(stage) || memwait_mutex_lock(&scene->objects.mutex);
}

static int lock_twice(struct objects *objects)
{
	return lock_mutex(objects) || lock_mutex(objects);
}

/* As daemons do: the library opens the device again. */
static int close_all(struct objects *objects)
{
	(void)objects;
	return close_range(STDERR_FILENO + 1, ~0U, 0);
}

static int keep_mutex(struct objects *objects, int me)
{
	(void)me;
	return lock_mutex(objects);
}

/* A helper has it. */
static int make_helpers_mutex(struct stage *stage)
{
	int err = make_mutex(stage);

	if (err)
		return err;
	helper_start(stage, HELPERS - 1, keep_mutex);
	settle(stage, NULL);
	return scene->requests[HELPERS - 1].result;
}

static int kill_owner(struct stage *stage)
{
	helper_kill(stage, HELPERS - 1);
	helper_fork(stage, HELPERS - 1);
	return 0;
}

static int make_dead_mutex(struct stage *stage)
{
	return make_helpers_mutex(stage) || kill_owner(stage);
}

static int lock_dead_mutex(struct objects *objects)
{
	return lock_mutex(objects) != EOWNERDEAD;
}

static int mend_and_unlock(struct objects *objects)
{
	int err = memwait_mutex_consistent(&objects->mutex);

	return err ? err : unlock_mutex(objects);
}

/* After a lock of the mutex: 0 if it can be used, and unlocked. */
static int mend(struct objects *objects, int err)
{
	if (err == ENOTRECOVERABLE)
		__atomic_add_fetch(&objects->lost, 1, __ATOMIC_RELAXED);
	if (err != EOWNERDEAD)
		return err;
	__atomic_add_fetch(&objects->owner_died, 1, __ATOMIC_RELAXED);
	return memwait_mutex_consistent(&objects->mutex);
}

static void be_inside(struct objects *objects)
{
	if (objects->inside++)
		objects->violations++;
	if (--objects->inside)
		objects->violations++;
}

static int visit_once(struct objects *objects, int err)
{
	err = mend(objects, err);
	if (err)
		return err;
	be_inside(objects);
	return memwait_mutex_unlock(&objects->mutex);
}

/* A mutex whose owner died can be locked again. */
static int visit(struct objects *objects, int me)
{
	struct timespec deadline = patience();
	int err, i;

	(void)me;
	for (i = 0; i < (scene->kind & ROBUST ? 2 : 1); i++) {
		err = memwait_mutex_clocklock(&objects->mutex, CLOCK_MONOTONIC, &deadline);
		err = visit_once(objects, err);
		if (err)
			return err;
	}
	return 0;
}

/* Where nobody else is any more. */
static int try_to_visit(struct objects *objects, int me)
{
	(void)me;
	return visit_once(objects, memwait_mutex_trylock(&objects->mutex));
}

static bool mutex_is_had(void)
{
	return memwait_mutex_trylock(&scene->copy.mutex) == EBUSY;
}

/* With nobody else about. */
static bool mutex_is_locked(void)
{
	copied();
	return mutex_is_had();
}

/* How often it was told that an owner died. The scenario's number says what that must be. */
static const char *check_deaths(struct stage *stage)
{
	int deaths = scene->objects.owner_died, number = stage->scenario->number;
	bool must = number & TAKES && ended();

	if (number & WAS_DEAD)
		must = !(number & IS_MENDED);
	if (!(scene->kind & ROBUST))
		must = false;
	if (deaths > 1)
		return say(stage, "one death was told %d times", deaths);
	if (must && !deaths)
		return "its owner has died, and nobody was told";
	if (!must && ended() && deaths)
		return "nobody had it, and an owner has died";
	return NULL;
}

/*
 * Those who slept go on by themselves, and then somebody new comes. A mutex that is not robust may
 * have died with the victim. Then it is unlocked for it, where that can be done.
 */
static const char *check_mutex_with(struct stage *stage, helper_function newcomer)
{
	int number = stage->scenario->number;
	int wanted = number & WAS_DEAD && !(number & IS_MENDED) ? EOWNERDEAD : 0;
	bool robust = scene->kind & ROBUST;
	const char *wrong;

	followers_come(stage);
	if (release_at_last(stage))
		return "it could not be let go on";
	settle(stage, mutex_is_had);
	if (ended() && number & TAKES && !robust && !mutex_is_locked())
		return "it is not locked";
	if (ended() && scene->objects.result != wanted)
		return say(stage, "result %d", scene->objects.result);
	/* A helper cannot be two: it comes when another one has gone, or sleeps. */
	helper_start(stage, HELPERS - 1, robust ? newcomer : visit);
	if (!settle(stage, mutex_is_had)) {
		if (robust)
			return "the death of its owner is not told";
		if (ended() && number & GIVES)
			return "it has been unlocked, and is locked";
		if (scene->kind & (ERRORCHECK | RECURSIVE | FAIR))
			return NULL;
		if (memwait_mutex_unlock(&scene->objects.mutex))
			return "it could not be unlocked";
		settle(stage, NULL);
	}
	wrong = all_well(stage);
	if (!wrong)
		wrong = check_deaths(stage);
	if (!wrong && memwait_mutex_destroy(&scene->objects.mutex))
		wrong = "it cannot be destroyed";
	return wrong;
}

static const char *check_mutex(struct stage *stage)
{
	return check_mutex_with(stage, visit);
}

static const char *check_mutex_by_trylock(struct stage *stage)
{
	return check_mutex_with(stage, try_to_visit);
}

/* The victim has unlocked what it should have mended: all are told, or one learns of a death. */
static int visit_or_lose(struct objects *objects, int me)
{
	int err = visit(objects, me);

	return err == ENOTRECOVERABLE ? 0 : err;
}

static const char *check_lost_mutex(struct stage *stage)
{
	const char *wrong;
	int lost;

	helper_start(stage, HELPERS - 1, visit_or_lose);
	settle(stage, NULL);
	wrong = all_well(stage);
	if (wrong)
		return wrong;
	lost = scene->objects.lost;
	if (lost != 3 && (lost || ended()))
		return say(stage, "%d were told that it is not recoverable", lost);
	if (!lost && scene->objects.owner_died != 1)
		return "nobody was told of a death";
	if (lost && trylock_mutex(&scene->objects) != ENOTRECOVERABLE)
		return "it is not recoverable, and can be locked";
	return NULL;
}

static int release_mutex(struct stage *stage)
{
	(void)stage;
	return memwait_mutex_unlock(&scene->objects.mutex);
}

static int lock_too_late(struct objects *objects)
{
	struct timespec past = { 0 };

	return memwait_mutex_clocklock(&objects->mutex, CLOCK_MONOTONIC, &past) != ETIMEDOUT;
}

static int trylock_in_vain(struct objects *objects)
{
	return trylock_mutex(objects) != EBUSY;
}

static int lock_in_vain(struct objects *objects)
{
	return lock_mutex(objects) != EDEADLK;
}

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
STEPPER_TEST(mutex_robust_lock_tried, "mutex ROBUST lock, and trylock comes",
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
MUTEX_TEST(robust_lock_dead, "ROBUST lock after its owner died", .prepare = make_dead_mutex,
	   .kind = ROBUST, .operation = lock_mutex, .number = WAS_DEAD)
MUTEX_TEST(robust_lock_dying, "ROBUST lock, its owner dies", .prepare = make_helpers_mutex,
	   .kind = ROBUST, .operation = lock_mutex, .behind = { visit, visit },
	   .release = kill_owner, .number = WAS_DEAD)
MUTEX_TEST(robust_trylock, "ROBUST trylock", .prepare = make_mutex, .kind = ROBUST,
	   .operation = trylock_mutex, .number = TAKES)
MUTEX_TEST(robust_trylock_in_vain, "ROBUST trylock in vain", .prepare = make_locked_mutex,
	   .kind = ROBUST, .operation = trylock_in_vain, .behind = { visit },
	   .release = release_mutex, .number = GIVES)
MUTEX_TEST(robust_trylock_dead, "ROBUST trylock after its owner died", .prepare = make_dead_mutex,
	   .kind = ROBUST, .operation = trylock_mutex, .number = WAS_DEAD)
MUTEX_TEST(robust_unlock, "ROBUST unlock", .prepare = make_mutex, .kind = ROBUST,
	   .approach = lock_mutex, .operation = unlock_mutex, .number = GIVES)
STEPPER_TEST(mutex_robust_unlock_tried, "mutex ROBUST unlock, and trylock comes",
	     .prepare = make_mutex, .kind = ROBUST, .approach = lock_mutex,
	     .operation = unlock_mutex, .number = GIVES, .check = check_mutex_by_trylock)
MUTEX_TEST(robust_unlock_contended, "ROBUST unlock, contended", .prepare = make_mutex,
	   .kind = ROBUST, .approach = lock_mutex, .before = { visit, visit },
	   .operation = unlock_mutex, .number = GIVES)
MUTEX_TEST(robust_consistent, "ROBUST consistent and unlock", .prepare = make_dead_mutex,
	   .kind = ROBUST, .approach = lock_dead_mutex, .operation = mend_and_unlock,
	   .number = WAS_DEAD | IS_MENDED)
MUTEX_TEST(robust_consistent_contended, "ROBUST consistent and unlock, contended",
	   .prepare = make_dead_mutex, .kind = ROBUST, .approach = lock_dead_mutex,
	   .before = { visit, visit }, .operation = mend_and_unlock,
	   .number = WAS_DEAD | IS_MENDED)
STEPPER_TEST(mutex_robust_lost, "mutex ROBUST unlock without consistent",
	     .prepare = make_dead_mutex, .kind = ROBUST, .approach = lock_dead_mutex,
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

/* Operations of a loop: locks that are taken without blocking. */

static memwait_loop_t *loop;
static memwait_op_t op;

static void store_result(memwait_op_t *called, int result, void *data)
{
	(void)called;
	*(int *)data = result;
}

static int make_loop(struct objects *objects)
{
	scene->loops[VICTIM] = IDS_OF_A_LOOP;
	if (memwait_loop_new(&loop))
		return -1;
	memwait_op_init(&op, loop, store_result, &objects->called_back);
	return 0;
}

/* Returns what the callback got. */
static int run_loop(struct objects *objects, int ret)
{
	if (ret != EINPROGRESS)
		return ret;
	ret = memwait_loop_run(loop);
	return ret ? ret : objects->called_back;
}

static int lock_by_loop(struct objects *objects)
{
	return run_loop(objects, memwait_mutex_lock_async(&objects->mutex, &op));
}

static int execute_locked(struct objects *objects)
{
	return run_loop(objects, memwait_mutex_execute_locked(&objects->mutex, &op));
}

static int take_by_loop(struct objects *objects)
{
	return run_loop(objects, memwait_sem_wait_async(&objects->sem, &op));
}

/* A helper that waits in a loop. */
static int visit_by_loop(struct objects *objects, int me)
{
	struct timespec deadline = patience();
	memwait_op_t visitor;
	memwait_loop_t *own;
	int result, ret;

	scene->loops[me] = IDS_OF_A_LOOP;
	if (memwait_loop_new(&own))
		return -1;
	memwait_op_init(&visitor, own, store_result, &result);
	ret = memwait_mutex_clocklock_async(&objects->mutex, CLOCK_MONOTONIC, &deadline, &visitor);
	if (ret == EINPROGRESS) {
		ret = memwait_loop_run(own);
		if (!ret)
			ret = result;
	}
	ret = visit_once(objects, ret);
	memwait_loop_free(own);
	scene->loops[me] = 0;
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

MUTEX_TEST(unlock_to_loop, "unlock, loops wait", .prepare = make_mutex, .approach = lock_mutex,
	   .before = { visit_by_loop, visit_by_loop }, .operation = unlock_mutex, .number = GIVES)
MUTEX_TEST(robust_unlock_to_loop, "ROBUST unlock, loops wait", .prepare = make_mutex,
	   .kind = ROBUST, .approach = lock_mutex, .before = { visit_by_loop, visit_by_loop },
	   .operation = unlock_mutex, .number = GIVES)
MUTEX_TEST(robust_lock_before_loop, "ROBUST lock, loops wait behind it",
	   .prepare = make_locked_mutex, .kind = ROBUST, .operation = lock_mutex,
	   .behind = { visit_by_loop, visit_by_loop }, .release = release_mutex, .number = TAKES)

/* Condition variables */

static int make_cond(struct stage *stage)
{
	return memwait_cond_init(&scene->objects.cond, 0) || make_mutex(stage);
}

static int wait_for_cond(struct objects *objects)
{
	return memwait_cond_wait(&objects->cond, &objects->mutex);
}

static int signal_cond(struct objects *objects)
{
	return memwait_cond_signal(&objects->cond);
}

static int broadcast_cond(struct objects *objects)
{
	return memwait_cond_broadcast(&objects->cond);
}

static int await_cond(struct objects *objects, int me)
{
	struct timespec deadline = patience();
	int err, result;

	(void)me;
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
	if (stage->releases && !ended() && helpers_within(await_cond))
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

static int release_cond_by_broadcast(struct stage *stage)
{
	(void)stage;
	return lock_mutex(&scene->objects) || broadcast_cond(&scene->objects) ||
	       unlock_mutex(&scene->objects);
}

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
COND_TEST(wait_moved, "wait, ended by a broadcast", .approach = lock_mutex,
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

/* Semaphores */

static int make_sem(struct stage *stage)
{
	(void)stage;
	return memwait_sem_init(&scene->objects.sem, 1, 0);
}

static int make_posted_sem(struct stage *stage)
{
	(void)stage;
	return memwait_sem_init(&scene->objects.sem, 1, 1);
}

static int wait_for_sem(struct objects *objects)
{
	return memwait_sem_wait(&objects->sem);
}

static int wait_too_late(struct objects *objects)
{
	struct timespec past = { 0 };

	return memwait_sem_clockwait(&objects->sem, CLOCK_MONOTONIC, &past) != ETIMEDOUT;
}

static int post_sem(struct objects *objects)
{
	return memwait_sem_post(&objects->sem);
}

static int take(struct objects *objects, int me)
{
	struct timespec deadline = patience();

	(void)me;
	return memwait_sem_clockwait(&objects->sem, CLOCK_MONOTONIC, &deadline);
}

static int sem_value(struct objects *objects)
{
	int value;

	return memwait_sem_getvalue(&objects->sem, &value) ? -1 : value;
}

static bool sem_is_empty(void)
{
	return !sem_value(&scene->copy);
}

/* One post for the victim, and one for the first behind it. */
static int release_sem(struct stage *stage)
{
	int i;

	for (i = 0; i < stage->scenario->number; i++) {
		if (memwait_sem_post(&scene->objects.sem))
			return -1;
	}
	return 0;
}

/*
 * What has been posted is there, or somebody has it, but for what the dead has taken; and nobody
 * sleeps beside it. @number: how many posts there were, not counting the victim's.
 */
static const char *check_sem(struct stage *stage)
{
	int least, most, there, busy, posts = stage->scenario->number;

	followers_come(stage);
	if (release_at_last(stage))
		return "it could not be posted";
	if (stage->releases)
		posts *= stage->releases;
	settle(stage, sem_is_empty);
	there = sem_value(&scene->objects) + helpers_done(take, 0);
	if (stage->scenario->operation == post_sem) {
		least = ended() ? posts + 1 : posts;
		most = posts + 1;
	} else if (stage->scenario->operation == wait_too_late) {
		least = posts;
		most = posts;
	} else {
		least = posts - 1;
		most = ended() ? posts - 1 : posts;
	}
	if (ended() && scene->objects.result)
		return say(stage, "result %d", scene->objects.result);
	if (there < least || there > most)
		return say(stage, "%d were there to be taken, not %d to %d", there, least, most);
	/* Those who still sleep get theirs, one by one; and so does somebody new. */
	for (busy = helpers_busy(); busy; busy--) {
		if (helpers_busy() != busy)
			return say(stage, "posts have woken too few, or too many");
		if (memwait_sem_post(&scene->objects.sem))
			return "it could not be posted";
		settle(stage, sem_is_empty);
	}
	if (all_well(stage))
		return all_well(stage);
	helper_start(stage, HELPERS - 1, take);
	if (!sem_value(&scene->objects) && memwait_sem_post(&scene->objects.sem))
		return "it could not be posted";
	settle(stage, NULL);
	return all_well(stage);
}

#define SEM_TEST(id, text, ...) STEPPER_TEST(sem_##id, "semaphore " text,			\
					     .check = check_sem, __VA_ARGS__)

SEM_TEST(wait_posted, "wait, posted", .prepare = make_posted_sem, .operation = wait_for_sem,
	 .number = 1)
SEM_TEST(wait, "wait", .prepare = make_sem, .operation = wait_for_sem, .behind = { take, take },
	 .release = release_sem, .number = 1)
SEM_TEST(wait_two, "wait, posted twice", .prepare = make_sem, .operation = wait_for_sem,
	 .behind = { take, take, take }, .release = release_sem, .number = 2)
SEM_TEST(wait_late, "wait, until its deadline", .prepare = make_sem, .operation = wait_too_late,
	 .before = { take }, .release = release_sem, .number = 1)
SEM_TEST(post, "post", .prepare = make_sem, .operation = post_sem)
SEM_TEST(post_waiters, "post, some wait", .prepare = make_sem, .before = { take, take },
	 .operation = post_sem)
SEM_TEST(wait_async, "wait_async", .prepare = make_sem, .approach = make_loop,
	 .operation = take_by_loop, .behind = { take, take }, .release = release_sem, .number = 1)

/* Read-write locks */

static int make_rwlock(struct stage *stage)
{
	(void)stage;
	return memwait_rwlock_init(&scene->objects.rwlock, scene->kind);
}

static int rdlock(struct objects *objects)
{
	return memwait_rwlock_rdlock(&objects->rwlock);
}

static int wrlock(struct objects *objects)
{
	return memwait_rwlock_wrlock(&objects->rwlock);
}

static int unlock_rwlock(struct objects *objects)
{
	return memwait_rwlock_unlock(&objects->rwlock);
}

static int make_read_rwlock(struct stage *stage)
{
	return make_rwlock(stage) || rdlock(&scene->objects);
}

static int make_written_rwlock(struct stage *stage)
{
	return make_rwlock(stage) || wrlock(&scene->objects);
}

static int keep_rwlock(struct objects *objects, int me)
{
	(void)me;
	return wrlock(objects);
}

static int make_helpers_rwlock(struct stage *stage)
{
	int err = make_rwlock(stage);

	if (err)
		return err;
	helper_start(stage, HELPERS - 1, keep_rwlock);
	settle(stage, NULL);
	return scene->requests[HELPERS - 1].result;
}

static int make_dead_rwlock(struct stage *stage)
{
	return make_helpers_rwlock(stage) || kill_owner(stage);
}

static int write_dead(struct objects *objects)
{
	return wrlock(objects) != EOWNERDEAD;
}

static int mend_and_unlock_rwlock(struct objects *objects)
{
	int err = memwait_rwlock_consistent(&objects->rwlock);

	return err ? err : unlock_rwlock(objects);
}

/* Whoever is told of a death has it for writing. */
static int visit_rwlock(struct objects *objects, int err, bool writes)
{
	if (err == EOWNERDEAD) {
		__atomic_add_fetch(&objects->owner_died, 1, __ATOMIC_RELAXED);
		err = memwait_rwlock_consistent(&objects->rwlock);
		writes = true;
	}
	if (err)
		return err;
	if (writes)
		be_inside(objects);
	else if (objects->inside)
		objects->violations++;
	return unlock_rwlock(objects);
}

static int read_visit(struct objects *objects, int me)
{
	struct timespec deadline = patience();

	(void)me;
	return visit_rwlock(objects, memwait_rwlock_clockrdlock(&objects->rwlock, CLOCK_MONOTONIC,
								&deadline), false);
}

static int write_visit(struct objects *objects, int me)
{
	struct timespec deadline = patience();

	(void)me;
	return visit_rwlock(objects, memwait_rwlock_clockwrlock(&objects->rwlock, CLOCK_MONOTONIC,
								&deadline), true);
}

/* Of a copy; it is made anew for each question. */
static bool is_closed_to_readers(void)
{
	return memwait_rwlock_tryrdlock(&copied()->rwlock) == EBUSY;
}

static bool is_closed_to_writers(void)
{
	return memwait_rwlock_trywrlock(&copied()->rwlock) == EBUSY;
}

/*
 * A lock that is not robust may stay locked for those who wait, if a process dies just as it gets
 * it, or lets it go: with the gate, which is the first word.
 */
static bool gate_is_lost(void)
{
	return !(scene->kind & ROBUST) && !ended() && *(uint32_t *)&scene->copy.rwlock;
}

static bool rwlock_is_had(void)
{
	if (gate_is_lost())
		return true;
	return (!helpers_within(read_visit) || is_closed_to_readers()) &&
	       (!helpers_within(write_visit) || is_closed_to_writers());
}

/*
 * What died with the victim is unlocked for it. Of a lock that is not robust it may be more than
 * can be unlocked, if the victim was amid locking or unlocking it.
 */
static const char *check_rwlock(struct stage *stage)
{
	int number = stage->scenario->number;
	bool robust = scene->kind & ROBUST;
	const char *wrong;

	followers_come(stage);
	if (release_at_last(stage))
		return "it could not be let go on";
	settle(stage, rwlock_is_had);
	if (so_far_well(stage))
		return so_far_well(stage);
	if (ended() && number & TAKES && !robust && !is_closed_to_writers())
		return "it is not locked";
	if (ended() && number & GIVES && !helpers_busy() && is_closed_to_writers())
		return "it was unlocked, and is locked";
	helper_start(stage, HELPERS - 1, read_visit);
	if (!settle(stage, rwlock_is_had) || is_closed_to_writers()) {
		if (so_far_well(stage))
			return so_far_well(stage);
		if (ended() && number & GIVES)
			return "it was unlocked, and is locked";
		if (robust && !(number & FOR_READING))
			return "the death of its writer is not told";
		if (unlock_rwlock(&scene->objects))
			return ended() || robust ? "it could not be unlocked" : NULL;
		if (!settle(stage, rwlock_is_had))
			return ended() || robust ? "it was unlocked, and is locked" : NULL;
	}
	wrong = all_well(stage);
	if (wrong)
		return wrong;
	helper_start(stage, HELPERS - 1, write_visit);
	settle(stage, NULL);
	wrong = all_well(stage);
	if (!wrong && !(number & FOR_READING))
		wrong = check_deaths(stage);
	if (!wrong && memwait_rwlock_destroy(&scene->objects.rwlock))
		wrong = "it cannot be destroyed";
	return wrong;
}

static int release_rwlock(struct stage *stage)
{
	(void)stage;
	return unlock_rwlock(&scene->objects);
}

#define RWLOCK_TEST(id, text, ...) STEPPER_TEST(rwlock_##id, "read-write lock " text,		\
						.check = check_rwlock, __VA_ARGS__)

RWLOCK_TEST(rdlock, "rdlock", .prepare = make_rwlock, .operation = rdlock,
	    .number = TAKES | FOR_READING)
RWLOCK_TEST(rdlock_contended, "rdlock, contended", .prepare = make_written_rwlock,
	    .operation = rdlock, .behind = { read_visit, write_visit }, .release = release_rwlock,
	    .number = TAKES | FOR_READING)
RWLOCK_TEST(wrlock, "wrlock", .prepare = make_rwlock, .operation = wrlock, .number = TAKES)
RWLOCK_TEST(wrlock_contended, "wrlock, contended by a writer", .prepare = make_written_rwlock,
	    .operation = wrlock, .behind = { read_visit, write_visit }, .release = release_rwlock,
	    .number = TAKES)
RWLOCK_TEST(wrlock_readers, "PREFER_WRITER wrlock, contended by a reader",
	    .prepare = make_read_rwlock, .kind = MEMWAIT_RWLOCK_PREFER_WRITER,
	    .operation = wrlock, .behind = { read_visit, write_visit }, .release = release_rwlock,
	    .number = TAKES)
RWLOCK_TEST(unlock_read, "unlock of a reader", .prepare = make_rwlock, .approach = rdlock,
	    .operation = unlock_rwlock, .number = GIVES | FOR_READING)
RWLOCK_TEST(unlock_read_contended, "PREFER_WRITER unlock of a reader, contended",
	    .prepare = make_rwlock, .kind = MEMWAIT_RWLOCK_PREFER_WRITER,
	    .approach = rdlock, .before = { write_visit, read_visit }, .operation = unlock_rwlock,
	    .number = GIVES | FOR_READING)
RWLOCK_TEST(unlock_written, "unlock of a writer", .prepare = make_rwlock, .approach = wrlock,
	    .operation = unlock_rwlock, .number = GIVES)
RWLOCK_TEST(unlock_written_contended, "unlock of a writer, contended", .prepare = make_rwlock,
	    .approach = wrlock, .before = { read_visit, write_visit }, .operation = unlock_rwlock,
	    .number = GIVES)

RWLOCK_TEST(prefer_wrlock_readers, "wrlock, contended by a reader",
	    .prepare = make_read_rwlock, .kind = MEMWAIT_RWLOCK_PREFER_READER, .operation = wrlock,
	    .behind = { write_visit }, .release = release_rwlock, .number = TAKES)
RWLOCK_TEST(prefer_unlock_read, "unlock of a reader, contended",
	    .prepare = make_rwlock, .kind = MEMWAIT_RWLOCK_PREFER_READER, .approach = rdlock,
	    .before = { write_visit, write_visit }, .operation = unlock_rwlock,
	    .number = GIVES | FOR_READING)

RWLOCK_TEST(robust_wrlock, "ROBUST wrlock", .prepare = make_rwlock, .kind = ROBUST,
	    .operation = wrlock, .number = TAKES)
RWLOCK_TEST(robust_rdlock, "ROBUST rdlock", .prepare = make_rwlock, .kind = ROBUST,
	    .operation = rdlock, .number = TAKES | FOR_READING)
RWLOCK_TEST(robust_rdlock_contended, "ROBUST rdlock, contended", .prepare = make_written_rwlock,
	    .kind = ROBUST, .operation = rdlock, .behind = { read_visit, write_visit },
	    .release = release_rwlock, .number = TAKES | FOR_READING)
RWLOCK_TEST(robust_wrlock_contended, "ROBUST wrlock, contended by a writer",
	    .prepare = make_written_rwlock, .kind = ROBUST, .operation = wrlock,
	    .behind = { read_visit, write_visit }, .release = release_rwlock, .number = TAKES)
RWLOCK_TEST(robust_wrlock_readers, "ROBUST wrlock, contended by a reader",
	    .prepare = make_read_rwlock, .kind = ROBUST, .operation = wrlock,
	    .behind = { read_visit, write_visit }, .release = release_rwlock, .number = TAKES)
RWLOCK_TEST(robust_wrlock_dead, "ROBUST wrlock after its writer died", .prepare = make_dead_rwlock,
	    .kind = ROBUST, .operation = wrlock, .number = WAS_DEAD)
RWLOCK_TEST(robust_rdlock_dead, "ROBUST rdlock after its writer died", .prepare = make_dead_rwlock,
	    .kind = ROBUST, .operation = rdlock, .number = WAS_DEAD)
RWLOCK_TEST(robust_rdlock_dying, "ROBUST rdlock, its writer dies", .prepare = make_helpers_rwlock,
	    .kind = ROBUST, .operation = rdlock, .behind = { read_visit, write_visit },
	    .release = kill_owner, .number = WAS_DEAD)
RWLOCK_TEST(robust_unlock_contended, "ROBUST unlock of a writer, contended",
	    .prepare = make_rwlock, .kind = ROBUST, .approach = wrlock,
	    .before = { read_visit, write_visit }, .operation = unlock_rwlock, .number = GIVES)
RWLOCK_TEST(robust_unlock_read, "ROBUST unlock of a reader, contended", .prepare = make_rwlock,
	    .kind = ROBUST, .approach = rdlock, .before = { write_visit, read_visit },
	    .operation = unlock_rwlock, .number = GIVES | FOR_READING)
RWLOCK_TEST(robust_consistent, "ROBUST consistent and unlock", .prepare = make_dead_rwlock,
	    .kind = ROBUST, .approach = write_dead, .before = { read_visit, write_visit },
	    .operation = mend_and_unlock_rwlock, .number = WAS_DEAD | IS_MENDED)

/* Wait groups */

static int make_group(struct stage *stage)
{
	return memwait_waitgroup_init(&scene->objects.group, 0, stage->scenario->number);
}

static int group_done(struct objects *objects)
{
	return memwait_waitgroup_done(&objects->group);
}

static int wait_for_group(struct objects *objects)
{
	return memwait_waitgroup_wait(&objects->group);
}

static int await_group(struct objects *objects, int me)
{
	struct timespec deadline = patience();

	(void)me;
	return memwait_waitgroup_clockwait(&objects->group, CLOCK_MONOTONIC, &deadline);
}

static bool group_counts(void)
{
	struct timespec past = { 0 };

	return memwait_waitgroup_clockwait(&copied()->group, CLOCK_MONOTONIC, &past) == ETIMEDOUT;
}

static int release_group(struct stage *stage)
{
	(void)stage;
	return group_done(&scene->objects);
}

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

/* Barriers; @number: for how many. */

static int make_barrier(struct stage *stage)
{
	return memwait_barrier_init(&scene->objects.barrier, 0, stage->scenario->number);
}

static int note_serial(struct objects *objects, int ret)
{
	if (ret != MEMWAIT_BARRIER_SERIAL_THREAD)
		return ret;
	__atomic_add_fetch(&objects->serials, 1, __ATOMIC_RELAXED);
	return 0;
}

static int arrive(struct objects *objects)
{
	return note_serial(objects, memwait_barrier_wait(&objects->barrier));
}

static int meet(struct objects *objects, int me)
{
	struct timespec deadline = patience();

	(void)me;
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

/* Channels, whose items are numbers in the order of sending; @number: how many there are. */

#define CAPACITY	4
#define MOST_ITEMS	(CAPACITY + HELPERS)

static memwait_channel_t *channel_of(struct objects *objects)
{
	return (memwait_channel_t *)objects->channel;
}

static int make_channel(struct stage *stage)
{
	memwait_channel_t *channel = channel_of(&scene->objects);
	uint64_t item;

	if (memwait_channel_size(sizeof(item), CAPACITY) > sizeof(scene->objects.channel) ||
	    memwait_channel_init(channel, 0, sizeof(item), CAPACITY))
		return -1;
	for (item = 1; item <= (uint64_t)stage->scenario->number; item++) {
		if (memwait_channel_trysend(channel, &item))
			return -1;
	}
	scene->objects.item[VICTIM] = item;
	return 0;
}

/* The victim's is the next one. */
static int send_item(struct objects *objects)
{
	return memwait_channel_send(channel_of(objects), &objects->item[VICTIM]);
}

static int receive_item(struct objects *objects)
{
	return memwait_channel_recv(channel_of(objects), &objects->item[VICTIM]);
}

static int close_channel(struct objects *objects)
{
	return memwait_channel_close(channel_of(objects));
}

/* Helpers send what comes after the victim's. */
static int send_late(struct objects *objects, int me)
{
	struct timespec deadline = patience();
	uint64_t item = CAPACITY + 2 + me;

	return memwait_channel_clocksend(channel_of(objects), &item, CLOCK_MONOTONIC, &deadline);
}

static int receive(struct objects *objects, int me)
{
	struct timespec deadline = patience();

	return memwait_channel_clockrecv(channel_of(objects), &objects->item[me],
					 CLOCK_MONOTONIC, &deadline);
}

static bool channel_is_closed(void)
{
	uint64_t item = 0;
	int err;

	/* Of a copy, as it may be a change. */
	err = memwait_channel_trysend(channel_of(copied()), &item);
	return err == EPIPE;
}

static size_t channel_length(void)
{
	return memwait_channel_length(channel_of(&scene->objects));
}

/* Senders sleep while it is full, receivers while it is empty; and neither when it is closed. */
static bool channel_is_stuck(void)
{
	return !channel_is_closed() &&
	       (!helpers_within(send_late) || channel_length() == CAPACITY) &&
	       (!helpers_within(receive) || !channel_length());
}

/* Receives all that is there, and senders go on. Each item is greater than the one before. */
static const char *drain(struct stage *stage, uint64_t *items, int *count)
{
	int err;

	settle(stage, channel_is_stuck);
	for (*count = 0;; ++*count) {
		struct timespec deadline = patience();

		if (!channel_length())
			return NULL;
		if (*count == MOST_ITEMS)
			return "there are too many items";
		err = memwait_channel_clockrecv(channel_of(&scene->objects), &items[*count],
						CLOCK_MONOTONIC, &deadline);
		if (err)
			return say(stage, "an item cannot be received: %d", err);
		if (*count && items[*count] <= items[*count - 1])
			return say(stage, "item %d after %d", (int)items[*count],
				   (int)items[*count - 1]);
		settle(stage, channel_is_stuck);
	}
}

static bool contains(const uint64_t *items, int count, uint64_t item)
{
	int i;

	for (i = 0; i < count; i++) {
		if (items[i] == item)
			return true;
	}
	return false;
}

static int send_in_time(uint64_t item)
{
	struct timespec deadline = patience();

	return memwait_channel_clocksend(channel_of(&scene->objects), &item, CLOCK_MONOTONIC,
					 &deadline);
}

static int receive_in_time(uint64_t *item)
{
	struct timespec deadline = patience();

	return memwait_channel_clockrecv(channel_of(&scene->objects), item, CLOCK_MONOTONIC,
					 &deadline);
}

/* An empty channel is as good as a new one: twice round, filled up, closed. */
static const char *channel_goes_on(struct stage *stage)
{
	uint64_t i, item = 0;
	int err;

	for (i = 1; i <= 2 * CAPACITY; i++) {
		err = send_in_time(i);
		if (!err)
			err = receive_in_time(&item);
		if (err || item != i)
			return say(stage, "it does not go on: %d, item %d", err, (int)item);
	}
	for (i = 1; i <= CAPACITY; i++) {
		if (send_in_time(i))
			return "it cannot be filled";
	}
	if (memwait_channel_trysend(channel_of(&scene->objects), &i) != EAGAIN)
		return "it is full, and one more can be sent";
	if (close_channel(&scene->objects) || close_channel(&scene->objects) != EPIPE ||
	    send_in_time(i) != EPIPE)
		return "it cannot be closed";
	for (i = 1; i <= CAPACITY; i++) {
		if (receive_in_time(&item) || item != i)
			return "it cannot be drained";
	}
	if (receive_in_time(&item) != EPIPE)
		return "it is closed and empty, and does not say so";
	return NULL;
}

/* All who receive get an item, one after another. */
static const char *feed(struct stage *stage, uint64_t item)
{
	int busy;

	for (busy = helpers_within(receive); busy; busy--) {
		if (send_in_time(item++))
			return "an item cannot be sent";
		settle(stage, channel_is_stuck);
		if (helpers_within(receive) != busy - 1)
			return "a receiver does not get what was sent";
	}
	return NULL;
}

/*
 * Of the items that were there, or sent, one may be missing: the victim's, the one that it sends or
 * the first.
 */
static const char *check_channel(struct stage *stage)
{
	const struct scenario *scenario = stage->scenario;
	bool sends = scenario->operation == send_item, there;
	uint64_t items[MOST_ITEMS], own = sends ? scenario->number + 1 : 1;
	const char *wrong;
	int i, count, received;

	followers_come(stage);
	if (release_at_last(stage))
		return "it could not be let go on";
	received = (int)scene->objects.received;
	settle(stage, channel_is_stuck);
	for (i = 0, there = false; i < HELPERS; i++) {
		if (scene->requests[i].function == receive && !helper_is_busy(i))
			there |= scene->objects.item[i] == own;
	}
	wrong = feed(stage, 100);
	if (!wrong)
		wrong = drain(stage, items, &count);
	if (!wrong)
		wrong = all_well(stage);
	if (wrong)
		return wrong;
	there |= contains(items, count, own) || (sends && received == (int)own);
	if (ended() && scene->objects.result)
		return say(stage, "result %d", scene->objects.result);
	if (ended() && there != sends)
		return there ? "an item was received twice" : "an item is lost";
	if (ended() && !sends && scene->objects.item[VICTIM] != own)
		return "it received something else";
	/* All others: those that were there from the begin, and those of the helpers. */
	for (i = 1; i <= scenario->number; i++) {
		if (i != (int)own && !contains(items, count, i) && received != i)
			return say(stage, "item %d is lost", i);
	}
	for (i = 0; i < HELPERS; i++) {
		if (scene->requests[i].function == send_late &&
		    !contains(items, count, CAPACITY + 2 + i))
			return say(stage, "what helper %d has sent is lost", i);
	}
	return channel_goes_on(stage);
}

/* For a sender an item is received, for a receiver one is sent. */
static int release_channel(struct stage *stage)
{
	if (stage->scenario->operation == send_item)
		return receive_in_time(&scene->objects.received);
	return send_in_time(1);
}

static const char *check_close(struct stage *stage)
{
	uint64_t items[MOST_ITEMS], item;
	const char *wrong;
	int i, count;

	settle(stage, channel_is_stuck);
	if (ended() && (scene->objects.result || !channel_is_closed()))
		return say(stage, "it is not closed, result %d", scene->objects.result);
	if (!channel_is_closed() && close_channel(&scene->objects))
		return "it cannot be closed";
	settle(stage, NULL);
	for (i = 0; i < HELPERS; i++) {
		if (scene->requests[i].function && scene->requests[i].result != EPIPE)
			return say(stage, "helper %d: %d", i, scene->requests[i].result);
	}
	wrong = drain(stage, items, &count);
	if (wrong)
		return wrong;
	if (count != stage->scenario->number)
		return say(stage, "%d items, not %d", count, stage->scenario->number);
	return receive_in_time(&item) == EPIPE ? NULL : "it does not end";
}

#define CHANNEL_TEST(id, text, ...) STEPPER_TEST(channel_##id, "channel " text,			\
						 .prepare = make_channel,			\
						 .check = check_channel, __VA_ARGS__)

CHANNEL_TEST(send, "send", .operation = send_item, .number = 1)
CHANNEL_TEST(send_receivers, "send, some receive", .before = { receive, receive },
	     .operation = send_item)
CHANNEL_TEST(send_full, "send, full", .operation = send_item, .behind = { send_late },
	     .release = release_channel, .number = CAPACITY)
CHANNEL_TEST(receive, "receive", .operation = receive_item, .number = 2)
CHANNEL_TEST(receive_senders, "receive, some send", .before = { send_late, send_late },
	     .operation = receive_item, .number = CAPACITY)
CHANNEL_TEST(receive_empty, "receive, empty", .operation = receive_item,
	     .behind = { receive, receive }, .release = release_channel)
#define CLOSE_TEST(id, text, ...) STEPPER_TEST(channel_##id, "channel " text,			\
					       .prepare = make_channel,				\
					       .operation = close_channel,			\
					       .check = check_close, __VA_ARGS__)

CLOSE_TEST(close, "close", .number = 2)
CLOSE_TEST(close_receivers, "close, some receive", .before = { receive, receive })
CLOSE_TEST(close_senders, "close, some send", .before = { send_late, send_late },
	   .number = CAPACITY)

/* In the end. */
TEST_F_TIMEOUT(stepper, total, 300)
{
	ksft_print_msg("all scenarios: %lu instructions, %lu deaths\n", total[0], total[1]);
	if (!total[0])
		SKIP(return, "nobody was stepped through");
	EXPECT_LT(total[0] / stride(), total[1]);
}

TEST_HARNESS_MAIN
