/* SPDX-License-Identifier: GPL-2.0-only */
/* Waits on one or more words that end with the first notify. See group.c. */
#ifndef MEMWAIT_GROUP_H
#define MEMWAIT_GROUP_H

#include <linux/refcount.h>
#include <linux/slab.h>

#include "memwait.h"

/**
 * struct memwait_member - one word of a group
 * @waiter: its entry in the queue
 * @group: the group
 */
struct memwait_member {
	struct memwait_waiter waiter;
	struct memwait_group *group;
};

/**
 * struct memwait_group - the words of a thread's wait, or of an async wait on several words
 * @refs: of an allocated group: one for its owner, one for the notify that has claimed it
 * @nr: number of words
 * @members: one for each word
 * @next: in memwait_wakes.groups of the notify that has claimed it
 * @task: of a thread: the thread
 * @claimed: %NULL while the wait is pending; then the notified member, or MEMWAIT_CLAIMED_BY_ITSELF
 * @result: of a thread, once claimed: MEMWAIT_OK or MEMWAIT_OWNER_DIED. Written before @claimed,
 *	under the lock of the queue of its only word
 * @flags: MEMWAIT_CLOCK_REALTIME or 0
 * @expires: of a thread: the deadline; KTIME_MAX: never
 * @begun: of a thread: when its wait began, if it was traced then; or 0
 *
 * The group of a thread that waits for a single word is on its stack and does not use @refs.
 */
struct memwait_group {
	refcount_t refs;
	u32 nr;
	struct memwait_member *members;
	struct memwait_group *next;
	struct task_struct *task;
	struct memwait_member *claimed;
	u8 result;
	u32 flags;
	ktime_t expires;
	u64 begun;
};

/* In place of a notified member: the wait ended without a notify. */
#define MEMWAIT_CLAIMED_BY_ITSELF	((struct memwait_member *)-1L)

static inline struct memwait_member *to_member(const struct memwait_waiter *waiter)
{
	return container_of(waiter, struct memwait_member, waiter);
}

int memwait_group_join(struct memwait_group *group, const struct memwait_wait *waits, u32 *index);
void memwait_group_leave(struct memwait_group *group);
void memwait_group_leave_all(struct memwait_group **groups);

/**
 * memwait_wakes_add_group() - defer the removal of a claimed group's other members
 * @wakes: of the notify
 * @group: claimed by the notify
 *
 * Context: the lock of a member's queue is held, which keeps the group from being freed.
 */
static inline void memwait_wakes_add_group(struct memwait_wakes *wakes, struct memwait_group *group)
{
	refcount_inc(&group->refs);
	group->next = wakes->groups;
	wakes->groups = group;
	wakes->looked += group->nr;
}

/**
 * memwait_group_put() - put a reference to an allocated group
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
