// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A plain epoll loop that waits for a word of shared memory along with its other descriptors.
 * Another process increments the word; the loop follows its value, and never blocks on it.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memwait.h>

#define LAST	5

struct follower {
	_Atomic uint32_t *word;
	uint32_t seen;
	memwait_op_t op;
};

/* Looks at the word, and begins an operation that waits for the next change. */
static void follow(memwait_op_t *op, int result, void *data)
{
	struct follower *follower = data;
	uint32_t now;

	if (result < 0)
		return;
	do {
		now = atomic_load(follower->word);
		if (now != follower->seen)
			printf("the word is %u\n", now);
		follower->seen = now;
		if (now == LAST)
			return;
		/* NOT_EQUAL: the word has changed since it was loaded. */
		result = memwait_wait32_async(follower->word, now, NULL, 0, op);
	} while (result == MEMWAIT_NOT_EQUAL);
}

static void count_up(_Atomic uint32_t *word)
{
	const struct timespec pause = { 0, 20000000 };
	int i;

	for (i = 1; i <= LAST; i++) {
		nanosleep(&pause, NULL);
		atomic_store(word, i);
		if (memwait_notify((void *)word, MEMWAIT_ALL, 0) < 0)
			_exit(1);
	}
	_exit(0);
}

int main(void)
{
	struct itimerspec every = { { 0, 30000000 }, { 0, 30000000 } };
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	struct epoll_event event = { .events = EPOLLIN };
	struct follower follower = { 0 };
	memwait_loop_t *loop;
	uint64_t ticks;
	int err;

	follower.word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			     0);
	err = memwait_loop_new(&loop, 0);
	if (err || follower.word == MAP_FAILED) {
		fprintf(stderr, "memwait_loop_new: %s\n", memwait_strerror(err));
		return 1;
	}
	if (memwait_op_init(&follower.op, loop, follow, &follower))
		return 1;
	switch (fork()) {
	case -1:
		return 1;
	case 0:
		count_up(follower.word);
	}

	event.data.fd = memwait_loop_fd(loop);
	epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
	event.data.fd = timer;
	epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event);
	timerfd_settime(timer, 0, &every, NULL);

	follow(&follower.op, MEMWAIT_OK, &follower);
	/* While the operation is pending, the loop waits for it. */
	while (memwait_loop_pending(loop)) {
		if (epoll_wait(epoll, &event, 1, -1) < 0)
			continue;
		if (event.data.fd == timer)
			printf("tick, %zd\n", read(timer, &ticks, sizeof(ticks)));
		else
			memwait_loop_dispatch(loop, MEMWAIT_ALL);
	}
	wait(NULL);
	return follower.seen == LAST && !memwait_loop_close(loop) ? 0 : 1;
}
