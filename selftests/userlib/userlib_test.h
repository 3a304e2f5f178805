/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Definitions shared by all tests of libmemwait: a loop, shared memory, threads that can be
 * observed sleeping, and a check that a test leaves nothing behind.
 */
#ifndef USERLIB_TEST_H
#define USERLIB_TEST_H

#include "../memwait_test.h"

#include <memwait.h>

#define U32_SIZE	MEMWAIT_SIZE_U32
#define TIME_MAX	INT64_MAX

/*
 * Checks a call that a test needs but does not test. If such a call fails, the test cannot
 * continue.
 */
static inline void must(int err)
{
	if (err)
		abort();
}

/* Returns the time @ms milliseconds from now (in the past if @ms is negative). */
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

/*
 * Returns the word on which waiters for a lock of this kind, or for its gate, sleep. The words of
 * FAIR locks have one byte each.
 */
static inline const void *sleep_word(const void *lock, unsigned int kind)
{
	return (const char *)lock + (kind & MEMWAIT_MUTEX_FAIR ? 1 : 0);
}

ADAPTER(lock_and_unlock, void *mutex, memwait_mutex_lock(mutex) ?: memwait_mutex_unlock(mutex))

/*
 * Runs a function in a child. The child maps the file's page, which this process maps at @here, at
 * another address.
 */
static inline pid_t run_remapped(int file, void *here, int (*function)(void *page))
{
	pid_t pid = fork_child();

	if (!pid) {
		void *page = map_shared(file, 4096);

		munmap(here, 4096);
		_exit(function(page));
	}
	return pid;
}

/* An operation whose callback counts its calls and stores the last result. */
struct counted_op {
	memwait_op_t op;
	int calls;
	int result;
};

/*
 * Returns whether the mutex is reserved for a waiter that has lost it too often (the flag LATE, see
 * lock.c).
 */
static inline bool is_late(const memwait_mutex_t *mutex)
{
	return __atomic_load_n((const char *)mutex + 1, __ATOMIC_RELAXED) & 4;
}

static inline void count_call(memwait_op_t *op, int result, void *data)
{
	struct counted_op *counted = data;

	counted->calls++;
	counted->result = result;
}

/* Returns the initial value of @counted, for use in its declaration. */
static inline struct counted_op counted_by(struct counted_op *counted, memwait_loop_t *loop)
{
	struct counted_op init = { 0 };

	memwait_op_init(&init.op, loop, count_call, counted);
	return init;
}

/* The function of a thread that dispatches the loop. */
static inline int dispatch_all(void *loop)
{
	return memwait_loop_dispatch(loop, MEMWAIT_ALL);
}

static inline int run_loop(void *loop)
{
	return memwait_loop_run(loop, NULL, 0);
}

/*
 * Sleeps in poll() until the loop is readable, and dispatches the loop. Repeats this until @n
 * callbacks have run.
 */
static inline int dispatch_until(memwait_loop_t *loop, const int *calls, int n)
{
	while (*calls < n) {
		struct pollfd pfd = { .fd = memwait_loop_fd(loop), .events = POLLIN };
		int ret;

		if (poll(&pfd, 1, -1) < 0 && errno != EINTR)
			return -errno;
		ret = memwait_loop_dispatch(loop, MEMWAIT_ALL);
		if (ret < 0)
			return ret;
	}
	return 0;
}

#define RACE_MS		10000

/*
 * Returns whether a race continues, which it does for at most @most rounds and RACE_MS, or the
 * milliseconds of the environment variable MEMWAIT_RACE_MS. On a busy machine a round may take a
 * hundred times longer. Rounds are numbered from 0 or 1.
 */
static inline bool more_rounds(int round, int most)
{
	const char *ms = getenv("MEMWAIT_RACE_MS");
	static uint64_t end;

	if (round <= 1)
		end = in_ms(ms ? (uint64_t)atoi(ms) : RACE_MS);
	return round < most && now_ns(CLOCK_MONOTONIC) < end;
}

/* A signal handler that does nothing. */
static inline void ignore_signal(int signal)
{
}

#define SHARED_SIZE	(16 * 4096)

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
	self->shared = shared_page(SHARED_SIZE);
	ASSERT_EQ(0, memwait_loop_new(&self->loop, 0));
}

FIXTURE_TEARDOWN(userlib)
{
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
	EXPECT_EQ(0, memwait_loop_close(self->loop));
	EXPECT_EQ(self->user_waits, mw_await_user_waits(self->fd, self->user_waits));
	munmap(self->shared, SHARED_SIZE);
	close(self->fd);
}

#define USERLIB_TEST(name)	TEST_F_TIMEOUT(userlib, name, 300)

#endif /* USERLIB_TEST_H */
