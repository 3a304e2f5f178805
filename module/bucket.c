// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lock of a bucket, which no thread may monopolize.
 *
 * The words of a bucket may belong to several users. The hash has a secret seed, but by measuring
 * time a user can find out which words share a bucket. Spinlocks are not fair with PREEMPT_RT, and
 * in guests without paravirtual locks, where a spinlock is a word that all waiting CPUs try to set.
 * On such systems, a call that drops the lock between two steps and immediately takes it again
 * usually gets the lock before the waiting threads do. Therefore threads that wait for the lock are
 * counted (.nr_locking). While a thread is waiting, a step ends after the next waiter, and a call
 * does not take the lock again until another thread has held it (.last), or some time has passed.
 * spin_is_contended() and cond_resched_lock() would not help, because on exactly these kernels they
 * do not detect waiting threads.
 *
 * A call that queues or dequeues many waits (WAIT_ASYNC, a close, a read of expired waits or of
 * groups) need not check for waiting threads. Each lock section handles one waiter. Between two
 * waits the call allocates or frees memory and pins, so the lock is free for longer than it is
 * held, and other threads get it, even if they must wake up first. Only the lock sections for the
 * words of one wait follow each other immediately, at most MEMWAIT_GROUP_MAX of them.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>

#include "queue.h"

/* Number of calls of cpu_relax() in memwait_bucket_let_others(); they take about 10 us together. */
#define MEMWAIT_LET_OTHERS	256

/**
 * memwait_bucket_wait_for_lock() - the slow path of memwait_bucket_lock()
 * @bucket: the bucket
 * @subclass: lockdep's subclass
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

/*
 * Sleeps long enough for a woken thread to take the lock. Returns whether another thread took the
 * lock.
 */
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
 * @bucket: a bucket whose lock the current thread may have held last, and is about to take
 *
 * If threads are waiting for the lock, this function waits until another thread has held the lock,
 * or for some microseconds: locks are not fair on all kernels, see the top of this file. On
 * PREEMPT_RT a thread that waits for the lock sleeps, and may be unable to run; waiting for it
 * would prolong every call. If a call has waited in vain, then no call waits again, or ends a step
 * because of waiting threads, during the same jiffy.
 *
 * Context: process context, may sleep; no lock is held.
 *
 * Return: false if the threads that wait cannot run, so that the next step need not end because of
 * them.
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
