// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Barriers: 64 bits. The upper half is a generation, which changes when all have met.
 *
 *	private: the lower half is the number of arrivals. Waiters sleep on the generation
 *	shared: the lower half counts arrivals, and goes on counting across generations; the
 *		generation is the lower half at its beginning. Waiters sleep on the lower half
 *
 * What waiters sleep on grows by eights. Its bits below:
 *
 *	ANNOUNCED	those of the generation before are not woken yet. Private: nor have they met
 *	BROKEN		the waiters of this generation fail
 *	ABORTED		beside BROKEN: a thread that comes fails, too. Without it that thread first
 *			finishes the reset which has set BROKEN
 *
 * Invariants:
 *	Shared: the generation changes in one step, by the thread that finds all present, or by a
 *	reset.
 *	Private: the number of arrivals is below the barrier's count, unless called off, as the last
 *	one does not add itself. It is 0 while ANNOUNCED is set.
 *	Shared: the number of the lower half never goes back, or a waiter would take it for the
 *	value that it saw. Since the generation began, it has grown by at least the number of
 *	arrivals. Nobody passes while ANNOUNCED is set.
 *	Nobody arrives while ANNOUNCED is set; nor, if shared, gives up.
 *	Nobody arrives, takes an arrival back or falls asleep while BROKEN is set, and no generation
 *	begins but by (7) and (8).
 *
 * A waiter that gives up takes its arrival back, unless the generation is over.
 *
 * At a private barrier, for one that comes when all others have arrived:
 *
 *	(i) the next generation, ANNOUNCED
 *	(ii) in one system call: clear ANNOUNCED, and wake all
 *
 * Whoever clears ANNOUNCED in (ii) is the last to arrive, and passes. Until then (i) says no more
 * than that all but one have arrived. Those wait on; one that gives up goes back to their
 * generation, with one arrival less. If (ii) fails, or finds nothing to clear, its caller has not
 * arrived. It may be late, and clear ANNOUNCED of a later generation: then it is the last there.
 *
 * If an abort comes between (i) and (ii), the first waiter that sees it calls the generation off:
 * in one step it clears ANNOUNCED, and makes the number of arrivals the barrier's count. (ii) comes
 * before that step, or finds nothing to clear. So all have met, or all of them fail.
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
 * (1). So one of them finds all. The lower half grows too large, which is harmless for 2^29 times.
 *
 * No more threads than the barrier's count may come at a time: of those on their way, nobody can
 * tell which ones the others found asleep. More of them would all pass in (4).
 *
 * Any other thread's change fails the compare-and-swap of (4), and all is repeated.
 *
 * If the caller dies between (4) and (5), all others sleep, as if it had not come. One that comes
 * in its place does (5) and passes with them; so does a waiter that gives up: it has met the
 * others. Whoever clears ANNOUNCED is the one that found all present. If (5) fails, the generation
 * is taken back, and the caller has not arrived. A caller that stood still before (5) may clear
 * that of a later generation, after a reset: then nobody of that generation is told that it found
 * all present.
 *
 * Abort sets BROKEN and ABORTED, and wakes all, in one system call: no death can split it, but
 * others may see BROKEN before all are woken. A reset does the same with BROKEN alone, and then:
 *
 *	(7) wakes all; @epoch: becomes the generation that is to begin
 *	(8) the state: that generation begins, and BROKEN and ABORTED are cleared
 *
 * A waiter that the reset wakes may come again before (8), and a caller may die before it: so
 * a thread that comes does (7) and (8) itself, unless ABORTED is set. A reset whose generation is
 * over has nothing left to do: what is BROKEN then is so by a later call.
 *
 * Nobody sleeps from (7) to (8): another abort may still be about to wake those of its BROKEN, but
 * those of the new generation must not find them asleep.
 *
 * A waiter that finds another generation has met the others, or its own generation has ended by a
 * reset: then @epoch is not what it was when the waiter arrived. If all had met before the reset,
 * it fails too. A waiter that finds its own generation, and BROKEN, has failed.
 *
 *	waiter					reset, or one that comes
 *	load the state, without BROKEN (a)	load @epoch (f)
 *	load @epoch				load the state, with BROKEN (c)
 *	(1) compare-and-swap the state (b)	(7) compare-and-swap @epoch (g)
 *	...					(8) compare-and-swap the state (d)
 *	load the state, another one (e)
 *	load @epoch
 *
 * (a) and (e) acquire what (d) releases: the new @epoch. A waiter that finds another @epoch beside
 * an old state cannot take its arrival back, and looks again: (e). (c) acquires what (b) releases:
 * (7) comes after the waiter's first load of @epoch. As (b) finds the state of (a), no reset is
 * between them.
 *
 * Of several that do (7) and (8) from one state each takes (7) to the same value. (f) acquires what
 * (g) releases: the state of (c) is not of an epoch before that of (f). So (7) never takes @epoch
 * back: one that is late fails in it, or changes nothing, and then fails in (8).
 */
#include <string.h>

#include "internal.h"

struct barrier {
	_Atomic uint64_t state;		/* lower half: arrivals; upper half: generation */
	struct memwait_users users;
	uint32_t spare;			/* 0 */
	uint32_t count;
	_Atomic uint32_t epoch;		/* the generation that the last reset began */
};

_Static_assert(sizeof(struct barrier) <= sizeof(memwait_barrier_t), "the barrier fits");

/* Of what is slept on. */
#define ANNOUNCED	1U
#define BROKEN		2U
#define ABORTED		4U
#define STEP		8U	/* shared: an arrival; private: a generation */

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

/* Returns 0, or why a call can do nothing. */
static int why_not(const struct barrier *barrier)
{
	return is_valid(barrier) ? memwait_need_device() : EINVAL;
}

static bool is_private(const struct barrier *barrier)
{
	return barrier->users.flags & MEMWAIT_PRIVATE;
}

/* What waiters sleep on. */
static uint32_t slept_on(const struct barrier *barrier, uint64_t state)
{
	return is_private(barrier) ? generation_of(state) : (uint32_t)state;
}

static const volatile void *sleep_word(struct barrier *barrier)
{
	return is_private(barrier) ? memwait_upper_half(&barrier->state) :
				     memwait_lower_half(&barrier->state);
}

/* Any of @bits. */
static bool has(const struct barrier *barrier, uint64_t state, uint32_t bits)
{
	return slept_on(barrier, state) & bits;
}

/* Nobody has arrived in it. */
static uint64_t new_generation(const struct barrier *barrier, uint64_t state)
{
	uint32_t begins = (slept_on(barrier, state) | (STEP - 1)) + 1;

	return (uint64_t)begins << 32 | (is_private(barrier) ? 0 : begins);
}

/* The same, ANNOUNCED. */
static uint64_t next_announced(const struct barrier *barrier, uint64_t state)
{
	return new_generation(barrier, state) |
	       (is_private(barrier) ? (uint64_t)ANNOUNCED << 32 : ANNOUNCED);
}

/* One that comes; at a private barrier, if it would be the last: (i). */
static uint64_t one_more(const struct barrier *barrier, uint64_t state)
{
	/* The lower half only, which wraps. */
	if (!is_private(barrier))
		return (state & ~(uint64_t)UINT32_MAX) | (uint32_t)(state + STEP);
	return (uint32_t)state + 1 < barrier->count ? state + 1 : next_announced(barrier, state);
}

/* One of @generation that gives up. */
static uint64_t one_less(const struct barrier *barrier, uint64_t state, uint32_t generation)
{
	if (!is_private(barrier))
		return one_more(barrier, state);
	if (!has(barrier, state, ANNOUNCED))
		return state - 1;
	return (uint64_t)generation << 32 | (barrier->count - 2);
}

/* The number of arrivals, or more. */
static uint32_t arrived(uint64_t state)
{
	return ((uint32_t)state - generation_of(state)) / STEP;
}

static uint32_t epoch_of(struct barrier *barrier)
{
	/* relaxed: the state orders it, as above */
	return atomic_load_explicit(&barrier->epoch, memory_order_relaxed);
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

/* Whether nobody has arrived in this generation. */
static bool is_empty(const struct barrier *barrier, uint64_t state)
{
	return !has(barrier, state, ANNOUNCED) &&
	       (uint32_t)state == (is_private(barrier) ? 0 : generation_of(state));
}

int memwait_barrier_destroy(memwait_barrier_t *public_barrier)
{
	struct barrier *barrier = to_barrier(public_barrier);
	const volatile void *word;
	uint64_t state;

	if (!is_valid(barrier))
		return EINVAL;
	/* relaxed: a caller that was at the barrier sees at least that generation */
	state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
	/* If nobody has arrived, sleepers are of the last generation, and are being woken. */
	word = is_empty(barrier, state) || has(barrier, state, BROKEN) ? NULL : sleep_word(barrier);
	return memwait_users_drain(&barrier->users, word);
}

/*
 * @how: BROKEN, with ABORTED or without. Stores what was slept on in *@was. Touches nothing
 * afterwards: those that it wakes may free the barrier.
 */
static int break_it(struct barrier *barrier, uint32_t how, uint32_t *was)
{
	int ret;

	memwait_tsan_release(&barrier->users.operations);
	ret = memwait_change(sleep_word(barrier), MEMWAIT_CHANGE_OR, how, MEMWAIT_ALL,
			     barrier->users.flags, was);
	return ret < 0 ? -ret : 0;
}

int memwait_barrier_abort(memwait_barrier_t *public_barrier)
{
	struct barrier *barrier = to_barrier(public_barrier);
	int ret = why_not(barrier);
	uint32_t was;

	return ret ? ret : break_it(barrier, BROKEN | ABORTED, &was);
}

/*
 * (7) and (8), unless that generation is over in which @was was slept on, or a bit of @until is
 * set. Returns 0 or an error.
 */
static int mend(struct barrier *barrier, uint32_t was, uint32_t until)
{
	uint32_t now;

	uint64_t state, next;
	uint32_t epoch;
	int ret;

	for (;;) {
		/* acquire: (f) */
		epoch = atomic_load_explicit(&barrier->epoch, memory_order_acquire);
		/* acquire: (c) */
		state = atomic_load_explicit(&barrier->state, memory_order_acquire);
		now = slept_on(barrier, state);
		if (!(now & BROKEN) || now & until || (now ^ was) >= STEP)
			return 0;
		ret = memwait_wake_all(sleep_word(barrier), barrier->users.flags);
		if (ret < 0)
			return -ret;
		next = new_generation(barrier, state);
		/* release, both: (g) and (d) */
		if (atomic_compare_exchange_strong_explicit(&barrier->epoch, &epoch,
							    generation_of(next),
							    memory_order_release,
							    memory_order_relaxed) &&
		    atomic_compare_exchange_strong_explicit(&barrier->state, &state, next,
							    memory_order_release,
							    memory_order_relaxed))
			return 0;
	}
}

/* Those whom it wakes may destroy the barrier, and so it is a user. */
int memwait_barrier_reset(memwait_barrier_t *public_barrier)
{
	struct barrier *barrier = to_barrier(public_barrier);
	int ret = why_not(barrier);
	uint32_t was;

	if (ret)
		return ret;
	memwait_users_enter(&barrier->users, NULL);
	ret = break_it(barrier, BROKEN, &was);
	if (!ret)
		ret = mend(barrier, was, 0);
	memwait_users_leave(&barrier->users, NULL);
	return ret;
}

int memwait_barrier_inspect(memwait_barrier_t *public_barrier, unsigned int *count,
			    unsigned int *waiting)
{
	struct barrier *barrier = to_barrier(public_barrier);
	int ret = why_not(barrier);
	uint64_t state;

	if (ret)
		return ret;
	ret = memwait_sleepers(sleep_word(barrier), barrier->users.flags);
	if (ret < 0)
		return -ret;
	if (count)
		*count = barrier->count;
	if (waiting)
		*waiting = (unsigned int)ret;
	/* relaxed: it may have changed when the caller reads it */
	state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
	return has(barrier, state, ABORTED) ? EPIPE : 0;
}

/* For a thread that comes: a @state to arrive at; EPIPE; or why a reset cannot be finished. */
static int load_state(struct barrier *barrier, struct memwait_round *round, uint64_t *state)
{
	int ret;

	for (;;) {
		/* acquire: (a); and what those did who have come before */
		*state = atomic_load_explicit(&barrier->state, memory_order_acquire);
		round->generation = generation_of(*state);
		round->epoch = epoch_of(barrier);
		if (has(barrier, *state, ABORTED))
			return EPIPE;
		if (!has(barrier, *state, BROKEN))
			return 0;
		ret = mend(barrier, slept_on(barrier, *state), ABORTED);
		if (ret)
			return ret;
	}
}

/*
 * What was ANNOUNCED in @state: (5), or (ii). Returns MEMWAIT_BARRIER_SERIAL_THREAD; 0: another
 * thread has done it, or taken it back; or an error.
 */
static int wake_announced(struct barrier *barrier, uint64_t state)
{
	uint32_t was;
	int ret = memwait_change(sleep_word(barrier), MEMWAIT_CHANGE_AND, ~ANNOUNCED, MEMWAIT_ALL,
				 barrier->users.flags, &was);

	if (ret < 0)
		return -ret;
	/* Until it is done nobody arrives. An abort comes after it. */
	return (is_private(barrier) ? was & ANNOUNCED :
		(was & ~(BROKEN | ABORTED)) == (uint32_t)state) ?
	       MEMWAIT_BARRIER_SERIAL_THREAD : 0;
}

/* Whether those of @generation have not met: they wait, or it is called off. */
static bool goes_on(const struct barrier *barrier, uint64_t state, uint32_t generation)
{
	uint32_t past = (generation_of(state) & ~(BROKEN | ABORTED)) - generation;

	if (!is_private(barrier) || !past)
		return !past;
	return past == STEP + ANNOUNCED || (past == STEP && (uint32_t)state == barrier->count);
}

/*
 * By one that has arrived. Returns MEMWAIT_OP_WAITS, and the @state, if its generation is not over.
 * Otherwise 0 or MEMWAIT_BARRIER_SERIAL_THREAD: all have met, and are woken; EPIPE; or an error,
 * and they have not met.
 */
static int look_for_end(struct barrier *barrier, const struct memwait_round *round, uint64_t *state)
{
	uint64_t next;
	int ret;

	for (;;) {
		/* acquire: pairs with the change of the generation; (e) */
		*state = atomic_load_explicit(&barrier->state, memory_order_acquire);
		if (epoch_of(barrier) != round->epoch)
			return EPIPE;
		if (goes_on(barrier, *state, round->generation)) {
			if (!has(barrier, *state, BROKEN))
				return MEMWAIT_OP_WAITS;
			if (!has(barrier, *state, ANNOUNCED))
				return EPIPE;
			next = *state - ((uint64_t)ANNOUNCED << 32) + barrier->count;
			/* Calls it off. relaxed: it has seen the abort */
			atomic_compare_exchange_strong_explicit(&barrier->state, state, next,
								memory_order_relaxed,
								memory_order_relaxed);
			continue;
		}
		if (is_private(barrier) || !has(barrier, *state, ANNOUNCED))
			return 0;
		ret = wake_announced(barrier, *state & ~(uint64_t)(BROKEN | ABORTED));
		if (ret < 0)
			return ret;
		/* relaxed: nobody has passed */
		next = (uint64_t)round->generation << 32 | ((uint32_t)*state & ~ANNOUNCED);
		if (ret && atomic_compare_exchange_strong_explicit(&barrier->state, state, next,
								   memory_order_relaxed,
								   memory_order_relaxed))
			return ret;
	}
}

/* Gives up. Returns false if the generation is over. */
static bool withdraw(struct barrier *barrier, uint32_t generation)
{
	/* relaxed, all: it learns nothing here, but if it is too late in look_for_end() */
	uint64_t state = atomic_load_explicit(&barrier->state, memory_order_relaxed);

	while (goes_on(barrier, state, generation) && !has(barrier, state, BROKEN)) {
		uint64_t next = one_less(barrier, state, generation);

		MEMWAIT_INVARIANT(!is_empty(barrier, state));
		if (atomic_compare_exchange_weak_explicit(&barrier->state, &state, next,
							  memory_order_relaxed,
							  memory_order_relaxed))
			return true;
	}
	return false;
}

/* As withdraw(), for @reason. Returns that, or how the generation has ended. */
static int give_up(struct barrier *barrier, const struct memwait_round *round, int reason)
{
	uint64_t state;
	int ret;

	while (!withdraw(barrier, round->generation)) {
		ret = look_for_end(barrier, round, &state);
		if (ret != MEMWAIT_OP_WAITS)
			return ret;
	}
	return reason;
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
			ret = look_for_end(barrier, round, &state);
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
								     one_more(barrier, state),
								     memory_order_relaxed,
								     memory_order_relaxed))
				continue;
			state = one_more(barrier, state);
			round->expected = (uint32_t)state;
		}
		ret = memwait_sleepers(sleep_word(barrier), barrier->users.flags);
		if (ret < 0)
			return -ret;
		if ((uint32_t)ret + 1 < barrier->count)
			return MEMWAIT_OP_WAITS;
		/* acq_rel: all pass by it. Then this finds what it has announced. */
		atomic_compare_exchange_strong_explicit(&barrier->state, &state,
							next_announced(barrier, state),
							memory_order_acq_rel,
							memory_order_relaxed);
	}
}

/* Arrives. Returns the result, or MEMWAIT_OP_WAITS. */
static int begin(struct barrier *barrier, struct memwait_round *round)
{
	uint64_t state, next;
	int ret;

	memwait_tsan_release(&barrier->users.operations);
	round->tries = 0;
	round->word = sleep_word(barrier);
	round->flags = MEMWAIT_SIZE_U32 | barrier->users.flags;
	for (;;) {
		ret = load_state(barrier, round, &state);
		if (!ret && has(barrier, state, ANNOUNCED)) {
			ret = wake_announced(barrier, state);
			if (!ret)
				continue;
		}
		if (ret)
			return ret;
		MEMWAIT_INVARIANT(!is_private(barrier) || (uint32_t)state < barrier->count);
		next = one_more(barrier, state);
		/* release: publishes what each did before to all of them; (b) */
		if (atomic_compare_exchange_weak_explicit(&barrier->state, &state, next,
							  memory_order_release,
							  memory_order_relaxed) &&
		    !has(barrier, next, ANNOUNCED))
			break;
	}
	if (is_private(barrier)) {
		round->expected = round->generation;
		return MEMWAIT_OP_WAITS;
	}
	ret = meet(barrier, round, next, true);
	return ret > 0 ? give_up(barrier, round, ret) : ret;
}

/* Before the barrier is left, which may be freed then. */
static int look(struct memwait_users *users, struct memwait_round *round, int outcome)
{
	struct barrier *barrier = of_users(users);
	uint64_t state;
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN)
		return begin(barrier, round);
	ret = look_for_end(barrier, round, &state);
	if (ret <= 0 && ret != MEMWAIT_OP_WAITS)
		return ret;
	if (ret == MEMWAIT_OP_WAITS &&
	    (outcome == MEMWAIT_OK || outcome == MEMWAIT_NOT_EQUAL || outcome == -EINTR)) {
		if (is_private(barrier)) {
			round->expected = generation_of(state);
			return MEMWAIT_OP_WAITS;
		}
		ret = meet(barrier, round, state, false);
		if (ret <= 0)
			return ret;
	}
	if (ret <= 0)
		ret = outcome < 0 ? -outcome : ETIMEDOUT;
	return give_up(barrier, round, ret);
}

/* The result of one that waits for nobody. */
static int be_alone(struct barrier *barrier)
{
	struct memwait_round round;
	uint64_t state;
	int ret = load_state(barrier, &round, &state);

	memwait_tsan_acquire(&barrier->users.operations);
	return ret ? ret : MEMWAIT_BARRIER_SERIAL_THREAD;
}

static int wait_until(memwait_barrier_t *public_barrier, const struct memwait_deadline *deadline)
{
	struct barrier *barrier = to_barrier(public_barrier);
	struct memwait_round round = { 0 };
	int ret = why_not(barrier);

	if (ret)
		return ret;
	if (barrier->count == 1)
		return be_alone(barrier);
	return memwait_users_round(&barrier->users, look, &round, NULL, deadline, MEMWAIT_OP_BEGIN);
}

static int wait_step(struct memwait_op *op, int outcome)
{
	struct barrier *barrier = op->object;

	if (outcome == MEMWAIT_OP_BEGIN && !is_valid(barrier))
		return EINVAL;
	if (outcome == MEMWAIT_OP_BEGIN && barrier->count == 1)
		return be_alone(barrier);
	return memwait_users_round(&barrier->users, look, &op->round, op, NULL, outcome);
}

static void wait_undo(struct memwait_op *op, int outcome)
{
	struct barrier *barrier = op->object;

	(void)outcome;
	/* Shared, and too late: whoever has found all present wakes them, and is told so. */
	if (is_private(barrier))
		give_up(barrier, &op->round, ECANCELED);
	else
		withdraw(barrier, op->round.generation);
	memwait_users_leave(&barrier->users, op);
}

static const struct memwait_op_kind wait_kind = { .step = wait_step, .undo = wait_undo };

MEMWAIT_DEFINE_OBJECT_WAITS(barrier, wait, memwait_barrier_t)
