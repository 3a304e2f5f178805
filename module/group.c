// SPDX-License-Identifier: GPL-2.0-only
/*
 * Groups: several words that a thread, or an async wait, waits for together.
 *
 * Each word has a member in its queue. The group is claimed as a whole, once. The members stand in
 * different queues, so no queue's lock protects that claim:
 *
 *	notify of one word (its queue locked)	another notify, a deadline, a signal, ...
 *	(1) claim the group: won		(1) claim the group: lost
 *	(2) take this member out		(2) a notify takes this member out as well, does not
 *	    of its queue			    count it, and goes on to the next waiter
 *	(3) count it, unlock
 *	(4) take the other members out, each
 *	    under the lock of its own queue
 *
 * So no notify is swallowed, and no two are spent on one group. Both the owner of the group, before
 * it gives the words back, and the notify that has claimed it, before its system call returns, take
 * all members out, and skip those that are out. .refs keeps the memory until both have done so.
 *
 * The members join one after another. Each compares its word under the lock of its queue. A word
 * that changes after its member has joined is notified after that, too: the notify finds the
 * member, and claims the group though other members have not joined. The joining thread sees the
 * claim when it has done, or when a later word is not equal; the notify counts then, not the word.
 * A word that changes before its member has joined is not equal. So nothing is missed, and no two
 * queues are locked at once.
 */
#include <linux/sched.h>
#include <linux/slab.h>

#include "group.h"
#include "memwait.h"

/**
 * memwait_group_join() - put the members of a group into their queues
 * @group: its members' words and ops are set, and they are in no queue
 * @waits: the words' expected values
 * @index: set to the first that could not join, unless the result is 0
 * @kept: as memwait_queue_unlock()
 *
 * A notify may claim the group as soon as its first member has joined. If not all of them join, the
 * caller claims it unless a notify has, and in any case calls memwait_group_leave().
 *
 * Context: process context, may sleep.
 *
 * Return: 0, or what memwait_queue_join() says of the first one that could not join.
 */
int memwait_group_join(struct memwait_group *group, const struct memwait_wait *waits, u32 *index,
		       struct memwait_kept_queues *kept)
{
	u32 i;
	int ret;

	for (i = 0; i < group->nr; i++) {
		ret = memwait_queue_join(&group->members[i].waiter, &waits[i], kept);
		if (ret) {
			*index = i;
			return ret;
		}
	}
	return 0;
}

/**
 * memwait_group_leave() - take the members of a group out of the queues that they are in
 * @group: claimed. Another thread may do the same at the same time
 * @kept: as memwait_queue_unlock()
 *
 * Context: process context; takes the queues' locks, one at a time.
 */
void memwait_group_leave(struct memwait_group *group, struct memwait_kept_queues *kept)
{
	u32 i;

	for (i = 0; i < group->nr; i++)
		memwait_queue_leave(&group->members[i].waiter, kept);
}

/**
 * memwait_group_leave_all() - the same for all groups that a notify has claimed
 * @groups: in struct memwait_wakes
 * @kept: as memwait_queue_unlock()
 *
 * Context: process context, may sleep; takes the queues' locks, one at a time.
 */
void memwait_group_leave_all(struct memwait_group **groups, struct memwait_kept_queues *kept)
{
	struct memwait_group *group;

	while ((group = *groups)) {
		*groups = group->next;
		memwait_group_leave(group, kept);
		memwait_group_put(group);
		cond_resched();
	}
}
