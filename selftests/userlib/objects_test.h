/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A common interface to the library's objects. With each object a thread can wait for something (a
 * lock, an item, the arrival of all), and a function lets a waiter continue.
 */
#ifndef OBJECTS_TEST_H
#define OBJECTS_TEST_H

#include "userlib_test.h"

/*
 * A way to wait for an object. @make initialises the object so that the next caller must wait.
 * @wait and the members after it are the functions of the library. The holder calls @give, which
 * lets one waiter (or all waiters) continue. A waiter that got the object calls @give_back, which
 * is NULL if nothing has to be given back. Waiters sleep at the offset @word, or at @other_word if
 * that is not 0.
 */
struct way {
	int (*make)(void *object, unsigned int kind);
	int (*wait)(void *object);
	int (*wait_timed)(void *object, const struct timespec *time);
	int (*wait_until)(void *object, clockid_t clock, const struct timespec *time);
	int (*wait_async)(void *object, memwait_op_t *op);
	int (*wait_until_async)(void *object, clockid_t clock, const struct timespec *time,
				memwait_op_t *op);
	int (*give)(void *object);
	int (*give_back)(void *object);
	int (*destroy)(void *object);
	size_t word, other_word;
	bool lets_all_go;
	/* A killed waiter counts as a waiter that has not left: destroy fails after ten seconds. */
	bool counts_killed;
	/*
	 * destroy cannot distinguish a killed waiter from waiters that have not left yet: it
	 * returns EBUSY.
	 */
	bool busy_if_killed;
};

/* Like CALL(), for functions with more arguments. */
#define TIMED(function)		((int (*)(void *, const struct timespec *))(function))
#define UNTIL(function)		((int (*)(void *, clockid_t, const struct timespec *))(function))
#define ASYNC(function)		((int (*)(void *, memwait_op_t *))(function))
#define UNTIL_ASYNC(function)	\
	((int (*)(void *, clockid_t, const struct timespec *, memwait_op_t *))(function))

static inline int make_locked(void *object, unsigned int kind)
{
	return memwait_mutex_init(object, kind) ?: memwait_mutex_lock(object);
}

static const struct way mutex_way = {
	.make			= make_locked,
	.wait			= CALL(memwait_mutex_lock),
	.wait_timed		= TIMED(memwait_mutex_timedlock),
	.wait_until		= UNTIL(memwait_mutex_clocklock),
	.wait_async		= ASYNC(memwait_mutex_lock_async),
	.wait_until_async	= UNTIL_ASYNC(memwait_mutex_clocklock_async),
	.give			= CALL(memwait_mutex_unlock),
	.give_back		= CALL(memwait_mutex_unlock),
	.destroy		= CALL(memwait_mutex_destroy),
};

static inline int make_written(void *object, unsigned int kind)
{
	return memwait_rwlock_init(object, kind) ?: memwait_rwlock_wrlock(object);
}

static const struct way read_way = {
	.make			= make_written,
	.wait			= CALL(memwait_rwlock_rdlock),
	.wait_timed		= TIMED(memwait_rwlock_timedrdlock),
	.wait_until		= UNTIL(memwait_rwlock_clockrdlock),
	.wait_async		= ASYNC(memwait_rwlock_rdlock_async),
	.wait_until_async	= UNTIL_ASYNC(memwait_rwlock_clockrdlock_async),
	.give			= CALL(memwait_rwlock_unlock),
	.give_back		= CALL(memwait_rwlock_unlock),
	.destroy		= CALL(memwait_rwlock_destroy),
	.other_word		= 8,
};

static inline int make_read(void *object, unsigned int kind)
{
	return memwait_rwlock_init(object, kind) ?: memwait_rwlock_rdlock(object);
}

#define WRITE_WAY(make_)	{						\
	.make			= (make_),					\
	.wait			= CALL(memwait_rwlock_wrlock),			\
	.wait_timed		= TIMED(memwait_rwlock_timedwrlock),		\
	.wait_until		= UNTIL(memwait_rwlock_clockwrlock),		\
	.wait_async		= ASYNC(memwait_rwlock_wrlock_async),		\
	.wait_until_async	= UNTIL_ASYNC(memwait_rwlock_clockwrlock_async), \
	.give			= CALL(memwait_rwlock_unlock),			\
	.give_back		= CALL(memwait_rwlock_unlock),			\
	.destroy		= CALL(memwait_rwlock_destroy),			\
	.other_word		= 8,						\
}

static const struct way write_way = WRITE_WAY(make_written);
static const struct way write_after_read_way = WRITE_WAY(make_read);

static inline int make_sem(void *object, unsigned int kind)
{
	return memwait_sem_init(object, kind, 0);
}

#define SEM_WAY(...)							\
{									\
	.make			= make_sem,				\
	.wait			= CALL(memwait_sem_wait),		\
	.wait_timed		= TIMED(memwait_sem_timedwait),		\
	.wait_until		= UNTIL(memwait_sem_clockwait),		\
	.wait_async		= ASYNC(memwait_sem_wait_async),	\
	.wait_until_async	= UNTIL_ASYNC(memwait_sem_clockwait_async), \
	.give			= CALL(memwait_sem_post),		\
	.destroy		= CALL(memwait_sem_destroy),		\
	##__VA_ARGS__							\
}

static const struct way sem_way = SEM_WAY();
/* Waiters sleep at offset 2, because sleep_word() adds 1 to this offset. */
static const struct way fair_sem_way = SEM_WAY(.word = 1);

static inline int make_group(void *object, unsigned int kind)
{
	return memwait_waitgroup_init(object, kind, 1);
}

static const struct way group_way = {
	.make			= make_group,
	.wait			= CALL(memwait_waitgroup_wait),
	.wait_timed		= TIMED(memwait_waitgroup_timedwait),
	.wait_until		= UNTIL(memwait_waitgroup_clockwait),
	.wait_async		= ASYNC(memwait_waitgroup_wait_async),
	.wait_until_async	= UNTIL_ASYNC(memwait_waitgroup_clockwait_async),
	.give			= CALL(memwait_waitgroup_done),
	.destroy		= CALL(memwait_waitgroup_destroy),
	.lets_all_go		= true,
	.busy_if_killed		= true,
};

static inline int make_unset(void *object, unsigned int kind)
{
	return memwait_event_init(object, kind);
}

static const struct way event_way = {
	.make			= make_unset,
	.wait			= CALL(memwait_event_wait),
	.wait_timed		= TIMED(memwait_event_timedwait),
	.wait_until		= UNTIL(memwait_event_clockwait),
	.wait_async		= ASYNC(memwait_event_wait_async),
	.wait_until_async	= UNTIL_ASYNC(memwait_event_clockwait_async),
	.give			= CALL(memwait_event_set),
	.destroy		= CALL(memwait_event_destroy),
	.lets_all_go		= true,
};

/*
 * The buffer of all receive operations. Several tests receive into this buffer at the same time, so
 * its value has no meaning.
 */
static long channel_item;

static inline int make_empty(void *object, unsigned int kind)
{
	size_t memory = memwait_channel_size(sizeof(channel_item), 2);

	return memwait_channel_init(object, memory, kind, sizeof(channel_item), 2);
}

static inline int receive_one(void *object)
{
	long item;

	return memwait_channel_recv(object, &item, sizeof(item));
}

static inline int receive_timed(void *object, const struct timespec *time)
{
	long item;

	return memwait_channel_timedrecv(object, &item, sizeof(item), time);
}

static inline int receive_until(void *object, clockid_t clock, const struct timespec *time)
{
	long item;

	return memwait_channel_clockrecv(object, &item, sizeof(item), clock, time);
}

static inline int receive_async(void *object, memwait_op_t *op)
{
	return memwait_channel_recv_async(object, &channel_item, sizeof(channel_item), op);
}

static inline int receive_until_async(void *object, clockid_t clock, const struct timespec *time,
				      memwait_op_t *op)
{
	return memwait_channel_clockrecv_async(object, &channel_item, sizeof(channel_item), clock,
					       time, op);
}

static inline int send_one(void *object)
{
	const long item = 1;

	return memwait_channel_send(object, &item, sizeof(item));
}

static inline int send_timed(void *object, const struct timespec *time)
{
	const long item = 1;

	return memwait_channel_timedsend(object, &item, sizeof(item), time);
}

static inline int send_until(void *object, clockid_t clock, const struct timespec *time)
{
	const long item = 1;

	return memwait_channel_clocksend(object, &item, sizeof(item), clock, time);
}

static inline int send_async(void *object, memwait_op_t *op)
{
	return memwait_channel_send_async(object, &channel_item, sizeof(channel_item), op);
}

static inline int send_until_async(void *object, clockid_t clock, const struct timespec *time,
				   memwait_op_t *op)
{
	return memwait_channel_clocksend_async(object, &channel_item, sizeof(channel_item), clock,
					       time, op);
}

static inline int make_full(void *object, unsigned int kind)
{
	int err = make_empty(object, kind);

	err = err ? err : send_one(object);
	return err ? err : send_one(object);
}

/*
 * Receivers sleep on the second word of the cache line of the senders. Senders sleep on the second
 * word of the cache line of the receivers.
 */
static const struct way receive_way = {
	.make			= make_empty,
	.wait			= receive_one,
	.wait_timed		= receive_timed,
	.wait_until		= receive_until,
	.wait_async		= receive_async,
	.wait_until_async	= receive_until_async,
	.give			= send_one,
	.destroy		= CALL(memwait_channel_destroy),
	.counts_killed		= true,
	.word			= 64 + 8,
};

static const struct way send_way = {
	.make			= make_full,
	.wait			= send_one,
	.wait_timed		= send_timed,
	.wait_until		= send_until,
	.wait_async		= send_async,
	.wait_until_async	= send_until_async,
	.give			= receive_one,
	.destroy		= CALL(memwait_channel_destroy),
	.counts_killed		= true,
	.word			= 128 + 8,
};

/* A waiter whose condition is met holds the mutex, and unlocks it. */
struct condition {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	int met;
};

static inline int condition_make(void *object, unsigned int kind)
{
	struct condition *condition = object;

	memset(condition, 0, sizeof(*condition));
	return memwait_mutex_init(&condition->mutex, kind) ?:
	       memwait_cond_init(&condition->cond, kind & MEMWAIT_PRIVATE);
}

static inline int condition_wait_until(void *object, clockid_t clock,
				       const struct timespec *time)
{
	struct condition *condition = object;
	int err = memwait_mutex_lock(&condition->mutex);

	while (!err && !condition->met)
		err = time ? memwait_cond_clockwait(&condition->cond, &condition->mutex, clock,
						    time) :
			     memwait_cond_wait(&condition->cond, &condition->mutex);
	if (err == ETIMEDOUT)
		must(memwait_mutex_unlock(&condition->mutex));
	return err;
}

static inline int condition_wait(void *object)
{
	return condition_wait_until(object, CLOCK_MONOTONIC, NULL);
}

static inline int condition_wait_async(void *object, memwait_op_t *op)
{
	struct condition *condition = object;

	return memwait_mutex_lock(&condition->mutex) ?:
	       memwait_cond_wait_async(&condition->cond, &condition->mutex, op);
}

static inline int condition_give_back(void *object)
{
	struct condition *condition = object;

	return memwait_mutex_unlock(&condition->mutex);
}

static inline int condition_give(void *object)
{
	struct condition *condition = object;
	int err = memwait_mutex_lock(&condition->mutex);

	condition->met = 1;
	return err ?: memwait_cond_signal(&condition->cond) ?: condition_give_back(object);
}

static inline int condition_destroy(void *object)
{
	struct condition *condition = object;

	return memwait_cond_destroy(&condition->cond) ?: memwait_mutex_destroy(&condition->mutex);
}

static const struct way condition_way = {
	.make		= condition_make,
	.wait		= condition_wait,
	.wait_until	= condition_wait_until,
	.wait_async	= condition_wait_async,
	.give		= condition_give,
	.give_back	= condition_give_back,
	.destroy	= condition_destroy,
};

/* A barrier for two participants: the last arrival wakes the first. */
static inline int barrier_make(void *object, unsigned int kind)
{
	return memwait_barrier_init(object, kind, 2);
}

static inline int barrier_wait(void *object)
{
	int ret = memwait_barrier_wait(object);

	return ret == MEMWAIT_BARRIER_SERIAL_THREAD ? 0 : ret;
}

static inline int barrier_wait_until(void *object, clockid_t clock,
				     const struct timespec *time)
{
	int ret = memwait_barrier_clockwait(object, clock, time);

	return ret == MEMWAIT_BARRIER_SERIAL_THREAD ? 0 : ret;
}

static const struct way barrier_way = {
	.make			= barrier_make,
	.wait			= barrier_wait,
	.wait_until		= barrier_wait_until,
	.wait_async		= ASYNC(memwait_barrier_wait_async),
	.give			= barrier_wait,
	.destroy		= CALL(memwait_barrier_destroy),
};

/* Gives back the acquired object, except an item or a semaphore unit. */
static inline int leave(const struct way *way, void *object, int result)
{
	return result || !way->give_back ? result : way->give_back(object);
}

/* Lets one more waiter continue: the holder leaves, or another unit or item is given. */
static inline int give_next(const struct way *way, void *object)
{
	if (way->lets_all_go)
		return 0;
	return way->give_back ? way->give_back(object) : way->give(object);
}

static inline int sleepers(const struct way *way, const void *object, unsigned int kind)
{
	unsigned int flags = kind & MEMWAIT_PRIVATE;
	const char *start = object;
	int n = memwait_waiters(sleep_word(start + way->word, kind), flags);

	return way->other_word ? n + memwait_waiters(start + way->other_word, flags) : n;
}

/* Returns the number of sleepers on all bytes of the object. */
static inline int sleepers_within(const void *object, size_t size, unsigned int kind)
{
	int total = 0, n;
	size_t i;

	for (i = 0; i < size; i++) {
		n = memwait_waiters((const char *)object + i, kind & MEMWAIT_PRIVATE);
		total += n > 0 ? n : 0;
	}
	return total;
}

/*
 * A thread that waits for the object, with the deadline @time or without a deadline, and then
 * leaves the object.
 */
struct visitor {
	const struct way *way;
	void *object;
	clockid_t clock;		/* -1: the function without a deadline */
	const struct timespec *time;
	struct runner runner;
};

static inline int visit(void *arg)
{
	struct visitor *visitor = arg;
	const struct way *way = visitor->way;
	int err = visitor->clock < 0 ? way->wait(visitor->object) :
		  way->wait_until(visitor->object, visitor->clock, visitor->time);

	return leave(way, visitor->object, err);
}

static inline void visitor_start(struct visitor *visitor, const struct way *way, void *object)
{
	*visitor = (struct visitor){ .way = way, .object = object, .clock = -1 };
	runner_start(&visitor->runner, visit, visitor);
}

static inline void visitor_start_until(struct visitor *visitor, const struct way *way,
				       void *object, clockid_t clock,
				       const struct timespec *time)
{
	*visitor = (struct visitor){
		.way = way, .object = object, .clock = clock, .time = time,
	};
	runner_start(&visitor->runner, visit, visitor);
}

static inline int visitor_join(struct visitor *visitor)
{
	return runner_join(&visitor->runner);
}

static inline void await_sleepers(const struct way *way, const void *object, unsigned int kind,
				  int n)
{
	spin_until(sleepers(way, object, kind) == n);
}

#endif /* OBJECTS_TEST_H */
