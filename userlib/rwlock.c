// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Read-write locks: a gate, and a state that counts readers and that a writer closes. The gate is a
 * lock word (lock.c), or an owner word (owner.c) if the lock is robust. The state has 32 bits, and
 * its first byte in memory has the flags, for writers to sleep on:
 *
 *	CLOSED		the writer that holds the gate wants the lock, or holds it
 *	WAITING		writers sleep on the flags until there is no reader, or are about to
 *	OWED		a thread that sleeps on the flags, or at the gate, could not be woken
 *	24 more bits	the number of readers
 *
 * Invariants:
 *	The number of readers does not become negative.
 *	Only the thread that holds the gate changes CLOSED, or clears OWED.
 *	CLOSED => no reader enters.
 *	CLOSED, in a lock that prefers readers and is not robust => there is no reader.
 *	WAITING => there are readers.
 *
 * A writer locks the gate, closes the state and waits until the readers have left. It holds the
 * gate until it unlocks. A reader adds itself to an open state, and needs nothing else. If the
 * state is closed, the reader goes through the gate; a writer opens the state before it unlocks the
 * gate, so the reader finds the state open. Readers thus enter one after another without a
 * thundering herd, and a writer that holds the gate does not wait for later readers.
 *
 * The writer sets WAITING and sleeps on the flags, which readers that come and go do not change.
 * The last reader clears WAITING as it leaves, and wakes the writer. If readers came just before
 * that, the writer sets WAITING again. A writer that gives up opens the state, and unlocks the
 * gate. Between these two steps readers can come and go, and the last of them may destroy the lock.
 * Therefore destroy waits for the gate if it finds the state open and the gate locked.
 *
 * Locks that prefer writers, and fair locks, work in this way. The gate of a fair lock is fair:
 * readers and writers that have to wait enter in the order in which they began to wait, and each
 * entry costs a context switch.
 *
 * By default a lock prefers readers, as in glibc, because POSIX allows a thread to lock it for
 * reading several times. A writer closes the state only if there is no reader. Otherwise it sets
 * WAITING, unlocks the gate and sleeps on the flags. The last reader wakes all writers that sleep
 * on the flags, and they go through the gate again. Therefore only a writer that holds the lock
 * holds the gate for a long time, and a thread that holds a read lock can acquire another read
 * lock.
 *
 * The last reader leaves and wakes the writers in one system call, because the next owner may free
 * the lock. If the call fails, the reader still leaves, and sets OWED in the same step. A thread
 * that unlocks the gate and cannot wake the next thread at the gate also sets OWED, because a
 * reader looks only at the state. A writer that unlocks sets OWED while it still holds the gate,
 * because the lock may have been freed afterwards.
 *
 * If OWED is set, a thread that does not get the lock immediately, or that unlocks, repeats the
 * failed wake-up: it wakes all threads that sleep on the flags. If the thread gets the gate, it
 * also clears OWED, and wakes the next thread at the gate by unlocking the gate. Otherwise OWED
 * stays set: the writer that has just set OWED may still hold the gate, and wakes no thread.
 * Therefore even a reader that is not the last reader repeats the wake-up: the last reader may have
 * found the gate locked.
 *
 * The owner word of a robust lock's gate shows whether its owner has died. If the state is closed,
 * the dead thread was a writer, and the data may need repair: the thread that finds this holds the
 * lock for writing, even if it asked for reading. If this thread gives up because readers are left,
 * it abandons the gate and leaves the state closed. If the state is open, the dead thread was not
 * writing, and its death changes nothing. A lock that is not recoverable stays closed.
 */
#include <string.h>

#include "object.h"
#include "probes.h"
#include "users.h"

struct rwlock {
	union memwait_gate gate;
	_Atomic uint32_t state;
	_Atomic uint32_t spins;		/* of memwait_lock() on the gate */
	uint32_t padding[2];
	uint32_t kind;
	uint32_t spare;			/* 0; glibc's PTHREAD_PROCESS_SHARED locks have 1 here */
};

_Static_assert(sizeof(struct rwlock) <= sizeof(memwait_rwlock_t), "the lock fits");
_Static_assert(MEMWAIT_RWLOCK_FAIR == MEMWAIT_MUTEX_FAIR, "its kind is also the gate's");
_Static_assert(MEMWAIT_RWLOCK_ROBUST == MEMWAIT_MUTEX_ROBUST, "likewise");

/* The positions of the first byte in memory, and of the other bytes. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FLAGS_PLACE	0
#define READER		0x100U
#else
#define FLAGS_PLACE	24
#define READER		1U
#endif

#define FLAG(n)		(1U << (FLAGS_PLACE + (n)))
#define CLOSED		FLAG(0)
#define WAITING		FLAG(1)
#define OWED		FLAG(2)
#define MOST_READERS	0xffffffU
#define READERS		(MOST_READERS * READER)

#define KNOWN	(MEMWAIT_RWLOCK_FAIR | MEMWAIT_RWLOCK_ROBUST | MEMWAIT_RWLOCK_PREFER_WRITER | \
		 MEMWAIT_PRIVATE)

static struct rwlock *to_rwlock(memwait_rwlock_t *rwlock)
{
	return (struct rwlock *)rwlock;
}

static bool rwlock_is_valid(const struct rwlock *lock)
{
	return lock && !memwait_is_unknown(lock->kind, lock->spare, KNOWN);
}

static bool rwlock_is_robust(const struct rwlock *lock)
{
	return lock->kind & MEMWAIT_RWLOCK_ROBUST;
}

static bool prefers_readers(const struct rwlock *lock)
{
	return !(lock->kind & (MEMWAIT_RWLOCK_FAIR | MEMWAIT_RWLOCK_PREFER_WRITER));
}

/* Checks a state that was loaded. */
static inline void rwlock_check(const struct rwlock *lock, uint32_t state)
{
	MEMWAIT_INVARIANT(!(state & CLOSED && state & READERS) || !prefers_readers(lock) ||
			  rwlock_is_robust(lock));
	MEMWAIT_INVARIANT(!(state & WAITING) || state & READERS);
}

/* For the holder of the gate: whether one of @bits is set; @owned: the bits of a robust gate. */
static inline bool gate_has(struct rwlock *lock, uint32_t bits, uint64_t owned)
{
	/* relaxed, both: the caller has locked it */
	return rwlock_is_robust(lock) ?
	       atomic_load_explicit(&lock->gate.owned, memory_order_relaxed) & owned :
	       atomic_load_explicit(&lock->gate.word, memory_order_relaxed) & bits;
}

/* Checks, before the state is closed or opened, that the gate is locked. */
static inline void check_gate(struct rwlock *lock)
{
	MEMWAIT_INVARIANT(gate_has(lock, MEMWAIT_LOCKED, MEMWAIT_OWNER_MASK));
}

int memwait_rwlock_init(memwait_rwlock_t *rwlock, unsigned int kind)
{
	const unsigned int others = MEMWAIT_RWLOCK_ROBUST | MEMWAIT_RWLOCK_PREFER_WRITER;

	if (!rwlock || (kind & ~KNOWN) ||
	    (kind & MEMWAIT_RWLOCK_FAIR && kind & others))
		return EINVAL;
	memset(rwlock, 0, sizeof(*rwlock));
	to_rwlock(rwlock)->kind = kind;
	return memwait_need_device();
}

static void set_owed(struct rwlock *lock)
{
	/* relaxed: only later calls have to repeat the wake-up */
	atomic_fetch_or_explicit(&lock->state, OWED, memory_order_relaxed);
}

/* For a caller that is still using the lock, so that the lock still exists. */
static int release_gate(struct rwlock *lock)
{
	int ret = memwait_gate_release(&lock->gate, lock->kind);

	if (ret)
		set_owed(lock);
	return ret;
}

/*
 * @ret: the result of locking the gate. Returns 0: the caller holds the gate; EOWNERDEAD: the
 * caller holds the gate, and a writer has died; or an error.
 */
static int look_behind_gate(struct rwlock *lock, int ret)
{
	if (ret != EOWNERDEAD)
		return ret;
	/* relaxed: only the holder of the gate closes or opens it */
	if (atomic_load_explicit(&lock->state, memory_order_relaxed) & CLOSED)
		return EOWNERDEAD;
	memwait_owner_make_consistent(&lock->gate.owned);
	return 0;
}

/*
 * Called by the holder of the gate. Wakes all that sleep on the flags in the same step, because a
 * last reader may have just set OWED. Returns how many, or a negative error number.
 */
static int clear_owed(struct rwlock *lock)
{
	return memwait_change(&lock->state, MEMWAIT_CHANGE_AND, ~OWED, MEMWAIT_ALL, lock->kind,
			      NULL);
}

/*
 * Repeats wake-ups that have failed. Returns the number of waiters woken, or a negative error
 * number.
 */
static int rwlock_wake_owed(struct rwlock *lock)
{
	int woken, ret;
	bool contended;

	/* relaxed: see set_owed() */
	if (!(atomic_load_explicit(&lock->state, memory_order_relaxed) & OWED))
		return 0;
	/* This comes first: a thread that cannot wake others must not touch the gate. */
	woken = memwait_wake(&lock->state, MEMWAIT_ALL, lock->kind);
	if (woken < 0)
		return woken;
	ret = look_behind_gate(lock, memwait_gate_try(&lock->gate, lock->kind));
	/*
	 * The repair is left to a thread that locks: this thread acquires the lock, and clears OWED
	 * when it unlocks.
	 */
	if (ret == EOWNERDEAD)
		memwait_owner_abandon(&lock->gate.owned, lock->kind);
	if (ret)
		return woken;
	contended = gate_has(lock, MEMWAIT_CONTENDED, MEMWAIT_OWNER_CONTENDED);
	ret = clear_owed(lock);
	release_gate(lock);
	return ret < 0 ? ret : woken + ret + contended;
}

static int lock_gate(struct rwlock *lock, const struct memwait_deadline *deadline)
{
	int ret;

	if (!rwlock_is_robust(lock) && memwait_lock_try(&lock->gate.word))
		return 0;
	rwlock_wake_owed(lock);
	ret = memwait_gate_lock(&lock->gate, &lock->spins, lock->kind, deadline);
	return look_behind_gate(lock, ret);
}

static inline int try_gate(struct rwlock *lock)
{
	int ret = look_behind_gate(lock, memwait_gate_try(&lock->gate, lock->kind));

	if (ret == EBUSY)
		rwlock_wake_owed(lock);
	return ret;
}

/* Adds a reader, unless the state is closed (EBUSY) or full (EAGAIN). */
static int add_reader(struct rwlock *lock)
{
	/* relaxed: only the compare-and-swap counts */
	uint32_t state = atomic_load_explicit(&lock->state, memory_order_relaxed);

	do {
		rwlock_check(lock, state);
		if (state & CLOSED)
			return EBUSY;
		if ((state & READERS) == READERS)
			return EAGAIN;
		/* acquire: pairs with the writer that opened it */
	} while (!atomic_compare_exchange_weak_explicit(&lock->state, &state,
							state + READER,
							memory_order_acquire,
							memory_order_relaxed));
	return 0;
}

/* The caller holds the gate, and no writer has died: the state is open. */
static int add_reader_and_go(struct rwlock *lock)
{
	int ret = add_reader(lock);

	release_gate(lock);
	return ret;
}

/*
 * Closes the state. The caller holds the gate. Returns 0; or, if there are readers, a state to
 * sleep on. @if_empty: if there are readers, the state is not closed, and returned as it is.
 */
static inline uint32_t close_state(struct rwlock *lock, bool if_empty)
{
	/* relaxed: only the compare-and-swap counts */
	uint32_t state = atomic_load_explicit(&lock->state, memory_order_relaxed), next;

	check_gate(lock);
	do {
		rwlock_check(lock, state);
		if (if_empty && state & READERS)
			return state;
		next = state | CLOSED;
		if (state & READERS)
			next |= WAITING;
		rwlock_check(lock, next);
		/* acquire: pairs with the release of readers, and of the previous writer */
	} while (!atomic_compare_exchange_weak_explicit(&lock->state, &state, next,
							memory_order_acquire,
							memory_order_relaxed));
	return next & READERS ? next : 0;
}

/*
 * Called by a writer that holds the gate of a lock that prefers readers. Closes the state and
 * returns 0; or, if there are readers, unlocks the gate and returns EBUSY, and the caller sleeps
 * while the flags are those of @seen.
 */
static int close_or_leave(struct rwlock *lock, uint32_t *seen)
{
	uint32_t state;

	do {
		state = close_state(lock, true);
		if (!state)
			return 0;
		*seen = state | WAITING;
		/* relaxed, both: only close_state() counts */
	} while (!(state & WAITING) &&
		 !atomic_compare_exchange_weak_explicit(&lock->state, &state, *seen,
							memory_order_relaxed,
							memory_order_relaxed));
	release_gate(lock);
	return EBUSY;
}

/* For the writer that holds the gate: whether it has yet to call memwait_rwlock_consistent(). */
static bool is_inconsistent(struct rwlock *lock)
{
	return gate_has(lock, 0, MEMWAIT_OWNER_INCONSISTENT);
}

/*
 * For a writer that has opened the state. Destroy waits for the gate, so OWED is set before the
 * gate is unlocked. Not inlined, so that the uncontended unlock needs no stack frame.
 */
__attribute__((__noinline__))
static int release_gate_at_last(struct rwlock *lock)
{
	if (!memwait_gate_release(&lock->gate, lock->kind | MEMWAIT_OR_KEEP))
		return 0;
	set_owed(lock);
	return memwait_gate_release(&lock->gate, lock->kind);
}

/* For a writer that unlocks, or gives up. */
static int open_state(struct rwlock *lock)
{
	uint32_t was;

	check_gate(lock);
	/* release: readers that enter see the writer's changes */
	was = atomic_fetch_and_explicit(&lock->state, ~CLOSED, memory_order_release);
	MEMWAIT_INVARIANT(was & CLOSED);
	if (!rwlock_is_robust(lock) && memwait_lock_release_uncontended(&lock->gate.word, &was))
		return 0;
	return release_gate_at_last(lock);
}

/* For a writer that stops waiting for readers. */
static void rwlock_give_up(struct rwlock *lock)
{
	if (is_inconsistent(lock))
		memwait_owner_abandon(&lock->gate.owned, lock->kind);
	else
		open_state(lock);
}

/* op->phase: what an operation waits for. */
enum { FOR_GATE, FOR_READERS, WITHOUT_GATE };

/* Like memwait_await(), while the flags are those of @state. */
static int await_change(struct rwlock *lock, struct memwait_op *op, uint32_t state,
			const struct memwait_deadline *deadline)
{
	return memwait_await(op, &lock->state, (uint8_t)(state >> FLAGS_PLACE),
			     MEMWAIT_SIZE_U8 | (lock->kind & MEMWAIT_PRIVATE), deadline);
}

/*
 * The caller holds the gate; @ret, 0 or EOWNERDEAD, is the result of locking it. Closes the state.
 * @outcome: MEMWAIT_OP_BEGIN, or the outcome of a wait for readers. @op: NULL for a thread. Returns
 * @ret when no reader is left, MEMWAIT_OP_WAITS, or an error.
 */
static int wait_for_readers(struct rwlock *lock, struct memwait_op *op,
			    const struct memwait_deadline *deadline, int ret, int outcome)
{
	uint32_t state;

	while ((state = close_state(lock, false)) != 0) {
		if (outcome == MEMWAIT_TIMED_OUT || memwait_has_failed(outcome)) {
			rwlock_give_up(lock);
			return outcome < 0 ? -outcome : ETIMEDOUT;
		}
		outcome = await_change(lock, op, state, deadline);
		if (outcome == MEMWAIT_PENDING) {
			op->phase = FOR_READERS;
			return MEMWAIT_OP_WAITS;
		}
	}
	return ret;
}

/*
 * Returns 0: the lock is free; EBUSY; EAGAIN: no thread holds the lock, but a writer has yet to
 * unlock the gate; or an error from the device.
 */
static int look_for_users(struct rwlock *lock)
{
	/* acquire: pairs with unlock; the caller may free the protected data */
	uint32_t state = atomic_load_explicit(&lock->state, memory_order_acquire);
	int ret;

	if (state & READERS || (state & CLOSED && !rwlock_is_robust(lock)))
		return EBUSY;
	ret = memwait_gate_look(&lock->gate, lock->kind);
	if (ret <= 0)
		return -ret;
	return state & CLOSED && ret == EBUSY ? EBUSY : EAGAIN;
}

/* Locks and unlocks the gate, or gives up after a while. Returns 0 or an error. */
static int await_gate(struct rwlock *lock, int *looks)
{
	int ret = memwait_gate_look_again(&lock->gate, &lock->spins, lock->kind, looks);

	if (ret == EOWNERDEAD)
		return memwait_owner_abandon(&lock->gate.owned, lock->kind);
	if (ret == ETIMEDOUT || ret == ENOTRECOVERABLE)
		return 0;
	return ret ? ret : release_gate(lock);
}

/* Waits for a writer that has yet to unlock the gate. EBUSY: that writer is presumed dead. */
int memwait_rwlock_destroy(memwait_rwlock_t *rwlock)
{
	struct rwlock *lock = to_rwlock(rwlock);
	int ret, looks = 0;

	if (!rwlock_is_valid(lock))
		return EINVAL;
	MEMWAIT_PROBE1(rwlock_destroy, rwlock);
	for (;;) {
		ret = rwlock_wake_owed(lock);
		if (ret)
			return ret < 0 ? -ret : EBUSY;
		ret = look_for_users(lock);
		if (ret != EAGAIN)
			return ret;
		ret = await_gate(lock, &looks);
		if (ret)
			return ret;
	}
}

/*
 * Called by a writer that holds the gate of a lock that prefers readers; no writer has died. Closes
 * the state and returns 0 if there is no reader. Otherwise unlocks the gate and waits for the last
 * reader.
 * @op: NULL for a thread. @outcome: in: of the last wait; out: of this one. Returns EAGAIN when the
 * writer must lock the gate again; MEMWAIT_OP_WAITS; ETIMEDOUT; or an error.
 */
static int close_or_sleep(struct rwlock *lock, struct memwait_op *op,
			  const struct memwait_deadline *deadline, int *outcome)
{
	uint32_t seen;

	if (!close_or_leave(lock, &seen))
		return 0;
	if (*outcome == MEMWAIT_TIMED_OUT)
		return ETIMEDOUT;
	*outcome = await_change(lock, op, seen, deadline);
	if (*outcome == MEMWAIT_PENDING) {
		op->phase = WITHOUT_GATE;
		return MEMWAIT_OP_WAITS;
	}
	return memwait_has_failed(*outcome) ? -*outcome : EAGAIN;
}

/*
 * Locks the gate: for a thread, until @deadline; or for @op, with the @outcome of its last wait.
 * Returns the result of look_behind_gate(), or MEMWAIT_OP_WAITS.
 */
static int gate_step(struct rwlock *lock, struct memwait_op *op,
		     const struct memwait_deadline *deadline, int outcome)
{
	int ret;

	if (!op)
		return lock_gate(lock, deadline);
	rwlock_wake_owed(lock);
	ret = memwait_gate_step(op, &lock->gate, lock->kind, outcome);
	if (rwlock_is_robust(lock) && memwait_has_locked(ret))
		(void)memwait_owner(&op->rwlock.owner);
	ret = look_behind_gate(lock, ret);
	op->rwlock.gate = ret;
	return ret;
}

/*
 * Locks for reading, or for @writing. The caller has locked the gate, or tried to, with the result
 * @ret; the other parameters are those of gate_step(). Returns the result, or MEMWAIT_OP_WAITS.
 */
static int rwlock_enter(struct rwlock *lock, struct memwait_op *op,
			const struct memwait_deadline *deadline, bool writing, int ret, int outcome)
{
	while (!ret && writing && prefers_readers(lock)) {
		/*
		 * Without a deadline, a timeout means that the operation has given way for a while,
		 * see lock.c.
		 */
		if (op && op->deadline.ns == MEMWAIT_FOREVER)
			outcome = MEMWAIT_OP_BEGIN;
		ret = close_or_sleep(lock, op, deadline, &outcome);
		if (ret != EAGAIN)
			return ret;
		/*
		 * Even after the deadline, the gate is tried once before the operation times out.
		 */
		if (outcome != MEMWAIT_TIMED_OUT)
			outcome = MEMWAIT_OP_BEGIN;
		ret = gate_step(lock, op, deadline, outcome);
	}
	if (ret == EOWNERDEAD || (!ret && writing))
		return wait_for_readers(lock, op, deadline, ret, MEMWAIT_OP_BEGIN);
	if (!ret)
		return add_reader_and_go(lock);
	/* The state may be open although the thread that was woken at the gate has not run yet. */
	return ret == ETIMEDOUT && !writing && !add_reader(lock) ? 0 : ret;
}

/* For ThreadSanitizer: the address that readers release and only writers acquire. */
static const void *of_readers(const struct rwlock *lock)
{
	return (const char *)lock + 1;
}

/* @ret: the result of locking. With EOWNERDEAD even a reader holds the write lock. */
static int rwlock_locked(struct rwlock *lock, bool writing, int ret)
{
	if (!memwait_has_locked(ret))
		return ret;
	memwait_tsan_acquire(lock);
	if (writing || ret)
		memwait_tsan_acquire(of_readers(lock));
	return ret;
}

/* Not inlined, so that a reader that need not wait needs no stack frame. */
__attribute__((__noinline__))
static int read_slowly(struct rwlock *lock, const struct memwait_deadline *deadline)
{
	int ret = memwait_need_device();

	if (!ret)
		ret = add_reader(lock);
	if (ret == EBUSY)
		ret = rwlock_enter(lock, NULL, deadline, false, lock_gate(lock, deadline),
				   MEMWAIT_OP_BEGIN);
	return rwlock_locked(lock, false, ret);
}

static inline int read_until(struct rwlock *lock, const struct memwait_deadline *deadline)
{
	if (!rwlock_is_valid(lock))
		return EINVAL;
	return memwait_has_device() && !add_reader(lock) ? 0 : read_slowly(lock, deadline);
}

/* The caller holds the gate; @ret is the result of locking it. Returns EBUSY instead of waiting. */
static int try_to_write(struct rwlock *lock, int ret)
{
	if (!close_state(lock, false))
		return ret;
	rwlock_give_up(lock);
	return EBUSY;
}

static inline int rwlock_rdlock_until(memwait_rwlock_t *rwlock,
				      const struct memwait_deadline *deadline)
{
	int err;

	MEMWAIT_PROBE1(rdlock_entry, rwlock);
	err = read_until(to_rwlock(rwlock), deadline);
	if (memwait_has_locked(err))
		MEMWAIT_PROBE1(rdlock_acquire_read, rwlock);
	return err;
}

static inline int tryread(struct rwlock *lock)
{
	int ret = add_reader(lock);

	if (ret != EBUSY)
		return ret;
	if (!rwlock_is_robust(lock)) {
		rwlock_wake_owed(lock);
		return EBUSY;
	}
	ret = try_gate(lock);
	if (ret == EOWNERDEAD)
		return try_to_write(lock, ret);
	return ret ? ret : add_reader_and_go(lock);
}

int memwait_rwlock_tryrdlock(memwait_rwlock_t *rwlock)
{
	struct rwlock *lock = to_rwlock(rwlock);
	int ret = rwlock_is_valid(lock) ? memwait_need_device() : EINVAL;

	return ret ? ret : rwlock_locked(lock, false, tryread(lock));
}

static inline int write_after(struct rwlock *lock, const struct memwait_deadline *deadline)
{
	int ret = lock_gate(lock, deadline);

	if (!ret && !close_state(lock, true))
		return 0;
	return rwlock_enter(lock, NULL, deadline, true, ret, MEMWAIT_OP_BEGIN);
}

/* Not inlined, so that write_until() saves no registers for it. */
__attribute__((__noinline__))
static int write_first(struct rwlock *lock, const struct memwait_deadline *deadline)
{
	int err = memwait_device_first();

	return err ? err : rwlock_locked(lock, true, write_after(lock, deadline));
}

static int write_until(struct rwlock *lock, const struct memwait_deadline *deadline)
{
	if (!rwlock_is_valid(lock))
		return EINVAL;
	return memwait_has_device() ? write_after(lock, deadline) : write_first(lock, deadline);
}

static inline int rwlock_wrlock_until(memwait_rwlock_t *rwlock,
				      const struct memwait_deadline *deadline)
{
	int err;

	MEMWAIT_PROBE1(wrlock_entry, rwlock);
	err = write_until(to_rwlock(rwlock), deadline);
	if (memwait_has_locked(err))
		MEMWAIT_PROBE1(wrlock_acquire_write, rwlock);
	return err;
}

static inline int trywrite(struct rwlock *lock)
{
	int ret = try_gate(lock);

	if (ret == EOWNERDEAD)
		return try_to_write(lock, ret);
	if (ret || !close_state(lock, true))
		return ret;
	release_gate(lock);
	return EBUSY;
}

int memwait_rwlock_trywrlock(memwait_rwlock_t *rwlock)
{
	struct rwlock *lock = to_rwlock(rwlock);
	int ret = rwlock_is_valid(lock) ? memwait_need_device() : EINVAL;

	return ret ? ret : rwlock_locked(lock, true, trywrite(lock));
}

/* Whether the calling thread holds the gate of a robust lock. */
static bool gate_is_own(struct rwlock *lock)
{
	uint64_t id;

	/* relaxed: if it is the caller's id, the caller has written it */
	return memwait_owner(&id) >= 0 &&
	       (atomic_load_explicit(&lock->gate.owned, memory_order_relaxed) &
		MEMWAIT_OWNER_MASK) == id;
}

static int unlock_writer(struct rwlock *lock, uint32_t state)
{
	if (rwlock_is_robust(lock) && !gate_is_own(lock))
		return EPERM;
	if (state & OWED)
		clear_owed(lock);
	/* A lock that is not recoverable stays closed. */
	return is_inconsistent(lock) ? memwait_gate_release(&lock->gate, lock->kind) :
				       open_state(lock);
}

/* Not inlined, so that a reader that is not the last reader needs no stack frame. */
__attribute__((__noinline__))
static int rwlock_unlock_slowly(struct rwlock *lock)
{
	uint32_t state, next, kind;
	int ret;

	kind = lock->kind;	/* the next owner may free the lock */
	/* relaxed: if the caller is a reader, the count stays above 0 */
	state = atomic_load_explicit(&lock->state, memory_order_relaxed);
	if ((state & (CLOSED | READERS)) == CLOSED)
		return unlock_writer(lock, state);
	do {
		/*
		 * OWED may stay set: a writer that holds the gate may be waiting for this reader.
		 */
		if (state & OWED) {
			rwlock_wake_owed(lock);
			state = atomic_load_explicit(&lock->state, memory_order_relaxed);
		}
		rwlock_check(lock, state);
		if (!(state & READERS))
			return EPERM;
		next = state - READER;
		ret = 0;
		/* Readers may come in between, but none of them clears WAITING. */
		if (!(next & READERS) && state & WAITING) {
			ret = memwait_change(&lock->state, MEMWAIT_CHANGE_ADD, -(READER + WAITING),
					     MEMWAIT_ALL, kind, NULL);
			if (ret >= 0)
				return 0;
			next = (next & ~WAITING) | OWED;
		}
		/* release: the next writer comes after the reads of this reader */
	} while (!atomic_compare_exchange_weak_explicit(&lock->state, &state, next,
							memory_order_release,
							memory_order_relaxed));
	return -ret;
}

__attribute__((__noinline__))
static int unlock_under_tsan(struct rwlock *lock)
{
	/* relaxed: while the caller is a reader, the count stays above 0 */
	uint32_t state = atomic_load_explicit(&lock->state, memory_order_relaxed);

	memwait_tsan_release(state & READERS ? of_readers(lock) : lock);
	return rwlock_unlock_slowly(lock);
}

int memwait_rwlock_unlock(memwait_rwlock_t *rwlock)
{
	struct rwlock *lock = to_rwlock(rwlock);
	uint32_t state;

	if (!rwlock_is_valid(lock))
		return EINVAL;
	MEMWAIT_PROBE1(rwlock_unlock, rwlock);
	if (memwait_tsan_runs())
		return unlock_under_tsan(lock);
	/* relaxed: only the compare-and-swap counts */
	state = atomic_load_explicit(&lock->state, memory_order_relaxed);
	/* release: the next writer comes after the reads of this reader */
	if ((state == READER || ((state & READERS) > READER && !(state & OWED))) &&
	    atomic_compare_exchange_strong_explicit(&lock->state, &state, state - READER,
						    memory_order_release, memory_order_relaxed))
		return 0;
	return rwlock_unlock_slowly(lock);
}

int memwait_rwlock_consistent(memwait_rwlock_t *rwlock)
{
	struct rwlock *lock = to_rwlock(rwlock);

	if (!rwlock_is_valid(lock) || !rwlock_is_robust(lock))
		return EINVAL;
	return memwait_owner_consistent(&lock->gate.owned);
}

/*
 * The thread that continues after the wait for readers may not be the thread that locked the robust
 * gate. Makes the calling thread the owner. Returns false if the first owner has ended, and the
 * gate is lost.
 */
static bool take_over_gate(struct rwlock *lock, struct memwait_op *op)
{
	uint64_t id, now;

	if (!rwlock_is_robust(lock))
		return true;
	/* relaxed, both: the loop's lock orders this after the work of the first thread */
	now = atomic_load_explicit(&lock->gate.owned, memory_order_relaxed);
	if (memwait_owner(&id) < 0) {
		/* This thread has no id, and cannot own the gate. */
		if ((now & MEMWAIT_OWNER_MASK) == op->rwlock.owner)
			memwait_owner_abandon(&lock->gate.owned, lock->kind);
		return false;
	}
	do {
		if ((now & MEMWAIT_OWNER_MASK) != op->rwlock.owner)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&lock->gate.owned, &now,
							(now & ~MEMWAIT_OWNER_MASK) | id,
							memory_order_relaxed,
							memory_order_relaxed));
	/*
	 * A thread that sleeps at the gate has named the first owner: wake it, so that it names
	 * this thread.
	 */
	if (op->rwlock.owner != id && now & MEMWAIT_OWNER_CONTENDED)
		memwait_wake(&lock->gate.owned, 1, lock->kind);
	op->rwlock.owner = id;
	return true;
}

static int step(struct memwait_op *op, bool writing, int outcome)
{
	struct rwlock *lock = op->object;
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN && !rwlock_is_valid(lock))
		return EINVAL;
	if (op->phase == FOR_READERS && take_over_gate(lock, op))
		return wait_for_readers(lock, op, NULL, op->rwlock.gate, outcome);
	if (op->phase != FOR_GATE && outcome != MEMWAIT_TIMED_OUT)
		outcome = MEMWAIT_OP_BEGIN;
	op->phase = FOR_GATE;
	if (outcome == MEMWAIT_OP_BEGIN && !writing) {
		ret = add_reader(lock);
		if (ret != EBUSY)
			return ret;
	}
	ret = gate_step(lock, op, NULL, outcome);
	return rwlock_enter(lock, op, NULL, writing, ret, outcome);
}

static int read_step(struct memwait_op *op, int outcome)
{
	return rwlock_locked(op->object, false, step(op, false, outcome));
}

static int write_step(struct memwait_op *op, int outcome)
{
	return rwlock_locked(op->object, true, step(op, true, outcome));
}

static void undo(struct memwait_op *op, int outcome)
{
	struct rwlock *lock = op->object;

	/*
	 * The last reader wakes all waiters that sleep on the flags: there is nothing to pass on.
	 */
	if (op->phase == WITHOUT_GATE)
		return;
	if (op->phase == FOR_READERS) {
		if (take_over_gate(lock, op))
			rwlock_give_up(lock);
	} else {
		memwait_gate_undo(&op->turn, &lock->gate, lock->kind, outcome);
	}
}

/*
 * After EOWNERDEAD the lock is held for writing. The state stays closed, so the next owner also
 * gets EOWNERDEAD.
 */
static int give_back(struct memwait_op *op)
{
	struct rwlock *lock = op->object;
	int ret = EINVAL;

	if (!memwait_has_locked(op->outcome))
		return 0;
	if (op->outcome == EOWNERDEAD) {
		memwait_tsan_release(lock);
		ret = memwait_owner_return_death(&lock->gate.owned, lock->kind);
	}
	return ret == EINVAL ? memwait_rwlock_unlock(op->object) : ret;
}

static const struct memwait_op_kind rwlock_rdlock_kind = {
	.step = read_step,
	.undo = undo,
	.give_back = give_back,
};
static const struct memwait_op_kind rwlock_wrlock_kind = {
	.step = write_step,
	.undo = undo,
	.give_back = give_back,
};

MEMWAIT_DEFINE_OBJECT_WAITS(rwlock, rdlock, memwait_rwlock_t)
MEMWAIT_DEFINE_OBJECT_WAITS(rwlock, wrlock, memwait_rwlock_t)
