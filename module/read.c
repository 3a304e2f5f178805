// SPDX-License-Identifier: GPL-2.0-only
/*
 * read(2) of completions. claim.c has how readers are woken.
 */
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/uio.h>

#include "compat.h"
#include "context.h"
#include "trace.h"

/* Returns the number of whole records copied. */
static unsigned int memwait_copy_records(const struct memwait_completion *records, unsigned int nr,
					 struct iov_iter *to)
{
	size_t bytes = copy_to_iter(records, nr * sizeof(*records), to);
	unsigned int copied = bytes / sizeof(*records);

	/* Before a hole it may copy more than it reports: retry one by one. */
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
	/* With a passed deadline there is one more. */
	if (wait->group.state == MEMWAIT_QUEUED ||
	    (wait->count && wait->group.result == MEMWAIT_TIMED_OUT))
		record->flags = MEMWAIT_MORE;
}

/*
 * Moves the oldest completions to the end of @taken. Copies out first: completions that user space
 * did not get stay. Sets @persistent if there is a wait with MEMWAIT_PERSISTENT among them. Returns
 * the number moved, or -EFAULT.
 */
static int memwait_read_some(struct memwait_context *context, struct iov_iter *to,
			     struct list_head *taken, bool *persistent)
{
	struct memwait_completion records[MEMWAIT_CHUNK] __uninitialized;
	struct memwait_async_waiter *wait, *waits[MEMWAIT_CHUNK] __uninitialized;
	unsigned int room = min_t(size_t, iov_iter_count(to) / sizeof(records[0]), MEMWAIT_CHUNK);
	unsigned int nr = 0, i;
	LIST_HEAD(copied);

	lockdep_assert_held(&context->read_lock);

	spin_lock(&context->lock);
	list_for_each_entry(wait, &context->completed, node) {
		if (nr == room)
			break;
		memwait_read_record(&records[nr], wait);
		waits[nr++] = wait;
	}
	context->woken_by = 0;	/* what comes from here on is new to who reads these */
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
	list_cut_position(&copied, &context->completed, &waits[nr - 1]->node);
	WRITE_ONCE(context->nr_completed, context->nr_completed - nr);
	spin_unlock(&context->lock);
	list_splice_tail(&copied, taken);
	return nr;
}

/* Puts back completions that the caller will not see, for a reader or for close. */
static void memwait_unread(struct memwait_context *context, struct list_head *taken,
			   unsigned int nr)
{
	struct memwait_async_waiter *wait;

	lockdep_assert_held(&context->read_lock);

	/* A close passes on what is counted. */
	list_for_each_entry(wait, taken, node) {
		spin_lock(&context->lock);
		wait->count += min(wait->reading, U32_MAX - wait->count);
		spin_unlock(&context->lock);
		cond_resched();
	}
	spin_lock(&context->lock);
	list_splice(taken, &context->completed);
	WRITE_ONCE(context->nr_completed, context->nr_completed + nr);
	memwait_context_unlock_and_wake(context, true);
}

/*
 * Lets go of waits with MEMWAIT_PERSISTENT that were read and are armed still; and lists those
 * again of which there is more to tell: notifies that have come since, or a deadline. What remains
 * in @taken has ended.
 */
static void memwait_read_settle(struct memwait_context *context, struct list_head *taken)
{
	struct memwait_async_waiter *wait, *next;
	unsigned int nr = 0;
	bool more = false;

	lockdep_assert_held(&context->read_lock);
	spin_lock(&context->lock);
	list_for_each_entry_safe(wait, next, taken, node) {
		if (++nr % MEMWAIT_CHUNK == 0) {
			spin_unlock(&context->lock);
			cond_resched();
			spin_lock(&context->lock);
		}
		if (!wait->group.persistent)
			continue;
		if (wait->count || wait->group.state != MEMWAIT_COMPLETED ||
		    (wait->reading && wait->group.result == MEMWAIT_TIMED_OUT)) {
			trace_memwait_async_read(wait);
			list_del(&wait->node);
			wait->group.listed = false;
			if (wait->count || wait->group.state == MEMWAIT_COMPLETED)
				more = memwait_async_list(wait);
		}
	}
	memwait_context_unlock_and_wake(context, more);
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
		cond_resched();		/* it may have been in the queues of many words */
	}
}

/*
 * Wakes another reader if completions are left: the one that was woken for them may have been
 * interrupted while it waited for the lock. A refused reader may have consumed the edge of a
 * completion that this reader has not seen, and gets a new edge.
 */
static void memwait_read_unlock(struct memwait_context *context)
{
	mutex_unlock(&context->read_lock);
	smp_mb();	/* pairs with memwait_read_trylock() */
	if (READ_ONCE(context->refused) && xchg(&context->refused, false) &&
	    memwait_context_is_readable(context))
		memwait_context_wake(context);
	else if (memwait_context_is_readable(context))
		memwait_context_wake_reader(context);
}

/* Takes the lock, or lets the holder see that a reader was refused. */
static bool memwait_read_trylock(struct memwait_context *context)
{
	if (mutex_trylock(&context->read_lock))
		return true;
	WRITE_ONCE(context->refused, true);
	smp_mb();	/* pairs with memwait_read_unlock() */
	return mutex_trylock(&context->read_lock);
}

/* Returns bytes read, possibly 0, or a negative errno. */
static ssize_t memwait_read_now(struct memwait_context *context, struct iov_iter *to,
				bool nonblocking, struct llist_head *unused)
{
	const size_t size = sizeof(struct memwait_completion);
	unsigned int nr = 0;
	LIST_HEAD(taken);
	bool persistent = false, dying;
	int ret;

	/* The lock holder may be in a page fault for any length of time. */
	if (nonblocking && !memwait_read_trylock(context))
		return -EAGAIN;
	if (!nonblocking && mutex_lock_interruptible(&context->read_lock))
		return -ERESTARTSYS;
	if (READ_ONCE(context->due))
		memwait_expire(context, iov_iter_count(to) / size);
	do {
		ret = memwait_read_some(context, to, &taken, &persistent);
		if (ret <= 0)
			break;
		nr += ret;
		cond_resched();
		/* Fewer were there. */
	} while (ret == MEMWAIT_CHUNK && iov_iter_count(to) >= size && !signal_pending(current));
	/* After the last fault, for everything read. */
	dying = nr && memwait_is_dying();
	if (unlikely(dying))
		memwait_unread(context, &taken, nr);
	else if (persistent)
		memwait_read_settle(context, &taken);
	memwait_read_unlock(context);
	if (dying)
		return -ERESTARTSYS;
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
	if (list_empty(&context->readers))
		rcu_assign_pointer(context->first_reader.task, current);
	list_add_tail(&reader.node, &context->readers);
	spin_unlock(&context->lock);

	for (;;) {
		/* The freezer interrupts it, or it would keep a wake-up that others need. */
		set_current_state(TASK_INTERRUPTIBLE);	/* (D), see claim.c */
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
		smp_mb();	/* (D): a timer may have found this one */
		if (memwait_context_is_readable(context))
			memwait_context_wake_reader(context);
	}
	return ret;
}

/* Returns as memwait_read_iter(). */
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
 * Context: process context, sleeps, as long as a file system does if it drops the last reference to
 * a file.
 *
 * Return: bytes read; -EINVAL: no room for one completion; -EAGAIN: would block, for
 * a completion or for another reader; -EFAULT, -EPERM or -ERESTARTSYS.
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
