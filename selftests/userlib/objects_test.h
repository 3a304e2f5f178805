/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A common interface to the library's objects, and a table of all objects. With each object a
 * thread can wait for something (a lock, an item, the arrival of all), and a function lets a waiter
 * continue.
 */
#ifndef OBJECTS_TEST_H
#define OBJECTS_TEST_H

#include "userlib_test.h"

#include <stddef.h>

/*
 * The layout of an object that consists of 32-bit words. @kind: index of the kind. If the next word
 * belongs to the object, it is unused. @known: the bits of that word that an object may have set.
 * @words: a valid object that can be acquired without a wait, for example with a barrier's count.
 */
struct layout {
	size_t size;
	unsigned int kind;
	uint32_t known;
	uint32_t words[7];
};

#define LAYOUT(object, kind_, known_, ...)					\
{										\
	.size	= sizeof(memwait_##object##_t),					\
	.kind	= (kind_),							\
	.known	= (known_),							\
	.words	= { __VA_ARGS__ },						\
}

/*
 * A way to wait for an object. @make initialises the object so that the next caller must wait.
 * @wait and the members after it are the functions of the library; @try is NULL if there is no such
 * function. The holder calls @give, which lets one waiter (or all waiters) continue. A waiter that
 * got the object calls @give_back, which is NULL if nothing has to be given back. Waiters sleep at
 * the offset @word, or at @other_word if that is not 0.
 */
struct way {
	int (*make)(void *object, unsigned int kind);
	int (*wait)(void *object);
	int (*wait_timed)(void *object, const struct timespec *time);
	int (*wait_until)(void *object, clockid_t clock, const struct timespec *time);
	int (*wait_async)(void *object, memwait_op_t *op);
	int (*wait_until_async)(void *object, clockid_t clock, const struct timespec *time,
				memwait_op_t *op);
	int (*try)(void *object);
	int (*give)(void *object);
	int (*give_back)(void *object);
	int (*destroy)(void *object);
	/* Another way to wait for the object, which excludes this way. */
	const struct way *opposite;
	size_t word, other_word;
	struct layout layout;	/* of an object that has a kind */
	bool lets_all_go;
	bool together;		/* several waiters can have it at the same time */
	bool cancels;		/* a wait is a cancellation point */
	bool has_gate;		/* the first waiter closes a gate, behind which others wait */
	bool meets;		/* waiters are participants: all continue when all have arrived */
	/* A killed waiter counts as a waiter that has not left: destroy fails after ten seconds. */
	bool counts_killed;
	/* The last waiter to leave wakes destroy. */
	bool wakes_destroy;
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

/* The functions of an object whose names contain @verb. */
#define WAY(object, verb)							\
	.wait			= CALL(memwait_##object##_##verb),		\
	.wait_timed		= TIMED(memwait_##object##_timed##verb),	\
	.wait_until		= UNTIL(memwait_##object##_clock##verb),	\
	.wait_async		= ASYNC(memwait_##object##_##verb##_async),	\
	.wait_until_async	= UNTIL_ASYNC(memwait_##object##_clock##verb##_async), \
	.destroy		= CALL(memwait_##object##_destroy)

static inline int make_locked(void *object, unsigned int kind)
{
	return memwait_mutex_init(object, kind) ?: memwait_mutex_lock(object);
}

#define MUTEX_WAY(make_)							\
{										\
	WAY(mutex, lock),							\
	.make		= (make_),						\
	.layout		= LAYOUT(mutex, 2, 0x8f),				\
	.try		= CALL(memwait_mutex_trylock),				\
	.give		= CALL(memwait_mutex_unlock),				\
	.give_back	= CALL(memwait_mutex_unlock),				\
}

static const struct way mutex_way = MUTEX_WAY(make_locked);

static inline int make_written(void *object, unsigned int kind)
{
	return memwait_rwlock_init(object, kind) ?: memwait_rwlock_wrlock(object);
}

static inline int make_read(void *object, unsigned int kind)
{
	return memwait_rwlock_init(object, kind) ?: memwait_rwlock_rdlock(object);
}

#define RWLOCK_WAY(verb, ...)							\
{										\
	WAY(rwlock, verb),							\
	.layout		= LAYOUT(rwlock, 6, 0x9c),				\
	.try		= CALL(memwait_rwlock_try##verb),			\
	.give		= CALL(memwait_rwlock_unlock),				\
	.give_back	= CALL(memwait_rwlock_unlock),				\
	.other_word	= 8,							\
	##__VA_ARGS__								\
}

static const struct way write_way;
static const struct way read_way =
	RWLOCK_WAY(rdlock, .make = make_written, .opposite = &write_way, .together = true);
static const struct way write_way =
	RWLOCK_WAY(wrlock, .make = make_written, .opposite = &read_way);
static const struct way write_after_read_way =
	RWLOCK_WAY(wrlock, .make = make_read, .has_gate = true);

static inline int make_sem(void *object, unsigned int kind)
{
	return memwait_sem_init(object, kind, 0);
}

#define SEM_WAY(...)								\
{										\
	WAY(sem, wait),								\
	.make		= make_sem,						\
	.layout		= LAYOUT(sem, 2, 0x84, 5),				\
	.try		= CALL(memwait_sem_trywait),				\
	.give		= CALL(memwait_sem_post),				\
	##__VA_ARGS__								\
}

static const struct way sem_way = SEM_WAY(.cancels = true);
/* Waiters sleep at offset 2, because sleep_word() adds 1 to this offset. */
static const struct way fair_sem_way = SEM_WAY(.word = 1);

static inline int make_group(void *object, unsigned int kind)
{
	return memwait_waitgroup_init(object, kind, 1);
}

static const struct way group_way = {
	WAY(waitgroup, wait),
	.layout		= LAYOUT(waitgroup, 4, 0x80),
	.make		= make_group,
	.give		= CALL(memwait_waitgroup_done),
	.together	= true,
	.lets_all_go	= true,
	.wakes_destroy	= true,
	.busy_if_killed	= true,
};

static inline int make_unset(void *object, unsigned int kind)
{
	return memwait_event_init(object, kind);
}

static const struct way event_way = {
	WAY(event, wait),
	/* The only word of an event also contains the number of its changes. */
	.layout		= LAYOUT(event, 0, 0x8fffffff, 1),
	.make		= make_unset,
	.give		= CALL(memwait_event_set),
	.together	= true,
	.lets_all_go	= true,
};

/*
 * The buffer of all asynchronous operations. Several tests receive into this buffer at the same
 * time, so its value has no meaning.
 */
static long channel_item;

static inline int make_empty(void *object, unsigned int kind)
{
	size_t memory = memwait_channel_size(sizeof(channel_item), 2);

	return memwait_channel_init(object, memory, kind, sizeof(channel_item), 2);
}

/* The functions of a channel, each with the parameters @..., that transfer one item. */
#define CHANNEL_CALL(name, function, parameters, ...)				\
static inline int name parameters						\
{										\
	long item = 1;								\
										\
	return memwait_channel_##function(object, &item, sizeof(item), ##__VA_ARGS__); \
}

#define CHANNEL_ASYNC(name, function, parameters, ...)				\
static inline int name parameters						\
{										\
	return memwait_channel_##function(object, &channel_item, sizeof(channel_item), \
					  __VA_ARGS__);				\
}

#define CHANNEL_CALLS(name, verb)						\
	CHANNEL_CALL(name##_one, verb, (void *object))				\
	CHANNEL_CALL(name##_try, try##verb, (void *object))			\
	CHANNEL_CALL(name##_timed, timed##verb, (void *object, const struct timespec *time), \
		     time)							\
	CHANNEL_CALL(name##_until, clock##verb,					\
		     (void *object, clockid_t clock, const struct timespec *time), clock, time) \
	CHANNEL_ASYNC(name##_async, verb##_async, (void *object, memwait_op_t *op), op) \
	CHANNEL_ASYNC(name##_until_async, clock##verb##_async,			\
		      (void *object, clockid_t clock, const struct timespec *time, \
		       memwait_op_t *op), clock, time, op)

CHANNEL_CALLS(receive, recv)
CHANNEL_CALLS(send, send)

/* Waits until the channel is closed. */
static inline int receive_end(void *object)
{
	return receive_one(object) == EPIPE ? 0 : EINVAL;
}

static inline int make_full(void *object, unsigned int kind)
{
	return make_empty(object, kind) ?: send_one(object) ?: send_one(object);
}

#define CHANNEL_WAY(name, make_, give_, word_)					\
{										\
	.make			= (make_),					\
	.wait			= name##_one,					\
	.wait_timed		= name##_timed,					\
	.wait_until		= name##_until,					\
	.wait_async		= name##_async,					\
	.wait_until_async	= name##_until_async,				\
	.try			= name##_try,					\
	.give			= (give_),					\
	.destroy		= CALL(memwait_channel_destroy),		\
	.counts_killed		= true,						\
	.word			= (word_),					\
}

/*
 * Receivers sleep on the second word of the cache line of the senders. Senders sleep on the second
 * word of the cache line of the receivers.
 */
static const struct way receive_way = CHANNEL_WAY(receive, make_empty, send_one, 64 + 8);
static const struct way send_way = CHANNEL_WAY(send, make_full, receive_one, 128 + 8);

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
	.word		= offsetof(struct condition, cond),
	.cancels	= true,
	.counts_killed	= true,
};

/* A barrier for two participants: the last arrival wakes the first. */
static inline int barrier_make(void *object, unsigned int kind)
{
	return memwait_barrier_init(object, kind, 2);
}

static inline int is_met(int ret)
{
	return ret == MEMWAIT_BARRIER_SERIAL_THREAD ? 0 : ret;
}

static inline int barrier_wait(void *object)
{
	return is_met(memwait_barrier_wait(object));
}

static inline int barrier_wait_timed(void *object, const struct timespec *time)
{
	return is_met(memwait_barrier_timedwait(object, time));
}

static inline int barrier_wait_until(void *object, clockid_t clock,
				     const struct timespec *time)
{
	return is_met(memwait_barrier_clockwait(object, clock, time));
}

static const struct way barrier_way = {
	.make			= barrier_make,
	.wait			= barrier_wait,
	.wait_timed		= barrier_wait_timed,
	.wait_until		= barrier_wait_until,
	.wait_async		= ASYNC(memwait_barrier_wait_async),
	.wait_until_async	= UNTIL_ASYNC(memwait_barrier_clockwait_async),
	.give			= barrier_wait,
	.destroy		= CALL(memwait_barrier_destroy),
	.layout			= LAYOUT(barrier, 4, 0x80, [6] = 1),
	.meets			= true,
	.counts_killed		= true,
	.wakes_destroy		= true,
};

/*
 * All objects. Each object has a name, a way, and a kind. objects.c, which repeats races for each
 * object, tests only the first objects.
 */
#define FIRST_OBJECTS(OBJECT)							\
	OBJECT(mutex, mutex_way, 0)						\
	OBJECT(private_mutex, mutex_way, MEMWAIT_PRIVATE)			\
	OBJECT(fair_mutex, mutex_way, MEMWAIT_MUTEX_FAIR)			\
	OBJECT(robust_mutex, mutex_way, MEMWAIT_MUTEX_ROBUST)			\
	OBJECT(reader, read_way, 0)						\
	OBJECT(reader_of_writers, read_way, MEMWAIT_RWLOCK_PREFER_WRITER)	\
	OBJECT(fair_reader, read_way, MEMWAIT_RWLOCK_FAIR)			\
	OBJECT(robust_reader, read_way, MEMWAIT_RWLOCK_ROBUST)			\
	OBJECT(writer, write_way, 0)						\
	OBJECT(writer_of_writers, write_way, MEMWAIT_RWLOCK_PREFER_WRITER)	\
	OBJECT(fair_writer, write_way, MEMWAIT_RWLOCK_FAIR)			\
	OBJECT(robust_writer, write_way, MEMWAIT_RWLOCK_ROBUST)			\
	OBJECT(writer_after_reader, write_after_read_way, 0)			\
	OBJECT(writer_of_writers_after_reader, write_after_read_way,		\
	       MEMWAIT_RWLOCK_PREFER_WRITER)					\
	OBJECT(semaphore, sem_way, 0)						\
	OBJECT(fair_semaphore, fair_sem_way, MEMWAIT_SEM_FAIR)			\
	OBJECT(group, group_way, 0)						\
	OBJECT(event, event_way, 0)						\
	OBJECT(receiver, receive_way, 0)					\
	OBJECT(sender, send_way, 0)

#define OTHER_OBJECTS(OBJECT)							\
	OBJECT(checking_mutex, mutex_way, MEMWAIT_MUTEX_ERRORCHECK)		\
	OBJECT(recursive_mutex, mutex_way, MEMWAIT_MUTEX_RECURSIVE)		\
	OBJECT(robust_recursive_mutex, mutex_way,				\
	       MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_RECURSIVE)			\
	OBJECT(private_fair_mutex, mutex_way, MEMWAIT_MUTEX_FAIR | MEMWAIT_PRIVATE) \
	OBJECT(private_robust_mutex, mutex_way, MEMWAIT_MUTEX_ROBUST | MEMWAIT_PRIVATE) \
	OBJECT(private_checking_mutex, mutex_way,				\
	       MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_PRIVATE)			\
	OBJECT(private_recursive_mutex, mutex_way,				\
	       MEMWAIT_MUTEX_RECURSIVE | MEMWAIT_PRIVATE)			\
	OBJECT(private_reader, read_way, MEMWAIT_PRIVATE)			\
	OBJECT(private_fair_reader, read_way, MEMWAIT_RWLOCK_FAIR | MEMWAIT_PRIVATE) \
	OBJECT(private_writer, write_way, MEMWAIT_PRIVATE)			\
	OBJECT(private_writer_after_reader, write_after_read_way, MEMWAIT_PRIVATE) \
	OBJECT(fair_writer_after_reader, write_after_read_way, MEMWAIT_RWLOCK_FAIR) \
	OBJECT(robust_writer_after_reader, write_after_read_way, MEMWAIT_RWLOCK_ROBUST) \
	OBJECT(private_semaphore, sem_way, MEMWAIT_PRIVATE)			\
	OBJECT(private_group, group_way, MEMWAIT_PRIVATE)			\
	OBJECT(private_event, event_way, MEMWAIT_PRIVATE)			\
	OBJECT(private_receiver, receive_way, MEMWAIT_PRIVATE)			\
	OBJECT(private_sender, send_way, MEMWAIT_PRIVATE)			\
	OBJECT(condition, condition_way, 0)					\
	OBJECT(private_condition, condition_way, MEMWAIT_PRIVATE)		\
	OBJECT(robust_condition, condition_way, MEMWAIT_MUTEX_ROBUST)		\
	OBJECT(barrier, barrier_way, 0)						\
	OBJECT(private_barrier, barrier_way, MEMWAIT_PRIVATE)

/* @kind: kinds of different objects have the same flags, for example MEMWAIT_MUTEX_FAIR. */
struct object {
	const char *name;
	const struct way *way;
	unsigned int kind;
};

#define OBJECT_INIT(name_, way_, kind_)	\
	{ .name = #name_, .way = &(way_), .kind = (kind_) },

static const struct object objects[] = {
	FIRST_OBJECTS(OBJECT_INIT)
	OTHER_OBJECTS(OBJECT_INIT)
};

/* Memory for any of the objects. */
#define OBJECT_SIZE	512

/* Repeats a statement for each object that meets the condition. */
#define for_each_object(object, condition)					\
	for ((object) = objects; (object) < objects + ARRAY_SIZE(objects); (object)++) \
		if (!(condition)) {						\
		} else

static inline bool is_private(const struct object *object)
{
	return object->kind & MEMWAIT_PRIVATE;
}

static inline bool is_robust(const struct object *object)
{
	return object->kind & MEMWAIT_MUTEX_ROBUST;
}

/* Whether a waiter that was woken already holds the object. */
static inline bool is_handed_over(const struct object *object)
{
	return object->kind & MEMWAIT_MUTEX_FAIR;
}

/* Whether only the thread that acquired the object can give it. */
static inline bool has_owner(const struct object *object)
{
	return object->kind & (MEMWAIT_MUTEX_RECURSIVE | MEMWAIT_MUTEX_ERRORCHECK |
			       MEMWAIT_MUTEX_ROBUST);
}

/*
 * Whether the thread that makes the object can wait for it, by operations, before it gives it. Not
 * if the object detects that the thread owns it or counts the thread as a participant, nor if a
 * notify may end a wait early.
 */
static inline bool maker_can_wait(const struct object *object)
{
	return !object->way->meets && object->way != &condition_way &&
	       !(object->kind & (MEMWAIT_MUTEX_RECURSIVE | MEMWAIT_MUTEX_ERRORCHECK));
}

/* Whether the first waiter excludes other waiters, even when it is dead. */
static inline bool first_excludes(const struct object *object)
{
	return object->way->has_gate &&
	       object->kind & (MEMWAIT_RWLOCK_PREFER_WRITER | MEMWAIT_RWLOCK_FAIR);
}

/* Whether a waiter that was woken and is dead excludes other waiters. */
static inline bool dead_excludes(const struct object *object)
{
	return is_handed_over(object) || first_excludes(object);
}

/* Whether waiters acquire the object one after another, in FIFO order. */
static inline bool is_fifo(const struct object *object)
{
	return !object->way->together && (!object->way->has_gate || first_excludes(object));
}

/* Gives back the acquired object, except an item or a semaphore unit. */
static inline int leave(const struct way *way, void *object, int result)
{
	return result || !way->give_back ? result : way->give_back(object);
}

/* Acquires the object if it is available. */
static inline int take(const struct way *way, void *object)
{
	static const struct timespec long_ago = { -1, 0 };

	return way->wait_until(object, CLOCK_MONOTONIC, &long_ago);
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
