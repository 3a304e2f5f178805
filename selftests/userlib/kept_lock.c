// SPDX-License-Identifier: GPL-2.0
/*
 * R12: a mutex that is kept for a waiter that has lost too often. Who comes only then sleeps beside
 * it for a while, and not beyond its own deadline, by whichever clock.
 */
#include "userlib_test.h"
#include "ioctl_test.h"

/* As lock.c has it. */
#define KEPT_NS		(10 * NSEC_PER_MSEC)

/* The first waits of a thread that comes, and when it came and began to wait. */
struct comer {
	memwait_mutex_t *mutex;
	clockid_t clock;
	struct timespec time;
	struct memwait_wait wait, next;
	uint64_t before, now;
	int waits;
	bool is_outrun;		/* somebody else has the lock when it has waited */
};

static __thread struct comer *comer;

static int intercept(int fd, unsigned long request, void *argument)
{
	struct memwait_wait *wait = argument;
	int ret;

	if (!comer || request != MEMWAIT_IOC_WAIT)
		return ioctl_of_kernel(fd, request, argument);
	if (comer->waits++) {
		/* It is over soon. */
		comer->next = *wait;
		wait->deadline = 1;
		return ioctl_of_kernel(fd, request, argument);
	}
	comer->now = now_ns(CLOCK_MONOTONIC);
	comer->wait = *wait;
	ret = ioctl_of_kernel(fd, request, argument);
	if (comer->is_outrun)
		must(memwait_mutex_trylock(comer->mutex));
	return ret;
}

static int come(void *arg)
{
	int err;

	comer = arg;
	comer->before = now_ns(CLOCK_MONOTONIC);
	err = memwait_mutex_clocklock(comer->mutex, comer->clock, &comer->time);
	return err ? err : memwait_mutex_unlock(comer->mutex);
}

/* For an operation, which has lost too often, and whose loop does not run now. */
static void keep(memwait_loop_t *loop, memwait_mutex_t *mutex, memwait_op_t *op)
{
	must(memwait_mutex_lock(mutex));
	must(memwait_mutex_lock_async(mutex, op) != EINPROGRESS);
	while (!is_late(mutex)) {
		must(memwait_mutex_unlock(mutex));
		must(memwait_mutex_trylock(mutex));
		must(memwait_loop_dispatch(loop, MEMWAIT_ALL) != 0);
	}
	must(memwait_mutex_unlock(mutex));
}

/* Until it has a completion. */
static void await_readable(memwait_loop_t *loop)
{
	struct pollfd fd = { .fd = memwait_loop_fd(loop), .events = POLLIN };

	must(poll(&fd, 1, -1) != 1);
}

USERLIB_TEST(R12_R4_who_comes_beside_a_kept_lock_keeps_its_deadline)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	static const long times[] = { 3, 3600 * 1000 };		/* ms */
	struct counted_op counted = counted_by(&counted, self->loop);
	uint64_t ahead, deadline;
	memwait_mutex_t *mutex = self->shared;
	struct comer comer;
	int i, ret;

	for (i = 0; i < 4; i++) {
		comer = (struct comer){ .mutex = mutex, .clock = clocks[i % 2] };
		ASSERT_EQ(0, memwait_mutex_init(mutex, 0));
		counted.calls = 0;
		keep(self->loop, mutex, &counted.op);
		/* By how much CLOCK_REALTIME is ahead, at least. */
		ahead = now_ns(CLOCK_REALTIME);
		ahead -= now_ns(CLOCK_MONOTONIC);
		comer.time = in_time(comer.clock, times[i / 2]);
		deadline = comer.time.tv_sec * NSEC_PER_SEC + comer.time.tv_nsec;
		if (comer.clock == CLOCK_REALTIME)
			deadline -= ahead;
		ret = elsewhere(come, &comer);
		EXPECT_TRUE(!ret || ret == ETIMEDOUT);
		/* It has slept at all, on the clock of what it is kept for: */
		ASSERT_TRUE(comer.waits);
		EXPECT_EQ(0, comer.wait.flags & MEMWAIT_CLOCK_REALTIME);
		EXPECT_GE(comer.now + KEPT_NS, comer.wait.deadline);
		/* if it is far, for as long as the lock is kept, else until its deadline. */
		if (i / 2) {
			EXPECT_EQ(0, ret);
			EXPECT_LE(comer.before + KEPT_NS, comer.wait.deadline);
		} else {
			EXPECT_GE(deadline > comer.now ? deadline : comer.now, comer.wait.deadline);
		}
		/* It took the lock, and left it to the operation. */
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
}

/* Who has waited beside it, and does not get it then, waits on until its own deadline. */
USERLIB_TEST(R4_who_has_come_beside_a_kept_lock_waits_by_its_own_clock)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct counted_op counted = counted_by(&counted, self->loop);
	memwait_mutex_t *mutex = self->shared;
	struct comer comer;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(clocks); i++) {
		comer = (struct comer){ .mutex = mutex, .clock = clocks[i], .is_outrun = true };
		ASSERT_EQ(0, memwait_mutex_init(mutex, 0));
		counted.calls = 0;
		keep(self->loop, mutex, &counted.op);
		comer.time = in_time(clocks[i], 3600 * 1000);
		EXPECT_EQ(ETIMEDOUT, elsewhere(come, &comer));
		EXPECT_EQ(2, comer.waits);
		EXPECT_EQ(clocks[i] == CLOCK_REALTIME ? MEMWAIT_CLOCK_REALTIME : 0,
			  comer.next.flags & MEMWAIT_CLOCK_REALTIME);
		EXPECT_EQ(comer.time.tv_sec * NSEC_PER_SEC + comer.time.tv_nsec,
			  comer.next.deadline);
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
}

/* As lock.c has it. */
#define LATE_AFTER	8

/* It has no deadline, so the end of its giving way is none, though the lock has a reader then. */
USERLIB_TEST(R12_L0_a_writer_that_gave_way_waits_for_the_readers)
{
	static const unsigned int kinds[] = { 0, MEMWAIT_PRIVATE };
	struct counted_op late = counted_by(&late, self->loop), writer;
	memwait_rwlock_t *lock = self->shared;
	memwait_loop_t *loop;
	size_t i;
	int n;

	ASSERT_EQ(0, memwait_loop_new(&loop, 0));
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		late.calls = 0;
		writer = counted_by(&writer, loop);
		ASSERT_EQ(0, memwait_rwlock_init(lock, kinds[i]));
		ASSERT_EQ(0, memwait_rwlock_wrlock(lock));
		ASSERT_EQ(EINPROGRESS, memwait_rwlock_wrlock_async(lock, &late.op));
		for (n = 0; n < LATE_AFTER; n++) {
			ASSERT_EQ(0, memwait_rwlock_unlock(lock));
			ASSERT_EQ(0, memwait_rwlock_wrlock(lock));
			ASSERT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		}
		ASSERT_EQ(0, memwait_rwlock_unlock(lock));
		/* It is free, and kept for the late one; a reader passes. */
		ASSERT_EQ(0, memwait_rwlock_rdlock(lock));
		ASSERT_EQ(EINPROGRESS, memwait_rwlock_wrlock_async(lock, &writer.op));
		await_readable(loop);
		EXPECT_EQ(0, memwait_loop_dispatch(loop, MEMWAIT_ALL));
		EXPECT_EQ(1, memwait_op_pending(&writer.op));
		EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		ASSERT_EQ(0, dispatch_until(self->loop, &late.calls, 1));
		EXPECT_EQ(0, late.result);
		EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		ASSERT_EQ(0, dispatch_until(loop, &writer.calls, 1));
		EXPECT_EQ(0, writer.result);
		EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		EXPECT_EQ(0, memwait_rwlock_destroy(lock));
	}
	EXPECT_EQ(0, memwait_loop_close(loop));
}

TEST_HARNESS_MAIN
