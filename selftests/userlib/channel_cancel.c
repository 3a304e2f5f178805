// SPDX-License-Identifier: GPL-2.0
/* L3, L5: waiters for a channel that give up or die. */
#include "channel_test.h"

USERLIB_TEST(L3_a_receive_that_is_cancelled_leaves_the_item_to_the_next)
{
	memwait_channel_t *channel = self->shared;
	struct counted_op behind = counted_by(&behind, self->loop);
	struct counted_op first = counted_by(&first, self->loop);
	uint64_t item, to_first = 1, to_behind = 2;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 2));

	/* The operation is pending. */
	ASSERT_EQ(EINPROGRESS, memwait_channel_recv_async(channel, &to_first, sizeof(to_first),
							  &first.op));
	EXPECT_EQ(EBUSY, memwait_channel_recv_async(channel, &to_first, sizeof(to_first),
						    &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_channel_recv_async(channel, &to_behind, sizeof(to_behind),
							  &behind.op));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(-ENOENT, memwait_op_cancel(&first.op));
	item = 10;
	ASSERT_EQ(0, memwait_channel_send(channel, &item, sizeof(item)));
	ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 1));
	EXPECT_EQ(10, to_behind);

	/* The operation has completed, but has not been dispatched. */
	ASSERT_EQ(EINPROGRESS, memwait_channel_recv_async(channel, &to_first, sizeof(to_first),
							  &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_channel_recv_async(channel, &to_behind, sizeof(to_behind),
							  &behind.op));
	item = 11;
	ASSERT_EQ(0, memwait_channel_send(channel, &item, sizeof(item)));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 2));
	EXPECT_EQ(0, behind.result);
	EXPECT_EQ(11, to_behind);

	/* There is no other receiver: the item stays in the channel. */
	ASSERT_EQ(EINPROGRESS, memwait_channel_recv_async(channel, &to_first, sizeof(to_first),
							  &first.op));
	item = 12;
	ASSERT_EQ(0, memwait_channel_send(channel, &item, sizeof(item)));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(1, memwait_channel_length(channel));
	EXPECT_EQ(0, memwait_channel_tryrecv(channel, &item, sizeof(item)));
	EXPECT_EQ(12, item);

	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, first.calls);
	EXPECT_EQ(1, to_first);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(L3_a_send_that_is_cancelled_sends_nothing)
{
	memwait_channel_t *channel = self->shared;
	struct counted_op behind = counted_by(&behind, self->loop);
	struct counted_op first = counted_by(&first, self->loop);
	uint64_t item = 1, of_first = 2, of_behind = 3;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 1));
	ASSERT_EQ(0, memwait_channel_send(channel, &item, sizeof(item)));

	/* The operation is pending. */
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, &of_first, sizeof(of_first),
							  &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, &of_behind, sizeof(of_behind),
							  &behind.op));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(0, memwait_channel_recv(channel, &item, sizeof(item)));
	EXPECT_EQ(1, item);
	ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 1));

	/*
	 * The operation has completed, but has not been dispatched. The item of @behind is in the
	 * channel.
	 */
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, &of_first, sizeof(of_first),
							  &first.op));
	of_behind = 4;
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, &of_behind, sizeof(of_behind),
							  &behind.op));
	EXPECT_EQ(0, memwait_channel_recv(channel, &item, sizeof(item)));
	EXPECT_EQ(3, item);
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 2));
	EXPECT_EQ(0, behind.result);
	EXPECT_EQ(0, memwait_channel_recv(channel, &item, sizeof(item)));
	EXPECT_EQ(4, item);
	EXPECT_EQ(EAGAIN, memwait_channel_tryrecv(channel, &item, sizeof(item)));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, first.calls);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

static int send_of_number(void *arg)
{
	struct sender *sender = arg;
	struct item item;

	make(&item, sender, 1);
	return memwait_channel_send(sender->channel, &item, sizeof(item));
}

/* The item or the free slot goes either to the operation or to the thread behind it. */
USERLIB_TEST(L3_cancel_races_with_receive)
{
	memwait_channel_t *channel = self->shared;
	struct sender sender = { .channel = self->shared, .number = 2 };
	struct sender by_operation = { .number = 1 }, before = { .number = 0 };
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner receiving, behind;
	int round, taken_back = 0;
	struct item item, got;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 1));
	for (round = 0; more_rounds(round, ROUNDS) || !taken_back; round++) {
		counted.calls = 0;
		make(&item, &before, 1);
		ASSERT_EQ(0, memwait_channel_send(channel, &item, sizeof(item)));
		make(&item, &by_operation, 1);
		ASSERT_EQ(EINPROGRESS,
			  memwait_channel_send_async(channel, &item, sizeof(item), &counted.op));
		runner_start(&behind, send_of_number, &sender);
		runner_await_asleep(&behind);
		runner_race(&receiving, receive_once, channel);
		linger(round);
		if (round % 2) {
			ASSERT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		}
		if (!memwait_op_cancel(&counted.op)) {
			taken_back++;
			ASSERT_EQ(0, counted.calls);
		} else {
			ASSERT_EQ(1, counted.calls);
			ASSERT_EQ(0, counted.result);
			ASSERT_EQ(0, memwait_channel_recv(channel, &got, sizeof(got)));
			ASSERT_EQ(1, got.sender);
		}
		ASSERT_EQ(0, runner_join(&receiving));
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, memwait_channel_recv(channel, &got, sizeof(got)));
		ASSERT_EQ(2, got.sender);
		ASSERT_EQ(EAGAIN, memwait_channel_tryrecv(channel, &got, sizeof(got)));
	}
	EXPECT_EQ(0, memwait_channel_destroy(channel));
	TH_LOG("%d of %d cancelled", taken_back, round);
}

TEST_HARNESS_MAIN
