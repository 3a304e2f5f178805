// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Lock words: 32 bits, of which a byte is used (lock.h).
 *
 *	0			unlocked; no fair waiter sleeps on it
 *	LOCKED			locked; unlock need not notify
 *	LOCKED | CONTENDED	locked; a waiter may sleep on it, or be about to
 *	CONTENDED		unlocked, but the notify failed: the next unlock notifies
 *	HANDED			fair, without an owner: the waiter that clears HANDED becomes
 *				the owner. CONTENDED may be set too
 *	LATE, with both bits	default: a waiter has lost too often, and sleeps
 *	LATE			default: unlocked, and reserved for earlier waiters. CONTENDED
 *				may be set too, as above
 *
 * Invariants:
 *	No other bit is set. HANDED is not set with LOCKED. LATE and LOCKED are set together only
 *	with CONTENDED.
 *	A waiter goes to sleep only on LOCKED | CONTENDED, with or without LATE, or HANDED |
 *	CONTENDED; or, for a while, on LATE.
 *	Only a thread that holds the lock clears CONTENDED, with a notify or before one.
 *	A fair word stays LOCKED or HANDED from the handover until the new owner unlocks it.
 *
 * Default: the first thread takes an unlocked word. To sleep, a waiter sets both bits, which takes
 * the lock if it is free. Therefore a woken waiter acquires the lock with CONTENDED set, for the
 * remaining sleepers. Unlock is a compare-and-swap from LOCKED to 0. If CONTENDED is set, one
 * system call clears both bits and wakes one waiter.
 *
 * A thread that takes the lock again and again could starve a waiter: each time the waiter wakes
 * up, the lock is taken. Therefore a waiter that was woken LATE_AFTER times in vain is late, and
 * sleeps with LATE set. Then unlock leaves LATE set: memwait_lock_try() fails, and a newcomer
 * sleeps behind the other waiters, while the woken waiter takes the lock. LATE stays set until a
 * late waiter has acquired the lock. Until then only try functions, and operations with a deadline,
 * can take the lock before the waiters, which acquire it in their order. If another late waiter
 * cleared LATE, there is one late waiter fewer ahead of this waiter. This waiter therefore acquires
 * the lock after at most as many further losses as there were late waiters ahead of it.
 *
 * A late waiter that gives up clears LATE, and so does an unlock that finds no sleeper: the late
 * waiter may have died, and while LATE is set each unlock makes a system call. Other late waiters
 * set LATE again when they lose again.
 *
 * It is possible that no waiter takes a reserved lock: the woken waiter may have died, or be an
 * operation of a loop that is not running. Therefore a newcomer sleeps for at most KEPT_MS while
 * the lock is reserved, and not beyond its own deadline. If the newcomer has not been woken by
 * then, it is itself late, and takes the lock. memwait_mutex_trylock() takes a reserved lock
 * immediately.
 *
 * A thread that dies while it holds the lock leaves it locked. If a woken waiter dies, the next
 * waiter is notified of the death, and tries instead (MEMWAIT_OWNED, see internal.h).
 *
 * Fair: the owner sets HANDED, and the waiter counted by its notify takes the lock by clearing
 * HANDED. This relies on the kernel: exactly the waiters that a notify counts get MEMWAIT_OK, and
 * the queue is strictly FIFO. Unlock:
 *
 *	owner				waiter
 *	(1) LOCKED -> HANDED, and	(1) set CONTENDED
 *	    clear CONTENDED		(2) sleep while the word is unchanged since (1)
 *	(2) one system call: wake the	(3) woken: HANDED -> LOCKED, and set CONTENDED
 *	    oldest; if there is none,
 *	    clear HANDED
 *
 * A waiter that sleeps before the owner's (2) is counted, and gets the lock. A waiter that is not
 * asleep yet finds the word unlocked. A waiter that is woken by a mistaken notify, or by a stale
 * notify for an earlier object at this address, finds HANDED clear, and sleeps again.
 *
 * If such a notify comes between the owner's (1) and (2), the waiter that the notify wakes gets the
 * lock, and perhaps frees the memory; the owner's (2) then wakes a waiter needlessly, or clears a
 * bit of the memory's new contents. Therefore fair waiters sleep on the byte of the word that
 * contains the bits. No other object of the library has waiters at the second byte of four, and
 * only the unlock of a fair lock notifies this byte. (A program's own 8-bit word may have been at
 * this address.) Waiters of a default lock sleep on the whole word: a stale notify wakes one of
 * them needlessly.
 *
 * A waiter that gives up without having been counted leaves at most CONTENDED behind, which costs
 * one notify. A waiter that gives up after it was counted owns a fair lock, and unlocks it. If the
 * lock is a default lock, the waiter passes the notify on: the next sleeper takes the lock with
 * CONTENDED set, or sets CONTENDED and sleeps again.
 */
#include "lock.h"

#define HANDED		MEMWAIT_LOCK_HANDED	/* fair */
#define LATE		MEMWAIT_LOCK_BIT(2)	/* default */

/* The value on which waiters sleep, apart from HANDED and LATE. */
#define BOTH		(MEMWAIT_LOCKED | MEMWAIT_CONTENDED)

#define LATE_AFTER	8	/* after this many losses a waiter is late */
#define KEPT_MS		10	/* a lock is reserved for at most this time */

/*
 * CONTENDED does not end the spinning, because the last sleeper that is woken leaves CONTENDED set:
 * otherwise two threads that take turns would sleep each time. A fair lock, however, goes to the
 * sleepers.
 */
static bool lock_by_spinning(_Atomic uint32_t *word, _Atomic uint32_t *spins, uint32_t kind)
{
	struct memwait_spin spin;
	bool locked = false;

	if (!memwait_spin_begin(&spin, spins))
		return false;
	while (!locked && memwait_spin_again(&spin)) {
		/* relaxed: a hint; memwait_lock_try() decides */
		uint32_t now = atomic_load_explicit(word, memory_order_relaxed);

		if (now & MEMWAIT_CONTENDED && kind & MEMWAIT_MUTEX_FAIR)
			break;
		if (now)
			memwait_relax();
		else
			locked = memwait_lock_try(word);
	}
	memwait_spin_end(&spin, spins, locked);
	return locked;
}

/* The flags and the address with which waiters of a fair lock sleep. */
#define FAIR_FLAGS(kind)	(MEMWAIT_SIZE_U8 | ((kind) & MEMWAIT_PRIVATE))

static const volatile void *fair_byte(_Atomic uint32_t *word)
{
	return (const volatile char *)word + MEMWAIT_LOCK_BYTE;
}

/*
 * Waits while the word is @seen; see memwait_await(). For a fair lock the wait is not
 * MEMWAIT_OWNED: a woken waiter that dies owns the lock, so no other waiter needs to be notified.
 */
static int await(struct memwait_op *op, _Atomic uint32_t *word, uint32_t seen, uint32_t kind,
		 const struct memwait_deadline *deadline)
{
	if (kind & MEMWAIT_MUTEX_FAIR)
		return memwait_await(op, fair_byte(word), seen >> MEMWAIT_LOCK_PLACE,
				     FAIR_FLAGS(kind), deadline);
	return memwait_await(op, word, seen, MEMWAIT_SIZE_U32 | memwait_sleep_flags(kind),
			     deadline);
}

/*
 * Takes the lock and returns 0; or sets CONTENDED, and returns the value to sleep on. @late: LATE
 * if the caller is late, otherwise 0. LATE is set if the caller must sleep, and cleared if it gets
 * the lock.
 */
static uint32_t lock_or_contend(_Atomic uint32_t *word, uint32_t kind, uint32_t late)
{
	/* relaxed: the compare-and-swap decides */
	uint32_t now = atomic_load_explicit(word, memory_order_relaxed), next;

	do {
		MEMWAIT_INVARIANT(!(now & ~(BOTH | HANDED)));
		MEMWAIT_INVARIANT(!memwait_lock_is_handed(now, kind) || !(now & MEMWAIT_LOCKED));
		if (!now && kind & MEMWAIT_MUTEX_FAIR)
			next = MEMWAIT_LOCKED;
		else if (memwait_lock_is_handed(now, kind))
			next = now | MEMWAIT_CONTENDED;
		else if (now & MEMWAIT_LOCKED)
			next = now | BOTH | late;
		else
			next = (now & ~late) | BOTH;
		if (now == next)
			return now;
		/* acquire: as in memwait_lock_try() */
	} while (!atomic_compare_exchange_weak_explicit(word, &now, next, memory_order_acquire,
							memory_order_relaxed));
	return memwait_lock_is_taken(now, kind) ? next : 0;
}

/*
 * Takes a free lock that memwait_lock_try() does not take: it is reserved, or a notify has failed.
 */
bool memwait_lock_try_nonzero(_Atomic uint32_t *word, uint32_t kind)
{
	/* relaxed: a hint */
	uint32_t now = atomic_load_explicit(word, memory_order_relaxed);

	return now && !(now & MEMWAIT_LOCKED) && !lock_or_contend(word, kind, 0);
}

/* After MEMWAIT_OK on a fair word. Returns whether the caller now owns the lock. */
static bool take_over(_Atomic uint32_t *word)
{
	/* relaxed: the compare-and-swap decides */
	uint32_t now = atomic_load_explicit(word, memory_order_relaxed);

	while (now & HANDED) {
		/* acquire: pairs with the release of hand_over() */
		if (atomic_compare_exchange_weak_explicit(word, &now, BOTH, memory_order_acquire,
							  memory_order_relaxed))
			return true;
	}
	return false;
}

/* LATE if the waiter is late, or 0. */
static uint32_t late_bit(const struct memwait_turn *turn, uint32_t kind)
{
	return !(kind & MEMWAIT_MUTEX_FAIR) && turn->woken >= LATE_AFTER ? LATE : 0;
}

/* For a waiter that gives up. @late: LATE if the waiter is late, or 0. */
static void clear(_Atomic uint32_t *word, uint32_t late)
{
	/* relaxed, both: nothing is published, and the release sequence of an unlock continues */
	if (atomic_load_explicit(word, memory_order_relaxed) & late)
		atomic_fetch_and_explicit(word, ~late, memory_order_relaxed);
}

/*
 * Whether the caller, a newcomer, must sleep although the lock, which is reserved for others, is
 * free. An operation with a deadline need not do so: its wait is armed with that deadline.
 */
static bool gives_way(const struct memwait_op *op, _Atomic uint32_t *word, uint32_t kind)
{
	/* relaxed: a hint */
	return !(kind & MEMWAIT_MUTEX_FAIR) &&
	       atomic_load_explicit(word, memory_order_relaxed) == LATE &&
	       (!op || op->deadline.ns == MEMWAIT_FOREVER);
}

/*
 * The first wait of a newcomer, for a reserved lock: sleeps for at most KEPT_MS, even if
 * CLOCK_REALTIME is set back.
 */
static int give_way(struct memwait_op *op, struct memwait_turn *turn, _Atomic uint32_t *word,
		    uint32_t kind, const struct memwait_deadline *deadline)
{
	const uint64_t most = KEPT_MS * 1000000ULL;
	struct memwait_deadline kept;
	uint64_t left;

	memwait_deadline_after(&kept, CLOCK_MONOTONIC, 0);
	/*
	 * The caller's deadline may come first, and may be on another clock. An operation that gets
	 * here has no deadline. The time left is computed after the current time was read, so their
	 * sum is not later than the deadline.
	 */
	left = memwait_deadline_left(op ? &op->deadline : deadline);
	kept.ns += left < most ? left : most;
	turn->gives_way = true;
	if (op)
		op->deadline = kept;
	return await(op, word, LATE, kind, &kept);
}

/*
 * After the wait of give_way(). Returns the outcome of that wait. A waiter whose wait timed out is
 * late.
 */
static int come_forward(struct memwait_op *op, struct memwait_turn *turn, int outcome)
{
	turn->gives_way = false;
	if (op)
		op->deadline = memwait_never;
	if (outcome != MEMWAIT_TIMED_OUT)
		return outcome;
	turn->woken = LATE_AFTER;
	return MEMWAIT_NOT_EQUAL;
}

/*
 * Waits for the lock, as a thread (@op is NULL) or an operation; @outcome: of the last wait. Tries
 * once more after the deadline, because the thread woken for the lock may not have run yet.
 */
static int lock_after(struct memwait_op *op, _Atomic uint32_t *word, uint32_t kind,
		      const struct memwait_deadline *deadline, int outcome)
{
	struct memwait_turn own = { 0 }, *turn = op ? &op->turn : &own;
	uint32_t seen, late;

	if (outcome == MEMWAIT_OP_BEGIN && gives_way(op, word, kind))
		outcome = give_way(op, turn, word, kind, deadline);
	while (outcome != MEMWAIT_PENDING) {
		if (turn->gives_way)
			outcome = come_forward(op, turn, outcome);
		if (outcome == MEMWAIT_OK && kind & MEMWAIT_MUTEX_FAIR && take_over(word))
			return 0;
		turn->woken += memwait_was_woken(outcome);
		late = late_bit(turn, kind);
		seen = memwait_has_failed(outcome) ? 0 : lock_or_contend(word, kind, late);
		if (memwait_has_failed(outcome) || (seen && outcome == MEMWAIT_TIMED_OUT)) {
			clear(word, late);
			return outcome < 0 ? -outcome : ETIMEDOUT;
		}
		if (!seen)
			return 0;
		outcome = await(op, word, seen, kind, deadline);
	}
	return MEMWAIT_OP_WAITS;
}

int memwait_lock(_Atomic uint32_t *word, _Atomic uint32_t *spins, uint32_t kind,
		 const struct memwait_deadline *deadline)
{
	if (memwait_lock_try(word) || lock_by_spinning(word, spins, kind))
		return 0;
	return lock_after(NULL, word, kind, deadline, MEMWAIT_OP_BEGIN);
}

/*
 * For the owner: the mask that an unlock applies to LATE. 0 clears LATE, because no waiter sleeps.
 */
static uint32_t late_if_needed(const _Atomic uint32_t *word, uint32_t kind, uint32_t was)
{
	return was & LATE && !memwait_sleepers(word, kind) ? 0 : LATE;
}

/* Hands over a fair lock that is CONTENDED. Returns a negative error number if the notify fails. */
static int hand_over(_Atomic uint32_t *word, uint32_t kind)
{
	/* release: publishes the critical section to take_over() */
	atomic_fetch_xor_explicit(word, BOTH | HANDED, memory_order_release);
	return memwait_change(fair_byte(word), MEMWAIT_CHANGE_AND | MEMWAIT_CHANGE_IF_NONE_WOKEN,
			      ~HANDED, 1, FAIR_FLAGS(kind), NULL);
}

/*
 * The part of memwait_lock_release() for a word that is not exactly LOCKED. Change and notify are
 * one system call: after the change the next owner may free the word, so a failed notify would be
 * lost. If the call fails, the word becomes exactly CONTENDED, or stays locked with
 * MEMWAIT_OR_KEEP.
 */
int memwait_lock_release_contended(_Atomic uint32_t *word, uint32_t kind, uint32_t was)
{
	int ret;

	if (!(was & MEMWAIT_LOCKED))
		return EPERM;
	MEMWAIT_INVARIANT((was & ~LATE) == BOTH);
	if (kind & MEMWAIT_MUTEX_FAIR)
		ret = hand_over(word, kind);
	else
		ret = memwait_change(word, MEMWAIT_CHANGE_AND, late_if_needed(word, kind, was), 1,
				     kind, NULL);
	if (ret >= 0)
		return 0;
	if (!(kind & MEMWAIT_OR_KEEP))
		/* release: as in memwait_lock_release_uncontended() */
		atomic_store_explicit(word, MEMWAIT_CONTENDED, memory_order_release);
	else if (kind & MEMWAIT_MUTEX_FAIR)
		/* relaxed: the caller still holds the lock */
		atomic_store_explicit(word, BOTH, memory_order_relaxed);
	return -ret;
}

/*
 * Like memwait_lock_release_contended(), for a private word and for a caller that can notify later.
 * Returns whether the caller must notify.
 */
bool memwait_lock_release_silently(_Atomic uint32_t *word)
{
	/* relaxed: a hint */
	uint32_t was = atomic_load_explicit(word, memory_order_relaxed);

	was = late_if_needed(word, MEMWAIT_PRIVATE, was);
	/* release: as in memwait_lock_release_uncontended() */
	return atomic_fetch_and_explicit(word, was, memory_order_release) & MEMWAIT_CONTENDED;
}

/* Wakes one sleeper, or leaves that to the next unlock. The word must still exist. */
static void lock_wake_or_contend(_Atomic uint32_t *word, uint32_t kind)
{
	/* relaxed: the next owner gets the bit with the lock, and notifies when it unlocks */
	if (memwait_wake(word, 1, kind) < 0)
		atomic_fetch_or_explicit(word, MEMWAIT_CONTENDED, memory_order_relaxed);
}

/* memwait_lock() for an operation. */
int memwait_lock_step(struct memwait_op *op, _Atomic uint32_t *word, uint32_t kind, int outcome)
{
	if (outcome == MEMWAIT_OP_BEGIN && memwait_lock_try(word))
		return 0;
	if (outcome == MEMWAIT_OP_BEGIN)
		op->turn = (struct memwait_turn){ 0 };
	return lock_after(op, word, kind, NULL, outcome);
}

/* @turn: the waiter's, or NULL if it has not waited for the lock. */
void memwait_lock_undo(const struct memwait_turn *turn, _Atomic uint32_t *word, uint32_t kind,
		       int outcome)
{
	if (turn)
		clear(word, late_bit(turn, kind));
	if (!memwait_was_woken(outcome))
		return;
	if (!(kind & MEMWAIT_MUTEX_FAIR))
		lock_wake_or_contend(word, kind);
	else if (take_over(word))
		memwait_lock_release(word, kind);
}
