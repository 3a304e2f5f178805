// SPDX-License-Identifier: GPL-2.0
/* Channels that are closed, or have a slow user: no item is lost, and no waiter waits forever. */
#include "channel_test.h"

USERLIB_TEST(R1_close_wakes_all)
{
	memwait_channel_t *channel = self->shared;
	struct counted_op counted = { 0 };
	struct runner runners[4];
	struct item item = { 0 };
	int full, i;

	for (full = 0; full < 2; full++) {
		ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 1));
		if (full) {
			ASSERT_EQ(0, memwait_channel_send(channel, &item, sizeof(item)));
		}
		for (i = 0; i < 4; i++) {
			runner_start(&runners[i], full ? send_once : receive_once, channel);
			runner_await_asleep(&runners[i]);
		}
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(EINPROGRESS, full ?
			  memwait_channel_send_async(channel, &item, sizeof(item), &counted.op) :
			  memwait_channel_recv_async(channel, &item, sizeof(item), &counted.op));
		EXPECT_EQ(EBUSY, memwait_channel_destroy(channel));
		ASSERT_EQ(0, memwait_channel_close(channel));
		for (i = 0; i < 4; i++)
			EXPECT_EQ(EPIPE, runner_join(&runners[i]));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(EPIPE, counted.result);
		EXPECT_EQ(full, memwait_channel_length(channel));
		EXPECT_EQ(0, memwait_channel_destroy(channel));
	}
}

/* Items whose send succeeded before the close are received; no other send succeeds. */
USERLIB_TEST(R1_close_races_with_senders_and_receivers)
{
	memwait_channel_t *channel = self->shared;
	struct receiver receivers[2];
	struct sender senders[2];
	struct runner sending[2], receiving[2];
	int round, i;

	for (round = 0; more_rounds(round, ROUNDS / 8); round++) {
		ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(struct item),
						  1 + round % 4));
		memset(receivers, 0, sizeof(receivers));
		memset(senders, 0, sizeof(senders));
		for (i = 0; i < 2; i++) {
			receivers[i].channel = channel;
			senders[i] = (struct sender){ .channel = channel, .number = i };
			runner_start(&sending[i], send_all, &senders[i]);
			runner_start(&receiving[i], receive_all, &receivers[i]);
		}
		for (i = 0; i < round % 16; i++)
			sched_yield();
		ASSERT_EQ(0, memwait_channel_close(channel));
		for (i = 0; i < 2; i++) {
			int err = runner_join(&sending[i]);

			ASSERT_TRUE(err == EPIPE || (!err && senders[i].sent == ROUNDS));
		}
		for (i = 0; i < 2; i++)
			ASSERT_EQ(EPIPE, runner_join(&receiving[i]));
		ASSERT_EQ(senders[0].sent + senders[1].sent,
			  receivers[0].received + receivers[1].received);
		ASSERT_EQ(0, receivers[0].violations + receivers[1].violations);
		ASSERT_EQ(0, memwait_channel_destroy(channel));
	}
}

/*
 * The memory of an item. A sender cannot read this memory, or a receiver cannot write it, until the
 * test permits that.
 */
static struct {
	void *page;
	int reached, let;
} obstacle;

static void hold_up(int signal)
{
	__atomic_store_n(&obstacle.reached, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&obstacle.let, __ATOMIC_ACQUIRE))
		;
	mprotect(obstacle.page, 4096, PROT_READ | PROT_WRITE);
}

static void *new_obstacle(void)
{
	struct sigaction action = { .sa_handler = hold_up };

	sigaction(SIGSEGV, &action, NULL);
	obstacle.reached = 0;
	obstacle.let = 0;
	obstacle.page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return obstacle.page;
}

ADAPTER(send_obstacle, void *arg, memwait_channel_send(arg, obstacle.page, sizeof(struct item)))
ADAPTER(receive_obstacle, void *arg, memwait_channel_recv(arg, obstacle.page, sizeof(struct item)))

/* The channel is closed during a send. Waiters are notified when the send is finished. */
USERLIB_TEST(R1_receivers_of_a_closed_channel_do_not_wait_forever)
{
	memwait_channel_t *channel = self->shared;
	void *word = (char *)channel + RECEIVERS_WORD;
	struct runner receiving[3], sending;
	int i, received = 0, ended = 0, ret;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(struct item), 4));
	ASSERT_NE(MAP_FAILED, new_obstacle());
	for (i = 0; i < 3; i++)
		runner_start(&receiving[i], receive_once, channel);
	await_waiters(self->fd, word, U32_SIZE, 3);
	runner_start(&sending, send_obstacle, channel);
	spin_until(__atomic_load_n(&obstacle.reached, __ATOMIC_ACQUIRE));
	ASSERT_EQ(0, memwait_channel_close(channel));
	await_waiters(self->fd, word, U32_SIZE, 0);
	for (i = 0; i < 3; i++)
		runner_await_asleep(&receiving[i]);
	__atomic_store_n(&obstacle.let, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(0, runner_join(&sending));
	for (i = 0; i < 3; i++) {
		ret = runner_join(&receiving[i]);
		received += !ret;
		ended += ret == EPIPE;
	}
	EXPECT_EQ(1, received);
	EXPECT_EQ(2, ended);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
	munmap(obstacle.page, 4096);
}

/* A slow user delays other users on the same side, but none of their items is lost. */
USERLIB_TEST(R1_users_behind_a_slow_one_get_their_items)
{
	memwait_channel_t *channel = self->shared;
	struct runner ahead, behind, waiting[2];
	int full, i;
	void *word;

	for (full = 0; full < 2; full++) {
		word = (char *)channel + (full ? SENDERS_WORD : RECEIVERS_WORD);
		ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(struct item), 2));
		for (i = 0; full && i < 2; i++)
			ASSERT_EQ(0, send_once(channel));
		ASSERT_NE(MAP_FAILED, new_obstacle());
		runner_start(&ahead, full ? receive_obstacle : send_obstacle, channel);
		spin_until(__atomic_load_n(&obstacle.reached, __ATOMIC_ACQUIRE));
		for (i = 0; i < 2; i++)
			runner_start(&waiting[i], full ? send_once : receive_once, channel);
		await_waiters(self->fd, word, U32_SIZE, 2);
		runner_start(&behind, full ? receive_once : send_once, channel);
		runner_await_asleep(&behind);
		await_waiters(self->fd, word, U32_SIZE, 2);
		__atomic_store_n(&obstacle.let, 1, __ATOMIC_RELEASE);
		EXPECT_EQ(0, runner_join(&ahead));
		EXPECT_EQ(0, runner_join(&behind));
		for (i = 0; i < 2; i++)
			EXPECT_EQ(0, runner_join(&waiting[i]));
		EXPECT_EQ(full ? 2 : 0, memwait_channel_length(channel));
		EXPECT_EQ(0, memwait_channel_destroy(channel));
		munmap(obstacle.page, 4096);
	}
}

struct closing {
	memwait_channel_t *channel;
	int yields;
};

static int close_soon(void *arg)
{
	struct closing *closing = arg;
	int i;

	for (i = 0; i < closing->yields; i++)
		sched_yield();
	return memwait_channel_close(closing->channel);
}

USERLIB_TEST(R1_close_races_with_operations_and_threads)
{
	struct closing closing = { .channel = self->shared };
	struct runner closer, sending, receiving;
	struct receiver receivers[2];
	struct sender senders[2];
	int round, i, err;

	for (round = 0; more_rounds(round, ROUNDS / 8); round++) {
		ASSERT_EQ(0, memwait_channel_init(closing.channel, SHARED_SIZE, 0,
						  sizeof(struct item), 1 + round % 4));
		memset(receivers, 0, sizeof(receivers));
		memset(senders, 0, sizeof(senders));
		for (i = 0; i < 2; i++) {
			receivers[i].channel = closing.channel;
			senders[i].channel = closing.channel;
			senders[i].number = (uint32_t)i;
		}
		closing.yields = round % 32;
		begin_receiving(&receivers[0], self->loop);
		begin_sending(&senders[0], self->loop);
		runner_start(&sending, send_all, &senders[1]);
		runner_start(&receiving, receive_all, &receivers[1]);
		runner_start(&closer, close_soon, &closing);
		ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
		ASSERT_EQ(0, runner_join(&closer));
		err = runner_join(&sending);
		ASSERT_TRUE(err == EPIPE || (!err && senders[1].sent == ROUNDS));
		ASSERT_EQ(EPIPE, runner_join(&receiving));
		ASSERT_EQ(1, senders[0].done);
		err = senders[0].result;
		ASSERT_TRUE(err == EPIPE || (!err && senders[0].sent == ROUNDS));
		ASSERT_EQ(1, receivers[0].done);
		ASSERT_EQ(EPIPE, receivers[0].result);
		ASSERT_EQ(senders[0].sent + senders[1].sent,
			  receivers[0].received + receivers[1].received);
		ASSERT_EQ(0, receivers[0].violations + receivers[1].violations);
		ASSERT_EQ(0, memwait_channel_length(closing.channel));
		ASSERT_EQ(0, memwait_channel_destroy(closing.channel));
	}
}

TEST_HARNESS_MAIN
