// SPDX-License-Identifier: GPL-2.0
/* Channels: everything that is sent is received, once, in the order of each sender. */
#include "channel_test.h"

USERLIB_TEST(R5_many_senders_and_receivers_in_threads_and_a_loop)
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
			ASSERT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		}
		/* The two threads may need the loop to receive. */
		while (!runner_is_done(&sending[0]) || !runner_is_done(&sending[1])) {
			ASSERT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
			sched_yield();
		}
		for (i = 0; i < 2; i++)
			EXPECT_EQ(0, runner_join(&sending[i]));
		EXPECT_EQ(0, senders[2].result);
		ASSERT_EQ(0, memwait_channel_close(channel));
		ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
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

USERLIB_TEST(R8_processes)
{
	size_t size = memwait_channel_size(sizeof(struct item), 5);
	int memfd = new_file(size), i;
	struct receiver receiver = { 0 };
	memwait_channel_t *channel;
	pid_t children[SENDERS];

	channel = map_shared(memfd, size);
	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(struct item), 5));
	for (i = 0; i < SENDERS; i++) {
		children[i] = fork_child();
		if (!children[i]) {
			struct sender sender = { .number = i };

			sender.channel = map_shared(memfd, size);
			munmap(channel, size);
			_exit(send_all(&sender));
		}
	}
	receiver.channel = channel;
	begin_receiving(&receiver, self->loop);
	while (receiver.received < (long)SENDERS * ROUNDS) {
		struct pollfd pfd = { memwait_loop_fd(self->loop), POLLIN, 0 };

		poll(&pfd, 1, -1);
		ASSERT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	}
	for (i = 0; i < SENDERS; i++)
		EXPECT_EQ(0, child_status(children[i]));
	ASSERT_EQ(0, memwait_channel_close(channel));
	ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(EPIPE, receiver.result);
	EXPECT_EQ(0, receiver.violations);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
	munmap(channel, size);
	close(memfd);
}

/* No size but 0 is too small for the items, however large they are. */
USERLIB_TEST(R2_a_size_does_not_overflow)
{
	static const size_t largest[] = { SIZE_MAX, UINT32_MAX, SIZE_MAX / 2, UINT32_MAX / 2 };
	size_t i, less, capacity, size;

	for (i = 0; i < ARRAY_SIZE(largest); i++) {
		for (less = 0; less < 2 * 192; less++) {
			for (capacity = 1; capacity < 4; capacity++) {
				size = memwait_channel_size(largest[i] - less, capacity);
				ASSERT_TRUE(!size ||
					    (size - 1) / capacity >= largest[i] - less);
			}
		}
	}
}

USERLIB_TEST(R2_sizes_and_errors)
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
	EXPECT_EQ(0, memwait_channel_item_size(channel));
	EXPECT_EQ(0, memwait_channel_capacity(channel));
	EXPECT_EQ(0, memwait_channel_item_size(NULL));
	EXPECT_EQ(0, memwait_channel_capacity(NULL));
	EXPECT_EQ(EINVAL, memwait_channel_send(NULL, in));
	EXPECT_EQ(EINVAL, memwait_channel_recv_async(NULL, in, NULL));

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		ASSERT_EQ(0, memwait_channel_init(channel, 0, sizes[i], 3));
		EXPECT_EQ(sizes[i], memwait_channel_item_size(channel));
		EXPECT_EQ(3, memwait_channel_capacity(channel));
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

USERLIB_TEST(R5_items_of_every_size_arrive_whole)
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

USERLIB_TEST(R8_receiving_processes_that_map_it_elsewhere)
{
	size_t size = memwait_channel_size(sizeof(struct item), 3);
	int memfd = new_file(size), i;
	struct tally *tallies = self->shared;
	struct sender senders[2] = { 0 };
	memwait_channel_t *channel;
	struct runner sending;
	pid_t children[2];

	channel = map_shared(memfd, size);
	ASSERT_EQ(0, memwait_channel_init(channel, 0, sizeof(struct item), 3));
	for (i = 0; i < 2; i++) {
		children[i] = fork_child();
		if (!children[i]) {
			struct receiver receiver = { 0 };
			memwait_loop_t *loop;

			receiver.channel = map_shared(memfd, size);
			munmap(channel, size);
			if (i) {
				receiver.result = receive_all(&receiver);
			} else {
				if (memwait_loop_new(&loop, 0))
					_exit(1);
				begin_receiving(&receiver, loop);
				if (memwait_loop_run(loop, NULL, 0) || memwait_loop_close(loop))
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
	EXPECT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(0, runner_join(&sending));
	EXPECT_EQ(0, senders[1].result);
	EXPECT_EQ(2 * ROUNDS, senders[0].sent + senders[1].sent);
	ASSERT_EQ(0, memwait_channel_close(channel));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, child_status(children[i]));
		EXPECT_EQ(0, tallies[i].violations);
	}
	EXPECT_EQ(2L * ROUNDS, tallies[0].received + tallies[1].received);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
	munmap(channel, size);
	close(memfd);
}

USERLIB_TEST(R4_a_deadline_beyond_time_is_never)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct timed timed = { .channel = self->shared };
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner runner;
	uint64_t item;
	int i;

	ASSERT_EQ(0, memwait_channel_init(timed.channel, 0, sizeof(item), 1));
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
	}
	EXPECT_EQ(EINVAL, memwait_channel_send_async(timed.channel, NULL, &counted.op));
	EXPECT_EQ(EINVAL, memwait_channel_tryrecv(NULL, &item));
	EXPECT_EQ(EINVAL, memwait_channel_trysend(NULL, &item));
	EXPECT_EQ(EINVAL, memwait_channel_close(NULL));
	EXPECT_EQ(0, memwait_channel_destroy(timed.channel));
}

TEST_HARNESS_MAIN
