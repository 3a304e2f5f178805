// SPDX-License-Identifier: GPL-2.0-only
/*
 * WAIT_ASYNC: arming async waits. See async.c for how they end.
 */
#include <linux/overflow.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "context.h"
#include "trace.h"

/* Reports an entry's outcome; id and result are adjacent. */
static int memwait_arm_report(struct memwait_async __user *entry, u64 id, s32 result)
{
	return put_user(id, &entry->id) || put_user(result, &entry->result) ? -EFAULT : 0;
}

/*
 * Gives a wait its id and writes PENDING to user space. A fault must show before the wait is
 * queued. Returns 0 or a negative errno.
 */
static int memwait_arm_publish(struct memwait_async_waiter *wait,
			       struct memwait_async __user *entry)
{
	if (!wait->id)
		memwait_async_number(wait);
	return memwait_arm_report(entry, wait->id, MEMWAIT_PENDING);
}

static void memwait_arm_init(struct memwait_async_waiter *wait, u32 flags, u64 user_data,
			     ktime_t expires)
{
	wait->user_data = user_data;
	wait->count = 0;
	wait->reading = 0;
	wait->waiter.persistent = !!(flags & MEMWAIT_PERSISTENT);
	wait->waiter.listed = false;
	wait->waiter.bucket = NULL;
	wait->waiter.clock = flags & MEMWAIT_CLOCK_REALTIME ? MEMWAIT_REALTIME : MEMWAIT_MONOTONIC;
	if (memwait_async_is_timed(wait)) {
		timerqueue_init(memwait_deadline(wait));
		memwait_deadline(wait)->expires = expires;
	}
}

/*
 * Queues and charges a published wait on one word in one step. Returns MEMWAIT_PENDING, -ENOSPC, or
 * as memwait_queue_begin_join().
 */
static int memwait_arm_join(struct memwait_async_waiter *wait, const struct memwait_wait *arg)
{
	struct memwait_context *context = wait->context;
	struct memwait_bucket *bucket;
	LLIST_HEAD(counted);
	u32 nr;
	int ret;

	ret = memwait_queue_begin_join(&wait->waiter, arg, &bucket);
	if (ret)
		return ret;
	spin_lock(&context->lock);
	/* Charge last: a charge that another call has seen must not be taken back. */
	nr = 1 + memwait_pin_count(context, wait->waiter.word.pin, &counted);
	if (unlikely(!memwait_user_charge(context->user, MEMWAIT_WAITS, nr))) {
		memwait_pins_uncount(context, &counted);
		spin_unlock(&context->lock);
		memwait_queue_abandon(bucket, &wait->waiter);
		return -ENOSPC;
	}
	*memwait_pin_last(context, wait->waiter.word.key.owner) = wait->waiter.word.pin;
	memwait_queue_add(bucket, &wait->waiter);
	memwait_async_queued(wait);
	spin_unlock(&context->lock);
	__acquire(&bucket->lock);	/* for sparse */
	spin_unlock(&bucket->lock);
	return MEMWAIT_PENDING;
}

/**
 * struct memwait_arm - state of arming a wait on one word
 * @context: the caller's
 * @arg: copy of the entry
 * @entry: the entry in user space
 * @identity: the context's, with MEMWAIT_OWNED
 * @expires: the deadline
 * @word: the word, with its file while the present try lasts
 * @wait: %NULL until the checks have passed
 */
struct memwait_arm {
	struct memwait_context *context;
	const struct memwait_async *arg;
	struct memwait_async __user *entry;
	struct memwait_identity *identity;
	ktime_t expires;
	struct memwait_word word;
	struct memwait_async_waiter *wait;
};

/* Allocates and publishes the wait; may set @pin to one for the word. Returns 0 or an errno. */
static int memwait_arm_alloc(struct memwait_arm *arm, struct memwait_pin **pin)
{
	bool timed = arm->expires != KTIME_MAX;
	struct memwait_async_waiter *wait;

	wait = memwait_async_alloc(arm->context, timed, arm->word.key.owner, pin);
	if (!wait)
		return -ENOMEM;
	arm->wait = wait;
	memwait_arm_init(wait, arm->arg->wait.flags, arm->arg->user_data, arm->expires);
	wait->waiter.ops = &memwait_async_ops;
	wait->waiter.identity = arm->identity;
	if (unlikely(arm->identity) && !wait->waiter.watch) {
		wait->waiter.watch = memwait_watch_alloc();
		if (!wait->waiter.watch)
			return -ENOMEM;
	}
	return memwait_arm_publish(wait, arm->entry);
}

/* Called after the checks. Returns as memwait_arm_join(), or a negative errno. */
static int memwait_arm_try(struct memwait_arm *arm)
{
	struct memwait_pin *pin = NULL;
	struct memwait_waiter *waiter;
	int ret = 0;

	if (!arm->wait)
		ret = memwait_arm_alloc(arm, &pin);
	if (!ret && !pin) {
		pin = memwait_pin_get(arm->context, &arm->word);
		ret = pin ? 0 : -ENOMEM;
	}
	if (ret)
		goto drop;
	waiter = &arm->wait->waiter;
	waiter->number = 0;
	waiter->word.key = arm->word.key;
	waiter->word.pin = pin;
	ret = memwait_arm_join(arm->wait, &arm->arg->wait);
	if (likely(ret == MEMWAIT_PENDING))
		return ret;
drop:
	if (pin)
		memwait_pin_drop(pin, arm->context);
	return ret;
}

/*
 * Arms a wait on one word. Returns an outcome or a negative errno; the caller reports all but
 * MEMWAIT_PENDING.
 */
static int memwait_arm_one(struct memwait_context *context, const struct memwait_async *arg,
			   struct memwait_async __user *entry)
{
	struct memwait_arm arm __uninitialized;
	u32 index = 0;
	int ret;

	ret = memwait_check_wait(&arg->wait, MEMWAIT_ASYNC_FLAGS);
	if ((arg->wait.flags & MEMWAIT_PERSISTENT) && (arg->wait.flags & MEMWAIT_OWNED))
		ret = -EINVAL;
	if (!ret)
		ret = memwait_own_identity(arg->wait.flags, context, &arm.identity);
	if (ret)
		return ret;
	arm.context = context;
	arm.arg = arg;
	arm.entry = entry;
	arm.expires = memwait_expires(arg->wait.deadline, arg->wait.flags);
	arm.wait = NULL;

	for (;;) {
		ret = memwait_begin_get(&arm.word, 0, &arg->wait, 1);
		if (ret)
			break;
		ret = memwait_begin_check(&arg->wait, 1, arm.expires, arg->wait.flags, &index);
		if (!ret)
			ret = memwait_arm_try(&arm);
		memwait_begin_put(&arm.word, 0, 1);
		if (ret != -EAGAIN)
			break;
		ret = memwait_begin_again();
		if (ret)
			break;
	}

	if (arm.wait && ret != MEMWAIT_PENDING)
		memwait_async_drop(arm.wait);
	return ret;
}

/* Drops the pins of the first @nr members. */
static void memwait_arm_group_drop(struct memwait_async_group *group, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		memwait_pin_drop(group->members[i].waiter.word.pin, group->timed.wait.context);
}

/* Gives the members their words, and a pin for each owner. Returns 0 or -ENOMEM. */
static int memwait_arm_group_pin(struct memwait_async_group *group,
				 const struct memwait_word *words)
{
	struct memwait_member *members = group->members;
	struct memwait_pin *pin;
	u32 i, first;

	for (i = 0; i < group->group.nr; i++) {
		members[i].waiter.word.key = words[i].key;
		for (first = 0; words[first].key.owner != words[i].key.owner; first++)
			;
		if (first < i) {
			pin = members[first].waiter.word.pin;
			refcount_inc(&pin->refs);
		} else {
			pin = memwait_pin_get(group->timed.wait.context, &words[i]);
		}
		if (!pin) {
			memwait_arm_group_drop(group, i);
			return -ENOMEM;
		}
		members[i].waiter.word.pin = pin;
	}
	return 0;
}

/*
 * Joins the queues of a group, then charges it. Returns MEMWAIT_PENDING if the group is pending, or
 * was notified while joining and has its completion. Otherwise returns -ENOSPC or as
 * memwait_group_join(), and the pins are dropped.
 */
static int memwait_arm_group_join(struct memwait_async_group *group,
				  const struct memwait_wait *waits, u32 *index)
{
	struct memwait_async_waiter *wait = &group->timed.wait;
	struct memwait_context *context = wait->context;
	struct memwait_member *member, *notified;
	u32 nr = group->group.nr, i;
	LLIST_HEAD(counted);
	int ret;

	group->group.claimed = NULL;
	for (i = 0; i < group->group.nr; i++) {
		member = &group->members[i];
		member->group = &group->group;
		member->waiter.ops = &memwait_async_group_ops;
		member->waiter.bucket = NULL;
		member->waiter.number = 0;
		member->waiter.identity = NULL;
	}
	ret = memwait_group_join(&group->group, waits, index);

	/* Charge last: a charge that another call has seen must not be taken back. */
	spin_lock(&context->lock);
	notified = group->group.claimed;
	if (!ret || notified) {
		for (i = 0; i < group->group.nr; i++)
			nr += memwait_pin_count(context, group->members[i].waiter.word.pin,
						&counted);
		ret = memwait_user_charge(context->user, MEMWAIT_WAITS, nr) ? 0 : -ENOSPC;
		if (ret)
			memwait_pins_uncount(context, &counted);
	}
	for (i = 0; !ret && i < group->group.nr; i++) {
		member = &group->members[i];
		*memwait_pin_last(context, member->waiter.word.key.owner) = member->waiter.word.pin;
	}
	if (!ret && !notified)
		memwait_async_queued(wait);
	else if (!notified)
		WRITE_ONCE(group->group.claimed, MEMWAIT_CLAIMED_BY_ITSELF);
	spin_unlock(&context->lock);
	if (!ret && !notified)
		return MEMWAIT_PENDING;		/* others may have freed it */

	memwait_group_leave(&group->group);
	if (ret) {
		if (notified)
			memwait_pass_on(&notified->waiter.word.key, 1, NULL);
		memwait_arm_group_drop(group, group->group.nr);
		return ret;
	}

	/* The file is open, so the context stays. */
	spin_lock(&context->lock);
	trace_memwait_async_arm(wait);
	memwait_async_complete(wait, MEMWAIT_OK);
	spin_unlock(&context->lock);
	memwait_context_wake(context);
	return MEMWAIT_PENDING;
}

/* Allocates a group of @nr words, in no queue. Returns NULL on failure. */
static struct memwait_async_group *memwait_arm_group_alloc(struct memwait_context *context,
							   u32 nr, u32 flags, u64 user_data,
							   ktime_t expires)
{
	struct memwait_async_group *group;
	struct memwait_async_waiter *wait;

	group = kmalloc(struct_size(group, members, nr), MEMWAIT_GFP);
	if (!group)
		return NULL;
	refcount_set(&group->group.refs, 1);
	group->group.nr = nr;
	group->group.members = group->members;
	group->group.task = NULL;
	wait = &group->timed.wait;
	wait->waiter.state = MEMWAIT_ARMING;
	wait->waiter.kind = expires == KTIME_MAX ? MEMWAIT_GROUPED : MEMWAIT_TIMED_GROUP;
	wait->waiter.identity = NULL;
	wait->context = context;
	wait->id = 0;
	memwait_arm_init(wait, flags, user_data, expires);
	return group;
}

/* As memwait_arm_one(), for a group. Sets @index to the word for MEMWAIT_NOT_EQUAL. */
static int memwait_arm_group(struct memwait_async_group *group,
			     const struct memwait_wait *waits, struct memwait_word *words,
			     ktime_t expires, u32 flags, struct memwait_async __user *entry,
			     u32 *index)
{
	struct memwait_async_waiter *wait = &group->timed.wait;
	const size_t stride = sizeof(*words);
	u32 nr = group->group.nr;
	int ret;

	for (;;) {
		ret = memwait_begin_get(words, stride, waits, nr);
		if (ret)
			break;
		ret = memwait_begin_check(waits, nr, expires, flags, index);
		if (!ret && !wait->id)
			ret = memwait_arm_publish(wait, entry);
		if (!ret)
			ret = memwait_arm_group_pin(group, words);
		if (!ret)
			ret = memwait_arm_group_join(group, waits, index);
		memwait_begin_put(words, stride, nr);
		if (ret != -EAGAIN)
			break;
		ret = memwait_begin_again();
		if (ret)
			break;
	}

	if (ret != MEMWAIT_PENDING)
		memwait_async_drop(wait);
	return ret;
}

/* Arms a group from user space's description; reports the index for MEMWAIT_NOT_EQUAL. */
static int memwait_arm_any(struct memwait_context *context, const struct memwait_wait_any *any,
			   u64 user_data, struct memwait_async __user *entry)
{
	u32 flags = any->flags & ~MEMWAIT_GROUP, nr = any->count, index = 0;
	ktime_t expires = memwait_expires(any->deadline, flags);
	struct memwait_async_group *group;
	struct memwait_wait *waits;
	struct memwait_word *words;
	int ret;

	if ((flags & ~MEMWAIT_CLOCK_REALTIME) || any->reserved)
		return -EINVAL;
	if (!nr || nr > MEMWAIT_GROUP_MAX)
		return -EINVAL;

	waits = kmalloc_array(nr, sizeof(*waits) + sizeof(*words), MEMWAIT_GFP);
	if (!waits)
		return -ENOMEM;
	words = (struct memwait_word *)(waits + nr);
	ret = memwait_begin_copy(waits, any->waits, nr);
	if (ret)
		goto free;
	group = memwait_arm_group_alloc(context, nr, flags, user_data, expires);
	ret = group ? memwait_arm_group(group, waits, words, expires, flags, entry, &index) :
		      -ENOMEM;
	if (ret == MEMWAIT_NOT_EQUAL && put_user(index, &entry->any.index))
		ret = -EFAULT;
free:
	kfree(waits);
	return ret;
}

/* Arms one entry. Returns its outcome or a negative errno. */
static int memwait_arm_entry(struct memwait_context *context, struct memwait_async __user *entry,
			     u32 size)
{
	struct memwait_async arg __uninitialized;
	int ret;

	if (likely(size == sizeof(arg)))
		ret = copy_from_user(&arg, entry, sizeof(arg)) ? -EFAULT : 0;
	else
		ret = copy_struct_from_user(&arg, sizeof(arg), entry, size);
	if (ret == -EFAULT)
		return ret;	/* a report would fault, too */
	if (!ret && arg.reserved)
		ret = -EINVAL;
	if (!ret && (arg.wait.flags & MEMWAIT_GROUP))
		ret = memwait_arm_any(context, &arg.any, arg.user_data, entry);
	else if (!ret)
		ret = memwait_arm_one(context, &arg, entry);
	if (ret == -ERESTARTNOINTR)
		return memwait_arm_report(entry, 0, -EINTR) ?: ret;
	if (ret != MEMWAIT_PENDING && memwait_arm_report(entry, 0, ret))
		ret = -EFAULT;
	return ret;
}

/**
 * memwait_wait_async() - arm a batch of async waits
 * @context: the caller's, after memwait_context_use()
 * @batch: from user space, unchecked
 *
 * A signal ends the call between two entries.
 *
 * Context: process context, may sleep, never waits for a word.
 *
 * Return: number of entries processed, or a negative errno if the first one failed.
 */
int memwait_wait_async(struct memwait_context *context, const struct memwait_wait_async *batch)
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
		ret = memwait_arm_entry(context, u64_to_user_ptr(batch->waits + (u64)i * size),
					size);
		if (ret < 0)
			return i ?: ret;
		cond_resched();
		if (signal_pending(current))
			return i + 1;
	}
	return i;
}
