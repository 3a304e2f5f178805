// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Semaphores: a value, and how many are within a wait, in one word of 64 bits (internal.h).
 *
 * What counts is the value: who has been woken takes from it, or sleeps again if somebody else was
 * faster, who then has used the post. Each post notifies one, so that there are never sleepers
 * beside a value that nobody has been woken for.
 */
#include <string.h>

#include "internal.h"

struct sem {
	_Atomic uint64_t state;		/* value; upper half: PRIVATE, waiters */
};

_Static_assert(sizeof(struct sem) <= sizeof(memwait_sem_t), "the semaphore fits");

#define PRIVATE		(1ULL << 32)	/* in the state: whoever has posted must not look again */
#define WAITER		(1ULL << 33)
#define WAITERS		(-WAITER)
#define OVERFLOW	(1ULL << 31)	/* in the state of one more than MEMWAIT_SEM_VALUE_MAX */

static struct sem *to_sem(memwait_sem_t *sem)
{
	return (struct sem *)sem;
}

static uint32_t value_of(uint64_t state)
{
	return (uint32_t)state;
}

static uint32_t flags_of(uint64_t state)
{
	return state & PRIVATE ? MEMWAIT_PRIVATE : 0;
}

/* What the waiters sleep on. */
static const volatile void *value_word(struct sem *sem)
{
	return memwait_lower_half(&sem->state);
}

/* Takes one, and @less from the state with it; or returns false. */
static bool take(struct sem *sem, uint64_t less)
{
	/* relaxed: only the compare-and-swap counts */
	uint64_t state = atomic_load_explicit(&sem->state, memory_order_relaxed);

	while (value_of(state)) {
		/* acquire: pairs with memwait_sem_post() */
		if (atomic_compare_exchange_weak_explicit(&sem->state, &state, state - 1 - less,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
	}
	return false;
}

/* Returns how to wait: the size of the word, and whether it is private. */
static uint32_t enter(struct sem *sem)
{
	/* relaxed: a post that comes later sees it, as it changes the same word */
	return MEMWAIT_SIZE_U32 | flags_of(atomic_fetch_add_explicit(&sem->state, WAITER,
								      memory_order_relaxed));
}

static void leave(struct sem *sem)
{
	/* relaxed: nothing was taken */
	atomic_fetch_sub_explicit(&sem->state, WAITER, memory_order_relaxed);
}

/* A wake-up that is not used. If there is no value, somebody else has used it. */
static void pass_on(struct sem *sem)
{
	/* relaxed: who takes it acquires */
	uint64_t state = atomic_load_explicit(&sem->state, memory_order_relaxed);

	if (value_of(state))
		memwait_wake(value_word(sem), 1, flags_of(state));
}

int memwait_sem_init(memwait_sem_t *sem, int pshared, unsigned int value)
{
	if (!sem || value > MEMWAIT_SEM_VALUE_MAX)
		return EINVAL;
	memset(sem, 0, sizeof(*sem));
	atomic_init(&to_sem(sem)->state, value | (pshared ? 0 : PRIVATE));
	return 0;
}

int memwait_sem_destroy(memwait_sem_t *sem)
{
	if (!sem)
		return EINVAL;
	/* acquire: who destroys it may free what it guarded */
	if (atomic_load_explicit(&to_sem(sem)->state, memory_order_acquire) >= WAITER)
		return EBUSY;
	return 0;
}

static void cancelled(void *argument)
{
	leave(argument);
	pass_on(argument);
}

/* Not inlined: so what does not sleep needs next to no stack frame. */
__attribute__((__noinline__))
static int sleep_until(struct sem *sem, const struct memwait_deadline *deadline)
{
	uint32_t flags = enter(sem);
	int ret;

	while (!take(sem, WAITER)) {
		ret = memwait_sleep_cancellable(NULL, value_word(sem), 0, flags, deadline,
						cancelled, sem);
		if (ret == MEMWAIT_TIMED_OUT || ret < 0) {
			leave(sem);
			return ret < 0 ? -ret : ETIMEDOUT;
		}
	}
	return 0;
}

static inline int wait_until(struct sem *sem, const struct memwait_deadline *deadline)
{
	if (!sem)
		return EINVAL;
	pthread_testcancel();
	return take(sem, 0) ? 0 : sleep_until(sem, deadline);
}

int memwait_sem_wait(memwait_sem_t *sem)
{
	return wait_until(to_sem(sem), &memwait_never);
}

int memwait_sem_trywait(memwait_sem_t *sem)
{
	if (!sem)
		return EINVAL;
	return take(to_sem(sem), 0) ? 0 : EAGAIN;
}

int memwait_sem_clockwait(memwait_sem_t *sem, clockid_t clock, const struct timespec *abstime)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, abstime);

	return err ? err : wait_until(to_sem(sem), &deadline);
}

int memwait_sem_timedwait(memwait_sem_t *sem, const struct timespec *abstime)
{
	return memwait_sem_clockwait(sem, CLOCK_REALTIME, abstime);
}

/* Not inlined, as above. */
__attribute__((__noinline__))
static int post_and_wake(struct sem *sem, uint64_t state)
{
	int ret;

	do {
		if (value_of(state) == MEMWAIT_SEM_VALUE_MAX)
			return EOVERFLOW;
		/* release: what was done before is there for who takes it */
	} while (!atomic_compare_exchange_weak_explicit(&sem->state, &state, state + 1,
							memory_order_release,
							memory_order_relaxed));
	if (state < WAITER)
		return 0;
	ret = memwait_wake(value_word(sem), 1, flags_of(state));
	return ret < 0 ? -ret : 0;
}

int memwait_sem_post(memwait_sem_t *public_sem)
{
	struct sem *sem = to_sem(public_sem);
	uint64_t state;

	if (!sem)
		return EINVAL;
	/* relaxed: only the compare-and-swap counts */
	state = atomic_load_explicit(&sem->state, memory_order_relaxed);
	/* One look for all that is rare: somebody waits, or there is no room for one more. */
	if (!((state + 1) & (OVERFLOW | WAITERS)) &&
	    /* release: as above */
	    atomic_compare_exchange_strong_explicit(&sem->state, &state, state + 1,
						    memory_order_release, memory_order_relaxed))
		return 0;
	return post_and_wake(sem, state);
}

int memwait_sem_getvalue(memwait_sem_t *sem, int *value)
{
	if (!sem || !value)
		return EINVAL;
	/* relaxed: out of date at once */
	*value = (int)value_of(atomic_load_explicit(&to_sem(sem)->state, memory_order_relaxed));
	return 0;
}

static int wait_step(struct memwait_op *op, int outcome)
{
	struct sem *sem = op->object;
	uint64_t less = outcome == MEMWAIT_OP_BEGIN ? 0 : WAITER;
	int ret = outcome;

	if (outcome == MEMWAIT_TIMED_OUT)
		goto leave;
	if (take(sem, less))
		return 0;
	if (outcome == MEMWAIT_OP_BEGIN)
		op->word.flags = enter(sem);
	do {
		ret = memwait_op_arm(op, value_word(sem), 0, op->word.flags);
		if (ret == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
		if (ret != MEMWAIT_NOT_EQUAL)
			goto leave;
	} while (!take(sem, WAITER));
	return 0;

leave:
	leave(sem);
	return ret < 0 ? -ret : ETIMEDOUT;
}

static void wait_undo(struct memwait_op *op, int outcome)
{
	leave(op->object);
	if (outcome == MEMWAIT_OK)
		pass_on(op->object);
}

static const struct memwait_op_kind wait_kind = { wait_step, wait_undo };

int memwait_sem_wait_async(memwait_sem_t *sem, memwait_op_t *op)
{
	if (!sem)
		return EINVAL;
	return memwait_op_begin(op, &wait_kind, sem, NULL, &memwait_never);
}

int memwait_sem_clockwait_async(memwait_sem_t *sem, clockid_t clock,
				const struct timespec *abstime, memwait_op_t *op)
{
	struct memwait_deadline deadline;
	int err;

	if (!sem)
		return EINVAL;
	err = memwait_deadline_set(&deadline, clock, abstime);
	return err ? err : memwait_op_begin(op, &wait_kind, sem, NULL, &deadline);
}
