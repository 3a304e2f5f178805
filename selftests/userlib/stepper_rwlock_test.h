/* SPDX-License-Identifier: GPL-2.0 */
/* Read-write locks. */
#ifndef STEPPER_RWLOCK_TEST_H
#define STEPPER_RWLOCK_TEST_H

#include "stepper_mutex_test.h"

STAGE_CALL(make_rwlock, memwait_rwlock_init(&scene->objects.rwlock, scene->kind))

OPERATION(rdlock, memwait_rwlock_rdlock(&objects->rwlock))
OPERATION(wrlock, memwait_rwlock_wrlock(&objects->rwlock))
OPERATION(unlock_rwlock, memwait_rwlock_unlock(&objects->rwlock))

STAGE_CALL(make_read_rwlock, make_rwlock(stage) || rdlock(&scene->objects))
STAGE_CALL(make_written_rwlock, make_rwlock(stage) || wrlock(&scene->objects))

static int keep_rwlock(struct objects *objects, int me)
{
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

STAGE_CALL(make_dead_rwlock, make_helpers_rwlock(stage) || kill_owner(stage))

OPERATION(write_dead, wrlock(objects) != EOWNERDEAD)

static int mend_and_unlock_rwlock(struct objects *objects)
{
	return memwait_rwlock_consistent(&objects->rwlock) ?: unlock_rwlock(objects);
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

STAGE_CALL(release_rwlock, unlock_rwlock(&scene->objects))

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

#endif /* STEPPER_RWLOCK_TEST_H */
