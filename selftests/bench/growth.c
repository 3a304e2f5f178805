// SPDX-License-Identifier: GPL-2.0
/*
 * How cost grows with the number of other pending waits. A turn arms an async wait, notifies its
 * word once, and reads the completion. It is measured with different numbers of other waits:
 *
 *	waiters		on the same word: each turn ends the oldest wait, and joins at the end
 *	words		each on a separate word
 *	contexts	on the same word, each in a separate context; turns follow their order
 *
 * Each contender has a different number of waits. All waits stay armed until the program ends.
 */
#include "bench.h"

#include <sys/resource.h>

#define CHUNK		1000	/* number of waits armed in one call */
#define CHECKED		100	/* numbers are divided by this if figures are not measured */

/* The waits of several contexts, on one word or on separate words. */
struct load {
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

static uint32_t *word_of(const struct load *load, long i)
{
	return &load->words[load->same ? 0 : i];
}

static bool arm(const struct load *load, int fd, long from, int n)
{
	static struct memwait_async entries[CHUNK];
	int i;

	for (i = 0; i < n; i++)
		entries[i] = (struct memwait_async) {
			.wait = {
				.addr = (uintptr_t)word_of(load, from + i),
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

/* Returns 0, BENCH_ABSENT if the limits do not allow so many waits, or BENCH_FAILED. */
static double set_up_load(struct load *load, long nr, long contexts, bool same)
{
	/* The contexts of smaller loads are still open. */
	struct rlimit files = { 2 * contexts + 100, 2 * contexts + 100 }, before;
	long i, n;

	if (write_number("/sys/module/memwait/parameters/max_user_waits", INT_MAX) ||
	    write_number("/sys/module/memwait/parameters/max_user_contexts", INT_MAX))
		return BENCH_ABSENT;
	if (getrlimit(RLIMIT_NOFILE, &before))
		return BENCH_FAILED;
	if (before.rlim_cur < files.rlim_cur && setrlimit(RLIMIT_NOFILE, &files))
		return BENCH_ABSENT;
	*load = (struct load) { .contexts = contexts, .nr = nr, .same = same };
	load->fds = calloc(contexts, sizeof(*load->fds));
	/* The additional last word is for turns on a separate word. */
	load->words = mmap(NULL, (nr + 1) * sizeof(uint32_t), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!load->fds || load->words == MAP_FAILED)
		return BENCH_FAILED;
	for (i = 0; i < contexts; i++) {
		load->fds[i] = memwait_open(O_NONBLOCK);
		if (load->fds[i] < 0)
			return BENCH_FAILED;
	}
	for (i = 0; i < nr; i += n) {
		n = contexts > 1 ? 1 : nr - i < CHUNK ? nr - i : CHUNK;
		if (!arm(load, load->fds[i % contexts], i, n))
			return BENCH_FAILED;
	}
	return 0;
}

/* Turn i uses context i. The wait that ends is the oldest wait on its word. */
static bool turn(const struct load *load, long i)
{
	int fd = load->fds[i % load->contexts];
	long word = load->same ? 0 : load->nr;
	struct memwait_completion done;

	return arm(load, fd, word, 1) &&
	       mw_notify(fd, &load->words[word], 1, MEMWAIT_SIZE_U32) == 1 &&
	       mw_read(fd, &done, 1) == 1 && done.result == MEMWAIT_OK;
}

/* The loads of all contenders of a work exist at the same time. */
static double grow(const struct contender *contender, long times, long contexts, bool same)
{
	static struct loaded {
		const struct contender *contender;
		struct load load;
		long turns;
	} all[MOST_CONTENDERS];
	struct loaded *own = all;
	double result;
	uint64_t start;
	long i;

	while (own->contender && own->contender != contender)
		own++;
	if (!own->contender) {
		result = set_up_load(&own->load, number_of(contender), contexts, same);
		if (result)
			return result;
		own->contender = contender;
	}
	start = now_ns(CLOCK_MONOTONIC);
	for (i = 0; i < times; i++)
		if (!turn(&own->load, own->turns++))
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

#define OTHERS(run, number_)	{ #number_, run, .number = number_ }
#define TO_10000(run)							\
	{								\
		OTHERS(run, 1), OTHERS(run, 10), OTHERS(run, 100), OTHERS(run, 1000),	\
		OTHERS(run, 10000)					\
	}
#define TO_1000000(run)							\
	{								\
		OTHERS(run, 1), OTHERS(run, 10), OTHERS(run, 100), OTHERS(run, 1000),	\
		OTHERS(run, 10000), OTHERS(run, 100000), OTHERS(run, 1000000)	\
	}

FIXTURE_VARIANT_ADD(bench, growth_waiters) { "ns", 2000, 3, TO_1000000(run_waiters) };
FIXTURE_VARIANT_ADD(bench, growth_words) { "ns", 2000, 3, TO_1000000(run_words) };
FIXTURE_VARIANT_ADD(bench, growth_contexts) { "ns", 2000, 3, TO_10000(run_contexts) };

TEST_HARNESS_MAIN
