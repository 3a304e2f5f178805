/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Users of objects: see users.c. */
#ifndef MEMWAIT_USERS_H
#define MEMWAIT_USERS_H

#include "gate.h"

/* @flags: the object's. For the other fields see the top of users.c. */
struct memwait_users {
	_Atomic uint32_t count;
	_Atomic uint32_t operations;
	uint32_t flags;
};

void memwait_users_enter(struct memwait_users *users, const struct memwait_op *op);
void memwait_users_leave(struct memwait_users *users, const struct memwait_op *op);
int memwait_users_drain(struct memwait_users *users, const volatile void *word);
int memwait_gate_look_again(union memwait_gate *gate, _Atomic uint32_t *spins, uint32_t kind,
			    int *looks);

/* The generation in the state of a barrier or a wait group. */
static inline uint32_t memwait_generation(uint64_t state)
{
	return (uint32_t)(state >> 32);
}

/*
 * Next step of a round: begins (MEMWAIT_OP_BEGIN) or continues after a wait. @outcome may be a
 * negative error number. Returns the result, or MEMWAIT_OP_WAITS to sleep on @round.
 */
typedef int memwait_look_t(struct memwait_users *users, struct memwait_round *round, int outcome);

int memwait_users_round(struct memwait_users *users, memwait_look_t *look,
			struct memwait_round *round, struct memwait_op *op,
			const struct memwait_deadline *deadline, int outcome);

#endif /* MEMWAIT_USERS_H */
