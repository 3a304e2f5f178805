// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A cache behind a read-write lock, written against pthreads: many threads look up values, and a
 * few threads compute missing values. The Makefile builds it twice: as it is, and with -include
 * memwait/pthread.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#define THREADS		4
#define NUMBERS		64
#define LOOKUPS		5000

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static unsigned long known[NUMBERS];	/* 0: not yet */
static unsigned int hits, computed, wrong;

static unsigned long square(unsigned int n)
{
	return (unsigned long)(n + 1) * (n + 1);
}

static int look_up(unsigned int n, unsigned long *value)
{
	if (pthread_rwlock_rdlock(&lock))
		return -1;
	*value = known[n];
	/* Readers may read again. */
	if (!pthread_rwlock_tryrdlock(&lock)) {
		*value = known[n];
		pthread_rwlock_unlock(&lock);
	}
	return pthread_rwlock_unlock(&lock);
}

static int compute(unsigned int n, unsigned long *value)
{
	struct timespec deadline;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += 60;
	if (pthread_rwlock_timedwrlock(&lock, &deadline))
		return -1;
	if (!known[n]) {
		known[n] = square(n);
		computed++;
	}
	*value = known[n];
	return pthread_rwlock_unlock(&lock);
}

static void *use(void *arg)
{
	unsigned int i, n = *(unsigned int *)arg;
	unsigned long value;

	for (i = 0; i < LOOKUPS; i++) {
		n = (n * 5 + 1) % NUMBERS;
		if (look_up(n, &value) || (!value && compute(n, &value)) || value != square(n))
			__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
		else
			__atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int main(void)
{
	unsigned int i, numbers[THREADS];
	pthread_t threads[THREADS];

	for (i = 0; i < THREADS; i++) {
		numbers[i] = i;
		if (pthread_create(&threads[i], NULL, use, &numbers[i]))
			return 1;
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	if (pthread_rwlock_rdlock(&lock))
		return 1;
	printf("a writer beside a reader: %s\n",
	       pthread_rwlock_trywrlock(&lock) == EBUSY ? "busy" : "let in");
	pthread_rwlock_unlock(&lock);
	printf("%u lookups, %u computed, %u wrong\n", hits, computed, wrong);
	return pthread_rwlock_destroy(&lock) || wrong || computed != NUMBERS;
}
