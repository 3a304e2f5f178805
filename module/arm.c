// SPDX-License-Identifier: GPL-2.0-only
/*
 * WAIT_ASYNC: arming async waits. See claim.c for how they end.
 */
#include <linux/uaccess.h>

#include "begin.h"
#include "compat.h"
#include "context.h"
#include "trace.h"

/* Reports an entry's outcome in the entry's members id and result, which are adjacent. */
static int memwait_arm_report(struct memwait_async __user *entry, u64 id, s32 result)
{
	return put_user(id, &entry->id) || put_user(result, &entry->result) ? -EFAULT : 0;
}

/*
 * Undoes memwait_arm_begin() of a wait that is in no queue. @pinned: number of words with pins.
 * @unused: receives the pins that no other wait uses.
 */
static void memwait_arm_undo(struct memwait_async_waiter *wait, u32 pinned,
			     struct llist_head *unused)
{
	struct memwait_context *context = wait->group.context;
	struct memwait_word *word;

	while (pinned--) {
		word = &wait->group.waiters[pinned].word;
		memwait_pin_put(word->pin, context, unused);
		word->file = NULL;
	}
	memwait_user_uncharge(context->user, MEMWAIT_WAITS, wait->group.nr);
}

/*
 * Charges a wait, and replaces the files of its words by pins, one for each space. Returns 0,
 * -ENOMEM or -ENOSPC.
 */
static __always_inline int memwait_arm_begin(struct memwait_async_waiter *wait, u32 nr,
					     struct llist_head *unused)
{
	struct memwait_waiter *waiters = wait->group.waiters;
	struct memwait_context *context = wait->group.context;
	struct memwait_pin *pin;
	u32 i, first;

	if (!memwait_user_charge(context->user, MEMWAIT_WAITS, nr))
		return -ENOSPC;
	for (i = 0; i < nr; i++) {
		for (first = 0; waiters[first].word.key.space != waiters[i].word.key.space;)
			first++;
		if (first < i) {
			pin = waiters[first].word.pin;
			refcount_inc(&pin->refs);
		} else {
			pin = memwait_pin_get(context, &waiters[i].word);
		}
		if (IS_ERR(pin)) {
			memwait_arm_undo(wait, i, unused);
			return PTR_ERR(pin);
		}
		memwait_word_put(&waiters[i].word);
		waiters[i].word.pin = pin;
	}
	return 0;
}

/*
 * Ends the arming of a wait that has not become pending. @ret: the result of joining the queues. If
 * a notify claimed the wait while it joined, completes the wait and returns MEMWAIT_PENDING.
 * Otherwise takes the wait out of its queues and returns @ret.
 */
static int memwait_arm_end(struct memwait_async_waiter *wait, int ret)
{
	struct memwait_context *context = wait->group.context;	/* not freed: the file is open */
	struct memwait_group *group = &wait->group;

	spin_lock(&context->lock);
	if (group->claimed) {
		memwait_async_remember(wait);
		trace_memwait_async_arm(wait);
		memwait_async_complete(wait, group->result);
		memwait_context_unlock_and_wake(context);
		return MEMWAIT_PENDING;
	}
	WRITE_ONCE(group->claimed, MEMWAIT_CLAIMED_BY_ITSELF);
	spin_unlock(&context->lock);
	memwait_group_leave(group, group->nr);
	return ret;
}

/*
 * Writes PENDING to user space first, because a fault must be detected before the wait is charged.
 * Charges the wait before it joins a queue, so that nothing can fail after the wait was notified.
 * Returns MEMWAIT_PENDING; an outcome or -EAGAIN from memwait_group_join(); or a negative errno.
 */
static __always_inline int memwait_arm_try(struct memwait_async_waiter *wait,
					   const struct memwait_wait *waits, u32 nr,
					   struct memwait_async __user *entry, u32 *index,
					   struct llist_head *unused)
{
	struct memwait_group *group = &wait->group;
	int ret;

	ret = memwait_arm_report(entry, wait->id, MEMWAIT_PENDING);
	if (ret)
		return ret;
	memwait_group_init(group, nr);
	ret = memwait_arm_begin(wait, nr, unused);
	if (ret)
		return ret;
	ret = memwait_group_join(group, waits, nr, index, memwait_async_joined);
	if (ret == MEMWAIT_PENDING)
		return ret;	/* another thread may have freed the wait */
	ret = memwait_arm_end(wait, ret);
	if (ret != MEMWAIT_PENDING)
		memwait_arm_undo(wait, nr, unused);
	return ret;
}

/*
 * Arms a wait. Returns an outcome or a negative errno. The caller must retry after -EAGAIN, and
 * must report all other results except MEMWAIT_PENDING. @index: must be 0; is set to the word for
 * MEMWAIT_NOT_EQUAL. The function is inline, because a wait on one word takes 7 % less time if the
 * compiler removes the loops over the words.
 */
static __always_inline int memwait_arm(struct memwait_context *context,
				       const struct memwait_async *arg,
				       const struct memwait_wait *waits, u32 nr,
				       struct memwait_identity *identity,
				       struct memwait_async __user *entry, u32 *index,
				       struct llist_head *unused)
{
	u32 flags = arg->wait.flags;
	struct memwait_async_waiter *wait;
	struct memwait_group *group;
	int ret;

	wait = memwait_async_alloc(context, nr, identity);
	if (!wait)
		return -ENOMEM;
	if (unlikely(identity))
		memwait_owned_of(wait->group.waiters)->identity = identity;
	wait->user_data = arg->user_data;
	wait->count = 0;
	wait->reading = 0;
	group = &wait->group;
	group->persistent = flags & MEMWAIT_PERSISTENT;
	group->listed = false;
	group->clock = memwait_async_clock(flags);
	group->deadline.expires = memwait_expires(arg->wait.deadline, flags);

	ret = memwait_begin_get(group->waiters, waits, nr);
	if (!ret) {
		ret = memwait_begin_check(waits, nr, group->deadline.expires, group->clock,
					  index);
		if (!ret)
			ret = memwait_arm_try(wait, waits, nr, entry, index, unused);
		if (ret == MEMWAIT_PENDING)
			return ret;
		memwait_begin_put(group->waiters, nr);
	}
	memwait_async_free(context, &wait, 1);
	return ret;
}

/* Arms a wait on one word. The return values are those of memwait_arm(). */
static int memwait_arm_one(struct memwait_context *context, const struct memwait_async *arg,
			   struct memwait_async __user *entry, struct llist_head *unused)
{
	struct memwait_identity *identity;
	u32 index = 0;
	int ret;

	ret = memwait_check_wait(&arg->wait, MEMWAIT_ASYNC_FLAGS);
	if ((arg->wait.flags & MEMWAIT_PERSISTENT) && (arg->wait.flags & MEMWAIT_OWNED))
		ret = -EINVAL;
	if (!ret)
		ret = memwait_own_identity(arg->wait.flags, context, &identity);
	return ret ?: memwait_arm(context, arg, &arg->wait, 1, identity, entry, &index, unused);
}

/* Arms a wait on several words. For MEMWAIT_NOT_EQUAL, reports the index of the word. */
static int memwait_arm_any(struct memwait_context *context, const struct memwait_async *arg,
			   struct memwait_async __user *entry, struct llist_head *unused)
{
	u32 nr = arg->any.count, index = 0;
	struct memwait_wait *waits;
	int ret;

	if ((arg->any.flags & ~(MEMWAIT_GROUP | MEMWAIT_CLOCK_REALTIME)) || arg->any.reserved)
		return -EINVAL;
	if (!nr || nr > MEMWAIT_GROUP_MAX)
		return -EINVAL;

	waits = kmalloc_array(nr, sizeof(*waits), MEMWAIT_GFP);
	if (!waits)
		return -ENOMEM;
	ret = memwait_begin_copy(waits, arg->any.waits, nr);
	if (!ret)
		ret = memwait_arm(context, arg, waits, nr, NULL, entry, &index, unused);
	if (ret == MEMWAIT_NOT_EQUAL && put_user(index, &entry->any.index))
		ret = -EFAULT;
	kfree(waits);
	return ret;
}

/*
 * Arms one entry, and reports all outcomes and errors except -EAGAIN, after which the entry must be
 * armed again. Returns the entry's outcome or a negative errno.
 */
static int memwait_arm_entry(struct memwait_context *context, struct memwait_async __user *entry,
			     u32 size, struct llist_head *unused)
{
	struct memwait_async arg __uninitialized;
	int ret;

	if (likely(size == sizeof(arg)))
		ret = copy_from_user(&arg, entry, sizeof(arg)) ? -EFAULT : 0;
	else
		ret = copy_struct_from_user(&arg, sizeof(arg), entry, size);
	if (ret == -EFAULT)
		return ret;	/* reporting the error would fault as well */
	if (!ret && arg.reserved)
		ret = -EINVAL;
	if (!ret && (arg.wait.flags & MEMWAIT_GROUP))
		ret = memwait_arm_any(context, &arg, entry, unused);
	else if (!ret)
		ret = memwait_arm_one(context, &arg, entry, unused);
	if (ret != MEMWAIT_PENDING && ret != -EAGAIN && memwait_arm_report(entry, 0, ret))
		ret = -EFAULT;
	return ret;
}

/*
 * Arms one entry. Each attempt is enclosed by memwait_context_use() and memwait_context_unuse(). If
 * an attempt fails, the pins of the wait are put after memwait_context_unuse(), because putting a
 * pin may block forever. The return values are those of memwait_arm_entry().
 */
static int memwait_arm_in_use(struct memwait_context *context, struct memwait_async __user *entry,
			      u32 size)
{
	LLIST_HEAD(unused);
	int ret;

	do {
		ret = memwait_context_use(context);
		if (ret)
			return memwait_arm_report(entry, 0, ret) ?: ret;
		ret = memwait_arm_entry(context, entry, size, &unused);
		memwait_context_unuse(context);
		if (unlikely(!llist_empty(&unused)))
			memwait_pins_put(context, &unused);
		if (likely(ret != -EAGAIN))
			return ret;
		ret = memwait_begin_again();
	} while (!ret);
	return memwait_arm_report(entry, 0, -EINTR) ?: ret;
}

/**
 * memwait_ioc_wait_async() - arm a batch of async waits
 * @context: the caller's context
 * @batch: argument from user space, unchecked
 *
 * A signal ends the call between two entries.
 *
 * Context: process context, may sleep, never waits for a word. If an entry is refused and the last
 * reference to a file is dropped, sleeps as long as the file system needs.
 *
 * Return: number of entries processed, or a negative errno if the first entry failed.
 */
int memwait_ioc_wait_async(struct memwait_context *context, const struct memwait_wait_async *batch)
{
	u32 size = batch->entry_size, i;
	int ret;

	if (batch->count > INT_MAX || size < sizeof(struct memwait_async))
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	if (!memwait_is_address(batch->waits))
		return -EFAULT;

	for (i = 0; i < batch->count; i++) {
		ret = memwait_arm_in_use(context, u64_to_user_ptr(batch->waits + (u64)i * size),
					 size);
		if (ret < 0)
			return i ?: ret;
		cond_resched();
		if (signal_pending(current))
			return i + 1;
	}
	return i;
}
