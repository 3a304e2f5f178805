// SPDX-License-Identifier: GPL-2.0
/* R28, R30: cancels while many waits expire. */
#include "hostile_test.h"

/* R30: a thread cancels one wait while many others expire. */
#define CANCEL_WAITS	200000

struct canceller {
	uint64_t since;		/* start time of the current cancel; 0: there is none */
	uint64_t worst, forever;
	int result, cancels, done;
};

static int timed_cancel(struct canceller *c, int fd, uint64_t id, uint64_t *worst)
{
	uint64_t start = now();
	int ret;

	__atomic_store_n(&c->since, start, __ATOMIC_RELEASE);
	ret = mw_cancel(fd, id);
	__atomic_store_n(&c->since, 0, __ATOMIC_RELEASE);
	if (now() - start > *worst)
		*worst = now() - start;
	c->cancels++;
	return ret;
}

/* Cancels waits that are about to expire. The waits expire in the order of arming. */
static void run_canceller(struct canceller *c, int fd, const uint64_t *ids, int n, uint64_t forever)
{
	long next;
	int i;

	/*
	 * The thread gets real-time priority, if permitted, so that it runs while there are waits
	 * to cancel.
	 */
	set_fifo(10);
	while (!mw_readable(fd))
		usleep(100);
	c->result = timed_cancel(c, fd, forever, &c->forever);
	while ((next = n - mw_fdinfo(fd, "pending")) < n) {
		for (i = 0; i < 64 && next + i < n; i++)
			timed_cancel(c, fd, ids[next + i], &c->worst);
	}
	store(&c->done, 1);
	_exit(0);
}

static pid_t start_canceller(struct __test_metadata *_metadata, struct canceller *c, int *fd,
			     uint32_t *word, uint64_t *ids, int n)
{
	uint64_t forever;
	pid_t pid;

	ASSERT_NE(0, arm_timed(fd, word, n, ids));
	ASSERT_EQ(1, arm_many(*fd, word, 1, MEMWAIT_FOREVER, &forever));
	pid = fork_child();
	if (!pid)
		run_canceller(c, *fd, ids, n, forever);
	return pid;
}

/* Ends overdue waits while the canceller may be about to cancel one of them. */
static void read_some(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct memwait_completion done[BATCH];

	if (poll(&pfd, 1, 1) == 1)
		mw_read(fd, done, BATCH);
}

LIMITS_TEST(R30_a_cancel_does_not_wait_for_the_expiry_of_other_waits)
{
	struct canceller *c = shared_page(4096);
	int n = allow_many_waits(CANCEL_WAITS);
	uint64_t *ids = calloc(n, sizeof(*ids));
	pid_t pid = start_canceller(_metadata, c, &self->fd, self->word, ids, n);

	while (!load(&c->done) && kill(pid, 0) == 0)
		read_some(self->fd);
	EXPECT_EQ(0, child_status(pid));
	TH_LOG("longest of %d cancels: %ld us; cancel of a wait without a deadline: %ld us",
	       c->cancels, (long)c->worst / 1000, (long)c->forever / 1000);
	EXPECT_EQ(0, c->result);
	EXPECT_WITHIN_MS(1000, c->worst);
	EXPECT_WITHIN_MS(1000, c->forever);
	free(ids);
	munmap(c, 4096);
}

LIMITS_TEST(R28_a_thread_in_a_cancel_can_be_killed)
{
	struct canceller *c = shared_page(4096);
	int n = allow_many_waits(CANCEL_WAITS);
	uint64_t *ids = calloc(n, sizeof(*ids)), since, death = 0;
	pid_t pid = start_canceller(_metadata, c, &self->fd, self->word, ids, n);
	bool waits = false;

	/* If no cancel takes longer than 200 ms, the kill interrupts no cancel. */
	while (!load(&c->done) && !waits) {
		read_some(self->fd);
		since = __atomic_load_n(&c->since, __ATOMIC_ACQUIRE);
		waits = since && now() > since + 200 * NSEC_PER_MSEC;
	}
	death = kill_and_time(pid);
	TH_LOG("a cancel %s; the kill took %ld ms", waits ? "blocks" : "never blocks",
	       in_millis(death));
	EXPECT_WITHIN_MS(1000, death);
	free(ids);
	munmap(c, 4096);
}

TEST_HARNESS_MAIN
