// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Dijkstra's dining philosophers, written against pthreads: a monitor that consists of one mutex
 * and a condition variable for each philosopher. The Makefile builds it twice: as it is, and with
 * -include memwait/pthread.h.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define PHILOSOPHERS	5
#define MEALS		2000

enum state { THINKING, HUNGRY, EATING };

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t may_eat[PHILOSOPHERS];
static enum state states[PHILOSOPHERS];
static int eating_now[PHILOSOPHERS];	/* outside the monitor, to check the monitor */
static long meals, quarrels;

static int left_of(int i)
{
	return (i + PHILOSOPHERS - 1) % PHILOSOPHERS;
}

static int right_of(int i)
{
	return (i + 1) % PHILOSOPHERS;
}

static void serve(int i)
{
	if (states[i] == HUNGRY && states[left_of(i)] != EATING && states[right_of(i)] != EATING) {
		states[i] = EATING;
		pthread_cond_signal(&may_eat[i]);
	}
}

static void take_forks(int i)
{
	pthread_mutex_lock(&table);
	states[i] = HUNGRY;
	serve(i);
	while (states[i] != EATING)
		pthread_cond_wait(&may_eat[i], &table);
	pthread_mutex_unlock(&table);
}

static void put_forks(int i)
{
	pthread_mutex_lock(&table);
	states[i] = THINKING;
	serve(left_of(i));
	serve(right_of(i));
	pthread_mutex_unlock(&table);
}

static void eat(int i)
{
	__atomic_store_n(&eating_now[i], 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&eating_now[left_of(i)], __ATOMIC_SEQ_CST) ||
	    __atomic_load_n(&eating_now[right_of(i)], __ATOMIC_SEQ_CST))
		__atomic_add_fetch(&quarrels, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&meals, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&eating_now[i], 0, __ATOMIC_SEQ_CST);
}

static void *philosopher(void *arg)
{
	int i = *(int *)arg, meal;

	for (meal = 0; meal < MEALS; meal++) {
		take_forks(i);
		eat(i);
		put_forks(i);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[PHILOSOPHERS];
	int i, numbers[PHILOSOPHERS];

	for (i = 0; i < PHILOSOPHERS; i++) {
		pthread_cond_init(&may_eat[i], NULL);
		numbers[i] = i;
	}
	for (i = 0; i < PHILOSOPHERS; i++)
		if (pthread_create(&threads[i], NULL, philosopher, &numbers[i]))
			return 1;
	for (i = 0; i < PHILOSOPHERS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < PHILOSOPHERS; i++)
		if (pthread_cond_destroy(&may_eat[i]))
			return 1;
	printf("%ld meals, %ld quarrels over forks\n", meals, quarrels);
	return meals == (long)PHILOSOPHERS * MEALS && !quarrels ? 0 : 1;
}
