// SPDX-License-Identifier: GPL-2.0
/*
 * Barriers: no participant continues before all have arrived, and a participant that gives up does
 * not count as arrived.
 */
#include "barrier_test.h"
#include "../../userlib/loop.h"

static int intercept(int fd, unsigned long request, void *argument)
{
	stall_before(request);
	return ioctl_of_kernel(fd, request, argument);
}

#define ROUNDS	SOME_OF(2000)
#define MEET	4

struct shared {
	memwait_barrier_t barrier;
	int serial, violations;
	int rounds[MEET + 1];
};

/* In each round all participants must have finished the previous round. */
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

USERLIB_TEST(R1_all_meet_in_every_round)
{
	int memfd = new_file(4096), ret, i;
	struct meeting_op meeting = { 0 };
	struct runner runners[2];
	struct shared *shared;
	struct part parts[2];
	pid_t child;

	shared = map_shared(memfd, 4096);
	ASSERT_EQ(0, memwait_barrier_init(&shared->barrier, 0, MEET));
	child = fork_child();
	if (!child) {
		parts[0].shared = map_shared(memfd, 4096);
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
	ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(0, meeting.error);
	EXPECT_EQ(ROUNDS, meeting.round);
	EXPECT_EQ(ROUNDS, shared->serial);
	EXPECT_EQ(0, shared->violations);
	EXPECT_EQ(0, memwait_barrier_destroy(&shared->barrier));
	munmap(shared, 4096);
	close(memfd);
}

USERLIB_TEST(R2_barrier_errors)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner runner;

	EXPECT_EQ(EINVAL, memwait_barrier_wait(barrier));
	EXPECT_EQ(EINVAL, memwait_barrier_destroy(barrier));
	EXPECT_EQ(EINVAL, memwait_barrier_init(barrier, 0, 0));
	EXPECT_EQ(EINVAL, memwait_barrier_init(barrier, 1, 1));
	EXPECT_EQ(EINVAL, memwait_barrier_init(NULL, 0, 1));
	EXPECT_EQ(EINVAL, memwait_barrier_wait(NULL));
	EXPECT_EQ(EINVAL, memwait_barrier_destroy(NULL));
	EXPECT_EQ(EINVAL, memwait_barrier_wait_async(NULL, NULL));
	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 1));
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	runner_start(&runner, memwait_barrier_wait, barrier);
	/* Waiters at a process-shared barrier sleep on the lower half of the first word. */
	await_waiters(self->fd, barrier, U32_SIZE, 1);
	EXPECT_EQ(EBUSY, memwait_barrier_destroy(barrier));
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait_async(barrier, &counted.op));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
}

USERLIB_TEST(L3_a_waiter_that_gives_up_has_not_arrived)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct timespec time;
	struct runner runner;
	int i, ret;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
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

	/* The barrier still takes two participants. */
	runner_start(&runner, memwait_barrier_wait, barrier);
	await_waiters(self->fd, barrier, U32_SIZE, 1);
	EXPECT_FALSE(runner_is_done(&runner));
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
}

/* Exactly one of two things happens: the arrival is undone, or the other thread continues. */
USERLIB_TEST(L3_cancel_races_with_the_last_arrival)
{
	struct shared *shared = self->shared;
	struct counted_op counted = { 0 };
	struct runner last;
	int round, ret, alone = 0;

	for (round = 0; more_rounds(round, ROUNDS); round++) {
		memset(shared, 0, sizeof(*shared));
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(0, memwait_barrier_init(&shared->barrier, 0, 2));
		ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(&shared->barrier, &counted.op));
		runner_race(&last, memwait_barrier_wait, &shared->barrier);
		linger(round);
		if (round % 2)
			sched_yield();
		ASSERT_EQ(0, memwait_op_cancel(&counted.op));
		/* If the other thread is waiting now, this thread also arrives. */
		spin_until(runner_is_done(&last) || memwait_waiters(&shared->barrier, 0) == 1);
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
	TH_LOG("cancelled before the other came: %d of %d", alone, round);
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

USERLIB_TEST(L8_the_serial_thread_may_destroy_it_immediately)
{
	struct shared *shared = self->shared;
	struct runner runners[3];
	int round, i;

	for (round = 0; more_rounds(round, ROUNDS / 4); round++) {
		ASSERT_EQ(0, memwait_barrier_init(&shared->barrier, 0, 3));
		for (i = 0; i < 3; i++)
			runner_start(&runners[i], meet_and_destroy, shared);
		for (i = 0; i < 3; i++)
			ASSERT_EQ(0, runner_join(&runners[i]));
		for (i = 0; i < (int)sizeof(shared->barrier); i++)
			ASSERT_EQ(0xa5, ((unsigned char *)&shared->barrier)[i]);
	}
}

USERLIB_TEST(L5_a_wait_is_neither_interrupted_nor_cancelled)
{
	struct sigaction action = { .sa_handler = ignore_signal };
	memwait_barrier_t *barrier = self->shared;
	struct runner runner;
	int ret;

	sigaction(SIGUSR1, &action, NULL);
	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	runner_start(&runner, memwait_barrier_wait, barrier);
	await_waiters(self->fd, barrier, U32_SIZE, 1);
	pthread_kill(runner.thread, SIGUSR1);
	pthread_cancel(runner.thread);
	ret = memwait_barrier_wait(barrier);
	/*
	 * If this call comes while the signal is handled, the other thread finds that both
	 * participants have arrived.
	 */
	EXPECT_TRUE(ret == 0 || ret == MEMWAIT_BARRIER_SERIAL_THREAD);
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD - ret, runner_join(&runner));
	EXPECT_EQ(1, runner.done);
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
}

struct timed {
	memwait_barrier_t *barrier;
	clockid_t clock;
	struct timespec time;
};

static int meet_timed(void *arg)
{
	struct timed *timed = arg;

	return memwait_barrier_clockwait(timed->barrier, timed->clock, &timed->time);
}

USERLIB_TEST(R4_a_deadline_beyond_time_is_never)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct timed timed = { .barrier = self->shared };
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner runner;
	int i;

	ASSERT_EQ(0, memwait_barrier_init(timed.barrier, 0, 3));
	for (i = 0; i < 2; i++) {
		timed.clock = clocks[i];
		timed.time = (struct timespec){ TIME_MAX, 999999999 };
		counted.calls = 0;
		runner_start(&runner, meet_timed, &timed);
		ASSERT_EQ(EINPROGRESS, memwait_barrier_clockwait_async(timed.barrier, clocks[i],
								       &timed.time, &counted.op));
		await_waiters(self->fd, timed.barrier, U32_SIZE, 2);
		EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD,
			  memwait_barrier_clockwait(timed.barrier, clocks[i], &timed.time));
		EXPECT_EQ(0, runner_join(&runner));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
	}
	EXPECT_EQ(EINVAL, memwait_barrier_timedwait(NULL, &timed.time));
	EXPECT_EQ(EINVAL, memwait_barrier_clockwait(timed.barrier, CLOCK_PROCESS_CPUTIME_ID,
						    &timed.time));
	EXPECT_EQ(EINVAL, memwait_barrier_wait_async(timed.barrier, NULL));
	EXPECT_EQ(0, memwait_barrier_destroy(timed.barrier));
}

/* No call blocks: the last arrival lets the others continue. */
USERLIB_TEST(R18_a_barrier_of_operations_only)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted[3] = { 0 };
	int round, i;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 3));
	for (i = 0; i < 3; i++)
		memwait_op_init(&counted[i].op, self->loop, count_call, &counted[i]);
	for (round = 0; more_rounds(round, ROUNDS); round++) {
		int first = round % 3, second = (round + 1) % 3, last = (round + 2) % 3;

		for (i = 0; i < 3; i++)
			counted[i].calls = 0;
		ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted[first].op));
		ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted[second].op));
		ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD,
			  memwait_barrier_wait_async(barrier, &counted[last].op));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted[first].calls, 1));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted[second].calls, 1));
		ASSERT_EQ(0, counted[first].result);
		ASSERT_EQ(0, counted[second].result);
		ASSERT_EQ(0, counted[last].calls);
		ASSERT_EQ(0, memwait_loop_pending(self->loop));
	}
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
}

/* The back-off of an operation depends only on the present round. */
USERLIB_TEST(R29_an_operations_back_off_starts_anew_each_round)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct memwait_op *op = (struct memwait_op *)&counted.op;
	int i;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	for (i = 1; i <= 3; i++) {
		op->round.tries = 1000;
		ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted.op));
		EXPECT_EQ(0, op->round.tries);
		ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, i));
	}
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
}

USERLIB_TEST(L3_a_completed_arrival_that_is_cancelled_has_arrived)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner runner;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted.op));
	EXPECT_EQ(EBUSY, memwait_barrier_wait_async(barrier, &counted.op));
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(-ENOENT, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, counted.calls);
	/* The next round takes two participants, like all other rounds. */
	runner_start(&runner, memwait_barrier_wait, barrier);
	await_waiters(self->fd, barrier, U32_SIZE, 1);
	EXPECT_FALSE(runner_is_done(&runner));
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
}

/* An operation that was released but has not been dispatched does not count as having left. */
USERLIB_TEST(L8_destroy_does_not_wait_forever_for_an_operation)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted.op));
	ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
	EXPECT_EQ(EBUSY, memwait_barrier_destroy(barrier));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
}

/* The cancelling thread and the dispatcher agree on whether the callback runs. */
USERLIB_TEST(L3_cancel_races_with_dispatch)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op last = counted_by(&last, self->loop);
	struct counted_op counted = counted_by(&counted, self->loop);
	int round, ret, cancelled, taken_back = 0;
	struct runner canceller;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	for (round = 0; more_rounds(round, ROUNDS); round++) {
		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted.op));
		runner_race(&canceller, memwait_op_cancel, &counted.op);
		ret = memwait_barrier_wait_async(barrier, &last.op);
		linger(round);
		ASSERT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		cancelled = runner_join(&canceller);
		if (ret == EINPROGRESS) {
			/*
			 * The arrival was undone before the other operation arrived, so the other
			 * operation waits for a second participant.
			 */
			taken_back++;
			ASSERT_EQ(0, cancelled);
			ASSERT_EQ(0, counted.calls);
			ASSERT_EQ(0, memwait_op_cancel(&last.op));
		} else {
			ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, ret);
			if (cancelled) {
				ASSERT_TRUE(cancelled == -ENOENT || cancelled == -EINPROGRESS);
				ASSERT_EQ(0, counted.result);
			}
			ASSERT_EQ(!!cancelled, counted.calls);
		}
		ASSERT_EQ(0, last.calls);
		ASSERT_EQ(0, memwait_loop_pending(self->loop));
	}
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
	TH_LOG("%d of %d cancelled", taken_back, round);
}

/* Either both participants have arrived, or neither has. */
USERLIB_TEST(L3_a_deadline_races_with_the_last_arrival)
{
	struct timed timed = { .barrier = self->shared, .clock = CLOCK_MONOTONIC };
	struct counted_op counted = counted_by(&counted, self->loop);
	int round, ret, other, timed_out = 0;
	struct runner runner;

	ASSERT_EQ(0, memwait_barrier_init(timed.barrier, 0, 2));
	for (round = 0; more_rounds(round, ROUNDS); round++) {
		counted.calls = 0;
		timed.time = in_time(CLOCK_MONOTONIC, 0);
		timed.time.tv_nsec += 1000 * (50 + round % 300);
		if (timed.time.tv_nsec >= 1000000000) {
			timed.time.tv_sec++;
			timed.time.tv_nsec -= 1000000000;
		}
		runner_start(&runner, meet_timed, &timed);
		linger(round);
		other = memwait_barrier_wait_async(timed.barrier, &counted.op);
		ret = runner_join(&runner);
		if (ret == ETIMEDOUT) {
			timed_out++;
			ASSERT_EQ(EINPROGRESS, other);
			ASSERT_EQ(0, memwait_op_cancel(&counted.op));
			ASSERT_EQ(0, counted.calls);
		} else if (ret == MEMWAIT_BARRIER_SERIAL_THREAD) {
			/*
			 * The result is 0 if the thread arrived while the operation was about to
			 * wait.
			 */
			if (other == EINPROGRESS) {
				ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
				other = counted.result;
			}
			ASSERT_EQ(0, other);
		} else {
			ASSERT_EQ(0, ret);
			ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, other);
		}
	}
	EXPECT_EQ(0, memwait_barrier_destroy(timed.barrier));
	TH_LOG("%d of %d timed out", timed_out, round);
}

/* Returns 0, or the number of the step that failed. */
static int meet_as_child(memwait_barrier_t *barrier, memwait_loop_t *loop_of_parent)
{
	struct counted_op counted = { 0 };
	memwait_loop_t *loop;
	int ret;

	memwait_op_init(&counted.op, loop_of_parent, count_call, &counted);
	if (memwait_barrier_wait_async(barrier, &counted.op) != EPERM)
		return 1;
	if (memwait_loop_new(&loop, 0))
		return 2;
	memwait_op_init(&counted.op, loop, count_call, &counted);
	if (memwait_barrier_wait_async(barrier, &counted.op) != EINPROGRESS)
		return 3;
	if (dispatch_until(loop, &counted.calls, 1) || counted.result)
		return 4;
	ret = memwait_barrier_wait(barrier);
	if (ret && ret != MEMWAIT_BARRIER_SERIAL_THREAD)
		return 5;
	return memwait_loop_close(loop) ? 6 : 0;
}

USERLIB_TEST(L1_a_child_meets_its_parent)
{
	memwait_barrier_t *barrier = self->shared;
	pid_t child;
	int ret;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	child = run_in_child(meet_as_child(barrier, self->loop));
	await_waiters(self->fd, barrier, U32_SIZE, 1);
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
	ret = memwait_barrier_wait(barrier);
	EXPECT_TRUE(ret == 0 || ret == MEMWAIT_BARRIER_SERIAL_THREAD);
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
}

/*
 * It is not specified whether the arrival of a killed process counts. Later participants still
 * meet, and later rounds are normal.
 */
USERLIB_TEST(L7_others_meet_when_a_waiting_process_was_killed)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner runner;
	int round, ret;
	pid_t child;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 3));
	child = run_in_child(memwait_barrier_wait(barrier));
	await_waiters(self->fd, barrier, U32_SIZE, 1);
	ASSERT_EQ(128 + SIGKILL, kill_child(child));
	for (round = 0; round < 3; round++) {
		counted.calls = 0;
		runner_start(&runner, memwait_barrier_wait, barrier);
		await_waiters(self->fd, barrier, U32_SIZE, 1);
		ret = memwait_barrier_wait_async(barrier, &counted.op);
		if (round || ret == EINPROGRESS) {
			ASSERT_EQ(EINPROGRESS, ret);
			ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			ASSERT_EQ(0, counted.result);
		} else {
			ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, ret);
		}
		ASSERT_EQ(0, runner_join(&runner));
	}
}

/*
 * At a process-shared barrier the last participant may die before it wakes the others. The next
 * participant that arrives, or that gives up, lets all participants continue and gets
 * SERIAL_THREAD.
 */
USERLIB_TEST(L7_others_continue_if_the_last_arrival_does_not_wake_them)
{
	struct last last = { .barrier = self->shared };
	struct timed timed = { .barrier = self->shared, .clock = CLOCK_MONOTONIC };
	struct runner waiter, within;
	int round, ret;
	long ms = 50;

	for (round = 0; round < 2; ) {
		last.still = 0;
		ASSERT_EQ(0, memwait_barrier_init(last.barrier, 0, 2));
		timed.time = in_time(CLOCK_MONOTONIC, round ? ms : 3600 * 1000);
		runner_start(&waiter, meet_timed, &timed);
		await_waiters_or_done(self->fd, last.barrier, U32_SIZE, 1, &waiter.done);
		runner_start(&within, arrive_last_and_stall, &last);
		spin_until(__atomic_load_n(&last.still, __ATOMIC_ACQUIRE) ||
			   runner_is_done(&waiter));
		if (!round)
			EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD,
				  memwait_barrier_wait(last.barrier));
		ret = runner_join(&waiter);
		__atomic_store_n(&last.still, 2, __ATOMIC_RELEASE);
		/*
		 * The round is repeated with a later deadline if the thread gave up before the
		 * other participant arrived.
		 */
		if (round && ret == ETIMEDOUT) {
			ms *= 2;
			EXPECT_LE(-1, memwait_barrier_wait(last.barrier));
			runner_join(&within);
			continue;
		}
		EXPECT_EQ(round ? MEMWAIT_BARRIER_SERIAL_THREAD : 0, ret);
		EXPECT_EQ(0, runner_join(&within));
		EXPECT_EQ(0, memwait_barrier_destroy(last.barrier));
		round++;
	}
}

/*
 * Private barrier: if the last thread is stalled before it wakes the others, the next thread to
 * arrive acts as the last one. The stalled thread then joins the next round (as its last arrival,
 * if that round's last thread is stalled as well).
 */
USERLIB_TEST(R1_another_acts_as_the_last_arrival)
{
	struct last late = { .barrier = self->shared }, next = late;
	struct runner waiter, within, again;
	int is_last;

	for (is_last = 0; is_last < 2; is_last++) {
		late.still = 0;
		next.still = 0;
		ASSERT_EQ(0, memwait_barrier_init(late.barrier, MEMWAIT_PRIVATE, 2));
		runner_start(&waiter, memwait_barrier_wait, late.barrier);
		runner_await_asleep(&waiter);
		runner_start(&within, arrive_last_and_stall, &late);
		spin_until(__atomic_load_n(&late.still, __ATOMIC_ACQUIRE));
		EXPECT_EQ(EBUSY, memwait_barrier_destroy(late.barrier));
		EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(late.barrier));
		EXPECT_EQ(0, runner_join(&waiter));
		if (is_last) {
			runner_start(&waiter, memwait_barrier_wait, late.barrier);
			runner_await_asleep(&waiter);
			runner_start(&again, arrive_last_and_stall, &next);
			spin_until(__atomic_load_n(&next.still, __ATOMIC_ACQUIRE));
		}
		__atomic_store_n(&late.still, 2, __ATOMIC_RELEASE);
		if (is_last) {
			EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, runner_join(&within));
			EXPECT_EQ(0, runner_join(&waiter));
			__atomic_store_n(&next.still, 2, __ATOMIC_RELEASE);
		}
		spin_until(memwait_waiters((char *)late.barrier + MEMWAIT_UPPER_HALF,
					   MEMWAIT_PRIVATE) == 1);
		EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(late.barrier));
		EXPECT_EQ(0, runner_join(is_last ? &again : &within));
		EXPECT_EQ(0, memwait_barrier_destroy(late.barrier));
	}
}

TEST_HARNESS_MAIN
