// SPDX-License-Identifier: GPL-2.0-only
/*
 * Async waits: arm, complete, cancel. async.pml is a model of it.
 *
 * One lock per context, memwait_context.lock, protects the context and the state of each of its
 * waits. It nests inside the lock of a queue. A wait passes through
 *
 *	MEMWAIT_ARMING -> MEMWAIT_QUEUED --> MEMWAIT_COMPLETED -> freed by read
 *	     |                  |                    ^
 *	     |                  +--> MEMWAIT_CLAIMED -> freed by cancel, close
 *	     +-> freed, not queued                   |
 *	     +-> a group that was notified while it joined
 *
 * The transition from QUEUED, under the lock, ends the wait, and happens once:
 *
 *	notify	 holds the queue's lock too: takes the wait out of the queue and completes it; with
 *		 TIMED_OUT, and goes on to the next waiter, if the deadline has passed
 *	deadline does the same, in read(2), see expire.c
 *	cancel	 claims it, takes it out of the queue afterwards, frees it
 *	close	 as cancel, for all; then passes on what was completed with OK and never read
 *
 * So a wait that has ended otherwise has its completion already when cancel finds that out.
 *
 * The memory of a completion is that of its wait, so a notify needs none. A wait that is freed goes
 * back to the slab, or is kept by its context, with its index, for the next wait. That saves an
 * allocation, and the table of ids: without it an async wait takes 1.4 to 1.8 times as long. Spares
 * are counted for their user.
 *
 * A group (see group.c) is one wait with several members. A notify may come while they are still
 * joining: it claims the group by memwait_group.claimed, and the arming thread completes it when
 * done. Once the group is QUEUED, the notify or the deadline completes it at once, and takes its
 * members out after it has dropped the locks, as a read or close does: memwait_group.refs keeps the
 * memory until both are done.
 *
 * How a completion wakes pollers and readers is told at the top of wake.c.
 */
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/xarray.h>

#include "compat.h"
#include "context.h"
#include "group.h"
#include "memwait.h"
#include "trace.h"

/*
 * An id is the wait's index in context->waits in the low bits, and how many waits the context had
 * seen in the others: it comes again after 2^40 waits. Index 0 is not used, nor is id 0.
 */
#define MEMWAIT_ID_INDEX_BITS	24
#define MEMWAIT_ID_INDEX_MASK	((1UL << MEMWAIT_ID_INDEX_BITS) - 1)

/* Spares of each kind that a context keeps, at most: enough for batches of usual length. */
#define MEMWAIT_MAX_SPARES	256

static struct kmem_cache *memwait_async_cache;
static struct kmem_cache *memwait_timed_cache;

static void memwait_async_uncharge(struct memwait_async_wait *wait)
{
	memwait_user_uncharge(wait->context->user, MEMWAIT_WAITS, memwait_async_words(wait));
}

static_assert(offsetof(struct memwait_timed_wait, wait) == 0);
static_assert(offsetof(struct memwait_async_group, group) == 0);

static void memwait_async_erase(struct memwait_async_wait *wait)
{
	lockdep_assert_held(&wait->context->lock);
	xa_erase(&wait->context->waits, wait->id & MEMWAIT_ID_INDEX_MASK);
}

/* Gives back the pins of a group, whose members are in no queue. */
static void memwait_group_unpin(struct memwait_group *group, struct memwait_context *context,
				struct memwait_pin **unused)
{
	u32 i;

	for (i = 0; i < group->nr; i++)
		memwait_pin_put(group->members[i].waiter.word.pin, context, unused);
}

/**
 * memwait_async_end() - give back all that an ended wait has, but its index and memory
 * @wait: completed, or claimed by the caller; nothing else knows of it but the table of ids, and a
 *	notify that is about to take the members of a group out
 * @unused: gets pins that only this wait had, for memwait_pins_put()
 *
 * Context: process context; takes queues' locks, one at a time.
 */
void memwait_async_end(struct memwait_async_wait *wait, struct memwait_pin **unused)
{
	struct memwait_kept_queues *kept = &wait->context->user->kept;

	if (memwait_async_is_group(wait)) {
		memwait_group_leave(&to_group(wait)->group, kept);
		memwait_group_unpin(&to_group(wait)->group, wait->context, unused);
	} else {
		memwait_queue_leave(&wait->waiter, kept);
		memwait_pin_put(wait->waiter.word.pin, wait->context, unused);
	}
	memwait_async_uncharge(wait);
}

/* Gives the memory of a wait back, which has no index any more. */
static void memwait_async_put(struct memwait_async_wait *wait)
{
	if (memwait_async_is_group(wait))
		memwait_group_put(&to_group(wait)->group);
	else
		kmem_cache_free(memwait_async_is_timed(wait) ? memwait_timed_cache :
							       memwait_async_cache, wait);
}

/* Returns whether a wait that has ended is kept; if not, it has no index any more. */
static bool memwait_async_keep(struct memwait_async_wait *wait)
{
	struct memwait_context *context = wait->context;
	struct memwait_spares *spares = &context->spares[memwait_async_is_timed(wait)];

	lockdep_assert_held(&context->lock);
	if (memwait_async_is_group(wait) || spares->nr == MEMWAIT_MAX_SPARES ||
	    !memwait_user_charge(context->user, MEMWAIT_SPARES, 1)) {
		memwait_async_erase(wait);
		return false;
	}
	WRITE_ONCE(wait->waiter.state, MEMWAIT_SPARE);
	wait->next_spare = spares->first;
	spares->first = wait;
	spares->nr++;
	return true;
}

/**
 * memwait_async_free() - free waits, or keep them for later ones
 * @context: of the waits
 * @waits: the waits, after memwait_async_end(); the array is overwritten
 * @nr: how many, few enough for one step
 *
 * Context: process context; takes the context's lock.
 */
void memwait_async_free(struct memwait_context *context, struct memwait_async_wait **waits,
			unsigned int nr)
{
	unsigned int i;

	spin_lock(&context->lock);
	for (i = 0; i < nr; i++) {
		if (memwait_async_keep(waits[i]))
			waits[i] = NULL;
	}
	spin_unlock(&context->lock);
	for (i = 0; i < nr; i++) {
		if (waits[i])
			memwait_async_put(waits[i]);
	}
}

/**
 * memwait_async_claim() - end a wait, if it is pending
 * @wait: the wait
 *
 * Context: the context's lock is held.
 *
 * Return: whether the caller has ended the wait, and has to take it on from there.
 */
bool memwait_async_claim(struct memwait_async_wait *wait)
{
	struct memwait_context *context = wait->context;

	lockdep_assert_held(&context->lock);
	if (wait->waiter.state != MEMWAIT_QUEUED)
		return false;
	WRITE_ONCE(wait->waiter.state, MEMWAIT_CLAIMED);
	context->nr_pending--;
	if (memwait_async_is_timed(wait))
		timerqueue_del(&context->deadlines[wait->waiter.clock], memwait_deadline(wait));
	return true;
}

/**
 * memwait_async_complete() - turn a wait into a completion
 * @wait: claimed; in no queue, or a group
 * @result: MEMWAIT_OK, MEMWAIT_TIMED_OUT or MEMWAIT_OWNER_DIED
 *
 * Context: the context's lock is held.
 */
void memwait_async_complete(struct memwait_async_wait *wait, u8 result)
{
	struct memwait_context *context = wait->context;

	lockdep_assert_held(&context->lock);
	WRITE_ONCE(wait->waiter.state, MEMWAIT_COMPLETED);
	wait->waiter.result = result;
	list_add_tail(&wait->waiter.node, &context->completed);
	WRITE_ONCE(context->nr_completed, context->nr_completed + 1);
	trace_memwait_async_complete(wait);
}

/* From now on it is pending, and others may end and free it as soon as the locks are dropped. */
static void memwait_async_queued(struct memwait_async_wait *wait)
{
	struct memwait_context *context = wait->context;
	u8 clock = wait->waiter.clock;

	lockdep_assert_held(&context->lock);
	WRITE_ONCE(wait->waiter.state, MEMWAIT_QUEUED);
	context->nr_pending++;
	if (memwait_async_is_timed(wait)) {
		struct timerqueue_node *deadline = memwait_deadline(wait);

		if (timerqueue_add(&context->deadlines[clock], deadline))
			hrtimer_start(&context->timers[clock], deadline->expires,
				      HRTIMER_MODE_ABS);
	}
	trace_memwait_async_arm(wait);
}

/*
 * Whether the deadline of a wait has passed, which no reader has seen yet: then it must not take a
 * notify from the next waiter.
 */
static bool memwait_async_is_overdue(struct memwait_async_wait *wait)
{
	return memwait_async_is_timed(wait) &&
	       memwait_deadline(wait)->expires <= memwait_now(wait->waiter.clock);
}

static enum memwait_claim memwait_async_end_claimed(struct memwait_waiter *waiter, u8 result,
						    struct memwait_wakes *wakes)
{
	struct memwait_async_wait *wait = to_async(waiter);
	struct memwait_context *context = wait->context;
	enum memwait_claim claim = MEMWAIT_NOT_CLAIMED;

	spin_lock(&context->lock);
	if (memwait_async_claim(wait)) {
		if (memwait_async_is_overdue(wait)) {
			claim = MEMWAIT_OVERDUE;
			memwait_queue_remove(waiter);
			memwait_async_complete(wait, MEMWAIT_TIMED_OUT);
		} else {
			claim = MEMWAIT_NOTIFIED_IT;
			memwait_queue_remove_claimed(waiter);
			memwait_async_complete(wait, result);
		}
		memwait_wakes_add(wakes, context);
	}
	spin_unlock(&context->lock);
	return claim;
}

static bool memwait_async_is_pending(const struct memwait_waiter *waiter)
{
	return READ_ONCE(waiter->state) == MEMWAIT_QUEUED;
}

static void memwait_async_describe_wait(struct memwait_async_wait *wait,
					struct memwait_description *description)
{
	description->kind = memwait_async_is_group(wait) ? "group" : "async";
	description->pid = wait->context->pid;
	description->context = wait->context->number;
	description->id = wait->id;
	description->expires = memwait_async_is_timed(wait) ? memwait_deadline(wait)->expires :
							      KTIME_MAX;
	description->clock = wait->waiter.clock;
	strscpy(description->command, wait->context->command, sizeof(description->command));
}

static void memwait_async_describe(const struct memwait_waiter *waiter,
				   struct memwait_description *description)
{
	memwait_async_describe_wait(to_async(waiter), description);
}

static const struct memwait_waiter_ops memwait_async_ops = {
	.claim = memwait_async_end_claimed,
	.is_pending = memwait_async_is_pending,
	.describe = memwait_async_describe,
};

static struct memwait_async_group *to_async_group(const struct memwait_waiter *waiter)
{
	return container_of(to_member(waiter)->group, struct memwait_async_group, group);
}

/* The words of a group are not waited for with MEMWAIT_OWNED: the result is OK. */
static enum memwait_claim memwait_async_group_notified(struct memwait_waiter *waiter, u8 result,
						       struct memwait_wakes *wakes)
{
	struct memwait_async_group *group = to_async_group(waiter);
	struct memwait_async_wait *wait = &group->timed.wait;
	struct memwait_context *context = wait->context;
	enum memwait_claim claim = MEMWAIT_NOT_CLAIMED;
	bool completed, claimed;

	spin_lock(&context->lock);
	completed = memwait_async_claim(wait);
	claimed = completed ||
		  (wait->waiter.state == MEMWAIT_ARMING && !group->group.claimed);
	if (claimed) {
		WRITE_ONCE(group->group.claimed, to_member(waiter));
		memwait_queue_remove(waiter);
		claim = MEMWAIT_NOTIFIED_IT;
	}
	if (completed) {
		if (memwait_async_is_overdue(wait))
			claim = MEMWAIT_OVERDUE;
		memwait_group_keep(&group->group, wakes);
		memwait_async_complete(wait, claim == MEMWAIT_OVERDUE ? MEMWAIT_TIMED_OUT :
									MEMWAIT_OK);
		memwait_wakes_add(wakes, context);
	}
	spin_unlock(&context->lock);
	return claim;
}

static bool memwait_async_group_is_pending(const struct memwait_waiter *waiter)
{
	const struct memwait_async_group *group = to_async_group(waiter);

	return READ_ONCE(group->timed.wait.waiter.state) <= MEMWAIT_QUEUED &&
	       !READ_ONCE(group->group.claimed);
}

static void memwait_async_group_describe(const struct memwait_waiter *waiter,
					 struct memwait_description *description)
{
	memwait_async_describe_wait(&to_async_group(waiter)->timed.wait, description);
}

static const struct memwait_waiter_ops memwait_async_group_ops = {
	.claim = memwait_async_group_notified,
	.is_pending = memwait_async_group_is_pending,
	.describe = memwait_async_group_describe,
};

/* MEMWAIT_IOC_WAIT_ASYNC */

static void memwait_async_set_id(struct memwait_async_wait *wait, u32 index)
{
	lockdep_assert_held(&wait->context->lock);
	wait->id = ++wait->context->nr_armed << MEMWAIT_ID_INDEX_BITS | index;
}

/* Gives the wait an index, and its id. */
static int memwait_async_number(struct memwait_async_wait *wait)
{
	struct memwait_context *context = wait->context;
	u32 index;
	int err;

	err = xa_alloc(&context->waits, &index, wait, XA_LIMIT(1, MEMWAIT_ID_INDEX_MASK),
		       MEMWAIT_GFP);
	if (err)
		return err == -EBUSY ? -ENOSPC : err;
	spin_lock(&context->lock);
	memwait_async_set_id(wait, index);
	spin_unlock(&context->lock);
	return 0;
}

/* Tells user space what became of an entry: id and result stand side by side. */
static int memwait_async_report(struct memwait_async __user *entry, u64 id, s32 result)
{
	return put_user(id, &entry->id) || put_user(result, &entry->result) ? -EFAULT : 0;
}

/*
 * Gives a wait its id, and lets the user's copy say PENDING: once the wait is queued it would be
 * too late to find that it cannot be written. Returns 0 or a negative errno.
 */
static int memwait_async_publish(struct memwait_async_wait *wait,
				 struct memwait_async __user *entry)
{
	int err = wait->id ? 0 : memwait_async_number(wait);

	return err ?: memwait_async_report(entry, wait->id, MEMWAIT_PENDING);
}

/* Gives a wait back that was not queued, and is not counted. */
static void memwait_async_drop(struct memwait_async_wait *wait)
{
	if (wait->id)
		memwait_async_free(wait->context, &wait, 1);
	else
		memwait_async_put(wait);
}

static void memwait_async_init_wait(struct memwait_async_wait *wait, u32 flags, u64 user_data,
				    ktime_t expires)
{
	wait->user_data = user_data;
	wait->waiter.queue = NULL;
	wait->waiter.clock = flags & MEMWAIT_CLOCK_REALTIME ? MEMWAIT_REALTIME : MEMWAIT_MONOTONIC;
	if (memwait_async_is_timed(wait)) {
		timerqueue_init(memwait_deadline(wait));
		memwait_deadline(wait)->expires = expires;
	}
}

/*
 * A wait on one word: a spare one, which has an id, or a new one, or %NULL. *@pinned says whether
 * the context has a pin of the word's owner.
 */
static struct memwait_async_wait *memwait_async_alloc(struct memwait_context *context, bool timed,
						      u64 owner, bool *pinned)
{
	struct memwait_spares *spares = &context->spares[timed];
	struct memwait_async_wait *wait;

	spin_lock(&context->lock);
	*pinned = memwait_pin_find(context, owner);
	wait = spares->first;
	if (wait) {
		spares->first = wait->next_spare;
		spares->nr--;
		memwait_user_uncharge(context->user, MEMWAIT_SPARES, 1);
		memwait_async_set_id(wait, wait->id & MEMWAIT_ID_INDEX_MASK);
		WRITE_ONCE(wait->waiter.state, MEMWAIT_ARMING);
	}
	spin_unlock(&context->lock);
	if (wait)
		return wait;

	wait = kmem_cache_alloc(timed ? memwait_timed_cache : memwait_async_cache, MEMWAIT_GFP);
	if (wait) {
		wait->waiter.ops = &memwait_async_ops;
		wait->waiter.state = MEMWAIT_ARMING;
		wait->waiter.kind = timed ? MEMWAIT_TIMED : MEMWAIT_UNTIMED;
		wait->context = context;
		wait->id = 0;
	}
	return wait;
}

/*
 * Queues a published wait on one word, and counts it, in one step. Returns MEMWAIT_PENDING; what
 * memwait_queue_begin_join() says; or what memwait_pins_get() says.
 */
static int memwait_async_join(struct memwait_async_wait *wait, const struct memwait_wait *arg,
			      struct memwait_pin **prepared)
{
	struct memwait_context *context = wait->context;
	struct memwait_queue *queue;
	struct memwait_pin *pin;
	int ret;

	ret = memwait_queue_begin_join(&wait->waiter, arg, &context->user->kept, &queue);
	if (ret)
		return ret;
	spin_lock(&context->lock);
	pin = memwait_pin_find(context, wait->waiter.word.key.owner);
	if (unlikely(!pin))
		ret = memwait_pins_get(context, &wait->waiter.word, 0, 1, prepared);
	else if (memwait_user_charge(context->user, MEMWAIT_WAITS, 1))
		memwait_pin_give(pin, &wait->waiter.word);
	else
		ret = -ENOSPC;
	if (likely(!ret)) {
		memwait_queue_append(queue, &wait->waiter);
		memwait_async_queued(wait);
		ret = MEMWAIT_PENDING;
	}
	spin_unlock(&context->lock);
	memwait_queue_unlock(queue, &context->user->kept);
	return ret;
}

/*
 * Arms one wait on one word. Returns an outcome or a negative errno; only after MEMWAIT_PENDING
 * nothing needs to be reported any more.
 */
static int memwait_async_arm(struct memwait_context *context, const struct memwait_async *arg,
			     struct memwait_async __user *entry)
{
	struct memwait_async_wait *wait = NULL;
	struct memwait_pin *prepared = NULL;
	struct memwait_identity *identity;
	struct memwait_word word;
	bool pinned = false;
	ktime_t expires;
	int ret;

	ret = memwait_check_wait(&arg->wait, MEMWAIT_WAIT_FLAGS);
	if (!ret)
		ret = memwait_own_identity(arg->wait.flags, context, &identity);
	if (ret)
		return ret;
	expires = memwait_expires(arg->wait.deadline, arg->wait.flags);

	do {
		ret = memwait_word_get(&word, arg->wait.addr, arg->wait.flags);
		if (ret)
			break;
		ret = memwait_compare(arg->wait.addr, arg->wait.expected, arg->wait.flags);
		if (!ret && memwait_names_the_dead(&arg->wait))
			ret = MEMWAIT_OWNER_DIED;
		if (!ret && memwait_has_passed(expires, arg->wait.flags))
			ret = MEMWAIT_TIMED_OUT;
		if (!ret && !wait) {
			wait = memwait_async_alloc(context, expires != KTIME_MAX, word.key.owner,
						   &pinned);
			if (wait) {
				memwait_async_init_wait(wait, arg->wait.flags, arg->user_data,
							expires);
				wait->waiter.identity = identity;
			}
			ret = wait ? memwait_async_publish(wait, entry) : -ENOMEM;
		}
		if (!ret && !pinned)
			ret = memwait_pins_prepare(context, &word, 0, 1, &prepared);
		if (!ret) {
			pinned = false;		/* to look again, if it is to be tried again */
			wait->waiter.word = word;
			ret = memwait_async_join(wait, &arg->wait, &prepared);
			if (ret == MEMWAIT_PENDING)
				break;
		}
		memwait_word_put(&word);
		ret = memwait_queue_retry(ret);
	} while (ret == -EAGAIN);

	memwait_pins_drop(&prepared);
	if (wait && ret != MEMWAIT_PENDING)
		memwait_async_drop(wait);
	return ret;
}

/*
 * Counts a group and pins its words. Returns 0; or a negative errno, and then its words are given
 * back.
 */
static int memwait_async_group_pin(struct memwait_group *group, struct memwait_context *context,
				   struct memwait_pin **prepared)
{
	struct memwait_word *words = &group->members->waiter.word;
	const size_t stride = sizeof(*group->members);
	int err;

	spin_lock(&context->lock);
	err = memwait_pins_get(context, words, stride, group->nr, prepared);
	spin_unlock(&context->lock);
	if (err == -EAGAIN)
		err = memwait_pins_prepare(context, words, stride, group->nr, prepared) ?: err;
	if (err)
		memwait_group_put_words(group, group->nr);
	return err;
}

/*
 * Puts the members of a group that is counted into their queues. Returns MEMWAIT_PENDING if the
 * group is pending, or has been notified on the way: then it has its completion. Otherwise what
 * memwait_group_join() says, and the group is in no queue, not counted, and has no pins.
 */
static int memwait_async_group_join(struct memwait_async_group *group,
				    const struct memwait_wait *waits, u32 *index)
{
	struct memwait_async_wait *wait = &group->timed.wait;
	struct memwait_context *context = wait->context;
	struct memwait_pin *unused = NULL;
	struct memwait_member *member;
	bool notified;
	u32 i;
	int ret;

	group->group.claimed = NULL;
	for (i = 0; i < group->group.nr; i++) {
		member = &group->members[i];
		member->group = &group->group;
		member->waiter.ops = &memwait_async_group_ops;
		member->waiter.queue = NULL;
		member->waiter.identity = NULL;
	}
	ret = memwait_group_join(&group->group, waits, index, &context->user->kept);

	spin_lock(&context->lock);
	notified = group->group.claimed;
	if (!ret && !notified)
		memwait_async_queued(wait);
	else if (!notified)
		WRITE_ONCE(group->group.claimed, MEMWAIT_CLAIMED_BY_ITSELF);
	spin_unlock(&context->lock);
	if (!ret && !notified)
		return MEMWAIT_PENDING;		/* by now others may have ended and freed it */

	memwait_group_leave(&group->group, &context->user->kept);
	if (!notified) {
		memwait_group_unpin(&group->group, context, &unused);
		memwait_pins_put(context->user, unused);
		memwait_async_uncharge(wait);
		return ret;
	}

	/* The file is open: its context stays. */
	spin_lock(&context->lock);
	trace_memwait_async_arm(wait);
	memwait_async_complete(wait, MEMWAIT_OK);
	spin_unlock(&context->lock);
	memwait_context_wake(context);
	return MEMWAIT_PENDING;
}

/* As memwait_async_arm(), for a group. Tells user space the index of a word that is not equal. */
static int memwait_async_arm_group(struct memwait_context *context,
				   const struct memwait_wait_any *any, u64 user_data,
				   struct memwait_async __user *entry)
{
	u32 flags = any->flags & ~MEMWAIT_GROUP, nr = any->count, index = 0;
	struct memwait_pin *prepared = NULL;
	struct memwait_async_group *group;
	struct memwait_wait *waits;
	bool published = false;
	ktime_t expires;
	int ret;

	if ((flags & ~MEMWAIT_CLOCK_REALTIME) || any->reserved)
		return -EINVAL;
	if (!nr || nr > MEMWAIT_GROUP_MAX)
		return -EINVAL;

	waits = kmalloc_array(nr, sizeof(*waits), MEMWAIT_GFP);
	group = kmalloc(struct_size(group, members, nr), MEMWAIT_GFP);
	if (!waits || !group) {
		ret = -ENOMEM;
		goto free;
	}
	ret = memwait_group_copy(waits, any->waits, nr);
	if (ret)
		goto free;

	expires = memwait_expires(any->deadline, flags);
	refcount_set(&group->group.refs, 1);
	group->group.nr = nr;
	group->group.members = group->members;
	group->group.returned = NULL;
	group->group.task = NULL;
	group->timed.wait.waiter.state = MEMWAIT_ARMING;
	group->timed.wait.waiter.kind = expires == KTIME_MAX ? MEMWAIT_GROUPED :
							       MEMWAIT_TIMED_GROUP;
	group->timed.wait.context = context;
	group->timed.wait.id = 0;
	group->timed.wait.waiter.identity = NULL;
	memwait_async_init_wait(&group->timed.wait, flags, user_data, expires);

	do {
		ret = memwait_group_get(&group->group, waits);
		if (ret)
			break;
		ret = memwait_group_compare(waits, nr, &index);
		if (!ret && memwait_has_passed(expires, flags))
			ret = MEMWAIT_TIMED_OUT;
		if (!ret && !published) {
			ret = memwait_async_publish(&group->timed.wait, entry);
			published = !ret;
		}
		if (ret)
			memwait_group_put_words(&group->group, nr);
		else
			ret = memwait_async_group_pin(&group->group, context, &prepared);
		if (!ret)
			ret = memwait_async_group_join(group, waits, &index);
		ret = memwait_queue_retry(ret);
	} while (ret == -EAGAIN);

	memwait_pins_drop(&prepared);
	if (ret != MEMWAIT_PENDING)
		memwait_async_drop(&group->timed.wait);
	group = NULL;
	if (ret == MEMWAIT_NOT_EQUAL && put_user(index, &entry->any.index))
		ret = -EFAULT;
free:
	kfree(group);
	kfree(waits);
	return ret;
}

/* Arms one entry. Returns what became of it, an outcome or a negative errno. */
static int memwait_async_one(struct memwait_context *context, struct memwait_async __user *entry,
			     u32 size)
{
	struct memwait_async arg __uninitialized;
	int ret;

	if (likely(size == sizeof(arg)))
		ret = copy_from_user(&arg, entry, sizeof(arg)) ? -EFAULT : 0;
	else
		ret = copy_struct_from_user(&arg, sizeof(arg), entry, size);
	if (ret == -EFAULT)
		return ret;	/* and it could not be told, either */
	if (!ret && arg.reserved)
		ret = -EINVAL;
	if (!ret && (arg.wait.flags & MEMWAIT_GROUP))
		ret = memwait_async_arm_group(context, &arg.any, arg.user_data, entry);
	else if (!ret)
		ret = memwait_async_arm(context, &arg, entry);
	if (ret != MEMWAIT_PENDING && memwait_async_report(entry, 0, ret))
		ret = -EFAULT;
	return ret;
}

/**
 * memwait_wait_async() - MEMWAIT_IOC_WAIT_ASYNC
 * @context: the caller's
 * @batch: as it came from user space
 *
 * A signal ends the call between two entries.
 *
 * Context: process context, may sleep, never waits for a word.
 *
 * Return: how many entries were processed, or a negative errno if the first one failed.
 */
int memwait_wait_async(struct memwait_context *context, const struct memwait_wait_async *batch)
{
	u32 size = batch->entry_size, i;
	int ret = memwait_context_use(context);

	if (ret)
		return ret;
	if (batch->count > INT_MAX || size < sizeof(struct memwait_async))
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;

	for (i = 0; i < batch->count; i++) {
		ret = memwait_async_one(context, u64_to_user_ptr(batch->waits + (u64)i * size),
					size);
		if (ret < 0)
			return i ?: ret;
		cond_resched();
		if (signal_pending(current))
			return i + 1;
	}
	return i;
}

/**
 * memwait_cancel() - MEMWAIT_IOC_CANCEL
 * @context: the caller's
 * @cancel: as it came from user space
 *
 * Context: process context.
 *
 * Return: 0: there will be no completion; -ENOENT: the wait has ended, and its completion can be
 * read, or was read, or the wait never was; -EINVAL.
 */
int memwait_cancel(struct memwait_context *context, const struct memwait_cancel *cancel)
{
	struct memwait_pin *unused = NULL;
	struct memwait_async_wait *wait;
	bool claimed;
	int ret = memwait_context_use(context);

	if (ret)
		return ret;
	if (cancel->flags || cancel->reserved)
		return -EINVAL;

	spin_lock(&context->lock);
	wait = xa_load(&context->waits, cancel->id & MEMWAIT_ID_INDEX_MASK);
	claimed = wait && wait->id == cancel->id && memwait_async_claim(wait);
	spin_unlock(&context->lock);
	if (!claimed)
		return -ENOENT;

	trace_memwait_cancel(wait);
	memwait_async_end(wait, &unused);
	memwait_async_free(context, &wait, 1);
	memwait_pins_put(context->user, unused);
	return 0;
}

/* Frees a wait of a context that ends. */
static void memwait_async_close_one(struct memwait_async_wait *wait)
{
	struct memwait_context *context = wait->context;

	spin_lock(&context->lock);
	memwait_async_erase(wait);
	spin_unlock(&context->lock);
	memwait_async_put(wait);
	cond_resched();
}

/* Takes out the oldest completion of a context that ends, or returns NULL. */
static struct memwait_async_wait *memwait_async_first_completed(struct memwait_context *context)
{
	struct memwait_async_wait *wait;

	spin_lock(&context->lock);
	wait = list_first_entry_or_null(&context->completed, struct memwait_async_wait,
					waiter.node);
	if (wait) {
		list_del(&wait->waiter.node);
		WRITE_ONCE(context->nr_completed, context->nr_completed - 1);
	}
	spin_unlock(&context->lock);
	return wait;
}

/**
 * memwait_async_end_some() - end some of the waits of a context that ends
 * @context: nothing is armed, cancelled or read any more, nor ended by another thread; notifies may
 *	still come to its waits
 * @nr: how many to look at
 * @unused: gets pins that only these waits had, for memwait_pins_put()
 *
 * What was completed with MEMWAIT_OK and never read goes on to the next waiter of its word.
 *
 * Context: process context, may sleep.
 *
 * Return: whether there may be more.
 */
bool memwait_async_end_some(struct memwait_context *context, unsigned int nr,
			    struct memwait_pin **unused)
{
	struct memwait_async_wait *wait;
	const struct memwait_key *key;
	bool claimed;

	/* First leave every queue, lest what is passed on below come back to this context. */
	for (; nr; nr--) {
		wait = xa_find_after(&context->waits, &context->ended_upto, ULONG_MAX, XA_PRESENT);
		if (!wait)
			break;
		spin_lock(&context->lock);
		claimed = memwait_async_claim(wait);
		spin_unlock(&context->lock);
		if (claimed) {
			trace_memwait_cancel(wait);
			memwait_async_end(wait, unused);
			memwait_async_close_one(wait);
		}
		cond_resched();
	}

	for (; nr; nr--) {
		wait = memwait_async_first_completed(context);
		if (!wait)
			return false;
		key = &wait->waiter.word.key;
		if (memwait_async_is_group(wait) && wait->waiter.result == MEMWAIT_OK)
			key = &to_group(wait)->group.claimed->waiter.word.key;
		if (wait->waiter.result == MEMWAIT_OK)
			memwait_pass_on(key, &context->user->kept);
		memwait_async_end(wait, unused);
		memwait_async_close_one(wait);
	}
	return true;
}

/**
 * memwait_async_close() - end all waits of a context
 * @context: closed, its deadlines too; as for memwait_async_end_some()
 *
 * Context: process context, may sleep.
 *
 * Return: the context's pins, for memwait_pins_put(); or %NULL, if it had none.
 */
struct memwait_pin *memwait_async_close(struct memwait_context *context)
{
	struct memwait_pin *unused = NULL;
	struct memwait_async_wait *wait;
	int kind;

	while (memwait_async_end_some(context, UINT_MAX, &unused))
		;

	for (kind = 0; kind < ARRAY_SIZE(context->spares); kind++) {
		memwait_user_uncharge(context->user, MEMWAIT_SPARES, context->spares[kind].nr);
		while ((wait = context->spares[kind].first)) {
			context->spares[kind].first = wait->next_spare;
			memwait_async_close_one(wait);
		}
	}
	xa_destroy(&context->waits);
	return unused;
}

int __init memwait_async_init(void)
{
	memwait_async_cache = KMEM_CACHE(memwait_async_wait, 0);
	memwait_timed_cache = KMEM_CACHE(memwait_timed_wait, 0);
	if (memwait_async_cache && memwait_timed_cache)
		return 0;

	memwait_async_exit();
	return -ENOMEM;
}

void memwait_async_exit(void)
{
	kmem_cache_destroy(memwait_timed_cache);
	kmem_cache_destroy(memwait_async_cache);
}
