// SPDX-License-Identifier: GPL-2.0
/*
 * Change and notify: the operations, the refused arguments, and that no signal comes between the
 * change and the notify.
 */
#include "fault_test.h"
#include <sys/time.h>

static int mw_change_at(int fd, const volatile void *addr, uint32_t flags, uint32_t operation,
			uint32_t operand, uint32_t count, uint32_t *old)
{
	struct memwait_change arg = {
		.notify = { .addr = (uintptr_t)addr, .count = count, .flags = flags },
		.operation = operation,
		.operand = operand,
		.old = 0xcccccccc,
	};
	int ret = xioctl(fd, MEMWAIT_IOC_CHANGE_NOTIFY, &arg);

	if (old)
		*old = arg.old;
	return ret;
}

static int mw_change(int fd, volatile uint32_t *addr, uint32_t operation, uint32_t operand,
		     uint32_t count, uint32_t *old)
{
	return mw_change_at(fd, addr, U32, operation, operand, count, old);
}

#define ADD_IF_NONE	(MEMWAIT_CHANGE_ADD | MEMWAIT_CHANGE_IF_NONE_WOKEN)

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
	volatile uint32_t *words[] = { self->word, self->shared, self->word, self->shared };
	static const uint32_t how[] = { 0, MEMWAIT_CHANGE_IF_NONE_WOKEN };
	uint32_t old;
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		for (j = 0; j < 4; j++) {
			words[j][0] = cases[i].before;
			words[j][1] = 0x12345678;
			EXPECT_EQ(0, mw_change(self->fd, words[j], cases[i].operation | how[j / 2],
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

MEMWAIT_TEST(R38_private_words_need_no_lookup)
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
	EXPECT_EQ(-EINVAL, mw_change(self->fd, self->word,
				     (MEMWAIT_CHANGE_XOR + 1) | MEMWAIT_CHANGE_IF_NONE_WOKEN, 1, 1,
				     NULL));
	EXPECT_EQ(-EINVAL, mw_change_at(self->fd, self->word, MEMWAIT_SIZE_U64,
					MEMWAIT_CHANGE_ADD | MEMWAIT_CHANGE_IF_NONE_WOKEN, 1, 1,
					NULL));
	EXPECT_EQ(-EINVAL, mw_change_at(self->fd, (char *)self->word + 1, MEMWAIT_SIZE_U16,
					MEMWAIT_CHANGE_ADD | MEMWAIT_CHANGE_IF_NONE_WOKEN, 1, 1,
					NULL));
	EXPECT_EQ(0, *self->word);
}

MEMWAIT_TEST(R38_an_unwritable_word_is_efault_and_not_notified)
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
	EXPECT_EQ(-EFAULT, mw_change(self->fd, word, ADD_IF_NONE, 1, 1, NULL));
	close(file);
}

MEMWAIT_TEST(R38_faults_pages_in)
{
	uint32_t *copy = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0);
	uint32_t old;
	pid_t pid;

	/* The page does not exist yet. Later it is shared copy-on-write with a child. */
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
	EXPECT_EQ(0, madvise(self->shared, self->page, MADV_DONTNEED));
	EXPECT_EQ(0, mw_change(self->fd, self->shared, ADD_IF_NONE, 9, 1, &old));
	EXPECT_EQ(9 + old, *self->shared);
}

struct changer {
	pthread_t thread;
	int fd, result;
	uint32_t *word, old;
};

static void *change_if_none(void *arg)
{
	struct changer *c = arg;

	c->result = mw_change(c->fd, c->word, ADD_IF_NONE, 1, 1, &c->old);
	return NULL;
}

/* If a waiter joins while the page is made writable, the word is not changed. */
MEMWAIT_TEST(R38_old_is_written_only_if_the_word_was_changed)
{
	struct changer c = { .fd = self->fd, .word = private_page(self->page), .old = 1 };
	struct waiter w = thread_at(self->fd, c.word);
	int uffd;

	*c.word = 5;
	w.expected = 5;
	uffd = hold_stores(c.word, self->page);
	if (uffd < 0)
		SKIP(return, "userfaultfd: %s", strerror(-uffd));
	ASSERT_EQ(0, pthread_create(&c.thread, NULL, change_if_none, &c));
	await_fault(uffd);
	waiter_start(&w);
	EXPECT_EQ(0, let_store(uffd, c.word, self->page));
	pthread_join(c.thread, NULL);
	EXPECT_EQ(1, c.result);
	EXPECT_EQ(0, c.old);
	EXPECT_EQ(5, *c.word);
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	close(uffd);
	munmap(c.word, self->page);
}

#define ADDERS	4
#define ADDS	20000

struct adder {
	pthread_t thread;
	int fd;
	uint32_t *word;
	uint64_t seen;		/* the sum of the old values of the word */
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
	uint32_t expected;	/* the value that the word has before the awaited change */
	int stop;
	long slept;
};

/* Waits for the word to change, repeatedly. */
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

/* A process is killed while it posts. Each of its changes must also have been notified. */
MEMWAIT_TEST(R38_no_kill_comes_between_the_change_and_the_notify)
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
		/* The delay grows, because the process may take that long to post. */
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

#define STEPS_WAITS	500	/* so many waits that a notify needs several steps */

/*
 * A process is killed while it notifies many waiters. Either it has changed nothing, or it notifies
 * all waiters.
 */
MEMWAIT_TEST(R38_no_kill_comes_between_two_steps)
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

/* A signal that is always pending does not end the notify early. */
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

/* Waiters are notified in their order. The word is changed only if there is no waiter. */
MEMWAIT_TEST(R38_if_none_woken_notifies_waiters_first)
{
	struct waiter w[3];
	uint32_t old;
	int i;

	for (i = 0; i < 3; i++) {
		w[i] = thread_at(self->fd, self->shared);
		waiter_start(&w[i]);
	}
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(1, mw_change(self->fd, self->shared, ADD_IF_NONE, 1, 1, &old));
		EXPECT_EQ(0, old);
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[i]));
		EXPECT_EQ(2 - i, mw_waiters(self->fd, self->shared, U32));
	}
	EXPECT_EQ(0, *self->shared);
	EXPECT_EQ(0, mw_change(self->fd, self->shared, ADD_IF_NONE, 1, 1, &old));
	EXPECT_EQ(1, *self->shared);
	/* A count of 0 wakes no waiter. */
	w[0].expected = 1;
	waiter_start(&w[0]);
	EXPECT_EQ(0, mw_change(self->fd, self->shared, ADD_IF_NONE, 1, 0, &old));
	EXPECT_EQ(1, old);
	EXPECT_EQ(2, *self->shared);
	EXPECT_EQ(1, mw_change(self->fd, self->shared, ADD_IF_NONE, 1, MEMWAIT_ALL, NULL));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[0]));
	EXPECT_EQ(2, *self->shared);
}

MEMWAIT_TEST(R38_if_none_woken_with_waiters_on_part_of_the_word)
{
	static const struct {
		uint32_t flags;
		unsigned int offset;
	} parts[] = {
		{ MEMWAIT_SIZE_U8, 0 }, { MEMWAIT_SIZE_U8, 1 }, { MEMWAIT_SIZE_U8, 3 },
		{ MEMWAIT_SIZE_U16, 0 }, { MEMWAIT_SIZE_U16, 2 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		char *part = (char *)self->word + 4 + parts[i].offset;
		struct waiter w = { .fd = self->fd, .addr = part, .deadline = MEMWAIT_FOREVER,
				    .flags = parts[i].flags };

		memset(self->word, 0, 12);
		waiter_start(&w);
		EXPECT_EQ(1, mw_change_at(self->fd, part, parts[i].flags, ADD_IF_NONE, 0x1020304,
					  1, NULL));
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
		EXPECT_EQ(0, self->word[1]);
		EXPECT_EQ(0, mw_change_at(self->fd, part, parts[i].flags, ADD_IF_NONE, 0x1020304,
					  1, NULL));
		EXPECT_EQ(0, self->word[0]);
		EXPECT_EQ(0x1020304, self->word[1]);
		EXPECT_EQ(0, self->word[2]);
	}
}

#define PERMITS		20000
#define TAKERS		4

struct taker {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int kind;		/* 0: waits forever, 1: for 20 us, 2: also for the second word */
	long taken;
};

/* Takes from the word, or is notified, until the third word is set. */
static void *take_often(void *arg)
{
	struct taker *t = arg;
	uint32_t *word = t->word, now;
	struct memwait_wait waits[2] = {
		{ .addr = (uintptr_t)word, .flags = U32 },
		{ .addr = (uintptr_t)(word + 1), .flags = U32 },
	};
	struct memwait_wait_any any = {
		.waits = (uintptr_t)waits, .count = 2, .deadline = MEMWAIT_FOREVER,
	};
	int ret;

	for (;;) {
		now = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		if (now && __atomic_compare_exchange_n(word, &now, now - 1, false,
						       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			t->taken++;
			continue;
		}
		if (now)
			continue;
		if (t->kind == 0)
			ret = mw_wait(t->fd, word, 0, MEMWAIT_FOREVER, U32);
		else if (t->kind == 1)
			ret = mw_wait(t->fd, word, 0, now_ns(CLOCK_MONOTONIC) + 20000, U32);
		else
			ret = xioctl(t->fd, MEMWAIT_IOC_WAIT_ANY, &any);
		if (ret == MEMWAIT_OK && (t->kind < 2 || !any.index))
			t->taken++;
		if (__atomic_load_n(word + 2, __ATOMIC_ACQUIRE))
			return NULL;
	}
}

/*
 * Every post is consumed exactly once or remains in the word, and no thread sleeps while a post
 * remains. Groups are also notified through their other word, so that a post reaches waiters that
 * were woken through that word just before.
 */
MEMWAIT_TEST(R38_if_none_woken_loses_nothing)
{
	struct taker t[TAKERS] = { 0 };
	uint32_t *word = self->shared;
	long posted = 0, taken = 0;
	int i, ret;

	for (i = 0; i < TAKERS; i++) {
		t[i].fd = self->fd;
		t[i].word = word;
		t[i].kind = i % 3;
		ASSERT_EQ(0, pthread_create(&t[i].thread, NULL, take_often, &t[i]));
	}
	for (i = 0; i < PERMITS; i++) {
		ret = mw_change(self->fd, word, ADD_IF_NONE, 1, 1 + i % 2, NULL);
		ASSERT_LE(0, ret);
		posted += ret ? ret : 1;
		if (i % 3 == 0)
			mw_notify(self->fd, word + 1, 1, U32);
	}
	/* Either all threads sleep and no post remains, or a thread is about to take the post. */
	spin_until(!__atomic_load_n(word, __ATOMIC_ACQUIRE));
	__atomic_store_n(word + 2, 1, __ATOMIC_RELEASE);
	posted += mw_notify(self->fd, word, MEMWAIT_ALL, U32);
	for (i = 0; i < TAKERS; i++) {
		while (pthread_tryjoin_np(t[i].thread, NULL)) {
			ret = mw_notify(self->fd, word, 1, U32);
			posted += ret;
			sched_yield();
		}
		taken += t[i].taken;
	}
	EXPECT_EQ(posted, taken + *word);
}

TEST_HARNESS_MAIN
