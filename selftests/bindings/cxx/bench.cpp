// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures lock and unlock, and an awaited wake-up, in C and C++: see selftests/bench/bindings.
 * Without MEMWAIT_BENCH_ROUNDS it only checks that each contender counts correctly.
 */
#include <memwait/task.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <vector>

#include <sys/epoll.h>

static memwait::mapping memory(4096);
static auto &mutex = memory.construct<memwait::mutex>(0);
static auto &word = memory.construct<std::atomic<std::uint32_t>>(64, 0U);
static memwait::loop loop;
static std::mutex standard;
static int epoll = -1;
static volatile long count;

static bool turn()
{
	epoll_event event;

	return epoll_wait(epoll, &event, 1, 60000) == 1 && loop.dispatch() == 1;
}

static bool lock_c(long times)
{
	memwait_mutex_t *const handle = mutex.native_handle();
	int err = 0;

	for (long i = 0; i < times; i++) {
		err |= memwait_mutex_lock(handle);
		count = count + 1;
		err |= memwait_mutex_unlock(handle);
	}
	return !err;
}

template <class Mutex>
static bool lock(Mutex &lockable, long times)
{
	for (long i = 0; i < times; i++) {
		const std::lock_guard<Mutex> guard(lockable);

		count = count + 1;
	}
	return true;
}

static memwait::task<> lock_in_task(long times)
{
	for (long i = 0; i < times; i++) {
		const auto guard = co_await mutex.lock_async(loop);

		count = count + 1;
	}
}

static void woken(memwait_op_t *, int result, void *)
{
	if (result == MEMWAIT_OK)
		count = count + 1;
}

static bool wake_c(long times)
{
	memwait_op_t op;

	if (memwait_op_init(&op, loop.native_handle(), woken, nullptr))
		return false;
	for (long i = 0; i < times; i++) {
		if (memwait_wait32_async(&word, 0, nullptr, 0, &op) != MEMWAIT_PENDING ||
		    memwait_notify(&word, 1, MEMWAIT_SIZE_U32) != 1 || !turn())
			return false;
	}
	return true;
}

static memwait::task<> wake(long times)
{
	for (long i = 0; i < times; i++) {
		if (co_await memwait::wait_async(loop, word, 0) == memwait::outcome::ok)
			count = count + 1;
	}
}

static bool wake_cxx(long times)
{
	const memwait::task<> task = wake(times);

	for (long i = 0; i < times; i++) {
		if (memwait::notify_one(word) != 1 || !turn())
			return false;
	}
	return true;
}

struct contender {
	const char *name;
	bool (*run)(long times);
};

static std::uint64_t now()
{
	timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return static_cast<std::uint64_t>(time.tv_sec) * 1000000000 +
	       static_cast<std::uint64_t>(time.tv_nsec);
}

static bool work(const char *name, int rounds, long times, const std::vector<contender> &contenders)
{
	std::vector<std::vector<double>> figures(contenders.size());

	std::printf("#  RUN           bench.%s\n", name);
	/* The first round warms up. */
	for (int round = 0; round <= rounds; round++) {
		for (std::size_t i = 0; i < contenders.size(); i++) {
			const std::uint64_t start = now();

			count = 0;
			if (!contenders[i].run(times) || count != times) {
				std::printf("#     FAIL %s: %s has counted %ld of %ld\n", name,
					    contenders[i].name, +count, times);
				return false;
			}
			figures[i].push_back(static_cast<double>(now() - start) /
					     static_cast<double>(times));
		}
	}
	for (std::size_t i = 0; rounds && i < contenders.size(); i++) {
		std::printf("# bench\t%s\tns", contenders[i].name);
		std::for_each(figures[i].begin() + 1, figures[i].end(),
			      [](double ns) { std::printf("\t%.4g", ns); });
		std::printf("\n");
	}
	return true;
}

int main()
{
	const char *const text = std::getenv("MEMWAIT_BENCH_ROUNDS");
	const int rounds = text ? std::atoi(text) : 0;
	epoll_event event = {};

	event.events = EPOLLIN;
	epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, loop.fd(), &event))
		return 1;
	return !(work("binding_lock", rounds, rounds ? 20000 : 100, {
			{ "C", lock_c },
			{ "std::mutex", [](long times) { return lock(standard, times); } },
			{ "C++", [](long times) { return lock(mutex, times); } },
			{ "C++ co_await", [](long times) {
				lock_in_task(times).get();
				return true;
			} },
		 }) &&
		 work("binding_wake", rounds, rounds ? 2000 : 100, {
			{ "C", wake_c },
			{ "C++ co_await", wake_cxx },
		 }));
}
