// SPDX-License-Identifier: GPL-2.0
/*
 * Barriers: the values that a participant wrote before the barrier are visible to all participants
 * after the barrier.
 */
#include <errno.h>
#include <time.h>

#include "../scenarios.h"

static void barrier_set_up(unsigned int flags, unsigned int count)
{
	CHECK(!memwait_barrier_init(&shared->barrier, flags, count));
}

static void barrier_pass(unsigned int thread, unsigned int count)
{
	unsigned int i;
	int ret;

	shared->of_thread[thread]++;
	ret = memwait_barrier_wait(&shared->barrier);
	/* The thread has not arrived. */
	if (ret == EMFILE) {
		device_cannot_wake(false);
		ret = memwait_barrier_wait(&shared->barrier);
	}
	CHECK(!ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD);
	done[thread] += ret == MEMWAIT_BARRIER_SERIAL_THREAD;
	for (i = 0; i < count; i++)
		CHECK(shared->of_thread[i]);
}

/* Each thread passes twice. Threads that have passed wait for threads that have not. */
static void barrier_thread(unsigned int thread)
{
	int ret;

	barrier_pass(thread, 2);
	device_cannot_wake(false);
	ret = memwait_barrier_wait(&shared->barrier);
	CHECK(!ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD);
	done[thread] += ret == MEMWAIT_BARRIER_SERIAL_THREAD;
	shared->of_thread[!thread]++;
}

/* If one of the threads arrives last, it cannot wake, and its next call wakes the others. */
static void barrier_owed_thread(unsigned int thread)
{
	device_cannot_wake(thread);
	barrier_thread(thread);
}

static void barrier_of_three_thread(unsigned int thread)
{
	barrier_pass(thread, 3);
}

static void barrier_finish(void)
{
	CHECK(done_by_all() == 2);
	CHECK(!memwait_barrier_destroy(&shared->barrier));
}

static void barrier_of_three_finish(void)
{
	CHECK(done_by_all() == 1);
	CHECK(!memwait_barrier_destroy(&shared->barrier));
}

SCENARIO("barrier", 2, barrier_set_up(0, 2), barrier_thread, barrier_finish);
SCENARIO("barrier private", 2, barrier_set_up(PRIVATE, 2), barrier_thread, barrier_finish);
SCENARIO("barrier owed", 2, barrier_set_up(0, 2), barrier_owed_thread, barrier_finish);
SCENARIO("barrier owed private", 2, barrier_set_up(PRIVATE, 2), barrier_owed_thread,
	 barrier_finish);
SCENARIO("barrier of three", 3, barrier_set_up(0, 3), barrier_of_three_thread,
	 barrier_of_three_finish);
SCENARIO("barrier private of three", 3, barrier_set_up(PRIVATE, 3), barrier_of_three_thread,
	 barrier_of_three_finish);

/* Any thread that has passed may destroy and free the barrier. */
static void barrier_freed_thread(unsigned int thread)
{
	barrier_pass(thread, 0);
	if (thread)
		return;
	CHECK(!memwait_barrier_destroy(&shared->barrier));
	sim_free(&shared->barrier, sizeof(shared->barrier));
}

SCENARIO("barrier freed", 3, barrier_set_up(0, 3), barrier_freed_thread, no_finish);
SCENARIO("barrier private freed", 3, barrier_set_up(PRIVATE, 3), barrier_freed_thread, no_finish);

/* A thread that gives up either has not arrived or has passed. */
static void barrier_timed_thread(unsigned int thread)
{
	unsigned int i;
	int ret = 0;

	if (!thread) {
		barrier_pass(thread, 0);
		return;
	}
	shared->of_thread[thread]++;
	for (i = 0; i < 2; i++) {
		ret = memwait_barrier_clockwait(&shared->barrier, CLOCK_MONOTONIC, &soon);
		if (ret != ETIMEDOUT)
			break;
	}
	if (ret == ETIMEDOUT)
		ret = memwait_barrier_wait(&shared->barrier);
	CHECK(!ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD);
	CHECK(shared->of_thread[0]);
	done[thread] += ret == MEMWAIT_BARRIER_SERIAL_THREAD;
}

static void barrier_timed_finish(void)
{
	CHECK(done_by_all() == 1);
	CHECK(!memwait_barrier_destroy(&shared->barrier));
}

SCENARIO("barrier deadline", 2, barrier_set_up(0, 2), barrier_timed_thread, barrier_timed_finish);
SCENARIO("barrier private deadline", 2, barrier_set_up(PRIVATE, 2), barrier_timed_thread,
	 barrier_timed_finish);

/*
 * Process-shared: a thread that has died does not count. Neither of the two other threads may be
 * left waiting.
 */
static bool barrier_may_stop(void)
{
	return device_sleepers() == 1;
}

static void barrier_death_set_up(void)
{
	barrier_set_up(0, 2);
	device_mortal(0, 12);
	device_may_stop(barrier_may_stop);
}

static void barrier_death_thread(unsigned int thread)
{
	int ret = memwait_barrier_wait(&shared->barrier);

	CHECK(!ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD);
}

SCENARIO("barrier death", 3, barrier_death_set_up(), barrier_death_thread, no_finish);

/* One thread gives up. The two other threads meet, unless the first thread has met one of them. */
static void barrier_given_up_set_up(unsigned int flags)
{
	barrier_set_up(flags, 2);
	device_may_stop(barrier_may_stop);
}

static void barrier_given_up_thread(unsigned int thread)
{
	int ret;

	if (thread)
		ret = memwait_barrier_wait(&shared->barrier);
	else
		ret = memwait_barrier_clockwait(&shared->barrier, CLOCK_MONOTONIC, &soon);
	CHECK(!ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD || (ret == ETIMEDOUT && !thread));
	if (ret == ETIMEDOUT)
		device_may_stop(NULL);
}

SCENARIO("barrier given up", 3, barrier_given_up_set_up(0), barrier_given_up_thread, no_finish);
SCENARIO("barrier private given up", 3, barrier_given_up_set_up(PRIVATE), barrier_given_up_thread,
	 no_finish);

/* Private: there are more threads than the count. Each thread meets exactly one other thread. */
static void barrier_of_more_thread(unsigned int thread)
{
	barrier_pass(thread, 0);
}

SCENARIO("barrier private of more", 4, barrier_set_up(PRIVATE, 2), barrier_of_more_thread,
	 barrier_finish);

/*
 * Loads the whole state, so that the simulation knows it before the kernel changes one half of it.
 */
static void barrier_look(void)
{
	int ret = memwait_barrier_inspect(&shared->barrier, NULL, NULL);

	CHECK(!ret || ret == EPIPE);
}

/*
 * One thread aborts the barrier. If another thread fails, it sees what the aborting thread wrote.
 * If it passes, it sees what the other participant wrote.
 */
static void barrier_abort_thread(unsigned int thread)
{
	int ret;

	shared->of_thread[thread]++;
	if (thread == 2) {
		barrier_look();
		CHECK(!memwait_barrier_abort(&shared->barrier));
		CHECK(memwait_barrier_wait(&shared->barrier) == EPIPE);
		return;
	}
	ret = memwait_barrier_wait(&shared->barrier);
	if (ret == EPIPE) {
		CHECK(shared->of_thread[2]);
		CHECK(memwait_barrier_wait(&shared->barrier) == EPIPE);
		return;
	}
	CHECK(!ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD);
	CHECK(shared->of_thread[!thread]);
	done[thread]++;
}

static void barrier_abort_finish(void)
{
	/* Either both threads have passed, or neither has. */
	CHECK(done_by_all() != 1);
	CHECK(!memwait_barrier_destroy(&shared->barrier));
}

SCENARIO("barrier abort", 3, barrier_set_up(0, 2), barrier_abort_thread, barrier_abort_finish);
SCENARIO("barrier private abort", 3, barrier_set_up(PRIVATE, 2), barrier_abort_thread,
	 barrier_abort_finish);

/*
 * Threads reset the barrier before they arrive, so that no reset coincides with a completed round.
 * All threads meet exactly once. No thread fails more often than there are resets, or after the
 * last reset.
 */
static void barrier_arrive(unsigned int thread, unsigned int count, unsigned int resets)
{
	unsigned int failed = 0;
	bool all_reset;
	int ret;

	shared->of_thread[thread]++;
	do {
		all_reset = atomic_load_explicit(&shared->flag, memory_order_acquire) == resets;
		ret = memwait_barrier_wait(&shared->barrier);
		CHECK(ret != EPIPE || (!all_reset && ++failed <= resets));
	} while (ret == EPIPE);
	CHECK(!ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD);
	done[thread] += ret == MEMWAIT_BARRIER_SERIAL_THREAD;
	while (count--)
		CHECK(shared->of_thread[count]);
}

static void barrier_reset(void)
{
	barrier_look();
	CHECK(!memwait_barrier_reset(&shared->barrier));
	atomic_fetch_add_explicit(&shared->flag, 1, memory_order_release);
}

static void barrier_reset_thread(unsigned int thread)
{
	if (!thread)
		barrier_reset();
	barrier_arrive(thread, 2, 1);
}

static void barrier_resets_thread(unsigned int thread)
{
	barrier_reset();
	if (thread)
		barrier_reset();
	barrier_arrive(thread, 3, 5);
}

/* A late reset must not undo what other threads have begun: the generation and its copy. */
static void barrier_late_thread(unsigned int thread)
{
	barrier_reset();
	barrier_reset();
}

static void barrier_late_finish(void)
{
	const uint32_t *words = (const uint32_t *)&shared->barrier;

	CHECK(sim_latest(&words[7], 4) == sim_latest(&shared->barrier, 8) >> 32);
	CHECK(!memwait_barrier_destroy(&shared->barrier));
}

/*
 * If a reset has failed a thread, this thread finds a new barrier. If it aborts that barrier, the
 * abort stays in effect.
 */
static void barrier_again_thread(unsigned int thread)
{
	static const struct timespec past;
	int ret;

	barrier_look();
	if (thread) {
		CHECK(!memwait_barrier_reset(&shared->barrier));
		return;
	}
	ret = memwait_barrier_clockwait(&shared->barrier, CLOCK_MONOTONIC, &soon);
	CHECK(ret == ETIMEDOUT || ret == EPIPE);
	if (ret == ETIMEDOUT)
		return;
	/* The reset may still be in progress. */
	ret = memwait_barrier_clockwait(&shared->barrier, CLOCK_MONOTONIC, &past);
	CHECK(ret == ETIMEDOUT);
	CHECK(!memwait_barrier_abort(&shared->barrier));
	CHECK(memwait_barrier_wait(&shared->barrier) == EPIPE);
}

static void barrier_again_finish(void)
{
	CHECK(!memwait_barrier_destroy(&shared->barrier));
}

SCENARIO("barrier again", 2, barrier_set_up(0, 2), barrier_again_thread, barrier_again_finish);
SCENARIO("barrier private again", 2, barrier_set_up(PRIVATE, 2), barrier_again_thread,
	 barrier_again_finish);
SCENARIO("barrier reset", 2, barrier_set_up(0, 2), barrier_reset_thread, barrier_timed_finish);
SCENARIO("barrier private reset", 2, barrier_set_up(PRIVATE, 2), barrier_reset_thread,
	 barrier_timed_finish);
SCENARIO("barrier resets", 3, barrier_set_up(0, 3), barrier_resets_thread, barrier_timed_finish);
SCENARIO("barrier private resets", 3, barrier_set_up(PRIVATE, 3), barrier_resets_thread,
	 barrier_timed_finish);
SCENARIO("barrier late reset", 3, barrier_set_up(0, 3), barrier_late_thread, barrier_late_finish);
