/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * libmemwait: locks, condition variables and more, for threads and for event loops, within a
 * process and across processes. See libmemwait(7), and the page of each function.
 *
 * The blocking functions are those of pthreads with the prefix changed. Each has a form that does
 * not block: it takes an operation (memwait_op_t) of a loop (memwait_loop_t), whose callback runs
 * when the loop is dispatched.
 *
 * Lock words are plain data without pointers. They may lie in any memory, be mapped at different
 * addresses, and are initialised when they are zero. MEMWAIT_PRIVATE ones are for one address space
 * only, at one address, and cost less to wait on and to wake.
 *
 * Return values. Words (memwait_wait32() and so on): an outcome, MEMWAIT_OK ... MEMWAIT_OWNER_DIED,
 * or a negative error number. Everything else: 0 or a positive error number, unless it says more.
 *
 * Every function that may have to sleep or to wake, now or when it is undone, and every init, opens
 * /dev/memwait. If that fails it does nothing, and returns what open(2) said: ENOENT, ENODEV or
 * ENXIO without the module, EMFILE ...; or ENOTTY: it is something else. So what was locked can be
 * unlocked.
 *
 * EINVAL: NULL, a clock that is neither CLOCK_REALTIME nor CLOCK_MONOTONIC, unknown flags; and,
 * when it is needed, a deadline with nanoseconds below 0 or above 999,999,999. Times before 1970
 * have passed. A word, or an array of words, that is NULL is -EFAULT where the kernel looks at it:
 * not at a private word that is notified.
 *
 * The functions *_timed*() take a deadline of CLOCK_REALTIME and the functions *_clock*() of the
 * clock that they name. Deadlines are absolute.
 *
 * The functions *_async() return 0 if all is done already: the callback will not run. They return
 * EINPROGRESS if it will, once, with what the blocking function would have returned. EOWNERDEAD: as
 * 0, see memwait_mutex_lock(). Other errors: nothing was begun; EBUSY: the operation is pending;
 * EPERM: its loop is of the parent process. ENOSPC: the user has as many pending waits as the
 * module allows; ENOMEM.
 */
#ifndef MEMWAIT_H
#define MEMWAIT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <linux/memwait.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In plain C99 <time.h> has none. */
struct timespec;

/*
 * Whether the device can be used: 0, and then it has been opened; or a negative error number, as
 * the other functions would say it: -ENOENT, -ENXIO, -EACCES, -EMFILE ... of open(2); -ENOTTY: it
 * is something else, or another version; -EPERM ...: what a seccomp filter says.
 */
int memwait_available(void);

/* Loops and operations */

/* An event source: one context of /dev/memwait and the operations that are pending on it. */
typedef struct memwait_loop memwait_loop_t;

/*
 * An operation; the memory is the caller's, and nothing is allocated for it. memwait_op_init()
 * makes it ready for any number of operations, one at a time. While it is pending, until its
 * callback begins or memwait_op_cancel() has returned 0, it must stay where it is.
 */
typedef union {
	uint64_t reserved[32];
	void *align;
} memwait_op_t;

/*
 * Runs within memwait_loop_dispatch() or memwait_loop_run(), in the thread that called it, without
 * any lock of the library. It may do anything: begin the next operation with @op, cancel others,
 * lock, unlock, free @op, dispatch, end its thread; but not free the loop, nor leave by longjmp()
 * or an exception. @result: what the blocking function would have returned.
 */
typedef void (*memwait_callback_t)(memwait_op_t *op, int result, void *data);

/*
 * ENOENT, ENODEV, EACCES, EMFILE ...: what open(2) of /dev/memwait said; ENOTTY: it is something
 * else. ENOMEM. ENOSPC: over one of the user's limits, of waits or of ids.
 */
int memwait_loop_new(memwait_loop_t **loop);

/*
 * EBUSY: operations are pending, or somebody is within memwait_loop_dispatch() or
 * memwait_loop_run(), as a callback is. In a child of fork() it frees the child's copy. NULL is
 * fine.
 */
int memwait_loop_free(memwait_loop_t *loop);

/*
 * The descriptor to poll for POLLIN, in any event loop: it is readable when there is something to
 * dispatch. Not to be read or closed. -EINVAL: loop is NULL.
 */
int memwait_loop_fd(const memwait_loop_t *loop);

/*
 * Runs the callbacks of what has completed, at most 64; never blocks. Returns how many it ran, or
 * a negative error number: -EPERM in a child of fork(). What remains keeps the descriptor readable;
 * with edge-triggered polling call again until it returns 0. Threads may dispatch at the same time.
 */
int memwait_loop_dispatch(memwait_loop_t *loop);

/*
 * For programs without a loop: dispatches until no operation is pending, or memwait_loop_stop().
 * Several threads may run one loop. An operation is not pending while its callback runs: a thread
 * that looks then may return. A cancellation point. EPERM in a child of fork().
 */
int memwait_loop_run(memwait_loop_t *loop);

/*
 * Makes each memwait_loop_run() that is under way, in whichever thread, return after the current
 * callback. If there is none, the next one returns at once. From any thread, or signal handler.
 * EPERM in a child of fork().
 */
int memwait_loop_stop(memwait_loop_t *loop);

/* How many operations are pending: what a host loop stays alive for. */
size_t memwait_loop_pending(const memwait_loop_t *loop);

/*
 * Binds an operation that is not pending to a loop. @data is for the callback. All other functions
 * need it: they refuse zeroed memory (EINVAL), and cannot tell other memory from an operation.
 */
int memwait_op_init(memwait_op_t *op, memwait_loop_t *loop, memwait_callback_t callback,
		    void *data);

/*
 * Takes an operation back, from any thread. 0: the callback will not run, nothing is locked or
 * consumed, and a wake-up that had reached the operation goes to the next waiter. ENOENT: it is not
 * pending; its callback has run, or has begun to. EPERM in a child of fork().
 */
int memwait_op_cancel(memwait_op_t *op);

/* Whether the operation is pending: 1 or 0. */
int memwait_op_pending(const memwait_op_t *op);

/*
 * Of a memwait_wait_any_async(): the word that its result MEMWAIT_OK, or MEMWAIT_NOT_EQUAL, is
 * about. 0 of others.
 */
unsigned int memwait_op_index(const memwait_op_t *op);

/* Words */

/* For the flags of the functions on words, beside MEMWAIT_PRIVATE and MEMWAIT_CLOCK_REALTIME. */
#define MEMWAIT_RELATIVE	0x10000u	/* the timeout is counted from now */

/*
 * Waits while *word == expected. A word is a naturally aligned integer of that size, atomic or not.
 * @timeout: NULL is for ever; otherwise a time of CLOCK_MONOTONIC, or by flag of CLOCK_REALTIME or
 * relative. @flags: MEMWAIT_PRIVATE, MEMWAIT_CLOCK_REALTIME, MEMWAIT_RELATIVE, MEMWAIT_OWNED.
 *
 * MEMWAIT_OWNED: it is told of deaths, see memwait(4): MEMWAIT_OWNER_DIED. The lower 62 bits of a
 * word of 64 bits are its owner's id, see memwait_owner(). The calling thread gets an id:
 * -EOPNOTSUPP, -ENOSPC, -ENOMEM.
 *
 * Returns MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT, MEMWAIT_OWNER_DIED; or -EINVAL
 * (misaligned), -EFAULT, -EINTR, -EOPNOTSUPP (device memory; 64 bits on a 32-bit kernel), -ENOMEM.
 */
int memwait_wait8(const volatile void *word, uint8_t expected, const struct timespec *timeout,
		  unsigned int flags);
int memwait_wait16(const volatile void *word, uint16_t expected, const struct timespec *timeout,
		   unsigned int flags);
int memwait_wait32(const volatile void *word, uint32_t expected, const struct timespec *timeout,
		   unsigned int flags);
int memwait_wait64(const volatile void *word, uint64_t expected, const struct timespec *timeout,
		   unsigned int flags);

/*
 * The same for a loop, which has an id. Returns MEMWAIT_PENDING if the callback will run: with
 * MEMWAIT_OK, MEMWAIT_TIMED_OUT or MEMWAIT_OWNER_DIED; otherwise what the wait would have returned.
 * -EBUSY, -EPERM, -ENOSPC as above.
 */
int memwait_wait8_async(const volatile void *word, uint8_t expected,
			const struct timespec *timeout, unsigned int flags, memwait_op_t *op);
int memwait_wait16_async(const volatile void *word, uint16_t expected,
			 const struct timespec *timeout, unsigned int flags, memwait_op_t *op);
int memwait_wait32_async(const volatile void *word, uint32_t expected,
			 const struct timespec *timeout, unsigned int flags, memwait_op_t *op);
int memwait_wait64_async(const volatile void *word, uint64_t expected,
			 const struct timespec *timeout, unsigned int flags, memwait_op_t *op);

/*
 * Wakes up to @count waiters of the word, the oldest first; MEMWAIT_ALL: all. Waiters of every size
 * stand in one queue. @flags: 0 or MEMWAIT_PRIVATE. Returns how many were woken, or -EFAULT...
 */
int memwait_notify(const volatile void *word, unsigned int count, unsigned int flags);

/*
 * Changes a word of 32 bits by an atomic operation, MEMWAIT_CHANGE_SET, _ADD, _AND, _OR or _XOR,
 * and wakes up to @count of its waiters, in one system call that no signal and no SIGKILL can
 * split. *@old, unless it is NULL: what it held before. @flags: 0 or MEMWAIT_PRIVATE. Returns how
 * many were woken; or, and then nothing was done: -EINVAL, -EFAULT, -EOPNOTSUPP.
 */
int memwait_change_notify(volatile void *word, unsigned int operation, uint32_t operand,
			  unsigned int count, unsigned int flags, uint32_t *old);

/*
 * The id of the calling thread, by which a word can say who has it: not 0, within
 * MEMWAIT_OWNER_MASK, never used again, the same in every process and namespace. -EOPNOTSUPP: the
 * kernel has none; -ENOSPC: the user's limit; -ENOMEM; or what open(2) of the device said.
 */
int memwait_owner(uint64_t *id);

/* How many waiters the word has, out of date at once: for tests and diagnosis. */
int memwait_waiters(const volatile void *word, unsigned int flags);

/* Several words. MEMWAIT_SIZE_U8 ... _U64 among the flags say how large a word is. */

/*
 * Waits while all of @count words, 1 to MEMWAIT_GROUP_MAX, have their expected values, until one of
 * them is notified: one notify, and no more, is spent on it. Of each of @waits the addr, expected
 * and flags (size, MEMWAIT_PRIVATE) count, the rest is 0; words may occur more than once. @timeout
 * and @flags as for memwait_wait32(), without MEMWAIT_PRIVATE. *@index (unless @index is NULL): the
 * word that MEMWAIT_OK or MEMWAIT_NOT_EQUAL is about; if several are not equal, the first of them.
 *
 * Returns as memwait_wait32().
 */
int memwait_wait_any(const struct memwait_wait *waits, unsigned int count,
		     const struct timespec *timeout, unsigned int flags, unsigned int *index);

/*
 * The same for a loop; for the index see memwait_op_index(). @waits must stay as it is while the
 * operation is pending.
 */
int memwait_wait_any_async(const struct memwait_wait *waits, unsigned int count,
			   const struct timespec *timeout, unsigned int flags, memwait_op_t *op);

/*
 * While *word == expected: wakes up to @count of its waiters, and moves up to @move of those that
 * come next to the end of @target's queue, as one step. @flags: a size, and MEMWAIT_PRIVATE, for
 * both words. *@woken and *@moved, unless they are NULL: how many. A moved waiter does not know:
 * should a signal interrupt it, it looks at its own word again; an operation that is cancelled when
 * it had been notified hands the wake-up to the next waiter of its own word.
 *
 * Returns 0, MEMWAIT_NOT_EQUAL: nothing was done; or a negative error number as memwait_wait32(),
 * or -EXDEV: the words are of two files, or one is of a file and the other one is not.
 */
int memwait_requeue(const volatile void *word, uint64_t expected, const volatile void *target,
		    unsigned int count, unsigned int move, unsigned int flags, unsigned int *woken,
		    unsigned int *moved);

/*
 * memwait_notify(target, count), then a wait on @word, in one system call: to hand over to somebody
 * and wait for the answer. @flags: as for memwait_wait32(), and the size of @word; MEMWAIT_PRIVATE
 * is for both. *@notified, unless it is NULL: how many were woken.
 *
 * Returns as memwait_wait32(). -EINTR: the notify has been done; go on with memwait_wait32() or its
 * like. Other errors: see *@notified.
 */
int memwait_notify_wait(const volatile void *target, unsigned int count, const volatile void *word,
			uint64_t expected, const struct timespec *timeout, unsigned int flags,
			unsigned int *notified);

/*
 * Notifies @count words in one system call: of each of @notifies the addr, count and flags (0 or
 * MEMWAIT_PRIVATE). The kernel reads them as they are: it also takes a size among the flags, and
 * then the addr has to be a multiple of it. @woken: NULL, or an array that gets how many each of
 * them woke. A loop that has operations on many of them is woken a few times only.
 *
 * Returns how many were done; what comes after that has failed. If it is the first: -EINVAL,
 * -EFAULT, -EOPNOTSUPP.
 */
int memwait_notify_many(const struct memwait_notify *notifies, unsigned int count,
			unsigned int *woken);

/* Mutexes */

typedef union {
	uint32_t reserved[8];
} __attribute__((__aligned__(8))) memwait_mutex_t;

#define MEMWAIT_MUTEX_INIT	{ { 0 } }

/*
 * Kinds. FAIR or ROBUST can be added to one of the first three, and MEMWAIT_PRIVATE to all. Owners
 * matter to all but NORMAL and FAIR. Unless it is PRIVATE and not ROBUST, such a mutex knows its
 * owner by an id of the kernel's, which a thread gets when it first needs one: ENOENT and so on
 * without the device, EOPNOTSUPP where the kernel has none, ENOSPC over the user's limit.
 */
#define MEMWAIT_MUTEX_NORMAL		0x0u	/* the first that finds it free gets it */
#define MEMWAIT_MUTEX_RECURSIVE		0x1u	/* its owner can lock it again; so owners matter */
#define MEMWAIT_MUTEX_ERRORCHECK	0x2u	/* locking twice: EDEADLK, others unlock: EPERM */
#define MEMWAIT_MUTEX_FAIR		0x4u	/* handed over in the order of waiting */
#define MEMWAIT_MUTEX_ROBUST		0x8u	/* if its owner dies the next one gets EOWNERDEAD */

/* EINVAL: no such kind. */
int memwait_mutex_init(memwait_mutex_t *mutex, unsigned int kind);

/*
 * EBUSY: it is locked; a ROBUST one, by a living thread. Afterwards the memory can be used for
 * other things, or initialised again.
 */
int memwait_mutex_destroy(memwait_mutex_t *mutex);

/*
 * Not a cancellation point, and no signal interrupts it. EDEADLK: an ERRORCHECK mutex that is the
 * caller's. EAGAIN: a RECURSIVE one that is locked too often.
 *
 * A ROBUST one, here and in all functions below that lock: EOWNERDEAD: it is locked, but the thread
 * that had it before has died with it. Put right what it guards, call memwait_mutex_consistent(),
 * and go on. ENOTRECOVERABLE: it was unlocked without that, and can only be destroyed.
 */
int memwait_mutex_lock(memwait_mutex_t *mutex);

/* EBUSY: somebody has it, and lives. */
int memwait_mutex_trylock(memwait_mutex_t *mutex);

/* ETIMEDOUT: the deadline came first. */
int memwait_mutex_timedlock(memwait_mutex_t *mutex, const struct timespec *abstime);
int memwait_mutex_clocklock(memwait_mutex_t *mutex, clockid_t clock,
			    const struct timespec *abstime);

/* EPERM: it is not locked; or, if owners matter, not by the calling thread. */
int memwait_mutex_unlock(memwait_mutex_t *mutex);

/*
 * After EOWNERDEAD: what the mutex guards is right again. EINVAL: it is not ROBUST, or there was no
 * need. EPERM: another thread has it.
 */
int memwait_mutex_consistent(memwait_mutex_t *mutex);

/*
 * The callback, or the caller if it returns 0, has the mutex locked; EOWNERDEAD likewise, see
 * above. If owners matter, the owner is the thread that runs the callback.
 */
int memwait_mutex_lock_async(memwait_mutex_t *mutex, memwait_op_t *op);
int memwait_mutex_clocklock_async(memwait_mutex_t *mutex, clockid_t clock,
				  const struct timespec *abstime, memwait_op_t *op);

/*
 * Runs the callback, with result 0 or EOWNERDEAD, once the mutex is locked, and unlocks it after
 * the callback has returned. Never blocks. Returns 0 if the mutex was free: the callback has run
 * already; EINPROGRESS if it will. If that fails the callback runs with the error and without the
 * mutex. The callback must leave the mutex locked: EPERM, or ENOENT and so on from waking, is of
 * the unlocking, and then the callback has run. In a child that the callback returns in: EPERM.
 */
int memwait_mutex_execute_locked(memwait_mutex_t *mutex, memwait_op_t *op);

/* Condition variables */

typedef union {
	uint64_t reserved[4];
} __attribute__((__aligned__(8))) memwait_cond_t;

#define MEMWAIT_COND_INIT	{ { 0 } }

/* @flags: 0 or MEMWAIT_PRIVATE, as its mutexes should be. */
int memwait_cond_init(memwait_cond_t *cond, unsigned int flags);

/*
 * EBUSY: somebody waits, be it an operation that was woken and whose callback has not begun. It can
 * be destroyed once all waiters were woken: destroy waits for those on their way out, however long
 * that takes. A process that was killed there never leaves: EBUSY if nobody has left for ten
 * seconds, unless it is PRIVATE. The memory can be initialised again.
 */
int memwait_cond_destroy(memwait_cond_t *cond);

/*
 * The mutex is unlocked while waiting, a recursive one entirely, and locked again on return,
 * whatever is returned but ENOTRECOVERABLE. They may return without a signal, as POSIX allows: look
 * at the predicate again. Cancellation points: the clean-up handlers of a cancelled thread run with
 * the mutex locked, and no signal is consumed. ETIMEDOUT. EPERM: the mutex is not locked; then, and
 * if the device cannot be opened, it was not unlocked either. Of a ROBUST mutex EOWNERDEAD: it is
 * locked, and its owner has died meanwhile; ENOTRECOVERABLE: it is not locked.
 */
int memwait_cond_wait(memwait_cond_t *cond, memwait_mutex_t *mutex);
int memwait_cond_timedwait(memwait_cond_t *cond, memwait_mutex_t *mutex,
			   const struct timespec *abstime);
int memwait_cond_clockwait(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
			   const struct timespec *abstime);

/*
 * Wake one, all, or up to @count of those who waited when it was called, oldest first, with or
 * without the mutex.
 */
int memwait_cond_signal(memwait_cond_t *cond);
int memwait_cond_broadcast(memwait_cond_t *cond);
int memwait_cond_notify(memwait_cond_t *cond, unsigned int count);

/*
 * The caller has the mutex locked. EINPROGRESS: it is unlocked now, and the callback will run with
 * the mutex locked, and result 0 or ETIMEDOUT. Anything else: the mutex is still locked. When the
 * operation is cancelled the mutex is not locked for it, and no signal is lost.
 *
 * ENOMEM or ENOSPC in the callback: it could not wait for the mutex, and does not have it; a signal
 * has gone to the next waiter. EOWNERDEAD, ENOTRECOVERABLE: as above.
 */
int memwait_cond_wait_async(memwait_cond_t *cond, memwait_mutex_t *mutex, memwait_op_t *op);
int memwait_cond_clockwait_async(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
				 const struct timespec *abstime, memwait_op_t *op);

/* Semaphores */

typedef union {
	uint64_t reserved[2];
} __attribute__((__aligned__(8))) memwait_sem_t;

#define MEMWAIT_SEM_VALUE_MAX	0x7fffffff

/* @pshared: 0 for a MEMWAIT_PRIVATE one, as of sem_init(3). EINVAL: value too large. */
int memwait_sem_init(memwait_sem_t *sem, int pshared, unsigned int value);

/* EBUSY: somebody waits. One that was woken is not counted, unless it is private. */
int memwait_sem_destroy(memwait_sem_t *sem);

/* Cancellation points. EINTR as sem_wait(3). ETIMEDOUT. trywait: EAGAIN. */
int memwait_sem_wait(memwait_sem_t *sem);
int memwait_sem_trywait(memwait_sem_t *sem);
int memwait_sem_timedwait(memwait_sem_t *sem, const struct timespec *abstime);
int memwait_sem_clockwait(memwait_sem_t *sem, clockid_t clock, const struct timespec *abstime);
int memwait_sem_wait_async(memwait_sem_t *sem, memwait_op_t *op);
int memwait_sem_clockwait_async(memwait_sem_t *sem, clockid_t clock,
				const struct timespec *abstime, memwait_op_t *op);

/* Async-signal-safe. EOVERFLOW: MEMWAIT_SEM_VALUE_MAX is reached. */
int memwait_sem_post(memwait_sem_t *sem);
int memwait_sem_getvalue(memwait_sem_t *sem, int *value);

/*
 * Read-write locks. By default they prefer readers, as glibc's do: waiting writers keep no reader
 * out. Readers that come and go without a gap keep the writers of such a lock waiting for ever.
 */

typedef union {
	uint32_t reserved[8];
} __attribute__((__aligned__(8))) memwait_rwlock_t;

#define MEMWAIT_RWLOCK_INIT	{ { 0 } }

/*
 * Kinds, to which MEMWAIT_PRIVATE can be added. Those that wait have no order among them, unless it
 * is FAIR. PREFER_WRITER: the first writer that waits comes before all readers that come later.
 */
#define MEMWAIT_RWLOCK_PREFER_READER	0x0u	/* the default */
#define MEMWAIT_RWLOCK_FAIR		0x4u	/* got in the order of waiting */
#define MEMWAIT_RWLOCK_ROBUST		0x8u	/* if a writer dies the next one gets EOWNERDEAD */
#define MEMWAIT_RWLOCK_PREFER_WRITER	0x10u	/* no thread reads twice at a time; not FAIR */

/* EINVAL: no such kind. */
int memwait_rwlock_init(memwait_rwlock_t *rwlock, unsigned int kind);

/*
 * EBUSY: it is locked; a ROBUST one, by readers or by a living writer. The last thread that unlocks
 * it can destroy it: destroy waits for a writer before that is still within unlock. A writer that
 * was killed there never leaves: EBUSY after ten seconds, unless the lock is PRIVATE or ROBUST.
 */
int memwait_rwlock_destroy(memwait_rwlock_t *rwlock);

/*
 * A thread may have it for reading several times, and unlocks it as often; but not a FAIR or
 * PREFER_WRITER one, as a writer may be waiting. A reader must not ask for writing. EAGAIN: too
 * many readers. try: EBUSY. ETIMEDOUT.
 *
 * A ROBUST one, here and in all functions that lock. EOWNERDEAD: a writer has died, and the caller
 * has the lock for writing, whichever it asked for. It puts right what is guarded, calls
 * memwait_rwlock_consistent(), and unlocks. ENOTRECOVERABLE: that was left out. A reader that dies
 * stays a reader: writers wait for ever. ENOENT and so on, ENOSPC: as of a ROBUST mutex.
 */
int memwait_rwlock_rdlock(memwait_rwlock_t *rwlock);
int memwait_rwlock_tryrdlock(memwait_rwlock_t *rwlock);
int memwait_rwlock_timedrdlock(memwait_rwlock_t *rwlock, const struct timespec *abstime);
int memwait_rwlock_clockrdlock(memwait_rwlock_t *rwlock, clockid_t clock,
			       const struct timespec *abstime);
int memwait_rwlock_rdlock_async(memwait_rwlock_t *rwlock, memwait_op_t *op);
int memwait_rwlock_clockrdlock_async(memwait_rwlock_t *rwlock, clockid_t clock,
				     const struct timespec *abstime, memwait_op_t *op);
int memwait_rwlock_wrlock(memwait_rwlock_t *rwlock);
int memwait_rwlock_trywrlock(memwait_rwlock_t *rwlock);
int memwait_rwlock_timedwrlock(memwait_rwlock_t *rwlock, const struct timespec *abstime);
int memwait_rwlock_clockwrlock(memwait_rwlock_t *rwlock, clockid_t clock,
			       const struct timespec *abstime);
int memwait_rwlock_wrlock_async(memwait_rwlock_t *rwlock, memwait_op_t *op);
int memwait_rwlock_clockwrlock_async(memwait_rwlock_t *rwlock, clockid_t clock,
				     const struct timespec *abstime, memwait_op_t *op);

/* EPERM: it is not locked; a ROBUST one, by another writer. */
int memwait_rwlock_unlock(memwait_rwlock_t *rwlock);

/* As memwait_mutex_consistent(). */
int memwait_rwlock_consistent(memwait_rwlock_t *rwlock);

/* Barriers */

typedef union {
	uint64_t reserved[4];
} __attribute__((__aligned__(8))) memwait_barrier_t;

/* What one of the threads that meet gets instead of 0, as PTHREAD_BARRIER_SERIAL_THREAD. */
#define MEMWAIT_BARRIER_SERIAL_THREAD	(-1)

/* @flags: 0 or MEMWAIT_PRIVATE. @count: how many meet; EINVAL if 0. */
int memwait_barrier_init(memwait_barrier_t *barrier, unsigned int flags, unsigned int count);

/*
 * EBUSY: somebody waits. Those on their way out are waited for, as by memwait_cond_destroy().
 * EINVAL, here and below: zeroed memory, which is not a barrier.
 */
int memwait_barrier_destroy(memwait_barrier_t *barrier);

/* ETIMEDOUT and a cancelled operation: the arrival is taken back. */
int memwait_barrier_wait(memwait_barrier_t *barrier);
int memwait_barrier_timedwait(memwait_barrier_t *barrier, const struct timespec *abstime);
int memwait_barrier_clockwait(memwait_barrier_t *barrier, clockid_t clock,
			      const struct timespec *abstime);

/*
 * 0: all have met by now; MEMWAIT_BARRIER_SERIAL_THREAD: and it is the one of them; EINPROGRESS:
 * the callback gets one of the two. Of a private barrier the last one to come is the one.
 */
int memwait_barrier_wait_async(memwait_barrier_t *barrier, memwait_op_t *op);
int memwait_barrier_clockwait_async(memwait_barrier_t *barrier, clockid_t clock,
				    const struct timespec *abstime, memwait_op_t *op);

/* Wait groups: wait until a count is zero. */

typedef union {
	uint64_t reserved[4];
} __attribute__((__aligned__(8))) memwait_waitgroup_t;

#define MEMWAIT_WAITGROUP_INIT	{ { 0 } }
#define MEMWAIT_WAITGROUP_MAX	0x3fffffff

/* @flags: 0 or MEMWAIT_PRIVATE. EINVAL: count too large. */
int memwait_waitgroup_init(memwait_waitgroup_t *group, unsigned int flags, unsigned int count);

/*
 * EBUSY: the count is not zero, or a callback has not begun. Those on their way out are waited for,
 * as by memwait_cond_destroy().
 */
int memwait_waitgroup_destroy(memwait_waitgroup_t *group);

/* Adds to the count, or takes away. EINVAL: it would be negative. EOVERFLOW: too large. */
int memwait_waitgroup_add(memwait_waitgroup_t *group, int delta);

/* Takes away one. */
int memwait_waitgroup_done(memwait_waitgroup_t *group);

/* Waits until the count is zero, be it for a moment. ETIMEDOUT. */
int memwait_waitgroup_wait(memwait_waitgroup_t *group);
int memwait_waitgroup_timedwait(memwait_waitgroup_t *group, const struct timespec *abstime);
int memwait_waitgroup_clockwait(memwait_waitgroup_t *group, clockid_t clock,
				const struct timespec *abstime);
int memwait_waitgroup_wait_async(memwait_waitgroup_t *group, memwait_op_t *op);
int memwait_waitgroup_clockwait_async(memwait_waitgroup_t *group, clockid_t clock,
				      const struct timespec *abstime, memwait_op_t *op);

/* Channels: bounded queues of items of one size, for several senders and receivers. */

/* In the caller's memory: memwait_channel_size() bytes, aligned to 8, better to 64. */
typedef struct memwait_channel memwait_channel_t;

/*
 * How many bytes a channel takes; 0 if it cannot be: neither may be 0, item_size not above 2^32 -
 * 1, capacity not above 2^30.
 */
size_t memwait_channel_size(size_t item_size, size_t capacity);

/*
 * @flags: 0 or MEMWAIT_PRIVATE. EINVAL: as above; or misaligned. Zeroed memory is not a channel:
 * EINVAL from all others.
 */
int memwait_channel_init(memwait_channel_t *channel, unsigned int flags, size_t item_size,
			 size_t capacity);

/* EBUSY: somebody waits, as of memwait_sem_destroy(). Otherwise nobody may be within a call. */
int memwait_channel_destroy(memwait_channel_t *channel);

/* EPIPE: closed. try: EAGAIN: full. ETIMEDOUT. */
int memwait_channel_send(memwait_channel_t *channel, const void *item);
int memwait_channel_trysend(memwait_channel_t *channel, const void *item);
int memwait_channel_timedsend(memwait_channel_t *channel, const void *item,
			      const struct timespec *abstime);
int memwait_channel_clocksend(memwait_channel_t *channel, const void *item, clockid_t clock,
			      const struct timespec *abstime);

/* The item must stay where it is until the callback. */
int memwait_channel_send_async(memwait_channel_t *channel, const void *item, memwait_op_t *op);
int memwait_channel_clocksend_async(memwait_channel_t *channel, const void *item, clockid_t clock,
				    const struct timespec *abstime, memwait_op_t *op);

/* EPIPE: closed, and all items have been received. try: EAGAIN: empty. ETIMEDOUT. */
int memwait_channel_recv(memwait_channel_t *channel, void *item);
int memwait_channel_tryrecv(memwait_channel_t *channel, void *item);
int memwait_channel_timedrecv(memwait_channel_t *channel, void *item,
			      const struct timespec *abstime);
int memwait_channel_clockrecv(memwait_channel_t *channel, void *item, clockid_t clock,
			      const struct timespec *abstime);
int memwait_channel_recv_async(memwait_channel_t *channel, void *item, memwait_op_t *op);
int memwait_channel_clockrecv_async(memwait_channel_t *channel, void *item, clockid_t clock,
				    const struct timespec *abstime, memwait_op_t *op);

/* Nothing can be sent any more; what was sent can be received. EPIPE: it was closed already. */
int memwait_channel_close(memwait_channel_t *channel);

/* How many items there are, out of date at once. */
size_t memwait_channel_length(memwait_channel_t *channel);

#ifdef __cplusplus
}
#endif

#endif /* MEMWAIT_H */
