// SPDX-License-Identifier: GPL-2.0
/*
 * L11: who gets ETIMEDOUT has looked once more. An operation stands first in line, is woken for
 * what there is, and its loop does not run. Whoever stands behind it gets that at its deadline.
 */
#include "userlib_test.h"

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
	long got;

	return memwait_channel_clockrecv(object, &got, CLOCK_MONOTONIC, time);
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
	long got;

	return memwait_channel_recv(object, &got);
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

/* The first in line, whose loop does not run, and a thread or an operation behind it. */
struct late {
	const struct thing *thing;
	void *object;
	struct timespec time;
	struct counted_op first;
	struct runner thread;
	struct counted_op op;
	memwait_loop_t *loop;	/* of op */
	int begun;		/* what the operation returned */
};

/* For each object; the fixture has 16 of these. */
#define ROOM		4096

/* Gives back what it has got, as all but items and units are. */
static int leave(struct late *late, int result)
{
	const struct way *way = late->thing->way;

	return result || !way->give_back ? result : way->give_back(late->object);
}

static int wait_until_late(void *arg)
{
	struct late *late = arg;

	return leave(late, late->thing->way->wait(late->object, &late->time));
}

static int sleepers(const struct late *late)
{
	return memwait_waiters((char *)late->object + late->thing->word,
			       late->thing->kind & MEMWAIT_PRIVATE);
}

/* Returns when it sleeps, or has come too late for that. */
static void thread_begins(struct late *late)
{
	runner_start(&late->thread, wait_until_late, late);
	while (sleepers(late) < 2 && !runner_is_done(&late->thread))
		before_next_look();
}

static int thread_ends(struct late *late)
{
	return runner_join(&late->thread);
}

static void op_begins(struct late *late)
{
	memwait_op_init(&late->op.op, late->loop, count_call, &late->op);
	late->op.calls = 0;
	late->begun = late->thing->way->wait_async(late->object, &late->time, &late->op.op);
}

static int op_ends(struct late *late)
{
	int err;

	if (late->begun != EINPROGRESS)
		return late->begun;
	err = dispatch_until(late->loop, &late->op.calls, 1);
	return leave(late, err ? err : late->op.result);
}

/* One after the other they begin; then all their deadlines pass, and they must have got it. */
static void check_late(struct __test_metadata *_metadata, memwait_loop_t *first,
		       memwait_loop_t *other, char *objects, void (*begin)(struct late *late),
		       int (*end)(struct late *late))
{
	struct late *lates = calloc(ARRAY_SIZE(things), sizeof(*lates));
	bool in_time;
	size_t i;
	long ms;

	for (i = 0; i < ARRAY_SIZE(things); i++) {
		const struct way *way = things[i].way;
		struct late *late = &lates[i];

		late->thing = &things[i];
		late->object = objects + i * ROOM;
		late->loop = other;
		memwait_op_init(&late->first.op, first, count_call, &late->first);
		/* Again, with a later one, until it is given before the deadline of who waits. */
		for (ms = 100, in_time = false; !in_time; ms *= 2) {
			uint64_t deadline = in_ms(ms);

			late->time.tv_sec = deadline / NSEC_PER_SEC;
			late->time.tv_nsec = deadline % NSEC_PER_SEC;
			ASSERT_EQ(0, way->set_up(late->object, late->thing->kind));
			ASSERT_EQ(EINPROGRESS, way->begin(late->object, &late->first.op));
			begin(late);
			ASSERT_EQ(0, way->give(late->object));
			in_time = in_ms(0) < deadline;
			if (!in_time) {
				end(late);
				ASSERT_EQ(0, memwait_op_cancel(&late->first.op));
			}
		}
	}
	for (i = 0; i < ARRAY_SIZE(things); i++) {
		struct late *late = &lates[i];

		EXPECT_EQ(0, end(late)) {
			TH_LOG("%s", late->thing->name);
		}
		EXPECT_EQ(0, memwait_op_cancel(&late->first.op));
		EXPECT_EQ(0, late->thing->way->destroy(late->object));
		EXPECT_EQ(0, late->first.calls);
	}
	free(lates);
}

USERLIB_TEST(L11_a_thread_behind_a_loop_that_does_not_run)
{
	check_late(_metadata, self->loop, NULL, self->shared, thread_begins, thread_ends);
}

USERLIB_TEST(L11_an_operation_behind_a_loop_that_does_not_run)
{
	memwait_loop_t *other;

	ASSERT_EQ(0, memwait_loop_new(&other));
	check_late(_metadata, self->loop, other, self->shared, op_begins, op_ends);
	EXPECT_EQ(0, memwait_loop_free(other));
}

TEST_HARNESS_MAIN
