// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The device: sleep and wake. The first function that begins something opens the device, so that
 * functions that end something need not open it.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device.h"

_Atomic uint64_t memwait_device_context = UINT32_MAX;
/*
 * Used instead of memwait_device_context under ThreadSanitizer or valgrind, so that fast paths are
 * not taken: see tsan.h.
 */
static _Atomic uint64_t context_under_tsan = UINT32_MAX;
__thread struct memwait_self memwait_self;
/* Like memwait_self, but with an id that the library assigns; for objects of one process. */
static __thread struct memwait_self own_number;

/*
 * A number for the process, which differs between parent and child. It is in a page that the kernel
 * clears in every child, because _Fork() and clone() run no handlers. If there is no such page, the
 * number is in without_page, and only fork() is detected.
 */
static _Atomic uint32_t without_page = 1;
static _Atomic uint32_t last_process = 1;
_Atomic uint32_t *memwait_process = &without_page;

static void after_fork(void)
{
	/* relaxed, here and below: a child has one thread, and nothing depends on the number */
	atomic_store_explicit(memwait_process, 0, memory_order_relaxed);
}

/* Runs before the constructors of the program, which may use a lock. */
__attribute__((constructor(101)))
static void watch_forks(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

#ifndef MEMWAIT_SEEN_BY_TSAN
	memwait_on_valgrind = memwait_runs_on_valgrind();
#endif
	pthread_atfork(NULL, NULL, after_fork);
	if (page == MAP_FAILED || madvise(page, size, MADV_WIPEONFORK))
		return;
	atomic_init((_Atomic uint32_t *)page, 1);
	memwait_process = page;
}

/* This process's number. The first thread of a child that asks for it sets a new number. */
uint32_t memwait_process_number(void)
{
	uint32_t number = atomic_load_explicit(memwait_process, memory_order_relaxed), next;

	if (number)
		return number;
	next = atomic_fetch_add_explicit(&last_process, 1, memory_order_relaxed) + 1;
	/* relaxed: as in after_fork(); if this fails, another thread has set @number */
	if (atomic_compare_exchange_strong_explicit(memwait_process, &number, next,
						    memory_order_relaxed, memory_order_relaxed))
		return next;
	return number;
}

/* A signal handler must not see a process number paired with another process's id. */
static void order_for_handlers(void)
{
	__asm__ volatile("" : : : "memory");
}

/*
 * Returns an id of the calling thread, which is unique within its address space, and which no
 * thread of a parent has had. The id is from a counter, not from gettid(), because a sandbox may
 * allow no system calls except those for the device.
 */
uint64_t memwait_thread_id(void)
{
	static _Atomic uint64_t last;
	uint32_t process = memwait_process_number();

	if (own_number.process != process) {
		/* relaxed: nothing depends on the number */
		own_number.id = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
		order_for_handlers();
		own_number.process = process;
	}
	return own_number.id;
}

/*
 * Whether no other process shares the page of @memory, which this process or its parent has
 * changed. False if the kernel does not provide this information.
 */
bool memwait_memory_is_private(const volatile void *memory)
{
	const uint64_t present = 1ULL << 63, swapped = 1ULL << 62, file_or_shared = 1ULL << 61;
	const uint64_t page = (uintptr_t)memory / (size_t)sysconf(_SC_PAGESIZE);
	int fd, saved = errno, state;
	uint64_t entry = 0;

	/* open(), pread() and close() are cancellation points. See proc_pid_pagemap(5). */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 &&
	    pread(fd, &entry, sizeof(entry), (off_t)(page * sizeof(entry))) != sizeof(entry))
		entry = 0;
	if (fd >= 0)
		close(fd);
	pthread_setcancelstate(state, NULL);
	errno = saved;
	return entry & (present | swapped) && !(entry & file_or_shared);
}

/* Set before the device is first used, because a sandbox may not allow the system call later. */
static _Atomic bool has_processors;

/* On one CPU, a spinning thread prevents the lock's owner from running. */
bool memwait_may_spin(void)
{
	/* relaxed: only a hint */
	return atomic_load_explicit(&has_processors, memory_order_relaxed);
}

int memwait_device_ioctl(int fd, unsigned long command, void *argument)
{
	int saved = errno;
	int ret = ioctl(fd, command, argument);

	if (ret < 0)
		ret = -errno;
	errno = saved;
	return ret;
}

/*
 * These errors have other meanings for locks and operations. The device never returns them, but a
 * seccomp filter may. They are converted to EIO, so that no caller takes such an error for a lock,
 * for a begun operation, or for a request to try again.
 */
int memwait_device_error(int ret)
{
	switch (-ret) {
	case EAGAIN:
	case EBUSY:
	case EDEADLK:
	case EINPROGRESS:
	case ENOTRECOVERABLE:
	case EOWNERDEAD:
	case EPIPE:
	case ETIMEDOUT:
		return -EIO;
	default:
		return ret;
	}
}

/*
 * Returns 0 if @fd is the device; ENOTTY if @fd is another file, or a look-alike without the
 * device's ioctls; or the error from using @fd, such as EBADF.
 */
int memwait_device_probe(int fd)
{
	struct memwait_info info = { 0 };
	int ret = memwait_device_ioctl(fd, MEMWAIT_IOC_INFO, &info);

	/* epoll and /dev/urandom return EINVAL for unknown ioctls. */
	if (ret == -EINVAL || (!ret && !info.max_group))
		return ENOTTY;
	return -ret;
}

/*
 * Checks the device when it is opened. Also returns ENOSYS if the module lacks calls that the
 * library needs, or the error that a seccomp filter returns for these calls. Neither call has an
 * effect: the first is refused as invalid.
 */
static int device_check(int fd)
{
	struct memwait_owner owner = { .reserved = 1 };
	uint32_t word = 0;
	struct memwait_change change = {
		.notify = {
			.addr = (uintptr_t)&word,
			.flags = MEMWAIT_SIZE_U32 | MEMWAIT_PRIVATE,
		},
		.operation = MEMWAIT_CHANGE_OR | MEMWAIT_CHANGE_IF_NONE_WOKEN,
	};
	int ret = memwait_device_probe(fd);

	if (ret)
		return ret;
	ret = memwait_device_ioctl(fd, MEMWAIT_IOC_OWNER, &owner);
	if (ret == -EINVAL)
		ret = memwait_device_ioctl(fd, MEMWAIT_IOC_CHANGE_NOTIFY, &change);
	else if (!ret)
		ret = -ENOTTY;
	if (ret >= 0)
		return 0;
	return ret == -EINVAL || ret == -ENOTTY ? ENOSYS : -ret;
}

/*
 * Opens another context. Avoids the descriptor numbers of the standard streams, even if those are
 * closed. Closes the file again if it is not the device, for example in a container engine that
 * emulates the kernel, or if the module is too old: otherwise an unlock would later wake no waiter.
 */
int memwait_device_open(int flags)
{
	int fd, higher, err, saved = errno, state;

	/* open() is a cancellation point, but locking a lock is not. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	/* Read access is sufficient for all calls, and some containers allow nothing else. */
	fd = open("/dev/memwait", O_RDONLY | O_CLOEXEC | flags);
	if (fd < 0) {
		fd = -errno;
	} else if (fd <= STDERR_FILENO) {
		higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		if (higher < 0)
			higher = -errno;
		close(fd);
		fd = higher;
	}
	err = fd < 0 ? 0 : device_check(fd);
	if (err) {
		close(fd);
		fd = -err;
	}
	/*
	 * EINVAL or EINTR from open() would look like an invalid argument or an interrupted wait.
	 */
	fd = fd == -EINVAL || fd == -EINTR ? -EIO : memwait_device_error(fd);
	pthread_setcancelstate(state, NULL);
	errno = saved;
	return fd;
}

/* st_rdev of the device, once opened. */
static _Atomic uint64_t device_rdev;

/* Guesses whether @fd is the device, if a seccomp filter may refuse its ioctls. */
static bool is_device(int fd)
{
	int saved = errno;
	struct stat st;
	bool is;

	if (fstat(fd, &st))
		/*
		 * A filter returns a different error. EOVERFLOW: a file that is too large for
		 * fstat().
		 */
		is = errno != EBADF && errno != EOVERFLOW;
	else
		/* relaxed: published with the number, or there is no number */
		is = S_ISCHR(st.st_mode) &&
		     st.st_rdev == atomic_load_explicit(&device_rdev, memory_order_relaxed);
	errno = saved;
	return is;
}

/* Stores all information that is needed later. Called before the number is published. */
static void ask_once(int fd)
{
	int saved = errno;
	struct stat st;

	if (!fstat(fd, &st))
		/* relaxed: see is_device() */
		atomic_store_explicit(&device_rdev, st.st_rdev, memory_order_relaxed);
	/* relaxed: see memwait_may_spin() */
	atomic_store_explicit(&has_processors, sysconf(_SC_NPROCESSORS_ONLN) > 1,
			      memory_order_relaxed);
	errno = saved;
}

static _Atomic uint64_t *device_context(void)
{
	return memwait_tsan_runs() ? &context_under_tsan : &memwait_device_context;
}

static int number_of(uint64_t context)
{
	return (int)(uint32_t)context;
}

/* device_get() for the first call. Not inlined: the others need no stack frame for it. */
__attribute__((__noinline__))
static int device_get_first(uint64_t *context)
{
	int fd, state;

	/* relaxed, here and below: only the kernel dereferences the number */
	*context = atomic_load_explicit(device_context(), memory_order_relaxed);
	while (number_of(*context) < 0) {
		uint64_t opened;

		fd = memwait_device_open(0);
		if (fd < 0)
			return fd;
		ask_once(fd);
		opened = *context - UINT32_MAX + (uint32_t)fd;
		if (atomic_compare_exchange_strong_explicit(device_context(), context,
							    opened, memory_order_relaxed,
							    memory_order_relaxed)) {
			*context = opened;
		} else {
			pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
			close(fd);
			pthread_setcancelstate(state, NULL);
		}
	}
	return number_of(*context);
}

/*
 * Returns the descriptor of the process's own context, which is never used for async waits, or a
 * negative error number. @context: for device_was_closed().
 */
static inline int device_get(uint64_t *context)
{
	/* relaxed: as in device_get_first() */
	*context = atomic_load_explicit(&memwait_device_context, memory_order_relaxed);
	return number_of(*context) < 0 ? device_get_first(context) : number_of(*context);
}

/*
 * Returns true if @error means that the program has closed the descriptor, as daemons do, or reused
 * its number. The caller then tries again, once per call, and opens the device unless another
 * thread has opened it. A reused number belongs to the program, and is not closed. If the number
 * still refers to the device and a seccomp filter refuses the call, reopening the device would not
 * help, and would leak the descriptor that threads without the filter use. The device never returns
 * EBADF: if the number refers to the device after this error, it was opened after the call.
 */
static bool device_was_closed(uint64_t context, int error, bool *again)
{
	uint64_t lost = (context | UINT32_MAX) + (1ULL << 32);
	int fd = number_of(context);

	if (error >= 0 || error == -EINTR || *again)
		return false;
	if (memwait_device_probe(fd) && !is_device(fd)) {
		/* relaxed, both: see device_get_first() */
		atomic_compare_exchange_strong_explicit(device_context(), &context, lost,
							memory_order_relaxed, memory_order_relaxed);
		/* For memwait_need_device_once(). */
		if (memwait_tsan_runs())
			atomic_store_explicit(&memwait_device_context, lost, memory_order_relaxed);
	} else if (error != -EBADF &&
		   /*
		    * relaxed: see device_get_first(). Otherwise another thread has opened the
		    * device in the meantime.
		    */
		   atomic_load_explicit(device_context(), memory_order_relaxed) == context) {
		return false;
	}
	*again = true;
	return true;
}

/* Slow path of memwait_need_device(). Returns 0 or an error. */
int memwait_device_first(void)
{
	uint64_t context;
	int fd = device_get(&context);

	return fd < 0 ? -fd : 0;
}

/*
 * Asynchronous cancellation is enabled only around the system call. Not inlined, like
 * device_get_first().
 */
__attribute__((__noinline__))
static int ioctl_cancellable(int fd, unsigned long command, void *argument,
			     void (*cancelled)(void *data), void *data)
{
	int ret, type;

	pthread_cleanup_push(cancelled, data);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	ret = memwait_device_ioctl(fd, command, argument);
	pthread_setcanceltype(type, NULL);
	pthread_cleanup_pop(0);
	return ret;
}

/*
 * An ioctl of the process's own context. @cancelled: NULL if the call is not a cancellation point.
 */
static int device_call(unsigned long command, void *argument, void (*cancelled)(void *data),
		       void *data)
{
	bool again = false;
	uint64_t context;
	int fd, ret;

	do {
		fd = device_get(&context);
		if (fd < 0)
			return fd;
		ret = cancelled ? ioctl_cancellable(fd, command, argument, cancelled, data) :
				  memwait_device_ioctl(fd, command, argument);
	} while (device_was_closed(context, ret, &again));
	return memwait_device_error(ret);
}

int memwait_device(unsigned long command, void *argument)
{
	return device_call(command, argument, NULL, NULL);
}

/*
 * Tries the calls that locks need, in ways that have no effect: a wait with an expected value that
 * differs, and a notify of no waiters. Opening the device has already tried INFO and OWNER.
 */
int memwait_available(void)
{
	uint32_t word = 0;
	int ret = memwait_sleep(&word, 1, MEMWAIT_SIZE_U32 | MEMWAIT_PRIVATE, &memwait_never);

	if (ret < 0)
		return ret;
	ret = memwait_change(&word, MEMWAIT_CHANGE_SET, 0, 0, MEMWAIT_PRIVATE, NULL);
	return ret < 0 ? ret : 0;
}

/*
 * Gets the id of the calling thread, unique across processes and namespaces. Returns 0 or a
 * negative error number.
 */
int memwait_owner(uint64_t *id)
{
	struct memwait_owner owner = { 0 };
	uint32_t process;
	int ret;

	if (!id)
		return -EINVAL;
	*id = memwait_known_id();
	if (*id)
		return 0;
	do {
		process = memwait_process_number();
		ret = memwait_device(MEMWAIT_IOC_OWNER, &owner);
		if (ret < 0)
			return ret;
		/*
		 * For now the new id belongs to no process: a signal handler may fork, and the
		 * child must not use this id.
		 */
		memwait_self.process = UINT32_MAX;
		order_for_handlers();
		memwait_self.id = owner.id;
		order_for_handlers();
		memwait_self.process = process;
		order_for_handlers();
		/* If a handler has forked, this is the child, and the id belongs to its parent. */
	} while (memwait_process_number() != process);
	*id = owner.id;
	return 0;
}

/*
 * A thread that cannot have an id (32-bit kernel, limit) still waits, but is not notified of
 * deaths. Callers that depend on an id get it earlier.
 */
static uint32_t owned_if_possible(uint32_t flags)
{
	uint64_t id;

	if (flags & MEMWAIT_OWNED && memwait_owner(&id))
		flags &= ~(uint32_t)MEMWAIT_OWNED;
	return flags;
}

_Static_assert(!(MEMWAIT_RELATIVE & ~MEMWAIT_LIBRARY_FLAGS), "no flag of the kernel has this bit");

/* Sets the deadline of a function with @clock and @time. Returns 0, or EINVAL for another clock. */
int memwait_deadline_set(struct memwait_deadline *deadline, clockid_t clock,
			 const struct timespec *time)
{
	const uint64_t second = 1000000000;
	bool is_relative = clock == MEMWAIT_RELATIVE;
	struct memwait_deadline now;

	if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC && !is_relative)
		return EINVAL;
	*deadline = memwait_never;
	if (!time)
		return 0;
	deadline->flags = clock == CLOCK_REALTIME ? MEMWAIT_CLOCK_REALTIME : 0;
	deadline->error = time->tv_nsec < 0 || time->tv_nsec >= (long)second ? EINVAL : 0;
	if (time->tv_sec < 0)
		deadline->ns = 0;
	else if ((uint64_t)time->tv_sec < MEMWAIT_FOREVER / second)
		deadline->ns = (uint64_t)time->tv_sec * second + (uint64_t)time->tv_nsec;
	if (!is_relative || time->tv_sec < 0)
		return 0;

	memwait_deadline_after(&now, CLOCK_MONOTONIC, 0);
	if (__builtin_add_overflow(deadline->ns, now.ns, &deadline->ns))
		deadline->ns = MEMWAIT_FOREVER;
	return 0;
}

/* Sets a deadline @ms from now. */
void memwait_deadline_after(struct memwait_deadline *deadline, clockid_t clock, uint32_t ms)
{
	struct timespec time;

	clock_gettime(clock, &time);
	memwait_deadline_set(deadline, clock, &time);
	deadline->ns += ms * 1000000ULL;
}

/*
 * Sets the deadline of a function with @timeout and @flags. Returns 0, or EINVAL if both flags are
 * set.
 */
int memwait_deadline_by(struct memwait_deadline *deadline, const struct timespec *timeout,
			unsigned int flags)
{
	switch (flags & (MEMWAIT_CLOCK_REALTIME | MEMWAIT_RELATIVE)) {
	case 0:
		return memwait_deadline_set(deadline, CLOCK_MONOTONIC, timeout);
	case MEMWAIT_CLOCK_REALTIME:
		return memwait_deadline_set(deadline, CLOCK_REALTIME, timeout);
	case MEMWAIT_RELATIVE:
		return memwait_deadline_set(deadline, MEMWAIT_RELATIVE, timeout);
	default:
		return EINVAL;
	}
}

/*
 * Returns the nanoseconds left. 0: the deadline has passed or has an error. MEMWAIT_FOREVER: never.
 */
uint64_t memwait_deadline_left(const struct memwait_deadline *deadline)
{
	clockid_t clock = deadline->flags & MEMWAIT_CLOCK_REALTIME ? CLOCK_REALTIME :
								     CLOCK_MONOTONIC;
	struct memwait_deadline now;

	if (deadline->error || deadline->ns == MEMWAIT_FOREVER)
		return deadline->error ? 0 : MEMWAIT_FOREVER;
	memwait_deadline_after(&now, clock, 0);
	return now.ns < deadline->ns ? deadline->ns - now.ns : 0;
}

/*
 * memwait_sleep() as a cancellation point: @cancelled runs if the thread is cancelled before, in or
 * just after its sleep. If @cancelled is NULL, this is not a cancellation point. If @wake is not
 * NULL, first wakes the oldest sleeper on @wake, which is MEMWAIT_PRIVATE if @word is. @cancelled
 * cannot find out whether that wake-up was done. After -EINTR the wake-up was done; after other
 * errors it may have been done.
 */
int memwait_sleep_cancellable(const volatile void *wake, const volatile void *word,
			      uint64_t expected, uint32_t flags,
			      const struct memwait_deadline *deadline,
			      void (*cancelled)(void *argument), void *argument)
{
	struct memwait_notify_wait both = {
		.notify = {
			.addr = (uintptr_t)wake,
			.count = 1,
			.flags = flags & MEMWAIT_PRIVATE,
		},
		.wait = {
			.addr = (uintptr_t)word,
			.expected = expected,
			.deadline = deadline->ns,
		},
	};
	int ret;

	if (deadline->error)
		return -deadline->error;
	both.wait.flags = owned_if_possible(flags) | deadline->flags;
	ret = wake ? device_call(MEMWAIT_IOC_NOTIFY_WAIT, &both, cancelled, argument) :
		     device_call(MEMWAIT_IOC_WAIT, &both.wait, cancelled, argument);
	/* A signal handler forked during the call, and this is the child, which has no id yet. */
	if (ret == -EPERM && both.wait.flags & MEMWAIT_OWNED && !memwait_known_id())
		ret = -EINTR;
	return ret;
}

/* Sleeps while *@word == @expected. */
int memwait_sleep(const volatile void *word, uint64_t expected, uint32_t flags,
		  const struct memwait_deadline *deadline)
{
	return memwait_sleep_cancellable(NULL, word, expected, flags, deadline, NULL, NULL);
}

/* Wakes the oldest waiters. Returns how many it woke, or a negative error number. */
int memwait_device_notify(const volatile void *word, uint32_t count, uint32_t flags)
{
	struct memwait_notify notify = {
		.addr = (uintptr_t)word,
		.count = count,
		.flags = flags,
	};

	return memwait_device(MEMWAIT_IOC_NOTIFY, &notify);
}

/* Like memwait_device_notify(), but ignores EFAULT, see internal.h. */
int memwait_wake(const volatile void *word, uint32_t count, uint32_t flags)
{
	int ret = memwait_device_notify(word, count, flags & MEMWAIT_PRIVATE);

	return ret == -EFAULT ? 0 : ret;
}

/*
 * Changes a 32-bit word and wakes its oldest sleepers, in one call that a kill cannot split. *@old
 * (if @old is not NULL): the previous value. With MEMWAIT_CHANGE_IF_NONE_WOKEN, @flags may say that
 * @word has 8 or 16 bits. The 32 bits that contain @word change only if @word has no sleeper, in
 * the same step: each sleeper is woken, or sees the change. Returns how many were woken. On a
 * negative error number nothing was done.
 */
int memwait_change(const volatile void *word, uint32_t operation, uint32_t operand, uint32_t count,
		   uint32_t flags, uint32_t *old)
{
	struct memwait_change change = {
		.notify = {
			.addr = (uintptr_t)word,
			.count = count,
			.flags = operation & MEMWAIT_CHANGE_IF_NONE_WOKEN ? flags :
				 MEMWAIT_SIZE_U32 | (flags & MEMWAIT_PRIVATE),
		},
		.operation = operation,
		.operand = operand,
	};
	int ret = memwait_device(MEMWAIT_IOC_CHANGE_NOTIFY, &change);

	if (old && ret >= 0)
		*old = change.old;
	return ret;
}

/* Wakes all waiters, even if the thread is killed during the call. */
int memwait_wake_all(const volatile void *word, uint32_t flags)
{
	int ret = memwait_change(word, MEMWAIT_CHANGE_OR, 0, MEMWAIT_ALL, flags, NULL);

	return ret == -EFAULT ? 0 : ret;
}

/* Returns the number of waiters that sleep on a word. */
int memwait_sleepers(const volatile void *word, uint32_t flags)
{
	struct memwait_notify notify = {
		.addr = (uintptr_t)word,
		.flags = flags & MEMWAIT_PRIVATE,
	};

	return memwait_device(MEMWAIT_IOC_WAITERS, &notify);
}
