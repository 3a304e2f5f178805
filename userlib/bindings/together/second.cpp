// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The C++ program, which uses a coroutine: second FILE */
#include <memwait/task.hpp>

#include <array>
#include <cstdio>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "together.h"

using item = std::array<char, ITEM>;

static memwait::task<bool> take_turns(memwait::loop &loop, const memwait::mapping &memory)
{
	memwait::fair_mutex &mutex = memory.attach<memwait::fair_mutex>(MUTEX);
	auto channel = memwait::channel<item>::attach(memory.at(CHANNEL, SIZE - CHANNEL),
						       SIZE - CHANNEL);
	char *bytes = static_cast<char *>(memory.data());
	bool right = true;

	co_await channel.send_async(loop, item{ "C++" });
	for (int i = 0; i < ROUNDS && right; i++) {
		auto lock = co_await mutex.lock_async(loop);

		right = turn_begins(bytes, '+');
		usleep(HOLD_MS * 1000);
		right = turn_ends(bytes, '+') && right;
	}
	co_await channel.send_async(loop, item{ "C++" });
	co_return right;
}

int main(int argc, char **argv)
try {
	if (argc != 2)
		return 2;
	memwait::mapping memory(open(argv[1], O_RDWR), SIZE);
	memwait::loop loop;
	auto task = take_turns(loop, memory);

	while (loop.pending()) {
		pollfd fd = { loop.fd(), POLLIN, 0 };

		poll(&fd, 1, -1);
		loop.dispatch();
	}
	return task.get() ? 0 : 1;
} catch (const std::system_error &error) {
	std::fprintf(stderr, "C++: %s\n", error.what());
	return 1;
}
