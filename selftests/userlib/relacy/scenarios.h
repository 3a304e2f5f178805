/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for the scenarios: actions of the threads with the library. scenarios/ has one file for
 * each kind of object.
 *
 * The simulation checks the data in the shared memory that is not atomic. An access to such data
 * that the library does not order is a failure. It is also a failure if a thread sleeps when all
 * other threads sleep or have ended.
 */
#ifndef SCENARIOS_H
#define SCENARIOS_H

#include <stdatomic.h>

#include "memwait.h"

#include "device.h"
#include "sim.h"

struct shared {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	memwait_sem_t sem;
	memwait_rwlock_t rwlock;
	memwait_barrier_t barrier;
	memwait_waitgroup_t group;
	memwait_event_t event;
	uint32_t data;
	uint32_t more_data;
	uint32_t of_thread[SIM_THREADS];
	_Atomic uint32_t flag;
	_Atomic uint32_t step;
	unsigned char channel[512] __attribute__((__aligned__(8)));
	memwait_mutex_t far_mutex __attribute__((__aligned__(4096)));
};

_Static_assert(sizeof(struct shared) <= SIM_MEMORY, "the shared memory is large enough");

#define shared ((struct shared *)sim_memory)

/*
 * Counts of what each thread has done, for the checks at the end. They are neither shared nor
 * simulated.
 */
extern uint32_t done[SIM_THREADS];

/* A deadline. It passes before or during a wait, or not at all. */
extern const struct timespec soon;

#define CHECK(condition) do { \
	if (!(condition)) \
		sim_fail("line %d: CHECK(%s) failed", __LINE__, #condition); \
} while (0)

/* Kinds. Mutexes and read-write locks use the same values. */
enum {
	PRIVATE		= MEMWAIT_PRIVATE,
	RECURSIVE	= MEMWAIT_MUTEX_RECURSIVE,
	FAIR		= MEMWAIT_MUTEX_FAIR,
	ROBUST		= MEMWAIT_MUTEX_ROBUST,
	READER		= MEMWAIT_RWLOCK_PREFER_READER,
	WRITER		= MEMWAIT_RWLOCK_PREFER_WRITER,
};

/* Defines a struct sim_scenario; @set_up becomes the body of its function. */
#define SCENARIO(text, threads, set_up, thread, finish) \
	SCENARIO_(text, threads, set_up, thread, finish, __COUNTER__)
#define SCENARIO_(text, threads, set_up, thread, finish, number) \
	SCENARIO__(text, threads, set_up, thread, finish, number)
#define SCENARIO__(text, threads, set_up, thread, finish, number) \
	static void set_up_ ## number(void) \
	{ \
		set_up; \
	} \
	static const struct sim_scenario scenario_ ## number \
		__attribute__((__section__("sim_scenarios"), __aligned__(8), __used__)) = { \
			text, threads, set_up_ ## number, thread, finish \
		}

uint32_t done_by_all(void);
unsigned int deaths(void);

/* A step at which a thread may die, in addition to the steps of the library. */
void step(void);

/*
 * A flag that shows a thread that another thread has done something. wait_for_flag() gives up after
 * some attempts.
 */
void set_flag(void);
bool wait_for_flag(void);

void no_finish(void);

#endif /* SCENARIOS_H */
