/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's part of the simulation: /dev/memwait, threads and their deaths. */
#ifndef DEVICE_H
#define DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim.h"

/* The constant time that clock_gettime() returns. */
#define DEVICE_NOW	1000

void device_set_up(unsigned int nr_threads);

/* Runs a thread's function until it returns or the thread dies. */
void device_thread(void (*function)(unsigned int thread), unsigned int thread);

/* Called in set_up. The thread may die at any of its first @steps steps. */
void device_mortal(unsigned int thread, unsigned int steps);
bool device_is_dead(unsigned int thread);
unsigned int device_sleepers(void);
unsigned int device_sleepers_on(const void *word);

/* Called in set_up. All calls of the device fail. */
void device_is_missing(void);

/*
 * Closes all descriptors, like closefrom(), and counts them. The library may open other descriptors
 * later.
 */
void device_close_all(void);
unsigned int device_descriptors(void);

/* Sets whether the calls of the current thread fail from now on, as if it had no descriptor. */
void device_fails(bool fails);

/* Like device_fails(), but only calls that wake waiters fail. */
void device_cannot_wake(bool cannot);

/*
 * Calls @may_stop when all living threads sleep. If it returns true, this state is a consequence of
 * the deaths, and the execution ends. Otherwise the execution has failed.
 */
void device_may_stop(bool (*may_stop)(void));

#endif /* DEVICE_H */
