// SPDX-License-Identifier: GPL-2.0
/*
 * L11: a waiter tries once more before it returns ETIMEDOUT. The first waiter in the queue is an
 * operation, which is woken but whose loop is not running. The waiter behind it gets the object
 * when its own deadline has passed.
 */
#include "objects_test.h"

/*
 * Whether another waiter can acquire the object while the first waiter is woken and does not run.
 */
static bool can_pass(const struct object *object)
{
	return maker_can_wait(object) && (!dead_excludes(object) || object->way->together);
}

/* The first waiter, whose loop is not running, and behind it a thread or an operation. */
struct late {
	const struct object *object;
	void *memory;
	struct timespec time;
	struct counted_op first;
	struct visitor thread;
	struct counted_op op;
	memwait_loop_t *loop;	/* of op */
	int begun;		/* result of beginning the operation */
};

/*
 * The first waiter waits in the opposite way. However, a FAIR lock is handed over to a reader, so
 * only another reader can acquire it.
 */
static int first_begins(struct late *late)
{
	const struct way *way = late->object->way;

	if (way->opposite && !is_handed_over(late->object))
		way = way->opposite;
	return way->wait_async(late->memory, &late->first.op);
}

/*
 * Starts the thread. Returns when the thread sleeps, or when its deadline passed before it could
 * sleep.
 */
static void thread_begins(struct late *late)
{
	const struct way *way = late->object->way;

	visitor_start_until(&late->thread, way, late->memory, CLOCK_MONOTONIC, &late->time);
	while (sleepers(way, late->memory, late->object->kind) < 2 &&
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
	late->begun = late->object->way->wait_until_async(late->memory, CLOCK_MONOTONIC,
							 &late->time, &late->op.op);
}

static int op_ends(struct late *late)
{
	int err;

	if (late->begun != EINPROGRESS)
		return late->begun;
	err = dispatch_until(late->loop, &late->op.calls, 1);
	return leave(late->object->way, late->memory, err ? err : late->op.result);
}

/*
 * All waiters begin, one after another. Then all their deadlines pass, and each waiter must have
 * acquired its object.
 */
static void check_late(struct __test_metadata *_metadata, memwait_loop_t *first,
		       memwait_loop_t *other, char *memory, void (*begin)(struct late *late),
		       int (*end)(struct late *late))
{
	struct late *lates = calloc(ARRAY_SIZE(objects), sizeof(*lates));
	bool in_time;
	size_t i;
	long ms;

	for (i = 0; i < ARRAY_SIZE(objects); i++) {
		const struct way *way = objects[i].way;
		struct late *late = &lates[i];

		if (!can_pass(&objects[i]))
			continue;
		late->object = &objects[i];
		late->memory = memory + i * OBJECT_SIZE;
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
			ASSERT_EQ(0, way->make(late->memory, late->object->kind));
			ASSERT_EQ(EINPROGRESS, first_begins(late));
			begin(late);
			ASSERT_EQ(0, way->give(late->memory));
			in_time = in_ms(0) < deadline;
			if (!in_time) {
				end(late);
				ASSERT_EQ(0, memwait_op_cancel(&late->first.op));
			}
		}
	}
	for (i = 0; i < ARRAY_SIZE(objects); i++) {
		struct late *late = &lates[i];

		if (!late->object)
			continue;
		EXPECT_EQ(0, end(late)) {
			TH_LOG("%s", late->object->name);
		}
		EXPECT_EQ(0, memwait_op_cancel(&late->first.op));
		EXPECT_EQ(0, late->object->way->destroy(late->memory));
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
