// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Closes a loop that another thread runs, while one of the loop's operations is still pending. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <memwait.h>

static memwait_mutex_t mutex = MEMWAIT_MUTEX_INIT;

static void have_lock(memwait_op_t *op, int result, void *data)
{
	(void)op;
	(void)result;
	(void)data;
	printf("this is not printed\n");
}

static void *run(void *loop)
{
	return memwait_loop_run(loop, NULL, 0) < 0 ? loop : NULL;
}

int main(void)
{
	memwait_op_t *op = malloc(sizeof(*op));
	memwait_loop_t *loop;
	pthread_t thread;
	void *failed;

	if (!op || memwait_mutex_lock(&mutex) || memwait_loop_new(&loop, 0) ||
	    memwait_op_init(op, loop, have_lock, NULL) ||
	    memwait_mutex_lock_async(&mutex, op) != EINPROGRESS ||
	    pthread_create(&thread, NULL, run, loop))
		return 1;
	printf("pending: %zu\n", memwait_loop_pending(loop));

	/*
	 * First make all threads leave the loop; a thread that is about to run the loop returns
	 * immediately.
	 */
	if (memwait_loop_stop(loop) < 0 || pthread_join(thread, &failed) || failed)
		return 1;
	if (memwait_loop_close(loop))
		return 1;
	free(op);

	if (memwait_mutex_unlock(&mutex) || memwait_mutex_trylock(&mutex))
		return 1;
	printf("closed, and the mutex went to nobody\n");
	return 0;
}
