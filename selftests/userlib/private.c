// SPDX-License-Identifier: GPL-2.0
/*
 * Private objects, whose waiters are found by address, without a lookup of the mapping. In shared
 * memory, private and shared waits are in different queues. If a call ignored that the object is
 * private, it would find no waiter, and a waiter would sleep forever.
 */
#include "objects_test.h"
#include "ioctl_test.h"

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

static int wait_for_condition(void *condition)
{
	return condition_wait(condition) ?: condition_give_back(condition);
}

static int signal_twice(void *object)
{
	struct condition *condition = object;
	int err = memwait_mutex_lock(&condition->mutex);

	condition->met = 1;
	err = err ? err : memwait_cond_signal(&condition->cond);
	err = err ? err : memwait_cond_notify(&condition->cond, 1);
	return err ? err : memwait_mutex_unlock(&condition->mutex);
}

static int broadcast(void *object)
{
	struct condition *condition = object;
	int err = memwait_mutex_lock(&condition->mutex);

	condition->met = 1;
	err = err ? err : memwait_cond_broadcast(&condition->cond);
	return err ? err : memwait_mutex_unlock(&condition->mutex);
}

static int destroy_cond(void *object)
{
	struct condition *condition = object;

	return memwait_cond_destroy(&condition->cond);
}

static const struct way signal_way = {
	.make		= condition_make,
	.wait		= condition_wait,
	.wait_async	= condition_wait_async,
	.give		= signal_twice,
	.give_back	= condition_give_back,
	.destroy	= condition_destroy,
	.lets_all_go	= true,
};

static const struct way broadcast_way = {
	.make		= condition_make,
	.wait		= condition_wait,
	.wait_async	= condition_wait_async,
	.give		= broadcast,
	.give_back	= condition_give_back,
	.destroy	= condition_destroy,
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

static const struct way closed_way = {
	.make		= make_empty,
	.wait		= receive_end,
	.wait_async	= receive_async,
	.give		= CALL(memwait_channel_close),
	.destroy	= CALL(memwait_channel_destroy),
	.lets_all_go	= true,
};

/* More ways to let waiters continue. */
static const struct object others[] = {
	OBJECT_INIT(signal, signal_way, 0)
	OBJECT_INIT(broadcast, broadcast_way, 0)
	OBJECT_INIT(last_at_barrier, last_at_barrier_way, 0)
	OBJECT_INIT(closed_channel, closed_way, 0)
};

USERLIB_TEST(R9_waiters_are_found_by_address_alone)
{
	const unsigned int kinds[] = { 0, MEMWAIT_PRIVATE };
	struct counted_op counted = counted_by(&counted, self->loop);
	const size_t n = ARRAY_SIZE(objects);
	void *object = self->shared;
	struct visitor visitor;
	unsigned int flags;
	size_t i;

	for (i = 0; i < 2 * (n + ARRAY_SIZE(others)); i++) {
		const struct object *it = i / 2 < n ? &objects[i / 2] : &others[i / 2 - n];
		const struct way *way = it->way;

		if (is_private(it) || !maker_can_wait(it))
			continue;
		flags = kinds[i % 2];
		TH_LOG("%s, %s", it->name, flags ? "private" : "shared");
		memset(object, 0, OBJECT_SIZE);
		ASSERT_EQ(0, way->make(object, it->kind | flags));
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

static int wait_for_condition_to_be_cancelled(void *object)
{
	struct condition *condition = object;
	int err = memwait_mutex_lock(&condition->mutex);

	pthread_cleanup_push(unlock_when_cancelled, &condition->mutex);
	while (!err && !condition->met)
		err = memwait_cond_wait(&condition->cond, &condition->mutex);
	pthread_cleanup_pop(1);
	return err;
}

USERLIB_TEST(L5_a_cancelled_thread_passes_its_signal_on_by_address)
{
	struct condition *condition = self->shared;
	struct runner cancelled, behind;
	int were_cancelled = 0;

	while (!were_cancelled) {
		ASSERT_EQ(0, condition_make(condition, MEMWAIT_PRIVATE));
		runner_start(&cancelled, wait_for_condition_to_be_cancelled, condition);
		await_waiters(self->fd, &condition->cond, U32_SIZE | MEMWAIT_PRIVATE, 1);
		runner_start(&behind, wait_for_condition, condition);
		await_waiters(self->fd, &condition->cond, U32_SIZE | MEMWAIT_PRIVATE, 2);
		ASSERT_EQ(0, memwait_mutex_lock(&condition->mutex));
		condition->met = 1;
		ASSERT_EQ(0, memwait_mutex_unlock(&condition->mutex));
		ASSERT_EQ(0, pthread_cancel(cancelled.thread));
		ASSERT_EQ(0, memwait_cond_signal(&condition->cond));
		pthread_join(cancelled.thread, NULL);
		were_cancelled = !cancelled.done;
		if (cancelled.done) {
			ASSERT_EQ(0, memwait_cond_signal(&condition->cond));
		}
		EXPECT_EQ(0, runner_join(&behind));
		EXPECT_EQ(0, condition_destroy(condition));
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
			ASSERT_EQ(0, condition_make(object, MEMWAIT_PRIVATE));
		}
		runner_start(&waiter, i ? CALL(memwait_barrier_wait) : wait_for_condition, object);
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

/* Set by wait_when_held(), which waits when it is 2. */
static int held;

static int wait_when_held(void *object)
{
	struct condition *condition = object;
	int err = memwait_mutex_lock(&condition->mutex);

	__atomic_store_n(&held, 1, __ATOMIC_RELEASE);
	spin_until(__atomic_load_n(&held, __ATOMIC_ACQUIRE) == 2);
	while (!err && !condition->met)
		err = memwait_cond_wait(&condition->cond, &condition->mutex);
	return err ? err : memwait_mutex_unlock(&condition->mutex);
}

USERLIB_TEST(R9_a_condition_variable_and_its_mutex_need_not_agree)
{
	struct condition *condition = self->shared;
	struct runner waiters[WAITERS], holder, opener;
	struct counted_op counted = counted_by(&counted, self->loop);
	unsigned int cond, mutex;
	int i, n;

	for (i = 0; i < 4; i++) {
		cond = i & 1 ? MEMWAIT_PRIVATE : 0;
		mutex = i & 2 ? MEMWAIT_PRIVATE : 0;
		TH_LOG("condition variable %s, mutex %s", cond ? "private" : "shared",
		       mutex ? "private" : "shared");
		memset(condition, 0, sizeof(*condition));
		held = 0;
		ASSERT_EQ(0, memwait_cond_init(&condition->cond, cond));
		ASSERT_EQ(0, memwait_mutex_init(&condition->mutex, mutex));
		for (n = 0; n < WAITERS; n++)
			runner_start(&waiters[n], wait_for_condition, condition);
		await_waiters(self->fd, &condition->cond, U32_SIZE | cond, WAITERS);
		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS, condition_wait_async(condition, &counted.op));

		/*
		 * The holder's wait unlocks the mutex for the thread that sleeps on the mutex and
		 * will broadcast.
		 */
		runner_start(&holder, wait_when_held, condition);
		spin_until(__atomic_load_n(&held, __ATOMIC_ACQUIRE));
		runner_start(&opener, broadcast, condition);
		await_waiters(self->fd, &condition->mutex, U32_SIZE | mutex, 1);
		__atomic_store_n(&held, 2, __ATOMIC_RELEASE);

		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		EXPECT_EQ(0, memwait_mutex_unlock(&condition->mutex));
		for (n = 0; n < WAITERS; n++)
			EXPECT_EQ(0, runner_join(&waiters[n]));
		EXPECT_EQ(0, runner_join(&holder));
		EXPECT_EQ(0, runner_join(&opener));
		EXPECT_EQ(0, condition_destroy(condition));
	}
}

USERLIB_TEST(R9_broadcast_wakes_by_address)
{
	struct condition *condition = self->shared;
	struct runner waiters[WAITERS];
	uint32_t size = U32_SIZE;
	int round, i;

	for (round = 0; round < 2; round++) {
		ASSERT_EQ(0, condition_make(condition, MEMWAIT_PRIVATE));
		for (i = 0; i < WAITERS; i++)
			runner_start(&waiters[i], wait_for_condition, condition);
		await_waiters(self->fd, &condition->cond, size | MEMWAIT_PRIVATE, WAITERS);
		ASSERT_EQ(0, memwait_mutex_lock(&condition->mutex));
		condition->met = 1;
		if (round) {
			ASSERT_EQ(0, memwait_mutex_unlock(&condition->mutex));
			ASSERT_EQ(0, memwait_cond_broadcast(&condition->cond));
		} else {
			ASSERT_EQ(0, memwait_cond_broadcast(&condition->cond));
			EXPECT_EQ(0, mw_waiters(self->fd, &condition->cond,
						size | MEMWAIT_PRIVATE));
			await_waiters(self->fd, &condition->mutex, size | MEMWAIT_PRIVATE, WAITERS);
			EXPECT_EQ(0, mw_waiters(self->fd, &condition->mutex, size));
			EXPECT_EQ(0, destroy_cond(condition));
			ASSERT_EQ(0, memwait_mutex_unlock(&condition->mutex));
		}
		for (i = 0; i < WAITERS; i++)
			EXPECT_EQ(0, runner_join(&waiters[i]));
		EXPECT_EQ(0, condition_destroy(condition));
	}
}

USERLIB_TEST(R2_unknown_flags_are_rejected)
{
	const unsigned int bad[] = { 0x20, 0x40, 0x100, MEMWAIT_PRIVATE | 0x200, ~0U };
	const struct object *object;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		for_each_object(object, true)
			EXPECT_EQ(EINVAL, object->way->make(self->shared, bad[i]));
		EXPECT_EQ(EINVAL, memwait_cond_init(self->shared, bad[i]));
	}
	EXPECT_EQ(EINVAL, memwait_mutex_init(self->shared, MEMWAIT_RWLOCK_PREFER_WRITER));
	EXPECT_EQ(EINVAL, memwait_rwlock_init(self->shared, MEMWAIT_RWLOCK_PREFER_WRITER |
						      MEMWAIT_RWLOCK_FAIR));
}

TEST_HARNESS_MAIN
