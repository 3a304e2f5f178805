// SPDX-License-Identifier: GPL-2.0
/*
 * L14: a late notify, sent by an earlier user of the memory, can only wake a waiter unnecessarily.
 * It hands over no lock, and does not make the library access memory of other objects.
 */
#include "death_test.h"
#include "ioctl_test.h"
#include "objects_test.h"

#define ROOM	1024		/* for one object */
#define ALL	0xff		/* value of all bytes after the object is gone */

/*
 * Sends late notifies on each byte, or on each word that an earlier object may have had in this
 * memory.
 */
static int notify_words(const void *object, unsigned int kind, size_t step)
{
	unsigned int flags = kind & MEMWAIT_PRIVATE;
	int woken = 0;
	size_t i;

	for (i = 0; i < ROOM; i += step)
		woken += memwait_notify((const char *)object + i, MEMWAIT_ALL, flags);
	return woken;
}

/*
 * A thread and an operation continue to wait, and get the object when it becomes available later.
 */
USERLIB_TEST(L14_a_late_notify_releases_no_waiter)
{
	void *object = self->shared;
	struct visitor visitor;
	const struct object *it;
	int woken;

	for_each_object(it, maker_can_wait(it)) {
		const struct way *way = it->way;
		unsigned int kind = it->kind;
		struct counted_op counted = counted_by(&counted, self->loop);

		ASSERT_EQ(0, way->make(object, kind));
		ASSERT_EQ(EINPROGRESS, way->wait_async(object, &counted.op));
		visitor_start(&visitor, way, object);
		await_sleepers(way, object, kind, 2);
		woken = notify_words(object, kind, 1);
		EXPECT_LE(2, woken) {
			TH_LOG("%s", it->name);
		}
		ASSERT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		await_sleepers(way, object, kind, 2);
		EXPECT_EQ(0, counted.calls);
		EXPECT_FALSE(runner_is_done(&visitor.runner));
		ASSERT_EQ(0, way->give(object));
		if (!way->lets_all_go && !way->give_back) {
			ASSERT_EQ(0, way->give(object));
		}
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, leave(way, object, counted.result));
		EXPECT_EQ(0, visitor_join(&visitor));
		EXPECT_EQ(0, way->destroy(object));
	}
}

/* No other object has waiters on the byte on which the waiters of FAIR locks sleep. */
USERLIB_TEST(L14_no_other_object_notifies_a_fair_one)
{
	char *object = self->shared;
	struct counted_op counted;
	const struct object *it;
	size_t byte;
	int n;

	for_each_object(it, maker_can_wait(it)) {
		const struct way *way = it->way;
		unsigned int kind = it->kind;

		ASSERT_EQ(0, way->make(object, kind));
		counted = counted_by(&counted, self->loop);
		ASSERT_EQ(EINPROGRESS, way->wait_async(object, &counted.op));
		for (byte = 1, n = 0; byte < ROOM; byte += 4)
			n += memwait_waiters(object + byte, kind & MEMWAIT_PRIVATE);
		/* Writers that have passed the gate wait for readers on another byte. */
		EXPECT_EQ(is_handed_over(it) && way->give_back && !way->has_gate, n) {
			TH_LOG("%s", it->name);
		}
		EXPECT_EQ(0, memwait_op_cancel(&counted.op));
		ASSERT_EQ(0, way->give(object));
		EXPECT_EQ(0, way->destroy(object));
	}
}

/* The owner of a FAIR lock, which unlocks it and is stalled before it notifies. */
struct handover {
	const struct way *way;
	char *object;
	unsigned int kind;
	struct runner waiter;
	int reached;
};

static __thread struct handover *own;

static int intercept(int fd, unsigned long request, void *argument)
{
	struct handover *handover = own;

	if (handover && request == MEMWAIT_IOC_NOTIFY && !handover->reached) {
		handover->reached = 1;
		notify_words(handover->object, handover->kind, 4);
		/* Wait until the woken waiter has ended or sleeps again. */
		while (!runner_is_done(&handover->waiter) &&
		       thread_state(handover->waiter.tid) != 'S')
			usleep(100);
	}
	return ioctl_of_kernel(fd, request, argument);
}

static int use_and_free(void *arg)
{
	struct handover *handover = arg;
	const struct way *way = handover->way;
	int ret = leave(way, handover->object, way->wait(handover->object));

	ret = ret ? ret : way->destroy(handover->object);
	memset(handover->object, ALL, ROOM);
	return ret;
}

USERLIB_TEST(L14_a_late_notify_during_an_unlock)
{
	struct handover handover;
	char others[ROOM];
	const struct object *it;

	memset(others, ALL, sizeof(others));
	for_each_object(it, !it->way->meets && it->way != &condition_way) {
		const struct way *way = it->way;

		handover = (struct handover){
			.way = way, .object = self->shared, .kind = it->kind,
		};
		ASSERT_EQ(0, way->make(handover.object, handover.kind));
		runner_start(&handover.waiter, use_and_free, &handover);
		await_sleepers(way, handover.object, handover.kind, 1);
		own = &handover;
		EXPECT_EQ(0, way->give(handover.object));
		own = NULL;
		EXPECT_EQ(0, runner_join(&handover.waiter)) {
			TH_LOG("%s", it->name);
		}
		EXPECT_EQ(0, memcmp(others, handover.object, ROOM)) {
			TH_LOG("%s", it->name);
		}
	}
}

TEST_HARNESS_MAIN
