// SPDX-License-Identifier: GPL-2.0
/* Tests which waiters a channel notifies. The tests observe the library's ioctls. */
#include "channel_test.h"
#include "ioctl_test.h"

/*
 * The test counts the notifies, with or without a change of the word, and can make them fail. It
 * can also run a function before the kernel acts, and another one after the kernel has acted and
 * before the call returns to the library.
 */
static struct {
	int notifies;
	int error;		/* error of every notify, which then has no effect; or 0 */
	void (*before)(void *arg);
	void (*then)(void *arg);
	void *arg;
	int hold;		/* while set, no thread returns from its wait */
} kernel;

/* Runs a function once. */
static void run_once(void (**function)(void *arg))
{
	void (*once)(void *arg) = *function;

	*function = NULL;
	if (once)
		once(kernel.arg);
}

static int intercept(int fd, unsigned long request, void *argument)
{
	bool is_notify = request == MEMWAIT_IOC_NOTIFY || request == MEMWAIT_IOC_CHANGE_NOTIFY;
	int ret;

	if (is_notify) {
		__atomic_fetch_add(&kernel.notifies, 1, __ATOMIC_RELAXED);
		if (kernel.error) {
			errno = kernel.error;
			return -1;
		}
		run_once(&kernel.before);
	}
	ret = ioctl_of_kernel(fd, request, argument);
	if (is_notify)
		run_once(&kernel.then);
	spin_until(request != MEMWAIT_IOC_WAIT || !__atomic_load_n(&kernel.hold, __ATOMIC_ACQUIRE));
	return ret;
}

/* A channel, an operation that receives from it, and the item received. */
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
	return memwait_channel_recv_async(channel, &receiving->item, sizeof(receiving->item),
					  &receiving->counted.op);
}

static int send_number(memwait_channel_t *channel, uint64_t number)
{
	return memwait_channel_send(channel, &number, sizeof(number));
}

USERLIB_TEST(a_woken_receiver_is_not_notified_again)
{
	memwait_channel_t *channel = self->shared;
	struct receiving receiving;
	uint64_t item;
	int i;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 8));
	for (i = 1; i <= 3; i++) {
		ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving, channel, self->loop));
		kernel.notifies = 0;
		for (item = 1; item <= 4; item++)
			ASSERT_EQ(0, send_number(channel, item));
		EXPECT_EQ(1, kernel.notifies);
		ASSERT_EQ(0, dispatch_until(self->loop, &receiving.counted.calls, 1));
		EXPECT_EQ(1, receiving.item);
		while (!memwait_channel_tryrecv(channel, &item, sizeof(item)))
			;
		EXPECT_EQ(4, item);
		/* After the receiver has left, the send notifies no waiter. */
		kernel.notifies = 0;
		ASSERT_EQ(0, send_number(channel, 5));
		ASSERT_EQ(0, memwait_channel_recv(channel, &item, sizeof(item)));
		EXPECT_EQ(0, kernel.notifies);
	}
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(a_woken_sender_is_not_notified_again)
{
	memwait_channel_t *channel = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	uint64_t item, mine = 5;
	int i;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 4));
	for (i = 1; i <= 4; i++)
		ASSERT_EQ(0, send_number(channel, i));
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, &mine, sizeof(mine),
							  &counted.op));
	kernel.notifies = 0;
	for (i = 1; i <= 3; i++) {
		ASSERT_EQ(0, memwait_channel_recv(channel, &item, sizeof(item)));
		EXPECT_EQ(i, item);
	}
	EXPECT_EQ(1, kernel.notifies);
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	for (i = 4; i <= 5; i++) {
		ASSERT_EQ(0, memwait_channel_recv(channel, &item, sizeof(item)));
		EXPECT_EQ(i, item);
	}
	EXPECT_EQ(1, kernel.notifies);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(a_waiter_that_has_left_is_not_notified)
{
	memwait_channel_t *channel = self->shared;
	struct receiving receiving;
	struct timespec time;
	uint64_t item;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 8));
	time = in_time(CLOCK_MONOTONIC, 10);
	ASSERT_EQ(ETIMEDOUT,
		  memwait_channel_clockrecv(channel, &item, sizeof(item), CLOCK_MONOTONIC, &time));
	ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving, channel, self->loop));
	ASSERT_EQ(0, memwait_op_cancel(&receiving.counted.op));
	kernel.notifies = 0;
	/* The send must not fail because of a waiter that has left. */
	kernel.error = ENOMEM;
	EXPECT_EQ(0, send_number(channel, 1));
	kernel.error = 0;
	EXPECT_EQ(0, kernel.notifies);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(a_woken_thread_is_not_notified_again)
{
	memwait_channel_t *channel = self->shared;
	struct timed timed = { .channel = channel, .time = { TIME_MAX, 0 } };
	struct runner runner;
	uint64_t item;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 8));
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

/* Another receiver takes the item, and the woken receiver sleeps again. */
static void take_and_let_wait_again(void *arg)
{
	struct receiving *receiving = arg;
	uint64_t item;

	if (memwait_channel_tryrecv(receiving->channel, &item, sizeof(item)) ||
	    memwait_loop_dispatch(receiving->loop, MEMWAIT_ALL) < 0 || receiving->counted.calls)
		abort();
}

USERLIB_TEST(R1_a_waiter_that_waits_again_is_notified_again)
{
	memwait_channel_t *channel = self->shared;
	struct receiving receiving;
	int i;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(receiving.item), 8));
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

/* The number of different stamps. */
#define STAMPS	256

/*
 * Like take_and_let_wait_again(), but other waiters also come and go, so that as many waiters have
 * armed as there are stamps, or twice as many.
 */
static void others_come_and_go(void *arg)
{
	struct receiving *receiving = arg;
	struct timespec past = in_time(CLOCK_MONOTONIC, -1);
	uint64_t item;
	int i;

	take_and_let_wait_again(receiving);
	for (i = 0; i < 2 * STAMPS - 1; i++) {
		if (memwait_channel_clockrecv(receiving->channel, &item, sizeof(item),
					      CLOCK_MONOTONIC, &past) !=
		    ETIMEDOUT)
			abort();
	}
}

/* The waiter waits again before the sender knows that it has woken the only waiter. */
USERLIB_TEST(R1_a_waiter_that_waits_again_during_the_notify_is_notified_again)
{
	void (*const happens[])(void *arg) = { take_and_let_wait_again, others_come_and_go };
	memwait_channel_t *channel = self->shared;
	struct receiving receiving;
	size_t i;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(receiving.item), 8));
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

/* A second receiver begins to wait. */
static void second_waits(void *arg)
{
	struct receiving *receiving = arg;

	if (receiving_begin(receiving + 1, receiving->channel, receiving->loop) != EINPROGRESS)
		abort();
}

static void first_receives(void *arg)
{
	struct receiving *receiving = arg;

	if (dispatch_until(receiving->loop, &receiving->counted.calls, 1))
		abort();
}

/*
 * When the sender looked, there was one waiter. A second waiter falls asleep before the notify, and
 * the first leaves before the sender knows how many waiters it has woken.
 */
USERLIB_TEST(R1_a_waiter_that_comes_just_before_a_notify_is_notified_next_time)
{
	memwait_channel_t *channel = self->shared;
	struct receiving receiving[2];
	size_t i;

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, i ? MEMWAIT_PRIVATE : 0,
						  sizeof(receiving[0].item), 8));
		ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving[0], channel, self->loop));
		kernel.arg = receiving;
		kernel.before = second_waits;
		kernel.then = first_receives;
		ASSERT_EQ(0, send_number(channel, 1));
		EXPECT_EQ(1, receiving[0].item);
		ASSERT_EQ(0, send_number(channel, 2));
		ASSERT_EQ(0, dispatch_until(self->loop, &receiving[1].counted.calls, 1));
		EXPECT_EQ(2, receiving[1].item);
		EXPECT_EQ(0, memwait_channel_destroy(channel));
	}
}

/* One dispatch does not reach all operations. */
static void take_and_let_all_wait_again(void *arg)
{
	struct receiving *receiving = arg;
	int i;

	take_and_let_wait_again(receiving);
	for (i = 0; i < STAMPS / 64; i++)
		if (memwait_loop_dispatch(receiving->loop, MEMWAIT_ALL))
			abort();
}

/* The waiter waits again when no waiter has armed for as many positions as there are stamps. */
USERLIB_TEST(R1_a_waiter_that_waits_again_long_after_arming_is_notified_again)
{
	static struct receiving receiving[STAMPS - 1];
	memwait_channel_t *channel = self->shared;
	size_t i, calls = 0;
	uint64_t item;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 8));
	for (i = 0; i < ARRAY_SIZE(receiving); i++)
		ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving[i], channel, self->loop));
	for (i = 0; i < ARRAY_SIZE(receiving); i++) {
		ASSERT_EQ(0, send_number(channel, 1));
		ASSERT_EQ(0, memwait_channel_tryrecv(channel, &item, sizeof(item)));
	}
	/* This send finds no sleeping waiter, and must not affect waiters that sleep afterwards. */
	kernel.arg = &receiving[0];
	kernel.then = take_and_let_all_wait_again;
	ASSERT_EQ(0, send_number(channel, 1));
	for (i = 0; i < ARRAY_SIZE(receiving); i++) {
		kernel.notifies = 0;
		ASSERT_EQ(0, send_number(channel, 2));
		ASSERT_EQ(1, kernel.notifies);
		ASSERT_EQ(0, dispatch_until(self->loop, &receiving[i].counted.calls, 1));
		calls += receiving[i].item == 2;
	}
	EXPECT_EQ(ARRAY_SIZE(receiving), calls);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

/* While several wait, each item wakes the next sleeper. */
USERLIB_TEST(R1_each_of_several_waiters_is_notified)
{
	memwait_channel_t *channel = self->shared;
	struct receiving receiving[3];
	uint64_t item;
	int i;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 8));
	for (i = 0; i < 3; i++)
		ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving[i], channel, self->loop));
	kernel.notifies = 0;
	for (i = 1; i <= 3; i++) {
		ASSERT_EQ(0, send_number(channel, i));
		ASSERT_EQ(i, kernel.notifies);
	}
	/* The next send finds no sleeper. Later sends need not check. */
	for (i = 4; i <= 6; i++) {
		ASSERT_EQ(0, send_number(channel, i));
		EXPECT_EQ(4, kernel.notifies);
	}
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, dispatch_until(self->loop, &receiving[i].counted.calls, 1));
		EXPECT_EQ(i + 1, receiving[i].item);
	}
	for (i = 4; i <= 6; i++) {
		ASSERT_EQ(0, memwait_channel_recv(channel, &item, sizeof(item)));
		EXPECT_EQ(i, item);
	}
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(R1_a_waiter_that_could_not_be_notified_is_notified_next_time)
{
	const int errors[] = { ENOMEM, EFAULT };
	memwait_channel_t *channel = self->shared;
	struct receiving receiving;
	uint64_t item;
	size_t i;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 8));
	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving, channel, self->loop));
		kernel.error = errors[i];
		EXPECT_EQ(errors[i], send_number(channel, 1));
		kernel.error = 0;
		kernel.notifies = 0;
		EXPECT_EQ(0, send_number(channel, 2));
		ASSERT_EQ(1, kernel.notifies);
		ASSERT_EQ(0, dispatch_until(self->loop, &receiving.counted.calls, 1));
		/* An item whose send failed is not received. */
		EXPECT_EQ(2, receiving.item);
		EXPECT_EQ(EAGAIN, memwait_channel_tryrecv(channel, &item, sizeof(item)));
	}
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

/* The number of waiting receivers is counted in 22 bits of the word with the head, from bit 33. */
USERLIB_TEST(the_number_of_waiters_is_limited)
{
	memwait_channel_t *channel = self->shared;
	uint64_t *event = (void *)((char *)channel + 64 + 8);
	const uint64_t one = 1ULL << 33, most = ((1 << 22) - 1) * one;
	struct receiving receiving;
	uint64_t item;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, MEMWAIT_PRIVATE, sizeof(item), 8));
	*event = most;
	EXPECT_EQ(ENOMEM, memwait_channel_recv(channel, &item, sizeof(item)));
	EXPECT_EQ(ENOMEM, receiving_begin(&receiving, channel, self->loop));
	EXPECT_EQ(most, *event);
	EXPECT_EQ(0, send_number(channel, 1));
	EXPECT_EQ(0, memwait_channel_recv(channel, &item, sizeof(item)));
	/* The count has room for one more waiter, which may arm repeatedly. */
	*event -= one;
	ASSERT_EQ(EINPROGRESS, receiving_begin(&receiving, channel, self->loop));
	EXPECT_EQ(most, *event & most);
	EXPECT_EQ(ENOMEM, memwait_channel_recv(channel, &item, sizeof(item)));
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
