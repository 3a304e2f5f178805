/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's side of the simulation: /dev/memwait, threads and their deaths. */
#ifndef DEVICE_H
#define DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim.h"

/* What clock_gettime() says, all the time. */
#define DEVICE_NOW	1000

void device_set_up(unsigned int nr_threads);

/* Runs a thread's function, until it returns or the thread dies. */
void device_thread(void (*function)(unsigned int thread), unsigned int thread);

/* In set_up: the thread dies at a step of its own, any of so many, or not at all. */
void device_mortal(unsigned int thread, unsigned int steps);
bool device_is_dead(unsigned int thread);
unsigned int device_sleepers(void);
unsigned int device_sleepers_on(const void *word);

/* In set_up: all calls fail. */
void device_is_missing(void);

/* As closefrom(); and how many there are. The library may have opened others since. */
void device_close_all(void);
unsigned int device_descriptors(void);

/* Whether the calls of the calling thread fail from now on, as without a descriptor. */
void device_fails(bool fails);

/* The same of those that wake somebody. */
void device_cannot_wake(bool cannot);

/*
 * Asked when all threads that live sleep: may it be so, because of the dead? Then all end.
 * Otherwise it is a failure.
 */
void device_may_stop(bool (*may_stop)(void));

#endif /* DEVICE_H */
