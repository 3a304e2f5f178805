// SPDX-License-Identifier: GPL-2.0
/* Semaphores: as many waits return as there are posts, whatever happens to the waiters. */
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

USERLIB_TEST(L0_no_more_than_its_value_are_inside)
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

USERLIB_TEST(R5_every_post_releases_one_waiter)
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

USERLIB_TEST(R12_async_waits_are_in_fifo_order)
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

USERLIB_TEST(L5_a_wait_is_a_cancellation_point_even_with_a_value)
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

USERLIB_TEST(L12_a_handler_interrupts_a_wait_and_may_post)
{
	struct sigaction action = { .sa_handler = ignore_signal };
	memwait_sem_t *sem = self->shared;
	struct runner runner;

	sigaction(SIGUSR1, &action, NULL);
	runner_start(&runner, memwait_sem_wait, sem);
	await_waiters(self->fd, sem, U32_SIZE, 1);
	pthread_kill(runner.thread, SIGUSR1);
	EXPECT_EQ(EINTR, runner_join(&runner));

	/* With SA_RESTART the wait continues, and gets the handler's own post. */
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
		/* The post and the death race. */
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

USERLIB_TEST(R6_a_handler_interrupts_a_timed_wait)
{
	struct sigaction action = { .sa_handler = ignore_signal };
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

/* Returns the byte on which waiters of a FAIR semaphore sleep. */
static const void *fair_word(const memwait_sem_t *sem)
{
	return (const char *)sem + 2;
}

USERLIB_TEST(fair_values)
{
	memwait_sem_t *sem = self->shared;
	int i;

	EXPECT_EQ(EINVAL, memwait_sem_init(sem, MEMWAIT_SEM_FAIR, MEMWAIT_SEM_FAIR_VALUE_MAX + 1));
	ASSERT_EQ(0, memwait_sem_init(sem, MEMWAIT_SEM_FAIR, MEMWAIT_SEM_FAIR_VALUE_MAX - 1));
	EXPECT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(EOVERFLOW, memwait_sem_post(sem));
	for (i = MEMWAIT_SEM_FAIR_VALUE_MAX; i; i--) {
		ASSERT_EQ(i, value_of(sem));
		ASSERT_EQ(0, i % 2 ? memwait_sem_wait(sem) : memwait_sem_trywait(sem));
	}
	EXPECT_EQ(EAGAIN, memwait_sem_trywait(sem));
	EXPECT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(1, value_of(sem));
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

/* A post belongs to the oldest waiter, a thread or an operation, and not to a later caller. */
USERLIB_TEST(fair_a_post_is_for_the_oldest_waiter)
{
	static const unsigned int kinds[] = {
		MEMWAIT_SEM_FAIR, MEMWAIT_SEM_FAIR | MEMWAIT_PRIVATE,
	};
	struct counted_op counted[3], late;
	memwait_sem_t *sem = self->shared;
	struct runner runners[3];
	unsigned int round;
	int i;

	for (round = 0; round < ARRAY_SIZE(kinds); round++) {
		const unsigned int flags = kinds[round] & MEMWAIT_PRIVATE;

		ASSERT_EQ(0, memwait_sem_init(sem, kinds[round], 0));
		for (i = 0; i < 3; i++) {
			runner_start(&runners[i], memwait_sem_wait, sem);
			await_waiters(self->fd, fair_word(sem), flags, 2 * i + 1);
			counted[i] = counted_by(&counted[i], self->loop);
			ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &counted[i].op));
		}
		for (i = 0; i < 3; i++) {
			ASSERT_EQ(0, memwait_sem_post(sem));
			EXPECT_EQ(EAGAIN, memwait_sem_trywait(sem));
			EXPECT_EQ(0, runner_join(&runners[i]));
			ASSERT_EQ(0, memwait_sem_post(sem));
			EXPECT_EQ(EAGAIN, memwait_sem_trywait(sem));
			/* This operation is behind all others and gets nothing. */
			late = counted_by(&late, self->loop);
			ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &late.op));
			ASSERT_EQ(0, dispatch_until(self->loop, &counted[i].calls, 1));
			EXPECT_EQ(0, counted[i].result);
			EXPECT_EQ(0, late.calls);
			ASSERT_EQ(0, memwait_op_cancel(&late.op));
		}
		EXPECT_EQ(0, value_of(sem));
		EXPECT_EQ(0, memwait_sem_destroy(sem));
	}
}

/* A waiter that does not take its post leaves it to the next waiter, or to any caller. */
USERLIB_TEST(L3_fair_a_cancelled_operation_gives_its_post_back)
{
	struct counted_op first = counted_by(&first, self->loop);
	struct counted_op second = counted_by(&second, self->loop);
	memwait_sem_t *sem = self->shared;

	ASSERT_EQ(0, memwait_sem_init(sem, MEMWAIT_SEM_FAIR, 0));
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &second.op));
	ASSERT_EQ(0, memwait_sem_post(sem));
	ASSERT_EQ(0, memwait_op_cancel(&first.op));
	ASSERT_EQ(0, dispatch_until(self->loop, &second.calls, 1));
	EXPECT_EQ(0, second.result);
	EXPECT_EQ(0, value_of(sem));
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &first.op));
	ASSERT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(0, value_of(sem));
	ASSERT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(1, value_of(sem));
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

/*
 * L14: a late notify that was meant for an earlier object at this address does not count as a post.
 */
USERLIB_TEST(L14_fair_a_stale_notify_is_no_post)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	memwait_sem_t *sem = self->shared;
	struct runner runner;
	size_t i;

	ASSERT_EQ(0, memwait_sem_init(sem, MEMWAIT_SEM_FAIR, 0));
	runner_start(&runner, memwait_sem_wait, sem);
	await_waiters(self->fd, fair_word(sem), 0, 1);
	for (i = 0; i < sizeof(*sem); i++) {
		if (i % 4 != 2)
			EXPECT_EQ(0, memwait_notify((char *)sem + i, MEMWAIT_ALL, 0));
	}
	/* A notify that was sent by mistake on the byte on which the waiters sleep. */
	EXPECT_EQ(1, memwait_notify(fair_word(sem), 1, 0));
	await_waiters(self->fd, fair_word(sem), 0, 1);
	EXPECT_FALSE(runner_is_done(&runner));
	ASSERT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(0, runner_join(&runner));

	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &counted.op));
	EXPECT_EQ(1, memwait_notify(fair_word(sem), 1, 0));
	ASSERT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(1, memwait_notify(fair_word(sem), 1, 0));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, value_of(sem));
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

/* Threads start, time out and are interrupted, and operations are cancelled. No post is lost. */
struct exact {
	memwait_sem_t sem;
	int stop;
	long taken;
};

static int take_in_time(void *arg)
{
	struct exact *exact = arg;
	struct timespec soon;
	int err;

	while (!__atomic_load_n(&exact->stop, __ATOMIC_ACQUIRE)) {
		soon = in_time(CLOCK_MONOTONIC, 0);
		soon.tv_nsec += 50000;
		if (soon.tv_nsec >= 1000000000)
			soon = in_time(CLOCK_MONOTONIC, 1);
		err = memwait_sem_clockwait(&exact->sem, CLOCK_MONOTONIC, &soon);
		if (!err)
			__atomic_add_fetch(&exact->taken, 1, __ATOMIC_RELAXED);
		else if (err != ETIMEDOUT)
			return err;
	}
	return 0;
}

USERLIB_TEST(L3_fair_no_post_is_lost_or_doubled)
{
	struct sigaction action = { .sa_handler = ignore_signal };
	struct counted_op counted = counted_by(&counted, self->loop);
	struct exact *exact = self->shared;
	struct runner runners[3];
	long posted = 0;
	int i, ret;

	sigaction(SIGUSR1, &action, NULL);
	ASSERT_EQ(0, memwait_sem_init(&exact->sem, MEMWAIT_SEM_FAIR, 0));
	for (i = 0; i < 3; i++)
		runner_start(&runners[i], take_in_time, exact);
	for (i = 0; i < 10 * ROUNDS; i++) {
		ret = memwait_sem_wait_async(&exact->sem, &counted.op);
		if (!ret)
			__atomic_add_fetch(&exact->taken, 1, __ATOMIC_RELAXED);
		ret = memwait_sem_post(&exact->sem);
		ASSERT_EQ(true, !ret || ret == EOVERFLOW);
		posted += !ret;
		if (i % 7 == 0)
			pthread_kill(runners[i % 3].thread, SIGUSR1);
		if (memwait_op_pending(&counted.op))
			ASSERT_EQ(0, memwait_op_cancel(&counted.op));
	}
	__atomic_store_n(&exact->stop, 1, __ATOMIC_RELEASE);
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(posted, exact->taken + value_of(&exact->sem));
	EXPECT_EQ(0, memwait_sem_destroy(&exact->sem));
}

TEST_HARNESS_MAIN
