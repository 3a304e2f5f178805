// SPDX-License-Identifier: GPL-2.0
/* NOTIFY and WAITERS: counts and addresses. */
#include "../memwait_fixture.h"

#define NR	8

static void start_all(int fd, uint32_t *word, struct waiter *w, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		w[i] = thread_at(fd, word);
		waiter_start(&w[i]);
	}
}

static int done(struct waiter *w, int n)
{
	int i, count = 0;

	for (i = 0; i < n; i++)
		count += __atomic_load_n(&w[i].done, __ATOMIC_ACQUIRE);
	return count;
}

MEMWAIT_TEST(R13_without_waiters_notify_returns_0)
{
	EXPECT_EQ(0, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(0, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(0, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EQ(0, mw_notify(self->fd, self->word, 1, U32 | MEMWAIT_PRIVATE));
}

MEMWAIT_TEST(R13_count_zero_wakes_none)
{
	struct waiter w;

	start_all(self->fd, self->word, &w, 1);
	EXPECT_EQ(0, mw_notify(self->fd, self->word, 0, U32));
	EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

MEMWAIT_TEST(R13_count_zero_checks_arguments_only)
{
	EXPECT_EQ(-EINVAL, mw_notify(self->fd, (char *)self->word + 1, 0, U32));
	EXPECT_EQ(0, mw_notify(self->fd, NULL, 0, U32));
}

MEMWAIT_TEST(R13_wakes_as_many_as_it_says)
{
	struct waiter w[NR];
	int i;

	start_all(self->fd, self->word, w, NR);
	EXPECT_EQ(3, mw_notify(self->fd, self->word, 3, U32));
	EXPECT_EQ(NR - 3, mw_waiters(self->fd, self->word, U32));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[i]));
	EXPECT_EQ(0, done(w + 3, NR - 3));

	/* The count is greater than the number of waiters. */
	EXPECT_EQ(NR - 3, mw_notify(self->fd, self->word, NR, U32));
	for (i = 3; i < NR; i++)
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[i]));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

MEMWAIT_TEST(R13_the_maximum_means_all)
{
	static const uint32_t counts[] = { MEMWAIT_ALL, MEMWAIT_ALL - 1, 1U << 31, INT32_MAX };
	struct waiter w[NR];
	size_t i;
	int j;

	for (i = 0; i < 4; i++) {
		start_all(self->fd, self->shared, w, NR);
		EXPECT_EQ(NR, mw_notify(self->fd, self->shared, counts[i], U32));
		for (j = 0; j < NR; j++)
			EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[j]));
	}
}

MEMWAIT_TEST(R14_waiters_on_other_words_are_left_alone)
{
	struct waiter w[NR];
	int i;

	for (i = 0; i < NR; i++)
		start_all(self->fd, self->word + i, &w[i], 1);
	for (i = NR - 1; i >= 0; i--) {
		EXPECT_EQ(1, mw_notify(self->fd, self->word + i, MEMWAIT_ALL, U32));
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[i]));
		EXPECT_EQ(0, done(w, i));
	}
}

MEMWAIT_TEST(R15_does_not_read_the_word)
{
	struct waiter w;

	start_all(self->fd, self->word, &w, 1);
	/* A notify does not fault in the dropped page. */
	EXPECT_EQ(0, madvise(self->word, self->page, MADV_DONTNEED));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	unsigned char resident;

	EXPECT_EQ(0, mincore(self->word, self->page, &resident));
	EXPECT_EQ(0, resident & 1);
}

MEMWAIT_TEST(R15_a_readable_mapping_is_enough)
{
	EXPECT_EQ(0, mprotect(self->word, self->page, PROT_READ));
	EXPECT_EQ(0, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(0, mprotect(self->shared, self->page, PROT_READ));
	EXPECT_EQ(0, mw_notify(self->fd, self->shared, 1, U32));
}

MEMWAIT_TEST(R15_no_mapping_is_efault_unless_private)
{
	uint32_t *hole = private_page(self->page);

	EXPECT_EQ(0, mprotect(hole, self->page, PROT_NONE));
	EXPECT_EQ(-EFAULT, mw_notify(self->fd, hole, 1, U32));
	EXPECT_EQ(-EFAULT, mw_waiters(self->fd, hole, U32));
	EXPECT_EQ(0, mw_notify(self->fd, hole, 1, U32 | MEMWAIT_PRIVATE));
	EXPECT_EQ(0, munmap(hole, self->page));
	EXPECT_EQ(-EFAULT, mw_notify(self->fd, hole, 1, U32));
	EXPECT_EQ(-EFAULT, mw_waiters(self->fd, hole, U32));
	EXPECT_EQ(0, mw_notify(self->fd, hole, 1, U32 | MEMWAIT_PRIVATE));
	EXPECT_EQ(0, mw_waiters(self->fd, hole, U32 | MEMWAIT_PRIVATE));
}

/*
 * In the following tests another thread must run between two steps of a notify. The thread and the
 * notifier share a CPU, and the first completion wakes the thread, which preempts the notifier
 * because that is a SCHED_IDLE thread. On a busy host a thread of normal priority may use up its
 * time slice before the test is done, and even a SCHED_IDLE thread then runs. Root therefore runs
 * the thread with real-time priority.
 */
#define WAITS	10000

static struct memwait_completion completions[WAITS + 1];

static int notify_all_at_idle_priority(int fd, uint32_t *word)
{
	static const struct sched_param none;

	if (sched_setscheduler(0, SCHED_IDLE, &none))
		return -errno;
	return mw_notify(fd, word, MEMWAIT_ALL, U32);
}

static void arm_all(struct __test_metadata *_metadata, int fd, uint32_t *word)
{
	int i;

	for (i = 0; i < WAITS; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, word, i));
}

struct notifier {
	int fd;
	uint32_t *word;
	int woken;
	bool done;
};

static void *notifier_main(void *arg)
{
	struct notifier *n = arg;

	n->woken = notify_all_at_idle_priority(n->fd, n->word);
	__atomic_store_n(&n->done, true, __ATOMIC_RELEASE);
	return NULL;
}

MEMWAIT_TEST(R13_a_waiter_that_joins_during_a_notify_of_all_is_not_woken)
{
	struct notifier n = { .fd = self->fd, .word = self->word };
	struct pollfd pfd = { .fd = self->fd, .events = POLLIN };
	pthread_t thread;

	ASSERT_EQ(0, geteuid() ? bind_to(0) : pin(1));
	arm_all(_metadata, self->fd, self->word);
	ASSERT_EQ(0, pthread_create(&thread, NULL, notifier_main, &n));
	ASSERT_EQ(1, poll(&pfd, 1, -1));
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, WAITS));
	EXPECT_FALSE(__atomic_load_n(&n.done, __ATOMIC_ACQUIRE));
	pthread_join(thread, NULL);
	EXPECT_EQ(WAITS, n.woken);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(WAITS + 1, mw_read(self->fd, completions, WAITS + 1));
}

MEMWAIT_TEST(R29_a_kill_ends_a_notify_of_many_waiters)
{
	struct pollfd pfd = { .fd = self->fd, .events = POLLIN };
	int left;
	pid_t pid;

	ASSERT_EQ(0, geteuid() ? bind_to(0) : pin(1));
	arm_all(_metadata, self->fd, self->shared);
	pid = fork_child();
	if (!pid)
		_exit(notify_all_at_idle_priority(self->fd, self->shared) != WAITS);
	ASSERT_EQ(1, poll(&pfd, 1, -1));
	EXPECT_EQ(128 + SIGKILL, kill_child(pid));
	left = WAITS - (int)mw_fdinfo(self->fd, "completed");
	EXPECT_LT(0, left);
	EXPECT_EQ(left, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	EXPECT_EQ(WAITS, mw_read(self->fd, completions, WAITS));
}

MEMWAIT_TEST(waiters_takes_no_count)
{
	struct memwait_notify arg = { .addr = (uintptr_t)self->word, .count = 1, .flags = U32 };

	EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_WAITERS, &arg));
	arg.count = MEMWAIT_ALL;
	EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_WAITERS, &arg));
}

TEST_HARNESS_MAIN
