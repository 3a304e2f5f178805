// SPDX-License-Identifier: GPL-2.0
/* Mutexes whose owners die, and a condition variable's way back to them. */
#include "robust_test.h"

#define ROUNDS		(getenv("MEMWAIT_LOADS") ? 200 : 1000)

static int lock_it(void *mutex)
{
	return memwait_mutex_lock(mutex);
}

static int trylock_it(void *mutex)
{
	return memwait_mutex_trylock(mutex);
}

static int unlock_it(void *mutex)
{
	return memwait_mutex_unlock(mutex);
}

static int make_it_consistent(void *mutex)
{
	return memwait_mutex_consistent(mutex);
}

/* An object is shared by all, or by the threads of this process. */
static const unsigned int kinds[] = {
	MEMWAIT_MUTEX_ROBUST,
	MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_RECURSIVE,
	MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_ERRORCHECK,
	MEMWAIT_MUTEX_ROBUST | MEMWAIT_PRIVATE,
	MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_RECURSIVE | MEMWAIT_PRIVATE,
	MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_PRIVATE,
};

#define KINDS	((int)ARRAY_SIZE(kinds))

/* Ways to lock. */
enum { LOCK, TRYLOCK, TIMEDLOCK, CLOCKLOCK, ASYNC, CLOCK_ASYNC, EXECUTE, WAYS };

struct getting {
	int way;
	int ms;			/* from now to the deadline */
	memwait_mutex_t *mutex;
	bool leave_broken;	/* unlock it without having made it consistent */
	int given_back;		/* what that has said */
	int result;		/* of locking */
	int calls;		/* of the callback */
	memwait_op_t op;
};

/* Has it, and gives it back, unless that is done by others. */
static void give_back(struct getting *getting)
{
	int err = 0;

	if (getting->result && getting->result != EOWNERDEAD)
		return;
	if (getting->result == EOWNERDEAD && !getting->leave_broken)
		err = memwait_mutex_consistent(getting->mutex);
	if (!err && getting->way != EXECUTE)
		err = memwait_mutex_unlock(getting->mutex);
	getting->given_back = err;
}

static void got(memwait_op_t *op, int result, void *data)
{
	struct getting *getting = data;

	(void)op;
	getting->result = result;
	getting->calls++;
	give_back(getting);
}

static int begin_to_get(struct getting *getting)
{
	struct timespec wall = in_time(CLOCK_REALTIME, getting->ms);
	struct timespec time = in_time(CLOCK_MONOTONIC, getting->ms);

	switch (getting->way) {
	case LOCK:
		return memwait_mutex_lock(getting->mutex);
	case TRYLOCK:
		return memwait_mutex_trylock(getting->mutex);
	case TIMEDLOCK:
		return memwait_mutex_timedlock(getting->mutex, &wall);
	case CLOCKLOCK:
		return memwait_mutex_clocklock(getting->mutex, CLOCK_MONOTONIC, &time);
	case ASYNC:
		return memwait_mutex_lock_async(getting->mutex, &getting->op);
	case CLOCK_ASYNC:
		return memwait_mutex_clocklock_async(getting->mutex, CLOCK_MONOTONIC, &time,
						     &getting->op);
	default:
		return memwait_mutex_execute_locked(getting->mutex, &getting->op);
	}
}

/* Locks and unlocks; returns what locking has said. Or EINPROGRESS: the callback does all that. */
static int get_and_give_back(void *arg)
{
	struct getting *getting = arg;
	int ret;

	getting->calls = 0;
	getting->given_back = -1;
	ret = begin_to_get(getting);
	/* What has been executed already has been called back. */
	if (ret == EINPROGRESS || getting->calls)
		return ret ? ret : getting->result;
	getting->result = ret;
	give_back(getting);
	return ret;
}

static void getting_init(struct getting *getting, memwait_loop_t *loop, memwait_mutex_t *mutex,
			 int way)
{
	memset(getting, 0, sizeof(*getting));
	getting->mutex = mutex;
	getting->way = way;
	getting->ms = HOUR;
	memwait_op_init(&getting->op, loop, got, getting);
}

static bool is_async(int way)
{
	return way == ASYNC || way == CLOCK_ASYNC || way == EXECUTE;
}

/* Mutexes */

ROBUST_TEST(L6_kinds)
{
	const unsigned int good[] = { 0, MEMWAIT_MUTEX_RECURSIVE, MEMWAIT_MUTEX_ERRORCHECK };
	memwait_mutex_t *mutex = &self->board->mutex;
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
		EXPECT_EQ(0, memwait_rwlock_init(&self->board->rwlock,
						 MEMWAIT_RWLOCK_ROBUST | private));
		EXPECT_EQ(EINVAL, memwait_rwlock_init(&self->board->rwlock, MEMWAIT_RWLOCK_ROBUST |
						      MEMWAIT_RWLOCK_FAIR | private));
	}
	for (bit = MEMWAIT_MUTEX_ROBUST << 1; bit; bit <<= 1) {
		if (bit == MEMWAIT_PRIVATE)
			continue;
		EXPECT_EQ(EINVAL, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST | bit));
		EXPECT_EQ(bit == MEMWAIT_RWLOCK_PREFER_WRITER ? 0 : EINVAL,
			  memwait_rwlock_init(&self->board->rwlock, MEMWAIT_RWLOCK_ROBUST | bit));
	}
}

/* While nobody dies it is a mutex like others, to whichever two threads or processes. */
ROBUST_TEST(L6_a_robust_mutex_is_a_mutex)
{
	memwait_mutex_t *mutex = &self->board->mutex;
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

static void visit(struct board *board)
{
	if (board->inside++)
		board->violations++;
	board->counter++;
	if (--board->inside)
		board->violations++;
}

static int visit_often(void *arg)
{
	struct board *board = arg;
	int i, err;

	for (i = 0; i < ROUNDS; i++) {
		err = memwait_mutex_lock(&board->mutex);
		if (err)
			return err;
		visit(board);
		err = memwait_mutex_unlock(&board->mutex);
		if (err)
			return err;
	}
	return 0;
}

ROBUST_TEST(L6_threads_and_processes_exclude_each_other)
{
	struct board *board = self->board;
	struct runner runners[2];
	int kind, i;
	pid_t pids[2];

	for (kind = 0; kind < KINDS; kind++) {
		memset(board, 0, sizeof(*board));
		ASSERT_EQ(0, memwait_mutex_init(&board->mutex, kinds[kind]));
		for (i = 0; i < 2; i++) {
			if (!(kinds[kind] & MEMWAIT_PRIVATE)) {
				pids[i] = fork();
				if (!pids[i])
					_exit(visit_often(board));
			}
			runner_start(&runners[i], visit_often, board);
		}
		for (i = 0; i < 2; i++) {
			EXPECT_EQ(0, runner_join(&runners[i]));
			if (!(kinds[kind] & MEMWAIT_PRIVATE)) {
				EXPECT_EQ(0, userlib_child_status(pids[i]));
			}
		}
		EXPECT_EQ((kinds[kind] & MEMWAIT_PRIVATE ? 2L : 4L) * ROUNDS, board->counter);
		EXPECT_EQ(0, board->violations);
		EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
	}
}

/* Each way to lock, after each way to die. */
ROBUST_TEST(L6_who_comes_after_the_death_gets_eownerdead)
{
	memwait_mutex_t *mutex = &self->board->mutex;
	struct getting getting;
	struct owner owner;
	int kind, how, way;

	for (kind = 0; kind < KINDS; kind++) {
		for (how = 0; how < ENDS; how++) {
			for (way = 0; way < WAYS && can_be_had_by(kinds[kind], how); way++) {
				ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
				ASSERT_EQ(0, owner_start(&owner, self->board->holds, how, lock_it,
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
				/* All is right again. */
				EXPECT_EQ(0, get_and_give_back(&getting));
				EXPECT_EQ(0, getting.given_back);
				EXPECT_EQ(0, memwait_mutex_destroy(mutex));
				owner_reap(&owner);
			}
		}
	}
}

/* A deadline that has passed does not keep it from what it could have without waiting. */
ROBUST_TEST(L6_a_deadline_that_has_passed_gets_eownerdead)
{
	static const int ways[] = { TIMEDLOCK, CLOCKLOCK, CLOCK_ASYNC };
	memwait_mutex_t *mutex = &self->board->mutex;
	struct getting getting;
	struct owner owner;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, owner_start(&owner, self->board->holds, IS_KILLED, lock_it, mutex));
		getting_init(&getting, self->loop, mutex, ways[i]);
		getting.ms = -1;
		EXPECT_EQ(ETIMEDOUT, get_and_give_back(&getting));
		owner_end(&owner);
		EXPECT_EQ(EOWNERDEAD, get_and_give_back(&getting));
		EXPECT_EQ(0, getting.given_back);
		owner_reap(&owner);
	}
}

/* Each way to wait, in each way to die; and another one behind it. */
ROBUST_TEST(L6_who_came_before_the_death_gets_eownerdead)
{
	memwait_mutex_t *mutex = &self->board->mutex;
	struct getting first, second;
	struct runner runners[2];
	int kind, how, way;
	struct owner owner;

	for (kind = 0; kind < KINDS; kind++) {
		for (how = 0; how < ENDS; how++) {
			for (way = 0; way < WAYS && can_be_had_by(kinds[kind], how); way++) {
				unsigned int private = kinds[kind] & MEMWAIT_PRIVATE;

				if (way == TRYLOCK)
					continue;
				ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
				ASSERT_EQ(0, owner_start(&owner, self->board->holds, how, lock_it,
							 mutex));
				getting_init(&first, self->loop, mutex, way);
				getting_init(&second, self->loop, mutex, LOCK);
				if (is_async(way)) {
					ASSERT_EQ(EINPROGRESS, get_and_give_back(&first));
				} else {
					runner_start(&runners[0], get_and_give_back, &first);
				}
				/* The word that is waited on is the first of the mutex. */
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

/* One that inherits it, and dies before it has put anything right, leaves it to the next. */
ROBUST_TEST(L6_its_heir_dies_before_it_is_consistent)
{
	memwait_mutex_t *mutex = &self->board->mutex;
	struct getting getting;
	struct runner runner;
	struct owner owners[3];
	int i, kind;

	for (kind = 0; kind < 3; kind++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		/* Each comes after the death of the one before it. */
		for (i = 0; i < 3; i++) {
			ASSERT_EQ(i ? EOWNERDEAD : 0,
				  owner_start(&owners[i], &self->board->holds[i],
					      i % 2 ? THREAD_ENDS : IS_KILLED, lock_it, mutex));
			owner_end_and_reap(&owners[i]);
		}
		getting_init(&getting, self->loop, mutex, LOCK);
		EXPECT_EQ(EOWNERDEAD, get_and_give_back(&getting));
		EXPECT_EQ(0, getting.given_back);
		EXPECT_EQ(0, get_and_give_back(&getting));
	}

	/* Each waits already when the one before it dies. */
	ASSERT_EQ(0, owner_start(&owners[0], &self->board->holds[0], IS_KILLED, lock_it, mutex));
	for (i = 1; i < 3; i++) {
		owner_begin(&owners[i], &self->board->holds[i], IS_KILLED, lock_it, mutex, 1);
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

static int lock_and_unlock(void *mutex)
{
	int err = memwait_mutex_lock(mutex);

	return err ? err : memwait_mutex_unlock(mutex);
}

/* It is the last owner that counts, and whether it had the mutex. */
ROBUST_TEST(L6_its_heir_dies_after_it_is_consistent)
{
	memwait_mutex_t *mutex = &self->board->mutex;
	struct getting getting;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	getting_init(&getting, self->loop, mutex, LOCK);
	ASSERT_EQ(0, owner_start(&owner, self->board->holds, IS_KILLED, lock_it, mutex));
	owner_end_and_reap(&owner);
	ASSERT_EQ(0, owner_start(&owner, self->board->holds, IS_KILLED, lock_and_repair, mutex));
	EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EOWNERDEAD, get_and_give_back(&getting));
	EXPECT_EQ(0, getting.given_back);
	ASSERT_EQ(0, owner_start(&owner, self->board->holds, IS_KILLED, lock_and_unlock, mutex));
	owner_end_and_reap(&owner);
	EXPECT_EQ(0, get_and_give_back(&getting));
}

/* It inherits it, unlocks it as it is when it is told to, and lives on until it is told again. */
static int inherit_and_unlock(void *arg)
{
	struct board *board = arg;
	int err;

	board->result = memwait_mutex_lock(&board->mutex);
	set(&board->there, 1);
	await(&board->go);
	err = memwait_mutex_unlock(&board->mutex);
	while (get(&board->go) < 2)
		usleep(100);
	return err;
}

#define BLOCKED		3	/* threads by different ways */
#define PENDING		3	/* operations */

/* Unlocked as it was left, it is lost: to those who sleep, and to all who come. */
ROBUST_TEST(L6_unlocked_inconsistent_it_is_not_recoverable)
{
	static const int blocked[BLOCKED] = { LOCK, TIMEDLOCK, CLOCKLOCK };
	static const int pending[PENDING] = { ASYNC, CLOCK_ASYNC, EXECUTE };
	memwait_mutex_t *mutex = &self->board->mutex;
	struct getting threads[BLOCKED], ops[PENDING], later;
	struct runner runners[BLOCKED], heir;
	struct board *board = self->board;
	struct owner owner;
	int kind, i;

	for (kind = 0; kind < KINDS; kind++) {
		unsigned int private = kinds[kind] & MEMWAIT_PRIVATE;

		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		ASSERT_EQ(0, owner_start(&owner, board->holds, private ? THREAD_ENDS : IS_KILLED,
					 lock_it, mutex));
		owner_end_and_reap(&owner);
		board->there = 0;
		board->go = 0;
		runner_start(&heir, inherit_and_unlock, board);
		await(&board->there);
		EXPECT_EQ(EOWNERDEAD, board->result);
		for (i = 0; i < BLOCKED; i++) {
			getting_init(&threads[i], self->loop, mutex, blocked[i]);
			runner_start(&runners[i], get_and_give_back, &threads[i]);
			await_waiters(self->fd, mutex, private, 2 * i + 1);
			getting_init(&ops[i], self->loop, mutex, pending[i]);
			ASSERT_EQ(EINPROGRESS, get_and_give_back(&ops[i]));
		}
		await_waiters(self->fd, mutex, private, BLOCKED + PENDING);

		set(&board->go, 1);
		for (i = 0; i < BLOCKED; i++) {
			EXPECT_EQ(ENOTRECOVERABLE, runner_join(&runners[i]));
			ASSERT_EQ(0, dispatch_until(self->loop, &ops[i].calls, 1));
			EXPECT_EQ(ENOTRECOVERABLE, ops[i].result);
		}
		set(&board->go, 2);
		EXPECT_EQ(0, runner_join(&heir));
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
		/* The memory is as good as any. */
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		EXPECT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	}
}

/* The callback has to say that all is right again; otherwise it is unlocked as it is. */
ROBUST_TEST(L6_execute_locked_unlocks_what_its_callback_has_left)
{
	memwait_mutex_t *mutex = &self->board->mutex;
	struct getting getting, later;
	struct owner owner;
	int repairs, comes_before;

	for (repairs = 0; repairs < 2; repairs++) {
		for (comes_before = 0; comes_before < 2; comes_before++) {
			ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
			ASSERT_EQ(0, owner_start(&owner, self->board->holds, IS_KILLED, lock_it,
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

ROBUST_TEST(L6_consistent_says_what_is_wrong)
{
	static const unsigned int not_robust[] = {
		MEMWAIT_MUTEX_NORMAL, MEMWAIT_MUTEX_RECURSIVE, MEMWAIT_MUTEX_ERRORCHECK,
		MEMWAIT_MUTEX_FAIR, MEMWAIT_MUTEX_FAIR | MEMWAIT_MUTEX_RECURSIVE, MEMWAIT_PRIVATE,
	};
	memwait_mutex_t *mutex = &self->board->mutex;
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

	ASSERT_EQ(0, owner_start(&owner, self->board->holds, IS_KILLED, lock_it, mutex));
	EXPECT_EQ(EINVAL, memwait_mutex_consistent(mutex));
	owner_end_and_reap(&owner);
	/* It has to be locked first. */
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

	/* Inconsistent, and its owner is dead once more. */
	ASSERT_EQ(0, owner_start(&owner, self->board->holds, IS_KILLED, lock_it, mutex));
	owner_end_and_reap(&owner);
	ASSERT_EQ(EOWNERDEAD, owner_start(&owner, self->board->holds, IS_KILLED, lock_it, mutex));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EPERM, memwait_mutex_consistent(mutex));
	EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, memwait_mutex_destroy(mutex));
}

ROBUST_TEST(L6_destroy_asks_whether_the_owner_lives)
{
	memwait_mutex_t *mutex = &self->board->mutex;
	struct owner owner;
	int how;

	for (how = 0; how < ENDS; how++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, owner_start(&owner, self->board->holds, how, lock_it, mutex));
		EXPECT_EQ(EBUSY, memwait_mutex_destroy(mutex));
		owner_end(&owner);
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
		owner_reap(&owner);
	}
}

/* However often the dead one had locked it: its heir has locked it once. */
ROBUST_TEST(L6_recursive_begins_anew)
{
	memwait_mutex_t *mutex = &self->board->mutex;
	struct owner owner;
	int private, i;

	for (private = 0; private < 2; private++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST |
						MEMWAIT_MUTEX_RECURSIVE |
						(private ? MEMWAIT_PRIVATE : 0)));
		owner_begin(&owner, self->board->holds, private ? THREAD_ENDS : IS_KILLED, lock_it,
			    mutex, 3);
		ASSERT_EQ(0, owner_result(&owner));
		owner_end_and_reap(&owner);
		EXPECT_EQ(EOWNERDEAD, memwait_mutex_lock(mutex));
		/* It is told once, and can be locked again before it is made consistent. */
		EXPECT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(0, memwait_mutex_consistent(mutex));
		EXPECT_EQ(0, memwait_mutex_trylock(mutex));
		for (i = 0; i < 3; i++) {
			EXPECT_EQ(EBUSY, elsewhere(trylock_it, mutex));
			EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		}
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));

		owner_begin(&owner, self->board->holds, private ? THREAD_ENDS : IS_KILLED, lock_it,
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

ROBUST_TEST(L6_errorcheck_knows_its_heir)
{
	memwait_mutex_t *mutex = &self->board->mutex;
	struct timespec later = in_time(CLOCK_MONOTONIC, HOUR);
	struct counted_op counted = { 0 };
	struct owner owner;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_ERRORCHECK));
	ASSERT_EQ(0, owner_start(&owner, self->board->holds, IS_KILLED, lock_it, mutex));
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

/* Who locks a plain one twice waits for itself, until its deadline, or in a loop. */
ROBUST_TEST(L6_locked_again_by_its_owner_it_times_out)
{
	memwait_mutex_t *mutex = &self->board->mutex;
	struct counted_op counted = { 0 };
	struct timespec time;
	uint64_t start;
	int private;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
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

static int run_loop(void *loop)
{
	return memwait_loop_run(loop);
}

/* The owner of what an operation has locked is the thread that runs its callback. */
ROBUST_TEST(L6_a_thread_ends_that_has_it_by_a_callback)
{
	memwait_mutex_t *mutex = &self->board->mutex;
	struct counted_op counted = { 0 };
	struct getting getting;
	struct runner runner;

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
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
	struct board *board = arg;
	struct counted_op counted = { 0 };
	memwait_loop_t *loop;

	if (memwait_loop_new(&loop))
		return 1;
	memwait_op_init(&counted.op, loop, count_call, &counted);
	if (memwait_mutex_lock_async(&board->mutex, &counted.op) != EINPROGRESS)
		return 2;
	set(&board->there, 1);
	pause();
	return 0;
}

/* A loop is told of the death, and dies, or is told no more: so the next is told. */
ROBUST_TEST(L6_what_an_operation_was_told_goes_on_to_the_next)
{
	struct board *board = self->board;
	struct counted_op counted = { 0 };
	struct getting getting;
	struct runner runner;
	struct owner owner;
	int cancels;
	pid_t pid = 0;

	for (cancels = 0; cancels < 2; cancels++) {
		ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->mutex));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		if (cancels) {
			ASSERT_EQ(EINPROGRESS,
				  memwait_mutex_lock_async(&board->mutex, &counted.op));
		} else {
			board->there = 0;
			pid = fork();
			if (!pid)
				_exit(pend_on_mutex(board));
			await(&board->there);
		}
		getting_init(&getting, self->loop, &board->mutex, CLOCKLOCK);
		getting.ms = HALF_A_MINUTE;
		runner_start(&runner, get_and_give_back, &getting);
		await_waiters(self->fd, &board->mutex, 0, 2);
		owner_end_and_reap(&owner);
		/* Told, and has done nothing about it. */
		await_waiters(self->fd, &board->mutex, 0, 1);
		if (cancels) {
			EXPECT_EQ(0, memwait_op_cancel(&counted.op));
			EXPECT_EQ(0, counted.calls);
		} else {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
		}
		EXPECT_EQ(EOWNERDEAD, runner_join(&runner));
		EXPECT_EQ(0, getting.given_back);
		EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
	}
}

/* The first of a robust mutex: who has it, and two bits. */
static uint64_t *word_of(memwait_mutex_t *mutex)
{
	void *first = mutex;

	return first;
}

/* What nobody but user space can have written there. */
ROBUST_TEST(L6_ids_that_were_made_up)
{
	const uint64_t contended = 1ULL << 62, inconsistent = 1ULL << 63;
	const uint64_t dead[] = {
		1, self->id + 1000000, 1ULL << 61, MEMWAIT_OWNER_MASK,
		self->id + 1000000 + contended, MEMWAIT_OWNER_MASK | contended,
		self->id + 1000000 + inconsistent, UINT64_MAX,
	};
	memwait_mutex_t *mutex = &self->board->mutex;
	uint64_t *word = word_of(mutex);
	struct getting getting;
	struct timespec soon;
	struct owner owner;
	int kind, way;
	size_t i;

	for (kind = 0; kind < KINDS; kind++) {
		for (i = 0; i < ARRAY_SIZE(dead); i++) {
			for (way = 0; way < WAYS; way++) {
				ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
				*word = dead[i];
				getting_init(&getting, self->loop, mutex, way);
				EXPECT_EQ(EOWNERDEAD, get_and_give_back(&getting)) {
					TH_LOG("kind %x, %llx, way %d", kinds[kind],
					       (unsigned long long)dead[i], way);
				}
				EXPECT_EQ(0, getting.given_back);
				EXPECT_EQ(0, *word & MEMWAIT_OWNER_MASK);
			}
			*word = dead[i];
			EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
			EXPECT_EQ(0, memwait_mutex_destroy(mutex));
		}

		/* Another living thread's, which has another mutex. */
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		ASSERT_EQ(0, memwait_mutex_init(&self->board->other, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, owner_start(&owner, self->board->holds, THREAD_ENDS, lock_it,
					 &self->board->other));
		*word = *word_of(&self->board->other);
		EXPECT_EQ(0, *word & ~MEMWAIT_OWNER_MASK);
		EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
		EXPECT_EQ(EBUSY, memwait_mutex_destroy(mutex));
		soon = in_time(CLOCK_MONOTONIC, 5);
		EXPECT_EQ(ETIMEDOUT, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon));
		owner_end(&owner);
		EXPECT_EQ(EOWNERDEAD, memwait_mutex_lock(mutex));
		EXPECT_EQ(0, memwait_mutex_consistent(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	}

	/* Both bits without an id: it is nobody's, and nobody unlocks it. A deadline is kept. */
	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	*word = contended | inconsistent;
	soon = in_time(CLOCK_MONOTONIC, 5);
	EXPECT_EQ(ETIMEDOUT, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon));
	EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
	EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
	/* It is free, and its last owner could not wake the next one. */
	*word = contended;
	EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, memwait_mutex_trylock(mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, *word);
}

static const unsigned int owners_matter[] = {
	MEMWAIT_MUTEX_RECURSIVE,
	MEMWAIT_MUTEX_ERRORCHECK,
	MEMWAIT_MUTEX_RECURSIVE | MEMWAIT_MUTEX_FAIR,
	MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_MUTEX_FAIR,
	MEMWAIT_MUTEX_ROBUST,
	MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_RECURSIVE,
	MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_ERRORCHECK,
};

/* Runs a function as the first process, and thread, of a PID namespace of its own. */
static pid_t fork_first_process(int (*function)(void *arg), void *arg)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	if (unshare(CLONE_NEWPID))
		_exit(100);
	pid = fork();
	if (!pid)
		_exit(getpid() != 1 || gettid() != 1 ? 101 : function(arg));
	_exit(userlib_child_status(pid));
}

static int lock_twice_and_visit(struct board *board, bool twice)
{
	int err = memwait_mutex_lock(&board->mutex);

	if (!err && twice)
		err = memwait_mutex_lock(&board->mutex);
	if (err)
		return err;
	visit(board);
	err = memwait_mutex_unlock(&board->mutex);
	if (!err && twice)
		err = memwait_mutex_unlock(&board->mutex);
	return err;
}

static int meet_in_mutex(struct board *board)
{
	int i, err = 0;

	for (i = 0; i < ROUNDS && !err; i++)
		err = lock_twice_and_visit(board, board->result);
	return err;
}

static int be_first_and_have_it(void *arg)
{
	struct board *board = arg;

	if (memwait_mutex_lock(&board->mutex))
		return 1;
	set(&board->there, 1);
	await(&board->go);
	if (memwait_mutex_unlock(&board->mutex))
		return 2;
	return meet_in_mutex(board);
}

static int be_first_and_want_it(void *arg)
{
	struct board *board = arg;
	struct timespec soon = in_time(CLOCK_MONOTONIC, 10);

	if (memwait_mutex_trylock(&board->mutex) != EBUSY)
		return 1;
	if (memwait_mutex_unlock(&board->mutex) != EPERM)
		return 2;
	if (memwait_mutex_clocklock(&board->mutex, CLOCK_MONOTONIC, &soon) != ETIMEDOUT)
		return 3;
	set(&board->go, 1);
	return meet_in_mutex(board);
}

/* Both are thread 1. */
ROBUST_TEST(L6_namespaces_with_equal_thread_ids)
{
	struct board *board = self->board;
	pid_t pids[2];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(owners_matter); i++) {
		memset(board, 0, sizeof(*board));
		ASSERT_EQ(0, memwait_mutex_init(&board->mutex, owners_matter[i]));
		board->result = !!(owners_matter[i] & MEMWAIT_MUTEX_RECURSIVE);
		pids[0] = fork_first_process(be_first_and_have_it, board);
		await(&board->there);
		pids[1] = fork_first_process(be_first_and_want_it, board);
		EXPECT_EQ(0, userlib_child_status(pids[1])) {
			TH_LOG("kind %x", owners_matter[i]);
			set(&board->go, 1);
		}
		EXPECT_EQ(0, userlib_child_status(pids[0]));
		EXPECT_EQ(2L * ROUNDS, board->counter);
		EXPECT_EQ(0, board->violations);
	}
}

static int be_a_child(void *arg)
{
	struct board *board = arg;
	struct timespec soon = in_time(CLOCK_MONOTONIC, -1);
	uint64_t id;

	if (memwait_owner(&id) || id == board->id)
		return 1;
	if (memwait_mutex_unlock(&board->mutex) != EPERM)
		return 2;
	if (memwait_mutex_trylock(&board->mutex) != EBUSY)
		return 3;
	if (memwait_mutex_clocklock(&board->mutex, CLOCK_MONOTONIC, &soon) != ETIMEDOUT)
		return 4;
	if (memwait_mutex_lock(&board->other) || memwait_mutex_unlock(&board->other))
		return 5;
	/* The parent unlocks it. */
	set(&board->there, 1);
	return memwait_mutex_lock(&board->mutex) || memwait_mutex_unlock(&board->mutex) ? 6 : 0;
}

ROBUST_TEST(L1_a_child_does_not_own_what_its_parent_has_locked)
{
	struct board *board = self->board;
	pid_t pid;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(owners_matter); i++) {
		ASSERT_EQ(0, memwait_mutex_init(&board->mutex, owners_matter[i]));
		ASSERT_EQ(0, memwait_mutex_init(&board->other, owners_matter[i]));
		ASSERT_EQ(0, memwait_mutex_lock(&board->mutex));
		board->id = self->id;
		board->there = 0;
		pid = fork();
		if (!pid)
			_exit(be_a_child(board));
		await_waiters(self->fd, &board->mutex, 0, 1);
		EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
		EXPECT_EQ(0, userlib_child_status(pid)) {
			TH_LOG("kind %x", owners_matter[i]);
		}
		EXPECT_EQ(0, memwait_mutex_lock(&board->mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
	}
}

/* A child that dies does not take with it what its parent has. */
ROBUST_TEST(L1_who_dies_is_the_owner_and_nobody_else)
{
	struct board *board = self->board;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_mutex_init(&board->other, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_mutex_lock(&board->mutex));
	ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->other));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EBUSY, elsewhere(trylock_it, &board->mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
	EXPECT_EQ(EOWNERDEAD, memwait_mutex_lock(&board->other));
	EXPECT_EQ(0, memwait_mutex_consistent(&board->other));
	EXPECT_EQ(0, memwait_mutex_unlock(&board->other));
}

#define OWNER_LIMIT	"/sys/module/memwait/parameters/max_user_owners"

/*
 * A thread that can have no id cannot say what it owns, and gets no mutex for which that counts. It
 * waits for one that is NORMAL, and is told of no death.
 */
ROBUST_TEST(L0_over_the_limit_of_owners)
{
	long limit = read_number(OWNER_LIMIT);
	struct board *board = self->board;
	struct getting getting;
	struct runner runner;
	size_t i;

	if (geteuid())
		SKIP(return, "needs root to set the limit");
	ASSERT_LT(0, limit);
	EXPECT_EQ(0, write_number(OWNER_LIMIT, user_owners(self->fd)));
	for (i = 0; i < ARRAY_SIZE(owners_matter); i++) {
		EXPECT_EQ(0, memwait_mutex_init(&board->mutex, owners_matter[i]));
		EXPECT_EQ(ENOSPC, elsewhere(lock_it, &board->mutex));
		EXPECT_EQ(ENOSPC, elsewhere(trylock_it, &board->mutex));
		EXPECT_EQ(EPERM, elsewhere(unlock_it, &board->mutex));
		/* It was not locked; this thread has an id. */
		EXPECT_EQ(0, memwait_mutex_lock(&board->mutex));
		EXPECT_EQ(ENOSPC, elsewhere(lock_it, &board->mutex));
		EXPECT_EQ(EPERM, elsewhere(unlock_it, &board->mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
	}
	EXPECT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_NORMAL));
	EXPECT_EQ(0, memwait_mutex_lock(&board->mutex));
	getting_init(&getting, self->loop, &board->mutex, CLOCKLOCK);
	getting.ms = HALF_A_MINUTE;
	runner_start(&runner, get_and_give_back, &getting);
	runner_await_asleep(&runner);
	EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, getting.given_back);
	EXPECT_EQ(0, write_number(OWNER_LIMIT, limit));
	EXPECT_EQ(0, elsewhere(lock_and_unlock, &board->mutex));
}

/* Memory that cannot be written, or is there no more. */

struct mapped {
	memwait_mutex_t *mutex;	/* by a mapping that can be written */
	memwait_mutex_t *read_only;
	int memfd;
};

static bool map_mutex(struct mapped *mapped)
{
	mapped->memfd = memfd_create("mutex", MFD_CLOEXEC);
	if (mapped->memfd < 0 || ftruncate(mapped->memfd, 4096))
		return false;
	mapped->mutex = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mapped->memfd, 0);
	mapped->read_only = mmap(NULL, 4096, PROT_READ, MAP_SHARED, mapped->memfd, 0);
	return mapped->mutex != MAP_FAILED && mapped->read_only != MAP_FAILED;
}

static void unmap_mutex(struct mapped *mapped)
{
	munmap(mapped->mutex, 4096);
	munmap(mapped->read_only, 4096);
	close(mapped->memfd);
}

/* To lock is to write. That is the program's own fault, and nobody else's business. */
ROBUST_TEST(L6_a_mutex_in_read_only_memory)
{
	struct getting getting;
	struct runner runner;
	struct mapped mapped;
	struct owner owner;
	struct timespec none = { 0, 0 };
	uint64_t word;
	uint32_t old = 7;

	ASSERT_TRUE(map_mutex(&mapped));
	ASSERT_EQ(0, memwait_mutex_init(mapped.mutex, MEMWAIT_MUTEX_ROBUST));
	EXPECT_EQ(128 + SIGSEGV, in_child(lock_it, mapped.read_only));
	EXPECT_EQ(128 + SIGSEGV, in_child(trylock_it, mapped.read_only));
	EXPECT_EQ(0, memwait_mutex_lock(mapped.mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mapped.mutex));

	/* It fails while others wait, who go on as if nothing had happened. */
	ASSERT_EQ(0, owner_start(&owner, self->board->holds, IS_KILLED, lock_it, mapped.mutex));
	getting_init(&getting, self->loop, mapped.mutex, LOCK);
	runner_start(&runner, get_and_give_back, &getting);
	await_waiters(self->fd, mapped.mutex, 0, 1);
	EXPECT_EQ(128 + SIGSEGV, in_child(lock_it, mapped.read_only));
	/* The words of those that can only be read: a wait reads, a change writes. */
	word = *word_of(mapped.read_only);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait64(mapped.read_only, word, &none, MEMWAIT_OWNED));
	EXPECT_EQ(-EFAULT, memwait_change_notify(mapped.read_only, MEMWAIT_CHANGE_SET, 0,
						 MEMWAIT_ALL, 0, &old));
	EXPECT_EQ(7, old);
	EXPECT_EQ(1, memwait_waiters(mapped.mutex, 0));
	EXPECT_EQ(word, *word_of(mapped.mutex));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EOWNERDEAD, runner_join(&runner));
	EXPECT_EQ(0, getting.given_back);
	EXPECT_EQ(0, memwait_mutex_destroy(mapped.mutex));
	unmap_mutex(&mapped);
}

static int wait_for_mutex(void *arg)
{
	const struct rlimit none = { 0 };

	setrlimit(RLIMIT_CORE, &none);
	return memwait_mutex_lock(arg);
}

static int wait_for_mutex_a_moment(void *mutex)
{
	struct timespec soon = in_time(CLOCK_MONOTONIC, 100);

	return memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon);
}

/* Who looks gets SIGBUS from the kernel, and who asks the device EFAULT. */
ROBUST_TEST(L6_a_mutex_in_a_file_that_was_truncated)
{
	struct timespec none = { 0, 0 };
	struct mapped mapped;
	struct owner owner;
	uint32_t old = 7;
	uint64_t word;
	pid_t pid;

	ASSERT_TRUE(map_mutex(&mapped));
	ASSERT_EQ(0, memwait_mutex_init(mapped.mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, owner_start(&owner, self->board->holds, IS_KILLED, lock_it, mapped.mutex));
	word = *word_of(mapped.mutex);
	pid = fork();
	if (!pid)
		_exit(wait_for_mutex(mapped.mutex));
	await_waiters(self->fd, mapped.mutex, 0, 1);
	ASSERT_EQ(0, ftruncate(mapped.memfd, 0));

	EXPECT_EQ(-EFAULT, memwait_wait64(mapped.mutex, word, &none, MEMWAIT_OWNED));
	EXPECT_EQ(-EFAULT, memwait_change_notify(mapped.mutex, MEMWAIT_CHANGE_ADD, 1, 1, 0, &old));
	EXPECT_EQ(7, old);
	EXPECT_EQ(128 + SIGBUS, in_child(lock_it, mapped.mutex));
	EXPECT_EQ(128 + SIGBUS, in_child(unlock_it, mapped.mutex));
	EXPECT_EQ(128 + SIGBUS, in_child(trylock_it, mapped.mutex));
	/* It is told of the death, and looks. */
	owner_end_and_reap(&owner);
	EXPECT_EQ(128 + SIGBUS, userlib_child_status(pid));

	/* The file is longer again, and empty there. */
	ASSERT_EQ(0, ftruncate(mapped.memfd, 4096));
	ASSERT_EQ(0, memwait_mutex_init(mapped.mutex, MEMWAIT_MUTEX_ROBUST));
	EXPECT_EQ(0, memwait_mutex_lock(mapped.mutex));
	EXPECT_EQ(ETIMEDOUT, in_child(wait_for_mutex_a_moment, mapped.mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mapped.mutex));
	EXPECT_EQ(0, elsewhere(lock_and_unlock, mapped.mutex));
	unmap_mutex(&mapped);
}

/* Condition variables */

enum { WAIT, TIMEDWAIT, CLOCKWAIT, WAIT_ASYNC, CLOCKWAIT_ASYNC, COND_WAYS };

struct waiting {
	int way;
	int ms;			/* from now to the deadline */
	int times;		/* that the mutex is locked */
	struct board *board;
	int there;		/* it has the mutex, and is going to wait */
	int result;
	int given_back;		/* 0: the mutex was locked as often as before, or not at all */
	int calls;		/* of the callback */
	memwait_op_t op;
};

static bool has_mutex(int result)
{
	return !result || result == EOWNERDEAD || result == ETIMEDOUT;
}

/* It has returned: looks how often it has the mutex, and gives it back. */
static void give_mutex_back(struct waiting *waiting)
{
	memwait_mutex_t *mutex = &waiting->board->mutex;
	int err = 0, i;

	if (waiting->result == EOWNERDEAD)
		err = memwait_mutex_consistent(mutex);
	for (i = 0; i < waiting->times && !err && has_mutex(waiting->result); i++)
		err = memwait_mutex_unlock(mutex);
	if (!err)
		err = memwait_mutex_unlock(mutex) == EPERM ? 0 : -1;
	waiting->given_back = err;
}

static void has_waited(memwait_op_t *op, int result, void *data)
{
	struct waiting *waiting = data;

	(void)op;
	waiting->result = result;
	waiting->calls++;
	give_mutex_back(waiting);
}

static void waiting_init(struct waiting *waiting, memwait_loop_t *loop, struct board *board,
			 int way)
{
	memset(waiting, 0, sizeof(*waiting));
	waiting->board = board;
	waiting->way = way;
	waiting->ms = HOUR;
	waiting->times = 1;
	waiting->given_back = -1;
	memwait_op_init(&waiting->op, loop, has_waited, waiting);
}

static int begin_to_wait(struct waiting *waiting)
{
	struct timespec wall = in_time(CLOCK_REALTIME, waiting->ms);
	struct timespec time = in_time(CLOCK_MONOTONIC, waiting->ms);
	memwait_mutex_t *mutex = &waiting->board->mutex;
	memwait_cond_t *cond = &waiting->board->cond;

	switch (waiting->way) {
	case WAIT:
		return memwait_cond_wait(cond, mutex);
	case TIMEDWAIT:
		return memwait_cond_timedwait(cond, mutex, &wall);
	case CLOCKWAIT:
		return memwait_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &time);
	case WAIT_ASYNC:
		return memwait_cond_wait_async(cond, mutex, &waiting->op);
	default:
		return memwait_cond_clockwait_async(cond, mutex, CLOCK_MONOTONIC, &time,
						    &waiting->op);
	}
}

/* Returns what the wait has said, or EINPROGRESS. */
static int wait_and_give_back(void *arg)
{
	struct waiting *waiting = arg;
	int i, ret;

	for (i = 0; i < waiting->times; i++) {
		ret = memwait_mutex_lock(&waiting->board->mutex);
		if (ret)
			return ret;
	}
	set(&waiting->there, 1);
	ret = begin_to_wait(waiting);
	if (ret == EINPROGRESS)
		return ret;
	waiting->result = ret;
	give_mutex_back(waiting);
	return ret;
}

static bool waits_in_loop(const struct waiting *waiting)
{
	return waiting->way == WAIT_ASYNC || waiting->way == CLOCKWAIT_ASYNC;
}

/* Returns when it waits for the condition. */
static bool waiting_start(struct waiting *waiting, struct runner *runner)
{
	if (waits_in_loop(waiting))
		return wait_and_give_back(waiting) == EINPROGRESS;
	runner_start(runner, wait_and_give_back, waiting);
	await(&waiting->there);
	runner_await_asleep(runner);
	return true;
}

static int waiting_end(struct waiting *waiting, struct runner *runner, memwait_loop_t *loop)
{
	int err;

	if (!waits_in_loop(waiting))
		return runner_join(runner);
	err = dispatch_until(loop, &waiting->calls, 1);
	return err ? err : waiting->result;
}

/* When a wait ends whose mutex is had by one that dies. */
enum { SIGNALLED_BEFORE, SIGNALLED_AFTER, TIMES_OUT, CASES };

/* Returns what the wait has said; -1 if its deadline came before the other one had the mutex. */
static int outlive_owner(struct __test_metadata *_metadata, memwait_loop_t *loop,
			 struct waiting *waiting, int when)
{
	struct board *board = waiting->board;
	struct runner runner;
	struct owner owner;
	int ret;

	if (!waiting_start(waiting, &runner))
		return -1;
	ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->mutex));
	if (when == SIGNALLED_BEFORE) {
		EXPECT_EQ(0, memwait_cond_signal(&board->cond));
	}
	owner_end_and_reap(&owner);
	if (when == SIGNALLED_AFTER) {
		EXPECT_EQ(0, memwait_cond_signal(&board->cond));
	}
	ret = waiting_end(waiting, &runner, loop);
	EXPECT_EQ(0, waiting->given_back);
	if (ret == EOWNERDEAD) {
		EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
	}
	EXPECT_EQ(0, memwait_cond_destroy(&board->cond));
	return when == TIMES_OUT && ret == ETIMEDOUT ? -1 : ret;
}

/* It gets it back, however it waits. */
ROBUST_TEST(L6_a_condition_variables_way_back_to_it)
{
	static const unsigned int recursive[] = { 0, MEMWAIT_MUTEX_RECURSIVE };
	struct board *board = self->board;
	struct waiting waiting;
	int way, when, ms, ret;
	size_t i;

	for (i = 0; i < COND_WAYS * CASES * ARRAY_SIZE(recursive); i++) {
		const unsigned int kind = recursive[i % ARRAY_SIZE(recursive)];

		way = i / ARRAY_SIZE(recursive) % COND_WAYS;
		when = i / ARRAY_SIZE(recursive) / COND_WAYS;
		if (when == TIMES_OUT && (way == WAIT || way == WAIT_ASYNC))
			continue;
		/* The deadline is to come when the mutex is had, which may take a while. */
		for (ms = when == TIMES_OUT ? 20 : HOUR;; ms *= 4) {
			ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST |
							kind));
			ASSERT_EQ(0, memwait_cond_init(&board->cond, 0));
			waiting_init(&waiting, self->loop, board, way);
			waiting.ms = ms;
			waiting.times = kind ? 3 : 1;
			ret = outlive_owner(_metadata, self->loop, &waiting, when);
			if (ret >= 0 || ms > HALF_A_MINUTE)
				break;
		}
		EXPECT_EQ(EOWNERDEAD, ret) {
			TH_LOG("way %d, case %d, kind %x", way, when, kind);
		}
	}
}

/* It is lost while they wait for a condition: they are told when they would have had it. */
ROBUST_TEST(L6_a_condition_variables_way_back_to_one_that_is_not_recoverable)
{
	struct waiting waiting[COND_WAYS];
	struct runner runners[COND_WAYS];
	struct board *board = self->board;
	struct owner owner;
	int way, all;

	for (all = 0; all < 2; all++) {
		ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, memwait_cond_init(&board->cond, 0));
		for (way = 0; way < COND_WAYS; way++) {
			waiting_init(&waiting[way], self->loop, board, way);
			ASSERT_TRUE(waiting_start(&waiting[way], &runners[way]));
		}
		ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->mutex));
		owner_end_and_reap(&owner);
		ASSERT_EQ(EOWNERDEAD, memwait_mutex_lock(&board->mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
		for (way = 0; way < COND_WAYS; way++) {
			/* Nobody has been woken by what has become of the mutex. */
			EXPECT_FALSE(waits_in_loop(&waiting[way]) ? waiting[way].calls :
				     runner_is_done(&runners[way]));
		}
		if (all) {
			EXPECT_EQ(0, memwait_cond_broadcast(&board->cond));
		}
		for (way = 0; way < COND_WAYS; way++) {
			if (!all) {
				EXPECT_EQ(0, memwait_cond_signal(&board->cond));
			}
			EXPECT_EQ(ENOTRECOVERABLE,
				  waiting_end(&waiting[way], &runners[way], self->loop)) {
				TH_LOG("way %d, all %d", way, all);
			}
			EXPECT_EQ(0, waiting[way].given_back);
		}
		EXPECT_EQ(0, memwait_cond_destroy(&board->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
	}
}

/* A wait unlocks it. */
ROBUST_TEST(L6_a_wait_with_an_inconsistent_one_loses_it)
{
	struct board *board = self->board;
	struct timespec soon;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_cond_init(&board->cond, 0));
	ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->mutex));
	owner_end_and_reap(&owner);
	ASSERT_EQ(EOWNERDEAD, memwait_mutex_lock(&board->mutex));
	soon = in_time(CLOCK_MONOTONIC, 20);
	EXPECT_EQ(ENOTRECOVERABLE, memwait_cond_clockwait(&board->cond, &board->mutex,
							  CLOCK_MONOTONIC, &soon));
	EXPECT_EQ(EPERM, memwait_mutex_unlock(&board->mutex));
	EXPECT_EQ(ENOTRECOVERABLE, memwait_mutex_lock(&board->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&board->cond));
}

ROBUST_TEST(L6_a_wait_without_the_mutex_is_eperm)
{
	struct board *board = self->board;
	struct counted_op counted = { 0 };
	struct owner owner;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_cond_init(&board->cond, 0));
	EXPECT_EQ(EPERM, memwait_cond_wait(&board->cond, &board->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait_async(&board->cond, &board->mutex, &counted.op));
	ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait(&board->cond, &board->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait_async(&board->cond, &board->mutex, &counted.op));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EPERM, memwait_cond_wait(&board->cond, &board->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&board->cond));
}

static void clean_up(void *arg)
{
	struct waiting *waiting = arg;

	waiting->result = EOWNERDEAD;
	give_mutex_back(waiting);
	waiting->calls++;
}

static int wait_and_clean_up(void *arg)
{
	int ret;

	pthread_cleanup_push(clean_up, arg);
	ret = wait_and_give_back(arg);
	pthread_cleanup_pop(0);
	return ret;
}

/* Its clean-up handler has the mutex, whoever had it before. */
ROBUST_TEST(L5_a_cancelled_waiter_inherits_the_mutex)
{
	struct board *board = self->board;
	struct waiting waiting;
	struct runner runner;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_cond_init(&board->cond, 0));
	waiting_init(&waiting, self->loop, board, WAIT);
	runner_start(&runner, wait_and_clean_up, &waiting);
	await(&waiting.there);
	runner_await_asleep(&runner);
	ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->mutex));
	pthread_cancel(runner.thread);
	await_waiters(self->fd, &board->mutex, 0, 1);
	owner_end_and_reap(&owner);
	pthread_join(runner.thread, NULL);
	EXPECT_FALSE(runner_is_done(&runner));
	EXPECT_EQ(1, waiting.calls);
	EXPECT_EQ(0, waiting.given_back);
	EXPECT_EQ(0, memwait_cond_destroy(&board->cond));
	EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
}

TEST_HARNESS_MAIN
