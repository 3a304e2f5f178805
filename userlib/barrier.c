// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Barriers: how many have arrived, and a generation (internal.h) that changes when all have.
 *
 * Who gives up takes its arrival back, unless the generation has changed by then.
 */
#include <string.h>

#include "internal.h"

struct barrier {
	_Atomic uint64_t state;		/* arrived; upper half: generation */
	uint32_t count;
	_Atomic uint32_t users;
	uint32_t flags;			/* MEMWAIT_PRIVATE or 0 */
};

_Static_assert(sizeof(struct barrier) <= sizeof(memwait_barrier_t), "the barrier fits");

#define GENERATION	(1ULL << 32)

static struct barrier *to_barrier(memwait_barrier_t *barrier)
{
	return (struct barrier *)barrier;
}

static uint32_t generation_of(uint64_t state)
{
	return (uint32_t)(state >> 32);
}

static const volatile void *generation_word(struct barrier *barrier)
{
	return memwait_upper_half(&barrier->state);
}

int memwait_barrier_init(memwait_barrier_t *barrier, unsigned int flags, unsigned int count)
{
	if (!barrier || (flags & ~(unsigned int)MEMWAIT_PRIVATE) || !count)
		return EINVAL;
	memset(barrier, 0, sizeof(*barrier));
	to_barrier(barrier)->count = count;
	to_barrier(barrier)->flags = flags;
	return 0;
}

int memwait_barrier_destroy(memwait_barrier_t *public_barrier)
{
	struct barrier *barrier = to_barrier(public_barrier);

	if (!barrier || !barrier->count)
		return EINVAL;
	return memwait_users_drain(&barrier->users, generation_word(barrier), barrier->flags);
}

static int leave(struct barrier *barrier, int ret)
{
	memwait_users_leave(&barrier->users, barrier->flags);
	return ret;
}

/* Returns MEMWAIT_BARRIER_SERIAL_THREAD if the caller was the last one, or an error; 0: to wait. */
static int arrive(struct barrier *barrier, uint32_t *generation)
{
	uint64_t state, next;
	int ret;

	if (!barrier->count)
		return EINVAL;
	/* relaxed: memwait_barrier_destroy() is not called while somebody comes */
	atomic_fetch_add_explicit(&barrier->users, 1, memory_order_relaxed);
	/* relaxed: only the compare-and-swap counts */
	state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
	do {
		*generation = generation_of(state);
		next = state + 1;
		if ((uint32_t)next == barrier->count)
			next = (state | UINT32_MAX) + 1;
		/* acq_rel: what each did before is there for all of them afterwards */
	} while (!atomic_compare_exchange_weak_explicit(&barrier->state, &state, next,
							memory_order_acq_rel,
							memory_order_relaxed));
	if (generation_of(next) == *generation)
		return 0;
	ret = 0;
	if (barrier->count > 1)
		ret = memwait_wake(generation_word(barrier), MEMWAIT_ALL, barrier->flags);
	return leave(barrier, ret < 0 ? -ret : MEMWAIT_BARRIER_SERIAL_THREAD);
}

/* Whether it still was to be taken back. */
static bool take_back(struct barrier *barrier, uint32_t generation)
{
	/* acquire: if it is too late, then as has_passed() */
	uint64_t state = atomic_load_explicit(&barrier->state, memory_order_acquire);

	while (generation_of(state) == generation) {
		/* acquire: as above */
		if (atomic_compare_exchange_weak_explicit(&barrier->state, &state, state - 1,
							  memory_order_acquire,
							  memory_order_acquire))
			return true;
	}
	return false;
}

static bool has_passed(struct barrier *barrier, uint32_t generation)
{
	/* acquire: pairs with the one who came last */
	uint64_t state = atomic_load_explicit(&barrier->state, memory_order_acquire);

	return generation_of(state) != generation;
}

/* A wait has ended: the result, or MEMWAIT_OP_WAITS to wait on. */
static int woken(struct barrier *barrier, uint32_t generation, int outcome)
{
	if (has_passed(barrier, generation))
		return 0;
	if (outcome == MEMWAIT_OK || outcome == MEMWAIT_NOT_EQUAL || outcome == -EINTR)
		return MEMWAIT_OP_WAITS;
	if (!take_back(barrier, generation))
		return 0;
	return outcome < 0 ? -outcome : ETIMEDOUT;
}

static int wait_until(struct barrier *barrier, const struct memwait_deadline *deadline)
{
	uint32_t generation;
	int ret;

	if (!barrier)
		return EINVAL;
	ret = arrive(barrier, &generation);
	if (ret)
		return ret;
	do {
		ret = memwait_sleep(generation_word(barrier), generation,
				    MEMWAIT_SIZE_U32 | barrier->flags, deadline);
		ret = woken(barrier, generation, ret);
	} while (ret == MEMWAIT_OP_WAITS);
	return leave(barrier, ret);
}

int memwait_barrier_wait(memwait_barrier_t *barrier)
{
	return wait_until(to_barrier(barrier), &memwait_never);
}

int memwait_barrier_clockwait(memwait_barrier_t *barrier, clockid_t clock,
			      const struct timespec *abstime)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, abstime);

	return err ? err : wait_until(to_barrier(barrier), &deadline);
}

int memwait_barrier_timedwait(memwait_barrier_t *barrier, const struct timespec *abstime)
{
	return memwait_barrier_clockwait(barrier, CLOCK_REALTIME, abstime);
}

static int wait_step(struct memwait_op *op, int outcome)
{
	struct barrier *barrier = op->object;
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN) {
		ret = arrive(barrier, &op->generation);
		if (ret)
			return ret;
	} else {
		ret = woken(barrier, op->generation, outcome);
		if (ret != MEMWAIT_OP_WAITS)
			return leave(barrier, ret);
	}
	do {
		ret = memwait_op_arm(op, generation_word(barrier), op->generation,
				     MEMWAIT_SIZE_U32 | barrier->flags);
		if (ret == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
		ret = woken(barrier, op->generation, ret);
	} while (ret == MEMWAIT_OP_WAITS);
	return leave(barrier, ret);
}

static void wait_undo(struct memwait_op *op, int outcome)
{
	struct barrier *barrier = op->object;

	(void)outcome;	/* all are woken: there is nothing to pass on */
	take_back(barrier, op->generation);
	leave(barrier, 0);
}

static const struct memwait_op_kind wait_kind = { wait_step, wait_undo };

int memwait_barrier_wait_async(memwait_barrier_t *barrier, memwait_op_t *op)
{
	if (!barrier)
		return EINVAL;
	return memwait_op_begin(op, &wait_kind, barrier, NULL, &memwait_never);
}

int memwait_barrier_clockwait_async(memwait_barrier_t *barrier, clockid_t clock,
				    const struct timespec *abstime, memwait_op_t *op)
{
	struct memwait_deadline deadline;
	int err;

	if (!barrier)
		return EINVAL;
	err = memwait_deadline_set(&deadline, clock, abstime);
	return err ? err : memwait_op_begin(op, &wait_kind, barrier, NULL, &deadline);
}
