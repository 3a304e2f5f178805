// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Condition variables. A condition variable is a sequence of 64 bits, which each signal changes and
 * on which waiters sleep.
 *
 *	bit 0		OWED: a wake-up failed
 *	bits 1 to 63	number of signals, which does not wrap; between processes bits 1 to 31
 *
 *	waiter					signaller
 *	(1) read the sequence, with the mutex	(1) change the sequence
 *	(2) unlock the mutex			(2) notify one, or all
 *	(3) sleep while it is unchanged
 *
 * No signal is lost: a waiter that read the sequence before a signal already sleeps, or will not go
 * to sleep. No signal is stolen: if all earlier waiters sleep, the notify wakes one of them,
 * because later waiters are queued behind them. An earlier waiter that is not asleep yet receives
 * the signal by the change; the notify may then wake one more waiter: a spurious wake-up, as POSIX
 * allows.
 *
 * After the signaller's (1) a waiter may return and destroy the condition variable, so the
 * signaller is a user (users.c). If (2) fails, the signaller sets OWED: the next caller clears OWED
 * and wakes all waiters in one system call, perhaps more than were signalled. A signaller does not
 * touch the mutex, because any waiter may destroy the mutex once that waiter has locked and
 * unlocked it.
 *
 * Between processes, (1) and (2) of the signaller are one system call, memwait_change(): a
 * signaller that is killed has either signalled or not. Waiters sleep with MEMWAIT_OWNED, which
 * would interpret 64 bits as an owner id. Therefore they sleep on the lower half of the sequence,
 * which is then the only half that counts, and miss signals only if the number of signals between
 * (1) and (3) is an exact multiple of 2^31.
 *
 * If a woken waiter dies before it has locked the mutex, the next waiter returns instead. The
 * kernel notifies the next waiter whenever the waiter that was woken last dies, even if it had
 * locked the mutex long before; the wake-up is then spurious.
 *
 * A waiter that does not use its signal, because it was cancelled or cannot lock the mutex, passes
 * the signal on by a notify, without changing the sequence: earlier waiters that are not asleep yet
 * see that the signal has changed the sequence.
 */
#include <string.h>

#include "mutex.h"
#include "object.h"
#include "probes.h"
#include "users.h"

struct cond {
	_Atomic uint64_t sequence;
	struct memwait_users users;
	uint32_t spare;			/* 0 */
};

_Static_assert(sizeof(struct cond) <= sizeof(memwait_cond_t), "the condition variable fits");

#define KNOWN		(MEMWAIT_PRIVATE | MEMWAIT_COND_MONOTONIC)

/* Fields of the sequence. */
#define OWED		1ULL
#define SIGNAL		2ULL

static struct cond *to_cond(memwait_cond_t *cond)
{
	return (struct cond *)cond;
}

static bool cond_is_valid(const struct cond *cond)
{
	return cond && !memwait_is_unknown(cond->users.flags, cond->spare, KNOWN);
}

/* Flags for waits and notifies. */
static uint32_t cond_flags_of(const struct cond *cond)
{
	return cond->users.flags & MEMWAIT_PRIVATE;
}

int memwait_cond_init(memwait_cond_t *cond, unsigned int flags)
{
	if (!cond || (flags & ~KNOWN))
		return EINVAL;
	memset(cond, 0, sizeof(*cond));
	to_cond(cond)->users.flags = flags;
	MEMWAIT_PROBE2(cond_init, cond, NULL);
	return memwait_need_device();
}

static const volatile void *sequence_word(struct cond *cond, uint32_t flags)
{
	return flags & MEMWAIT_PRIVATE ? &cond->sequence : memwait_lower_half(&cond->sequence);
}

static uint32_t cond_sleep_flags(uint32_t flags)
{
	return (flags & MEMWAIT_PRIVATE ? MEMWAIT_SIZE_U64 : MEMWAIT_SIZE_U32) |
	       memwait_sleep_flags(flags);
}

/*
 * Called by a user, with the result of a notify. Returns 0; or an error, after which
 * cond_wake_owed() wakes all waiters. A waiter that is about to sleep then finds the sequence
 * changed.
 */
static int woken(struct cond *cond, int ret)
{
	if (ret >= 0)
		return 0;
	/* relaxed, both: the sequence protects nothing that a waiter reads */
	atomic_fetch_add_explicit(&cond->sequence, SIGNAL, memory_order_relaxed);
	atomic_fetch_or_explicit(&cond->sequence, OWED, memory_order_relaxed);
	return -ret;
}

/* Called by a user: wakes the oldest sleepers. */
static int wake(struct cond *cond, uint32_t count)
{
	uint32_t flags = cond_flags_of(cond);

	return woken(cond, memwait_wake(sequence_word(cond, flags), count, flags));
}

/* After a failed wake-up: wakes all waiters. Returns 0 or an error. */
static int cond_wake_owed(struct cond *cond)
{
	uint32_t flags = cond_flags_of(cond);
	int ret;

	/* relaxed: as in woken() */
	if (!(atomic_load_explicit(&cond->sequence, memory_order_relaxed) & OWED))
		return 0;
	ret = memwait_change(memwait_lower_half(&cond->sequence), MEMWAIT_CHANGE_AND,
			     ~(uint32_t)OWED, MEMWAIT_ALL, flags, NULL);
	if (ret < 0)
		return -ret;
	/* On big-endian machines private waiters sleep at another address. */
	if (memwait_lower_half(&cond->sequence) != sequence_word(cond, flags))
		return wake(cond, MEMWAIT_ALL);
	return 0;
}

int memwait_cond_destroy(memwait_cond_t *public_cond)
{
	struct cond *cond = to_cond(public_cond);
	int err;

	if (!cond_is_valid(cond))
		return EINVAL;
	MEMWAIT_PROBE1(cond_destroy, public_cond);
	err = cond_wake_owed(cond);
	return err ? err : memwait_users_drain(&cond->users,
					       sequence_word(cond, cond_flags_of(cond)));
}

/* The caller holds the mutex. @op: NULL for a thread. Returns the sequence. */
static uint64_t cond_enter(struct cond *cond, const struct memwait_op *op)
{
	memwait_users_enter(&cond->users, op);
	cond_wake_owed(cond);
	/*
	 * relaxed: a signaller that must see this user has locked the mutex since then, or has
	 * found it not recoverable. Any other signaller may change the sequence without seeing this
	 * user.
	 */
	return atomic_load_explicit(&cond->sequence, memory_order_relaxed);
}

/*
 * Called by a waiter that is no longer a user, and therefore must not read the condition variable.
 */
static void cond_pass_on(struct cond *cond, uint32_t flags)
{
	memwait_wake(sequence_word(cond, flags), 1, flags);
}

struct waiting {
	struct cond *cond;
	memwait_mutex_t *mutex;
	uint32_t count;
	const volatile void *wake;	/* the mutex's word, to notify before the sleep */
};

static void cond_cancelled(void *argument)
{
	struct waiting *waiting = argument;

	wake(waiting->cond, 1);
	memwait_users_leave(&waiting->cond->users, NULL);
	if (waiting->wake)
		memwait_mutex_undo_again(waiting->mutex, NULL, MEMWAIT_OK);
	memwait_mutex_take_again(waiting->mutex, waiting->count);
}

static int cond_wait_until(memwait_cond_t *public_cond, memwait_mutex_t *mutex,
			   const struct memwait_deadline *deadline)
{
	struct cond *cond = to_cond(public_cond);
	struct waiting waiting = { .cond = cond, .mutex = mutex };
	uint64_t sequence;
	uint32_t flags;
	int ret, err;

	MEMWAIT_PROBE2(cond_wait, public_cond, mutex);
	if (!cond_is_valid(cond) || !mutex)
		return EINVAL;
	if (deadline->error)
		return deadline->error;
	ret = memwait_mutex_is_held(mutex);
	if (ret <= 0)
		return ret ? EINVAL : EPERM;
	/* Fail before the mutex is unlocked, because locking it again may take a long time. */
	ret = memwait_need_device();
	if (ret)
		return ret;

	flags = cond_flags_of(cond);	/* the object may be freed once this thread has left */
	sequence = cond_enter(cond, NULL);
	memwait_mutex_release_all(mutex, flags, &waiting.count, &waiting.wake);
	for (;;) {
		ret = memwait_sleep_cancellable(waiting.wake, sequence_word(cond, flags), sequence,
						cond_sleep_flags(flags), deadline, cond_cancelled,
						&waiting);
		if (ret != -EINTR)
			break;
		waiting.wake = NULL;
	}
	memwait_users_leave(&cond->users, NULL);
	/* Like cond_cancelled(). */
	if (ret < 0 && waiting.wake)
		memwait_mutex_undo_again(mutex, NULL, MEMWAIT_OK);

	err = memwait_mutex_take_again(mutex, waiting.count);
	/* EOWNERDEAD: an owner of the mutex died. ENOTRECOVERABLE: the mutex is not locked. */
	if (err == ENOTRECOVERABLE && memwait_was_woken(ret))
		cond_pass_on(cond, flags);
	if (err)
		return err;
	if (ret == MEMWAIT_TIMED_OUT)
		return ETIMEDOUT;
	return ret < 0 ? -ret : 0;
}

MEMWAIT_DEFINE_WAIT(cond, wait, (memwait_cond_t *object, memwait_mutex_t *mutex), (object, mutex))

int memwait_cond_timedwait(memwait_cond_t *cond, memwait_mutex_t *mutex,
			   const struct timespec *abstime)
{
	bool monotonic = cond && to_cond(cond)->users.flags & MEMWAIT_COND_MONOTONIC;

	return memwait_cond_clockwait(cond, mutex, monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME,
				      abstime);
}

/* Not inlined, so that a signal without waiters needs almost no stack frame. */
__attribute__((__noinline__))
static int notify(struct cond *cond, uint32_t count)
{
	int ret;

	memwait_users_enter(&cond->users, NULL);
	cond_wake_owed(cond);
	if (cond_flags_of(cond)) {
		/* relaxed: the kernel orders it before the notify */
		atomic_fetch_add_explicit(&cond->sequence, SIGNAL, memory_order_relaxed);
		ret = wake(cond, count);
	} else {
		ret = woken(cond, memwait_change(sequence_word(cond, 0), MEMWAIT_CHANGE_ADD, SIGNAL,
						 count, 0, NULL));
	}
	memwait_users_leave(&cond->users, NULL);
	return ret;
}

int memwait_cond_notify(memwait_cond_t *public_cond, unsigned int count)
{
	struct cond *cond = to_cond(public_cond);
	int ret;

	if (!cond_is_valid(cond))
		return EINVAL;
	ret = memwait_need_device_once();
	if (ret)
		return ret;
	/* relaxed: see cond_enter() */
	if (!count || !atomic_load_explicit(&cond->users.count, memory_order_relaxed))
		return 0;
	return notify(cond, count);
}

int memwait_cond_signal(memwait_cond_t *cond)
{
	MEMWAIT_PROBE1(cond_signal, cond);
	return memwait_cond_notify(cond, 1);
}

int memwait_cond_broadcast(memwait_cond_t *cond)
{
	MEMWAIT_PROBE1(cond_broadcast, cond);
	return memwait_cond_notify(cond, MEMWAIT_ALL);
}

/* op->phase: what the operation waits for. */
enum { FOR_SIGNAL, FOR_MUTEX };

/*
 * Queues the operation before it unlocks the mutex, so that nothing comes in between. Even an
 * operation whose deadline has passed is queued for a moment, and unlocks the mutex: otherwise no
 * other thread could change the condition.
 */
static int wait_begin(struct memwait_op *op)
{
	struct cond *cond = op->object;
	uint64_t sequence;
	uint32_t ms;
	int ret;

	if (!cond_is_valid(cond))
		return EINVAL;
	ret = memwait_mutex_is_held(op->with);
	if (ret <= 0)
		return ret ? EINVAL : EPERM;
	op->cond.flags = cond_flags_of(cond);
	sequence = cond_enter(cond, op);
	for (ms = 1;; ms *= 2) {
		ret = memwait_op_arm(op, sequence_word(cond, op->cond.flags), sequence,
				     cond_sleep_flags(op->cond.flags));
		if (ret != MEMWAIT_TIMED_OUT)
			break;
		memwait_deadline_after(&op->deadline, CLOCK_MONOTONIC, ms);
	}
	if (ret == MEMWAIT_PENDING) {
		memwait_mutex_release_all(op->with, op->cond.flags, &op->cond.count, NULL);
		return MEMWAIT_OP_WAITS;
	}
	memwait_users_leave(&cond->users, op);
	return ret < 0 ? -ret : 0;
}

static int cond_wait_step(struct memwait_op *op, int outcome)
{
	struct cond *cond = op->object;
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN)
		return wait_begin(op);
	if (op->phase == FOR_SIGNAL) {
		op->cond.result = outcome == MEMWAIT_TIMED_OUT ? ETIMEDOUT : 0;
		memwait_users_leave(&cond->users, op);
		op->phase = FOR_MUTEX;
		op->deadline = memwait_never;
		outcome = MEMWAIT_OP_BEGIN;
	}
	ret = memwait_mutex_step_again(op->with, op->cond.count, op, outcome);
	if (ret == MEMWAIT_OP_WAITS)
		return ret;
	if (!memwait_has_locked(ret) && !op->cond.result)
		cond_pass_on(cond, op->cond.flags);
	return ret ? ret : op->cond.result;
}

static void cond_wait_undo(struct memwait_op *op, int outcome)
{
	struct cond *cond = op->object;

	if (op->phase == FOR_MUTEX) {
		memwait_mutex_undo_again(op->with, &op->turn, outcome);
		if (!op->cond.result)
			cond_pass_on(cond, op->cond.flags);
		return;
	}
	if (memwait_was_woken(outcome))
		wake(cond, 1);
	memwait_users_leave(&cond->users, op);
}

/*
 * The mutex is locked after ETIMEDOUT as well. Signals first, while the lock still excludes others.
 */
static int cond_wait_give_back(struct memwait_op *op)
{
	if (!memwait_has_locked(op->outcome) && op->outcome != ETIMEDOUT)
		return 0;
	if (op->outcome != ETIMEDOUT)
		cond_pass_on(op->object, op->cond.flags);
	return memwait_mutex_give_back(op->with, op->outcome);
}

static const struct memwait_op_kind cond_wait_kind = {
	.step = cond_wait_step,
	.undo = cond_wait_undo,
	.give_back = cond_wait_give_back,
};

MEMWAIT_DEFINE_ASYNC(cond, wait, (memwait_cond_t *object, memwait_mutex_t *mutex), mutex,
		     mutex ? 0 : EINVAL)
