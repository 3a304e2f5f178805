// SPDX-License-Identifier: GPL-2.0
/* L6: mutexes whose owners die. */
#include "robust_mutex_test.h"

ROBUST_TEST(L6_init_accepts_robust_kinds)
{
	const unsigned int good[] = { 0, MEMWAIT_MUTEX_RECURSIVE, MEMWAIT_MUTEX_ERRORCHECK };
	memwait_mutex_t *mutex = &self->shared->mutex;
	unsigned int private, bit;
	size_t i;

	EXPECT_EQ(PTHREAD_MUTEX_RECURSIVE_NP, MEMWAIT_MUTEX_RECURSIVE);
	EXPECT_EQ(PTHREAD_MUTEX_ERRORCHECK_NP, MEMWAIT_MUTEX_ERRORCHECK);
	for (private = 0; private <= MEMWAIT_PRIVATE; private += MEMWAIT_PRIVATE) {
		for (i = 0; i < ARRAY_SIZE(good); i++) {
			const unsigned int kind = good[i] | private;

			EXPECT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST | kind));
			EXPECT_EQ(0, memwait_mutex_destroy(mutex));
			EXPECT_EQ(EINVAL, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST |
							     MEMWAIT_MUTEX_FAIR | kind));
		}
		EXPECT_EQ(EINVAL, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST | private |
						     MEMWAIT_MUTEX_RECURSIVE |
						     MEMWAIT_MUTEX_ERRORCHECK));
		EXPECT_EQ(0, memwait_rwlock_init(&self->shared->rwlock,
						 MEMWAIT_RWLOCK_ROBUST | private));
		EXPECT_EQ(EINVAL, memwait_rwlock_init(&self->shared->rwlock, MEMWAIT_RWLOCK_ROBUST |
						      MEMWAIT_RWLOCK_FAIR | private));
	}
	for (bit = MEMWAIT_MUTEX_ROBUST << 1; bit; bit <<= 1) {
		if (bit == MEMWAIT_PRIVATE)
			continue;
		EXPECT_EQ(EINVAL, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST | bit));
		EXPECT_EQ(bit == MEMWAIT_RWLOCK_PREFER_WRITER ? 0 : EINVAL,
			  memwait_rwlock_init(&self->shared->rwlock, MEMWAIT_RWLOCK_ROBUST | bit));
	}
}

/*
 * While no owner dies, a robust mutex works like any mutex, between threads and between processes.
 */
ROBUST_TEST(L6_a_robust_mutex_is_a_mutex)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct timespec soon;
	int kind;

	for (kind = 0; kind < KINDS; kind++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(EBUSY, elsewhere(trylock_it, mutex));
		EXPECT_EQ(EPERM, elsewhere(unlock_it, mutex));
		EXPECT_EQ(EBUSY, memwait_mutex_destroy(mutex));
		if (!(kinds[kind] & MEMWAIT_PRIVATE)) {
			EXPECT_EQ(EBUSY, in_child(trylock_it, mutex));
			EXPECT_EQ(EPERM, in_child(unlock_it, mutex));
		}
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
		soon = in_time(CLOCK_MONOTONIC, -1);
		EXPECT_EQ(0, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_trylock(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
	EXPECT_EQ(EINVAL, memwait_mutex_consistent(NULL));
}

static int visit_often(void *arg)
{
	struct shared *shared = arg;
	int i, err;

	for (i = 0; i < ROUNDS; i++) {
		err = memwait_mutex_lock(&shared->mutex);
		if (err)
			return err;
		visit(shared);
		err = memwait_mutex_unlock(&shared->mutex);
		if (err)
			return err;
	}
	return 0;
}

ROBUST_TEST(L6_threads_and_processes_exclude_each_other)
{
	struct shared *shared = self->shared;
	struct runner runners[2];
	int kind, i;
	pid_t pids[2];

	for (kind = 0; kind < KINDS; kind++) {
		memset(shared, 0, sizeof(*shared));
		ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, kinds[kind]));
		for (i = 0; i < 2; i++) {
			if (!(kinds[kind] & MEMWAIT_PRIVATE)) {
				pids[i] = run_in_child(visit_often(shared));
			}
			runner_start(&runners[i], visit_often, shared);
		}
		for (i = 0; i < 2; i++) {
			EXPECT_EQ(0, runner_join(&runners[i]));
			if (!(kinds[kind] & MEMWAIT_PRIVATE)) {
				EXPECT_EQ(0, child_status(pids[i]));
			}
		}
		EXPECT_EQ((kinds[kind] & MEMWAIT_PRIVATE ? 2L : 4L) * ROUNDS, shared->counter);
		EXPECT_EQ(0, shared->violations);
		EXPECT_EQ(0, memwait_mutex_destroy(&shared->mutex));
	}
}

/* Tests each way to lock after each way to die. */
ROBUST_TEST(L6_a_lock_after_the_death_returns_eownerdead)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct getting getting;
	struct owner owner;
	int kind, how, way;

	for (kind = 0; kind < KINDS; kind++) {
		for (how = 0; how < ENDS; how++) {
			for (way = 0; way < WAYS && can_be_used_by(kinds[kind], how); way++) {
				ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
				ASSERT_EQ(0, owner_start(&owner, self->shared->holds, how, lock_it,
							 mutex));
				EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
				owner_end(&owner);

				getting_init(&getting, self->loop, mutex, way);
				EXPECT_EQ(EOWNERDEAD, get_and_give_back(&getting)) {
					TH_LOG("kind %x, end %d, way %d", kinds[kind], how, way);
				}
				EXPECT_EQ(0, getting.given_back);
				EXPECT_EQ(way == EXECUTE, getting.calls);
				EXPECT_EQ(0, memwait_op_pending(&getting.op));
				/* The mutex works again. */
				EXPECT_EQ(0, get_and_give_back(&getting));
				EXPECT_EQ(0, getting.given_back);
				EXPECT_EQ(0, memwait_mutex_destroy(mutex));
				owner_reap(&owner);
			}
		}
	}
}

/* A deadline that has passed does not prevent the result EOWNERDEAD, which needs no wait. */
ROBUST_TEST(L6_a_deadline_that_has_passed_gets_eownerdead)
{
	static const int ways[] = { TIMEDLOCK, CLOCKLOCK, CLOCK_ASYNC };
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct getting getting;
	struct owner owner;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, lock_it, mutex));
		getting_init(&getting, self->loop, mutex, ways[i]);
		getting.ms = -1;
		EXPECT_EQ(ETIMEDOUT, get_and_give_back(&getting));
		owner_end(&owner);
		EXPECT_EQ(EOWNERDEAD, get_and_give_back(&getting));
		EXPECT_EQ(0, getting.given_back);
		owner_reap(&owner);
	}
}

/* Tests each way to wait with each way to die. Another waiter is queued behind the waiter. */
ROBUST_TEST(L6_a_waiter_at_the_death_gets_eownerdead)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct getting first, second;
	struct runner runners[2];
	int kind, how, way;
	struct owner owner;

	for (kind = 0; kind < KINDS; kind++) {
		for (how = 0; how < ENDS; how++) {
			for (way = 0; way < WAYS && can_be_used_by(kinds[kind], how); way++) {
				unsigned int private = kinds[kind] & MEMWAIT_PRIVATE;

				if (way == TRYLOCK)
					continue;
				ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
				ASSERT_EQ(0, owner_start(&owner, self->shared->holds, how, lock_it,
							 mutex));
				getting_init(&first, self->loop, mutex, way);
				getting_init(&second, self->loop, mutex, LOCK);
				if (is_async(way)) {
					ASSERT_EQ(EINPROGRESS, get_and_give_back(&first));
				} else {
					runner_start(&runners[0], get_and_give_back, &first);
				}
				/* Waiters sleep on the first word of the mutex. */
				await_waiters(self->fd, mutex, private, 1);
				runner_start(&runners[1], get_and_give_back, &second);
				await_waiters(self->fd, mutex, private, 2);

				owner_end(&owner);
				if (is_async(way)) {
					ASSERT_EQ(0, dispatch_until(self->loop, &first.calls, 1));
				} else {
					runner_join(&runners[0]);
				}
				runner_join(&runners[1]);
				EXPECT_EQ(EOWNERDEAD, first.result) {
					TH_LOG("kind %x, end %d, way %d", kinds[kind], how, way);
				}
				EXPECT_EQ(0, first.given_back);
				EXPECT_EQ(0, second.result);
				EXPECT_EQ(0, second.given_back);
				EXPECT_EQ(0, memwait_mutex_destroy(mutex));
				owner_reap(&owner);
			}
		}
	}
}

/* Stays after the unlock: the end of the thread would also wake the next waiter. */
static int repair_and_stay(void *arg)
{
	struct shared *shared = arg;
	int err = memwait_mutex_lock(&shared->mutex);

	if (err == EOWNERDEAD)
		err = memwait_mutex_consistent(&shared->mutex) ?:
		      memwait_mutex_unlock(&shared->mutex);
	sleep_until(get(&shared->go));
	return err;
}

ROBUST_TEST(L6_the_next_owner_wakes_the_waiter_behind_it)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct runner first, second;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, lock_it, mutex));
	runner_start(&first, repair_and_stay, self->shared);
	await_waiters(self->fd, mutex, 0, 1);
	runner_start(&second, lock_and_unlock, mutex);
	await_waiters(self->fd, mutex, 0, 2);
	owner_end(&owner);
	EXPECT_EQ(0, runner_join(&second));
	set(&self->shared->go, 1);
	EXPECT_EQ(0, runner_join(&first));
	EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	owner_reap(&owner);
}

/* If a new owner dies before it has made the mutex consistent, the next owner must do that. */
ROBUST_TEST(L6_the_next_owner_dies_before_consistent)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct getting getting;
	struct runner runner;
	struct owner owners[3];
	int i, kind;

	for (kind = 0; kind < 3; kind++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		/* Each owner locks after the death of the previous owner. */
		for (i = 0; i < 3; i++) {
			ASSERT_EQ(i ? EOWNERDEAD : 0,
				  owner_start(&owners[i], &self->shared->holds[i],
					      i % 2 ? THREAD_ENDS : IS_KILLED, lock_it, mutex));
			owner_end_and_reap(&owners[i]);
		}
		getting_init(&getting, self->loop, mutex, LOCK);
		EXPECT_EQ(EOWNERDEAD, get_and_give_back(&getting));
		EXPECT_EQ(0, getting.given_back);
		EXPECT_EQ(0, get_and_give_back(&getting));
	}

	/* Each owner already waits when the previous owner dies. */
	ASSERT_EQ(0, owner_start(&owners[0], &self->shared->holds[0], IS_KILLED, lock_it, mutex));
	for (i = 1; i < 3; i++) {
		owner_begin(&owners[i], &self->shared->holds[i], IS_KILLED, lock_it, mutex, 1);
		await_waiters(self->fd, mutex, 0, i);
	}
	getting_init(&getting, self->loop, mutex, LOCK);
	runner_start(&runner, get_and_give_back, &getting);
	await_waiters(self->fd, mutex, 0, 3);
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(i ? EOWNERDEAD : 0, owner_result(&owners[i]));
		EXPECT_FALSE(runner_is_done(&runner));
		owner_end_and_reap(&owners[i]);
	}
	EXPECT_EQ(EOWNERDEAD, runner_join(&runner));
	EXPECT_EQ(0, getting.given_back);
	EXPECT_EQ(0, memwait_mutex_destroy(mutex));
}

static int lock_and_repair(void *mutex)
{
	int err = memwait_mutex_lock(mutex);

	return err == EOWNERDEAD ? memwait_mutex_consistent(mutex) : err;
}

/* The result depends only on the last owner and on whether it held the mutex. */
ROBUST_TEST(L6_the_next_owner_dies_after_consistent)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct getting getting;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	getting_init(&getting, self->loop, mutex, LOCK);
	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, lock_it, mutex));
	owner_end_and_reap(&owner);
	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, lock_and_repair, mutex));
	EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EOWNERDEAD, get_and_give_back(&getting));
	EXPECT_EQ(0, getting.given_back);
	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, lock_and_unlock, mutex));
	owner_end_and_reap(&owner);
	EXPECT_EQ(0, get_and_give_back(&getting));
}

/*
 * Locks the mutex after its owner's death, unlocks it while it is inconsistent when @go is 1, and
 * ends when @go is 2.
 */
static int lock_and_unlock_inconsistent(void *arg)
{
	struct shared *shared = arg;
	int err;

	shared->result = memwait_mutex_lock(&shared->mutex);
	set(&shared->there, 1);
	await(&shared->go);
	err = memwait_mutex_unlock(&shared->mutex);
	sleep_until(get(&shared->go) >= 2);
	return err;
}

#define BLOCKED		3	/* threads, each of which waits in a different way */
#define PENDING		3	/* operations */

/* Both waiters and later callers get ENOTRECOVERABLE. */
ROBUST_TEST(L6_a_mutex_unlocked_inconsistent_is_not_recoverable)
{
	static const int blocked[BLOCKED] = { LOCK, TIMEDLOCK, CLOCKLOCK };
	static const int pending[PENDING] = { ASYNC, CLOCK_ASYNC, EXECUTE };
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct getting threads[BLOCKED], ops[PENDING], later;
	struct runner runners[BLOCKED], next;
	struct shared *shared = self->shared;
	struct owner owner;
	int kind, i;

	for (kind = 0; kind < KINDS; kind++) {
		unsigned int private = kinds[kind] & MEMWAIT_PRIVATE;

		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		ASSERT_EQ(0, owner_start(&owner, shared->holds, private ? THREAD_ENDS : IS_KILLED,
					 lock_it, mutex));
		owner_end_and_reap(&owner);
		shared->there = 0;
		shared->go = 0;
		runner_start(&next, lock_and_unlock_inconsistent, shared);
		await(&shared->there);
		EXPECT_EQ(EOWNERDEAD, shared->result);
		for (i = 0; i < BLOCKED; i++) {
			getting_init(&ops[i], self->loop, mutex, pending[i]);
			ASSERT_EQ(EINPROGRESS, get_and_give_back(&ops[i]));
			getting_init(&threads[i], self->loop, mutex, blocked[i]);
			runner_start(&runners[i], get_and_give_back, &threads[i]);
			await_waiters(self->fd, mutex, private, 2 * (i + 1));
		}

		set(&shared->go, 1);
		/* The threads do not depend on the loop, which is not running. */
		for (i = 0; i < BLOCKED; i++)
			EXPECT_EQ(ENOTRECOVERABLE, runner_join(&runners[i]));
		for (i = 0; i < PENDING; i++) {
			ASSERT_EQ(0, dispatch_until(self->loop, &ops[i].calls, 1));
			EXPECT_EQ(ENOTRECOVERABLE, ops[i].result);
		}
		set(&shared->go, 2);
		EXPECT_EQ(0, runner_join(&next));
		for (i = 0; i < WAYS; i++) {
			getting_init(&later, self->loop, mutex, i);
			EXPECT_EQ(ENOTRECOVERABLE, get_and_give_back(&later));
			EXPECT_EQ(0, later.calls);
			later.ms = -1;
			EXPECT_EQ(ENOTRECOVERABLE, get_and_give_back(&later));
			EXPECT_EQ(0, memwait_op_pending(&later.op));
		}
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
		EXPECT_EQ(EINVAL, memwait_mutex_consistent(mutex));
		EXPECT_EQ(ENOTRECOVERABLE, memwait_mutex_lock(mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
		/* The memory can be used again. */
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		EXPECT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	}
}

/* The callback must make the mutex consistent; otherwise it is unlocked while inconsistent. */
ROBUST_TEST(L6_execute_locked_unlocks_an_inconsistent_mutex)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct getting getting, later;
	struct owner owner;
	int repairs, comes_before;

	for (repairs = 0; repairs < 2; repairs++) {
		for (comes_before = 0; comes_before < 2; comes_before++) {
			ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
			ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, lock_it,
						 mutex));
			getting_init(&getting, self->loop, mutex, EXECUTE);
			getting.leave_broken = !repairs;
			if (comes_before) {
				EXPECT_EQ(EINPROGRESS, get_and_give_back(&getting));
			}
			owner_end_and_reap(&owner);
			if (comes_before) {
				ASSERT_EQ(0, dispatch_until(self->loop, &getting.calls, 1));
			} else {
				EXPECT_EQ(EOWNERDEAD, get_and_give_back(&getting));
			}
			EXPECT_EQ(1, getting.calls);
			EXPECT_EQ(EOWNERDEAD, getting.result);
			EXPECT_EQ(0, getting.given_back);
			getting_init(&later, self->loop, mutex, LOCK);
			EXPECT_EQ(repairs ? 0 : ENOTRECOVERABLE, get_and_give_back(&later));
			EXPECT_EQ(0, memwait_mutex_destroy(mutex));
		}
	}
}

ROBUST_TEST(L6_errors_of_consistent)
{
	static const unsigned int not_robust[] = {
		MEMWAIT_MUTEX_NORMAL, MEMWAIT_MUTEX_RECURSIVE, MEMWAIT_MUTEX_ERRORCHECK,
		MEMWAIT_MUTEX_FAIR, MEMWAIT_MUTEX_FAIR | MEMWAIT_MUTEX_RECURSIVE, MEMWAIT_PRIVATE,
	};
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct owner owner;
	size_t i;

	EXPECT_EQ(EINVAL, memwait_mutex_consistent(NULL));
	for (i = 0; i < ARRAY_SIZE(not_robust); i++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, not_robust[i]));
		EXPECT_EQ(EINVAL, memwait_mutex_consistent(mutex));
		EXPECT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(EINVAL, memwait_mutex_consistent(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	}
	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	EXPECT_EQ(EINVAL, memwait_mutex_consistent(mutex));
	EXPECT_EQ(0, memwait_mutex_lock(mutex));
	EXPECT_EQ(EINVAL, memwait_mutex_consistent(mutex));
	EXPECT_EQ(EINVAL, elsewhere(make_it_consistent, mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));

	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, lock_it, mutex));
	EXPECT_EQ(EINVAL, memwait_mutex_consistent(mutex));
	owner_end_and_reap(&owner);
	/* The mutex must be locked before it can be made consistent. */
	EXPECT_EQ(EINVAL, memwait_mutex_consistent(mutex));
	EXPECT_EQ(EOWNERDEAD, memwait_mutex_lock(mutex));
	EXPECT_EQ(EPERM, elsewhere(make_it_consistent, mutex));
	EXPECT_EQ(EPERM, in_child(make_it_consistent, mutex));
	EXPECT_EQ(EPERM, elsewhere(unlock_it, mutex));
	EXPECT_EQ(EBUSY, elsewhere(trylock_it, mutex));
	EXPECT_EQ(0, memwait_mutex_consistent(mutex));
	EXPECT_EQ(EINVAL, memwait_mutex_consistent(mutex));
	EXPECT_EQ(EBUSY, elsewhere(trylock_it, mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, elsewhere(lock_and_unlock, mutex));

	/* The mutex is inconsistent, and its owner has died again. */
	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, lock_it, mutex));
	owner_end_and_reap(&owner);
	ASSERT_EQ(EOWNERDEAD, owner_start(&owner, self->shared->holds, IS_KILLED, lock_it, mutex));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EPERM, memwait_mutex_consistent(mutex));
	EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, memwait_mutex_destroy(mutex));
}

ROBUST_TEST(L6_destroy_checks_whether_the_owner_lives)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct owner owner;
	int how;

	for (how = 0; how < ENDS; how++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, owner_start(&owner, self->shared->holds, how, lock_it, mutex));
		EXPECT_EQ(EBUSY, memwait_mutex_destroy(mutex));
		owner_end(&owner);
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
		owner_reap(&owner);
	}
}

/* The next owner has locked the mutex once, however often the dead owner had locked it. */
ROBUST_TEST(L6_the_next_owner_of_a_recursive_mutex_has_locked_it_once)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct owner owner;
	int private, i;

	for (private = 0; private < 2; private++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST |
						MEMWAIT_MUTEX_RECURSIVE |
						(private ? MEMWAIT_PRIVATE : 0)));
		owner_begin(&owner, self->shared->holds, private ? THREAD_ENDS : IS_KILLED, lock_it,
			    mutex, 3);
		ASSERT_EQ(0, owner_result(&owner));
		owner_end_and_reap(&owner);
		EXPECT_EQ(EOWNERDEAD, memwait_mutex_lock(mutex));
		/*
		 * EOWNERDEAD is returned once. The owner can lock the mutex again before it makes
		 * the mutex consistent.
		 */
		EXPECT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(0, memwait_mutex_consistent(mutex));
		EXPECT_EQ(0, memwait_mutex_trylock(mutex));
		for (i = 0; i < 3; i++) {
			EXPECT_EQ(EBUSY, elsewhere(trylock_it, mutex));
			EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		}
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));

		owner_begin(&owner, self->shared->holds, private ? THREAD_ENDS : IS_KILLED, lock_it,
			    mutex, 3);
		ASSERT_EQ(0, owner_result(&owner));
		owner_end_and_reap(&owner);
		EXPECT_EQ(EOWNERDEAD, memwait_mutex_trylock(mutex));
		EXPECT_EQ(0, memwait_mutex_consistent(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, elsewhere(lock_and_unlock, mutex));
	}
}

ROBUST_TEST(L6_errorcheck_detects_the_next_owners_relock)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct timespec later = in_time(CLOCK_MONOTONIC, HOUR);
	struct counted_op counted = counted_by(&counted, self->loop);
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_ERRORCHECK));
	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, lock_it, mutex));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EOWNERDEAD, memwait_mutex_lock(mutex));
	EXPECT_EQ(EDEADLK, memwait_mutex_lock(mutex));
	EXPECT_EQ(0, memwait_mutex_consistent(mutex));
	EXPECT_EQ(EDEADLK, memwait_mutex_lock(mutex));
	EXPECT_EQ(EDEADLK, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &later));
	EXPECT_EQ(EDEADLK, memwait_mutex_lock_async(mutex, &counted.op));
	EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
}

/* A thread that locks a plain mutex twice waits for itself, until its deadline or in a loop. */
ROBUST_TEST(L6_a_relock_by_the_owner_times_out)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct timespec time;
	uint64_t start;
	int private;

	for (private = 0; private < 2; private++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST |
						(private ? MEMWAIT_PRIVATE : 0)));
		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
		start = now_ns(CLOCK_MONOTONIC);
		time = in_time(CLOCK_MONOTONIC, 20);
		EXPECT_EQ(ETIMEDOUT, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &time));
		EXPECT_LE(19 * NSEC_PER_MSEC, now_ns(CLOCK_MONOTONIC) - start);
		EXPECT_EQ(ETIMEDOUT, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &time));
		time = in_time(CLOCK_REALTIME, 20);
		EXPECT_EQ(ETIMEDOUT, memwait_mutex_timedlock(mutex, &time));

		EXPECT_EQ(EINPROGRESS, memwait_mutex_lock_async(mutex, &counted.op));
		EXPECT_EQ(0, memwait_op_cancel(&counted.op));
		counted.calls = 0;
		EXPECT_EQ(EINPROGRESS, memwait_mutex_lock_async(mutex, &counted.op));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		EXPECT_EQ(EBUSY, elsewhere(trylock_it, mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, elsewhere(lock_and_unlock, mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
}

/* The owner of a mutex that an operation has locked is the thread that runs the callback. */
ROBUST_TEST(L6_a_thread_that_locked_in_a_callback_ends)
{
	memwait_mutex_t *mutex = &self->shared->mutex;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct getting getting;
	struct runner runner;

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(EINPROGRESS, memwait_mutex_lock_async(mutex, &counted.op));
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	runner_start(&runner, run_loop, self->loop);
	EXPECT_EQ(0, runner_join(&runner));
	await_gone(runner.tid);
	EXPECT_EQ(1, counted.calls);
	EXPECT_EQ(0, counted.result);
	getting_init(&getting, self->loop, mutex, LOCK);
	EXPECT_EQ(EOWNERDEAD, get_and_give_back(&getting));
	EXPECT_EQ(0, getting.given_back);
}

static int pend_on_mutex(void *arg)
{
	struct shared *shared = arg;
	struct counted_op counted = { 0 };
	memwait_loop_t *loop;

	if (memwait_loop_new(&loop, 0))
		return 1;
	memwait_op_init(&counted.op, loop, count_call, &counted);
	if (memwait_mutex_lock_async(&shared->mutex, &counted.op) != EINPROGRESS)
		return 2;
	set(&shared->there, 1);
	pause();
	return 0;
}

/*
 * If the loop that was notified of the death dies, or its operation is cancelled, the next waiter
 * is notified.
 */
ROBUST_TEST(L6_an_operations_death_notification_passes_to_the_next)
{
	struct shared *shared = self->shared;
	struct counted_op counted = { 0 };
	struct getting getting;
	struct runner runner;
	struct owner owner;
	int cancels;
	pid_t pid = 0;

	for (cancels = 0; cancels < 2; cancels++) {
		ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, owner_start(&owner, shared->holds, IS_KILLED, lock_it,
					 &shared->mutex));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		if (cancels) {
			ASSERT_EQ(EINPROGRESS,
				  memwait_mutex_lock_async(&shared->mutex, &counted.op));
		} else {
			shared->there = 0;
			pid = run_in_child(pend_on_mutex(shared));
			await(&shared->there);
		}
		getting_init(&getting, self->loop, &shared->mutex, CLOCKLOCK);
		getting.ms = HALF_A_MINUTE;
		runner_start(&runner, get_and_give_back, &getting);
		await_waiters(self->fd, &shared->mutex, 0, 2);
		owner_end_and_reap(&owner);
		/* The operation was notified and has not reacted. */
		await_waiters(self->fd, &shared->mutex, 0, 1);
		if (cancels) {
			EXPECT_EQ(0, memwait_op_cancel(&counted.op));
			EXPECT_EQ(0, counted.calls);
		} else {
			kill_child(pid);
		}
		EXPECT_EQ(EOWNERDEAD, runner_join(&runner));
		EXPECT_EQ(0, getting.given_back);
		EXPECT_EQ(0, memwait_mutex_destroy(&shared->mutex));
	}
}

TEST_HARNESS_MAIN
