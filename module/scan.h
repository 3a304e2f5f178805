/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scan of a word's queue, which claims waiters in steps, for a notify, a requeue, or the report
 * of a death. See notify.c.
 */
#ifndef MEMWAIT_SCAN_H
#define MEMWAIT_SCAN_H

#include "queue.h"
#include "wake.h"

/* Kinds of scans, which differ in what ends a scan early, and in what its caller does next. */
enum memwait_scan_kind {
	MEMWAIT_SCAN,		/* SIGKILL ends the scan, the freezer suspends it */
	MEMWAIT_SCAN_HANDS_OVER, /* like MEMWAIT_SCAN; the caller is about to sleep */
	MEMWAIT_SCAN_SURE,	/* only the freezer suspends the scan */
	MEMWAIT_SCAN_PASSES_ON,	/* nothing stops the scan: its thread or context has ended */
};

/**
 * struct memwait_scan - progress of a scan
 * @count: the maximum number of waiters to wake
 * @woken: waiters woken so far
 * @move: the maximum number of waiters to move
 * @moved: waiters moved so far
 * @bucket: bucket of the word whose waiters it claims
 * @key: the word's key
 * @number: waiters with a greater number joined after the scan began
 * @reached: number of the last waiter looked at; the scan continues after it
 * @kind: what ends the scan early, and whether the caller is about to sleep
 * @gives_way: a step ends early if a thread waits for the bucket's lock
 * @wakes: the wake-ups of the present step
 */
struct memwait_scan {
	u32 count;
	u32 woken;
	u32 move;
	u32 moved;
	struct memwait_bucket *bucket;
	const struct memwait_key *key;
	u64 number;
	u64 reached;
	enum memwait_scan_kind kind;
	bool gives_way;
	struct memwait_wakes wakes;
};

/* Whether the present step must end, see MEMWAIT_STEP. */
static inline bool memwait_wakes_are_full(const struct memwait_wakes *wakes)
{
	return wakes->looked >= MEMWAIT_STEP || wakes->nr_tasks == MEMWAIT_STEP_WAKES ||
	       wakes->nr_contexts == MEMWAIT_STEP_POLLED || wakes->crowded;
}

/* Returns @waiter if it is not NULL and the scan covers it; otherwise NULL. */
static inline struct memwait_waiter *memwait_scan_covers(const struct memwait_scan *scan,
							 struct memwait_waiter *waiter)
{
	return waiter && waiter->number <= scan->number ? waiter : NULL;
}

/* Returns the next waiter that the scan covers, or NULL. */
static inline struct memwait_waiter *memwait_scan_next(const struct memwait_scan *scan)
{
	return memwait_scan_covers(scan, memwait_queue_next(scan->bucket, scan->key,
							    scan->reached));
}

/*
 * Like memwait_scan_next(), for a caller that may have dequeued the previous waiter. @next: from
 * rb_next() of the previous waiter's node.
 */
static inline struct memwait_waiter *memwait_scan_after(const struct memwait_scan *scan,
							struct rb_node *next)
{
	return memwait_scan_covers(scan, memwait_of_word(memwait_waiter_at(next), scan->key));
}

void memwait_step_end(struct memwait_scan *scan);
void memwait_scan_init(struct memwait_scan *scan, u32 count, u32 move);
void memwait_scan_start(struct memwait_scan *scan, struct memwait_bucket *bucket,
			const struct memwait_key *key);
bool memwait_scan_claim(struct memwait_scan *scan);
bool memwait_scan_pause(struct memwait_scan *scan);
int memwait_notify_word(const struct memwait_key *key, u32 count, enum memwait_scan_kind kind);
void memwait_pass_on(const struct memwait_key *key, u64 number);
int memwait_ioc_notify(const struct memwait_notify *notify);
int memwait_ioc_waiters(const struct memwait_notify *notify);
int memwait_ioc_notify_many(const struct memwait_notify_many *many);

/* change.c */
int memwait_ioc_change_notify(const struct memwait_change *change,
			      struct memwait_change __user *user);

/* requeue.c */
int memwait_ioc_requeue(struct memwait_requeue *requeue, struct memwait_requeue __user *user);

#endif /* MEMWAIT_SCAN_H */
