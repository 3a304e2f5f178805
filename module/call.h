/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A call that claims waiters in steps: a notify, a requeue, or what tells of a death. See notify.c.
 */
#ifndef MEMWAIT_CALL_H
#define MEMWAIT_CALL_H

#include <linux/preempt.h>
#include <linux/types.h>

#include "memwait.h"

/* What ends a call early, and what it stops for. */
enum memwait_call_kind {
	MEMWAIT_CALL,		/* SIGKILL ends it; it stops for the freezer */
	MEMWAIT_CALL_SURE,	/* it stops for the freezer */
	MEMWAIT_CALL_PASSES_ON,	/* nothing: it is for a thread or a context that has ended */
};

/**
 * struct memwait_call - how far a notify or requeue has come
 * @count: wake at most so many
 * @woken: so many were woken
 * @move: move at most so many
 * @moved: so many were moved
 * @number: waiters with a greater one have joined after the call began
 * @reached: the number of the last one that it has looked at: it goes on from there
 * @kind: what ends it early
 * @kept: as memwait_queue_unlock()
 * @wakes: of the present step
 */
struct memwait_call {
	u32 count;
	u32 woken;
	u32 move;
	u32 moved;
	u64 number;
	u64 reached;
	enum memwait_call_kind kind;
	struct memwait_kept_queues *kept;
	struct memwait_wakes wakes;
};

/* Whether the present step must end: see MEMWAIT_STEP. */
static inline bool memwait_wakes_are_full(const struct memwait_wakes *wakes)
{
	return wakes->looked >= MEMWAIT_STEP || wakes->nr_tasks == MEMWAIT_STEP_WAKES ||
	       wakes->nr_contexts == MEMWAIT_STEP_WAKES;
}

/* From the claim of a waiter until memwait_step_end() the caller is not preempted. */
static inline void memwait_step_begin(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
}

/* The oldest waiter, if it has joined before the call began; or NULL. */
static inline struct memwait_waiter *memwait_call_next(const struct memwait_call *call,
						       struct memwait_queue *queue)
{
	struct memwait_waiter *waiter = memwait_queue_oldest(queue, call->reached);

	return waiter && waiter->number <= call->number ? waiter : NULL;
}

void memwait_step_end(struct memwait_call *call);
void memwait_call_init(struct memwait_call *call, u32 count, u32 move,
		       struct memwait_kept_queues *kept);
void memwait_call_start(struct memwait_call *call, const struct memwait_queue *queue);
bool memwait_call_claim(struct memwait_call *call, struct memwait_queue *queue);
void memwait_call_hold(struct memwait_call *call, struct memwait_queue *queue);
bool memwait_call_pause(const struct memwait_call *call);

#endif /* MEMWAIT_CALL_H */
