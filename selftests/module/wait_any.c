// SPDX-License-Identifier: GPL-2.0
/* R16: waits on several words at once, of threads (WAIT_ANY) and of contexts (MEMWAIT_GROUP). */
#include "several_test.h"

#define SMALL	8	/* words that need no memory */
#define MOST	MEMWAIT_GROUP_MAX

static const uint32_t word_sizes[] = {
	MEMWAIT_SIZE_U8, MEMWAIT_SIZE_U16, MEMWAIT_SIZE_U32, MEMWAIT_SIZE_U64,
};

static const uint32_t group_sizes[] = { 1, 2, SMALL, SMALL + 1, MOST };

/* Whether nobody waits for any of n words. */
static bool nobody(int fd, const struct memwait_wait *waits, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (waiters_of(fd, &waits[i]))
			return false;
	}
	return true;
}

/* Arguments */

MEMWAIT_TEST(R2_any_unknown_flags_are_einval)
{
	struct memwait_wait waits[2];
	uint32_t index;
	int bit;

	members(waits, self->word, 2);
	for (bit = 0; bit < 32; bit++) {
		if (1U << bit == MEMWAIT_CLOCK_REALTIME)
			continue;
		EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, waits, 2, 0, 1U << bit, &index));
		EXPECT_EQ(UNTOUCHED, index);
	}
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, 2, 0, MEMWAIT_CLOCK_REALTIME,
						 &index));
}

MEMWAIT_TEST(R2_any_reserved_is_einval)
{
	struct memwait_wait waits[2];
	struct memwait_wait_any arg = { .waits = (uintptr_t)waits, .count = 2 };
	int bit;

	members(waits, self->word, 2);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, xioctl(self->fd, MEMWAIT_IOC_WAIT_ANY, &arg));
	for (bit = 0; bit < 32; bit++) {
		arg.reserved = 1U << bit;
		EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_WAIT_ANY, &arg));
	}
}

MEMWAIT_TEST(R2_any_counts_from_one_to_the_most)
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

MEMWAIT_TEST(R2_any_entries_have_no_flags_but_size_and_private)
{
	struct memwait_wait waits[3], *wait;
	uint32_t index = 0;
	int i, bit;

	for (i = 0; i < 3; i++) {
		members(waits, self->word, 3);
		wait = &waits[i];
		for (bit = 0; bit < 32; bit++) {
			if (1U << bit & (MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE))
				continue;
			wait->flags = U32 | 1U << bit;
			EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, waits, 3, 0, 0, &index));
			EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, waits, 3, 0,
						       MEMWAIT_CLOCK_REALTIME, &index));
			EXPECT_EQ(-EINVAL, mw_group(self->fd, waits, 3, FOREVER, 0, 0, NULL));
		}
		EXPECT_EQ(UNTOUCHED, index);
		wait->flags = U32 | MEMWAIT_PRIVATE;
		EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, 3, 0, 0, NULL));
		for (bit = 0; bit < 32; bit++) {
			wait->reserved = 1U << bit;
			EXPECT_EQ(-EINVAL, mw_wait_any(self->fd, waits, 3, 0, 0, NULL));
			EXPECT_EQ(-EINVAL, mw_group(self->fd, waits, 3, FOREVER, 0, 0, NULL));
		}
	}
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

MEMWAIT_TEST(R3_any_misaligned_entries_are_einval)
{
	struct memwait_wait waits[3];
	size_t size, offset;
	uint32_t i;

	for (i = 0; i < 3; i++) {
		for (size = 0; size < 4; size++) {
			for (offset = 0; offset < 8; offset++) {
				bool aligned = offset % (1 << size) == 0;

				members(waits, self->word, 3);
				waits[i] = member((char *)self->word + offset, 0, word_sizes[size]);
				EXPECT_EQ(aligned ? MEMWAIT_TIMED_OUT : -EINVAL,
					  mw_wait_any(self->fd, waits, 3, 0, 0, NULL));
				EXPECT_EQ(aligned ? MEMWAIT_TIMED_OUT : -EINVAL,
					  mw_group(self->fd, waits, 3, 0, 0, 0, NULL));
			}
		}
	}
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
	/* What is wrong with the call comes before the array. */
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

MEMWAIT_TEST(R2_any_unwritable_structs_are_efault)
{
	struct memwait_wait_any *arg = private_page(self->page);
	struct memwait_wait waits[2];

	members(waits, self->word, 2);
	*arg = (struct memwait_wait_any) { .waits = (uintptr_t)waits, .deadline = FOREVER,
					   .count = 2 };
	ASSERT_EQ(0, mprotect(arg, self->page, PROT_READ));
	/* Neither does it wait, nor look whether it must. */
	EXPECT_EQ(-EFAULT, xioctl(self->fd, MEMWAIT_IOC_WAIT_ANY, arg));
	*self->word = 1;
	EXPECT_EQ(-EFAULT, xioctl(self->fd, MEMWAIT_IOC_WAIT_ANY, arg));
	ASSERT_EQ(0, mprotect(arg, self->page, PROT_READ | PROT_WRITE));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, xioctl(self->fd, MEMWAIT_IOC_WAIT_ANY, arg));
	EXPECT_TRUE(nobody(self->fd, waits, 2));
}

MEMWAIT_TEST(any_structs_of_other_sizes)
{
	struct memwait_wait waits[3];
	struct {
		struct memwait_wait_any any;
		uint32_t more[4];
	} arg = { .any = { .waits = (uintptr_t)waits, .count = 3, .index = UNTOUCHED } };
	size_t size, known = sizeof(arg.any);

	members(waits, self->word, 3);
	self->word[2] = 1;
	for (size = 0; size < known; size++)
		EXPECT_EQ(-EINVAL, xioctl(self->fd, _IOC(_IOC_READ | _IOC_WRITE, MEMWAIT_IOC_MAGIC,
							 5, size), &arg));
	EXPECT_EQ(UNTOUCHED, arg.any.index);
	for (size = known; size <= sizeof(arg); size++) {
		arg.any.index = UNTOUCHED;
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, xioctl(self->fd, _IOC(_IOC_READ | _IOC_WRITE,
								   MEMWAIT_IOC_MAGIC, 5, size),
						    &arg));
		EXPECT_EQ(2, arg.any.index);
	}
	arg.more[3] = 1U << 31;
	arg.any.index = UNTOUCHED;
	EXPECT_EQ(-E2BIG, xioctl(self->fd, _IOWR(MEMWAIT_IOC_MAGIC, 5, arg), &arg));
	EXPECT_EQ(UNTOUCHED, arg.any.index);
	EXPECT_EQ(-EFAULT, xioctl(self->fd, MEMWAIT_IOC_WAIT_ANY, NULL));
	EXPECT_EQ(-ENOTTY, xioctl(self->fd, _IOW(MEMWAIT_IOC_MAGIC, 5, struct memwait_wait_any),
				  &arg));
}

/* Arguments of all, then access to all, then the values of all, then the deadline. */
MEMWAIT_TEST(R2_any_checks_all_words_in_order)
{
	const uint32_t kinds[] = { U32, U32 | MEMWAIT_PRIVATE };
	uint32_t *hole = hole_page(), index;
	struct memwait_wait waits[3];
	void *device = device_word();
	size_t i;

	for (i = 0; i < 2; i++) {
		/* The first one differs, the second one cannot be read, the third is misaligned. */
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
		/* The upper bits of expected are ignored. */
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

MEMWAIT_TEST(R16_any_tells_which_word_was_notified)
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
			/* It stands nowhere any more. */
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

/* A word of each size, private, shared, of this process only by promise. */
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
	EXPECT_EQ(0, w.index);	/* which joined first */

	/* Not equal because of the one or of the other. */
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
		/* One notify each, at whichever address. */
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

/* R12: in each of its queues a group has the place of its time of joining. */
MEMWAIT_TEST(R12_any_groups_and_others_stand_in_one_queue)
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
	/* Each of the words: thread, group, async wait, group of a context, and that once more. */
	for (i = 0; i < 2; i++) {
		w[i] = thread_at(self->fd, i ? b : a);
		waiter_start(&w[i]);
		any[i] = any_of(self->fd, i ? backward : forward, 2);
		any_start(&any[i]);
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, i ? a : b, 0, FOREVER, U32, 10 + i,
						    NULL));
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
	EXPECT_EQ(1, done.index);	/* of backward */

	EXPECT_EQ(1, mw_notify(self->fd, b, 1, U32));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(10, done.user_data);

	EXPECT_EQ(2, mw_notify(self->fd, b, 2, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[1]));
	EXPECT_EQ(MEMWAIT_OK, any_join(&any[1]));
	EXPECT_EQ(0, any[1].index);	/* of backward */

	EXPECT_EQ(2, mw_waiters(self->fd, a, U32));
	EXPECT_EQ(1, mw_notify(self->fd, a, 1, U32));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(11, done.user_data);
	EXPECT_EQ(1, mw_notify(self->fd, a, MEMWAIT_ALL, U32));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(21, done.user_data);
	EXPECT_EQ(0, done.index);
	EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
}

/* The second entry of a group in one queue is met by the notify that has woken it. */
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
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, i,
						    NULL));
	EXPECT_EQ(9, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(3, mw_notify(self->fd, self->word, 3, U32));
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	ASSERT_EQ(2, mw_read(self->fd, done, 4));
	EXPECT_EQ(1, done[0].user_data);
	EXPECT_EQ(2, done[1].user_data);
	EXPECT_EQ(2, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(2, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
}

/* Deadlines */

MEMWAIT_TEST(R4_any_time_outs_are_never_early)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct memwait_wait waits[MOST];
	uint64_t deadline;
	uint32_t index, n;
	int i;

	members(waits, self->word, MOST);
	for (i = 0; i < 40; i++) {
		n = group_sizes[i % ARRAY_SIZE(group_sizes)];
		deadline = now_ns(clocks[i % 2]) + i * 500000ULL;
		EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, n, deadline,
							 i % 2 ? MEMWAIT_CLOCK_REALTIME : 0,
							 &index));
		EXPECT_LE(deadline, now_ns(clocks[i % 2]));
		EXPECT_EQ(UNTOUCHED, index);
		EXPECT_TRUE(nobody(self->fd, waits, n));
	}
}

MEMWAIT_TEST(R2_any_values_come_before_a_deadline_in_the_past)
{
	struct memwait_wait waits[2];
	uint64_t past = now_ns(CLOCK_MONOTONIC) - 1;
	uint32_t index;

	members(waits, self->word, 2);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, 2, past, 0, &index));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, 2, 1, MEMWAIT_CLOCK_REALTIME,
						 &index));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_group(self->fd, waits, 2, past, 0, 0, NULL));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_group(self->fd, waits, 2, 1, MEMWAIT_CLOCK_REALTIME, 0,
					      NULL));
	EXPECT_EQ(UNTOUCHED, index);
	waits[1].expected = 1;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait_any(self->fd, waits, 2, past, 0, &index));
	EXPECT_EQ(1, index);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_group(self->fd, waits, 2, past, 0, 0, NULL));
}

MEMWAIT_TEST(R4_any_far_deadlines_are_never)
{
	static const uint64_t far[] = { FOREVER, FOREVER - 1, 1ULL << 63, INT64_MAX, INT64_MAX - 1,
					1ULL << 62 };
	struct memwait_wait waits[3];
	struct any_waiter w;
	size_t i;

	members(waits, self->word, 3);
	for (i = 0; i < 2 * ARRAY_SIZE(far); i++) {
		w = any_of(self->fd, waits, 3);
		w.deadline = far[i / 2];
		w.flags = i % 2 ? MEMWAIT_CLOCK_REALTIME : 0;
		any_start(&w);
		await_asleep(w.tid);
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, w.deadline, w.flags, 0,
						    NULL));
		EXPECT_EQ(2, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
		EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	}
}

MEMWAIT_TEST(R4_group_time_outs)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct memwait_wait waits[MOST];
	struct memwait_completion done;
	uint64_t deadlines[40], ids[40], ms;
	int i, n, ret;

	members(waits, self->word, MOST);
	for (i = 0; i < 40; i++) {
		n = group_sizes[i % ARRAY_SIZE(group_sizes)];
		/* Out of order. */
		ms = 300 + i * 29 % 40;
		do {
			deadlines[i] = now_ns(clocks[i % 2]) + ms * NSEC_PER_MSEC;
			ret = mw_group(self->fd, waits, n, deadlines[i],
				       i % 2 ? MEMWAIT_CLOCK_REALTIME : 0, i, &ids[i]);
			ms *= 2;
		} while (ret == MEMWAIT_TIMED_OUT);
		ASSERT_EQ(MEMWAIT_PENDING, ret);
	}
	for (i = 0; i < 40; i++) {
		memset(&done, 0xcc, sizeof(done));
		ASSERT_EQ(1, await_completions(self->fd, &done, 1));
		ASSERT_GT(40, done.user_data);
		EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
		EXPECT_EQ(0, done.index);
		EXPECT_EQ(ids[done.user_data], done.id);
		EXPECT_LE(deadlines[done.user_data], now_ns(clocks[done.user_data % 2]));
		ids[done.user_data] = 0;
	}
	EXPECT_TRUE(nobody(self->fd, waits, MOST));
	EXPECT_FALSE(mw_readable(self->fd));
}

MEMWAIT_TEST(R4_any_realtime_deadlines_follow_the_clock)
{
	struct memwait_wait waits[3];
	struct memwait_completion done;
	struct any_waiter w;
	struct timespec ts;

	members(waits, self->word, 3);
	w = any_of(self->fd, waits, 3);
	w.deadline = now_ns(CLOCK_REALTIME) + 3600 * NSEC_PER_SEC;
	w.flags = MEMWAIT_CLOCK_REALTIME;
	any_start(&w);
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, w.deadline, w.flags, 1, NULL));
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, in_ms(HOUR), 0, 2, NULL));
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += 7200;
	if (clock_settime(CLOCK_REALTIME, &ts)) {
		mw_notify(self->fd, self->word, MEMWAIT_ALL, U32);
		any_join(&w);
		SKIP(return, "the clock cannot be set");
	}
	EXPECT_EQ(MEMWAIT_TIMED_OUT, any_join(&w));
	EXPECT_EQ(1, await_completions(self->fd, &done, 1));
	EXPECT_EQ(1, done.user_data);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
	ts.tv_sec -= 7200;
	clock_settime(CLOCK_REALTIME, &ts);
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 2, MEMWAIT_ALL, U32));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(2, done.user_data);
	EXPECT_EQ(2, done.index);
}

/* Signals */

MEMWAIT_TEST(R6_any_a_handled_signal_interrupts)
{
	struct memwait_wait waits[MOST];
	struct any_waiter w;
	size_t i;

	handle(SIGUSR1, 0);
	members(waits, self->word, MOST);
	for (i = 0; i < ARRAY_SIZE(group_sizes); i++) {
		w = any_of(self->fd, waits, group_sizes[i]);
		w.deadline = i % 2 ? FOREVER : in_ms(HOUR);
		any_start(&w);
		interrupt_thread(w.thread, w.tid);
		EXPECT_EQ(-EINTR, any_join(&w));
		EXPECT_EQ(UNTOUCHED, w.index);
		EXPECT_TRUE(nobody(self->fd, waits, group_sizes[i]));
	}
}

MEMWAIT_TEST(R6_any_sa_restart_goes_on_waiting)
{
	struct memwait_wait waits[MOST];
	struct any_waiter w;
	size_t i;
	int j;

	members(waits, self->word, MOST);
	for (i = 0; i < ARRAY_SIZE(group_sizes); i++) {
		uint32_t last = group_sizes[i] - 1;

		handle(SIGUSR1, SA_RESTART);
		w = any_of(self->fd, waits, group_sizes[i]);
		any_start(&w);
		for (j = 0; j < 5; j++) {
			interrupt_thread(w.thread, w.tid);
			await_waiters(self->fd, self->word + last, U32, 1);
		}
		EXPECT_EQ(5, handled);
		EXPECT_EQ(1, mw_notify(self->fd, self->word + last, 1, U32));
		EXPECT_EQ(MEMWAIT_OK, any_join(&w));
		EXPECT_EQ(last, w.index);
	}
}

MEMWAIT_TEST(R6_any_sa_restart_keeps_the_deadline)
{
	struct memwait_wait waits[3];
	struct any_waiter w;
	uint64_t ms = 750;

	members(waits, self->word, 3);
	handle(SIGUSR1, SA_RESTART);
	do {
		w = any_of(self->fd, waits, 3);
		w.deadline = in_ms(ms *= 2);
		any_start(&w);
		/* If each restart began anew, this would go on for ever. */
		interrupt_until(w.thread, &w.done);
		EXPECT_EQ(MEMWAIT_TIMED_OUT, any_join(&w));
		EXPECT_LE(w.deadline, now_ns(CLOCK_MONOTONIC));
	} while (!handled);
}

MEMWAIT_TEST(R6_any_sa_restart_compares_again)
{
	struct memwait_wait waits[3];
	struct any_waiter w;

	members(waits, self->word, 3);
	handle(SIGUSR1, SA_RESTART);
	w = any_of(self->fd, waits, 3);
	any_start(&w);
	self->word[1] = 1;
	interrupt_thread(w.thread, w.tid);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, any_join(&w));
	EXPECT_EQ(1, w.index);
	EXPECT_TRUE(nobody(self->fd, waits, 3));
}

static void exit_with_50(int sig)
{
	(void)sig;
	_exit(50);
}

/* Forks a process that waits for any of the words, and exits with 10 + index for OK. */
static pid_t fork_any(int fd, const struct memwait_wait *waits, uint32_t count)
{
	pid_t pid = fork();
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
		kill(victim, SIGKILL);
		EXPECT_EQ(128 + SIGKILL, child_status(victim));
		EXPECT_TRUE(nobody(self->fd, waits, group_sizes[i]));
	}
}

MEMWAIT_TEST(R6_any_a_notify_for_a_thread_that_dies_goes_on)
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
		/* Behind it a thread at the word that is notified, async waits at the others. */
		next = thread_at(self->fd, self->shared + 1);
		waiter_start(&next);
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, FOREVER, U32, 0,
						    NULL));
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared + 2, 0, FOREVER, U32, 2,
						    NULL));
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

MEMWAIT_TEST(R6_any_a_notify_for_a_thread_that_dies_goes_on_to_a_group)
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

MEMWAIT_TEST(R6_any_a_counted_notify_wins_over_a_handled_signal)
{
	struct memwait_wait waits[3];
	struct waiter next;
	pid_t victim;
	int status;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	members(waits, self->shared, 3);
	/* The handler exits, after the wait has returned: the notify was for this thread. */
	signal(SIGUSR1, exit_with_50);
	victim = fork_any(self->fd, waits, 3);
	next = thread_at(self->fd, self->shared + 1);
	waiter_start(&next);
	EXPECT_EQ(1, signal_and_notify(self->fd, self->shared + 1, victim, SIGUSR1));
	EXPECT_EQ(50, child_status(victim));
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared + 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared + 1, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&next));

	/* The handler returns: the result of the wait is OK, and its index is there. */
	handle(SIGUSR1, 0);
	victim = fork_any(self->fd, waits, 3);
	EXPECT_EQ(1, signal_and_notify(self->fd, self->shared + 1, victim, SIGUSR1));
	status = child_status(victim);
	EXPECT_EQ(11, status);
	EXPECT_TRUE(nobody(self->fd, waits, 3));
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

/* Some have joined when the next one faults, and all begin anew. It ends, as the dropping does. */
MEMWAIT_TEST(R7_any_pages_that_vanish_while_words_join)
{
	struct dropper d = { .page = self->word, .size = self->page };
	struct memwait_wait waits[16];
	uint64_t id;
	int i, ret;

	for (i = 0; i < 16; i++)
		waits[i] = member(i % 2 ? self->word + i : self->shared + i, 0, U32);
	ASSERT_EQ(0, pthread_create(&d.thread, NULL, drop_pages, &d));
	for (i = 0; i < ROUNDS(2000); i++) {
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

/* What is waited on may go while it is. */
MEMWAIT_TEST(R11_any_unmapped_under_the_wait)
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

MEMWAIT_TEST(R11_any_fork_under_the_wait)
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
		pid = fork();
		if (!pid) {
			/* The private word is another one now, the shared one the same. */
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

/* Groups of contexts */

MEMWAIT_TEST(R18_group_flags_and_counts)
{
	static const uint32_t counts[] = { 0, MOST + 1, 1U << 31, ~0U };
	struct memwait_wait waits[MOST + 1];
	struct memwait_async entry;
	size_t i;
	int bit;

	members(waits, self->word, MOST + 1);
	for (bit = 0; bit < 32; bit++) {
		if (1U << bit & (MEMWAIT_GROUP | MEMWAIT_CLOCK_REALTIME))
			continue;
		entry = group_entry(waits, 2, FOREVER, 1U << bit, 0);
		EXPECT_EQ(-EINVAL, mw_batch(self->fd, &entry, 1));
		EXPECT_EQ(-EINVAL, entry.result);
		EXPECT_EQ(0, entry.id);
		EXPECT_EQ(UNTOUCHED, entry.any.index);
	}
	for (bit = 0; bit < 32; bit++) {
		entry = group_entry(waits, 2, FOREVER, 0, 0);
		entry.any.reserved = 1U << bit;
		EXPECT_EQ(-EINVAL, mw_batch(self->fd, &entry, 1));
		EXPECT_EQ(-EINVAL, entry.result);
		entry = group_entry(waits, 2, FOREVER, 0, 0);
		entry.reserved = 1U << bit;
		EXPECT_EQ(-EINVAL, mw_batch(self->fd, &entry, 1));
		EXPECT_EQ(-EINVAL, entry.result);
	}
	for (i = 0; i < ARRAY_SIZE(counts); i++)
		EXPECT_EQ(-EINVAL, mw_group(self->fd, waits, counts[i], FOREVER, 0, 0, NULL));
	EXPECT_TRUE(nobody(self->fd, waits, MOST + 1));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

MEMWAIT_TEST(R18_group_index_of_an_entry)
{
	struct memwait_wait waits[3];
	struct memwait_async entry, was;
	uint32_t index[] = { 0, 1, ~0U };
	size_t i;

	members(waits, self->word, 3);
	for (i = 0; i < 3; i++) {
		/* It may be anything before, and is left alone unless a word differed. */
		entry = group_entry(waits, 3, FOREVER, 0, 77);
		entry.any.index = index[i];
		was = entry;
		EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
		EXPECT_EQ(MEMWAIT_PENDING, entry.result);
		EXPECT_EQ(0, memcmp(&entry.any, &was.any, sizeof(entry.any)));
		EXPECT_EQ(77, entry.user_data);
		EXPECT_EQ(0, mw_cancel(self->fd, entry.id));
		EXPECT_TRUE(nobody(self->fd, waits, 3));

		entry = group_entry(waits, 3, 0, 0, 77);
		entry.any.index = index[i];
		EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
		EXPECT_EQ(MEMWAIT_TIMED_OUT, entry.result);
		EXPECT_EQ(index[i], entry.any.index);
		EXPECT_EQ(0, entry.id);

		waits[2].expected = 1;
		entry = group_entry(waits, 3, 0, 0, 77);
		entry.any.index = index[i];
		EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, entry.result);
		EXPECT_EQ(2, entry.any.index);
		EXPECT_EQ(0, entry.id);
		waits[2].expected = 0;
	}
}

MEMWAIT_TEST(R18_groups_and_single_waits_in_one_batch)
{
	struct memwait_completion done[6];
	struct memwait_wait waits[3];
	struct memwait_async e[6];
	int i, bad;

	members(waits, self->word, 3);
	for (bad = 1; bad < 6; bad++) {
		for (i = 0; i < 6; i++) {
			e[i] = group_entry(waits, 3, FOREVER, 0, i);
			if (i % 2) {
				e[i].wait = member(self->word, 0, U32);
				e[i].wait.deadline = FOREVER;
			}
		}
		e[bad].wait.flags |= 1U << 20;
		EXPECT_EQ(bad, mw_batch(self->fd, e, 6));
		EXPECT_EQ(-EINVAL, e[bad].result);
		EXPECT_EQ(0, e[bad].id);
		if (bad < 5)
			EXPECT_EQ(UNTOUCHED, (uint32_t)e[bad + 1].result);
		EXPECT_EQ(bad, mw_waiters(self->fd, self->word, U32));
		EXPECT_EQ((bad + 1) / 2, mw_waiters(self->fd, self->word + 2, U32));
		EXPECT_EQ(self->user_waits + (bad + 1) / 2 * 3 + bad / 2, mw_user_waits(self->fd));
		EXPECT_EQ(bad, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
		EXPECT_EQ(bad, mw_read(self->fd, done, 6));
		for (i = 0; i < bad; i++) {
			EXPECT_EQ(i, done[i].user_data);
			EXPECT_EQ(e[i].id, done[i].id);
			EXPECT_EQ(0, done[i].index);
		}
	}
}

MEMWAIT_TEST(R18_group_entries_that_cannot_be_written_queue_nothing)
{
	struct memwait_async *entry = private_page(self->page);
	struct memwait_wait waits[3];

	members(waits, self->word, 3);
	*entry = group_entry(waits, 3, FOREVER, 0, 0);
	ASSERT_EQ(0, mprotect(entry, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, entry, 1));
	waits[1].expected = 1;
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, entry, 1));
	EXPECT_TRUE(nobody(self->fd, waits, 3));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

MEMWAIT_TEST(R23_group_cancel)
{
	struct memwait_wait waits[MOST];
	struct memwait_completion done;
	uint64_t id, other;
	size_t i;

	members(waits, self->word, MOST);
	for (i = 0; i < ARRAY_SIZE(group_sizes); i++) {
		uint32_t n = group_sizes[i];

		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, n, i % 2 ? FOREVER :
						    in_ms(HOUR), 0, 1, &id));
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, n, FOREVER, 0, 2, &other));
		EXPECT_NE(id, other);
		EXPECT_EQ(0, mw_cancel(self->fd, id));
		EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
		EXPECT_EQ(1, waiters_of(self->fd, &waits[n - 1]));
		EXPECT_EQ(1, mw_notify(self->fd, self->word + n - 1, MEMWAIT_ALL, U32));
		EXPECT_EQ(-ENOENT, mw_cancel(self->fd, other));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(2, done.user_data);
		EXPECT_EQ(-ENOENT, mw_cancel(self->fd, other));
		EXPECT_TRUE(nobody(self->fd, waits, n));

		EXPECT_EQ(MEMWAIT_PENDING, group_soon(self->fd, waits, n, 5, 3, &id));
		EXPECT_EQ(1, await_completions(self->fd, &done, 1));
		EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
	}
}

MEMWAIT_TEST(R24_group_counts_as_many_waits_as_words)
{
	struct memwait_wait waits[MOST];
	struct memwait_completion done;
	uint64_t id, user_waits = self->user_waits;
	size_t i;
	int fd;

	members(waits, self->word, MOST);
	for (i = 0; i < ARRAY_SIZE(group_sizes); i++) {
		uint32_t n = group_sizes[i];

		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, n, FOREVER, 0, 1, &id));
		EXPECT_EQ(user_waits + n, mw_user_waits(self->fd));
		EXPECT_EQ(0, mw_cancel(self->fd, id));
		EXPECT_EQ(user_waits, mw_user_waits(self->fd));

		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, n, FOREVER, 0, 1, &id));
		EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		EXPECT_EQ(user_waits + n, mw_user_waits(self->fd));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(user_waits, mw_user_waits(self->fd));

		EXPECT_EQ(MEMWAIT_PENDING, group_soon(self->fd, waits, n, 5, 1, &id));
		while (!mw_readable(self->fd))
			sched_yield();
		EXPECT_EQ(user_waits + n, mw_user_waits(self->fd));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(user_waits, mw_user_waits(self->fd));

		fd = memwait_open(O_NONBLOCK);
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, n, FOREVER, 0, 1, &id));
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, n, FOREVER, 0, 1, &id));
		EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		EXPECT_EQ(user_waits + 2 * n, mw_user_waits(self->fd));
		close(fd);
		EXPECT_EQ(user_waits, mw_user_waits(self->fd));
	}
	/* Threads are not counted, nor what does not wait. */
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, MOST, in_ms(1), 0, NULL));
	waits[1].expected = 1;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_group(self->fd, waits, MOST, FOREVER, 0, 0, NULL));
	EXPECT_EQ(user_waits, mw_user_waits(self->fd));
}

MEMWAIT_TEST(R25_group_close_ends_pending_groups_and_wakes_nobody)
{
	struct memwait_wait waits[MOST];
	int fd = memwait_open(O_NONBLOCK), i;

	members(waits, self->shared, MOST);
	for (i = 0; i < 5; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, group_sizes[i], i % 2 ? FOREVER :
						    in_ms(HOUR), 0, i, NULL));
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, MOST, FOREVER, 0, 5, NULL));
	close(fd);
	for (i = 0; i < MOST; i++)
		EXPECT_EQ(1, waiters_of(self->fd, &waits[i]));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R25_group_an_unread_ok_goes_on_at_the_word_that_was_notified)
{
	struct memwait_wait waits[MOST];
	struct memwait_completion done[4];
	uint32_t i;
	int fd;

	for (i = 0; i < MOST; i++)
		waits[i] = member(i % 2 ? self->word + i : self->shared + i, 0, U32);
	for (i = 0; i < MOST; i += 1 + i / 4) {
		uint32_t before = (i + MOST - 1) % MOST, after = (i + 1) % MOST;

		fd = memwait_open(O_NONBLOCK);
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, MOST, FOREVER, 0, 0, NULL));
		/* Another one of the same context is no next waiter. */
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, MOST, FOREVER, 0, 0, NULL));
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, word_of(&waits[before]), 0, FOREVER,
						    U32, 1, NULL));
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, &waits[i], 1, FOREVER, 0, 2, NULL));
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, word_of(&waits[after]), 0, FOREVER,
						    U32, 3, NULL));
		EXPECT_EQ(1, mw_notify(self->fd, word_of(&waits[i]), 1, U32));
		EXPECT_FALSE(mw_readable(self->fd));
		close(fd);
		ASSERT_EQ(1, mw_read(self->fd, done, 4));
		EXPECT_EQ(2, done[0].user_data);
		EXPECT_EQ(MEMWAIT_OK, done[0].result);
		EXPECT_EQ(1, mw_notify(self->fd, word_of(&waits[before]), MEMWAIT_ALL, U32));
		EXPECT_EQ(1, mw_notify(self->fd, word_of(&waits[after]), MEMWAIT_ALL, U32));
		EXPECT_EQ(2, mw_read(self->fd, done, 4));
		EXPECT_TRUE(nobody(self->fd, waits, MOST));
	}
}

MEMWAIT_TEST(R25_group_what_was_read_or_timed_out_does_not_go_on)
{
	struct memwait_wait waits[3];
	struct memwait_completion done;
	int fd = memwait_open(O_NONBLOCK), i;

	members(waits, self->shared, 3);
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, 3, FOREVER, 0, 0, NULL));
	EXPECT_EQ(1, mw_notify(fd, self->shared + 1, 1, U32));
	EXPECT_EQ(1, mw_read(fd, &done, 1));
	EXPECT_EQ(MEMWAIT_PENDING, group_soon(fd, waits, 3, 5, 0, NULL));
	while (!mw_readable(fd))
		sched_yield();
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, FOREVER, 0, 0, NULL));
	close(fd);
	EXPECT_FALSE(mw_readable(self->fd));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(1, waiters_of(self->fd, &waits[i]));
}

MEMWAIT_TEST(R25_group_of_a_process_that_dies_unread)
{
	struct memwait_wait waits[3];
	struct any_waiter w;
	pid_t pid;
	int fd;

	members(waits, self->shared, 3);
	pid = fork();
	if (!pid) {
		fd = memwait_open(0);
		if (mw_group(fd, waits, 3, FOREVER, 0, 0, NULL) != MEMWAIT_PENDING)
			_exit(1);
		pause();
	}
	await_waiters(self->fd, self->shared + 2, U32, 1);
	w = any_of(self->fd, waits, 3);
	any_start(&w);
	EXPECT_EQ(1, mw_notify(self->fd, self->shared + 1, 1, U32));
	EXPECT_EQ(0, __atomic_load_n(&w.done, __ATOMIC_ACQUIRE));
	kill(pid, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, child_status(pid));
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	EXPECT_EQ(1, w.index);
	EXPECT_TRUE(nobody(self->fd, waits, 3));
}

/* Races */

enum { WORDS = 4 };

/* What happened at each of some words. */
struct tally {
	long oks[WORDS], notified[WORDS], timed_out, cancelled, not_equal, other;
};

static void add_tally(struct tally *sum, const struct tally *t)
{
	int i;

	for (i = 0; i < WORDS; i++) {
		sum->oks[i] += t->oks[i];
		sum->notified[i] += t->notified[i];
	}
	sum->timed_out += t->timed_out;
	sum->cancelled += t->cancelled;
	sum->not_equal += t->not_equal;
	sum->other += t->other;
}

struct racer {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int first, count;
	int *stop;
	struct tally tally;
};

static bool stopped(struct racer *r)
{
	return __atomic_load_n(r->stop, __ATOMIC_RELAXED);
}

static void *notify_words(void *arg)
{
	struct racer *r = arg;
	unsigned int i, n;

	for (n = r->first; !stopped(r); n++) {
		i = n * 7 / 3 % WORDS;
		r->tally.notified[i] += mw_notify(r->fd, r->word + i, 1 + n % 3, U32);
	}
	return NULL;
}

/* The words in an order of its own, some of them twice: index i is word (first + i) % WORDS. */
static void *wait_for_words(void *arg)
{
	struct racer *r = arg;
	struct memwait_wait waits[MOST];
	struct tally *t = &r->tally;
	uint32_t index;
	int i, ret;

	for (i = 0; i < r->count; i++)
		waits[i] = member(r->word + (r->first + i) % WORDS, 0, U32);
	for (i = 0; !stopped(r); i++) {
		ret = mw_wait_any(r->fd, waits, r->count, soon(i), 0, &index);
		if (ret == MEMWAIT_OK && index < (uint32_t)r->count)
			add_one(&t->oks[(r->first + index) % WORDS]);
		else if (ret == MEMWAIT_TIMED_OUT)
			add_one(&t->timed_out);
		else
			t->other++;
	}
	return NULL;
}

/* Each word's notifies are the OKs with its index, in groups with and without allocation. */
MEMWAIT_TEST(R5_any_waits_and_notifies_of_all_words_race)
{
	struct racer racers[6] = { 0 };
	struct tally sum = { 0 };
	uint64_t end = in_ms(3000);
	int stop = 0, i;

	for (i = 0; i < 6; i++) {
		racers[i] = (struct racer) { .fd = self->fd, .word = self->word, .stop = &stop,
					     .first = i, .count = i == 5 ? 12 : 4 };
		ASSERT_EQ(0, pthread_create(&racers[i].thread, NULL,
					    i < 2 ? notify_words : wait_for_words, &racers[i]));
	}
	while (now_ns(CLOCK_MONOTONIC) < end)
		usleep(10000);
	/* The last one waits for all words. */
	for (i = 0; i < WORDS; i++)
		await_counted(&racers[5].tally.oks[i]);
	await_counted(&racers[5].tally.timed_out);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 6; i++) {
		pthread_join(racers[i].thread, NULL);
		add_tally(&sum, &racers[i].tally);
	}
	for (i = 0; i < WORDS; i++) {
		EXPECT_EQ(sum.notified[i], sum.oks[i]);
		EXPECT_EQ(0, mw_waiters(self->fd, self->word + i, U32));
	}
	EXPECT_EQ(0, sum.other);
}

/* Counts the completions of groups; each id must be one that is pending, and only once. */
static void count_completions(int fd, struct tally *t)
{
	struct memwait_completion done[16];
	int i, n;

	while ((n = mw_read(fd, done, 16)) > 0) {
		for (i = 0; i < n; i++) {
			if (done[i].result == MEMWAIT_OK)
				t->oks[(done[i].user_data + done[i].index) % WORDS]++;
			else if (done[i].result == MEMWAIT_TIMED_OUT && !done[i].index)
				t->timed_out++;
			else
				t->other++;
		}
	}
}

static long ended(const struct tally *t)
{
	long sum = t->timed_out + t->cancelled + t->other;
	int i;

	for (i = 0; i < WORDS; i++)
		sum += t->oks[i];
	return sum;
}

/* Cancelled as well as notified, by each word. */
static bool each_way(const struct tally *t)
{
	int i = 0;

	while (i < WORDS && t->oks[i])
		i++;
	return i == WORDS && t->cancelled;
}

/* Large groups, so that a notify comes to members that have joined while others have not. */
MEMWAIT_TEST(R19_group_arming_notify_deadline_and_cancel_race)
{
	static const int counts[] = { MOST, 4, 64, 9 };
	struct memwait_wait waits[MOST];
	struct racer racers[2] = { 0 };
	struct tally sum = { 0 };
	uint64_t end = in_ms(4000), id;
	long armed = 0, tries, late = 0;
	int stop = 0, i, ret;

	for (i = 0; i < 2; i++) {
		racers[i] = (struct racer) { .fd = self->fd, .word = self->word, .stop = &stop,
					     .first = i };
		ASSERT_EQ(0, pthread_create(&racers[i].thread, NULL, notify_words, &racers[i]));
	}
	for (tries = 0; now_ns(CLOCK_MONOTONIC) < end || !each_way(&sum); tries++) {
		uint64_t deadline = tries % 4 ? soon(tries) : FOREVER;

		for (i = 0; i < counts[tries % 4]; i++)
			waits[i] = member(self->word + (tries + i) % WORDS, 0, U32);
		ret = mw_group(self->fd, waits, counts[tries % 4], deadline, 0, tries, &id);
		if (ret == MEMWAIT_TIMED_OUT) {
			late++;
			continue;
		}
		ASSERT_EQ(MEMWAIT_PENDING, ret);
		armed++;
		if (armed % 3) {
			ret = mw_cancel(self->fd, id);
			ASSERT_TRUE(!ret || ret == -ENOENT);
			sum.cancelled += !ret;
		}
		count_completions(self->fd, &sum);
	}
	/* Those without a deadline. */
	while (ended(&sum) < armed)
		count_completions(self->fd, &sum);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 2; i++) {
		pthread_join(racers[i].thread, NULL);
		add_tally(&sum, &racers[i].tally);
	}
	count_completions(self->fd, &sum);
	TH_LOG("%ld armed, %ld timed out, %ld cancelled, %ld late", armed, sum.timed_out,
	       sum.cancelled, late);
	EXPECT_EQ(armed, ended(&sum));
	EXPECT_EQ(0, sum.other);
	for (i = 0; i < WORDS; i++) {
		EXPECT_EQ(sum.notified[i], sum.oks[i]);
		EXPECT_EQ(0, mw_waiters(self->fd, self->word + i, U32));
	}
}

struct toggling {
	pthread_t thread;
	uint32_t *word;
	int stop;
};

static void *toggle(void *arg)
{
	struct toggling *t = arg;
	uint32_t i;

	for (i = 0; !__atomic_load_n(&t->stop, __ATOMIC_RELAXED); i++) {
		__atomic_store_n(t->word, i % 2, __ATOMIC_RELAXED);
		sched_yield();
	}
	return NULL;
}

/* The last word changes while the others join. */
MEMWAIT_TEST(R18_any_not_equal_in_the_middle_of_joining_leaves_nothing)
{
	const uint32_t last = MOST - 1;
	struct toggling t = { .word = self->word + last };
	struct memwait_wait waits[MOST];
	struct memwait_async entry;
	long differed = 0;
	uint32_t index;
	int i, ret;

	members(waits, self->word, MOST);
	ASSERT_EQ(0, pthread_create(&t.thread, NULL, toggle, &t));
	for (i = 0; i < ROUNDS(1000) || !differed; i++) {
		entry = group_entry(waits, MOST, FOREVER, 0, i);
		ASSERT_EQ(1, mw_batch(self->fd, &entry, 1));
		if (entry.result == MEMWAIT_NOT_EQUAL) {
			differed++;
			ASSERT_EQ(last, entry.any.index);
			ASSERT_EQ(0, entry.id);
		} else {
			ASSERT_EQ(MEMWAIT_PENDING, entry.result);
			ASSERT_EQ(UNTOUCHED, entry.any.index);
			ASSERT_EQ(0, mw_cancel(self->fd, entry.id));
		}
		ASSERT_EQ(0, mw_waiters(self->fd, self->word + i % MOST, U32));
		ret = mw_wait_any(self->fd, waits, MOST, now_ns(CLOCK_MONOTONIC) + 30000, 0,
				  &index);
		if (ret == MEMWAIT_NOT_EQUAL) {
			differed++;
			ASSERT_EQ(last, index);
		} else {
			ASSERT_EQ(MEMWAIT_TIMED_OUT, ret);
		}
		ASSERT_EQ(0, mw_waiters(self->fd, self->word + (i + 1) % MOST, U32));
	}
	__atomic_store_n(&t.stop, 1, __ATOMIC_RELAXED);
	pthread_join(t.thread, NULL);
	EXPECT_TRUE(nobody(self->fd, waits, MOST));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

struct notify_once {
	pthread_t thread;
	pthread_barrier_t *barrier;
	int fd;
	uint32_t *word;
	int rounds, counted;
};

static void *notify_each_round(void *arg)
{
	struct notify_once *n = arg;
	int i;

	for (i = 0; i < n->rounds; i++) {
		pthread_barrier_wait(n->barrier);
		n->counted += mw_notify(n->fd, n->word, 1, U32);
		pthread_barrier_wait(n->barrier);
	}
	return NULL;
}

/* Either the group was notified, and its close passes that on; or it was gone before. */
MEMWAIT_TEST(R25_group_close_races_with_a_notify)
{
	const int rounds = ROUNDS(3000);
	struct notify_once n = { .fd = self->fd, .word = self->shared + 2, .rounds = rounds };
	struct memwait_completion done[2];
	struct memwait_wait waits[16];
	pthread_barrier_t barrier;
	uint64_t others;
	int i, fd;

	members(waits, self->shared, 16);
	pthread_barrier_init(&barrier, NULL, 2);
	n.barrier = &barrier;
	ASSERT_EQ(0, pthread_create(&n.thread, NULL, notify_each_round, &n));
	for (i = 0; i < rounds; i++) {
		fd = memwait_open(O_NONBLOCK);
		ASSERT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, 16, FOREVER, 0, 0, NULL));
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared + 2, 0, FOREVER, U32, 2,
						    NULL));
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared + 3, 0, FOREVER, U32, 3,
						    &others));
		pthread_barrier_wait(&barrier);
		close(fd);
		pthread_barrier_wait(&barrier);
		ASSERT_EQ(1, mw_read(self->fd, done, 2));
		ASSERT_EQ(2, done[0].user_data);
		ASSERT_EQ(0, mw_cancel(self->fd, others));
	}
	pthread_join(n.thread, NULL);
	EXPECT_EQ(rounds, n.counted);
	EXPECT_TRUE(nobody(self->fd, waits, 16));
}

/* R1: what happens at one of the words is never lost, whatever the others do. */
struct rounds {
	int fd;			/* of a context of its own, that blocks; or of all */
	bool async;
	uint32_t *word;		/* three questions, the answer, and words that never change */
	uint32_t rounds;
	long oks, notified;
};

/* Waits for any of the words, by a thread's wait or an async one. Returns its result. */
static int wait_once(struct rounds *r, const struct memwait_wait *waits, uint32_t count)
{
	struct memwait_completion done;
	int ret;

	if (!r->async)
		return mw_wait_any(r->fd, waits, count, FOREVER, 0, NULL);
	ret = mw_group(r->fd, waits, count, FOREVER, 0, 0, NULL);
	if (ret != MEMWAIT_PENDING)
		return ret;
	return mw_read(r->fd, &done, 1) == 1 ? done.result : -EIO;
}

static void *answer_rounds(void *arg)
{
	struct rounds *r = arg;
	uint32_t seen[3] = { 0 }, answered = 0, i, value;
	struct memwait_wait waits[64];
	bool found;
	int ret;

	while (answered < r->rounds) {
		found = false;
		members(waits, r->word + 1, 64);	/* without the answer */
		for (i = 0; i < 3; i++) {
			value = __atomic_load_n(r->word + i, __ATOMIC_ACQUIRE);
			if (value != seen[i]) {
				found = true;
				seen[i] = value;
				answered++;
				__atomic_store_n(r->word + 3, answered, __ATOMIC_RELEASE);
				r->notified += mw_notify(r->fd, r->word + 3, 1, U32);
			}
			waits[i] = member(r->word + i, seen[i], U32);
		}
		if (found)
			continue;
		ret = wait_once(r, waits, answered % 2 ? 64 : 3);
		if (ret < 0)
			abort();
		r->oks += ret == MEMWAIT_OK;
	}
	return NULL;
}

MEMWAIT_TEST(R1_any_no_wake_up_is_lost)
{
	struct rounds r;
	long oks, notified;
	pthread_t thread;
	uint32_t i, value;
	int ret, async;

	for (async = 0; async < 2; async++) {
		memset(self->word, 0, self->page);
		r = (struct rounds) { .fd = memwait_open(0), .async = async, .word = self->word,
				      .rounds = ROUNDS(20000) };
		oks = 0;
		notified = 0;
		ASSERT_EQ(0, pthread_create(&thread, NULL, answer_rounds, &r));
		for (i = 1; i <= r.rounds; i++) {
			__atomic_store_n(r.word + i * 5 / 3 % 3, i, __ATOMIC_RELEASE);
			notified += mw_notify(r.fd, r.word + i * 5 / 3 % 3, 1, U32);
			while ((value = __atomic_load_n(r.word + 3, __ATOMIC_ACQUIRE)) != i) {
				ret = mw_wait(r.fd, r.word + 3, value, FOREVER, U32);
				ASSERT_LE(0, ret);
				oks += ret == MEMWAIT_OK;
			}
		}
		pthread_join(thread, NULL);
		EXPECT_EQ(notified, r.oks);
		EXPECT_EQ(r.notified, oks);
		EXPECT_LT(0, oks);
		close(r.fd);
	}
}

FIXTURE(group_limit)
{
	int fd;
	uint32_t *word;
	uint64_t user_waits;
	uint64_t limit;
};

FIXTURE_SETUP(group_limit)
{
	struct memwait_info info;

	self->fd = memwait_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->word = private_page(sysconf(_SC_PAGESIZE));
	ASSERT_EQ(0, mw_info(self->fd, &info));
	self->user_waits = info.user_waits;
	self->limit = info.max_user_waits;
	if (geteuid())
		SKIP(return, "needs root to set the limit");
}

FIXTURE_TEARDOWN(group_limit)
{
	EXPECT_EQ(0, set_limit(self->limit));
	close(self->fd);
}

TEST_F_TIMEOUT(group_limit, R24_group_beyond_the_limit_is_enospc, 300)
{
	struct memwait_wait waits[MOST];
	struct memwait_completion done;
	struct memwait_async e[3];
	uint64_t id;
	int i;

	members(waits, self->word, MOST);
	ASSERT_EQ(0, set_limit(self->user_waits + 10));
	EXPECT_EQ(-ENOSPC, mw_group(self->fd, waits, 11, FOREVER, 0, 0, &id));
	EXPECT_EQ(0, id);
	EXPECT_EQ(-ENOSPC, mw_group(self->fd, waits, MOST, FOREVER, 0, 0, NULL));
	EXPECT_TRUE(nobody(self->fd, waits, MOST));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 10, FOREVER, 0, 0, &id));
	EXPECT_EQ(-ENOSPC, mw_group(self->fd, waits, 1, FOREVER, 0, 0, NULL));
	EXPECT_EQ(-ENOSPC, mw_async(self->fd, self->word, 0, FOREVER, U32, 0, NULL));
	EXPECT_EQ(0, mw_cancel(self->fd, id));

	/* Four and four, and no room for the third. */
	for (i = 0; i < 3; i++)
		e[i] = group_entry(waits, 4, FOREVER, 0, i);
	EXPECT_EQ(2, mw_batch(self->fd, e, 3));
	EXPECT_EQ(-ENOSPC, e[2].result);
	EXPECT_EQ(0, e[2].id);
	EXPECT_EQ(UNTOUCHED, e[2].any.index);
	EXPECT_EQ(self->user_waits + 8, mw_user_waits(self->fd));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(2, waiters_of(self->fd, &waits[i]));
	/* What needs no wait needs no place; threads have none. */
	waits[2].expected = 1;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_group(self->fd, waits, 4, FOREVER, 0, 0, NULL));
	waits[2].expected = 0;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_group(self->fd, waits, 4, 0, 0, 0, NULL));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, MOST, in_ms(1), 0, NULL));
	/* A completion has its place until it is read. */
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(-ENOSPC, mw_group(self->fd, waits, 4, FOREVER, 0, 0, NULL));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 4, FOREVER, 0, 0, NULL));
}

static void *wait_with_struct(void *arg)
{
	struct any_waiter *w = arg;

	w->result = xioctl(w->fd, MEMWAIT_IOC_WAIT_ANY, w->waits);
	return NULL;
}

/* R5: a counted notify is an OK, here or at the next waiter. */
MEMWAIT_TEST(R5_any_a_notify_is_not_lost_if_the_index_cannot_be_written)
{
	struct memwait_wait_any *arg = private_page(self->page);
	struct memwait_completion done;
	struct memwait_wait waits[2];
	struct any_waiter w = { .fd = self->fd, .waits = (void *)arg };
	int oks;

	members(waits, self->word, 2);
	*arg = (struct memwait_wait_any) { .waits = (uintptr_t)waits, .deadline = FOREVER,
					   .count = 2 };
	ASSERT_EQ(0, pthread_create(&w.thread, NULL, wait_with_struct, &w));
	await_waiters(self->fd, self->word + 1, U32, 1);
	ASSERT_EQ(0, mprotect(arg, self->page, PROT_READ));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 0, NULL));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	oks = any_join(&w) == MEMWAIT_OK;
	TH_LOG("WAIT_ANY: %d", w.result);
	oks += mw_read(self->fd, &done, 1) == 1;
	EXPECT_EQ(1, oks);
	mw_notify(self->fd, self->word, MEMWAIT_ALL, U32);
}

TEST_HARNESS_MAIN
