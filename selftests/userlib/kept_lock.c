// SPDX-License-Identifier: GPL-2.0
/*
 * R12: a mutex that is kept for a waiter that has lost too often. Who comes only then sleeps beside
 * it for a while, and not beyond its own deadline, by whichever clock.
 */
#include "userlib_test.h"
#include "ioctl_test.h"

/* As lock.c has it. */
#define KEPT_NS		(10 * NSEC_PER_MSEC)

/* The first wait of a thread that comes, and when it began. */
struct comer {
	memwait_mutex_t *mutex;
	clockid_t clock;
	struct timespec time;
	struct memwait_wait wait;
	uint64_t now;
	bool waits;
};

static __thread struct comer *comer;

static int intercept(int fd, unsigned long request, void *argument)
{
	if (comer && request == MEMWAIT_IOC_WAIT && !comer->waits) {
		comer->now = now_ns(CLOCK_MONOTONIC);
		memcpy(&comer->wait, argument, sizeof(comer->wait));
		comer->waits = true;
	}
	return ioctl_of_kernel(fd, request, argument);
}

static int come(void *arg)
{
	int err;

	comer = arg;
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

USERLIB_TEST(R12_R4_who_comes_beside_a_kept_lock_keeps_its_deadline)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	static const long times[] = { 3, 3600 * 1000 };		/* ms */
	struct counted_op counted = counted_by(&counted, self->loop);
	uint64_t before, ahead, deadline;
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
		before = now_ns(CLOCK_MONOTONIC);
		ahead -= before;
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
			EXPECT_LE(before + KEPT_NS, comer.wait.deadline);
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

TEST_HARNESS_MAIN
