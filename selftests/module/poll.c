// SPDX-License-Identifier: GPL-2.0
/* R22: poll, select and epoll, in all modes. */
#include "async_test.h"
#include "signal_test.h"
#include <sys/select.h>

static void complete(struct __test_metadata *_metadata, int fd, uint32_t *word, int n)
{
	int i;

	for (i = 0; i < n; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, word, i));
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

/* Returns the current events, or 0. */
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
		/* There is only one edge, although nothing has been read yet. */
		EXPECT_EQ(EPOLLIN, events_now(epoll));
		EXPECT_EQ(0, events_now(epoll));
	}
	EXPECT_EQ(10, mw_read(self->fd, done, 16));
	EXPECT_EQ(0, events_now(epoll));
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 10, 0, NULL));
	struct epoll_event event;

	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, poll_patience(100)));
	EXPECT_EQ(1, mw_read(self->fd, done, 16));
	close(epoll);
}

/* Returns whether an edge came. */
static bool await_edge(int epoll)
{
	const uint64_t end = patience(10);
	struct epoll_event event;
	int ret;

	do
		ret = epoll_wait(epoll, &event, 1, 100);
	while (ret != 1 && in_ms(0) < end);
	return ret == 1;
}

/*
 * If a read returns fewer records than fit, and fewer than 16, nothing is left to read. Therefore a
 * deadline that passes during the read either is read or produces its own edge, whether or not a
 * signal arrives.
 */
MEMWAIT_TEST(R22_deadlines_that_expire_during_a_read_produce_an_edge)
{
	int epoll = epoll_on(self->fd, EPOLLIN | EPOLLET), round, i, n, got, pending;
	struct memwait_completion done[64];
	struct signal_storm storm;
	uint64_t base;

	ASSERT_LE(0, epoll);
	handle(SIGUSR1, 0);
	for (round = 0; round < LOAD(1000, 200); round++) {
		if (round == LOAD(500, 100))
			ASSERT_EQ(0, signal_storm_start(&storm, pthread_self(), pthread_self()));
		base = in_ms(1);
		for (i = 0, pending = 0; i < 8; i++)
			pending += mw_async(self->fd, self->word, 0, base + i * round * 100ULL,
					    U32, i, NULL) == MEMWAIT_PENDING;
		for (got = 0; got < pending;) {
			ASSERT_TRUE(await_edge(epoll));
			do {
				n = mw_read(self->fd, done, 64);
				got += n > 0 ? n : 0;
			} while (n >= 16);
		}
	}
	signal_storm_stop(&storm);
	close(epoll);
}

/*
 * The timer still fires, but the deadline is not reported if its wait has ended for another reason.
 */
MEMWAIT_TEST(R22_the_deadline_of_an_ended_wait_is_not_reported)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct pollfd pfd = { .fd = self->fd, .events = POLLIN };
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct memwait_completion done;
	uint64_t id, deadline;
	int ret;

	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event));
	do {
		deadline = in_ms(50);
		ret = mw_async(self->fd, self->word, 0, deadline, U32, 1, &id);
	} while (ret == MEMWAIT_TIMED_OUT);
	ASSERT_EQ(MEMWAIT_PENDING, ret);
	if (mw_cancel(self->fd, id)) {
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		SKIP(return, "too slow for the cancel to come before the deadline");
	}
	EXPECT_EQ(0, poll(&pfd, 1, 200));
	EXPECT_EQ(0, epoll_wait(epoll, &event, 1, 200));
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, &done, 1));
	close(epoll);
}

MEMWAIT_TEST(R22_edge_for_an_existing_completion)
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
	/* epoll reports the context as long as it is open. */
	complete(_metadata, self->fd, self->word, 1);
	EXPECT_EQ(EPOLLIN, events_now(epoll));
	close(epoll);
}

struct sleeper {
	struct runner runner;
	int epoll;
	struct pollfd pfd;	/* used if @epoll is not */
};

static int sleep_in_poll(struct sleeper *s)
{
	struct epoll_event event;

	if (s->epoll >= 0)
		return epoll_wait(s->epoll, &event, 1, poll_patience(100));
	return poll(&s->pfd, 1, poll_patience(100));
}

static void sleeper_start(struct sleeper *s, int epoll, int poll_fd)
{
	s->epoll = epoll;
	s->pfd = (struct pollfd) { .fd = poll_fd, .events = POLLIN };
	runner_start(&s->runner, sleep_in_poll, s);
	runner_await_asleep(&s->runner);
}

static int awake(struct sleeper *s, int n)
{
	int i, count = 0;

	for (i = 0; i < n; i++)
		count += runner_is_done(&s[i].runner);
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
	for (i = 0; i < 4; i++)
		EXPECT_EQ(1, runner_join(&s[i].runner));
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
		spin_until((n = awake(s, 3)) >= 3 - left + 1);
		/* All sleepers slept, so this completion must have woken no other sleeper. */
		EXPECT_EQ(3 - left + 1, n);
		EXPECT_EQ(1, mw_read(self->fd, done, 4));
		left = 3 - n;
	}
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(1, runner_join(&s[i].runner));
		close(epolls[i]);
	}
}

MEMWAIT_TEST(R22_one_notify_of_many_waits_loses_no_edge)
{
	int epoll = epoll_on(self->fd, EPOLLIN | EPOLLET), round, i, n;
	struct memwait_completion done[64];

	for (round = 0; round < 50; round++) {
		for (i = 0; i < 50; i++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared + i % 7, i));
		for (i = n = 0; i < 7; i++)
			n += mw_notify(self->fd, self->shared + i, MEMWAIT_ALL, U32);
		EXPECT_EQ(50, n);
		EXPECT_EQ(EPOLLIN, events_now(epoll));
		EXPECT_EQ(50, mw_read(self->fd, done, 64));
		EXPECT_EQ(0, events_now(epoll));
	}
	close(epoll);
}

/* There are more contexts than one step of a notify can collect. Each of them must get an edge. */
MEMWAIT_TEST(R22_one_notify_of_many_contexts_loses_no_edge)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC), fds[40], i, j, round;
	struct epoll_event events[64];

	for (i = 0; i < 40; i++) {
		fds[i] = open_device(O_NONBLOCK);
		events[0] = (struct epoll_event) { .events = EPOLLIN | EPOLLET };
		ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &events[0]));
	}
	for (round = 0; round < 3; round++) {
		for (j = 0; j < 2; j++)
			for (i = 0; i < 40; i++)
				ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fds[i], self->shared, j));
		EXPECT_EQ(80, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
		EXPECT_EQ(40, epoll_wait(epoll, events, 64, 0));
		EXPECT_EQ(0, epoll_wait(epoll, events, 64, 0));
	}
	for (i = 0; i < 40; i++)
		close(fds[i]);
	close(epoll);
}

/* More contexts than one step of a notify can collect. */
#define CONTEXTS	24

/*
 * A notify wakes the pollers of a context once, however many waits of the context end and wherever
 * they are in the queue. Each further wake-up would visit all pollers, whose number is not limited.
 * Each wake-up wakes one of the exclusive pollers.
 */
MEMWAIT_TEST(R22_a_notify_wakes_each_context_once)
{
	int fds[CONTEXTS], i, j, round, asleep;
	struct memwait_completion done[64];
	struct sleeper s[8];

	for (i = 0; i < CONTEXTS; i++) {
		fds[i] = open_device(O_NONBLOCK);
	}
	for (round = 0; round < CONTEXTS; round++) {
		for (i = 0; i < 8; i++) {
			int epoll = epoll_on(fds[round], EPOLLIN | EPOLLEXCLUSIVE);

			ASSERT_LE(0, epoll);
			sleeper_start(&s[i], epoll, -1);
		}
		for (j = 0; j < 2; j++)
			for (i = 0; i < CONTEXTS; i++)
				ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fds[i], self->shared, j));
		EXPECT_EQ(2 * CONTEXTS, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
		for (i = asleep = 0; i < 8; i++)
			asleep += thread_state(s[i].runner.tid) == 'S' &&
				  !runner_is_done(&s[i].runner);
		EXPECT_EQ(7, asleep);

		/* Now the other pollers are woken one by one. */
		for (i = 1; i < 8; i++) {
			spin_until(awake(s, 8) >= i);
			complete(_metadata, fds[round], self->word, 1);
		}
		for (i = 0; i < 8; i++) {
			EXPECT_EQ(1, runner_join(&s[i].runner));
			close(s[i].epoll);
		}
		for (i = 0; i < CONTEXTS; i++)
			EXPECT_LT(0, mw_read(fds[i], done, 64));
	}
	for (i = 0; i < CONTEXTS; i++)
		close(fds[i]);
}

struct notifier {
	pthread_t thread;
	pthread_barrier_t *barrier;
	int fd;
	uint32_t *word;
};

#define ROUNDS	200

static void *notify_all(void *arg)
{
	struct notifier *c = arg;
	long woken = 0;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(c->barrier);
		woken += mw_notify(c->fd, c->word, MEMWAIT_ALL, U32);
	}
	return (void *)woken;
}

/*
 * Each context waits on the words of several notifies. Each notify must produce an edge after its
 * completion, whichever of the notifies wakes the context. The reader runs immediately, at any
 * stage of a notify.
 */
MEMWAIT_TEST(R22_concurrent_notifies_of_many_contexts_lose_no_edge)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC), fds[CONTEXTS], i, j, n, round, left;
	struct sched_param first = { .sched_priority = 1 }, usual = { 0 };
	struct memwait_completion done[8];
	pthread_barrier_t barrier;
	struct notifier notifiers[3];
	struct epoll_event event;
	void *woken;

	/* The priority is set only briefly, because threads inherit it. */
	if (sched_setscheduler(0, SCHED_FIFO, &first))
		SKIP(return, "SCHED_FIFO: %s", strerror(errno));
	ASSERT_EQ(0, sched_setscheduler(0, SCHED_OTHER, &usual));
	pthread_barrier_init(&barrier, NULL, 4);
	for (j = 0; j < 3; j++) {
		notifiers[j] = (struct notifier) { .barrier = &barrier, .fd = self->fd,
						   .word = self->shared + j };
		ASSERT_EQ(0, pthread_create(&notifiers[j].thread, NULL, notify_all, &notifiers[j]));
	}
	ASSERT_EQ(0, sched_setscheduler(0, SCHED_FIFO, &first));
	for (i = 0; i < CONTEXTS; i++) {
		fds[i] = open_device(O_NONBLOCK);
		event = (struct epoll_event) { .events = EPOLLIN | EPOLLET, .data.u32 = i };
		ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event));
	}
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < CONTEXTS; i++)
			for (j = 0; j < 3; j++)
				ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fds[i], self->shared + j, j));
		pthread_barrier_wait(&barrier);
		/*
		 * If there were no edge after the last completion of a context, this loop would not
		 * end.
		 */
		for (left = 3 * CONTEXTS; left; ) {
			ASSERT_EQ(1, epoll_wait(epoll, &event, 1, -1));
			while ((n = mw_read(fds[event.data.u32], done, 8)) > 0)
				left -= n;
			ASSERT_EQ(-EAGAIN, n);
		}
	}
	ASSERT_EQ(0, sched_setscheduler(0, SCHED_OTHER, &usual));
	for (j = 0; j < 3; j++) {
		pthread_join(notifiers[j].thread, &woken);
		EXPECT_EQ(ROUNDS * CONTEXTS, (long)woken);
	}
	for (i = 0; i < CONTEXTS; i++)
		close(fds[i]);
	close(epoll);
	pthread_barrier_destroy(&barrier);
}

struct loop {
	pthread_t thread;
	int fd, other;
	uint32_t *word;
	long rounds;
};

/* Notifies whenever there is a waiter; each wake-up must appear in the loop's epoll. */
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

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(l.fd, l.word, 0));
	ASSERT_EQ(0, pthread_create(&l.thread, NULL, notify_rounds, &l));
	while (seen < l.rounds) {
		/* A lost edge would cause a timeout here. */
		ASSERT_EQ(1, epoll_wait(epoll, &event, 1, poll_patience(60)));
		while ((n = mw_read(self->fd, done, 4)) > 0) {
			ASSERT_EQ(1, n);
			if (++seen < l.rounds)
				ASSERT_EQ(MEMWAIT_PENDING, mw_arm(l.fd, l.word, 0));
		}
	}
	pthread_join(l.thread, NULL);
	close(l.other);
	close(epoll);
}

struct drainer {
	int fd, epoll;
	long got, woken;
};

/* Reads until it receives a completion whose user_data means that it must stop. */
static int drain_at_once(struct drainer *d)
{
	const struct sched_param first = { .sched_priority = 1 };
	struct memwait_completion done[64];
	struct epoll_event event;
	int n, ret;

	ret = sched_setscheduler(0, SCHED_FIFO, &first) ? -errno : bind_to(0);
	while (!ret && epoll_wait(d->epoll, &event, 1, -1) == 1) {
		d->woken++;
		while ((n = mw_read(d->fd, done, 64)) > 0) {
			d->got += n;
			if (done[n - 1].user_data == ~0ULL)
				return 0;
		}
	}
	return ret;
}

/*
 * Between two steps of a notify the loop reads all completions and sleeps. The next step must
 * produce a new edge.
 */
MEMWAIT_TEST(R22_a_loop_that_drains_during_a_notify_misses_no_edge)
{
	struct drainer d = { .fd = self->fd, .epoll = epoll_on(self->fd, EPOLLIN | EPOLLET) };
	const int waits = 300;
	struct runner runner;
	int fd, i, round;

	ASSERT_EQ(0, bind_to(0));
	fd = memwait_open(0);
	runner_start(&runner, drain_at_once, &d);
	runner_await_asleep(&runner);
	if (runner_is_done(&runner)) {
		i = runner_join(&runner);
		SKIP(return, "SCHED_FIFO: %s", strerror(-i));
	}
	for (round = 0; round < 5; round++) {
		for (i = 0; i < waits; i++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, i));
		d.got = 0;
		d.woken = 0;
		ASSERT_EQ(waits, mw_notify(fd, self->shared, MEMWAIT_ALL, U32));
		/*
		 * The loop has a higher priority on this CPU. Therefore it sleeps now and has
		 * missed no edge.
		 */
		TH_LOG("woken %ld times", d.woken);
		EXPECT_EQ(waits, d.got);
		EXPECT_FALSE(mw_readable(self->fd));
		while (mw_read(self->fd, &(struct memwait_completion) { }, 1) > 0)
			;
	}
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, ~0ULL));
	ASSERT_EQ(1, mw_notify(fd, self->shared, 1, U32));
	EXPECT_EQ(0, runner_join(&runner));
	close(d.epoll);
	close(fd);
}

MEMWAIT_TEST(R22_epollrdnorm_by_itself)
{
	int epoll = epoll_on(self->fd, EPOLLRDNORM), out = epoll_on(self->fd, EPOLLOUT | EPOLLPRI);

	complete(_metadata, self->fd, self->word, 1);
	EXPECT_EQ(EPOLLRDNORM, events_now(epoll));
	/* The context is never writable and has no error. */
	EXPECT_EQ(0, events_now(out));
	close(epoll);
	close(out);
}

MEMWAIT_TEST(R22_sleepers_are_woken_by_a_timeout)
{
	int epoll = epoll_on(self->fd, EPOLLIN | EPOLLET), i;
	struct memwait_completion done;
	struct sleeper s[2];

	sleeper_start(&s[0], epoll, -1);
	sleeper_start(&s[1], -1, self->fd);
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 20, 1, NULL));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(1, runner_join(&s[i].runner));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	close(epoll);
}

#define MANY_POLLERS	200

/* Marks the descriptors that an edge-triggered set reports. Returns how many of them are new. */
static int mark_ready(int epoll, bool marked[MANY_POLLERS])
{
	struct epoll_event events[MANY_POLLERS];
	int n = epoll_wait(epoll, events, MANY_POLLERS, 0), new = 0, i;

	for (i = 0; i < n; i++) {
		new += !marked[events[i].data.u32];
		marked[events[i].data.u32] = true;
	}
	return new;
}

/* An exclusive poller is queued behind all others and is woken last. */
MEMWAIT_TEST(R22_many_pollers_are_woken)
{
	int fds[MANY_POLLERS], pollers = epoll_create1(EPOLL_CLOEXEC), exclusive[2], i;
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct memwait_completion done;
	bool marked[MANY_POLLERS];
	struct sleeper s[2];

	for (i = 0; i < MANY_POLLERS; i++) {
		fds[i] = dup(self->fd);
		ASSERT_LE(0, fds[i]);
		event.data.u32 = i;
		ASSERT_EQ(0, epoll_ctl(pollers, EPOLL_CTL_ADD, fds[i], &event));
	}
	for (i = 0; i < 2; i++) {
		exclusive[i] = epoll_on(self->fd, EPOLLIN | EPOLLEXCLUSIVE);
		ASSERT_LE(0, exclusive[i]);
		sleeper_start(&s[i], exclusive[i], -1);
	}
	for (i = 1; i <= 2; i++) {
		complete(_metadata, self->fd, self->word, 1);
		memset(marked, 0, sizeof(marked));
		EXPECT_EQ(MANY_POLLERS, mark_ready(pollers, marked));
		spin_until(awake(s, 2) >= i);
		EXPECT_EQ(i, awake(s, 2));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	}
	for (i = 0; i < 2; i++)
		EXPECT_EQ(1, runner_join(&s[i].runner));

	/* A timeout also wakes all pollers. */
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 20, 1, NULL));
	memset(marked, 0, sizeof(marked));
	for (i = 0; i < MANY_POLLERS; )
		i += mark_ready(pollers, marked);
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	for (i = 0; i < 2; i++)
		close(exclusive[i]);
	for (i = 0; i < MANY_POLLERS; i++)
		close(fds[i]);
	close(pollers);
}

MEMWAIT_TEST(R22_a_closed_context_leaves_its_epoll)
{
	int fd = memwait_open(O_NONBLOCK), epoll = epoll_on(fd, EPOLLIN);

	complete(_metadata, fd, self->word, 1);
	EXPECT_EQ(EPOLLIN, events_now(epoll));
	close(fd);
	EXPECT_EQ(0, events_now(epoll));
	close(epoll);
}

MEMWAIT_TEST(R22_a_poller_outlives_its_descriptor)
{
	int fd = memwait_open(O_NONBLOCK);
	struct sleeper s;

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->word, 1));
	sleeper_start(&s, -1, fd);
	close(fd);
	/*
	 * poll(2) references the context. Therefore the wait exists until poll(2) returns and
	 * closes the context.
	 */
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(1, runner_join(&s.runner));
}

MEMWAIT_TEST(R22_a_child_polls_what_its_parent_completes)
{
	struct memwait_completion done;
	struct epoll_event event;
	int epoll = epoll_on(self->fd, EPOLLIN);
	pid_t pid;

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 9));
	pid = fork();
	if (!pid) {
		if (epoll_wait(epoll, &event, 1, poll_patience(100)) != 1)
			_exit(1);
		_exit(mw_read(self->fd, &done, 1) == 1 && done.user_data == 9 ? 0 : 2);
	}
	await_asleep(pid);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(0, child_status(pid));
	EXPECT_FALSE(mw_readable(self->fd));
	close(epoll);
}

#define CONSUMERS	3

struct consumer {
	pthread_t thread;
	int fd, epoll, stop_fd;
	uint32_t mode;
	unsigned char *seen;
	long n, bad;
};

/*
 * Repeatedly waits for an event and reads one completion or all completions, until stop_fd is
 * readable.
 */
static void *consume(void *arg)
{
	struct consumer *e = arg;
	struct epoll_event event, again = { .events = EPOLLIN | e->mode };
	struct memwait_completion done;

	for (;;) {
		if (epoll_wait(e->epoll, &event, 1, poll_patience(100)) != 1) {
			e->bad++;
			return NULL;
		}
		if (event.data.fd == e->stop_fd)
			return NULL;
		while (mw_read(e->fd, &done, 1) == 1) {
			__atomic_add_fetch(&e->seen[done.user_data], 1, __ATOMIC_RELAXED);
			__atomic_add_fetch(&e->n, 1, __ATOMIC_RELEASE);
			if (!(e->mode & EPOLLET))
				break;
		}
		if (e->mode & EPOLLONESHOT)
			epoll_ctl(e->epoll, EPOLL_CTL_MOD, e->fd, &again);
	}
}

/*
 * Several threads read all completions of one context. Each completion is read once. The threads
 * use their own epoll sets or a common set.
 */
static void consume_all(struct __test_metadata *_metadata, int fd, uint32_t *word, uint32_t mode,
			bool one_set)
{
	static unsigned char seen[3000];
	struct epoll_event event = { .events = EPOLLIN };
	struct consumer e[CONSUMERS] = { 0 };
	int pipes[2], i, j;
	long n;

	ASSERT_EQ(0, pipe(pipes));
	memset(seen, 0, sizeof(seen));
	for (i = 0; i < CONSUMERS; i++) {
		e[i] = (struct consumer) { .fd = fd, .stop_fd = pipes[0], .mode = mode,
					   .seen = seen };
		if (one_set && i) {
			e[i].epoll = e[0].epoll;
		} else {
			e[i].epoll = epoll_on(fd, EPOLLIN | mode);
			ASSERT_LE(0, e[i].epoll);
			event.data.fd = pipes[0];
			ASSERT_EQ(0, epoll_ctl(e[i].epoll, EPOLL_CTL_ADD, pipes[0], &event));
		}
	}
	for (i = 0; i < CONSUMERS; i++)
		ASSERT_EQ(0, pthread_create(&e[i].thread, NULL, consume, &e[i]));

	for (i = 0; i < 3000; i += 5) {
		for (j = 0; j < 5; j++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, word, i + j));
		ASSERT_EQ(5, mw_notify(fd, word, MEMWAIT_ALL, U32));
	}
	do {
		for (n = i = 0; i < CONSUMERS; i++)
			n += __atomic_load_n(&e[i].n, __ATOMIC_ACQUIRE);
		sched_yield();
	} while (n < 3000);
	ASSERT_EQ(1, write(pipes[1], "", 1));
	for (i = 0; i < CONSUMERS; i++) {
		pthread_join(e[i].thread, NULL);
		EXPECT_EQ(0, e[i].bad);
	}
	for (i = 0; i < (one_set ? 1 : CONSUMERS); i++)
		close(e[i].epoll);
	for (i = 0; i < 3000; i++)
		ASSERT_EQ(1, seen[i]);
	EXPECT_FALSE(mw_readable(fd));
	close(pipes[0]);
	close(pipes[1]);
}

MEMWAIT_TEST(R22_several_threads_on_one_level_triggered_set)
{
	consume_all(_metadata, self->fd, self->word, 0, true);
}

MEMWAIT_TEST(R22_several_threads_on_one_edge_triggered_set)
{
	consume_all(_metadata, self->fd, self->word, EPOLLET, true);
}

MEMWAIT_TEST(R22_several_threads_on_one_oneshot_set)
{
	consume_all(_metadata, self->fd, self->word, EPOLLONESHOT, true);
}

MEMWAIT_TEST(R22_several_exclusive_sets)
{
	consume_all(_metadata, self->fd, self->word, EPOLLEXCLUSIVE, false);
}

MEMWAIT_TEST(R22_several_exclusive_edge_triggered_sets)
{
	consume_all(_metadata, self->fd, self->word, EPOLLEXCLUSIVE | EPOLLET, false);
}

TEST_HARNESS_MAIN
