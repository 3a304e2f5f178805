// SPDX-License-Identifier: GPL-2.0
/* Word functions: the timeouts and error messages that they add to the ioctls. */
#include "userlib_test.h"

USERLIB_TEST(R3_every_size_compares_on_its_bits)
{
	uint64_t *word = self->shared;
	struct timespec none = { 0, 0 };

	*word = 0x1122334455667788;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_wait8(word, 0x87, NULL, 0));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_wait16(word, 0x8877, NULL, 0));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_wait32(word, 0x88776655, NULL, 0));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_wait64(word, 0x8877665544332211, NULL, 0));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait8(word, 0x88, &none, 0));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait16(word, 0x7788, &none, 0));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait32(word, 0x55667788, &none, 0));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait64(word, 0x1122334455667788, &none, 0));
}

USERLIB_TEST(errors_have_messages)
{
	static const int of_the_device[] = { ENOENT, ENODEV, ENXIO, EACCES, EPERM, ENOTTY };
	static const int of_memwait[] = { ENOSYS, ENOSPC, EMFILE, EMSGSIZE, EPIPE, ETIMEDOUT };
	size_t i;
	int err;

	for (i = 0; i < ARRAY_SIZE(of_the_device); i++) {
		err = of_the_device[i];
		EXPECT_NE(NULL, strstr(memwait_strerror(err), "/dev/memwait"));
		EXPECT_STREQ(memwait_strerror(err), memwait_strerror(-err));
	}
	for (i = 0; i < ARRAY_SIZE(of_memwait); i++)
		EXPECT_STRNE(strerror(of_memwait[i]), memwait_strerror(of_memwait[i]));
	EXPECT_STREQ(strerror(EOWNERDEAD), memwait_strerror(EOWNERDEAD));
	for (err = -200; err < 200; err++)
		EXPECT_LT(0, strlen(memwait_strerror(err)));
	EXPECT_NE(NULL, memwait_strerror(INT_MIN));
	EXPECT_EQ(MEMWAIT_VERSION, memwait_version());
	EXPECT_EQ(0x10000, MEMWAIT_VERSION & ~0xffff);
}

USERLIB_TEST(outcomes_have_messages)
{
	char words[100];
	int result;

	EXPECT_STREQ(memwait_strerror(ETIMEDOUT), memwait_stroutcome(MEMWAIT_TIMED_OUT));
	EXPECT_STREQ(memwait_strerror(EINPROGRESS), memwait_stroutcome(MEMWAIT_PENDING));
	for (result = MEMWAIT_OK; result <= MEMWAIT_OWNER_DIED; result++) {
		EXPECT_STRNE(memwait_strerror(result), memwait_stroutcome(result));
		EXPECT_STRNE(memwait_stroutcome(result + 1), memwait_stroutcome(result));
	}
	for (result = -200; result < 0; result++) {
		snprintf(words, sizeof(words), "%s", memwait_strerror(result));
		EXPECT_STREQ(words, memwait_stroutcome(result));
	}
	EXPECT_STREQ(memwait_stroutcome(INT_MAX), memwait_stroutcome(MEMWAIT_OWNER_DIED + 1));
}

/* An operation that stores the text for its result. */
struct text_op {
	memwait_op_t op;
	char words[100];
	int result;
};

static void store_words(memwait_op_t *op, int result, void *data)
{
	struct text_op *text = data;

	text->result = result;
	snprintf(text->words, sizeof(text->words), "%s", memwait_op_strerror(op, result));
}

/* Begins an operation, makes it end, and checks the text in its callback and later. */
#define EXPECT_WORDS(pending_, begin_, end_, result_, words_)				\
do {											\
	/* On a slow machine the operation's deadline may have passed. */		\
	while ((begin_) != (pending_))							\
		;									\
	EXPECT_LE(0, end_);								\
	EXPECT_EQ(0, memwait_loop_run(self->loop, NULL, 0));				\
	EXPECT_EQ(result_, text.result);						\
	EXPECT_STREQ(words_, text.words);						\
	EXPECT_STREQ(words_, memwait_op_strerror(&text.op, text.result));		\
} while (0)

static int lock_soon(memwait_mutex_t *mutex, memwait_op_t *op)
{
	struct timespec soon = in_time(CLOCK_MONOTONIC, 5);

	return memwait_mutex_clocklock_async(mutex, CLOCK_MONOTONIC, &soon, op);
}

USERLIB_TEST(results_of_callbacks_have_messages)
{
	const char *ok = memwait_stroutcome(MEMWAIT_OK);
	const char *late = memwait_stroutcome(MEMWAIT_TIMED_OUT);
	const struct timespec soon = { .tv_nsec = 5000000 };
	memwait_mutex_t *mutex = self->shared;
	uint32_t *word = (uint32_t *)self->shared + 100;
	const struct memwait_wait group = {
		.addr = (uintptr_t)word,
		.flags = MEMWAIT_SIZE_U32,
	};
	struct text_op text;

	ASSERT_EQ(0, memwait_op_init(&text.op, self->loop, store_words, &text));
	EXPECT_STREQ(memwait_strerror(EPERM), memwait_op_strerror(NULL, EPERM));
	EXPECT_STREQ(memwait_strerror(EPERM), memwait_op_strerror(&text.op, EPERM));

	EXPECT_WORDS(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &text.op),
		     memwait_notify(word, 1, 0), MEMWAIT_OK, ok);
	EXPECT_WORDS(MEMWAIT_PENDING,
		     memwait_wait32_async(word, 0, &soon, MEMWAIT_RELATIVE, &text.op), 0,
		     MEMWAIT_TIMED_OUT, late);
	EXPECT_WORDS(MEMWAIT_PENDING,
		     memwait_wait_any_async(&group, 1, &soon, MEMWAIT_RELATIVE, &text.op), 0,
		     MEMWAIT_TIMED_OUT, late);
	EXPECT_WORDS(MEMWAIT_PENDING, memwait_watch32(word, 0, &soon, MEMWAIT_RELATIVE, &text.op),
		     0, MEMWAIT_TIMED_OUT, late);

	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	EXPECT_WORDS(EINPROGRESS, lock_soon(mutex, &text.op), 0, ETIMEDOUT,
		     memwait_strerror(ETIMEDOUT));
	EXPECT_WORDS(EINPROGRESS, memwait_mutex_lock_async(mutex, &text.op),
		     memwait_mutex_unlock(mutex), 0, memwait_strerror(0));
	ASSERT_EQ(0, memwait_mutex_unlock(mutex));
}

/* One of the two participants gets SERIAL_THREAD, whose text must not be the text of EPERM. */
USERLIB_TEST(the_serial_thread_of_a_barrier_has_a_message)
{
	memwait_barrier_t *barrier = self->shared;
	struct text_op text[2];
	int i, ret, serial;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, memwait_op_init(&text[i].op, self->loop, store_words, &text[i]));
		ret = memwait_barrier_wait_async(barrier, &text[i].op);
		if (ret != EINPROGRESS)
			store_words(&text[i].op, ret, &text[i]);
	}
	ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	serial = text[1].result == MEMWAIT_BARRIER_SERIAL_THREAD;
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, text[serial].result);
	EXPECT_NE(NULL, strstr(text[serial].words, "serial"));
	EXPECT_EQ(0, text[!serial].result);
	EXPECT_STREQ(memwait_strerror(0), text[!serial].words);
	EXPECT_EQ(0, memwait_barrier_destroy(barrier));
}

/* Operations on barriers and channels return the same error number, but the texts differ. */
USERLIB_TEST(EPIPE_of_a_barrier_is_not_that_of_a_channel)
{
	memwait_barrier_t *barrier = self->shared;
	memwait_channel_t *channel = (memwait_channel_t *)(self->shared + 1024);
	struct text_op text;
	char item;

	ASSERT_EQ(0, memwait_op_init(&text.op, self->loop, store_words, &text));
	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	EXPECT_WORDS(EINPROGRESS, memwait_barrier_wait_async(barrier, &text.op),
		     memwait_barrier_abort(barrier), EPIPE, "The barrier was aborted or reset");
	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE - 1024, 0, 1, 1));
	EXPECT_WORDS(EINPROGRESS, memwait_channel_recv_async(channel, &item, 1, &text.op),
		     memwait_channel_close(channel), EPIPE, "The channel is closed");
}

/* A relative timeout may be in the past or infinite, and starts again with each call. */
USERLIB_TEST(R4_extreme_timeouts)
{
	static const struct timespec past[] = { { 0, 0 }, { -1, 0 }, { -TIME_MAX - 1, 999999999 } };
	struct timespec tiny = { 0, 1 }, huge = { TIME_MAX, 999999999 };
	uint32_t *word = self->shared;
	struct counted_op counted = { 0 };
	uint64_t begin;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(past); i++) {
		EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait32(word, 0, &past[i], 0));
		EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait32(word, 0, &past[i], MEMWAIT_RELATIVE));
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_wait32(word, 1, &past[i], 0));
	}
	begin = now_ns(CLOCK_MONOTONIC);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait32(word, 0, &tiny, MEMWAIT_RELATIVE));
	EXPECT_LT(begin, now_ns(CLOCK_MONOTONIC));
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, &huge, MEMWAIT_RELATIVE,
							&counted.op));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, &huge, 0, &counted.op));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
}

struct word_wait {
	void *word;
	int size;
	unsigned int flags;
};

static int wait_sized(void *arg)
{
	struct word_wait *wait = arg;

	switch (wait->size) {
	case 1:
		return memwait_wait8(wait->word, 0, NULL, wait->flags);
	case 2:
		return memwait_wait16(wait->word, 0, NULL, wait->flags);
	case 4:
		return memwait_wait32(wait->word, 0, NULL, wait->flags);
	default:
		return memwait_wait64(wait->word, 0, NULL, wait->flags);
	}
}

static int arm_sized(struct word_wait *wait, memwait_op_t *op)
{
	switch (wait->size) {
	case 1:
		return memwait_wait8_async(wait->word, 0, NULL, wait->flags, op);
	case 2:
		return memwait_wait16_async(wait->word, 0, NULL, wait->flags, op);
	case 4:
		return memwait_wait32_async(wait->word, 0, NULL, wait->flags, op);
	default:
		return memwait_wait64_async(wait->word, 0, NULL, wait->flags, op);
	}
}

USERLIB_TEST(R12_threads_and_operations_of_all_sizes_are_in_one_queue)
{
	static const unsigned int flags[] = { 0, MEMWAIT_PRIVATE };
	struct counted_op counted[4];
	struct word_wait waits[8];
	struct runner runners[4];
	int i, private;

	for (private = 0; private < 2; private++) {
		memset(counted, 0, sizeof(counted));
		for (i = 0; i < 8; i++) {
			waits[i] = (struct word_wait){
				self->shared, 1 << i / 2, flags[private],
			};
			if (i % 2) {
				memwait_op_init(&counted[i / 2].op, self->loop, count_call,
						&counted[i / 2]);
				ASSERT_EQ(MEMWAIT_PENDING,
					  arm_sized(&waits[i], &counted[i / 2].op));
			} else {
				runner_start(&runners[i / 2], wait_sized, &waits[i]);
			}
			spin_until(memwait_waiters(self->shared, flags[private]) == i + 1);
		}
		for (i = 0; i < 8; i++) {
			ASSERT_EQ(1, memwait_notify(self->shared, 1, flags[private]));
			if (i % 2) {
				ASSERT_EQ(0, dispatch_until(self->loop, &counted[i / 2].calls, 1));
				EXPECT_EQ(MEMWAIT_OK, counted[i / 2].result);
			} else {
				EXPECT_EQ(MEMWAIT_OK, runner_join(&runners[i / 2]));
			}
			EXPECT_EQ(7 - i, memwait_waiters(self->shared, flags[private]));
		}
		EXPECT_EQ(0, memwait_notify(self->shared, MEMWAIT_ALL, flags[private]));
	}
}

USERLIB_TEST(R4_timeouts_of_both_clocks_and_relative_ones)
{
	static const unsigned int flags[] = { 0, MEMWAIT_CLOCK_REALTIME, MEMWAIT_RELATIVE };
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	struct timespec time;
	uint64_t start;
	int i;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (i = 0; i < 3; i++) {
		start = now_ns(CLOCK_MONOTONIC);
		time = i < 2 ? in_time(clocks[i], 20) : (struct timespec){ 0, 20000000 };
		EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait32(word, 0, &time, flags[i]));
		EXPECT_LE(19 * NSEC_PER_MSEC, now_ns(CLOCK_MONOTONIC) - start);
		start = now_ns(CLOCK_MONOTONIC);
		time = i < 2 ? in_time(clocks[i], 50) : (struct timespec){ 0, 50000000 };
		if (memwait_wait32_async(word, 0, &time, flags[i], &counted.op) ==
		    MEMWAIT_PENDING) {
			counted.calls = 0;
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			EXPECT_EQ(MEMWAIT_TIMED_OUT, counted.result);
		}
		EXPECT_LE(49 * NSEC_PER_MSEC, now_ns(CLOCK_MONOTONIC) - start);
		/* The time is in the past, but the word is compared first. */
		time = (struct timespec){ -1, 0 };
		EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait32(word, 0, &time, flags[i]));
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_wait32(word, 1, &time, flags[i]));
		EXPECT_EQ(MEMWAIT_TIMED_OUT,
			  memwait_wait32_async(word, 0, &time, flags[i], &counted.op));
		/* This time is not valid. */
		time = (struct timespec){ 0, 1000000000 };
		EXPECT_EQ(-EINVAL, memwait_wait32(word, 0, &time, flags[i]));
		time = (struct timespec){ 0, -1 };
		EXPECT_EQ(-EINVAL, memwait_wait32(word, 0, &time, flags[i]));
	}
	EXPECT_EQ(-EINVAL, memwait_wait32(word, 0, NULL,
					  MEMWAIT_RELATIVE | MEMWAIT_CLOCK_REALTIME));
}

struct timed {
	uint32_t *word;
	struct timespec time;
	unsigned int flags;
};

static int wait_timed(void *arg)
{
	struct timed *timed = arg;

	return memwait_wait32(timed->word, 0, &timed->time, timed->flags);
}

USERLIB_TEST(R4_times_that_overflow_are_never)
{
	static const unsigned int flags[] = { 0, MEMWAIT_CLOCK_REALTIME, MEMWAIT_RELATIVE };
	/*
	 * The last value that fits into 64 bits of nanoseconds, the first value that would wrap
	 * around, and the largest value.
	 */
	static const int64_t seconds[] = { 18446744072, 18446744074, INT64_MAX };
	struct timed timed = { .word = self->shared };
	struct runner runner;
	int i, j;

	for (i = 0; i < 3; i++) {
		for (j = 0; j < 3; j++) {
			timed.time = (struct timespec){ seconds[j], 999999999 };
			timed.flags = flags[i];
			runner_start(&runner, wait_timed, &timed);
			await_waiters(self->fd, timed.word, U32_SIZE, 1);
			EXPECT_EQ(1, memwait_notify(timed.word, 1, 0));
			EXPECT_EQ(MEMWAIT_OK, runner_join(&runner));
		}
	}
}

static int wait_relative(void *arg)
{
	struct timed *timed = arg;
	uint64_t start = now_ns(CLOCK_MONOTONIC);
	int ret = wait_timed(arg);

	/*
	 * A timeout of tv_nsec nanoseconds, counted from the start of this call, must not end
	 * early.
	 */
	if (ret == MEMWAIT_TIMED_OUT &&
	    now_ns(CLOCK_MONOTONIC) - start < (uint64_t)timed->time.tv_nsec)
		return -ETIME;
	return ret;
}

/*
 * A restarted wait retains its deadline, so that repeated signals do not prolong it. After a wait
 * has returned because of a signal, the timeout of the next call starts again.
 */
USERLIB_TEST(R4_a_relative_time_and_signals)
{
	struct timed timed = {
		.word = self->shared, .time = { 0, 200000000 }, .flags = MEMWAIT_RELATIVE,
	};
	struct sigaction action = { .sa_handler = ignore_signal, .sa_flags = SA_RESTART };
	struct runner runner;
	int signals;

	sigaction(SIGUSR1, &action, NULL);
	/* Repeat if this thread did not run in the meantime. */
	do {
		signals = 0;
		runner_start(&runner, wait_relative, &timed);
		while (!runner_is_done(&runner)) {
			pthread_kill(runner.thread, SIGUSR1);
			signals++;
			usleep(5000);
		}
		EXPECT_EQ(MEMWAIT_TIMED_OUT, runner_join(&runner));
	} while (signals < 2);

	action.sa_flags = 0;
	sigaction(SIGUSR1, &action, NULL);
	do {
		runner_start(&runner, wait_relative, &timed);
		runner_await_asleep(&runner);
		pthread_kill(runner.thread, SIGUSR1);
	} while (runner_join(&runner) == MEMWAIT_TIMED_OUT);
	EXPECT_EQ(-EINTR, runner.result);
	runner_start(&runner, wait_relative, &timed);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, runner_join(&runner));
}

USERLIB_TEST(R2_bad_input_and_signals)
{
	struct sigaction action = { .sa_handler = ignore_signal };
	struct word_wait wait = { .word = self->shared, .size = 4 };
	char *byte = self->shared;
	struct runner runner;

	EXPECT_EQ(0, memwait_wait8(byte + 1, 1, NULL, 0) - MEMWAIT_NOT_EQUAL);
	EXPECT_EQ(-EINVAL, memwait_wait16(byte + 1, 1, NULL, 0));
	EXPECT_EQ(-EINVAL, memwait_wait32(byte + 2, 1, NULL, 0));
	EXPECT_EQ(-EINVAL, memwait_wait64(byte + 4, 1, NULL, 0));
	EXPECT_EQ(-EINVAL, memwait_wait32(byte, 1, NULL, 1));
	EXPECT_EQ(-EINVAL, memwait_wait32(byte, 1, NULL, 0x20000));
	EXPECT_EQ(-EINVAL, memwait_notify(byte, 1, MEMWAIT_CLOCK_REALTIME));
	EXPECT_EQ(-EINVAL, memwait_waiters(byte, MEMWAIT_CLOCK_REALTIME));
	EXPECT_EQ(-EFAULT, memwait_wait32(NULL, 1, NULL, 0));
	EXPECT_EQ(-EFAULT, memwait_notify(NULL, 1, 0));
	EXPECT_EQ(0, memwait_notify(NULL, 1, MEMWAIT_PRIVATE));

	sigaction(SIGUSR1, &action, NULL);
	runner_start(&runner, wait_sized, &wait);
	await_waiters(self->fd, byte, U32_SIZE, 1);
	pthread_kill(runner.thread, SIGUSR1);
	EXPECT_EQ(-EINTR, runner_join(&runner));
}

/*
 * Arguments that a thread, an operation and a requeue of each width reject before they have any
 * effect.
 */
#define EXPECT_REFUSALS(bits)								\
do {											\
	const struct timespec bad = { 0, 1000000000 };					\
	char *apart = (char *)word + (bits) / 16;					\
	unsigned int flags, woken = 7;							\
											\
	for (flags = 1; flags; flags <<= 1) {						\
		if (flags & known)							\
			continue;							\
		EXPECT_EQ(-EINVAL, memwait_wait##bits(word, 0, NULL, flags));		\
		EXPECT_EQ(-EINVAL, memwait_wait##bits##_async(word, 0, NULL, flags, &op)); \
		EXPECT_EQ(-EINVAL, memwait_watch##bits(word, 0, NULL, flags, &op));	\
		EXPECT_EQ(-EINVAL, memwait_notify_wait##bits(word, 1, word, 0, NULL, flags, \
							     &woken));			\
		EXPECT_EQ(-EINVAL, memwait_requeue##bits(word, 0, word, 1, 1, flags, &woken, \
							 NULL));			\
	}										\
	EXPECT_EQ(-EINVAL, memwait_watch##bits(word, 0, NULL, MEMWAIT_OWNED, &op));	\
	EXPECT_EQ(-EINVAL, memwait_requeue##bits(word, 0, word, 1, 1, MEMWAIT_RELATIVE, NULL, \
						 NULL));				\
	EXPECT_EQ(-EINVAL, memwait_wait##bits(word, 0, &bad, 0));			\
	EXPECT_EQ(-EINVAL, memwait_wait##bits##_async(word, 0, &bad, 0, &op));		\
	EXPECT_EQ(-EINVAL, memwait_watch##bits(word, 0, &bad, 0, &op));			\
	EXPECT_EQ(-EINVAL, memwait_notify_wait##bits(word, 1, word, 0, &bad, 0, &woken)); \
	EXPECT_EQ(-EFAULT, memwait_wait##bits(NULL, 0, NULL, 0));			\
	EXPECT_EQ(-EFAULT, memwait_wait##bits##_async(NULL, 0, NULL, 0, &op));		\
	EXPECT_EQ(-EFAULT, memwait_watch##bits(NULL, 0, NULL, 0, &op));			\
	EXPECT_EQ(-EFAULT, memwait_requeue##bits(NULL, 0, word, 1, 1, 0, NULL, NULL));	\
	EXPECT_EQ(-EINVAL, memwait_wait##bits##_async(word, 0, NULL, 0, NULL));		\
	EXPECT_EQ(-EINVAL, memwait_wait##bits##_async(word, 0, NULL, 0, &zeroed));	\
	EXPECT_EQ(-EINVAL, memwait_watch##bits(word, 0, NULL, 0, NULL));		\
	EXPECT_EQ(-EINVAL, memwait_watch##bits(word, 0, NULL, 0, &zeroed));		\
	if ((bits) > 8) {								\
		EXPECT_EQ(-EINVAL, memwait_wait##bits(apart, 0, NULL, 0));		\
		EXPECT_EQ(-EINVAL, memwait_wait##bits##_async(apart, 0, NULL, 0, &op));	\
		EXPECT_EQ(-EINVAL, memwait_watch##bits(apart, 0, NULL, 0, &op));	\
		EXPECT_EQ(-EINVAL, memwait_notify_wait##bits(word, 1, apart, 0, NULL, 0, &woken)); \
		EXPECT_EQ(-EINVAL, memwait_requeue##bits(apart, 0, word, 1, 1, 0, &woken, NULL)); \
		EXPECT_EQ(-EINVAL, memwait_requeue##bits(word, 0, apart, 1, 1, 0, &woken, NULL)); \
	}										\
	EXPECT_EQ(1, memwait_waiters(word, 0));						\
	EXPECT_EQ(0, memwait_op_pending(&op));						\
} while (0)

USERLIB_TEST(R2_each_width_refuses_the_same)
{
	const unsigned int known = MEMWAIT_PRIVATE | MEMWAIT_CLOCK_REALTIME | MEMWAIT_RELATIVE |
				   MEMWAIT_OWNED;
	struct counted_op waits = { 0 };
	memwait_op_t op, zeroed = { 0 };
	uint64_t *word = self->shared;

	ASSERT_EQ(0, memwait_op_init(&op, self->loop, count_call, NULL));
	/* A pending wait, which must be neither woken nor moved. */
	ASSERT_EQ(0, memwait_op_init(&waits.op, self->loop, count_call, &waits));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &waits.op));
	EXPECT_REFUSALS(8);
	EXPECT_REFUSALS(16);
	EXPECT_REFUSALS(32);
	if (sizeof(void *) == 8)
		EXPECT_REFUSALS(64);
	EXPECT_EQ(0, memwait_op_cancel(&waits.op));
	EXPECT_EQ(0, waits.calls);
}

USERLIB_TEST(R8_processes_share_a_word)
{
	struct counted_op counted = { 0 };
	uint32_t *word = self->shared;
	pid_t child;

	child = run_in_child(memwait_wait32(word, 0, NULL, 0));
	await_waiters(self->fd, word, U32_SIZE, 1);
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &counted.op));
	EXPECT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
}

TEST_HARNESS_MAIN
