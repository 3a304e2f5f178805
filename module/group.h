/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waits on one or several words, of which the first to be notified ends the wait. See group.c.
 */
#ifndef MEMWAIT_GROUP_H
#define MEMWAIT_GROUP_H

#include <linux/refcount.h>
#include <linux/slab.h>

#include "memwait.h"

/**
 * struct memwait_member - one of the words of a group
 * @waiter: its entry in the queue
 * @group: the group
 */
struct memwait_member {
	struct memwait_waiter waiter;
	struct memwait_group *group;
};

/**
 * struct memwait_returned - a waiter of a thread that has returned to its place
 * @node: in &memwait_queue.returned
 * @waiter: the waiter
 */
struct memwait_returned {
	struct rb_node node;
	struct memwait_waiter *waiter;
};

/**
 * struct memwait_group - several words that are waited for together, or the only one of a thread
 * @refs: of a group that was allocated: one of its owner, one of the notify that has claimed it
 * @nr: how many words
 * @members: one for each word
 * @returned: of a group of a thread: one for each member, for memwait_queue_return(). Not in the
 *	member, which an async wait has as well: with 128 words those would take twice the memory
 * @next: in memwait_wakes.groups of the notify that has claimed it
 * @task: the thread, of a group of a thread
 * @claimed: %NULL while the wait is pending; the member that was notified; or
 *	MEMWAIT_CLAIMED_BY_ITSELF
 * @result: of a group of a thread that was claimed: MEMWAIT_OK or MEMWAIT_OWNER_DIED. Written
 *	before @claimed, under the lock of the queue of its only word
 * @expires: of a group of a thread: its deadline; KTIME_MAX: never
 * @flags: and MEMWAIT_CLOCK_REALTIME, or not
 * @begun: of a group of a thread: when it began to wait, if it was traced then; or 0
 *
 * The group of a thread that waits for a single word is on the thread's stack, and has no @refs.
 */
struct memwait_group {
	refcount_t refs;
	u32 nr;
	struct memwait_member *members;
	struct memwait_returned *returned;
	struct memwait_group *next;
	struct task_struct *task;
	struct memwait_member *claimed;
	u8 result;
	u32 flags;
	ktime_t expires;
	u64 begun;
};

/* Instead of a member that was notified: no notify has claimed the group. */
#define MEMWAIT_CLAIMED_BY_ITSELF	((struct memwait_member *)-1L)

static inline struct memwait_member *to_member(const struct memwait_waiter *waiter)
{
	return container_of(waiter, struct memwait_member, waiter);
}

static inline struct rb_node *memwait_returned_node(const struct memwait_waiter *waiter)
{
	const struct memwait_member *member = to_member(waiter);

	return &member->group->returned[member - member->group->members].node;
}

int memwait_group_join(struct memwait_group *group, const struct memwait_wait *waits, u32 *index,
		       struct memwait_kept_queues *kept);
void memwait_group_leave(struct memwait_group *group, struct memwait_kept_queues *kept);
void memwait_group_leave_all(struct memwait_group **groups, struct memwait_kept_queues *kept);

/**
 * memwait_wakes_add_group() - let a notify take the other members of a group out later
 * @wakes: of the notify
 * @group: claimed by the notify
 *
 * Context: a member's queue is locked, so that the group is still there.
 */
static inline void memwait_wakes_add_group(struct memwait_wakes *wakes, struct memwait_group *group)
{
	refcount_inc(&group->refs);
	group->next = wakes->groups;
	wakes->groups = group;
	wakes->looked += group->nr;
}

/**
 * memwait_group_put() - give back a reference to the memory of a group that was allocated
 * @group: the caller has taken its members out
 *
 * Context: any but interrupts.
 */
static inline void memwait_group_put(struct memwait_group *group)
{
	if (refcount_dec_and_test(&group->refs))
		kfree(group);
}

#endif /* MEMWAIT_GROUP_H */
