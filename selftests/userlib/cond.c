// SPDX-License-Identifier: GPL-2.0
/* Condition variables: signals are neither lost nor stolen, for threads and for operations. */
#include "cond_test.h"

USERLIB_TEST(R5_signal_wakes_one_and_broadcast_all)
{
	struct monitor *monitor = self->shared;
	struct runner runners[6];
	int i, left;

	monitor_init(monitor, 0);
	for (i = 0; i < 6; i++)
		runner_start(&runners[i], take_ticket, monitor);
	await_sleeping(self->fd, monitor, 6);
	EXPECT_EQ(EBUSY, memwait_cond_destroy(&monitor->cond));
	give_tickets(monitor, 6);
	ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
	await_sleeping(self->fd, monitor, 5);
	ASSERT_EQ(0, memwait_cond_notify(&monitor->cond, 2));
	await_sleeping(self->fd, monitor, 3);
	ASSERT_EQ(0, memwait_cond_notify(&monitor->cond, 0));
	EXPECT_EQ(3, memwait_waiters(&monitor->cond, 0));
	ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
	for (i = 0; i < 6; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
	left = monitor->tickets;
	EXPECT_EQ(0, left);
	EXPECT_EQ(6, monitor->taken);
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

USERLIB_TEST(R13_calls_without_waiters_have_no_effect)
{
	memwait_cond_t *cond = self->shared;

	EXPECT_EQ(0, memwait_cond_signal(cond));
	EXPECT_EQ(0, memwait_cond_broadcast(cond));
	EXPECT_EQ(0, memwait_cond_destroy(cond));
	EXPECT_EQ(EINVAL, memwait_cond_init(cond, 2));
	EXPECT_EQ(EINVAL, memwait_cond_init(NULL, 0));
	EXPECT_EQ(EINVAL, memwait_cond_signal(NULL));
	EXPECT_EQ(EINVAL, memwait_cond_broadcast(NULL));
	EXPECT_EQ(EINVAL, memwait_cond_destroy(NULL));
	EXPECT_EQ(EINVAL, memwait_cond_wait(cond, NULL));
	EXPECT_EQ(EINVAL, memwait_cond_wait(NULL, NULL));
	EXPECT_EQ(EINVAL, memwait_cond_wait_async(cond, NULL, NULL));
}

USERLIB_TEST(L0_the_mutex_must_be_locked)
{
	struct monitor *monitor = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);

	monitor_init(monitor, 0);
	EXPECT_EQ(EPERM, memwait_cond_wait(&monitor->cond, &monitor->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait_async(&monitor->cond, &monitor->mutex, &counted.op));
	monitor_init(monitor, MEMWAIT_MUTEX_ERRORCHECK);
	EXPECT_EQ(EPERM, memwait_cond_wait(&monitor->cond, &monitor->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait_async(&monitor->cond, &monitor->mutex, &counted.op));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

USERLIB_TEST(R4_waits_that_time_out_hold_the_mutex)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct monitor *monitor = self->shared;
	struct timespec time;
	uint64_t start;
	int i;

	monitor_init(monitor, MEMWAIT_MUTEX_ERRORCHECK);
	ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
	for (i = 0; i < 2; i++) {
		start = now_ns(CLOCK_MONOTONIC);
		time = in_time(clocks[i], 20);
		EXPECT_EQ(ETIMEDOUT, memwait_cond_clockwait(&monitor->cond, &monitor->mutex,
							    clocks[i], &time));
		EXPECT_LE(19 * NSEC_PER_MSEC, now_ns(CLOCK_MONOTONIC) - start);
		EXPECT_EQ(EDEADLK, memwait_mutex_lock(&monitor->mutex));
	}
	time = in_time(CLOCK_REALTIME, 5);
	EXPECT_EQ(ETIMEDOUT, memwait_cond_timedwait(&monitor->cond, &monitor->mutex, &time));
	time = (struct timespec){ -5, 0 };
	EXPECT_EQ(ETIMEDOUT, memwait_cond_timedwait(&monitor->cond, &monitor->mutex, &time));
	time = (struct timespec){ 0, 1000000000 };
	EXPECT_EQ(EINVAL, memwait_cond_timedwait(&monitor->cond, &monitor->mutex, &time));
	EXPECT_EQ(EINVAL, memwait_cond_clockwait(&monitor->cond, &monitor->mutex,
						 CLOCK_PROCESS_CPUTIME_ID, &time));
	EXPECT_EQ(EDEADLK, memwait_mutex_lock(&monitor->mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

static int wait_recursively(void *arg)
{
	struct monitor *monitor = arg;
	int i;

	for (i = 0; i < 3; i++)
		must(memwait_mutex_lock(&monitor->mutex));
	monitor->waiting++;
	while (!monitor->tickets)
		must(memwait_cond_wait(&monitor->cond, &monitor->mutex));
	for (i = 0; i < 3; i++)
		if (memwait_mutex_unlock(&monitor->mutex))
			return -1;
	return memwait_mutex_unlock(&monitor->mutex);
}

USERLIB_TEST(L0_a_recursive_mutex_is_unlocked_and_relocked_as_often)
{
	struct monitor *monitor = self->shared;
	struct runner runner;

	monitor_init(monitor, MEMWAIT_MUTEX_RECURSIVE);
	runner_start(&runner, wait_recursively, monitor);
	await_waiting(monitor, 1);
	give_tickets(monitor, 1);
	ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
	EXPECT_EQ(EPERM, runner_join(&runner));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

USERLIB_TEST(R12_threads_and_operations_are_woken_in_order)
{
	struct monitor *monitor = self->shared;
	struct queued line[LINE];
	int i;

	monitor_init(monitor, 0);
	for (i = 0; i < LINE; i++) {
		line[i] = (struct queued){ .monitor = monitor, .number = i };
		if (i % 2) {
			runner_start(&line[i].runner, wait_in_queue, &line[i]);
		} else {
			ASSERT_EQ(EINPROGRESS, queue_by_loop(&line[i], self->loop));
		}
		await_sleeping(self->fd, monitor, i + 1);
	}
	for (i = 0; i < LINE; i++) {
		ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		if (i % 2) {
			EXPECT_EQ(0, runner_join(&line[i].runner));
		} else {
			ASSERT_EQ(0, dispatch_until(self->loop, &line[i].called, 1));
			EXPECT_EQ(0, line[i].result);
		}
		ASSERT_EQ(i + 1, monitor->n_order);
		ASSERT_EQ(i, monitor->order[i]);
		EXPECT_EQ(LINE - 1 - i, memwait_waiters(&monitor->cond, 0));
	}
	EXPECT_EQ(0, monitor->violations);
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

/*
 * glibc bug 25847, a violation of POSIX: a waiter that comes after a signal must not take the
 * signal from an earlier waiter. Here the earlier waiter must return without a further signal.
 */
USERLIB_TEST(R12_a_signal_is_not_stolen)
{
	struct monitor *monitor = self->shared;
	struct runner thieves[2];
	struct queued old = { .monitor = monitor };
	int round, i;

	monitor_init(monitor, 0);
	for (round = 0; more_rounds(round, ROUNDS); round++) {
		monitor->waiting = 0;
		monitor->n_order = 0;
		monitor->tickets = 0;
		runner_start(&old.runner, wait_in_queue, &old);
		await_waiting(monitor, 1);
		/*
		 * In every other round the waiter sleeps. In the other rounds it may still be about
		 * to sleep.
		 */
		if (round % 2)
			await_sleeping(self->fd, monitor, 1);
		memwait_cond_signal(&monitor->cond);
		for (i = 0; i < 2; i++)
			runner_start(&thieves[i], take_ticket, monitor);
		ASSERT_EQ(0, runner_join(&old.runner));
		give_tickets(monitor, 2);
		memwait_cond_broadcast(&monitor->cond);
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, runner_join(&thieves[i]));
	}
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

/* There are as many signals as tickets: if a signal is lost, a waiter sleeps forever. */
struct ticket_op {
	struct monitor *monitor;
	memwait_op_t op;
	int wanted, got, error, done;
};

static void ticket_step(memwait_op_t *op, int result, void *data)
{
	struct ticket_op *ticket = data;
	struct monitor *monitor = ticket->monitor;

	for (;;) {
		if (result) {
			ticket->error = result;
			ticket->done = 1;
			return;
		}
		/* The callback runs with the mutex locked. */
		while (monitor->tickets && ticket->got < ticket->wanted) {
			monitor->tickets--;
			monitor->taken++;
			ticket->got++;
		}
		if (ticket->got == ticket->wanted) {
			memwait_mutex_unlock(&monitor->mutex);
			ticket->done = 1;
			return;
		}
		result = memwait_cond_wait_async(&monitor->cond, &monitor->mutex, op);
		if (result == EINPROGRESS)
			return;
	}
}

static int take_tickets(void *arg)
{
	int i, err = 0;

	for (i = 0; i < ROUNDS && !err; i++)
		err = take_ticket(arg);
	return err;
}

static int sell_tickets(void *arg)
{
	struct monitor *monitor = arg;
	int i, err;

	for (i = 0; i < 2 * ROUNDS; i++) {
		give_tickets(monitor, 1);
		err = memwait_cond_signal(&monitor->cond);
		if (err)
			return err;
	}
	return 0;
}

static void start_taking(struct ticket_op *ticket, struct monitor *monitor, memwait_loop_t *loop,
			 int wanted)
{
	memset(ticket, 0, sizeof(*ticket));
	ticket->monitor = monitor;
	ticket->wanted = wanted;
	memwait_op_init(&ticket->op, loop, ticket_step, ticket);
	must(memwait_mutex_lock(&monitor->mutex));
	ticket_step(&ticket->op, 0, ticket);
}

USERLIB_TEST(R5_no_signal_is_lost_between_threads_and_operations)
{
	struct monitor *monitor = self->shared;
	struct ticket_op ops[2];
	struct runner takers[2], sellers[2];
	unsigned int fair;
	int i;

	for (fair = 0; fair <= MEMWAIT_MUTEX_FAIR; fair += MEMWAIT_MUTEX_FAIR) {
		monitor_init(monitor, fair);
		for (i = 0; i < 2; i++)
			runner_start(&takers[i], take_tickets, monitor);
		for (i = 0; i < 2; i++)
			start_taking(&ops[i], monitor, self->loop, ROUNDS);
		for (i = 0; i < 2; i++)
			runner_start(&sellers[i], sell_tickets, monitor);
		ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
		for (i = 0; i < 2; i++) {
			EXPECT_EQ(0, runner_join(&takers[i]));
			EXPECT_EQ(0, runner_join(&sellers[i]));
			EXPECT_EQ(0, ops[i].error);
			EXPECT_EQ(ROUNDS, ops[i].got);
		}
		EXPECT_EQ(4 * ROUNDS, monitor->taken);
		EXPECT_EQ(0, monitor->tickets);
		EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
}

USERLIB_TEST(R5_no_signal_is_lost_between_processes)
{
	int memfd = new_file(4096), i;
	struct monitor *monitor;
	struct ticket_op ops[2];
	pid_t children[4];

	monitor = map_shared(memfd, 4096);
	monitor_init(monitor, 0);
	for (i = 0; i < 4; i++)
		children[i] = run_remapped(memfd, monitor, i < 2 ? take_tickets : sell_tickets);
	for (i = 0; i < 2; i++)
		start_taking(&ops[i], monitor, self->loop, ROUNDS);
	ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(0, child_status(children[i]));
	EXPECT_EQ(4 * ROUNDS, monitor->taken);
	EXPECT_EQ(0, monitor->tickets);
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
	munmap(monitor, 4096);
	close(memfd);
}

USERLIB_TEST(R18_wait_async_unlocks_and_relocks)
{
	struct monitor *monitor = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct timespec soon;
	struct runner runner;

	monitor_init(monitor, MEMWAIT_MUTEX_ERRORCHECK);
	ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
	ASSERT_EQ(EINPROGRESS, memwait_cond_wait_async(&monitor->cond, &monitor->mutex,
						       &counted.op));
	ASSERT_EQ(0, memwait_mutex_trylock(&monitor->mutex));
	ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
	/* The operation was signalled, but the mutex is not free. */
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(1, memwait_loop_pending(self->loop));
	ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	EXPECT_EQ(EDEADLK, memwait_mutex_lock(&monitor->mutex));

	/* The deadline has passed, but another thread can lock the mutex. */
	soon = in_time(CLOCK_MONOTONIC, -1);
	EXPECT_EQ(EINPROGRESS, memwait_cond_clockwait_async(&monitor->cond, &monitor->mutex,
							    CLOCK_MONOTONIC, &soon, &counted.op));
	runner_start(&runner, lock_and_unlock, &monitor->mutex);
	EXPECT_EQ(0, runner_join(&runner));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 2));
	EXPECT_EQ(ETIMEDOUT, counted.result);
	EXPECT_EQ(EDEADLK, memwait_mutex_lock(&monitor->mutex));
	soon = (struct timespec){ 0, -1 };
	EXPECT_EQ(EINVAL, memwait_cond_clockwait_async(&monitor->cond, &monitor->mutex,
						       CLOCK_MONOTONIC, &soon, &counted.op));
	/* A wait that times out also returns with the mutex locked. */
	soon = in_time(CLOCK_MONOTONIC, 10);
	ASSERT_EQ(EINPROGRESS, memwait_cond_clockwait_async(&monitor->cond, &monitor->mutex,
							    CLOCK_MONOTONIC, &soon, &counted.op));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 3));
	EXPECT_EQ(ETIMEDOUT, counted.result);
	EXPECT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

USERLIB_TEST(L8_destroy_right_after_broadcast)
{
	struct monitor *monitor = self->shared;
	struct runner runners[3];
	int round, i;

	for (round = 0; more_rounds(round, ROUNDS / 4); round++) {
		monitor_init(monitor, 0);
		for (i = 0; i < 3; i++)
			runner_start(&runners[i], take_ticket, monitor);
		await_waiting(monitor, 3);
		give_tickets(monitor, 3);
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		ASSERT_EQ(0, memwait_cond_destroy(&monitor->cond));
		/* Make later accesses to the memory detectable. */
		memset(&monitor->cond, 0xa5, sizeof(monitor->cond));
		for (i = 0; i < 3; i++)
			ASSERT_EQ(0, runner_join(&runners[i]));
		for (i = 0; i < (int)sizeof(monitor->cond); i++)
			ASSERT_EQ(0xa5, ((unsigned char *)&monitor->cond)[i]);
	}
}

/*
 * The thread that would dispatch the operation may be the thread that destroys the condition
 * variable.
 */
USERLIB_TEST(L8_an_operation_that_was_not_dispatched_still_waits)
{
	struct monitor *monitor = self->shared;
	struct queued queued = { .monitor = monitor };

	monitor_init(monitor, 0);
	ASSERT_EQ(EINPROGRESS, queue_by_loop(&queued, self->loop));
	EXPECT_EQ(EBUSY, memwait_cond_destroy(&monitor->cond));
	ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
	EXPECT_EQ(EBUSY, memwait_cond_destroy(&monitor->cond));
	ASSERT_EQ(0, dispatch_until(self->loop, &queued.called, 1));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
	EXPECT_EQ(1, monitor->n_order);
}

USERLIB_TEST(R6_signals_do_not_interrupt_a_wait)
{
	struct sigaction action = { .sa_handler = ignore_signal };
	struct monitor *monitor = self->shared;
	struct runner runner;
	int i;

	sigaction(SIGUSR1, &action, NULL);
	monitor_init(monitor, 0);
	runner_start(&runner, take_ticket, monitor);
	for (i = 0; i < 20; i++) {
		await_sleeping(self->fd, monitor, 1);
		pthread_kill(runner.thread, SIGUSR1);
	}
	give_tickets(monitor, 1);
	ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

USERLIB_TEST(L7_a_waiter_that_is_killed_does_no_harm)
{
	struct monitor *monitor = self->shared;
	struct runner behind;
	pid_t child;
	int i;

	monitor_init(monitor, 0);
	for (i = 0; i < 10; i++) {
		monitor->waiting = 0;
		child = run_in_child(take_ticket(monitor));
		await_sleeping(self->fd, monitor, 1);
		runner_start(&behind, take_ticket, monitor);
		await_sleeping(self->fd, monitor, 2);
		ASSERT_EQ(128 + SIGKILL, kill_child(child));
		give_tickets(monitor, 1);
		ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		ASSERT_EQ(0, runner_join(&behind));
	}
}

TEST_HARNESS_MAIN
