// SPDX-License-Identifier: GPL-2.0
/* R22: poll, select and epoll in all their modes. */
#include "memwait_fixture.h"
#include <sys/select.h>

static void complete(struct __test_metadata *_metadata, int fd, uint32_t *word, int n)
{
	int i;

	for (i = 0; i < n; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(fd, word, 0, MEMWAIT_FOREVER, U32, i, NULL));
	ASSERT_EQ(n, mw_notify(fd, word, n, U32));
}

static int epoll_on(int fd, uint32_t events)
{
	struct epoll_event event = { .events = events };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	if (epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) {
		close(epoll);
		return -1;
	}
	return epoll;
}

/* The events that are there now, or 0. */
static uint32_t events_now(int epoll)
{
	struct epoll_event event = { 0 };

	return epoll_wait(epoll, &event, 1, 0) == 1 ? event.events : 0;
}

MEMWAIT_TEST(R22_poll_and_select)
{
	struct pollfd pfd = { .fd = self->fd, .events = POLLIN | POLLRDNORM | POLLOUT | POLLPRI };
	struct timeval none = { 0 };
	struct memwait_completion done;
	fd_set readable;

	EXPECT_EQ(0, poll(&pfd, 1, 0));
	complete(_metadata, self->fd, self->word, 1);
	EXPECT_EQ(1, poll(&pfd, 1, 0));
	EXPECT_EQ(POLLIN | POLLRDNORM, pfd.revents);
	FD_ZERO(&readable);
	FD_SET(self->fd, &readable);
	EXPECT_EQ(1, select(self->fd + 1, &readable, NULL, NULL, &none));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(0, poll(&pfd, 1, 0));
}

MEMWAIT_TEST(R22_level_triggered_until_all_is_read)
{
	int epoll = epoll_on(self->fd, EPOLLIN), i;
	struct memwait_completion done;

	ASSERT_LE(0, epoll);
	EXPECT_EQ(0, events_now(epoll));
	complete(_metadata, self->fd, self->word, 3);
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(EPOLLIN, events_now(epoll));
		EXPECT_EQ(EPOLLIN, events_now(epoll));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	}
	EXPECT_EQ(0, events_now(epoll));
	close(epoll);
}

MEMWAIT_TEST(R22_edge_triggered_a_new_edge_for_each_arrival)
{
	int epoll = epoll_on(self->fd, EPOLLIN | EPOLLET), i;
	struct memwait_completion done[16];

	ASSERT_LE(0, epoll);
	for (i = 0; i < 10; i++) {
		complete(_metadata, self->fd, self->word, 1);
		/* One edge, though nothing has been read yet. */
		EXPECT_EQ(EPOLLIN, events_now(epoll));
		EXPECT_EQ(0, events_now(epoll));
	}
	EXPECT_EQ(10, mw_read(self->fd, done, 16));
	EXPECT_EQ(0, events_now(epoll));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, in_ms(10), U32, 0, NULL));
	struct epoll_event event;

	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 100000));
	close(epoll);
}

MEMWAIT_TEST(R22_edge_for_what_is_there_already)
{
	int epoll;

	complete(_metadata, self->fd, self->word, 1);
	epoll = epoll_on(self->fd, EPOLLIN | EPOLLET);
	EXPECT_EQ(EPOLLIN, events_now(epoll));
	EXPECT_EQ(0, events_now(epoll));
	close(epoll);
}

MEMWAIT_TEST(R22_oneshot)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT };
	int epoll = epoll_on(self->fd, EPOLLIN | EPOLLONESHOT);

	complete(_metadata, self->fd, self->word, 1);
	EXPECT_EQ(EPOLLIN, events_now(epoll));
	complete(_metadata, self->fd, self->word, 1);
	EXPECT_EQ(0, events_now(epoll));
	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_MOD, self->fd, &event));
	EXPECT_EQ(EPOLLIN, events_now(epoll));
	close(epoll);
}

MEMWAIT_TEST(R22_nested_epoll)
{
	int inner = epoll_on(self->fd, EPOLLIN), outer = epoll_on(inner, EPOLLIN);

	ASSERT_LE(0, outer);
	EXPECT_EQ(0, events_now(outer));
	complete(_metadata, self->fd, self->word, 1);
	EXPECT_EQ(EPOLLIN, events_now(outer));
	close(outer);
	close(inner);
}

MEMWAIT_TEST(R22_a_duplicate_is_the_same_context)
{
	int duplicate = dup(self->fd), epoll = epoll_on(duplicate, EPOLLIN);
	struct memwait_completion done;

	complete(_metadata, self->fd, self->word, 1);
	EXPECT_EQ(EPOLLIN, events_now(epoll));
	EXPECT_EQ(1, mw_read(duplicate, &done, 1));
	EXPECT_FALSE(mw_readable(self->fd));
	close(duplicate);
	/* epoll goes on as long as the context is open. */
	complete(_metadata, self->fd, self->word, 1);
	EXPECT_EQ(EPOLLIN, events_now(epoll));
	close(epoll);
}

struct sleeper {
	pthread_t thread;
	int epoll, poll_fd, result;
	pid_t tid;
	int done;
};

static void *sleep_in_poll(void *arg)
{
	struct sleeper *s = arg;
	struct epoll_event event;
	struct pollfd pfd = { .fd = s->poll_fd, .events = POLLIN };

	__atomic_store_n(&s->tid, gettid(), __ATOMIC_RELEASE);
	if (s->epoll >= 0)
		s->result = epoll_wait(s->epoll, &event, 1, 100000);
	else
		s->result = poll(&pfd, 1, 100000);
	__atomic_store_n(&s->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void sleeper_start(struct sleeper *s, int epoll, int poll_fd)
{
	memset(s, 0, sizeof(*s));
	s->epoll = epoll;
	s->poll_fd = poll_fd;
	pthread_create(&s->thread, NULL, sleep_in_poll, s);
	while (!__atomic_load_n(&s->tid, __ATOMIC_ACQUIRE))
		sched_yield();
	await_asleep(s->tid);
}

static int awake(struct sleeper *s, int n)
{
	int i, count = 0;

	for (i = 0; i < n; i++)
		count += __atomic_load_n(&s[i].done, __ATOMIC_ACQUIRE);
	return count;
}

MEMWAIT_TEST(R22_sleepers_in_poll_and_epoll_are_woken)
{
	int epoll = epoll_on(self->fd, EPOLLIN), i;
	struct sleeper s[4];

	for (i = 0; i < 4; i++)
		sleeper_start(&s[i], i % 2 ? epoll : -1, self->fd);
	EXPECT_EQ(0, awake(s, 4));
	complete(_metadata, self->fd, self->word, 1);
	for (i = 0; i < 4; i++) {
		pthread_join(s[i].thread, NULL);
		EXPECT_EQ(1, s[i].result);
	}
	close(epoll);
}

MEMWAIT_TEST(R22_exclusive_wakes_one_set_and_loses_nothing)
{
	struct memwait_completion done[4];
	struct sleeper s[3];
	int epolls[3], i, n, left = 3;

	for (i = 0; i < 3; i++) {
		epolls[i] = epoll_on(self->fd, EPOLLIN | EPOLLEXCLUSIVE);
		ASSERT_LE(0, epolls[i]);
		sleeper_start(&s[i], epolls[i], -1);
	}
	while (left) {
		complete(_metadata, self->fd, self->word, 1);
		while ((n = awake(s, 3)) < 3 - left + 1)
			sched_yield();
		/* Nobody else has got up for this one, asleep as they were. */
		EXPECT_EQ(3 - left + 1, n);
		EXPECT_EQ(1, mw_read(self->fd, done, 4));
		left = 3 - n;
	}
	for (i = 0; i < 3; i++) {
		pthread_join(s[i].thread, NULL);
		EXPECT_EQ(1, s[i].result);
		close(epolls[i]);
	}
}

MEMWAIT_TEST(R22_one_notify_of_many_waits_loses_no_edge)
{
	int epoll = epoll_on(self->fd, EPOLLIN | EPOLLET), round, i, n;
	struct memwait_completion done[64];

	for (round = 0; round < 50; round++) {
		for (i = 0; i < 50; i++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared + i % 7, 0,
							    MEMWAIT_FOREVER, U32, i, NULL));
		for (i = n = 0; i < 7; i++)
			n += mw_notify(self->fd, self->shared + i, MEMWAIT_ALL, U32);
		EXPECT_EQ(50, n);
		EXPECT_EQ(EPOLLIN, events_now(epoll));
		EXPECT_EQ(50, mw_read(self->fd, done, 64));
		EXPECT_EQ(0, events_now(epoll));
	}
	close(epoll);
}

/* More contexts than one notify remembers, each of which must have its edge. */
MEMWAIT_TEST(R22_one_notify_of_many_contexts_loses_no_edge)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC), fds[40], i, j, round;
	struct epoll_event events[64];

	for (i = 0; i < 40; i++) {
		fds[i] = memwait_open(O_NONBLOCK);
		ASSERT_LE(0, fds[i]);
		events[0] = (struct epoll_event) { .events = EPOLLIN | EPOLLET };
		ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &events[0]));
	}
	for (round = 0; round < 3; round++) {
		for (j = 0; j < 2; j++)
			for (i = 0; i < 40; i++)
				ASSERT_EQ(MEMWAIT_PENDING, mw_async(fds[i], self->shared, 0,
								    MEMWAIT_FOREVER, U32, j, NULL));
		EXPECT_EQ(80, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
		EXPECT_EQ(40, epoll_wait(epoll, events, 64, 0));
		EXPECT_EQ(0, epoll_wait(epoll, events, 64, 0));
	}
	for (i = 0; i < 40; i++)
		close(fds[i]);
	close(epoll);
}

struct loop {
	pthread_t thread;
	int fd, other;
	uint32_t *word;
	long rounds;
};

/* Notifies whenever there is a waiter; what it woke must come out of the loop's epoll. */
static void *notify_rounds(void *arg)
{
	struct loop *l = arg;
	long i = 0;

	while (i < l->rounds)
		i += mw_notify(l->other, l->word, 1, U32);
	return NULL;
}

MEMWAIT_TEST(R22_an_edge_triggered_loop_never_sleeps_on_a_completion)
{
	struct loop l = { .fd = self->fd, .other = memwait_open(0), .word = self->shared,
			  .rounds = 3000 };
	int epoll = epoll_on(self->fd, EPOLLIN | EPOLLET), n;
	struct memwait_completion done[4];
	struct epoll_event event;
	long seen = 0;

	ASSERT_EQ(MEMWAIT_PENDING, mw_async(l.fd, l.word, 0, MEMWAIT_FOREVER, U32, 0, NULL));
	ASSERT_EQ(0, pthread_create(&l.thread, NULL, notify_rounds, &l));
	while (seen < l.rounds) {
		/* A lost edge would end in the time-out. */
		ASSERT_EQ(1, epoll_wait(epoll, &event, 1, 60000));
		while ((n = mw_read(self->fd, done, 4)) > 0) {
			ASSERT_EQ(1, n);
			if (++seen < l.rounds)
				ASSERT_EQ(MEMWAIT_PENDING, mw_async(l.fd, l.word, 0,
								    MEMWAIT_FOREVER, U32, 0, NULL));
		}
	}
	pthread_join(l.thread, NULL);
	close(l.other);
	close(epoll);
}

TEST_HARNESS_MAIN
