/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The objects other than locks that a process of the deaths test uses, and its use of several
 * objects at the same time.
 */
#ifndef DEATHS_WORK_TEST_H
#define DEATHS_WORK_TEST_H

#include "deaths_test.h"

/* Queues: producers and consumers wait for conditions. */

static memwait_cond_t *cond_of(struct guarded *g, enum change change)
{
	return change == FILLED ? &g->filled : &g->freed;
}

static bool can_proceed(const struct guarded *g, bool produces)
{
	uint64_t there = g->made - g->taken;

	return g->closed || (produces ? there < area->queue_size : there > 0);
}

/* The dead owner may have consumed a signal, or may have been about to send a signal. */
static void enter_queue(int o, int ret)
{
	struct guarded *g = &area->objects[o];

	enter(o, ret);
	if (ret == EOWNERDEAD) {
		CHECK_OK(memwait_cond_broadcast(&g->filled));
		CHECK_OK(memwait_cond_broadcast(&g->freed));
	}
}

static int call_cond(memwait_cond_t *cond, struct guarded *g, enum form how,
		     const struct timespec *time, memwait_op_t *op)
{
	return CALL_IN_FORM(how, memwait_cond_clockwait(cond, &g->mutex, CLOCK_MONOTONIC, time),
			    memwait_cond_clockwait, memwait_cond_wait, time, op, cond, &g->mutex);
}

/* Called with the lock held. */
static void await_change(int o, memwait_cond_t *cond)
{
	struct guarded *g = &area->objects[o];
	struct timespec time = soon_time();
	int ret;

	put_hand(o, WAITING);
	ret = op_end(call_cond(cond, g, draw_form("wait"), &time, op_begin()));
	if (ret == ECANCELED) {
		put_hand(o, TAKING);
		step("lock again", "");
		ret = memwait_mutex_lock(&g->mutex);
	}
	enter_queue(o, ret == ETIMEDOUT ? 0 : ret);
}

static void signal_change(int o, enum change change)
{
	memwait_cond_t *cond = cond_of(&area->objects[o], change);

	if (one_in(4))
		CHECK_OK(memwait_cond_broadcast(cond));
	else
		CHECK_OK(memwait_cond_signal(cond));
	store(&me->unsignalled[o], NO_CHANGE);
}

/* Called with the lock held. Adds or removes an item, then unlocks and signals, in either order. */
static void proceed(int o, bool produces)
{
	struct guarded *g = &area->objects[o];
	enum change change = produces ? FILLED : FREED;
	bool early = one_in(2);

	store(&me->unsignalled[o], change);
	if (produces) {
		store(&g->items[g->made % area->queue_size], g->made + 1);
		store(&g->made, g->made + 1);
	} else {
		if (g->items[g->taken % area->queue_size] != g->taken + 1)
			broken("%s: item %llu is %llu", kinds[o].name,
			       (unsigned long long)g->taken + 1,
			       (unsigned long long)g->items[g->taken % area->queue_size]);
		store(&g->taken, g->taken + 1);
	}
	if (early)
		signal_change(o, change);
	leave(o);
	if (!early)
		signal_change(o, change);
}

static void use_queue(int o, bool produces)
{
	struct guarded *g = &area->objects[o];
	int ret;

	for (;;) {
		ret = take(o, kinds[o].calls);
		if (!is_taken(ret))
			continue;
		enter_queue(o, ret);
		while (!can_proceed(g, produces))
			await_change(o, cond_of(g, produces ? FREED : FILLED));
		if (g->closed)
			break;
		proceed(o, produces);
	}
	leave(o);
}

static void produce(int o)
{
	use_queue(o, true);
}

static void consume(int o)
{
	use_queue(o, false);
}

/* The channel. */

static memwait_channel_t *channel(void)
{
	return (memwait_channel_t *)area->channel;
}

static uint32_t check_of(const struct item *item)
{
	return (item->sender + 1) * 2654435761U ^ (uint32_t)item->number;
}

/* Marks the item. Returns false if the item was marked before. */
static bool mark(uint64_t (*marks)[MOST_ITEMS / 64], int sender, uint64_t number)
{
	uint64_t bit = 1ULL << number % 64;

	return !(__atomic_fetch_or(&marks[sender][number / 64 % (MOST_ITEMS / 64)], bit,
				   __ATOMIC_SEQ_CST) & bit);
}

/*
 * Stores the next item in *item, and records its number before the item is sent. Returns false if
 * this round has no more items.
 */
static bool make_item(struct item *item)
{
	if (me->next >= MOST_ITEMS)
		return false;
	*item = (struct item){ .sender = my_slot, .number = me->next };
	item->check = check_of(item);
	store(&me->sending, item->number);
	return true;
}

/* Returns false if the send returned EPIPE. */
static bool has_sent(int ret)
{
	if (!ret) {
		mark(area->sent, my_slot, me->sending);
		store(&me->next, me->sending + 1);
		add(&area->items_sent, 1);
	} else if (ret != EPIPE && !has_given_up(ret)) {
		expect(ret, 0, "send");
	}
	store(&me->sending, 0);
	return ret != EPIPE;
}

static int call_send(const struct item *item, enum form how, const struct timespec *time,
		     memwait_op_t *op)
{
	return CALL_IN_FORM(how, memwait_channel_trysend(channel(), item, sizeof(*item)),
			    memwait_channel_clocksend, memwait_channel_send, time, op, channel(),
			    item, sizeof(*item));
}

static void send_items(int unused)
{
	struct timespec time;
	struct item item;
	int ret;

	do {
		time = soon_time();
		ret = EAGAIN;
		if (make_item(&item))
			ret = op_end(call_send(&item, draw_form("send"), &time, op_begin()));
		else
			usleep(1000);
	} while (has_sent(ret) && running());
}

/* Returns whether the receiver continues. */
static bool has_received(int ret, const struct item *item)
{
	if (has_given_up(ret) || ret == EPIPE) {
		store(&me->receiving, 0);
		return ret != EPIPE;
	}
	expect(ret, 0, "receive");
	add(&area->items_received, 1);
	if (item->sender != POISON) {
		if (item->sender >= MOST_SLOTS || item->check != check_of(item))
			broken("item %llu of %u is corrupt", (unsigned long long)item->number,
			       item->sender);
		if (item->number <= my_last[item->sender])
			broken("item %llu of %u after item %llu", (unsigned long long)item->number,
			       item->sender, (unsigned long long)my_last[item->sender]);
		my_last[item->sender] = item->number;
		if (!mark(area->received, item->sender, item->number))
			broken("item %llu of %u received twice", (unsigned long long)item->number,
			       item->sender);
	}
	store(&me->receiving, 0);
	return item->sender != POISON;
}

static int call_receive(struct item *item, enum form how, const struct timespec *time,
			memwait_op_t *op)
{
	return CALL_IN_FORM(how, memwait_channel_tryrecv(channel(), item, sizeof(*item)),
			    memwait_channel_clockrecv, memwait_channel_recv, time, op, channel(),
			    item, sizeof(*item));
}

static void receive_items(int unused)
{
	struct timespec time;
	struct item item;
	int ret;

	do {
		time = soon_time();
		store(&me->receiving, 1);
		ret = op_end(call_receive(&item, draw_form("receive"), &time, op_begin()));
	} while (has_received(ret, &item));
}

/* The barrier. A process counts as present from before its call until after the return. */

static uint64_t stamp(void)
{
	return add(&area->clock, 1);
}

static bool is_absent(const struct record *record)
{
	uint64_t returned = load(&record->returned);

	return load(&record->arrived) < returned && returned < me->arrived;
}

static void arrive(void)
{
	store(&me->arrived, stamp());
}

/*
 * All processes were present at some time after this process arrived. Therefore no process can have
 * been absent from then until now.
 */
static void return_from_barrier(int ret)
{
	int slot;

	if (!ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD) {
		for (slot = 0; slot < MOST_SLOTS; slot++) {
			if (area->members[slot] && is_absent(&area->records[slot]))
				broken("slot %d passed the barrier, but slot %d was not there",
				       my_slot, slot);
		}
		add(&area->meetings, 1);
	} else if (ret != ETIMEDOUT && ret != ECANCELED) {
		broken("barrier: %s", strerror(ret));
	}
	store(&me->returned, stamp());
}

static int call_barrier(enum form how, const struct timespec *time, memwait_op_t *op)
{
	return CALL_IN_FORM(how, memwait_barrier_clockwait(&area->barrier, CLOCK_MONOTONIC, time),
			    memwait_barrier_clockwait, memwait_barrier_wait, time, op,
			    &area->barrier);
}

static void meet(int unused)
{
	struct timespec time;

	while (running()) {
		give_way();
		time = soon_time();
		arrive();
		return_from_barrier(op_end(call_barrier(draw_form("meet"), &time, op_begin())));
	}
}

/*
 * The wait group. Each epoch has a number of tickets. When all tickets are done, all processes
 * continue.
 */

static void claim_tickets(void)
{
	int i;

	for (i = 0; i < TICKETS; i++) {
		uint32_t unclaimed = TICKET(UNCLAIMED, 0);

		if (!__atomic_compare_exchange_n(&area->tickets[i], &unclaimed,
						 TICKET(CLAIMED, my_slot), false, __ATOMIC_SEQ_CST,
						 __ATOMIC_SEQ_CST))
			continue;
		step("done", "");
		give_way();
		step("done", "finish");
		store(&area->tickets[i], TICKET(FINISHING, my_slot));
		CHECK_OK(memwait_waitgroup_done(&area->group));
		store(&area->tickets[i], TICKET(DONE, my_slot));
		give_way();
	}
}

static void pass_epoch(uint32_t epoch, int ret)
{
	int i;

	if (has_given_up(ret))
		return;
	expect(ret, 0, "wait for all");
	for (i = 0; i < TICKETS; i++) {
		uint32_t ticket = load(&area->tickets[i]);

		if (TICKET_STATE(ticket) == UNCLAIMED || TICKET_STATE(ticket) == CLAIMED)
			broken("wait group: slot %d continued, but ticket %d is %x", my_slot, i,
			       ticket);
	}
	store(&me->passed, epoch);
}

static int call_group(enum form how, const struct timespec *time, memwait_op_t *op)
{
	return CALL_IN_FORM(how, memwait_waitgroup_clockwait(&area->group, CLOCK_MONOTONIC, time),
			    memwait_waitgroup_clockwait, memwait_waitgroup_wait, time, op,
			    &area->group);
}

static void await_all(uint32_t epoch)
{
	struct timespec time = soon_time();

	pass_epoch(epoch, op_end(call_group(draw_form("wait for all"), &time, op_begin())));
}

static void help(int unused)
{
	while (running()) {
		uint32_t epoch = load(&area->epoch);

		if (me->passed == epoch) {
			step("next epoch", "");
			if (memwait_wait32(&area->epoch, epoch, NULL, 0) < 0)
				broken("wait for an epoch");
			continue;
		}
		claim_tickets();
		await_all(epoch);
	}
}

/*
 * A process that uses all these objects at the same time in one loop. A task begins a call, which
 * ends immediately or with a callback.
 */
struct task {
	const char *name;
	int (*begin)(struct task *task);
	void (*end)(struct task *task, int ret);
	int object;
	bool waits;
	bool pending;
	bool over;
	uint32_t epoch;
	struct item item;
	memwait_op_t op;
};

static void task_ended(memwait_op_t *op, int ret, void *data)
{
	struct task *task = data;

	task->pending = false;
	task->end(task, ret);
}

static int begin_lock(struct task *task)
{
	static const int objects[] = { ROBUST, ROBUST_RECURSIVE, ROBUST_ERRORCHECK, ROBUST_RWLOCK,
				       TOKENS };
	struct timespec time = soon_time();

	task->object = objects[draw(ARRAY_SIZE(objects))];
	if (load(&area->objects[ROBUST_ERRORCHECK].ruined))
		task->object = ROBUST_ERRORCHECK;
	if (load(&me->hands[task->object]) == RUINED)
		task->object = ROBUST;
	put_hand(task->object, TAKING);
	return kinds[task->object].calls->take(&area->objects[task->object],
					       one_in(8) ? ASYNC_UNTIL : ASYNC, &time, &task->op);
}

static void end_lock(struct task *task, int ret)
{
	if (ret == ENOTRECOVERABLE) {
		give_up_ruined(task->object);
	} else if (has_given_up(ret)) {
		put_hand(task->object, FREE);
	} else {
		enter(task->object, ret);
		leave(task->object);
	}
}

static int begin_consume(struct task *task)
{
	task->waits = false;
	put_hand(task->object, TAKING);
	return call_mutex(&area->objects[task->object], ASYNC, NULL, &task->op);
}

static void end_consume(struct task *task, int ret)
{
	struct guarded *g = &area->objects[task->object];

	if (ret == ECANCELED) {
		put_hand(task->object, FREE);
		return;
	}
	enter_queue(task->object, ret);
	while (!can_proceed(g, false)) {
		put_hand(task->object, WAITING);
		ret = memwait_cond_wait_async(&g->filled, &g->mutex, &task->op);
		if (ret == EINPROGRESS) {
			task->pending = true;
			return;
		}
		enter_queue(task->object, ret);
	}
	if (g->closed)
		leave(task->object);
	else
		proceed(task->object, false);
}

static int begin_send(struct task *task)
{
	int ret = EAGAIN;

	if (!make_item(&task->item))
		return ret;
	return call_send(&task->item, ASYNC, NULL, &task->op);
}

static void end_send(struct task *task, int ret)
{
	if (!has_sent(ret))
		task->over = true;
}

static int begin_receive(struct task *task)
{
	store(&me->receiving, 1);
	return call_receive(&task->item, ASYNC, NULL, &task->op);
}

static void end_receive(struct task *task, int ret)
{
	if (!has_received(ret, &task->item))
		task->over = true;
}

static int begin_meet(struct task *task)
{
	arrive();
	return call_barrier(ASYNC, NULL, &task->op);
}

static void end_meet(struct task *task, int ret)
{
	return_from_barrier(ret);
}

/*
 * Waits for the start of the next epoch, by a wait for the epoch's word, or for the end of this
 * epoch.
 */
static int begin_epoch(struct task *task)
{
	int ret;

	task->epoch = load(&area->epoch);
	task->waits = me->passed == task->epoch;
	if (!task->waits)
		return call_group(ASYNC, NULL, &task->op);
	ret = memwait_wait32_async(&area->epoch, task->epoch, NULL, 0, &task->op);
	if (ret < 0)
		broken("wait for an epoch: %d", ret);
	return ret == MEMWAIT_PENDING ? EINPROGRESS : 0;
}

static void end_epoch(struct task *task, int ret)
{
	if (!task->waits)
		pass_epoch(task->epoch, ret);
}

static struct task tasks[] = {
	{ .name = "lock", .begin = begin_lock, .end = end_lock },
	{ .name = "consume", .begin = begin_consume, .end = end_consume, .object = ROBUST_QUEUE },
	{ .name = "send", .begin = begin_send, .end = end_send },
	{ .name = "receive", .begin = begin_receive, .end = end_receive },
	{ .name = "meet", .begin = begin_meet, .end = end_meet },
	{ .name = "epoch", .begin = begin_epoch, .end = end_epoch },
};

/* Returns whether the task is waiting. */
static bool begin_task(struct task *task)
{
	int ret;

	if (task->pending || task->over)
		return true;
	step(task->name, "juggle");
	ret = task->begin(task);
	task->pending = ret == EINPROGRESS;
	if (!task->pending)
		task->end(task, ret);
	return task->pending;
}

static void cancel_tasks(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(tasks); i++) {
		step(tasks[i].name, "cancel");
		if (!tasks[i].pending)
			continue;
		CHECK_OK(memwait_op_cancel(&tasks[i].op));
		tasks[i].pending = false;
		tasks[i].end(&tasks[i], ECANCELED);
	}
}

static void juggle(int unused)
{
	struct pollfd pfd = { .fd = memwait_loop_fd(my_loop), .events = POLLIN };
	bool all_pend;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(tasks); i++)
		CHECK_OK(memwait_op_init(&tasks[i].op, my_loop, task_ended, &tasks[i]));
	while (running()) {
		all_pend = true;
		for (i = 0; i < ARRAY_SIZE(tasks); i++)
			all_pend = begin_task(&tasks[i]) && all_pend;
		/* The timeout only makes the process check the phase regularly. */
		if (poll(&pfd, 1, all_pend ? 10 : 0) > 0 &&
		    memwait_loop_dispatch(my_loop, MEMWAIT_ALL) < 0)
			broken("dispatch");
	}
	cancel_tasks();
}

#endif /* DEATHS_WORK_TEST_H */
