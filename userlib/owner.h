/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Owner words: see owner.c. @kind: only MEMWAIT_PRIVATE matters. */
#ifndef MEMWAIT_OWNER_H
#define MEMWAIT_OWNER_H

#include "lock.h"

#define MEMWAIT_OWNER_CONTENDED		(1ULL << 62)
#define MEMWAIT_OWNER_INCONSISTENT	(1ULL << 63)
#define MEMWAIT_NOT_RECOVERABLE		MEMWAIT_OWNER_INCONSISTENT

int memwait_owner_lock(_Atomic uint64_t *word, _Atomic uint32_t *spins, uint32_t kind,
		       const struct memwait_deadline *deadline);
int memwait_owner_try_or_inherit(_Atomic uint64_t *word, uint32_t kind);
int memwait_owner_release(_Atomic uint64_t *word, uint32_t kind);
int memwait_owner_abandon(_Atomic uint64_t *word, uint32_t kind);
int memwait_owner_return_death(_Atomic uint64_t *word, uint32_t kind);
void memwait_owner_make_consistent(_Atomic uint64_t *word);
int memwait_owner_consistent(_Atomic uint64_t *word);
int memwait_owner_is_dead(const _Atomic uint64_t *word, uint64_t seen, uint32_t kind);
int memwait_owner_step(struct memwait_op *op, _Atomic uint64_t *word, uint32_t kind, int outcome);
void memwait_owner_undo(_Atomic uint64_t *word, uint32_t kind, int outcome);

static inline bool memwait_owner_try(_Atomic uint64_t *word, uint64_t id)
{
	uint64_t unlocked = 0;

	/* acquire: pairs with the release in memwait_owner_release() */
	return atomic_compare_exchange_strong_explicit(word, &unlocked, id, memory_order_acquire,
						       memory_order_relaxed);
}

/* The common case of memwait_owner_release(). @id: the caller's, if it has one. */
static inline bool memwait_owner_release_uncontended(_Atomic uint64_t *word, uint64_t id)
{
	/* release: publishes the critical section to the next owner */
	return id && atomic_compare_exchange_strong_explicit(word, &id, 0, memory_order_release,
							     memory_order_relaxed);
}

#endif /* MEMWAIT_OWNER_H */
