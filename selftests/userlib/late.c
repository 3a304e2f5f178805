// SPDX-License-Identifier: GPL-2.0
/*
 * L11: who gets ETIMEDOUT has looked once more. An operation stands first in line, is woken for
 * what there is, and its loop does not run. Whoever stands behind it gets that at its deadline.
 */
#include "userlib_test.h"

/* How long those behind wait: long enough that they sleep before. */
#define WAIT_MS		(getenv("MEMWAIT_LOADS") ? 5000 : 1000)

/* How something is to be had that is not there at first. */
struct way {
	int (*set_up)(void *object, unsigned int kind);
	int (*begin)(void *object, memwait_op_t *op);	/* an operation, without a deadline */
	int (*wait)(void *object, const struct timespec *time);
	int (*wait_async)(void *object, const struct timespec *time, memwait_op_t *op);
	int (*give)(void *object);
	int (*give_back)(void *object);			/* by whoever has got it; or NULL */
	int (*destroy)(void *object);
};

static int set_up_sem(void *object, unsigned int kind)
{
	return memwait_sem_init(object, !(kind & MEMWAIT_PRIVATE), 0);
}

static int begin_sem(void *object, memwait_op_t *op)
{
	return memwait_sem_wait_async(object, op);
}

static int wait_sem(void *object, const struct timespec *time)
{
	return memwait_sem_clockwait(object, CLOCK_MONOTONIC, time);
}

static int wait_sem_async(void *object, const struct timespec *time, memwait_op_t *op)
{
	return memwait_sem_clockwait_async(object, CLOCK_MONOTONIC, time, op);
}

static int post_sem(void *object)
{
	return memwait_sem_post(object);
}

static int destroy_sem(void *object)
{
	return memwait_sem_destroy(object);
}

static int set_up_mutex(void *object, unsigned int kind)
{
	int err = memwait_mutex_init(object, kind);

	return err ? err : memwait_mutex_lock(object);
}

static int begin_mutex(void *object, memwait_op_t *op)
{
	return memwait_mutex_lock_async(object, op);
}

static int wait_mutex(void *object, const struct timespec *time)
{
	return memwait_mutex_clocklock(object, CLOCK_MONOTONIC, time);
}

static int wait_mutex_async(void *object, const struct timespec *time, memwait_op_t *op)
{
	return memwait_mutex_clocklock_async(object, CLOCK_MONOTONIC, time, op);
}

static int unlock_mutex(void *object)
{
	return memwait_mutex_unlock(object);
}

static int destroy_mutex(void *object)
{
	return memwait_mutex_destroy(object);
}

static int set_up_rwlock(void *object, unsigned int kind)
{
	int err = memwait_rwlock_init(object, kind);

	return err ? err : memwait_rwlock_wrlock(object);
}

static int begin_read(void *object, memwait_op_t *op)
{
	return memwait_rwlock_rdlock_async(object, op);
}

static int begin_write(void *object, memwait_op_t *op)
{
	return memwait_rwlock_wrlock_async(object, op);
}

static int wait_read(void *object, const struct timespec *time)
{
	return memwait_rwlock_clockrdlock(object, CLOCK_MONOTONIC, time);
}

static int wait_read_async(void *object, const struct timespec *time, memwait_op_t *op)
{
	return memwait_rwlock_clockrdlock_async(object, CLOCK_MONOTONIC, time, op);
}

static int wait_write(void *object, const struct timespec *time)
{
	return memwait_rwlock_clockwrlock(object, CLOCK_MONOTONIC, time);
}

static int wait_write_async(void *object, const struct timespec *time, memwait_op_t *op)
{
	return memwait_rwlock_clockwrlock_async(object, CLOCK_MONOTONIC, time, op);
}

static int unlock_rwlock(void *object)
{
	return memwait_rwlock_unlock(object);
}

static int destroy_rwlock(void *object)
{
	return memwait_rwlock_destroy(object);
}

static long item, received[2];

static int set_up_empty(void *object, unsigned int kind)
{
	return memwait_channel_init(object, kind, sizeof(item), 1);
}

static int set_up_full(void *object, unsigned int kind)
{
	int err = set_up_empty(object, kind);

	return err ? err : memwait_channel_send(object, &item);
}

static int begin_recv(void *object, memwait_op_t *op)
{
	return memwait_channel_recv_async(object, &received[0], op);
}

static int wait_recv(void *object, const struct timespec *time)
{
	return memwait_channel_clockrecv(object, &received[1], CLOCK_MONOTONIC, time);
}

static int wait_recv_async(void *object, const struct timespec *time, memwait_op_t *op)
{
	return memwait_channel_clockrecv_async(object, &received[1], CLOCK_MONOTONIC, time, op);
}

static int send_one(void *object)
{
	return memwait_channel_send(object, &item);
}

static int begin_send(void *object, memwait_op_t *op)
{
	return memwait_channel_send_async(object, &item, op);
}

static int wait_send(void *object, const struct timespec *time)
{
	return memwait_channel_clocksend(object, &item, CLOCK_MONOTONIC, time);
}

static int wait_send_async(void *object, const struct timespec *time, memwait_op_t *op)
{
	return memwait_channel_clocksend_async(object, &item, CLOCK_MONOTONIC, time, op);
}

static int recv_one(void *object)
{
	return memwait_channel_recv(object, &received[1]);
}

static int destroy_channel(void *object)
{
	return memwait_channel_destroy(object);
}

static const struct way sem_way = {
	set_up_sem, begin_sem, wait_sem, wait_sem_async, post_sem, NULL, destroy_sem,
};

static const struct way mutex_way = {
	set_up_mutex, begin_mutex, wait_mutex, wait_mutex_async, unlock_mutex, unlock_mutex,
	destroy_mutex,
};

static const struct way read_way = {
	set_up_rwlock, begin_write, wait_read, wait_read_async, unlock_rwlock, unlock_rwlock,
	destroy_rwlock,
};

/* It is handed over to a reader, so that there is something to be had for readers only. */
static const struct way read_too = {
	set_up_rwlock, begin_read, wait_read, wait_read_async, unlock_rwlock, unlock_rwlock,
	destroy_rwlock,
};

static const struct way write_way = {
	set_up_rwlock, begin_read, wait_write, wait_write_async, unlock_rwlock, unlock_rwlock,
	destroy_rwlock,
};

static const struct way recv_way = {
	set_up_empty, begin_recv, wait_recv, wait_recv_async, send_one, NULL, destroy_channel,
};

static const struct way send_way = {
	set_up_full, begin_send, wait_send, wait_send_async, recv_one, NULL, destroy_channel,
};

static const struct thing {
	const char *name;
	const struct way *way;
	unsigned int kind;
	size_t word;		/* where they sleep */
} things[] = {
	{ "semaphore", &sem_way, 0, 0 },
	{ "private semaphore", &sem_way, MEMWAIT_PRIVATE, 0 },
	{ "mutex", &mutex_way, 0, 0 },
	{ "private mutex", &mutex_way, MEMWAIT_PRIVATE, 0 },
	{ "robust mutex", &mutex_way, MEMWAIT_MUTEX_ROBUST, 0 },
	{ "rwlock, a reader", &read_way, 0, 0 },
	{ "rwlock, a writer", &write_way, 0, 0 },
	{ "private rwlock, a writer", &write_way, MEMWAIT_PRIVATE, 0 },
	{ "fair rwlock, a reader", &read_too, MEMWAIT_RWLOCK_FAIR, 0 },
	{ "robust rwlock, a reader", &read_way, MEMWAIT_RWLOCK_ROBUST, 0 },
	{ "robust rwlock, a writer", &write_way, MEMWAIT_RWLOCK_ROBUST, 0 },
	/* Receivers sleep on the second word of the senders' cache line, and senders likewise. */
	{ "channel, a receiver", &recv_way, 0, 64 + 8 },
	{ "channel, a sender", &send_way, 0, 128 + 8 },
	{ "private channel, a receiver", &recv_way, MEMWAIT_PRIVATE, 64 + 8 },
	{ "private channel, a sender", &send_way, MEMWAIT_PRIVATE, 128 + 8 },
};

struct late {
	const struct thing *thing;
	void *object;
	struct timespec time;
};

static int wait_until_late(void *arg)
{
	struct late *late = arg;
	const struct way *way = late->thing->way;
	int ret = way->wait(late->object, &late->time);

	return ret || !way->give_back ? ret : way->give_back(late->object);
}

static int sleepers(const struct late *late)
{
	return memwait_waiters((char *)late->object + late->thing->word,
			       late->thing->kind & MEMWAIT_PRIVATE);
}

USERLIB_TEST(L11_a_thread_behind_a_loop_that_does_not_run)
{
	struct counted_op first = { 0 };
	struct runner behind;
	size_t i;

	memwait_op_init(&first.op, self->loop, count_call, &first);
	for (i = 0; i < ARRAY_SIZE(things); i++) {
		struct late late = { &things[i], self->shared, in_time(CLOCK_MONOTONIC, WAIT_MS) };

		ASSERT_EQ(0, late.thing->way->set_up(late.object, late.thing->kind));
		ASSERT_EQ(EINPROGRESS, late.thing->way->begin(late.object, &first.op));
		runner_start(&behind, wait_until_late, &late);
		while (sleepers(&late) < 2 && !runner_is_done(&behind))
			sched_yield();
		ASSERT_EQ(0, late.thing->way->give(late.object));
		EXPECT_EQ(0, runner_join(&behind)) {
			TH_LOG("%s", late.thing->name);
		}
		EXPECT_EQ(0, memwait_op_cancel(&first.op));
		EXPECT_EQ(0, late.thing->way->destroy(late.object));
	}
	EXPECT_EQ(0, first.calls);
}

USERLIB_TEST(L11_an_operation_behind_a_loop_that_does_not_run)
{
	struct counted_op first = { 0 }, behind = { 0 };
	memwait_loop_t *other;
	size_t i;

	ASSERT_EQ(0, memwait_loop_new(&other));
	memwait_op_init(&first.op, self->loop, count_call, &first);
	memwait_op_init(&behind.op, other, count_call, &behind);
	for (i = 0; i < ARRAY_SIZE(things); i++) {
		struct late late = { &things[i], self->shared, in_time(CLOCK_MONOTONIC, 50) };
		int ret;

		behind.calls = 0;
		ASSERT_EQ(0, late.thing->way->set_up(late.object, late.thing->kind));
		ASSERT_EQ(EINPROGRESS, late.thing->way->begin(late.object, &first.op));
		ret = late.thing->way->wait_async(late.object, &late.time, &behind.op);
		ASSERT_EQ(EINPROGRESS, ret);
		ASSERT_EQ(0, late.thing->way->give(late.object));
		ASSERT_EQ(0, dispatch_until(other, &behind.calls, 1));
		EXPECT_EQ(0, behind.result) {
			TH_LOG("%s", late.thing->name);
		}
		if (!behind.result && late.thing->way->give_back) {
			EXPECT_EQ(0, late.thing->way->give_back(late.object));
		}
		EXPECT_EQ(0, memwait_op_cancel(&first.op));
		EXPECT_EQ(0, late.thing->way->destroy(late.object));
	}
	EXPECT_EQ(0, first.calls);
	EXPECT_EQ(0, memwait_loop_free(other));
}

TEST_HARNESS_MAIN
