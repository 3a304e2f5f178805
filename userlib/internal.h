/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Internal interfaces. Each file calls only files below it:
 *
 *	cond.c
 *	mutex.c, rwlock.c, channel.c
 *	sem.c, barrier.c, waitgroup.c, event.c
 *	users.c			callers within an object that is being destroyed
 *	owner.c			owner words: locks that know their owner
 *	lock.c			lock words
 *	word.c			the program's own words
 *	loop.c			loops and operations
 *	device.c		the device: sleep, wake; owners, processes, deadlines
 *	error.c			errors in words; the version
 *
 * The file that changes a word describes the word's shared bits and invariants at its top.
 * MEMWAIT_INVARIANT() checks them.
 *
 * Death. A process can be killed at any instruction. A free lock, a pending post or an unread item
 * of a shared object must still reach a waiter (see also owner.c). Two rules ensure this:
 *
 *	memwait_change() changes a word and notifies in one system call. It is used wherever there
 *	may be sleepers.
 *
 *	Sleeps are MEMWAIT_OWNED: if a woken thread dies, the next waiter gets MEMWAIT_OWNER_DIED,
 *	and handles it like MEMWAIT_OK. The kernel watches only the thread that was woken last. So a
 *	woken thread that leaves something for another waiter wakes that waiter.
 *
 * Private objects need neither rule, because all their threads die together.
 *
 * Words are shared unless MEMWAIT_PRIVATE was passed to init. Each object stores this flag, because
 * the library cannot find out whether the object's memory is shared. A function that must not touch
 * the object after its atomic operation reads the flag first.
 *
 * Kinds. Each object has a word for its kind or flags, including MEMWAIT_PRIVATE, and a spare word;
 * an event, which is a single word, has four bits for them. If a bit is set that this library does
 * not know, the object belongs to a later library: EINVAL. Fast paths detect such a bit with their
 * test for the common kind. The rest of an object is padding. A library that uses the padding also
 * sets a bit of the kind, so no check of the padding is needed.
 *
 * A notify may reach a word whose object no longer exists, because a waiter that the change
 * released has unmapped it. EFAULT is then ignored. If the address is reused, a waiter there gets a
 * stray MEMWAIT_OK. So all waiters, here and in programs with their own words, recheck their word,
 * as with futex(2). A waiter of a fair lock cannot always tell a stray wake-up from a handover. It
 * therefore sleeps on a byte that no other object notifies; see lock.c.
 *
 * A notify counted for a waiter that does not use it passes to the next waiter. The kernel does
 * this when a thread dies within a wait. The library does it when a cancelled operation has
 * completed with MEMWAIT_OK or MEMWAIT_OWNER_DIED, and when a thread is cancelled in its sleep. It
 * is possible that no notify was counted for a cancelled thread; the extra wake-up is harmless.
 */
#ifndef MEMWAIT_INTERNAL_H
#define MEMWAIT_INTERNAL_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Only the functions of this header are exported. */
#pragma GCC visibility push(default)
#include "memwait.h"
#pragma GCC visibility pop

#include "tsan.h"

/* Processes share the words: no atomic may be built from a process-local lock. */
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64 bits are changed by one instruction");

/* Checked in debug builds, and in the simulation, which has its own definition. */
#if defined(MEMWAIT_DEBUG) && !defined(MEMWAIT_INVARIANT)
#undef NDEBUG
#include <assert.h>
#define MEMWAIT_INVARIANT(condition)	assert(condition)
#elif !defined(MEMWAIT_INVARIANT)
#define MEMWAIT_INVARIANT(condition)	((void)(0 && (condition)))
#endif

/* An invalid time is an error only when it is needed, as in pthreads. */
struct memwait_deadline {
	uint64_t ns;
	uint32_t flags;		/* MEMWAIT_CLOCK_REALTIME or 0 */
	int error;		/* EINVAL, or 0 */
};

static const struct memwait_deadline memwait_never = { .ns = MEMWAIT_FOREVER };

/* Byte offset of the half of a 64-bit word that the kernel compares. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define MEMWAIT_UPPER_HALF	4
#else
#define MEMWAIT_UPPER_HALF	0
#endif
#define MEMWAIT_LOWER_HALF	(4 - MEMWAIT_UPPER_HALF)

static inline const volatile void *memwait_upper_half(_Atomic uint64_t *word)
{
	return (const volatile char *)word + MEMWAIT_UPPER_HALF;
}

static inline const volatile void *memwait_lower_half(_Atomic uint64_t *word)
{
	return (const volatile char *)word + MEMWAIT_LOWER_HALF;
}

/*
 * An object's @kind and the word after it, combined: compilers load and test them in one
 * instruction.
 */
static inline uint64_t memwait_whole_kind(uint32_t kind, uint32_t spare)
{
	return (uint64_t)spare << 32 | kind;
}

/* Whether the two words have bits other than @known. */
static inline bool memwait_is_unknown(uint32_t kind, uint32_t spare, uint32_t known)
{
	return memwait_whole_kind(kind, spare) & ~(uint64_t)known;
}

/* Flags for waits on an object with @flags. Waiters of a shared object are notified of deaths. */
static inline uint32_t memwait_sleep_flags(uint32_t flags)
{
	return flags & MEMWAIT_PRIVATE ? MEMWAIT_PRIVATE : MEMWAIT_OWNED;
}

/*
 * True if a notify or a death ended the wait. If such a waiter leaves something, it wakes the next
 * waiter.
 */
static inline bool memwait_was_woken(int outcome)
{
	return outcome == MEMWAIT_OK || outcome == MEMWAIT_OWNER_DIED;
}

/* Additional outcome: the word has changed. */
#define MEMWAIT_CHANGED		INT_MAX

/* device.c: return outcomes or negative error numbers; preserve errno */
int memwait_device_open(int flags);
int memwait_device_probe(int fd);
int memwait_device_ioctl(int fd, unsigned long command, void *argument);
int memwait_device_error(int ret);
int memwait_device_first(void);
int memwait_device(unsigned long command, void *argument);
int memwait_deadline_set(struct memwait_deadline *deadline, clockid_t clock,
			 const struct timespec *time);
int memwait_deadline_by(struct memwait_deadline *deadline, const struct timespec *timeout,
			unsigned int flags);
void memwait_deadline_after(struct memwait_deadline *deadline, clockid_t clock, uint32_t ms);
uint64_t memwait_deadline_left(const struct memwait_deadline *deadline);
int memwait_sleep(const volatile void *word, uint64_t expected, uint32_t flags,
		  const struct memwait_deadline *deadline);
int memwait_sleep_cancellable(const volatile void *wake, const volatile void *word,
			      uint64_t expected, uint32_t flags,
			      const struct memwait_deadline *deadline,
			      void (*cancelled)(void *argument), void *argument);
int memwait_device_notify(const volatile void *word, uint32_t count, uint32_t flags);
int memwait_wake(const volatile void *word, uint32_t count, uint32_t flags);
int memwait_wake_all(const volatile void *word, uint32_t flags);
int memwait_change(const volatile void *word, uint32_t operation, uint32_t operand, uint32_t count,
		   uint32_t flags, uint32_t *old);
int memwait_sleepers(const volatile void *word, uint32_t flags);
uint32_t memwait_process_number(void);

/*
 * The process's own context. Lower half: its descriptor; -1 before it is opened, after it was lost,
 * and under ThreadSanitizer. Upper half: how often it was lost, so that a reused number is not
 * taken for the previous descriptor.
 */
extern _Atomic uint64_t memwait_device_context __attribute__((__visibility__("hidden")));

/*
 * Functions that begin something open the device first, even if they need not wait: the same thread
 * may later have to wake waiters when it unlocks or posts, and cannot handle a failed open at that
 * point (no descriptor left, device not visible).
 */
static inline bool memwait_has_device(void)
{
#ifdef MEMWAIT_SEEN_BY_TSAN
	/* relaxed: only the kernel dereferences the number */
	return (int)(uint32_t)atomic_load_explicit(&memwait_device_context,
						   memory_order_relaxed) != -1;
#else
	/* The same, in two instructions: compilers do not fold an atomic load into a compare. */
	return *(const int *)memwait_lower_half(&memwait_device_context) != -1;
#endif
}

/* Returns 0 or an error. */
static inline int memwait_need_device(void)
{
	return memwait_has_device() ? 0 : memwait_device_first();
}

/*
 * Like memwait_need_device(), for functions that end something. If the process has closed the
 * device and cannot reopen it, they proceed, because most have no waiter to wake.
 */
static inline int memwait_need_device_once(void)
{
	/* relaxed: as in memwait_has_device() */
	return memwait_has_device() ||
	       atomic_load_explicit(&memwait_device_context, memory_order_relaxed) >> 32 ?
	       0 : memwait_device_first();
}

/*
 * The calling thread: its id, or its parent's id, or 0; and the process that the id belongs to.
 * Both are in one variable, because each thread-local variable costs a call in a shared library.
 */
struct memwait_self {
	uint64_t id;
	uint32_t process;
};

extern __thread struct memwait_self memwait_self __attribute__((__visibility__("hidden")));
/* The number of this process; 0 in a child that has no number yet. */
extern _Atomic uint32_t *memwait_process __attribute__((__visibility__("hidden")));

/* Id of the calling thread, or 0 if it has none yet. A parent's id does not count. */
static inline uint64_t memwait_known_id(void)
{
	/* relaxed: changes only in a child, before the child runs anything else */
	uint32_t process = atomic_load_explicit(memwait_process, memory_order_relaxed);

	return memwait_self.process == process ? memwait_self.id : 0;
}

uint64_t memwait_thread_id(void);
bool memwait_memory_is_private(const volatile void *memory);
bool memwait_may_spin(void);

/* loop.c */

struct memwait_op;

/*
 * The data of an operation whose callback is about to run, copied: once the loop is unlocked,
 * memwait_op_cancel() reports that the callback has begun, and the program may free the operation.
 */
struct memwait_call {
	memwait_callback_t callback;
	memwait_op_t *op;
	void *data;
	void *object;
	int result;
};

/* Values passed to and returned by steps, besides the kernel's outcomes. */
#define MEMWAIT_OP_BEGIN	(INT_MIN + 1)	/* the first step, before any wait */
#define MEMWAIT_OP_WAITS	INT_MIN		/* from a step: a wait was armed */
#define MEMWAIT_OP_TAKEN_BACK	(-1)		/* to undo: no notify was counted */

/*
 * Methods of an operation. @step and @undo are called with the loop locked and must not block.
 * @step: begins, or continues after a wait. @outcome: MEMWAIT_OP_BEGIN, MEMWAIT_OK,
 *	MEMWAIT_TIMED_OUT or, for a MEMWAIT_OWNED wait, MEMWAIT_OWNER_DIED. Returns MEMWAIT_OP_WAITS
 *	or the operation's result
 * @undo: optional; releases everything that the operation holds. @outcome: MEMWAIT_OK if a notify
 *	was counted for the current wait, MEMWAIT_OWNER_DIED if a death was reported, or
 *	MEMWAIT_OP_TAKEN_BACK
 * @end: optional; called instead of memwait_call_back(), which it calls. Called without the loop's
 *	lock, even if the first step has acquired the object
 * @give_back: optional; for memwait_op_undo(), which has checked that the operation has ended with
 *	.outcome. Returns 0, EINPROGRESS (another step of the operation is pending), or an error
 *	number of either sign
 * @epipe: what EPIPE means, for memwait_op_strerror(); NULL: the operation does not return it
 * @has_outcomes: the result is an outcome or a negative error number, as for word functions
 * @goes_on: the wait is MEMWAIT_PERSISTENT, and MEMWAIT_OK does not end the operation. @step
 *	reports .count, and @undo passes .count to other waiters
 */
struct memwait_op_kind {
	int (*step)(struct memwait_op *op, int outcome);
	void (*undo)(struct memwait_op *op, int outcome);
	void (*end)(const struct memwait_call *call);
	int (*give_back)(struct memwait_op *op);
	const char *epipe;
	bool has_outcomes;
	bool goes_on;
};

enum memwait_op_state {
	MEMWAIT_OP_IDLE,
	MEMWAIT_OP_QUEUED,	/* its wait is in the kernel */
	MEMWAIT_OP_READY,	/* completion read; in the loop's list */
	MEMWAIT_OP_CALLED,	/* .goes_on is set, and its callback runs */
};

/* A wait for the end of a generation of a barrier or wait group. See users.c. */
struct memwait_round {
	const volatile void *word;		/* sleep on this, */
	uint64_t expected;			/* while it has this value */
	uint32_t flags;				/* of the wait */
	uint32_t generation;
	uint32_t epoch;				/* of a barrier, both */
	int tries;
};

/* The state of a waiter for a lock, see lock.c. */
struct memwait_turn {
	uint32_t woken;				/* number of wake-ups */
	bool gives_way;				/* sleeps though the lock is free */
};

/* A send or receive that may have to wait, see channel.c. */
struct memwait_transfer {
	struct memwait_channel *channel;
	struct side *other;			/* the side it waits for */
	const struct memwait_deadline *deadline;	/* for locks; NULL: does not sleep */
	struct side *busy;			/* without @deadline: whose lock was not free */
	const struct memwait_op *op;		/* or NULL */
	bool sending;
	bool is_user;				/* is counted as a user of its side */
	bool waits;				/* is counted at the other side */
	bool woken;				/* by a notify, and has not tried since then */
	bool settled;				/* no sender that missed CLOSED is left */
};

struct memwait_op {
	memwait_loop_t *loop;
	memwait_callback_t callback;
	void *data;
	const struct memwait_op_kind *kind;
	struct memwait_op *next, *previous;	/* in the loop's list */
	uint64_t id;				/* the id of its wait in the kernel */
	uint32_t index;				/* of the group's word that ended the wait */
	_Atomic int state;
	int outcome;				/* of the completion */
	uint32_t count;				/* with .goes_on: notifies not reported yet */
	uint32_t told;				/* notifies that its callback reports */
	bool armed;				/* the kernel may have a completion for it */
	bool cancelled;				/* since it last began, or undone */
	uint32_t process;			/* that began it last */
	struct memwait_deadline deadline;

	/* Used by the kinds. */
	void *object;
	void *with;				/* an item, or a condition variable's mutex */
	int phase;
	struct memwait_turn turn;
	union {
		struct {
			uint64_t expected;
			uint32_t flags;
		} word;
		struct {
			uint32_t count;
			uint32_t flags;		/* copy, valid after leaving the object */
			int result;
		} cond;
		struct memwait_round round;
		struct memwait_transfer transfer;
		struct {
			uint64_t owner;		/* of a robust gate */
			int gate;		/* result of locking the gate */
		} rwlock;
	};
};

_Static_assert(sizeof(struct memwait_op) <= sizeof(memwait_op_t), "the operation fits");

int memwait_op_take(memwait_op_t *public_op, struct memwait_op **op);
int memwait_op_start(struct memwait_op *op);
void memwait_call_back(const struct memwait_call *call);
int memwait_op_begin(memwait_op_t *public_op, const struct memwait_op_kind *kind, void *object,
		     void *with, const struct memwait_deadline *deadline);
int memwait_op_begin_until(memwait_op_t *public_op, const struct memwait_op_kind *kind,
			   void *object, void *with, clockid_t clock,
			   const struct timespec *time);
bool memwait_op_has_id(const struct memwait_op *op);
int memwait_op_arm(struct memwait_op *op, const volatile void *word, uint64_t expected,
		   uint32_t flags);

/*
 * Waits while a word is @expected. Without @op sleeps until @deadline; with @op arms it, with its
 * own deadline. Returns an outcome or a negative error number; MEMWAIT_PENDING: armed.
 */
static inline int memwait_await(struct memwait_op *op, const volatile void *word,
				uint64_t expected, uint32_t flags,
				const struct memwait_deadline *deadline)
{
	return op ? memwait_op_arm(op, word, expected, flags) :
		    memwait_sleep(word, expected, flags, deadline);
}

/*
 * Macros that define the forms of memwait_sem_wait() and similar functions. @params and @args are
 * the function's parameters and arguments, in parentheses; the first parameter is @object.
 */
#define MEMWAIT_UNWRAP(...)	__VA_ARGS__

/* Blocking forms, which call verb_until(). */
#define MEMWAIT_DEFINE_WAIT(name, verb, params, args)						\
int memwait_##name##_##verb(MEMWAIT_UNWRAP params)						\
{												\
	return verb##_until(MEMWAIT_UNWRAP args, &memwait_never);				\
}												\
												\
int memwait_##name##_clock##verb(MEMWAIT_UNWRAP params, clockid_t clock,			\
				 const struct timespec *time)					\
{												\
	struct memwait_deadline deadline;							\
	int err = memwait_deadline_set(&deadline, clock, time);					\
												\
	return err ? err : verb##_until(MEMWAIT_UNWRAP args, &deadline);			\
}

/* Asynchronous forms, which use verb_kind. @with: .with of the operation. @check: 0 or an error. */
#define MEMWAIT_DEFINE_ASYNC(name, verb, params, with, check)					\
int memwait_##name##_##verb##_async(MEMWAIT_UNWRAP params, memwait_op_t *op)			\
{												\
	int err = check;									\
												\
	return err ? err : memwait_op_begin(op, &verb##_kind, object, with, &memwait_never);	\
}												\
												\
int memwait_##name##_clock##verb##_async(MEMWAIT_UNWRAP params, clockid_t clock,		\
					 const struct timespec *time, memwait_op_t *op)		\
{												\
	int err = check;									\
												\
	return err ? err : memwait_op_begin_until(op, &verb##_kind, object, with, clock,	\
						  time);					\
}

#define MEMWAIT_DEFINE_WAITS(name, verb, params, args, with, check)				\
int memwait_##name##_timed##verb(MEMWAIT_UNWRAP params, const struct timespec *abstime)		\
{												\
	return memwait_##name##_clock##verb(MEMWAIT_UNWRAP args, CLOCK_REALTIME, abstime);	\
}												\
												\
MEMWAIT_DEFINE_WAIT(name, verb, params, args)							\
MEMWAIT_DEFINE_ASYNC(name, verb, params, with, check)

/* For functions whose only parameter is the object. */
#define MEMWAIT_DEFINE_OBJECT_WAITS(name, verb, object_t)					\
	MEMWAIT_DEFINE_WAITS(name, verb, (object_t *object), (object), NULL, 0)

/* True if a wait failed with an error other than -EINTR. */
static inline bool memwait_has_failed(int outcome)
{
	return outcome < 0 && outcome != -EINTR && outcome != MEMWAIT_OP_BEGIN;
}

/*
 * Spins before sleeping: at most twice as often as was recently needed, and for at most about the
 * time of a system call. @spins of each lock records how often it recently had to spin. The limit
 * shrinks quickly when spinning is futile.
 */
struct memwait_spin {
	uint32_t lately;
	uint32_t most;
	uint32_t times;
};

static inline void memwait_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline bool memwait_spin_begin(struct memwait_spin *spin, _Atomic uint32_t *spins)
{
	const uint32_t most = 100;

	if (!memwait_may_spin())
		return false;
	/* relaxed, here and below: only an estimate */
	spin->lately = atomic_load_explicit(spins, memory_order_relaxed);
	spin->most = 2 * spin->lately + 10 < most ? 2 * spin->lately + 10 : most;
	spin->times = 0;
	return true;
}

static inline bool memwait_spin_again(struct memwait_spin *spin)
{
	return spin->times++ < spin->most;
}

static inline void memwait_spin_end(const struct memwait_spin *spin, _Atomic uint32_t *spins,
				    bool locked)
{
	uint32_t next = locked ? (7 * spin->lately + spin->times) / 8 : spin->lately / 2;

	atomic_store_explicit(spins, next, memory_order_relaxed);
}

/*
 * lock.c. Fast paths are inline. @kind: only MEMWAIT_MUTEX_FAIR and MEMWAIT_PRIVATE matter; all
 * users of a word pass the same kind.
 */

/*
 * All bits of a lock word are in its second byte in memory: waiters of a fair lock sleep on that
 * byte, and no other object has waiters there.
 */
#define MEMWAIT_LOCK_BYTE	1
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define MEMWAIT_LOCK_PLACE	8
#else
#define MEMWAIT_LOCK_PLACE	16
#endif
#define MEMWAIT_LOCK_BIT(n)	(1U << (MEMWAIT_LOCK_PLACE + (n)))

#define MEMWAIT_LOCKED		MEMWAIT_LOCK_BIT(0)
#define MEMWAIT_CONTENDED	MEMWAIT_LOCK_BIT(1)
#define MEMWAIT_LOCK_HANDED	MEMWAIT_LOCK_BIT(2)	/* if fair */

/* Whether a fair word is between two owners. */
static inline bool memwait_lock_is_handed(uint32_t word, uint32_t kind)
{
	return kind & MEMWAIT_MUTEX_FAIR && word & MEMWAIT_LOCK_HANDED;
}

static inline bool memwait_lock_is_taken(uint32_t word, uint32_t kind)
{
	return word & MEMWAIT_LOCKED || memwait_lock_is_handed(word, kind);
}

/* Added to the kind for a release, here and in owner.c: keep the lock if the wake-up fails. */
#define MEMWAIT_OR_KEEP		0x8000U

int memwait_lock(_Atomic uint32_t *word, _Atomic uint32_t *spins, uint32_t kind,
		 const struct memwait_deadline *deadline);
bool memwait_lock_release_silently(_Atomic uint32_t *word);
bool memwait_lock_try_nonzero(_Atomic uint32_t *word, uint32_t kind);
int memwait_lock_release_contended(_Atomic uint32_t *word, uint32_t kind, uint32_t was);
int memwait_lock_step(struct memwait_op *op, _Atomic uint32_t *word, uint32_t kind, int outcome);
void memwait_lock_undo(const struct memwait_turn *turn, _Atomic uint32_t *word, uint32_t kind,
		       int outcome);

static inline bool memwait_lock_try(_Atomic uint32_t *word)
{
	uint32_t unlocked = 0;

	/* acquire: pairs with the release in memwait_lock_release() */
	return atomic_compare_exchange_strong_explicit(word, &unlocked, MEMWAIT_LOCKED,
						       memory_order_acquire, memory_order_relaxed);
}

/* Any kind; succeeds only if the word is exactly LOCKED. @was: the previous value. */
static inline bool memwait_lock_release_uncontended(_Atomic uint32_t *word, uint32_t *was)
{
	*was = MEMWAIT_LOCKED;
	/* release: the next owner sees what was done under the lock */
	return atomic_compare_exchange_strong_explicit(word, was, 0, memory_order_release,
						       memory_order_relaxed);
}

/* Returns EPERM if the word is not locked. */
static inline int memwait_lock_release(_Atomic uint32_t *word, uint32_t kind)
{
	uint32_t was;

	if (memwait_lock_release_uncontended(word, &was))
		return 0;
	return memwait_lock_release_contended(word, kind, was);
}

/* owner.c. @kind: only MEMWAIT_PRIVATE matters. */

#define MEMWAIT_OWNER_CONTENDED		(1ULL << 62)
#define MEMWAIT_OWNER_INCONSISTENT	(1ULL << 63)
#define MEMWAIT_NOT_RECOVERABLE		MEMWAIT_OWNER_INCONSISTENT

int memwait_owner_lock(_Atomic uint64_t *word, _Atomic uint32_t *spins, uint32_t kind,
		       const struct memwait_deadline *deadline);
int memwait_owner_try_or_inherit(_Atomic uint64_t *word, uint32_t kind);
int memwait_owner_release(_Atomic uint64_t *word, uint32_t kind);
int memwait_owner_abandon(_Atomic uint64_t *word, uint32_t kind);
int memwait_owner_return_death(_Atomic uint64_t *word, uint32_t kind);
void memwait_owner_make_consistent(_Atomic uint64_t *word);
int memwait_owner_consistent(_Atomic uint64_t *word);
int memwait_owner_is_dead(const _Atomic uint64_t *word, uint64_t seen, uint32_t kind);
int memwait_owner_step(struct memwait_op *op, _Atomic uint64_t *word, uint32_t kind, int outcome);
void memwait_owner_undo(_Atomic uint64_t *word, uint32_t kind, int outcome);

static inline bool memwait_owner_try(_Atomic uint64_t *word, uint64_t id)
{
	uint64_t unlocked = 0;

	/* acquire: pairs with the release in memwait_owner_release() */
	return atomic_compare_exchange_strong_explicit(word, &unlocked, id, memory_order_acquire,
						       memory_order_relaxed);
}

/* The common case of memwait_owner_release(). @id: the caller's, if it has one. */
static inline bool memwait_owner_release_uncontended(_Atomic uint64_t *word, uint64_t id)
{
	/* release: publishes the critical section to the next owner */
	return id && atomic_compare_exchange_strong_explicit(word, &id, 0, memory_order_release,
							     memory_order_relaxed);
}

/* True if a lock result means that the lock is held. */
static inline bool memwait_has_locked(int ret)
{
	return !ret || ret == EOWNERDEAD;
}

/*
 * A gate is a lock word, or an owner word if the kind has MEMWAIT_MUTEX_ROBUST. Results are those
 * of memwait_owner_lock().
 */
union memwait_gate {
	_Atomic uint32_t word;
	_Atomic uint64_t owned;
};

static inline bool memwait_gate_is_owned(uint32_t kind)
{
	return kind & MEMWAIT_MUTEX_ROBUST;
}

static inline int memwait_gate_lock(union memwait_gate *gate, _Atomic uint32_t *spins,
				    uint32_t kind, const struct memwait_deadline *deadline)
{
	if (memwait_gate_is_owned(kind))
		return memwait_owner_lock(&gate->owned, spins, kind, deadline);
	return memwait_lock(&gate->word, spins, kind, deadline);
}

/* Like memwait_gate_lock(), but returns EBUSY instead of waiting. */
static inline int memwait_gate_try(union memwait_gate *gate, uint32_t kind)
{
	if (memwait_gate_is_owned(kind))
		return memwait_owner_try_or_inherit(&gate->owned, kind);
	return memwait_lock_try(&gate->word) ||
	       memwait_lock_try_nonzero(&gate->word, kind) ? 0 : EBUSY;
}

static inline int memwait_gate_release(union memwait_gate *gate, uint32_t kind)
{
	return memwait_gate_is_owned(kind) ? memwait_owner_release(&gate->owned, kind) :
					     memwait_lock_release(&gate->word, kind);
}

static inline int memwait_gate_step(struct memwait_op *op, union memwait_gate *gate, uint32_t kind,
				    int outcome)
{
	return memwait_gate_is_owned(kind) ?
	       memwait_owner_step(op, &gate->owned, kind, outcome) :
	       memwait_lock_step(op, &gate->word, kind, outcome);
}

/* @turn: see memwait_lock_undo(). */
static inline void memwait_gate_undo(const struct memwait_turn *turn, union memwait_gate *gate,
				     uint32_t kind, int outcome)
{
	if (memwait_gate_is_owned(kind))
		memwait_owner_undo(&gate->owned, kind, outcome);
	else
		memwait_lock_undo(turn, &gate->word, kind, outcome);
}

/*
 * For destroy. Returns 0 if the gate is free, not recoverable, or its owner has died; EBUSY;
 * MEMWAIT_CHANGED: look again; or a negative error number.
 */
static inline int memwait_gate_look(union memwait_gate *gate, uint32_t kind)
{
	uint64_t now;
	int dead;

	/* acquire, both: the caller may free the protected data */
	if (!memwait_gate_is_owned(kind))
		return memwait_lock_is_taken(atomic_load_explicit(&gate->word,
								  memory_order_acquire),
					     kind) ? EBUSY : 0;
	now = atomic_load_explicit(&gate->owned, memory_order_acquire);
	if (!now || now == MEMWAIT_OWNER_CONTENDED || now == MEMWAIT_NOT_RECOVERABLE)
		return 0;
	dead = memwait_owner_is_dead(&gate->owned, now, kind);
	if (dead == 1)
		return 0;
	return dead ? dead : EBUSY;
}

/* users.c */

/* @flags: the object's. For the other fields see the top of users.c. */
struct memwait_users {
	_Atomic uint32_t count;
	_Atomic uint32_t operations;
	uint32_t flags;
};

void memwait_users_enter(struct memwait_users *users, const struct memwait_op *op);
void memwait_users_leave(struct memwait_users *users, const struct memwait_op *op);
int memwait_users_drain(struct memwait_users *users, const volatile void *word);
int memwait_gate_look_again(union memwait_gate *gate, _Atomic uint32_t *spins, uint32_t kind,
			    int *looks);

/*
 * Next step of a round: begins (MEMWAIT_OP_BEGIN) or continues after a wait. @outcome may be a
 * negative error number. Returns the result, or MEMWAIT_OP_WAITS to sleep on @round.
 */
typedef int memwait_look_t(struct memwait_users *users, struct memwait_round *round, int outcome);

int memwait_users_round(struct memwait_users *users, memwait_look_t *look,
			struct memwait_round *round, struct memwait_op *op,
			const struct memwait_deadline *deadline, int outcome);

/* mutex.c: for condition variables */
void memwait_mutex_release_all(memwait_mutex_t *public_mutex, uint32_t flags, uint32_t *count,
			       const volatile void **wake);
int memwait_mutex_take_again(memwait_mutex_t *public_mutex, uint32_t count);
int memwait_mutex_step_again(memwait_mutex_t *public_mutex, uint32_t count, struct memwait_op *op,
			     int outcome);
int memwait_mutex_give_back(memwait_mutex_t *public_mutex, int result);
void memwait_mutex_undo_again(memwait_mutex_t *public_mutex, const struct memwait_turn *turn,
			      int outcome);

#endif /* MEMWAIT_INTERNAL_H */
