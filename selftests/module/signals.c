// SPDX-License-Identifier: GPL-2.0
/* R5, R6: races of signals and notifies. ways.c tests other effects of signals on waits. */
#include "signal_test.h"
#include <sys/ptrace.h>

/* A blocked signal that would dump core does not kill the process. */
MEMWAIT_TEST(R6_a_counted_notify_takes_precedence_over_a_blocked_signal)
{
	struct waiter next = thread_at(self->fd, self->shared);
	pid_t victim;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	handle(SIGUSR1, 0);
	victim = fork();
	if (!victim) {
		sigset_t blocked;
		int ret;

		become_victim();
		sigemptyset(&blocked);
		sigaddset(&blocked, SIGQUIT);
		sigprocmask(SIG_BLOCK, &blocked, NULL);
		raise(SIGQUIT);
		ret = mw_wait(self->fd, self->shared, 0, MEMWAIT_FOREVER, U32);
		_exit(ret == MEMWAIT_OK && handled == 1 ? 0 : 1);
	}
	await_waiters(self->fd, self->shared, U32, 1);
	waiter_start(&next);
	EXPECT_EQ(1, signal_and_notify(self->fd, self->shared, victim, SIGUSR1));
	EXPECT_EQ(0, child_status(victim));
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&next));
}

/* The tracer may drop the signal. Therefore a traced thread does not die of a pending signal. */
MEMWAIT_TEST(R6_a_counted_notify_takes_precedence_over_a_signal_that_a_tracer_drops)
{
	struct waiter next = thread_at(self->fd, self->shared);
	pid_t victim;
	int status;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	victim = fork_waiter(self->fd, self->shared);
	waiter_start(&next);
	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, victim, NULL, (void *)PTRACE_O_EXITKILL));
	EXPECT_EQ(1, signal_and_notify(self->fd, self->shared, victim, SIGQUIT));
	ASSERT_EQ(victim, waitpid(victim, &status, 0));
	ASSERT_TRUE(WIFSTOPPED(status));
	EXPECT_EQ(SIGQUIT, WSTOPSIG(status));
	ASSERT_EQ(1, mw_waiters(self->fd, self->shared, U32));
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, victim, NULL, NULL));
	EXPECT_EQ(MEMWAIT_OK, child_status(victim));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&next));
}

struct interrupted {
	int fd;
	uint32_t *word;
	long oks, interrupted, other;
	int stop;
};

static void *wait_under_signals(void *arg)
{
	struct interrupted *w = arg;

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
		int ret = mw_wait(w->fd, w->word, 0, in_ms(20), U32);

		if (ret == MEMWAIT_OK)
			add_one(&w->oks);
		else if (ret == -EINTR)
			add_one(&w->interrupted);
		else if (ret != MEMWAIT_TIMED_OUT)
			w->other++;
	}
	return NULL;
}

MEMWAIT_TEST(R5_signals_and_notifies_race_for_one_waiter)
{
	struct interrupted w = { .fd = self->fd, .word = self->word };
	uint64_t end = in_ms(2000);
	struct signal_storm storm;
	pthread_t waiting;
	long notified = 0;

	handle(SIGUSR1, 0);
	ASSERT_EQ(0, pthread_create(&waiting, NULL, wait_under_signals, &w));
	ASSERT_EQ(0, signal_storm_start(&storm, waiting, waiting));
	while (now_ns(CLOCK_MONOTONIC) < end || !counted(&w.interrupted) || !counted(&w.oks))
		notified += mw_notify(self->fd, self->word, 1, U32);
	signal_storm_stop(&storm);
	__atomic_store_n(&w.stop, 1, __ATOMIC_RELAXED);
	pthread_join(waiting, NULL);
	EXPECT_EQ(notified, w.oks);
	EXPECT_EQ(0, w.other);
}

TEST_HARNESS_MAIN
