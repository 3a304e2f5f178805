// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A queue between two processes. One process blocks while the queue is full; a coroutine in the
 * other process receives, and its event loop is poll(2).
 */
#include <cstdio>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <memwait/task.hpp>

using queue = memwait::channel<int>;

static memwait::task<> receive(memwait::loop &loop, queue &numbers)
{
	while (std::optional<int> number = co_await numbers.receive_async(loop))
		std::printf("received %d\n", *number);
}

int main()
{
	memwait::mapping memory(4096);
	queue numbers(memory.data(), memory.size(), 16);	/* holds up to 16 items */

	if (!fork()) {
		for (int number : { 10, 20, 30 })
			numbers.send(number);	/* blocks while the queue is full */
		numbers.close();		/* ends the loop of the receiver */
		_exit(0);
	}

	memwait::loop loop;
	memwait::task<> task = receive(loop, numbers);
	pollfd fd = { loop.fd(), POLLIN, 0 };	/* poll other descriptors in the same call */

	while (!task.done()) {
		poll(&fd, 1, -1);
		loop.dispatch();		/* resumes coroutines, and never blocks */
	}
	task.get();				/* rethrows an exception of the coroutine */
	return wait(nullptr) < 0;
}
