// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requeue: wakes waiters of a word, and moves others to another word.
 *
 * Requeue locks both queues, and inserts missing ones. So every other call sees a waiter either in
 * the source's or in the target's queue; .queue is never %NULL in between. memwait_queue_leave()
 * locks .queue and then checks .queue again, so a deadline, signal or cancel follows the waiter to
 * its new queue. A waiter that is claimed concurrently may count as moved: the move came first.
 * Requeue needs no (A): it always locks the source's queue, and passes (B) if it inserts that
 * queue.
 *
 * Lock order: requeue trylocks the second queue. If that fails or the queue is missing, requeue
 * holds both queues by .nr_calls, so that neither is reused for another word, and locks the lower
 * address first.
 */
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "begin.h"
#include "call.h"
#include "compat.h"
#include "identity.h"
#include "memwait.h"
#include "trace.h"

enum { SOURCE, TARGET };

static void memwait_pair_unlock(struct memwait_queue *queues[2], struct memwait_kept_queues *kept)
{
	bool keep[2];
	int i;

	keep[TARGET] = queues[TARGET] != queues[SOURCE] &&
		       memwait_queue_unlock_only(queues[TARGET]);
	keep[SOURCE] = memwait_queue_unlock_only(queues[SOURCE]);
	for (i = 0; i < 2; i++) {
		if (keep[i])
			memwait_queue_keep(queues[i], kept);
	}
}

/* Locks two queues held by .nr_calls, which may be the same. */
static void memwait_pair_lock(struct memwait_queue *queues[2])
{
	struct memwait_queue *first = min(queues[SOURCE], queues[TARGET]);
	struct memwait_queue *second = max(queues[SOURCE], queues[TARGET]);

	spin_lock(&first->lock);
	__release(&first->lock);	/* see __memwait_queue_find() */
	if (first != second) {
		spin_lock_nested(&second->lock, 1);
		__release(&second->lock);
	}
}

/*
 * Finds or inserts the queues of two words and locks them; equal keys yield the same queue. Returns
 * 0 or -ENOMEM.
 */
static int memwait_pair_find(struct memwait_queue *queues[2], const struct memwait_key *source,
			     const struct memwait_key *target, struct memwait_kept_queues *kept)
{
	queues[SOURCE] = memwait_queue_find_or_insert(source);
	if (!queues[SOURCE])
		return -ENOMEM;
	queues[TARGET] = memwait_queue_try_find(target, queues[SOURCE]);
	if (likely(queues[TARGET]))
		return 0;

	queues[SOURCE]->nr_calls++;
	memwait_queue_unlock(queues[SOURCE], kept);
	queues[TARGET] = memwait_queue_find_or_insert(target);
	if (queues[TARGET]) {
		queues[TARGET]->nr_calls++;
		memwait_queue_unlock(queues[TARGET], kept);
		memwait_pair_lock(queues);
		queues[SOURCE]->nr_calls--;
		queues[TARGET]->nr_calls--;
		return 0;
	}
	queues[TARGET] = queues[SOURCE];
	memwait_pair_lock(queues);
	queues[SOURCE]->nr_calls--;
	memwait_pair_unlock(queues, kept);
	return -ENOMEM;
}

/*
 * Moves some of the oldest waiters of one locked queue to the end of another. Within one queue they
 * stay where they are, and are only counted. If any of them waits with MEMWAIT_OWNED and the
 * calling thread has an id, the target also watches that thread from then on (.mover): a thread
 * that moved waiters has to see that they are woken. Returns whether there may be more to do.
 */
static bool memwait_call_move(struct memwait_call *call, struct memwait_queue *queues[2],
			      const struct memwait_key *target)
{
	struct memwait_queue *from = queues[SOURCE], *to = queues[TARGET];
	struct memwait_waiter *waiter;
	struct memwait_identity *caller;
	unsigned int looked = 0;
	bool more = false, owned = false;

	lockdep_assert_held(&from->lock);
	lockdep_assert_held(&to->lock);
	while (call->moved < call->move) {
		waiter = memwait_call_next(call, from);
		if (!waiter)
			break;
		if (looked++ == MEMWAIT_STEP) {
			more = true;
			break;
		}
		call->reached = waiter->number;
		if (!waiter->ops->is_pending(waiter)) {
			memwait_queue_remove(waiter);
			continue;
		}
		owned = owned || waiter->identity;
		call->moved++;
		if (from == to) {
			memwait_queue_stay(waiter);
			continue;
		}
		memwait_queue_move(waiter, to);
		if (waiter->identity)
			list_move_tail(&waiter->owned_node, &to->owned);
		waiter->word.key = *target;
	}
	if (owned) {
		caller = memwait_identity_of(current);
		if (caller)
			memwait_queue_moved_by(to, caller);
	}
	return more;
}

/* All steps but the first. The call holds both queues by .nr_calls. */
static void memwait_requeue_rest(struct memwait_call *call, struct memwait_queue *queues[2],
				 const struct memwait_key *target)
{
	bool more;

	do {
		more = memwait_call_pause(call);
		memwait_step_begin();
		memwait_pair_lock(queues);
		more = more && (memwait_call_claim(call, queues[SOURCE]) ||
				memwait_call_move(call, queues, target));
		if (!more) {
			queues[SOURCE]->nr_calls--;
			queues[TARGET]->nr_calls--;
		}
		memwait_pair_unlock(queues, call->kept);
		memwait_step_end(call);
	} while (more);
}

/*
 * Compares the source word, wakes its oldest waiters, and moves others to the target. The target
 * has the same owner, so a waiter's reference covers both words. The comparison and the first step
 * are atomic with respect to all other operations on both words. Returns 0; MEMWAIT_NOT_EQUAL;
 * -EAGAIN if the word's page must be faulted in first; or -ENOMEM: even a word without waiters
 * needs a queue here.
 */
static int memwait_requeue_words(struct memwait_requeue *requeue, const struct memwait_key *source,
				 const struct memwait_key *target, struct memwait_kept_queues *kept)
{
	struct memwait_call call __uninitialized;
	struct memwait_queue *queues[2];
	bool more = false;
	int ret;

	ret = memwait_pair_find(queues, source, target, kept);
	if (ret)
		return ret;

	memwait_call_init(&call, requeue->count, requeue->move, kept);
	pagefault_disable();
	ret = memwait_compare(requeue->addr, requeue->expected, requeue->flags);
	pagefault_enable();
	if (!ret) {
		memwait_call_start(&call, queues[SOURCE]);
		more = memwait_call_claim(&call, queues[SOURCE]) ||
		       memwait_call_move(&call, queues, target);
	}
	if (more) {
		memwait_call_hold(&call, queues[SOURCE]);
		queues[TARGET]->nr_calls++;
	}
	memwait_step_begin();
	memwait_pair_unlock(queues, kept);
	memwait_step_end(&call);
	if (more)
		memwait_requeue_rest(&call, queues, target);
	requeue->woken = call.woken;
	requeue->moved = call.moved;
	if (!ret)
		trace_memwait_requeue(source, target, requeue);
	return ret == -EFAULT ? -EAGAIN : ret;
}

/* Finds the target's key, faults the source word in, then calls memwait_requeue_words(). */
static int memwait_requeue_from(struct memwait_requeue *requeue, const struct memwait_key *source,
				struct memwait_kept_queues *kept)
{
	struct memwait_word target;
	int ret;

	ret = memwait_word_get(&target, requeue->target, requeue->flags);
	if (ret)
		return ret;
	/* A waiter must not come to hold a reference that it did not ask for. */
	ret = source->owner == target.key.owner ? 0 : -EXDEV;
	if (!ret)
		ret = memwait_compare(requeue->addr, requeue->expected, requeue->flags);
	if (!ret)
		ret = memwait_requeue_words(requeue, source, &target.key, kept);
	memwait_word_put(&target);
	return ret;
}

/**
 * memwait_requeue() - MEMWAIT_IOC_REQUEUE
 * @requeue: from user space, unchecked
 * @user: its user address
 * @kept: see memwait_queue_unlock()
 *
 * Context: process context, may sleep; takes the queues' locks.
 *
 * Return: 0; MEMWAIT_NOT_EQUAL if the word holds another value, and nothing was done; or a negative
 * errno, see uapi/linux/memwait.h.
 */
int memwait_requeue(struct memwait_requeue *requeue, struct memwait_requeue __user *user,
		    struct memwait_kept_queues *kept)
{
	struct memwait_word source;
	int ret;

	if (requeue->reserved)
		return -EINVAL;
	ret = memwait_check(requeue->addr, requeue->flags, MEMWAIT_WORD_FLAGS);
	if (!ret)
		ret = memwait_check(requeue->target, requeue->flags, MEMWAIT_WORD_FLAGS);
	if (ret)
		return ret;
	if (!IS_ENABLED(CONFIG_64BIT) && memwait_size(requeue->flags) == 8)
		return -EOPNOTSUPP;

	requeue->woken = 0;
	requeue->moved = 0;
	if (put_user(0, &user->woken) || put_user(0, &user->moved))
		return -EFAULT;

	for (;;) {
		ret = memwait_word_get(&source, requeue->addr, requeue->flags);
		if (ret)
			return ret;
		ret = memwait_requeue_from(requeue, &source.key, kept);
		memwait_word_put(&source);
		if (ret != -EAGAIN)
			break;
		ret = memwait_begin_again(-EINTR);
		if (ret)
			break;
	}

	if (!ret && (put_user(requeue->woken, &user->woken) ||
		     put_user(requeue->moved, &user->moved)))
		ret = -EFAULT;
	return ret;
}
