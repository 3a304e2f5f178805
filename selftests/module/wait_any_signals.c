// SPDX-License-Identifier: GPL-2.0
/* R6: signals and death while a thread waits on several words. */
#include "any_test.h"

/*
 * Forks a process that waits for any of the words. If the result is OK, it exits with 10 + index.
 */
static pid_t fork_any(int fd, const struct memwait_wait *waits, uint32_t count)
{
	pid_t pid = fork_child();
	uint32_t index;
	int ret;

	if (!pid) {
		become_victim();
		ret = mw_wait_any(fd, waits, count, FOREVER, 0, &index);
		_exit(ret == MEMWAIT_OK ? 10 + (int)index : 1);
	}
	await_waiters(fd, word_of(&waits[count - 1]), U32, 1);
	return pid;
}

MEMWAIT_TEST(R6_any_a_killed_thread_leaves_all_queues)
{
	struct memwait_wait waits[MOST];
	pid_t victim;
	size_t i;

	members(waits, self->shared, MOST);
	for (i = 0; i < ARRAY_SIZE(group_sizes); i++) {
		victim = fork_any(self->fd, waits, group_sizes[i]);
		EXPECT_EQ(128 + SIGKILL, kill_child(victim));
		EXPECT_TRUE(nobody(self->fd, waits, group_sizes[i]));
	}
}

MEMWAIT_TEST(R6_any_a_notify_for_a_dying_thread_is_passed_on)
{
	static const int signals[] = { SIGKILL, SIGTERM, SIGQUIT, SIGSEGV };
	struct memwait_wait waits[SMALL + 1];
	struct memwait_completion done[4];
	struct waiter next;
	pid_t victim;
	uint32_t i;
	int n;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	members(waits, self->shared, SMALL + 1);
	for (i = 0; i < 2 * ARRAY_SIZE(signals); i++) {
		n = i % 2 ? SMALL + 1 : 3;
		victim = fork_any(self->fd, waits, n);
		/*
		 * Behind the process are a thread on the notified word and async waits on the other
		 * words.
		 */
		next = thread_at(self->fd, self->shared + 1);
		waiter_start(&next);
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 0));
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared + 2, 2));
		EXPECT_EQ(1, signal_and_notify(self->fd, self->shared + 1, victim,
					       signals[i / 2]));
		EXPECT_EQ(128 + signals[i / 2], child_status(victim));
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&next));
		EXPECT_FALSE(mw_readable(self->fd));
		EXPECT_EQ(1, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
		EXPECT_EQ(1, mw_notify(self->fd, self->shared + 2, MEMWAIT_ALL, U32));
		EXPECT_EQ(2, mw_read(self->fd, done, 4));
		EXPECT_TRUE(nobody(self->fd, waits, SMALL + 1));
	}
}

MEMWAIT_TEST(R6_any_a_notify_for_a_dying_thread_is_passed_on_to_a_group)
{
	struct memwait_wait waits[3];
	struct memwait_completion done[2];
	pid_t victim;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	members(waits, self->shared, 3);
	victim = fork_any(self->fd, waits, 3);
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits + 1, 2, FOREVER, 0, 8, NULL));
	EXPECT_EQ(1, signal_and_notify(self->fd, self->shared + 2, victim, SIGKILL));
	EXPECT_EQ(128 + SIGKILL, child_status(victim));
	EXPECT_EQ(1, mw_read(self->fd, done, 2));
	EXPECT_EQ(8, done[0].user_data);
	EXPECT_EQ(1, done[0].index);
	EXPECT_TRUE(nobody(self->fd, waits, 3));
}

TEST_HARNESS_MAIN
