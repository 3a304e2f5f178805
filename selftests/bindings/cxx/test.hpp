// SPDX-License-Identifier: GPL-2.0-only
/*
 * A test is a function. test() prints "ok NAME" or "not ok NAME". CHECK() prints the expression
 * that failed.
 */
#ifndef TEST_HPP
#define TEST_HPP

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memwait.h>

inline int failed_checks, failed_tests;

#define CHECK(condition)							\
	do {									\
		if (!(condition)) {						\
			std::printf("# %s:%d: %s\n", __FILE__, __LINE__, #condition);	\
			failed_checks++;					\
		}								\
	} while (0)

/* Checks that @statement throws std::system_error with @errc, in the category of memwait. */
#define CHECK_ERROR(errc, statement)						\
	do {									\
		std::error_code thrown_code;						\
		try {								\
			statement;						\
		} catch (const std::system_error &error) {			\
			thrown_code = error.code();					\
		}								\
		if (thrown_code != errc ||					\
		    thrown_code.category() != memwait::error_category()) {	\
			std::printf("# %s:%d: %s: %s\n", __FILE__, __LINE__, #statement,	\
				    thrown_code.message().c_str());			\
			failed_checks++;					\
		}								\
	} while (0)

/*
 * The time limit that ends a test that hangs: seconds on an idle machine, multiplied by the
 * measured slowness (see measure_slowness() in selftests/vm/init).
 */
inline unsigned int limit(unsigned int seconds)
{
	const char *slowness = std::getenv("MEMWAIT_SLOWNESS");

	return seconds * static_cast<unsigned int>(slowness ? std::atoi(slowness) : 1);
}

inline void test(const char *name, void (*function)())
{
	/* End the program if the test hangs. */
	alarm(limit(120));
	std::setvbuf(stdout, nullptr, _IOLBF, 0);
	failed_checks = 0;
	try {
		function();
	} catch (const std::exception &error) {
		std::printf("# throws %s\n", error.what());
		failed_checks++;
	}
	alarm(0);
	failed_tests += failed_checks != 0;
	std::printf("%sok %s\n", failed_checks ? "not " : "", name);
	std::fflush(stdout);
}

/* Returns the state of a thread or process, as one letter: see proc(5). */
inline char state_of(pid_t id)
{
	std::ifstream file("/proc/" + std::to_string(id) + "/stat");
	std::stringstream text;
	std::string all;
	std::size_t end;

	text << file.rdbuf();
	all = text.str();
	end = all.rfind(')');
	return end == std::string::npos ? 'X' : all[end + 2];
}

inline void await_asleep(pid_t id)
{
	while (state_of(id) != 'S')
		std::this_thread::yield();
}

template <class Condition>
void await(Condition condition)
{
	while (!condition())
		std::this_thread::yield();
}

/* Counts the waiters of a mutex. Waiters of a fair mutex wait on its second byte. */
template <class Mutex>
int sleepers(Mutex &mutex)
{
	const char *word = reinterpret_cast<const char *>(mutex.native_handle());

	return memwait_waiters(word, 0) + memwait_waiters(word + 1, 0);
}

/* A thread whose sleep can be awaited. */
class sleeper {
public:
	explicit sleeper(std::function<void()> work)
		: thread_([this, work] {
			id_ = static_cast<pid_t>(syscall(SYS_gettid));
			work();
		})
	{
	}

	~sleeper()
	{
		if (thread_.joinable())
			thread_.join();
	}

	void await_asleep()
	{
		await([this] { return id_ != 0; });
		::await_asleep(id_);
	}

	void join()
	{
		thread_.join();
	}

private:
	std::atomic<pid_t> id_{ 0 };
	std::thread thread_;
};

/* Forks a child that runs @work. The child exits with 1 if a check has failed in it. */
template <class Work>
pid_t child(Work work)
{
	pid_t pid;

	std::fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	alarm(limit(60));
	failed_checks = 0;
	try {
		work();
	} catch (const std::exception &error) {
		std::printf("# child throws %s\n", error.what());
		failed_checks++;
	}
	std::fflush(stdout);
	_exit(failed_checks ? 1 : 0);
}

/* Returns the status of the child, as waitpid() does. */
inline int wait_for_child(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

inline void kill_child(pid_t pid)
{
	kill(pid, SIGKILL);
	wait_for_child(pid);
}

#endif /* TEST_HPP */
