// SPDX-License-Identifier: GPL-2.0
/*
 * Broadcasts, and the time between a wake-up and the lock of the mutex. The first word of a mutex
 * is its state, and that of a condition variable is its sequence.
 */
#include "cond_test.h"
#include "ioctl_test.h"
#include <sys/resource.h>

/* Set in a thread that is stalled in a signal or broadcast after it has woken the waiters. */
static __thread int *stalls;

static int intercept(int fd, unsigned long request, void *argument)
{
	int ret = ioctl_of_kernel(fd, request, argument);

	if (stalls && ret >= 0 && request != MEMWAIT_IOC_OWNER) {
		__atomic_store_n(stalls, 1, __ATOMIC_RELEASE);
		spin_until(__atomic_load_n(stalls, __ATOMIC_ACQUIRE) == 2);
		stalls = NULL;
	}
	return ret;
}

/*
 * After the broadcast no waiter for the condition remains, regardless of which thread holds the
 * mutex.
 */
USERLIB_TEST(R5_broadcast_wakes_threads_and_operations)
{
	static const unsigned int kinds[] = {
		MEMWAIT_MUTEX_NORMAL, MEMWAIT_MUTEX_ERRORCHECK, MEMWAIT_MUTEX_FAIR,
		MEMWAIT_MUTEX_ROBUST, MEMWAIT_PRIVATE, MEMWAIT_PRIVATE | MEMWAIT_MUTEX_FAIR,
	};
	struct monitor *monitor = self->shared;
	struct queued line[LINE];
	unsigned int flags;
	size_t round;
	bool locked;
	int i;

	for (round = 0; round < 2 * ARRAY_SIZE(kinds); round++) {
		monitor_init(monitor, kinds[round / 2]);
		flags = kinds[round / 2] & MEMWAIT_PRIVATE;
		locked = round % 2;
		ASSERT_EQ(0, memwait_cond_init(&monitor->cond, flags));
		for (i = 0; i < LINE; i++) {
			line[i] = (struct queued){ .monitor = monitor, .number = i };
			if (i % 2) {
				runner_start(&line[i].runner, wait_in_queue, &line[i]);
			} else {
				ASSERT_EQ(EINPROGRESS, queue_by_loop(&line[i], self->loop));
			}
			await_waiters(self->fd, &monitor->cond, MEMWAIT_SIZE_U64 | flags, i + 1);
		}
		if (locked)
			ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		EXPECT_EQ(0, memwait_waiters(&monitor->cond, flags));
		EXPECT_TRUE(mw_readable(memwait_loop_fd(self->loop)));
		if (locked) {
			EXPECT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
			await_waiters(self->fd, sleep_word(&monitor->mutex, kinds[round / 2]),
				      flags, LINE);
			EXPECT_EQ(0, monitor->n_order);
			ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		}
		/* The threads may be queued behind an operation that holds the mutex. */
		for (i = 0; i < LINE; i += 2) {
			ASSERT_EQ(0, dispatch_until(self->loop, &line[i].called, 1));
			EXPECT_EQ(0, line[i].result);
		}
		for (i = 1; i < LINE; i += 2)
			EXPECT_EQ(0, runner_join(&line[i].runner));
		EXPECT_EQ(LINE, monitor->n_order);
		EXPECT_EQ(0, monitor->violations);
		EXPECT_EQ(0, memwait_waiters(sleep_word(&monitor->mutex, kinds[round / 2]), flags));
		EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
}

/* Neither the broadcaster nor any other thread holds the mutex. */
USERLIB_TEST(R5_broadcast_without_the_mutex_wakes_all)
{
	struct monitor *monitor = self->shared;
	struct runner runners[6];
	int round, i;

	monitor_init(monitor, 0);
	for (round = 0; more_rounds(round, ROUNDS / 10); round++) {
		for (i = 0; i < 6; i++)
			runner_start(&runners[i], take_ticket, monitor);
		if (round % 2)
			await_sleeping(self->fd, monitor, 6);
		give_tickets(monitor, 6);
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		for (i = 0; i < 6; i++)
			ASSERT_EQ(0, runner_join(&runners[i]));
	}
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

struct signaller {
	struct monitor *monitor;
	int (*signal)(memwait_cond_t *cond);
	int still;
};

static int signal_and_stall(void *arg)
{
	struct signaller *signaller = arg;

	stalls = &signaller->still;
	return signaller->signal(&signaller->monitor->cond);
}

/*
 * The mutex is also used without the condition variable, so a woken waiter may destroy it. After
 * the wake-up, the thread that signals must not access the mutex.
 */
USERLIB_TEST(L8_the_mutex_is_destroyed_during_the_broadcast)
{
	struct monitor *monitor = self->shared;
	struct signaller signaller = { .monitor = monitor };
	struct runner waiter, within;
	memwait_mutex_t freed;
	unsigned int flags;
	int round;

	memset(&freed, 1, sizeof(freed));
	for (round = 0; round < 8; round++) {
		flags = round & 1 ? MEMWAIT_PRIVATE : 0;
		signaller.signal = round & 2 ? memwait_cond_broadcast : memwait_cond_signal;
		signaller.still = 0;
		monitor_init(monitor, flags);
		ASSERT_EQ(0, memwait_cond_init(&monitor->cond, flags));
		runner_start(&waiter, take_ticket, monitor);
		await_waiters(self->fd, &monitor->cond, MEMWAIT_SIZE_U64 | flags, 1);
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		monitor->tickets = 1;
		if (round & 4)
			ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		runner_start(&within, signal_and_stall, &signaller);
		spin_until(__atomic_load_n(&signaller.still, __ATOMIC_ACQUIRE));
		if (!(round & 4))
			ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		EXPECT_EQ(0, runner_join(&waiter));
		EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
		monitor->mutex = freed;
		__atomic_store_n(&signaller.still, 2, __ATOMIC_RELEASE);
		EXPECT_EQ(0, runner_join(&within));
		EXPECT_EQ(0, memcmp(&monitor->mutex, &freed, sizeof(freed)));
		EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
	}
}

struct killer {
	struct monitor *monitor;
	pid_t victim;
};

/*
 * The function of the first woken waiter, which runs before the broadcaster continues and kills the
 * broadcaster.
 */
static int wait_and_kill(void *arg)
{
	struct killer *killer = arg;
	struct monitor *monitor = killer->monitor;
	int err;

	if (pin(20))
		return -1;
	err = memwait_mutex_lock(&monitor->mutex);
	if (!err)
		err = memwait_cond_wait(&monitor->cond, &monitor->mutex);
	kill(killer->victim, SIGKILL);
	return err ? err : memwait_mutex_unlock(&monitor->mutex);
}

/* Number of waiters: more than one step wakes (MEMWAIT_STEP_WAKES). */
#define CROWD	300

USERLIB_TEST(L7_a_broadcaster_that_is_killed_has_woken_all)
{
	struct monitor *monitor = self->shared;
	struct killer killer = { .monitor = monitor };
	struct queued *crowd = calloc(CROWD, sizeof(*crowd));
	int *go = shared_page(4096), i;
	struct runner runner;

	ASSERT_NE(NULL, crowd);
	monitor_init(monitor, 0);
	killer.victim = fork_child();
	if (!killer.victim) {
		if (pin(0))
			_exit(1);
		spin_until(__atomic_load_n(go, __ATOMIC_ACQUIRE));
		_exit(memwait_cond_broadcast(&monitor->cond));
	}
	runner_start(&runner, wait_and_kill, &killer);
	await_sleeping(self->fd, monitor, 1);
	for (i = 0; i < CROWD; i++) {
		crowd[i] = (struct queued){ .monitor = monitor, .number = i };
		ASSERT_EQ(EINPROGRESS, queue_by_loop(&crowd[i], self->loop));
	}
	__atomic_store_n(go, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(128 + SIGKILL, child_status(killer.victim));
	EXPECT_EQ(0, runner_join(&runner));
	ASSERT_EQ(0, memwait_waiters(&monitor->cond, 0));
	for (i = 0; i < CROWD; i++)
		ASSERT_EQ(0, dispatch_until(self->loop, &crowd[i].called, 1));
	EXPECT_EQ(0, monitor->violations);
	munmap(go, 4096);
	free(crowd);
}

static int wait_in_queue_until(void *arg)
{
	struct queued *queued = arg;
	struct monitor *monitor = queued->monitor;
	int err;

	must(memwait_mutex_lock(&monitor->mutex));
	monitor->waiting++;
	err = memwait_cond_clockwait(&monitor->cond, &monitor->mutex, CLOCK_MONOTONIC,
				     &queued->time);
	leave_queue(queued);
	memwait_mutex_unlock(&monitor->mutex);
	return err;
}

/* The deadline applies only to the wait for the condition, which ended before the deadline. */
USERLIB_TEST(L11_a_deadline_in_the_wait_for_the_mutex_is_no_timeout)
{
	struct monitor *monitor = self->shared;
	struct queued thread, op;
	uint64_t deadline;
	long ms = 100;

	/* Repeat with a later deadline until both waiters are woken before their deadlines. */
	do {
		ms *= 2;
		monitor_init(monitor, 0);
		thread = (struct queued){ .monitor = monitor };
		thread.time = in_time(CLOCK_MONOTONIC, ms);
		deadline = (uint64_t)thread.time.tv_sec * NSEC_PER_SEC + thread.time.tv_nsec;
		op = (struct queued){ .monitor = monitor };
		memwait_op_init(&op.op, self->loop, called_from_queue, &op);
		runner_start(&thread.runner, wait_in_queue_until, &thread);
		await_waiters_or_done(self->fd, &monitor->cond, U32_SIZE, 1,
				      &thread.runner.done);
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		ASSERT_EQ(EINPROGRESS,
			  memwait_cond_clockwait_async(&monitor->cond, &monitor->mutex,
						       CLOCK_MONOTONIC, &thread.time, &op.op));
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		if (now_ns(CLOCK_MONOTONIC) < deadline)
			break;
		ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		ASSERT_EQ(0, dispatch_until(self->loop, &op.called, 1));
		runner_join(&thread.runner);
	} while (true);

	/*
	 * Both waiters have left the condition variable and sleep on the mutex without a deadline.
	 */
	spin_until(mw_readable(memwait_loop_fd(self->loop)));
	EXPECT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	spin_until(now_ns(CLOCK_MONOTONIC) >= deadline);
	await_waiters(self->fd, &monitor->mutex, U32_SIZE, 2);
	ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	/* The first waiter unlocks the mutex, so that the other waiter continues. */
	ASSERT_EQ(0, dispatch_until(self->loop, &op.called, 1));
	EXPECT_EQ(0, op.result);
	EXPECT_EQ(0, runner_join(&thread.runner));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

/* Without a new broadcast a timeout is reported, whatever the value of the sequence is. */
USERLIB_TEST(L11_a_timeout_after_an_old_broadcast_is_reported)
{
	struct monitor *monitor = self->shared;
	struct timespec time;
	struct runner runner;

	monitor_init(monitor, 0);
	runner_start(&runner, take_ticket, monitor);
	await_sleeping(self->fd, monitor, 1);
	give_tickets(monitor, 1);
	ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
	EXPECT_EQ(0, runner_join(&runner));
	ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
	time = in_time(CLOCK_MONOTONIC, 5);
	EXPECT_EQ(ETIMEDOUT, memwait_cond_clockwait(&monitor->cond, &monitor->mutex,
						    CLOCK_MONOTONIC, &time));
	ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

/* A waiter that must not get the mutex before the holder has released it. */
struct deprived {
	struct monitor *monitor;
	struct runner runner;
	int released;		/* set by the holder; protected by the mutex */
	int is_next;
	int over;
};

static void has_mutex(void *arg)
{
	struct deprived *deprived = arg;

	deprived->is_next = deprived->released;
	memwait_mutex_unlock(&deprived->monitor->mutex);
	__atomic_store_n(&deprived->over, 1, __ATOMIC_RELEASE);
}

static int wait_deprived(void *arg)
{
	struct deprived *deprived = arg;
	struct monitor *monitor = deprived->monitor;
	int err = memwait_mutex_lock(&monitor->mutex);

	pthread_cleanup_push(has_mutex, deprived);
	if (!err)
		err = memwait_cond_wait(&monitor->cond, &monitor->mutex);
	pthread_cleanup_pop(1);
	return err;
}

/* Closes the descriptors that the library has opened for the process. */
static int close_device_but(int fd, int loop)
{
	char path[64], name[64];
	int i, closed = 0;

	for (i = 3; i < 1024; i++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", i);
		memset(name, 0, sizeof(name));
		if (i == fd || i == loop || readlink(path, name, sizeof(name) - 1) < 0)
			continue;
		if (!strcmp(name, "/dev/memwait") && !close(i))
			closed++;
	}
	return closed;
}

/* Returns how often a thread has gone to sleep, from its status in /proc. */
static long times_asleep(int status)
{
	static const char name[] = "\nvoluntary_ctxt_switches:";
	char text[4096] = { 0 };
	const char *line;

	if (pread(status, text, sizeof(text) - 1, 0) <= 0)
		return -1;
	line = strstr(text, name);
	return line ? atol(line + sizeof(name) - 1) : -1;
}

static void *exit_thread(void *arg)
{
	pthread_exit(arg);
}

/*
 * The wait must always reacquire the mutex. Here the program has closed the device and has no
 * descriptor left, and the wait ends with a notify or a cancel.
 */
USERLIB_TEST(L5_a_waiter_that_cannot_sleep_on_the_mutex_gets_it)
{
	struct monitor *monitor = self->shared;
	struct deprived deprived;
	struct rlimit limit, none;
	pthread_t thread;
	char path[64];
	int cancel, status;
	long before;

	/* Make the C library open the files that it needs to unwind stacks. */
	ASSERT_EQ(0, pthread_create(&thread, NULL, exit_thread, NULL));
	pthread_join(thread, NULL);
	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
	none = limit;
	none.rlim_cur = 0;
	for (cancel = 0; cancel < 2; cancel++) {
		monitor_init(monitor, 0);
		deprived = (struct deprived){ .monitor = monitor };
		runner_start(&deprived.runner, wait_deprived, &deprived);
		await_sleeping(self->fd, monitor, 1);
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		snprintf(path, sizeof(path), "/proc/self/task/%d/status", deprived.runner.tid);
		status = open(path, O_RDONLY);
		ASSERT_LE(0, status);
		ASSERT_EQ(1, close_device_but(self->fd, memwait_loop_fd(self->loop)));
		ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
		before = times_asleep(status);
		ASSERT_LE(0, before);
		if (cancel) {
			ASSERT_EQ(0, pthread_cancel(deprived.runner.thread));
		} else {
			ASSERT_EQ(1, mw_notify(self->fd, &monitor->cond, 1, MEMWAIT_SIZE_U64));
		}
		while (!__atomic_load_n(&deprived.over, __ATOMIC_ACQUIRE) &&
		       times_asleep(status) < before + 3)
			before_next_look();
		ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
		close(status);
		EXPECT_EQ(0, __atomic_load_n(&deprived.over, __ATOMIC_ACQUIRE));
		deprived.released = 1;
		ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		pthread_join(deprived.runner.thread, NULL);
		EXPECT_EQ(1, deprived.is_next);
		if (!cancel)
			EXPECT_EQ(0, deprived.runner.result);
		EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
}

/*
 * POSIX: the condition variable can be destroyed when no thread is blocked on it, even if the woken
 * threads must still acquire the mutex.
 */
USERLIB_TEST(L8_destroy_after_broadcast_with_the_mutex_locked)
{
	struct monitor *monitor = self->shared;
	struct runner runners[3];
	int i;

	monitor_init(monitor, 0);
	for (i = 0; i < 3; i++)
		runner_start(&runners[i], take_ticket, monitor);
	await_sleeping(self->fd, monitor, 3);
	ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
	monitor->tickets = 3;
	ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
	ASSERT_EQ(0, memwait_cond_destroy(&monitor->cond));
	memset(&monitor->cond, 0xa5, sizeof(monitor->cond));
	await_waiters(self->fd, &monitor->mutex, U32_SIZE, 3);
	ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, runner_join(&runners[i]));
	for (i = 0; i < (int)sizeof(monitor->cond); i++)
		ASSERT_EQ(0xa5, ((unsigned char *)&monitor->cond)[i]);
}

/*
 * If one of several woken processes is killed before it locks the mutex, its wake-up passes to the
 * next process.
 */
USERLIB_TEST(L7_a_killed_woken_process_loses_no_unlock)
{
	struct monitor *monitor = self->shared;
	struct runner behind;
	pid_t child;
	int round;

	for (round = 0; round < 10; round++) {
		monitor_init(monitor, 0);
		child = run_in_child(take_ticket(monitor));
		await_sleeping(self->fd, monitor, 1);
		runner_start(&behind, take_ticket, monitor);
		await_sleeping(self->fd, monitor, 2);
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		monitor->tickets = 1;
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		await_waiters(self->fd, &monitor->mutex, U32_SIZE, 2);
		ASSERT_EQ(128 + SIGKILL, kill_child(child));
		ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		ASSERT_EQ(0, runner_join(&behind));
	}
}

TEST_HARNESS_MAIN
