// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* A pthreads program. An event loop now also waits for its lock. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>

#include <memwait/pthread.h>	/* last: the names below are libmemwait's */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int count;

/* Unchanged. */
static void *work(void *arg)
{
	pthread_mutex_lock(&mutex);
	count++;
	pthread_mutex_unlock(&mutex);
	return arg;
}

/* New: the loop calls this when it holds the lock. */
static void have_lock(memwait_op_t *op, int result, void *data)
{
	(void)op;
	(void)data;
	if (result)
		return;
	count++;
	pthread_mutex_unlock(&mutex);
}

int main(void)
{
	struct pollfd fd = { .events = POLLIN };
	memwait_loop_t *loop;
	pthread_t thread;
	memwait_op_t op;
	int result;

	pthread_mutex_lock(&mutex);
	if (pthread_create(&thread, NULL, work, NULL) ||
	    memwait_loop_new(&loop, 0) || memwait_op_init(&op, loop, have_lock, NULL))
		return 1;
	result = memwait_mutex_lock_async(&mutex, &op);
	if (result != EINPROGRESS)
		return 1;
	pthread_mutex_unlock(&mutex);
	fd.fd = memwait_loop_fd(loop);
	while (memwait_loop_pending(loop))
		if (poll(&fd, 1, -1) == 1 && memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0)
			return 1;
	pthread_join(thread, NULL);
	printf("a thread and a loop have counted to %d\n", count);
	return 0;
}
