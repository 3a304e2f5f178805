/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * libmemwait: locks, condition variables and more for threads and event loops, within a process and
 * across processes. See libmemwait(7) and each function's page.
 *
 * Blocking functions follow pthreads, with another prefix. Each has an *_async() form, which takes
 * an operation (memwait_op_t) of a loop (memwait_loop_t) and runs its callback when the loop is
 * dispatched.
 *
 * Lock words are plain data without pointers, in any memory, even mapped at different addresses.
 * Zeroed means initialised, but for barriers and channels. MEMWAIT_PRIVATE words belong to one
 * address space and stay at one address; waiting and waking cost less. An object of a kind that
 * this library does not know, such as a later one's, is EINVAL in every function.
 *
 * What pthreads have, and its *_async() form, returns 0 or a positive error number. Everything
 * else, words, loops and operations, returns a result >= 0 or a negative error number; for word
 * functions (memwait_wait32() etc.) the result is an outcome, MEMWAIT_OK ... MEMWAIT_OWNER_DIED.
 *
 * Every init, and every function that may have to sleep or wake, now or when undone, opens
 * /dev/memwait. So whatever was locked can be unlocked. If the open fails, nothing is done (but an
 * init has written the object) and open(2)'s error is returned: ENOENT, ENODEV or ENXIO without the
 * module, EMFILE ...; ENOTTY: not this device; or ENOSYS: an older module.
 *
 * EINVAL: NULL, a clock other than CLOCK_REALTIME and CLOCK_MONOTONIC, unknown flags, and, only
 * when the deadline is needed, nanoseconds outside 0 to 999,999,999. Times before 1970 have passed.
 * A NULL word or array is -EFAULT where the kernel reads it, so not when a private word is
 * notified.
 *
 * *_timed*() take a CLOCK_REALTIME deadline, *_clock*() one of the given clock. Deadlines are
 * absolute. Only memwait_cond_timedwait() may have another, see MEMWAIT_COND_MONOTONIC.
 *
 * *_async() return 0 if done already: the callback will not run. EINPROGRESS: it runs once, with
 * the blocking function's result. EOWNERDEAD: as 0, see memwait_mutex_lock(). On other errors
 * nothing was begun. EBUSY: the operation is pending. EPERM: the loop is a parent process's.
 * ENOSPC: the user's limit of pending waits. ENOMEM.
 */
#ifndef MEMWAIT_H
#define MEMWAIT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <linux/memwait.h>

#ifdef __cplusplus
/* Functions have names of structs, as stat(2) has, and g++ takes them for hidden constructors. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#endif

/* Plain C99 <time.h> does not declare it. */
struct timespec;

/* Of what locks, waits or initialises: a caller that ignores its result may have no lock. */
#define MEMWAIT_CHECKED		__attribute__((__warn_unused_result__))

/*
 * Times have 64 bits, as in the library: 32-bit programs on glibc are built with -D_TIME_BITS=64
 * -D_FILE_OFFSET_BITS=64.
 */
typedef char memwait_build_with_D_TIME_BITS_64_D_FILE_OFFSET_BITS_64[sizeof(time_t) == 8 ? 1 : -1];

/* Of this header. memwait_version(): of the library that the program runs with. */
#define MEMWAIT_VERSION_MAJOR	1
#define MEMWAIT_VERSION_MINOR	0
#define MEMWAIT_VERSION_PATCH	0
#define MEMWAIT_VERSION								\
	((MEMWAIT_VERSION_MAJOR << 16) + (MEMWAIT_VERSION_MINOR << 8) + MEMWAIT_VERSION_PATCH)

unsigned int memwait_version(void);

/*
 * What an error number means here, positive or negative: strerror(3) knows nothing of the device.
 * Not for outcomes, which have the same numbers: see memwait_stroutcome() and
 * memwait_op_strerror(). The next call of one of the three in the same thread may replace the text.
 */
const char *memwait_strerror(int error);

/*
 * The same of what word functions, and memwait_loop_run(), return: MEMWAIT_OK ...
 * MEMWAIT_OWNER_DIED, or a negative error number.
 */
const char *memwait_stroutcome(int result);

/*
 * Returns 0, with the device open, if the device can be used. Otherwise a negative error number as
 * from the other functions: -ENOENT, -ENXIO, -EACCES, -EMFILE ... of open(2); -ENOTTY: not this
 * device; -ENOSYS: an older module; -EPERM ...: from a seccomp filter.
 */
int memwait_available(void);

/* A flag for timeouts of loops and words, of MEMWAIT_LIBRARY_FLAGS. */
#define MEMWAIT_RELATIVE	0x10000u	/* the timeout counts from now */

/* Loops and operations */

/* An event source: a context of /dev/memwait and its pending operations. */
typedef struct memwait_loop memwait_loop_t;

/*
 * An operation. The caller owns the memory; the library allocates none. Reusable after
 * memwait_op_init(), once at a time. It must not move while pending: until its callback begins, for
 * memwait_watch*() its last one, or memwait_op_cancel() returns 0.
 */
typedef union {
	uint64_t reserved[24];
	void *align;
} memwait_op_t;

/*
 * Runs within memwait_loop_dispatch(), memwait_loop_run() or memwait_op_wait(), in the calling
 * thread, without library locks. It may do anything, such as restart or free @op, cancel, lock,
 * dispatch or end its thread, but not close the loop, nor leave by longjmp() or an exception.
 * @result: as from the blocking function.
 */
typedef void (*memwait_callback_t)(memwait_op_t *op, int result, void *data);

/*
 * @flags: 0. -ENOENT, -ENODEV, -EACCES, -EMFILE ...: from open(2) of /dev/memwait; -ENOTTY: not
 * this device; -ENOSYS: an older module. -ENOMEM. -ENOSPC: over one of the user's limits, of waits
 * or ids.
 */
int memwait_loop_new(memwait_loop_t **loop, unsigned int flags) MEMWAIT_CHECKED;

/*
 * Ends all pending operations, as memwait_op_cancel() does, and frees the loop. What they wait for
 * must still be there. No other thread may use the loop or its operations meanwhile; later, only
 * memwait_op_init() and memwait_op_pending() may be called for them. -EBUSY, with nothing done: a
 * thread is within memwait_loop_dispatch(), memwait_loop_run() or memwait_op_wait(), as in a
 * callback. A child of fork() closes its copy only. NULL is a no-op.
 */
int memwait_loop_close(memwait_loop_t *loop);

/*
 * The descriptor to poll for POLLIN, readable while there is something to dispatch, but for what a
 * thread that dispatches has read. Do not read or close it. -EINVAL: @loop is NULL.
 */
int memwait_loop_fd(const memwait_loop_t *loop);

/*
 * Runs the callbacks of all operations that had completed when it was called, but no more than
 * @most, which may be MEMWAIT_ALL; never blocks. Returns how many ran, or a negative error number:
 * -EPERM in a child of fork(). While more remain the descriptor is readable, and has had a new edge
 * for them: once for each readiness is enough, with edge-triggered polling too. Threads may
 * dispatch concurrently.
 */
int memwait_loop_dispatch(memwait_loop_t *loop, unsigned int most);

/*
 * For programs without a loop: dispatches until nothing is pending, or memwait_loop_stop(), and
 * returns 0; or until the deadline has passed, and returns MEMWAIT_TIMED_OUT if something is still
 * pending when all that had completed by then has been called back. @timeout, @flags: as for
 * memwait_wait32(), with MEMWAIT_CLOCK_REALTIME and MEMWAIT_RELATIVE. A run that sleeps sees within
 * a second that CLOCK_REALTIME was set.
 *
 * Several threads may run one loop. An operation is not pending while its callback runs: a thread
 * that checks then may return. A cancellation point. -EPERM in a child of fork().
 */
int memwait_loop_run(memwait_loop_t *loop, const struct timespec *timeout, unsigned int flags);

/*
 * Makes every memwait_loop_run() and memwait_op_wait() of the loop in progress, in any thread,
 * return after the current callback; if there is none, the next one returns immediately. Callable
 * from any thread or signal handler. -EPERM in a child of fork().
 */
int memwait_loop_stop(memwait_loop_t *loop);

/* Number of pending operations. A host loop stays alive while it is not 0. */
size_t memwait_loop_pending(const memwait_loop_t *loop);

/*
 * Binds an operation that is not pending to a loop. @callback may be NULL, as for
 * memwait_op_wait(); @data is passed to it. All other functions need this one: they fail with
 * EINVAL for zeroed memory, and cannot detect other uninitialised memory.
 */
int memwait_op_init(memwait_op_t *op, memwait_loop_t *loop, memwait_callback_t callback,
		    void *data);

/*
 * Cancels an operation, from any thread. 0: the callback will not run, nothing is locked or
 * consumed, and a wake-up that had reached the operation passes to the next waiter. -ENOENT: not
 * pending; its callback has run, or runs in this thread. -EINPROGRESS: the same, but its callback
 * still runs in another thread, and may use what belongs to the operation; one of memwait_watch*()
 * is cancelled, and pending until then. -EPERM in a child of fork(). Other errors are a filter's,
 * and the operation is pending still.
 */
int memwait_op_cancel(memwait_op_t *op);

/*
 * Dispatches the loop until a pending operation has ended, and no other thread runs its callback.
 * The operation must stay in place until this has returned. On a loop of the thread's own this is a
 * blocking wait that memwait_loop_stop() ends. *@result (if not NULL), with 0: what the callback
 * gets.
 * -EINTR: stopped, and the operation is still pending, in its place: wait again, or cancel it.
 * -ECANCELED: it was cancelled. -EPERM in a child of fork(). A cancellation point, at which the
 * operation stays pending.
 */
int memwait_op_wait(memwait_op_t *op, int *result) MEMWAIT_CHECKED;

/* Returns 1 if the operation is pending, or 0. */
int memwait_op_pending(const memwait_op_t *op);

/*
 * After memwait_wait_any_async(): index of the word behind MEMWAIT_OK or MEMWAIT_NOT_EQUAL. 0 for
 * other operations.
 */
unsigned int memwait_op_index(const memwait_op_t *op);

/*
 * In the callback of memwait_watch*(): how many notifies MEMWAIT_OK stands for. 0 for
 * MEMWAIT_TIMED_OUT and for other operations.
 */
unsigned int memwait_op_count(const memwait_op_t *op);

/*
 * What the @result of a callback, or *@result of memwait_op_wait(), means, whatever the operation
 * is. In the callback and later, until memwait_op_init() or the next beginning.
 */
const char *memwait_op_strerror(const memwait_op_t *op, int result);

/* Words */

/*
 * Waits while *word == expected. A word is a naturally aligned integer of that size, atomic or not.
 * @timeout: NULL: forever; otherwise on CLOCK_MONOTONIC, or by flag on CLOCK_REALTIME or relative.
 * @flags: MEMWAIT_PRIVATE, MEMWAIT_CLOCK_REALTIME, MEMWAIT_RELATIVE, MEMWAIT_OWNED.
 *
 * MEMWAIT_OWNED: deaths end the wait with MEMWAIT_OWNER_DIED, see memwait(4). The lower 62 bits of
 * a 64-bit word are its owner's id. The calling thread gets an id: -EOPNOTSUPP, -ENOSPC, -ENOMEM.
 *
 * Returns MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT, MEMWAIT_OWNER_DIED; or -EINVAL
 * (misaligned), -EFAULT, -EINTR, -EOPNOTSUPP (device memory; 64 bits on a 32-bit kernel), -ENOMEM.
 */
int memwait_wait8(const volatile void *word, uint8_t expected, const struct timespec *timeout,
		  unsigned int flags) MEMWAIT_CHECKED;
int memwait_wait16(const volatile void *word, uint16_t expected, const struct timespec *timeout,
		   unsigned int flags) MEMWAIT_CHECKED;
int memwait_wait32(const volatile void *word, uint32_t expected, const struct timespec *timeout,
		   unsigned int flags) MEMWAIT_CHECKED;
int memwait_wait64(const volatile void *word, uint64_t expected, const struct timespec *timeout,
		   unsigned int flags) MEMWAIT_CHECKED;

/*
 * The same for a loop, which has its own id. Returns MEMWAIT_PENDING if the callback will run, with
 * MEMWAIT_OK, MEMWAIT_TIMED_OUT or MEMWAIT_OWNER_DIED; otherwise the result of the wait. -EBUSY,
 * -EPERM, -ENOSPC as above.
 */
int memwait_wait8_async(const volatile void *word, uint8_t expected,
			const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
	MEMWAIT_CHECKED;
int memwait_wait16_async(const volatile void *word, uint16_t expected,
			 const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
	MEMWAIT_CHECKED;
int memwait_wait32_async(const volatile void *word, uint32_t expected,
			 const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
	MEMWAIT_CHECKED;
int memwait_wait64_async(const volatile void *word, uint64_t expected,
			 const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
	MEMWAIT_CHECKED;

/*
 * The same, but notifies do not end it: the callback runs with MEMWAIT_OK each time that some have
 * come, and memwait_op_count() says how many. The word is compared only now. One callback of the
 * operation runs at a time; what comes meanwhile is for the next one. It ends with
 * MEMWAIT_TIMED_OUT, or by memwait_op_cancel(), also in its callback, which may then free it or
 * begin it anew. What was counted and not given to a callback then passes to the next waiters, one
 * to each. Not with MEMWAIT_OWNED: -EINVAL.
 */
int memwait_watch8(const volatile void *word, uint8_t expected, const struct timespec *timeout,
		   unsigned int flags, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_watch16(const volatile void *word, uint16_t expected, const struct timespec *timeout,
		    unsigned int flags, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_watch32(const volatile void *word, uint32_t expected, const struct timespec *timeout,
		    unsigned int flags, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_watch64(const volatile void *word, uint64_t expected, const struct timespec *timeout,
		    unsigned int flags, memwait_op_t *op) MEMWAIT_CHECKED;

/*
 * Wakes up to @count waiters, oldest first; MEMWAIT_ALL: all. Waiters of all sizes share one queue.
 * @flags: 0 or MEMWAIT_PRIVATE. With a size in it, as MEMWAIT_SIZE_U32, @word must be aligned to
 * that. Returns how many were woken, or -EFAULT...
 */
int memwait_notify(const volatile void *word, unsigned int count, unsigned int flags);

/*
 * Applies an atomic operation (MEMWAIT_CHANGE_SET, _ADD, _AND, _OR, _XOR) to a 32-bit word and
 * wakes up to @count waiters, in one system call that no signal, even SIGKILL, splits. *@old (if
 * not NULL): the previous value. @flags: 0 or MEMWAIT_PRIVATE. Returns how many were woken; or
 * -EINVAL, -EFAULT, -EOPNOTSUPP with nothing done.
 *
 * With MEMWAIT_CHANGE_IF_NONE_WOKEN in @operation the word is changed only if there was no waiter
 * to wake: a wait is woken, or sees the change. Otherwise *@old is 0.
 */
int memwait_change_notify32(volatile void *word, unsigned int operation, uint32_t operand,
			    unsigned int count, unsigned int flags, uint32_t *old);

/*
 * The calling thread's id, to mark a word's owner: nonzero, random, within MEMWAIT_OWNER_MASK, the
 * same in every process and namespace. -EOPNOTSUPP: the kernel has no ids; -ENOSPC: the user's
 * limit; -ENOMEM; or from open(2).
 */
int memwait_owner(uint64_t *id);

/* Number of waiters, possibly stale on return: for tests and diagnosis. */
int memwait_waiters(const volatile void *word, unsigned int flags);

/* Several words */

/*
 * Waits while all @count words, 1 to MEMWAIT_GROUP_MAX, have their expected values, until one is
 * notified. The wake-up consumes exactly one notify. Each of @waits sets addr, expected and flags
 * (MEMWAIT_SIZE_U8 ... _U64, MEMWAIT_PRIVATE), the rest is 0; words may repeat. @timeout and @flags
 * as for memwait_wait32(), without MEMWAIT_PRIVATE. *@index (if not NULL): the word of MEMWAIT_OK,
 * or the first of MEMWAIT_NOT_EQUAL.
 *
 * Returns as memwait_wait32().
 */
int memwait_wait_any(const struct memwait_wait *waits, unsigned int count,
		     const struct timespec *timeout, unsigned int flags, unsigned int *index)
	MEMWAIT_CHECKED;

/*
 * The same for a loop; see memwait_op_index() for the index. @waits must stay unchanged while the
 * operation is pending.
 */
int memwait_wait_any_async(const struct memwait_wait *waits, unsigned int count,
			   const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
	MEMWAIT_CHECKED;

/*
 * If *word == expected, wakes up to @count waiters and moves up to @move more to the end of
 * @target's queue, in one step. @flags: 0 or MEMWAIT_PRIVATE, for both words. *@woken and
 * *@moved (if not NULL): how many. Moved waiters do not notice: after a signal they look at their
 * own word, and a cancelled operation that was notified passes the wake-up to the next waiter of
 * its own word.
 *
 * Returns 0, MEMWAIT_NOT_EQUAL (nothing done), or a negative error number as memwait_wait32(), or
 * -EXDEV: the words are of two files, or only one is of a file.
 */
int memwait_requeue8(const volatile void *word, uint8_t expected, const volatile void *target,
		     unsigned int count, unsigned int move, unsigned int flags,
		     unsigned int *woken, unsigned int *moved);
int memwait_requeue16(const volatile void *word, uint16_t expected, const volatile void *target,
		      unsigned int count, unsigned int move, unsigned int flags,
		      unsigned int *woken, unsigned int *moved);
int memwait_requeue32(const volatile void *word, uint32_t expected, const volatile void *target,
		      unsigned int count, unsigned int move, unsigned int flags,
		      unsigned int *woken, unsigned int *moved);
int memwait_requeue64(const volatile void *word, uint64_t expected, const volatile void *target,
		      unsigned int count, unsigned int move, unsigned int flags,
		      unsigned int *woken, unsigned int *moved);

/*
 * memwait_notify(target, count), then a wait on @word, in one system call. @flags: as for
 * memwait_wait32(); MEMWAIT_PRIVATE is for both. *@notified (if not NULL):
 * how many were woken.
 *
 * Returns as memwait_wait32(). -EINTR: the notify is done; continue with memwait_wait32() etc.
 * Other errors: see *@notified.
 */
int memwait_notify_wait8(const volatile void *target, unsigned int count,
			 const volatile void *word, uint8_t expected,
			 const struct timespec *timeout, unsigned int flags,
			 unsigned int *notified) MEMWAIT_CHECKED;
int memwait_notify_wait16(const volatile void *target, unsigned int count,
			  const volatile void *word, uint16_t expected,
			  const struct timespec *timeout, unsigned int flags,
			  unsigned int *notified) MEMWAIT_CHECKED;
int memwait_notify_wait32(const volatile void *target, unsigned int count,
			  const volatile void *word, uint32_t expected,
			  const struct timespec *timeout, unsigned int flags,
			  unsigned int *notified) MEMWAIT_CHECKED;
int memwait_notify_wait64(const volatile void *target, unsigned int count,
			  const volatile void *word, uint64_t expected,
			  const struct timespec *timeout, unsigned int flags,
			  unsigned int *notified) MEMWAIT_CHECKED;

/*
 * Notifies @count words in one system call. Each of @notifies sets addr, count and flags, as
 * memwait_notify() has them. @woken: NULL, or an array for how many each woke. A loop waiting on
 * many of the words is woken only a few times.
 *
 * Returns how many were done; the next one failed. If the first failed: -EINVAL, -EFAULT,
 * -EOPNOTSUPP.
 */
int memwait_notify_many(const struct memwait_notify *notifies, unsigned int count,
			unsigned int *woken);

/* Mutexes */

typedef union {
	uint32_t reserved[10];
} __attribute__((__aligned__(8))) memwait_mutex_t;

#define MEMWAIT_MUTEX_INIT		MEMWAIT_MUTEX_INIT_KIND(MEMWAIT_MUTEX_NORMAL)
#define MEMWAIT_MUTEX_INIT_KIND(kind)	{ { 0, 0, (kind) } }

/*
 * Kinds. FAIR or ROBUST combine with one of the first three, MEMWAIT_PRIVATE with all. All but
 * NORMAL and FAIR check owners. Unless PRIVATE and not ROBUST, they use kernel ids, which a thread
 * gets at first need: ENOENT etc. without the device, EOPNOTSUPP if the kernel has no ids, ENOSPC
 * over the user's limit.
 */
#define MEMWAIT_MUTEX_NORMAL		0x0u	/* the first that finds it free has it */
#define MEMWAIT_MUTEX_RECURSIVE		0x1u	/* its owner can lock it again */
#define MEMWAIT_MUTEX_ERRORCHECK	0x2u	/* relock: EDEADLK; unlock by others: EPERM */
#define MEMWAIT_MUTEX_FAIR		0x4u	/* handed over in FIFO order */
#define MEMWAIT_MUTEX_ROBUST		0x8u	/* if its owner dies, the next gets EOWNERDEAD */

/* EINVAL: no such kind. */
int memwait_mutex_init(memwait_mutex_t *mutex, unsigned int kind) MEMWAIT_CHECKED;

/*
 * EBUSY: it is locked, a ROBUST one by a living thread. Afterwards the memory may be reused or
 * initialised again.
 */
int memwait_mutex_destroy(memwait_mutex_t *mutex);

/*
 * Not a cancellation point, not interrupted by signals. EDEADLK: ERRORCHECK, and the caller has it.
 * EAGAIN: RECURSIVE, locked too often.
 *
 * ROBUST, in all functions that lock: EOWNERDEAD: locked, and the previous owner died with it.
 * Repair what it guards and call memwait_mutex_consistent(). ENOTRECOVERABLE: unlocked without that
 * call; it can only be destroyed.
 */
int memwait_mutex_lock(memwait_mutex_t *mutex) MEMWAIT_CHECKED;

/* EBUSY: a living owner has it. */
int memwait_mutex_trylock(memwait_mutex_t *mutex) MEMWAIT_CHECKED;

/* ETIMEDOUT: the deadline passed. */
int memwait_mutex_timedlock(memwait_mutex_t *mutex, const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_mutex_clocklock(memwait_mutex_t *mutex, clockid_t clock,
			    const struct timespec *abstime) MEMWAIT_CHECKED;

/* EPERM: not locked; or, if the kind checks owners, not locked by the calling thread. */
int memwait_mutex_unlock(memwait_mutex_t *mutex);

/* Returns 1 or 0: locked, by the caller if it is RECURSIVE, ERRORCHECK or ROBUST; or -EINVAL. */
int memwait_mutex_is_held(memwait_mutex_t *mutex);

/*
 * After EOWNERDEAD: marks the protected data consistent. EINVAL: not ROBUST, or not needed. EPERM:
 * another thread owns it.
 */
int memwait_mutex_consistent(memwait_mutex_t *mutex);

/*
 * The callback, or a caller that gets 0, has the mutex locked; likewise with EOWNERDEAD. If the
 * kind checks owners, the thread that runs the callback is the owner.
 */
int memwait_mutex_lock_async(memwait_mutex_t *mutex, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_mutex_clocklock_async(memwait_mutex_t *mutex, clockid_t clock,
				  const struct timespec *abstime, memwait_op_t *op) MEMWAIT_CHECKED;

/*
 * Runs the callback under the mutex, with result 0 or EOWNERDEAD, then unlocks. Never blocks. 0:
 * the callback has run. EINPROGRESS: it will run; if locking fails, with the error and without the
 * mutex. Other errors: it has not run, and will not. The callback must leave the mutex locked. If
 * it returns in a child of fork(), the mutex stays the parent's.
 */
int memwait_mutex_execute_locked(memwait_mutex_t *mutex, memwait_op_t *op) MEMWAIT_CHECKED;

/* Condition variables */

typedef union {
	uint32_t reserved[12];
} __attribute__((__aligned__(8))) memwait_cond_t;

#define MEMWAIT_COND_INIT		MEMWAIT_COND_INIT_FLAGS(0)
#define MEMWAIT_COND_INIT_FLAGS(flags)	{ { 0, 0, 0, 0, (flags) } }

/* Flags, besides MEMWAIT_PRIVATE, which is best the same as for its mutexes. */
#define MEMWAIT_COND_MONOTONIC		0x10u	/* timedwait's deadline is on CLOCK_MONOTONIC */

/* EINVAL: unknown flags. */
int memwait_cond_init(memwait_cond_t *cond, unsigned int flags) MEMWAIT_CHECKED;

/*
 * EBUSY: there are waiters, including operations whose wake-up no loop has dispatched. Once all are
 * woken, destroy waits for them to leave, without limit. One killed on its way out never leaves:
 * EBUSY if nobody leaves for ten seconds, unless PRIVATE. The memory can be initialised again.
 */
int memwait_cond_destroy(memwait_cond_t *cond);

/*
 * Unlock the mutex, a recursive one entirely, and lock it again on any return but ENOTRECOVERABLE.
 * Spurious returns are possible, as in POSIX: recheck the predicate. Cancellation points: clean-up
 * handlers run with the mutex locked, and no signal is consumed. ETIMEDOUT. EPERM: the mutex is not
 * locked. With EPERM, or no device, it was never unlocked. ROBUST: EOWNERDEAD: locked, and its
 * owner died meanwhile; ENOTRECOVERABLE: not locked.
 */
int memwait_cond_wait(memwait_cond_t *cond, memwait_mutex_t *mutex) MEMWAIT_CHECKED;
int memwait_cond_timedwait(memwait_cond_t *cond, memwait_mutex_t *mutex,
			   const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_cond_clockwait(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
			   const struct timespec *abstime) MEMWAIT_CHECKED;

/*
 * Wake one, all, or up to @count of the waiters at the time of the call, oldest first. The mutex
 * need not be locked.
 */
int memwait_cond_signal(memwait_cond_t *cond);
int memwait_cond_broadcast(memwait_cond_t *cond);
int memwait_cond_notify(memwait_cond_t *cond, unsigned int count);

/*
 * The caller has the mutex locked. EINPROGRESS: it is unlocked now, and the callback runs with it
 * locked, with 0 or ETIMEDOUT. Otherwise it is still locked. A cancelled operation neither locks
 * the mutex nor loses a signal.
 *
 * Callback with ENOMEM or ENOSPC: the operation could not wait for the mutex, which is not locked;
 * a signal has passed to the next waiter. EOWNERDEAD, ENOTRECOVERABLE: as above.
 */
int memwait_cond_wait_async(memwait_cond_t *cond, memwait_mutex_t *mutex, memwait_op_t *op)
	MEMWAIT_CHECKED;
int memwait_cond_clockwait_async(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
				 const struct timespec *abstime, memwait_op_t *op) MEMWAIT_CHECKED;

/* Semaphores */

typedef union {
	uint64_t reserved[4];
} __attribute__((__aligned__(8))) memwait_sem_t;

#define MEMWAIT_SEM_VALUE_MAX	0x7fffffff

#define MEMWAIT_SEM_INIT(value)			MEMWAIT_SEM_INIT_FLAGS(0, (value))
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define MEMWAIT_SEM_INIT_FLAGS(flags, value)					\
	{ { (value) * ((flags) & MEMWAIT_SEM_FAIR ? UINT64_C(0x10000) : 1), (flags) } }
#else
#define MEMWAIT_SEM_INIT_FLAGS(flags, value)	{ { (value), (flags) } }
#endif

/*
 * A flag, besides MEMWAIT_PRIVATE: a post is for the oldest waiter, and nobody comes before it. Its
 * value is MEMWAIT_SEM_FAIR_VALUE_MAX at most.
 */
#define MEMWAIT_SEM_FAIR		0x4u
#define MEMWAIT_SEM_FAIR_VALUE_MAX	0x7fff

/* EINVAL: unknown flags; @value is too large. */
int memwait_sem_init(memwait_sem_t *sem, unsigned int flags, unsigned int value) MEMWAIT_CHECKED;

/* EBUSY: there are waiters. A woken waiter counts only if the semaphore is private. */
int memwait_sem_destroy(memwait_sem_t *sem);

/*
 * Cancellation points. EINTR as in sem_wait(3). A FAIR one's wait is ended by neither. ETIMEDOUT.
 * trywait: EAGAIN.
 */
int memwait_sem_wait(memwait_sem_t *sem) MEMWAIT_CHECKED;
int memwait_sem_trywait(memwait_sem_t *sem) MEMWAIT_CHECKED;
int memwait_sem_timedwait(memwait_sem_t *sem, const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_sem_clockwait(memwait_sem_t *sem, clockid_t clock, const struct timespec *abstime)
	MEMWAIT_CHECKED;
int memwait_sem_wait_async(memwait_sem_t *sem, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_sem_clockwait_async(memwait_sem_t *sem, clockid_t clock,
				const struct timespec *abstime, memwait_op_t *op) MEMWAIT_CHECKED;

/* Async-signal-safe. EOVERFLOW: the highest value is reached. After an error nothing was posted. */
int memwait_sem_post(memwait_sem_t *sem);
int memwait_sem_getvalue(const memwait_sem_t *sem, int *value);

/*
 * Read-write locks. They prefer readers by default, as glibc's do: waiting writers do not block
 * readers. A continuous stream of readers starves writers.
 */

typedef union {
	uint32_t reserved[14];
} __attribute__((__aligned__(8))) memwait_rwlock_t;

#define MEMWAIT_RWLOCK_INIT		MEMWAIT_RWLOCK_INIT_KIND(MEMWAIT_RWLOCK_PREFER_READER)
#define MEMWAIT_RWLOCK_INIT_KIND(kind)	{ { 0, 0, 0, 0, (kind) } }

/*
 * Kinds, to which MEMWAIT_PRIVATE can be added. Only FAIR orders the waiters. PREFER_WRITER: the
 * first waiting writer precedes all later readers.
 */
#define MEMWAIT_RWLOCK_PREFER_READER	0x0u	/* the default */
#define MEMWAIT_RWLOCK_FAIR		0x4u	/* granted in FIFO order */
#define MEMWAIT_RWLOCK_ROBUST		0x8u	/* if a writer dies, the next gets EOWNERDEAD */
#define MEMWAIT_RWLOCK_PREFER_WRITER	0x10u	/* no recursive read locks; not with FAIR */

/* EINVAL: no such kind. */
int memwait_rwlock_init(memwait_rwlock_t *rwlock, unsigned int kind) MEMWAIT_CHECKED;

/*
 * EBUSY: locked, a ROBUST one by readers or a living writer. The last thread to unlock may destroy:
 * destroy waits for an earlier writer still in unlock. If that writer was killed: EBUSY after ten
 * seconds, unless PRIVATE or ROBUST.
 */
int memwait_rwlock_destroy(memwait_rwlock_t *rwlock);

/*
 * A thread may read-lock several times and unlocks as often, but not a FAIR or PREFER_WRITER lock,
 * where a writer may be waiting. A reader must not write-lock. EAGAIN: too many readers. try:
 * EBUSY. ETIMEDOUT.
 *
 * ROBUST, in all functions that lock: EOWNERDEAD: a writer died, and the caller has the write lock,
 * whichever it requested. Repair what is guarded, call memwait_rwlock_consistent(), unlock.
 * ENOTRECOVERABLE: unlocked without that call. A reader that dies stays a reader: writers wait
 * forever. ENOENT etc., ENOSPC: as for a ROBUST mutex.
 */
int memwait_rwlock_rdlock(memwait_rwlock_t *rwlock) MEMWAIT_CHECKED;
int memwait_rwlock_tryrdlock(memwait_rwlock_t *rwlock) MEMWAIT_CHECKED;
int memwait_rwlock_timedrdlock(memwait_rwlock_t *rwlock, const struct timespec *abstime)
	MEMWAIT_CHECKED;
int memwait_rwlock_clockrdlock(memwait_rwlock_t *rwlock, clockid_t clock,
			       const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_rwlock_rdlock_async(memwait_rwlock_t *rwlock, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_rwlock_clockrdlock_async(memwait_rwlock_t *rwlock, clockid_t clock,
				     const struct timespec *abstime, memwait_op_t *op)
	MEMWAIT_CHECKED;
int memwait_rwlock_wrlock(memwait_rwlock_t *rwlock) MEMWAIT_CHECKED;
int memwait_rwlock_trywrlock(memwait_rwlock_t *rwlock) MEMWAIT_CHECKED;
int memwait_rwlock_timedwrlock(memwait_rwlock_t *rwlock, const struct timespec *abstime)
	MEMWAIT_CHECKED;
int memwait_rwlock_clockwrlock(memwait_rwlock_t *rwlock, clockid_t clock,
			       const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_rwlock_wrlock_async(memwait_rwlock_t *rwlock, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_rwlock_clockwrlock_async(memwait_rwlock_t *rwlock, clockid_t clock,
				     const struct timespec *abstime, memwait_op_t *op)
	MEMWAIT_CHECKED;

/* EPERM: not locked; a ROBUST one: locked by another writer. */
int memwait_rwlock_unlock(memwait_rwlock_t *rwlock);

/* See memwait_mutex_consistent(). */
int memwait_rwlock_consistent(memwait_rwlock_t *rwlock);

/* Barriers */

typedef union {
	uint64_t reserved[4];
} __attribute__((__aligned__(8))) memwait_barrier_t;

/* Returned to one of the threads instead of 0, as PTHREAD_BARRIER_SERIAL_THREAD. */
#define MEMWAIT_BARRIER_SERIAL_THREAD	(-1)

/*
 * @flags: 0 or MEMWAIT_PRIVATE. @count: threads that meet; EINVAL if 0. No more may be at a barrier
 * at a time, unless it is PRIVATE: it could let all of them through together.
 */
int memwait_barrier_init(memwait_barrier_t *barrier, unsigned int flags, unsigned int count)
	MEMWAIT_CHECKED;

/*
 * EBUSY: there are waiters. Waits for woken ones to leave, as memwait_cond_destroy(). Here and
 * below, EINVAL: zeroed memory.
 */
int memwait_barrier_destroy(memwait_barrier_t *barrier);

/* ETIMEDOUT, or cancelling an operation, withdraws the arrival. EPIPE: it was aborted, or reset. */
int memwait_barrier_wait(memwait_barrier_t *barrier) MEMWAIT_CHECKED;
int memwait_barrier_timedwait(memwait_barrier_t *barrier, const struct timespec *abstime)
	MEMWAIT_CHECKED;
int memwait_barrier_clockwait(memwait_barrier_t *barrier, clockid_t clock,
			      const struct timespec *abstime) MEMWAIT_CHECKED;

/*
 * 0: all have met. MEMWAIT_BARRIER_SERIAL_THREAD: the same, and the caller is the serial thread.
 * EINPROGRESS: the callback gets either result. With a private barrier the last to arrive is the
 * serial thread.
 */
int memwait_barrier_wait_async(memwait_barrier_t *barrier, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_barrier_clockwait_async(memwait_barrier_t *barrier, clockid_t clock,
				    const struct timespec *abstime, memwait_op_t *op)
	MEMWAIT_CHECKED;

/* Until memwait_barrier_reset(), all that wait, and all that come, get EPIPE. */
int memwait_barrier_abort(memwait_barrier_t *barrier);

/*
 * All that wait get EPIPE, and those that come afterwards meet: nobody has arrived. Those that have
 * met and not left may get EPIPE, too.
 */
int memwait_barrier_reset(memwait_barrier_t *barrier);

/*
 * @count: of memwait_barrier_init(). @waiting: how many threads and operations wait, out of date at
 * once. Each may be NULL. EPIPE: it is aborted, and the numbers are there too.
 */
int memwait_barrier_inspect(memwait_barrier_t *barrier, unsigned int *count, unsigned int *waiting);

/* Wait groups: wait until a count is zero. */

typedef union {
	uint32_t reserved[8];
} __attribute__((__aligned__(8))) memwait_waitgroup_t;

#define MEMWAIT_WAITGROUP_INIT			MEMWAIT_WAITGROUP_INIT_FLAGS(0)
#define MEMWAIT_WAITGROUP_INIT_FLAGS(flags)	{ { 0, 0, 0, 0, (flags) } }
#define MEMWAIT_WAITGROUP_MAX			0x3fffffff

/* @flags: 0 or MEMWAIT_PRIVATE. EINVAL: @count is too large. */
int memwait_waitgroup_init(memwait_waitgroup_t *group, unsigned int flags, unsigned int count)
	MEMWAIT_CHECKED;

/*
 * EBUSY: the count is not zero, or a callback has not begun. Waits for woken waiters to leave, as
 * memwait_cond_destroy().
 */
int memwait_waitgroup_destroy(memwait_waitgroup_t *group);

/*
 * Adds @delta to the count. EINVAL: it would be negative. EOVERFLOW: it would be too large. On any
 * error the count is as before.
 */
int memwait_waitgroup_add(memwait_waitgroup_t *group, int delta);

/* Subtracts one. */
int memwait_waitgroup_done(memwait_waitgroup_t *group);

/* Waits until the count is zero, even momentarily. ETIMEDOUT. */
int memwait_waitgroup_wait(memwait_waitgroup_t *group) MEMWAIT_CHECKED;
int memwait_waitgroup_timedwait(memwait_waitgroup_t *group, const struct timespec *abstime)
	MEMWAIT_CHECKED;
int memwait_waitgroup_clockwait(memwait_waitgroup_t *group, clockid_t clock,
				const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_waitgroup_wait_async(memwait_waitgroup_t *group, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_waitgroup_clockwait_async(memwait_waitgroup_t *group, clockid_t clock,
				      const struct timespec *abstime, memwait_op_t *op)
	MEMWAIT_CHECKED;

/* Events: a flag that is set and cleared, and the waiters for it to be set. */

typedef union {
	uint32_t reserved[1];
} memwait_event_t;

#define MEMWAIT_EVENT_INIT			MEMWAIT_EVENT_INIT_FLAGS(0)
#define MEMWAIT_EVENT_INIT_FLAGS(flags)		{ { (flags) * 0x1000000u } }

/* Not set. @flags: 0 or MEMWAIT_PRIVATE. */
int memwait_event_init(memwait_event_t *event, unsigned int flags) MEMWAIT_CHECKED;

/* EBUSY: there are waiters. A woken one that has not returned does not count. */
int memwait_event_destroy(memwait_event_t *event);

/* 1: it is set; 0; or -EINVAL. Stale at once. */
int memwait_event_is_set(const memwait_event_t *event);

/*
 * Sets it and wakes all waiters, also if it was set. Async-signal-safe. ENOENT ...: see the top; if
 * it is set then, and no waiter was woken, the next set does that.
 */
int memwait_event_set(memwait_event_t *event);

/* Later waiters wait for the next set. Waiters from before are not held back. */
int memwait_event_clear(memwait_event_t *event);

/* Waits until it is set, even momentarily. ETIMEDOUT. */
int memwait_event_wait(memwait_event_t *event) MEMWAIT_CHECKED;
int memwait_event_timedwait(memwait_event_t *event, const struct timespec *abstime)
	MEMWAIT_CHECKED;
int memwait_event_clockwait(memwait_event_t *event, clockid_t clock,
			    const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_event_wait_async(memwait_event_t *event, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_event_clockwait_async(memwait_event_t *event, clockid_t clock,
				  const struct timespec *abstime, memwait_op_t *op)
	MEMWAIT_CHECKED;

/* Channels: bounded queues of items of one size, for several senders and receivers. */

/* In memory of the caller: memwait_channel_size() bytes, aligned to 8, better to 64. */
typedef struct memwait_channel memwait_channel_t;

/*
 * Returns the size of a channel in bytes. 0: invalid arguments; item_size is 1 to 2^32 - 1,
 * capacity 1 to 2^30.
 */
size_t memwait_channel_size(size_t item_size, size_t capacity);

/*
 * @memory: bytes there are at @channel. @flags: 0 or MEMWAIT_PRIVATE. EINVAL: invalid arguments, as
 * above; more than @memory is needed; or misaligned. All others return EINVAL for zeroed memory, or
 * another version's channel.
 */
int memwait_channel_init(memwait_channel_t *channel, size_t memory, unsigned int flags,
			 size_t item_size, size_t capacity) MEMWAIT_CHECKED;

/*
 * For a process that maps a channel: sets what it was initialised with. EINVAL, also: it says that
 * it is larger than @memory, the bytes that are mapped at @channel. It must not be used then.
 */
int memwait_channel_attach(const memwait_channel_t *channel, size_t memory, size_t *item_size,
			   size_t *capacity) MEMWAIT_CHECKED;

/* As memwait_cond_destroy(): waits for calls that have transferred an item, or were woken. */
int memwait_channel_destroy(memwait_channel_t *channel);

/*
 * @size: of the item. EMSGSIZE: it is not that of the channel's items. EPIPE: closed. ETIMEDOUT.
 * try: EAGAIN: full. EBUSY: another thread is sending.
 */
int memwait_channel_send(memwait_channel_t *channel, const void *item, size_t size)
	MEMWAIT_CHECKED;
int memwait_channel_trysend(memwait_channel_t *channel, const void *item, size_t size)
	MEMWAIT_CHECKED;
int memwait_channel_timedsend(memwait_channel_t *channel, const void *item, size_t size,
			      const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_channel_clocksend(memwait_channel_t *channel, const void *item, size_t size,
			      clockid_t clock, const struct timespec *abstime) MEMWAIT_CHECKED;

/* The item must stay valid and in place until the callback. */
int memwait_channel_send_async(memwait_channel_t *channel, const void *item, size_t size,
			       memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_channel_clocksend_async(memwait_channel_t *channel, const void *item, size_t size,
				    clockid_t clock, const struct timespec *abstime,
				    memwait_op_t *op) MEMWAIT_CHECKED;

/*
 * EMSGSIZE as above. EPIPE: closed and drained. ETIMEDOUT. try: EAGAIN: empty. EBUSY: another
 * thread is receiving, or the channel is empty and closed, and one is sending.
 */
int memwait_channel_recv(memwait_channel_t *channel, void *item, size_t size) MEMWAIT_CHECKED;
int memwait_channel_tryrecv(memwait_channel_t *channel, void *item, size_t size) MEMWAIT_CHECKED;
int memwait_channel_timedrecv(memwait_channel_t *channel, void *item, size_t size,
			      const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_channel_clockrecv(memwait_channel_t *channel, void *item, size_t size,
			      clockid_t clock, const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_channel_recv_async(memwait_channel_t *channel, void *item, size_t size,
			       memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_channel_clockrecv_async(memwait_channel_t *channel, void *item, size_t size,
				    clockid_t clock, const struct timespec *abstime,
				    memwait_op_t *op) MEMWAIT_CHECKED;

/* Stops sending; items already sent can be received. 0 also if it is closed already. */
int memwait_channel_close(memwait_channel_t *channel);

/* Number of items; may be stale on return. */
size_t memwait_channel_length(const memwait_channel_t *channel);

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif

#endif /* MEMWAIT_H */
