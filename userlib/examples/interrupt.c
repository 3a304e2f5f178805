// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A thread waits for a lock. ^C, or a request by another thread, ends the wait. The thread sleeps,
 * without polling, and retains its queue position after a signal that does not end the wait.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <memwait.h>

static memwait_mutex_t mutex = MEMWAIT_MUTEX_INIT;
/* Used by the main thread only, so that stopping the loop ends the thread's wait. */
static memwait_loop_t *loop;
static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
	/* If the wait has not begun yet, the stop remains pending for it. */
	memwait_loop_stop(loop);
}

/* Like memwait_mutex_lock(), but may return EINTR. */
static int lock_or_end(void)
{
	memwait_op_t op;
	int err = memwait_op_init(&op, loop, NULL, NULL), locked;

	if (err)
		return -err;
	locked = memwait_mutex_lock_async(&mutex, &op);
	if (locked != EINPROGRESS)
		return locked;
	while ((err = memwait_op_wait(&op, &locked)) == -EINTR) {
		if (!interrupted)
			continue;	/* the stop was not for this wait */
		memwait_op_cancel(&op);
		return EINTR;
	}
	return err ? -err : locked;
}

static void *stop_it(void *arg)
{
	(void)arg;
	interrupted = 1;
	memwait_loop_stop(loop);
	return NULL;
}

static void *lock_for_a_while(void *arg)
{
	if (memwait_mutex_lock(&mutex))
		return arg;
	usleep(50000);
	return memwait_mutex_unlock(&mutex) ? arg : NULL;
}

int main(void)
{
	struct sigaction action = { .sa_handler = interrupt };
	pthread_t thread;
	void *failed;

	if (memwait_loop_new(&loop, 0) || memwait_mutex_lock(&mutex))
		return 1;
	sigaction(SIGALRM, &action, NULL);	/* ^C would be SIGINT */
	ualarm(20000, 0);
	if (lock_or_end() != EINTR)
		return 1;
	puts("ended by a signal");

	interrupted = 0;
	if (pthread_create(&thread, NULL, stop_it, NULL) || lock_or_end() != EINTR)
		return 1;
	pthread_join(thread, NULL);
	puts("ended by another thread");

	/*
	 * The cancelled waits left nothing behind: the other thread gets the lock, and then this
	 * thread.
	 */
	interrupted = 0;
	if (pthread_create(&thread, NULL, lock_for_a_while, &mutex) ||
	    memwait_mutex_unlock(&mutex) || lock_or_end() || memwait_mutex_unlock(&mutex))
		return 1;
	pthread_join(thread, &failed);
	return failed || memwait_loop_close(loop) ? 1 : 0;
}
