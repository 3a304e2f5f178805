// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Lock words: 32 bits.
 *
 *	0			unlocked; no fair waiter sleeps on it
 *	LOCKED			locked; unlock need not notify
 *	LOCKED | CONTENDED	locked; a waiter may sleep on it, or be about to
 *	CONTENDED		unlocked, but the notify failed: the next unlock notifies
 *	LOCKED | HANDED		fair, without an owner: the waiter that clears HANDED is the next
 *				one. CONTENDED may be set too, as above
 *
 * Invariants:
 *	No other bit is set. HANDED is set only with LOCKED.
 *	A waiter goes to sleep only on LOCKED | CONTENDED, with or without HANDED.
 *	Only a thread that has the lock clears CONTENDED, with a notify or before one.
 *	A fair word stays LOCKED from the handover until the new owner unlocks it.
 *
 * Default: the first thread takes an unlocked word. To sleep, a waiter sets both bits by an
 * exchange, which takes the lock if it is free. So a woken waiter has the lock with CONTENDED set,
 * for the remaining sleepers. Unlock is a compare-and-swap from LOCKED to 0. If CONTENDED is set,
 * one system call stores 0 and wakes one waiter.
 *
 * A thread that dies with the lock leaves it locked. If a woken waiter dies, the next one is told,
 * and tries instead (MEMWAIT_OWNED, see internal.h).
 *
 * Fair: the owner leaves LOCKED set, and the waiter counted by the notify takes the lock by
 * clearing HANDED. This relies on the kernel: a notify returns 1 exactly if one waiter will see
 * MEMWAIT_OK, and the queue is strictly FIFO. Unlock:
 *
 *	owner				waiter
 *	(1) CONTENDED -> HANDED		(1) set CONTENDED
 *	(2) notify: 1: handed over	(2) sleep while the word is unchanged since (1)
 *	(3) LOCKED | HANDED -> 0; if	(3) woken: clear HANDED, set CONTENDED
 *	    CONTENDED is set, clear
 *	    it and repeat (2)
 *
 * A waiter that sleeps before the owner's (2) gets the lock. A waiter that set CONTENDED before the
 * owner's (1), and is not asleep yet, finds the word changed and sets CONTENDED again. If CONTENDED
 * is set after (1), (3) clears it and notifies again. So nobody sleeps after (3).
 *
 * A stale notify, for an earlier object at this address, wakes a waiter that finds no HANDED and
 * sleeps again. If it comes between the owner's (1) and (2), its waiter takes the lock, and the
 * waiter that (2) wakes sleeps again.
 *
 * A waiter that gives up without being counted leaves at most CONTENDED, which costs one notify. A
 * counted waiter owns a fair lock, and unlocks it. With a default lock it passes the notify on: the
 * next sleeper takes the lock with CONTENDED set, or sets CONTENDED and sleeps again.
 */
#include "internal.h"

#define HANDED		4U

/* What waiters sleep on, HANDED aside. */
#define BOTH		(MEMWAIT_LOCKED | MEMWAIT_CONTENDED)

/*
 * CONTENDED does not end it, as the last sleeper to wake keeps it set: then two threads that take
 * turns would sleep each time. But a fair lock goes to the sleepers.
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

/* Not MEMWAIT_OWNED if fair: a woken waiter that dies has the lock, so nobody need be told. */
static uint32_t sleep_flags(uint32_t kind)
{
	if (kind & MEMWAIT_MUTEX_FAIR)
		return MEMWAIT_SIZE_U32 | (kind & MEMWAIT_PRIVATE);
	return MEMWAIT_SIZE_U32 | memwait_sleep_flags(kind);
}

/* Takes the lock and returns 0; or sets CONTENDED and returns the value to sleep on. */
static uint32_t lock_or_contend(_Atomic uint32_t *word, uint32_t kind)
{
	uint32_t now, next;

	if (!(kind & MEMWAIT_MUTEX_FAIR)) {
		/* acquire: as memwait_lock_try() */
		now = atomic_exchange_explicit(word, BOTH, memory_order_acquire);
		MEMWAIT_INVARIANT(!(now & ~BOTH));
		return now & MEMWAIT_LOCKED ? BOTH : 0;
	}
	/* relaxed: the compare-and-swap decides */
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

/* Takes what memwait_lock_try() does not: a free word whose last owner failed to notify. */
bool memwait_lock_try_nonzero(_Atomic uint32_t *word, uint32_t kind)
{
	/* relaxed: a hint */
	return atomic_load_explicit(word, memory_order_relaxed) == MEMWAIT_CONTENDED &&
	       !lock_or_contend(word, kind);
}

/* After MEMWAIT_OK on a fair word. Returns whether the caller has the lock. */
static bool take_over(_Atomic uint32_t *word)
{
	/* relaxed: the compare-and-swap decides */
	uint32_t now = atomic_load_explicit(word, memory_order_relaxed);

	while (now & HANDED) {
		/* acquire: pairs with the release of memwait_lock_release_fair() */
		if (atomic_compare_exchange_weak_explicit(word, &now, BOTH, memory_order_acquire,
							  memory_order_relaxed))
			return true;
	}
	return false;
}

/*
 * Waits for the lock, as a thread (@op is NULL) or an operation; @outcome: of the last wait. After
 * the deadline it tries once more, as the thread woken for the lock may not have run yet.
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
		if (!seen && !op)
			memwait_ends_waiting(outcome);
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
	if (memwait_lock_try(word) || lock_by_spinning(word, spins, kind))
		return 0;
	return memwait_lock_contended(word, kind, deadline);
}

/* The same after a sleep on the word: a lock that is not fair is taken with CONTENDED set. */
int memwait_lock_contended(_Atomic uint32_t *word, uint32_t kind,
			   const struct memwait_deadline *deadline)
{
	return lock_after(NULL, word, kind, deadline, MEMWAIT_OP_BEGIN);
}

/*
 * After a handover that counted no waiter: none slept, or the notify failed. Returns the new word;
 * or HANDED: another notify has woken a waiter, which has the lock.
 */
static uint32_t end_handover(_Atomic uint32_t *word, uint32_t kind, bool failed)
{
	/* relaxed, all: the release sequence of the atomic that set HANDED goes on */
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

/* memwait_lock_release() of a fair word. */
int memwait_lock_release_fair(_Atomic uint32_t *word, uint32_t kind)
{
	uint32_t now;
	int ret;

	if (memwait_lock_release_uncontended(word, &now))
		return 0;
	if (!(now & MEMWAIT_LOCKED))
		return EPERM;
	/* release: publishes the critical section to take_over() */
	now = atomic_fetch_xor_explicit(word, MEMWAIT_CONTENDED | HANDED, memory_order_release);
	MEMWAIT_INVARIANT(now == BOTH);
	do {
		ret = memwait_wake(word, 1, kind);
		now = ret > 0 ? HANDED : end_handover(word, kind, ret < 0);
	} while (now == (MEMWAIT_LOCKED | HANDED));
	/* On error nobody was woken, and the word is CONTENDED. */
	return ret < 0 && now != HANDED ? -ret : 0;
}

/*
 * memwait_lock_release() of a word that is neither fair nor LOCKED alone. Store and notify are one
 * system call: after the store the next owner may free the word, so a failed notify would be lost.
 * If the call fails, the word becomes CONTENDED alone, or stays locked with MEMWAIT_OR_KEEP.
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
	/* release: as memwait_lock_release_uncontended() */
	atomic_store_explicit(word, MEMWAIT_CONTENDED, memory_order_release);
	return -ret;
}

/* Wakes one sleeper, or leaves that to the next unlock. The word must still exist. */
static int wake_or_contend(_Atomic uint32_t *word, uint32_t kind)
{
	int ret = memwait_wake(word, 1, kind);

	/* relaxed: the next owner gets the bit with the lock, and notifies when it unlocks */
	if (ret < 0)
		atomic_fetch_or_explicit(word, MEMWAIT_CONTENDED, memory_order_relaxed);
	return ret < 0 ? -ret : 0;
}

/*
 * Sleepers were moved to this word, which is not fair, and may be unlocked: ensures that they are
 * woken.
 */
int memwait_lock_adopt(_Atomic uint32_t *word, uint32_t kind)
{
	/* relaxed, all: the kernel orders the move before; nothing guarded is accessed */
	uint32_t now = atomic_load_explicit(word, memory_order_relaxed);

	while (now == MEMWAIT_LOCKED) {
		if (atomic_compare_exchange_weak_explicit(word, &now, BOTH, memory_order_relaxed,
							  memory_order_relaxed))
			return 0;
	}
	return now & MEMWAIT_LOCKED ? 0 : wake_or_contend(word, kind);
}

/* memwait_lock() of an operation; memwait_lock_contended() if @outcome is MEMWAIT_NOT_EQUAL. */
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
		wake_or_contend(word, kind);
	else if (take_over(word))
		memwait_lock_release(word, kind);
}
