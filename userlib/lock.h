/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Lock words: see lock.c. Fast paths are inline. @kind: only MEMWAIT_MUTEX_FAIR and MEMWAIT_PRIVATE
 * matter; all users of a word pass the same kind.
 */
#ifndef MEMWAIT_LOCK_H
#define MEMWAIT_LOCK_H

#include "loop.h"

/*
 * Spins before sleeping: at most twice as often as was recently needed, and for at most about the
 * time of a system call. @spins of each lock records how often it recently had to spin. The limit
 * shrinks quickly when spinning is futile.
 */
struct memwait_spin {
	uint32_t lately;
	uint32_t most;
	uint32_t times;
};

static inline void memwait_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline bool memwait_spin_begin(struct memwait_spin *spin, _Atomic uint32_t *spins)
{
	const uint32_t most = 100;

	if (!memwait_may_spin())
		return false;
	/* relaxed, here and below: only an estimate */
	spin->lately = atomic_load_explicit(spins, memory_order_relaxed);
	spin->most = 2 * spin->lately + 10 < most ? 2 * spin->lately + 10 : most;
	spin->times = 0;
	return true;
}

static inline bool memwait_spin_again(struct memwait_spin *spin)
{
	return spin->times++ < spin->most;
}

static inline void memwait_spin_end(const struct memwait_spin *spin, _Atomic uint32_t *spins,
				    bool locked)
{
	uint32_t next = locked ? (7 * spin->lately + spin->times) / 8 : spin->lately / 2;

	atomic_store_explicit(spins, next, memory_order_relaxed);
}

/*
 * All bits of a lock word are in its second byte in memory: waiters of a fair lock sleep on that
 * byte, and no other object has waiters there.
 */
#define MEMWAIT_LOCK_BYTE	1
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define MEMWAIT_LOCK_PLACE	8
#else
#define MEMWAIT_LOCK_PLACE	16
#endif
#define MEMWAIT_LOCK_BIT(n)	(1U << (MEMWAIT_LOCK_PLACE + (n)))

#define MEMWAIT_LOCKED		MEMWAIT_LOCK_BIT(0)
#define MEMWAIT_CONTENDED	MEMWAIT_LOCK_BIT(1)
#define MEMWAIT_LOCK_HANDED	MEMWAIT_LOCK_BIT(2)	/* if fair */

/* Whether a fair word is between two owners. */
static inline bool memwait_lock_is_handed(uint32_t word, uint32_t kind)
{
	return kind & MEMWAIT_MUTEX_FAIR && word & MEMWAIT_LOCK_HANDED;
}

static inline bool memwait_lock_is_taken(uint32_t word, uint32_t kind)
{
	return word & MEMWAIT_LOCKED || memwait_lock_is_handed(word, kind);
}

/* Added to the kind for a release, here and in owner.c: keep the lock if the wake-up fails. */
#define MEMWAIT_OR_KEEP		0x8000U

int memwait_lock(_Atomic uint32_t *word, _Atomic uint32_t *spins, uint32_t kind,
		 const struct memwait_deadline *deadline);
bool memwait_lock_release_silently(_Atomic uint32_t *word);
bool memwait_lock_try_nonzero(_Atomic uint32_t *word, uint32_t kind);
int memwait_lock_release_contended(_Atomic uint32_t *word, uint32_t kind, uint32_t was);
int memwait_lock_step(struct memwait_op *op, _Atomic uint32_t *word, uint32_t kind, int outcome);
void memwait_lock_undo(const struct memwait_turn *turn, _Atomic uint32_t *word, uint32_t kind,
		       int outcome);

static inline bool memwait_lock_try(_Atomic uint32_t *word)
{
	uint32_t unlocked = 0;

	/* acquire: pairs with the release in memwait_lock_release() */
	return atomic_compare_exchange_strong_explicit(word, &unlocked, MEMWAIT_LOCKED,
						       memory_order_acquire, memory_order_relaxed);
}

/* Any kind; succeeds only if the word is exactly LOCKED. @was: the previous value. */
static inline bool memwait_lock_release_uncontended(_Atomic uint32_t *word, uint32_t *was)
{
	*was = MEMWAIT_LOCKED;
	/* release: the next owner sees what was done under the lock */
	return atomic_compare_exchange_strong_explicit(word, was, 0, memory_order_release,
						       memory_order_relaxed);
}

/* Returns EPERM if the word is not locked. */
static inline int memwait_lock_release(_Atomic uint32_t *word, uint32_t kind)
{
	uint32_t was;

	if (memwait_lock_release_uncontended(word, &was))
		return 0;
	return memwait_lock_release_contended(word, kind, was);
}

#endif /* MEMWAIT_LOCK_H */
