// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A real-time thread reads a value that an ordinary thread computes, and never misses its deadline.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include <memwait.h>

/* MEMWAIT_PRIVATE: only this process uses the mutex, so a wait need not look up the mapping. */
static memwait_mutex_t mutex = MEMWAIT_MUTEX_INIT_KIND(MEMWAIT_PRIVATE);
static memwait_sem_t is_late = MEMWAIT_SEM_INIT_FLAGS(MEMWAIT_PRIVATE, 0);
static int value;	/* protected by the mutex */

/* Steps that take time, or can fail, are done before time matters. */
static int prepare(void)
{
	struct sched_param param = { .sched_priority = 50 };
	uint64_t id;
	int err = memwait_available();	/* opens the device */

	if (!err)
		err = memwait_owner(&id);	/* robust mutexes, and some others, need an id */
	if (!err && mlockall(MCL_CURRENT | MCL_FUTURE))
		err = -errno;
	if (!err)
		err = -pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
	if (err)
		printf("%s\n", memwait_strerror(err));
	return err;
}

static int take_value(int *last, long ms)
{
	const struct timespec timeout = { ms / 1000, ms % 1000 * 1000000 };
	int err = memwait_mutex_clocklock(&mutex, MEMWAIT_RELATIVE, &timeout);

	if (err)
		return err;
	*last = value;
	return memwait_mutex_unlock(&mutex);
}

static void *control(void *arg)
{
	int last = 0;

	if (prepare())
		return NULL;
	if (take_value(&last, 5) == ETIMEDOUT)
		printf("in time, with the last value, %d\n", last);
	if (memwait_sem_post(&is_late) || take_value(&last, 10000))
		return NULL;
	printf("in time, with a new value, %d\n", last);
	return arg;
}

int main(void)
{
	pthread_t thread;
	void *done;

	/* The main thread works for too long with the lock held. */
	if (memwait_mutex_lock(&mutex) || pthread_create(&thread, NULL, control, &mutex) ||
	    memwait_sem_wait(&is_late))
		return 1;
	value = 1;
	if (memwait_mutex_unlock(&mutex) || pthread_join(thread, &done))
		return 1;
	return done ? 0 : 1;
}
