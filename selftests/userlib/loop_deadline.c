// SPDX-License-Identifier: GPL-2.0
/* Deadlines of memwait_loop_run(). */
#include "refuse_test.h"

static int arm(struct counted_op *counted, memwait_loop_t *loop, const volatile void *word)
{
	int err = memwait_op_init(&counted->op, loop, count_call, counted);

	return err ? err : memwait_wait32_async(word, 0, NULL, 0, &counted->op);
}

static struct timespec time_of(uint64_t ns)
{
	return (struct timespec){ .tv_sec = ns / NSEC_PER_SEC, .tv_nsec = ns % NSEC_PER_SEC };
}

/* A run in a thread, and the time when it returned. */
struct timed_run {
	memwait_loop_t *loop;
	uint64_t deadline, end;		/* on CLOCK_MONOTONIC */
};

static int run_until(void *arg)
{
	struct timed_run *timed = arg;
	struct timespec deadline = time_of(timed->deadline);
	int ret = memwait_loop_run(timed->loop, &deadline, 0);

	timed->end = now_ns(CLOCK_MONOTONIC);
	return ret;
}

#define HOUR	(3600ULL * NSEC_PER_SEC)

USERLIB_TEST(R4_a_run_ends_at_its_deadline)
{
	const unsigned int flags[] = { 0, MEMWAIT_CLOCK_REALTIME, MEMWAIT_RELATIVE };
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	struct timespec timeout;
	uint64_t deadline, waits;
	clockid_t clock;
	int i;

	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	waits = mw_user_waits(self->fd);
	for (i = 0; i < (int)ARRAY_SIZE(flags); i++) {
		clock = flags[i] == MEMWAIT_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
		deadline = now_ns(clock) + 50 * NSEC_PER_MSEC;
		timeout = time_of(flags[i] == MEMWAIT_RELATIVE ? 50 * NSEC_PER_MSEC : deadline);
		errno = EXDEV;
		ASSERT_EQ(MEMWAIT_TIMED_OUT, memwait_loop_run(self->loop, &timeout, flags[i]));
		EXPECT_EQ(EXDEV, errno);
		EXPECT_LE(deadline, now_ns(clock));
		EXPECT_EQ(1, memwait_loop_pending(self->loop));
		/*
		 * The deadline has no further effect: the descriptor is not readable, and the
		 * kernel has no wait.
		 */
		EXPECT_FALSE(mw_readable(memwait_loop_fd(self->loop)));
		EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_EQ(waits, mw_user_waits(self->fd));
	}
	EXPECT_EQ(0, counted.calls);
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	timeout = time_of(now_ns(CLOCK_MONOTONIC) + HOUR);
	EXPECT_EQ(0, memwait_loop_run(self->loop, &timeout, 0));
	EXPECT_EQ(1, counted.calls);
}

USERLIB_TEST(R4_a_deadline_that_has_passed_still_dispatches)
{
	const struct { struct timespec timeout; unsigned int flags; } past[] = {
		{ { 0, 0 }, 0 }, { { 0, 1 }, 0 }, { { -1, 0 }, 0 },
		{ { 0, 0 }, MEMWAIT_CLOCK_REALTIME }, { { -1, 0 }, MEMWAIT_CLOCK_REALTIME },
		{ { 0, 0 }, MEMWAIT_RELATIVE }, { { -1, 0 }, MEMWAIT_RELATIVE },
	};
	struct counted_op counted, behind = { 0 };
	uint32_t *word = self->shared;
	int i, others;

	for (i = 0; i < (int)ARRAY_SIZE(past); i++) {
		for (others = 0; others < 2; others++) {
			counted = (struct counted_op){ 0 };
			ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
			if (others)
				ASSERT_EQ(MEMWAIT_PENDING, arm(&behind, self->loop, word));
			ASSERT_EQ(1, memwait_notify(word, 1, 0));
			EXPECT_EQ(others ? MEMWAIT_TIMED_OUT : 0,
				  memwait_loop_run(self->loop, &past[i].timeout, past[i].flags));
			EXPECT_EQ(1, counted.calls);
			if (others)
				EXPECT_EQ(0, memwait_op_cancel(&behind.op));
		}
	}
	EXPECT_EQ(0, behind.calls);
	EXPECT_EQ(0, memwait_loop_run(self->loop, &past[0].timeout, 0));
}

USERLIB_TEST(R2_a_run_rejects_unknown_flags_and_checks_the_time_if_needed)
{
	const unsigned int known = MEMWAIT_CLOCK_REALTIME | MEMWAIT_RELATIVE;
	const struct timespec invalid[] = { { 1, -1 }, { 1, 1000000000 }, { INT64_MAX, -1 } };
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	int bit, i;

	for (bit = 0; bit < 32; bit++) {
		if (!(1u << bit & known))
			EXPECT_EQ(-EINVAL, memwait_loop_run(self->loop, NULL, 1u << bit));
	}
	EXPECT_EQ(-EINVAL, memwait_loop_run(self->loop, NULL, known));
	EXPECT_EQ(-EINVAL, memwait_loop_run(NULL, &invalid[0], 0));
	EXPECT_EQ(0, memwait_loop_run(self->loop, NULL, MEMWAIT_CLOCK_REALTIME));
	for (i = 0; i < (int)ARRAY_SIZE(invalid); i++) {
		EXPECT_EQ(0, memwait_loop_run(self->loop, &invalid[i], 0));
		ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
		EXPECT_EQ(-EINVAL, memwait_loop_run(self->loop, &invalid[i], 0));
		EXPECT_EQ(-EINVAL, memwait_loop_run(self->loop, &invalid[i], MEMWAIT_RELATIVE));
		ASSERT_EQ(1, memwait_notify(word, 1, 0));
		EXPECT_EQ(0, memwait_loop_run(self->loop, &invalid[i], 0));
	}
	EXPECT_EQ(3, counted.calls);
}

static int is_enough;

/*
 * The callback begins its operation again and completes it before it returns. Therefore there is
 * always a completion.
 */
static void begin_again(memwait_op_t *op, int result, void *data)
{
	if (__atomic_load_n(&is_enough, __ATOMIC_RELAXED))
		return;
	must(memwait_wait32_async(data, 0, NULL, 0, op) != MEMWAIT_PENDING);
	must(memwait_notify(data, 1, 0) != 1);
}

/* There are more completions than a single read returns. Another thread may read some of them. */
USERLIB_TEST(R4_a_deadline_holds_however_many_completions_come)
{
	struct timed_run timed = { .loop = self->loop };
	uint32_t *word = self->shared;
	struct runner runner;
	memwait_op_t op[100];
	int i, others;

	for (others = 0; others < 2; others++) {
		__atomic_store_n(&is_enough, 0, __ATOMIC_RELAXED);
		for (i = 0; i < 100; i++) {
			memwait_op_init(&op[i], self->loop, begin_again, word);
			ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &op[i]));
		}
		ASSERT_EQ(100, memwait_notify(word, MEMWAIT_ALL, 0));
		if (others)
			runner_start(&runner, run_loop, self->loop);
		timed.deadline = in_ms(100);
		EXPECT_EQ(MEMWAIT_TIMED_OUT, run_until(&timed));
		EXPECT_LE(timed.deadline, timed.end);
		__atomic_store_n(&is_enough, 1, __ATOMIC_RELAXED);
		EXPECT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
		if (others)
			EXPECT_EQ(0, runner_join(&runner));
	}
}

/* A run ends because of a stop, a completion or a cancel. */
USERLIB_TEST(a_run_ends_before_its_deadline)
{
	struct timed_run timed = { .loop = self->loop, .deadline = in_ms(HOUR / NSEC_PER_MSEC) };
	uint32_t *word = self->shared;
	struct counted_op counted;
	struct runner runner;
	int how;

	for (how = 0; how < 3; how++) {
		counted = (struct counted_op){ 0 };
		ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
		runner_start(&runner, run_until, &timed);
		runner_await_asleep(&runner);
		if (how == 0) {
			EXPECT_EQ(0, memwait_loop_stop(self->loop));
		} else if (how == 1) {
			EXPECT_EQ(1, memwait_notify(word, 1, 0));
		} else {
			EXPECT_EQ(0, memwait_op_cancel(&counted.op));
		}
		EXPECT_EQ(0, runner_join(&runner));
		EXPECT_EQ(how == 1, counted.calls);
		if (how == 0)
			EXPECT_EQ(0, memwait_op_cancel(&counted.op));
		EXPECT_FALSE(mw_readable(memwait_loop_fd(self->loop)));
	}
}

USERLIB_TEST(R6_a_signal_does_not_end_a_run_with_a_deadline)
{
	struct timed_run timed = { .loop = self->loop };
	struct sigaction action = { .sa_handler = ignore_signal };
	struct counted_op counted = { 0 };
	struct runner runner;

	ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, self->shared));
	timed.deadline = in_ms(300);
	runner_start(&runner, run_until, &timed);
	while (!runner_is_done(&runner)) {
		ASSERT_EQ(0, pthread_kill(runner.thread, SIGUSR1));
		usleep(1000);
	}
	EXPECT_EQ(MEMWAIT_TIMED_OUT, runner_join(&runner));
	EXPECT_LE(timed.deadline, timed.end);
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
}

/* The clock is set to a time after the deadline. */
USERLIB_TEST(R4_a_run_follows_the_steps_of_its_clock)
{
	struct timespec then = time_of(now_ns(CLOCK_REALTIME) + HOUR), now;
	struct counted_op counted = { 0 };
	pid_t child;

	child = fork_child();
	if (!child) {
		must(memwait_loop_new(&self->loop, 0));
		must(arm(&counted, self->loop, self->shared) != MEMWAIT_PENDING);
		_exit(memwait_loop_run(self->loop, &then, MEMWAIT_CLOCK_REALTIME));
	}
	await_waiters(self->fd, self->shared, U32_SIZE, 1);
	await_asleep(child);
	ASSERT_EQ(0, clock_gettime(CLOCK_REALTIME, &now));
	now.tv_sec += 3601;
	if (clock_settime(CLOCK_REALTIME, &now)) {
		kill(child, SIGKILL);
		child_status(child);
		SKIP(return, "the clock cannot be set");
	}
	EXPECT_EQ(MEMWAIT_TIMED_OUT, child_status(child));
	now.tv_sec -= 3601;
	clock_settime(CLOCK_REALTIME, &now);
}

/*
 * Several threads run the loop. No run misses its own deadline, whichever thread reads the timeout,
 * and no run ends at the deadline of another run.
 */
USERLIB_TEST(R4_each_run_has_its_own_deadline)
{
	struct timed_run timed[3];
	struct counted_op counted = { 0 };
	struct runner runners[3], forever;
	uint32_t *word = self->shared;
	int i;

	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	runner_start(&forever, run_loop, self->loop);
	for (i = 0; i < 3; i++) {
		timed[i].loop = self->loop;
		timed[i].deadline = in_ms(100 * (3 - i));
		runner_start(&runners[i], run_until, &timed[i]);
	}
	for (i = 2; i >= 0; i--) {
		EXPECT_EQ(MEMWAIT_TIMED_OUT, runner_join(&runners[i]));
		EXPECT_LE(timed[i].deadline, timed[i].end);
	}
	EXPECT_FALSE(runner_is_done(&forever));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, runner_join(&forever));
	EXPECT_EQ(1, counted.calls);
}

/* The run sleeps while this thread continuously reads all completions. */
USERLIB_TEST(R4_a_deadline_ends_a_run_although_another_thread_dispatches)
{
	struct timed_run timed = { .loop = self->loop, .deadline = in_ms(200) };
	struct counted_op counted = { 0 };
	struct runner runner;

	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, self->shared));
	runner_start(&runner, run_until, &timed);
	runner_await_asleep(&runner);
	while (!runner_is_done(&runner)) {
		ASSERT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		sched_yield();
	}
	EXPECT_EQ(MEMWAIT_TIMED_OUT, runner_join(&runner));
	EXPECT_LE(timed.deadline, timed.end);
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_FALSE(mw_readable(memwait_loop_fd(self->loop)));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
}

#define STACK_SIZE	(256 * 1024)

/*
 * The stack of a run is ordinary memory. A late notify of an address in this stack does not end the
 * run early.
 */
USERLIB_TEST(L14_a_late_notify_does_not_end_a_run)
{
	struct memwait_notify *notifies = calloc(STACK_SIZE / 4, sizeof(*notifies));
	struct timed_run timed = { .loop = self->loop, .deadline = in_ms(500) };
	unsigned int *woken = calloc(STACK_SIZE / 4, sizeof(*woken));
	struct counted_op counted = { 0 };
	struct runner runner = { .function = run_until, .arg = &timed, .begin = 1 };
	unsigned int i, total = 0;
	pthread_attr_t attr;
	char *stack;

	stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, stack);
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, self->shared));
	pthread_attr_init(&attr);
	ASSERT_EQ(0, pthread_attr_setstack(&attr, stack, STACK_SIZE));
	ASSERT_EQ(0, pthread_create(&runner.thread, &attr, runner_main, &runner));
	spin_until(__atomic_load_n(&runner.tid, __ATOMIC_ACQUIRE));
	runner_await_asleep(&runner);
	for (i = 0; i < STACK_SIZE / 4; i++) {
		notifies[i] = (struct memwait_notify){
			.addr = (uintptr_t)stack + 4 * i, .count = 1, .flags = MEMWAIT_PRIVATE,
		};
	}
	ASSERT_EQ(STACK_SIZE / 4, memwait_notify_many(notifies, STACK_SIZE / 4, woken));
	for (i = 0; i < STACK_SIZE / 4; i++)
		total += woken[i];
	/* The run has no waiter in its stack. */
	EXPECT_EQ(0, total);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, runner_join(&runner));
	EXPECT_LE(timed.deadline, timed.end);
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	munmap(stack, STACK_SIZE);
	free(notifies);
	free(woken);
}

USERLIB_TEST(L5_a_cancelled_run_leaves_no_deadline_behind)
{
	struct timed_run timed = { .loop = self->loop, .deadline = in_ms(HOUR / NSEC_PER_MSEC) };
	struct counted_op counted = { 0 };
	struct runner runner;
	uint64_t waits;

	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, self->shared));
	waits = mw_user_waits(self->fd);
	runner_start(&runner, run_until, &timed);
	runner_await_asleep(&runner);
	EXPECT_EQ(waits, mw_user_waits(self->fd));
	ASSERT_EQ(0, pthread_cancel(runner.thread));
	pthread_join(runner.thread, NULL);
	EXPECT_FALSE(runner_is_done(&runner));
	EXPECT_EQ(waits, mw_user_waits(self->fd));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
}

/* The deadline has an effect even at the limit of waits, because a deadline is not a wait. */
USERLIB_TEST(R4_a_run_has_a_deadline_at_the_limit_of_waits)
{
	struct counted_op counted = { 0 }, behind = { 0 };
	struct timespec timeout = time_of(in_ms(10));
	uint32_t *word = self->shared;

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	ASSERT_EQ(MEMWAIT_PENDING, arm(&behind, self->loop, word));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	ASSERT_EQ(0, refuse_ioctl(MEMWAIT_IOC_WAIT_ASYNC, ENOSPC));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_loop_run(self->loop, &timeout, 0));
	EXPECT_EQ(1, counted.calls);
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	timeout = time_of(now_ns(CLOCK_MONOTONIC) + HOUR);
	EXPECT_EQ(0, memwait_loop_run(self->loop, &timeout, 0));
	EXPECT_EQ(1, behind.calls);
}

static void fork_now(memwait_op_t *op, int result, void *data)
{
	(void)op;
	(void)result;
	*(pid_t *)data = fork_child();
}

/* The deadline belongs to the parent, and the child must not change it. */
USERLIB_TEST(L1_a_callback_of_a_run_with_a_deadline_may_fork)
{
	struct timespec timeout = time_of(500 * NSEC_PER_MSEC);
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	memwait_op_t forking;
	pid_t child;
	int ret;

	memwait_op_init(&forking, self->loop, fork_now, &child);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &forking));
	ASSERT_EQ(MEMWAIT_PENDING, arm(&counted, self->loop, word));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	ret = memwait_loop_run(self->loop, &timeout, MEMWAIT_RELATIVE);
	if (!child)
		_exit(ret != -EPERM || memwait_loop_close(self->loop));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, ret);
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
}

TEST_HARNESS_MAIN
