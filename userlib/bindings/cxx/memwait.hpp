// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * libmemwait for C++17, with the standard library's names and exceptions, for objects that one
 * process uses or that several processes share. With C++20, coroutines can await every object. See
 * memwait_cxx(7).
 *
 * An object has the same layout as in C, and native_handle() returns the C object: programs in both
 * languages can use the same object.
 */
#ifndef MEMWAIT_HPP
#define MEMWAIT_HPP

#if __cplusplus < 201703L
#error "memwait.hpp needs C++17: -std=c++17 or later"
#endif

#if defined(__GNUC__) && !defined(__cpp_exceptions)
#error "memwait.hpp throws exceptions: with -fno-exceptions use memwait.h"
#endif

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memwait.h>

#ifdef __cpp_impl_coroutine
#include <coroutine>
#endif
#if __cplusplus >= 202002L && __has_include(<stop_token>)
#include <stop_token>
#endif

namespace memwait {

/* The users of an object: any process, or only the process that constructs it, which costs less. */
enum sharing : unsigned int {
	process_shared = 0,
	process_private = MEMWAIT_PRIVATE
};

/* The category of all errors that this header throws. The errors can be compared with std::errc. */
inline const std::error_category &error_category() noexcept
{
	struct category final : std::error_category {
		const char *name() const noexcept override
		{
			return "memwait";
		}

		std::string message(int number) const override
		{
			return memwait_strerror(number);
		}

		std::error_condition default_error_condition(int number) const noexcept override
		{
			return { number, std::generic_category() };
		}
	};
	static const category instance;

	return instance;
}

namespace detail {

/* Throws if @err, a positive error number, is not 0. */
inline void check(int err, const char *what)
{
	if (err)
		throw std::system_error(err, error_category(), what);
}

/* Like check(), for functions that return negative error numbers. */
inline int check_result(int result, const char *what)
{
	check(result < 0 ? -result : 0, what);
	return result;
}

/*
 * Like check(), for functions that only try. Returns false for the error @no, which means that the
 * attempt failed.
 */
inline bool check_try(int err, int no, const char *what)
{
	if (err != no)
		check(err, what);
	return !err;
}

/* Times before the epoch count as passed; times beyond 64-bit nanoseconds never come. */
template <class Rep, class Period>
std::timespec to_timespec(const std::chrono::duration<Rep, Period> &since)
{
	const long double seconds = std::chrono::duration<long double>(since).count();
	std::chrono::seconds whole{ 0 };
	std::timespec time = {};
	std::int64_t ns;

	if (!(seconds > 0))
		return time;
	if (seconds >= 9e9L) {
		time.tv_sec = std::numeric_limits<std::time_t>::max();
		return time;
	}
	/*
	 * Convert whole seconds first: for an unusual period, a direct conversion to nanoseconds
	 * multiplies the count before it divides, which would overflow if the time is long.
	 */
	if constexpr (!std::chrono::treat_as_floating_point_v<Rep>)
		whole = std::chrono::floor<std::chrono::seconds>(since);
	/* Round up: a timeout is never early. */
	ns = std::chrono::ceil<std::chrono::nanoseconds>(since - whole).count();
	time.tv_sec = static_cast<std::time_t>(whole.count() + ns / 1000000000);
	time.tv_nsec = static_cast<long>(ns % 1000000000);
	return time;
}

template <class Clock>
inline constexpr bool is_kernels = std::is_same_v<Clock, std::chrono::steady_clock> ||
				   std::is_same_v<Clock, std::chrono::system_clock>;

} /* namespace detail */

/* A deadline: a duration from now, or a time on steady_clock or system_clock. */
struct deadline {
	template <class Rep, class Period>
	deadline(const std::chrono::duration<Rep, Period> &from_now)
		: clock(CLOCK_MONOTONIC), time(detail::to_timespec(from_now))
	{
		std::timespec now;

		if (time.tv_sec == std::numeric_limits<std::time_t>::max())
			return;
		clock_gettime(CLOCK_MONOTONIC, &now);
		time.tv_sec += now.tv_sec;
		time.tv_nsec += now.tv_nsec;
		if (time.tv_nsec >= 1000000000) {
			time.tv_nsec -= 1000000000;
			time.tv_sec++;
		}
	}

	template <class Clock, class Duration>
	deadline(const std::chrono::time_point<Clock, Duration> &point)
		: clock(std::is_same_v<Clock, std::chrono::steady_clock> ? CLOCK_MONOTONIC :
									    CLOCK_REALTIME),
		  time(detail::to_timespec(point.time_since_epoch()))
	{
		static_assert(detail::is_kernels<Clock>, "the kernel has no such clock");
	}

	clockid_t clock;
	std::timespec time;
};

namespace detail {

/* The deadline for another clock: exact if that clock runs at the rate of steady_clock. */
template <class Clock, class Duration>
deadline at_or_near(const std::chrono::time_point<Clock, Duration> &time)
{
	if constexpr (is_kernels<Clock>)
		return time;
	else
		return time - Clock::now();
}

/* Repeats @call(deadline) while it returns ETIMEDOUT and @time has not come. */
template <class Clock, class Duration, class Call>
int call_until(const std::chrono::time_point<Clock, Duration> &time, Call call)
{
	int err;

	do {
		err = call(detail::at_or_near(time));
	} while (err == ETIMEDOUT && !is_kernels<Clock> && Clock::now() < time);
	return err;
}

/* Repeats @call while a signal interrupts it. */
template <class Call>
int call_through_signals(int interrupted, Call call)
{
	int result;

	do {
		result = call();
	} while (result == interrupted);
	return result;
}

inline void *check_place(void *memory, std::size_t alignment)
{
	check(!memory || reinterpret_cast<std::uintptr_t>(memory) % alignment ? EINVAL : 0,
	      "memwait: misaligned memory");
	return memory;
}

} /* namespace detail */

/* Throws the reason if /dev/memwait cannot be used. */
inline void check_available()
{
	detail::check_result(memwait_available(), "memwait_available");
}

template <class T>
class channel;
class loop;
class mapping;
class robust_mutex;
class robust_shared_mutex;
class watch;
#ifdef __cpp_impl_coroutine
template <class T = void>
class task;
#endif

namespace detail {

template <class T>
inline constexpr bool is_channel = false;

template <class T>
inline constexpr bool is_channel<channel<T>> = true;

template <class T, class... Types>
inline constexpr bool is_one_of = (std::is_same_v<T, Types> || ...);

/* Refuses types that cannot be objects in shared memory; otherwise such types would compile. */
template <class T>
constexpr void check_object()
{
	static_assert(!is_channel<T>,
		      "a handle: use channel<T>::attach(memory, bytes), or its constructor");
	static_assert(!is_one_of<T, robust_mutex, robust_shared_mutex>,
		      "a handle: construct it from a shared robust_state or robust_shared_state");
	static_assert(!is_one_of<T, loop, mapping, watch>, "of one process only");
	static_assert(!is_one_of<T, std::mutex, std::timed_mutex, std::recursive_mutex,
				 std::recursive_timed_mutex, std::shared_mutex,
				 std::shared_timed_mutex, std::condition_variable>,
		      "of one process only: use memwait's type of that name");
}

} /* namespace detail */

/*
 * Returns the object at @memory, which must have been initialised by its constructor, by a C
 * function or by zeroing.
 */
template <class T>
T &attach(void *memory)
{
	detail::check_object<T>();
	return *std::launder(static_cast<T *>(detail::check_place(memory, alignof(T))));
}

/*
 * Shared memory: a file or, without a file, memory that this process shares with its future
 * children.
 */
class mapping {
public:
	explicit mapping(std::size_t size) : size_(size)
	{
		map(MAP_ANONYMOUS, -1, 0);
	}

	mapping(int fd, std::size_t size, off_t offset = 0) : size_(size)
	{
		struct stat stat;

		detail::check(fstat(fd, &stat) ? errno : 0, "memwait::mapping");
		/* Access beyond the end of the file raises SIGBUS. */
		detail::check(S_ISREG(stat.st_mode) &&
			      (offset > stat.st_size ||
			       size > static_cast<std::uintmax_t>(stat.st_size - offset)) ?
			      EINVAL : 0, "memwait::mapping: the file is too short");
		map(0, fd, offset);
	}

	mapping(mapping &&other) noexcept
		: data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0))
	{
	}

	/* Unmaps the previous mapping. */
	mapping &operator=(mapping &&other) noexcept
	{
		mapping old(std::move(other));

		std::swap(data_, old.data_);
		std::swap(size_, old.size_);
		return *this;
	}

	/* Does not destroy objects in the memory. */
	~mapping()
	{
		if (data_)
			munmap(data_, size_);
	}

	void *data() const noexcept
	{
		return data_;
	}

	std::size_t size() const noexcept
	{
		return size_;
	}

	/*
	 * Returns the address at @offset. Throws unless @size bytes from @offset are within the
	 * mapping.
	 */
	void *at(std::size_t offset, std::size_t size) const
	{
		detail::check(offset > size_ || size > size_ - offset ? EINVAL : 0,
			      "memwait::mapping: too small");
		return static_cast<char *>(data_) + offset;
	}

	template <class T>
	T &attach(std::size_t offset) const
	{
		return memwait::attach<T>(at(offset, sizeof(T)));
	}

	template <class T, class... Arguments>
	T &construct(std::size_t offset, Arguments &&...arguments) const
	{
		void *memory = detail::check_place(at(offset, sizeof(T)), alignof(T));

		detail::check_object<T>();
		return *new (memory) T(std::forward<Arguments>(arguments)...);
	}

private:
	void map(int flags, int fd, off_t offset)
	{
		data_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd,
			     offset);
		detail::check(data_ == MAP_FAILED ? errno : 0, "memwait::mapping");
	}

	void *data_ = nullptr;
	std::size_t size_;
};

namespace detail {

/*
 * An operation of a loop. While it waits, it is in the loop's list, where close() finds it. A
 * waiting operation may be destroyed only by the thread that dispatches the loop, just as a
 * coroutine must not be destroyed while another thread resumes it. In a child process the operation
 * stays in its waiting state until it is destroyed, and accesses neither its loop, which may have
 * been freed, nor the list.
 */
class operation {
public:
	/* The function that runs in the C callback. */
	using ended = void (*)(operation &self, int result) noexcept;

	operation(const operation &) = delete;
	operation &operator=(const operation &) = delete;

protected:
	operation(loop &owner, ended end, bool goes_on = false) noexcept;

	~operation()
	{
		cancel();
	}

	/*
	 * @call(op) calls an _async function. If the function returns EINPROGRESS, the operation
	 * may already have ended in another thread, and may have been destroyed.
	 */
	template <class Call>
	int begin(Call call);

	bool is_waiting() const noexcept
	{
		/*
		 * acquire: pairs with the release in loop::unlink(), after which a callback in
		 * another thread no longer uses a persistent operation
		 */
		return is_waiting_.load(std::memory_order_acquire);
	}

	unsigned int count() const noexcept
	{
		return memwait_op_count(&op_);
	}

	void cancel() noexcept;

	/* Dispatches the loop until this operation has ended. Throws EPERM in a child process. */
	void await_end()
	{
		while (is_waiting()) {
			const int result = getpid() == process_ ? memwait_op_wait(&op_, nullptr) :
								  -EPERM;

			check(result == -EINTR ? 0 : -result, "memwait: waiting for an operation");
		}
	}

private:
	friend class memwait::loop;

	static void call_back(memwait_op_t *op, int result, void *data) noexcept;

	memwait_op_t op_;
	loop &loop_;
	pid_t process_;
	ended end_;
	operation *next_ = nullptr;
	operation *previous_ = nullptr;
	std::atomic<bool> is_waiting_{ false };	/* changes under the loop's lock */
	bool goes_on_;
};

} /* namespace detail */

/*
 * The event source of operations: dispatch() and run() resume coroutines. Several threads may
 * dispatch one loop concurrently.
 */
class loop {
public:
	using native_handle_type = memwait_loop_t *;

	loop() : process_(getpid())
	{
		detail::check_result(memwait_loop_new(&loop_, 0), "memwait::loop");
	}

	loop(const loop &) = delete;
	loop &operator=(const loop &) = delete;

	~loop()
	{
		close();
	}

	/*
	 * Cancels all waits: coroutines are resumed, and throw std::errc::operation_canceled. Later
	 * waits on this loop throw the same error. Within dispatch() or run() this function throws
	 * std::errc::device_or_resource_busy and does nothing. In a child process nothing is
	 * resumed.
	 */
	void close()
	{
		detail::operation *operation;

		if (!loop_)
			return;
		detail::check_result(memwait_loop_close(loop_), "memwait::loop::close");
		loop_ = nullptr;
		if (!is_ours())
			return;
		while ((operation = first_)) {
			unlink(*operation);
			operation->end_(*operation, ECANCELED);
		}
	}

	/* Poll this descriptor for POLLIN, and then call dispatch(). */
	int fd() const noexcept
	{
		return memwait_loop_fd(loop_);
	}

	/*
	 * Runs up to @most callbacks, and returns how many it ran. Never blocks. One call each time
	 * the descriptor becomes readable is enough, even with edge-triggered polling: callbacks
	 * that do not run because of @most cause a new edge.
	 */
	int dispatch(unsigned int most = MEMWAIT_ALL)
	{
		return detail::check_result(memwait_loop_dispatch(loop_, most),
					    "memwait::loop::dispatch");
	}

	/* Dispatches until nothing is pending, or until stop(). */
	void run()
	{
		detail::check_result(memwait_loop_run(loop_, nullptr, 0), "memwait::loop::run");
	}

	/*
	 * Like run(), with a deadline. Returns false if operations are still pending at the
	 * deadline.
	 */
	template <class Rep, class Period>
	bool run_for(const std::chrono::duration<Rep, Period> &time)
	{
		return !run_by(time);
	}

	template <class Clock, class Duration>
	bool run_until(const std::chrono::time_point<Clock, Duration> &time)
	{
		return !detail::call_until(time, [this](const deadline &then) {
			return run_by(then);
		});
	}

	void stop()
	{
		detail::check_result(memwait_loop_stop(loop_), "memwait::loop::stop");
	}

	std::size_t pending() const noexcept
	{
		return memwait_loop_pending(loop_);
	}

	memwait_loop_t *native_handle() noexcept
	{
		return loop_;
	}

	/* Returns false in a child process, where the loop of the parent is unusable. */
	bool is_ours() const noexcept
	{
		return getpid() == process_;
	}

private:
	friend class detail::operation;

	/* Returns 0 or ETIMEDOUT. */
	int run_by(const deadline &then)
	{
		const unsigned int flags =
			then.clock == CLOCK_REALTIME ? MEMWAIT_CLOCK_REALTIME : 0;
		const int result = detail::check_result(memwait_loop_run(loop_, &then.time, flags),
							"memwait::loop::run_until");

		return result == MEMWAIT_TIMED_OUT ? ETIMEDOUT : 0;
	}

	/* Returns true if the loop is open, and false if it is closed. */
	bool link(detail::operation &operation)
	{
		std::unique_lock<std::mutex> guard(lock_, std::try_to_lock);

		/*
		 * After fork(), the lock may be held by a thread that does not exist in the child,
		 * and the list is never emptied in the child. No operation begins to wait in the
		 * child, so the operation need not be in the list.
		 */
		if ((!guard || first_) && !is_ours())
			return loop_;
		if (!guard)
			guard.lock();
		if (!loop_)
			return false;
		operation.next_ = first_;
		operation.previous_ = nullptr;
		if (first_)
			first_->previous_ = &operation;
		first_ = &operation;
		/* relaxed: the operation has not begun, so no other thread can access it */
		operation.is_waiting_.store(true, std::memory_order_relaxed);
		return true;
	}

	/*
	 * Does nothing if the operation has ended in another thread. The operation may be freed
	 * afterwards.
	 */
	void unlink(detail::operation &operation)
	{
		const std::lock_guard<std::mutex> guard(lock_);

		/* relaxed: the lock orders this */
		if (!operation.is_waiting_.load(std::memory_order_relaxed))
			return;
		if (operation.next_)
			operation.next_->previous_ = operation.previous_;
		if (operation.previous_)
			operation.previous_->next_ = operation.next_;
		else
			first_ = operation.next_;
		/* release: see is_waiting() */
		operation.is_waiting_.store(false, std::memory_order_release);
	}

	memwait_loop_t *loop_ = nullptr;
	pid_t process_;
	std::mutex lock_;	/* of the list */
	detail::operation *first_ = nullptr;
};

namespace detail {

inline operation::operation(loop &owner, ended end, bool goes_on) noexcept
	: loop_(owner), process_(owner.process_), end_(end), goes_on_(goes_on)
{
}

template <class Call>
int operation::begin(Call call)
{
	int err;

	/* Link the operation before it begins: after that it may end at any time. */
	if (!loop_.link(*this))
		return ECANCELED;
	err = -memwait_op_init(&op_, loop_.native_handle(), call_back, this);
	if (!err)
		err = call(&op_);
	if (err != EINPROGRESS && is_waiting())
		loop_.unlink(*this);
	return err;
}

inline void operation::cancel() noexcept
{
	if (!is_waiting())
		return;
	if (getpid() != process_) {
		/* relaxed: in the child no other thread can access it */
		is_waiting_.store(false, std::memory_order_relaxed);
		return;
	}
	/*
	 * If the loop is closed, close() has ended the operation. Otherwise cancel it: a callback
	 * that runs later would use memory that is being freed.
	 */
	if (loop_.native_handle() && memwait_op_cancel(&op_) == -EINPROGRESS) {
		if (!goes_on_)
			std::terminate();
		while (memwait_op_wait(&op_, nullptr) == -EINTR)
			;
	}
	loop_.unlink(*this);
}

inline void operation::call_back(memwait_op_t *, int result, void *data) noexcept
{
	operation &self = *static_cast<operation *>(data);

	if (!self.goes_on_) {
		self.loop_.unlink(self);
		self.end_(self, result);
		return;
	}
	self.end_(self, result);
	/* Another thread may destroy the operation as soon as it is unlinked. */
	if (result != MEMWAIT_OK)
		self.loop_.unlink(self);
}

#ifdef __cpp_impl_coroutine

/* This is not a concept, because C++17 with -fcoroutines has none. */
template <class Finish, class = void>
inline constexpr bool can_be_abandoned = false;

template <class Finish>
inline constexpr bool
can_be_abandoned<Finish, std::void_t<decltype(std::declval<Finish &>().abandoned())>> = true;

/*
 * The operand of co_await. @Begin(op, finish) begins the operation, and returns the result of an
 * _async function. @Finish(err, has_waited) returns the result of co_await, or throws. If the
 * coroutine is destroyed instead, nothing is locked or consumed, and finish.abandoned() is called
 * if it exists.
 */
template <class Begin, class Finish>
class [[nodiscard]] awaitable : operation {
public:
	awaitable(loop &owner, Begin begin, Finish finish = {})
		: operation(owner, resume), begin_(std::move(begin)), finish_(std::move(finish))
	{
	}

	~awaitable()
	{
		if (!is_waiting())
			return;
		cancel();
		if constexpr (can_be_abandoned<Finish>)
			finish_.abandoned();
	}

	bool await_ready() const noexcept
	{
		return false;
	}

	bool await_suspend(std::coroutine_handle<> handle)
	{
		int err;

		handle_ = handle;
		has_waited_ = true;
		err = begin([this](memwait_op_t *op) { return begin_(op, finish_); });
		if (err == EINPROGRESS)
			return true;
		has_waited_ = false;
		result_ = err;
		return false;
	}

	decltype(auto) await_resume()
	{
		return finish_(result_, has_waited_);
	}

private:
	static void resume(operation &self, int result) noexcept
	{
		awaitable &me = static_cast<awaitable &>(self);

		me.result_ = result;
		me.handle_.resume();
	}

	Begin begin_;
	Finish finish_;
	std::coroutine_handle<> handle_;
	int result_ = 0;
	bool has_waited_ = false;
};

/*
 * co_await of the @Function memwait_*_clock*_async() of an object. Without @then there is no
 * deadline. For @finish see awaitable.
 */
template <auto Function, class Object, class Finish>
auto awaiting(loop &owner, Object *object, const std::optional<deadline> &then, Finish finish)
{
	return awaitable(owner, [object, then](memwait_op_t *op, auto &) {
		return Function(object, then ? then->clock : CLOCK_MONOTONIC,
				then ? &then->time : nullptr, op);
	}, std::move(finish));
}

/*
 * @Finish returns a guard. A guard that is not stored in a variable unlocks at the end of its
 * statement.
 */
template <class Begin, class Finish>
class [[nodiscard]] locking : public awaitable<Begin, Finish> {
public:
	locking(loop &owner, Begin begin, Finish finish)
		: awaitable<Begin, Finish>(owner, std::move(begin), std::move(finish))
	{
	}

	[[nodiscard]] auto await_resume()
	{
		return awaitable<Begin, Finish>::await_resume();
	}
};

#endif /* __cpp_impl_coroutine */

} /* namespace detail */

class condition_variable;

namespace detail {

/* Returns the loop of the calling thread, for waits that another thread may end. */
inline loop &own_loop()
{
	static thread_local std::optional<loop> own;

	if (!own || !own->is_ours())
		own.emplace();
	return *own;
}

/*
 * The functions of mutexes, and of read-write locks for writers, with the standard library's names.
 * @Native is the type of the C library, and @Lock and so on are its functions.
 * @Mutex::settle(err, no) converts their result: it returns true if the mutex is locked, false for
 * @no, and throws otherwise.
 */
template <class Mutex, class Native, auto Lock, auto Trylock, auto Clocklock, auto Async,
	  auto Unlock>
class exclusive {
public:
	using native_handle_type = Native *;

	exclusive(const exclusive &) = delete;
	exclusive &operator=(const exclusive &) = delete;

	void lock()
	{
		settle(Lock(handle()), 0);
	}

	[[nodiscard]] bool try_lock()
	{
		return settle(Trylock(handle()), EBUSY);
	}

	template <class Rep, class Period>
	[[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
	{
		return try_lock_by(time);
	}

	template <class Clock, class Duration>
	[[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time)
	{
		return !detail::call_until(time, [this](const deadline &then) {
			return try_lock_by(then) ? 0 : ETIMEDOUT;
		});
	}

	void unlock()
	{
		check(Unlock(handle()), "memwait: unlocking a mutex");
	}

#ifdef __cpp_impl_coroutine
	/* co_await returns a std::unique_lock. After a timeout, it does not own the mutex. */
	auto lock_async(loop &owner)
	{
		return async<std::unique_lock, Async>(owner, std::nullopt);
	}

	auto try_lock_async(loop &owner, const deadline &then)
	{
		return async<std::unique_lock, Async>(owner, then);
	}
#endif

protected:
	constexpr exclusive() noexcept = default;

	Mutex &self() noexcept
	{
		return static_cast<Mutex &>(*this);
	}

	Native *handle() noexcept
	{
		return self().native_handle();
	}

	bool settle(int err, int no)
	{
		return self().settle(err, no);
	}

#ifdef __cpp_impl_coroutine
	template <template <class> class Guard, auto Function>
	auto async(loop &owner, const std::optional<deadline> &then)
	{
		return locking(owner, [this, then](memwait_op_t *op, auto &) {
			return Function(handle(), then ? then->clock : CLOCK_MONOTONIC,
					then ? &then->time : nullptr, op);
		}, [this](int err, bool) {
			if (!settle(err, ETIMEDOUT))
				return Guard<Mutex>(self(), std::defer_lock);
			return Guard<Mutex>(self(), std::adopt_lock);
		});
	}
#endif

private:
	bool try_lock_by(const deadline &then)
	{
		return settle(Clocklock(handle(), then.clock, &then.time), ETIMEDOUT);
	}
};

template <class Mutex>
using lockable = exclusive<Mutex, memwait_mutex_t, memwait_mutex_lock, memwait_mutex_trylock,
			   memwait_mutex_clocklock, memwait_mutex_clocklock_async,
			   memwait_mutex_unlock>;

} /* namespace detail */

/* All kinds of mutexes except robust ones. */
template <unsigned int Kind>
class basic_mutex : public detail::lockable<basic_mutex<Kind>> {
public:
	constexpr basic_mutex() noexcept : basic_mutex(process_shared)
	{
	}

	constexpr explicit basic_mutex(sharing users) noexcept
		: mutex_ MEMWAIT_MUTEX_INIT_KIND(Kind | users)
	{
	}

	memwait_mutex_t *native_handle() noexcept
	{
		return &mutex_;
	}

private:
	friend detail::lockable<basic_mutex>;
	friend class condition_variable;

	bool settle(int err, int no)
	{
		/* The attached C object is a robust mutex, which this class cannot repair. */
		if (err == EOWNERDEAD)
			memwait_mutex_unlock(&mutex_);
		return detail::check_try(err, no, "memwait: locking a mutex");
	}

	memwait_mutex_t mutex_;
};

using mutex = basic_mutex<MEMWAIT_MUTEX_NORMAL>;
using timed_mutex = mutex;
using recursive_mutex = basic_mutex<MEMWAIT_MUTEX_RECURSIVE>;
using recursive_timed_mutex = recursive_mutex;
using fair_mutex = basic_mutex<MEMWAIT_MUTEX_FAIR>;

/* The part of a robust mutex that lies in shared memory. */
struct robust_state {
	constexpr robust_state() noexcept : robust_state(process_shared)
	{
	}

	constexpr explicit robust_state(sharing users) noexcept
		: mutex MEMWAIT_MUTEX_INIT_KIND(MEMWAIT_MUTEX_ROBUST | users)
	{
	}

	robust_state(const robust_state &) = delete;
	robust_state &operator=(const robust_state &) = delete;

	memwait_mutex_t mutex;
};

/*
 * A mutex whose owner may die. The next function that locks it calls @repair, with the mutex
 * locked, before it returns. If @repair throws, the locking function throws the same exception, and
 * the mutex is unlocked permanently: all later users throw std::errc::state_not_recoverable. Each
 * process constructs its own robust_mutex from the shared robust_state.
 */
class robust_mutex : public detail::lockable<robust_mutex> {
public:
	robust_mutex(robust_state &state, std::function<void()> repair)
		: mutex_(&state.mutex), repair_(std::move(repair))
	{
		detail::check(repair_ ? 0 : EINVAL, "memwait::robust_mutex: no repair function");
	}

	memwait_mutex_t *native_handle() noexcept
	{
		return mutex_;
	}

private:
	friend detail::lockable<robust_mutex>;
	friend class condition_variable;

	bool settle(int err, int no)
	{
		if (err != EOWNERDEAD)
			return detail::check_try(err, no, "memwait: locking a robust mutex");
		try {
			repair_();
			detail::check(memwait_mutex_consistent(mutex_),
				      "memwait: repairing a mutex");
		} catch (...) {
			memwait_mutex_unlock(mutex_);
			throw;
		}
		return true;
	}

	memwait_mutex_t *mutex_;
	std::function<void()> repair_;
};

/*
 * A condition variable for mutexes of any kind. A wait may return without a notify. If the mutex
 * cannot be locked again, the wait throws, and the std::unique_lock no longer owns the mutex.
 */
class condition_variable {
public:
	using native_handle_type = memwait_cond_t *;

	constexpr condition_variable() noexcept : condition_variable(process_shared)
	{
	}

	constexpr explicit condition_variable(sharing users) noexcept
		: cond_ MEMWAIT_COND_INIT_FLAGS(users)
	{
	}

	condition_variable(const condition_variable &) = delete;
	condition_variable &operator=(const condition_variable &) = delete;

	/*
	 * Waits for woken threads to leave. Does not wait for threads that have not been woken, or
	 * for coroutines, which must not be resumed afterwards. Therefore threads may be waiting
	 * for a static object when the program calls exit().
	 */
	~condition_variable()
	{
		memwait_cond_destroy(&cond_);
	}

	void notify_one()
	{
		detail::check(memwait_cond_signal(&cond_),
			      "memwait::condition_variable::notify_one");
	}

	void notify_all()
	{
		detail::check(memwait_cond_broadcast(&cond_),
			      "memwait::condition_variable::notify_all");
	}

	template <class Mutex>
	void wait(std::unique_lock<Mutex> &lock)
	{
		check_owned(lock);
		settle(lock, memwait_cond_wait(&cond_, lock.mutex()->native_handle()));
	}

	template <class Mutex, class Predicate>
	void wait(std::unique_lock<Mutex> &lock, Predicate predicate)
	{
		while (!predicate())
			wait(lock);
	}

	template <class Mutex, class Clock, class Duration>
	std::cv_status wait_until(std::unique_lock<Mutex> &lock,
				  const std::chrono::time_point<Clock, Duration> &time)
	{
		std::cv_status status = wait_by(lock, detail::at_or_near(time));

		/* On another clock a timeout may be early: treat it as a spurious wake-up. */
		if (!detail::is_kernels<Clock> && Clock::now() < time)
			status = std::cv_status::no_timeout;
		return status;
	}

	template <class Mutex, class Clock, class Duration, class Predicate>
	bool wait_until(std::unique_lock<Mutex> &lock,
			const std::chrono::time_point<Clock, Duration> &time, Predicate predicate)
	{
		while (!predicate()) {
			if (wait_until(lock, time) == std::cv_status::timeout)
				return predicate();
		}
		return true;
	}

	template <class Mutex, class Rep, class Period>
	std::cv_status wait_for(std::unique_lock<Mutex> &lock,
				const std::chrono::duration<Rep, Period> &time)
	{
		return wait_by(lock, time);
	}

	template <class Mutex, class Rep, class Period, class Predicate>
	bool wait_for(std::unique_lock<Mutex> &lock,
		      const std::chrono::duration<Rep, Period> &time, Predicate predicate)
	{
		const deadline then(time);

		while (!predicate()) {
			if (wait_by(lock, then) == std::cv_status::timeout)
				return predicate();
		}
		return true;
	}

#ifdef __cpp_lib_jthread
	/*
	 * Waits until the predicate holds or a stop is requested, like std::condition_variable_any.
	 */
	template <class Mutex, class Predicate>
	bool wait(std::unique_lock<Mutex> &lock, std::stop_token token, Predicate predicate)
	{
		while (!token.stop_requested()) {
			if (predicate())
				return true;
			wait_for_stop(lock, token, nullptr);
		}
		return predicate();
	}

	template <class Mutex, class Clock, class Duration, class Predicate>
	bool wait_until(std::unique_lock<Mutex> &lock, std::stop_token token,
			const std::chrono::time_point<Clock, Duration> &time, Predicate predicate)
	{
		while (!token.stop_requested()) {
			if (predicate())
				return true;

			const deadline then = detail::at_or_near(time);
			if (wait_for_stop(lock, token, &then) == std::cv_status::timeout &&
			    (detail::is_kernels<Clock> || Clock::now() >= time))
				return predicate();
		}
		return predicate();
	}

	template <class Mutex, class Rep, class Period, class Predicate>
	bool wait_for(std::unique_lock<Mutex> &lock, std::stop_token token,
		      const std::chrono::duration<Rep, Period> &time, Predicate predicate)
	{
		const deadline then(time);

		while (!token.stop_requested()) {
			if (predicate())
				return true;
			if (wait_for_stop(lock, token, &then) == std::cv_status::timeout)
				return predicate();
		}
		return predicate();
	}
#endif

	memwait_cond_t *native_handle() noexcept
	{
		return &cond_;
	}

#ifdef __cpp_impl_coroutine
	/*
	 * Use co_await in a loop that checks the condition. If the coroutine is destroyed while it
	 * is waiting, @lock does not own the mutex any more.
	 */
	template <class Mutex>
	auto wait_async(loop &owner, std::unique_lock<Mutex> &lock,
			const std::optional<deadline> &then = {})
	{
		check_owned(lock);
		return detail::awaitable(owner, [this, &lock, then](memwait_op_t *op, auto &) {
			return memwait_cond_clockwait_async(&cond_, lock.mutex()->native_handle(),
							    then ? then->clock : CLOCK_MONOTONIC,
							    then ? &then->time : nullptr, op);
		}, waited<Mutex>{ lock });
	}
#endif

private:
	template <class Mutex>
	static void check_owned(const std::unique_lock<Mutex> &lock)
	{
		detail::check(lock.owns_lock() ? 0 : EPERM,
			      "memwait::condition_variable: the mutex is not locked");
	}

	/*
	 * After an error that reports a death, the mutex's settle() determines whether the mutex is
	 * locked.
	 */
	template <class Mutex>
	static std::cv_status settle(std::unique_lock<Mutex> &lock, int err)
	{
		if (err != EOWNERDEAD && err != ENOTRECOVERABLE)
			return detail::check_try(err, ETIMEDOUT, "memwait::condition_variable") ?
				       std::cv_status::no_timeout : std::cv_status::timeout;
		try {
			lock.mutex()->settle(err, 0);
		} catch (...) {
			lock.release();
			throw;
		}
		return std::cv_status::no_timeout;
	}

	template <class Mutex>
	std::cv_status wait_by(std::unique_lock<Mutex> &lock, const deadline &then)
	{
		check_owned(lock);
		return settle(lock, memwait_cond_clockwait(&cond_, lock.mutex()->native_handle(),
							   then.clock, &then.time));
	}

	/* For the result of a callback: after all other errors, the mutex is not locked. */
	template <class Mutex>
	static std::cv_status settle_callback(std::unique_lock<Mutex> &lock, int err)
	{
		if (err && err != ETIMEDOUT && err != EOWNERDEAD) {
			lock.release();
			detail::check(err, "memwait::condition_variable");
		}
		return settle(lock, err);
	}

#ifdef __cpp_lib_jthread
	/*
	 * A stop request stops the loop, and this thread then wakes all waiters. A request between
	 * the check of the token and the wait is not lost, because the loop records the stop, and
	 * the operation is already waiting.
	 */
	template <class Mutex>
	std::cv_status wait_for_stop(std::unique_lock<Mutex> &lock, const std::stop_token &token,
				     const deadline *then)
	{
		int err, result = 0, state;
		memwait_mutex_t *native;
		memwait_op_t op;

		check_owned(lock);
		native = lock.mutex()->native_handle();
		memwait_loop_t *own = detail::own_loop().native_handle();
		detail::check_result(memwait_op_init(&op, own, nullptr, nullptr),
				     "memwait::condition_variable");
		const std::stop_callback stop(token, [own] { memwait_loop_stop(own); });
		err = then ? memwait_cond_clockwait_async(&cond_, native, then->clock, &then->time,
							  &op) :
			     memwait_cond_wait_async(&cond_, native, &op);
		if (err != EINPROGRESS)
			return settle(lock, err);
		/*
		 * If the thread were cancelled in this call, its stack would be freed while an
		 * operation on it is pending.
		 */
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
		while ((err = -memwait_op_wait(&op, &result)) == EINTR) {
			if (token.stop_requested())
				memwait_cond_broadcast(&cond_);
		}
		if (err)
			memwait_op_cancel(&op);
		pthread_setcancelstate(state, nullptr);
		return settle_callback(lock, err ? err : result);
	}
#endif

#ifdef __cpp_impl_coroutine
	template <class Mutex>
	struct waited {
		std::cv_status operator()(int err, bool has_waited) const
		{
			return has_waited ? settle_callback(lock, err) : settle(lock, err);
		}

		void abandoned() const noexcept
		{
			lock.release();
		}

		std::unique_lock<Mutex> &lock;
	};
#endif

	memwait_cond_t cond_;
};

namespace detail {

template <class Mutex>
using write_lockable = exclusive<Mutex, memwait_rwlock_t, memwait_rwlock_wrlock,
				 memwait_rwlock_trywrlock, memwait_rwlock_clockwrlock,
				 memwait_rwlock_clockwrlock_async, memwait_rwlock_unlock>;

/* The functions of read-write locks for readers and writers. */
template <class Mutex>
class shared_lockable : public write_lockable<Mutex> {
public:
	void lock_shared()
	{
		settle_shared([this] { return memwait_rwlock_rdlock(this->handle()); }, 0);
	}

	[[nodiscard]] bool try_lock_shared()
	{
		return settle_shared([this] {
			return memwait_rwlock_tryrdlock(this->handle());
		}, EBUSY);
	}

	template <class Rep, class Period>
	[[nodiscard]] bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &time)
	{
		return lock_shared_by(time);
	}

	template <class Clock, class Duration>
	[[nodiscard]] bool
	try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &time)
	{
		return !detail::call_until(time, [this](const deadline &then) {
			return lock_shared_by(then) ? 0 : ETIMEDOUT;
		});
	}

	void unlock_shared()
	{
		this->unlock();
	}

#ifdef __cpp_impl_coroutine
	/* co_await returns a std::shared_lock, like lock_async(). */
	auto lock_shared_async(loop &owner)
	{
		return this->template async<std::shared_lock, memwait_rwlock_clockrdlock_async>(
			owner, std::nullopt);
	}

	auto try_lock_shared_async(loop &owner, const deadline &then)
	{
		return this->template async<std::shared_lock, memwait_rwlock_clockrdlock_async>(
			owner, then);
	}
#endif

protected:
	constexpr shared_lockable() noexcept = default;

private:
	bool lock_shared_by(const deadline &then)
	{
		return settle_shared([&] {
			return memwait_rwlock_clockrdlock(this->handle(), then.clock, &then.time);
		}, ETIMEDOUT);
	}

	/* After a death the caller holds the write lock. After the repair, it locks for reading. */
	template <class Call>
	bool settle_shared(Call call, int no)
	{
		int err;

		while ((err = call()) == EOWNERDEAD) {
			this->settle(err, no);
			this->unlock();
		}
		return this->settle(err, no);
	}
};

} /* namespace detail */

/* All kinds of read-write locks except robust ones. */
template <unsigned int Kind>
class basic_shared_mutex : public detail::shared_lockable<basic_shared_mutex<Kind>> {
public:
	constexpr basic_shared_mutex() noexcept : basic_shared_mutex(process_shared)
	{
	}

	constexpr explicit basic_shared_mutex(sharing users) noexcept
		: rwlock_ MEMWAIT_RWLOCK_INIT_KIND(Kind | users)
	{
	}

	/* Waits for an earlier writer that is still unlocking. */
	~basic_shared_mutex()
	{
		memwait_rwlock_destroy(&rwlock_);
	}

	memwait_rwlock_t *native_handle() noexcept
	{
		return &rwlock_;
	}

private:
	friend detail::write_lockable<basic_shared_mutex>;

	bool settle(int err, int no)
	{
		/* The attached C object is a robust lock: see mutexes. */
		if (err == EOWNERDEAD)
			memwait_rwlock_unlock(&rwlock_);
		return detail::check_try(err, no, "memwait: locking a shared mutex");
	}

	memwait_rwlock_t rwlock_;
};

/* The part of a robust shared mutex that lies in shared memory. */
struct robust_shared_state {
	constexpr robust_shared_state() noexcept : robust_shared_state(process_shared)
	{
	}

	constexpr explicit robust_shared_state(sharing users) noexcept
		: rwlock MEMWAIT_RWLOCK_INIT_KIND(MEMWAIT_RWLOCK_ROBUST | users)
	{
	}

	robust_shared_state(const robust_shared_state &) = delete;
	robust_shared_state &operator=(const robust_shared_state &) = delete;

	/* Waits for an earlier writer that is still unlocking. */
	~robust_shared_state()
	{
		memwait_rwlock_destroy(&rwlock);
	}

	memwait_rwlock_t rwlock;
};

/*
 * Like robust_mutex, for a writer that dies. A reader that finds the writer dead also calls
 * @repair, with the write lock held. If a reader dies, the lock stays locked for reading, and no
 * writer can lock it.
 */
class robust_shared_mutex : public detail::shared_lockable<robust_shared_mutex> {
public:
	robust_shared_mutex(robust_shared_state &state, std::function<void()> repair)
		: rwlock_(&state.rwlock), repair_(std::move(repair))
	{
		detail::check(repair_ ? 0 : EINVAL,
			      "memwait::robust_shared_mutex: no repair function");
	}

	memwait_rwlock_t *native_handle() noexcept
	{
		return rwlock_;
	}

#ifdef __cpp_impl_coroutine
	/*
	 * Tasks of <memwait/task.hpp>, which a caller must include. Unlike the asynchronous
	 * functions of other classes, a task begins immediately.
	 */
	task<std::shared_lock<robust_shared_mutex>> lock_shared_async(loop &owner);
	task<std::shared_lock<robust_shared_mutex>> try_lock_shared_async(loop &owner,
									  deadline then);
#endif

private:
	friend detail::write_lockable<robust_shared_mutex>;

	bool settle(int err, int no)
	{
		if (err != EOWNERDEAD)
			return detail::check_try(err, no, "memwait: locking a robust shared mutex");
		try {
			repair_();
			detail::check(memwait_rwlock_consistent(rwlock_),
				      "memwait: repairing a shared mutex");
		} catch (...) {
			memwait_rwlock_unlock(rwlock_);
			throw;
		}
		return true;
	}

	memwait_rwlock_t *rwlock_;
	std::function<void()> repair_;
};

/*
 * shared_mutex prefers readers, like glibc's lock; fair_shared_mutex is acquired in FIFO order.
 */
using shared_mutex = basic_shared_mutex<MEMWAIT_RWLOCK_PREFER_READER>;
using shared_timed_mutex = shared_mutex;
using fair_shared_mutex = basic_shared_mutex<MEMWAIT_RWLOCK_FAIR>;

/* As in the standard library, the parameter LeastMax is only a promise. */
template <std::ptrdiff_t LeastMax = MEMWAIT_SEM_VALUE_MAX, unsigned int Flags = 0>
class counting_semaphore {
	static_assert(Flags == 0 || Flags == MEMWAIT_SEM_FAIR);
	static_assert(LeastMax >= 0 && LeastMax <= (Flags ? MEMWAIT_SEM_FAIR_VALUE_MAX :
							     MEMWAIT_SEM_VALUE_MAX));

public:
	using native_handle_type = memwait_sem_t *;

	constexpr explicit counting_semaphore(std::ptrdiff_t value, sharing users = process_shared)
		: sem_ MEMWAIT_SEM_INIT_FLAGS(Flags | users, to_word(value))
	{
	}

	counting_semaphore(const counting_semaphore &) = delete;
	counting_semaphore &operator=(const counting_semaphore &) = delete;

	static constexpr std::ptrdiff_t max() noexcept
	{
		return Flags ? MEMWAIT_SEM_FAIR_VALUE_MAX : MEMWAIT_SEM_VALUE_MAX;
	}

	/*
	 * std::errc::value_too_large: the value would be too large. Posts made before the error
	 * remain.
	 */
	void release(std::ptrdiff_t update = 1)
	{
		detail::check(update < 0 ? EINVAL : 0, "memwait::counting_semaphore::release");
		for (; update; update--)
			detail::check(memwait_sem_post(&sem_),
				      "memwait::counting_semaphore::release");
	}

	void acquire()
	{
		detail::check(detail::call_through_signals(EINTR, [this] {
			return memwait_sem_wait(&sem_);
		}), "memwait::counting_semaphore::acquire");
	}

	[[nodiscard]] bool try_acquire()
	{
		return detail::check_try(memwait_sem_trywait(&sem_), EAGAIN,
					 "memwait::counting_semaphore::try_acquire");
	}

	template <class Rep, class Period>
	[[nodiscard]] bool try_acquire_for(const std::chrono::duration<Rep, Period> &time)
	{
		return check_timed(acquire_by(time));
	}

	template <class Clock, class Duration>
	[[nodiscard]] bool try_acquire_until(const std::chrono::time_point<Clock, Duration> &time)
	{
		return check_timed(detail::call_until(time, [this](const deadline &then) {
			return acquire_by(then);
		}));
	}

	memwait_sem_t *native_handle() noexcept
	{
		return &sem_;
	}

#ifdef __cpp_impl_coroutine
	auto acquire_async(loop &owner)
	{
		return detail::awaiting<memwait_sem_clockwait_async>(
			owner, &sem_, std::nullopt, [](int err, bool) {
				detail::check(err, "memwait::counting_semaphore::acquire_async");
			});
	}

	auto try_acquire_async(loop &owner, const deadline &then)
	{
		return detail::awaiting<memwait_sem_clockwait_async>(
			owner, &sem_, then, [](int err, bool) { return check_timed(err); });
	}
#endif

private:
	static constexpr std::uint64_t to_word(std::ptrdiff_t value)
	{
		if (value < 0 || value > max())
			detail::check(EINVAL, "memwait::counting_semaphore: value out of range");
		return static_cast<std::uint32_t>(value);
	}

	static bool check_timed(int err)
	{
		return detail::check_try(err, ETIMEDOUT,
					 "memwait::counting_semaphore::try_acquire_until");
	}

	int acquire_by(const deadline &then)
	{
		return detail::call_through_signals(EINTR, [&] {
			return memwait_sem_clockwait(&sem_, then.clock, &then.time);
		});
	}

	memwait_sem_t sem_;
};

using binary_semaphore = counting_semaphore<1>;
/* A post is handed to the oldest waiter. */
using fair_semaphore = counting_semaphore<MEMWAIT_SEM_FAIR_VALUE_MAX, MEMWAIT_SEM_FAIR>;

/* The result of a wait at a barrier: one participant gets serial. */
enum class barrier_status { met, serial, timeout };

/*
 * Like std::barrier without a completion function: see memwait_cxx(7). If a wait times out, its
 * arrival is withdrawn.
 */
class barrier {
	struct arrival;

public:
	using native_handle_type = memwait_barrier_t *;

	/*
	 * The argument for wait(), which must be called in the thread that has arrived. If the
	 * token is destroyed before the others have arrived, or if its thread ends, the arrival is
	 * withdrawn.
	 */
	class arrival_token {
	private:
		friend class barrier;

		explicit arrival_token(std::unique_ptr<arrival> arrived) noexcept
			: arrived_(std::move(arrived))
		{
		}

		std::unique_ptr<arrival> arrived_;
	};

	explicit barrier(std::ptrdiff_t expected, sharing users = process_shared)
	{
		const auto count = static_cast<unsigned int>(expected);

		detail::check(expected <= 0 || expected > max() ? EINVAL :
			      memwait_barrier_init(&barrier_, users, count), "memwait::barrier");
	}

	barrier(const barrier &) = delete;
	barrier &operator=(const barrier &) = delete;

	/* See condition_variable. */
	~barrier()
	{
		memwait_barrier_destroy(&barrier_);
	}

	static constexpr std::ptrdiff_t max() noexcept
	{
		return std::numeric_limits<int>::max();
	}

	/* Does not block: the thread can continue, and wait for the others later. */
	[[nodiscard]] arrival_token arrive()
	{
		return arrival_token(std::make_unique<arrival>(*this));
	}

	barrier_status wait(arrival_token &&token) const
	{
		const std::unique_ptr<arrival> arrived = std::move(token.arrived_);

		detail::check(arrived ? 0 : EINVAL, "memwait::barrier::wait: not arrived");
		arrived->await_end();
		return to_status(arrived->result);
	}

	barrier_status arrive_and_wait()
	{
		return to_status(memwait_barrier_wait(&barrier_));
	}

	template <class Rep, class Period>
	barrier_status arrive_and_wait_for(const std::chrono::duration<Rep, Period> &time)
	{
		return to_status(wait_by(time));
	}

	template <class Clock, class Duration>
	barrier_status arrive_and_wait_until(const std::chrono::time_point<Clock, Duration> &time)
	{
		return to_status(detail::call_until(time, [this](const deadline &then) {
			return wait_by(then);
		}));
	}

	/* Present and later waits throw EPIPE, until a reset(). */
	void abort()
	{
		detail::check(memwait_barrier_abort(&barrier_), "memwait::barrier::abort");
	}

	/* Present waits throw EPIPE. Later waits work again. */
	void reset()
	{
		detail::check(memwait_barrier_reset(&barrier_), "memwait::barrier::reset");
	}

	memwait_barrier_t *native_handle() noexcept
	{
		return &barrier_;
	}

#ifdef __cpp_impl_coroutine
	auto arrive_and_wait_async(loop &owner, const std::optional<deadline> &then = {})
	{
		return detail::awaiting<memwait_barrier_clockwait_async>(
			owner, &barrier_, then, [](int err, bool) { return to_status(err); });
	}
#endif

private:
	/* An operation of the thread's own loop, because every arrival is a waiter. */
	struct arrival : detail::operation {
		explicit arrival(barrier &to) : operation(detail::own_loop(), end)
		{
			result = begin([&to](memwait_op_t *op) {
				return memwait_barrier_wait_async(&to.barrier_, op);
			});
			if (result != EINPROGRESS)
				to_status(result);
		}

		using operation::await_end;

		static void end(operation &self, int err) noexcept
		{
			static_cast<arrival &>(self).result = err;
		}

		int result;
	};

	static barrier_status to_status(int err)
	{
		if (err == MEMWAIT_BARRIER_SERIAL_THREAD)
			return barrier_status::serial;
		return detail::check_try(err, ETIMEDOUT, "memwait::barrier::arrive_and_wait") ?
			       barrier_status::met : barrier_status::timeout;
	}

	int wait_by(const deadline &then)
	{
		return memwait_barrier_clockwait(&barrier_, then.clock, &then.time);
	}

	memwait_barrier_t barrier_;
};

namespace detail {

/* Objects that have only one wait, without a result: latches and events. */
template <class Native, auto Wait, auto Clockwait, auto Async>
class waitable {
public:
	using native_handle_type = Native *;

	waitable(const waitable &) = delete;
	waitable &operator=(const waitable &) = delete;

	void wait() const
	{
		check(Wait(&object_), "memwait: wait");
	}

	template <class Rep, class Period>
	bool wait_for(const std::chrono::duration<Rep, Period> &time) const
	{
		return wait_by(time);
	}

	template <class Clock, class Duration>
	bool wait_until(const std::chrono::time_point<Clock, Duration> &time) const
	{
		return !call_until(time, [this](const deadline &then) {
			return wait_by(then) ? 0 : ETIMEDOUT;
		});
	}

	Native *native_handle() noexcept
	{
		return &object_;
	}

#ifdef __cpp_impl_coroutine
	auto wait_async(loop &owner) const
	{
		return awaiting<Async>(owner, &object_, std::nullopt, [](int err, bool) {
			check(err, "memwait: wait_async");
		});
	}

	auto wait_async(loop &owner, const deadline &then) const
	{
		return awaiting<Async>(owner, &object_, then, [](int err, bool) {
			return check_try(err, ETIMEDOUT, "memwait: wait_async");
		});
	}
#endif

protected:
	constexpr explicit waitable(const Native &initial) noexcept : object_(initial)
	{
	}

	bool wait_by(const deadline &then) const
	{
		return check_try(Clockwait(&object_, then.clock, &then.time), ETIMEDOUT,
				 "memwait: wait_until");
	}

	mutable Native object_;		/* a wait modifies it */
};

using waitable_group = waitable<memwait_waitgroup_t, memwait_waitgroup_wait,
				memwait_waitgroup_clockwait, memwait_waitgroup_clockwait_async>;
using waitable_event = waitable<memwait_event_t, memwait_event_wait, memwait_event_clockwait,
				memwait_event_clockwait_async>;

} /* namespace detail */

/* A memwait_waitgroup_t. */
class latch : public detail::waitable_group {
public:
	explicit latch(std::ptrdiff_t expected, sharing users = process_shared)
		: waitable(memwait_waitgroup_t{})
	{
		const auto count = static_cast<unsigned int>(expected);

		detail::check(expected < 0 || expected > max() ? EINVAL :
			      memwait_waitgroup_init(&object_, users, count), "memwait::latch");
	}

	/* See condition_variable. */
	~latch()
	{
		memwait_waitgroup_destroy(&object_);
	}

	static constexpr std::ptrdiff_t max() noexcept
	{
		return MEMWAIT_WAITGROUP_MAX;
	}

	void count_down(std::ptrdiff_t update = 1)
	{
		detail::check(update < 0 || update > max() ? EINVAL :
			      memwait_waitgroup_add(&object_, -static_cast<int>(update)),
			      "memwait::latch::count_down");
	}

	bool try_wait() const
	{
		return wait_by(std::chrono::steady_clock::time_point());
	}

	void arrive_and_wait(std::ptrdiff_t update = 1)
	{
		count_down(update);
		wait();
	}
};

/* A flag to wait for: a memwait_event_t. */
class event : public detail::waitable_event {
public:
	constexpr explicit event(sharing users = process_shared)
		: waitable(memwait_event_t MEMWAIT_EVENT_INIT_FLAGS(users))
	{
	}

	bool is_set() const
	{
		return detail::check_result(memwait_event_is_set(&object_),
					    "memwait::event::is_set");
	}

	void set()
	{
		detail::check(memwait_event_set(&object_), "memwait::event::set");
	}

	void clear()
	{
		detail::check(memwait_event_clear(&object_), "memwait::event::clear");
	}
};

/*
 * A bounded queue of items, in memory that the caller provides and that must outlive it. This class
 * is a handle: it can be moved, and each process has its own handle to the channel.
 */
template <class T>
class channel {
	static_assert(std::is_trivially_copyable_v<T>, "items are copied as bytes");

public:
	using native_handle_type = memwait_channel_t *;

	/*
	 * Returns the size of the memory, or 0 if it is too large. Align the memory to 8 or,
	 * better, 64 bytes.
	 */
	static std::size_t size(std::size_t capacity) noexcept
	{
		return memwait_channel_size(sizeof(T), capacity);
	}

	/* Creates an empty channel in @bytes bytes of memory. */
	channel(void *memory, std::size_t bytes, std::size_t capacity,
		sharing users = process_shared)
		: channel_(to_channel(memory)), capacity_(capacity)
	{
		detail::check(memwait_channel_init(channel_, bytes, users, sizeof(T), capacity),
			      "memwait::channel");
	}

	/*
	 * Attaches to an existing channel. Throws std::errc::invalid_argument if the channel is
	 * larger than @bytes, or has items of another size.
	 */
	static channel attach(void *memory, std::size_t bytes)
	{
		memwait_channel_t *made = to_channel(memory);
		std::size_t item_size, capacity;
		int err = memwait_channel_attach(made, bytes, &item_size, &capacity);

		detail::check(!err && item_size != sizeof(T) ? EINVAL : err,
			      "memwait::channel::attach");
		return channel(made, capacity);
	}

	/* std::errc::broken_pipe: the channel is closed. */
	void send(const T &item)
	{
		detail::check(memwait_channel_send(channel_, &item, sizeof(T)),
			      "memwait::channel::send");
	}

	/* false: the channel is full, or another thread is sending. */
	bool try_send(const T &item)
	{
		int err = memwait_channel_trysend(channel_, &item, sizeof(T));

		return detail::check_try(not_now(err), EAGAIN, "memwait::channel::try_send");
	}

	template <class Rep, class Period>
	bool try_send_for(const T &item, const std::chrono::duration<Rep, Period> &time)
	{
		return check_sent(send_by(item, time));
	}

	template <class Clock, class Duration>
	bool try_send_until(const T &item, const std::chrono::time_point<Clock, Duration> &time)
	{
		return check_sent(detail::call_until(time, [&](const deadline &then) {
			return send_by(item, then);
		}));
	}

	/* Returns nullopt if the channel is closed and empty. */
	std::optional<T> receive()
	{
		place item;

		return item.get(memwait_channel_recv(channel_, &item.value, sizeof(T)), EPIPE);
	}

	/* Returns nullopt if there is no item. std::errc::broken_pipe: closed and empty. */
	std::optional<T> try_receive()
	{
		place item;
		int err = memwait_channel_tryrecv(channel_, &item.value, sizeof(T));

		return item.get(not_now(err), EAGAIN);
	}

	template <class Rep, class Period>
	std::optional<T> try_receive_for(const std::chrono::duration<Rep, Period> &time)
	{
		place item;

		return item.get(receive_by(item, time), ETIMEDOUT);
	}

	template <class Clock, class Duration>
	std::optional<T> try_receive_until(const std::chrono::time_point<Clock, Duration> &time)
	{
		place item;

		return item.get(detail::call_until(time, [&](const deadline &then) {
			return receive_by(item, then);
		}), ETIMEDOUT);
	}

	/* Further sends fail. Items that were sent can still be received. */
	void close()
	{
		detail::check(memwait_channel_close(channel_), "memwait::channel::close");
	}

	std::size_t capacity() const noexcept
	{
		return capacity_;
	}

	/* The number of items now. */
	std::size_t length() const noexcept
	{
		return memwait_channel_length(channel_);
	}

	memwait_channel_t *native_handle() noexcept
	{
		return channel_;
	}

#ifdef __cpp_impl_coroutine
	auto send_async(loop &owner, const T &item)
	{
		return detail::awaitable(owner, [to = channel_, item](memwait_op_t *op, auto &) {
			return memwait_channel_send_async(to, &item, sizeof(T), op);
		}, [](int err, bool) { detail::check(err, "memwait::channel::send_async"); });
	}

	/* co_await returns the result of the function without _async. */
	auto receive_async(loop &owner)
	{
		auto begin = [from = channel_](memwait_op_t *op, received<EPIPE> &to) {
			return memwait_channel_recv_async(from, &to.item.value, sizeof(T), op);
		};

		return detail::awaitable<decltype(begin), received<EPIPE>>(owner, begin);
	}

	auto try_send_async(loop &owner, const T &item, const deadline &then)
	{
		auto begin = [to = channel_, item, then](memwait_op_t *op, auto &) {
			return memwait_channel_clocksend_async(to, &item, sizeof(T), then.clock,
							       &then.time, op);
		};

		return detail::awaitable(owner, begin, [](int err, bool) {
			return check_sent(err);
		});
	}

	auto try_receive_async(loop &owner, const deadline &then)
	{
		auto begin = [from = channel_, then](memwait_op_t *op, received<ETIMEDOUT> &to) {
			return memwait_channel_clockrecv_async(from, &to.item.value, sizeof(T),
							       then.clock, &then.time, op);
		};

		return detail::awaitable<decltype(begin), received<ETIMEDOUT>>(owner, begin);
	}
#endif

private:
	/* T needs no default constructor, because the library writes its bytes. */
	union place {
		place() noexcept : nothing{}
		{
		}

		std::optional<T> get(int err, int no) const
		{
			if (!detail::check_try(err, no, "memwait::channel::receive"))
				return std::nullopt;
			return value;
		}

		char nothing;
		T value;
	};

	channel(memwait_channel_t *made, std::size_t capacity) noexcept
		: channel_(made), capacity_(capacity)
	{
	}

	static memwait_channel_t *to_channel(void *memory)
	{
		return static_cast<memwait_channel_t *>(detail::check_place(memory, 8));
	}

	/* The channel is full or empty, or another thread is in the same call. */
	static int not_now(int err) noexcept
	{
		return err == EBUSY ? EAGAIN : err;
	}

	static bool check_sent(int err)
	{
		return detail::check_try(err, ETIMEDOUT, "memwait::channel::try_send_until");
	}

	int send_by(const T &item, const deadline &then)
	{
		return memwait_channel_clocksend(channel_, &item, sizeof(T), then.clock,
						 &then.time);
	}

	int receive_by(place &item, const deadline &then)
	{
		return memwait_channel_clockrecv(channel_, &item.value, sizeof(T), then.clock,
						 &then.time);
	}

#ifdef __cpp_impl_coroutine
	template <int No>
	struct received {
		std::optional<T> operator()(int err, bool) const
		{
			return item.get(err, No);
		}

		place item;
	};
#endif

	memwait_channel_t *channel_;
	std::size_t capacity_;
};

/* Words: atomics of 1, 2, 4 or 8 bytes, in memory of any kind. */

enum class outcome {
	ok = MEMWAIT_OK,
	not_equal = MEMWAIT_NOT_EQUAL,
	timed_out = MEMWAIT_TIMED_OUT
};

namespace detail {

/* Prevents deduction of T, like std::type_identity in C++20. */
template <class T>
struct same {
	using type = T;
};

template <class T>
using same_t = typename same<T>::type;

template <std::size_t Size>
struct bits;

template <>
struct bits<1> {
	using type = std::uint8_t;
	static constexpr unsigned int size = MEMWAIT_SIZE_U8;
	static constexpr auto wait = memwait_wait8;
	static constexpr auto wait_async = memwait_wait8_async;
	static constexpr auto watch = memwait_watch8;
};

template <>
struct bits<2> {
	using type = std::uint16_t;
	static constexpr unsigned int size = MEMWAIT_SIZE_U16;
	static constexpr auto wait = memwait_wait16;
	static constexpr auto wait_async = memwait_wait16_async;
	static constexpr auto watch = memwait_watch16;
};

template <>
struct bits<4> {
	using type = std::uint32_t;
	static constexpr unsigned int size = MEMWAIT_SIZE_U32;
	static constexpr auto wait = memwait_wait32;
	static constexpr auto wait_async = memwait_wait32_async;
	static constexpr auto watch = memwait_watch32;
};

template <>
struct bits<8> {
	using type = std::uint64_t;
	static constexpr unsigned int size = MEMWAIT_SIZE_U64;
	static constexpr auto wait = memwait_wait64;
	static constexpr auto wait_async = memwait_wait64_async;
	static constexpr auto watch = memwait_watch64;
};

template <class T>
typename bits<sizeof(T)>::type to_bits(const T &value)
{
	typename bits<sizeof(T)>::type number;

	static_assert(std::atomic<T>::is_always_lock_free && sizeof(std::atomic<T>) == sizeof(T));
	std::memcpy(&number, &value, sizeof(number));
	return number;
}

/* Returns an outcome (ETIMEDOUT instead of MEMWAIT_TIMED_OUT) or a negative error number. */
template <class T>
int wait_by(const std::atomic<T> &word, T expected, unsigned int flags, const deadline *then)
{
	int result;

	if (then && then->clock == CLOCK_REALTIME)
		flags |= MEMWAIT_CLOCK_REALTIME;
	result = call_through_signals(-EINTR, [&] {
		return bits<sizeof(T)>::wait(&word, detail::to_bits(expected),
					     then ? &then->time : nullptr, flags);
	});
	return result == MEMWAIT_TIMED_OUT ? ETIMEDOUT : result;
}

inline outcome to_outcome(int result)
{
	if (result == ETIMEDOUT)
		result = MEMWAIT_TIMED_OUT;
	return static_cast<outcome>(check_result(result == ECANCELED ? -ECANCELED : result,
						 "memwait: waiting on a word"));
}

#ifdef __cpp_impl_coroutine
template <class T>
auto wait_by_async(loop &owner, const std::atomic<T> &word, T expected, unsigned int flags,
		   const std::optional<deadline> &then)
{
	if (then && then->clock == CLOCK_REALTIME)
		flags |= MEMWAIT_CLOCK_REALTIME;
	return awaitable(owner, [&word, expected, flags, then](memwait_op_t *op, auto &) {
		int result = bits<sizeof(T)>::wait_async(&word, detail::to_bits(expected),
							 then ? &then->time : nullptr, flags, op);

		return result == MEMWAIT_PENDING ? EINPROGRESS : result;
	}, [](int result, bool) { return to_outcome(result); });
}
#endif

} /* namespace detail */

/* If the word has the value @expected, waits for a notify. */
template <class T>
outcome wait(const std::atomic<T> &word, detail::same_t<T> expected, sharing users = process_shared)
{
	return detail::to_outcome(detail::wait_by<T>(word, expected, users, nullptr));
}

template <class T, class Rep, class Period>
outcome wait_for(const std::atomic<T> &word, detail::same_t<T> expected,
		 const std::chrono::duration<Rep, Period> &time, sharing users = process_shared)
{
	const deadline then(time);

	return detail::to_outcome(detail::wait_by<T>(word, expected, users, &then));
}

template <class T, class Clock, class Duration>
outcome wait_until(const std::atomic<T> &word, detail::same_t<T> expected,
		   const std::chrono::time_point<Clock, Duration> &time,
		   sharing users = process_shared)
{
	return detail::to_outcome(detail::call_until(time, [&](const deadline &then) {
		return detail::wait_by<T>(word, expected, users, &then);
	}));
}

/* Wakes waiters of any word size and language, oldest first. Returns how many it woke. */
template <class T>
unsigned int notify(const std::atomic<T> &word, unsigned int count, sharing users = process_shared)
{
	return static_cast<unsigned int>(
		detail::check_result(memwait_notify(&word, count, users), "memwait::notify"));
}

template <class T>
unsigned int notify_one(const std::atomic<T> &word, sharing users = process_shared)
{
	return memwait::notify(word, 1, users);
}

template <class T>
unsigned int notify_all(const std::atomic<T> &word, sharing users = process_shared)
{
	return memwait::notify(word, MEMWAIT_ALL, users);
}

#ifdef __cpp_impl_coroutine
/* co_await returns the outcome. */
template <class T>
auto wait_async(loop &owner, const std::atomic<T> &word, detail::same_t<T> expected,
		sharing users = process_shared)
{
	return detail::wait_by_async<T>(owner, word, expected, users, std::nullopt);
}

template <class T>
auto wait_async(loop &owner, const std::atomic<T> &word, detail::same_t<T> expected,
		const deadline &then, sharing users = process_shared)
{
	return detail::wait_by_async<T>(owner, word, expected, users, then);
}
#endif

/*
 * A std::atomic whose wait() and notify_...() work between all processes that map it, even in
 * C++17. It has the layout of std::atomic, and is a word for all functions in this header.
 */
template <class T, sharing Users = process_shared>
class atomic : public std::atomic<T> {
public:
	using std::atomic<T>::atomic;
	using std::atomic<T>::operator=;

	/* Waits until a notify finds that the word differs from @old. */
	void wait(T old, std::memory_order order = std::memory_order_seq_cst) const
	{
		while (detail::to_bits<T>(this->load(order)) == detail::to_bits<T>(old))
			memwait::wait(*this, old, Users);
	}

	void notify_one() const
	{
		memwait::notify_one(*this, Users);
	}

	void notify_all() const
	{
		memwait::notify_all(*this, Users);
	}
};

/* A word for wait_any(), and its expected value. */
class expectation {
public:
	template <class T>
	expectation(const std::atomic<T> &word, detail::same_t<T> expected,
		    sharing users = process_shared) noexcept
		: wait_{}
	{
		wait_.addr = reinterpret_cast<std::uintptr_t>(&word);
		wait_.expected = detail::to_bits<T>(expected);
		wait_.flags = detail::bits<sizeof(T)>::size | users;
	}

private:
	struct memwait_wait wait_;
};

/* @index: that of the notified word, or of the first word that is not equal; otherwise 0. */
struct any_outcome {
	outcome result;
	std::size_t index;
};

namespace detail {

/* Converts an array of expectations for C. */
template <class Words>
struct any_of {
	static_assert(std::is_same_v<typename Words::value_type, expectation> &&
		      sizeof(expectation) == sizeof(struct memwait_wait));

	any_of(const Words &words, const deadline *then) noexcept
		: waits(reinterpret_cast<const struct memwait_wait *>(std::data(words))),
		  /* EINVAL: there are no words, or too many words. */
		  count(std::size(words) > MEMWAIT_GROUP_MAX ? 0 :
			static_cast<unsigned int>(std::size(words))),
		  time(then ? &then->time : nullptr),
		  flags(then && then->clock == CLOCK_REALTIME ? MEMWAIT_CLOCK_REALTIME : 0)
	{
	}

	const struct memwait_wait *waits;
	unsigned int count;
	const std::timespec *time;
	unsigned int flags;
};

template <class Words>
int wait_any_by(const Words &words, const deadline *then, unsigned int &index)
{
	const any_of<Words> any(words, then);
	int result;

	result = call_through_signals(-EINTR, [&] {
		return memwait_wait_any(any.waits, any.count, any.time, any.flags, &index);
	});
	return result == MEMWAIT_TIMED_OUT ? ETIMEDOUT : result;
}

inline any_outcome to_any_outcome(int result, unsigned int index)
{
	const outcome how = to_outcome(result);

	return { how, how == outcome::timed_out ? 0 : index };
}

#ifdef __cpp_impl_coroutine
struct any_waited {
	any_outcome operator()(int result, bool) const
	{
		return to_any_outcome(result, memwait_op_index(op));
	}

	memwait_op_t *op = nullptr;
};

template <class Words>
auto wait_any_by_async(loop &owner, Words &&words, const std::optional<deadline> &then)
{
	/* The array is in the awaitable, which does not move after the wait has begun. */
	auto begin = [words = std::forward<Words>(words), then](memwait_op_t *op,
								any_waited &waited) {
		const any_of<std::decay_t<Words>> any(words, then ? &*then : nullptr);
		int result;

		waited.op = op;
		result = memwait_wait_any_async(any.waits, any.count, any.time, any.flags, op);
		return result == MEMWAIT_PENDING ? EINPROGRESS : result;
	};

	return awaitable<decltype(begin), any_waited>(owner, std::move(begin));
}
#endif

} /* namespace detail */

/*
 * If all words have their expected values, waits until one of them is notified. @words: a
 * std::array or std::vector of 1 to MEMWAIT_GROUP_MAX expectations.
 */
template <class Words>
any_outcome wait_any(const Words &words)
{
	unsigned int index = 0;
	const int result = detail::wait_any_by(words, nullptr, index);

	return detail::to_any_outcome(result, index);
}

template <class Words, class Rep, class Period>
any_outcome wait_any_for(const Words &words, const std::chrono::duration<Rep, Period> &time)
{
	const deadline then(time);
	unsigned int index = 0;
	const int result = detail::wait_any_by(words, &then, index);

	return detail::to_any_outcome(result, index);
}

template <class Words, class Clock, class Duration>
any_outcome wait_any_until(const Words &words,
			   const std::chrono::time_point<Clock, Duration> &time)
{
	unsigned int index = 0;
	const int result = detail::call_until(time, [&](const deadline &then) {
		return detail::wait_any_by(words, &then, index);
	});

	return detail::to_any_outcome(result, index);
}

#ifdef __cpp_impl_coroutine
template <class Words>
auto wait_any_async(loop &owner, Words words)
{
	return detail::wait_any_by_async(owner, std::move(words), std::nullopt);
}

template <class Words>
auto wait_any_async(loop &owner, Words words, const deadline &then)
{
	return detail::wait_any_by_async(owner, std::move(words), then);
}
#endif

/*
 * Calls @notified(count) within dispatch() each time that notifies have arrived, until the watch is
 * destroyed. The destructor waits for a call that is running in another thread, and dispatches the
 * loop while it waits. @notified must neither throw nor destroy the watch.
 */
class watch : detail::operation {
public:
	/* std::errc::resource_unavailable_try_again: the word has a different value. */
	template <class T>
	watch(loop &owner, const std::atomic<T> &watched, detail::same_t<T> expected,
	      std::function<void(unsigned int count)> notified, sharing users = process_shared)
		: operation(owner, call, true), notified_(std::move(notified))
	{
		detail::check(notified_ ? 0 : EINVAL, "memwait::watch: the function is empty");

		const int err = begin([&](memwait_op_t *op) {
			int result = detail::bits<sizeof(T)>::watch(
				&watched, detail::to_bits<T>(expected), nullptr, users, op);

			if (result == MEMWAIT_PENDING)
				return EINPROGRESS;
			return result == MEMWAIT_NOT_EQUAL ? EAGAIN : -result;
		});

		detail::check(err == EINPROGRESS ? 0 : err, "memwait::watch");
	}

	/* Cancel the operation before the function is destroyed. */
	~watch()
	{
		cancel();
	}

private:
	static void call(operation &self, int result) noexcept
	{
		watch &me = static_cast<watch &>(self);

		if (result == MEMWAIT_OK)
			me.notified_(me.count());
	}

	std::function<void(unsigned int count)> notified_;
};

} /* namespace memwait */

#endif /* MEMWAIT_HPP */
