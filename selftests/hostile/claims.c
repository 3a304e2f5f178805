// SPDX-License-Identifier: GPL-2.0
/*
 * R28, R31: threads preempt the SCHED_IDLE notifier that has woken them, before it has woken the
 * other waiters that it has already dequeued.
 */
#include "hostile_test.h"
#include <linux/membarrier.h>

/*
 * R28: an attacker's threads wait, all on one CPU, on a word that the attacker can only read. The
 * notifier on this CPU has SCHED_IDLE priority. The threads that it has woken preempt it, so it
 * never reaches the remaining threads.
 */
#define SPINNING	64	/* more threads would only hinder the kernel's own */
#define ATTACKERS	250
#define DEADLINE_MS	3000

struct victim {
	int result, done;
	uint64_t took;
};

struct attack {
	int memory;		/* the file that contains the word */
	int go, stop;
	int woken;		/* number of attacking threads that are running */
	struct victim thread, async;
};

struct attacker {
	struct attack *attack;
	int fd;
	const uint32_t *word;
};

static void *attacker_main(void *arg)
{
	struct attacker *a = arg;
	int order;

	mw_wait(a->fd, a->word, 0, MEMWAIT_FOREVER, U32);
	order = __atomic_add_fetch(&a->attack->woken, 1, __ATOMIC_ACQ_REL);
	while (!load(&a->attack->stop)) {
		if (order > SPINNING)
			usleep(50000);
	}
	return NULL;
}

static void run_attack(struct attack *attack)
{
	struct attacker a = { .attack = attack };
	pthread_attr_t small;
	pthread_t thread;
	int i;

	become_nobody();
	a.fd = memwait_open(0);
	a.word = mmap(NULL, 4096, PROT_READ, MAP_SHARED, attack->memory, 0);
	if (a.fd < 0 || a.word == MAP_FAILED || bind_to(0))
		_exit(1);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (i = 0; i < ATTACKERS; i++) {
		if (pthread_create(&thread, &small, attacker_main, &a))
			_exit(2);
	}
	if (set_idle())
		_exit(3);
	while (!load(&attack->go))
		usleep(1000);
	mw_notify(a.fd, a.word, MEMWAIT_ALL, U32);
	while (!load(&attack->stop))
		usleep(1000);
	_exit(0);
}

static void run_thread_victim(struct victim *v, int fd, const uint32_t *word)
{
	uint64_t start = now();

	v->result = mw_wait(fd, word, 0, start + DEADLINE_MS * NSEC_PER_MSEC, U32);
	v->took = now() - start;
	store(&v->done, 1);
	_exit(0);
}

static void run_async_victim(struct victim *v, const uint32_t *word)
{
	struct pollfd pfd = { .fd = memwait_open(0), .events = POLLIN };
	uint64_t start = now();

	v->result = mw_async(pfd.fd, word, 0, start + DEADLINE_MS * NSEC_PER_MSEC, U32, 0, NULL);
	if (v->result == MEMWAIT_PENDING)
		v->result = poll(&pfd, 1, poll_patience(30));
	v->took = now() - start;
	store(&v->done, 1);
	_exit(0);
}

struct barrier {
	pthread_t thread;
	int done;
	uint64_t took;
};

/* Measures synchronize_rcu() from user space. */
static void *barrier_main(void *arg)
{
	struct barrier *b = arg;
	uint64_t start = now();

	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
	b->took = now() - start;
	store(&b->done, 1);
	return NULL;
}

MEMWAIT_TEST(R28_a_dequeued_thread_meets_its_deadline_and_can_be_killed)
{
	struct attack *a = shared_page(4096);
	struct barrier barrier = { 0 };
	pid_t attacker, forever, thread, async;
	uint64_t killed = 0;
	uint32_t *word;
	int status;
	bool gone;

	if (processors() < 2 || geteuid())
		SKIP(return, "needs root and two processors");
	a->memory = new_file(4096);
	word = map_shared(a->memory, 4096);
	ASSERT_EQ(0, bind_to(1));

	attacker = fork_child();
	if (!attacker)
		run_attack(a);
	await_waiters(self->fd, word, U32, ATTACKERS);
	forever = run_in_child(mw_wait(self->fd, word, 0, MEMWAIT_FOREVER, U32));
	await_waiters(self->fd, word, U32, ATTACKERS + 1);
	async = fork_child();
	if (!async)
		run_async_victim(&a->async, word);
	await_waiters(self->fd, word, U32, ATTACKERS + 2);
	thread = fork_child();
	if (!thread)
		run_thread_victim(&a->thread, self->fd, word);
	await_waiters(self->fd, word, U32, ATTACKERS + 3);

	store(&a->go, 1);
	EXPECT_TRUE(await_flag(&a->woken, 60));
	ASSERT_EQ(0, pthread_create(&barrier.thread, NULL, barrier_main, &barrier));
	killed = now();
	kill(forever, SIGKILL);
	gone = await_gone(forever, &status, 4);
	killed = now() - killed;
	await_flag(&a->thread.done, 5);
	await_flag(&a->async.done, 2);
	await_flag(&barrier.done, 10);
	TH_LOG("running attackers: %d of %d", load(&a->woken), ATTACKERS);

	/* Waits that have not ended yet end here or later, and have taken too long. */
	store(&a->stop, 1);
	EXPECT_EQ(0, child_status(attacker));
	if (!gone)
		waitpid(forever, &status, 0);
	EXPECT_EQ(0, child_status(thread));
	EXPECT_EQ(0, child_status(async));
	pthread_join(barrier.thread, NULL);
	TH_LOG("thread with a deadline of %d ms: %ld ms, async wait: %ld ms", DEADLINE_MS,
	       in_millis(a->thread.took), in_millis(a->async.took));
	TH_LOG("death by SIGKILL: %s%ld ms, membarrier: %ld ms", gone ? "" : "more than ",
	       in_millis(killed), in_millis(barrier.took));
	EXPECT_TRUE(a->thread.result == MEMWAIT_OK || a->thread.result == MEMWAIT_TIMED_OUT);
	EXPECT_EQ(1, a->async.result);
	EXPECT_WITHIN_MS(6000, a->thread.took);
	EXPECT_WITHIN_MS(6000, a->async.took);
	EXPECT_IN_TIME(gone);
	EXPECT_WITHIN_MS(2000, killed);
	EXPECT_WITHIN_MS(10000, barrier.took);
	EXPECT_EQ(0, mw_waiters(self->fd, word, U32));
	munmap(word, 4096);
	munmap(a, 4096);
}

/*
 * R28: a real-time thread is woken, and occupies the notifier's CPU until all other waiters of the
 * same notify have run on other CPUs.
 */
#define TRIES	10

struct takeover {
	int fd, reached, n;	/* @reached: how many other waiters were woken */
	uint32_t *word;
	bool all;		/* all were woken while the thread occupied the CPU */
	struct other {
		struct takeover *takeover;
		int (*sleep)(int fd);
		int fd;
		struct runner runner;
	} others[3];
};

static int occupy_processor(struct takeover *s)
{
	uint64_t end;
	int ret = bind_to(0) ?: set_fifo(50) ?: mw_wait(s->fd, s->word, 0, MEMWAIT_FOREVER, U32);

	/* This loop must end before the kernel throttles real-time threads. */
	end = now() + 100 * NSEC_PER_MSEC;
	while (load(&s->reached) < s->n && now() < end)
		;
	s->all = load(&s->reached) == s->n;
	return ret;
}

static int sleep_in_read(int fd)
{
	struct memwait_completion done;

	return mw_read(fd, &done, 1);
}

static int sleep_in_poll(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, -1);
}

static int sleep_in_epoll(int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
	return epoll_wait(epoll, &event, 1, -1);
}

static int run_other(struct other *o)
{
	int ret = bind_to(1) ?: o->sleep(o->fd);

	__atomic_add_fetch(&o->takeover->reached, 1, __ATOMIC_ACQ_REL);
	return ret;
}

static int notify_here(struct takeover *s)
{
	return bind_to(0) ?: mw_notify(s->fd, s->word, MEMWAIT_ALL, U32);
}

static const struct {
	const char *name;
	int (*sleep)(int fd);
	bool same_context, polls;
} sleeps[] = {
	{ "read", sleep_in_read, false, false },
	{ "read of one context", sleep_in_read, true, false },
	{ "poll", sleep_in_poll, false, true },
	{ "poll of one context", sleep_in_poll, true, true },
	{ "epoll", sleep_in_epoll, false, true },
};

static bool try_takeover(struct __test_metadata *_metadata, int fd, uint32_t *word, unsigned int i)
{
	struct takeover s = { .fd = fd, .word = word, .n = ARRAY_SIZE(s.others) };
	struct runner first, notifier;
	int n;

	runner_start(&first, occupy_processor, &s);
	await_waiters(fd, word, U32, 1);
	for (n = 0; n < s.n; n++) {
		struct other *o = &s.others[n];

		o->takeover = &s;
		o->sleep = sleeps[i].sleep;
		o->fd = n && sleeps[i].same_context ? s.others[0].fd : memwait_open(0);
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(o->fd, word, n));
		runner_start(&o->runner, run_other, o);
		runner_await_asleep(&o->runner);
	}
	runner_start(&notifier, notify_here, &s);
	EXPECT_EQ(0, runner_join(&first));
	EXPECT_EQ(s.n + 1, runner_join(&notifier));
	for (n = 0; n < s.n; n++) {
		EXPECT_EQ(1, runner_join(&s.others[n].runner));
		if (!n || !sleeps[i].same_context)
			close(s.others[n].fd);
	}
	return s.all;
}

MEMWAIT_TEST(R28_all_waiters_reached_by_a_notify_are_woken_together)
{
	unsigned int i, tries;
	bool good;

	if (processors() < 2 || geteuid())
		SKIP(return, "needs root and two processors");
	ASSERT_EQ(0, bind_to(1));
	for (i = 0; i < ARRAY_SIZE(sleeps); i++) {
		if (sleeps[i].polls && is_preempt_rt())
			continue;	/* a thread woken in poll(2) may preempt the notifier */
		good = false;
		for (tries = 0; !good && tries < TRIES; tries++)
			good = try_takeover(_metadata, self->fd, self->word, i);
		TH_LOG("%s: %s", sleeps[i].name, good ? "together" : "not together");
		EXPECT_IN_TIME(good);
	}
}

/*
 * R28: if a reader cannot run, it does not block other readers of its context: another reader gets
 * the next completion. All completions arrive together.
 */
static int read_idly(struct other *o)
{
	return bind_to(0) ?: set_idle() ?: sleep_in_read(o->fd);
}

MEMWAIT_TEST(R28_a_reader_that_cannot_run_blocks_no_other)
{
	struct takeover s = { .fd = self->fd, .word = self->word, .n = 1 };
	struct other first = { .fd = memwait_open(0) };
	struct other *second = &s.others[0];
	struct runner spinner;
	bool good = false;
	int tries;

	if (processors() < 2 || geteuid())
		SKIP(return, "needs root and two processors");
	ASSERT_EQ(0, bind_to(1));
	for (tries = 0; !good && tries < TRIES; tries++) {
		s.reached = 0;
		runner_start(&spinner, occupy_processor, &s);
		await_waiters(self->fd, self->word, U32, 1);
		runner_start(&first.runner, read_idly, &first);
		runner_await_asleep(&first.runner);
		second->takeover = &s;
		second->sleep = sleep_in_read;
		second->fd = first.fd;
		runner_start(&second->runner, run_other, second);
		runner_await_asleep(&second->runner);
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(first.fd, self->word + 1, 1));
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(first.fd, self->word + 1, 2));
		ASSERT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		ASSERT_EQ(2, mw_notify(self->fd, self->word + 1, 2, U32));
		EXPECT_EQ(0, runner_join(&spinner));
		EXPECT_EQ(1, runner_join(&first.runner));
		EXPECT_EQ(1, runner_join(&second->runner));
		good = s.all;
	}
	EXPECT_IN_TIME(good);
	close(first.fd);
}

/*
 * R31: groups of a victim are charged to the victim's memory cgroup. A woken thread preempts the
 * notifier in the middle of its call, and the victim closes its context.
 */
#define KEPT_GROUPS	64

struct keeping {
	int ready, claimed, left;
	uint32_t first, others;
};

static void *take_processor(void *arg)
{
	struct keeping *k = arg;
	int fd = memwait_open(0);
	uint64_t end;

	if (!bind_to(0) && !set_fifo(50))
		mw_wait(fd, &k->first, 0, MEMWAIT_FOREVER, U32);
	store(&k->claimed, 1);
	end = now() + 700 * NSEC_PER_MSEC;
	while (!load(&k->left) && now() < end)
		;
	return NULL;
}

static void own_groups(struct keeping *k)
{
	struct memwait_wait waits[MEMWAIT_GROUP_MAX];
	int fd, i;

	CHECK(!bind_to(1) && !enter_cgroup());
	fd = memwait_open(O_NONBLOCK);
	waits[0] = member(&k->first, 0, U32);
	for (i = 1; i < MEMWAIT_GROUP_MAX; i++)
		waits[i] = member(&k->others, 0, U32);
	for (i = 0; i < KEPT_GROUPS; i++)
		CHECK(mw_group(fd, waits, MEMWAIT_GROUP_MAX, MEMWAIT_FOREVER, 0, i, NULL) ==
		      MEMWAIT_PENDING);
	store(&k->ready, 1);
	while (!load(&k->claimed))
		;
	close(fd);
	store(&k->left, 1);
	pause();
	_exit(0);
}

static void *notify_idly(void *arg)
{
	struct keeping *k = arg;
	int fd = memwait_open(0);

	if (!bind_to(0) && !set_idle())
		mw_notify(fd, &k->first, MEMWAIT_ALL, U32);
	return NULL;
}

MEMWAIT_TEST(R31_a_notifier_holds_no_groups_of_other_users)
{
	struct keeping *k = shared_page(4096);
	pthread_t spinner, notifier;
	long before, after;
	pid_t pid;

	if (processors() < 2)
		SKIP(return, "needs two processors");
	if (!make_cgroup())
		SKIP(return, "no memory cgroup v2 at /sys/fs/cgroup");
	ASSERT_EQ(0, pthread_create(&spinner, NULL, take_processor, k));
	await_waiters(self->fd, &k->first, U32, 1);
	pid = fork_child();
	if (!pid)
		own_groups(k);
	EXPECT_TRUE(await_flag(&k->ready, 60));
	before = read_number_of(CGROUP "/memory.stat", "kernel");
	ASSERT_EQ(0, bind_to(1));
	ASSERT_EQ(0, pthread_create(&notifier, NULL, notify_idly, k));
	EXPECT_TRUE(await_flag(&k->left, 60));
	after = read_number_of(CGROUP "/memory.stat", "kernel");
	pthread_join(spinner, NULL);
	pthread_join(notifier, NULL);
	TH_LOG("%ld bytes of %ld are still charged", after, before);
	EXPECT_LT(KEPT_GROUPS * MEMWAIT_GROUP_MAX * 64L, before);
	EXPECT_GT(before / 8, after);
	kill_child(pid);
	EXPECT_EQ(0, remove_cgroup(CGROUP));
	munmap(k, 4096);
}

TEST_HARNESS_MAIN
