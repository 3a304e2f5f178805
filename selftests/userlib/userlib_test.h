/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What every test of libmemwait needs: a loop, memory that processes share, threads that one can
 * see sleeping, and the check that a test leaves nothing behind.
 */
#ifndef USERLIB_TEST_H
#define USERLIB_TEST_H

#include "../memwait_test.h"

#include <memwait.h>

#define U32_SIZE	MEMWAIT_SIZE_U32
#define TIME_MAX	INT64_MAX

/* Of what a test builds on and does not test: it must not go on without it. */
static inline void must(int err)
{
	if (err)
		abort();
}

/* A time that many milliseconds from now, or before it. */
static inline struct timespec in_time(clockid_t clock, long ms)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	ts.tv_sec += ms / 1000;
	ts.tv_nsec += ms % 1000 * 1000000;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_sec++;
		ts.tv_nsec -= 1000000000;
	} else if (ts.tv_nsec < 0) {
		ts.tv_sec--;
		ts.tv_nsec += 1000000000;
	}
	return ts;
}

/* Spins, and lets the others run where there is one processor. */
static inline void await_begin(const int *begin)
{
	unsigned int looks = 0;

	while (!__atomic_load_n(begin, __ATOMIC_ACQUIRE))
		if (has_one_processor() && !(++looks % 1024))
			sched_yield();
}

/* A thread that runs one function and keeps what it returned. */
struct runner {
	pthread_t thread;
	int (*function)(void *arg);
	void *arg;
	int begin;		/* it is to run the function */
	pid_t tid;		/* set by the thread before it begins */
	int result;		/* valid when done */
	int done;
};

static inline void *runner_main(void *arg)
{
	struct runner *runner = arg;

	__atomic_store_n(&runner->tid, gettid(), __ATOMIC_RELEASE);
	await_begin(&runner->begin);
	runner->result = runner->function(runner->arg);
	__atomic_store_n(&runner->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static inline void runner_create(struct runner *runner, int (*function)(void *arg), void *arg,
				 int begin)
{
	runner->function = function;
	runner->arg = arg;
	runner->begin = begin;
	runner->tid = 0;
	runner->done = 0;
	if (pthread_create(&runner->thread, NULL, runner_main, runner))
		abort();
	spin_until(__atomic_load_n(&runner->tid, __ATOMIC_ACQUIRE));
}

/* A function that takes a pointer, to whatever: all pointers are passed alike. */
#define CALL(function)		((int (*)(void *))(function))

/* The same, and the compiler sees that it takes @arg. */
#define CALL_WITH(function, arg)	((void)sizeof((function)(arg)), CALL(function))

#define runner_start(runner, function, arg)	\
	runner_create(runner, CALL_WITH(function, arg), arg, 1)

static inline void runner_release(struct runner *runner)
{
	__atomic_store_n(&runner->begin, 1, __ATOMIC_RELEASE);
}

/* For a race with the caller: both are running, and go on together. */
#define runner_race(runner, function, arg)					\
do {										\
	runner_create(runner, CALL_WITH(function, arg), arg, 0);		\
	runner_release(runner);							\
} while (0)

/*
 * A moment, from nothing to some hundred microseconds, as the rounds go: for races that are to come
 * out one way and the other.
 */
static inline void linger(int round)
{
	volatile int i;

	for (i = 0; i < 1 << round % 19; i++)
		;
}

/* Returns when the thread sleeps, which it does nowhere but in what is tested; or is done. */
static inline void runner_await_asleep(struct runner *runner)
{
	await_asleep(runner->tid);
}

static inline bool runner_is_done(struct runner *runner)
{
	return __atomic_load_n(&runner->done, __ATOMIC_ACQUIRE);
}

static inline int runner_join(struct runner *runner)
{
	pthread_join(runner->thread, NULL);
	return runner->result;
}

static inline int run_elsewhere(int (*function)(void *arg), void *arg)
{
	struct runner runner;

	runner_create(&runner, function, arg, 1);
	return runner_join(&runner);
}

/* In another thread. */
#define elsewhere(function, arg)	run_elsewhere(CALL_WITH(function, arg), arg)

/* An operation whose callback counts its calls and keeps the last result. */
struct counted_op {
	memwait_op_t op;
	int calls;
	int result;
};

static inline void count_call(memwait_op_t *op, int result, void *data)
{
	struct counted_op *counted = data;

	(void)op;
	counted->calls++;
	counted->result = result;
}

/* What @counted is initialised with, where it is declared. */
static inline struct counted_op counted_by(struct counted_op *counted, memwait_loop_t *loop)
{
	struct counted_op init = { 0 };

	memwait_op_init(&init.op, loop, count_call, counted);
	return init;
}

/* Sleeps in poll() until the loop has something, and dispatches; until that many callbacks ran. */
static inline int dispatch_until(memwait_loop_t *loop, const int *calls, int n)
{
	while (*calls < n) {
		struct pollfd pfd = { .fd = memwait_loop_fd(loop), .events = POLLIN };
		int ret;

		if (poll(&pfd, 1, -1) < 0 && errno != EINTR)
			return -errno;
		ret = memwait_loop_dispatch(loop);
		if (ret < 0)
			return ret;
	}
	return 0;
}

/*
 * Binds to processor 0; with a priority, nobody else runs there while this does: threads that were
 * started with priority 0 have been woken, but not left poll().
 */
static inline int pin(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	return bind_to(0) || sched_setscheduler(0, priority ? SCHED_FIFO : SCHED_OTHER, &param);
}

/* A signal handler. */
static inline void nothing(int signal)
{
	(void)signal;
}

FIXTURE(userlib)
{
	memwait_loop_t *loop;
	void *shared;		/* zeroed pages, inherited over fork */
	int fd;
	uint64_t user_waits;
};

FIXTURE_SETUP(userlib)
{
	self->fd = open_device(0);
	self->user_waits = mw_user_waits(self->fd);
	self->shared = shared_page(16 * 4096);
	ASSERT_EQ(0, memwait_loop_new(&self->loop));
}

FIXTURE_TEARDOWN(userlib)
{
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
	EXPECT_EQ(0, memwait_loop_close(self->loop));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
	munmap(self->shared, 16 * 4096);
	close(self->fd);
}

#define USERLIB_TEST(name)	TEST_F_TIMEOUT(userlib, name, 300)

#endif /* USERLIB_TEST_H */
