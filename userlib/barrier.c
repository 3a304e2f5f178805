// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Barriers: 64 bits. The upper half is a generation, which changes when all have met.
 *
 *	private: the lower half is how many have arrived. Waiters sleep on the generation
 *	shared: the lower half counts arrivals, and goes on counting from one generation to the
 *		next; the generation is what the lower half was when it began. Waiters sleep on the
 *		lower half
 *
 * Invariants:
 *	The generation changes by one step, of the thread that finds all here.
 *	Of a private barrier fewer have arrived than meet.
 *	Of a shared one the lower half never goes back: or a waiter would take it for the number
 *	that it has seen. Since the generation began it has gone up by as many as have arrived, or
 *	more.
 *
 * A waiter that gives up takes its arrival back, unless the generation has changed by then. Of a
 * private barrier the last one to arrive changes the generation, and wakes the others.
 *
 * The last one asks before it arrives whether others can be woken: if not, it has not arrived
 * either. If they cannot be woken afterwards, @owed says so, and the next thread that comes wakes
 * them.
 *
 * Between processes a waiter that dies does not count, though it has arrived. So the number of
 * arrivals is an upper bound: only when it says that all are here, the kernel is asked how many
 * sleep.
 *
 *	(1) arrive: one more; likewise when one comes back to (2), or gives up
 *	(2) fewer than all: sleep while the lower half is what it is
 *	(3) otherwise ask how many sleep, if it is still the same, and answer for them
 *	(4) all but this one: begin a new generation; wake all
 *	(5) otherwise sleep while the lower half is what it is
 *
 * Of two that do (3), the one that came last to (1) has changed the number that the other has seen.
 * Either that one slept before, and is counted at (3), or it does not go to sleep, and comes back
 * to (1). So one of them finds all. The number becomes too large, which does no harm below 2^32.
 *
 * More than the barrier's count must not come at a time: of those that are on their way, it cannot
 * be told which the others have found asleep.
 *
 * Any change by others, an arrival or one that gives up, makes (4) fail, which is a
 * compare-and-swap, and all is done again. If the caller dies after (3), the oldest waiter is told.
 * If the generation has changed, that waiter wakes the others. If not, it goes to (1): the dead one
 * is not among them.
 */
#include <sched.h>
#include <string.h>

#include "internal.h"

struct barrier {
	_Atomic uint64_t state;		/* arrived; upper half: generation */
	struct memwait_users users;
	uint32_t count;
	_Atomic uint32_t owed;		/* a generation of which nobody could be woken, or 0 */
};

_Static_assert(sizeof(struct barrier) <= sizeof(memwait_barrier_t), "the barrier fits");

#define GENERATION	(1ULL << 32)

static struct barrier *to_barrier(memwait_barrier_t *barrier)
{
	return (struct barrier *)barrier;
}

static struct barrier *of_users(struct memwait_users *users)
{
	return (struct barrier *)((char *)users - offsetof(struct barrier, users));
}

static uint32_t generation_of(uint64_t state)
{
	return (uint32_t)(state >> 32);
}

/* Counts in the lower half only, which comes round. */
static uint64_t one_more(uint64_t state)
{
	return (state & ~(uint64_t)UINT32_MAX) | (uint32_t)(state + 1);
}

/* Of a shared barrier: how many have arrived, or more. */
static uint32_t arrived(uint64_t state)
{
	return (uint32_t)state - generation_of(state);
}

static uint64_t new_generation(uint64_t state)
{
	uint32_t begins = (uint32_t)state + 1;

	return begins * GENERATION + begins;
}

static bool is_private(const struct barrier *barrier)
{
	return barrier->users.flags & MEMWAIT_PRIVATE;
}

/* What waiters sleep on, see above. */
static const volatile void *sleep_word(struct barrier *barrier)
{
	return is_private(barrier) ? memwait_upper_half(&barrier->state) :
				     memwait_lower_half(&barrier->state);
}

int memwait_barrier_init(memwait_barrier_t *barrier, unsigned int flags, unsigned int count)
{
	if (!barrier || (flags & ~(unsigned int)MEMWAIT_PRIVATE) || !count)
		return EINVAL;
	memset(barrier, 0, sizeof(*barrier));
	to_barrier(barrier)->count = count;
	to_barrier(barrier)->users.flags = flags;
	return memwait_need_device();
}

/* By a user, after a new generation has begun. If this cannot wake, make_up() of the next does. */
static void wake_all(struct barrier *barrier, uint32_t generation)
{
	if (memwait_wake_all(sleep_word(barrier), barrier->users.flags) < 0)
		/* relaxed: who is woken looks at the state itself */
		atomic_store_explicit(&barrier->owed, generation ? generation : 1,
				      memory_order_relaxed);
}

/* Wakes those whom wake_all() could not. Returns 0 or an error. */
static int make_up(struct barrier *barrier)
{
	/* relaxed, all: as above. A generation does not come back. */
	uint32_t owed = atomic_load_explicit(&barrier->owed, memory_order_relaxed);
	int ret;

	if (!owed)
		return 0;
	ret = memwait_wake_all(sleep_word(barrier), barrier->users.flags);
	if (ret < 0)
		return -ret;
	atomic_compare_exchange_strong_explicit(&barrier->owed, &owed, 0, memory_order_relaxed,
						memory_order_relaxed);
	return 0;
}

/* Whether nobody has arrived since the last generation. */
static bool is_empty(const struct barrier *barrier, uint64_t state)
{
	return is_private(barrier) ? !(uint32_t)state : !arrived(state);
}

int memwait_barrier_destroy(memwait_barrier_t *public_barrier)
{
	struct barrier *barrier = to_barrier(public_barrier);
	const volatile void *word;
	uint64_t state;
	int err;

	if (!barrier || !barrier->count)
		return EINVAL;
	err = make_up(barrier);
	if (err)
		return err;
	/* relaxed: a caller that has been at the barrier sees the generation of then, at least */
	state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
	/* Those that sleep while nobody has arrived are of the last one, and are being woken. */
	word = is_empty(barrier, state) ? NULL : sleep_word(barrier);
	return memwait_users_drain(&barrier->users, word);
}

/* At a private barrier. MEMWAIT_BARRIER_SERIAL_THREAD: the last one; or an error. */
static int arrive(struct barrier *barrier, uint32_t *generation)
{
	/* relaxed: only the compare-and-swap counts */
	uint64_t state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
	uint64_t next;
	int ret = 0;

	do {
		MEMWAIT_INVARIANT((uint32_t)state < barrier->count);
		*generation = generation_of(state);
		next = state + 1;
		if ((uint32_t)next == barrier->count) {
			ret = memwait_sleepers(sleep_word(barrier), barrier->users.flags);
			if (ret < 0)
				return -ret;
			next = (state | UINT32_MAX) + 1;
		}
		/* acq_rel: what each did before is there for all of them afterwards */
	} while (!atomic_compare_exchange_weak_explicit(&barrier->state, &state, next,
							memory_order_acq_rel,
							memory_order_relaxed));
	if (generation_of(next) == *generation)
		return MEMWAIT_OP_WAITS;
	wake_all(barrier, generation_of(next));
	return MEMWAIT_BARRIER_SERIAL_THREAD;
}

/* Gives up. Returns false if the generation has changed, so that all are here. */
static bool take_back(struct barrier *barrier, uint32_t generation)
{
	/* acquire: if it is too late, as in look() */
	uint64_t state = atomic_load_explicit(&barrier->state, memory_order_acquire);

	while (generation_of(state) == generation) {
		uint64_t next = is_private(barrier) ? state - 1 : one_more(state);

		MEMWAIT_INVARIANT(!is_empty(barrier, state));
		/* acquire: as above */
		if (atomic_compare_exchange_weak_explicit(&barrier->state, &state, next,
							  memory_order_acquire,
							  memory_order_acquire))
			return true;
	}
	return false;
}

/*
 * Before a waiter does (1) once more. Each (1) keeps the others from their sleep, so it waits: for
 * a while that becomes longer, and differs from thread to thread. Returns whether it has waited,
 * and is to look again first.
 */
static bool back_off(int *tries)
{
	uint32_t n = (uint32_t)*tries / 2, i;

	if ((*tries)++ % 2)
		return false;
	if (!memwait_may_spin()) {
		sched_yield();
		return true;
	}
	i = (memwait_thread_id() + n) * 0x9e3779b1U >> (n < 8 ? 24 - n : 16);
	while (i--)
		memwait_relax();
	return true;
}

/*
 * At a shared barrier, after arriving; @has_come: it was this one's (1) that made @state. Returns
 * 0: all are here; MEMWAIT_BARRIER_SERIAL_THREAD: and this one has found that; MEMWAIT_OP_WAITS: to
 * sleep; or an error.
 */
static int meet(struct barrier *barrier, struct memwait_round *round, uint64_t state, bool has_come)
{
	uint64_t next;
	int others;

	for (;; has_come = false) {
		if (generation_of(state) != round->generation)
			return 0;
		MEMWAIT_INVARIANT(arrived(state));
		round->expected = (uint32_t)state;
		if (arrived(state) < barrier->count)
			return MEMWAIT_OP_WAITS;
		if (!has_come) {
			if (back_off(&round->tries)) {
				state = atomic_load_explicit(&barrier->state, memory_order_acquire);
				continue;
			}
			/* acquire, all: pairs with the one that changed the generation */
			if (!atomic_compare_exchange_strong_explicit(&barrier->state, &state,
								     one_more(state),
								     memory_order_acquire,
								     memory_order_acquire))
				continue;
			state = one_more(state);
			round->expected = (uint32_t)state;
		}
		others = memwait_answer_for(sleep_word(barrier), (uint32_t)state,
					    barrier->users.flags);
		if (others < 0)
			return -others;
		if (others == MEMWAIT_CHANGED) {
			state = atomic_load_explicit(&barrier->state, memory_order_acquire);
			continue;
		}
		if ((uint32_t)others + 1 < barrier->count)
			return MEMWAIT_OP_WAITS;
		/* acq_rel: what each did before is there for all of them afterwards */
		next = new_generation(state);
		if (atomic_compare_exchange_strong_explicit(&barrier->state, &state, next,
							    memory_order_acq_rel,
							    memory_order_acquire))
			break;
	}
	wake_all(barrier, generation_of(next));
	return MEMWAIT_BARRIER_SERIAL_THREAD;
}

/* Arrives. The result, or MEMWAIT_OP_WAITS. */
static int begin(struct barrier *barrier, struct memwait_round *round)
{
	uint64_t state;
	int ret;

	make_up(barrier);
	round->tries = 0;
	round->word = sleep_word(barrier);
	round->flags = MEMWAIT_SIZE_U32 | memwait_sleep_flags(barrier->users.flags);
	if (is_private(barrier)) {
		ret = arrive(barrier, &round->generation);
		round->expected = round->generation;
		return ret;
	}
	/* relaxed: only the compare-and-swap counts */
	state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
	/* acq_rel: what it did before is there for all of them afterwards */
	while (!atomic_compare_exchange_weak_explicit(&barrier->state, &state, one_more(state),
						      memory_order_acq_rel, memory_order_relaxed))
		;
	round->generation = generation_of(state);
	ret = meet(barrier, round, one_more(state), true);
	/* An error, so it does not wait. */
	if (ret > 0)
		take_back(barrier, round->generation);
	return ret;
}

static int look(struct memwait_users *users, struct memwait_round *round, int outcome)
{
	struct barrier *barrier = of_users(users);
	uint64_t state;
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN)
		return begin(barrier, round);
	/* acquire: pairs with the one that changed the generation */
	state = atomic_load_explicit(&barrier->state, memory_order_acquire);
	if (generation_of(state) != round->generation) {
		/* The one that was to wake all has died. */
		if (outcome == MEMWAIT_OWNER_DIED)
			wake_all(barrier, generation_of(state));
		return 0;
	}
	if (memwait_was_woken(outcome) || outcome == MEMWAIT_NOT_EQUAL || outcome == -EINTR) {
		if (is_private(barrier))
			return MEMWAIT_OP_WAITS;
		ret = meet(barrier, round, state, false);
		if (ret <= 0)
			return ret;
		outcome = -ret;
	}
	if (!take_back(barrier, round->generation))
		return 0;
	return outcome < 0 ? -outcome : ETIMEDOUT;
}

static int wait_until(struct barrier *barrier, const struct memwait_deadline *deadline)
{
	int ret;

	if (!barrier || !barrier->count)
		return EINVAL;
	ret = memwait_need_device();
	if (ret)
		return ret;
	/* One that is alone meets nobody. */
	if (barrier->count == 1)
		return MEMWAIT_BARRIER_SERIAL_THREAD;
	return memwait_users_wait(&barrier->users, look, deadline);
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

	if (!barrier->count)
		return EINVAL;
	if (barrier->count == 1)
		return MEMWAIT_BARRIER_SERIAL_THREAD;
	return memwait_users_step(&barrier->users, look, op, outcome);
}

static void wait_undo(struct memwait_op *op, int outcome)
{
	struct barrier *barrier = op->object;

	/* As in look(): if it was told of a death, the others may not have been woken. */
	if (!take_back(barrier, op->round.generation) && outcome == MEMWAIT_OWNER_DIED)
		wake_all(barrier, op->round.generation);
	memwait_users_leave(&barrier->users, op);
}

static const struct memwait_op_kind wait_kind = { .step = wait_step, .undo = wait_undo };

int memwait_barrier_wait_async(memwait_barrier_t *barrier, memwait_op_t *op)
{
	return memwait_op_begin(op, &wait_kind, barrier, NULL, &memwait_never);
}

int memwait_barrier_clockwait_async(memwait_barrier_t *barrier, clockid_t clock,
				    const struct timespec *abstime, memwait_op_t *op)
{
	return memwait_op_begin_until(op, &wait_kind, barrier, NULL, clock, abstime);
}
