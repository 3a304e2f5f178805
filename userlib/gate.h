/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Gates: words of a lock, with or without an owner. */
#ifndef MEMWAIT_GATE_H
#define MEMWAIT_GATE_H

#include "owner.h"

/*
 * A gate is a lock word, or an owner word if the kind has MEMWAIT_MUTEX_ROBUST. Results are those
 * of memwait_owner_lock().
 */
union memwait_gate {
	_Atomic uint32_t word;
	_Atomic uint64_t owned;
};

static inline bool memwait_gate_is_owned(uint32_t kind)
{
	return kind & MEMWAIT_MUTEX_ROBUST;
}

static inline int memwait_gate_lock(union memwait_gate *gate, _Atomic uint32_t *spins,
				    uint32_t kind, const struct memwait_deadline *deadline)
{
	if (memwait_gate_is_owned(kind))
		return memwait_owner_lock(&gate->owned, spins, kind, deadline);
	return memwait_lock(&gate->word, spins, kind, deadline);
}

/* Like memwait_gate_lock(), but returns EBUSY instead of waiting. */
static inline int memwait_gate_try(union memwait_gate *gate, uint32_t kind)
{
	if (memwait_gate_is_owned(kind))
		return memwait_owner_try_or_inherit(&gate->owned, kind);
	return memwait_lock_try(&gate->word) ||
	       memwait_lock_try_nonzero(&gate->word, kind) ? 0 : EBUSY;
}

static inline int memwait_gate_release(union memwait_gate *gate, uint32_t kind)
{
	return memwait_gate_is_owned(kind) ? memwait_owner_release(&gate->owned, kind) :
					     memwait_lock_release(&gate->word, kind);
}

static inline int memwait_gate_step(struct memwait_op *op, union memwait_gate *gate, uint32_t kind,
				    int outcome)
{
	return memwait_gate_is_owned(kind) ?
	       memwait_owner_step(op, &gate->owned, kind, outcome) :
	       memwait_lock_step(op, &gate->word, kind, outcome);
}

/* @turn: see memwait_lock_undo(). */
static inline void memwait_gate_undo(const struct memwait_turn *turn, union memwait_gate *gate,
				     uint32_t kind, int outcome)
{
	if (memwait_gate_is_owned(kind))
		memwait_owner_undo(&gate->owned, kind, outcome);
	else
		memwait_lock_undo(turn, &gate->word, kind, outcome);
}

/*
 * For destroy. Returns 0 if the gate is free, not recoverable, or its owner has died; EBUSY;
 * MEMWAIT_CHANGED: look again; or a negative error number.
 */
static inline int memwait_gate_look(union memwait_gate *gate, uint32_t kind)
{
	uint64_t now;
	int dead;

	/* acquire, both: the caller may free the protected data */
	if (!memwait_gate_is_owned(kind))
		return memwait_lock_is_taken(atomic_load_explicit(&gate->word,
								  memory_order_acquire),
					     kind) ? EBUSY : 0;
	now = atomic_load_explicit(&gate->owned, memory_order_acquire);
	if (!now || now == MEMWAIT_OWNER_CONTENDED || now == MEMWAIT_NOT_RECOVERABLE)
		return 0;
	dead = memwait_owner_is_dead(&gate->owned, now, kind);
	if (dead == 1)
		return 0;
	return dead ? dead : EBUSY;
}

#endif /* MEMWAIT_GATE_H */
