// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * AsyncLock: workers that may block, and a main thread that must not, use one lock. The workers
 * lock and unlock; the main thread passes a callback that runs when the main thread holds the lock.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <memwait.h>

#define WORKERS	3
#define TIMES	2000

static memwait_mutex_t lock = MEMWAIT_MUTEX_INIT;
static long account;	/* protected by nothing but the lock */
static int executed, locked;

static void *work(void *arg)
{
	int i;

	(void)arg;
	for (i = 0; i < TIMES; i++) {
		if (memwait_mutex_lock(&lock))
			exit(1);
		account++;
		if (memwait_mutex_unlock(&lock))
			exit(1);
	}
	return NULL;
}

/* executeLocked: runs with the lock held, which is released afterwards. */
static void execute(memwait_op_t *op, int result, void *data)
{
	(void)op;
	(void)data;
	if (result)
		exit(1);
	account++;
	executed++;
}

/* lock: runs with the lock held, and releases the lock itself. */
static void have_lock(memwait_op_t *op, int result, void *data)
{
	(void)data;
	while (!result) {
		account++;
		if (memwait_mutex_unlock(&lock) || ++locked == TIMES)
			return;
		result = memwait_mutex_lock_async(&lock, op);
	}
}

int main(void)
{
	memwait_op_t locking, executing;
	pthread_t workers[WORKERS];
	memwait_loop_t *loop;
	int i, err;

	err = memwait_loop_new(&loop, 0);
	if (err) {
		fprintf(stderr, "memwait_loop_new: %s\n", memwait_strerror(err));
		return 1;
	}
	if (memwait_op_init(&locking, loop, have_lock, NULL) ||
	    memwait_op_init(&executing, loop, execute, NULL))
		return 1;
	for (i = 0; i < WORKERS; i++)
		if (pthread_create(&workers[i], NULL, work, NULL))
			return 1;

	err = memwait_mutex_lock_async(&lock, &locking);
	if (err != EINPROGRESS)
		have_lock(&locking, err, NULL);
	while (executed < TIMES) {
		err = memwait_mutex_execute_locked(&lock, &executing);
		if (err && err != EINPROGRESS)
			return 1;
		/*
		 * Any event loop could be used; memwait_loop_run() returns when nothing is pending.
		 */
		if (memwait_loop_run(loop, NULL, 0) < 0)
			return 1;
	}

	for (i = 0; i < WORKERS; i++)
		pthread_join(workers[i], NULL);
	printf("%d workers, and a loop that never blocked: %ld\n", WORKERS, account);
	return account == (WORKERS + 2L) * TIMES && !memwait_loop_close(loop) ? 0 : 1;
}
