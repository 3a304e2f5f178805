// SPDX-License-Identifier: GPL-2.0
/*
 * R28 to R31: what a program can do to its neighbours by the device. Each test is an attack, and
 * what it may cost somebody else. What is measured is printed, and the bounds are wide: they hold
 * on a busy machine that is emulated, and tell the two apart all the same.
 *
 * MEMWAIT_HOSTILE_WAITS sets how many async waits there are where the number is what matters.
 */
#include "limits_test.h"
#include "several_test.h"
#include "signal_test.h"
#include "../timing_test.h"
#include <linux/membarrier.h>
#include <linux/userfaultfd.h>
#include <sys/prctl.h>
#include <sys/utsname.h>

#define BOX		"/sys/fs/cgroup/memwait-hostile"
#define BATCH		1024

#define BATCH_OF(entries, n)	{ .waits = (uintptr_t)(entries), .count = (n), \
				  .entry_size = sizeof(struct memwait_async) }

static uint64_t now(void)
{
	return now_ns(CLOCK_MONOTONIC);
}

static int load(const int *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void store(int *p, int value)
{
	__atomic_store_n(p, value, __ATOMIC_RELEASE);
}

static int processors(void)
{
	return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Where MEMWAIT_LOADS is set, the kernel checks itself, which takes its time. */
static int how_many_waits(int usual)
{
	const char *n = getenv("MEMWAIT_HOSTILE_WAITS");

	return n ? atoi(n) : getenv("MEMWAIT_LOADS") ? usual / 25 : usual;
}

/* The same, and lets a user have them on a machine of any size: LIMITS_TEST puts the limit back. */
static int allow_many_waits(int usual)
{
	return set_limit(1L << 30) ? -1 : how_many_waits(usual);
}

/* Returns how many of n waits for 0 are pending now; their ids go to ids, which may be NULL. */
static int arm_many(int fd, const volatile void *addr, int n, uint64_t deadline, uint64_t *ids)
{
	static struct memwait_async e[BATCH];
	int armed = 0, some, ret, i;

	while (armed < n) {
		struct memwait_wait_async arg = BATCH_OF(e, n - armed < BATCH ? n - armed : BATCH);

		some = arg.count;
		memset(e, 0, sizeof(e));
		for (i = 0; i < some; i++) {
			e[i].wait.addr = (uintptr_t)addr;
			e[i].wait.deadline = deadline;
			e[i].wait.flags = U32;
			e[i].user_data = armed + i;
		}
		ret = xioctl(fd, MEMWAIT_IOC_WAIT_ASYNC, &arg);
		for (i = 0; i < ret && e[i].result == MEMWAIT_PENDING; i++) {
			if (ids)
				ids[armed + i] = e[i].id;
		}
		armed += i;
		if (i < some)
			break;
	}
	return armed;
}

/* The same with a deadline that is far enough for all of them, and no farther. Returns it, or 0. */
static uint64_t arm_timed(int *fd, const volatile void *addr, int n, uint64_t *ids)
{
	uint64_t ms, deadline;

	for (ms = 2500; ms < 100000; ms *= 2) {
		deadline = in_ms(ms);
		if (arm_many(*fd, addr, n, deadline, ids) == n && now() + NSEC_PER_SEC < deadline)
			return deadline;
		if (!renew(fd))
			break;
	}
	return 0;
}

/* Reads that many completions, as soon as they are there. */
static bool read_many(int fd, int n)
{
	static struct memwait_completion done[BATCH];
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int ret;

	while (n > 0) {
		ret = mw_read(fd, done, BATCH);
		if (ret > 0)
			n -= ret;
		else if (ret != -EAGAIN || poll(&pfd, 1, -1) < 0)
			return false;
	}
	return true;
}

static int set_idle(void)
{
	struct sched_param none = { 0 };

	return sched_setscheduler(0, SCHED_IDLE, &none);
}

static int set_fifo(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	return sched_setscheduler(0, SCHED_FIFO, &param);
}

/* Until *flag is set, or so many seconds. Returns whether it is. */
static bool await_flag(const int *flag, unsigned int seconds)
{
	uint64_t end = now() + seconds * NSEC_PER_SEC;

	while (!load(flag) && now() < end)
		usleep(1000);
	return load(flag);
}

/* Until a child is gone, or so many seconds. Returns whether it is. */
static bool await_gone(pid_t pid, int *status, unsigned int seconds)
{
	uint64_t end = now() + seconds * NSEC_PER_SEC;
	pid_t got;

	while (!(got = waitpid(pid, status, WNOHANG)) && now() < end)
		usleep(1000);
	return got == pid;
}

/* How long it takes a child to die of SIGKILL; it is gone afterwards. */
static uint64_t kill_child(pid_t pid)
{
	uint64_t start = now();

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return now() - start;
}

/*
 * R28: threads of an attacker wait on a word that he can only read, all on one processor. His
 * notifier there, which is of no importance, is driven out by those it has woken, and never comes
 * to the others.
 */
#define SPINNING	64	/* more of them would only hinder the kernel's own threads */
#define ATTACKERS	250
#define DEADLINE_MS	3000

struct victim {
	int result, done;
	uint64_t took;
};

struct attack {
	int memory;		/* the file of the word */
	int go, stop;
	int woken;		/* how many attackers run */
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
		v->result = poll(&pfd, 1, 30000);
	v->took = now() - start;
	store(&v->done, 1);
	_exit(0);
}

struct barrier {
	pthread_t thread;
	int done;
	uint64_t took;
};

/* This is synchronize_rcu() from user space. */
static void *barrier_main(void *arg)
{
	struct barrier *b = arg;
	uint64_t start = now();

	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
	b->took = now() - start;
	store(&b->done, 1);
	return NULL;
}

MEMWAIT_TEST(R28_a_claimed_thread_meets_its_deadline_and_its_death)
{
	struct attack *a = shared_page(4096);
	struct barrier barrier = { 0 };
	pid_t attacker, forever, thread, async;
	uint64_t killed = 0;
	uint32_t *word;
	int status;
	bool gone;

	if (processors() < 2 || geteuid())
		SKIP(return, "needs root, and two processors");
	a->memory = memfd_create("word", 0);
	ASSERT_EQ(0, ftruncate(a->memory, 4096));
	word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a->memory, 0);
	ASSERT_NE(MAP_FAILED, word);
	ASSERT_EQ(0, bind_to(1));

	attacker = fork();
	if (!attacker)
		run_attack(a);
	await_waiters(self->fd, word, U32, ATTACKERS);
	forever = fork();
	if (!forever)
		_exit(mw_wait(self->fd, word, 0, MEMWAIT_FOREVER, U32));
	await_waiters(self->fd, word, U32, ATTACKERS + 1);
	async = fork();
	if (!async)
		run_async_victim(&a->async, word);
	await_waiters(self->fd, word, U32, ATTACKERS + 2);
	thread = fork();
	if (!thread)
		run_thread_victim(&a->thread, self->fd, word);
	await_waiters(self->fd, word, U32, ATTACKERS + 3);

	store(&a->go, 1);
	EXPECT_TRUE(await_flag(&a->woken, 10));
	ASSERT_EQ(0, pthread_create(&barrier.thread, NULL, barrier_main, &barrier));
	killed = now();
	kill(forever, SIGKILL);
	gone = await_gone(forever, &status, 4);
	killed = now() - killed;
	await_flag(&a->thread.done, 5);
	await_flag(&a->async.done, 2);
	await_flag(&barrier.done, 10);
	TH_LOG("attackers that run: %d of %d", load(&a->woken), ATTACKERS);

	/* What has not come to its end by now does so here, or later, and has taken too long. */
	store(&a->stop, 1);
	EXPECT_EQ(0, child_status(attacker));
	if (!gone)
		waitpid(forever, &status, 0);
	EXPECT_EQ(0, child_status(thread));
	EXPECT_EQ(0, child_status(async));
	pthread_join(barrier.thread, NULL);
	TH_LOG("thread with a deadline of %d ms: %ld ms, async wait: %ld ms", DEADLINE_MS,
	       in_millis(a->thread.took), in_millis(a->async.took));
	TH_LOG("death of SIGKILL: %s%ld ms, membarrier: %ld ms", gone ? "" : "over ",
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
 * R29: how late a thread of real time is when it wants to run each millisecond. One on each
 * processor watches, as the kernel's own threads work where they like.
 */
#define MAX_PROCESSORS	8
#define WATCHES		3
#define LATE_MS		20

struct watch {
	pthread_t thread;
	int cpu, ready, stop, error;
	uint64_t worst;
};

static void *watch_main(void *arg)
{
	struct timespec at;
	struct watch *w = arg;
	uint64_t next, time;

	w->error = bind_to(w->cpu) || set_fifo(50);
	store(&w->ready, 1);
	next = now();
	while (!load(&w->stop)) {
		next += NSEC_PER_MSEC;
		at.tv_sec = next / NSEC_PER_SEC;
		at.tv_nsec = next % NSEC_PER_SEC;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		time = now();
		if (time - next > w->worst)
			w->worst = time - next;
		next = time;
	}
	return NULL;
}

struct watches {
	struct watch cpu[MAX_PROCESSORS];
	int n;
};

/* Returns whether all of them run. */
static bool watch_start(struct watches *w)
{
	int i;

	memset(w, 0, sizeof(*w));
	for (i = 0; i < processors() && i < MAX_PROCESSORS; i++) {
		w->cpu[i].cpu = i;
		if (pthread_create(&w->cpu[i].thread, NULL, watch_main, &w->cpu[i]))
			return false;
		w->n++;
		while (!load(&w->cpu[i].ready))
			sched_yield();
		if (w->cpu[i].error)
			return false;
	}
	usleep(20000);		/* each of them has looked at the time, which is in its cache */
	for (i = 0; i < w->n; i++)
		__atomic_store_n(&w->cpu[i].worst, 0, __ATOMIC_RELAXED);
	return true;
}

/* Returns the worst lateness. */
static uint64_t watch_stop(struct watches *w)
{
	uint64_t worst = 0;
	int i;

	for (i = 0; i < w->n; i++) {
		store(&w->cpu[i].stop, 1);
		pthread_join(w->cpu[i].thread, NULL);
		if (w->cpu[i].worst > worst)
			worst = w->cpu[i].worst;
	}
	return worst;
}

/* What is watched. Works on waits that are pending on words[0]; returns whether it went well. */
struct operation {
	int fd;
	uint32_t *words;
	int n;
};

static int requeue_all(int fd, uint32_t *from, uint32_t *to)
{
	struct memwait_requeue arg = {
		.addr = (uintptr_t)from,
		.target = (uintptr_t)to,
		.move = MEMWAIT_ALL,
		.flags = U32,
	};
	int ret = xioctl(fd, MEMWAIT_IOC_REQUEUE, &arg);

	return ret ? ret : (int)arg.moved;
}

static bool do_nothing(struct operation *op)
{
	uint64_t end = now() + NSEC_PER_SEC / 2;

	(void)op;
	while (now() < end)
		;
	return true;
}

static bool do_notify(struct operation *op)
{
	return mw_notify(op->fd, op->words, MEMWAIT_ALL, U32) == op->n;
}

static bool do_notify_many(struct operation *op)
{
	struct memwait_notify notifies[16];
	uint32_t woken[16];
	int i;

	for (i = 0; i < 16; i++)
		notifies[i] = (struct memwait_notify) { .addr = (uintptr_t)(op->words + i),
							.count = MEMWAIT_ALL, .flags = U32 };
	return mw_notify_many(op->fd, notifies, 16, woken) == 16 && (int)woken[0] == op->n;
}

static bool do_requeue(struct operation *op)
{
	return requeue_all(op->fd, op->words, op->words + 1) == op->n;
}

static bool do_requeue_back(struct operation *op)
{
	/* So that the other one is the source. */
	return requeue_all(op->fd, op->words + 1, op->words) == op->n;
}

static bool do_close(struct operation *op)
{
	return renew(&op->fd);
}

static bool do_expire(struct operation *op)
{
	return read_many(op->fd, op->n);
}

/*
 * What is not of the operation's making, as a neighbour of the virtual machine, is not there each
 * time: one good try is enough. It is good if the threads were late for a part of the operation's
 * time only, or by hardly anything. Returns whether the operation went well.
 */
static bool try_watched(struct __test_metadata *_metadata, const char *name, struct operation *op,
			bool (*operation)(struct operation *op), bool *good)
{
	uint64_t start, took, late;
	struct watches w;
	bool ok;

	ok = watch_start(&w);
	start = now();
	ok = ok && operation(op);
	took = now() - start;
	late = watch_stop(&w);
	TH_LOG("%s, %d waits: %ld us, a FIFO thread was up to %ld us late", name, op->n,
	       (long)took / 1000, (long)late / 1000);
	*good |= late < LATE_MS * NSEC_PER_MSEC || late < took / 3;
	return ok;
}

#define MANY_WAITS	200000

/* An operation on waits without a deadline, another one, and the close of what they have left. */
static void watch_operation(struct __test_metadata *_metadata, const char *name, uint32_t *words,
			    bool (*first)(struct operation *op),
			    bool (*second)(struct operation *op))
{
	struct operation op = { .words = words, .n = allow_many_waits(MANY_WAITS) };
	bool good[4] = { false, false, !second, false };
	int i;

	if (geteuid())
		SKIP(return, "needs root for threads of real time");
	op.fd = memwait_open(O_NONBLOCK);
	ASSERT_LE(0, op.fd);
	ASSERT_EQ(0, bind_to(0));
	ASSERT_TRUE(try_watched(_metadata, "nothing with", &op, do_nothing, &good[0]));
	for (i = 0; i < WATCHES; i++) {
		ASSERT_EQ(op.n, arm_many(op.fd, words, op.n, MEMWAIT_FOREVER, NULL));
		ASSERT_TRUE(try_watched(_metadata, name, &op, first, &good[1]));
		ASSERT_TRUE(!second ||
			    try_watched(_metadata, "and back", &op, second, &good[2]));
		ASSERT_TRUE(try_watched(_metadata, "close", &op, do_close, &good[3]));
	}
	close(op.fd);
	EXPECT_IN_TIME(good[1]);
	EXPECT_IN_TIME(good[2]);
	EXPECT_IN_TIME(good[3]);
}

LIMITS_TEST(R29_a_notify_of_many_leaves_the_processor)
{
	watch_operation(_metadata, "notify", self->word, do_notify, NULL);
}

LIMITS_TEST(R29_a_notify_many_leaves_the_processor)
{
	watch_operation(_metadata, "notify many", self->word, do_notify_many, NULL);
}

LIMITS_TEST(R29_a_requeue_of_many_leaves_the_processor)
{
	watch_operation(_metadata, "requeue", self->word, do_requeue, do_requeue_back);
}

LIMITS_TEST(R29_an_expiry_of_many_leaves_the_processor)
{
	struct operation op = { .words = self->word, .n = allow_many_waits(MANY_WAITS) };
	bool good = false;
	int i;

	if (geteuid())
		SKIP(return, "needs root for threads of real time");
	op.fd = memwait_open(O_NONBLOCK);
	ASSERT_LE(0, op.fd);
	for (i = 0; i < 2; i++) {
		ASSERT_NE(0, arm_timed(&op.fd, op.words, op.n, NULL));
		ASSERT_TRUE(try_watched(_metadata, "expiry", &op, do_expire, &good));
		ASSERT_TRUE(renew(&op.fd));
	}
	close(op.fd);
	EXPECT_IN_TIME(good);
}

#define POLLERS	100000

static bool do_notify_one(struct operation *op)
{
	return mw_notify(op->fd, op->words, 1, U32) == 1;
}

/* Returns how many descriptors of an edge-triggered set are ready. */
static int drain(int epoll)
{
	static struct epoll_event events[1024];
	int n, sum = 0;

	while ((n = epoll_wait(epoll, events, 1024, 0)) > 0)
		sum += n;
	return sum;
}

/* An epoll set has a context as often as there are descriptors of it. */
MEMWAIT_TEST(R29_a_notify_of_a_context_with_many_pollers_leaves_the_processor)
{
	struct rlimit many = { POLLERS + 100, POLLERS + 100 }, before;
	int n = (long)POLLERS * how_many_waits(MANY_WAITS) / MANY_WAITS, epoll, fd, i;
	struct operation op = { .words = self->shared, .n = n };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	bool good = false;

	if (geteuid())
		SKIP(return, "needs root for threads of real time");
	op.fd = memwait_open(O_NONBLOCK);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	getrlimit(RLIMIT_NOFILE, &before);
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &many));
	for (i = 0; i < n; i++) {
		fd = dup(op.fd);
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
	}
	for (i = 0; i < WATCHES; i++) {
		ASSERT_EQ(1, arm_many(op.fd, op.words, 1, MEMWAIT_FOREVER, NULL));
		ASSERT_TRUE(try_watched(_metadata, "notify, with pollers instead of", &op,
					do_notify_one, &good));
		/* All of them have been woken. */
		ASSERT_EQ(n, drain(epoll));
	}
	EXPECT_IN_TIME(good);
	close_range(epoll, ~0U, 0);
	close(op.fd);
	setrlimit(RLIMIT_NOFILE, &before);
}

/*
 * R29: contexts of one step, with more pollers each than a step wakes. What a step wakes is woken
 * with preemption disabled, so it must come to the last context before it has woken many of the
 * others.
 */
#define STEP_CONTEXTS	16
#define STEP_POLLERS	64
#define CONTEXT_POLLERS	70
#define ALL_POLLERS	(STEP_CONTEXTS * CONTEXT_POLLERS)

MEMWAIT_TEST(R29_many_pollers_of_many_contexts_are_not_one_step)
{
	struct rlimit many = { ALL_POLLERS + 100, ALL_POLLERS + 100 }, before;
	static struct epoll_event ready[ALL_POLLERS + 1];
	int epoll = epoll_create1(EPOLL_CLOEXEC), contexts[STEP_CONTEXTS], seen = 0, fd, i, j;
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int woken[STEP_CONTEXTS] = { 0 };

	if (geteuid())
		SKIP(return, "needs root for so many descriptors");
	getrlimit(RLIMIT_NOFILE, &before);
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &many));
	for (i = 0; i < STEP_CONTEXTS; i++) {
		contexts[i] = memwait_open(O_NONBLOCK);
		ASSERT_LE(0, contexts[i]);
		ASSERT_EQ(1, arm_many(contexts[i], self->shared, 1, MEMWAIT_FOREVER, NULL));
		event.data.u32 = i;
		for (j = 0; j < CONTEXT_POLLERS; j++) {
			fd = dup(contexts[i]);
			ASSERT_LE(0, fd);
			ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
		}
	}
	EXPECT_EQ(STEP_CONTEXTS, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	/* In the order in which they were woken. */
	EXPECT_EQ(ALL_POLLERS, epoll_wait(epoll, ready, ALL_POLLERS + 1, 0));
	for (i = 0; i < ALL_POLLERS; i++) {
		seen += !woken[ready[i].data.u32]++;
		if (i == STEP_POLLERS - 1)
			EXPECT_EQ(STEP_CONTEXTS, seen);
	}
	for (i = 0; i < STEP_CONTEXTS; i++)
		EXPECT_EQ(CONTEXT_POLLERS, woken[i]);
	close_range(epoll, ~0U, 0);
	setrlimit(RLIMIT_NOFILE, &before);
}

/* Who moves all waits to and fro for ever, now alone on his processor, now driven out of it. */
#define MEETINGS	21

struct mover {
	int running, stop;
};

static int compare_times(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static pid_t fork_spinner(int cpu, struct mover *m)
{
	pid_t pid = fork();

	if (!pid) {
		bind_to(cpu);
		while (!load(&m->stop))
			;
		_exit(0);
	}
	return pid;
}

static bool is_preempt_rt(void)
{
	struct utsname name;

	return !uname(&name) && strstr(name.version, "PREEMPT_RT");
}

/*
 * How late a thread's time-outs are, and how long notifies take, beside the mover. With PREEMPT_RT
 * the mover may be preempted while it has the lock, and then has three thousandths of its processor
 * until it gives the lock back; or it takes the lock again before a thread that waited for it runs.
 */
static void meet_mover(struct __test_metadata *_metadata, int fd, uint32_t *word, const char *how)
{
	long median = is_preempt_rt() ? 5000 : 40, worst = is_preempt_rt() ? 60000 : 3000;
	uint64_t late[MEETINGS], took[MEETINGS], time;
	int i, ret;

	for (i = 0; i < MEETINGS; i++) {
		time = in_ms(20);
		ret = mw_wait(fd, word, 0, time, U32);
		late[i] = now() - time;
		EXPECT_TRUE(ret == MEMWAIT_TIMED_OUT || ret == MEMWAIT_OK);
		time = now();
		EXPECT_LE(0, mw_notify(fd, word, 1, U32));
		took[i] = now() - time;
	}
	qsort(late, MEETINGS, sizeof(late[0]), compare_times);
	qsort(took, MEETINGS, sizeof(took[0]), compare_times);
	TH_LOG("%s: time-out late by %ld us (median) to %ld us, notify of one %ld us to %ld us",
	       how, (long)late[MEETINGS / 2] / 1000, (long)late[MEETINGS - 1] / 1000,
	       (long)took[MEETINGS / 2] / 1000, (long)took[MEETINGS - 1] / 1000);
	EXPECT_WITHIN_MS(median, late[MEETINGS / 2]);
	EXPECT_WITHIN_MS(median, took[MEETINGS / 2]);
	EXPECT_WITHIN_MS(worst, late[MEETINGS - 1]);
	EXPECT_WITHIN_MS(worst, took[MEETINGS - 1]);
}

LIMITS_TEST(R28_who_requeues_for_ever_holds_up_nobody)
{
	struct mover *m = shared_page(4096);
	int n = allow_many_waits(MANY_WAITS);
	pid_t mover, spinner;
	uint64_t death;

	if (processors() < 2)
		SKIP(return, "needs two processors");
	ASSERT_EQ(0, bind_to(1));
	ASSERT_EQ(n, arm_many(self->fd, self->word, n, MEMWAIT_FOREVER, NULL));
	mover = fork();
	if (!mover) {
		if (bind_to(0) || set_idle())
			_exit(1);
		for (;;) {
			if (requeue_all(self->fd, self->word, self->word + 1) < 0 ||
			    requeue_all(self->fd, self->word + 1, self->word) < 0)
				_exit(2);
			store(&m->running, 1);
		}
	}
	EXPECT_TRUE(await_flag(&m->running, 30));
	meet_mover(_metadata, self->fd, self->word, "the mover alone");
	spinner = fork_spinner(0, m);
	meet_mover(_metadata, self->fd, self->word, "the mover driven out");
	store(&m->stop, 1);
	EXPECT_EQ(0, child_status(spinner));
	EXPECT_EQ(0, waitpid(mover, NULL, WNOHANG));
	death = kill_child(mover);
	TH_LOG("the mover's death: %ld ms", in_millis(death));
	EXPECT_WITHIN_MS(2000, death);
	munmap(m, 4096);
}

/* R13: those who come back at once, while a call has many others to do. */
#define COMING_BACK	8
#define OTHERS		20000

struct returner {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int *stop;
	uint64_t deadline;	/* from now on, or 0: never */
};

static void *come_back(void *arg)
{
	struct returner *r = arg;

	while (!load(r->stop))
		mw_wait(r->fd, r->word, 0, r->deadline ? now() + r->deadline : MEMWAIT_FOREVER,
			U32);
	return NULL;
}

static void start_returners(struct __test_metadata *_metadata, struct returner *r, int fd,
			    uint32_t *word, int *stop, uint64_t deadline)
{
	int i;

	for (i = 0; i < COMING_BACK; i++) {
		r[i] = (struct returner) { .fd = fd, .word = word, .stop = stop,
					   .deadline = deadline };
		ASSERT_EQ(0, pthread_create(&r[i].thread, NULL, come_back, &r[i]));
	}
}

static void stop_returners(struct returner *r, int fd, uint32_t *word, int *stop)
{
	int i;

	store(stop, 1);
	for (i = 0; i < COMING_BACK; i++) {
		while (pthread_tryjoin_np(r[i].thread, NULL)) {
			mw_notify(fd, word, MEMWAIT_ALL, U32);
			usleep(1000);
		}
	}
}

MEMWAIT_TEST(R13_who_comes_back_is_not_notified_twice_by_one_call)
{
	struct memwait_completion done[BATCH];
	struct returner r[COMING_BACK];
	int stop = 0, i, ret, got, n;
	uint64_t start;

	start_returners(_metadata, r, self->fd, self->shared, &stop, 0);
	await_waiters(self->fd, self->shared, U32, COMING_BACK);
	for (i = 0; i < 5; i++) {
		ASSERT_EQ(OTHERS, arm_many(self->fd, self->shared, OTHERS, MEMWAIT_FOREVER, NULL));
		await_waiters(self->fd, self->shared, U32, OTHERS + COMING_BACK);
		start = now();
		ret = mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32);
		EXPECT_EQ(OTHERS + COMING_BACK, ret);
		EXPECT_WITHIN_MS(5000, now() - start);
		for (got = 0; got < OTHERS; got += n) {
			n = mw_read(self->fd, done, BATCH);
			ASSERT_LT(0, n);
		}
		await_waiters(self->fd, self->shared, U32, COMING_BACK);
	}
	stop_returners(r, self->fd, self->shared, &stop);
}

MEMWAIT_TEST(R13_a_requeue_to_the_same_word_ends)
{
	struct returner r[COMING_BACK];
	int stop = 0, i, ret;
	uint64_t start;

	ASSERT_EQ(OTHERS, arm_many(self->fd, self->shared, OTHERS, MEMWAIT_FOREVER, NULL));
	start_returners(_metadata, r, self->fd, self->shared, &stop, 50000);
	for (i = 0; i < 20; i++) {
		start = now();
		ret = requeue_all(self->fd, self->shared, self->shared);
		EXPECT_LE(OTHERS, ret);
		EXPECT_GE(OTHERS + COMING_BACK, ret);
		EXPECT_WITHIN_MS(5000, now() - start);
	}
	/* Those who come back have joined behind the others, for whom nobody reads. */
	stop_returners(r, self->fd, self->shared, &stop);
}

/* R29: calls on very long arrays. These are mapped so that they take hardly any memory. */
#define LONG_ARRAY	1000000000U
#define LONG_BATCH	100000000U
#define CHUNK		40960	/* entries that begin on a page again */

struct long_call {
	int started, returned, result;
};

/* Entries of count 0. */
static int call_notify_many(int fd, uint32_t *word)
{
	size_t size = (size_t)LONG_ARRAY * sizeof(struct memwait_notify);
	void *array = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			   0);

	(void)word;
	return array == MAP_FAILED ? -ENOMEM : mw_notify_many(fd, array, LONG_ARRAY, NULL);
}

/* Entries that are NOT_EQUAL. The same part of a file stands there again and again. */
static int call_wait_async(int fd, uint32_t *word)
{
	size_t size = CHUNK * sizeof(struct memwait_async), offset;
	size_t total = LONG_BATCH / CHUNK * size;
	struct memwait_wait_async arg = BATCH_OF(0, LONG_BATCH / CHUNK * CHUNK);
	int memory = memfd_create("entries", 0), i;
	struct memwait_async *e;
	char *array;

	array = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (array == MAP_FAILED || ftruncate(memory, size))
		return -ENOMEM;
	for (offset = 0; offset < total; offset += size) {
		if (mmap(array + offset, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			 memory, 0) == MAP_FAILED)
			return -ENOMEM;
	}
	e = (void *)array;
	for (i = 0; i < CHUNK; i++) {
		e[i].wait.addr = (uintptr_t)word;
		e[i].wait.expected = 1;
		e[i].wait.deadline = MEMWAIT_FOREVER;
		e[i].wait.flags = U32;
	}
	arg.waits = (uintptr_t)array;
	return xioctl(fd, MEMWAIT_IOC_WAIT_ASYNC, &arg);
}

/* Processor time that a process has used in the kernel, in ticks. */
static long system_time(pid_t pid)
{
	char path[64], line[1024], *p;
	long ticks = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	p = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	if (f)
		fclose(f);
	if (p)
		sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %ld", &ticks);
	return ticks;
}

/* Returns when the call has been at work in the kernel for some time. */
static pid_t start_long_call(struct long_call *c, int fd, uint32_t *word,
			     int (*call)(int fd, uint32_t *word))
{
	pid_t pid = fork();
	long before;

	if (!pid) {
		handle(SIGUSR1, 0);
		store(&c->started, 1);
		c->result = call(fd, word);
		store(&c->returned, 1);
		_exit(0);
	}
	while (!load(&c->started))
		usleep(1000);
	before = system_time(pid);
	/* Mapping the array is far below that. */
	while (!load(&c->returned) && system_time(pid) < before + 100)
		usleep(10000);
	return pid;
}

static void signal_long_call(struct __test_metadata *_metadata, int fd, uint32_t *word,
			     int (*call)(int fd, uint32_t *word), int whole)
{
	struct long_call *c = shared_page(4096);
	pid_t pid = start_long_call(c, fd, word, call);
	uint64_t start = now();
	int status;
	bool gone;

	kill(pid, SIGUSR1);
	gone = await_gone(pid, &status, 10);
	TH_LOG("a signal is answered %s %ld ms, with %d of %d", gone ? "after" : "not within",
	       in_millis(now() - start), c->result, whole);
	EXPECT_TRUE(gone);
	if (gone) {
		EXPECT_LT(0, c->result);
		EXPECT_GT(whole, c->result);
	} else {
		EXPECT_WITHIN_MS(5000, kill_child(pid));
	}
	munmap(c, 4096);
}

MEMWAIT_TEST(R29_a_long_notify_many_answers_signals)
{
	signal_long_call(_metadata, self->fd, self->shared, call_notify_many, LONG_ARRAY);
}

MEMWAIT_TEST(R29_a_long_batch_answers_signals)
{
	signal_long_call(_metadata, self->fd, self->shared, call_wait_async,
			 LONG_BATCH / CHUNK * CHUNK);
}

static void freeze_long_call(struct __test_metadata *_metadata, int fd, uint32_t *word,
			     int (*call)(int fd, uint32_t *word))
{
	struct long_call *c = shared_page(4096);
	uint64_t start;
	bool frozen = false, gone;
	int status;
	pid_t pid;

	rmdir(BOX);	/* of a test that was killed */
	if (mkdir(BOX, 0755) || read_number(BOX "/cgroup.freeze")) {
		rmdir(BOX);
		SKIP(return, "no cgroup v2 at /sys/fs/cgroup");
	}
	pid = start_long_call(c, fd, word, call);
	EXPECT_EQ(0, write_number(BOX "/cgroup.procs", pid));
	start = now();
	EXPECT_EQ(0, write_number(BOX "/cgroup.freeze", 1));
	while (!frozen && now() < start + 10 * NSEC_PER_SEC) {
		frozen = read_number_of(BOX "/cgroup.events", "frozen") == 1;
		usleep(1000);
	}
	TH_LOG("%s %ld ms", frozen ? "frozen after" : "not frozen within",
	       in_millis(now() - start));
	EXPECT_TRUE(frozen);
	EXPECT_EQ(0, write_number(BOX "/cgroup.freeze", 0));
	if (frozen) {
		/* It goes on, or has come to an end. */
		kill(pid, SIGUSR1);
		gone = await_gone(pid, &status, 10);
		EXPECT_TRUE(gone);
		EXPECT_TRUE(!gone || c->result > 0);
		if (!gone)
			kill_child(pid);
	} else {
		kill_child(pid);
	}
	EXPECT_EQ(0, rmdir(BOX));
	munmap(c, 4096);
}

MEMWAIT_TEST(R29_a_long_notify_many_freezes)
{
	freeze_long_call(_metadata, self->fd, self->shared, call_notify_many);
}

MEMWAIT_TEST(R29_a_long_batch_freezes)
{
	freeze_long_call(_metadata, self->fd, self->shared, call_wait_async);
}

/*
 * R30: the waits of somebody who is of no importance, and may use a hundredth of a processor,
 * expire all at once. Others, one on each processor, are to feel little of it.
 */
#define EXPIRING	600000
#define OWNED_CONTEXTS	32	/* one kernel thread for each would leave others nothing */

struct counter {
	pthread_t thread;
	int cpu;
	uint64_t from[2], to[2];	/* two spans of time */
	uint64_t turns[2];		/* how far it came in each */
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

/* Returns false if there is no such thing. */
static bool make_slow_box(bool *enabled)
{
	rmdir(BOX);	/* of a test that was killed */
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

/* Waits of several contexts, for the same time. Returns it, or 0. */
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
	pid = fork();
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
		TH_LOG("processor %d: after the deadline %d %% of what it was before", i,
		       (int)(share * 100));
		EXPECT_LT(0, c[i].turns[0]);
		EXPECT_IN_TIME(share >= 0.25);
	}
	if (slow)
		write_number("/sys/fs/cgroup/cgroup.procs", pid);
	kill_child(pid);
	if (slow) {
		EXPECT_EQ(0, rmdir(BOX));
		if (enabled)
			write_file("/sys/fs/cgroup/cgroup.subtree_control", "-cpu");
	} else {
		TH_LOG("without cpu.max");
	}
	munmap(o, 4096);
}

/* R30: how often an event loop is woken that gets many completions, and reads none of them. */
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

	/* If it may: so that hardly any of them coincide. */
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
	usleep(100000);		/* for an edge that has just been made */
	store(&e->stop, 1);
	pthread_join(e->thread, NULL);
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
	EXPECT_TRUE(read_many(self->fd, n));
	edges = stop_edges(&e);
	TH_LOG("expiry of %d: %ld edges", n, edges);
	EXPECT_LE(1, edges);
	EXPECT_GE(16, edges);
}

/*
 * R30: a loop of real time is told of its deadlines although threads of lower priority, which are
 * of real time too, keep every processor busy, and no kernel thread runs.
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
	uint64_t late[DEADLINES], deadline;
	int n = processors(), i;

	if (geteuid())
		SKIP(return, "needs root for threads of real time");
	if (is_preempt_rt())
		SKIP(return, "PREEMPT_RT runs timers in kernel threads, those of timerfd too");
	if (n > MAX_PROCESSORS)
		n = MAX_PROCESSORS;
	ASSERT_EQ(0, set_fifo(50));
	/* Below what the kernel leaves to threads of real time. */
	for (i = 0; i < n; i++) {
		c[i].cpu = i;
		c[i].to[0] = now() + 800 * NSEC_PER_MSEC;
		ASSERT_EQ(0, pthread_create(&c[i].thread, NULL, keep_busy, &c[i]));
	}
	usleep(50000);
	for (i = 0; i < DEADLINES; i++) {
		deadline = in_ms(20);
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, deadline, U32, i,
						    NULL));
		ASSERT_EQ(1, poll(&pfd, 1, 5000));
		ASSERT_EQ(1, mw_read(self->fd, &done, 1));
		late[i] = now() - deadline;
		EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
		EXPECT_EQ(i, done.user_data);
	}
	for (i = 0; i < n; i++)
		pthread_join(c[i].thread, NULL);
	qsort(late, DEADLINES, sizeof(late[0]), compare_times);
	TH_LOG("late by %ld us (median) to %ld us", (long)late[DEADLINES / 2] / 1000,
	       (long)late[DEADLINES - 1] / 1000);
	EXPECT_WITHIN_MS(100, late[DEADLINES - 1]);
}

/* R30: who cancels one wait while many others expire. */
#define CANCEL_WAITS	200000

struct canceller {
	uint64_t since;		/* it is in a cancel; 0: it is not */
	uint64_t worst, forever;
	int result, cancels, done;
};

static int timed_cancel(struct canceller *c, int fd, uint64_t id, uint64_t *worst)
{
	uint64_t start = now();
	int ret;

	__atomic_store_n(&c->since, start, __ATOMIC_RELEASE);
	ret = mw_cancel(fd, id);
	__atomic_store_n(&c->since, 0, __ATOMIC_RELEASE);
	if (now() - start > *worst)
		*worst = now() - start;
	c->cancels++;
	return ret;
}

/* As the waits expire in the order of their arming, it cancels those that are about to. */
static void run_canceller(struct canceller *c, int fd, const uint64_t *ids, int n, uint64_t forever)
{
	long next;
	int i;

	/* If it may: so that it runs when there is something to cancel. */
	set_fifo(10);
	while (!mw_readable(fd))
		usleep(100);
	c->result = timed_cancel(c, fd, forever, &c->forever);
	while ((next = n - context_count(fd, "pending")) < n) {
		for (i = 0; i < 64 && next + i < n; i++)
			timed_cancel(c, fd, ids[next + i], &c->worst);
	}
	store(&c->done, 1);
	_exit(0);
}

static pid_t start_canceller(struct __test_metadata *_metadata, struct canceller *c, int *fd,
			     uint32_t *word, uint64_t *ids, int n)
{
	uint64_t forever;
	pid_t pid;

	ASSERT_NE(0, arm_timed(fd, word, n, ids));
	ASSERT_EQ(1, arm_many(*fd, word, 1, MEMWAIT_FOREVER, &forever));
	pid = fork();
	if (!pid)
		run_canceller(c, *fd, ids, n, forever);
	return pid;
}

/* Ends waits of which the canceller may be about to cancel one. */
static void read_some(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct memwait_completion done[BATCH];

	if (poll(&pfd, 1, 1) == 1)
		mw_read(fd, done, BATCH);
}

LIMITS_TEST(R30_a_cancel_does_not_wait_for_others_expiry)
{
	struct canceller *c = shared_page(4096);
	int n = allow_many_waits(CANCEL_WAITS);
	uint64_t *ids = calloc(n, sizeof(*ids));
	pid_t pid = start_canceller(_metadata, c, &self->fd, self->word, ids, n);

	while (!load(&c->done) && kill(pid, 0) == 0)
		read_some(self->fd);
	EXPECT_EQ(0, child_status(pid));
	TH_LOG("the longest of %d cancels: %ld us; of one without a deadline: %ld us", c->cancels,
	       (long)c->worst / 1000, (long)c->forever / 1000);
	EXPECT_EQ(0, c->result);
	EXPECT_WITHIN_MS(1000, c->worst);
	EXPECT_WITHIN_MS(1000, c->forever);
	free(ids);
	munmap(c, 4096);
}

LIMITS_TEST(R28_a_thread_in_a_cancel_can_be_killed)
{
	struct canceller *c = shared_page(4096);
	int n = allow_many_waits(CANCEL_WAITS);
	uint64_t *ids = calloc(n, sizeof(*ids)), since, death = 0;
	pid_t pid = start_canceller(_metadata, c, &self->fd, self->word, ids, n);
	bool waits = false;

	/* If no cancel takes so long there is nothing to be killed in. */
	while (!load(&c->done) && !waits) {
		read_some(self->fd);
		since = __atomic_load_n(&c->since, __ATOMIC_ACQUIRE);
		waits = since && now() > since + 200 * NSEC_PER_MSEC;
	}
	death = kill_child(pid);
	TH_LOG("a cancel %s; death: %ld ms", waits ? "waits" : "never waits", in_millis(death));
	EXPECT_WITHIN_MS(1000, death);
	free(ids);
	munmap(c, 4096);
}

/* A check in a child, which ends with the first that does not hold. */
#define CHECK(condition)						\
	do {								\
		if (!(condition)) {					\
			fprintf(stderr, "# line %d: %s\n", __LINE__, #condition); \
			_exit(1);					\
		}							\
	} while (0)

/* Subordinate users, as newuidmap(1) maps them: the first is 0 in the namespace. */
#define SUBORDINATE	100000

/*
 * Enters a user namespace of its own, whose map the parent writes, and becomes the first user
 * there. If there are none, exits with 77.
 */
static void enter_namespace(int parent)
{
	char c = 0;

	if (unshare(CLONE_NEWUSER))
		_exit(77);
	if (write(parent, &c, 1) != 1 || read(parent, &c, 1) != 1 || setresuid(0, 0, 0))
		_exit(98);
}

/* Forks a child that calls enter_namespace(*parent). Returns 0 in the child. */
static pid_t fork_into_namespace(int *parent)
{
	int ends[2], map;
	char path[64], c;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return -1;
	pid = fork();
	if (!pid) {
		*parent = ends[1];
		close(ends[0]);
		return 0;
	}
	close(ends[1]);
	/* If the child has ended, its status tells why. */
	if (read(ends[0], &c, 1) == 1) {
		/* Who has no group there can make no namespace within it. */
		snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
		if (write_file(path, "0 0 65536"))
			kill(pid, SIGKILL);
		snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
		map = open(path, O_WRONLY);
		if (dprintf(map, "0 %d 2\n", SUBORDINATE) > 0 && write(ends[0], &c, 1) != 1)
			kill(pid, SIGKILL);
		close(map);
	}
	close(ends[0]);
	return pid;
}

/* Arms up to n waits, in a context that stays open. Returns how many could be armed. */
static int arm_some(uint32_t *word, int n)
{
	int fd = memwait_open(0), i;

	for (i = 0; i < n; i++)
		if (mw_async(fd, word, 0, MEMWAIT_FOREVER, U32, 0, NULL) != MEMWAIT_PENDING)
			break;
	return i;
}

/* A user has the users of his user namespaces for himself: they are no others. */
LIMITS_TEST(R31_a_user_namespace_has_no_limit_of_its_own)
{
	int parent, ret;
	pid_t pid;

	ASSERT_EQ(0, set_limit(20));
	pid = fork_into_namespace(&parent);
	if (!pid) {
		become_nobody();
		CHECK(arm_some(self->word, 10) == 10);
		enter_namespace(parent);
		CHECK(arm_some(self->word, 5) == 5);
		CHECK(!setresuid(1, 1, 1));
		CHECK(arm_some(self->word, 6) == 5);
		/* Of those within one another the outermost counts. */
		CHECK(!unshare(CLONE_NEWUSER));
		CHECK(arm_some(self->word, 1) == 0);
		_exit(0);
	}
	ret = child_status(pid);
	if (ret == 77)
		SKIP(return, "no user namespaces");
	EXPECT_EQ(0, ret);
}

/* Those of a namespace that root has made are users whom root has made. */
LIMITS_TEST(R31_users_of_a_namespace_of_root_have_limits_of_their_own)
{
	int parent, ret;
	pid_t pid;

	ASSERT_EQ(0, set_limit(20));
	pid = fork_into_namespace(&parent);
	if (!pid) {
		CHECK(arm_some(self->word, 10) == 10);
		enter_namespace(parent);
		CHECK(arm_some(self->word, 21) == 20);
		CHECK(!setresuid(1, 1, 1));
		CHECK(arm_some(self->word, 21) == 20);
		_exit(0);
	}
	ret = child_status(pid);
	if (ret == 77)
		SKIP(return, "no user namespaces");
	EXPECT_EQ(0, ret);
}

/*
 * R31: groups of a victim are charged to his memory cgroup. A thread that the notifier has woken
 * takes the notifier's processor away before it has let go of the groups that it has claimed, and
 * the victim closes his context.
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

MEMWAIT_TEST(R31_who_notifies_keeps_few_groups_of_others)
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
	pid = fork();
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
	TH_LOG("%ld bytes of %ld", after, before);
	EXPECT_LT(KEPT_GROUPS * MEMWAIT_GROUP_MAX * 64L, before);
	EXPECT_GT(before / 8, after);
	kill_child(pid);
	EXPECT_EQ(0, rmdir(CGROUP));
	munmap(k, 4096);
}

/* R21: a reader whose buffer is not there yet, and another one that does not want to wait. */
struct fault_reader {
	pthread_t thread;
	int fd, result, done;
	struct memwait_completion *buffer;
};

static void *read_four(void *arg)
{
	struct fault_reader *r = arg;

	r->result = mw_read(r->fd, r->buffer, 4);
	store(&r->done, 1);
	return NULL;
}

MEMWAIT_TEST(R21_a_nonblocking_read_does_not_wait_for_anothers_page_fault)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero = { 0 };
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC), i;
	struct memwait_completion done[4], *buffer = private_page(self->page);
	struct fault_reader slow = { .fd = self->fd, .buffer = buffer };
	struct fault_reader quick = { .fd = self->fd, .buffer = done };
	struct uffd_msg msg;

	if (uffd < 0)
		SKIP(return, "userfaultfd: %s", strerror(errno));
	for (i = 0; i < 3; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, MEMWAIT_FOREVER,
						    U32, i, NULL));
	ASSERT_EQ(3, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_API, &api));
	reg.range.start = (uintptr_t)buffer;
	reg.range.len = self->page;
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_REGISTER, &reg));
	ASSERT_EQ(0, pthread_create(&slow.thread, NULL, read_four, &slow));
	ASSERT_EQ(sizeof(msg), read(uffd, &msg, sizeof(msg)));

	ASSERT_EQ(0, pthread_create(&quick.thread, NULL, read_four, &quick));
	EXPECT_TRUE(await_flag(&quick.done, 3));
	EXPECT_EQ(0, load(&slow.done));
	zero.range = reg.range;
	EXPECT_EQ(0, ioctl(uffd, UFFDIO_ZEROPAGE, &zero));
	pthread_join(slow.thread, NULL);
	pthread_join(quick.thread, NULL);
	EXPECT_EQ(3, slow.result);
	EXPECT_EQ(-EAGAIN, quick.result);
	close(uffd);
	munmap(buffer, self->page);
}

/* R4: deadlines that lie so close together that one might take them all at once. */
#define CLOSE_WAITS	1000
#define CLOSE_THREADS	32
#define APART_NS	50000

MEMWAIT_TEST(R4_async_deadlines_close_together_are_not_early)
{
	struct memwait_completion done[64];
	uint64_t first, time, least = ~0ULL;
	int round, i, n, got, armed, early = 0;

	for (round = 0; round < 5; round++) {
		first = in_ms(100 << round);
		armed = 0;
		for (i = 0; i < CLOSE_WAITS; i++)
			armed += mw_async(self->fd, self->shared, 0, first + i * APART_NS, U32,
					  first + i * APART_NS, NULL) == MEMWAIT_PENDING;
		for (got = 0; got < armed; got += n > 0 ? n : 0) {
			n = mw_read(self->fd, done, 64);
			time = now();
			ASSERT_TRUE(n > 0 || n == -EAGAIN);
			for (i = 0; i < n; i++) {
				ASSERT_EQ(MEMWAIT_TIMED_OUT, done[i].result);
				if (time < done[i].user_data)
					early++;
				else if (time - done[i].user_data < least)
					least = time - done[i].user_data;
			}
		}
	}
	TH_LOG("%d of %d early, the best of the others %ld ns late", early, 5 * CLOSE_WAITS,
	       (long)least);
	EXPECT_EQ(0, early);
}

/*
 * R30, R31: anybody can name any owner, in as many waits as he may have. Those of the owner's user
 * are told of its death all the same before that has been told to others.
 */
#define NAMED_BY_OTHERS	200000

struct naming {
	int ready, stop;
	long told;
};

static int arm_owned(int fd, const uint64_t *words, int n, uint64_t id)
{
	static struct memwait_async e[BATCH];
	int armed = 0, some, i;

	while (armed < n) {
		struct memwait_wait_async arg = BATCH_OF(e, n - armed < BATCH ? n - armed : BATCH);

		some = arg.count;
		memset(e, 0, sizeof(e));
		for (i = 0; i < some; i++) {
			e[i].wait.addr = (uintptr_t)&words[armed + i];
			e[i].wait.expected = id;
			e[i].wait.deadline = MEMWAIT_FOREVER;
			e[i].wait.flags = MEMWAIT_SIZE_U64 | MEMWAIT_OWNED;
		}
		if (xioctl(fd, MEMWAIT_IOC_WAIT_ASYNC, &arg) != some ||
		    e[some - 1].result != MEMWAIT_PENDING)
			break;
		armed += some;
	}
	return armed;
}

static void name_owner(struct naming *n, uint64_t id)
{
	struct memwait_owner owner = { .flags = MEMWAIT_OWNER_CONTEXT };
	int many = how_many_waits(NAMED_BY_OTHERS), fd, i;
	uint64_t *words = private_page(many * sizeof(*words));

	if (setresuid(NOBODY, NOBODY, NOBODY))
		_exit(1);
	for (i = 0; i < many; i++)
		words[i] = id;
	fd = memwait_open(O_NONBLOCK);
	if (xioctl(fd, MEMWAIT_IOC_OWNER, &owner) || arm_owned(fd, words, many, id) != many)
		_exit(2);
	store(&n->ready, 1);
	while (!load(&n->stop))
		usleep(1000);
	n->told = context_count(fd, "completed");
	_exit(0);
}

struct bereaved {
	pthread_t thread;
	int fd;
	uint64_t *word;
	int result;
};

static void *wait_for_owner(void *arg)
{
	struct memwait_owner owner = { 0 };
	struct bereaved *b = arg;

	b->result = xioctl(b->fd, MEMWAIT_IOC_OWNER, &owner) ? :
		    mw_wait(b->fd, b->word, *b->word, MEMWAIT_FOREVER,
			    MEMWAIT_SIZE_U64 | MEMWAIT_OWNED);
	return NULL;
}

LIMITS_TEST(R31_an_owner_that_others_name_is_told_of_at_once)
{
	struct memwait_owner owner = { 0 };
	struct naming *n = shared_page(4096);
	uint64_t *id = (uint64_t *)self->word;
	struct bereaved bereaved = { .fd = self->fd, .word = id };
	struct memwait_info info;
	int ready[2], many = allow_many_waits(NAMED_BY_OTHERS);
	pid_t dying, naming;
	char byte;

	if (geteuid())
		SKIP(return, "needs root to be another user");
	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel cannot tell of deaths");
	ASSERT_EQ(0, pipe(ready));
	dying = fork();
	if (!dying) {
		if (xioctl(self->fd, MEMWAIT_IOC_OWNER, &owner))
			_exit(1);
		*id = owner.id;
		if (write(ready[1], "", 1) != 1)
			_exit(2);
		pause();
		_exit(0);
	}
	ASSERT_EQ(1, read(ready[0], &byte, 1));
	naming = fork();
	if (!naming)
		name_owner(n, *id);
	EXPECT_TRUE(await_flag(&n->ready, 60));
	/* The last one to name it. */
	ASSERT_EQ(0, pthread_create(&bereaved.thread, NULL, wait_for_owner, &bereaved));
	await_waiters(self->fd, id, MEMWAIT_SIZE_U64, 1);
	kill(dying, SIGKILL);
	pthread_join(bereaved.thread, NULL);
	store(&n->stop, 1);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, bereaved.result);
	EXPECT_EQ(0, child_status(naming));
	TH_LOG("told to %ld of %d others before", n->told, many);
	EXPECT_GT(many / 2, n->told);
	waitpid(dying, NULL, 0);
	close(ready[0]);
	close(ready[1]);
	munmap(n, 4096);
}

/*
 * R28, R30: one kernel thread tells of all deaths, and ends what was bound to processes. Processes
 * of no importance die with many waits, and are driven out while they end them. Then another user's
 * owner dies.
 */
#define SLOW_ROUNDS	3
#define SLOW_DEATHS	8
#define SLOW_WAITS	15000

struct driver {
	pthread_t thread;
	int begin[2];		/* a pipe */
	int told, in_time, failed;
};

/* Lets nothing else run on the processor, until the other one was told. */
static void *drive_out(void *arg)
{
	struct driver *driver = arg;
	uint64_t end;
	char byte;

	/* No longer than 800 ms: the kernel lets others run for some of each second. */
	driver->failed = bind_to(1) || set_fifo(10) || read(driver->begin[0], &byte, 1) != 1;
	end = now() + 800 * NSEC_PER_MSEC;
	while (!load(&driver->told) && now() < end)
		;
	driver->in_time = load(&driver->told);
	return NULL;
}

static void die_slowly(int *ready, const uint32_t *word)
{
	struct memwait_owner owner = { .flags = MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND };
	int fd, many = how_many_waits(SLOW_WAITS);

	become_nobody();
	fd = memwait_open(O_NONBLOCK);
	if (xioctl(fd, MEMWAIT_IOC_OWNER, &owner) || bind_to(1) || set_idle() ||
	    arm_many(fd, word, many, MEMWAIT_FOREVER, NULL) != many)
		_exit(1);
	store(ready, 1);
	while (1)
		pause();
}

static void die_as_owner(int *ready, int fd, uint64_t *word)
{
	struct memwait_owner owner = { 0 };

	if (xioctl(fd, MEMWAIT_IOC_OWNER, &owner))
		_exit(1);
	*word = owner.id;
	store(ready, 1);
	while (1)
		pause();
}

MEMWAIT_TEST(R28_processes_that_do_not_get_to_their_ends_hold_up_no_other_death)
{
	int *ready = shared_page(4096), many = how_many_waits(SLOW_WAITS), round, i;
	uint64_t *word = (uint64_t *)self->shared;
	uint32_t *waits = self->shared + 4;
	struct bereaved bereaved = { .fd = self->fd, .word = word };
	pid_t slow[SLOW_DEATHS], owner;
	struct memwait_info info;

	if (processors() < 2 || geteuid())
		SKIP(return, "needs root, and two processors");
	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel cannot tell of deaths");
	ASSERT_EQ(0, bind_to(0));
	for (round = 0; round < SLOW_ROUNDS; round++) {
		struct driver driver = { 0 };

		memset(ready, 0, (SLOW_DEATHS + 1) * sizeof(*ready));
		for (i = 0; i < SLOW_DEATHS; i++) {
			slow[i] = fork();
			if (!slow[i])
				die_slowly(&ready[i], waits + i);
		}
		owner = fork();
		if (!owner)
			die_as_owner(&ready[i], self->fd, word);
		for (i = 0; i <= SLOW_DEATHS; i++)
			ASSERT_TRUE(await_flag(&ready[i], 60));
		ASSERT_EQ(0, pthread_create(&bereaved.thread, NULL, wait_for_owner, &bereaved));
		await_waiters(self->fd, word, MEMWAIT_SIZE_U64, 1);
		ASSERT_EQ(0, pipe(driver.begin));
		ASSERT_EQ(0, pthread_create(&driver.thread, NULL, drive_out, &driver));

		for (i = 0; i < SLOW_DEATHS; i++)
			kill(slow[i], SIGKILL);
		for (i = 0; i < SLOW_DEATHS; i++) {
			while (mw_waiters(self->fd, waits + i, U32) == many)
				sched_yield();
		}
		ASSERT_EQ(1, write(driver.begin[1], "", 1));
		kill(owner, SIGKILL);
		pthread_join(bereaved.thread, NULL);
		store(&driver.told, 1);
		pthread_join(driver.thread, NULL);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, bereaved.result);
		EXPECT_EQ(0, driver.failed);
		EXPECT_IN_TIME(driver.in_time);
		EXPECT_EQ(128 + SIGKILL, child_status(owner));
		for (i = 0; i < SLOW_DEATHS; i++) {
			EXPECT_EQ(128 + SIGKILL, child_status(slow[i]));
			EXPECT_EQ(0, mw_waiters(self->fd, waits + i, U32));
		}
		close(driver.begin[0]);
		close(driver.begin[1]);
	}
	munmap(ready, 4096);
}

struct sleeper {
	pthread_t thread;
	int fd;
	uint32_t *word;
	uint64_t deadline, end;
	int result;
};

static void *sleep_until(void *arg)
{
	struct sleeper *s = arg;

	s->result = mw_wait(s->fd, s->word, 0, s->deadline, U32);
	s->end = now();
	return NULL;
}

MEMWAIT_TEST(R4_threads_deadlines_close_together_are_not_early)
{
	struct sleeper s[CLOSE_THREADS];
	uint64_t first;
	int round, i;

	for (round = 0; round < 5; round++) {
		first = in_ms(100);
		for (i = 0; i < CLOSE_THREADS; i++) {
			s[i] = (struct sleeper) { .fd = self->fd, .word = self->shared,
						  .deadline = first + i * APART_NS };
			ASSERT_EQ(0, pthread_create(&s[i].thread, NULL, sleep_until, &s[i]));
		}
		for (i = 0; i < CLOSE_THREADS; i++) {
			pthread_join(s[i].thread, NULL);
			EXPECT_EQ(MEMWAIT_TIMED_OUT, s[i].result);
			EXPECT_LE(s[i].deadline, s[i].end);
		}
	}
}

/*
 * R31: limits that are the module's, as that of waits is: put back however a test ends. Each test
 * lowers one for a child that is somebody else, so that nobody is disturbed.
 */
#define PARAMETERS	"/sys/module/memwait/parameters/"
#define PINS		100
#define CONTEXTS	50

FIXTURE(counts)
{
	int fd;
	uint32_t *word;
	long max_pins, max_contexts;
};

FIXTURE_SETUP(counts)
{
	self->fd = memwait_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->word = shared_page(4096);
	self->max_pins = read_number(PARAMETERS "max_user_pins");
	self->max_contexts = read_number(PARAMETERS "max_user_contexts");
	ASSERT_LT(0, self->max_pins);
	ASSERT_LT(0, self->max_contexts);
	if (geteuid())
		SKIP(return, "needs root to set the limits");
}

FIXTURE_TEARDOWN(counts)
{
	write_number(PARAMETERS "max_user_pins", self->max_pins);
	write_number(PARAMETERS "max_user_contexts", self->max_contexts);
	EXPECT_EQ(self->max_pins, read_number(PARAMETERS "max_user_pins"));
	EXPECT_EQ(self->max_contexts, read_number(PARAMETERS "max_user_contexts"));
	close(self->fd);
}

#define COUNTS_TEST(name)	TEST_F_TIMEOUT(counts, name, 300)

static uint64_t user_pins(int fd)
{
	struct memwait_info info;

	return mw_info(fd, &info) ? ~0ULL : info.user_pins;
}

static uint64_t user_contexts(int fd)
{
	struct memwait_info info;

	return mw_info(fd, &info) ? ~0ULL : info.user_contexts;
}

COUNTS_TEST(R31_info_reports_the_limits_in_force)
{
	struct memwait_info info;

	ASSERT_EQ(0, write_number(PARAMETERS "max_user_pins", 1234));
	ASSERT_EQ(0, write_number(PARAMETERS "max_user_contexts", 567));
	ASSERT_EQ(0, mw_info(self->fd, &info));
	EXPECT_EQ(1234, info.max_user_pins);
	EXPECT_EQ(567, info.max_user_contexts);
	EXPECT_LE(1, info.user_contexts);
}

/* Arms a wait on a file of its own, that nothing but the wait keeps. */
static int pin_file(int fd, uint64_t *id)
{
	int memory = memfd_create("pinned", MFD_CLOEXEC), ret;
	void *word;

	if (memory < 0 || ftruncate(memory, 4096))
		return -errno;
	word = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory, 0);
	close(memory);
	if (word == MAP_FAILED)
		return -ENOMEM;
	ret = mw_async(fd, word, 0, MEMWAIT_FOREVER, U32, 0, id);
	munmap(word, 4096);
	return ret;
}

static void run_pinner(uint32_t *word)
{
	struct rlimit few = { 32, 32 };
	struct memwait_completion done[4];
	uint64_t ids[PINS], id;
	int fd, i;

	become_nobody();
	CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	fd = memwait_open(O_NONBLOCK);
	CHECK(user_pins(fd) == 0);
	/* However many waits there are on a file, it is one. */
	for (i = 0; i < 50; i++)
		CHECK(mw_async(fd, word + i, 0, MEMWAIT_FOREVER, U32, i, &ids[0]) ==
		      MEMWAIT_PENDING);
	CHECK(user_pins(fd) == 1);
	CHECK(context_count(fd, "pins") == 1);
	for (i = 1; i < PINS; i++)
		CHECK(pin_file(fd, &ids[i]) == MEMWAIT_PENDING);
	CHECK(user_pins(fd) == PINS);
	CHECK(context_count(fd, "pins") == PINS);
	for (i = 0; i < 3; i++)
		CHECK(pin_file(fd, &id) == -ENOSPC);
	CHECK(id == 0);
	CHECK(user_pins(fd) == PINS);
	CHECK(mw_user_waits(fd) == 50 + PINS - 1);
	/* What is pinned already needs no place. */
	CHECK(mw_async(fd, word + 50, 0, MEMWAIT_FOREVER, U32, 50, NULL) == MEMWAIT_PENDING);
	/* One that is cancelled makes room for one. */
	CHECK(!mw_cancel(fd, ids[7]));
	CHECK(user_pins(fd) == PINS - 1);
	CHECK(pin_file(fd, &ids[7]) == MEMWAIT_PENDING);
	CHECK(pin_file(fd, &id) == -ENOSPC);

	/* The last wait of a file gives it back when it is read. */
	for (i = 0; i < 51; i++)
		CHECK(mw_notify(fd, word + i, 1, U32) == 1);
	while ((i = mw_read(fd, done, 4)) > 0)
		;
	CHECK(i == -EAGAIN);
	CHECK(user_pins(fd) == PINS - 1);
	for (i = 1; i < PINS; i++)
		CHECK(!mw_cancel(fd, ids[i]));
	CHECK(user_pins(fd) == 0);
	CHECK(context_count(fd, "pins") == 0);

	/* So does the close. */
	for (i = 0; i < PINS; i++)
		CHECK(pin_file(fd, &id) == MEMWAIT_PENDING);
	CHECK(pin_file(fd, &id) == -ENOSPC);
	CHECK(renew(&fd));
	CHECK(user_pins(fd) == 0);
	_exit(0);
}

COUNTS_TEST(R31_files_that_only_waits_keep_are_counted)
{
	pid_t pid;

	ASSERT_EQ(0, write_number(PARAMETERS "max_user_pins", PINS));
	pid = fork();
	if (!pid)
		run_pinner(self->word);
	EXPECT_EQ(0, child_status(pid));
}

/* Each child arms a wait on a word that is its own, and dies. */
static int pin_space(int fd)
{
	pid_t pid = fork();

	if (!pid) {
		uint32_t *word = private_page(4096);
		int ret = mw_async(fd, word, 0, MEMWAIT_FOREVER, U32 | MEMWAIT_PRIVATE, 0, NULL);

		_exit(ret == MEMWAIT_PENDING ? 0 : ret == -ENOSPC ? 77 : 1);
	}
	return child_status(pid);
}

static void run_space_pinner(void)
{
	int fd, i;

	become_nobody();
	fd = memwait_open(O_NONBLOCK);
	for (i = 0; i < PINS; i++)
		CHECK(pin_space(fd) == 0);
	CHECK(user_pins(fd) == PINS);
	CHECK(context_count(fd, "pins") == PINS);
	for (i = 0; i < 3; i++)
		CHECK(pin_space(fd) == 77);
	CHECK(mw_user_waits(fd) == PINS);
	CHECK(renew(&fd));
	CHECK(user_pins(fd) == 0);
	_exit(0);
}

COUNTS_TEST(R31_address_spaces_of_the_dead_are_counted)
{
	pid_t pid;

	ASSERT_EQ(0, write_number(PARAMETERS "max_user_pins", PINS));
	pid = fork();
	if (!pid)
		run_space_pinner();
	EXPECT_EQ(0, child_status(pid));
}

static void run_opener(void)
{
	int fds[CONTEXTS], i;

	become_nobody();
	for (i = 0; i < CONTEXTS; i++) {
		fds[i] = memwait_open(0);
		CHECK(fds[i] >= 0);
	}
	CHECK(user_contexts(fds[0]) == CONTEXTS);
	for (i = 0; i < 3; i++)
		CHECK(memwait_open(0) == -EMFILE);
	CHECK(user_contexts(fds[0]) == CONTEXTS);
	close(fds[3]);
	CHECK(user_contexts(fds[0]) == CONTEXTS - 1);
	CHECK(memwait_open(0) >= 0);
	CHECK(memwait_open(0) == -EMFILE);
	_exit(0);
}

COUNTS_TEST(R31_contexts_are_counted)
{
	pid_t pid;
	int i;

	ASSERT_EQ(0, write_number(PARAMETERS "max_user_contexts", CONTEXTS));
	/* The second time as well: the dead have given them back. */
	for (i = 0; i < 2; i++) {
		pid = fork();
		if (!pid)
			run_opener();
		EXPECT_EQ(0, child_status(pid));
	}
}

/*
 * Else a process could fill another one's limit: whose waits are moved within a file, as by a
 * condition variable, and who does not read, would have a pin of each context that moves them.
 */
COUNTS_TEST(R31_a_move_within_a_file_pins_nothing_more)
{
	int mover = memwait_open(O_NONBLOCK), elsewhere = memfd_create("elsewhere", MFD_CLOEXEC);
	uint64_t pins = user_pins(self->fd);
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)self->word,
		.target = (uintptr_t)(self->word + 1),
		.move = 1,
		.flags = U32,
	};
	uint32_t *other;

	ASSERT_LE(0, mover);
	ASSERT_EQ(0, ftruncate(elsewhere, 4096));
	other = mmap(NULL, 4096, PROT_READ, MAP_SHARED, elsewhere, 0);
	ASSERT_NE(MAP_FAILED, other);
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER, U32, 0,
					    NULL));
	EXPECT_EQ(pins + 1, user_pins(self->fd));
	EXPECT_EQ(0, xioctl(mover, MEMWAIT_IOC_REQUEUE, &requeue));
	EXPECT_EQ(1, requeue.moved);
	EXPECT_EQ(1, context_count(self->fd, "pins"));
	EXPECT_EQ(0, context_count(mover, "pins"));
	EXPECT_EQ(1, mw_waiters(self->fd, self->word + 1, U32));

	/* A file that the mover has chosen is kept by nobody. */
	requeue.addr = (uintptr_t)(self->word + 1);
	requeue.target = (uintptr_t)other;
	EXPECT_EQ(-EXDEV, xioctl(mover, MEMWAIT_IOC_REQUEUE, &requeue));
	EXPECT_EQ(1, mw_waiters(self->fd, self->word + 1, U32));
	EXPECT_EQ(1, context_count(self->fd, "pins"));
	EXPECT_EQ(0, context_count(mover, "pins"));
	close(mover);
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 1, 1, U32));
	close(self->fd);
	self->fd = memwait_open(O_NONBLOCK);
	EXPECT_EQ(pins, user_pins(self->fd));
	munmap(other, 4096);
	close(elsewhere);
}

TEST_HARNESS_MAIN
