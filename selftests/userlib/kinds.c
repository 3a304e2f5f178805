// SPDX-License-Identifier: GPL-2.0
/*
 * Objects of a kind that this library does not know, for example a kind of a later library. Every
 * function refuses such an object and does not change it (L13).
 */
#include "objects_test.h"

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

ONE(mutex, consistent)
FUNCTION(mutex_is_held, memwait_mutex_t, -memwait_mutex_is_held(o))
FUNCTION(mutex_execute_locked, memwait_mutex_t, memwait_mutex_execute_locked(o, op))

ONE(rwlock, consistent)

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

FUNCTION(sem_getvalue, memwait_sem_t, memwait_sem_getvalue(o, &value))

ONE(barrier, abort)
ONE(barrier, reset)
FUNCTION(barrier_inspect, memwait_barrier_t, memwait_barrier_inspect(o, NULL, NULL))

FUNCTION(waitgroup_add, memwait_waitgroup_t, memwait_waitgroup_add(o, 1))

ONE(event, clear)
FUNCTION(event_is_set, memwait_event_t, -memwait_event_is_set(o))

static const struct layout cond_layout = LAYOUT(cond, 4, 0x90);

/* A call of @function, or of a function of the way: see make_call(). */
struct call {
	const char *name;
	const struct layout *layout;
	int (*function)(void *object, memwait_op_t *op);
	const struct way *way;
	int number;
};

#define EACH(layout_, function_)	\
	{ .name = #function_, .layout = &(layout_), .function = (function_) }

/* The functions that the ways do not have. */
static const struct call calls[] = {
	EACH(mutex_way.layout, mutex_consistent), EACH(mutex_way.layout, mutex_is_held),
	EACH(mutex_way.layout, mutex_execute_locked), EACH(mutex_way.layout, cond_wait_mutex),
	EACH(mutex_way.layout, cond_wait_mutex_async),
	EACH(read_way.layout, rwlock_consistent),
	EACH(cond_layout, cond_wait), EACH(cond_layout, cond_timedwait),
	EACH(cond_layout, cond_clockwait), EACH(cond_layout, cond_wait_async),
	EACH(cond_layout, cond_clockwait_async), EACH(cond_layout, cond_signal),
	EACH(cond_layout, cond_broadcast), EACH(cond_layout, cond_notify),
	EACH(cond_layout, cond_destroy),
	EACH(sem_way.layout, sem_getvalue),
	EACH(barrier_way.layout, barrier_abort), EACH(barrier_way.layout, barrier_reset),
	EACH(barrier_way.layout, barrier_inspect),
	EACH(group_way.layout, waitgroup_add),
	EACH(event_way.layout, event_clear), EACH(event_way.layout, event_is_set),
};

static int make_call(const struct call *call, void *object, memwait_op_t *op)
{
	const struct way *way = call->way;

	switch (call->number) {
	case 0:
		return call->function(object, op);
	case 1:
		return way->wait(object);
	case 2:
		return way->wait_timed(object, &never);
	case 3:
		return way->wait_until(object, CLOCK_MONOTONIC, &never);
	case 4:
		return way->wait_async(object, op);
	case 5:
		return way->wait_until_async(object, CLOCK_MONOTONIC, &never, op);
	case 6:
		return way->give(object);
	case 7:
		return way->destroy(object);
	default:
		return way->try ? way->try(object) : EINVAL;
	}
}

/* Makes the call with an object of each unknown kind. Returns the number of these kinds. */
static int check_call(struct __test_metadata *_metadata, const struct call *call, uint32_t *object,
		      memwait_op_t *op)
{
	const struct layout *layout = call->layout;
	int bit, bits = layout->size == sizeof(*object) ? 32 : 64, refused = 0;
	uint32_t before[16];

	for (bit = 0; bit < bits; bit++) {
		if (bit < 32 && layout->known & 1U << bit)
			continue;
		memset(object, 0, layout->size);
		memcpy(object, layout->words, sizeof(layout->words));
		object[layout->kind + bit / 32] |= 1U << bit % 32;
		memcpy(before, object, layout->size);
		errno = 0;
		EXPECT_TRUE(make_call(call, object, op) == EINVAL &&
			    !memcmp(before, object, layout->size)) {
			TH_LOG("%s, call %d: bit %d", call->name, call->number, bit);
		}
		refused++;
	}
	return refused;
}

USERLIB_TEST(unknown_kinds_are_refused)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	const struct object *object;
	int i, refused = 0;

	ASSERT_EQ(0, memwait_mutex_lock(&locked));
	for_each_object(object, !object->kind && object->way->layout.size) {
		for (i = 1; i <= 8; i++) {
			const struct call call = {
				.name = object->name, .layout = &object->way->layout,
				.way = object->way, .number = i,
			};

			refused += check_call(_metadata, &call, self->shared, &counted.op);
		}
	}
	for (i = 0; i < (int)ARRAY_SIZE(calls); i++)
		refused += check_call(_metadata, &calls[i], self->shared, &counted.op);
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
