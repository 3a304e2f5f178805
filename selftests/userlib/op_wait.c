// SPDX-License-Identifier: GPL-2.0
/*
 * L9: a blocking wait for an operation. A stop can end the wait, and the operation does not lose
 * its queue position.
 */
#include "objects_test.h"
#include "ioctl_test.h"

#define ROUNDS	LOAD(1000, 200)

/* A thread that waits for an operation of a loop and records the results. */
struct waiting {
	memwait_op_t op;
	memwait_loop_t *loop;
	struct runner runner;
	int ret, result;
	int calls;
};

static void count_callback(memwait_op_t *op, int result, void *data)
{
	struct waiting *waiting = data;

	(void)op;
	(void)result;
	__atomic_add_fetch(&waiting->calls, 1, __ATOMIC_RELEASE);
}

static void waiting_init(struct waiting *waiting, memwait_loop_t *loop)
{
	*waiting = (struct waiting){ .loop = loop, .result = -1 };
	must(memwait_op_init(&waiting->op, loop, count_callback, waiting));
}

static bool is_readable(memwait_loop_t *loop)
{
	return mw_readable(memwait_loop_fd(loop));
}

static bool no_more_waits;

/* Fails as if the user were at its limit of waits. */
static int intercept(int fd, unsigned long request, void *argument)
{
	if (no_more_waits && request == MEMWAIT_IOC_WAIT_ASYNC) {
		errno = ENOSPC;
		return -1;
	}
	return ioctl_of_kernel(fd, request, argument);
}

static int wait_for_op(void *arg)
{
	struct waiting *waiting = arg;

	waiting->ret = memwait_op_wait(&waiting->op, &waiting->result);
	return waiting->ret;
}

static void start(struct waiting *waiting)
{
	runner_start(&waiting->runner, wait_for_op, waiting);
}

USERLIB_TEST(L9_op_wait_returns_the_result_for_each_object)
{
	const struct object *object;
	struct waiting waiting;
	struct timespec soon;

	/* The thread that waits for the operation is not the one that gives the object back. */
	for_each_object(object, maker_can_wait(object) && !has_owner(object)) {
		const struct way *way = object->way;

		/* The operation ends while the thread sleeps. */
		ASSERT_EQ(0, way->make(self->shared, object->kind));
		waiting_init(&waiting, self->loop);
		ASSERT_EQ(EINPROGRESS, way->wait_async(self->shared, &waiting.op));
		start(&waiting);
		runner_await_asleep(&waiting.runner);
		ASSERT_EQ(0, way->give(self->shared));
		EXPECT_EQ(0, runner_join(&waiting.runner));
		EXPECT_EQ(0, waiting.result);
		EXPECT_EQ(1, waiting.calls);
		/* The operation has already ended. */
		waiting.result = -1;
		EXPECT_EQ(0, memwait_op_wait(&waiting.op, &waiting.result));
		EXPECT_EQ(0, waiting.result);
		EXPECT_EQ(0, memwait_op_wait(&waiting.op, NULL));
		EXPECT_EQ(0, leave(way, self->shared, 0));
		EXPECT_EQ(0, way->destroy(self->shared));

		/* The operation has no callback, and has a deadline. */
		ASSERT_EQ(0, way->make(self->shared, object->kind));
		ASSERT_EQ(0, memwait_op_init(&waiting.op, self->loop, NULL, NULL));
		soon = in_time(CLOCK_MONOTONIC, 20);
		waiting.result = way->wait_until_async(self->shared, CLOCK_MONOTONIC, &soon,
						       &waiting.op);
		if (waiting.result == EINPROGRESS) {
			ASSERT_EQ(0, memwait_op_wait(&waiting.op, &waiting.result));
		}
		EXPECT_EQ(ETIMEDOUT, waiting.result);
		EXPECT_EQ(1, waiting.calls);
	}
}

/* An operation that completes immediately also has a result, but no callback. */
USERLIB_TEST(L9_op_wait_returns_the_result_of_an_operation_that_did_not_wait)
{
	uint32_t *word = self->shared;
	struct waiting waiting;

	waiting_init(&waiting, self->loop);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_wait32_async(word, 1, NULL, 0, &waiting.op));
	EXPECT_EQ(0, memwait_op_wait(&waiting.op, &waiting.result));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, waiting.result);
	EXPECT_EQ(0, waiting.calls);
}

USERLIB_TEST(L9_an_operation_that_has_not_begun_has_no_result)
{
	uint32_t *word = self->shared;
	struct waiting waiting;

	waiting_init(&waiting, self->loop);
	EXPECT_EQ(-EINVAL, memwait_op_wait(&waiting.op, &waiting.result));
	EXPECT_EQ(-1, waiting.result);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
	EXPECT_EQ(0, memwait_op_cancel(&waiting.op));
	EXPECT_EQ(-ECANCELED, memwait_op_wait(&waiting.op, &waiting.result));
	waiting_init(&waiting, self->loop);
	EXPECT_EQ(-EINVAL, memwait_op_wait(&waiting.op, NULL));
}

USERLIB_TEST(L9_L12_waiting_for_an_ended_operation_leaves_a_stop)
{
	uint32_t *word = self->shared;
	struct waiting waiting;

	waiting_init(&waiting, self->loop);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_wait32_async(word, 1, NULL, 0, &waiting.op));
	ASSERT_EQ(0, memwait_loop_stop(self->loop));
	EXPECT_EQ(0, memwait_op_wait(&waiting.op, &waiting.result));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
	EXPECT_EQ(-EINTR, memwait_op_wait(&waiting.op, &waiting.result));
	EXPECT_EQ(0, memwait_op_cancel(&waiting.op));
}

/* Callbacks that are queued behind the operation are not run, because they may take a long time. */
USERLIB_TEST(L9_op_wait_leaves_later_completions)
{
	struct counted_op behind = { 0 };
	uint32_t *word = self->shared;
	struct waiting waiting;

	waiting_init(&waiting, self->loop);
	memwait_op_init(&behind.op, self->loop, count_call, &behind);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &behind.op));
	ASSERT_EQ(2, memwait_notify(word, 2, 0));
	EXPECT_EQ(0, memwait_op_wait(&waiting.op, &waiting.result));
	EXPECT_EQ(MEMWAIT_OK, waiting.result);
	EXPECT_EQ(0, behind.calls);
	EXPECT_TRUE(is_readable(self->loop));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, behind.calls);
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_FALSE(is_readable(self->loop));
}

USERLIB_TEST(R2_bad_input)
{
	memwait_op_t zeroed = { 0 };
	int result;

	EXPECT_EQ(-EINVAL, memwait_op_wait(NULL, &result));
	EXPECT_EQ(-EINVAL, memwait_op_wait(&zeroed, &result));
}

static memwait_loop_t *loop_to_stop;

static void stop_in_handler(int signal)
{
	(void)signal;
	memwait_loop_stop(loop_to_stop);
}

/*
 * A stop by another thread, by a handler in this thread, or an earlier stop ends the wait. The
 * operation is still pending.
 */
USERLIB_TEST(L9_L12_a_stop_ends_op_wait)
{
	struct sigaction action = { .sa_handler = stop_in_handler, .sa_flags = SA_RESTART };
	uint32_t *word = self->shared;
	struct waiting waiting;
	int how;

	loop_to_stop = self->loop;
	sigaction(SIGUSR1, &action, NULL);
	for (how = 0; how < 3; how++) {
		waiting_init(&waiting, self->loop);
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
		if (how == 2) {
			ASSERT_EQ(0, memwait_loop_stop(self->loop));
		}
		start(&waiting);
		if (how < 2) {
			runner_await_asleep(&waiting.runner);
			ASSERT_EQ(0, how ? pthread_kill(waiting.runner.thread, SIGUSR1) :
					   memwait_loop_stop(self->loop));
		}
		EXPECT_EQ(-EINTR, runner_join(&waiting.runner));
		EXPECT_EQ(-1, waiting.result);
		EXPECT_EQ(1, memwait_op_pending(&waiting.op));
		EXPECT_EQ(1, memwait_waiters(word, 0));
		start(&waiting);
		runner_await_asleep(&waiting.runner);
		ASSERT_EQ(1, memwait_notify(word, 1, 0));
		EXPECT_EQ(0, runner_join(&waiting.runner));
		EXPECT_EQ(MEMWAIT_OK, waiting.result);
	}
}

/*
 * A dispatch reads the stop's wake-up record before the thread can leave poll(). The dispatch must
 * therefore send another wake-up record.
 */
USERLIB_TEST(L9_L12_a_stop_needs_no_further_wait)
{
	uint32_t *word = self->shared;
	struct waiting waiting;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	waiting_init(&waiting, self->loop);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
	ASSERT_EQ(0, pin(0));
	start(&waiting);
	runner_await_asleep(&waiting.runner);
	ASSERT_EQ(0, pin(20));
	no_more_waits = true;
	ASSERT_EQ(0, memwait_loop_stop(self->loop));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(-EINTR, runner_join(&waiting.runner));
	no_more_waits = false;
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_FALSE(is_readable(self->loop));
	EXPECT_EQ(0, memwait_op_cancel(&waiting.op));
}

/* A stop can come at any time, including between the last check and the sleep. */
USERLIB_TEST(L9_no_stop_by_a_handler_is_missed)
{
	struct sigaction action = { .sa_handler = stop_in_handler };
	uint32_t *word = self->shared;
	struct waiting waiting;
	int round;

	loop_to_stop = self->loop;
	sigaction(SIGUSR1, &action, NULL);
	waiting_init(&waiting, self->loop);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
	for (round = 0; more_rounds(round, ROUNDS); round++) {
		start(&waiting);
		linger(round);
		ASSERT_EQ(0, pthread_kill(waiting.runner.thread, SIGUSR1));
		ASSERT_EQ(-EINTR, runner_join(&waiting.runner));
	}
	EXPECT_EQ(0, waiting.calls);
	EXPECT_EQ(0, memwait_op_cancel(&waiting.op));
}

USERLIB_TEST(L9_R12_a_stop_retains_the_queue_position)
{
	const struct object *object;
	struct waiting waiting;
	struct visitor behind;
	int n;

	for_each_object(object, maker_can_wait(object) && is_fifo(object)) {
		const struct way *way = object->way;

		ASSERT_EQ(0, way->make(self->shared, object->kind));
		waiting_init(&waiting, self->loop);
		ASSERT_EQ(EINPROGRESS, way->wait_async(self->shared, &waiting.op));
		visitor_start(&behind, way, self->shared);
		await_sleepers(way, self->shared, object->kind, 2);
		for (n = 0; n < 5; n++) {
			start(&waiting);
			runner_await_asleep(&waiting.runner);
			ASSERT_EQ(0, memwait_loop_stop(self->loop));
			EXPECT_EQ(-EINTR, runner_join(&waiting.runner));
		}
		/* An object that becomes available during this time is not lost either. */
		ASSERT_EQ(0, way->give(self->shared));
		EXPECT_EQ(0, memwait_op_wait(&waiting.op, &waiting.result));
		EXPECT_EQ(0, waiting.result);
		EXPECT_FALSE(runner_is_done(&behind.runner));
		ASSERT_EQ(0, give_next(way, self->shared));
		EXPECT_EQ(0, visitor_join(&behind));
		EXPECT_EQ(0, way->destroy(self->shared));
	}
}

USERLIB_TEST(L9_a_cancel_ends_op_wait)
{
	uint32_t *word = self->shared;
	struct waiting waiting;

	waiting_init(&waiting, self->loop);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
	start(&waiting);
	runner_await_asleep(&waiting.runner);
	ASSERT_EQ(0, memwait_op_cancel(&waiting.op));
	EXPECT_EQ(-ECANCELED, runner_join(&waiting.runner));
	EXPECT_EQ(-1, waiting.result);
	/* The operation can be used again. */
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, memwait_op_wait(&waiting.op, &waiting.result));
	EXPECT_EQ(MEMWAIT_OK, waiting.result);
}

/* A callback that blocks until it is released. */
struct lasting {
	memwait_op_t op;
	int begun, end;
};

static void last(memwait_op_t *op, int result, void *data)
{
	struct lasting *lasting = data;

	(void)op;
	(void)result;
	__atomic_store_n(&lasting->begun, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&lasting->end, __ATOMIC_ACQUIRE))
		before_next_look();
}

static int wait_for_lasting(void *arg)
{
	struct lasting *lasting = arg;
	int result = -1, ret = memwait_op_wait(&lasting->op, &result);

	return ret ? ret : result;
}

/* A thread that will free the data of the callback sleeps until the callback has returned. */
USERLIB_TEST(L9_op_wait_waits_for_a_callback_in_another_thread)
{
	struct lasting lasting = { 0 };
	struct runner dispatcher, waiter;
	uint32_t *word = self->shared;

	memwait_op_init(&lasting.op, self->loop, last, &lasting);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &lasting.op));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	runner_start(&dispatcher, dispatch_all, self->loop);
	while (!__atomic_load_n(&lasting.begun, __ATOMIC_ACQUIRE))
		before_next_look();
	EXPECT_EQ(0, memwait_op_pending(&lasting.op));
	EXPECT_EQ(-EINPROGRESS, memwait_op_cancel(&lasting.op));
	runner_start(&waiter, wait_for_lasting, &lasting);
	runner_await_asleep(&waiter);
	/* A dispatch that reads no completion does not wake the thread. */
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_FALSE(is_readable(self->loop));
	EXPECT_FALSE(runner_is_done(&waiter));
	__atomic_store_n(&lasting.end, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(MEMWAIT_OK, runner_join(&waiter));
	EXPECT_EQ(1, runner_join(&dispatcher));
	EXPECT_EQ(-ENOENT, memwait_op_cancel(&lasting.op));
}

static void join_waiter(memwait_op_t *op, int result, void *data)
{
	(void)op;
	if (result || runner_join(data))
		abort();
}

/*
 * The thread does not wait for other callbacks, before or behind the operation's own callback: the
 * callback of @other waits for the thread.
 */
static void wait_with_other_callback(struct __test_metadata *_metadata, memwait_loop_t *loop,
				     uint32_t *word, bool before)
{
	struct waiting waiting;
	memwait_op_t other;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	waiting_init(&waiting, loop);
	memwait_op_init(&other, loop, join_waiter, &waiting.runner);
	ASSERT_EQ(MEMWAIT_PENDING,
		  memwait_wait32_async(word, 0, NULL, 0, before ? &other : &waiting.op));
	ASSERT_EQ(MEMWAIT_PENDING,
		  memwait_wait32_async(word, 0, NULL, 0, before ? &waiting.op : &other));
	ASSERT_EQ(0, pin(0));
	start(&waiting);
	runner_await_asleep(&waiting.runner);
	/* The waiter cannot leave poll() before this thread has read both completions. */
	ASSERT_EQ(0, pin(20));
	ASSERT_EQ(2, memwait_notify(word, 2, 0));
	EXPECT_EQ(before ? 1 : 2, memwait_loop_dispatch(loop, MEMWAIT_ALL));
	EXPECT_EQ(MEMWAIT_OK, waiting.result);
	EXPECT_EQ(1, waiting.calls);
}

USERLIB_TEST(L9_a_later_callback_does_not_delay_op_wait)
{
	wait_with_other_callback(_metadata, self->loop, self->shared, false);
}

USERLIB_TEST(L9_an_earlier_callback_does_not_delay_op_wait)
{
	wait_with_other_callback(_metadata, self->loop, self->shared, true);
}

struct at_priority {
	struct waiting waiting;
	int priority;
};

static int wait_at_priority(void *arg)
{
	struct at_priority *at = arg;

	return pin(at->priority) ? -1 : wait_for_op(&at->waiting);
}

/*
 * The thread of higher priority reads the completion. It must not spin until the other thread
 * leaves.
 */
USERLIB_TEST(L9_op_wait_lets_a_thread_of_lower_priority_leave)
{
	struct at_priority low = { .priority = 1 }, high = { .priority = 2 };
	uint32_t *word = self->shared;
	int how;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	for (how = 0; how < 2; how++) {
		ASSERT_EQ(0, pin(0));
		waiting_init(&low.waiting, self->loop);
		waiting_init(&high.waiting, self->loop);
		ASSERT_EQ(MEMWAIT_PENDING,
			  memwait_wait32_async(word, 0, NULL, 0, &low.waiting.op));
		ASSERT_EQ(MEMWAIT_PENDING,
			  memwait_wait32_async(word, 0, NULL, 0, &high.waiting.op));
		runner_start(&low.waiting.runner, wait_at_priority, &low);
		runner_start(&high.waiting.runner, wait_at_priority, &high);
		runner_await_asleep(&low.waiting.runner);
		runner_await_asleep(&high.waiting.runner);
		/* Both threads are woken before either of them runs. */
		ASSERT_EQ(0, pin(20));
		ASSERT_EQ(!how, how ? memwait_op_cancel(&low.waiting.op) :
				      memwait_notify(word, 1, 0));
		EXPECT_EQ(how ? -ECANCELED : 0, runner_join(&low.waiting.runner));
		EXPECT_FALSE(runner_is_done(&high.waiting.runner));
		ASSERT_EQ(1, memwait_notify(word, 1, 0));
		EXPECT_EQ(0, runner_join(&high.waiting.runner));
		EXPECT_EQ(MEMWAIT_OK, high.waiting.result);
		EXPECT_EQ(1, high.waiting.calls);
	}
}

USERLIB_TEST(L9_op_wait_dispatches_other_operations)
{
	struct counted_op other = { 0 };
	uint32_t *word = self->shared;
	struct waiting waiting;

	waiting_init(&waiting, self->loop);
	memwait_op_init(&other.op, self->loop, count_call, &other);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&word[1], 0, NULL, 0, &other.op));
	start(&waiting);
	runner_await_asleep(&waiting.runner);
	ASSERT_EQ(1, memwait_notify(&word[1], 1, 0));
	while (!__atomic_load_n(&other.calls, __ATOMIC_ACQUIRE))
		before_next_look();
	runner_await_asleep(&waiting.runner);
	EXPECT_FALSE(runner_is_done(&waiting.runner));
	/* The wait ends although an operation is pending. */
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&word[1], 0, NULL, 0, &other.op));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, runner_join(&waiting.runner));
	EXPECT_EQ(0, memwait_op_cancel(&other.op));
}

/* Either of the two threads may read the completion. */
USERLIB_TEST(L9_two_threads_wait_and_one_runs)
{
	struct waiting waiting, second;
	uint32_t *word = self->shared;
	struct runner runner;
	int round;

	for (round = 0; more_rounds(round, ROUNDS / 4); round++) {
		waiting_init(&waiting, self->loop);
		waiting_init(&second, self->loop);
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &second.op));
		start(&waiting);
		start(&second);
		runner_start(&runner, run_loop, self->loop);
		linger(round);
		ASSERT_EQ(1, memwait_notify(word, 1, 0));
		ASSERT_EQ(0, runner_join(&waiting.runner));
		ASSERT_EQ(MEMWAIT_OK, waiting.result);
		ASSERT_EQ(1, waiting.calls);
		ASSERT_EQ(1, memwait_op_pending(&second.op));
		ASSERT_EQ(1, memwait_notify(word, 1, 0));
		ASSERT_EQ(0, runner_join(&second.runner));
		ASSERT_EQ(0, runner_join(&runner));
		ASSERT_EQ(MEMWAIT_OK, second.result);
	}
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_FALSE(is_readable(self->loop));
}

/* The thread's cleanup handler cancels the operation. */
USERLIB_TEST(L5_op_wait_is_a_cancellation_point)
{
	uint32_t *word = self->shared;
	struct waiting waiting;

	waiting_init(&waiting, self->loop);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
	start(&waiting);
	runner_await_asleep(&waiting.runner);
	ASSERT_EQ(0, pthread_cancel(waiting.runner.thread));
	pthread_join(waiting.runner.thread, NULL);
	EXPECT_EQ(0, waiting.runner.done);
	EXPECT_EQ(1, memwait_op_pending(&waiting.op));
	EXPECT_EQ(0, memwait_op_cancel(&waiting.op));
}

USERLIB_TEST(L1_op_wait_fails_in_a_child)
{
	uint32_t *word = self->shared;
	struct waiting waiting;

	waiting_init(&waiting, self->loop);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waiting.op));
	EXPECT_EQ(0, child_status(run_in_child(memwait_op_wait(&waiting.op, NULL) != -EPERM)));
	EXPECT_EQ(0, memwait_op_cancel(&waiting.op));
}

/* A watch ends with its deadline. */
USERLIB_TEST(L9_a_watch_ends_at_its_deadline)
{
	struct timespec soon = { 0, 20000000 };
	uint32_t *word = self->shared;
	struct waiting waiting;
	int notified;

	/* A slow machine may notify too late, or arm the watch after the deadline. */
	do {
		waiting_init(&waiting, self->loop);
		while (memwait_watch32(word, 0, &soon, MEMWAIT_RELATIVE, &waiting.op) !=
		       MEMWAIT_PENDING)
			;
		notified = memwait_notify(word, 1, 0);
		EXPECT_EQ(0, memwait_op_wait(&waiting.op, &waiting.result));
		EXPECT_EQ(MEMWAIT_TIMED_OUT, waiting.result);
		EXPECT_EQ(1 + notified, waiting.calls);
	} while (!notified);
}

TEST_HARNESS_MAIN
