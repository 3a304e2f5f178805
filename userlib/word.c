// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Words: the kernel's wait and notify, with timespecs and loops. */
#include "loop.h"

/* An invalid time is an error even if it is not needed. */
static int set_deadline(struct memwait_deadline *deadline, const struct timespec *timeout,
			unsigned int flags)
{
	int err = flags & ~(MEMWAIT_PRIVATE | MEMWAIT_CLOCK_REALTIME | MEMWAIT_RELATIVE |
			    MEMWAIT_OWNED) ? EINVAL : memwait_deadline_by(deadline, timeout, flags);

	return err ? err : deadline->error;
}

/* The flags that the kernel gets. */
#define WAIT_FLAGS	((unsigned int)(MEMWAIT_PRIVATE | MEMWAIT_OWNED))

/* MEMWAIT_OWNED requires a thread id. */
static int set_thread_deadline(struct memwait_deadline *deadline, const struct timespec *timeout,
			       unsigned int flags)
{
	uint64_t id;
	int err = set_deadline(deadline, timeout, flags);

	return err || !(flags & MEMWAIT_OWNED) ? err : -memwait_owner(&id);
}

static int wait_on(const volatile void *word, uint64_t expected, uint32_t size,
		   const struct timespec *timeout, unsigned int flags)
{
	struct memwait_deadline deadline;
	int err = set_thread_deadline(&deadline, timeout, flags);

	if (err)
		return -err;
	return memwait_sleep(word, expected, size | (flags & WAIT_FLAGS), &deadline);
}

int memwait_notify(const volatile void *word, unsigned int count, unsigned int flags)
{
	if (flags & ~(unsigned int)(MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE))
		return -EINVAL;
	return memwait_device_notify(word, count, flags);
}

int memwait_waiters(const volatile void *word, unsigned int flags)
{
	if (flags & ~(unsigned int)MEMWAIT_PRIVATE)
		return -EINVAL;
	return memwait_sleepers(word, flags);
}

int memwait_change_notify32(volatile void *word, unsigned int operation, uint32_t operand,
			    unsigned int count, unsigned int flags, uint32_t *old)
{
	int ret;

	if (flags & ~(unsigned int)MEMWAIT_PRIVATE)
		return -EINVAL;
	memwait_tsan_release(word);
	ret = memwait_change(word, operation, operand, count, flags, old);
	if (ret >= 0)
		memwait_tsan_acquire(word);
	return ret;
}

static int word_step(struct memwait_op *op, int outcome)
{
	int ret;

	if (outcome != MEMWAIT_OP_BEGIN)
		return outcome;
	if (op->word.flags & MEMWAIT_OWNED && !memwait_op_has_id(op))
		return -EOPNOTSUPP;
	ret = memwait_op_arm(op, op->object, op->word.expected, op->word.flags);
	return ret == MEMWAIT_PENDING ? MEMWAIT_OP_WAITS : ret;
}

/*
 * Passes a wake-up to the next waiter of the word, or of the word that ended a wait for several
 * words. Returns 0 or a negative error number.
 */
static int word_pass_on(const struct memwait_op *op, int outcome)
{
	const struct memwait_wait *wait = (const struct memwait_wait *)op->object + op->index;
	int ret = 0;

	if (!(op->word.flags & MEMWAIT_GROUP))
		ret = memwait_was_woken(outcome) ? memwait_wake(op->object, 1, op->word.flags) : 0;
	else if (outcome == MEMWAIT_OK)
		ret = memwait_wake((const void *)(uintptr_t)wait->addr, 1, wait->flags);
	return ret < 0 ? ret : 0;
}

static void word_undo(struct memwait_op *op, int outcome)
{
	word_pass_on(op, outcome);
}

static int word_give_back(struct memwait_op *op)
{
	return word_pass_on(op, op->outcome);
}

/* Reports the notifies that have arrived, or that no more will arrive. */
static int watch_step(struct memwait_op *op, int outcome)
{
	if (outcome == MEMWAIT_OP_BEGIN)
		return word_step(op, outcome);
	op->told = op->count;
	op->count = 0;
	return op->told ? MEMWAIT_OK : MEMWAIT_TIMED_OUT;
}

/*
 * Passes on one notify to each waiter, whether its wait ends or is persistent. Passing all notifies
 * to a persistent wait would take a call for each notify, and other processes determine how many
 * notifies there are.
 */
static void watch_undo(struct memwait_op *op, int outcome)
{
	(void)outcome;
	if (op->count)
		memwait_wake(op->object, op->count, op->word.flags);
}

static const struct memwait_op_kind word_kind = {
	.step = word_step,
	.undo = word_undo,
	.give_back = word_give_back,
	.has_outcomes = true,
};
static const struct memwait_op_kind watch_kind = {
	.step = watch_step,
	.undo = watch_undo,
	.has_outcomes = true,
	.goes_on = true,
};

static int word_begin(const struct memwait_op_kind *kind, const volatile void *word,
		      uint64_t expected, uint32_t word_flags, const struct timespec *timeout,
		      unsigned int flags, memwait_op_t *public_op)
{
	struct memwait_deadline deadline;
	struct memwait_op *op;
	int ret;

	ret = set_deadline(&deadline, timeout, flags);
	if (!ret)
		ret = memwait_op_take(public_op, &op);
	if (ret)
		return -ret;
	op->kind = kind;
	op->object = (void *)(uintptr_t)word;
	op->deadline = deadline;
	op->word.expected = expected;
	op->word.flags = word_flags;
	ret = memwait_op_start(op);
	return ret == EINPROGRESS ? MEMWAIT_PENDING : ret;
}

static int wait_on_async(const volatile void *word, uint64_t expected, uint32_t size,
			 const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
{
	return word_begin(&word_kind, word, expected, size | (flags & WAIT_FLAGS), timeout, flags,
			  op);
}

/* Persistent waits */

static int watch(const volatile void *word, uint64_t expected, uint32_t size,
		 const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
{
	if (flags & MEMWAIT_OWNED)
		return -EINVAL;
	return word_begin(&watch_kind, word, expected,
			  size | MEMWAIT_PERSISTENT | (flags & MEMWAIT_PRIVATE), timeout, flags,
			  op);
}

/* Several words */

int memwait_wait_any(const struct memwait_wait *waits, unsigned int count,
		     const struct timespec *timeout, unsigned int flags, unsigned int *index)
{
	struct memwait_deadline deadline;
	struct memwait_wait_any any = { .waits = (uintptr_t)waits, .count = count };
	int ret = flags & WAIT_FLAGS ? EINVAL : set_deadline(&deadline, timeout, flags);

	if (ret)
		return -ret;
	any.deadline = deadline.ns;
	any.flags = deadline.flags;
	ret = memwait_device(MEMWAIT_IOC_WAIT_ANY, &any);
	if (index && (ret == MEMWAIT_OK || ret == MEMWAIT_NOT_EQUAL))
		*index = any.index;
	return ret;
}

int memwait_wait_any_async(const struct memwait_wait *waits, unsigned int count,
			   const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
{
	if (flags & WAIT_FLAGS)
		return -EINVAL;
	return word_begin(&word_kind, waits, count, MEMWAIT_GROUP, timeout, flags, op);
}

static int notify_and_wait(const volatile void *target, unsigned int count,
			   const volatile void *word, uint64_t expected, uint32_t size,
			   const struct timespec *timeout, unsigned int flags,
			   unsigned int *notified)
{
	struct memwait_deadline deadline;
	struct memwait_notify_wait both = {
		.notify = {
			.addr = (uintptr_t)target,
			.count = count,
			.flags = flags & MEMWAIT_PRIVATE,
		},
		.wait = {
			.addr = (uintptr_t)word,
			.expected = expected,
		},
	};
	int ret = set_thread_deadline(&deadline, timeout, flags);

	if (ret)
		return -ret;
	both.wait.deadline = deadline.ns;
	both.wait.flags = size | (flags & WAIT_FLAGS) | deadline.flags;
	ret = memwait_device(MEMWAIT_IOC_NOTIFY_WAIT, &both);
	if (notified)
		*notified = both.notified;
	return ret;
}

static int requeue(const volatile void *word, uint64_t expected, uint32_t size,
		   const volatile void *target, unsigned int count, unsigned int move,
		   unsigned int flags, unsigned int *woken, unsigned int *moved)
{
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)word,
		.expected = expected,
		.target = (uintptr_t)target,
		.count = count,
		.move = move,
		.flags = size | flags,
	};
	int ret;

	if (flags & ~(unsigned int)MEMWAIT_PRIVATE)
		return -EINVAL;
	ret = memwait_device(MEMWAIT_IOC_REQUEUE, &requeue);
	if (ret < 0)
		return ret;
	if (woken)
		*woken = requeue.woken;
	if (moved)
		*moved = requeue.moved;
	return ret;
}

int memwait_notify_many(const struct memwait_notify *notifies, unsigned int count,
			unsigned int *woken)
{
	struct memwait_notify_many many = {
		.notifies = (uintptr_t)notifies,
		.woken = (uintptr_t)woken,
		.count = count,
	};
	unsigned int done = 0;
	int ret;

	/* A signal ends the call between two notifies: call again for the rest. */
	do {
		ret = memwait_device(MEMWAIT_IOC_NOTIFY_MANY, &many);
		if (ret < 0)
			return done ? (int)done : ret;
		done += (unsigned int)ret;
		many.notifies = (uintptr_t)(notifies + done);
		many.woken = woken ? (uintptr_t)(woken + done) : 0;
		many.count = count - done;
	} while (ret && many.count);
	return (int)done;
}

/* Defines memwait_wait32() and so on: the functions of one width. */
#define DEFINE_WIDTH(bits)									\
int memwait_wait##bits(const volatile void *word, uint##bits##_t expected,			\
		       const struct timespec *timeout, unsigned int flags)			\
{												\
	return wait_on(word, expected, MEMWAIT_SIZE_U##bits, timeout, flags);			\
}												\
												\
int memwait_wait##bits##_async(const volatile void *word, uint##bits##_t expected,		\
			       const struct timespec *timeout, unsigned int flags,		\
			       memwait_op_t *op)						\
{												\
	return wait_on_async(word, expected, MEMWAIT_SIZE_U##bits, timeout, flags, op);		\
}												\
												\
int memwait_watch##bits(const volatile void *word, uint##bits##_t expected,			\
			const struct timespec *timeout, unsigned int flags, memwait_op_t *op)	\
{												\
	return watch(word, expected, MEMWAIT_SIZE_U##bits, timeout, flags, op);			\
}												\
												\
int memwait_requeue##bits(const volatile void *word, uint##bits##_t expected,			\
			  const volatile void *target, unsigned int count, unsigned int move,	\
			  unsigned int flags, unsigned int *woken, unsigned int *moved)		\
{												\
	return requeue(word, expected, MEMWAIT_SIZE_U##bits, target, count, move, flags, woken,	\
		       moved);									\
}												\
												\
int memwait_notify_wait##bits(const volatile void *target, unsigned int count,			\
			      const volatile void *word, uint##bits##_t expected,		\
			      const struct timespec *timeout, unsigned int flags,		\
			      unsigned int *notified)						\
{												\
	return notify_and_wait(target, count, word, expected, MEMWAIT_SIZE_U##bits, timeout,	\
			       flags, notified);						\
}

DEFINE_WIDTH(8)
DEFINE_WIDTH(16)
DEFINE_WIDTH(32)
DEFINE_WIDTH(64)
