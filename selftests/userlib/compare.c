// SPDX-License-Identifier: GPL-2.0
/*
 * The library's locks beside glibc's: that both count right is tested, what they cost is printed.
 * MEMWAIT_SCALE is the number of thousands of locks in a round.
 */
#include "userlib_test.h"

#define ROUNDS	7	/* the first is thrown away */

struct kind {
	const char *name;
	void (*lock)(void);
	void (*unlock)(void);
	void (*wait)(void);
	void (*signal)(void);
};

static pthread_mutex_t glibc_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t glibc_cond = PTHREAD_COND_INITIALIZER;
static memwait_mutex_t mutex = MEMWAIT_MUTEX_INIT;
static memwait_mutex_t fair;
static memwait_cond_t cond = MEMWAIT_COND_INIT;

static void glibc_lock(void)
{
	pthread_mutex_lock(&glibc_mutex);
}

static void glibc_unlock(void)
{
	pthread_mutex_unlock(&glibc_mutex);
}

static void glibc_wait(void)
{
	pthread_cond_wait(&glibc_cond, &glibc_mutex);
}

static void glibc_signal(void)
{
	pthread_cond_signal(&glibc_cond);
}

static void memwait_lock(void)
{
	memwait_mutex_lock(&mutex);
}

static void memwait_unlock(void)
{
	memwait_mutex_unlock(&mutex);
}

static void memwait_wait_(void)
{
	memwait_cond_wait(&cond, &mutex);
}

static void memwait_signal(void)
{
	memwait_cond_signal(&cond);
}

static void fair_lock(void)
{
	memwait_mutex_lock(&fair);
}

static void fair_unlock(void)
{
	memwait_mutex_unlock(&fair);
}

static void fair_wait(void)
{
	memwait_cond_wait(&cond, &fair);
}

static const struct kind kinds[] = {
	{ "glibc", glibc_lock, glibc_unlock, glibc_wait, glibc_signal },
	{ "memwait", memwait_lock, memwait_unlock, memwait_wait_, memwait_signal },
	{ "fair", fair_lock, fair_unlock, fair_wait, memwait_signal },
};

#define KINDS	((int)ARRAY_SIZE(kinds))

/* What the threads of a round share. */
struct round {
	const struct kind *kind;
	long each;		/* times that each thread locks, or has the turn */
	int threads;
	long counter;		/* protected by the lock */
	int turn;		/* the same */
	int ready;
};

struct part {
	struct round *round;
	int number;
};

/* All begin together. */
static void meet(struct round *round)
{
	__atomic_add_fetch(&round->ready, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&round->ready, __ATOMIC_ACQUIRE) < round->threads)
		sched_yield();
}

static int lock_and_count(void *arg)
{
	struct round *round = ((struct part *)arg)->round;
	long i;

	meet(round);
	for (i = 0; i < round->each; i++) {
		round->kind->lock();
		round->counter++;
		round->kind->unlock();
	}
	return 0;
}

static int ping_pong(void *arg)
{
	struct part *part = arg;
	struct round *round = part->round;
	long i;

	meet(round);
	round->kind->lock();
	for (i = 0; i < round->each; i++) {
		while (round->turn != part->number)
			round->kind->wait();
		round->turn = !round->turn;
		round->counter++;
		round->kind->signal();
	}
	round->kind->unlock();
	return 0;
}

/* Returns the time of one count, in ns, or -1 if the count is wrong. */
static double run_round(const struct kind *kind, int (*function)(void *), int threads, long total)
{
	struct round round = { .kind = kind, .each = total / threads, .threads = threads };
	struct runner runners[4];
	struct part parts[4];
	uint64_t start = now_ns(CLOCK_MONOTONIC);
	int i;

	for (i = 0; i < threads; i++) {
		parts[i] = (struct part){ &round, i };
		if (threads == 1)
			function(&parts[i]);
		else
			runner_start(&runners[i], function, &parts[i]);
	}
	for (i = 0; i < threads && threads > 1; i++)
		runner_join(&runners[i]);
	if (round.counter != round.each * threads)
		return -1;
	return (double)(now_ns(CLOCK_MONOTONIC) - start) / (double)round.counter;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Interleaved, so that what disturbs a round disturbs all of them. */
static int compare(const char *what, int (*function)(void *), int threads, long total)
{
	double times[KINDS][ROUNDS], median[KINDS];
	int round, kind;

	for (round = 0; round < ROUNDS; round++) {
		for (kind = 0; kind < KINDS; kind++) {
			times[kind][round] = run_round(&kinds[kind], function, threads, total);
			if (times[kind][round] < 0)
				return -1;
		}
	}
	for (kind = 0; kind < KINDS; kind++) {
		qsort(times[kind] + 1, ROUNDS - 1, sizeof(double), compare_doubles);
		median[kind] = times[kind][ROUNDS / 2];
	}
	for (kind = 1; kind < KINDS; kind++)
		printf("# %-28s %-8s %8.0f ns, glibc %8.0f ns, ratio %5.2f (%.2f to %.2f)\n", what,
		       kinds[kind].name, median[kind], median[0], median[kind] / median[0],
		       times[kind][1] / median[0], times[kind][ROUNDS - 1] / median[0]);
	fflush(stdout);
	return 0;
}

static long thousands(void)
{
	const char *scale = getenv("MEMWAIT_SCALE");

	return scale ? (atol(scale) / 100 + 1) * 1000 : 20000;
}

FIXTURE(compare)
{
};

FIXTURE_SETUP(compare)
{
	ASSERT_EQ(0, memwait_mutex_init(&fair, MEMWAIT_MUTEX_FAIR));
}

FIXTURE_TEARDOWN(compare)
{
	EXPECT_EQ(0, memwait_mutex_destroy(&mutex));
	EXPECT_EQ(0, memwait_mutex_destroy(&fair));
	EXPECT_EQ(0, memwait_cond_destroy(&cond));
}

TEST_F_TIMEOUT(compare, uncontended, 250)
{
	ASSERT_EQ(0, compare("lock + unlock, 1 thread", lock_and_count, 1, thousands() * 10));
}

TEST_F_TIMEOUT(compare, contended_by_2, 250)
{
	ASSERT_EQ(0, compare("lock + unlock, 2 threads", lock_and_count, 2, thousands()));
}

TEST_F_TIMEOUT(compare, contended_by_4, 250)
{
	ASSERT_EQ(0, compare("lock + unlock, 4 threads", lock_and_count, 4, thousands()));
}

TEST_F_TIMEOUT(compare, condition_ping_pong, 250)
{
	ASSERT_EQ(0, compare("condition variable ping-pong", ping_pong, 2, thousands() / 10));
}

TEST_HARNESS_MAIN
