// SPDX-License-Identifier: GPL-2.0-only
/* memwait.hpp for threads: standard lock adaptors, exceptions, deadlines, deaths, no device. */
#include <memwait.hpp>

#include "test.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <mutex>
#include <ratio>
#include <sched.h>
#include <sys/mount.h>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using memwait::barrier_status;
using memwait::outcome;
using std::chrono::steady_clock;
using std::chrono::system_clock;

static_assert(sizeof(memwait::mutex) == sizeof(memwait_mutex_t));
static_assert(sizeof(memwait::condition_variable) == sizeof(memwait_cond_t));
static_assert(sizeof(memwait::shared_mutex) == sizeof(memwait_rwlock_t));
static_assert(sizeof(memwait::counting_semaphore<>) == sizeof(memwait_sem_t));
static_assert(sizeof(memwait::barrier) == sizeof(memwait_barrier_t));
static_assert(sizeof(memwait::latch) == sizeof(memwait_waitgroup_t));
static_assert(sizeof(memwait::event) == sizeof(memwait_event_t));
static_assert(sizeof(memwait::robust_state) == sizeof(memwait_mutex_t));
static_assert(sizeof(memwait::robust_shared_state) == sizeof(memwait_rwlock_t));
static_assert(sizeof(memwait::atomic<int>) == sizeof(int));
static_assert(alignof(memwait::mutex) == alignof(memwait_mutex_t));
static_assert(std::is_standard_layout_v<memwait::mutex> &&
	      std::is_standard_layout_v<memwait::shared_mutex>);
static_assert(!std::is_copy_constructible_v<memwait::mutex> &&
	      !std::is_move_constructible_v<memwait::robust_mutex>);

template <class... Objects>
constexpr bool have_native_handles = (std::is_same_v<typename Objects::native_handle_type,
	decltype(std::declval<Objects &>().native_handle())> && ...);
static_assert(have_native_handles<memwait::mutex, memwait::robust_mutex, memwait::shared_mutex,
				  memwait::robust_shared_mutex, memwait::condition_variable,
				  memwait::binary_semaphore, memwait::barrier, memwait::latch,
				  memwait::event, memwait::channel<int>, memwait::loop>);

/* Objects that are initialised at compile time. */
#ifdef __cpp_constinit
#define CONSTINIT	constinit
#else
#define CONSTINIT
#endif
static CONSTINIT memwait::mutex early;
static CONSTINIT memwait::counting_semaphore<> early_sem(1, memwait::process_private);
static CONSTINIT memwait::event early_event(memwait::process_private);

/* A namespace that has functions with the names of the header's internal functions. */
namespace theirs {

/* A clock that meets the standard's requirements and runs half as fast as steady_clock. */
struct slow_clock {
	using duration = std::chrono::nanoseconds;
	using rep = duration::rep;
	using period = duration::period;
	using time_point = std::chrono::time_point<slow_clock>;
	static constexpr bool is_steady = true;

	static time_point now()
	{
		return time_point(steady_clock::now().time_since_epoch() / 2);
	}
};

enum class colour : std::uint16_t { red, green };

template <class... Any>
void at_or_near(Any &&...) = delete;
template <class... Any>
void call_until(Any &&...) = delete;
template <class... Any>
void notify(Any &&...) = delete;
template <class... Any>
void to_bits(Any &&...) = delete;

} /* namespace theirs */

using theirs::slow_clock;

/* Runs in a child, because the library opens the device only once. */
static void no_device()
{
	pid_t pid = child([] {
		alignas(64) static char memory[4096];
		std::atomic<int> word{ 0 };

		if (unshare(CLONE_NEWNS) ||
		    mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
		    mount("none", "/dev", "tmpfs", 0, nullptr))
			throw std::runtime_error("cannot hide the device");
		const auto absent = std::errc::no_such_file_or_directory;
		CHECK_ERROR(absent, memwait::check_available());
		CHECK_ERROR(absent, early.lock());
		CHECK_ERROR(absent, (void)early.try_lock());
		CHECK_ERROR(absent, (void)early.try_lock_for(1h));
		CHECK_ERROR(absent, std::scoped_lock lock(early));
		CHECK_ERROR(absent, early_sem.acquire());
		CHECK_ERROR(absent, early_sem.release());
		CHECK_ERROR(absent, memwait::shared_mutex().lock_shared());
		CHECK_ERROR(absent, memwait::condition_variable().notify_all());
		CHECK_ERROR(absent, memwait::barrier(2));
		CHECK_ERROR(absent, memwait::atomic<int>(1).wait(1));
		CHECK_ERROR(absent, memwait::latch(2));
		CHECK_ERROR(absent, early_event.set());
		CHECK_ERROR(absent, memwait::event().wait());
		CHECK_ERROR(absent, memwait::channel<int>(memory, sizeof(memory), 4));
		CHECK_ERROR(absent, memwait::loop());
		CHECK_ERROR(absent, memwait::wait(word, 0));
		CHECK_ERROR(absent, memwait::notify_one(word));
		try {
			early.lock();
		} catch (const std::system_error &error) {
			CHECK(std::string(error.code().category().name()) == "memwait");
			CHECK(error.code().message() == memwait_strerror(ENOENT));
			CHECK(std::string(error.what()).find("/dev/memwait") != std::string::npos);
		}
	});

	CHECK(wait_for_child(pid) == 0);
}

template <class Mutex>
static void check_exclusive()
{
	Mutex mutex, other;
	int counter = 0;
	std::atomic<bool> is_last{ false };
	std::vector<std::thread> threads;

	for (int i = 0; i < 3; i++)
		threads.emplace_back([&] {
			for (int n = 0; n < 200; n++) {
				std::scoped_lock lock(mutex, other);

				counter++;
			}
		});
	for (std::thread &thread : threads)
		thread.join();
	CHECK(counter == 600);

	std::unique_lock<Mutex> first(mutex);
	CHECK(first.owns_lock());
	sleeper thread([&] {
		std::unique_lock<Mutex> lock(mutex, std::try_to_lock);

		CHECK(!lock);
		CHECK(!lock.try_lock_for(1ms));
		CHECK(!lock.try_lock_for(-1h));
		CHECK(!lock.try_lock_for(std::chrono::duration<double>(0.001)));
		CHECK(!lock.try_lock_until(steady_clock::now() + 1ms));
		CHECK(!lock.try_lock_until(system_clock::now() + 1ms));
		CHECK(!lock.try_lock_until(system_clock::time_point::min()));
		const slow_clock::time_point later = slow_clock::now() + 2ms;
		CHECK(!lock.try_lock_until(later));
		CHECK(slow_clock::now() >= later);
		/* This time is beyond the range of every clock. */
		is_last = true;
		CHECK(lock.try_lock_for(std::chrono::hours::max()));
		lock.unlock();
		CHECK(lock.try_lock_until(steady_clock::time_point::max()));
	});
	await([&] { return is_last && sleepers(mutex) == 1; });
	first.unlock();
	thread.join();
	CHECK(mutex.try_lock());
	mutex.unlock();
}

static void exclusive()
{
	check_exclusive<memwait::mutex>();
	check_exclusive<memwait::fair_mutex>();
	check_exclusive<memwait::recursive_mutex>();
	std::lock_guard<memwait::mutex> lock(early);
}

static void recursive()
{
	memwait::recursive_mutex mutex;

	std::lock_guard<memwait::recursive_mutex> first(mutex);
	{
		std::lock_guard<memwait::recursive_mutex> second(mutex);

		std::thread([&] {
			CHECK(!mutex.try_lock());
			CHECK_ERROR(std::errc::operation_not_permitted, mutex.unlock());
		}).join();
	}
	std::thread([&] { CHECK(!mutex.try_lock()); }).join();
}

template <class Mutex>
static void check_shared()
{
	Mutex mutex(memwait::process_private);
	{
		std::shared_lock<Mutex> reader(mutex);

		std::thread([&] {
			std::shared_lock<Mutex> other(mutex, std::try_to_lock);

			CHECK(other.owns_lock());
			CHECK(!mutex.try_lock());
			CHECK(!mutex.try_lock_for(1ms));
			CHECK(!mutex.try_lock_until(system_clock::now() + 1ms));
		}).join();
	}
	std::unique_lock<Mutex> writer(mutex);
	std::thread([&] {
		CHECK(!mutex.try_lock_shared());
		CHECK(!std::shared_lock<Mutex>(mutex, 1ms).owns_lock());
		CHECK(!mutex.try_lock_shared_until(slow_clock::now() + 1ms));
	}).join();
	writer.unlock();
	CHECK(mutex.try_lock_shared_for(1s));
	mutex.unlock_shared();
}

static void shared()
{
	check_shared<memwait::shared_mutex>();
	check_shared<memwait::fair_shared_mutex>();
	check_shared<memwait::basic_shared_mutex<MEMWAIT_RWLOCK_PREFER_WRITER>>();
}

static void condition()
{
	memwait::condition_variable condition;
	memwait::mutex mutex;
	int state = 0;

	std::unique_lock<memwait::mutex> lock(mutex);
	sleeper thread([&] {
		std::unique_lock<memwait::mutex> own(mutex);

		state = 1;
		condition.notify_one();
		condition.wait(own, [&] { return state == 2; });
		state = 3;
		condition.notify_all();
	});
	condition.wait(lock, [&] { return state == 1; });
	CHECK(lock.owns_lock());
	thread.await_asleep();
	CHECK(!condition.wait_for(lock, 1ms, [&] { return state == 3; }));
	state = 2;
	condition.notify_one();
	CHECK(condition.wait_for(lock, 1h, [&] { return state == 3; }));
	thread.join();

	const steady_clock::time_point start = steady_clock::now();
	CHECK(condition.wait_for(lock, 3ms) == std::cv_status::timeout);
	CHECK(steady_clock::now() >= start + 3ms);
	CHECK(condition.wait_until(lock, start) == std::cv_status::timeout);
	CHECK(condition.wait_until(lock, system_clock::now() + 1ms) == std::cv_status::timeout);
	const slow_clock::time_point later = slow_clock::now() + 2ms;
	CHECK(!condition.wait_until(lock, later, [] { return false; }));
	CHECK(slow_clock::now() >= later);
	CHECK(condition.wait_until(lock, start, [] { return true; }));
	/* A predicate that throws does not change the state of the mutex. */
	try {
		condition.wait(lock, []() -> bool { throw 1; });
	} catch (int) {
		CHECK(lock.owns_lock());
	}
	lock.unlock();
	CHECK_ERROR(std::errc::operation_not_permitted, condition.wait(lock));
}

#ifdef __cpp_lib_jthread
/*
 * A stop request ends a wait at any time. Without a stop request, the wait works as without a
 * token.
 */
template <class Mutex>
static void check_stop(Mutex &mutex)
{
	memwait::condition_variable condition;
	std::unique_lock<Mutex> lock(mutex);
	bool is_set = false;
	auto never = [] { return false; };

	for (int i = 0; i < 3; i++) {
		std::stop_source source;
		sleeper waiter([&] {
			std::unique_lock<Mutex> own(mutex);
			bool held = false;

			switch (i) {
			case 0:
				held = condition.wait(own, source.get_token(), never);
				break;
			case 1:
				held = condition.wait_for(own, source.get_token(), 1h, never);
				break;
			case 2:
				held = condition.wait_until(own, source.get_token(),
							    slow_clock::now() + 1h, never);
				break;
			}
			CHECK(!held && own.owns_lock());
			CHECK(!mutex.try_lock());
		});

		lock.unlock();
		waiter.await_asleep();
		source.request_stop();
		waiter.join();
		lock.lock();
		CHECK(!condition.wait(lock, source.get_token(), never));
		CHECK(condition.wait(lock, source.get_token(), [] { return true; }));
	}

	/* The stop comes between the check of the token and the wait. */
	std::stop_source source;
	CHECK(!condition.wait(lock, source.get_token(), [&] {
		source.request_stop();
		return false;
	}));

	std::stop_source another;
	const std::stop_token token = another.get_token();
	const slow_clock::time_point later = slow_clock::now() + 2ms;
	CHECK(!condition.wait_for(lock, token, 1ms, never));
	CHECK(!condition.wait_until(lock, token, later, never));
	CHECK(slow_clock::now() >= later);
	CHECK(!condition.wait_until(lock, token, system_clock::now(), never));
	sleeper notifier([&] {
		std::unique_lock<Mutex> own(mutex);

		is_set = true;
		condition.notify_one();
	});
	CHECK(condition.wait(lock, token, [&] { return is_set; }));
	CHECK(lock.owns_lock());
	notifier.join();

	/* The child uses its own loop. */
	lock.unlock();
	CHECK(wait_for_child(child([&] {
		std::unique_lock<Mutex> own(mutex);

		CHECK(!condition.wait_for(own, token, 1ms, never));
	})) == 0);
	CHECK_ERROR(std::errc::operation_not_permitted, condition.wait(lock, token, never));
}

static void stopped()
{
	memwait::mutex mutex;
	memwait::robust_state state;
	memwait::robust_mutex robust(state, [] {});

	check_stop(mutex);
	check_stop(robust);
}
#endif

/* Returns the deadline that is @since after the epoch. */
template <class Duration>
static std::timespec time_of(Duration since)
{
	return memwait::deadline(std::chrono::time_point<system_clock, Duration>(since)).time;
}

/* Clock periods that are not a whole number of nanoseconds. */
static void odd_periods()
{
	using frames = std::chrono::duration<std::int64_t, std::ratio<1, 60>>;
	using ntsc = std::chrono::duration<std::int64_t, std::ratio<1001, 30000>>;
	using samples = std::chrono::duration<std::int64_t, std::ratio<1, 44100>>;
	using ticks = std::chrono::duration<std::int64_t, std::ratio<1, 90000>>;
	using picoseconds = std::chrono::duration<std::int64_t, std::pico>;
	using days = std::chrono::duration<int, std::ratio<86400>>;
	using double_frames = std::chrono::duration<double, std::ratio<1, 60>>;
	constexpr std::int64_t day = 86400, century = 36525 * day;
	std::timespec time, now;

	time = time_of(ticks(1800000000LL * 90000 + 1));
	CHECK(time.tv_sec == 1800000000 && time.tv_nsec == 11112);
	time = time_of(samples(300 * day * 44100 + 44099));
	CHECK(time.tv_sec == 300 * day && time.tv_nsec == 999977325);
	time = time_of(ntsc(century * 30000 / 1001 + 1));
	CHECK(time.tv_sec == century && time.tv_nsec > 0);
	time = time_of(days(36525));
	CHECK(time.tv_sec == century && time.tv_nsec == 0);
	/* The time is rounded up to the next second. */
	time = time_of(picoseconds(1999999999001));
	CHECK(time.tv_sec == 2 && time.tv_nsec == 0);
	time = time_of(double_frames(90));
	CHECK(time.tv_sec == 1 && time.tv_nsec == 500000000);
	time = time_of(std::chrono::duration<float, std::nano>(4e18F));
	CHECK(time.tv_sec > 3900000000 && time.tv_nsec >= 0 && time.tv_nsec < 1000000000);
	time = time_of(frames::min());
	CHECK(time.tv_sec == 0 && time.tv_nsec == 0);
	time = time_of(frames::max());
	CHECK(time.tv_sec == std::numeric_limits<std::time_t>::max());

	clock_gettime(CLOCK_MONOTONIC, &now);
	time = memwait::deadline(frames(century * 60)).time;
	CHECK(time.tv_sec >= now.tv_sec + century && time.tv_sec < now.tv_sec + century + day);
}

static void ignore(int)
{
}

static void semaphore()
{
	memwait::counting_semaphore<> sem(2);
	memwait::binary_semaphore binary(0, memwait::process_private);
	struct sigaction action = {};

	sem.acquire();
	CHECK(sem.try_acquire());
	CHECK(!sem.try_acquire());
	CHECK(!sem.try_acquire_for(1ms));
	CHECK(!sem.try_acquire_until(slow_clock::now() + 1ms));
	sem.release(3);
	CHECK(sem.try_acquire_until(system_clock::now()));
	CHECK(sem.try_acquire() && sem.try_acquire() && !sem.try_acquire());

	/* A signal does not end a wait for a semaphore. */
	action.sa_handler = ignore;
	sigaction(SIGUSR1, &action, nullptr);
	std::atomic<pthread_t> id{ 0 };
	sleeper thread([&] {
		id = pthread_self();
		binary.acquire();
		CHECK(binary.try_acquire_for(1h));
	});
	thread.await_asleep();
	pthread_kill(id, SIGUSR1);
	thread.await_asleep();
	binary.release();
	binary.release();
	thread.join();
	CHECK(!binary.try_acquire());

	CHECK_ERROR(std::errc::invalid_argument, memwait::counting_semaphore<> bad(-1));
	memwait::fair_semaphore fair(2);
	fair.acquire();
	CHECK(fair.try_acquire() && !fair.try_acquire() && !fair.try_acquire_for(1ms));
	std::thread waits([&] { fair.acquire(); });
	while (memwait_waiters(reinterpret_cast<char *>(fair.native_handle()) + 2, 0) != 1)
		std::this_thread::yield();
	fair.release();
	CHECK(!fair.try_acquire());
	waits.join();
	CHECK_ERROR(std::errc::invalid_argument, memwait::fair_semaphore bad(32768));
	CHECK_ERROR(std::errc::invalid_argument, sem.release(-1));
	memwait::counting_semaphore<> full(memwait::counting_semaphore<>::max());
	CHECK_ERROR(std::errc::value_too_large, full.release());
}

static void barrier_and_latch()
{
	memwait::barrier barrier(3);
	memwait::latch latch(3);
	std::atomic<int> serials{ 0 }, met{ 0 };
	std::vector<std::thread> threads;

	CHECK(barrier.arrive_and_wait_for(1ms) == barrier_status::timeout);
	CHECK(barrier.arrive_and_wait_until(slow_clock::now() + 1ms) == barrier_status::timeout);
	CHECK(!latch.try_wait());
	for (int i = 0; i < 3; i++)
		threads.emplace_back([&] {
			switch (barrier.arrive_and_wait()) {
			case barrier_status::serial: serials++; break;
			case barrier_status::met: met++; break;
			case barrier_status::timeout: break;
			}
			latch.count_down();
		});
	latch.wait();
	const memwait::latch &seen = latch;
	seen.wait();
	CHECK(seen.try_wait() && seen.wait_for(0s) && seen.wait_until(slow_clock::now()));
	CHECK(serials == 1 && met == 2);
	for (std::thread &thread : threads)
		thread.join();
	std::thread waits([&] { CHECK_ERROR(std::errc::broken_pipe, barrier.arrive_and_wait()); });
	barrier.abort();
	waits.join();
	barrier.reset();
	CHECK(barrier.arrive_and_wait_for(1ms) == barrier_status::timeout);
	CHECK_ERROR(std::errc::invalid_argument, latch.count_down());
	CHECK_ERROR(std::errc::invalid_argument, memwait::barrier(0));
	CHECK_ERROR(std::errc::invalid_argument, memwait::latch(-1));
}

static void events(memwait::event &event)
{
	const memwait::event &seen = event;
	int value = 0;
	std::thread waits([&] {
		seen.wait();
		CHECK(value == 1);
	});

	CHECK(!event.is_set() && !event.wait_for(1ms));
	CHECK(!event.wait_until(slow_clock::now() + 1ms));
	value = 1;
	event.set();
	waits.join();
	CHECK(seen.is_set() && seen.wait_for(0s) && seen.wait_until(slow_clock::now()));
	event.clear();
	CHECK(!event.is_set());
}

static void events_of_both()
{
	memwait::event shared;

	events(shared);
	events(early_event);
	shared.native_handle()->reserved[0] = 1U << 30;
	CHECK_ERROR(std::errc::invalid_argument, (void)shared.is_set());
	CHECK_ERROR(std::errc::invalid_argument, shared.clear());
}

static void arrivals(memwait::sharing users)
{
	memwait::barrier barrier(2, users);
	std::optional<memwait::barrier::arrival_token> left;

	{
		memwait::barrier::arrival_token withdrawn = barrier.arrive();
	}
	for (int i = 0; i < 3; i++) {
		CHECK(barrier.arrive_and_wait_for(1ms) == barrier_status::timeout);

		memwait::barrier::arrival_token token = barrier.arrive();
		barrier_status their = barrier_status::timeout;
		std::thread other([&] { their = barrier.arrive_and_wait(); });
		barrier_status our = barrier.wait(std::move(token));

		other.join();
		CHECK(our != barrier_status::timeout && their != barrier_status::timeout);
		CHECK((our == barrier_status::serial) != (their == barrier_status::serial));
		CHECK_ERROR(std::errc::invalid_argument, barrier.wait(std::move(token)));
	}
	/* All participants have arrived before the first participant waits. */
	memwait::barrier::arrival_token token = barrier.arrive();
	std::thread([&] { CHECK(barrier.arrive_and_wait() != barrier_status::timeout); }).join();
	CHECK(barrier.wait(std::move(token)) != barrier_status::timeout);
	/* If a thread exits after it has arrived, its arrival is withdrawn. */
	std::thread([&] { left.emplace(barrier.arrive()); }).join();
	CHECK(barrier.arrive_and_wait_for(1ms) == barrier_status::timeout);
	CHECK_ERROR(std::errc::operation_canceled, barrier.wait(std::move(*left)));

	/* In the child, a new loop replaces the loop of the token's operation. */
	memwait::barrier::arrival_token ours = barrier.arrive();
	CHECK(wait_for_child(child([&] {
		memwait::barrier alone(1);

		CHECK(alone.wait(alone.arrive()) == barrier_status::serial);
		CHECK_ERROR(std::errc::operation_not_permitted, barrier.wait(std::move(ours)));
	})) == 0);
	CHECK(barrier.arrive_and_wait() != barrier_status::timeout);
	CHECK(barrier.wait(std::move(ours)) != barrier_status::timeout);
}

static void arrivals_of_both()
{
	memwait::barrier alone(memwait::barrier::max() > 1);

	arrivals(memwait::process_shared);
	arrivals(memwait::process_private);
	CHECK(alone.wait(alone.arrive()) == barrier_status::serial);
	CHECK_ERROR(std::errc::invalid_argument, memwait::barrier(memwait::barrier::max() + 1));
}

/* This type has no default constructor. */
struct item {
	explicit item(int n) : number(n), twice(2 * n)
	{
	}

	int number;
	long twice;
};

static void channel()
{
	using queue = memwait::channel<item>;
	memwait::mapping memory(8192);
	const std::size_t bytes = queue::size(4);
	queue items(memory.at(64, bytes), bytes, 4);

	CHECK(!items.try_receive());
	CHECK(!items.try_receive_for(1ms));
	for (int i = 0; i < 4; i++)
		items.send(item(i));
	CHECK(items.length() == 4);
	CHECK(!items.try_send(item(4)));
	CHECK(!items.try_send_for(item(4), 1ms));
	CHECK(!items.try_send_until(item(4), slow_clock::now() + 1ms));

	/* The receiver uses the C interface. */
	pid_t pid = child([&] {
		item got(0);
		auto *theirs = static_cast<memwait_channel_t *>(memory.at(64, bytes));

		for (int i = 0; i < 100; i++) {
			CHECK(memwait_channel_recv(theirs, &got, sizeof(got)) == 0);
			CHECK(got.number == i && got.twice == 2 * i);
		}
	});
	for (int i = 4; i < 100; i++)
		items.send(item(i));
	CHECK(wait_for_child(pid) == 0);

	queue same = queue::attach(memory.at(64, bytes), bytes);
	CHECK(same.capacity() == 4);
	CHECK_ERROR(std::errc::invalid_argument, queue::attach(memory.at(64, bytes), bytes - 1));
	CHECK_ERROR(std::errc::invalid_argument, queue::attach(memory.at(64, bytes), 16));
	CHECK_ERROR(std::errc::invalid_argument,
		    memwait::channel<char>::attach(memory.at(64, bytes), bytes));
	same.send(item(7));
	items.close();
	CHECK_ERROR(std::errc::broken_pipe, items.send(item(8)));
	items.close();
	std::optional<item> last = items.receive();
	CHECK(last && last->twice == 14);
	CHECK(!items.receive());
	CHECK_ERROR(std::errc::broken_pipe, items.try_receive());
	CHECK_ERROR(std::errc::broken_pipe, items.try_receive_until(steady_clock::now()));

	CHECK_ERROR(std::errc::invalid_argument, queue(memory.data(), bytes - 1, 4));
	CHECK_ERROR(std::errc::invalid_argument, queue(memory.data(), bytes, 0));
	CHECK_ERROR(std::errc::invalid_argument, queue(memory.at(1, bytes), bytes, 4));
	CHECK_ERROR(std::errc::invalid_argument, queue(nullptr, bytes, 4));
	CHECK_ERROR(std::errc::invalid_argument, queue::attach(memory.at(4096, bytes), bytes));
}

template <class T>
static void check_word()
{
	std::atomic<T> word{ T(1) };

	CHECK(memwait::wait(word, T(2)) == outcome::not_equal);
	CHECK(memwait::wait_for(word, T(1), 1ms) == outcome::timed_out);
	CHECK(memwait::wait_until(word, T(1), system_clock::now()) == outcome::timed_out);
	CHECK(memwait::wait_until(word, T(1), slow_clock::now() + 1ms) == outcome::timed_out);
	CHECK(memwait::notify_all(word) == 0);
	sleeper thread([&] {
		CHECK(memwait::wait(word, T(1)) == outcome::ok);
		CHECK(memwait::wait_for(word, T(1), 1h, memwait::process_private) == outcome::ok);
	});
	await([&] { return memwait::notify_one(word) == 1; });
	await([&] { return memwait::notify(word, 2, memwait::process_private) == 1; });
}

static void words()
{
	check_word<std::uint8_t>();
	check_word<theirs::colour>();
	check_word<int>();
	check_word<long>();
}

static void atomics()
{
	memwait::mapping memory(4096);
	auto &word = memory.construct<memwait::atomic<int>>(64, 1);
	memwait::atomic<theirs::colour, memwait::process_private> own{ theirs::colour::red };
	pid_t pid;

	word.wait(2);
	pid = child([&] {
		memory.attach<memwait::atomic<int>>(64).wait(1);
		CHECK(word == 3);
	});
	/* The wait continues after a notify, because the value has not changed. */
	await([&] { return memwait::notify_one(word) == 1; });
	await([&] { return memwait_waiters(&word, 0) == 1; });
	word = 3;
	word.notify_all();
	CHECK(wait_for_child(pid) == 0);

	sleeper thread([&] { own.wait(theirs::colour::red); });
	await([&] { return memwait_waiters(&own, MEMWAIT_PRIVATE) == 1; });
	own = theirs::colour::green;
	own.notify_one();
	thread.join();
}

static void any_word()
{
	std::atomic<int> one{ -1 };
	std::atomic<std::uint8_t> two{ 2 };
	std::atomic<long> three{ -3 };
	const std::array words{ memwait::expectation(one, -1), memwait::expectation(two, 2),
				memwait::expectation(three, -3, memwait::process_private) };
	const slow_clock::time_point later = slow_clock::now() + 2ms;
	std::vector<memwait::expectation> many(129, { one, -1 });

	CHECK(memwait::wait_any_for(words, 1ms).result == outcome::timed_out);
	CHECK(memwait::wait_any_until(words, system_clock::now()).result == outcome::timed_out);
	CHECK(memwait::wait_any_until(words, later).result == outcome::timed_out);
	CHECK(slow_clock::now() >= later);
	sleeper thread([&] {
		auto [result, index] = memwait::wait_any(words);

		CHECK(result == outcome::ok && index == 2);
	});
	await([&] { return memwait::notify_one(three, memwait::process_private) == 1; });
	thread.join();
	two = 3;
	auto [result, index] = memwait::wait_any(words);
	CHECK(result == outcome::not_equal && index == 1);
	CHECK_ERROR(std::errc::invalid_argument, memwait::wait_any(many));
	many.pop_back();
	CHECK(memwait::wait_any_for(many, 1ms).result == outcome::timed_out);
	many.clear();
	CHECK_ERROR(std::errc::invalid_argument, memwait::wait_any(many));
}

static void places()
{
	memwait::mapping memory(4096);
	memwait::mutex &mutex = memory.construct<memwait::mutex>(64, memwait::process_shared);
	int fd = memfd_create("cxx", MFD_CLOEXEC);

	CHECK(&memory.attach<memwait::mutex>(64) == &mutex);
	mutex.lock();
	CHECK(memwait_mutex_trylock(reinterpret_cast<memwait_mutex_t *>(
		static_cast<char *>(memory.data()) + 64)) == EBUSY);
	mutex.unlock();
	CHECK_ERROR(std::errc::invalid_argument, memory.attach<memwait::mutex>(4096));
	CHECK_ERROR(std::errc::invalid_argument, memory.attach<memwait::mutex>(4096 - 8));
	CHECK_ERROR(std::errc::invalid_argument, memory.attach<memwait::mutex>(68));
	CHECK_ERROR(std::errc::invalid_argument, memory.construct<memwait::mutex>(SIZE_MAX));
	CHECK_ERROR(std::errc::invalid_argument, memwait::attach<memwait::mutex>(nullptr));
	CHECK_ERROR(std::errc::bad_file_descriptor, memwait::mapping(-1, 4096));
	CHECK_ERROR(std::errc::invalid_argument, memwait::mapping(0));
	CHECK_ERROR(std::errc::invalid_argument, memwait::mapping(fd, 4096));
	CHECK(ftruncate(fd, 8192) == 0);
	memwait::mapping one(fd, 4096, 4096), two(fd, 8192);
	one.attach<memwait::mutex>(0).lock();
	CHECK(!two.attach<memwait::mutex>(4096).try_lock());
	CHECK_ERROR(std::errc::invalid_argument, memwait::mapping(fd, 4097, 4096));
	close(fd);

	/* An assignment unmaps the old mapping immediately. */
	memwait::mapping &same = one;
	void *const old = one.data();
	one = std::move(two);
	CHECK(one.size() == 8192 && !two.data());
	CHECK(msync(old, 4096, MS_ASYNC) && errno == ENOMEM);
	one = std::move(same);
	CHECK(!one.attach<memwait::mutex>(4096).try_lock());
}

/* The data is in shared memory. */
struct guarded {
	memwait::robust_state state;
	memwait::condition_variable condition;
	std::atomic<int> ready;
	int half, other_half, repairs;
};

static guarded &new_guarded(const memwait::mapping &memory)
{
	return memory.construct<guarded>(0);
}

/* A child locks the mutex, makes the data inconsistent, and is killed. */
static void die_with(guarded &data, memwait::robust_mutex &mutex)
{
	pid_t pid;

	data.ready = 0;
	pid = child([&] {
		std::lock_guard<memwait::robust_mutex> lock(mutex);

		data.half++;
		data.ready = 1;
		pause();
	});
	await([&] { return data.ready == 1; });
	kill_child(pid);
}

static void repaired()
{
	memwait::mapping memory(4096);
	guarded &data = new_guarded(memory);
	memwait::robust_mutex mutex(data.state, [&] {
		data.other_half = data.half;
		data.repairs++;
	});

	CHECK_ERROR(std::errc::invalid_argument, memwait::robust_mutex bad(data.state, nullptr));
	die_with(data, mutex);
	{
		std::lock_guard<memwait::robust_mutex> lock(mutex);

		CHECK(data.repairs == 1 && data.other_half == 1);
	}
	{
		std::lock_guard<memwait::robust_mutex> lock(mutex);

		CHECK(data.repairs == 1);
	}
	die_with(data, mutex);
	CHECK(mutex.try_lock());
	CHECK(data.repairs == 2);
	mutex.unlock();
	die_with(data, mutex);
	CHECK(mutex.try_lock_for(1h));
	CHECK(data.repairs == 3);
	std::thread([&] { CHECK(!mutex.try_lock_for(1ms)); }).join();
	mutex.unlock();

	/* The owner dies while another thread waits. */
	data.ready = 0;
	pid_t pid = child([&] {
		mutex.lock();
		data.ready = 1;
		pause();
	});
	await([&] { return data.ready == 1; });
	sleeper thread([&] {
		std::scoped_lock<memwait::robust_mutex> lock(mutex);

		CHECK(data.repairs == 4);
	});
	thread.await_asleep();
	kill_child(pid);
	thread.join();
}

static void not_repaired()
{
	memwait::mapping memory(4096);
	guarded &data = new_guarded(memory);
	memwait::robust_mutex mutex(data.state, [] { throw std::runtime_error("beyond repair"); });
	bool thrown = false;

	die_with(data, mutex);
	try {
		std::lock_guard<memwait::robust_mutex> lock(mutex);
	} catch (const std::runtime_error &error) {
		thrown = std::string(error.what()) == "beyond repair";
	}
	CHECK(thrown);
	CHECK_ERROR(std::errc::state_not_recoverable, mutex.lock());
	CHECK_ERROR(std::errc::state_not_recoverable, (void)mutex.try_lock());
	CHECK_ERROR(std::errc::state_not_recoverable, (void)mutex.try_lock_for(1h));

	/* If the type has no repair function, locking fails, and the mutex does not stay locked. */
	memwait::mapping other_memory(4096);
	guarded &other = new_guarded(other_memory);
	memwait::robust_mutex other_mutex(other.state, [] {});
	auto &plain = memwait::attach<memwait::mutex>(other_mutex.native_handle());
	die_with(other, other_mutex);
	CHECK_ERROR(std::errc::owner_dead, plain.lock());
	CHECK_ERROR(std::errc::state_not_recoverable, plain.lock());
}

/* The data is in shared memory. */
struct shared_guarded {
	memwait::robust_shared_state state;
	std::atomic<int> ready;
	std::atomic<int> repairs;
};

static void die_writing(shared_guarded &data, memwait::robust_shared_mutex &mutex)
{
	pid_t pid;

	data.ready = 0;
	pid = child([&] {
		std::lock_guard<memwait::robust_shared_mutex> lock(mutex);

		data.ready = 1;
		pause();
	});
	await([&] { return data.ready == 1; });
	kill_child(pid);
}

/*
 * Each function that locks a robust shared mutex repairs the data, and then holds the requested
 * lock.
 */
static void repaired_shared()
{
	memwait::mapping memory(4096);
	auto &data = memory.construct<shared_guarded>(0);
	memwait::robust_shared_mutex mutex(data.state, [&] { data.repairs++; });
	auto others_can_read = [&] {
		bool can = false;

		std::thread([&] {
			can = mutex.try_lock_shared();
			if (can)
				mutex.unlock_shared();
			CHECK(!mutex.try_lock());
		}).join();
		return can;
	};

	CHECK_ERROR(std::errc::invalid_argument,
		    memwait::robust_shared_mutex bad(data.state, nullptr));
	die_writing(data, mutex);
	{
		std::shared_lock<memwait::robust_shared_mutex> lock(mutex);

		CHECK(data.repairs == 1 && others_can_read());
	}
	die_writing(data, mutex);
	CHECK(mutex.try_lock_shared());
	CHECK(data.repairs == 2 && others_can_read());
	mutex.unlock_shared();
	die_writing(data, mutex);
	CHECK(mutex.try_lock_shared_for(1h));
	CHECK(data.repairs == 3 && others_can_read());
	mutex.unlock_shared();
	die_writing(data, mutex);
	CHECK(mutex.try_lock_shared_until(slow_clock::now() + 1h));
	CHECK(data.repairs == 4 && others_can_read());
	CHECK(!mutex.try_lock_for(1ms));
	mutex.unlock_shared();
	die_writing(data, mutex);
	{
		std::lock_guard<memwait::robust_shared_mutex> lock(mutex);

		CHECK(data.repairs == 5 && !others_can_read());
	}
	die_writing(data, mutex);
	CHECK(mutex.try_lock_for(1h));
	CHECK(data.repairs == 6 && !others_can_read());
	mutex.unlock();

	/* The owner dies while another thread waits. */
	data.ready = 0;
	pid_t pid = child([&] {
		mutex.lock();
		data.ready = 1;
		pause();
	});
	await([&] { return data.ready == 1; });
	sleeper thread([&] {
		std::shared_lock<memwait::robust_shared_mutex> lock(mutex);

		CHECK(data.repairs == 7 && others_can_read());
	});
	thread.await_asleep();
	kill_child(pid);
	thread.join();

	/* The repair function fails. */
	memwait::robust_shared_mutex hopeless(data.state, [] { throw 1; });
	bool caught = false;
	die_writing(data, mutex);
	try {
		hopeless.lock_shared();
	} catch (int) {
		caught = true;
	}
	CHECK(caught);
	CHECK_ERROR(std::errc::state_not_recoverable, mutex.lock_shared());
	CHECK_ERROR(std::errc::state_not_recoverable, mutex.lock());
}

/* When a waiter of a condition variable reacquires the mutex, it finds that the owner has died. */
static void repaired_in_wait()
{
	for (bool throws : { false, true }) {
		memwait::mapping memory(4096);
		guarded &data = new_guarded(memory);
		memwait::robust_mutex mutex(data.state, [&] {
			data.repairs++;
			if (throws)
				throw 1;
		});
		std::unique_lock<memwait::robust_mutex> lock(mutex);
		bool caught = false;

		pid_t pid = child([&] {
			mutex.lock();
			data.half = 1;
			data.condition.notify_one();
			/*
			 * The child dies when the waiter waits for the mutex, even if the waiter
			 * was not requeued.
			 */
			await_asleep(getppid());
			raise(SIGKILL);
		});
		try {
			data.condition.wait(lock, [&] { return data.half == 1; });
		} catch (int) {
			caught = true;
		}
		CHECK(data.repairs == 1);
		CHECK(caught == throws);
		CHECK(lock.owns_lock() == !throws);
		if (throws)
			CHECK_ERROR(std::errc::state_not_recoverable, mutex.lock());
		wait_for_child(pid);
	}
}

/* Objects in shared memory work between a parent and its child. */
static void forked()
{
	struct shared_data {
		memwait::mutex mutex;
		memwait::condition_variable condition;
		int turn;
	};
	memwait::mapping memory(4096);
	shared_data &data = memory.construct<shared_data>(0);
	std::unique_lock<memwait::mutex> lock(data.mutex);
	pid_t pid;

	CHECK(wait_for_child(child([&] { CHECK(!data.mutex.try_lock()); })) == 0);
	pid = child([&] {
		std::unique_lock<memwait::mutex> own(data.mutex);

		for (int i = 0; i < 20; i++) {
			data.condition.wait(own, [&] { return data.turn == 2 * i + 1; });
			data.turn++;
			data.condition.notify_all();
		}
	});

	for (int i = 0; i < 20; i++) {
		data.turn++;
		data.condition.notify_all();
		data.condition.wait(lock, [&] { return data.turn == 2 * i + 2; });
	}
	lock.unlock();
	CHECK(wait_for_child(pid) == 0);
}

/* Threads acquire a fair mutex in FIFO order. */
static void fifo()
{
	memwait::fair_mutex mutex;
	std::vector<std::unique_ptr<sleeper>> threads;
	std::vector<int> order;

	mutex.lock();
	for (int i = 0; i < 4; i++) {
		threads.push_back(std::make_unique<sleeper>([&, i] {
			std::lock_guard<memwait::fair_mutex> lock(mutex);

			order.push_back(i);
		}));
		await([&] { return sleepers(mutex) == i + 1; });
	}
	mutex.unlock();
	threads.clear();
	CHECK((order == std::vector<int>{ 0, 1, 2, 3 }));
}

/* Creates a static object, and a detached thread that waits for this object. */
template <class Object, class Wait, class... Arguments>
static void wait_for_static(Wait wait, Arguments... arguments)
{
	static Object object(arguments...);
	static std::atomic<pid_t> id{ 0 };

	std::thread([wait] {
		id = static_cast<pid_t>(syscall(SYS_gettid));
		wait(object);
	}).detach();
	await([] { return id != 0; });
	await_asleep(id);
}

static void wait_for_static(const std::string &kind, memwait::sharing sharing)
{
	if (kind == "mutex")
		wait_for_static<memwait::mutex>([](memwait::mutex &mutex) {
			mutex.lock();
			mutex.lock();
		}, sharing);
	else if (kind == "shared_mutex")
		wait_for_static<memwait::shared_mutex>([](memwait::shared_mutex &mutex) {
			mutex.lock();
			mutex.lock_shared();
		}, sharing);
	else if (kind == "condition_variable")
		wait_for_static<memwait::condition_variable>(
			[](memwait::condition_variable &condition) {
				static memwait::mutex mutex;
				std::unique_lock lock(mutex);

				condition.wait(lock);
			}, sharing);
	else if (kind == "barrier")
		wait_for_static<memwait::barrier>([](memwait::barrier &barrier) {
			barrier.arrive_and_wait();
		}, 2, sharing);
	else
		wait_for_static<memwait::latch>([](memwait::latch &latch) {
			latch.wait();
		}, 1, sharing);
}

/* A separate program. The program, or a child of it, returns from main() while a thread waits. */
static int end_while_waited_for(const std::string &kind, bool is_private, bool forks)
{
	wait_for_static(kind, is_private ? memwait::process_private : memwait::process_shared);
	if (forks) {
		const pid_t pid = fork();

		if (pid)
			_exit(wait_for_child(pid) != 0);
	}
	return 0;
}

/* The destructors of static objects do not wait for threads that use the objects. */
static void ends_while_waited_for()
{
	const auto at_most = std::chrono::seconds(limit(5));

	for (const char *kind : { "mutex", "shared_mutex", "condition_variable", "barrier",
				  "latch" }) {
		for (int i = 0; i < 4; i++) {
			const auto begin = steady_clock::now();
			const pid_t pid = child([&] {
				execl("/proc/self/exe", "locks", kind, i & 1 ? "private" : "shared",
				      i & 2 ? "forks" : "returns", nullptr);
			});

			CHECK(wait_for_child(pid) == 0);
			CHECK(steady_clock::now() - begin < at_most);
		}
	}
}

int main(int argc, char **argv)
{
	if (argc == 4)
		return end_while_waited_for(argv[1], !std::strcmp(argv[2], "private"),
					    !std::strcmp(argv[3], "forks"));
	/* This test is first, because it needs a process that has not opened the device. */
	test("no device", no_device);
	test("mutexes", exclusive);
	test("recursive mutex", recursive);
	test("shared mutexes", shared);
	test("condition variable", condition);
#ifdef __cpp_lib_jthread
	test("condition variable with a stop token", stopped);
#endif
	test("deadlines of odd periods", odd_periods);
	test("semaphores", semaphore);
	test("barrier and latch", barrier_and_latch);
	test("arrival tokens of a barrier", arrivals_of_both);
	test("events", events_of_both);
	test("channel", channel);
	test("words", words);
	test("memwait::atomic", atomics);
	test("any of several words", any_word);
	test("objects in mappings", places);
	test("a robust mutex is repaired", repaired);
	test("a robust mutex is not repaired", not_repaired);
	test("a robust mutex is repaired in a wait", repaired_in_wait);
	test("a robust shared mutex is repaired", repaired_shared);
	test("fork", forked);
	test("a fair mutex in order", fifo);
	test("a program exits while threads wait", ends_while_waited_for);
	return failed_tests != 0;
}
