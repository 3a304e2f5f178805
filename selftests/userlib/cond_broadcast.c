// SPDX-License-Identifier: GPL-2.0
/* Broadcasts that move. The mutex's word is its first, as the sequence is that of the condition. */
#include "cond_test.h"
#include <sys/resource.h>

static int sleepers_of_mutex(struct monitor *monitor)
{
	return memwait_waiters(&monitor->mutex, 0);
}

USERLIB_TEST(R17_broadcast_moves_threads_and_operations_to_the_mutex)
{
	static const unsigned int kinds[] = { 0, MEMWAIT_MUTEX_ERRORCHECK };
	struct monitor *monitor = self->shared;
	struct standing line[LINE];
	int kind, i;

	for (kind = 0; kind < 2; kind++) {
		monitor_init(monitor, kinds[kind]);
		for (i = 0; i < LINE; i++) {
			line[i] = (struct standing){ .monitor = monitor, .number = i };
			if (i % 2) {
				runner_start(&line[i].runner, stand_in_line, &line[i]);
			} else {
				ASSERT_EQ(EINPROGRESS, stand_with_loop(&line[i], self->loop));
			}
			await_sleeping(self->fd, monitor, i + 1);
		}
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		EXPECT_EQ(0, memwait_waiters(&monitor->cond, 0));
		EXPECT_EQ(LINE, sleepers_of_mutex(monitor));
		EXPECT_EQ(0, monitor->n_order);
		ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		for (i = 0; i < LINE; i++) {
			if (i % 2) {
				EXPECT_EQ(0, runner_join(&line[i].runner));
			} else {
				ASSERT_EQ(0, dispatch_until(self->loop, &line[i].called, 1));
			}
		}
		/* Nobody was barged, as nobody else came: they went in their order. */
		ASSERT_EQ(LINE, monitor->n_order);
		for (i = 0; i < LINE; i++)
			EXPECT_EQ(i, monitor->order[i]);
		EXPECT_EQ(0, monitor->violations);
		EXPECT_EQ(0, sleepers_of_mutex(monitor));
		EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
}

/* Without the mutex, which nobody has: somebody must be woken all the same. */
USERLIB_TEST(R17_broadcast_without_the_mutex_wakes_all_in_the_end)
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

/* Nobody's unlock is to come: who was moved would be woken in a chain. */
USERLIB_TEST(R17_broadcast_with_the_mutex_free_moves_nobody)
{
	struct monitor *monitor = self->shared;
	struct standing line[LINE];
	int i;

	monitor_init(monitor, 0);
	for (i = 0; i < LINE; i++) {
		line[i] = (struct standing){ .monitor = monitor, .number = i };
		ASSERT_EQ(EINPROGRESS, stand_with_loop(&line[i], self->loop));
	}
	ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
	EXPECT_EQ(0, memwait_waiters(&monitor->cond, 0));
	EXPECT_EQ(0, sleepers_of_mutex(monitor));
	for (i = 0; i < LINE; i++)
		ASSERT_EQ(0, dispatch_until(self->loop, &line[i].called, 1));
	EXPECT_EQ(LINE, monitor->n_order);
	EXPECT_EQ(0, monitor->violations);
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
	EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
}

/* Another page, and a fair mutex: who was moved there could not tell whether it has the lock. */
USERLIB_TEST(R17_broadcast_wakes_all_where_it_cannot_move_them)
{
	struct monitor *monitor = self->shared;
	memwait_cond_t *cond = (void *)((char *)self->shared + 4096);
	struct standing standing = { .monitor = monitor };
	struct runner runners[3];
	int i;

	monitor_init(monitor, MEMWAIT_MUTEX_FAIR);
	for (i = 0; i < 3; i++)
		runner_start(&runners[i], take_ticket, monitor);
	await_sleeping(self->fd, monitor, 3);
	ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
	monitor->tickets = 3;
	ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
	EXPECT_EQ(0, memwait_waiters(&monitor->cond, 0));
	await_waiters(self->fd, sleep_word(&monitor->mutex, MEMWAIT_MUTEX_FAIR), 0, 3);
	ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));

	monitor_init(monitor, 0);
	memwait_op_init(&standing.op, self->loop, called_from_line, &standing);
	ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
	ASSERT_EQ(EINPROGRESS, memwait_cond_wait_async(cond, &monitor->mutex, &standing.op));
	ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
	ASSERT_EQ(0, memwait_cond_broadcast(cond));
	EXPECT_EQ(0, sleepers_of_mutex(monitor));
	EXPECT_EQ(true, mw_readable(memwait_loop_fd(self->loop)));
	ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	ASSERT_EQ(0, dispatch_until(self->loop, &standing.called, 1));
	EXPECT_EQ(0, standing.result);
	EXPECT_EQ(0, memwait_cond_destroy(cond));
}

static int stand_until(void *arg)
{
	struct standing *standing = arg;
	struct monitor *monitor = standing->monitor;
	int err;

	must(memwait_mutex_lock(&monitor->mutex));
	monitor->waiting++;
	err = memwait_cond_clockwait(&monitor->cond, &monitor->mutex, CLOCK_MONOTONIC,
				     &standing->time);
	leave_line(standing);
	memwait_mutex_unlock(&monitor->mutex);
	return err;
}

/* The deadline is that of the condition, and it has come in time. */
USERLIB_TEST(L11_a_deadline_that_passes_in_the_wait_for_the_mutex_is_no_time_out)
{
	struct monitor *monitor = self->shared;
	struct standing thread, op;
	uint64_t deadline;
	long ms = 100;
	int ret;

	/* Again, with a later one, until both wait and are moved before their deadline. */
	do {
		ms *= 2;
		monitor_init(monitor, 0);
		thread = (struct standing){ .monitor = monitor };
		thread.time = in_time(CLOCK_MONOTONIC, ms);
		deadline = (uint64_t)thread.time.tv_sec * NSEC_PER_SEC + thread.time.tv_nsec;
		op = (struct standing){ .monitor = monitor };
		memwait_op_init(&op.op, self->loop, called_from_line, &op);
		runner_start(&thread.runner, stand_until, &thread);
		await_waiters_or_done(self->fd, &monitor->cond, U32_SIZE, 1,
				      &thread.runner.done);
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		ret = memwait_cond_clockwait_async(&monitor->cond, &monitor->mutex,
						   CLOCK_MONOTONIC, &thread.time, &op.op);
		if (ret == EINPROGRESS) {
			ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		} else {
			ASSERT_EQ(ETIMEDOUT, ret);
		}
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		if (ret == EINPROGRESS && now_ns(CLOCK_MONOTONIC) < deadline)
			break;
		ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		if (ret == EINPROGRESS) {
			ASSERT_EQ(0, dispatch_until(self->loop, &op.called, 1));
		}
		runner_join(&thread.runner);
	} while (true);

	/* Both leave the mutex's word when their time has come, and sleep on it without one. */
	spin_until(mw_readable(memwait_loop_fd(self->loop)));
	EXPECT_LE(0, memwait_loop_dispatch(self->loop));
	spin_until(now_ns(CLOCK_MONOTONIC) >= deadline);
	await_waiters(self->fd, &monitor->mutex, U32_SIZE, 2);
	ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	/* Whichever of them is first lets the other go on. */
	ASSERT_EQ(0, dispatch_until(self->loop, &op.called, 1));
	EXPECT_EQ(0, op.result);
	EXPECT_EQ(0, runner_join(&thread.runner));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

/* And with nobody to broadcast a time-out is one, however the sequence stands. */
USERLIB_TEST(L11_a_time_out_after_an_old_broadcast_is_one)
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

/* A thread that waits, and is to have the mutex after whoever held it meanwhile. */
struct deprived {
	struct monitor *monitor;
	struct runner runner;
	int released;		/* by the one who held it; protected by the mutex */
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

/* Closes what the library has opened for the process. */
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

/* How often a thread has gone to sleep, from its status in /proc. */
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
 * The mutex is locked again, come what may: here by one that is notified, and by one that is
 * cancelled, after the program has closed the device, and while there is no descriptor left.
 */
USERLIB_TEST(L5_who_cannot_sleep_on_the_mutex_gets_it_nevertheless)
{
	struct monitor *monitor = self->shared;
	struct deprived deprived;
	struct rlimit limit, none;
	pthread_t thread;
	char path[64];
	int cancel, status;
	long before;

	/* So that the C library has opened what it unwinds stacks with. */
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

/* L3: a moved operation that is cancelled, before and after an unlock has come to it. */
USERLIB_TEST(L3_a_moved_operation_is_cancelled)
{
	struct monitor *monitor = self->shared;
	struct standing standing = { .monitor = monitor };
	struct runner runner;
	int counted;

	for (counted = 0; counted < 2; counted++) {
		monitor_init(monitor, 0);
		ASSERT_EQ(EINPROGRESS, stand_with_loop(&standing, self->loop));
		runner_start(&runner, take_ticket, monitor);
		await_sleeping(self->fd, monitor, 2);
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		monitor->tickets = 1;
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		ASSERT_EQ(2, sleepers_of_mutex(monitor));
		if (counted)
			ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		ASSERT_EQ(0, memwait_op_cancel(&standing.op));
		if (!counted)
			ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		EXPECT_EQ(0, runner_join(&runner));
		EXPECT_EQ(0, standing.called);
		EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
}

/* L5: cancelled while it stands with the mutex; the one behind it gets its unlock. */
USERLIB_TEST(L5_a_moved_thread_is_cancelled)
{
	struct monitor *monitor = self->shared;
	struct runner runner, behind;
	int round;

	for (round = 0; round < 20; round++) {
		monitor_init(monitor, MEMWAIT_MUTEX_ERRORCHECK);
		runner_start(&runner, wait_to_be_cancelled, monitor);
		await_sleeping(self->fd, monitor, 1);
		runner_start(&behind, take_ticket, monitor);
		await_sleeping(self->fd, monitor, 2);
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		monitor->tickets = 1;
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		ASSERT_EQ(2, sleepers_of_mutex(monitor));
		if (round % 2)
			pthread_cancel(runner.thread);
		ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		if (round % 2 == 0)
			pthread_cancel(runner.thread);
		pthread_join(runner.thread, NULL);
		if (runner.done) {
			/* It was faster, and has taken the ticket: here is one for the other. */
			give_tickets(monitor, 1);
			ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		} else {
			ASSERT_EQ(1, monitor->locked_in_handler);
		}
		ASSERT_EQ(0, runner_join(&behind));
		EXPECT_EQ(0, monitor->tickets);
		EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
}

/* POSIX: nobody is blocked on it any more. That they have to get the mutex first is no matter. */
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
	ASSERT_EQ(3, sleepers_of_mutex(monitor));
	ASSERT_EQ(0, memwait_cond_destroy(&monitor->cond));
	memset(&monitor->cond, 0xa5, sizeof(monitor->cond));
	ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, runner_join(&runners[i]));
	for (i = 0; i < (int)sizeof(monitor->cond); i++)
		ASSERT_EQ(0xa5, ((unsigned char *)&monitor->cond)[i]);
}

/* One of several processes that were moved is killed: the unlock that was for it goes on. */
USERLIB_TEST(L7_a_moved_process_that_is_killed_swallows_no_unlock)
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
		ASSERT_EQ(2, sleepers_of_mutex(monitor));
		ASSERT_EQ(128 + SIGKILL, kill_child(child));
		EXPECT_EQ(1, sleepers_of_mutex(monitor));
		ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		ASSERT_EQ(0, runner_join(&behind));
	}
}

/*
 * Mutexes of the same page that take turns with one condition variable: none is moved to where it
 * does not wait, and once there has been a second mutex, all are woken.
 */
USERLIB_TEST(R17_broadcast_moves_until_there_is_a_second_mutex)
{
	struct monitor *monitor = self->shared;
	memwait_mutex_t *other = (void *)(monitor + 1);
	struct standing standing = { .monitor = monitor };
	int round;

	monitor_init(monitor, 0);
	ASSERT_EQ(0, memwait_mutex_init(other, 0));
	for (round = 0; round < 6; round++) {
		memwait_mutex_t *mutex = round % 2 ? other : &monitor->mutex;

		standing.called = 0;
		standing.flag = 0;
		memwait_op_init(&standing.op, self->loop, called_from_line, &standing);
		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		ASSERT_EQ(EINPROGRESS,
			  memwait_cond_wait_async(&monitor->cond, mutex, &standing.op));
		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		EXPECT_EQ(!round, memwait_waiters(mutex, 0));
		EXPECT_EQ(0, memwait_waiters(round % 2 ? &monitor->mutex : other, 0));
		EXPECT_EQ(0, memwait_waiters(&monitor->cond, 0));
		EXPECT_EQ(!!round, mw_readable(memwait_loop_fd(self->loop)));
		ASSERT_EQ(0, memwait_op_cancel(&standing.op));
		EXPECT_EQ(0, memwait_waiters(mutex, 0));
		ASSERT_EQ(0, memwait_mutex_unlock(mutex));
	}
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

struct visit {
	struct monitor *monitor;
	memwait_mutex_t *mutex;
};

static int wait_with_another_mutex(void *arg)
{
	struct visit *visit = arg;
	int err = memwait_mutex_lock(visit->mutex);

	if (!err)
		err = memwait_cond_wait(&visit->monitor->cond, visit->mutex);
	return err ? err : memwait_mutex_unlock(visit->mutex);
}

/* Nobody is blocked on it; but those that were moved sleep still, and another mutex was used. */
USERLIB_TEST(L8_destroy_after_broadcast_and_a_wait_with_another_mutex)
{
	struct monitor *monitor = self->shared;
	struct visit visit = { .monitor = monitor, .mutex = (void *)(monitor + 1) };
	struct runner runners[2], visitor;
	int i;

	monitor_init(monitor, 0);
	ASSERT_EQ(0, memwait_mutex_init(visit.mutex, 0));
	for (i = 0; i < 2; i++)
		runner_start(&runners[i], take_ticket, monitor);
	await_sleeping(self->fd, monitor, 2);
	ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
	monitor->tickets = 2;
	ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
	ASSERT_EQ(2, sleepers_of_mutex(monitor));
	runner_start(&visitor, wait_with_another_mutex, &visit);
	await_sleeping(self->fd, monitor, 1);
	ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
	ASSERT_EQ(0, runner_join(&visitor));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
	EXPECT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
}

TEST_HARNESS_MAIN
