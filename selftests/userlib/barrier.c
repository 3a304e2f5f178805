// SPDX-License-Identifier: GPL-2.0
/* Barriers and wait groups. */
#include "userlib_test.h"

#define ROUNDS	(getenv("MEMWAIT_LOADS") ? 200 : 2000)
#define MEET	4

struct shared {
	memwait_barrier_t barrier;
	memwait_waitgroup_t group;
	int serial, violations;
	int rounds[MEET + 1];
	long work[MEET + 1];
	int begin;
};

/* In each round all must have done the round before. */
static void check_round(struct shared *shared, int own, int round)
{
	int i;

	for (i = 0; i < MEET; i++)
		if (__atomic_load_n(&shared->rounds[i], __ATOMIC_RELAXED) < round)
			__atomic_add_fetch(&shared->violations, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&shared->rounds[own], round + 1, __ATOMIC_RELAXED);
}

struct part {
	struct shared *shared;
	int number;
};

static int meet_often(void *arg)
{
	struct part *part = arg;
	struct shared *shared = part->shared;
	int i, ret;

	for (i = 0; i < ROUNDS; i++) {
		__atomic_store_n(&shared->rounds[part->number], i + 1, __ATOMIC_RELAXED);
		ret = memwait_barrier_wait(&shared->barrier);
		if (ret == MEMWAIT_BARRIER_SERIAL_THREAD)
			__atomic_add_fetch(&shared->serial, 1, __ATOMIC_RELAXED);
		else if (ret)
			return ret;
		check_round(shared, part->number, i + 1);
	}
	return 0;
}

struct meeting_op {
	struct part part;
	memwait_op_t op;
	int round, error;
};

static void meet_by_callback(memwait_op_t *op, int result, void *data)
{
	struct meeting_op *meeting = data;
	struct shared *shared = meeting->part.shared;

	while (result == 0 || result == MEMWAIT_BARRIER_SERIAL_THREAD) {
		if (result)
			__atomic_add_fetch(&shared->serial, 1, __ATOMIC_RELAXED);
		check_round(shared, meeting->part.number, ++meeting->round);
		if (meeting->round == ROUNDS)
			return;
		result = memwait_barrier_wait_async(&shared->barrier, op);
	}
	if (result != EINPROGRESS)
		meeting->error = result;
}

USERLIB_TEST(all_meet_in_every_round)
{
	int memfd = memfd_create("barrier", MFD_CLOEXEC), ret, i;
	struct meeting_op meeting = { 0 };
	struct runner runners[2];
	struct shared *shared;
	struct part parts[2];
	pid_t child;

	ASSERT_EQ(0, ftruncate(memfd, 4096));
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	ASSERT_NE(MAP_FAILED, shared);
	ASSERT_EQ(0, memwait_barrier_init(&shared->barrier, 0, MEET));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		parts[0].shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
		parts[0].number = 3;
		munmap(shared, 4096);
		_exit(meet_often(&parts[0]));
	}
	for (i = 0; i < 2; i++) {
		parts[i] = (struct part){ shared, i };
		runner_start(&runners[i], meet_often, &parts[i]);
	}
	meeting.part = (struct part){ shared, 2 };
	memwait_op_init(&meeting.op, self->loop, meet_by_callback, &meeting);
	__atomic_store_n(&shared->rounds[2], 1, __ATOMIC_RELAXED);
	ret = memwait_barrier_wait_async(&shared->barrier, &meeting.op);
	if (ret != EINPROGRESS)
		meet_by_callback(&meeting.op, ret, &meeting);
	ASSERT_EQ(0, memwait_loop_run(self->loop));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
	EXPECT_EQ(0, userlib_child_status(child));
	EXPECT_EQ(0, meeting.error);
	EXPECT_EQ(ROUNDS, meeting.round);
	EXPECT_EQ(ROUNDS, shared->serial);
	EXPECT_EQ(0, shared->violations);
	EXPECT_EQ(0, memwait_barrier_destroy(&shared->barrier));
	munmap(shared, 4096);
	close(memfd);
}

static int meet_once(void *arg)
{
	return memwait_barrier_wait(arg);
}

USERLIB_TEST(barrier_errors)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = { 0 };
	struct runner runner;

	EXPECT_EQ(EINVAL, memwait_barrier_wait(barrier));
	EXPECT_EQ(EINVAL, memwait_barrier_init(barrier, 0, 0));
	EXPECT_EQ(EINVAL, memwait_barrier_init(barrier, 1, 1));
	EXPECT_EQ(EINVAL, memwait_barrier_init(NULL, 0, 1));
	EXPECT_EQ(EINVAL, memwait_barrier_wait(NULL));
	EXPECT_EQ(EINVAL, memwait_barrier_destroy(NULL));
	EXPECT_EQ(EINVAL, memwait_barrier_wait_async(NULL, NULL));
	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 1));
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	runner_start(&runner, meet_once, barrier);
	/* The generation is the upper half of the first word. */
	await_waiters(self->fd, (uint32_t *)barrier + 1, U32_SIZE, 1);
	EXPECT_EQ(EBUSY, memwait_barrier_destroy(barrier));
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait_async(barrier, &counted.op));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
}

USERLIB_TEST(who_gives_up_has_not_arrived)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = { 0 };
	struct timespec time;
	struct runner runner;
	int i, ret;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (i = 0; i < 2; i++) {
		time = in_time(clocks[i], 10);
		EXPECT_EQ(ETIMEDOUT, memwait_barrier_clockwait(barrier, clocks[i], &time));
		time = in_time(clocks[i], 10);
		counted.calls = 0;
		ret = memwait_barrier_clockwait_async(barrier, clocks[i], &time, &counted.op);
		if (ret == EINPROGRESS) {
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			ret = counted.result;
		}
		EXPECT_EQ(ETIMEDOUT, ret);
		time = (struct timespec){ 0, -1 };
		EXPECT_EQ(EINVAL, memwait_barrier_clockwait(barrier, clocks[i], &time));
		EXPECT_EQ(EINVAL, memwait_barrier_clockwait_async(barrier, clocks[i], &time,
								  &counted.op));
	}
	time = in_time(CLOCK_REALTIME, -1);
	EXPECT_EQ(ETIMEDOUT, memwait_barrier_timedwait(barrier, &time));
	ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted.op));
	ASSERT_EQ(0, memwait_op_cancel(&counted.op));

	/* So it takes two still. */
	runner_start(&runner, meet_once, barrier);
	await_waiters(self->fd, (uint32_t *)barrier + 1, U32_SIZE, 1);
	EXPECT_FALSE(runner_is_done(&runner));
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
}

static int meet_at_once(void *arg)
{
	struct shared *shared = arg;

	while (!__atomic_load_n(&shared->begin, __ATOMIC_ACQUIRE))
		;
	return memwait_barrier_wait(&shared->barrier);
}

/* The arrival was taken back, or it has let the other one through: never both, never neither. */
USERLIB_TEST(L3_cancel_races_with_the_last_arrival)
{
	struct shared *shared = self->shared;
	struct counted_op counted = { 0 };
	struct runner last;
	int round, ret, alone = 0;

	for (round = 0; round < ROUNDS; round++) {
		memset(shared, 0, sizeof(*shared));
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(0, memwait_barrier_init(&shared->barrier, 0, 2));
		ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(&shared->barrier, &counted.op));
		runner_start(&last, meet_at_once, shared);
		__atomic_store_n(&shared->begin, 1, __ATOMIC_RELEASE);
		if (round % 2)
			sched_yield();
		ASSERT_EQ(0, memwait_op_cancel(&counted.op));
		/* If the other one waits now, meet it. */
		while (!runner_is_done(&last) &&
		       memwait_waiters((uint32_t *)&shared->barrier + 1, 0) != 1)
			sched_yield();
		if (!runner_is_done(&last)) {
			alone++;
			ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD,
				  memwait_barrier_wait(&shared->barrier));
			ASSERT_EQ(0, runner_join(&last));
		} else {
			ret = runner_join(&last);
			ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, ret);
		}
		ASSERT_EQ(0, counted.calls);
		ASSERT_EQ(0, memwait_barrier_destroy(&shared->barrier));
	}
	TH_LOG("taken back before the other came: %d of %d", alone, round);
}

static int meet_and_destroy(void *arg)
{
	struct shared *shared = arg;
	int ret = memwait_barrier_wait(&shared->barrier);

	if (ret != MEMWAIT_BARRIER_SERIAL_THREAD)
		return ret;
	ret = memwait_barrier_destroy(&shared->barrier);
	memset(&shared->barrier, 0xa5, sizeof(shared->barrier));
	return ret;
}

USERLIB_TEST(the_serial_thread_may_destroy_it_at_once)
{
	struct shared *shared = self->shared;
	struct runner runners[3];
	int round, i;

	for (round = 0; round < ROUNDS / 4; round++) {
		ASSERT_EQ(0, memwait_barrier_init(&shared->barrier, 0, 3));
		for (i = 0; i < 3; i++)
			runner_start(&runners[i], meet_and_destroy, shared);
		for (i = 0; i < 3; i++)
			ASSERT_EQ(0, runner_join(&runners[i]));
		for (i = 0; i < (int)sizeof(shared->barrier); i++)
			ASSERT_EQ(0xa5, ((unsigned char *)&shared->barrier)[i]);
	}
}

static void nothing(int signal)
{
	(void)signal;
}

static int wait_for_group(void *arg)
{
	return memwait_waitgroup_wait(arg);
}

USERLIB_TEST(neither_is_interrupted_nor_cancelled)
{
	struct sigaction action = { .sa_handler = nothing };
	struct shared *shared = self->shared;
	struct runner at_barrier, at_group;

	sigaction(SIGUSR1, &action, NULL);
	ASSERT_EQ(0, memwait_barrier_init(&shared->barrier, 0, 2));
	ASSERT_EQ(0, memwait_waitgroup_init(&shared->group, 1));
	runner_start(&at_barrier, meet_once, &shared->barrier);
	runner_start(&at_group, wait_for_group, &shared->group);
	await_waiters(self->fd, (uint32_t *)&shared->barrier + 1, U32_SIZE, 1);
	await_waiters(self->fd, (uint32_t *)&shared->group + 1, U32_SIZE, 1);
	pthread_kill(at_barrier.thread, SIGUSR1);
	pthread_kill(at_group.thread, SIGUSR1);
	pthread_cancel(at_barrier.thread);
	pthread_cancel(at_group.thread);
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(&shared->barrier));
	EXPECT_EQ(0, memwait_waitgroup_done(&shared->group));
	EXPECT_EQ(0, runner_join(&at_barrier));
	EXPECT_EQ(0, runner_join(&at_group));
	EXPECT_EQ(1, at_barrier.done);
	EXPECT_EQ(1, at_group.done);
	EXPECT_EQ(0, memwait_barrier_destroy(&shared->barrier));
}

USERLIB_TEST(wait_group_counts)
{
	memwait_waitgroup_t *group = self->shared;

	EXPECT_EQ(0, memwait_waitgroup_wait(group));
	EXPECT_EQ(EINVAL, memwait_waitgroup_done(group));
	EXPECT_EQ(0, memwait_waitgroup_add(group, 2));
	EXPECT_EQ(EBUSY, memwait_waitgroup_destroy(group));
	EXPECT_EQ(EINVAL, memwait_waitgroup_add(group, -3));
	EXPECT_EQ(EINVAL, memwait_waitgroup_add(group, INT32_MIN));
	EXPECT_EQ(EOVERFLOW, memwait_waitgroup_add(group, INT32_MAX));
	EXPECT_EQ(0, memwait_waitgroup_add(group, 0));
	EXPECT_EQ(0, memwait_waitgroup_done(group));
	EXPECT_EQ(0, memwait_waitgroup_add(group, -1));
	EXPECT_EQ(0, memwait_waitgroup_wait(group));
	EXPECT_EQ(0, memwait_waitgroup_destroy(group));
	EXPECT_EQ(EINVAL, memwait_waitgroup_init(group, MEMWAIT_WAITGROUP_MAX + 1U));
	EXPECT_EQ(EINVAL, memwait_waitgroup_init(NULL, 0));
	EXPECT_EQ(EINVAL, memwait_waitgroup_add(NULL, 1));
	EXPECT_EQ(EINVAL, memwait_waitgroup_wait(NULL));
	EXPECT_EQ(EINVAL, memwait_waitgroup_destroy(NULL));
	EXPECT_EQ(EINVAL, memwait_waitgroup_wait_async(NULL, NULL));
}

static int work_and_be_done(void *arg)
{
	struct part *part = arg;

	part->shared->work[part->number] += part->number + 1;
	return memwait_waitgroup_done(&part->shared->group);
}

/* The work is plain memory: it is there for who has waited. */
USERLIB_TEST(wait_group_waits_for_threads_and_processes)
{
	struct shared *shared = self->shared;
	struct counted_op counted = { 0 };
	struct runner runners[3];
	struct part parts[4];
	int round, ret, i;
	pid_t child = -1;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (round = 1; round <= ROUNDS / 4; round++) {
		ASSERT_EQ(0, memwait_waitgroup_add(&shared->group, 3));
		for (i = 0; i < 3; i++) {
			parts[i] = (struct part){ shared, i };
			runner_start(&runners[i], work_and_be_done, &parts[i]);
		}
		if (round % 32 == 1) {
			ASSERT_EQ(0, memwait_waitgroup_add(&shared->group, 1));
			child = fork();
			ASSERT_LE(0, child);
			parts[3] = (struct part){ shared, 3 };
			if (!child)
				_exit(work_and_be_done(&parts[3]));
		}
		if (round % 2) {
			ASSERT_EQ(0, memwait_waitgroup_wait(&shared->group));
		} else {
			counted.calls = 0;
			ret = memwait_waitgroup_wait_async(&shared->group, &counted.op);
			if (ret == EINPROGRESS) {
				ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
				ret = counted.result;
			}
			ASSERT_EQ(0, ret);
		}
		for (i = 0; i < 3; i++)
			ASSERT_EQ((i + 1L) * round, shared->work[i]);
		for (i = 0; i < 3; i++)
			ASSERT_EQ(0, runner_join(&runners[i]));
		if (round % 32 == 1) {
			ASSERT_EQ(0, userlib_child_status(child));
		}
		ASSERT_EQ(0, memwait_waitgroup_destroy(&shared->group));
	}
}

USERLIB_TEST(wait_group_lets_go_though_the_count_rises_again)
{
	memwait_waitgroup_t *group = self->shared;
	struct counted_op counted = { 0 };
	struct runner runners[3];
	int i;

	ASSERT_EQ(0, memwait_waitgroup_add(group, 1));
	for (i = 0; i < 3; i++)
		runner_start(&runners[i], wait_for_group, group);
	await_waiters(self->fd, (uint32_t *)group + 1, U32_SIZE, 3);
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(group, &counted.op));
	ASSERT_EQ(0, memwait_waitgroup_done(group));
	ASSERT_EQ(0, memwait_waitgroup_add(group, 1));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	EXPECT_EQ(0, memwait_waitgroup_done(group));
}

USERLIB_TEST(wait_group_times_and_cancel)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	memwait_waitgroup_t *group = self->shared;
	struct counted_op counted = { 0 };
	struct timespec time;
	int i, ret;

	ASSERT_EQ(0, memwait_waitgroup_init(group, 1));
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (i = 0; i < 2; i++) {
		time = in_time(clocks[i], 10);
		EXPECT_EQ(ETIMEDOUT, memwait_waitgroup_clockwait(group, clocks[i], &time));
		time = in_time(clocks[i], 10);
		counted.calls = 0;
		ret = memwait_waitgroup_clockwait_async(group, clocks[i], &time, &counted.op);
		if (ret == EINPROGRESS) {
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			ret = counted.result;
		}
		EXPECT_EQ(ETIMEDOUT, ret);
		time = (struct timespec){ 0, 1000000000 };
		EXPECT_EQ(EINVAL, memwait_waitgroup_clockwait(group, clocks[i], &time));
	}
	time = in_time(CLOCK_REALTIME, -1);
	EXPECT_EQ(ETIMEDOUT, memwait_waitgroup_timedwait(group, &time));
	ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(group, &counted.op));
	ASSERT_EQ(0, memwait_op_cancel(&counted.op));
	/* Completed, and not dispatched: the cancel still comes in time. */
	counted.calls = 0;
	ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(group, &counted.op));
	ASSERT_EQ(0, memwait_waitgroup_done(group));
	ASSERT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(0, memwait_waitgroup_destroy(group));
}

TEST_HARNESS_MAIN
