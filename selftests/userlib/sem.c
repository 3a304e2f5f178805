// SPDX-License-Identifier: GPL-2.0
/* Semaphores: as many get through as there are posts, whatever becomes of those who wait. */
#include "userlib_test.h"

#define ROUNDS	(getenv("MEMWAIT_LOADS") ? 200 : 2000)

struct shared {
	memwait_sem_t sem;
	int inside, most, violations;
	long total;
};

static int wait_often(void *arg)
{
	int i, err = 0;

	for (i = 0; i < ROUNDS && !err; i++)
		err = memwait_sem_wait(arg);
	return err;
}

static int post_often(void *arg)
{
	int i, err = 0;

	for (i = 0; i < 2 * ROUNDS && !err; i++)
		err = memwait_sem_post(arg);
	return err;
}

static int value_of(memwait_sem_t *sem)
{
	int value = -1;

	memwait_sem_getvalue(sem, &value);
	return value;
}

USERLIB_TEST(value_and_errors)
{
	memwait_sem_t *sem = self->shared;
	int value;

	ASSERT_EQ(0, memwait_sem_init(sem, 1, 2));
	EXPECT_EQ(2, value_of(sem));
	EXPECT_EQ(0, memwait_sem_wait(sem));
	EXPECT_EQ(0, memwait_sem_trywait(sem));
	EXPECT_EQ(EAGAIN, memwait_sem_trywait(sem));
	EXPECT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(1, value_of(sem));
	EXPECT_EQ(0, memwait_sem_destroy(sem));

	ASSERT_EQ(0, memwait_sem_init(sem, 0, MEMWAIT_SEM_VALUE_MAX));
	EXPECT_EQ(EOVERFLOW, memwait_sem_post(sem));
	EXPECT_EQ(MEMWAIT_SEM_VALUE_MAX, value_of(sem));
	EXPECT_EQ(EINVAL, memwait_sem_init(sem, 0, MEMWAIT_SEM_VALUE_MAX + 1U));
	EXPECT_EQ(EINVAL, memwait_sem_init(NULL, 0, 0));
	EXPECT_EQ(EINVAL, memwait_sem_wait(NULL));
	EXPECT_EQ(EINVAL, memwait_sem_trywait(NULL));
	EXPECT_EQ(EINVAL, memwait_sem_post(NULL));
	EXPECT_EQ(EINVAL, memwait_sem_destroy(NULL));
	EXPECT_EQ(EINVAL, memwait_sem_getvalue(sem, NULL));
	EXPECT_EQ(EINVAL, memwait_sem_getvalue(NULL, &value));
	EXPECT_EQ(EINVAL, memwait_sem_wait_async(NULL, NULL));
	EXPECT_EQ(EINVAL, memwait_sem_wait_async(sem, NULL));
}

static void enter_and_leave(struct shared *shared)
{
	int now = __atomic_add_fetch(&shared->inside, 1, __ATOMIC_ACQ_REL);

	if (now > 2)
		__atomic_add_fetch(&shared->violations, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&shared->total, 1, __ATOMIC_RELAXED);
	sched_yield();
	__atomic_sub_fetch(&shared->inside, 1, __ATOMIC_ACQ_REL);
}

static int use_often(void *arg)
{
	struct shared *shared = arg;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		if (memwait_sem_wait(&shared->sem))
			return -1;
		enter_and_leave(shared);
		if (memwait_sem_post(&shared->sem))
			return -1;
	}
	return 0;
}

struct user_op {
	struct shared *shared;
	memwait_op_t op;
	int rounds, error;
};

static void use_by_callback(memwait_op_t *op, int result, void *data)
{
	struct user_op *user = data;

	while (!result) {
		enter_and_leave(user->shared);
		result = memwait_sem_post(&user->shared->sem);
		if (result || ++user->rounds == ROUNDS)
			break;
		result = memwait_sem_wait_async(&user->shared->sem, op);
	}
	if (result != EINPROGRESS)
		user->error = result;
}

USERLIB_TEST(no_more_than_its_value_are_inside_threads_processes_and_loop)
{
	int memfd = memfd_create("sem", MFD_CLOEXEC), i, ret;
	struct user_op user = { 0 };
	struct runner runners[2];
	struct shared *shared;
	pid_t children[2];

	ASSERT_EQ(0, ftruncate(memfd, 4096));
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	ASSERT_NE(MAP_FAILED, shared);
	ASSERT_EQ(0, memwait_sem_init(&shared->sem, 1, 2));
	for (i = 0; i < 2; i++) {
		children[i] = fork_child();
		if (!children[i]) {
			void *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd,
					   0);

			munmap(shared, 4096);
			_exit(use_often(other));
		}
	}
	for (i = 0; i < 2; i++)
		runner_start(&runners[i], use_often, shared);
	user.shared = shared;
	memwait_op_init(&user.op, self->loop, use_by_callback, &user);
	ret = memwait_sem_wait_async(&shared->sem, &user.op);
	if (ret != EINPROGRESS)
		use_by_callback(&user.op, ret, &user);
	ASSERT_EQ(0, memwait_loop_run(self->loop));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, runner_join(&runners[i]));
		EXPECT_EQ(0, child_status(children[i]));
	}
	EXPECT_EQ(0, user.error);
	EXPECT_EQ(ROUNDS, user.rounds);
	EXPECT_EQ(5L * ROUNDS, shared->total);
	EXPECT_EQ(0, shared->violations);
	EXPECT_EQ(2, value_of(&shared->sem));
	EXPECT_EQ(0, memwait_sem_destroy(&shared->sem));
	munmap(shared, 4096);
	close(memfd);
}

USERLIB_TEST(every_post_lets_one_through)
{
	memwait_sem_t *sem = self->shared;
	struct runner waiters[4], posters[2];
	int i;

	for (i = 0; i < 4; i++)
		runner_start(&waiters[i], wait_often, sem);
	for (i = 0; i < 2; i++)
		runner_start(&posters[i], post_often, sem);
	for (i = 0; i < 4; i++)
		EXPECT_EQ(0, runner_join(&waiters[i]));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, runner_join(&posters[i]));
	EXPECT_EQ(0, value_of(sem));
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

USERLIB_TEST(times)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	memwait_sem_t *sem = self->shared;
	struct counted_op counted = { 0 };
	struct timespec time;
	uint64_t start;
	int i, ret;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (i = 0; i < 2; i++) {
		start = now_ns(CLOCK_MONOTONIC);
		time = in_time(clocks[i], 20);
		EXPECT_EQ(ETIMEDOUT, memwait_sem_clockwait(sem, clocks[i], &time));
		time = in_time(clocks[i], 20);
		counted.calls = 0;
		ret = memwait_sem_clockwait_async(sem, clocks[i], &time, &counted.op);
		if (ret == EINPROGRESS) {
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			ret = counted.result;
		}
		EXPECT_EQ(ETIMEDOUT, ret);
		EXPECT_LE(38 * NSEC_PER_MSEC, now_ns(CLOCK_MONOTONIC) - start);
		time = (struct timespec){ -1, 0 };
		EXPECT_EQ(ETIMEDOUT, memwait_sem_clockwait(sem, clocks[i], &time));
		EXPECT_EQ(ETIMEDOUT, memwait_sem_clockwait_async(sem, clocks[i], &time,
								 &counted.op));
		time = (struct timespec){ 0, 1000000000 };
		EXPECT_EQ(EINVAL, memwait_sem_clockwait(sem, clocks[i], &time));
		EXPECT_EQ(EINVAL, memwait_sem_clockwait_async(sem, clocks[i], &time,
							      &counted.op));
	}
	time = in_time(CLOCK_REALTIME, 5);
	EXPECT_EQ(ETIMEDOUT, memwait_sem_timedwait(sem, &time));
	EXPECT_EQ(EINVAL, memwait_sem_clockwait(sem, CLOCK_PROCESS_CPUTIME_ID, &time));
	/* Not needed, not looked at. */
	ASSERT_EQ(0, memwait_sem_post(sem));
	time = (struct timespec){ 0, -1 };
	EXPECT_EQ(0, memwait_sem_timedwait(sem, &time));
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

USERLIB_TEST(async_waits_stand_in_line)
{
	struct counted_op counted[3] = { 0 };
	memwait_sem_t *sem = self->shared;
	int i;

	for (i = 0; i < 3; i++) {
		memwait_op_init(&counted[i].op, self->loop, count_call, &counted[i]);
		ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &counted[i].op));
	}
	EXPECT_EQ(EBUSY, memwait_sem_destroy(sem));
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, memwait_sem_post(sem));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted[i].calls, 1));
		EXPECT_EQ(0, counted[i].result);
		EXPECT_EQ(0, value_of(sem));
	}
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

USERLIB_TEST(L3_cancel_races_with_post)
{
	struct shared *shared = self->shared;
	struct counted_op counted = { 0 };
	struct runner poster, behind;
	int round, taken_back = 0;

	for (round = 0; round < ROUNDS || !taken_back; round++) {
		memset(shared, 0, sizeof(*shared));
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(&shared->sem, &counted.op));
		runner_start(&behind, memwait_sem_wait, &shared->sem);
		await_waiters(self->fd, &shared->sem, U32_SIZE, 2);
		runner_race(&poster, memwait_sem_post, &shared->sem);
		linger(round);
		if (round % 2)
			memwait_loop_dispatch(self->loop);
		if (!memwait_op_cancel(&counted.op)) {
			taken_back++;
			ASSERT_EQ(0, counted.calls);
		} else {
			ASSERT_EQ(1, counted.calls);
			ASSERT_EQ(0, memwait_sem_post(&shared->sem));
		}
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, runner_join(&poster));
		ASSERT_EQ(0, value_of(&shared->sem));
		ASSERT_EQ(0, memwait_sem_destroy(&shared->sem));
	}
	TH_LOG("%d of %d taken back", taken_back, round);
}

USERLIB_TEST(L5_cancellation_races_with_post)
{
	struct shared *shared = self->shared;
	struct runner cancelled, behind, poster;
	int round, were_cancelled = 0;

	for (round = 0; round < ROUNDS || !were_cancelled; round++) {
		memset(shared, 0, sizeof(*shared));
		runner_start(&cancelled, memwait_sem_wait, &shared->sem);
		await_waiters(self->fd, &shared->sem, U32_SIZE, 1);
		runner_start(&behind, memwait_sem_wait, &shared->sem);
		await_waiters(self->fd, &shared->sem, U32_SIZE, 2);
		runner_race(&poster, memwait_sem_post, &shared->sem);
		linger(round);
		ASSERT_EQ(0, pthread_cancel(cancelled.thread));
		pthread_join(cancelled.thread, NULL);
		if (cancelled.done) {
			ASSERT_EQ(0, memwait_sem_post(&shared->sem));
		} else {
			were_cancelled++;
		}
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, runner_join(&poster));
		ASSERT_EQ(0, value_of(&shared->sem));
		ASSERT_EQ(0, memwait_sem_destroy(&shared->sem));
	}
	TH_LOG("%d of %d cancelled", were_cancelled, round);
}

USERLIB_TEST(L5_it_is_a_cancellation_point_even_with_a_value)
{
	memwait_sem_t *sem = self->shared;
	struct runner runner;

	ASSERT_EQ(0, memwait_sem_init(sem, 1, 1000000000));
	runner_start(&runner, wait_often, sem);
	pthread_cancel(runner.thread);
	pthread_join(runner.thread, NULL);
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

static memwait_sem_t *sem_of_handler;

static void post_in_handler(int signal)
{
	(void)signal;
	memwait_sem_post(sem_of_handler);
}

USERLIB_TEST(a_handler_interrupts_it_and_may_post)
{
	struct sigaction action = { .sa_handler = nothing };
	memwait_sem_t *sem = self->shared;
	struct runner runner;

	sigaction(SIGUSR1, &action, NULL);
	runner_start(&runner, memwait_sem_wait, sem);
	await_waiters(self->fd, sem, U32_SIZE, 1);
	pthread_kill(runner.thread, SIGUSR1);
	EXPECT_EQ(EINTR, runner_join(&runner));

	/* With SA_RESTART it goes on waiting, and gets what the handler itself has posted. */
	action = (struct sigaction){ .sa_handler = post_in_handler, .sa_flags = SA_RESTART };
	sem_of_handler = sem;
	sigaction(SIGUSR1, &action, NULL);
	runner_start(&runner, memwait_sem_wait, sem);
	await_waiters(self->fd, sem, U32_SIZE, 1);
	pthread_kill(runner.thread, SIGUSR1);
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

USERLIB_TEST(a_waiter_that_is_killed_takes_nothing)
{
	memwait_sem_t *sem = self->shared;
	struct runner behind;
	pid_t child;
	int i;

	for (i = 0; i < 20; i++) {
		memset(sem, 0, sizeof(*sem));
		child = run_in_child(memwait_sem_wait(sem));
		await_waiters(self->fd, sem, U32_SIZE, 1);
		runner_start(&behind, memwait_sem_wait, sem);
		await_waiters(self->fd, sem, U32_SIZE, 2);
		kill(child, SIGKILL);
		/* The post races with the death. */
		ASSERT_EQ(0, memwait_sem_post(sem));
		if (child_status(child) == 0) {
			ASSERT_EQ(0, memwait_sem_post(sem));
		}
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, value_of(sem));
	}
}

/* So many microseconds from now: about when something else happens. */
static struct timespec in_microseconds(clockid_t clock, long us)
{
	struct timespec ts = in_time(clock, 0);

	ts.tv_nsec += us * 1000;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_sec++;
		ts.tv_nsec -= 1000000000;
	}
	return ts;
}

struct timed {
	memwait_sem_t *sem;
	clockid_t clock;
	struct timespec time;
};

static int wait_timed(void *arg)
{
	struct timed *timed = arg;

	return memwait_sem_clockwait(timed->sem, timed->clock, &timed->time);
}

USERLIB_TEST(a_deadline_beyond_time_is_never)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct timed timed = { .sem = self->shared };
	struct counted_op counted = { 0 };
	struct runner runner;
	int i;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (i = 0; i < 2; i++) {
		timed.clock = clocks[i];
		timed.time = (struct timespec){ TIME_MAX, 999999999 };
		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS, memwait_sem_clockwait_async(timed.sem, clocks[i],
								   &timed.time, &counted.op));
		runner_start(&runner, wait_timed, &timed);
		await_waiters(self->fd, timed.sem, U32_SIZE, 2);
		ASSERT_EQ(0, memwait_sem_post(timed.sem));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		EXPECT_FALSE(runner_is_done(&runner));
		ASSERT_EQ(0, memwait_sem_post(timed.sem));
		EXPECT_EQ(0, runner_join(&runner));
		EXPECT_EQ(0, value_of(timed.sem));
	}
	EXPECT_EQ(EINVAL, memwait_sem_clockwait(timed.sem, CLOCK_MONOTONIC, NULL));
	EXPECT_EQ(EINVAL, memwait_sem_timedwait(timed.sem, NULL));
	EXPECT_EQ(EINVAL, memwait_sem_clockwait_async(timed.sem, CLOCK_MONOTONIC, NULL,
						      &counted.op));
	EXPECT_EQ(EINVAL, memwait_sem_clockwait_async(timed.sem, CLOCK_THREAD_CPUTIME_ID,
						      &timed.time, &counted.op));
	EXPECT_EQ(0, memwait_sem_destroy(timed.sem));
}

USERLIB_TEST(threads_and_operations_stand_in_one_line)
{
	struct counted_op first = { 0 }, third = { 0 };
	memwait_sem_t *sem = self->shared;
	struct runner second;

	memwait_op_init(&first.op, self->loop, count_call, &first);
	memwait_op_init(&third.op, self->loop, count_call, &third);
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &first.op));
	runner_start(&second, memwait_sem_wait, sem);
	await_waiters(self->fd, sem, U32_SIZE, 2);
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &third.op));

	ASSERT_EQ(0, memwait_sem_post(sem));
	ASSERT_EQ(0, dispatch_until(self->loop, &first.calls, 1));
	EXPECT_EQ(2, memwait_waiters(sem, 0));
	ASSERT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(0, runner_join(&second));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop));
	EXPECT_EQ(0, third.calls);
	ASSERT_EQ(0, memwait_sem_post(sem));
	ASSERT_EQ(0, dispatch_until(self->loop, &third.calls, 1));
	EXPECT_EQ(1, first.calls);
	EXPECT_EQ(0, value_of(sem));
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

USERLIB_TEST(L3_a_pending_wait_that_is_cancelled_takes_nothing)
{
	struct counted_op counted = { 0 };
	memwait_sem_t *sem = self->shared;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &counted.op));
	EXPECT_EQ(EBUSY, memwait_sem_wait_async(sem, &counted.op));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(ENOENT, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, memwait_op_pending(&counted.op));
	EXPECT_EQ(0, memwait_waiters(sem, 0));
	EXPECT_EQ(0, memwait_sem_destroy(sem));
	EXPECT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(1, value_of(sem));
	/* And it serves again. */
	EXPECT_EQ(0, memwait_sem_wait_async(sem, &counted.op));
	EXPECT_EQ(0, value_of(sem));
}

USERLIB_TEST(L3_a_completed_wait_that_is_cancelled_gives_the_post_to_the_next)
{
	struct counted_op first = { 0 }, behind = { 0 };
	memwait_sem_t *sem = self->shared;
	struct runner thread;

	memwait_op_init(&first.op, self->loop, count_call, &first);
	memwait_op_init(&behind.op, self->loop, count_call, &behind);

	/* A thread is next. */
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &first.op));
	runner_start(&thread, memwait_sem_wait, sem);
	await_waiters(self->fd, sem, U32_SIZE, 2);
	ASSERT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(1, memwait_waiters(sem, 0));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(0, runner_join(&thread));
	EXPECT_EQ(0, value_of(sem));

	/* An operation is next. */
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &behind.op));
	ASSERT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 1));
	EXPECT_EQ(0, behind.result);
	EXPECT_EQ(0, value_of(sem));

	/* Nobody is next. */
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &first.op));
	ASSERT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(1, value_of(sem));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop));
	EXPECT_EQ(0, first.calls);
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

USERLIB_TEST(L3_a_wait_that_has_timed_out_can_be_cancelled_still)
{
	struct counted_op counted = { 0 };
	memwait_sem_t *sem = self->shared;
	struct timespec time;
	struct pollfd pfd;
	int ret;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	do {
		time = in_time(CLOCK_MONOTONIC, 20);
		ret = memwait_sem_clockwait_async(sem, CLOCK_MONOTONIC, &time, &counted.op);
	} while (ret == ETIMEDOUT);
	ASSERT_EQ(EINPROGRESS, ret);
	pfd = (struct pollfd){ .fd = memwait_loop_fd(self->loop), .events = POLLIN };
	ASSERT_EQ(1, poll(&pfd, 1, -1));
	EXPECT_EQ(1, memwait_op_pending(&counted.op));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(1, value_of(sem));
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

/* Either the callback runs with the post, or the post is there still. */
USERLIB_TEST(L3_cancel_races_with_dispatch)
{
	memwait_sem_t *sem = self->shared;
	struct counted_op counted = { 0 };
	struct runner canceller;
	int round, ret, taken_back = 0;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (round = 0; round < ROUNDS; round++) {
		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &counted.op));
		runner_race(&canceller, memwait_op_cancel, &counted.op);
		ASSERT_EQ(0, memwait_sem_post(sem));
		linger(round);
		ASSERT_LE(0, memwait_loop_dispatch(self->loop));
		ret = runner_join(&canceller);
		if (!ret) {
			taken_back++;
			ASSERT_EQ(0, counted.calls);
			ASSERT_EQ(0, memwait_sem_trywait(sem));
		} else {
			ASSERT_EQ(ENOENT, ret);
			ASSERT_EQ(1, counted.calls);
			ASSERT_EQ(0, counted.result);
		}
		ASSERT_EQ(0, value_of(sem));
		ASSERT_EQ(0, memwait_loop_pending(self->loop));
		ASSERT_EQ(0, memwait_sem_destroy(sem));
	}
	TH_LOG("%d of %d taken back", taken_back, round);
}

/* Either the waiter has the post, or the semaphore has it. */
USERLIB_TEST(L3_a_deadline_races_with_post)
{
	struct timed timed = { .sem = self->shared, .clock = CLOCK_MONOTONIC };
	struct counted_op counted = { 0 };
	int round, ret, timed_out = 0;
	struct runner runner;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (round = 0; round < ROUNDS; round++) {
		if (round % 2) {
			timed.time = in_microseconds(timed.clock, 50 + round % 300);
			runner_start(&runner, wait_timed, &timed);
			linger(round);
			ASSERT_EQ(0, memwait_sem_post(timed.sem));
			ret = runner_join(&runner);
		} else {
			counted.calls = 0;
			timed.time = in_microseconds(timed.clock, round % 300);
			ret = memwait_sem_clockwait_async(timed.sem, timed.clock, &timed.time,
							  &counted.op);
			linger(round);
			ASSERT_EQ(0, memwait_sem_post(timed.sem));
			if (ret == EINPROGRESS) {
				ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
				ret = counted.result;
			}
		}
		if (ret) {
			timed_out++;
			ASSERT_EQ(ETIMEDOUT, ret);
			ASSERT_EQ(0, memwait_sem_trywait(timed.sem));
		}
		ASSERT_EQ(0, value_of(timed.sem));
		ASSERT_EQ(0, memwait_sem_destroy(timed.sem));
	}
	TH_LOG("%d of %d timed out", timed_out, round);
}

USERLIB_TEST(a_handler_interrupts_a_timed_wait_too)
{
	struct sigaction action = { .sa_handler = nothing };
	struct timed timed = { .sem = self->shared };
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct runner runner;
	int i;

	sigaction(SIGUSR1, &action, NULL);
	for (i = 0; i < 2; i++) {
		timed.clock = clocks[i];
		timed.time = in_time(clocks[i], 3600 * 1000);
		runner_start(&runner, wait_timed, &timed);
		await_waiters(self->fd, timed.sem, U32_SIZE, 1);
		pthread_kill(runner.thread, SIGUSR1);
		EXPECT_EQ(EINTR, runner_join(&runner));
		EXPECT_EQ(0, memwait_waiters(timed.sem, 0));
	}
	EXPECT_EQ(0, memwait_sem_destroy(timed.sem));
}

/* What is inherited: the semaphore. What is not: the loop. Returns 0, or where it went wrong. */
static int use_as_child(struct shared *shared, struct counted_op *of_parent,
			memwait_loop_t *loop_of_parent)
{
	struct counted_op counted = { 0 };
	memwait_loop_t *loop;
	int ret;

	if (memwait_op_cancel(&of_parent->op) != EPERM ||
	    memwait_loop_dispatch(loop_of_parent) != -EPERM)
		return 1;
	memwait_op_init(&counted.op, loop_of_parent, count_call, &counted);
	if (memwait_sem_wait_async(&shared->sem, &counted.op) != EPERM)
		return 2;
	if (memwait_sem_wait(&shared->sem) || memwait_loop_new(&loop))
		return 3;
	memwait_op_init(&counted.op, loop, count_call, &counted);
	ret = memwait_sem_wait_async(&shared->sem, &counted.op);
	if (ret == EINPROGRESS) {
		if (dispatch_until(loop, &counted.calls, 1))
			return 4;
		ret = counted.result;
	}
	return ret || memwait_loop_free(loop) ? 5 : 0;
}

USERLIB_TEST(L1_a_child_uses_the_semaphore_and_not_the_loop)
{
	struct shared *shared = self->shared;
	struct counted_op counted = { 0 };
	memwait_sem_t *other;
	pid_t child;

	other = (memwait_sem_t *)(shared + 1);
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(other, &counted.op));
	child = run_in_child(use_as_child(shared, &counted, self->loop));
	await_waiters(self->fd, &shared->sem, U32_SIZE, 1);
	ASSERT_EQ(0, memwait_sem_post(&shared->sem));
	ASSERT_EQ(0, memwait_sem_post(&shared->sem));
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(0, value_of(&shared->sem));
	EXPECT_EQ(0, memwait_sem_destroy(&shared->sem));
	/* The parent's operation has not noticed. */
	EXPECT_EQ(1, memwait_op_pending(&counted.op));
	ASSERT_EQ(0, memwait_sem_post(other));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
}

/* It has got the post, and will never dispatch. */
USERLIB_TEST(L3_a_process_that_is_killed_with_a_completed_wait_gives_the_post_to_the_next)
{
	struct shared *shared = self->shared;
	struct runner behind;
	pid_t child;
	int i;

	for (i = 0; i < 20; i++) {
		memset(shared, 0, sizeof(*shared));
		child = fork_child();
		if (!child) {
			struct counted_op counted = { 0 };
			memwait_loop_t *loop;

			if (memwait_loop_new(&loop))
				_exit(1);
			memwait_op_init(&counted.op, loop, count_call, &counted);
			if (memwait_sem_wait_async(&shared->sem, &counted.op) != EINPROGRESS)
				_exit(2);
			stay();
		}
		await_waiters(self->fd, &shared->sem, U32_SIZE, 1);
		runner_start(&behind, memwait_sem_wait, &shared->sem);
		await_waiters(self->fd, &shared->sem, U32_SIZE, 2);
		ASSERT_EQ(0, memwait_sem_post(&shared->sem));
		EXPECT_FALSE(runner_is_done(&behind));
		ASSERT_EQ(128 + SIGKILL, kill_child(child));
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, value_of(&shared->sem));
	}
}

TEST_HARNESS_MAIN
