// SPDX-License-Identifier: GPL-2.0
/* R30: many deadlines that expire together, and which user pays for this. */
#include "hostile_test.h"

/*
 * R30: the waits of a low-priority user, which may use 1 % of a CPU, expire together. Other
 * threads, one on each CPU, must hardly be affected.
 */
#define EXPIRING	600000
#define OWNED_CONTEXTS	32	/* one kernel thread for each would leave no time to others */

struct counter {
	pthread_t thread;
	int cpu;
	uint64_t from[2], to[2];	/* two time spans */
	uint64_t turns[2];		/* progress in each span */
};

static void *count_turns(void *arg)
{
	struct counter *c = arg;
	uint64_t time;
	int i;

	bind_to(c->cpu);
	while ((time = now()) < c->to[1]) {
		for (i = 0; i < 2; i++)
			c->turns[i] += time >= c->from[i] && time < c->to[i];
	}
	return NULL;
}

/* Returns false if the cpu controller of cgroup v2 is not available. */
static bool make_slow_box(bool *enabled)
{
	rmdir(BOX);	/* a killed test may have left it */
	*enabled = read_number_of("/sys/fs/cgroup/cgroup.subtree_control", "cpu") < 0 &&
		   !write_file("/sys/fs/cgroup/cgroup.subtree_control", "+cpu");
	if (!mkdir(BOX, 0755) && !write_file(BOX "/cpu.max", "1000 100000"))
		return true;
	rmdir(BOX);
	return false;
}

struct box_owner {
	int ready;
	uint64_t deadline;
};

/* Arms waits of several contexts with the same deadline. Returns the deadline, or 0. */
static uint64_t arm_contexts(uint32_t *word, int n, struct pollfd *contexts)
{
	uint64_t ms, deadline;
	int i, armed;

	n /= OWNED_CONTEXTS;
	for (ms = 4000; ms < 100000; ms *= 2) {
		deadline = in_ms(ms);
		armed = 0;
		for (i = 0; i < OWNED_CONTEXTS; i++) {
			contexts[i].fd = memwait_open(O_NONBLOCK);
			contexts[i].events = POLLIN;
			armed += arm_many(contexts[i].fd, word, n, deadline, NULL);
		}
		if (armed == n * OWNED_CONTEXTS && now() + NSEC_PER_SEC < deadline)
			return deadline;
		for (i = 0; i < OWNED_CONTEXTS; i++)
			close(contexts[i].fd);
	}
	return 0;
}

LIMITS_TEST(R30_an_expiry_is_at_the_cost_of_its_owner)
{
	struct box_owner *o = shared_page(4096);
	struct counter c[MAX_PROCESSORS] = { 0 };
	int n = allow_many_waits(EXPIRING), i;
	bool enabled, slow;
	double share;
	pid_t pid;

	slow = !geteuid() && make_slow_box(&enabled);
	pid = fork_child();
	if (!pid) {
		struct pollfd contexts[OWNED_CONTEXTS];
		struct memwait_completion done[BATCH];

		o->deadline = arm_contexts(self->word, n, contexts);
		if (slow)
			write_number(BOX "/cgroup.procs", getpid());
		set_idle();
		store(&o->ready, 1);
		while (poll(contexts, OWNED_CONTEXTS, -1) > 0) {
			for (i = 0; i < OWNED_CONTEXTS; i++) {
				if (contexts[i].revents)
					mw_read(contexts[i].fd, done, BATCH);
			}
		}
		_exit(0);
	}
	EXPECT_TRUE(await_flag(&o->ready, 60));
	EXPECT_NE(0, o->deadline);
	for (i = 0; i < processors() && i < MAX_PROCESSORS; i++) {
		c[i].cpu = i;
		c[i].from[0] = o->deadline - 700 * NSEC_PER_MSEC;
		c[i].to[0] = o->deadline - 100 * NSEC_PER_MSEC;
		c[i].from[1] = o->deadline;
		c[i].to[1] = o->deadline + NSEC_PER_SEC;
		ASSERT_EQ(0, pthread_create(&c[i].thread, NULL, count_turns, &c[i]));
	}
	for (i = 0; i < processors() && i < MAX_PROCESSORS; i++) {
		pthread_join(c[i].thread, NULL);
		share = c[i].turns[0] ? c[i].turns[1] * 0.6 / c[i].turns[0] : 0;
		TH_LOG("processor %d: speed after the deadline %d %% of that before", i,
		       (int)(share * 100));
		EXPECT_IN_TIME(c[i].turns[0] > 0);
		EXPECT_IN_TIME(share >= 0.25);
	}
	if (slow)
		write_number("/sys/fs/cgroup/cgroup.procs", pid);
	kill_child(pid);
	if (slow) {
		EXPECT_EQ(0, remove_cgroup(BOX));
		if (enabled)
			write_file("/sys/fs/cgroup/cgroup.subtree_control", "-cpu");
	} else {
		TH_LOG("without cpu.max");
	}
	munmap(o, 4096);
}

/* R30: how often an event loop is woken if it gets many completions and reads none of them. */
#define EDGES_WAITS	100000

struct edges {
	pthread_t thread;
	int epoll, ready, stop;
	long edges;
};

static void *count_edges(void *arg)
{
	struct epoll_event event;
	struct edges *e = arg;

	/* The thread gets real-time priority, if permitted, so that hardly any edges coincide. */
	set_fifo(10);
	store(&e->ready, 1);
	while (!load(&e->stop)) {
		if (epoll_wait(e->epoll, &event, 1, 50) == 1)
			add_one(&e->edges);
	}
	return NULL;
}

static void start_edges(struct __test_metadata *_metadata, struct edges *e, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	memset(e, 0, sizeof(*e));
	e->epoll = epoll_create1(EPOLL_CLOEXEC);
	ASSERT_LE(0, e->epoll);
	ASSERT_EQ(0, epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &event));
	ASSERT_EQ(0, pthread_create(&e->thread, NULL, count_edges, e));
	EXPECT_TRUE(await_flag(&e->ready, 10));
}

static long stop_edges(struct edges *e)
{
	struct epoll_event event;

	store(&e->stop, 1);
	pthread_join(e->thread, NULL);
	/* The thread has not received this edge. */
	if (epoll_wait(e->epoll, &event, 1, 0) == 1)
		add_one(&e->edges);
	close(e->epoll);
	return counted(&e->edges);
}

LIMITS_TEST(R30_pollers_are_not_woken_for_each_of_many_waits)
{
	int n = allow_many_waits(EDGES_WAITS);
	struct edges e;
	long edges;

	ASSERT_EQ(n, arm_many(self->fd, self->word, n, MEMWAIT_FOREVER, NULL));
	start_edges(_metadata, &e, self->fd);
	ASSERT_EQ(n, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	edges = stop_edges(&e);
	TH_LOG("notify of %d: %ld edges", n, edges);
	EXPECT_LE(1, edges);
	EXPECT_GE(16, edges);

	ASSERT_TRUE(renew(&self->fd));
	ASSERT_NE(0, arm_timed(&self->fd, self->word, n, NULL));
	start_edges(_metadata, &e, self->fd);
	/* If the reader were faster, there would be no edge to observe. */
	await_counted(&e.edges);
	EXPECT_TRUE(read_many(self->fd, n));
	edges = stop_edges(&e);
	TH_LOG("expiry of %d: %ld edges", n, edges);
	EXPECT_LE(1, edges);
	EXPECT_GE(16, edges);
}

/*
 * R30: the deadlines of a real-time loop wake it even while lower-priority real-time threads occupy
 * every CPU, so that no kernel thread runs.
 */
#define DEADLINES	20

static void *keep_busy(void *arg)
{
	struct counter *c = arg;

	bind_to(c->cpu);
	if (!set_fifo(10))
		while (now() < c->to[0])
			;
	return NULL;
}

MEMWAIT_TEST(R30_a_deadline_needs_no_kernel_thread)
{
	struct pollfd pfd = { .fd = self->fd, .events = POLLIN };
	struct counter c[MAX_PROCESSORS] = { 0 };
	struct memwait_completion done;
	uint64_t late[DEADLINES], deadline, ms;
	int n = processors(), i, ret;

	if (geteuid())
		SKIP(return, "needs root for real-time threads");
	if (is_preempt_rt())
		SKIP(return, "PREEMPT_RT runs timers in kernel threads, even those of timerfd");
	if (n > MAX_PROCESSORS)
		n = MAX_PROCESSORS;
	ASSERT_EQ(0, set_fifo(50));
	/* This time is shorter than the time after which the kernel throttles real-time threads. */
	for (i = 0; i < n; i++) {
		c[i].cpu = i;
		c[i].to[0] = now() + 800 * NSEC_PER_MSEC;
		ASSERT_EQ(0, pthread_create(&c[i].thread, NULL, keep_busy, &c[i]));
	}
	usleep(50000);
	for (i = 0; i < DEADLINES; i++) {
		ms = 20;
		do {
			deadline = in_ms(ms);
			ret = mw_async(self->fd, self->shared, 0, deadline, U32, i, NULL);
			ms *= 2;
		} while (ret == MEMWAIT_TIMED_OUT);
		ASSERT_EQ(MEMWAIT_PENDING, ret);
		ASSERT_EQ(1, poll(&pfd, 1, poll_patience(60)));
		ASSERT_EQ(1, mw_read(self->fd, &done, 1));
		late[i] = now() - deadline;
		EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
		EXPECT_EQ(i, done.user_data);
	}
	for (i = 0; i < n; i++)
		pthread_join(c[i].thread, NULL);
	qsort(late, DEADLINES, sizeof(late[0]), compare_numbers);
	TH_LOG("late by %ld us (median) to %ld us", (long)late[DEADLINES / 2] / 1000,
	       (long)late[DEADLINES - 1] / 1000);
	EXPECT_WITHIN_MS(100, late[DEADLINES - 1]);
}

/*
 * R13, R29: the first notify that reaches unread overdue waits ends them. Therefore only this
 * notify takes longer.
 */
static uint64_t timed_notify(struct __test_metadata *_metadata, int fd, uint32_t *word)
{
	struct memwait_completion done;
	uint64_t start, took;

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, word, 0));
	start = now();
	EXPECT_EQ(1, mw_notify(fd, word, 1, U32));
	took = now() - start;
	EXPECT_EQ(1, mw_read(fd, &done, 1));
	return took;
}

LIMITS_TEST(R29_overdue_waits_cost_a_notify_once)
{
	int n = allow_many_waits(2 * MANY_WAITS), idle = memwait_open(O_NONBLOCK);
	uint64_t deadline = arm_timed(&idle, self->word, n, NULL), first, second;

	ASSERT_NE(0, deadline);
	while (now() < deadline)
		usleep(1000);
	EXPECT_EQ(n, mw_waiters(self->fd, self->word, U32));
	first = timed_notify(_metadata, self->fd, self->word);
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
	second = timed_notify(_metadata, self->fd, self->word);
	TH_LOG("a notify with %d overdue waits: %ld us, then %ld us", n, (long)first / 1000,
	       (long)second / 1000);
	EXPECT_IN_TIME(first / 10 > second);
	close(idle);
}

TEST_HARNESS_MAIN
