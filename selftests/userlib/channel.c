// SPDX-License-Identifier: GPL-2.0
/* Channels: each item that is sent is received once, in the order of its sender. */
#include "channel_test.h"
#include <sys/ptrace.h>

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
		ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(struct item),
						  capacities[c]));
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
		/* The two threads may need the loop to receive their items. */
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

USERLIB_TEST(R8_processes_share_a_channel)
{
	size_t size = memwait_channel_size(sizeof(struct item), 5);
	int memfd = new_file(size), i;
	struct receiver receiver = { 0 };
	memwait_channel_t *channel;
	pid_t children[SENDERS];

	channel = map_shared(memfd, size);
	ASSERT_EQ(0, memwait_channel_init(channel, size, 0, sizeof(struct item), 5));
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

/* Every size except 0 is large enough; the size of the items does not overflow. */
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
	size_t i, n, size;

	EXPECT_EQ(0, memwait_channel_size(0, 1));
	EXPECT_EQ(0, memwait_channel_size(1, 0));
	EXPECT_EQ(0, memwait_channel_size((size_t)(1ULL << 32), 1));
	EXPECT_EQ(0, memwait_channel_size(1, (size_t)(1ULL << 32)));
	EXPECT_LT(0, memwait_channel_size(1, 1));
	EXPECT_EQ(EINVAL, memwait_channel_init(NULL, SHARED_SIZE, 0, 1, 1));
	EXPECT_EQ(EINVAL, memwait_channel_init(channel, SHARED_SIZE, 0, 0, 1));
	EXPECT_EQ(EINVAL, memwait_channel_init(channel, 0, 0, 1, 1));
	EXPECT_EQ(EINVAL, memwait_channel_init((void *)((char *)channel + 4), SHARED_SIZE - 4, 0,
					       1, 1));

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		size = sizes[i];
		n = memwait_channel_size(size, 3);
		EXPECT_EQ(EINVAL, memwait_channel_init(channel, n - 1, 0, size, 3));
		/* The channel was not initialised by that call. */
		EXPECT_EQ(EINVAL, memwait_channel_trysend(channel, in, size));
		ASSERT_EQ(0, memwait_channel_init(channel, n, 0, size, 3));
		EXPECT_EQ(EINVAL, memwait_channel_send(channel, NULL, size));
		EXPECT_EQ(EINVAL, memwait_channel_recv(channel, NULL, size));
		EXPECT_EQ(EAGAIN, memwait_channel_tryrecv(channel, out, size));
		for (n = 0; n < 10; n++) {
			memset(in, (int)n + 1, sizeof(in));
			ASSERT_EQ(0, memwait_channel_trysend(channel, in, size));
			ASSERT_EQ(0, memwait_channel_send(channel, in, size));
			memset(out, 0, sizeof(out));
			ASSERT_EQ(0, memwait_channel_tryrecv(channel, out, size));
			ASSERT_EQ(0, memcmp(in, out, size));
			ASSERT_TRUE(size == 1000 || !out[size]);
			ASSERT_EQ(0, memwait_channel_recv(channel, out, size));
		}
		for (n = 0; n < 3; n++) {
			EXPECT_EQ(n, memwait_channel_length(channel));
			ASSERT_EQ(0, memwait_channel_trysend(channel, in, size));
		}
		EXPECT_EQ(EAGAIN, memwait_channel_trysend(channel, in, size));
		EXPECT_EQ(3, memwait_channel_length(channel));
		ASSERT_EQ(0, memwait_channel_close(channel));
		EXPECT_EQ(0, memwait_channel_close(channel));
		EXPECT_EQ(EPIPE, memwait_channel_trysend(channel, in, size));
		EXPECT_EQ(EPIPE, memwait_channel_send(channel, in, size));
		for (n = 0; n < 3; n++)
			EXPECT_EQ(0, memwait_channel_recv(channel, out, size));
		/* There is room again, but the channel is closed. */
		EXPECT_EQ(EPIPE, memwait_channel_trysend(channel, in, size));
		EXPECT_EQ(EPIPE, memwait_channel_send(channel, in, size));
		EXPECT_EQ(EPIPE, memwait_channel_recv(channel, out, size));
		EXPECT_EQ(EPIPE, memwait_channel_tryrecv(channel, out, size));
		EXPECT_EQ(0, memwait_channel_close(channel));
		EXPECT_EQ(0, memwait_channel_destroy(channel));
		EXPECT_EQ(EINVAL, memwait_channel_trysend(channel, in, size));
	}
}

/* Arguments for all functions of a channel. */
struct arguments {
	memwait_channel_t *channel;
	void *item;
	size_t size;
	memwait_op_t *op;
};

static const struct timespec long_ago;

#define TRANSFERS(name)								\
static int call_##name(const struct arguments *with)				\
{										\
	return memwait_channel_##name(with->channel, with->item, with->size);	\
}										\
static int call_try##name(const struct arguments *with)				\
{										\
	return memwait_channel_try##name(with->channel, with->item, with->size);	\
}										\
static int call_timed##name(const struct arguments *with)			\
{										\
	return memwait_channel_timed##name(with->channel, with->item, with->size,	\
					   &long_ago);				\
}										\
static int call_clock##name(const struct arguments *with)			\
{										\
	return memwait_channel_clock##name(with->channel, with->item, with->size,	\
					   CLOCK_MONOTONIC, &long_ago);		\
}										\
static int call_##name##_async(const struct arguments *with)			\
{										\
	return memwait_channel_##name##_async(with->channel, with->item, with->size,	\
					      with->op);			\
}										\
static int call_clock##name##_async(const struct arguments *with)		\
{										\
	return memwait_channel_clock##name##_async(with->channel, with->item, with->size, \
						   CLOCK_MONOTONIC, &long_ago, with->op); \
}

TRANSFERS(send)
TRANSFERS(recv)

static int call_close(const struct arguments *with)
{
	return memwait_channel_close(with->channel);
}

static int call_destroy(const struct arguments *with)
{
	return memwait_channel_destroy(with->channel);
}

static int call_attach(const struct arguments *with)
{
	size_t item_size, capacity;

	return memwait_channel_attach(with->channel, SHARED_SIZE, &item_size, &capacity);
}

static int call_length(const struct arguments *with)
{
	return memwait_channel_length(with->channel) ? 0 : EINVAL;
}

#define FUNCTION(name)		{ #name, call_##name, false }
#define TRANSFER(name)		{ #name, call_##name, true }

static const struct function {
	const char *name;
	int (*call)(const struct arguments *with);
	bool transfers;
} functions[] = {
	TRANSFER(send), TRANSFER(trysend), TRANSFER(timedsend), TRANSFER(clocksend),
	TRANSFER(send_async), TRANSFER(clocksend_async),
	TRANSFER(recv), TRANSFER(tryrecv), TRANSFER(timedrecv), TRANSFER(clockrecv),
	TRANSFER(recv_async), TRANSFER(clockrecv_async),
	FUNCTION(close), FUNCTION(attach), FUNCTION(length), FUNCTION(destroy),
};

/* Words of a channel; see words_of_channels in layout.c. */
enum { ITEM_SIZE, CAPACITY, SLOT_SIZE, FLAGS = 4, MASK, LAYOUT, RESERVED = 8 };

/* Each call returns @result and does nothing. */
static void check_refused(struct __test_metadata *_metadata, const struct arguments *with,
			  bool transfers_only, int result)
{
	static char before[4096];
	size_t i;

	memcpy(before, with->channel, sizeof(before));
	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		if (transfers_only && !functions[i].transfers)
			continue;
		EXPECT_EQ(result, functions[i].call(with))
			TH_LOG("%s", functions[i].name);
	}
	EXPECT_EQ(0, memcmp(before, with->channel, sizeof(before)));
}

/*
 * The channel has an item and a free slot, so that each call would succeed if it were not rejected.
 */
static void make_half_full(struct __test_metadata *_metadata, const struct arguments *with,
			   unsigned int flags)
{
	ASSERT_EQ(0, memwait_channel_init(with->channel, SHARED_SIZE, flags, with->size, 2));
	ASSERT_EQ(0, memwait_channel_send(with->channel, with->item, with->size));
}

USERLIB_TEST(L13_channels_of_unknown_kinds_are_refused)
{
	static const struct {
		int word;
		uint32_t bits;
	} unknown[] = {
		{ FLAGS, 1 }, { FLAGS, 0x40 }, { FLAGS, 0x100 }, { FLAGS, 1U << 31 },
		{ FLAGS, ~(uint32_t)MEMWAIT_PRIVATE }, { RESERVED, 1 }, { RESERVED, 1U << 31 },
		{ RESERVED + 1, 1 }, { RESERVED + 1, 1U << 31 }, { LAYOUT, 1 }, { LAYOUT, 3 },
		{ LAYOUT, 1U << 31 },
	};
	struct counted_op counted = counted_by(&counted, self->loop);
	uint64_t item = 1;
	const struct arguments with = { self->shared, &item, sizeof(item), &counted.op };
	const struct arguments none = { NULL, &item, sizeof(item), &counted.op };
	uint32_t *words = self->shared;
	unsigned int flags;
	size_t i;

	/* Zeroed memory is not an initialised channel. */
	check_refused(_metadata, &with, false, EINVAL);
	for (i = 0; i < ARRAY_SIZE(functions); i++)
		EXPECT_EQ(EINVAL, functions[i].call(&none));
	for (flags = 0; flags <= MEMWAIT_PRIVATE; flags += MEMWAIT_PRIVATE) {
		for (i = 0; i < ARRAY_SIZE(unknown); i++) {
			TH_LOG("flags 0x%x, word %d, 0x%x", flags, unknown[i].word,
			       unknown[i].bits);
			make_half_full(_metadata, &with, flags);
			words[unknown[i].word] ^= unknown[i].bits;
			check_refused(_metadata, &with, false, EINVAL);
			words[unknown[i].word] ^= unknown[i].bits;
			EXPECT_EQ(0, memwait_channel_destroy(with.channel));
		}
	}
}

USERLIB_TEST(R2_an_item_of_another_size_is_not_transferred)
{
	static const size_t sizes[] = {
		0, 1, 7, 9, 16, SIZE_MAX, (size_t)(8 + (1ULL << 32)), (size_t)(8 + (1ULL << 63)),
	};
	struct counted_op counted = counted_by(&counted, self->loop);
	uint64_t item[2] = { 1, 2 };
	struct arguments with = { self->shared, item, sizeof(item[0]), &counted.op };
	size_t i;

	make_half_full(_metadata, &with, 0);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		with.size = sizes[i];
		/* Some of the wrong sizes have the right size in their lower 32 bits. */
		if (sizes[i] != sizeof(item[0]))
			check_refused(_metadata, &with, true, EMSGSIZE);
	}
	EXPECT_EQ(1, item[0]);
	EXPECT_EQ(2, item[1]);
	ASSERT_EQ(0, memwait_channel_close(with.channel));
	with.size = 1;
	check_refused(_metadata, &with, true, EMSGSIZE);
	EXPECT_EQ(0, memwait_channel_destroy(with.channel));
}

/*
 * A channel must lie within the memory that its user has mapped, regardless of the contents of its
 * words.
 */
USERLIB_TEST(R2_only_a_complete_channel_can_be_attached)
{
	static const int wrong[] = { ITEM_SIZE, CAPACITY, SLOT_SIZE, SLOT_SIZE + 1, MASK };
	const size_t size = memwait_channel_size(24, 5);
	memwait_channel_t *channel = self->shared;
	size_t item_size = 1, capacity = 2, i;
	uint32_t *words = self->shared, was;

	ASSERT_EQ(0, memwait_channel_init(channel, size, 0, 24, 5));
	for (i = 0; i < size; i++)
		EXPECT_EQ(EINVAL, memwait_channel_attach(channel, i, &item_size, &capacity));
	EXPECT_EQ(EINVAL, memwait_channel_attach(channel, size, NULL, &capacity));
	EXPECT_EQ(EINVAL, memwait_channel_attach(channel, size, &item_size, NULL));
	EXPECT_EQ(EINVAL, memwait_channel_attach((void *)((char *)channel + 4), size, &item_size,
						 &capacity));
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		was = words[wrong[i]];
		words[wrong[i]] = was ? 0 : 1;
		EXPECT_EQ(EINVAL, memwait_channel_attach(channel, SIZE_MAX, &item_size, &capacity));
		words[wrong[i]] = was + 8;
		EXPECT_EQ(EINVAL, memwait_channel_attach(channel, size, &item_size, &capacity));
		words[wrong[i]] = was;
	}
	EXPECT_EQ(1, item_size);
	EXPECT_EQ(2, capacity);
	for (i = size; i < size + 2; i++) {
		item_size = 0;
		capacity = 0;
		EXPECT_EQ(0, memwait_channel_attach(channel, i, &item_size, &capacity));
		EXPECT_EQ(24, item_size);
		EXPECT_EQ(5, capacity);
	}
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(memory_aligned_to_8_bytes_is_sufficient)
{
	memwait_channel_t *channel = (void *)((char *)self->shared + 8);
	uint64_t item = 1;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE - 8, 0, 8, 3));
	ASSERT_EQ(0, memwait_channel_send(channel, &item, sizeof(item)));
	ASSERT_EQ(0, memwait_channel_recv(channel, &item, sizeof(item)));
	ASSERT_EQ(0, memwait_channel_destroy(channel));
}

/* Items of every size arrive complete while both sides are active. */
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
		err = memwait_channel_send(stream->channel, item, stream->size);
	}
	return err;
}

USERLIB_TEST(R5_items_of_every_size_arrive_complete)
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
			ASSERT_EQ(0, memwait_channel_init(stream.channel, SHARED_SIZE, 0,
							  sizes[s], capacities[c]));
			runner_start(&sender, send_stream, &stream);
			for (i = 1; i <= stream.items; i++) {
				memset(item, 0, sizeof(item));
				ASSERT_EQ(0, memwait_channel_recv(stream.channel, item, sizes[s]));
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

/* Statistics of one receiving process. */
struct tally {
	long received;
	int violations;
};

USERLIB_TEST(R8_receiving_processes_that_map_it_at_other_addresses)
{
	size_t size = memwait_channel_size(sizeof(struct item), 3);
	int memfd = new_file(size), i;
	struct tally *tallies = self->shared;
	struct sender senders[2] = { 0 };
	memwait_channel_t *channel;
	struct runner sending;
	pid_t children[2];

	channel = map_shared(memfd, size);
	ASSERT_EQ(0, memwait_channel_init(channel, size, 0, sizeof(struct item), 3));
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

	ASSERT_EQ(0, memwait_channel_init(timed.channel, SHARED_SIZE, 0, sizeof(item), 1));
	for (i = 0; i < 2; i++) {
		timed.clock = clocks[i];
		timed.time = (struct timespec){ TIME_MAX, 999999999 };
		runner_start(&runner, receive_timed, &timed);
		runner_await_asleep(&runner);
		EXPECT_FALSE(runner_is_done(&runner));
		item = 5;
		ASSERT_EQ(0, memwait_channel_send(timed.channel, &item, sizeof(item)));
		EXPECT_EQ(0, runner_join(&runner));
		EXPECT_EQ(5, timed.item);

		ASSERT_EQ(0, memwait_channel_send(timed.channel, &item, sizeof(item)));
		timed.item = 6;
		runner_start(&runner, send_timed, &timed);
		runner_await_asleep(&runner);
		EXPECT_FALSE(runner_is_done(&runner));
		EXPECT_EQ(0, memwait_channel_recv(timed.channel, &item, sizeof(item)));
		EXPECT_EQ(0, runner_join(&runner));
		EXPECT_EQ(0, memwait_channel_recv(timed.channel, &item, sizeof(item)));
		EXPECT_EQ(6, item);

		counted.calls = 0;
		ASSERT_EQ(EINPROGRESS,
			  memwait_channel_clockrecv_async(timed.channel, &timed.item,
							  sizeof(timed.item), clocks[i],
							  &timed.time, &counted.op));
		item = 7;
		ASSERT_EQ(0, memwait_channel_send(timed.channel, &item, sizeof(item)));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, counted.result);
		EXPECT_EQ(7, timed.item);
	}
	EXPECT_EQ(EINVAL, memwait_channel_send_async(timed.channel, NULL, sizeof(item),
						     &counted.op));
	EXPECT_EQ(EINVAL, memwait_channel_tryrecv(NULL, &item, sizeof(item)));
	EXPECT_EQ(EINVAL, memwait_channel_trysend(NULL, &item, sizeof(item)));
	EXPECT_EQ(EINVAL, memwait_channel_close(NULL));
	EXPECT_EQ(0, memwait_channel_destroy(timed.channel));
}

static int report_length(memwait_channel_t *channel)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return 90;
	raise(SIGSTOP);
	return memwait_channel_length(channel) > 1;
}

/*
 * The ring is emptied and filled between any two instructions of the thread that reads the length.
 */
USERLIB_TEST(R5_a_length_is_not_above_the_capacity)
{
	memwait_channel_t *channel = self->shared;
	uint64_t item = 0;
	int status;
	pid_t pid;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 1));
	ASSERT_EQ(0, memwait_channel_trysend(channel, &item, sizeof(item)));
	pid = fork_child();
	if (!pid)
		_exit(report_length(channel));
	while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
		ASSERT_EQ(0, memwait_channel_tryrecv(channel, &item, sizeof(item)));
		ASSERT_EQ(0, memwait_channel_trysend(channel, &item, sizeof(item)));
		ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
	}
	EXPECT_TRUE(WIFEXITED(status));
	EXPECT_EQ(0, WEXITSTATUS(status));
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

TEST_HARNESS_MAIN
