// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Semaphores. A semaphore has a state of 64 bits:
 *
 *	bits 0 to 31	value; waiters sleep while it is 0
 *	bits 32 to 63	waiters: threads and operations within a wait
 *
 * Invariants:
 *	The number of waiters does not become negative.
 *	A post that finds waiters notifies one of them, if one sleeps.
 *
 * The semaphore may be freed as soon as the value is raised, so post reads the flags first. Only
 * the value counts: a woken waiter takes from it, or sleeps again if another thread has used the
 * post. Because each post notifies one waiter, no waiter sleeps while the value includes a post for
 * which no waiter was woken.
 *
 * A post that may find sleepers raises the value and wakes one sleeper in one system call; if that
 * call fails, nothing was posted. If two posts wake two waiters, the kernel watches only the second
 * (internal.h). If the first waiter dies before it takes its post, the post remains. Therefore, if
 * a woken waiter leaves a value above 0 while there are other waiters, it wakes one more waiter.
 *
 * A waiter that dies while it sleeps stays counted: each post then makes a system call, and destroy
 * asks the kernel how many waiters sleep.
 *
 * Fair semaphores: of bits 0 to 31, one half is the value, and the other half counts posts that are
 * handed over.
 *
 *	poster, if there are waiters	waiter
 *	(1) hand over one more		(1) sleep while the value is 0
 *	(2) one system call: wake the	(2) woken: take one that is handed over
 *	    oldest; if there is none,
 *	    move it to the value
 *
 * Therefore no waiter sleeps while the value is above 0, and a thread that finds a value above 0
 * overtakes no waiter. A waiter that is woken by a mistaken notify, or by a stale notify for an
 * earlier object at this address, finds no post that is handed over, and sleeps again. Such a
 * notify must not come between the poster's (1) and (2), so waiters sleep at an address that no
 * other object notifies: on two bytes that are not the first of four. (A program's own 16-bit word
 * may have been at this address.) A post by a process that is killed between (1) and (2) was not
 * done, and stays handed over.
 */
#include <string.h>

#include "object.h"
#include "probes.h"

struct sem {
	_Atomic uint64_t state;		/* value; upper half: waiters */
	uint64_t flags;			/* the upper half: 0 */
};

_Static_assert(sizeof(struct sem) <= sizeof(memwait_sem_t), "the semaphore fits");

#define WAITER		(1ULL << 32)
#define WAITERS		(-WAITER)
#define OVERFLOW	(1ULL << 31)	/* set if the value exceeds the maximum */

/* For fair semaphores: the value is in the last two of the four bytes. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FAIR_SHIFT	16
#else
#define FAIR_SHIFT	0
#endif
#define FAIR_VALUE	(0xffffU << FAIR_SHIFT)
#define HANDED		(1U << (16 - FAIR_SHIFT))
#define ALL_HANDED	(~FAIR_VALUE)

#define KNOWN		(MEMWAIT_PRIVATE | MEMWAIT_SEM_FAIR)

static struct sem *to_sem(memwait_sem_t *sem)
{
	return (struct sem *)sem;
}

/* Whether the kind is neither fair nor unknown: fast paths handle only these. */
static bool is_plain(const struct sem *sem)
{
	return !(sem->flags & ~(uint64_t)MEMWAIT_PRIVATE);
}

static bool is_fair(const struct sem *sem)
{
	return sem->flags & MEMWAIT_SEM_FAIR;
}

/* The increment for a value of 1. */
static uint32_t one(const struct sem *sem)
{
	return is_fair(sem) ? 1U << FAIR_SHIFT : 1;
}

static uint32_t value_bits(const struct sem *sem)
{
	return is_fair(sem) ? FAIR_VALUE : UINT32_MAX;
}

static uint32_t value_of(const struct sem *sem, uint64_t state)
{
	return (uint32_t)state & value_bits(sem);
}

static bool sem_is_valid(const struct sem *sem)
{
	return sem && !(sem->flags & ~(uint64_t)KNOWN);
}

/* The address at which waiters sleep while the value is 0. */
static const volatile void *value_word(struct sem *sem)
{
	return (const volatile char *)memwait_lower_half(&sem->state) + (is_fair(sem) ? 2 : 0);
}

static uint32_t sem_flags_of(const struct sem *sem)
{
	return sem->flags & MEMWAIT_PRIVATE;
}

/*
 * Waiters of a fair semaphore are not notified of deaths: a woken waiter that dies has consumed its
 * post.
 */
static uint32_t sem_sleep_flags(const struct sem *sem)
{
	if (is_fair(sem))
		return MEMWAIT_SIZE_U16 | sem_flags_of(sem);
	return MEMWAIT_SIZE_U32 | memwait_sleep_flags(sem_flags_of(sem));
}

/*
 * Subtracts @less if any of @bits is set; otherwise returns false. @left: the state that remains.
 */
static inline bool take(struct sem *sem, uint32_t bits, uint64_t less, uint64_t *left)
{
	/* relaxed: the compare-and-swap decides */
	uint64_t state = atomic_load_explicit(&sem->state, memory_order_relaxed);

	while (state & bits) {
		/* acquire: pairs with the release of memwait_sem_post() */
		*left = state - less;
		MEMWAIT_INVARIANT(state >= less);
		if (atomic_compare_exchange_weak_explicit(&sem->state, &state, *left,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
	}
	return false;
}

/* For a waiter. A woken waiter may have to wake another waiter, see the top of this file. */
static bool take_and_leave(struct sem *sem, bool woken)
{
	const volatile void *word = value_word(sem);
	const uint32_t flags = sem_flags_of(sem), bits = value_bits(sem);
	uint64_t left;

	if (!take(sem, bits, WAITER + one(sem), &left))
		return false;
	memwait_tsan_acquire(sem);
	if (woken && left & bits && left >= WAITER)
		memwait_wake(word, 1, flags);
	return true;
}

static void sem_enter(struct sem *sem)
{
	/* relaxed: a later post sees it, because it changes the same word */
	atomic_fetch_add_explicit(&sem->state, WAITER, memory_order_relaxed);
}

static void sem_leave(struct sem *sem)
{
	/* relaxed: nothing was taken */
	uint64_t was = atomic_fetch_sub_explicit(&sem->state, WAITER, memory_order_relaxed);

	MEMWAIT_INVARIANT(was >= WAITER);
}

/* After MEMWAIT_OK. Returns whether the caller was handed a post. */
static bool take_over_and_leave(struct sem *sem)
{
	uint64_t left;

	if (!is_fair(sem) || !take(sem, ALL_HANDED, WAITER + HANDED, &left))
		return false;
	memwait_tsan_acquire(sem);
	return true;
}

/* Returns 0 or an error, with nothing done. */
static int post_fair(struct sem *sem)
{
	/* relaxed: the compare-and-swap decides */
	uint64_t state = atomic_load_explicit(&sem->state, memory_order_relaxed), next;
	const uint32_t sleep = sem_sleep_flags(sem), kept = one(sem) - HANDED;
	const volatile void *word = value_word(sem);
	bool hands;
	int ret;

	do {
		/* Posts that were handed to waiters that have died stay handed over. */
		if (value_of(sem, state) / one(sem) + ((uint32_t)state & ALL_HANDED) / HANDED >=
		    MEMWAIT_SEM_FAIR_VALUE_MAX)
			return EOVERFLOW;
		hands = state >= WAITER;
		next = state + (hands ? HANDED : one(sem));
		/* release: publishes the poster's work to the taker */
	} while (!atomic_compare_exchange_weak_explicit(&sem->state, &state, next,
							memory_order_release,
							memory_order_relaxed));
	if (!hands)
		return 0;
	ret = memwait_change(word, MEMWAIT_CHANGE_ADD | MEMWAIT_CHANGE_IF_NONE_WOKEN, kept, 1,
			     sleep, NULL);
	if (ret >= 0)
		return 0;
	/* relaxed: no waiter was woken, and no other thread takes the post */
	atomic_fetch_sub_explicit(&sem->state, HANDED, memory_order_relaxed);
	return -ret;
}

/*
 * Passes on an unused wake-up. If the value is 0, another thread has already taken the post, and
 * there is nothing to pass on. For a fair semaphore the wake-up is a post, which is added to the
 * value if no waiter can be woken.
 */
static void sem_pass_on(struct sem *sem)
{
	uint64_t left;

	/* relaxed, both: the thread that takes it acquires what the poster released */
	if (is_fair(sem)) {
		if (take(sem, ALL_HANDED, HANDED, &left) && post_fair(sem))
			atomic_fetch_add_explicit(&sem->state, one(sem), memory_order_relaxed);
	} else if (value_of(sem, atomic_load_explicit(&sem->state, memory_order_relaxed))) {
		memwait_wake(value_word(sem), 1, sem_flags_of(sem));
	}
}

int memwait_sem_init(memwait_sem_t *sem, unsigned int flags, unsigned int value)
{
	if (!sem || (flags & ~KNOWN) || value > MEMWAIT_SEM_VALUE_MAX ||
	    (flags & MEMWAIT_SEM_FAIR && value > MEMWAIT_SEM_FAIR_VALUE_MAX))
		return EINVAL;
	memset(sem, 0, sizeof(*sem));
	to_sem(sem)->flags = flags;
	atomic_init(&to_sem(sem)->state, (uint64_t)value * one(to_sem(sem)));
	return memwait_need_device();
}

int memwait_sem_destroy(memwait_sem_t *public_sem)
{
	struct sem *sem = to_sem(public_sem);
	uint64_t state;
	int ret;

	if (!sem_is_valid(sem))
		return EINVAL;
	/* acquire: the caller may free the protected data */
	state = atomic_load_explicit(&sem->state, memory_order_acquire);
	if (state < WAITER)
		return 0;
	if (sem_flags_of(sem))
		return EBUSY;
	ret = memwait_sleepers(value_word(sem), 0);
	return ret < 0 ? -ret : ret ? EBUSY : 0;
}

/* The order matters, because the semaphore may be freed after sem_leave(). */
static void pass_on_and_leave(struct sem *sem, bool woken)
{
	if (woken)
		sem_pass_on(sem);
	sem_leave(sem);
}

static void sem_cancelled(void *argument)
{
	pass_on_and_leave(argument, true);
}

/* Takes from the value for a caller that does not wait. Returns 0 or EAGAIN. */
static inline int take_now(struct sem *sem)
{
	uint64_t left;

	if (!take(sem, value_bits(sem), one(sem), &left))
		return EAGAIN;
	memwait_tsan_acquire(sem);
	return 0;
}

/*
 * Like memwait_await(). Cancellation and signals end only waits for a default semaphore: a
 * cancelled waiter of a fair semaphore could not tell whether it was handed a post.
 */
static int await_value(struct sem *sem, struct memwait_op *op,
		       const struct memwait_deadline *deadline)
{
	int ret;

	if (!op && !is_fair(sem))
		return memwait_sleep_cancellable(NULL, value_word(sem), 0, sem_sleep_flags(sem),
						 deadline, sem_cancelled, sem);
	ret = memwait_await(op, value_word(sem), 0, sem_sleep_flags(sem), deadline);
	return ret == -EINTR ? MEMWAIT_NOT_EQUAL : ret;
}

/*
 * Waits as a thread (@op is NULL) or an operation; @outcome: of the last wait. After the deadline
 * it tries once more, because the thread woken for a value may not have run yet. Not inlined, for
 * the same reason as sleep_until().
 */
__attribute__((__noinline__))
static int sem_wait_after(struct sem *sem, struct memwait_op *op,
			  const struct memwait_deadline *deadline, int outcome)
{
	bool woken;

	if (outcome == MEMWAIT_OP_BEGIN) {
		sem_enter(sem);
		outcome = MEMWAIT_NOT_EQUAL;
	}
	while (outcome != MEMWAIT_PENDING) {
		woken = memwait_was_woken(outcome) && !is_fair(sem);
		if (outcome == MEMWAIT_OK && take_over_and_leave(sem))
			return 0;
		if (outcome >= 0 && take_and_leave(sem, woken))
			return 0;
		if (outcome == MEMWAIT_TIMED_OUT || outcome < 0) {
			sem_leave(sem);
			return outcome < 0 ? -outcome : ETIMEDOUT;
		}
		outcome = await_value(sem, op, deadline);
	}
	return MEMWAIT_OP_WAITS;
}

/* Not inlined, so that the path without a sleep needs almost no stack frame. */
__attribute__((__noinline__))
static int sleep_until(struct sem *sem, const struct memwait_deadline *deadline)
{
	int ret;

	if (!sem_is_valid(sem))
		return EINVAL;
	ret = memwait_need_device();
	if (!ret)
		ret = take_now(sem);
	return ret == EAGAIN ? sem_wait_after(sem, NULL, deadline, MEMWAIT_OP_BEGIN) : ret;
}

static inline int sem_wait_until(memwait_sem_t *public_sem, const struct memwait_deadline *deadline)
{
	struct sem *sem = to_sem(public_sem);
	uint64_t left;
	int err = 0;

	MEMWAIT_PROBE1(sem_entry, public_sem);
	if (!sem)
		return EINVAL;
	pthread_testcancel();
	if (!is_plain(sem) || !memwait_has_device() || !take(sem, UINT32_MAX, 1, &left))
		err = sleep_until(sem, deadline);
	if (!err)
		MEMWAIT_PROBE1(sem_acquired, public_sem);
	return err;
}

int memwait_sem_trywait(memwait_sem_t *sem)
{
	int err = sem_is_valid(to_sem(sem)) ? memwait_need_device() : EINVAL;

	return err ? err : take_now(to_sem(sem));
}

/* Not inlined, for the same reason as sleep_until(). */
__attribute__((__noinline__))
static int post_and_wake(struct sem *sem)
{
	const volatile void *word = value_word(sem);
	uint32_t flags = sem_flags_of(sem);
	uint64_t state;
	int ret;

	if (!sem_is_valid(sem))
		return EINVAL;
	ret = memwait_need_device_once();
	if (ret)
		return ret;
	memwait_tsan_release(sem);
	if (is_fair(sem))
		return post_fair(sem);
	/* relaxed: the compare-and-swap decides */
	state = atomic_load_explicit(&sem->state, memory_order_relaxed);
	do {
		/* Concurrent posts by memwait_change() may have exceeded the maximum. */
		if ((uint32_t)state >= MEMWAIT_SEM_VALUE_MAX)
			return EOVERFLOW;
		if (state >= WAITER) {
			ret = memwait_change(word, MEMWAIT_CHANGE_ADD, 1, 1, flags, NULL);
			return ret < 0 ? -ret : 0;
		}
		/* release: publishes the poster's work to the taker */
	} while (!atomic_compare_exchange_weak_explicit(&sem->state, &state, state + 1,
							memory_order_release,
							memory_order_relaxed));
	return 0;
}

int memwait_sem_post(memwait_sem_t *public_sem)
{
	struct sem *sem = to_sem(public_sem);
	uint64_t state;

	if (!sem)
		return EINVAL;
	MEMWAIT_PROBE1(sem_post, public_sem);
	if (!is_plain(sem) || !memwait_has_device())
		return post_and_wake(sem);
	/* relaxed: the compare-and-swap decides */
	state = atomic_load_explicit(&sem->state, memory_order_relaxed);
	/* One test for both rare cases: there are waiters, or the value is at its maximum. */
	if (!((state + 1) & (OVERFLOW | WAITERS)) &&
	    /* release: as in post_and_wake() */
	    atomic_compare_exchange_strong_explicit(&sem->state, &state, state + 1,
						    memory_order_release, memory_order_relaxed))
		return 0;
	return post_and_wake(sem);
}

int memwait_sem_getvalue(const memwait_sem_t *public_sem, int *value)
{
	const struct sem *sem = (const struct sem *)public_sem;

	if (!sem_is_valid(sem) || !value)
		return EINVAL;
	/* relaxed: immediately out of date */
	*value = (int)(value_of(sem, atomic_load_explicit(&sem->state, memory_order_relaxed)) /
		       one(sem));
	return 0;
}

static int sem_wait_step(struct memwait_op *op, int outcome)
{
	if (outcome == MEMWAIT_OP_BEGIN && !sem_is_valid(op->object))
		return EINVAL;
	if (outcome == MEMWAIT_OP_BEGIN && !take_now(op->object))
		return 0;
	return sem_wait_after(op->object, op, NULL, outcome);
}

static void sem_wait_undo(struct memwait_op *op, int outcome)
{
	pass_on_and_leave(op->object, memwait_was_woken(outcome));
}

static int sem_wait_give_back(struct memwait_op *op)
{
	return op->outcome ? 0 : memwait_sem_post(op->object);
}

static const struct memwait_op_kind sem_wait_kind = {
	.step = sem_wait_step,
	.undo = sem_wait_undo,
	.give_back = sem_wait_give_back,
};

MEMWAIT_DEFINE_OBJECT_WAITS(sem, wait, memwait_sem_t)
