/* SPDX-License-Identifier: GPL-2.0 */
/* Definitions shared by the tests of channels: numbered items, senders and receivers. */
#ifndef CHANNEL_TEST_H
#define CHANNEL_TEST_H

#include "userlib_test.h"

#define ROUNDS	SOME_OF(2000)
#define SENDERS	3

struct item {
	uint32_t sender;
	uint32_t number;
	unsigned char padding[16];
};

/* A receiver. Items of one sender must arrive in the order of their numbers. */
struct receiver {
	memwait_channel_t *channel;
	uint32_t last[SENDERS + 1];
	long received;
	int violations;
	/* For an operation: */
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

static inline void take(struct receiver *receiver, const struct item *item)
{
	if (item->sender > SENDERS || item->number <= receiver->last[item->sender] ||
	    item->padding[0] != (unsigned char)item->number ||
	    item->padding[15] != (unsigned char)item->number)
		receiver->violations++;
	else
		receiver->last[item->sender] = item->number;
	receiver->received++;
}

static inline void make(struct item *item, struct sender *sender, int number)
{
	item->sender = sender->number;
	item->number = (uint32_t)number;
	memset(item->padding, number, sizeof(item->padding));
}

static inline int receive_all(void *arg)
{
	struct receiver *receiver = arg;
	struct item item;
	int err;

	while (!(err = memwait_channel_recv(receiver->channel, &item, sizeof(item))))
		take(receiver, &item);
	return err;
}

static inline int send_all(void *arg)
{
	struct sender *sender = arg;
	struct item item;
	int err;

	while (sender->sent < ROUNDS) {
		make(&item, sender, sender->sent + 1);
		err = memwait_channel_send(sender->channel, &item, sizeof(item));
		if (err)
			return err;
		sender->sent++;
	}
	return 0;
}

static inline void receive_by_callback(memwait_op_t *op, int result, void *data)
{
	struct receiver *receiver = data;

	while (!result) {
		take(receiver, &receiver->item);
		result = memwait_channel_recv_async(receiver->channel, &receiver->item,
						    sizeof(receiver->item), op);
	}
	if (result != EINPROGRESS) {
		receiver->result = result;
		receiver->done = 1;
	}
}

static inline void begin_receiving(struct receiver *receiver, memwait_loop_t *loop)
{
	int ret;

	memwait_op_init(&receiver->op, loop, receive_by_callback, receiver);
	ret = memwait_channel_recv_async(receiver->channel, &receiver->item, sizeof(receiver->item),
					 &receiver->op);
	if (ret != EINPROGRESS)
		receive_by_callback(&receiver->op, ret, receiver);
}

static inline void send_by_callback(memwait_op_t *op, int result, void *data)
{
	struct sender *sender = data;

	while (!result && ++sender->sent < ROUNDS) {
		make(&sender->item, sender, sender->sent + 1);
		result = memwait_channel_send_async(sender->channel, &sender->item,
						    sizeof(sender->item), op);
	}
	if (result != EINPROGRESS) {
		sender->result = result;
		sender->done = 1;
	}
}

static inline void begin_sending(struct sender *sender, memwait_loop_t *loop)
{
	int ret;

	memwait_op_init(&sender->op, loop, send_by_callback, sender);
	make(&sender->item, sender, 1);
	ret = memwait_channel_send_async(sender->channel, &sender->item, sizeof(sender->item),
					 &sender->op);
	if (ret != EINPROGRESS)
		send_by_callback(&sender->op, ret, sender);
}

static inline int receive_once(void *arg)
{
	struct item item;

	return memwait_channel_recv(arg, &item, sizeof(item));
}

static inline int send_once(void *arg)
{
	struct item item = { 0 };

	return memwait_channel_send(arg, &item, sizeof(item));
}

/*
 * Receivers sleep on the half of the word that has the head, which follows a lock. Senders sleep on
 * the corresponding half of the word that has the tail.
 */
#define RECEIVERS_WORD	(64 + 8)
#define SENDERS_WORD	(128 + 8)

struct timed {
	memwait_channel_t *channel;
	struct timespec time;
	clockid_t clock;
	uint64_t item;
};

static inline int receive_timed(void *arg)
{
	struct timed *timed = arg;

	return memwait_channel_clockrecv(timed->channel, &timed->item, sizeof(timed->item),
					 timed->clock, &timed->time);
}

static inline int send_timed(void *arg)
{
	struct timed *timed = arg;

	return memwait_channel_clocksend(timed->channel, &timed->item, sizeof(timed->item),
					 timed->clock, &timed->time);
}

#endif /* CHANNEL_TEST_H */
