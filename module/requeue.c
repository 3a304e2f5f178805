// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requeue: wakes waiters of a word, and moves more waiters to another word.
 *
 * Requeue locks both buckets. Therefore every other call sees a waiter either in the source's or in
 * the target's queue, and .bucket is never %NULL during a move. memwait_queue_leave() locks .bucket
 * and then checks .bucket again, so a deadline, signal or cancel follows the waiter to its new
 * queue. A waiter that is claimed concurrently may count as moved, because the move came first.
 * Requeue needs no (A), because it always locks the source's bucket.
 *
 * (H) A caller that finds the target's word free at any time after the end of a step must notify
 * that word. A thread that changes the word later must find the moved waiters. Therefore there is a
 * full barrier between the store to the target's .nr_waiters and the return to user space, like (B)
 * before the load of a word.
 *
 * Lock order: the bucket at the lower address first, then as in queue.c.
 */
#include <linux/minmax.h>
#include <linux/uaccess.h>

#include "begin.h"
#include "compat.h"
#include "scan.h"
#include "trace.h"

static void memwait_pair_lock(struct memwait_bucket *source, struct memwait_bucket *target)
{
	struct memwait_bucket *first = min(source, target), *second = max(source, target);

	memwait_bucket_lock(first);
	__release(&first->lock);	/* for sparse, here and below */
	if (first != second) {
		memwait_bucket_lock_nested(second, SINGLE_DEPTH_NESTING);
		__release(&second->lock);
	}
}

static void memwait_pair_unlock(struct memwait_bucket *source, struct memwait_bucket *target)
{
	if (source != target) {
		__acquire(&target->lock);
		spin_unlock(&target->lock);
	}
	__acquire(&source->lock);
	spin_unlock(&source->lock);
}

static bool memwait_waiter_is_persistent(const struct memwait_waiter *waiter)
{
	const struct memwait_group *group = memwait_group_of(waiter);

	return group->async && group->persistent;
}

/*
 * Whether a step moves all waiters of a bucket, except persistent waits, to an empty bucket. In
 * this case the tree is moved as a whole, which takes a third of the time that moving each waiter
 * would take.
 */
static bool memwait_scan_moves_bucket(const struct memwait_scan *scan,
				      const struct memwait_bucket *to)
{
	const struct memwait_bucket *from = scan->bucket;
	const struct memwait_waiter *first, *last;

	if (to->nr_waiters || !from->nr_waiters ||
	    from->nr_waiters > min_t(u32, scan->move - scan->moved, MEMWAIT_STEP))
		return false;
	first = memwait_waiter_at(rb_first(&from->waiters));
	last = memwait_waiter_at(rb_last(&from->waiters));
	return !memwait_key_cmp(&first->word.key, scan->key) && first->number > scan->reached &&
	       !memwait_key_cmp(&last->word.key, scan->key) && last->number <= scan->number;
}

/*
 * Moves some of the oldest waiters of one word to the end of another word's queue. Does not move
 * persistent waits, because a close must pass their notifies on to the next waiter of the word that
 * was notified. If both words are the same, the waiters do not move, and are only counted. Returns
 * whether there may be more to do. @wide: both words have 64 bits.
 */
static bool memwait_scan_move(struct memwait_scan *scan, struct memwait_bucket *to,
			      const struct memwait_key *target, bool wide)
{
	bool same = !memwait_key_cmp(scan->key, target), whole, more = false;
	struct rb_root staying = RB_ROOT;
	struct memwait_waiter *waiter;
	unsigned int looked = 0;
	struct rb_node *next;

	lockdep_assert_held(&to->lock);
	if (scan->moved == scan->move)
		return false;
	whole = memwait_scan_moves_bucket(scan, to);
	for (waiter = memwait_scan_next(scan); waiter; waiter = memwait_scan_after(scan, next)) {
		if (looked == MEMWAIT_STEP ||
		    (looked && !whole && scan->gives_way &&
		     (memwait_bucket_is_wanted(scan->bucket) || memwait_bucket_is_wanted(to)))) {
			more = true;
			break;
		}
		looked++;
		scan->reached = waiter->number;
		next = rb_next(&waiter->node);
		if (!memwait_group_is_pending(memwait_group_of(waiter))) {
			memwait_queue_remove(waiter);
			continue;
		}
		if (unlikely(memwait_waiter_is_persistent(waiter))) {
			if (whole)
				memwait_queue_keep(waiter, &staying);
			continue;
		}
		if (!same) {
			memwait_queue_move(waiter, to, target, whole);
			if (unlikely(waiter->owned))
				memwait_owned_of(waiter)->wide = wide;
		}
		if (++scan->moved == scan->move)
			break;
	}
	if (whole) {
		to->waiters = scan->bucket->waiters;
		scan->bucket->waiters = staying;
	}
	smp_mb();	/* (H) pairs with (A) */
	return more;
}

static bool memwait_scan_requeue(struct memwait_scan *scan, struct memwait_bucket *to,
				 const struct memwait_key *target, bool wide)
{
	return memwait_scan_claim(scan) || memwait_scan_move(scan, to, target, wide);
}

/*
 * Compares the source word, wakes its oldest waiters, and moves more waiters to the target. The
 * target belongs to the same space, so a waiter's reference covers both words. The comparison and
 * the first wake-up or move are atomic with respect to all other operations on both words: after a
 * step that finds only waiters that other threads have claimed, the word is compared again. Returns
 * 0; MEMWAIT_NOT_EQUAL; or -EAGAIN if the word's page must be faulted in first.
 */
static int memwait_requeue_words(struct memwait_requeue *requeue, const struct memwait_key *source,
				 const struct memwait_key *target)
{
	struct memwait_bucket *from = memwait_bucket_of(source), *to = memwait_bucket_of(target);
	const bool wide = memwait_size(requeue->flags) == 8;
	struct memwait_scan scan __uninitialized;
	bool more;
	int ret;

	memwait_scan_init(&scan, requeue->count, requeue->move);
	memwait_pair_lock(from, to);
	memwait_scan_start(&scan, from, source);
	for (;;) {
		if (!scan.woken && !scan.moved) {
			pagefault_disable();
			ret = memwait_compare(requeue->addr, requeue->expected, requeue->flags);
			pagefault_enable();
		}
		more = !ret && memwait_scan_requeue(&scan, to, target, wide);
		memwait_step_begin();
		memwait_pair_unlock(from, to);
		memwait_step_end(&scan);
		if (!more)
			break;
		if (!memwait_scan_pause(&scan))
			break;
		scan.gives_way &= memwait_bucket_let_others(to);
		memwait_pair_lock(from, to);
	}
	requeue->woken = scan.woken;
	requeue->moved = scan.moved;
	if (!ret)
		trace_memwait_requeue(source, target, requeue);
	return ret == -EFAULT ? -EAGAIN : ret;
}

/* Finds the target's key, faults the source word in, then calls memwait_requeue_words(). */
static int memwait_requeue_from(struct memwait_requeue *requeue, const struct memwait_key *source)
{
	struct memwait_word target;
	int ret;

	ret = memwait_word_get(&target, requeue->target, requeue->flags);
	if (ret)
		return ret;
	/* A moved waiter must not hold a reference to an object that it did not name. */
	ret = source->space == target.key.space ? 0 : -EXDEV;
	if (!ret)
		ret = memwait_compare(requeue->addr, requeue->expected, requeue->flags);
	if (!ret)
		ret = memwait_requeue_words(requeue, source, &target.key);
	memwait_word_put(&target);
	return ret;
}

/**
 * memwait_ioc_requeue() - MEMWAIT_IOC_REQUEUE
 * @requeue: argument from user space, unchecked
 * @user: its user address
 *
 * Context: process context, may sleep; takes the buckets' locks.
 *
 * Return: 0; MEMWAIT_NOT_EQUAL if the word has a different value; nothing was done then; or a
 * negative errno, see uapi/linux/memwait.h.
 */
int memwait_ioc_requeue(struct memwait_requeue *requeue, struct memwait_requeue __user *user)
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
		ret = memwait_requeue_from(requeue, &source.key);
		memwait_word_put(&source);
		if (ret != -EAGAIN)
			break;
		ret = memwait_begin_again();
		if (ret)
			break;
	}

	if (!ret && (put_user(requeue->woken, &user->woken) ||
		     put_user(requeue->moved, &user->moved)))
		ret = -EFAULT;
	return ret;
}
