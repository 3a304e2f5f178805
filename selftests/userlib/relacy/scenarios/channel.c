// SPDX-License-Identifier: GPL-2.0
/*
 * Channels: received items are items that were sent, each item is received once, and no item is
 * left at the end.
 */
#include <errno.h>
#include <time.h>

#include "../scenarios.h"

static memwait_channel_t *channel(void)
{
	return (memwait_channel_t *)shared->channel;
}

static void channel_set_up(unsigned int flags, unsigned int capacity)
{
	CHECK(!memwait_channel_init(channel(), sizeof(shared->channel), flags, 8, capacity));
}

static void channel_send(uint64_t item)
{
	CHECK(!memwait_channel_send(channel(), &item, sizeof(item)));
}

static int channel_receive(unsigned int thread)
{
	uint64_t item = 0;
	int ret = memwait_channel_recv(channel(), &item, sizeof(item));

	if (ret)
		return ret;
	CHECK(item == 1 || item == 2);
	done[thread] += (uint32_t)item;
	return 0;
}

static void channel_two_senders_thread(unsigned int thread)
{
	if (thread) {
		channel_send(thread);
		return;
	}
	CHECK(!channel_receive(thread));
	CHECK(!channel_receive(thread));
}

static void channel_two_receivers_thread(unsigned int thread)
{
	if (thread) {
		CHECK(!channel_receive(thread));
		return;
	}
	channel_send(1);
	channel_send(2);
}

/* At most one item is in the channel, although there is room for two. */
static void channel_length_thread(unsigned int thread)
{
	if (!thread)
		channel_send(1);
	else if (thread == 1)
		CHECK(!channel_receive(thread));
	else
		CHECK(memwait_channel_length(channel()) <= 1);
}

static void channel_length_finish(void)
{
	CHECK(!memwait_channel_length(channel()));
}

SCENARIO("channel length", 3, channel_set_up(0, 2), channel_length_thread, channel_length_finish);

static void channel_finish(void)
{
	CHECK(done_by_all() == 1 + 2);
	CHECK(!memwait_channel_length(channel()));
	CHECK(!memwait_channel_destroy(channel()));
}

SCENARIO("channel two senders", 3, channel_set_up(0, 1), channel_two_senders_thread,
	 channel_finish);
SCENARIO("channel private two senders", 3, channel_set_up(PRIVATE, 1), channel_two_senders_thread,
	 channel_finish);
SCENARIO("channel two receivers", 3, channel_set_up(0, 1), channel_two_receivers_thread,
	 channel_finish);
SCENARIO("channel private two receivers", 3, channel_set_up(PRIVATE, 1),
	 channel_two_receivers_thread, channel_finish);
SCENARIO("channel of two", 3, channel_set_up(0, 2), channel_two_receivers_thread, channel_finish);
SCENARIO("channel private of two", 3, channel_set_up(PRIVATE, 2), channel_two_receivers_thread,
	 channel_finish);

/* When the channel has been closed, receivers get the remaining items and then end. Senders end. */
static void channel_close_thread(unsigned int thread)
{
	if (thread) {
		while (!channel_receive(thread))
			;
		return;
	}
	channel_send(1);
	channel_send(2);
	CHECK(!memwait_channel_close(channel()));
}

static void channel_close_senders_thread(unsigned int thread)
{
	uint64_t item = thread;
	int ret;

	if (!thread) {
		CHECK(!memwait_channel_close(channel()));
		return;
	}
	do {
		ret = memwait_channel_send(channel(), &item, sizeof(item));
		CHECK(!ret || ret == EPIPE);
	} while (!ret);
}

SCENARIO("channel close", 3, channel_set_up(0, 1), channel_close_thread, channel_finish);
SCENARIO("channel private close", 3, channel_set_up(PRIVATE, 1), channel_close_thread,
	 channel_finish);
SCENARIO("channel close senders", 3, channel_set_up(0, 1), channel_close_senders_thread, no_finish);
SCENARIO("channel private close senders", 3, channel_set_up(PRIVATE, 1),
	 channel_close_senders_thread, no_finish);

static void channel_free(void)
{
	CHECK(!memwait_channel_destroy(channel()));
	sim_free(shared->channel, sizeof(shared->channel));
}

/*
 * The thread that has received all items frees the channel, even if the senders are still in their
 * calls.
 */
static void channel_freed_thread(unsigned int thread)
{
	if (thread) {
		channel_send(1);
		return;
	}
	CHECK(!channel_receive(thread));
	CHECK(!channel_receive(thread));
	channel_free();
}

SCENARIO("channel freed", 3, channel_set_up(0, 1), channel_freed_thread, no_finish);
SCENARIO("channel private freed", 3, channel_set_up(PRIVATE, 1), channel_freed_thread, no_finish);

/*
 * The thread that finds the channel closed frees it, even if the closing thread is still in its
 * call.
 */
static void channel_closed_freed_thread(unsigned int thread)
{
	if (thread) {
		CHECK(!memwait_channel_close(channel()));
		return;
	}
	CHECK(channel_receive(thread) == EPIPE);
	channel_free();
}

SCENARIO("channel closed freed", 2, channel_set_up(0, 1), channel_closed_freed_thread, no_finish);
SCENARIO("channel private closed freed", 2, channel_set_up(PRIVATE, 1),
	 channel_closed_freed_thread, no_finish);

/* Without the device no thread can wait. */
static void channel_missing_set_up(void)
{
	channel_set_up(PRIVATE, 1);
	device_is_missing();
}

static void channel_missing_thread(unsigned int thread)
{
	uint64_t item = 1;
	unsigned int i;
	int ret;

	if (!thread) {
		ret = memwait_channel_send(channel(), &item, sizeof(item));
		CHECK(!ret || ret == ENODEV);
		ret = memwait_channel_close(channel());
		CHECK(!ret || ret == ENODEV);
		return;
	}
	for (i = 0; i < 3; i++) {
		ret = channel_receive(thread);
		CHECK(!ret || ret == ENODEV || ret == EPIPE);
	}
}

SCENARIO("channel without the device", 3, channel_missing_set_up(), channel_missing_thread,
	 no_finish);

/* A thread dies. At most the item that it was sending or receiving is lost. */
static void channel_sender_dies_set_up(void)
{
	channel_set_up(0, 1);
	device_mortal(1, 24);
}

/* The item of the second thread arrives. */
static void channel_sender_dies_thread(unsigned int thread)
{
	if (thread) {
		channel_send(thread);
		return;
	}
	while (done[0] < 2)
		CHECK(!channel_receive(thread));
}

SCENARIO("channel sender dies", 3, channel_sender_dies_set_up(), channel_sender_dies_thread,
	 no_finish);

static void channel_receiver_dies_set_up(void)
{
	channel_set_up(0, 2);
	device_mortal(1, 24);
}

SCENARIO("channel receiver dies", 3, channel_receiver_dies_set_up(), channel_two_receivers_thread,
	 no_finish);

/*
 * Receivers die, perhaps after they have been notified. The others do not sleep while an item is in
 * the channel.
 */
static bool channel_is_empty(void)
{
	/* The two positions: see userlib/channel.c. */
	const unsigned char *head = shared->channel + 64 + 8, *tail = head + 64;

	return sim_latest(head, 4) == sim_latest(tail, 4);
}

static void channel_waiters_die_set_up(void)
{
	channel_set_up(0, 2);
	device_mortal(1, 40);
	device_mortal(2, 40);
	device_may_stop(channel_is_empty);
}

/* The items are usually sent when all receivers are asleep or dead. */
static void channel_waiters_die_thread(unsigned int thread, unsigned int items)
{
	unsigned int i;

	if (thread) {
		CHECK(!channel_receive(thread));
		return;
	}
	for (i = 0; i < 200 && device_sleepers() + deaths() < 3; i++)
		step();
	for (i = 0; i < items; i++)
		channel_send(i + 1);
}

static void channel_one_item_thread(unsigned int thread)
{
	channel_waiters_die_thread(thread, 1);
}

static void channel_two_items_thread(unsigned int thread)
{
	channel_waiters_die_thread(thread, 2);
}

SCENARIO("channel waiters for one item die", 4, channel_waiters_die_set_up(),
	 channel_one_item_thread, no_finish);
SCENARIO("channel waiters for two items die", 4, channel_waiters_die_set_up(),
	 channel_two_items_thread, no_finish);

/*
 * The channel may or may not be closed when a thread dies. A thread that closes it again completes
 * the close.
 */
static void channel_closer_dies_set_up(void)
{
	channel_set_up(0, 1);
	device_mortal(0, 20);
}

static void channel_closer_dies_thread(unsigned int thread)
{
	uint64_t item = 1;
	int ret;

	if (thread < 2) {
		CHECK(!memwait_channel_close(channel()));
		return;
	}
	do {
		ret = memwait_channel_send(channel(), &item, sizeof(item));
		CHECK(!ret || ret == EPIPE);
	} while (!ret);
}

SCENARIO("channel closer dies", 4, channel_closer_dies_set_up(), channel_closer_dies_thread,
	 no_finish);

static void channel_closer_dies_receivers_thread(unsigned int thread)
{
	if (thread >= 2) {
		CHECK(channel_receive(thread) == EPIPE);
		return;
	}
	CHECK(!memwait_channel_close(channel()));
}

SCENARIO("channel closer of receivers dies", 4, channel_closer_dies_set_up(),
	 channel_closer_dies_receivers_thread, no_finish);

/* The waits have a deadline. */
static void channel_timed_thread(unsigned int thread)
{
	uint64_t item = 1;
	int ret;

	if (thread == 1)
		ret = memwait_channel_clockrecv(channel(), &item, sizeof(item), CLOCK_MONOTONIC,
						&soon);
	else if (thread)
		ret = channel_receive(thread);
	else
		ret = memwait_channel_send(channel(), &item, sizeof(item));
	CHECK(!ret || (ret == ETIMEDOUT && thread == 1));
	if (thread != 1 || ret)
		return;
	CHECK(item == 1);
	channel_send(1);
}

SCENARIO("channel deadline", 3, channel_set_up(0, 1), channel_timed_thread, no_finish);

/*
 * One thread cannot wake. If a send or receive of this thread would have to wake, it fails. The
 * other threads wake the waiters for a lock that this thread has released.
 */
static void channel_owed_thread(unsigned int thread)
{
	uint64_t item = 1;
	int ret;

	if (thread == 2) {
		CHECK(!channel_receive(thread));
		CHECK(!channel_receive(thread));
		CHECK(!channel_receive(thread));
		return;
	}
	device_cannot_wake(!thread);
	do {
		ret = memwait_channel_send(channel(), &item, sizeof(item));
		CHECK(!ret || (ret == EMFILE && !thread));
		device_cannot_wake(false);
	} while (ret);
	if (!thread)
		channel_send(1);
}

static void channel_owed_finish(void)
{
	CHECK(done_by_all() == 1 + 1 + 1);
	CHECK(!memwait_channel_length(channel()));
	CHECK(!memwait_channel_destroy(channel()));
}

SCENARIO("channel owed", 3, channel_set_up(0, 2), channel_owed_thread, channel_owed_finish);
SCENARIO("channel private owed", 3, channel_set_up(PRIVATE, 2), channel_owed_thread,
	 channel_owed_finish);

/*
 * A thread cannot wake the next waiter of its own side. A call of the other side wakes this waiter.
 */
static void channel_owed_lock_thread(unsigned int thread)
{
	uint64_t item = thread + 1;
	int ret;

	device_cannot_wake(true);
	channel_send(item);
	device_cannot_wake(false);
	ret = memwait_channel_tryrecv(channel(), &item, sizeof(item));
	CHECK(!ret || ret == EAGAIN || ret == EBUSY);
	if (!ret)
		done[thread] = (uint32_t)item;
}

static void channel_owed_lock_finish(void)
{
	uint64_t item;

	while (memwait_channel_length(channel())) {
		CHECK(!memwait_channel_tryrecv(channel(), &item, sizeof(item)));
		done[0] += (uint32_t)item;
	}
	CHECK(done_by_all() == 1 + 2 + 3 + 4);
	CHECK(!memwait_channel_destroy(channel()));
}

SCENARIO("channel owed lock", 4, channel_set_up(0, 4), channel_owed_lock_thread,
	 channel_owed_lock_finish);
SCENARIO("channel private owed lock", 4, channel_set_up(PRIVATE, 4), channel_owed_lock_thread,
	 channel_owed_lock_finish);
