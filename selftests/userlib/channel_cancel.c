// SPDX-License-Identifier: GPL-2.0
/* L3, L5: who gives up, or dies, while it waits at a channel. */
#include "channel_test.h"

USERLIB_TEST(L3_cancel_races_with_send)
{
	memwait_channel_t *channel = self->shared;
	struct counted_op counted = { 0 };
	struct runner sending, behind;
	int round, taken_back = 0;
	struct item item;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 2));
	for (round = 0; round < ROUNDS || !taken_back; round++) {
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(EINPROGRESS,
			  memwait_channel_recv_async(channel, &item, &counted.op));
		runner_start(&behind, receive_once, channel);
		runner_await_asleep(&behind);
		runner_race(&sending, send_once, channel);
		linger(round);
		if (round % 2)
			memwait_loop_dispatch(self->loop);
		if (!memwait_op_cancel(&counted.op)) {
			taken_back++;
			ASSERT_EQ(0, counted.calls);
		} else {
			ASSERT_EQ(1, counted.calls);
			ASSERT_EQ(0, send_once(channel));
		}
		ASSERT_EQ(0, runner_join(&sending));
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, memwait_channel_length(channel));
	}
	EXPECT_EQ(0, memwait_channel_destroy(channel));
	TH_LOG("%d of %d taken back", taken_back, round);
}

USERLIB_TEST(L3_a_receive_that_is_cancelled_leaves_the_item_to_the_next)
{
	memwait_channel_t *channel = self->shared;
	struct counted_op first = { 0 }, behind = { 0 };
	uint64_t item, to_first = 1, to_behind = 2;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 2));
	memwait_op_init(&first.op, self->loop, count_call, &first);
	memwait_op_init(&behind.op, self->loop, count_call, &behind);

	/* Pending. */
	ASSERT_EQ(EINPROGRESS, memwait_channel_recv_async(channel, &to_first, &first.op));
	EXPECT_EQ(EBUSY, memwait_channel_recv_async(channel, &to_first, &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_channel_recv_async(channel, &to_behind, &behind.op));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(ENOENT, memwait_op_cancel(&first.op));
	item = 10;
	ASSERT_EQ(0, memwait_channel_send(channel, &item));
	ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 1));
	EXPECT_EQ(10, to_behind);

	/* Completed, and not dispatched. */
	ASSERT_EQ(EINPROGRESS, memwait_channel_recv_async(channel, &to_first, &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_channel_recv_async(channel, &to_behind, &behind.op));
	item = 11;
	ASSERT_EQ(0, memwait_channel_send(channel, &item));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 2));
	EXPECT_EQ(0, behind.result);
	EXPECT_EQ(11, to_behind);

	/* Nobody is next: it stays. */
	ASSERT_EQ(EINPROGRESS, memwait_channel_recv_async(channel, &to_first, &first.op));
	item = 12;
	ASSERT_EQ(0, memwait_channel_send(channel, &item));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(1, memwait_channel_length(channel));
	EXPECT_EQ(0, memwait_channel_tryrecv(channel, &item));
	EXPECT_EQ(12, item);

	EXPECT_EQ(0, memwait_loop_dispatch(self->loop));
	EXPECT_EQ(0, first.calls);
	EXPECT_EQ(1, to_first);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(L3_a_send_that_is_cancelled_sends_nothing)
{
	memwait_channel_t *channel = self->shared;
	struct counted_op first = { 0 }, behind = { 0 };
	uint64_t item = 1, of_first = 2, of_behind = 3;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 1));
	memwait_op_init(&first.op, self->loop, count_call, &first);
	memwait_op_init(&behind.op, self->loop, count_call, &behind);
	ASSERT_EQ(0, memwait_channel_send(channel, &item));

	/* Pending. */
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, &of_first, &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, &of_behind, &behind.op));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(0, memwait_channel_recv(channel, &item));
	EXPECT_EQ(1, item);
	ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 1));

	/* Completed, and not dispatched. The item of @behind is in the channel. */
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, &of_first, &first.op));
	of_behind = 4;
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, &of_behind, &behind.op));
	EXPECT_EQ(0, memwait_channel_recv(channel, &item));
	EXPECT_EQ(3, item);
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	ASSERT_EQ(0, dispatch_until(self->loop, &behind.calls, 2));
	EXPECT_EQ(0, behind.result);
	EXPECT_EQ(0, memwait_channel_recv(channel, &item));
	EXPECT_EQ(4, item);
	EXPECT_EQ(EAGAIN, memwait_channel_tryrecv(channel, &item));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop));
	EXPECT_EQ(0, first.calls);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

static int send_of_number(void *arg)
{
	struct sender *sender = arg;
	struct item item;

	make(&item, sender, 1);
	return memwait_channel_send(sender->channel, &item);
}

/* The place in the channel goes to the operation, or to the thread behind it. */
USERLIB_TEST(L3_cancel_races_with_receive)
{
	memwait_channel_t *channel = self->shared;
	struct sender sender = { .channel = self->shared, .number = 2 };
	struct sender by_operation = { .number = 1 }, before = { .number = 0 };
	struct counted_op counted = { 0 };
	struct runner receiving, behind;
	int round, taken_back = 0;
	struct item item, got;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 1));
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (round = 0; round < ROUNDS || !taken_back; round++) {
		counted.calls = 0;
		make(&item, &before, 1);
		ASSERT_EQ(0, memwait_channel_send(channel, &item));
		make(&item, &by_operation, 1);
		ASSERT_EQ(EINPROGRESS,
			  memwait_channel_send_async(channel, &item, &counted.op));
		runner_start(&behind, send_of_number, &sender);
		runner_await_asleep(&behind);
		runner_race(&receiving, receive_once, channel);
		linger(round);
		if (round % 2) {
			ASSERT_LE(0, memwait_loop_dispatch(self->loop));
		}
		if (!memwait_op_cancel(&counted.op)) {
			taken_back++;
			ASSERT_EQ(0, counted.calls);
		} else {
			ASSERT_EQ(1, counted.calls);
			ASSERT_EQ(0, counted.result);
			ASSERT_EQ(0, memwait_channel_recv(channel, &got));
			ASSERT_EQ(1, got.sender);
		}
		ASSERT_EQ(0, runner_join(&receiving));
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, memwait_channel_recv(channel, &got));
		ASSERT_EQ(2, got.sender);
		ASSERT_EQ(EAGAIN, memwait_channel_tryrecv(channel, &got));
	}
	EXPECT_EQ(0, memwait_channel_destroy(channel));
	TH_LOG("%d of %d taken back", taken_back, round);
}

/* An item is received, or it is in the channel still. */
USERLIB_TEST(L3_a_deadline_races_with_send)
{
	struct timed timed = { .channel = self->shared, .clock = CLOCK_MONOTONIC };
	int round, ret, timed_out = 0;
	struct runner runner;
	uint64_t item;

	ASSERT_EQ(0, memwait_channel_init(timed.channel, 0, sizeof(item), 1));
	for (round = 0; round < ROUNDS; round++) {
		timed.item = 0;
		timed.time = in_time(CLOCK_MONOTONIC, 0);
		timed.time.tv_nsec += 1000 * (50 + round % 300);
		if (timed.time.tv_nsec >= 1000000000) {
			timed.time.tv_sec++;
			timed.time.tv_nsec -= 1000000000;
		}
		runner_start(&runner, receive_timed, &timed);
		item = (uint64_t)round + 1;
		linger(round);
		ASSERT_EQ(0, memwait_channel_send(timed.channel, &item));
		ret = runner_join(&runner);
		if (ret) {
			timed_out++;
			ASSERT_EQ(ETIMEDOUT, ret);
			ASSERT_EQ(1, memwait_channel_length(timed.channel));
			ASSERT_EQ(0, memwait_channel_tryrecv(timed.channel, &timed.item));
		}
		ASSERT_EQ(item, timed.item);
		ASSERT_EQ(0, memwait_channel_length(timed.channel));
	}
	EXPECT_EQ(0, memwait_channel_destroy(timed.channel));
	TH_LOG("%d of %d timed out", timed_out, round);
}

USERLIB_TEST(L5_it_is_neither_interrupted_nor_cancelled)
{
	struct sigaction action = { .sa_handler = nothing };
	struct timed timed[2] = { 0 };
	memwait_channel_t *channel = self->shared;
	struct runner runners[2];
	uint64_t item = 1;
	int sending, i;

	sigaction(SIGUSR1, &action, NULL);
	for (sending = 0; sending < 2; sending++) {
		ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 2));
		if (sending) {
			ASSERT_EQ(0, memwait_channel_send(channel, &item));
			ASSERT_EQ(0, memwait_channel_send(channel, &item));
		}
		for (i = 0; i < 2; i++) {
			timed[i].channel = channel;
			timed[i].item = 2;
			timed[i].clock = i ? CLOCK_REALTIME : CLOCK_MONOTONIC;
			/* One with a time, one without. */
			timed[i].time = i ? in_time(CLOCK_REALTIME, 3600 * 1000) :
				(struct timespec){ TIME_MAX, 0 };
			runner_start(&runners[i], sending ? send_timed : receive_timed, &timed[i]);
			runner_await_asleep(&runners[i]);
			pthread_kill(runners[i].thread, SIGUSR1);
			pthread_cancel(runners[i].thread);
		}
		for (i = 0; i < 2; i++) {
			if (sending) {
				ASSERT_EQ(0, memwait_channel_recv(channel, &item));
			} else {
				ASSERT_EQ(0, memwait_channel_send(channel, &item));
			}
		}
		for (i = 0; i < 2; i++) {
			EXPECT_EQ(0, runner_join(&runners[i]));
			EXPECT_EQ(1, runners[i].done);
			EXPECT_EQ(sending ? 2 : 1, timed[i].item);
		}
		EXPECT_EQ(sending ? 2 : 0, memwait_channel_length(channel));
		EXPECT_EQ(0, memwait_channel_destroy(channel));
	}
}

/* The wake-up that has reached an operation of a dead process goes on. */
USERLIB_TEST(L3_processes_that_are_killed_leave_place_and_item_to_the_next)
{
	memwait_channel_t *channel = self->shared;
	struct sender sender = { .channel = channel, .number = 1 };
	struct item item = { 0 }, got;
	struct runner behind;
	int round, sending;
	pid_t child;
	int *armed;

	/* Behind the channel. */
	armed = (int *)((char *)self->shared + 4096);
	for (round = 0; round < 20; round++) {
		sending = round % 2;
		*armed = 0;
		ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 1));
		if (sending) {
			ASSERT_EQ(0, memwait_channel_send(channel, &item));
		}
		child = fork_child();
		if (!child) {
			struct counted_op counted = { 0 };
			memwait_loop_t *loop;
			int ret;

			if (memwait_loop_new(&loop))
				_exit(1);
			memwait_op_init(&counted.op, loop, count_call, &counted);
			ret = sending ? memwait_channel_send_async(channel, &item, &counted.op) :
				memwait_channel_recv_async(channel, &item, &counted.op);
			if (ret != EINPROGRESS)
				_exit(2);
			__atomic_store_n(armed, 1, __ATOMIC_RELEASE);
			stay();
		}
		while (!__atomic_load_n(armed, __ATOMIC_ACQUIRE))
			before_next_look();
		runner_start(&behind, sending ? send_of_number : receive_once,
			     sending ? (void *)&sender : (void *)channel);
		runner_await_asleep(&behind);
		if (sending) {
			ASSERT_EQ(0, memwait_channel_recv(channel, &got));
		} else {
			ASSERT_EQ(0, memwait_channel_send(channel, &item));
		}
		ASSERT_EQ(128 + SIGKILL, kill_child(child));
		ASSERT_EQ(0, runner_join(&behind));
		EXPECT_EQ(sending, memwait_channel_length(channel));
		if (sending) {
			ASSERT_EQ(0, memwait_channel_recv(channel, &got));
			EXPECT_EQ(1, got.sender);
		}
	}
}

TEST_HARNESS_MAIN
