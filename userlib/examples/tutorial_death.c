// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* A process is killed while it holds a lock. Another process's event loop repairs the data. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memwait.h>

struct shared {
	memwait_mutex_t mutex;
	memwait_sem_t is_half_done;
	_Atomic int mine, yours;	/* together 100 */
};

/* Moves 30 from one account to the other, but is killed after the first half. */
static int transfer(struct shared *shared)
{
	if (memwait_mutex_lock(&shared->mutex))
		return 1;
	shared->mine -= 30;
	if (memwait_sem_post(&shared->is_half_done))
		return 1;
	sleep(60);	/* until it is killed */
	shared->yours += 30;
	return memwait_mutex_unlock(&shared->mutex);
}

static void have_lock(memwait_op_t *op, int result, void *data)
{
	struct shared *shared = data;

	(void)op;
	if (result == EOWNERDEAD) {	/* locked, too */
		printf("its owner died: %d and %d\n", shared->mine, shared->yours);
		shared->yours = 100 - shared->mine;
		result = memwait_mutex_consistent(&shared->mutex);
	}
	if (!result)
		printf("repaired: %d and %d\n", shared->mine, shared->yours);
	if (result || memwait_mutex_unlock(&shared->mutex))
		printf("failed\n");
}

int main(void)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct timespec limit = { .tv_sec = time(NULL) + 60 };	/* in case the child fails */
	struct pollfd fd = { .events = POLLIN };
	memwait_loop_t *loop;
	memwait_op_t op;
	pid_t child;

	if (shared == MAP_FAILED || memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST))
		return 1;
	shared->mine = 100;
	child = fork();
	if (!child)
		_exit(transfer(shared));
	if (child < 0 || memwait_loop_new(&loop, 0) ||
	    memwait_op_init(&op, loop, have_lock, shared) ||
	    memwait_sem_timedwait(&shared->is_half_done, &limit) ||
	    memwait_mutex_lock_async(&shared->mutex, &op) != EINPROGRESS)
		return 1;
	fd.fd = memwait_loop_fd(loop);
	kill(child, SIGKILL);
	while (memwait_loop_pending(loop))
		if (poll(&fd, 1, -1) == 1 && memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0)
			return 1;
	return memwait_loop_close(loop) || waitpid(child, NULL, 0) < 0 ? 1 : 0;
}
