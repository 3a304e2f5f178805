// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Wait groups: a count, and a generation (internal.h) that changes when the count becomes zero. So
 * a waiter goes on even if the count rises again before it runs.
 */
#include <string.h>

#include "internal.h"

struct waitgroup {
	/* Lower half: the count, and WAITERS. Upper half: the generation. */
	_Atomic uint64_t state;
	uint32_t flags;			/* MEMWAIT_PRIVATE or 0 */
};

_Static_assert(sizeof(struct waitgroup) <= sizeof(memwait_waitgroup_t), "the wait group fits");

#define WAITERS		0x80000000ULL	/* somebody sleeps, or is about to */
#define COUNT		0x7fffffffULL
#define GENERATION	(1ULL << 32)

static struct waitgroup *to_group(memwait_waitgroup_t *group)
{
	return (struct waitgroup *)group;
}

static uint32_t generation_of(uint64_t state)
{
	return (uint32_t)(state >> 32);
}

static const volatile void *generation_word(struct waitgroup *group)
{
	return memwait_upper_half(&group->state);
}

int memwait_waitgroup_init(memwait_waitgroup_t *group, unsigned int flags, unsigned int count)
{
	if (!group || (flags & ~(unsigned int)MEMWAIT_PRIVATE) || count > MEMWAIT_WAITGROUP_MAX)
		return EINVAL;
	memset(group, 0, sizeof(*group));
	atomic_init(&to_group(group)->state, count);
	to_group(group)->flags = flags;
	return 0;
}

int memwait_waitgroup_destroy(memwait_waitgroup_t *group)
{
	if (!group)
		return EINVAL;
	/* acquire: who destroys it may free what it guarded */
	if (atomic_load_explicit(&to_group(group)->state, memory_order_acquire) & COUNT)
		return EBUSY;
	return 0;
}

int memwait_waitgroup_add(memwait_waitgroup_t *public_group, int delta)
{
	struct waitgroup *group = to_group(public_group);
	uint64_t state, next;
	uint32_t flags;
	int64_t count;
	int ret;

	if (!group)
		return EINVAL;
	if (!delta)
		return 0;
	flags = group->flags;	/* who has waited may free it */
	/* relaxed: only the compare-and-swap counts */
	state = atomic_load_explicit(&group->state, memory_order_relaxed);
	do {
		count = (int64_t)(state & COUNT) + delta;
		if (count < 0)
			return EINVAL;
		if (count > MEMWAIT_WAITGROUP_MAX)
			return EOVERFLOW;
		next = (state & ~COUNT) | (uint64_t)count;
		if (!count)
			next = (next & ~WAITERS) + GENERATION;
		/* acq_rel: what all did before the count was zero is there for who waited */
	} while (!atomic_compare_exchange_weak_explicit(&group->state, &state, next,
							memory_order_acq_rel,
							memory_order_relaxed));
	if (count || !(state & WAITERS))
		return 0;
	ret = memwait_wake(generation_word(group), MEMWAIT_ALL, flags);
	return ret < 0 ? -ret : 0;
}

int memwait_waitgroup_done(memwait_waitgroup_t *group)
{
	return memwait_waitgroup_add(group, -1);
}

/* Whether one has to wait, and for which generation to end. */
static bool enter(struct waitgroup *group, uint32_t *generation)
{
	/* acquire: pairs with memwait_waitgroup_add() */
	uint64_t state = atomic_load_explicit(&group->state, memory_order_acquire);

	do {
		if (!(state & COUNT))
			return false;
		*generation = generation_of(state);
		/* acquire: as above */
	} while (!(state & WAITERS) &&
		 !atomic_compare_exchange_weak_explicit(&group->state, &state, state | WAITERS,
							memory_order_acquire,
							memory_order_acquire));
	return true;
}

/* A wait has ended: the result, or MEMWAIT_OP_WAITS to wait on. */
static int woken(struct waitgroup *group, uint32_t generation, int outcome)
{
	/* acquire: pairs with memwait_waitgroup_add() */
	uint64_t state = atomic_load_explicit(&group->state, memory_order_acquire);

	if (generation_of(state) != generation)
		return 0;
	if (outcome == MEMWAIT_OK || outcome == MEMWAIT_NOT_EQUAL || outcome == -EINTR)
		return MEMWAIT_OP_WAITS;
	return outcome < 0 ? -outcome : ETIMEDOUT;
}

static int wait_until(struct waitgroup *group, const struct memwait_deadline *deadline)
{
	uint32_t generation;
	int ret;

	if (!group)
		return EINVAL;
	if (!enter(group, &generation))
		return 0;
	do {
		ret = memwait_sleep(generation_word(group), generation,
				    MEMWAIT_SIZE_U32 | group->flags, deadline);
		ret = woken(group, generation, ret);
	} while (ret == MEMWAIT_OP_WAITS);
	return ret;
}

int memwait_waitgroup_wait(memwait_waitgroup_t *group)
{
	return wait_until(to_group(group), &memwait_never);
}

int memwait_waitgroup_clockwait(memwait_waitgroup_t *group, clockid_t clock,
				const struct timespec *abstime)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, abstime);

	return err ? err : wait_until(to_group(group), &deadline);
}

int memwait_waitgroup_timedwait(memwait_waitgroup_t *group, const struct timespec *abstime)
{
	return memwait_waitgroup_clockwait(group, CLOCK_REALTIME, abstime);
}

static int wait_step(struct memwait_op *op, int outcome)
{
	struct waitgroup *group = op->object;
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN) {
		if (!enter(group, &op->generation))
			return 0;
	} else {
		ret = woken(group, op->generation, outcome);
		if (ret != MEMWAIT_OP_WAITS)
			return ret;
	}
	do {
		ret = memwait_op_arm(op, generation_word(group), op->generation,
				     MEMWAIT_SIZE_U32 | group->flags);
		if (ret == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
		ret = woken(group, op->generation, ret);
	} while (ret == MEMWAIT_OP_WAITS);
	return ret;
}

static void wait_undo(struct memwait_op *op, int outcome)
{
	(void)op;
	(void)outcome;	/* all are woken: there is nothing to pass on */
}

static const struct memwait_op_kind wait_kind = { wait_step, wait_undo };

int memwait_waitgroup_wait_async(memwait_waitgroup_t *group, memwait_op_t *op)
{
	if (!group)
		return EINVAL;
	return memwait_op_begin(op, &wait_kind, group, NULL, &memwait_never);
}

int memwait_waitgroup_clockwait_async(memwait_waitgroup_t *group, clockid_t clock,
				      const struct timespec *abstime, memwait_op_t *op)
{
	struct memwait_deadline deadline;
	int err;

	if (!group)
		return EINVAL;
	err = memwait_deadline_set(&deadline, clock, abstime);
	return err ? err : memwait_op_begin(op, &wait_kind, group, NULL, &deadline);
}
