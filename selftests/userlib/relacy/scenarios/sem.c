// SPDX-License-Identifier: GPL-2.0
/*
 * Semaphores: the data that was written before a post is visible to the thread that consumed the
 * post.
 */
#include <errno.h>
#include <time.h>

#include "../scenarios.h"

#define FAIR	MEMWAIT_SEM_FAIR

static void sem_set_up(unsigned int flags, unsigned int value)
{
	CHECK(!memwait_sem_init(&shared->sem, flags, value));
}

static void sem_thread(unsigned int thread)
{
	if (!thread) {
		shared->data = 1;
		CHECK(!memwait_sem_post(&shared->sem));
		CHECK(!memwait_sem_post(&shared->sem));
	} else {
		CHECK(!memwait_sem_wait(&shared->sem));
		CHECK(shared->data == 1);
	}
}

static void sem_finish(void)
{
	int value;

	CHECK(!memwait_sem_getvalue(&shared->sem, &value) && !value);
	CHECK(!memwait_sem_destroy(&shared->sem));
}

SCENARIO("sem", 3, sem_set_up(0, 0), sem_thread, sem_finish);
SCENARIO("sem private", 3, sem_set_up(PRIVATE, 0), sem_thread, sem_finish);
SCENARIO("sem fair", 3, sem_set_up(FAIR, 0), sem_thread, sem_finish);

/* There are two posts and two waits. */
static void sem_many_thread(unsigned int thread)
{
	if (thread < 2) {
		CHECK(!memwait_sem_post(&shared->sem));
	} else {
		CHECK(!memwait_sem_wait(&shared->sem));
	}
}

SCENARIO("sem two posts", 4, sem_set_up(0, 0), sem_many_thread, sem_finish);
SCENARIO("sem private two posts", 4, sem_set_up(PRIVATE, 0), sem_many_thread, sem_finish);
SCENARIO("sem fair two posts", 4, sem_set_up(FAIR, 0), sem_many_thread, sem_finish);

/* The semaphore is used as a lock. */
static void sem_lock_thread(unsigned int thread)
{
	CHECK(!memwait_sem_wait(&shared->sem));
	shared->data++;
	CHECK(!memwait_sem_post(&shared->sem));
}

static void sem_lock_finish(void)
{
	CHECK(shared->data == 3);
	CHECK(!memwait_sem_destroy(&shared->sem));
}

SCENARIO("sem as a lock", 3, sem_set_up(0, 1), sem_lock_thread, sem_lock_finish);
SCENARIO("sem private as a lock", 3, sem_set_up(PRIVATE, 1), sem_lock_thread, sem_lock_finish);
SCENARIO("sem fair as a lock", 3, sem_set_up(FAIR, 1), sem_lock_thread, sem_lock_finish);

/* A thread whose wait has returned may free the semaphore. */
static void sem_freed_thread(unsigned int thread)
{
	if (thread) {
		CHECK(!memwait_sem_post(&shared->sem));
		return;
	}
	CHECK(!memwait_sem_wait(&shared->sem));
	CHECK(!memwait_sem_destroy(&shared->sem));
	sim_free(&shared->sem, sizeof(shared->sem));
}

SCENARIO("sem freed", 2, sem_set_up(0, 0), sem_freed_thread, no_finish);
SCENARIO("sem private freed", 2, sem_set_up(PRIVATE, 0), sem_freed_thread, no_finish);
SCENARIO("sem fair freed", 2, sem_set_up(FAIR, 0), sem_freed_thread, no_finish);

/*
 * If destroy reports no waiter, the semaphore may be freed, and the data written before the posts
 * is visible.
 */
static void sem_destroyed_thread(unsigned int thread)
{
	int value = 0;
	unsigned int i;

	if (thread) {
		shared->data++;
		CHECK(!memwait_sem_post(&shared->sem));
		return;
	}
	for (i = 0; i < 10 && !value; i++)
		CHECK(!memwait_sem_getvalue(&shared->sem, &value));
	if (!value)
		return;
	CHECK(!memwait_sem_destroy(&shared->sem));
	shared->data++;
	sim_free(&shared->sem, sizeof(shared->sem));
}

SCENARIO("sem destroyed", 2, sem_set_up(0, 0), sem_destroyed_thread, no_finish);

/* The wait has a deadline. No post is lost. */
static void sem_timed_thread(unsigned int thread)
{
	int ret;

	if (!thread) {
		shared->data = 1;
		CHECK(!memwait_sem_post(&shared->sem));
		return;
	}
	ret = thread == 1 ? memwait_sem_clockwait(&shared->sem, CLOCK_MONOTONIC, &soon) :
			    memwait_sem_wait(&shared->sem);
	CHECK(!ret || ret == ETIMEDOUT);
	if (ret)
		return;
	CHECK(shared->data == 1);
	/* This post is for the other waiter. */
	CHECK(!memwait_sem_post(&shared->sem));
}

static void sem_timed_finish(void)
{
	int value;

	CHECK(!memwait_sem_getvalue(&shared->sem, &value) && value == 1);
	CHECK(!memwait_sem_destroy(&shared->sem));
}

SCENARIO("sem deadline", 3, sem_set_up(0, 0), sem_timed_thread, sem_timed_finish);
SCENARIO("sem fair deadline", 3, sem_set_up(FAIR, 0), sem_timed_thread, sem_timed_finish);

/*
 * There are two posts for three waiters, two of which may die. No thread sleeps while the value is
 * positive, and only posts that dead threads consumed are lost.
 */
static bool sem_may_stop(void)
{
	return !sim_latest(&shared->sem, 4);
}

static void sem_death_set_up(void)
{
	sem_set_up(0, 0);
	device_mortal(1, 10);
	device_mortal(2, 10);
	device_may_stop(sem_may_stop);
}

static void sem_death_thread(unsigned int thread)
{
	if (!thread) {
		CHECK(!memwait_sem_post(&shared->sem));
		CHECK(!memwait_sem_post(&shared->sem));
	} else {
		CHECK(!memwait_sem_wait(&shared->sem));
		done[thread]++;
	}
}

static void sem_death_finish(void)
{
	int value;

	CHECK(!memwait_sem_getvalue(&shared->sem, &value));
	CHECK((uint32_t)value + done_by_all() <= 2);
	CHECK((uint32_t)value + done_by_all() + deaths() >= 2);
}

SCENARIO("sem death", 4, sem_death_set_up(), sem_death_thread, sem_death_finish);
