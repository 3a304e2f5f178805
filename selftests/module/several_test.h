/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for tests of waits on several words, of requeue and of notify-and-wait, on top of the
 * fixture: one wrapper for each ioctl, and threads that wait for several words.
 */
#ifndef SEVERAL_TEST_H
#define SEVERAL_TEST_H

#include "async_test.h"
#include "signal_test.h"

#define FOREVER		MEMWAIT_FOREVER
#define HOUR		3600000ULL	/* in ms */
#define UNTOUCHED	0x0cccccccU	/* value of an output field before a call */

/* Returns a member of a group. The member's own deadline is ignored. */
static inline struct memwait_wait member(const volatile void *addr, uint64_t expected,
					 uint32_t flags)
{
	return (struct memwait_wait) {
		.addr = (uintptr_t)addr,
		.expected = expected,
		.deadline = UNTOUCHED,
		.flags = flags,
	};
}

/* Fills in members for n consecutive 32-bit words with the expected value 0. */
static inline void members(struct memwait_wait *waits, const uint32_t *word, int n)
{
	int i;

	for (i = 0; i < n; i++)
		waits[i] = member(word + i, 0, U32);
}

/* @index may be NULL. */
static inline int mw_wait_any(int fd, const struct memwait_wait *waits, uint32_t count,
			      uint64_t deadline, uint32_t flags, uint32_t *index)
{
	struct memwait_wait_any arg = {
		.waits = (uintptr_t)waits,
		.deadline = deadline,
		.count = count,
		.flags = flags,
		.index = UNTOUCHED,
	};
	int ret = xioctl(fd, MEMWAIT_IOC_WAIT_ANY, &arg);

	if (index)
		*index = arg.index;
	return ret;
}

/* Returns a batch entry that waits for a 32-bit word. */
static inline struct memwait_async wait_entry(const void *word, uint64_t expected,
					      uint64_t deadline, uint64_t user_data)
{
	return (struct memwait_async) {
		.wait = { .addr = (uintptr_t)word, .expected = expected, .deadline = deadline,
			  .flags = U32 },
		.user_data = user_data,
		.id = 0xccccccccccccccccULL,
		.result = 0x0ccccccc,
	};
}

/* Returns a batch entry that is a group. */
static inline struct memwait_async group_entry(const struct memwait_wait *waits, uint32_t count,
					       uint64_t deadline, uint32_t flags,
					       uint64_t user_data)
{
	return (struct memwait_async) {
		.any = {
			.waits = (uintptr_t)waits,
			.count = count,
			.deadline = deadline,
			.flags = MEMWAIT_GROUP | flags,
			.index = UNTOUCHED,
		},
		.user_data = user_data,
		.id = UNTOUCHED,
		.result = UNTOUCHED,
	};
}

/* Like mw_async(), for a group. @id may be NULL. */
static inline int mw_group(int fd, const struct memwait_wait *waits, uint32_t count,
			   uint64_t deadline, uint32_t flags, uint64_t user_data, uint64_t *id)
{
	struct memwait_async entry = group_entry(waits, count, deadline, flags, user_data);
	int ret = mw_batch(fd, &entry, 1);

	if (id)
		*id = entry.id;
	return ret < 0 ? ret : entry.result;
}

/* Like async_soon(), for a group. */
static inline int group_soon(int fd, const struct memwait_wait *waits, uint32_t count, uint64_t ms,
			     uint64_t user_data, uint64_t *id)
{
	int ret;

	do {
		ret = mw_group(fd, waits, count, in_ms(ms), 0, user_data, id);
		ms *= 2;
	} while (ret == MEMWAIT_TIMED_OUT);
	return ret;
}

struct requeued {
	uint32_t woken, moved;
};

/* @out may be NULL. */
static inline int mw_requeue(int fd, const volatile void *addr, uint64_t expected,
			     const volatile void *target, uint32_t count, uint32_t move,
			     uint32_t flags, struct requeued *out)
{
	struct memwait_requeue arg = {
		.addr = (uintptr_t)addr,
		.expected = expected,
		.target = (uintptr_t)target,
		.count = count,
		.move = move,
		.flags = flags,
		.woken = UNTOUCHED,
		.moved = UNTOUCHED,
	};
	int ret = xioctl(fd, MEMWAIT_IOC_REQUEUE, &arg);

	if (out)
		*out = (struct requeued) { .woken = arg.woken, .moved = arg.moved };
	return ret;
}

/* Waits for a completion, then reads up to n completions. */
static inline int await_completions(int fd, struct memwait_completion *done, int n)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	poll(&pfd, 1, poll_patience(100));
	return mw_read(fd, done, n);
}

/* A thread that makes one WAIT_ANY and stores the result. */
struct any_waiter {
	pthread_t thread;
	int fd;
	const struct memwait_wait *waits;
	uint32_t count;
	uint64_t deadline;
	uint32_t flags;
	pid_t tid;		/* set by the thread before it waits */
	int result;		/* like @index, valid when done */
	uint32_t index;
	int done;
};

static inline void *any_main(void *arg)
{
	struct any_waiter *w = arg;

	__atomic_store_n(&w->tid, gettid(), __ATOMIC_RELEASE);
	w->result = mw_wait_any(w->fd, w->waits, w->count, w->deadline, w->flags, &w->index);
	__atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static inline void *word_of(const struct memwait_wait *wait)
{
	return (void *)(uintptr_t)wait->addr;
}

static inline int waiters_of(int fd, const struct memwait_wait *wait)
{
	return mw_waiters(fd, word_of(wait), wait->flags);
}

/*
 * Starts w, whose fd, waits, count, deadline and flags are set. The thread joins its queues in
 * order. Returns when the thread is in all queues, or when its deadline has passed. During this
 * time no other waiter may join or leave the queue of the last word.
 */
static inline void any_start(struct any_waiter *w)
{
	const struct memwait_wait *last = &w->waits[w->count - 1];
	int n = waiters_of(w->fd, last);
	uint32_t i;

	for (i = 0; i < w->count; i++)
		n += w->waits[i].addr == last->addr;
	w->done = 0;
	w->tid = 0;
	if (pthread_create(&w->thread, NULL, any_main, w))
		abort();
	await_waiters_or_done(w->fd, word_of(last), last->flags, n, &w->done);
}

static inline int any_join(struct any_waiter *w)
{
	pthread_join(w->thread, NULL);
	return w->result;
}

/* Returns a thread that waits forever for any of several words. */
static inline struct any_waiter any_of(int fd, const struct memwait_wait *waits, uint32_t count)
{
	return (struct any_waiter) { .fd = fd, .waits = waits, .count = count,
				     .deadline = FOREVER };
}

/* Maps memory twice; the second mapping is read-only. Returns 0 or -1. */
static inline int map_twice(size_t size, uint32_t **one, uint32_t **two)
{
	int memfd = new_file(size);

	*one = map_shared(memfd, size);
	*two = map_shared(memfd, size);
	close(memfd);
	return mprotect(*two, size, PROT_READ);
}

/*
 * Returns a kernel address. Returns NULL in a 32-bit program, whose pointers cannot represent one.
 */
static inline void *kernel_address(void)
{
	return sizeof(void *) == 8 ? (void *)(uintptr_t)0xffff888000000000ULL : NULL;
}

/* Maps an inaccessible page. */
static inline void *hole_page(void)
{
	void *page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);

	return page == MAP_FAILED ? NULL : page;
}

/* Maps a word of a device. Returns NULL if the device does not exist. */
static inline void *device_word(void)
{
	int mem = open("/dev/mem", O_RDONLY);
	void *page;

	if (mem < 0)
		return NULL;
	page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, mem, 0xf0000);
	close(mem);
	return page == MAP_FAILED ? NULL : page;
}

#endif /* SEVERAL_TEST_H */
