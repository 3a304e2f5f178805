/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The kinds of objects, and the forms of their functions. */
#ifndef MEMWAIT_OBJECT_H
#define MEMWAIT_OBJECT_H

#include "loop.h"

/*
 * An object's @kind and the word after it, combined: compilers load and test them in one
 * instruction.
 */
static inline uint64_t memwait_whole_kind(uint32_t kind, uint32_t spare)
{
	return (uint64_t)spare << 32 | kind;
}

/* Whether the two words have bits other than @known. */
static inline bool memwait_is_unknown(uint32_t kind, uint32_t spare, uint32_t known)
{
	return memwait_whole_kind(kind, spare) & ~(uint64_t)known;
}

/*
 * Macros that define the forms of memwait_sem_wait() and similar functions. @params and @args are
 * the function's parameters and arguments, in parentheses; the first parameter is @object.
 */
#define MEMWAIT_UNWRAP(...)	__VA_ARGS__

/* Blocking forms, which call name_verb_until(). */
#define MEMWAIT_DEFINE_WAIT(name, verb, params, args)						\
int memwait_##name##_##verb(MEMWAIT_UNWRAP params)						\
{												\
	return name##_##verb##_until(MEMWAIT_UNWRAP args, &memwait_never);			\
}												\
												\
int memwait_##name##_clock##verb(MEMWAIT_UNWRAP params, clockid_t clock,			\
				 const struct timespec *time)					\
{												\
	struct memwait_deadline deadline;							\
	int err = memwait_deadline_set(&deadline, clock, time);					\
												\
	return err ? err : name##_##verb##_until(MEMWAIT_UNWRAP args, &deadline);		\
}

/*
 * Asynchronous forms, which use name_verb_kind. @with: .with of the operation. @check: 0 or an
 * error.
 */
#define MEMWAIT_DEFINE_ASYNC(name, verb, params, with, check)					\
int memwait_##name##_##verb##_async(MEMWAIT_UNWRAP params, memwait_op_t *op)			\
{												\
	int err = check;									\
												\
	return err ? err : memwait_op_begin(op, &name##_##verb##_kind, object, with,		\
				      &memwait_never);						\
}												\
												\
int memwait_##name##_clock##verb##_async(MEMWAIT_UNWRAP params, clockid_t clock,		\
					 const struct timespec *time, memwait_op_t *op)		\
{												\
	int err = check;									\
												\
	return err ? err : memwait_op_begin_until(op, &name##_##verb##_kind, object, with,	\
						  clock, time);					\
}

#define MEMWAIT_DEFINE_WAITS(name, verb, params, args, with, check)				\
int memwait_##name##_timed##verb(MEMWAIT_UNWRAP params, const struct timespec *abstime)		\
{												\
	return memwait_##name##_clock##verb(MEMWAIT_UNWRAP args, CLOCK_REALTIME, abstime);	\
}												\
												\
MEMWAIT_DEFINE_WAIT(name, verb, params, args)							\
MEMWAIT_DEFINE_ASYNC(name, verb, params, with, check)

/* For functions whose only parameter is the object. */
#define MEMWAIT_DEFINE_OBJECT_WAITS(name, verb, object_t)					\
	MEMWAIT_DEFINE_WAITS(name, verb, (object_t *object), (object), NULL, 0)

#endif /* MEMWAIT_OBJECT_H */
