// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A thousand coroutines in one thread share a mutex with another process, whose thread blocks. They
 * then send their results to that process through a channel. One more coroutine waits for an event
 * that never happens, and is cancelled.
 */
#include <memwait/task.hpp>

#include <cstdio>
#include <vector>

#include <poll.h>
#include <sys/wait.h>

constexpr int coroutines = 1000, threads_rounds = 100;
using results = memwait::channel<int>;

struct shared {
	memwait::fair_mutex mutex;
	memwait::binary_semaphore never{ 0 };
	int counter;
	alignas(64) char channel[4096];
};

static memwait::task<> count(memwait::loop &loop, shared &data, int number)
{
	{
		auto lock = co_await data.mutex.lock_async(loop);	/* a std::unique_lock */

		data.counter++;
	}
	co_await results::attach(data.channel, sizeof(data.channel)).send_async(loop, number);
}

static memwait::task<> wait_in_vain(memwait::loop &loop, shared &data)
{
	co_await data.never.acquire_async(loop);
	std::puts("never");
}

static int count_in_thread(shared &data)
{
	results channel = results::attach(data.channel, sizeof(data.channel));
	int sum = 0;

	for (int i = 0; i < threads_rounds; i++) {
		std::lock_guard lock(data.mutex);

		data.counter++;
	}
	while (std::optional<int> number = channel.receive())
		sum += *number;
	return sum != coroutines * (coroutines - 1) / 2;
}

int main()
try {
	memwait::mapping memory(sizeof(shared));
	shared &data = memory.construct<shared>(0);
	results channel(data.channel, sizeof(data.channel), 16);
	pid_t pid = fork();

	if (!pid)
		_exit(count_in_thread(data));
	{
		memwait::loop loop;
		std::vector<memwait::task<>> tasks;
		memwait::task<> vain = wait_in_vain(loop, data);

		for (int i = 0; i < coroutines; i++)
			tasks.push_back(count(loop, data, i));
		/* Until one operation is left. An event loop would poll loop.fd() as well. */
		while (loop.pending() > 1) {
			pollfd fd = { loop.fd(), POLLIN, 0 };

			poll(&fd, 1, -1);
			loop.dispatch();
		}
		for (memwait::task<> &task : tasks)
			task.get();	/* rethrows an exception of the coroutine */
	}
	channel.close();

	int status;
	waitpid(pid, &status, 0);
	std::printf("counter %d, sum %s\n", data.counter, status ? "wrong" : "right");
	return status || data.counter != coroutines + threads_rounds;
} catch (const std::system_error &error) {
	std::fprintf(stderr, "%s\n", error.what());
	return 1;
}
