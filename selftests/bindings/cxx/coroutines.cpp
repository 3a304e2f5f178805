// SPDX-License-Identifier: GPL-2.0-only
/* memwait.hpp for coroutines: each awaitable, cancellation at each point, shutdown, fork. */
#include <memwait/task.hpp>

#include "test.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>

using namespace std::chrono_literals;
using memwait::outcome;
using std::cv_status;

/* Dispatches the loop until @condition is true. */
template <class Condition>
static void dispatch_until(memwait::loop &loop, Condition condition)
{
	pollfd fd = { loop.fd(), POLLIN, 0 };

	while (!condition()) {
		poll(&fd, 1, -1);
		loop.dispatch();
	}
}

static std::atomic<int> cancels;

/* Interposes the library's function, to count the calls from memwait.hpp. */
extern "C" int memwait_op_cancel(memwait_op_t *op)
{
	static const auto real =
		reinterpret_cast<int (*)(memwait_op_t *)>(dlsym(RTLD_NEXT, "memwait_op_cancel"));

	cancels++;
	return real(op);
}

struct item {
	explicit item(int n) : number(n)
	{
	}

	int number;
};

/* The objects that a coroutine can wait for. */
struct objects {
	memwait::mutex mutex;
	memwait::fair_mutex fair;
	memwait::robust_state state;
	memwait::robust_mutex robust{ state, [] {} };
	memwait::condition_variable condition;
	memwait::mutex conditions_mutex;
	memwait::shared_mutex shared;
	memwait::counting_semaphore<> sem{ 0 };
	memwait::barrier barrier{ 2 };
	memwait::latch latch{ 1 };
	memwait::event event;
	std::atomic<int> word{ 0 };
	std::atomic<short> other_word{ 0 };
	alignas(64) char memory[2][512];
	memwait::channel<item> full{ memory[0], sizeof(memory[0]), 1 };
	memwait::channel<item> empty{ memory[1], sizeof(memory[1]), 1 };
	int has_lock = 0;

	objects()
	{
		full.send(item(1));
	}
};

/*
 * A way to wait. @block makes the wait block, and @wake ends it. After a waiting coroutine was
 * destroyed, @untaken returns whether the coroutine has not taken what @wake released.
 */
struct way {
	const char *name;
	std::function<void(objects &)> block;
	std::function<memwait::task<>(memwait::loop &, objects &)> wait;
	std::function<void(objects &)> wake;
	std::function<bool(objects &)> untaken;
};

static memwait::task<> wait_for_condition(memwait::loop &loop, objects &all)
{
	std::unique_lock lock = co_await all.conditions_mutex.lock_async(loop);

	all.has_lock++;
	co_await all.condition.wait_async(loop, lock);
	CHECK(lock.owns_lock());
}

/* The lock belongs to the caller of the coroutine that waits. */
static memwait::task<> wait_with_callers_lock(memwait::loop &loop, objects &all)
{
	std::unique_lock lock(all.conditions_mutex);
	auto inner = [](memwait::loop &its_loop, objects &its_all,
			std::unique_lock<memwait::mutex> &its_lock) -> memwait::task<cv_status> {
		co_return co_await its_all.condition.wait_async(its_loop, its_lock, 1h);
	};

	CHECK(co_await inner(loop, all, lock) == cv_status::no_timeout);
	CHECK(lock.owns_lock());
}

static bool lock_is_free(memwait::mutex &mutex)
{
	const bool is_free = mutex.try_lock();

	if (is_free)
		mutex.unlock();
	return is_free;
}

static void nothing(objects &)
{
}

static const std::vector<way> &ways()
{
	static const std::vector<way> all = {
		{ "mutex", [](objects &o) { o.mutex.lock(); },
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			std::unique_lock<memwait::mutex> lock = co_await o.mutex.lock_async(loop);
			CHECK(lock.owns_lock());
		  },
		  [](objects &o) { o.mutex.unlock(); },
		  [](objects &o) { return lock_is_free(o.mutex); } },
		{ "mutex with a deadline", [](objects &o) { o.mutex.lock(); },
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			auto lock = co_await o.mutex.try_lock_async(loop, 1h);
			CHECK(lock.owns_lock());
		  },
		  [](objects &o) { o.mutex.unlock(); },
		  [](objects &o) { return lock_is_free(o.mutex); } },
		{ "fair mutex", [](objects &o) { o.fair.lock(); },
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			auto lock = co_await o.fair.lock_async(loop);
			CHECK(lock.owns_lock());
		  },
		  [](objects &o) { o.fair.unlock(); },
		  [](objects &o) { return o.fair.try_lock(); } },
		{ "robust mutex", [](objects &o) { o.robust.lock(); },
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			auto lock = co_await o.robust.lock_async(loop);
			CHECK(lock.owns_lock());
		  },
		  [](objects &o) { o.robust.unlock(); },
		  [](objects &o) { return o.robust.try_lock(); } },
		{ "condition variable", nothing, wait_for_condition,
		  [](objects &o) { o.condition.notify_one(); },
		  [](objects &o) { return lock_is_free(o.conditions_mutex); } },
		{ "condition variable, caller's lock", nothing, wait_with_callers_lock,
		  [](objects &o) { o.condition.notify_all(); },
		  [](objects &o) { return lock_is_free(o.conditions_mutex); } },
		/* The woken coroutine waits for the mutex. */
		{ "condition variable, woken", [](objects &o) { o.conditions_mutex.lock(); },
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			std::unique_lock lock(o.conditions_mutex, std::adopt_lock);
			auto status = co_await o.condition.wait_async(loop, lock, 1h);
			CHECK(status == cv_status::no_timeout && lock.owns_lock());
		  },
		  [](objects &o) {
			std::lock_guard lock(o.conditions_mutex);
			o.condition.notify_one();
		  },
		  [](objects &o) { return lock_is_free(o.conditions_mutex); } },
		{ "shared mutex, writer", [](objects &o) { o.shared.lock_shared(); },
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			auto lock = co_await o.shared.lock_async(loop);
			CHECK(lock.owns_lock());
		  },
		  [](objects &o) { o.shared.unlock_shared(); },
		  [](objects &o) { return o.shared.try_lock(); } },
		{ "shared mutex, reader", [](objects &o) { o.shared.lock(); },
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			std::shared_lock<memwait::shared_mutex> lock =
				co_await o.shared.lock_shared_async(loop);
			CHECK(lock.owns_lock());
		  },
		  [](objects &o) { o.shared.unlock(); },
		  [](objects &o) { return o.shared.try_lock(); } },
		{ "shared mutex with deadlines", [](objects &o) { o.shared.lock(); },
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			{
				auto lock = co_await o.shared.try_lock_shared_async(loop, 1h);
				CHECK(lock.owns_lock());
			}
			auto lock = co_await o.shared.try_lock_async(loop, 1h);
			CHECK(lock.owns_lock());
		  },
		  [](objects &o) { o.shared.unlock(); },
		  [](objects &o) { return o.shared.try_lock(); } },
		{ "semaphore", nothing,
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			co_await o.sem.acquire_async(loop);
		  },
		  [](objects &o) { o.sem.release(); },
		  [](objects &o) { return o.sem.try_acquire(); } },
		{ "semaphore with a deadline", nothing,
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			CHECK(co_await o.sem.try_acquire_async(loop, 1h));
		  },
		  [](objects &o) { o.sem.release(); },
		  [](objects &o) { return o.sem.try_acquire(); } },
		{ "channel, sender", nothing,
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			co_await o.full.send_async(loop, item(2));
		  },
		  [](objects &o) { o.full.receive(); },
		  [](objects &o) { return o.full.length() == 0; } },
		{ "channel, sender with a deadline", nothing,
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			CHECK(co_await o.full.try_send_async(loop, item(2), 1h));
		  },
		  [](objects &o) { o.full.receive(); },
		  [](objects &o) { return o.full.length() == 0; } },
		{ "channel, receiver", nothing,
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			std::optional<item> got = co_await o.empty.receive_async(loop);
			CHECK(got && got->number == 3);
		  },
		  [](objects &o) { o.empty.send(item(3)); },
		  [](objects &o) { return o.empty.length() == 1; } },
		{ "channel, receiver with a deadline", nothing,
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			auto got = co_await o.empty.try_receive_async(loop, 1h);
			CHECK(got && got->number == 3);
		  },
		  [](objects &o) { o.empty.send(item(3)); },
		  [](objects &o) { return o.empty.length() == 1; } },
		{ "latch", nothing,
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			co_await std::as_const(o.latch).wait_async(loop);
			CHECK(co_await std::as_const(o.latch).wait_async(loop, 1h));
		  },
		  [](objects &o) { o.latch.count_down(); },
		  [](objects &o) { return o.latch.try_wait(); } },
		{ "event", nothing,
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			co_await std::as_const(o.event).wait_async(loop);
			CHECK(co_await std::as_const(o.event).wait_async(loop, 1h));
		  },
		  [](objects &o) { o.event.set(); },
		  [](objects &o) { return o.event.is_set(); } },
		{ "word", nothing,
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			CHECK(co_await memwait::wait_async(loop, o.word, 0) == outcome::ok);
		  },
		  [](objects &o) { CHECK(memwait::notify_one(o.word) == 1); },
		  [](objects &o) { return memwait::notify_one(o.word) == 0; } },
		{ "word, of several", nothing,
		  [](memwait::loop &loop, objects &o) -> memwait::task<> {
			auto [result, index] = co_await memwait::wait_any_async(loop, std::array{
				memwait::expectation(o.other_word, 0),
				memwait::expectation(o.word, 0) }, 1h);
			CHECK(result == outcome::ok && index == 1);
		  },
		  [](objects &o) { CHECK(memwait::notify_one(o.word) == 1); },
		  [](objects &o) { return memwait::notify_one(o.word) == 0; } },
	};

	return all;
}

static void report(const way &way, int before)
{
	if (failed_checks != before)
		std::printf("# with %s\n", way.name);
}

static void awaited()
{
	for (const way &way : ways()) {
		const int before = failed_checks;
		memwait::loop loop;
		objects all;

		way.block(all);
		memwait::task<> task = way.wait(loop, all);
		CHECK(!task.done());
		CHECK(loop.pending() == 1);
		way.wake(all);
		dispatch_until(loop, [&] { return task.done(); });
		task.get();
		CHECK(loop.pending() == 0);
		report(way, before);
	}
}

/* A call on a free object does not wait. */
static void at_once()
{
	memwait::loop loop;
	objects all;
	auto use = [&]() -> memwait::task<int> {
		auto one = co_await all.mutex.lock_async(loop);
		auto two = co_await all.robust.try_lock_async(loop, 1h);
		auto three = co_await all.shared.lock_shared_async(loop);
		auto four = co_await all.shared.try_lock_shared_async(
			loop, std::chrono::system_clock::now() + 1h);

		all.sem.release();
		co_await all.sem.acquire_async(loop);
		co_await all.empty.send_async(loop, item(5));
		std::optional<item> got = co_await all.empty.receive_async(loop);
		all.latch.count_down();
		co_await all.latch.wait_async(loop);
		CHECK(co_await memwait::wait_async(loop, all.word, 1) == outcome::not_equal);
		std::vector<memwait::expectation> words(2, { all.word, 0 });
		words[1] = { all.word, 1 };
		auto [result, index] = co_await memwait::wait_any_async(loop, words);
		CHECK(result == outcome::not_equal && index == 1);
		words.clear();
		CHECK_ERROR(std::errc::invalid_argument,
			    co_await memwait::wait_any_async(loop, words));
		CHECK(one && two && three && four);
		all.empty.close();
		CHECK(!co_await all.empty.receive_async(loop));
		CHECK_ERROR(std::errc::broken_pipe, co_await all.empty.send_async(loop, item(6)));
		CHECK_ERROR(std::errc::broken_pipe, co_await all.empty.try_receive_async(loop, 1h));
		co_return got->number;
	};
	memwait::task<int> task = use();

	CHECK(task.done());
	CHECK(loop.pending() == 0);
	CHECK(task.get() == 5);
	CHECK(lock_is_free(all.mutex));
}

static void deadlines()
{
	memwait::loop loop;
	objects all;
	auto use = [&]() -> memwait::task<> {
		const auto start = std::chrono::steady_clock::now();

		CHECK(!(co_await all.mutex.try_lock_async(loop, 1ms)).owns_lock());
		CHECK(!(co_await all.mutex.try_lock_async(loop, std::chrono::system_clock::now())));
		CHECK(!(co_await all.shared.try_lock_async(loop, 1ms)).owns_lock());
		CHECK(!(co_await all.shared.try_lock_shared_async(loop, 1ms)).owns_lock());
		CHECK(!co_await all.sem.try_acquire_async(loop, 1ms));
		CHECK(!co_await all.full.try_send_async(loop, item(1), 1ms));
		CHECK(!co_await all.empty.try_receive_async(loop, 1ms));
		CHECK(!co_await all.latch.wait_async(loop, 1ms));
		CHECK(!co_await all.event.wait_async(loop, 1ms));
		CHECK(co_await all.barrier.arrive_and_wait_async(loop, 1ms) ==
		      memwait::barrier_status::timeout);
		CHECK(co_await memwait::wait_async(loop, all.word, 0, 1ms) ==
		      outcome::timed_out);
		auto any = co_await memwait::wait_any_async(
			loop, std::array{ memwait::expectation(all.word, 0) }, 1ms);
		CHECK(any.result == outcome::timed_out && any.index == 0);
		std::unique_lock lock(all.conditions_mutex);
		CHECK(co_await all.condition.wait_async(loop, lock, 1ms) == cv_status::timeout);
		CHECK(lock.owns_lock());
		CHECK(std::chrono::steady_clock::now() >= start + 10ms);
	};

	all.mutex.lock();
	all.shared.lock();
	memwait::task<> task = use();
	loop.run();
	task.get();
	all.mutex.unlock();
	all.shared.unlock();
}

/* A coroutine that is destroyed while it waits consumes nothing, including a later wake-up. */
static void destroyed_pending()
{
	for (const way &way : ways()) {
		const int before = failed_checks;
		memwait::loop loop;
		objects all;

		way.block(all);
		{
			memwait::task<> task = way.wait(loop, all);
			CHECK(loop.pending() == 1);
		}
		CHECK(loop.pending() == 0);
		if (std::string(way.name).rfind("word", 0) == 0)
			CHECK(memwait::notify_one(all.word) == 0);
		else
			way.wake(all);
		CHECK(way.untaken(all));
		report(way, before);
	}
}

/* The coroutine is destroyed after it was woken and before the loop has read the completion. */
static void destroyed_unread()
{
	for (const way &way : ways()) {
		const int before = failed_checks;
		memwait::loop loop;
		objects all;

		way.block(all);
		{
			memwait::task<> task = way.wait(loop, all);
			way.wake(all);
			CHECK(!task.done());
		}
		CHECK(loop.pending() == 0);
		CHECK(way.untaken(all));
		report(way, before);
	}
}

/*
 * The loop has read the completion. Another coroutine, which is resumed earlier, destroys the
 * coroutine.
 */
static void destroyed_ready()
{
	for (const way &way : ways()) {
		const int before = failed_checks;
		memwait::loop loop;
		objects all;
		memwait::binary_semaphore first(0);
		std::optional<memwait::task<>> victim;
		auto destroy = [&]() -> memwait::task<> {
			co_await first.acquire_async(loop);
			CHECK(!victim->done());
			victim.reset();
		};

		way.block(all);
		memwait::task<> killer = destroy();
		victim.emplace(way.wait(loop, all));
		first.release();
		way.wake(all);
		dispatch_until(loop, [&] { return killer.done(); });
		killer.get();
		CHECK(loop.pending() == 0);
		CHECK(way.untaken(all));
		report(way, before);
	}
}

static void destroyed_done()
{
	for (const way &way : ways()) {
		memwait::loop loop;
		objects all;

		way.block(all);
		std::optional<memwait::task<>> task;
		task.emplace(way.wait(loop, all));
		way.wake(all);
		dispatch_until(loop, [&] { return task->done(); });
		task.reset();
		CHECK(loop.dispatch() == 0);
	}
}

static void barriers()
{
	memwait::loop loop;
	objects all;
	auto meet = [&]() -> memwait::task<memwait::barrier_status> {
		co_return co_await all.barrier.arrive_and_wait_async(loop);
	};

	{
		memwait::task<memwait::barrier_status> withdrawn = meet();
	}
	memwait::task<memwait::barrier_status> one = meet();
	CHECK(!one.done());
	memwait::task<memwait::barrier_status> two = meet();
	dispatch_until(loop, [&] { return one.done() && two.done(); });
	CHECK((one.get() == memwait::barrier_status::serial) !=
	      (two.get() == memwait::barrier_status::serial));
}

/*
 * When the loop ends, each pending wait throws, and each later wait of the coroutine also throws.
 */
static void shut_down()
{
	for (const way &way : ways()) {
		const int before = failed_checks;
		objects all;
		bool unwound = false;
		std::optional<memwait::loop> loop(std::in_place);
		auto outer = [&](memwait::task<> inner) -> memwait::task<> {
			struct at_end {
				~at_end()
				{
					*flag = true;
				}

				bool *flag;
			} at_end{ &unwound };

			CHECK_ERROR(std::errc::operation_canceled, co_await std::move(inner));
			CHECK_ERROR(std::errc::operation_canceled,
				    co_await all.sem.acquire_async(*loop));
			CHECK_ERROR(std::errc::operation_canceled,
				    co_await memwait::wait_async(*loop, all.word, 0));
		};

		way.block(all);
		memwait::task<> task = outer(way.wait(*loop, all));
		CHECK(!task.done());
		loop->close();
		CHECK(task.done() && unwound);
		task.get();
		loop.reset();
		if (std::string(way.name).rfind("word", 0) != 0)
			way.wake(all);
		CHECK(way.untaken(all));
		report(way, before);
	}
}

/*
 * The coroutine that close() resumes destroys another coroutine, which also waits. The C loop has
 * already been freed. Therefore the destruction must not cancel the operation of the other
 * coroutine.
 */
static void unwound_by_close()
{
	for (bool ends_with_loop : { false, true }) {
		objects all;
		std::optional<memwait::loop> loop(std::in_place);
		auto acquire = [&]() -> memwait::task<> { co_await all.sem.acquire_async(*loop); };
		auto outer = [&]() -> memwait::task<> {
			memwait::task<> inner = acquire();

			co_await all.sem.acquire_async(*loop);
		};
		memwait::task<> task = outer();

		CHECK(loop->pending() == 2);
		cancels = 0;
		if (ends_with_loop)
			loop.reset();
		else
			loop->close();
		CHECK(cancels == 0);
		CHECK_ERROR(std::errc::operation_canceled, task.get());
	}
}

static void closed()
{
	memwait::loop loop;
	objects all;
	auto close = [&]() -> memwait::task<> {
		co_await all.sem.acquire_async(loop);
		CHECK_ERROR(std::errc::device_or_resource_busy, loop.close());
	};
	memwait::task<> task = close(), other = close();

	all.sem.release();
	loop.dispatch();
	CHECK(task.done() && !other.done());
	task.get();
	all.sem.release();
	loop.run();
	CHECK(other.done());
	loop.close();
	loop.close();
	CHECK_ERROR(std::errc::invalid_argument, loop.dispatch());
}

static void runs_for_a_time()
{
	memwait::loop loop;
	objects all;
	auto acquire = [&]() -> memwait::task<> { co_await all.sem.acquire_async(loop); };
	memwait::task<> task = acquire();

	CHECK(!loop.run_for(1ms));
	CHECK(!loop.run_until(std::chrono::steady_clock::now() + 1ms));
	CHECK(!loop.run_until(std::chrono::system_clock::now() + 1ms));
	CHECK(!task.done());
	all.sem.release();
	CHECK(loop.run_for(24h) && task.done());
	CHECK(loop.run_until(std::chrono::system_clock::time_point()));
	loop.close();
	CHECK_ERROR(std::errc::invalid_argument, loop.run_for(1ms));
}

static void exceptions()
{
	memwait::loop loop;
	objects all;
	auto fail = [&](int number) -> memwait::task<int> {
		co_await all.sem.acquire_async(loop);
		if (number)
			throw number;
		co_return 7;
	};
	auto outer = [&]() -> memwait::task<int> {
		int caught = 0;

		try {
			co_await fail(2);
		} catch (int number) {
			caught = number;
		}
		co_return caught + co_await fail(0);
	};
	memwait::task<int> one = fail(1), two = outer(), lost = fail(3);

	try {
		one.get();
		CHECK(false);
	} catch (const std::logic_error &) {
	}
	all.sem.release(4);
	loop.run();
	try {
		one.get();
		CHECK(false);
	} catch (int number) {
		CHECK(number == 1);
	}
	CHECK(two.get() == 9);
	CHECK(lost.done());
}

/* A coroutine that awaits a task owns the task. */
static void owned()
{
	memwait::loop loop;
	objects all;
	bool has_continued = false;
	auto acquire = [&]() -> memwait::task<> { co_await all.sem.acquire_async(loop); };
	auto wait_for = [&](memwait::task<> &inner) -> memwait::task<> {
		co_await std::move(inner);
		has_continued = true;
	};
	memwait::task<> inner = acquire();

	{
		memwait::task<> outer = wait_for(inner);
		CHECK(loop.pending() == 1);
	}
	CHECK(loop.pending() == 0);
	all.sem.release();
	loop.run();
	CHECK(!has_continued && all.sem.try_acquire());

	/* inner has been moved from. */
	memwait::task<> late = wait_for(inner);
	try {
		late.get();
		CHECK(false);
	} catch (const std::logic_error &) {
	}
	CHECK(!has_continued);
}

/* An assignment destroys the old coroutine of the task immediately. */
static void assigned()
{
	memwait::loop loop;
	objects all;
	auto acquire = [&](int result) -> memwait::task<int> {
		co_await all.sem.acquire_async(loop);
		co_return result;
	};
	memwait::task<int> task = acquire(1), other = acquire(2);
	memwait::task<int> &same = task;

	task = std::move(other);
	CHECK(loop.pending() == 1);
	task = std::move(same);
	CHECK(loop.pending() == 1);
	all.sem.release();
	loop.run();
	CHECK(task.done() && task.get() == 2);
}

/* Tests results in braces, converted results, and references. */
static void results()
{
	int number = 0;
	auto braces = [](bool is_empty) -> memwait::task<std::vector<int>> {
		if (is_empty)
			co_return {};
		co_return { 1, 2 };
	};
	auto converted = []() -> memwait::task<std::string> { co_return "text"; };
	auto referred = [&]() -> memwait::task<int &> { co_return number; };
	auto assign = [&]() -> memwait::task<> { co_await referred() = 2; };

	CHECK(braces(true).get().empty() && braces(false).get().size() == 2);
	CHECK(converted().get() == "text");
	CHECK(&referred().get() == &number);
	assign().get();
	CHECK(number == 2);
}

/* A process dies while it holds the mutex for which a coroutine waits. */
static void robust()
{
	for (bool throws : { false, true }) {
		struct shared_data {
			memwait::robust_state state;
			std::atomic<int> ready;
		};
		memwait::mapping memory(sizeof(shared_data));
		shared_data &data = memory.construct<shared_data>(0);
		int repairs = 0;
		memwait::robust_mutex mutex(data.state, [&] {
			repairs++;
			if (throws)
				throw 1;
		});
		memwait::loop loop;
		pid_t pid = child([&] {
			mutex.lock();
			data.ready = 1;
			pause();
		});
		bool caught = false;
		auto use = [&]() -> memwait::task<> {
			try {
				auto lock = co_await mutex.lock_async(loop);
				CHECK(lock.owns_lock());
			} catch (int) {
				caught = true;
			}
		};

		await([&] { return data.ready == 1; });
		memwait::task<> task = use();
		CHECK(!task.done());
		kill_child(pid);
		loop.run();
		task.get();
		CHECK(repairs == 1 && caught == throws);
		if (throws)
			CHECK_ERROR(std::errc::state_not_recoverable, mutex.lock());
		else
			CHECK(mutex.try_lock());
	}
}

/* A process dies while it holds the lock as a writer, and readers or a writer wait for it. */
static void robust_shared()
{
	struct shared_data {
		memwait::robust_shared_state state;
		std::atomic<int> ready;
	};
	memwait::mapping memory(sizeof(shared_data));
	shared_data &data = memory.construct<shared_data>(0);
	int repairs = 0, held = 0, most = 0;
	bool throws = false, timed_out = false;
	memwait::robust_shared_mutex mutex(data.state, [&] {
		repairs++;
		if (throws)
			throw 1;
	});
	memwait::loop loop;
	memwait::binary_semaphore end(0);
	auto lock_in_child = [&] {
		data.ready = 0;
		const pid_t pid = child([&] {
			mutex.lock();
			data.ready = 1;
			pause();
		});
		await([&] { return data.ready == 1; });
		return pid;
	};
	auto read = [&](bool by_deadline) -> memwait::task<> {
		std::shared_lock<memwait::robust_shared_mutex> lock;

		if (by_deadline) {
			CHECK(!(co_await mutex.try_lock_shared_async(loop, 1ms)).owns_lock());
			timed_out = true;
			lock = co_await mutex.try_lock_shared_async(loop, 1h);
		} else {
			lock = co_await mutex.lock_shared_async(loop);
		}
		CHECK(lock.owns_lock());
		most = std::max(most, ++held);
		if (held == 2)
			end.release();
		else
			co_await end.acquire_async(loop);
		held--;
	};
	auto write = [&]() -> memwait::task<> {
		auto lock = co_await mutex.lock_async(loop);

		CHECK(lock.owns_lock());
	};

	/* Both readers hold the lock at the same time. */
	pid_t pid = lock_in_child();
	memwait::task<> one = read(false), two = read(true);
	CHECK(loop.pending() == 2);
	{
		memwait::task<> cancelled = read(false);
	}
	dispatch_until(loop, [&] { return timed_out; });
	CHECK(loop.pending() == 2);
	kill_child(pid);
	loop.run();
	one.get();
	two.get();
	CHECK(repairs == 1 && most == 2);

	pid = lock_in_child();
	memwait::task<> writer = write();
	CHECK(!writer.done());
	kill_child(pid);
	loop.run();
	writer.get();
	CHECK(repairs == 2);

	throws = true;
	pid = lock_in_child();
	memwait::task<> late = read(false);
	kill_child(pid);
	loop.run();
	try {
		late.get();
		CHECK(false);
	} catch (int) {
	}
	CHECK_ERROR(std::errc::state_not_recoverable, write().get());
}

/* A child cannot use the parent's loop. The end of the child's copy does not affect the parent. */
static void forked()
{
	struct shared_data {
		memwait::mutex mutex;
		memwait::counting_semaphore<> sem{ 0 };
		std::atomic<int> cancelled{ 0 };
	};
	memwait::mapping memory(sizeof(shared_data));
	shared_data &data = memory.construct<shared_data>(0);
	std::optional<memwait::loop> loop(std::in_place);
	auto use = [&]() -> memwait::task<> {
		try {
			co_await data.sem.acquire_async(*loop);
		} catch (const std::system_error &error) {
			data.cancelled += error.code() == std::errc::operation_canceled;
			throw;
		}
	};
	std::optional<memwait::task<>> task;

	task.emplace(use());
	for (bool loop_first : { false, true }) {
		pid_t pid = child([&] {
			const auto not_ours = std::errc::operation_not_permitted;

			CHECK_ERROR(not_ours, loop->dispatch());
			CHECK_ERROR(not_ours, loop->run());
			CHECK_ERROR(not_ours, use().get());
			if (loop_first)
				loop.reset();
			task.reset();
			if (!loop_first)
				loop.reset();
			std::lock_guard lock(data.mutex);
			loop.emplace();
			memwait::task<> own = use();
			CHECK(!own.done());
		});

		CHECK(wait_for_child(pid) == 0);
		CHECK(!task->done() && loop->pending() == 1);
	}
	/* The end of the copy has not resumed a coroutine in the child. */
	CHECK(data.cancelled == 0);
	data.sem.release();
	loop->run();
	CHECK(task->done());
	task->get();
}

/*
 * A coroutine that waited when the process forked is destroyed in the child, either before or after
 * the loop. Its destruction affects neither the mutex, which the parent has locked, nor the wake-up
 * of the parent's coroutine.
 */
static void forked_in_condition()
{
	struct shared_data {
		memwait::mutex mutex;
		memwait::condition_variable condition;
	};

	for (bool loop_first : { false, true }) {
		memwait::mapping memory(sizeof(shared_data));
		shared_data &data = memory.construct<shared_data>(0);
		std::optional<memwait::loop> loop(std::in_place);
		auto use = [&]() -> memwait::task<> {
			std::unique_lock lock(data.mutex);

			co_await data.condition.wait_async(*loop, lock);
			CHECK(lock.owns_lock());
		};
		std::optional<memwait::task<>> task(use()), other(use());

		CHECK(data.mutex.try_lock());
		pid_t pid = child([&] {
			if (loop_first)
				loop.reset();
			task.reset();
			auto wait = [&]() -> memwait::task<> {
				const auto not_ours = std::errc::operation_not_permitted;
				std::atomic<int> word{ 0 };

				CHECK_ERROR(not_ours,
					    (void)co_await data.mutex.lock_async(*loop));
				CHECK_ERROR(not_ours, co_await memwait::wait_async(*loop, word, 0));
			};
			if (!loop_first)
				wait().get();
			other.reset();
			loop.reset();
			CHECK(!data.mutex.try_lock());
		});

		CHECK(wait_for_child(pid) == 0);
		CHECK(!data.mutex.try_lock());
		data.mutex.unlock();
		CHECK(loop->pending() == 2);
		data.condition.notify_all();
		loop->run();
		task->get();
		other->get();
		CHECK(lock_is_free(data.mutex));
	}
}

/* Coroutines and threads acquire a fair mutex in FIFO order. */
static void fifo()
{
	memwait::loop loop;
	memwait::fair_mutex mutex;
	std::vector<memwait::task<>> tasks;
	std::vector<std::unique_ptr<sleeper>> threads;
	std::vector<int> order;
	auto use = [&](int number) -> memwait::task<> {
		auto lock = co_await mutex.lock_async(loop);

		order.push_back(number);
	};

	mutex.lock();
	for (int i = 0; i < 8; i += 2) {
		tasks.push_back(use(i));
		threads.push_back(std::make_unique<sleeper>([&, i] {
			std::lock_guard lock(mutex);

			order.push_back(i + 1);
		}));
		await([&] { return sleepers(mutex) == i + 2; });
	}
	mutex.unlock();
	loop.run();
	threads.clear();
	CHECK((order == std::vector<int>{ 0, 1, 2, 3, 4, 5, 6, 7 }));
}

/* Two threads run the loop of many coroutines. */
static void crowd()
{
	memwait::loop loop;
	memwait::mutex mutex(memwait::process_private);
	memwait::condition_variable turned(memwait::process_private);
	int counter = 0;
	std::atomic<int> ended{ 0 };
	std::vector<memwait::task<>> tasks;
	auto use = [&]() -> memwait::task<> {
		for (int i = 0; i < 20; i++) {
			auto lock = co_await mutex.lock_async(loop);

			counter++;
			turned.notify_all();
			while (counter < 20)
				co_await turned.wait_async(loop, lock);
		}
		ended++;
	};

	for (int i = 0; i < 20; i++)
		tasks.push_back(use());
	auto run = [&] {
		while (ended < 20) {
			loop.run();
			std::this_thread::yield();
		}
	};
	std::thread one(run), two(run);
	one.join();
	two.join();
	for (memwait::task<> &task : tasks)
		task.get();
	CHECK(counter == 400);
}

/*
 * A task ends immediately after its awaiter has found that it is unfinished. This may happen if the
 * task runs in another thread.
 */
static void awaited_at_its_end()
{
	struct ends_between {
		bool await_ready()
		{
			const bool is_ready = task.await_ready();

			CHECK(!is_ready);
			end();
			return is_ready;
		}

		auto await_suspend(std::coroutine_handle<> handle)
		{
			return task.await_suspend(handle);
		}

		int await_resume()
		{
			return task.await_resume();
		}

		decltype(std::declval<memwait::task<int>>().operator co_await()) task;
		std::function<void()> end;
	};
	memwait::loop loop;
	std::atomic<int> word{ 0 };
	auto inner = [&]() -> memwait::task<int> {
		co_await memwait::wait_async(loop, word, 0);
		co_return 1;
	};
	auto outer = [&]() -> memwait::task<int> {
		ends_between awaiter{ inner().operator co_await(), [&] {
			memwait::notify_one(word);
			loop.run();
		} };

		co_return co_await awaiter;
	};
	memwait::task<int> task = outer();

	CHECK(task.done() && task.get() == 1);
}

static void watched()
{
	std::atomic<short> word{ 1 };
	std::optional<memwait::loop> loop(std::in_place);
	unsigned int counted = 0, calls = 0;

	CHECK_ERROR(std::errc::resource_unavailable_try_again,
		    memwait::watch(*loop, word, 2, [](unsigned int) {}));
	CHECK_ERROR(std::errc::invalid_argument, memwait::watch(*loop, word, 1, nullptr));
	CHECK(loop->pending() == 0);
	{
		memwait::watch watch(*loop, word, 1, [&](unsigned int count) {
			counted += count;
			calls++;
		});

		CHECK(memwait::notify_one(word) == 1 && memwait::notify_one(word) == 1);
		dispatch_until(*loop, [&] { return counted == 2; });
		CHECK(calls == 1);
		CHECK(memwait::notify_all(word) == 1);
		dispatch_until(*loop, [&] { return counted == 3; });
		CHECK(memwait::notify_one(word) == 1);
	}
	CHECK(memwait::notify_one(word) == 0);
	CHECK(loop->dispatch() == 0 && counted == 3);

	memwait::watch left(*loop, word, 1, [&](unsigned int) { counted++; });
	loop.reset();
	CHECK(memwait::notify_one(word) == 0);
	CHECK(counted == 3);
}

/* A watch must have left its loop before its function is destroyed. */
static void watch_leaves_first()
{
	std::atomic<int> word{ 0 };
	memwait::loop loop;
	unsigned int woken = 1;
	auto at_end = [&](void *) { woken = memwait::notify_one(word); };

	{
		auto nothing_else = [last = std::shared_ptr<void>(&word, at_end)](unsigned int) {};
		memwait::watch watch(loop, word, 0, std::move(nothing_else));
		CHECK(loop.pending() == 1);
	}
	CHECK(woken == 0);
}

/* The destructor of a watch waits for the watch's function, which runs in another thread. */
static void watch_ends_while_its_function_runs()
{
	std::atomic<int> word{ 0 };
	std::atomic<bool> is_called{ false }, may_return{ false }, has_ended{ false };
	memwait::loop loop;
	std::optional<memwait::watch> watch(std::in_place, loop, word, 0, [&](unsigned int) {
		is_called = true;
		await([&] { return may_return.load(); });
		CHECK(!has_ended);
	});

	CHECK(memwait::notify_one(word) == 1);
	std::thread dispatcher([&] { dispatch_until(loop, [&] { return is_called.load(); }); });
	await([&] { return is_called.load(); });
	sleeper ender([&] {
		watch.reset();
		has_ended = true;
	});
	ender.await_asleep();
	may_return = true;
	ender.join();
	dispatcher.join();
	CHECK(has_ended && loop.pending() == 0);
	CHECK(memwait::notify_one(word) == 0);
}

/* Many operations end at one edge, and there is one dispatch for each edge. */
static void one_edge()
{
	constexpr int crowd = 300;
	memwait::counting_semaphore<> sem{ 0 };
	memwait::loop loop;
	std::vector<memwait::task<>> tasks;
	epoll_event event = { EPOLLIN | EPOLLET, {} };
	const int epoll = epoll_create1(EPOLL_CLOEXEC);
	int done = 0;

	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, loop.fd(), &event) == 0);
	for (int i = 0; i < crowd; i++) {
		tasks.push_back([](memwait::loop &its_loop, memwait::counting_semaphore<> &its_sem,
				   int &its_done) -> memwait::task<> {
			co_await its_sem.acquire_async(its_loop);
			its_done++;
		}(loop, sem, done));
	}
	sem.release(crowd);
	/* If there were no edge now, there would never be another edge. */
	while (epoll_wait(epoll, &event, 1, 0) == 1)
		loop.dispatch();
	CHECK(done == crowd);
	CHECK(loop.pending() == 0);
	close(epoll);
}

int main()
{
	test("each wait", awaited);
	test("free objects do not wait", at_once);
	test("deadlines", deadlines);
	test("barriers", barriers);
	test("destroyed while waiting", destroyed_pending);
	test("destroyed when woken, completion unread", destroyed_unread);
	test("destroyed when woken, completion read", destroyed_ready);
	test("destroyed after its end", destroyed_done);
	test("shutdown with each wait", shut_down);
	test("shutdown unwinds another wait", unwound_by_close);
	test("a loop is closed", closed);
	test("a loop runs for a time", runs_for_a_time);
	test("exceptions", exceptions);
	test("a task is awaited, and destroyed", owned);
	test("a task is assigned to", assigned);
	test("results of tasks", results);
	test("a robust mutex is repaired", robust);
	test("a robust shared mutex is repaired", robust_shared);
	test("fork", forked);
	test("fork in a wait for a condition", forked_in_condition);
	test("a fair mutex in order", fifo);
	test("many operations end at one edge", one_edge);
	test("two threads run a loop", crowd);
	test("a task ends while it is awaited", awaited_at_its_end);
	test("watch", watched);
	test("a watch leaves its loop before its function is destroyed", watch_leaves_first);
	test("a watch ends while its function runs", watch_ends_while_its_function_runs);
	return failed_tests != 0;
}
