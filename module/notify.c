// SPDX-License-Identifier: GPL-2.0-only
/*
 * Notify, and the steps of every scan that claims waiters.
 *
 * A step claims waiters under the bucket's lock, up to the capacity of struct memwait_wakes. The
 * step takes a reference to each thread and context, and does not touch a waiter after it
 * drops the lock. A thread or context may have ended its wait before its wake-up; it then gets a
 * spurious wake-up, which every sleeper tolerates.
 *
 * Preemption is disabled from the first claim to the last wake-up of threads, readers and pollers.
 * Therefore no waiter has to wait until the notifier is scheduled, or until another waiter does
 * something. With PREEMPT_RT locks may sleep, so preemption is disabled only while threads and
 * readers are woken. On such kernels, a claimed thread that has not been woken yet still wakes up
 * at its deadline or is killed by SIGKILL, like a thread that futex(2) is about to wake.
 *
 * Preemption is enabled again after one lock section and its wake-ups, before the thread takes a
 * bucket's lock again. Therefore each word of a call for many words, and each word to which a death
 * is reported, is a separate step.
 *
 * The other waiters of a wait that was claimed stay in their queues until the wait's owner takes
 * them out. A notify that finds such a waiter earlier dequeues it without counting it, so this
 * happens at most once for each waiter. Each such waiter is charged to its user like a pending
 * waiter, or belongs to a thread that has been woken.
 *
 * A call may be rescheduled between steps. The call touches no waiter that joined after the call
 * began, so it ends. Only SIGKILL ends it early: if another signal did so, a notify of all waiters
 * could leave some of them asleep, and the caller would not know. A notify that belongs to a change
 * of the word, and a notify that is passed on, do not end early.
 */
#include <linux/freezer.h>
#include <linux/minmax.h>
#include <linux/sched/task.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "context.h"
#include "scan.h"
#include "trace.h"

/**
 * memwait_step_end() - wake threads and contexts claimed since memwait_step_begin()
 * @scan: the scan
 *
 * Context: process context, may sleep; no bucket's lock is held.
 */
void memwait_step_end(struct memwait_scan *scan)
{
	struct memwait_wakes *wakes = &scan->wakes;
	unsigned int i;

	preempt_disable();	/* else a woken thread may preempt this thread for a long time */
	for (i = 0; i < wakes->nr_tasks; i++) {
		/* If several threads are woken, each may have another CPU to run on. */
		if (unlikely(scan->kind == MEMWAIT_SCAN_HANDS_OVER) && scan->woken == 1)
			memwait_wake_up_here(wakes->tasks[i]);
		else
			wake_up_process(wakes->tasks[i]);
	}
	preempt_enable();
	for (i = 0; i < wakes->nr_contexts; i++)
		memwait_context_wake_pollers(wakes->contexts[i]);
	memwait_step_done();
	for (i = 0; i < wakes->nr_tasks; i++)
		put_task_struct(wakes->tasks[i]);
	for (i = 0; i < wakes->nr_contexts; i++)
		memwait_context_put(wakes->contexts[i]);
	wakes->looked = 0;
	wakes->nr_tasks = 0;
	wakes->nr_contexts = 0;
	wakes->crowded = false;
}

/**
 * memwait_scan_init() - initialise a scan
 * @scan: the scan
 * @count: maximum number of waiters to wake
 * @move: maximum number of waiters to move
 *
 * Context: any.
 */
void memwait_scan_init(struct memwait_scan *scan, u32 count, u32 move)
{
	scan->count = count;
	scan->woken = 0;
	scan->move = move;
	scan->moved = 0;
	scan->kind = MEMWAIT_SCAN;
	scan->gives_way = true;
	scan->wakes.call = 0;
	scan->wakes.looked = 0;
	scan->wakes.nr_tasks = 0;
	scan->wakes.nr_contexts = 0;
	scan->wakes.crowded = false;
}

/**
 * memwait_scan_start() - limit a scan to the present waiters of a word
 * @scan: the scan
 * @bucket: the word's bucket
 * @key: the word's key
 *
 * Context: the bucket's lock is held.
 */
void memwait_scan_start(struct memwait_scan *scan, struct memwait_bucket *bucket,
			const struct memwait_key *key)
{
	lockdep_assert_held(&bucket->lock);
	scan->bucket = bucket;
	scan->key = key;
	scan->number = bucket->number;
	scan->reached = 0;
	if (unlikely(min(scan->count, bucket->nr_waiters) > MEMWAIT_STEP_POLLED) &&
	    !scan->wakes.call)
		scan->wakes.call = memwait_new_call();
}

/*
 * Whether the step ends because other threads are waiting for the lock. A call that changes the
 * word does not end its step before it has woken a waiter: its next step would begin with the first
 * waiter again, and a thread that joins and leaves the queue repeatedly could prolong the call.
 */
static bool memwait_scan_gives_way(const struct memwait_scan *scan)
{
	return scan->wakes.looked && (scan->woken || scan->kind != MEMWAIT_SCAN_SURE) &&
	       memwait_bucket_is_wanted(scan->bucket) && scan->gives_way;
}

/**
 * memwait_scan_claim() - claim the oldest waiters of a word, in one step
 * @scan: the scan. Waiters that other threads have claimed are dequeued
 *
 * Context: the bucket's lock is held.
 *
 * Return: whether there may be more to do.
 */
bool memwait_scan_claim(struct memwait_scan *scan)
{
	struct memwait_waiter *waiter;
	enum memwait_claim claim;
	struct rb_node *next;

	if (scan->woken == scan->count)
		return false;
	for (waiter = memwait_scan_next(scan); waiter;
	     waiter = next ? memwait_scan_after(scan, next) : memwait_scan_next(scan)) {
		if (memwait_wakes_are_full(&scan->wakes) || memwait_scan_gives_way(scan))
			return true;
		scan->wakes.looked++;
		scan->reached = waiter->number;
		/*
		 * Do not look for the next waiter if this waiter may be the last: that search can
		 * take as long as the search for the first waiter.
		 */
		next = scan->count - scan->woken > 1 ? rb_next(&waiter->node) : NULL;
		claim = memwait_claim_waiter(waiter, MEMWAIT_OK, &scan->wakes);
		if (likely(claim == MEMWAIT_CLAIM_WON)) {
			if (++scan->woken == scan->count)
				break;
		} else if (claim == MEMWAIT_CLAIM_LOST) {
			memwait_queue_remove(waiter);
		}
	}
	return false;
}

/**
 * memwait_scan_pause() - let other threads run, and take the lock, between two steps
 * @scan: the scan. If memwait_scan_start() did not expect a second step, the call gets its number
 *	only in this function, and may wake a context twice
 *
 * Context: process context, may sleep; no lock is held.
 *
 * Return: whether to continue.
 */
bool memwait_scan_pause(struct memwait_scan *scan)
{
	if (!scan->wakes.call)
		scan->wakes.call = memwait_new_call();
	cond_resched();
	scan->gives_way = memwait_bucket_let_others(scan->bucket);
	if (scan->kind == MEMWAIT_SCAN_PASSES_ON)
		return true;
	try_to_freeze();
	return scan->kind == MEMWAIT_SCAN_SURE || !memwait_is_killed();
}

/* noinline: most notifies find no waiter, and must not pay for this stack frame. */
static noinline u32 memwait_notify_bucket(struct memwait_bucket *bucket,
					  const struct memwait_key *key, u32 count,
					  enum memwait_scan_kind kind, u64 number)
{
	struct memwait_scan scan __uninitialized;
	bool more;

	memwait_scan_init(&scan, count, 0);
	scan.kind = kind;
	scan.wakes.call = number;
	memwait_bucket_lock(bucket);
	memwait_scan_start(&scan, bucket, key);
	for (;;) {
		more = memwait_scan_claim(&scan);
		memwait_step_begin();
		spin_unlock(&bucket->lock);
		memwait_step_end(&scan);
		if (!more || !memwait_scan_pause(&scan))
			return scan.woken;
		memwait_bucket_lock(bucket);
	}
}

/*
 * @number: number of a call for several words, or 0. Such a call wakes the pollers of a context
 * once for all completions that it adds to the context, unless a read comes in between.
 */
static __always_inline int __memwait_notify(const struct memwait_key *key, u32 count,
					    enum memwait_scan_kind kind, u64 number)
{
	struct memwait_bucket *bucket = memwait_bucket_of(key);

	smp_mb();	/* (A) pairs with (B), see the top of queue.c */

	if (!smp_load_acquire(&bucket->nr_waiters))	/* see memwait_queue_move() */
		return 0;
	if (number)
		memwait_bucket_let_others(bucket);
	return memwait_notify_bucket(bucket, key, count, kind, number);
}

/**
 * memwait_notify_word() - wake the oldest waiters of a word
 * @key: the word's key; the caller holds a reference to its space
 * @count: maximum number of waiters to wake, not 0
 * @kind: what ends the scan early, and whether the caller is about to sleep
 *
 * Allocates nothing and does not access the word.
 *
 * Context: process context, may sleep; takes the bucket's lock.
 *
 * Return: the number of waiters woken. Each of them, and no other waiter, will see MEMWAIT_OK.
 */
int memwait_notify_word(const struct memwait_key *key, u32 count, enum memwait_scan_kind kind)
{
	int woken = __memwait_notify(key, count, kind, 0);

	trace_memwait_notify(key, count, woken, false);
	return woken;
}

/**
 * memwait_pass_on() - pass a notify on from a wait that has ended to the next waiter of the word
 * @key: see memwait_notify_word()
 * @number: from memwait_new_call() if the caller passes on several notifies, else 0
 *
 * Neither the death of the current thread nor the freezer stops the call. If no waiter is left, the
 * notify has no effect.
 *
 * Context: process context, may sleep; takes the bucket's lock.
 */
void memwait_pass_on(const struct memwait_key *key, u64 number)
{
	u32 woken = __memwait_notify(key, 1, MEMWAIT_SCAN_PASSES_ON, number);

	trace_memwait_notify(key, 1, woken, true);
}

/**
 * memwait_ioc_notify() - MEMWAIT_IOC_NOTIFY
 * @notify: argument from user space, unchecked
 *
 * Context: process context, may sleep; takes the bucket's lock.
 *
 * Return: the number of waiters woken, or a negative errno.
 */
int memwait_ioc_notify(const struct memwait_notify *notify)
{
	struct memwait_word word __uninitialized;
	int ret;

	ret = memwait_check(notify->addr, notify->flags, MEMWAIT_WORD_FLAGS);
	if (ret || !notify->count)
		return ret;
	ret = memwait_word_get(&word, notify->addr, notify->flags);
	if (ret)
		return ret;
	ret = memwait_notify_word(&word.key, notify->count, MEMWAIT_SCAN);
	memwait_word_put(&word);
	return ret;
}

/**
 * memwait_ioc_waiters() - MEMWAIT_IOC_WAITERS
 * @notify: argument from user space, unchecked
 *
 * Context: process context, may sleep; takes the bucket's lock.
 *
 * Return: the word's number of waiters, or a negative errno.
 */
int memwait_ioc_waiters(const struct memwait_notify *notify)
{
	struct memwait_word word;
	int ret;

	ret = memwait_check(notify->addr, notify->flags, MEMWAIT_WORD_FLAGS);
	if (ret || notify->count)
		return ret ?: -EINVAL;
	ret = memwait_word_get(&word, notify->addr, notify->flags);
	if (ret)
		return ret;
	ret = memwait_queue_waiters(&word.key);
	memwait_word_put(&word);
	return ret;
}

/* Batch size of memwait_ioc_notify_many(). */
#define MEMWAIT_NOTIFIES	16

/*
 * Derives the key of an entry from the key of another entry in the same page, whose reference
 * covers both. This avoids looking up the mapping, which costs more than the rest of an entry.
 * Returns false if the entry is in another page.
 */
static bool memwait_notify_get_near(struct memwait_word *word, const struct memwait_notify *notify,
				    const struct memwait_word *other,
				    const struct memwait_notify *of_other)
{
	if ((notify->addr ^ of_other->addr) >> PAGE_SHIFT ||
	    ((notify->flags | of_other->flags) & MEMWAIT_PRIVATE))
		return false;
	word->key.space = other->key.space;
	word->key.offset = other->key.offset + notify->addr - of_other->addr;
	return true;
}

/*
 * Processes one batch. Returns the number of entries done, which is less than @nr only if *@err is
 * set; or -EFAULT if entries were done but their results cannot be written.
 */
static int memwait_notify_some(const struct memwait_notify __user *notifies, u32 __user *results,
			       unsigned int nr, u64 call, int *err)
{
	struct memwait_notify notify[MEMWAIT_NOTIFIES] __uninitialized;
	struct memwait_word words[MEMWAIT_NOTIFIES] __uninitialized;
	u32 counts[MEMWAIT_NOTIFIES] __uninitialized, woken;
	unsigned int done, found, i;
	int last = -1;		/* the last entry whose key is known */

	/* Before a hole, copy_from_user() may report too few bytes: retry entry by entry. */
	done = nr - DIV_ROUND_UP(copy_from_user(notify, notifies, nr * sizeof(notify[0])),
				 sizeof(notify[0]));
	while (done < nr && !copy_from_user(&notify[done], &notifies[done], sizeof(notify[0])))
		done++;
	*err = done < nr ? -EFAULT : 0;

	for (i = 0; i < done; i++) {
		int ret = memwait_check(notify[i].addr, notify[i].flags, MEMWAIT_WORD_FLAGS);

		counts[i] = notify[i].count;
		words[i].file = NULL;
		if (!ret && counts[i] &&
		    (last < 0 || !memwait_notify_get_near(&words[i], &notify[i], &words[last],
							  &notify[last])))
			ret = memwait_word_get(&words[i], notify[i].addr, notify[i].flags);
		if (ret) {
			*err = ret;
			done = i;
		} else if (counts[i]) {
			last = i;
		}
	}

	/*
	 * Probe the memory of the results before any wake-up. Do not use clear_user(), which may
	 * report too few bytes.
	 */
	found = done;
	for (i = 0; results && i < done; i++) {
		if (put_user(0, &results[i])) {
			*err = -EFAULT;
			done = i;
		}
	}

	for (i = 0; i < done; i++) {
		if (!counts[i])
			continue;
		woken = __memwait_notify(&words[i].key, counts[i], MEMWAIT_SCAN, call);
		trace_memwait_notify(&words[i].key, counts[i], woken, false);
		counts[i] = woken;
		cond_resched();
	}
	for (i = 0; i < found; i++)
		memwait_word_put(&words[i]);

	if (results && copy_to_user(results, counts, done * sizeof(counts[0])))
		return -EFAULT;
	return done;
}

/**
 * memwait_ioc_notify_many() - MEMWAIT_IOC_NOTIFY_MANY
 * @many: argument from user space, unchecked
 *
 * A signal ends the call between two batches.
 *
 * Context: process context, may sleep; takes buckets' locks, one at a time.
 *
 * Return: the number of entries processed, or a negative errno if the first entry failed or results
 * are lost.
 */
int memwait_ioc_notify_many(const struct memwait_notify_many *many)
{
	const struct memwait_notify __user *notifies = u64_to_user_ptr(many->notifies);
	u32 __user *results = u64_to_user_ptr(many->woken);
	u64 call = many->count > 1 ? memwait_new_call() : 0;
	u32 done = 0;
	int err = 0, ret;

	if (many->flags || many->count > INT_MAX)
		return -EINVAL;
	if (!memwait_is_address(many->notifies) || !memwait_is_address(many->woken))
		return -EFAULT;

	while (done < many->count && !err) {
		ret = memwait_notify_some(notifies + done, results ? results + done : NULL,
					  min_t(u32, many->count - done, MEMWAIT_NOTIFIES), call,
					  &err);
		if (ret < 0)
			return ret;
		done += ret;
		cond_resched();
		if (signal_pending(current))
			break;
	}
	return done ?: err;
}
