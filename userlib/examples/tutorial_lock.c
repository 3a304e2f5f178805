// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A lock between two processes: a thread in one process holds the lock, and the event loop in the
 * other process waits for it.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memwait.h>

struct shared {
	memwait_mutex_t mutex;
	memwait_sem_t is_locked, is_wanted;	/* only to fix the order of events */
	int count;				/* protected by the mutex */
};

static struct timespec limit;	/* so that no process waits forever if the other fails */

static int work(struct shared *shared)
{
	if (memwait_mutex_lock(&shared->mutex) || memwait_sem_post(&shared->is_locked) ||
	    memwait_sem_timedwait(&shared->is_wanted, &limit))
		return 1;
	shared->count++;
	printf("thread: unlocking\n");
	return memwait_mutex_unlock(&shared->mutex) ? 1 : 0;
}

/* The loop holds the lock if the result is 0. */
static void have_lock(memwait_op_t *op, int result, void *data)
{
	struct shared *shared = data;

	(void)op;
	if (!result)
		printf("loop: locked, the count is %d\n", ++shared->count);
	if (result || memwait_mutex_unlock(&shared->mutex))
		printf("loop: failed\n");
}

int main(void)
{
	/* Zeroed memory is an unlocked mutex, and a semaphore of 0. */
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct epoll_event event = { .events = EPOLLIN };
	int epoll = epoll_create1(EPOLL_CLOEXEC), err = memwait_available(), status;
	memwait_loop_t *loop;
	memwait_op_t op;

	setvbuf(stdout, NULL, _IONBF, 0);
	if (err) {
		/* For example, the module is not loaded. */
		fprintf(stderr, "tutorial_lock: %s\n", memwait_strerror(err));
		return 1;
	}
	if (shared == MAP_FAILED || epoll < 0)
		return 1;
	limit.tv_sec = time(NULL) + 60;
	switch (fork()) {
	case -1:
		return 1;
	case 0:
		_exit(work(shared));
	}
	if (memwait_loop_new(&loop, 0) || memwait_op_init(&op, loop, have_lock, shared) ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, memwait_loop_fd(loop), &event) ||
	    memwait_sem_timedwait(&shared->is_locked, &limit))
		return 1;
	if (memwait_mutex_lock_async(&shared->mutex, &op) != EINPROGRESS)
		return 1;
	printf("loop: it is locked, so I wait for other things too\n");
	if (memwait_sem_post(&shared->is_wanted))
		return 1;
	while (memwait_loop_pending(loop))
		if (epoll_wait(epoll, &event, 1, -1) == 1 &&
		    memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0)
			return 1;
	return memwait_loop_close(loop) || wait(&status) < 0 || status ? 1 : 0;
}
