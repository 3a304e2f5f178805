/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the files of the library share. Each file calls only files below it:
 *
 *	cond.c
 *	mutex.c, rwlock.c, channel.c
 *	sem.c, barrier.c, waitgroup.c
 *	users.c			who is within a call on an object that is to be destroyed
 *	owner.c			owner words: locks that know their owner
 *	lock.c			lock words
 *	word.c			words of the program's own
 *	loop.c			loops and operations
 *	device.c		the device: sleep, wake; owners, processes, deadlines
 *
 * The bits of each word that others can see, and their invariants, are at the top of the file that
 * changes it. MEMWAIT_INVARIANT() checks them.
 *
 * Death. A process can be killed at any instruction. What is free of an object that processes share
 * must be taken by a waiter all the same. There are three ways to that; see also owner.c.
 *
 *	A change of a word, and the notify that it calls for, are one system call where somebody may
 *	sleep: memwait_change().
 *
 *	Waiters sleep with MEMWAIT_OWNED. If a thread dies that was woken, the next one is told:
 *	MEMWAIT_OWNER_DIED, which is to be treated like MEMWAIT_OK. The kernel looks only to the
 *	thread that was woken last. So a thread that was woken, and leaves something behind that
 *	others can have, wakes one of them.
 *
 *	Where neither is enough, a thread has itself looked to before it makes its change:
 *	memwait_answer_for().
 *
 * The threads of a private object die together, so it does without.
 *
 * The library cannot know what memory an object is in. So its words are shared ones to the kernel,
 * unless init was given MEMWAIT_PRIVATE, which each object remembers. A function that must not
 * touch an object after its atomic operation reads that flag before.
 *
 * A notify may come to a word whose object is gone: the change of the word has released a waiter,
 * which has gone on and unmapped the memory. If nothing is mapped there, the notify fails with
 * EFAULT, which is ignored. If the address has another use, a waiter there gets a MEMWAIT_OK that
 * was not meant for it. So every waiter of this library looks at its word again, and programs that
 * use words of their own must do so, as with futex(2). A channel has to outlive every call on it.
 *
 * A notify that was counted for a waiter which does not use it goes on to the next waiter. The
 * kernel sees to that when a thread dies within a wait; the library when an operation is cancelled
 * whose completion is MEMWAIT_OK or MEMWAIT_OWNER_DIED, and when a thread is cancelled in its
 * sleep. Whether that thread was counted cannot be known: a wake-up too many is no error.
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

/* All else is hidden. */
#pragma GCC visibility push(default)
#include "memwait.h"
#pragma GCC visibility pop

/* Processes share them: they must not be made of a lock of the process's own. */
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64 bits are changed by one instruction");

/* Of the words, see above: checked in debug builds, and in the simulation, which brings its own. */
#if defined(MEMWAIT_DEBUG) && !defined(MEMWAIT_INVARIANT)
#undef NDEBUG
#include <assert.h>
#define MEMWAIT_INVARIANT(condition)	assert(condition)
#elif !defined(MEMWAIT_INVARIANT)
#define MEMWAIT_INVARIANT(condition)	((void)(0 && (condition)))
#endif

/* A time that is not given right is an error when it is needed only, as in pthreads. */
struct memwait_deadline {
	uint64_t ns;
	uint32_t flags;		/* MEMWAIT_CLOCK_REALTIME or 0 */
	int error;		/* EINVAL, or 0 */
};

static const struct memwait_deadline memwait_never = { .ns = MEMWAIT_FOREVER };

/* The half of 64 bits that the kernel is to look at. */
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

/* How to sleep on a word of an object: @flags of it, of which MEMWAIT_PRIVATE counts. */
static inline uint32_t memwait_sleep_flags(uint32_t flags)
{
	return flags & MEMWAIT_PRIVATE ? MEMWAIT_PRIVATE : MEMWAIT_OWNED;
}

/* Whether others have ended a wait: the waiter's next step is owed to those who still wait. */
static inline bool memwait_was_woken(int outcome)
{
	return outcome == MEMWAIT_OK || outcome == MEMWAIT_OWNER_DIED;
}

/* Beside the kernel's outcomes: a word is not what it was. */
#define MEMWAIT_CHANGED		INT_MAX

/* device.c: outcomes or negative error numbers; errno is left alone */
int memwait_device_open(int flags);
int memwait_device_probe(int fd);
int memwait_device_ioctl(int fd, unsigned long command, void *argument);
int memwait_device_first(void);
int memwait_device(unsigned long command, void *argument);
int memwait_deadline_set(struct memwait_deadline *deadline, clockid_t clock,
			 const struct timespec *time);
void memwait_deadline_after(struct memwait_deadline *deadline, uint32_t ms);
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
int memwait_answer_for(const volatile void *word, uint32_t expected, uint32_t flags);
int memwait_sleepers(const volatile void *word, uint32_t flags);
uint32_t memwait_process_number(void);

/* The process's own context; or -1 until it is opened, or when it is lost. */
extern _Atomic int memwait_device_number __attribute__((__visibility__("hidden")));
extern _Atomic int memwait_device_was_lost __attribute__((__visibility__("hidden")));

/*
 * What begins something asks for the device first, whether there is somebody to wait for or not.
 * The same thread unlocks or posts later, and has to wake others then: too late to find that the
 * process has no descriptor left, or cannot see the device.
 */
static inline bool memwait_has_device(void)
{
#ifdef __SANITIZE_THREAD__
	/* relaxed: what the number means is the kernel's to know */
	return atomic_load_explicit(&memwait_device_number, memory_order_relaxed) != -1;
#else
	/* The same, and no more than two instructions: no atomic becomes part of a comparison. */
	return *(const int *)&memwait_device_number != -1;
#endif
}

/* Returns 0 or an error. */
static inline int memwait_need_device(void)
{
	return memwait_has_device() ? 0 : memwait_device_first();
}

/*
 * The same for what ends something. If the process has closed the device since, and cannot open it
 * again, that is done all the same: the next call on the object wakes those who are owed it.
 */
static inline int memwait_need_device_once(void)
{
	/* relaxed: as above */
	return memwait_has_device() ||
	       atomic_load_explicit(&memwait_device_was_lost, memory_order_relaxed) ?
	       0 : memwait_device_first();
}

/*
 * The id of the calling thread, or of its parent, or 0. In the shared library too it is read
 * without a call: a lock needs little else.
 */
extern __thread uint64_t memwait_own_id
	__attribute__((__tls_model__("initial-exec"), __visibility__("hidden")));
/* The process that has this id; and the one that this is, or 0: a child, not counted yet. */
extern __thread uint32_t memwait_own_process
	__attribute__((__tls_model__("initial-exec"), __visibility__("hidden")));
extern _Atomic uint32_t *memwait_process __attribute__((__visibility__("hidden")));

/* The id of the calling thread; or 0, if it has not asked for one: its parent's does not count. */
static inline uint64_t memwait_known_id(void)
{
	/* relaxed: changes in a child only, before anything else of it */
	uint32_t process = atomic_load_explicit(memwait_process, memory_order_relaxed);

	return memwait_own_process == process ? memwait_own_id : 0;
}

uint32_t memwait_thread_id(void);
bool memwait_may_spin(void);

/* loop.c */

struct memwait_op;

/* What is passed as outcome to a step, and returned by it, beside the kernel's outcomes. */
#define MEMWAIT_OP_BEGIN	(INT_MIN + 1)	/* the first step, before any wait */
#define MEMWAIT_OP_WAITS	INT_MIN		/* from a step: a wait was armed */
#define MEMWAIT_OP_TAKEN_BACK	(-1)		/* to undo: no notify was counted */

/*
 * What an operation does. The first two are called with the loop locked; they do not block.
 * @step: begins, or goes on after a wait has ended. @outcome: MEMWAIT_OP_BEGIN, MEMWAIT_OK,
 *	MEMWAIT_TIMED_OUT or, of a MEMWAIT_OWNED wait, MEMWAIT_OWNER_DIED.
 *	Returns MEMWAIT_OP_WAITS or the result of the operation
 * @undo: gives back what the operation has. @outcome: MEMWAIT_OK if a notify was counted for the
 *	current wait, MEMWAIT_OWNER_DIED if it was told of a death, or MEMWAIT_OP_TAKEN_BACK
 * @end: in place of memwait_op_call_back(), which it calls, where more is to be done; or NULL.
 *	The loop is not locked. After the callback @op may be gone
 */
struct memwait_op_kind {
	int (*step)(struct memwait_op *op, int outcome);
	void (*undo)(struct memwait_op *op, int outcome);
	void (*end)(struct memwait_op *op, int result);
};

enum memwait_op_state {
	MEMWAIT_OP_IDLE,
	MEMWAIT_OP_QUEUED,	/* in the kernel */
	MEMWAIT_OP_READY,	/* its completion was read; in the loop's list */
};

/* A wait for the end of a generation: of a barrier, or of a wait group. See users.c. */
struct memwait_round {
	const volatile void *word;		/* to sleep on, */
	uint64_t expected;			/* while it is this */
	uint32_t flags;				/* of the sleep */
	uint32_t generation;
	int tries;				/* of a barrier */
};

struct memwait_op {
	memwait_loop_t *loop;
	memwait_callback_t callback;
	void *data;
	const struct memwait_op_kind *kind;
	struct memwait_op *next, *previous;	/* in the loop's list */
	uint64_t id;				/* the kernel's */
	uint32_t index;				/* of the word of a group that has ended it */
	_Atomic int state;
	int outcome;				/* of its completion */
	struct memwait_deadline deadline;

	/* Of the kinds. */
	void *object;
	void *with;				/* an item; of a condition variable, the mutex */
	int phase;
	union {
		struct {
			uint64_t expected;
			uint32_t flags;
		} word;
		struct {
			uint64_t sequence;
			uint32_t count;
			uint32_t flags;		/* for when it has left, and it is gone */
			int result;
		} cond;
		struct memwait_round round;
		struct {
			uint64_t owner;		/* of the gate, if that is robust */
			int gate;		/* what locking the gate has said */
		} rwlock;
	};
};

_Static_assert(sizeof(struct memwait_op) <= sizeof(memwait_op_t), "the operation fits");

int memwait_op_take(memwait_op_t *public_op, struct memwait_op **op);
int memwait_op_start(struct memwait_op *op);
void memwait_op_call_back(struct memwait_op *op, int result);
int memwait_op_begin(memwait_op_t *public_op, const struct memwait_op_kind *kind, void *object,
		     void *with, const struct memwait_deadline *deadline);
int memwait_op_begin_until(memwait_op_t *public_op, const struct memwait_op_kind *kind,
			   void *object, void *with, clockid_t clock,
			   const struct timespec *abstime);
bool memwait_op_has_id(const struct memwait_op *op);
int memwait_op_arm(struct memwait_op *op, const volatile void *word, uint64_t expected,
		   uint32_t flags);

/*
 * Waits while a word is @expected: sleeps if @op is NULL, until @deadline, and otherwise arms the
 * operation, until its own. Returns an outcome or a negative error number; MEMWAIT_PENDING: armed.
 */
static inline int memwait_await(struct memwait_op *op, const volatile void *word,
				uint64_t expected, uint32_t flags,
				const struct memwait_deadline *deadline)
{
	return op ? memwait_op_arm(op, word, expected, flags) :
		    memwait_sleep(word, expected, flags, deadline);
}

/* Whether a wait has failed: with neither an outcome nor a signal. */
static inline bool memwait_has_failed(int outcome)
{
	return outcome < 0 && outcome != -EINTR && outcome != MEMWAIT_OP_BEGIN;
}

/*
 * Spinning before a sleep: twice as long as it took lately, which @spins remembers for a lock, and
 * at most about as long as a system call takes. Where it is in vain it soon becomes short.
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
	/* relaxed, here and below: no more than an estimate */
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
 * lock.c; what needs no call is here, to be inlined. @kind: MEMWAIT_MUTEX_FAIR and MEMWAIT_PRIVATE
 * count, and are the same for all users of a word.
 */

#define MEMWAIT_LOCKED		1U
#define MEMWAIT_CONTENDED	2U

/* With the kind, to release, here and in owner.c: if nobody can be woken, the lock is kept. */
#define MEMWAIT_OR_KEEP		0x8000U

int memwait_lock(_Atomic uint32_t *word, _Atomic uint32_t *spins, uint32_t kind,
		 const struct memwait_deadline *deadline);
int memwait_lock_contended(_Atomic uint32_t *word, uint32_t kind,
			   const struct memwait_deadline *deadline);
bool memwait_lock_try_owing(_Atomic uint32_t *word, uint32_t kind);
int memwait_lock_adopt(_Atomic uint32_t *word, uint32_t kind);
int memwait_lock_release_fair(_Atomic uint32_t *word, uint32_t kind);
int memwait_lock_release_contended(_Atomic uint32_t *word, uint32_t kind, uint32_t was);
int memwait_lock_step(struct memwait_op *op, _Atomic uint32_t *word, uint32_t kind, int outcome);
void memwait_lock_undo(_Atomic uint32_t *word, uint32_t kind, int outcome);

static inline bool memwait_lock_try(_Atomic uint32_t *word)
{
	uint32_t unlocked = 0;

	/* acquire: pairs with the release of memwait_lock_release() */
	return atomic_compare_exchange_strong_explicit(word, &unlocked, MEMWAIT_LOCKED,
						       memory_order_acquire, memory_order_relaxed);
}

/* Of a word that is LOCKED and nothing else, of any kind. @was: what it was. */
static inline bool memwait_lock_release_uncontended(_Atomic uint32_t *word, uint32_t *was)
{
	*was = MEMWAIT_LOCKED;
	/* release: what was done under the lock is there for the next owner */
	return atomic_compare_exchange_strong_explicit(word, was, 0, memory_order_release,
						       memory_order_relaxed);
}

/* Returns EPERM if the word is not locked. */
static inline int memwait_lock_release(_Atomic uint32_t *word, uint32_t kind)
{
	uint32_t was;

	if (kind & MEMWAIT_MUTEX_FAIR)
		return memwait_lock_release_fair(word, kind);
	if (memwait_lock_release_uncontended(word, &was))
		return 0;
	return memwait_lock_release_contended(word, kind, was);
}

/* owner.c. @kind: MEMWAIT_PRIVATE counts. */

#define MEMWAIT_OWNER_CONTENDED		(1ULL << 62)
#define MEMWAIT_OWNER_INCONSISTENT	(1ULL << 63)
#define MEMWAIT_NOT_RECOVERABLE		MEMWAIT_OWNER_INCONSISTENT

int memwait_owner_lock(_Atomic uint64_t *word, _Atomic uint32_t *spins, uint32_t kind,
		       const struct memwait_deadline *deadline);
int memwait_owner_try_or_inherit(_Atomic uint64_t *word, uint32_t kind);
int memwait_owner_release(_Atomic uint64_t *word, uint32_t kind);
int memwait_owner_abandon(_Atomic uint64_t *word, uint32_t kind);
void memwait_owner_make_consistent(_Atomic uint64_t *word);
int memwait_owner_is_dead(const _Atomic uint64_t *word, uint64_t seen, uint32_t kind);
int memwait_owner_step(struct memwait_op *op, _Atomic uint64_t *word, uint32_t kind, int outcome);
void memwait_owner_undo(_Atomic uint64_t *word, uint32_t kind, int outcome);

static inline bool memwait_owner_try(_Atomic uint64_t *word, uint64_t id)
{
	uint64_t unlocked = 0;

	/* acquire: pairs with the release of memwait_owner_release() */
	return atomic_compare_exchange_strong_explicit(word, &unlocked, id, memory_order_acquire,
						       memory_order_relaxed);
}

/* Whether a result of locking means that it is locked. */
static inline bool memwait_has_locked(int ret)
{
	return !ret || ret == EOWNERDEAD;
}

/* users.c */

/* @flags: of the object, MEMWAIT_PRIVATE or 0; for the others see the top of the file. */
struct memwait_users {
	_Atomic uint32_t count;
	_Atomic uint32_t operations;
	uint32_t flags;
};

uint32_t memwait_users_enter(struct memwait_users *users, const struct memwait_op *op);
void memwait_users_leave(struct memwait_users *users, const struct memwait_op *op);
int memwait_users_drain(struct memwait_users *users, const volatile void *word);

/*
 * What a round does next: begins (MEMWAIT_OP_BEGIN), or goes on after a wait has ended with
 * @outcome, an outcome or a negative error number. Returns the result, or MEMWAIT_OP_WAITS to sleep
 * as @round says.
 */
typedef int memwait_look_t(struct memwait_users *users, struct memwait_round *round, int outcome);

int memwait_users_wait(struct memwait_users *users, memwait_look_t *look,
		       const struct memwait_deadline *deadline);
int memwait_users_step(struct memwait_users *users, memwait_look_t *look, struct memwait_op *op,
		       int outcome);

/* mutex.c: for condition variables */
bool memwait_mutex_is_held(memwait_mutex_t *public_mutex);
_Atomic uint32_t *memwait_mutex_word(memwait_mutex_t *public_mutex, uint32_t flags);
void memwait_mutex_release_all(memwait_mutex_t *public_mutex, uint32_t flags, uint32_t *count,
			       const volatile void **wake);
int memwait_mutex_take_again(memwait_mutex_t *public_mutex, uint32_t count, bool contended);
int memwait_mutex_step_again(memwait_mutex_t *public_mutex, uint32_t count, struct memwait_op *op,
			     int outcome);
void memwait_mutex_undo_again(memwait_mutex_t *public_mutex, int outcome);

#endif /* MEMWAIT_INTERNAL_H */
