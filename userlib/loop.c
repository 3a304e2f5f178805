// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Loops and operations.
 *
 * An operation is idle, queued in the kernel, or ready: its completion was read. The loop has a
 * list of queued operations and a list of ready operations. The loop's lock protects the lists and
 * the states. Every step of an operation runs under the lock; callbacks run without it. Each
 * operation that has begun ends exactly once: by its callback (whose thread makes the operation
 * idle, under the lock, before the call), by cancel or by close.
 *
 * A persistent operation (memwait_watch*(), .goes_on) has many callbacks, each for a number of
 * notifies. While a callback is running, the operation is CALLED: notifies that are read for it are
 * added to the next number, and the operation becomes ready when the callback has returned.
 * Therefore two callbacks of the operation never run at the same time. A callback does not end the
 * operation: the thread that runs the callback looks at the operation afterwards, unless the
 * callback has cancelled, and perhaps freed, the operation. A struct visit records the operation
 * whose callback its thread runs. Cancel can thus find out whether another thread still uses the
 * data of an operation. A persistent operation stays CALLED until the callback returns. Any other
 * operation may have been freed by then, or have begun again. The record of such an operation is
 * only compared by address, and only if the operation at that address is idle.
 *
 * A completion names its operation by address. This is safe: an operation that is not idle must not
 * be freed, and cancel makes an operation idle only when no completion can follow. Either the
 * kernel has cancelled the wait; or the wait has ended, and cancel reads its completion. Cancel may
 * have to read other completions first. Their operations become ready, and the descriptor no longer
 * reports them. Therefore cancel kicks the loop: it notifies a word of the loop. A persistent wait
 * on this word is armed once, when the loop is created, so that a kick needs no memory. A
 * persistent wait may have a completion although it was cancelled: cancel reads until there can be
 * none.
 *
 * Close cancels all pending operations. It begins with the queued operations, so that no notify
 * that is passed on comes back to this loop. Then it cancels the ready operations, including those
 * that have become ready in the meantime. Finally it ends the wait of the kick: if there is a copy
 * of the descriptor, the context outlives the loop, and a wait that is still armed would consume a
 * notify of the next user of the loop's memory. Close fails while a thread is within a call. Close
 * could wait for that thread, but not for a thread that is about to call a function of the loop,
 * nor for the callback that called close.
 *
 * Dispatch continues until it has run the callbacks of all operations that had completed when it
 * began. Later completions give a thread that polls for edges (EPOLLET) another edge. At its limit,
 * or when it is stopped, dispatch reads all completions that were available, including the kick's,
 * so that the operations that dispatch leaves are ready. Dispatch then kicks for these operations.
 * This kick is a new completion, and therefore an edge: if the previous kick were still unread, a
 * notify would only add to its count.
 *
 * A kick also wakes threads that are asleep in a run (memwait_loop_run() or memwait_op_wait()) and
 * must leave it: because no operation is pending, because the operation that they wait for is no
 * longer pending, or because memwait_loop_stop() was called after they had begun. A thread whose
 * own operation is ready must also leave, because an earlier callback may be waiting for that
 * thread. Any thread may read the kick, and poll() rechecks readiness before it returns. Therefore:
 *
 *	While a thread that must leave is asleep, any thread that drops the lock, to leave, to sleep
 *	or to run a callback, leaves an unread kick behind. A thread that has woken no longer counts
 *	as asleep, so the kicks end with the last sleeper. If a run has found nothing to do except
 *	to leave such a kick to another thread, it does not poll, because poll() would return
 *	immediately, but sleeps for BESIDE_KICK: the other thread may be unable to run, because it
 *	is in a signal handler, or because of this thread's real-time priority.
 *
 * A run whose deadline has passed dispatches once more and then leaves, even if there are later
 * completions. poll() sleeps for a duration, not until a time of day: if the clock is set forward,
 * the run notices this within CLOCK_LOOK.
 *
 * While a callback runs, it is possible that nothing is pending, although the callback will begin
 * its operation again. Therefore threads that sleep until nothing is pending are woken only after
 * the callback has returned. A thread that waits for one operation also waits for a callback of
 * this operation in another thread, but not for any other callback: the thread runs the callbacks
 * of ready operations itself.
 *
 * memwait_loop_stop() may run in a signal handler of a thread that holds the lock, so it takes no
 * lock. It changes one word, @runs_and_stops, which also counts the runs. If there is no run, the
 * word records the stop for the next run.
 *
 *	stop				thread that wakes while others sleep
 *	(1) count the stop		(1) read the kick
 *	(2) notify the kick		(2) before it drops the lock: if there is a new stop, kick
 *
 * The kernel orders the stop's (2) and the thread's (1). If the notify comes first, the thread may
 * have read the kick, and sees the stop in its own (2). Otherwise an unread kick remains. Two stops
 * may share one kick: the first thread to see a stop counts, under the lock, the threads that must
 * leave.
 *
 * A thread can be cancelled in a callback and in poll(), never with the lock held. Its cleanup
 * handler does what the thread does when it leaves: it uncounts the thread, and kicks for
 * operations that remain in the list. The loop counts as in use while a thread is within a call, so
 * a callback cannot free it. If a callback or signal handler forks, the child returns into its
 * parent's loop, which may have been freed, or may be locked by a thread that does not exist in the
 * child. Therefore the child leaves without touching the loop.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loop.h"

/* Maximum completions per read. */
#define BATCH	64

/*
 * A read that returns fewer completions has returned all that were available: a signal ends only
 * longer reads, see memwait(4).
 */
#define SURELY_ALL	16

struct memwait_loop {
	int fd;
	uint64_t id;			/* owner id of its context; or 0 */
	uint32_t process;		/* that created it */
	pthread_mutex_t lock;		/* for the rest, and the operations */
	struct memwait_op queued, ready;	/* list heads */
	struct memwait_op kick;		/* armed once, on @kick_word */
	uint32_t kick_word;
	bool kicked;			/* kick's completion is unread */
	struct visit *visits;		/* dispatches and runs in progress */
	uint32_t asleep;		/* runs in poll() */
	uint32_t leaving;		/* of @asleep: must return because of a stop */
	uint32_t stops_seen;		/* of @runs_and_stops */
	_Atomic uint64_t runs_and_stops;	/* lock-free, see above */
	_Atomic size_t pending;
};

/*
 * The longest sleep of a run, in ns: while there is a kick for another thread; with CLOCK_REALTIME.
 */
#define BESIDE_KICK	1000000ULL
#define CLOCK_LOOK	1000000000ULL

/* runs_and_stops: number of runs in progress, and of stops that found a run in progress. */
#define RUN		1ULL
#define RUNS		0x7fffffffULL
#define STOPPED		0x80000000ULL	/* a stop that found no run; it is for the next run */
#define STOP		(1ULL << 32)

/* A call of memwait_loop_dispatch(), or a run, on its thread's stack. */
struct visit {
	struct visit *next;		/* in the loop's list */
	memwait_loop_t *loop;
	pthread_t thread;
	const struct memwait_op *calls;	/* whose callback runs, or NULL; may be freed */
	struct memwait_op *returns_to;	/* @calls if persistent, until the callback cancels it */
	const struct memwait_op *until;	/* until this has ended; NULL: until none is pending */
	uint32_t process;		/* the calling one */
	int state;			/* from loop_lock() */
	bool is_run;			/* counted in @runs_and_stops */
	bool asleep;
	size_t unread;			/* how many records it has yet to read, at most */
	uint32_t stops;			/* of the loop, at the start */
	struct memwait_deadline deadline;
};

static memwait_op_t *to_public(struct memwait_op *op)
{
	return (memwait_op_t *)op;
}

static struct memwait_op *to_op(const memwait_op_t *op)
{
	return (struct memwait_op *)op;
}

/* read() is a cancellation point; disable cancellation while the lock is held. */
static int loop_lock(memwait_loop_t *loop)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&loop->lock);
	return state;
}

static void loop_unlock(memwait_loop_t *loop, int state)
{
	pthread_mutex_unlock(&loop->lock);
	pthread_setcancelstate(state, NULL);
}

static int op_state(const struct memwait_op *op)
{
	/* relaxed: written under the loop's lock; for unlocked readers see memwait_op_pending() */
	return atomic_load_explicit(&op->state, memory_order_relaxed);
}

static void op_set_state(struct memwait_op *op, enum memwait_op_state state)
{
	if (state == MEMWAIT_OP_IDLE)
		memwait_tsan_release(op);
	/* release: pairs with memwait_op_pending() */
	atomic_store_explicit(&op->state, state, memory_order_release);
}

static void count_pending(memwait_loop_t *loop, int change)
{
	/* relaxed: see op_state() */
	size_t pending = atomic_load_explicit(&loop->pending, memory_order_relaxed);

	atomic_store_explicit(&loop->pending, pending + (size_t)change, memory_order_relaxed);
}

/*
 * The largest possible number of completions: each operation, and the kick, has one at a time.
 * Later completions are queued behind those.
 */
static size_t most_completions(const memwait_loop_t *loop)
{
	return memwait_loop_pending(loop) + 1;
}

static bool ready_is_empty(const memwait_loop_t *loop)
{
	return loop->ready.next == &loop->ready;
}

static void list_init(struct memwait_op *list)
{
	list->next = list;
	list->previous = list;
}

static void list_add(struct memwait_op *list, struct memwait_op *op, enum memwait_op_state state)
{
	op->next = list;
	op->previous = list->previous;
	op->previous->next = op;
	list->previous = op;
	op_set_state(op, state);
}

/*
 * The caller must then set the operation's next state. Until it does, threads that do not lock the
 * loop see the operation as pending.
 */
static void list_remove(struct memwait_op *op)
{
	op->next->previous = op->previous;
	op->previous->next = op->next;
}

static void ready_add(memwait_loop_t *loop, struct memwait_op *op)
{
	list_add(&loop->ready, op, MEMWAIT_OP_READY);
}

static void queued_add(memwait_loop_t *loop, struct memwait_op *op)
{
	list_add(&loop->queued, op, MEMWAIT_OP_QUEUED);
}

/*
 * Returns true if the descriptor still belongs to this loop, that is, was neither closed nor
 * reused, not even for another loop. Checked before each use: if a wait were armed in another
 * context, this loop would not get its completion, and the other loop might read it after the
 * operation was freed.
 */
static bool loop_is_open(const memwait_loop_t *loop)
{
	struct memwait_owner owner = { .flags = MEMWAIT_OWNER_CONTEXT };

	if (!loop->id)
		return !memwait_device_probe(loop->fd);
	return !memwait_device_ioctl(loop->fd, MEMWAIT_IOC_OWNER, &owner) && owner.id == loop->id;
}

/* Returns -EBADF if the descriptor is no longer the loop's. */
static int loop_ioctl(const memwait_loop_t *loop, unsigned long command, void *argument)
{
	if (!loop_is_open(loop))
		return -EBADF;
	return memwait_device_error(memwait_device_ioctl(loop->fd, command, argument));
}

/* Counts a completion of a persistent operation. */
static void op_count(struct memwait_op *op, const struct memwait_completion *completion)
{
	if (__builtin_add_overflow(op->count, completion->count, &op->count))
		op->count = UINT32_MAX;
	op->armed = completion->flags & MEMWAIT_MORE;
}

/* Makes operations ready and clears @kicked. Returns the number of completions. */
static int loop_read(memwait_loop_t *loop)
{
	struct memwait_completion completions[BATCH];
	int saved = errno, err = 0;
	ssize_t size, n, i;

	if (!loop_is_open(loop))
		return -EBADF;
	do {
		size = read(loop->fd, completions, sizeof(completions));
	} while (size < 0 && errno == EINTR);
	if (size < 0)
		err = errno == EAGAIN ? 0 : -errno;
	errno = saved;
	if (size < 0)
		return err;

	n = size / (ssize_t)sizeof(completions[0]);
	for (i = 0; i < n; i++) {
		struct memwait_op *op = (struct memwait_op *)(uintptr_t)completions[i].user_data;

		/*
		 * The operation belongs to another loop, whose descriptor was closed, and whose
		 * descriptor number this loop now has. The other loop reports EBADF.
		 */
		if (op->loop != loop)
			continue;
		if (op == &loop->kick) {
			loop->kicked = false;
			continue;
		}
		op->outcome = completions[i].result;
		op->index = completions[i].index;
		if (op->kind->goes_on)
			op_count(op, &completions[i]);
		if (op_state(op) == MEMWAIT_OP_QUEUED) {
			list_remove(op);
			ready_add(loop, op);
		}
	}
	return (int)n;
}

/* True if the operation's waits can be MEMWAIT_OWNED. */
bool memwait_op_has_id(const struct memwait_op *op)
{
	return op->loop->id;
}

/*
 * Queues an operation of a locked loop; with MEMWAIT_GROUP, for @expected words in the array @word.
 * Returns MEMWAIT_PENDING (queued), MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT, MEMWAIT_OWNER_DIED (the
 * owner that @expected names is dead), or a negative error number.
 */
int memwait_op_arm(struct memwait_op *op, const volatile void *word, uint64_t expected,
		   uint32_t flags)
{
	struct memwait_async entry = { .user_data = (uintptr_t)op };
	struct memwait_wait_async batch = {
		.waits = (uintptr_t)&entry,
		.count = 1,
		.entry_size = sizeof(entry),
	};
	int ret;

	if (op->deadline.error)
		return -op->deadline.error;
	if (!memwait_op_has_id(op))
		flags &= ~(uint32_t)MEMWAIT_OWNED;
	if (flags & MEMWAIT_GROUP) {
		entry.any = (struct memwait_wait_any) {
			.waits = (uintptr_t)word,
			.count = (uint32_t)expected,
			.deadline = op->deadline.ns,
			.flags = flags | op->deadline.flags,
		};
	} else {
		entry.wait = (struct memwait_wait) {
			.addr = (uintptr_t)word,
			.expected = expected,
			.deadline = op->deadline.ns,
			.flags = flags | op->deadline.flags,
		};
	}
	ret = loop_ioctl(op->loop, MEMWAIT_IOC_WAIT_ASYNC, &batch);
	if (ret < 0)
		return ret;
	op->index = flags & MEMWAIT_GROUP ? entry.any.index : 0;
	if (entry.result == MEMWAIT_PENDING) {
		op->id = entry.id;
		op->armed = flags & MEMWAIT_PERSISTENT;
		queued_add(op->loop, op);
	}
	return entry.result;
}

static int loop_arm_kick(memwait_loop_t *loop)
{
	int ret = memwait_op_arm(&loop->kick, &loop->kick_word, 0,
				 MEMWAIT_SIZE_U32 | MEMWAIT_PRIVATE | MEMWAIT_PERSISTENT);

	return ret < 0 ? ret : 0;
}

/* Returns false if the descriptor is no longer the loop's. */
static bool loop_notify_kick(const memwait_loop_t *loop)
{
	struct memwait_notify notify = {
		.addr = (uintptr_t)&loop->kick_word,
		.count = 1,
		.flags = MEMWAIT_SIZE_U32 | MEMWAIT_PRIVATE,
	};

	return loop_ioctl(loop, MEMWAIT_IOC_NOTIFY, &notify) == 1;
}

/* Makes the descriptor readable. */
static void loop_kick(memwait_loop_t *loop)
{
	if (!loop->kicked)
		loop->kicked = loop_notify_kick(loop);
}

static uint32_t loop_stops(const memwait_loop_t *loop)
{
	/* acquire: a run that acts on a stop sees the work done before the stop */
	return (uint32_t)(atomic_load_explicit(&loop->runs_and_stops, memory_order_acquire) /
			  STOP);
}

/* All threads that are now asleep began their runs before the stops that were not seen yet. */
static void loop_see_stops(memwait_loop_t *loop, uint32_t stops)
{
	if (loop->stops_seen == stops)
		return;
	loop->stops_seen = stops;
	loop->leaving = loop->asleep;
}

/* Whether a thread other than @thread runs a callback of an idle operation. */
static bool is_called(const memwait_loop_t *loop, const struct memwait_op *op, pthread_t thread)
{
	const struct visit *visit;

	for (visit = loop->visits; visit; visit = visit->next) {
		if (visit->calls == op && !pthread_equal(visit->thread, thread))
			return true;
	}
	return false;
}

/* Whether a run has nothing to wait for. */
static bool visit_is_over(const struct visit *visit)
{
	if (!visit->until)
		return !memwait_loop_pending(visit->loop);
	return op_state(visit->until) == MEMWAIT_OP_IDLE &&
	       !is_called(visit->loop, visit->until, visit->thread);
}

/* Whether a run must wake up. @calls_back: the caller will run an idle operation's callback. */
static bool visit_must_wake(const struct visit *visit, bool calls_back)
{
	if (visit->until)
		return visit_is_over(visit) || op_state(visit->until) == MEMWAIT_OP_READY;
	return !calls_back && visit_is_over(visit);
}

static bool has_sleeper_to_wake(const memwait_loop_t *loop, bool calls_back)
{
	const struct visit *visit;

	for (visit = loop->asleep ? loop->visits : NULL; visit; visit = visit->next) {
		if (visit->asleep && visit_must_wake(visit, calls_back))
			return true;
	}
	return false;
}

/* Whether a kick is needed even if no operation is ready. */
static bool has_to_kick(const memwait_loop_t *loop)
{
	return loop->leaving || has_sleeper_to_wake(loop, false);
}

/*
 * Called before the lock is dropped. Kicks if a sleeping thread must leave, or if a sleeping thread
 * can run the callbacks of ready operations: the next callback in this thread may take a long time,
 * or wait for these operations.
 */
static void loop_heed_stops(memwait_loop_t *loop)
{
	loop_see_stops(loop, loop_stops(loop));
	if (loop->leaving || (loop->asleep && !ready_is_empty(loop)) ||
	    has_sleeper_to_wake(loop, true))
		loop_kick(loop);
}

/*
 * Like loop_heed_stops(), but also kicks if operations are ready, or if nothing is pending and
 * threads sleep until then.
 */
static void loop_settle(memwait_loop_t *loop)
{
	loop_heed_stops(loop);
	if (!ready_is_empty(loop) || has_to_kick(loop))
		loop_kick(loop);
}

static bool visit_is_stopped(const struct visit *visit)
{
	if (!visit->is_run || visit->stops == loop_stops(visit->loop))
		return false;
	memwait_tsan_acquire(visit->loop);
	return true;
}

/* Returns false if an earlier stop was recorded for this run. */
static bool run_begin(struct visit *visit)
{
	memwait_loop_t *loop = visit->loop;
	/* relaxed: only the compare-and-swap counts */
	uint64_t was = atomic_load_explicit(&loop->runs_and_stops, memory_order_relaxed), next;

	do {
		next = (was & ~STOPPED) + RUN;
		/* acquire: see loop_stops() */
	} while (!atomic_compare_exchange_weak_explicit(&loop->runs_and_stops, &was, next,
							memory_order_acquire,
							memory_order_relaxed));
	visit->is_run = true;
	visit->stops = (uint32_t)(next / STOP);
	/* Earlier stops are not for this run. */
	loop_see_stops(loop, visit->stops);
	return !(was & STOPPED);
}

static void visit_add(struct visit *visit)
{
	visit->next = visit->loop->visits;
	visit->loop->visits = visit;
}

static void visit_begin(struct visit *visit)
{
	memwait_loop_t *loop = visit->loop;

	visit->state = loop_lock(loop);
	visit_add(visit);
}

static void visit_remove(struct visit *visit)
{
	struct visit **link = &visit->loop->visits;

	while (*link != visit)
		link = &(*link)->next;
	*link = visit->next;
}

static bool is_elsewhere(const struct visit *visit)
{
	return !pthread_equal(visit->thread, pthread_self());
}

/* The visit that runs the callback of a CALLED operation. */
static struct visit *visit_of(const memwait_loop_t *loop, const struct memwait_op *op)
{
	struct visit *visit = loop->visits;

	while (visit->returns_to != op)
		visit = visit->next;
	return visit;
}

/*
 * Reads some of the completions that were available when the visit began to dispatch. Returns the
 * result of loop_read().
 */
static int visit_read(struct visit *visit)
{
	int n = loop_read(visit->loop);

	visit->unread = n < SURELY_ALL || (size_t)n > visit->unread ? 0 :
							visit->unread - (size_t)n;
	return n;
}

/*
 * Reads the last completion of a persistent operation whose wait the kernel has cancelled, or had
 * already ended. If there is such a completion, it is among the first most_completions(). Only a
 * read that returns nothing shows that there is none: a signal may have ended a read that returns
 * something.
 */
static void read_rest(memwait_loop_t *loop, const struct memwait_op *op, bool cancelled)
{
	size_t most = most_completions(loop), read = 0;
	int n;

	while (op->armed) {
		n = loop_read(loop);
		if (n <= 0)
			return;
		read += (size_t)n;
		if (cancelled && read >= most)
			return;
	}
}

/*
 * Ends the wait of a pending operation. If the wait had already ended, the operation is ready
 * afterwards. Returns 0, or the error that a seccomp filter returned if the wait is still armed.
 */
static int op_disarm(memwait_loop_t *loop, struct memwait_op *op)
{
	struct memwait_cancel cancel = { .id = op->id };
	int ret;

	if (op->kind->goes_on ? !op->armed : op_state(op) != MEMWAIT_OP_QUEUED)
		return 0;
	ret = loop_ioctl(loop, MEMWAIT_IOC_CANCEL, &cancel);
	if (ret && ret != -ENOENT)
		return ret == -EBADF ? 0 : ret;
	if (op->kind->goes_on) {
		read_rest(loop, op, !ret);
		return 0;
	}
	/*
	 * The wait has ended: read until its completion has been read. Other operations become
	 * ready too.
	 */
	while (ret == -ENOENT && op_state(op) == MEMWAIT_OP_QUEUED) {
		if (loop_read(loop) <= 0)
			break;
	}
	return 0;
}

/* After op_disarm(). */
static void op_take_back(struct memwait_op *op)
{
	int outcome = MEMWAIT_OP_TAKEN_BACK;

	if (op_state(op) == MEMWAIT_OP_READY)
		outcome = op->outcome;
	if (op_state(op) != MEMWAIT_OP_CALLED)
		list_remove(op);
	if (op->kind->undo)
		op->kind->undo(op, outcome);
	if (op_state(op) != MEMWAIT_OP_CALLED)
		op_set_state(op, MEMWAIT_OP_IDLE);
}

static void visit_end(struct visit *visit)
{
	memwait_loop_t *loop = visit->loop;

	if (visit->process != memwait_process_number())
		return;
	/* For threads that poll for edges, see the top of this file. */
	while (visit->unread)
		visit_read(visit);
	visit_remove(visit);
	/* relaxed: a stop that counts this run only makes it return */
	if (visit->is_run)
		atomic_fetch_sub_explicit(&loop->runs_and_stops, RUN, memory_order_relaxed);
	loop_settle(loop);
	loop_unlock(loop, visit->state);
}

/*
 * The loop is unlocked from visit_leave() to visit_return(). In a child process visit_return()
 * returns false and leaves the loop unlocked.
 */
static void visit_leave(struct visit *visit, bool to_sleep)
{
	memwait_loop_t *loop = visit->loop;

	visit->asleep = to_sleep;
	loop->asleep += to_sleep;
	if (to_sleep)
		loop_settle(loop);
	else
		loop_heed_stops(loop);
	loop_unlock(loop, visit->state);
}

/*
 * After a callback of a persistent operation: notifies that have arrived in the meantime make it
 * ready again.
 */
static void op_return(memwait_loop_t *loop, struct memwait_op *op)
{
	if (op->cancelled) {
		op_set_state(op, MEMWAIT_OP_IDLE);
		count_pending(loop, -1);
	} else if (op->count || !op->armed) {
		ready_add(loop, op);
	} else {
		queued_add(loop, op);
	}
}

static bool visit_return(struct visit *visit)
{
	memwait_loop_t *loop = visit->loop;

	if (visit->process != memwait_process_number())
		return false;
	visit->state = loop_lock(loop);
	if (visit->returns_to)
		op_return(loop, visit->returns_to);
	visit->returns_to = NULL;
	visit->calls = NULL;
	if (visit->asleep) {
		loop_see_stops(loop, loop_stops(loop));
		loop->asleep--;
		loop->leaving -= visit->stops != loop->stops_seen;
	}
	visit->asleep = false;
	return true;
}

static void visit_cancelled(void *argument)
{
	if (visit_return(argument))
		visit_end(argument);
}

/*
 * Binds the context and gets its owner id. If the process dies, the kernel ends the context's
 * waits, even if there are copies of the descriptor, and reports the death by the id. 32-bit
 * kernels have no ids.
 */
static int loop_get_id(memwait_loop_t *loop)
{
	struct memwait_owner owner = { .flags = MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND };
	int ret = loop_ioctl(loop, MEMWAIT_IOC_OWNER, &owner);

	loop->id = ret ? 0 : owner.id;
	return ret == -EOPNOTSUPP ? 0 : ret;
}

/*
 * Tries to cancel a wait that does not exist: if a seccomp filter refused cancels, the kernel could
 * later complete waits of freed operations.
 */
static int loop_may_cancel(memwait_loop_t *loop)
{
	struct memwait_cancel cancel = { 0 };
	int ret = loop_ioctl(loop, MEMWAIT_IOC_CANCEL, &cancel);

	return ret == -ENOENT ? 0 : ret;
}

int memwait_loop_new(memwait_loop_t **loop, unsigned int flags)
{
	memwait_loop_t *new;
	int err;

	if (!loop || flags)
		return -EINVAL;
	err = memwait_need_device();
	if (err)
		return -err;
	new = calloc(1, sizeof(*new));
	if (!new)
		return -ENOMEM;
	new->fd = memwait_device_open(O_NONBLOCK);
	if (new->fd < 0) {
		err = new->fd;
		free(new);
		return err;
	}
	new->process = memwait_process_number();
	list_init(&new->queued);
	list_init(&new->ready);
	new->kick.loop = new;
	new->kick.deadline = memwait_never;
	pthread_mutex_init(&new->lock, NULL);
	err = loop_get_id(new);
	if (!err)
		err = loop_may_cancel(new);
	if (!err)
		err = loop_arm_kick(new);
	if (err) {
		memwait_loop_close(new);
		return err;
	}
	*loop = new;
	return 0;
}

int memwait_loop_fd(const memwait_loop_t *loop)
{
	return loop ? loop->fd : -EINVAL;
}

size_t memwait_loop_pending(const memwait_loop_t *loop)
{
	/* relaxed: may be stale */
	return loop ? atomic_load_explicit(&loop->pending, memory_order_relaxed) : 0;
}

void memwait_call_back(const struct memwait_call *call)
{
	if (call->callback)
		call->callback(call->op, call->result, call->data);
}

/* Runs the callback. Returns the result of visit_return(). */
static bool visit_call(struct visit *visit, struct memwait_op *op, int result)
{
	void (*end)(const struct memwait_call *call) = op->kind->end ? op->kind->end :
								       memwait_call_back;
	struct memwait_call call = {
		.callback = op->callback,
		.op = to_public(op),
		.data = op->data,
		.object = op->object,
		.result = result,
	};

	visit->calls = op;
	visit_leave(visit, false);
	end(&call);
	return visit_return(visit);
}

static int dispatch(struct visit *visit, unsigned int most)
{
	memwait_loop_t *loop = visit->loop;
	int ran = 0, got = 0, result;
	struct memwait_op *op;

	visit->unread = most_completions(loop);
	while ((unsigned int)ran < most && ran < INT_MAX && !visit_is_stopped(visit) &&
	       !(visit->until && visit_is_over(visit))) {
		if (ready_is_empty(loop)) {
			if (!visit->unread)
				break;
			got = visit_read(visit);
			continue;
		}
		op = loop->ready.next;
		list_remove(op);
		result = op->kind->step(op, op->outcome);
		if (result == MEMWAIT_OP_WAITS)
			continue;
		if (op->kind->goes_on && result == MEMWAIT_OK) {
			visit->returns_to = op;
			op_set_state(op, MEMWAIT_OP_CALLED);
		} else {
			op->outcome = result;
			op_set_state(op, MEMWAIT_OP_IDLE);
			count_pending(loop, -1);
		}
		if (!visit_call(visit, op, result))
			return -EPERM;
		ran++;
	}
	return got < 0 && !ran ? got : ran;
}

/* Sleeps until there is something to read, at most @ns. Returns 0 or a negative error number. */
static int sleep_in_poll(struct visit *visit, bool beside_kick, uint64_t ns)
{
	const bool realtime = visit->deadline.flags & MEMWAIT_CLOCK_REALTIME;
	const uint64_t second = 1000000000;
	const uint64_t most = beside_kick ? BESIDE_KICK : realtime ? CLOCK_LOOK : MEMWAIT_FOREVER;
	struct pollfd pollfd = { .fd = visit->loop->fd, .events = POLLIN };
	struct timespec time;
	int saved = errno, ret;

	ns = ns < most ? ns : most;
	time.tv_sec = (time_t)(ns / second);
	time.tv_nsec = (long)(ns % second);
	ret = ppoll(&pollfd, !beside_kick, ns == MEMWAIT_FOREVER ? NULL : &time, NULL) < 0 ?
	      -errno : 0;
	errno = saved;
	return ret;
}

static int run(struct visit *visit)
{
	memwait_loop_t *loop = visit->loop;
	bool beside_kick = false, is_late = false;
	uint64_t left;
	int ret;

	/* Return 0 immediately, and leave a stop to a later wait, which can return -EINTR. */
	if (visit->until && visit_is_over(visit))
		return 0;
	if (!run_begin(visit)) {
		memwait_tsan_acquire(loop);
		return 0;
	}
	/* A reused descriptor may never become readable. */
	if (!loop_is_open(loop))
		return -EBADF;
	while (!visit_is_stopped(visit) && !visit_is_over(visit)) {
		if (is_late)
			return visit->deadline.error ? -visit->deadline.error : MEMWAIT_TIMED_OUT;
		/*
		 * A run that is late still runs the callbacks of operations that had completed by
		 * its deadline.
		 */
		left = memwait_deadline_left(&visit->deadline);
		is_late = !left;
		visit_leave(visit, !is_late);
		/*
		 * This run counts as asleep even if it does not poll: it will find the kick when it
		 * looks again.
		 */
		ret = sleep_in_poll(visit, beside_kick, left);
		if (!visit_return(visit))
			return -EPERM;
		/*
		 * Dispatch only the operations that have already completed, even if other threads
		 * read later completions: the deadline must be checked.
		 */
		if (!ret || ret == -EINTR)
			ret = dispatch(visit, (unsigned int)most_completions(loop));
		if (ret < 0)
			return ret;
		beside_kick = !ret && has_to_kick(loop);
	}
	return 0;
}

/* Returns the result of the operation for which a run has waited. */
static int visit_result(const struct visit *visit, int *result)
{
	if (!visit_is_over(visit))
		return -EINTR;
	if (visit->until->cancelled)
		return -ECANCELED;
	if (result)
		*result = visit->until->outcome;
	return 0;
}

/* @most: maximum number of callbacks, unless @is_run. */
static int visit_make(memwait_loop_t *loop, bool is_run, unsigned int most,
		      const struct memwait_deadline *deadline, const struct memwait_op *until,
		      int *result)
{
	struct visit visit = {
		.loop = loop,
		.until = until,
		.deadline = *deadline,
		.process = memwait_process_number(),
		.thread = pthread_self(),
	};
	int ret;

	if (!loop)
		return -EINVAL;
	if (loop->process != visit.process)
		return -EPERM;
	pthread_cleanup_push(visit_cancelled, &visit);
	visit_begin(&visit);
	ret = is_run ? run(&visit) : dispatch(&visit, most);
	if (until && !ret)
		ret = visit_result(&visit, result);
	visit_end(&visit);
	pthread_cleanup_pop(0);
	return ret;
}

int memwait_loop_dispatch(memwait_loop_t *loop, unsigned int most)
{
	return visit_make(loop, false, most, &memwait_never, NULL, NULL);
}

int memwait_loop_run(memwait_loop_t *loop, const struct timespec *timeout, unsigned int flags)
{
	struct memwait_deadline deadline;
	int err = flags & ~(unsigned int)(MEMWAIT_CLOCK_REALTIME | MEMWAIT_RELATIVE) ? EINVAL :
		  memwait_deadline_by(&deadline, timeout, flags);

	return err ? -err : visit_make(loop, true, 0, &deadline, NULL, NULL);
}

int memwait_op_wait(memwait_op_t *op, int *result)
{
	if (!op || !to_op(op)->kind)
		return -EINVAL;
	return visit_make(to_op(op)->loop, true, 0, &memwait_never, to_op(op), result);
}

int memwait_loop_stop(memwait_loop_t *loop)
{
	uint64_t was, next;

	if (!loop)
		return -EINVAL;
	if (loop->process != memwait_process_number())
		return -EPERM;
	memwait_tsan_release(loop);
	/* relaxed: only the compare-and-swap counts */
	was = atomic_load_explicit(&loop->runs_and_stops, memory_order_relaxed);
	do {
		next = was & RUNS ? was + STOP : was | STOPPED;
		/* release: pairs with loop_stops() and run_begin() */
	} while (!atomic_compare_exchange_weak_explicit(&loop->runs_and_stops, &was, next,
							memory_order_release,
							memory_order_relaxed));
	if (was & RUNS)
		loop_notify_kick(loop);
	return 0;
}

int memwait_op_init(memwait_op_t *op, memwait_loop_t *loop, memwait_callback_t callback,
		    void *data)
{
	if (!op || !loop)
		return -EINVAL;
	memset(op, 0, sizeof(*op));
	to_op(op)->loop = loop;
	to_op(op)->callback = callback;
	to_op(op)->data = data;
	return 0;
}

int memwait_op_pending(const memwait_op_t *op)
{
	/*
	 * acquire: pairs with op_set_state(): earlier callbacks of a watch, and work before a
	 * cancel
	 */
	if (!op)
		return false;
	if (atomic_load_explicit(&to_op(op)->state, memory_order_acquire) != MEMWAIT_OP_IDLE)
		return true;
	memwait_tsan_acquire(op);
	return false;
}

unsigned int memwait_op_index(const memwait_op_t *op)
{
	return op ? to_op(op)->index : 0;
}

unsigned int memwait_op_count(const memwait_op_t *op)
{
	return op ? to_op(op)->told : 0;
}

/* Checks that an operation can begin. Locks its loop until memwait_op_start(). */
int memwait_op_take(memwait_op_t *public_op, struct memwait_op **op)
{
	memwait_loop_t *loop;
	int err;

	if (!public_op || !to_op(public_op)->loop)
		return EINVAL;
	loop = to_op(public_op)->loop;
	if (loop->process != memwait_process_number())
		return EPERM;
	err = memwait_need_device();
	if (err)
		return err;
	pthread_mutex_lock(&loop->lock);
	if (op_state(to_op(public_op)) != MEMWAIT_OP_IDLE) {
		pthread_mutex_unlock(&loop->lock);
		return EBUSY;
	}
	*op = to_op(public_op);
	(*op)->process = loop->process;
	(*op)->phase = 0;
	(*op)->index = 0;
	(*op)->count = 0;
	(*op)->told = 0;
	(*op)->cancelled = false;
	(*op)->turn = (struct memwait_turn){ 0 };
	return 0;
}

/*
 * Calls back immediately, like dispatch(): other threads can cancel the operation or wait for it.
 */
static void call_at_once(struct memwait_op *op, int result)
{
	struct visit visit = {
		.loop = op->loop,
		.process = memwait_process_number(),
		.thread = pthread_self(),
	};

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &visit.state);
	pthread_cleanup_push(visit_cancelled, &visit);
	visit_add(&visit);
	if (visit_call(&visit, op, result))
		visit_end(&visit);
	pthread_cleanup_pop(0);
}

/* Runs the first step. Returns EINPROGRESS or the operation's result. */
int memwait_op_start(struct memwait_op *op)
{
	memwait_loop_t *loop = op->loop;
	int result = op->kind->step(op, MEMWAIT_OP_BEGIN);

	if (result != MEMWAIT_OP_WAITS) {
		op->outcome = result;
		if (op->kind->end && memwait_has_locked(result)) {
			call_at_once(op, result);
			return result;
		}
	} else {
		count_pending(loop, 1);
		result = EINPROGRESS;
	}
	pthread_mutex_unlock(&loop->lock);
	return result;
}

/* Common part of memwait_*_async(). EINVAL: @object is NULL. */
int memwait_op_begin(memwait_op_t *public_op, const struct memwait_op_kind *kind, void *object,
		     void *with, const struct memwait_deadline *deadline)
{
	struct memwait_op *op;
	int err = object ? memwait_op_take(public_op, &op) : EINVAL;

	if (err)
		return err;
	op->kind = kind;
	op->object = object;
	op->with = with;
	op->deadline = *deadline;
	return memwait_op_start(op);
}

/* Common part of memwait_*_clock*_async(). */
int memwait_op_begin_until(memwait_op_t *public_op, const struct memwait_op_kind *kind,
			   void *object, void *with, clockid_t clock,
			   const struct timespec *time)
{
	struct memwait_deadline deadline;
	int err = memwait_deadline_set(&deadline, clock, time);

	return err ? err : memwait_op_begin(public_op, kind, object, with, &deadline);
}

/* Returns the result of memwait_op_cancel(). */
static int op_cancel(memwait_loop_t *loop, struct memwait_op *op)
{
	struct visit *visit;
	int ret;

	if (op_state(op) == MEMWAIT_OP_IDLE)
		return is_called(loop, op, pthread_self()) ? -EINPROGRESS : -ENOENT;
	if (!op->cancelled) {
		ret = op_disarm(loop, op);
		if (ret)
			return ret;
		op_take_back(op);
	}
	op->cancelled = true;
	if (op_state(op) == MEMWAIT_OP_CALLED) {
		visit = visit_of(loop, op);
		if (is_elsewhere(visit))
			return -EINPROGRESS;
		/* The callback may free it now. */
		visit->returns_to = NULL;
		visit->calls = NULL;
		op_set_state(op, MEMWAIT_OP_IDLE);
	}
	count_pending(loop, -1);
	return 0;
}

int memwait_op_cancel(memwait_op_t *public_op)
{
	struct memwait_op *op = to_op(public_op);
	memwait_loop_t *loop;
	int state, ret;

	if (!op || !op->loop)
		return -EINVAL;
	loop = op->loop;
	if (loop->process != memwait_process_number())
		return -EPERM;

	state = loop_lock(loop);
	ret = op_cancel(loop, op);
	loop_settle(loop);
	loop_unlock(loop, state);
	return ret;
}

/* Uses the loop only if an item must be sent again: otherwise the loop may have been closed. */
int memwait_op_undo(memwait_op_t *public_op)
{
	struct memwait_op *op = to_op(public_op);
	int ret;

	if (!op || !op->kind)
		return -EINVAL;
	if (op->process != memwait_process_number())
		return -EPERM;
	if (memwait_op_pending(public_op))
		return -EBUSY;
	if (op->cancelled || !op->kind->give_back)
		return 0;
	op->cancelled = true;
	ret = op->kind->give_back(op);
	/* Another thread owns the lock, and can still undo the operation. */
	if (ret == EPERM)
		op->cancelled = false;
	return ret > 0 ? -ret : ret;
}

/* Returns the operation that close cancels next: see the top of this file. */
static struct memwait_op *next_pending(memwait_loop_t *loop)
{
	struct memwait_op *op = loop->queued.next;

	if (op == &loop->kick)
		op = op->next;
	if (op == &loop->queued)
		op = loop->ready.next;
	return op == &loop->ready ? NULL : op;
}

/* Called last. A kick that no thread has read would be passed on. */
static void end_kick(memwait_loop_t *loop)
{
	struct memwait_cancel cancel = { .id = loop->kick.id };

	loop_ioctl(loop, MEMWAIT_IOC_CANCEL, &cancel);
	while (loop_read(loop) > 0)
		;
}

/* Returns false if a thread is within a call. */
static bool end_pending(memwait_loop_t *loop)
{
	struct memwait_op *op;

	if (loop->visits)
		return false;
	while ((op = next_pending(loop))) {
		op_disarm(loop, op);
		op_take_back(op);
		count_pending(loop, -1);
	}
	MEMWAIT_INVARIANT(!memwait_loop_pending(loop));
	end_kick(loop);
	return true;
}

int memwait_loop_close(memwait_loop_t *loop)
{
	bool ended;
	int state;

	if (!loop)
		return 0;
	if (loop->process == memwait_process_number()) {
		state = loop_lock(loop);
		ended = end_pending(loop);
		loop_unlock(loop, state);
		if (!ended)
			return -EBUSY;
		pthread_mutex_destroy(&loop->lock);
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	if (loop_is_open(loop))
		close(loop->fd);
	pthread_setcancelstate(state, NULL);
	free(loop);
	return 0;
}
