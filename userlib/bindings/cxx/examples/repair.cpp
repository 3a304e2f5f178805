// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* A process is killed while it holds a mutex, and the next owner repairs the data. */
#include <csignal>
#include <cstdio>
#include <mutex>
#include <sys/wait.h>
#include <unistd.h>
#include <memwait.hpp>

struct account {
	memwait::robust_state state;
	int paid, received;
};

int main()
{
	memwait::mapping memory(sizeof(account));
	account &data = memory.construct<account>(0);
	/* The next owner calls this function, with the mutex locked. */
	memwait::robust_mutex mutex(data.state, [&data] {
		std::puts("repair: the owner died");
		data.received = data.paid;
	});

	if (!fork()) {
		mutex.lock();
		data.paid = 100;
		std::raise(SIGKILL);		/* before it could change received */
	}
	wait(nullptr);

	std::lock_guard lock(mutex);
	std::printf("paid %d, received %d\n", data.paid, data.received);
	return data.received != 100;
}
