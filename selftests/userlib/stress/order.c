// SPDX-License-Identifier: GPL-2.0
/*
 * order NAME: tests which ordering ThreadSanitizer detects in a library that is not instrumented.
 * One thread writes data and makes a call with release semantics. Another thread makes a call with
 * acquire semantics and reads the data. A relaxed flag, which orders nothing, makes the threads
 * take turns. Without an argument, the program prints all names. Names that begin with "race" have
 * no such pair of calls, and ThreadSanitizer must report a race.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <memwait.h>

#define CHECK(condition) do {							\
	if (!(condition)) {							\
		fprintf(stderr, "order: %s:%d: %s\n", __FILE__, __LINE__,	\
			#condition);						\
		exit(1);							\
	}									\
} while (0)

static memwait_mutex_t mutex, another;
static memwait_cond_t cond;
static memwait_sem_t sem;
static memwait_rwlock_t rwlock;
static memwait_barrier_t barrier;
static memwait_waitgroup_t group;
static memwait_event_t event;
static uint64_t memory[64];
static memwait_channel_t *channel = (memwait_channel_t *)memory;
static memwait_loop_t *loop;
static memwait_op_t op;
static uint32_t word;
static uint64_t item;

static long data;
static int flag;

static const struct timespec passed;

/* The suppressions for Valgrind name both functions. */
__attribute__((__noinline__, __noclone__))
static void set_turn(int turn)
{
	__atomic_store_n(&flag, turn, __ATOMIC_RELAXED);
}

__attribute__((__noinline__, __noclone__))
static void await_turn(int turn)
{
	while (__atomic_load_n(&flag, __ATOMIC_RELAXED) != turn)
		sched_yield();
}

static void called_back(memwait_op_t *ended, int result, void *arg)
{
	CHECK(!result || result == MEMWAIT_BARRIER_SERIAL_THREAD);
}

/* Runs the loop if the operation is pending. */
static int run(int result)
{
	return result == EINPROGRESS ? memwait_loop_run(loop, NULL, 0) : result;
}

/* Calls with release semantics. */

/* Defines a function that writes the data and makes a call. */
#define RELEASE(name, call)	\
static int name(void)		\
{				\
	data = 1;		\
	return call;		\
}

RELEASE(unlock, memwait_mutex_lock(&mutex) || memwait_mutex_unlock(&mutex))
RELEASE(unlock_another, memwait_mutex_lock(&another) || memwait_mutex_unlock(&another))

static int wait_for_cond(void)
{
	int ret = memwait_mutex_lock(&mutex);

	data = 1;
	set_turn(1);
	return ret || memwait_cond_wait(&cond, &mutex) || memwait_mutex_unlock(&mutex);
}

RELEASE(post, memwait_sem_post(&sem))
RELEASE(unlock_writer, memwait_rwlock_wrlock(&rwlock) || memwait_rwlock_unlock(&rwlock))
RELEASE(unlock_reader, memwait_rwlock_rdlock(&rwlock) || memwait_rwlock_unlock(&rwlock))

static int arrive(void)
{
	int ret;

	data = 1;
	set_turn(1);
	ret = memwait_barrier_wait(&barrier);
	return ret && ret != MEMWAIT_BARRIER_SERIAL_THREAD;
}

RELEASE(done, memwait_waitgroup_done(&group))
RELEASE(set_event, memwait_event_set(&event))

static int clear_event(void)
{
	int ret = memwait_event_set(&event);

	data = 1;
	return ret || memwait_event_clear(&event);
}

RELEASE(send_item, memwait_channel_send(channel, &item, sizeof(item)))

/* This call wakes a waiting sender. */
static int receive_item(void)
{
	uint64_t received;

	data = 1;
	return memwait_channel_send(channel, &item, sizeof(item)) ||
	       memwait_channel_recv(channel, &received, sizeof(received));
}

RELEASE(close_channel, memwait_channel_close(channel))
RELEASE(stop, memwait_loop_stop(loop))
RELEASE(change, memwait_change_notify32(&word, MEMWAIT_CHANGE_SET, 1, 1, 0, NULL) < 0)

/* Both participants leave the barrier, one of them by its callback. */
RELEASE(leave_barrier, memwait_barrier_wait_async(&barrier, &op) != EINPROGRESS ||
	memwait_barrier_wait(&barrier) > 0 || memwait_loop_run(loop, NULL, 0))

static int end_watching(void)
{
	int ret = memwait_watch32(&word, 0, NULL, 0, &op);

	data = 1;
	return ret != MEMWAIT_PENDING || memwait_op_cancel(&op);
}

RELEASE(nothing, 0)

/* Calls with acquire semantics. */

/* Defines a function that makes a call. */
#define ACQUIRE(name, call)	\
static int name(void)		\
{				\
	return call;		\
}

ACQUIRE(lock, memwait_mutex_lock(&mutex))

static int trylock(void)
{
	int ret;

	/* A waiter for a condition variable may not have unlocked the mutex yet. */
	do {
		ret = memwait_mutex_trylock(&mutex);
	} while (ret == EBUSY);
	return ret;
}

ACQUIRE(timedlock, memwait_mutex_timedlock(&mutex, &passed))
ACQUIRE(lock_async, run(memwait_mutex_lock_async(&mutex, &op)))
ACQUIRE(execute_locked, memwait_mutex_execute_locked(&mutex, &op))

static int signal_cond(void)
{
	int ret = trylock();

	CHECK(data == 1);
	return ret || memwait_cond_signal(&cond) || memwait_mutex_unlock(&mutex);
}

ACQUIRE(take, memwait_sem_wait(&sem))
ACQUIRE(trytake, memwait_sem_trywait(&sem))
ACQUIRE(timedtake, memwait_sem_timedwait(&sem, &passed))
ACQUIRE(take_async, run(memwait_sem_wait_async(&sem, &op)))
ACQUIRE(rdlock, memwait_rwlock_rdlock(&rwlock))
ACQUIRE(tryrdlock, memwait_rwlock_tryrdlock(&rwlock))
ACQUIRE(timedrdlock, memwait_rwlock_timedrdlock(&rwlock, &passed))
ACQUIRE(rdlock_async, run(memwait_rwlock_rdlock_async(&rwlock, &op)))
ACQUIRE(wrlock, memwait_rwlock_wrlock(&rwlock))
ACQUIRE(trywrlock, memwait_rwlock_trywrlock(&rwlock))
ACQUIRE(timedwrlock, memwait_rwlock_timedwrlock(&rwlock, &passed))
ACQUIRE(wrlock_async, run(memwait_rwlock_wrlock_async(&rwlock, &op)))

static int meet(void)
{
	int ret = memwait_barrier_wait(&barrier);

	return ret && ret != MEMWAIT_BARRIER_SERIAL_THREAD;
}

static int meet_async(void)
{
	int ret = memwait_barrier_wait_async(&barrier, &op);

	return ret == EINPROGRESS ? memwait_loop_run(loop, NULL, 0) : ret > 0;
}

ACQUIRE(destroy_barrier, memwait_barrier_destroy(&barrier))
ACQUIRE(await_group, memwait_waitgroup_wait(&group))
ACQUIRE(await_group_async, run(memwait_waitgroup_wait_async(&group, &op)))
ACQUIRE(await_event, memwait_event_wait(&event))
ACQUIRE(await_event_async, run(memwait_event_wait_async(&event, &op)))
ACQUIRE(see_by_clear, memwait_event_clear(&event))
ACQUIRE(find_event_set, memwait_event_is_set(&event) != 1)
ACQUIRE(find_event_unset, memwait_event_is_set(&event))
ACQUIRE(receive, memwait_channel_recv(channel, &item, sizeof(item)))
ACQUIRE(tryreceive, memwait_channel_tryrecv(channel, &item, sizeof(item)))
ACQUIRE(receive_async, run(memwait_channel_recv_async(channel, &item, sizeof(item), &op)))
ACQUIRE(receive_end, memwait_channel_recv(channel, &item, sizeof(item)) != EPIPE)
ACQUIRE(send_next, memwait_channel_send(channel, &item, sizeof(item)))
ACQUIRE(trysend_next, memwait_channel_trysend(channel, &item, sizeof(item)))
ACQUIRE(run_until_stopped, memwait_loop_run(loop, NULL, 0))
ACQUIRE(see_end_of_watch, memwait_op_pending(&op))
ACQUIRE(read_word, __atomic_load_n(&word, __ATOMIC_ACQUIRE) != 1)

static const struct {
	const char *name;
	int (*release)(void);
	int (*acquire)(void);
} cases[] = {
	{ "lock", unlock, lock },
	{ "trylock", unlock, trylock },
	{ "timedlock", unlock, timedlock },
	{ "lock_async", unlock, lock_async },
	{ "execute_locked", unlock, execute_locked },
	{ "cond", wait_for_cond, signal_cond },
	{ "wait", post, take },
	{ "trywait", post, trytake },
	{ "timedwait", post, timedtake },
	{ "wait_async", post, take_async },
	{ "rdlock", unlock_writer, rdlock },
	{ "tryrdlock", unlock_writer, tryrdlock },
	{ "timedrdlock", unlock_writer, timedrdlock },
	{ "rdlock_async", unlock_writer, rdlock_async },
	{ "wrlock", unlock_writer, wrlock },
	{ "trywrlock", unlock_reader, trywrlock },
	{ "timedwrlock", unlock_reader, timedwrlock },
	{ "wrlock_async", unlock_reader, wrlock_async },
	{ "barrier", arrive, meet },
	{ "barrier_async", arrive, meet_async },
	{ "barrier_destroy", leave_barrier, destroy_barrier },
	{ "waitgroup", done, await_group },
	{ "waitgroup_async", done, await_group_async },
	{ "event", set_event, await_event },
	{ "event_async", set_event, await_event_async },
	{ "event_set", set_event, find_event_set },
	{ "event_cleared", set_event, see_by_clear },
	{ "event_unset", clear_event, find_event_unset },
	{ "recv", send_item, receive },
	{ "tryrecv", send_item, tryreceive },
	{ "recv_async", send_item, receive_async },
	{ "recv_end", close_channel, receive_end },
	{ "send", receive_item, send_next },
	{ "trysend", receive_item, trysend_next },
	{ "stop", stop, run_until_stopped },
	{ "op_pending", end_watching, see_end_of_watch },
	{ "change", change, read_word },
	{ "race", nothing, lock },
	{ "race_other_lock", unlock_another, lock },
	{ "race_readers", unlock_reader, rdlock },
};

/* Objects are shared or private. Locks have further kinds. */
static const struct {
	const char *name;
	unsigned int mutex, rwlock;
} kinds[] = {
	{ "", 0, 0 },
	{ "-private", MEMWAIT_PRIVATE, MEMWAIT_PRIVATE | MEMWAIT_RWLOCK_PREFER_WRITER },
	{ "-fair", MEMWAIT_MUTEX_FAIR, MEMWAIT_RWLOCK_FAIR },
	{ "-robust", MEMWAIT_MUTEX_ROBUST, MEMWAIT_RWLOCK_ROBUST },
	{ "-recursive", MEMWAIT_MUTEX_RECURSIVE, MEMWAIT_RWLOCK_PREFER_WRITER },
};

static void *release(void *arg)
{
	CHECK(!cases[*(size_t *)arg].release());
	set_turn(1);
	return NULL;
}

static void *acquire(void *arg)
{
	await_turn(1);
	CHECK(!cases[*(size_t *)arg].acquire());
	CHECK(data == 1);
	return NULL;
}

static void run_case(size_t number, size_t kind)
{
	unsigned int flags = kinds[kind].mutex & MEMWAIT_PRIVATE;
	pthread_t threads[2];

	CHECK(!memwait_mutex_init(&mutex, kinds[kind].mutex));
	CHECK(!memwait_cond_init(&cond, flags));
	CHECK(!memwait_sem_init(&sem, flags | (kinds[kind].mutex & MEMWAIT_MUTEX_FAIR ?
					       MEMWAIT_SEM_FAIR : 0), 0));
	CHECK(!memwait_rwlock_init(&rwlock, kinds[kind].rwlock));
	CHECK(!memwait_barrier_init(&barrier, flags, 2));
	CHECK(!memwait_waitgroup_init(&group, flags, 1));
	CHECK(!memwait_event_init(&event, flags));
	CHECK(!memwait_channel_init(channel, sizeof(memory), flags, sizeof(item), 1));
	CHECK(!memwait_loop_new(&loop, 0));
	CHECK(!memwait_op_init(&op, loop, called_back, NULL));
	pthread_create(&threads[0], NULL, release, &number);
	pthread_create(&threads[1], NULL, acquire, &number);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
}

int main(int argc, char **argv)
{
	char name[64];
	size_t i, j;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (j = 0; j < sizeof(kinds) / sizeof(kinds[0]); j++) {
			if (j > 1 && !strstr(cases[i].name, "lock") &&
			    cases[i].acquire != signal_cond &&
			    (j > 2 || cases[i].release != post))
				continue;
			snprintf(name, sizeof(name), "%s%s", cases[i].name, kinds[j].name);
			if (argc == 1)
				puts(name);
			if (argc == 1 || strcmp(name, argv[1]))
				continue;
			run_case(i, j);
			return 0;
		}
	}
	return argc != 1;
}
