// SPDX-License-Identifier: GPL-2.0-only
/*
 * Groups: several words that are waited for together, by a thread or by an async wait.
 *
 * Each word has a member in its queue. The group is claimed as a whole, once. No queue's lock can
 * protect that claim, for the members stand in different queues:
 *
 *	notify of one word (its queue locked)	another notify, a deadline, a signal, ...
 *	(1) claim the group: won		(1) claim the group: lost
 *	(2) take this member out		(2) a notify takes this member out as well, does not
 *	    of its queue			    count it, and goes on to the next waiter
 *	(3) count it, unlock
 *	(4) take the other members out, each
 *	    under the lock of its own queue
 *
 * So no notify is swallowed, and no two are spent on one group. The owner of the group takes all
 * members out before it gives their words back, and so does the notify that has claimed the group,
 * before its system call returns: each skips the members that are out already. The memory of the
 * group stays until both have done so, by .refs.
 *
 * The members join one after another, each comparing its word under the lock of its queue. A change
 * of a word after its member has joined is followed by a notify that finds the member, although
 * others have not joined yet: it claims the group in the middle of its joining. The joining thread
 * finds that out when done, or when a later word is not equal, and then the notify counts, not the
 * word. A change before its member has joined is seen by the comparison. Nothing is missed in
 * between, and no two queues need to be locked at once.
 */
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "group.h"
#include "memwait.h"

/**
 * memwait_group_copy() - copy the words of a group from user space and check them
 * @waits: gets them
 * @from: address of an array of struct memwait_wait
 * @nr: its length
 *
 * Context: process context, may sleep.
 *
 * Return: 0, -EFAULT, -EINVAL or -EOPNOTSUPP.
 */
int memwait_group_copy(struct memwait_wait *waits, u64 from, u32 nr)
{
	u32 i;
	int ret;

	if (copy_from_user(waits, u64_to_user_ptr(from), nr * sizeof(*waits)))
		return -EFAULT;
	for (i = 0; i < nr; i++) {
		ret = memwait_check_wait(&waits[i], MEMWAIT_WORD_FLAGS);
		if (ret)
			return ret;
	}
	return 0;
}

/**
 * memwait_group_put_words() - give back what memwait_group_get() took
 * @group: its members are in no queue, and have no pins
 * @nr: of the first so many members
 *
 * Context: process context.
 */
void memwait_group_put_words(struct memwait_group *group, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		memwait_word_put(&group->members[i].waiter.word);
}

/**
 * memwait_group_get() - find the keys of a group's words
 * @group: its members' words are set on success; given back with memwait_group_put_words()
 * @waits: address and flags of each word, checked
 *
 * Context: process context, may sleep.
 *
 * Return: 0, or what memwait_word_get() says of the first word that has no key.
 */
int memwait_group_get(struct memwait_group *group, const struct memwait_wait *waits)
{
	u32 i;
	int ret;

	for (i = 0; i < group->nr; i++) {
		ret = memwait_word_get(&group->members[i].waiter.word, waits[i].addr,
				       waits[i].flags);
		if (ret) {
			memwait_group_put_words(group, i);
			return ret;
		}
	}
	return 0;
}

/**
 * memwait_group_compare() - do all words hold their expected values?
 * @waits: the words
 * @nr: how many
 * @index: set to the first that does not, unless the result is 0
 *
 * Context: process context, may fault and sleep.
 *
 * Return: 0: they do; MEMWAIT_NOT_EQUAL; or -EFAULT, which comes first whatever the words hold.
 */
int memwait_group_compare(const struct memwait_wait *waits, u32 nr, u32 *index)
{
	int ret = 0, one;
	u32 i;

	for (i = 0; i < nr; i++) {
		one = memwait_compare(waits[i].addr, waits[i].expected, waits[i].flags);
		if (one < 0)
			return one;
		if (one && !ret) {
			ret = one;
			*index = i;
		}
	}
	return ret;
}

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
