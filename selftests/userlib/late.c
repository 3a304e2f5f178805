// SPDX-License-Identifier: GPL-2.0
/*
 * L11: a waiter tries once more before it returns ETIMEDOUT. The first waiter in the queue is an
 * operation, which is woken but whose loop is not running. The waiter behind it gets the object
 * when its own deadline has passed.
 */
#include "objects_test.h"

/*
 * How the waiter acquires an object that is not available at first, and how the first waiter in the
 * queue waits for the object.
 */
static const struct thing {
	const char *name;
	const struct way *way, *first;
	unsigned int kind;
} things[] = {
	{ "semaphore", &sem_way, &sem_way, 0 },
	{ "private semaphore", &sem_way, &sem_way, MEMWAIT_PRIVATE },
	{ "mutex", &mutex_way, &mutex_way, 0 },
	{ "private mutex", &mutex_way, &mutex_way, MEMWAIT_PRIVATE },
	{ "robust mutex", &mutex_way, &mutex_way, MEMWAIT_MUTEX_ROBUST },
	{ "rwlock, a reader", &read_way, &write_way, 0 },
	{ "rwlock, a writer", &write_way, &read_way, 0 },
	{ "private rwlock, a writer", &write_way, &read_way, MEMWAIT_PRIVATE },
	/* The lock is handed over to a reader, so only another reader can acquire it. */
	{ "fair rwlock, a reader", &read_way, &read_way, MEMWAIT_RWLOCK_FAIR },
	{ "robust rwlock, a reader", &read_way, &write_way, MEMWAIT_RWLOCK_ROBUST },
	{ "robust rwlock, a writer", &write_way, &read_way, MEMWAIT_RWLOCK_ROBUST },
	{ "channel, a receiver", &receive_way, &receive_way, 0 },
	{ "channel, a sender", &send_way, &send_way, 0 },
	{ "private channel, a receiver", &receive_way, &receive_way, MEMWAIT_PRIVATE },
	{ "private channel, a sender", &send_way, &send_way, MEMWAIT_PRIVATE },
};

/* The first waiter, whose loop is not running, and behind it a thread or an operation. */
struct late {
	const struct thing *thing;
	void *object;
	struct timespec time;
	struct counted_op first;
	struct visitor thread;
	struct counted_op op;
	memwait_loop_t *loop;	/* of op */
	int begun;		/* result of beginning the operation */
};

/* The size for each object. The fixture's memory is 16 times as large. */
#define ROOM		4096

/*
 * Starts the thread. Returns when the thread sleeps, or when its deadline passed before it could
 * sleep.
 */
static void thread_begins(struct late *late)
{
	const struct way *way = late->thing->way;

	visitor_start_until(&late->thread, way, late->object, CLOCK_MONOTONIC, &late->time);
	while (sleepers(way, late->object, late->thing->kind) < 2 &&
	       !runner_is_done(&late->thread.runner))
		before_next_look();
}

static int thread_ends(struct late *late)
{
	return visitor_join(&late->thread);
}

static void op_begins(struct late *late)
{
	memwait_op_init(&late->op.op, late->loop, count_call, &late->op);
	late->op.calls = 0;
	late->begun = late->thing->way->wait_until_async(late->object, CLOCK_MONOTONIC,
							 &late->time, &late->op.op);
}

static int op_ends(struct late *late)
{
	int err;

	if (late->begun != EINPROGRESS)
		return late->begun;
	err = dispatch_until(late->loop, &late->op.calls, 1);
	return leave(late->thing->way, late->object, err ? err : late->op.result);
}

/*
 * All waiters begin, one after another. Then all their deadlines pass, and each waiter must have
 * acquired its object.
 */
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
		/*
		 * Repeat with a later deadline until the object becomes available before the
		 * waiter's deadline.
		 */
		for (ms = 100, in_time = false; !in_time; ms *= 2) {
			uint64_t deadline = in_ms(ms);

			late->time.tv_sec = deadline / NSEC_PER_SEC;
			late->time.tv_nsec = deadline % NSEC_PER_SEC;
			ASSERT_EQ(0, way->make(late->object, late->thing->kind));
			ASSERT_EQ(EINPROGRESS, late->thing->first->wait_async(late->object,
									      &late->first.op));
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

	ASSERT_EQ(0, memwait_loop_new(&other, 0));
	check_late(_metadata, self->loop, other, self->shared, op_begins, op_ends);
	EXPECT_EQ(0, memwait_loop_close(other));
}

TEST_HARNESS_MAIN
