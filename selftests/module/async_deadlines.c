// SPDX-License-Identifier: GPL-2.0
/* R4, R30: deadlines of async waits. */
#include "several_test.h"

MEMWAIT_TEST(R4_async_timeouts_are_never_early)
{
	struct memwait_completion done[64];
	uint64_t deadlines[64], ms;
	int i, n, ret, seen = 0;

	for (i = 0; i < 64; i++) {
		clockid_t clock = i % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC;

		/* The deadlines are not in the order of arming. */
		ms = 200 + i * 37 % 64;
		do {
			deadlines[i] = now_ns(clock) + ms * NSEC_PER_MSEC;
			ret = mw_async(self->fd, self->word, 0, deadlines[i],
				       U32 | (i % 2 ? MEMWAIT_CLOCK_REALTIME : 0), i, NULL);
			ms *= 2;
		} while (ret == MEMWAIT_TIMED_OUT);
		ASSERT_EQ(MEMWAIT_PENDING, ret);
	}
	while (seen < 64) {
		n = await_completions(self->fd, done, 64);
		ASSERT_LT(0, n);
		for (i = 0; i < n; i++) {
			clockid_t clock = done[i].user_data % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC;

			EXPECT_EQ(MEMWAIT_TIMED_OUT, done[i].result);
			EXPECT_LE(deadlines[done[i].user_data], now_ns(clock));
		}
		seen += n;
	}
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

MEMWAIT_TEST(R4_async_deadlines_come_in_order)
{
	struct memwait_completion done;
	uint64_t ms = 500, base, id;
	int i, pending, cancelled;

	/* Retry with later deadlines until all waits are armed before the first deadline passes. */
	do {
		ms *= 2;
		renew(&self->fd);
		base = in_ms(ms);
		pending = 0;
		for (i = 0; i < 50; i++)
			pending += mw_async(self->fd, self->word + i % 5, 0, base + i * 29 % 50,
					    U32, i * 29 % 50, NULL) == MEMWAIT_PENDING;
		/* A cancelled wait and a wait without a deadline must not affect the others. */
		pending += mw_async(self->fd, self->word, 0, base - 1, U32, 99, &id) ==
			   MEMWAIT_PENDING;
		cancelled = !mw_cancel(self->fd, id);
	} while (in_ms(0) >= base - 1);
	ASSERT_EQ(51, pending);
	ASSERT_EQ(1, cancelled);
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 98, &id));
	for (i = 0; i < 50; i++) {
		ASSERT_EQ(1, await_completions(self->fd, &done, 1));
		EXPECT_EQ(i, done.user_data);
	}
	EXPECT_EQ(0, mw_cancel(self->fd, id));
}

MEMWAIT_TEST(R4_an_earlier_deadline_armed_later_fires_first)
{
	struct memwait_completion done;
	uint64_t far, id;

	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, in_ms(3600000), U32, 1,
					    &far));
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 20, 2, &id));
	ASSERT_EQ(1, await_completions(self->fd, &done, 1));
	EXPECT_EQ(2, done.user_data);
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 20, 3, &id));
	ASSERT_EQ(1, await_completions(self->fd, &done, 1));
	EXPECT_EQ(3, done.user_data);
	EXPECT_EQ(0, mw_cancel(self->fd, far));
}

MEMWAIT_TEST(R4_the_next_deadline_fires_after_the_earliest_was_notified)
{
	struct memwait_completion done[2];
	uint64_t ms = 500, deadline;
	int woken, n;

	/* Retry with later deadlines until the first wait is notified before its deadline. */
	do {
		ms *= 2;
		renew(&self->fd);
		deadline = in_ms(ms);
		mw_async(self->fd, self->word, 0, deadline, U32, 1, NULL);
		mw_async(self->fd, self->word, 0, deadline + 100 * NSEC_PER_MSEC, U32, 2, NULL);
		woken = mw_notify(self->fd, self->word, 1, U32);
		n = mw_read(self->fd, done, 2);
	} while (in_ms(0) >= deadline);
	ASSERT_EQ(1, woken);
	ASSERT_EQ(1, n);
	ASSERT_EQ(1, done[0].user_data);
	ASSERT_EQ(1, await_completions(self->fd, done, 2));
	EXPECT_EQ(2, done[0].user_data);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done[0].result);
}

/* read(2) ends as many overdue waits as fit in its buffer. The next read ends the others. */
MEMWAIT_TEST(R30_deadlines_are_ended_by_their_reader)
{
	struct pollfd pfd = { .events = POLLIN };
	struct memwait_completion done[5];
	uint64_t ms, deadline;
	int i, armed = 0, n;

	/*
	 * The waits are armed in the order of their deadlines. Each wait must be armed before its
	 * deadline passes.
	 */
	for (ms = 5; armed < 5; ms *= 2) {
		ASSERT_TRUE(renew(&self->fd));
		deadline = in_ms(ms);
		for (armed = 0; armed < 5; armed++) {
			if (mw_async(self->fd, self->word, 0, deadline + armed, U32, armed, NULL) !=
			    MEMWAIT_PENDING)
				break;
		}
	}
	pfd.fd = self->fd;
	ASSERT_EQ(1, poll(&pfd, 1, -1));
	usleep(20000);		/* all deadlines pass; a reader may take longer to get here */
	EXPECT_EQ(5, mw_fdinfo(self->fd, "pending"));
	EXPECT_EQ(0, mw_fdinfo(self->fd, "completed"));
	for (i = 0; i < 5; i += n) {
		ASSERT_EQ(1, poll(&pfd, 1, -1));
		n = mw_read(self->fd, done, 2);
		ASSERT_LT(0, n);
		ASSERT_GE(2, n);
		EXPECT_EQ(i, done[0].user_data);
		EXPECT_EQ(MEMWAIT_TIMED_OUT, done[0].result);
		EXPECT_EQ(5 - i - n, mw_fdinfo(self->fd, "pending"));
		EXPECT_EQ(0, mw_fdinfo(self->fd, "completed"));
	}
	EXPECT_EQ(0, poll(&pfd, 1, 0));
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, done, 5));
}

/* An overdue wait, even if it was not read, takes no notify from the waiters behind it. */
MEMWAIT_TEST(R30_a_notify_passes_over_overdue_waits)
{
	int fd = memwait_open(O_NONBLOCK), group;
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct memwait_completion done;
	struct memwait_wait waits[2];
	uint64_t deadline;
	int ret;

	members(waits, self->word, 2);
	for (group = 0; group < 2; group++) {
		do {
			deadline = in_ms(5);
			ret = group ? mw_group(fd, waits, 2, deadline, 0, 7, NULL) :
				      mw_async(fd, self->word, 0, deadline, U32, 7, NULL);
		} while (ret == MEMWAIT_TIMED_OUT);
		ASSERT_EQ(MEMWAIT_PENDING, ret);
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 8));
		ASSERT_EQ(1, poll(&pfd, 1, -1));
		EXPECT_EQ(2, mw_waiters(self->fd, self->word, U32));
		EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		EXPECT_COMPLETION(self->fd, 8, MEMWAIT_OK);
		ASSERT_EQ(1, mw_read(fd, &done, 1));
		EXPECT_EQ(7, done.user_data);
		EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
		EXPECT_EQ(0, done.count);
		EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
		EXPECT_EQ(0, mw_waiters(self->fd, self->word + 1, U32));
	}
	close(fd);
}

MEMWAIT_TEST(R4_equal_async_deadlines_all_expire)
{
	struct memwait_completion done[16];
	uint64_t deadline, ms = 500;
	unsigned char seen[100] = { 0 };
	int i, n, pending, count = 0;

	/* Retry with a later deadline until all waits are armed before the deadline passes. */
	do {
		ms *= 2;
		renew(&self->fd);
		deadline = in_ms(ms);
		pending = 0;
		for (i = 0; i < 100; i++)
			pending += mw_async(self->fd, self->word + i, 0, deadline, U32, i, NULL) ==
				   MEMWAIT_PENDING;
	} while (in_ms(0) >= deadline);
	ASSERT_EQ(100, pending);
	while (count < 100) {
		n = await_completions(self->fd, done, 16);
		ASSERT_LT(0, n);
		ASSERT_LE(deadline, now_ns(CLOCK_MONOTONIC));
		for (i = 0; i < n; i++) {
			ASSERT_EQ(MEMWAIT_TIMED_OUT, done[i].result);
			ASSERT_EQ(0, seen[done[i].user_data]++);
		}
		count += n;
	}
	EXPECT_FALSE(mw_readable(self->fd));
}

/* The deadlines are so close together that the kernel might expire them together. */
#define CLOSE_WAITS	1000
#define APART_NS	50000

MEMWAIT_TEST(R4_async_deadlines_close_together_are_not_early)
{
	struct memwait_completion done[64];
	uint64_t first, time, least = ~0ULL;
	int round, i, n, got, armed, early = 0;

	for (round = 0; round < 5; round++) {
		first = in_ms(100 << round);
		armed = 0;
		for (i = 0; i < CLOSE_WAITS; i++)
			armed += mw_async(self->fd, self->shared, 0, first + i * APART_NS, U32,
					  first + i * APART_NS, NULL) == MEMWAIT_PENDING;
		for (got = 0; got < armed; got += n > 0 ? n : 0) {
			n = mw_read(self->fd, done, 64);
			time = now_ns(CLOCK_MONOTONIC);
			ASSERT_TRUE(n > 0 || n == -EAGAIN);
			for (i = 0; i < n; i++) {
				ASSERT_EQ(MEMWAIT_TIMED_OUT, done[i].result);
				if (time < done[i].user_data)
					early++;
				else if (time - done[i].user_data < least)
					least = time - done[i].user_data;
			}
		}
	}
	TH_LOG("%d of %d timeouts early, the others late by %ld ns or more", early, 5 * CLOSE_WAITS,
	       (long)least);
	EXPECT_EQ(0, early);
}

MEMWAIT_TEST(R4_far_async_deadlines_do_not_expire)
{
	static const uint64_t far[] = { INT64_MAX - 1, INT64_MAX, 1ULL << 63, (1ULL << 63) + 1,
					FOREVER - 1, FOREVER };
	struct memwait_completion done[2];
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(far); i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, far[i / 2],
						    U32 | (i % 2 ? MEMWAIT_CLOCK_REALTIME : 0), i,
						    NULL));
	/* Far deadlines do not delay a near deadline, and do not expire with it. */
	EXPECT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 20, 99, NULL));
	EXPECT_EQ(1, await_completions(self->fd, done, 2));
	EXPECT_EQ(99, done[0].user_data);
	EXPECT_EQ((int)i, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R4_async_realtime_deadlines_follow_a_clock_step_back)
{
	struct memwait_completion done;
	uint64_t ms = 25, start, deadline;
	struct pollfd pfd;
	struct timespec ts;

	/* Retry with a later deadline until the clock is stepped before the deadline passes. */
	for (;;) {
		ms *= 2;
		ASSERT_TRUE(renew(&self->fd));
		start = now_ns(CLOCK_MONOTONIC);
		deadline = now_ns(CLOCK_REALTIME) + ms * NSEC_PER_MSEC;
		mw_async(self->fd, self->word, 0, deadline, U32 | MEMWAIT_CLOCK_REALTIME, 1, NULL);
		clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_sec -= 3600;
		if (clock_settime(CLOCK_REALTIME, &ts)) {
			mw_notify(self->fd, self->word, 1, U32);
			SKIP(return, "the clock cannot be set");
		}
		if (now_ns(CLOCK_MONOTONIC) < start + ms * NSEC_PER_MSEC)
			break;
		ts.tv_sec += 3600;
		clock_settime(CLOCK_REALTIME, &ts);
	}
	pfd = (struct pollfd) { .fd = self->fd, .events = POLLIN };
	EXPECT_EQ(0, poll(&pfd, 1, 4 * ms));
	ts.tv_sec += 3600;
	clock_settime(CLOCK_REALTIME, &ts);
	EXPECT_EQ(1, await_completions(self->fd, &done, 1));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
	EXPECT_LE(deadline, now_ns(CLOCK_REALTIME));
}

#define BUSY	16

/*
 * This context always has more completed waits than one read returns. A deadline must still be
 * detected.
 */
MEMWAIT_TEST(R19_continuous_completions_delay_no_deadline)
{
	struct memwait_completion done[BUSY];
	bool is_over = false;
	int round, i;

	for (i = 0; i < 2 * BUSY; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 0));
	ASSERT_EQ(2 * BUSY, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word + 1, 1, 1, NULL));
	for (round = 0; round < 1000 && !is_over; round++) {
		usleep(100);
		ASSERT_EQ(BUSY, mw_read(self->fd, done, BUSY));
		for (i = 0; i < BUSY; i++) {
			is_over |= done[i].user_data == 1;
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 0));
		}
		ASSERT_EQ(BUSY, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	}
	EXPECT_TRUE(is_over);
	while (mw_readable(self->fd))
		ASSERT_LT(0, mw_read(self->fd, done, BUSY));
}

MEMWAIT_TEST(R12_a_timeout_does_not_affect_the_order_of_others)
{
	struct waiter w = thread_at(self->fd, self->word);
	struct memwait_completion done[3];

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 1));
	waiter_start(&w);
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 20, 2, NULL));
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 3));
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 4));
	ASSERT_EQ(1, await_completions(self->fd, done, 3));
	EXPECT_EQ(2, done[0].user_data);
	EXPECT_EQ(4, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(3, mw_notify(self->fd, self->word, 3, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	EXPECT_EQ(2, mw_read(self->fd, done, 3));
	EXPECT_EQ(1, done[0].user_data);
	EXPECT_EQ(3, done[1].user_data);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
}

TEST_HARNESS_MAIN
