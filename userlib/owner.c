// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Owner words: 64 bits, of locks whose owner may die. The lower 62 bits are the id of the thread
 * that has the lock, or 0.
 *
 *	0			unlocked
 *	id			locked; unlock need not notify
 *	id | CONTENDED		locked; a waiter may be asleep on it, or about to be
 *	CONTENDED		unlocked; a waiter may be asleep on it
 *	id | ... | INCONSISTENT	locked; an owner before this one has died with it
 *	INCONSISTENT		not recoverable, for ever
 *
 * Invariants:
 *	INCONSISTENT without an id stands alone, and the word never changes again.
 *	A waiter sleeps only while the word names an owner and is CONTENDED.
 *	CONTENDED is cleared together with the id, and a notify follows.
 *	The thread of the id writes it, from 0 or a dead owner's, and clears it. Of a gate it may
 *	also become that of the thread that goes on with an operation (rwlock.c), or of no thread:
 *	memwait_owner_abandon().
 *
 * Nothing is written down before a thread locks, and nothing after it has unlocked: to lock is a
 * compare-and-swap from 0 to the thread's id, to unlock is one from the id to 0. A thread that
 * finds the word taken sets CONTENDED and waits with MEMWAIT_OWNED, so the kernel knows the owner's
 * id from the word. It tells one waiter if that owner dies, or if a waiter dies that it has woken.
 *
 *	owner				waiter
 *	(1) exchange the word by 0	(1) set CONTENDED
 *	(2) notify one			(2) sleep, naming the owner
 *					(3) woken, or told: 0 -> id | CONTENDED, or again (1)
 *
 * An owner that dies before (1) is found in the word. If it dies before (2), the oldest waiter is
 * told, because a waiter has named that owner, and finds 0. A waiter that dies after (2) and before
 * (3) is the one that the kernel looks to by then, so the next one is told. A thread that takes the
 * lock in between, without a system call, is named by the waiter that goes back to (1).
 *
 * MEMWAIT_OWNER_DIED may be about the owner, or about a waiter. A wait that names a dead owner ends
 * at once, even if its deadline has passed; one that names a living owner is then TIMED_OUT. So the
 * waiter asks once more with a deadline that has passed. If the owner is dead, it changes the word
 * from that id to its own, and sets INCONSISTENT, which says that the lock was not unlocked. No id
 * is used again, so the word cannot have become the same once more.
 *
 * The owner clears INCONSISTENT when it has put right what is guarded. If it unlocks without having
 * done so, the word becomes INCONSISTENT alone, and all are woken. The thread that unlocks may die
 * before it has woken them, or be unable to; so each thread that finds this wakes all the others.
 *
 * Nothing is looked at after an unlock, as the next owner may free the word. So the owner asks for
 * sleepers before. If somebody sleeps, or that cannot be told, CONTENDED stays when the lock is
 * free, and the next owner has it with CONTENDED set: so it does no harm if the notify fails.
 *
 * A waiter whose deadline has passed looks once more, at the word and at its owner. If it gets the
 * lock so, it wakes the next waiter, which names it.
 *
 * A waiter that was woken or told, finds the lock taken, and gives up at once because its deadline
 * has passed, has not named the owner that it found. Therefore it wakes the next one, which does.
 */
#include "internal.h"

static const struct memwait_deadline passed = { .ns = 0 };

/* A word that is free, and on which somebody sleeps. */
#define OWED	MEMWAIT_OWNER_CONTENDED

/* Of a word that is loaded, or to be stored. */
static inline void check(uint64_t word)
{
	MEMWAIT_INVARIANT(word & MEMWAIT_OWNER_MASK || !word || word == OWED ||
			  word == MEMWAIT_NOT_RECOVERABLE);
}

/* As in lock.c. */
static void wake_or_owe(_Atomic uint64_t *word, uint32_t kind)
{
	/* relaxed, both: the next owner takes it with the lock, and wakes another one */
	uint64_t now = atomic_load_explicit(word, memory_order_relaxed);

	if (memwait_wake(word, 1, kind) >= 0)
		return;
	while (now != MEMWAIT_NOT_RECOVERABLE &&
	       !atomic_compare_exchange_weak_explicit(word, &now, now | MEMWAIT_OWNER_CONTENDED,
						      memory_order_relaxed, memory_order_relaxed))
		check(now);
}

static uint32_t sleep_flags(uint32_t kind)
{
	return MEMWAIT_SIZE_U64 | MEMWAIT_OWNED | (kind & MEMWAIT_PRIVATE);
}

/*
 * Takes the lock with CONTENDED set: 0; or sets CONTENDED beside its owner: EBUSY, and @seen is
 * what to sleep on. Or ENOTRECOVERABLE.
 */
static int lock_or_contend(_Atomic uint64_t *word, uint64_t id, uint64_t *seen)
{
	/* relaxed: only the compare-and-swap counts */
	uint64_t now = atomic_load_explicit(word, memory_order_relaxed);

	for (;;) {
		bool is_free = !now || now == OWED;
		uint64_t next = is_free ? id | MEMWAIT_OWNER_CONTENDED :
					  now | MEMWAIT_OWNER_CONTENDED;

		*seen = next;
		if (now == MEMWAIT_NOT_RECOVERABLE)
			return ENOTRECOVERABLE;
		check(next);
		if (now == next)
			return EBUSY;
		/* acquire: pairs with the release of memwait_owner_release() */
		if (atomic_compare_exchange_weak_explicit(word, &now, next, memory_order_acquire,
							  memory_order_relaxed))
			return is_free ? 0 : EBUSY;
	}
}

/* The owner in @seen is dead. EOWNERDEAD: the lock is the caller's. EBUSY: the word changed. */
static int inherit(_Atomic uint64_t *word, uint64_t id, uint64_t seen)
{
	uint64_t next = id | MEMWAIT_OWNER_CONTENDED | MEMWAIT_OWNER_INCONSISTENT;

	/* acquire: the kernel tells of a death after all that the dead thread did */
	return atomic_compare_exchange_strong_explicit(word, &seen, next, memory_order_acquire,
						       memory_order_relaxed) ? EOWNERDEAD : EBUSY;
}

/*
 * 1: the owner that @seen names is dead. 0: it lives. MEMWAIT_CHANGED: the word is not @seen; or a
 * negative error number.
 */
int memwait_owner_is_dead(const _Atomic uint64_t *word, uint64_t seen, uint32_t kind)
{
	int ret = memwait_sleep(word, seen, sleep_flags(kind), &passed);

	switch (ret) {
	case MEMWAIT_OWNER_DIED:
		return 1;
	case MEMWAIT_TIMED_OUT:
		return 0;
	case MEMWAIT_NOT_EQUAL:
		return MEMWAIT_CHANGED;
	default:
		return ret;
	}
}

/* As lock_by_spinning() in lock.c. */
static bool lock_by_spinning(_Atomic uint64_t *word, uint64_t id, _Atomic uint32_t *spins)
{
	struct memwait_spin spin;
	bool locked = false;

	if (!memwait_spin_begin(&spin, spins))
		return false;
	while (!locked && memwait_spin_again(&spin)) {
		/* relaxed: a hint, memwait_owner_try() decides */
		uint64_t now = atomic_load_explicit(word, memory_order_relaxed);

		if (now & (MEMWAIT_OWNER_CONTENDED | MEMWAIT_OWNER_INCONSISTENT))
			break;
		if (now)
			memwait_relax();
		else
			locked = memwait_owner_try(word, id);
	}
	memwait_spin_end(&spin, spins, locked);
	return locked;
}

/* After the deadline: as memwait_owner_lock(), but does not sleep. */
static int look_once_more(_Atomic uint64_t *word, uint64_t id, uint32_t kind)
{
	uint64_t seen;
	int ret, dead;

	while ((ret = lock_or_contend(word, id, &seen)) == EBUSY) {
		dead = memwait_owner_is_dead(word, seen, kind);
		if (dead <= 0)
			return ETIMEDOUT;
		if (dead == 1 && inherit(word, id, seen) == EOWNERDEAD)
			return EOWNERDEAD;
	}
	if (!ret)
		wake_or_owe(word, kind);
	return ret;
}

/*
 * Returns 0; EOWNERDEAD: it is locked, but its last owner died with it; ENOTRECOVERABLE, ETIMEDOUT;
 * or an error of the device. A caller that has the lock already waits for ever.
 */
int memwait_owner_lock(_Atomic uint64_t *word, _Atomic uint32_t *spins, uint32_t kind,
		       const struct memwait_deadline *deadline)
{
	bool woken = false;
	uint64_t id, seen;
	int ret;

	ret = memwait_owner(&id);
	if (ret < 0)
		return -ret;
	if (memwait_owner_try(word, id) || lock_by_spinning(word, id, spins))
		return 0;
	while ((ret = lock_or_contend(word, id, &seen)) == EBUSY) {
		ret = memwait_sleep(word, seen, sleep_flags(kind), deadline);
		woken = woken || memwait_was_woken(ret);
		/* A child that a signal handler has forked needs an id of its own. */
		if (ret == -EINTR && memwait_owner(&id) < 0)
			ret = -EAGAIN;
		if (ret == MEMWAIT_OWNER_DIED && memwait_owner_is_dead(word, seen, kind) == 1 &&
		    inherit(word, id, seen) == EOWNERDEAD)
			return EOWNERDEAD;
		if (ret == MEMWAIT_TIMED_OUT || (ret < 0 && ret != -EINTR)) {
			ret = ret < 0 ? -ret : look_once_more(word, id, kind);
			if (woken && !memwait_has_locked(ret))
				wake_or_owe(word, kind);
			break;
		}
	}
	if (ret == ENOTRECOVERABLE)
		memwait_wake_all(word, kind);
	return ret;
}

/* EBUSY: a living thread has it. */
int memwait_owner_try_or_inherit(_Atomic uint64_t *word, uint32_t kind)
{
	uint64_t id, seen;
	int ret;

	ret = memwait_owner(&id);
	if (ret < 0)
		return -ret;
	do {
		if (memwait_owner_try(word, id))
			return 0;
		/* relaxed: the kernel compares it, and inherit() */
		seen = atomic_load_explicit(word, memory_order_relaxed);
		if (seen == MEMWAIT_NOT_RECOVERABLE)
			return ENOTRECOVERABLE;
		if (seen == OWED && !lock_or_contend(word, id, &seen))
			return 0;
		ret = seen ? memwait_owner_is_dead(word, seen, kind) : MEMWAIT_CHANGED;
		if (ret == 1 && inherit(word, id, seen) == EOWNERDEAD)
			return EOWNERDEAD;
	} while (ret > 0);
	return ret ? -ret : EBUSY;
}

/* The caller has it. Others may have set CONTENDED. */
int memwait_owner_release(_Atomic uint64_t *word, uint32_t kind)
{
	uint64_t id, was;
	int ret;

	/* A thread that can have no id has locked nothing. */
	if (memwait_owner(&id) < 0)
		return EPERM;
	was = id;
	/* release: what was done under the lock is there for the next owner */
	if (atomic_compare_exchange_strong_explicit(word, &was, 0, memory_order_release,
						    memory_order_relaxed))
		return 0;
	if ((was & MEMWAIT_OWNER_MASK) != id)
		return EPERM;
	if (was & MEMWAIT_OWNER_INCONSISTENT) {
		/* relaxed: nobody looks again at what it guarded */
		atomic_store_explicit(word, MEMWAIT_NOT_RECOVERABLE, memory_order_relaxed);
		ret = memwait_wake_all(word, kind);
	} else {
		ret = memwait_sleepers(word, kind);
		if (ret < 0 && kind & MEMWAIT_OR_KEEP)
			return -ret;
		/* release: as above */
		atomic_store_explicit(word, ret ? OWED : 0, memory_order_release);
		if (ret >= 0)
			ret = memwait_wake(word, 1, kind);
		/* With OR_KEEP the result says whether it is kept: it is not. */
		if (kind & MEMWAIT_OR_KEEP)
			return 0;
	}
	return ret < 0 ? -ret : 0;
}

/*
 * Gives the lock away as if the caller had died with it: the next owner is to put right what is
 * guarded.
 */
int memwait_owner_abandon(_Atomic uint64_t *word, uint32_t kind)
{
	int ret;

	/* release: as memwait_owner_release(). No thread has, or will have, this id. */
	atomic_store_explicit(word, MEMWAIT_OWNER_MASK | MEMWAIT_OWNER_INCONSISTENT,
			      memory_order_release);
	ret = memwait_wake(word, 1, kind);
	return ret < 0 ? -ret : 0;
}

/* What the lock guards is right again. */
void memwait_owner_make_consistent(_Atomic uint64_t *word)
{
	/* relaxed: the caller has the lock, and the next one acquires it */
	uint64_t was = atomic_fetch_and_explicit(word, ~MEMWAIT_OWNER_INCONSISTENT,
						 memory_order_relaxed);

	MEMWAIT_INVARIANT(was & MEMWAIT_OWNER_INCONSISTENT && was & MEMWAIT_OWNER_MASK);
}

static int step(struct memwait_op *op, _Atomic uint64_t *word, uint32_t kind, int outcome)
{
	uint64_t id, seen;
	int ret;

	ret = memwait_owner(&id);
	if (ret < 0)
		goto give_up;
	if (outcome == MEMWAIT_OP_BEGIN && memwait_owner_try(word, id))
		return 0;
	if (outcome == MEMWAIT_TIMED_OUT) {
		ret = look_once_more(word, id, kind);
		goto out;
	}
	while ((ret = lock_or_contend(word, id, &seen)) == EBUSY) {
		ret = memwait_op_arm(op, word, seen, sleep_flags(kind));
		if (ret == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
		if (ret == MEMWAIT_TIMED_OUT || ret < 0)
			goto give_up;
		/* It was not queued: here the answer can be about the owner only. */
		if (ret == MEMWAIT_OWNER_DIED && inherit(word, id, seen) == EOWNERDEAD)
			return EOWNERDEAD;
	}
out:
	if (ret == ENOTRECOVERABLE)
		memwait_wake_all(word, kind);
	return ret;

give_up:
	memwait_owner_undo(word, kind, outcome);
	return ret < 0 ? -ret : ETIMEDOUT;
}

/*
 * As memwait_owner_lock(), for an operation: or MEMWAIT_OP_WAITS. The kernel has woken the loop,
 * and tells of the loop's death. The owner is the calling thread, which may die before. So the next
 * waiter is woken, and names the thread.
 */
int memwait_owner_step(struct memwait_op *op, _Atomic uint64_t *word, uint32_t kind, int outcome)
{
	int ret = step(op, word, kind, outcome);

	if (memwait_has_locked(ret) && memwait_was_woken(outcome))
		wake_or_owe(word, kind);
	return ret;
}

/* A wake-up that is not used goes to the next waiter, which looks whether the owner is dead. */
void memwait_owner_undo(_Atomic uint64_t *word, uint32_t kind, int outcome)
{
	if (memwait_was_woken(outcome))
		wake_or_owe(word, kind);
}
