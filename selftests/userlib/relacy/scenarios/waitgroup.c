// SPDX-License-Identifier: GPL-2.0
/* Wait groups. */
#include <errno.h>
#include <time.h>

#include "../scenarios.h"

static void group_set_up(unsigned int flags, unsigned int count)
{
	CHECK(!memwait_waitgroup_init(&shared->group, flags, count));
}

/* A thread whose wait has returned sees everything that was done before, and may free the group. */
static void group_thread(unsigned int thread)
{
	if (thread) {
		shared->of_thread[thread]++;
		CHECK(!memwait_waitgroup_done(&shared->group));
		return;
	}
	CHECK(!memwait_waitgroup_wait(&shared->group));
	CHECK(shared->of_thread[1] && shared->of_thread[2]);
	CHECK(!memwait_waitgroup_destroy(&shared->group));
	sim_free(&shared->group, sizeof(shared->group));
}

SCENARIO("waitgroup", 3, group_set_up(0, 2), group_thread, no_finish);
SCENARIO("waitgroup private", 3, group_set_up(PRIVATE, 2), group_thread, no_finish);

/* Two threads wait. The count rises again. */
static void group_waiters_thread(unsigned int thread)
{
	if (thread) {
		CHECK(!memwait_waitgroup_wait(&shared->group));
		CHECK(shared->data);
		return;
	}
	shared->data = 1;
	CHECK(!memwait_waitgroup_done(&shared->group));
	CHECK(!memwait_waitgroup_add(&shared->group, 1));
	CHECK(!memwait_waitgroup_done(&shared->group));
}

static void group_finish(void)
{
	CHECK(!memwait_waitgroup_destroy(&shared->group));
}

SCENARIO("waitgroup two waiters", 3, group_set_up(0, 1), group_waiters_thread, group_finish);

/* The last done cannot wake the waiters, and is repeated. */
static void group_refused_thread(unsigned int thread)
{
	int ret;

	if (thread) {
		CHECK(!memwait_waitgroup_wait(&shared->group));
		CHECK(shared->data);
		return;
	}
	shared->data = 1;
	device_fails(true);
	ret = memwait_waitgroup_done(&shared->group);
	CHECK(!ret || ret == EMFILE);
	device_fails(false);
	CHECK(!ret || !memwait_waitgroup_done(&shared->group));
}

SCENARIO("waitgroup refused", 3, group_set_up(0, 1), group_refused_thread, group_finish);
SCENARIO("waitgroup refused private", 3, group_set_up(PRIVATE, 1), group_refused_thread,
	 group_finish);

/* One done too many fails, and no waiter continues to sleep because of it. */
static void group_surplus_thread(unsigned int thread)
{
	if (thread)
		done[thread] = !memwait_waitgroup_done(&shared->group);
	else
		CHECK(!memwait_waitgroup_wait(&shared->group));
}

static void group_surplus_finish(void)
{
	CHECK(done[1] + done[2] == 1);
	group_finish();
}

SCENARIO("waitgroup surplus", 3, group_set_up(0, 1), group_surplus_thread, group_surplus_finish);

/* A thread that has not waited destroys the group. */
static void group_destroyed_thread(unsigned int thread)
{
	if (!thread) {
		shared->data++;
		CHECK(!memwait_waitgroup_done(&shared->group));
	} else if (!memwait_waitgroup_destroy(&shared->group)) {
		shared->data++;
		sim_free(&shared->group, sizeof(shared->group));
	}
}

SCENARIO("waitgroup destroyed", 2, group_set_up(0, 1), group_destroyed_thread, no_finish);

static void group_timed_thread(unsigned int thread)
{
	int ret;

	if (!thread) {
		shared->data++;
		CHECK(!memwait_waitgroup_done(&shared->group));
		return;
	}
	ret = memwait_waitgroup_clockwait(&shared->group, CLOCK_MONOTONIC, &soon);
	CHECK(!ret || ret == ETIMEDOUT);
	if (!ret)
		CHECK(shared->data);
}

SCENARIO("waitgroup deadline", 2, group_set_up(0, 1), group_timed_thread, group_finish);

/* If a thread dies, its done takes effect completely or not at all. */
static bool group_may_stop(void)
{
	return deaths() && sim_latest(&shared->group, 4) & MEMWAIT_WAITGROUP_MAX;
}

static void group_death_set_up(void)
{
	group_set_up(0, 2);
	device_mortal(0, 8);
	device_may_stop(group_may_stop);
}

static void group_death_thread(unsigned int thread)
{
	if (thread < 2)
		CHECK(!memwait_waitgroup_done(&shared->group));
	else
		CHECK(!memwait_waitgroup_wait(&shared->group));
}

SCENARIO("waitgroup death", 4, group_death_set_up(), group_death_thread, no_finish);
