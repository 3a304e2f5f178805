// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * memwait._memwait: the objects of libmemwait in Python buffers, for threads and for event loops.
 * The package's Python code implements the asyncio forms with this module.
 *
 * A method first tries. If it has to wait, it begins an operation on a loop that its thread uses
 * only for this purpose, releases the GIL and polls the loop's descriptor. Python can therefore
 * interrupt the thread immediately when a signal arrives: the operation is cancelled, which takes
 * nothing and does not change the order of other waiters. An operation ends in dispatch, which runs
 * with the GIL: a thread that Python ends while the thread is waiting for the GIL has not taken
 * anything. A thread that runs no signal handlers waits for a word in one system call instead: see
 * wait_directly().
 *
 * The GIL protects all structs in this file. An object counts the operations that use its memory,
 * and does not release its buffer before they have ended. A loop has a reference to each of its
 * pending operations, and an operation has a reference to its loop.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <memwait.h>

enum kind { MUTEX, COND, SEM, RWLOCK, BARRIER, WAITGROUP, EVENT, CHANNEL, WORD };

/* The kinds of operations. */
enum verb { LOCK, WAIT, READ, WRITE, SEND, RECV, COMPARE, WATCH };

/* Returned by begin(): the callback will run. The library never returns this value. */
#define PENDING		INT_MIN

/* threading.TIMEOUT_MAX, in seconds */
#define LONGEST		9223372036.0

struct state {
	PyTypeObject *object, *lock, *rlock, *rwlock, *sem, *bounded, *waitgroup, *loop, *operation;
	PyObject *owner_died, *not_recoverable, *loop_failed;
	PyObject *empty, *full, *shut_down, *broken;
	PyObject *outcomes;		/* the results of a word's waits, by number */
	unsigned long main_thread;	/* in which the interpreter runs signal handlers */
};

struct object {
	PyObject_HEAD
	struct state *state;
	enum kind kind;
	PyObject *source;		/* the argument: the buffer, or an object that has one */
	bool source_is_kept;		/* until this is freed; freeing it closes the buffer */
	Py_buffer view;
	void *address;			/* NULL: closed */
	Py_ssize_t offset;
	unsigned int users;		/* operations in progress */
	unsigned int users_forks;	/* of @users, which are 0 in a child process */
	unsigned int flags;		/* MEMWAIT_PRIVATE or 0 */
	PyObject *repair;		/* or NULL */
	struct object *lock;		/* of a condition; the RWLock of one of its sides */
	enum verb verb;			/* of acquire() */
	int size;			/* bytes of a word */
	unsigned int depth;		/* of a lock: how many times its owner has acquired it */
	unsigned int forks;		/* of @depth */
	unsigned int lost;		/* threads that a condition wait left without the lock */
	bool recursive;
	bool bounded;
};

/* A semaphore that counts the permits that are in use, to refuse further releases. */
struct bounded {
	memwait_sem_t sem;
	uint32_t taken;
};

struct request {
	struct timespec timeout;	/* MEMWAIT_RELATIVE; seconds are LONG_MAX: never */
	PyObject *item;			/* bytes to send, or the buffer to receive into */
	uint64_t expected;
	bool too_long;			/* for a thread: raise an error if it has to wait */
};

struct loop {
	PyObject_HEAD
	memwait_loop_t *loop;		/* NULL: closed */
	struct operation *pending;
	unsigned int dispatching;
	bool closed;			/* closed within dispatch, which finally frees it */
	PyObject *type, *value, *traceback;	/* raised by a callback, or NULL */
};

struct operation {
	PyObject_HEAD
	memwait_op_t op;
	struct loop *loop;
	struct operation *next, **link;	/* in the loop's list if pending, else link is NULL */
	struct object *object;
	enum verb verb;
	struct request request;
	PyObject *callback;
	int result;
	unsigned long count;		/* notifies of a watch */
	unsigned int forks;
	unsigned int depth;		/* of the lock of a condition, before the wait */
	bool begun;			/* whether it has been pending */
	bool held;			/* whether it prevents close() of its object */
};

static struct PyModuleDef module_def;

/* Exceptions */

/* These return NULL, with an exception set. */
static void *refuse(PyObject *type, const char *why)
{
	PyErr_SetString(type, why);
	return NULL;
}

static void *fail_as(PyObject *type, int error)
{
	PyObject *args = Py_BuildValue("(is)", error, memwait_strerror(error));

	if (args)
		PyErr_SetObject(type, args);
	Py_XDECREF(args);
	return NULL;
}

static void *fail(int error)
{
	if (error < 0)
		error = -error;
	return error == EINVAL ? refuse(PyExc_ValueError, memwait_strerror(error)) :
				 fail_as(PyExc_OSError, error);
}

static bool is_open(const struct object *self)
{
	if (self->address)
		return true;
	PyErr_SetString(PyExc_ValueError, "operation on a closed object");
	return false;
}

/* Arguments */

/*
 * For METH_FASTCALL | METH_KEYWORDS: @values are borrowed references, NULL for a missing argument.
 */
static int parse(const char *const *names, PyObject **values, PyObject *const *args,
		 Py_ssize_t nargs, PyObject *kwnames)
{
	Py_ssize_t most = 0, given = kwnames ? PyTuple_Size(kwnames) : 0, i, n;

	while (names[most])
		values[most++] = NULL;
	if (nargs > most) {
		PyErr_Format(PyExc_TypeError, "at most %zd arguments are allowed, %zd were given",
			     most, nargs);
		return -1;
	}
	for (i = 0; i < nargs; i++)
		values[i] = args[i];
	for (i = 0; i < given; i++) {
		PyObject *name = PyTuple_GetItem(kwnames, i);

		for (n = 0; n < most && PyUnicode_CompareWithASCIIString(name, names[n]); n++)
			;
		if (n == most || values[n]) {
			PyErr_Format(PyExc_TypeError, "unexpected or repeated argument '%U'", name);
			return -1;
		}
		values[n] = args[nargs + i];
	}
	return 0;
}

/*
 * For "O&": converts an integer of any size to a Py_ssize_t. Integers that do not fit become
 * PY_SSIZE_T_MAX or _MIN, so that all values that are out of range are refused with the same error.
 */
static int clamped(PyObject *number, void *result)
{
	Py_ssize_t *n = result;

	*n = PyNumber_AsSsize_t(number, NULL);
	return *n != -1 || !PyErr_Occurred();
}

static void set_never(struct request *request)
{
	request->timeout = (struct timespec){ .tv_sec = LONG_MAX };
	request->too_long = false;
}

/* Returns 0, or -1 with an exception set. */
static int seconds_of(PyObject *timeout, double *seconds)
{
	*seconds = PyFloat_AsDouble(timeout);
	if (*seconds == -1 && PyErr_Occurred())
		return -1;
	if (!isnan(*seconds))
		return 0;
	PyErr_SetString(PyExc_ValueError, "timeout is not a number");
	return -1;
}

static int fail_too_long(void)
{
	PyErr_SetString(PyExc_OverflowError, "timeout value is too large");
	return -1;
}

/*
 * @timeout: seconds; NULL or None: never. Returns 0; 1 if the time has already passed; or -1. For a
 * task no timeout is too long, as in asyncio.
 */
static int set_timeout(struct request *request, PyObject *timeout)
{
	double seconds, whole;
	long ns;

	set_never(request);
	if (!timeout || timeout == Py_None)
		return 0;
	if (seconds_of(timeout, &seconds))
		return -1;
	request->too_long = seconds > LONGEST;
	if (seconds > 1e9)
		return 0;
	if (seconds < 0)
		seconds = 0;
	/* Round up: a timeout is never early. */
	ns = (long)ceil(modf(seconds, &whole) * 1e9);
	request->timeout.tv_sec = (time_t)whole + ns / 1000000000;
	request->timeout.tv_nsec = ns % 1000000000;
	return seconds == 0;
}

/*
 * Parses threading's (blocking, timeout). @is_lock: -1 means no timeout, and any other negative
 * timeout, or a timeout that is too long, is refused even if there is nothing to wait for. Returns
 * 1 if the call must only try.
 */
static int set_blocking(struct request *request, PyObject *blocking, PyObject *timeout,
			bool is_lock)
{
	int blocks = blocking ? PyObject_IsTrue(blocking) : 1;
	double seconds;

	if (blocks < 0)
		return -1;
	if (timeout && timeout != Py_None && is_lock) {
		if (seconds_of(timeout, &seconds))
			return -1;
		if (fabs(seconds) > LONGEST)
			return fail_too_long();
		if (seconds == -1)
			timeout = NULL;
		if (seconds < 0 && timeout) {
			PyErr_SetString(PyExc_ValueError,
					"timeout value must be a non-negative number");
			return -1;
		}
	}
	if (!blocks && timeout && timeout != Py_None) {
		PyErr_SetString(PyExc_ValueError,
				"can't specify a timeout for a non-blocking call");
		return -1;
	}
	return blocks ? set_timeout(request, timeout) : 1;
}

/* Operations */

/* Calls the function for the word's size. @...: the operation, if the function has one. */
#define BY_SIZE(function, suffix, ...)							\
	(self->size == 1 ? function##8##suffix(self->address, (uint8_t)expected,	\
					       timeout, flags, ##__VA_ARGS__) :		\
	 self->size == 2 ? function##16##suffix(self->address, (uint16_t)expected,	\
						timeout, flags, ##__VA_ARGS__) :	\
	 self->size == 4 ? function##32##suffix(self->address, (uint32_t)expected,	\
						timeout, flags, ##__VA_ARGS__) :	\
			   function##64##suffix(self->address, expected,		\
						timeout, flags, ##__VA_ARGS__))

static int begin_word(struct object *self, enum verb verb, const struct request *request,
		      memwait_op_t *op)
{
	const struct timespec *timeout = &request->timeout;
	uint64_t expected = request->expected;
	unsigned int flags = self->flags | MEMWAIT_RELATIVE;
	int ret = verb == WATCH ? BY_SIZE(memwait_watch, , op) : BY_SIZE(memwait_wait, _async, op);

	return ret == MEMWAIT_PENDING ? PENDING : ret;
}

/* @...: further arguments of the function. */
#define BEGIN(function, ...)								\
	memwait_##function##_async(self->address, ##__VA_ARGS__, MEMWAIT_RELATIVE,	\
				   &request->timeout, op)

static int begin_wait(struct object *self, const struct request *request, memwait_op_t *op)
{
	switch (self->kind) {
	case COND:
		return BEGIN(cond_clockwait, self->lock->address);
	case SEM:
		return BEGIN(sem_clockwait);
	case BARRIER:
		return BEGIN(barrier_clockwait);
	case WAITGROUP:
		return BEGIN(waitgroup_clockwait);
	default:
		return BEGIN(event_clockwait);
	}
}

/* The arguments of a channel's functions that describe the item. */
#define ITEM	PyBytes_AsString(request->item), (size_t)PyBytes_Size(request->item)

/* Returns PENDING, or the operation's result. */
static int begin(struct object *self, enum verb verb, const struct request *request,
		 memwait_op_t *op)
{
	int ret = EINVAL;

	switch (verb) {
	case COMPARE:
	case WATCH:
		return begin_word(self, verb, request, op);
	case LOCK:
		ret = BEGIN(mutex_clocklock);
		break;
	case READ:
		ret = BEGIN(rwlock_clockrdlock);
		break;
	case WRITE:
		ret = BEGIN(rwlock_clockwrlock);
		break;
	case SEND:
		ret = BEGIN(channel_clocksend, ITEM);
		break;
	case RECV:
		ret = BEGIN(channel_clockrecv, ITEM);
		break;
	case WAIT:
		ret = begin_wait(self, request, op);
		break;
	}
	return ret == EINPROGRESS ? PENDING : ret;
}

/* Returns the result; EAGAIN or EBUSY: the call would have to wait. */
static int attempt(struct object *self, enum verb verb, const struct request *request)
{
	switch (verb) {
	case LOCK:
		return memwait_mutex_trylock(self->address);
	case READ:
		return memwait_rwlock_tryrdlock(self->address);
	case WRITE:
		return memwait_rwlock_trywrlock(self->address);
	case SEND:
		return memwait_channel_trysend(self->address, ITEM);
	case RECV:
		return memwait_channel_tryrecv(self->address, ITEM);
	default:
		return self->kind == SEM ? memwait_sem_trywait(self->address) : EAGAIN;
	}
}

static unsigned int forks;

static unsigned int users(const struct object *self)
{
	return self->users_forks == forks ? self->users : 0;
}

/* Returns the argument for let_go(): a child process does not hold what its parent held. */
static unsigned int hold(struct object *self)
{
	self->users = users(self) + 1;
	self->users_forks = forks;
	if (self->lock)
		hold(self->lock);
	return forks;
}

static void let_go(struct object *self, unsigned int held)
{
	if (held != forks)
		return;
	self->users--;
	if (self->lock)
		let_go(self->lock, held);
}

/* Waits of threads */

/*
 * A thread's own loop. A child process creates a new loop, because this loop belongs to the parent.
 */
struct thread {
	memwait_loop_t *loop;		/* NULL before its first wait */
	unsigned int forks;
	bool busy;
	bool is_first;			/* the main thread of the process */
	const struct object *lost;	/* a lock that the end of its block must not release */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;

static void thread_end(void *argument)
{
	struct thread *thread = argument;

	memwait_loop_close(thread->loop);
	free(thread);
}

static void forked(void)
{
	forks++;
}

static void set_policies(void);

static void set_up(void)
{
	set_policies();
	if (pthread_key_create(&thread_key, thread_end) || pthread_atfork(NULL, NULL, forked))
		abort();
}

/* Returns the struct of the calling thread, or NULL with an exception set. */
static struct thread *this_thread(void)
{
	struct thread *thread = pthread_getspecific(thread_key);

	if (thread && thread->forks != forks) {
		/* A signal handler has forked during a wait. The wait will release the loop. */
		if (thread->busy)
			thread->loop = NULL;
		pthread_setspecific(thread_key, NULL);
		thread_end(thread);
		thread = NULL;
	}
	if (thread)
		return thread;
	thread = malloc(sizeof(*thread));
	if (!thread || pthread_setspecific(thread_key, thread)) {
		free(thread);
		return (void *)PyErr_NoMemory();
	}
	*thread = (struct thread){ .forks = forks, .is_first = gettid() == getpid() };
	return thread;
}

/*
 * Returns a loop for one wait, or NULL with an exception set. A wait in a signal handler that has
 * interrupted another wait gets its own loop, because it must not end the operation of the other
 * wait.
 */
static memwait_loop_t *loop_take(void)
{
	struct thread *thread = this_thread();
	memwait_loop_t *loop;
	int ret;

	if (!thread)
		return NULL;
	if (thread->loop && !thread->busy) {
		thread->busy = true;
		return thread->loop;
	}
	ret = memwait_loop_new(&loop, 0);
	if (ret)
		return fail(ret);
	if (!thread->loop) {
		thread->loop = loop;
		thread->busy = true;
	}
	return loop;
}

/*
 * A wait for a condition, by this thread or one of its tasks, has ended without the lock: the end
 * of the block must not release the lock of another owner. Returns -1 with an exception set.
 */
static int lose(struct object *lock)
{
	struct thread *thread = this_thread();

	if (!thread)
		return -1;
	if (thread->lost != lock)
		lock->lost++;
	thread->lost = lock;
	return 0;
}

/* Returns whether this thread had lost the lock, and clears that record. */
static bool find(struct object *lock)
{
	struct thread *thread = lock->lost ? pthread_getspecific(thread_key) : NULL;

	if (!thread || thread->lost != lock)
		return false;
	thread->lost = NULL;
	lock->lost--;
	return true;
}

static void loop_return(memwait_loop_t *loop)
{
	struct thread *thread = pthread_getspecific(thread_key);

	if (thread && thread->loop == loop)
		thread->busy = false;
	else
		memwait_loop_close(loop);
}

/* The program has closed the descriptor: the next wait creates a new loop. */
static void loop_drop(memwait_loop_t *loop)
{
	struct thread *thread = pthread_getspecific(thread_key);

	if (thread && thread->loop == loop) {
		thread->loop = NULL;
		thread->busy = false;
	}
	memwait_loop_close(loop);
}

/*
 * Returns true for the main thread of Python and of the process: a program may embed Python in
 * another thread.
 */
static bool runs_handlers(const struct state *state, const struct thread *thread)
{
	return PyThread_get_thread_ident() == state->main_thread || !thread || thread->is_first;
}

struct wait {
	memwait_op_t op;
	bool done;
	int result;
};

static void wait_done(memwait_op_t *op, int result, void *data)
{
	struct wait *wait = data;

	(void)op;
	wait->done = true;
	wait->result = result;
}

/*
 * Called when the interpreter has ended and therefore ends this thread, which is waiting for the
 * GIL.
 */
static void abandon(void *argument)
{
	struct wait *wait = argument;

	memwait_op_cancel(&wait->op);
}

/*
 * Sleeps until the descriptor is readable or a signal arrives. Returns 0, or -1 with an exception
 * set.
 *
 * A ^C between the check and the sleep must not be missed. Signals are therefore blocked in
 * between, and ppoll() unblocks them. While they are blocked, only ^C is checked and no handler
 * runs, because a child that a handler starts would inherit the blocked signals. The kernel may
 * deliver the signal to another thread, which does not wake this thread: the thread that runs the
 * handlers therefore checks every half second. The operation retains its queue position.
 */
static int wait_sleep(const struct state *state, struct wait *wait, int fd)
{
	static const struct timespec half_a_second = { .tv_nsec = 500000000 };
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };
	bool handles = runs_handlers(state, pthread_getspecific(thread_key));
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (PyOS_InterruptOccurred()) {
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		PyErr_SetInterrupt();
		return PyErr_CheckSignals();
	}
	pthread_cleanup_push(abandon, wait);
	Py_BEGIN_ALLOW_THREADS
	ppoll(&pollfd, 1, handles ? &half_a_second : NULL, &before);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	Py_END_ALLOW_THREADS
	pthread_cleanup_pop(0);
	return 0;
}

/* Returns the loop, and the result of begin() in *@result; or NULL with an exception set. */
static memwait_loop_t *begin_in_loop(struct object *self, enum verb verb,
				     const struct request *request, struct wait *wait, int *result)
{
	memwait_loop_t *loop = loop_take();

	if (!loop)
		return NULL;
	memwait_op_init(&wait->op, loop, wait_done, wait);
	*result = begin(self, verb, request, &wait->op);
	return loop;
}

/*
 * Waits. Returns 0 and the result in *@result; or -1 with an exception set, and nothing has been
 * taken. *@begun, if not NULL: whether the operation was pending.
 */
static int wait_for(struct object *self, enum verb verb, const struct request *request,
		    int *result, bool *begun)
{
	struct wait wait = { .done = false };
	memwait_loop_t *loop;
	unsigned int held;
	int ret;

	*result = 0;
	loop = begin_in_loop(self, verb, request, &wait, result);
	if (loop && (*result == EBADF || *result == -EBADF)) {
		/* No operation has begun. */
		loop_drop(loop);
		loop = begin_in_loop(self, verb, request, &wait, result);
	}
	if (!loop)
		return -1;
	if (*result != PENDING) {
		loop_return(loop);
		return 0;
	}
	if (begun)
		*begun = true;
	held = hold(self);
	do {
		ret = request->too_long ? fail_too_long() : PyErr_CheckSignals();
		if (!ret)
			ret = wait_sleep(self->state, &wait, memwait_loop_fd(loop));
		if (!ret) {
			ret = memwait_loop_dispatch(loop, MEMWAIT_ALL);
			if (ret < 0)
				fail(ret);
		}
	} while (ret >= 0 && !wait.done);
	let_go(self, held);
	if (wait.done)
		*result = wait.result;
	else
		memwait_op_cancel(&wait.op);
	loop_return(loop);
	return wait.done ? 0 : -1;
}

struct direct_wait {
	const struct object *word;
	int result;
};

/* Like abandon(). */
static void pass_on(void *argument)
{
	const struct direct_wait *wait = argument;

	if (wait->result == MEMWAIT_OK)
		memwait_notify(wait->word->address, 1, wait->word->flags);
}

static int compare(const struct object *self, uint64_t expected, const struct timespec *timeout)
{
	unsigned int flags = self->flags;

	return BY_SIZE(memwait_wait, );
}

static void direct_sleep(struct direct_wait *wait, uint64_t expected,
			 const struct timespec *deadline)
{
	pthread_cleanup_push(pass_on, wait);
	Py_BEGIN_ALLOW_THREADS
	do
		wait->result = compare(wait->word, expected, deadline);
	while (wait->result == -EINTR);
	Py_END_ALLOW_THREADS
	pthread_cleanup_pop(0);
}

/*
 * wait_for() for a word, and for a thread in which no signal handlers run. Such a thread need not
 * notice signals, and waits in one system call instead of five. If Python ends the thread while the
 * thread is waiting for the GIL, the wake-up passes to the next waiter. The deadline is absolute,
 * because a signal begins the wait again.
 */
static int wait_directly(struct object *self, const struct request *request)
{
	struct direct_wait wait = { .word = self, .result = -EINTR };
	struct timespec deadline, *until = NULL;
	unsigned int held;

	if (request->timeout.tv_sec != LONG_MAX) {
		clock_gettime(CLOCK_MONOTONIC, &deadline);
		deadline.tv_sec += request->timeout.tv_sec;
		deadline.tv_nsec += request->timeout.tv_nsec;
		if (deadline.tv_nsec >= 1000000000) {
			deadline.tv_sec++;
			deadline.tv_nsec -= 1000000000;
		}
		until = &deadline;
	}
	held = hold(self);
	direct_sleep(&wait, request->expected, until);
	let_go(self, held);
	return wait.result;
}

/* Results */

static int unlock(struct object *self)
{
	return self->kind == MUTEX ? memwait_mutex_unlock(self->address)
				   : memwait_rwlock_unlock(self->address);
}

/*
 * The last owner has died: the caller holds the lock, and must repair the data that the lock
 * guards.
 */
static int inherit(struct object *self)
{
	PyObject *repaired, *type, *value, *traceback;
	unsigned int held;
	int ret;

	if (!self->repair) {
		unlock(self);
		fail_as(self->state->owner_died, EOWNERDEAD);
		return -1;
	}
	held = hold(self);
	repaired = PyObject_CallNoArgs(self->repair);
	if (!repaired) {
		PyErr_Fetch(&type, &value, &traceback);
		unlock(self);
		let_go(self, held);
		PyErr_Restore(type, value, traceback);
		return -1;
	}
	ret = self->kind == MUTEX ? memwait_mutex_consistent(self->address)
				  : memwait_rwlock_consistent(self->address);
	let_go(self, held);
	Py_DECREF(repaired);
	if (!ret)
		return 0;
	fail(ret);
	return -1;
}

/*
 * Only a condition uses the depth, for an RLock that it must reacquire after ^C. In a child process
 * the depth was that of the parent.
 */
static unsigned int depth(const struct object *self)
{
	return self->forks == forks ? self->depth : 0;
}

static void set_depth(struct object *self, unsigned int depth)
{
	self->depth = depth;
	self->forks = forks;
}

/* Returns whether a condition wait, once it had begun, ended with the mutex locked. */
static bool has_lock(int result)
{
	return !result || result == ETIMEDOUT || result == EOWNERDEAD || result == ENOTRECOVERABLE;
}

/*
 * A permit counts as in use from its acquisition until just before its release, so that the bound
 * cannot be exceeded. relaxed: the semaphore orders the handover of permits.
 */
static uint32_t *taken(const struct object *self)
{
	return &((struct bounded *)self->address)->taken;
}

/*
 * Opens the device, which is a side effect of an init function whose result is not used. If a
 * release cannot post, it fails here, before it decrements the count. A release that fails later
 * may have posted; the count must stay decremented then.
 */
static int can_post(void)
{
	memwait_sem_t unused;

	return memwait_sem_init(&unused, MEMWAIT_PRIVATE, 0);
}

static bool may_release(const struct object *self, Py_ssize_t n)
{
	uint32_t was = __atomic_load_n(taken(self), __ATOMIC_RELAXED);

	do {
		if (was < (size_t)n)
			return false;
	} while (!__atomic_compare_exchange_n(taken(self), &was, was - (uint32_t)n, true,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return true;
}

/* Returns True if the lock or permit was acquired. */
static PyObject *acquired(struct object *self, int result)
{
	switch (result) {
	case EOWNERDEAD:
		if (inherit(self))
			return NULL;
		find(self);
		set_depth(self, 1);
		Py_RETURN_TRUE;
	case 0:
		find(self);
		set_depth(self, depth(self) + 1);
		if (self->bounded)
			__atomic_fetch_add(taken(self), 1, __ATOMIC_RELAXED);
		Py_RETURN_TRUE;
	case EBUSY:
	case EAGAIN:
	case ETIMEDOUT:
		Py_RETURN_FALSE;
	case ENOTRECOVERABLE:
		return fail_as(self->state->not_recoverable, result);
	default:
		return fail(result);
	}
}

static PyObject *transferred(struct object *self, enum verb verb, int result, PyObject *item)
{
	switch (result) {
	case 0:
		return Py_NewRef(verb == RECV ? item : Py_None);
	case EBUSY:
	case EAGAIN:
	case ETIMEDOUT:
		PyErr_SetNone(verb == RECV ? self->state->empty : self->state->full);
		return NULL;
	case EPIPE:
		PyErr_SetNone(self->state->shut_down);
		return NULL;
	default:
		return fail(result);
	}
}

/* A participant whose wait times out breaks the barrier for all. */
static PyObject *met(struct object *self, int result)
{
	if (!result || result == MEMWAIT_BARRIER_SERIAL_THREAD)
		return PyLong_FromLong(!result);
	if (result == ETIMEDOUT) {
		result = memwait_barrier_abort(self->address);
		if (!result)
			result = EPIPE;
	}
	if (result != EPIPE)
		return fail(result);
	PyErr_SetNone(self->state->broken);
	return NULL;
}

/*
 * If a writer has died, a reader also gets the lock for writing. Returns None: the lock is now
 * unlocked, and the caller must acquire it again for reading.
 */
static PyObject *inherit_to_read(struct object *self)
{
	int ret;

	if (inherit(self))
		return NULL;
	ret = unlock(self);
	return ret ? fail(ret) : Py_NewRef(Py_None);
}

/* Converts a result of the library to the return value of a method. */
static PyObject *outcome(struct object *self, enum verb verb, int result, PyObject *item)
{
	switch (self->kind) {
	case CHANNEL:
		return transferred(self, verb, result, item);
	case BARRIER:
		return met(self, result);
	case WORD:
		return result < 0 ? fail(result) :
				    Py_XNewRef(PyTuple_GetItem(self->state->outcomes, result));
	case RWLOCK:
		/* A wait returns EAGAIN if there are too many readers. */
		if (result == EAGAIN)
			break;
		if (result == EOWNERDEAD && verb == READ)
			return inherit_to_read(self);
		return acquired(self, result);
	case COND:
		if (result == ETIMEDOUT || !result)
			return PyBool_FromLong(!result);
		if (result == EPERM)
			return refuse(PyExc_RuntimeError, "cannot wait on un-acquired lock");
		return acquired(self->lock, result);
	case MUTEX:
		/* If this returned False, the block would run without the lock. */
		if (result == EAGAIN)
			return refuse(PyExc_OverflowError, "the lock is held too many times");
		return acquired(self, result);
	default:
		return acquired(self, result);
	}
	return fail_as(PyExc_OSError, result);
}

static PyObject *perform_once(struct object *self, enum verb verb, struct request *request,
			      bool only_try)
{
	int result;

	if (!is_open(self))
		return NULL;
	result = attempt(self, verb, request);
	if (!only_try && (result == EBUSY || result == EAGAIN)) {
		if (wait_for(self, verb, request, &result, NULL))
			return NULL;
		return outcome(self, verb, result, request->item);
	}
	/* If there are too many readers, a try returns False, as if a writer held the lock. */
	if (self->kind == RWLOCK && result == EAGAIN)
		result = EBUSY;
	return outcome(self, verb, result, request->item);
}

/* Tries, and then waits, unless @request forbids waiting. */
static PyObject *perform(struct object *self, enum verb verb, struct request *request,
			 bool only_try)
{
	PyObject *ret = perform_once(self, verb, request, only_try);

	while (ret == Py_None && self->kind == RWLOCK) {
		Py_DECREF(ret);
		ret = perform_once(self, verb, request, only_try);
	}
	return ret;
}

/* Objects */

static void let_go_of_buffer(struct object *self)
{
	PyBuffer_Release(&self->view);
	self->address = NULL;
	self->source_is_kept = false;
}

/*
 * Does not visit @given: the collector finalizes garbage in any order, and finalizing a
 * SharedMemory or a memoryview fails while its buffer is in use. References that are not visited
 * keep their target alive until this object is freed. Therefore, if the target refers to this
 * object, the program must close this object.
 */
static int object_traverse(PyObject *object, visitproc visit, void *arg)
{
	struct object *self = (struct object *)object;

	Py_VISIT(Py_TYPE(object));
	if (!self->source_is_kept)
		Py_VISIT(self->source);
	Py_VISIT(self->repair);
	Py_VISIT(self->lock);
	return 0;
}

/* Does not release the buffer and the lock: a finalizer of the same garbage may use the object. */
static int object_clear(PyObject *object)
{
	struct object *self = (struct object *)object;

	if (!self->source_is_kept)
		Py_CLEAR(self->source);
	Py_CLEAR(self->repair);
	return 0;
}

static void object_dealloc(PyObject *object)
{
	struct object *self = (struct object *)object;
	PyTypeObject *type = Py_TYPE(object);
	freefunc tp_free = PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(object);
	let_go_of_buffer(self);
	object_clear(object);
	Py_CLEAR(self->lock);
	tp_free(object);
	Py_DECREF(type);
}

static struct state *state_of(PyTypeObject *type)
{
	PyObject *module;

	for (; type; type = PyType_GetSlot(type, Py_tp_base)) {
		module = PyType_GetModule(type);
		if (module && PyModule_GetDef(module) == &module_def)
			return PyModule_GetState(module);
		PyErr_Clear();
	}
	return refuse(PyExc_TypeError, "not a class of memwait");
}

static PyObject *buffer_of(PyObject *source)
{
	if (PyObject_CheckBuffer(source))
		return Py_NewRef(source);
	return PyObject_GetAttrString(source, "buf");
}

/* Creates an object at @offset in a buffer. @size: the minimum number of bytes that it needs. */
static struct object *object_new(PyTypeObject *type, enum kind kind, PyObject *source,
				 Py_ssize_t offset, size_t size, size_t align)
{
	struct state *state = state_of(type);
	allocfunc tp_alloc = PyType_GetSlot(type, Py_tp_alloc);
	PyObject *buffer = state ? buffer_of(source) : NULL;
	struct object *self;
	int ret;

	if (!buffer)
		return NULL;
	self = (struct object *)tp_alloc(type, 0);
	if (!self) {
		Py_DECREF(buffer);
		return NULL;
	}
	self->state = state;
	self->kind = kind;
	self->offset = offset;
	self->source = Py_NewRef(source);
	ret = PyObject_GetBuffer(buffer, &self->view, PyBUF_WRITABLE);
	Py_DECREF(buffer);
	if (ret)
		goto fail;
	/* From this point, freeing the object releases the buffer. */
	self->source_is_kept = PyMemoryView_Check(source) ||
			       PyType_GetSlot(Py_TYPE(source), Py_tp_finalize);
	self->address = (char *)self->view.buf + (offset > 0 ? offset : 0);
	if (offset < 0 || offset > self->view.len || (size_t)(self->view.len - offset) < size) {
		PyErr_Format(PyExc_ValueError,
			     "the buffer is too small: %zu bytes at offset %zd do not fit in %zd",
			     size, offset, self->view.len);
		goto fail;
	}
	if ((uintptr_t)self->address % align) {
		PyErr_Format(PyExc_ValueError, "offset %zd is not aligned to %zu", offset, align);
		goto fail;
	}
	return self;
fail:
	Py_DECREF(self);
	return NULL;
}

/* @ret: the result of an init function. */
static PyObject *initialised(struct object *self, int ret)
{
	if (!ret)
		return (PyObject *)self;
	fail(ret);
	Py_DECREF(self);
	return NULL;
}

static bool set_repair(struct object *self, PyObject *repair)
{
	if (repair == Py_None)
		return true;
	if (!PyCallable_Check(repair)) {
		PyErr_SetString(PyExc_TypeError, "repair must be callable");
		return false;
	}
	self->repair = Py_NewRef(repair);
	return true;
}

static PyObject *object_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)object;

	if (users(self))
		return refuse(PyExc_BufferError, "a thread or a task waits for the object");
	let_go_of_buffer(self);
	object_clear(object);
	Py_RETURN_NONE;
}

static PyObject *object_is_closed(PyObject *self, void *Py_UNUSED(closure))
{
	return PyBool_FromLong(!((struct object *)self)->address);
}

static PyGetSetDef object_getset[] = {
	{ "closed", object_is_closed, NULL, "True after close().", NULL },
	{ NULL }
};

/* A NULL object is None. */
static PyMemberDef object_members[] = {
	{ "offset", T_PYSSIZET, offsetof(struct object, offset), READONLY,
	  "The offset of the object in the buffer." },
	{ "buffer", T_OBJECT, offsetof(struct object, source), READONLY,
	  "The buffer argument of the constructor." },
	{ "repair", T_OBJECT, offsetof(struct object, repair), READONLY,
	  "The repair function, or None." },
	{ "lock", T_OBJECT, offsetof(struct object, lock), READONLY,
	  "The lock of a condition, or None." },
	{ NULL }
};

static PyObject *begin_operation(PyObject *self, PyObject *args);

static PyMethodDef object_methods[] = {
	{ "close", object_close, METH_NOARGS,
	  "close($self, /)\n--\n\nRelease the buffer. The object in the buffer stays as it is.\n\n"
	  "BufferError if a thread or a task waits for it. Every later use raises ValueError." },
	{ "_begin", begin_operation, METH_VARARGS,
	  "_begin($self, loop, callback, verb, timeout=None, argument=None, /)\n--\n\n"
	  "Begin an Operation of a Loop." },
	{ NULL }
};

#define TYPE_FLAGS								\
	(Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE)

static PyType_Slot object_slots[] = {
	{ Py_tp_dealloc, object_dealloc },
	{ Py_tp_traverse, object_traverse },
	{ Py_tp_clear, object_clear },
	{ Py_tp_methods, object_methods },
	{ Py_tp_members, object_members },
	{ Py_tp_getset, object_getset },
	{ 0 }
};

static PyType_Spec object_spec = {
	.name = "memwait._memwait.Object",
	.basicsize = sizeof(struct object),
	.flags = TYPE_FLAGS | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = object_slots,
};

#define FASTCALL(function)	((PyCFunction)(void (*)(void))(function))

/* A method without arguments that calls one function of the library. */
#define METHOD_OF_CALL(name, call)						\
	static PyObject *name(PyObject *object, PyObject *Py_UNUSED(unused))	\
	{									\
		struct object *self = (struct object *)object;			\
		int ret;							\
										\
		if (!is_open(self))						\
			return NULL;						\
		ret = call(self->address);					\
		return ret ? fail(ret) : Py_NewRef(Py_None);			\
	}

/* Locks */

/* the argument names of threading, and those of multiprocessing */
static const char *const acquire_names[][3] = {
	{ "blocking", "timeout", NULL },
	{ "block", "timeout", NULL },
};

/* Whether the caller uses multiprocessing's argument name, and therefore its semantics. */
static bool says_block(PyObject *kwnames)
{
	Py_ssize_t i, n = kwnames ? PyTuple_Size(kwnames) : 0;

	for (i = 0; i < n; i++)
		if (!PyUnicode_CompareWithASCIIString(PyTuple_GetItem(kwnames, i), "block"))
			return true;
	return false;
}

/* A condition, or a side of an RWLock, acquires and releases its lock. */
static struct object *acquired_by(PyObject *object)
{
	struct object *self = (struct object *)object;

	return self->lock ? self->lock : self;
}

static PyObject *acquire(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
			 PyObject *kwnames)
{
	const enum verb verb = ((struct object *)object)->verb;
	struct object *self = acquired_by(object);
	struct request request = { .item = NULL };
	bool block = says_block(kwnames);
	PyObject *values[2];
	int only_try;

	if (!nargs && !kwnames) {
		set_never(&request);
		return perform(self, verb, &request, false);
	}
	if (parse(acquire_names[block], values, args, nargs, kwnames))
		return NULL;
	if (block && PyObject_IsTrue(values[0]) == 0)
		values[1] = NULL;
	only_try = set_blocking(&request, values[0], values[1], self->kind != SEM && !block);
	return only_try < 0 ? NULL : perform(self, verb, &request, only_try);
}

static PyObject *enter(PyObject *object, PyObject *Py_UNUSED(unused))
{
	return acquire(object, NULL, 0, NULL);
}

static PyObject *give(struct object *self)
{
	int ret;

	if (!is_open(self))
		return NULL;
	ret = find(self) ? EPERM : unlock(self);
	if (!ret) {
		if (depth(self))
			self->depth--;
		Py_RETURN_NONE;
	}
	if (ret != EPERM)
		return fail(ret);
	return refuse(PyExc_RuntimeError, "cannot release un-acquired lock");
}

/*
 * The end of a block. The block may have lost its lock, if a repair or the device failed. In that
 * case the exception that reports the failure propagates.
 */
static PyObject *leave(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
	PyObject *ret = give(acquired_by(object));

	if (ret || !nargs || args[0] == Py_None || !PyErr_ExceptionMatches(PyExc_RuntimeError))
		return ret;
	PyErr_Clear();
	Py_RETURN_NONE;
}

static PyObject *release(PyObject *object, PyObject *Py_UNUSED(unused))
{
	return give(acquired_by(object));
}

/* 1: locked, by the calling thread if the lock records its owner; 0; or -1 with an exception. */
static int is_held(struct object *self)
{
	int ret = is_open(self) ? memwait_mutex_is_held(self->address) : -1;

	if (ret < -1)
		fail(ret);
	return ret < 0 ? -1 : ret;
}

static PyObject *mutex_is_owned(PyObject *self, PyObject *Py_UNUSED(unused))
{
	int held = is_held((struct object *)self);

	return held < 0 ? NULL : PyBool_FromLong(held);
}

static PyObject *mutex_lose(PyObject *self, PyObject *Py_UNUSED(unused))
{
	return lose((struct object *)self) ? NULL : Py_NewRef(Py_None);
}

static PyObject *mutex_locked(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)object;
	int held = is_held(self);
	PyObject *ret;

	if (held < 0)
		return NULL;
	/* A mutex that checks owners does not report whether another thread holds it. */
	if (held || (!self->repair && !self->recursive))
		return PyBool_FromLong(held);
	ret = acquired(self, memwait_mutex_trylock(self->address));
	if (ret != Py_True) {
		Py_XDECREF(ret);
		return ret ? Py_NewRef(Py_True) : NULL;
	}
	Py_DECREF(ret);
	ret = give(self);
	if (!ret)
		return NULL;
	Py_DECREF(ret);
	Py_RETURN_FALSE;
}

static PyObject *mutex_make(PyTypeObject *type, PyObject *args, PyObject *kwargs,
			    unsigned int kind)
{
	static char *names[] = { "buffer", "offset", "create", "fair", "repair", "private", NULL };
	PyObject *source, *repair = Py_None;
	int create = 0, fair = 0, private = 0, ret = 0;
	struct object *self;
	Py_ssize_t offset = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&$ppOp", names, &source,
					 clamped, &offset, &create, &fair, &repair, &private))
		return NULL;
	if (fair && repair != Py_None)
		return refuse(PyExc_ValueError, "a lock cannot have both fair= and repair=");
	self = object_new(type, MUTEX, source, offset, sizeof(memwait_mutex_t), 8);
	if (!self)
		return NULL;
	if (!set_repair(self, repair)) {
		Py_DECREF(self);
		return NULL;
	}
	self->recursive = kind == MEMWAIT_MUTEX_RECURSIVE;
	kind |= fair ? MEMWAIT_MUTEX_FAIR : 0;
	kind |= self->repair ? MEMWAIT_MUTEX_ROBUST : 0;
	kind |= private ? MEMWAIT_PRIVATE : 0;
	if (create)
		ret = memwait_mutex_init(self->address, kind);
	return initialised(self, ret);
}

static PyObject *lock_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	return mutex_make(type, args, kwargs, MEMWAIT_MUTEX_NORMAL);
}

static PyObject *rlock_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	return mutex_make(type, args, kwargs, MEMWAIT_MUTEX_RECURSIVE);
}

#define ACQUIRE_DOC(defaults)							\
	"acquire($self, /, blocking=True, timeout=" defaults ")\n--\n\n"	\
	"Acquire the lock or permit and return True. Return False if that would block or\n"	\
	"timed out.\n"								\
	"With block= instead, timeout= works as in multiprocessing: None waits forever,\n"	\
	"a negative timeout does not wait.\n\n"					\
	"The GIL is released during the wait. ^C ends the wait, and nothing is taken."

#define LOCK_METHODS								\
	{ "acquire", FASTCALL(acquire), METH_FASTCALL | METH_KEYWORDS,		\
	  ACQUIRE_DOC("-1") },							\
	{ "release", release, METH_NOARGS,					\
	  "release($self, /)\n--\n\nRelease the lock. RuntimeError if it is not locked." },	\
	{ "__enter__", enter, METH_NOARGS, NULL },				\
	{ "__exit__", FASTCALL(leave), METH_FASTCALL, NULL }

#define MUTEX_METHODS								\
	LOCK_METHODS,								\
	{ "locked", mutex_locked, METH_NOARGS,					\
	  "locked($self, /)\n--\n\nTrue if any thread of any process holds the lock.\n\n"	\
	  "For an RLock or a lock with repair=, this tries to acquire the lock, and repairs\n"	\
	  "it if the owner has died." },					\
	{ "_is_owned", mutex_is_owned, METH_NOARGS,				\
	  "_is_owned($self, /)\n--\n\n"						\
	  "True if the lock is held, by this thread if the lock records its owner." },	\
	{ "_lose", mutex_lose, METH_NOARGS,					\
	  "_lose($self, /)\n--\n\n"						\
	  "A task of this thread has lost the lock: its next release() raises RuntimeError." }

static PyMethodDef lock_methods[] = {
	MUTEX_METHODS,
	{ NULL }
};

static PyMethodDef rlock_methods[] = {
	MUTEX_METHODS,
	{ NULL }
};

/* @signature: of the constructor, for inspect and help(). */
#define OBJECT_TYPE(variable, public_name, signature)				\
	static PyType_Slot variable##_slots[] = {				\
		{ Py_tp_new, variable##_new },					\
		{ Py_tp_doc, public_name signature "\n--\n\n" },		\
		{ Py_tp_dealloc, object_dealloc },				\
		{ Py_tp_traverse, object_traverse },				\
		{ Py_tp_clear, object_clear },					\
		{ Py_tp_methods, variable##_methods },				\
		{ 0 }								\
	};									\
	static PyType_Spec variable##_spec = {					\
		.name = "memwait._memwait." public_name,			\
		.basicsize = sizeof(struct object),				\
		.flags = TYPE_FLAGS,						\
		.slots = variable##_slots,					\
	}

OBJECT_TYPE(lock, "Lock",
	    "(buffer, offset=0, *, create=False, fair=False, repair=None, private=False)");
OBJECT_TYPE(rlock, "RLock",
	    "(buffer, offset=0, *, create=False, fair=False, repair=None, private=False)");

/* Condition variables */

static PyObject *cond_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "buffer", "offset", "lock", "create", "private", NULL };
	PyObject *source, *lock = NULL;
	int create = 0, private = 0, ret = 0;
	struct object *self;
	Py_ssize_t offset = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&$Opp", names, &source,
					 clamped, &offset, &lock, &create, &private))
		return NULL;
	if (!lock)
		return refuse(PyExc_TypeError, "a condition needs its lock=");
	self = object_new(type, COND, source, offset, sizeof(memwait_cond_t), 8);
	if (!self)
		return NULL;
	if (!PyType_IsSubtype(Py_TYPE(lock), self->state->lock) &&
	    !PyType_IsSubtype(Py_TYPE(lock), self->state->rlock)) {
		PyErr_SetString(PyExc_TypeError, "lock must be a Lock or RLock of memwait");
		Py_DECREF(self);
		return NULL;
	}
	self->lock = (struct object *)Py_NewRef(lock);
	if (create)
		ret = memwait_cond_init(self->address, private ? MEMWAIT_PRIVATE : 0);
	return initialised(self, ret);
}

static bool cond_is_open(const struct object *self)
{
	return is_open(self) && is_open(self->lock);
}

/* Restores the exception that was saved before a call, unless @ret reports a new exception. */
static void restore_unless_failed(PyObject *ret, PyObject *type, PyObject *value,
				  PyObject *traceback)
{
	if (ret) {
		PyErr_Restore(type, value, traceback);
		Py_DECREF(ret);
		return;
	}
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(traceback);
}

/*
 * Reacquires the lock after ^C or an error from the device. The caller's block will release the
 * lock as many times as it has acquired it, and must not release the lock of another owner.
 * Therefore a second ^C does not end this function.
 */
static void lock_again(struct object *self, unsigned int times)
{
	PyObject *type, *value, *traceback, *locked;
	struct object *lock = self->lock;
	unsigned int held;
	int ret;

	PyErr_Fetch(&type, &value, &traceback);
	held = hold(self);
	Py_BEGIN_ALLOW_THREADS
	ret = memwait_mutex_lock(lock->address);
	Py_END_ALLOW_THREADS
	let_go(self, held);
	locked = acquired(lock, ret);
	while (locked && depth(lock) < times && !memwait_mutex_lock(lock->address))
		lock->depth++;
	if (!locked)
		lose(lock);
	restore_unless_failed(locked, type, value, traceback);
}

static PyObject *cond_wait(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
			   PyObject *kwnames)
{
	static const char *const names[] = { "timeout", NULL };
	struct object *self = (struct object *)object;
	struct request request = { .item = NULL };
	PyObject *timeout, *ret = NULL;
	unsigned int times;
	bool begun = false;
	int result;

	if (parse(names, &timeout, args, nargs, kwnames) || set_timeout(&request, timeout) < 0 ||
	    !cond_is_open(self))
		return NULL;
	/* Other threads can acquire the lock during the wait. */
	times = self->lock->recursive ? depth(self->lock) : 1;
	set_depth(self->lock, 0);
	if (!wait_for(self, WAIT, &request, &result, &begun))
		ret = begun && !has_lock(result) ? fail(result) : outcome(self, WAIT, result, NULL);
	if (begun && !has_lock(result))
		lock_again(self, times);
	set_depth(self->lock, times);
	return ret;
}

/* The caller must be the lock's owner, if the lock records its owner. */
static PyObject *cond_wake(struct object *self, unsigned int n)
{
	int ret = cond_is_open(self) ? is_held(self->lock) : -1;

	if (ret < 0)
		return NULL;
	if (!ret)
		return refuse(PyExc_RuntimeError, "cannot notify on un-acquired lock");
	ret = n == MEMWAIT_ALL ? memwait_cond_broadcast(self->address)
			       : memwait_cond_notify(self->address, n);
	return ret ? fail(ret) : Py_NewRef(Py_None);
}

static PyObject *cond_notify(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
			     PyObject *kwnames)
{
	static const char *const names[] = { "n", NULL };
	PyObject *number;
	Py_ssize_t n = 1;

	if (parse(names, &number, args, nargs, kwnames) || (number && !clamped(number, &n)))
		return NULL;
	if (n < 0)
		n = 0;
	return cond_wake((struct object *)object, n > INT_MAX ? INT_MAX : (unsigned int)n);
}

static PyObject *cond_notify_all(PyObject *object, PyObject *Py_UNUSED(unused))
{
	return cond_wake((struct object *)object, MEMWAIT_ALL);
}

static PyMethodDef cond_methods[] = {
	LOCK_METHODS,
	{ "wait", FASTCALL(cond_wait), METH_FASTCALL | METH_KEYWORDS,
	  "wait($self, /, timeout=None)\n--\n\n"
	  "Release the lock, wait for a notify, and reacquire the lock. False: timed out.\n\n"
	  "The wait may return without a notify. After ^C the lock is reacquired first, however\n"
	  "long that takes." },
	{ "notify", FASTCALL(cond_notify), METH_FASTCALL | METH_KEYWORDS,
	  "notify($self, /, n=1)\n--\n\nWake up to n waiters, oldest first.\n\n"
	  "RuntimeError if the lock is not held." },
	{ "notify_all", cond_notify_all, METH_NOARGS,
	  "notify_all($self, /)\n--\n\nWake all waiters." },
	{ NULL }
};

OBJECT_TYPE(cond, "Condition",
	    "(buffer, offset=0, *, lock, create=False, private=False)");

/* Semaphores */

static PyObject *sem_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "buffer", "offset", "value", "create", "fair", "private", NULL };
	int create = 0, fair = 0, private = 0, ret = 0;
	struct object *self;
	struct state *state;
	Py_ssize_t offset = 0, value = 1;
	PyObject *source;
	bool bounded;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&$O&ppp", names, &source,
					 clamped, &offset, clamped, &value, &create, &fair,
					 &private))
		return NULL;
	if (value < 0)
		return refuse(PyExc_ValueError, "semaphore initial value must be >= 0");
	if (value > (fair ? MEMWAIT_SEM_FAIR_VALUE_MAX : MEMWAIT_SEM_VALUE_MAX))
		return refuse(PyExc_ValueError, "semaphore initial value is too large");
	state = state_of(type);
	if (!state)
		return NULL;
	bounded = PyType_IsSubtype(type, state->bounded);
	self = object_new(type, SEM, source, offset,
			  bounded ? sizeof(struct bounded) : sizeof(memwait_sem_t), 8);
	if (!self)
		return NULL;
	self->verb = WAIT;
	self->bounded = bounded;
	if (create && bounded)
		*taken(self) = 0;
	if (create)
		ret = memwait_sem_init(self->address, (fair ? MEMWAIT_SEM_FAIR : 0) |
				       (private ? MEMWAIT_PRIVATE : 0), (unsigned int)value);
	return initialised(self, ret);
}

static PyObject *sem_post(struct object *self, Py_ssize_t n)
{
	unsigned int held;
	int ret, value = 0;

	if (!is_open(self))
		return NULL;
	ret = self->bounded ? can_post() : 0;
	if (!ret && n > 1)
		ret = memwait_sem_getvalue(self->address, &value);
	if (ret)
		return fail(ret);
	if (n > INT_MAX - value || (self->bounded && !may_release(self, n)))
		goto too_many;
	if (n == 1) {
		ret = memwait_sem_post(self->address);
	} else {
		held = hold(self);
		Py_BEGIN_ALLOW_THREADS
		do {
			ret = memwait_sem_post(self->address);
		} while (!ret && --n);
		Py_END_ALLOW_THREADS
		let_go(self, held);
	}
	if (!ret)
		Py_RETURN_NONE;
	if (ret != EOVERFLOW)
		return fail(ret);
	/* Only this failure is known to have posted nothing. */
	if (self->bounded)
		__atomic_fetch_add(taken(self), (uint32_t)n, __ATOMIC_RELAXED);
too_many:
	return refuse(PyExc_ValueError, "semaphore released too many times");
}

static PyObject *sem_release(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
			     PyObject *kwnames)
{
	static const char *const names[] = { "n", NULL };
	PyObject *number;
	Py_ssize_t n = 1;

	if (parse(names, &number, args, nargs, kwnames) || (number && !clamped(number, &n)))
		return NULL;
	if (n < 1)
		return refuse(PyExc_ValueError, "n must be one or more");
	return sem_post((struct object *)self, n);
}

static PyObject *sem_exit(PyObject *self, PyObject *const *Py_UNUSED(args),
			  Py_ssize_t Py_UNUSED(nargs))
{
	return sem_post((struct object *)self, 1);
}

static PyObject *sem_value(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)object;
	int value, ret;

	if (!is_open(self))
		return NULL;
	ret = memwait_sem_getvalue(self->address, &value);
	return ret ? fail(ret) : PyLong_FromLong(value);
}

static PyMethodDef sem_methods[] = {
	{ "acquire", FASTCALL(acquire), METH_FASTCALL | METH_KEYWORDS, ACQUIRE_DOC("None") },
	{ "release", FASTCALL(sem_release), METH_FASTCALL | METH_KEYWORDS,
	  "release($self, /, n=1)\n--\n\nAdd n to the value, and wake up to n waiters.\n\n"
	  "ValueError if the value would be too large. Then nothing is added, unless other\n"
	  "threads or processes add at the same time." },
	{ "get_value", sem_value, METH_NOARGS,
	  "get_value($self, /)\n--\n\nReturn the value now." },
	{ "__enter__", enter, METH_NOARGS, NULL },
	{ "__exit__", FASTCALL(sem_exit), METH_FASTCALL, NULL },
	{ NULL }
};

OBJECT_TYPE(sem, "Semaphore",
	    "(buffer, offset=0, *, value=1, create=False, fair=False, private=False)");

static PyMethodDef bounded_methods[] = {
	{ "release", FASTCALL(sem_release), METH_FASTCALL | METH_KEYWORDS,
	  "release($self, /, n=1)\n--\n\nAdd n to the value, and wake up to n waiters.\n\n"
	  "ValueError, with nothing added, if all processes together have acquired fewer." },
	{ NULL }
};

#define bounded_new	sem_new
OBJECT_TYPE(bounded, "BoundedSemaphore",
	    "(buffer, offset=0, *, value=1, create=False, fair=False, private=False)");

/* Read-write locks */

static PyObject *rwlock_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "buffer", "offset", "create", "fair", "prefer_writer", "repair",
				 "private", NULL };
	int create = 0, fair = 0, prefer_writer = 0, private = 0, ret = 0;
	PyObject *source, *repair = Py_None;
	unsigned int kind = MEMWAIT_RWLOCK_PREFER_READER;
	struct object *self;
	Py_ssize_t offset = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&$pppOp", names, &source,
					 clamped, &offset, &create, &fair, &prefer_writer, &repair,
					 &private))
		return NULL;
	self = object_new(type, RWLOCK, source, offset, sizeof(memwait_rwlock_t), 8);
	if (!self)
		return NULL;
	if (!set_repair(self, repair)) {
		Py_DECREF(self);
		return NULL;
	}
	kind |= fair ? MEMWAIT_RWLOCK_FAIR : 0;
	kind |= prefer_writer ? MEMWAIT_RWLOCK_PREFER_WRITER : 0;
	kind |= self->repair ? MEMWAIT_RWLOCK_ROBUST : 0;
	kind |= private ? MEMWAIT_PRIVATE : 0;
	if (create)
		ret = memwait_rwlock_init(self->address, kind);
	return initialised(self, ret);
}

static PyMethodDef rwlock_methods[] = {
	{ NULL }
};

OBJECT_TYPE(rwlock, "RWLock",
	    "(buffer, offset=0, *, create=False, fair=False, prefer_writer=False, repair=None, "
	    "private=False)");

static PyObject *side_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct state *state = state_of(type);
	allocfunc tp_alloc = PyType_GetSlot(type, Py_tp_alloc);
	struct object *self;
	PyObject *rwlock;
	int write;

	if (!state)
		return NULL;
	if (kwargs && PyDict_Size(kwargs))
		return refuse(PyExc_TypeError, "no keyword arguments");
	if (!PyArg_ParseTuple(args, "O!p", state->rwlock, &rwlock, &write))
		return NULL;
	self = (struct object *)tp_alloc(type, 0);
	if (!self)
		return NULL;
	self->lock = (struct object *)Py_NewRef(rwlock);
	self->verb = write ? WRITE : READ;
	return (PyObject *)self;
}

static PyMethodDef side_methods[] = {
	LOCK_METHODS,
	{ NULL }
};

static PyType_Slot side_slots[] = {
	{ Py_tp_new, side_new },
	{ Py_tp_dealloc, object_dealloc },
	{ Py_tp_traverse, object_traverse },
	{ Py_tp_clear, object_clear },
	{ Py_tp_methods, side_methods },
	{ 0 }
};

static PyType_Spec side_spec = {
	.name = "memwait._memwait.Side",
	.basicsize = sizeof(struct object),
	.flags = TYPE_FLAGS,
	.slots = side_slots,
};

/* Barriers, wait groups and events */

static PyObject *barrier_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "buffer", "offset", "parties", "create", "private", NULL };
	int create = 0, private = 0, ret = 0;
	struct object *self;
	Py_ssize_t offset = 0, parties = 0;
	PyObject *source;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&$O&pp", names, &source,
					 clamped, &offset, clamped, &parties, &create, &private))
		return NULL;
	if (create && (parties < 1 || parties > INT_MAX))
		return refuse(PyExc_ValueError, parties < 1 ? "parties must be > 0" :
							      "parties is too large");
	self = object_new(type, BARRIER, source, offset, sizeof(memwait_barrier_t), 8);
	if (self && create)
		ret = memwait_barrier_init(self->address, private ? MEMWAIT_PRIVATE : 0,
					   (unsigned int)parties);
	return self ? initialised(self, ret) : NULL;
}

static PyObject *plain_wait(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
			    PyObject *kwnames)
{
	static const char *const names[] = { "timeout", NULL };
	struct object *self = (struct object *)object;
	struct request request = { .item = NULL };
	PyObject *timeout;
	int result;

	if (parse(names, &timeout, args, nargs, kwnames) ||
	    set_timeout(&request, timeout) < 0 || !is_open(self) ||
	    wait_for(self, WAIT, &request, &result, NULL))
		return NULL;
	return outcome(self, WAIT, result, NULL);
}

METHOD_OF_CALL(barrier_abort, memwait_barrier_abort)
METHOD_OF_CALL(barrier_reset, memwait_barrier_reset)

static PyObject *barrier_inspect(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)object;
	unsigned int parties = 0, waiting = 0;
	int ret;

	if (!is_open(self))
		return NULL;
	ret = memwait_barrier_inspect(self->address, &parties, &waiting);
	if (ret && ret != EPIPE)
		return fail(ret);
	return Py_BuildValue("(IIO)", parties, waiting, ret ? Py_True : Py_False);
}

static PyMethodDef barrier_methods[] = {
	{ "wait", FASTCALL(plain_wait), METH_FASTCALL | METH_KEYWORDS,
	  "wait($self, /, timeout=None)\n--\n\n"
	  "Wait until all have arrived. Return 0 to one of them, and 1 to the others." },
	{ "abort", barrier_abort, METH_NOARGS,
	  "abort($self, /)\n--\n\n"
	  "Break the barrier: present and later waits raise BrokenBarrierError, until a reset()." },
	{ "reset", barrier_reset, METH_NOARGS,
	  "reset($self, /)\n--\n\nPresent waits raise BrokenBarrierError. Later waits work." },
	{ "_inspect", barrier_inspect, METH_NOARGS,
	  "_inspect($self, /)\n--\n\nReturn (parties, number of waiters, broken)." },
	{ NULL }
};

OBJECT_TYPE(barrier, "Barrier",
	    "(buffer, offset=0, *, parties=0, create=False, private=False)");

static PyObject *waitgroup_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "buffer", "offset", "count", "create", "private", NULL };
	int create = 0, private = 0, ret = 0;
	struct object *self;
	Py_ssize_t offset = 0, count = 0;
	PyObject *source;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&$O&pp", names, &source,
					 clamped, &offset, clamped, &count, &create, &private))
		return NULL;
	if (count < 0 || count > INT_MAX)
		return refuse(PyExc_ValueError, "count must be from 0 to 2147483647");
	self = object_new(type, WAITGROUP, source, offset, sizeof(memwait_waitgroup_t), 8);
	if (self && create)
		ret = memwait_waitgroup_init(self->address, private ? MEMWAIT_PRIVATE : 0,
					     (unsigned int)count);
	return self ? initialised(self, ret) : NULL;
}

static PyObject *waitgroup_change(struct object *self, int delta)
{
	int ret = memwait_waitgroup_add(self->address, delta);

	if (ret == EINVAL || ret == EOVERFLOW)
		return refuse(PyExc_ValueError, ret == EINVAL ? "the count would be negative" :
								"the count would be too large");
	return ret ? fail(ret) : Py_NewRef(Py_None);
}

static PyObject *waitgroup_add(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
			       PyObject *kwnames)
{
	static const char *const names[] = { "n", NULL };
	struct object *self = (struct object *)object;
	PyObject *number;
	Py_ssize_t n = 1;

	if (parse(names, &number, args, nargs, kwnames) || (number && !clamped(number, &n)))
		return NULL;
	if (n > INT_MAX || n < -INT_MAX)
		return refuse(PyExc_ValueError, "n is too large");
	return is_open(self) ? waitgroup_change(self, (int)n) : NULL;
}

static PyObject *waitgroup_done(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)object;

	return is_open(self) ? waitgroup_change(self, -1) : NULL;
}

static PyMethodDef waitgroup_methods[] = {
	{ "add", FASTCALL(waitgroup_add), METH_FASTCALL | METH_KEYWORDS,
	  "add($self, /, n=1)\n--\n\nAdd n, which may be negative, to the count." },
	{ "done", waitgroup_done, METH_NOARGS, "done($self, /)\n--\n\nSubtract 1 from the count." },
	{ "wait", FASTCALL(plain_wait), METH_FASTCALL | METH_KEYWORDS,
	  "wait($self, /, timeout=None)\n--\n\nWait until the count is 0. False: timed out." },
	{ NULL }
};

OBJECT_TYPE(waitgroup, "WaitGroup",
	    "(buffer, offset=0, *, count=0, create=False, private=False)");

static PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "buffer", "offset", "create", "private", NULL };
	int create = 0, private = 0, ret = 0;
	struct object *self;
	Py_ssize_t offset = 0;
	PyObject *source;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&$pp", names, &source, clamped, &offset,
					 &create, &private))
		return NULL;
	self = object_new(type, EVENT, source, offset, sizeof(memwait_event_t), 4);
	if (self && create)
		ret = memwait_event_init(self->address, private ? MEMWAIT_PRIVATE : 0);
	return self ? initialised(self, ret) : NULL;
}

METHOD_OF_CALL(event_set, memwait_event_set)
METHOD_OF_CALL(event_clear, memwait_event_clear)

static PyObject *event_is_set(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)object;
	int ret;

	if (!is_open(self))
		return NULL;
	ret = memwait_event_is_set(self->address);
	return ret < 0 ? fail(ret) : PyBool_FromLong(ret);
}

static PyMethodDef event_methods[] = {
	{ "is_set", event_is_set, METH_NOARGS,
	  "is_set($self, /)\n--\n\nReturn whether the event is set now." },
	{ "set", event_set, METH_NOARGS, "set($self, /)\n--\n\nSet it, and wake all waiters." },
	{ "clear", event_clear, METH_NOARGS,
	  "clear($self, /)\n--\n\nClear the event: later waits wait for the next set()." },
	{ "wait", FASTCALL(plain_wait), METH_FASTCALL | METH_KEYWORDS,
	  "wait($self, /, timeout=None)\n--\n\n"
	  "Wait until the event is set. False: timed out." },
	{ NULL }
};

OBJECT_TYPE(event, "Event", "(buffer, offset=0, *, create=False, private=False)");

/* Channels */

struct shape {
	size_t item_size, capacity;
};

/*
 * Checks the queue in the buffer, which may have been destroyed or initialised again. Returns false
 * with an exception set if it is not valid.
 */
static bool channel_attach(struct object *self, struct shape *shape)
{
	if (!is_open(self))
		return false;
	if (!memwait_channel_attach(self->address, (size_t)(self->view.len - self->offset),
				    &shape->item_size, &shape->capacity))
		return true;
	PyErr_SetString(PyExc_ValueError,
			"no queue of this version that fits into the buffer");
	return false;
}

static PyObject *channel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "buffer", "offset", "item_size", "maxsize", "create", "private",
				 NULL };
	Py_ssize_t offset = 0, item_size = 0, maxsize = 0;
	int create = 0, private = 0, ret = 0;
	struct object *self;
	struct shape shape;
	PyObject *source;
	size_t size;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&$O&O&pp", names, &source,
					 clamped, &offset, clamped, &item_size, clamped, &maxsize,
					 &create, &private))
		return NULL;
	size = memwait_channel_size(create ? (size_t)item_size : 1, create ? (size_t)maxsize : 1);
	if (item_size < 0 || maxsize < 0 || !size)
		return refuse(PyExc_ValueError, "item_size and maxsize must be > 0");
	self = object_new(type, CHANNEL, source, offset, size, 8);
	if (!self)
		return NULL;
	if (create) {
		ret = memwait_channel_init(self->address, size, private ? MEMWAIT_PRIVATE : 0,
					   (size_t)item_size, (size_t)maxsize);
		return initialised(self, ret);
	}
	if (channel_attach(self, &shape))
		return (PyObject *)self;
	Py_DECREF(self);
	return NULL;
}

/* Returns a reference to bytes. */
static PyObject *channel_item(struct object *self, PyObject *value)
{
	struct shape shape;
	PyObject *item;
	size_t size;

	if (!channel_attach(self, &shape))
		return NULL;
	size = shape.item_size;
	if (!value)
		return PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
	/* bytes(n) of an int would be n zeroes. */
	if (!PyObject_CheckBuffer(value))
		return refuse(PyExc_TypeError, "an item must be a bytes-like object");
	item = PyBytes_FromObject(value);
	if (!item || (size_t)PyBytes_Size(item) == size)
		return item;
	PyErr_Format(PyExc_ValueError, "an item must have %zu bytes, not %zd", size,
		     PyBytes_Size(item));
	Py_DECREF(item);
	return NULL;
}

static PyObject *channel_transfer(struct object *self, enum verb verb, PyObject *value,
				  struct request *request, int only_try)
{
	PyObject *ret;

	if (only_try < 0)
		return NULL;
	request->item = channel_item(self, value);
	if (!request->item)
		return NULL;
	ret = perform(self, verb, request, only_try);
	Py_DECREF(request->item);
	return ret;
}

/* queue.Queue ignores the timeout of a non-blocking call, and refuses negative timeouts. */
static int queue_blocking(struct request *request, PyObject *block, PyObject *timeout)
{
	int blocks = block ? PyObject_IsTrue(block) : 1;
	double seconds;

	if (blocks <= 0)
		return blocks < 0 ? -1 : 1;
	if (timeout && timeout != Py_None) {
		if (seconds_of(timeout, &seconds))
			return -1;
		if (seconds < 0) {
			PyErr_SetString(PyExc_ValueError,
					"'timeout' must be a non-negative number");
			return -1;
		}
	}
	return set_timeout(request, timeout);
}

static PyObject *channel_put(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
			     PyObject *kwnames)
{
	static const char *const names[] = { "item", "block", "timeout", NULL };
	struct request request;
	PyObject *values[3];

	if (parse(names, values, args, nargs, kwnames))
		return NULL;
	if (!values[0])
		return refuse(PyExc_TypeError, "put() needs an item");
	return channel_transfer((struct object *)self, SEND, values[0], &request,
				queue_blocking(&request, values[1], values[2]));
}

/*
 * The form of put() that counts its item in a wait group before the item can be received: (group,
 * item, block, timeout). This is one call, because a signal handler may raise an exception between
 * two calls.
 */
static PyObject *channel_put_counted(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
	struct object *self = (struct object *)object, *group;
	PyObject *counted, *ret, *type, *value, *traceback;
	unsigned int forks_before;
	struct request request;
	int only_try;

	if (nargs != 4 || !PyObject_TypeCheck(args[0], self->state->waitgroup))
		return refuse(PyExc_TypeError, "needs a WaitGroup and the arguments of put()");
	group = (struct object *)args[0];
	only_try = queue_blocking(&request, args[2], args[3]);
	if (only_try < 0 || !is_open(group))
		return NULL;
	forks_before = forks;
	counted = waitgroup_change(group, 1);
	if (!counted)
		return NULL;
	Py_DECREF(counted);
	ret = channel_transfer(self, SEND, args[1], &request, only_try);
	/* In a child that a signal handler forked, the item belongs to the parent. */
	if (ret || !group->address || forks_before != forks)
		return ret;
	PyErr_Fetch(&type, &value, &traceback);
	/* A wrong count is a more serious error than the error that prevented the put. */
	restore_unless_failed(waitgroup_change(group, -1), type, value, traceback);
	return NULL;
}

static PyObject *channel_get(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
			     PyObject *kwnames)
{
	static const char *const names[] = { "block", "timeout", NULL };
	struct request request;
	PyObject *values[2];

	if (parse(names, values, args, nargs, kwnames))
		return NULL;
	return channel_transfer((struct object *)self, RECV, NULL, &request,
				queue_blocking(&request, values[0], values[1]));
}

METHOD_OF_CALL(channel_shutdown, memwait_channel_close)

static PyObject *channel_qsize(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)object;

	return is_open(self) ? PyLong_FromSize_t(memwait_channel_length(self->address)) : NULL;
}

static PyObject *channel_maxsize(PyObject *object, void *Py_UNUSED(closure))
{
	struct shape shape;

	return channel_attach((struct object *)object, &shape) ?
	       PyLong_FromSize_t(shape.capacity) : NULL;
}

static PyObject *channel_get_item_size(PyObject *object, void *Py_UNUSED(closure))
{
	struct shape shape;

	return channel_attach((struct object *)object, &shape) ?
	       PyLong_FromSize_t(shape.item_size) : NULL;
}

static PyObject *channel_size(PyObject *Py_UNUSED(module), PyObject *args)
{
	Py_ssize_t item_size, maxsize;
	size_t size = 0;

	if (!PyArg_ParseTuple(args, "O&O&", clamped, &item_size, clamped, &maxsize))
		return NULL;
	if (item_size > 0 && maxsize > 0)
		size = memwait_channel_size((size_t)item_size, (size_t)maxsize);
	if (size)
		return PyLong_FromSize_t(size);
	return refuse(PyExc_ValueError, "item_size and maxsize must be > 0");
}

static PyMethodDef channel_methods[] = {
	{ "put", FASTCALL(channel_put), METH_FASTCALL | METH_KEYWORDS,
	  "put($self, /, item, block=True, timeout=None)\n--\n\n"
	  "Send a bytes-like object of item_size bytes. queue.Full: there was no room.\n\n"
	  "ShutDown: the queue is shut down." },
	{ "_put_counted", FASTCALL(channel_put_counted), METH_FASTCALL,
	  "_put_counted($self, group, item, block, timeout, /)\n--\n\n"
	  "put() that also counts the item in a WaitGroup." },
	{ "get", FASTCALL(channel_get), METH_FASTCALL | METH_KEYWORDS,
	  "get($self, /, block=True, timeout=None)\n--\n\n"
	  "Receive bytes. queue.Empty: there was no item.\n\n"
	  "ShutDown: the queue is shut down and empty." },
	{ "shutdown", channel_shutdown, METH_NOARGS,
	  "shutdown($self, /)\n--\n\nRefuse further puts, in all processes.\n\n"
	  "Items that were sent can still be received." },
	{ "qsize", channel_qsize, METH_NOARGS,
	  "qsize($self, /)\n--\n\nReturn the number of items now." },
	{ NULL }
};

static PyGetSetDef channel_getset[] = {
	{ "maxsize", channel_maxsize, NULL, "The maximum number of items.", NULL },
	{ "item_size", channel_get_item_size, NULL, "The size of an item in bytes.", NULL },
	{ NULL }
};

static PyType_Slot channel_slots[] = {
	{ Py_tp_new, channel_new },
	{ Py_tp_dealloc, object_dealloc },
	{ Py_tp_traverse, object_traverse },
	{ Py_tp_clear, object_clear },
	{ Py_tp_methods, channel_methods },
	{ Py_tp_getset, channel_getset },
	{ 0 }
};

static PyType_Spec channel_spec = {
	.name = "memwait._memwait.Queue",
	.basicsize = sizeof(struct object),
	.flags = TYPE_FLAGS,
	.slots = channel_slots,
};

/* Words */

static PyObject *word_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "buffer", "offset", "size", "private", NULL };
	struct object *self;
	Py_ssize_t offset = 0, size = 4;
	int private = 0;
	PyObject *source;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&$O&p", names, &source,
					 clamped, &offset, clamped, &size, &private))
		return NULL;
	if (size != 1 && size != 2 && size != 4 && size != 8)
		return refuse(PyExc_ValueError, "size must be 1, 2, 4 or 8");
	self = object_new(type, WORD, source, offset, (size_t)size, (size_t)size);
	if (!self)
		return NULL;
	self->size = (int)size;
	self->flags = private ? MEMWAIT_PRIVATE : 0;
	return (PyObject *)self;
}

static uint64_t word_mask(const struct object *self)
{
	return self->size == 8 ? UINT64_MAX : (1ULL << 8 * self->size) - 1;
}

/* Negative numbers are converted to two's complement. Returns -1 with an exception set. */
static int word_number(const struct object *self, PyObject *number, uint64_t *value)
{
	*value = PyLong_AsUnsignedLongLongMask(number);
	if (*value == UINT64_MAX && PyErr_Occurred())
		return -1;
	*value &= word_mask(self);
	return 0;
}

/* All are sequentially consistent, like ECMAScript's, as a Python programmer expects. */
#define WORD_ATOMIC(self, function, ...)					\
	((self)->size == 1 ? function((uint8_t *)(self)->address, __VA_ARGS__) :	\
	 (self)->size == 2 ? function((uint16_t *)(self)->address, __VA_ARGS__) :	\
	 (self)->size == 4 ? function((uint32_t *)(self)->address, __VA_ARGS__) :	\
			     function((uint64_t *)(self)->address, __VA_ARGS__))

static PyObject *word_load(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)object;

	if (!is_open(self))
		return NULL;
	return PyLong_FromUnsignedLongLong(WORD_ATOMIC(self, __atomic_load_n, __ATOMIC_SEQ_CST));
}

#define WORD_EXCHANGE(word, value)						\
	((uint64_t)__atomic_exchange_n(word, (__typeof__(*(word)))(value), __ATOMIC_SEQ_CST))
#define WORD_ADD(word, value)							\
	((uint64_t)__atomic_fetch_add(word, (__typeof__(*(word)))(value), __ATOMIC_SEQ_CST))

static PyObject *word_exchange(PyObject *object, PyObject *number)
{
	struct object *self = (struct object *)object;
	uint64_t value;

	if (word_number(self, number, &value) || !is_open(self))
		return NULL;
	return PyLong_FromUnsignedLongLong(WORD_ATOMIC(self, WORD_EXCHANGE, value));
}

static PyObject *word_store(PyObject *object, PyObject *number)
{
	PyObject *old = word_exchange(object, number);

	Py_XDECREF(old);
	return old ? Py_NewRef(Py_None) : NULL;
}

static PyObject *word_add(PyObject *object, PyObject *number)
{
	struct object *self = (struct object *)object;
	uint64_t value;

	if (word_number(self, number, &value) || !is_open(self))
		return NULL;
	return PyLong_FromUnsignedLongLong(WORD_ATOMIC(self, WORD_ADD, value));
}

/* Returns the old value. */
#define WORD_COMPARE_EXCHANGE(word, expected, value) ({				\
	__typeof__(*(word)) was = (__typeof__(*(word)))(expected);		\
	__atomic_compare_exchange_n(word, &was, (__typeof__(*(word)))(value), 0,	\
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);	\
	(uint64_t)was;								\
})

static PyObject *word_compare_exchange(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
	struct object *self = (struct object *)object;
	uint64_t expected, value;

	if (nargs != 2)
		return refuse(PyExc_TypeError, "compare_exchange() needs (expected, value)");
	if (word_number(self, args[0], &expected) || word_number(self, args[1], &value) ||
	    !is_open(self))
		return NULL;
	return PyLong_FromUnsignedLongLong(WORD_ATOMIC(self, WORD_COMPARE_EXCHANGE, expected,
						       value));
}

static PyObject *word_wait(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
			   PyObject *kwnames)
{
	static const char *const names[] = { "expected", "timeout", NULL };
	struct object *self = (struct object *)object;
	struct request request = { .item = NULL };
	struct thread *thread;
	PyObject *values[2];
	int result;

	if (parse(names, values, args, nargs, kwnames))
		return NULL;
	if (!values[0])
		return refuse(PyExc_TypeError, "wait() needs the expected value");
	if (word_number(self, values[0], &request.expected) ||
	    set_timeout(&request, values[1]) < 0 || !is_open(self))
		return NULL;
	thread = this_thread();
	if (!thread)
		return NULL;
	if (!request.too_long && !runs_handlers(self->state, thread))
		result = wait_directly(self, &request);
	else if (wait_for(self, COMPARE, &request, &result, NULL))
		return NULL;
	return outcome(self, COMPARE, result, NULL);
}

static PyObject *word_notify(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
			     PyObject *kwnames)
{
	static const char *const names[] = { "count", NULL };
	struct object *self = (struct object *)object;
	unsigned int most = MEMWAIT_ALL;
	PyObject *count;
	Py_ssize_t n;
	int ret;

	if (parse(names, &count, args, nargs, kwnames))
		return NULL;
	if (count && count != Py_None) {
		if (!clamped(count, &n))
			return NULL;
		if (n < 0)
			return refuse(PyExc_ValueError, "count must be >= 0");
		most = n > INT_MAX ? INT_MAX : (unsigned int)n;
	}
	if (!is_open(self))
		return NULL;
	ret = memwait_notify(self->address, most, self->flags);
	return ret < 0 ? fail(ret) : PyLong_FromLong(ret);
}

static PyObject *word_waiters(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)object;
	int ret;

	if (!is_open(self))
		return NULL;
	ret = memwait_waiters(self->address, self->flags);
	return ret < 0 ? fail(ret) : PyLong_FromLong(ret);
}

static PyMethodDef word_methods[] = {
	{ "load", word_load, METH_NOARGS,
	  "load($self, /)\n--\n\nReturn the value, as an unsigned integer." },
	{ "store", word_store, METH_O,
	  "store($self, value, /)\n--\n\nSet the value. This wakes no waiter." },
	{ "exchange", word_exchange, METH_O,
	  "exchange($self, value, /)\n--\n\nSet the value, and return the old value." },
	{ "add", word_add, METH_O,
	  "add($self, value, /)\n--\n\nAdd to the value, and return the old value." },
	{ "compare_exchange", FASTCALL(word_compare_exchange), METH_FASTCALL,
	  "compare_exchange($self, expected, value, /)\n--\n\n"
	  "Set the value if it equals expected. Return the old value." },
	{ "wait", FASTCALL(word_wait), METH_FASTCALL | METH_KEYWORDS,
	  "wait($self, /, expected, timeout=None)\n--\n\n"
	  "If the word has the expected value, wait for a notify. Return Outcome.OK, NOT_EQUAL\n"
	  "(the value differs) or TIMED_OUT." },
	{ "notify", FASTCALL(word_notify), METH_FASTCALL | METH_KEYWORDS,
	  "notify($self, /, count=None)\n--\n\n"
	  "Wake up to count waiters, or all, oldest first. Return their number." },
	{ "waiters", word_waiters, METH_NOARGS,
	  "waiters($self, /)\n--\n\nReturn the number of waiters now, for tests." },
	{ NULL }
};

static PyObject *word_private(PyObject *self, void *Py_UNUSED(closure))
{
	return PyBool_FromLong(((struct object *)self)->flags & MEMWAIT_PRIVATE);
}

static PyMemberDef word_members[] = {
	{ "size", T_INT, offsetof(struct object, size), READONLY, "The size in bytes." },
	{ NULL }
};

static PyGetSetDef word_getset[] = {
	{ "private", word_private, NULL, "Whether only one process uses it.", NULL },
	{ NULL }
};

static PyType_Slot word_slots[] = {
	{ Py_tp_new, word_new },
	{ Py_tp_doc, "Word(buffer, offset=0, *, size=4, private=False)\n--\n\n" },
	{ Py_tp_dealloc, object_dealloc },
	{ Py_tp_traverse, object_traverse },
	{ Py_tp_clear, object_clear },
	{ Py_tp_methods, word_methods },
	{ Py_tp_members, word_members },
	{ Py_tp_getset, word_getset },
	{ 0 }
};

static PyType_Spec word_spec = {
	.name = "memwait._memwait.Word",
	.basicsize = sizeof(struct object),
	.flags = TYPE_FLAGS,
	.slots = word_slots,
};

/* Loops */

static PyObject *loop_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	allocfunc tp_alloc = PyType_GetSlot(type, Py_tp_alloc);
	struct loop *self;
	int ret;

	if (PyTuple_Size(args) || (kwargs && PyDict_Size(kwargs)))
		return refuse(PyExc_TypeError, "Loop() takes no arguments");
	self = (struct loop *)tp_alloc(type, 0);
	if (!self)
		return NULL;
	ret = memwait_loop_new(&self->loop, 0);
	if (!ret)
		return (PyObject *)self;
	fail(ret);
	Py_DECREF(self);
	return NULL;
}

static void operation_let_go(struct operation *self)
{
	if (self->held)
		let_go(self->object, self->forks);
	self->held = false;
}

/* The caller has a reference, because the list's reference is dropped. */
static void operation_end(struct operation *self, int result)
{
	/* The condition has reacquired the lock the same number of times as before. */
	if (self->object->lock && has_lock(result))
		set_depth(self->object->lock, self->depth);
	self->result = result;
	if (self->next)
		self->next->link = self->link;
	*self->link = self->next;
	self->link = NULL;
	/* Otherwise the object stays open until the task takes the result or gives it back. */
	if (result == ECANCELED)
		operation_let_go(self);
	Py_DECREF(self);
}

/* Cancels pending operations and frees the loop. @ended: NULL, or a list for the operations. */
static int loop_end(struct loop *self, PyObject *ended)
{
	struct operation *operation;
	int ret = 0;

	self->closed = true;
	while ((operation = self->pending)) {
		Py_INCREF((PyObject *)operation);
		/*
		 * In dispatch, the callback could still run. In a child process the cancel fails.
		 */
		memwait_op_cancel(&operation->op);
		operation_end(operation, ECANCELED);
		if (ended && !ret)
			ret = PyList_Append(ended, (PyObject *)operation);
		Py_DECREF(operation);
	}
	if (!self->dispatching) {
		memwait_loop_close(self->loop);
		self->loop = NULL;
	}
	return ret;
}

static int loop_traverse(PyObject *object, visitproc visit, void *arg)
{
	struct operation *operation;

	Py_VISIT(Py_TYPE(object));
	for (operation = ((struct loop *)object)->pending; operation; operation = operation->next)
		Py_VISIT(operation);
	return 0;
}

static int loop_clear(PyObject *self)
{
	return loop_end((struct loop *)self, NULL);
}

static void loop_dealloc(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);
	freefunc tp_free = PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(object);
	loop_end((struct loop *)object, NULL);
	tp_free(object);
	Py_DECREF(type);
}

static bool loop_is_open(const struct loop *self)
{
	if (!self->closed)
		return true;
	PyErr_SetString(PyExc_ValueError, "operation on a closed loop");
	return false;
}

static PyObject *loop_fileno(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct loop *self = (struct loop *)object;

	return loop_is_open(self) ? PyLong_FromLong(memwait_loop_fd(self->loop)) : NULL;
}

static PyObject *loop_dispatch(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct loop *self = (struct loop *)object;
	struct state *state;
	int ret;

	if (!loop_is_open(self))
		return NULL;
	self->dispatching++;
	ret = memwait_loop_dispatch(self->loop, MEMWAIT_ALL);
	self->dispatching--;
	if (self->closed && !self->dispatching) {
		memwait_loop_close(self->loop);
		self->loop = NULL;
	}
	if (self->type) {
		PyErr_Restore(self->type, self->value, self->traceback);
		self->type = NULL;
		return NULL;
	}
	if (ret >= 0)
		return PyLong_FromLong(ret);
	state = PyType_GetModuleState(Py_TYPE(object));
	return fail_as(state->loop_failed, -ret);
}

static PyObject *loop_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
	PyObject *ended = PyList_New(0);

	if (!ended || !loop_end((struct loop *)object, ended))
		return ended;
	Py_DECREF(ended);
	return NULL;
}

static PyMethodDef loop_methods[] = {
	{ "fileno", loop_fileno, METH_NOARGS,
	  "fileno($self, /)\n--\n\nThe descriptor to poll for reading." },
	{ "dispatch", loop_dispatch, METH_NOARGS,
	  "dispatch($self, /)\n--\n\n"
	  "Run callbacks of operations that have ended. Return their number.\n\n"
	  "LoopFailed: the loop is unusable. Any other exception comes from a callback." },
	{ "close", loop_close, METH_NOARGS,
	  "close($self, /)\n--\n\nCancel pending operations, and return them." },
	{ NULL }
};

static PyType_Slot loop_slots[] = {
	{ Py_tp_new, loop_new },
	{ Py_tp_dealloc, loop_dealloc },
	{ Py_tp_traverse, loop_traverse },
	{ Py_tp_clear, loop_clear },
	{ Py_tp_methods, loop_methods },
	{ Py_tp_doc, "An event source: pending operations, and a descriptor to poll." },
	{ 0 }
};

static PyType_Spec loop_spec = {
	.name = "memwait._memwait.Loop",
	.basicsize = sizeof(struct loop),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = loop_slots,
};

/* Operations of loops */

/* A dispatch raises the first exception that its callbacks raise, and reports the others. */
static void keep_exception(struct operation *self)
{
	struct loop *loop = self->loop;

	if (loop->type)
		PyErr_WriteUnraisable(self->callback);
	else
		PyErr_Fetch(&loop->type, &loop->value, &loop->traceback);
}

/*
 * Python runs signal handlers, such as the handler of ^C, at the first step of the callback. If a
 * handler raises an exception, the callback has done nothing. The callback then runs again, after
 * all pending handlers.
 */
static void tell(struct operation *self)
{
	PyObject *ret = PyObject_CallFunctionObjArgs(self->callback, self, NULL);

	if (!ret) {
		keep_exception(self);
		while (PyErr_CheckSignals())
			keep_exception(self);
		ret = PyObject_CallFunctionObjArgs(self->callback, self, NULL);
	}
	if (!ret)
		PyErr_WriteUnraisable(self->callback);
	Py_XDECREF(ret);
}

static void operation_done(memwait_op_t *op, int result, void *data)
{
	struct operation *self = data;

	Py_INCREF((PyObject *)self);
	if (self->verb == WATCH && result == MEMWAIT_OK) {
		self->count += memwait_op_count(op);
		self->result = result;
	} else {
		operation_end(self, result);
	}
	/* Cleared together with a loop that is garbage: no task is waiting for this operation. */
	if (self->callback)
		tell(self);
	Py_DECREF(self);
}

static int operation_traverse(PyObject *object, visitproc visit, void *arg)
{
	struct operation *self = (struct operation *)object;

	Py_VISIT(Py_TYPE(object));
	Py_VISIT(self->loop);
	Py_VISIT(self->object);
	Py_VISIT(self->callback);
	return 0;
}

/* A pending operation belongs to its loop. */
static int operation_clear(PyObject *object)
{
	struct operation *self = (struct operation *)object;

	Py_CLEAR(self->callback);
	return 0;
}

static void operation_dealloc(PyObject *object)
{
	struct operation *self = (struct operation *)object;
	PyTypeObject *type = Py_TYPE(object);

	PyObject_GC_UnTrack(object);
	operation_let_go(self);
	Py_CLEAR(self->callback);
	Py_CLEAR(self->loop);
	Py_CLEAR(self->object);
	Py_CLEAR(self->request.item);
	PyObject_GC_Del(object);
	Py_DECREF(type);
}

static int set_argument(struct operation *self, PyObject *argument)
{
	if (self->verb == SEND || self->verb == RECV) {
		self->request.item = channel_item(self->object,
						  self->verb == SEND ? argument : NULL);
		return self->request.item ? 0 : -1;
	}
	if (self->verb == COMPARE || self->verb == WATCH)
		return word_number(self->object, argument, &self->request.expected);
	return 0;
}

static bool has_verb(const struct object *self, int verb)
{
	static const unsigned int verbs[] = {
		[MUTEX] = 1 << LOCK,
		[COND] = 1 << WAIT,
		[SEM] = 1 << WAIT,
		[RWLOCK] = 1 << READ | 1 << WRITE,
		[BARRIER] = 1 << WAIT,
		[WAITGROUP] = 1 << WAIT,
		[EVENT] = 1 << WAIT,
		[CHANNEL] = 1 << SEND | 1 << RECV,
		[WORD] = 1 << COMPARE | 1 << WATCH,
	};

	return verb >= 0 && verb <= WATCH && verbs[self->kind] & 1U << verb;
}

static PyObject *begin_operation(PyObject *object, PyObject *args)
{
	PyObject *loop, *callback, *timeout = Py_None, *argument = Py_None;
	struct object *target = (struct object *)object;
	struct operation *self;
	int verb, result;

	if (!PyArg_ParseTuple(args, "O!Oi|OO", target->state->loop, &loop, &callback, &verb,
			      &timeout, &argument))
		return NULL;
	if (!has_verb(target, verb))
		return refuse(PyExc_ValueError, "not an operation of this object");
	self = PyObject_GC_New(struct operation, target->state->operation);
	if (!self)
		return NULL;
	self->loop = (struct loop *)Py_NewRef(loop);
	self->link = NULL;
	self->object = (struct object *)Py_NewRef(object);
	self->verb = (enum verb)verb;
	self->request = (struct request){ .item = NULL };
	self->callback = Py_NewRef(callback);
	self->result = 0;
	self->count = 0;
	self->forks = forks;
	self->begun = false;
	self->held = false;
	PyObject_GC_Track(self);
	/* Code in the arguments (__float__, for example) may close the object or the loop. */
	if (set_timeout(&self->request, timeout) < 0 || !is_open(target) ||
	    set_argument(self, argument) || !is_open(target) ||
	    (target->lock && !is_open(target->lock)) || !loop_is_open(self->loop)) {
		Py_DECREF(self);
		return NULL;
	}
	result = memwait_op_init(&self->op, self->loop->loop, operation_done, self);
	if (result) {
		Py_DECREF(self);
		return fail(result);
	}
	self->depth = target->lock ? depth(target->lock) : 0;
	result = begin(target, self->verb, &self->request, &self->op);
	if (result == PENDING) {
		if (target->lock)
			set_depth(target->lock, 0);
		hold(target);
		self->begun = true;
		self->held = true;
		self->next = self->loop->pending;
		self->link = &self->loop->pending;
		if (self->next)
			self->next->link = &self->next;
		self->loop->pending = self;
		Py_INCREF((PyObject *)self);
	} else {
		self->result = result;
	}
	return (PyObject *)self;
}

static PyObject *operation_cancel(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct operation *self = (struct operation *)object;

	if (!self->link)
		return PyBool_FromLong(self->result == ECANCELED);
	/* The call fails only in a child process: the operation is the parent's. */
	memwait_op_cancel(&self->op);
	operation_end(self, ECANCELED);
	Py_RETURN_TRUE;
}

/* Whether this is a condition wait that ended without the lock. */
static bool lost_lock(const struct operation *self)
{
	return self->begun && !self->link && self->object->kind == COND &&
	       !has_lock(self->result);
}

static PyObject *operation_finish(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct operation *self = (struct operation *)object;
	PyObject *ret;

	if (!is_open(self->object))
		return NULL;
	if (self->link && self->verb != WATCH)
		return refuse(PyExc_RuntimeError, "the operation is pending");
	if (self->result == ECANCELED || lost_lock(self))
		ret = fail_as(PyExc_OSError, self->result);
	else
		ret = outcome(self->object, self->verb, self->result, self->request.item);
	if (!self->link)
		operation_let_go(self);
	return ret;
}

static void undo(struct operation *self)
{
	struct object *object = self->object;
	int ret = 0;

	/* In a child process the parent holds the result. */
	if (self->link || self->forks != forks || !object->address)
		return;
	if (object->kind == COND && !self->result) {
		/*
		 * A task leaves a condition wait while it holds the lock: pass on only the notify.
		 */
		memwait_cond_signal(object->address);
	} else if (!self->result || self->result == EOWNERDEAD) {
		if (object->lock)
			set_depth(object->lock, 0);
		self->result = ECANCELED;
		ret = memwait_op_undo(&self->op);
	}
	/* An error means that a waiter could not be woken. */
	(void)ret;
}

static PyObject *operation_give_back(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct operation *self = (struct operation *)object;

	undo(self);
	if (!self->link)
		operation_let_go(self);
	Py_RETURN_NONE;
}

static PyObject *operation_item(PyObject *object, void *Py_UNUSED(closure))
{
	struct operation *self = (struct operation *)object;
	bool has_item = self->verb == RECV && self->held && !self->link && !self->result &&
			self->forks == forks;

	return Py_NewRef(has_item ? self->request.item : Py_None);
}

static PyObject *operation_sent(PyObject *object, void *Py_UNUSED(closure))
{
	struct operation *self = (struct operation *)object;

	return PyBool_FromLong(self->verb == SEND && !self->link && !self->result &&
			       self->forks == forks);
}

static PyObject *operation_lost_lock(PyObject *self, void *Py_UNUSED(closure))
{
	return PyBool_FromLong(lost_lock((struct operation *)self));
}

static PyObject *operation_pending(PyObject *self, void *Py_UNUSED(closure))
{
	return PyBool_FromLong(!!((struct operation *)self)->link);
}

static PyObject *operation_take_count(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct operation *self = (struct operation *)object;
	/* In a child process the notifies belong to the parent. */
	PyObject *count = PyLong_FromUnsignedLong(self->forks == forks ? self->count : 0);

	if (count)
		self->count = 0;
	return count;
}

static PyMethodDef operation_methods[] = {
	{ "cancel", operation_cancel, METH_NOARGS,
	  "cancel($self, /)\n--\n\nReturn True if nothing was taken, and no callback will run." },
	{ "finish", operation_finish, METH_NOARGS,
	  "finish($self, /)\n--\n\nReturn or raise what the blocking method would.\n\n"
	  "None for a reader: it repaired the RWLock, and must acquire it again." },
	{ "take_count", operation_take_count, METH_NOARGS,
	  "take_count($self, /)\n--\n\nReturn the number of notifies since the last call." },
	{ "give_back", operation_give_back, METH_NOARGS,
	  "give_back($self, /)\n--\n\nUndo the operation. A received item stays with the caller." },
	{ NULL }
};

static PyMemberDef operation_members[] = {
	{ "loop", T_OBJECT, offsetof(struct operation, loop), READONLY,
	  "The loop in which the operation began." },
	{ "callback", T_OBJECT, offsetof(struct operation, callback), READONLY,
	  "The function that is called at the end." },
	{ NULL }
};

static PyGetSetDef operation_getset[] = {
	{ "pending", operation_pending, NULL, "Whether the callback will still run.", NULL },
	{ "item", operation_item, NULL,
	  "The item of a get, or None. Its queue cannot be closed before finish().", NULL },
	{ "sent", operation_sent, NULL, "Whether a put of this process has sent its item.", NULL },
	{ "lost_lock", operation_lost_lock, NULL,
	  "Whether a condition wait has ended without the lock.", NULL },
	{ NULL }
};

static PyType_Slot operation_slots[] = {
	{ Py_tp_dealloc, operation_dealloc },
	{ Py_tp_traverse, operation_traverse },
	{ Py_tp_clear, operation_clear },
	{ Py_tp_methods, operation_methods },
	{ Py_tp_members, operation_members },
	{ Py_tp_getset, operation_getset },
	{ 0 }
};

static PyType_Spec operation_spec = {
	.name = "memwait._memwait.Operation",
	.basicsize = sizeof(struct operation),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
		 Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = operation_slots,
};

/* The module */

static PyObject *available(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
	return PyBool_FromLong(!memwait_available());
}

/* A function of Python that converts each result would take as long as a system call. */
static PyObject *set_outcomes(PyObject *module, PyObject *args)
{
	struct state *state = PyModule_GetState(module);
	PyObject *outcomes;

	if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &outcomes))
		return NULL;
	Py_CLEAR(state->outcomes);
	state->outcomes = Py_NewRef(outcomes);
	return Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
	{ "available", available, METH_NOARGS,
	  "available()\n--\n\nWhether /dev/memwait can be used.\n\n"
	  "If not, every operation raises an OSError with the reason." },
	{ "queue_size", channel_size, METH_VARARGS,
	  "queue_size(item_size, maxsize, /)\n--\n\nReturn the size of a Queue in bytes." },
	{ "set_outcomes", set_outcomes, METH_VARARGS,
	  "set_outcomes(outcomes, /)\n--\n\nSet what a wait for a Word returns, by number." },
	{ NULL }
};

/* Adds a type. Returns the type in *@type, if @type is not NULL. */
static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base, PyTypeObject **type)
{
	PyObject *made = PyType_FromModuleAndSpec(module, spec, (PyObject *)base);
	int ret;

	if (!made)
		return -1;
	ret = PyModule_AddType(module, (PyTypeObject *)made);
	if (!ret && type)
		*type = (PyTypeObject *)Py_NewRef(made);
	Py_DECREF(made);
	return ret;
}

static PyObject *add_exception(PyObject *module, const char *name, const char *doc,
			       PyObject *base)
{
	char full[64];
	PyObject *type;

	snprintf(full, sizeof(full), "memwait.%s", name);
	type = PyErr_NewExceptionWithDoc(full, doc, base, NULL);
	if (type && PyModule_AddObjectRef(module, name, type))
		Py_CLEAR(type);
	return type;
}

static int set_main_thread(struct state *state, PyObject *threading)
{
	PyObject *thread = PyObject_CallMethod(threading, "main_thread", NULL);
	PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;

	Py_XDECREF(thread);
	if (!ident)
		return -1;
	state->main_thread = PyLong_AsUnsignedLong(ident);
	Py_DECREF(ident);
	return PyErr_Occurred() ? -1 : 0;
}

/* queue.ShutDown exists since Python 3.13. */
static int set_exceptions(PyObject *module, struct state *state)
{
	PyObject *queue = PyImport_ImportModule("queue"), *threading;
	int ret;

	if (!queue)
		return -1;
	state->empty = PyObject_GetAttrString(queue, "Empty");
	state->full = PyObject_GetAttrString(queue, "Full");
	state->shut_down = PyObject_GetAttrString(queue, "ShutDown");
	Py_DECREF(queue);
	if (!state->empty || !state->full)
		return -1;
	if (!state->shut_down) {
		PyErr_Clear();
		state->shut_down = add_exception(module, "ShutDown", "The queue was shut down.",
						 PyExc_Exception);
	} else if (PyModule_AddObjectRef(module, "ShutDown", state->shut_down)) {
		return -1;
	}
	threading = PyImport_ImportModule("threading");
	if (!threading)
		return -1;
	state->broken = PyObject_GetAttrString(threading, "BrokenBarrierError");
	ret = state->broken ? set_main_thread(state, threading) : -1;
	Py_DECREF(threading);
	if (ret)
		return -1;
	state->owner_died = add_exception(module, "OwnerDied",
					  "The owner of the lock died, and repair= is missing.",
					  PyExc_OSError);
	state->not_recoverable = add_exception(module, "NotRecoverable",
					       "An owner died, and the data was not repaired.",
					       PyExc_OSError);
	state->loop_failed = add_exception(module, "LoopFailed", "The loop is unusable.",
					   PyExc_OSError);
	return state->shut_down && state->owner_died && state->not_recoverable &&
	       state->loop_failed ? 0 : -1;
}

static int add_numbers(PyObject *module)
{
	static const struct {
		const char *name;
		long value;
	} numbers[] = {
		{ "LOCK", LOCK }, { "WAIT", WAIT }, { "READ", READ }, { "WRITE", WRITE },
		{ "SEND", SEND }, { "RECV", RECV }, { "COMPARE", COMPARE }, { "WATCH", WATCH },
		{ "LOCK_SIZE", sizeof(memwait_mutex_t) },
		{ "CONDITION_SIZE", sizeof(memwait_cond_t) },
		{ "SEMAPHORE_SIZE", sizeof(memwait_sem_t) },
		{ "BOUNDED_SEMAPHORE_SIZE", sizeof(struct bounded) },
		{ "RWLOCK_SIZE", sizeof(memwait_rwlock_t) },
		{ "BARRIER_SIZE", sizeof(memwait_barrier_t) },
		{ "WAITGROUP_SIZE", sizeof(memwait_waitgroup_t) },
		{ "EVENT_SIZE", sizeof(memwait_event_t) },
	};
	unsigned int version = memwait_version();
	char text[32];
	size_t i;

	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (PyModule_AddIntConstant(module, numbers[i].name, numbers[i].value))
			return -1;
	}
	snprintf(text, sizeof(text), "%u.%u.%u", version >> 16, version >> 8 & 0xff,
		 version & 0xff);
	return PyModule_AddStringConstant(module, "version", text);
}

static int exec(PyObject *module)
{
	struct state *state = PyModule_GetState(module);

	/* The numbers themselves, until set_outcomes(). */
	state->outcomes = Py_BuildValue("(iii)", MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT);
	if (!state->outcomes || set_exceptions(module, state) || add_numbers(module) ||
	    add_type(module, &loop_spec, NULL, &state->loop) ||
	    add_type(module, &operation_spec, NULL, &state->operation) ||
	    add_type(module, &object_spec, NULL, &state->object) ||
	    add_type(module, &lock_spec, state->object, &state->lock) ||
	    add_type(module, &rlock_spec, state->object, &state->rlock) ||
	    add_type(module, &rwlock_spec, state->object, &state->rwlock) ||
	    add_type(module, &cond_spec, state->object, NULL) ||
	    add_type(module, &sem_spec, state->object, &state->sem) ||
	    add_type(module, &bounded_spec, state->sem, &state->bounded) ||
	    add_type(module, &barrier_spec, state->object, NULL) ||
	    add_type(module, &waitgroup_spec, state->object, &state->waitgroup) ||
	    add_type(module, &event_spec, state->object, NULL) ||
	    add_type(module, &channel_spec, state->object, NULL) ||
	    add_type(module, &word_spec, state->object, NULL) ||
	    add_type(module, &side_spec, NULL, NULL))
		return -1;
	return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
	struct state *state = PyModule_GetState(module);

	Py_VISIT(state->loop);
	Py_VISIT(state->operation);
	Py_VISIT(state->object);
	Py_VISIT(state->lock);
	Py_VISIT(state->rlock);
	Py_VISIT(state->rwlock);
	Py_VISIT(state->sem);
	Py_VISIT(state->bounded);
	Py_VISIT(state->waitgroup);
	Py_VISIT(state->owner_died);
	Py_VISIT(state->not_recoverable);
	Py_VISIT(state->loop_failed);
	Py_VISIT(state->empty);
	Py_VISIT(state->full);
	Py_VISIT(state->shut_down);
	Py_VISIT(state->broken);
	Py_VISIT(state->outcomes);
	return 0;
}

static int module_clear(PyObject *module)
{
	struct state *state = PyModule_GetState(module);

	Py_CLEAR(state->loop);
	Py_CLEAR(state->operation);
	Py_CLEAR(state->object);
	Py_CLEAR(state->lock);
	Py_CLEAR(state->rlock);
	Py_CLEAR(state->rwlock);
	Py_CLEAR(state->sem);
	Py_CLEAR(state->bounded);
	Py_CLEAR(state->waitgroup);
	Py_CLEAR(state->owner_died);
	Py_CLEAR(state->not_recoverable);
	Py_CLEAR(state->loop_failed);
	Py_CLEAR(state->empty);
	Py_CLEAR(state->full);
	Py_CLEAR(state->shut_down);
	Py_CLEAR(state->broken);
	Py_CLEAR(state->outcomes);
	return 0;
}

static void module_free(void *module)
{
	module_clear(module);
}

static PyModuleDef_Slot module_slots[] = {
	{ Py_mod_exec, exec },
	{ 0 },
	{ 0 }
};

/*
 * Available from Python 3.12; the limited API of 3.11 does not define it, and 3.11 would refuse it.
 */
#define MOD_MULTIPLE_INTERPRETERS	3
#define MOD_PER_INTERPRETER_GIL		((void *)2)

/*
 * Each interpreter may have its own GIL: only its threads can reach its objects, and static
 * variables in this file are per thread or constant. However, None, True and False are shared by
 * all interpreters. The inline Py_INCREF() of 3.11's headers would change their reference counts
 * without a common GIL; later headers do not count references to them.
 */
static void set_policies(void)
{
	if (PY_VERSION_HEX >= 0x030c0000 && Py_Version >= 0x030c0000)
		module_slots[1] = (PyModuleDef_Slot){ MOD_MULTIPLE_INTERPRETERS,
						      MOD_PER_INTERPRETER_GIL };
}

static struct PyModuleDef module_def = {
	PyModuleDef_HEAD_INIT,
	.m_name = "memwait._memwait",
	.m_doc = "The objects of libmemwait in buffers; see memwait.",
	.m_size = sizeof(struct state),
	.m_methods = functions,
	.m_slots = module_slots,
	.m_traverse = module_traverse,
	.m_clear = module_clear,
	.m_free = module_free,
};

PyMODINIT_FUNC PyInit__memwait(void)
{
	pthread_once(&once, set_up);
	return PyModuleDef_Init(&module_def);
}
