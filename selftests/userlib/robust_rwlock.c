// SPDX-License-Identifier: GPL-2.0
/* Read-write locks: the death of a writer, and the effect of a dead reader. */
#include "robust_test.h"

enum {
	RDLOCK, TRYRDLOCK, TIMEDRDLOCK, CLOCKRDLOCK, RDLOCK_ASYNC, CLOCKRDLOCK_ASYNC,
	WRLOCK, TRYWRLOCK, TIMEDWRLOCK, CLOCKWRLOCK, WRLOCK_ASYNC, CLOCKWRLOCK_ASYNC, RW_WAYS
};

struct entering {
	int way;
	int ms;
	memwait_rwlock_t *rwlock;
	int result;
	int exclusive;		/* no other reader could acquire the lock */
	int given_back;
	int calls;
	memwait_op_t op;
};

ADAPTER(rdlock_it, void *rwlock, memwait_rwlock_rdlock(rwlock))
ADAPTER(wrlock_it, void *rwlock, memwait_rwlock_wrlock(rwlock))
ADAPTER(trywrlock_it, void *rwlock, memwait_rwlock_trywrlock(rwlock))
ADAPTER(unlock_rwlock, void *rwlock, memwait_rwlock_unlock(rwlock))
ADAPTER(make_rwlock_consistent, void *rwlock, memwait_rwlock_consistent(rwlock))

/* Fails if the lock is held for writing. */
ADAPTER(look_in, void *rwlock, memwait_rwlock_tryrdlock(rwlock) ?: memwait_rwlock_unlock(rwlock))
ADAPTER(lock_and_unlock_rwlock, void *rwlock, memwait_rwlock_wrlock(rwlock) ?:
	memwait_rwlock_unlock(rwlock))

static void leave_rwlock(struct entering *entering)
{
	int err = 0;

	if (entering->result && entering->result != EOWNERDEAD)
		return;
	entering->exclusive = elsewhere(look_in, entering->rwlock) == EBUSY;
	if (entering->result == EOWNERDEAD)
		err = memwait_rwlock_consistent(entering->rwlock);
	if (!err)
		err = memwait_rwlock_unlock(entering->rwlock);
	entering->given_back = err;
}

static void has_entered(memwait_op_t *op, int result, void *data)
{
	struct entering *entering = data;

	entering->result = result;
	entering->calls++;
	leave_rwlock(entering);
}

static void entering_init(struct entering *entering, memwait_loop_t *loop,
			  memwait_rwlock_t *rwlock, int way)
{
	memset(entering, 0, sizeof(*entering));
	entering->rwlock = rwlock;
	entering->way = way;
	entering->ms = HOUR;
	memwait_op_init(&entering->op, loop, has_entered, entering);
}

static int begin_to_enter(struct entering *entering)
{
	struct timespec wall = in_time(CLOCK_REALTIME, entering->ms);
	struct timespec time = in_time(CLOCK_MONOTONIC, entering->ms);
	memwait_rwlock_t *rwlock = entering->rwlock;

	switch (entering->way) {
	case RDLOCK:
		return memwait_rwlock_rdlock(rwlock);
	case TRYRDLOCK:
		return memwait_rwlock_tryrdlock(rwlock);
	case TIMEDRDLOCK:
		return memwait_rwlock_timedrdlock(rwlock, &wall);
	case CLOCKRDLOCK:
		return memwait_rwlock_clockrdlock(rwlock, CLOCK_MONOTONIC, &time);
	case RDLOCK_ASYNC:
		return memwait_rwlock_rdlock_async(rwlock, &entering->op);
	case CLOCKRDLOCK_ASYNC:
		return memwait_rwlock_clockrdlock_async(rwlock, CLOCK_MONOTONIC, &time,
							&entering->op);
	case WRLOCK:
		return memwait_rwlock_wrlock(rwlock);
	case TRYWRLOCK:
		return memwait_rwlock_trywrlock(rwlock);
	case TIMEDWRLOCK:
		return memwait_rwlock_timedwrlock(rwlock, &wall);
	case CLOCKWRLOCK:
		return memwait_rwlock_clockwrlock(rwlock, CLOCK_MONOTONIC, &time);
	case WRLOCK_ASYNC:
		return memwait_rwlock_wrlock_async(rwlock, &entering->op);
	default:
		return memwait_rwlock_clockwrlock_async(rwlock, CLOCK_MONOTONIC, &time,
							&entering->op);
	}
}

static int enter_and_leave(void *arg)
{
	struct entering *entering = arg;
	int ret;

	entering->calls = 0;
	entering->given_back = -1;
	ret = begin_to_enter(entering);
	if (ret == EINPROGRESS)
		return ret;
	entering->result = ret;
	leave_rwlock(entering);
	return ret;
}

static bool enters_by_loop(int way)
{
	return way == RDLOCK_ASYNC || way == CLOCKRDLOCK_ASYNC || way == WRLOCK_ASYNC ||
	       way == CLOCKWRLOCK_ASYNC;
}

static const unsigned int rwlock_kinds[] = {
	MEMWAIT_RWLOCK_ROBUST, MEMWAIT_RWLOCK_ROBUST | MEMWAIT_PRIVATE,
	MEMWAIT_RWLOCK_ROBUST | MEMWAIT_RWLOCK_PREFER_WRITER,
};

ROBUST_TEST(L6_a_lock_after_a_writers_death_holds_it_for_writing)
{
	memwait_rwlock_t *rwlock = &self->shared->rwlock;
	struct entering entering;
	struct owner owner;
	int kind, how, way;

	for (kind = 0; kind < (int)ARRAY_SIZE(rwlock_kinds); kind++) {
		for (how = 0; how < ENDS && can_be_used_by(rwlock_kinds[kind], how); how++) {
			for (way = 0; way < RW_WAYS; way++) {
				ASSERT_EQ(0, memwait_rwlock_init(rwlock, rwlock_kinds[kind]));
				ASSERT_EQ(0, owner_start(&owner, self->shared->holds, how,
							 wrlock_it, rwlock));
				EXPECT_EQ(EBUSY, memwait_rwlock_tryrdlock(rwlock));
				EXPECT_EQ(EBUSY, memwait_rwlock_trywrlock(rwlock));
				EXPECT_EQ(EBUSY, memwait_rwlock_destroy(rwlock));
				owner_end(&owner);
				entering_init(&entering, self->loop, rwlock, way);
				EXPECT_EQ(EOWNERDEAD, enter_and_leave(&entering)) {
					TH_LOG("kind %d, end %d, way %d", kind, how, way);
				}
				EXPECT_EQ(1, entering.exclusive);
				EXPECT_EQ(0, entering.given_back);
				EXPECT_EQ(0, enter_and_leave(&entering));
				EXPECT_EQ(way >= WRLOCK, entering.exclusive);
				EXPECT_EQ(0, entering.given_back);
				EXPECT_EQ(0, memwait_rwlock_destroy(rwlock));
				owner_reap(&owner);
			}
		}
	}
}

/* A reader and a writer are queued behind the waiter. */
ROBUST_TEST(L6_a_waiter_at_a_writers_death_holds_it_for_writing)
{
	memwait_rwlock_t *rwlock = &self->shared->rwlock;
	struct entering entering[3];
	struct runner runners[3];
	struct owner owner;
	int kind, how, way, i;

	for (kind = 0; kind < (int)ARRAY_SIZE(rwlock_kinds); kind++) {
		for (how = 0; how < ENDS && can_be_used_by(rwlock_kinds[kind], how); how++) {
			for (way = 0; way < RW_WAYS; way++) {
				if (way == TRYRDLOCK || way == TRYWRLOCK)
					continue;
				ASSERT_EQ(0, memwait_rwlock_init(rwlock, rwlock_kinds[kind]));
				ASSERT_EQ(0, owner_start(&owner, self->shared->holds, how,
							 wrlock_it, rwlock));
				entering_init(&entering[0], self->loop, rwlock, way);
				entering_init(&entering[1], self->loop, rwlock, RDLOCK);
				entering_init(&entering[2], self->loop, rwlock, WRLOCK);
				for (i = 0; i < 3; i++) {
					if (!i && enters_by_loop(way)) {
						ASSERT_EQ(EINPROGRESS,
							  enter_and_leave(&entering[0]));
						continue;
					}
					runner_start(&runners[i], enter_and_leave, &entering[i]);
					runner_await_asleep(&runners[i]);
				}
				owner_end(&owner);
				if (enters_by_loop(way)) {
					ASSERT_EQ(0, dispatch_until(self->loop, &entering[0].calls,
								    1));
				} else {
					runner_join(&runners[0]);
				}
				EXPECT_EQ(EOWNERDEAD, entering[0].result) {
					TH_LOG("kind %d, end %d, way %d", kind, how, way);
				}
				EXPECT_EQ(1, entering[0].exclusive);
				EXPECT_EQ(0, entering[0].given_back);
				for (i = 1; i < 3; i++) {
					EXPECT_EQ(0, runner_join(&runners[i]));
					EXPECT_EQ(0, entering[i].given_back);
				}
				EXPECT_EQ(0, memwait_rwlock_destroy(rwlock));
				owner_reap(&owner);
			}
		}
	}
}

ROBUST_TEST(L6_a_rwlock_that_is_not_recoverable)
{
	static const int blocked[] = { RDLOCK, WRLOCK, TIMEDRDLOCK, CLOCKWRLOCK };
	static const int pending[] = { RDLOCK_ASYNC, WRLOCK_ASYNC, CLOCKRDLOCK_ASYNC,
				       CLOCKWRLOCK_ASYNC };
	memwait_rwlock_t *rwlock = &self->shared->rwlock;
	struct entering threads[4], ops[4], later;
	struct runner runners[4];
	struct owner owner;
	int kind, i;

	for (kind = 0; kind < (int)ARRAY_SIZE(rwlock_kinds); kind++) {
		ASSERT_EQ(0, memwait_rwlock_init(rwlock, rwlock_kinds[kind]));
		ASSERT_EQ(0, owner_start(&owner, self->shared->holds,
					 rwlock_kinds[kind] & MEMWAIT_PRIVATE ? THREAD_ENDS :
					 IS_KILLED, wrlock_it, rwlock));
		owner_end_and_reap(&owner);
		ASSERT_EQ(EOWNERDEAD, memwait_rwlock_rdlock(rwlock));
		for (i = 0; i < 4; i++) {
			entering_init(&threads[i], self->loop, rwlock, blocked[i]);
			runner_start(&runners[i], enter_and_leave, &threads[i]);
			runner_await_asleep(&runners[i]);
			entering_init(&ops[i], self->loop, rwlock, pending[i]);
			ASSERT_EQ(EINPROGRESS, enter_and_leave(&ops[i]));
		}
		EXPECT_EQ(0, memwait_rwlock_unlock(rwlock));
		for (i = 0; i < 4; i++) {
			EXPECT_EQ(ENOTRECOVERABLE, runner_join(&runners[i]));
			ASSERT_EQ(0, dispatch_until(self->loop, &ops[i].calls, 1));
			EXPECT_EQ(ENOTRECOVERABLE, ops[i].result);
		}
		for (i = 0; i < RW_WAYS; i++) {
			entering_init(&later, self->loop, rwlock, i);
			EXPECT_EQ(ENOTRECOVERABLE, enter_and_leave(&later)) {
				TH_LOG("kind %d, way %d", kind, i);
			}
			EXPECT_EQ(0, later.calls);
		}
		EXPECT_EQ(EPERM, memwait_rwlock_unlock(rwlock));
		EXPECT_EQ(EINVAL, memwait_rwlock_consistent(rwlock));
		EXPECT_EQ(0, memwait_rwlock_destroy(rwlock));
		ASSERT_EQ(0, memwait_rwlock_init(rwlock, rwlock_kinds[kind]));
		EXPECT_EQ(0, lock_and_unlock_rwlock(rwlock));
	}
}

ROBUST_TEST(L6_errors_of_rwlock_consistent)
{
	static const unsigned int not_robust[] = { 0, MEMWAIT_RWLOCK_FAIR, MEMWAIT_PRIVATE };
	memwait_rwlock_t *rwlock = &self->shared->rwlock;
	struct owner owner;
	size_t i;

	EXPECT_EQ(EINVAL, memwait_rwlock_consistent(NULL));
	for (i = 0; i < ARRAY_SIZE(not_robust); i++) {
		ASSERT_EQ(0, memwait_rwlock_init(rwlock, not_robust[i]));
		EXPECT_EQ(EINVAL, memwait_rwlock_consistent(rwlock));
		EXPECT_EQ(0, memwait_rwlock_wrlock(rwlock));
		EXPECT_EQ(EINVAL, memwait_rwlock_consistent(rwlock));
		EXPECT_EQ(0, memwait_rwlock_unlock(rwlock));
	}
	ASSERT_EQ(0, memwait_rwlock_init(rwlock, MEMWAIT_RWLOCK_ROBUST));
	EXPECT_EQ(EINVAL, memwait_rwlock_consistent(rwlock));
	EXPECT_EQ(0, memwait_rwlock_rdlock(rwlock));
	EXPECT_EQ(EINVAL, memwait_rwlock_consistent(rwlock));
	EXPECT_EQ(0, memwait_rwlock_unlock(rwlock));
	EXPECT_EQ(0, memwait_rwlock_wrlock(rwlock));
	EXPECT_EQ(EINVAL, memwait_rwlock_consistent(rwlock));
	EXPECT_EQ(EPERM, elsewhere(unlock_rwlock, rwlock));
	EXPECT_EQ(EPERM, in_child(unlock_rwlock, rwlock));
	EXPECT_EQ(0, memwait_rwlock_unlock(rwlock));
	EXPECT_EQ(EPERM, memwait_rwlock_unlock(rwlock));

	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, wrlock_it, rwlock));
	EXPECT_EQ(EINVAL, memwait_rwlock_consistent(rwlock));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EINVAL, memwait_rwlock_consistent(rwlock));
	EXPECT_EQ(EPERM, memwait_rwlock_unlock(rwlock));
	EXPECT_EQ(EOWNERDEAD, memwait_rwlock_rdlock(rwlock));
	EXPECT_EQ(EPERM, elsewhere(make_rwlock_consistent, rwlock));
	EXPECT_EQ(EPERM, elsewhere(unlock_rwlock, rwlock));
	EXPECT_EQ(EBUSY, elsewhere(trywrlock_it, rwlock));
	EXPECT_EQ(0, memwait_rwlock_consistent(rwlock));
	EXPECT_EQ(EINVAL, memwait_rwlock_consistent(rwlock));
	EXPECT_EQ(0, memwait_rwlock_unlock(rwlock));
	EXPECT_EQ(0, elsewhere(lock_and_unlock_rwlock, rwlock));
	EXPECT_EQ(0, memwait_rwlock_destroy(rwlock));

	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, wrlock_it, rwlock));
	EXPECT_EQ(EBUSY, memwait_rwlock_destroy(rwlock));
	owner_end_and_reap(&owner);
	EXPECT_EQ(0, memwait_rwlock_destroy(rwlock));
}

/* The dead reader counts forever: others can read, but no thread can write. */
ROBUST_TEST(L7_a_reader_dies)
{
	memwait_rwlock_t *rwlock = &self->shared->rwlock;
	struct entering entering;
	struct owner owner;

	ASSERT_EQ(0, memwait_rwlock_init(rwlock, MEMWAIT_RWLOCK_ROBUST));
	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, rdlock_it, rwlock));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EBUSY, memwait_rwlock_trywrlock(rwlock));
	entering_init(&entering, self->loop, rwlock, CLOCKWRLOCK);
	entering.ms = 20;
	EXPECT_EQ(ETIMEDOUT, enter_and_leave(&entering));
	/* A writer that gave up does not block readers. */
	EXPECT_EQ(0, memwait_rwlock_rdlock(rwlock));
	EXPECT_EQ(0, elsewhere(look_in, rwlock));
	EXPECT_EQ(0, memwait_rwlock_unlock(rwlock));
	EXPECT_EQ(EBUSY, memwait_rwlock_destroy(rwlock));
	/* A program that knows that the reader is dead can unlock the lock on its behalf. */
	EXPECT_EQ(0, memwait_rwlock_unlock(rwlock));
	EXPECT_EQ(0, lock_and_unlock_rwlock(rwlock));
	EXPECT_EQ(0, memwait_rwlock_destroy(rwlock));
}

/* A reader or writer dies while it waits for another writer. Later waiters acquire the lock. */
ROBUST_TEST(L7_a_waiter_for_a_writer_dies)
{
	static int (*const ways[])(void *rwlock) = { rdlock_it, wrlock_it };
	memwait_rwlock_t *rwlock = &self->shared->rwlock;
	struct entering entering[2];
	struct runner runners[2];
	int robust, way, i;
	pid_t pid;

	for (robust = 0; robust < 2; robust++) {
		for (way = 0; way < 2; way++) {
			ASSERT_EQ(0, memwait_rwlock_init(rwlock, robust ? MEMWAIT_RWLOCK_ROBUST :
							 0));
			ASSERT_EQ(0, memwait_rwlock_wrlock(rwlock));
			pid = run_in_child(ways[way](rwlock));
			await_asleep(pid);
			for (i = 0; i < 2; i++) {
				entering_init(&entering[i], self->loop, rwlock,
					      i ? CLOCKWRLOCK : CLOCKRDLOCK);
				entering[i].ms = HALF_A_MINUTE;
				runner_start(&runners[i], enter_and_leave, &entering[i]);
				runner_await_asleep(&runners[i]);
			}
			EXPECT_EQ(128 + SIGKILL, kill_child(pid));
			EXPECT_EQ(0, memwait_rwlock_unlock(rwlock));
			for (i = 0; i < 2; i++) {
				EXPECT_EQ(0, runner_join(&runners[i])) {
					TH_LOG("robust %d, way %d, %d", robust, way, i);
				}
				EXPECT_EQ(0, entering[i].given_back);
			}
			EXPECT_EQ(0, memwait_rwlock_destroy(rwlock));
		}
	}
}

/*
 * The waiting writer has excluded later readers, and dies. Other threads cannot know that the
 * writer had not begun to write.
 */
ROBUST_TEST(L6_a_writer_that_waits_for_readers_dies)
{
	static const int ways[] = { CLOCKRDLOCK, CLOCKWRLOCK, CLOCKRDLOCK_ASYNC,
				    CLOCKWRLOCK_ASYNC };
	memwait_rwlock_t *rwlock = &self->shared->rwlock;
	struct entering entering;
	struct runner runner;
	bool times_out;
	pid_t pid;
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(ways); i++) {
		const int way = ways[i / 2];

		times_out = i % 2;
		ASSERT_EQ(0, memwait_rwlock_init(rwlock, MEMWAIT_RWLOCK_ROBUST |
						 MEMWAIT_RWLOCK_PREFER_WRITER));
		ASSERT_EQ(0, memwait_rwlock_rdlock(rwlock));
		pid = run_in_child(memwait_rwlock_wrlock(rwlock));
		await_asleep(pid);
		EXPECT_EQ(EBUSY, memwait_rwlock_tryrdlock(rwlock));
		EXPECT_EQ(128 + SIGKILL, kill_child(pid));

		/* If a waiter gives up before the reader has left, this has no effect. */
		entering_init(&entering, self->loop, rwlock, way);
		entering.ms = 10;
		if (times_out) {
			int ret = enter_and_leave(&entering);

			if (ret == EINPROGRESS) {
				ASSERT_EQ(0, dispatch_until(self->loop, &entering.calls, 1));
				ret = entering.result;
			}
			EXPECT_EQ(ETIMEDOUT, ret);
		}
		EXPECT_EQ(EBUSY, memwait_rwlock_trywrlock(rwlock));
		EXPECT_EQ(EBUSY, memwait_rwlock_destroy(rwlock));
		entering.ms = HALF_A_MINUTE;
		if (enters_by_loop(way)) {
			ASSERT_EQ(EINPROGRESS, enter_and_leave(&entering));
		} else {
			runner_start(&runner, enter_and_leave, &entering);
			runner_await_asleep(&runner);
		}
		EXPECT_EQ(0, memwait_rwlock_unlock(rwlock));
		if (enters_by_loop(way)) {
			ASSERT_EQ(0, dispatch_until(self->loop, &entering.calls, 1));
		} else {
			runner_join(&runner);
		}
		EXPECT_EQ(EOWNERDEAD, entering.result) {
			TH_LOG("way %d, times out %d", way, times_out);
		}
		EXPECT_EQ(1, entering.exclusive);
		EXPECT_EQ(0, entering.given_back);
		EXPECT_EQ(0, lock_and_unlock_rwlock(rwlock));
		EXPECT_EQ(0, memwait_rwlock_destroy(rwlock));
	}
}

TEST_HARNESS_MAIN
