/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Simulated threads: the interface of sim.cc, which uses Relacy, for the C sources.
 *
 * The threads share sim_memory. Its atomics are simulated: a load may return any value that C11
 * allows. Other data in sim_memory may be read by threads that are ordered after its last writer.
 * It may be written by a thread that is also ordered after its readers. Any other access is a data
 * race and makes the execution fail. Memory outside sim_memory is not simulated.
 */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIM_THREADS	4		/* maximum number of threads */
#define SIM_MEMORY	8192

extern unsigned char sim_memory[SIM_MEMORY];

/* Relacy's numbers. */
enum sim_order {
	SIM_RELAXED,
	SIM_CONSUME,
	SIM_ACQUIRE,
	SIM_RELEASE,
	SIM_ACQ_REL,
	SIM_SEQ_CST,
};

enum sim_operation { SIM_SET, SIM_ADD, SIM_SUB, SIM_AND, SIM_OR, SIM_XOR };

/*
 * A memory order in the sources. All memory orders are in one section, so that they can be listed.
 */
struct sim_site {
	const char *file;
	const char *function;
	const char *access;		/* the operation and its operand */
	int line;
	int order;
	int kind;			/* enum sim_kind */
	int weakened;			/* the order to use instead, or -1 */
	int reached;
};

enum sim_kind { SIM_KIND_LOAD, SIM_KIND_STORE, SIM_KIND_CHANGE, SIM_KIND_FAILURE };

uint64_t sim_load(const volatile void *word, size_t size, struct sim_site *site);
void sim_store(volatile void *word, size_t size, uint64_t value, struct sim_site *site);
uint64_t sim_change(volatile void *word, size_t size, enum sim_operation operation,
		    uint64_t operand, struct sim_site *site);
bool sim_compare_exchange(volatile void *word, size_t size, uint64_t *expected, uint64_t desired,
			  bool weak, struct sim_site *success, struct sim_site *failure);
void sim_init(volatile void *word, size_t size, uint64_t value);

void *sim_memcpy(void *to, const void *from, size_t size);
void *sim_memset(void *to, int byte, size_t size);

/* All earlier accesses must be ordered before this call, and no access may follow. */
void sim_free(const void *memory, size_t size);

/* Returns the latest value of the word, for checks at the end. This is not a simulated access. */
uint64_t sim_latest(const volatile void *word, size_t size);

/*
 * For the device: a relaxed load that is not a separate step, and a sequentially consistent
 * operation on 32 bits.
 */
uint64_t sim_peek(const volatile void *word, size_t size);
uint32_t sim_change_u32(volatile void *word, enum sim_operation operation, uint32_t operand);

/* Order between threads that a lock or a wake-up establishes, and not an atomic. */
struct sim_sync {
	size_t seen[SIM_THREADS];
};

void sim_acquire(const struct sim_sync *sync);
void sim_release(struct sim_sync *sync);

/* Threads. At each step any other thread may run. */
unsigned int sim_thread(void);
void sim_step(void);
void sim_user_step(void);	/* defined elsewhere: called at each access to an atomic */
unsigned int sim_random(unsigned int limit);
bool sim_park(bool timed);	/* returns true after sim_unpark(), false if it ends by itself */
void sim_unpark(unsigned int thread);
bool sim_is_running(void);	/* false before the threads begin and after they have ended */
void sim_note(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));
void sim_fail(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));

/* A scenario. It is run repeatedly from @set_up to @finish, each time with other random choices. */
struct sim_scenario {
	const char *name;
	unsigned int threads;
	void (*set_up)(void);		/* the only thread; sim_memory is zeroed */
	void (*thread)(unsigned int thread);
	void (*finish)(void);		/* the only thread; all other threads have ended */
};

/* Returns 0, or the number of the execution that failed, with a description in @failure. */
uint64_t sim_run(const struct sim_scenario *scenario, uint64_t executions, bool show,
		 char *failure, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* SIM_H */
