// SPDX-License-Identifier: GPL-2.0
/* R24: a million pending waits. */
#include "load_test.h"

/*
 * Wait i belongs to context i % CONTEXTS. The first waits are all on word 0; any other wait i is on
 * word i. Half of the waits of each context have a deadline far in the future.
 */
#define CONTEXTS	100
#define BATCH		500

enum { ARMED, NOTIFIED, GONE };

struct many {
	int fds[CONTEXTS];	/* -1: closed */
	int n, on_word_0;	/* number of waits, and how many of them are on word 0 */
	uint32_t *words;
	uint64_t *ids;
	uint32_t *when;		/* ordinal number of the notify */
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
			entries[nr].wait.addr = (uintptr_t)&m->words[j < m->on_word_0 ? 0 : j];
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

/* Returns a pending wait that is the only wait on its word. */
static int pick(struct many *m)
{
	int i;

	do {
		i = m->on_word_0 + next_random(&m->random) % (m->n - m->on_word_0);
	} while (m->state[i] != ARMED);
	return i;
}

/*
 * Reads all completions. Each wait must have been notified, must appear once, and must be in order
 * (R20).
 */
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

/* The sum of the counts that the contexts report. */
static long sum_of_contexts(struct many *m, const char *name)
{
	long sum = 0;
	int c;

	for (c = 0; c < CONTEXTS; c++) {
		if (m->fds[c] >= 0)
			sum += mw_fdinfo(m->fds[c], name);
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

/*
 * Notifies the remaining waits: each word once, except word 0, which is notified until it has no
 * waiters.
 */
static int notify_the_rest(struct many *m, int fd, int *wrong)
{
	static struct memwait_notify notifies[BATCH];
	static uint32_t woken[BATCH];
	int i, j, c, nr, sum = mw_notify(fd, m->words, MEMWAIT_ALL, U32);

	/* The waits are read in the order of arming. */
	for (c = 0; c < CONTEXTS; c++) {
		for (i = c; i < m->on_word_0; i += CONTEXTS) {
			if (m->state[i] == ARMED)
				notified(m, i);
		}
	}
	for (i = m->on_word_0; i < m->n; i += nr) {
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
	m.on_word_0 = some;
	m.words = private_page(m.n * sizeof(*m.words));
	m.ids = calloc(m.n, sizeof(*m.ids));
	m.when = calloc(m.n, sizeof(*m.when));
	m.state = calloc(m.n, sizeof(*m.state));
	ASSERT_TRUE(m.words && m.ids && m.when && m.state);
	ASSERT_EQ(0, set_limit(self->user_waits + m.n + CONTEXTS * PIN_WAITS));

	start = now_ns(CLOCK_MONOTONIC);
	for (c = 0; c < CONTEXTS; c++) {
		m.fds[c] = open_device(O_NONBLOCK);
		ASSERT_EQ(m.n / CONTEXTS, arm_context(&m, c, deadline));
		ASSERT_EQ(self->user_waits + (uint64_t)(c + 1) * (m.n / CONTEXTS + PIN_WAITS),
			  mw_user_waits(self->fd));
	}
	TH_LOG("%d waits in %d contexts, %d on one word: armed in %.1f s", m.n, CONTEXTS,
	       m.on_word_0, seconds_since(start));
	TH_LOG("%ld bytes of slabs for each wait, %ld MB are available",
	       (memory_of("Slab") - slab) / m.n, memory_of("MemAvailable") >> 20);
	EXPECT_EQ(m.n, sum_of_contexts(&m, "pending"));
	EXPECT_EQ(m.on_word_0, mw_waiters(self->fd, m.words, U32));
	EXPECT_EQ(-ENOSPC, mw_arm(self->fd, self->word, 0));

	start = now_ns(CLOCK_MONOTONIC);
	for (i = 0; i < some; i++) {
		int one = pick(&m);

		ASSERT_EQ(1, mw_notify(self->fd, &m.words[one], MEMWAIT_ALL, U32));
		ASSERT_EQ(0, mw_notify(self->fd, &m.words[one], MEMWAIT_ALL, U32));
		notified(&m, one);
	}
	/* The oldest waits on word 0 belong to the first contexts. */
	ASSERT_EQ(some / 10, mw_notify(self->fd, m.words, some / 10, U32));
	ASSERT_EQ(m.on_word_0 - some / 10, mw_waiters(self->fd, m.words, U32));
	for (c = 0; c < CONTEXTS / 10; c++) {
		for (i = c; i < m.on_word_0; i += CONTEXTS)
			notified(&m, i);
	}
	sum = some + some / 10;
	EXPECT_EQ(self->user_waits + m.n + CONTEXTS * PIN_WAITS, mw_user_waits(self->fd));
	EXPECT_EQ(sum, sum_of_contexts(&m, "completed"));
	EXPECT_EQ(m.n - sum, sum_of_contexts(&m, "pending"));
	for (c = 0, got = 0; c < CONTEXTS; c++)
		got += read_context(&m, c, &wrong);
	EXPECT_EQ(sum, got);
	EXPECT_EQ(0, wrong);
	left = self->user_waits + m.n + CONTEXTS * PIN_WAITS - sum;
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
		left -= m.pending[c] + PIN_WAITS;
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
	EXPECT_EQ(left, self->user_waits + sum + CONTEXTS / 2 * PIN_WAITS);
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

TEST_HARNESS_MAIN
