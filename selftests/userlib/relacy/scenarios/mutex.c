// SPDX-License-Identifier: GPL-2.0
/* Mutexes: only the holder accesses the data; no thread sleeps while the mutex is free. */
#include <errno.h>
#include <time.h>

#include "../scenarios.h"

static void mutex_set_up(unsigned int kind)
{
	CHECK(!memwait_mutex_init(&shared->mutex, kind));
}

static void mutex_thread(unsigned int thread)
{
	CHECK(!memwait_mutex_lock(&shared->mutex));
	shared->data++;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

static void mutex_finish(void)
{
	CHECK(shared->data == 3);
	CHECK(!memwait_mutex_destroy(&shared->mutex));
}

SCENARIO("mutex", 3, mutex_set_up(0), mutex_thread, mutex_finish);
SCENARIO("mutex private", 3, mutex_set_up(PRIVATE), mutex_thread, mutex_finish);
SCENARIO("mutex fair", 3, mutex_set_up(FAIR), mutex_thread, mutex_finish);
SCENARIO("mutex robust", 3, mutex_set_up(ROBUST), mutex_thread, mutex_finish);

/*
 * Threads relock the mutex immediately. A thread that loses too often has the mutex reserved for
 * it.
 */
static void mutex_again_thread(unsigned int thread)
{
	int i;

	for (i = 0; i < 3; i++)
		mutex_thread(thread);
}

static void mutex_again_finish(void)
{
	CHECK(shared->data == 9);
	CHECK(!memwait_mutex_destroy(&shared->mutex));
}

SCENARIO("mutex again", 3, mutex_set_up(0), mutex_again_thread, mutex_again_finish);
SCENARIO("mutex private again", 3, mutex_set_up(PRIVATE), mutex_again_thread, mutex_again_finish);

/*
 * A late notify, which was meant for an earlier object in this memory, does not hand over the
 * mutex.
 */
static void mutex_late_thread(unsigned int thread)
{
	if (thread == 2)
		CHECK(memwait_notify(&shared->mutex, 1, 0) >= 0);
	else
		mutex_thread(thread);
}

static void mutex_late_finish(void)
{
	CHECK(shared->data == 2);
	CHECK(!memwait_mutex_destroy(&shared->mutex));
}

SCENARIO("mutex fair, notified late", 3, mutex_set_up(FAIR), mutex_late_thread, mutex_late_finish);

/* Other threads read the owner of a recursive mutex. */
static void mutex_recursive_thread(unsigned int thread)
{
	CHECK(!memwait_mutex_lock(&shared->mutex));
	CHECK(!memwait_mutex_lock(&shared->mutex));
	shared->data++;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

SCENARIO("mutex recursive", 3, mutex_set_up(RECURSIVE), mutex_recursive_thread, mutex_finish);

/* Threads that only try to lock, and threads that wait with a deadline. */
static void mutex_try_thread(unsigned int thread)
{
	int ret;

	if (thread == 1)
		ret = memwait_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &soon);
	else
		ret = memwait_mutex_trylock(&shared->mutex);
	if (ret) {
		CHECK(ret == (thread == 1 ? ETIMEDOUT : EBUSY));
		return;
	}
	shared->data++;
	done[thread]++;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

static void mutex_try_finish(void)
{
	CHECK(shared->data == done_by_all());
	CHECK(!memwait_mutex_destroy(&shared->mutex));
}

SCENARIO("mutex trylock", 3, mutex_set_up(0), mutex_try_thread, mutex_try_finish);
SCENARIO("mutex fair trylock", 3, mutex_set_up(FAIR), mutex_try_thread, mutex_try_finish);
SCENARIO("mutex robust trylock", 3, mutex_set_up(ROBUST), mutex_try_thread, mutex_try_finish);

/*
 * Without the device no thread can wait. Nevertheless, data written under the mutex is visible to
 * the next holder.
 */
static void mutex_missing_set_up(void)
{
	mutex_set_up(0);
	device_is_missing();
}

static void mutex_missing_thread(unsigned int thread)
{
	int ret = memwait_mutex_lock(&shared->mutex);

	if (ret) {
		CHECK(ret == ENODEV);
		ret = memwait_mutex_trylock(&shared->mutex);
		CHECK(!ret || ret == EBUSY || ret == ENODEV);
	}
	if (ret)
		return;
	shared->data++;
	done[thread]++;
	ret = memwait_mutex_unlock(&shared->mutex);
	CHECK(!ret || ret == ENODEV);
}

SCENARIO("mutex without the device", 3, mutex_missing_set_up(), mutex_missing_thread,
	 mutex_try_finish);

/* The last holder frees the data and the mutex. */
static void mutex_freed_thread(unsigned int thread)
{
	bool last;

	CHECK(!memwait_mutex_lock(&shared->mutex));
	last = ++shared->data == 3;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
	if (!last)
		return;
	CHECK(!memwait_mutex_destroy(&shared->mutex));
	sim_free(&shared->mutex, sizeof(shared->mutex));
}

SCENARIO("mutex freed", 3, mutex_set_up(0), mutex_freed_thread, no_finish);
SCENARIO("mutex private freed", 3, mutex_set_up(PRIVATE), mutex_freed_thread, no_finish);
SCENARIO("mutex robust freed", 3, mutex_set_up(ROBUST), mutex_freed_thread, no_finish);

/* If destroy succeeds, the mutex may be freed, together with the data that it protected. */
static void mutex_destroyed_thread(unsigned int thread)
{
	if (!thread) {
		CHECK(!memwait_mutex_lock(&shared->mutex));
		set_flag();
		shared->data++;
		CHECK(!memwait_mutex_unlock(&shared->mutex));
	} else if (wait_for_flag() && !memwait_mutex_destroy(&shared->mutex)) {
		shared->data++;
		sim_free(&shared->mutex, sizeof(shared->mutex));
	}
}

SCENARIO("mutex destroyed", 2, mutex_set_up(0), mutex_destroyed_thread, no_finish);
SCENARIO("mutex robust destroyed", 2, mutex_set_up(ROBUST), mutex_destroyed_thread, no_finish);

/*
 * A thread dies. If the mutex is not robust and its holder died inside a call, the mutex may stay
 * locked.
 */
static bool mutex_may_stop(void)
{
	unsigned int thread;

	if (!(sim_latest(&shared->mutex, 4) & 0x100))
		return false;
	for (thread = 0; thread < 3; thread++) {
		if (device_is_dead(thread) && !done[thread])
			return true;
	}
	return false;
}

static void mutex_death_set_up(void)
{
	mutex_set_up(0);
	device_mortal(0, 12);
	device_mortal(1, 12);
	device_may_stop(mutex_may_stop);
}

static void mutex_death_thread(unsigned int thread)
{
	mutex_thread(thread);
	done[thread] = 1;
}

SCENARIO("mutex death", 3, mutex_death_set_up(), mutex_death_thread, no_finish);

/* Waiters die before they get the mutex. */
static void mutex_again_death_set_up(void)
{
	mutex_set_up(0);
	device_mortal(0, 40);
	device_mortal(1, 40);
	device_may_stop(mutex_may_stop);
}

static void mutex_again_death_thread(unsigned int thread)
{
	mutex_again_thread(thread);
	done[thread] = 1;
}

SCENARIO("mutex again death", 3, mutex_again_death_set_up(), mutex_again_death_thread, no_finish);

/* A robust mutex: the next owner gets EOWNERDEAD and sees what the dead thread wrote. */
static void robust_death_set_up(void)
{
	mutex_set_up(MEMWAIT_MUTEX_ROBUST);
	device_mortal(0, 14);
	device_mortal(1, 14);
}

static void robust_death_thread(unsigned int thread)
{
	int ret = thread == 2 && sim_random(4) == 0 ? memwait_mutex_trylock(&shared->mutex) :
						      memwait_mutex_lock(&shared->mutex);

	if (ret == EBUSY)
		return;
	if (ret == EOWNERDEAD) {
		CHECK(deaths());
		shared->data = shared->more_data;
		CHECK(!memwait_mutex_consistent(&shared->mutex));
	} else {
		CHECK(!ret);
	}
	CHECK(shared->data == shared->more_data);
	shared->data++;
	step();
	shared->more_data++;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

static void robust_death_finish(void)
{
	CHECK(!memwait_mutex_destroy(&shared->mutex));
}

SCENARIO("mutex robust death", 3, robust_death_set_up(), robust_death_thread, robust_death_finish);

/* A waiter gives up, although it may have received a death notification. */
static void robust_timed_death_thread(unsigned int thread)
{
	int ret;

	if (thread != 2) {
		robust_death_thread(thread);
		return;
	}
	ret = memwait_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &soon);
	if (ret == ETIMEDOUT)
		return;
	CHECK(!ret || ret == EOWNERDEAD);
	if (ret)
		CHECK(!memwait_mutex_consistent(&shared->mutex));
	shared->data = shared->more_data;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

static void robust_timed_death_set_up(void)
{
	mutex_set_up(MEMWAIT_MUTEX_ROBUST);
	device_mortal(0, 14);
}

SCENARIO("mutex robust deadline death", 3, robust_timed_death_set_up(), robust_timed_death_thread,
	 robust_death_finish);

/* The mutex is not made consistent. Therefore it is not recoverable, and no thread sleeps on it. */
static void robust_lost_thread(unsigned int thread)
{
	int ret = memwait_mutex_lock(&shared->mutex);

	if (ret == ENOTRECOVERABLE) {
		CHECK(deaths());
		return;
	}
	CHECK(!ret || ret == EOWNERDEAD);
	shared->data++;
	step();
	CHECK(!memwait_mutex_unlock(&shared->mutex));
	CHECK(!ret || memwait_mutex_trylock(&shared->mutex) == ENOTRECOVERABLE);
}

SCENARIO("mutex robust not recoverable", 3, robust_death_set_up(), robust_lost_thread,
	 robust_death_finish);

/* The mutex of a dead owner may be destroyed. */
static void robust_death_destroyed_thread(unsigned int thread)
{
	if (!thread) {
		CHECK(!memwait_mutex_lock(&shared->mutex));
		set_flag();
		shared->data++;
		step();
		CHECK(!memwait_mutex_unlock(&shared->mutex));
	} else if (wait_for_flag() && !memwait_mutex_destroy(&shared->mutex)) {
		shared->data++;
		sim_free(&shared->mutex, sizeof(shared->mutex));
	}
}

static void robust_death_destroyed_set_up(void)
{
	mutex_set_up(MEMWAIT_MUTEX_ROBUST);
	device_mortal(0, 8);
}

SCENARIO("mutex robust death destroyed", 2, robust_death_destroyed_set_up(),
	 robust_death_destroyed_thread, no_finish);

/* If an unlock cannot wake a waiter, the next unlock wakes it. */
static void robust_owed_thread(unsigned int thread)
{
	int ret;

	if (thread) {
		mutex_thread(thread);
		return;
	}
	CHECK(!memwait_mutex_lock(&shared->mutex));
	shared->data++;
	device_cannot_wake(true);
	ret = memwait_mutex_unlock(&shared->mutex);
	CHECK(!ret || ret == EMFILE);
	device_cannot_wake(false);
	CHECK(!memwait_mutex_lock(&shared->mutex));
	shared->data++;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

SCENARIO("mutex robust owed", 2, mutex_set_up(ROBUST), robust_owed_thread, mutex_finish);
