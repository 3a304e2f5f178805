// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Condition variables: a sequence of 64 bits, which each signal changes and waiters sleep on.
 *
 *	bit 0		OWED: a wake-up failed
 *	bit 1		STAY: a waiter has come that must not be moved to @mutex
 *	bits 2 to 63	number of signals: it does not wrap
 *
 * Invariants:
 *	The number of signals never goes back.
 *	@broadcast is the number of a signal: at most that of the sequence.
 *	@mutex is the distance to the first mutex to which waiters can be moved, and does not change
 *	any more. STAY stays.
 *	@taken is at most the number of signals.
 *
 *	waiter					signaller
 *	(1) read the sequence, with the mutex	(1) change the sequence
 *	(2) unlock the mutex			(2) notify one
 *	(3) sleep while it is unchanged
 *
 * No signal is lost: a waiter that read the sequence before a signal already sleeps, or will not go
 * to sleep. No signal is stolen: if all earlier waiters sleep, the notify takes one of them, as
 * later ones queue behind. An earlier waiter that is not asleep yet gets the signal by the change;
 * the notify may then wake one more: a spurious wake-up, as POSIX allows.
 *
 * After the signaller's (1) a waiter may return and destroy the condition variable, so the
 * signaller is a user (users.c). If (2) fails, the signaller sets OWED: the next caller clears OWED
 * and wakes all in one system call, perhaps more than were signalled.
 *
 * Between processes, waiters sleep with MEMWAIT_OWNED, which reads owner ids from 64-bit words. So
 * they sleep on the lower half of the sequence, and miss signals only if exactly a multiple of 2^30
 * of them come between (1) and (3). A signaller that dies within its call has signalled, or has
 * not.
 *
 * If a woken waiter dies before it has the mutex, the next one returns in its place. The kernel
 * tells that one of any death of the waiter woken last, even if that had the mutex long before. So
 * each waiter that returns for a signal counts it in @taken before it leaves, and itself in the
 * mutex from then on until it has locked it. A waiter that is told returns if a signal since its
 * (1) is not taken, or if a waiter has yet to lock the mutex; otherwise it sleeps on,
 * while the sequence is as it has just read it. It also returns if the mutex is robust and its
 * owner has died.
 *
 *	told waiter				signaller
 *	(1) read the sequence			(1) change the sequence
 *	(2) read @taken				(2) notify: the told waiter is in no queue
 *	(3) sleep while the sequence is that
 *	    of (1)
 *
 * A signal before the told waiter's (1) that woke no waiter is not taken; one after it changes the
 * sequence. A waiter that gives its signal to the next one, when it cannot lock the mutex or is
 * cancelled before, stays counted there, as does one that was killed before it locked it: the next
 * one may be a told waiter between its (2) and (3), in no queue, or die as well. A signal that no
 * waiter was there for stays untaken until a waiter enters that finds no others. So a told waiter
 * may return in vain, but never sleeps on beside a signal.
 *
 * A cancelled waiter passes its signal on by a notify alone: earlier waiters that are not asleep
 * yet see that the signal changed the sequence.
 *
 * Broadcast moves the sleepers to the mutex instead of waking all, if the mutex is in the same page
 * (so that its distance is the same in every mapping), the same for all waiters, neither fair nor
 * robust, and MEMWAIT_PRIVATE exactly if the condition variable is. Unlocks of the mutex wake moved
 * waiters one by one. If the mutex is free, as where programs unlock it before the broadcast, there
 * is no unlock to come, and waiters that wake together take less time than a chain of wake-ups: all
 * are woken.
 *
 * A waiter cannot tell where it was woken, but sees that there was a broadcast, and sets CONTENDED
 * as after a sleep on the mutex. @broadcast is written before the move; a waiter is woken, or takes
 * itself out, after it: the kernel orders the two. A waiter that read the broadcast's own sequence
 * came between (1) and (3) below, if it was moved at all: it may have to set CONTENDED too, but the
 * broadcast was not meant for it.
 *
 *	broadcaster
 *	(1) change the sequence
 *	(2) write @broadcast
 *	(3) if the sequence is still that of (1), without STAY, and the mutex is locked, move all
 *	    to the mutex; otherwise wake all
 *	(4) memwait_lock_adopt() the mutex: it is CONTENDED, or one of its sleepers is woken
 *
 * A waiter with another mutex sets STAY before it sleeps, so (3) finds another sequence if that
 * waiter sleeps. If (4) fails to wake, it sets OWED too.
 *
 * If the broadcaster dies after (3), the oldest moved waiter is told, as the mutex's queue watches
 * the broadcaster. That waiter acts as if woken.
 */
#include <string.h>

#include "internal.h"
#include "probes.h"

struct cond {
	_Atomic uint64_t sequence;
	struct memwait_users users;
	_Atomic int32_t mutex;		/* distance to the mutex, or NOWHERE */
	_Atomic uint64_t broadcast;
	_Atomic uint64_t taken;		/* signals for which a waiter has returned; if shared */
	uint32_t clock;			/* MEMWAIT_COND_MONOTONIC or 0 */
};

_Static_assert(sizeof(struct cond) <= sizeof(memwait_cond_t), "the condition variable fits");

/* Of the sequence. */
#define OWED		1ULL
#define STAY		2ULL
#define SIGNAL		4ULL

/* No mutex to which sleepers can move. */
#define NOWHERE		0

static struct cond *to_cond(memwait_cond_t *cond)
{
	return (struct cond *)cond;
}

int memwait_cond_init(memwait_cond_t *cond, unsigned int flags)
{
	if (!cond || (flags & ~(MEMWAIT_PRIVATE | MEMWAIT_COND_MONOTONIC)))
		return EINVAL;
	memset(cond, 0, sizeof(*cond));
	to_cond(cond)->users.flags = flags & MEMWAIT_PRIVATE;
	to_cond(cond)->clock = flags & MEMWAIT_COND_MONOTONIC;
	MEMWAIT_PROBE2(cond_init, cond, NULL);
	return memwait_need_device();
}

static const volatile void *sequence_word(struct cond *cond, uint32_t flags)
{
	return flags & MEMWAIT_PRIVATE ? &cond->sequence : memwait_lower_half(&cond->sequence);
}

static uint32_t sequence_size(uint32_t flags)
{
	return flags & MEMWAIT_PRIVATE ? MEMWAIT_SIZE_U64 : MEMWAIT_SIZE_U32;
}

static uint32_t sleep_flags(uint32_t flags)
{
	return sequence_size(flags) | memwait_sleep_flags(flags);
}

/* The word of the mutex at @distance. */
static _Atomic uint32_t *mutex_of(struct cond *cond, int32_t distance)
{
	return (_Atomic uint32_t *)((char *)cond + distance);
}

static int32_t distance_to(struct cond *cond, memwait_mutex_t *mutex)
{
	const uintptr_t page = 4096;	/* or more, never less */
	_Atomic uint32_t *word = memwait_mutex_word(mutex, cond->users.flags);

	if (!word || (uintptr_t)word / page != (uintptr_t)cond / page)
		return NOWHERE;
	return (int32_t)((char *)word - (char *)cond);
}

/* By a user: wakes the oldest sleepers, or leaves that to wake_owed(). Returns 0 or an error. */
static int wake(struct cond *cond, uint32_t count)
{
	int ret = memwait_wake(sequence_word(cond, cond->users.flags), count, cond->users.flags);

	/* relaxed: it guards nothing that a waiter reads */
	if (ret < 0)
		atomic_fetch_or_explicit(&cond->sequence, OWED, memory_order_relaxed);
	return ret < 0 ? -ret : 0;
}

/* The same for all sleepers on the mutex to which they are moved. */
static int wake_moved(struct cond *cond)
{
	/* relaxed: constant since before anything was moved */
	int32_t distance = atomic_load_explicit(&cond->mutex, memory_order_relaxed);
	int ret = 0;

	if (distance != NOWHERE)
		ret = memwait_wake(mutex_of(cond, distance), MEMWAIT_ALL, cond->users.flags);
	/* relaxed: as above */
	if (ret < 0)
		atomic_fetch_or_explicit(&cond->sequence, OWED, memory_order_relaxed);
	return ret < 0 ? -ret : 0;
}

/* Retries a failed wake-up, for all. Returns 0 or an error. */
static int wake_owed(struct cond *cond)
{
	uint32_t flags = cond->users.flags;
	int ret, err = 0;

	/* relaxed: as above */
	if (!(atomic_load_explicit(&cond->sequence, memory_order_relaxed) & OWED))
		return 0;
	ret = memwait_change(memwait_lower_half(&cond->sequence), MEMWAIT_CHANGE_AND,
			     ~(uint32_t)OWED, MEMWAIT_ALL, flags, NULL);
	if (ret < 0)
		return -ret;
	/* On big-endian machines private waiters sleep at another address. */
	if (memwait_lower_half(&cond->sequence) != sequence_word(cond, flags))
		err = wake(cond, MEMWAIT_ALL);
	ret = wake_moved(cond);
	return err ? err : ret;
}

int memwait_cond_destroy(memwait_cond_t *public_cond)
{
	struct cond *cond = to_cond(public_cond);
	int err = 0;

	if (!cond)
		return EINVAL;
	MEMWAIT_PROBE1(cond_destroy, public_cond);
	/* relaxed: nobody waits any more. Moved waiters leave before they take the mutex. */
	if (atomic_load_explicit(&cond->users.count, memory_order_relaxed))
		err = wake_moved(cond);
	if (err)
		return err;
	err = wake_owed(cond);
	return err ? err : memwait_users_drain(&cond->users,
					       sequence_word(cond, cond->users.flags));
}

/* The number of the last signal. */
static uint64_t number_of(uint64_t sequence)
{
	return sequence & ~(SIGNAL - 1);
}

/* Counts signals as taken: up to @most of them, but none after @sequence. */
static void take_signals(struct cond *cond, uint64_t most, uint64_t sequence)
{
	/* relaxed: the compare-and-swap decides */
	uint64_t taken = atomic_load_explicit(&cond->taken, memory_order_relaxed), next;

	do {
		if (taken >= number_of(sequence))
			return;
		next = number_of(sequence) - taken < most ? number_of(sequence) : taken + most;
		/* release: pairs with must_return(), which then sees the waiter in the mutex */
	} while (!atomic_compare_exchange_weak_explicit(&cond->taken, &taken, next,
							memory_order_release,
							memory_order_relaxed));
}

/* Whether waiters with @mutex can be moved to the mutex to which all are. */
static bool can_be_moved(struct cond *cond, memwait_mutex_t *mutex)
{
	int32_t distance = distance_to(cond, mutex);
	int32_t known = NOWHERE;

	/* relaxed, both: only this one value is ever stored */
	return distance != NOWHERE &&
	       (atomic_compare_exchange_strong_explicit(&cond->mutex, &known, distance,
							memory_order_relaxed,
							memory_order_relaxed) ||
		known == distance);
}

/* The caller has the mutex. @op: NULL for a thread. Returns the sequence. */
static uint64_t enter(struct cond *cond, memwait_mutex_t *mutex, const struct memwait_op *op)
{
	/*
	 * relaxed, all: a signaller that must see this user has had the mutex since. Another one
	 * may change the sequence without seeing it. For STAY see the top of the file.
	 */
	uint64_t sequence = atomic_load_explicit(&cond->sequence, memory_order_relaxed);

	/* Nobody returns any more for the signals before. */
	if (!memwait_users_enter(&cond->users, op) && !(cond->users.flags & MEMWAIT_PRIVATE))
		take_signals(cond, UINT64_MAX, sequence);
	wake_owed(cond);
	sequence = atomic_load_explicit(&cond->sequence, memory_order_relaxed);
	if (!(sequence & STAY) && !can_be_moved(cond, mutex))
		sequence = STAY | atomic_fetch_or_explicit(&cond->sequence, STAY,
							   memory_order_relaxed);
	return sequence;
}

/* The last broadcast that moves, or 0. Read it before the waiter leaves. */
static uint64_t last_broadcast(struct cond *cond)
{
	/* relaxed: see the top of the file */
	uint64_t broadcast = atomic_load_explicit(&cond->broadcast, memory_order_relaxed);

	MEMWAIT_INVARIANT(broadcast == number_of(broadcast));
	return broadcast;
}

/* Whether a waiter may have been moved to the mutex. */
static bool may_be_moved(uint64_t sequence, uint64_t broadcast)
{
	return broadcast && broadcast >= number_of(sequence);
}

/*
 * By a waiter that has read @sequence and returns as if woken, before it leaves. Returns whether it
 * takes a signal, and is counted in the mutex until it has locked it.
 */
static bool take(struct cond *cond, memwait_mutex_t *mutex, uint64_t sequence)
{
	/* relaxed: see the top of the file */
	uint64_t now = atomic_load_explicit(&cond->sequence, memory_order_relaxed);

	if (cond->users.flags & MEMWAIT_PRIVATE || number_of(now) == number_of(sequence))
		return false;
	memwait_mutex_await_return(mutex);
	take_signals(cond, SIGNAL, now);
	return true;
}

/*
 * After MEMWAIT_OWNER_DIED: whether the waiter that has read @sequence returns as if woken. If not,
 * it sleeps on while the sequence is *@now.
 */
static bool must_return(struct cond *cond, memwait_mutex_t *mutex, uint64_t sequence, uint64_t *now)
{
	/* The moved waiters behind it rely on its unlock. */
	if (may_be_moved(sequence, last_broadcast(cond)))
		return true;
	/* relaxed: see the top of the file */
	*now = atomic_load_explicit(&cond->sequence, memory_order_relaxed);
	/* Nobody else may come to repair what the mutex guards. */
	if (memwait_mutex_has_dead_owner(mutex))
		return true;
	if (number_of(*now) == number_of(sequence))
		return false;
	/* acquire: pairs with take_signals() */
	return atomic_load_explicit(&cond->taken, memory_order_acquire) < number_of(*now) ||
	       memwait_mutex_awaits_return(mutex);
}

/* By a waiter that has left: must not read the condition variable. */
static void pass_on(struct cond *cond, uint32_t flags)
{
	memwait_wake(sequence_word(cond, flags), 1, flags);
}

struct waiting {
	struct cond *cond;
	memwait_mutex_t *mutex;
	uint64_t sequence;
	uint32_t count;
	const volatile void *wake;	/* the mutex's word, to notify before the sleep */
};

static void cancelled(void *argument)
{
	struct waiting *waiting = argument;
	struct cond *cond = waiting->cond;
	bool moved = may_be_moved(waiting->sequence, last_broadcast(cond));

	/* If this fails, CONTENDED makes the next unlock wake. */
	if (waiting->wake && memwait_wake(waiting->wake, 1, cond->users.flags) < 0)
		moved = true;
	wake(cond, 1);
	memwait_users_leave(&cond->users, NULL);
	memwait_mutex_take_again(waiting->mutex, waiting->count, moved);
}

static int wait_until(memwait_cond_t *public_cond, memwait_mutex_t *mutex,
		      const struct memwait_deadline *deadline)
{
	struct cond *cond = to_cond(public_cond);
	struct waiting waiting = { .cond = cond, .mutex = mutex };
	uint64_t broadcast, now;
	bool contended, taken = false;
	uint32_t flags;
	int ret, err;

	if (!cond || !mutex)
		return EINVAL;
	if (deadline->error)
		return deadline->error;
	if (!memwait_mutex_is_held(mutex))
		return EPERM;
	/* Fail before the mutex is unlocked: to lock it again may take a while. */
	ret = memwait_need_device();
	if (ret)
		return ret;

	flags = cond->users.flags;	/* the object may be freed once this has left */
	waiting.sequence = enter(cond, mutex, NULL);
	now = waiting.sequence;
	memwait_mutex_release_all(mutex, flags, &waiting.count, &waiting.wake);
	for (;;) {
		ret = memwait_sleep_cancellable(waiting.wake, sequence_word(cond, flags), now,
						sleep_flags(flags), deadline, cancelled, &waiting);
		if (ret != -EINTR && (ret != MEMWAIT_OWNER_DIED ||
				      must_return(cond, mutex, waiting.sequence, &now)))
			break;
		waiting.wake = NULL;
	}
	/* As in cancelled(). */
	contended = ret < 0 && waiting.wake && memwait_wake(waiting.wake, 1, flags) < 0;
	broadcast = last_broadcast(cond);
	if (ret >= 0 && (ret != MEMWAIT_TIMED_OUT || broadcast > waiting.sequence))
		taken = take(cond, mutex, waiting.sequence);
	memwait_users_leave(&cond->users, NULL);

	contended = contended || may_be_moved(waiting.sequence, broadcast);
	err = memwait_mutex_take_again(mutex, waiting.count, contended);
	if (taken && (!err || memwait_has_locked(err)))
		memwait_mutex_end_return(mutex);
	/* EOWNERDEAD: the owner of the mutex died. ENOTRECOVERABLE: the mutex is not locked. */
	if (err && !memwait_has_locked(err) && memwait_was_woken(ret))
		pass_on(cond, flags);
	if (err)
		return err;
	/* The broadcast came before the deadline; the wait for the mutex has no deadline. */
	if (ret == MEMWAIT_TIMED_OUT)
		return broadcast > waiting.sequence ? 0 : ETIMEDOUT;
	return ret < 0 ? -ret : 0;
}

int memwait_cond_wait(memwait_cond_t *cond, memwait_mutex_t *mutex)
{
	MEMWAIT_PROBE2(cond_wait, cond, mutex);
	return wait_until(cond, mutex, &memwait_never);
}

int memwait_cond_clockwait(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
			   const struct timespec *abstime)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, abstime);

	MEMWAIT_PROBE2(cond_wait, cond, mutex);
	return err ? err : wait_until(cond, mutex, &deadline);
}

int memwait_cond_timedwait(memwait_cond_t *cond, memwait_mutex_t *mutex,
			   const struct timespec *abstime)
{
	bool monotonic = cond && to_cond(cond)->clock;

	return memwait_cond_clockwait(cond, mutex, monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME,
				      abstime);
}

/* Enters, and signals @count times, but not more often than there are users. */
static uint64_t signal_users(struct cond *cond, uint32_t count)
{
	uint32_t others = memwait_users_enter(&cond->users, NULL);
	uint64_t signals = SIGNAL * (uint64_t)(!others ? 1 : others < count ? others : count);

	wake_owed(cond);
	/* relaxed: the kernel orders it before the notify */
	return signals + atomic_fetch_add_explicit(&cond->sequence, signals, memory_order_relaxed);
}

/* Not inlined: a signal to nobody needs almost no stack frame. */
__attribute__((__noinline__))
static int notify(struct cond *cond, uint32_t count)
{
	int ret;

	signal_users(cond, count);
	ret = wake(cond, count);
	memwait_users_leave(&cond->users, NULL);
	return ret;
}

int memwait_cond_notify(memwait_cond_t *public_cond, unsigned int count)
{
	struct cond *cond = to_cond(public_cond);
	int ret;

	if (!cond)
		return EINVAL;
	ret = memwait_need_device_once();
	if (ret)
		return ret;
	/* relaxed: see enter() */
	if (!count || !atomic_load_explicit(&cond->users.count, memory_order_relaxed))
		return 0;
	return notify(cond, count);
}

int memwait_cond_signal(memwait_cond_t *cond)
{
	MEMWAIT_PROBE1(cond_signal, cond);
	return memwait_cond_notify(cond, 1);
}

/* Moves all sleepers to the mutex. ENOTSUP: cannot, or need not; the caller wakes all. */
static int move_all(struct cond *cond, uint64_t sequence)
{
	/* relaxed, all: see the top of the file */
	int32_t distance = atomic_load_explicit(&cond->mutex, memory_order_relaxed);
	uint64_t last = atomic_load_explicit(&cond->broadcast, memory_order_relaxed);
	uint64_t number = number_of(sequence);
	uint32_t flags = cond->users.flags;
	unsigned int moved;
	uint64_t id;

	if (distance == NOWHERE || sequence & STAY)
		return ENOTSUP;
	/* relaxed: a hint. If no waiter is left, the mutex may be gone, but its page is not. */
	if (!(atomic_load_explicit(mutex_of(cond, distance), memory_order_relaxed) &
	      MEMWAIT_LOCKED))
		return ENOTSUP;
	/* So that the kernel can report this thread's death, if it supports ids. */
	if (!(flags & MEMWAIT_PRIVATE))
		(void)memwait_owner(&id);
	while (last < number &&
	       !atomic_compare_exchange_weak_explicit(&cond->broadcast, &last, number,
						      memory_order_relaxed, memory_order_relaxed))
		;
	if (memwait_move(sequence_word(cond, flags), sequence, mutex_of(cond, distance), 0,
			 MEMWAIT_ALL, sequence_size(flags) | flags, NULL, &moved))
		return ENOTSUP;
	if (moved && memwait_lock_adopt(mutex_of(cond, distance), flags))
		return wake_moved(cond);
	return 0;
}

int memwait_cond_broadcast(memwait_cond_t *public_cond)
{
	struct cond *cond = to_cond(public_cond);
	uint64_t sequence;
	int ret;

	if (!cond)
		return EINVAL;
	MEMWAIT_PROBE1(cond_broadcast, public_cond);
	ret = memwait_need_device_once();
	if (ret)
		return ret;
	/* relaxed: see enter() */
	if (!atomic_load_explicit(&cond->users.count, memory_order_relaxed))
		return 0;
	sequence = signal_users(cond, MEMWAIT_ALL);
	ret = move_all(cond, sequence);
	if (ret == ENOTSUP)
		ret = wake(cond, MEMWAIT_ALL);
	memwait_users_leave(&cond->users, NULL);
	return ret;
}

/* op->phase: what it waits for. */
enum { FOR_SIGNAL, FOR_MUTEX };

/* Queues itself before it unlocks the mutex, so that nothing comes in between. */
static int wait_begin(struct memwait_op *op)
{
	struct cond *cond = op->object;
	int ret;

	if (!memwait_mutex_is_held(op->with))
		return EPERM;
	op->cond.flags = cond->users.flags;
	op->cond.sequence = enter(cond, op->with, op);
	ret = memwait_op_arm(op, sequence_word(cond, cond->users.flags), op->cond.sequence,
			     sleep_flags(cond->users.flags));
	if (ret == MEMWAIT_PENDING) {
		memwait_mutex_release_all(op->with, cond->users.flags, &op->cond.count, NULL);
		return MEMWAIT_OP_WAITS;
	}
	if (ret == MEMWAIT_NOT_EQUAL && !(cond->users.flags & MEMWAIT_PRIVATE))
		/* relaxed: it has the mutex and returns */
		take_signals(cond, SIGNAL,
			     atomic_load_explicit(&cond->sequence, memory_order_relaxed));
	memwait_users_leave(&cond->users, op);
	if (ret == MEMWAIT_TIMED_OUT)
		return ETIMEDOUT;
	return ret < 0 ? -ret : 0;
}

/* Told of a death that took no signal: sleeps on. Returns MEMWAIT_PENDING, or an outcome. */
static int sleep_on(struct memwait_op *op, uint64_t now)
{
	struct cond *cond = op->object;
	int ret = memwait_op_arm(op, sequence_word(cond, op->cond.flags), now,
				 sleep_flags(op->cond.flags));

	/* It must have the mutex again to fail, and so returns in vain. */
	return ret < 0 ? MEMWAIT_NOT_EQUAL : ret;
}

static int wait_step(struct memwait_op *op, int outcome)
{
	struct cond *cond = op->object;
	uint64_t broadcast, now;
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN)
		return wait_begin(op);
	if (op->phase == FOR_SIGNAL && outcome == MEMWAIT_OWNER_DIED &&
	    !must_return(cond, op->with, op->cond.sequence, &now)) {
		outcome = sleep_on(op, now);
		if (outcome == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
	}
	if (op->phase == FOR_SIGNAL) {
		broadcast = last_broadcast(cond);
		op->cond.result = 0;
		if (outcome == MEMWAIT_TIMED_OUT && broadcast <= op->cond.sequence)
			op->cond.result = ETIMEDOUT;
		op->cond.taken = !op->cond.result && take(cond, op->with, op->cond.sequence);
		memwait_users_leave(&cond->users, op);
		op->phase = FOR_MUTEX;
		op->deadline = memwait_never;
		outcome = may_be_moved(op->cond.sequence, broadcast) ? MEMWAIT_NOT_EQUAL :
								       MEMWAIT_OP_BEGIN;
	}
	ret = memwait_mutex_step_again(op->with, op->cond.count, op, outcome);
	if (ret == MEMWAIT_OP_WAITS)
		return ret;
	if (op->cond.taken && memwait_has_locked(ret))
		memwait_mutex_end_return(op->with);
	if (!memwait_has_locked(ret) && !op->cond.result)
		pass_on(cond, op->cond.flags);
	return ret ? ret : op->cond.result;
}

static void wait_undo(struct memwait_op *op, int outcome)
{
	struct cond *cond = op->object;
	bool signalled = memwait_was_woken(outcome);
	uint64_t now;

	if (op->phase == FOR_SIGNAL && outcome == MEMWAIT_OWNER_DIED)
		signalled = must_return(cond, op->with, op->cond.sequence, &now);
	if (op->phase == FOR_MUTEX) {
		memwait_mutex_undo_again(op->with, outcome);
		signalled = !op->cond.result;
	} else if (signalled && memwait_mutex_word(op->with, op->cond.flags) &&
		   may_be_moved(op->cond.sequence, last_broadcast(cond))) {
		memwait_mutex_undo_again(op->with, outcome);
	}
	if (op->phase == FOR_MUTEX) {
		if (signalled)
			pass_on(cond, op->cond.flags);
		return;
	}
	if (signalled)
		wake(cond, 1);
	memwait_users_leave(&cond->users, op);
}

static const struct memwait_op_kind wait_kind = { .step = wait_step, .undo = wait_undo };

static void *if_both(memwait_cond_t *cond, memwait_mutex_t *mutex)
{
	return mutex ? cond : NULL;
}

int memwait_cond_wait_async(memwait_cond_t *cond, memwait_mutex_t *mutex, memwait_op_t *op)
{
	return memwait_op_begin(op, &wait_kind, if_both(cond, mutex), mutex, &memwait_never);
}

int memwait_cond_clockwait_async(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
				 const struct timespec *abstime, memwait_op_t *op)
{
	return memwait_op_begin_until(op, &wait_kind, if_both(cond, mutex), mutex, clock, abstime);
}
