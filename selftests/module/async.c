// SPDX-License-Identifier: GPL-2.0
/* R18, R19: batches of async waits, and their completions. */
#include "several_test.h"
#include <sys/time.h>

MEMWAIT_TEST(R18_reports_an_outcome_for_each_entry)
{
	struct memwait_async e[] = {
		wait_entry(self->word, 0, FOREVER, 10),
		wait_entry(self->word, 1, FOREVER, 11),
		wait_entry(self->word, 0, 0, 12),
		wait_entry(self->word, 1, 0, 13),
		wait_entry(self->shared, 0, in_ms(3600000), 14),
	};
	struct memwait_completion done[5];

	EXPECT_EQ(5, mw_batch(self->fd, e, 5));
	EXPECT_EQ(MEMWAIT_PENDING, e[0].result);
	EXPECT_NE(0, e[0].id);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, e[1].result);
	EXPECT_EQ(0, e[1].id);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, e[2].result);
	EXPECT_EQ(0, e[2].id);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, e[3].result);
	EXPECT_EQ(MEMWAIT_PENDING, e[4].result);
	EXPECT_NE(e[0].id, e[4].id);
	EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));

	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	memset(done, 0xcc, sizeof(done));
	EXPECT_EQ(2, mw_read(self->fd, done, 5));
	EXPECT_EQ(14, done[0].user_data);
	EXPECT_EQ(e[4].id, done[0].id);
	EXPECT_EQ(MEMWAIT_OK, done[0].result);
	EXPECT_EQ(0, done[0].index);
	EXPECT_EQ(1, done[0].count);
	EXPECT_EQ(0, done[0].flags);
	EXPECT_EQ(10, done[1].user_data);
	EXPECT_EQ(e[0].id, done[1].id);
}

MEMWAIT_TEST(R18_leaves_the_input_of_an_entry_alone)
{
	struct memwait_async e = wait_entry(self->word, 0xaaaaaaaa00000000ULL, FOREVER, ~0ULL);
	struct memwait_async was = e;

	EXPECT_EQ(1, mw_batch(self->fd, &e, 1));
	EXPECT_EQ(0, memcmp(&e.wait, &was.wait, sizeof(e.wait)));
	EXPECT_EQ(was.user_data, e.user_data);
	EXPECT_EQ(0, e.reserved);
	EXPECT_EQ(0, mw_cancel(self->fd, e.id));
}

MEMWAIT_TEST(R18_an_empty_batch_does_nothing)
{
	EXPECT_EQ(0, mw_batch(self->fd, NULL, 0));
	EXPECT_EQ(0, mw_batch(self->fd, (void *)-1UL, 0));
}

MEMWAIT_TEST(R18_a_bad_entry_ends_the_batch)
{
	struct memwait_async e[4];
	uint32_t *hole = private_page(self->page);
	int i, bad, error;

	EXPECT_EQ(0, mprotect(hole, self->page, PROT_NONE));
	for (bad = 0; bad < 4; bad++) {
		for (i = 0; i < 4; i++)
			e[i] = wait_entry(self->word, 0, FOREVER, i);
		error = bad % 2 ? -EFAULT : -EINVAL;
		if (bad % 2)
			e[bad].wait.addr = (uintptr_t)hole;
		else
			e[bad].wait.addr++;
		EXPECT_EQ(bad ? bad : error, mw_batch(self->fd, e, 4));
		EXPECT_EQ(error, e[bad].result);
		EXPECT_EQ(0, e[bad].id);
		EXPECT_EQ(bad, mw_waiters(self->fd, self->word, U32));
		for (i = 0; i < bad; i++) {
			EXPECT_EQ(MEMWAIT_PENDING, e[i].result);
			EXPECT_EQ(0, mw_cancel(self->fd, e[i].id));
		}
		/* The kernel has not examined the later entries. */
		for (i = bad + 1; i < 4; i++)
			EXPECT_EQ(0x0ccccccc, e[i].result);
	}
}

MEMWAIT_TEST(R18_a_batch_that_extends_beyond_memory)
{
	char *area = private_page(2 * self->page);
	struct memwait_async *e = (void *)(area + self->page - 3 * sizeof(*e));
	int i;

	ASSERT_EQ(0, munmap(area + self->page, self->page));
	for (i = 0; i < 3; i++)
		e[i] = wait_entry(self->word, 0, FOREVER, i);
	EXPECT_EQ(3, mw_batch(self->fd, e, 4));
	EXPECT_EQ(3, mw_batch(self->fd, e, INT32_MAX));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, (void *)(area + self->page), 1));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, e + 1, 0) ?: -EFAULT);
	EXPECT_EQ(6, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R18_hostile_batches)
{
	struct memwait_async e = wait_entry(self->word, 0, FOREVER, 0);

	EXPECT_EQ(-EINVAL, mw_batch(self->fd, &e, 1U << 31));
	EXPECT_EQ(-EINVAL, mw_batch(self->fd, &e, ~0U));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, NULL, 1));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, (void *)0xffff888000000000UL, INT32_MAX));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, (void *)-56UL, INT32_MAX));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, (void *)-1UL, 2));
	EXPECT_EQ(0x0ccccccc, e.result);
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

/* A signal ends a batch after an entry, which counts as processed. */
MEMWAIT_TEST(R18_a_signal_ends_a_batch_between_two_entries)
{
	enum { COUNT = 100000 };
	const struct itimerval every = { .it_interval.tv_usec = 1000, .it_value.tv_usec = 1000 };
	const struct itimerval never = { 0 };
	struct memwait_async *e = private_page(COUNT * sizeof(*e));
	int i, n;

	handle(SIGALRM, 0);
	for (i = 0; i < COUNT; i++)
		e[i] = wait_entry(self->word, 1, FOREVER, i);
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &every, NULL));
	n = mw_batch(self->fd, e, COUNT);
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
	ASSERT_LT(0, n);
	ASSERT_GT(COUNT, n);
	EXPECT_LT(0, handled);
	for (i = 0; i < n; i++)
		ASSERT_EQ(MEMWAIT_NOT_EQUAL, e[i].result);
	/* The next entry was not touched. */
	EXPECT_EQ(wait_entry(NULL, 0, 0, 0).result, e[n].result);
	munmap(e, COUNT * sizeof(*e));
}

MEMWAIT_TEST(R18_an_entry_that_cannot_be_written_queues_nothing)
{
	struct memwait_async *e = private_page(self->page);

	e[0] = wait_entry(self->word, 0, FOREVER, 0);
	ASSERT_EQ(0, mprotect(e, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, e, 1));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
	ASSERT_EQ(0, mprotect(e, self->page, PROT_READ | PROT_WRITE));
	e[0].wait.expected = 1;
	ASSERT_EQ(0, mprotect(e, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, e, 1));
}

MEMWAIT_TEST(R18_all_sizes)
{
	static const uint32_t sizes[] = { MEMWAIT_SIZE_U8, MEMWAIT_SIZE_U16, MEMWAIT_SIZE_U32,
					  MEMWAIT_SIZE_U64 };
	struct memwait_completion done[4];
	uint64_t *word = (uint64_t *)self->word;
	int i;

	*word = 0x1122334455667788ULL;
	for (i = 0; i < 4; i++) {
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, word, *word, FOREVER, sizes[i], i,
						    NULL));
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_async(self->fd, word, *word ^ 0x80, FOREVER,
						      sizes[i], i, NULL));
	}
	EXPECT_EQ(4, mw_notify(self->fd, word, MEMWAIT_ALL, MEMWAIT_SIZE_U8));
	EXPECT_EQ(4, mw_read(self->fd, done, 4));
}

MEMWAIT_TEST(R19_a_completion_survives_until_it_is_read)
{
	struct memwait_completion done[100];
	int i;

	for (i = 0; i < 100; i++) {
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, i));
		ASSERT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	}
	ASSERT_EQ(100, mw_read(self->fd, done, 100));
	for (i = 0; i < 100; i++)
		EXPECT_EQ(i, done[i].user_data);
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, done, 100));
}

MEMWAIT_TEST(R19_one_notify_completes_waits_of_many_contexts)
{
	int fds[40], i, j;

	/*
	 * There are more contexts than one step of a notify can collect. Each context has two
	 * waits.
	 */
	for (i = 0; i < 40; i++) {
		fds[i] = open_device(O_NONBLOCK);
	}
	for (j = 0; j < 2; j++)
		for (i = 0; i < 40; i++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fds[i], self->shared, j));
	ASSERT_EQ(80, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	for (i = 0; i < 40; i++) {
		for (j = 0; j < 2; j++) {
			EXPECT_TRUE(mw_readable(fds[i]));
			EXPECT_COMPLETION(fds[i], j, MEMWAIT_OK);
		}
		close(fds[i]);
	}
}

struct arming {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int *stop;
	long notified;
};

static void *notify_hard(void *arg)
{
	struct arming *a = arg;

	while (!__atomic_load_n(a->stop, __ATOMIC_RELAXED))
		a->notified += mw_notify(a->fd, a->word, 1 + a->notified % 2, U32);
	return NULL;
}

/*
 * R5, R19: each wait ends once, by a notify, its deadline or a cancel. Each counted notify results
 * in one OK.
 */
MEMWAIT_TEST(R19_notify_deadline_and_cancel_race_for_one_wait)
{
	struct arming a[2] = { 0 };
	struct memwait_completion done[16];
	long tries = 0, armed = 0, oks = 0, timed_out = 0, cancelled = 0;
	uint64_t end = in_ms(3000), id;
	int stop = 0, i, n;

	for (i = 0; i < 2; i++) {
		a[i] = (struct arming) { .fd = self->fd, .word = self->word, .stop = &stop };
		ASSERT_EQ(0, pthread_create(&a[i].thread, NULL, notify_hard, &a[i]));
	}
	while (now_ns(CLOCK_MONOTONIC) < end || !oks || !cancelled) {
		int ret = mw_async(self->fd, self->word, 0, soon(tries++), U32, 0, &id);

		if (ret != MEMWAIT_PENDING) {
			ASSERT_EQ(MEMWAIT_TIMED_OUT, ret);
			continue;
		}
		armed++;
		if (armed % 3) {
			ret = mw_cancel(self->fd, id);
			ASSERT_TRUE(!ret || ret == -ENOENT);
			cancelled += !ret;
		}
		n = mw_read(self->fd, done, 16);
		for (i = 0; i < n; i++) {
			oks += done[i].result == MEMWAIT_OK;
			timed_out += done[i].result == MEMWAIT_TIMED_OUT;
		}
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 2; i++)
		pthread_join(a[i].thread, NULL);
	while (armed > oks + timed_out + cancelled) {
		n = await_completions(self->fd, done, 16);
		ASSERT_LT(0, n);
		for (i = 0; i < n; i++) {
			oks += done[i].result == MEMWAIT_OK;
			timed_out += done[i].result == MEMWAIT_TIMED_OUT;
		}
	}
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, done, 16));
	EXPECT_EQ(armed, oks + timed_out + cancelled);
	EXPECT_EQ(a[0].notified + a[1].notified, oks);
}

MEMWAIT_TEST(R18_a_large_batch)
{
	const int count = 5000;
	struct memwait_async *e = private_page(count * sizeof(*e));
	struct memwait_completion *done = private_page(count * sizeof(*done));
	int i, pending = 0;

	for (i = 0; i < count; i++)
		e[i] = wait_entry(self->word + i % 100, i % 3 == 1, i % 3 == 2 ? 1 : FOREVER, i);
	ASSERT_EQ(count, mw_batch(self->fd, e, count));
	for (i = 0; i < count; i++) {
		static const int results[] = { MEMWAIT_PENDING, MEMWAIT_NOT_EQUAL,
					       MEMWAIT_TIMED_OUT };

		ASSERT_EQ(results[i % 3], e[i].result);
		ASSERT_EQ(i % 3 == 0, e[i].id != 0);
		pending += e[i].result == MEMWAIT_PENDING;
	}
	EXPECT_EQ(self->user_waits + pending + PIN_WAITS, mw_user_waits(self->fd));
	for (i = 0; i < 100; i++)
		pending -= mw_notify(self->fd, self->word + i, MEMWAIT_ALL, U32);
	EXPECT_EQ(0, pending);
	pending = mw_read(self->fd, done, count);
	EXPECT_EQ((count + 2) / 3, pending);
	for (i = 0; i < pending; i++)
		ASSERT_EQ(e[done[i].user_data].id, done[i].id);
}

MEMWAIT_TEST(R18_a_refused_word_ends_the_batch)
{
	struct memwait_async e[3];
	void *memory = device_word();

	if (!memory)
		SKIP(return, "no /dev/mem");
	e[0] = wait_entry(self->word, 0, FOREVER, 0);
	e[1] = wait_entry(memory, 0, FOREVER, 1);
	e[2] = wait_entry(self->word, 0, FOREVER, 2);
	EXPECT_EQ(1, mw_batch(self->fd, e, 3));
	EXPECT_EQ(-EOPNOTSUPP, e[1].result);
	EXPECT_EQ(0, e[1].id);
	EXPECT_EQ(-EOPNOTSUPP, mw_batch(self->fd, e + 1, 2));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
}

struct armer {
	pthread_t thread;
	int fd;
	uint32_t *word;
	uint64_t ids[500];
};

static void *arm_many(void *arg)
{
	struct armer *a = arg;
	int i;

	for (i = 0; i < 500; i++) {
		if (mw_async(a->fd, a->word, 0, FOREVER, U32, i, &a->ids[i]) != MEMWAIT_PENDING)
			a->ids[i] = 0;
	}
	return NULL;
}

/*
 * Waits belong to the context: they continue when the threads that armed them end, and any thread
 * may end them.
 */
MEMWAIT_TEST(R19_threads_arm_in_one_context)
{
	static struct armer a[4];
	static uint64_t ids[2000];
	int i;

	for (i = 0; i < 4; i++) {
		a[i].fd = self->fd;
		a[i].word = self->word;
		ASSERT_EQ(0, pthread_create(&a[i].thread, NULL, arm_many, &a[i]));
	}
	for (i = 0; i < 4; i++) {
		pthread_join(a[i].thread, NULL);
		memcpy(ids + 500 * i, a[i].ids, sizeof(a[i].ids));
	}
	EXPECT_EQ(2000, mw_waiters(self->fd, self->word, U32));
	qsort(ids, 2000, sizeof(ids[0]), compare_numbers);
	EXPECT_NE(0, ids[0]);
	for (i = 1; i < 2000; i++)
		ASSERT_LT(ids[i - 1], ids[i]);
	for (i = 0; i < 2000; i++)
		ASSERT_EQ(0, mw_cancel(self->fd, ids[i]));
}

struct collector {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int *stop;
	int n;
	struct memwait_completion done[20000];
};

/*
 * Repeatedly notifies all waiters and reads the completions, and does so once more after *stop has
 * been set.
 */
static void *collect(void *arg)
{
	struct collector *c = arg;
	bool last;
	int n;

	do {
		last = __atomic_load_n(c->stop, __ATOMIC_ACQUIRE);
		mw_notify(c->fd, c->word, MEMWAIT_ALL, U32);
		n = mw_read(c->fd, c->done + c->n, ARRAY_SIZE(c->done) - c->n);
		c->n += n > 0 ? n : 0;
	} while (!last);
	return NULL;
}

/*
 * A wait may complete, and its completion may be read, before the call that armed the wait has
 * returned.
 */
MEMWAIT_TEST(R19_completions_are_read_while_the_batch_is_armed)
{
	static struct collector c;
	static struct memwait_async e[20000];
	static unsigned char seen[20000];
	int stop = 0, i, early = 0;

	memset(&c, 0, sizeof(c));
	c.fd = self->fd;
	c.word = self->word;
	c.stop = &stop;
	ASSERT_EQ(0, pthread_create(&c.thread, NULL, collect, &c));
	for (i = 0; i < 20000; i++)
		e[i] = wait_entry(self->word, 0, FOREVER, i);
	for (i = 0; i < 20000; i += 2000) {
		ASSERT_EQ(2000, mw_batch(self->fd, e + i, 2000));
		early += __atomic_load_n(&c.n, __ATOMIC_RELAXED) > i;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(c.thread, NULL);
	TH_LOG("in %d of 10 batches completions were read before the call returned", early);
	ASSERT_EQ(20000, c.n);
	for (i = 0; i < c.n; i++) {
		ASSERT_EQ(i, c.done[i].user_data);
		ASSERT_EQ(e[i].id, c.done[i].id);
		ASSERT_EQ(0, seen[i]++);
	}
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

TEST_HARNESS_MAIN
