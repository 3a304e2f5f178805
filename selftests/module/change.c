// SPDX-License-Identifier: GPL-2.0
/* Change and notify: the operations, what is refused, and that no signal comes in between. */
#include "../memwait_fixture.h"
#include <sys/time.h>

static int mw_change(int fd, volatile uint32_t *addr, uint32_t operation, uint32_t operand,
		     uint32_t count, uint32_t *old)
{
	struct memwait_change arg = {
		.notify = { .addr = (uintptr_t)addr, .count = count, .flags = U32 },
		.operation = operation,
		.operand = operand,
		.old = 0xcccccccc,
	};
	int ret = xioctl(fd, MEMWAIT_IOC_CHANGE_NOTIFY, &arg);

	if (old)
		*old = arg.old;
	return ret;
}

MEMWAIT_TEST(R38_each_operation)
{
	static const struct {
		uint32_t operation, before, operand, after;
	} cases[] = {
		{ MEMWAIT_CHANGE_SET, 7, 12, 12 },
		{ MEMWAIT_CHANGE_ADD, 7, 12, 19 },
		{ MEMWAIT_CHANGE_ADD, 7, -8U, UINT32_MAX },
		{ MEMWAIT_CHANGE_ADD, UINT32_MAX, 1, 0 },
		{ MEMWAIT_CHANGE_AND, 0xff00ff00, 0x0ff00ff1, 0x0f000f00 },
		{ MEMWAIT_CHANGE_OR, 0xff00ff00, 0x0ff00ff1, 0xfff0fff1 },
		{ MEMWAIT_CHANGE_XOR, 0xff00ff00, 0x0ff00ff1, 0xf0f0f0f1 },
	};
	volatile uint32_t *words[] = { self->word, self->shared };
	uint32_t old;
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		for (j = 0; j < 2; j++) {
			words[j][0] = cases[i].before;
			words[j][1] = 0x12345678;
			EXPECT_EQ(0, mw_change(self->fd, words[j], cases[i].operation,
					       cases[i].operand, i % 2, &old));
			EXPECT_EQ(cases[i].before, old);
			EXPECT_EQ(cases[i].after, words[j][0]);
			EXPECT_EQ(0x12345678, words[j][1]);
		}
	}
}

MEMWAIT_TEST(R38_changes_before_it_notifies)
{
	struct waiter w[3];
	int i, ret;

	for (i = 0; i < 3; i++) {
		w[i] = thread_at(self->fd, self->shared);
		waiter_start(&w[i]);
	}
	EXPECT_EQ(0, mw_change(self->fd, self->shared, MEMWAIT_CHANGE_SET, 0, 0, NULL));
	EXPECT_EQ(3, mw_waiters(self->fd, self->shared, U32));
	EXPECT_EQ(1, mw_change(self->fd, self->shared, MEMWAIT_CHANGE_ADD, 1, 1, NULL));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[0]));
	EXPECT_EQ(1, *self->shared);
	ret = mw_change(self->fd, self->shared, MEMWAIT_CHANGE_OR, 2, MEMWAIT_ALL, NULL);
	EXPECT_EQ(2, ret);
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[1]));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[2]));
	EXPECT_EQ(3, *self->shared);
}

MEMWAIT_TEST(R38_private_words_need_no_look_up)
{
	struct memwait_change arg = {
		.notify = { .addr = (uintptr_t)self->word, .count = 1,
			    .flags = U32 | MEMWAIT_PRIVATE },
		.operation = MEMWAIT_CHANGE_XOR,
		.operand = 5,
	};
	struct waiter w = { .fd = self->fd, .addr = self->word, .deadline = MEMWAIT_FOREVER,
			    .flags = U32 | MEMWAIT_PRIVATE };

	waiter_start(&w);
	EXPECT_EQ(1, xioctl(self->fd, MEMWAIT_IOC_CHANGE_NOTIFY, &arg));
	EXPECT_EQ(5, *self->word);
	EXPECT_EQ(0, arg.old);
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

MEMWAIT_TEST(R38_bad_arguments_change_nothing)
{
	struct memwait_change arg = {
		.notify = { .addr = (uintptr_t)self->word, .count = 1, .flags = MEMWAIT_SIZE_U16 },
		.operation = MEMWAIT_CHANGE_ADD,
		.operand = 1,
	};

	EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_CHANGE_NOTIFY, &arg));
	EXPECT_EQ(-EINVAL, mw_change(self->fd, self->word, MEMWAIT_CHANGE_XOR + 1, 1, 1, NULL));
	EXPECT_EQ(-EINVAL, mw_change(self->fd, self->word, ~0U, 1, 1, NULL));
	EXPECT_EQ(0, *self->word);
}

MEMWAIT_TEST(R38_what_cannot_be_written_is_efault_and_notifies_nobody)
{
	struct waiter w = thread_at(self->fd, self->word);

	waiter_start(&w);
	EXPECT_EQ(0, mprotect(self->word, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, mw_change(self->fd, self->word, MEMWAIT_CHANGE_ADD, 1, 1, NULL));
	EXPECT_EQ(0, mprotect(self->word, self->page, PROT_READ | PROT_WRITE));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

MEMWAIT_TEST(R38_a_truncated_file_is_efault)
{
	int file = new_file(self->page);
	uint32_t *word;

	word = map_shared(file, self->page);
	EXPECT_EQ(0, mw_change(self->fd, word, MEMWAIT_CHANGE_ADD, 1, 1, NULL));
	EXPECT_EQ(0, ftruncate(file, 0));
	EXPECT_EQ(-EFAULT, mw_change(self->fd, word, MEMWAIT_CHANGE_ADD, 1, 1, NULL));
	close(file);
}

MEMWAIT_TEST(R38_faults_pages_in)
{
	uint32_t *copy = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0);
	uint32_t old;
	pid_t pid;

	/* Not there yet; then shared with a child until it is written to. */
	EXPECT_EQ(0, mw_change(self->fd, copy, MEMWAIT_CHANGE_OR, 6, 1, &old));
	EXPECT_EQ(0, old);
	pid = fork_child();
	if (!pid) {
		bool right = !mw_change(self->fd, copy, MEMWAIT_CHANGE_ADD, 1, 1, &old) &&
			     old == 6 && *copy == 7;

		_exit(!right);
	}
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(6, *copy);
	EXPECT_EQ(0, madvise(self->shared, self->page, MADV_DONTNEED));
	EXPECT_EQ(0, mw_change(self->fd, self->shared, MEMWAIT_CHANGE_SET, 9, 1, &old));
	EXPECT_EQ(9, *self->shared);
}

#define ADDERS	4
#define ADDS	20000

struct adder {
	pthread_t thread;
	int fd;
	uint32_t *word;
	uint64_t seen;		/* the sum of what the word held before */
};

static void *add_often(void *arg)
{
	struct adder *a = arg;
	uint32_t old;
	int i;

	for (i = 0; i < ADDS; i++) {
		if (mw_change(a->fd, a->word, MEMWAIT_CHANGE_ADD, 1, 1, &old))
			abort();
		a->seen += old;
	}
	return NULL;
}

MEMWAIT_TEST(R38_is_atomic)
{
	struct adder a[ADDERS] = { 0 };
	const uint64_t n = ADDERS * ADDS;
	uint64_t seen = 0;
	int i;

	for (i = 0; i < ADDERS; i++) {
		a[i].fd = self->fd;
		a[i].word = self->shared;
		ASSERT_EQ(0, pthread_create(&a[i].thread, NULL, add_often, &a[i]));
	}
	for (i = 0; i < ADDERS; i++) {
		pthread_join(a[i].thread, NULL);
		seen += a[i].seen;
	}
	EXPECT_EQ(n, *self->shared);
	EXPECT_EQ(n * (n - 1) / 2, seen);
}

struct follower {
	int fd;
	uint32_t *word;
	uint32_t expected;	/* what it waits to see changed */
	int stop;
	long slept;
};

/* Waits for the word to change, again and again. */
static void *follow(void *arg)
{
	struct follower *f = arg;
	uint32_t seen = 0;

	while (!__atomic_load_n(&f->stop, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&f->expected, seen, __ATOMIC_RELEASE);
		if (mw_wait(f->fd, f->word, seen, MEMWAIT_FOREVER, U32) == MEMWAIT_OK)
			add_one(&f->slept);
		seen = __atomic_load_n(f->word, __ATOMIC_ACQUIRE);
	}
	return NULL;
}

/* A process is killed while it posts. What it has changed by then, it has notified. */
MEMWAIT_TEST(R38_no_death_comes_between_the_change_and_the_notify)
{
	struct follower f = { .fd = self->fd, .word = self->shared };
	uint64_t random = 88172645463325252ULL;
	struct timespec pause = { 0, 0 };
	pthread_t thread;
	pid_t pid;
	int i;

	ASSERT_EQ(0, pthread_create(&thread, NULL, follow, &f));
	for (i = 0; i < 200 || !counted(&f.slept); i++) {
		pid = fork_child();
		if (!pid) {
			for (;;)
				mw_change(self->fd, self->shared, MEMWAIT_CHANGE_ADD, 1, 1, NULL);
		}
		/* Longer and longer, if it takes that long until it posts. */
		pause.tv_nsec = next_random(&random) % (500000 + i / 200 * 500000 % 100000000);
		nanosleep(&pause, NULL);
		kill_child(pid);
		await_waiters(self->fd, self->shared, U32, 1);
		ASSERT_EQ(*self->shared, __atomic_load_n(&f.expected, __ATOMIC_ACQUIRE));
	}
	__atomic_store_n(&f.stop, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	pthread_join(thread, NULL);
}

#define STEPS_WAITS	500	/* many steps of a notify */

/* A process is killed while it notifies many: it has changed nothing, or notifies them all. */
MEMWAIT_TEST(R38_no_death_comes_between_two_steps)
{
	static struct memwait_async entries[STEPS_WAITS];
	static struct memwait_completion done[STEPS_WAITS];
	uint64_t random = 88172645463325252ULL, start, took = 0, delay;
	uint32_t *word = self->shared, *go = word + 1;
	int round, changed = 0, i;
	pid_t pid;

	for (i = 0; i < STEPS_WAITS; i++)
		entries[i].wait = (struct memwait_wait) { .addr = (uintptr_t)word, .flags = U32,
							  .deadline = MEMWAIT_FOREVER };
	for (round = 0; round < 40; round++) {
		ASSERT_EQ(STEPS_WAITS, mw_batch(self->fd, entries, STEPS_WAITS));
		pid = fork();
		if (!pid) {
			__atomic_store_n(go, 1, __ATOMIC_RELEASE);
			_exit(mw_change(self->fd, word, MEMWAIT_CHANGE_SET, 1, MEMWAIT_ALL,
					NULL) != STEPS_WAITS);
		}
		while (!__atomic_load_n(go, __ATOMIC_ACQUIRE))
			;
		start = now_ns(CLOCK_MONOTONIC);
		if (round) {
			delay = next_random(&random) % took;
			while (now_ns(CLOCK_MONOTONIC) < start + delay)
				;
			kill(pid, SIGKILL);
		}
		ASSERT_LE(0, child_status(pid));
		if (!round)
			took = now_ns(CLOCK_MONOTONIC) - start;
		ASSERT_EQ(*word ? 0 : STEPS_WAITS, mw_waiters(self->fd, word, U32));
		changed += *word;
		mw_notify(self->fd, word, MEMWAIT_ALL, U32);
		ASSERT_EQ(STEPS_WAITS, mw_read(self->fd, done, STEPS_WAITS));
		*word = 0;
		*go = 0;
	}
	EXPECT_LT(0, changed);
}

static volatile sig_atomic_t handled;

static void count_signal(int sig)
{
	handled++;
}

/* A signal that is pending all the time does not cut the notify short. */
MEMWAIT_TEST(R38_no_signal_comes_between_two_steps)
{
	struct sigaction action = { .sa_handler = count_signal }, before;
	struct itimerval timer = { { 0, 200 }, { 0, 200 } };
	const int n = 300;
	uint32_t old;
	int i;

	ASSERT_EQ(0, sigaction(SIGALRM, &action, &before));
	for (i = 0; i < n; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, i));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &timer, NULL));
	while (!handled)
		;
	EXPECT_EQ(n, mw_change(self->fd, self->word, MEMWAIT_CHANGE_SET, 1, MEMWAIT_ALL, &old));
	timer = (struct itimerval) { { 0, 0 }, { 0, 0 } };
	setitimer(ITIMER_REAL, &timer, NULL);
	sigaction(SIGALRM, &before, NULL);
}

TEST_HARNESS_MAIN
