// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lock of a bucket, which nobody keeps from others.
 *
 * The words of a bucket may be those of several users. The hash has a secret seed, but by time one
 * can find out which words share a bucket. Where locks are not fair, a call in steps that drops the
 * lock and takes it again at once mostly gets it: with PREEMPT_RT, and in guests without
 * paravirtual locks, where a spinlock is a word that all try to set. So those who wait are counted
 * (.nr_locking): a step ends after the next waiter if there are any, and a call does not take the
 * lock again before somebody else has had it (.last), for a while. spin_is_contended() and
 * cond_resched_lock() would not do: on just these kernels they see nobody wait.
 *
 * Who joins or leaves queues with many waits, as WAIT_ASYNC, a close and a read of what has expired
 * or of groups, need not look: a lock section is that of one waiter, and between two waits the lock
 * is free for longer than it is held, while memory and pins come or go. So others are let in, even
 * where they must wake up first. Only the words of one wait follow each other at once,
 * MEMWAIT_GROUP_MAX at most.
 */
#include <linux/delay.h>

#include "memwait.h"

/* Pauses of the processor, some 10 us, in memwait_bucket_let_others(). */
#define MEMWAIT_LET_OTHERS	256

/**
 * memwait_bucket_wait_for_lock() - the slow path of memwait_bucket_lock()
 * @bucket: the bucket
 * @subclass: lockdep's
 *
 * Context: process context.
 */
void memwait_bucket_wait_for_lock(struct memwait_bucket *bucket, int subclass)
	__acquires(&bucket->lock)
{
	atomic_inc(&bucket->nr_locking);
	spin_lock_nested(&bucket->lock, subclass);
	atomic_dec(&bucket->nr_locking);
}

/**
 * memwait_bucket_let_others() - let those who wait for a bucket's lock have it
 * @bucket: the current thread may have had its lock last, and wants it again
 *
 * Where locks are not fair, who drops one and takes it again at once mostly gets it. Waits until
 * somebody else has had the lock, or so long that whoever waits for it must have been stopped.
 *
 * Context: process context, may sleep; no lock is held.
 */
void memwait_bucket_let_others(struct memwait_bucket *bucket)
{
	unsigned int tries;

	for (tries = 0; tries < MEMWAIT_LET_OTHERS; tries++) {
		if (!memwait_bucket_is_wanted(bucket) || READ_ONCE(bucket->last) != current)
			return;
		/* There, who waits sleeps, and is at the lock some time after its wake-up. */
		if (IS_ENABLED(CONFIG_PREEMPT_RT)) {
			usleep_range(50, 100);
			return;
		}
		cpu_relax();
	}
}
