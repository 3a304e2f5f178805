// SPDX-License-Identifier: GPL-2.0
/*
 * R17: NOTIFY_WAIT has the effect of NOTIFY followed by WAIT, and a restart does not notify twice.
 * R36: the woken thread may run on the caller's CPU.
 */
#include <sys/utsname.h>

#include "several_test.h"
#include "../timing_test.h"

static struct memwait_notify_wait notify_then_wait(const volatile void *notify, uint32_t count,
						   const volatile void *wait, uint64_t expected,
						   uint64_t deadline)
{
	return (struct memwait_notify_wait) {
		.notify = { .addr = (uintptr_t)notify, .count = count, .flags = U32 },
		.wait = { .addr = (uintptr_t)wait, .expected = expected, .deadline = deadline,
			  .flags = U32 },
		.notified = UNTOUCHED,
	};
}

static int mw_notify_wait(int fd, struct memwait_notify_wait *arg)
{
	return xioctl(fd, MEMWAIT_IOC_NOTIFY_WAIT, arg);
}

/* Returns whether the struct is unchanged, except for its output. */
static bool as_passed(struct memwait_notify_wait now, const struct memwait_notify_wait *was)
{
	now.notified = was->notified;
	return !memcmp(&now, was, sizeof(now));
}

/* Arms n async waits that only a notify of the word can end. */
static bool arm(int fd, const void *word, int n)
{
	while (n--) {
		if (mw_arm(fd, word, n) != MEMWAIT_PENDING)
			return false;
	}
	return true;
}

/* A thread that performs one NOTIFY_WAIT. */
struct notifier {
	struct runner runner;
	int fd;
	struct memwait_notify_wait *arg;
};

ADAPTER(notifier_main, struct notifier *n, mw_notify_wait(n->fd, n->arg))

/* Starts the thread. Returns when the thread is queued as the n-th waiter. */
static void notifier_start(struct notifier *n, int nth)
{
	runner_start(&n->runner, notifier_main, n);
	await_waiters_or_done(n->fd, (void *)(uintptr_t)n->arg->wait.addr, U32, nth,
			      &n->runner.done);
}

static int notifier_join(struct notifier *n)
{
	return runner_join(&n->runner);
}

/* Results */

MEMWAIT_TEST(R17_notify_wait_notifies_like_notify)
{
	static const uint32_t counts[] = { 0, 1, 3, 5, 6, MEMWAIT_ALL };
	static const uint32_t kinds[] = { MEMWAIT_SIZE_U8, MEMWAIT_SIZE_U64,
					  U32 | MEMWAIT_PRIVATE };
	uint32_t *words[] = { self->word, self->shared };
	struct memwait_notify_wait arg, was;
	struct memwait_completion done[6];
	size_t i, j;
	int woken;

	for (i = 0; i < ARRAY_SIZE(counts); i++) {
		for (j = 0; j < 6; j++) {
			uint32_t *word = words[j % 2];

			ASSERT_TRUE(arm(self->fd, word, 5));
			woken = counts[i] < 5 ? (int)counts[i] : 5;
			/* The notify is done first, whatever the result of the wait. */
			arg = notify_then_wait(word, counts[i], self->word + 2, j < 3, 0);
			arg.notify.flags = kinds[j % 2 ? 0 : j / 2];
			was = arg;
			EXPECT_EQ(j < 3 ? MEMWAIT_NOT_EQUAL : MEMWAIT_TIMED_OUT,
				  mw_notify_wait(self->fd, &arg));
			EXPECT_EQ((uint32_t)woken, arg.notified);
			EXPECT_TRUE(as_passed(arg, &was));
			EXPECT_EQ(woken ? woken : -EAGAIN, mw_read(self->fd, done, 6));
			if (woken)
				EXPECT_EQ(4, done[0].user_data);	/* the oldest wait */
			EXPECT_EQ(5 - woken, mw_notify(self->fd, word, MEMWAIT_ALL, U32));
			EXPECT_EQ(5 - woken ? 5 - woken : -EAGAIN, mw_read(self->fd, done, 6));
		}
	}
}

MEMWAIT_TEST(R17_notify_wait_wakes_and_is_woken)
{
	uint32_t *a = self->word, *b = self->shared;
	struct waiter w = thread_at(self->fd, a);
	struct memwait_notify_wait arg = notify_then_wait(a, 1, b, 0, FOREVER), was = arg;
	struct notifier n = { .fd = self->fd, .arg = &arg };

	waiter_start(&w);
	notifier_start(&n, 1);
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	/* The kernel writes @notified before the wait begins. */
	EXPECT_EQ(1, __atomic_load_n(&arg.notified, __ATOMIC_ACQUIRE));
	EXPECT_FALSE(runner_is_done(&n.runner));
	EXPECT_EQ(0, mw_waiters(self->fd, a, U32));
	EXPECT_EQ(1, mw_notify(self->fd, b, MEMWAIT_ALL, U32));
	EXPECT_EQ(MEMWAIT_OK, notifier_join(&n));
	EXPECT_EQ(1, arg.notified);
	EXPECT_TRUE(as_passed(arg, &was));
}

MEMWAIT_TEST(R17_notify_wait_on_one_word_does_not_wake_the_caller)
{
	struct memwait_notify_wait arg = notify_then_wait(self->word, MEMWAIT_ALL, self->word, 0,
							  FOREVER);
	struct notifier first = { .fd = self->fd, .arg = &arg };
	struct memwait_notify_wait again = arg;
	struct notifier second = { .fd = self->fd, .arg = &again };
	struct memwait_completion done[4];

	ASSERT_TRUE(arm(self->fd, self->word, 3));
	runner_start(&first.runner, notifier_main, &first);
	/* The number of waiters decreases from three to one in a single step. */
	await_waiters(self->fd, self->word, U32, 1);
	EXPECT_EQ(3, mw_read(self->fd, done, 4));
	EXPECT_EQ(3, __atomic_load_n(&arg.notified, __ATOMIC_ACQUIRE));
	runner_await_asleep(&first.runner);
	EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));
	EXPECT_FALSE(runner_is_done(&first.runner));

	/* The second thread wakes the first thread and then waits. */
	runner_start(&second.runner, notifier_main, &second);
	EXPECT_EQ(MEMWAIT_OK, notifier_join(&first));
	await_waiters(self->fd, self->word, U32, 1);
	EXPECT_EQ(1, __atomic_load_n(&again.notified, __ATOMIC_ACQUIRE));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(MEMWAIT_OK, notifier_join(&second));
}

MEMWAIT_TEST(R12_notify_wait_joins_at_the_end)
{
	struct memwait_notify_wait arg = notify_then_wait(self->word, 1, self->word, 0, FOREVER);
	struct notifier n = { .fd = self->fd, .arg = &arg };
	struct memwait_completion done[4];

	ASSERT_TRUE(arm(self->fd, self->word, 2));
	runner_start(&n.runner, notifier_main, &n);
	spin_until(mw_readable(self->fd));
	await_waiters(self->fd, self->word, U32, 2);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(2, mw_read(self->fd, done, 4));
	EXPECT_FALSE(runner_is_done(&n.runner));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, notifier_join(&n));
}

MEMWAIT_TEST(R7_notify_wait_faults_the_word_in)
{
	uint32_t *fresh = private_page(self->page);
	struct memwait_notify_wait arg;
	struct notifier n = { .fd = self->fd, .arg = &arg };
	int i;

	for (i = 0; i < 20; i++) {
		ASSERT_TRUE(arm(self->fd, self->word, 2));
		arg = notify_then_wait(self->word, 1, fresh, 0, FOREVER);
		ASSERT_EQ(0, madvise(fresh, self->page, MADV_DONTNEED));
		notifier_start(&n, 1);
		/* The notify was done once, however often the wait was retried. */
		EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));
		EXPECT_EQ(1, mw_notify(self->fd, fresh, 1, U32));
		EXPECT_EQ(MEMWAIT_OK, notifier_join(&n));
		EXPECT_EQ(1, arg.notified);
		EXPECT_EQ(1, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	}
}

/* Signals */

MEMWAIT_TEST(R17_notify_wait_restarted_does_not_notify_again)
{
	uint32_t *a = self->word, *b = self->shared;
	struct memwait_notify_wait arg = notify_then_wait(a, 2, b, 0, FOREVER), was = arg;
	struct notifier n = { .fd = self->fd, .arg = &arg };
	int i;

	handle(SIGUSR1, SA_RESTART);
	ASSERT_TRUE(arm(self->fd, a, 20));
	notifier_start(&n, 1);
	EXPECT_EQ(18, mw_waiters(self->fd, a, U32));
	for (i = 0; i < 5; i++) {
		interrupt_thread(n.runner.thread, n.runner.tid);
		spin_until(handled > i);
		await_waiters(self->fd, b, U32, 1);
		runner_await_asleep(&n.runner);
		EXPECT_EQ(18, mw_waiters(self->fd, a, U32));
		EXPECT_EQ(U32, arg.notify.flags);
		EXPECT_EQ(i ? 77 : 2, arg.notified);
		arg.notified = 77;
	}
	EXPECT_EQ(5, handled);
	EXPECT_EQ(1, mw_notify(self->fd, b, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, notifier_join(&n));
	EXPECT_EQ(77, arg.notified);	/* not written again after the first time */
	EXPECT_TRUE(as_passed(arg, &was));
	EXPECT_EQ(18, mw_notify(self->fd, a, MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R17_notify_wait_restarted_leaves_the_struct_unchanged)
{
	uint32_t *a = self->word, *b = self->shared;
	struct memwait_notify_wait arg, was;
	struct notifier n = { .fd = self->fd, .arg = &arg };

	handle(SIGUSR1, SA_RESTART);
	/* The wait ends because the value differs. */
	ASSERT_TRUE(arm(self->fd, a, 2));
	arg = notify_then_wait(a, 1, b, 0, FOREVER);
	arg.notify.flags = MEMWAIT_SIZE_U8;
	was = arg;
	notifier_start(&n, 1);
	*b = 1;
	interrupt_thread(n.runner.thread, n.runner.tid);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, notifier_join(&n));
	EXPECT_EQ(1, arg.notified);
	EXPECT_TRUE(as_passed(arg, &was));
	EXPECT_EQ(1, mw_waiters(self->fd, a, U32));

	/* The wait ends by its deadline, which restarts do not postpone. */
	*b = 0;
	arg = notify_then_wait(a, 1, b, 0, in_ms(1500));
	was = arg;
	notifier_start(&n, 1);
	interrupt_until(n.runner.thread, &n.runner.done);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, notifier_join(&n));
	EXPECT_LE(arg.wait.deadline, now_ns(CLOCK_MONOTONIC));
	EXPECT_EQ(1, arg.notified);
	EXPECT_TRUE(as_passed(arg, &was));
	EXPECT_EQ(0, mw_waiters(self->fd, a, U32));
}

MEMWAIT_TEST(R17_notify_wait_interrupted_and_called_again)
{
	static const int results[] = { MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT };
	uint32_t *a = self->word, *b = self->shared;
	struct memwait_notify_wait arg, was;
	struct notifier n = { .fd = self->fd, .arg = &arg };
	int i, j;

	handle(SIGUSR1, 0);
	for (i = 0; i < 3; i++) {
		*b = 0;
		ASSERT_TRUE(arm(self->fd, a, 10));
		arg = notify_then_wait(a, 3, b, 0, FOREVER);
		was = arg;
		for (j = 0; j < 4; j++) {
			notifier_start(&n, 1);
			interrupt_thread(n.runner.thread, n.runner.tid);
			EXPECT_EQ(-EINTR, notifier_join(&n));
			EXPECT_EQ(MEMWAIT_NOTIFIED, arg.state);
			EXPECT_EQ(j ? 77 : 3, arg.notified);
			EXPECT_EQ(7, mw_waiters(self->fd, a, U32));
			EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
			arg.notified = 77;
		}
		switch (results[i]) {
		case MEMWAIT_OK:
			notifier_start(&n, 1);
			EXPECT_EQ(1, mw_notify(self->fd, b, 1, U32));
			EXPECT_EQ(MEMWAIT_OK, notifier_join(&n));
			break;
		case MEMWAIT_NOT_EQUAL:
			*b = 1;
			EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_notify_wait(self->fd, &arg));
			break;
		case MEMWAIT_TIMED_OUT:
			arg.wait.deadline = 0;
			was.wait.deadline = 0;
			EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_notify_wait(self->fd, &arg));
			break;
		}
		EXPECT_EQ(77, arg.notified);
		EXPECT_TRUE(as_passed(arg, &was));
		EXPECT_EQ(7, mw_notify(self->fd, a, MEMWAIT_ALL, U32));
		/* After the wait has ended, a call with the same struct notifies again. */
		ASSERT_TRUE(arm(self->fd, a, 10));
		arg.wait.deadline = 0;
		EXPECT_EQ(results[i] == MEMWAIT_NOT_EQUAL ? MEMWAIT_NOT_EQUAL : MEMWAIT_TIMED_OUT,
			  mw_notify_wait(self->fd, &arg));
		EXPECT_EQ(3, arg.notified);
		EXPECT_EQ(7, mw_notify(self->fd, a, MEMWAIT_ALL, U32));
	}
}

/* If the state cannot be written, the notify must not be repeated. */
MEMWAIT_TEST(R17_notify_wait_with_a_struct_that_becomes_read_only)
{
	uint32_t *a = self->word, *b = self->shared;
	struct memwait_notify_wait *arg = private_page(self->page);
	struct notifier n = { .fd = self->fd, .arg = arg };

	handle(SIGUSR1, SA_RESTART);
	ASSERT_TRUE(arm(self->fd, a, 5));
	*arg = notify_then_wait(a, 1, b, 0, FOREVER);
	notifier_start(&n, 1);
	ASSERT_EQ(0, mprotect(arg, self->page, PROT_READ));
	interrupt_thread(n.runner.thread, n.runner.tid);
	EXPECT_EQ(-EINTR, notifier_join(&n));
	EXPECT_EQ(4, mw_notify(self->fd, a, MEMWAIT_ALL, U32));
}

static pid_t fork_notifier(int fd, uint32_t *a, uint32_t *b)
{
	struct memwait_notify_wait arg = notify_then_wait(a, 1, b, 0, FOREVER);
	pid_t pid = fork_child();

	if (!pid) {
		become_victim();
		_exit(mw_notify_wait(fd, &arg) == MEMWAIT_OK &&
		      arg.notify.flags == U32 ? 10 + (int)arg.notified : 1);
	}
	await_waiters(fd, b, U32, 1);
	return pid;
}

MEMWAIT_TEST(R6_notify_wait_killed)
{
	uint32_t *a = self->shared, *b = self->shared + 1;
	pid_t victim;

	ASSERT_TRUE(arm(self->fd, a, 2));
	victim = fork_notifier(self->fd, a, b);
	EXPECT_EQ(128 + SIGKILL, kill_child(victim));
	EXPECT_EQ(1, mw_waiters(self->fd, a, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
	EXPECT_EQ(1, mw_notify(self->fd, a, MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R6_notify_wait_a_counted_notify_takes_precedence_over_a_signal)
{
	uint32_t *a = self->shared, *b = self->shared + 1;
	pid_t victim;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	handle(SIGUSR1, 0);
	ASSERT_TRUE(arm(self->fd, a, 2));
	victim = fork_notifier(self->fd, a, b);
	EXPECT_EQ(1, signal_and_notify(self->fd, b, victim, SIGUSR1));
	EXPECT_EQ(11, child_status(victim));
	EXPECT_EQ(1, mw_notify(self->fd, a, MEMWAIT_ALL, U32));
}

/* Two threads or processes pass the turn back and forth. Each uses one struct for all its calls. */

struct peer {
	pthread_t thread;
	int fd, rounds;
	uint32_t *mine, *theirs;	/* may be the same word */
	uint32_t hold, give;		/* waits while *mine is @hold; sets *theirs to @give */
	long oks, notified, interrupted, wrong;
};

static void await_turn(struct peer *p)
{
	int ret;

	while (__atomic_load_n(p->mine, __ATOMIC_ACQUIRE) == p->hold) {
		ret = mw_wait(p->fd, p->mine, p->hold, FOREVER, U32);
		p->oks += ret == MEMWAIT_OK;
		p->wrong += ret < 0 && ret != -EINTR;
	}
	if (p->mine != p->theirs)
		__atomic_store_n(p->mine, p->hold, __ATOMIC_RELEASE);
}

static void hand_over_and_await(struct peer *p, struct memwait_notify_wait *arg,
				const struct memwait_notify_wait *was)
{
	int ret;

	__atomic_store_n(p->theirs, p->give, __ATOMIC_RELEASE);
	arg->notified = UNTOUCHED;
	while ((ret = mw_notify_wait(p->fd, arg)) == -EINTR) {
		p->interrupted++;
		p->wrong += arg->state != MEMWAIT_NOTIFIED;
	}
	p->oks += ret == MEMWAIT_OK;
	p->wrong += ret != MEMWAIT_OK && ret != MEMWAIT_NOT_EQUAL;
	p->notified += arg->notified;
	p->wrong += arg->notified > 1 || !as_passed(*arg, was);
	/* A late notify may belong to the previous turn. */
	await_turn(p);
}

static void *run_first(void *peer)
{
	struct peer *p = peer;
	struct memwait_notify_wait arg = notify_then_wait(p->theirs, 1, p->mine, p->hold, FOREVER);
	const struct memwait_notify_wait was = arg;
	int i;

	for (i = 0; i < p->rounds; i++)
		hand_over_and_await(p, &arg, &was);
	return NULL;
}

static void *run_second(void *peer)
{
	struct peer *p = peer;
	struct memwait_notify_wait arg = notify_then_wait(p->theirs, 1, p->mine, p->hold, FOREVER);
	const struct memwait_notify_wait was = arg;
	int i;

	await_turn(p);
	for (i = 1; i < p->rounds; i++)
		hand_over_and_await(p, &arg, &was);
	__atomic_store_n(p->theirs, p->give, __ATOMIC_RELEASE);
	p->notified += mw_notify(p->fd, p->theirs, 1, U32);
	return NULL;
}

/*
 * If there is one word, its value says whose turn it is. If there are two words, each word says
 * whether it is its owner's turn.
 */
static void set_up(struct peer p[2], int fd, uint32_t *one, uint32_t *two, int rounds)
{
	bool same = one == two;

	p[0] = (struct peer) { .fd = fd, .rounds = rounds, .mine = one, .theirs = two,
			       .hold = same, .give = 1 };
	p[1] = (struct peer) { .fd = fd, .rounds = rounds, .mine = two, .theirs = one,
			       .hold = 0, .give = same ? 0 : 1 };
	*one = 0;
	*two = 0;
}

MEMWAIT_TEST(R17_notify_wait_ping_pong_of_threads)
{
	struct peer p[2];
	int i;

	for (i = 0; i < 3; i++) {
		set_up(p, self->fd, self->word, i ? self->word : self->shared, SOME_OF(5000));
		ASSERT_EQ(0, pthread_create(&p[1].thread, NULL, run_second, &p[1]));
		run_first(&p[0]);
		pthread_join(p[1].thread, NULL);
		EXPECT_EQ(0, p[0].wrong);
		EXPECT_EQ(0, p[1].wrong);
		/*
		 * R5: the number of OKs of each thread is the number of notifies of the other
		 * thread.
		 */
		EXPECT_EQ(p[0].notified, p[1].oks);
		EXPECT_EQ(p[1].notified, p[0].oks);
		EXPECT_LT(0, p[0].notified + p[1].notified);
		EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
	}
}

MEMWAIT_TEST(R17_notify_wait_ping_pong_of_processes)
{
	struct peer *p = shared_page(self->page);
	pid_t pid;
	int i;

	for (i = 0; i < 2; i++) {
		set_up(p, self->fd, self->shared, self->shared + i, SOME_OF(5000));
		pid = fork_child();
		if (!pid) {
			run_second(&p[1]);
			_exit(0);
		}
		run_first(&p[0]);
		EXPECT_EQ(0, child_status(pid));
		EXPECT_EQ(0, p[0].wrong);
		EXPECT_EQ(0, p[1].wrong);
		EXPECT_EQ(p[0].notified, p[1].oks);
		EXPECT_EQ(p[1].notified, p[0].oks);
		EXPECT_LT(0, p[0].notified + p[1].notified);
	}
}

/*
 * Signals are sent continuously, and restart or interrupt calls. Each turn is still passed exactly
 * once.
 */
MEMWAIT_TEST(R17_notify_wait_ping_pong_with_signals)
{
	struct peer p[2];
	struct signal_storm storm;
	int i;

	for (i = 0; i < 4; i++) {
		handle(SIGUSR1, i / 2 ? SA_RESTART : 0);
		set_up(p, self->fd, self->word, self->word + i % 2, SOME_OF(5000));
		ASSERT_EQ(0, pthread_create(&p[1].thread, NULL, run_second, &p[1]));
		ASSERT_EQ(0, signal_storm_start(&storm, pthread_self(), p[1].thread));
		spin_until(handled);
		run_first(&p[0]);
		signal_storm_stop(&storm);
		pthread_join(p[1].thread, NULL);
		TH_LOG("%d signals, %ld interrupted", handled, p[0].interrupted);
		EXPECT_EQ(0, p[0].wrong);
		EXPECT_EQ(0, p[1].wrong);
		EXPECT_EQ(p[0].notified, p[1].oks);
		EXPECT_EQ(p[1].notified, p[0].oks);
		EXPECT_LT(0, handled);
	}
}

struct race {
	pthread_t thread;
	int fd;
	uint32_t *a, *b;
	int *stop;
	long oks, notified, interrupted, timed_out, wrong;
};

/* Notifies a and waits on b. Repeats the call until it ends for a reason other than a signal. */
static void *notify_wait_hard(void *arg)
{
	struct race *r = arg;
	struct memwait_notify_wait call;
	int i, ret;

	for (i = 0; !__atomic_load_n(r->stop, __ATOMIC_RELAXED); i++) {
		call = notify_then_wait(r->a, 1 + i % 2, r->b, 0, soon(i));
		while ((ret = mw_notify_wait(r->fd, &call)) == -EINTR)
			add_one(&r->interrupted);
		r->notified += call.notified;
		if (ret == MEMWAIT_OK)
			add_one(&r->oks);
		if (ret == MEMWAIT_TIMED_OUT)
			add_one(&r->timed_out);
		r->wrong += ret != MEMWAIT_OK && ret != MEMWAIT_TIMED_OUT;
		r->wrong += call.notify.flags != U32;
	}
	return NULL;
}

static bool each_way(const struct race *r)
{
	return counted(&r->oks) && counted(&r->interrupted) && counted(&r->timed_out);
}

MEMWAIT_TEST(R5_notify_wait_deadlines_and_signals_race)
{
	uint32_t *words[] = { self->word, self->shared, self->word + 1 };
	struct race r[4] = { 0 }, sum = { 0 };
	uint64_t end = in_ms(3000);
	int stop = 0, i;

	handle(SIGUSR1, 0);
	for (i = 0; i < 4; i++) {
		r[i] = (struct race) { .fd = self->fd, .a = words[i % 3], .b = words[(i + 1) % 3],
				       .stop = &stop };
		ASSERT_EQ(0, pthread_create(&r[i].thread, NULL, notify_wait_hard, &r[i]));
	}
	for (i = 0; now_ns(CLOCK_MONOTONIC) < end || !each_way(&r[0]) || !each_way(&r[1]) ||
	     !each_way(&r[2]) || !each_way(&r[3]); i++) {
		pthread_kill(r[i % 4].thread, SIGUSR1);
		sched_yield();
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 4; i++) {
		pthread_join(r[i].thread, NULL);
		sum.oks += r[i].oks;
		sum.notified += r[i].notified;
		EXPECT_EQ(0, r[i].wrong);
	}
	EXPECT_EQ(sum.notified, sum.oks);
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, mw_waiters(self->fd, words[i], U32));
}

/*
 * The struct has the state of a restart when the call begins. If the call ends with an error, the
 * kernel clears the state.
 */
MEMWAIT_TEST(R17_notify_wait_that_ends_with_an_error_clears_its_state)
{
	struct memwait_notify_wait arg = {
		.notify = { .addr = (uintptr_t)self->word, .count = 1, .flags = U32 },
		.wait = { .addr = (uintptr_t)hole_page(), .deadline = FOREVER, .flags = U32 },
		.state = MEMWAIT_NOTIFIED,
	};

	EXPECT_EQ(-EFAULT, mw_notify_wait(self->fd, &arg));
	EXPECT_EQ(0, arg.state);
}

MEMWAIT_TEST(R2_notify_wait_on_an_unmapped_private_word_does_not_notify)
{
	struct memwait_notify_wait arg = {
		.notify = { .addr = (uintptr_t)self->word, .count = 1, .flags = U32 },
		.wait = { .addr = (uintptr_t)hole_page(), .deadline = FOREVER,
			  .flags = U32 | MEMWAIT_PRIVATE },
		.notified = UNTOUCHED,
	};

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 0));
	EXPECT_EQ(-EFAULT, mw_notify_wait(self->fd, &arg));
	EXPECT_EQ(UNTOUCHED, arg.notified);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R2_notify_wait_with_an_unmapped_notify_word_leaves_notified)
{
	struct memwait_notify_wait arg = {
		.notify = { .addr = (uintptr_t)hole_page(), .count = 1, .flags = U32 },
		.wait = { .addr = (uintptr_t)self->word, .flags = U32 },
		.notified = UNTOUCHED,
	};

	EXPECT_EQ(-EFAULT, mw_notify_wait(self->fd, &arg));
	EXPECT_EQ(UNTOUCHED, arg.notified);
}

/* R36: a thread that is about to sleep gives its CPU to the thread that it wakes. */

#define SLEEPERS	40

/* A thread that last ran on the second CPU. It records the CPU on which it is woken. */
struct sleeper {
	pthread_t thread;
	int fd;
	uint32_t *word, *answer;
	pid_t tid;
	int processor, result;
};

static void *sleeper_main(void *arg)
{
	struct sleeper *sleeper = arg;
	cpu_set_t both;

	CPU_ZERO(&both);
	CPU_SET(0, &both);
	CPU_SET(1, &both);
	bind_to(1);
	sched_setaffinity(0, sizeof(both), &both);
	__atomic_store_n(&sleeper->tid, gettid(), __ATOMIC_RELEASE);
	sleeper->result = mw_wait(sleeper->fd, sleeper->word, 0, FOREVER, U32);
	sleeper->processor = sched_getcpu();
	__atomic_store_n(sleeper->answer, 1, __ATOMIC_RELEASE);
	mw_notify(sleeper->fd, sleeper->answer, 1, U32);
	return NULL;
}

/*
 * Returns how many sleepers are woken on the first CPU, on which this thread runs, or -1. This
 * thread sleeps only if @result, the result of its wait, is MEMWAIT_OK.
 */
static int count_woken_here(int fd, uint32_t *words, int result)
{
	uint64_t deadline = result == MEMWAIT_TIMED_OUT ? 1 : FOREVER;
	uint32_t expected = result == MEMWAIT_NOT_EQUAL ? 2 : 0;
	struct memwait_notify_wait arg;
	struct sleeper sleeper;
	int here = 0, i, ret;

	if (bind_to(0))
		return -1;
	for (i = 0; i < SLEEPERS; i++) {
		words[1] = 0;
		sleeper = (struct sleeper) { .fd = fd, .word = words, .answer = words + 1 };
		if (pthread_create(&sleeper.thread, NULL, sleeper_main, &sleeper))
			abort();
		await_waiters(fd, words, U32, 1);
		await_asleep(__atomic_load_n(&sleeper.tid, __ATOMIC_ACQUIRE));
		arg = notify_then_wait(words, 1, words + 1, expected, deadline);
		ret = mw_notify_wait(fd, &arg);
		/* This thread keeps its CPU busy. */
		while (result != MEMWAIT_OK && !__atomic_load_n(words + 1, __ATOMIC_ACQUIRE))
			;
		pthread_join(sleeper.thread, NULL);
		/* The sleeper may have answered before this thread could sleep. */
		if (sleeper.result != MEMWAIT_OK || arg.notified != 1 ||
		    (ret != result && ret != MEMWAIT_NOT_EQUAL))
			return -1;
		here += sleeper.processor == 0;
	}
	return here;
}

/* Returns whether the scheduler of this kernel uses the hint; see module/compat.h. */
static bool hands_over(void)
{
	struct utsname name;
	int major, minor;

	/* A driver in the kernel's own tree has no version, and does not use the hint. */
	return !access("/sys/module/memwait/version", F_OK) && !uname(&name) &&
	       sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
	       major * 1000 + minor >= 6006 && major * 1000 + minor < 7004;
}

MEMWAIT_TEST(R36_notify_wait_gives_its_processor_to_the_woken_thread)
{
	int here;

	if (has_one_processor() || !hands_over())
		SKIP(return, "needs two processors, and a scheduler that takes the hint");
	here = count_woken_here(self->fd, self->word, MEMWAIT_OK);
	TH_LOG("%d of %d", here, SLEEPERS);
	EXPECT_LE(0, here);
	EXPECT_IN_TIME(here >= SLEEPERS * 3 / 4);
}

/*
 * The wait need not sleep, so on this CPU the woken thread would have to queue behind the caller.
 */
MEMWAIT_TEST(R36_notify_wait_that_does_not_sleep_keeps_its_processor)
{
	int here;

	if (has_one_processor() || !hands_over())
		SKIP(return, "needs two processors, and a scheduler that takes the hint");
	here = count_woken_here(self->fd, self->word, MEMWAIT_NOT_EQUAL);
	TH_LOG("%d of %d", here, SLEEPERS);
	EXPECT_LE(0, here);
	EXPECT_IN_TIME(here <= SLEEPERS / 4);

	here = count_woken_here(self->fd, self->word, MEMWAIT_TIMED_OUT);
	TH_LOG("%d of %d", here, SLEEPERS);
	EXPECT_LE(0, here);
	EXPECT_IN_TIME(here <= SLEEPERS / 4);
}

struct spinner {
	pthread_t thread;
	int spins, stop;
};

static void *spin_on_the_first_processor(void *arg)
{
	struct spinner *spinner = arg;

	bind_to(0);
	__atomic_store_n(&spinner->spins, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&spinner->stop, __ATOMIC_RELAXED))
		;
	return NULL;
}

/* Other threads run on this CPU, so the woken thread would have to queue behind them. */
MEMWAIT_TEST(R36_notify_wait_leaves_the_choice_to_the_scheduler_if_others_run)
{
	struct spinner spinner = { 0 };
	int here;

	if (has_one_processor() || !hands_over())
		SKIP(return, "needs two processors, and a scheduler that takes the hint");
	ASSERT_EQ(0, pthread_create(&spinner.thread, NULL, spin_on_the_first_processor, &spinner));
	sleep_until(__atomic_load_n(&spinner.spins, __ATOMIC_ACQUIRE));
	here = count_woken_here(self->fd, self->word, MEMWAIT_OK);
	__atomic_store_n(&spinner.stop, 1, __ATOMIC_RELAXED);
	pthread_join(spinner.thread, NULL);
	TH_LOG("%d of %d", here, SLEEPERS);
	EXPECT_LE(0, here);
	EXPECT_IN_TIME(here <= SLEEPERS / 4);
}

TEST_HARNESS_MAIN
