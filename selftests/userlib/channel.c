// SPDX-License-Identifier: GPL-2.0
/* Channels: everything that is sent is received, once, in the order of each sender. */
#include "userlib_test.h"

#define ROUNDS	(getenv("MEMWAIT_LOADS") ? 200 : 2000)
#define SENDERS	3

struct item {
	uint32_t sender;
	uint32_t number;
	unsigned char padding[16];
};

/* What each receiver keeps: the numbers of a sender only rise. */
struct receiver {
	memwait_channel_t *channel;
	uint32_t last[SENDERS + 1];
	long received;
	int violations;
	/* For an operation. */
	memwait_op_t op;
	struct item item;
	int result, done;
};

struct sender {
	memwait_channel_t *channel;
	uint32_t number;
	int sent;
	memwait_op_t op;
	struct item item;
	int result, done;
};

static void take(struct receiver *receiver, const struct item *item)
{
	if (item->sender > SENDERS || item->number <= receiver->last[item->sender] ||
	    item->padding[0] != (unsigned char)item->number ||
	    item->padding[15] != (unsigned char)item->number)
		receiver->violations++;
	else
		receiver->last[item->sender] = item->number;
	receiver->received++;
}

static void make(struct item *item, struct sender *sender, int number)
{
	item->sender = sender->number;
	item->number = (uint32_t)number;
	memset(item->padding, number, sizeof(item->padding));
}

static int receive_all(void *arg)
{
	struct receiver *receiver = arg;
	struct item item;
	int err;

	while (!(err = memwait_channel_recv(receiver->channel, &item)))
		take(receiver, &item);
	return err;
}

static int send_all(void *arg)
{
	struct sender *sender = arg;
	struct item item;
	int err;

	while (sender->sent < ROUNDS) {
		make(&item, sender, sender->sent + 1);
		err = memwait_channel_send(sender->channel, &item);
		if (err)
			return err;
		sender->sent++;
	}
	return 0;
}

static void receive_by_callback(memwait_op_t *op, int result, void *data)
{
	struct receiver *receiver = data;

	while (!result) {
		take(receiver, &receiver->item);
		result = memwait_channel_recv_async(receiver->channel, &receiver->item, op);
	}
	if (result != EINPROGRESS) {
		receiver->result = result;
		receiver->done = 1;
	}
}

static void begin_receiving(struct receiver *receiver, memwait_loop_t *loop)
{
	int ret;

	memwait_op_init(&receiver->op, loop, receive_by_callback, receiver);
	ret = memwait_channel_recv_async(receiver->channel, &receiver->item, &receiver->op);
	if (ret != EINPROGRESS)
		receive_by_callback(&receiver->op, ret, receiver);
}

static void send_by_callback(memwait_op_t *op, int result, void *data)
{
	struct sender *sender = data;

	while (!result && ++sender->sent < ROUNDS) {
		make(&sender->item, sender, sender->sent + 1);
		result = memwait_channel_send_async(sender->channel, &sender->item, op);
	}
	if (result != EINPROGRESS) {
		sender->result = result;
		sender->done = 1;
	}
}

static void begin_sending(struct sender *sender, memwait_loop_t *loop)
{
	int ret;

	memwait_op_init(&sender->op, loop, send_by_callback, sender);
	make(&sender->item, sender, 1);
	ret = memwait_channel_send_async(sender->channel, &sender->item, &sender->op);
	if (ret != EINPROGRESS)
		send_by_callback(&sender->op, ret, sender);
}

USERLIB_TEST(many_senders_and_receivers_in_threads_and_a_loop)
{
	static const size_t capacities[] = { 1, 2, 7, 64 };
	memwait_channel_t *channel = self->shared;
	struct receiver receivers[3];
	struct sender senders[SENDERS];
	struct runner sending[2], receiving[2];
	long received;
	size_t c;
	int i;

	for (c = 0; c < ARRAY_SIZE(capacities); c++) {
		ASSERT_EQ(0, memwait_channel_init(channel, sizeof(struct item), capacities[c]));
		memset(receivers, 0, sizeof(receivers));
		memset(senders, 0, sizeof(senders));
		for (i = 0; i < 3; i++) {
			receivers[i].channel = channel;
			senders[i].channel = channel;
			senders[i].number = i;
		}
		for (i = 0; i < 2; i++) {
			runner_start(&sending[i], send_all, &senders[i]);
			runner_start(&receiving[i], receive_all, &receivers[i]);
		}
		begin_sending(&senders[2], self->loop);
		begin_receiving(&receivers[2], self->loop);
		while (!senders[2].done) {
			struct pollfd pfd = { memwait_loop_fd(self->loop), POLLIN, 0 };

			poll(&pfd, 1, -1);
			ASSERT_LE(0, memwait_loop_dispatch(self->loop));
		}
		/* The two threads may need the loop to receive. */
		while (!runner_is_done(&sending[0]) || !runner_is_done(&sending[1])) {
			ASSERT_LE(0, memwait_loop_dispatch(self->loop));
			sched_yield();
		}
		for (i = 0; i < 2; i++)
			EXPECT_EQ(0, runner_join(&sending[i]));
		EXPECT_EQ(0, senders[2].result);
		ASSERT_EQ(0, memwait_channel_close(channel));
		ASSERT_EQ(0, memwait_loop_run(self->loop));
		EXPECT_EQ(EPIPE, receivers[2].result);
		received = receivers[2].received;
		for (i = 0; i < 2; i++) {
			EXPECT_EQ(EPIPE, runner_join(&receiving[i]));
			received += receivers[i].received;
			EXPECT_EQ(0, receivers[i].violations);
		}
		EXPECT_EQ(0, receivers[2].violations);
		EXPECT_EQ((long)SENDERS * ROUNDS, received);
		EXPECT_EQ(0, memwait_channel_length(channel));
		EXPECT_EQ(0, memwait_channel_destroy(channel));
	}
}

USERLIB_TEST(processes)
{
	size_t size = memwait_channel_size(sizeof(struct item), 5);
	int memfd = memfd_create("channel", MFD_CLOEXEC), i;
	struct receiver receiver = { 0 };
	memwait_channel_t *channel;
	pid_t children[SENDERS];

	ASSERT_EQ(0, ftruncate(memfd, size));
	channel = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	ASSERT_NE(MAP_FAILED, channel);
	ASSERT_EQ(0, memwait_channel_init(channel, sizeof(struct item), 5));
	for (i = 0; i < SENDERS; i++) {
		children[i] = fork();
		ASSERT_LE(0, children[i]);
		if (!children[i]) {
			struct sender sender = { .number = i };

			sender.channel = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
					      memfd, 0);
			munmap(channel, size);
			_exit(send_all(&sender));
		}
	}
	receiver.channel = channel;
	begin_receiving(&receiver, self->loop);
	while (receiver.received < (long)SENDERS * ROUNDS) {
		struct pollfd pfd = { memwait_loop_fd(self->loop), POLLIN, 0 };

		poll(&pfd, 1, -1);
		ASSERT_LE(0, memwait_loop_dispatch(self->loop));
	}
	for (i = 0; i < SENDERS; i++)
		EXPECT_EQ(0, userlib_child_status(children[i]));
	ASSERT_EQ(0, memwait_channel_close(channel));
	ASSERT_EQ(0, memwait_loop_run(self->loop));
	EXPECT_EQ(EPIPE, receiver.result);
	EXPECT_EQ(0, receiver.violations);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
	munmap(channel, size);
	close(memfd);
}

USERLIB_TEST(sizes_and_errors)
{
	static const size_t sizes[] = { 1, 7, 8, 24, 1000 };
	unsigned char in[1000], out[1000];
	memwait_channel_t *channel = self->shared;
	size_t i, n;

	EXPECT_EQ(0, memwait_channel_size(0, 1));
	EXPECT_EQ(0, memwait_channel_size(1, 0));
	EXPECT_EQ(0, memwait_channel_size(1ULL << 32, 1));
	EXPECT_EQ(0, memwait_channel_size(1, 1ULL << 32));
	EXPECT_LT(0, memwait_channel_size(1, 1));
	EXPECT_EQ(EINVAL, memwait_channel_init(NULL, 1, 1));
	EXPECT_EQ(EINVAL, memwait_channel_init(channel, 0, 1));
	EXPECT_EQ(EINVAL, memwait_channel_init((void *)((char *)channel + 4), 1, 1));
	/* Zeroed is not initialised. */
	EXPECT_EQ(EINVAL, memwait_channel_send(channel, in));
	EXPECT_EQ(EINVAL, memwait_channel_recv(channel, in));
	EXPECT_EQ(EINVAL, memwait_channel_close(channel));
	EXPECT_EQ(EINVAL, memwait_channel_destroy(channel));
	EXPECT_EQ(0, memwait_channel_length(channel));
	EXPECT_EQ(EINVAL, memwait_channel_send(NULL, in));
	EXPECT_EQ(EINVAL, memwait_channel_recv_async(NULL, in, NULL));

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		ASSERT_EQ(0, memwait_channel_init(channel, sizes[i], 3));
		EXPECT_EQ(EINVAL, memwait_channel_send(channel, NULL));
		EXPECT_EQ(EINVAL, memwait_channel_recv(channel, NULL));
		EXPECT_EQ(EAGAIN, memwait_channel_tryrecv(channel, out));
		for (n = 0; n < 10; n++) {
			memset(in, (int)n + 1, sizeof(in));
			ASSERT_EQ(0, memwait_channel_trysend(channel, in));
			ASSERT_EQ(0, memwait_channel_send(channel, in));
			memset(out, 0, sizeof(out));
			ASSERT_EQ(0, memwait_channel_tryrecv(channel, out));
			ASSERT_EQ(0, memcmp(in, out, sizes[i]));
			ASSERT_TRUE(sizes[i] == 1000 || !out[sizes[i]]);
			ASSERT_EQ(0, memwait_channel_recv(channel, out));
		}
		for (n = 0; n < 3; n++) {
			EXPECT_EQ(n, memwait_channel_length(channel));
			ASSERT_EQ(0, memwait_channel_trysend(channel, in));
		}
		EXPECT_EQ(EAGAIN, memwait_channel_trysend(channel, in));
		EXPECT_EQ(3, memwait_channel_length(channel));
		ASSERT_EQ(0, memwait_channel_close(channel));
		EXPECT_EQ(EPIPE, memwait_channel_close(channel));
		EXPECT_EQ(EPIPE, memwait_channel_trysend(channel, in));
		EXPECT_EQ(EPIPE, memwait_channel_send(channel, in));
		for (n = 0; n < 3; n++)
			EXPECT_EQ(0, memwait_channel_recv(channel, out));
		EXPECT_EQ(EPIPE, memwait_channel_recv(channel, out));
		EXPECT_EQ(EPIPE, memwait_channel_tryrecv(channel, out));
		EXPECT_EQ(0, memwait_channel_destroy(channel));
		EXPECT_EQ(EINVAL, memwait_channel_trysend(channel, in));
	}
}

USERLIB_TEST(memory_that_is_aligned_to_8_will_do)
{
	memwait_channel_t *channel = (void *)((char *)self->shared + 8);
	uint64_t item = 1;

	ASSERT_EQ(0, memwait_channel_init(channel, 8, 3));
	ASSERT_EQ(0, memwait_channel_send(channel, &item));
	ASSERT_EQ(0, memwait_channel_recv(channel, &item));
	ASSERT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(times)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	memwait_channel_t *channel = self->shared;
	struct counted_op counted = { 0 };
	struct timespec time;
	int full, i, ret;
	uint64_t item = 1;

	ASSERT_EQ(0, memwait_channel_init(channel, sizeof(item), 1));
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (full = 0; full < 2; full++) {
		for (i = 0; i < 2; i++) {
			time = in_time(clocks[i], 10);
			ret = full ? memwait_channel_clocksend(channel, &item, clocks[i], &time) :
				memwait_channel_clockrecv(channel, &item, clocks[i], &time);
			EXPECT_EQ(ETIMEDOUT, ret);
			time = in_time(clocks[i], 10);
			counted.calls = 0;
			ret = full ? memwait_channel_clocksend_async(channel, &item, clocks[i],
								     &time, &counted.op) :
				memwait_channel_clockrecv_async(channel, &item, clocks[i], &time,
								&counted.op);
			if (ret == EINPROGRESS) {
				ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
				ret = counted.result;
			}
			EXPECT_EQ(ETIMEDOUT, ret);
			time = (struct timespec){ 0, -1 };
			ret = full ? memwait_channel_clocksend(channel, &item, clocks[i], &time) :
				memwait_channel_clockrecv(channel, &item, clocks[i], &time);
			EXPECT_EQ(EINVAL, ret);
		}
		time = in_time(CLOCK_REALTIME, -1);
		EXPECT_EQ(ETIMEDOUT, full ? memwait_channel_timedsend(channel, &item, &time) :
			  memwait_channel_timedrecv(channel, &item, &time));
		if (!full) {
			ASSERT_EQ(0, memwait_channel_timedsend(channel, &item, &time));
		}
	}
	EXPECT_EQ(0, memwait_channel_timedrecv(channel, &item, &time));
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

static int receive_once(void *arg)
{
	struct item item;

	return memwait_channel_recv(arg, &item);
}

static int send_once(void *arg)
{
	struct item item = { 0 };

	return memwait_channel_send(arg, &item);
}

USERLIB_TEST(close_wakes_all)
{
	memwait_channel_t *channel = self->shared;
	struct counted_op counted = { 0 };
	struct runner runners[4];
	struct item item = { 0 };
	int full, i;

	for (full = 0; full < 2; full++) {
		ASSERT_EQ(0, memwait_channel_init(channel, sizeof(item), 1));
		if (full) {
			ASSERT_EQ(0, memwait_channel_send(channel, &item));
		}
		for (i = 0; i < 4; i++) {
			runner_start(&runners[i], full ? send_once : receive_once, channel);
			runner_await_asleep(&runners[i]);
		}
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(EINPROGRESS, full ?
			  memwait_channel_send_async(channel, &item, &counted.op) :
			  memwait_channel_recv_async(channel, &item, &counted.op));
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

/* What was sent before it was closed is received, and no sender learns anything else. */
USERLIB_TEST(close_races_with_senders_and_receivers)
{
	memwait_channel_t *channel = self->shared;
	struct receiver receivers[2];
	struct sender senders[2];
	struct runner sending[2], receiving[2];
	int round, i;

	for (round = 0; round < ROUNDS / 8; round++) {
		ASSERT_EQ(0, memwait_channel_init(channel, sizeof(struct item), 1 + round % 4));
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

struct race {
	memwait_channel_t *channel;
	int begin;
};

static int send_at_once(void *arg)
{
	struct race *race = arg;

	while (!__atomic_load_n(&race->begin, __ATOMIC_ACQUIRE))
		;
	return send_once(race->channel);
}

USERLIB_TEST(L3_cancel_races_with_send)
{
	struct race race = { .channel = self->shared };
	struct counted_op counted = { 0 };
	struct runner sending, behind;
	int round, taken_back = 0;
	struct item item;

	ASSERT_EQ(0, memwait_channel_init(race.channel, sizeof(item), 2));
	for (round = 0; round < ROUNDS; round++) {
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(EINPROGRESS,
			  memwait_channel_recv_async(race.channel, &item, &counted.op));
		runner_start(&behind, receive_once, race.channel);
		runner_await_asleep(&behind);
		race.begin = 0;
		runner_start(&sending, send_at_once, &race);
		__atomic_store_n(&race.begin, 1, __ATOMIC_RELEASE);
		if (round % 2)
			memwait_loop_dispatch(self->loop);
		if (!memwait_op_cancel(&counted.op)) {
			taken_back++;
			ASSERT_EQ(0, counted.calls);
		} else {
			ASSERT_EQ(1, counted.calls);
			ASSERT_EQ(0, send_once(race.channel));
		}
		ASSERT_EQ(0, runner_join(&sending));
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, memwait_channel_length(race.channel));
	}
	EXPECT_LT(0, taken_back);
	EXPECT_EQ(0, memwait_channel_destroy(race.channel));
	TH_LOG("%d of %d taken back", taken_back, round);
}

static void nothing(int signal)
{
	(void)signal;
}

USERLIB_TEST(a_signal_does_not_interrupt_and_a_killed_receiver_takes_nothing)
{
	struct sigaction action = { .sa_handler = nothing };
	memwait_channel_t *channel = self->shared;
	struct runner behind;
	pid_t child;

	sigaction(SIGUSR1, &action, NULL);
	ASSERT_EQ(0, memwait_channel_init(channel, sizeof(struct item), 2));
	child = fork();
	ASSERT_LE(0, child);
	if (!child)
		_exit(receive_once(channel));
	await_asleep(child);
	runner_start(&behind, receive_once, channel);
	runner_await_asleep(&behind);
	pthread_kill(behind.thread, SIGUSR1);
	kill(child, SIGKILL);
	ASSERT_EQ(128 + SIGKILL, userlib_child_status(child));
	ASSERT_EQ(0, send_once(channel));
	EXPECT_EQ(0, runner_join(&behind));
	EXPECT_EQ(0, memwait_channel_length(channel));
}

TEST_HARNESS_MAIN
