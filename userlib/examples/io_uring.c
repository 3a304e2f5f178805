// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A memwait loop in a program that waits with io_uring: a poll request on the loop's descriptor,
 * which is submitted again after each dispatch.
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memwait.h>

static memwait_loop_t *loop;
static memwait_mutex_t mutex = MEMWAIT_MUTEX_INIT;
static memwait_cond_t cond = MEMWAIT_COND_INIT;
static int ready, seen;

/* The caller holds the mutex. */
static void look(memwait_op_t *op, int result, void *data)
{
	(void)data;
	while (!result) {
		if (ready > seen)
			printf("ready: %d\n", seen = ready);
		if (seen == 3)
			break;
		result = memwait_cond_wait_async(&cond, &mutex, op);
		if (result == EINPROGRESS)
			return;
	}
	if (memwait_mutex_unlock(&mutex))
		seen = -1;
}

static void *make_ready(void *arg)
{
	const struct timespec pause = { 0, 20000000 };
	int i;

	(void)arg;
	for (i = 0; i < 3; i++) {
		nanosleep(&pause, NULL);
		if (memwait_mutex_lock(&mutex))
			exit(1);
		ready++;
		if (memwait_mutex_unlock(&mutex) || memwait_cond_signal(&cond))
			exit(1);
	}
	return NULL;
}

int main(void)
{
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	struct io_uring ring;
	pthread_t thread;
	memwait_op_t op;
	int err;

	err = io_uring_queue_init(8, &ring, 0);
	if (err) {
		printf("no io_uring here: %s\n", strerror(-err));
		return 4;
	}
	err = memwait_loop_new(&loop, 0);
	if (err) {
		fprintf(stderr, "memwait_loop_new: %s\n", memwait_strerror(err));
		return 1;
	}
	if (memwait_op_init(&op, loop, look, NULL) || memwait_mutex_lock(&mutex))
		return 1;
	look(&op, 0, NULL);
	if (pthread_create(&thread, NULL, make_ready, NULL))
		return 1;

	while (memwait_loop_pending(loop)) {
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_poll_add(sqe, memwait_loop_fd(loop), POLLIN);
		io_uring_submit_and_wait(&ring, 1);
		if (io_uring_peek_cqe(&ring, &cqe))
			continue;
		io_uring_cqe_seen(&ring, cqe);
		if (memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0)
			return 1;
	}
	pthread_join(thread, NULL);
	io_uring_queue_exit(&ring);
	return seen == 3 && !memwait_loop_close(loop) ? 0 : 1;
}
