// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lock of a bucket, which no thread may monopolize.
 *
 * The words of a bucket may belong to several users. The hash has a secret seed, but by measuring
 * time a user can find out which words share a bucket. Where locks are not fair, a call in steps
 * that drops the lock and takes it again immediately mostly gets it: with PREEMPT_RT, and in guests
 * without paravirtual locks, where a spinlock is a word that all try to set. So threads that wait
 * for the lock are counted (.nr_locking): if there are any, a step ends after the next waiter, and
 * a call does not take the lock again until another thread has held it (.last), or some time has
 * passed. spin_is_contended() and cond_resched_lock() would not help: on exactly these kernels they
 * do not see waiting threads.
 *
 * A call that joins or leaves queues with many waits (WAIT_ASYNC, a close, a read of expired waits
 * or of groups) need not check for waiting threads: each lock section handles one waiter, and
 * between two waits the lock is free for longer than it is held, while memory and pins are
 * allocated or freed. So other threads get the lock, even where they must wake up first. Only the
 * words of one wait follow each other immediately, MEMWAIT_GROUP_MAX at most.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>

#include "queue.h"

/* Pauses of the processor, some 10 us, in memwait_bucket_let_others(). */
#define MEMWAIT_LET_OTHERS	256

/**
 * memwait_bucket_wait_for_lock() - the slow path of memwait_bucket_lock()
 * @bucket: the bucket
 * @subclass: lockdep's
 *
 * A thread that is counted in .nr_locking spins, and is not preempted, except on PREEMPT_RT.
 *
 * Context: process context.
 */
void memwait_bucket_wait_for_lock(struct memwait_bucket *bucket, int subclass)
	__acquires(&bucket->lock)
{
	memwait_step_begin();
	atomic_inc(&bucket->nr_locking);
	spin_lock_nested(&bucket->lock, subclass);
	atomic_dec(&bucket->nr_locking);
	memwait_step_done();
}

/* Sleeps until a woken thread can have taken the lock. Returns whether another thread took it. */
static bool memwait_bucket_sleep(struct memwait_bucket *bucket)
{
	if (READ_ONCE(bucket->futile) == (u32)jiffies)
		return false;
	usleep_range(50, 100);
	if (READ_ONCE(bucket->last) != current)
		return true;
	WRITE_ONCE(bucket->futile, (u32)jiffies);
	return false;
}

/**
 * memwait_bucket_let_others() - let threads that wait for a bucket's lock take it
 * @bucket: the current thread may have held its lock last, and wants it again
 *
 * Where locks are not fair, a thread that drops a lock and takes it again immediately mostly gets
 * it. Waits until another thread has held the lock, or for some microseconds. On PREEMPT_RT a
 * thread that waits for the lock sleeps, and may be unable to run: it would make every call long.
 * If a call has waited for that thread without result, no call waits for it again in that jiffy,
 * nor ends a step for it.
 *
 * Context: process context, may sleep; no lock is held.
 *
 * Return: false if the threads that wait are unable to run: the next step need not end for them.
 */
bool memwait_bucket_let_others(struct memwait_bucket *bucket)
{
	unsigned int tries;

	for (tries = 0; tries < MEMWAIT_LET_OTHERS; tries++) {
		if (!memwait_bucket_is_wanted(bucket) || READ_ONCE(bucket->last) != current)
			return true;
		if (IS_ENABLED(CONFIG_PREEMPT_RT))
			return memwait_bucket_sleep(bucket);
		cpu_relax();
	}
	return true;
}
