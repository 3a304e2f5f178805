/* SPDX-License-Identifier: GPL-2.0-only */
/* Queue positions of interrupted threads, and the effect of signals: see position.c. */
#ifndef MEMWAIT_POSITION_H
#define MEMWAIT_POSITION_H

#include <linux/hash.h>
#include <linux/pid.h>

#include "queue.h"

#define MEMWAIT_ABSENT_BITS	10

/**
 * struct memwait_absent - records of interrupted threads whose hash is the same
 * @lock: protects @positions
 * @positions: the records, by struct pid
 */
struct memwait_absent {
	spinlock_t lock;	/* see the top of position.c */
	struct rb_root positions;
};

struct memwait_position;
extern struct memwait_absent memwait_absent[1 << MEMWAIT_ABSENT_BITS];
struct memwait_position *memwait_position_find(struct memwait_absent *absent);
void memwait_position_return(const struct memwait_position *record, struct memwait_group *group);
void memwait_position_record(struct memwait_position **record, const struct memwait_group *group);
void memwait_position_add(struct memwait_context *context, struct memwait_position *record);
void memwait_position_free(struct memwait_position *record);
void memwait_position_free_all(struct memwait_context *context);
void memwait_position_init(void);

static inline struct memwait_absent *memwait_absent_of(const struct pid *pid)
{
	return &memwait_absent[hash_ptr(pid, MEMWAIT_ABSENT_BITS)];
}

/*
 * Calls memwait_position_find() for the current thread. If the tree is empty, no lock is needed,
 * because only the thread itself adds its record.
 */
static __always_inline struct memwait_position *memwait_position_take(void)
{
	struct memwait_absent *absent = memwait_absent_of(task_pid(current));

	return likely(RB_EMPTY_ROOT(&absent->positions)) ? NULL : memwait_position_find(absent);
}

bool memwait_dies_of_signal(void);

/**
 * memwait_is_dying() - will current die before returning to user space?
 *
 * Context: process context.
 *
 * Return: true if so.
 */
static inline bool memwait_is_dying(void)
{
	return unlikely(signal_pending(current)) && memwait_dies_of_signal();
}

#endif /* MEMWAIT_POSITION_H */
