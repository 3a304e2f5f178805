// SPDX-License-Identifier: GPL-2.0
/*
 * R29: how long an operation on many waits, or on contexts that many pollers wait for, occupies a
 * CPU.
 */
#include "hostile_test.h"

/*
 * R29: measures how late a real-time thread is if it must run every millisecond. There is such a
 * thread on each CPU, because the kernel's own threads may work on any CPU.
 */
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

/* Returns whether all threads run. */
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
	usleep(20000);		/* each thread reads the clock, so that it is in the cache */
	for (i = 0; i < w->n; i++)
		__atomic_store_n(&w->cpu[i].worst, 0, __ATOMIC_RELAXED);
	return true;
}

/* Returns the largest delay. */
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

/*
 * The measured operation on pending waits on words[0]. The functions return whether it succeeded.
 */
struct operation {
	int fd;
	uint32_t *words;
	int n;
	struct memwait_completion *done;
};

static bool do_nothing(struct operation *op)
{
	uint64_t end = now() + NSEC_PER_SEC / 2;

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
	/* The second word is the source of this requeue. */
	return requeue_all(op->fd, op->words + 1, op->words) == op->n;
}

static bool do_close(struct operation *op)
{
	return renew(&op->fd);
}

/* All waits are read by a single read(2). */
static bool do_expire(struct operation *op)
{
	return mw_read(op->fd, op->done, op->n) == op->n;
}

/*
 * Delays that the operation does not cause, for example delays by another virtual machine, do not
 * occur each time. Therefore one good try is enough. A try is good if the delays were a small part
 * of the operation's time, or tiny. Returns whether the operation succeeded.
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
	TH_LOG("%s, %d waits: %ld us; a FIFO thread was up to %ld us late", name, op->n,
	       (long)took / 1000, (long)late / 1000);
	*good |= late < LATE_MS * NSEC_PER_MSEC || late < took / 8;
	return ok;
}

/*
 * Measures an operation on waits without a deadline, a second operation, and the close of the
 * remaining waits.
 */
static void watch_operation(struct __test_metadata *_metadata, const char *name, uint32_t *words,
			    bool (*first)(struct operation *op),
			    bool (*second)(struct operation *op))
{
	struct operation op = { .words = words, .n = allow_many_waits(MANY_WAITS) };
	bool good[4] = { false, false, !second, false };
	int i;

	if (geteuid())
		SKIP(return, "needs root for real-time threads");
	op.fd = open_device(O_NONBLOCK);
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

LIMITS_TEST(R29_a_notify_of_many_waits_yields_the_processor)
{
	watch_operation(_metadata, "notify", self->word, do_notify, NULL);
}

LIMITS_TEST(R29_a_notify_many_yields_the_processor)
{
	watch_operation(_metadata, "notify many", self->word, do_notify_many, NULL);
}

LIMITS_TEST(R29_a_requeue_of_many_waits_yields_the_processor)
{
	watch_operation(_metadata, "requeue", self->word, do_requeue, do_requeue_back);
}

LIMITS_TEST(R29_an_expiry_of_many_waits_yields_the_processor)
{
	struct operation op = { .words = self->word, .n = allow_many_waits(MANY_WAITS) };
	uint64_t deadline;
	bool good = false;
	int i;

	if (geteuid())
		SKIP(return, "needs root for real-time threads");
	op.fd = open_device(O_NONBLOCK);
	op.done = calloc(op.n, sizeof(*op.done));
	ASSERT_NE(NULL, op.done);
	for (i = 0; i < WATCHES; i++) {
		deadline = arm_timed(&op.fd, op.words, op.n, NULL);
		ASSERT_NE(0, deadline);
		sleep_until(now() > deadline && mw_readable(op.fd));
		ASSERT_TRUE(try_watched(_metadata, "expiry", &op, do_expire, &good));
		ASSERT_TRUE(renew(&op.fd));
	}
	free(op.done);
	close(op.fd);
	EXPECT_IN_TIME(good);
}

/*
 * R29: one notify of several contexts, which ends one wait of each context. An epoll set contains
 * each context once for each descriptor. The time for the pollers of one context is spent in other
 * parts of the kernel, but other threads must get the CPU before the pollers of the next context
 * are woken.
 */
#define POLLERS		100000
#define CONTEXTS	16

static bool do_notify_contexts(struct operation *op)
{
	return mw_notify(op->fd, op->words, CONTEXTS, U32) == CONTEXTS;
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

MEMWAIT_TEST(R29_a_notify_of_contexts_with_many_pollers_yields_the_processor)
{
	struct rlimit many = { POLLERS + 100, POLLERS + 100 }, before;
	int n = (long)POLLERS * how_many_waits(MANY_WAITS) / MANY_WAITS / CONTEXTS * CONTEXTS;
	struct operation op = { .fd = self->fd, .words = self->shared, .n = n };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int contexts[CONTEXTS], epoll, fd, i;
	bool good = false;

	if (geteuid())
		SKIP(return, "needs root for real-time threads");
	epoll = epoll_create1(EPOLL_CLOEXEC);
	getrlimit(RLIMIT_NOFILE, &before);
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &many));
	for (i = 0; i < n; i++) {
		if (i < CONTEXTS) {
			contexts[i] = open_device(O_NONBLOCK);
		}
		fd = dup(contexts[i % CONTEXTS]);
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
	}
	for (i = 0; i < WATCHES * CONTEXTS; i++) {
		ASSERT_EQ(1, arm_many(contexts[i % CONTEXTS], op.words, 1, MEMWAIT_FOREVER, NULL));
		if (i % CONTEXTS != CONTEXTS - 1)
			continue;
		ASSERT_TRUE(try_watched(_metadata, "notify, with pollers instead of", &op,
					do_notify_contexts, &good));
		/* All pollers have been woken. */
		ASSERT_EQ(n, drain(epoll));
	}
	EXPECT_IN_TIME(good);
	close_range(epoll, ~0U, 0);
	setrlimit(RLIMIT_NOFILE, &before);
}

/*
 * R31: one thread repeatedly notifies many of its own waits. A second thread notifies one wait on
 * the same word, and therefore needs the lock of the same bucket. An unfair lock favours the thread
 * that has just released it: the second thread then acquired it about 60 times in one call,
 * compared with about 600 times if the first thread lets it in. A machine that delays either thread
 * changes these numbers, so the test uses the median.
 */
#define KEPT_WAITS	4000
#define CALLS		10
#define VISITS		200	/* number of visits in each call */
#define TRIES		9

struct keeper {
	int fd, stop, calls;
	uint32_t *word;
};

/* The other thread may have notified some of these waits. */
static int keep_lock(struct keeper *k)
{
	int ret = bind_to(1);

	while (!ret && !load(&k->stop)) {
		ret = mw_notify(k->fd, k->word, MEMWAIT_ALL, U32) > 0 ? 0 : -1;
		store(&k->calls, k->calls + 1);
	}
	return ret;
}

LIMITS_TEST(R31_a_long_call_lets_others_have_the_lock)
{
	struct keeper k = { .fd = self->fd, .word = self->word };
	uint64_t visits[TRIES] = { 0 };
	struct runner runner;
	int fd, i, until;
	bool ok = true;

	if (processors() < 2)
		SKIP(return, "needs two processors");
	allow_many_waits(KEPT_WAITS);
	fd = open_device(O_NONBLOCK);
	for (i = 0; i < KEPT_WAITS; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(k.fd, k.word, 0, MEMWAIT_FOREVER,
						    U32 | MEMWAIT_PERSISTENT, i, NULL));
	ASSERT_EQ(0, bind_to(0));
	runner_start(&runner, keep_lock, &k);
	for (i = 0; i < TRIES; i++) {
		for (until = load(&k.calls) + CALLS; ok && load(&k.calls) < until; visits[i]++)
			ok = mw_notify(fd, k.word, 1, U32) == 1;
	}
	store(&k.stop, 1);
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_TRUE(ok);
	qsort(visits, TRIES, sizeof(visits[0]), compare_numbers);
	TH_LOG("lock acquisitions in %d calls: %ld to %ld, median %ld", CALLS, (long)visits[0],
	       (long)visits[TRIES - 1], (long)visits[TRIES / 2]);
	EXPECT_IN_TIME(visits[TRIES / 2] > CALLS * VISITS);
	close(fd);
}

TEST_HARNESS_MAIN
