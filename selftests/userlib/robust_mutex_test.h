/* SPDX-License-Identifier: GPL-2.0 */
/* Definitions shared by the tests of robust mutexes: each kind, and each way to lock a mutex. */
#ifndef ROBUST_MUTEX_TEST_H
#define ROBUST_MUTEX_TEST_H

#include "robust_test.h"

#define ROUNDS		LOAD(1000, 200)

ADAPTER(lock_it, void *mutex, memwait_mutex_lock(mutex))
ADAPTER(trylock_it, void *mutex, memwait_mutex_trylock(mutex))
ADAPTER(unlock_it, void *mutex, memwait_mutex_unlock(mutex))
ADAPTER(destroy_it, void *mutex, memwait_mutex_destroy(mutex))
ADAPTER(make_it_consistent, void *mutex, memwait_mutex_consistent(mutex))

/* Process-shared and private mutexes of each type. */
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
	bool leave_broken;	/* unlock the mutex without making it consistent */
	int given_back;		/* error of consistent or unlock, or 0 */
	int result;		/* result of the lock call */
	int calls;		/* calls of the callback */
	memwait_op_t op;
};

/* Makes the mutex consistent if necessary, and unlocks it unless the library does. */
static inline void give_back(struct getting *getting)
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

static inline void got(memwait_op_t *op, int result, void *data)
{
	struct getting *getting = data;

	getting->result = result;
	getting->calls++;
	give_back(getting);
}

static inline int begin_to_get(struct getting *getting)
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

/*
 * Locks and unlocks. Returns the result of the lock call, or EINPROGRESS if the callback will
 * unlock.
 */
static inline int get_and_give_back(void *arg)
{
	struct getting *getting = arg;
	int ret;

	getting->calls = 0;
	getting->given_back = -1;
	ret = begin_to_get(getting);
	/* If the operation has completed already, its callback has run. */
	if (ret == EINPROGRESS || getting->calls)
		return ret ? ret : getting->result;
	getting->result = ret;
	give_back(getting);
	return ret;
}

static inline void getting_init(struct getting *getting, memwait_loop_t *loop,
				memwait_mutex_t *mutex, int way)
{
	memset(getting, 0, sizeof(*getting));
	getting->mutex = mutex;
	getting->way = way;
	getting->ms = HOUR;
	memwait_op_init(&getting->op, loop, got, getting);
}

static inline bool is_async(int way)
{
	return way == ASYNC || way == CLOCK_ASYNC || way == EXECUTE;
}

static inline void visit(struct shared *shared)
{
	if (shared->inside++)
		shared->violations++;
	shared->counter++;
	if (--shared->inside)
		shared->violations++;
}

/* Returns the first word of a robust mutex: the owner's id and two flag bits. */
static inline uint64_t *word_of(memwait_mutex_t *mutex)
{
	void *first = mutex;

	return first;
}

#endif /* ROBUST_MUTEX_TEST_H */
