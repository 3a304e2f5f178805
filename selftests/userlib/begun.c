// SPDX-License-Identifier: GPL-2.0
/*
 * Once the callback of an operation has begun, another thread cannot cancel the operation, and the
 * owner of the operation may begin it again. The dispatching thread must therefore not access the
 * operation after that, however late it runs the callback. The same applies to a thread that runs
 * the callback immediately.
 */
#include "userlib_test.h"

static memwait_op_t *to_free;	/* freed once the loop is unlocked */
static int cancel_result;		/* result of memwait_op_cancel() */

static int cancel_and_free(void *arg)
{
	memwait_op_t *op = arg;
	int ret = memwait_op_cancel(op);

	memset(op, 0xa5, sizeof(*op));
	return ret;
}

/*
 * The library calls this function to enable cancellation after it has unlocked a loop. No thread is
 * cancelled in this test.
 */
int pthread_setcancelstate(int state, int *old)
{
	memwait_op_t *op = to_free;
	struct runner runner;

	if (old)
		*old = PTHREAD_CANCEL_ENABLE;
	if (state == PTHREAD_CANCEL_ENABLE && op) {
		to_free = NULL;
		runner_start(&runner, cancel_and_free, op);
		cancel_result = runner_join(&runner);
	}
	return 0;
}

USERLIB_TEST(an_operation_whose_callback_has_begun_is_not_accessed)
{
	memwait_mutex_t *mutex = self->shared;
	struct counted_op counted;
	uint32_t word = 0;
	int executes, immediately;

	ASSERT_EQ(0, memwait_mutex_init(mutex, 0));
	for (executes = 0; executes < 3; executes++) {
		immediately = executes == 2;
		memset(&counted, 0, sizeof(counted));
		ASSERT_EQ(0, memwait_op_init(&counted.op, self->loop, count_call, &counted));
		if (immediately) {
			/* The mutex is free. */
		} else if (executes) {
			ASSERT_EQ(0, memwait_mutex_lock(mutex));
			ASSERT_EQ(EINPROGRESS, memwait_mutex_execute_locked(mutex, &counted.op));
			ASSERT_EQ(0, memwait_mutex_unlock(mutex));
		} else {
			ASSERT_EQ(MEMWAIT_PENDING,
				  memwait_wait32_async(&word, 0, NULL, 0, &counted.op));
			ASSERT_EQ(1, memwait_notify(&word, 1, 0));
		}
		cancel_result = -1;
		to_free = &counted.op;
		if (immediately) {
			ASSERT_EQ(0, memwait_mutex_execute_locked(mutex, &counted.op));
		} else {
			ASSERT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		}
		EXPECT_EQ(-EINPROGRESS, cancel_result);
		EXPECT_EQ(1, counted.calls);
		EXPECT_EQ(0, counted.result);
	}
	/* The holders have unlocked the mutex. */
	EXPECT_EQ(0, memwait_mutex_trylock(mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
}

TEST_HARNESS_MAIN
