// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Channels: a ring of items between two positions, head and tail. Each side has a lock (owner.c, or
 * lock.c if the channel is private) and an event word of 64 bits:
 *
 *	bit 0		CLOSED
 *	bits 1 to 31	the position of this side
 *	bit 32		ARMED: a change of the lower half must be notified
 *	bits 33 to 54	number of waiters for a change of this side
 *	bit 55		OWED: a waiter for a change, or for the lock, could not be woken
 *	bits 56 to 63	the stamp: low bits of the position at which a waiter armed last
 *
 * A position is the number of a lap, and the index of a slot in the lower bits. A lap has as many
 * positions as the next power of two, but the indices end at the capacity, where the next lap
 * begins. Therefore neither a slot nor a length needs a division, and positions wrap with their 31
 * bits.
 *
 * Invariants:
 *	The index of a position is below the capacity. Only the holder of that side's lock advances
 *	the position, to the next index or the next lap.
 *	head is at most one lap ahead of tail, and never behind it.
 *	ARMED => at least one waiter is counted.
 *	CLOSED is never cleared. It is set at head before it is set at tail.
 *
 * A sender locks its side, writes the item at head and advances head. A receiver locks its side,
 * reads the item at tail and advances tail. In a full ring head is one lap ahead of tail; in an
 * empty ring they are equal. Positions wrap after at least 2^30 items, so that a waiter that is
 * delayed between (1) and (3) below does not mistake a later position for the position that it saw.
 *
 * Death. Advancing a position is one atomic operation, in which the transfer happens. Therefore the
 * lock of a dead process can be taken over without any repair. The item that the process was
 * copying is lost, but its slot is not.
 *
 *	waiter					the other side
 *	(1) arm: set ARMED			(1) write or read the item
 *	(2) try again, with the lock		(2) not ARMED: compare-and-swap the position
 *	(3) sleep while the position is		    ARMED: change it, and notify a waiter
 *	    as it was at (1)			(3) clear ARMED, if no waiter sleeps
 *
 * The waiter's (1) and the other side's (2) modify the same word: either the waiter finds the
 * change at its (2), or the other side sees ARMED. The other side then changes the position and
 * notifies by one system call, so no death separates the two. If a notified waiter dies before it
 * has transferred an item, the kernel wakes the next waiter (MEMWAIT_OWNED, see internal.h).
 *
 * (3) saves one notify for each item in a stream: a notified waiter arms again before it sleeps
 * again. ARMED may be cleared if the notify woke fewer waiters than it could have: then no waiter
 * sleeps that armed before (2), because each has the old position. If one waiter is counted before
 * (2), the notify can wake two, and normally wakes one: another waiter may have armed and fallen
 * asleep since, and the first may leave before (3), so the count alone shows nothing. The clear is
 * a compare-and-swap that must fail if a waiter has armed since (2). For that purpose arming writes
 * the stamp: if the stamp at (2) is not that of the new position, arming at the new position
 * changes the stamp, and the stamp cannot change back while the other side holds its lock. If this
 * thread dies before (3), the next change clears ARMED.
 *
 * ARMED may be set although no waiter sleeps: a notify of one waiter does not show whether there
 * are more sleepers.
 *
 * If two notifies wake two waiters, the kernel watches only the second, see internal.h. Therefore,
 * if a waiter has transferred an item, finds ARMED set, and leaves something for another waiter, it
 * notifies that waiter. So does a thread that could not transfer at once; nothing depends on it.
 *
 * CLOSED is set without a lock, at head and then at tail. Each store also wakes all waiters that
 * sleep on that word, in one step, so none of them continues to sleep. CLOSED at head decides: a
 * sender that holds the lock and has not seen CLOSED at head still sends. Therefore a receiver that
 * finds the ring empty and CLOSED takes the senders' lock once: after that no item can be sent.
 *
 * A thread may die between the two stores. Then senders that sleep on tail continue to sleep, as if
 * the thread had died before both: the ring is full, and they wait for a receiver. Each thread that
 * finds CLOSED only at head sets it at tail, so no thread has seen the channel closed while these
 * senders sleep.
 *
 * Without the device. A call that must notify, but cannot, has no effect: nothing was sent,
 * received or closed. A close that has set CLOSED only at head is completed as after a death. Two
 * kinds of sleepers may not have been woken: waiters for a lock that was unlocked, and waiters
 * queued behind a waiter that gives up. OWED is set for these sleepers. The next call on either
 * side wakes all waiters for a change of the side with OWED, and all waiters for its lock.
 *
 * A thread that holds a lock may be stopped. Operations, and try functions, never sleep for a lock:
 * an operation waits for the lock in its loop. The thread that should dispatch that loop may be
 * asleep, waiting for the same lock. Therefore, while operations are counted, a contended unlock
 * wakes all waiters for the lock, so that no thread depends on a loop. An operation that dies while
 * it is counted stays counted, and each contended unlock then makes a system call.
 *
 * Destroy. A call that takes a free lock, and releases the lock while no thread is waiting for it,
 * touches nothing afterwards, so it is sufficient that destroy waits for the lock. Any other call
 * is a user of its side (users.c) as soon as it has to wait, finds waiters when it unlocks, or
 * closes the channel. Therefore a call that is not a user accesses nothing after it has released
 * the lock, unless it has found nothing to transfer (EAGAIN). Such a call has changed nothing, so
 * it is as if it began only then. A receiver that waits for the senders' lock need not be a user,
 * because it holds the receivers' lock, for which destroy waits first.
 *
 *	caller with the lock			destroy
 *	(1) become a user, if others wait	(1) if a thread holds the lock, take and release it
 *	(2) release the lock			(2) wait until there is no user
 *	(3) leave: the last access
 *
 * A thread that takes the lock after destroy's (1) has waited for the lock, and is therefore a
 * user.
 *
 * Lock order: receivers, senders.
 */
#include <string.h>

#include "object.h"
#include "users.h"

/* The data that one side writes: a cache line, if the channel is aligned. */
struct side {
	union memwait_gate lock;
	_Atomic uint64_t event;
	_Atomic uint32_t spins;			/* of the lock */
	_Atomic uint32_t operations;		/* that wait for the lock */
	struct memwait_users users;
	unsigned char padding[28];
};

struct memwait_channel {
	uint32_t item_size;
	uint32_t capacity;
	uint64_t slot_size;
	uint32_t flags;			/* MEMWAIT_PRIVATE or 0 */
	uint32_t mask;			/* of the index within a position */
	uint32_t layout;		/* LAYOUT; at this offset in all versions */
	uint32_t unused;
	uint64_t spare;			/* 0 */
	unsigned char padding[24];
	struct side senders;		/* head; receivers sleep on its event */
	struct side receivers;		/* tail */
	unsigned char slots[];
};

_Static_assert(offsetof(struct memwait_channel, slots) == 3 * 64, "three cache lines");

/*
 * Changes if the meaning of any word above changes. A later library that uses the padding sets a
 * flag or the spare word, so that older libraries refuse the channel.
 */
#define LAYOUT		1

/* Fields of an event word. */
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

/* A position has 31 bits, of which at least one is the number of the lap. */
#define MOST_SLOTS	(1U << 30)

static uint64_t slot_size(size_t item_size)
{
	return ((uint64_t)item_size + 7) & ~7ULL;
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

static bool fits(size_t memory, size_t item_size, size_t capacity)
{
	size_t size = memwait_channel_size(item_size, capacity);

	return size && size <= memory;
}

static uint32_t mask_for(uint32_t capacity)
{
	uint32_t lap = 1;

	while (lap < capacity)
		lap *= 2;
	return lap - 1;
}

int memwait_channel_init(memwait_channel_t *channel, size_t memory, unsigned int flags,
			 size_t item_size, size_t capacity)
{
	if (!channel || (uintptr_t)channel % 8 || (flags & ~(unsigned int)MEMWAIT_PRIVATE) ||
	    !fits(memory, item_size, capacity))
		return EINVAL;
	memset(channel, 0, sizeof(*channel));
	channel->item_size = (uint32_t)item_size;
	channel->capacity = (uint32_t)capacity;
	channel->slot_size = slot_size(item_size);
	channel->mask = mask_for((uint32_t)capacity);
	channel->flags = flags;
	channel->senders.users.flags = flags;
	channel->receivers.users.flags = flags;
	channel->layout = LAYOUT;
	return memwait_need_device();
}

static bool channel_is_valid(const struct memwait_channel *channel)
{
	return channel && channel->layout == LAYOUT &&
	       !(channel->flags & ~(uint32_t)MEMWAIT_PRIVATE) && !channel->spare;
}

int memwait_channel_attach(const memwait_channel_t *channel, size_t memory, size_t *item_size,
			   size_t *capacity)
{
	if ((uintptr_t)channel % 8 || memory < sizeof(*channel) || !channel_is_valid(channel) ||
	    !item_size || !capacity || !fits(memory, channel->item_size, channel->capacity) ||
	    channel->slot_size != slot_size(channel->item_size) ||
	    channel->mask != mask_for(channel->capacity))
		return EINVAL;
	*item_size = channel->item_size;
	*capacity = channel->capacity;
	return 0;
}

static bool channel_is_private(const struct memwait_channel *channel)
{
	return channel->flags & MEMWAIT_PRIVATE;
}

static const volatile void *event_word(struct side *side)
{
	return memwait_lower_half(&side->event);
}

/* The kind of the locks: those of a private channel have no owners. */
static uint32_t lock_kind(const struct memwait_channel *channel)
{
	return channel_is_private(channel) ? MEMWAIT_PRIVATE : MEMWAIT_MUTEX_ROBUST;
}

/* A transfer locks its own side, and waits for a change of the other side. */
static struct side *side_of(struct memwait_channel *channel, bool sending)
{
	return sending ? &channel->senders : &channel->receivers;
}

/* @ret: the result of locking a side. After the death of an owner nothing needs repair. */
static int channel_locked(struct side *side, int ret)
{
	if (ret != EOWNERDEAD)
		return ret;
	memwait_owner_make_consistent(&side->lock.owned);
	return 0;
}

/* Returns 0 or an error. @deadline: NULL: returns EBUSY instead of sleeping. */
static int lock(struct memwait_channel *channel, struct side *side,
		const struct memwait_deadline *deadline)
{
	const uint32_t kind = lock_kind(channel);

	return channel_locked(side, deadline ?
			      memwait_gate_lock(&side->lock, &side->spins, kind, deadline) :
			      memwait_gate_try(&side->lock, kind));
}

/* The common case of lock(). */
static bool lock_free(struct memwait_channel *channel, struct side *side)
{
	uint64_t id;

	if (channel_is_private(channel))
		return memwait_lock_try(&side->lock.word);
	/* Makes no function call, except in the first call by a thread. */
	id = memwait_known_id();
	return (id || memwait_owner(&id) >= 0) && memwait_owner_try(&side->lock.owned, id);
}

/* A waiter for a change of this side, or for its lock, could not be woken. */
static void owe(struct side *side)
{
	/* release: pairs with channel_wake_owed(), which wakes after the lock was released */
	atomic_fetch_or_explicit(&side->event, OWED, memory_order_release);
}

static void wake_or_owe(struct memwait_channel *channel, struct side *side)
{
	if (memwait_wake(event_word(side), 1, channel->flags) < 0)
		owe(side);
}

/* Called by a user. */
static void unlock_contended(struct memwait_channel *channel, struct side *side)
{
	if (memwait_gate_release(&side->lock, lock_kind(channel)))
		owe(side);
	/* relaxed: the kernel orders the count before the wait, and the wait before a notify */
	if (atomic_load_explicit(&side->operations, memory_order_relaxed) &&
	    memwait_wake(&side->lock, MEMWAIT_ALL, channel->flags) < 0)
		owe(side);
}

/* The counterpart of lock_free(). If an operation is waiting, it has made the lock contended. */
static bool unlock_free(struct memwait_channel *channel, struct side *side)
{
	uint32_t was;

	return channel_is_private(channel) ?
	       memwait_lock_release_uncontended(&side->lock.word, &was) :
	       memwait_owner_release_uncontended(&side->lock.owned, memwait_known_id());
}

/* Not inlined: an uncontended unlock needs no stack frame for it. */
__attribute__((__noinline__))
static void unlock_as_user(struct memwait_channel *channel, struct side *side)
{
	memwait_users_enter(&side->users, NULL);
	unlock_contended(channel, side);
	memwait_users_leave(&side->users, NULL);
}

static inline void unlock(struct memwait_channel *channel, struct side *side)
{
	if (!unlock_free(channel, side))
		unlock_as_user(channel, side);
}

/*
 * Waits until no thread is within a call on this side. Returns 0; EBUSY: a thread is waiting for a
 * change of @other, or an operation has not ended, or users are presumed dead; or an error from the
 * device.
 */
static int drain(struct memwait_channel *channel, struct side *side, struct side *other)
{
	const uint32_t kind = lock_kind(channel);
	/* First wait for the users, which may themselves be waiting for the lock. */
	int looks = 0, ret = memwait_users_drain(&side->users, event_word(other));

	if (!ret && memwait_gate_look(&side->lock, kind)) {
		do
			ret = memwait_gate_look_again(&side->lock, &side->spins, kind, &looks);
		while (ret == ETIMEDOUT);
		ret = channel_locked(side, ret);
		if (!ret)
			unlock(channel, side);
	}
	return ret ? ret : memwait_users_drain(&side->users, event_word(other));
}

/* Receivers first: they may take the senders' lock. */
int memwait_channel_destroy(memwait_channel_t *channel)
{
	int ret;

	if (!channel_is_valid(channel))
		return EINVAL;
	ret = drain(channel, &channel->receivers, &channel->senders);
	if (!ret)
		ret = drain(channel, &channel->senders, &channel->receivers);
	if (!ret)
		channel->layout = 0;
	return ret;
}

/*
 * Repeats wake-ups that have failed. If this also fails, OWED stays set. A thread that sets OWED
 * for a change in the meantime has also changed @event. A thread that sets OWED for the lock has
 * not changed @event, and a waiter may have gone to sleep since: therefore the waiters for the lock
 * are woken a second time.
 */
static void channel_wake_owed(struct memwait_channel *channel, struct side *side)
{
	/* relaxed: only the compare-and-swap counts */
	uint64_t event = atomic_load_explicit(&side->event, memory_order_relaxed);

	if (!(event & OWED) ||
	    memwait_wake(event_word(side), MEMWAIT_ALL, channel->flags) < 0 ||
	    memwait_wake(&side->lock, MEMWAIT_ALL, channel->flags) < 0)
		return;
	/* acquire: pairs with owe() */
	if (atomic_compare_exchange_strong_explicit(&side->event, &event, event & ~OWED,
						    memory_order_acquire, memory_order_relaxed) &&
	    memwait_wake(&side->lock, MEMWAIT_ALL, channel->flags) < 0)
		owe(side);
}

static bool is_owed(struct memwait_channel *channel)
{
	/* relaxed, both: only the compare-and-swap of channel_wake_owed() counts */
	return (atomic_load_explicit(&channel->senders.event, memory_order_relaxed) |
		atomic_load_explicit(&channel->receivers.event, memory_order_relaxed)) & OWED;
}

/* Every call begins with this function, or with the same tests: see transfer_until(). */
static inline int need_device(struct memwait_channel *channel)
{
	int ret = memwait_need_device();

	if (!ret && is_owed(channel)) {
		channel_wake_owed(channel, &channel->senders);
		channel_wake_owed(channel, &channel->receivers);
	}
	return ret;
}

static uint32_t position_of(uint64_t event)
{
	return (uint32_t)event / (uint32_t)POSITION;
}

static uint64_t stamp_of(uint64_t event)
{
	return (uint64_t)position_of(event) << STAMP_PLACE;
}

static uint32_t index_of(const struct memwait_channel *channel, uint64_t event)
{
	return position_of(event) & channel->mask;
}

/* An event word with the next position, and otherwise unchanged. */
static uint64_t moved_on(const struct memwait_channel *channel, uint64_t event)
{
	uint32_t next = (uint32_t)event + (uint32_t)POSITION;

	if (index_of(channel, next) == channel->capacity)
		next += (channel->mask + 1 - channel->capacity) * (uint32_t)POSITION;
	return (event & ~LOWER_HALF) | next;
}

/* Checks an event word that was loaded. */
static inline void channel_check(const struct memwait_channel *channel, uint64_t event)
{
	MEMWAIT_INVARIANT(!(event & ARMED) || event & WAITERS);
	MEMWAIT_INVARIANT(index_of(channel, event) < channel->capacity);
}

static unsigned char *item_at(struct memwait_channel *channel, uint64_t event)
{
	return channel->slots + index_of(channel, event) * channel->slot_size;
}

/* How many positions head is ahead of tail: @filled and @freed are the event words with them. */
static uint32_t distance(uint64_t filled, uint64_t freed)
{
	return position_of((filled | CLOSED) - (freed | CLOSED));
}

static bool is_full(const struct memwait_channel *channel, uint64_t filled, uint64_t freed)
{
	return distance(filled, freed) > channel->mask;
}

/*
 * Advances the position of a locked side: (2) and (3). Returns 0; or an error if a waiter cannot be
 * notified, and then the position is unchanged.
 */
static int move_on(struct memwait_channel *channel, struct side *side)
{
	/* relaxed: only the compare-and-swap counts, and the lock protects the position */
	uint64_t was = atomic_load_explicit(&side->event, memory_order_relaxed), now;
	uint32_t most;
	int woken;

	do {
		channel_check(channel, was);
		now = moved_on(channel, was);
		if (was & ARMED) {
			most = (was & WAITERS) == WAITER ? 2 : 1;
			/* If CLOSED is set in between, it remains set. */
			woken = memwait_change(event_word(side), MEMWAIT_CHANGE_ADD,
					       (uint32_t)(now - was), most, channel->flags, NULL);
			if (woken < 0)
				return -woken;
			if (woken == (int)most || (was & STAMP) == stamp_of(now))
				return 0;
			/* relaxed, both: a waiter that arms after this also arms after (2) */
			atomic_compare_exchange_strong_explicit(&side->event, &now, now & ~ARMED,
								memory_order_relaxed,
								memory_order_relaxed);
			return 0;
		}
		/* release: a thread that sees the position finds the item written, or read */
	} while (!atomic_compare_exchange_weak_explicit(&side->event, &was, now,
							memory_order_release,
							memory_order_relaxed));
	return 0;
}

/*
 * Notifies one more waiter for a change of this side. Called if something is left for that waiter.
 */
static void notify_next(struct memwait_channel *channel, struct side *side)
{
	/* relaxed: a waiter that arms later tries again itself */
	if (atomic_load_explicit(&side->event, memory_order_relaxed) & ARMED)
		wake_or_owe(channel, side);
}

/* Sets CLOSED at one side. Returns 0; or an error if waiters cannot be woken: CLOSED is not set. */
static int set_closed(struct memwait_channel *channel, struct side *side)
{
	/* relaxed: only the compare-and-swap counts */
	uint64_t event = atomic_load_explicit(&side->event, memory_order_relaxed);
	int ret;

	do {
		if (event & CLOSED)
			return 0;
		if (event & ARMED) {
			ret = memwait_change(event_word(side), MEMWAIT_CHANGE_OR, CLOSED,
					     MEMWAIT_ALL, channel->flags, NULL);
			return ret < 0 ? -ret : 0;
		}
		/* release: a sender that arms and finds it at tail also finds it at head */
	} while (!atomic_compare_exchange_weak_explicit(&side->event, &event, event | CLOSED,
							memory_order_release,
							memory_order_relaxed));
	return 0;
}

/*
 * The caller found CLOSED at head. If setting CLOSED at tail fails, the next call sets it at tail.
 */
static void finish_closing(struct memwait_channel *channel, uint64_t freed)
{
	if (!(freed & CLOSED))
		set_closed(channel, &channel->receivers);
}

/*
 * The caller holds the senders' lock. Returns 0, EPIPE, or the error of a wake-up; or EAGAIN:
 * nothing has changed.
 */
static int put(struct memwait_channel *channel, const void *item)
{
	/* relaxed: the lock protects it; for CLOSED see arm() */
	uint64_t filled = atomic_load_explicit(&channel->senders.event, memory_order_relaxed);
	/* acquire: the item that was there has been read */
	uint64_t freed = atomic_load_explicit(&channel->receivers.event, memory_order_acquire);
	int ret;

	channel_check(channel, freed);
	MEMWAIT_INVARIANT(distance(filled, freed) <= channel->mask + 1);
	if (filled & CLOSED) {
		finish_closing(channel, freed);
		return EPIPE;
	}
	if (is_full(channel, filled, freed))
		return EAGAIN;
	/* ThreadSanitizer sees memcpy(). */
	memwait_tsan_acquire(&channel->receivers);
	memcpy(item_at(channel, filled), item, channel->item_size);
	memwait_tsan_release(&channel->senders);
	ret = move_on(channel, &channel->senders);
	if (!ret && !is_full(channel, moved_on(channel, filled), freed))
		notify_next(channel, &channel->receivers);
	return ret;
}

/*
 * The common case of put() and get(): the channel is open, no waiter has armed, and an item can be
 * transferred. The caller holds the lock of its side. Returns false if nothing was transferred; the
 * item, or the free slot, may have been overwritten.
 */
static inline bool transfer_at_once(struct memwait_channel *channel, void *item, bool sending)
{
	struct side *side = side_of(channel, sending);
	/* The orders are those of put() and get(), and of move_on(). */
	uint64_t mine = atomic_load_explicit(&side->event, memory_order_relaxed);
	uint64_t other = atomic_load_explicit(&side_of(channel, !sending)->event,
					      memory_order_acquire);

	channel_check(channel, mine);
	channel_check(channel, other);
	MEMWAIT_INVARIANT(distance(sending ? mine : other, sending ? other : mine) <=
			  channel->mask + 1);
	/*
	 * Waiters for a change of the other side need nothing from the caller. A waiter that arms
	 * now tries again itself, with the lock that the caller holds. A waiter that sleeps, but
	 * could transfer, is notified by a waiter that was woken before it.
	 */
	if (mine & (ARMED | CLOSED) ||
	    (sending ? is_full(channel, mine, other) : !distance(other, mine)))
		return false;
	if (sending)
		memcpy(item_at(channel, mine), item, channel->item_size);
	else
		memcpy(item, item_at(channel, mine), channel->item_size);
	/* Fails if a waiter has armed at this side, or the channel was closed. */
	return atomic_compare_exchange_strong_explicit(&side->event, &mine,
						       moved_on(channel, mine),
						       memory_order_release, memory_order_relaxed);
}

/* Called before the transfer waits. */
static void become_user(struct memwait_transfer *wait)
{
	if (!wait->is_user)
		memwait_users_enter(&side_of(wait->channel, wait->sending)->users, wait->op);
	wait->is_user = true;
}

/* Waits until no sender that missed CLOSED holds the lock. Returns 0 or an error. */
static int await_senders(struct memwait_transfer *wait)
{
	struct side *senders = &wait->channel->senders;
	int ret = wait->settled ? 0 : lock(wait->channel, senders, wait->deadline);

	if (!ret && !wait->settled)
		unlock(wait->channel, senders);
	wait->busy = ret == EBUSY ? senders : NULL;
	wait->settled = !ret;
	return ret;
}

/*
 * The caller holds the receivers' lock. Returns the results of put(); or the error of
 * await_senders(), if it is unknown whether items are left.
 */
static int get(struct memwait_channel *channel, struct memwait_transfer *wait, void *item)
{
	/* relaxed: the lock protects it */
	uint64_t freed = atomic_load_explicit(&channel->receivers.event, memory_order_relaxed);
	/* acquire: the item has been written */
	uint64_t filled = atomic_load_explicit(&channel->senders.event, memory_order_acquire);
	bool is_empty = !distance(filled, freed);
	int ret;

	channel_check(channel, filled);
	MEMWAIT_INVARIANT(distance(filled, freed) <= channel->mask + 1);
	if (filled & CLOSED)
		finish_closing(channel, freed);
	if (is_empty && !(filled & CLOSED))
		return EAGAIN;
	if (is_empty) {
		ret = await_senders(wait);
		if (ret)
			return ret;
		/* acquire: as at the beginning */
		filled = atomic_load_explicit(&channel->senders.event, memory_order_acquire);
		is_empty = !distance(filled, freed);
	}
	memwait_tsan_acquire(&channel->senders);
	if (is_empty)
		return EPIPE;
	memcpy(item, item_at(channel, freed), channel->item_size);
	memwait_tsan_release(&channel->receivers);
	ret = move_on(channel, &channel->receivers);
	if (!ret && distance(filled, moved_on(channel, freed)))
		notify_next(channel, &channel->senders);
	return ret;
}

/* Called with the lock of the transfer's side, which it releases. */
static int attempt_locked(struct memwait_transfer *wait, void *item)
{
	int ret = wait->sending ? put(wait->channel, item) : get(wait->channel, wait, item);

	unlock(wait->channel, side_of(wait->channel, wait->sending));
	return ret;
}

/*
 * Returns 0; or EAGAIN, EPIPE, EBUSY, ETIMEDOUT or an error from the device: nothing was
 * transferred.
 */
static int attempt(struct memwait_transfer *wait, void *item)
{
	struct side *side = side_of(wait->channel, wait->sending);
	int ret;

	ret = need_device(wait->channel);
	if (!ret && !lock_free(wait->channel, side)) {
		if (wait->deadline)
			become_user(wait);
		ret = lock(wait->channel, side, wait->deadline);
	}
	wait->busy = ret == EBUSY ? side : NULL;
	return ret ? ret : attempt_locked(wait, item);
}

/*
 * The waiter's (1). @entering: the waiter is not counted yet. @expected: set to the value to sleep
 * on. Returns 0; or ENOMEM if 2^22 - 1 waiters are counted already.
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
		/* acquire: the attempt that follows finds all earlier changes */
	} while (!atomic_compare_exchange_weak_explicit(&side->event, &event, next,
							memory_order_acquire,
							memory_order_relaxed));
	*expected = (uint32_t)event;
	return 0;
}

/* The last waiter clears ARMED, because even a needless notify can fail. */
static void channel_leave(struct side *side)
{
	/* relaxed: only the compare-and-swap counts */
	uint64_t event = atomic_load_explicit(&side->event, memory_order_relaxed), next;

	do {
		next = event - WAITER;
		if (!(next & WAITERS))
			next &= ~ARMED;
		/* relaxed: see memwait_users_leave() */
	} while (!atomic_compare_exchange_weak_explicit(&side->event, &event, next,
							memory_order_relaxed,
							memory_order_relaxed));
}

/*
 * Ends a transfer with result @ret. A waiter that was notified, but fails before it has tried to
 * transfer an item, passes the notify on. The channel may be freed afterwards.
 */
static int channel_finish(struct memwait_transfer *wait, int ret)
{
	if (wait->waits) {
		if (ret && wait->woken)
			notify_next(wait->channel, wait->other);
		channel_leave(wait->other);
	}
	if (wait->is_user)
		memwait_users_leave(&side_of(wait->channel, wait->sending)->users, wait->op);
	return ret;
}

/*
 * After a wait with @outcome: tries, arms, and tries again. Returns the result, or EAGAIN: sleep
 * while the lower half of the event word is @expected.
 */
static int channel_look(struct memwait_transfer *wait, void *item, int outcome, uint32_t *expected)
{
	int ret;

	if (memwait_has_failed(outcome))
		return -outcome;
	ret = attempt(wait, item);
	/* After the deadline there may be an item whose notified waiter has not run yet. */
	if (outcome == MEMWAIT_TIMED_OUT)
		return ret == EAGAIN || ret == EBUSY ? ETIMEDOUT : ret;
	if (ret != EAGAIN)
		return ret;
	wait->woken = false;
	become_user(wait);
	ret = arm(wait->other, !wait->waits, expected);
	if (ret)
		return ret;
	wait->waits = true;
	return attempt(wait, item);
}

/*
 * Called by an operation, with the @outcome of its wait for the lock of @busy, or MEMWAIT_OP_BEGIN.
 * Returns MEMWAIT_OP_WAITS; the result of an attempt made while holding the lock of the transfer's
 * side; EAGAIN if @busy was the other side; or an error of locking.
 */
static int attempt_queued(struct memwait_transfer *wait, struct memwait_op *op, void *item,
			  int outcome)
{
	struct memwait_channel *channel = wait->channel;
	struct side *busy = wait->busy;
	int ret;

	become_user(wait);
	/* relaxed, both: see unlock_contended() */
	if (outcome == MEMWAIT_OP_BEGIN)
		atomic_fetch_add_explicit(&busy->operations, 1, memory_order_relaxed);
	ret = memwait_gate_step(op, &busy->lock, lock_kind(channel), outcome);
	if (ret == MEMWAIT_OP_WAITS)
		return ret;
	atomic_fetch_sub_explicit(&busy->operations, 1, memory_order_relaxed);
	wait->busy = NULL;
	ret = channel_locked(busy, ret);
	if (ret || busy == side_of(channel, wait->sending))
		return ret ? ret : attempt_locked(wait, item);
	unlock(channel, busy);
	wait->settled = true;
	return EAGAIN;
}

static uint32_t channel_sleep_flags(const struct memwait_channel *channel)
{
	return MEMWAIT_SIZE_U32 | memwait_sleep_flags(channel->flags);
}

/*
 * Transfers an item as soon as this is possible. @op: NULL for a thread. @outcome: of the wait that
 * has ended, or MEMWAIT_OP_BEGIN. Returns the result, or MEMWAIT_OP_WAITS.
 */
static int transfer(struct memwait_transfer *wait, struct memwait_op *op, void *item,
		    const struct memwait_deadline *deadline, int outcome)
{
	uint32_t expected = 0;
	int ret;

	for (;;) {
		ret = EAGAIN;
		if (wait->busy) {
			ret = attempt_queued(wait, op, item, outcome);
			outcome = MEMWAIT_OP_BEGIN;
		} else if (memwait_was_woken(outcome)) {
			wait->woken = true;
		}
		if (ret == EAGAIN)
			ret = channel_look(wait, item, outcome, &expected);
		if (ret == EAGAIN)
			outcome = memwait_await(op, event_word(wait->other), expected,
						channel_sleep_flags(wait->channel), deadline);
		else if (ret == EBUSY)
			outcome = MEMWAIT_OP_BEGIN;
		else
			break;
		if (outcome == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
	}
	return ret == MEMWAIT_OP_WAITS ? ret : channel_finish(wait, ret);
}

/*
 * Checks the arguments of a call. A channel with a different item size is refused. Processes that
 * can write to the channel must not change its item size while it is in use.
 */
static int check_call(const struct memwait_channel *channel, const void *item, size_t size)
{
	if (!channel_is_valid(channel) || !item)
		return EINVAL;
	return size == channel->item_size ? 0 : EMSGSIZE;
}

/*
 * All other cases. @locked: the caller holds the lock of the transfer's side. Not inlined: the
 * common case needs no state for a wait.
 */
__attribute__((__noinline__))
static int transfer_slowly(struct memwait_channel *channel, void *item, bool sending, bool locked,
			   const struct memwait_deadline *deadline)
{
	struct memwait_transfer wait = {
		.channel = channel,
		.other = side_of(channel, !sending),
		.deadline = deadline,
		.sending = sending,
	};
	int ret = locked ? attempt_locked(&wait, item) : EAGAIN;

	return ret == EAGAIN ? transfer(&wait, NULL, item, deadline, MEMWAIT_OP_BEGIN) : ret;
}

static int transfer_until(struct memwait_channel *channel, void *item, size_t size, bool sending,
			  const struct memwait_deadline *deadline)
{
	struct side *side = side_of(channel, sending);
	int ret = check_call(channel, item, size);
	bool locked;

	if (ret)
		return ret;
	locked = memwait_has_device() && !is_owed(channel) && lock_free(channel, side);
	if (!locked || !transfer_at_once(channel, item, sending))
		return transfer_slowly(channel, item, sending, locked, deadline);
	unlock(channel, side);
	return 0;
}

/* A send only reads the item. */
static void *without_const(const void *item)
{
	return (void *)(uintptr_t)item;
}

static int try_transfer(struct memwait_channel *channel, void *item, size_t size, bool sending)
{
	struct memwait_transfer wait = { .channel = channel, .sending = sending };
	int err = check_call(channel, item, size);

	return err ? err : attempt(&wait, item);
}

static int transfer_step(struct memwait_op *op, bool sending, int outcome)
{
	struct memwait_transfer *wait = &op->transfer;

	if (outcome == MEMWAIT_OP_BEGIN)
		*wait = (struct memwait_transfer){
			.channel = op->object,
			.other = side_of(op->object, !sending),
			.op = op,
			.sending = sending,
		};
	return transfer(wait, op, op->with, &op->deadline, outcome);
}

static void transfer_undo(struct memwait_op *op, int outcome)
{
	struct memwait_transfer *wait = &op->transfer;

	if (!wait->busy) {
		wait->woken = memwait_was_woken(outcome);
	} else {
		/* relaxed: as in attempt_queued() */
		atomic_fetch_sub_explicit(&wait->busy->operations, 1, memory_order_relaxed);
		memwait_gate_undo(&op->turn, &wait->busy->lock, lock_kind(wait->channel), outcome);
	}
	channel_finish(wait, ECANCELED);
}

/* Defines memwait_channel_send() and so on: the functions of one direction. */
#define DEFINE_TRANSFER(verb, item_t, sending, gives_back)					\
static int channel_##verb##_step(struct memwait_op *op, int outcome)				\
{												\
	return transfer_step(op, sending, outcome);						\
}												\
												\
static const struct memwait_op_kind channel_##verb##_kind = {					\
	.step = channel_##verb##_step,								\
	.undo = transfer_undo,									\
	.give_back = gives_back,								\
	.epipe = "The channel is closed",							\
};												\
												\
static int channel_##verb##_until(memwait_channel_t *channel, item_t *item, size_t size,	\
				  const struct memwait_deadline *deadline)			\
{												\
	return transfer_until(channel, without_const(item), size, sending, deadline);		\
}												\
												\
int memwait_channel_try##verb(memwait_channel_t *channel, item_t *item, size_t size)		\
{												\
	return try_transfer(channel, without_const(item), size, sending);			\
}												\
												\
MEMWAIT_DEFINE_WAITS(channel, verb, (memwait_channel_t *object, item_t *item, size_t size),	\
		     (object, item, size), without_const(item),					\
		     check_call(object, item, size))

DEFINE_TRANSFER(send, const void, true, NULL)

/* Sends the received item again, from the memory into which it was received. */
static int send_again(struct memwait_op *op)
{
	return op->outcome ? 0 : memwait_op_begin((memwait_op_t *)op, &channel_send_kind,
						  op->object, op->with, &memwait_never);
}

DEFINE_TRANSFER(recv, void, false, send_again)

int memwait_channel_close(memwait_channel_t *channel)
{
	int ret;

	if (!channel_is_valid(channel))
		return EINVAL;
	ret = need_device(channel);
	if (ret)
		return ret;
	memwait_tsan_release(&channel->senders);
	/* Other threads may find CLOSED at head, and destroy the channel. */
	memwait_users_enter(&channel->senders.users, NULL);
	ret = set_closed(channel, &channel->senders);
	if (!ret)
		ret = set_closed(channel, &channel->receivers);
	memwait_users_leave(&channel->senders.users, NULL);
	return ret;
}

size_t memwait_channel_length(const memwait_channel_t *channel)
{
	uint64_t filled, freed;
	uint32_t head, tail;

	if (!channel_is_valid(channel))
		return 0;
	/* acquire: head is not behind it */
	freed = atomic_load_explicit(&channel->receivers.event, memory_order_acquire);
	/* relaxed: the result may be stale anyway */
	filled = atomic_load_explicit(&channel->senders.event, memory_order_relaxed);
	/* Other threads may have transferred items between the two loads. */
	if (is_full(channel, filled, freed))
		return channel->capacity;
	head = index_of(channel, filled);
	tail = index_of(channel, freed);
	return head >= tail ? head - tail : head + channel->capacity - tail;
}
