/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers for tests of async waits, on top of the fixture. */
#ifndef ASYNC_TEST_H
#define ASYNC_TEST_H

#include "../memwait_fixture.h"

/*
 * Arms a wait for 0 with a near deadline. Retries with twice the time if the deadline has passed.
 */
static inline int async_soon(int fd, const volatile void *addr, uint64_t ms, uint64_t user_data,
			     uint64_t *id)
{
	int ret;

	do {
		ret = mw_async(fd, addr, 0, in_ms(ms), U32, user_data, id);
		ms *= 2;
	} while (ret == MEMWAIT_TIMED_OUT);
	return ret;
}

/* A thread that calls read(2) once. */
struct reader {
	struct runner runner;
	int fd;
	struct memwait_completion *to;
	size_t n;
	struct memwait_completion done;
};

ADAPTER(reader_main, struct reader *reader, mw_read(reader->fd, reader->to, reader->n))

static inline void reader_start_into(struct reader *reader, int fd,
				     struct memwait_completion *to, size_t n)
{
	reader->fd = fd;
	reader->to = to;
	reader->n = n;
	runner_start(&reader->runner, reader_main, reader);
}

/* Returns when the reader sleeps or has returned from read(2). */
static inline void reader_start(struct reader *reader, int fd)
{
	reader_start_into(reader, fd, &reader->done, 1);
	runner_await_asleep(&reader->runner);
}

/* Replaces a context with a new context. Returns whether the new context could be opened. */
static inline bool renew(int *fd)
{
	close(*fd);
	*fd = memwait_open(O_NONBLOCK);
	return *fd >= 0;
}

#define LIMIT_PARAMETER	"/sys/module/memwait/parameters/max_user_waits"

static inline int set_limit(uint64_t limit)
{
	return change_number(LIMIT_PARAMETER, limit);
}

#endif /* ASYNC_TEST_H */
