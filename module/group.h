/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups: several words that are waited for together, by a thread or by an async wait.
 *
 * Each word has a member in its queue; the group is claimed as a whole, once. The claim is not a
 * matter of any queue's lock, for the members stand in different queues:
 *
 *	notify of one word (its queue locked)	somebody else: another notify, deadline, signal, ...
 *	(1) claim the group: won		(1) claim the group: lost
 *	(2) take this member out		(2) a notify takes this member out as well, does not
 *	    of its queue			    count it, and goes on to the next waiter
 *	(3) count it, unlock
 *	(4) take the other members out, each
 *	    under the lock of its own queue
 *
 * So no notify is swallowed, and no two are spent on one group. Whoever has claimed a group takes
 * its other members out before its system call returns, except those that a notify has met and
 * taken out before: a member of a claimed group is met once.
 *
 * The members join one after another, each comparing its word under the lock of its queue. A change
 * of a word after its member has joined is followed by a notify that finds the member, although
 * others have not joined yet: it claims the group in the middle of its joining. Who joins finds
 * that out when done, or when a later word is not equal, and then the notify counts, not the word.
 * A change before its member has joined is seen by the comparison. Nothing is missed in between,
 * and no two queues need to be locked at once.
 *
 * A thread is a group of one word if it waits for one. That is why all of this is inline: for the
 * one word no loop is left.
 */
#ifndef MEMWAIT_GROUP_H
#define MEMWAIT_GROUP_H

#include <linux/uaccess.h>

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
static inline int memwait_group_copy(struct memwait_wait *waits, u64 from, u32 nr)
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
 * memwait_group_put() - give back what memwait_group_get() took
 * @members: in no queue
 * @nr: how many
 *
 * Context: process context.
 */
static inline void memwait_group_put(struct memwait_member *members, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		memwait_word_put(&members[i].waiter.word);
}

/**
 * memwait_group_get() - find the keys of a group's words
 * @members: their words are set on success; given back with memwait_group_put()
 * @waits: address and flags of each word, checked
 * @nr: how many
 *
 * Context: process context, may sleep.
 *
 * Return: 0, or what memwait_word_get() says of the first word that has no key.
 */
static inline int memwait_group_get(struct memwait_member *members,
				    const struct memwait_wait *waits, u32 nr)
{
	u32 i;
	int ret;

	for (i = 0; i < nr; i++) {
		ret = memwait_word_get(&members[i].waiter.word, waits[i].addr, waits[i].flags);
		if (ret) {
			memwait_group_put(members, i);
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
static inline int memwait_group_compare(const struct memwait_wait *waits, u32 nr, u32 *index)
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
 * @members: their words are set, and they are in no queue
 * @waits: the words' expected values
 * @nr: how many
 * @gfp: as for memwait_queue_join()
 * @index: set to the first that could not join, unless the result is 0
 *
 * A notify may claim the group as soon as its first member has joined. If not all of them join, the
 * caller claims it if nobody else has, and in any case calls memwait_group_leave().
 *
 * Context: process context, may sleep.
 *
 * Return: 0, or what memwait_queue_join() says of the first one that could not join.
 */
static inline int memwait_group_join(struct memwait_member *members,
				     const struct memwait_wait *waits, u32 nr, gfp_t gfp,
				     u32 *index)
{
	u32 i;
	int ret;

	for (i = 0; i < nr; i++) {
		ret = memwait_queue_join(&members[i].waiter, &waits[i], gfp);
		if (ret) {
			*index = i;
			return ret;
		}
	}
	return 0;
}

/**
 * memwait_group_leave() - take the members of a group out of the queues that they are in
 * @members: of a group that is claimed. Others may do the same at the same time
 * @nr: how many
 *
 * Context: process context; takes the queues' locks, one at a time.
 */
static inline void memwait_group_leave(struct memwait_member *members, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		memwait_queue_leave(&members[i].waiter);
}

#endif /* MEMWAIT_GROUP_H */
