// SPDX-License-Identifier: GPL-2.0
/*
 * L2: a wake-up that fails, as when the program has closed the descriptor and can open none. What
 * was unlocked or posted says so still, and the next operation wakes those who wait.
 */
#include "userlib_test.h"
#include "ioctl_test.h"

/* No ioctl of this thread is done. */
static __thread bool fails;

static int intercept(int fd, unsigned long request, void *argument)
{
	if (!fails)
		return ioctl_of_kernel(fd, request, argument);
	errno = EMFILE;
	return -1;
}

static const unsigned int kinds[] = {
	MEMWAIT_MUTEX_NORMAL, MEMWAIT_PRIVATE,
	MEMWAIT_MUTEX_FAIR, MEMWAIT_MUTEX_FAIR | MEMWAIT_PRIVATE,
	MEMWAIT_MUTEX_RECURSIVE, MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_PRIVATE,
	MEMWAIT_MUTEX_ROBUST, MEMWAIT_MUTEX_ROBUST | MEMWAIT_PRIVATE,
};

static int lock_and_unlock(void *arg)
{
	return memwait_mutex_lock(arg) ?: memwait_mutex_unlock(arg);
}

/* An operation that comes next, and gets the mutex. */
static int lock_next(memwait_mutex_t *mutex, int how, memwait_loop_t *loop)
{
	struct timespec later = in_time(CLOCK_MONOTONIC, 3600 * 1000);
	struct counted_op counted = { 0 };
	int ret;

	switch (how) {
	case 0:
		return memwait_mutex_lock(mutex);
	case 1:
		return memwait_mutex_trylock(mutex);
	case 2:
		return memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &later);
	default:
		memwait_op_init(&counted.op, loop, count_call, &counted);
		ret = memwait_mutex_lock_async(mutex, &counted.op);
		if (ret == EINPROGRESS)
			ret = dispatch_until(loop, &counted.calls, 1) ?: counted.result;
		return ret;
	}
}

USERLIB_TEST(L2_an_unlock_that_wakes_nobody_is_made_up_for)
{
	memwait_mutex_t *mutex = self->shared;
	struct runner waiters[2];
	int ret, how;
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		for (how = 0; how < 4; how++) {
			ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[i]));
			ASSERT_EQ(0, memwait_mutex_lock(mutex));
			for (j = 0; j < ARRAY_SIZE(waiters); j++) {
				runner_start(&waiters[j], lock_and_unlock, mutex);
				while (memwait_waiters(mutex, kinds[i] & MEMWAIT_PRIVATE) <= (int)j)
					usleep(100);
			}
			fails = true;
			ret = memwait_mutex_unlock(mutex);
			fails = false;
			EXPECT_EQ(EMFILE, ret);
			TH_LOG("kind 0x%x, by operation %d", kinds[i], how);
			EXPECT_EQ(0, lock_next(mutex, how, self->loop));
			EXPECT_EQ(0, memwait_mutex_unlock(mutex));
			for (j = 0; j < ARRAY_SIZE(waiters); j++)
				EXPECT_EQ(0, runner_join(&waiters[j]));
			EXPECT_EQ(0, memwait_mutex_destroy(mutex));
		}
	}
}

USERLIB_TEST(L2_a_wait_for_a_condition_that_cannot_wake_is_made_up_for)
{
	struct {
		memwait_mutex_t mutex;
		memwait_cond_t cond;
	} *both = self->shared;
	struct runner waiter;
	size_t i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		TH_LOG("kind 0x%x", kinds[i]);
		ASSERT_EQ(0, memwait_mutex_init(&both->mutex, kinds[i]));
		ASSERT_EQ(0, memwait_cond_init(&both->cond, kinds[i] & MEMWAIT_PRIVATE));
		ASSERT_EQ(0, memwait_mutex_lock(&both->mutex));
		runner_start(&waiter, lock_and_unlock, &both->mutex);
		while (!memwait_waiters(&both->mutex, kinds[i] & MEMWAIT_PRIVATE))
			usleep(100);
		fails = true;
		ret = memwait_cond_wait(&both->cond, &both->mutex);
		fails = false;
		EXPECT_EQ(EMFILE, ret);
		EXPECT_EQ(0, memwait_mutex_unlock(&both->mutex));
		EXPECT_EQ(0, runner_join(&waiter));
		EXPECT_EQ(0, memwait_cond_destroy(&both->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&both->mutex));
	}
}

static int wait_for_post(void *arg)
{
	return memwait_sem_wait(arg);
}

USERLIB_TEST(L2_a_post_that_wakes_nobody_is_made_up_for)
{
	memwait_sem_t *sem = self->shared;
	struct runner waiters[2];
	int pshared, ret, i;

	for (pshared = 0; pshared < 2; pshared++) {
		ASSERT_EQ(0, memwait_sem_init(sem, pshared, 0));
		for (i = 0; i < 2; i++) {
			runner_start(&waiters[i], wait_for_post, sem);
			while (memwait_waiters(sem, pshared ? 0 : MEMWAIT_PRIVATE) <= i)
				usleep(100);
		}
		fails = true;
		ret = memwait_sem_post(sem);
		fails = false;
		EXPECT_EQ(EMFILE, ret);
		EXPECT_EQ(0, memwait_sem_post(sem));
		for (i = 0; i < 2; i++)
			EXPECT_EQ(0, runner_join(&waiters[i]));
		EXPECT_EQ(0, memwait_sem_destroy(sem));
	}
}

TEST_HARNESS_MAIN
