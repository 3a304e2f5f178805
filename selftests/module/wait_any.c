// SPDX-License-Identifier: GPL-2.0
/* R16: waits on several words, of threads (WAIT_ANY) and of contexts (MEMWAIT_GROUP). */
#include "any_test.h"

static const uint32_t word_sizes[] = {
	MEMWAIT_SIZE_U8, MEMWAIT_SIZE_U16, MEMWAIT_SIZE_U32, MEMWAIT_SIZE_U64,
};

/* Arguments */

MEMWAIT_TEST(R2_any_counts_from_one_to_the_maximum)
{
	struct memwait_wait waits[MOST + 1];
	struct memwait_info info;
	uint32_t n;

	ASSERT_EQ(0, mw_info(self->fd, &info));
	EXPECT_EQ(128, MOST);
	EXPECT_EQ(MOST, info.max_group);
	members(waits, self->word, MOST + 1);
	EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, waits, 0, 0, 0, NULL));
	EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, waits, MOST + 1, 0, 0, NULL));
	EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, waits, 1U << 31, 0, 0, NULL));
	EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, waits, ~0U, 0, 0, NULL));
	for (n = 1; n <= MOST; n++)
		EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, n, 0, 0, NULL));
}

MEMWAIT_TEST(R2_any_deadlines_of_entries_are_not_used)
{
	struct memwait_wait waits[3];
	struct memwait_completion done;
	struct any_waiter w;
	int i;

	members(waits, self->word, 3);
	for (i = 0; i < 3; i++)
		waits[i].deadline = FOREVER;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, 3, 0, 0, NULL));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_group(self->fd, waits, 3, 0, 0, 0, NULL));
	for (i = 0; i < 3; i++)
		waits[i].deadline = i;
	w = any_of(self->fd, waits, 3);
	any_start(&w);
	await_asleep(w.tid);
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, FOREVER, 0, 0, NULL));
	EXPECT_EQ(2, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
}

MEMWAIT_TEST(R2_any_unreadable_arrays_are_efault)
{
	static const uint64_t bad[] = { 0, 8, 0xffff888000000000ULL, -32ULL, -8ULL };
	char *area = private_page(2 * self->page);
	struct memwait_wait *waits = (void *)(area + self->page - 3 * sizeof(*waits));
	uint32_t index;
	size_t i;

	ASSERT_EQ(0, munmap(area + self->page, self->page));
	members(waits, self->word, 3);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, 3, 0, 0, NULL));
	EXPECT_EQ(-EFAULT, mw_wait_any(self->fd, waits, 4, 0, 0, &index));
	EXPECT_EQ(-EFAULT, mw_wait_any(self->fd, waits, MOST, 0, 0, NULL));
	EXPECT_EQ(-EFAULT, mw_wait_any(self->fd, waits + 3, 1, 0, 0, NULL));
	EXPECT_EQ(-EFAULT, mw_group(self->fd, waits, 4, FOREVER, 0, 0, NULL));
	EXPECT_EQ(UNTOUCHED, index);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(-EFAULT, mw_wait_any(self->fd, (void *)bad[i], 2, 0, 0, NULL));
		EXPECT_EQ(-EFAULT, mw_wait_any(self->fd, (void *)bad[i], MOST, 0, 0, NULL));
		EXPECT_EQ(-EFAULT, mw_group(self->fd, (void *)bad[i], 2, FOREVER, 0, 0, NULL));
	}
	/* Errors in the struct itself take precedence over errors in the array. */
	EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, NULL, MOST + 1, 0, 0, NULL));
	EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, NULL, 2, 0, 1, NULL));
	EXPECT_TRUE(nobody(self->fd, waits, 3));
}

MEMWAIT_TEST(R2_any_read_only_arrays_are_fine)
{
	struct memwait_wait *waits = private_page(self->page);

	members(waits, self->word, 3);
	ASSERT_EQ(0, mprotect(waits, self->page, PROT_READ));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, 3, 0, 0, NULL));
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, FOREVER, 0, 0, NULL));
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 2, 1, U32));
}

/*
 * The order of the checks: the arguments of all words, the access to all words, the values of all
 * words, the deadline.
 */
MEMWAIT_TEST(R2_any_checks_all_words_in_order)
{
	const uint32_t kinds[] = { U32, U32 | MEMWAIT_PRIVATE };
	uint32_t *hole = hole_page(), index;
	struct memwait_wait waits[3];
	void *device = device_word();
	size_t i;

	for (i = 0; i < 2; i++) {
		/*
		 * The first word differs, the second word cannot be read, and the third word is
		 * misaligned.
		 */
		waits[0] = member(self->word, 1, U32);
		waits[1] = member(hole, 0, kinds[i]);
		waits[2] = member((char *)self->word + 2, 0, U32);
		EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, waits, 3, 0, 0, &index));
		EXPECT_EQ(-EINVAL, mw_group(self->fd, waits, 3, 0, 0, 0, NULL));
		EXPECT_EQ(UNTOUCHED, index);
		EXPECT_EQ(-EFAULT, mw_wait_any(self->fd, waits, 2, 0, 0, &index));
		EXPECT_EQ(-EFAULT, mw_wait_any(self->fd, waits, 2, FOREVER, 0, &index));
		EXPECT_EQ(-EFAULT, mw_group(self->fd, waits, 2, 0, 0, 0, NULL));
		EXPECT_EQ(UNTOUCHED, index);
		waits[1].addr = 0xffff888000000000ULL;
		EXPECT_EQ(-EFAULT, mw_wait_any(self->fd, waits, 2, 0, 0, NULL));
		EXPECT_EQ(-EFAULT, mw_group(self->fd, waits, 2, 0, 0, 0, NULL));
	}
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait_any(self->fd, waits, 1, 0, 0, &index));
	EXPECT_EQ(0, index);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_group(self->fd, waits, 1, 0, 0, 0, NULL));
	if (device) {
		waits[1] = member(device, 0, U32);
		EXPECT_EQ(-EOPNOTSUPP, mw_wait_any(self->fd, waits, 2, 0, 0, NULL));
		EXPECT_EQ(-EOPNOTSUPP, mw_group(self->fd, waits, 2, 0, 0, 0, NULL));
		waits[0].flags = 1U << 31;
		EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, waits, 2, 0, 0, NULL));
	}
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

MEMWAIT_TEST(R16_any_the_lowest_index_wins)
{
	struct memwait_wait waits[MOST];
	struct memwait_async entry;
	uint32_t i, first, index;

	for (first = 0; first < MOST; first++) {
		members(waits, self->word, MOST);
		for (i = first; i < MOST; i += 1 + i % 3)
			waits[i].expected = 1;
		index = UNTOUCHED;
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait_any(self->fd, waits, MOST, first % 2 * FOREVER,
							 0, &index));
		EXPECT_EQ(first, index);
		entry = group_entry(waits, MOST, first % 2 * FOREVER, 0, 0);
		EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, entry.result);
		EXPECT_EQ(first, entry.any.index);
		EXPECT_EQ(0, entry.id);
	}
	EXPECT_TRUE(nobody(self->fd, waits, MOST));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

MEMWAIT_TEST(R3_any_compares_the_bits_of_each_size)
{
	uint64_t value = 0x8182838485868788ULL, mask, *words = (void *)self->word;
	struct memwait_wait waits[4];
	uint32_t index;
	int i, bit;

	for (i = 0; i < 4; i++) {
		words[i] = value;
		/* The upper bits of the expected value are ignored. */
		waits[i] = member(&words[i], value ^ (i == 3 ? 0 : ~0ULL << (8 << i)),
				  word_sizes[i]);
	}
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, 4, 0, 0, NULL));
	for (i = 0; i < 4; i++) {
		mask = ~0ULL >> (64 - (8 << i));
		for (bit = 0; bit < 64; bit++) {
			words[i] = value ^ 1ULL << bit;
			index = UNTOUCHED;
			EXPECT_EQ(1ULL << bit & mask ? MEMWAIT_NOT_EQUAL : MEMWAIT_TIMED_OUT,
				  mw_wait_any(self->fd, waits, 4, 0, 0, &index));
			EXPECT_EQ(1ULL << bit & mask ? (uint32_t)i : UNTOUCHED, index);
		}
		words[i] = value;
	}
}

/* Results */

MEMWAIT_TEST(R16_any_reports_which_word_was_notified)
{
	struct memwait_wait waits[MOST];
	struct memwait_completion done[2];
	struct memwait_async entry;
	struct any_waiter w;
	uint32_t i, n;
	size_t size;

	members(waits, self->word, MOST);
	for (size = 0; size < ARRAY_SIZE(group_sizes); size++) {
		n = group_sizes[size];
		for (i = 0; i < n; i += n > SMALL + 1 ? 9 : 1) {
			w = any_of(self->fd, waits, n);
			any_start(&w);
			EXPECT_EQ(1, waiters_of(self->fd, &waits[0]));
			EXPECT_EQ(1, mw_notify(self->fd, self->word + i, MEMWAIT_ALL, U32));
			/* The thread is no longer in any queue. */
			EXPECT_TRUE(nobody(self->fd, waits, n));
			EXPECT_EQ(0, mw_notify(self->fd, self->word + (i + 1) % n, MEMWAIT_ALL,
					       U32));
			EXPECT_EQ(MEMWAIT_OK, any_join(&w));
			EXPECT_EQ(i, w.index);

			entry = group_entry(waits, n, FOREVER, 0, 1000 + i);
			EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
			EXPECT_EQ(MEMWAIT_PENDING, entry.result);
			EXPECT_EQ(UNTOUCHED, entry.any.index);
			EXPECT_NE(0, entry.id);
			EXPECT_EQ(1, waiters_of(self->fd, &waits[n - 1]));
			EXPECT_EQ(1, mw_notify(self->fd, self->word + i, MEMWAIT_ALL, U32));
			EXPECT_TRUE(nobody(self->fd, waits, n));
			EXPECT_EQ(0, mw_notify(self->fd, self->word + (i + 1) % n, MEMWAIT_ALL,
					       U32));
			memset(done, 0xcc, sizeof(done));
			ASSERT_EQ(1, mw_read(self->fd, done, 2));
			EXPECT_EQ(1000 + i, done[0].user_data);
			EXPECT_EQ(entry.id, done[0].id);
			EXPECT_EQ(MEMWAIT_OK, done[0].result);
			EXPECT_EQ(i, done[0].index);
		}
	}
}

/* Words of each size are private, shared, or private by the flag. */
MEMWAIT_TEST(R16_any_words_of_all_sorts)
{
	uint64_t *private = (void *)self->word, *shared = (void *)self->shared;
	struct memwait_completion done;
	struct memwait_wait waits[12];
	struct any_waiter w;
	int i;

	for (i = 0; i < 4; i++) {
		waits[3 * i] = member(private + 2 * i, 0, word_sizes[i]);
		waits[3 * i + 1] = member(shared + i, 0, word_sizes[i]);
		waits[3 * i + 2] = member(private + 2 * i + 1, 0, word_sizes[i] | MEMWAIT_PRIVATE);
	}
	for (i = 0; i < 12; i++) {
		w = any_of(self->fd, waits, 12);
		any_start(&w);
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 12, FOREVER, 0, i, NULL));
		EXPECT_EQ(2, waiters_of(self->fd, &waits[i]));
		EXPECT_EQ(2, mw_notify(self->fd, word_of(&waits[i]), MEMWAIT_ALL, MEMWAIT_SIZE_U8));
		EXPECT_TRUE(nobody(self->fd, waits, 12));
		EXPECT_EQ(MEMWAIT_OK, any_join(&w));
		EXPECT_EQ((uint32_t)i, w.index);
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ((uint32_t)i, done.index);
	}
}

MEMWAIT_TEST(R16_any_a_word_more_than_once)
{
	const uint32_t twice[] = { 1, 0, 1, 1 };
	struct memwait_completion done;
	struct memwait_wait waits[MOST];
	struct any_waiter w;
	int i;

	for (i = 0; i < 4; i++)
		waits[i] = member(self->word + twice[i], 0, U32);
	w = any_of(self->fd, waits, 4);
	any_start(&w);
	EXPECT_EQ(3, mw_waiters(self->fd, self->word + 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 1, MEMWAIT_ALL, U32));
	EXPECT_TRUE(nobody(self->fd, waits, 4));
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	EXPECT_EQ(0, w.index);	/* the first entry in the order of joining */

	/* The value differs for one of the entries. */
	waits[2].expected = 1;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait_any(self->fd, waits, 4, FOREVER, 0, &w.index));
	EXPECT_EQ(2, w.index);

	for (i = 0; i < MOST; i++)
		waits[i] = member(self->word, 0, word_sizes[i % 4]);
	w = any_of(self->fd, waits, MOST);
	any_start(&w);
	EXPECT_EQ(MOST, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, MOST, FOREVER, 0, 5, NULL));
	EXPECT_EQ(2 * MOST, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(2, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_TRUE(nobody(self->fd, waits, 1));
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	EXPECT_EQ(0, w.index);
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(0, done.index);
}

MEMWAIT_TEST(R8_any_a_file_mapped_twice_is_the_same_word)
{
	struct memwait_completion done;
	struct memwait_wait waits[3];
	struct any_waiter w;
	uint32_t *one, *two;
	int i;

	ASSERT_EQ(0, map_twice(self->page, &one, &two));
	waits[0] = member(two + 3, 0, U32);
	waits[1] = member(one + 3, 0, U32);
	waits[2] = member(self->word, 0, U32);
	for (i = 0; i < 2; i++) {
		w = any_of(self->fd, waits, 3);
		any_start(&w);
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, FOREVER, 0, 5, NULL));
		EXPECT_EQ(4, mw_waiters(self->fd, one + 3, U32));
		EXPECT_EQ(4, mw_waiters(self->fd, two + 3, U32));
		/* Each notify, at either address, wakes one waiter. */
		EXPECT_EQ(1, mw_notify(self->fd, i ? one + 3 : two + 3, 1, U32));
		EXPECT_EQ(2, mw_waiters(self->fd, one + 3, U32));
		EXPECT_EQ(MEMWAIT_OK, any_join(&w));
		EXPECT_EQ(0, w.index);
		EXPECT_EQ(1, mw_notify(self->fd, i ? two + 3 : one + 3, MEMWAIT_ALL, U32));
		EXPECT_TRUE(nobody(self->fd, waits, 3));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(0, done.index);
	}
	one[3] = 7;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait_any(self->fd, waits, 3, 0, 0, &w.index));
	EXPECT_EQ(0, w.index);
}

/*
 * R12: the position of a group in each of its queues depends on the time when it joined that queue.
 */
MEMWAIT_TEST(R12_any_groups_and_others_share_one_queue)
{
	uint32_t *a = self->word, *b = self->word + 1;
	struct memwait_wait forward[2], backward[2];
	struct memwait_completion done;
	struct any_waiter any[2];
	struct waiter w[2];
	int i;

	members(forward, a, 2);
	backward[0] = forward[1];
	backward[1] = forward[0];
	/*
	 * Each word has a thread, a group of a thread, an async wait and a group of a context, and
	 * then each of these once more.
	 */
	for (i = 0; i < 2; i++) {
		w[i] = thread_at(self->fd, i ? b : a);
		waiter_start(&w[i]);
		any[i] = any_of(self->fd, i ? backward : forward, 2);
		any_start(&any[i]);
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, i ? a : b, 10 + i));
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, i ? forward : backward, 2, FOREVER, 0,
						    20 + i, NULL));
	}
	/* a: w0 any0 group20 any1 async11 group21; b: any0 async10 group20 w1 any1 group21 */
	EXPECT_EQ(6, mw_waiters(self->fd, a, U32));
	EXPECT_EQ(6, mw_waiters(self->fd, b, U32));
	EXPECT_EQ(1, mw_notify(self->fd, a, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[0]));

	EXPECT_EQ(1, mw_notify(self->fd, b, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, any_join(&any[0]));
	EXPECT_EQ(1, any[0].index);
	EXPECT_EQ(4, mw_waiters(self->fd, a, U32));
	EXPECT_FALSE(mw_readable(self->fd));

	EXPECT_EQ(1, mw_notify(self->fd, a, 1, U32));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(20, done.user_data);
	EXPECT_EQ(1, done.index);	/* index of the word in @backward */

	EXPECT_EQ(1, mw_notify(self->fd, b, 1, U32));
	EXPECT_COMPLETION(self->fd, 10, MEMWAIT_OK);

	EXPECT_EQ(2, mw_notify(self->fd, b, 2, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[1]));
	EXPECT_EQ(MEMWAIT_OK, any_join(&any[1]));
	EXPECT_EQ(0, any[1].index);	/* index of the word in @backward */

	EXPECT_EQ(2, mw_waiters(self->fd, a, U32));
	EXPECT_EQ(1, mw_notify(self->fd, a, 1, U32));
	EXPECT_COMPLETION(self->fd, 11, MEMWAIT_OK);
	EXPECT_EQ(1, mw_notify(self->fd, a, MEMWAIT_ALL, U32));
	/* The group has ended, and no longer waits on its other word. */
	EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(21, done.user_data);
	EXPECT_EQ(0, done.index);
	EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
}

/*
 * A notify that has woken a group reaches the group's second entry in the same queue and passes
 * over it.
 */
MEMWAIT_TEST(R16_any_a_woken_group_is_passed_over)
{
	struct memwait_completion done[4];
	struct memwait_wait waits[3];
	struct any_waiter w;
	int i;

	for (i = 0; i < 3; i++)
		waits[i] = member(self->word, 0, U32);
	w = any_of(self->fd, waits, 3);
	any_start(&w);
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, FOREVER, 0, 1, NULL));
	for (i = 2; i < 5; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, i));
	EXPECT_EQ(9, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(3, mw_notify(self->fd, self->word, 3, U32));
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	ASSERT_EQ(2, mw_read(self->fd, done, 4));
	EXPECT_EQ(1, done[0].user_data);
	EXPECT_EQ(2, done[1].user_data);
	EXPECT_EQ(2, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(2, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
}

/* Memory */

MEMWAIT_TEST(R7_any_words_are_faulted_in)
{
	uint32_t *fresh = private_page(self->page), *dropped = shared_page(self->page);
	struct memwait_wait waits[4];
	struct any_waiter w;
	uint32_t i;

	for (i = 0; i < 4; i++) {
		waits[0] = member(self->word, 0, U32);
		waits[1] = member(fresh, 0, U32 | (i % 2 ? MEMWAIT_PRIVATE : 0));
		waits[2] = member(dropped, 0, U32);
		waits[3] = member(self->word + 1, 0, U32);
		EXPECT_EQ(0, madvise(fresh, self->page, MADV_DONTNEED));
		EXPECT_EQ(0, madvise(dropped, self->page, MADV_DONTNEED));
		w = any_of(self->fd, waits, 4);
		any_start(&w);
		EXPECT_EQ(0, madvise(fresh, self->page, MADV_DONTNEED));
		EXPECT_EQ(0, madvise(dropped, self->page, MADV_DONTNEED));
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 4, FOREVER, 0, i, NULL));
		EXPECT_EQ(2, mw_notify(self->fd, word_of(&waits[i]), MEMWAIT_ALL, waits[i].flags));
		EXPECT_EQ(MEMWAIT_OK, any_join(&w));
		EXPECT_EQ(i, w.index);
		EXPECT_TRUE(nobody(self->fd, waits, 4));
	}
}

/*
 * Some words are already queued when the next word faults, and then all words start again. This
 * ends when no more pages are dropped.
 */
MEMWAIT_TEST(R7_any_pages_that_vanish_while_words_join)
{
	struct dropper d = { .page = self->word, .size = self->page };
	struct memwait_wait waits[16];
	uint64_t id;
	int i, ret;

	for (i = 0; i < 16; i++)
		waits[i] = member(i % 2 ? self->word + i : self->shared + i, 0, U32);
	ASSERT_EQ(0, pthread_create(&d.thread, NULL, drop_pages, &d));
	for (i = 0; i < SOME_OF(2000); i++) {
		uint64_t deadline = now_ns(CLOCK_MONOTONIC) + 300000;

		__atomic_store_n(&d.times, i % 64, __ATOMIC_RELAXED);
		ASSERT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, 16, deadline, 0, NULL));
		__atomic_store_n(&d.times, i % 64, __ATOMIC_RELAXED);
		ret = mw_group(self->fd, waits, 16, FOREVER, 0, i, &id);
		ASSERT_EQ(MEMWAIT_PENDING, ret);
		ASSERT_EQ(0, mw_cancel(self->fd, id));
	}
	dropper_stop(&d);
	EXPECT_TRUE(nobody(self->fd, waits, 16));
}

MEMWAIT_TEST(R7_any_unmapped_words_are_efault)
{
	uint32_t *hole = hole_page(), index, i;
	struct memwait_wait waits[SMALL + 1];

	for (i = 0; i < SMALL + 1; i++) {
		members(waits, self->word, SMALL + 1);
		waits[i].addr = (uintptr_t)hole;
		EXPECT_EQ(-EFAULT, mw_wait_any(self->fd, waits, SMALL + 1, FOREVER, 0, &index));
		EXPECT_EQ(-EFAULT, mw_group(self->fd, waits, SMALL + 1, FOREVER, 0, 0, NULL));
		waits[i].flags |= MEMWAIT_PRIVATE;
		EXPECT_EQ(-EFAULT, mw_wait_any(self->fd, waits, SMALL + 1, FOREVER, 0, &index));
		EXPECT_EQ(-EFAULT, mw_group(self->fd, waits, SMALL + 1, FOREVER, 0, 0, NULL));
		EXPECT_EQ(UNTOUCHED, index);
		EXPECT_TRUE(nobody(self->fd, waits, i));
	}
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

/* The memory of a word may be unmapped during the wait. */
MEMWAIT_TEST(R11_any_munmap_during_a_wait)
{
	uint32_t *area = shared_page(self->page), *gone = private_page(self->page);
	struct memwait_wait waits[3];
	struct memwait_completion done;
	struct any_waiter w;

	waits[0] = member(area, 0, U32);
	waits[1] = member(gone, 0, U32);
	waits[2] = member(self->word, 0, U32);
	w = any_of(self->fd, waits, 3);
	any_start(&w);
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, FOREVER, 0, 1, NULL));
	EXPECT_EQ(0, munmap(area, self->page));
	EXPECT_EQ(0, munmap(gone, self->page));
	EXPECT_EQ(2, mw_waiters(self->fd, gone, U32 | MEMWAIT_PRIVATE));
	EXPECT_EQ(2, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	EXPECT_EQ(2, w.index);
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(2, done.index);
	EXPECT_EQ(0, mw_waiters(self->fd, gone, U32 | MEMWAIT_PRIVATE));
}

MEMWAIT_TEST(R11_any_fork_during_a_wait)
{
	struct memwait_completion done;
	struct memwait_wait waits[2];
	struct any_waiter w;
	int round;
	pid_t pid;

	waits[0] = member(self->word, 0, U32);
	waits[1] = member(self->shared, 0, U32);
	for (round = 0; round < 2; round++) {
		w = any_of(self->fd, waits, 2);
		any_start(&w);
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 2, FOREVER, 0, 1, NULL));
		pid = fork_child();
		if (!pid) {
			/*
			 * In the child, the private word is a different word, and the shared word
			 * is the same word.
			 */
			if (mw_notify(self->fd, self->word, MEMWAIT_ALL, U32))
				_exit(1);
			if (mw_waiters(self->fd, self->shared, U32) != 2)
				_exit(2);
			if (round && mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32) != 2)
				_exit(3);
			_exit(0);
		}
		self->word[9] = 1;	/* copy on write */
		EXPECT_EQ(0, child_status(pid));
		if (!round)
			EXPECT_EQ(2, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
		EXPECT_EQ(MEMWAIT_OK, any_join(&w));
		EXPECT_EQ((uint32_t)round, w.index);
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ((uint32_t)round, done.index);
		EXPECT_TRUE(nobody(self->fd, waits, 2));
	}
}

TEST_HARNESS_MAIN
