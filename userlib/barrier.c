// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Barriers. A barrier has a state of 64 bits. The upper half is a generation, which changes when
 * all participants have met.
 *
 *	private: the lower half is the number of arrivals. Waiters sleep on the generation
 *	shared: the lower half counts arrivals, and continues to count across generations; the
 *		generation is the value of the lower half when the generation began. Waiters sleep
 *		on the lower half
 *
 * The half on which waiters sleep grows in steps of eight. Its lower three bits are:
 *
 *	ANNOUNCED	the previous generation is not woken yet. Private: nor has it met
 *	BROKEN		the waiters of this generation fail
 *	ABORTED		with BROKEN: a newcomer fails too. Without ABORTED a newcomer first
 *			finishes the reset that has set BROKEN
 *
 * Invariants:
 *	Shared: the generation is changed in one step, by the thread that finds all participants
 *	present, or by a reset. Private: the number of arrivals is below the barrier's count,
 *	because the last participant does not add itself; the only exception is a generation that
 *	was called off. The number is 0 while ANNOUNCED is set. Shared: the lower half never
 *	decreases, because otherwise a waiter could find the value that it saw earlier once more.
 *	Since the generation began, the lower half has grown by at least the number of arrivals. No
 *	participant passes while ANNOUNCED is set. While ANNOUNCED is set, no thread arrives and, at
 *	a shared barrier, no thread gives up. No thread arrives, withdraws its arrival or falls
 *	asleep while BROKEN is set, and no generation begins except by (7) and (8).
 *
 * A waiter that gives up withdraws its arrival, unless the generation is over.
 *
 * Private barriers. A thread that arrives when all others have arrived takes two steps:
 *
 *	(i) the next generation, ANNOUNCED
 *	(ii) in one system call: clear ANNOUNCED, and wake all
 *
 * The thread that clears ANNOUNCED in (ii) is the last to arrive, and passes the barrier. Until
 * then (i) only means that all participants but one have arrived. These participants continue to
 * wait; if one of them gives up, it restores their generation, with one arrival fewer. If (ii)
 * fails, or finds nothing to clear, its caller does not count as arrived. The caller may be late,
 * and clear ANNOUNCED for a later generation; it is then the last to arrive in that generation.
 *
 * If an abort comes between (i) and (ii), the first waiter that sees it calls the generation off:
 * in one step it clears ANNOUNCED, and sets the number of arrivals to the barrier's count. (ii)
 * comes before that step, or finds nothing to clear. Therefore either all have met, or all fail.
 *
 * Shared barriers. A waiter that dies no longer counts. Therefore the number of arrivals is an
 * upper bound: when it reaches the barrier's count, the caller asks the kernel how many waiters
 * sleep:
 *
 *	(1) add one: to arrive, to repeat (3), and to give up
 *	(2) fewer than all: sleep while the lower half is unchanged
 *	(3) otherwise count the sleepers
 *	(4) all but this one sleep: if the lower half is unchanged, begin a new generation,
 *	    ANNOUNCED
 *	(5) in one system call: clear ANNOUNCED, and wake all
 *	(6) if fewer sleep than all but one, sleep while the lower half is unchanged
 *
 * If two threads are in (3), the thread that did (1) later has changed the value that the earlier
 * thread saw. Either the earlier thread was already asleep, and is counted in (3), or it does not
 * go to sleep, and repeats (1). Therefore one of the two finds that all have arrived. The lower
 * half grows faster than arrivals do, which is harmless for up to 2^29 steps.
 *
 * No more threads than the barrier's count may use the barrier at the same time: a thread cannot
 * find out which of the threads that are about to sleep were counted as asleep by others, and any
 * additional threads would all pass in (4).
 *
 * Any change by another thread makes the compare-and-swap in (4) fail, and the thread repeats all
 * steps.
 *
 * If the caller dies between (4) and (5), all others continue to sleep, as if the caller had not
 * arrived. A thread that arrives in its place does (5) and passes with the others. A waiter that
 * gives up does the same, because it has met the others. The thread that clears ANNOUNCED counts as
 * the thread that found all present. If (5) fails, the old generation is restored, and the caller
 * does not count as arrived. A caller that was delayed before (5) may, after a reset, clear
 * ANNOUNCED for a later generation; then no thread of that generation gets
 * MEMWAIT_BARRIER_SERIAL_THREAD.
 *
 * An abort sets BROKEN and ABORTED, and wakes all waiters, in one system call: a kill cannot split
 * the call, but other threads may see BROKEN before all waiters have been woken. A reset does the
 * same with BROKEN alone, and then:
 *
 *	(7) wakes all; @epoch: becomes the generation that will begin
 *	(8) the state: that generation begins, and BROKEN and ABORTED are cleared
 *
 * A waiter that the reset wakes may arrive again before (8), and the caller of the reset may die
 * before (8). Therefore a newcomer does (7) and (8) itself, unless ABORTED is set. A reset whose
 * generation is over has nothing left to do: if BROKEN is set at that time, a later call has set
 * it.
 *
 * No waiter sleeps from (7) to (8): another abort may still be about to wake the waiters of the
 * broken generation, but threads of the new generation must not find them asleep.
 *
 * A waiter that finds another generation has either met the others, or its own generation has been
 * ended by a reset; in the second case @epoch has changed since the waiter arrived. If all had met
 * before the reset, the waiter fails nevertheless. A waiter that finds its own generation, and
 * BROKEN, has failed.
 *
 *	waiter					reset, or a newcomer
 *	load the state, without BROKEN (a)	load @epoch (f)
 *	load @epoch				load the state, with BROKEN (c)
 *	(1) compare-and-swap the state (b)	(7) compare-and-swap @epoch (g)
 *	...					(8) compare-and-swap the state (d)
 *	load the state, another one (e)
 *	load @epoch
 *
 * (a) and (e) acquire what (d) releases: the new @epoch. A waiter that finds a new @epoch with an
 * old state cannot withdraw its arrival, and looks again: (e). (c) acquires what (b) releases: (7)
 * comes after the waiter's first load of @epoch. Because (b) finds the state of (a), no reset is
 * between them.
 *
 * If several threads do (7) and (8) from one state, each sets @epoch to the same value in (7). (f)
 * acquires what (g) releases: the state of (c) does not belong to an epoch before that of (f).
 * Therefore (7) never sets @epoch back: a thread that is late either fails in (7), or changes
 * nothing in (7) and then fails in (8).
 */
#include <string.h>

#include "object.h"
#include "users.h"

struct barrier {
	_Atomic uint64_t state;		/* lower half: arrivals; upper half: generation */
	struct memwait_users users;
	uint32_t spare;			/* 0 */
	uint32_t count;
	_Atomic uint32_t epoch;		/* the generation that the last reset began */
};

_Static_assert(sizeof(struct barrier) <= sizeof(memwait_barrier_t), "the barrier fits");

/* Bits of the half on which waiters sleep. */
#define ANNOUNCED	1U
#define BROKEN		2U
#define ABORTED		4U
#define STEP		8U	/* shared: an arrival; private: a generation */

static struct barrier *to_barrier(memwait_barrier_t *barrier)
{
	return (struct barrier *)barrier;
}

static struct barrier *barrier_of_users(struct memwait_users *users)
{
	return (struct barrier *)((char *)users - offsetof(struct barrier, users));
}

static bool barrier_is_valid(const struct barrier *barrier)
{
	return barrier && barrier->count &&
	       !memwait_is_unknown(barrier->users.flags, barrier->spare,
				   MEMWAIT_PRIVATE);
}

/* Returns 0; otherwise the caller must do nothing, and return this error. */
static int why_not(const struct barrier *barrier)
{
	return barrier_is_valid(barrier) ? memwait_need_device() : EINVAL;
}

static bool barrier_is_private(const struct barrier *barrier)
{
	return barrier->users.flags & MEMWAIT_PRIVATE;
}

/* The half on which waiters sleep. */
static uint32_t slept_on(const struct barrier *barrier, uint64_t state)
{
	return barrier_is_private(barrier) ? memwait_generation(state) : (uint32_t)state;
}

static const volatile void *sleep_word(struct barrier *barrier)
{
	return barrier_is_private(barrier) ? memwait_upper_half(&barrier->state) :
					     memwait_lower_half(&barrier->state);
}

/* Whether any of @bits is set. */
static bool has(const struct barrier *barrier, uint64_t state, uint32_t bits)
{
	return slept_on(barrier, state) & bits;
}

/* Returns a new generation, without arrivals. */
static uint64_t new_generation(const struct barrier *barrier, uint64_t state)
{
	uint32_t begins = (slept_on(barrier, state) | (STEP - 1)) + 1;

	return (uint64_t)begins << 32 | (barrier_is_private(barrier) ? 0 : begins);
}

/* Returns a new generation, without arrivals and with ANNOUNCED set. */
static uint64_t next_announced(const struct barrier *barrier, uint64_t state)
{
	return new_generation(barrier, state) |
	       (barrier_is_private(barrier) ? (uint64_t)ANNOUNCED << 32 : ANNOUNCED);
}

/*
 * Returns the state after one more arrival; at a private barrier, if this is the last arrival, the
 * state after (i).
 */
static uint64_t one_more(const struct barrier *barrier, uint64_t state)
{
	/* Only the lower half changes; it wraps. */
	if (!barrier_is_private(barrier))
		return (state & ~(uint64_t)UINT32_MAX) | (uint32_t)(state + STEP);
	return (uint32_t)state + 1 < barrier->count ? state + 1 : next_announced(barrier, state);
}

/* Returns the state after a thread of @generation has given up. */
static uint64_t one_less(const struct barrier *barrier, uint64_t state, uint32_t generation)
{
	if (!barrier_is_private(barrier))
		return one_more(barrier, state);
	if (!has(barrier, state, ANNOUNCED))
		return state - 1;
	return (uint64_t)generation << 32 | (barrier->count - 2);
}

/* Returns an upper bound on the number of arrivals. */
static uint32_t arrived(uint64_t state)
{
	return ((uint32_t)state - memwait_generation(state)) / STEP;
}

static uint32_t epoch_of(struct barrier *barrier)
{
	/* relaxed: the state orders it, see the top of this file */
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

/* Whether no thread has arrived in this generation. */
static bool is_empty(const struct barrier *barrier, uint64_t state)
{
	return !has(barrier, state, ANNOUNCED) &&
	       (uint32_t)state == (barrier_is_private(barrier) ? 0 : memwait_generation(state));
}

int memwait_barrier_destroy(memwait_barrier_t *public_barrier)
{
	struct barrier *barrier = to_barrier(public_barrier);
	const volatile void *word;
	uint64_t state;

	if (!barrier_is_valid(barrier))
		return EINVAL;
	/*
	 * relaxed: a caller that has passed the barrier sees at least the generation that it passed
	 */
	state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
	/*
	 * If no thread has arrived, all sleepers belong to the last generation, and are being
	 * woken.
	 */
	word = is_empty(barrier, state) || has(barrier, state, BROKEN) ? NULL : sleep_word(barrier);
	return memwait_users_drain(&barrier->users, word);
}

/*
 * @how: BROKEN, with or without ABORTED. Stores in *@was the value on which waiters slept. Touches
 * nothing afterwards, because the threads that it wakes may free the barrier.
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
 * Does (7) and (8), unless the generation to which @was belongs is over, or a bit of @until is set.
 * Returns 0 or an error.
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
							    memwait_generation(next),
							    memory_order_release,
							    memory_order_relaxed) &&
		    atomic_compare_exchange_strong_explicit(&barrier->state, &state, next,
							    memory_order_release,
							    memory_order_relaxed))
			return 0;
	}
}

/* The caller becomes a user, because the threads that it wakes may destroy the barrier. */
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
	/* relaxed: the answer may be stale anyway */
	state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
	return has(barrier, state, ABORTED) ? EPIPE : 0;
}

/*
 * For a newcomer: loads a @state in which the newcomer can arrive. Returns 0; EPIPE; or an error
 * from finishing a reset.
 */
static int load_state(struct barrier *barrier, struct memwait_round *round, uint64_t *state)
{
	int ret;

	for (;;) {
		/* acquire: (a); and the work of threads that have already arrived */
		*state = atomic_load_explicit(&barrier->state, memory_order_acquire);
		round->generation = memwait_generation(*state);
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
 * Wakes the generation that was ANNOUNCED in @state: (5), or (ii). Returns
 * MEMWAIT_BARRIER_SERIAL_THREAD; 0: another thread has woken the generation, or has restored the
 * previous one; or an error.
 */
static int wake_announced(struct barrier *barrier, uint64_t state)
{
	uint32_t was;
	int ret = memwait_change(sleep_word(barrier), MEMWAIT_CHANGE_AND, ~ANNOUNCED, MEMWAIT_ALL,
				 barrier->users.flags, &was);

	if (ret < 0)
		return -ret;
	/* Until ANNOUNCED is cleared, no thread arrives. A concurrent abort counts as later. */
	return (barrier_is_private(barrier) ? was & ANNOUNCED :
		(was & ~(BROKEN | ABORTED)) == (uint32_t)state) ?
	       MEMWAIT_BARRIER_SERIAL_THREAD : 0;
}

/*
 * Whether the threads of @generation have not met: they are waiting, or the generation was called
 * off.
 */
static bool goes_on(const struct barrier *barrier, uint64_t state, uint32_t generation)
{
	uint32_t past = (memwait_generation(state) & ~(BROKEN | ABORTED)) - generation;

	if (!barrier_is_private(barrier) || !past)
		return !past;
	return past == STEP + ANNOUNCED || (past == STEP && (uint32_t)state == barrier->count);
}

/*
 * Called by a thread that has arrived. Returns MEMWAIT_OP_WAITS, and the @state, if its generation
 * is not over. Otherwise returns 0 or MEMWAIT_BARRIER_SERIAL_THREAD: all have met, and have been
 * woken; EPIPE; or an error: they have not met.
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
			/*
			 * Calls the generation off. relaxed: this thread has already seen the abort
			 */
			atomic_compare_exchange_strong_explicit(&barrier->state, state, next,
								memory_order_relaxed,
								memory_order_relaxed);
			continue;
		}
		if (barrier_is_private(barrier) || !has(barrier, *state, ANNOUNCED))
			return 0;
		ret = wake_announced(barrier, *state & ~(uint64_t)(BROKEN | ABORTED));
		if (ret < 0)
			return ret;
		/* relaxed: no thread has passed */
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
	/* relaxed, all: nothing is acquired here; if it is too late, look_for_end() acquires */
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

/*
 * Like withdraw(). Returns @reason or, if it is too late to give up, the result of the generation.
 */
static int barrier_give_up(struct barrier *barrier, const struct memwait_round *round, int reason)
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
 * Delays a waiter before it repeats (1), because (1) prevents others from sleeping. The delay
 * grows, and differs between the threads of all processes. Returns whether the thread has waited;
 * if so, the caller must first look at the state again.
 */
static bool back_off(int *tries)
{
	uint32_t n = (uint32_t)*tries / 2, i;
	struct memwait_deadline now;

	/* On one CPU no two threads repeat (1) at the same time. */
	if ((*tries)++ % 2 || !memwait_may_spin())
		return false;
	memwait_deadline_after(&now, CLOCK_MONOTONIC, 0);
	i = ((uint32_t)now.ns + n) * 0x9e3779b1U >> (n < 8 ? 24 - n : 16);
	while (i--)
		memwait_relax();
	return true;
}

/*
 * At a shared barrier, after arriving; @has_come: the caller's (1) has resulted in @state. Returns
 * 0: all have met; MEMWAIT_BARRIER_SERIAL_THREAD: all have met, and the caller was the first to
 * find this out; MEMWAIT_OP_WAITS: sleep; or an error.
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
			/*
			 * relaxed: the last compare-and-swap below acquires what others have
			 * released
			 */
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
		/*
		 * acq_rel: all participants pass because of this change. look_for_end() then finds
		 * the announcement.
		 */
		atomic_compare_exchange_strong_explicit(&barrier->state, &state,
							next_announced(barrier, state),
							memory_order_acq_rel,
							memory_order_relaxed);
	}
}

/* Arrives. Returns the result, or MEMWAIT_OP_WAITS. */
static int barrier_begin(struct barrier *barrier, struct memwait_round *round)
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
		MEMWAIT_INVARIANT(!barrier_is_private(barrier) || (uint32_t)state < barrier->count);
		next = one_more(barrier, state);
		/* release: publishes each participant's earlier work to all participants; (b) */
		if (atomic_compare_exchange_weak_explicit(&barrier->state, &state, next,
							  memory_order_release,
							  memory_order_relaxed) &&
		    !has(barrier, next, ANNOUNCED))
			break;
	}
	if (barrier_is_private(barrier)) {
		round->expected = round->generation;
		return MEMWAIT_OP_WAITS;
	}
	ret = meet(barrier, round, next, true);
	return ret > 0 ? barrier_give_up(barrier, round, ret) : ret;
}

/* Called before the thread leaves the barrier, which may be freed afterwards. */
static int barrier_look(struct memwait_users *users, struct memwait_round *round, int outcome)
{
	struct barrier *barrier = barrier_of_users(users);
	uint64_t state;
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN)
		return barrier_begin(barrier, round);
	ret = look_for_end(barrier, round, &state);
	if (ret <= 0 && ret != MEMWAIT_OP_WAITS)
		return ret;
	if (ret == MEMWAIT_OP_WAITS &&
	    (outcome == MEMWAIT_OK || outcome == MEMWAIT_NOT_EQUAL || outcome == -EINTR)) {
		if (barrier_is_private(barrier)) {
			round->expected = memwait_generation(state);
			return MEMWAIT_OP_WAITS;
		}
		ret = meet(barrier, round, state, false);
		if (ret <= 0)
			return ret;
	}
	if (ret <= 0)
		ret = outcome < 0 ? -outcome : ETIMEDOUT;
	return barrier_give_up(barrier, round, ret);
}

/* Returns the result at a barrier with a count of 1. */
static int be_alone(struct barrier *barrier)
{
	struct memwait_round round;
	uint64_t state;
	int ret = load_state(barrier, &round, &state);

	memwait_tsan_acquire(&barrier->users.operations);
	return ret ? ret : MEMWAIT_BARRIER_SERIAL_THREAD;
}

static int barrier_wait_until(memwait_barrier_t *public_barrier,
			      const struct memwait_deadline *deadline)
{
	struct barrier *barrier = to_barrier(public_barrier);
	struct memwait_round round = { 0 };
	int ret = why_not(barrier);

	if (ret)
		return ret;
	if (barrier->count == 1)
		return be_alone(barrier);
	return memwait_users_round(&barrier->users, barrier_look, &round, NULL, deadline,
				   MEMWAIT_OP_BEGIN);
}

static int barrier_wait_step(struct memwait_op *op, int outcome)
{
	struct barrier *barrier = op->object;

	if (outcome == MEMWAIT_OP_BEGIN && !barrier_is_valid(barrier))
		return EINVAL;
	if (outcome == MEMWAIT_OP_BEGIN && barrier->count == 1)
		return be_alone(barrier);
	return memwait_users_round(&barrier->users, barrier_look, &op->round, op, NULL, outcome);
}

static void barrier_wait_undo(struct memwait_op *op, int outcome)
{
	struct barrier *barrier = op->object;

	(void)outcome;
	/*
	 * At a shared barrier, if it is too late to withdraw, the thread that found all present
	 * wakes the others.
	 */
	if (barrier_is_private(barrier))
		barrier_give_up(barrier, &op->round, ECANCELED);
	else
		withdraw(barrier, op->round.generation);
	memwait_users_leave(&barrier->users, op);
}

static const struct memwait_op_kind barrier_wait_kind = {
	.step = barrier_wait_step,
	.undo = barrier_wait_undo,
	.epipe = "The barrier was aborted or reset",
};

MEMWAIT_DEFINE_OBJECT_WAITS(barrier, wait, memwait_barrier_t)
