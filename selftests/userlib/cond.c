// SPDX-License-Identifier: GPL-2.0
/* Condition variables: signals are neither lost nor stolen, by threads and by operations. */
#include <sys/resource.h>

#include "userlib_test.h"

#define ROUNDS	(getenv("MEMWAIT_LOADS") ? 200 : 2000)

struct monitor {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	/* All protected by the mutex. */
	int waiting;		/* have begun to wait */
	int tickets;		/* what they wait for */
	int taken;
	int violations;
	int locked_in_handler;
	int leave;		/* not protected */
	int order[64];
	int n_order;
};

static void monitor_init(struct monitor *monitor, unsigned int kind)
{
	memset(monitor, 0, sizeof(*monitor));
	memwait_mutex_init(&monitor->mutex, kind);
	memwait_cond_init(&monitor->cond, 0);
}

/* Waits for a ticket and takes it. */
static int take_ticket(void *arg)
{
	struct monitor *monitor = arg;
	int err = memwait_mutex_lock(&monitor->mutex);

	monitor->waiting++;
	while (!err && !monitor->tickets)
		err = memwait_cond_wait(&monitor->cond, &monitor->mutex);
	if (err)
		return err;
	monitor->tickets--;
	monitor->taken++;
	return memwait_mutex_unlock(&monitor->mutex);
}

/*
 * It lives on until all may leave: if a thread ends that was woken last, one that waits is told of
 * a death, and comes back.
 */
static int take_ticket_and_stay(void *arg)
{
	struct monitor *monitor = arg;
	int err = take_ticket(monitor);

	while (!__atomic_load_n(&monitor->leave, __ATOMIC_ACQUIRE))
		before_next_look();
	return err;
}

static int read_locked(struct monitor *monitor, const int *what)
{
	int value;

	memwait_mutex_lock(&monitor->mutex);
	value = *what;
	memwait_mutex_unlock(&monitor->mutex);
	return value;
}

/* When a thread has begun to wait, and the mutex is free, it is in the wait. */
static void await_waiting(struct monitor *monitor, int n)
{
	while (read_locked(monitor, &monitor->waiting) < n)
		before_next_look();
}

/* When it sleeps in the kernel: the sequence is the first word. */
static void await_sleeping(int fd, struct monitor *monitor, int n)
{
	await_waiters(fd, &monitor->cond, MEMWAIT_SIZE_U64, n);
}

static void give_tickets(struct monitor *monitor, int n)
{
	memwait_mutex_lock(&monitor->mutex);
	monitor->tickets += n;
	memwait_mutex_unlock(&monitor->mutex);
}

USERLIB_TEST(signal_wakes_one_and_broadcast_all)
{
	struct monitor *monitor = self->shared;
	struct runner runners[6];
	int i, left;

	monitor_init(monitor, 0);
	for (i = 0; i < 6; i++)
		runner_start(&runners[i], take_ticket_and_stay, monitor);
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
	__atomic_store_n(&monitor->leave, 1, __ATOMIC_RELEASE);
	for (i = 0; i < 6; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
	left = monitor->tickets;
	EXPECT_EQ(0, left);
	EXPECT_EQ(6, monitor->taken);
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

USERLIB_TEST(without_waiters_nothing_happens)
{
	memwait_cond_t *cond = self->shared;

	EXPECT_EQ(0, memwait_cond_signal(cond));
	EXPECT_EQ(0, memwait_cond_broadcast(cond));
	EXPECT_EQ(0, memwait_cond_destroy(cond));
	EXPECT_EQ(EINVAL, memwait_cond_init(cond, 1));
	EXPECT_EQ(EINVAL, memwait_cond_init(NULL, 0));
	EXPECT_EQ(EINVAL, memwait_cond_signal(NULL));
	EXPECT_EQ(EINVAL, memwait_cond_broadcast(NULL));
	EXPECT_EQ(EINVAL, memwait_cond_destroy(NULL));
	EXPECT_EQ(EINVAL, memwait_cond_wait(cond, NULL));
	EXPECT_EQ(EINVAL, memwait_cond_wait(NULL, NULL));
	EXPECT_EQ(EINVAL, memwait_cond_wait_async(cond, NULL, NULL));
}

USERLIB_TEST(the_mutex_must_be_locked)
{
	struct monitor *monitor = self->shared;
	struct counted_op counted = { 0 };

	monitor_init(monitor, 0);
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	EXPECT_EQ(EPERM, memwait_cond_wait(&monitor->cond, &monitor->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait_async(&monitor->cond, &monitor->mutex, &counted.op));
	monitor_init(monitor, MEMWAIT_MUTEX_ERRORCHECK);
	EXPECT_EQ(EPERM, memwait_cond_wait(&monitor->cond, &monitor->mutex));
	EXPECT_EQ(EPERM, memwait_cond_wait_async(&monitor->cond, &monitor->mutex, &counted.op));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

USERLIB_TEST(time_outs_keep_the_mutex)
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
	EXPECT_EQ(EINVAL, memwait_cond_timedwait(&monitor->cond, &monitor->mutex, NULL));
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
		memwait_mutex_lock(&monitor->mutex);
	monitor->waiting++;
	while (!monitor->tickets)
		memwait_cond_wait(&monitor->cond, &monitor->mutex);
	for (i = 0; i < 3; i++)
		if (memwait_mutex_unlock(&monitor->mutex))
			return -1;
	return memwait_mutex_unlock(&monitor->mutex);
}

USERLIB_TEST(a_recursive_mutex_is_unlocked_entirely_and_locked_as_often)
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

/* Waiters that stand in line, threads and operations; each has its number. */
struct standing {
	struct monitor *monitor;
	int number;
	int flag;		/* may go; protected by the mutex */
	int result;
	int called;
	struct timespec time;	/* of stand_until() */
	memwait_op_t op;
	struct runner runner;
};

static void leave_line(struct standing *standing)
{
	struct monitor *monitor = standing->monitor;

	if (monitor->n_order < 64)
		monitor->order[monitor->n_order++] = standing->number;
}

/* Goes on with the first wake-up, whatever it is for. */
static int stand_in_line(void *arg)
{
	struct standing *standing = arg;
	struct monitor *monitor = standing->monitor;
	int err;

	memwait_mutex_lock(&monitor->mutex);
	monitor->waiting++;
	err = memwait_cond_wait(&monitor->cond, &monitor->mutex);
	leave_line(standing);
	memwait_mutex_unlock(&monitor->mutex);
	return err;
}

static void called_from_line(memwait_op_t *op, int result, void *data)
{
	struct standing *standing = data;

	(void)op;
	standing->result = result;
	standing->called++;
	if (result && result != ETIMEDOUT)
		return;
	if (memwait_mutex_trylock(&standing->monitor->mutex) != EBUSY)
		standing->monitor->violations++;
	leave_line(standing);
	memwait_mutex_unlock(&standing->monitor->mutex);
}

static int stand_with_loop(struct standing *standing, memwait_loop_t *loop)
{
	struct monitor *monitor = standing->monitor;
	int err;

	standing->called = 0;
	memwait_op_init(&standing->op, loop, called_from_line, standing);
	memwait_mutex_lock(&monitor->mutex);
	err = memwait_cond_wait_async(&monitor->cond, &monitor->mutex, &standing->op);
	if (err != EINPROGRESS)
		memwait_mutex_unlock(&monitor->mutex);
	return err;
}

/* As take_ticket_and_stay(), until @flag is set. */
static int stand_in_line_and_stay(void *arg)
{
	struct standing *standing = arg;
	int err = stand_in_line(standing);

	__atomic_store_n(&standing->called, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&standing->flag, __ATOMIC_ACQUIRE))
		before_next_look();
	return err;
}

#define LINE	10

USERLIB_TEST(threads_and_operations_are_woken_in_order)
{
	struct monitor *monitor = self->shared;
	struct standing line[LINE];
	int i;

	monitor_init(monitor, 0);
	for (i = 0; i < LINE; i++) {
		line[i] = (struct standing){ .monitor = monitor, .number = i };
		if (i % 2) {
			runner_start(&line[i].runner, stand_in_line_and_stay, &line[i]);
		} else {
			ASSERT_EQ(EINPROGRESS, stand_with_loop(&line[i], self->loop));
		}
		await_sleeping(self->fd, monitor, i + 1);
	}
	for (i = 0; i < LINE; i++) {
		ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		if (i % 2) {
			while (!__atomic_load_n(&line[i].called, __ATOMIC_ACQUIRE))
				before_next_look();
		} else {
			ASSERT_EQ(0, dispatch_until(self->loop, &line[i].called, 1));
			EXPECT_EQ(0, line[i].result);
		}
		ASSERT_EQ(i + 1, monitor->n_order);
		ASSERT_EQ(i, monitor->order[i]);
		EXPECT_EQ(LINE - 1 - i, memwait_waiters(&monitor->cond, 0));
	}
	for (i = 1; i < LINE; i += 2) {
		__atomic_store_n(&line[i].flag, 1, __ATOMIC_RELEASE);
		EXPECT_EQ(0, runner_join(&line[i].runner));
	}
	EXPECT_EQ(0, monitor->violations);
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

/*
 * glibc bug 25847, and what POSIX forbids: a waiter that comes after a signal must not take it from
 * one that was there. Here the one that was there must come back, with no further signal.
 */
USERLIB_TEST(a_signal_is_not_stolen)
{
	struct monitor *monitor = self->shared;
	struct runner thieves[2];
	struct standing old = { .monitor = monitor };
	int round, i;

	monitor_init(monitor, 0);
	for (round = 0; round < ROUNDS; round++) {
		monitor->waiting = 0;
		monitor->n_order = 0;
		monitor->tickets = 0;
		runner_start(&old.runner, stand_in_line, &old);
		await_waiting(monitor, 1);
		/* May be on its way to sleep still; with every other round, surely asleep. */
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

/* The classic, with as many signals as tickets: a lost one leaves somebody asleep. */
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
		/* The mutex is locked. */
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
	memwait_mutex_lock(&monitor->mutex);
	ticket_step(&ticket->op, 0, ticket);
}

USERLIB_TEST(no_signal_is_lost_between_threads_and_operations)
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
		ASSERT_EQ(0, memwait_loop_run(self->loop));
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

USERLIB_TEST(no_signal_is_lost_between_processes)
{
	int memfd = memfd_create("cond", MFD_CLOEXEC), i;
	struct monitor *monitor;
	struct ticket_op ops[2];
	pid_t children[4];

	ASSERT_EQ(0, ftruncate(memfd, 4096));
	monitor = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	ASSERT_NE(MAP_FAILED, monitor);
	monitor_init(monitor, 0);
	for (i = 0; i < 4; i++) {
		children[i] = fork();
		ASSERT_LE(0, children[i]);
		if (!children[i]) {
			void *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd,
					   0);

			munmap(monitor, 4096);
			_exit(i < 2 ? take_tickets(other) : sell_tickets(other));
		}
	}
	for (i = 0; i < 2; i++)
		start_taking(&ops[i], monitor, self->loop, ROUNDS);
	ASSERT_EQ(0, memwait_loop_run(self->loop));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(0, userlib_child_status(children[i]));
	EXPECT_EQ(4 * ROUNDS, monitor->taken);
	EXPECT_EQ(0, monitor->tickets);
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
	munmap(monitor, 4096);
	close(memfd);
}

USERLIB_TEST(wait_async_unlocks_and_comes_back_locked)
{
	struct monitor *monitor = self->shared;
	struct counted_op counted = { 0 };
	struct timespec soon;
	int ret;

	monitor_init(monitor, MEMWAIT_MUTEX_ERRORCHECK);
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
	ASSERT_EQ(EINPROGRESS, memwait_cond_wait_async(&monitor->cond, &monitor->mutex,
						       &counted.op));
	ASSERT_EQ(0, memwait_mutex_trylock(&monitor->mutex));
	ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
	/* Signalled, but the mutex is not free. */
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(1, memwait_loop_pending(self->loop));
	ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	EXPECT_EQ(EDEADLK, memwait_mutex_lock(&monitor->mutex));

	/* Past: it was never unlocked. */
	soon = in_time(CLOCK_MONOTONIC, -1);
	EXPECT_EQ(ETIMEDOUT, memwait_cond_clockwait_async(&monitor->cond, &monitor->mutex,
							  CLOCK_MONOTONIC, &soon, &counted.op));
	EXPECT_EQ(EDEADLK, memwait_mutex_lock(&monitor->mutex));
	soon = (struct timespec){ 0, -1 };
	EXPECT_EQ(EINVAL, memwait_cond_clockwait_async(&monitor->cond, &monitor->mutex,
						       CLOCK_MONOTONIC, &soon, &counted.op));
	/* A time-out comes back locked as well. */
	do {
		soon = in_time(CLOCK_MONOTONIC, 10);
		ret = memwait_cond_clockwait_async(&monitor->cond, &monitor->mutex,
						   CLOCK_MONOTONIC, &soon, &counted.op);
	} while (ret == ETIMEDOUT);	/* found past by a slow machine */
	ASSERT_EQ(EINPROGRESS, ret);
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 2));
	EXPECT_EQ(ETIMEDOUT, counted.result);
	EXPECT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

USERLIB_TEST(L3_cancel_at_every_stage_passes_the_signal_on)
{
	struct monitor *monitor = self->shared;
	struct standing first, behind;
	unsigned int fair;
	int stage;

	for (fair = 0; fair <= MEMWAIT_MUTEX_FAIR; fair += MEMWAIT_MUTEX_FAIR) {
		for (stage = 0; stage < 4; stage++) {
			monitor_init(monitor, fair);
			first = (struct standing){ .monitor = monitor, .number = 1 };
			behind = (struct standing){ .monitor = monitor, .number = 2 };
			ASSERT_EQ(EINPROGRESS, stand_with_loop(&first, self->loop));
			runner_start(&behind.runner, stand_in_line, &behind);
			await_sleeping(self->fd, monitor, 2);
			switch (stage) {
			case 0:	/* waits for the signal */
				break;
			case 1:	/* has it, but was not dispatched */
				ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
				break;
			case 2:	/* waits for the mutex */
			case 3:	/* has it, but was not dispatched */
				ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
				ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
				ASSERT_EQ(0, memwait_loop_dispatch(self->loop));
				await_waiters(self->fd, &monitor->mutex, U32_SIZE, 1);
				if (stage == 3) {
					ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
				}
				break;
			}
			ASSERT_EQ(0, memwait_op_cancel(&first.op));
			ASSERT_EQ(ENOENT, memwait_op_cancel(&first.op));
			if (stage == 0) {
				ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
			}
			if (stage == 2) {
				ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
			}
			EXPECT_EQ(0, runner_join(&behind.runner));
			EXPECT_EQ(0, first.called);
			EXPECT_EQ(0, memwait_loop_pending(self->loop));
			EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
			EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
		}
	}
}

static int signal_once(void *cond)
{
	return memwait_cond_signal(cond);
}

USERLIB_TEST(L3_cancel_races_with_signal)
{
	struct monitor *monitor = self->shared;
	struct standing first, behind;
	struct runner signaller;
	int round, taken_back = 0, called = 0;

	for (round = 0; round < ROUNDS || !taken_back; round++) {
		monitor_init(monitor, round % 2 ? MEMWAIT_MUTEX_FAIR : 0);
		first = (struct standing){ .monitor = monitor, .number = 1 };
		behind = (struct standing){ .monitor = monitor, .number = 2 };
		ASSERT_EQ(EINPROGRESS, stand_with_loop(&first, self->loop));
		runner_start(&behind.runner, stand_in_line, &behind);
		await_sleeping(self->fd, monitor, 2);
		runner_race(&signaller, signal_once, &monitor->cond);
		if (round % 3)
			memwait_loop_dispatch(self->loop);
		if (!memwait_op_cancel(&first.op)) {
			/* The one signal is for the one that is left. */
			taken_back++;
			ASSERT_EQ(0, first.called);
		} else {
			called++;
			ASSERT_EQ(1, first.called);
			ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		}
		ASSERT_EQ(0, runner_join(&signaller));
		ASSERT_EQ(0, runner_join(&behind.runner));
		ASSERT_EQ(0, memwait_cond_destroy(&monitor->cond));
		ASSERT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
	TH_LOG("%d taken back, %d called back", taken_back, called);
}

static void handler(void *arg)
{
	struct monitor *monitor = arg;

	/* EDEADLK: it is ours, as POSIX promises. */
	if (memwait_mutex_lock(&monitor->mutex) == EDEADLK)
		monitor->locked_in_handler++;
	memwait_mutex_unlock(&monitor->mutex);
}

static int wait_to_be_cancelled(void *arg)
{
	struct monitor *monitor = arg;

	memwait_mutex_lock(&monitor->mutex);
	monitor->waiting++;
	pthread_cleanup_push(handler, monitor);
	while (!monitor->tickets)
		memwait_cond_wait(&monitor->cond, &monitor->mutex);
	monitor->tickets--;
	monitor->taken++;
	pthread_cleanup_pop(0);
	memwait_mutex_unlock(&monitor->mutex);
	return 0;
}

USERLIB_TEST(L5_a_cancelled_thread_has_the_mutex_in_its_handler)
{
	struct monitor *monitor = self->shared;
	struct runner runner;

	monitor_init(monitor, MEMWAIT_MUTEX_ERRORCHECK);
	runner_start(&runner, wait_to_be_cancelled, monitor);
	await_sleeping(self->fd, monitor, 1);
	ASSERT_EQ(0, pthread_cancel(runner.thread));
	pthread_join(runner.thread, NULL);
	EXPECT_EQ(0, runner.done);
	EXPECT_EQ(1, monitor->locked_in_handler);
	EXPECT_EQ(0, memwait_mutex_trylock(&monitor->mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

USERLIB_TEST(L5_cancellation_races_with_signal)
{
	struct monitor *monitor = self->shared;
	struct runner cancelled, behind, signaller;
	int round, were_cancelled = 0;

	for (round = 0; round < ROUNDS || !were_cancelled; round++) {
		monitor_init(monitor, MEMWAIT_MUTEX_ERRORCHECK |
			     (round % 2 ? MEMWAIT_MUTEX_FAIR : 0));
		runner_start(&cancelled, wait_to_be_cancelled, monitor);
		if (round % 4)
			await_sleeping(self->fd, monitor, 1);
		else
			await_waiting(monitor, 1);
		runner_start(&behind, take_ticket, monitor);
		await_waiting(monitor, 2);
		give_tickets(monitor, 1);
		runner_race(&signaller, signal_once, &monitor->cond);
		ASSERT_EQ(0, pthread_cancel(cancelled.thread));
		pthread_join(cancelled.thread, NULL);
		ASSERT_EQ(0, runner_join(&signaller));
		if (cancelled.done) {
			/* It has taken the ticket: here is one for the other. */
			give_tickets(monitor, 1);
			ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		} else {
			were_cancelled++;
			ASSERT_EQ(1, monitor->locked_in_handler);
		}
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, monitor->tickets);
		ASSERT_EQ(0, memwait_cond_destroy(&monitor->cond));
		ASSERT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
	TH_LOG("%d of %d cancelled", were_cancelled, round);
}

USERLIB_TEST(destroy_right_after_broadcast)
{
	struct monitor *monitor = self->shared;
	struct runner runners[3];
	int round, i;

	for (round = 0; round < ROUNDS / 4; round++) {
		monitor_init(monitor, 0);
		for (i = 0; i < 3; i++)
			runner_start(&runners[i], take_ticket, monitor);
		await_waiting(monitor, 3);
		give_tickets(monitor, 3);
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		ASSERT_EQ(0, memwait_cond_destroy(&monitor->cond));
		/* Whoever touches it from now on finds this. */
		memset(&monitor->cond, 0xa5, sizeof(monitor->cond));
		for (i = 0; i < 3; i++)
			ASSERT_EQ(0, runner_join(&runners[i]));
		for (i = 0; i < (int)sizeof(monitor->cond); i++)
			ASSERT_EQ(0xa5, ((unsigned char *)&monitor->cond)[i]);
	}
}

/* The thread that would dispatch may be the one that destroys. */
USERLIB_TEST(L8_an_operation_that_was_not_dispatched_waits_still)
{
	struct monitor *monitor = self->shared;
	struct standing standing = { .monitor = monitor };

	monitor_init(monitor, 0);
	ASSERT_EQ(EINPROGRESS, stand_with_loop(&standing, self->loop));
	EXPECT_EQ(EBUSY, memwait_cond_destroy(&monitor->cond));
	ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
	EXPECT_EQ(EBUSY, memwait_cond_destroy(&monitor->cond));
	ASSERT_EQ(0, dispatch_until(self->loop, &standing.called, 1));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
	EXPECT_EQ(1, monitor->n_order);
}

USERLIB_TEST(signals_to_the_process_do_not_interrupt_it)
{
	struct sigaction action = { .sa_handler = nothing };
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

USERLIB_TEST(a_waiter_that_is_killed_does_no_harm)
{
	struct monitor *monitor = self->shared;
	struct runner behind;
	pid_t child;
	int i;

	monitor_init(monitor, 0);
	for (i = 0; i < 10; i++) {
		monitor->waiting = 0;
		child = fork();
		ASSERT_LE(0, child);
		if (!child)
			_exit(take_ticket(monitor));
		await_sleeping(self->fd, monitor, 1);
		runner_start(&behind, take_ticket, monitor);
		await_sleeping(self->fd, monitor, 2);
		kill(child, SIGKILL);
		ASSERT_EQ(128 + SIGKILL, userlib_child_status(child));
		give_tickets(monitor, 1);
		ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		ASSERT_EQ(0, runner_join(&behind));
	}
}

/* Broadcasts that move. The mutex's word is its first, as the sequence is that of the condition. */

static int sleepers_of_mutex(struct monitor *monitor)
{
	return memwait_waiters(&monitor->mutex, 0);
}

USERLIB_TEST(broadcast_moves_threads_and_operations_to_the_mutex)
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
USERLIB_TEST(broadcast_without_the_mutex_wakes_all_in_the_end)
{
	struct monitor *monitor = self->shared;
	struct runner runners[6];
	int round, i;

	monitor_init(monitor, 0);
	for (round = 0; round < ROUNDS / 10; round++) {
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

/* Another page, and a fair mutex: who was moved there could not tell whether it has the lock. */
USERLIB_TEST(broadcast_wakes_all_where_it_cannot_move_them)
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
	await_waiters(self->fd, &monitor->mutex, U32_SIZE, 3);
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

	memwait_mutex_lock(&monitor->mutex);
	monitor->waiting++;
	err = memwait_cond_clockwait(&monitor->cond, &monitor->mutex, CLOCK_MONOTONIC,
				     &standing->time);
	leave_line(standing);
	memwait_mutex_unlock(&monitor->mutex);
	return err;
}

/* The deadline is that of the condition, and it has come in time. */
USERLIB_TEST(a_deadline_that_passes_in_the_wait_for_the_mutex_is_no_time_out)
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
	while (!mw_readable(memwait_loop_fd(self->loop)))
		before_next_look();
	EXPECT_LE(0, memwait_loop_dispatch(self->loop));
	while (now_ns(CLOCK_MONOTONIC) < deadline)
		before_next_look();
	await_waiters(self->fd, &monitor->mutex, U32_SIZE, 2);
	ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	/* Whichever of them is first lets the other go on. */
	ASSERT_EQ(0, dispatch_until(self->loop, &op.called, 1));
	EXPECT_EQ(0, op.result);
	EXPECT_EQ(0, runner_join(&thread.runner));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

/* And with nobody to broadcast a time-out is one, however the sequence stands. */
USERLIB_TEST(a_time_out_after_an_old_broadcast_is_one)
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
USERLIB_TEST(destroy_after_broadcast_with_the_mutex_locked)
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
USERLIB_TEST(a_moved_process_that_is_killed_swallows_no_unlock)
{
	struct monitor *monitor = self->shared;
	struct runner behind;
	pid_t child;
	int round;

	for (round = 0; round < 10; round++) {
		monitor_init(monitor, 0);
		child = fork();
		ASSERT_LE(0, child);
		if (!child)
			_exit(take_ticket(monitor));
		await_sleeping(self->fd, monitor, 1);
		runner_start(&behind, take_ticket, monitor);
		await_sleeping(self->fd, monitor, 2);
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		monitor->tickets = 1;
		ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		ASSERT_EQ(2, sleepers_of_mutex(monitor));
		kill(child, SIGKILL);
		ASSERT_EQ(128 + SIGKILL, userlib_child_status(child));
		EXPECT_EQ(1, sleepers_of_mutex(monitor));
		ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		ASSERT_EQ(0, runner_join(&behind));
	}
}

/* Mutexes of the same page that take turns with one condition variable. */
USERLIB_TEST(broadcast_moves_to_the_mutex_of_today)
{
	struct monitor *monitor = self->shared;
	memwait_mutex_t *other = (void *)(monitor + 1);
	struct standing standing = { .monitor = monitor };
	int round;

	monitor_init(monitor, 0);
	memwait_mutex_init(other, 0);
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
		EXPECT_EQ(1, memwait_waiters(mutex, 0));
		EXPECT_EQ(0, memwait_waiters(&monitor->cond, 0));
		ASSERT_EQ(0, memwait_op_cancel(&standing.op));
		EXPECT_EQ(0, memwait_waiters(mutex, 0));
		ASSERT_EQ(0, memwait_mutex_unlock(mutex));
	}
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

TEST_HARNESS_MAIN
