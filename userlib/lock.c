// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Lock words: 32 bits.
 *
 *	0			unlocked; no fair waiter is asleep on it
 *	LOCKED			locked; unlock need not notify
 *	LOCKED | CONTENDED	locked; a waiter may be asleep on it, or about to be
 *	CONTENDED		unlocked; no waiter could be woken: the next unlock does it
 *
 * Invariants:
 *	No other bit is set.
 *	A waiter sleeps only while the word is LOCKED | CONTENDED.
 *	CONTENDED is cleared by a thread that has the lock, and a notify goes with that or follows.
 *	A fair word is LOCKED when it is handed over, and until that waiter unlocks it.
 *
 * By default an unlocked word belongs to the first thread that takes it. A thread that wants to
 * sleep sets both bits by an exchange, which takes the lock if it was free by then. So a waiter
 * that was woken takes the lock with CONTENDED set, for those that still sleep. To unlock is a
 * compare-and-swap from LOCKED to 0. If CONTENDED is set, the word becomes 0 and one waiter is
 * woken, by one system call.
 *
 * A thread that dies with the lock leaves it locked. If a waiter dies that was woken, the next one
 * is told, and tries in its place (MEMWAIT_OWNED, see internal.h).
 *
 * A fair word is handed over: the owner leaves LOCKED set, and the waiter that the notify has
 * counted owns the lock by that. This relies on the kernel: a notify returns 1 exactly if one
 * waiter will see MEMWAIT_OK, and the queue is strictly first in, first out. To unlock it:
 *
 *	owner				waiter
 *	(1) clear CONTENDED		(1) set CONTENDED
 *	(2) notify: 1: handed over	(2) sleep while LOCKED | CONTENDED
 *	(3) LOCKED -> 0, or again (1)
 *
 * A waiter that slept before (2) gets the lock. One that had set CONTENDED before the owner's (1),
 * and does not sleep yet, finds the word changed, and sets it again. CONTENDED that is set after
 * (1) makes (3) fail. So after (3) nobody sleeps. A waiter that is handed the lock sets CONTENDED
 * again, for those behind it.
 *
 * Cancelled, timed out, interrupted: the kernel says exactly whether a waiter was counted. If it
 * was not, it leaves nothing but perhaps CONTENDED, which costs one notify. If it was, a fair lock
 * is its own, and is unlocked; by default the notify goes on to the next sleeper, who takes the
 * lock with CONTENDED set, or sets it and sleeps again.
 *
 * A condition variable moves its sleepers to a word that is not fair, by memwait_lock_adopt().
 */
#include "internal.h"

/* What a word is that somebody sleeps on. */
#define BOTH		(MEMWAIT_LOCKED | MEMWAIT_CONTENDED)

/* Only while nobody sleeps: sleepers come first. */
static bool lock_by_spinning(_Atomic uint32_t *word, _Atomic uint32_t *spins)
{
	struct memwait_spin spin;
	bool locked = false;

	if (!memwait_spin_begin(&spin, spins))
		return false;
	while (!locked && memwait_spin_again(&spin)) {
		/* relaxed: a hint, memwait_lock_try() decides */
		uint32_t now = atomic_load_explicit(word, memory_order_relaxed);

		if (now & MEMWAIT_CONTENDED)
			break;
		if (now)
			memwait_relax();
		else
			locked = memwait_lock_try(word);
	}
	memwait_spin_end(&spin, spins, locked);
	return locked;
}

/*
 * How to sleep. A fair word is not MEMWAIT_OWNED: if a thread dies that was woken, it dies with the
 * lock, and the others need not be told.
 */
static uint32_t sleep_flags(uint32_t kind)
{
	if (kind & MEMWAIT_MUTEX_FAIR)
		return MEMWAIT_SIZE_U32 | (kind & MEMWAIT_PRIVATE);
	return MEMWAIT_SIZE_U32 | memwait_sleep_flags(kind);
}

/* Takes the lock: true; or makes the word LOCKED | CONTENDED, to sleep on. */
static bool lock_or_contend(_Atomic uint32_t *word, uint32_t kind)
{
	uint32_t now;

	if (!(kind & MEMWAIT_MUTEX_FAIR)) {
		/* acquire: as memwait_lock_try() */
		now = atomic_exchange_explicit(word, BOTH, memory_order_acquire);
		MEMWAIT_INVARIANT(!(now & ~BOTH));
		return !(now & MEMWAIT_LOCKED);
	}
	/* relaxed: only the compare-and-swap counts */
	now = atomic_load_explicit(word, memory_order_relaxed);
	for (;;) {
		uint32_t next = now ? BOTH : MEMWAIT_LOCKED;

		MEMWAIT_INVARIANT(!(now & ~BOTH));
		if (now == next)
			return false;
		/* acquire: as memwait_lock_try() */
		if (atomic_compare_exchange_weak_explicit(word, &now, next, memory_order_acquire,
							  memory_order_relaxed))
			return !(now & MEMWAIT_LOCKED);
	}
}

/* What memwait_lock_try() does not take: a free word whose last owner could wake nobody. */
bool memwait_lock_try_owing(_Atomic uint32_t *word, uint32_t kind)
{
	/* relaxed: a hint */
	return atomic_load_explicit(word, memory_order_relaxed) == MEMWAIT_CONTENDED &&
	       lock_or_contend(word, kind);
}

/* After MEMWAIT_OK on a fair word: it is locked, for the caller. */
static void lock_was_handed_over(_Atomic uint32_t *word)
{
	/* acquire: pairs with the release of the owner before, which changed the word as well */
	uint32_t was = atomic_fetch_or_explicit(word, MEMWAIT_CONTENDED, memory_order_acquire);

	MEMWAIT_INVARIANT(was & MEMWAIT_LOCKED);
}

/*
 * Of a thread, if @op is NULL, or of an operation: waits for the lock, or goes on after a wait that
 * has ended with @outcome. After the deadline it tries once more, as the thread that was woken for
 * the lock need not have run yet; and CONTENDED is set for those that sleep on.
 */
static int lock_after(struct memwait_op *op, _Atomic uint32_t *word, uint32_t kind,
		      const struct memwait_deadline *deadline, int outcome)
{
	for (;;) {
		if (outcome == MEMWAIT_OK && kind & MEMWAIT_MUTEX_FAIR) {
			lock_was_handed_over(word);
			return 0;
		}
		if (memwait_has_failed(outcome))
			return -outcome;
		if (lock_or_contend(word, kind))
			return 0;
		if (outcome == MEMWAIT_TIMED_OUT)
			return ETIMEDOUT;
		outcome = memwait_await(op, word, BOTH, sleep_flags(kind), deadline);
		if (outcome == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
	}
}

int memwait_lock(_Atomic uint32_t *word, _Atomic uint32_t *spins, uint32_t kind,
		 const struct memwait_deadline *deadline)
{
	if (memwait_lock_try(word) || lock_by_spinning(word, spins))
		return 0;
	return memwait_lock_contended(word, kind, deadline);
}

/* The same after a sleep on the word: by default, the lock is taken with CONTENDED set. */
int memwait_lock_contended(_Atomic uint32_t *word, uint32_t kind,
			   const struct memwait_deadline *deadline)
{
	return lock_after(NULL, word, kind, deadline, MEMWAIT_OP_BEGIN);
}

/* What is left of memwait_lock_release() when it is not done by one atomic. */
int memwait_lock_release_fair(_Atomic uint32_t *word, uint32_t kind)
{
	int ret = 0;

	for (;;) {
		uint32_t locked = MEMWAIT_LOCKED, unlocked = ret < 0 ? MEMWAIT_CONTENDED : 0;

		/* release: what was done under the lock is there for the next owner */
		if (atomic_compare_exchange_strong_explicit(word, &locked, unlocked,
							    memory_order_release,
							    memory_order_relaxed))
			return -ret;
		if (!(locked & MEMWAIT_LOCKED))
			return EPERM;
		/* release: the same for whom it is handed over to, see lock_was_handed_over() */
		locked = atomic_fetch_and_explicit(word, ~MEMWAIT_CONTENDED, memory_order_release);
		MEMWAIT_INVARIANT(locked == BOTH);
		if (!ret)
			ret = memwait_wake(word, 1, kind);
		if (ret > 0)
			return 0;
		if (ret < 0 && kind & MEMWAIT_OR_KEEP) {
			/* relaxed: it guards nothing */
			atomic_fetch_or_explicit(word, MEMWAIT_CONTENDED, memory_order_relaxed);
			return -ret;
		}
		/* An error: nobody is woken. The word becomes CONTENDED alone. */
	}
}

/*
 * What is left of memwait_lock_release() of a word that is not fair. The store and the notify are
 * one call: after the store the next owner may free the word, so it could not be said any more that
 * somebody is to be woken. If the call fails the word is unlocked, and CONTENDED.
 */
int memwait_lock_release_contended(_Atomic uint32_t *word, uint32_t kind, uint32_t was)
{
	int ret;

	if (!(was & MEMWAIT_LOCKED))
		return EPERM;
	ret = memwait_change(word, MEMWAIT_CHANGE_SET, 0, 1, kind, &was);
	MEMWAIT_INVARIANT(was == BOTH);
	if (ret >= 0)
		return 0;
	if (kind & MEMWAIT_OR_KEEP)
		return -ret;
	/* release: as memwait_lock_release() */
	atomic_store_explicit(word, MEMWAIT_CONTENDED, memory_order_release);
	return -ret;
}

/* Wakes one sleeper of a word that cannot be gone; or leaves that to the next unlock. */
static int wake_or_owe(_Atomic uint32_t *word, uint32_t kind)
{
	int ret = memwait_wake(word, 1, kind);

	/* relaxed: the next owner takes it with the lock, and wakes another one by unlocking */
	if (ret < 0)
		atomic_fetch_or_explicit(word, MEMWAIT_CONTENDED, memory_order_relaxed);
	return ret < 0 ? -ret : 0;
}

/*
 * Sleepers of another word were moved to this one, which may be unlocked: makes sure that they are
 * woken. Each of them, when it is woken, takes the lock with CONTENDED set.
 */
int memwait_lock_adopt(_Atomic uint32_t *word, uint32_t kind)
{
	/* relaxed, all: the kernel has ordered the move before; what is guarded is not touched */
	uint32_t now = atomic_load_explicit(word, memory_order_relaxed);

	while (now == MEMWAIT_LOCKED) {
		if (atomic_compare_exchange_weak_explicit(word, &now, BOTH, memory_order_relaxed,
							  memory_order_relaxed))
			return 0;
	}
	return now & MEMWAIT_LOCKED ? 0 : wake_or_owe(word, kind);
}

/*
 * As memwait_lock(), for an operation. As memwait_lock_contended(), if the outcome is that of a
 * word that has changed.
 */
int memwait_lock_step(struct memwait_op *op, _Atomic uint32_t *word, uint32_t kind, int outcome)
{
	if (outcome == MEMWAIT_OP_BEGIN && memwait_lock_try(word))
		return 0;
	return lock_after(op, word, kind, NULL, outcome);
}

void memwait_lock_undo(_Atomic uint32_t *word, uint32_t kind, int outcome)
{
	if (!memwait_was_woken(outcome))
		return;
	if (kind & MEMWAIT_MUTEX_FAIR) {
		lock_was_handed_over(word);
		memwait_lock_release(word, kind);
	} else {
		wake_or_owe(word, kind);
	}
}
