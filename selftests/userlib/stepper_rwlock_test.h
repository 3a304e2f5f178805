/* SPDX-License-Identifier: GPL-2.0 */
/* Read-write locks. */
#ifndef STEPPER_RWLOCK_TEST_H
#define STEPPER_RWLOCK_TEST_H

#include "stepper_mutex_test.h"

STEPPER_CALL(make_rwlock, memwait_rwlock_init(&shared->objects.rwlock, shared->kind))

OPERATION(rdlock, memwait_rwlock_rdlock(&objects->rwlock))
OPERATION(wrlock, memwait_rwlock_wrlock(&objects->rwlock))
OPERATION(unlock_rwlock, memwait_rwlock_unlock(&objects->rwlock))

STEPPER_CALL(make_read_rwlock, make_rwlock(stepper) || rdlock(&shared->objects))
STEPPER_CALL(make_written_rwlock, make_rwlock(stepper) || wrlock(&shared->objects))

static int hold_rwlock(struct objects *objects, int me)
{
	return wrlock(objects);
}

static int make_helpers_rwlock(struct stepper *stepper)
{
	int err = make_rwlock(stepper);

	if (err)
		return err;
	helper_start(stepper, HELPERS - 1, hold_rwlock);
	settle(stepper, NULL);
	return shared->requests[HELPERS - 1].result;
}

STEPPER_CALL(make_orphaned_rwlock, make_helpers_rwlock(stepper) || kill_owner(stepper))

OPERATION(write_dead, wrlock(objects) != EOWNERDEAD)

static int repair_and_unlock_rwlock(struct objects *objects)
{
	return memwait_rwlock_consistent(&objects->rwlock) ?: unlock_rwlock(objects);
}

/* A caller that gets EOWNERDEAD holds the lock for writing. */
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
		check_exclusion(objects);
	else if (objects->inside)
		objects->violations++;
	return unlock_rwlock(objects);
}

static int read_visit(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();

	return visit_rwlock(objects, memwait_rwlock_clockrdlock(&objects->rwlock, CLOCK_MONOTONIC,
								&deadline), false);
}

static int write_visit(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();

	return visit_rwlock(objects, memwait_rwlock_clockwrlock(&objects->rwlock, CLOCK_MONOTONIC,
								&deadline), true);
}

/* Works on a copy of the lock. Each call creates a new copy. */
static bool is_closed_to_readers(void)
{
	return memwait_rwlock_tryrdlock(&copied()->rwlock) == EBUSY;
}

static bool is_closed_to_writers(void)
{
	return memwait_rwlock_trywrlock(&copied()->rwlock) == EBUSY;
}

/*
 * If a process dies while it acquires or releases a lock that is not robust, the lock may stay
 * locked: the gate (the first word) is held.
 */
static bool gate_is_lost(void)
{
	return !(shared->kind & ROBUST) && !ended() && *(uint32_t *)&shared->copy.rwlock;
}

static bool rwlock_is_held(void)
{
	if (gate_is_lost())
		return true;
	return (!helpers_waiting(read_visit) || is_closed_to_readers()) &&
	       (!helpers_waiting(write_visit) || is_closed_to_writers());
}

/*
 * If the victim died while it held the lock, the test unlocks the lock. If the lock is not robust
 * and the victim died inside a lock or unlock function, unlocking it may be impossible.
 */
static const char *check_rwlock(struct stepper *stepper)
{
	int number = stepper->scenario->number;
	bool robust = shared->kind & ROBUST;
	const char *wrong;

	start_followers(stepper);
	if (release_at_last(stepper))
		return "the waiters could not be released";
	settle(stepper, rwlock_is_held);
	if (so_far_well(stepper))
		return so_far_well(stepper);
	if (ended() && number & TAKES && !robust && !is_closed_to_writers())
		return "it is not locked";
	if (ended() && number & GIVES && !helpers_busy() && is_closed_to_writers())
		return "it was unlocked, but is locked";
	helper_start(stepper, HELPERS - 1, read_visit);
	if (!settle(stepper, rwlock_is_held) || is_closed_to_writers()) {
		if (so_far_well(stepper))
			return so_far_well(stepper);
		if (ended() && number & GIVES)
			return "it was unlocked, but is locked";
		if (robust && !(number & FOR_READING))
			return "the death of its writer is not reported";
		if (unlock_rwlock(&shared->objects))
			return ended() || robust ? "it could not be unlocked" : NULL;
		if (!settle(stepper, rwlock_is_held))
			return ended() || robust ? "it was unlocked, but is locked" : NULL;
	}
	wrong = all_well(stepper);
	if (wrong)
		return wrong;
	helper_start(stepper, HELPERS - 1, write_visit);
	settle(stepper, NULL);
	wrong = all_well(stepper);
	if (!wrong && !(number & FOR_READING))
		wrong = check_deaths(stepper);
	if (!wrong && memwait_rwlock_destroy(&shared->objects.rwlock))
		wrong = "it cannot be destroyed";
	return wrong;
}

STEPPER_CALL(release_rwlock, unlock_rwlock(&shared->objects))

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
RWLOCK_TEST(robust_wrlock_dead, "ROBUST wrlock after its writer died",
	    .prepare = make_orphaned_rwlock, .kind = ROBUST, .operation = wrlock,
	    .number = WAS_DEAD)
RWLOCK_TEST(robust_rdlock_dead, "ROBUST rdlock after its writer died",
	    .prepare = make_orphaned_rwlock, .kind = ROBUST, .operation = rdlock,
	    .number = WAS_DEAD)
RWLOCK_TEST(robust_rdlock_dying, "ROBUST rdlock, its writer dies", .prepare = make_helpers_rwlock,
	    .kind = ROBUST, .operation = rdlock, .behind = { read_visit, write_visit },
	    .release = kill_owner, .number = WAS_DEAD)
RWLOCK_TEST(robust_unlock_contended, "ROBUST unlock of a writer, contended",
	    .prepare = make_rwlock, .kind = ROBUST, .approach = wrlock,
	    .before = { read_visit, write_visit }, .operation = unlock_rwlock, .number = GIVES)
RWLOCK_TEST(robust_unlock_read, "ROBUST unlock of a reader, contended", .prepare = make_rwlock,
	    .kind = ROBUST, .approach = rdlock, .before = { write_visit, read_visit },
	    .operation = unlock_rwlock, .number = GIVES | FOR_READING)
RWLOCK_TEST(robust_consistent, "ROBUST consistent and unlock", .prepare = make_orphaned_rwlock,
	    .kind = ROBUST, .approach = write_dead, .before = { read_visit, write_visit },
	    .operation = repair_and_unlock_rwlock, .number = WAS_DEAD | IS_MENDED)

#endif /* STEPPER_RWLOCK_TEST_H */
