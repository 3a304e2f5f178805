// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Channels: a ring of items between two positions, each with a lock (owner.c; lock.c of a private
 * channel) and an event word of 64 bits:
 *
 *	bit 0		CLOSED
 *	bits 1 to 31	the position of this side
 *	bit 32		ARMED: a change of the lower half is to be notified
 *	bits 33 to 54	how many wait for a change of this side
 *	bit 55		OWED: somebody could not be woken who sleeps for a change, or for the lock
 *	bits 56 to 63	the stamp: the lower bits of the position at which a waiter armed last
 *
 * Invariants:
 *	A position is below the number of positions. Only the thread with that side's lock moves it
 *	on, by one.
 *	head is not more than the capacity ahead of tail, and not behind it.
 *	ARMED => somebody is counted that waits.
 *	CLOSED is never cleared, and is set at tail after it is set at head.
 *
 * Senders write the item at head, and then move head on, one after another: they have the lock of
 * that side. Receivers read the item at tail, and then move tail on, likewise. A position counts up
 * to a large multiple of twice the capacity: a full ring and an empty one differ, and a waiter that
 * stands still between (1) and (3) below does not take a later position for the one that it has
 * seen.
 *
 * Death. To move a position on is one atomic operation. Before it nothing has been sent, or
 * received; after it, everything. So the lock of a process that died with it can be taken over as
 * it is: the item that the dead had in hand is lost, and no place can be.
 *
 *	waiter					the other side
 *	(1) arm: ARMED				(1) write or read the item
 *	(2) look, with the lock			(2) not ARMED: compare-and-swap the position
 *	(3) sleep while the position is	    ARMED: change it, and notify one
 *	    as it was at (1)			(3) clear ARMED, if nobody sleeps
 *
 * (1) of the one and (2) of the other change the same word: either the waiter's look finds the
 * change, or the other side sees ARMED. It changes the position and notifies by one system call
 * then, so that no death can separate the two. If a waiter dies that was notified, and has not
 * received, the next one is told (MEMWAIT_OWNED, see internal.h).
 *
 * A waiter that was notified looks, and arms again before it sleeps again. Until then it need not
 * be told of anything, and a stream of items does not cost a notify for each of them. Hence (3).
 * No waiter sleeps that armed before (2), if none was found asleep, or just one and no more than
 * one waited: they have the old position. It is a compare-and-swap, which must fail if a waiter has
 * armed since. Therefore a waiter that arms leaves the stamp. If the stamp was not that of (2), a
 * waiter that arms at that position changes it, and nobody changes it back while the other side has
 * its lock. If this thread dies before (3), the next change makes up for it.
 *
 * ARMED may be there for nothing: one notify does not tell whether more are asleep if several wait.
 *
 * Two notifies wake two waiters, and the kernel looks to the second one only, see internal.h. Hence
 * a thread that has taken an item, and sees the next one there and ARMED, notifies too.
 *
 * CLOSED is set without a lock, at head and then at tail, each time together with waking all that
 * sleep there. So none of them goes to sleep any more, or sleeps on. At head it counts: a sender
 * that has the lock, and has not seen it there, sends all the same. So a receiver that finds the
 * ring empty, and CLOSED, takes the senders' lock for a moment: after that nothing comes any more.
 *
 * The thread that closes may die between the two. It answers for the senders that sleep, so one of
 * them is told; and each thread that finds CLOSED at head, and not at tail, sets it there.
 *
 * Without the device. A call that would have to notify, and cannot, does nothing: nothing was sent,
 * received or closed. If it has closed at head only, it is as if it had died between the two. Two
 * kinds of sleepers are left: those of a lock that is unlocked, and those behind a waiter that
 * gives up. For these OWED is set. The next call, on either side, wakes all who sleep for that
 * side's change, and one who sleeps on its lock.
 *
 * Lock order: receivers, senders.
 */
#include <string.h>

#include "internal.h"

/* What one side writes: a cache line, if the whole is aligned. */
struct side {
	union {
		_Atomic uint64_t owned;		/* the lock, an owner word */
		_Atomic uint32_t word;		/* of a private channel, a lock word */
	};
	_Atomic uint64_t event;
	_Atomic uint32_t spins;			/* of the lock */
	unsigned char padding[44];
};

struct memwait_channel {
	uint32_t item_size;
	uint32_t capacity;		/* 0: not initialised */
	uint64_t slot_size;
	uint32_t flags;			/* MEMWAIT_PRIVATE or 0 */
	uint32_t positions;		/* how many there are, below MOST_POSITIONS */
	unsigned char padding[40];
	struct side senders;		/* head; receivers sleep on its event */
	struct side receivers;		/* tail */
	unsigned char slots[];
};

_Static_assert(offsetof(struct memwait_channel, slots) == 3 * 64, "three cache lines");

/* Of an event word, see above. */
#define CLOSED		1ULL
#define POSITION	2ULL
#define LOWER_HALF	((uint64_t)UINT32_MAX)
#define ARMED		(1ULL << 32)
#define WAITER		(1ULL << 33)
#define WAITERS		(((1ULL << 22) - 1) * WAITER)
#define OWED		(1ULL << 55)
#define STAMP_BITS	8
#define STAMP_PLACE	56
#define STAMP		(((1ULL << STAMP_BITS) - 1) << STAMP_PLACE)

/* So that a position, and CLOSED, are 32 bits. */
#define MOST_POSITIONS	(1U << 31)
#define MOST_SLOTS	(MOST_POSITIONS / 2)

static uint64_t slot_size(size_t item_size)
{
	return (item_size + 7) & ~(size_t)7;
}

size_t memwait_channel_size(size_t item_size, size_t capacity)
{
	size_t size;

	if (!item_size || !capacity || item_size > UINT32_MAX || capacity > MOST_SLOTS)
		return 0;
	if (__builtin_mul_overflow(slot_size(item_size), capacity, &size) ||
	    __builtin_add_overflow(size, sizeof(struct memwait_channel), &size))
		return 0;
	return size;
}

int memwait_channel_init(memwait_channel_t *channel, unsigned int flags, size_t item_size,
			 size_t capacity)
{
	if (!channel || (uintptr_t)channel % 8 || (flags & ~(unsigned int)MEMWAIT_PRIVATE) ||
	    !memwait_channel_size(item_size, capacity))
		return EINVAL;
	memset(channel, 0, sizeof(*channel));
	channel->item_size = (uint32_t)item_size;
	channel->capacity = (uint32_t)capacity;
	channel->slot_size = slot_size(item_size);
	channel->positions = MOST_POSITIONS / (2 * (uint32_t)capacity) * 2 * (uint32_t)capacity;
	channel->flags = flags;
	return memwait_need_device();
}

static bool is_valid(struct memwait_channel *channel)
{
	return channel && channel->capacity;
}

static bool is_private(const struct memwait_channel *channel)
{
	return channel->flags & MEMWAIT_PRIVATE;
}

static const volatile void *event_word(struct side *side)
{
	return memwait_lower_half(&side->event);
}

/* Those that transfer an item stand on one side, and wait for the other one. */
static struct side *side_of(struct memwait_channel *channel, bool sending)
{
	return sending ? &channel->senders : &channel->receivers;
}

int memwait_channel_destroy(memwait_channel_t *channel)
{
	if (!is_valid(channel))
		return EINVAL;
	/* acquire, both: who destroys it may free it */
	if ((atomic_load_explicit(&channel->senders.event, memory_order_acquire) & WAITERS) ||
	    (atomic_load_explicit(&channel->receivers.event, memory_order_acquire) & WAITERS)) {
		/* Those that were killed in their sleep are counted as well. */
		if (is_private(channel) || memwait_sleepers(event_word(&channel->senders), 0) ||
		    memwait_sleepers(event_word(&channel->receivers), 0))
			return EBUSY;
	}
	channel->capacity = 0;
	return 0;
}

/* Returns 0 or an error. */
static int lock(struct memwait_channel *channel, struct side *side,
		const struct memwait_deadline *deadline)
{
	int ret;

	if (is_private(channel))
		return memwait_lock(&side->word, &side->spins, channel->flags, deadline);
	ret = memwait_owner_lock(&side->owned, &side->spins, channel->flags, deadline);
	if (ret == EOWNERDEAD) {
		memwait_owner_make_consistent(&side->owned);
		return 0;
	}
	return ret;
}

/* Somebody could not be woken who sleeps for a change of this side, or for its lock. */
static void owe(struct side *side)
{
	/* release: pairs with make_up(). The lock is free for those whom that wakes. */
	atomic_fetch_or_explicit(&side->event, OWED, memory_order_release);
}

static void wake_or_owe(struct memwait_channel *channel, struct side *side)
{
	if (memwait_wake(event_word(side), 1, channel->flags) < 0)
		owe(side);
}

static void unlock(struct memwait_channel *channel, struct side *side)
{
	if (is_private(channel) ? memwait_lock_release(&side->word, channel->flags) :
				  memwait_owner_release(&side->owned, channel->flags))
		owe(side);
}

/*
 * Wakes in the place of those who could not. If this fails too, OWED stays. Who sets it again
 * meanwhile for a change has changed @event as well; but not for the lock, on which another one may
 * have gone to sleep since: therefore that is looked to once more.
 */
static void make_up(struct memwait_channel *channel, struct side *side)
{
	/* relaxed: only the compare-and-swap counts */
	uint64_t event = atomic_load_explicit(&side->event, memory_order_relaxed);

	if (!(event & OWED) ||
	    memwait_wake(event_word(side), MEMWAIT_ALL, channel->flags) < 0 ||
	    memwait_wake(&side->owned, 1, channel->flags) < 0)
		return;
	/* acquire: pairs with owe() */
	if (atomic_compare_exchange_strong_explicit(&side->event, &event, event & ~OWED,
						    memory_order_acquire, memory_order_relaxed) &&
	    memwait_wake(&side->owned, 1, channel->flags) < 0)
		owe(side);
}

/* Of each call, first. */
static int need_device(struct memwait_channel *channel)
{
	int ret = memwait_need_device();

	if (!ret) {
		make_up(channel, &channel->senders);
		make_up(channel, &channel->receivers);
	}
	return ret;
}

static uint32_t position_of(uint64_t event)
{
	return (uint32_t)(event / POSITION & (LOWER_HALF / POSITION));
}

static uint64_t stamp_of(uint64_t event)
{
	return (uint64_t)position_of(event) << STAMP_PLACE;
}

/* The lower half of an event whose position moves on. CLOSED stays. */
static uint32_t moved_on(const struct memwait_channel *channel, uint64_t event)
{
	uint32_t next = position_of(event) + 1;

	return (next == channel->positions ? 0 : next) * (uint32_t)POSITION |
	       (uint32_t)(event & CLOSED);
}

/* Of an event word that was loaded. */
static inline void check(const struct memwait_channel *channel, uint64_t event)
{
	MEMWAIT_INVARIANT(!(event & ARMED) || event & WAITERS);
	MEMWAIT_INVARIANT(position_of(event) < channel->positions);
}

static unsigned char *item_at(struct memwait_channel *channel, uint32_t position)
{
	return channel->slots + position % channel->capacity * channel->slot_size;
}

static uint32_t length_between(const struct memwait_channel *channel, uint32_t head, uint32_t tail)
{
	return head >= tail ? head - tail : head + channel->positions - tail;
}

/*
 * Moves the position of a locked side on: (2) and (3). Returns 0; or an error, if there is somebody
 * to be notified who cannot be: then it is where it was.
 */
static int move_on(struct memwait_channel *channel, struct side *side)
{
	/* relaxed: only the compare-and-swap counts, and the position is the caller's */
	uint64_t was = atomic_load_explicit(&side->event, memory_order_relaxed), now;
	uint32_t next;
	int woken;

	do {
		check(channel, was);
		next = moved_on(channel, was);
		now = (was & ~LOWER_HALF) | next;
		if (was & ARMED) {
			/* CLOSED may be set meanwhile, and stays. */
			woken = memwait_change(event_word(side), MEMWAIT_CHANGE_ADD,
					       next - (uint32_t)was, 1, channel->flags, NULL);
			if (woken < 0)
				return -woken;
			if (woken > 1 || (woken && (was & WAITERS) != WAITER) ||
			    (was & STAMP) == stamp_of(now))
				return 0;
			/* relaxed, both: who arms after this comes after (2) all the same */
			atomic_compare_exchange_strong_explicit(&side->event, &now, now & ~ARMED,
								memory_order_relaxed,
								memory_order_relaxed);
			return 0;
		}
		/* release: the item has been written, or read, for who sees this */
	} while (!atomic_compare_exchange_weak_explicit(&side->event, &was, now,
							memory_order_release,
							memory_order_relaxed));
	return 0;
}

/* There is one more than those were notified of that wait for this side. */
static void notify_next(struct memwait_channel *channel, struct side *side)
{
	/* relaxed: who comes later looks itself */
	if (atomic_load_explicit(&side->event, memory_order_relaxed) & ARMED)
		wake_or_owe(channel, side);
}

/*
 * Returns 0, and in @was whether it was set already; or an error, if there are those to be woken
 * who cannot be: then it is not set.
 */
static int set_closed(struct memwait_channel *channel, struct side *side, bool *was)
{
	/* relaxed: only the compare-and-swap counts */
	uint64_t event = atomic_load_explicit(&side->event, memory_order_relaxed);
	uint32_t lower = 0;
	int ret = 0;

	do {
		if (event & CLOSED)
			break;
		if (event & ARMED) {
			ret = memwait_change(event_word(side), MEMWAIT_CHANGE_OR, CLOSED,
					     MEMWAIT_ALL, channel->flags, &lower);
			event = lower;
			break;
		}
		/* release: a sender that finds it at tail when it arms, finds it at head */
	} while (!atomic_compare_exchange_weak_explicit(&side->event, &event, event | CLOSED,
							memory_order_release,
							memory_order_relaxed));
	*was = event & CLOSED;
	return ret < 0 ? -ret : 0;
}

/* It is closed at head. If that fails, the next one does it. */
static void finish_closing(struct memwait_channel *channel, uint64_t freed)
{
	bool was;

	if (!(freed & CLOSED))
		set_closed(channel, &channel->receivers, &was);
}

/* With the senders' lock. Returns 0, EAGAIN, EPIPE or an error from waking somebody. */
static int put(struct memwait_channel *channel, const void *item)
{
	/* relaxed: with the lock it is the caller's; for CLOSED see arm() */
	uint64_t filled = atomic_load_explicit(&channel->senders.event, memory_order_relaxed);
	/* acquire: the item that was there has been read */
	uint64_t freed = atomic_load_explicit(&channel->receivers.event, memory_order_acquire);
	uint32_t head = position_of(filled);
	uint32_t length = length_between(channel, head, position_of(freed));
	int ret;

	check(channel, freed);
	MEMWAIT_INVARIANT(length <= channel->capacity);
	if (filled & CLOSED) {
		finish_closing(channel, freed);
		return EPIPE;
	}
	if (length == channel->capacity)
		return EAGAIN;
	memcpy(item_at(channel, head), item, channel->item_size);
	ret = move_on(channel, &channel->senders);
	if (!ret && length + 1 < channel->capacity)
		notify_next(channel, &channel->receivers);
	return ret;
}

/* Whether nothing comes any more; the channel was found empty and closed. Or an error. */
static int await_senders(struct memwait_channel *channel, const struct memwait_deadline *deadline)
{
	int ret = lock(channel, &channel->senders, deadline);

	if (!ret)
		unlock(channel, &channel->senders);
	return ret;
}

/* With the receivers' lock; as put(). Or an error, if it cannot be known whether that is all. */
static int get(struct memwait_channel *channel, void *item,
	       const struct memwait_deadline *deadline)
{
	/* relaxed: with the lock it is the caller's */
	uint64_t freed = atomic_load_explicit(&channel->receivers.event, memory_order_relaxed);
	/* acquire: the item has been written */
	uint64_t filled = atomic_load_explicit(&channel->senders.event, memory_order_acquire);
	uint32_t tail = position_of(freed);
	uint32_t length = length_between(channel, position_of(filled), tail);
	int ret;

	check(channel, filled);
	MEMWAIT_INVARIANT(length <= channel->capacity);
	if (filled & CLOSED)
		finish_closing(channel, freed);
	if (!length && filled & CLOSED) {
		ret = await_senders(channel, deadline);
		if (ret)
			return ret;
		/* acquire: as above */
		filled = atomic_load_explicit(&channel->senders.event, memory_order_acquire);
		length = length_between(channel, position_of(filled), tail);
	}
	if (!length)
		return filled & CLOSED ? EPIPE : EAGAIN;
	memcpy(item, item_at(channel, tail), channel->item_size);
	ret = move_on(channel, &channel->receivers);
	if (!ret && length > 1)
		notify_next(channel, &channel->senders);
	return ret;
}

/* Returns 0, EAGAIN or EPIPE; ETIMEDOUT or an error of the device: nothing was transferred. */
static int attempt(struct memwait_channel *channel, void *item, bool sending,
		   const struct memwait_deadline *deadline)
{
	struct side *side = side_of(channel, sending);
	int ret;

	ret = need_device(channel);
	if (!ret)
		ret = lock(channel, side, deadline);
	if (ret)
		return ret;
	ret = sending ? put(channel, item) : get(channel, item, deadline);
	unlock(channel, side);
	return ret;
}

/*
 * (1). @entering: the waiter is not counted yet. Returns 0; or ENOMEM if there are 2^22 already,
 * and then it is not. @expected: what to sleep on.
 */
static int arm(struct side *side, bool entering, uint32_t *expected)
{
	/* relaxed: only the compare-and-swap counts */
	uint64_t event = atomic_load_explicit(&side->event, memory_order_relaxed), next;

	do {
		next = (event & ~STAMP) | ARMED | stamp_of(event);
		if (entering) {
			if ((event & WAITERS) == WAITERS)
				return ENOMEM;
			next += WAITER;
		}
		/* acquire: what was changed before is found by the look that follows */
	} while (!atomic_compare_exchange_weak_explicit(&side->event, &event, next,
							memory_order_acquire,
							memory_order_relaxed));
	*expected = (uint32_t)event;
	return 0;
}

/* ARMED goes with the last one: a notify for nobody can fail. It may be gone afterwards. */
static void leave(struct side *side)
{
	/* relaxed: only the compare-and-swap counts */
	uint64_t event = atomic_load_explicit(&side->event, memory_order_relaxed), next;

	do {
		next = event - WAITER;
		if (!(next & WAITERS))
			next &= ~ARMED;
		/* release: pairs with memwait_channel_destroy() */
	} while (!atomic_compare_exchange_weak_explicit(&side->event, &event, next,
							memory_order_release,
							memory_order_relaxed));
}

/* A transfer that may have to wait. */
struct wait {
	struct memwait_channel *channel;
	struct side *other;		/* what it waits for */
	bool sending;
	bool waits;			/* it is counted there */
	bool woken;			/* and has not looked since */
};

/*
 * One that has slept, or may have, is done with it: @ret is its result. One that gives up before it
 * has looked leaves to others what it was notified of.
 */
static int finish(struct wait *wait, int ret)
{
	if (wait->waits) {
		if (ret && wait->woken)
			notify_next(wait->channel, wait->other);
		leave(wait->other);
	}
	return ret;
}

/*
 * Tries, arms if nothing is to be had, and tries again. Returns EAGAIN to sleep while the position
 * is @expected, or the result.
 */
static int look(struct wait *wait, void *item, const struct memwait_deadline *deadline,
		uint32_t *expected)
{
	int ret = attempt(wait->channel, item, wait->sending, deadline);

	if (ret != EAGAIN)
		return ret;
	wait->woken = false;
	ret = arm(wait->other, !wait->waits, expected);
	if (ret)
		return ret;
	wait->waits = true;
	return attempt(wait->channel, item, wait->sending, deadline);
}

/*
 * The deadline has passed. There may be something all the same: whoever was notified of it does not
 * run, say.
 */
static int look_once_more(struct wait *wait, void *item, const struct memwait_deadline *deadline)
{
	int ret = attempt(wait->channel, item, wait->sending, deadline);

	return ret == EAGAIN ? ETIMEDOUT : ret;
}

static uint32_t sleep_flags(const struct memwait_channel *channel)
{
	return MEMWAIT_SIZE_U32 | memwait_sleep_flags(channel->flags);
}

static int transfer_until(struct memwait_channel *channel, void *item, bool sending,
			  const struct memwait_deadline *deadline)
{
	struct wait wait = { .channel = channel, .sending = sending };
	uint32_t expected;
	int ret;

	if (!is_valid(channel) || !item)
		return EINVAL;
	wait.other = side_of(channel, !sending);
	for (;;) {
		ret = look(&wait, item, deadline, &expected);
		if (ret != EAGAIN)
			break;
		ret = memwait_sleep(event_word(wait.other), expected, sleep_flags(channel),
				    deadline);
		if (ret == MEMWAIT_TIMED_OUT) {
			ret = look_once_more(&wait, item, deadline);
			break;
		}
		if (ret < 0 && ret != -EINTR) {
			ret = -ret;
			break;
		}
		wait.woken = memwait_was_woken(ret);
	}
	return finish(&wait, ret);
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
	return attempt(channel, without_const(item), true, &memwait_never);
}

int memwait_channel_tryrecv(memwait_channel_t *channel, void *item)
{
	if (!is_valid(channel) || !item)
		return EINVAL;
	return attempt(channel, item, false, &memwait_never);
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

/*
 * It never waits in its loop for a lock of the channel, but as a thread does, for as long as
 * another one is within its call. If it was in the loop that an unlock had woken it, a thread of
 * that loop which waits for the same lock would wait for ever.
 */
static int transfer_step(struct memwait_op *op, bool sending, int outcome)
{
	struct wait wait = {
		.channel = op->object,
		.other = side_of(op->object, !sending),
		.sending = sending,
		.waits = outcome != MEMWAIT_OP_BEGIN,
		.woken = memwait_was_woken(outcome),
	};
	uint32_t expected;
	int ret;

	for (;;) {
		if (outcome == MEMWAIT_TIMED_OUT) {
			ret = look_once_more(&wait, op->with, &op->deadline);
			break;
		}
		ret = look(&wait, op->with, &op->deadline, &expected);
		if (ret != EAGAIN)
			break;
		outcome = memwait_op_arm(op, event_word(wait.other), expected,
					 sleep_flags(wait.channel));
		if (outcome == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
		if (outcome < 0) {
			ret = -outcome;
			break;
		}
	}
	return finish(&wait, ret);
}

static void transfer_undo(struct memwait_op *op, bool sending, int outcome)
{
	struct side *other = side_of(op->object, !sending);

	if (memwait_was_woken(outcome))
		notify_next(op->object, other);
	leave(other);
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

static const struct memwait_op_kind send_kind = { .step = send_step, .undo = send_undo };
static const struct memwait_op_kind recv_kind = { .step = recv_step, .undo = recv_undo };

static void *if_valid(memwait_channel_t *channel, const void *item)
{
	return is_valid(channel) && item ? channel : NULL;
}

int memwait_channel_send_async(memwait_channel_t *channel, const void *item, memwait_op_t *op)
{
	return memwait_op_begin(op, &send_kind, if_valid(channel, item), without_const(item),
				&memwait_never);
}

int memwait_channel_recv_async(memwait_channel_t *channel, void *item, memwait_op_t *op)
{
	return memwait_op_begin(op, &recv_kind, if_valid(channel, item), item, &memwait_never);
}

int memwait_channel_clocksend_async(memwait_channel_t *channel, const void *item, clockid_t clock,
				    const struct timespec *abstime, memwait_op_t *op)
{
	return memwait_op_begin_until(op, &send_kind, if_valid(channel, item), without_const(item),
				      clock, abstime);
}

int memwait_channel_clockrecv_async(memwait_channel_t *channel, void *item, clockid_t clock,
				    const struct timespec *abstime, memwait_op_t *op)
{
	return memwait_op_begin_until(op, &recv_kind, if_valid(channel, item), item, clock,
				      abstime);
}

int memwait_channel_close(memwait_channel_t *channel)
{
	const volatile void *freed;
	bool was_at_head, was_at_tail;
	uint64_t event;
	int ret;

	if (!is_valid(channel))
		return EINVAL;
	ret = need_device(channel);
	if (ret)
		return ret;
	freed = event_word(&channel->receivers);
	do {
		/* relaxed: the kernel compares it */
		event = atomic_load_explicit(&channel->receivers.event, memory_order_relaxed);
		if (!(event & ARMED) || is_private(channel))
			break;
		ret = memwait_answer_for(freed, (uint32_t)event, 0);
		if (ret < 0)
			return -ret;
	} while (ret == MEMWAIT_CHANGED);
	ret = set_closed(channel, &channel->senders, &was_at_head);
	if (!ret)
		ret = set_closed(channel, &channel->receivers, &was_at_tail);
	return !ret && was_at_head ? EPIPE : ret;
}

size_t memwait_channel_length(memwait_channel_t *channel)
{
	uint64_t filled, freed;

	if (!is_valid(channel))
		return 0;
	/* relaxed, both: out of date at once */
	freed = atomic_load_explicit(&channel->receivers.event, memory_order_relaxed);
	filled = atomic_load_explicit(&channel->senders.event, memory_order_relaxed);
	return length_between(channel, position_of(filled), position_of(freed));
}
