// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * An operation can end in three ways: it completes, it times out, or it is cancelled, in this
 * example by another thread. Each operation ends once, and an operation that timed out or was
 * cancelled does not leave the lock locked.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include <memwait.h>

static memwait_mutex_t mutex = MEMWAIT_MUTEX_INIT;

static void say(memwait_op_t *op, int result, void *data)
{
	(void)op;
	printf("%s: %s\n", (const char *)data, result ? result == ETIMEDOUT ? "timed out" :
	       "failed" : "locked");
	if (!result && memwait_mutex_unlock(&mutex))
		printf("%s: cannot unlock\n", (const char *)data);
}

static void *cancel(void *arg)
{
	int err = memwait_op_cancel(arg);

	printf("the second: %s\n", err ? "came too late" : "taken back");
	return NULL;
}

int main(void)
{
	memwait_op_t first, second, third;
	const struct timespec soon = { .tv_nsec = 20000000 };
	memwait_loop_t *loop;
	pthread_t thread;
	int err = memwait_loop_new(&loop, 0);

	if (err) {
		fprintf(stderr, "memwait_loop_new: %s\n", memwait_strerror(err));
		return 1;
	}
	if (memwait_op_init(&first, loop, say, "the first") ||
	    memwait_op_init(&second, loop, say, "the second") ||
	    memwait_op_init(&third, loop, say, "the third") || memwait_mutex_lock(&mutex))
		return 1;
	err = memwait_mutex_clocklock_async(&mutex, MEMWAIT_RELATIVE, &soon, &first);
	if (err == ETIMEDOUT)	/* a slow machine */
		say(&first, err, "the first");
	else if (err != EINPROGRESS)
		return 1;
	if (memwait_mutex_lock_async(&mutex, &second) != EINPROGRESS ||
	    memwait_mutex_lock_async(&mutex, &third) != EINPROGRESS)
		return 1;

	/* The first operation times out while the mutex is locked. */
	while (memwait_op_pending(&first)) {
		struct timespec pause = { 0, 1000000 };

		nanosleep(&pause, NULL);
		memwait_loop_dispatch(loop, MEMWAIT_ALL);
	}
	/* The second operation is cancelled. The third is then the next waiter. */
	if (pthread_create(&thread, NULL, cancel, &second))
		return 1;
	pthread_join(thread, NULL);
	if (memwait_mutex_unlock(&mutex) || memwait_loop_run(loop, NULL, 0) < 0)
		return 1;

	/* The mutex is not locked. */
	if (memwait_op_cancel(&second) != -ENOENT || memwait_mutex_trylock(&mutex))
		return 1;
	return memwait_mutex_unlock(&mutex) || memwait_loop_close(loop) ? 1 : 0;
}
