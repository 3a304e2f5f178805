// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Owner words: 64 bits, for locks whose owner may die. The lower 62 bits are the owner's thread id,
 * or 0.
 *
 *	0			unlocked
 *	id			locked; unlock need not notify
 *	id | CONTENDED		locked; a waiter may sleep on it, or be about to
 *	CONTENDED		unlocked; a waiter may sleep on it
 *	id | ... | INCONSISTENT	locked; a previous owner died with it
 *	INCONSISTENT		not recoverable, forever
 *
 * Invariants:
 *	If INCONSISTENT is set without an id, no other bit is set, and the word never changes again.
 *	A waiter goes to sleep only while the word has an id and CONTENDED.
 *	Only the owner clears CONTENDED, and then asks the kernel for sleepers. If there may be
 *	sleepers, it sets CONTENDED again as it clears the id, and then notifies.
 *	Only the thread with an id stores that id (over 0 or over a dead owner's id) and clears it.
 *	The id of a gate may also be replaced by that of the thread that continues an operation
 *	(rwlock.c), or by an id that no thread has: memwait_owner_abandon().
 *
 * Lock is a compare-and-swap from 0 to the thread's id, unlock a compare-and-swap from the id to 0;
 * nothing else is recorded. A thread that finds the word taken waits with MEMWAIT_OWNED, so the
 * kernel reads the owner's id from the word. If this owner or a woken waiter dies, one waiter is
 * notified of the death.
 *
 *	owner				waiter
 *	(1) store 0 or CONTENDED	(1) set CONTENDED
 *	(2) notify one			(2) sleep, naming the owner
 *					(3) woken, or notified: 0 -> id | CONTENDED, or back to (1)
 *
 * If the owner dies before its (1), the word still names it. If the owner dies before its (2), the
 * oldest waiter is notified of the death, because a waiter has named the owner; the notified waiter
 * finds no id in the word. If a woken waiter dies before its (3), the kernel is already watching
 * that waiter, and notifies the next waiter. A thread that takes the lock in between, without a
 * system call, is named by the waiter that goes back to (1).
 *
 * MEMWAIT_OWNER_DIED may report the death of the owner or of a waiter. A second wait, with an
 * expired deadline, shows which (memwait_owner_is_dead()): that wait returns MEMWAIT_OWNER_DIED if
 * it names a dead owner, and MEMWAIT_TIMED_OUT if it names a living owner. If the owner is dead,
 * the waiter swaps that id for its own and sets INCONSISTENT, because the lock was not unlocked.
 * Ids are random numbers of 62 bits, so the swap does not suffer from the ABA problem.
 *
 * The owner clears INCONSISTENT once it has repaired the protected data. If it unlocks before that,
 * the word becomes exactly INCONSISTENT, and all waiters are woken. The unlocking thread may die
 * before it has woken all waiters, or fail to wake them, so each thread that finds this state wakes
 * all others.
 *
 * The next owner may free the word after the unlock, so an unlock whose notify fails cannot set
 * CONTENDED afterwards. Therefore the owner first clears CONTENDED, and then asks the kernel for
 * sleepers. If there are no sleepers, each waiter must set CONTENDED before it sleeps: if CONTENDED
 * is still clear, the unlock needs no notify. Otherwise, or if the kernel cannot tell, the unlock
 * stores CONTENDED, which the next owner inherits. A failed notify is therefore harmful only if
 * that owner also dies, or if there is no next owner: readers pass the open gate of a read-write
 * lock. Such an unlock (MEMWAIT_OR_KEEP) first notifies zero waiters, which fails if the notify
 * would. An owner that dies in between leaves its id in the word, and the kernel notifies a sleeper
 * of the death.
 *
 * After its deadline, a waiter checks the word and its owner once more. The kernel need not watch
 * this waiter: it watches the waiter that was woken last, and that waiter names the owner that it
 * finds. A waiter that gives up after it was woken, or notified of a death, has not named the owner
 * that it found, so it wakes the next waiter, which then names the owner.
 */
#include "owner.h"

static const struct memwait_deadline passed = { .ns = 0 };

/* @word: loaded, or to be stored. */
static inline void owner_check(uint64_t word)
{
	MEMWAIT_INVARIANT(word & MEMWAIT_OWNER_MASK || !word || word == MEMWAIT_OWNER_CONTENDED ||
			  word == MEMWAIT_NOT_RECOVERABLE);
}

/* Like lock_wake_or_contend(). */
static void owner_wake_or_contend(_Atomic uint64_t *word, uint32_t kind)
{
	/* relaxed, both: the next owner gets the bit with the lock, and wakes another waiter */
	uint64_t now = atomic_load_explicit(word, memory_order_relaxed);

	if (memwait_wake(word, 1, kind) >= 0)
		return;
	while (now != MEMWAIT_NOT_RECOVERABLE &&
	       !atomic_compare_exchange_weak_explicit(word, &now, now | MEMWAIT_OWNER_CONTENDED,
						      memory_order_relaxed, memory_order_relaxed))
		owner_check(now);
}

/* The word is MEMWAIT_NOT_RECOVERABLE. */
static int not_recoverable(const _Atomic uint64_t *word)
{
	/*
	 * acquire: pairs with memwait_owner_release(). The caller must see the users of a condition
	 * variable that have unlocked this lock. The word never changes again.
	 */
	(void)atomic_load_explicit(word, memory_order_acquire);
	return ENOTRECOVERABLE;
}

static uint32_t owner_sleep_flags(uint32_t kind)
{
	return MEMWAIT_SIZE_U64 | MEMWAIT_OWNED | (kind & MEMWAIT_PRIVATE);
}

/*
 * Takes the lock with CONTENDED set, and returns 0; or sets CONTENDED in addition to the owner's
 * id, and returns EBUSY: the caller sleeps while the word is @seen. Or returns ENOTRECOVERABLE.
 */
static int owner_lock_or_contend(_Atomic uint64_t *word, uint64_t id, uint64_t *seen)
{
	/* relaxed: the compare-and-swap decides */
	uint64_t now = atomic_load_explicit(word, memory_order_relaxed);

	for (;;) {
		bool is_free = !now || now == MEMWAIT_OWNER_CONTENDED;
		uint64_t next = is_free ? id | MEMWAIT_OWNER_CONTENDED :
					  now | MEMWAIT_OWNER_CONTENDED;

		*seen = next;
		if (now == MEMWAIT_NOT_RECOVERABLE)
			return not_recoverable(word);
		owner_check(next);
		if (now == next)
			return EBUSY;
		/* acquire: pairs with the release of memwait_owner_release() */
		if (atomic_compare_exchange_weak_explicit(word, &now, next, memory_order_acquire,
							  memory_order_relaxed))
			return is_free ? 0 : EBUSY;
	}
}

/* @seen names a dead owner. EOWNERDEAD: the caller holds the lock. EBUSY: the word changed. */
static int inherit(_Atomic uint64_t *word, uint64_t id, uint64_t seen)
{
	uint64_t next = id | MEMWAIT_OWNER_CONTENDED | MEMWAIT_OWNER_INCONSISTENT;

	/* acquire: the kernel reports a death after everything that the dead thread did */
	return atomic_compare_exchange_strong_explicit(word, &seen, next, memory_order_acquire,
						       memory_order_relaxed) ? EOWNERDEAD : EBUSY;
}

/*
 * Returns 1: the owner in @seen is dead; 0: the owner lives; MEMWAIT_CHANGED: the word is not
 * @seen; or a negative error number.
 */
int memwait_owner_is_dead(const _Atomic uint64_t *word, uint64_t seen, uint32_t kind)
{
	uint64_t id;
	/* Without an id the wait would not be MEMWAIT_OWNED, and a dead owner would look alive. */
	int ret = memwait_owner(&id);

	if (ret)
		return ret;
	ret = memwait_sleep(word, seen, owner_sleep_flags(kind), &passed);
	switch (ret) {
	case MEMWAIT_OWNER_DIED:
		return 1;
	case MEMWAIT_TIMED_OUT:
		return 0;
	case MEMWAIT_NOT_EQUAL:
	case -EINTR:	/* a signal handler has forked, and this is the child */
		return MEMWAIT_CHANGED;
	default:
		return ret;
	}
}

/* Like lock_by_spinning() in lock.c. */
static bool owner_lock_by_spinning(_Atomic uint64_t *word, uint64_t id, _Atomic uint32_t *spins)
{
	struct memwait_spin spin;
	bool locked = false;

	if (!memwait_spin_begin(&spin, spins))
		return false;
	while (!locked && memwait_spin_again(&spin)) {
		/* relaxed: a hint; memwait_owner_try() decides */
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

/*
 * Waits for the lock, as a thread (@op is NULL) or an operation; @outcome: of the last wait.
 * Returns the result of memwait_owner_lock(), or MEMWAIT_OP_WAITS. For an operation, the kernel has
 * woken the loop, and will report the death of the loop. The owner, however, is the calling thread,
 * which may die before the loop. Therefore the next waiter is woken, and names the thread.
 */
static int owner_lock_after(struct memwait_op *op, _Atomic uint64_t *word, uint32_t kind,
			    const struct memwait_deadline *deadline, int outcome)
{
	bool woken = false;
	uint64_t id, seen = 0;
	int ret;

	for (;;) {
		woken = woken || memwait_was_woken(outcome);
		/*
		 * In a child that a signal handler has forked, the id differs from the earlier id.
		 */
		ret = -memwait_owner(&id);
		if (!ret && memwait_has_failed(outcome))
			ret = -outcome;
		if (!ret)
			ret = outcome == MEMWAIT_TIMED_OUT ?
			      memwait_owner_try_or_inherit(word, kind) :
			      owner_lock_or_contend(word, id, &seen);
		if (ret == EBUSY && outcome == MEMWAIT_TIMED_OUT)
			ret = ETIMEDOUT;
		if (ret != EBUSY)
			break;
		outcome = memwait_await(op, word, seen, owner_sleep_flags(kind), deadline);
		if (outcome == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
		/*
		 * If the wait of an operation was not queued, this outcome means the owner's death.
		 */
		if (outcome == MEMWAIT_OWNER_DIED &&
		    (op || memwait_owner_is_dead(word, seen, kind) == 1) &&
		    inherit(word, id, seen) == EOWNERDEAD) {
			ret = EOWNERDEAD;
			break;
		}
	}
	if (ret == ENOTRECOVERABLE)
		memwait_wake(word, MEMWAIT_ALL, kind);
	else if (woken && (op || !memwait_has_locked(ret)))
		owner_wake_or_contend(word, kind);
	return ret;
}

/*
 * Returns 0; EOWNERDEAD: locked, but the last owner died while it held the lock; ENOTRECOVERABLE;
 * ETIMEDOUT; or an error from the device. A caller that already holds the lock waits until
 * @deadline.
 */
int memwait_owner_lock(_Atomic uint64_t *word, _Atomic uint32_t *spins, uint32_t kind,
		       const struct memwait_deadline *deadline)
{
	uint64_t id;
	int ret;

	ret = memwait_owner(&id);
	if (ret < 0)
		return -ret;
	if (memwait_owner_try(word, id) || owner_lock_by_spinning(word, id, spins))
		return 0;
	return owner_lock_after(NULL, word, kind, deadline, MEMWAIT_OP_BEGIN);
}

/* Like memwait_owner_lock(), but never waits. EBUSY: a living thread holds the lock. */
int memwait_owner_try_or_inherit(_Atomic uint64_t *word, uint32_t kind)
{
	uint64_t id, seen;
	int ret;

	do {
		ret = memwait_owner(&id);
		if (ret < 0)
			break;
		if (memwait_owner_try(word, id))
			return 0;
		/* relaxed: the kernel and inherit() compare it */
		seen = atomic_load_explicit(word, memory_order_relaxed);
		if (seen == MEMWAIT_NOT_RECOVERABLE)
			return not_recoverable(word);
		if (seen == MEMWAIT_OWNER_CONTENDED && !owner_lock_or_contend(word, id, &seen))
			return 0;
		ret = seen ? memwait_owner_is_dead(word, seen, kind) : MEMWAIT_CHANGED;
		if (ret == 1 && inherit(word, id, seen) == EOWNERDEAD)
			return EOWNERDEAD;
	} while (ret > 0);
	return ret ? -ret : EBUSY;
}

/* Called by the owner @id, for a word that may be CONTENDED. */
static int release_contended(_Atomic uint64_t *word, uint32_t kind, uint64_t id)
{
	int ret;

	/* relaxed: the kernel orders it before the question, and a release follows */
	atomic_fetch_and_explicit(word, ~MEMWAIT_OWNER_CONTENDED, memory_order_relaxed);
	ret = memwait_sleepers(word, kind);
	if (!ret && memwait_owner_release_uncontended(word, id))
		return 0;
	/* The caller can set OWED only while it holds the lock. */
	if (ret >= 0 && kind & MEMWAIT_OR_KEEP)
		ret = memwait_wake(word, 0, kind);
	if (ret < 0 && kind & MEMWAIT_OR_KEEP) {
		/* relaxed: the caller still holds the lock */
		atomic_fetch_or_explicit(word, MEMWAIT_OWNER_CONTENDED, memory_order_relaxed);
		return -ret;
	}
	/* release: as memwait_owner_release_uncontended() */
	atomic_store_explicit(word, MEMWAIT_OWNER_CONTENDED, memory_order_release);
	if (ret >= 0)
		ret = memwait_wake(word, 1, kind);
	/*
	 * The lock is released. With MEMWAIT_OR_KEEP an error would mean that the caller still
	 * holds the lock, so return 0.
	 */
	return ret < 0 && !(kind & MEMWAIT_OR_KEEP) ? -ret : 0;
}

/* EPERM: the caller does not hold the lock. Other threads may have set CONTENDED. */
int memwait_owner_release(_Atomic uint64_t *word, uint32_t kind)
{
	uint64_t id, was;
	int ret;

	/* A thread that cannot have an id cannot have locked anything. */
	if (memwait_owner(&id) < 0)
		return EPERM;
	was = id;
	/* release: publishes the critical section to the next owner */
	if (atomic_compare_exchange_strong_explicit(word, &was, 0, memory_order_release,
						    memory_order_relaxed))
		return 0;
	if ((was & MEMWAIT_OWNER_MASK) != id)
		return EPERM;
	if (!(was & MEMWAIT_OWNER_INCONSISTENT))
		return release_contended(word, kind, id);
	/* release: pairs with not_recoverable() */
	atomic_store_explicit(word, MEMWAIT_NOT_RECOVERABLE, memory_order_release);
	ret = memwait_wake(word, MEMWAIT_ALL, kind);
	return ret < 0 ? -ret : 0;
}

/* Releases the lock as if the caller had died: the next owner must repair the protected data. */
int memwait_owner_abandon(_Atomic uint64_t *word, uint32_t kind)
{
	int ret;

	/* release: as in memwait_owner_release(). No thread ever has this id. */
	atomic_store_explicit(word, MEMWAIT_OWNER_MASK | MEMWAIT_OWNER_INCONSISTENT,
			      memory_order_release);
	ret = memwait_wake(word, 1, kind);
	return ret < 0 ? -ret : 0;
}

void memwait_owner_make_consistent(_Atomic uint64_t *word)
{
	/* relaxed: the caller holds the lock, and the next owner acquires it */
	uint64_t was = atomic_fetch_and_explicit(word, ~MEMWAIT_OWNER_INCONSISTENT,
						 memory_order_relaxed);

	MEMWAIT_INVARIANT(was & MEMWAIT_OWNER_INCONSISTENT && was & MEMWAIT_OWNER_MASK);
}

/*
 * Returns 0 if the caller owns the lock and the data has not been repaired. EINVAL: no owner has
 * died, or the lock is not recoverable. EPERM: the caller does not own the lock.
 */
static int check_inconsistent(const _Atomic uint64_t *word)
{
	/* relaxed: a caller that holds the lock has stored the id */
	uint64_t id, now = atomic_load_explicit(word, memory_order_relaxed);

	if (!(now & MEMWAIT_OWNER_INCONSISTENT) || now == MEMWAIT_NOT_RECOVERABLE)
		return EINVAL;
	return memwait_owner(&id) < 0 || (now & MEMWAIT_OWNER_MASK) != id ? EPERM : 0;
}

/* memwait_owner_make_consistent() for a program. Errors are those of check_inconsistent(). */
int memwait_owner_consistent(_Atomic uint64_t *word)
{
	int ret = check_inconsistent(word);

	if (!ret)
		memwait_owner_make_consistent(word);
	return ret;
}

/*
 * Undoes an EOWNERDEAD: the next owner gets it instead of the caller. EINVAL: the data has been
 * repaired, and an unlock is right. EPERM: the caller does not own the lock.
 */
int memwait_owner_return_death(_Atomic uint64_t *word, uint32_t kind)
{
	int ret = check_inconsistent(word);

	return ret ? ret : memwait_owner_abandon(word, kind);
}

/* memwait_owner_lock() for an operation; may return MEMWAIT_OP_WAITS. */
int memwait_owner_step(struct memwait_op *op, _Atomic uint64_t *word, uint32_t kind, int outcome)
{
	uint64_t id;

	if (outcome == MEMWAIT_OP_BEGIN && memwait_owner(&id) >= 0 && memwait_owner_try(word, id))
		return 0;
	return owner_lock_after(op, word, kind, NULL, outcome);
}

/* Passes an unused wake-up to the next waiter. */
void memwait_owner_undo(_Atomic uint64_t *word, uint32_t kind, int outcome)
{
	if (memwait_was_woken(outcome))
		owner_wake_or_contend(word, kind);
}
