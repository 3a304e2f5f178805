// SPDX-License-Identifier: GPL-2.0
/* R13, R15, R22: NOTIFY_MANY has the same effect as separate NOTIFY calls in the same order. */
#include "several_test.h"

#define MANY	1000	/* more words than one step processes */

static struct memwait_notify notify_of(const volatile void *word, uint32_t count, uint32_t flags)
{
	return (struct memwait_notify) { .addr = (uintptr_t)word, .count = count, .flags = flags };
}

/* Fills in notifies of n adjacent words, each with the count @count. */
static void notifies_of(struct memwait_notify *notifies, const uint32_t *word, int n,
			uint32_t count)
{
	int i;

	for (i = 0; i < n; i++)
		notifies[i] = notify_of(word + i, count, U32);
}

/* Arms one async wait on each of n adjacent words, with the index of the word as user_data. */
static bool arm(int fd, const uint32_t *word, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		if (mw_arm(fd, word + i, i) != MEMWAIT_PENDING)
			return false;
	}
	return true;
}

/* Returns how many of the n adjacent words have waiters. */
static int left(int fd, const uint32_t *word, int n)
{
	int i, sum = 0;

	for (i = 0; i < n; i++)
		sum += mw_waiters(fd, word + i, U32) > 0;
	return sum;
}

static void fill(uint32_t *woken, int n)
{
	while (n--)
		woken[n] = UNTOUCHED;
}

MEMWAIT_TEST(R2_notify_many_counts)
{
	struct memwait_notify notifies[2];
	struct memwait_info info;
	uint32_t woken[2];

	ASSERT_EQ(0, mw_info(self->fd, &info));
	ASSERT_TRUE(arm(self->fd, self->word, 2));
	notifies_of(notifies, self->word, 2, 1);
	fill(woken, 2);
	EXPECT_EQ(-EINVAL, mw_notify_many(self->fd, notifies, 1U << 31, woken));
	EXPECT_EQ(-EINVAL, mw_notify_many(self->fd, notifies, ~0U, woken));
	EXPECT_EQ(0, mw_notify_many(self->fd, notifies, 0, woken));
	EXPECT_EQ(0, mw_notify_many(self->fd, NULL, 0, NULL));
	EXPECT_EQ(0, mw_notify_many(self->fd, (void *)-1UL, 0, (void *)-1UL));
	EXPECT_EQ(UNTOUCHED, woken[0]);
	EXPECT_EQ(2, left(self->fd, self->word, 2));
	EXPECT_EQ(2, mw_notify_many(self->fd, notifies, 2, woken));
}

/* Creates a file and maps it shared. */
static uint32_t *map_file(size_t size)
{
	int fd = new_file(size);
	void *map = map_shared(fd, size);

	close(fd);
	return map;
}

/*
 * A page is looked up once for adjacent entries. However, the words of the page may be private or
 * shared, and pages of two mappings may alternate.
 */
MEMWAIT_TEST(R8_notify_many_words_of_one_page)
{
	uint32_t *a = map_file(self->page), *b;
	struct memwait_notify notifies[] = {
		notify_of(a + 3, 1, U32 | MEMWAIT_PRIVATE),
		notify_of(a, 0, U32),
		notify_of(a, 2, U32),
		notify_of(a + 1, 1, U32),
		notify_of(a + 3, 1, U32),
		notify_of(a + 3, 1, U32 | MEMWAIT_PRIVATE),
		notify_of((char *)a + 9, 1, MEMWAIT_SIZE_U8),
		notify_of(NULL, 1, U32),
		notify_of(NULL, 1, U32),
		notify_of(a + 5, 1, U32),
	};
	const uint32_t expected[] = { 1, 0, 1, 1, 0, 1, 1, 1, 1, 1 };
	uint32_t woken[ARRAY_SIZE(expected)];
	size_t i;

	b = mremap(a, 0, self->page, MREMAP_MAYMOVE);
	ASSERT_NE(MAP_FAILED, b);
	notifies[7] = notify_of(b + 4, 1, U32);
	notifies[8] = notify_of(self->word + 4, 1, U32);
	for (i = 0; i < 2; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, a + 3, 0, FOREVER,
						    U32 | MEMWAIT_PRIVATE, 0, NULL));
	ASSERT_TRUE(arm(self->fd, b, 2));
	ASSERT_TRUE(arm(self->fd, b + 4, 2));
	ASSERT_TRUE(arm(self->fd, self->word + 4, 1));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, (char *)b + 9, 0, FOREVER, MEMWAIT_SIZE_U8,
					    0, NULL));
	fill(woken, ARRAY_SIZE(woken));
	EXPECT_EQ(ARRAY_SIZE(woken),
		  mw_notify_many(self->fd, notifies, ARRAY_SIZE(woken), woken));
	for (i = 0; i < ARRAY_SIZE(woken); i++)
		EXPECT_EQ(expected[i], woken[i]) TH_LOG("entry %zu", i);
	munmap(a, self->page);
	munmap(b, self->page);
}

/* The entries refer to adjacent pages of two files, and to an unmapped page. */
MEMWAIT_TEST(R8_notify_many_words_of_adjacent_pages)
{
	const int last = self->page / sizeof(uint32_t) - 1;
	uint32_t *a = map_file(2 * self->page), *b = map_file(self->page), *second;
	struct memwait_notify notifies[3];
	uint32_t woken[3];

	second = a + last + 1;
	ASSERT_EQ(second, mremap(b, self->page, self->page, MREMAP_MAYMOVE | MREMAP_FIXED,
				 second));
	ASSERT_TRUE(arm(self->fd, a + last, 2));
	notifies[0] = notify_of(a + last, 1, U32);
	notifies[1] = notify_of(second, 1, U32);
	notifies[2] = notify_of(second, 1, U32);
	EXPECT_EQ(3, mw_notify_many(self->fd, notifies, 3, woken));
	EXPECT_EQ(1, woken[0]);
	EXPECT_EQ(1, woken[1]);
	EXPECT_EQ(0, woken[2]);
	ASSERT_EQ(0, munmap(second, self->page));
	EXPECT_EQ(1, mw_notify_many(self->fd, notifies, 3, woken));
	munmap(a, self->page);
}

/* An entry is invalid if a NOTIFY with the same arguments would be invalid. */
MEMWAIT_TEST(R2_notify_many_a_bad_entry_ends_the_call)
{
	static const int places[] = { 0, 1, 15, 16, 17, 39 };
	struct memwait_notify notifies[40], bad[4];
	int errors[4] = { -EINVAL, -EINVAL, -EFAULT, -EOPNOTSUPP };
	struct memwait_completion done[40];
	uint32_t woken[40];
	size_t i, j;
	int n;

	bad[0] = notify_of((char *)self->word + 2, 0, U32);
	bad[1] = notify_of(self->word, 1, U32 | MEMWAIT_CLOCK_REALTIME);
	bad[2] = notify_of(hole_page(), 1, U32);
	bad[3] = notify_of(device_word(), 1, U32);
	if (!bad[3].addr)
		errors[3] = -EFAULT;
	for (i = 0; i < ARRAY_SIZE(places); i++) {
		for (j = 0; j < 4; j++) {
			ASSERT_TRUE(arm(self->fd, self->word, 40));
			notifies_of(notifies, self->word, 40, 1);
			notifies[places[i]] = bad[j];
			fill(woken, 40);
			EXPECT_EQ(places[i] ? places[i] : errors[j],
				  mw_notify_many(self->fd, notifies, 40, woken));
			/*
			 * The entries before the bad entry have been notified, but no entry after
			 * it has been.
			 */
			EXPECT_EQ(places[i] ? places[i] : -EAGAIN, mw_read(self->fd, done, 40));
			for (n = 0; n < 40; n++) {
				EXPECT_EQ(n >= places[i], mw_waiters(self->fd, self->word + n,
								     U32));
				EXPECT_EQ(n < places[i] ? 1 : UNTOUCHED, woken[n]);
			}
			/* The call fails with the error of the first entry. */
			EXPECT_EQ(errors[j], mw_notify_many(self->fd, notifies + places[i], 1,
							    woken));
			notifies_of(notifies, self->word, 40, 1);
			EXPECT_EQ(40, mw_notify_many(self->fd, notifies, 40, NULL));
			EXPECT_EQ(40 - places[i], mw_read(self->fd, done, 40));
		}
	}
}

MEMWAIT_TEST(R2_notify_many_an_array_that_extends_beyond_memory)
{
	static const int lengths[] = { 0, 1, 15, 16, 17, 39 };
	char *area = private_page(2 * self->page);
	struct memwait_notify *notifies;
	uint32_t woken[40];
	size_t i;
	int n;

	ASSERT_EQ(0, munmap(area + self->page, self->page));
	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		n = lengths[i];
		notifies = (void *)(area + self->page - n * sizeof(*notifies));
		ASSERT_TRUE(arm(self->fd, self->word, 40));
		notifies_of(notifies, self->word, n, 1);
		fill(woken, 40);
		EXPECT_EQ(n ? n : -EFAULT, mw_notify_many(self->fd, notifies, 40, woken));
		EXPECT_EQ(40 - n, left(self->fd, self->word, 40));
		EXPECT_EQ(UNTOUCHED, woken[n]);
		EXPECT_EQ(n ? n : -EFAULT, mw_notify_many(self->fd, notifies, INT32_MAX, NULL));
		/* Only half of the entry is mapped. */
		notifies = (void *)((char *)notifies + 8);
		if (n == 0)
			EXPECT_EQ(-EFAULT, mw_notify_many(self->fd, notifies - 1, 1, NULL));
		for (n = 0; n < 40; n++)
			mw_notify(self->fd, self->word + n, 1, U32);
		while (mw_read(self->fd, &(struct memwait_completion) { 0 }, 1) == 1)
			;
	}
	EXPECT_EQ(-EFAULT, mw_notify_many(self->fd, NULL, 1, NULL));
	EXPECT_EQ(-EFAULT, mw_notify_many(self->fd, (void *)0xffff888000000000UL, 1, NULL));
	EXPECT_EQ(-EFAULT, mw_notify_many(self->fd, (void *)-16UL, INT32_MAX, NULL));
}

/*
 * If the result of an entry cannot be written, neither this entry nor any later entry is notified.
 */
MEMWAIT_TEST(R2_notify_many_results_that_cannot_be_written)
{
	static const int lengths[] = { 0, 1, 15, 16, 17, 39 };
	char *area = private_page(2 * self->page);
	struct memwait_notify notifies[40];
	uint32_t *woken;
	size_t i;
	int n, j;

	ASSERT_EQ(0, mprotect(area + self->page, self->page, PROT_READ));
	notifies_of(notifies, self->word, 40, 1);
	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		n = lengths[i];
		woken = (uint32_t *)(area + self->page) - n;
		fill(woken, n);
		ASSERT_TRUE(arm(self->fd, self->word, 40));
		EXPECT_EQ(n ? n : -EFAULT, mw_notify_many(self->fd, notifies, 40, woken));
		for (j = 0; j < n; j++)
			EXPECT_EQ(1, woken[j]);
		EXPECT_EQ(0, left(self->fd, self->word, n));
		EXPECT_EQ(40 - n, left(self->fd, self->word, 40));
		EXPECT_EQ(40, mw_notify_many(self->fd, notifies, 40, NULL));
		while (mw_read(self->fd, &(struct memwait_completion) { 0 }, 1) == 1)
			;
	}
}

/* Results */

MEMWAIT_TEST(R13_notify_many_notifies_each)
{
	static const uint32_t counts[] = { 0, 1, 2, 3, 4, MEMWAIT_ALL };
	struct memwait_notify notifies[60];
	struct memwait_completion done[64];
	uint32_t woken[60], expected, sum = 0;
	uint32_t *words[] = { self->word, self->shared };
	int i, j, n;

	/*
	 * Each word has three waiters. The words are private, shared, or private by the flag. The
	 * flags have various sizes.
	 */
	for (i = 0; i < 60; i++) {
		uint32_t *word = words[i % 3 == 1] + i;

		for (j = 0; j < 3; j++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, word, 3 * i + j));
		notifies[i] = notify_of(word, counts[i / 3 % 6],
					i % 3 == 2 ? U32 | MEMWAIT_PRIVATE : i / 18 % 3);
	}
	fill(woken, 60);
	EXPECT_EQ(60, mw_notify_many(self->fd, notifies, 60, woken));
	for (i = 0; i < 60; i++) {
		expected = notifies[i].count < 3 ? notifies[i].count : 3;
		EXPECT_EQ(expected, woken[i]);
		EXPECT_EQ(3 - (int)expected, mw_waiters(self->fd, words[i % 3 == 1] + i, U32));
		sum += expected;
	}
	/*
	 * R20, R12: completions come in the order of the entries, and for each entry in the order
	 * of the waiters.
	 */
	for (i = 0; i < 60; i++) {
		for (j = 0; j < (int)woken[i]; j++) {
			ASSERT_EQ(1, mw_read(self->fd, done, 1));
			EXPECT_EQ(3 * i + j, done[0].user_data);
			sum--;
		}
	}
	EXPECT_EQ(0, sum);
	EXPECT_FALSE(mw_readable(self->fd));
	/* Notify the remaining waiters without an array for the results. */
	for (i = 0; i < 60; i++)
		notifies[i].count = MEMWAIT_ALL;
	EXPECT_EQ(60, mw_notify_many(self->fd, notifies, 60, NULL));
	for (n = 0; (i = mw_read(self->fd, done, 64)) > 0; n += i)
		;
	EXPECT_EQ(180 - 111, n);	/* 18 entries woke 36 of 180 waiters, the last 6 woke 3 */
}

MEMWAIT_TEST(R13_notify_many_of_a_word_more_than_once)
{
	struct memwait_completion done[10];
	struct memwait_notify notifies[4];
	uint32_t woken[4];
	int i;

	for (i = 0; i < 6; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, i));
	for (i = 0; i < 4; i++)
		notifies[i] = notify_of(self->word, i + 1, U32);
	EXPECT_EQ(4, mw_notify_many(self->fd, notifies, 4, woken));
	EXPECT_EQ(1, woken[0]);
	EXPECT_EQ(2, woken[1]);
	EXPECT_EQ(3, woken[2]);
	EXPECT_EQ(0, woken[3]);
	EXPECT_EQ(6, mw_read(self->fd, done, 10));
	for (i = 0; i < 6; i++)
		EXPECT_EQ(i, done[i].user_data);
}

MEMWAIT_TEST(R13_notify_many_very_many)
{
	static struct memwait_notify notifies[3 * MANY];
	static uint32_t words[3 * MANY], woken[3 * MANY];
	static struct memwait_completion done[3 * MANY];
	int i;

	for (i = 0; i < 3 * MANY; i += 3)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, words + i, i));
	notifies_of(notifies, words, 3 * MANY, 1);
	EXPECT_EQ(3 * MANY, mw_notify_many(self->fd, notifies, 3 * MANY, woken));
	for (i = 0; i < 3 * MANY; i++)
		EXPECT_EQ(i % 3 == 0, woken[i]);
	ASSERT_EQ(MANY, mw_read(self->fd, done, 3 * MANY));
	for (i = 0; i < MANY; i++)
		ASSERT_EQ(3 * i, done[i].user_data);
}

/* R15: neither PRIVATE words nor words with a count of 0 are looked up. */
MEMWAIT_TEST(R15_notify_many_needs_no_mapping_like_notify)
{
	uint32_t *hole = hole_page(), woken[3];
	struct memwait_notify notifies[3];

	notifies[0] = notify_of(hole, 1, U32 | MEMWAIT_PRIVATE);
	notifies[1] = notify_of(hole, 0, U32);
	notifies[2] = notify_of(hole, 1, U32);
	fill(woken, 3);
	EXPECT_EQ(0, mw_notify(self->fd, hole, 1, U32 | MEMWAIT_PRIVATE));
	EXPECT_EQ(0, mw_notify(self->fd, hole, 0, U32));
	EXPECT_EQ(-EFAULT, mw_notify(self->fd, hole, 1, U32));
	EXPECT_EQ(2, mw_notify_many(self->fd, notifies, 3, woken));
	EXPECT_EQ(0, woken[0]);
	EXPECT_EQ(0, woken[1]);
	EXPECT_EQ(UNTOUCHED, woken[2]);
}

MEMWAIT_TEST(R13_notify_many_wakes_threads)
{
	struct memwait_notify notifies[20];
	struct waiter w[20];
	uint32_t woken[20];
	int i;

	for (i = 0; i < 20; i++) {
		w[i] = thread_at(self->fd, i % 2 ? self->shared + i / 4 : self->word + i / 4);
		waiter_start(&w[i]);
	}
	for (i = 0; i < 20; i++)
		notifies[i] = notify_of(w[i].addr, 1, U32);
	EXPECT_EQ(20, mw_notify_many(self->fd, notifies, 20, woken));
	for (i = 0; i < 20; i++) {
		EXPECT_EQ(1, woken[i]);
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[i]));
	}
}

/* R16: a later entry passes over a group that an earlier entry has woken. */
MEMWAIT_TEST(R16_notify_many_wakes_a_group_once)
{
	struct memwait_notify notifies[3];
	struct memwait_completion done[8];
	struct memwait_wait waits[3];
	struct any_waiter w;
	uint32_t woken[3];

	members(waits, self->word, 3);
	notifies_of(notifies, self->word, 3, 1);
	w = any_of(self->fd, waits, 3);
	any_start(&w);
	EXPECT_EQ(3, mw_notify_many(self->fd, notifies, 3, woken));
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	EXPECT_EQ(0, w.index);
	EXPECT_EQ(1, woken[0]);
	EXPECT_EQ(0, woken[1]);
	EXPECT_EQ(0, woken[2]);
	EXPECT_EQ(0, left(self->fd, self->word, 3));

	/* A second group and single waits are queued behind the first group. */
	w = any_of(self->fd, waits, 3);
	any_start(&w);
	ASSERT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, FOREVER, 0, 7, NULL));
	ASSERT_TRUE(arm(self->fd, self->word, 3));
	EXPECT_EQ(3, mw_notify_many(self->fd, notifies, 3, woken));
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	EXPECT_EQ(0, w.index);
	EXPECT_EQ(1, woken[0]);
	EXPECT_EQ(1, woken[1]);
	EXPECT_EQ(1, woken[2]);
	ASSERT_EQ(2, mw_read(self->fd, done, 8));
	EXPECT_EQ(7, done[0].user_data);
	EXPECT_EQ(1, done[0].index);
	EXPECT_EQ(2, done[1].user_data);
	EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(1, mw_waiters(self->fd, self->word + 1, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word + 2, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 1, 1, U32));
}

/*
 * There are more contexts than one step of a notify can collect. The call wakes each of them twice.
 */
MEMWAIT_TEST(R22_notify_many_contexts)
{
	struct memwait_completion done[4];
	struct memwait_notify notifies[40];
	int fds[20], i;

	for (i = 0; i < 20; i++) {
		fds[i] = open_device(O_NONBLOCK);
	}
	for (i = 0; i < 40; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fds[i % 20], self->word + i, i));
	notifies_of(notifies, self->word, 40, 1);
	EXPECT_EQ(40, mw_notify_many(self->fd, notifies, 40, NULL));
	for (i = 0; i < 20; i++) {
		EXPECT_TRUE(mw_readable(fds[i]));
		EXPECT_EQ(2, mw_read(fds[i], done, 4));
		EXPECT_EQ(i, done[0].user_data);
		EXPECT_EQ(20 + i, done[1].user_data);
		close(fds[i]);
	}
}

struct event_loop {
	pthread_t thread;
	int fd, epoll;
	long events, completions;
	int stop;
};

/* Counts edges without sleeping, so that two edges of one call count twice. Does not read. */
static void *count_edges(void *arg)
{
	struct event_loop *loop = arg;
	struct epoll_event event;

	while (!__atomic_load_n(&loop->stop, __ATOMIC_ACQUIRE)) {
		if (epoll_wait(loop->epoll, &event, 1, 0) == 1)
			__atomic_add_fetch(&loop->events, 1, __ATOMIC_ACQ_REL);
	}
	return NULL;
}

/* All completions of one call produce a single edge. */
MEMWAIT_TEST(R22_notify_many_wakes_an_event_loop_once)
{
	struct event_loop loop = { .fd = self->fd, .epoll = epoll_create1(EPOLL_CLOEXEC) };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct memwait_completion done[16];
	struct memwait_notify notifies[16];
	const int rounds = SOME_OF(500);
	int i;

	notifies_of(notifies, self->word, 16, 1);
	ASSERT_LE(0, loop.epoll);
	ASSERT_EQ(0, epoll_ctl(loop.epoll, EPOLL_CTL_ADD, self->fd, &event));
	ASSERT_EQ(0, pthread_create(&loop.thread, NULL, count_edges, &loop));
	for (i = 1; i <= rounds; i++) {
		ASSERT_TRUE(arm(self->fd, self->word, 16));
		ASSERT_EQ(16, mw_notify_many(self->fd, notifies, 16, NULL));
		/* Each call produces a new edge. */
		spin_until(__atomic_load_n(&loop.events, __ATOMIC_ACQUIRE) >= i);
		ASSERT_EQ(16, mw_read(self->fd, done, 16));
	}
	__atomic_store_n(&loop.stop, 1, __ATOMIC_RELEASE);
	pthread_join(loop.thread, NULL);
	EXPECT_EQ(rounds, loop.events);
	close(loop.epoll);
}

/* The number of waits is so small that one step would suffice if the groups were smaller. */
#define LONG_GROUPS	16

/*
 * Each group needs a step of its own, whether the groups wait on one word or on several words.
 * Nevertheless the event loop is not woken for each step.
 */
MEMWAIT_TEST(R22_groups_wake_an_event_loop_twice_at_most)
{
	struct event_loop loop = { .fd = self->fd, .epoll = epoll_create1(EPOLL_CLOEXEC) };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct memwait_wait waits[MEMWAIT_GROUP_MAX];
	struct memwait_completion done[LONG_GROUPS];
	struct memwait_notify notifies[LONG_GROUPS];
	const int rounds = SOME_OF(100);
	long seen;
	int i, j;

	notifies_of(notifies, self->word, LONG_GROUPS, 1);
	ASSERT_EQ(0, epoll_ctl(loop.epoll, EPOLL_CTL_ADD, self->fd, &event));
	ASSERT_EQ(0, pthread_create(&loop.thread, NULL, count_edges, &loop));
	for (i = 0; i < rounds; i++) {
		seen = __atomic_load_n(&loop.events, __ATOMIC_ACQUIRE);
		for (j = 0; j < LONG_GROUPS; j++) {
			members(waits, self->word + LONG_GROUPS, MEMWAIT_GROUP_MAX);
			waits[0] = member(self->word + (i % 2 ? j : 0), 0, U32);
			ASSERT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, MEMWAIT_GROUP_MAX,
							    FOREVER, 0, j, NULL));
		}
		ASSERT_EQ(LONG_GROUPS, i % 2 ?
			  mw_notify_many(self->fd, notifies, LONG_GROUPS, NULL) :
			  mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
		spin_until(__atomic_load_n(&loop.events, __ATOMIC_ACQUIRE) != seen);
		ASSERT_EQ(LONG_GROUPS, mw_read(self->fd, done, LONG_GROUPS));
	}
	__atomic_store_n(&loop.stop, 1, __ATOMIC_RELEASE);
	pthread_join(loop.thread, NULL);
	TH_LOG("%ld edges of %d calls", loop.events, rounds);
	EXPECT_GE(2 * rounds, loop.events);
	close(loop.epoll);
}

/* R1: stores to many words, followed by one call for all of these words. */
struct rounds {
	int fd, rounds;
	uint32_t *word, *answer;
	pthread_t thread;
	long oks, notified, wrong;
};

static void *answer_rounds(void *arg)
{
	struct rounds *r = arg;
	int i, ret;

	for (i = 1; i <= r->rounds; i++) {
		while (__atomic_load_n(r->word, __ATOMIC_ACQUIRE) != (uint32_t)i) {
			ret = mw_wait(r->fd, r->word, i - 1, FOREVER, U32);
			r->oks += ret == MEMWAIT_OK;
			r->wrong += ret < 0;
		}
		__atomic_add_fetch(r->answer, 1, __ATOMIC_ACQ_REL);
		r->notified += mw_notify(r->fd, r->answer, 1, U32);
	}
	return NULL;
}

MEMWAIT_TEST(R1_notify_many_no_wake_up_is_lost)
{
	enum { THREADS = 4 };
	const int rounds = SOME_OF(4000);
	uint32_t *answer = self->shared, value, woken[THREADS];
	long oks = 0, notified = 0, answered = 0, answers = 0;
	struct memwait_notify notifies[THREADS];
	struct rounds r[THREADS] = { 0 };
	int i, round, ret;

	notifies_of(notifies, self->word, THREADS, 1);
	for (i = 0; i < THREADS; i++) {
		r[i] = (struct rounds) { .fd = self->fd, .rounds = rounds, .word = self->word + i,
					 .answer = answer };
		ASSERT_EQ(0, pthread_create(&r[i].thread, NULL, answer_rounds, &r[i]));
	}
	for (round = 1; round <= rounds; round++) {
		for (i = 0; i < THREADS; i++)
			__atomic_store_n(self->word + i, round, __ATOMIC_RELEASE);
		ASSERT_EQ(THREADS, mw_notify_many(self->fd, notifies, THREADS, woken));
		for (i = 0; i < THREADS; i++)
			notified += woken[i];
		while ((value = __atomic_load_n(answer, __ATOMIC_ACQUIRE)) !=
		       (uint32_t)(round * THREADS)) {
			ret = mw_wait(self->fd, answer, value, FOREVER, U32);
			ASSERT_LE(0, ret);
			answered += ret == MEMWAIT_OK;
		}
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(r[i].thread, NULL);
		oks += r[i].oks;
		answers += r[i].notified;
		EXPECT_EQ(0, r[i].wrong);
	}
	EXPECT_EQ(notified, oks);
	EXPECT_EQ(answers, answered);
	EXPECT_LT(0, oks);
}

enum { WORDS = 20 };

struct racer {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int *stop;
	long oks, notified, timed_out, other;
};

static void *notify_hard(void *arg)
{
	struct racer *r = arg;
	struct memwait_notify notifies[WORDS];
	uint32_t woken[WORDS];
	int i, n;

	for (n = 0; !__atomic_load_n(r->stop, __ATOMIC_RELAXED); n++) {
		for (i = 0; i < WORDS; i++)
			notifies[i] = notify_of(r->word + (n + i) % WORDS, (n + i) % 3, U32);
		r->other += mw_notify_many(r->fd, notifies, WORDS, woken) != WORDS;
		for (i = 0; i < WORDS; i++)
			r->notified += woken[i];
	}
	return NULL;
}

static void *wait_hard(void *arg)
{
	struct racer *r = arg;
	struct memwait_wait waits[WORDS];
	uint32_t index;
	int n, ret;

	members(waits, r->word, WORDS);
	for (n = 0; !__atomic_load_n(r->stop, __ATOMIC_RELAXED); n++) {
		uint64_t deadline = soon(n);

		ret = n % 2 ? mw_wait(r->fd, r->word + n % WORDS, 0, deadline, U32) :
			      mw_wait_any(r->fd, waits + n % 8, 3 + n % 9, deadline, 0, &index);
		r->oks += ret == MEMWAIT_OK;
		r->timed_out += ret == MEMWAIT_TIMED_OUT;
		r->other += ret != MEMWAIT_OK && ret != MEMWAIT_TIMED_OUT;
	}
	return NULL;
}

MEMWAIT_TEST(R5_notify_many_and_deadlines_race)
{
	struct racer r[5] = { 0 }, sum = { 0 };
	struct memwait_completion done[16];
	struct memwait_wait waits[WORDS];
	uint64_t end = in_ms(3000);
	long armed = 0, ended = 0;
	int stop = 0, i, n, ret;
	bool enough = false;

	members(waits, self->word, WORDS);
	for (i = 0; i < 5; i++) {
		r[i] = (struct racer) { .fd = self->fd, .word = self->word, .stop = &stop };
		ASSERT_EQ(0, pthread_create(&r[i].thread, NULL, i < 2 ? notify_hard : wait_hard,
					    &r[i]));
	}
	for (n = 0; !enough || ended < armed; n++) {
		enough = now_ns(CLOCK_MONOTONIC) >= end && sum.oks && sum.timed_out;
		if (!enough) {
			ret = n % 2 ? mw_async(self->fd, self->word + n % WORDS, 0, soon(n), U32,
					       0, NULL) :
				      mw_group(self->fd, waits, WORDS, soon(n), 0, 0, NULL);
			armed += ret == MEMWAIT_PENDING;
			ASSERT_TRUE(ret == MEMWAIT_PENDING || ret == MEMWAIT_TIMED_OUT);
		}
		ret = mw_read(self->fd, done, 16);
		for (i = 0; i < ret; i++) {
			ended++;
			sum.oks += done[i].result == MEMWAIT_OK;
			sum.timed_out += done[i].result == MEMWAIT_TIMED_OUT;
		}
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 5; i++) {
		pthread_join(r[i].thread, NULL);
		sum.oks += r[i].oks;
		sum.notified += r[i].notified;
		sum.timed_out += r[i].timed_out;
		EXPECT_EQ(0, r[i].other);
	}
	EXPECT_EQ(armed, ended);
	EXPECT_EQ(sum.notified, sum.oks);
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(0, left(self->fd, self->word, WORDS));
}

TEST_HARNESS_MAIN
