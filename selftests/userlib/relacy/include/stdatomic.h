/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Replaces the compiler's <stdatomic.h>. The atomics of the library become calls of the simulation,
 * and each memory order in the library's sources becomes a struct sim_site. Each source includes
 * this file through internal.h, so this file also contains other replacements for the simulation.
 */
#ifndef SIM_STDATOMIC_H
#define SIM_STDATOMIC_H

#include "sim.h"

#define ATOMIC_LLONG_LOCK_FREE	__GCC_ATOMIC_LLONG_LOCK_FREE

typedef enum {
	memory_order_relaxed = SIM_RELAXED,
	memory_order_consume = SIM_CONSUME,
	memory_order_acquire = SIM_ACQUIRE,
	memory_order_release = SIM_RELEASE,
	memory_order_acq_rel = SIM_ACQ_REL,
	memory_order_seq_cst = SIM_SEQ_CST,
} memory_order;

#define SIM_SITE(access, order, kind) __extension__ ({ \
	static struct sim_site sim_site \
		__attribute__((__section__("sim_sites"), __aligned__(8))) = { \
			__FILE__, __func__, access, __LINE__, order, kind, -1, 0 \
		}; \
	&sim_site; })

/* The type of an atomic without its _Atomic qualifier. */
#define SIM_TYPE(word) __typeof__((void)0, *(word))

#define atomic_init(word, value) sim_init(word, sizeof(*(word)), (uint64_t)(value))

#define atomic_load_explicit(word, order) \
	((SIM_TYPE(word))sim_load(word, sizeof(*(word)), \
				  SIM_SITE("load(" #word ")", order, SIM_KIND_LOAD)))

#define atomic_store_explicit(word, value, order) \
	sim_store(word, sizeof(*(word)), (uint64_t)(value), \
		  SIM_SITE("store(" #word ")", order, SIM_KIND_STORE))

/* The value of the expression statement may be unused without a warning. */
#define SIM_CHANGE(name, word, operation, operand, order) __extension__ ({ \
	(SIM_TYPE(word))sim_change(word, sizeof(*(word)), operation, (uint64_t)(operand), \
				   SIM_SITE(name "(" #word ")", order, SIM_KIND_CHANGE)); })

#define atomic_exchange_explicit(word, operand, order) \
	SIM_CHANGE("exchange", word, SIM_SET, operand, order)
#define atomic_fetch_add_explicit(word, operand, order) \
	SIM_CHANGE("fetch_add", word, SIM_ADD, operand, order)
#define atomic_fetch_sub_explicit(word, operand, order) \
	SIM_CHANGE("fetch_sub", word, SIM_SUB, operand, order)
#define atomic_fetch_and_explicit(word, operand, order) \
	SIM_CHANGE("fetch_and", word, SIM_AND, operand, order)
#define atomic_fetch_or_explicit(word, operand, order) \
	SIM_CHANGE("fetch_or", word, SIM_OR, operand, order)
#define atomic_fetch_xor_explicit(word, operand, order) \
	SIM_CHANGE("fetch_xor", word, SIM_XOR, operand, order)

#define SIM_COMPARE_EXCHANGE(word, expected, desired, success, failure, weak) __extension__ ({ \
	__typeof__(expected) sim_expected = (expected); \
	uint64_t sim_value = (uint64_t)*sim_expected; \
	bool sim_done = sim_compare_exchange(word, sizeof(*(word)), &sim_value, \
					     (uint64_t)(desired), weak, \
					     SIM_SITE("compare_exchange(" #word ")", success, \
						      SIM_KIND_CHANGE), \
					     SIM_SITE("failed compare_exchange(" #word ")", \
						      failure, SIM_KIND_FAILURE)); \
	if (!sim_done) \
		*sim_expected = (SIM_TYPE(word))sim_value; \
	sim_done; })

#define atomic_compare_exchange_strong_explicit(word, expected, desired, success, failure) \
	SIM_COMPARE_EXCHANGE(word, expected, desired, success, failure, false)
#define atomic_compare_exchange_weak_explicit(word, expected, desired, success, failure) \
	SIM_COMPARE_EXCHANGE(word, expected, desired, success, failure, true)

/* The invariants of the library's words are checked in every execution. */
#define MEMWAIT_INVARIANT(condition) \
	((condition) ? (void)0 : \
		       sim_fail("invariant of %s, %s(): %s", __FILE__, __func__, #condition))

/* GCC does not report these calls as memory accesses. */
#define memcpy		sim_memcpy
#define memset		sim_memset

/*
 * All simulated threads run in one thread. Their thread-local data is a section, which is swapped.
 */
#define __thread	__attribute__((__section__("sim_tls")))

#endif /* SIM_STDATOMIC_H */
