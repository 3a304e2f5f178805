/* SPDX-License-Identifier: GPL-2.0 */
/* Channels. Items are numbers in the order of sending. */
#ifndef STEPPER_CHANNEL_TEST_H
#define STEPPER_CHANNEL_TEST_H

#include "stepper_test.h"

#define CAPACITY	4
#define MOST_ITEMS	(CAPACITY + HELPERS)

static memwait_channel_t *channel_of(struct objects *objects)
{
	return (memwait_channel_t *)objects->channel;
}

static int make_channel(struct stepper *stepper)
{
	memwait_channel_t *channel = channel_of(&shared->objects);
	uint64_t item;

	if (memwait_channel_init(channel, sizeof(shared->objects.channel), 0, sizeof(item),
				 CAPACITY))
		return -1;
	for (item = 1; item <= (uint64_t)stepper->scenario->number; item++) {
		if (memwait_channel_trysend(channel, &item, sizeof(item)))
			return -1;
	}
	shared->objects.item[VICTIM] = item;
	return 0;
}

/* The victim sends the next item. */
OPERATION(send_item, memwait_channel_send(channel_of(objects), &objects->item[VICTIM],
					  sizeof(objects->item[VICTIM])))
OPERATION(receive_item, memwait_channel_recv(channel_of(objects), &objects->item[VICTIM],
					     sizeof(objects->item[VICTIM])))
OPERATION(close_channel, memwait_channel_close(channel_of(objects)))

/* Helpers send the items that follow the victim's item. */
static int send_late(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();
	uint64_t item = CAPACITY + 2 + me;

	return memwait_channel_clocksend(channel_of(objects), &item, sizeof(item), CLOCK_MONOTONIC,
					 &deadline);
}

static int receive(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();

	return memwait_channel_clockrecv(channel_of(objects), &objects->item[me],
					 sizeof(objects->item[me]), CLOCK_MONOTONIC, &deadline);
}

static bool channel_is_closed(void)
{
	uint64_t item = 0;
	int err;

	/* This works on a copy, because the call may change the channel. */
	err = memwait_channel_trysend(channel_of(copied()), &item, sizeof(item));
	return err == EPIPE;
}

static size_t channel_length(void)
{
	return memwait_channel_length(channel_of(&shared->objects));
}

/*
 * Returns whether the helpers that sleep must wait: senders because the channel is full, receivers
 * because it is empty. No helper may sleep when the channel is closed.
 */
static bool channel_is_stuck(void)
{
	return !channel_is_closed() &&
	       (!helpers_waiting(send_late) || channel_length() == CAPACITY) &&
	       (!helpers_waiting(receive) || !channel_length());
}

/* Receives all items while the senders continue. Each item must be greater than the item before. */
static const char *drain(struct stepper *stepper, uint64_t *items, int *count)
{
	int err;

	settle(stepper, channel_is_stuck);
	for (*count = 0;; ++*count) {
		struct timespec deadline = last_moment();

		if (!channel_length())
			return NULL;
		if (*count == MOST_ITEMS)
			return "there are too many items";
		err = memwait_channel_clockrecv(channel_of(&shared->objects), &items[*count],
						sizeof(items[*count]), CLOCK_MONOTONIC, &deadline);
		if (err)
			return say(stepper, "an item cannot be received: %d", err);
		if (*count && items[*count] <= items[*count - 1])
			return say(stepper, "item %d after %d", (int)items[*count],
				   (int)items[*count - 1]);
		settle(stepper, channel_is_stuck);
	}
}

static bool contains(const uint64_t *items, int count, uint64_t item)
{
	int i;

	for (i = 0; i < count; i++) {
		if (items[i] == item)
			return true;
	}
	return false;
}

static int send_in_time(uint64_t item)
{
	struct timespec deadline = last_moment();

	return memwait_channel_clocksend(channel_of(&shared->objects), &item, sizeof(item),
					 CLOCK_MONOTONIC, &deadline);
}

static int receive_in_time(uint64_t *item)
{
	struct timespec deadline = last_moment();

	return memwait_channel_clockrecv(channel_of(&shared->objects), item, sizeof(*item),
					 CLOCK_MONOTONIC, &deadline);
}

/*
 * An empty channel must work like a new channel: twice as many items as its capacity pass through
 * it, it can be filled, and it can be closed.
 */
static const char *channel_works(struct stepper *stepper)
{
	uint64_t i, item = 0;
	int err;

	for (i = 1; i <= 2 * CAPACITY; i++) {
		err = send_in_time(i);
		if (!err)
			err = receive_in_time(&item);
		if (err || item != i)
			return say(stepper, "it does not work: %d, item %d", err, (int)item);
	}
	for (i = 1; i <= CAPACITY; i++) {
		if (send_in_time(i))
			return "it cannot be filled";
	}
	if (memwait_channel_trysend(channel_of(&shared->objects), &i, sizeof(i)) != EAGAIN)
		return "it is full, but one more item can be sent";
	if (close_channel(&shared->objects) || close_channel(&shared->objects) ||
	    send_in_time(i) != EPIPE)
		return "it cannot be closed";
	for (i = 1; i <= CAPACITY; i++) {
		if (receive_in_time(&item) || item != i)
			return "it cannot be drained";
	}
	if (receive_in_time(&item) != EPIPE)
		return "it is closed and empty, but does not return EPIPE";
	return NULL;
}

/* Each receiver gets an item, one after another. */
static const char *feed(struct stepper *stepper, uint64_t item)
{
	int busy;

	for (busy = helpers_waiting(receive); busy; busy--) {
		if (send_in_time(item++))
			return "an item cannot be sent";
		settle(stepper, channel_is_stuck);
		if (helpers_waiting(receive) != busy - 1)
			return "a receiver does not get the item that was sent";
	}
	return NULL;
}

/*
 * At most one item may be missing: the victim's item if the victim sends, or the first item if it
 * receives.
 */
static const char *check_channel(struct stepper *stepper)
{
	const struct scenario *scenario = stepper->scenario;
	bool sends = scenario->operation == send_item, there;
	uint64_t items[MOST_ITEMS], own = sends ? scenario->number + 1 : 1;
	const char *wrong;
	int i, count, received;

	start_followers(stepper);
	if (release_at_last(stepper))
		return "the waiters could not be released";
	received = (int)shared->objects.received;
	settle(stepper, channel_is_stuck);
	for (i = 0, there = false; i < HELPERS; i++) {
		if (shared->requests[i].function == receive && !helper_is_busy(i))
			there |= shared->objects.item[i] == own;
	}
	wrong = feed(stepper, 100);
	if (!wrong)
		wrong = drain(stepper, items, &count);
	if (!wrong)
		wrong = all_well(stepper);
	if (wrong)
		return wrong;
	there |= contains(items, count, own) || (sends && received == (int)own);
	if (ended() && shared->objects.result)
		return say(stepper, "result %d", shared->objects.result);
	if (ended() && there != sends)
		return there ? "an item was received twice" : "an item is lost";
	if (ended() && !sends && shared->objects.item[VICTIM] != own)
		return "it received another item";
	/* All other items must be there: the initial ones and those of the helpers. */
	for (i = 1; i <= scenario->number; i++) {
		if (i != (int)own && !contains(items, count, i) && received != i)
			return say(stepper, "item %d is lost", i);
	}
	for (i = 0; i < HELPERS; i++) {
		if (shared->requests[i].function == send_late &&
		    !contains(items, count, CAPACITY + 2 + i))
			return say(stepper, "the item of helper %d is lost", i);
	}
	return channel_works(stepper);
}

/* Receives an item for a sender, or sends one for a receiver. */
static int release_channel(struct stepper *stepper)
{
	if (stepper->scenario->operation == send_item)
		return receive_in_time(&shared->objects.received);
	return send_in_time(1);
}

static const char *check_close(struct stepper *stepper)
{
	uint64_t items[MOST_ITEMS], item = 0;
	const char *wrong;
	int i, count;

	/*
	 * If the victim died before it woke the senders, the next caller that finds the channel
	 * closed wakes them.
	 */
	if (!ended() && channel_is_closed() &&
	    memwait_channel_trysend(channel_of(&shared->objects), &item, sizeof(item)) != EPIPE)
		return "it is closed, but a send does not return EPIPE";
	settle(stepper, channel_is_stuck);
	if (ended() && (shared->objects.result || !channel_is_closed()))
		return say(stepper, "it is not closed, result %d", shared->objects.result);
	if (!channel_is_closed() && close_channel(&shared->objects))
		return "it cannot be closed";
	settle(stepper, NULL);
	for (i = 0; i < HELPERS; i++) {
		if (shared->requests[i].function && shared->requests[i].result != EPIPE)
			return say(stepper, "helper %d: %d", i, shared->requests[i].result);
	}
	wrong = drain(stepper, items, &count);
	if (wrong)
		return wrong;
	if (count != stepper->scenario->number)
		return say(stepper, "%d items, not %d", count, stepper->scenario->number);
	return receive_in_time(&item) == EPIPE ? NULL : "it does not return EPIPE at the end";
}

#define CHANNEL_TEST(id, text, ...) STEPPER_TEST(channel_##id, "channel " text,			\
						 .prepare = make_channel,			\
						 .check = check_channel, __VA_ARGS__)

CHANNEL_TEST(send, "send", .operation = send_item, .number = 1)
CHANNEL_TEST(send_receivers, "send, some receive", .before = { receive, receive },
	     .operation = send_item)
CHANNEL_TEST(send_full, "send, full", .operation = send_item, .behind = { send_late },
	     .release = release_channel, .number = CAPACITY)
CHANNEL_TEST(receive, "receive", .operation = receive_item, .number = 2)
CHANNEL_TEST(receive_senders, "receive, some send", .before = { send_late, send_late },
	     .operation = receive_item, .number = CAPACITY)
CHANNEL_TEST(receive_empty, "receive, empty", .operation = receive_item,
	     .behind = { receive, receive }, .release = release_channel)
#define CLOSE_TEST(id, text, ...) STEPPER_TEST(channel_##id, "channel " text,			\
					       .prepare = make_channel,				\
					       .operation = close_channel,			\
					       .check = check_close, __VA_ARGS__)

CLOSE_TEST(close, "close", .number = 2)
CLOSE_TEST(close_receivers, "close, some receive", .before = { receive, receive })
CLOSE_TEST(close_senders, "close, some send", .before = { send_late, send_late },
	   .number = CAPACITY)

#endif /* STEPPER_CHANNEL_TEST_H */
