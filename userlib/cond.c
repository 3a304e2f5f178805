// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Condition variables: a sequence that each signal changes, and that waiters sleep on.
 *
 *	waiter					signaller
 *	(1) read the sequence, with the mutex	(1) change the sequence
 *	(2) unlock the mutex			(2) notify one
 *	(3) sleep while it is as it was read
 *
 * No signal is lost: who has read the sequence before a signal changed it either sleeps already, or
 * will not go to sleep. No signal is stolen: if all who were there before it sleep, the notify
 * takes one of them, because those who come later stand behind them in the kernel's queue. If one
 * of them does not sleep yet, it has got the signal with the change. The notify may then wake one
 * more, which POSIX calls a spurious wake-up. 64 bits do not come round.
 *
 * A signal that reached a waiter which is cancelled goes on by a notify alone: those who were there
 * before that signal and do not sleep yet have seen it change the sequence.
 *
 * Where broadcast could move the sleepers to the mutex instead of waking them all, it is the notify
 * of memwait_cond_notify() that would become MEMWAIT_IOC_REQUEUE.
 */
#include <string.h>

#include "internal.h"

struct cond {
	_Atomic uint64_t sequence;
	_Atomic uint32_t users;
};

_Static_assert(sizeof(struct cond) <= sizeof(memwait_cond_t), "the condition variable fits");

static struct cond *to_cond(memwait_cond_t *cond)
{
	return (struct cond *)cond;
}

int memwait_cond_init(memwait_cond_t *cond, unsigned int flags)
{
	if (!cond || flags)
		return EINVAL;
	memset(cond, 0, sizeof(*cond));
	return 0;
}

int memwait_cond_destroy(memwait_cond_t *cond)
{
	if (!cond)
		return EINVAL;
	return memwait_users_drain(&to_cond(cond)->users, &to_cond(cond)->sequence);
}

/* The caller has the mutex. Returns the sequence. */
static uint64_t enter(struct cond *cond)
{
	/*
	 * relaxed, both: a signaller that has to see this one has had the mutex since, or the
	 * sequence has been changed by one that need not.
	 */
	atomic_fetch_add_explicit(&cond->users, 1, memory_order_relaxed);
	return atomic_load_explicit(&cond->sequence, memory_order_relaxed);
}

static int pass_on(struct cond *cond)
{
	return memwait_wake(&cond->sequence, 1);
}

struct waiting {
	struct cond *cond;
	memwait_mutex_t *mutex;
	uint32_t count;
};

static void cancelled(void *argument)
{
	struct waiting *waiting = argument;

	pass_on(waiting->cond);
	memwait_users_leave(&waiting->cond->users);
	memwait_mutex_take_again(waiting->mutex, waiting->count);
}

static int wait_until(memwait_cond_t *cond, memwait_mutex_t *mutex,
		      const struct memwait_deadline *deadline)
{
	struct waiting waiting = { .cond = to_cond(cond), .mutex = mutex };
	uint64_t sequence;
	int ret, err;

	if (!cond || !mutex)
		return EINVAL;
	if (deadline->error)
		return deadline->error;

	sequence = enter(waiting.cond);
	if (memwait_mutex_release_all(mutex, &waiting.count)) {
		memwait_users_leave(&waiting.cond->users);
		return EPERM;
	}
	do {
		ret = memwait_sleep_cancellable(&waiting.cond->sequence, sequence,
						MEMWAIT_SIZE_U64, deadline, cancelled, &waiting);
	} while (ret == -EINTR);
	memwait_users_leave(&waiting.cond->users);

	err = memwait_mutex_take_again(mutex, waiting.count);
	if (err)
		return err;
	if (ret == MEMWAIT_TIMED_OUT)
		return ETIMEDOUT;
	return ret < 0 ? -ret : 0;
}

int memwait_cond_wait(memwait_cond_t *cond, memwait_mutex_t *mutex)
{
	return wait_until(cond, mutex, &MEMWAIT_NEVER);
}

int memwait_cond_clockwait(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
			   const struct timespec *abstime)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, abstime);

	return err ? err : wait_until(cond, mutex, &deadline);
}

int memwait_cond_timedwait(memwait_cond_t *cond, memwait_mutex_t *mutex,
			   const struct timespec *abstime)
{
	return memwait_cond_clockwait(cond, mutex, CLOCK_REALTIME, abstime);
}

int memwait_cond_notify(memwait_cond_t *public_cond, unsigned int count)
{
	struct cond *cond = to_cond(public_cond);
	int ret;

	if (!cond)
		return EINVAL;
	/* relaxed: see enter() */
	if (!count || !atomic_load_explicit(&cond->users, memory_order_relaxed))
		return 0;
	/* relaxed: the kernel orders it before the notify */
	atomic_fetch_add_explicit(&cond->sequence, 1, memory_order_relaxed);
	ret = memwait_wake(&cond->sequence, count);
	return ret < 0 ? -ret : 0;
}

int memwait_cond_signal(memwait_cond_t *cond)
{
	return memwait_cond_notify(cond, 1);
}

int memwait_cond_broadcast(memwait_cond_t *cond)
{
	return memwait_cond_notify(cond, MEMWAIT_ALL);
}

/* What an operation waits for. */
enum { FOR_SIGNAL, FOR_MUTEX };

/* Queues itself while the mutex is still locked, so that nothing can come in between. */
static int wait_begin(struct memwait_op *op)
{
	struct cond *cond = op->object;
	uint64_t sequence;
	int ret;

	if (!memwait_mutex_is_held(op->cond.mutex))
		return EPERM;
	sequence = enter(cond);
	ret = memwait_op_arm(op, &cond->sequence, sequence, MEMWAIT_SIZE_U64);
	if (ret == MEMWAIT_PENDING) {
		memwait_mutex_release_all(op->cond.mutex, &op->cond.count);
		return MEMWAIT_OP_WAITS;
	}
	memwait_users_leave(&cond->users);
	if (ret == MEMWAIT_TIMED_OUT)
		return ETIMEDOUT;
	return ret < 0 ? -ret : 0;
}

static int wait_step(struct memwait_op *op, int outcome)
{
	struct cond *cond = op->object;
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN)
		return wait_begin(op);
	if (op->phase == FOR_SIGNAL) {
		memwait_users_leave(&cond->users);
		op->phase = FOR_MUTEX;
		op->cond.result = outcome == MEMWAIT_OK ? 0 : ETIMEDOUT;
		op->deadline = MEMWAIT_NEVER;
		outcome = MEMWAIT_OP_BEGIN;
	}
	ret = memwait_mutex_step_again(op->cond.mutex, op->cond.count, op, outcome);
	if (ret == MEMWAIT_OP_WAITS)
		return ret;
	if (ret && !op->cond.result)
		pass_on(cond);
	return ret ? ret : op->cond.result;
}

static void wait_undo(struct memwait_op *op, int outcome)
{
	struct cond *cond = op->object;
	bool signalled = outcome == MEMWAIT_OK;

	if (op->phase == FOR_MUTEX) {
		memwait_mutex_undo_again(op->cond.mutex, outcome);
		signalled = !op->cond.result;
	}
	if (signalled)
		pass_on(cond);
	if (op->phase == FOR_SIGNAL)
		memwait_users_leave(&cond->users);
}

static const struct memwait_op_kind wait_kind = { wait_step, wait_undo };

static int wait_async(memwait_cond_t *cond, memwait_mutex_t *mutex,
		      const struct memwait_deadline *deadline, memwait_op_t *public_op)
{
	struct memwait_op *op;
	int err;

	if (!cond || !mutex)
		return EINVAL;
	err = memwait_op_take(public_op, &op);
	if (err)
		return err;
	op->kind = &wait_kind;
	op->object = cond;
	op->deadline = *deadline;
	op->phase = FOR_SIGNAL;
	op->cond.mutex = mutex;
	return memwait_op_start(op);
}

int memwait_cond_wait_async(memwait_cond_t *cond, memwait_mutex_t *mutex, memwait_op_t *op)
{
	return wait_async(cond, mutex, &MEMWAIT_NEVER, op);
}

int memwait_cond_clockwait_async(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
				 const struct timespec *abstime, memwait_op_t *op)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, abstime);

	return err ? err : wait_async(cond, mutex, &deadline, op);
}
