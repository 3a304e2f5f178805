// SPDX-License-Identifier: GPL-2.0
/* Wait groups: who waits goes on when the count has been zero, be it for a moment. */
#include "userlib_test.h"

#define ROUNDS	(getenv("MEMWAIT_LOADS") ? 200 : 2000)
#define WORKERS	4

struct shared {
	memwait_waitgroup_t group;
	long work[WORKERS];
};

struct part {
	struct shared *shared;
	int number;
};

/* What they sleep on: the count, the lower half of the first word. */
static const void *count_of(memwait_waitgroup_t *group)
{
	return group;
}

USERLIB_TEST(L5_it_is_neither_interrupted_nor_cancelled)
{
	struct sigaction action = { .sa_handler = nothing };
	memwait_waitgroup_t *group = self->shared;
	struct runner runner;

	sigaction(SIGUSR1, &action, NULL);
	ASSERT_EQ(0, memwait_waitgroup_init(group, 0, 1));
	runner_start(&runner, memwait_waitgroup_wait, group);
	await_waiters(self->fd, count_of(group), U32_SIZE, 1);
	pthread_kill(runner.thread, SIGUSR1);
	pthread_cancel(runner.thread);
	EXPECT_EQ(0, memwait_waitgroup_done(group));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(1, runner.done);
	EXPECT_EQ(0, memwait_waitgroup_destroy(group));
}

USERLIB_TEST(it_counts)
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
	EXPECT_EQ(EINVAL, memwait_waitgroup_init(group, 0, MEMWAIT_WAITGROUP_MAX + 1U));
	EXPECT_EQ(EINVAL, memwait_waitgroup_init(NULL, 0, 0));
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
USERLIB_TEST(it_waits_for_threads_and_processes)
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
			child = fork_child();
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
			ASSERT_EQ(0, child_status(child));
		}
		ASSERT_EQ(0, memwait_waitgroup_destroy(&shared->group));
	}
}

USERLIB_TEST(it_lets_go_though_the_count_rises_again)
{
	memwait_waitgroup_t *group = self->shared;
	struct counted_op counted = { 0 };
	struct runner runners[3];
	int i;

	ASSERT_EQ(0, memwait_waitgroup_add(group, 1));
	for (i = 0; i < 3; i++)
		runner_start(&runners[i], memwait_waitgroup_wait, group);
	await_waiters(self->fd, group, U32_SIZE, 3);
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

USERLIB_TEST(times_and_cancel)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	memwait_waitgroup_t *group = self->shared;
	struct counted_op counted = { 0 };
	struct timespec time;
	int i, ret;

	ASSERT_EQ(0, memwait_waitgroup_init(group, 0, 1));
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

/* The same waiters on several rounds, in two processes that map it at different addresses. */
struct crossing {
	memwait_waitgroup_t group, back;
	int rounds, violations;
};

static int wait_and_answer(struct crossing *crossing)
{
	int i, err;

	for (i = 1; i <= ROUNDS; i++) {
		err = memwait_waitgroup_wait(&crossing->group);
		if (err)
			return 1;
		if (__atomic_load_n(&crossing->rounds, __ATOMIC_RELAXED) != i)
			__atomic_add_fetch(&crossing->violations, 1, __ATOMIC_RELAXED);
		/* The next round, before the other learns that this one has ended. */
		if (memwait_waitgroup_add(&crossing->group, 1) ||
		    memwait_waitgroup_done(&crossing->back))
			return 2;
	}
	return 0;
}

USERLIB_TEST(processes_that_map_it_elsewhere)
{
	int memfd = memfd_create("waitgroup", MFD_CLOEXEC), i, ret;
	struct counted_op counted = { 0 };
	struct crossing *crossing;
	pid_t child;

	ASSERT_LE(0, memfd);
	ASSERT_EQ(0, ftruncate(memfd, 4096));
	crossing = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	ASSERT_NE(MAP_FAILED, crossing);
	ASSERT_EQ(0, memwait_waitgroup_init(&crossing->group, 0, 1));
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	child = fork_child();
	if (!child) {
		void *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);

		munmap(crossing, 4096);
		_exit(other == MAP_FAILED ? 3 : wait_and_answer(other));
	}
	for (i = 1; i <= ROUNDS; i++) {
		ASSERT_EQ(0, memwait_waitgroup_add(&crossing->back, 1));
		__atomic_store_n(&crossing->rounds, i, __ATOMIC_RELAXED);
		ASSERT_EQ(0, memwait_waitgroup_done(&crossing->group));
		if (i % 2) {
			ASSERT_EQ(0, memwait_waitgroup_wait(&crossing->back));
			continue;
		}
		counted.calls = 0;
		ret = memwait_waitgroup_wait_async(&crossing->back, &counted.op);
		if (ret == EINPROGRESS) {
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			ret = counted.result;
		}
		ASSERT_EQ(0, ret);
	}
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(0, crossing->violations);
	EXPECT_EQ(0, memwait_waitgroup_destroy(&crossing->back));
	EXPECT_EQ(EBUSY, memwait_waitgroup_destroy(&crossing->group));
	munmap(crossing, 4096);
	close(memfd);
}

USERLIB_TEST(the_largest_count)
{
	memwait_waitgroup_t initialised = MEMWAIT_WAITGROUP_INIT;
	memwait_waitgroup_t *group = self->shared;
	struct counted_op counted = { 0 };

	EXPECT_EQ(0, memcmp(&initialised, group, sizeof(*group)));
	ASSERT_EQ(0, memwait_waitgroup_init(group, 0, MEMWAIT_WAITGROUP_MAX));
	EXPECT_EQ(EOVERFLOW, memwait_waitgroup_add(group, 1));
	/* A waiter changes nothing about it. */
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(group, &counted.op));
	EXPECT_EQ(EBUSY, memwait_waitgroup_wait_async(group, &counted.op));
	EXPECT_EQ(EOVERFLOW, memwait_waitgroup_add(group, INT32_MAX));
	EXPECT_EQ(EINVAL, memwait_waitgroup_add(group, INT32_MIN));
	EXPECT_EQ(0, memwait_waitgroup_add(group, 1 - MEMWAIT_WAITGROUP_MAX));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop));
	EXPECT_EQ(EINVAL, memwait_waitgroup_add(group, -2));
	EXPECT_EQ(EBUSY, memwait_waitgroup_destroy(group));
	EXPECT_EQ(0, memwait_waitgroup_done(group));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	EXPECT_EQ(EINVAL, memwait_waitgroup_done(group));
	EXPECT_EQ(0, memwait_waitgroup_wait_async(group, &counted.op));
	EXPECT_EQ(EINVAL, memwait_waitgroup_done(NULL));
	EXPECT_EQ(EINVAL, memwait_waitgroup_wait_async(group, NULL));
	EXPECT_EQ(0, memwait_waitgroup_destroy(group));
}

struct timed {
	memwait_waitgroup_t *group;
	clockid_t clock;
	struct timespec time;
};

static int wait_timed(void *arg)
{
	struct timed *timed = arg;

	return memwait_waitgroup_clockwait(timed->group, timed->clock, &timed->time);
}

USERLIB_TEST(a_deadline_beyond_time_is_never)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct timed timed = { .group = self->shared };
	struct counted_op counted = { 0 };
	struct runner runner;
	int i;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, memwait_waitgroup_add(timed.group, 1));
		timed.clock = clocks[i];
		timed.time = (struct timespec){ TIME_MAX, 999999999 };
		counted.calls = 0;
		runner_start(&runner, wait_timed, &timed);
		ASSERT_EQ(EINPROGRESS, memwait_waitgroup_clockwait_async(timed.group, clocks[i],
									 &timed.time,
									 &counted.op));
		await_waiters(self->fd, count_of(timed.group), U32_SIZE, 2);
		ASSERT_EQ(0, memwait_waitgroup_done(timed.group));
		EXPECT_EQ(0, runner_join(&runner));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);

		/* Long ago. */
		ASSERT_EQ(0, memwait_waitgroup_add(timed.group, 1));
		timed.time = (struct timespec){ -1, 0 };
		EXPECT_EQ(ETIMEDOUT, wait_timed(&timed));
		EXPECT_EQ(ETIMEDOUT, memwait_waitgroup_clockwait_async(timed.group, clocks[i],
								       &timed.time,
								       &counted.op));
		timed.time = (struct timespec){ 0, 1000000000 };
		EXPECT_EQ(EINVAL, memwait_waitgroup_clockwait_async(timed.group, clocks[i],
								    &timed.time, &counted.op));
		ASSERT_EQ(0, memwait_waitgroup_done(timed.group));
		/* Not needed, not looked at. */
		EXPECT_EQ(0, wait_timed(&timed));
		EXPECT_EQ(0, memwait_waitgroup_clockwait_async(timed.group, clocks[i],
							       &timed.time, &counted.op));
	}
	EXPECT_EQ(EINVAL, memwait_waitgroup_clockwait(timed.group, CLOCK_MONOTONIC, NULL));
	EXPECT_EQ(EINVAL, memwait_waitgroup_timedwait(NULL, &timed.time));
	EXPECT_EQ(EINVAL, memwait_waitgroup_clockwait(timed.group, CLOCK_PROCESS_CPUTIME_ID,
						      &timed.time));
	EXPECT_EQ(0, memwait_waitgroup_destroy(timed.group));
}

/* Over and over: zero for a moment lets everybody go who has waited. */
USERLIB_TEST(a_count_that_rises_at_once_holds_nobody_back)
{
	memwait_waitgroup_t *group = self->shared;
	struct counted_op counted = { 0 };
	struct runner runners[2];
	int round, i;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	ASSERT_EQ(0, memwait_waitgroup_init(group, 0, 1));
	for (round = 0; round < ROUNDS / 2; round++) {
		counted.calls = 0;
		for (i = 0; i < 2; i++)
			runner_start(&runners[i], memwait_waitgroup_wait, group);
		ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(group, &counted.op));
		await_waiters(self->fd, count_of(group), U32_SIZE, 3);
		ASSERT_EQ(0, memwait_waitgroup_done(group));
		ASSERT_EQ(0, memwait_waitgroup_add(group, 1));
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, runner_join(&runners[i]));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		ASSERT_EQ(0, counted.result);
		ASSERT_EQ(EBUSY, memwait_waitgroup_destroy(group));
	}
}

USERLIB_TEST(L3_cancel_races_with_done)
{
	struct shared *shared = self->shared;
	struct counted_op counted = { 0 }, other = { 0 };
	struct runner thread, last;
	int round, ret, taken_back = 0;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	memwait_op_init(&other.op, self->loop, count_call, &other);
	for (round = 0; round < ROUNDS || !taken_back; round++) {
		counted.calls = 0;
		other.calls = 0;
		ASSERT_EQ(0, memwait_waitgroup_init(&shared->group, 0, 1));
		ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(&shared->group, &counted.op));
		ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(&shared->group, &other.op));
		runner_start(&thread, memwait_waitgroup_wait, &shared->group);
		runner_race(&last, memwait_waitgroup_done, &shared->group);
		linger(round);
		if (round % 2) {
			ASSERT_LE(0, memwait_loop_dispatch(self->loop));
		}
		ret = memwait_op_cancel(&counted.op);
		if (!ret) {
			taken_back++;
			ASSERT_EQ(0, counted.calls);
		} else {
			ASSERT_EQ(ENOENT, ret);
			ASSERT_EQ(1, counted.calls);
			ASSERT_EQ(0, counted.result);
		}
		/* Whatever becomes of that one, all others go on. */
		ASSERT_EQ(0, runner_join(&thread));
		ASSERT_EQ(0, runner_join(&last));
		ASSERT_EQ(0, dispatch_until(self->loop, &other.calls, 1));
		ASSERT_EQ(0, other.result);
		ASSERT_EQ(!!ret, counted.calls);
		ASSERT_EQ(0, memwait_waitgroup_destroy(&shared->group));
	}
	TH_LOG("%d of %d taken back", taken_back, round);
}

/* If it has timed out, the count was not zero then: it is what it was. */
USERLIB_TEST(a_deadline_races_with_done)
{
	struct timed timed = { .group = self->shared, .clock = CLOCK_MONOTONIC };
	int round, ret, timed_out = 0;
	struct runner runner;

	for (round = 0; round < ROUNDS; round++) {
		ASSERT_EQ(0, memwait_waitgroup_add(timed.group, 1));
		timed.time = in_time(CLOCK_MONOTONIC, 0);
		timed.time.tv_nsec += 1000 * (50 + round % 300);
		if (timed.time.tv_nsec >= 1000000000) {
			timed.time.tv_sec++;
			timed.time.tv_nsec -= 1000000000;
		}
		runner_start(&runner, wait_timed, &timed);
		linger(round);
		ASSERT_EQ(0, memwait_waitgroup_done(timed.group));
		ret = runner_join(&runner);
		if (ret) {
			timed_out++;
			ASSERT_EQ(ETIMEDOUT, ret);
		}
		ASSERT_EQ(EINVAL, memwait_waitgroup_done(timed.group));
		ASSERT_EQ(0, memwait_waitgroup_wait(timed.group));
	}
	EXPECT_EQ(0, memwait_waitgroup_destroy(timed.group));
	TH_LOG("%d of %d timed out", timed_out, round);
}

USERLIB_TEST(L3_a_pending_wait_that_is_cancelled)
{
	memwait_waitgroup_t *group = self->shared;
	struct counted_op first = { 0 }, second = { 0 };

	memwait_op_init(&first.op, self->loop, count_call, &first);
	memwait_op_init(&second.op, self->loop, count_call, &second);
	ASSERT_EQ(0, memwait_waitgroup_add(group, 1));
	ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(group, &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(group, &second.op));
	EXPECT_EQ(2, memwait_waiters(count_of(group), 0));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(ENOENT, memwait_op_cancel(&first.op));
	EXPECT_EQ(1, memwait_waiters(count_of(group), 0));
	ASSERT_EQ(0, memwait_waitgroup_done(group));
	ASSERT_EQ(0, dispatch_until(self->loop, &second.calls, 1));
	EXPECT_EQ(0, second.result);
	EXPECT_EQ(0, first.calls);
	EXPECT_EQ(0, memwait_waitgroup_destroy(group));
}

/* Returns 0, or where it went wrong. */
static int use_as_child(struct shared *shared, memwait_loop_t *loop_of_parent)
{
	struct counted_op counted = { 0 };
	memwait_loop_t *loop;

	memwait_op_init(&counted.op, loop_of_parent, count_call, &counted);
	if (memwait_waitgroup_wait_async(&shared->group, &counted.op) != EPERM)
		return 1;
	if (memwait_loop_new(&loop))
		return 2;
	memwait_op_init(&counted.op, loop, count_call, &counted);
	if (memwait_waitgroup_wait_async(&shared->group, &counted.op) != EINPROGRESS)
		return 3;
	if (memwait_waitgroup_wait(&shared->group))
		return 4;
	if (dispatch_until(loop, &counted.calls, 1) || counted.result)
		return 5;
	return memwait_loop_free(loop) ? 6 : 0;
}

USERLIB_TEST(L1_a_child_uses_the_group_and_not_the_loop)
{
	struct shared *shared = self->shared;
	pid_t child;

	ASSERT_EQ(0, memwait_waitgroup_add(&shared->group, 1));
	child = run_in_child(use_as_child(shared, self->loop));
	await_waiters(self->fd, count_of(&shared->group), U32_SIZE, 2);
	ASSERT_EQ(0, memwait_waitgroup_done(&shared->group));
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(0, memwait_waitgroup_destroy(&shared->group));
}

USERLIB_TEST(waiting_processes_that_are_killed_disturb_nobody)
{
	struct shared *shared = self->shared;
	struct runner thread;
	pid_t children[2];
	int round, i;

	for (round = 0; round < 20; round++) {
		ASSERT_EQ(0, memwait_waitgroup_init(&shared->group, 0, 1));
		for (i = 0; i < 2; i++) {
			children[i] = fork_child();
			if (!children[i]) {
				struct counted_op counted = { 0 };
				memwait_loop_t *loop;

				if (!i)
					_exit(memwait_waitgroup_wait(&shared->group));
				if (memwait_loop_new(&loop))
					_exit(1);
				memwait_op_init(&counted.op, loop, count_call, &counted);
				memwait_waitgroup_wait_async(&shared->group, &counted.op);
				stay();
			}
		}
		runner_start(&thread, memwait_waitgroup_wait, &shared->group);
		await_waiters(self->fd, count_of(&shared->group), U32_SIZE, 3);
		for (i = 0; i < 2; i++)
			ASSERT_EQ(128 + SIGKILL, kill_child(children[i]));
		await_waiters(self->fd, count_of(&shared->group), U32_SIZE, 1);
		ASSERT_EQ(0, memwait_waitgroup_done(&shared->group));
		ASSERT_EQ(0, runner_join(&thread));
		/* The dead are not forgotten: they cannot be told from those still to leave. */
		ASSERT_EQ(EBUSY, memwait_waitgroup_destroy(&shared->group));
	}
}

TEST_HARNESS_MAIN
