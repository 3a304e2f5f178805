// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Wait groups. A wait group has a state of 64 bits. The generation lets a waiter return even if the
 * count rises again before the waiter runs.
 *
 *	bits 0 to 29	the count
 *	WAITERS		a waiter sleeps, or is about to
 *	bits 32 to 63	the generation
 *
 * Invariants:
 *	A waiter sets WAITERS only at a count above 0, and sleeps only while it is set.
 *	A step to or from a count of 0 at which WAITERS is set clears WAITERS and changes the
 *	generation; except that the kernel may set the count to 0 and wake all waiters.
 *
 * Waiters sleep at the address of the lower half, while the whole state is unchanged; on big-endian
 * machines, while that half is unchanged. If WAITERS is set, one system call, which a kill cannot
 * split, sets the count to 0 and wakes all waiters. WAITERS then stays set at 0. The next add
 * clears WAITERS and changes the generation: a waiter returns if it finds 0, or another generation.
 * A wake-up is spurious if a thread adds to the count before the kernel subtracts the last unit. If
 * the system call fails, nothing was done.
 *
 * A woken waiter reads the state again, so all waiters are users, and destroy waits until they have
 * left (users.c). The thread that sets the count to 0 touches nothing afterwards.
 */
#include <string.h>

#include "object.h"
#include "users.h"

struct waitgroup {
	/* upper half: generation; lower half: WAITERS, count */
	_Atomic uint64_t state;
	struct memwait_users users;
	uint32_t spare;			/* 0 */
};

_Static_assert(MEMWAIT_WAITGROUP_MAX == 0x3fffffff, "as COUNT");
_Static_assert(sizeof(struct waitgroup) <= sizeof(memwait_waitgroup_t), "the wait group fits");

#define WAITERS		0x40000000ULL
#define COUNT		0x3fffffffULL
#define GENERATION	(1ULL << 32)

static struct waitgroup *to_group(memwait_waitgroup_t *group)
{
	return (struct waitgroup *)group;
}

static bool waitgroup_is_valid(const struct waitgroup *group)
{
	return group && !memwait_is_unknown(group->users.flags, group->spare, MEMWAIT_PRIVATE);
}

static struct waitgroup *waitgroup_of_users(struct memwait_users *users)
{
	return (struct waitgroup *)((char *)users - offsetof(struct waitgroup, users));
}

/* The address at which system calls change the state, and at which waiters sleep. */
static const volatile void *count_word(struct waitgroup *group)
{
	return memwait_lower_half(&group->state);
}

#define SLEEP_SIZE	(MEMWAIT_LOWER_HALF ? MEMWAIT_SIZE_U32 : MEMWAIT_SIZE_U64)

int memwait_waitgroup_init(memwait_waitgroup_t *group, unsigned int flags, unsigned int count)
{
	if (!group || (flags & ~(unsigned int)MEMWAIT_PRIVATE) || count > MEMWAIT_WAITGROUP_MAX)
		return EINVAL;
	memset(group, 0, sizeof(*group));
	atomic_init(&to_group(group)->state, count);
	to_group(group)->users.flags = flags;
	return memwait_need_device();
}

int memwait_waitgroup_destroy(memwait_waitgroup_t *public_group)
{
	struct waitgroup *group = to_group(public_group);

	if (!waitgroup_is_valid(group))
		return EINVAL;
	/* acquire: the caller may free the protected data */
	if (atomic_load_explicit(&group->state, memory_order_acquire) & COUNT)
		return EBUSY;
	/* Waiters that sleep at a count of 0 are being woken. */
	return memwait_users_drain(&group->users, NULL);
}

/* Subtracts the last units and wakes all waiters. Returns 0; or an error, and nothing was done. */
static int waitgroup_finish(struct waitgroup *group, int delta, uint32_t flags)
{
	uint32_t was;
	int ret;

	ret = memwait_change(count_word(group), MEMWAIT_CHANGE_ADD, (uint32_t)delta, MEMWAIT_ALL,
			     flags, &was);
	if (ret < 0)
		return -ret;
	if ((int64_t)(was & COUNT) + delta >= 0)
		return 0;
	/*
	 * Two calls have subtracted the same unit: undo this call. Threads that saw its effect may
	 * be asleep.
	 */
	memwait_change(count_word(group), MEMWAIT_CHANGE_ADD, (uint32_t)-delta, MEMWAIT_ALL, flags,
		       NULL);
	return EINVAL;
}

int memwait_waitgroup_add(memwait_waitgroup_t *public_group, int delta)
{
	struct waitgroup *group = to_group(public_group);
	uint64_t state, next;
	uint32_t flags;
	int64_t count;
	int ret;

	if (!waitgroup_is_valid(group))
		return EINVAL;
	/* Units that were added can be subtracted even if the device is lost. */
	ret = delta < 0 ? memwait_need_device_once() : memwait_need_device();
	if (ret || !delta)
		return ret;
	memwait_tsan_release(&group->users.operations);
	flags = group->users.flags;	/* a waiter may free the group */
	/* relaxed: the compare-and-swap decides */
	state = atomic_load_explicit(&group->state, memory_order_relaxed);
	do {
		count = (int64_t)(state & COUNT) + delta;
		if (count < 0)
			return EINVAL;
		if (count > MEMWAIT_WAITGROUP_MAX)
			return EOVERFLOW;
		next = (state & ~COUNT) | (uint64_t)count;
		if (!count && state & WAITERS)
			return waitgroup_finish(group, delta, flags);
		if (next & WAITERS && !(state & COUNT))
			next = (next & ~WAITERS) + GENERATION;
		MEMWAIT_INVARIANT(!(state & WAITERS) || state & COUNT ||
				  !(next & WAITERS ||
				    memwait_generation(next) == memwait_generation(state)));
		/* acq_rel: publishes all work before a count of 0 to the waiters */
	} while (!atomic_compare_exchange_weak_explicit(&group->state, &state, next,
							memory_order_acq_rel,
							memory_order_relaxed));
	return 0;
}

int memwait_waitgroup_done(memwait_waitgroup_t *group)
{
	return memwait_waitgroup_add(group, -1);
}

/* Returns 0; or MEMWAIT_OP_WAITS, with WAITERS set. */
static int waitgroup_enter(struct waitgroup *group, struct memwait_round *round)
{
	/* acquire: pairs with memwait_waitgroup_add() */
	uint64_t state = atomic_load_explicit(&group->state, memory_order_acquire);

	round->word = count_word(group);
	round->flags = SLEEP_SIZE | group->users.flags;
	do {
		if (!(state & COUNT))
			return 0;
		round->generation = memwait_generation(state);
		round->expected = state | WAITERS;
		/* acquire: pairs with memwait_waitgroup_add() */
	} while (!(state & WAITERS) &&
		 !atomic_compare_exchange_weak_explicit(&group->state, &state, state | WAITERS,
							memory_order_acquire,
							memory_order_acquire));
	return MEMWAIT_OP_WAITS;
}

/* Called before the thread leaves the group, which may be freed afterwards. */
static int waitgroup_look(struct memwait_users *users, struct memwait_round *round, int outcome)
{
	struct waitgroup *group = waitgroup_of_users(users);
	uint64_t state;

	if (outcome == MEMWAIT_OP_BEGIN)
		return waitgroup_enter(group, round);
	/* acquire: pairs with memwait_waitgroup_add() */
	state = atomic_load_explicit(&group->state, memory_order_acquire);
	if (memwait_generation(state) != round->generation || !(state & COUNT))
		return 0;
	round->expected = state;
	if (outcome == MEMWAIT_OK || outcome == MEMWAIT_NOT_EQUAL || outcome == -EINTR)
		return MEMWAIT_OP_WAITS;
	return outcome < 0 ? -outcome : ETIMEDOUT;
}

/* Whether there is nothing to wait for, and no need to become a user. */
static bool is_over(struct waitgroup *group)
{
	/* acquire: pairs with memwait_waitgroup_add() */
	if (atomic_load_explicit(&group->state, memory_order_acquire) & COUNT)
		return false;
	memwait_tsan_acquire(&group->users.operations);
	return true;
}

static int waitgroup_wait_until(memwait_waitgroup_t *public_group,
				const struct memwait_deadline *deadline)
{
	struct waitgroup *group = to_group(public_group);
	struct memwait_round round = { 0 };
	int ret;

	if (!waitgroup_is_valid(group))
		return EINVAL;
	ret = memwait_need_device();
	if (ret || is_over(group))
		return ret;
	return memwait_users_round(&group->users, waitgroup_look, &round, NULL, deadline,
				   MEMWAIT_OP_BEGIN);
}

static int waitgroup_wait_step(struct memwait_op *op, int outcome)
{
	struct waitgroup *group = op->object;

	if (outcome == MEMWAIT_OP_BEGIN && !waitgroup_is_valid(group))
		return EINVAL;
	if (outcome == MEMWAIT_OP_BEGIN && is_over(group))
		return 0;
	return memwait_users_round(&group->users, waitgroup_look, &op->round, op, NULL, outcome);
}

static void waitgroup_wait_undo(struct memwait_op *op, int outcome)
{
	struct waitgroup *group = op->object;

	(void)outcome;	/* all waiters are woken: there is nothing to pass on */
	memwait_users_leave(&group->users, op);
}

static const struct memwait_op_kind waitgroup_wait_kind = {
	.step = waitgroup_wait_step,
	.undo = waitgroup_wait_undo,
};

MEMWAIT_DEFINE_OBJECT_WAITS(waitgroup, wait, memwait_waitgroup_t)
