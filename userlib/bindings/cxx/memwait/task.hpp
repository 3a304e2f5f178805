// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * memwait::task<T>, a coroutine type for programs that have no such type of their own, and the
 * functions of robust_shared_mutex that return a task. See memwait_cxx(7).
 */
#ifndef MEMWAIT_TASK_HPP
#define MEMWAIT_TASK_HPP

#include <memwait.hpp>

#ifndef __cpp_impl_coroutine
#error "memwait/task.hpp needs coroutines: -std=c++20 or later"
#endif

#include <atomic>
#include <cerrno>
#include <coroutine>
#include <exception>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace memwait {

namespace detail {

struct promise_base {
	struct final_awaiter {
		bool await_ready() const noexcept
		{
			return false;
		}

		template <class Promise>
		std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) noexcept
		{
			void *next = ended.promise().end();

			/* Another thread may have destroyed the frame. */
			if (!next)
				return std::noop_coroutine();
			return std::coroutine_handle<>::from_address(next);
		}

		void await_resume() const noexcept
		{
		}
	};

	std::suspend_never initial_suspend() const noexcept
	{
		return {};
	}

	final_awaiter final_suspend() const noexcept
	{
		return {};
	}

	void unhandled_exception() noexcept
	{
		error = std::current_exception();
	}

	/*
	 * Returns false if the coroutine has ended. Otherwise its end resumes @handle, possibly
	 * before this function returns.
	 */
	bool set_next(std::coroutine_handle<> handle) noexcept
	{
		void *none = nullptr;

		/*
		 * release: pairs with the acquire in end(), so that the thread that resumes the
		 * coroutine sees it suspended. acquire: see has_ended().
		 */
		return next_.compare_exchange_strong(none, handle.address(),
						     std::memory_order_release,
						     std::memory_order_acquire);
	}

	/* Returns the coroutine that waits for the end, or nullptr. */
	void *end() noexcept
	{
		/* release: publishes the result. acquire: see set_next(). */
		return next_.exchange(this, std::memory_order_acq_rel);
	}

	bool has_ended() const noexcept
	{
		/* acquire: pairs with the release in end(): the caller now owns result and frame */
		return next_.load(std::memory_order_acquire) == this;
	}

	std::exception_ptr error;

private:
	/* The coroutine that waits for the end; after the end, this promise itself. */
	std::atomic<void *> next_{ nullptr };
};

template <class T>
struct promise : promise_base {
	task<T> get_return_object();

	/* The default argument allows co_return with braces. */
	template <class U = T>
	void return_value(U &&u)
	{
		value.emplace(std::forward<U>(u));
	}

	std::optional<T> value;
};

template <class T>
struct promise<T &> : promise_base {
	task<T &> get_return_object();

	void return_value(T &referred) noexcept
	{
		value = &referred;
	}

	T *value = nullptr;
};

template <>
struct promise<void> : promise_base {
	task<void> get_return_object();

	void return_void() const noexcept
	{
	}
};

} /* namespace detail */

/*
 * A coroutine that begins immediately. If the task is destroyed before it has ended, the coroutine
 * is cancelled where it waits. get(), or co_await in another coroutine, returns the result or
 * rethrows the exception.
 */
template <class T>
class [[nodiscard]] task {
	static_assert(!std::is_rvalue_reference_v<T>, "a task gives an object or a T &, not a T &&");

public:
	using promise_type = detail::promise<T>;

	explicit task(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle)
	{
	}

	task(task &&other) noexcept : handle_(std::exchange(other.handle_, nullptr))
	{
	}

	/* Destroys the previous coroutine. */
	task &operator=(task &&other) noexcept
	{
		task old(std::move(other));

		std::swap(handle_, old.handle_);
		return *this;
	}

	~task()
	{
		if (handle_)
			handle_.destroy();
	}

	bool done() const noexcept
	{
		return handle_ && handle_.promise().has_ended();
	}

	/* Call this once, after the task is done. */
	T get()
	{
		if (!done())
			throw std::logic_error("memwait::task: not done");
		if (handle_.promise().error)
			std::rethrow_exception(handle_.promise().error);
		if constexpr (!std::is_void_v<T>)
			return std::forward<T>(*handle_.promise().value);
	}

	/* Moves the task into the waiting coroutine; the task is destroyed with that coroutine. */
	auto operator co_await() && noexcept
	{
		struct awaiter {
			bool await_ready() const
			{
				if (!self.handle_)
					throw std::logic_error("memwait::task: moved from");
				return false;
			}

			bool await_suspend(std::coroutine_handle<> next) noexcept
			{
				return self.handle_.promise().set_next(next);
			}

			T await_resume()
			{
				return self.get();
			}

			task self;
		};

		return awaiter{ std::move(*this) };
	}

private:
	std::coroutine_handle<promise_type> handle_;
};

template <class T>
task<T> detail::promise<T>::get_return_object()
{
	return task<T>(std::coroutine_handle<promise>::from_promise(*this));
}

template <class T>
task<T &> detail::promise<T &>::get_return_object()
{
	return task<T &>(std::coroutine_handle<promise>::from_promise(*this));
}

inline task<void> detail::promise<void>::get_return_object()
{
	return task<void>(std::coroutine_handle<promise>::from_promise(*this));
}

inline task<std::shared_lock<robust_shared_mutex>>
robust_shared_mutex::lock_shared_async(loop &owner)
{
	for (;;) {
		const int err = co_await detail::awaitable(
			owner, [this](memwait_op_t *op, auto &) {
				return memwait_rwlock_rdlock_async(rwlock_, op);
			}, [](int result, bool) { return result; });

		settle(err, 0);
		if (err != EOWNERDEAD)
			co_return std::shared_lock(*this, std::adopt_lock);
		unlock();
	}
}

inline task<std::shared_lock<robust_shared_mutex>>
robust_shared_mutex::try_lock_shared_async(loop &owner, deadline then)
{
	for (;;) {
		const int err = co_await detail::awaitable(
			owner, [this, &then](memwait_op_t *op, auto &) {
				return memwait_rwlock_clockrdlock_async(
					rwlock_, then.clock, &then.time, op);
			}, [](int result, bool) { return result; });

		if (!settle(err, ETIMEDOUT))
			co_return std::shared_lock(*this, std::defer_lock);
		if (err != EOWNERDEAD)
			co_return std::shared_lock(*this, std::adopt_lock);
		unlock();
	}
}

} /* namespace memwait */

#endif /* MEMWAIT_TASK_HPP */
