// SPDX-License-Identifier: GPL-2.0-only
/*
 * read(2) of completions. wake.c describes how readers are woken.
 */
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/uio.h>

#include "compat.h"
#include "context.h"
#include "position.h"
#include "trace.h"

/* Returns the number of whole records copied. */
static unsigned int memwait_copy_records(const struct memwait_completion *records, unsigned int nr,
					 struct iov_iter *to)
{
	size_t bytes = copy_to_iter(records, nr * sizeof(*records), to);
	unsigned int copied = bytes / sizeof(*records);

	/*
	 * Before a hole in the mapping, copy_to_iter() may copy more than it reports: retry record
	 * by record.
	 */
	while (copied < nr) {
		iov_iter_revert(to, bytes % sizeof(*records));
		bytes = copy_to_iter(&records[copied], sizeof(*records), to);
		if (bytes < sizeof(*records)) {
			iov_iter_revert(to, bytes);
			break;
		}
		copied++;
	}
	return copied;
}

static void memwait_read_record(struct memwait_completion *record,
				struct memwait_async_waiter *wait)
{
	record->user_data = wait->user_data;
	record->id = wait->id;
	record->result = wait->count ? MEMWAIT_OK : wait->group.result;
	record->index = 0;
	if (wait->group.nr > 1 && wait->group.result == MEMWAIT_OK)
		record->index = wait->group.claimed - 1;
	record->count = wait->count;
	record->flags = 0;
	/* If the deadline has passed, another completion reports the timeout. */
	if (wait->group.state == MEMWAIT_QUEUED ||
	    (wait->count && wait->group.result == MEMWAIT_TIMED_OUT))
		record->flags = MEMWAIT_MORE;
}

/*
 * Copies the oldest completions to user space, and then moves them to the end of @taken.
 * Completions that could not be copied stay in the list. Sets *@persistent if a wait with
 * MEMWAIT_PERSISTENT was moved. Returns the number of completions moved, or -EFAULT.
 */
static int memwait_read_some(struct memwait_context *context, struct iov_iter *to,
			     struct list_head *taken, bool *persistent)
{
	struct memwait_completion records[MEMWAIT_CHUNK] __uninitialized;
	struct memwait_async_waiter *wait, *waits[MEMWAIT_CHUNK] __uninitialized;
	unsigned int room = min_t(size_t, iov_iter_count(to) / sizeof(records[0]), MEMWAIT_CHUNK);
	unsigned int nr = 0, i;
	LIST_HEAD(copied);

	lockdep_assert_held(&context->completions.read_lock);

	spin_lock(&context->lock);
	list_for_each_entry(wait, &context->completions.list, node) {
		if (nr == room)
			break;
		memwait_read_record(&records[nr], wait);
		waits[nr++] = wait;
	}
	context->completions.woken_by = 0;	/* this reader has not seen later completions */
	spin_unlock(&context->lock);
	if (!nr)
		return 0;

	nr = memwait_copy_records(records, nr, to);
	if (!nr)
		return -EFAULT;

	spin_lock(&context->lock);
	for (i = 0; i < nr; i++) {
		wait = waits[i];
		wait->reading = records[i].count;
		wait->count -= wait->reading;
		*persistent |= wait->group.persistent;
	}
	list_cut_position(&copied, &context->completions.list, &waits[nr - 1]->node);
	WRITE_ONCE(context->completions.nr, context->completions.nr - nr);
	spin_unlock(&context->lock);
	list_splice_tail(&copied, taken);
	return nr;
}

/*
 * Restores the counts of completions that the caller will not see, for another reader or for close.
 */
static void memwait_unread(struct memwait_context *context, struct list_head *taken)
{
	struct memwait_async_waiter *wait;

	lockdep_assert_held(&context->completions.read_lock);
	list_for_each_entry(wait, taken, node) {
		spin_lock(&context->lock);
		wait->count += min(wait->reading, U32_MAX - wait->count);
		spin_unlock(&context->lock);
		cond_resched();
	}
}

/*
 * Takes persistent waits that have not ended out of @taken. Waits that have more to report (later
 * notifies, or a passed deadline) are moved to @again, and still count as listed. The waits that
 * remain in @taken have ended. Returns the length of @again.
 */
static unsigned int memwait_read_settle(struct memwait_context *context, struct list_head *taken,
					struct list_head *again)
{
	struct memwait_async_waiter *wait, *next;
	unsigned int nr = 0, nr_again = 0;

	lockdep_assert_held(&context->completions.read_lock);
	spin_lock(&context->lock);
	list_for_each_entry_safe(wait, next, taken, node) {
		if (++nr % MEMWAIT_CHUNK == 0) {
			spin_unlock(&context->lock);
			cond_resched();
			spin_lock(&context->lock);
		}
		if (!wait->group.persistent)
			continue;
		if (wait->count || (wait->reading && wait->group.result == MEMWAIT_TIMED_OUT)) {
			trace_memwait_async_read(wait);
			list_move_tail(&wait->node, again);
			nr_again++;
		} else if (wait->group.state != MEMWAIT_COMPLETED) {
			trace_memwait_async_read(wait);
			list_del(&wait->node);
			wait->group.listed = false;
		}
	}
	spin_unlock(&context->lock);
	return nr_again;
}

static void memwait_read_free(struct memwait_context *context, struct list_head *taken,
			      struct llist_head *unused)
{
	struct memwait_async_waiter *wait, *next, *waits[MEMWAIT_CHUNK] __uninitialized;
	unsigned int nr = 0;

	list_for_each_entry_safe(wait, next, taken, node) {
		trace_memwait_async_read(wait);
		memwait_async_end(wait, unused);
		waits[nr++] = wait;
		if (nr == MEMWAIT_CHUNK || list_entry_is_head(next, taken, node)) {
			memwait_async_free(context, waits, nr);
			nr = 0;
		}
		cond_resched();		/* the wait may have been in the queues of many words */
	}
}

/*
 * Drops .read_lock. @wake: wakes pollers and a reader, because the caller has put completions back.
 * Without @wake, wakes another reader if completions are left, because the reader that was woken
 * for them may have been interrupted while it waited for .read_lock. A reader that was refused
 * .read_lock may have consumed the edge of a completion that this reader has not seen; in that case
 * pollers are woken so that they get a new edge.
 */
static void memwait_read_unlock(struct memwait_context *context, bool wake)
{
	mutex_unlock(&context->completions.read_lock);
	smp_mb();	/* pairs with memwait_read_trylock() */
	if (READ_ONCE(context->completions.refused) && xchg(&context->completions.refused, false))
		wake |= memwait_context_is_readable(context);
	if (wake)
		memwait_context_wake(context);
	else if (memwait_context_is_readable(context))
		memwait_context_wake_reader(context);
}

/*
 * Puts completions back into the context's list, and drops .read_lock. Wakes pollers and a reader
 * only after dropping .read_lock, because they would block on it, but, except on PREEMPT_RT, before
 * the caller can be preempted.
 */
static void memwait_read_put_back(struct memwait_context *context, struct list_head *completions,
				  unsigned int nr, bool first)
{
	spin_lock(&context->lock);
	if (first)
		list_splice(completions, &context->completions.list);
	else
		list_splice_tail(completions, &context->completions.list);
	WRITE_ONCE(context->completions.nr, context->completions.nr + nr);
	memwait_step_begin();
	spin_unlock(&context->lock);
	memwait_read_unlock(context, true);
	memwait_step_done();
}

/* Takes .read_lock, or sets .refused for the holder to see. */
static bool memwait_read_trylock(struct memwait_context *context)
{
	if (mutex_trylock(&context->completions.read_lock))
		return true;
	WRITE_ONCE(context->completions.refused, true);
	smp_mb();	/* pairs with memwait_read_unlock() */
	return mutex_trylock(&context->completions.read_lock);
}

/* Returns bytes read, possibly 0, or a negative errno. */
static ssize_t memwait_read_now(struct memwait_context *context, struct iov_iter *to,
				bool nonblocking, struct llist_head *unused)
{
	const size_t size = sizeof(struct memwait_completion);
	unsigned int nr = 0, nr_again = 0;
	LIST_HEAD(taken);
	LIST_HEAD(again);
	bool persistent = false;
	int ret;

	/* The holder of the lock may be in a page fault for any length of time. */
	if (nonblocking && !memwait_read_trylock(context))
		return -EAGAIN;
	if (!nonblocking && mutex_lock_interruptible(&context->completions.read_lock))
		return -ERESTARTSYS;
	if (READ_ONCE(context->completions.due))
		memwait_expire(context, iov_iter_count(to) / size);
	do {
		ret = memwait_read_some(context, to, &taken, &persistent);
		if (ret <= 0)
			break;
		nr += ret;
		cond_resched();
		/* A short result means that no more completions were available. */
	} while (ret == MEMWAIT_CHUNK && iov_iter_count(to) >= size && !signal_pending(current));
	/* Check after the last page fault, for all completions that were read. */
	if (unlikely(nr && memwait_is_dying())) {
		memwait_unread(context, &taken);
		memwait_read_put_back(context, &taken, nr, true);
		return -ERESTARTSYS;
	}
	if (persistent)
		nr_again = memwait_read_settle(context, &taken, &again);
	if (unlikely(nr_again))
		memwait_read_put_back(context, &again, nr_again, false);
	else
		memwait_read_unlock(context, false);
	if (!nr)
		return ret;
	memwait_read_free(context, &taken, unused);
	return nr * size;
}

/* Blocks until there is something to read. Returns 0 or -ERESTARTSYS. */
static int memwait_read_block(struct memwait_context *context)
{
	struct memwait_reader reader = { .task = current };
	int ret = 0;

	spin_lock(&context->lock);
	if (list_empty(&context->completions.readers))
		rcu_assign_pointer(context->completions.first_reader.task, current);
	list_add_tail(&reader.node, &context->completions.readers);
	spin_unlock(&context->lock);

	for (;;) {
		/*
		 * The freezer must interrupt this sleep, because a frozen reader would withhold a
		 * wake-up that other readers need.
		 */
		set_current_state(TASK_INTERRUPTIBLE);	/* (D), see wake.c */
		if (smp_load_acquire(&reader.woken) ||	/* (F) */
		    memwait_context_is_readable(context))
			break;
		if (signal_pending(current)) {
			ret = -ERESTARTSYS;
			break;
		}
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	if (smp_load_acquire(&reader.woken))	/* (F) */
		return 0;

	spin_lock(&context->lock);
	if (reader.woken)
		ret = 0;
	else
		memwait_reader_remove(context, &reader);
	spin_unlock(&context->lock);
	if (ret) {
		smp_mb();	/* (D): a timer may have found this reader */
		if (memwait_context_is_readable(context))
			memwait_context_wake_reader(context);
	}
	return ret;
}

/* Returns the result of memwait_read_iter(). */
static ssize_t memwait_read(struct memwait_context *context, struct iov_iter *to, bool nonblocking,
			    struct llist_head *unused)
{
	ssize_t ret;

	for (;;) {
		ret = memwait_read_now(context, to, nonblocking, unused);
		if (ret)
			return ret;
		if (nonblocking)
			return -EAGAIN;
		/* Block only for the first completion. */
		ret = memwait_read_block(context);
		if (ret)
			return ret;
	}
}

/**
 * memwait_read_iter() - read(2), readv(2) and io_uring
 * @iocb: of the context's file
 * @to: destination; segments form one buffer
 *
 * Context: process context, sleeps. If the call drops the last reference to a file, it sleeps as
 * long as the file system needs.
 *
 * Return: bytes read; -EINVAL: no room for one completion; -EAGAIN: would have to wait for a
 * completion or for another reader; -EFAULT, -EPERM or -ERESTARTSYS.
 */
ssize_t memwait_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	bool nonblocking = (iocb->ki_filp->f_flags & O_NONBLOCK) || (iocb->ki_flags & IOCB_NOWAIT);
	struct memwait_context *context = iocb->ki_filp->private_data;
	LLIST_HEAD(unused);
	ssize_t ret;

	if (iov_iter_count(to) < sizeof(struct memwait_completion))
		return -EINVAL;
	ret = memwait_context_use(context);
	if (ret)
		return ret;
	ret = memwait_read(context, to, nonblocking, &unused);
	memwait_context_unuse(context);
	memwait_pins_put(context, &unused);
	return ret;
}
