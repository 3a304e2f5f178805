// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The device, as all other files see it: sleep, wake. It is opened once, by the first function that
 * begins something, so that what ends it need not.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

_Atomic int memwait_device_number = -1;
_Atomic int memwait_device_was_lost;
__thread uint64_t memwait_own_id;
__thread uint32_t memwait_own_process;
static __thread uint32_t thread_id __attribute__((__tls_model__("initial-exec")));
static __thread uint32_t thread_process __attribute__((__tls_model__("initial-exec")));

/*
 * Processes are counted, from the first one to its children. The number is in a page that the
 * kernel clears in a child, however that is made: _Fork() and clone() run no handlers. Where there
 * is no such page it is here, and fork() alone is seen.
 */
static _Atomic uint32_t without_page = 1;
static _Atomic uint32_t last_process = 1;
_Atomic uint32_t *memwait_process = &without_page;

static void after_fork(void)
{
	/* relaxed, here and below: a child has one thread, and nothing comes with the number */
	atomic_store_explicit(memwait_process, 0, memory_order_relaxed);
}

__attribute__((constructor))
static void watch_forks(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	pthread_atfork(NULL, NULL, after_fork);
	if (page == MAP_FAILED)
		return;
	if (madvise(page, size, MADV_WIPEONFORK)) {
		munmap(page, size);
		return;
	}
	atomic_init((_Atomic uint32_t *)page, 1);
	memwait_process = page;
}

/* The number of this process: tells a child from its parent. */
uint32_t memwait_process_number(void)
{
	uint32_t number = atomic_load_explicit(memwait_process, memory_order_relaxed), next;

	if (number)
		return number;
	/* Threads that come here at the same time do the same. */
	next = atomic_load_explicit(&last_process, memory_order_relaxed) + 1;
	atomic_store_explicit(&last_process, next, memory_order_relaxed);
	atomic_store_explicit(memwait_process, next, memory_order_relaxed);
	return next;
}

/* A signal handler must not find an id as that of a process to which it does not belong. */
static void order_for_handlers(void)
{
	__asm__ volatile("" : : : "memory");
}

/* The number of the calling thread, which no other thread of its address space has. */
uint32_t memwait_thread_id(void)
{
	uint32_t process = memwait_process_number();

	if (thread_process != process) {
		thread_id = (uint32_t)gettid();
		order_for_handlers();
		thread_process = process;
	}
	return thread_id;
}

/* With one processor the owner of a lock does not run while another thread spins. */
bool memwait_may_spin(void)
{
	static _Atomic int processors;
	/* relaxed: all threads find the same number */
	int n = atomic_load_explicit(&processors, memory_order_relaxed);

	if (!n) {
		n = (int)sysconf(_SC_NPROCESSORS_ONLN);
		atomic_store_explicit(&processors, n, memory_order_relaxed);
	}
	return n > 1;
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
 * What the library's number is for by now: 0: the device. ENOTTY: something else, or it looks as
 * the device does and has none of its ioctls; or why it cannot be used at all, as EBADF.
 */
int memwait_device_probe(int fd)
{
	struct memwait_info info = { 0 };
	int ret = memwait_device_ioctl(fd, MEMWAIT_IOC_INFO, &info);

	/* An epoll instance and /dev/urandom say EINVAL of what they do not know. */
	if (ret == -EINVAL || (!ret && !info.max_group))
		return ENOTTY;
	return -ret;
}

/*
 * Opens one more context. Never a standard stream's number, even if the process has closed that.
 * What opens and is no device, as in a container that stands in for the kernel, is closed again.
 */
int memwait_device_open(int flags)
{
	int fd, higher, err, saved = errno, state;

	/* open() is a cancellation point, and the locks are not. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	fd = open("/dev/memwait", O_RDWR | O_CLOEXEC | flags);
	if (fd < 0) {
		fd = -errno;
	} else if (fd <= STDERR_FILENO) {
		higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		if (higher < 0)
			higher = -errno;
		close(fd);
		fd = higher;
	}
	err = fd < 0 ? 0 : memwait_device_probe(fd);
	if (err) {
		close(fd);
		fd = -err;
	}
	pthread_setcancelstate(state, NULL);
	errno = saved;
	return fd;
}

/* What the device is in file systems, since it has been opened. */
static _Atomic uint64_t device_rdev;

/* Whether @fd is the device, whose ioctls a filter may refuse; as far as can be told. */
static bool is_device(int fd)
{
	int saved = errno;
	struct stat st;
	bool is;

	if (fstat(fd, &st))
		is = errno != EBADF;
	else
		/* relaxed: comes with the number, or there is none */
		is = S_ISCHR(st.st_mode) &&
		     st.st_rdev == atomic_load_explicit(&device_rdev, memory_order_relaxed);
	errno = saved;
	return is;
}

/* Before the number is known. */
static void remember_device(int fd)
{
	int saved = errno;
	struct stat st;

	if (!fstat(fd, &st))
		/* relaxed: as above */
		atomic_store_explicit(&device_rdev, st.st_rdev, memory_order_relaxed);
	errno = saved;
}

/* The process's own context, which is never used for async waits. */
static int device_get(void)
{
	/* relaxed: what the number means is the kernel's to know */
	int fd = atomic_load_explicit(&memwait_device_number, memory_order_relaxed);
	int other = -1, state;

	if (fd >= 0)
		return fd;
	fd = memwait_device_open(0);
	if (fd < 0)
		return fd;
	remember_device(fd);
	if (!atomic_compare_exchange_strong_explicit(&memwait_device_number, &other, fd,
						     memory_order_relaxed, memory_order_relaxed)) {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
		close(fd);
		pthread_setcancelstate(state, NULL);
		fd = other;
	}
	return fd;
}

/*
 * Is @error the answer of a descriptor that the program has closed, as daemons close all, or that
 * is something else by now? Then it is opened again, once in a call. What it is by now is not ours
 * to close. If it is the device still, and a filter refuses the call, another one would be of no
 * more use, and one of a thread that the filter is not for would be left behind.
 */
static bool device_was_closed(int fd, int error, bool *reopened)
{
	if (error >= 0 || error == -EINTR || *reopened || !memwait_device_probe(fd) ||
	    is_device(fd))
		return false;
	/* relaxed, both: as in device_get() */
	atomic_store_explicit(&memwait_device_was_lost, 1, memory_order_relaxed);
	atomic_compare_exchange_strong_explicit(&memwait_device_number, &fd, -1,
						memory_order_relaxed, memory_order_relaxed);
	*reopened = true;
	return true;
}

/* Of memwait_need_device(), the first time. Returns 0 or an error. */
int memwait_device_first(void)
{
	int fd = device_get();

	return fd < 0 ? -fd : 0;
}

/* Of the process's own context. */
int memwait_device(unsigned long command, void *argument)
{
	bool reopened = false;
	int fd, ret;

	do {
		fd = device_get();
		if (fd < 0)
			return fd;
		ret = memwait_device_ioctl(fd, command, argument);
	} while (device_was_closed(fd, ret, &reopened));
	return ret;
}

/*
 * Asks for what locks need, in a way that changes nothing: a wait for what a word does not hold,
 * and a notify of nobody. INFO has been asked for when the device was opened.
 */
int memwait_available(void)
{
	uint32_t word = 0;
	struct memwait_wait wait = {
		.addr = (uintptr_t)&word,
		.expected = 1,
		.flags = MEMWAIT_SIZE_U32 | MEMWAIT_PRIVATE,
	};
	int ret = memwait_device(MEMWAIT_IOC_WAIT, &wait);

	if (ret < 0)
		return ret;
	ret = memwait_change(&word, MEMWAIT_CHANGE_SET, 0, 0, MEMWAIT_PRIVATE, NULL);
	return ret < 0 ? ret : 0;
}

/*
 * The id of the calling thread, which no other thread has, in whichever process or namespace.
 * Returns 0 or a negative error number.
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
	process = memwait_process_number();
	ret = memwait_device(MEMWAIT_IOC_OWNER, &owner);
	if (ret < 0)
		return ret;
	memwait_own_id = owner.id;
	order_for_handlers();
	memwait_own_process = process;
	*id = owner.id;
	return 0;
}

/* Whether a wait said that the thread has no id: it is a child, and nothing else has told that. */
static bool owner_is_another(uint32_t flags, int error)
{
	if (error != -EPERM || !(flags & MEMWAIT_OWNED) || !memwait_own_id)
		return false;
	memwait_own_id = 0;
	return true;
}

/*
 * Where a thread cannot have an id, as on a 32-bit kernel or over a limit, it waits all the same,
 * but is not told of deaths. What cannot do without ids has asked for one before.
 */
static uint32_t owned_if_possible(uint32_t flags)
{
	uint64_t id;

	if (flags & MEMWAIT_OWNED && memwait_owner(&id))
		flags &= ~(uint32_t)MEMWAIT_OWNED;
	return flags;
}

/* A time to be waited until. Returns 0, or EINVAL if there is no such clock, or no time. */
int memwait_deadline_set(struct memwait_deadline *deadline, clockid_t clock,
			 const struct timespec *time)
{
	const uint64_t second = 1000000000;

	if (!time || (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC))
		return EINVAL;
	deadline->flags = clock == CLOCK_REALTIME ? MEMWAIT_CLOCK_REALTIME : 0;
	deadline->error = time->tv_nsec < 0 || time->tv_nsec >= (long)second ? EINVAL : 0;
	if (time->tv_sec < 0)
		deadline->ns = 0;
	else if ((uint64_t)time->tv_sec >= MEMWAIT_FOREVER / second)
		deadline->ns = MEMWAIT_FOREVER;
	else
		deadline->ns = (uint64_t)time->tv_sec * second + (uint64_t)time->tv_nsec;
	return 0;
}

/* A time from now. */
void memwait_deadline_after(struct memwait_deadline *deadline, uint32_t ms)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	memwait_deadline_set(deadline, CLOCK_MONOTONIC, &time);
	deadline->ns += ms * 1000000ULL;
}

/* Sleeps while the word has the expected value. */
int memwait_sleep(const volatile void *word, uint64_t expected, uint32_t flags,
		  const struct memwait_deadline *deadline)
{
	struct memwait_wait wait = {
		.addr = (uintptr_t)word,
		.expected = expected,
		.deadline = deadline->ns,
	};
	int ret;

	if (deadline->error)
		return -deadline->error;
	do {
		wait.flags = owned_if_possible(flags) | deadline->flags;
		ret = memwait_device(MEMWAIT_IOC_WAIT, &wait);
	} while (owner_is_another(wait.flags, ret));
	return ret;
}

/* Asynchronous cancellation is on around nothing but the system call. */
static int wait_cancellable(int fd, unsigned long command, void *wait,
			    void (*cancelled)(void *argument), void *argument)
{
	int ret, type;

	pthread_cleanup_push(cancelled, argument);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	ret = memwait_device_ioctl(fd, command, wait);
	pthread_setcanceltype(type, NULL);
	pthread_cleanup_pop(0);
	return ret;
}

/*
 * The same as a cancellation point: @cancelled runs if the thread is cancelled, be it before, in or
 * just after its sleep. Before it sleeps it wakes the oldest sleeper of the word @wake, unless that
 * is NULL; it is MEMWAIT_PRIVATE if @word is. Whether that was done @cancelled cannot know either.
 * After -EINTR it was, and after other errors it may have been.
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
	bool reopened = false;
	int fd, ret;

	if (deadline->error)
		return -deadline->error;
	do {
		both.wait.flags = owned_if_possible(flags) | deadline->flags;
		fd = device_get();
		if (fd < 0)
			return fd;
		if (wake)
			ret = wait_cancellable(fd, MEMWAIT_IOC_NOTIFY_WAIT, &both, cancelled,
					       argument);
		else
			ret = wait_cancellable(fd, MEMWAIT_IOC_WAIT, &both.wait, cancelled,
					       argument);
	} while (device_was_closed(fd, ret, &reopened) || owner_is_another(both.wait.flags, ret));
	return ret;
}

/* Wakes the oldest waiters of a word. Returns how many, or a negative error number. */
int memwait_device_notify(const volatile void *word, uint32_t count, uint32_t flags)
{
	struct memwait_notify notify = {
		.addr = (uintptr_t)word,
		.count = count,
		.flags = flags & MEMWAIT_PRIVATE,
	};

	return memwait_device(MEMWAIT_IOC_NOTIFY, &notify);
}

/* The same; see internal.h for a word that is gone. */
int memwait_wake(const volatile void *word, uint32_t count, uint32_t flags)
{
	int ret = memwait_device_notify(word, count, flags);

	return ret == -EFAULT ? 0 : ret;
}

/*
 * Changes 32 bits, and wakes the oldest of those who sleep on them, in one call that no death
 * splits. @old, unless it is NULL, gets what they were. Returns how many were woken; or a negative
 * error number, and then nothing was done.
 */
int memwait_change(const volatile void *word, uint32_t operation, uint32_t operand, uint32_t count,
		   uint32_t flags, uint32_t *old)
{
	struct memwait_change change = {
		.notify = {
			.addr = (uintptr_t)word,
			.count = count,
			.flags = MEMWAIT_SIZE_U32 | (flags & MEMWAIT_PRIVATE),
		},
		.operation = operation,
		.operand = operand,
	};
	int ret = memwait_device(MEMWAIT_IOC_CHANGE_NOTIFY, &change);

	if (old && ret >= 0)
		*old = change.old;
	return ret;
}

/* Wakes all, even if this thread is killed meanwhile. */
int memwait_wake_all(const volatile void *word, uint32_t flags)
{
	int ret = memwait_change(word, MEMWAIT_CHANGE_OR, 0, MEMWAIT_ALL, flags, NULL);

	return ret == -EFAULT ? 0 : ret;
}

/*
 * How many sleep on 32 bits that hold @expected; MEMWAIT_CHANGED if they do not, or a negative
 * error number. If this thread dies afterwards, before it has woken one of them, the oldest of
 * those who are MEMWAIT_OWNED is told: they were moved by it, if only to where they were.
 */
int memwait_answer_for(const volatile void *word, uint32_t expected, uint32_t flags)
{
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)word,
		.expected = expected,
		.target = (uintptr_t)word,
		.move = MEMWAIT_ALL,
		.flags = MEMWAIT_SIZE_U32 | (flags & MEMWAIT_PRIVATE),
	};
	uint64_t id;
	int ret;

	/* Without an id it is as where there are none. */
	(void)memwait_owner(&id);
	ret = memwait_device(MEMWAIT_IOC_REQUEUE, &requeue);
	if (ret == MEMWAIT_NOT_EQUAL)
		return MEMWAIT_CHANGED;
	return ret < 0 ? ret : (int)requeue.moved;
}

/* How many sleep on a word. */
int memwait_sleepers(const volatile void *word, uint32_t flags)
{
	struct memwait_notify notify = {
		.addr = (uintptr_t)word,
		.flags = flags & MEMWAIT_PRIVATE,
	};

	return memwait_device(MEMWAIT_IOC_WAITERS, &notify);
}
