// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Channels: a ring of slots, and two words that senders and receivers sleep on.
 *
 * Whoever moves head (or tail) on by compare-and-swap has the slot there. The slot's own sequence
 * says what it is ready for: 2 * lap when it is free for that lap, 2 * lap + 1 when it is full;
 * stored with release after the item was written (or read), loaded with acquire before. CLOSED is
 * a bit of head, so that nothing is sent once it is set, and receivers know what is still to come.
 *
 * An event word (@filled, @freed) has a generation (internal.h), how many wait, and ARMED, without
 * which nobody has to be notified:
 *
 *	waiter					sender, of a receiver that waits
 *	(1) arm: ARMED; read the generation	(1) fill a slot
 *	(2) look for a full slot		(2) change the generation
 *	(3) sleep while the generation is	(3) notify one, if ARMED
 *						(4) take ARMED away, if nobody sleeps
 *
 * (1) of the one and (2) of the other change the same word: either the waiter's look finds the
 * slot, or the sender sees ARMED and finds the waiter asleep, or the waiter does not go to sleep.
 *
 * Who has been notified arms again before it sleeps again, and looks in between. Until then nobody
 * has to tell it of anything, and a stream of items does not cost a notify for each of them while
 * it has not run yet. Hence (4): nobody sleeps who has armed before (2), if none was found asleep,
 * or just one and no more than one waited, as they have the old generation. It is a
 * compare-and-swap, which must fail if anybody has armed since. So who arms leaves a stamp, the
 * lower bits of the generation. If the stamp was another one than that of (2), then who arms at
 * that generation changes it, and nobody changes it back before the generation is another one. (4)
 * comes after (3), so that a notify that fails, or is not made as its process was killed, is made
 * up for by the next one.
 *
 * ARMED may be there for nothing: one notify does not tell whether more are asleep if several wait;
 * of two that announce at once neither may get to take it away.
 *
 * One notify for each slot is not quite enough. A slot may be filled while one before it is not:
 * its notify wakes a receiver that can do nothing with it, and sleeps again. Hence who has taken an
 * item, and sees the next one there and ARMED, notifies too. And who takes the last item of a
 * closed channel wakes all: nothing else will.
 *
 * (D) Who sleeps although the channel is closed has read head, closed, and then tail, which was not
 *     up to it. Who takes the last item moves tail, and then reads head. In the one order of all
 *     four, which is why they are sequentially consistent, closing comes before the latter's
 *     reading of head. So it knows that the channel is closed, and wakes the former.
 *
 * A process that is killed before (1) is done, within the copying of an item, leaves a slot behind
 * that nobody gets past. One that is killed after (1) and before (3) leaves an item that a sleeper
 * does not learn of until the next one is sent; or a place, until the next one is received.
 */
#include <string.h>

#include "internal.h"

struct slot {
	_Atomic uint64_t sequence;
	unsigned char item[];
};

struct memwait_channel {
	uint32_t item_size;
	uint32_t capacity;		/* 0: not initialised */
	uint64_t slot_size;
	uint32_t flags;			/* MEMWAIT_PRIVATE or 0 */
	/* Apart, as senders and receivers write them at the same time; if the whole is aligned. */
	unsigned char padding[44];
	_Atomic uint64_t head;
	_Atomic uint64_t filled;
	unsigned char padding_after_head[48];
	_Atomic uint64_t tail;
	_Atomic uint64_t freed;
	unsigned char padding_after_tail[48];
	unsigned char slots[];
};

_Static_assert(offsetof(struct memwait_channel, slots) == 3 * 64, "three cache lines");

#define CLOSED		(1ULL << 63)

/* Of an event word. STAMP: as many of the generation's lower bits as there is room for. */
#define ARMED		1ULL
#define WAITER		(1ULL << 1)
#define WAITERS		(((1ULL << 22) - 1) * WAITER)
#define STAMP		(((1ULL << 9) - 1) << 23)
#define GENERATION	(1ULL << 32)

static uint64_t index_of(uint64_t head)
{
	return head & ~CLOSED;
}

static uint64_t slot_size(size_t item_size)
{
	return (sizeof(struct slot) + item_size + 7) & ~7ULL;
}

static struct slot *slot_at(struct memwait_channel *channel, uint64_t index)
{
	return (struct slot *)(channel->slots + index % channel->capacity * channel->slot_size);
}

/* The sequence of a slot that is free for @index; one more, when it is full. */
static uint64_t sequence_at(struct memwait_channel *channel, uint64_t index)
{
	return index / channel->capacity * 2;
}

static bool is_ready(struct memwait_channel *channel, uint64_t index, bool full)
{
	/* acquire: pairs with the release of who filled or emptied it */
	return atomic_load_explicit(&slot_at(channel, index)->sequence, memory_order_acquire) ==
	       sequence_at(channel, index) + full;
}

size_t memwait_channel_size(size_t item_size, size_t capacity)
{
	size_t size;

	if (!item_size || !capacity || item_size > UINT32_MAX || capacity > UINT32_MAX)
		return 0;
	if (__builtin_mul_overflow(slot_size(item_size), capacity, &size) ||
	    __builtin_add_overflow(size, sizeof(struct memwait_channel), &size))
		return 0;
	return size;
}

int memwait_channel_init(memwait_channel_t *channel, unsigned int flags, size_t item_size,
			 size_t capacity)
{
	size_t i;

	if (!channel || (uintptr_t)channel % 8 || (flags & ~(unsigned int)MEMWAIT_PRIVATE) ||
	    !memwait_channel_size(item_size, capacity))
		return EINVAL;
	memset(channel, 0, sizeof(*channel));
	channel->item_size = (uint32_t)item_size;
	channel->capacity = (uint32_t)capacity;
	channel->slot_size = slot_size(item_size);
	channel->flags = flags;
	for (i = 0; i < capacity; i++)
		atomic_init(&slot_at(channel, i)->sequence, 0);
	return 0;
}

static bool is_valid(struct memwait_channel *channel)
{
	return channel && channel->capacity;
}

int memwait_channel_destroy(memwait_channel_t *channel)
{
	if (!is_valid(channel))
		return EINVAL;
	/* acquire, both: who destroys it may free it */
	if ((atomic_load_explicit(&channel->filled, memory_order_acquire) & WAITERS) ||
	    (atomic_load_explicit(&channel->freed, memory_order_acquire) & WAITERS))
		return EBUSY;
	channel->capacity = 0;
	return 0;
}

static uint32_t generation_of(uint64_t event)
{
	return (uint32_t)(event >> 32);
}

/* What STAMP is of who arms now. */
static uint64_t stamp_of(uint64_t event)
{
	return event >> 9 & STAMP;
}

/* Something has happened: wakes so many of those who wait for it. */
static int announce(struct memwait_channel *channel, _Atomic uint64_t *event, uint32_t count)
{
	/* acq_rel: the waiter comes after what has happened, or this comes after the waiter */
	uint64_t was = atomic_fetch_add_explicit(event, GENERATION, memory_order_acq_rel);
	uint64_t now = was + GENERATION;
	int woken;

	if (!(was & ARMED))
		return 0;
	woken = memwait_device_notify(memwait_upper_half(event), count, channel->flags);
	if (woken < 0)
		return -woken;
	if ((!woken || (woken == 1 && (was & WAITERS) == WAITER)) && (now & STAMP) != stamp_of(now))
		/* relaxed, both: who arms after this comes after (2) all the same */
		atomic_compare_exchange_strong_explicit(event, &now, now & ~ARMED,
							memory_order_relaxed, memory_order_relaxed);
	return 0;
}

/* There is one more than has been announced to those who wait now. */
static void announce_next(struct memwait_channel *channel, _Atomic uint64_t *event)
{
	/* relaxed: who comes later looks itself */
	if (atomic_load_explicit(event, memory_order_relaxed) & ARMED)
		announce(channel, event, 1);
}

/* Returns 0, EAGAIN or EPIPE; or an error from waking a receiver: the item has been sent. */
static int try_send(struct memwait_channel *channel, const void *item)
{
	/* relaxed: the slot's sequence orders what is in it */
	uint64_t head = atomic_load_explicit(&channel->head, memory_order_relaxed);
	struct slot *slot;
	int ret;

	for (;;) {
		if (head & CLOSED)
			return EPIPE;
		if (is_ready(channel, head, false)) {
			/* relaxed, both: as above */
			if (atomic_compare_exchange_weak_explicit(&channel->head, &head, head + 1,
								  memory_order_relaxed,
								  memory_order_relaxed))
				break;
		} else {
			/* relaxed: as above */
			uint64_t now = atomic_load_explicit(&channel->head, memory_order_relaxed);

			if (now == head)
				return EAGAIN;
			head = now;
		}
	}
	slot = slot_at(channel, head);
	memcpy(slot->item, item, channel->item_size);
	/* release: the item is there for who sees the slot full */
	atomic_store_explicit(&slot->sequence, sequence_at(channel, head) + 1,
			      memory_order_release);
	ret = announce(channel, &channel->filled, 1);
	if (is_ready(channel, head + 1, false))
		announce_next(channel, &channel->freed);
	return ret;
}

/* Returns 0, EAGAIN or EPIPE; or an error from waking somebody: the item has been received. */
static int try_recv(struct memwait_channel *channel, void *item)
{
	/* relaxed: the slot's sequence orders what is in it */
	uint64_t tail = atomic_load_explicit(&channel->tail, memory_order_relaxed);
	struct slot *slot;
	uint64_t head;
	int ret;

	for (;;) {
		if (is_ready(channel, tail, true)) {
			/* seq_cst: (D) */
			if (atomic_compare_exchange_weak_explicit(&channel->tail, &tail, tail + 1,
								  memory_order_seq_cst,
								  memory_order_relaxed))
				break;
		} else {
			uint64_t now;

			/* seq_cst, both: (D) */
			head = atomic_load_explicit(&channel->head, memory_order_seq_cst);
			now = atomic_load_explicit(&channel->tail, memory_order_seq_cst);
			if (now == tail)
				return head == (CLOSED | tail) ? EPIPE : EAGAIN;
			tail = now;
		}
	}
	slot = slot_at(channel, tail);
	memcpy(item, slot->item, channel->item_size);
	/* release: the slot is written again after it was read */
	atomic_store_explicit(&slot->sequence, sequence_at(channel, tail) + 2,
			      memory_order_release);
	ret = announce(channel, &channel->freed, 1);

	/* seq_cst: (D) */
	head = atomic_load_explicit(&channel->head, memory_order_seq_cst);
	if (head == (CLOSED | (tail + 1)))
		announce(channel, &channel->filled, MEMWAIT_ALL);
	else if (is_ready(channel, tail + 1, true))
		announce_next(channel, &channel->filled);
	return ret;
}

/* What differs between sending and receiving. */
static int attempt(struct memwait_channel *channel, void *item, bool sending)
{
	return sending ? try_send(channel, item) : try_recv(channel, item);
}

static _Atomic uint64_t *event_of(struct memwait_channel *channel, bool sending)
{
	return sending ? &channel->freed : &channel->filled;
}

/* Before each look that may be followed by sleep. @enters: it does not wait yet. 0 or ENOMEM. */
static int arm(_Atomic uint64_t *event, bool enters, uint32_t *generation)
{
	/* relaxed: what is read counts only if it is still so */
	uint64_t was = atomic_load_explicit(event, memory_order_relaxed);
	uint64_t now;

	do {
		if (enters && (was & WAITERS) == WAITERS)
			return ENOMEM;
		now = (was & ~STAMP) | stamp_of(was) | ARMED;
		if (enters)
			now += WAITER;
		/* acq_rel: as announce(); relaxed: as above */
	} while (!atomic_compare_exchange_weak_explicit(event, &was, now, memory_order_acq_rel,
							memory_order_relaxed));
	*generation = generation_of(now);
	return 0;
}

/* ARMED goes with the last one: a notify for nobody can fail, after its item has been sent. */
static void leave(_Atomic uint64_t *event)
{
	/* relaxed: what is read counts only if it is still so */
	uint64_t was = atomic_load_explicit(event, memory_order_relaxed);
	uint64_t now;

	do {
		now = was - WAITER;
		if (!(now & WAITERS))
			now &= ~ARMED;
		/* release: pairs with memwait_channel_destroy(); relaxed: as above */
	} while (!atomic_compare_exchange_weak_explicit(event, &was, now, memory_order_release,
							memory_order_relaxed));
}

/*
 * Returns EAGAIN if it is to sleep while the generation is @generation, and what attempt() returns
 * otherwise, or ENOMEM. It arms only if there is nothing to be had without.
 */
static int look(struct memwait_channel *channel, void *item, bool sending, bool *waits,
		uint32_t *generation)
{
	int ret = attempt(channel, item, sending);

	if (ret != EAGAIN)
		return ret;
	ret = arm(event_of(channel, sending), !*waits, generation);
	if (ret)
		return ret;
	*waits = true;
	return attempt(channel, item, sending);
}

static int transfer_until(struct memwait_channel *channel, void *item, bool sending,
			  const struct memwait_deadline *deadline)
{
	_Atomic uint64_t *event;
	uint32_t generation;
	bool waits = false;
	int ret;

	if (!is_valid(channel) || !item)
		return EINVAL;
	event = event_of(channel, sending);
	for (;;) {
		ret = look(channel, item, sending, &waits, &generation);
		if (ret != EAGAIN)
			break;
		ret = memwait_sleep(memwait_upper_half(event), generation,
				    MEMWAIT_SIZE_U32 | channel->flags, deadline);
		if (ret == MEMWAIT_TIMED_OUT || (ret < 0 && ret != -EINTR)) {
			ret = ret < 0 ? -ret : ETIMEDOUT;
			break;
		}
	}
	if (waits)
		leave(event);
	return ret;
}

static int transfer_clock(struct memwait_channel *channel, void *item, bool sending,
			  clockid_t clock, const struct timespec *abstime)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, abstime);

	return err ? err : transfer_until(channel, item, sending, &deadline);
}

/* An item to send is only read. */
static void *without_const(const void *item)
{
	return (void *)(uintptr_t)item;
}

int memwait_channel_send(memwait_channel_t *channel, const void *item)
{
	return transfer_until(channel, without_const(item), true, &memwait_never);
}

int memwait_channel_recv(memwait_channel_t *channel, void *item)
{
	return transfer_until(channel, item, false, &memwait_never);
}

int memwait_channel_trysend(memwait_channel_t *channel, const void *item)
{
	if (!is_valid(channel) || !item)
		return EINVAL;
	return try_send(channel, item);
}

int memwait_channel_tryrecv(memwait_channel_t *channel, void *item)
{
	if (!is_valid(channel) || !item)
		return EINVAL;
	return try_recv(channel, item);
}

int memwait_channel_clocksend(memwait_channel_t *channel, const void *item, clockid_t clock,
			      const struct timespec *abstime)
{
	return transfer_clock(channel, without_const(item), true, clock, abstime);
}

int memwait_channel_clockrecv(memwait_channel_t *channel, void *item, clockid_t clock,
			      const struct timespec *abstime)
{
	return transfer_clock(channel, item, false, clock, abstime);
}

int memwait_channel_timedsend(memwait_channel_t *channel, const void *item,
			      const struct timespec *abstime)
{
	return memwait_channel_clocksend(channel, item, CLOCK_REALTIME, abstime);
}

int memwait_channel_timedrecv(memwait_channel_t *channel, void *item,
			      const struct timespec *abstime)
{
	return memwait_channel_clockrecv(channel, item, CLOCK_REALTIME, abstime);
}

static int transfer_step(struct memwait_op *op, bool sending, int outcome)
{
	struct memwait_channel *channel = op->object;
	_Atomic uint64_t *event = event_of(channel, sending);
	bool waits = outcome != MEMWAIT_OP_BEGIN;
	uint32_t generation;
	int ret;

	for (;;) {
		if (outcome == MEMWAIT_TIMED_OUT) {
			ret = ETIMEDOUT;
			break;
		}
		ret = look(channel, op->item, sending, &waits, &generation);
		if (ret != EAGAIN)
			break;
		outcome = memwait_op_arm(op, memwait_upper_half(event), generation,
					 MEMWAIT_SIZE_U32 | channel->flags);
		if (outcome == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
		if (outcome < 0) {
			ret = -outcome;
			break;
		}
	}
	if (waits)
		leave(event);
	return ret;
}

static void transfer_undo(struct memwait_op *op, bool sending, int outcome)
{
	struct memwait_channel *channel = op->object;
	_Atomic uint64_t *event = event_of(channel, sending);

	if (outcome == MEMWAIT_OK)
		announce_next(channel, event);
	leave(event);
}

static int send_step(struct memwait_op *op, int outcome)
{
	return transfer_step(op, true, outcome);
}

static int recv_step(struct memwait_op *op, int outcome)
{
	return transfer_step(op, false, outcome);
}

static void send_undo(struct memwait_op *op, int outcome)
{
	transfer_undo(op, true, outcome);
}

static void recv_undo(struct memwait_op *op, int outcome)
{
	transfer_undo(op, false, outcome);
}

static const struct memwait_op_kind send_kind = { send_step, send_undo };
static const struct memwait_op_kind recv_kind = { recv_step, recv_undo };

static int begin(memwait_channel_t *channel, const struct memwait_op_kind *kind, void *item,
		 const struct memwait_deadline *deadline, memwait_op_t *op)
{
	if (!is_valid(channel) || !item)
		return EINVAL;
	return memwait_op_begin(op, kind, channel, item, deadline);
}

int memwait_channel_send_async(memwait_channel_t *channel, const void *item, memwait_op_t *op)
{
	return begin(channel, &send_kind, without_const(item), &memwait_never, op);
}

int memwait_channel_recv_async(memwait_channel_t *channel, void *item, memwait_op_t *op)
{
	return begin(channel, &recv_kind, item, &memwait_never, op);
}

int memwait_channel_clocksend_async(memwait_channel_t *channel, const void *item, clockid_t clock,
				    const struct timespec *abstime, memwait_op_t *op)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, abstime);

	return err ? err : begin(channel, &send_kind, without_const(item), &deadline, op);
}

int memwait_channel_clockrecv_async(memwait_channel_t *channel, void *item, clockid_t clock,
				    const struct timespec *abstime, memwait_op_t *op)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, abstime);

	return err ? err : begin(channel, &recv_kind, item, &deadline, op);
}

int memwait_channel_close(memwait_channel_t *channel)
{
	int ret, err;

	if (!is_valid(channel))
		return EINVAL;
	/* seq_cst: (D) */
	if (atomic_fetch_or_explicit(&channel->head, CLOSED, memory_order_seq_cst) & CLOSED)
		return EPIPE;
	ret = announce(channel, &channel->filled, MEMWAIT_ALL);
	err = announce(channel, &channel->freed, MEMWAIT_ALL);
	return ret ? ret : err;
}

size_t memwait_channel_length(memwait_channel_t *channel)
{
	uint64_t head, tail;

	if (!is_valid(channel))
		return 0;
	/* relaxed, both: out of date at once */
	tail = atomic_load_explicit(&channel->tail, memory_order_relaxed);
	head = index_of(atomic_load_explicit(&channel->head, memory_order_relaxed));
	return head > tail ? (size_t)(head - tail) : 0;
}
