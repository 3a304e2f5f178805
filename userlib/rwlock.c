// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Read-write locks: a number of readers that a writer can close, behind a gate.
 *
 * The gate is a lock word (lock.c). A writer locks it, closes the state, and waits until the
 * readers are gone; it has the gate until it unlocks. A reader only adds itself as long as the
 * state is open. If it is closed, the reader goes through the gate: there is no writer when it has
 * the gate, as that opens the state before it unlocks the gate. So readers enter one after another
 * without a herd, and a writer that has the gate waits for no reader that comes later.
 *
 * Of a fair lock the gate is fair: readers and writers that have to wait enter in the order of
 * waiting. That costs a switch of threads for each as soon as one of them waits.
 *
 *	state: number of readers, and CLOSED: a writer has the gate and wants, or has, the lock
 *
 * The writer sleeps on the state; the reader that leaves CLOSED alone behind wakes it. A writer
 * that gives up opens the state, and unlocks the gate.
 */
#include <string.h>

#include "internal.h"

struct rwlock {
	_Atomic uint32_t gate;
	_Atomic uint32_t state;
	_Atomic uint32_t spins;		/* of memwait_lock() on the gate */
	uint32_t kind;
};

_Static_assert(sizeof(struct rwlock) <= sizeof(memwait_rwlock_t), "the lock fits");
_Static_assert(MEMWAIT_RWLOCK_FAIR == MEMWAIT_MUTEX_FAIR, "its kind is also the gate's");

#define CLOSED		0x80000000U
#define MOST_READERS	0x7fffffffU

static struct rwlock *to_rwlock(memwait_rwlock_t *rwlock)
{
	return (struct rwlock *)rwlock;
}

int memwait_rwlock_init(memwait_rwlock_t *rwlock, unsigned int kind)
{
	if (!rwlock || (kind & ~(MEMWAIT_RWLOCK_FAIR | MEMWAIT_PRIVATE)))
		return EINVAL;
	memset(rwlock, 0, sizeof(*rwlock));
	to_rwlock(rwlock)->kind = kind;
	return 0;
}

int memwait_rwlock_destroy(memwait_rwlock_t *rwlock)
{
	if (!rwlock)
		return EINVAL;
	/* acquire: who destroys it may free what it guarded */
	if (atomic_load_explicit(&to_rwlock(rwlock)->state, memory_order_acquire) ||
	    atomic_load_explicit(&to_rwlock(rwlock)->gate, memory_order_acquire))
		return EBUSY;
	return 0;
}

/* Adds a reader, unless the state is closed (EBUSY) or full (EAGAIN). */
static int add_reader(struct rwlock *lock)
{
	/* relaxed: only the compare-and-swap counts */
	uint32_t state = atomic_load_explicit(&lock->state, memory_order_relaxed);

	do {
		if (state & CLOSED)
			return EBUSY;
		if (state == MOST_READERS)
			return EAGAIN;
		/* acquire: pairs with the writer that opened it */
	} while (!atomic_compare_exchange_weak_explicit(&lock->state, &state, state + 1,
							memory_order_acquire,
							memory_order_relaxed));
	return 0;
}

/* The caller has the gate, so the state is open. */
static int add_reader_and_go(struct rwlock *lock)
{
	int ret = add_reader(lock);

	memwait_lock_release(&lock->gate, lock->kind);
	return ret;
}

static int read_until(struct rwlock *lock, const struct memwait_deadline *deadline)
{
	int ret;

	if (!lock)
		return EINVAL;
	ret = add_reader(lock);
	if (ret != EBUSY)
		return ret;
	ret = memwait_lock(&lock->gate, &lock->spins, lock->kind, deadline);
	return ret ? ret : add_reader_and_go(lock);
}

int memwait_rwlock_rdlock(memwait_rwlock_t *rwlock)
{
	return read_until(to_rwlock(rwlock), &memwait_never);
}

int memwait_rwlock_tryrdlock(memwait_rwlock_t *rwlock)
{
	return rwlock ? add_reader(to_rwlock(rwlock)) : EINVAL;
}

int memwait_rwlock_clockrdlock(memwait_rwlock_t *rwlock, clockid_t clock,
			       const struct timespec *abstime)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, abstime);

	return err ? err : read_until(to_rwlock(rwlock), &deadline);
}

int memwait_rwlock_timedrdlock(memwait_rwlock_t *rwlock, const struct timespec *abstime)
{
	return memwait_rwlock_clockrdlock(rwlock, CLOCK_REALTIME, abstime);
}

/* The caller has the gate. Returns the number of readers that it has to wait for. */
static uint32_t close_state(struct rwlock *lock)
{
	/* acquire: pairs with the release of readers that have left, and of the writer before */
	return atomic_fetch_or_explicit(&lock->state, CLOSED, memory_order_acquire) & ~CLOSED;
}

static uint32_t readers_left(struct rwlock *lock)
{
	/* acquire: pairs with the release of readers that have left */
	return atomic_load_explicit(&lock->state, memory_order_acquire) & ~CLOSED;
}

/* Of a writer that has the lock, or gives up. */
static int open_state(struct rwlock *lock)
{
	/* release: what was written is there for the readers that come */
	atomic_fetch_and_explicit(&lock->state, ~CLOSED, memory_order_release);
	return memwait_lock_release(&lock->gate, lock->kind);
}

static int write_until(struct rwlock *lock, const struct memwait_deadline *deadline)
{
	uint32_t readers;
	int ret;

	if (!lock)
		return EINVAL;
	ret = memwait_lock(&lock->gate, &lock->spins, lock->kind, deadline);
	if (ret)
		return ret;
	for (readers = close_state(lock); readers; readers = readers_left(lock)) {
		ret = memwait_sleep(&lock->state, CLOSED | readers,
				    MEMWAIT_SIZE_U32 | (lock->kind & MEMWAIT_PRIVATE), deadline);
		if (ret == MEMWAIT_TIMED_OUT || (ret < 0 && ret != -EINTR)) {
			open_state(lock);
			return ret < 0 ? -ret : ETIMEDOUT;
		}
	}
	return 0;
}

int memwait_rwlock_wrlock(memwait_rwlock_t *rwlock)
{
	return write_until(to_rwlock(rwlock), &memwait_never);
}

int memwait_rwlock_trywrlock(memwait_rwlock_t *rwlock)
{
	struct rwlock *lock = to_rwlock(rwlock);
	uint32_t nobody = 0;

	if (!lock)
		return EINVAL;
	if (!memwait_lock_try(&lock->gate))
		return EBUSY;
	/* acquire: as close_state() */
	if (atomic_compare_exchange_strong_explicit(&lock->state, &nobody, CLOSED,
						    memory_order_acquire, memory_order_relaxed))
		return 0;
	memwait_lock_release(&lock->gate, lock->kind);
	return EBUSY;
}

int memwait_rwlock_clockwrlock(memwait_rwlock_t *rwlock, clockid_t clock,
			       const struct timespec *abstime)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, abstime);

	return err ? err : write_until(to_rwlock(rwlock), &deadline);
}

int memwait_rwlock_timedwrlock(memwait_rwlock_t *rwlock, const struct timespec *abstime)
{
	return memwait_rwlock_clockwrlock(rwlock, CLOCK_REALTIME, abstime);
}

int memwait_rwlock_unlock(memwait_rwlock_t *rwlock)
{
	struct rwlock *lock = to_rwlock(rwlock);
	uint32_t state, kind;
	int ret;

	if (!lock)
		return EINVAL;
	kind = lock->kind;	/* who has it next may free it */
	/* relaxed: if the caller is a reader there are readers, whatever else happens */
	state = atomic_load_explicit(&lock->state, memory_order_relaxed);
	if (state == CLOSED)
		return open_state(lock);
	do {
		if (!(state & ~CLOSED))
			return EPERM;
		/* release: the writer comes after what was read */
	} while (!atomic_compare_exchange_weak_explicit(&lock->state, &state, state - 1,
							memory_order_release,
							memory_order_relaxed));
	if (state != (CLOSED | 1))
		return 0;
	ret = memwait_wake(&lock->state, 1, kind);
	return ret < 0 ? -ret : 0;
}

static int read_step(struct memwait_op *op, int outcome)
{
	struct rwlock *lock = op->object;
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN) {
		ret = add_reader(lock);
		if (ret != EBUSY)
			return ret;
	}
	ret = memwait_lock_step(op, &lock->gate, lock->kind, outcome);
	return ret ? ret : add_reader_and_go(lock);
}

static void read_undo(struct memwait_op *op, int outcome)
{
	struct rwlock *lock = op->object;

	memwait_lock_undo(&lock->gate, lock->kind, outcome);
}

/* What a writer waits for. */
enum { FOR_GATE, FOR_READERS };

static int write_step(struct memwait_op *op, int outcome)
{
	struct rwlock *lock = op->object;
	uint32_t readers;
	int ret;

	if (op->phase == FOR_GATE) {
		ret = memwait_lock_step(op, &lock->gate, lock->kind, outcome);
		if (ret)
			return ret;
		op->phase = FOR_READERS;
		readers = close_state(lock);
	} else {
		if (outcome == MEMWAIT_TIMED_OUT) {
			open_state(lock);
			return ETIMEDOUT;
		}
		readers = readers_left(lock);
	}
	for (; readers; readers = readers_left(lock)) {
		ret = memwait_op_arm(op, &lock->state, CLOSED | readers,
				     MEMWAIT_SIZE_U32 | (lock->kind & MEMWAIT_PRIVATE));
		if (ret == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
		if (ret != MEMWAIT_NOT_EQUAL) {
			open_state(lock);
			return ret < 0 ? -ret : ETIMEDOUT;
		}
	}
	return 0;
}

static void write_undo(struct memwait_op *op, int outcome)
{
	struct rwlock *lock = op->object;

	/* The writer is alone on the state: there is nobody to pass its wake-up on to. */
	if (op->phase == FOR_GATE)
		memwait_lock_undo(&lock->gate, lock->kind, outcome);
	else
		open_state(lock);
}

static const struct memwait_op_kind read_kind = { read_step, read_undo };
static const struct memwait_op_kind write_kind = { write_step, write_undo };

static int begin(memwait_rwlock_t *lock, const struct memwait_op_kind *kind, memwait_op_t *op)
{
	if (!lock)
		return EINVAL;
	return memwait_op_begin(op, kind, lock, NULL, &memwait_never);
}

static int begin_until(memwait_rwlock_t *lock, const struct memwait_op_kind *kind,
		       clockid_t clock, const struct timespec *abstime, memwait_op_t *op)
{
	struct memwait_deadline deadline;
	int err;

	if (!lock)
		return EINVAL;
	err = memwait_deadline_set(&deadline, clock, abstime);
	return err ? err : memwait_op_begin(op, kind, lock, NULL, &deadline);
}

int memwait_rwlock_rdlock_async(memwait_rwlock_t *rwlock, memwait_op_t *op)
{
	return begin(rwlock, &read_kind, op);
}

int memwait_rwlock_clockrdlock_async(memwait_rwlock_t *rwlock, clockid_t clock,
				     const struct timespec *abstime, memwait_op_t *op)
{
	return begin_until(rwlock, &read_kind, clock, abstime, op);
}

int memwait_rwlock_wrlock_async(memwait_rwlock_t *rwlock, memwait_op_t *op)
{
	return begin(rwlock, &write_kind, op);
}

int memwait_rwlock_clockwrlock_async(memwait_rwlock_t *rwlock, clockid_t clock,
				     const struct timespec *abstime, memwait_op_t *op)
{
	return begin_until(rwlock, &write_kind, clock, abstime, op);
}
