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
	void (*broadcast)(void);
	void (*wait_for_all)(void);
	void (*all_are_there)(void);
};

static pthread_mutex_t glibc_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t glibc_cond = PTHREAD_COND_INITIALIZER;
static pthread_cond_t glibc_all = PTHREAD_COND_INITIALIZER;

/* As in any program: what belongs together lies together, here in one page. */
static _Alignas(256) struct {
	memwait_mutex_t mutex;
	memwait_mutex_t fair;
	memwait_cond_t cond;
	memwait_cond_t all;
} ours;

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

static void glibc_broadcast(void)
{
	pthread_cond_broadcast(&glibc_cond);
}

static void glibc_wait_for_all(void)
{
	pthread_cond_wait(&glibc_all, &glibc_mutex);
}

static void glibc_all_are_there(void)
{
	pthread_cond_signal(&glibc_all);
}

static void memwait_lock(void)
{
	memwait_mutex_lock(&ours.mutex);
}

static void memwait_unlock(void)
{
	memwait_mutex_unlock(&ours.mutex);
}

static void memwait_wait_(void)
{
	memwait_cond_wait(&ours.cond, &ours.mutex);
}

static void memwait_signal(void)
{
	memwait_cond_signal(&ours.cond);
}

static void memwait_broadcast(void)
{
	memwait_cond_broadcast(&ours.cond);
}

static void memwait_wait_for_all(void)
{
	memwait_cond_wait(&ours.all, &ours.mutex);
}

static void memwait_all_are_there(void)
{
	memwait_cond_signal(&ours.all);
}

static void fair_lock(void)
{
	memwait_mutex_lock(&ours.fair);
}

static void fair_unlock(void)
{
	memwait_mutex_unlock(&ours.fair);
}

static void fair_wait(void)
{
	memwait_cond_wait(&ours.cond, &ours.fair);
}

static void fair_wait_for_all(void)
{
	memwait_cond_wait(&ours.all, &ours.fair);
}

static const struct kind kinds[] = {
	{ "glibc", glibc_lock, glibc_unlock, glibc_wait, glibc_signal, glibc_broadcast,
	  glibc_wait_for_all, glibc_all_are_there },
	{ "memwait", memwait_lock, memwait_unlock, memwait_wait_, memwait_signal,
	  memwait_broadcast, memwait_wait_for_all, memwait_all_are_there },
	{ "fair", fair_lock, fair_unlock, fair_wait, memwait_signal, memwait_broadcast,
	  fair_wait_for_all, memwait_all_are_there },
};

#define KINDS	((int)ARRAY_SIZE(kinds))

/* What the threads of a round share. */
struct round {
	const struct kind *kind;
	long each;		/* times that each thread locks, or has the turn */
	int threads;
	long counter;		/* protected by the lock */
	int turn;		/* the same */
	int there;		/* the same: how many wait for the next turn */
	int ready;
};

#define MOST_THREADS	65

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

/* The first lets all others go, when all of them wait, and counts. */
static int broadcast_to_all(void *arg)
{
	struct part *part = arg;
	struct round *round = part->round;
	int others = round->threads - 1, turn;
	long i;

	meet(round);
	round->kind->lock();
	for (i = 0; i < round->each; i++) {
		if (!part->number) {
			while (round->there != others)
				round->kind->wait_for_all();
			round->there = 0;
			round->turn++;
			round->kind->broadcast();
		} else {
			turn = round->turn;
			if (++round->there == others)
				round->kind->all_are_there();
			while (round->turn == turn)
				round->kind->wait();
		}
		round->counter++;
	}
	round->kind->unlock();
	return 0;
}

/* Returns the time of one count, in ns, or -1 if the count is wrong. */
static double run_round(const struct kind *kind, int (*function)(void *), int threads, long total)
{
	struct round round = { .kind = kind, .each = total / threads, .threads = threads };
	struct runner runners[MOST_THREADS];
	struct part parts[MOST_THREADS];
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
	ASSERT_EQ(0, memwait_mutex_init(&ours.fair, MEMWAIT_MUTEX_FAIR));
}

FIXTURE_TEARDOWN(compare)
{
	EXPECT_EQ(0, memwait_mutex_destroy(&ours.mutex));
	EXPECT_EQ(0, memwait_mutex_destroy(&ours.fair));
	EXPECT_EQ(0, memwait_cond_destroy(&ours.cond));
	EXPECT_EQ(0, memwait_cond_destroy(&ours.all));
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

TEST_F_TIMEOUT(compare, broadcast_to_64, 250)
{
	ASSERT_EQ(0, compare("broadcast to 64 threads", broadcast_to_all, MOST_THREADS,
			     thousands() / 10 + MOST_THREADS));
}

TEST_HARNESS_MAIN
