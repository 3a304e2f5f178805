// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * One thread, two loops: Asio's has timers and sockets, and polls the descriptor of memwait's,
 * whose coroutines wait for a lock that another process has.
 */
#include <memwait.hpp>

#include <asio.hpp>
#include <cstdio>

#include <sys/wait.h>

using namespace std::chrono_literals;

/* Keeps asio::io_context::run() going while operations are pending. */
class bridge {
public:
	bridge(asio::io_context &context, memwait::loop &loop)
		: loop_(loop), descriptor_(context, loop.fd())
	{
		wait();
	}

	/* The descriptor stays the loop's. */
	~bridge()
	{
		descriptor_.release();
	}

private:
	void wait()
	{
		descriptor_.async_wait(descriptor_.wait_read, [this](asio::error_code error) {
			if (error)
				return;
			loop_.dispatch();
			if (loop_.pending())
				wait();
		});
	}

	memwait::loop &loop_;
	asio::posix::stream_descriptor descriptor_;
};

static memwait::task<int> use(memwait::loop &loop, memwait::mutex &mutex, int &ticks)
{
	auto lock = co_await mutex.try_lock_async(loop, 1ms);

	if (lock)
		co_return -1;
	std::puts("not yet");
	lock = co_await mutex.lock_async(loop);
	std::puts("locked");
	co_return ticks;
}

int main()
try {
	memwait::mapping memory(sizeof(memwait::mutex));
	memwait::mutex &mutex = memory.construct<memwait::mutex>(0);
	int pipes[2];
	char byte = 0;

	/* The child has the mutex when it writes the first byte, and until it can read one. */
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pipes))
		return 1;
	if (!fork()) {
		std::lock_guard lock(mutex);

		if (write(pipes[1], &byte, 1) != 1 || read(pipes[1], &byte, 1) != 1)
			_exit(1);
		mutex.unlock();
		_exit(0);
	}
	if (read(pipes[0], &byte, 1) != 1)
		return 1;

	asio::io_context context;
	memwait::loop loop;
	int ticks = 0;
	memwait::task<int> task = use(loop, mutex, ticks);
	bridge bridge(context, loop);
	asio::steady_timer timer(context);
	std::function<void(const asio::error_code &)> tick = [&](const asio::error_code &) {
		timer.expires_after(10ms);
		if (++ticks < 5)
			timer.async_wait(tick);
		else if (write(pipes[0], &byte, 1) != 1)
			std::abort();
	};

	tick({});
	context.run();
	wait(nullptr);
	std::printf("after %d ticks\n", task.get());
	return task.done() && ticks == 5 ? 0 : 1;
} catch (const std::exception &error) {
	std::fprintf(stderr, "%s\n", error.what());
	return 1;
}
