// SPDX-License-Identifier: GPL-2.0
/* R5, R12: ten thousand threads wait on one word. A machine may allow fewer threads by default. */
#include "load_test.h"

#define STACK		131072		/* the minimum on arm64 */

static const char *const thread_limits[] = {
	"/proc/sys/kernel/threads-max",
	"/proc/sys/kernel/pid_max",
};

FIXTURE(crowd)
{
	int fd, n;
	uint32_t *word;
	char *stacks;
	long before[2];		/* earlier values of thread_limits; 0: unchanged */
};

FIXTURE_SETUP(crowd)
{
	struct rlimit many;
	long limit;
	int i;

	self->n = LOAD(10000, 500);
	self->fd = open_device(O_NONBLOCK);
	self->word = private_page(sysconf(_SC_PAGESIZE));
	/*
	 * All stacks are in one mapping without huge pages, so that a thread uses two small pages.
	 */
	self->stacks = mmap(NULL, (size_t)self->n * STACK, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ASSERT_NE(MAP_FAILED, self->stacks);
	madvise(self->stacks, (size_t)self->n * STACK, MADV_NOHUGEPAGE);

	for (i = 0; i < 2; i++) {
		limit = read_number(thread_limits[i]);
		if (limit >= 3 * self->n)
			continue;
		self->before[i] = limit;
		write_number(thread_limits[i], 3 * self->n);
		if (read_number(thread_limits[i]) < 3 * self->n)
			SKIP(return, "needs root for so many threads");
	}
	getrlimit(RLIMIT_NPROC, &many);
	many.rlim_cur = many.rlim_max;
	if (!geteuid())
		many = (struct rlimit) { RLIM_INFINITY, RLIM_INFINITY };
	setrlimit(RLIMIT_NPROC, &many);
}

FIXTURE_TEARDOWN(crowd)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (self->before[i]) {
			write_number(thread_limits[i], self->before[i]);
			EXPECT_EQ(self->before[i], read_number(thread_limits[i]));
		}
	}
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
	close(self->fd);
}

#define CROWD_TEST(name)	TEST_F_TIMEOUT(crowd, name, 600)

/* Starts a thread on the i-th stack. Returns the result of pthread_create(). */
static int start_small(pthread_t *thread, char *stacks, int i, void *(*start)(void *), void *arg)
{
	pthread_attr_t attr;
	int err;

	pthread_attr_init(&attr);
	err = pthread_attr_setstack(&attr, stacks + (size_t)i * STACK, STACK);
	if (!err)
		err = pthread_create(thread, &attr, start, arg);
	pthread_attr_destroy(&attr);
	return err;
}

#define ORDERED		64	/* number of threads that are notified one by one */
#define TOGETHER	100	/* number of the next threads, which are notified in one call */

static int count_done(const struct waiter *w, int from, int to)
{
	int i, done = 0;

	for (i = from; i < to; i++)
		done += __atomic_load_n(&w[i].done, __ATOMIC_ACQUIRE);
	return done;
}

CROWD_TEST(R12_many_threads_on_one_word)
{
	struct waiter *w = calloc(self->n, sizeof(*w));
	uint64_t start = now_ns(CLOCK_MONOTONIC);
	int i, notified = ORDERED + TOGETHER, oks = 0;

	ASSERT_NE(NULL, w);
	for (i = 0; i < self->n; i++) {
		w[i] = thread_at(self->fd, self->word);
		ASSERT_EQ(0, start_small(&w[i].thread, self->stacks, i, waiter_main, &w[i]));
		/* The first threads join in a known order, ahead of all others. */
		if (i < notified)
			await_waiters(self->fd, self->word, U32, i + 1);
	}
	await_waiters(self->fd, self->word, U32, self->n);
	TH_LOG("%d threads wait after %.1f s", self->n, seconds_since(start));

	start = now_ns(CLOCK_MONOTONIC);
	for (i = 0; i < ORDERED; i++) {
		ASSERT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		ASSERT_EQ(self->n - i - 1, mw_waiters(self->fd, self->word, U32));
		spin_until(count_done(w, i, self->n));
		ASSERT_EQ(1, w[i].done);
	}

	ASSERT_EQ(TOGETHER, mw_notify(self->fd, self->word, TOGETHER, U32));
	ASSERT_EQ(self->n - notified, mw_waiters(self->fd, self->word, U32));
	spin_until(count_done(w, ORDERED, self->n) >= TOGETHER);
	ASSERT_EQ(TOGETHER, count_done(w, ORDERED, notified));
	ASSERT_EQ(0, count_done(w, notified, self->n));

	EXPECT_EQ(self->n - notified, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
	for (i = 0; i < self->n; i++)
		oks += waiter_join(&w[i]) == MEMWAIT_OK;
	EXPECT_EQ(self->n, oks);
	EXPECT_EQ(0, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	TH_LOG("notified and joined after %.1f s", seconds_since(start));
	free(w);
}

#define SPREAD		1000	/* range of the deadlines, in ms */

/* Data that the threads of one test share. */
struct leaving_threads {
	int fd, n;
	uint32_t *word, *gate;
	int left;		/* number of threads that have not ended */
	int leaving;		/* remaining threads that will leave by timeout or signal */
	int gone;		/* number of threads that have left that way */
};

struct leaver {
	struct leaving_threads *crowd;
	pthread_t thread;
	enum { PATIENT, TIMED, PATIENT_TOO, SIGNALLED, KINDS } kind;
	uint32_t after;		/* time until the deadline, in ms */
	int result, done;
};

static bool leaves_alone(const struct leaver *t)
{
	return t->kind == TIMED || t->kind == SIGNALLED;
}

static void *leaver_main(void *arg)
{
	struct leaver *t = arg;
	struct leaving_threads *crowd = t->crowd;

	if (mw_wait(crowd->fd, crowd->gate, 0, FOREVER, U32) == MEMWAIT_OK)
		t->result = mw_wait(crowd->fd, crowd->word, 0,
				    t->kind == TIMED ? in_ms(t->after) : FOREVER, U32);
	else
		t->result = -EPROTO;
	if (t->result != MEMWAIT_OK)
		__atomic_add_fetch(&crowd->gone, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
	if (leaves_alone(t))
		__atomic_sub_fetch(&crowd->leaving, 1, __ATOMIC_RELEASE);
	__atomic_sub_fetch(&crowd->left, 1, __ATOMIC_RELEASE);
	return NULL;
}

/*
 * A signal that arrives before the wait does not interrupt it. Therefore the signal is sent
 * repeatedly.
 */
static void *signal_all(void *arg)
{
	struct leaver *t = arg;
	struct leaving_threads *crowd = t->crowd;
	int i;

	while (__atomic_load_n(&crowd->leaving, __ATOMIC_ACQUIRE)) {
		for (i = 0; i < crowd->n; i++) {
			if (t[i].kind == SIGNALLED && !__atomic_load_n(&t[i].done,
								       __ATOMIC_ACQUIRE))
				pthread_kill(t[i].thread, SIGUSR1);
		}
		sched_yield();
	}
	return NULL;
}

CROWD_TEST(R5_half_of_many_threads_time_out_or_are_interrupted)
{
	struct leaver *t = calloc(self->n, sizeof(*t));
	struct leaving_threads crowd = {
		.fd = self->fd,
		.n = self->n,
		.word = self->word,
		.gate = self->word + 1,
		.left = self->n,
	};
	int i, ret, oks = 0, timed_out = 0, interrupted = 0, notified = 0, wrong = 0;
	uint64_t start, random = 1;
	pthread_t signaller;

	ASSERT_NE(NULL, t);
	handle(SIGUSR1, 0);
	for (i = 0; i < self->n; i++) {
		t[i].crowd = &crowd;
		t[i].kind = i % KINDS;
		t[i].after = next_random(&random) % SPREAD;
		crowd.leaving += leaves_alone(&t[i]);
	}
	for (i = 0; i < self->n; i++)
		ASSERT_EQ(0, start_small(&t[i].thread, self->stacks, i, leaver_main, &t[i]));
	await_waiters(self->fd, crowd.gate, U32, self->n);

	start = now_ns(CLOCK_MONOTONIC);
	ASSERT_EQ(self->n, mw_notify(self->fd, crowd.gate, MEMWAIT_ALL, U32));
	ASSERT_EQ(0, pthread_create(&signaller, NULL, signal_all, t));
	/*
	 * Send one notify for each thread that has left, so that notifies continue as long as there
	 * are threads.
	 */
	while (__atomic_load_n(&crowd.leaving, __ATOMIC_ACQUIRE)) {
		if (notified > __atomic_load_n(&crowd.gone, __ATOMIC_RELAXED)) {
			sched_yield();
			continue;
		}
		ret = mw_notify(self->fd, self->word, 1, U32);
		ASSERT_LE(0, ret);
		ASSERT_GE(1, ret);
		notified += ret;
	}
	pthread_join(signaller, NULL);
	while (__atomic_load_n(&crowd.left, __ATOMIC_ACQUIRE)) {
		ret = mw_notify(self->fd, self->word, 1, U32);
		ASSERT_LE(0, ret);
		ASSERT_GE(1, ret);
		notified += ret;
		if (!ret)
			sched_yield();
	}
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));

	for (i = 0; i < self->n; i++) {
		pthread_join(t[i].thread, NULL);
		if (t[i].result == MEMWAIT_OK)
			oks++;
		else if (t[i].result == MEMWAIT_TIMED_OUT && t[i].kind == TIMED)
			timed_out++;
		else if (t[i].result == -EINTR && t[i].kind == SIGNALLED)
			interrupted++;
		else
			wrong++;
	}
	TH_LOG("%d threads, %.1f s: notified %d, timed out %d, interrupted %d", self->n,
	       seconds_since(start), notified, timed_out, interrupted);
	EXPECT_EQ(0, wrong);
	EXPECT_EQ(notified, oks);
	EXPECT_EQ(crowd.gone, timed_out + interrupted);
	EXPECT_LT(0, timed_out);
	EXPECT_LT(0, interrupted);
	free(t);
}

TEST_HARNESS_MAIN
