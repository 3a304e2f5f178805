// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Mutexes. A mutex is a lock word (lock.c) and, for some kinds, an owner. A robust mutex is an
 * owner word (owner.c). The gate is this word, of either kind (gate.h).
 *
 * Invariants for kinds whose owners matter: Only the thread that holds the lock writes the owner
 *	and the count. While locked, the count is at least 1, except just after lock and just before
 *	unlock.
 *
 * Other threads read the owner only to compare it with their own id, which they can find in this
 * field only if they stored it. A shared mutex uses the kernel's id: threads in different PID
 * namespaces may have the same thread id.
 */
#include <string.h>

#include "gate.h"
#include "mutex.h"
#include "object.h"
#include "probes.h"

struct mutex {
	union memwait_gate gate;
	uint32_t kind;
	uint32_t spare;			/* 0 */
	_Atomic uint64_t owner;		/* a thread, or 0; if owners matter, and not robust */
	uint32_t count;			/* lock depth; if owners matter */
	_Atomic uint32_t spins;		/* for memwait_lock() */
};

_Static_assert(sizeof(struct mutex) <= sizeof(memwait_mutex_t), "the mutex fits");

#define OWNERS_MATTER	(MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_MUTEX_RECURSIVE | MEMWAIT_MUTEX_ROBUST)
#define NO_OWNERS	(MEMWAIT_MUTEX_FAIR | MEMWAIT_PRIVATE)
#define KNOWN		(OWNERS_MATTER | NO_OWNERS)

static struct mutex *to_mutex(memwait_mutex_t *mutex)
{
	return (struct mutex *)mutex;
}

static bool mutex_is_robust(const struct mutex *mutex)
{
	return mutex->kind & MEMWAIT_MUTEX_ROBUST;
}

/* Returns true even for an unknown kind, which the code that handles owners then refuses. */
static bool owners_matter(const struct mutex *mutex)
{
	return memwait_is_unknown(mutex->kind, mutex->spare, NO_OWNERS);
}

static bool is_unknown(const struct mutex *mutex)
{
	return memwait_is_unknown(mutex->kind, mutex->spare, KNOWN);
}

/* Sets *@id to the id by which the caller owns the mutex. Returns 0 or an error. */
static int identify(const struct mutex *mutex, uint64_t *id)
{
	if (mutex->kind & MEMWAIT_PRIVATE && !mutex_is_robust(mutex)) {
		*id = memwait_thread_id();
		return 0;
	}
	return -memwait_owner(id);
}

static uint64_t owner_of(struct mutex *mutex)
{
	/* relaxed, both: see the top of this file */
	if (mutex_is_robust(mutex))
		return atomic_load_explicit(&mutex->gate.owned, memory_order_relaxed) &
		       MEMWAIT_OWNER_MASK;
	return atomic_load_explicit(&mutex->owner, memory_order_relaxed);
}

/* Whether the caller holds the mutex; only if owners matter. */
static bool is_own(struct mutex *mutex)
{
	uint64_t id;

	return !identify(mutex, &id) && owner_of(mutex) == id;
}

static void set_owner(struct mutex *mutex, uint64_t owner, uint32_t count)
{
	/* relaxed: ordered by the lock, except for is_own() */
	if (!mutex_is_robust(mutex))
		atomic_store_explicit(&mutex->owner, owner, memory_order_relaxed);
	mutex->count = count;
}

/*
 * @ret: the result of locking; if 0 or EOWNERDEAD, the mutex is locked @count times. A dead owner
 * may have left any count.
 */
static int mutex_locked(struct mutex *mutex, uint32_t count, int ret)
{
	uint64_t id = 0;

	if (!memwait_has_locked(ret))
		return ret;
	memwait_tsan_acquire(mutex);
	if (!owners_matter(mutex))
		return ret;
	/* This cannot fail, because the caller already has an id. */
	identify(mutex, &id);
	set_owner(mutex, id, count);
	return ret;
}

/*
 * Called before locking, if owners matter. If the caller already holds the mutex: 0, locked once
 * more; or EDEADLK, EAGAIN. EBUSY: continue to lock. EINVAL: the kind is unknown. Other errors: the
 * caller has no id; see memwait_device_error().
 */
static int lock_own_again(struct mutex *mutex)
{
	uint64_t id;
	int ret;

	if (is_unknown(mutex))
		return EINVAL;
	ret = identify(mutex, &id);
	if (ret)
		return ret;
	if (owner_of(mutex) != id)
		return EBUSY;
	if (mutex->kind & MEMWAIT_MUTEX_ERRORCHECK)
		return EDEADLK;
	if (!(mutex->kind & MEMWAIT_MUTEX_RECURSIVE))
		return EBUSY;
	if (mutex->count == UINT32_MAX)
		return EAGAIN;
	mutex->count++;
	return 0;
}

static inline int lock_again(struct mutex *mutex)
{
	return owners_matter(mutex) ? lock_own_again(mutex) : EBUSY;
}

int memwait_mutex_init(memwait_mutex_t *mutex, unsigned int kind)
{
	const unsigned int one_of = MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_MUTEX_RECURSIVE;
	const unsigned int other = MEMWAIT_MUTEX_FAIR | MEMWAIT_MUTEX_ROBUST;

	if (!mutex || (kind & ~KNOWN) ||
	    (kind & one_of) == one_of || (kind & other) == other)
		return EINVAL;
	memset(mutex, 0, sizeof(*mutex));
	to_mutex(mutex)->kind = kind;
	MEMWAIT_PROBE1(mutex_init, mutex);
	return memwait_need_device();
}

int memwait_mutex_destroy(memwait_mutex_t *public_mutex)
{
	struct mutex *mutex = to_mutex(public_mutex);
	int ret;

	if (!mutex || is_unknown(mutex))
		return EINVAL;
	MEMWAIT_PROBE1(mutex_destroy, public_mutex);
	ret = memwait_gate_look(&mutex->gate, mutex->kind);
	return ret < 0 ? -ret : ret ? EBUSY : 0;
}

/* Not inlined, so that the common path saves no registers for it. */
__attribute__((__noinline__))
static int lock_until(struct mutex *mutex, const struct memwait_deadline *deadline)
{
	int ret = memwait_need_device();

	if (!ret)
		ret = lock_again(mutex);
	if (ret != EBUSY)
		return ret;
	ret = memwait_gate_lock(&mutex->gate, &mutex->spins, mutex->kind, deadline);
	return mutex_locked(mutex, 1, ret);
}

int memwait_mutex_lock(memwait_mutex_t *mutex)
{
	uint64_t id, kind;
	int err;

	if (!mutex)
		return EINVAL;
	MEMWAIT_PROBE1(mutex_entry, mutex);
	kind = memwait_whole_kind(to_mutex(mutex)->kind, to_mutex(mutex)->spare);
	/* The common cases, without a function call. */
	if (!(kind & ~(uint64_t)NO_OWNERS)) {
		if (memwait_has_device() && memwait_lock_try(&to_mutex(mutex)->gate.word)) {
			MEMWAIT_PROBE1(mutex_acquired, mutex);
			return 0;
		}
	} else if (kind & MEMWAIT_MUTEX_ROBUST && !(kind & ~(uint64_t)KNOWN) &&
		   memwait_has_device()) {
		id = memwait_known_id();
		if (id && memwait_owner_try(&to_mutex(mutex)->gate.owned, id)) {
			to_mutex(mutex)->count = 1;
			MEMWAIT_PROBE1(mutex_acquired, mutex);
			return 0;
		}
	}
	err = lock_until(to_mutex(mutex), &memwait_never);
	if (memwait_has_locked(err))
		MEMWAIT_PROBE1(mutex_acquired, mutex);
	return err;
}

int memwait_mutex_trylock(memwait_mutex_t *public_mutex)
{
	struct mutex *mutex = to_mutex(public_mutex);
	int ret;

	if (!mutex)
		return EINVAL;
	ret = memwait_need_device();
	if (!ret)
		ret = lock_again(mutex);
	if (ret != EBUSY)
		return ret == EDEADLK ? EBUSY : ret;
	return mutex_locked(mutex, 1, memwait_gate_try(&mutex->gate, mutex->kind));
}

static int clocklock(memwait_mutex_t *mutex, clockid_t clock, const struct timespec *time)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, time);

	if (!err)
		err = lock_until(to_mutex(mutex), &deadline);
	if (memwait_has_locked(err))
		MEMWAIT_PROBE1(mutex_timedlock_acquired, mutex);
	return err;
}

int memwait_mutex_clocklock(memwait_mutex_t *mutex, clockid_t clock,
			    const struct timespec *time)
{
	if (!mutex)
		return EINVAL;
	MEMWAIT_PROBE3(mutex_clocklock_entry, mutex, clock, time);
	return clocklock(mutex, clock, time);
}

int memwait_mutex_timedlock(memwait_mutex_t *mutex, const struct timespec *abstime)
{
	if (!mutex)
		return EINVAL;
	MEMWAIT_PROBE2(mutex_timedlock_entry, mutex, abstime);
	return clocklock(mutex, CLOCK_REALTIME, abstime);
}

static int mutex_unlock_slowly(struct mutex *mutex)
{
	if (is_unknown(mutex))
		return EINVAL;
	memwait_tsan_release(mutex);
	if (!owners_matter(mutex))
		return memwait_lock_release(&mutex->gate.word, mutex->kind);
	if (!is_own(mutex))
		return EPERM;
	MEMWAIT_INVARIANT(mutex->count);
	if (mutex->kind & MEMWAIT_MUTEX_RECURSIVE && --mutex->count)
		return 0;
	if (mutex_is_robust(mutex))
		return memwait_owner_release(&mutex->gate.owned, mutex->kind);
	set_owner(mutex, 0, 0);
	return memwait_lock_release(&mutex->gate.word, mutex->kind);
}

/* Succeeds only if the mutex is not recursive and has no waiter. */
static inline bool unlock_robust(struct mutex *mutex)
{
	uint64_t id = memwait_known_id();

	return id && !memwait_tsan_runs() &&
	       !memwait_is_unknown(mutex->kind, mutex->spare, KNOWN & ~MEMWAIT_MUTEX_RECURSIVE) &&
	       memwait_owner_release_uncontended(&mutex->gate.owned, id);
}

/* Not inlined, so that the common mutex is unlocked without a stack frame. */
__attribute__((__noinline__))
static int unlock_other(struct mutex *mutex)
{
	return mutex_is_robust(mutex) && unlock_robust(mutex) ? 0 : mutex_unlock_slowly(mutex);
}

int memwait_mutex_unlock(memwait_mutex_t *public_mutex)
{
	struct mutex *mutex = to_mutex(public_mutex);
	uint32_t was;

	if (!mutex)
		return EINVAL;
	/* This must come before another thread can lock the mutex. */
	MEMWAIT_PROBE1(mutex_release, public_mutex);
	if (memwait_is_unknown(mutex->kind, mutex->spare, MEMWAIT_PRIVATE) || memwait_tsan_runs())
		return unlock_other(mutex);
	if (memwait_lock_release_uncontended(&mutex->gate.word, &was))
		return 0;
	return memwait_lock_release_contended(&mutex->gate.word, mutex->kind, was);
}

int memwait_mutex_consistent(memwait_mutex_t *public_mutex)
{
	struct mutex *mutex = to_mutex(public_mutex);

	if (!mutex || !mutex_is_robust(mutex) || is_unknown(mutex))
		return EINVAL;
	return memwait_owner_consistent(&mutex->gate.owned);
}

int memwait_mutex_step_again(memwait_mutex_t *public_mutex, uint32_t count, struct memwait_op *op,
			     int outcome)
{
	struct mutex *mutex = to_mutex(public_mutex);
	uint64_t id;
	int ret;

	/* Use the id of the thread that continues, which may not be the thread that began. */
	ret = owners_matter(mutex) ? identify(mutex, &id) : 0;
	if (ret) {
		memwait_gate_undo(&op->turn, &mutex->gate, mutex->kind, outcome);
		return outcome == MEMWAIT_TIMED_OUT && !op->turn.gives_way ? ETIMEDOUT : ret;
	}
	ret = memwait_gate_step(op, &mutex->gate, mutex->kind, outcome);
	return mutex_locked(mutex, count, ret);
}

static int mutex_lock_step(struct memwait_op *op, int outcome)
{
	int ret = outcome == MEMWAIT_OP_BEGIN ? lock_again(op->object) : EBUSY;

	return ret == EBUSY ? memwait_mutex_step_again(op->object, 1, op, outcome) : ret;
}

static void mutex_lock_undo(struct memwait_op *op, int outcome)
{
	memwait_mutex_undo_again(op->object, &op->turn, outcome);
}

/* Undoes a lock that returned @result, for an operation that held nothing before. */
int memwait_mutex_give_back(memwait_mutex_t *public_mutex, int result)
{
	struct mutex *mutex = to_mutex(public_mutex);
	int ret = EINVAL;

	if (result == EOWNERDEAD) {
		memwait_tsan_release(mutex);
		ret = memwait_owner_return_death(&mutex->gate.owned, mutex->kind);
	}
	return ret == EINVAL ? memwait_mutex_unlock(public_mutex) : ret;
}

static int mutex_lock_give_back(struct memwait_op *op)
{
	return memwait_has_locked(op->outcome) ? memwait_mutex_give_back(op->object, op->outcome) :
						 0;
}

static const struct memwait_op_kind mutex_lock_kind = {
	.step = mutex_lock_step,
	.undo = mutex_lock_undo,
	.give_back = mutex_lock_give_back,
};

MEMWAIT_DEFINE_ASYNC(mutex, lock, (memwait_mutex_t *object), NULL, 0)

/*
 * If the callback forked, the lock belongs to the parent. If the unlock fails to wake a waiter, the
 * error is not reported, because the callback has run. The next unlock wakes the waiter.
 */
static void execute(const struct memwait_call *call)
{
	uint32_t process = memwait_process_number();

	memwait_call_back(call);
	if (memwait_has_locked(call->result) && memwait_process_number() == process)
		memwait_mutex_unlock(call->object);
}

static const struct memwait_op_kind mutex_execute_kind = {
	.step = mutex_lock_step,
	.undo = mutex_lock_undo,
	.end = execute,
};

int memwait_mutex_execute_locked(memwait_mutex_t *mutex, memwait_op_t *op)
{
	int ret = memwait_op_begin(op, &mutex_execute_kind, mutex, NULL, &memwait_never);

	return memwait_has_locked(ret) ? 0 : ret;
}

int memwait_mutex_is_held(memwait_mutex_t *public_mutex)
{
	struct mutex *mutex = to_mutex(public_mutex);

	if (!mutex || is_unknown(mutex))
		return -EINVAL;
	if (owners_matter(mutex))
		return is_own(mutex);
	/* relaxed: it matters only whether the caller has locked it */
	return !!(atomic_load_explicit(&mutex->gate.word, memory_order_relaxed) & MEMWAIT_LOCKED);
}

/*
 * Unlocks a held mutex completely, for a condition variable with @flags. If both are private, and
 * the mutex is neither fair nor robust, the notify may be left to the system call in which the
 * caller sleeps: *@wake (if @wake is not NULL) is then set to the mutex's word. The notify of a
 * shared mutex is done here, because the caller may die in between. If the notify fails, the mutex
 * is unlocked, and the wait gets the same error.
 */
void memwait_mutex_release_all(memwait_mutex_t *public_mutex, uint32_t flags, uint32_t *count,
			       const volatile void **wake)
{
	struct mutex *mutex = to_mutex(public_mutex);

	memwait_tsan_release(mutex);
	*count = 0;
	if (owners_matter(mutex)) {
		*count = mutex->count;
		set_owner(mutex, 0, 0);
	}
	if (!wake || !(flags & mutex->kind & MEMWAIT_PRIVATE) ||
	    mutex->kind & (MEMWAIT_MUTEX_FAIR | MEMWAIT_MUTEX_ROBUST))
		memwait_gate_release(&mutex->gate, mutex->kind);
	else if (memwait_lock_release_silently(&mutex->gate.word))
		*wake = &mutex->gate.word;
}

/* Not a cancellation point. */
static void nap(void)
{
	const struct timespec time = { .tv_nsec = 1000000 };
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
	pthread_setcancelstate(state, NULL);
}

/*
 * Returns 0; if the mutex is robust, also EOWNERDEAD, or ENOTRECOVERABLE: not locked. A waiter of a
 * condition variable must lock the mutex again: if it cannot sleep, because there is no memory or
 * no descriptor, it polls.
 */
int memwait_mutex_take_again(memwait_mutex_t *public_mutex, uint32_t count)
{
	struct mutex *mutex = to_mutex(public_mutex);
	int ret = EBUSY;

	for (;;) {
		if (ret == EBUSY)
			ret = memwait_gate_lock(&mutex->gate, &mutex->spins, mutex->kind,
						&memwait_never);
		if (memwait_has_locked(ret) || ret == ENOTRECOVERABLE)
			break;
		nap();
		ret = memwait_gate_try(&mutex->gate, mutex->kind);
	}
	return mutex_locked(mutex, count, ret);
}

void memwait_mutex_undo_again(memwait_mutex_t *public_mutex, const struct memwait_turn *turn,
			      int outcome)
{
	struct mutex *mutex = to_mutex(public_mutex);

	memwait_gate_undo(turn, &mutex->gate, mutex->kind, outcome);
}
