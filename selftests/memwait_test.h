/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The base of all tests of /dev/memwait: the harness, one wrapper for each ioctl, threads and
 * processes that wait, and helpers that observe sleepers instead of relying on time.
 *
 * Wrappers return the ioctl's result or a negative errno.
 */
#ifndef MEMWAIT_TEST_H
#define MEMWAIT_TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/memwait.h>

/*
 * Returns how many times slower this machine is than an idle machine; see measure_slowness() in
 * selftests/vm/init. Time limits, which exist to end tests that hang, are multiplied by this
 * factor.
 */
static inline unsigned int slowness(void)
{
	const char *times = getenv("MEMWAIT_SLOWNESS");

	return times ? (unsigned int)atoi(times) : 1;
}

static inline unsigned int slow_alarm(unsigned int seconds)
{
	return alarm(seconds * slowness());
}

#define alarm slow_alarm
#include "kselftest_harness.h"
#undef alarm

/*
 * The size of a load, or the number of attempts if the result depends on chance. The number is
 * smaller if MEMWAIT_LOADS is set; see selftests/vm/init. Counts are exact in both cases.
 */
#define LOAD(n, fewer)	(getenv("MEMWAIT_LOADS") ? (fewer) : (n))
#define SOME_OF(n)	LOAD(n, ((n) + 9) / 10)

/* Each file or address space that a context holds for its waits counts as this many waits. */
#define PIN_WAITS	8

#define NSEC_PER_SEC	1000000000ULL
#define NSEC_PER_MSEC	1000000ULL

/*
 * Since glibc 2.41 fork() blocks all signals for a short time. If the child ends in that time,
 * SIGCHLD is sent although it would be ignored. A waiting thread then takes the signal, leaves its
 * queue and joins it again. Threads that block SIGCHLD stay in their queues.
 */
static void __attribute__((constructor)) block_sigchld(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

static inline int memwait_open(int flags)
{
	int fd = open("/dev/memwait", O_RDWR | O_CLOEXEC | flags);

	return fd < 0 ? -errno : fd;
}

/* Opens the device for a test that cannot continue without the device. */
static inline int open_device(int flags)
{
	int fd = memwait_open(flags);

	if (fd < 0) {
		fprintf(stderr, "# /dev/memwait: %s\n", strerror(-fd));
		abort();
	}
	return fd;
}

static inline int xioctl(int fd, unsigned long cmd, const void *arg)
{
	int ret = ioctl(fd, cmd, arg);

	return ret < 0 ? -errno : ret;
}

static inline uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* Returns an absolute CLOCK_MONOTONIC deadline, @ms milliseconds from now. */
static inline uint64_t in_ms(uint64_t ms)
{
	return now_ns(CLOCK_MONOTONIC) + ms * NSEC_PER_MSEC;
}

/*
 * Returns a time after which a test gives up, in @seconds seconds or later if the machine is slow.
 */
static inline uint64_t patience(unsigned int seconds)
{
	return in_ms(1000ULL * seconds * slowness());
}

/* Returns the same time limit as a timeout for poll(2) and epoll_wait(2), in milliseconds. */
static inline int poll_patience(unsigned int seconds)
{
	return (int)(1000 * seconds * slowness());
}

/*
 * Returns a deadline that is between 1 us and 4 ms away. The delay depends on @tries, so that a
 * race has each of its outcomes both on slow and on fast machines.
 */
static inline uint64_t soon(unsigned long tries)
{
	return now_ns(CLOCK_MONOTONIC) + (1000ULL << tries % 13);
}

/* Spins until a condition is true. */
#define spin_until(condition)							\
do {										\
	while (!(condition))							\
		before_next_look();						\
} while (0)

/* Like spin_until(), for conditions that take longer: other threads can use the CPU. */
#define sleep_until(condition)							\
do {										\
	while (!(condition))							\
		usleep(100);							\
} while (0)

/* Counters that another thread polls, so that a race continues until each outcome has occurred. */
static inline void add_one(long *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

static inline long counted(const long *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static inline void await_counted(const long *counter)
{
	sleep_until(counted(counter));
}

/* Waits until *flag is set or the time is up. Returns whether *flag is set. */
static inline bool await_flag(const int *flag, unsigned int seconds)
{
	uint64_t end = patience(seconds);

	sleep_until(__atomic_load_n(flag, __ATOMIC_ACQUIRE) || now_ns(CLOCK_MONOTONIC) >= end);
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static inline int mw_wait(int fd, const volatile void *addr, uint64_t expected, uint64_t deadline,
			  uint32_t flags)
{
	struct memwait_wait arg = {
		.addr = (uintptr_t)addr,
		.expected = expected,
		.deadline = deadline,
		.flags = flags,
	};

	return xioctl(fd, MEMWAIT_IOC_WAIT, &arg);
}

static inline int mw_notify(int fd, const volatile void *addr, uint32_t count, uint32_t flags)
{
	struct memwait_notify arg = {
		.addr = (uintptr_t)addr,
		.count = count,
		.flags = flags,
	};

	return xioctl(fd, MEMWAIT_IOC_NOTIFY, &arg);
}

/* @woken may be NULL. */
static inline int mw_notify_many(int fd, const struct memwait_notify *notifies, uint32_t count,
				 uint32_t *woken)
{
	struct memwait_notify_many arg = {
		.notifies = (uintptr_t)notifies,
		.woken = (uintptr_t)woken,
		.count = count,
	};

	return xioctl(fd, MEMWAIT_IOC_NOTIFY_MANY, &arg);
}

/* Returns a numeric field of the context's fdinfo, or -1. */
static inline long mw_fdinfo(int fd, const char *name)
{
	char path[64], line[128], *value = NULL;
	long number = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		value = strchr(line, ':');
		if (value && !strncmp(line, name, strlen(name)) &&
		    line + strlen(name) == value)
			number = strtol(value + 1, NULL, 10);
	}
	if (f)
		fclose(f);
	return number;
}

static inline int mw_waiters(int fd, const volatile void *addr, uint32_t flags)
{
	struct memwait_notify arg = { .addr = (uintptr_t)addr, .flags = flags };

	return xioctl(fd, MEMWAIT_IOC_WAITERS, &arg);
}

/* Arms async waits. Returns how many entries the kernel has processed, or a negative errno. */
static inline int mw_batch(int fd, struct memwait_async *entries, uint32_t count)
{
	struct memwait_wait_async arg = {
		.waits = (uintptr_t)entries,
		.count = count,
		.entry_size = sizeof(entries[0]),
	};

	return xioctl(fd, MEMWAIT_IOC_WAIT_ASYNC, &arg);
}

/*
 * Arms one async wait. Returns the entry's result (an outcome or a negative errno). If the wait is
 * pending, stores its id in *id. @id may be NULL.
 */
static inline int mw_async(int fd, const volatile void *addr, uint64_t expected, uint64_t deadline,
			   uint32_t flags, uint64_t user_data, uint64_t *id)
{
	struct memwait_async entry = {
		.wait = {
			.addr = (uintptr_t)addr,
			.expected = expected,
			.deadline = deadline,
			.flags = flags,
		},
		.user_data = user_data,
		.id = 0xccccccccccccccccULL,
		.result = 0x0ccccccc,
	};
	int ret = mw_batch(fd, &entry, 1);

	if (id)
		*id = entry.id;
	return ret < 0 ? ret : entry.result;
}

/* Arms an async wait for a 32-bit word that is 0, without a deadline. */
static inline int mw_arm(int fd, const volatile void *addr, uint64_t user_data)
{
	return mw_async(fd, addr, 0, MEMWAIT_FOREVER, MEMWAIT_SIZE_U32, user_data, NULL);
}

static inline int mw_cancel(int fd, uint64_t id)
{
	struct memwait_cancel arg = { .id = id };

	return xioctl(fd, MEMWAIT_IOC_CANCEL, &arg);
}

static inline int mw_owner(int fd, uint32_t flags, uint64_t *id)
{
	struct memwait_owner arg = { .id = 0xcccccccccccccccc, .flags = flags };
	int ret = xioctl(fd, MEMWAIT_IOC_OWNER, &arg);

	if (id)
		*id = arg.id;
	return ret;
}

static inline int mw_info(int fd, struct memwait_info *info)
{
	memset(info, 0xcc, sizeof(*info));
	return xioctl(fd, MEMWAIT_IOC_INFO, info);
}

/* Reads up to n completions. Returns the number of completions, or a negative errno. */
static inline int mw_read(int fd, struct memwait_completion *out, size_t n)
{
	ssize_t ret = read(fd, out, n * sizeof(*out));

	if (ret < 0)
		return -errno;
	if (ret % (ssize_t)sizeof(*out))
		return -EPROTO;
	return (int)(ret / (ssize_t)sizeof(*out));
}

static inline bool mw_readable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLIN);
}

/*
 * Returns the number of pending or unread async waits that are charged to the user that opened @fd,
 * plus the charges for files that these waits still hold.
 */
static inline uint64_t mw_user_waits(int fd)
{
	struct memwait_info info;

	return mw_info(fd, &info) ? ~0ULL : info.user_waits;
}

/*
 * Like mw_user_waits(), but first waits, for a limited time, until the result is @n. When a process
 * dies, a kernel thread releases the files and address spaces of its waits, and returns their
 * charges.
 */
static inline uint64_t mw_await_user_waits(int fd, uint64_t n)
{
	uint64_t end = patience(30);

	sleep_until(mw_user_waits(fd) == n || now_ns(CLOCK_MONOTONIC) >= end);
	return mw_user_waits(fd);
}

static inline uint64_t mw_user_owners(int fd)
{
	struct memwait_info info;

	return mw_info(fd, &info) ? ~0ULL : info.user_owners;
}

/*
 * Waits until there are @n owners. Owners that ended earlier count until a kernel thread frees
 * them. No other process may use the device during this call.
 */
static inline void mw_await_owners(int fd, uint64_t n)
{
	sleep_until(mw_user_owners(fd) == n);
}

/* Returns the number of open contexts of the user that opened @fd. */
static inline uint64_t mw_user_contexts(int fd)
{
	struct memwait_info info;

	return mw_info(fd, &info) ? ~0ULL : info.user_contexts;
}

static inline bool has_one_processor(void)
{
	static long processors;

	if (!processors)
		processors = sysconf(_SC_NPROCESSORS_ONLN);
	return processors == 1;
}

/*
 * Yields between two polls, so that a change is seen early. With one CPU, every 16th call sleeps
 * briefly, because a thread that only yields could use up its time slice before a new thread runs.
 */
static inline void before_next_look(void)
{
	static __thread unsigned int looks;

	if (has_one_processor() && !(++looks % 16))
		usleep(1);
	else
		sched_yield();
}

/* Spins until the word has n waiters. */
static inline void await_waiters(int fd, const volatile void *addr, uint32_t flags, int n)
{
	spin_until(mw_waiters(fd, addr, flags) == n);
}

/* Like await_waiters(), but also returns when *done is set. */
static inline void await_waiters_or_done(int fd, const volatile void *addr, uint32_t flags, int n,
					 const int *done)
{
	spin_until(__atomic_load_n(done, __ATOMIC_ACQUIRE) || mw_waiters(fd, addr, flags) == n);
}

/*
 * Returns the thread's state in /proc, which is S or D if it sleeps, or 0 if the thread does not
 * exist.
 */
static inline char thread_state(pid_t tid)
{
	char path[64], line[512], *state;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	f = fopen(path, "r");
	state = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	if (f)
		fclose(f);
	return state ? state[2] : 0;
}

/* Spins until /proc shows the thread in @state, or until the thread no longer exists. */
static inline void await_state(pid_t tid, char state)
{
	char now;

	while ((now = thread_state(tid)) && now != state)
		before_next_look();
}

/*
 * State D does not count as asleep, because a thread in this state waits for a page or, on
 * PREEMPT_RT, for a spinlock.
 */
static inline void await_asleep(pid_t tid)
{
	await_state(tid, 'S');
}

/* The generator xorshift64*, whose state must not be 0. */
static inline uint64_t next_random(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random * 0x2545f4914f6cdd1dULL;
}

/* Compares two uint64_t for qsort(3). */
static inline int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Defines a function that makes one call, for use in a table or as a thread's function. */
#define ADAPTER(name, parameter, call)						\
static inline int name(parameter)						\
{										\
	return call;								\
}

/* Spins. With one CPU, yields now and then, so that other threads can run. */
static inline void await_begin(const int *begin)
{
	unsigned int looks = 0;

	while (!__atomic_load_n(begin, __ATOMIC_ACQUIRE))
		if (has_one_processor() && !(++looks % 1024))
			sched_yield();
}

/* A thread that runs one function and stores the result. */
struct runner {
	pthread_t thread;
	int (*function)(void *arg);
	void *arg;
	int begin;		/* the thread may run the function */
	pid_t tid;		/* set by the thread before it begins */
	int result;		/* valid when done */
	int done;
};

static inline void *runner_main(void *arg)
{
	struct runner *runner = arg;

	__atomic_store_n(&runner->tid, gettid(), __ATOMIC_RELEASE);
	await_begin(&runner->begin);
	runner->result = runner->function(runner->arg);
	__atomic_store_n(&runner->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static inline void runner_create(struct runner *runner, int (*function)(void *arg), void *arg,
				 int begin)
{
	runner->function = function;
	runner->arg = arg;
	runner->begin = begin;
	runner->tid = 0;
	runner->done = 0;
	if (pthread_create(&runner->thread, NULL, runner_main, runner))
		abort();
	spin_until(__atomic_load_n(&runner->tid, __ATOMIC_ACQUIRE));
}

/*
 * Converts a function that takes one pointer of any type. All pointers are passed in the same way.
 */
#define CALL(function)		((int (*)(void *))(function))

/* Like CALL(). The compiler checks that the function accepts @arg. */
#define CALL_WITH(function, arg)	((void)sizeof((function)(arg)), CALL(function))

#define runner_start(runner, function, arg)	\
	runner_create(runner, CALL_WITH(function, arg), arg, 1)

static inline void runner_release(struct runner *runner)
{
	__atomic_store_n(&runner->begin, 1, __ATOMIC_RELEASE);
}

/* Starts a race with the caller: both threads are running and continue at the same time. */
#define runner_race(runner, function, arg)					\
do {										\
	runner_create(runner, CALL_WITH(function, arg), arg, 0);		\
	runner_release(runner);							\
} while (0)

/*
 * Delays by up to a few hundred microseconds, depending on the round, so that a race has different
 * outcomes.
 */
static inline void linger(int round)
{
	volatile int i;

	for (i = 0; i < 1 << round % 19; i++)
		;
}

/* Returns when the thread is done or asleep. The thread must sleep only in the code under test. */
static inline void runner_await_asleep(struct runner *runner)
{
	await_asleep(runner->tid);
}

static inline bool runner_is_done(struct runner *runner)
{
	return __atomic_load_n(&runner->done, __ATOMIC_ACQUIRE);
}

static inline int runner_join(struct runner *runner)
{
	pthread_join(runner->thread, NULL);
	return runner->result;
}

static inline int run_elsewhere(int (*function)(void *arg), void *arg)
{
	struct runner runner;

	runner_create(&runner, function, arg, 1);
	return runner_join(&runner);
}

/* Runs the function in another thread and returns its result. */
#define elsewhere(function, arg)	run_elsewhere(CALL_WITH(function, arg), arg)

/* A thread that makes one WAIT and stores the result. */
struct waiter {
	pthread_t thread;
	/* The function that waits, if it is not mw_wait(). */
	int (*wait)(int fd, const volatile void *addr, uint64_t expected, uint64_t deadline,
		    uint32_t flags);
	int fd;
	const volatile void *addr;
	uint64_t expected;
	uint64_t deadline;
	uint32_t flags;
	pid_t tid;		/* set by the thread before it waits */
	int result;		/* valid when done */
	int done;
	int order;	/* position in the order of finishing, if @ticket is set */
	int *ticket;
};

/* Returns a thread that waits without a deadline for a 32-bit word that is 0. */
static inline struct waiter thread_at(int fd, const volatile void *word)
{
	return (struct waiter) { .fd = fd, .addr = word, .deadline = MEMWAIT_FOREVER,
				 .flags = MEMWAIT_SIZE_U32 };
}

static inline void *waiter_main(void *arg)
{
	struct waiter *w = arg;

	__atomic_store_n(&w->tid, gettid(), __ATOMIC_RELEASE);
	w->result = (w->wait ?: mw_wait)(w->fd, w->addr, w->expected, w->deadline, w->flags);
	if (w->ticket)
		w->order = __atomic_add_fetch(w->ticket, 1, __ATOMIC_ACQ_REL);
	__atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

/*
 * Starts w, whose fd, addr, expected, deadline and flags are set. Returns when the word has one
 * more waiter, or when the deadline has passed. No other waiter may join or leave the word during
 * this call.
 */
static inline void waiter_start(struct waiter *w)
{
	uint32_t flags = w->flags & ~MEMWAIT_CLOCK_REALTIME;
	int before = mw_waiters(w->fd, w->addr, flags);

	w->done = 0;
	w->tid = 0;
	if (pthread_create(&w->thread, NULL, waiter_main, w))
		abort();
	await_waiters_or_done(w->fd, w->addr, flags, before + 1, &w->done);
}

static inline int waiter_join(struct waiter *w)
{
	pthread_join(w->thread, NULL);
	return w->result;
}

static inline pid_t fork_child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		abort();
	return pid;
}

/* Forks a process that exits with the value of an expression. Evaluates to the child's PID. */
#define run_in_child(expression)		\
({						\
	pid_t child_ = fork_child();		\
						\
	if (!child_)				\
		_exit(expression);		\
	child_;					\
})

/*
 * Waits for a child. Returns its exit status, 128 + the number of the signal that killed it, or -1.
 */
static inline int child_status(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline int kill_child(pid_t pid)
{
	kill(pid, SIGKILL);
	return child_status(pid);
}

/* Blocks a child until it is killed. */
static inline _Noreturn void stay(void)
{
	for (;;)
		pause();
}

static inline void *map_memory(size_t size, int flags, int file)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, file, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

/* Returns zeroed anonymous memory that is shared over fork. */
static inline void *shared_page(size_t size)
{
	return map_memory(size, MAP_SHARED | MAP_ANONYMOUS, -1);
}

static inline void *private_page(size_t size)
{
	return map_memory(size, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

/* Maps the beginning of a file. */
static inline void *map_shared(int file, size_t size)
{
	return map_memory(size, MAP_SHARED, file);
}

/* Returns a zeroed memfd. */
static inline int new_file(size_t size)
{
	int file = memfd_create("memwait", MFD_CLOEXEC);

	if (file < 0 || ftruncate(file, size))
		abort();
	return file;
}

/* A thread that drops pages repeatedly. */
struct dropper {
	pthread_t thread;
	void *page;
	size_t size;
	int times;		/* how often; the thread starts again each time this is set */
	int stop;
};

static inline void *drop_pages(void *arg)
{
	struct dropper *d = arg;

	while (!__atomic_load_n(&d->stop, __ATOMIC_RELAXED)) {
		if (__atomic_load_n(&d->times, __ATOMIC_RELAXED) <= 0) {
			sched_yield();
			continue;
		}
		__atomic_sub_fetch(&d->times, 1, __ATOMIC_RELAXED);
		madvise(d->page, d->size, MADV_DONTNEED);
	}
	return NULL;
}

static inline void dropper_stop(struct dropper *d)
{
	__atomic_store_n(&d->stop, 1, __ATOMIC_RELAXED);
	pthread_join(d->thread, NULL);
}

/* Binds the calling thread to a CPU. */
static inline int bind_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

/*
 * Binds the thread to CPU 0. While the thread runs with a priority above 0, threads without
 * real-time priority cannot run on this CPU. Therefore woken threads do not return from their
 * calls.
 */
static inline int pin(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	return bind_to(0) || sched_setscheduler(0, priority ? SCHED_FIFO : SCHED_OTHER, &param);
}

/* Sends a descriptor and a number to another process. Returns 0 or -1. */
static inline int send_fd(int socket, int fd, int number)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &number, sizeof(number) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&msg);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(int));
	return sendmsg(socket, &msg, 0) == sizeof(number) ? 0 : -1;
}

/* Returns the descriptor, or -1. @number may be NULL. */
static inline int receive_fd(int socket, int *number)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	int fd = -1, sent = -1;
	struct iovec iov = { &sent, sizeof(sent) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };

	if (recvmsg(socket, &msg, MSG_CMSG_CLOEXEC) == sizeof(sent) && CMSG_FIRSTHDR(&msg))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	if (number)
		*number = sent;
	return fd;
}

/* Returns 0, or a negative errno. */
static inline int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), ret;

	if (fd < 0)
		return -errno;
	ret = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

static inline int write_number(const char *path, uint64_t number)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	return write_file(path, text);
}

/*
 * System settings that a test changes. The teardown of the fixture restores the settings, even
 * after a failed assertion. If a test hangs, it is killed and its settings are not restored.
 */
static struct setting {
	const char *path;
	char before[256];
} settings[4];

/* Returns 0, or a negative errno. */
static inline int change_setting(const char *path, const char *text)
{
	struct setting *s = settings;
	int fd, ret;
	ssize_t n;

	while (s->path && strcmp(s->path, path))
		s++;
	if (!s->path) {
		/* The last entry ends the list. */
		if (s == &settings[ARRAY_SIZE(settings) - 1])
			return -ENOSPC;
		fd = open(path, O_RDONLY);
		n = fd < 0 ? -1 : read(fd, s->before, sizeof(s->before) - 1);
		close(fd);
		if (n < 0)
			return -ENOENT;
	}
	ret = write_file(path, text);
	if (!ret)
		s->path = path;
	return ret;
}

static inline int change_number(const char *path, uint64_t number)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	return change_setting(path, text);
}

/* Returns 0, or a negative errno if a setting could not be restored. */
static inline int restore_settings(void)
{
	struct setting *s;
	int ret = 0;

	for (s = settings; s->path; s++) {
		ret = write_file(s->path, s->before) ?: ret;
		s->path = NULL;
	}
	return ret;
}

/* The mask of the CPUs on which unbound kernel threads run. */
#define WORKQUEUE_CPUMASK	"/sys/devices/virtual/workqueue/cpumask"

/*
 * Removes a cgroup. An exited process may stay in it for a short time after waitpid(2) has
 * returned.
 */
static inline int remove_cgroup(const char *path)
{
	int ret;

	sleep_until(!(ret = rmdir(path)) || errno != EBUSY);
	return ret;
}

/* Returns the number at the start of a file, or -1. */
static inline long read_number(const char *path)
{
	char text[64] = { 0 };
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	return n > 0 ? atol(text) : -1;
}

/* Returns the number after "name:" or "name " at the start of a line in a file, or -1. */
static inline long read_number_of(const char *path, const char *name)
{
	size_t n = strlen(name);
	char line[128];
	long number = -1;
	FILE *f = fopen(path, "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, name, n) && (line[n] == ':' || line[n] == ' '))
			number = strtol(line + n + 1, NULL, 10);
	}
	if (f)
		fclose(f);
	return number;
}

#endif /* MEMWAIT_TEST_H */
