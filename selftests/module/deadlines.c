// SPDX-License-Identifier: GPL-2.0
/* R30: deadlines of async waits, which the reader ends, together with other events. */
#include "async_test.h"
#include "signal_test.h"

#define FOREVER	MEMWAIT_FOREVER
#define OWNED	(MEMWAIT_SIZE_U64 | MEMWAIT_OWNED)

/* Longer than anything in this file takes, unless it hangs. */
#define LONG_MS	20000

/* Like async_soon(), with CLOCK_REALTIME. */
static int async_soon_realtime(int fd, const uint32_t *word, uint64_t user_data)
{
	uint64_t ms = 5;
	int ret;

	do {
		ret = mw_async(fd, word, 0, now_ns(CLOCK_REALTIME) + ms * NSEC_PER_MSEC,
			       U32 | MEMWAIT_CLOCK_REALTIME, user_data, NULL);
		ms *= 2;
	} while (ret == MEMWAIT_TIMED_OUT);
	return ret;
}

MEMWAIT_TEST(R30_a_notify_passes_over_overdue_realtime_waits)
{
	int fd = memwait_open(O_NONBLOCK);
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	ASSERT_EQ(MEMWAIT_PENDING, async_soon_realtime(fd, self->word, 7));
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 8));
	ASSERT_EQ(1, poll(&pfd, 1, -1));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_COMPLETION(self->fd, 8, MEMWAIT_OK);
	EXPECT_COMPLETION(fd, 7, MEMWAIT_TIMED_OUT);
	close(fd);
}

/*
 * R34: a waiter that is passed over is not responsible for the word. The notify goes to a wait
 * without OWNED, so the queue still watches the owner.
 */
MEMWAIT_TEST(R34_an_overdue_waiter_is_responsible_for_nothing)
{
	int late = memwait_open(O_NONBLOCK), plain = memwait_open(O_NONBLOCK), ret;
	struct pollfd pfd = { .fd = late, .events = POLLIN };
	uint64_t *word = (uint64_t *)self->shared, ms = 5;
	struct memwait_completion done;
	pid_t owner;

	if (mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL) == -EOPNOTSUPP)
		SKIP(return, "this kernel does not report deaths");
	ASSERT_EQ(0, mw_owner(late, MEMWAIT_OWNER_CONTEXT, NULL));
	owner = fork_child();
	if (!owner) {
		uint64_t id;

		if (mw_owner(self->fd, 0, &id))
			_exit(1);
		__atomic_store_n(word, id, __ATOMIC_RELEASE);
		stay();
	}
	sleep_until(__atomic_load_n(word, __ATOMIC_ACQUIRE));
	do {
		ret = mw_async(late, word, *word, in_ms(ms), OWNED, 1, NULL);
		ms *= 2;
	} while (ret == MEMWAIT_TIMED_OUT);
	ASSERT_EQ(MEMWAIT_PENDING, ret);
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(plain, word, *word, FOREVER, MEMWAIT_SIZE_U64, 2,
					    NULL));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, word, *word, FOREVER, OWNED, 3, NULL));
	ASSERT_EQ(1, poll(&pfd, 1, -1));
	EXPECT_EQ(1, mw_notify(self->fd, word, 1, MEMWAIT_SIZE_U64));
	EXPECT_EQ(1, mw_read(plain, &done, 1));
	EXPECT_EQ(MEMWAIT_OK, done.result);

	EXPECT_EQ(128 + SIGKILL, kill_child(owner));
	pfd.fd = self->fd;
	EXPECT_EQ(1, poll(&pfd, 1, LONG_MS));
	EXPECT_COMPLETION(self->fd, 3, MEMWAIT_OWNER_DIED);
	EXPECT_EQ(1, mw_read(late, &done, 1));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
	close(late);
	close(plain);
}

/* Returns whether the thread falls asleep. If the thread has ended, returns false. */
static bool falls_asleep(const pid_t *tid)
{
	uint64_t end = in_ms(LONG_MS);
	pid_t reader;
	char state;

	while (now_ns(CLOCK_MONOTONIC) < end) {
		reader = __atomic_load_n(tid, __ATOMIC_ACQUIRE);
		state = reader ? thread_state(reader) : 'R';
		if (state == 'S' || !state)
			return true;
		before_next_look();
	}
	return false;
}

static void expect_sleep(struct __test_metadata *_metadata, int fd, uint32_t *word)
{
	struct reader r;

	reader_start_into(&r, fd, &r.done, 1);
	EXPECT_TRUE(falls_asleep(&r.runner.tid));
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, word, 9));
	EXPECT_EQ(1, mw_notify(fd, word, 1, U32));
	EXPECT_EQ(1, runner_join(&r.runner));
	EXPECT_EQ(9, r.done.user_data);
}

/*
 * If the wait that had a deadline has ended for another reason, or was read, a reader sleeps
 * instead of spinning.
 */
MEMWAIT_TEST(R30_a_reader_sleeps_when_no_deadline_is_left)
{
	struct memwait_completion done;
	int fd = memwait_open(0);
	uint64_t id;

	ASSERT_EQ(MEMWAIT_PENDING, async_soon(fd, self->word, 5, 1, NULL));
	EXPECT_EQ(1, mw_read(fd, &done, 1));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
	expect_sleep(_metadata, fd, self->word);

	ASSERT_EQ(MEMWAIT_PENDING, async_soon(fd, self->word, 5, 2, &id));
	usleep(20000);		/* the timer may expire now or while the reader runs */
	EXPECT_EQ(0, mw_cancel(fd, id));
	expect_sleep(_metadata, fd, self->word);
	close(fd);
}

/*
 * A deadline has woken a reader, which has a signal pending when it runs. Either the reader ends
 * the wait and returns the completion, or it is interrupted and leaves the wait to the next reader.
 */
MEMWAIT_TEST(R21_a_reader_has_a_deadline_and_a_signal_at_the_same_time)
{
	struct { pid_t tid; int result; } *reader = shared_page(self->page);
	struct memwait_completion done;
	int fd = memwait_open(0), tries, ret;
	uint64_t deadline, ms = 20;
	pid_t pid;

	if (geteuid())
		SKIP(return, "needs root for real-time threads");
	pid = fork_child();
	if (!pid) {
		handle(SIGUSR1, 0);
		if (pin(0))
			_exit(99);
		__atomic_store_n(&reader->tid, getpid(), __ATOMIC_RELEASE);
		__atomic_store_n(&reader->result, mw_read(fd, &done, 1) + 100, __ATOMIC_RELEASE);
		_exit(0);
	}
	ASSERT_TRUE(falls_asleep(&reader->tid));
	ASSERT_EQ(0, pin(20));
	do {
		deadline = in_ms(ms);
		ret = mw_async(fd, self->shared, 0, deadline, U32, 5, NULL);
		ms *= 2;
	} while (ret == MEMWAIT_TIMED_OUT);
	ASSERT_EQ(MEMWAIT_PENDING, ret);
	while (now_ns(CLOCK_MONOTONIC) < deadline + 20 * NSEC_PER_MSEC)
		;
	kill(pid, SIGUSR1);
	ASSERT_EQ(0, pin(0));
	for (tries = 0; tries < LONG_MS; tries++) {
		if (__atomic_load_n(&reader->result, __ATOMIC_ACQUIRE))
			break;
		usleep(1000);
	}
	EXPECT_TRUE(reader->result == 101 || reader->result == 100 - EINTR);
	if (reader->result) {
		EXPECT_EQ(0, child_status(pid));
		if (reader->result == 101) {
			EXPECT_FALSE(mw_readable(fd));
		} else {
			/* The signal may have come before the timer, which fires later. */
			sleep_until(mw_readable(fd));
		}
	} else {
		kill(pid, SIGKILL);
	}
	close(fd);
	munmap(reader, self->page);
}

#define MANY_POLLERS	200
#define MAX_PROCESSORS	8

struct spinner {
	pthread_t thread;
	int cpu, started;
	int *stop;
};

/* Occupies its CPU for a limited time, so that no kernel thread runs on it. */
static void *spin(void *arg)
{
	const struct sched_param first = { .sched_priority = 10 };
	uint64_t end = in_ms(800);
	struct spinner *s = arg;

	bind_to(s->cpu);
	sched_setscheduler(0, SCHED_FIFO, &first);
	__atomic_store_n(&s->started, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(s->stop, __ATOMIC_ACQUIRE) && now_ns(CLOCK_MONOTONIC) < end)
		;
	return NULL;
}

/* Starts spinners. Therefore work that a timer might leave to a kernel thread stays pending. */
static void start_spinners(struct spinner *s, int n, int *stop)
{
	int i;

	for (i = 1; i < n; i++) {
		s[i] = (struct spinner) { .cpu = i, .stop = stop };
		if (pthread_create(&s[i].thread, NULL, spin, &s[i]))
			abort();
		sleep_until(__atomic_load_n(&s[i].started, __ATOMIC_ACQUIRE));
	}
	bind_to(0);
	if (pin(20))
		abort();
}

/*
 * R26: a timer wakes many pollers. Before any kernel thread can run, the context is closed and its
 * memory is reused.
 */
MEMWAIT_TEST(R26_a_context_is_closed_after_its_timer_has_woken_many)
{
	int fds[MANY_POLLERS], epoll = epoll_create1(EPOLL_CLOEXEC), round, stop, i, n;
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct spinner s[MAX_PROCESSORS];
	uint64_t deadline;

	n = sysconf(_SC_NPROCESSORS_ONLN);
	if (geteuid() || n > MAX_PROCESSORS)
		SKIP(return, "needs root and a small number of processors");
	for (round = 0; round < 10; round++) {
		stop = 0;
		fds[0] = memwait_open(O_NONBLOCK);
		for (i = 0; i < MANY_POLLERS; i++) {
			if (i)
				fds[i] = dup(fds[0]);
			ASSERT_LE(0, fds[i]);
			ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event));
		}
		start_spinners(s, n, &stop);
		deadline = in_ms(10);
		mw_async(fds[0], self->shared, 0, deadline, U32, 1, NULL);
		while (now_ns(CLOCK_MONOTONIC) < deadline + 5 * NSEC_PER_MSEC)
			;
		for (i = 0; i < MANY_POLLERS; i++)
			close(fds[i]);
		for (i = 0; i < MANY_POLLERS; i++)
			fds[i] = memwait_open(0);
		__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
		pin(0);
		for (i = 1; i < n; i++)
			pthread_join(s[i].thread, NULL);
		for (i = 0; i < MANY_POLLERS; i++)
			close(fds[i]);
	}
	close(epoll);
}

TEST_HARNESS_MAIN
