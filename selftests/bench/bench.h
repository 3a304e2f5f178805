/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Contenders that do the same work. If a program runs as a test, it checks with a few operations
 * that each contender counts correctly, and measures no time. With MEMWAIT_BENCH_ROUNDS=n it
 * measures n rounds of each contender. The rounds are interleaved, so that a disturbance affects
 * all contenders. An additional round at the beginning warms up. The program prints the figures for
 * selftests/bench/figures, after the line by which the harness announces the work, with one line
 * for each contender:
 *
 * # bench CONTENDER UNIT FIGURE...
 */
#ifndef BENCH_H
#define BENCH_H

#include "../memwait_test.h"

#define MOST_CONTENDERS	8
#define MOST_FIGURES	8	/* of one contender */
#define MOST_ROUNDS	99

/* A contender that cannot return a figure returns one of these results. */
#define BENCH_FAILED	(-1.0)
#define BENCH_ABSENT	(-2.0)	/* this kernel lacks the feature */

struct contender {
	const char *name;
	/*
	 * Does the work @times times. Returns the cost of one operation, in the unit of the work.
	 */
	double (*run)(const struct contender *contender, long times);
	int number;		/* a parameter of @run, like the members that follow */
	uint32_t flags;
	const void *how;
};

/* A figure of a contender: the result of @run, or a figure that @run has added in each round. */
struct bench_figure {
	const char *name;	/* printed after the name of the contender; NULL: none */
	const char *unit;	/* NULL: there is no such figure */
	double rounds[MOST_ROUNDS + 1];
};

static struct bench_figure bench_figures[MOST_CONTENDERS][MOST_FIGURES];
static struct bench_figure *bench_next;
static const char *bench_result;	/* set by @run: the name of its result; NULL: none */
static int bench_round;

/* Called by @run: adds a figure for the same round, which is printed as a separate contender. */
static inline void bench_add(const char *name, const char *unit, double figure)
{
	bench_next->name = name;
	bench_next->unit = unit;
	bench_next->rounds[bench_round] = figure;
	bench_next++;
}

/* Returns whether figures are measured. Otherwise only counts are checked. */
static inline bool bench_measures(void)
{
	return getenv("MEMWAIT_BENCH_ROUNDS");
}

/* Returns whether there is only one CPU, so that a spinning thread prevents others from running. */
static inline bool bench_alone(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN) < 2;
}

/*
 * Returns the time since @start in ns. Never returns 0, which means failure, even if a coarse clock
 * shows the same time.
 */
static inline uint64_t bench_since(uint64_t start)
{
	uint64_t ns = now_ns(CLOCK_MONOTONIC) - start;

	return ns ? ns : 1;
}

static inline double bench_ns_each(uint64_t start, long times)
{
	return (double)(now_ns(CLOCK_MONOTONIC) - start) / (double)times;
}

/*
 * Arms a whole batch. Task work that a closed ring has left ends a call early, like a signal. In
 * this case the next call continues with the rest. Returns false if an entry failed.
 */
static inline bool bench_arm(int fd, struct memwait_async *entries, int n)
{
	int i, done;

	for (i = 0; i < n; i += done) {
		done = mw_batch(fd, entries + i, n - i);
		if (done <= 0)
			return false;
	}
	return true;
}

static inline bool bench_notify(int fd, const struct memwait_notify *notifies, int n)
{
	int i, done;

	for (i = 0; i < n; i += done) {
		done = mw_notify_many(fd, notifies + i, n - i, NULL);
		if (done <= 0)
			return false;
	}
	return true;
}

FIXTURE(bench)
{
	int rounds;		/* 0: only checks */
};

FIXTURE_VARIANT(bench)
{
	const char *unit;
	long times;		/* number of operations in a measured round */
	long check;		/* number of operations in a round that only checks counts */
	struct contender contenders[MOST_CONTENDERS];
};

FIXTURE_SETUP(bench)
{
	const char *rounds = getenv("MEMWAIT_BENCH_ROUNDS");

	self->rounds = rounds ? atoi(rounds) : 0;
	if (self->rounds > MOST_ROUNDS)
		self->rounds = MOST_ROUNDS;
}

FIXTURE_TEARDOWN(bench)
{
}

static inline void bench_print(const char *name, const struct bench_figure *figure, int n)
{
	int i;

	if (!n || figure->rounds[1] == BENCH_ABSENT)
		return;
	printf("# bench\t%s%s%s\t%s", name, figure->name ? " " : "", figure->name ?: "",
	       figure->unit);
	for (i = 1; i <= n; i++)
		printf("\t%.4g", figure->rounds[i]);
	printf("\n");
}

/* Each work of a bench program is a variant of this test. */
TEST_F_TIMEOUT(bench, counts_right, 3600)
{
	const struct contender *contender;
	long times = self->rounds ? variant->times : variant->check;
	double result;
	int i, j;

	for (bench_round = 0; bench_round <= self->rounds; bench_round++) {
		for (i = 0; i < MOST_CONTENDERS && variant->contenders[i].name; i++) {
			contender = &variant->contenders[i];
			bench_next = &bench_figures[i][1];
			result = contender->run(contender, times);
			ASSERT_NE(BENCH_FAILED, result) {
				TH_LOG("%s failed in round %d", contender->name, bench_round);
			}
			bench_next = &bench_figures[i][0];
			bench_add(bench_result, variant->unit, result);
		}
	}
	for (i = 0; i < MOST_CONTENDERS && variant->contenders[i].name; i++) {
		for (j = 0; j < MOST_FIGURES && bench_figures[i][j].unit; j++)
			bench_print(variant->contenders[i].name, &bench_figures[i][j],
				    self->rounds);
	}
	fflush(stdout);
}

#endif /* BENCH_H */
