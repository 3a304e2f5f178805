// SPDX-License-Identifier: GPL-2.0
/* R32: a watch is an operation that notifies do not end. */
#include "userlib_test.h"

#include <sys/time.h>

#define ROUNDS	SOME_OF(1000)

/* A watch, the actions of its callback, and the results that the callback has received. */
struct watcher {
	memwait_op_t op;
	memwait_loop_t *loop;
	void (*act)(struct watcher *watcher);
	void *data;
	int calls, over;	/* number of results MEMWAIT_OK and MEMWAIT_TIMED_OUT */
	unsigned int count;	/* sum of all counts */
	int inside, crowded;
	int ret;
};

static void watched(memwait_op_t *op, int result, void *data)
{
	struct watcher *watcher = data;

	if (__atomic_fetch_add(&watcher->inside, 1, __ATOMIC_SEQ_CST))
		watcher->crowded++;
	__atomic_add_fetch(&watcher->count, memwait_op_count(op), __ATOMIC_SEQ_CST);
	if (result == MEMWAIT_TIMED_OUT && !memwait_op_count(op))
		watcher->over++;
	else if (result == MEMWAIT_OK && memwait_op_count(op))
		__atomic_add_fetch(&watcher->calls, 1, __ATOMIC_SEQ_CST);
	else
		abort();
	__atomic_fetch_sub(&watcher->inside, 1, __ATOMIC_SEQ_CST);
	if (watcher->act)
		watcher->act(watcher);
}

static int watch(struct watcher *watcher, memwait_loop_t *loop, const volatile void *word)
{
	int err = memwait_op_init(&watcher->op, loop, watched, watcher);

	watcher->loop = loop;
	return err ? err : memwait_watch32(word, 0, NULL, 0, &watcher->op);
}

static bool is_readable(memwait_loop_t *loop)
{
	return mw_readable(memwait_loop_fd(loop));
}

USERLIB_TEST(R32_a_watch_continues_and_counts)
{
	struct watcher watcher = { 0 };
	uint32_t *word = self->shared;
	int i, n;

	ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, self->loop, word));
	EXPECT_EQ(-EBUSY, memwait_watch32(word, 0, NULL, 0, &watcher.op));
	EXPECT_EQ(-EBUSY, memwait_wait32_async(word, 0, NULL, 0, &watcher.op));
	for (n = 1; n < 5; n++) {
		EXPECT_FALSE(is_readable(self->loop));
		EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		watcher.count = 0;
		/* A watch compares the word only once, when it begins. */
		*word = n;
		for (i = 0; i < n; i++)
			EXPECT_EQ(1, memwait_notify(word, 1, 0));
		EXPECT_TRUE(is_readable(self->loop));
		EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_EQ(n, watcher.calls);
		EXPECT_EQ(n, watcher.count);
		EXPECT_EQ(1, memwait_op_pending(&watcher.op));
		EXPECT_EQ(1, memwait_loop_pending(self->loop));
		EXPECT_EQ(1, memwait_waiters(word, 0));
	}
	EXPECT_EQ(0, memwait_op_cancel(&watcher.op));
	EXPECT_EQ(-ENOENT, memwait_op_cancel(&watcher.op));
	EXPECT_EQ(0, memwait_op_pending(&watcher.op));
	EXPECT_EQ(0, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
}

USERLIB_TEST(R3_words_of_each_size)
{
	struct watcher watchers[4] = { 0 };
	uint64_t *word = self->shared;
	bool wide = sizeof(void *) == 8;
	int i;

	*word = 0x8877665544332211;
	for (i = 0; i < 4; i++)
		memwait_op_init(&watchers[i].op, self->loop, watched, &watchers[i]);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_watch8(word, 0, NULL, 0, &watchers[0].op));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_watch16(word, 0, NULL, 0, &watchers[1].op));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_watch32(word, 0, NULL, 0, &watchers[2].op));
	EXPECT_EQ(MEMWAIT_PENDING, memwait_watch8(word, *(uint8_t *)word, NULL, 0,
						  &watchers[0].op));
	EXPECT_EQ(MEMWAIT_PENDING, memwait_watch16(word, *(uint16_t *)word, NULL, 0,
						   &watchers[1].op));
	EXPECT_EQ(MEMWAIT_PENDING, memwait_watch32(word, *(uint32_t *)word, NULL, 0,
						   &watchers[2].op));
	if (wide) {
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_watch64(word, 0, NULL, 0, &watchers[3].op));
		EXPECT_EQ(MEMWAIT_PENDING, memwait_watch64(word, *word, NULL, 0,
							   &watchers[3].op));
	}
	EXPECT_EQ(3 + wide, memwait_notify(word, MEMWAIT_ALL, 0));
	EXPECT_EQ(3 + wide, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	for (i = 0; i < 3 + wide; i++) {
		EXPECT_EQ(1, watchers[i].count);
		EXPECT_EQ(0, memwait_op_cancel(&watchers[i].op));
	}
}

USERLIB_TEST(R2_bad_input)
{
	const struct timespec past = { .tv_nsec = 1 };
	struct watcher watcher = { 0 };
	uint32_t *word = self->shared;
	memwait_op_t zeroed = { 0 };

	EXPECT_EQ(0, memwait_op_count(NULL));
	EXPECT_EQ(-EINVAL, memwait_watch32(word, 0, NULL, 0, NULL));
	EXPECT_EQ(-EINVAL, memwait_watch32(word, 0, NULL, 0, &zeroed));
	memwait_op_init(&watcher.op, self->loop, watched, &watcher);
	EXPECT_EQ(0, memwait_op_count(&watcher.op));
	EXPECT_EQ(-EINVAL, memwait_watch32(word, 0, NULL, MEMWAIT_OWNED, &watcher.op));
	EXPECT_EQ(-EINVAL, memwait_watch32(word, 0, NULL, MEMWAIT_PERSISTENT, &watcher.op));
	EXPECT_EQ(-EINVAL, memwait_watch32((char *)word + 2, 0, NULL, 0, &watcher.op));
	EXPECT_EQ(-EFAULT, memwait_watch32(NULL, 0, NULL, 0, &watcher.op));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_watch32(word, 1, &past, 0, &watcher.op));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_watch32(word, 0, &past, 0, &watcher.op));
	EXPECT_EQ(0, memwait_op_pending(&watcher.op));
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
}

/*
 * R12: watches, a one-shot operation and a thread share one FIFO queue; a notified watch moves to
 * its end.
 */
USERLIB_TEST(R12_a_watch_goes_to_the_end_of_its_queue)
{
	struct watcher first = { 0 }, last = { 0 };
	struct counted_op counted = counted_by(&counted, self->loop);
	uint32_t *word = self->shared;
	struct waiter thread = {
		.fd = self->fd, .addr = word, .deadline = MEMWAIT_FOREVER, .flags = U32_SIZE,
	};

	ASSERT_EQ(MEMWAIT_PENDING, watch(&first, self->loop, word));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &counted.op));
	waiter_start(&thread);
	ASSERT_EQ(MEMWAIT_PENDING, watch(&last, self->loop, word));

	EXPECT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, first.count);
	EXPECT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, counted.calls);
	EXPECT_EQ(0, memwait_op_count(&counted.op));
	EXPECT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&thread));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, last.count);
	/* One notify counts each watch once. */
	EXPECT_EQ(2, memwait_notify(word, MEMWAIT_ALL, 0));
	EXPECT_EQ(2, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(2, first.count);
	EXPECT_EQ(2, last.count);
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(0, memwait_op_cancel(&last.op));
}

/*
 * Sleeps until the deadline has passed, and dispatches within the callback. This dispatch reads the
 * timeout.
 */
static void outlast(struct watcher *watcher)
{
	watcher->act = NULL;
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, watcher->data, NULL);
	if (memwait_loop_dispatch(watcher->loop, MEMWAIT_ALL))
		abort();
}

/*
 * Notifies are reported before the timeout: they are dispatched before the deadline, after it, or
 * while it passes.
 */
USERLIB_TEST(R4_a_deadline_is_the_last_callback)
{
	uint32_t *word = self->shared;
	struct watcher watcher;
	struct timespec timeout;
	long ms = 20;
	int how;

	for (how = 0; how < 3; how++) {
		/* A slow machine may notify too late, or arm the watch after the deadline. */
		do {
			watcher = (struct watcher){
				.loop = self->loop, .act = how == 2 ? outlast : NULL,
				.data = &timeout,
			};
			memwait_op_init(&watcher.op, self->loop, watched, &watcher);
			do {
				timeout = in_time(CLOCK_MONOTONIC, ms *= 2);
			} while (memwait_watch32(word, 0, &timeout, 0, &watcher.op) !=
				 MEMWAIT_PENDING);
			watcher.ret = memwait_notify(word, 1, 0) + memwait_notify(word, 1, 0);
			if (how == 1)
				clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &timeout, NULL);
			ASSERT_EQ(0, dispatch_until(self->loop, &watcher.over, 1));
		} while (watcher.ret != 2);
		EXPECT_EQ(1, watcher.over);
		EXPECT_EQ(1, watcher.calls);
		EXPECT_EQ(2, watcher.count);
		EXPECT_EQ(0, memwait_op_count(&watcher.op));
		EXPECT_EQ(0, memwait_loop_pending(self->loop));
		EXPECT_EQ(-ENOENT, memwait_op_cancel(&watcher.op));
		EXPECT_EQ(0, memwait_notify(word, 1, 0));
	}
}

static void cancel_and_free(struct watcher *watcher)
{
	int *ret = watcher->data;

	*ret = memwait_op_cancel(&watcher->op);
	memset(watcher, 0xa5, sizeof(*watcher));
	free(watcher);
}

/* A callback cancels and frees its own operation. The operation receives no further notify. */
USERLIB_TEST(R32_a_callback_may_cancel_and_free_its_operation)
{
	struct watcher *watcher = calloc(1, sizeof(*watcher)), next = { 0 };
	uint32_t *word = self->shared;
	int ret = -1;

	watcher->act = cancel_and_free;
	watcher->data = &ret;
	ASSERT_EQ(MEMWAIT_PENDING, watch(watcher, self->loop, word));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, ret);
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
	EXPECT_EQ(0, memwait_notify(word, 1, 0));

	watcher = calloc(1, sizeof(*watcher));
	watcher->act = cancel_and_free;
	watcher->data = &ret;
	ret = -1;
	ASSERT_EQ(MEMWAIT_PENDING, watch(watcher, self->loop, word));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(0, ret);
	ASSERT_EQ(MEMWAIT_PENDING, watch(&next, self->loop, word));
	EXPECT_EQ(0, memwait_op_cancel(&next.op));
}

static void begin_anew(struct watcher *watcher)
{
	watcher->act = NULL;
	watcher->ret = memwait_op_cancel(&watcher->op);
	if (watch(watcher, watcher->loop, watcher->data) != MEMWAIT_PENDING)
		abort();
}

USERLIB_TEST(R32_a_callback_may_begin_its_operation_again)
{
	uint32_t *word = self->shared;
	struct watcher watcher = { .act = begin_anew, .data = word + 1 };

	ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, self->loop, word));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, watcher.ret);
	EXPECT_EQ(1, memwait_loop_pending(self->loop));
	EXPECT_EQ(0, memwait_notify(word, 1, 0));
	ASSERT_EQ(1, memwait_notify(word + 1, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(2, watcher.calls);
	EXPECT_EQ(0, memwait_op_cancel(&watcher.op));
}

static void notify_and_dispatch(struct watcher *watcher)
{
	watcher->act = NULL;
	if (memwait_notify(watcher->data, 1, 0) != 1 || memwait_notify(watcher->data, 1, 0) != 1)
		abort();
	watcher->ret = memwait_loop_dispatch(watcher->loop, MEMWAIT_ALL);
	if (watcher->calls != 1)
		abort();
}

/*
 * A notify that comes while the callback runs causes one further call, after the callback has
 * returned.
 */
USERLIB_TEST(R32_a_callback_that_dispatches_is_not_called_again)
{
	uint32_t *word = self->shared;
	struct watcher watcher = { .act = notify_and_dispatch, .data = word };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(0);

	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, memwait_loop_fd(self->loop), &event));
	ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, self->loop, word));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	ASSERT_EQ(1, epoll_wait(epoll, &event, 1, 0));
	EXPECT_EQ(2, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, watcher.ret);
	EXPECT_EQ(2, watcher.calls);
	EXPECT_EQ(3, watcher.count);
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, memwait_op_cancel(&watcher.op));
	close(epoll);
}

#define MANY	200

/* R22, R29: notifies after a dispatch cause a new edge, and all watches are dispatched in turn. */
USERLIB_TEST(R22_each_edge_is_seen)
{
	struct watcher *watchers = calloc(MANY, sizeof(*watchers));
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(0), i, ret, round, total;
	uint32_t *word = self->shared;

	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, memwait_loop_fd(self->loop), &event));
	for (i = 0; i < MANY; i++)
		ASSERT_EQ(MEMWAIT_PENDING, watch(&watchers[i], self->loop, word));
	for (round = 1; round <= 5; round++) {
		EXPECT_EQ(0, epoll_wait(epoll, &event, 1, 0));
		ASSERT_EQ(MANY, memwait_notify(word, MEMWAIT_ALL, 0));
		for (total = 0; epoll_wait(epoll, &event, 1, 0) == 1; total += ret) {
			ret = memwait_loop_dispatch(self->loop, 64);
			ASSERT_LE(0, ret);
			ASSERT_GE(64, ret);
		}
		EXPECT_EQ(MANY, total);
		for (i = 0; i < MANY; i++)
			EXPECT_EQ(round, watchers[i].count);
		EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	}
	for (i = 0; i < MANY; i++)
		EXPECT_EQ(0, memwait_op_cancel(&watchers[i].op));
	EXPECT_FALSE(is_readable(self->loop));
	free(watchers);
	close(epoll);
}

#define MOST_ALARMS	1000

static int alarms;

/*
 * If handling the signal takes longer than the interval, the program makes no progress. In this
 * case the handler stops the timer.
 */
static void on_alarm(int signal)
{
	const struct itimerval never = { 0 };

	if (++alarms == MOST_ALARMS)
		setitimer(ITIMER_REAL, &never, NULL);
}

/*
 * L3: a signal ends a read(2) that has returned some completions. The library still reads the other
 * completions.
 */
USERLIB_TEST(L3_cancel_leaves_nothing_behind_when_signals_come)
{
	const struct itimerval often = { { 0, 40 }, { 0, 40 } }, never = { 0 };
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct watcher *watchers = calloc(MANY, sizeof(*watchers));
	struct watcher *last = &watchers[MANY - 1];
	uint32_t *words = self->shared;
	int round, i;

	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	for (round = 0; more_rounds(round, ROUNDS / 10); round++) {
		memset(watchers, 0, MANY * sizeof(*watchers));
		for (i = 0; i < MANY; i++) {
			ASSERT_EQ(MEMWAIT_PENDING, watch(&watchers[i], self->loop, &words[i]));
			ASSERT_EQ(1, memwait_notify(&words[i], 1, 0));
		}
		alarms = 0;
		ASSERT_EQ(0, setitimer(ITIMER_REAL, &often, NULL));
		EXPECT_EQ(0, memwait_op_cancel(&last->op));
		ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
		/* The last word gets no notify. */
		ASSERT_EQ(MEMWAIT_PENDING, watch(last, self->loop, &words[MANY - 1]));
		while (memwait_loop_dispatch(self->loop, MEMWAIT_ALL) > 0)
			;
		ASSERT_EQ(0, last->calls);
		ASSERT_EQ(0, last->over);
		for (i = 0; i < MANY; i++) {
			EXPECT_EQ(i < MANY - 1, watchers[i].count);
			EXPECT_EQ(0, memwait_op_cancel(&watchers[i].op));
		}
	}
	free(watchers);
}

ADAPTER(wait_on_word, void *arg, memwait_wait32(arg, 0, NULL, 0))

/*
 * L3: notifies that were counted but not passed to a callback go to the waiters behind the watch.
 * The completion may still be in the kernel (possibly behind many others) or may have been read.
 */
USERLIB_TEST(L3_cancel_passes_on_what_was_counted)
{
	struct counted_op *others = calloc(MANY, sizeof(*others));
	struct runner behind[3];
	uint32_t *word = self->shared, *other = word + 1;
	int how, i;

	for (how = 0; how < 3; how++) {
		struct watcher watcher = { 0 };
		int ready = how ? MANY : 0, ran = 0, ret;

		for (i = 0; i < ready; i++) {
			memwait_op_init(&others[i].op, self->loop, count_call, &others[i]);
			others[i].calls = 0;
			ASSERT_EQ(MEMWAIT_PENDING,
				  memwait_wait32_async(other, 0, NULL, 0, &others[i].op));
		}
		ASSERT_EQ(ready, memwait_notify(other, MEMWAIT_ALL, 0));
		ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, self->loop, word));
		for (i = 0; i < 3; i++)
			ASSERT_EQ(1, memwait_notify(word, 1, 0));
		/* This cancel reads all completions. After that the watch is ready. */
		if (how == 2)
			ASSERT_EQ(0, memwait_op_cancel(&others[--ready].op));
		for (i = 0; i < 3; i++) {
			runner_start(&behind[i], wait_on_word, word);
			await_waiters(self->fd, word, U32_SIZE, 2 + i);
		}
		ASSERT_EQ(0, memwait_op_cancel(&watcher.op));
		for (i = 0; i < 3; i++)
			EXPECT_EQ(MEMWAIT_OK, runner_join(&behind[i]));
		EXPECT_EQ(ready, memwait_loop_pending(self->loop));
		while ((ret = memwait_loop_dispatch(self->loop, MEMWAIT_ALL)) > 0)
			ran += ret;
		EXPECT_EQ(ready, ran);
		EXPECT_EQ(0, watcher.calls);
		EXPECT_EQ(0, memwait_waiters(word, 0));
	}
	free(others);
}

/*
 * L3, R32: each other waiter gets at most one notify, however many were counted, so that other
 * processes cannot prolong a cancel.
 */
USERLIB_TEST(L3_cancel_passes_one_notify_to_each_waiter)
{
	struct watcher watcher = { 0 }, behind = { 0 };
	uint32_t *word = self->shared;
	struct runner runner;
	int i;

	ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, self->loop, word));
	for (i = 0; i < 5; i++)
		ASSERT_EQ(1, memwait_notify(word, 1, 0));
	ASSERT_EQ(MEMWAIT_PENDING, watch(&behind, self->loop, word));
	runner_start(&runner, wait_on_word, word);
	await_waiters(self->fd, word, U32_SIZE, 3);
	EXPECT_EQ(0, memwait_op_cancel(&watcher.op));
	EXPECT_EQ(MEMWAIT_OK, runner_join(&runner));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, behind.count);
	EXPECT_EQ(0, memwait_op_cancel(&behind.op));
}

/* A callback that blocks its thread until it is released. */
struct held {
	int inside, go;
};

static void hold(struct watcher *watcher)
{
	struct held *held = watcher->data;

	__atomic_store_n(&held->inside, 1, __ATOMIC_RELEASE);
	spin_until(__atomic_load_n(&held->go, __ATOMIC_ACQUIRE));
}

static void await_held(struct held *held)
{
	spin_until(__atomic_load_n(&held->inside, __ATOMIC_ACQUIRE));
}

static void release_held(struct held *held)
{
	__atomic_store_n(&held->go, 1, __ATOMIC_RELEASE);
}

/* In shared memory, private waits and other waits for a word are in different queues. */
USERLIB_TEST(L3_cancel_of_a_private_watch_passes_its_notify_on)
{
	struct counted_op first = counted_by(&first, self->loop);
	struct counted_op second = counted_by(&second, self->loop);
	uint32_t *word = self->shared;

	ASSERT_EQ(MEMWAIT_PENDING, memwait_watch32(word, 0, NULL, MEMWAIT_PRIVATE, &first.op));
	ASSERT_EQ(1, memwait_notify(word, 1, MEMWAIT_PRIVATE));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, MEMWAIT_PRIVATE,
							&second.op));
	EXPECT_EQ(0, memwait_op_cancel(&first.op));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, second.calls);
}

USERLIB_TEST(R32_cancel_reports_a_callback_that_runs_in_another_thread)
{
	struct held held = { 0 };
	struct watcher watcher = { .act = hold, .data = &held };
	uint32_t *word = self->shared;
	struct runner runner, behind;

	ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, self->loop, word));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	runner_start(&runner, run_loop, self->loop);
	await_held(&held);
	/*
	 * A notify that comes while the callback runs reaches no callback, and is therefore passed
	 * on.
	 */
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, memwait_op_pending(&watcher.op));
	runner_start(&behind, wait_on_word, word);
	await_waiters(self->fd, word, U32_SIZE, 2);

	EXPECT_EQ(-EINPROGRESS, memwait_op_cancel(&watcher.op));
	EXPECT_EQ(MEMWAIT_OK, runner_join(&behind));
	EXPECT_EQ(0, memwait_waiters(word, 0));
	EXPECT_EQ(-EINPROGRESS, memwait_op_cancel(&watcher.op));
	EXPECT_EQ(1, memwait_op_pending(&watcher.op));
	EXPECT_EQ(-EBUSY, memwait_watch32(word, 0, NULL, 0, &watcher.op));
	EXPECT_EQ(1, memwait_loop_pending(self->loop));
	release_held(&held);
	/* No operation is pending any longer. */
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, memwait_op_pending(&watcher.op));
	EXPECT_EQ(-ENOENT, memwait_op_cancel(&watcher.op));
	EXPECT_EQ(1, watcher.calls);
	EXPECT_EQ(1, watcher.count);
}

struct held_op {
	memwait_op_t op;
	struct held held;
	int calls, own;
};

static void hold_once(memwait_op_t *op, int result, void *data)
{
	struct held_op *held_op = data;

	held_op->calls++;
	held_op->own = memwait_op_cancel(op);
	__atomic_store_n(&held_op->held.inside, 1, __ATOMIC_RELEASE);
	spin_until(__atomic_load_n(&held_op->held.go, __ATOMIC_ACQUIRE));
}

/* The same applies to an operation that is not a watch. */
USERLIB_TEST(R23_cancel_distinguishes_finished_and_running_callbacks)
{
	struct held_op held_op = { 0 };
	uint32_t *word = self->shared;
	struct runner runner;

	memwait_op_init(&held_op.op, self->loop, hold_once, &held_op);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &held_op.op));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	runner_start(&runner, run_loop, self->loop);
	await_held(&held_op.held);
	EXPECT_EQ(-ENOENT, held_op.own);
	EXPECT_EQ(0, memwait_op_pending(&held_op.op));
	EXPECT_EQ(-EINPROGRESS, memwait_op_cancel(&held_op.op));
	release_held(&held_op.held);
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(-ENOENT, memwait_op_cancel(&held_op.op));
	EXPECT_EQ(1, held_op.calls);
}

struct again {
	uint32_t *word;
	struct held held;
	int begun, own, calls;
};

static void begin_and_hold(memwait_op_t *op, int result, void *data)
{
	struct again *again = data;

	again->calls++;
	if (result == MEMWAIT_OK) {
		again->own = memwait_op_cancel(op);
		/* The library no longer uses the operation's memory. */
		memset(op, 0xa5, sizeof(*op));
		return;
	}
	again->begun = memwait_watch32(again->word, 0, NULL, 0, op);
	__atomic_store_n(&again->held.inside, 1, __ATOMIC_RELEASE);
	spin_until(__atomic_load_n(&again->held.go, __ATOMIC_ACQUIRE));
}

/*
 * The last callback has begun the operation again. An earlier callback is still running in another
 * thread.
 */
USERLIB_TEST(R32_a_callback_frees_its_operation_while_an_earlier_one_runs)
{
	struct timespec soon = { .tv_nsec = 1000000 };
	memwait_op_t op, freed;
	struct again again = { .word = self->shared };
	struct runner runner;

	memset(&freed, 0xa5, sizeof(freed));
	memwait_op_init(&op, self->loop, begin_and_hold, &again);
	while (memwait_watch32(again.word, 0, &soon, MEMWAIT_RELATIVE, &op) != MEMWAIT_PENDING)
		soon.tv_nsec += 1000000;
	runner_start(&runner, run_loop, self->loop);
	await_held(&again.held);
	EXPECT_EQ(MEMWAIT_PENDING, again.begun);
	ASSERT_EQ(1, memwait_notify(again.word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, again.own);
	EXPECT_EQ(0, memcmp(&op, &freed, sizeof(op)));
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
	release_held(&again.held);
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, memcmp(&op, &freed, sizeof(op)));
	EXPECT_EQ(2, again.calls);
}

static void cancel_outer(memwait_op_t *op, int result, void *data)
{
	struct watcher *outer = data;

	outer->ret = memwait_op_cancel(&outer->op);
	memset(&outer->op, 0xa5, sizeof(outer->op));
}

static void dispatch_within(struct watcher *watcher)
{
	if (memwait_notify(watcher->data, 1, 0) != 1)
		abort();
	if (memwait_loop_dispatch(watcher->loop, MEMWAIT_ALL) != 1)
		abort();
}

/* The cancelling thread itself runs the operation's callback further up the stack. */
USERLIB_TEST(R32_cancel_in_a_callback_that_runs_within_its_own)
{
	uint32_t *word = self->shared;
	struct watcher outer = { .act = dispatch_within, .data = word + 1, .ret = -1 };
	memwait_op_t inner, freed;

	memset(&freed, 0xa5, sizeof(freed));
	memwait_op_init(&inner, self->loop, cancel_outer, &outer);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word + 1, 0, NULL, 0, &inner));
	ASSERT_EQ(MEMWAIT_PENDING, watch(&outer, self->loop, word));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, outer.ret);
	EXPECT_EQ(0, memcmp(&outer.op, &freed, sizeof(freed)));
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
}

/*
 * The watch stays pending, so the run continues. The run ends when the callback of the other thread
 * returns.
 */
USERLIB_TEST(a_run_lasts_as_long_as_a_watch_is_pending)
{
	struct held held = { 0 };
	struct watcher watcher = { .act = hold, .data = &held };
	uint32_t *word = self->shared;
	struct runner runners[2];
	int i;

	ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, self->loop, word));
	for (i = 0; i < 2; i++) {
		runner_start(&runners[i], run_loop, self->loop);
		runner_await_asleep(&runners[i]);
	}
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	await_held(&held);
	EXPECT_EQ(-EINPROGRESS, memwait_op_cancel(&watcher.op));
	release_held(&held);
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
	EXPECT_EQ(0, memwait_op_pending(&watcher.op));

	watcher.act = NULL;
	ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, self->loop, word));
	runner_start(&runners[0], run_loop, self->loop);
	for (i = 2; i < 5; i++) {
		runner_await_asleep(&runners[0]);
		ASSERT_EQ(1, memwait_notify(word, 1, 0));
		spin_until(__atomic_load_n(&watcher.calls, __ATOMIC_SEQ_CST) >= i);
	}
	runner_await_asleep(&runners[0]);
	EXPECT_EQ(0, memwait_op_cancel(&watcher.op));
	EXPECT_EQ(0, runner_join(&runners[0]));
}

static void end_thread(struct watcher *watcher)
{
	watcher->act = NULL;
	if (watcher->data)
		watcher->ret = memwait_notify(watcher->data, 1, 0);
	pthread_exit(NULL);
}

/* L5: notifies that come while the callback runs are reported to another thread. */
USERLIB_TEST(L5_a_callback_may_end_its_thread)
{
	uint32_t *word = self->shared;
	struct runner runner;
	int more;

	for (more = 0; more < 2; more++) {
		struct watcher watcher = { .act = end_thread, .data = more ? word : NULL };

		ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, self->loop, word));
		ASSERT_EQ(1, memwait_notify(word, 1, 0));
		runner_start(&runner, run_loop, self->loop);
		pthread_join(runner.thread, NULL);
		EXPECT_FALSE(runner_is_done(&runner));
		EXPECT_EQ(more, watcher.ret);
		EXPECT_EQ(more, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		ASSERT_EQ(1, memwait_notify(word, 1, 0));
		EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_EQ(2 + more, watcher.count);
		EXPECT_EQ(0, memwait_op_cancel(&watcher.op));
	}
}

static void fork_in_callback(struct watcher *watcher)
{
	pid_t *child = watcher->data;

	watcher->act = NULL;
	*child = fork_child();
	if (!*child)
		watcher->ret = memwait_op_cancel(&watcher->op);
}

/* L1: the watch continues in the parent. */
USERLIB_TEST(L1_a_callback_may_fork)
{
	uint32_t *word = self->shared;
	pid_t child = -1;
	struct watcher watcher = { .act = fork_in_callback, .data = &child };
	int ret;

	ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, self->loop, word));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	ret = memwait_loop_dispatch(self->loop, MEMWAIT_ALL);
	if (!child)
		_exit(ret != -EPERM || watcher.ret != -EPERM || watcher.calls != 1 ||
		      memwait_loop_close(self->loop));
	EXPECT_EQ(1, ret);
	EXPECT_EQ(0, child_status(child));
	ASSERT_EQ(1, memwait_notify(word, 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(2, watcher.count);
	EXPECT_EQ(0, memwait_op_cancel(&watcher.op));
}

struct crowd {
	uint32_t *word;
	int over;		/* set at the end, for threads that notify */
	unsigned int woken;
};

static int notify_some(struct crowd *crowd, int i)
{
	int ret = memwait_notify(crowd->word, 1 + i % 3, 0);

	if (ret > 0)
		__atomic_add_fetch(&crowd->woken, ret, __ATOMIC_SEQ_CST);
	return ret;
}

static int notify_often(void *arg)
{
	int i, ret = 0;

	for (i = 0; i < ROUNDS && ret >= 0; i++)
		ret = notify_some(arg, i);
	return ret < 0 ? ret : 0;
}

static int notify_until_over(void *arg)
{
	struct crowd *crowd = arg;
	int i, ret = 0;

	for (i = 0; !__atomic_load_n(&crowd->over, __ATOMIC_ACQUIRE) && ret >= 0; i++) {
		ret = notify_some(crowd, i);
		linger(i);
	}
	return ret < 0 ? ret : 0;
}

static unsigned int sum_of_counts(struct watcher *watchers, int n)
{
	unsigned int sum = 0;
	int i;

	for (i = 0; i < n; i++)
		sum += __atomic_load_n(&watchers[i].count, __ATOMIC_SEQ_CST);
	return sum;
}

#define CROWD	4

/* R5: three threads dispatch and two notify; each notify is in exactly one count. */
USERLIB_TEST(R5_counts_add_up_with_several_dispatchers)
{
	struct crowd crowd = { .word = self->shared };
	struct watcher watchers[CROWD] = { 0 };
	struct runner dispatchers[3], notifiers[2];
	int i;

	for (i = 0; i < CROWD; i++)
		ASSERT_EQ(MEMWAIT_PENDING, watch(&watchers[i], self->loop, crowd.word));
	for (i = 0; i < 3; i++)
		runner_start(&dispatchers[i], run_loop, self->loop);
	for (i = 0; i < 2; i++)
		runner_start(&notifiers[i], notify_often, &crowd);
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, runner_join(&notifiers[i]));
	spin_until(sum_of_counts(watchers, CROWD) >= crowd.woken);
	for (i = 0; i < CROWD; i++)
		spin_until(memwait_op_cancel(&watchers[i].op) == -ENOENT);
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, runner_join(&dispatchers[i]));
	EXPECT_EQ(crowd.woken, sum_of_counts(watchers, CROWD));
	for (i = 0; i < CROWD; i++) {
		EXPECT_EQ(0, watchers[i].crowded);
		TH_LOG("%d callbacks for %u notifies", watchers[i].calls, watchers[i].count);
	}
}

/* R32: threads that read the state without a lock see no gap between two callbacks. */
USERLIB_TEST(R32_a_watch_stays_pending_while_others_dispatch)
{
	struct crowd crowd = { .word = self->shared };
	struct watcher watcher = { 0 };
	struct runner dispatchers[2], notifier;
	uint64_t end = in_ms(RACE_MS);
	int i, idle = 0;

	ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, self->loop, crowd.word));
	for (i = 0; i < 2; i++)
		runner_start(&dispatchers[i], run_loop, self->loop);
	runner_start(&notifier, notify_until_over, &crowd);
	while (__atomic_load_n(&watcher.calls, __ATOMIC_SEQ_CST) < 10 * ROUNDS &&
	       now_ns(CLOCK_MONOTONIC) < end)
		idle += !memwait_op_pending(&watcher.op);
	EXPECT_EQ(0, idle);
	__atomic_store_n(&crowd.over, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(0, runner_join(&notifier));
	spin_until(memwait_op_cancel(&watcher.op) != -EINPROGRESS);
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, runner_join(&dispatchers[i]));
}

/* The value of the word at the last callback of either watch. */
static int latest_seen;

static void see_latest(struct watcher *watcher)
{
	int now = __atomic_load_n((int *)watcher->data, __ATOMIC_SEQ_CST);
	int seen = __atomic_load_n(&latest_seen, __ATOMIC_SEQ_CST);

	while (seen < now && !__atomic_compare_exchange_n(&latest_seen, &seen, now, false,
							  __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	/* Here the operation can be cancelled by another thread. */
	before_next_look();
}

/*
 * L3, R5: a watch is cancelled repeatedly while other threads dispatch. The other watch then gets
 * the notify.
 */
USERLIB_TEST(L3_no_notify_is_lost_when_a_watch_is_cancelled)
{
	int *word = self->shared;
	struct watcher steady = { .act = see_latest, .data = word };
	struct watcher watcher = { .act = see_latest, .data = word };
	struct runner dispatchers[2];
	int round, i, ret, ran = 0;

	ASSERT_EQ(MEMWAIT_PENDING, watch(&steady, self->loop, word));
	for (i = 0; i < 2; i++)
		runner_start(&dispatchers[i], run_loop, self->loop);
	for (round = 0; more_rounds(round, ROUNDS) || !ran; round++) {
		memwait_op_init(&watcher.op, self->loop, watched, &watcher);
		ASSERT_EQ(MEMWAIT_PENDING,
			  memwait_watch32(word, (uint32_t)*word, NULL, 0, &watcher.op));
		for (i = 0; i <= round % 3; i++) {
			__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
			ASSERT_EQ(1, memwait_notify(word, 1, 0));
		}
		linger(round);
		ret = memwait_op_cancel(&watcher.op);
		if (ret == -EINPROGRESS) {
			ran++;
			spin_until(!memwait_op_pending(&watcher.op));
			ret = memwait_op_cancel(&watcher.op);
			ASSERT_EQ(-ENOENT, ret);
		}
		ASSERT_TRUE(!ret || ret == -ENOENT);
		/* The library no longer uses the operation's memory. */
		memset(&watcher.op, 0xa5, sizeof(watcher.op));
		spin_until(__atomic_load_n(&latest_seen, __ATOMIC_SEQ_CST) >= *word);
	}
	spin_until(memwait_op_cancel(&steady.op) == -ENOENT);
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, runner_join(&dispatchers[i]));
	EXPECT_EQ(0, steady.crowded);
	EXPECT_EQ(0, watcher.crowded);
	TH_LOG("%d of %d cancelled in their callback", ran, round);
}

/* L10: a watch behaves like other operations here. */
USERLIB_TEST(L10_a_loop_reports_that_its_descriptor_was_closed)
{
	struct watcher watcher = { 0 };
	uint32_t *word = self->shared;
	memwait_loop_t *loop;

	ASSERT_EQ(0, memwait_loop_new(&loop, 0));
	ASSERT_EQ(MEMWAIT_PENDING, watch(&watcher, loop, word));
	close(memwait_loop_fd(loop));
	EXPECT_EQ(-EBADF, memwait_loop_dispatch(loop, MEMWAIT_ALL));
	EXPECT_EQ(0, memwait_op_cancel(&watcher.op));
	EXPECT_EQ(-EBADF, memwait_watch32(word, 0, NULL, 0, &watcher.op));
	EXPECT_EQ(0, memwait_loop_close(loop));
}

TEST_HARNESS_MAIN
