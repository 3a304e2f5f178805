// SPDX-License-Identifier: GPL-2.0
/*
 * Objects of a kind that this library does not know, for example a kind of a later library. Every
 * function refuses such an object and does not change it (L13).
 */
#include "userlib_test.h"

static const struct timespec never = { .tv_sec = TIME_MAX };
static memwait_mutex_t locked = MEMWAIT_MUTEX_INIT;

/* Defines a function that makes one call on an object. */
#define FUNCTION(name, type, expression)					\
	static int name(void *memory, memwait_op_t *op)				\
	{									\
		type *o = memory;						\
										\
		(void)op;							\
		return expression;						\
	}

#define ONE(object, function)							\
	FUNCTION(object##_##function, memwait_##object##_t, memwait_##object##_##function(o))
#define TIMED(object, function)							\
	FUNCTION(object##_##function, memwait_##object##_t,			\
		 memwait_##object##_##function(o, &never))
#define CLOCK(object, function)							\
	FUNCTION(object##_##function, memwait_##object##_t,			\
		 memwait_##object##_##function(o, CLOCK_MONOTONIC, &never))
#define ASYNC(object, function)							\
	FUNCTION(object##_##function, memwait_##object##_t,			\
		 memwait_##object##_##function(o, op))
#define CLOCK_ASYNC(object, function)						\
	FUNCTION(object##_##function, memwait_##object##_t,			\
		 memwait_##object##_##function(o, CLOCK_MONOTONIC, &never, op))

ONE(mutex, lock)
TIMED(mutex, timedlock)
CLOCK(mutex, clocklock)
ASYNC(mutex, lock_async)
CLOCK_ASYNC(mutex, clocklock_async)
ONE(mutex, trylock)
ONE(mutex, unlock)
ONE(mutex, consistent)
ONE(mutex, destroy)
FUNCTION(mutex_is_held, memwait_mutex_t, -memwait_mutex_is_held(o))
FUNCTION(mutex_execute_locked, memwait_mutex_t, memwait_mutex_execute_locked(o, op))

ONE(rwlock, rdlock)
TIMED(rwlock, timedrdlock)
CLOCK(rwlock, clockrdlock)
ASYNC(rwlock, rdlock_async)
CLOCK_ASYNC(rwlock, clockrdlock_async)
ONE(rwlock, wrlock)
TIMED(rwlock, timedwrlock)
CLOCK(rwlock, clockwrlock)
ASYNC(rwlock, wrlock_async)
CLOCK_ASYNC(rwlock, clockwrlock_async)
ONE(rwlock, tryrdlock)
ONE(rwlock, trywrlock)
ONE(rwlock, unlock)
ONE(rwlock, consistent)
ONE(rwlock, destroy)

FUNCTION(cond_wait, memwait_cond_t, memwait_cond_wait(o, &locked))
FUNCTION(cond_timedwait, memwait_cond_t, memwait_cond_timedwait(o, &locked, &never))
FUNCTION(cond_clockwait, memwait_cond_t,
	 memwait_cond_clockwait(o, &locked, CLOCK_MONOTONIC, &never))
FUNCTION(cond_wait_async, memwait_cond_t, memwait_cond_wait_async(o, &locked, op))
FUNCTION(cond_clockwait_async, memwait_cond_t,
	 memwait_cond_clockwait_async(o, &locked, CLOCK_MONOTONIC, &never, op))
ONE(cond, signal)
ONE(cond, broadcast)
FUNCTION(cond_notify, memwait_cond_t, memwait_cond_notify(o, 2))
ONE(cond, destroy)

/* The functions of a condition variable also refuse a mutex of an unknown kind. */
static memwait_cond_t plain = MEMWAIT_COND_INIT;

FUNCTION(cond_wait_mutex, memwait_mutex_t, memwait_cond_wait(&plain, o))
FUNCTION(cond_wait_mutex_async, memwait_mutex_t, memwait_cond_wait_async(&plain, o, op))

static int value;

ONE(sem, wait)
TIMED(sem, timedwait)
CLOCK(sem, clockwait)
ASYNC(sem, wait_async)
CLOCK_ASYNC(sem, clockwait_async)
ONE(sem, trywait)
ONE(sem, post)
ONE(sem, destroy)
FUNCTION(sem_getvalue, memwait_sem_t, memwait_sem_getvalue(o, &value))

ONE(barrier, wait)
TIMED(barrier, timedwait)
CLOCK(barrier, clockwait)
ASYNC(barrier, wait_async)
CLOCK_ASYNC(barrier, clockwait_async)
ONE(barrier, abort)
ONE(barrier, reset)
FUNCTION(barrier_inspect, memwait_barrier_t, memwait_barrier_inspect(o, NULL, NULL))
ONE(barrier, destroy)

ONE(waitgroup, wait)
TIMED(waitgroup, timedwait)
CLOCK(waitgroup, clockwait)
ASYNC(waitgroup, wait_async)
CLOCK_ASYNC(waitgroup, clockwait_async)
ONE(waitgroup, done)
FUNCTION(waitgroup_add, memwait_waitgroup_t, memwait_waitgroup_add(o, 1))
ONE(waitgroup, destroy)

ONE(event, wait)
TIMED(event, timedwait)
CLOCK(event, clockwait)
ASYNC(event, wait_async)
CLOCK_ASYNC(event, clockwait_async)
ONE(event, set)
ONE(event, clear)
FUNCTION(event_is_set, memwait_event_t, -memwait_event_is_set(o))
ONE(event, destroy)

#define EACH(object, function)	{ #object "_" #function, object##_##function }

struct call {
	const char *name;
	int (*call)(void *object, memwait_op_t *op);
};

/*
 * @kind: index of the kind, in 32-bit words. If the next word belongs to the object, it is unused.
 * The only word of an event also contains the number of its changes.
 */
static const struct {
	size_t size;
	unsigned int kind;
	uint32_t known;
	/*
	 * Words of a valid object that can be acquired without a wait; for example a barrier's
	 * count.
	 */
	uint32_t words[7];
	struct call calls[20];
} objects[] = {
	{ sizeof(memwait_mutex_t), 2, 0x8f, { 0 }, {
		EACH(mutex, lock), EACH(mutex, timedlock), EACH(mutex, clocklock),
		EACH(mutex, lock_async), EACH(mutex, clocklock_async),
		EACH(mutex, trylock), EACH(mutex, unlock),
		EACH(mutex, consistent), EACH(mutex, destroy), EACH(mutex, is_held),
		EACH(mutex, execute_locked), EACH(cond, wait_mutex),
		EACH(cond, wait_mutex_async) } },
	{ sizeof(memwait_rwlock_t), 6, 0x9c, { 0 }, {
		EACH(rwlock, rdlock), EACH(rwlock, timedrdlock), EACH(rwlock, clockrdlock),
		EACH(rwlock, rdlock_async), EACH(rwlock, clockrdlock_async),
		EACH(rwlock, wrlock), EACH(rwlock, timedwrlock), EACH(rwlock, clockwrlock),
		EACH(rwlock, wrlock_async), EACH(rwlock, clockwrlock_async),
		EACH(rwlock, tryrdlock),
		EACH(rwlock, trywrlock), EACH(rwlock, unlock), EACH(rwlock, consistent),
		EACH(rwlock, destroy) } },
	{ sizeof(memwait_cond_t), 4, 0x90, { 0 }, {
		EACH(cond, wait), EACH(cond, timedwait), EACH(cond, clockwait),
		EACH(cond, wait_async), EACH(cond, clockwait_async), EACH(cond, signal),
		EACH(cond, broadcast), EACH(cond, notify), EACH(cond, destroy) } },
	{ sizeof(memwait_sem_t), 2, 0x84, { 5 }, {
		EACH(sem, wait), EACH(sem, timedwait), EACH(sem, clockwait),
		EACH(sem, wait_async), EACH(sem, clockwait_async),
		EACH(sem, trywait), EACH(sem, post), EACH(sem, destroy),
		EACH(sem, getvalue) } },
	{ sizeof(memwait_barrier_t), 4, 0x80, { [6] = 1 }, {
		EACH(barrier, wait), EACH(barrier, timedwait), EACH(barrier, clockwait),
		EACH(barrier, wait_async), EACH(barrier, clockwait_async),
		EACH(barrier, abort), EACH(barrier, reset), EACH(barrier, inspect),
		EACH(barrier, destroy) } },
	{ sizeof(memwait_waitgroup_t), 4, 0x80, { 0 }, {
		EACH(waitgroup, wait), EACH(waitgroup, timedwait), EACH(waitgroup, clockwait),
		EACH(waitgroup, wait_async), EACH(waitgroup, clockwait_async),
		EACH(waitgroup, done), EACH(waitgroup, add),
		EACH(waitgroup, destroy) } },
	{ sizeof(memwait_event_t), 0, 0x8fffffff, { 1 }, {
		EACH(event, wait), EACH(event, timedwait), EACH(event, clockwait),
		EACH(event, wait_async), EACH(event, clockwait_async), EACH(event, set),
		EACH(event, clear), EACH(event, is_set), EACH(event, destroy) } },
};

USERLIB_TEST(unknown_kinds_are_refused)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	uint32_t *object = self->shared, before[16];
	const struct call *call;
	unsigned int i, bit, bits;
	int refused = 0;

	ASSERT_EQ(0, memwait_mutex_lock(&locked));
	for (i = 0; i < ARRAY_SIZE(objects); i++) {
		bits = objects[i].size == sizeof(*object) ? 32 : 64;
		for (call = objects[i].calls; call->name; call++) {
			for (bit = 0; bit < bits; bit++) {
				if (bit < 32 && objects[i].known & 1U << bit)
					continue;
				memset(object, 0, objects[i].size);
				memcpy(object, objects[i].words, sizeof(objects[i].words));
				object[objects[i].kind + bit / 32] |= 1U << bit % 32;
				memcpy(before, object, objects[i].size);
				errno = 0;
				if (call->call(object, &counted.op) != EINVAL ||
				    memcmp(before, object, objects[i].size)) {
					printf("# %s: bit %u\n", call->name, bit);
					EXPECT_TRUE(false);
				}
				refused++;
			}
		}
	}
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
	EXPECT_LT(3000, refused);
	ASSERT_EQ(0, memwait_mutex_unlock(&locked));
}

/* Shared memory may still contain objects that were created by a program for glibc. */
USERLIB_TEST(locks_of_glibc_are_refused)
{
	pthread_mutex_t *mutex = self->shared;
	pthread_rwlock_t *rwlock = self->shared;
	pthread_mutexattr_t mutexattr;
	pthread_rwlockattr_t rwlockattr;

	ASSERT_EQ(0, pthread_mutexattr_init(&mutexattr));
	ASSERT_EQ(0, pthread_mutexattr_setpshared(&mutexattr, PTHREAD_PROCESS_SHARED));
	ASSERT_EQ(0, pthread_mutex_init(mutex, &mutexattr));
	ASSERT_EQ(0, pthread_mutex_lock(mutex));
	EXPECT_EQ(EINVAL, memwait_mutex_trylock(self->shared));

	memset(self->shared, 0, sizeof(*rwlock));
	ASSERT_EQ(0, pthread_rwlockattr_init(&rwlockattr));
	ASSERT_EQ(0, pthread_rwlockattr_setpshared(&rwlockattr, PTHREAD_PROCESS_SHARED));
	ASSERT_EQ(0, pthread_rwlock_init(rwlock, &rwlockattr));
	EXPECT_EQ(EINVAL, memwait_rwlock_trywrlock(self->shared));
	ASSERT_EQ(0, pthread_rwlock_rdlock(rwlock));
	EXPECT_EQ(EINVAL, memwait_rwlock_trywrlock(self->shared));
	EXPECT_EQ(EINVAL, memwait_rwlock_unlock(self->shared));
	ASSERT_EQ(0, pthread_rwlock_unlock(rwlock));
	ASSERT_EQ(0, pthread_rwlock_wrlock(rwlock));
	EXPECT_EQ(EINVAL, memwait_rwlock_trywrlock(self->shared));
}

/* The words in the table above must be those of static initialisers, and known kinds must work. */
USERLIB_TEST(initialisers_match_init)
{
	static const memwait_mutex_t mutex = MEMWAIT_MUTEX_INIT_KIND(MEMWAIT_MUTEX_FAIR);
	static const memwait_rwlock_t rwlock =
		MEMWAIT_RWLOCK_INIT_KIND(MEMWAIT_RWLOCK_PREFER_WRITER | MEMWAIT_PRIVATE);
	static const memwait_cond_t cond = MEMWAIT_COND_INIT_FLAGS(MEMWAIT_COND_MONOTONIC);
	static const memwait_sem_t sem = MEMWAIT_SEM_INIT_FLAGS(MEMWAIT_PRIVATE, 5);
	static const memwait_sem_t fair = MEMWAIT_SEM_INIT_FLAGS(MEMWAIT_SEM_FAIR, 5);
	static const memwait_waitgroup_t group = MEMWAIT_WAITGROUP_INIT_FLAGS(MEMWAIT_PRIVATE);
	static const memwait_event_t event = MEMWAIT_EVENT_INIT_FLAGS(MEMWAIT_PRIVATE);
	void *object = self->shared;

	ASSERT_EQ(0, memwait_mutex_init(object, MEMWAIT_MUTEX_FAIR));
	EXPECT_EQ(0, memcmp(object, &mutex, sizeof(mutex)));
	ASSERT_EQ(0, memwait_rwlock_init(object, MEMWAIT_RWLOCK_PREFER_WRITER | MEMWAIT_PRIVATE));
	EXPECT_EQ(0, memcmp(object, &rwlock, sizeof(rwlock)));
	ASSERT_EQ(0, memwait_cond_init(object, MEMWAIT_COND_MONOTONIC));
	EXPECT_EQ(0, memcmp(object, &cond, sizeof(cond)));
	ASSERT_EQ(0, memwait_sem_init(object, MEMWAIT_PRIVATE, 5));
	EXPECT_EQ(0, memcmp(object, &sem, sizeof(sem)));
	ASSERT_EQ(0, memwait_sem_init(object, MEMWAIT_SEM_FAIR, 5));
	EXPECT_EQ(0, memcmp(object, &fair, sizeof(fair)));
	ASSERT_EQ(0, memwait_waitgroup_init(object, MEMWAIT_PRIVATE, 0));
	EXPECT_EQ(0, memcmp(object, &group, sizeof(group)));
	ASSERT_EQ(0, memwait_event_init(object, MEMWAIT_PRIVATE));
	EXPECT_EQ(0, memcmp(object, &event, sizeof(event)));
}

TEST_HARNESS_MAIN
