// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Mutexes: a lock word (lock.c), and for some kinds its owner.
 *
 * Owner and count are written by who has the lock. Others read the owner as well, to see whether it
 * is they themselves: a thread finds its own number there only if it has written it.
 */
#include <string.h>

#include "internal.h"

struct mutex {
	_Atomic uint32_t word;
	uint32_t kind;
	_Atomic uint32_t owner;		/* a thread, or 0; if owners matter */
	uint32_t count;			/* how often it has locked it */
	_Atomic uint32_t spins;		/* of memwait_lock() */
};

_Static_assert(sizeof(struct mutex) <= sizeof(memwait_mutex_t), "the mutex fits");

#define OWNERS_MATTER	(MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_MUTEX_RECURSIVE)

static struct mutex *to_mutex(memwait_mutex_t *mutex)
{
	return (struct mutex *)mutex;
}

static bool is_fair(const struct mutex *mutex)
{
	return mutex->kind & MEMWAIT_MUTEX_FAIR;
}

static bool owners_matter(const struct mutex *mutex)
{
	return mutex->kind & OWNERS_MATTER;
}

static bool is_own(struct mutex *mutex)
{
	/* relaxed: see above */
	return atomic_load_explicit(&mutex->owner, memory_order_relaxed) == memwait_thread_id();
}

static void set_owner(struct mutex *mutex, uint32_t owner, uint32_t count)
{
	/* relaxed: ordered by the lock, but for is_own() */
	atomic_store_explicit(&mutex->owner, owner, memory_order_relaxed);
	mutex->count = count;
}

/* The lock word has just been locked. Returns 0. */
static int locked(struct mutex *mutex)
{
	if (owners_matter(mutex))
		set_owner(mutex, memwait_thread_id(), 1);
	return 0;
}

/* If it is the caller's own: 0, it is locked once more, or EDEADLK, EAGAIN. Otherwise EBUSY. */
static int lock_again(struct mutex *mutex)
{
	if (!owners_matter(mutex) || !is_own(mutex))
		return EBUSY;
	if (!(mutex->kind & MEMWAIT_MUTEX_RECURSIVE))
		return EDEADLK;
	if (mutex->count == UINT32_MAX)
		return EAGAIN;
	mutex->count++;
	return 0;
}

int memwait_mutex_init(memwait_mutex_t *mutex, unsigned int kind)
{
	if (!mutex || (kind & ~(OWNERS_MATTER | MEMWAIT_MUTEX_FAIR | MEMWAIT_PRIVATE)) ||
	    (kind & OWNERS_MATTER) == OWNERS_MATTER)
		return EINVAL;
	memset(mutex, 0, sizeof(*mutex));
	to_mutex(mutex)->kind = kind;
	return 0;
}

int memwait_mutex_destroy(memwait_mutex_t *mutex)
{
	if (!mutex)
		return EINVAL;
	/* acquire: who destroys it may free what it guarded */
	if (atomic_load_explicit(&to_mutex(mutex)->word, memory_order_acquire))
		return EBUSY;
	return 0;
}

static int lock_until(struct mutex *mutex, const struct memwait_deadline *deadline)
{
	int ret = lock_again(mutex);

	if (ret != EBUSY)
		return ret;
	ret = memwait_lock(&mutex->word, &mutex->spins, mutex->kind, deadline);
	return ret ? ret : locked(mutex);
}

int memwait_mutex_lock(memwait_mutex_t *mutex)
{
	if (!mutex)
		return EINVAL;
	if (!owners_matter(to_mutex(mutex)) && memwait_lock_try(&to_mutex(mutex)->word))
		return 0;
	return lock_until(to_mutex(mutex), &memwait_never);
}

int memwait_mutex_trylock(memwait_mutex_t *public_mutex)
{
	struct mutex *mutex = to_mutex(public_mutex);
	int ret;

	if (!mutex)
		return EINVAL;
	ret = lock_again(mutex);
	if (ret == EDEADLK)
		return EBUSY;
	if (ret != EBUSY)
		return ret;
	return memwait_lock_try(&mutex->word) ? locked(mutex) : EBUSY;
}

int memwait_mutex_clocklock(memwait_mutex_t *mutex, clockid_t clock,
			    const struct timespec *abstime)
{
	struct memwait_deadline deadline;
	int err;

	if (!mutex)
		return EINVAL;
	err = memwait_deadline_set(&deadline, clock, abstime);
	return err ? err : lock_until(to_mutex(mutex), &deadline);
}

int memwait_mutex_timedlock(memwait_mutex_t *mutex, const struct timespec *abstime)
{
	return memwait_mutex_clocklock(mutex, CLOCK_REALTIME, abstime);
}

/* Not inlined: so the usual mutex is unlocked without a stack frame. */
__attribute__((__noinline__))
static int unlock_own(struct mutex *mutex)
{
	if (!is_own(mutex))
		return EPERM;
	if (--mutex->count)
		return 0;
	set_owner(mutex, 0, 0);
	return memwait_lock_release(&mutex->word, mutex->kind);
}

int memwait_mutex_unlock(memwait_mutex_t *public_mutex)
{
	struct mutex *mutex = to_mutex(public_mutex);

	if (!mutex)
		return EINVAL;
	if (owners_matter(mutex))
		return unlock_own(mutex);
	return memwait_lock_release(&mutex->word, mutex->kind);
}

static int lock_step(struct memwait_op *op, int outcome)
{
	struct mutex *mutex = op->object;
	int ret = EBUSY;

	if (outcome == MEMWAIT_OP_BEGIN)
		ret = lock_again(mutex);
	if (ret != EBUSY)
		return ret;
	ret = memwait_lock_step(op, &mutex->word, mutex->kind, outcome);
	return ret ? ret : locked(mutex);
}

static void lock_undo(struct memwait_op *op, int outcome)
{
	struct mutex *mutex = op->object;

	memwait_lock_undo(&mutex->word, mutex->kind, outcome);
}

static const struct memwait_op_kind lock_kind = { lock_step, lock_undo };

int memwait_mutex_lock_async(memwait_mutex_t *mutex, memwait_op_t *op)
{
	if (!mutex)
		return EINVAL;
	return memwait_op_begin(op, &lock_kind, mutex, NULL, &memwait_never);
}

int memwait_mutex_clocklock_async(memwait_mutex_t *mutex, clockid_t clock,
				  const struct timespec *abstime, memwait_op_t *op)
{
	struct memwait_deadline deadline;
	int err;

	if (!mutex)
		return EINVAL;
	err = memwait_deadline_set(&deadline, clock, abstime);
	return err ? err : memwait_op_begin(op, &lock_kind, mutex, NULL, &deadline);
}

int memwait_mutex_execute_locked(memwait_mutex_t *mutex, memwait_op_t *public_op)
{
	struct memwait_op *op;
	int ret;

	if (!mutex)
		return EINVAL;
	ret = memwait_op_take(public_op, &op);
	if (ret)
		return ret;
	op->kind = &lock_kind;
	op->object = mutex;
	op->deadline = memwait_never;
	op->execute = true;
	ret = memwait_op_start(op);
	if (ret)
		return ret;
	return memwait_op_call_back(op, 0);
}

/*
 * The word to which a condition variable with @flags can move its sleepers, and which it can wake
 * in one call with its own sleep; NULL if it must not.
 */
_Atomic uint32_t *memwait_mutex_word(memwait_mutex_t *public_mutex, uint32_t flags)
{
	struct mutex *mutex = to_mutex(public_mutex);

	/* Who is counted on a fair word has the lock, and who was moved cannot tell. */
	if (is_fair(mutex) || (mutex->kind & MEMWAIT_PRIVATE) != flags)
		return NULL;
	return &mutex->word;
}

/* Whether it is locked, by the caller if owners matter: for a condition variable. */
bool memwait_mutex_is_held(memwait_mutex_t *public_mutex)
{
	struct mutex *mutex = to_mutex(public_mutex);

	if (owners_matter(mutex))
		return is_own(mutex);
	/* relaxed: the caller has locked it itself */
	return atomic_load_explicit(&mutex->word, memory_order_relaxed);
}

/*
 * Unlocks a mutex that is held, however often, for a condition variable with @flags. The caller is
 * to wake one who sleeps on *@wake, together with its own sleep, unless that is NULL; without @wake
 * it is done here. If that fails the mutex is unlocked, and the wait will meet the error.
 */
void memwait_mutex_release_all(memwait_mutex_t *public_mutex, uint32_t flags, uint32_t *count,
			       const volatile void **wake)
{
	struct mutex *mutex = to_mutex(public_mutex);
	uint32_t was;

	*count = 0;
	if (owners_matter(mutex)) {
		*count = mutex->count;
		set_owner(mutex, 0, 0);
	}
	if (!wake || !memwait_mutex_word(public_mutex, flags)) {
		memwait_lock_release(&mutex->word, mutex->kind);
		return;
	}
	/* release: as memwait_lock_release() */
	was = atomic_exchange_explicit(&mutex->word, 0, memory_order_release);
	if (was & MEMWAIT_CONTENDED)
		*wake = &mutex->word;
}

static void locked_again(struct mutex *mutex, uint32_t count)
{
	if (owners_matter(mutex))
		set_owner(mutex, memwait_thread_id(), count);
}

/* No cancellation point. */
static void nap(void)
{
	const struct timespec time = { .tv_nsec = 1000000 };
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
	pthread_setcancelstate(state, NULL);
}

/*
 * @contended: others may sleep on it that have not set CONTENDED. Whoever waits for a condition has
 * been promised the mutex, and cannot do without: where it cannot sleep, for want of memory or of a
 * descriptor for the device that the program has closed, it looks now and then.
 */
void memwait_mutex_take_again(memwait_mutex_t *public_mutex, uint32_t count, bool contended)
{
	struct mutex *mutex = to_mutex(public_mutex);

	if (contended || memwait_lock(&mutex->word, &mutex->spins, mutex->kind, &memwait_never)) {
		while (memwait_lock_contended(&mutex->word, mutex->kind, &memwait_never))
			nap();
	}
	locked_again(mutex, count);
}

int memwait_mutex_step_again(memwait_mutex_t *public_mutex, uint32_t count, struct memwait_op *op,
			     int outcome)
{
	struct mutex *mutex = to_mutex(public_mutex);
	int ret = memwait_lock_step(op, &mutex->word, mutex->kind, outcome);

	if (!ret)
		locked_again(mutex, count);
	return ret;
}

void memwait_mutex_undo_again(memwait_mutex_t *public_mutex, int outcome)
{
	struct mutex *mutex = to_mutex(public_mutex);

	memwait_lock_undo(&mutex->word, mutex->kind, outcome);
}
