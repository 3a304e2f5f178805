// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Two processes take turns at a counter, using the standard library's guards with a mutex and a
 * condition variable in shared memory. A third process dies while it holds a robust mutex, and
 * leaves a wrong sum, which the next owner repairs.
 */
#include <memwait.hpp>

#include <cstdio>
#include <mutex>

#include <signal.h>
#include <sys/wait.h>

struct shared {
	memwait::mutex mutex;
	memwait::condition_variable turned;
	int turn;

	memwait::robust_state state;
	int parts[2];
	int sum;
};

static void take_turns(shared &data, int me)
{
	for (int i = 0; i < 100; i++) {
		std::unique_lock lock(data.mutex);

		data.turned.wait(lock, [&] { return data.turn % 2 == me; });
		data.turn++;
		data.turned.notify_one();
	}
}

/* Runs @work in a child process, and waits for the end of the child. */
template <class Work>
static void in_child(Work work)
{
	pid_t pid = fork();

	if (!pid) {
		work();
		_exit(0);
	}
	waitpid(pid, nullptr, 0);
}

int main()
try {
	/* Unrelated processes map a file: mapping(fd, size). */
	memwait::mapping memory(sizeof(shared));
	shared &data = memory.construct<shared>(0);
	pid_t pid = fork();

	if (!pid) {
		take_turns(data, 1);
		_exit(0);
	}
	take_turns(data, 0);
	waitpid(pid, nullptr, 0);
	std::printf("%d turns\n", data.turn);

	memwait::robust_mutex mutex(data.state, [&] { data.sum = data.parts[0] + data.parts[1]; });
	in_child([&] {
		std::lock_guard lock(mutex);

		data.parts[0] = 3;
		data.sum += 3;
		data.parts[1] = 4;
		raise(SIGKILL);
	});
	std::lock_guard lock(mutex);
	std::printf("sum %d\n", data.sum);
	return data.turn != 200 || data.sum != 7;
} catch (const std::system_error &error) {
	std::fprintf(stderr, "%s\n", error.what());
	return 1;
}
