// SPDX-License-Identifier: GPL-2.0
/*
 * Objects that init was told to be private: who waits on them is found by their address, and by no
 * look at what is mapped there. In memory that is shared the two are different queues, so a call
 * that has forgotten what the object is finds nobody, and somebody sleeps for ever.
 */
#include "userlib_test.h"
#include "ioctl_test.h"

/* Enough for each object; where in it they sleep is the library's business. */
#define OBJECT_SIZE	512

static int waiters_within(int fd, const void *object, uint32_t flags)
{
	int i, n = 0;

	for (i = 0; i < OBJECT_SIZE; i += 4)
		n += mw_waiters(fd, (const char *)object + i, U32_SIZE | flags);
	return n;
}

static void await_waiters_within(int fd, const void *object, uint32_t flags, int n)
{
	while (waiters_within(fd, object, flags) != n)
		before_next_look();
}

/*
 * A way to wait on an object. @make: so that who comes next has to wait; @wait: what a thread does,
 * from beginning to end; @wait_async: what an operation begins with; @let_go: both are let go, but
 * one may have to wait for the other; @end: after the operation has been called back. All return 0.
 */
struct way {
	const char *name;
	int (*make)(void *object, unsigned int flags);
	int (*wait)(void *object);
	int (*wait_async)(void *object, memwait_op_t *op);
	int (*let_go)(void *object);
	int (*end)(void *object);
	int (*destroy)(void *object);
};

static int do_nothing(void *object)
{
	(void)object;
	return 0;
}

static int make_mutex(void *object, unsigned int flags)
{
	int err = memwait_mutex_init(object, flags);

	return err ? err : memwait_mutex_lock(object);
}

static int make_fair_mutex(void *object, unsigned int flags)
{
	return make_mutex(object, flags | MEMWAIT_MUTEX_FAIR);
}

static int wait_for_mutex(void *object)
{
	int err = memwait_mutex_lock(object);

	return err ? err : memwait_mutex_unlock(object);
}

static int wait_for_mutex_async(void *object, memwait_op_t *op)
{
	return memwait_mutex_lock_async(object, op);
}

static int unlock_mutex(void *object)
{
	return memwait_mutex_unlock(object);
}

static int destroy_mutex(void *object)
{
	return memwait_mutex_destroy(object);
}

static int make_read(void *object, unsigned int flags)
{
	int err = memwait_rwlock_init(object, flags);

	return err ? err : memwait_rwlock_rdlock(object);
}

static int make_written(void *object, unsigned int flags)
{
	int err = memwait_rwlock_init(object, flags);

	return err ? err : memwait_rwlock_wrlock(object);
}

static int make_fair_written(void *object, unsigned int flags)
{
	return make_written(object, flags | MEMWAIT_RWLOCK_FAIR);
}

static int wait_to_read(void *object)
{
	int err = memwait_rwlock_rdlock(object);

	return err ? err : memwait_rwlock_unlock(object);
}

static int wait_to_read_async(void *object, memwait_op_t *op)
{
	return memwait_rwlock_rdlock_async(object, op);
}

static int wait_to_write(void *object)
{
	int err = memwait_rwlock_wrlock(object);

	return err ? err : memwait_rwlock_unlock(object);
}

static int wait_to_write_async(void *object, memwait_op_t *op)
{
	return memwait_rwlock_wrlock_async(object, op);
}

static int unlock_rwlock(void *object)
{
	return memwait_rwlock_unlock(object);
}

static int destroy_rwlock(void *object)
{
	return memwait_rwlock_destroy(object);
}

struct monitor {
	memwait_cond_t cond;
	memwait_mutex_t mutex;
	int open;
	int held;	/* by wait_at_a_sign(), which waits when this is 2 */
};

static int make_monitor(void *object, unsigned int flags)
{
	struct monitor *monitor = object;
	int err = memwait_cond_init(&monitor->cond, flags);

	monitor->open = 0;
	return err ? err : memwait_mutex_init(&monitor->mutex, flags);
}

static int wait_in_monitor(void *object)
{
	struct monitor *monitor = object;
	int err = memwait_mutex_lock(&monitor->mutex);

	while (!err && !monitor->open)
		err = memwait_cond_wait(&monitor->cond, &monitor->mutex);
	return err ? err : memwait_mutex_unlock(&monitor->mutex);
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

static int unlock_monitor(void *object)
{
	struct monitor *monitor = object;

	return memwait_mutex_unlock(&monitor->mutex);
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

static int make_sem(void *object, unsigned int flags)
{
	return memwait_sem_init(object, !flags, 0);
}

static int wait_for_sem(void *object)
{
	return memwait_sem_wait(object);
}

static int wait_for_sem_async(void *object, memwait_op_t *op)
{
	return memwait_sem_wait_async(object, op);
}

static int post_twice(void *object)
{
	int err = memwait_sem_post(object);

	return err ? err : memwait_sem_post(object);
}

static int destroy_sem(void *object)
{
	return memwait_sem_destroy(object);
}

static int make_barrier(void *object, unsigned int flags)
{
	return memwait_barrier_init(object, flags, 3);
}

static int wait_at_barrier(void *object)
{
	return memwait_barrier_wait(object);
}

static int wait_at_barrier_async(void *object, memwait_op_t *op)
{
	return memwait_barrier_wait_async(object, op);
}

static int come_last(void *object)
{
	return memwait_barrier_wait(object) - MEMWAIT_BARRIER_SERIAL_THREAD;
}

static int destroy_barrier(void *object)
{
	return memwait_barrier_destroy(object);
}

static int make_group(void *object, unsigned int flags)
{
	return memwait_waitgroup_init(object, flags, 1);
}

static int wait_for_group(void *object)
{
	return memwait_waitgroup_wait(object);
}

static int wait_for_group_async(void *object, memwait_op_t *op)
{
	return memwait_waitgroup_wait_async(object, op);
}

static int group_done(void *object)
{
	return memwait_waitgroup_done(object);
}

static int destroy_group(void *object)
{
	return memwait_waitgroup_destroy(object);
}

static int make_empty(void *object, unsigned int flags)
{
	return memwait_channel_init(object, flags, sizeof(long), 2);
}

static long received[2];

static int wait_to_receive(void *object)
{
	return memwait_channel_recv(object, &received[0]);
}

static int wait_to_receive_async(void *object, memwait_op_t *op)
{
	return memwait_channel_recv_async(object, &received[1], op);
}

static int send_twice(void *object)
{
	const long item = 1;
	int err = memwait_channel_trysend(object, &item);

	return err ? err : memwait_channel_trysend(object, &item);
}

static const long sent;

static int make_full(void *object, unsigned int flags)
{
	int err = memwait_channel_init(object, flags, sizeof(long), 1);

	return err ? err : memwait_channel_trysend(object, &sent);
}

static int wait_to_send(void *object)
{
	return memwait_channel_send(object, &sent);
}

static int wait_to_send_async(void *object, memwait_op_t *op)
{
	return memwait_channel_send_async(object, &sent, op);
}

static int receive(void *object)
{
	long item;

	return memwait_channel_recv(object, &item);
}

static int receive_twice(void *object)
{
	int err = receive(object);

	return err ? err : receive(object);
}

static int close_channel(void *object)
{
	return memwait_channel_close(object);
}

static int was_closed(void *object)
{
	long item;

	return memwait_channel_recv(object, &item) == EPIPE ? 0 : EINVAL;
}

static int was_closed_async(void *object, memwait_op_t *op)
{
	return memwait_channel_recv_async(object, &received[1], op);
}

static int destroy_channel(void *object)
{
	return memwait_channel_destroy(object);
}

static const struct way ways[] = {
	{ "mutex", make_mutex, wait_for_mutex, wait_for_mutex_async, unlock_mutex, unlock_mutex,
	  destroy_mutex },
	{ "fair mutex", make_fair_mutex, wait_for_mutex, wait_for_mutex_async, unlock_mutex,
	  unlock_mutex, destroy_mutex },
	{ "writers", make_read, wait_to_write, wait_to_write_async, unlock_rwlock, unlock_rwlock,
	  destroy_rwlock },
	{ "readers", make_written, wait_to_read, wait_to_read_async, unlock_rwlock, unlock_rwlock,
	  destroy_rwlock },
	{ "fair readers", make_fair_written, wait_to_read, wait_to_read_async, unlock_rwlock,
	  unlock_rwlock, destroy_rwlock },
	{ "signal", make_monitor, wait_in_monitor, wait_in_monitor_async, signal_twice,
	  unlock_monitor, destroy_monitor },
	{ "broadcast", make_monitor, wait_in_monitor, wait_in_monitor_async, broadcast,
	  unlock_monitor, destroy_monitor },
	{ "semaphore", make_sem, wait_for_sem, wait_for_sem_async, post_twice, do_nothing,
	  destroy_sem },
	{ "barrier", make_barrier, wait_at_barrier, wait_at_barrier_async, come_last, do_nothing,
	  destroy_barrier },
	{ "wait group", make_group, wait_for_group, wait_for_group_async, group_done, do_nothing,
	  destroy_group },
	{ "empty channel", make_empty, wait_to_receive, wait_to_receive_async, send_twice,
	  do_nothing, destroy_channel },
	{ "full channel", make_full, wait_to_send, wait_to_send_async, receive_twice, receive,
	  destroy_channel },
	{ "closed channel", make_empty, was_closed, was_closed_async, close_channel, do_nothing,
	  destroy_channel },
};

USERLIB_TEST(R9_who_waits_is_found_by_the_address_alone)
{
	const unsigned int kinds[] = { 0, MEMWAIT_PRIVATE };
	struct counted_op counted = { 0 };
	void *object = self->shared;
	const struct way *way;
	struct runner runner;
	unsigned int flags;
	size_t i;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (i = 0; i < 2 * ARRAY_SIZE(ways); i++) {
		way = &ways[i / 2];
		flags = kinds[i % 2];
		TH_LOG("%s, %s", way->name, flags ? "private" : "shared");
		memset(object, 0, OBJECT_SIZE);
		ASSERT_EQ(0, way->make(object, flags));
		runner_start(&runner, way->wait, object);
		await_waiters_within(self->fd, object, flags, 1);
		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS, way->wait_async(object, &counted.op));
		EXPECT_EQ(2, waiters_within(self->fd, object, flags));
		EXPECT_EQ(0, waiters_within(self->fd, object, flags ^ MEMWAIT_PRIVATE));
		ASSERT_EQ(0, way->let_go(object));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(way->wait == was_closed ? EPIPE : 0, counted.result);
		EXPECT_EQ(0, way->end(object));
		EXPECT_EQ(0, runner_join(&runner));
		EXPECT_EQ(0, way->destroy(object));
	}
}

/* One that has been posted to, or signalled, and is cancelled: it goes on to the one behind. */
USERLIB_TEST(L3_what_was_cancelled_wakes_by_the_address_too)
{
	struct counted_op counted = { 0 };
	struct runner behind, cancelled;
	memwait_sem_t *sem = self->shared;
	int were_cancelled = 0;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	ASSERT_EQ(0, memwait_sem_init(sem, 0, 0));
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &counted.op));
	runner_start(&behind, wait_for_sem, sem);
	await_waiters_within(self->fd, sem, MEMWAIT_PRIVATE, 2);
	ASSERT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, runner_join(&behind));
	EXPECT_EQ(0, counted.calls);

	while (!were_cancelled) {
		runner_start(&cancelled, wait_for_sem, sem);
		await_waiters_within(self->fd, sem, MEMWAIT_PRIVATE, 1);
		runner_start(&behind, wait_for_sem, sem);
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

USERLIB_TEST(L5_a_cancelled_thread_passes_its_signal_on_by_the_address)
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

/* It was signalled, waits for the mutex, and has left the condition variable: that may be gone. */
USERLIB_TEST(L3_a_cancelled_operation_does_not_touch_what_it_has_left)
{
	struct counted_op counted = { 0 };
	memwait_mutex_t *mutex = self->shared;
	memwait_cond_t *cond;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	cond = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, cond);
	ASSERT_EQ(0, memwait_cond_init(cond, MEMWAIT_PRIVATE));
	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_PRIVATE));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(EINPROGRESS, memwait_cond_wait_async(cond, mutex, &counted.op));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(0, memwait_cond_signal(cond));
	ASSERT_EQ(0, memwait_loop_dispatch(self->loop));
	await_waiters(self->fd, mutex, U32_SIZE | MEMWAIT_PRIVATE, 1);
	ASSERT_EQ(0, memwait_cond_destroy(cond));
	ASSERT_EQ(0, munmap(cond, 4096));
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, memwait_mutex_destroy(mutex));
}

/* A thread that has been woken does not return from its wait while this is set. */
static int hold;

static int intercept(int fd, unsigned long request, void *argument)
{
	int ret = ioctl_of_kernel(fd, request, argument);

	while (request == MEMWAIT_IOC_WAIT && __atomic_load_n(&hold, __ATOMIC_ACQUIRE))
		before_next_look();
	return ret;
}

/* Those on their way out wake the one who destroys by the address, however long they take. */
USERLIB_TEST(L8_destroy_is_woken_by_the_address)
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
		runner_start(&waiter, i ? wait_at_barrier : wait_in_monitor, object);
		while (waiters_within(self->fd, object, MEMWAIT_PRIVATE) != 1)
			before_next_look();
		__atomic_store_n(&hold, 1, __ATOMIC_RELEASE);
		ASSERT_EQ(0, i ? come_last(object) : signal_twice(object));
		runner_start(&destroyer, i ? destroy_barrier : destroy_cond, object);
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

static int wait_at_a_sign(void *object)
{
	struct monitor *monitor = object;
	int err = memwait_mutex_lock(&monitor->mutex);

	__atomic_store_n(&monitor->held, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&monitor->held, __ATOMIC_ACQUIRE) != 2)
		before_next_look();
	while (!err && !monitor->open)
		err = memwait_cond_wait(&monitor->cond, &monitor->mutex);
	return err ? err : memwait_mutex_unlock(&monitor->mutex);
}

USERLIB_TEST(a_condition_variable_and_its_mutex_need_not_agree)
{
	struct monitor *monitor = self->shared;
	struct runner waiters[WAITERS], holder, opener;
	struct counted_op counted = { 0 };
	unsigned int cond, mutex;
	int i, n;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
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

		/* Its wait lets the one go on that sleeps on the mutex, and is to open. */
		runner_start(&holder, wait_at_a_sign, monitor);
		while (!__atomic_load_n(&monitor->held, __ATOMIC_ACQUIRE))
			before_next_look();
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

/* All are moved to the mutex, and whoever destroys takes them out of there again. */
USERLIB_TEST(broadcast_moves_by_the_address)
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
			/* Nobody has it then: somebody must be woken all the same. */
			ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
			ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
		} else {
			ASSERT_EQ(0, memwait_cond_broadcast(&monitor->cond));
			EXPECT_EQ(0, mw_waiters(self->fd, &monitor->cond, size | MEMWAIT_PRIVATE));
			EXPECT_EQ(WAITERS,
				  mw_waiters(self->fd, &monitor->mutex, size | MEMWAIT_PRIVATE));
			EXPECT_EQ(0, mw_waiters(self->fd, &monitor->mutex, size));
			EXPECT_EQ(0, destroy_cond(monitor));
			ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		}
		for (i = 0; i < WAITERS; i++)
			EXPECT_EQ(0, runner_join(&waiters[i]));
		EXPECT_EQ(0, destroy_monitor(monitor));
	}
}

USERLIB_TEST(no_other_flag_is_one)
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
		EXPECT_EQ(EINVAL, memwait_channel_init(object, bad[i], 1, 1));
	}
	EXPECT_EQ(EINVAL, memwait_mutex_init(object, MEMWAIT_RWLOCK_PREFER_WRITER));
	EXPECT_EQ(EINVAL, memwait_rwlock_init(object, MEMWAIT_RWLOCK_PREFER_WRITER |
						      MEMWAIT_RWLOCK_FAIR));
}

TEST_HARNESS_MAIN
