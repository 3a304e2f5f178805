// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* A memwait loop in libevent: a persistent read event on the loop's descriptor. */
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <memwait.h>

static memwait_loop_t *loop;
static memwait_waitgroup_t group = MEMWAIT_WAITGROUP_INIT;
static long results[3];
static long sum;

static void *work(void *arg)
{
	long *result = arg;

	*result = 14 * (result - results);
	if (memwait_waitgroup_done(&group))
		exit(1);
	return NULL;
}

/* All workers are done, and their results can be read. */
static void add_up(memwait_op_t *op, int result, void *data)
{
	int i;

	(void)op;
	for (i = 0; !result && i < 3; i++)
		sum += results[i];
	printf("the workers' sum is %ld\n", sum);
	event_base_loopbreak(data);
}

static void dispatch(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	(void)data;
	if (memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0)
		exit(1);
}

int main(void)
{
	struct event_base *base = event_base_new();
	pthread_t threads[3];
	struct event *event;
	memwait_op_t op;
	int i, err;

	err = memwait_loop_new(&loop, 0);
	if (err) {
		fprintf(stderr, "memwait_loop_new: %s\n", memwait_strerror(err));
		return 1;
	}
	event = event_new(base, memwait_loop_fd(loop), EV_READ | EV_PERSIST, dispatch, NULL);
	event_add(event, NULL);

	if (memwait_waitgroup_add(&group, 3) || memwait_op_init(&op, loop, add_up, base) ||
	    memwait_waitgroup_wait_async(&group, &op) != EINPROGRESS)
		return 1;
	for (i = 0; i < 3; i++)
		if (pthread_create(&threads[i], NULL, work, &results[i]))
			return 1;
	event_base_dispatch(base);

	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	event_free(event);
	event_base_free(base);
	return sum == 42 && !memwait_loop_close(loop) ? 0 : 1;
}
