// SPDX-License-Identifier: GPL-2.0
/* A writer that waits for readers sleeps, however many readers come and go. */
#include "userlib_test.h"
#include "ioctl_test.h"

#define MOST	100	/* how often a reader comes or leaves just before the writer sleeps */

/*
 * The lock, and the thread whose ioctls are intercepted: the writer, or the thread that begins an
 * operation.
 */
static memwait_rwlock_t *crossed;
static bool readers_come;
static pid_t writer;
static int waits;

/* With PREFER_WRITER a waiting writer closes the lock to new readers, so readers can only leave. */
static int intercept(int fd, unsigned long request, void *argument)
{
	if (crossed && gettid() == __atomic_load_n(&writer, __ATOMIC_ACQUIRE) &&
	    (request == MEMWAIT_IOC_WAIT || request == MEMWAIT_IOC_WAIT_ASYNC) &&
	    waits++ < MOST &&
	    (readers_come ? memwait_rwlock_rdlock(crossed) : memwait_rwlock_unlock(crossed)))
		abort();
	return ioctl_of_kernel(fd, request, argument);
}

static int write_once(void *arg)
{
	int ret;

	__atomic_store_n(&writer, gettid(), __ATOMIC_RELEASE);
	ret = memwait_rwlock_wrlock(arg);
	__atomic_store_n(&writer, 0, __ATOMIC_RELEASE);
	return ret ?: memwait_rwlock_unlock(arg);
}

static const unsigned int kinds[] = {
	MEMWAIT_RWLOCK_PREFER_READER, MEMWAIT_RWLOCK_PREFER_READER | MEMWAIT_PRIVATE,
	MEMWAIT_RWLOCK_PREFER_READER | MEMWAIT_RWLOCK_ROBUST,
	MEMWAIT_RWLOCK_PREFER_WRITER, MEMWAIT_RWLOCK_PREFER_WRITER | MEMWAIT_RWLOCK_ROBUST,
	MEMWAIT_RWLOCK_FAIR, MEMWAIT_RWLOCK_FAIR | MEMWAIT_PRIVATE,
};

USERLIB_TEST(a_writer_sleeps_while_readers_come_and_go)
{
	memwait_rwlock_t *lock = self->shared;
	struct counted_op counted;
	struct runner runner;
	int i, way, readers;

	for (way = 0; way < 2 * (int)ARRAY_SIZE(kinds); way++) {
		unsigned int kind = kinds[way / 2];

		TH_LOG("kind 0x%x, %s", kind, way % 2 ? "operation" : "thread");
		readers_come = !(kind & (MEMWAIT_RWLOCK_PREFER_WRITER | MEMWAIT_RWLOCK_FAIR));
		readers = readers_come ? 1 : 2 * MOST;
		ASSERT_EQ(0, memwait_rwlock_init(lock, kind));
		for (i = 0; i < readers; i++)
			ASSERT_EQ(0, memwait_rwlock_rdlock(lock));
		waits = 0;
		crossed = lock;
		if (way % 2) {
			memset(&counted, 0, sizeof(counted));
			memwait_op_init(&counted.op, self->loop, count_call, &counted);
			writer = gettid();
			ASSERT_EQ(EINPROGRESS, memwait_rwlock_wrlock_async(lock, &counted.op));
			writer = 0;
		} else {
			runner_start(&runner, write_once, lock);
			runner_await_asleep(&runner);
		}
		EXPECT_EQ(1, waits);
		waits = waits < MOST ? waits : MOST;
		readers += readers_come ? waits : -waits;
		for (i = 0; i < readers; i++)
			ASSERT_EQ(0, memwait_rwlock_unlock(lock));
		if (way % 2) {
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			EXPECT_EQ(0, counted.result);
			EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		} else {
			EXPECT_EQ(0, runner_join(&runner));
		}
		crossed = NULL;
		EXPECT_EQ(0, memwait_rwlock_destroy(lock));
	}
}

TEST_HARNESS_MAIN
