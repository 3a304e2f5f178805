/* SPDX-License-Identifier: GPL-2.0 */
/*
 * R28 to R31: effects that a program can have on others through the device. Each test attacks
 * another process, and bounds the cost to that process. Measurements are printed. The bounds are
 * wide, so that they are met on a busy emulated machine, but they still distinguish a successful
 * attack from a failed attack. The tests have separate boots, with the kernel's default stall
 * limits.
 *
 * MEMWAIT_HOSTILE_WAITS sets the number of async waits in tests that depend on it.
 */
#ifndef HOSTILE_TEST_H
#define HOSTILE_TEST_H

#include "../module/limits_test.h"
#include "../module/several_test.h"
#include "../timing_test.h"
#include <sys/utsname.h>

#define BOX		"/sys/fs/cgroup/memwait-hostile"
#define BATCH		1024
#define MAX_PROCESSORS	8
#define MANY_WAITS	200000

#define BATCH_OF(entries, n)	{ .waits = (uintptr_t)(entries), .count = (n), \
				  .entry_size = sizeof(struct memwait_async) }

static inline uint64_t now(void)
{
	return now_ns(CLOCK_MONOTONIC);
}

static inline int load(const int *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void store(int *p, int value)
{
	__atomic_store_n(p, value, __ATOMIC_RELEASE);
}

static inline int processors(void)
{
	return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Returns a number of waits, which is smaller if MEMWAIT_LOADS is set, as on slow machines. */
static inline int how_many_waits(int usual)
{
	const char *n = getenv("MEMWAIT_HOSTILE_WAITS");

	return n ? atoi(n) : LOAD(usual, usual / 4);
}

/* Like how_many_waits(), and raises the limit on waits, which LIMITS_TEST restores. */
static inline int allow_many_waits(int usual)
{
	return set_limit(1L << 30) ? -1 : how_many_waits(usual);
}

/*
 * Arms n waits for 0. Returns how many waits are pending. Stores their ids in @ids, which may be
 * NULL.
 */
static inline int arm_many(int fd, const volatile void *addr, int n, uint64_t deadline,
			   uint64_t *ids)
{
	static struct memwait_async e[BATCH];
	int armed = 0, some, ret, i;

	while (armed < n) {
		struct memwait_wait_async arg = BATCH_OF(e, n - armed < BATCH ? n - armed : BATCH);

		some = arg.count;
		memset(e, 0, sizeof(e));
		for (i = 0; i < some; i++) {
			e[i].wait.addr = (uintptr_t)addr;
			e[i].wait.deadline = deadline;
			e[i].wait.flags = U32;
			e[i].user_data = armed + i;
		}
		ret = xioctl(fd, MEMWAIT_IOC_WAIT_ASYNC, &arg);
		for (i = 0; i < ret && e[i].result == MEMWAIT_PENDING; i++) {
			if (ids)
				ids[armed + i] = e[i].id;
		}
		armed += i;
		if (i < some)
			break;
	}
	return armed;
}

/*
 * Like arm_many(), with a deadline that is still 1 s ahead when all waits are armed. Returns the
 * deadline, or 0.
 */
static inline uint64_t arm_timed(int *fd, const volatile void *addr, int n, uint64_t *ids)
{
	uint64_t ms, deadline;

	for (ms = 2500; ms < 100000; ms *= 2) {
		deadline = in_ms(ms);
		if (arm_many(*fd, addr, n, deadline, ids) == n && now() + NSEC_PER_SEC < deadline)
			return deadline;
		if (!renew(fd))
			break;
	}
	return 0;
}

/* Reads n completions as they arrive. */
static inline bool read_many(int fd, int n)
{
	static struct memwait_completion done[BATCH];
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int ret;

	while (n > 0) {
		ret = mw_read(fd, done, BATCH);
		if (ret > 0)
			n -= ret;
		else if (ret != -EAGAIN || poll(&pfd, 1, -1) < 0)
			return false;
	}
	return true;
}

static inline int set_idle(void)
{
	struct sched_param none = { 0 };

	return sched_setscheduler(0, SCHED_IDLE, &none);
}

static inline int set_fifo(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	return sched_setscheduler(0, SCHED_FIFO, &param);
}

/* Waits until a child has exited or the time is up. Returns whether the child has exited. */
static inline bool await_gone(pid_t pid, int *status, unsigned int seconds)
{
	uint64_t end = patience(seconds);
	pid_t got;

	while (!(got = waitpid(pid, status, WNOHANG)) && now() < end)
		usleep(1000);
	return got == pid;
}

/* Kills and reaps a child. Returns how long that took. */
static inline uint64_t kill_and_time(pid_t pid)
{
	uint64_t start = now();

	kill_child(pid);
	return now() - start;
}

static inline int requeue_all(int fd, uint32_t *from, uint32_t *to)
{
	struct memwait_requeue arg = {
		.addr = (uintptr_t)from,
		.target = (uintptr_t)to,
		.move = MEMWAIT_ALL,
		.flags = U32,
	};
	int ret = xioctl(fd, MEMWAIT_IOC_REQUEUE, &arg);

	return ret ? ret : (int)arg.moved;
}

static inline bool is_preempt_rt(void)
{
	struct utsname name;

	return !uname(&name) && strstr(name.version, "PREEMPT_RT");
}

#endif /* HOSTILE_TEST_H */
