// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Words: the kernel's wait and notify, with the times and loops of C programs. */
#include "internal.h"

static int set_deadline(struct memwait_deadline *deadline, const struct timespec *timeout,
			unsigned int flags)
{
	clockid_t clock = flags & MEMWAIT_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
	struct memwait_deadline now;
	struct timespec time;
	int err;

	if ((flags & ~(MEMWAIT_PRIVATE | MEMWAIT_CLOCK_REALTIME | MEMWAIT_RELATIVE)) ||
	    (flags & MEMWAIT_RELATIVE && flags & MEMWAIT_CLOCK_REALTIME))
		return EINVAL;
	if (!timeout) {
		*deadline = MEMWAIT_NEVER;
		return 0;
	}
	err = memwait_deadline_set(deadline, clock, timeout);
	if (!err)
		err = deadline->error;
	if (err || !(flags & MEMWAIT_RELATIVE))
		return err;

	clock_gettime(clock, &time);
	memwait_deadline_set(&now, clock, &time);
	if (timeout->tv_sec < 0)
		deadline->ns = 0;
	else if (__builtin_add_overflow(deadline->ns, now.ns, &deadline->ns))
		deadline->ns = MEMWAIT_FOREVER;
	return 0;
}

static int wait_on(const volatile void *word, uint64_t expected, uint32_t size,
		   const struct timespec *timeout, unsigned int flags)
{
	struct memwait_deadline deadline;
	int err = set_deadline(&deadline, timeout, flags);

	if (err)
		return -err;
	return memwait_sleep(word, expected, size | (flags & MEMWAIT_PRIVATE), &deadline);
}

int memwait_wait8(const volatile void *word, uint8_t expected, const struct timespec *timeout,
		  unsigned int flags)
{
	return wait_on(word, expected, MEMWAIT_SIZE_U8, timeout, flags);
}

int memwait_wait16(const volatile void *word, uint16_t expected, const struct timespec *timeout,
		   unsigned int flags)
{
	return wait_on(word, expected, MEMWAIT_SIZE_U16, timeout, flags);
}

int memwait_wait32(const volatile void *word, uint32_t expected, const struct timespec *timeout,
		   unsigned int flags)
{
	return wait_on(word, expected, MEMWAIT_SIZE_U32, timeout, flags);
}

int memwait_wait64(const volatile void *word, uint64_t expected, const struct timespec *timeout,
		   unsigned int flags)
{
	return wait_on(word, expected, MEMWAIT_SIZE_U64, timeout, flags);
}

static int notify(const volatile void *word, unsigned int count, unsigned int flags)
{
	struct memwait_notify argument = {
		.addr = (uintptr_t)word,
		.count = count,
		.flags = flags,
	};

	if (flags & ~(unsigned int)MEMWAIT_PRIVATE)
		return -EINVAL;
	return memwait_device(MEMWAIT_IOC_NOTIFY, &argument);
}

int memwait_notify(const volatile void *word, unsigned int count, unsigned int flags)
{
	return notify(word, count, flags);
}

int memwait_waiters(const volatile void *word, unsigned int flags)
{
	struct memwait_notify argument = { .addr = (uintptr_t)word, .flags = flags };

	if (flags & ~(unsigned int)MEMWAIT_PRIVATE)
		return -EINVAL;
	return memwait_device(MEMWAIT_IOC_WAITERS, &argument);
}

static int word_step(struct memwait_op *op, int outcome)
{
	int ret;

	if (outcome != MEMWAIT_OP_BEGIN)
		return outcome;
	ret = memwait_op_arm(op, op->object, op->word.expected, op->word.flags);
	return ret == MEMWAIT_PENDING ? MEMWAIT_OP_WAITS : ret;
}

static void word_undo(struct memwait_op *op, int outcome)
{
	if (outcome == MEMWAIT_OK)
		notify(op->object, 1, op->word.flags & MEMWAIT_PRIVATE);
}

static const struct memwait_op_kind word_kind = { word_step, word_undo };

static int wait_on_async(const volatile void *word, uint64_t expected, uint32_t size,
			 const struct timespec *timeout, unsigned int flags,
			 memwait_op_t *public_op)
{
	struct memwait_deadline deadline;
	struct memwait_op *op;
	int ret;

	ret = set_deadline(&deadline, timeout, flags);
	if (!ret)
		ret = memwait_op_take(public_op, &op);
	if (ret)
		return -ret;
	op->kind = &word_kind;
	op->object = (void *)(uintptr_t)word;
	op->deadline = deadline;
	op->word.expected = expected;
	op->word.flags = size | (flags & MEMWAIT_PRIVATE);
	ret = memwait_op_start(op);
	return ret == EINPROGRESS ? MEMWAIT_PENDING : ret;
}

int memwait_wait8_async(const volatile void *word, uint8_t expected,
			const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
{
	return wait_on_async(word, expected, MEMWAIT_SIZE_U8, timeout, flags, op);
}

int memwait_wait16_async(const volatile void *word, uint16_t expected,
			 const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
{
	return wait_on_async(word, expected, MEMWAIT_SIZE_U16, timeout, flags, op);
}

int memwait_wait32_async(const volatile void *word, uint32_t expected,
			 const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
{
	return wait_on_async(word, expected, MEMWAIT_SIZE_U32, timeout, flags, op);
}

int memwait_wait64_async(const volatile void *word, uint64_t expected,
			 const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
{
	return wait_on_async(word, expected, MEMWAIT_SIZE_U64, timeout, flags, op);
}
