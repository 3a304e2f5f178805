// SPDX-License-Identifier: GPL-2.0
/* L5, L6: waits for a condition variable that reacquire a mutex whose owner has died. */
#include "robust_mutex_test.h"

enum { WAIT, TIMEDWAIT, CLOCKWAIT, WAIT_ASYNC, CLOCKWAIT_ASYNC, COND_WAYS };

struct waiting {
	int way;
	int ms;			/* from now to the deadline */
	int times;		/* how often the mutex is locked */
	struct shared *shared;
	int there;		/* the thread holds the mutex and is about to wait */
	int result;
	int given_back;		/* 0: the mutex was held as often as before, or not at all */
	int calls;		/* calls of the callback */
	memwait_op_t op;
};

static bool has_mutex(int result)
{
	return !result || result == EOWNERDEAD || result == ETIMEDOUT;
}

/* Called when the wait has returned. Unlocks the mutex and checks how often it was held. */
static void give_mutex_back(struct waiting *waiting)
{
	memwait_mutex_t *mutex = &waiting->shared->mutex;
	int err = 0, i;

	if (waiting->result == EOWNERDEAD)
		err = memwait_mutex_consistent(mutex);
	for (i = 0; i < waiting->times && !err && has_mutex(waiting->result); i++)
		err = memwait_mutex_unlock(mutex);
	if (!err)
		err = memwait_mutex_unlock(mutex) == EPERM ? 0 : -1;
	waiting->given_back = err;
}

static void has_waited(memwait_op_t *op, int result, void *data)
{
	struct waiting *waiting = data;

	waiting->result = result;
	waiting->calls++;
	give_mutex_back(waiting);
}

static void waiting_init(struct waiting *waiting, memwait_loop_t *loop, struct shared *shared,
			 int way)
{
	memset(waiting, 0, sizeof(*waiting));
	waiting->shared = shared;
	waiting->way = way;
	waiting->ms = HOUR;
	waiting->times = 1;
	waiting->given_back = -1;
	memwait_op_init(&waiting->op, loop, has_waited, waiting);
}

static int begin_to_wait(struct waiting *waiting)
{
	struct timespec wall = in_time(CLOCK_REALTIME, waiting->ms);
	struct timespec time = in_time(CLOCK_MONOTONIC, waiting->ms);
	memwait_mutex_t *mutex = &waiting->shared->mutex;
	memwait_cond_t *cond = &waiting->shared->cond;

	switch (waiting->way) {
	case WAIT:
		return memwait_cond_wait(cond, mutex);
	case TIMEDWAIT:
		return memwait_cond_timedwait(cond, mutex, &wall);
	case CLOCKWAIT:
		return memwait_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &time);
	case WAIT_ASYNC:
		return memwait_cond_wait_async(cond, mutex, &waiting->op);
	default:
		return memwait_cond_clockwait_async(cond, mutex, CLOCK_MONOTONIC, &time,
						    &waiting->op);
	}
}

/* Returns the result of the wait, or EINPROGRESS. */
static int wait_and_give_back(void *arg)
{
	struct waiting *waiting = arg;
	int i, ret;

	for (i = 0; i < waiting->times; i++) {
		ret = memwait_mutex_lock(&waiting->shared->mutex);
		if (ret)
			return ret;
	}
	set(&waiting->there, 1);
	ret = begin_to_wait(waiting);
	if (ret == EINPROGRESS)
		return ret;
	waiting->result = ret;
	give_mutex_back(waiting);
	return ret;
}

static bool waits_in_loop(const struct waiting *waiting)
{
	return waiting->way == WAIT_ASYNC || waiting->way == CLOCKWAIT_ASYNC;
}

/* Starts the wait. Returns when the thread or operation waits for the condition. */
static bool waiting_start(struct waiting *waiting, struct runner *runner)
{
	if (waits_in_loop(waiting))
		return wait_and_give_back(waiting) == EINPROGRESS;
	runner_start(runner, wait_and_give_back, waiting);
	await(&waiting->there);
	runner_await_asleep(runner);
	return true;
}

static int waiting_end(struct waiting *waiting, struct runner *runner, memwait_loop_t *loop)
{
	int err;

	if (!waits_in_loop(waiting))
		return runner_join(runner);
	err = dispatch_until(loop, &waiting->calls, 1);
	return err ? err : waiting->result;
}

/* When the wait ends, compared with the time when the owner that dies locks the mutex. */
enum { SIGNALLED_BEFORE, SIGNALLED_AFTER, TIMES_OUT, CASES };

/* Returns the result of the wait, or -1 if its deadline passed before the owner held the mutex. */
static int outlive_owner(struct __test_metadata *_metadata, memwait_loop_t *loop,
			 struct waiting *waiting, int when)
{
	struct shared *shared = waiting->shared;
	struct runner runner;
	struct owner owner;
	int ret;

	if (!waiting_start(waiting, &runner))
		return -1;
	ASSERT_EQ(0, owner_start(&owner, shared->holds, IS_KILLED, lock_it, &shared->mutex));
	if (when == SIGNALLED_BEFORE) {
		EXPECT_EQ(0, memwait_cond_signal(&shared->cond));
	}
	owner_end_and_reap(&owner);
	if (when == SIGNALLED_AFTER) {
		EXPECT_EQ(0, memwait_cond_signal(&shared->cond));
	}
	ret = waiting_end(waiting, &runner, loop);
	EXPECT_EQ(0, waiting->given_back);
	if (ret == EOWNERDEAD) {
		EXPECT_EQ(0, memwait_mutex_destroy(&shared->mutex));
	}
	EXPECT_EQ(0, memwait_cond_destroy(&shared->cond));
	return when == TIMES_OUT && ret == ETIMEDOUT ? -1 : ret;
}

/* Each form of wait reacquires the mutex. */
ROBUST_TEST(L6_a_wait_reacquires_the_mutex_of_a_dead_owner)
{
	static const unsigned int recursive[] = { 0, MEMWAIT_MUTEX_RECURSIVE };
	struct shared *shared = self->shared;
	struct waiting waiting;
	int way, when, ms, ret;
	size_t i;

	for (i = 0; i < COND_WAYS * CASES * ARRAY_SIZE(recursive); i++) {
		const unsigned int kind = recursive[i % ARRAY_SIZE(recursive)];

		way = i / ARRAY_SIZE(recursive) % COND_WAYS;
		when = i / ARRAY_SIZE(recursive) / COND_WAYS;
		if (when == TIMES_OUT && (way == WAIT || way == WAIT_ASYNC))
			continue;
		/*
		 * The deadline must pass while the mutex is held. This may take several attempts.
		 */
		for (ms = when == TIMES_OUT ? 20 : HOUR;; ms *= 4) {
			ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST |
							kind));
			ASSERT_EQ(0, memwait_cond_init(&shared->cond, 0));
			waiting_init(&waiting, self->loop, shared, way);
			waiting.ms = ms;
			waiting.times = kind ? 3 : 1;
			ret = outlive_owner(_metadata, self->loop, &waiting, when);
			if (ret >= 0 || ms > HALF_A_MINUTE)
				break;
		}
		EXPECT_EQ(EOWNERDEAD, ret) {
			TH_LOG("way %d, case %d, kind %x", way, when, kind);
		}
	}
}

/*
 * The mutex becomes not recoverable during the waits. Each wait returns ENOTRECOVERABLE when it
 * would reacquire the mutex.
 */
ROBUST_TEST(L6_a_wait_reacquires_a_mutex_that_is_not_recoverable)
{
	struct waiting waiting[COND_WAYS];
	struct runner runners[COND_WAYS];
	struct shared *shared = self->shared;
	struct owner owner;
	int way, all;

	for (all = 0; all < 2; all++) {
		ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, memwait_cond_init(&shared->cond, 0));
		for (way = 0; way < COND_WAYS; way++) {
			waiting_init(&waiting[way], self->loop, shared, way);
			ASSERT_TRUE(waiting_start(&waiting[way], &runners[way]));
		}
		ASSERT_EQ(0, owner_start(&owner, shared->holds, IS_KILLED, lock_it,
					 &shared->mutex));
		owner_end_and_reap(&owner);
		ASSERT_EQ(EOWNERDEAD, memwait_mutex_lock(&shared->mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(&shared->mutex));
		for (way = 0; way < COND_WAYS; way++) {
			/* The change of the mutex's state has woken no waiter. */
			EXPECT_FALSE(waits_in_loop(&waiting[way]) ? waiting[way].calls :
				     runner_is_done(&runners[way]));
		}
		/* A waiter that does not get the mutex passes the signal to another waiter. */
		if (all) {
			EXPECT_EQ(0, memwait_cond_broadcast(&shared->cond));
		} else {
			EXPECT_EQ(0, memwait_cond_signal(&shared->cond));
		}
		for (way = 0; way < COND_WAYS; way++) {
			EXPECT_EQ(ENOTRECOVERABLE,
				  waiting_end(&waiting[way], &runners[way], self->loop)) {
				TH_LOG("way %d, all %d", way, all);
			}
			EXPECT_EQ(0, waiting[way].given_back);
		}
		EXPECT_EQ(0, memwait_cond_destroy(&shared->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&shared->mutex));
	}
}

/* The wait unlocks the mutex while the mutex is inconsistent. */
ROBUST_TEST(L6_a_wait_with_an_inconsistent_mutex_makes_it_not_recoverable)
{
	struct shared *shared = self->shared;
	struct timespec soon;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_cond_init(&shared->cond, 0));
	ASSERT_EQ(0, owner_start(&owner, shared->holds, IS_KILLED, lock_it, &shared->mutex));
	owner_end_and_reap(&owner);
	ASSERT_EQ(EOWNERDEAD, memwait_mutex_lock(&shared->mutex));
	soon = in_time(CLOCK_MONOTONIC, 20);
	EXPECT_EQ(ENOTRECOVERABLE, memwait_cond_clockwait(&shared->cond, &shared->mutex,
							  CLOCK_MONOTONIC, &soon));
	EXPECT_EQ(EPERM, memwait_mutex_unlock(&shared->mutex));
	EXPECT_EQ(ENOTRECOVERABLE, memwait_mutex_lock(&shared->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&shared->cond));
}

ROBUST_TEST(L6_a_wait_without_the_mutex_is_eperm)
{
	struct shared *shared = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_cond_init(&shared->cond, 0));
	EXPECT_EQ(EPERM, memwait_cond_wait(&shared->cond, &shared->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait_async(&shared->cond, &shared->mutex, &counted.op));
	ASSERT_EQ(0, owner_start(&owner, shared->holds, IS_KILLED, lock_it, &shared->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait(&shared->cond, &shared->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait_async(&shared->cond, &shared->mutex, &counted.op));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EPERM, memwait_cond_wait(&shared->cond, &shared->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&shared->cond));
}

static void clean_up(void *arg)
{
	struct waiting *waiting = arg;

	waiting->result = EOWNERDEAD;
	give_mutex_back(waiting);
	waiting->calls++;
}

static int wait_and_clean_up(void *arg)
{
	int ret;

	pthread_cleanup_push(clean_up, arg);
	ret = wait_and_give_back(arg);
	pthread_cleanup_pop(0);
	return ret;
}

/* The cleanup handler runs with the mutex held, even if the owner died. */
ROBUST_TEST(L5_a_cancelled_waiter_holds_the_mutex_of_a_dead_owner)
{
	struct shared *shared = self->shared;
	struct waiting waiting;
	struct runner runner;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_cond_init(&shared->cond, 0));
	waiting_init(&waiting, self->loop, shared, WAIT);
	runner_start(&runner, wait_and_clean_up, &waiting);
	await(&waiting.there);
	runner_await_asleep(&runner);
	ASSERT_EQ(0, owner_start(&owner, shared->holds, IS_KILLED, lock_it, &shared->mutex));
	pthread_cancel(runner.thread);
	await_waiters(self->fd, &shared->mutex, 0, 1);
	owner_end_and_reap(&owner);
	pthread_join(runner.thread, NULL);
	EXPECT_FALSE(runner_is_done(&runner));
	EXPECT_EQ(1, waiting.calls);
	EXPECT_EQ(0, waiting.given_back);
	EXPECT_EQ(0, memwait_cond_destroy(&shared->cond));
	EXPECT_EQ(0, memwait_mutex_destroy(&shared->mutex));
}

TEST_HARNESS_MAIN
