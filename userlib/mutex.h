/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Mutexes, for condition variables: see mutex.c. */
#ifndef MEMWAIT_MUTEX_H
#define MEMWAIT_MUTEX_H

#include "loop.h"

void memwait_mutex_release_all(memwait_mutex_t *public_mutex, uint32_t flags, uint32_t *count,
			       const volatile void **wake);
int memwait_mutex_take_again(memwait_mutex_t *public_mutex, uint32_t count);
int memwait_mutex_step_again(memwait_mutex_t *public_mutex, uint32_t count, struct memwait_op *op,
			     int outcome);
int memwait_mutex_give_back(memwait_mutex_t *public_mutex, int result);
void memwait_mutex_undo_again(memwait_mutex_t *public_mutex, const struct memwait_turn *turn,
			      int outcome);

#endif /* MEMWAIT_MUTEX_H */
