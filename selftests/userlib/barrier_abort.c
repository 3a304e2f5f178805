// SPDX-License-Identifier: GPL-2.0
/*
 * Barriers that are aborted and reset. No participant passes before the others have arrived, and no
 * participant is left waiting.
 */
#include "barrier_test.h"

#define ROUNDS	SOME_OF(2000)
#define MEET	4

/*
 * Set in a thread that is stalled after its system call has changed the word and before it wakes
 * the waiters.
 */
static __thread int *changes_first;
/*
 * Set in a thread that is stalled after its reset has woken all waiters and before it begins the
 * new generation.
 */
static __thread int *resets_first;
/* Set in a thread whose ioctls that wake waiters fail. */
static __thread bool cannot_wake;

static int intercept(int fd, unsigned long request, void *argument)
{
	struct memwait_change *change = argument;

	if (cannot_wake && request == MEMWAIT_IOC_CHANGE_NOTIFY) {
		errno = EMFILE;
		return -1;
	}
	if (changes_first && request == MEMWAIT_IOC_CHANGE_NOTIFY &&
	    change->operation == MEMWAIT_CHANGE_OR) {
		__atomic_fetch_or((uint32_t *)(uintptr_t)change->notify.addr, change->operand,
				  __ATOMIC_SEQ_CST);
		stall(changes_first);
		changes_first = NULL;
	}
	if (resets_first && request == MEMWAIT_IOC_CHANGE_NOTIFY && !change->operand) {
		stall(resets_first);
		resets_first = NULL;
	}
	stall_before(request);
	return ioctl_of_kernel(fd, request, argument);
}

static const unsigned int kinds[] = { 0, MEMWAIT_PRIVATE };

static unsigned int waiting_at(memwait_barrier_t *barrier)
{
	unsigned int waiting = 0;

	memwait_barrier_inspect(barrier, NULL, &waiting);
	return waiting;
}

static bool is_broken(memwait_barrier_t *barrier)
{
	return memwait_barrier_inspect(barrier, NULL, NULL) == EPIPE;
}

/* Two participants meet, as at a new barrier. Returns 0, or the error. */
static int two_meet(memwait_barrier_t *barrier)
{
	struct runner runner;
	int ret;

	runner_start(&runner, memwait_barrier_wait, barrier);
	spin_until(waiting_at(barrier) == 1 || runner_is_done(&runner));
	ret = memwait_barrier_wait(barrier);
	if (ret != MEMWAIT_BARRIER_SERIAL_THREAD)
		return ret ? ret : -2;
	return runner_join(&runner);
}

USERLIB_TEST(abort_and_reset_check_their_arguments)
{
	memwait_barrier_t *barrier = self->shared;
	unsigned int count = 5, waiting = 5;

	EXPECT_EQ(EINVAL, memwait_barrier_abort(barrier));
	EXPECT_EQ(EINVAL, memwait_barrier_reset(barrier));
	EXPECT_EQ(EINVAL, memwait_barrier_inspect(barrier, &count, &waiting));
	EXPECT_EQ(EINVAL, memwait_barrier_abort(NULL));
	EXPECT_EQ(EINVAL, memwait_barrier_reset(NULL));
	EXPECT_EQ(EINVAL, memwait_barrier_inspect(NULL, &count, &waiting));
	EXPECT_EQ(5, count);
	EXPECT_EQ(5, waiting);
	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 3));
	EXPECT_EQ(0, memwait_barrier_inspect(barrier, &count, &waiting));
	EXPECT_EQ(3, count);
	EXPECT_EQ(0, waiting);
	EXPECT_EQ(0, memwait_barrier_inspect(barrier, NULL, NULL));
}

/* After an abort, waiting threads, operations and later arrivals fail, until a reset. */
USERLIB_TEST(an_abort_fails_all)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct timespec past = { 0 };
	unsigned int i, count;
	struct runner runner;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		counted.calls = 0;
		ASSERT_EQ(0, memwait_barrier_init(barrier, kinds[i], 3));
		runner_start(&runner, memwait_barrier_wait, barrier);
		ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted.op));
		spin_until(waiting_at(barrier) == 2);
		EXPECT_FALSE(is_broken(barrier));
		ASSERT_EQ(0, memwait_barrier_abort(barrier));
		EXPECT_EQ(EPIPE, runner_join(&runner));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(EPIPE, counted.result);
		EXPECT_EQ(EPIPE, memwait_barrier_inspect(barrier, &count, NULL));
		EXPECT_EQ(3, count);
		EXPECT_EQ(0, waiting_at(barrier));
		EXPECT_EQ(0, memwait_barrier_abort(barrier));
		EXPECT_EQ(EPIPE, memwait_barrier_wait(barrier));
		EXPECT_EQ(EPIPE, memwait_barrier_clockwait(barrier, CLOCK_MONOTONIC, &past));
		EXPECT_EQ(EPIPE, memwait_barrier_wait_async(barrier, &counted.op));
		EXPECT_EQ(1, counted.calls);
		ASSERT_EQ(0, memwait_barrier_reset(barrier));
		EXPECT_FALSE(is_broken(barrier));
		EXPECT_EQ(ETIMEDOUT, memwait_barrier_clockwait(barrier, CLOCK_MONOTONIC, &past));
		EXPECT_EQ(0, memwait_barrier_destroy(barrier));
	}
}

/* After a reset no earlier participant counts as arrived. */
USERLIB_TEST(a_reset_fails_all_waiters)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	unsigned int i, j;
	struct runner runner;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		ASSERT_EQ(0, memwait_barrier_init(barrier, kinds[i], 2));
		for (j = 0; j < 3; j++) {
			runner_start(&runner, memwait_barrier_wait, barrier);
			spin_until(waiting_at(barrier) == 1);
			ASSERT_EQ(0, memwait_barrier_reset(barrier));
			EXPECT_EQ(EPIPE, runner_join(&runner));
			ASSERT_EQ(0, two_meet(barrier));
			/* This operation is dispatched only after other participants have met. */
			counted.calls = 0;
			ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted.op));
			ASSERT_EQ(0, memwait_barrier_reset(barrier));
			ASSERT_EQ(0, two_meet(barrier));
			ASSERT_EQ(0, two_meet(barrier));
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			EXPECT_EQ(EPIPE, counted.result);
		}
		EXPECT_EQ(0, memwait_barrier_destroy(barrier));
	}
}

static int reset_and_stall(void *arg)
{
	struct last *last = arg;

	resets_first = &last->still;
	return memwait_barrier_reset(last->barrier);
}

USERLIB_TEST(waiters_woken_by_a_reset_may_arrive_immediately)
{
	struct last last = { .barrier = self->shared };
	struct runner waiter, resetter;
	unsigned int i;

	for (i = 0; i < 3 * ARRAY_SIZE(kinds); i++) {
		last.still = 0;
		ASSERT_EQ(0, memwait_barrier_init(last.barrier, kinds[i / 3], 2));
		runner_start(&waiter, memwait_barrier_wait, last.barrier);
		spin_until(waiting_at(last.barrier) == 1);
		runner_start(&resetter, reset_and_stall, &last);
		spin_until(__atomic_load_n(&last.still, __ATOMIC_ACQUIRE));
		EXPECT_EQ(EPIPE, runner_join(&waiter));
		EXPECT_FALSE(is_broken(last.barrier));
		/* An abort before the next arrivals breaks the barrier again. */
		if (i % 3 == 1)
			ASSERT_EQ(0, memwait_barrier_abort(last.barrier));
		EXPECT_EQ(i % 3 == 1 ? EPIPE : 0, two_meet(last.barrier));
		/* If an abort comes after the participants have met, the reset does not end it. */
		if (i % 3 == 2)
			ASSERT_EQ(0, memwait_barrier_abort(last.barrier));
		__atomic_store_n(&last.still, 2, __ATOMIC_RELEASE);
		EXPECT_EQ(0, runner_join(&resetter));
		if (i % 3 == 2) {
			EXPECT_EQ(EPIPE, memwait_barrier_wait(last.barrier));
			ASSERT_EQ(0, memwait_barrier_reset(last.barrier));
		}
		EXPECT_EQ(0, two_meet(last.barrier));
		EXPECT_EQ(0, memwait_barrier_destroy(last.barrier));
	}
}

USERLIB_TEST(a_cancel_after_an_abort_undoes_nothing)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	unsigned int i;

	for (i = 0; i < 2 * ARRAY_SIZE(kinds); i++) {
		ASSERT_EQ(0, memwait_barrier_init(barrier, kinds[i / 2], 2));
		ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted.op));
		ASSERT_EQ(0, memwait_barrier_abort(barrier));
		if (i % 2)
			ASSERT_EQ(0, memwait_barrier_reset(barrier));
		EXPECT_EQ(0, memwait_op_cancel(&counted.op));
		ASSERT_EQ(0, memwait_barrier_reset(barrier));
		EXPECT_EQ(0, two_meet(barrier));
		EXPECT_EQ(0, memwait_barrier_destroy(barrier));
	}
	EXPECT_EQ(0, counted.calls);
}

USERLIB_TEST(a_barrier_of_one_can_be_broken)
{
	memwait_barrier_t *barrier = self->shared;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 1));
	ASSERT_EQ(0, memwait_barrier_abort(barrier));
	EXPECT_EQ(EPIPE, memwait_barrier_wait(barrier));
	ASSERT_EQ(0, memwait_barrier_reset(barrier));
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
}

USERLIB_TEST(L1_processes_abort_for_each_other)
{
	memwait_barrier_t *barrier = self->shared;
	pid_t child;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 2));
	child = run_in_child(memwait_barrier_wait(barrier));
	spin_until(waiting_at(barrier) == 1);
	ASSERT_EQ(0, memwait_barrier_abort(barrier));
	EXPECT_EQ(EPIPE, child_status(child));
	ASSERT_EQ(0, child_status(run_in_child(memwait_barrier_reset(barrier))));
	EXPECT_EQ(0, two_meet(barrier));
	ASSERT_EQ(0, child_status(run_in_child(memwait_barrier_abort(barrier))));
	EXPECT_EQ(EPIPE, memwait_barrier_wait(barrier));
}

/* If abort returns an error, the barrier is not broken. */
USERLIB_TEST(L2_an_abort_that_cannot_wake_is_not_done)
{
	memwait_barrier_t *barrier = self->shared;
	struct runner runner;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		ASSERT_EQ(0, memwait_barrier_init(barrier, kinds[i], 2));
		runner_start(&runner, memwait_barrier_wait, barrier);
		spin_until(waiting_at(barrier) == 1);
		cannot_wake = true;
		EXPECT_EQ(EMFILE, memwait_barrier_abort(barrier));
		EXPECT_EQ(EMFILE, memwait_barrier_reset(barrier));
		cannot_wake = false;
		EXPECT_FALSE(is_broken(barrier));
		EXPECT_EQ(1, waiting_at(barrier));
		EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
		EXPECT_EQ(0, runner_join(&runner));
		EXPECT_EQ(0, memwait_barrier_destroy(barrier));
	}
}

/* The last arrival is undone. The waiters are notified of an abort or a reset. */
USERLIB_TEST(L2_an_abort_after_a_last_arrival_that_could_not_wake)
{
	memwait_barrier_t *barrier = self->shared;
	struct runner runner;
	unsigned int i;

	for (i = 0; i < 2 * ARRAY_SIZE(kinds); i++) {
		ASSERT_EQ(0, memwait_barrier_init(barrier, kinds[i / 2], 2));
		runner_start(&runner, memwait_barrier_wait, barrier);
		spin_until(waiting_at(barrier) == 1);
		cannot_wake = true;
		EXPECT_EQ(EMFILE, memwait_barrier_wait(barrier));
		cannot_wake = false;
		EXPECT_EQ(1, waiting_at(barrier));
		EXPECT_EQ(EBUSY, memwait_barrier_destroy(barrier));
		ASSERT_EQ(0, i % 2 ? memwait_barrier_reset(barrier) :
			  memwait_barrier_abort(barrier));
		EXPECT_EQ(EPIPE, runner_join(&runner));
		ASSERT_EQ(0, memwait_barrier_reset(barrier));
		EXPECT_EQ(0, two_meet(barrier));
		EXPECT_EQ(0, memwait_barrier_destroy(barrier));
	}
}

/*
 * The last thread at a private barrier arrives before an abort, and wakes the other threads after
 * the abort. All threads fail if one of them sees the abort first; otherwise all have met.
 */
USERLIB_TEST(an_abort_during_the_last_arrival_at_a_private_barrier)
{
	struct counted_op counted[2] = { counted_by(&counted[0], self->loop),
					 counted_by(&counted[1], self->loop) };
	struct last last = { .barrier = self->shared };
	struct runner within;
	int i, first;

	/* In case 2, one operation is cancelled. */
	for (first = 0; first < 3; first++) {
		last.still = 0;
		ASSERT_EQ(0, memwait_barrier_init(last.barrier, MEMWAIT_PRIVATE, 3));
		for (i = 0; i < 2; i++) {
			counted[i].calls = 0;
			ASSERT_EQ(EINPROGRESS,
				  memwait_barrier_wait_async(last.barrier, &counted[i].op));
		}
		runner_start(&within, arrive_last_and_stall, &last);
		spin_until(__atomic_load_n(&last.still, __ATOMIC_ACQUIRE));
		ASSERT_EQ(0, memwait_barrier_abort(last.barrier));
		if (first == 1)
			ASSERT_EQ(1, memwait_loop_dispatch(self->loop, 1));
		if (first == 2)
			ASSERT_EQ(0, memwait_op_cancel(&counted[0].op));
		__atomic_store_n(&last.still, 2, __ATOMIC_RELEASE);
		EXPECT_EQ(first ? EPIPE : MEMWAIT_BARRIER_SERIAL_THREAD, runner_join(&within));
		for (i = first == 2; i < 2; i++) {
			ASSERT_EQ(0, dispatch_until(self->loop, &counted[i].calls, 1));
			EXPECT_EQ(first ? EPIPE : 0, counted[i].result);
		}
		EXPECT_EQ(EPIPE, memwait_barrier_wait(last.barrier));
		ASSERT_EQ(0, memwait_barrier_reset(last.barrier));
		EXPECT_EQ(0, memwait_barrier_destroy(last.barrier));
	}
}

/* One thread waits. The last thread has found that waiter, and is stalled. */
static void two_arrive(struct last *last, struct runner *waiter, struct runner *within)
{
	runner_start(waiter, memwait_barrier_wait, last->barrier);
	spin_until(waiting_at(last->barrier) == 1);
	runner_start(within, arrive_last_and_stall, last);
	spin_until(__atomic_load_n(&last->still, __ATOMIC_ACQUIRE));
}

/*
 * All participants have met but were not woken: the waiter that the abort wakes notifies the
 * others.
 */
USERLIB_TEST(an_abort_before_the_last_arrival_has_woken_the_others)
{
	struct last last = { .barrier = self->shared };
	struct runner waiter, within;

	ASSERT_EQ(0, memwait_barrier_init(last.barrier, 0, 2));
	two_arrive(&last, &waiter, &within);
	ASSERT_EQ(0, memwait_barrier_abort(last.barrier));
	EXPECT_EQ(EPIPE, memwait_barrier_wait(last.barrier));
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, runner_join(&waiter));
	__atomic_store_n(&last.still, 2, __ATOMIC_RELEASE);
	EXPECT_EQ(0, runner_join(&within));
	EXPECT_EQ(0, memwait_barrier_destroy(last.barrier));
}

/* After a reset the stalled last thread meets no participant of the new generation. */
USERLIB_TEST(a_reset_before_the_last_arrival_has_woken_the_others)
{
	struct last last = { .barrier = self->shared }, next = last;
	struct runner waiter, within, again;
	int others, ret;

	/* The number of threads that have arrived since the reset. The second is also stalled. */
	for (others = 0; others < 3; others++) {
		last.still = 0;
		next.still = 0;
		ASSERT_EQ(0, memwait_barrier_init(last.barrier, 0, 2));
		two_arrive(&last, &waiter, &within);
		ASSERT_EQ(0, memwait_barrier_reset(last.barrier));
		/* The waiter may have met the stalled thread before the reset. */
		ret = runner_join(&waiter);
		EXPECT_TRUE(ret == EPIPE || ret == MEMWAIT_BARRIER_SERIAL_THREAD);
		if (others) {
			runner_start(&waiter, memwait_barrier_wait, last.barrier);
			spin_until(waiting_at(last.barrier) == 1);
		}
		if (others == 2) {
			runner_start(&again, arrive_last_and_stall, &next);
			spin_until(__atomic_load_n(&next.still, __ATOMIC_ACQUIRE));
		}
		__atomic_store_n(&last.still, 2, __ATOMIC_RELEASE);
		EXPECT_EQ(EPIPE, runner_join(&within));
		__atomic_store_n(&next.still, 2, __ATOMIC_RELEASE);
		if (others == 1) {
			spin_until(waiting_at(last.barrier) == 1);
			EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD,
				  memwait_barrier_wait(last.barrier));
		}
		if (others == 2) {
			EXPECT_EQ(0, runner_join(&again));
		}
		if (others) {
			EXPECT_EQ(0, runner_join(&waiter));
		}
		EXPECT_EQ(0, memwait_barrier_destroy(last.barrier));
	}
}

static int abort_and_stall(void *arg)
{
	struct last *last = arg;

	changes_first = &last->still;
	return memwait_barrier_abort(last->barrier);
}

/*
 * If an abort has ended a wait but has not woken the waiter yet, the waiter does not count as a new
 * arrival.
 */
USERLIB_TEST(a_reset_wakes_waiters_that_an_abort_is_about_to_wake)
{
	struct last last = { .barrier = self->shared };
	struct runner waiter, aborter;
	struct timespec past = { 0 };
	int i;

	ASSERT_EQ(0, memwait_barrier_init(last.barrier, 0, 2));
	runner_start(&waiter, memwait_barrier_wait, last.barrier);
	spin_until(waiting_at(last.barrier) == 1);
	runner_start(&aborter, abort_and_stall, &last);
	spin_until(__atomic_load_n(&last.still, __ATOMIC_ACQUIRE));
	ASSERT_EQ(0, memwait_barrier_reset(last.barrier));
	EXPECT_EQ(EPIPE, runner_join(&waiter));
	/* The first call remains in the number of arrivals, which is an upper bound. */
	for (i = 0; i < 2; i++)
		EXPECT_EQ(ETIMEDOUT,
			  memwait_barrier_clockwait(last.barrier, CLOCK_MONOTONIC, &past));
	__atomic_store_n(&last.still, 2, __ATOMIC_RELEASE);
	EXPECT_EQ(0, runner_join(&aborter));
	EXPECT_TRUE(is_broken(last.barrier));
	ASSERT_EQ(0, memwait_barrier_reset(last.barrier));
	EXPECT_EQ(0, two_meet(last.barrier));
	EXPECT_EQ(0, memwait_barrier_destroy(last.barrier));
}

USERLIB_TEST(L8_it_may_be_destroyed_immediately_after_an_abort)
{
	memwait_barrier_t *barrier = self->shared;
	struct runner runners[2];
	int round, i;

	for (round = 0; more_rounds(round, ROUNDS / 4); round++) {
		ASSERT_EQ(0, memwait_barrier_init(barrier, kinds[round % 2], 3));
		for (i = 0; i < 2; i++)
			runner_start(&runners[i], memwait_barrier_wait, barrier);
		spin_until(waiting_at(barrier) == 2);
		ASSERT_EQ(0, memwait_barrier_abort(barrier));
		ASSERT_EQ(0, memwait_barrier_destroy(barrier));
		memset(barrier, 0xa5, sizeof(*barrier));
		for (i = 0; i < 2; i++)
			ASSERT_EQ(EPIPE, runner_join(&runners[i]));
		for (i = 0; i < (int)sizeof(*barrier); i++)
			ASSERT_EQ(0xa5, ((unsigned char *)barrier)[i]);
	}
}

/*
 * During aborts and resets a participant may pass only if all other participants were present at
 * some time during its call. Each participant counts how often it began and ended a call.
 */
struct crowd {
	memwait_barrier_t barrier;
	int begun[MEET], ended[MEET];
	int serial, passed, failed, alone;
	int stop;
};

struct part {
	struct crowd *crowd;
	int number, error;
	int ended[MEET];		/* all participants' counts when this call began */
	memwait_op_t op;
};

static void part_begins(struct part *part)
{
	int i;

	for (i = 0; i < MEET; i++)
		part->ended[i] = __atomic_load_n(&part->crowd->ended[i], __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&part->crowd->begun[part->number], 1, __ATOMIC_SEQ_CST);
}

/* Returns whether the participant continues. */
static bool part_ends(struct part *part, int result)
{
	struct crowd *crowd = part->crowd;
	bool stop = __atomic_load_n(&crowd->stop, __ATOMIC_ACQUIRE);
	int i;

	for (i = 0; i < MEET && result <= 0; i++) {
		if (__atomic_load_n(&crowd->begun[i], __ATOMIC_SEQ_CST) <= part->ended[i])
			__atomic_add_fetch(&crowd->alone, 1, __ATOMIC_RELAXED);
	}
	__atomic_add_fetch(&crowd->ended[part->number], 1, __ATOMIC_SEQ_CST);
	if (result == MEMWAIT_BARRIER_SERIAL_THREAD)
		__atomic_add_fetch(&crowd->serial, 1, __ATOMIC_SEQ_CST);
	if (result <= 0) {
		__atomic_add_fetch(&crowd->passed, 1, __ATOMIC_SEQ_CST);
		return true;
	}
	if (result != EPIPE)
		part->error = result;
	__atomic_add_fetch(&crowd->failed, 1, __ATOMIC_SEQ_CST);
	sched_yield();
	return result == EPIPE && !stop;
}

static int meet_often(void *arg)
{
	struct part *part = arg;

	do {
		part_begins(part);
	} while (part_ends(part, memwait_barrier_wait(&part->crowd->barrier)));
	return part->error;
}

static void meet_by_callback(memwait_op_t *op, int result, void *data)
{
	struct part *part = data;

	while (part_ends(part, result)) {
		part_begins(part);
		result = memwait_barrier_wait_async(&part->crowd->barrier, op);
		if (result == EINPROGRESS)
			return;
	}
}

static int abort_often(void *arg)
{
	struct crowd *crowd = arg;
	int round, ret, met;

	for (round = 0; more_rounds(round, ROUNDS); round++) {
		linger(round);
		if (round % 3) {
			ret = memwait_barrier_abort(&crowd->barrier);
			if (ret)
				return ret;
			if (round % 2)
				linger(round / 2);
		}
		ret = memwait_barrier_reset(&crowd->barrier);
		if (ret)
			return ret;
		/* After the end of the aborts, the participants must always meet again. */
		met = __atomic_load_n(&crowd->serial, __ATOMIC_SEQ_CST);
		spin_until(__atomic_load_n(&crowd->serial, __ATOMIC_SEQ_CST) > met);
	}
	__atomic_store_n(&crowd->stop, round, __ATOMIC_RELEASE);
	return memwait_barrier_abort(&crowd->barrier);
}

USERLIB_TEST(R1_no_participant_passes_alone_during_aborts)
{
	struct crowd *crowd = self->shared;
	struct runner runners[3], aborter;
	struct part parts[MEET];
	unsigned int kind;
	pid_t child = 0;
	int i, ret;

	for (kind = 0; kind < ARRAY_SIZE(kinds); kind++) {
		memset(crowd, 0, sizeof(*crowd));
		ASSERT_EQ(0, memwait_barrier_init(&crowd->barrier, kinds[kind], MEET));
		for (i = 0; i < MEET; i++)
			parts[i] = (struct part){ .crowd = crowd, .number = i };
		if (!kinds[kind])
			child = run_in_child(meet_often(&parts[0]));
		for (i = !kinds[kind]; i < 3; i++)
			runner_start(&runners[i], meet_often, &parts[i]);
		memwait_op_init(&parts[3].op, self->loop, meet_by_callback, &parts[3]);
		part_begins(&parts[3]);
		ret = memwait_barrier_wait_async(&crowd->barrier, &parts[3].op);
		if (ret != EINPROGRESS)
			meet_by_callback(&parts[3].op, ret, &parts[3]);
		runner_start(&aborter, abort_often, crowd);
		ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
		EXPECT_EQ(0, runner_join(&aborter));
		for (i = !kinds[kind]; i < 3; i++)
			EXPECT_EQ(0, runner_join(&runners[i]));
		if (!kinds[kind])
			EXPECT_EQ(0, child_status(child));
		EXPECT_EQ(0, parts[3].error);
		EXPECT_EQ(0, crowd->alone);
		EXPECT_LE(crowd->stop, crowd->serial);
		/*
		 * After a reset, it is possible that no participant of the next round gets
		 * SERIAL_THREAD.
		 */
		EXPECT_LE(crowd->passed, MEET * (crowd->serial + crowd->stop));
		EXPECT_LE(MEET, crowd->failed);
		TH_LOG("%d aborts, %d met: %d passed, %d failed", crowd->stop, crowd->serial,
		       crowd->passed, crowd->failed);
		EXPECT_EQ(0, memwait_barrier_destroy(&crowd->barrier));
	}
}

TEST_HARNESS_MAIN
