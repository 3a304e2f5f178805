// SPDX-License-Identifier: GPL-2.0
/*
 * A mutex whose word has the flag LATE is reserved for a waiter that has lost the mutex too often.
 * After that waiter has given up, in any way, the mutex needs no system call, and no later caller
 * sleeps because of the flag.
 */
#include "death_test.h"
#include "ioctl_test.h"

/* How the waiter gives up, and its state at that time: see close.c. */
enum { CANCELLED, CLOSED, IS_OVERDUE, THREAD_IS_OVERDUE, IS_KILLED_ASLEEP, IS_KILLED_WOKEN };
enum { QUEUED, COMPLETED, READ };

static const struct giving_up {
	const char *name;
	int how, state;
} ways[] = {
	{ "cancelled", CANCELLED, QUEUED },
	{ "cancelled, woken", CANCELLED, COMPLETED },
	{ "cancelled, ready", CANCELLED, READ },
	{ "closed", CLOSED, QUEUED },
	{ "closed, woken", CLOSED, COMPLETED },
	{ "closed, ready", CLOSED, READ },
	{ "operation's deadline", IS_OVERDUE, QUEUED },
	{ "thread's deadline", THREAD_IS_OVERDUE, QUEUED },
	{ "killed asleep", IS_KILLED_ASLEEP, QUEUED },
	{ "killed when woken", IS_KILLED_WOKEN, COMPLETED },
};

/*
 * The waiter, which is a thread or a process. After its wake-up it blocks until the test lets it
 * continue.
 */
struct loser {
	memwait_mutex_t mutex;
	struct timespec time;
	int woken, may_continue;
};

/* Set in the calling thread if that thread is the waiter. */
static __thread struct loser *own;
/* System calls of the other threads. */
static int calls;

static int intercept(int fd, unsigned long request, void *argument)
{
	int ret = ioctl_of_kernel(fd, request, argument);

	if (!own) {
		calls++;
	} else if (request == MEMWAIT_IOC_WAIT && ret == MEMWAIT_OK) {
		set(&own->woken, 1);
		while (!get(&own->may_continue))
			sched_yield();
		set(&own->may_continue, 0);
	}
	return ret;
}

static int wait_until(void *arg)
{
	own = arg;
	return memwait_mutex_clocklock(&own->mutex, CLOCK_MONOTONIC, &own->time) ?:
	       memwait_mutex_unlock(&own->mutex);
}

/* The caller holds the mutex, and unlocks and relocks it until the operation is late or ends. */
static void let_operation_lose(struct loser *loser, const memwait_op_t *op, memwait_loop_t *loop)
{
	while (!is_late(&loser->mutex) && memwait_op_pending(op)) {
		must(memwait_mutex_unlock(&loser->mutex));
		must(memwait_mutex_trylock(&loser->mutex));
		must(memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0);
	}
}

/* Like let_operation_lose(), for a thread. Returns when the thread sleeps or has ended. */
static void let_thread_lose(struct loser *loser, const int *done, unsigned int kind)
{
	while (!is_late(&loser->mutex) && !get(done)) {
		spin_until(memwait_waiters(&loser->mutex, kind) == 1 || get(done));
		set(&loser->woken, 0);
		must(memwait_mutex_unlock(&loser->mutex));
		spin_until(get(&loser->woken) || get(done));
		/* A thread whose deadline has passed may hold the mutex for a moment. */
		spin_until(memwait_mutex_trylock(&loser->mutex) != EBUSY);
		set(&loser->may_continue, !get(done));
	}
	spin_until(memwait_waiters(&loser->mutex, kind) == 1 || get(done));
}

static void operation_gives_up(struct __test_metadata *_metadata, struct loser *loser,
			       const struct giving_up *way)
{
	struct counted_op counted, last;
	memwait_loop_t *loop;
	uint32_t word = 0;
	bool late;
	int ms;

	ASSERT_EQ(0, memwait_loop_new(&loop, 0));
	for (ms = 50, late = false; !late; ms *= 2) {
		counted = counted_by(&counted, loop);
		loser->time = in_time(CLOCK_MONOTONIC, ms);
		ASSERT_EQ(EINPROGRESS, way->how == IS_OVERDUE ?
			  memwait_mutex_clocklock_async(&loser->mutex, CLOCK_MONOTONIC,
							&loser->time, &counted.op) :
			  memwait_mutex_lock_async(&loser->mutex, &counted.op));
		let_operation_lose(loser, &counted.op, loop);
		late = is_late(&loser->mutex);
	}
	if (way->state != QUEUED) {
		ASSERT_EQ(0, memwait_mutex_unlock(&loser->mutex));
	}
	if (way->state == READ) {
		/* This cancel makes the loop read all completions. */
		last = counted_by(&last, loop);
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&word, 0, NULL, 0, &last.op));
		ASSERT_EQ(1, memwait_notify(&word, 1, 0));
		ASSERT_EQ(0, memwait_op_cancel(&last.op));
	}
	if (way->how == CANCELLED) {
		EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	} else if (way->how == IS_OVERDUE) {
		EXPECT_EQ(0, dispatch_until(loop, &counted.calls, 1));
		EXPECT_EQ(ETIMEDOUT, counted.result);
	}
	EXPECT_EQ(0, memwait_loop_close(loop));
}

static void thread_gives_up(struct __test_metadata *_metadata, struct loser *loser,
			    unsigned int kind)
{
	struct runner runner;
	int ms, ret;
	bool late;

	for (ms = 50, late = false; !late; ms *= 2) {
		loser->time = in_time(CLOCK_MONOTONIC, ms);
		loser->may_continue = 0;
		runner_start(&runner, wait_until, loser);
		let_thread_lose(loser, &runner.done, kind);
		late = is_late(&loser->mutex);
		ret = runner_join(&runner);
		EXPECT_TRUE(ret == ETIMEDOUT || (!late && !ret));
	}
}

static void process_gives_up(struct __test_metadata *_metadata, struct loser *loser,
			     const struct giving_up *way)
{
	const int done = 0;
	pid_t pid;

	loser->time = in_time(CLOCK_MONOTONIC, 1000000);
	pid = run_in_child(wait_until(loser));
	let_thread_lose(loser, &done, 0);
	if (way->how == IS_KILLED_WOKEN) {
		set(&loser->woken, 0);
		ASSERT_EQ(0, memwait_mutex_unlock(&loser->mutex));
		spin_until(get(&loser->woken));
	}
	EXPECT_EQ(128 + SIGKILL, kill_child(pid));
}

/* Returns how many system calls some trylocks and locks make. */
static int cost_of(memwait_mutex_t *mutex)
{
	int i;

	calls = 0;
	for (i = 0; i < 10; i++) {
		must(memwait_mutex_trylock(mutex));
		must(memwait_mutex_unlock(mutex));
		must(memwait_mutex_lock(mutex));
		must(memwait_mutex_unlock(mutex));
	}
	return calls;
}

USERLIB_TEST(L3_a_late_waiter_that_gives_up_leaves_nothing)
{
	static const unsigned int kinds[] = { 0, MEMWAIT_PRIVATE };
	struct loser *loser = self->shared;
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(ways); i++) {
		const struct giving_up *way = &ways[i / 2];
		unsigned int kind = kinds[i % 2];

		if (kind & MEMWAIT_PRIVATE && way->how >= IS_KILLED_ASLEEP)
			continue;
		memset(loser, 0, sizeof(*loser));
		ASSERT_EQ(0, memwait_mutex_init(&loser->mutex, kind));
		ASSERT_EQ(0, memwait_mutex_lock(&loser->mutex));
		if (way->how >= IS_KILLED_ASLEEP)
			process_gives_up(_metadata, loser, way);
		else if (way->how == THREAD_IS_OVERDUE)
			thread_gives_up(_metadata, loser, kind);
		else
			operation_gives_up(_metadata, loser, way);
		if (way->state == QUEUED) {
			EXPECT_EQ(0, memwait_mutex_unlock(&loser->mutex));
		}
		/*
		 * The death of a woken waiter is not known. Therefore exactly one later caller
		 * sleeps for some time.
		 */
		if (way->how == IS_KILLED_WOKEN) {
			EXPECT_EQ(0, memwait_mutex_lock(&loser->mutex));
			EXPECT_EQ(0, memwait_mutex_unlock(&loser->mutex));
		}
		EXPECT_EQ(0, cost_of(&loser->mutex)) {
			TH_LOG("%s, kind %x", way->name, kind);
		}
		EXPECT_EQ(0, memwait_mutex_destroy(&loser->mutex));
	}
}

/* The waiter that gives up is not the only late waiter. */
USERLIB_TEST(L3_another_late_waiter_still_gets_it)
{
	struct loser *loser = self->shared;
	struct counted_op first = counted_by(&first, self->loop);
	struct counted_op second = counted_by(&second, self->loop);
	struct runner runner;

	ASSERT_EQ(0, memwait_mutex_lock(&loser->mutex));
	ASSERT_EQ(EINPROGRESS, memwait_mutex_lock_async(&loser->mutex, &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_mutex_lock_async(&loser->mutex, &second.op));
	let_operation_lose(loser, &first.op, self->loop);
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	let_operation_lose(loser, &second.op, self->loop);
	/*
	 * The mutex is reserved for the second operation: a thread that comes now is queued behind
	 * it.
	 */
	ASSERT_EQ(0, memwait_mutex_unlock(&loser->mutex));
	runner_start(&runner, memwait_mutex_lock, &loser->mutex);
	ASSERT_EQ(0, dispatch_until(self->loop, &second.calls, 1) ?: second.result);
	ASSERT_EQ(0, memwait_mutex_unlock(&loser->mutex));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, memwait_mutex_unlock(&loser->mutex));
	EXPECT_EQ(0, cost_of(&loser->mutex));
}

/* Begins an operation, which loses the mutex until it is late. The caller holds the mutex. */
static void make_late(struct __test_metadata *_metadata, struct loser *loser,
		      struct counted_op *counted, memwait_loop_t *loop, bool has_deadline)
{
	struct timespec time;
	int ms;

	for (ms = 50; !is_late(&loser->mutex); ms *= 2) {
		*counted = counted_by(counted, loop);
		time = in_time(CLOCK_MONOTONIC, has_deadline ? ms : 1000000);
		ASSERT_EQ(EINPROGRESS, memwait_mutex_clocklock_async(&loser->mutex,
								     CLOCK_MONOTONIC, &time,
								     &counted->op));
		let_operation_lose(loser, &counted->op, loop);
	}
}

/* The mutex is not reserved any more, although another waiter sleeps. */
USERLIB_TEST(R12_a_lock_is_reserved_only_while_a_late_waiter_waits)
{
	struct loser *loser = self->shared;
	struct counted_op first, second = counted_by(&second, self->loop);
	int way;

	for (way = 0; way < 2; way++) {
		ASSERT_EQ(0, memwait_mutex_init(&loser->mutex, 0));
		ASSERT_EQ(0, memwait_mutex_lock(&loser->mutex));
		make_late(_metadata, loser, &first, self->loop, !way);
		second.calls = 0;
		ASSERT_EQ(EINPROGRESS, memwait_mutex_lock_async(&loser->mutex, &second.op));
		if (way) {
			ASSERT_EQ(0, memwait_mutex_unlock(&loser->mutex));
		}
		ASSERT_EQ(0, dispatch_until(self->loop, &first.calls, 1));
		EXPECT_EQ(way ? 0 : ETIMEDOUT, first.result);
		EXPECT_FALSE(is_late(&loser->mutex));
		EXPECT_EQ(0, second.calls);
		ASSERT_EQ(0, memwait_mutex_unlock(&loser->mutex));
		ASSERT_EQ(0, dispatch_until(self->loop, &second.calls, 1));
		ASSERT_EQ(0, memwait_mutex_unlock(&loser->mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(&loser->mutex));
	}
}

TEST_HARNESS_MAIN
