/* SPDX-License-Identifier: GPL-2.0 */
/* Definitions shared by the tests of read-write locks. */
#ifndef RWLOCK_TEST_H
#define RWLOCK_TEST_H

#include "userlib_test.h"

#define ROUNDS	SOME_OF(2000)

struct shared {
	memwait_rwlock_t lock;
	int readers, writers, violations, most_readers;
	long a, b;
	int stop;
};

static inline void read_it(struct shared *shared)
{
	int readers = __atomic_add_fetch(&shared->readers, 1, __ATOMIC_ACQ_REL);

	if (__atomic_load_n(&shared->writers, __ATOMIC_ACQUIRE) || shared->a != shared->b)
		__atomic_add_fetch(&shared->violations, 1, __ATOMIC_RELAXED);
	if (readers > shared->most_readers)
		__atomic_store_n(&shared->most_readers, readers, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&shared->readers, 1, __ATOMIC_ACQ_REL);
}

static inline void write_it(struct shared *shared)
{
	if (__atomic_add_fetch(&shared->writers, 1, __ATOMIC_ACQ_REL) != 1 ||
	    __atomic_load_n(&shared->readers, __ATOMIC_ACQUIRE))
		__atomic_add_fetch(&shared->violations, 1, __ATOMIC_RELAXED);
	shared->a++;
	shared->b++;
	__atomic_sub_fetch(&shared->writers, 1, __ATOMIC_ACQ_REL);
}

static const unsigned int kinds[] = { 0, MEMWAIT_RWLOCK_PREFER_WRITER, MEMWAIT_RWLOCK_FAIR };

static inline int write_once(void *arg)
{
	struct shared *shared = arg;
	int err = memwait_rwlock_wrlock(&shared->lock);

	if (err)
		return err;
	write_it(shared);
	return memwait_rwlock_unlock(&shared->lock);
}

static inline int read_once(void *arg)
{
	struct shared *shared = arg;
	int err = memwait_rwlock_rdlock(&shared->lock);

	if (err)
		return err;
	read_it(shared);
	return memwait_rwlock_unlock(&shared->lock);
}

/*
 * Waiters sleep on the gate, which is the first 64 bits. A writer may also sleep on the state,
 * which follows the gate.
 */
static inline const void *gate_of(memwait_rwlock_t *lock)
{
	return lock;
}

static inline const void *state_of(memwait_rwlock_t *lock)
{
	return (uint32_t *)lock + 2;
}

struct timed {
	struct shared *shared;
	clockid_t clock;
	struct timespec time;
};

static inline int write_timed(void *arg)
{
	struct timed *timed = arg;
	int err = memwait_rwlock_clockwrlock(&timed->shared->lock, timed->clock, &timed->time);

	if (err)
		return err;
	write_it(timed->shared);
	return memwait_rwlock_unlock(&timed->shared->lock);
}

static inline int read_timed(void *arg)
{
	struct timed *timed = arg;
	int err = memwait_rwlock_clockrdlock(&timed->shared->lock, timed->clock, &timed->time);

	if (err)
		return err;
	read_it(timed->shared);
	return memwait_rwlock_unlock(&timed->shared->lock);
}

#endif /* RWLOCK_TEST_H */
