// SPDX-License-Identifier: GPL-2.0
/*
 * R5, R12, R19, R24 under load: ten thousand threads on a word, a million pending waits, storms of
 * notifies from every processor, and the two limits, of memory and of a user, while others go on.
 * All counts are exact.
 *
 * Where MEMWAIT_LOADS is set, the kernel checks itself, and the numbers are smaller; they are
 * printed. MEMWAIT_LOAD_SECONDS sets how long the storms last.
 */
#include "limits_test.h"
#include "several_test.h"

#define LOAD(n, checked)	(getenv("MEMWAIT_LOADS") ? (checked) : (n))

static double seconds_since(uint64_t start)
{
	return (double)(now_ns(CLOCK_MONOTONIC) - start) / NSEC_PER_SEC;
}

/* A line of /proc/meminfo, in bytes. */
static long memory_of(const char *name)
{
	return read_number_of("/proc/meminfo", name) * 1024;
}

/* Threads, more than a machine may allow at first. */

#define STACK		131072		/* the least that arm64 allows */

static const char *const thread_limits[] = {
	"/proc/sys/kernel/threads-max",
	"/proc/sys/kernel/pid_max",
};

FIXTURE(crowd)
{
	int fd, n;
	uint32_t *word;
	char *stacks;
	long before[2];		/* of thread_limits; 0: left alone */
};

FIXTURE_SETUP(crowd)
{
	struct rlimit many;
	long limit;
	int i;

	self->n = LOAD(10000, 500);
	self->fd = memwait_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->word = private_page(sysconf(_SC_PAGESIZE));
	ASSERT_NE(NULL, self->word);
	/* One mapping for all, and no huge pages: a thread uses two small ones. */
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

/* Returns what pthread_create() does. The stack is the i-th. */
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

#define ORDERED		64	/* threads that are notified one by one */
#define TOGETHER	100	/* and those that come next, by one notify */

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
		/* The first ones stand in a known order, and the others behind them. */
		if (i < notified)
			await_waiters(self->fd, self->word, U32, i + 1);
	}
	await_waiters(self->fd, self->word, U32, self->n);
	TH_LOG("%d threads wait after %.1f s", self->n, seconds_since(start));

	start = now_ns(CLOCK_MONOTONIC);
	for (i = 0; i < ORDERED; i++) {
		ASSERT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		ASSERT_EQ(self->n - i - 1, mw_waiters(self->fd, self->word, U32));
		while (!count_done(w, i, self->n))
			sched_yield();
		ASSERT_EQ(1, w[i].done);
	}

	ASSERT_EQ(TOGETHER, mw_notify(self->fd, self->word, TOGETHER, U32));
	ASSERT_EQ(self->n - notified, mw_waiters(self->fd, self->word, U32));
	while (count_done(w, ORDERED, self->n) < TOGETHER)
		sched_yield();
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

#define SPREAD		1000	/* ms within which the deadlines lie */

/* What the threads of a crowd that thins out have in common. */
struct thinning {
	int fd, n;
	uint32_t *word, *gate;
	int left;		/* threads that have not ended */
	int mortal;		/* those of them that end by themselves */
	int alone;		/* how many have */
};

struct thinned {
	struct thinning *crowd;
	pthread_t thread;
	enum { PATIENT, TIMED, PATIENT_TOO, SIGNALLED, KINDS } kind;
	uint32_t after;		/* ms */
	int result, done;
};

static bool is_mortal(const struct thinned *t)
{
	return t->kind == TIMED || t->kind == SIGNALLED;
}

static void *thinned_main(void *arg)
{
	struct thinned *t = arg;
	struct thinning *crowd = t->crowd;

	if (mw_wait(crowd->fd, crowd->gate, 0, FOREVER, U32) == MEMWAIT_OK)
		t->result = mw_wait(crowd->fd, crowd->word, 0,
				    t->kind == TIMED ? in_ms(t->after) : FOREVER, U32);
	else
		t->result = -EPROTO;
	if (t->result != MEMWAIT_OK)
		__atomic_add_fetch(&crowd->alone, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
	if (is_mortal(t))
		__atomic_sub_fetch(&crowd->mortal, 1, __ATOMIC_RELEASE);
	__atomic_sub_fetch(&crowd->left, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* A signal that comes before the wait interrupts nothing, so it comes again. */
static void *signal_all(void *arg)
{
	struct thinned *t = arg;
	struct thinning *crowd = t->crowd;
	int i;

	while (__atomic_load_n(&crowd->mortal, __ATOMIC_ACQUIRE)) {
		for (i = 0; i < crowd->n; i++) {
			if (t[i].kind == SIGNALLED && !__atomic_load_n(&t[i].done,
								       __ATOMIC_ACQUIRE))
				pthread_kill(t[i].thread, SIGUSR1);
		}
		sched_yield();
	}
	return NULL;
}

CROWD_TEST(R5_many_threads_of_which_half_leave_by_themselves)
{
	struct thinned *t = calloc(self->n, sizeof(*t));
	struct thinning crowd = {
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
		crowd.mortal += is_mortal(&t[i]);
	}
	for (i = 0; i < self->n; i++)
		ASSERT_EQ(0, start_small(&t[i].thread, self->stacks, i, thinned_main, &t[i]));
	await_waiters(self->fd, crowd.gate, U32, self->n);

	start = now_ns(CLOCK_MONOTONIC);
	ASSERT_EQ(self->n, mw_notify(self->fd, crowd.gate, MEMWAIT_ALL, U32));
	ASSERT_EQ(0, pthread_create(&signaller, NULL, signal_all, t));
	/* One notify for each who has left, so that the stream lasts as long as they do. */
	while (__atomic_load_n(&crowd.mortal, __ATOMIC_ACQUIRE)) {
		if (notified > __atomic_load_n(&crowd.alone, __ATOMIC_RELAXED)) {
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
	EXPECT_EQ(crowd.alone, timed_out + interrupted);
	EXPECT_LT(0, timed_out);
	EXPECT_LT(0, interrupted);
	free(t);
}

/*
 * A million pending waits. Wait i is of context i % CONTEXTS; the first of them are all on word 0,
 * wait i else on word i. Every other one of a context has a deadline that is far away.
 */
#define CONTEXTS	100
#define BATCH		500

enum { ARMED, NOTIFIED, GONE };

struct many {
	int fds[CONTEXTS];	/* -1: closed */
	int n, crowded;		/* waits, and how many of them are on word 0 */
	uint32_t *words;
	uint64_t *ids;
	uint32_t *when;		/* notified as the how-manieth */
	uint8_t *state;
	uint32_t notifies;
	int pending[CONTEXTS];
	uint64_t random;
};

static int context_of(int i)
{
	return i % CONTEXTS;
}

/* Arms all waits of a context. Returns how many are pending and have an id. */
static int arm_context(struct many *m, int context, uint64_t deadline)
{
	static struct memwait_async entries[BATCH];
	int i, j, nr, pending = 0;

	for (i = context; i < m->n; i += BATCH * CONTEXTS) {
		memset(entries, 0, sizeof(entries));
		for (nr = 0; nr < BATCH && i + nr * CONTEXTS < m->n; nr++) {
			j = i + nr * CONTEXTS;
			entries[nr].wait.addr = (uintptr_t)&m->words[j < m->crowded ? 0 : j];
			entries[nr].wait.deadline = nr % 2 ? deadline + j : FOREVER;
			entries[nr].wait.flags = U32;
			entries[nr].user_data = j;
		}
		if (mw_batch(m->fds[context], entries, nr) != nr)
			return -1;
		while (nr--) {
			j = i + nr * CONTEXTS;
			m->ids[j] = entries[nr].id;
			pending += entries[nr].result == MEMWAIT_PENDING && entries[nr].id;
		}
	}
	m->pending[context] = pending;
	return pending;
}

static void notified(struct many *m, int i)
{
	m->state[i] = NOTIFIED;
	m->when[i] = m->notifies++;
	m->pending[context_of(i)]--;
}

/* A wait that is pending, and alone on its word. */
static int pick(struct many *m)
{
	int i;

	do {
		i = m->crowded + next_random(&m->random) % (m->n - m->crowded);
	} while (m->state[i] != ARMED);
	return i;
}

/* Reads all that there is. Each must have been notified, comes once, and in order (R20). */
static int read_context(struct many *m, int context, int *wrong)
{
	struct memwait_completion done[256];
	int got, total = 0, j;
	int64_t last = -1;
	uint64_t i;

	while ((got = mw_read(m->fds[context], done, 256)) > 0) {
		for (j = 0; j < got; j++) {
			i = done[j].user_data;
			if (i >= (uint64_t)m->n || context_of(i) != context ||
			    m->state[i] != NOTIFIED || m->ids[i] != done[j].id ||
			    done[j].result != MEMWAIT_OK || m->when[i] <= last) {
				++*wrong;
				continue;
			}
			last = m->when[i];
			m->state[i] = GONE;
		}
		total += got;
	}
	*wrong += got != -EAGAIN;
	return total;
}

/* What the contexts themselves count. */
static long sum_of_contexts(struct many *m, const char *name)
{
	long sum = 0;
	int c;

	for (c = 0; c < CONTEXTS; c++) {
		if (m->fds[c] >= 0)
			sum += context_count(m->fds[c], name);
	}
	return sum;
}

static int sum_pending(struct many *m)
{
	int c, sum = 0;

	for (c = 0; c < CONTEXTS; c++)
		sum += m->pending[c];
	return sum;
}

/* Notifies what is left, each word once, and word 0 until it has no waiters. */
static int notify_the_rest(struct many *m, int fd, int *wrong)
{
	static struct memwait_notify notifies[BATCH];
	static uint32_t woken[BATCH];
	int i, j, c, nr, sum = mw_notify(fd, m->words, MEMWAIT_ALL, U32);

	/* In the order of arming. */
	for (c = 0; c < CONTEXTS; c++) {
		for (i = c; i < m->crowded; i += CONTEXTS) {
			if (m->state[i] == ARMED)
				notified(m, i);
		}
	}
	for (i = m->crowded; i < m->n; i += nr) {
		nr = m->n - i < BATCH ? m->n - i : BATCH;
		for (j = 0; j < nr; j++) {
			notifies[j].addr = (uintptr_t)&m->words[i + j];
			notifies[j].count = MEMWAIT_ALL;
			notifies[j].flags = U32;
		}
		if (mw_notify_many(fd, notifies, nr, woken) != nr)
			return -1;
		for (j = 0; j < nr; j++) {
			*wrong += woken[j] != (m->state[i + j] == ARMED);
			sum += woken[j];
			if (woken[j])
				notified(m, i + j);
		}
	}
	return sum;
}

TEST_F_TIMEOUT(limits, R24_a_million_pending_waits, 600)
{
	struct many m = { .n = LOAD(1000000, 20000), .random = 1 };
	uint64_t start, begin = now_ns(CLOCK_MONOTONIC), deadline = in_ms(HOUR), left;
	int i, c, some, got, sum, wrong = 0, of_closed = 0;
	long slab = memory_of("Slab");

	some = m.n / 100;
	m.crowded = some;
	m.words = private_page(m.n * sizeof(*m.words));
	m.ids = calloc(m.n, sizeof(*m.ids));
	m.when = calloc(m.n, sizeof(*m.when));
	m.state = calloc(m.n, sizeof(*m.state));
	ASSERT_TRUE(m.words && m.ids && m.when && m.state);
	ASSERT_EQ(0, set_limit(self->user_waits + m.n));

	start = now_ns(CLOCK_MONOTONIC);
	for (c = 0; c < CONTEXTS; c++) {
		m.fds[c] = memwait_open(O_NONBLOCK);
		ASSERT_LE(0, m.fds[c]);
		ASSERT_EQ(m.n / CONTEXTS, arm_context(&m, c, deadline));
		ASSERT_EQ(self->user_waits + (uint64_t)(c + 1) * m.n / CONTEXTS,
			  mw_user_waits(self->fd));
	}
	TH_LOG("%d waits in %d contexts, %d on one word: armed in %.1f s", m.n, CONTEXTS, m.crowded,
	       seconds_since(start));
	TH_LOG("%ld bytes of slabs each, %ld MB are left", (memory_of("Slab") - slab) / m.n,
	       memory_of("MemAvailable") >> 20);
	EXPECT_EQ(m.n, sum_of_contexts(&m, "pending"));
	EXPECT_EQ(m.crowded, mw_waiters(self->fd, m.words, U32));
	EXPECT_EQ(-ENOSPC, mw_async(self->fd, self->word, 0, FOREVER, U32, 0, NULL));

	start = now_ns(CLOCK_MONOTONIC);
	for (i = 0; i < some; i++) {
		int one = pick(&m);

		ASSERT_EQ(1, mw_notify(self->fd, &m.words[one], MEMWAIT_ALL, U32));
		ASSERT_EQ(0, mw_notify(self->fd, &m.words[one], MEMWAIT_ALL, U32));
		notified(&m, one);
	}
	/* Of the one word, the waits of the first contexts are the oldest. */
	ASSERT_EQ(some / 10, mw_notify(self->fd, m.words, some / 10, U32));
	ASSERT_EQ(m.crowded - some / 10, mw_waiters(self->fd, m.words, U32));
	for (c = 0; c < CONTEXTS / 10; c++) {
		for (i = c; i < m.crowded; i += CONTEXTS)
			notified(&m, i);
	}
	sum = some + some / 10;
	EXPECT_EQ(self->user_waits + m.n, mw_user_waits(self->fd));
	EXPECT_EQ(sum, sum_of_contexts(&m, "completed"));
	EXPECT_EQ(m.n - sum, sum_of_contexts(&m, "pending"));
	for (c = 0, got = 0; c < CONTEXTS; c++)
		got += read_context(&m, c, &wrong);
	EXPECT_EQ(sum, got);
	EXPECT_EQ(0, wrong);
	left = self->user_waits + m.n - sum;
	EXPECT_EQ(left, mw_user_waits(self->fd));
	TH_LOG("notified and read %d in %.1f s", sum, seconds_since(start));

	start = now_ns(CLOCK_MONOTONIC);
	for (i = 0; i < some; i++) {
		int one = pick(&m);

		ASSERT_EQ(0, mw_cancel(m.fds[context_of(one)], m.ids[one]));
		ASSERT_EQ(-ENOENT, mw_cancel(m.fds[context_of(one)], m.ids[one]));
		ASSERT_EQ(0, mw_waiters(self->fd, &m.words[one], U32));
		m.state[one] = GONE;
		m.pending[context_of(one)]--;
	}
	left -= some;
	EXPECT_EQ(left, mw_user_waits(self->fd));
	TH_LOG("cancelled %d in %.1f s", some, seconds_since(start));

	start = now_ns(CLOCK_MONOTONIC);
	for (c = 1; c < CONTEXTS; c += 2) {
		close(m.fds[c]);
		m.fds[c] = -1;
		left -= m.pending[c];
		of_closed += m.pending[c];
		m.pending[c] = 0;
		ASSERT_EQ(left, mw_user_waits(self->fd));
	}
	for (i = 0; i < m.n; i++) {
		if (m.fds[context_of(i)] < 0)
			m.state[i] = GONE;
	}
	TH_LOG("closed %d contexts with %d waits in %.1f s", CONTEXTS / 2, of_closed,
	       seconds_since(start));

	start = now_ns(CLOCK_MONOTONIC);
	sum = sum_pending(&m);
	EXPECT_EQ(sum, sum_of_contexts(&m, "pending"));
	EXPECT_EQ(left, self->user_waits + sum);
	EXPECT_EQ(sum, notify_the_rest(&m, self->fd, &wrong));
	EXPECT_EQ(0, sum_of_contexts(&m, "pending"));
	EXPECT_EQ(left, mw_user_waits(self->fd));
	for (c = 0, got = 0; c < CONTEXTS; c += 2)
		got += read_context(&m, c, &wrong);
	EXPECT_EQ(sum, got);
	EXPECT_EQ(0, wrong);
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
	TH_LOG("notified and read the other %d in %.1f s; all of it %.1f s", sum,
	       seconds_since(start), seconds_since(begin));

	for (c = 0; c < CONTEXTS; c += 2)
		close(m.fds[c]);
	munmap(m.words, m.n * sizeof(*m.words));
	free(m.ids);
	free(m.when);
	free(m.state);
}

/* Storms. */

#define STORM_WORDS	64
#define STORM_BATCH	32
#define STORM_SLOTS	512
#define MOST_CPUS	64

struct storm {
	uint32_t *words;
	int stop_arming, stop_notifying;
};

struct storm_thread {
	struct storm *storm;
	pthread_t thread;
	int cpu;
	uint64_t random;
	uint64_t ids[STORM_SLOTS];	/* of waits that have not ended; user_data is the slot */
	long notified, calls, armed, oks, cancelled, wrong;
};

static void *storm_notify(void *arg)
{
	struct storm_thread *t = arg;
	struct memwait_notify notifies[STORM_WORDS];
	uint32_t woken[STORM_WORDS];
	int fd = memwait_open(O_NONBLOCK), i, ret;

	bind_to(t->cpu);
	while (!__atomic_load_n(&t->storm->stop_notifying, __ATOMIC_RELAXED)) {
		uint32_t count = t->calls % 3 ? 1 : MEMWAIT_ALL;

		for (i = 0; i < STORM_WORDS; i++) {
			ret = mw_notify(fd, &t->storm->words[i], count, U32);
			if (ret < 0)
				t->wrong++;
			else
				t->notified += ret;
			notifies[i] = (struct memwait_notify) {
				.addr = (uintptr_t)&t->storm->words[STORM_WORDS - 1 - i],
				.count = count,
				.flags = U32,
			};
		}
		t->wrong += mw_notify_many(fd, notifies, STORM_WORDS, woken) != STORM_WORDS;
		for (i = 0; i < STORM_WORDS; i++)
			t->notified += woken[i];
		t->calls++;
	}
	close(fd);
	return NULL;
}

static void storm_cancel(struct storm_thread *t, int fd, uint32_t slot)
{
	int ret;

	if (!t->ids[slot])
		return;
	ret = mw_cancel(fd, t->ids[slot]);
	if (!ret) {
		t->ids[slot] = 0;
		t->cancelled++;
	} else {
		t->wrong += ret != -ENOENT;
	}
}

/* Arms a batch, and cancels half of it, the newest first. */
static void storm_arm(struct storm_thread *t, int fd)
{
	struct memwait_async entries[STORM_BATCH];
	uint32_t slot = next_random(&t->random);
	int i, nr = 0;

	memset(entries, 0, sizeof(entries));
	for (i = 0; i < STORM_SLOTS && nr < STORM_BATCH; i++, slot++) {
		if (t->ids[slot % STORM_SLOTS])
			continue;
		entries[nr].wait.addr = (uintptr_t)&t->storm->words[next_random(&t->random) %
								    STORM_WORDS];
		entries[nr].wait.deadline = nr % 2 ? FOREVER : in_ms(HOUR);
		entries[nr].wait.flags = U32;
		entries[nr].user_data = slot % STORM_SLOTS;
		nr++;
	}
	t->wrong += mw_batch(fd, entries, nr) != nr;
	t->armed += nr;
	for (i = 0; i < nr; i++) {
		t->wrong += entries[i].result != MEMWAIT_PENDING || !entries[i].id;
		t->ids[entries[i].user_data] = entries[i].id;
	}
	while (nr--) {
		if (next_random(&t->random) % 2)
			storm_cancel(t, fd, entries[nr].user_data);
	}
}

static void storm_read(struct storm_thread *t, int fd)
{
	struct memwait_completion done[STORM_BATCH];
	int got, i;

	do {
		got = mw_read(fd, done, STORM_BATCH);
		for (i = 0; i < got; i++) {
			if (done[i].user_data >= STORM_SLOTS || done[i].result != MEMWAIT_OK ||
			    !done[i].id || t->ids[done[i].user_data] != done[i].id) {
				t->wrong++;
				continue;
			}
			t->ids[done[i].user_data] = 0;
			t->oks++;
		}
	} while (got == STORM_BATCH);
	t->wrong += got < 0 && got != -EAGAIN;
}

static void *storm_wait(void *arg)
{
	struct storm_thread *t = arg;
	int fd = memwait_open(O_NONBLOCK), i;

	while (!__atomic_load_n(&t->storm->stop_arming, __ATOMIC_RELAXED)) {
		storm_arm(t, fd);
		storm_read(t, fd);
	}
	/* Who cannot be cancelled has ended, and its completion is there. */
	for (i = 0; i < STORM_SLOTS; i++)
		storm_cancel(t, fd, i);
	storm_read(t, fd);
	for (i = 0; i < STORM_SLOTS; i++)
		t->wrong += !!t->ids[i];
	close(fd);
	return NULL;
}

/* Processors that this process may run on. */
static int list_cpus(int *cpus)
{
	cpu_set_t set;
	int cpu, nr = 0;

	sched_getaffinity(0, sizeof(set), &set);
	for (cpu = 0; cpu < CPU_SETSIZE && nr < MOST_CPUS; cpu++) {
		if (CPU_ISSET(cpu, &set))
			cpus[nr++] = cpu;
	}
	return nr;
}

static void storm(struct __test_metadata *_metadata, int fd, uint32_t *words)
{
	static struct storm_thread notifiers[MOST_CPUS], waiters[MOST_CPUS];
	const char *text = getenv("MEMWAIT_LOAD_SECONDS");
	struct storm storm = { .words = words };
	struct storm_thread sum = { 0 };
	int cpus[MOST_CPUS], nr = list_cpus(cpus), i;

	ASSERT_LT(0, nr);
	memset(notifiers, 0, sizeof(notifiers));
	memset(waiters, 0, sizeof(waiters));
	for (i = 0; i < nr; i++) {
		notifiers[i].storm = &storm;
		waiters[i].storm = &storm;
		notifiers[i].cpu = cpus[i];
		waiters[i].random = i + 1;
		ASSERT_EQ(0, pthread_create(&notifiers[i].thread, NULL, storm_notify,
					    &notifiers[i]));
		ASSERT_EQ(0, pthread_create(&waiters[i].thread, NULL, storm_wait, &waiters[i]));
	}
	sleep(text ? atoi(text) : 5);
	__atomic_store_n(&storm.stop_arming, 1, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++)
		pthread_join(waiters[i].thread, NULL);
	__atomic_store_n(&storm.stop_notifying, 1, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++) {
		pthread_join(notifiers[i].thread, NULL);
		sum.notified += notifiers[i].notified;
		sum.calls += notifiers[i].calls * (STORM_WORDS + 1);
		sum.armed += waiters[i].armed;
		sum.oks += waiters[i].oks;
		sum.cancelled += waiters[i].cancelled;
		sum.wrong += notifiers[i].wrong + waiters[i].wrong;
	}
	TH_LOG("%d processors: %ld calls, notified %ld; armed %ld, OK %ld, cancelled %ld", nr,
	       sum.calls, sum.notified, sum.armed, sum.oks, sum.cancelled);
	EXPECT_EQ(0, sum.wrong);
	EXPECT_EQ(sum.notified, sum.oks);
	EXPECT_EQ(sum.armed, sum.oks + sum.cancelled);
	EXPECT_LT(0, sum.oks);
	EXPECT_LT(0, sum.cancelled);
	for (i = 0; i < STORM_WORDS; i++)
		EXPECT_EQ(0, mw_notify(fd, &words[i], MEMWAIT_ALL, U32));
}

TEST_F_TIMEOUT(memwait, R5_storms_of_notifies_on_private_words, 86400)
{
	storm(_metadata, self->fd, self->word);
}

TEST_F_TIMEOUT(memwait, R19_storms_of_notifies_on_shared_words, 86400)
{
	storm(_metadata, self->fd, self->shared);
}

/* Words that are not waited on any more. */

/* Queues that the kernel holds memory for, roughly, or -1. */
static long queues(void)
{
	return read_number_of("/proc/slabinfo", "memwait_queue");
}

TEST_F_TIMEOUT(memwait, R11_queues_that_nobody_waits_in_are_given_back, 600)
{
	int i, got, ret, n = LOAD(50000, 10000);
	uint64_t *ids = calloc(n, sizeof(*ids)), start;
	struct memwait_completion done[64];
	uint32_t *words = private_page(n * sizeof(*words));
	long before = queues(), most;

	if (before < 0)
		SKIP(return, "needs root to read /proc/slabinfo");
	ASSERT_TRUE(ids && words);
	for (i = 0; i < n; i++) {
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, &words[i], 0, MEMWAIT_FOREVER, U32, i,
						    &ids[i]));
	}
	most = queues();
	EXPECT_LE(n, most);
	for (i = 0; i < n; i += 2) {
		ASSERT_EQ(0, mw_cancel(self->fd, ids[i]));
		ASSERT_EQ(1, mw_notify(self->fd, &words[i + 1], 1, U32));
	}
	for (got = 0; got < n / 2; got += ret) {
		ret = mw_read(self->fd, done, 64);
		ASSERT_LT(0, ret);
	}

	/* But for some of each user; and it takes a while until slabs are free. */
	start = now_ns(CLOCK_MONOTONIC);
	while (queues() > before + n / 2)
		usleep(10000);
	TH_LOG("%ld queues, %ld while %d words were waited on, %ld again %.1f s later", before,
	       most, n, queues(), seconds_since(start));
	munmap(words, n * sizeof(*words));
	free(ids);
}

#define PASSING		2000	/* words; more than a user keeps queues of */
#define KEPT_AT_LEAST	300	/* fewer than it does */
#define KEPT_AT_MOST	512	/* and more */

/* Waits for each of many words and takes that back, as user @uid, on one processor. */
static void pass_by(uid_t uid, int *passed, const int *leave)
{
	uint32_t *words = private_page(PASSING * sizeof(*words));
	cpu_set_t one;
	uint64_t id;
	int fd, i;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (sched_setaffinity(0, sizeof(one), &one) || setuid(uid))
		_exit(1);
	fd = memwait_open(0);
	for (i = 0; i < PASSING; i++) {
		if (mw_async(fd, &words[i], 0, MEMWAIT_FOREVER, U32, 0, &id) != MEMWAIT_PENDING ||
		    mw_cancel(fd, id))
			_exit(2);
	}
	__atomic_store_n(passed, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(leave, __ATOMIC_ACQUIRE))
		usleep(1000);
	_exit(0);
}

/*
 * Waits until there are so few queues, and returns how many. Those that were freed count until
 * their grace period has ended, and until the allocator has taken them from its processors.
 */
static long await_queues(long most)
{
	long n;

	while ((n = queues()) > most) {
		write_number("/sys/kernel/slab/memwait_queue/shrink", 1);
		usleep(10000);
	}
	return n;
}

/* Starts such a process, and waits until it has passed by. */
static pid_t start_passing(uid_t uid, int *passed, const int *leave)
{
	pid_t pid = fork();

	if (!pid)
		pass_by(uid, passed, leave);
	while (!__atomic_load_n(passed, __ATOMIC_ACQUIRE) && !kill(pid, 0) &&
	       waitpid(pid, NULL, WNOHANG) == 0)
		usleep(1000);
	return pid;
}

/* Else a process could tell by its own queues how many waits another user's have ended. */
TEST_F_TIMEOUT(memwait, R31_queues_that_are_kept_evict_none_of_another_user, 600)
{
	int *flags = shared_page(4096);
	long before, one, both;
	pid_t first, second;

	if (queues() < 0)
		SKIP(return, "needs root to read /proc/slabinfo");
	before = await_queues(KEPT_AT_LEAST / 2);
	first = start_passing(60001, &flags[0], &flags[4]);
	one = await_queues(before + KEPT_AT_MOST);
	second = start_passing(60002, &flags[1], &flags[5]);
	both = await_queues(before + 2 * KEPT_AT_MOST);
	TH_LOG("%ld queues, %ld with those of one user, %ld with another's", before, one, both);
	EXPECT_LE(before + KEPT_AT_LEAST, one);
	EXPECT_LE(one + KEPT_AT_LEAST, both);
	/* The last close of a user evicts its own. */
	__atomic_store_n(&flags[5], 1, __ATOMIC_RELEASE);
	EXPECT_EQ(0, child_status(second));
	EXPECT_LE(before + KEPT_AT_LEAST, await_queues(before + KEPT_AT_MOST));
	__atomic_store_n(&flags[4], 1, __ATOMIC_RELEASE);
	EXPECT_EQ(0, child_status(first));
	await_queues(before + KEPT_AT_LEAST / 2);
	munmap(flags, 4096);
}

/* At the limit of a memory cgroup. */

#define SINGLES		65536	/* more than fit, of either kind */
#define GROUPS		512
#define RELEASED	10	/* waits that are notified, and as many that are cancelled */

/*
 * What a child in a cgroup finds out. It was all touched before the limit is set, for a page fault
 * beyond it kills; so who is at the limit only writes down, and the parent looks.
 */
struct confined {
	struct memwait_wait waits[GROUPS * MEMWAIT_GROUP_MAX];
	struct memwait_async entries[SINGLES], again[SINGLES];
	struct memwait_completion done[RELEASED];
	uint32_t words[SINGLES];
	uint32_t own[4];
	int count, words_each;
	long room;

	int armed, rearmed, rest;
	uint64_t user_waits, at_limit, after_release, at_end;
	int waiters, waiters_of_failed, notified, got, in_order, cancelled, enoent;
	int wait, wait_alone, wait_large, requeue, notify_nobody, fit, drained;
};

static void confined_entries(struct confined *c, struct memwait_async *entries)
{
	int i;

	for (i = 0; i < c->count; i++) {
		uint32_t *word = c->words + i * c->words_each;
		struct memwait_wait *waits = c->waits + i * c->words_each;

		if (c->words_each == 1) {
			entries[i] = (struct memwait_async) { .wait = member(word, 0, U32) };
			entries[i].wait.deadline = i % 2 ? FOREVER : in_ms(HOUR);
		} else {
			members(waits, word, c->words_each);
			entries[i] = group_entry(waits, c->words_each,
						 i % 2 ? FOREVER : in_ms(HOUR), 0, 0);
		}
		entries[i].user_data = i;
		entries[i].id = UNTOUCHED;
		entries[i].result = UNTOUCHED;
	}
}

/* Waiters of all words of the entries from one to another. */
static int confined_waiters(struct confined *c, int fd, int from, int to)
{
	int i, sum = 0;

	for (i = from * c->words_each; i < to * c->words_each; i++)
		sum += mw_waiters(fd, &c->words[i], U32);
	return sum;
}

/* A group is notified by its last word. */
static int confined_notify(struct confined *c, int fd, int i)
{
	return mw_notify(fd, &c->words[(i + 1) * c->words_each - 1], 1, U32);
}

static void confined_main(struct confined *c)
{
	int max = open(CGROUP "/memory.max", O_WRONLY), fd = memwait_open(O_NONBLOCK), i, ret;
	struct memwait_wait waits[MEMWAIT_GROUP_MAX];
	char limit[32];

	c->user_waits = mw_user_waits(fd);
	if (max < 0 || fd < 0 || enter_cgroup() || mlockall(MCL_CURRENT))
		_exit(1);
	/* errno is in memory too. */
	if (mw_read(fd, c->done, 1) != -EAGAIN)
		_exit(2);
	snprintf(limit, sizeof(limit), "%ld", read_number(CGROUP "/memory.current") + c->room);
	if (write(max, limit, strlen(limit)) < 0)
		_exit(3);

	c->armed = mw_batch(fd, c->entries, c->count);
	if (c->armed < 4 * RELEASED || c->armed >= c->count)
		_exit(4);
	c->at_limit = mw_user_waits(fd);
	c->waiters = confined_waiters(c, fd, 0, c->armed);
	c->waiters_of_failed = confined_waiters(c, fd, c->armed, c->armed + 1);

	/* What needs no memory of the cgroup works, and so does what gives some back. */
	c->wait = mw_wait(fd, &c->words[0], 0, in_ms(1), U32);
	c->notify_nobody = mw_notify(fd, &c->own[1], 1, U32);

	/* What needs some is refused, and nobody is killed for it. */
	members(waits, c->words, MEMWAIT_GROUP_MAX);
	c->wait_alone = mw_wait(fd, &c->own[0], 0, in_ms(1), U32);
	c->wait_large = mw_wait_any(fd, waits, MEMWAIT_GROUP_MAX, in_ms(1), 0, NULL);
	c->requeue = mw_requeue(fd, &c->own[0], 0, &c->own[1], 0, 0, U32, NULL);

	for (i = 0; i < RELEASED; i++)
		c->notified += confined_notify(c, fd, i);
	c->got = mw_read(fd, c->done, RELEASED);
	for (i = 0; i < c->got; i++)
		c->in_order += c->done[i].id == c->entries[i].id &&
			       c->done[i].user_data == (uint64_t)i &&
			       c->done[i].index == (uint32_t)c->words_each - 1 &&
			       c->done[i].result == MEMWAIT_OK;
	for (; i < 2 * RELEASED; i++) {
		c->cancelled += !mw_cancel(fd, c->entries[i].id);
		c->enoent += mw_cancel(fd, c->entries[i].id) == -ENOENT;
	}
	c->after_release = mw_user_waits(fd);

	/* What was freed may be given back to the cgroup a little later. */
	while (c->rearmed < RELEASED) {
		ret = mw_batch(fd, c->again + c->rearmed, RELEASED - c->rearmed);
		if (ret < 0 && ret != -ENOMEM)
			_exit(5);
		c->rearmed += ret < 0 ? 0 : ret;
	}
	/* And then it is full again, if not at once. */
	c->rest = mw_batch(fd, c->again + c->armed, c->count - c->armed);
	if (c->rest >= c->count - c->armed)
		_exit(6);
	c->rest = c->rest < 0 ? 0 : c->rest;

	for (i = 0; i < c->armed + c->rest; i++)
		c->drained += confined_notify(c, fd, i);
	while ((ret = mw_read(fd, c->done, RELEASED)) > 0)
		c->fit += ret;
	c->at_end = mw_user_waits(fd);
	_exit(0);
}

static void confine(struct __test_metadata *_metadata, int count, int words_each)
{
	struct confined *c = shared_page(sizeof(*c));
	uint64_t start = now_ns(CLOCK_MONOTONIC);
	int i, status, armed, pending = 0, enomem = 0, untouched = 0;
	pid_t pid;

	ASSERT_NE(NULL, c);
	ASSERT_GE(SINGLES, count * words_each);
	/* The memory of what is shared is the parent's. */
	memset(c, 0, sizeof(*c));
	c->count = count;
	c->words_each = words_each;
	c->room = LOAD(4L << 20, words_each == 1 ? 1L << 20 : 2L << 20);
	confined_entries(c, c->entries);
	confined_entries(c, c->again);

	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		confined_main(c);
	status = child_status(pid);
	EXPECT_EQ(0, read_number_of(CGROUP "/memory.events", "oom_kill"));
	EXPECT_LT(0, read_number_of(CGROUP "/memory.events", "max"));
	EXPECT_EQ(0, rmdir(CGROUP));
	ASSERT_EQ(0, status);

	armed = c->armed;
	TH_LOG("%ld KB: %d waits on %d words each, then %d and %d again, %.1f s", c->room >> 10,
	       armed, words_each, c->rearmed, c->rest, seconds_since(start));
	for (i = 0; i < count; i++) {
		pending += c->entries[i].result == MEMWAIT_PENDING && c->entries[i].id;
		enomem += c->entries[i].result == -ENOMEM && !c->entries[i].id;
		untouched += c->entries[i].result == (int)UNTOUCHED &&
			     c->entries[i].id == UNTOUCHED;
	}
	EXPECT_EQ(-ENOMEM, c->entries[armed].result);
	EXPECT_EQ(armed, pending);
	EXPECT_EQ(1, enomem);
	EXPECT_EQ(count - armed - 1, untouched);
	EXPECT_EQ(c->user_waits + (uint64_t)armed * words_each, c->at_limit);
	EXPECT_EQ(armed * words_each, c->waiters);
	EXPECT_EQ(0, c->waiters_of_failed);

	EXPECT_EQ(MEMWAIT_TIMED_OUT, c->wait);
	EXPECT_EQ(0, c->notify_nobody);
	/* Unless somebody has given back a little in the meantime, as a checker of memory may. */
	EXPECT_TRUE(c->wait_alone == -ENOMEM || c->wait_alone == MEMWAIT_TIMED_OUT);
	EXPECT_TRUE(c->wait_large == -ENOMEM || c->wait_large == MEMWAIT_TIMED_OUT);
	EXPECT_TRUE(c->requeue == -ENOMEM || !c->requeue);
	EXPECT_EQ(RELEASED, c->notified);
	EXPECT_EQ(RELEASED, c->got);
	EXPECT_EQ(RELEASED, c->in_order);
	EXPECT_EQ(RELEASED, c->cancelled);
	EXPECT_EQ(RELEASED, c->enoent);
	EXPECT_EQ(c->at_limit - 2 * RELEASED * words_each, c->after_release);

	EXPECT_EQ(RELEASED, c->rearmed);
	EXPECT_EQ(armed - RELEASED + c->rest, c->drained);
	EXPECT_EQ(c->drained, c->fit);
	EXPECT_EQ(c->user_waits, c->at_end);
	munmap(c, sizeof(*c));
}

LIMITS_TEST(R24_a_batch_is_cut_at_the_limit_of_the_cgroup)
{
	if (!make_cgroup())
		SKIP(return, "no memory cgroup v2 at /sys/fs/cgroup");
	confine(_metadata, SINGLES, 1);
}

LIMITS_TEST(R24_groups_are_cut_at_the_limit_of_the_cgroup)
{
	if (!make_cgroup())
		SKIP(return, "no memory cgroup v2 at /sys/fs/cgroup");
	confine(_metadata, GROUPS, MEMWAIT_GROUP_MAX);
}

/* Two users, of whom one is at the limit. */

#define USER_A		64001
#define USER_B		64002
#define USER_THREADS	4
#define USER_BATCH	8

struct users {
	uint32_t words[USER_BATCH];
	int limit, rounds;
	int stop;
	long armed, refused, cancelled, rounds_done, checked, wrong;
	pthread_barrier_t barrier;	/* of A's threads */
	bool last;
};

struct user_thread {
	struct users *users;
	pthread_t thread;
	int fd;
	bool first;
	uint64_t random;
	struct {
		uint64_t id;
		int words;
	} *waits;		/* room for the limit */
	int nr;
	long held;		/* words of them */
};

/* Singles, and at the end a group of all words. Returns false at the limit. */
static bool user_arm(struct user_thread *t)
{
	struct users *u = t->users;
	struct memwait_async entries[USER_BATCH];
	struct memwait_wait waits[USER_BATCH];
	int i, ret, nr = 1 + next_random(&t->random) % USER_BATCH;

	members(waits, u->words, USER_BATCH);
	for (i = 0; i < nr; i++) {
		entries[i] = (struct memwait_async) { .wait = waits[i] };
		entries[i].wait.deadline = FOREVER;
	}
	if (nr == USER_BATCH)
		entries[nr - 1] = group_entry(waits, USER_BATCH, FOREVER, 0, 0);

	ret = mw_batch(t->fd, entries, nr);
	if (ret < nr && entries[ret < 0 ? 0 : ret].result != -ENOSPC)
		__atomic_add_fetch(&u->wrong, 1, __ATOMIC_RELAXED);
	for (i = 0; i < ret; i++) {
		t->waits[t->nr].id = entries[i].id;
		t->waits[t->nr].words = entries[i].wait.flags & MEMWAIT_GROUP ? USER_BATCH : 1;
		t->held += t->waits[t->nr++].words;
	}
	__atomic_add_fetch(&u->armed, ret < 0 ? 0 : ret, __ATOMIC_RELAXED);
	return ret == nr;
}

static void user_cancel(struct user_thread *t, int nr)
{
	struct users *u = t->users;

	while (nr-- && t->nr) {
		t->nr--;
		t->held -= t->waits[t->nr].words;
		if (mw_cancel(t->fd, t->waits[t->nr].id))
			__atomic_add_fetch(&u->wrong, 1, __ATOMIC_RELAXED);
		__atomic_add_fetch(&u->cancelled, 1, __ATOMIC_RELAXED);
	}
}

/*
 * While the other threads of A do nothing: what they hold is what is counted, and not too much.
 * What a group did not fit into is filled up to the last.
 */
static void user_check(struct user_thread *t)
{
	struct users *u = t->users;
	long held = 0;
	int i, ret;

	for (i = 0; i < USER_THREADS; i++)
		held += t[i].held;
	u->wrong += held > u->limit || mw_user_waits(t->fd) != (uint64_t)held;
	for (;;) {
		ret = mw_async(t->fd, u->words, 0, FOREVER, U32, 0, &t->waits[t->nr].id);
		if (ret != MEMWAIT_PENDING)
			break;
		t->waits[t->nr++].words = 1;
		t->held++;
		held++;
	}
	u->wrong += ret != -ENOSPC || held != u->limit;
	u->checked++;
	u->last = __atomic_load_n(&u->stop, __ATOMIC_RELAXED);
}

/* All threads arm until they are refused, while others cancel still. The first one checks. */
static void *user_main(void *arg)
{
	struct user_thread *t = arg;
	struct users *u = t->users;

	for (;;) {
		while (user_arm(t))
			;
		__atomic_add_fetch(&u->refused, 1, __ATOMIC_RELAXED);
		pthread_barrier_wait(&u->barrier);
		if (t->first)
			user_check(t);
		pthread_barrier_wait(&u->barrier);
		if (u->last)
			return NULL;
		user_cancel(t, 1 + next_random(&t->random) % USER_BATCH);
	}
}

/* Whoever ends, the other one must not wait for him. */
static void user_exit(struct users *u, int status)
{
	__atomic_store_n(&u->stop, 1, __ATOMIC_RELAXED);
	_exit(status);
}

/* Becomes a user who has no waits yet. Returns a context, or ends the process. */
static int become_user(struct users *u, uid_t uid)
{
	int fd;

	if (setgid(uid) || setuid(uid))
		user_exit(u, 1);
	fd = memwait_open(O_NONBLOCK);
	if (fd < 0 || mw_user_waits(fd))
		user_exit(u, 2);
	return fd;
}

/* At the limit with many threads and two contexts; when B has done, exactly. */
static void user_a(struct users *u)
{
	struct user_thread t[USER_THREADS];
	int i, other, ret, fd = become_user(u, USER_A);

	other = memwait_open(O_NONBLOCK);
	if (pthread_barrier_init(&u->barrier, NULL, USER_THREADS))
		user_exit(u, 3);
	for (i = 0; i < USER_THREADS; i++) {
		t[i] = (struct user_thread) {
			.users = u,
			.fd = i % 2 ? other : fd,
			.first = !i,
			.random = i + 1,
			.waits = calloc(u->limit + USER_BATCH, sizeof(*t[i].waits)),
		};
		if (pthread_create(&t[i].thread, NULL, user_main, &t[i]))
			user_exit(u, 3);
	}
	for (i = 0; i < USER_THREADS; i++)
		pthread_join(t[i].thread, NULL);

	/* After a cancel it goes on. */
	for (i = 0; i < USER_THREADS && !t[i].nr; i++)
		;
	if (i == USER_THREADS)
		user_exit(u, 6);
	ret = t[i].waits[t[i].nr - 1].words;
	user_cancel(&t[i], 1);
	while (ret--) {
		if (mw_async(other, u->words, 0, FOREVER, U32, 0, NULL) != MEMWAIT_PENDING)
			user_exit(u, 7);
	}
	if (mw_async(fd, u->words, 0, FOREVER, U32, 0, NULL) != -ENOSPC)
		user_exit(u, 8);
	if (mw_user_waits(fd) != (uint64_t)u->limit)
		user_exit(u, 9);
	user_exit(u, 0);
}

/* Alone: the limit is there to the last wait, each time. */
static void user_b(struct users *u)
{
	struct memwait_async *entries = calloc(u->limit + 1, sizeof(*entries));
	int i, ret, fd = become_user(u, USER_B), again;

	if (!entries)
		user_exit(u, 3);
	while (!__atomic_load_n(&u->refused, __ATOMIC_RELAXED)) {
		if (__atomic_load_n(&u->stop, __ATOMIC_RELAXED))
			user_exit(u, 8);
		sched_yield();
	}
	while (u->rounds_done < u->rounds) {
		for (i = 0; i <= u->limit; i++) {
			entries[i] = (struct memwait_async) {
				.wait = member(&u->words[i % USER_BATCH], 0, U32),
			};
			entries[i].wait.deadline = FOREVER;
		}
		if (mw_batch(fd, entries, u->limit + 1) != u->limit)
			user_exit(u, 4);
		if (entries[u->limit].result != -ENOSPC || mw_user_waits(fd) != (uint64_t)u->limit)
			user_exit(u, 5);
		if (u->rounds_done++ % 2) {
			again = memwait_open(O_NONBLOCK);
			close(fd);
			fd = again;
		} else {
			for (i = 0; i < u->limit; i++) {
				ret = mw_cancel(fd, entries[i].id);
				if (ret)
					user_exit(u, 6);
			}
		}
		if (mw_user_waits(fd))
			user_exit(u, 7);
	}
	user_exit(u, 0);
}

LIMITS_TEST(R24_a_user_at_the_limit_and_another_one)
{
	struct users *u = shared_page(sizeof(*u));
	uint64_t start = now_ns(CLOCK_MONOTONIC);
	pid_t a, b;

	ASSERT_NE(NULL, u);
	u->limit = LOAD(2000, 500);
	u->rounds = LOAD(100, 10);
	ASSERT_EQ(0, set_limit(u->limit));
	a = fork();
	ASSERT_LE(0, a);
	if (!a)
		user_a(u);
	b = fork();
	ASSERT_LE(0, b);
	if (!b)
		user_b(u);
	EXPECT_EQ(0, child_status(b));
	EXPECT_EQ(0, child_status(a));
	TH_LOG("limit %d, %.1f s: one armed %ld, cancelled %ld, was refused %ld times", u->limit,
	       seconds_since(start), u->armed, u->cancelled, u->refused);
	TH_LOG("and was exactly at the limit %ld times, the other one %ld times", u->checked,
	       u->rounds_done);
	EXPECT_EQ(0, u->wrong);
	EXPECT_LT(0, u->refused);
	EXPECT_EQ(u->rounds, u->rounds_done);
	EXPECT_LT(0, u->checked);
	EXPECT_EQ(0, mw_waiters(self->fd, u->words, U32));
	munmap(u, sizeof(*u));
}

TEST_HARNESS_MAIN
