// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * One thread, two loops: Asio's loop has timers and sockets, and polls the descriptor of memwait's
 * loop. async_lock() is an Asio-style function that takes a completion token: a callback,
 * asio::use_awaitable, asio::use_future ... It waits for a lock that another process holds.
 */
#include <memwait.hpp>

#include <asio.hpp>
#include <cstdio>

#include <sys/wait.h>

using namespace std::chrono_literals;
using mutex_lock = std::unique_lock<memwait::fair_mutex>;

/* Dispatches memwait's loop from Asio's. asio::io_context::run() does not return before stop(). */
class bridge {
public:
	bridge(asio::io_context &context, memwait::loop &loop)
		: loop_(loop), descriptor_(context, loop.fd())
	{
		wait();
	}

	/* The descriptor belongs to the loop: do not close it. */
	~bridge()
	{
		descriptor_.release();
	}

	void stop()
	{
		descriptor_.cancel();
	}

private:
	void wait()
	{
		descriptor_.async_wait(descriptor_.wait_read, [this](asio::error_code error) {
			if (error)
				return;
			loop_.dispatch();
			wait();
		});
	}

	memwait::loop &loop_;
	asio::posix::stream_descriptor descriptor_;
};

/* A coroutine that begins immediately, and that destroys itself at its end. */
struct detached {
	struct promise_type {
		detached get_return_object() const noexcept
		{
			return {};
		}

		std::suspend_never initial_suspend() const noexcept
		{
			return {};
		}

		std::suspend_never final_suspend() const noexcept
		{
			return {};
		}

		void return_void() const noexcept
		{
		}

		void unhandled_exception() const noexcept
		{
			std::terminate();
		}
	};
};

/* Other operations of memwait are adapted in the same way. */
template <class Handler, class Executor>
static detached lock_and_call(memwait::loop &loop, memwait::fair_mutex &mutex, Handler handler,
			      Executor executor)
{
	std::exception_ptr error;
	mutex_lock lock;

	try {
		lock = co_await mutex.lock_async(loop);
	} catch (...) {
		error = std::current_exception();
	}
	/* Do not call the handler within the initiating function. */
	asio::post(executor, [error, handler = std::move(handler),
			      lock = std::move(lock)]() mutable {
		std::move(handler)(error, std::move(lock));
	});
}

template <class Token>
static auto async_lock(asio::io_context &context, memwait::loop &loop, memwait::fair_mutex &mutex,
		       Token &&token)
{
	auto begin = [&context, &loop, &mutex](auto handler) {
		auto executor = asio::get_associated_executor(handler, context.get_executor());

		lock_and_call(loop, mutex, std::move(handler), executor);
	};

	return asio::async_initiate<Token, void(std::exception_ptr, mutex_lock)>(begin, token);
}

static asio::awaitable<int> use(asio::io_context &context, memwait::loop &loop,
				memwait::fair_mutex &mutex, const int &ticks)
{
	mutex_lock lock = co_await async_lock(context, loop, mutex, asio::use_awaitable);

	std::printf("coroutine: locked after %d ticks\n", ticks);
	co_return lock.owns_lock() ? ticks : -1;
}

int main()
try {
	memwait::mapping memory(sizeof(memwait::fair_mutex));
	auto &mutex = memory.construct<memwait::fair_mutex>(0);
	int pipes[2], ticks = 0, seen = 0;
	char byte = 0;

	/*
	 * The child locks the mutex, writes a byte, and holds the mutex until it has read a byte.
	 */
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
	bridge bridge(context, loop);
	asio::steady_timer timer(context);
	std::function<void(const asio::error_code &)> tick = [&](const asio::error_code &) {
		timer.expires_after(10ms);
		if (++ticks < 5)
			timer.async_wait(tick);
		else if (write(pipes[0], &byte, 1) != 1)
			std::abort();
	};

	async_lock(context, loop, mutex, [](std::exception_ptr error, mutex_lock lock) {
		if (error)
			std::rethrow_exception(error);
		std::puts(lock.owns_lock() ? "callback: locked" : "callback: not locked");
	});
	asio::co_spawn(context, use(context, loop, mutex, ticks),
		       [&](std::exception_ptr error, int had) {
		if (error)
			std::rethrow_exception(error);
		seen = had;
		bridge.stop();
	});
	tick({});
	context.run();
	wait(nullptr);
	return seen == 5 ? 0 : 1;
} catch (const std::exception &error) {
	std::fprintf(stderr, "%s\n", error.what());
	return 1;
}
