// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Waits that end because of a timeout or a signal. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <memwait.h>

static memwait_mutex_t mutex = MEMWAIT_MUTEX_INIT;
static memwait_sem_t sem = MEMWAIT_SEM_INIT(0);

static const struct timespec twenty_ms = { .tv_nsec = 20000000 };

static void nothing(int signal)
{
	(void)signal;
}

static void have_item(memwait_op_t *op, int result, void *data)
{
	(void)op;
	(void)data;
	printf("loop: %s\n", result == ETIMEDOUT ? "timed out" : "has an item");
}

int main(void)
{
	struct sigaction action = { .sa_handler = nothing };	/* no SA_RESTART */
	memwait_loop_t *loop;
	memwait_op_t op;
	int result;

	/* A thread and a timeout. The thread already holds the lock. */
	if (memwait_mutex_lock(&mutex))
		return 1;
	result = memwait_mutex_clocklock(&mutex, MEMWAIT_RELATIVE, &twenty_ms);
	printf("thread: %s\n", result == ETIMEDOUT ? "timed out" : "locked");

	/*
	 * A thread and a signal. The signal is repeated, because the first signal may come before
	 * the wait.
	 */
	sigaction(SIGALRM, &action, NULL);
	ualarm(20000, 20000);
	result = memwait_sem_wait(&sem);
	ualarm(0, 0);
	printf("thread: %s\n", result == EINTR ? "interrupted" : "has an item");

	/* A loop and a timeout, which is the result of the callback. */
	if (memwait_loop_new(&loop, 0) || memwait_op_init(&op, loop, have_item, NULL))
		return 1;
	result = memwait_sem_clockwait_async(&sem, MEMWAIT_RELATIVE, &twenty_ms, &op);
	if (result != EINPROGRESS)
		have_item(&op, result, NULL);
	return memwait_loop_run(loop, NULL, 0) < 0;
}
