/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * libmemwait: locks, condition variables and more for threads and event loops, within a process and
 * across processes. See libmemwait(7) and each function's page.
 *
 * Blocking functions correspond to those of pthreads, with a different prefix. Each has an
 * *_async() form, which takes an operation (memwait_op_t) of a loop (memwait_loop_t) and runs its
 * callback when the loop is dispatched.
 *
 * Objects are plain data without pointers, in any memory, even memory that is mapped at different
 * addresses. Zeroed memory is an initialised object, except for barriers and channels.
 * MEMWAIT_PRIVATE words belong to one address space and stay at one address; waits for such words,
 * and notifies of them, cost less. Every function fails with EINVAL for an object of a kind that
 * this library does not know, such as a kind that a later version introduced.
 *
 * Functions for objects (mutexes to channels), and their *_async() forms, return 0 or a positive
 * error number, as pthreads functions do. Functions for words, loops, operations and ids, as well
 * as memwait_mutex_is_held() and memwait_event_is_set(), return a result >= 0 or a negative error
 * number. For word functions (memwait_wait32() etc.) the result is an outcome, MEMWAIT_OK ...
 * MEMWAIT_OWNER_DIED.
 *
 * Every init function opens /dev/memwait, and so does every function that may have to sleep or wake
 * a waiter, or whose counterpart may have to do so (such as lock, because of unlock). Every object
 * that could be locked can therefore be unlocked. If the device cannot be opened, the function does
 * nothing (except that an init function has written the object) and returns the error of open(2)
 * (ENOENT, ENODEV or ENXIO without the module, EMFILE ...), ENOTTY if the file is not this device,
 * or ENOSYS if the module is too old.
 *
 * Functions fail with EINVAL if an object or operation is NULL, or if a clock or flag is unknown.
 * If the nanoseconds are outside 0 to 999,999,999, they fail with EINVAL only if the deadline is
 * needed. A NULL word or array fails with -EFAULT if the kernel reads it; the kernel does not read
 * a private word that is notified.
 *
 * *_timed*() functions take an absolute time on CLOCK_REALTIME (except memwait_cond_timedwait(),
 * see MEMWAIT_COND_MONOTONIC). *_clock*() functions take an absolute time on CLOCK_REALTIME or
 * CLOCK_MONOTONIC, or, with MEMWAIT_RELATIVE as the clock, a time from now. NULL means that there
 * is no deadline, and so does a time of more than 292 years. A negative time has already passed.
 *
 * The *_async() functions for objects return 0 if the operation is already done; the callback will
 * not run. EINPROGRESS: the callback will run once, with the result of the blocking function.
 * EOWNERDEAD means the same as 0, see memwait_mutex_lock(). After any other error no operation was
 * begun. EBUSY: the operation is already pending. EPERM: the loop belongs to a parent process.
 * ENOSPC: the user has reached the limit on pending waits. ENOMEM: no memory.
 */
#ifndef MEMWAIT_H
#define MEMWAIT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <linux/memwait.h>

#ifdef __cplusplus
/* Some functions have the name of a struct, like stat(2): g++ warns about hidden constructors. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#endif

/* <time.h> does not declare this type in plain C99. */
struct timespec;

/*
 * For functions that lock, wait or initialise: a caller that ignores the result might not hold the
 * lock.
 */
#define MEMWAIT_CHECKED		__attribute__((__warn_unused_result__))

/*
 * Times are 64-bit, as in the library: 32-bit programs on glibc must be built with -D_TIME_BITS=64
 * -D_FILE_OFFSET_BITS=64.
 */
typedef char memwait_build_with_D_TIME_BITS_64_D_FILE_OFFSET_BITS_64[sizeof(time_t) == 8 ? 1 : -1];

/* The version of this header. memwait_version() returns the version of the library at run time. */
#define MEMWAIT_VERSION_MAJOR	1
#define MEMWAIT_VERSION_MINOR	0
#define MEMWAIT_VERSION_PATCH	0
#define MEMWAIT_VERSION								\
	((MEMWAIT_VERSION_MAJOR << 16) + (MEMWAIT_VERSION_MINOR << 8) + MEMWAIT_VERSION_PATCH)

unsigned int memwait_version(void);

/*
 * Describes an error number, positive or negative, as this library uses it; the texts of
 * strerror(3) do not mention the device. Not for outcomes, whose numbers overlap with error
 * numbers: see memwait_stroutcome() and memwait_op_strerror(). The next call of any of the three
 * functions in the same thread may overwrite the text.
 */
const char *memwait_strerror(int error);

/*
 * Describes a result of a word function or of memwait_loop_run(): MEMWAIT_OK ...
 * MEMWAIT_OWNER_DIED, or a negative error number.
 */
const char *memwait_stroutcome(int result);

/*
 * Opens the device and returns 0 if it can be used. Otherwise returns the negative error number
 * that other functions would fail with: -ENOENT, -ENXIO, -EACCES, -EMFILE ... from open(2);
 * -ENOTTY: the file is not this device; -ENOSYS: the module is too old; -EPERM ...: from a seccomp
 * filter.
 */
int memwait_available(void);

/*
 * The time counts from the call, on CLOCK_MONOTONIC. Functions for words and loops take this as a
 * flag (one of MEMWAIT_LIBRARY_FLAGS); *_clock*() functions for objects take it as the clock.
 */
#define MEMWAIT_RELATIVE	0x10000u

/* Loops and operations */

/* An event source: a context of /dev/memwait and its pending operations. */
typedef struct memwait_loop memwait_loop_t;

/*
 * An operation. The caller owns the memory; the library allocates none. After memwait_op_init() an
 * operation can be used any number of times, but only for one purpose at a time. It must not move
 * while it is pending, that is, until its callback begins (for memwait_watch*(), its last
 * callback), or until memwait_op_cancel() returns 0.
 */
typedef union {
	uint64_t reserved[24];
	void *align;
} memwait_op_t;

/*
 * Runs within memwait_loop_dispatch(), memwait_loop_run() or memwait_op_wait(), in the calling
 * thread, which holds no lock of the library. The callback may do anything, such as begin @op
 * again, free it, cancel, lock, dispatch or end its thread, except close the loop or leave by
 * longjmp() or an exception.
 * @result: the result of the blocking function.
 */
typedef void (*memwait_callback_t)(memwait_op_t *op, int result, void *data);

/*
 * Creates a loop. @flags must be 0. -ENOENT, -ENODEV, -EACCES, -EMFILE ...: from open(2) for
 * /dev/memwait; -ENOTTY: the file is not this device; -ENOSYS: the module is too old; -ENOMEM: no
 * memory; -ENOSPC: the user has reached the limit on waits or on ids.
 */
int memwait_loop_new(memwait_loop_t **loop, unsigned int flags) MEMWAIT_CHECKED;

/*
 * Ends all pending operations, as memwait_op_cancel() does, and frees the loop. The words and
 * objects that they wait for must still exist. No other thread may use the loop or its operations
 * during the call; afterwards only memwait_op_init() and memwait_op_pending() may be called for the
 * operations. -EBUSY, with nothing done: a thread is within memwait_loop_dispatch(),
 * memwait_loop_run() or memwait_op_wait(), for example in a callback. A child process closes only
 * its copy. If @loop is NULL, nothing is done.
 */
int memwait_loop_close(memwait_loop_t *loop);

/*
 * Returns the descriptor to poll for POLLIN. The descriptor is readable while there is something to
 * dispatch, except for completions that a dispatching thread has already read. Do not read or close
 * it. -EINVAL: @loop is NULL.
 */
int memwait_loop_fd(const memwait_loop_t *loop);

/*
 * Runs the callbacks of all operations that had completed when it was called, but no more than
 * @most, which may be MEMWAIT_ALL; never blocks. Returns how many ran, or a negative error number:
 * -EPERM in a child process. If completed operations remain, the descriptor stays readable and
 * gets a new edge: one call for each readiness event is enough, even with edge-triggered polling.
 * Threads may dispatch concurrently.
 */
int memwait_loop_dispatch(memwait_loop_t *loop, unsigned int most);

/*
 * For programs without an event loop of their own: dispatches until no operation is pending or
 * memwait_loop_stop() is called, and returns 0. When the deadline has passed, runs the callbacks of
 * all operations that have completed by then, and returns MEMWAIT_TIMED_OUT if an operation is
 * still pending. @timeout, @flags: as for memwait_wait32(); the flags are MEMWAIT_CLOCK_REALTIME
 * and MEMWAIT_RELATIVE. If CLOCK_REALTIME is set while this function sleeps, the function takes the
 * new time into account within a second.
 *
 * Several threads may run one loop. An operation is not pending while its callback is running, so
 * another thread that checks at that time may return. This function is a cancellation point. -EPERM
 * in a child process.
 */
int memwait_loop_run(memwait_loop_t *loop, const struct timespec *timeout, unsigned int flags);

/*
 * Makes every memwait_loop_run() and memwait_op_wait() that is in progress on the loop, in any
 * thread, return after the current callback. If no such call is in progress, the next such call
 * returns immediately. Callable from any thread or signal handler. -EPERM in a child process.
 */
int memwait_loop_stop(memwait_loop_t *loop);

/*
 * Returns the number of pending operations. The program's event loop should run while it is not 0.
 */
size_t memwait_loop_pending(const memwait_loop_t *loop);

/*
 * Binds an operation that is not pending to a loop. @callback may be NULL, for example if
 * memwait_op_wait() waits for the operation; @data is passed to the callback. Must be called before
 * all other functions for operations, which fail with EINVAL for zeroed memory, and cannot detect
 * other uninitialised memory.
 */
int memwait_op_init(memwait_op_t *op, memwait_loop_t *loop, memwait_callback_t callback,
		    void *data);

/*
 * Cancels an operation, from any thread. 0: the callback will not run, nothing is locked or
 * consumed, and a wake-up that the operation had received is passed to the next waiter. -ENOENT:
 * the operation is not pending; its callback has returned, or is running in this thread.
 * -EINPROGRESS: its callback is still running in another thread, and may use the data that belongs
 * to the operation; an operation of memwait_watch*() is cancelled, but stays pending until that
 * callback returns. -EPERM: in a child process. Other errors come from a seccomp filter, and the
 * operation is still pending.
 */
int memwait_op_cancel(memwait_op_t *op);

/*
 * Gives back what an operation received when it ended, for a caller that no longer wants the
 * result, as if memwait_op_cancel() had been called before the end:
 *
 *	lock			is unlocked. If the result was EOWNERDEAD and the data has not been
 *				repaired, the next owner gets EOWNERDEAD
 *	semaphore		is posted
 *	condition variable	is signalled, and its mutex unlocked
 *	word			is notified, for one waiter
 *	received item is sent again by the same operation, as the newest item
 *
 * Does nothing and returns 0 for other operations, and for an operation that failed, timed out, was
 * cancelled or was undone. However, a wait for a condition variable that timed out has locked the
 * mutex; this function unlocks it. -EINPROGRESS: the item is being sent; the callback runs with 0,
 * or with the error of the send. -EBUSY: the operation is pending. -EINVAL: it was never begun.
 * -EPERM: another thread owns the lock, or the operation belongs to the parent process. Other
 * errors are those of the unlock, post, notify or send. If the send fails, the item is still in the
 * memory into which it was received.
 *
 * An _async function that refuses its arguments does not begin the operation: after such a failure
 * this function would give back an earlier result. The object must still exist, and so must the
 * array of a wait for several words. If an item must be sent again, the loop must not have been
 * closed.
 */
int memwait_op_undo(memwait_op_t *op) MEMWAIT_CHECKED;

/*
 * Dispatches the loop until a pending operation has ended and no other thread is running its
 * callback. The operation must stay in place until this call has returned. On a loop that only the
 * calling thread uses, this is a blocking wait that memwait_loop_stop() can end. If this call
 * returns 0, *@result (if @result is not NULL) is the result that the callback gets. -EINTR: the
 * wait was stopped; the operation is still pending, at its queue position: wait again, or cancel
 * it. -ECANCELED: the operation was cancelled. -EINVAL: the operation has not begun since
 * memwait_op_init(). -EPERM: in a child process. This function is a cancellation point; the
 * operation stays pending if the thread is cancelled.
 */
int memwait_op_wait(memwait_op_t *op, int *result) MEMWAIT_CHECKED;

/* Returns 1 if the operation is pending, or 0. */
int memwait_op_pending(const memwait_op_t *op);

/*
 * After memwait_wait_any_async(): the index of the word that MEMWAIT_OK or MEMWAIT_NOT_EQUAL refers
 * to. 0 for other operations.
 */
unsigned int memwait_op_index(const memwait_op_t *op);

/*
 * In the callback of memwait_watch*(): the number of notifies that MEMWAIT_OK reports. 0 for
 * MEMWAIT_TIMED_OUT and for other operations.
 */
unsigned int memwait_op_count(const memwait_op_t *op);

/*
 * Describes the @result that a callback receives, or *@result of memwait_op_wait(), for any kind of
 * operation. Can be called in the callback and later, until the operation is initialised or begun
 * again.
 */
const char *memwait_op_strerror(const memwait_op_t *op, int result);

/* Words */

/*
 * Checks that *word == expected, and then waits until the word is notified or the timeout passes. A
 * word is a naturally aligned integer of the size in the function's name, atomic or not.
 * @timeout: NULL: wait forever; otherwise a deadline on CLOCK_MONOTONIC, or on CLOCK_REALTIME with
 * MEMWAIT_CLOCK_REALTIME, or a time from now with MEMWAIT_RELATIVE. @flags: MEMWAIT_PRIVATE,
 * MEMWAIT_CLOCK_REALTIME, MEMWAIT_RELATIVE, MEMWAIT_OWNED.
 *
 * With MEMWAIT_OWNED, a death ends the wait with MEMWAIT_OWNER_DIED; see memwait(4). The lower 62
 * bits of a 64-bit word are its owner's id. The calling thread gets an id; this can fail with
 * -EOPNOTSUPP, -ENOSPC or -ENOMEM.
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
 * The form of memwait_wait*() for an operation; with MEMWAIT_OWNED it uses the id of the
 * operation's loop. Returns MEMWAIT_PENDING if the callback will run, with MEMWAIT_OK,
 * MEMWAIT_TIMED_OUT or MEMWAIT_OWNER_DIED; otherwise the result of the wait. -EBUSY, -EPERM and
 * -ENOSPC: see *_async() at the top of this file.
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
 * Like memwait_wait*_async(), but notifies do not end the operation: when one or more have arrived,
 * the callback runs with MEMWAIT_OK, and memwait_op_count() returns how many. The word is compared
 * only when the operation begins. Only one callback of the operation runs at a time; notifies that
 * arrive while it is running are reported by the next callback. The operation ends with
 * MEMWAIT_TIMED_OUT or by memwait_op_cancel(). The callback may itself cancel the operation, and
 * then free it or begin it again. After a cancel, notifies that were counted but not reported to a
 * callback are passed to the next waiters, one to each. MEMWAIT_OWNED fails with -EINVAL.
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
 * Wakes at most @count waiters, oldest first; MEMWAIT_ALL: all. Waiters of all sizes share one
 * queue.
 * @flags: 0 or MEMWAIT_PRIVATE. If @flags contains a size, such as MEMWAIT_SIZE_U32, @word must be
 * aligned to that size. Returns how many were woken, or -EFAULT ...
 */
int memwait_notify(const volatile void *word, unsigned int count, unsigned int flags);

/*
 * Applies an atomic operation (MEMWAIT_CHANGE_SET, _ADD, _AND, _OR, _XOR) to a 32-bit word and
 * wakes at most @count waiters, in one system call that no signal, not even SIGKILL, can split.
 * *@old (if not NULL): the previous value. @flags: 0 or MEMWAIT_PRIVATE. Returns how many were
 * woken; or -EINVAL, -EFAULT, -EOPNOTSUPP with nothing done.
 *
 * With MEMWAIT_CHANGE_IF_NONE_WOKEN in @operation the word is changed only if there was no waiter
 * to wake: each waiter is woken or sees the change. If a waiter was woken, *@old is 0.
 */
int memwait_change_notify32(volatile void *word, unsigned int operation, uint32_t operand,
			    unsigned int count, unsigned int flags, uint32_t *old);

/*
 * Sets *@id to the id of the calling thread, which marks it as a word's owner: nonzero, random,
 * within MEMWAIT_OWNER_MASK, the same in every process and namespace. -EOPNOTSUPP: the kernel has
 * no ids; -ENOSPC: the user has reached the limit on ids; -ENOMEM: no memory; or an error of
 * open(2).
 */
int memwait_owner(uint64_t *id);

/* Returns the number of waiters, which may be stale on return. For tests and diagnosis. */
int memwait_waiters(const volatile void *word, unsigned int flags);

/* Several words */

/*
 * Checks that all @count words (1 to MEMWAIT_GROUP_MAX) have their expected values, and then waits
 * until one of the words is notified. The wait consumes exactly one notify. Set addr, expected and
 * flags (MEMWAIT_SIZE_U8 ... _U64, MEMWAIT_PRIVATE) in each element of @waits, and all other
 * members to 0; a word may occur several times. @timeout and @flags: as for memwait_wait32(),
 * without MEMWAIT_PRIVATE and MEMWAIT_OWNED. *@index (if @index is not NULL): with MEMWAIT_OK, the
 * index of the notified word; with MEMWAIT_NOT_EQUAL, the index of the first word that differs.
 *
 * Returns the same results as memwait_wait32().
 */
int memwait_wait_any(const struct memwait_wait *waits, unsigned int count,
		     const struct timespec *timeout, unsigned int flags, unsigned int *index)
	MEMWAIT_CHECKED;

/*
 * The form of memwait_wait_any() for an operation; memwait_op_index() returns the index. @waits
 * must stay unchanged while the operation is pending.
 */
int memwait_wait_any_async(const struct memwait_wait *waits, unsigned int count,
			   const struct timespec *timeout, unsigned int flags, memwait_op_t *op)
	MEMWAIT_CHECKED;

/*
 * If *word == expected, wakes at most @count waiters and moves at most @move others to the end of
 * @target's queue, in one system call. @flags: 0 or MEMWAIT_PRIVATE, for both words. *@woken and
 * *@moved (if not NULL): how many waiters were woken and moved. A move does not change which word a
 * waiter waits for: after a signal a thread checks its original word again, and a cancelled
 * operation that was notified passes the wake-up to the next waiter of its original word.
 *
 * Returns 0; MEMWAIT_NOT_EQUAL, with nothing done; a negative error number, as memwait_wait32()
 * does; or -EXDEV if the words belong to two files, or only one of them belongs to a file.
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
 * Does memwait_notify(target, count), and then waits on @word, in one system call. @flags: as for
 * memwait_wait32(); MEMWAIT_PRIVATE applies to both words. *@notified (if @notified is not NULL):
 * how many waiters of @target were woken.
 *
 * Returns the same results as memwait_wait32(). -EINTR: the notify is done; continue with
 * memwait_wait32() etc. After other errors, *@notified shows whether waiters were woken.
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
 * Notifies @count words in one system call. Set addr, count and flags in each element of @notifies,
 * as for memwait_notify(). @woken: NULL, or an array that receives how many waiters each notify
 * woke. A loop that waits for many of the words is woken only a few times.
 *
 * Returns the number of words notified. If this is less than @count, the next notify failed. If the
 * first notify failed, returns -EINVAL, -EFAULT or -EOPNOTSUPP.
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
 * Kinds. FAIR or ROBUST can be combined with one of the first three kinds, MEMWAIT_PRIVATE with any
 * kind. RECURSIVE, ERRORCHECK and ROBUST mutexes check the owner. Unless they are PRIVATE and not
 * ROBUST, they identify the owner by an id from the kernel. A thread gets its id when it first
 * needs one. This fails with ENOENT etc. without the device, with EOPNOTSUPP if the kernel has no
 * ids, or with ENOSPC if the user has reached the limit.
 */
#define MEMWAIT_MUTEX_NORMAL		0x0u	/* any thread that finds it free gets it */
#define MEMWAIT_MUTEX_RECURSIVE		0x1u	/* its owner can lock it again */
#define MEMWAIT_MUTEX_ERRORCHECK	0x2u	/* relock: EDEADLK; unlock by others: EPERM */
/* Handed over in FIFO order. Stays locked if a waiter is killed while the mutex is handed to it. */
#define MEMWAIT_MUTEX_FAIR		0x4u
#define MEMWAIT_MUTEX_ROBUST		0x8u	/* if the owner dies, the next gets EOWNERDEAD */

/* EINVAL: no such kind. */
int memwait_mutex_init(memwait_mutex_t *mutex, unsigned int kind) MEMWAIT_CHECKED;

/*
 * EBUSY: the mutex is locked (if ROBUST: by a living thread). Afterwards the memory may be reused
 * or initialised again.
 */
int memwait_mutex_destroy(memwait_mutex_t *mutex);

/*
 * These functions are not cancellation points, and signals do not interrupt them. EDEADLK: the kind
 * is ERRORCHECK, and the caller holds the mutex. EAGAIN: the kind is RECURSIVE, and the caller has
 * locked the mutex too many times.
 *
 * All functions that lock a ROBUST mutex: EOWNERDEAD: the mutex is locked, and the previous owner
 * died while it held the mutex. Repair the data that it protects and call
 * memwait_mutex_consistent(). ENOTRECOVERABLE: the mutex was unlocked without that call; it can
 * only be destroyed.
 */
int memwait_mutex_lock(memwait_mutex_t *mutex) MEMWAIT_CHECKED;

/* EBUSY: the mutex is locked (if ROBUST: by a living thread). */
int memwait_mutex_trylock(memwait_mutex_t *mutex) MEMWAIT_CHECKED;

/* ETIMEDOUT: the deadline passed. */
int memwait_mutex_timedlock(memwait_mutex_t *mutex, const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_mutex_clocklock(memwait_mutex_t *mutex, clockid_t clock,
			    const struct timespec *time) MEMWAIT_CHECKED;

/* EPERM: the mutex is not locked; or the kind checks the owner, and another thread owns it. */
int memwait_mutex_unlock(memwait_mutex_t *mutex);

/*
 * Returns 1 if the mutex is locked (if RECURSIVE, ERRORCHECK or ROBUST: by the caller), 0 if it is
 * not, or -EINVAL.
 */
int memwait_mutex_is_held(memwait_mutex_t *mutex);

/*
 * After EOWNERDEAD: marks the protected data consistent. EINVAL: the mutex is not ROBUST, or the
 * call is not needed. EPERM: another thread owns the mutex.
 */
int memwait_mutex_consistent(memwait_mutex_t *mutex);

/*
 * With 0 or EOWNERDEAD, as the result of the callback or as the return value, the mutex is locked.
 * If the kind checks the owner, the thread that runs the callback is the owner.
 */
int memwait_mutex_lock_async(memwait_mutex_t *mutex, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_mutex_clocklock_async(memwait_mutex_t *mutex, clockid_t clock,
				  const struct timespec *time, memwait_op_t *op) MEMWAIT_CHECKED;

/*
 * Runs the callback with the mutex locked and the result 0 or EOWNERDEAD, then unlocks the mutex.
 * Never blocks. 0: the callback has run. EINPROGRESS: the callback will run; if locking fails, it
 * runs with the error and without the mutex. Other errors: the callback has not run and will not
 * run. The callback must leave the mutex locked. If it returns in a child process, the parent
 * still holds the mutex.
 */
int memwait_mutex_execute_locked(memwait_mutex_t *mutex, memwait_op_t *op) MEMWAIT_CHECKED;

/* Condition variables */

typedef union {
	uint32_t reserved[12];
} __attribute__((__aligned__(8))) memwait_cond_t;

#define MEMWAIT_COND_INIT		MEMWAIT_COND_INIT_FLAGS(0)
#define MEMWAIT_COND_INIT_FLAGS(flags)	{ { 0, 0, 0, 0, (flags) } }

/*
 * A flag, in addition to MEMWAIT_PRIVATE. The condition variable and its mutexes should either all
 * be PRIVATE or all not.
 */
#define MEMWAIT_COND_MONOTONIC		0x10u	/* timedwait's deadline is on CLOCK_MONOTONIC */

/* EINVAL: unknown flags. */
int memwait_cond_init(memwait_cond_t *cond, unsigned int flags) MEMWAIT_CHECKED;

/*
 * EBUSY: there are waiters, including operations whose wake-up has not been dispatched. Once all
 * waiters have been woken, destroy waits for them to return, without a time limit. A waiter that is
 * killed before it has returned is still counted: unless the condition variable is PRIVATE, destroy
 * then returns EBUSY if no waiter returns within ten seconds. Afterwards the memory can be
 * initialised again.
 */
int memwait_cond_destroy(memwait_cond_t *cond);

/*
 * Unlock the mutex (a recursive mutex completely), and lock it again before any return except
 * ENOTRECOVERABLE. Spurious returns are possible, as in POSIX: recheck the predicate. Cancellation
 * points: cleanup handlers run with the mutex locked, and no signal is consumed. ETIMEDOUT: the
 * deadline passed. EPERM: the mutex is not locked. With EPERM, or without the device, the mutex was
 * never unlocked. With a ROBUST mutex: EOWNERDEAD: the mutex is locked, and an owner died during
 * the wait. ENOTRECOVERABLE: the mutex is not locked.
 */
int memwait_cond_wait(memwait_cond_t *cond, memwait_mutex_t *mutex) MEMWAIT_CHECKED;
int memwait_cond_timedwait(memwait_cond_t *cond, memwait_mutex_t *mutex,
			   const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_cond_clockwait(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
			   const struct timespec *time) MEMWAIT_CHECKED;

/*
 * Wake one waiter, all waiters, or up to @count waiters, oldest first, of those that are waiting at
 * the time of the call. The mutex need not be locked.
 */
int memwait_cond_signal(memwait_cond_t *cond);
int memwait_cond_broadcast(memwait_cond_t *cond);
int memwait_cond_notify(memwait_cond_t *cond, unsigned int count);

/*
 * The caller must hold the mutex. EINPROGRESS: the mutex is now unlocked, and the callback will run
 * with the mutex locked and the result 0 or ETIMEDOUT. After any other return value the mutex is
 * still locked. A cancelled operation neither locks the mutex nor loses a signal.
 *
 * If the callback gets ENOMEM or ENOSPC, the operation could not wait for the mutex, which is not
 * locked; a signal that it received has passed to the next waiter. EOWNERDEAD and ENOTRECOVERABLE:
 * as for memwait_cond_wait().
 */
int memwait_cond_wait_async(memwait_cond_t *cond, memwait_mutex_t *mutex, memwait_op_t *op)
	MEMWAIT_CHECKED;
int memwait_cond_clockwait_async(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
				 const struct timespec *time, memwait_op_t *op) MEMWAIT_CHECKED;

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
 * A flag, in addition to MEMWAIT_PRIVATE: a post is handed to the oldest waiter, and no other
 * thread can take that post. The value is at most MEMWAIT_SEM_FAIR_VALUE_MAX.
 */
#define MEMWAIT_SEM_FAIR		0x4u
#define MEMWAIT_SEM_FAIR_VALUE_MAX	0x7fff

/* EINVAL: unknown flags; @value is too large. */
int memwait_sem_init(memwait_sem_t *sem, unsigned int flags, unsigned int value) MEMWAIT_CHECKED;

/* EBUSY: there are waiters. A woken waiter counts only if the semaphore is private. */
int memwait_sem_destroy(memwait_sem_t *sem);

/*
 * The blocking waits are cancellation points. EINTR: as in sem_wait(3). Neither cancellation nor a
 * signal ends the sleep on a FAIR semaphore. ETIMEDOUT: the deadline passed. memwait_sem_trywait():
 * EAGAIN if the value is 0.
 */
int memwait_sem_wait(memwait_sem_t *sem) MEMWAIT_CHECKED;
int memwait_sem_trywait(memwait_sem_t *sem) MEMWAIT_CHECKED;
int memwait_sem_timedwait(memwait_sem_t *sem, const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_sem_clockwait(memwait_sem_t *sem, clockid_t clock, const struct timespec *time)
	MEMWAIT_CHECKED;
int memwait_sem_wait_async(memwait_sem_t *sem, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_sem_clockwait_async(memwait_sem_t *sem, clockid_t clock,
				const struct timespec *time, memwait_op_t *op) MEMWAIT_CHECKED;

/*
 * Async-signal-safe. EOVERFLOW: the value is already the maximum. After an error nothing was
 * posted.
 */
int memwait_sem_post(memwait_sem_t *sem);
int memwait_sem_getvalue(const memwait_sem_t *sem, int *value);

/*
 * Read-write locks. By default they prefer readers, like those of glibc: waiting writers do not
 * block readers. If there is always at least one reader, writers starve.
 */

typedef union {
	uint32_t reserved[14];
} __attribute__((__aligned__(8))) memwait_rwlock_t;

#define MEMWAIT_RWLOCK_INIT		MEMWAIT_RWLOCK_INIT_KIND(MEMWAIT_RWLOCK_PREFER_READER)
#define MEMWAIT_RWLOCK_INIT_KIND(kind)	{ { 0, 0, 0, 0, 0, 0, (kind) } }

/*
 * Kinds, to which MEMWAIT_PRIVATE can be added. FAIR cannot be combined with the others. Only FAIR
 * locks order their waiters. PREFER_WRITER: the first waiting writer precedes all later readers.
 */
#define MEMWAIT_RWLOCK_PREFER_READER	0x0u	/* the default */
#define MEMWAIT_RWLOCK_FAIR		0x4u	/* granted in FIFO order */
#define MEMWAIT_RWLOCK_ROBUST		0x8u	/* if a writer dies: EOWNERDEAD */
#define MEMWAIT_RWLOCK_PREFER_WRITER	0x10u	/* no recursive read locks */

/* EINVAL: no such kind. */
int memwait_rwlock_init(memwait_rwlock_t *rwlock, unsigned int kind) MEMWAIT_CHECKED;

/*
 * EBUSY: the lock is held (if ROBUST: by readers or a living writer). The last thread to unlock may
 * destroy the lock: destroy waits for an earlier writer that is still in unlock. If that writer was
 * killed, destroy returns EBUSY after ten seconds, unless the lock is PRIVATE or ROBUST.
 */
int memwait_rwlock_destroy(memwait_rwlock_t *rwlock);

/*
 * A thread may lock for reading several times, and must unlock the same number of times, except for
 * a FAIR or PREFER_WRITER lock, where the second read lock may wait behind a writer forever. A
 * reader must not lock for writing. EAGAIN: too many readers. EBUSY: a try function would have to
 * wait. ETIMEDOUT: the deadline passed.
 *
 * All functions that lock a ROBUST lock: EOWNERDEAD: a writer died, and the caller holds the write
 * lock, even if it requested a read lock. Repair the protected data, call
 * memwait_rwlock_consistent(), and unlock. ENOTRECOVERABLE: the lock was unlocked without that
 * call. A reader that dies still counts as a reader: writers wait forever. ENOENT etc. and ENOSPC:
 * as for a ROBUST mutex.
 */
int memwait_rwlock_rdlock(memwait_rwlock_t *rwlock) MEMWAIT_CHECKED;
int memwait_rwlock_tryrdlock(memwait_rwlock_t *rwlock) MEMWAIT_CHECKED;
int memwait_rwlock_timedrdlock(memwait_rwlock_t *rwlock, const struct timespec *abstime)
	MEMWAIT_CHECKED;
int memwait_rwlock_clockrdlock(memwait_rwlock_t *rwlock, clockid_t clock,
			       const struct timespec *time) MEMWAIT_CHECKED;
int memwait_rwlock_rdlock_async(memwait_rwlock_t *rwlock, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_rwlock_clockrdlock_async(memwait_rwlock_t *rwlock, clockid_t clock,
				     const struct timespec *time, memwait_op_t *op)
	MEMWAIT_CHECKED;
int memwait_rwlock_wrlock(memwait_rwlock_t *rwlock) MEMWAIT_CHECKED;
int memwait_rwlock_trywrlock(memwait_rwlock_t *rwlock) MEMWAIT_CHECKED;
int memwait_rwlock_timedwrlock(memwait_rwlock_t *rwlock, const struct timespec *abstime)
	MEMWAIT_CHECKED;
int memwait_rwlock_clockwrlock(memwait_rwlock_t *rwlock, clockid_t clock,
			       const struct timespec *time) MEMWAIT_CHECKED;
int memwait_rwlock_wrlock_async(memwait_rwlock_t *rwlock, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_rwlock_clockwrlock_async(memwait_rwlock_t *rwlock, clockid_t clock,
				     const struct timespec *time, memwait_op_t *op)
	MEMWAIT_CHECKED;

/* EPERM: the lock is not held; or it is ROBUST, and another thread holds the write lock. */
int memwait_rwlock_unlock(memwait_rwlock_t *rwlock);

/* See memwait_mutex_consistent(). */
int memwait_rwlock_consistent(memwait_rwlock_t *rwlock);

/* Barriers */

typedef union {
	uint64_t reserved[4];
} __attribute__((__aligned__(8))) memwait_barrier_t;

/* Returned to one of the participants instead of 0, like PTHREAD_BARRIER_SERIAL_THREAD. */
#define MEMWAIT_BARRIER_SERIAL_THREAD	(-1)

/*
 * @flags: 0 or MEMWAIT_PRIVATE. @count: how many threads and operations meet; EINVAL if 0. Unless
 * the barrier is PRIVATE, no more than @count threads and operations may use it at the same time:
 * when @count of them have met, the barrier could let any others through as well.
 */
int memwait_barrier_init(memwait_barrier_t *barrier, unsigned int flags, unsigned int count)
	MEMWAIT_CHECKED;

/*
 * EBUSY: there are waiters. Waits for woken waiters to return, like memwait_cond_destroy(). This
 * function and the functions below fail with EINVAL for zeroed memory.
 */
int memwait_barrier_destroy(memwait_barrier_t *barrier);

/*
 * A wait that fails with ETIMEDOUT withdraws its arrival, and so does a cancelled operation. EPIPE:
 * the barrier was aborted or reset.
 */
int memwait_barrier_wait(memwait_barrier_t *barrier) MEMWAIT_CHECKED;
int memwait_barrier_timedwait(memwait_barrier_t *barrier, const struct timespec *abstime)
	MEMWAIT_CHECKED;
int memwait_barrier_clockwait(memwait_barrier_t *barrier, clockid_t clock,
			      const struct timespec *time) MEMWAIT_CHECKED;

/*
 * 0: all have met. MEMWAIT_BARRIER_SERIAL_THREAD: all have met, and the caller is the serial
 * thread. EINPROGRESS: the callback will get one of these results. At a PRIVATE barrier the last
 * participant to arrive is the serial thread.
 */
int memwait_barrier_wait_async(memwait_barrier_t *barrier, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_barrier_clockwait_async(memwait_barrier_t *barrier, clockid_t clock,
				    const struct timespec *time, memwait_op_t *op)
	MEMWAIT_CHECKED;

/* All waiters, and all callers until the next memwait_barrier_reset(), get EPIPE. */
int memwait_barrier_abort(memwait_barrier_t *barrier);

/*
 * All waiters get EPIPE, and a new round begins, in which no participant has arrived. Participants
 * that have met but not left may also get EPIPE.
 */
int memwait_barrier_reset(memwait_barrier_t *barrier);

/*
 * @count: the count that was passed to memwait_barrier_init(). @waiting: how many threads and
 * operations are waiting; may be stale on return. Either may be NULL. EPIPE: the barrier is
 * aborted; the numbers are set even then.
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
 * EBUSY: the count is not zero, or the callback of a waiting operation has not begun. Waits for
 * woken waiters to return, like memwait_cond_destroy().
 */
int memwait_waitgroup_destroy(memwait_waitgroup_t *group);

/*
 * Adds @delta to the count. EINVAL: the count would be negative. EOVERFLOW: the count would be too
 * large. After an error the count is unchanged.
 */
int memwait_waitgroup_add(memwait_waitgroup_t *group, int delta);

/* Subtracts 1 from the count. */
int memwait_waitgroup_done(memwait_waitgroup_t *group);

/* Waits until the count is zero, or has been zero momentarily. ETIMEDOUT: the deadline passed. */
int memwait_waitgroup_wait(memwait_waitgroup_t *group) MEMWAIT_CHECKED;
int memwait_waitgroup_timedwait(memwait_waitgroup_t *group, const struct timespec *abstime)
	MEMWAIT_CHECKED;
int memwait_waitgroup_clockwait(memwait_waitgroup_t *group, clockid_t clock,
				const struct timespec *time) MEMWAIT_CHECKED;
int memwait_waitgroup_wait_async(memwait_waitgroup_t *group, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_waitgroup_clockwait_async(memwait_waitgroup_t *group, clockid_t clock,
				      const struct timespec *time, memwait_op_t *op)
	MEMWAIT_CHECKED;

/* Events: a flag that can be set and cleared. Threads and operations can wait until it is set. */

typedef union {
	uint32_t reserved[1];
} memwait_event_t;

#define MEMWAIT_EVENT_INIT			MEMWAIT_EVENT_INIT_FLAGS(0)
#define MEMWAIT_EVENT_INIT_FLAGS(flags)		{ { (flags) * 0x1000000u } }

/* The event is initially not set. @flags: 0 or MEMWAIT_PRIVATE. */
int memwait_event_init(memwait_event_t *event, unsigned int flags) MEMWAIT_CHECKED;

/* EBUSY: there are waiters. A woken waiter that has not returned does not count. */
int memwait_event_destroy(memwait_event_t *event);

/* Returns 1 if the event is set, 0 if it is not, or -EINVAL. May be stale on return. */
int memwait_event_is_set(const memwait_event_t *event);

/*
 * Sets the event and wakes all waiters, even if the event was already set. Async-signal-safe.
 * ENOENT ...: see the top of this file. If the event is set after such an error, no waiter was
 * woken, and the next memwait_event_set() wakes the waiters.
 */
int memwait_event_set(memwait_event_t *event);

/*
 * Later waiters wait until the event is set again. Waiters that an earlier set has woken return.
 */
int memwait_event_clear(memwait_event_t *event);

/* Waits until the event is set, or has been set momentarily. ETIMEDOUT: the deadline passed. */
int memwait_event_wait(memwait_event_t *event) MEMWAIT_CHECKED;
int memwait_event_timedwait(memwait_event_t *event, const struct timespec *abstime)
	MEMWAIT_CHECKED;
int memwait_event_clockwait(memwait_event_t *event, clockid_t clock,
			    const struct timespec *time) MEMWAIT_CHECKED;
int memwait_event_wait_async(memwait_event_t *event, memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_event_clockwait_async(memwait_event_t *event, clockid_t clock,
				  const struct timespec *time, memwait_op_t *op)
	MEMWAIT_CHECKED;

/* Channels: bounded queues of items of one size, for several senders and receivers. */

/*
 * A channel in the caller's memory: memwait_channel_size() bytes, aligned to 8 or, better, 64
 * bytes.
 */
typedef struct memwait_channel memwait_channel_t;

/*
 * Returns the size of a channel in bytes, or 0 for invalid arguments: @item_size must be below
 * 2^32, @capacity at most 2^30, and neither 0.
 */
size_t memwait_channel_size(size_t item_size, size_t capacity);

/*
 * @memory: size of the memory at @channel, in bytes. @flags: 0 or MEMWAIT_PRIVATE. EINVAL: the
 * arguments are invalid, see memwait_channel_size(); @memory is too small; or @channel is
 * misaligned. All other channel functions fail with EINVAL for zeroed memory, or for a channel with
 * another layout.
 */
int memwait_channel_init(memwait_channel_t *channel, size_t memory, unsigned int flags,
			 size_t item_size, size_t capacity) MEMWAIT_CHECKED;

/*
 * For a process that maps a channel that another process has initialised: sets *@item_size and
 * *@capacity to the values with which the channel was initialised. @memory: size of the mapping at
 * @channel, in bytes. Also fails with EINVAL if, according to its header, the channel is larger
 * than @memory; it must not be used then.
 */
int memwait_channel_attach(const memwait_channel_t *channel, size_t memory, size_t *item_size,
			   size_t *capacity) MEMWAIT_CHECKED;

/* Like memwait_cond_destroy(): waits for calls that have transferred an item or were woken. */
int memwait_channel_destroy(memwait_channel_t *channel);

/*
 * @size: size of the item. EMSGSIZE: the channel has items of another size. EPIPE: the channel is
 * closed. ETIMEDOUT: the deadline passed. memwait_channel_trysend(): EAGAIN: the channel is full.
 * EBUSY: another thread is sending.
 */
int memwait_channel_send(memwait_channel_t *channel, const void *item, size_t size)
	MEMWAIT_CHECKED;
int memwait_channel_trysend(memwait_channel_t *channel, const void *item, size_t size)
	MEMWAIT_CHECKED;
int memwait_channel_timedsend(memwait_channel_t *channel, const void *item, size_t size,
			      const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_channel_clocksend(memwait_channel_t *channel, const void *item, size_t size,
			      clockid_t clock, const struct timespec *time) MEMWAIT_CHECKED;

/* The item must stay valid and in place until the callback. */
int memwait_channel_send_async(memwait_channel_t *channel, const void *item, size_t size,
			       memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_channel_clocksend_async(memwait_channel_t *channel, const void *item, size_t size,
				    clockid_t clock, const struct timespec *time,
				    memwait_op_t *op) MEMWAIT_CHECKED;

/*
 * EMSGSIZE: the channel has items of another size. EPIPE: the channel is closed and empty.
 * ETIMEDOUT: the deadline passed. memwait_channel_tryrecv(): EAGAIN: the channel is empty. EBUSY:
 * another thread is receiving; or the channel is empty and closed, and another thread is sending.
 */
int memwait_channel_recv(memwait_channel_t *channel, void *item, size_t size) MEMWAIT_CHECKED;
int memwait_channel_tryrecv(memwait_channel_t *channel, void *item, size_t size) MEMWAIT_CHECKED;
int memwait_channel_timedrecv(memwait_channel_t *channel, void *item, size_t size,
			      const struct timespec *abstime) MEMWAIT_CHECKED;
int memwait_channel_clockrecv(memwait_channel_t *channel, void *item, size_t size,
			      clockid_t clock, const struct timespec *time) MEMWAIT_CHECKED;
int memwait_channel_recv_async(memwait_channel_t *channel, void *item, size_t size,
			       memwait_op_t *op) MEMWAIT_CHECKED;
int memwait_channel_clockrecv_async(memwait_channel_t *channel, void *item, size_t size,
				    clockid_t clock, const struct timespec *time,
				    memwait_op_t *op) MEMWAIT_CHECKED;

/*
 * Closes the channel for sending; items already sent can be received. Returns 0 even if the channel
 * is already closed.
 */
int memwait_channel_close(memwait_channel_t *channel);

/* Returns the number of items, which may be stale on return. */
size_t memwait_channel_length(const memwait_channel_t *channel);

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif

#endif /* MEMWAIT_H */
