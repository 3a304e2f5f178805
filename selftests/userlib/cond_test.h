/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Definitions shared by the tests of condition variables: tickets that threads wait for, and a
 * queue of waiters.
 */
#ifndef COND_TEST_H
#define COND_TEST_H

#include "userlib_test.h"

#define ROUNDS	SOME_OF(2000)

struct monitor {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	/* Protected by the mutex: */
	int waiting;		/* threads that have begun to wait */
	int tickets;		/* tickets available */
	int taken;
	int violations;
	int locked_in_handler;
	int order[64];
	int n_order;
};

static inline void monitor_init(struct monitor *monitor, unsigned int kind)
{
	memset(monitor, 0, sizeof(*monitor));
	must(memwait_mutex_init(&monitor->mutex, kind));
	must(memwait_cond_init(&monitor->cond, kind & MEMWAIT_PRIVATE));
}

/* Waits for a ticket and takes it. */
static inline int take_ticket(void *arg)
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

static inline int read_locked(struct monitor *monitor, const int *what)
{
	int value;

	must(memwait_mutex_lock(&monitor->mutex));
	value = *what;
	memwait_mutex_unlock(&monitor->mutex);
	return value;
}

/* Returns when @n threads have counted themselves and have released the mutex in their wait. */
static inline void await_waiting(struct monitor *monitor, int n)
{
	spin_until(read_locked(monitor, &monitor->waiting) >= n);
}

/*
 * Returns when @n threads sleep in the kernel. They sleep on the sequence, which is the first word
 * of the condition variable.
 */
static inline void await_sleeping(int fd, struct monitor *monitor, int n)
{
	await_waiters(fd, &monitor->cond, MEMWAIT_SIZE_U64, n);
}

static inline void give_tickets(struct monitor *monitor, int n)
{
	must(memwait_mutex_lock(&monitor->mutex));
	monitor->tickets += n;
	memwait_mutex_unlock(&monitor->mutex);
}

/* Waiters in a queue, threads and operations; each has a number. */
struct queued {
	struct monitor *monitor;
	int number;
	int flag;		/* the waiter may leave; protected by the mutex */
	int result;
	int called;
	struct timespec time;	/* deadline of wait_in_queue_until() */
	memwait_op_t op;
	struct runner runner;
};

static inline void leave_queue(struct queued *queued)
{
	struct monitor *monitor = queued->monitor;

	if (monitor->n_order < 64)
		monitor->order[monitor->n_order++] = queued->number;
}

/* Leaves the queue after the first wake-up, for any reason. */
static inline int wait_in_queue(void *arg)
{
	struct queued *queued = arg;
	struct monitor *monitor = queued->monitor;
	int err;

	must(memwait_mutex_lock(&monitor->mutex));
	monitor->waiting++;
	err = memwait_cond_wait(&monitor->cond, &monitor->mutex);
	leave_queue(queued);
	memwait_mutex_unlock(&monitor->mutex);
	return err;
}

static inline void called_from_queue(memwait_op_t *op, int result, void *data)
{
	struct queued *queued = data;

	queued->result = result;
	queued->called++;
	if (result && result != ETIMEDOUT)
		return;
	if (memwait_mutex_trylock(&queued->monitor->mutex) != EBUSY)
		queued->monitor->violations++;
	leave_queue(queued);
	memwait_mutex_unlock(&queued->monitor->mutex);
}

static inline int queue_by_loop(struct queued *queued, memwait_loop_t *loop)
{
	struct monitor *monitor = queued->monitor;
	int err;

	queued->called = 0;
	memwait_op_init(&queued->op, loop, called_from_queue, queued);
	must(memwait_mutex_lock(&monitor->mutex));
	err = memwait_cond_wait_async(&monitor->cond, &monitor->mutex, &queued->op);
	if (err != EINPROGRESS)
		memwait_mutex_unlock(&monitor->mutex);
	return err;
}

#define LINE	10

static inline void handler(void *arg)
{
	struct monitor *monitor = arg;

	/* EDEADLK: this thread holds the mutex, as POSIX requires. */
	if (memwait_mutex_lock(&monitor->mutex) == EDEADLK)
		monitor->locked_in_handler++;
	memwait_mutex_unlock(&monitor->mutex);
}

static inline int wait_to_be_cancelled(void *arg)
{
	struct monitor *monitor = arg;

	must(memwait_mutex_lock(&monitor->mutex));
	monitor->waiting++;
	pthread_cleanup_push(handler, monitor);
	while (!monitor->tickets)
		must(memwait_cond_wait(&monitor->cond, &monitor->mutex));
	monitor->tickets--;
	monitor->taken++;
	pthread_cleanup_pop(0);
	memwait_mutex_unlock(&monitor->mutex);
	return 0;
}

#endif /* COND_TEST_H */
