// SPDX-License-Identifier: GPL-2.0
/*
 * Private objects, whose waiters are found by address, without a lookup of the mapping. In shared
 * memory, private and shared waits are in different queues. If a call ignored that the object is
 * private, it would find no waiter, and a waiter would sleep forever.
 */
#include "objects_test.h"
#include "ioctl_test.h"

/* Size of the memory for each object. The library chooses on which words in it waiters sleep. */
#define OBJECT_SIZE	512

static int waiters_within(int fd, const void *object, uint32_t flags)
{
	int i, n = 0;

	for (i = 0; i < OBJECT_SIZE; i++)
		n += mw_waiters(fd, (const char *)object + i, flags);
	return n;
}

static void await_waiters_within(int fd, const void *object, uint32_t flags, int n)
{
	spin_until(waiters_within(fd, object, flags) == n);
}

struct monitor {
	memwait_cond_t cond;
	memwait_mutex_t mutex;
	int open;
	int held;	/* set by wait_when_held(), which waits when it is 2 */
};

static int make_monitor(void *object, unsigned int flags)
{
	struct monitor *monitor = object;
	int err = memwait_cond_init(&monitor->cond, flags);

	monitor->open = 0;
	return err ? err : memwait_mutex_init(&monitor->mutex, flags);
}

/* Returns with the mutex locked. */
static int enter_monitor(void *object)
{
	struct monitor *monitor = object;
	int err = memwait_mutex_lock(&monitor->mutex);

	while (!err && !monitor->open)
		err = memwait_cond_wait(&monitor->cond, &monitor->mutex);
	return err;
}

static int unlock_monitor(void *object)
{
	struct monitor *monitor = object;

	return memwait_mutex_unlock(&monitor->mutex);
}

static int wait_in_monitor(void *object)
{
	return enter_monitor(object) ?: unlock_monitor(object);
}

static int wait_in_monitor_async(void *object, memwait_op_t *op)
{
	struct monitor *monitor = object;
	int err = memwait_mutex_lock(&monitor->mutex);

	return err ? err : memwait_cond_wait_async(&monitor->cond, &monitor->mutex, op);
}

static int signal_twice(void *object)
{
	struct monitor *monitor = object;
	int err = memwait_mutex_lock(&monitor->mutex);

	monitor->open = 1;
	err = err ? err : memwait_cond_signal(&monitor->cond);
	err = err ? err : memwait_cond_notify(&monitor->cond, 1);
	return err ? err : memwait_mutex_unlock(&monitor->mutex);
}

static int broadcast(void *object)
{
	struct monitor *monitor = object;
	int err = memwait_mutex_lock(&monitor->mutex);

	monitor->open = 1;
	err = err ? err : memwait_cond_broadcast(&monitor->cond);
	return err ? err : memwait_mutex_unlock(&monitor->mutex);
}

static int destroy_cond(void *object)
{
	struct monitor *monitor = object;

	return memwait_cond_destroy(&monitor->cond);
}

static int destroy_monitor(void *object)
{
	struct monitor *monitor = object;
	int err = destroy_cond(object);

	return err ? err : memwait_mutex_destroy(&monitor->mutex);
}

static const struct way signal_way = {
	.make		= make_monitor,
	.wait		= enter_monitor,
	.wait_async	= wait_in_monitor_async,
	.give		= signal_twice,
	.give_back	= unlock_monitor,
	.destroy	= destroy_monitor,
	.lets_all_go	= true,
};

static const struct way broadcast_way = {
	.make		= make_monitor,
	.wait		= enter_monitor,
	.wait_async	= wait_in_monitor_async,
	.give		= broadcast,
	.give_back	= unlock_monitor,
	.destroy	= destroy_monitor,
	.lets_all_go	= true,
};

static int make_barrier(void *object, unsigned int flags)
{
	return memwait_barrier_init(object, flags, 3);
}

static int arrive_last(void *object)
{
	return memwait_barrier_wait(object) - MEMWAIT_BARRIER_SERIAL_THREAD;
}

static const struct way last_at_barrier_way = {
	.make		= make_barrier,
	.wait		= CALL(memwait_barrier_wait),
	.wait_async	= ASYNC(memwait_barrier_wait_async),
	.give		= arrive_last,
	.destroy	= CALL(memwait_barrier_destroy),
	.lets_all_go	= true,
};

static int was_closed(void *object)
{
	return receive_one(object) == EPIPE ? 0 : EINVAL;
}

static const struct way closed_way = {
	.make		= make_empty,
	.wait		= was_closed,
	.wait_async	= receive_async,
	.give		= CALL(memwait_channel_close),
	.destroy	= CALL(memwait_channel_destroy),
	.lets_all_go	= true,
};

static const struct thing {
	const char *name;
	const struct way *way;
	unsigned int kind;
} things[] = {
	{ "mutex", &mutex_way, 0 },
	{ "fair mutex", &mutex_way, MEMWAIT_MUTEX_FAIR },
	{ "writers", &write_after_read_way, 0 },
	{ "readers", &read_way, 0 },
	{ "fair readers", &read_way, MEMWAIT_RWLOCK_FAIR },
	{ "signal", &signal_way, 0 },
	{ "broadcast", &broadcast_way, 0 },
	{ "semaphore", &sem_way, 0 },
	{ "barrier", &last_at_barrier_way, 0 },
	{ "wait group", &group_way, 0 },
	{ "event", &event_way, 0 },
	{ "empty channel", &receive_way, 0 },
	{ "full channel", &send_way, 0 },
	{ "closed channel", &closed_way, 0 },
};

USERLIB_TEST(R9_waiters_are_found_by_address_alone)
{
	const unsigned int kinds[] = { 0, MEMWAIT_PRIVATE };
	struct counted_op counted = counted_by(&counted, self->loop);
	void *object = self->shared;
	const struct way *way;
	struct visitor visitor;
	unsigned int flags;
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(things); i++) {
		way = things[i / 2].way;
		flags = kinds[i % 2];
		TH_LOG("%s, %s", things[i / 2].name, flags ? "private" : "shared");
		memset(object, 0, OBJECT_SIZE);
		ASSERT_EQ(0, way->make(object, things[i / 2].kind | flags));
		visitor_start(&visitor, way, object);
		await_waiters_within(self->fd, object, flags, 1);
		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS, way->wait_async(object, &counted.op));
		EXPECT_EQ(2, waiters_within(self->fd, object, flags));
		EXPECT_EQ(0, waiters_within(self->fd, object, flags ^ MEMWAIT_PRIVATE));
		/* Both waiters are released, but one of them may have to wait for the other. */
		ASSERT_EQ(0, way->give(object));
		if (!way->give_back) {
			ASSERT_EQ(0, give_next(way, object));
		}
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(way == &closed_way ? EPIPE : 0, counted.result);
		EXPECT_EQ(0, leave(way, object, 0));
		EXPECT_EQ(0, visitor_join(&visitor));
		EXPECT_EQ(0, way->destroy(object));
	}
}

/*
 * If an operation that got a post or signal is cancelled, it passes the post or signal to the
 * waiter behind it.
 */
USERLIB_TEST(L3_a_cancel_wakes_by_address)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner behind, cancelled;
	memwait_sem_t *sem = self->shared;
	int were_cancelled = 0;

	ASSERT_EQ(0, memwait_sem_init(sem, MEMWAIT_PRIVATE, 0));
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &counted.op));
	runner_start(&behind, memwait_sem_wait, sem);
	await_waiters_within(self->fd, sem, MEMWAIT_PRIVATE, 2);
	ASSERT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, runner_join(&behind));
	EXPECT_EQ(0, counted.calls);

	while (!were_cancelled) {
		runner_start(&cancelled, memwait_sem_wait, sem);
		await_waiters_within(self->fd, sem, MEMWAIT_PRIVATE, 1);
		runner_start(&behind, memwait_sem_wait, sem);
		await_waiters_within(self->fd, sem, MEMWAIT_PRIVATE, 2);
		ASSERT_EQ(0, pthread_cancel(cancelled.thread));
		ASSERT_EQ(0, memwait_sem_post(sem));
		pthread_join(cancelled.thread, NULL);
		were_cancelled = !cancelled.done;
		if (cancelled.done) {
			ASSERT_EQ(0, memwait_sem_post(sem));
		}
		EXPECT_EQ(0, runner_join(&behind));
	}
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

static void unlock_when_cancelled(void *mutex)
{
	memwait_mutex_unlock(mutex);
}

static int wait_in_monitor_to_be_cancelled(void *object)
{
	struct monitor *monitor = object;
	int err = memwait_mutex_lock(&monitor->mutex);

	pthread_cleanup_push(unlock_when_cancelled, &monitor->mutex);
	while (!err && !monitor->open)
		err = memwait_cond_wait(&monitor->cond, &monitor->mutex);
	pthread_cleanup_pop(1);
	return err;
}

USERLIB_TEST(L5_a_cancelled_thread_passes_its_signal_on_by_address)
{
	struct monitor *monitor = self->shared;
	struct runner cancelled, behind;
	int were_cancelled = 0;

	while (!were_cancelled) {
		ASSERT_EQ(0, make_monitor(monitor, MEMWAIT_PRIVATE));
		runner_start(&cancelled, wait_in_monitor_to_be_cancelled, monitor);
		await_waiters(self->fd, &monitor->cond, U32_SIZE | MEMWAIT_PRIVATE, 1);
		runner_start(&behind, wait_in_monitor, monitor);
		await_waiters(self->fd, &monitor->cond, U32_SIZE | MEMWAIT_PRIVATE, 2);
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		monitor->open = 1;
		ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		ASSERT_EQ(0, pthread_cancel(cancelled.thread));
		ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		pthread_join(cancelled.thread, NULL);
		were_cancelled = !cancelled.done;
		if (cancelled.done) {
			ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		}
		EXPECT_EQ(0, runner_join(&behind));
		EXPECT_EQ(0, destroy_monitor(monitor));
	}
}

/*
 * The operation was signalled and waits for the mutex. It has left the condition variable, which
 * may no longer exist.
 */
USERLIB_TEST(L3_a_cancel_does_not_touch_an_object_that_was_left)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	memwait_mutex_t *mutex = self->shared;
	memwait_cond_t *cond;

	cond = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, cond);
	ASSERT_EQ(0, memwait_cond_init(cond, MEMWAIT_PRIVATE));
	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_PRIVATE));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(EINPROGRESS, memwait_cond_wait_async(cond, mutex, &counted.op));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(0, memwait_cond_signal(cond));
	ASSERT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	await_waiters(self->fd, mutex, U32_SIZE | MEMWAIT_PRIVATE, 1);
	ASSERT_EQ(0, memwait_cond_destroy(cond));
	ASSERT_EQ(0, munmap(cond, 4096));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, memwait_mutex_destroy(mutex));
}

/* While this is set, woken threads do not return from their wait. */
static int hold;

static int intercept(int fd, unsigned long request, void *argument)
{
	int ret = ioctl_of_kernel(fd, request, argument);

	spin_until(request != MEMWAIT_IOC_WAIT || !__atomic_load_n(&hold, __ATOMIC_ACQUIRE));
	return ret;
}

/* Waiters that are leaving wake the destroyer by address, even if they leave late. */
USERLIB_TEST(L8_destroy_is_woken_by_address)
{
	void *object = self->shared;
	struct runner waiter, destroyer;
	int i;

	for (i = 0; i < 2; i++) {
		if (i) {
			ASSERT_EQ(0, memwait_barrier_init(object, MEMWAIT_PRIVATE, 2));
		} else {
			ASSERT_EQ(0, make_monitor(object, MEMWAIT_PRIVATE));
		}
		runner_start(&waiter, i ? CALL(memwait_barrier_wait) : wait_in_monitor, object);
		spin_until(waiters_within(self->fd, object, MEMWAIT_PRIVATE) == 1);
		__atomic_store_n(&hold, 1, __ATOMIC_RELEASE);
		ASSERT_EQ(0, i ? arrive_last(object) : signal_twice(object));
		runner_start(&destroyer, i ? CALL(memwait_barrier_destroy) : destroy_cond, object);
		runner_await_asleep(&destroyer);
		EXPECT_FALSE(runner_is_done(&destroyer));
		EXPECT_EQ(1, waiters_within(self->fd, object, MEMWAIT_PRIVATE));
		EXPECT_EQ(0, waiters_within(self->fd, object, 0));
		__atomic_store_n(&hold, 0, __ATOMIC_RELEASE);
		EXPECT_EQ(0, runner_join(&waiter));
		EXPECT_EQ(0, runner_join(&destroyer));
	}
}

#define WAITERS	4

static int wait_when_held(void *object)
{
	struct monitor *monitor = object;
	int err = memwait_mutex_lock(&monitor->mutex);

	__atomic_store_n(&monitor->held, 1, __ATOMIC_RELEASE);
	spin_until(__atomic_load_n(&monitor->held, __ATOMIC_ACQUIRE) == 2);
	while (!err && !monitor->open)
		err = memwait_cond_wait(&monitor->cond, &monitor->mutex);
	return err ? err : memwait_mutex_unlock(&monitor->mutex);
}

USERLIB_TEST(R9_a_condition_variable_and_its_mutex_need_not_agree)
{
	struct monitor *monitor = self->shared;
	struct runner waiters[WAITERS], holder, opener;
	struct counted_op counted = counted_by(&counted, self->loop);
	unsigned int cond, mutex;
	int i, n;

	for (i = 0; i < 4; i++) {
		cond = i & 1 ? MEMWAIT_PRIVATE : 0;
		mutex = i & 2 ? MEMWAIT_PRIVATE : 0;
		TH_LOG("condition variable %s, mutex %s", cond ? "private" : "shared",
		       mutex ? "private" : "shared");
		memset(monitor, 0, sizeof(*monitor));
		ASSERT_EQ(0, memwait_cond_init(&monitor->cond, cond));
		ASSERT_EQ(0, memwait_mutex_init(&monitor->mutex, mutex));
		for (n = 0; n < WAITERS; n++)
			runner_start(&waiters[n], wait_in_monitor, monitor);
		await_waiters(self->fd, &monitor->cond, U32_SIZE | cond, WAITERS);
		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS, wait_in_monitor_async(monitor, &counted.op));

		/*
		 * The holder's wait unlocks the mutex for the thread that sleeps on the mutex and
		 * will broadcast.
		 */
		runner_start(&holder, wait_when_held, monitor);
		spin_until(__atomic_load_n(&monitor->held, __ATOMIC_ACQUIRE));
		runner_start(&opener, broadcast, monitor);
		await_waiters(self->fd, &monitor->mutex, U32_SIZE | mutex, 1);
		__atomic_store_n(&monitor->held, 2, __ATOMIC_RELEASE);

		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		EXPECT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		for (n = 0; n < WAITERS; n++)
			EXPECT_EQ(0, runner_join(&waiters[n]));
		EXPECT_EQ(0, runner_join(&holder));
		EXPECT_EQ(0, runner_join(&opener));
		EXPECT_EQ(0, destroy_monitor(monitor));
	}
}

USERLIB_TEST(R9_broadcast_wakes_by_address)
{
	struct monitor *monitor = self->shared;
	struct runner waiters[WAITERS];
	uint32_t size = U32_SIZE;
	int round, i;

	for (round = 0; round < 2; round++) {
		ASSERT_EQ(0, make_monitor(monitor, MEMWAIT_PRIVATE));
		for (i = 0; i < WAITERS; i++)
			runner_start(&waiters[i], wait_in_monitor, monitor);
		await_waiters(self->fd, &monitor->cond, size | MEMWAIT_PRIVATE, WAITERS);
		ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
		monitor->open = 1;
		if (round) {
			ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
			ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		} else {
			ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
			EXPECT_EQ(0, mw_waiters(self->fd, &monitor->cond, size | MEMWAIT_PRIVATE));
			await_waiters(self->fd, &monitor->mutex, size | MEMWAIT_PRIVATE, WAITERS);
			EXPECT_EQ(0, mw_waiters(self->fd, &monitor->mutex, size));
			EXPECT_EQ(0, destroy_cond(monitor));
			ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		}
		for (i = 0; i < WAITERS; i++)
			EXPECT_EQ(0, runner_join(&waiters[i]));
		EXPECT_EQ(0, destroy_monitor(monitor));
	}
}

USERLIB_TEST(R2_unknown_flags_are_rejected)
{
	const unsigned int bad[] = { 0x20, 0x40, 0x100, MEMWAIT_PRIVATE | 0x200, ~0U };
	void *object = self->shared;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(EINVAL, memwait_mutex_init(object, bad[i]));
		EXPECT_EQ(EINVAL, memwait_rwlock_init(object, bad[i]));
		EXPECT_EQ(EINVAL, memwait_cond_init(object, bad[i]));
		EXPECT_EQ(EINVAL, memwait_barrier_init(object, bad[i], 1));
		EXPECT_EQ(EINVAL, memwait_waitgroup_init(object, bad[i], 1));
		EXPECT_EQ(EINVAL, memwait_event_init(object, bad[i]));
		EXPECT_EQ(EINVAL, memwait_channel_init(object, SHARED_SIZE, bad[i], 1, 1));
	}
	EXPECT_EQ(EINVAL, memwait_mutex_init(object, MEMWAIT_RWLOCK_PREFER_WRITER));
	EXPECT_EQ(EINVAL, memwait_rwlock_init(object, MEMWAIT_RWLOCK_PREFER_WRITER |
						      MEMWAIT_RWLOCK_FAIR));
}

TEST_HARNESS_MAIN
