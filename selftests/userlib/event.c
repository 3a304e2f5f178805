// SPDX-License-Identifier: GPL-2.0
/* Events: waiters continue when the event has been set, even if only for a moment. */
#include "userlib_test.h"

#define ROUNDS	SOME_OF(2000)
#define WAITERS	3

USERLIB_TEST(R5_an_event_is_set_and_cleared)
{
	memwait_event_t initialised = MEMWAIT_EVENT_INIT;
	memwait_event_t *event = self->shared;

	EXPECT_EQ(0, memcmp(&initialised, event, sizeof(*event)));
	ASSERT_EQ(0, memwait_event_init(event, 0));
	EXPECT_EQ(0, memwait_event_is_set(event));
	EXPECT_EQ(0, memwait_event_clear(event));
	EXPECT_EQ(0, memwait_event_set(event));
	EXPECT_EQ(0, memwait_event_set(event));
	EXPECT_EQ(1, memwait_event_is_set(event));
	EXPECT_EQ(0, memwait_event_wait(event));
	EXPECT_EQ(0, memwait_event_wait(event));
	EXPECT_EQ(0, memwait_event_clear(event));
	EXPECT_EQ(0, memwait_event_is_set(event));
	EXPECT_EQ(0, memwait_event_destroy(event));
	EXPECT_EQ(EINVAL, memwait_event_init(NULL, 0));
	EXPECT_EQ(EINVAL, memwait_event_init(event, 1));
	EXPECT_EQ(EINVAL, memwait_event_destroy(NULL));
	EXPECT_EQ(-EINVAL, memwait_event_is_set(NULL));
	EXPECT_EQ(EINVAL, memwait_event_set(NULL));
	EXPECT_EQ(EINVAL, memwait_event_clear(NULL));
	EXPECT_EQ(EINVAL, memwait_event_wait(NULL));
	EXPECT_EQ(EINVAL, memwait_event_wait_async(NULL, NULL));
}

struct news {
	memwait_event_t event;
	long value;
};

static int await_news(void *arg)
{
	struct news *news = arg;
	int err = memwait_event_wait(&news->event);

	return err ? err : news->value != 7;
}

/*
 * Threads, a process and an operation see the values that were written, without atomics, before the
 * event was set.
 */
USERLIB_TEST(R1_all_waiters_continue_and_see_what_was_written)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	struct news *news = self->shared;
	struct runner runners[WAITERS];
	pid_t child;
	int i;

	child = run_in_child(await_news(news));
	for (i = 0; i < WAITERS; i++)
		runner_start(&runners[i], await_news, news);
	ASSERT_EQ(EINPROGRESS, memwait_event_wait_async(&news->event, &counted.op));
	EXPECT_EQ(EBUSY, memwait_event_wait_async(&news->event, &counted.op));
	await_waiters(self->fd, news, U32_SIZE, WAITERS + 2);
	EXPECT_EQ(EBUSY, memwait_event_destroy(&news->event));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	news->value = 7;
	ASSERT_EQ(0, memwait_event_set(&news->event));
	for (i = 0; i < WAITERS; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
	EXPECT_EQ(0, child_status(child));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	/* The event stays set: no call waits. */
	EXPECT_EQ(0, memwait_event_wait_async(&news->event, &counted.op));
	EXPECT_EQ(1, counted.calls);
	EXPECT_EQ(0, memwait_event_destroy(&news->event));
}

/* Sets and clears the event repeatedly, including when the number of changes wraps around. */
static void set_and_clear(struct __test_metadata *_metadata, memwait_loop_t *loop, int fd,
			  memwait_event_t *event, unsigned int flags)
{
	struct counted_op counted = counted_by(&counted, loop);
	struct runner runners[WAITERS];
	int round, i;

	ASSERT_EQ(0, memwait_event_init(event, flags));
	event->reserved[0] |= 0x0ffffffc;
	for (round = 0; more_rounds(round, ROUNDS / 2); round++) {
		counted.calls = 0;
		for (i = 0; i < WAITERS; i++)
			runner_start(&runners[i], memwait_event_wait, event);
		ASSERT_EQ(EINPROGRESS, memwait_event_wait_async(event, &counted.op));
		await_waiters(fd, event, U32_SIZE | flags, WAITERS + 1);
		ASSERT_EQ(0, memwait_event_set(event));
		ASSERT_EQ(0, memwait_event_clear(event));
		for (i = 0; i < WAITERS; i++)
			ASSERT_EQ(0, runner_join(&runners[i]));
		ASSERT_EQ(0, dispatch_until(loop, &counted.calls, 1));
		ASSERT_EQ(0, counted.result);
		ASSERT_EQ(0, memwait_event_is_set(event));
		ASSERT_EQ(0, memwait_event_destroy(event));
	}
	/* Two changes in each round, and the kind is unchanged. */
	EXPECT_EQ(flags << 24 | ((0x0ffffffcU + 2 * (uint32_t)round) & 0x0fffffff),
		  event->reserved[0]);
}

USERLIB_TEST(R1_an_immediate_clear_stops_no_waiter)
{
	set_and_clear(_metadata, self->loop, self->fd, self->shared, 0);
}

USERLIB_TEST(R1_an_immediate_clear_of_a_private_event_stops_no_waiter)
{
	set_and_clear(_metadata, self->loop, self->fd, self->shared, MEMWAIT_PRIVATE);
}

USERLIB_TEST(R4_a_wait_times_out)
{
	const struct timespec past = { 0, 0 };
	struct counted_op counted = counted_by(&counted, self->loop);
	memwait_event_t *event = self->shared;
	struct timespec soon;

	EXPECT_EQ(ETIMEDOUT, memwait_event_timedwait(event, &past));
	EXPECT_EQ(ETIMEDOUT, memwait_event_clockwait(event, CLOCK_MONOTONIC, &past));
	soon = in_time(CLOCK_MONOTONIC, 5);
	EXPECT_EQ(ETIMEDOUT, memwait_event_clockwait(event, CLOCK_MONOTONIC, &soon));
	soon = in_time(CLOCK_REALTIME, 5);
	EXPECT_EQ(ETIMEDOUT, memwait_event_timedwait(event, &soon));
	soon = in_time(CLOCK_MONOTONIC, 50 * slowness());
	ASSERT_EQ(EINPROGRESS, memwait_event_clockwait_async(event, CLOCK_MONOTONIC, &soon,
							     &counted.op));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(ETIMEDOUT, counted.result);
	EXPECT_EQ(EINVAL, memwait_event_clockwait(event, CLOCK_TAI, &past));
	/* If the event is set, the deadline is not checked. */
	ASSERT_EQ(0, memwait_event_set(event));
	EXPECT_EQ(0, memwait_event_timedwait(event, &past));
	EXPECT_EQ(0, memwait_event_clockwait_async(event, CLOCK_MONOTONIC, &past, &counted.op));
}

/*
 * The deadline has passed when the loop checks the operation. The event was set before the deadline
 * and is cleared now.
 */
USERLIB_TEST(R4_an_event_set_before_the_deadline_is_not_too_late)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	memwait_event_t *event = self->shared;
	struct timespec soon = in_time(CLOCK_MONOTONIC, 20 * slowness());

	ASSERT_EQ(EINPROGRESS, memwait_event_clockwait_async(event, CLOCK_MONOTONIC, &soon,
							     &counted.op));
	/*
	 * This has the effect of a program that sets and clears the event and is killed before it
	 * notifies.
	 */
	__atomic_fetch_add(event->reserved, 2, __ATOMIC_RELEASE);
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
}

USERLIB_TEST(R6_a_cancelled_waiter_takes_nothing_from_others)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	struct counted_op other = counted_by(&other, self->loop);
	memwait_event_t *event = self->shared;
	int round;

	for (round = 0; round < 2; round++) {
		ASSERT_EQ(EINPROGRESS, memwait_event_wait_async(event, &counted.op));
		ASSERT_EQ(EINPROGRESS, memwait_event_wait_async(event, &other.op));
		/* The operation is cancelled before or after the event is set. */
		if (!round) {
			ASSERT_EQ(0, memwait_op_cancel(&counted.op));
		}
		ASSERT_EQ(0, memwait_event_set(event));
		if (round) {
			ASSERT_EQ(0, memwait_op_cancel(&counted.op));
		}
		ASSERT_EQ(0, dispatch_until(self->loop, &other.calls, round + 1));
		EXPECT_EQ(0, other.result);
		EXPECT_EQ(0, counted.calls);
		ASSERT_EQ(0, memwait_event_clear(event));
	}
	EXPECT_EQ(0, memwait_event_destroy(event));
}

/* A consumer that clears the event before it looks for work finds all work that was announced. */
struct work {
	memwait_event_t event;
	long offered;
};

#define PRODUCERS	2

static int offer(void *arg)
{
	struct work *work = arg;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		/* relaxed, because the event orders the accesses */
		__atomic_fetch_add(&work->offered, 1, __ATOMIC_RELAXED);
		if (memwait_event_set(&work->event))
			return 1;
	}
	return 0;
}

USERLIB_TEST(R1_no_work_is_overlooked)
{
	struct work *work = self->shared;
	struct runner producers[PRODUCERS];
	struct timespec patience;
	long seen = 0;
	int i;

	for (i = 0; i < PRODUCERS; i++)
		runner_start(&producers[i], offer, work);
	while (seen < (long)PRODUCERS * ROUNDS) {
		patience = in_time(CLOCK_MONOTONIC, 20000 * slowness());
		ASSERT_EQ(0, memwait_event_clockwait(&work->event, CLOCK_MONOTONIC, &patience));
		ASSERT_EQ(0, memwait_event_clear(&work->event));
		seen = __atomic_load_n(&work->offered, __ATOMIC_RELAXED);
	}
	for (i = 0; i < PRODUCERS; i++)
		EXPECT_EQ(0, runner_join(&producers[i]));
}

/* Two processes map the events at different addresses, and set them for each other in turn. */
struct crossing {
	memwait_event_t there, back;
	int round;
};

static int answer(struct crossing *crossing)
{
	int i;

	for (i = 1; i <= ROUNDS; i++) {
		if (memwait_event_wait(&crossing->there) || crossing->round != i)
			return 1;
		if (memwait_event_clear(&crossing->there) || memwait_event_set(&crossing->back))
			return 2;
	}
	return 0;
}

USERLIB_TEST(R8_processes_that_map_it_at_different_addresses)
{
	int memfd = new_file(4096), i, ret;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct crossing *crossing;
	pid_t child;

	crossing = map_shared(memfd, 4096);
	child = run_remapped(memfd, crossing, CALL(answer));
	for (i = 1; i <= ROUNDS; i++) {
		crossing->round = i;
		ASSERT_EQ(0, memwait_event_set(&crossing->there));
		counted.calls = 0;
		ret = i % 2 ? memwait_event_wait(&crossing->back) :
			      memwait_event_wait_async(&crossing->back, &counted.op);
		if (ret == EINPROGRESS) {
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			ret = counted.result;
		}
		ASSERT_EQ(0, ret);
		ASSERT_EQ(0, memwait_event_clear(&crossing->back));
	}
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(0, memwait_event_destroy(&crossing->there));
	EXPECT_EQ(0, memwait_event_destroy(&crossing->back));
	munmap(crossing, 4096);
	close(memfd);
}

/*
 * A program that does not use the library sets the event and is killed before it can notify. A
 * later caller finds the event set, and the next set wakes the sleepers.
 */
USERLIB_TEST(L7_the_next_set_wakes_for_a_killed_setter)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	memwait_event_t *event = self->shared;
	struct runner runners[WAITERS];
	pid_t child;
	int i;

	for (i = 0; i < WAITERS; i++)
		runner_start(&runners[i], memwait_event_wait, event);
	ASSERT_EQ(EINPROGRESS, memwait_event_wait_async(event, &counted.op));
	await_waiters(self->fd, event, U32_SIZE, WAITERS + 1);
	child = fork_child();
	if (!child) {
		__atomic_fetch_or(event->reserved, 1, __ATOMIC_RELEASE);
		raise(SIGKILL);
	}
	EXPECT_EQ(128 + SIGKILL, child_status(child));
	EXPECT_EQ(1, memwait_event_is_set(event));
	EXPECT_EQ(0, memwait_event_wait(event));
	await_waiters(self->fd, event, U32_SIZE, WAITERS + 1);
	ASSERT_EQ(0, memwait_event_set(event));
	for (i = 0; i < WAITERS; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	EXPECT_EQ(0, memwait_event_destroy(event));
}

TEST_HARNESS_MAIN
