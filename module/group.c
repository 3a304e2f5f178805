// SPDX-License-Identifier: GPL-2.0-only
/*
 * Groups: several words that a thread or an async wait waits for together.
 *
 * Each word has a member in its queue. The group is claimed once, as a whole, and no bucket's lock
 * protects that claim:
 *
 *	notify of one word (its queue locked)	another notify, a deadline, a signal, ...
 *	(1) claim the group: won		(1) claim the group: lost
 *	(2) take this member out		(2) a notify takes this member out as well, does not
 *	    of its queue			    count it, and goes on to the next waiter
 *	(3) count it, unlock
 *	(4) take the other members out, each
 *	    under the lock of its own queue
 *
 * So no notify is lost, and no two are spent on one group. Both the group's owner, before it puts
 * the words, and the claiming notify, before its system call returns, remove all members that are
 * still queued. .refs keeps the memory until both have done so.
 *
 * The members join one after another. Each compares its word under its bucket's lock. A notify that
 * comes after a member has joined finds it and claims the group, even if other members have not
 * joined. The joining thread sees the claim when all have joined, or when a later word is not
 * equal; then the notify counts, not that word. A word that changes before its member joins is not
 * equal. So nothing is missed, and no two queues are locked together.
 */
#include <linux/sched.h>
#include <linux/slab.h>

#include "group.h"
#include "memwait.h"

/**
 * memwait_group_join() - queue the members of a group
 * @group: its members' words and ops are set, and no member is queued
 * @waits: the words' expected values
 * @index: set to the first member that could not join, unless the result is 0
 *
 * A notify may claim the group as soon as its first member has joined. If not all join, the caller
 * claims the group unless a notify has, and always calls memwait_group_leave().
 *
 * Context: process context, may sleep.
 *
 * Return: 0, or the error of memwait_queue_join() for the first member that could not join.
 */
int memwait_group_join(struct memwait_group *group, const struct memwait_wait *waits, u32 *index)
{
	u32 i;
	int ret;

	for (i = 0; i < group->nr; i++) {
		ret = memwait_queue_join(&group->members[i].waiter, &waits[i]);
		if (ret) {
			*index = i;
			return ret;
		}
	}
	return 0;
}

/**
 * memwait_group_leave() - take the members of a group out of their queues
 * @group: claimed; another thread may do the same concurrently
 *
 * Context: process context; takes buckets' locks, one at a time.
 */
void memwait_group_leave(struct memwait_group *group)
{
	u32 i;

	for (i = 0; i < group->nr; i++)
		memwait_queue_leave(&group->members[i].waiter);
}

/**
 * memwait_group_leave_all() - memwait_group_leave() for all groups that a notify has claimed
 * @groups: memwait_wakes.groups; puts their references
 *
 * Context: process context, may sleep; takes buckets' locks, one at a time.
 */
void memwait_group_leave_all(struct memwait_group **groups)
{
	struct memwait_group *group;

	while ((group = *groups)) {
		*groups = group->next;
		memwait_group_leave(group);
		memwait_group_put(group);
		cond_resched();
	}
}
