// SPDX-License-Identifier: GPL-2.0
/* Semaphores: as many get through as there are posts, whatever becomes of those who wait. */
#include "userlib_test.h"

#define ROUNDS	SOME_OF(2000)

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

USERLIB_TEST(R2_value_and_errors)
{
	memwait_sem_t *sem = self->shared;
	int value;

	ASSERT_EQ(0, memwait_sem_init(sem, 0, 2));
	EXPECT_EQ(2, value_of(sem));
	EXPECT_EQ(0, memwait_sem_wait(sem));
	EXPECT_EQ(0, memwait_sem_trywait(sem));
	EXPECT_EQ(EAGAIN, memwait_sem_trywait(sem));
	EXPECT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(1, value_of(sem));
	EXPECT_EQ(0, memwait_sem_destroy(sem));

	ASSERT_EQ(0, memwait_sem_init(sem, MEMWAIT_PRIVATE, MEMWAIT_SEM_VALUE_MAX));
	EXPECT_EQ(EOVERFLOW, memwait_sem_post(sem));
	EXPECT_EQ(MEMWAIT_SEM_VALUE_MAX, value_of(sem));
	EXPECT_EQ(EINVAL, memwait_sem_init(sem, MEMWAIT_PRIVATE, MEMWAIT_SEM_VALUE_MAX + 1U));
	EXPECT_EQ(EINVAL, memwait_sem_init(sem, PTHREAD_PROCESS_SHARED, 0));
	EXPECT_EQ(EINVAL, memwait_sem_init(sem, MEMWAIT_PRIVATE | 0x2, 0));
	EXPECT_EQ(EINVAL, memwait_sem_trywait(NULL));
	EXPECT_EQ(EINVAL, memwait_sem_getvalue(sem, NULL));
	EXPECT_EQ(EINVAL, memwait_sem_getvalue(NULL, &value));
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

USERLIB_TEST(L0_no_more_than_its_value_are_inside_threads_processes_and_loop)
{
	int memfd = new_file(4096), i, ret;
	struct user_op user = { 0 };
	struct runner runners[2];
	struct shared *shared;
	pid_t children[2];

	shared = map_shared(memfd, 4096);
	ASSERT_EQ(0, memwait_sem_init(&shared->sem, 0, 2));
	for (i = 0; i < 2; i++)
		children[i] = run_remapped(memfd, shared, use_often);
	for (i = 0; i < 2; i++)
		runner_start(&runners[i], use_often, shared);
	user.shared = shared;
	memwait_op_init(&user.op, self->loop, use_by_callback, &user);
	ret = memwait_sem_wait_async(&shared->sem, &user.op);
	if (ret != EINPROGRESS)
		use_by_callback(&user.op, ret, &user);
	ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
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

USERLIB_TEST(R5_every_post_lets_one_through)
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

USERLIB_TEST(R12_async_waits_stand_in_line)
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

USERLIB_TEST(L5_cancellation_races_with_post)
{
	struct shared *shared = self->shared;
	struct runner cancelled, behind, poster;
	int round, were_cancelled = 0;

	for (round = 0; more_rounds(round, ROUNDS) || !were_cancelled; round++) {
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

	ASSERT_EQ(0, memwait_sem_init(sem, 0, 1000000000));
	runner_start(&runner, wait_often, sem);
	pthread_cancel(runner.thread);
	pthread_join(runner.thread, NULL);
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

static memwait_sem_t *sem_of_handler;

static void post_in_handler(int signal)
{
	memwait_sem_post(sem_of_handler);
}

USERLIB_TEST(L12_a_handler_interrupts_it_and_may_post)
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

USERLIB_TEST(L7_a_waiter_that_is_killed_takes_nothing)
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

USERLIB_TEST(R6_a_handler_interrupts_a_timed_wait_too)
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

TEST_HARNESS_MAIN
