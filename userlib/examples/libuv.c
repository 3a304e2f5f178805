// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A memwait loop in a libuv loop: a uv_poll_t on the loop's descriptor. The poll handle prevents
 * uv_run() from returning exactly while an operation is pending, unlike Atomics.waitAsync in
 * Node.js.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include <memwait.h>

struct waiter {
	memwait_sem_t sem;
	memwait_op_t op;
	int got;
};

static memwait_loop_t *loop;
static uv_poll_t handle;

/* Must be called whenever operations may have begun or ended. */
static void keep_alive_for_pending(void)
{
	if (memwait_loop_pending(loop))
		uv_ref((uv_handle_t *)&handle);
	else
		uv_unref((uv_handle_t *)&handle);
}

static void dispatch(uv_poll_t *poll, int status, int events)
{
	(void)poll;
	(void)events;
	if (status >= 0 && memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0)
		exit(1);
	keep_alive_for_pending();
}

static void got_post(memwait_op_t *op, int result, void *data)
{
	struct waiter *waiter = data;

	do {
		if (result)
			break;
		printf("post %d\n", ++waiter->got);
		if (waiter->got == 3)
			break;
		result = memwait_sem_wait_async(&waiter->sem, op);
	} while (result != EINPROGRESS);
}

static void *post(void *arg)
{
	int i;

	for (i = 0; i < 3; i++) {
		uv_sleep(20);
		if (memwait_sem_post(arg))
			exit(1);
	}
	return NULL;
}

int main(void)
{
	struct waiter waiter = { 0 };
	pthread_t thread;
	int err = memwait_loop_new(&loop, 0);

	if (err) {
		fprintf(stderr, "memwait_loop_new: %s\n", memwait_strerror(err));
		return 1;
	}
	uv_poll_init(uv_default_loop(), &handle, memwait_loop_fd(loop));
	uv_poll_start(&handle, UV_READABLE, dispatch);

	if (memwait_sem_init(&waiter.sem, MEMWAIT_PRIVATE, 0) ||
	    memwait_op_init(&waiter.op, loop, got_post, &waiter) ||
	    memwait_sem_wait_async(&waiter.sem, &waiter.op) != EINPROGRESS ||
	    pthread_create(&thread, NULL, post, &waiter.sem))
		return 1;
	keep_alive_for_pending();

	/* Returns when nothing is pending any more. */
	uv_run(uv_default_loop(), UV_RUN_DEFAULT);
	pthread_join(thread, NULL);
	uv_close((uv_handle_t *)&handle, NULL);
	uv_run(uv_default_loop(), UV_RUN_DEFAULT);
	uv_loop_close(uv_default_loop());
	return waiter.got == 3 && !memwait_loop_close(loop) ? 0 : 1;
}
