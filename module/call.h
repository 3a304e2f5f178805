/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A call that claims waiters in steps: a notify, a requeue, or the report of a death. See notify.c.
 */
#ifndef MEMWAIT_CALL_H
#define MEMWAIT_CALL_H

#include "memwait.h"

/*
 * Kinds of calls: they differ in what ends a call early or freezes it, and what its caller does
 * next.
 */
enum memwait_call_kind {
	MEMWAIT_CALL,		/* SIGKILL ends it, the freezer stops it */
	MEMWAIT_CALL_HANDS_OVER, /* the same, and the caller is about to sleep */
	MEMWAIT_CALL_SURE,	/* only the freezer stops it */
	MEMWAIT_CALL_PASSES_ON,	/* neither: acts for a thread or context that has ended */
};

/**
 * struct memwait_call - progress of a call
 * @count: the most waiters to wake
 * @woken: waiters woken so far
 * @move: the most waiters to move
 * @moved: waiters moved so far
 * @bucket: of the word whose waiters it claims
 * @key: the word's key
 * @number: waiters with a greater number joined after the call began
 * @reached: number of the last waiter looked at; the call continues after it
 * @kind: what ends the call early, and whether the caller is about to sleep
 * @gives_way: a step ends for a thread that waits for the bucket's lock
 * @wakes: the wake-ups of the present step
 */
struct memwait_call {
	u32 count;
	u32 woken;
	u32 move;
	u32 moved;
	struct memwait_bucket *bucket;
	const struct memwait_key *key;
	u64 number;
	u64 reached;
	enum memwait_call_kind kind;
	bool gives_way;
	struct memwait_wakes wakes;
};

/* Whether the present step must end, see MEMWAIT_STEP. */
static inline bool memwait_wakes_are_full(const struct memwait_wakes *wakes)
{
	return wakes->looked >= MEMWAIT_STEP || wakes->nr_tasks == MEMWAIT_STEP_WAKES ||
	       wakes->nr_contexts == MEMWAIT_STEP_POLLED || wakes->crowded;
}

/* The waiter, if there is one and the call covers it. */
static inline struct memwait_waiter *memwait_call_covers(const struct memwait_call *call,
							 struct memwait_waiter *waiter)
{
	return waiter && waiter->number <= call->number ? waiter : NULL;
}

/* The next waiter that the call covers, or NULL. */
static inline struct memwait_waiter *memwait_call_next(const struct memwait_call *call)
{
	return memwait_call_covers(call, memwait_queue_next(call->bucket, call->key,
							    call->reached));
}

/*
 * The same, for a caller that may have dequeued the previous waiter. @next: from rb_next() of the
 * previous waiter's node.
 */
static inline struct memwait_waiter *memwait_call_after(const struct memwait_call *call,
							struct rb_node *next)
{
	return memwait_call_covers(call, memwait_of_word(memwait_waiter_at(next), call->key));
}

void memwait_step_end(struct memwait_call *call);
void memwait_call_init(struct memwait_call *call, u32 count, u32 move);
void memwait_call_start(struct memwait_call *call, struct memwait_bucket *bucket,
			const struct memwait_key *key);
bool memwait_call_claim(struct memwait_call *call);
bool memwait_call_pause(struct memwait_call *call);
int memwait_notify_word(const struct memwait_key *key, u32 count, enum memwait_call_kind kind);

#endif /* MEMWAIT_CALL_H */
