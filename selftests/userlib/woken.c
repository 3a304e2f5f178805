// SPDX-License-Identifier: GPL-2.0
/* Waiters that die after they were woken, for each object, and waiters that die at a barrier. */
#include "robust_test.h"
#include "objects_test.h"

static const struct timespec *deadline(void)
{
	static __thread struct timespec time;

	time = in_time(CLOCK_MONOTONIC, HALF_A_MINUTE);
	return &time;
}

/* Whether a give wakes one waiter in another process, which may die without excluding others. */
static bool wakes_one(const struct object *object)
{
	return !is_private(object) && !dead_excludes(object) && !object->way->lets_all_go &&
	       !object->way->has_gate && !object->way->meets;
}

/* Waits for at most half a minute. The first waiter can be kept from running. */
static int wait_as(int number, const struct way *way, void *memory)
{
	return !number && pin(0) ? 100 : way->wait_until(memory, CLOCK_MONOTONIC, deadline());
}

/*
 * The first of two waiters is woken and is stopped before it returns to its program. The notify has
 * counted this waiter, which can do nothing for the second waiter. Then the first waiter is killed.
 */
ROBUST_TEST(L7_a_woken_waiter_dies)
{
	void *memory = self->shared;
	const struct object *object;
	pid_t pids[2];
	int j;

	for_each_object(object, wakes_one(object)) {
		const struct way *way = object->way;

		ASSERT_EQ(0, way->make(memory, object->kind));
		for (j = 0; j < 2; j++) {
			pids[j] = run_in_child(wait_as(j, way, memory));
			await_asleep(pids[j]);
		}
		ASSERT_EQ(0, pin(20));
		EXPECT_EQ(0, way->give(memory));
		kill(pids[0], SIGSTOP);
		ASSERT_EQ(0, pin(0));
		sleep_until(strchr("TZ", thread_state(pids[0])));
		/*
		 * The process has already ended: the scheduler occasionally gives ordinary threads
		 * a time slice, in spite of real-time threads.
		 */
		if (thread_state(pids[0]) == 'Z') {
			for (j = 0; j < 2; j++)
				kill_child(pids[j]);
			object--;
			continue;
		}
		EXPECT_EQ('S', thread_state(pids[1])) {
			TH_LOG("%s", object->name);
		}
		EXPECT_EQ(128 + SIGKILL, kill_child(pids[0]));
		EXPECT_EQ(0, child_status(pids[1])) {
			TH_LOG("%s", object->name);
		}
	}
}

/* Barriers: a participant that died while it waited is not counted. */

static int meet(void *arg)
{
	struct shared *shared = arg;

	return memwait_barrier_clockwait(&shared->barrier, CLOCK_MONOTONIC, deadline());
}

/* Returns whether a call returned because all had arrived. Counts SERIAL_THREAD. */
static bool met(int ret, int *serial)
{
	*serial += ret == MEMWAIT_BARRIER_SERIAL_THREAD;
	return !ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD;
}

ROBUST_TEST(L7_a_waiter_at_a_barrier_dies)
{
	struct shared *shared = self->shared;
	struct runner runners[2];
	struct timespec soon;
	int deaths, i, serial;
	pid_t pid;

	for (deaths = 1; deaths <= 3; deaths++) {
		ASSERT_EQ(0, memwait_barrier_init(&shared->barrier, 0, 3));
		runner_start(&runners[0], meet, shared);
		runner_await_asleep(&runners[0]);
		/*
		 * The processes arrive one after another. In total, more processes arrive than the
		 * barrier takes.
		 */
		for (i = 0; i < deaths; i++) {
			pid = run_in_child(meet(shared));
			await_asleep(pid);
			EXPECT_FALSE(runner_is_done(&runners[0]));
			EXPECT_EQ(128 + SIGKILL, kill_child(pid));
		}
		/* This is only the second living participant, so its wait times out. */
		soon = in_time(CLOCK_MONOTONIC, 20);
		EXPECT_EQ(ETIMEDOUT, memwait_barrier_clockwait(&shared->barrier, CLOCK_MONOTONIC,
							       &soon));
		EXPECT_FALSE(runner_is_done(&runners[0]));
		runner_start(&runners[1], meet, shared);
		runner_await_asleep(&runners[1]);
		EXPECT_FALSE(runner_is_done(&runners[1]));
		serial = 0;
		EXPECT_TRUE(met(meet(shared), &serial));
		for (i = 0; i < 2; i++)
			EXPECT_TRUE(met(runner_join(&runners[i]), &serial));
		EXPECT_EQ(1, serial);
	}
}

TEST_HARNESS_MAIN
