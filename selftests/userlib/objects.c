// SPDX-License-Identifier: GPL-2.0
/*
 * Behaviour that all objects have in common: deadlines, operations, waiters that give up, and
 * deaths. The file named after an object tests the purpose of that object.
 */
#include "objects_test.h"

#define ROUNDS	LOAD(400, 15)

FIXTURE(object)
{
	memwait_loop_t *loop;
	void *object;		/* zeroed; inherited over fork */
	int fd;
	uint64_t user_waits;
};

FIXTURE_VARIANT(object)
{
	struct object object;
};

#define ADD_VARIANT(name, way, kind)	\
	FIXTURE_VARIANT_ADD(object, name) { .object = OBJECT_INIT(name, way, kind) };

FIRST_OBJECTS(ADD_VARIANT)

FIXTURE_SETUP(object)
{
	self->fd = open_device(0);
	self->user_waits = mw_user_waits(self->fd);
	self->object = shared_page(4096);
	ASSERT_EQ(0, memwait_loop_new(&self->loop, 0));
	ASSERT_EQ(0, variant->object.way->make(self->object, variant->object.kind));
}

FIXTURE_TEARDOWN(object)
{
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
	EXPECT_EQ(0, memwait_loop_close(self->loop));
	EXPECT_EQ(self->user_waits, mw_await_user_waits(self->fd, self->user_waits));
	munmap(self->object, 4096);
	close(self->fd);
}

#define OBJECT_TEST(name)	TEST_F_TIMEOUT(object, name, 300)

static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME, MEMWAIT_RELATIVE };
static const struct timespec never = { TIME_MAX, 999999999 }, long_ago = { -1, 0 };
static const struct timespec invalid[] = { { 1, 1000000000 }, { 1, -1 } };

/* Returns the deadline that is @ms from now, for a function that takes @clock. */
static struct timespec time_for(clockid_t clock, long ms)
{
	if (clock == MEMWAIT_RELATIVE)
		return (struct timespec){ 0, ms * NSEC_PER_MSEC };
	return in_time(clock, ms);
}

/* Returns a time some microseconds from now, which is about when the other thread acts. */
static struct timespec soon_after(int round)
{
	struct timespec time = in_time(CLOCK_MONOTONIC, 0);

	time.tv_nsec += 1000 * (50 + round % 300);
	if (time.tv_nsec >= 1000000000) {
		time.tv_sec++;
		time.tv_nsec -= 1000000000;
	}
	return time;
}

OBJECT_TEST(R4_deadlines_are_met)
{
	const struct way *way = variant->object.way;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct timespec time;
	uint64_t start;
	size_t i, j;
	int ret;

	for (i = 0; i < ARRAY_SIZE(clocks); i++) {
		start = now_ns(CLOCK_MONOTONIC);
		time = time_for(clocks[i], 20);
		EXPECT_EQ(ETIMEDOUT, way->wait_until(self->object, clocks[i], &time));
		time = time_for(clocks[i], 20);
		counted.calls = 0;
		ret = way->wait_until_async(self->object, clocks[i], &time, &counted.op);
		if (ret == EINPROGRESS) {
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			ret = counted.result;
		}
		EXPECT_EQ(ETIMEDOUT, ret);
		EXPECT_LE(38 * NSEC_PER_MSEC, now_ns(CLOCK_MONOTONIC) - start);

		time = clocks[i] == MEMWAIT_RELATIVE ? (struct timespec){ 0, 0 } :
						       in_time(clocks[i], -1000);
		EXPECT_EQ(ETIMEDOUT, way->wait_until(self->object, clocks[i], &time));
		EXPECT_EQ(ETIMEDOUT, way->wait_until(self->object, clocks[i], &long_ago));
		EXPECT_EQ(ETIMEDOUT, way->wait_until_async(self->object, clocks[i], &long_ago,
							   &counted.op));
		for (j = 0; j < ARRAY_SIZE(invalid); j++) {
			EXPECT_EQ(EINVAL, way->wait_until(self->object, clocks[i], &invalid[j]));
			EXPECT_EQ(EINVAL, way->wait_until_async(self->object, clocks[i],
								&invalid[j], &counted.op));
		}
	}
	time = in_time(CLOCK_REALTIME, 5);
	EXPECT_EQ(ETIMEDOUT, way->wait_timed(self->object, &time));
	EXPECT_EQ(EINVAL, way->wait_timed(self->object, &invalid[0]));
	time = in_time(CLOCK_MONOTONIC, 1);
	EXPECT_EQ(EINVAL, way->wait_until(self->object, CLOCK_PROCESS_CPUTIME_ID, &time));
	EXPECT_EQ(EINVAL, way->wait_until_async(self->object, CLOCK_THREAD_CPUTIME_ID, &time,
						&counted.op));

	/*
	 * If no wait is needed, the deadline is not checked. The waits that gave up have not
	 * changed the object.
	 */
	ASSERT_EQ(0, way->give(self->object));
	EXPECT_EQ(0, way->wait_until(self->object, CLOCK_MONOTONIC, &invalid[0]));
	EXPECT_EQ(0, give_next(way, self->object));
	EXPECT_EQ(0, way->wait_until_async(self->object, CLOCK_REALTIME, &invalid[0], &counted.op));
	EXPECT_EQ(0, leave(way, self->object, 0));
	EXPECT_EQ(0, way->destroy(self->object));
}

OBJECT_TEST(R4_no_deadline_and_one_beyond_all_time_are_never)
{
	const struct way *way = variant->object.way;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct visitor visitor;
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(clocks); i++) {
		clockid_t clock = clocks[i / 2];
		const struct timespec *time = i % 2 ? &never : NULL;

		ASSERT_EQ(0, way->make(self->object, variant->object.kind));
		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS, way->wait_until_async(self->object, clock, time,
							     &counted.op));
		visitor_start_until(&visitor, way, self->object, clock, time);
		await_sleepers(way, self->object, variant->object.kind, 2);
		EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		ASSERT_EQ(0, way->give(self->object));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		ASSERT_EQ(0, give_next(way, self->object));
		EXPECT_EQ(0, visitor_join(&visitor));
		EXPECT_EQ(0, way->destroy(self->object));
	}
}

OBJECT_TEST(R2_bad_arguments)
{
	const struct way *way = variant->object.way;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct timespec time = in_time(CLOCK_MONOTONIC, 1);

	EXPECT_EQ(EINVAL, way->wait(NULL));
	EXPECT_EQ(EINVAL, way->wait_timed(NULL, &time));
	EXPECT_EQ(EINVAL, way->wait_until(NULL, CLOCK_MONOTONIC, &time));
	EXPECT_EQ(EINVAL, way->wait_until(self->object, CLOCK_PROCESS_CPUTIME_ID, NULL));
	EXPECT_EQ(EINVAL, way->wait_async(NULL, &counted.op));
	EXPECT_EQ(EINVAL, way->wait_async(self->object, NULL));
	EXPECT_EQ(EINVAL, way->wait_until_async(NULL, CLOCK_MONOTONIC, &time, &counted.op));
	EXPECT_EQ(EINVAL, way->wait_until_async(self->object, CLOCK_PROCESS_CPUTIME_ID, NULL,
						&counted.op));
	EXPECT_EQ(EINVAL, way->give(NULL));
	EXPECT_EQ(EINVAL, way->destroy(NULL));
	EXPECT_EQ(EINVAL, way->make(NULL, variant->object.kind));
	EXPECT_EQ(ETIMEDOUT, take(way, self->object));
}

OBJECT_TEST(R12_threads_and_operations_are_in_one_queue)
{
	const struct way *way = variant->object.way;
	struct counted_op third = counted_by(&third, self->loop);
	struct counted_op first = counted_by(&first, self->loop);
	struct visitor second;

	if (!is_fifo(&variant->object))
		SKIP(return, "all waiters are woken");
	/* The next waiter names the thread that runs the operation, and then joins at the end. */
	if (is_robust(&variant->object))
		SKIP(return, "the waiter behind an operation loses its position");
	ASSERT_EQ(EINPROGRESS, way->wait_async(self->object, &first.op));
	visitor_start(&second, way, self->object);
	await_sleepers(way, self->object, variant->object.kind, 2);
	ASSERT_EQ(EINPROGRESS, way->wait_async(self->object, &third.op));
	EXPECT_EQ(EBUSY, way->destroy(self->object));

	ASSERT_EQ(0, way->give(self->object));
	ASSERT_EQ(0, dispatch_until(self->loop, &first.calls, 1));
	EXPECT_EQ(2, sleepers(way, self->object, variant->object.kind));
	ASSERT_EQ(0, give_next(way, self->object));
	EXPECT_EQ(0, visitor_join(&second));
	if (!way->give_back) {
		EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_EQ(0, third.calls);
		ASSERT_EQ(0, way->give(self->object));
	}
	ASSERT_EQ(0, dispatch_until(self->loop, &third.calls, 1));
	EXPECT_EQ(0, first.result + third.result);
	EXPECT_EQ(1, first.calls);
	EXPECT_EQ(ETIMEDOUT, take(way, self->object));
	EXPECT_EQ(0, leave(way, self->object, 0));
	EXPECT_EQ(0, way->destroy(self->object));
}

OBJECT_TEST(L3_a_pending_operation_that_is_cancelled_takes_nothing)
{
	const struct way *way = variant->object.way;
	struct counted_op counted = counted_by(&counted, self->loop);

	ASSERT_EQ(EINPROGRESS, way->wait_async(self->object, &counted.op));
	EXPECT_EQ(EBUSY, way->wait_async(self->object, &counted.op));
	EXPECT_EQ(1, memwait_op_pending(&counted.op));
	EXPECT_EQ(1, memwait_loop_pending(self->loop));
	EXPECT_EQ(1, sleepers(way, self->object, variant->object.kind));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(-ENOENT, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, memwait_op_pending(&counted.op));
	EXPECT_EQ(0, sleepers(way, self->object, variant->object.kind));
	EXPECT_EQ(ETIMEDOUT, take(way, self->object));
	ASSERT_EQ(0, way->give(self->object));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, counted.calls);
	/* The operation can be used again. */
	EXPECT_EQ(0, way->wait_async(self->object, &counted.op));
	EXPECT_EQ(0, leave(way, self->object, 0));
	EXPECT_EQ(0, way->destroy(self->object));
}

OBJECT_TEST(L3_a_cancelled_completed_operation_passes_it_on)
{
	const struct way *way = variant->object.way;
	struct counted_op behind = counted_by(&behind, self->loop);
	struct counted_op first = counted_by(&first, self->loop);
	struct visitor thread;

	/* The next waiter is a thread. */
	ASSERT_EQ(EINPROGRESS, way->wait_async(self->object, &first.op));
	visitor_start(&thread, way, self->object);
	await_sleepers(way, self->object, variant->object.kind, 2);
	ASSERT_EQ(0, way->give(self->object));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(0, visitor_join(&thread));
	EXPECT_EQ(0, way->destroy(self->object));

	/* The next waiter is an operation. */
	ASSERT_EQ(0, way->make(self->object, variant->object.kind));
	ASSERT_EQ(EINPROGRESS, way->wait_async(self->object, &first.op));
	ASSERT_EQ(EINPROGRESS, way->wait_async(self->object, &behind.op));
	ASSERT_EQ(0, way->give(self->object));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 1));
	EXPECT_EQ(0, behind.result);
	EXPECT_EQ(0, leave(way, self->object, 0));
	EXPECT_EQ(0, way->destroy(self->object));

	/* There is no other waiter. The object is available exactly once. */
	ASSERT_EQ(0, way->make(self->object, variant->object.kind));
	ASSERT_EQ(EINPROGRESS, way->wait_async(self->object, &first.op));
	ASSERT_EQ(0, way->give(self->object));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, first.calls);
	EXPECT_EQ(0, take(way, self->object));
	if (!way->together) {
		EXPECT_EQ(ETIMEDOUT, take(way, self->object));
	}
	EXPECT_EQ(0, leave(way, self->object, 0));
	EXPECT_EQ(0, way->destroy(self->object));
}

OBJECT_TEST(L3_an_operation_that_has_timed_out_can_be_cancelled)
{
	const struct way *way = variant->object.way;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct timespec time;
	struct pollfd pfd;
	int ret;

	do {
		time = in_time(CLOCK_MONOTONIC, 20);
		ret = way->wait_until_async(self->object, CLOCK_MONOTONIC, &time, &counted.op);
	} while (ret == ETIMEDOUT);
	ASSERT_EQ(EINPROGRESS, ret);
	pfd = (struct pollfd){ .fd = memwait_loop_fd(self->loop), .events = POLLIN };
	ASSERT_EQ(1, poll(&pfd, 1, -1));
	EXPECT_EQ(1, memwait_op_pending(&counted.op));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(0, way->give(self->object));
	EXPECT_EQ(0, take(way, self->object));
	EXPECT_EQ(0, leave(way, self->object, 0));
	EXPECT_EQ(0, way->destroy(self->object));
}

/*
 * If a race has had only one of its two outcomes, the test repeats it until its time is over. To
 * get the other outcome, the test changes the order or the timing.
 */
static bool has_one_outcome(int outcome, int rounds)
{
	return !outcome || outcome == rounds;
}

/* A thread that makes the object, waits, and then lets a waiter continue. */
struct giver {
	const struct object *object;
	void *memory;
	struct runner runner;
	int made, may_give;
};

static int make_and_give(void *arg)
{
	struct giver *giver = arg;
	const struct way *way = giver->object->way;
	int ret = way->make(giver->memory, giver->object->kind);

	__atomic_store_n(&giver->made, 1, __ATOMIC_RELEASE);
	await_begin(&giver->may_give);
	return ret ? ret : way->give(giver->memory);
}

static void giver_start(struct giver *giver, const struct object *object, void *memory)
{
	*giver = (struct giver){ .object = object, .memory = memory };
	runner_start(&giver->runner, make_and_give, giver);
	spin_until(__atomic_load_n(&giver->made, __ATOMIC_ACQUIRE));
}

static void giver_continue(struct giver *giver)
{
	__atomic_store_n(&giver->may_give, 1, __ATOMIC_RELEASE);
}

/* The object goes to exactly one of the operation and the thread behind it. */
OBJECT_TEST(L3_cancel_races_with_give)
{
	const struct way *way = variant->object.way;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct visitor behind;
	struct giver giver;
	int round, taken_back = 0;

	for (round = 0; more_rounds(round, ROUNDS) || has_one_outcome(taken_back, round); round++) {
		giver_start(&giver, &variant->object, self->object);
		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS, way->wait_async(self->object, &counted.op));
		visitor_start(&behind, way, self->object);
		if (round % 3)
			await_sleepers(way, self->object, variant->object.kind, 2);
		giver_continue(&giver);
		linger(round);
		if (taken_back == round)
			usleep(10 * round);
		if (round % 2) {
			ASSERT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		}
		if (!memwait_op_cancel(&counted.op)) {
			taken_back++;
			ASSERT_EQ(0, counted.calls);
		} else {
			ASSERT_EQ(1, counted.calls);
			ASSERT_EQ(0, counted.result);
			ASSERT_EQ(0, give_next(way, self->object));
		}
		ASSERT_EQ(0, runner_join(&giver.runner));
		ASSERT_EQ(0, visitor_join(&behind));
		ASSERT_EQ(way->give_back || way->lets_all_go ? 0 : ETIMEDOUT,
			  take(way, self->object));
		ASSERT_EQ(0, leave(way, self->object, 0));
		ASSERT_EQ(0, way->destroy(self->object));
		ASSERT_EQ(0, memwait_loop_pending(self->loop));
	}
	TH_LOG("%d of %d cancelled", taken_back, round);
}

/* Either the callback got the object, or the object is still available. */
OBJECT_TEST(L3_cancel_by_another_thread_races_with_dispatch)
{
	const struct way *way = variant->object.way;
	struct counted_op counted = counted_by(&counted, self->loop);
	int round, ret, taken_back = 0;
	struct runner canceller;
	bool comes_late;

	for (round = 0; more_rounds(round, ROUNDS) || has_one_outcome(taken_back, round); round++) {
		ASSERT_EQ(0, way->make(self->object, variant->object.kind));
		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS, way->wait_async(self->object, &counted.op));
		comes_late = taken_back && taken_back == round;
		runner_create(&canceller, CALL_WITH(memwait_op_cancel, &counted.op), &counted.op,
			      !comes_late);
		if (!taken_back)
			usleep(10 * round);
		ASSERT_EQ(0, way->give(self->object));
		linger(round);
		runner_release(&canceller);
		ASSERT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		ret = runner_join(&canceller);
		if (!ret) {
			taken_back++;
			ASSERT_EQ(0, counted.calls);
			ASSERT_EQ(0, take(way, self->object));
		} else {
			ASSERT_TRUE(ret == -ENOENT || ret == -EINPROGRESS);
			ASSERT_EQ(1, counted.calls);
			ASSERT_EQ(0, counted.result);
		}
		if (!way->together) {
			ASSERT_EQ(ETIMEDOUT, take(way, self->object));
		}
		ASSERT_EQ(0, leave(way, self->object, 0));
		ASSERT_EQ(0, way->destroy(self->object));
		ASSERT_EQ(0, memwait_loop_pending(self->loop));
	}
	TH_LOG("%d of %d cancelled", taken_back, round);
}

/*
 * If the operation or thread times out, the next waiter gets the object. L11: the operation or
 * thread tries once more before it returns ETIMEDOUT.
 */
OBJECT_TEST(L3_L11_a_deadline_races_with_give)
{
	const struct way *way = variant->object.way;
	struct counted_op counted = counted_by(&counted, self->loop);
	int round, ret, timed_out = 0;
	struct visitor visitor, behind;
	struct giver giver;
	struct timespec time;

	for (round = 0; more_rounds(round, ROUNDS) || has_one_outcome(timed_out, round); round++) {
		giver_start(&giver, &variant->object, self->object);
		time = timed_out < round ? soon_after(round) : in_time(CLOCK_MONOTONIC, round);
		counted.calls = 0;
		if (round % 2) {
			visitor_start_until(&visitor, way, self->object, CLOCK_MONOTONIC, &time);
		} else {
			ret = way->wait_until_async(self->object, CLOCK_MONOTONIC, &time,
						    &counted.op);
		}
		visitor_start(&behind, way, self->object);
		giver_continue(&giver);
		linger(round);
		if (round % 2) {
			ret = visitor_join(&visitor);
		} else if (ret == EINPROGRESS) {
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			ret = leave(way, self->object, counted.result);
		}
		if (ret) {
			timed_out++;
			ASSERT_EQ(ETIMEDOUT, ret);
		} else if (!way->give_back) {
			ASSERT_EQ(0, give_next(way, self->object));
		}
		ASSERT_EQ(0, runner_join(&giver.runner));
		ASSERT_EQ(0, visitor_join(&behind));
		ASSERT_EQ(way->give_back || way->lets_all_go ? 0 : ETIMEDOUT,
			  take(way, self->object));
		ASSERT_EQ(0, leave(way, self->object, 0));
		ASSERT_EQ(0, way->destroy(self->object));
	}
	TH_LOG("%d of %d timed out", timed_out, round);
}

OBJECT_TEST(L5_a_wait_is_neither_interrupted_nor_cancelled)
{
	struct timespec time = in_time(CLOCK_REALTIME, 3600 * 1000);
	struct sigaction action = { .sa_handler = ignore_signal };
	const struct way *way = variant->object.way;
	struct visitor visitors[2];
	int i;

	if (way->cancels)
		SKIP(return, "tested in sem.c");
	sigaction(SIGUSR1, &action, NULL);
	visitor_start(&visitors[0], way, self->object);
	visitor_start_until(&visitors[1], way, self->object, CLOCK_REALTIME, &time);
	await_sleepers(way, self->object, variant->object.kind, 2);
	for (i = 0; i < 10; i++) {
		pthread_kill(visitors[i % 2].runner.thread, SIGUSR1);
		await_sleepers(way, self->object, variant->object.kind, 2);
	}
	for (i = 0; i < 2; i++)
		pthread_cancel(visitors[i].runner.thread);
	ASSERT_EQ(0, way->give(self->object));
	if (!way->give_back) {
		ASSERT_EQ(0, give_next(way, self->object));
	}
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, visitor_join(&visitors[i]));
		EXPECT_EQ(1, visitors[i].runner.done);
	}
	EXPECT_EQ(0, way->destroy(self->object));
}

/*
 * A child inherits the object but not the loop. Returns 0, or the number of the step that failed.
 */
static int use_as_child(const struct way *way, void *object, memwait_loop_t *loop_of_parent,
			struct counted_op *of_parent)
{
	struct counted_op counted = { 0 };
	memwait_loop_t *loop;

	if (memwait_op_cancel(&of_parent->op) != -EPERM ||
	    memwait_loop_dispatch(loop_of_parent, MEMWAIT_ALL) != -EPERM)
		return 1;
	memwait_op_init(&counted.op, loop_of_parent, count_call, &counted);
	if (way->wait_async(object, &counted.op) != EPERM)
		return 2;
	if (memwait_loop_new(&loop, 0))
		return 3;
	memwait_op_init(&counted.op, loop, count_call, &counted);
	if (way->wait_async(object, &counted.op) != EINPROGRESS)
		return 4;
	if (dispatch_until(loop, &counted.calls, 1) || leave(way, object, counted.result))
		return 5;
	return leave(way, object, way->wait(object)) || memwait_loop_close(loop) ? 6 : 0;
}

OBJECT_TEST(L1_a_child_uses_the_object_and_not_the_loop)
{
	const struct way *way = variant->object.way;
	struct counted_op counted = counted_by(&counted, self->loop);
	memwait_sem_t other = { 0 };
	pid_t child;

	if (is_private(&variant->object))
		SKIP(return, "a private object");
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(&other, &counted.op));
	child = run_in_child(use_as_child(way, self->object, self->loop, &counted));
	await_sleepers(way, self->object, variant->object.kind, 1);
	ASSERT_EQ(0, way->give(self->object));
	if (!way->give_back) {
		ASSERT_EQ(0, give_next(way, self->object));
	}
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(0, way->destroy(self->object));
	/* The parent's operation is not affected. */
	EXPECT_EQ(1, memwait_op_pending(&counted.op));
	ASSERT_EQ(0, memwait_sem_post(&other));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
}

static int begin_and_stay(const struct way *way, void *object)
{
	struct counted_op counted = { 0 };
	memwait_loop_t *loop;

	if (memwait_loop_new(&loop, 0))
		return 1;
	memwait_op_init(&counted.op, loop, count_call, &counted);
	if (way->wait_async(object, &counted.op) != EINPROGRESS)
		return 2;
	stay();
}

OBJECT_TEST(L7_waiting_processes_that_are_killed_take_nothing)
{
	const struct way *way = variant->object.way;
	struct visitor behind;
	pid_t children[2];
	int round, i;

	if (first_excludes(&variant->object) || is_private(&variant->object))
		SKIP(return, "it stays locked, or is private");
	for (round = 0; round < 20; round++) {
		ASSERT_EQ(0, way->make(self->object, variant->object.kind));
		for (i = 0; i < 2; i++) {
			children[i] = run_in_child(i ? begin_and_stay(way, self->object) :
						   way->wait(self->object));
			await_sleepers(way, self->object, variant->object.kind, i + 1);
		}
		visitor_start(&behind, way, self->object);
		await_sleepers(way, self->object, variant->object.kind, 3);
		for (i = 0; i < 2; i++)
			ASSERT_EQ(128 + SIGKILL, kill_child(children[i]));
		await_sleepers(way, self->object, variant->object.kind, 1);
		ASSERT_EQ(0, way->give(self->object));
		ASSERT_EQ(0, visitor_join(&behind));
		if (!way->counts_killed)
			ASSERT_EQ(way->busy_if_killed ? EBUSY : 0, way->destroy(self->object));
	}
}

/*
 * If a process dies before it dispatches a completed operation, the object passes to the next
 * waiter.
 */
OBJECT_TEST(L3_a_killed_process_with_a_completed_operation_passes_it_on)
{
	const struct way *way = variant->object.way;
	struct visitor behind;
	pid_t child;
	int round;

	if (dead_excludes(&variant->object) || is_private(&variant->object))
		SKIP(return, "the dead waiter holds it, or it is private");
	for (round = 0; round < 20; round++) {
		ASSERT_EQ(0, way->make(self->object, variant->object.kind));
		child = run_in_child(begin_and_stay(way, self->object));
		await_sleepers(way, self->object, variant->object.kind, 1);
		visitor_start(&behind, way, self->object);
		await_sleepers(way, self->object, variant->object.kind, 2);
		ASSERT_EQ(0, way->give(self->object));
		if (is_fifo(&variant->object)) {
			EXPECT_FALSE(runner_is_done(&behind.runner));
		}
		ASSERT_EQ(128 + SIGKILL, kill_child(child));
		ASSERT_EQ(0, visitor_join(&behind));
		if (!way->counts_killed)
			ASSERT_EQ(way->busy_if_killed ? EBUSY : 0, way->destroy(self->object));
	}
}

TEST_HARNESS_MAIN
