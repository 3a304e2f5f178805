// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Lock words: 32 bits.
 *
 *	0			unlocked; no fair waiter is asleep on it
 *	LOCKED			locked; unlock need not notify
 *	LOCKED | CONTENDED	locked; a waiter may be asleep on it, or about to be
 *	CONTENDED		unlocked; no waiter could be woken: the next unlock does it
 *	LOCKED | HANDED		a fair word that has no owner: the waiter that takes HANDED away is
 *				the next one. CONTENDED beside it as above
 *
 * Invariants:
 *	No other bit is set. HANDED is set only beside LOCKED.
 *	A waiter sleeps only while the word is LOCKED | CONTENDED, with or without HANDED.
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
 * counted owns the lock by taking HANDED away. This relies on the kernel: a notify returns 1
 * exactly if one waiter will see MEMWAIT_OK, and the queue is strictly first in, first out. To
 * unlock it:
 *
 *	owner				waiter
 *	(1) CONTENDED -> HANDED		(1) set CONTENDED
 *	(2) notify: 1: handed over	(2) sleep while the word is as it was made in (1)
 *	(3) LOCKED | HANDED -> 0; or,	(3) woken: take HANDED away, set CONTENDED
 *	    if CONTENDED is set, clear
 *	    it, and again (2)
 *
 * A waiter that slept before (2) gets the lock. One that had set CONTENDED before the owner's (1),
 * and does not sleep yet, finds the word changed, and sets it again. CONTENDED that is set after
 * (1) makes (3) clear it and notify again. So after (3) nobody sleeps. A waiter that takes the lock
 * sets CONTENDED again, for those behind it.
 *
 * A notify can come late, for an object that was here before: of a thread that has unlocked, or
 * posted, and is preempted before it notifies. The waiter that it wakes finds no HANDED, and sleeps
 * again. If it comes between (1) and its own, it takes the lock in another's place, who sleeps
 * again: one has it.
 *
 * Cancelled, timed out, interrupted: the kernel says exactly whether a waiter was counted. If it
 * was not, it leaves nothing but perhaps CONTENDED, which costs one notify. If it was, a fair lock
 * is its own, and is unlocked; by default the notify goes on to the next sleeper, who takes the
 * lock with CONTENDED set, or sets it and sleeps again.
 *
 * A condition variable moves its sleepers to a word that is not fair, by memwait_lock_adopt().
 */
#include "internal.h"

#define HANDED		4U

/* What a word is that somebody sleeps on, but for HANDED. */
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

/* Takes the lock, and returns 0; or sets CONTENDED, and returns what the word is, to sleep on. */
static uint32_t lock_or_contend(_Atomic uint32_t *word, uint32_t kind)
{
	uint32_t now, next;

	if (!(kind & MEMWAIT_MUTEX_FAIR)) {
		/* acquire: as memwait_lock_try() */
		now = atomic_exchange_explicit(word, BOTH, memory_order_acquire);
		MEMWAIT_INVARIANT(!(now & ~BOTH));
		return now & MEMWAIT_LOCKED ? BOTH : 0;
	}
	/* relaxed: only the compare-and-swap counts */
	now = atomic_load_explicit(word, memory_order_relaxed);
	for (;;) {
		next = now ? now | BOTH : MEMWAIT_LOCKED;
		MEMWAIT_INVARIANT(!(now & ~(BOTH | HANDED)));
		MEMWAIT_INVARIANT(now & MEMWAIT_LOCKED || !(now & HANDED));
		if (now == next)
			return now;
		/* acquire: as memwait_lock_try() */
		if (atomic_compare_exchange_weak_explicit(word, &now, next, memory_order_acquire,
							  memory_order_relaxed))
			return now & MEMWAIT_LOCKED ? next : 0;
	}
}

/* What memwait_lock_try() does not take: a free word whose last owner could wake nobody. */
bool memwait_lock_try_owing(_Atomic uint32_t *word, uint32_t kind)
{
	/* relaxed: a hint */
	return atomic_load_explicit(word, memory_order_relaxed) == MEMWAIT_CONTENDED &&
	       !lock_or_contend(word, kind);
}

/* After MEMWAIT_OK on a fair word: whether it is locked, for the caller. */
static bool take_over(_Atomic uint32_t *word)
{
	/* relaxed: only the compare-and-swap counts */
	uint32_t now = atomic_load_explicit(word, memory_order_relaxed);

	while (now & HANDED) {
		/* acquire: pairs with the release of the owner before, which has set HANDED */
		if (atomic_compare_exchange_weak_explicit(word, &now, BOTH, memory_order_acquire,
							  memory_order_relaxed))
			return true;
	}
	return false;
}

/*
 * Of a thread, if @op is NULL, or of an operation: waits for the lock, or goes on after a wait that
 * has ended with @outcome. After the deadline it tries once more, as the thread that was woken for
 * the lock need not have run yet; and CONTENDED is set for those that sleep on.
 */
static int lock_after(struct memwait_op *op, _Atomic uint32_t *word, uint32_t kind,
		      const struct memwait_deadline *deadline, int outcome)
{
	uint32_t seen;

	for (;;) {
		if (outcome == MEMWAIT_OK && kind & MEMWAIT_MUTEX_FAIR && take_over(word))
			return 0;
		if (memwait_has_failed(outcome))
			return -outcome;
		seen = lock_or_contend(word, kind);
		if (!seen)
			return 0;
		if (outcome == MEMWAIT_TIMED_OUT)
			return ETIMEDOUT;
		outcome = memwait_await(op, word, seen, sleep_flags(kind), deadline);
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

/*
 * Of a word that was handed over, but no waiter counted, because none slept or the notify has
 * failed. Returns what the word has become; or HANDED: another notify has woken a waiter, which has
 * the lock.
 */
static uint32_t take_back(_Atomic uint32_t *word, uint32_t kind, bool failed)
{
	/* relaxed, all: what the caller has released by setting HANDED stays released */
	uint32_t now = atomic_load_explicit(word, memory_order_relaxed), next;

	do {
		if (!(now & HANDED))
			return HANDED;
		if (failed)
			next = kind & MEMWAIT_OR_KEEP ? BOTH : MEMWAIT_CONTENDED;
		else
			next = now & MEMWAIT_CONTENDED ? MEMWAIT_LOCKED | HANDED : 0;
	} while (!atomic_compare_exchange_weak_explicit(word, &now, next, memory_order_relaxed,
							memory_order_relaxed));
	return next;
}

/* What is left of memwait_lock_release() when it is not done by one atomic. */
int memwait_lock_release_fair(_Atomic uint32_t *word, uint32_t kind)
{
	uint32_t now;
	int ret;

	if (memwait_lock_release_uncontended(word, &now))
		return 0;
	if (!(now & MEMWAIT_LOCKED))
		return EPERM;
	/* release: what was done under the lock is there for the waiter, see take_over() */
	now = atomic_fetch_xor_explicit(word, MEMWAIT_CONTENDED | HANDED, memory_order_release);
	MEMWAIT_INVARIANT(now == BOTH);
	do {
		ret = memwait_wake(word, 1, kind);
		now = ret > 0 ? HANDED : take_back(word, kind, ret < 0);
	} while (now == (MEMWAIT_LOCKED | HANDED));
	/* An error: nobody was woken, and the word is CONTENDED. */
	return ret < 0 && now != HANDED ? -ret : 0;
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
	if (!(kind & MEMWAIT_MUTEX_FAIR))
		wake_or_owe(word, kind);
	else if (take_over(word))
		memwait_lock_release(word, kind);
}
