// SPDX-License-Identifier: GPL-2.0
/* R6: signals, and threads that die while they wait. */
#include "signal_test.h"

static struct waiter thread(int fd, uint32_t *word, uint64_t deadline)
{
	return (struct waiter) { .fd = fd, .addr = word, .deadline = deadline, .flags = U32 };
}

MEMWAIT_TEST(R6_a_handled_signal_interrupts)
{
	struct waiter w = thread(self->fd, self->word, MEMWAIT_FOREVER);

	handle(SIGUSR1, 0);
	waiter_start(&w);
	interrupt_thread(w.thread, w.tid);
	EXPECT_EQ(-EINTR, waiter_join(&w));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));

	w = thread(self->fd, self->word, in_ms(3600000));
	waiter_start(&w);
	interrupt_thread(w.thread, w.tid);
	EXPECT_EQ(-EINTR, waiter_join(&w));
}

MEMWAIT_TEST(R6_sa_restart_goes_on_waiting)
{
	struct waiter w = thread(self->fd, self->word, MEMWAIT_FOREVER);
	int i;

	handle(SIGUSR1, SA_RESTART);
	waiter_start(&w);
	for (i = 0; i < 5; i++) {
		interrupt_thread(w.thread, w.tid);
		await_waiters(self->fd, self->word, U32, 1);
	}
	EXPECT_EQ(5, handled);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

MEMWAIT_TEST(R6_sa_restart_keeps_the_deadline)
{
	uint64_t ms = 750;
	struct waiter w;

	handle(SIGUSR1, SA_RESTART);
	do {
		w = thread(self->fd, self->word, in_ms(ms *= 2));
		waiter_start(&w);
		/* If each restart began anew, this would go on for ever. */
		interrupt_until(w.thread, &w.done);
		EXPECT_EQ(MEMWAIT_TIMED_OUT, waiter_join(&w));
		EXPECT_LE(w.deadline, now_ns(CLOCK_MONOTONIC));
	} while (!handled);
}

MEMWAIT_TEST(R6_sa_restart_compares_again)
{
	struct waiter w = thread(self->fd, self->word, MEMWAIT_FOREVER);

	handle(SIGUSR1, SA_RESTART);
	waiter_start(&w);
	*self->word = 1;
	interrupt_thread(w.thread, w.tid);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, waiter_join(&w));
}

MEMWAIT_TEST(R6_stop_and_continue_do_not_end_a_wait)
{
	char path[64], line[256];
	pid_t pid = run_in_child(mw_wait(self->fd, self->shared, 0, MEMWAIT_FOREVER, U32));

	await_waiters(self->fd, self->shared, U32, 1);
	kill(pid, SIGSTOP);
	ASSERT_EQ(pid, waitpid(pid, NULL, WUNTRACED));
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	FILE *f = fopen(path, "r");

	ASSERT_NE(NULL, f);
	ASSERT_NE(NULL, fgets(line, sizeof(line), f));
	fclose(f);
	EXPECT_NE(NULL, strstr(line, ") T "));
	kill(pid, SIGCONT);
	await_waiters(self->fd, self->shared, U32, 1);
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EQ(0, child_status(pid));
}

MEMWAIT_TEST(R6_ignored_signals_do_not_end_a_wait)
{
	struct waiter w = thread(self->fd, self->word, MEMWAIT_FOREVER);
	int i;

	signal(SIGUSR1, SIG_IGN);
	waiter_start(&w);
	await_asleep(w.tid);
	for (i = 0; i < 100; i++)
		pthread_kill(w.thread, SIGUSR1);
	EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

MEMWAIT_TEST(R6_a_killed_thread_leaves_at_once)
{
	pid_t pid = run_in_child(mw_wait(self->fd, self->shared, 0, MEMWAIT_FOREVER, U32));

	await_waiters(self->fd, self->shared, U32, 1);
	EXPECT_EQ(128 + SIGKILL, kill_child(pid));
	EXPECT_EQ(0, mw_waiters(self->fd, self->shared, U32));
	EXPECT_EQ(0, mw_notify(self->fd, self->shared, 1, U32));
}

MEMWAIT_TEST(R6_a_killed_thread_leaves_from_the_middle_of_the_queue)
{
	struct waiter before = thread(self->fd, self->shared, MEMWAIT_FOREVER), after = before;
	pid_t pid;

	waiter_start(&before);
	pid = run_in_child(mw_wait(self->fd, self->shared, 0, MEMWAIT_FOREVER, U32));
	await_waiters(self->fd, self->shared, U32, 2);
	waiter_start(&after);
	EXPECT_EQ(128 + SIGKILL, kill_child(pid));
	EXPECT_EQ(2, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&before));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&after));
}

MEMWAIT_TEST(R6_a_notify_for_a_thread_that_dies_goes_on)
{
	/* Killed; killed by a signal's default; made to dump core. */
	static const int signals[] = { SIGKILL, SIGTERM, SIGQUIT, SIGSEGV };
	cpu_set_t cpus;
	size_t i;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	sched_getaffinity(0, sizeof(cpus), &cpus);
	for (i = 0; i < ARRAY_SIZE(signals); i++) {
		struct waiter next = thread(self->fd, self->shared, MEMWAIT_FOREVER);
		pid_t victim = fork_waiter(self->fd, self->shared);

		waiter_start(&next);
		EXPECT_EQ(1, signal_and_notify(self->fd, self->shared, victim, signals[i]));
		EXPECT_EQ(128 + signals[i], child_status(victim));
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&next));
		EXPECT_EQ(0, mw_waiters(self->fd, self->shared, U32));
	}
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

MEMWAIT_TEST(R6_a_notify_for_a_thread_that_dies_goes_on_to_an_async_wait)
{
	struct memwait_completion done;
	pid_t victim;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	victim = fork_waiter(self->fd, self->shared);
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, MEMWAIT_FOREVER, U32, 9,
					    NULL));
	EXPECT_EQ(1, signal_and_notify(self->fd, self->shared, victim, SIGKILL));
	EXPECT_EQ(128 + SIGKILL, child_status(victim));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(9, done.user_data);
}

static void ignore_signal(int sig)
{
	(void)sig;
	_exit(50);
}

MEMWAIT_TEST(R6_a_counted_notify_wins_over_a_handled_signal)
{
	struct waiter next = thread(self->fd, self->shared, MEMWAIT_FOREVER);
	pid_t victim;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	/* The handler runs after the wait returned, which it does with OK. */
	handle(SIGQUIT, 0);
	victim = fork_child();
	if (!victim) {
		int ret;

		if (pin(0))
			_exit(99);
		ret = mw_wait(self->fd, self->shared, 0, MEMWAIT_FOREVER, U32);
		_exit(ret == MEMWAIT_OK && handled == 1 ? 0 : 1);
	}
	await_waiters(self->fd, self->shared, U32, 1);
	waiter_start(&next);
	EXPECT_EQ(1, signal_and_notify(self->fd, self->shared, victim, SIGQUIT));
	EXPECT_EQ(0, child_status(victim));
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&next));
	signal(SIGQUIT, ignore_signal);
}

/* Nor does a signal that would dump core, but is blocked. */
MEMWAIT_TEST(R6_a_counted_notify_wins_over_a_blocked_signal)
{
	struct waiter next = thread(self->fd, self->shared, MEMWAIT_FOREVER);
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

struct storm {
	pthread_t target;
	int stop;
};

static void *send_signals(void *arg)
{
	struct storm *s = arg;

	while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED)) {
		pthread_kill(s->target, SIGUSR1);
		sched_yield();
	}
	return NULL;
}

struct interrupted {
	int fd;
	uint32_t *word;
	long oks, interrupted, other;
	int stop;
};

static void *wait_under_fire(void *arg)
{
	struct interrupted *w = arg;

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
		int ret = mw_wait(w->fd, w->word, 0, in_ms(20), U32);

		if (ret == MEMWAIT_OK)
			w->oks++;
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
	struct storm storm = { 0 };
	uint64_t end = in_ms(2000);
	pthread_t waiting, sending;
	long notified = 0;

	handle(SIGUSR1, 0);
	ASSERT_EQ(0, pthread_create(&waiting, NULL, wait_under_fire, &w));
	storm.target = waiting;
	ASSERT_EQ(0, pthread_create(&sending, NULL, send_signals, &storm));
	while (now_ns(CLOCK_MONOTONIC) < end || !counted(&w.interrupted))
		notified += mw_notify(self->fd, self->word, 1, U32);
	__atomic_store_n(&storm.stop, 1, __ATOMIC_RELAXED);
	pthread_join(sending, NULL);
	__atomic_store_n(&w.stop, 1, __ATOMIC_RELAXED);
	pthread_join(waiting, NULL);
	EXPECT_EQ(notified, w.oks);
	EXPECT_EQ(0, w.other);
}

TEST_HARNESS_MAIN
