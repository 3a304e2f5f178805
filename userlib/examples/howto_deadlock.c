// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Two threads each lock one account and wait for the other account. memwaitctl(8) finds the
 * deadlock.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <memwait.h>

static struct bank {
	memwait_mutex_t accounts[2];	/* robust, so that each records its owner */
	memwait_barrier_t both;
} *bank;

static void *transfer(void *arg)
{
	memwait_mutex_t *from = arg, *to = &bank->accounts[from == bank->accounts];

	/* The mistake: both should begin with the first account. */
	if (memwait_mutex_lock(from) || memwait_barrier_wait(&bank->both) > 0 ||
	    memwait_mutex_lock(to))
		exit(1);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	int i, status = 0;

	bank = mmap(NULL, sizeof(*bank), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (bank == MAP_FAILED || memwait_barrier_init(&bank->both, 0, 2))
		return 1;
	for (i = 0; i < 2; i++)
		if (memwait_mutex_init(&bank->accounts[i], MEMWAIT_MUTEX_ROBUST) ||
		    pthread_create(&thread, NULL, transfer, &bank->accounts[i]))
			return 1;
	while (!status)	/* the threads may not be waiting yet */
		status = system("memwaitctl owners");
	return WIFEXITED(status) && WEXITSTATUS(status) == 1 ? 0 : 4;
}
