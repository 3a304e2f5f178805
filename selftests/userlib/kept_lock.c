// SPDX-License-Identifier: GPL-2.0
/*
 * R12: a mutex that is reserved for a waiter that has lost it too often. A later caller first
 * sleeps for some time although the mutex is free, but not beyond its own deadline, on any clock.
 */
#include "userlib_test.h"
#include "ioctl_test.h"

/* The value is the same as in lock.c. */
#define RESERVED_NS		(10 * NSEC_PER_MSEC)

/*
 * A later caller: its first waits, the time when it was called, and the time when it began to wait.
 */
struct later {
	memwait_mutex_t *mutex;
	clockid_t clock;
	struct timespec time;
	struct memwait_wait wait, next;
	uint64_t before, now;
	int waits;
	bool is_overtaken;		/* another thread holds the lock after its first wait */
};

static __thread struct later *later;

static int intercept(int fd, unsigned long request, void *argument)
{
	struct memwait_wait *wait = argument;
	int ret;

	if (!later || request != MEMWAIT_IOC_WAIT)
		return ioctl_of_kernel(fd, request, argument);
	if (later->waits++) {
		/* The caller's first wait must end soon. */
		later->next = *wait;
		wait->deadline = 1;
		return ioctl_of_kernel(fd, request, argument);
	}
	later->now = now_ns(CLOCK_MONOTONIC);
	later->wait = *wait;
	ret = ioctl_of_kernel(fd, request, argument);
	if (later->is_overtaken)
		must(memwait_mutex_trylock(later->mutex));
	return ret;
}

static int lock_later(void *arg)
{
	int err;

	later = arg;
	later->before = now_ns(CLOCK_MONOTONIC);
	err = memwait_mutex_clocklock(later->mutex, later->clock, &later->time);
	return err ? err : memwait_mutex_unlock(later->mutex);
}

/* Makes the operation late: it has lost the mutex too often, and its loop is not running now. */
static void make_late(memwait_loop_t *loop, memwait_mutex_t *mutex, memwait_op_t *op)
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

/* Returns when the loop has a completion. */
static void await_readable(memwait_loop_t *loop)
{
	struct pollfd fd = { .fd = memwait_loop_fd(loop), .events = POLLIN };

	must(poll(&fd, 1, -1) != 1);
}

USERLIB_TEST(R12_R4_a_caller_of_a_reserved_lock_meets_its_deadline)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	static const long times[] = { 3, 3600 * 1000 };		/* ms */
	struct counted_op counted = counted_by(&counted, self->loop);
	uint64_t ahead, deadline;
	memwait_mutex_t *mutex = self->shared;
	struct later later;
	int i, ret;

	for (i = 0; i < 4; i++) {
		later = (struct later){ .mutex = mutex, .clock = clocks[i % 2] };
		ASSERT_EQ(0, memwait_mutex_init(mutex, 0));
		counted.calls = 0;
		make_late(self->loop, mutex, &counted.op);
		/* A lower bound of the difference between CLOCK_REALTIME and CLOCK_MONOTONIC. */
		ahead = now_ns(CLOCK_REALTIME);
		ahead -= now_ns(CLOCK_MONOTONIC);
		later.time = in_time(later.clock, times[i / 2]);
		deadline = later.time.tv_sec * NSEC_PER_SEC + later.time.tv_nsec;
		if (later.clock == CLOCK_REALTIME)
			deadline -= ahead;
		ret = elsewhere(lock_later, &later);
		EXPECT_TRUE(!ret || ret == ETIMEDOUT);
		/*
		 * The caller has slept, on the clock of the reservation. If its deadline is far
		 * away, it has slept for as long as the lock was reserved.
		 */
		ASSERT_TRUE(later.waits);
		EXPECT_EQ(0, later.wait.flags & MEMWAIT_CLOCK_REALTIME);
		EXPECT_GE(later.now + RESERVED_NS, later.wait.deadline);
		if (i / 2) {
			EXPECT_EQ(0, ret);
			EXPECT_LE(later.before + RESERVED_NS, later.wait.deadline);
		} else {
			EXPECT_GE(deadline > later.now ? deadline : later.now, later.wait.deadline);
		}
		/* The caller acquired the lock and left it to the operation. */
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
}

/*
 * A caller that does not get the lock after the sleep on a reserved lock waits until its own
 * deadline.
 */
USERLIB_TEST(R4_a_caller_of_a_reserved_lock_waits_by_its_own_clock)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct counted_op counted = counted_by(&counted, self->loop);
	memwait_mutex_t *mutex = self->shared;
	struct later later;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(clocks); i++) {
		later = (struct later){ .mutex = mutex, .clock = clocks[i], .is_overtaken = true };
		ASSERT_EQ(0, memwait_mutex_init(mutex, 0));
		counted.calls = 0;
		make_late(self->loop, mutex, &counted.op);
		later.time = in_time(clocks[i], 3600 * 1000);
		EXPECT_EQ(ETIMEDOUT, elsewhere(lock_later, &later));
		EXPECT_EQ(2, later.waits);
		EXPECT_EQ(clocks[i] == CLOCK_REALTIME ? MEMWAIT_CLOCK_REALTIME : 0,
			  later.next.flags & MEMWAIT_CLOCK_REALTIME);
		EXPECT_EQ(later.time.tv_sec * NSEC_PER_SEC + later.time.tv_nsec,
			  later.next.deadline);
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
}

/* The value is the same as in lock.c. */
#define LATE_AFTER	8

/*
 * The writer has no deadline, so it is no error if its sleep on the reserved lock ends while a
 * reader holds the lock.
 */
USERLIB_TEST(R12_L0_a_writer_that_yielded_waits_for_the_readers)
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
		/*
		 * The lock is free and reserved for the late operation, but a reader acquires it
		 * first.
		 */
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
