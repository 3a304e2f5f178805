// SPDX-License-Identifier: GPL-2.0
/* Loops and operations, on plain words. */
#include "ioctl_test.h"
#include "userlib_test.h"

#define ROUNDS	SOME_OF(3000)

static int arm(struct counted_op *counted, memwait_loop_t *loop, const volatile void *word)
{
	int err = memwait_op_init(&counted->op, loop, count_call, counted);

	return err ? err : memwait_wait32_async(word, 0, NULL, 0, &counted->op);
}

/* Whether a cancel fails, as under a seccomp filter. */
static bool refuses_cancel;

static int intercept(int fd, unsigned long request, void *argument)
{
	if (refuses_cancel && request == MEMWAIT_IOC_CANCEL) {
		errno = EPERM;
		return -1;
	}
	return ioctl_of_kernel(fd, request, argument);
}

static bool is_readable(memwait_loop_t *loop)
{
	return mw_readable(memwait_loop_fd(loop));
}

USERLIB_TEST(R19_an_operation_completes_once)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;

	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	EXPECT_EQ(1, memwait_op_pending(&counted.op));
	EXPECT_EQ(1, memwait_loop_pending(self->loop));
	EXPECT_FALSE(is_readable(self->loop));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_TRUE(is_readable(self->loop));
	EXPECT_EQ(1, memwait_op_pending(&counted.op));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, counted.calls);
	EXPECT_EQ(MEMWAIT_OK, counted.result);
	EXPECT_EQ(0, memwait_op_pending(&counted.op));
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
	errno = EXDEV;
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(-ENOENT, memwait_op_cancel(&counted.op));
	EXPECT_EQ(EXDEV, errno);
	EXPECT_FALSE(is_readable(self->loop));
}

USERLIB_TEST(R2_bad_input)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	memwait_op_t zeroed = { 0 };
	memwait_loop_t *loop;
	int bit;

	EXPECT_EQ(-EINVAL, memwait_loop_new(NULL, 0));
	for (bit = 0; bit < 32; bit++)
		EXPECT_EQ(-EINVAL, memwait_loop_new(&loop, 1u << bit));
	EXPECT_EQ(0, memwait_loop_close(NULL));
	EXPECT_EQ(-EINVAL, memwait_loop_fd(NULL));
	EXPECT_EQ(-EINVAL, memwait_loop_dispatch(NULL, MEMWAIT_ALL));
	EXPECT_EQ(-EINVAL, memwait_loop_run(NULL, NULL, 0));
	EXPECT_EQ(-EINVAL, memwait_loop_stop(NULL));
	EXPECT_EQ(0, memwait_loop_pending(NULL));
	EXPECT_EQ(-EINVAL, memwait_op_init(NULL, self->loop, count_call, NULL));
	EXPECT_EQ(-EINVAL, memwait_op_init(&zeroed, NULL, count_call, NULL));
	EXPECT_EQ(-EINVAL, memwait_op_cancel(NULL));
	EXPECT_EQ(-EINVAL, memwait_op_cancel(&zeroed));
	EXPECT_EQ(0, memwait_op_pending(NULL));
	EXPECT_EQ(0, memwait_op_pending(&zeroed));
	EXPECT_EQ(-EINVAL, memwait_wait32_async(word, 0, NULL, 0, &zeroed));
	EXPECT_EQ(-EINVAL, memwait_wait32_async(word, 0, NULL, 0, NULL));
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	EXPECT_EQ(-EINVAL, memwait_wait32_async((char *)word + 2, 0, NULL, 0, &counted.op));
	EXPECT_EQ(-EINVAL, memwait_wait32_async(word, 0, NULL, 0x1000000, &counted.op));
	EXPECT_EQ(-EFAULT, memwait_wait32_async(NULL, 0, NULL, 0, &counted.op));
	EXPECT_EQ(0, memwait_op_pending(&counted.op));
	EXPECT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	EXPECT_EQ(-EBUSY, memwait_wait32_async(word, 0, NULL, 0, &counted.op));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(-ENOENT, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, counted.calls);
}

/* The actions of a callback. */
struct acting {
	memwait_op_t op;
	memwait_loop_t *loop;
	uint32_t *word;
	struct counted_op *other;
	int calls, rearm, nested, cancelled;
};

static void act(memwait_op_t *op, int result, void *data)
{
	struct acting *acting = data;

	acting->calls++;
	if (result)
		return;
	if (acting->other)
		acting->cancelled += !memwait_op_cancel(&acting->other->op);
	if (acting->nested)
		memwait_loop_dispatch(acting->loop, MEMWAIT_ALL);
	if (acting->rearm-- > 0 &&
	    memwait_wait32_async(acting->word, 0, NULL, 0, op) != MEMWAIT_PENDING)
		abort();
}

USERLIB_TEST(R19_a_callback_may_begin_its_operation_again)
{
	struct acting acting = { .loop = self->loop, .word = self->shared, .rearm = 10 };
	int i;

	memwait_op_init(&acting.op, self->loop, act, &acting);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(acting.word, 0, NULL, 0, &acting.op));
	for (i = 1; i <= 11; i++) {
		ASSERT_EQ(1, memwait_notify(acting.word, 1, 0));
		ASSERT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		ASSERT_EQ(i, acting.calls);
	}
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
}

USERLIB_TEST(R23_a_callback_may_cancel_another_completed_operation)
{
	struct counted_op other = { 0 }, behind = { 0 };
	struct acting acting = { .loop = self->loop, .word = self->shared, .other = &other };

	memwait_op_init(&acting.op, self->loop, act, &acting);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(acting.word, 0, NULL, 0, &acting.op));
	ASSERT_EQ(MEMWAIT_PENDING, arm(&other, self->loop, acting.word));
	ASSERT_EQ(MEMWAIT_PENDING, arm(&behind, self->loop, acting.word));
	ASSERT_EQ(2, memwait_notify(acting.word, 2, 0));
	/*
	 * The loop has read both completions. The first callback cancels the second operation,
	 * whose notify passes to the third operation.
	 */
	ASSERT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, acting.cancelled);
	EXPECT_EQ(0, other.calls);
	ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 1));
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
}

static void free_self(memwait_op_t *op, int result, void *data)
{
	(void)result;
	++*(int *)data;
	memset(op, 0xa5, sizeof(*op));
	free(op);
}

USERLIB_TEST(R19_a_callback_may_free_its_operation)
{
	memwait_op_t *op = malloc(sizeof(*op));
	uint32_t *word = self->shared;
	int calls = 0;

	memwait_op_init(op, self->loop, free_self, &calls);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, op));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, calls);

	/*
	 * The same with memwait_mutex_execute_locked(), which must unlock the mutex after the
	 * callback.
	 */
	op = malloc(sizeof(*op));
	memwait_op_init(op, self->loop, free_self, &calls);
	EXPECT_EQ(0, memwait_mutex_execute_locked((memwait_mutex_t *)(word + 16), op));
	EXPECT_EQ(2, calls);
	EXPECT_EQ(EPERM, memwait_mutex_unlock((memwait_mutex_t *)(word + 16)));
}

USERLIB_TEST(R19_a_callback_may_dispatch)
{
	struct counted_op other = { 0 };
	struct acting acting = { .loop = self->loop, .word = self->shared, .nested = 1 };

	memwait_op_init(&acting.op, self->loop, act, &acting);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(acting.word, 0, NULL, 0, &acting.op));
	ASSERT_EQ(MEMWAIT_PENDING, arm(&other, self->loop, acting.word));
	ASSERT_EQ(2, memwait_notify(acting.word, 2, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, acting.calls);
	EXPECT_EQ(1, other.calls);
}

#define MANY	200

/*
 * An operation whose callback begins the operation again, and notifies it before the callback
 * returns.
 */
struct again {
	struct counted_op counted;
	uint32_t *word;
	int times;
};

static void begin_again(memwait_op_t *op, int result, void *data)
{
	struct again *again = data;

	again->counted.calls++;
	if (again->counted.calls >= again->times)
		return;
	must(memwait_wait32_async(again->word, 0, NULL, 0, op) != MEMWAIT_PENDING);
	must(memwait_notify(again->word, 1, 0) != 1);
}

/*
 * One dispatch for each edge, with any limit, is sufficient to run all callbacks: users of
 * edge-triggered polling, such as tokio's AsyncFd, need this. No dispatch runs more callbacks than
 * the limit.
 */
USERLIB_TEST(R22_one_dispatch_for_each_edge_runs_all_callbacks)
{
	const unsigned int limits[] = { 1, 7, 16, 64, 65, MANY - 1, MANY, MEMWAIT_ALL };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct again *again = calloc(MANY, sizeof(*again));
	int epoll = epoll_create1(0), i, ret, round, left;
	unsigned int limit, total, turns;
	uint32_t *word = self->shared;

	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, memwait_loop_fd(self->loop), &event));
	for (round = 0; round < 3 * (int)ARRAY_SIZE(limits); round++) {
		limit = limits[round / 3];
		for (i = 0; i < MANY; i++) {
			again[i] = (struct again){ .word = word, .times = 1 + (round % 3 == 2) };
			memwait_op_init(&again[i].counted.op, self->loop, begin_again, &again[i]);
			ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0,
									&again[i].counted.op));
		}
		ASSERT_EQ(MANY, memwait_notify(word, MEMWAIT_ALL, 0));
		/* If a cancel has read completions, there is another edge. */
		left = round % 3 == 1 ? MANY - 1 : MANY * again[0].times;
		if (round % 3 == 1) {
			EXPECT_EQ(0, memwait_op_cancel(&again[MANY - 1].counted.op));
		}
		total = 0;
		turns = 0;
		while (epoll_wait(epoll, &event, 1, 0) == 1) {
			ret = memwait_loop_dispatch(self->loop, limit);
			ASSERT_LE(0, ret);
			ASSERT_GE(limit, ret);
			total += ret;
			turns++;
		}
		EXPECT_EQ(left, total);
		EXPECT_EQ(0, memwait_loop_pending(self->loop));
		EXPECT_FALSE(is_readable(self->loop));
		if (limit == MEMWAIT_ALL) {
			EXPECT_GE(2, turns);
		}
	}
	free(again);
	close(epoll);
}

USERLIB_TEST(R22_a_dispatch_with_limit_0_runs_no_callback)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	uint32_t *word = self->shared;
	int epoll = epoll_create1(0);

	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, memwait_loop_fd(self->loop), &event));
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, 0));
	EXPECT_EQ(0, epoll_wait(epoll, &event, 1, 0));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 0));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, 0));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, 1));
	close(epoll);
}

/*
 * If a cancel must read completions of other operations, these can still be dispatched, and the
 * descriptor stays readable.
 */
USERLIB_TEST(R22_cancel_leaves_the_others_readable)
{
	struct counted_op counted[5] = { 0 };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(0), i;
	uint32_t *word = self->shared;

	for (i = 0; i < 5; i++)
		ASSERT_EQ(MEMWAIT_PENDING, arm(&counted[i], self->loop, word));
	ASSERT_EQ(5, memwait_notify(word, 5, 0));
	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, memwait_loop_fd(self->loop), &event));
	ASSERT_EQ(1, epoll_wait(epoll, &event, 1, -1));
	ASSERT_EQ(0, memwait_op_cancel(&counted[4].op));
	EXPECT_TRUE(is_readable(self->loop));
	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 0));
	EXPECT_EQ(4, memwait_loop_pending(self->loop));
	EXPECT_EQ(4, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(1, counted[i].calls);
	EXPECT_EQ(0, counted[4].calls);
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_FALSE(is_readable(self->loop));
	close(epoll);
}

/*
 * The second cancel reads the wake-up record that made the descriptor readable after the first
 * cancel.
 */
USERLIB_TEST(R22_two_cancels_leave_the_others_readable)
{
	struct counted_op counted[4] = { 0 };
	uint32_t *word = self->shared;
	int i;

	for (i = 0; i < 3; i++)
		ASSERT_EQ(MEMWAIT_PENDING, arm(&counted[i], self->loop, word));
	ASSERT_EQ(3, memwait_notify(word, 3, 0));
	ASSERT_EQ(0, memwait_op_cancel(&counted[2].op));
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted[3], self->loop, word));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	ASSERT_EQ(0, memwait_op_cancel(&counted[3].op));
	EXPECT_TRUE(is_readable(self->loop));
	EXPECT_EQ(2, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, counted[0].calls);
	EXPECT_EQ(1, counted[1].calls);
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_FALSE(is_readable(self->loop));
}

struct race {
	memwait_loop_t *loop;
	struct counted_op counted;
	uint32_t *word;
	int cancelled, stop;
};

static int wait_on_word(void *arg)
{
	return memwait_wait32(arg, 0, NULL, 0);
}

/*
 * Either the callback runs, or cancel returns 0 and the thread behind the operation is woken
 * instead.
 */
USERLIB_TEST(L3_cancel_by_another_thread_races_with_notify_and_dispatch)
{
	struct race race = { .loop = self->loop, .word = self->shared };
	struct runner canceller, behind;
	int round, ret, called = 0;

	for (round = 0; more_rounds(round, ROUNDS) || called == round; round++) {
		memset(&race.counted, 0, sizeof(race.counted));
		ASSERT_EQ(MEMWAIT_PENDING, arm(&race.counted, self->loop, race.word));
		runner_start(&behind, wait_on_word, race.word);
		await_waiters(self->fd, race.word, U32_SIZE, 2);
		runner_race(&canceller, memwait_op_cancel, &race.counted.op);
		ASSERT_EQ(1, memwait_notify(race.word, 1, 0));
		if (round % 2)
			memwait_loop_dispatch(self->loop, MEMWAIT_ALL);
		ret = runner_join(&canceller);
		if (ret == -ENOENT || ret == -EINPROGRESS) {
			called++;
			ASSERT_EQ(1, race.counted.calls);
			ASSERT_EQ(1, memwait_notify(race.word, 1, 0));
		} else {
			ASSERT_EQ(0, ret);
			ASSERT_EQ(0, race.counted.calls);
		}
		ASSERT_EQ(MEMWAIT_OK, runner_join(&behind));
		ASSERT_EQ(0, memwait_loop_pending(self->loop));
		ASSERT_EQ(0, memwait_waiters(race.word, 0));
	}
	TH_LOG("%d of %d called back", called, round);
}

USERLIB_TEST(L3_a_refused_cancel_is_not_done)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;

	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	refuses_cancel = true;
	EXPECT_EQ(-EPERM, memwait_op_cancel(&counted.op));
	EXPECT_EQ(1, memwait_op_pending(&counted.op));
	EXPECT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, counted.calls);
	EXPECT_EQ(MEMWAIT_OK, counted.result);
	/* Close frees the operations all the same. */
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	EXPECT_EQ(0, memwait_loop_close(self->loop));
	self->loop = NULL;
	EXPECT_EQ(1, counted.calls);
	EXPECT_EQ(0, memwait_notify(word, 1, 0));
}

static int dispatch_until_stopped(void *arg)
{
	struct race *race = arg;

	while (!__atomic_load_n(&race->stop, __ATOMIC_ACQUIRE)) {
		struct pollfd pfd = { .fd = memwait_loop_fd(race->loop), .events = POLLIN };

		if (poll(&pfd, 1, 10) > 0 && memwait_loop_dispatch(race->loop, MEMWAIT_ALL) < 0)
			return -1;
	}
	return 0;
}

static void count_atomically(memwait_op_t *op, int result, void *data)
{
	(void)op;
	(void)result;
	__atomic_add_fetch((int *)data, 1, __ATOMIC_ACQ_REL);
}

USERLIB_TEST(R19_two_threads_may_dispatch)
{
	struct race race = { .loop = self->loop };
	memwait_op_t *ops = calloc(MANY, sizeof(*ops));
	uint32_t *word = self->shared;
	struct runner dispatchers[2];
	int round, i, calls = 0;

	for (i = 0; i < 2; i++)
		runner_start(&dispatchers[i], dispatch_until_stopped, &race);
	for (i = 0; i < MANY; i++)
		memwait_op_init(&ops[i], self->loop, count_atomically, &calls);
	for (round = 1; round <= 20; round++) {
		for (i = 0; i < MANY; i++)
			ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &ops[i]));
		ASSERT_EQ(MANY, memwait_notify(word, MEMWAIT_ALL, 0));
		while (memwait_loop_pending(self->loop) ||
		       __atomic_load_n(&calls, __ATOMIC_ACQUIRE) < round * MANY)
			before_next_look();
		ASSERT_EQ(round * MANY, __atomic_load_n(&calls, __ATOMIC_ACQUIRE));
	}
	__atomic_store_n(&race.stop, 1, __ATOMIC_RELEASE);
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, runner_join(&dispatchers[i]));
	free(ops);
}

USERLIB_TEST(run_ends_when_nothing_is_pending_or_when_stopped)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	struct runner runner;

	EXPECT_EQ(0, memwait_loop_run(self->loop, NULL, 0));

	/* The run is ended by a completion. */
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	runner_start(&runner, run_loop, self->loop);
	runner_await_asleep(&runner);
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(1, counted.calls);

	/* The run is ended by a cancel in another thread. */
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	runner_start(&runner, run_loop, self->loop);
	runner_await_asleep(&runner);
	ASSERT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, runner_join(&runner));

	/* The run is ended by a stop from another thread, and then by an earlier stop. */
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	runner_start(&runner, run_loop, self->loop);
	runner_await_asleep(&runner);
	ASSERT_EQ(0, memwait_loop_stop(self->loop));
	EXPECT_EQ(0, runner_join(&runner));
	ASSERT_EQ(0, memwait_loop_stop(self->loop));
	EXPECT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(1, memwait_loop_pending(self->loop));
	ASSERT_EQ(0, memwait_op_cancel(&counted.op));
}

static void stop_loop(memwait_op_t *op, int result, void *data)
{
	(void)op;
	(void)result;
	memwait_loop_stop(data);
}

USERLIB_TEST(stop_in_a_callback_leaves_the_rest_for_later)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	memwait_op_t stopper;

	memwait_op_init(&stopper, self->loop, stop_loop, self->loop);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &stopper));
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	ASSERT_EQ(2, memwait_notify(word, 2, 0));
	ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(0, counted.calls);
	EXPECT_TRUE(is_readable(self->loop));
	ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(1, counted.calls);
}

/*
 * After a run has ended, in any way, the descriptor does not stay readable: a host loop would spin.
 */
USERLIB_TEST(R22_dispatch_is_quiet_after_a_run)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	struct runner runner;
	int stopped;

	for (stopped = 0; stopped < 2; stopped++) {
		counted.calls = 0;
		ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
		runner_start(&runner, run_loop, self->loop);
		runner_await_asleep(&runner);
		if (stopped) {
			ASSERT_EQ(0, memwait_loop_stop(self->loop));
		} else {
			ASSERT_EQ(0, memwait_op_cancel(&counted.op));
		}
		EXPECT_EQ(0, runner_join(&runner));
		if (!stopped) {
			ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
		}
		ASSERT_EQ(1, memwait_notify(word, 1, 0));
		ASSERT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_EQ(1, counted.calls);
		EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_FALSE(is_readable(self->loop));
	}
}

/*
 * Starts a run, which sleeps because @counted is pending. The run cannot leave poll() while this
 * thread uses the CPU.
 */
static void sleep_in_run(struct __test_metadata *_metadata, struct runner *runner,
			 memwait_loop_t *loop, struct counted_op *counted, uint32_t *word)
{
	ASSERT_EQ(0, pin(0));
	ASSERT_EQ(MEMWAIT_PENDING, arm(counted, loop, word));
	runner_start(runner, run_loop, loop);
	runner_await_asleep(runner);
	ASSERT_EQ(0, pin(20));
}

USERLIB_TEST(L12_stop_ends_a_run_although_another_thread_dispatches)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	struct runner runner;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	sleep_in_run(_metadata, &runner, self->loop, &counted, word);
	ASSERT_EQ(0, memwait_loop_stop(self->loop));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_FALSE(is_readable(self->loop));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
}

static void join_runner(memwait_op_t *op, int result, void *data)
{
	(void)op;
	if (result || runner_join(data))
		abort();
}

static void stop_and_join(memwait_op_t *op, int result, void *data)
{
	struct runner *runner = data;

	if (memwait_loop_stop(runner->arg) || memwait_loop_dispatch(runner->arg, MEMWAIT_ALL))
		abort();
	join_runner(op, result, data);
}

/* The dispatch in the callback reads the stop's wake-up record, and then the callback blocks. */
USERLIB_TEST(L12_stop_ends_a_run_while_a_callback_waits_for_it)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	struct runner runner;
	memwait_op_t joiner;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	memwait_op_init(&joiner, self->loop, stop_and_join, &runner);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &joiner));
	sleep_in_run(_metadata, &runner, self->loop, &counted, word);
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
}

/* As above, but the wake-up record is read together with the completion. */
USERLIB_TEST(L12_stop_ends_a_run_before_a_callback_that_waits_for_it)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	struct runner runner;
	memwait_op_t joiner;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	memwait_op_init(&joiner, self->loop, join_runner, &runner);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &joiner));
	sleep_in_run(_metadata, &runner, self->loop, &counted, word);
	ASSERT_EQ(0, memwait_loop_stop(self->loop));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
}

static void set_flag(memwait_op_t *op, int result, void *data)
{
	int *flags = data;

	(void)op;
	(void)result;
	__atomic_store_n(&flags[0], 1, __ATOMIC_RELEASE);
}

static void await_the_other(memwait_op_t *op, int result, void *data)
{
	int *flags = data;

	(void)op;
	(void)result;
	flags[1] = await_flag(&flags[0], 20);
}

/* The completions do not wake the sleeping thread, because this thread has read them. */
USERLIB_TEST(a_callback_may_wait_for_a_callback_in_another_thread)
{
	struct counted_op counted = { 0 };
	uint32_t *words = self->shared;
	struct runner runner;
	int flags[2] = { 0 };
	memwait_op_t ops[2];

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	memwait_op_init(&ops[0], self->loop, await_the_other, flags);
	memwait_op_init(&ops[1], self->loop, set_flag, flags);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&words[1], 0, NULL, 0, &ops[0]));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&words[1], 0, NULL, 0, &ops[1]));
	sleep_in_run(_metadata, &runner, self->loop, &counted, words);
	ASSERT_EQ(2, memwait_notify(&words[1], 2, 0));
	EXPECT_LE(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, flags[1]);
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, runner_join(&runner));
}

/*
 * All runs end: when one of them reads the last completion, after a cancel, or after a single stop.
 */
USERLIB_TEST(all_runs_end)
{
	struct runner runners[3];
	struct counted_op counted;
	uint32_t *word = self->shared;
	bool ended;
	int how, i;

	/*
	 * All runs are on one CPU. Therefore one run has usually ended before the next run checks.
	 */
	bind_to(0);
	for (how = 0; how < 3; how++) {
		counted = (struct counted_op){ 0 };
		ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
		for (i = 0; i < 3; i++) {
			runner_start(&runners[i], run_loop, self->loop);
			runner_await_asleep(&runners[i]);
		}
		if (how == 0)
			ended = memwait_notify(word, 1, 0) == 1;
		else if (how == 1)
			ended = !memwait_op_cancel(&counted.op);
		else
			ended = !memwait_loop_stop(self->loop);
		ASSERT_TRUE(ended);
		for (i = 0; i < 3; i++)
			EXPECT_EQ(0, runner_join(&runners[i]));
		EXPECT_EQ(how == 0, counted.calls);
		if (how == 2)
			EXPECT_EQ(0, memwait_op_cancel(&counted.op));
		EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_FALSE(is_readable(self->loop));
	}
}

/* The run that reads the last completion returns before the other run has checked. */
USERLIB_TEST(a_run_that_ends_wakes_a_sleeping_run)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	struct runner runner;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	sleep_in_run(_metadata, &runner, self->loop, &counted, word);
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(1, counted.calls);
	EXPECT_EQ(0, runner_join(&runner));
}

USERLIB_TEST(a_stop_does_not_end_later_runs)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	struct runner runner;
	memwait_op_t stopper;

	memwait_op_init(&stopper, self->loop, stop_loop, self->loop);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &stopper));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	/* No operation is pending either. */
	EXPECT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	runner_start(&runner, run_loop, self->loop);
	runner_await_asleep(&runner);
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(1, counted.calls);
}

static void end_thread(memwait_op_t *op, int result, void *data)
{
	(void)op;
	(void)result;
	if (data)
		pthread_exit(NULL);
	pthread_cancel(pthread_self());
	pthread_testcancel();
}

/*
 * The thread that ends has read completions of other operations. The poll() of another thread must
 * report these completions.
 */
USERLIB_TEST(L5_a_callback_may_end_its_thread)
{
	int (*functions[])(void *) = { run_loop, dispatch_all };
	struct counted_op counted;
	uint32_t *word = self->shared;
	struct runner runner;
	memwait_op_t ender;
	int i;

	for (i = 0; i < 4; i++) {
		counted = (struct counted_op){ 0 };
		memwait_op_init(&ender, self->loop, end_thread, i / 2 ? word : NULL);
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &ender));
		ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
		ASSERT_EQ(2, memwait_notify(word, 2, 0));
		runner_start(&runner, functions[i % 2], self->loop);
		pthread_join(runner.thread, NULL);
		EXPECT_FALSE(runner_is_done(&runner));
		EXPECT_TRUE(is_readable(self->loop));
		EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_EQ(1, counted.calls);
		EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_FALSE(is_readable(self->loop));
	}
}

/*
 * As above, but with more completions than a single read returns, and with edge-triggered polling.
 * Another thread continues.
 */
USERLIB_TEST(L5_R22_a_callback_that_ends_its_thread_loses_no_completion)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct counted_op *counted = calloc(MANY, sizeof(*counted));
	int epoll = epoll_create1(0), i, ret, round, total;
	uint32_t *word = self->shared;
	struct runner runner;
	memwait_op_t ender;

	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, memwait_loop_fd(self->loop), &event));
	memwait_op_init(&ender, self->loop, end_thread, word);
	for (round = 0; round < 3; round++) {
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &ender));
		for (i = 0; i < MANY; i++)
			ASSERT_EQ(MEMWAIT_PENDING, arm(&counted[i], self->loop, word));
		ASSERT_EQ(MANY + 1, memwait_notify(word, MEMWAIT_ALL, 0));
		/*
		 * A wake-up record is queued behind all completions. It causes no new edge unless
		 * it is read.
		 */
		ASSERT_EQ(0, memwait_op_cancel(&counted[0].op));
		ASSERT_EQ(1, epoll_wait(epoll, &event, 1, 0));
		runner_start(&runner, dispatch_all, self->loop);
		pthread_join(runner.thread, NULL);
		for (total = 0; epoll_wait(epoll, &event, 1, 0) == 1; total += ret) {
			ret = memwait_loop_dispatch(self->loop, MEMWAIT_ALL);
			ASSERT_LE(0, ret);
		}
		EXPECT_EQ(MANY - 1, total);
	}
	free(counted);
	close(epoll);
}

struct freeing {
	memwait_op_t op;
	memwait_loop_t *loop;
	pid_t child;
	int err;
};

static void free_loop(memwait_op_t *op, int result, void *data)
{
	struct freeing *freeing = data;

	(void)op;
	(void)result;
	freeing->err = memwait_loop_close(freeing->loop);
}

USERLIB_TEST(a_callback_cannot_free_its_loop)
{
	struct freeing freeing = { .loop = self->loop };
	uint32_t *word = self->shared;

	memwait_op_init(&freeing.op, self->loop, free_loop, &freeing);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &freeing.op));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(-EBUSY, freeing.err);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &freeing.op));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	freeing.err = 0;
	EXPECT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(-EBUSY, freeing.err);
}

static void fork_and_free(memwait_op_t *op, int result, void *data)
{
	struct freeing *freeing = data;

	freeing->child = fork_child();
	if (!freeing->child)
		free_loop(op, result, data);
}

/* Later completions go to the parent. */
USERLIB_TEST(L1_a_callback_may_fork)
{
	struct freeing freeing = { .loop = self->loop };
	uint32_t *word = self->shared;
	struct counted_op counted;
	int run, ret;

	for (run = 0; run < 2; run++) {
		counted = (struct counted_op){ 0 };
		memwait_op_init(&freeing.op, self->loop, fork_and_free, &freeing);
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &freeing.op));
		ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
		ASSERT_EQ(2, memwait_notify(word, 2, 0));
		ret = run ? memwait_loop_run(self->loop, NULL, 0) :
			    memwait_loop_dispatch(self->loop, MEMWAIT_ALL);
		if (!freeing.child)
			_exit(ret != -EPERM || freeing.err || counted.calls);
		EXPECT_EQ(run ? 0 : 2, ret);
		EXPECT_EQ(1, counted.calls);
		EXPECT_EQ(0, child_status(freeing.child));
	}
}

USERLIB_TEST(L5_run_is_a_cancellation_point_and_leaves_the_loop_usable)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	struct runner runner;

	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	runner_start(&runner, run_loop, self->loop);
	runner_await_asleep(&runner);
	ASSERT_EQ(0, pthread_cancel(runner.thread));
	pthread_join(runner.thread, NULL);
	EXPECT_EQ(0, runner.done);
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(1, counted.calls);
}

USERLIB_TEST(L1_a_loop_belongs_to_its_creator)
{
	struct counted_op counted = { 0 }, unused = { 0 };
	uint32_t *word = self->shared;
	memwait_loop_t *own;
	int bad = 0;
	pid_t child;

	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	memwait_op_init(&unused.op, self->loop, count_call, &unused);
	child = fork_child();
	if (!child) {
		bad |= memwait_loop_dispatch(self->loop, MEMWAIT_ALL) != -EPERM;
		bad |= memwait_loop_run(self->loop, NULL, 0) != -EPERM;
		bad |= memwait_loop_stop(self->loop) != -EPERM;
		bad |= memwait_op_cancel(&counted.op) != -EPERM;
		bad |= memwait_wait32_async(word, 0, NULL, 0, &unused.op) != -EPERM;
		bad |= memwait_mutex_lock_async((void *)(word + 16), &unused.op) != EPERM;
		bad |= memwait_loop_close(self->loop);
		/* The child's own loop works with the same word. */
		bad |= memwait_loop_new(&own, 0);
		bad |= arm(&unused, own, word) != MEMWAIT_PENDING;
		bad |= memwait_op_cancel(&unused.op);
		bad |= memwait_loop_close(own);
		_exit(bad);
	}
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(1, memwait_loop_pending(self->loop));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(MEMWAIT_OK, counted.result);
}

/*
 * The program closes the device, as daemons do. The next lock call opens the device again. The
 * library must not close the descriptor of a loop.
 */
USERLIB_TEST(L10_a_device_that_was_closed_is_opened_again)
{
	memwait_mutex_t *mutex = self->shared;
	int ends[2], fd, err;
	pid_t child;

	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(0, memwait_notify(mutex, 0, 0));
	child = fork_child();
	if (!child) {
		for (fd = 3; fd < 64; fd++)
			close(fd);
		/* Another file gets the number of the descriptor. */
		for (fd = 0; fd < 32; fd++)
			err = pipe(ends);
		err |= memwait_mutex_lock(mutex);
		err |= memwait_mutex_unlock(mutex);
		_exit(err);
	}
	await_waiters(self->fd, mutex, U32_SIZE, 1);
	ASSERT_EQ(0, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, child_status(child));
}

USERLIB_TEST(L10_a_loop_reports_that_its_descriptor_was_closed)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	memwait_loop_t *loop;

	ASSERT_EQ(0, memwait_loop_new(&loop, 0));
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, loop, word));
	close(memwait_loop_fd(loop));
	EXPECT_EQ(-EBADF, memwait_loop_dispatch(loop, MEMWAIT_ALL));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(-EBADF, memwait_wait32_async(word, 0, NULL, 0, &counted.op));
	EXPECT_EQ(0, memwait_loop_close(loop));
	EXPECT_EQ(0, counted.calls);
}

TEST_HARNESS_MAIN
