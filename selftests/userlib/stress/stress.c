// SPDX-License-Identifier: GPL-2.0
/*
 * stress PRIMITIVE [SECONDS [intruders]]: threads that block, a loop, and a thread that cancels the
 * loop's operations use one object as often as they can. The data that the object protects is plain
 * memory, so ThreadSanitizer detects a missing acquire or release. The totals show lost or doubled
 * turns. Without SECONDS, the program runs a small number of rounds. Without PRIMITIVE, it prints
 * the names. Intruders access the data of a lock without holding the lock, which ThreadSanitizer
 * must report.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <memwait.h>

#define THREADS	3
#define OPS	4
#define ROUNDS	200	/* number of rounds of each thread, without a duration */

/* Accepts the results 0 and @expected. Otherwise prints the error. */
#define CHECK_RESULT(result, expected) do {					\
	int got_ = (result);							\
										\
	if (got_ && got_ != (expected)) {					\
		fprintf(stderr, "stress: %s:%d: %s\n", __FILE__, __LINE__,	\
			strerror(got_));						\
		abort();							\
	}									\
} while (0)

#define CHECK(condition) do {							\
	if (!(condition)) {							\
		fprintf(stderr, "stress: %s:%d: %s\n", __FILE__, __LINE__,	\
			#condition);						\
		abort();							\
	}									\
} while (0)

/* MEMWAIT_PRIVATE, or 0 for process-shared objects, whose code differs in many places. */
static unsigned int sharing;

static int is_over;
static int seconds;
static memwait_loop_t *loop;

static bool over(long rounds)
{
	if (__atomic_load_n(&is_over, __ATOMIC_RELAXED))
		return true;
	return !seconds && rounds >= ROUNDS;
}

static struct timespec soon(long ns)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_nsec += ns;
	if (time.tv_nsec >= 1000000000) {
		time.tv_sec++;
		time.tv_nsec -= 1000000000;
	}
	return time;
}

/* The protected data: */
static long counter, twin;
static long uses, looks;	/* counted with atomics */

static void use(void)
{
	CHECK(counter == twin);
	counter++;
	twin++;
	__atomic_add_fetch(&uses, 1, __ATOMIC_RELAXED);
}

static void look(void)
{
	CHECK(counter == twin);
	__atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);
}

/* An object that can be locked. The same threads test all such objects. */
struct lock {
	int (*lock)(void);
	int (*lock_until)(const struct timespec *time);
	int (*trylock)(void);
	int (*unlock)(void);
	int (*lock_async)(memwait_op_t *op, const struct timespec *time);
	void (*inside)(void);
};

/* The objects are in one page. */
static _Alignas(128) struct {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
} monitor;
static memwait_sem_t sem;
static memwait_rwlock_t rwlock;

/* Defines the functions of a struct lock from the names of the library's functions. */
#define LOCK(name, object, lock_, until_, try_, unlock_, inside_)			\
static int name##_lock(void)								\
{											\
	return memwait_##lock_(object);							\
}											\
static int name##_until(const struct timespec *time)					\
{											\
	return memwait_##until_(object, CLOCK_MONOTONIC, time);				\
}											\
static int name##_try(void)								\
{											\
	return memwait_##try_(object);							\
}											\
static int name##_unlock(void)								\
{											\
	return memwait_##unlock_(object);						\
}											\
static int name##_async(memwait_op_t *op, const struct timespec *time)			\
{											\
	return time ? memwait_##until_##_async(object, CLOCK_MONOTONIC, time, op) :	\
		memwait_##lock_##_async(object, op);					\
}											\
static const struct lock name##_kind = {						\
	name##_lock, name##_until, name##_try, name##_unlock, name##_async, inside_,	\
}

LOCK(mutex, &monitor.mutex, mutex_lock, mutex_clocklock, mutex_trylock, mutex_unlock, use);
LOCK(sem, &sem, sem_wait, sem_clockwait, sem_trywait, sem_post, use);
LOCK(writer, &rwlock, rwlock_wrlock, rwlock_clockwrlock, rwlock_trywrlock, rwlock_unlock, use);
LOCK(reader, &rwlock, rwlock_rdlock, rwlock_clockrdlock, rwlock_tryrdlock, rwlock_unlock, look);

static void *lock_and_use(void *arg)
{
	const struct lock *lock = arg;
	struct timespec time;
	long i;
	int ret;

	for (i = 0; !over(i); i++) {
		if (i % 8 == 7) {
			time = soon(i % 32 * 1000);
			ret = lock->lock_until(&time);
			CHECK_RESULT(ret, ETIMEDOUT);
		} else if (i % 8 == 3) {
			ret = lock->trylock();
			CHECK(!ret || ret == EBUSY || ret == EAGAIN);
		} else {
			ret = lock->lock();
			CHECK(!ret);
		}
		if (ret)
			continue;
		lock->inside();
		if (!(i % 16))
			sched_yield();
		ret = lock->unlock();
		CHECK(!ret);
	}
	return NULL;
}

struct using_op {
	memwait_op_t op;
	const struct lock *lock;
	long rounds;
};

static struct using_op using_ops[OPS];

/* Called when the operation holds the lock, or when @result is the reason why it does not. */
static void continue_using(memwait_op_t *op, int result, void *data)
{
	struct using_op *using = data;
	struct timespec time;

	for (;;) {
		CHECK_RESULT(result, ETIMEDOUT);
		if (!result) {
			using->lock->inside();
			result = using->lock->unlock();
			CHECK(!result);
		}
		if (over(using->rounds++))
			return;
		time = soon(using->rounds % 64 * 1000);
		result = using->lock->lock_async(op, using->rounds % 4 ? NULL : &time);
		if (result == EINPROGRESS)
			return;
	}
}

static void *run_loop(void *arg)
{
	struct pollfd pollfd = { .fd = memwait_loop_fd(loop), .events = POLLIN };
	int *stop = arg;

	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE) || memwait_loop_pending(loop)) {
		poll(&pollfd, 1, 1);
		CHECK(memwait_loop_dispatch(loop, MEMWAIT_ALL) >= 0);
	}
	return NULL;
}

/* The thread that has cancelled an operation begins the operation again. */
static void *cancel_and_begin_again(void *arg)
{
	long i;
	int ret;

	for (i = 0; !over(i); i++) {
		struct using_op *using = &using_ops[i % OPS];

		ret = memwait_op_cancel(&using->op);
		CHECK(!ret || ret == -ENOENT || ret == -EINPROGRESS);
		if (!ret)
			continue_using(&using->op, ETIMEDOUT, using);
		sched_yield();
	}
	return NULL;
}

static bool has_intruders;
static long marks;

/*
 * Reads without the lock, or writes while it holds the lock only for reading, as another thread
 * does.
 */
static void *intrude(void *arg)
{
	const struct lock *lock = arg;
	long i;

	for (i = 0; !over(i); i++) {
		if (lock == &reader_kind) {
			CHECK(!lock->lock());
			marks++;
			CHECK(!lock->unlock());
		} else {
			CHECK(counter >= 0);
		}
		sched_yield();
	}
	return NULL;
}

static void stress_lock(const struct lock *first, const struct lock *second)
{
	pthread_t threads[THREADS], intruding[2], looping, cancelling;
	int i, stop = 0, ret;

	counter = 0;
	twin = 0;
	uses = 0;
	for (i = 0; i < OPS; i++) {
		using_ops[i].lock = i % 2 ? second : first;
		using_ops[i].rounds = 0;
		CHECK(!memwait_op_init(&using_ops[i].op, loop, continue_using, &using_ops[i]));
	}
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, lock_and_use,
			       (void *)(i % 2 ? second : first));
	for (i = 0; has_intruders && i < 2; i++)
		pthread_create(&intruding[i], NULL, intrude, (void *)second);
	for (i = 0; i < OPS; i++) {
		ret = using_ops[i].lock->lock_async(&using_ops[i].op, NULL);
		if (ret != EINPROGRESS)
			continue_using(&using_ops[i].op, ret, &using_ops[i]);
	}
	pthread_create(&looping, NULL, run_loop, &stop);
	pthread_create(&cancelling, NULL, cancel_and_begin_again, NULL);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; has_intruders && i < 2; i++)
		pthread_join(intruding[i], NULL);
	pthread_join(cancelling, NULL);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(looping, NULL);
	CHECK(!first->lock());
	CHECK(counter == uses && twin == uses);
	CHECK(!first->unlock());
}

static void stress_mutex(void)
{
	CHECK(!memwait_mutex_init(&monitor.mutex, sharing));
	stress_lock(&mutex_kind, &mutex_kind);
	CHECK(!memwait_mutex_destroy(&monitor.mutex));
}

static void stress_fair(void)
{
	CHECK(!memwait_mutex_init(&monitor.mutex, MEMWAIT_PRIVATE | MEMWAIT_MUTEX_FAIR));
	stress_lock(&mutex_kind, &mutex_kind);
	CHECK(!memwait_mutex_destroy(&monitor.mutex));
}

static void stress_robust(void)
{
	CHECK(!memwait_mutex_init(&monitor.mutex, sharing | MEMWAIT_MUTEX_ROBUST));
	stress_lock(&mutex_kind, &mutex_kind);
	CHECK(!memwait_mutex_destroy(&monitor.mutex));
}

static void stress_sem_of(unsigned int flags)
{
	CHECK(!memwait_sem_init(&sem, flags, 1));
	stress_lock(&sem_kind, &sem_kind);
	CHECK(!memwait_sem_destroy(&sem));
}

static void stress_sem(void)
{
	stress_sem_of(sharing);
}

static void stress_sem_fair(void)
{
	stress_sem_of(sharing | MEMWAIT_SEM_FAIR);
}

static void stress_rwlock(void)
{
	CHECK(!memwait_rwlock_init(&rwlock, sharing));
	stress_lock(&writer_kind, &reader_kind);
	CHECK(!memwait_rwlock_destroy(&rwlock));
}

static void stress_rwlock_fair(void)
{
	CHECK(!memwait_rwlock_init(&rwlock, MEMWAIT_PRIVATE | MEMWAIT_RWLOCK_FAIR));
	stress_lock(&writer_kind, &reader_kind);
	CHECK(!memwait_rwlock_destroy(&rwlock));
}

static void stress_rwlock_robust(void)
{
	CHECK(!memwait_rwlock_init(&rwlock, sharing | MEMWAIT_RWLOCK_ROBUST));
	stress_lock(&writer_kind, &reader_kind);
	CHECK(!memwait_rwlock_destroy(&rwlock));
}

/*
 * Words: the threads have turns, and each notifies all others. The word itself orders their data.
 */
static uint32_t turn;
static bool last_round;

static void have_turn(unsigned int me)
{
	CHECK(counter % (THREADS + 1) == (long)me);
	use();
	if (!me && over(counter / (THREADS + 1)))
		last_round = true;
}

static bool pass_turn(uint32_t now)
{
	bool last = last_round;

	__atomic_store_n(&turn, now + 1, __ATOMIC_RELEASE);
	memwait_notify(&turn, MEMWAIT_ALL, 0);
	return !last;
}

static void *take_turns(void *arg)
{
	unsigned int me = *(unsigned int *)arg;
	uint32_t now;

	do {
		while ((now = __atomic_load_n(&turn, __ATOMIC_ACQUIRE)) % (THREADS + 1) != me)
			CHECK(memwait_wait32(&turn, now, NULL, 0) >= 0);
		have_turn(me);
	} while (pass_turn(now));
	return NULL;
}

static void take_turns_by_callback(memwait_op_t *op, int result, void *data)
{
	uint32_t now;

	CHECK(result == MEMWAIT_OK);
	for (;;) {
		now = __atomic_load_n(&turn, __ATOMIC_ACQUIRE);
		if (now % (THREADS + 1) == THREADS) {
			have_turn(THREADS);
			if (!pass_turn(now))
				return;
		} else {
			result = memwait_wait32_async(&turn, now, NULL, 0, op);
			if (result == MEMWAIT_PENDING)
				return;
			CHECK(result == MEMWAIT_NOT_EQUAL);
		}
	}
}

static void stress_words(void)
{
	unsigned int numbers[THREADS], i;
	pthread_t threads[THREADS];
	memwait_op_t op;

	turn = 0;
	counter = 0;
	twin = 0;
	last_round = false;
	for (i = 0; i < THREADS; i++) {
		numbers[i] = i;
		pthread_create(&threads[i], NULL, take_turns, &numbers[i]);
	}
	CHECK(!memwait_op_init(&op, loop, take_turns_by_callback, NULL));
	take_turns_by_callback(&op, MEMWAIT_OK, NULL);
	CHECK(!memwait_loop_run(loop, NULL, 0));
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK(counter % (THREADS + 1) == 0);
}

/*
 * Watches: each notify is either reported once, to one callback at a time, or passed to another
 * watch by a cancel.
 */
static uint32_t watched_word;
static long woken, reported;	/* counted with atomics */
static long changes, seen;	/* @seen: number of changes that precede a callback */

struct watching {
	memwait_op_t op;
	long reported;	/* plain: callbacks of a watch are ordered and do not overlap */
};

static struct watching watching[OPS];

static void raise_to(long *most, long now)
{
	long was = __atomic_load_n(most, __ATOMIC_RELAXED);

	while (was < now && !__atomic_compare_exchange_n(most, &was, now, false, __ATOMIC_RELAXED,
							 __ATOMIC_RELAXED))
		;
}

static void count_report(memwait_op_t *op, int result, void *data)
{
	struct watching *watch = data;

	CHECK(result == MEMWAIT_OK && memwait_op_count(op));
	raise_to(&seen, __atomic_load_n(&changes, __ATOMIC_RELAXED));
	watch->reported += memwait_op_count(op);
	__atomic_add_fetch(&reported, memwait_op_count(op), __ATOMIC_RELAXED);
	__atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);
}

static void begin_watching(struct watching *watch)
{
	CHECK(!memwait_op_init(&watch->op, loop, count_report, watch));
	CHECK(memwait_watch32(&watched_word, 0, NULL, 0, &watch->op) == MEMWAIT_PENDING);
}

/*
 * Waits for a callback that runs in another thread. After that the callback's writes are visible.
 */
static void end_watching(struct watching *watch)
{
	int ret = memwait_op_cancel(&watch->op);

	CHECK(!ret || ret == -EINPROGRESS);
	while (memwait_op_pending(&watch->op))
		sched_yield();
}

static void *notify_watches(void *arg)
{
	long i;
	int ret;

	for (i = 0; !over(i); i++) {
		__atomic_add_fetch(&changes, 1, __ATOMIC_RELAXED);
		ret = memwait_notify(&watched_word, 1 + (unsigned int)(i % 5), 0);
		CHECK(ret >= 0);
		__atomic_add_fetch(&woken, ret, __ATOMIC_RELAXED);
		__atomic_add_fetch(&uses, 1, __ATOMIC_RELAXED);
		if (!(i % 4))
			sched_yield();
	}
	return arg;
}

static void *watch_now_and_then(void *arg)
{
	struct watching *watch;
	long i;

	for (i = 0; !over(i); i++) {
		/* Each watch has new memory, so that valgrind detects a late access. */
		watch = calloc(1, sizeof(*watch));
		CHECK(watch);
		begin_watching(watch);
		sched_yield();
		end_watching(watch);
		*(long *)arg += watch->reported;
		free(watch);
	}
	return arg;
}

static void stress_watch(void)
{
	pthread_t notifying[2], looping[2], beginning;
	long sum = 0;
	int i, stop = 0;

	reported = 0;
	woken = 0;
	changes = 0;
	seen = 0;
	for (i = 0; i < OPS; i++)
		begin_watching(&watching[i]);
	for (i = 0; i < 2; i++) {
		pthread_create(&looping[i], NULL, run_loop, &stop);
		pthread_create(&notifying[i], NULL, notify_watches, NULL);
	}
	pthread_create(&beginning, NULL, watch_now_and_then, &sum);
	for (i = 0; i < 2; i++)
		pthread_join(notifying[i], NULL);
	pthread_join(beginning, NULL);
	/*
	 * If a watch was not called, it passes the notify on. Therefore one of the watches is
	 * called after the last change.
	 */
	for (i = 1; i < OPS; i++)
		end_watching(&watching[i]);
	while (__atomic_load_n(&seen, __ATOMIC_RELAXED) < changes)
		sched_yield();
	end_watching(&watching[0]);
	for (i = 0; i < OPS; i++)
		sum += watching[i].reported;
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (i = 0; i < 2; i++)
		pthread_join(looping[i], NULL);
	CHECK(sum == reported && reported <= woken);
}

/* Tickets. A mutex protects them, and a condition variable announces them. */
static bool broadcasts;
static long tickets, sold, taken;
static bool closed;

static void *take_tickets(void *arg)
{
	struct timespec time;
	long i;
	int ret;

	CHECK(!memwait_mutex_lock(&monitor.mutex));
	for (i = 0;; i++) {
		while (!tickets && !closed) {
			time = soon(i % 64 * 1000);
			ret = i % 4 ? memwait_cond_wait(&monitor.cond, &monitor.mutex) :
				memwait_cond_clockwait(&monitor.cond, &monitor.mutex,
						       CLOCK_MONOTONIC, &time);
			CHECK_RESULT(ret, ETIMEDOUT);
			i++;
		}
		if (!tickets)
			break;
		tickets--;
		taken++;
	}
	CHECK(!memwait_mutex_unlock(&monitor.mutex));
	return NULL;
}

static memwait_op_t ticket_ops[OPS];

/* Called with the mutex locked. */
static void continue_taking(memwait_op_t *op, int result, void *data)
{
	static long attempts;	/* protected by the mutex, like everything here */
	struct timespec time;

	for (;;) {
		CHECK_RESULT(result, ETIMEDOUT);
		/*
		 * Takes all tickets, because after the close no signal announces the remaining
		 * tickets.
		 */
		taken += tickets;
		tickets = 0;
		if (closed)
			break;
		time = soon(++attempts % 64 * 1000);
		result = attempts % 4 ? memwait_cond_wait_async(&monitor.cond, &monitor.mutex, op) :
			memwait_cond_clockwait_async(&monitor.cond, &monitor.mutex,
						     CLOCK_MONOTONIC, &time, op);
		if (result == EINPROGRESS)
			return;
	}
	CHECK(!memwait_mutex_unlock(&monitor.mutex));
}

static void *sell_tickets(void *arg)
{
	long i;

	for (i = 0; !over(i); i++) {
		memwait_op_t *op = &ticket_ops[i % OPS];

		CHECK(!memwait_mutex_lock(&monitor.mutex));
		tickets++;
		sold++;
		CHECK(!memwait_mutex_unlock(&monitor.mutex));
		if (broadcasts && i % 2)
			CHECK(!memwait_cond_broadcast(&monitor.cond));
		else
			CHECK(!memwait_cond_signal(&monitor.cond));
		if (broadcasts && i % 5 == 0) {
			/* This broadcast is made with the mutex held. */
			CHECK(!memwait_mutex_lock(&monitor.mutex));
			CHECK(!memwait_cond_broadcast(&monitor.cond));
			CHECK(!memwait_mutex_unlock(&monitor.mutex));
		}
		if (arg && !memwait_op_cancel(op)) {
			CHECK(!memwait_mutex_lock(&monitor.mutex));
			continue_taking(op, 0, NULL);
		}
		if (!(i % 8))
			sched_yield();
	}
	return NULL;
}

static void stress_tickets(unsigned int kind)
{
	pthread_t threads[THREADS], selling[2], looping;
	int i, stop = 0;

	CHECK(!memwait_mutex_init(&monitor.mutex, kind));
	CHECK(!memwait_cond_init(&monitor.cond, kind & MEMWAIT_PRIVATE));
	tickets = 0;
	sold = 0;
	taken = 0;
	closed = false;
	for (i = 0; i < OPS; i++) {
		CHECK(!memwait_op_init(&ticket_ops[i], loop, continue_taking, NULL));
		CHECK(!memwait_mutex_lock(&monitor.mutex));
		continue_taking(&ticket_ops[i], 0, NULL);
	}
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, take_tickets, NULL);
	pthread_create(&looping, NULL, run_loop, &stop);
	/* One of the two threads also cancels operations. */
	for (i = 0; i < 2; i++)
		pthread_create(&selling[i], NULL, sell_tickets, i ? &selling[i] : NULL);
	for (i = 0; i < 2; i++)
		pthread_join(selling[i], NULL);
	CHECK(!memwait_mutex_lock(&monitor.mutex));
	closed = true;
	CHECK(!memwait_mutex_unlock(&monitor.mutex));
	CHECK(!memwait_cond_broadcast(&monitor.cond));
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(looping, NULL);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK(!tickets && taken == sold);
	uses = taken;
	CHECK(!memwait_cond_destroy(&monitor.cond));
	CHECK(!memwait_mutex_destroy(&monitor.mutex));
}

static void stress_cond(void)
{
	broadcasts = false;
	stress_tickets(MEMWAIT_MUTEX_FAIR);
}

static void stress_broadcast(void)
{
	broadcasts = true;
	stress_tickets(sharing | MEMWAIT_MUTEX_NORMAL);
}

/*
 * In each round all threads write their element of @places. After all have met, they read all
 * elements.
 */
static memwait_barrier_t barrier;
static memwait_waitgroup_t group;
static long places[THREADS + 1];
static long met_rounds;

/* No thread writes between the two meetings of a round. */
static bool has_met(int result, long round, bool second)
{
	int i;

	CHECK(!result || result == MEMWAIT_BARRIER_SERIAL_THREAD);
	if (second)
		return true;
	for (i = 0; i <= THREADS; i++)
		CHECK(places[i] == round);
	if (result && over(round))
		last_round = true;
	return true;
}

static void *meet(void *arg)
{
	long *place = arg, round;
	bool last = false;

	for (round = 1; !last; round++) {
		*place = round;
		has_met(memwait_barrier_wait(&barrier), round, false);
		has_met(memwait_barrier_wait(&barrier), round, true);
		last = last_round;
		/*
		 * There is a third meeting, because last_round must not change before all threads
		 * have read it.
		 */
		has_met(memwait_barrier_wait(&barrier), round, true);
	}
	return NULL;
}

static long loop_meetings;

static void meet_by_callback(memwait_op_t *op, int result, void *data)
{
	static bool last;

	for (;;) {
		long round = loop_meetings / 3 + 1;

		has_met(result, round, loop_meetings % 3);
		if (loop_meetings % 3 == 1)
			last = last_round;
		loop_meetings++;
		if (loop_meetings % 3 == 0) {
			met_rounds = round;
			if (last)
				return;
			places[THREADS] = round + 1;
		}
		result = memwait_barrier_wait_async(&barrier, op);
		if (result == EINPROGRESS)
			return;
	}
}

static void stress_barrier(void)
{
	pthread_t threads[THREADS];
	memwait_op_t op;
	int i, result;

	CHECK(!memwait_barrier_init(&barrier, sharing, THREADS + 1));
	last_round = false;
	loop_meetings = 0;
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, meet, &places[i]);
	CHECK(!memwait_op_init(&op, loop, meet_by_callback, NULL));
	places[THREADS] = 1;
	result = memwait_barrier_wait_async(&barrier, &op);
	if (result != EINPROGRESS)
		meet_by_callback(&op, result, NULL);
	CHECK(!memwait_loop_run(loop, NULL, 0));
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	uses = met_rounds;
	CHECK(!memwait_barrier_destroy(&barrier));
}

static void *work(void *arg)
{
	++*(long *)arg;
	CHECK(!memwait_waitgroup_done(&group));
	return NULL;
}

static void group_done(memwait_op_t *op, int result, void *data)
{
	CHECK(!result);
	*(bool *)data = true;
}

static void stress_waitgroup(void)
{
	pthread_t threads[THREADS];
	struct timespec time;
	memwait_op_t op;
	bool done;
	long round;
	int i, ret;

	CHECK(!memwait_waitgroup_init(&group, sharing, 0));
	CHECK(!memwait_op_init(&op, loop, group_done, &done));
	memset(places, 0, sizeof(places));
	for (round = 1; !over(round); round++) {
		CHECK(!memwait_waitgroup_add(&group, THREADS));
		for (i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, work, &places[i]);
		if (round % 3 == 1) {
			CHECK(!memwait_waitgroup_wait(&group));
		} else if (round % 3 == 2) {
			do {
				time = soon(20000);
				ret = memwait_waitgroup_clockwait(&group, CLOCK_MONOTONIC, &time);
				CHECK_RESULT(ret, ETIMEDOUT);
			} while (ret);
		} else {
			done = false;
			ret = memwait_waitgroup_wait_async(&group, &op);
			if (!ret)
				done = true;
			else
				CHECK(ret == EINPROGRESS);
			CHECK(!memwait_loop_run(loop, NULL, 0) && done);
		}
		/*
		 * This is checked before the threads are joined, because a join would also order
		 * the data.
		 */
		for (i = 0; i < THREADS; i++)
			CHECK(places[i] == round);
		for (i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
	}
	uses = round;
	CHECK(!memwait_waitgroup_destroy(&group));
}

struct parcel {
	long number;
	long twin;
};

static memwait_channel_t *channel;
static long sent_sum, received_sum;

static void unpack(const struct parcel *parcel)
{
	CHECK(parcel->number == parcel->twin);
	__atomic_add_fetch(&received_sum, parcel->number, __ATOMIC_RELAXED);
	__atomic_add_fetch(&uses, 1, __ATOMIC_RELAXED);
}

static void *send_parcels(void *arg)
{
	struct parcel parcel;
	struct timespec time;
	long i;
	int ret;

	for (i = 1; !over(i); i++) {
		parcel = (struct parcel){ i, i };
		time = soon(i % 64 * 1000);
		ret = i % 4 ? memwait_channel_send(channel, &parcel, sizeof(parcel)) :
			memwait_channel_clocksend(channel, &parcel, sizeof(parcel), CLOCK_MONOTONIC,
						  &time);
		CHECK_RESULT(ret, ETIMEDOUT);
		if (!ret)
			__atomic_add_fetch(&sent_sum, i, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *receive_parcels(void *arg)
{
	struct parcel parcel;
	struct timespec time;
	long i;
	int ret;

	for (i = 0;; i++) {
		time = soon(i % 64 * 1000);
		ret = i % 4 ? memwait_channel_recv(channel, &parcel, sizeof(parcel)) :
			memwait_channel_clockrecv(channel, &parcel, sizeof(parcel), CLOCK_MONOTONIC,
						  &time);
		if (ret == EPIPE)
			return NULL;
		CHECK_RESULT(ret, ETIMEDOUT);
		if (!ret)
			unpack(&parcel);
	}
}

struct parcel_op {
	memwait_op_t op;
	struct parcel parcel;
};

static struct parcel_op parcel_ops[OPS];

static void continue_receiving(memwait_op_t *op, int result, void *data)
{
	struct parcel_op *receiving = data;

	do {
		if (result == EPIPE)
			return;
		CHECK(!result || result == ECANCELED);
		if (!result)
			unpack(&receiving->parcel);
		result = memwait_channel_recv_async(channel, &receiving->parcel,
						    sizeof(receiving->parcel), op);
	} while (result != EINPROGRESS);
}

static void *cancel_receiving(void *arg)
{
	long i;

	for (i = 0; !over(i); i++) {
		struct parcel_op *receiving = &parcel_ops[i % OPS];

		if (!memwait_op_cancel(&receiving->op))
			continue_receiving(&receiving->op, ECANCELED, receiving);
		sched_yield();
	}
	return NULL;
}

static void stress_channel(void)
{
	size_t size = memwait_channel_size(sizeof(struct parcel), 5);
	pthread_t sending[2], receiving[2], looping, cancelling;
	int i, stop = 0;

	channel = aligned_alloc(64, (size + 63) / 64 * 64);
	CHECK(channel && !memwait_channel_init(channel, size, sharing, sizeof(struct parcel), 5));
	uses = 0;
	for (i = 0; i < OPS; i++) {
		CHECK(!memwait_op_init(&parcel_ops[i].op, loop, continue_receiving,
				       &parcel_ops[i]));
		continue_receiving(&parcel_ops[i].op, ECANCELED, &parcel_ops[i]);
	}
	pthread_create(&looping, NULL, run_loop, &stop);
	pthread_create(&cancelling, NULL, cancel_receiving, NULL);
	for (i = 0; i < 2; i++) {
		pthread_create(&sending[i], NULL, send_parcels, NULL);
		pthread_create(&receiving[i], NULL, receive_parcels, NULL);
	}
	for (i = 0; i < 2; i++)
		pthread_join(sending[i], NULL);
	pthread_join(cancelling, NULL);
	CHECK(!memwait_channel_close(channel));
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(looping, NULL);
	for (i = 0; i < 2; i++)
		pthread_join(receiving[i], NULL);
	CHECK(sent_sum == received_sum);
	CHECK(!memwait_channel_destroy(channel));
	free(channel);
}

/* A thread that locks by an operation of its own loop and receives a stop while it waits. */
struct stopped {
	pthread_mutex_t guard;	/* protects @own from the thread that stops this one */
	memwait_loop_t *own;
	long ended;		/* number of waits that ended without the lock */
};

static struct stopped stopped[THREADS];

/* Returns whether the thread has locked the mutex. */
static bool lock_unless_stopped(struct stopped *stopped, memwait_op_t *op, long round)
{
	int result = memwait_mutex_lock_async(&monitor.mutex, op), ret;

	while (result == EINPROGRESS) {
		ret = memwait_op_wait(op, &result);
		CHECK(!ret || ret == -EINTR);
		if (!ret || round % 3 == 0)
			continue;
		if (round % 3 == 1) {
			CHECK(!memwait_op_cancel(op));
			return false;
		}
		pthread_mutex_lock(&stopped->guard);
		CHECK(!memwait_loop_close(stopped->own));
		CHECK(!memwait_loop_new(&stopped->own, 0));
		pthread_mutex_unlock(&stopped->guard);
		CHECK(!memwait_op_pending(op));
		return false;
	}
	CHECK(!result);
	return true;
}

static void *lock_and_be_stopped(void *arg)
{
	struct stopped *stopped = arg;
	memwait_op_t op;
	long i;

	for (i = 0; !over(i); i++) {
		CHECK(!memwait_op_init(&op, stopped->own, NULL, NULL));
		if (!lock_unless_stopped(stopped, &op, i)) {
			stopped->ended++;
			continue;
		}
		uses++;
		sched_yield();
		CHECK(!memwait_mutex_unlock(&monitor.mutex));
	}
	return NULL;
}

static void *stop_them(void *arg)
{
	int *stop = arg, i;

	for (i = 0; !__atomic_load_n(stop, __ATOMIC_ACQUIRE); i = (i + 1) % THREADS) {
		pthread_mutex_lock(&stopped[i].guard);
		CHECK(!memwait_loop_stop(stopped[i].own));
		pthread_mutex_unlock(&stopped[i].guard);
		sched_yield();
	}
	return NULL;
}

static void count_call(memwait_op_t *op, int result, void *data)
{
	++*(long *)data;
}

/* Cancels while another thread dispatches, and then frees the data that the callback uses. */
static void *cancel_and_free(void *arg)
{
	uint32_t word = 0;
	memwait_op_t op;
	long *calls, i;
	int ret;

	for (i = 0; !over(i); i++) {
		calls = calloc(1, sizeof(*calls));
		CHECK(calls && !memwait_op_init(&op, loop, count_call, calls));
		CHECK(memwait_wait32_async(&word, 0, NULL, sharing, &op) == MEMWAIT_PENDING);
		CHECK(memwait_notify(&word, 1, sharing) == 1);
		if (i % 2)
			sched_yield();
		ret = memwait_op_cancel(&op);
		CHECK(!ret || ret == -ENOENT || ret == -EINPROGRESS);
		if (ret == -EINPROGRESS)
			CHECK(!memwait_op_wait(&op, NULL));
		CHECK(*calls == !!ret);
		free(calls);
	}
	return NULL;
}

static void stress_ends(void)
{
	pthread_t threads[THREADS], stopping, looping, freeing;
	int i, stop = 0;

	CHECK(!memwait_mutex_init(&monitor.mutex, sharing | MEMWAIT_MUTEX_FAIR));
	uses = 0;
	looks = 0;
	for (i = 0; i < THREADS; i++) {
		pthread_mutex_init(&stopped[i].guard, NULL);
		stopped[i].ended = 0;
		CHECK(!memwait_loop_new(&stopped[i].own, 0));
		pthread_create(&threads[i], NULL, lock_and_be_stopped, &stopped[i]);
	}
	pthread_create(&stopping, NULL, stop_them, &stop);
	pthread_create(&looping, NULL, run_loop, &stop);
	pthread_create(&freeing, NULL, cancel_and_free, NULL);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_join(freeing, NULL);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(stopping, NULL);
	pthread_join(looping, NULL);
	/* No stopped operation still holds the mutex. */
	CHECK(!memwait_mutex_trylock(&monitor.mutex));
	CHECK(!memwait_mutex_unlock(&monitor.mutex));
	for (i = 0; i < THREADS; i++) {
		looks += stopped[i].ended;
		CHECK(!memwait_loop_close(stopped[i].own));
		pthread_mutex_destroy(&stopped[i].guard);
	}
	CHECK(seconds || uses + looks == THREADS * ROUNDS);
	CHECK(!memwait_mutex_destroy(&monitor.mutex));
}

static const struct {
	const char *name;
	void (*stress)(void);
	unsigned int sharing;
} primitives[] = {
	{ "words", stress_words, MEMWAIT_PRIVATE },
	{ "watch", stress_watch, MEMWAIT_PRIVATE },
	{ "mutex", stress_mutex, MEMWAIT_PRIVATE },
	{ "mutex_shared", stress_mutex, 0 },
	{ "fair", stress_fair, MEMWAIT_PRIVATE },
	{ "robust", stress_robust, 0 },
	{ "cond", stress_cond, MEMWAIT_PRIVATE },
	{ "broadcast", stress_broadcast, MEMWAIT_PRIVATE },
	{ "broadcast_shared", stress_broadcast, 0 },
	{ "sem", stress_sem, MEMWAIT_PRIVATE },
	{ "sem_shared", stress_sem, 0 },
	{ "sem_fair", stress_sem_fair, 0 },
	{ "rwlock", stress_rwlock, 0 },
	{ "rwlock_fair", stress_rwlock_fair, MEMWAIT_PRIVATE },
	{ "rwlock_robust", stress_rwlock_robust, 0 },
	{ "barrier", stress_barrier, MEMWAIT_PRIVATE },
	{ "barrier_shared", stress_barrier, 0 },
	{ "waitgroup", stress_waitgroup, 0 },
	{ "channel", stress_channel, MEMWAIT_PRIVATE },
	{ "channel_shared", stress_channel, 0 },
	{ "ends", stress_ends, MEMWAIT_PRIVATE },
	{ "ends_shared", stress_ends, 0 },
};

static void *end_after(void *arg)
{
	struct timespec time = { .tv_sec = seconds };

	nanosleep(&time, NULL);
	__atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t clock;
	size_t i;

	seconds = argc > 2 ? atoi(argv[2]) : 0;
	has_intruders = argc > 3;
	for (i = 0; argc > 1 && i < sizeof(primitives) / sizeof(primitives[0]); i++) {
		if (strcmp(argv[1], primitives[i].name))
			continue;
		sharing = primitives[i].sharing;
		CHECK(!memwait_loop_new(&loop, 0));
		if (seconds)
			pthread_create(&clock, NULL, end_after, NULL);
		primitives[i].stress();
		if (seconds)
			pthread_join(clock, NULL);
		CHECK(!memwait_loop_pending(loop));
		CHECK(!memwait_loop_close(loop));
		printf("%s: %ld uses, %ld looks\n", argv[1], uses, looks);
		return 0;
	}
	/* Scripts that run all primitives need the names. */
	if (argc == 1) {
		for (i = 0; i < sizeof(primitives) / sizeof(primitives[0]); i++)
			puts(primitives[i].name);
		return 0;
	}
	fprintf(stderr, "Usage: stress [PRIMITIVE [SECONDS [intruders]]]\n");
	return 2;
}
