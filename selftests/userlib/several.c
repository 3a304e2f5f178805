// SPDX-License-Identifier: GPL-2.0
/*
 * Functions on several words: wait for any of several words, requeue, notify and wait, notify many.
 */
#include "userlib_test.h"

#define WORDS	20

static void expect_values(struct memwait_wait *waits, uint32_t *words, uint32_t value)
{
	int i;

	memset(waits, 0, WORDS * sizeof(*waits));
	for (i = 0; i < WORDS; i++) {
		waits[i].addr = (uintptr_t)&words[i];
		waits[i].expected = value;
		waits[i].flags = U32_SIZE;
	}
}

struct any {
	struct memwait_wait waits[WORDS];
	unsigned int count;
	unsigned int index;
	int result;
};

static int wait_for_any(void *arg)
{
	struct any *any = arg;

	return memwait_wait_any(any->waits, any->count, NULL, 0, &any->index);
}

USERLIB_TEST(R16_a_thread_waits_for_one_of_many_words)
{
	static const unsigned int counts[] = { 1, 8, WORDS };
	uint32_t *words = self->shared;
	struct runner runner;
	struct any any;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		expect_values(any.waits, words, 0);
		any.count = counts[i];
		any.index = 999;
		runner_start(&runner, wait_for_any, &any);
		await_waiters(self->fd, &words[any.count - 1], U32_SIZE, 1);
		EXPECT_EQ(1, memwait_notify(&words[any.count - 1], MEMWAIT_ALL, 0));
		EXPECT_EQ(0, memwait_notify(&words[0], MEMWAIT_ALL, 0));
		EXPECT_EQ(MEMWAIT_OK, runner_join(&runner));
		EXPECT_EQ(any.count - 1, any.index);
	}
}

USERLIB_TEST(R16_the_first_word_that_differs_is_reported)
{
	static const unsigned int flags[] = { 0, MEMWAIT_CLOCK_REALTIME, MEMWAIT_RELATIVE };
	struct counted_op counted = counted_by(&counted, self->loop);
	struct memwait_wait waits[WORDS];
	struct timespec past = { -1, 0 };
	uint32_t *words = self->shared;
	unsigned int index = 999, i;
	memwait_sem_t sem;

	expect_values(waits, words, 0);
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(MEMWAIT_TIMED_OUT,
			  memwait_wait_any(waits, WORDS, &past, flags[i], &index));
		EXPECT_EQ(999, index);
		EXPECT_EQ(MEMWAIT_TIMED_OUT,
			  memwait_wait_any_async(waits, WORDS, &past, flags[i], &counted.op));
	}
	words[7] = 1;
	words[15] = 1;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_wait_any(waits, WORDS, &past, 0, &index));
	EXPECT_EQ(7, index);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_wait_any(waits, WORDS, NULL, 0, NULL));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL,
		  memwait_wait_any_async(waits, WORDS, NULL, 0, &counted.op));
	EXPECT_EQ(7, memwait_op_index(&counted.op));
	EXPECT_EQ(0, memwait_op_pending(&counted.op));
	EXPECT_EQ(0, memwait_op_index(NULL));
	/* The next operation, which ends immediately, has no index. */
	ASSERT_EQ(0, memwait_sem_init(&sem, 0, 1));
	EXPECT_EQ(0, memwait_sem_wait_async(&sem, &counted.op));
	EXPECT_EQ(0, memwait_op_index(&counted.op));

	EXPECT_EQ(-EINVAL, memwait_wait_any(waits, 0, NULL, 0, NULL));
	EXPECT_EQ(-EINVAL, memwait_wait_any(waits, MEMWAIT_GROUP_MAX + 1, NULL, 0, NULL));
	EXPECT_EQ(-EINVAL, memwait_wait_any(waits, 1, NULL, MEMWAIT_PRIVATE, NULL));
	EXPECT_EQ(-EINVAL, memwait_wait_any(waits, 1, NULL, 1, NULL));
	EXPECT_EQ(-EFAULT, memwait_wait_any(NULL, 1, NULL, 0, NULL));
	EXPECT_EQ(-EINVAL, memwait_wait_any_async(waits, 0, NULL, 0, &counted.op));
	EXPECT_EQ(-EINVAL, memwait_wait_any_async(waits, 1, NULL, MEMWAIT_PRIVATE, &counted.op));
	EXPECT_EQ(-EINVAL, memwait_wait_any_async(waits, 1, NULL, 0, NULL));
	EXPECT_EQ(-EFAULT, memwait_wait_any_async(NULL, 1, NULL, 0, &counted.op));
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
}

USERLIB_TEST(R16_an_operation_waits_for_one_of_many_words)
{
	static const unsigned int counts[] = { 1, 8, WORDS };
	struct counted_op counted = counted_by(&counted, self->loop);
	struct memwait_wait waits[WORDS];
	uint32_t *words = self->shared;
	struct timespec time;
	unsigned int i, last;

	expect_values(waits, words, 0);
	for (i = 0; i < 3; i++) {
		last = counts[i] - 1;
		counted.calls = 0;
		ASSERT_EQ(MEMWAIT_PENDING,
			  memwait_wait_any_async(waits, counts[i], NULL, 0, &counted.op));
		EXPECT_EQ(-EBUSY, memwait_wait_any_async(waits, 1, NULL, 0, &counted.op));
		EXPECT_EQ(1, memwait_notify(&words[last], MEMWAIT_ALL, 0));
		EXPECT_EQ(0, memwait_notify(&words[0], MEMWAIT_ALL, 0));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(MEMWAIT_OK, counted.result);
		EXPECT_EQ(last, memwait_op_index(&counted.op));

		counted.calls = 0;
		time = in_time(CLOCK_MONOTONIC, 20);
		if (memwait_wait_any_async(waits, counts[i], &time, 0, &counted.op) ==
		    MEMWAIT_PENDING) {
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			EXPECT_EQ(MEMWAIT_TIMED_OUT, counted.result);
		}
		EXPECT_EQ(0, memwait_waiters(&words[last], 0));
	}
}

/*
 * L3: the operation is cancelled before the notify, after the notify, and after the loop has read
 * its completion.
 */
USERLIB_TEST(L3_an_operation_on_many_words_is_cancelled)
{
	struct counted_op behind = counted_by(&behind, self->loop);
	struct counted_op other = counted_by(&other, self->loop);
	struct counted_op counted = counted_by(&counted, self->loop);
	struct memwait_wait waits[WORDS];
	uint32_t *words = self->shared;
	int state;

	expect_values(waits, words, 0);
	for (state = 0; state < 3; state++) {
		behind.calls = 0;
		other.calls = 0;
		/*
		 * The completion of the operation is read together with the completion of another
		 * operation, which is cancelled first.
		 */
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&words[19], 0, NULL, 0, &other.op));
		ASSERT_EQ(MEMWAIT_PENDING,
			  memwait_wait_any_async(waits, WORDS - 1, NULL, 0, &counted.op));
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&words[3], 0, NULL, 0, &behind.op));
		EXPECT_EQ(2, memwait_waiters(&words[3], 0));
		if (state)
			ASSERT_EQ(1, memwait_notify(&words[3], 1, 0));
		if (state == 2) {
			ASSERT_EQ(1, memwait_notify(&words[19], 1, 0));
			ASSERT_EQ(0, memwait_op_cancel(&other.op));
		}
		ASSERT_EQ(0, memwait_op_cancel(&counted.op));
		EXPECT_EQ(-ENOENT, memwait_op_cancel(&counted.op));
		if (state) {
			ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 1));
			EXPECT_EQ(MEMWAIT_OK, behind.result);
		} else {
			EXPECT_EQ(1, memwait_waiters(&words[3], 0));
			ASSERT_EQ(0, memwait_op_cancel(&behind.op));
		}
		if (state < 2)
			ASSERT_EQ(0, memwait_op_cancel(&other.op));
		EXPECT_EQ(0, counted.calls);
		EXPECT_EQ(0, memwait_waiters(&words[0], 0));
	}
}

struct plain_wait {
	uint32_t *word;
};

static int wait_plainly(void *arg)
{
	struct plain_wait *wait = arg;

	return memwait_wait32(wait->word, 0, NULL, 0);
}

USERLIB_TEST(R17_requeue_wakes_some_and_moves_others)
{
	static uint32_t own;
	uint32_t *words = self->shared;
	struct plain_wait wait = { words };
	struct counted_op counted[2];
	unsigned int woken = 9, moved = 9;
	struct runner runners[3];
	int i;

	memset(counted, 0, sizeof(counted));
	for (i = 0; i < 3; i++) {
		runner_start(&runners[i], wait_plainly, &wait);
		await_waiters(self->fd, words, U32_SIZE, i + 1);
	}
	for (i = 0; i < 2; i++) {
		memwait_op_init(&counted[i].op, self->loop, count_call, &counted[i]);
		ASSERT_EQ(MEMWAIT_PENDING,
			  memwait_wait32_async(words, 0, NULL, 0, &counted[i].op));
	}
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_requeue32(words, 1, &words[1], 1, 1, 0, &woken,
						       &moved));
	EXPECT_EQ(0, woken);
	EXPECT_EQ(0, moved);
	EXPECT_EQ(5, memwait_waiters(words, 0));
	ASSERT_EQ(0, memwait_requeue32(words, 0, &words[1], 1, 3, 0, &woken, &moved));
	EXPECT_EQ(1, woken);
	EXPECT_EQ(3, moved);
	EXPECT_EQ(MEMWAIT_OK, runner_join(&runners[0]));
	EXPECT_EQ(1, memwait_waiters(words, 0));
	EXPECT_EQ(3, memwait_waiters(&words[1], 0));
	ASSERT_EQ(0, memwait_requeue32(words, 0, &words[1], 0, MEMWAIT_ALL, 0, NULL, NULL));
	for (i = 1; i < 3; i++) {
		EXPECT_EQ(1, memwait_notify(&words[1], 1, 0));
		EXPECT_EQ(MEMWAIT_OK, runner_join(&runners[i]));
	}
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(1, memwait_notify(&words[1], 1, 0));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted[i].calls, 1));
		EXPECT_EQ(1 - i, memwait_waiters(&words[1], 0));
	}
	EXPECT_EQ(-EINVAL, memwait_requeue32(words, 0, &words[1], 1, 1, MEMWAIT_CLOCK_REALTIME,
					     NULL, NULL));
	EXPECT_EQ(-EINVAL, memwait_requeue32(words, 0, &words[2], 1, 1, U32_SIZE, NULL, NULL));
	EXPECT_EQ(-EINVAL, memwait_requeue64(words, 0, &words[1], 1, 1, 0, NULL, NULL));
	EXPECT_EQ(-EXDEV, memwait_requeue32(words, 0, &own, 1, 1, 0, NULL, NULL));
	EXPECT_EQ(-EFAULT, memwait_requeue32(NULL, 0, words, 1, 1, 0, NULL, NULL));
	EXPECT_EQ(-EFAULT, memwait_requeue32(words, 0, NULL, 1, 1, 0, NULL, NULL));
}

/* Each function compares as many bits as its name says, and rejects a size in the flags. */
USERLIB_TEST(R3_functions_have_the_width_in_their_names)
{
	const uint64_t value = 0x1122334455667788;
	struct timespec none = { 0 };
	uint64_t *word = self->shared;
	void *other = word + 1;

	*word = value;
	EXPECT_EQ(0, memwait_requeue8(word, (uint8_t)value, other, 0, 0, 0, NULL, NULL));
	EXPECT_EQ(0, memwait_requeue16(word, (uint16_t)value, other, 0, 0, 0, NULL, NULL));
	EXPECT_EQ(0, memwait_requeue32(word, (uint32_t)value, other, 0, 0, 0, NULL, NULL));
	EXPECT_EQ(0, memwait_requeue64(word, value, other, 0, 0, 0, NULL, NULL));
	EXPECT_EQ(MEMWAIT_TIMED_OUT,
		  memwait_notify_wait8(other, 1, word, (uint8_t)value, &none, 0, NULL));
	EXPECT_EQ(MEMWAIT_TIMED_OUT,
		  memwait_notify_wait16(other, 1, word, (uint16_t)value, &none, 0, NULL));
	EXPECT_EQ(MEMWAIT_TIMED_OUT,
		  memwait_notify_wait32(other, 1, word, (uint32_t)value, &none, 0, NULL));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_notify_wait64(other, 1, word, value, &none, 0, NULL));

	*word = value ^ 0x80;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_requeue8(word, (uint8_t)value, other, 0, 0, 0, NULL,
						      NULL));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL,
		  memwait_notify_wait8(other, 1, word, (uint8_t)value, NULL, 0, NULL));
	*word = value ^ 0x8000;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_requeue16(word, (uint16_t)value, other, 0, 0, 0, NULL,
						       NULL));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL,
		  memwait_notify_wait16(other, 1, word, (uint16_t)value, NULL, 0, NULL));
	*word = value ^ 0x80000000;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_requeue32(word, (uint32_t)value, other, 0, 0, 0, NULL,
						       NULL));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL,
		  memwait_notify_wait32(other, 1, word, (uint32_t)value, NULL, 0, NULL));
	*word = value ^ 0x8000000000000000;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_requeue64(word, value, other, 0, 0, 0, NULL, NULL));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL,
		  memwait_notify_wait64(other, 1, word, value, NULL, 0, NULL));
	EXPECT_EQ(-EINVAL, memwait_notify_wait8(other, 1, word, 0, &none, U32_SIZE, NULL));
}

/* A size in the flags affects only the alignment check, for one word and for many. */
USERLIB_TEST(R13_notifies_take_a_size)
{
	const uint32_t sizes[] = { MEMWAIT_SIZE_U8, MEMWAIT_SIZE_U16, MEMWAIT_SIZE_U32,
				   MEMWAIT_SIZE_U64 };
	char *memory = self->shared;
	unsigned int i, misaligned;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (misaligned = 0; misaligned < 8; misaligned++) {
			struct memwait_notify notify = {
				.addr = (uintptr_t)memory + misaligned,
				.count = 1,
				.flags = sizes[i],
			};
			int expected = misaligned % (1U << i) ? -EINVAL : 0;

			EXPECT_EQ(expected, memwait_notify(memory + misaligned, 1, sizes[i]));
			EXPECT_EQ(expected ? expected : 1, memwait_notify_many(&notify, 1, NULL));
		}
	}
	EXPECT_EQ(-EINVAL, memwait_notify(memory, 1, MEMWAIT_GROUP));
}

struct peer {
	uint32_t *own, *other;
	long rounds;
	unsigned int flags;
};

static int hand_over(void *arg)
{
	struct peer *peer = arg;
	unsigned int notified;
	long i;
	int ret;

	for (i = 0; i < peer->rounds; i++) {
		__atomic_store_n(peer->own, 0, __ATOMIC_RELAXED);
		__atomic_store_n(peer->other, 1, __ATOMIC_RELEASE);
		ret = memwait_notify_wait32(peer->other, 1, peer->own, 0, NULL, peer->flags,
					    &notified);
		while (ret >= 0 && !__atomic_load_n(peer->own, __ATOMIC_ACQUIRE))
			ret = memwait_wait32(peer->own, 0, NULL, peer->flags);
		if (ret < 0 || notified > 1)
			return -1;
	}
	return 0;
}

static int answer(void *arg)
{
	struct peer *peer = arg;
	int ret = 0;

	while (ret >= 0 && !__atomic_load_n(peer->own, __ATOMIC_ACQUIRE))
		ret = memwait_wait32(peer->own, 0, NULL, peer->flags);
	if (ret < 0)
		return -1;
	peer->rounds--;
	ret = hand_over(peer);
	__atomic_store_n(peer->other, 1, __ATOMIC_RELEASE);
	return memwait_notify(peer->other, 1, peer->flags) < 0 ? -1 : ret;
}

USERLIB_TEST(R17_two_threads_hand_over_to_each_other)
{
	uint32_t *words = self->shared;
	struct peer first = { &words[0], &words[1], 2000, 0 };
	struct peer second = { &words[1], &words[0], 2000, 0 };
	struct timespec past = { 0, 0 };
	struct runner runners[2];
	unsigned int notified = 9;
	int private;

	for (private = 0; private < 2; private++) {
		first.flags = private ? MEMWAIT_PRIVATE : 0;
		second.flags = first.flags;
		second.rounds = first.rounds;
		words[0] = 0;
		words[1] = 0;
		runner_start(&runners[1], answer, &second);
		runner_start(&runners[0], hand_over, &first);
		EXPECT_EQ(0, runner_join(&runners[0]));
		EXPECT_EQ(0, runner_join(&runners[1]));
	}
	words[0] = 5;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_notify_wait32(&words[1], 1, &words[0], 0, NULL, 0,
							   &notified));
	EXPECT_EQ(0, notified);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_notify_wait32(&words[1], 1, &words[0], 5, &past, 0,
							   NULL));
	EXPECT_EQ(-EINVAL, memwait_notify_wait32(&words[1], 1, &words[0], 5, &past,
						 MEMWAIT_GROUP, NULL));
	EXPECT_EQ(-EINVAL, memwait_notify_wait64(&words[1], 1, &words[1], 5, &past, 0, NULL));
	EXPECT_EQ(-EFAULT, memwait_notify_wait32(&words[1], 1, NULL, 5, &past, 0, NULL));
}

USERLIB_TEST(R13_many_words_are_notified_in_one_call)
{
	struct memwait_notify notifies[WORDS];
	struct counted_op counted[WORDS];
	uint32_t *words = self->shared;
	unsigned int woken[WORDS];
	int i;

	memset(counted, 0, sizeof(counted));
	memset(notifies, 0, sizeof(notifies));
	for (i = 0; i < WORDS; i++) {
		notifies[i].addr = (uintptr_t)&words[i];
		notifies[i].count = MEMWAIT_ALL;
		memwait_op_init(&counted[i].op, self->loop, count_call, &counted[i]);
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&words[i / 2 * 2], 0, NULL, 0,
								&counted[i].op));
	}
	EXPECT_EQ(WORDS, memwait_notify_many(notifies, WORDS, woken));
	for (i = 0; i < WORDS; i++)
		EXPECT_EQ(i % 2 ? 0 : 2, woken[i]);
	for (i = 0; i < WORDS; i++)
		ASSERT_EQ(0, dispatch_until(self->loop, &counted[i].calls, 1));
	EXPECT_EQ(WORDS, memwait_notify_many(notifies, WORDS, NULL));
	EXPECT_EQ(0, memwait_notify_many(NULL, 0, NULL));
	EXPECT_EQ(-EFAULT, memwait_notify_many(NULL, 1, NULL));
	notifies[3].flags = MEMWAIT_GROUP;
	EXPECT_EQ(3, memwait_notify_many(notifies, WORDS, NULL));
	EXPECT_EQ(-EINVAL, memwait_notify_many(notifies + 3, WORDS - 3, NULL));
}

TEST_HARNESS_MAIN
