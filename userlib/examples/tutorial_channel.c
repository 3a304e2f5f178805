// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* A channel between two processes: one process sends, and may sleep; the other's loop receives. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memwait.h>

#define CAPACITY	2
#define ITEMS		5

static int item;	/* must stay in place while it is being received */

static int send_all(memwait_channel_t *channel)
{
	int i;

	for (i = 1; i <= ITEMS; i++)	/* sleeps while the channel is full */
		if (memwait_channel_send(channel, &i, sizeof(i)))
			return 1;
	return memwait_channel_close(channel) ? 1 : 0;
}

/* Receives all items that are available, and then waits for more with the same operation. */
static void receive(memwait_op_t *op, int result, void *channel)
{
	while (!result) {
		printf("received %d\n", item);
		result = memwait_channel_recv_async(channel, &item, sizeof(item), op);
	}
	if (result == EPIPE)
		printf("closed\n");
	else if (result != EINPROGRESS)
		printf("%s\n", memwait_strerror(result));
}

int main(void)
{
	size_t size = memwait_channel_size(sizeof(int), CAPACITY);
	memwait_channel_t *channel = mmap(NULL, size, PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct pollfd fd = { .events = POLLIN };
	memwait_loop_t *loop;
	memwait_op_t op;
	int status;

	if (channel == MAP_FAILED || memwait_channel_init(channel, size, 0, sizeof(int), CAPACITY))
		return 1;
	switch (fork()) {
	case -1:
		return 1;
	case 0:
		_exit(send_all(channel));
	}
	if (memwait_loop_new(&loop, 0) || memwait_op_init(&op, loop, receive, channel))
		return 1;
	fd.fd = memwait_loop_fd(loop);
	receive(&op, memwait_channel_recv_async(channel, &item, sizeof(item), &op), channel);
	while (memwait_loop_pending(loop))
		if (poll(&fd, 1, -1) == 1 && memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0)
			return 1;
	return memwait_loop_close(loop) || wait(&status) < 0 || status ? 1 : 0;
}
