// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* A loop receives items until the sender ends or dies; a robust mutex reports the end or death. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memwait.h>

#define CAPACITY	8

static memwait_mutex_t *alive;	/* locked by the sender while it lives */
static memwait_sem_t *begun;
static memwait_channel_t *channel;
static pid_t sender;
static int item, err;

static void *share(size_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static int send_some(void)
{
	int i;

	if (memwait_mutex_lock(alive) || memwait_sem_post(begun))
		return 1;
	for (i = 1; i <= 2; i++)
		if (memwait_channel_send(channel, &i, sizeof(i)))
			return 1;
	sleep(60);	/* until it is killed */
	return memwait_channel_close(channel) || memwait_mutex_unlock(alive) ? 1 : 0;
}

static void receive(memwait_op_t *op, int result, void *data)
{
	(void)data;
	for (; !result; result = memwait_channel_recv_async(channel, &item, sizeof(item), op)) {
		printf("received %d\n", item);
		if (item == 2)
			kill(sender, SIGKILL);
	}
	if (result == EPIPE)
		printf("nothing more will come\n");
	else if (result != EINPROGRESS)
		err = result;
}

/* If the loop gets the mutex, the sender is gone. Items that it has sent are still received. */
static void is_gone(memwait_op_t *op, int result, void *data)
{
	(void)op;
	(void)data;
	if (!result || result == EOWNERDEAD) {
		printf("the sender %s\n", result ? "died" : "ended");
		result = memwait_channel_close(channel);
	}
	if (result)
		err = result;
}

int main(void)
{
	struct timespec limit = { .tv_sec = time(NULL) + 60 };	/* if the sender fails */
	struct pollfd fd = { .events = POLLIN };
	memwait_op_t death, reception;
	memwait_loop_t *loop;
	size_t size;

	alive = share(sizeof(*alive));
	begun = share(sizeof(*begun));
	size = memwait_channel_size(sizeof(item), CAPACITY);
	channel = share(size);
	if (alive == MAP_FAILED || begun == MAP_FAILED || channel == MAP_FAILED ||
	    memwait_mutex_init(alive, MEMWAIT_MUTEX_ROBUST) ||
	    memwait_channel_init(channel, size, 0, sizeof(item), CAPACITY))
		return 1;
	sender = fork();
	if (!sender)
		_exit(send_some());
	if (sender < 0 || memwait_loop_new(&loop, 0) ||
	    memwait_op_init(&death, loop, is_gone, NULL) ||
	    memwait_op_init(&reception, loop, receive, NULL) ||
	    memwait_sem_timedwait(begun, &limit) ||
	    memwait_mutex_lock_async(alive, &death) != EINPROGRESS)
		return 1;
	receive(&reception, memwait_channel_recv_async(channel, &item, sizeof(item), &reception),
		NULL);
	fd.fd = memwait_loop_fd(loop);
	while (!err && memwait_loop_pending(loop))
		if (poll(&fd, 1, -1) == 1 && memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0)
			return 1;
	if (err)
		printf("%s\n", memwait_strerror(err));
	kill(sender, SIGKILL);
	return memwait_loop_close(loop) || waitpid(sender, NULL, 0) < 0 || err ? 1 : 0;
}
