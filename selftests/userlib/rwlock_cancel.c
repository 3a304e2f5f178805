// SPDX-License-Identifier: GPL-2.0
/*
 * L3, L7: if a waiter for a read-write lock gives up or dies, the other waiters acquire the lock.
 */
#include "rwlock_test.h"

/* Readers and writers are cancelled at the gate or while they wait for readers. */
USERLIB_TEST(L3_cancel_races_with_unlock)
{
	struct shared *shared = self->shared;
	struct counted_op counted = { 0 };
	struct runner unlocker, behind;
	int round, held, wanted, ret, taken_back = 0;

	for (round = 0; more_rounds(round, ROUNDS) || !taken_back; round++) {
		memset(shared, 0, sizeof(*shared));
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		/* The holder makes later waiters wait at the gate. */
		ASSERT_EQ(0, memwait_rwlock_init(&shared->lock, MEMWAIT_RWLOCK_PREFER_WRITER));
		held = round % 2;
		wanted = round / 2 % 2;
		if (held) {
			ASSERT_EQ(0, memwait_rwlock_wrlock(&shared->lock));
		} else {
			ASSERT_EQ(0, memwait_rwlock_rdlock(&shared->lock));
		}
		ret = wanted || !held ?
			memwait_rwlock_wrlock_async(&shared->lock, &counted.op) :
			memwait_rwlock_rdlock_async(&shared->lock, &counted.op);
		ASSERT_EQ(EINPROGRESS, ret);
		runner_start(&behind, round % 3 ? write_once : read_once, shared);
		await_waiters(self->fd, &shared->lock, U32_SIZE, held ? 2 : 1);
		runner_race(&unlocker, memwait_rwlock_unlock, &shared->lock);
		linger(round);
		if (round % 5 > 2)
			memwait_loop_dispatch(self->loop, MEMWAIT_ALL);
		if (!memwait_op_cancel(&counted.op)) {
			taken_back++;
			ASSERT_EQ(0, counted.calls);
		} else {
			ASSERT_EQ(1, counted.calls);
			ASSERT_EQ(0, counted.result);
			ASSERT_EQ(0, memwait_rwlock_unlock(&shared->lock));
		}
		ASSERT_EQ(0, runner_join(&unlocker));
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, shared->violations);
		ASSERT_EQ(0, memwait_rwlock_destroy(&shared->lock));
	}
	TH_LOG("%d of %d cancelled", taken_back, round);
}

/* The writer gives up. The readers behind it do not wait for the earlier reader. */
USERLIB_TEST(L3_readers_enter_when_the_waiting_writer_is_cancelled)
{
	struct counted_op reading = counted_by(&reading, self->loop);
	struct counted_op writer = counted_by(&writer, self->loop);
	struct shared *shared = self->shared;
	memwait_rwlock_t *lock = &shared->lock;
	struct runner reader;

	ASSERT_EQ(0, memwait_rwlock_init(lock, MEMWAIT_RWLOCK_PREFER_WRITER));
	ASSERT_EQ(0, memwait_rwlock_rdlock(lock));
	ASSERT_EQ(EINPROGRESS, memwait_rwlock_wrlock_async(lock, &writer.op));
	EXPECT_EQ(1, memwait_waiters(state_of(lock), 0));
	EXPECT_EQ(EBUSY, memwait_rwlock_tryrdlock(lock));
	runner_start(&reader, read_once, shared);
	await_waiters(self->fd, gate_of(lock), U32_SIZE, 1);
	ASSERT_EQ(EINPROGRESS, memwait_rwlock_rdlock_async(lock, &reading.op));

	EXPECT_EQ(0, memwait_op_cancel(&writer.op));
	EXPECT_EQ(0, runner_join(&reader));
	ASSERT_EQ(0, dispatch_until(self->loop, &reading.calls, 1));
	EXPECT_EQ(0, reading.result);
	EXPECT_EQ(0, memwait_rwlock_tryrdlock(lock));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(EPERM, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, writer.calls);
	EXPECT_EQ(0, memwait_rwlock_destroy(lock));
}

USERLIB_TEST(L3_a_cancelled_completed_operation_passes_the_lock_on)
{
	struct counted_op behind = counted_by(&behind, self->loop);
	struct counted_op first = counted_by(&first, self->loop);
	struct shared *shared = self->shared;
	memwait_rwlock_t *lock = &shared->lock;
	struct runner thread;
	int turn, writing, ret;
	const void *gate;

	for (turn = 0; turn < 2 * (int)ARRAY_SIZE(kinds); turn++) {
		writing = turn % 2;
		/* If the lock is FAIR, the operation already has the gate. */
		ASSERT_EQ(0, memwait_rwlock_init(lock, kinds[turn / 2]));
		ASSERT_EQ(0, memwait_rwlock_wrlock(lock));
		ret = writing ? memwait_rwlock_wrlock_async(lock, &first.op) :
			memwait_rwlock_rdlock_async(lock, &first.op);
		ASSERT_EQ(EINPROGRESS, ret);
		behind.calls = 0;
		ASSERT_EQ(EINPROGRESS, memwait_rwlock_wrlock_async(lock, &behind.op));
		runner_start(&thread, write_once, shared);
		gate = sleep_word(gate_of(lock), kinds[turn / 2]);
		await_waiters(self->fd, gate, 0, 3);
		ASSERT_EQ(0, memwait_rwlock_unlock(lock));
		EXPECT_EQ(2, memwait_waiters(gate, 0));
		EXPECT_EQ(0, memwait_op_cancel(&first.op));
		ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 1));
		EXPECT_EQ(0, behind.result);
		EXPECT_EQ(EBUSY, memwait_rwlock_tryrdlock(lock));
		EXPECT_FALSE(runner_is_done(&thread));
		EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		EXPECT_EQ(0, runner_join(&thread));
		EXPECT_EQ(0, memwait_rwlock_destroy(lock));
	}
	/* The last reader has left for this writer. */
	ASSERT_EQ(0, memwait_rwlock_rdlock(lock));
	ASSERT_EQ(EINPROGRESS, memwait_rwlock_wrlock_async(lock, &first.op));
	runner_start(&thread, read_once, shared);
	await_waiters(self->fd, gate, 0, 1);
	ASSERT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(0, runner_join(&thread));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, first.calls);
	EXPECT_EQ(0, shared->violations);
	EXPECT_EQ(0, memwait_rwlock_trywrlock(lock));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_destroy(lock));
}

/* A waiter that timed out holds no part of the lock, and no later waiter sleeps because of it. */
USERLIB_TEST(L3_a_deadline_races_with_unlock)
{
	struct timed timed = { .shared = self->shared, .clock = CLOCK_MONOTONIC };
	memwait_rwlock_t *lock = &timed.shared->lock;
	struct runner runner, behind;
	int round, ret, timed_out = 0;

	for (round = 0; more_rounds(round, ROUNDS); round++) {
		ASSERT_EQ(0, memwait_rwlock_init(lock, kinds[round / 6 % ARRAY_SIZE(kinds)]));
		ret = round % 3 ? memwait_rwlock_wrlock(lock) : memwait_rwlock_rdlock(lock);
		ASSERT_EQ(0, ret);
		timed.time = in_time(CLOCK_MONOTONIC, 0);
		timed.time.tv_nsec += 1000 * (100 + round % 300);
		if (timed.time.tv_nsec >= 1000000000) {
			timed.time.tv_sec++;
			timed.time.tv_nsec -= 1000000000;
		}
		runner_start(&runner, round % 3 == 1 ? read_timed : write_timed, &timed);
		runner_start(&behind, round % 2 ? read_once : write_once, timed.shared);
		linger(round);
		ASSERT_EQ(0, memwait_rwlock_unlock(lock));
		ret = runner_join(&runner);
		if (ret) {
			timed_out++;
			ASSERT_EQ(ETIMEDOUT, ret);
		}
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, timed.shared->violations);
		ASSERT_EQ(EPERM, memwait_rwlock_unlock(lock));
		ASSERT_EQ(0, memwait_rwlock_destroy(lock));
	}
	TH_LOG("%d of %d timed out", timed_out, round);
}

USERLIB_TEST(L7_waiters_killed_at_the_gate_leave_it_to_others)
{
	struct shared *shared = self->shared;
	struct runner reader, writer;
	const void *gate;
	pid_t children[3];
	int round, i;

	for (round = 0; round < 20; round++) {
		memset(shared, 0, sizeof(*shared));
		ASSERT_EQ(0, memwait_rwlock_init(&shared->lock, kinds[round % ARRAY_SIZE(kinds)]));
		ASSERT_EQ(0, memwait_rwlock_wrlock(&shared->lock));
		gate = sleep_word(gate_of(&shared->lock), kinds[round % ARRAY_SIZE(kinds)]);
		for (i = 0; i < 3; i++) {
			children[i] = fork_child();
			if (!children[i]) {
				struct counted_op counted = { 0 };
				memwait_loop_t *loop;

				if (i < 2)
					_exit(i ? read_once(shared) : write_once(shared));
				/* The waiter is an operation. */
				if (memwait_loop_new(&loop, 0))
					_exit(1);
				memwait_op_init(&counted.op, loop, count_call, &counted);
				if (memwait_rwlock_rdlock_async(&shared->lock, &counted.op) !=
				    EINPROGRESS)
					_exit(1);
				stay();
			}
			await_waiters(self->fd, gate, 0, i + 1);
		}
		runner_start(&reader, read_once, shared);
		runner_start(&writer, write_once, shared);
		await_waiters(self->fd, gate, 0, 5);
		for (i = 0; i < 3; i++)
			ASSERT_EQ(128 + SIGKILL, kill_child(children[i]));
		await_waiters(self->fd, gate, 0, 2);
		ASSERT_EQ(0, memwait_rwlock_unlock(&shared->lock));
		ASSERT_EQ(0, runner_join(&reader));
		ASSERT_EQ(0, runner_join(&writer));
		ASSERT_EQ(1, shared->a);
		ASSERT_EQ(0, shared->violations);
		ASSERT_EQ(0, memwait_rwlock_destroy(&shared->lock));
	}
}

TEST_HARNESS_MAIN
