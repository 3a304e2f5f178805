// SPDX-License-Identifier: GPL-2.0
/* Mutexes: exclusion, kinds, deadlines, operations, processes. */
#include "userlib_test.h"
#include "../timing_test.h"

#include <sys/mount.h>

#define ROUNDS	LOAD(1000, 200)

static const unsigned int kinds[] = {
	MEMWAIT_MUTEX_NORMAL,
	MEMWAIT_MUTEX_ERRORCHECK,
	MEMWAIT_MUTEX_RECURSIVE,
	MEMWAIT_MUTEX_FAIR,
	MEMWAIT_MUTEX_FAIR | MEMWAIT_MUTEX_ERRORCHECK,
	MEMWAIT_MUTEX_FAIR | MEMWAIT_MUTEX_RECURSIVE,
};

#define KINDS	((int)ARRAY_SIZE(kinds))

/*
 * Data that a mutex protects. If two threads hold the mutex at the same time, the data becomes
 * inconsistent.
 */
struct guarded {
	memwait_mutex_t mutex;
	long counter;
	int inside;
	int violations;
	int stop;
};

static void visit(struct guarded *guarded)
{
	if (guarded->inside++)
		guarded->violations++;
	guarded->counter++;
	if (--guarded->inside)
		guarded->violations++;
}

static int visit_often(void *arg)
{
	struct guarded *guarded = arg;
	int i, err;

	for (i = 0; i < ROUNDS; i++) {
		err = memwait_mutex_lock(&guarded->mutex);
		if (err)
			return err;
		visit(guarded);
		err = memwait_mutex_unlock(&guarded->mutex);
		if (err)
			return err;
	}
	return 0;
}

/* An operation that locks and unlocks repeatedly. */
struct visitor {
	memwait_op_t op;
	struct guarded *guarded;
	int rounds;
	int error;
	int done;
};

static void visit_by_callback(memwait_op_t *op, int result, void *data)
{
	struct visitor *visitor = data;
	struct guarded *guarded = visitor->guarded;

	while (!result) {
		visit(guarded);
		result = memwait_mutex_unlock(&guarded->mutex);
		if (result || ++visitor->rounds == ROUNDS)
			break;
		result = memwait_mutex_lock_async(&guarded->mutex, op);
	}
	if (result == EINPROGRESS)
		return;
	visitor->error = result;
	visitor->done = 1;
}

static void visit_with_loop(struct visitor *visitor, struct guarded *guarded, memwait_loop_t *loop)
{
	int ret;

	memset(visitor, 0, sizeof(*visitor));
	visitor->guarded = guarded;
	memwait_op_init(&visitor->op, loop, visit_by_callback, visitor);
	ret = memwait_mutex_lock_async(&guarded->mutex, &visitor->op);
	if (ret != EINPROGRESS)
		visit_by_callback(&visitor->op, ret, visitor);
}

USERLIB_TEST(L0_threads_and_a_loop_exclude_each_other)
{
	struct guarded *guarded = self->shared;
	struct visitor visitors[2];
	struct runner runners[3];
	int kind, i;

	for (kind = 0; kind < KINDS; kind++) {
		memset(guarded, 0, sizeof(*guarded));
		ASSERT_EQ(0, memwait_mutex_init(&guarded->mutex, kinds[kind]));
		for (i = 0; i < 3; i++)
			runner_start(&runners[i], visit_often, guarded);
		for (i = 0; i < 2; i++)
			visit_with_loop(&visitors[i], guarded, self->loop);
		ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
		for (i = 0; i < 3; i++)
			ASSERT_EQ(0, runner_join(&runners[i]));
		for (i = 0; i < 2; i++) {
			ASSERT_EQ(1, visitors[i].done);
			ASSERT_EQ(0, visitors[i].error);
		}
		EXPECT_EQ(5L * ROUNDS, guarded->counter);
		EXPECT_EQ(0, guarded->violations);
		EXPECT_EQ(EPERM, memwait_mutex_unlock(&guarded->mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(&guarded->mutex));
	}
}

USERLIB_TEST(L0_processes_that_map_it_at_other_addresses_exclude_each_other)
{
	int memfd = memfd_create("mutex", MFD_CLOEXEC), kind, i;
	struct guarded *guarded;
	struct visitor visitor;
	pid_t children[3];

	ASSERT_LE(0, memfd);
	ASSERT_EQ(0, ftruncate(memfd, 4096));
	guarded = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	ASSERT_NE(MAP_FAILED, guarded);
	for (kind = 0; kind < KINDS; kind++) {
		memset(guarded, 0, sizeof(*guarded));
		ASSERT_EQ(0, memwait_mutex_init(&guarded->mutex, kinds[kind]));
		for (i = 0; i < 3; i++) {
			children[i] = fork_child();
			if (!children[i]) {
				void *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
						   memfd, 0);

				munmap(guarded, 4096);
				_exit(other == MAP_FAILED || visit_often(other));
			}
		}
		visit_with_loop(&visitor, guarded, self->loop);
		ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
		for (i = 0; i < 3; i++)
			ASSERT_EQ(0, child_status(children[i]));
		EXPECT_EQ(0, visitor.error);
		EXPECT_EQ(4L * ROUNDS, guarded->counter);
		EXPECT_EQ(0, guarded->violations);
		EXPECT_EQ(0, memwait_mutex_destroy(&guarded->mutex));
	}
	munmap(guarded, 4096);
	close(memfd);
}

USERLIB_TEST(L0_errors_of_trylock_unlock_destroy)
{
	memwait_mutex_t *mutex = self->shared;
	int kind;

	for (kind = 0; kind < KINDS; kind++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_trylock(mutex));
		EXPECT_EQ(EBUSY, elsewhere(memwait_mutex_trylock, mutex));
		EXPECT_EQ(EBUSY, memwait_mutex_destroy(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
	EXPECT_EQ(EINVAL, memwait_mutex_init(mutex, 0x10));
	EXPECT_EQ(EINVAL, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ERRORCHECK |
					     MEMWAIT_MUTEX_RECURSIVE));
	EXPECT_EQ(EINVAL, memwait_mutex_trylock(NULL));
	EXPECT_EQ(-EINVAL, memwait_mutex_is_held(NULL));
	EXPECT_EQ(EINVAL, memwait_mutex_execute_locked(NULL, NULL));
}

USERLIB_TEST(zeroed_memory_is_an_initialised_mutex)
{
	static memwait_mutex_t initialised = MEMWAIT_MUTEX_INIT;
	memwait_mutex_t *zeroed = self->shared;

	EXPECT_EQ(0, memcmp(&initialised, zeroed, sizeof(*zeroed)));
	EXPECT_EQ(0, memwait_mutex_lock(zeroed));
	EXPECT_EQ(0, memwait_mutex_unlock(zeroed));
}

USERLIB_TEST(L0_errorcheck_knows_its_owner)
{
	memwait_mutex_t *mutex = self->shared;
	struct counted_op counted = { 0 };
	struct timespec soon = in_time(CLOCK_REALTIME, 1);
	unsigned int fair;

	for (fair = 0; fair <= MEMWAIT_MUTEX_FAIR; fair += MEMWAIT_MUTEX_FAIR) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ERRORCHECK | fair));
		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(EDEADLK, memwait_mutex_lock(mutex));
		EXPECT_EQ(EDEADLK, memwait_mutex_timedlock(mutex, &soon));
		EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		EXPECT_EQ(EDEADLK, memwait_mutex_lock_async(mutex, &counted.op));
		EXPECT_EQ(0, memwait_op_pending(&counted.op));
		EXPECT_EQ(EPERM, elsewhere(memwait_mutex_unlock, mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	}
}

USERLIB_TEST(L0_a_mutex_that_records_its_owner_is_held_by_the_caller)
{
	static const unsigned int others[] = { 0, MEMWAIT_PRIVATE, MEMWAIT_MUTEX_ROBUST };
	memwait_mutex_t *mutex = self->shared;
	int i;

	for (i = 0; i < KINDS * (int)ARRAY_SIZE(others); i++) {
		unsigned int kind = kinds[i % KINDS] | others[i / KINDS];
		bool has_owner = kind & (MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_MUTEX_RECURSIVE |
					 MEMWAIT_MUTEX_ROBUST);

		if (kind & MEMWAIT_MUTEX_FAIR && kind & MEMWAIT_MUTEX_ROBUST)
			continue;
		ASSERT_EQ(0, memwait_mutex_init(mutex, kind));
		EXPECT_EQ(0, memwait_mutex_is_held(mutex));
		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(1, memwait_mutex_is_held(mutex));
		EXPECT_EQ(!has_owner, elsewhere(memwait_mutex_is_held, mutex))
			TH_LOG("kind %#x", kind);
		ASSERT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_is_held(mutex));
	}
}

USERLIB_TEST(L0_recursive_counts)
{
	memwait_mutex_t *mutex = self->shared;
	struct counted_op counted = { 0 };
	unsigned int fair;
	int i;

	for (fair = 0; fair <= MEMWAIT_MUTEX_FAIR; fair += MEMWAIT_MUTEX_FAIR) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_RECURSIVE | fair));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		ASSERT_EQ(0, memwait_mutex_trylock(mutex));
		ASSERT_EQ(0, memwait_mutex_lock_async(mutex, &counted.op));
		EXPECT_EQ(EPERM, elsewhere(memwait_mutex_unlock, mutex));
		for (i = 0; i < 3; i++) {
			EXPECT_EQ(EBUSY, elsewhere(memwait_mutex_trylock, mutex));
			EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		}
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, elsewhere(lock_and_unlock, mutex));
	}
}

/* Finds the mutex's recursion count: the only word that is @depth. */
static uint32_t *depth_of(memwait_mutex_t *mutex, uint32_t depth)
{
	uint32_t *words = (uint32_t *)mutex, *found = NULL;
	size_t i;

	for (i = 0; i < sizeof(*mutex) / sizeof(*words); i++) {
		if (words[i] != depth)
			continue;
		must(!!found);
		found = &words[i];
	}
	must(!found);
	return found;
}

USERLIB_TEST(L0_recursive_does_not_overflow)
{
	static const unsigned int kinds[] = {
		MEMWAIT_MUTEX_RECURSIVE, MEMWAIT_MUTEX_RECURSIVE | MEMWAIT_PRIVATE,
		MEMWAIT_MUTEX_RECURSIVE | MEMWAIT_MUTEX_FAIR,
		MEMWAIT_MUTEX_RECURSIVE | MEMWAIT_MUTEX_ROBUST,
	};
	struct counted_op counted = counted_by(&counted, self->loop);
	struct timespec time = in_time(CLOCK_MONOTONIC, 1000);
	memwait_mutex_t *mutex = self->shared;
	const uint32_t depth = 1234;
	uint32_t *count;
	size_t i;
	uint32_t j;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[i]));
		for (j = 0; j < depth; j++)
			ASSERT_EQ(0, memwait_mutex_lock(mutex));
		count = depth_of(mutex, depth);
		*count = UINT32_MAX - 1;
		EXPECT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(EAGAIN, memwait_mutex_lock(mutex));
		EXPECT_EQ(EAGAIN, memwait_mutex_trylock(mutex));
		EXPECT_EQ(EAGAIN, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &time));
		EXPECT_EQ(EAGAIN, memwait_mutex_lock_async(mutex, &counted.op));
		EXPECT_EQ(UINT32_MAX, *count);
		*count = 1;
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
	EXPECT_EQ(0, counted.calls);
}

struct timed {
	memwait_mutex_t *mutex;
	clockid_t clock;
	struct timespec time;
};

static int lock_until(void *arg)
{
	struct timed *timed = arg;

	return memwait_mutex_clocklock(timed->mutex, timed->clock, &timed->time);
}

USERLIB_TEST(R4_deadlines_of_locks)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	memwait_mutex_t *mutex = self->shared;
	struct timed timed = { .mutex = mutex };
	uint64_t start;
	int kind, i;

	for (kind = 0; kind < KINDS; kind++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		for (i = 0; i < 2; i++) {
			timed.clock = clocks[i];
			start = now_ns(CLOCK_MONOTONIC);
			timed.time = in_time(clocks[i], 20);
			EXPECT_EQ(ETIMEDOUT, elsewhere(lock_until, &timed));
			EXPECT_LE(19 * NSEC_PER_MSEC, now_ns(CLOCK_MONOTONIC) - start);
			timed.time = in_time(clocks[i], -1000);
			EXPECT_EQ(ETIMEDOUT, elsewhere(lock_until, &timed));
			timed.time = (struct timespec){ -1, 0 };
			EXPECT_EQ(ETIMEDOUT, elsewhere(lock_until, &timed));
			timed.time = (struct timespec){ 1, 1000000000 };
			EXPECT_EQ(EINVAL, elsewhere(lock_until, &timed));
			timed.time = (struct timespec){ 1, -1 };
			EXPECT_EQ(EINVAL, elsewhere(lock_until, &timed));
		}
		timed.clock = CLOCK_PROCESS_CPUTIME_ID;
		EXPECT_EQ(EINVAL, elsewhere(lock_until, &timed));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));

		/* A deadline that is not needed is not checked. */
		timed.clock = CLOCK_MONOTONIC;
		timed.time = (struct timespec){ 1, -1 };
		EXPECT_EQ(0, memwait_mutex_clocklock(mutex, timed.clock, &timed.time));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, NULL));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	}
}

USERLIB_TEST(R18_lock_async_immediately_and_later)
{
	memwait_mutex_t *mutex = self->shared;
	struct counted_op counted = { 0 };
	struct timespec soon;
	int kind, ret;

	for (kind = 0; kind < KINDS; kind++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		EXPECT_EQ(0, memwait_mutex_lock_async(mutex, &counted.op));
		EXPECT_EQ(EBUSY, elsewhere(memwait_mutex_trylock, mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));

		ASSERT_EQ(0, elsewhere(memwait_mutex_lock, mutex));
		EXPECT_EQ(EINPROGRESS, memwait_mutex_lock_async(mutex, &counted.op));
		EXPECT_EQ(EBUSY, memwait_mutex_lock_async(mutex, &counted.op));
		EXPECT_EQ(1, memwait_op_pending(&counted.op));
		EXPECT_EQ(1, memwait_loop_pending(self->loop));
		EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		/*
		 * If the mutex records its owner, that owner has exited, and no thread can unlock
		 * the mutex: cancel the operation.
		 */
		if (kinds[kind] & (MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_MUTEX_RECURSIVE)) {
			EXPECT_EQ(0, memwait_op_cancel(&counted.op));
			continue;
		}
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		EXPECT_EQ(0, memwait_loop_pending(self->loop));
		EXPECT_EQ(EBUSY, elsewhere(memwait_mutex_trylock, mutex));

		/* Now the operation times out. */
		do {
			soon = in_time(CLOCK_MONOTONIC, 10);
			ret = memwait_mutex_clocklock_async(mutex, CLOCK_MONOTONIC, &soon,
							    &counted.op);
		} while (ret == ETIMEDOUT);	/* the deadline has passed on a slow machine */
		ASSERT_EQ(EINPROGRESS, ret);
		EXPECT_EQ(0, dispatch_until(self->loop, &counted.calls, 2));
		EXPECT_EQ(ETIMEDOUT, counted.result);
		/* Here the deadline has passed before the call. */
		EXPECT_EQ(ETIMEDOUT, memwait_mutex_clocklock_async(mutex, CLOCK_MONOTONIC, &soon,
								   &counted.op));
		EXPECT_EQ(2, counted.calls);
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
}

struct forking {
	memwait_op_t op;
	memwait_mutex_t *mutex;
	pid_t child;
	int status, err;
};

/* The child also returns from this function. */
static void fork_and_look(memwait_op_t *op, int result, void *data)
{
	struct forking *forking = data;

	(void)op;
	forking->err = result;
	forking->child = fork_child();
	if (forking->child) {
		forking->status = child_status(forking->child);
		forking->err = memwait_mutex_trylock(forking->mutex);
	}
}

/* The child does not own the lock, and the library does not unlock it in the child. */
USERLIB_TEST(L1_a_child_does_not_unlock_what_execute_locked_has_locked)
{
	struct forking forking = { .mutex = self->shared };
	int ret;

	ASSERT_EQ(0, memwait_mutex_init(forking.mutex, MEMWAIT_MUTEX_NORMAL));
	memwait_op_init(&forking.op, self->loop, fork_and_look, &forking);
	ret = memwait_mutex_execute_locked(forking.mutex, &forking.op);
	if (!forking.child)
		_exit(ret != 0);
	EXPECT_EQ(0, ret);
	EXPECT_EQ(0, forking.status);
	EXPECT_EQ(EBUSY, forking.err);

	ASSERT_EQ(0, memwait_mutex_lock(forking.mutex));
	EXPECT_EQ(EINPROGRESS, memwait_mutex_execute_locked(forking.mutex, &forking.op));
	EXPECT_EQ(0, memwait_mutex_unlock(forking.mutex));
	ret = memwait_loop_dispatch(self->loop, MEMWAIT_ALL);
	if (!forking.child)
		_exit(ret != -EPERM);
	EXPECT_EQ(1, ret);
	EXPECT_EQ(0, forking.status);
	EXPECT_EQ(EBUSY, forking.err);
	EXPECT_EQ(0, memwait_mutex_trylock(forking.mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(forking.mutex));
}

USERLIB_TEST(L0_execute_locked_locks_and_unlocks)
{
	memwait_mutex_t *mutex = self->shared;
	struct counted_op first = { 0 }, second = { 0 };
	unsigned int fair;

	for (fair = 0; fair <= MEMWAIT_MUTEX_FAIR; fair += MEMWAIT_MUTEX_FAIR) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, fair));
		memset(&first, 0, sizeof(first));
		memset(&second, 0, sizeof(second));
		memwait_op_init(&first.op, self->loop, count_call, &first);
		memwait_op_init(&second.op, self->loop, count_call, &second);

		EXPECT_EQ(0, memwait_mutex_execute_locked(mutex, &first.op));
		EXPECT_EQ(1, first.calls);
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));

		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(EINPROGRESS, memwait_mutex_execute_locked(mutex, &first.op));
		EXPECT_EQ(EINPROGRESS, memwait_mutex_execute_locked(mutex, &second.op));
		EXPECT_EQ(1, first.calls);
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, dispatch_until(self->loop, &first.calls, 2));
		EXPECT_EQ(0, dispatch_until(self->loop, &second.calls, 1));
		EXPECT_EQ(0, first.result);
		EXPECT_EQ(0, second.result);
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
	}
}

struct unlocking {
	memwait_op_t op;
	memwait_mutex_t *mutex;
	int calls, err;
};

static void unlock_too_early(memwait_op_t *op, int result, void *data)
{
	struct unlocking *unlocking = data;

	(void)op;
	unlocking->calls++;
	unlocking->err = result ?: memwait_mutex_unlock(unlocking->mutex);
}

/*
 * If the function returns an error, the callback has not run and will not run. If the function
 * returns 0, the callback has run.
 */
USERLIB_TEST(L0_execute_locked_fails_only_before_its_callback)
{
	struct unlocking unlocking = { .mutex = self->shared };
	int kind;

	memwait_op_init(&unlocking.op, self->loop, unlock_too_early, &unlocking);
	for (kind = 0; kind < KINDS; kind++) {
		ASSERT_EQ(0, memwait_mutex_init(unlocking.mutex, kinds[kind]));
		unlocking.calls = 0;
		/* The callback has unlocked the mutex. */
		EXPECT_EQ(0, memwait_mutex_execute_locked(unlocking.mutex, &unlocking.op));
		EXPECT_EQ(1, unlocking.calls);
		EXPECT_EQ(0, unlocking.err);
		EXPECT_EQ(EPERM, memwait_mutex_unlock(unlocking.mutex));
		if (!(kinds[kind] & MEMWAIT_MUTEX_ERRORCHECK))
			continue;
		ASSERT_EQ(0, memwait_mutex_lock(unlocking.mutex));
		EXPECT_EQ(EDEADLK, memwait_mutex_execute_locked(unlocking.mutex, &unlocking.op));
		EXPECT_EQ(1, unlocking.calls);
		EXPECT_EQ(0, memwait_op_pending(&unlocking.op));
		EXPECT_EQ(0, memwait_mutex_unlock(unlocking.mutex));
	}
}

struct order {
	memwait_mutex_t *mutex;
	int *next;		/* protected by the mutex */
	int place;
	memwait_op_t op;
	struct runner runner;
};

static int lock_and_note_place(void *arg)
{
	struct order *order = arg;
	int err = memwait_mutex_lock(order->mutex);

	if (err)
		return err;
	order->place = (*order->next)++;
	return memwait_mutex_unlock(order->mutex);
}

static void note_place(memwait_op_t *op, int result, void *data)
{
	struct order *order = data;

	(void)op;
	if (result)
		return;
	order->place = (*order->next)++;
	memwait_mutex_unlock(order->mutex);
}

static int barge_in(void *arg)
{
	struct guarded *guarded = arg;
	int got = 0;

	while (!__atomic_load_n(&guarded->stop, __ATOMIC_ACQUIRE)) {
		if (!memwait_mutex_trylock(&guarded->mutex)) {
			got++;
			memwait_mutex_unlock(&guarded->mutex);
		}
		sched_yield();
	}
	return got;
}

#define IN_ORDER	12

USERLIB_TEST(R12_fair_is_first_in_first_out_for_threads_and_operations)
{
	struct guarded *guarded = self->shared;
	struct order orders[IN_ORDER];
	struct runner barger;
	int next = 0, i;

	ASSERT_EQ(0, memwait_mutex_init(&guarded->mutex, MEMWAIT_MUTEX_FAIR));
	ASSERT_EQ(0, memwait_mutex_lock(&guarded->mutex));
	for (i = 0; i < IN_ORDER; i++) {
		orders[i] = (struct order){
			.mutex = &guarded->mutex, .next = &next, .place = -1,
		};
		if (i % 3) {
			runner_start(&orders[i].runner, lock_and_note_place, &orders[i]);
		} else {
			memwait_op_init(&orders[i].op, self->loop, note_place, &orders[i]);
			ASSERT_EQ(EINPROGRESS,
				  memwait_mutex_lock_async(&guarded->mutex, &orders[i].op));
		}
		await_waiters(self->fd, sleep_word(&guarded->mutex, MEMWAIT_MUTEX_FAIR), 0, i + 1);
	}
	runner_start(&barger, barge_in, guarded);
	ASSERT_EQ(0, memwait_mutex_unlock(&guarded->mutex));
	ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	for (i = 0; i < IN_ORDER; i++) {
		if (i % 3) {
			EXPECT_EQ(0, runner_join(&orders[i].runner));
		}
		EXPECT_EQ(i, orders[i].place);
	}
	__atomic_store_n(&guarded->stop, 1, __ATOMIC_RELEASE);
	runner_join(&barger);
	EXPECT_EQ(IN_ORDER, next);
	EXPECT_EQ(0, memwait_mutex_destroy(&guarded->mutex));
}

struct meeting {
	memwait_mutex_t mutex;
	int begun, ended;	/* number of rounds; INT_MAX: end */
};

static int lock_in_each_round(void *arg)
{
	struct meeting *meeting = arg;
	int round, looks;

	for (round = 1;; round++) {
		/*
		 * Spin without a yield at first, so that this thread calls lock while the mutex is
		 * locked.
		 */
		for (looks = 0; __atomic_load_n(&meeting->begun, __ATOMIC_ACQUIRE) < round; looks++)
			if (looks > 1000)
				sched_yield();
		if (__atomic_load_n(&meeting->begun, __ATOMIC_ACQUIRE) == INT_MAX)
			return 0;
		if (lock_and_unlock(&meeting->mutex))
			return -1;
		__atomic_store_n(&meeting->ended, round, __ATOMIC_RELEASE);
	}
}

/* No later unlock would wake the waiter. */
USERLIB_TEST(R1_a_waiter_that_is_about_to_sleep_is_not_forgotten)
{
	struct meeting *meeting = self->shared;
	struct runner runner;
	unsigned int fair;
	volatile int delay;
	int round;

	for (fair = 0; fair <= MEMWAIT_MUTEX_FAIR; fair += MEMWAIT_MUTEX_FAIR) {
		memset(meeting, 0, sizeof(*meeting));
		ASSERT_EQ(0, memwait_mutex_init(&meeting->mutex, fair));
		runner_start(&runner, lock_in_each_round, meeting);
		for (round = 1; more_rounds(round, 20 * ROUNDS); round++) {
			ASSERT_EQ(0, memwait_mutex_lock(&meeting->mutex));
			__atomic_store_n(&meeting->begun, round, __ATOMIC_RELEASE);
			for (delay = round % 1000; delay; delay--)
				;
			ASSERT_EQ(0, memwait_mutex_unlock(&meeting->mutex));
			while (__atomic_load_n(&meeting->ended, __ATOMIC_ACQUIRE) < round)
				sched_yield();
		}
		__atomic_store_n(&meeting->begun, INT_MAX, __ATOMIC_RELEASE);
		ASSERT_EQ(0, runner_join(&runner));
	}
}

static int hog(void *arg)
{
	struct guarded *guarded = arg;

	while (!__atomic_load_n(&guarded->stop, __ATOMIC_ACQUIRE)) {
		int err = memwait_mutex_lock(&guarded->mutex);

		if (err)
			return err;
		visit(guarded);
		memwait_mutex_unlock(&guarded->mutex);
	}
	return 0;
}

/* Two threads relock the mutex immediately and must not starve a third thread. */
USERLIB_TEST(R12_fair_does_not_starve)
{
	struct guarded *guarded = self->shared;
	struct runner hogs[2];
	struct visitor visitor;
	int i;

	ASSERT_EQ(0, memwait_mutex_init(&guarded->mutex, MEMWAIT_MUTEX_FAIR));
	for (i = 0; i < 2; i++)
		runner_start(&hogs[i], hog, guarded);
	for (i = 0; i < ROUNDS; i++) {
		ASSERT_EQ(0, memwait_mutex_lock(&guarded->mutex));
		visit(guarded);
		ASSERT_EQ(0, memwait_mutex_unlock(&guarded->mutex));
	}
	visit_with_loop(&visitor, guarded, self->loop);
	ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(0, visitor.error);
	__atomic_store_n(&guarded->stop, 1, __ATOMIC_RELEASE);
	for (i = 0; i < 2; i++)
		runner_join(&hogs[i]);
	EXPECT_EQ(0, guarded->violations);
	EXPECT_EQ(0, memwait_mutex_destroy(&guarded->mutex));
}

/* The default kind does not starve waiters either, but a waiter may wait longer. */
USERLIB_TEST(R12_default_does_not_starve)
{
	const unsigned int kinds[] = { 0, MEMWAIT_PRIVATE, MEMWAIT_MUTEX_ERRORCHECK };
	struct guarded *guarded = self->shared;
	struct runner hogs[2];
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		memset(guarded, 0, sizeof(*guarded));
		ASSERT_EQ(0, memwait_mutex_init(&guarded->mutex, kinds[i]));
		for (j = 0; j < 2; j++)
			runner_start(&hogs[j], hog, guarded);
		for (j = 0; j < ROUNDS / 10; j++) {
			ASSERT_EQ(0, memwait_mutex_lock(&guarded->mutex));
			visit(guarded);
			ASSERT_EQ(0, memwait_mutex_unlock(&guarded->mutex));
		}
		__atomic_store_n(&guarded->stop, 1, __ATOMIC_RELEASE);
		for (j = 0; j < 2; j++)
			runner_join(&hogs[j]);
		EXPECT_EQ(0, guarded->violations);
		EXPECT_EQ(0, memwait_mutex_destroy(&guarded->mutex));
	}
}

/*
 * The operation waits for the locked mutex and loses it to the caller each time it is woken, until
 * it is late. Returns with the mutex unlocked and reserved for the operation.
 */
static int lose(memwait_mutex_t *mutex, struct counted_op *counted, memwait_loop_t *loop)
{
	int ret;

	memwait_op_init(&counted->op, loop, count_call, counted);
	ret = memwait_mutex_lock_async(mutex, &counted->op);
	if (ret != EINPROGRESS)
		return ret ? ret : -1;
	while (!is_late(mutex)) {
		if (memwait_mutex_unlock(mutex) || memwait_mutex_lock(mutex))
			return -1;
		ret = memwait_loop_dispatch(loop, MEMWAIT_ALL);
		if (ret || counted->calls)
			return -1;
	}
	return memwait_mutex_unlock(mutex);
}

/* A later caller does not overtake a waiter that has lost too often. */
USERLIB_TEST(R12_a_lock_is_reserved_for_a_waiter_that_lost_it_too_often)
{
	const unsigned int kinds[] = { 0, MEMWAIT_PRIVATE };
	struct timespec soon = { 0, 0 };
	memwait_mutex_t *mutex = self->shared;
	struct counted_op first, second;
	size_t i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		memset(&first, 0, sizeof(first));
		memset(&second, 0, sizeof(second));
		memwait_op_init(&second.op, self->loop, count_call, &second);
		for (;;) {
			ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[i]));
			ASSERT_EQ(0, memwait_mutex_lock(mutex));
			ASSERT_EQ(0, lose(mutex, &first, self->loop));
			EXPECT_EQ(0x400, *(uint32_t *)mutex);
			ret = memwait_mutex_lock_async(mutex, &second.op);
			if (ret)
				break;
			/*
			 * This thread did not run until the reservation of the lock had ended. Try
			 * again.
			 */
			ASSERT_EQ(0, memwait_op_cancel(&first.op));
		}
		ASSERT_EQ(EINPROGRESS, ret);
		ASSERT_EQ(0, dispatch_until(self->loop, &first.calls, 1));
		EXPECT_EQ(0, second.calls);
		EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		ASSERT_EQ(0, dispatch_until(self->loop, &second.calls, 1));
		EXPECT_EQ(0, second.result);
		/* The lock is no longer reserved. */
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_lock(mutex));

		/* A later caller does not wait long for an operation whose loop is not running. */
		first.calls = 0;
		ASSERT_EQ(0, lose(mutex, &first, self->loop));
		EXPECT_EQ(0, memwait_mutex_lock(mutex));
		/* After its wait, this caller counts as the waiter that has lost too often. */
		EXPECT_FALSE(is_late(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		ASSERT_EQ(0, dispatch_until(self->loop, &first.calls, 1));
		EXPECT_EQ(0, first.result);

		/*
		 * A trylock does not wait, and a call whose deadline has passed does not wait
		 * either.
		 */
		first.calls = 0;
		ASSERT_EQ(0, lose(mutex, &first, self->loop));
		EXPECT_EQ(0, memwait_mutex_trylock(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon));
		EXPECT_EQ(0, memwait_op_cancel(&first.op));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_lock(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
}

/* If a lock is reserved for a waiter, a later caller does not sleep beyond its own deadline. */
USERLIB_TEST(R4_a_deadline_while_a_lock_is_reserved)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	memwait_mutex_t *mutex = self->shared;
	const struct timespec passed = { 1, 0 };
	uint64_t begin, spent, least;
	struct counted_op first;
	size_t i;
	int try;

	for (i = 0; i < ARRAY_SIZE(clocks); i++) {
		/*
		 * Take the shortest of several attempts, because other programs also use the CPU.
		 */
		least = UINT64_MAX;
		for (try = 0; try < 20 && least > 5 * NSEC_PER_MSEC; try++) {
			memset(&first, 0, sizeof(first));
			ASSERT_EQ(0, memwait_mutex_init(mutex, 0));
			ASSERT_EQ(0, memwait_mutex_lock(mutex));
			ASSERT_EQ(0, lose(mutex, &first, self->loop));
			begin = now_ns(CLOCK_MONOTONIC);
			ASSERT_EQ(0, memwait_mutex_clocklock(mutex, clocks[i], &passed));
			spent = now_ns(CLOCK_MONOTONIC) - begin;
			least = spent < least ? spent : least;
			EXPECT_EQ(0, memwait_op_cancel(&first.op));
			EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		}
		EXPECT_IN_TIME(least <= 5 * NSEC_PER_MSEC);
	}
}

/*
 * A notify meant for an earlier object in this memory, sent late or by mistake, does not hand over
 * the lock.
 */
USERLIB_TEST(L0_an_unrelated_notify_does_not_hand_a_lock_over)
{
	const unsigned int kinds[] = { 0, MEMWAIT_MUTEX_FAIR, MEMWAIT_PRIVATE,
				       MEMWAIT_MUTEX_FAIR | MEMWAIT_PRIVATE };
	memwait_mutex_t *mutex = self->shared;
	struct counted_op counted = { 0 };
	struct runner waiter;
	unsigned int flags;
	const void *word;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		flags = kinds[i] & MEMWAIT_PRIVATE;
		word = sleep_word(mutex, kinds[i]);
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[i]));
		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		runner_start(&waiter, lock_and_unlock, mutex);
		runner_await_asleep(&waiter);
		ASSERT_EQ(1, memwait_notify(word, 1, flags));
		while (memwait_waiters(word, flags) != 1 && !runner_is_done(&waiter))
			usleep(100);
		EXPECT_FALSE(runner_is_done(&waiter));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, runner_join(&waiter));

		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(EINPROGRESS, memwait_mutex_lock_async(mutex, &counted.op));
		ASSERT_EQ(1, memwait_notify(word, 1, flags));
		ASSERT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_EQ(0, counted.calls);
		EXPECT_EQ(1, memwait_waiters(word, flags));
		/* An operation that is cancelled after such a notify has nothing to pass on. */
		ASSERT_EQ(1, memwait_notify(word, 1, flags));
		EXPECT_EQ(0, memwait_op_cancel(&counted.op));
		EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
}

USERLIB_TEST(L1_a_lock_is_inherited_over_fork)
{
	struct guarded *guarded = self->shared;
	unsigned int fair;
	pid_t child;

	for (fair = 0; fair <= MEMWAIT_MUTEX_FAIR; fair += MEMWAIT_MUTEX_FAIR) {
		memset(guarded, 0, sizeof(*guarded));
		ASSERT_EQ(0, memwait_mutex_init(&guarded->mutex, fair));
		/* The child uses the device before and after it forks. */
		ASSERT_EQ(0, memwait_mutex_lock(&guarded->mutex));
		child = run_in_child(visit_often(guarded));
		await_waiters(self->fd, sleep_word(&guarded->mutex, fair), 0, 1);
		ASSERT_EQ(0, memwait_mutex_unlock(&guarded->mutex));
		ASSERT_EQ(0, visit_often(guarded));
		ASSERT_EQ(0, child_status(child));
		EXPECT_EQ(2L * ROUNDS, guarded->counter);
		EXPECT_EQ(0, guarded->violations);
	}
}

USERLIB_TEST(R6_signals_do_not_interrupt_a_lock)
{
	struct sigaction action = { .sa_handler = ignore_signal };
	memwait_mutex_t *mutex = self->shared;
	struct runner runner;
	int kind, i;

	sigaction(SIGUSR1, &action, NULL);
	for (kind = 0; kind < KINDS; kind++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		runner_start(&runner, lock_and_unlock, mutex);
		for (i = 0; i < 10; i++) {
			await_waiters(self->fd, sleep_word(mutex, kinds[kind]), 0, 1);
			pthread_kill(runner.thread, SIGUSR1);
		}
		ASSERT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, runner_join(&runner));
	}
}

/* A FAIR mutex, and the order in which the threads acquired it. */
struct turns {
	memwait_mutex_t mutex;
	pid_t order[2];
	int nr;
	int interrupted;
};

static struct turns *interrupted_turns;

static void count_interrupted(int signal)
{
	(void)signal;
	__atomic_add_fetch(&interrupted_turns->interrupted, 1, __ATOMIC_RELEASE);
}

static int take_turn(void *arg)
{
	struct turns *turns = arg;
	int err = memwait_mutex_lock(&turns->mutex);

	if (err)
		return err;
	turns->order[turns->nr++] = gettid();
	return memwait_mutex_unlock(&turns->mutex);
}

/* A signal interrupts the thread repeatedly, as the signals of a profiler do. */
USERLIB_TEST(R12_an_interrupted_thread_retains_its_turn)
{
	const unsigned int shared[] = { 0, MEMWAIT_PRIVATE };
	struct sigaction action = { .sa_handler = count_interrupted };
	struct turns *turns = self->shared;
	struct runner first, second;
	int kind, i;

	interrupted_turns = turns;
	for (kind = 0; kind < 4; kind++) {
		memset(turns, 0, sizeof(*turns));
		action.sa_flags = kind / 2 ? SA_RESTART : 0;
		sigaction(SIGUSR1, &action, NULL);
		ASSERT_EQ(0, memwait_mutex_init(&turns->mutex,
						MEMWAIT_MUTEX_FAIR | shared[kind % 2]));
		ASSERT_EQ(0, memwait_mutex_lock(&turns->mutex));
		runner_start(&first, take_turn, turns);
		runner_await_asleep(&first);
		runner_start(&second, take_turn, turns);
		runner_await_asleep(&second);
		for (i = 1; i <= 10; i++) {
			pthread_kill(first.thread, SIGUSR1);
			while (__atomic_load_n(&turns->interrupted, __ATOMIC_ACQUIRE) < i)
				sched_yield();
			runner_await_asleep(&first);
		}
		ASSERT_EQ(0, memwait_mutex_unlock(&turns->mutex));
		EXPECT_EQ(0, runner_join(&first));
		EXPECT_EQ(0, runner_join(&second));
		EXPECT_EQ(first.tid, turns->order[0]);
		EXPECT_EQ(second.tid, turns->order[1]);
		EXPECT_EQ(0, memwait_mutex_destroy(&turns->mutex));
	}
}

/*
 * The test hides /proc and /sys, as in a container that mounts neither: the C library cannot read
 * the number of CPUs.
 */
USERLIB_TEST(errno_is_unchanged_without_proc_and_sys)
{
	memwait_mutex_t mutex = MEMWAIT_MUTEX_INIT;
	struct timespec soon = in_time(CLOCK_MONOTONIC, 1);

	ASSERT_EQ(0, unshare(CLONE_NEWNS));
	ASSERT_EQ(0, mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	ASSERT_EQ(0, mount("none", "/proc", "tmpfs", 0, NULL));
	ASSERT_EQ(0, mount("none", "/sys", "tmpfs", 0, NULL));
	ASSERT_EQ(0, memwait_mutex_lock(&mutex));
	errno = EXDEV;
	EXPECT_EQ(ETIMEDOUT, memwait_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &soon));
	EXPECT_EQ(EXDEV, errno);
	EXPECT_EQ(0, memwait_mutex_unlock(&mutex));
}

TEST_HARNESS_MAIN
