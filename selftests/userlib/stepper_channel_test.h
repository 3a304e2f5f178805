/* SPDX-License-Identifier: GPL-2.0 */
/* Channels, whose items are numbers in the order of sending. */
#ifndef STEPPER_CHANNEL_TEST_H
#define STEPPER_CHANNEL_TEST_H

#include "stepper_test.h"

#define CAPACITY	4
#define MOST_ITEMS	(CAPACITY + HELPERS)

static memwait_channel_t *channel_of(struct objects *objects)
{
	return (memwait_channel_t *)objects->channel;
}

static int make_channel(struct stage *stage)
{
	memwait_channel_t *channel = channel_of(&scene->objects);
	uint64_t item;

	if (memwait_channel_init(channel, sizeof(scene->objects.channel), 0, sizeof(item),
				 CAPACITY))
		return -1;
	for (item = 1; item <= (uint64_t)stage->scenario->number; item++) {
		if (memwait_channel_trysend(channel, &item, sizeof(item)))
			return -1;
	}
	scene->objects.item[VICTIM] = item;
	return 0;
}

/* The victim's is the next one. */
OPERATION(send_item, memwait_channel_send(channel_of(objects), &objects->item[VICTIM],
					  sizeof(objects->item[VICTIM])))
OPERATION(receive_item, memwait_channel_recv(channel_of(objects), &objects->item[VICTIM],
					     sizeof(objects->item[VICTIM])))
OPERATION(close_channel, memwait_channel_close(channel_of(objects)))

/* Helpers send what comes after the victim's. */
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

	/* Of a copy, as it may be a change. */
	err = memwait_channel_trysend(channel_of(copied()), &item, sizeof(item));
	return err == EPIPE;
}

static size_t channel_length(void)
{
	return memwait_channel_length(channel_of(&scene->objects));
}

/* Senders sleep while it is full, receivers while it is empty; and neither when it is closed. */
static bool channel_is_stuck(void)
{
	return !channel_is_closed() &&
	       (!helpers_within(send_late) || channel_length() == CAPACITY) &&
	       (!helpers_within(receive) || !channel_length());
}

/* Receives all that is there, and senders go on. Each item is greater than the one before. */
static const char *drain(struct stage *stage, uint64_t *items, int *count)
{
	int err;

	settle(stage, channel_is_stuck);
	for (*count = 0;; ++*count) {
		struct timespec deadline = last_moment();

		if (!channel_length())
			return NULL;
		if (*count == MOST_ITEMS)
			return "there are too many items";
		err = memwait_channel_clockrecv(channel_of(&scene->objects), &items[*count],
						sizeof(items[*count]), CLOCK_MONOTONIC, &deadline);
		if (err)
			return say(stage, "an item cannot be received: %d", err);
		if (*count && items[*count] <= items[*count - 1])
			return say(stage, "item %d after %d", (int)items[*count],
				   (int)items[*count - 1]);
		settle(stage, channel_is_stuck);
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

	return memwait_channel_clocksend(channel_of(&scene->objects), &item, sizeof(item),
					 CLOCK_MONOTONIC, &deadline);
}

static int receive_in_time(uint64_t *item)
{
	struct timespec deadline = last_moment();

	return memwait_channel_clockrecv(channel_of(&scene->objects), item, sizeof(*item),
					 CLOCK_MONOTONIC, &deadline);
}

/* An empty channel is as good as a new one: twice round, filled up, closed. */
static const char *channel_goes_on(struct stage *stage)
{
	uint64_t i, item = 0;
	int err;

	for (i = 1; i <= 2 * CAPACITY; i++) {
		err = send_in_time(i);
		if (!err)
			err = receive_in_time(&item);
		if (err || item != i)
			return say(stage, "it does not go on: %d, item %d", err, (int)item);
	}
	for (i = 1; i <= CAPACITY; i++) {
		if (send_in_time(i))
			return "it cannot be filled";
	}
	if (memwait_channel_trysend(channel_of(&scene->objects), &i, sizeof(i)) != EAGAIN)
		return "it is full, and one more can be sent";
	if (close_channel(&scene->objects) || close_channel(&scene->objects) ||
	    send_in_time(i) != EPIPE)
		return "it cannot be closed";
	for (i = 1; i <= CAPACITY; i++) {
		if (receive_in_time(&item) || item != i)
			return "it cannot be drained";
	}
	if (receive_in_time(&item) != EPIPE)
		return "it is closed and empty, and does not say so";
	return NULL;
}

/* All who receive get an item, one after another. */
static const char *feed(struct stage *stage, uint64_t item)
{
	int busy;

	for (busy = helpers_within(receive); busy; busy--) {
		if (send_in_time(item++))
			return "an item cannot be sent";
		settle(stage, channel_is_stuck);
		if (helpers_within(receive) != busy - 1)
			return "a receiver does not get what was sent";
	}
	return NULL;
}

/*
 * Of the items that were there, or sent, one may be missing: the victim's, the one that it sends or
 * the first.
 */
static const char *check_channel(struct stage *stage)
{
	const struct scenario *scenario = stage->scenario;
	bool sends = scenario->operation == send_item, there;
	uint64_t items[MOST_ITEMS], own = sends ? scenario->number + 1 : 1;
	const char *wrong;
	int i, count, received;

	followers_come(stage);
	if (release_at_last(stage))
		return "it could not be let go on";
	received = (int)scene->objects.received;
	settle(stage, channel_is_stuck);
	for (i = 0, there = false; i < HELPERS; i++) {
		if (scene->requests[i].function == receive && !helper_is_busy(i))
			there |= scene->objects.item[i] == own;
	}
	wrong = feed(stage, 100);
	if (!wrong)
		wrong = drain(stage, items, &count);
	if (!wrong)
		wrong = all_well(stage);
	if (wrong)
		return wrong;
	there |= contains(items, count, own) || (sends && received == (int)own);
	if (ended() && scene->objects.result)
		return say(stage, "result %d", scene->objects.result);
	if (ended() && there != sends)
		return there ? "an item was received twice" : "an item is lost";
	if (ended() && !sends && scene->objects.item[VICTIM] != own)
		return "it received something else";
	/* All others: those that were there from the begin, and those of the helpers. */
	for (i = 1; i <= scenario->number; i++) {
		if (i != (int)own && !contains(items, count, i) && received != i)
			return say(stage, "item %d is lost", i);
	}
	for (i = 0; i < HELPERS; i++) {
		if (scene->requests[i].function == send_late &&
		    !contains(items, count, CAPACITY + 2 + i))
			return say(stage, "what helper %d has sent is lost", i);
	}
	return channel_goes_on(stage);
}

/* For a sender an item is received, for a receiver one is sent. */
static int release_channel(struct stage *stage)
{
	if (stage->scenario->operation == send_item)
		return receive_in_time(&scene->objects.received);
	return send_in_time(1);
}

static const char *check_close(struct stage *stage)
{
	uint64_t items[MOST_ITEMS], item = 0;
	const char *wrong;
	int i, count;

	/* If it died when it was to tell the senders, whoever finds it closed does that. */
	if (!ended() && channel_is_closed() &&
	    memwait_channel_trysend(channel_of(&scene->objects), &item, sizeof(item)) != EPIPE)
		return "it is closed, and is not";
	settle(stage, channel_is_stuck);
	if (ended() && (scene->objects.result || !channel_is_closed()))
		return say(stage, "it is not closed, result %d", scene->objects.result);
	if (!channel_is_closed() && close_channel(&scene->objects))
		return "it cannot be closed";
	settle(stage, NULL);
	for (i = 0; i < HELPERS; i++) {
		if (scene->requests[i].function && scene->requests[i].result != EPIPE)
			return say(stage, "helper %d: %d", i, scene->requests[i].result);
	}
	wrong = drain(stage, items, &count);
	if (wrong)
		return wrong;
	if (count != stage->scenario->number)
		return say(stage, "%d items, not %d", count, stage->scenario->number);
	return receive_in_time(&item) == EPIPE ? NULL : "it does not end";
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
