// SPDX-License-Identifier: GPL-2.0
/* Channels: everything that is sent is received, once, in the order of each sender. */

#include "userlib_test.h"
#include "ioctl_test.h"

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
		ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(struct item), capacities[c]));
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
	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(struct item), 5));
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
	EXPECT_EQ(EINVAL, memwait_channel_init(NULL, 0, 1, 1));
	EXPECT_EQ(EINVAL, memwait_channel_init(channel, 0, 0, 1));
	EXPECT_EQ(EINVAL, memwait_channel_init((void *)((char *)channel + 4), 0, 1, 1));
	/* Zeroed is not initialised. */
	EXPECT_EQ(EINVAL, memwait_channel_send(channel, in));
	EXPECT_EQ(EINVAL, memwait_channel_recv(channel, in));
	EXPECT_EQ(EINVAL, memwait_channel_close(channel));
	EXPECT_EQ(EINVAL, memwait_channel_destroy(channel));
	EXPECT_EQ(0, memwait_channel_length(channel));
	EXPECT_EQ(EINVAL, memwait_channel_send(NULL, in));
	EXPECT_EQ(EINVAL, memwait_channel_recv_async(NULL, in, NULL));

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		ASSERT_EQ(0, memwait_channel_init(channel, 0, sizes[i], 3));
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

	ASSERT_EQ(0, memwait_channel_init(channel, 0, 8, 3));
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

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 1));
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
		ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 1));
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
		ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(struct item), 1 + round % 4));
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

/* An item that a sender cannot read, or a receiver write, until it is let. */
static struct {
	void *page;
	int reached, let;
} obstacle;

static void hold_up(int signal)
{
	(void)signal;
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

static int send_obstacle(void *arg)
{
	return memwait_channel_send(arg, obstacle.page);
}

static int receive_obstacle(void *arg)
{
	return memwait_channel_recv(arg, obstacle.page);
}

/* What receivers sleep on: the half of a word that has head, behind a lock. Senders: tail. */
#define RECEIVERS_WORD	(64 + 8)
#define SENDERS_WORD	(128 + 8)

/* It is closed while a sender is under way. Those who wait are told when that one is done. */
USERLIB_TEST(receivers_of_a_closed_channel_do_not_wait_for_ever)
{
	memwait_channel_t *channel = self->shared;
	void *word = (char *)channel + RECEIVERS_WORD;
	struct runner receiving[3], sending;
	int i, received = 0, ended = 0, ret;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(struct item), 4));
	ASSERT_NE(MAP_FAILED, new_obstacle());
	for (i = 0; i < 3; i++)
		runner_start(&receiving[i], receive_once, channel);
	await_waiters(self->fd, word, U32_SIZE, 3);
	runner_start(&sending, send_obstacle, channel);
	while (!__atomic_load_n(&obstacle.reached, __ATOMIC_ACQUIRE))
		before_next_look();
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

/* One that is slow keeps others of its side waiting, and nothing of theirs is lost. */
USERLIB_TEST(those_behind_a_slow_one_get_theirs)
{
	memwait_channel_t *channel = self->shared;
	struct runner ahead, behind, waiting[2];
	int full, i;
	void *word;

	for (full = 0; full < 2; full++) {
		word = (char *)channel + (full ? SENDERS_WORD : RECEIVERS_WORD);
		ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(struct item), 2));
		for (i = 0; full && i < 2; i++)
			ASSERT_EQ(0, send_once(channel));
		ASSERT_NE(MAP_FAILED, new_obstacle());
		runner_start(&ahead, full ? receive_obstacle : send_obstacle, channel);
		while (!__atomic_load_n(&obstacle.reached, __ATOMIC_ACQUIRE))
			before_next_look();
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

USERLIB_TEST(a_signal_does_not_interrupt_and_a_killed_receiver_takes_nothing)
{
	struct sigaction action = { .sa_handler = nothing };
	memwait_channel_t *channel = self->shared;
	struct runner behind;
	pid_t child;

	sigaction(SIGUSR1, &action, NULL);
	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(struct item), 2));
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

/* Items of every size arrive whole, while both sides are at work. */
struct stream {
	memwait_channel_t *channel;
	size_t size;
	int items;
};

static int send_stream(void *arg)
{
	struct stream *stream = arg;
	unsigned char item[1000];
	int i, err = 0;

	for (i = 1; i <= stream->items && !err; i++) {
		memset(item, i, sizeof(item));
		err = memwait_channel_send(stream->channel, item);
	}
	return err;
}

USERLIB_TEST(items_of_every_size_arrive_whole)
{
	static const size_t sizes[] = { 1, 8, 24, 1000 }, capacities[] = { 1, 3 };
	struct stream stream = { .channel = self->shared, .items = ROUNDS / 4 };
	unsigned char item[1001];
	struct runner sender;
	size_t s, c, n;
	int i;

	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		for (c = 0; c < ARRAY_SIZE(capacities); c++) {
			stream.size = sizes[s];
			ASSERT_EQ(0, memwait_channel_init(stream.channel, 0, sizes[s],
							  capacities[c]));
			runner_start(&sender, send_stream, &stream);
			for (i = 1; i <= stream.items; i++) {
				memset(item, 0, sizeof(item));
				ASSERT_EQ(0, memwait_channel_recv(stream.channel, item));
				for (n = 0; n < sizes[s]; n++)
					ASSERT_EQ((unsigned char)i, item[n]);
				ASSERT_EQ(0, item[sizes[s]]);
				ASSERT_GE(capacities[c], memwait_channel_length(stream.channel));
			}
			ASSERT_EQ(0, runner_join(&sender));
			ASSERT_EQ(0, memwait_channel_length(stream.channel));
			ASSERT_EQ(0, memwait_channel_destroy(stream.channel));
		}
	}
}

/* What a receiving process has seen. */
struct tally {
	long received;
	int violations;
};

USERLIB_TEST(receiving_processes_that_map_it_elsewhere)
{
	size_t size = memwait_channel_size(sizeof(struct item), 3);
	int memfd = memfd_create("channel", MFD_CLOEXEC), i;
	struct tally *tallies = self->shared;
	struct sender senders[2] = { 0 };
	memwait_channel_t *channel;
	struct runner sending;
	pid_t children[2];

	ASSERT_LE(0, memfd);
	ASSERT_EQ(0, ftruncate(memfd, size));
	channel = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	ASSERT_NE(MAP_FAILED, channel);
	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(struct item), 3));
	for (i = 0; i < 2; i++) {
		children[i] = fork();
		ASSERT_LE(0, children[i]);
		if (!children[i]) {
			struct receiver receiver = { 0 };
			memwait_loop_t *loop;

			receiver.channel = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
						memfd, 0);
			munmap(channel, size);
			if (i) {
				receiver.result = receive_all(&receiver);
			} else {
				if (memwait_loop_new(&loop))
					_exit(1);
				begin_receiving(&receiver, loop);
				if (memwait_loop_run(loop) || memwait_loop_free(loop))
					_exit(2);
			}
			tallies[i].received = receiver.received;
			tallies[i].violations = receiver.violations;
			_exit(receiver.result == EPIPE ? 0 : 3);
		}
	}
	for (i = 0; i < 2; i++) {
		senders[i].channel = channel;
		senders[i].number = (uint32_t)i;
	}
	runner_start(&sending, send_all, &senders[0]);
	begin_sending(&senders[1], self->loop);
	EXPECT_EQ(0, memwait_loop_run(self->loop));
	EXPECT_EQ(0, runner_join(&sending));
	EXPECT_EQ(0, senders[1].result);
	EXPECT_EQ(2 * ROUNDS, senders[0].sent + senders[1].sent);
	ASSERT_EQ(0, memwait_channel_close(channel));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, userlib_child_status(children[i]));
		EXPECT_EQ(0, tallies[i].violations);
	}
	EXPECT_EQ(2L * ROUNDS, tallies[0].received + tallies[1].received);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
	munmap(channel, size);
	close(memfd);
}

struct timed {
	memwait_channel_t *channel;
	struct timespec time;
	clockid_t clock;
	uint64_t item;
};

static int receive_timed(void *arg)
{
	struct timed *timed = arg;

	return memwait_channel_clockrecv(timed->channel, &timed->item, timed->clock,
					 &timed->time);
}

static int send_timed(void *arg)
{
	struct timed *timed = arg;

	return memwait_channel_clocksend(timed->channel, &timed->item, timed->clock,
					 &timed->time);
}

USERLIB_TEST(a_deadline_beyond_time_is_never)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct timed timed = { .channel = self->shared };
	struct counted_op counted = { 0 };
	struct runner runner;
	uint64_t item;
	int i;

	ASSERT_EQ(0, memwait_channel_init(timed.channel, 0, sizeof(item), 1));
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (i = 0; i < 2; i++) {
		timed.clock = clocks[i];
		timed.time = (struct timespec){ TIME_MAX, 999999999 };
		runner_start(&runner, receive_timed, &timed);
		runner_await_asleep(&runner);
		EXPECT_FALSE(runner_is_done(&runner));
		item = 5;
		ASSERT_EQ(0, memwait_channel_send(timed.channel, &item));
		EXPECT_EQ(0, runner_join(&runner));
		EXPECT_EQ(5, timed.item);

		ASSERT_EQ(0, memwait_channel_send(timed.channel, &item));
		timed.item = 6;
		runner_start(&runner, send_timed, &timed);
		runner_await_asleep(&runner);
		EXPECT_FALSE(runner_is_done(&runner));
		EXPECT_EQ(0, memwait_channel_recv(timed.channel, &item));
		EXPECT_EQ(0, runner_join(&runner));
		EXPECT_EQ(0, memwait_channel_recv(timed.channel, &item));
		EXPECT_EQ(6, item);

		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS, memwait_channel_clockrecv_async(timed.channel, &timed.item,
								       clocks[i], &timed.time,
								       &counted.op));
		item = 7;
		ASSERT_EQ(0, memwait_channel_send(timed.channel, &item));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		EXPECT_EQ(7, timed.item);

		/* Before 1970. */
		timed.time = (struct timespec){ -1, 0 };
		EXPECT_EQ(ETIMEDOUT, receive_timed(&timed));
		EXPECT_EQ(ETIMEDOUT, memwait_channel_clockrecv_async(timed.channel, &timed.item,
								     clocks[i], &timed.time,
								     &counted.op));
		timed.time = (struct timespec){ 0, 1000000000 };
		EXPECT_EQ(EINVAL, receive_timed(&timed));
		EXPECT_EQ(EINVAL, memwait_channel_clockrecv_async(timed.channel, &timed.item,
								  clocks[i], &timed.time,
								  &counted.op));
		/* Not needed, not looked at. */
		EXPECT_EQ(0, send_timed(&timed));
		EXPECT_EQ(EINVAL, send_timed(&timed));
		EXPECT_EQ(EINVAL, memwait_channel_clocksend_async(timed.channel, &timed.item,
								  clocks[i], &timed.time,
								  &counted.op));
		EXPECT_EQ(0, receive_timed(&timed));
	}
	EXPECT_EQ(EINVAL, memwait_channel_clockrecv(timed.channel, &item, CLOCK_MONOTONIC, NULL));
	EXPECT_EQ(EINVAL, memwait_channel_clocksend(timed.channel, &item, CLOCK_MONOTONIC, NULL));
	EXPECT_EQ(EINVAL, memwait_channel_timedrecv(NULL, &item, &timed.time));
	EXPECT_EQ(EINVAL, memwait_channel_timedsend(NULL, &item, &timed.time));
	EXPECT_EQ(EINVAL, memwait_channel_clockrecv(timed.channel, &item, CLOCK_PROCESS_CPUTIME_ID,
						    &timed.time));
	EXPECT_EQ(EINVAL, memwait_channel_send_async(timed.channel, &item, NULL));
	EXPECT_EQ(EINVAL, memwait_channel_send_async(timed.channel, NULL, &counted.op));
	EXPECT_EQ(EINVAL, memwait_channel_tryrecv(NULL, &item));
	EXPECT_EQ(EINVAL, memwait_channel_trysend(NULL, &item));
	EXPECT_EQ(EINVAL, memwait_channel_close(NULL));
	EXPECT_EQ(EINVAL, memwait_channel_destroy(NULL));
	EXPECT_EQ(0, memwait_channel_destroy(timed.channel));
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

USERLIB_TEST(close_races_with_operations_and_threads)
{
	struct closing closing = { .channel = self->shared };
	struct runner closer, sending, receiving;
	struct receiver receivers[2];
	struct sender senders[2];
	int round, i, err;

	for (round = 0; round < ROUNDS / 8; round++) {
		ASSERT_EQ(0, memwait_channel_init(closing.channel, 0, sizeof(struct item),
						  1 + round % 4));
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
		ASSERT_EQ(0, memwait_loop_run(self->loop));
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

/* Returns 0, or where it went wrong. */
static int use_as_child(memwait_channel_t *channel, memwait_loop_t *loop_of_parent)
{
	struct counted_op counted = { 0 };
	memwait_loop_t *loop;
	uint64_t item = 0;
	int ret;

	memwait_op_init(&counted.op, loop_of_parent, count_call, &counted);
	if (memwait_channel_recv_async(channel, &item, &counted.op) != EPERM ||
	    memwait_channel_send_async(channel, &item, &counted.op) != EPERM)
		return 1;
	if (memwait_channel_recv(channel, &item) || item != 1)
		return 2;
	if (memwait_loop_new(&loop))
		return 3;
	memwait_op_init(&counted.op, loop, count_call, &counted);
	ret = memwait_channel_recv_async(channel, &item, &counted.op);
	if (ret == EINPROGRESS) {
		if (dispatch_until(loop, &counted.calls, 1))
			return 4;
		ret = counted.result;
	}
	if (ret || item != 2)
		return 5;
	item = 3;
	return memwait_channel_send(channel, &item) || memwait_loop_free(loop) ? 6 : 0;
}

USERLIB_TEST(L1_a_child_uses_the_channel_and_not_the_loop)
{
	memwait_channel_t *channel = self->shared;
	uint64_t item;
	pid_t child;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 1));
	child = fork();
	ASSERT_LE(0, child);
	if (!child)
		_exit(use_as_child(channel, self->loop));
	await_asleep(child);
	for (item = 1; item <= 2; item++)
		ASSERT_EQ(0, memwait_channel_send(channel, &item));
	EXPECT_EQ(0, userlib_child_status(child));
	EXPECT_EQ(0, memwait_channel_recv(channel, &item));
	EXPECT_EQ(3, item);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
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
		child = fork();
		ASSERT_LE(0, child);
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
			for (;;)
				pause();
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
		kill(child, SIGKILL);
		ASSERT_EQ(128 + SIGKILL, userlib_child_status(child));
		ASSERT_EQ(0, runner_join(&behind));
		EXPECT_EQ(sending, memwait_channel_length(channel));
		if (sending) {
			ASSERT_EQ(0, memwait_channel_recv(channel, &got));
			EXPECT_EQ(1, got.sender);
		}
	}
}

/*
 * Notifies, with or without a change of the word, are counted, can fail, and something can happen
 * between what the kernel did and the library's learning of it.
 */
static struct {
	int notifies;
	int error;		/* of every notify, which then does nothing; or 0 */
	void (*then)(void *arg);
	void *arg;
	int hold;		/* who has waited does not return while this is set */
} kernel;

static int intercept(int fd, unsigned long request, void *argument)
{
	bool is_notify = request == MEMWAIT_IOC_NOTIFY || request == MEMWAIT_IOC_CHANGE_NOTIFY;
	void (*then)(void *arg);
	int ret;

	if (is_notify) {
		__atomic_fetch_add(&kernel.notifies, 1, __ATOMIC_RELAXED);
		if (kernel.error) {
			errno = kernel.error;
			return -1;
		}
	}
	ret = ioctl_of_kernel(fd, request, argument);
	if (is_notify && kernel.then) {
		then = kernel.then;
		kernel.then = NULL;
		then(kernel.arg);
	}
	while (request == MEMWAIT_IOC_WAIT && __atomic_load_n(&kernel.hold, __ATOMIC_ACQUIRE))
		before_next_look();
	return ret;
}

/* A channel, an operation that receives from it, and what it got. */
struct receiving {
	struct counted_op counted;
	memwait_channel_t *channel;
	memwait_loop_t *loop;
	uint64_t item;
};

static int receiving_begin(struct receiving *receiving, memwait_channel_t *channel,
			   memwait_loop_t *loop)
{
	memset(receiving, 0, sizeof(*receiving));
	receiving->channel = channel;
	receiving->loop = loop;
	memwait_op_init(&receiving->counted.op, loop, count_call, &receiving->counted);
	return memwait_channel_recv_async(channel, &receiving->item, &receiving->counted.op);
}

static int send_number(memwait_channel_t *channel, uint64_t number)
{
	return memwait_channel_send(channel, &number);
}

USERLIB_TEST(who_was_woken_is_not_notified_once_more)
{
	memwait_channel_t *channel = self->shared;
	struct receiving receiving;
	uint64_t item;
	int i;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 8));
	for (i = 1; i <= 3; i++) {
		ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving, channel, self->loop));
		kernel.notifies = 0;
		for (item = 1; item <= 4; item++)
			ASSERT_EQ(0, send_number(channel, item));
		EXPECT_EQ(1, kernel.notifies);
		ASSERT_EQ(0, dispatch_until(self->loop, &receiving.counted.calls, 1));
		EXPECT_EQ(1, receiving.item);
		while (!memwait_channel_tryrecv(channel, &item))
			;
		EXPECT_EQ(4, item);
		/* And who is not there at all is not notified. */
		kernel.notifies = 0;
		ASSERT_EQ(0, send_number(channel, 5));
		ASSERT_EQ(0, memwait_channel_recv(channel, &item));
		EXPECT_EQ(0, kernel.notifies);
	}
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(a_sender_that_was_woken_is_not_notified_once_more)
{
	memwait_channel_t *channel = self->shared;
	struct counted_op counted = { 0 };
	uint64_t item, mine = 5;
	int i;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 4));
	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	for (i = 1; i <= 4; i++)
		ASSERT_EQ(0, send_number(channel, i));
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, &mine, &counted.op));
	kernel.notifies = 0;
	for (i = 1; i <= 3; i++) {
		ASSERT_EQ(0, memwait_channel_recv(channel, &item));
		EXPECT_EQ(i, item);
	}
	EXPECT_EQ(1, kernel.notifies);
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	for (i = 4; i <= 5; i++) {
		ASSERT_EQ(0, memwait_channel_recv(channel, &item));
		EXPECT_EQ(i, item);
	}
	EXPECT_EQ(1, kernel.notifies);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(who_has_left_is_not_notified)
{
	memwait_channel_t *channel = self->shared;
	struct receiving receiving;
	struct timespec time;
	uint64_t item;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 8));
	time = in_time(CLOCK_MONOTONIC, 10);
	ASSERT_EQ(ETIMEDOUT,
		  memwait_channel_clockrecv(channel, &item, CLOCK_MONOTONIC, &time));
	ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving, channel, self->loop));
	ASSERT_EQ(0, memwait_op_cancel(&receiving.counted.op));
	kernel.notifies = 0;
	/* So this does not fail after its item was sent. */
	kernel.error = ENOMEM;
	EXPECT_EQ(0, send_number(channel, 1));
	kernel.error = 0;
	EXPECT_EQ(0, kernel.notifies);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(a_thread_that_was_woken_is_not_notified_once_more)
{
	memwait_channel_t *channel = self->shared;
	struct timed timed = { .channel = channel, .time = { TIME_MAX, 0 } };
	struct runner runner;
	uint64_t item;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 8));
	__atomic_store_n(&kernel.hold, 1, __ATOMIC_RELEASE);
	runner_start(&runner, receive_timed, &timed);
	await_waiters(self->fd, (char *)channel + RECEIVERS_WORD, U32_SIZE, 1);
	kernel.notifies = 0;
	for (item = 1; item <= 4; item++)
		ASSERT_EQ(0, send_number(channel, item));
	EXPECT_EQ(1, kernel.notifies);
	__atomic_store_n(&kernel.hold, 0, __ATOMIC_RELEASE);
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(1, timed.item);
	EXPECT_EQ(3, memwait_channel_length(channel));
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

/* Somebody else was faster; the one who was woken sleeps again. */
static void take_and_let_wait_again(void *arg)
{
	struct receiving *receiving = arg;
	uint64_t item;

	if (memwait_channel_tryrecv(receiving->channel, &item) ||
	    memwait_loop_dispatch(receiving->loop) < 0 || receiving->counted.calls)
		abort();
}

USERLIB_TEST(who_goes_on_waiting_is_notified_again)
{
	memwait_channel_t *channel = self->shared;
	struct receiving receiving;
	int i;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(receiving.item), 8));
	ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving, channel, self->loop));
	kernel.notifies = 0;
	for (i = 1; i <= 3; i++) {
		ASSERT_EQ(0, send_number(channel, i));
		ASSERT_EQ(i, kernel.notifies);
		take_and_let_wait_again(&receiving);
	}
	ASSERT_EQ(0, send_number(channel, 4));
	ASSERT_EQ(4, kernel.notifies);
	ASSERT_EQ(0, dispatch_until(self->loop, &receiving.counted.calls, 1));
	EXPECT_EQ(4, receiving.item);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

/* And others come and go, so that as many have armed as there are stamps, or twice as many. */
static void come_and_go(void *arg)
{
	struct receiving *receiving = arg;
	struct timespec past = in_time(CLOCK_MONOTONIC, -1);
	uint64_t item;
	int i;

	take_and_let_wait_again(receiving);
	for (i = 0; i < 2 * 512 - 1; i++) {
		if (memwait_channel_clockrecv(receiving->channel, &item, CLOCK_MONOTONIC, &past) !=
		    ETIMEDOUT)
			abort();
	}
}

/* The same, before the sender has learnt that it has woken the only one. */
USERLIB_TEST(who_waits_again_while_it_is_notified_is_notified_again)
{
	void (*const happens[])(void *arg) = { take_and_let_wait_again, come_and_go };
	memwait_channel_t *channel = self->shared;
	struct receiving receiving;
	size_t i;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(receiving.item), 8));
	for (i = 0; i < ARRAY_SIZE(happens); i++) {
		ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving, channel, self->loop));
		kernel.notifies = 0;
		kernel.arg = &receiving;
		kernel.then = happens[i];
		ASSERT_EQ(0, send_number(channel, 1));
		ASSERT_EQ(1, kernel.notifies);
		ASSERT_EQ(0, send_number(channel, 2));
		ASSERT_EQ(2, kernel.notifies);
		ASSERT_EQ(0, dispatch_until(self->loop, &receiving.counted.calls, 1));
		EXPECT_EQ(2, receiving.item);
	}
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

/* And so if it has not armed for as many positions as there are stamps. */
USERLIB_TEST(who_waits_again_long_after_it_has_armed_is_notified_again)
{
	memwait_channel_t *channel = self->shared;
	struct receiving receiving;
	uint64_t item;
	int i;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 8));
	ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving, channel, self->loop));
	kernel.error = ENOMEM;
	for (i = 1; i < 512; i++) {
		ASSERT_EQ(ENOMEM, send_number(channel, i));
		ASSERT_EQ(0, memwait_channel_tryrecv(channel, &item));
	}
	kernel.error = 0;
	kernel.arg = &receiving;
	kernel.then = take_and_let_wait_again;
	ASSERT_EQ(0, send_number(channel, 1));
	kernel.notifies = 0;
	ASSERT_EQ(0, send_number(channel, 2));
	ASSERT_EQ(1, kernel.notifies);
	ASSERT_EQ(0, dispatch_until(self->loop, &receiving.counted.calls, 1));
	EXPECT_EQ(2, receiving.item);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

/* As long as more than one waits, each item is for the next one who sleeps. */
USERLIB_TEST(each_of_several_is_notified)
{
	memwait_channel_t *channel = self->shared;
	struct receiving receiving[3];
	uint64_t item;
	int i;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 8));
	for (i = 0; i < 3; i++)
		ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving[i], channel, self->loop));
	kernel.notifies = 0;
	for (i = 1; i <= 3; i++) {
		ASSERT_EQ(0, send_number(channel, i));
		ASSERT_EQ(i, kernel.notifies);
	}
	/* The next one finds nobody asleep, and those after it need not look. */
	for (i = 4; i <= 6; i++) {
		ASSERT_EQ(0, send_number(channel, i));
		EXPECT_EQ(4, kernel.notifies);
	}
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, dispatch_until(self->loop, &receiving[i].counted.calls, 1));
		EXPECT_EQ(i + 1, receiving[i].item);
	}
	for (i = 4; i <= 6; i++) {
		ASSERT_EQ(0, memwait_channel_recv(channel, &item));
		EXPECT_EQ(i, item);
	}
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(who_could_not_be_notified_is_notified_next_time)
{
	const int errors[] = { ENOMEM, EFAULT };
	memwait_channel_t *channel = self->shared;
	struct receiving receiving;
	uint64_t item;
	size_t i;

	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(item), 8));
	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving, channel, self->loop));
		kernel.error = errors[i];
		EXPECT_EQ(errors[i], send_number(channel, 1));
		kernel.error = 0;
		kernel.notifies = 0;
		EXPECT_EQ(0, send_number(channel, 2));
		ASSERT_EQ(1, kernel.notifies);
		ASSERT_EQ(0, dispatch_until(self->loop, &receiving.counted.calls, 1));
		EXPECT_EQ(1, receiving.item);
		EXPECT_EQ(0, memwait_channel_recv(channel, &item));
		EXPECT_EQ(2, item);
	}
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

/* How many wait to receive is counted in 22 bits of the word that has head, above 33. */
USERLIB_TEST(no_more_wait_than_can_be_counted)
{
	memwait_channel_t *channel = self->shared;
	uint64_t *event = (void *)((char *)channel + 64 + 8);
	const uint64_t one = 1ULL << 33, most = ((1 << 22) - 1) * one;
	struct receiving receiving;
	uint64_t item;

	ASSERT_EQ(0, memwait_channel_init(channel, MEMWAIT_PRIVATE, sizeof(item), 8));
	*event = most;
	EXPECT_EQ(ENOMEM, memwait_channel_recv(channel, &item));
	EXPECT_EQ(ENOMEM, receiving_begin(&receiving, channel, self->loop));
	EXPECT_EQ(most, *event);
	EXPECT_EQ(EBUSY, memwait_channel_destroy(channel));
	EXPECT_EQ(0, send_number(channel, 1));
	EXPECT_EQ(0, memwait_channel_recv(channel, &item));
	/* One more, who may arm as often as it likes. */
	*event -= one;
	ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving, channel, self->loop));
	EXPECT_EQ(most, *event & most);
	EXPECT_EQ(ENOMEM, memwait_channel_recv(channel, &item));
	ASSERT_EQ(0, send_number(channel, 2));
	take_and_let_wait_again(&receiving);
	ASSERT_EQ(0, send_number(channel, 3));
	ASSERT_EQ(0, dispatch_until(self->loop, &receiving.counted.calls, 1));
	EXPECT_EQ(3, receiving.item);
	EXPECT_EQ(most - one, *event & most);
	*event &= ~most;
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

TEST_HARNESS_MAIN
