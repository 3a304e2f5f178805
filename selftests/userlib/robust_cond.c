// SPDX-License-Identifier: GPL-2.0
/* L5, L6: a condition variable's way back to a mutex whose owner has died. */
#include "robust_mutex_test.h"

enum { WAIT, TIMEDWAIT, CLOCKWAIT, WAIT_ASYNC, CLOCKWAIT_ASYNC, COND_WAYS };

struct waiting {
	int way;
	int ms;			/* from now to the deadline */
	int times;		/* that the mutex is locked */
	struct board *board;
	int there;		/* it has the mutex, and is going to wait */
	int result;
	int given_back;		/* 0: the mutex was locked as often as before, or not at all */
	int calls;		/* of the callback */
	memwait_op_t op;
};

static bool has_mutex(int result)
{
	return !result || result == EOWNERDEAD || result == ETIMEDOUT;
}

/* It has returned: looks how often it has the mutex, and gives it back. */
static void give_mutex_back(struct waiting *waiting)
{
	memwait_mutex_t *mutex = &waiting->board->mutex;
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

static void waiting_init(struct waiting *waiting, memwait_loop_t *loop, struct board *board,
			 int way)
{
	memset(waiting, 0, sizeof(*waiting));
	waiting->board = board;
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
	memwait_mutex_t *mutex = &waiting->board->mutex;
	memwait_cond_t *cond = &waiting->board->cond;

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

/* Returns what the wait has said, or EINPROGRESS. */
static int wait_and_give_back(void *arg)
{
	struct waiting *waiting = arg;
	int i, ret;

	for (i = 0; i < waiting->times; i++) {
		ret = memwait_mutex_lock(&waiting->board->mutex);
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

/* Returns when it waits for the condition. */
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

/* When a wait ends whose mutex is had by one that dies. */
enum { SIGNALLED_BEFORE, SIGNALLED_AFTER, TIMES_OUT, CASES };

/* Returns what the wait has said; -1 if its deadline came before the other one had the mutex. */
static int outlive_owner(struct __test_metadata *_metadata, memwait_loop_t *loop,
			 struct waiting *waiting, int when)
{
	struct board *board = waiting->board;
	struct runner runner;
	struct owner owner;
	int ret;

	if (!waiting_start(waiting, &runner))
		return -1;
	ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->mutex));
	if (when == SIGNALLED_BEFORE) {
		EXPECT_EQ(0, memwait_cond_signal(&board->cond));
	}
	owner_end_and_reap(&owner);
	if (when == SIGNALLED_AFTER) {
		EXPECT_EQ(0, memwait_cond_signal(&board->cond));
	}
	ret = waiting_end(waiting, &runner, loop);
	EXPECT_EQ(0, waiting->given_back);
	if (ret == EOWNERDEAD) {
		EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
	}
	EXPECT_EQ(0, memwait_cond_destroy(&board->cond));
	return when == TIMES_OUT && ret == ETIMEDOUT ? -1 : ret;
}

/* It gets it back, however it waits. */
ROBUST_TEST(L6_a_condition_variables_way_back_to_it)
{
	static const unsigned int recursive[] = { 0, MEMWAIT_MUTEX_RECURSIVE };
	struct board *board = self->board;
	struct waiting waiting;
	int way, when, ms, ret;
	size_t i;

	for (i = 0; i < COND_WAYS * CASES * ARRAY_SIZE(recursive); i++) {
		const unsigned int kind = recursive[i % ARRAY_SIZE(recursive)];

		way = i / ARRAY_SIZE(recursive) % COND_WAYS;
		when = i / ARRAY_SIZE(recursive) / COND_WAYS;
		if (when == TIMES_OUT && (way == WAIT || way == WAIT_ASYNC))
			continue;
		/* The deadline is to come when the mutex is had, which may take a while. */
		for (ms = when == TIMES_OUT ? 20 : HOUR;; ms *= 4) {
			ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST |
							kind));
			ASSERT_EQ(0, memwait_cond_init(&board->cond, 0));
			waiting_init(&waiting, self->loop, board, way);
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

/* It is lost while they wait for a condition: they are told when they would have had it. */
ROBUST_TEST(L6_a_condition_variables_way_back_to_one_that_is_not_recoverable)
{
	struct waiting waiting[COND_WAYS];
	struct runner runners[COND_WAYS];
	struct board *board = self->board;
	struct owner owner;
	int way, all;

	for (all = 0; all < 2; all++) {
		ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, memwait_cond_init(&board->cond, 0));
		for (way = 0; way < COND_WAYS; way++) {
			waiting_init(&waiting[way], self->loop, board, way);
			ASSERT_TRUE(waiting_start(&waiting[way], &runners[way]));
		}
		ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->mutex));
		owner_end_and_reap(&owner);
		ASSERT_EQ(EOWNERDEAD, memwait_mutex_lock(&board->mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
		for (way = 0; way < COND_WAYS; way++) {
			/* Nobody has been woken by what has become of the mutex. */
			EXPECT_FALSE(waits_in_loop(&waiting[way]) ? waiting[way].calls :
				     runner_is_done(&runners[way]));
		}
		/* Who gets no mutex passes the signal on, to one who may use it. */
		if (all) {
			EXPECT_EQ(0, memwait_cond_broadcast(&board->cond));
		} else {
			EXPECT_EQ(0, memwait_cond_signal(&board->cond));
		}
		for (way = 0; way < COND_WAYS; way++) {
			EXPECT_EQ(ENOTRECOVERABLE,
				  waiting_end(&waiting[way], &runners[way], self->loop)) {
				TH_LOG("way %d, all %d", way, all);
			}
			EXPECT_EQ(0, waiting[way].given_back);
		}
		EXPECT_EQ(0, memwait_cond_destroy(&board->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
	}
}

/* A wait unlocks it. */
ROBUST_TEST(L6_a_wait_with_an_inconsistent_one_loses_it)
{
	struct board *board = self->board;
	struct timespec soon;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_cond_init(&board->cond, 0));
	ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->mutex));
	owner_end_and_reap(&owner);
	ASSERT_EQ(EOWNERDEAD, memwait_mutex_lock(&board->mutex));
	soon = in_time(CLOCK_MONOTONIC, 20);
	EXPECT_EQ(ENOTRECOVERABLE, memwait_cond_clockwait(&board->cond, &board->mutex,
							  CLOCK_MONOTONIC, &soon));
	EXPECT_EQ(EPERM, memwait_mutex_unlock(&board->mutex));
	EXPECT_EQ(ENOTRECOVERABLE, memwait_mutex_lock(&board->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&board->cond));
}

ROBUST_TEST(L6_a_wait_without_the_mutex_is_eperm)
{
	struct board *board = self->board;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_cond_init(&board->cond, 0));
	EXPECT_EQ(EPERM, memwait_cond_wait(&board->cond, &board->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait_async(&board->cond, &board->mutex, &counted.op));
	ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait(&board->cond, &board->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait_async(&board->cond, &board->mutex, &counted.op));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EPERM, memwait_cond_wait(&board->cond, &board->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&board->cond));
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

/* Its clean-up handler has the mutex, whoever had it before. */
ROBUST_TEST(L5_a_cancelled_waiter_inherits_the_mutex)
{
	struct board *board = self->board;
	struct waiting waiting;
	struct runner runner;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_cond_init(&board->cond, 0));
	waiting_init(&waiting, self->loop, board, WAIT);
	runner_start(&runner, wait_and_clean_up, &waiting);
	await(&waiting.there);
	runner_await_asleep(&runner);
	ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->mutex));
	pthread_cancel(runner.thread);
	await_waiters(self->fd, &board->mutex, 0, 1);
	owner_end_and_reap(&owner);
	pthread_join(runner.thread, NULL);
	EXPECT_FALSE(runner_is_done(&runner));
	EXPECT_EQ(1, waiting.calls);
	EXPECT_EQ(0, waiting.given_back);
	EXPECT_EQ(0, memwait_cond_destroy(&board->cond));
	EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
}

TEST_HARNESS_MAIN
