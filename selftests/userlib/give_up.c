// SPDX-License-Identifier: GPL-2.0
/*
 * L3, L5, L7, R5: a waiter that was woken and then gives up, in any way, passes the wake-up to the
 * next waiter. There are two waiters. The first waiter is counted by a notify and then gives up.
 * Its thread and its loop continue to exist, because the kernel would notify the next waiter if
 * they ended.
 */
#include "objects_test.h"
#include "ioctl_test.h"

#define fallthrough	__attribute__((__fallthrough__))

/* How the first waiter gives up. */
enum way_to_give_up {
	CANCELLED, TOO_LATE, KILLED, STOPPED, OP_CANCELLED, LOOP_CLOSED, WAYS,
	LINGERS,		/* the waiter does not give up, but is slow */
};

static const char *const names[] = {
	"pthread_cancel()", "deadline", "SIGKILL", "stop in a signal handler",
	"memwait_op_cancel()", "memwait_loop_close()",
};

/*
 * How the thread gives up, after a notify has counted its wait and before it is back in the
 * library.
 */
static __thread enum way_to_give_up gives_up = WAYS;
static __thread bool has_lost;
static __thread bool dies_before_change;
static __thread bool stalls;
static __thread bool is_destroyer;
static int was_counted, may_continue, was_woken, has_given_up, may_end;

static void stall(void)
{
	if (!stalls)
		return;
	stalls = false;
	__atomic_store_n(&was_counted, 1, __ATOMIC_RELEASE);
	spin_until(__atomic_load_n(&may_continue, __ATOMIC_ACQUIRE));
}

static int intercept(int fd, unsigned long request, void *argument)
{
	struct memwait_wait *wait = argument;
	int ret;

	/* The thread's deadline passes while it waits again. */
	if (has_lost && request == MEMWAIT_IOC_WAIT)
		wait->deadline = 1;
	if (dies_before_change && request == MEMWAIT_IOC_CHANGE_NOTIFY)
		kill(getpid(), SIGKILL);
	/* The last thread at a private barrier is about to wake the others. It is stalled once. */
	if (request == MEMWAIT_IOC_CHANGE_NOTIFY)
		stall();
	ret = ioctl_of_kernel(fd, request, argument);
	/* The thread has just asked for the number of waiters. It is stalled once. */
	if (request == MEMWAIT_IOC_WAITERS)
		stall();
	if (is_destroyer && request == MEMWAIT_IOC_WAIT && !ret)
		was_woken++;
	if (ret || (request != MEMWAIT_IOC_WAIT && request != MEMWAIT_IOC_NOTIFY_WAIT))
		return ret;
	switch (gives_up) {
	case CANCELLED:
		pthread_cancel(pthread_self());
		break;
	case KILLED:
		kill(getpid(), SIGKILL);
		break;
	case TOO_LATE:
	case LINGERS:
		has_lost = gives_up == TOO_LATE;
		__atomic_store_n(&was_counted, 1, __ATOMIC_RELEASE);
		spin_until(__atomic_load_n(&may_continue, __ATOMIC_ACQUIRE));
		break;
	default:
		break;
	}
	return ret;
}

/* The first of two waiters. */
struct first {
	const struct object *object;
	void *memory;
	enum way_to_give_up how;
	memwait_loop_t *loop;		/* the waiter's own loop */
	struct counted_op counted;
	struct runner runner;
	int result;			/* result of the thread, which continues to exist */
	pid_t child;
};

static void stay_there(void)
{
	__atomic_store_n(&has_given_up, 1, __ATOMIC_RELEASE);
	spin_until(__atomic_load_n(&may_end, __ATOMIC_ACQUIRE));
}

/* The cleanup handler of a cancelled wait for a condition runs with the mutex held. */
static void was_cancelled(void *arg)
{
	struct first *first = arg;

	if (first->object->way == &condition_way)
		must(condition_give_back(first->memory));
	stay_there();
}

static int wait_first(void *arg)
{
	const struct timespec never = { TIME_MAX, 0 };
	struct first *first = arg;
	const struct way *way = first->object->way;
	int ret;

	gives_up = first->how;
	pthread_cleanup_push(was_cancelled, first);
	ret = first->how == TOO_LATE ?
	      way->wait_until(first->memory, CLOCK_MONOTONIC, &never) : way->wait(first->memory);
	pthread_cleanup_pop(0);
	first->result = leave(way, first->memory, ret);
	stay_there();
	return first->result;
}

static int wait_in_loop(void *arg)
{
	struct first *first = arg;

	return first->object->way->wait_async(first->memory, &first->counted.op);
}

static int begin(struct first *first)
{
	switch (first->how) {
	case CANCELLED:
	case TOO_LATE:
		runner_start(&first->runner, wait_first, first);
		return 0;
	case KILLED:
		first->child = run_in_child(wait_first(first));
		return 0;
	default:
		must(-memwait_loop_new(&first->loop, 0));
		first->counted = counted_by(&first->counted, first->loop);
		/* If the object was acquired immediately, the result is 0. */
		return elsewhere(wait_in_loop, first) != EINPROGRESS;
	}
}

static memwait_loop_t *stopped;

static void stop(int signal)
{
	memwait_loop_stop(stopped);
}

/*
 * Makes the first waiter, which was counted, give up. Returns 0 if it gave up, otherwise its
 * result.
 */
static int give_up(struct first *first)
{
	const struct way *way = first->object->way;
	int ret, taken;

	switch (first->how) {
	case CANCELLED:
		spin_until(__atomic_load_n(&has_given_up, __ATOMIC_ACQUIRE));
		return 0;
	case KILLED:
		return child_status(first->child) - (128 + SIGKILL);
	case TOO_LATE:
		spin_until(__atomic_load_n(&was_counted, __ATOMIC_ACQUIRE));
		/* Another thread acquires the object first, if it can. */
		taken = take(way, first->memory);
		__atomic_store_n(&may_continue, 1, __ATOMIC_RELEASE);
		spin_until(__atomic_load_n(&has_given_up, __ATOMIC_ACQUIRE));
		ret = first->result;
		if (ret != (taken || way->together ? 0 : ETIMEDOUT))
			return ret ? ret : -1;
		if (taken && way->give_back)
			return 0;
		return give_next(way, first->memory);
	case STOPPED:
		stopped = first->loop;
		raise(SIGUSR1);
		ret = memwait_op_wait(&first->counted.op, NULL);
		if (ret != -EINTR)
			return -1;
		fallthrough;
	case OP_CANCELLED:
		return memwait_op_cancel(&first->counted.op);
	default:
		return memwait_loop_close(first->loop);
	}
}

static int end(struct first *first)
{
	__atomic_store_n(&may_end, 1, __ATOMIC_RELEASE);
	switch (first->how) {
	case CANCELLED:
		pthread_join(first->runner.thread, NULL);
		return runner_is_done(&first->runner);
	case TOO_LATE:
		pthread_join(first->runner.thread, NULL);
		return 0;
	case STOPPED:
	case OP_CANCELLED:
		return memwait_loop_close(first->loop);
	default:
		return 0;
	}
}

static void set_up(struct first *first, const struct object *object, void *memory,
		   enum way_to_give_up how)
{
	*first = (struct first){ .object = object, .memory = memory, .how = how };
	was_counted = 0;
	may_continue = 0;
	has_given_up = 0;
	may_end = 0;
}

static bool is_possible(const struct object *object, enum way_to_give_up how)
{
	switch (how) {
	case CANCELLED:
		return object->way->cancels;
	case TOO_LATE:
		/* A waiter that received a signal does not wait again for the condition. */
		return object->way != &condition_way;
	case KILLED:
		return !dead_excludes(object) && !is_private(object);
	default:
		return true;
	}
}

/* Awaits @n sleepers on any word. At some objects, destroy also sleeps. */
static void await_all(const struct first *first, int n)
{
	const struct object *object = first->object;

	if (!object->way->wakes_destroy)
		await_sleepers(object->way, first->memory, object->kind, n);
	else
		spin_until(sleepers_within(first->memory, OBJECT_SIZE, object->kind) == n);
}

USERLIB_TEST(L3_a_waiter_that_gives_up_has_the_next_one_woken)
{
	const struct sigaction action = { .sa_handler = stop };
	const struct object *object;
	void *memory = self->shared;
	struct visitor next;
	struct first first;
	int how;

	sigaction(SIGUSR1, &action, NULL);
	for_each_object(object, !object->way->meets && !object->way->lets_all_go) {
		const struct way *way = object->way;

		for (how = 0; how < WAYS; how++) {
			if (!is_possible(object, how))
				continue;
			TH_LOG("%s: %s", object->name, names[how]);
			set_up(&first, object, memory, how);
			ASSERT_EQ(0, way->make(memory, object->kind));
			ASSERT_EQ(0, begin(&first));
			await_all(&first, 1);
			visitor_start(&next, way, memory);
			await_all(&first, 2);
			ASSERT_EQ(0, way->give(memory));
			ASSERT_EQ(0, give_up(&first));
			ASSERT_EQ(0, visitor_join(&next));
			EXPECT_EQ(0, first.counted.calls);
			ASSERT_EQ(0, end(&first));
			/*
			 * Destroy cannot distinguish dead waiters from waiters that are about to
			 * leave.
			 */
			if (how != KILLED) {
				ASSERT_EQ(0, way->destroy(memory));
			}
		}
	}
}

static int take_and_stay(const struct way *way, void *object, int *acquired)
{
	if (take(way, object))
		return 1;
	__atomic_store_n(acquired, 1, __ATOMIC_RELEASE);
	stay();
}

/* Whether the object is a lock that has one owner, whose death is reported. */
static bool reports_death(const struct object *object)
{
	return is_robust(object) && maker_can_wait(object) && !object->way->together &&
	       !object->way->has_gate;
}

/*
 * The next waiter has announced an owner that no longer exists. If a woken waiter loses the lock to
 * another thread and gives up, it must wake the next waiter. Otherwise no waiter would have
 * announced the new owner, and the death of that owner would not be reported.
 */
USERLIB_TEST(L6_after_a_waiter_gives_up_the_next_one_announces_the_owner)
{
	const struct object *object;
	void *memory = self->shared;
	int *acquired = self->shared + 4096;
	struct visitor next;
	struct first first;
	pid_t owner;

	for_each_object(object, reports_death(object) && !is_private(object)) {
		const struct way *way = object->way;

		*acquired = 0;
		set_up(&first, object, memory, TOO_LATE);
		ASSERT_EQ(0, way->make(memory, object->kind));
		ASSERT_EQ(0, begin(&first));
		await_all(&first, 1);
		visitor_start(&next, way, memory);
		await_all(&first, 2);
		ASSERT_EQ(0, way->give(memory));
		spin_until(__atomic_load_n(&was_counted, __ATOMIC_ACQUIRE));
		owner = run_in_child(take_and_stay(way, memory, acquired));
		spin_until(__atomic_load_n(acquired, __ATOMIC_ACQUIRE));
		__atomic_store_n(&may_continue, 1, __ATOMIC_RELEASE);
		spin_until(__atomic_load_n(&has_given_up, __ATOMIC_ACQUIRE));
		ASSERT_EQ(ETIMEDOUT, first.result);
		ASSERT_EQ(128 + SIGKILL, kill_child(owner));
		ASSERT_EQ(EOWNERDEAD, visitor_join(&next)) {
			TH_LOG("%s", object->name);
		}
		ASSERT_EQ(0, end(&first));
	}
}

/*
 * Begins a write lock by an operation, which waits for a reader. Another thread then continues the
 * operation.
 */
static int begin_to_write(void *arg)
{
	struct first *first = arg;
	int ret = memwait_rwlock_wrlock_async(first->memory, &first->counted.op);

	__atomic_store_n(&was_counted, ret == EINPROGRESS ? 1 : -1, __ATOMIC_RELEASE);
	/* This thread has closed the gate, and continues to exist. */
	spin_until(__atomic_load_n(&may_continue, __ATOMIC_ACQUIRE));
	return ret;
}

/* Acquires the lock and ends. */
static int acquire_and_end(void *arg)
{
	struct first *first = arg;
	int ret = dispatch_until(first->loop, &first->counted.calls, 1);

	return ret ? ret : first->counted.result;
}

USERLIB_TEST(L6_the_thread_that_continues_an_operation_is_the_owner)
{
	struct first first = { .memory = self->shared, .loop = self->loop };
	memwait_rwlock_t *rwlock = self->shared;
	struct visitor next;
	struct runner beginner;

	first.counted = counted_by(&first.counted, self->loop);
	ASSERT_EQ(0, memwait_rwlock_init(rwlock, MEMWAIT_RWLOCK_ROBUST |
					 MEMWAIT_RWLOCK_PREFER_WRITER));
	ASSERT_EQ(0, memwait_rwlock_rdlock(rwlock));
	may_continue = 0;
	was_counted = 0;
	runner_start(&beginner, begin_to_write, &first);
	spin_until(__atomic_load_n(&was_counted, __ATOMIC_ACQUIRE));
	ASSERT_EQ(1, was_counted);
	/* The next writer waits at the gate, which the first thread owns. */
	visitor_start(&next, &write_way, rwlock);
	spin_until(sleepers_within(rwlock, sizeof(*rwlock), 0) == 2);
	ASSERT_EQ(0, memwait_rwlock_unlock(rwlock));
	EXPECT_EQ(0, elsewhere(acquire_and_end, &first));
	/* The second thread has ended while it held the lock. */
	EXPECT_EQ(EOWNERDEAD, visitor_join(&next));
	__atomic_store_n(&may_continue, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(EINPROGRESS, runner_join(&beginner));
}

/*
 * The woken waiter is an operation of a loop, so it continues to exist. The thread that dispatches
 * the loop becomes the owner. The next waiter must announce that thread, which ends while it holds
 * the lock.
 */
USERLIB_TEST(L6_the_next_waiter_announces_the_thread_that_dispatches)
{
	struct first first = { .memory = self->shared, .loop = self->loop };
	const struct object *object;
	struct visitor next;

	for_each_object(object, reports_death(object)) {
		TH_LOG("%s", object->name);
		first.object = object;
		first.counted = counted_by(&first.counted, self->loop);
		ASSERT_EQ(0, object->way->make(first.memory, object->kind));
		ASSERT_EQ(EINPROGRESS, wait_in_loop(&first));
		visitor_start(&next, object->way, first.memory);
		await_all(&first, 2);
		ASSERT_EQ(0, object->way->give(first.memory));
		ASSERT_EQ(0, elsewhere(acquire_and_end, &first));
		ASSERT_EQ(EOWNERDEAD, visitor_join(&next));
	}
}

static int die_waking(void *barrier)
{
	dies_before_change = true;
	return memwait_barrier_wait(barrier);
}

/*
 * The last participant dies after it has announced that all are present and before it wakes the
 * others. Then a waiter gives up. The next arrival wakes the remaining waiters.
 */
USERLIB_TEST(L7_the_next_arrival_wakes_waiters_of_a_dead_last_one)
{
	struct counted_op first = counted_by(&first, self->loop);
	memwait_barrier_t *barrier = self->shared;
	struct visitor next;

	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 3));
	ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &first.op));
	visitor_start(&next, &barrier_way, barrier);
	spin_until(sleepers_within(barrier, sizeof(*barrier), 0) == 2);
	ASSERT_EQ(128 + SIGKILL, child_status(run_in_child(die_waking(barrier))));
	EXPECT_EQ(2, sleepers_within(barrier, sizeof(*barrier), 0));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
	EXPECT_EQ(0, visitor_join(&next));
	EXPECT_EQ(0, first.calls);
}

/* Arrives at a barrier, sleeps there, and gives up. Returns 0 if it gave up. */
static int arrive_and_give_up(struct first *first)
{
	const struct timespec soon = in_time(CLOCK_MONOTONIC, 10);
	unsigned int kind = first->object->kind;
	int others = sleepers_within(first->memory, OBJECT_SIZE, kind);

	if (first->how == TOO_LATE)
		return barrier_wait_until(first->memory, CLOCK_MONOTONIC, &soon) - ETIMEDOUT;
	if (begin(first))
		return -1;
	await_all(first, others + 1);
	if (first->how == KILLED)
		kill(first->child, SIGKILL);
	return give_up(first);
}

/* The other participants continue to wait, and the barrier takes as many participants as before. */
USERLIB_TEST(L3_a_waiter_that_gives_up_at_a_barrier_has_not_arrived)
{
	const struct sigaction action = { .sa_handler = stop };
	void *memory = self->shared;
	struct visitor visitors[2];
	struct first first;
	int i, how, others, n;

	sigaction(SIGUSR1, &action, NULL);
	for (i = 0; i < (int)ARRAY_SIZE(objects) * WAYS * 2; i++) {
		const struct object *object = &objects[i / 2 / WAYS];

		how = i / 2 % WAYS;
		others = i % 2;
		if (object->way != &barrier_way || !is_possible(object, how))
			continue;
		TH_LOG("%s: %s, %d other", object->name, names[how], others);
		set_up(&first, object, memory, how);
		ASSERT_EQ(0, memwait_barrier_init(memory, object->kind, 2 + others));
		for (n = 0; n <= others; n++) {
			if (n == others) {
				ASSERT_EQ(0, arrive_and_give_up(&first));
			}
			visitor_start(&visitors[n], object->way, memory);
			spin_until(sleepers_within(memory, OBJECT_SIZE, object->kind) == n + 1 ||
				   runner_is_done(&visitors[n].runner));
			ASSERT_FALSE(runner_is_done(&visitors[n].runner));
		}
		ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(memory));
		for (n = 0; n <= others; n++)
			ASSERT_EQ(0, visitor_join(&visitors[n]));
		EXPECT_EQ(0, first.counted.calls);
		if (how != TOO_LATE) {
			ASSERT_EQ(0, end(&first));
		}
		if (how != KILLED) {
			ASSERT_EQ(0, object->way->destroy(memory));
		}
	}
}

static int arrive_last_and_stall(void *barrier)
{
	stalls = true;
	return memwait_barrier_wait(barrier);
}

/*
 * The last participant has found that all are present. Then the first participant gives up, and the
 * round is not complete.
 */
USERLIB_TEST(L3_giving_up_after_the_last_arrival_counts_as_not_arrived)
{
	memwait_barrier_t *barrier = self->shared;
	struct timespec time;
	struct first first;
	struct runner last;
	int i, ret;
	long ms;

	for (i = 0; i < (int)ARRAY_SIZE(objects) * 2; i++) {
		const unsigned int kind = objects[i / 2].kind;

		if (objects[i / 2].way != &barrier_way)
			continue;
		set_up(&first, &objects[i / 2], barrier, OP_CANCELLED);
		first.counted = counted_by(&first.counted, self->loop);
		ASSERT_EQ(0, memwait_barrier_init(barrier, kind, 2));
		/* The loop detects the deadline only when it runs. */
		for (ms = 10, ret = ETIMEDOUT; ret == ETIMEDOUT; ms *= 2) {
			time = in_time(CLOCK_MONOTONIC, ms);
			ret = i % 2 ? memwait_barrier_wait_async(barrier, &first.counted.op) :
				      memwait_barrier_clockwait_async(barrier, CLOCK_MONOTONIC,
								      &time, &first.counted.op);
		}
		ASSERT_EQ(EINPROGRESS, ret);
		runner_start(&last, arrive_last_and_stall, barrier);
		spin_until(__atomic_load_n(&was_counted, __ATOMIC_ACQUIRE));
		if (i % 2) {
			ASSERT_EQ(0, memwait_op_cancel(&first.counted.op));
		} else {
			ASSERT_EQ(0, dispatch_until(self->loop, &first.counted.calls, 1));
			ASSERT_EQ(ETIMEDOUT, first.counted.result);
		}
		__atomic_store_n(&may_continue, 1, __ATOMIC_RELEASE);
		spin_until(sleepers_within(barrier, sizeof(*barrier), kind) == 1 ||
			   runner_is_done(&last));
		ASSERT_FALSE(runner_is_done(&last));
		ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
		ASSERT_EQ(0, runner_join(&last));
		ASSERT_EQ(0, memwait_barrier_destroy(barrier));
	}
}

static int destroy(void *arg)
{
	struct first *first = arg;

	is_destroyer = true;
	return first->object->way->destroy(first->memory);
}

/* The last waiter to leave must wake destroy. Destroy also checks by itself once a second. */
USERLIB_TEST(L8_the_last_waiter_to_leave_wakes_destroy)
{
	const struct object *object;
	void *memory = self->shared;
	struct runner destroyer;
	struct first first;
	int round;

	for_each_object(object, object->way->wakes_destroy) {
		was_woken = 0;
		/*
		 * On a very slow machine the waiter may leave during that check. The test therefore
		 * makes several attempts.
		 */
		for (round = 0; round < 5 && !was_woken; round++) {
			set_up(&first, object, memory, LINGERS);
			may_end = 1;
			ASSERT_EQ(0, object->way->make(memory, object->kind));
			runner_start(&first.runner, wait_first, &first);
			await_all(&first, 1);
			ASSERT_EQ(0, object->way->give(memory));
			spin_until(__atomic_load_n(&was_counted, __ATOMIC_ACQUIRE));
			runner_start(&destroyer, destroy, &first);
			await_all(&first, 1);
			__atomic_store_n(&may_continue, 1, __ATOMIC_RELEASE);
			EXPECT_EQ(0, runner_join(&destroyer));
			EXPECT_EQ(0, runner_join(&first.runner));
		}
		EXPECT_NE(0, was_woken) {
			TH_LOG("%s", object->name);
		}
	}
}

TEST_HARNESS_MAIN
