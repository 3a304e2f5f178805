// SPDX-License-Identifier: GPL-2.0
/* R6, R17: signals to, and deaths of, threads that were moved. */
#include "requeue_test.h"

MEMWAIT_TEST(R6_requeue_then_interrupt)
{
	uint32_t *a = self->shared, *b = self->shared + 16;
	struct memwait_wait waits[2];
	struct any_waiter any;
	struct waiter w = thread_at(self->fd, a);

	handle(SIGUSR1, 0);
	waiter_start(&w);
	waits[0] = member(a + 1, 0, U32);
	waits[1] = member(a, 0, U32);
	any = any_of(self->fd, waits, 2);
	any_start(&any);
	EXPECT_REQUEUED(0, 2, a, b, 0, MEMWAIT_ALL);
	interrupt_thread(w.thread, w.tid);
	EXPECT_EQ(-EINTR, waiter_join(&w));
	EXPECT_EQ(1, mw_waiters(self->fd, b, U32));
	interrupt_thread(any.thread, any.tid);
	EXPECT_EQ(-EINTR, any_join(&any));
	EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, a + 1, U32));
}

MEMWAIT_TEST(R17_requeue_then_restart_begins_at_its_own_word)
{
	uint32_t *a = self->shared, *b = self->shared + 16;
	struct memwait_wait waits[2];
	struct any_waiter any;
	struct waiter w = thread_at(self->fd, a);

	handle(SIGUSR1, SA_RESTART);
	waiter_start(&w);
	waits[0] = member(a + 1, 0, U32);
	waits[1] = member(a, 0, U32);
	any = any_of(self->fd, waits, 2);
	any_start(&any);
	EXPECT_REQUEUED(0, 2, a, b, 0, MEMWAIT_ALL);
	interrupt_thread(w.thread, w.tid);
	await_waiters(self->fd, a, U32, 1);
	EXPECT_EQ(1, mw_waiters(self->fd, b, U32));
	interrupt_thread(any.thread, any.tid);
	await_waiters(self->fd, a, U32, 2);
	EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
	EXPECT_EQ(1, mw_waiters(self->fd, a + 1, U32));
	EXPECT_EQ(0, mw_notify(self->fd, b, MEMWAIT_ALL, U32));
	EXPECT_EQ(1, mw_notify(self->fd, a, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));

	/* The restarted call compares the word again. */
	EXPECT_REQUEUED(0, 1, a, b, 0, MEMWAIT_ALL);
	*a = 1;
	interrupt_thread(any.thread, any.tid);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, any_join(&any));
	EXPECT_EQ(1, any.index);
	EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
}

MEMWAIT_TEST(R6_requeue_then_kill)
{
	uint32_t *a = self->shared, *b = self->shared + 1;
	pid_t victim = fork_waiter(self->fd, a);

	ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, a, 'a'));
	EXPECT_REQUEUED(0, 2, a, b, 0, MEMWAIT_ALL);
	EXPECT_EQ(128 + SIGKILL, kill_child(victim));
	EXPECT_EQ(1, mw_waiters(self->fd, b, U32));
	EXPECT_STREQ("a", notify_names(self->fd, b));
}

MEMWAIT_TEST(R6_requeue_a_notify_for_a_dying_thread_is_passed_on_at_the_target)
{
	uint32_t *a = self->shared, *b = self->shared + 1;
	pid_t victim;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	victim = fork_waiter(self->fd, a);
	EXPECT_REQUEUED(0, 1, a, b, 0, 1);
	ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, a, 'a'));
	ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, b, 'b'));
	EXPECT_EQ(1, signal_and_notify(self->fd, b, victim, SIGKILL));
	EXPECT_EQ(128 + SIGKILL, child_status(victim));
	EXPECT_STREQ("b", names(self->fd));
	EXPECT_STREQ("a", notify_names(self->fd, a));
}

MEMWAIT_TEST(R6_requeue_wakes_a_dying_thread)
{
	uint32_t *a = self->shared, *b = self->shared + 1;
	struct requeued out;
	pid_t victim;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	victim = fork_waiter(self->fd, a);
	ASSERT_TRUE(arm_all(self->fd, a, "abc"));
	/* This is necessary for the same reason as in signal_and_notify(). */
	pin(20);
	kill(victim, SIGKILL);
	EXPECT_EQ(0, mw_requeue(self->fd, a, 0, b, 1, 1, U32, &out));
	pin(0);
	EXPECT_EQ(1, out.woken);
	EXPECT_EQ(1, out.moved);
	EXPECT_EQ(128 + SIGKILL, child_status(victim));
	EXPECT_STREQ("b", names(self->fd));
	EXPECT_STREQ("a", notify_names(self->fd, b));
	EXPECT_STREQ("c", notify_names(self->fd, a));
}

TEST_HARNESS_MAIN
