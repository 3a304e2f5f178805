// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Barriers: 64 bits. The upper half is a generation, which changes when all have met.
 *
 *	private: the lower half is the number of arrivals. Waiters sleep on the generation
 *	shared: the lower half counts arrivals, by twos, and goes on counting across generations;
 *		the generation is the lower half at its beginning. Bit 0 is ANNOUNCED: the
 *		generation has begun, and those of the one before are not woken yet. Waiters sleep
 *		on the lower half
 *
 * Invariants:
 *	The generation changes in one step, by the thread that finds all present.
 *	Private: the number of arrivals is below the barrier's count.
 *	Shared: the number of the lower half never goes back, or a waiter would take it for the
 *	value that it saw. Since the generation began, it has grown by at least the number of
 *	arrivals. Nobody arrives, passes or gives up while ANNOUNCED is set.
 *
 * A waiter that gives up takes its arrival back, unless the generation has changed. At a private
 * barrier, the last to arrive changes the generation and wakes the others. If the last one finds
 * that the others cannot be woken, it has not arrived. If the wake-up fails later, @owed says so,
 * and the next thread that comes wakes them.
 *
 * Between processes, a waiter that dies no longer counts. So the number of arrivals is an upper
 * bound: when it reaches the barrier's count, the kernel is asked how many sleep.
 *
 *	(1) add one: to arrive, to repeat (3), and to give up
 *	(2) fewer than all: sleep while the lower half is unchanged
 *	(3) otherwise count the sleepers
 *	(4) all but this one sleep: if the lower half is unchanged, begin a new generation,
 *	    ANNOUNCED
 *	(5) in one system call: clear ANNOUNCED, and wake all
 *	(6) if fewer sleep than all but one, sleep while the lower half is unchanged
 *
 * Of two threads in (3), the later one in (1) changed the value that the earlier one saw. The
 * earlier one slept before, and is counted in (3); or it does not go to sleep, and comes back to
 * (1). So one of them finds all. The lower half grows too large, which is harmless below 2^31.
 *
 * No more threads than the barrier's count may come at a time: of those on their way, nobody can
 * tell which ones the others found asleep. More of them would all pass in (4).
 *
 * Any other thread's change fails the compare-and-swap of (4), and all is repeated.
 *
 * If the caller dies between (4) and (5), all others sleep, as if it had not come. One that comes
 * in its place does (5) and passes with them; so does a waiter that gives up: it has met the
 * others. Whoever clears ANNOUNCED is the one that found all present. If (5) fails, the generation
 * is taken back, and the caller has not arrived.
 */
#include <string.h>

#include "internal.h"

struct barrier {
	_Atomic uint64_t state;		/* lower half: arrivals; upper half: generation */
	struct memwait_users users;
	uint32_t spare;			/* 0 */
	uint32_t count;
	_Atomic uint32_t owed;		/* a generation whose wake-up failed, or 0 */
};

_Static_assert(sizeof(struct barrier) <= sizeof(memwait_barrier_t), "the barrier fits");

#define GENERATION	(1ULL << 32)

/* Of the lower half, if shared. */
#define ANNOUNCED	1U
#define ARRIVAL		2U

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

static bool is_valid(const struct barrier *barrier)
{
	return barrier && barrier->count &&
	       !memwait_is_unknown(barrier->users.flags, barrier->spare,
				   MEMWAIT_PRIVATE);
}

static bool is_private(const struct barrier *barrier)
{
	return barrier->users.flags & MEMWAIT_PRIVATE;
}

/* At a shared barrier, as the next two. Adds to the lower half only, which wraps. */
static uint64_t one_more(uint64_t state)
{
	return (state & ~(uint64_t)UINT32_MAX) | (uint32_t)(state + ARRIVAL);
}

/* The number of arrivals, or more. */
static uint32_t arrived(uint64_t state)
{
	return ((uint32_t)state - generation_of(state)) / ARRIVAL;
}

static uint64_t new_generation(uint64_t state)
{
	uint32_t begins = (uint32_t)state + ARRIVAL;

	return begins * GENERATION + begins + ANNOUNCED;
}

static bool is_announced(const struct barrier *barrier, uint64_t state)
{
	return !is_private(barrier) && state & ANNOUNCED;
}

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

/* Of a private barrier, after a new generation has begun. If it fails, wake_owed() wakes. */
static void wake_all(struct barrier *barrier, uint32_t generation)
{
	if (memwait_wake_all(sleep_word(barrier), barrier->users.flags) < 0)
		/* relaxed: a woken waiter reads the state itself */
		atomic_store_explicit(&barrier->owed, generation ? generation : 1,
				      memory_order_relaxed);
}

/* Retries a failed wake_all(). Returns 0 or an error. */
static int wake_owed(struct barrier *barrier)
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

/* Whether nobody has arrived in this generation. */
static bool is_empty(const struct barrier *barrier, uint64_t state)
{
	return (uint32_t)state == (is_private(barrier) ? 0 : generation_of(state));
}

int memwait_barrier_destroy(memwait_barrier_t *public_barrier)
{
	struct barrier *barrier = to_barrier(public_barrier);
	const volatile void *word;
	uint64_t state;
	int err;

	if (!is_valid(barrier))
		return EINVAL;
	err = wake_owed(barrier);
	if (err)
		return err;
	/* relaxed: a caller that was at the barrier sees at least that generation */
	state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
	/* If nobody has arrived, sleepers are of the last generation, and are being woken. */
	word = is_empty(barrier, state) ? NULL : sleep_word(barrier);
	return memwait_users_drain(&barrier->users, word);
}

/* Of a private barrier. MEMWAIT_BARRIER_SERIAL_THREAD: the last one; or an error. */
static int arrive(struct barrier *barrier, uint32_t *generation)
{
	/* relaxed: the compare-and-swap decides */
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
		/* acq_rel: publishes what each did before to all of them */
	} while (!atomic_compare_exchange_weak_explicit(&barrier->state, &state, next,
							memory_order_acq_rel,
							memory_order_relaxed));
	if (generation_of(next) == *generation)
		return MEMWAIT_OP_WAITS;
	wake_all(barrier, generation_of(next));
	return MEMWAIT_BARRIER_SERIAL_THREAD;
}

/*
 * Of a shared barrier: (5). Returns MEMWAIT_BARRIER_SERIAL_THREAD; 0: another thread has done it,
 * or taken the generation back; or an error.
 */
static int wake_announced(struct barrier *barrier)
{
	uint32_t was;
	int ret = memwait_change(sleep_word(barrier), MEMWAIT_CHANGE_AND, ~ANNOUNCED, MEMWAIT_ALL,
				 barrier->users.flags, &was);

	if (ret < 0)
		return -ret;
	return was & ANNOUNCED ? MEMWAIT_BARRIER_SERIAL_THREAD : 0;
}

/*
 * By one that has arrived in @generation. Returns MEMWAIT_OP_WAITS, and the @state, if that is not
 * over. Otherwise 0 or MEMWAIT_BARRIER_SERIAL_THREAD: all have met, and are woken; or an error, and
 * they have not met.
 */
static int look_for_end(struct barrier *barrier, uint32_t generation, uint64_t *state)
{
	uint64_t back;
	int ret;

	for (;;) {
		/* acquire: pairs with the change of the generation */
		*state = atomic_load_explicit(&barrier->state, memory_order_acquire);
		if (generation_of(*state) == generation)
			return MEMWAIT_OP_WAITS;
		if (!is_announced(barrier, *state))
			return 0;
		ret = wake_announced(barrier);
		if (ret < 0)
			return ret;
		/* relaxed: nobody has passed */
		back = generation * GENERATION + ((uint32_t)*state & ~ANNOUNCED);
		if (ret && atomic_compare_exchange_strong_explicit(&barrier->state, state, back,
								   memory_order_relaxed,
								   memory_order_relaxed))
			return ret;
	}
}

/* Gives up. Returns false if the generation has changed: all have met. */
static bool withdraw(struct barrier *barrier, uint32_t generation)
{
	/* relaxed, all: it learns nothing here, but if it is too late in look_for_end() */
	uint64_t state = atomic_load_explicit(&barrier->state, memory_order_relaxed);

	while (generation_of(state) == generation) {
		uint64_t next = is_private(barrier) ? state - 1 : one_more(state);

		MEMWAIT_INVARIANT(!is_empty(barrier, state));
		if (atomic_compare_exchange_weak_explicit(&barrier->state, &state, next,
							  memory_order_relaxed,
							  memory_order_relaxed))
			return true;
	}
	return false;
}

/*
 * Before a waiter repeats (1), which keeps others from sleeping: a delay that grows, and differs
 * between threads of all processes. Returns whether it waited, and is to look again first.
 */
static bool back_off(int *tries)
{
	uint32_t n = (uint32_t)*tries / 2, i;
	struct memwait_deadline now;

	/* On one processor nobody repeats it at the same time. */
	if ((*tries)++ % 2 || !memwait_may_spin())
		return false;
	memwait_deadline_after(&now, CLOCK_MONOTONIC, 0);
	i = ((uint32_t)now.ns + n) * 0x9e3779b1U >> (n < 8 ? 24 - n : 16);
	while (i--)
		memwait_relax();
	return true;
}

/*
 * At a shared barrier, after arriving; @has_come: the caller's (1) made @state. Returns 0: all have
 * met; MEMWAIT_BARRIER_SERIAL_THREAD: and the caller found that; MEMWAIT_OP_WAITS: sleep; or an
 * error.
 */
static int meet(struct barrier *barrier, struct memwait_round *round, uint64_t state, bool has_come)
{
	int ret;

	for (;; has_come = false) {
		if (!has_come) {
			ret = look_for_end(barrier, round->generation, &state);
			if (ret != MEMWAIT_OP_WAITS)
				return ret;
		}
		MEMWAIT_INVARIANT(arrived(state));
		round->expected = (uint32_t)state;
		if (arrived(state) < barrier->count)
			return MEMWAIT_OP_WAITS;
		if (!has_come) {
			if (back_off(&round->tries))
				continue;
			/* relaxed: the one below acquires what others have released */
			if (!atomic_compare_exchange_strong_explicit(&barrier->state, &state,
								     one_more(state),
								     memory_order_relaxed,
								     memory_order_relaxed))
				continue;
			state = one_more(state);
			round->expected = (uint32_t)state;
		}
		ret = memwait_sleepers(sleep_word(barrier), barrier->users.flags);
		if (ret < 0)
			return -ret;
		if ((uint32_t)ret + 1 < barrier->count)
			return MEMWAIT_OP_WAITS;
		/* acq_rel: as arrive(). Then this finds what it has announced. */
		atomic_compare_exchange_strong_explicit(&barrier->state, &state,
							new_generation(state),
							memory_order_acq_rel,
							memory_order_relaxed);
	}
}

/* Arrives. Returns the result, or MEMWAIT_OP_WAITS. */
static int begin(struct barrier *barrier, struct memwait_round *round)
{
	uint64_t state;
	int ret;

	memwait_tsan_release(&barrier->users.operations);
	wake_owed(barrier);
	round->tries = 0;
	round->word = sleep_word(barrier);
	round->flags = MEMWAIT_SIZE_U32 | barrier->users.flags;
	if (is_private(barrier)) {
		ret = arrive(barrier, &round->generation);
		round->expected = round->generation;
		return ret;
	}
	/* relaxed, all loads: the compare-and-swap decides, or the system call that it passes by */
	state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
	do {
		/* The one that was to wake them has died, or will find it done. */
		while (is_announced(barrier, state)) {
			ret = wake_announced(barrier);
			if (ret)
				return ret;
			state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
		}
		/* acq_rel: as arrive() */
	} while (!atomic_compare_exchange_weak_explicit(&barrier->state, &state, one_more(state),
							memory_order_acq_rel,
							memory_order_relaxed));
	round->generation = generation_of(state);
	ret = meet(barrier, round, one_more(state), true);
	if (ret > 0)
		withdraw(barrier, round->generation);
	return ret;
}

/* Before the barrier is left, which may be freed then. */
static int look(struct memwait_users *users, struct memwait_round *round, int outcome)
{
	struct barrier *barrier = of_users(users);
	uint64_t state;
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN)
		return begin(barrier, round);
	ret = look_for_end(barrier, round->generation, &state);
	if (ret <= 0 && ret != MEMWAIT_OP_WAITS)
		return ret;
	if (ret == MEMWAIT_OP_WAITS &&
	    (outcome == MEMWAIT_OK || outcome == MEMWAIT_NOT_EQUAL || outcome == -EINTR)) {
		if (is_private(barrier))
			return MEMWAIT_OP_WAITS;
		ret = meet(barrier, round, state, false);
		if (ret <= 0)
			return ret;
	}
	if (ret > 0)
		outcome = -ret;
	while (!withdraw(barrier, round->generation)) {
		ret = look_for_end(barrier, round->generation, &state);
		if (ret != MEMWAIT_OP_WAITS)
			return ret;
	}
	return outcome < 0 ? -outcome : ETIMEDOUT;
}

static int wait_until(memwait_barrier_t *public_barrier, const struct memwait_deadline *deadline)
{
	struct barrier *barrier = to_barrier(public_barrier);
	int ret;

	if (!is_valid(barrier))
		return EINVAL;
	ret = memwait_need_device();
	if (ret)
		return ret;
	if (barrier->count == 1)
		return MEMWAIT_BARRIER_SERIAL_THREAD;
	return memwait_users_wait(&barrier->users, look, deadline);
}

static int wait_step(struct memwait_op *op, int outcome)
{
	struct barrier *barrier = op->object;

	if (!is_valid(barrier))
		return EINVAL;
	if (barrier->count == 1)
		return MEMWAIT_BARRIER_SERIAL_THREAD;
	return memwait_users_step(&barrier->users, look, op, outcome);
}

static void wait_undo(struct memwait_op *op, int outcome)
{
	struct barrier *barrier = op->object;

	(void)outcome;
	/* Too late: whoever has found all present wakes them, and is told so. */
	withdraw(barrier, op->round.generation);
	memwait_users_leave(&barrier->users, op);
}

static const struct memwait_op_kind wait_kind = { .step = wait_step, .undo = wait_undo };

MEMWAIT_DEFINE_WAITS(barrier, wait, memwait_barrier_t)
