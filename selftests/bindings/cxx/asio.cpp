// SPDX-License-Identifier: GPL-2.0-only
/*
 * Asio polls for edges. Many operations end together, and there is one dispatch for each readiness
 * event.
 */
#include <memwait/task.hpp>

#include "test.hpp"

#include <asio.hpp>
#include <vector>

constexpr int crowd = 300;

static memwait::task<> acquire(memwait::loop &loop, memwait::counting_semaphore<> &sem, int &done)
{
	co_await sem.acquire_async(loop);
	done++;
}

static void dispatch_when_readable(asio::posix::stream_descriptor &descriptor, memwait::loop &loop)
{
	descriptor.async_wait(descriptor.wait_read, [&](asio::error_code error) {
		CHECK(!error);
		loop.dispatch();
		if (loop.pending())
			dispatch_when_readable(descriptor, loop);
	});
}

static void one_readiness()
{
	memwait::counting_semaphore<> sem{ 0 };
	asio::io_context context;
	memwait::loop loop;
	std::vector<memwait::task<>> tasks;
	asio::posix::stream_descriptor descriptor(context, loop.fd());
	int done = 0;

	for (int i = 0; i < crowd; i++)
		tasks.push_back(acquire(loop, sem, done));
	dispatch_when_readable(descriptor, loop);
	asio::post(context, [&] { sem.release(crowd); });
	context.run();
	CHECK(done == crowd);
	descriptor.release();
}

int main()
{
	test("many operations end at one readiness", one_readiness);
	return failed_tests != 0;
}
