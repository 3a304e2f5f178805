// SPDX-License-Identifier: GPL-2.0
/*
 * Everything at once, with exact accounting: processes of several threads wait, arm, notify,
 * cancel, read, and close contexts, at random, over a few shared and private words, with deadlines
 * near zero. At the end, with nobody left waiting,
 *
 *	sum of what the notifies returned == OKs seen by threads + OK completions read
 *
 * as long as contexts are drained before they are closed. If they are closed as they are, a notify
 * may be passed on, or find nobody to be passed on to: then no more may be missing than waits were
 * pending or unread in the contexts so closed. Every pending wait ends exactly once in both cases.
 *
 * MEMWAIT_TORTURE_SECONDS and MEMWAIT_TORTURE_SEED set length and seed.
 */
#include "memwait_test.h"

#define PROCESSES	3
#define THREADS		3
#define WORDS		4
#define SLOTS		64
#define BATCH		8

struct counters {
	long notified, thread_oks, read_oks, timed_out, not_equal, cancelled, armed, closed_over;
	long broken;
	char what[128];
};

struct shared {
	uint32_t words[WORDS];
	bool drain;
	int stop;
	struct counters counters[PROCESSES][THREADS];
};

struct worker {
	struct shared *shared;
	uint32_t *words[2 * WORDS];		/* shared ones, then the process's own */
	struct counters *count;
	uint64_t random;
	uint64_t ids[SLOTS];			/* of pending waits; user_data is the slot */
	int fd;
	pthread_t thread;
};

static uint32_t next_random(struct worker *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random >> 16;
}

static void broken(struct worker *w, const char *what, uint64_t a, uint64_t b)
{
	if (!w->count->broken++)
		snprintf(w->count->what, sizeof(w->count->what), "%s (%llu, %llu)", what,
			 (unsigned long long)a, (unsigned long long)b);
}

static uint64_t random_deadline(struct worker *w)
{
	return now_ns(CLOCK_MONOTONIC) + next_random(w) % (2 * NSEC_PER_MSEC);
}

static uint32_t *random_word(struct worker *w, uint32_t *flags)
{
	uint32_t i = next_random(w) % (2 * WORDS);

	*flags = MEMWAIT_SIZE_U32 | (i >= WORDS && next_random(w) % 2 ? MEMWAIT_PRIVATE : 0);
	return w->words[i];
}

static void step_notify(struct worker *w)
{
	uint32_t flags, *word = random_word(w, &flags);
	int ret;

	if (next_random(w) % 4 == 0)
		__atomic_add_fetch(word, 1, __ATOMIC_RELAXED);
	ret = mw_notify(w->fd, word, next_random(w) % 8 ? next_random(w) % 4 : MEMWAIT_ALL, flags);
	if (ret < 0)
		broken(w, "notify", -ret, 0);
	else
		w->count->notified += ret;
}

static void step_wait(struct worker *w)
{
	uint32_t flags, *word = random_word(w, &flags);
	uint32_t value = __atomic_load_n(word, __ATOMIC_RELAXED);
	uint64_t deadline = random_deadline(w);
	int ret = mw_wait(w->fd, word, value, deadline, flags);

	if (ret == MEMWAIT_OK)
		w->count->thread_oks++;
	else if (ret == MEMWAIT_NOT_EQUAL)
		w->count->not_equal++;
	else if (ret != MEMWAIT_TIMED_OUT)
		broken(w, "wait", -ret, 0);
	else if (now_ns(CLOCK_MONOTONIC) < deadline)
		broken(w, "wait timed out early", deadline, 0);
}

static void step_arm(struct worker *w)
{
	struct memwait_async entries[BATCH];
	struct memwait_wait_async arg = { .waits = (uintptr_t)entries };
	uint32_t slot = next_random(w) % SLOTS, flags, *word;
	int i, ret;

	memset(entries, 0, sizeof(entries));
	for (i = 0; i < BATCH; i++, slot++) {
		slot %= SLOTS;
		if (w->ids[slot])
			break;
		word = random_word(w, &flags);
		entries[i].wait.addr = (uintptr_t)word;
		entries[i].wait.expected = __atomic_load_n(word, __ATOMIC_RELAXED);
		entries[i].wait.deadline = next_random(w) % 2 ? MEMWAIT_FOREVER :
								random_deadline(w);
		entries[i].wait.flags = flags;
		entries[i].user_data = slot;
	}
	arg.count = i;
	ret = xioctl(w->fd, MEMWAIT_IOC_WAIT_ASYNC, &arg);
	if (ret != i)
		broken(w, "arm", -ret, i);
	for (i = 0; i < ret; i++) {
		if (entries[i].result != MEMWAIT_PENDING)
			continue;
		w->ids[entries[i].user_data] = entries[i].id;
		w->count->armed++;
	}
}

static void step_cancel(struct worker *w)
{
	uint32_t slot = next_random(w) % SLOTS;
	int ret;

	if (!w->ids[slot])
		return;
	ret = mw_cancel(w->fd, w->ids[slot]);
	if (!ret) {
		w->ids[slot] = 0;
		w->count->cancelled++;
	} else if (ret != -ENOENT) {
		broken(w, "cancel", -ret, 0);
	}
}

static void step_read(struct worker *w)
{
	struct memwait_completion done[BATCH];
	int n = mw_read(w->fd, done, 1 + next_random(w) % BATCH);

	for (int i = 0; i < n; i++) {
		uint64_t slot = done[i].user_data;

		if (slot >= SLOTS || w->ids[slot] != done[i].id)
			broken(w, "completion of no pending wait", slot, done[i].id);
		else
			w->ids[slot] = 0;
		if (done[i].result == MEMWAIT_OK)
			w->count->read_oks++;
		else if (done[i].result == MEMWAIT_TIMED_OUT)
			w->count->timed_out++;
		else
			broken(w, "completion's result", done[i].result, 0);
	}
	if (n < 0 && n != -EAGAIN)
		broken(w, "read", -n, 0);
}

/* After this no wait is pending and no completion unread. */
static void drain(struct worker *w)
{
	int left;

	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		if (w->ids[slot] && !mw_cancel(w->fd, w->ids[slot])) {
			w->ids[slot] = 0;
			w->count->cancelled++;
		}
	}
	/* What could not be cancelled has ended; its completion may be on its way still. */
	do {
		step_read(w);
		left = 0;
		for (uint32_t slot = 0; slot < SLOTS; slot++)
			left += !!w->ids[slot];
	} while (left && !w->count->broken);
}

static void step_close(struct worker *w)
{
	if (w->shared->drain)
		drain(w);
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		w->count->closed_over += !!w->ids[slot];
		w->ids[slot] = 0;
	}
	close(w->fd);
	w->fd = memwait_open(O_NONBLOCK);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	w->fd = memwait_open(O_NONBLOCK);
	while (!__atomic_load_n(&w->shared->stop, __ATOMIC_RELAXED) && !w->count->broken) {
		switch (next_random(w) % 16) {
		case 0 ... 4:
			step_notify(w);
			break;
		case 5 ... 7:
			step_wait(w);
			break;
		case 8 ... 10:
			step_arm(w);
			break;
		case 11 ... 12:
			step_cancel(w);
			break;
		case 13 ... 14:
			step_read(w);
			break;
		case 15:
			if (next_random(w) % 8 == 0)
				step_close(w);
			break;
		}
	}
	drain(w);
	close(w->fd);
	return NULL;
}

static void process(struct shared *shared, int number, uint64_t seed)
{
	uint32_t *own = private_page(4096);
	struct worker workers[THREADS] = { 0 };
	int i, j;

	for (i = 0; i < THREADS; i++) {
		workers[i].shared = shared;
		workers[i].count = &shared->counters[number][i];
		workers[i].random = (seed + number * THREADS + i + 1) * 0x9e3779b97f4a7c15ULL;
		for (j = 0; j < WORDS; j++) {
			workers[i].words[j] = &shared->words[j];
			workers[i].words[WORDS + j] = &own[j];
		}
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	_exit(0);
}

static struct counters torture(struct __test_metadata *_metadata, bool drained)
{
	const char *seconds = getenv("MEMWAIT_TORTURE_SECONDS");
	const char *seed = getenv("MEMWAIT_TORTURE_SEED");
	uint64_t start = seed ? strtoull(seed, NULL, 0) : now_ns(CLOCK_REALTIME);
	struct shared *shared = shared_page(sizeof(*shared));
	struct counters sum = { 0 };
	int fd = memwait_open(0), i, j;
	uint64_t before;

	ASSERT_GE(fd, 0);
	ASSERT_NE(NULL, shared);
	before = mw_user_waits(fd);
	shared->drain = drained;
	TH_LOG("seed %llu", (unsigned long long)start);
	for (i = 0; i < PROCESSES; i++) {
		pid_t pid = fork();

		ASSERT_LE(0, pid);
		if (!pid)
			process(shared, i, start);
	}
	sleep(seconds ? atoi(seconds) : 5);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < PROCESSES; i++) {
		int status;

		wait(&status);
		EXPECT_EQ(0, status);
	}

	for (i = 0; i < PROCESSES; i++) {
		for (j = 0; j < THREADS; j++) {
			struct counters *c = &shared->counters[i][j];

			EXPECT_EQ(0, c->broken) TH_LOG("%s", c->what);
			sum.notified += c->notified;
			sum.thread_oks += c->thread_oks;
			sum.read_oks += c->read_oks;
			sum.timed_out += c->timed_out;
			sum.not_equal += c->not_equal;
			sum.cancelled += c->cancelled;
			sum.armed += c->armed;
			sum.closed_over += c->closed_over;
		}
	}
	TH_LOG("notified %ld, OKs of threads %ld, of completions %ld", sum.notified, sum.thread_oks,
	       sum.read_oks);
	TH_LOG("armed %ld, timed out %ld, cancelled %ld, closed over %ld", sum.armed, sum.timed_out,
	       sum.cancelled, sum.closed_over);

	/* Every pending wait has ended once: broken() would tell of a second time. */
	EXPECT_EQ(sum.armed, sum.read_oks + sum.timed_out + sum.cancelled + sum.closed_over);
	EXPECT_EQ(before, mw_user_waits(fd));
	for (i = 0; i < WORDS; i++)
		EXPECT_EQ(0, mw_waiters(fd, &shared->words[i], MEMWAIT_SIZE_U32));
	EXPECT_LT(0, sum.notified);
	EXPECT_LT(0, sum.timed_out);
	close(fd);
	munmap(shared, sizeof(*shared));
	return sum;
}

FIXTURE(torture)
{
};

FIXTURE_SETUP(torture)
{
}

FIXTURE_TEARDOWN(torture)
{
}

TEST_F_TIMEOUT(torture, R5_every_notify_is_one_ok, 86400)
{
	struct counters sum = torture(_metadata, true);

	EXPECT_EQ(sum.notified, sum.thread_oks + sum.read_oks);
}

TEST_F_TIMEOUT(torture, R25_close_passes_notifies_on, 86400)
{
	struct counters sum = torture(_metadata, false);
	long seen = sum.thread_oks + sum.read_oks;

	EXPECT_LT(0, sum.closed_over);
	EXPECT_GE(sum.notified, seen);
	EXPECT_GE(seen + sum.closed_over, sum.notified);
}

TEST_HARNESS_MAIN
