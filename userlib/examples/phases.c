// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Computes Pascal's triangle, one row at a time, written against pthreads. Each thread computes a
 * part of the row, all threads meet at a barrier, and one of them is the serial thread of the row.
 * The Makefile builds it twice: as it is, and with -include memwait/pthread.h.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

#define THREADS		4
#define ROWS		20

static pthread_barrier_t barrier;
static sem_t ended;
static unsigned long rows[ROWS][ROWS];
static unsigned int serial[ROWS];	/* how many threads were the serial thread */

static void *compute(void *arg)
{
	int first = *(int *)arg, row, i, ret;

	for (row = 1; row < ROWS; row++) {
		for (i = first; i <= row; i += THREADS)
			rows[row][i] = (i ? rows[row - 1][i - 1] : 0) + rows[row - 1][i];
		ret = pthread_barrier_wait(&barrier);
		if (ret == PTHREAD_BARRIER_SERIAL_THREAD)
			serial[row]++;
		else if (ret)
			return NULL;
		/* No thread looks at serial[] before the serial thread has changed it. */
		ret = pthread_barrier_wait(&barrier);
		if (ret && ret != PTHREAD_BARRIER_SERIAL_THREAD)
			return NULL;
		if (serial[row] != 1)
			return NULL;
	}
	sem_post(&ended);
	return NULL;
}

int main(void)
{
	int i, numbers[THREADS], value = 0;
	pthread_t threads[THREADS];
	unsigned long sum = 0;

	if (pthread_barrier_init(&barrier, NULL, THREADS) || sem_init(&ended, 0, 0))
		return 1;
	rows[0][0] = 1;
	for (i = 0; i < THREADS; i++) {
		numbers[i] = i;
		if (pthread_create(&threads[i], NULL, compute, &numbers[i]))
			return 1;
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < ROWS; i++)
		sum += rows[ROWS - 1][i];
	sem_getvalue(&ended, &value);
	printf("%d threads, the last row's sum is %lu\n", value, sum);
	return pthread_barrier_destroy(&barrier) || sem_destroy(&ended) || value != THREADS ||
	       sum != 1UL << (ROWS - 1);
}
