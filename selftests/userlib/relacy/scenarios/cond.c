// SPDX-License-Identifier: GPL-2.0
/* Condition variables. */
#include <errno.h>
#include <time.h>

#include "../scenarios.h"

static void cond_set_up(unsigned int cond_flags, unsigned int kind)
{
	CHECK(!memwait_cond_init(&shared->cond, cond_flags));
	CHECK(!memwait_mutex_init(&shared->mutex, kind));
	CHECK(!memwait_mutex_init(&shared->far_mutex, kind));
}

static void cond_wait_for_data(memwait_mutex_t *mutex)
{
	CHECK(!memwait_mutex_lock(mutex));
	while (!shared->data)
		CHECK(!memwait_cond_wait(&shared->cond, mutex));
	shared->data--;
	CHECK(!memwait_mutex_unlock(mutex));
}

static void cond_signal_thread(unsigned int thread)
{
	if (thread) {
		cond_wait_for_data(&shared->mutex);
		return;
	}
	CHECK(!memwait_mutex_lock(&shared->mutex));
	shared->data++;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
	CHECK(!memwait_cond_signal(&shared->cond));
	CHECK(!memwait_mutex_lock(&shared->mutex));
	shared->data++;
	CHECK(!memwait_cond_signal(&shared->cond));
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

/* The first signal cannot wake a waiter. The second signal wakes it. */
static void cond_owed_thread(unsigned int thread)
{
	int ret;

	if (thread) {
		cond_wait_for_data(&shared->mutex);
		return;
	}
	CHECK(!memwait_mutex_lock(&shared->mutex));
	shared->data += 2;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
	device_fails(true);
	ret = memwait_cond_broadcast(&shared->cond);
	CHECK(!ret || ret == EMFILE);
	device_fails(false);
	CHECK(!memwait_cond_signal(&shared->cond));
}

static void cond_finish(void)
{
	CHECK(!shared->data);
	CHECK(!memwait_cond_destroy(&shared->cond));
	CHECK(!memwait_mutex_destroy(&shared->mutex));
}

SCENARIO("cond signal", 3, cond_set_up(0, 0), cond_signal_thread, cond_finish);
SCENARIO("cond owed", 3, cond_set_up(0, 0), cond_owed_thread, cond_finish);
SCENARIO("cond private owed", 3, cond_set_up(PRIVATE, PRIVATE), cond_owed_thread, cond_finish);
SCENARIO("cond private signal", 3, cond_set_up(PRIVATE, PRIVATE), cond_signal_thread, cond_finish);

static void cond_broadcast_by(unsigned int thread, memwait_mutex_t *mutex)
{
	if (thread) {
		cond_wait_for_data(mutex);
		return;
	}
	CHECK(!memwait_mutex_lock(mutex));
	shared->data += 2;
	CHECK(!memwait_cond_broadcast(&shared->cond));
	CHECK(!memwait_mutex_unlock(mutex));
}

static void cond_broadcast_thread(unsigned int thread)
{
	cond_broadcast_by(thread, &shared->mutex);
}

/* The broadcaster does not hold the mutex. */
static void cond_broadcast_late_thread(unsigned int thread)
{
	if (thread) {
		cond_wait_for_data(&shared->mutex);
		return;
	}
	CHECK(!memwait_mutex_lock(&shared->mutex));
	shared->data += 2;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
	CHECK(!memwait_cond_broadcast(&shared->cond));
}

SCENARIO("cond broadcast", 3, cond_set_up(0, 0), cond_broadcast_thread, cond_finish);
SCENARIO("cond private broadcast", 3, cond_set_up(PRIVATE, PRIVATE), cond_broadcast_thread,
	 cond_finish);
SCENARIO("cond broadcast without the mutex", 3, cond_set_up(0, 0), cond_broadcast_late_thread,
	 cond_finish);
SCENARIO("cond broadcast fair", 3, cond_set_up(0, FAIR), cond_broadcast_thread, cond_finish);
SCENARIO("cond broadcast robust", 3, cond_set_up(0, ROBUST), cond_broadcast_thread, cond_finish);

/* Two waiters use two different mutexes at the same time. */
static void cond_two_mutexes_thread(unsigned int thread)
{
	if (thread == 1) {
		cond_wait_for_data(&shared->mutex);
		return;
	}
	if (thread == 2) {
		CHECK(!memwait_mutex_lock(&shared->far_mutex));
		while (!shared->more_data)
			CHECK(!memwait_cond_wait(&shared->cond, &shared->far_mutex));
		CHECK(!memwait_mutex_unlock(&shared->far_mutex));
		return;
	}
	CHECK(!memwait_mutex_lock(&shared->mutex));
	shared->data = 1;
	CHECK(!memwait_mutex_lock(&shared->far_mutex));
	shared->more_data = 1;
	CHECK(!memwait_mutex_unlock(&shared->far_mutex));
	CHECK(!memwait_cond_broadcast(&shared->cond));
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

static void cond_two_mutexes_finish(void)
{
	CHECK(!memwait_cond_destroy(&shared->cond));
	CHECK(!memwait_mutex_destroy(&shared->mutex));
	CHECK(!memwait_mutex_destroy(&shared->far_mutex));
}

SCENARIO("cond broadcast to two mutexes", 3, cond_set_up(0, 0), cond_two_mutexes_thread,
	 cond_two_mutexes_finish);

/*
 * The condition variable is destroyed and freed after a broadcast, while the woken waiters leave.
 */
static void cond_freed_thread(unsigned int thread)
{
	if (thread) {
		CHECK(!memwait_mutex_lock(&shared->mutex));
		shared->more_data++;
		while (!shared->data)
			CHECK(!memwait_cond_wait(&shared->cond, &shared->mutex));
		CHECK(!memwait_mutex_unlock(&shared->mutex));
		return;
	}
	CHECK(!memwait_mutex_lock(&shared->mutex));
	shared->data = 1;
	/* Threads that come later do not wait. */
	CHECK(!memwait_cond_broadcast(&shared->cond));
	CHECK(!memwait_mutex_unlock(&shared->mutex));
	CHECK(!memwait_cond_destroy(&shared->cond));
	sim_free(&shared->cond, sizeof(shared->cond));
}

SCENARIO("cond freed", 3, cond_set_up(0, 0), cond_freed_thread, no_finish);
SCENARIO("cond private freed", 3, cond_set_up(PRIVATE, PRIVATE), cond_freed_thread, no_finish);
SCENARIO("cond fair freed", 3, cond_set_up(0, FAIR), cond_freed_thread, no_finish);

/* The wait has a deadline. */
static void cond_timed_thread(unsigned int thread)
{
	int ret = 0;

	if (thread != 1) {
		cond_broadcast_by(thread, &shared->mutex);
		return;
	}
	CHECK(!memwait_mutex_lock(&shared->mutex));
	while (!shared->data && !ret)
		ret = memwait_cond_clockwait(&shared->cond, &shared->mutex, CLOCK_MONOTONIC, &soon);
	CHECK(!ret || ret == ETIMEDOUT);
	shared->more_data++;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

static void cond_timed_finish(void)
{
	CHECK(shared->data == 1);
	CHECK(!memwait_cond_destroy(&shared->cond));
	CHECK(!memwait_mutex_destroy(&shared->mutex));
}

SCENARIO("cond deadline", 3, cond_set_up(0, 0), cond_timed_thread, cond_timed_finish);

/* A waiter or the broadcaster dies. The mutex is robust. */
static void cond_lock_again(int ret)
{
	CHECK(!ret || ret == EOWNERDEAD);
	if (ret)
		CHECK(!memwait_mutex_consistent(&shared->mutex));
}

static void cond_death_thread(unsigned int thread)
{
	cond_lock_again(memwait_mutex_lock(&shared->mutex));
	if (thread) {
		while (!shared->data)
			cond_lock_again(memwait_cond_wait(&shared->cond, &shared->mutex));
	} else {
		shared->data = 1;
		CHECK(!memwait_cond_broadcast(&shared->cond));
	}
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

static void cond_death_set_up(void)
{
	cond_set_up(0, MEMWAIT_MUTEX_ROBUST);
	device_mortal(1, 20);
}

SCENARIO("cond death", 3, cond_death_set_up(), cond_death_thread, no_finish);

/* If the mutex is not robust and the dead thread holds it, woken waiters may sleep forever. */
static bool cond_may_stop(void)
{
	return device_is_dead(0) && !done[0] &&
	       (sim_latest(&shared->mutex, 4) || !device_sleepers_on(&shared->mutex));
}

static void cond_broadcaster_dies_set_up(void)
{
	cond_set_up(0, 0);
	device_mortal(0, 20);
	device_may_stop(cond_may_stop);
}

static void cond_broadcaster_dies_thread(unsigned int thread)
{
	if (thread) {
		cond_wait_for_data(&shared->mutex);
		return;
	}
	CHECK(!memwait_mutex_lock(&shared->mutex));
	shared->data += 2;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
	CHECK(!memwait_cond_broadcast(&shared->cond));
	done[thread] = 1;
}

SCENARIO("cond broadcast death", 3, cond_broadcaster_dies_set_up(), cond_broadcaster_dies_thread,
	 no_finish);

/*
 * The mutex becomes not recoverable while a thread waits for the condition. A thread that detects
 * this broadcasts, and the waiter returns with ENOTRECOVERABLE.
 */
static void cond_lost_set_up(void)
{
	cond_set_up(0, ROBUST);
	device_mortal(0, 12);
}

static void cond_lost_wait(void)
{
	int ret = memwait_mutex_lock(&shared->mutex);

	while (ret != ENOTRECOVERABLE) {
		cond_lock_again(ret);
		if (shared->data)
			break;
		ret = memwait_cond_wait(&shared->cond, &shared->mutex);
	}
	if (ret != ENOTRECOVERABLE)
		CHECK(!memwait_mutex_unlock(&shared->mutex));
}

static void cond_lost_thread(unsigned int thread)
{
	int ret;

	if (thread == 1) {
		cond_lost_wait();
		return;
	}
	ret = memwait_mutex_lock(&shared->mutex);
	CHECK(!ret || ret == EOWNERDEAD || ret == ENOTRECOVERABLE);
	if (!thread) {
		step();
		if (ret)
			return;
	} else if (!ret) {
		shared->data = 1;
	}
	if (ret != EOWNERDEAD)
		CHECK(!memwait_cond_broadcast(&shared->cond));
	if (ret != ENOTRECOVERABLE)
		CHECK(!memwait_mutex_unlock(&shared->mutex));
}

SCENARIO("cond not recoverable", 4, cond_lost_set_up(), cond_lost_thread, no_finish);
