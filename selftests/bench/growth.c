// SPDX-License-Identifier: GPL-2.0
/*
 * How cost grows with what others wait for. A turn arms an async wait, notifies its word once, and
 * reads the completion; it is measured beside more and more async waits that stay pending:
 *
 *	waiters		on the same word: each turn takes the oldest, and joins at the end
 *	words		on a word of its own each
 *	contexts	on the same word, each of another context; the oldest one's turn is next
 *
 * A contender is a number of them. What has been armed stays until the program ends.
 */
#include "bench.h"

#include <sys/resource.h>

#define CHUNK		1000	/* waits armed in one call */
#define CHECKED		100	/* a number is divided by this if nobody looks at figures */

/* Waits of a number of contexts, on the same word or each on another. */
struct crowd {
	int *fds;
	long contexts;
	uint32_t *words;
	long nr;
	bool same;
};

static long number_of(const struct contender *contender)
{
	long nr = contender->number;

	return bench_measures() || nr < CHECKED ? nr : nr / CHECKED;
}

static uint32_t *word_of(const struct crowd *crowd, long i)
{
	return &crowd->words[crowd->same ? 0 : i];
}

static bool arm(const struct crowd *crowd, int fd, long from, int n)
{
	static struct memwait_async entries[CHUNK];
	int i;

	for (i = 0; i < n; i++)
		entries[i] = (struct memwait_async) {
			.wait = {
				.addr = (uintptr_t)word_of(crowd, from + i),
				.deadline = MEMWAIT_FOREVER,
				.flags = MEMWAIT_SIZE_U32,
			},
		};
	if (!bench_arm(fd, entries, n))
		return false;
	for (i = 0; i < n; i++)
		if (entries[i].result != MEMWAIT_PENDING)
			return false;
	return true;
}

/* Returns 0, BENCH_ABSENT if the limits forbid that many, or BENCH_FAILED. */
static double assemble(struct crowd *crowd, long nr, long contexts, bool same)
{
	/* Smaller crowds have theirs open still. */
	struct rlimit files = { 2 * contexts + 100, 2 * contexts + 100 }, before;
	long i, n;

	if (write_number("/sys/module/memwait/parameters/max_user_waits", INT_MAX) ||
	    write_number("/sys/module/memwait/parameters/max_user_contexts", INT_MAX))
		return BENCH_ABSENT;
	if (getrlimit(RLIMIT_NOFILE, &before))
		return BENCH_FAILED;
	if (before.rlim_cur < files.rlim_cur && setrlimit(RLIMIT_NOFILE, &files))
		return BENCH_ABSENT;
	*crowd = (struct crowd) { .contexts = contexts, .nr = nr, .same = same };
	crowd->fds = calloc(contexts, sizeof(*crowd->fds));
	/* One more: the last word is for turns on a word of their own. */
	crowd->words = mmap(NULL, (nr + 1) * sizeof(uint32_t), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!crowd->fds || crowd->words == MAP_FAILED)
		return BENCH_FAILED;
	for (i = 0; i < contexts; i++) {
		crowd->fds[i] = memwait_open(O_NONBLOCK);
		if (crowd->fds[i] < 0)
			return BENCH_FAILED;
	}
	for (i = 0; i < nr; i += n) {
		n = contexts > 1 ? 1 : nr - i < CHUNK ? nr - i : CHUNK;
		if (!arm(crowd, crowd->fds[i % contexts], i, n))
			return BENCH_FAILED;
	}
	return 0;
}

/* The wait that ends is the oldest on that word: of the context @i of turn i. */
static bool turn(const struct crowd *crowd, long i)
{
	int fd = crowd->fds[i % crowd->contexts];
	long word = crowd->same ? 0 : crowd->nr;
	struct memwait_completion done;

	return arm(crowd, fd, word, 1) &&
	       mw_notify(fd, &crowd->words[word], 1, MEMWAIT_SIZE_U32) == 1 &&
	       mw_read(fd, &done, 1) == 1 && done.result == MEMWAIT_OK;
}

/* The contenders of a work have their crowds one beside the other. */
static double grow(const struct contender *contender, long times, long contexts, bool same)
{
	static struct gathering {
		const struct contender *contender;
		struct crowd crowd;
		long turns;
	} all[MOST_CONTENDERS];
	struct gathering *own = all;
	double result;
	uint64_t start;
	long i;

	while (own->contender && own->contender != contender)
		own++;
	if (!own->contender) {
		result = assemble(&own->crowd, number_of(contender), contexts, same);
		if (result)
			return result;
		own->contender = contender;
	}
	start = now_ns(CLOCK_MONOTONIC);
	for (i = 0; i < times; i++)
		if (!turn(&own->crowd, own->turns++))
			return BENCH_FAILED;
	return bench_ns_each(start, times);
}

static double run_waiters(const struct contender *contender, long times)
{
	return grow(contender, times, 1, true);
}

static double run_words(const struct contender *contender, long times)
{
	return grow(contender, times, 1, false);
}

static double run_contexts(const struct contender *contender, long times)
{
	return grow(contender, times, number_of(contender), true);
}

FIXTURE_VARIANT_ADD(bench, growth_waiters) {
	.times = 2000,
	.check = 3,
	.contenders = {
		{ "1", run_waiters, .number = 1 },
		{ "10", run_waiters, .number = 10 },
		{ "100", run_waiters, .number = 100 },
		{ "1000", run_waiters, .number = 1000 },
		{ "10000", run_waiters, .number = 10000 },
		{ "100000", run_waiters, .number = 100000 },
		{ "1000000", run_waiters, .number = 1000000 },
	},
};

FIXTURE_VARIANT_ADD(bench, growth_words) {
	.times = 2000,
	.check = 3,
	.contenders = {
		{ "1", run_words, .number = 1 },
		{ "10", run_words, .number = 10 },
		{ "100", run_words, .number = 100 },
		{ "1000", run_words, .number = 1000 },
		{ "10000", run_words, .number = 10000 },
		{ "100000", run_words, .number = 100000 },
		{ "1000000", run_words, .number = 1000000 },
	},
};

FIXTURE_VARIANT_ADD(bench, growth_contexts) {
	.times = 2000,
	.check = 3,
	.contenders = {
		{ "1", run_contexts, .number = 1 },
		{ "10", run_contexts, .number = 10 },
		{ "100", run_contexts, .number = 100 },
		{ "1000", run_contexts, .number = 1000 },
		{ "10000", run_contexts, .number = 10000 },
	},
};

TEST_HARNESS_MAIN
