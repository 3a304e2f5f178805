/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of condition variables share: tickets for who waits, and a line in order. */
#ifndef COND_TEST_H
#define COND_TEST_H

#include "userlib_test.h"

#define ROUNDS	SOME_OF(2000)

struct monitor {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	/* All protected by the mutex. */
	int waiting;		/* have begun to wait */
	int tickets;		/* what they wait for */
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
	must(memwait_cond_init(&monitor->cond, 0));
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

/* When a thread has begun to wait, and the mutex is free, it is in the wait. */
static inline void await_waiting(struct monitor *monitor, int n)
{
	spin_until(read_locked(monitor, &monitor->waiting) >= n);
}

/* When it sleeps in the kernel: the sequence is the first word. */
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

static inline void leave_line(struct standing *standing)
{
	struct monitor *monitor = standing->monitor;

	if (monitor->n_order < 64)
		monitor->order[monitor->n_order++] = standing->number;
}

/* Goes on with the first wake-up, whatever it is for. */
static inline int stand_in_line(void *arg)
{
	struct standing *standing = arg;
	struct monitor *monitor = standing->monitor;
	int err;

	must(memwait_mutex_lock(&monitor->mutex));
	monitor->waiting++;
	err = memwait_cond_wait(&monitor->cond, &monitor->mutex);
	leave_line(standing);
	memwait_mutex_unlock(&monitor->mutex);
	return err;
}

static inline void called_from_line(memwait_op_t *op, int result, void *data)
{
	struct standing *standing = data;

	standing->result = result;
	standing->called++;
	if (result && result != ETIMEDOUT)
		return;
	if (memwait_mutex_trylock(&standing->monitor->mutex) != EBUSY)
		standing->monitor->violations++;
	leave_line(standing);
	memwait_mutex_unlock(&standing->monitor->mutex);
}

static inline int stand_with_loop(struct standing *standing, memwait_loop_t *loop)
{
	struct monitor *monitor = standing->monitor;
	int err;

	standing->called = 0;
	memwait_op_init(&standing->op, loop, called_from_line, standing);
	must(memwait_mutex_lock(&monitor->mutex));
	err = memwait_cond_wait_async(&monitor->cond, &monitor->mutex, &standing->op);
	if (err != EINPROGRESS)
		memwait_mutex_unlock(&monitor->mutex);
	return err;
}

#define LINE	10

static inline void handler(void *arg)
{
	struct monitor *monitor = arg;

	/* EDEADLK: it is ours, as POSIX promises. */
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
