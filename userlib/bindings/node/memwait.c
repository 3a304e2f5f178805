// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The native part of the package: shared memory, and waits for objects in it. index.js checks
 * arguments.
 *
 * Each environment (the main thread, a worker) has a state, and up to two libmemwait loops, which
 * are created when they are first needed. The operations of one loop settle promises, and the
 * environment's own event loop watches its descriptor. The other loop is for blocking waits: the
 * thread sleeps until the descriptor of that loop is readable. A blocking wait is also an
 * operation, so that the thread can check for worker.terminate() without losing its queue position.
 *
 * The memory that an operation uses must stay mapped while the operation is pending, whatever
 * JavaScript does with the buffer. Each operation therefore has a reference to a value that
 * prevents the memory from being unmapped. For buffers from map() this is an external value for the
 * mapping, because a buffer can be detached. Otherwise the value is the SharedArrayBuffer, which
 * cannot be detached.
 */
#define _GNU_SOURCE
#define NAPI_VERSION 8
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <node_api.h>
#include <uv.h>

#include <memwait.h>

#define MOST_ARGUMENTS	7
/*
 * In ms: the longest time until a blocked thread notices that it must end, if its event loop is not
 * woken.
 */
#define SLICE		50
/* In ms: longer timeouts never expire. */
#define FOREVER		1e15

/* The calls, and the kinds of objects. index.js has the same numbers. */
enum call {
	CALL_LOCK,
	CALL_WAIT,
	CALL_ACQUIRE,
	CALL_SEND,
	CALL_RECV,
	CALL_READ,
	CALL_WRITE,
	CALL_MEET,
	CALL_ZERO,
	CALL_SET,
	CALL_WORD,
};

enum kind {
	KIND_MUTEX,
	KIND_COND,
	KIND_SEM,
	KIND_CHANNEL,
	KIND_RWLOCK,
	KIND_BARRIER,
	KIND_WAITGROUP,
	KIND_EVENT,
};

/* Functions of the library with one type for all kinds of objects. */
#define DEFINE_ACTION(object, verb)						\
static int call_##object##_##verb(void *memory)				\
{										\
	return memwait_##object##_##verb(memory);				\
}

#define DEFINE_START(object, verb)						\
static int start_##object##_##verb(void *memory,				\
				   const struct timespec *timeout,		\
				   memwait_op_t *op)				\
{										\
	return memwait_##object##_clock##verb##_async(memory, MEMWAIT_RELATIVE,	\
						      timeout, op);		\
}

DEFINE_ACTION(mutex, trylock)
DEFINE_ACTION(mutex, unlock)
DEFINE_ACTION(mutex, consistent)
DEFINE_ACTION(rwlock, tryrdlock)
DEFINE_ACTION(rwlock, trywrlock)
DEFINE_ACTION(rwlock, unlock)
DEFINE_ACTION(rwlock, consistent)
DEFINE_ACTION(sem, trywait)
DEFINE_ACTION(sem, post)
DEFINE_ACTION(mutex, destroy)
DEFINE_ACTION(cond, destroy)
DEFINE_ACTION(sem, destroy)
DEFINE_ACTION(channel, destroy)
DEFINE_ACTION(rwlock, destroy)
DEFINE_ACTION(barrier, destroy)
DEFINE_ACTION(waitgroup, destroy)
DEFINE_ACTION(event, destroy)
DEFINE_START(mutex, lock)
DEFINE_START(rwlock, rdlock)
DEFINE_START(rwlock, wrlock)
DEFINE_START(sem, wait)
DEFINE_START(barrier, wait)
DEFINE_START(waitgroup, wait)
DEFINE_START(event, wait)

#define LOCKS(object, verb)							\
	.start = start_##object##_##verb, .attempt = call_##object##_try##verb,	\
	.undo = call_##object##_unlock, .mend = call_##object##_consistent

/*
 * The functions of each call. NULL: there is no such function, the function has more arguments, or
 * there is nothing to undo.
 */
static const struct verb {
	enum kind kind;
	int (*start)(void *memory, const struct timespec *timeout, memwait_op_t *op);
	int (*attempt)(void *memory);
	int (*undo)(void *memory);	/* releases what the call has acquired */
	int (*mend)(void *memory);	/* after EOWNERDEAD */
} verbs[] = {
	[CALL_LOCK] = { .kind = KIND_MUTEX, LOCKS(mutex, lock) },
	[CALL_WAIT] = { .kind = KIND_COND },
	[CALL_ACQUIRE] = { .kind = KIND_SEM, .start = start_sem_wait, .attempt = call_sem_trywait,
			   .undo = call_sem_post },
	[CALL_SEND] = { .kind = KIND_CHANNEL },
	[CALL_RECV] = { .kind = KIND_CHANNEL },
	[CALL_READ] = { .kind = KIND_RWLOCK, LOCKS(rwlock, rdlock) },
	[CALL_WRITE] = { .kind = KIND_RWLOCK, LOCKS(rwlock, wrlock) },
	[CALL_MEET] = { .kind = KIND_BARRIER, .start = start_barrier_wait },
	[CALL_ZERO] = { .kind = KIND_WAITGROUP, .start = start_waitgroup_wait },
	[CALL_SET] = { .kind = KIND_EVENT, .start = start_event_wait },
};

struct mapping {
	void *memory;
	size_t size;
	atomic_int users;
};

/*
 * A checked object in shared memory. Its JavaScript object prevents the memory from being unmapped.
 */
struct object {
	enum kind kind;
	void *memory;
	size_t size;
	size_t item_size;
};

struct state {
	struct state *next;		/* of the same thread */
	napi_env env;
	uv_loop_t *uv;
	memwait_loop_t *loop;
	memwait_loop_t *dispatched;	/* being dispatched; cannot be closed now */
	uv_poll_t *poll;		/* of @loop */
	unsigned int polls;		/* number of uv_poll_t not yet closed */
	bool ends;			/* free this struct when @polls is 0 */
	struct wait *pending;
	memwait_loop_t *blocking;
	int epoll;			/* polls @blocking and @uv; or -1 */
	napi_async_context context;
	napi_ref probe;			/* a JavaScript function */
	napi_async_cleanup_hook_handle hook;
};

struct wait {
	memwait_op_t op;
	struct wait *next, **link;	/* in the state's list of pending waits */
	struct state *state;
	enum call call;
	void *object;
	void *mutex;			/* of CALL_WAIT */
	bool is_64;
	uint64_t expected;
	unsigned char *item;
	size_t item_size;
	napi_deferred deferred;		/* NULL: a blocking wait */
	napi_ref keep;
	int users;			/* the pending operation, and its handle */
	bool done;
	bool is_serial;			/* of CALL_MEET */
	int result;
};

/* The states of this thread, one for each environment */
static _Thread_local struct state *states;

static napi_value undefined(napi_env env)
{
	napi_value value = NULL;

	napi_get_undefined(env, &value);
	return value;
}

static napi_value number(napi_env env, double n)
{
	napi_value value = NULL;

	napi_create_double(env, n, &value);
	return value;
}

static napi_value boolean(napi_env env, bool b)
{
	napi_value value = NULL;

	napi_get_boolean(env, b, &value);
	return value;
}

static napi_value string(napi_env env, const char *text)
{
	napi_value value = NULL;

	napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &value);
	return value;
}

/*
 * Creates an error like those of Node.js, with a code and a negative errno. @err may have either
 * sign.
 */
static napi_value error_with(napi_env env, int err, const char *text)
{
	napi_value error = NULL;
	const char *name;

	if (err > 0)
		err = -err;
	name = strerrorname_np(-err);
	if (napi_create_error(env, string(env, name ? name : "UNKNOWN"), string(env, text),
			      &error) != napi_ok)
		return NULL;
	napi_set_named_property(env, error, "errno", number(env, err));
	return error;
}

/* For errors of the library. */
static napi_value error_of(napi_env env, int err)
{
	return error_with(env, err, memwait_strerror(err));
}

static napi_value throw(napi_env env, int err)
{
	napi_throw(env, error_of(env, err));
	return NULL;
}

/* For errors from system calls that map memory and do not involve the device. */
static napi_value throw_errno(napi_env env, int err)
{
	napi_throw(env, error_with(env, err, strerror(err)));
	return NULL;
}

/* For a function of the library that returns 0 or an error. */
static napi_value result_of(napi_env env, int err)
{
	return err ? throw(env, err) : undefined(env);
}

/* For a function that returns whether something is so, or a negative error number. */
static napi_value truth_of(napi_env env, int ret)
{
	return ret < 0 ? throw(env, ret) : boolean(env, ret);
}

/* For a function that returns a number, or a negative error number. */
static napi_value number_of(napi_env env, int ret)
{
	return ret < 0 ? throw(env, ret) : number(env, ret);
}

/* Missing arguments are undefined. */
static struct state *arguments(napi_env env, napi_callback_info info, napi_value *args)
{
	size_t count = MOST_ARGUMENTS;
	void *state = NULL;

	napi_get_cb_info(env, info, &count, args, NULL, &state);
	return state;
}

static double number_from(napi_env env, napi_value value)
{
	double n = 0;

	napi_get_value_double(env, value, &n);
	return n;
}

static uint32_t count_from(napi_env env, napi_value value)
{
	double n = number_from(env, value);

	return n >= UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static int32_t int32_from(napi_env env, napi_value value)
{
	int32_t n = 0;

	napi_get_value_int32(env, value, &n);
	return n;
}

static bool boolean_from(napi_env env, napi_value value)
{
	bool b = false;

	napi_get_value_bool(env, value, &b);
	return b;
}

static void *external_from(napi_env env, napi_value value)
{
	void *data = NULL;

	napi_get_value_external(env, value, &data);
	return data;
}

/* Memory */

static void mapping_put(struct mapping *mapping)
{
	/* acq_rel: other threads' accesses to the memory precede its unmapping */
	if (atomic_fetch_sub_explicit(&mapping->users, 1, memory_order_acq_rel) > 1)
		return;
	munmap(mapping->memory, mapping->size);
	free(mapping);
}

static void buffer_ends(napi_env env, void *data, void *hint)
{
	(void)env;
	(void)data;
	mapping_put(hint);
}

/* The finalizer of a SharedArrayBuffer, in any thread. */
static void shared_buffer_ends(void *data, void *hint)
{
	(void)data;
	mapping_put(hint);
}

static void mapping_external_ends(napi_env env, void *data, void *hint)
{
	(void)env;
	(void)hint;
	mapping_put(data);
}

/* Newer versions of Node.js have this function. */
typedef napi_status (*create_shared_t)(napi_env env, void *data, size_t size,
				       void (*finalize)(void *data, void *hint), void *hint,
				       napi_value *result);

static napi_status create_buffer(napi_env env, struct mapping *mapping, napi_value *buffer)
{
	static const char name[] = "node_api_create_external_sharedarraybuffer";
	create_shared_t create_shared;

	/* the conversion to a function pointer that POSIX specifies */
	*(void **)&create_shared = dlsym(RTLD_DEFAULT, name);
	if (create_shared &&
	    create_shared(env, mapping->memory, mapping->size, shared_buffer_ends, mapping,
			  buffer) == napi_ok)
		return napi_ok;
	return napi_create_external_arraybuffer(env, mapping->memory, mapping->size, buffer_ends,
						mapping, buffer);
}

/*
 * Extends a file that is too short; a longer file is not truncated, because other processes may
 * have mapped it. The new part is allocated: otherwise an access would raise SIGBUS if the file
 * system were full.
 */
static int grow(int fd, size_t size)
{
	struct stat stat;
	int err;

	if (fstat(fd, &stat))
		return errno;
	if ((size_t)stat.st_size >= size)
		return 0;
	do {
		err = posix_fallocate(fd, stat.st_size, (off_t)size - stat.st_size);
	} while (err == EINTR);
	return err;
}

/* (fd, size): [buffer, value that keeps the mapping] */
static napi_value map(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS], pair, value;
	struct mapping *mapping;
	size_t size;
	int fd, err;

	arguments(env, info, args);
	fd = (int)number_from(env, args[0]);
	size = (size_t)number_from(env, args[1]);
	err = grow(fd, size);
	if (err)
		return throw_errno(env, err);
	mapping = malloc(sizeof(*mapping));
	if (!mapping)
		return throw_errno(env, ENOMEM);
	mapping->size = size;
	mapping->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapping->memory == MAP_FAILED) {
		err = errno;
		free(mapping);
		return throw_errno(env, err);
	}
	atomic_init(&mapping->users, 1);
	if (create_buffer(env, mapping, &value) != napi_ok) {
		bool pending = false;

		mapping_put(mapping);
		napi_is_exception_pending(env, &pending);
		if (!pending)
			napi_throw_error(env, "ENOTSUP",
					 "this engine does not support external buffers");
		return NULL;
	}
	napi_create_array_with_length(env, 2, &pair);
	napi_set_element(env, pair, 0, value);
	/* relaxed: mapping_put() orders the last release after all others */
	atomic_fetch_add_explicit(&mapping->users, 1, memory_order_relaxed);
	if (napi_create_external(env, mapping, mapping_external_ends, NULL, &value) != napi_ok) {
		mapping_put(mapping);
		return NULL;
	}
	napi_set_element(env, pair, 1, value);
	return pair;
}

/* (size): a descriptor */
static napi_value memfd(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	int fd, err;

	arguments(env, info, args);
	fd = memfd_create("memwait", MFD_CLOEXEC);
	if (fd < 0)
		return throw_errno(env, errno);
	if (ftruncate(fd, (off_t)number_from(env, args[0]))) {
		err = errno;
		close(fd);
		return throw_errno(env, err);
	}
	return number(env, fd);
}

/* Loops and waits */

static void wait_put(struct wait *wait)
{
	if (--wait->users)
		return;
	free(wait->item);
	free(wait);
}

/* A handle may outlive its wait, but not the environment. */
static void handle_ends(napi_env env, void *data, void *hint)
{
	(void)env;
	(void)hint;
	wait_put(data);
}

static bool is_cancelled(struct wait *wait)
{
	return !memwait_op_cancel(&wait->op);
}

static void wait_unlink(struct wait *wait)
{
	struct state *state = wait->state;

	*wait->link = wait->next;
	if (wait->next)
		wait->next->link = wait->link;
	napi_delete_reference(state->env, wait->keep);
	/* In this package, only pending waits keep the process alive. */
	if (!state->pending)
		uv_unref((uv_handle_t *)state->poll);
}

static void wait_link(struct wait *wait)
{
	struct state *state = wait->state;

	if (!state->pending)
		uv_ref((uv_handle_t *)state->poll);
	wait->next = state->pending;
	wait->link = &state->pending;
	if (wait->next)
		wait->next->link = &wait->next;
	state->pending = wait;
}

static const char *outcome(int result)
{
	switch (result) {
	case MEMWAIT_OK:
		return "ok";
	case MEMWAIT_NOT_EQUAL:
		return "not-equal";
	default:
		return "timed-out";
	}
}

/* Records the result of a library call or of its operation. */
static void end_with(struct wait *wait, int result)
{
	wait->is_serial = wait->call == CALL_MEET && result == MEMWAIT_BARRIER_SERIAL_THREAD;
	wait->result = wait->is_serial ? 0 : result;
}

/*
 * Returns the JavaScript result of a wait; *@failed: the result is an error. True means EOWNERDEAD
 * or, for a barrier, that this is the serial thread.
 */
static napi_value value_of(napi_env env, const struct wait *wait, bool *failed)
{
	napi_value buffer, value = NULL;
	void *data;

	*failed = false;
	if (wait->call == CALL_WORD && wait->result >= 0)
		return string(env, outcome(wait->result));
	if (wait->result == EOWNERDEAD)
		return boolean(env, true);
	if (wait->result) {
		*failed = true;
		return error_of(env, wait->result);
	}
	if (wait->call == CALL_MEET)
		return boolean(env, wait->is_serial);
	if (wait->call != CALL_RECV)
		return undefined(env);
	if (napi_create_arraybuffer(env, wait->item_size, &data, &buffer) == napi_ok) {
		memcpy(data, wait->item, wait->item_size);
		napi_create_typedarray(env, napi_uint8_array, wait->item_size, buffer, 0, &value);
	}
	return value;
}

/*
 * Whether the environment, and therefore the thread, is ending. Node.js then refuses calls that
 * need JavaScript. napi_strict_equals() is such a call, but runs no JavaScript.
 */
static bool is_ending(const struct state *state)
{
	napi_env env = state->env;
	napi_value value = undefined(env);
	bool is_same;

	return napi_strict_equals(env, value, value, &is_same) != napi_ok;
}

/*
 * Sends an item again, to the end of its channel, and waits for room for 0.1 s: the thread is
 * ending, so no later call can send it. If there is no room, or the channel is closed, the item is
 * lost.
 */
static void send_again(const struct wait *wait)
{
	const uint64_t end = uv_hrtime() + 100000000;
	int ret;

	do {
		ret = memwait_channel_trysend(wait->object, wait->item, wait->item_size);
	} while ((ret == EBUSY || ret == EAGAIN) && uv_hrtime() < end && !sched_yield());
}

/*
 * Passes the result of a wait to the next waiter, because JavaScript will not see it. If a thread
 * continues after a blocking wait for a condition, the mutex stays locked.
 */
static void give_back(struct wait *wait)
{
	bool keeps_mutex = wait->call == CALL_WAIT && !wait->deferred && !is_ending(wait->state);
	int ret = 0;

	if (keeps_mutex && !wait->result)
		memwait_cond_signal(wait->object);
	if (keeps_mutex && (!wait->result || wait->result == ETIMEDOUT))
		return;
	if (wait->call == CALL_RECV && !wait->result)
		send_again(wait);
	else
		ret = memwait_op_undo(&wait->op);
	(void)ret;
}

static void settle(struct wait *wait)
{
	napi_env env = wait->state->env;
	napi_handle_scope scope;
	napi_status status = napi_generic_failure;
	napi_value value;
	bool failed;

	if (napi_open_handle_scope(env, &scope) == napi_ok) {
		value = value_of(env, wait, &failed);
		if (value)
			status = failed ? napi_reject_deferred(env, wait->deferred, value) :
				 napi_resolve_deferred(env, wait->deferred, value);
		napi_close_handle_scope(env, scope);
	}
	if (status != napi_ok)
		give_back(wait);
	wait_unlink(wait);
	wait_put(wait);
}

/*
 * Opens a scope. Callbacks of promises that are settled within this scope run when the scope is
 * closed.
 */
static bool open_scope(struct state *state, napi_callback_scope *scope)
{
	napi_value resource;

	return napi_create_object(state->env, &resource) == napi_ok &&
	       napi_open_callback_scope(state->env, resource, state->context, scope) == napi_ok;
}

/* Cancels all pending waits, so that their results go to other waiters. */
static void cancel_all(struct state *state)
{
	struct wait *wait;

	for (wait = state->pending; wait; wait = wait->next)
		is_cancelled(wait);
}

/*
 * Settles a promise, and runs its callbacks before the next operation takes anything: a callback
 * may end the thread or the process, and the result of the next operation would then be lost.
 */
static void settle_alone(struct wait *wait)
{
	struct state *state = wait->state;
	napi_handle_scope handles;
	napi_callback_scope scope;
	bool is_open;

	if (napi_open_handle_scope(state->env, &handles) != napi_ok) {
		settle(wait);
		return;
	}
	is_open = open_scope(state, &scope);
	settle(wait);
	if (is_open)
		napi_close_callback_scope(state->env, scope);
	if (state->pending && is_ending(state))
		cancel_all(state);
	napi_close_handle_scope(state->env, handles);
}

static void on_end(memwait_op_t *op, int result, void *data)
{
	struct wait *wait = data;

	(void)op;
	end_with(wait, result);
	wait->done = true;
	if (wait->deferred)
		settle_alone(wait);
}

/*
 * Whether this thread cannot enter JavaScript, even for a function that does nothing. In this case
 * either the thread is ending, or a timeout of vm ends the script, and the thread continues
 * afterwards.
 */
static bool is_stopped(const struct state *state)
{
	napi_env env = state->env;
	napi_valuetype type = napi_undefined;
	napi_value function, value;
	napi_handle_scope scope;
	bool stopped;

	/*
	 * A blocked thread calls this repeatedly without returning to JavaScript, so without a
	 * scope its handles would accumulate.
	 */
	if (napi_open_handle_scope(env, &scope) != napi_ok)
		return true;
	stopped = napi_get_reference_value(env, state->probe, &function) != napi_ok ||
		  napi_call_function(env, undefined(env), function, 0, NULL, &value) != napi_ok;
	if (stopped) {
		/*
		 * The exception that stops a script is not an object; a RangeError (no stack) is an
		 * object.
		 */
		napi_get_and_clear_last_exception(env, &value);
		napi_typeof(env, value, &type);
		stopped = type != napi_object;
	}
	napi_close_handle_scope(env, scope);
	return stopped;
}

static void state_free(struct state *state)
{
	napi_remove_async_cleanup_hook(state->hook);
	free(state);
}

static void on_closed(uv_handle_t *poll)
{
	struct state *state = poll->data;

	free(poll);
	if (!--state->polls && state->ends)
		state_free(state);
}

static void drop_loop(struct state *state)
{
	if (!state->loop)
		return;
	/* The event loop no longer polls the descriptor, which may therefore be closed. */
	uv_close((uv_handle_t *)state->poll, on_closed);
	if (state->loop != state->dispatched)
		memwait_loop_close(state->loop);
	state->loop = NULL;
}

/* The program has closed the loop's descriptor. Later operations use a new loop. */
static void fail_all(struct state *state, int err)
{
	struct wait *wait;

	while ((wait = state->pending)) {
		is_cancelled(wait);
		wait->done = true;
		wait->result = err;
		settle(wait);
	}
	drop_loop(state);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct state *state = poll->data;
	memwait_loop_t *loop = state->loop;
	napi_handle_scope handles;
	napi_callback_scope scope;
	int ret = status;

	(void)events;
	if (napi_open_handle_scope(state->env, &handles) != napi_ok)
		return;
	/*
	 * If the thread is ending, do not dispatch: memwait_loop_close() passes results to other
	 * waiters.
	 */
	if (ret >= 0 && !is_stopped(state)) {
		state->dispatched = loop;
		ret = memwait_loop_dispatch(loop, MEMWAIT_ALL);
		state->dispatched = NULL;
		if (state->loop != loop)
			memwait_loop_close(loop);
	}
	if (ret < 0 && open_scope(state, &scope)) {
		fail_all(state, ret);
		napi_close_callback_scope(state->env, scope);
	}
	napi_close_handle_scope(state->env, handles);
}

/* Creates the loop for promises. Returns 0 or a negative error number. */
static int need_loop(struct state *state)
{
	memwait_loop_t *loop;
	uv_poll_t *poll;
	int ret;

	if (state->loop)
		return 0;
	ret = memwait_loop_new(&loop, 0);
	if (ret)
		return ret;
	poll = malloc(sizeof(*poll));
	ret = poll ? uv_poll_init(state->uv, poll, memwait_loop_fd(loop)) : -ENOMEM;
	if (ret) {
		free(poll);
		memwait_loop_close(loop);
		return ret;
	}
	poll->data = state;
	state->loop = loop;
	state->poll = poll;
	state->polls++;
	uv_unref((uv_handle_t *)poll);
	return uv_poll_start(poll, UV_READABLE, on_readable);
}

/* Closes the loop for blocking waits, which have all ended. */
static void drop_blocking(struct state *state)
{
	struct epoll_event events = { .events = EPOLLIN | EPOLLET };

	/* The program may have closed the descriptor, and may have reused its number. */
	if (state->epoll >= 0 &&
	    !epoll_ctl(state->epoll, EPOLL_CTL_MOD, uv_backend_fd(state->uv), &events))
		close(state->epoll);
	state->epoll = -1;
	memwait_loop_close(state->blocking);
	state->blocking = NULL;
}

static int need_blocking(struct state *state)
{
	/*
	 * worker.terminate() wakes the event loop: its descriptor becomes readable. A message to
	 * the worker may already have made the descriptor readable, so poll for an edge.
	 */
	struct epoll_event ours = { .events = EPOLLIN, .data.u32 = 1 };
	struct epoll_event events = { .events = EPOLLIN | EPOLLET };
	int ret, fd;

	if (state->blocking)
		return 0;
	ret = memwait_loop_new(&state->blocking, 0);
	if (ret)
		return ret;
	fd = memwait_loop_fd(state->blocking);
	state->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (state->epoll >= 0 && !epoll_ctl(state->epoll, EPOLL_CTL_ADD, fd, &ours) &&
	    !epoll_ctl(state->epoll, EPOLL_CTL_ADD, uv_backend_fd(state->uv), &events))
		return 0;
	ret = -errno;
	if (state->epoll >= 0)
		close(state->epoll);
	state->epoll = -1;
	memwait_loop_close(state->blocking);
	state->blocking = NULL;
	return ret;
}

/* Rounds up. Returns NULL for no timeout. */
static const struct timespec *timeout_of(double ms, struct timespec *time)
{
	double ns = ceil(fmod(ms, 1000) * 1e6);

	if (!(ms < FOREVER))
		return NULL;
	time->tv_sec = (time_t)(ms / 1000) + (ns == 1e9);
	time->tv_nsec = ns == 1e9 ? 0 : (long)ns;
	return time;
}

static int start_word(struct wait *wait, const struct timespec *timeout)
{
	int ret;

	if (wait->is_64)
		ret = memwait_wait64_async(wait->object, wait->expected, timeout, MEMWAIT_RELATIVE,
					   &wait->op);
	else
		ret = memwait_wait32_async(wait->object, (uint32_t)wait->expected, timeout,
					   MEMWAIT_RELATIVE, &wait->op);
	return ret == MEMWAIT_PENDING ? EINPROGRESS : ret;
}

/* Sets the result, which may be EINPROGRESS. */
static void start(struct wait *wait, double ms)
{
	struct timespec time;
	const struct timespec *timeout = timeout_of(ms, &time);
	memwait_op_t *op = &wait->op;
	int ret;

	switch (wait->call) {
	case CALL_WAIT:
		ret = memwait_cond_clockwait_async(wait->object, wait->mutex, MEMWAIT_RELATIVE,
						   timeout, op);
		break;
	case CALL_SEND:
		ret = memwait_channel_clocksend_async(wait->object, wait->item, wait->item_size,
						      MEMWAIT_RELATIVE, timeout, op);
		break;
	case CALL_RECV:
		ret = memwait_channel_clockrecv_async(wait->object, wait->item, wait->item_size,
						      MEMWAIT_RELATIVE, timeout, op);
		break;
	case CALL_WORD:
		ret = start_word(wait, timeout);
		break;
	default:
		ret = verbs[wait->call].start(wait->object, timeout, op);
		break;
	}
	end_with(wait, ret);
}

/* Converts the result of an operation that has ended, or throws its error. */
static napi_value finish(napi_env env, struct wait *wait)
{
	bool failed;
	napi_value value = value_of(env, wait, &failed);

	if (failed)
		napi_throw(env, value);
	/* The thread is ending, so JavaScript cannot receive an item. */
	if (!value)
		give_back(wait);
	wait_put(wait);
	return failed ? NULL : value;
}

/* Returns the promise, or [promise, handle] if @with_handle. */
static napi_value promise_of(napi_env env, struct wait *wait, napi_value keep, bool with_handle)
{
	napi_value promise, pair, handle;

	if (napi_create_promise(env, &wait->deferred, &promise) != napi_ok ||
	    napi_create_reference(env, keep, 1, &wait->keep) != napi_ok) {
		is_cancelled(wait);
		wait_put(wait);
		return NULL;
	}
	wait_link(wait);
	if (!with_handle)
		return promise;
	wait->users++;
	if (napi_create_external(env, wait, handle_ends, NULL, &handle) != napi_ok) {
		wait->users--;
		return NULL;
	}
	napi_create_array_with_length(env, 2, &pair);
	napi_set_element(env, pair, 0, promise);
	napi_set_element(env, pair, 1, handle);
	return pair;
}

/*
 * Sleeps until the wait has ended. Returns false if the wait was abandoned and nothing was
 * consumed.
 */
static bool sleep_for(struct state *state, struct wait *wait,
		      bool (*gives_up)(const struct state *state))
{
	struct epoll_event events[2];
	bool look;
	int n, i, ret;

	while (!wait->done) {
		n = epoll_wait(state->epoll, events, 2, SLICE);
		look = n <= 0;
		ret = n < 0 && errno != EINTR ? -errno : 0;
		for (i = 0; i < n; i++) {
			if (!events[i].data.u32)
				look = true;
			else
				ret = memwait_loop_dispatch(state->blocking, MEMWAIT_ALL);
		}
		if (wait->done)
			break;
		if (ret < 0) {
			is_cancelled(wait);
			wait->result = ret;
			drop_blocking(state);
			return true;
		}
		if (look && gives_up(state)) {
			is_cancelled(wait);
			return false;
		}
	}
	return true;
}

/*
 * A wait for a condition was abandoned, and the thread continues: lock the mutex, as after any
 * other wait, because the callers will unlock it.
 */
static void lock_again(struct state *state, struct wait *wait)
{
	wait->call = CALL_LOCK;
	wait->object = wait->mutex;
	start(wait, INFINITY);
	if (wait->result == EINPROGRESS && !sleep_for(state, wait, is_ending))
		return;
	if (wait->result == EOWNERDEAD)
		give_back(wait);
}

/*
 * Converts the result of an operation that had begun. If a wait for a condition has not locked its
 * mutex again, the error is returned, not thrown.
 */
static napi_value finish_blocking(napi_env env, struct wait *wait)
{
	napi_value error;

	if (wait->call != CALL_WAIT || !wait->result || wait->result == ETIMEDOUT ||
	    wait->result == EOWNERDEAD)
		return finish(env, wait);
	error = error_of(env, wait->result);
	wait_put(wait);
	return error;
}

/* Sets the result, which may be EINPROGRESS. */
static void begin_once(struct wait *wait, double ms, bool blocks)
{
	struct state *state = wait->state;

	wait->result = blocks ? need_blocking(state) : need_loop(state);
	if (!wait->result)
		wait->result = memwait_op_init(&wait->op, blocks ? state->blocking : state->loop,
					       on_end, wait);
	if (!wait->result)
		start(wait, ms);
}

static napi_value begin(napi_env env, struct wait *wait, double ms, napi_value keep,
			bool with_handle)
{
	struct state *state = wait->state;
	bool blocks = !keep;

	begin_once(wait, ms, blocks);
	if (abs(wait->result) == EBADF) {
		/* The program has closed the loop's descriptor; no operation has begun. */
		if (blocks)
			drop_blocking(state);
		else
			fail_all(state, -EBADF);
		begin_once(wait, ms, blocks);
	}
	if (wait->result != EINPROGRESS)
		return finish(env, wait);
	if (!blocks)
		return promise_of(env, wait, keep, with_handle);
	if (sleep_for(state, wait, is_stopped)) {
		if (!is_stopped(state))
			return finish_blocking(env, wait);
		give_back(wait);
	} else if (wait->call == CALL_WAIT && !is_ending(state)) {
		lock_again(state, wait);
	}
	wait_put(wait);
	return NULL;
}

/* Words */

/*
 * Returns the address of the element, or NULL with an exception: the view may have shrunk since it
 * was checked. Without @is_64 the element may be a byte.
 */
static void *word_at(napi_env env, napi_value view, napi_value index, bool *is_64)
{
	napi_typedarray_type type = napi_int8_array;
	double i = number_from(env, index);
	size_t length = 0, size = 0;
	void *data = NULL;

	napi_get_typedarray_info(env, view, &type, &length, &data, NULL, NULL);
	if (type == napi_bigint64_array)
		size = 8;
	else if (type == napi_int32_array)
		size = 4;
	else if (type == napi_uint8_array && !is_64)
		size = 1;
	if (!size || !data || i >= (double)length) {
		napi_throw_range_error(env, NULL, "index out of range");
		return NULL;
	}
	if (is_64)
		*is_64 = size == 8;
	return (char *)data + (size_t)i * size;
}

static bool differs(const struct wait *wait)
{
	/* seq_cst, both: like Atomics.load() */
	if (wait->is_64)
		return atomic_load((_Atomic uint64_t *)wait->object) != wait->expected;
	return atomic_load((_Atomic uint32_t *)wait->object) != (uint32_t)wait->expected;
}

/* (view, index, expected, ms[, keeper]): the outcome; with a keeper, the outcome or a promise */
static napi_value wait_word(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	struct state *state = arguments(env, info, args);
	napi_valuetype type = napi_undefined;
	struct wait *wait = calloc(1, sizeof(*wait));
	int64_t expected = 0;
	bool lossless;

	if (!wait)
		return throw(env, ENOMEM);
	wait->state = state;
	wait->users = 1;
	wait->call = CALL_WORD;
	wait->object = word_at(env, args[0], args[1], &wait->is_64);
	if (!wait->object) {
		free(wait);
		return NULL;
	}
	if (wait->is_64)
		napi_get_value_bigint_int64(env, args[2], &expected, &lossless);
	else
		expected = (uint32_t)int32_from(env, args[2]);
	wait->expected = (uint64_t)expected;
	napi_typeof(env, args[4], &type);
	/* The kernel compares the word again, in one step with queueing. */
	if (differs(wait)) {
		free(wait);
		return string(env, "not-equal");
	}
	return begin(env, wait, number_from(env, args[3]), type == napi_undefined ? NULL : args[4],
		     false);
}

/* (view, index, count): the number of waiters woken */
static napi_value notify(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	bool is_64;
	void *word;

	arguments(env, info, args);
	word = word_at(env, args[0], args[1], &is_64);
	if (!word)
		return NULL;
	return number_of(env, memwait_notify(word, count_from(env, args[2]), 0));
}

/* (view, index): the number of waiters */
static napi_value waiters(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	void *word;

	arguments(env, info, args);
	word = word_at(env, args[0], args[1], NULL);
	if (!word)
		return NULL;
	return number_of(env, memwait_waiters(word, 0));
}

/* Objects */

/* the same as in index.js */
static const char out_of_range[] = "ERR_OUT_OF_RANGE";

static void object_ends(napi_env env, void *data, void *hint)
{
	(void)env;
	(void)hint;
	free(data);
}

static napi_value wrong_this(napi_env env)
{
	napi_throw_type_error(env, "ERR_INVALID_THIS", "this is not an object of the class");
	return NULL;
}

/* Returns an object of this kind, or NULL with an exception: "this" may be any object. */
static struct object *object_from(napi_env env, napi_value value, enum kind kind)
{
	struct object *object = external_from(env, value);

	if (object && object->kind == kind)
		return object;
	wrong_this(env);
	return NULL;
}

/* (call, object, ...): the object of the call, or NULL with an exception. */
static struct object *object_of_call(napi_env env, const napi_value *args, enum call *call)
{
	double n = number_from(env, args[0]);

	/* A program can reach a base class, and call it with any number. */
	if (!(n >= 0 && n < CALL_WORD)) {
		wrong_this(env);
		return NULL;
	}
	*call = (enum call)n;
	return object_from(env, args[1], verbs[*call].kind);
}

#define KIND(object)								\
	.size = sizeof(memwait_##object##_t), .destroy = call_##object##_destroy

static const struct {
	size_t size;
	int (*destroy)(void *memory);
	uint8_t flags_at;		/* the index of its flags, as 32-bit words; or 0 */
} kinds[] = {
	[KIND_MUTEX] = { KIND(mutex), .flags_at = 2 },
	[KIND_COND] = { KIND(cond) },
	[KIND_SEM] = { KIND(sem) },
	[KIND_CHANNEL] = { .destroy = call_channel_destroy },
	[KIND_RWLOCK] = { KIND(rwlock), .flags_at = 6 },
	[KIND_BARRIER] = { KIND(barrier) },
	[KIND_WAITGROUP] = { KIND(waitgroup) },
	[KIND_EVENT] = { KIND(event) },
};

/* (view of the memory that begins at the object, kind): an object */
static napi_value object(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS], value;
	napi_typedarray_type type;
	struct object *object;
	size_t length = 0, size, align;
	void *data = NULL;
	enum kind kind;
	double n;

	arguments(env, info, args);
	/* A program can reach the base class, and call it with any number. */
	n = number_from(env, args[1]);
	if (!(n >= 0 && n <= KIND_EVENT))
		return throw(env, EINVAL);
	kind = (enum kind)n;
	size = kind == KIND_CHANNEL ? memwait_channel_size(1, 1) : kinds[kind].size;
	align = kind == KIND_EVENT ? 4 : 8;
	napi_get_typedarray_info(env, args[0], &type, &length, &data, NULL, NULL);
	if (length < size || (uintptr_t)data % align) {
		napi_throw_range_error(env, out_of_range, length < size ?
				       "the buffer is too small for the object" :
				       align == 8 ? "an object must be aligned to 8 bytes" :
				       "an Event must be aligned to 4 bytes");
		return NULL;
	}
	object = calloc(1, sizeof(*object));
	if (!object)
		return throw(env, ENOMEM);
	object->kind = kind;
	object->memory = data;
	object->size = length;
	if (napi_create_external(env, object, object_ends, NULL, &value) != napi_ok) {
		free(object);
		return NULL;
	}
	return value;
}

/* (object, flags, count), or for a channel (object, item size, capacity) */
static napi_value init(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	struct object *object;
	uint32_t flags, count;
	size_t capacity;
	int err = 0;

	arguments(env, info, args);
	object = external_from(env, args[0]);
	flags = count_from(env, args[1]);
	count = count_from(env, args[2]);
	switch (object->kind) {
	case KIND_MUTEX:
		err = memwait_mutex_init(object->memory, flags);
		break;
	case KIND_COND:
		err = memwait_cond_init(object->memory, flags);
		break;
	case KIND_SEM:
		err = memwait_sem_init(object->memory, flags, count);
		break;
	case KIND_CHANNEL:
		capacity = (size_t)number_from(env, args[2]);
		if (memwait_channel_size(flags, capacity) > object->size) {
			napi_throw_range_error(env, out_of_range,
					       "the buffer is too small for the channel");
			return NULL;
		}
		err = memwait_channel_init(object->memory, object->size, 0, flags, capacity);
		break;
	case KIND_RWLOCK:
		err = memwait_rwlock_init(object->memory, flags);
		break;
	case KIND_BARRIER:
		err = memwait_barrier_init(object->memory, flags, count);
		break;
	case KIND_WAITGROUP:
		err = memwait_waitgroup_init(object->memory, flags, count);
		break;
	case KIND_EVENT:
		err = memwait_event_init(object->memory, flags);
		break;
	}
	return result_of(env, err);
}

/* (channel): its item size; fails unless the whole channel is within the buffer */
static napi_value item_size(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	struct object *object;
	size_t size, capacity;
	int err;

	arguments(env, info, args);
	object = object_from(env, args[0], KIND_CHANNEL);
	if (!object)
		return NULL;
	err = memwait_channel_attach(object->memory, object->size, &size, &capacity);
	if (err)
		return throw(env, err);
	/* Later calls check that the size of items is still the same. */
	if (!object->item_size)
		object->item_size = size;
	return number(env, (double)size);
}

/* (item size, capacity): bytes */
static napi_value channel_size(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	double item, capacity;
	size_t size = 0;

	arguments(env, info, args);
	item = number_from(env, args[0]);
	capacity = number_from(env, args[1]);
	if (item >= 1 && capacity >= 1 && item <= UINT32_MAX && capacity <= UINT32_MAX)
		size = memwait_channel_size((size_t)item, (size_t)capacity);
	if (size)
		return number(env, (double)size);
	napi_throw_range_error(env, out_of_range, "item size or capacity out of range");
	return NULL;
}

/*
 * Fails, with an exception, if the item size has changed, if there is no memory, or if the view has
 * shrunk.
 */
static bool take_item(napi_env env, struct wait *wait, const struct object *object,
		      napi_value view)
{
	size_t size, capacity, length = 0;
	napi_typedarray_type type;
	void *data = NULL;

	/* The channel may have been destroyed or initialised again. */
	if (memwait_channel_attach(object->memory, object->size, &size, &capacity) ||
	    size != object->item_size) {
		throw(env, EINVAL);
		return false;
	}
	wait->item_size = size;
	wait->item = malloc(size);
	if (!wait->item) {
		throw(env, ENOMEM);
		return false;
	}
	if (wait->call == CALL_RECV)
		return true;
	napi_get_typedarray_info(env, view, &type, &length, &data, NULL, NULL);
	if (!data || length != size) {
		napi_throw_range_error(env, out_of_range, "the buffer of the item has shrunk");
		return false;
	}
	memcpy(wait->item, data, length);
	return true;
}

/*
 * Makes a wait for a call, with a copy of the @item if it has one. Returns NULL with an exception.
 */
static struct wait *wait_new(napi_env env, struct state *state, enum call call,
			     const struct object *object, napi_value item)
{
	struct wait *wait = calloc(1, sizeof(*wait));

	if (!wait) {
		throw(env, ENOMEM);
		return NULL;
	}
	wait->state = state;
	wait->users = 1;
	wait->call = call;
	wait->object = object->memory;
	if ((call != CALL_SEND && call != CALL_RECV) || take_item(env, wait, object, item))
		return wait;
	wait_put(wait);
	return NULL;
}

/*
 * (call, object, ms, mutex or item, keeper, with handle): undefined, true for EOWNERDEAD, or an
 * item; with a keeper of the memory, a promise of these. Without a keeper the call blocks, and an
 * additional argument keeps the objects alive.
 */
static napi_value wait_object(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	struct state *state = arguments(env, info, args);
	enum call call;
	struct object *object = object_of_call(env, args, &call), *mutex = NULL;
	napi_valuetype type = napi_undefined;
	struct wait *wait;

	if (object && call == CALL_WAIT)
		mutex = object_from(env, args[3], KIND_MUTEX);
	if (!object || (call == CALL_WAIT && !mutex))
		return NULL;
	wait = wait_new(env, state, call, object, args[3]);
	if (!wait)
		return NULL;
	wait->mutex = mutex ? mutex->memory : NULL;
	napi_typeof(env, args[4], &type);
	return begin(env, wait, number_from(env, args[2]), type == napi_undefined ? NULL : args[4],
		     boolean_from(env, args[5]));
}

/* (call, object, item): the result of a wait, or false if it would have to wait */
static napi_value try_object(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	struct state *state = arguments(env, info, args);
	enum call call;
	struct object *object = object_of_call(env, args, &call);
	struct wait *wait = object ? wait_new(env, state, call, object, args[2]) : NULL;

	if (!wait)
		return NULL;
	if (call == CALL_SEND)
		wait->result = memwait_channel_trysend(wait->object, wait->item, wait->item_size);
	else if (call == CALL_RECV)
		wait->result = memwait_channel_tryrecv(wait->object, wait->item, wait->item_size);
	else
		wait->result = verbs[call].attempt ? verbs[call].attempt(wait->object) : EINVAL;
	if (wait->result == EBUSY || wait->result == EAGAIN) {
		wait_put(wait);
		return boolean(env, false);
	}
	return finish(env, wait);
}

/* (handle): cancels; true if the operation was pending, and has consumed nothing */
static napi_value cancel(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	struct wait *wait;

	arguments(env, info, args);
	wait = external_from(env, args[0]);
	if (wait->done || !is_cancelled(wait))
		return boolean(env, false);
	wait->done = true;
	napi_reject_deferred(env, wait->deferred, args[1]);
	wait_unlink(wait);
	wait_put(wait);
	return boolean(env, true);
}

/* Returns the value, or a negative error number. */
static int value_of_sem(memwait_sem_t *sem)
{
	int value, err = memwait_sem_getvalue(sem, &value);

	return err ? -err : value;
}

/*
 * A function of JavaScript for an object of one kind, which calls one function of the library.
 * @result: an expression of the arguments @args, of which the first is the object, and of the
 * @memory of the object.
 */
#define DEFINE_FUNCTION(name, kind_of_object, result)				\
static napi_value name(napi_env env, napi_callback_info info)			\
{										\
	napi_value args[MOST_ARGUMENTS];					\
	struct object *object;							\
	void *memory;								\
										\
	arguments(env, info, args);						\
	object = object_from(env, args[0], kind_of_object);			\
	if (!object)								\
		return NULL;							\
	memory = object->memory;						\
	return result;								\
}

DEFINE_FUNCTION(close_channel, KIND_CHANNEL, result_of(env, memwait_channel_close(memory)))
DEFINE_FUNCTION(channel_length, KIND_CHANNEL, number(env, (double)memwait_channel_length(memory)))
/* (wait group, number to add) */
DEFINE_FUNCTION(add, KIND_WAITGROUP,
		result_of(env, memwait_waitgroup_add(memory, int32_from(env, args[1]))))
/* (condition, count) */
DEFINE_FUNCTION(signal_cond, KIND_COND,
		result_of(env, memwait_cond_notify(memory, count_from(env, args[1]))))
/* (barrier, true: reset; false: abort) */
DEFINE_FUNCTION(break_barrier, KIND_BARRIER,
		result_of(env, boolean_from(env, args[1]) ? memwait_barrier_reset(memory) :
							    memwait_barrier_abort(memory)))
/* (event, true: set; false: clear) */
DEFINE_FUNCTION(change_event, KIND_EVENT,
		result_of(env, boolean_from(env, args[1]) ? memwait_event_set(memory) :
							    memwait_event_clear(memory)))
DEFINE_FUNCTION(event_is_set, KIND_EVENT, truth_of(env, memwait_event_is_set(memory)))
/* Whether a mutex is locked, by this thread if it checks owners. */
DEFINE_FUNCTION(is_held, KIND_MUTEX, truth_of(env, memwait_mutex_is_held(memory)))
DEFINE_FUNCTION(sem_value, KIND_SEM, number_of(env, value_of_sem(memory)))

static napi_value act(napi_env env, napi_callback_info info, bool mends)
{
	napi_value args[MOST_ARGUMENTS];
	struct object *object;
	enum call call;
	int (*action)(void *memory);

	arguments(env, info, args);
	object = object_of_call(env, args, &call);
	if (!object)
		return NULL;
	action = mends ? verbs[call].mend : verbs[call].undo;
	return result_of(env, action ? action(object->memory) : EINVAL);
}

/* (call, object): releases what the call has acquired */
static napi_value undo(napi_env env, napi_callback_info info)
{
	return act(env, info, false);
}

/* (call, object): marks the data of a dead owner as consistent */
static napi_value mend(napi_env env, napi_callback_info info)
{
	return act(env, info, true);
}

/* (object): its flags, which are at the same position as in the initialisers of memwait.h */
static napi_value flags_of(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	struct object *object;
	uint32_t *words;

	arguments(env, info, args);
	object = external_from(env, args[0]);
	words = object->memory;
	return number(env, kinds[object->kind].flags_at ? words[kinds[object->kind].flags_at] : 0);
}

/* (object): the number of waiters for any byte of it */
static napi_value object_waiters(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	struct object *object;
	size_t size, i;
	int sum = 0, ret;

	arguments(env, info, args);
	object = external_from(env, args[0]);
	size = kinds[object->kind].size;
	/* Waiters of a channel wait for words of its head, not of its items. */
	for (i = 0; i < (size ? size : memwait_channel_size(1, 1)); i++) {
		ret = memwait_waiters((char *)object->memory + i, 0);
		if (ret < 0)
			return throw(env, ret);
		sum += ret;
	}
	return number(env, sum);
}

static napi_value destroy(napi_env env, napi_callback_info info)
{
	napi_value args[MOST_ARGUMENTS];
	struct object *object;

	arguments(env, info, args);
	object = external_from(env, args[0]);
	return result_of(env, kinds[object->kind].destroy(object->memory));
}

/* Throws if the device cannot be used. */
static napi_value available(napi_env env, napi_callback_info info)
{
	(void)info;
	return result_of(env, memwait_available());
}

/* Environments */

/*
 * The environment ends. JavaScript cannot run any more: pending operations end without a callback.
 */
static void on_exit_of(napi_async_cleanup_hook_handle hook, void *data)
{
	struct state *state = data, **link = &states;
	struct wait *wait;

	(void)hook;
	while (*link != state)
		link = &(*link)->next;
	*link = state->next;
	drop_loop(state);
	drop_blocking(state);
	while ((wait = state->pending)) {
		wait->done = true;
		wait_unlink(wait);
		wait_put(wait);
	}
	napi_delete_reference(state->env, state->probe);
	napi_async_destroy(state->env, state->context);
	state->ends = true;
	if (!state->polls)
		state_free(state);
}

/*
 * process.exit() in the main thread runs no hook of its environment. Results for its promises may
 * already have been read from the device; the kernel does not pass such results on.
 */
__attribute__((destructor)) static void on_exit_of_process(void)
{
	struct state *state;

	for (state = states; state; state = state->next)
		cancel_all(state);
}

NAPI_MODULE_INIT()
{
	static const struct {
		const char *name;
		napi_callback function;
	} functions[] = {
		{ "map", map },
		{ "memfd", memfd },
		{ "waitWord", wait_word },
		{ "notify", notify },
		{ "waiters", waiters },
		{ "object", object },
		{ "init", init },
		{ "itemSize", item_size },
		{ "channelSize", channel_size },
		{ "waitObject", wait_object },
		{ "tryObject", try_object },
		{ "cancel", cancel },
		{ "undo", undo },
		{ "mend", mend },
		{ "close", close_channel },
		{ "add", add },
		{ "breakBarrier", break_barrier },
		{ "change", change_event },
		{ "isSet", event_is_set },
		{ "flags", flags_of },
		{ "isHeld", is_held },
		{ "objectWaiters", object_waiters },
		{ "signal", signal_cond },
		{ "destroy", destroy },
		{ "channelLength", channel_length },
		{ "semValue", sem_value },
		{ "available", available },
	};
	struct state *state = calloc(1, sizeof(*state));
	napi_value value;
	size_t i;

	if (!state)
		return throw(env, ENOMEM);
	state->env = env;
	state->epoll = -1;
	if (napi_get_uv_event_loop(env, &state->uv) != napi_ok ||
	    napi_async_init(env, NULL, string(env, "memwait"), &state->context) != napi_ok ||
	    napi_run_script(env, string(env, "() => {}"), &value) != napi_ok ||
	    napi_create_reference(env, value, 1, &state->probe) != napi_ok ||
	    napi_add_async_cleanup_hook(env, on_exit_of, state, &state->hook) != napi_ok) {
		if (state->probe)
			napi_delete_reference(env, state->probe);
		if (state->context)
			napi_async_destroy(env, state->context);
		free(state);
		return NULL;
	}
	state->next = states;
	states = state;
	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		if (napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH,
					 functions[i].function, state, &value) != napi_ok ||
		    napi_set_named_property(env, exports, functions[i].name, value) != napi_ok)
			return NULL;
	}
	return exports;
}
