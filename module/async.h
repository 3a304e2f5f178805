/* SPDX-License-Identifier: GPL-2.0-only */
/* Async waits, and how waits end: see claim.c. */
#ifndef MEMWAIT_ASYNC_H
#define MEMWAIT_ASYNC_H

#include <linux/hrtimer.h>
#include <linux/llist.h>

#include "wake.h"

/*
 * Number of completions that a read takes in one lock section. A read that returns fewer
 * completions shows that none are left.
 */
#define MEMWAIT_CHUNK	16

/* The effect that a notify, or the report of a death, has on a waiter. */
enum memwait_claim {
	MEMWAIT_CLAIM_LOST,	/* its wait had already ended; the caller must dequeue it */
	MEMWAIT_CLAIM_PASSED_OVER, /* wait timed out or process is dying; was dequeued */
	MEMWAIT_CLAIM_WON,	/* the notify was used: it ended the wait, or was counted */
};

enum memwait_state {
	MEMWAIT_ARMING,		/* not pending yet; its waiters may be queued */
	MEMWAIT_QUEUED,		/* pending */
	MEMWAIT_CLAIMED,	/* ended by cancel or close, or about to complete */
	MEMWAIT_COMPLETED,	/* in context->completions.list */
	MEMWAIT_CACHED,		/* in context->waits.caches; still has its old id */
};

/**
 * struct memwait_async_waiter - an async wait, later its completion
 * @node: for a completion: entry of context->completions.list
 * @user_data: for the completion
 * @next_cached: list of cached waits
 * @id: for completion and cancel
 * @numbered: entry of &memwait_waits.tree, even while the wait is cached
 * @count: number of notifies that counted the wait and were not reported by a read
 * @reading: with MEMWAIT_PERSISTENT: number of notifies that the current reader is reporting;
 *	protected by @read_lock of the context
 * @group: the wait
 */
struct memwait_async_waiter {
	struct list_head node;
	union {
		u64 user_data;
		struct memwait_async_waiter *next_cached;
	};
	u64 id;
	struct rb_node numbered;
	u32 count;
	u32 reading;
	struct memwait_group group;	/* last, because it ends with the array of waiters */
};

static inline struct memwait_async_waiter *memwait_async_of(struct memwait_group *group)
{
	return container_of(group, struct memwait_async_waiter, group);
}

/**
 * struct memwait_cache - ended waits that a context caches
 * @first: the wait that was cached last; list by &memwait_async_waiter.next_cached
 * @nr: length
 */
struct memwait_cache {
	struct memwait_async_waiter *first;
	unsigned int nr;
};

/**
 * struct memwait_waits - the async waits of a context; protected by its lock
 * @tree: the waits, by id; see alloc.c
 * @nr_pending: waits queued and not claimed
 * @deadlines: earliest first
 * @timers: fire at the earliest of @deadlines, or before
 * @nr_numbered: counter for ids
 * @caches: caches of ended waits for one word, without and with MEMWAIT_OWNED
 */
struct memwait_waits {
	struct rb_root tree;
	unsigned int nr_pending;
	struct timerqueue_head deadlines[MEMWAIT_CLOCKS];
	struct hrtimer timers[MEMWAIT_CLOCKS];
	u64 nr_numbered;
	struct memwait_cache caches[2];
};

/* claim.c */
enum memwait_claim memwait_claim_waiter(struct memwait_waiter *waiter, u8 result,
					struct memwait_wakes *wakes);
bool memwait_async_claim(struct memwait_async_waiter *wait);
bool memwait_async_list(struct memwait_async_waiter *wait);
void memwait_async_complete(struct memwait_async_waiter *wait, u8 result);
void memwait_async_remember(struct memwait_async_waiter *wait);
int memwait_async_joined(struct memwait_group *group);

/* alloc.c */
struct memwait_async_waiter *memwait_async_alloc(struct memwait_context *context, u32 nr,
						 bool owned);
struct memwait_async_waiter *memwait_async_find(struct memwait_context *context, u64 id);
struct memwait_async_waiter *memwait_async_after(struct memwait_context *context, u64 id);
void memwait_async_free(struct memwait_context *context, struct memwait_async_waiter **waits,
			unsigned int nr);
void memwait_async_free_all(struct memwait_context *context);

/* async.c */
void memwait_async_end(struct memwait_async_waiter *wait, struct llist_head *unused);
void memwait_async_end_all(struct memwait_context *context, struct llist_head *unused);
int memwait_ioc_cancel(struct memwait_context *context, const struct memwait_cancel *cancel,
		       struct llist_head *unused);
bool memwait_is_due(struct memwait_context *context);
void memwait_expire(struct memwait_context *context, size_t room);
void memwait_expire_open(struct memwait_context *context);
void memwait_expire_close(struct memwait_context *context);

#endif /* MEMWAIT_ASYNC_H */
