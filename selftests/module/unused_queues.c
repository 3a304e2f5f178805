// SPDX-License-Identifier: GPL-2.0
/* R11, R31: queues of words that are not waited on any more. */
#include "load_test.h"

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

TEST_HARNESS_MAIN
