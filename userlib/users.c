// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Users: the threads and operations within a call on an object. Destroying a condition variable, a
 * barrier, a wait group or a side of a channel waits until all users have left. The words:
 *
 *	count		users; the bit DESTROYING: destroy runs, and the last user wakes it
 *	operations	users that are operations of loops
 *
 *	user				destroy
 *	(1) enter			(1) is there an operation? EBUSY
 *	(2) wait, or notify		(2) set DESTROYING
 *	(3) leave: the last access	(3) sleep while the count is not 0
 *
 * An operation leaves just before its callback runs; an operation on a condition variable leaves
 * when its wake-up is dispatched, before it waits for the mutex. Destroy must not wait for
 * operations, because a callback of their loop may call destroy. A killed user stays counted, and
 * so do the parent's threads in a child process. Therefore destroying a shared object, or any
 * object in such a child, fails when the same count was found DEAD_AFTER times in a row. The same
 * applies when destroy waits for a gate (rwlock.c, channel.c), unless the kernel reports the death
 * of the gate's owner. Destroy does not wait at all in a child whose threads have used no object,
 * if this object is the child's own copy: the caller may be exit(), which destroys the static
 * objects of a C++ program.
 *
 * Invariant: neither number becomes negative. A user may enter while DESTROYING is set: a signal
 * handler of the destroying thread, or any thread if destroy will return EBUSY or was killed.
 *
 * A round waits for the end of a generation of a barrier or a wait group. memwait_users_round() is
 * the common loop of threads and operations; look() knows the object's word.
 */
#include "users.h"

#define DESTROYING	0x80000000U

/* Interval at which destroy checks the count: the last user may fail to wake destroy. */
#define LOOK_AFTER_MS	1000

/* This is a number of checks, not a time, because time passes even while the process is stopped. */
#define DEAD_AFTER	10

/* The same for a gate. Between two looks the caller may check other words. */
#define GATE_LOOK_AFTER_MS	100
#define GATE_DEAD_AFTER		100

/* A child process has copies of the private objects that its parent's threads use. */
static bool may_be_dead(uint32_t flags)
{
	return !(flags & MEMWAIT_PRIVATE) || memwait_process_number() != 1;
}

/* The number of the process that last had a user, among this process and its parents. */
static _Atomic uint32_t last_process;

/*
 * Whether all users belong to the parent process, and this process has its own copy of the object.
 */
static bool are_copies(const struct memwait_users *users)
{
	const uint32_t process = memwait_process_number();

	/* relaxed: without a user in this process, no other thread stores it */
	return process != 1 &&
	       atomic_load_explicit(&last_process, memory_order_relaxed) != process &&
	       (users->flags & MEMWAIT_PRIVATE || memwait_memory_is_private(users));
}

/* @op: NULL for a thread. */
void memwait_users_enter(struct memwait_users *users, const struct memwait_op *op)
{
	const uint32_t process = memwait_process_number();

	/* relaxed, both: a hint for are_copies() */
	if (atomic_load_explicit(&last_process, memory_order_relaxed) != process)
		atomic_store_explicit(&last_process, process, memory_order_relaxed);
	/* relaxed, both: no destroy that succeeds may run while a user enters */
	if (op)
		atomic_fetch_add_explicit(&users->operations, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&users->count, 1, memory_order_relaxed);
}

/* The last access: the object may be freed afterwards. */
void memwait_users_leave(struct memwait_users *users, const struct memwait_op *op)
{
	uint32_t flags = users->flags & MEMWAIT_PRIVATE;
	uint32_t was;

	memwait_tsan_release(users);
	if (op) {
		/* relaxed: the release below orders it */
		was = atomic_fetch_sub_explicit(&users->operations, 1, memory_order_relaxed);
		MEMWAIT_INVARIANT(was);
	}
	/* release: pairs with memwait_users_drain(); this user's accesses come before destroy */
	was = atomic_fetch_sub_explicit(&users->count, 1, memory_order_release);
	MEMWAIT_INVARIANT(was & ~DESTROYING);
	if (was == (DESTROYING | 1))
		memwait_wake(&users->count, 1, flags);
}

/*
 * Waits for the woken users. Returns EBUSY if there is a sleeper on @word (unless NULL), if there
 * is an operation, or if users are presumed dead; or an error from the device.
 */
int memwait_users_drain(struct memwait_users *users, const volatile void *word)
{
	struct memwait_deadline deadline;
	uint32_t flags = users->flags & MEMWAIT_PRIVATE;
	uint32_t n, last = 0;
	int looks = 0, ret = 0;

	/* relaxed: an operation that has not left still waits */
	if (atomic_load_explicit(&users->operations, memory_order_relaxed))
		return EBUSY;
	/* acquire: pairs with memwait_users_leave() */
	n = atomic_fetch_or_explicit(&users->count, DESTROYING, memory_order_acquire) | DESTROYING;
	while (n != DESTROYING) {
		memwait_deadline_after(&deadline, CLOCK_MONOTONIC, LOOK_AFTER_MS);
		if (n != last)
			looks = 0;
		last = n;
		ret = word ? memwait_sleepers(word, flags) : 0;
		if (ret > 0 || (looks == DEAD_AFTER && may_be_dead(flags)) || are_copies(users))
			ret = -EBUSY;
		if (!ret)
			ret = memwait_sleep(&users->count, n, MEMWAIT_SIZE_U32 | flags,
					    &deadline);
		looks += ret == MEMWAIT_TIMED_OUT;
		/* acquire: pairs with memwait_users_leave() */
		n = atomic_load_explicit(&users->count, memory_order_acquire);
		if (ret < 0 && ret != -EINTR)
			break;
		ret = 0;
	}
	memwait_tsan_acquire(users);
	/* relaxed: this bit publishes nothing */
	atomic_fetch_and_explicit(&users->count, ~DESTROYING, memory_order_relaxed);
	return -ret;
}

/*
 * For destroy: locks a gate. Returns the result of memwait_gate_lock(); ETIMEDOUT: check again; or
 * EBUSY, if the gate's owner is presumed dead after this number of @looks.
 */
int memwait_gate_look_again(union memwait_gate *gate, _Atomic uint32_t *spins, uint32_t kind,
			    int *looks)
{
	struct memwait_deadline deadline;

	/* For a shared robust gate the kernel reports the death. */
	if ((kind & MEMWAIT_PRIVATE || !memwait_gate_is_owned(kind)) && may_be_dead(kind) &&
	    (*looks)++ == GATE_DEAD_AFTER)
		return EBUSY;
	memwait_deadline_after(&deadline, CLOCK_MONOTONIC, GATE_LOOK_AFTER_MS);
	return memwait_gate_lock(gate, spins, kind, &deadline);
}

/* A round of a thread (@op is NULL) or an operation. Returns the result of @look. */
int memwait_users_round(struct memwait_users *users, memwait_look_t *look,
			struct memwait_round *round, struct memwait_op *op,
			const struct memwait_deadline *deadline, int outcome)
{
	int ret;

	if (outcome == MEMWAIT_OP_BEGIN)
		memwait_users_enter(users, op);
	while ((ret = look(users, round, outcome)) == MEMWAIT_OP_WAITS) {
		outcome = memwait_await(op, round->word, round->expected, round->flags, deadline);
		if (outcome == MEMWAIT_PENDING)
			return MEMWAIT_OP_WAITS;
	}
	/* All have met, the count is zero, or the barrier is broken. */
	if (ret <= 0 || ret == EPIPE)
		memwait_tsan_acquire(&users->operations);
	memwait_users_leave(users, op);
	return ret;
}
