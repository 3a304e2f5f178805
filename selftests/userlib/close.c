// SPDX-License-Identifier: GPL-2.0
/*
 * L9: close ends all pending operations, at any stage of their progress. No callback runs. Whatever
 * an operation has received is passed to other waiters, as if the operation had been cancelled.
 */
#include "cond_test.h"
#include "objects_test.h"

#define RACES	LOAD(60, 10)

/* Progress of an operation: queued, completed, or its completion has been read by the loop. */
enum state { QUEUED, COMPLETED, READ, STATES };

/* Returns a new loop, because the fixture's loop must not be closed. */
static memwait_loop_t *new_loop(void)
{
	memwait_loop_t *loop;

	must(memwait_loop_new(&loop, 0));
	return loop;
}

/*
 * Makes the loop read all its completions without running a callback, by cancelling an operation.
 */
static void read_all(memwait_loop_t *loop)
{
	struct counted_op last = counted_by(&last, loop);
	uint32_t word = 0;

	if (memwait_wait32_async(&word, 0, NULL, 0, &last.op) != MEMWAIT_PENDING ||
	    memwait_notify(&word, 1, 0) != 1)
		abort();
	must(memwait_op_cancel(&last.op));
}

/* Whether an operation has ended, and its callback has not run. */
static bool is_ended(const struct counted_op *counted)
{
	return !memwait_op_pending(&counted->op) && !counted->calls;
}

/*
 * If a thread is queued behind the operation, the thread gets the object. If there is no other
 * waiter, the object is available exactly once.
 */
USERLIB_TEST(L9_what_an_operation_received_passes_to_the_next)
{
	struct counted_op first, second;
	void *object = self->shared;
	struct visitor behind;
	memwait_loop_t *loop;
	enum state state;
	size_t i;
	int next;

	for (i = 0; i < ARRAY_SIZE(objects) * STATES * 2; i++) {
		const struct way *way = objects[i / STATES / 2].way;
		unsigned int kind = objects[i / STATES / 2].kind;

		if (!maker_can_wait(&objects[i / STATES / 2]))
			continue;
		state = i / 2 % STATES;
		next = i % 2;
		ASSERT_EQ(0, way->make(object, kind));
		loop = new_loop();
		first = counted_by(&first, loop);
		second = counted_by(&second, loop);
		ASSERT_EQ(EINPROGRESS, way->wait_async(object, &first.op));
		ASSERT_EQ(EINPROGRESS, way->wait_async(object, &second.op));
		if (next) {
			visitor_start(&behind, way, object);
			await_sleepers(way, object, kind, 3);
		}
		if (state != QUEUED) {
			ASSERT_EQ(0, way->give(object));
		}
		if (state == READ)
			read_all(loop);
		ASSERT_EQ(0, memwait_loop_close(loop));
		EXPECT_TRUE(is_ended(&first));
		EXPECT_TRUE(is_ended(&second));
		if (state == QUEUED) {
			/*
			 * A thread that waited at the gate of a read-write lock now sleeps on the
			 * lock's other word.
			 */
			await_sleepers(way, object, kind, next);
			ASSERT_EQ(0, way->give(object));
		}
		EXPECT_EQ(0, next ? visitor_join(&behind) : leave(way, object, way->wait(object)));
		EXPECT_EQ(0, sleepers(way, object, kind));
		EXPECT_EQ(way->give_back || way->lets_all_go ? 0 : ETIMEDOUT,
			  leave(way, object, take(way, object)));
		EXPECT_EQ(0, way->destroy(object));
	}
}

/* A thread or a process that calls give() on request and reports that it has done so. */
struct giver {
	const struct way *way;
	void *object;
	int begin, done, end;
};

static int give_when_asked(struct giver *giver)
{
	for (;;) {
		while (!__atomic_load_n(&giver->begin, __ATOMIC_ACQUIRE)) {
			if (__atomic_load_n(&giver->end, __ATOMIC_ACQUIRE))
				return 0;
			before_next_look();
		}
		__atomic_store_n(&giver->begin, 0, __ATOMIC_RELAXED);
		must(giver->way->give(giver->object));
		__atomic_store_n(&giver->done, 1, __ATOMIC_RELEASE);
	}
}

/*
 * If the object becomes available while the loop is being closed, either a callback or the next
 * thread gets the object.
 */
static void race_with_give(struct __test_metadata *_metadata, const struct object *kind,
			   void *object, struct giver *giver, int *called)
{
	const struct way *way = kind->way;
	struct counted_op first, second;
	struct visitor behind;
	memwait_loop_t *loop;
	struct runner closer;
	int round, got;

	for (round = 0; more_rounds(round, RACES); round++) {
		ASSERT_EQ(0, way->make(object, kind->kind));
		loop = new_loop();
		first = counted_by(&first, loop);
		second = counted_by(&second, loop);
		ASSERT_EQ(EINPROGRESS, way->wait_async(object, &first.op));
		ASSERT_EQ(EINPROGRESS, way->wait_async(object, &second.op));
		visitor_start(&behind, way, object);
		if (round % 3)
			await_sleepers(way, object, kind->kind, 3);
		if (giver) {
			__atomic_store_n(&giver->done, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&giver->begin, 1, __ATOMIC_RELEASE);
			linger(round);
			if (round % 4 == 3) {
				ASSERT_LE(0, memwait_loop_dispatch(loop, MEMWAIT_ALL));
			}
			ASSERT_EQ(0, memwait_loop_close(loop));
			while (!__atomic_load_n(&giver->done, __ATOMIC_ACQUIRE))
				before_next_look();
		} else {
			runner_race(&closer, memwait_loop_close, loop);
			linger(round);
			ASSERT_EQ(0, way->give(object));
			ASSERT_EQ(0, runner_join(&closer));
		}
		ASSERT_FALSE(memwait_op_pending(&first.op) || memwait_op_pending(&second.op));
		got = first.calls + second.calls;
		*called += got;
		while (got--)
			ASSERT_EQ(0, give_next(way, object));
		ASSERT_EQ(0, visitor_join(&behind));
		ASSERT_EQ(way->give_back || way->lets_all_go ? 0 : ETIMEDOUT,
			  leave(way, object, take(way, object)));
		ASSERT_EQ(0, sleepers(way, object, kind->kind));
		ASSERT_EQ(0, way->destroy(object));
	}
}

USERLIB_TEST(L9_close_races_with_give)
{
	struct giver *giver = (struct giver *)((char *)self->shared + 4096);
	const struct object *object;
	int called = 0, by_process;
	struct runner thread;
	pid_t child;

	giver->object = self->shared;
	for_each_object(object, maker_can_wait(object)) {
		if (has_owner(object)) {
			race_with_give(_metadata, object, self->shared, NULL, &called);
			continue;
		}
		giver->way = object->way;
		for (by_process = 0; by_process < 2; by_process++) {
			if (by_process && is_private(object))
				continue;
			giver->end = 0;
			if (by_process)
				child = run_in_child(give_when_asked(giver));
			else
				runner_start(&thread, give_when_asked, giver);
			race_with_give(_metadata, object, self->shared, giver, &called);
			__atomic_store_n(&giver->end, 1, __ATOMIC_RELEASE);
			EXPECT_EQ(0, by_process ? child_status(child) : runner_join(&thread));
		}
	}
	TH_LOG("%d called back", called);
}

/*
 * States of the operation: it waits for the signal; it has received the signal; the loop has read
 * that completion; it waits for the mutex; it holds the mutex; the loop has read that completion.
 */
USERLIB_TEST(L9_a_signal_passes_to_the_next)
{
	struct monitor *monitor = self->shared;
	struct queued first, behind;
	memwait_loop_t *loop;
	unsigned int kind;
	int state, i;

	for (i = 0; i < 3 * 6; i++) {
		kind = i / 6 == 2 ? MEMWAIT_MUTEX_ROBUST : i / 6 ? MEMWAIT_MUTEX_FAIR : 0;
		state = i % 6;
		monitor_init(monitor, kind);
		loop = new_loop();
		first = (struct queued){ .monitor = monitor, .number = 1 };
		behind = (struct queued){ .monitor = monitor, .number = 2 };
		ASSERT_EQ(EINPROGRESS, queue_by_loop(&first, loop));
		runner_start(&behind.runner, wait_in_queue, &behind);
		await_sleeping(self->fd, monitor, 2);
		if (state == 1 || state == 2) {
			ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		}
		if (state >= 3) {
			ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
			ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
			ASSERT_EQ(0, memwait_loop_dispatch(loop, MEMWAIT_ALL));
			await_waiters(self->fd, sleep_word(&monitor->mutex, kind), 0, 1);
		}
		if (state >= 4) {
			ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		}
		if (state == 2 || state == 5)
			read_all(loop);
		ASSERT_EQ(0, memwait_loop_close(loop));
		EXPECT_EQ(0, memwait_op_pending(&first.op));
		if (state == 0) {
			ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		}
		if (state == 3) {
			ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
		}
		EXPECT_EQ(0, runner_join(&behind.runner));
		EXPECT_EQ(0, first.called);
		EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
}

/* The arrival is undone unless all participants had arrived. */
USERLIB_TEST(L9_an_arrival_at_a_barrier_is_undone)
{
	static const unsigned int kinds[] = { 0, MEMWAIT_PRIVATE };
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted;
	struct runner runner;
	memwait_loop_t *loop;
	enum state state;
	int met, i;

	for (i = 0; i < 2 * STATES; i++) {
		state = i % STATES;
		ASSERT_EQ(0, memwait_barrier_init(barrier, kinds[i / STATES], 2));
		loop = new_loop();
		counted = counted_by(&counted, loop);
		ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted.op));
		if (state != QUEUED) {
			ASSERT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(barrier));
		}
		if (state == READ)
			read_all(loop);
		ASSERT_EQ(0, memwait_loop_close(loop));
		EXPECT_TRUE(is_ended(&counted));
		/* The next round takes two participants. */
		runner_start(&runner, memwait_barrier_wait, barrier);
		runner_await_asleep(&runner);
		met = memwait_barrier_wait(barrier);
		EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, met + runner_join(&runner));
		EXPECT_EQ(0, memwait_barrier_destroy(barrier));
	}
}

static void count_notifies(memwait_op_t *op, int result, void *data)
{
	if (result == MEMWAIT_OK)
		*(unsigned int *)data += memwait_op_count(op);
}

/* Tests a wait for one word, a wait for several words, and a watch. */
USERLIB_TEST(L9_a_notify_passes_to_the_next)
{
	struct counted_op one, any, watch;
	struct memwait_wait waits[2] = { 0 };
	uint32_t *word = self->shared;
	memwait_op_t next, last;
	unsigned int noticed;
	memwait_loop_t *loop;
	int state;

	waits[0].addr = (uintptr_t)&word[1];
	waits[1].addr = (uintptr_t)word;
	waits[0].flags = U32_SIZE;
	waits[1].flags = U32_SIZE;
	memwait_op_init(&next, self->loop, count_notifies, &noticed);
	memwait_op_init(&last, self->loop, count_notifies, &noticed);
	for (state = 0; state < STATES; state++) {
		loop = new_loop();
		one = counted_by(&one, loop);
		any = counted_by(&any, loop);
		watch = counted_by(&watch, loop);
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &one.op));
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait_any_async(waits, 2, NULL, 0, &any.op));
		ASSERT_EQ(MEMWAIT_PENDING, memwait_watch32(word, 0, NULL, 0, &watch.op));
		ASSERT_EQ(MEMWAIT_PENDING, memwait_watch32(word, 0, NULL, 0, &next));
		ASSERT_EQ(MEMWAIT_PENDING, memwait_watch32(word, 0, NULL, 0, &last));
		if (state != QUEUED) {
			ASSERT_EQ(3, memwait_notify(word, 3, 0));
		}
		if (state == READ)
			read_all(loop);
		ASSERT_EQ(0, memwait_loop_close(loop));
		EXPECT_TRUE(is_ended(&one) && is_ended(&any) && is_ended(&watch));
		EXPECT_EQ(2, memwait_waiters(word, 0));
		EXPECT_EQ(0, memwait_waiters(&word[1], 0));
		noticed = 0;
		EXPECT_EQ(state == QUEUED ? 0 : 2, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_EQ(state == QUEUED ? 0 : 3, noticed);
		EXPECT_EQ(0, memwait_op_cancel(&next));
		EXPECT_EQ(0, memwait_op_cancel(&last));
	}
}

#define NOTIFIERS	2	/* number of threads, and also of processes */
#define WAITS		16	/* number of waits of each closed loop */

struct account {
	uint32_t word;
	int end;
	uint64_t counted;	/* sum of the results of all notifies */
};

static int notify_until_end(struct account *account)
{
	uint64_t counted = 0;
	int ret;

	while (!__atomic_load_n(&account->end, __ATOMIC_ACQUIRE)) {
		ret = memwait_notify(&account->word, 1 + counted % 3, 0);
		if (ret < 0)
			return 1;
		counted += (uint64_t)ret;
	}
	__atomic_add_fetch(&account->counted, counted, __ATOMIC_RELEASE);
	return 0;
}

static void count_ok(memwait_op_t *op, int result, void *data)
{
	(void)op;
	*(uint64_t *)data += result == MEMWAIT_OK;
}

/*
 * Each notify that was counted reaches one callback: of a loop that is closed later, or of an
 * operation that stays. The operations that stay are always queued, so that a notify can always be
 * passed on.
 */
USERLIB_TEST(L9_R5_no_notify_is_lost_or_made_up)
{
	struct account *account = self->shared;
	uint64_t called = 0;
	unsigned int stayed = 0;
	struct runner threads[NOTIFIERS];
	pid_t children[NOTIFIERS];
	memwait_op_t ops[WAITS], stays[2 * WAITS];
	memwait_loop_t *loop;
	int round, i;

	for (i = 0; i < 2 * WAITS; i++) {
		memwait_op_init(&stays[i], self->loop, count_notifies, &stayed);
		ASSERT_EQ(MEMWAIT_PENDING,
			  memwait_watch32(&account->word, 0, NULL, 0, &stays[i]));
	}
	for (i = 0; i < NOTIFIERS; i++) {
		children[i] = run_in_child(notify_until_end(account));
		runner_start(&threads[i], notify_until_end, account);
	}
	for (round = 0; round < 10 * RACES; round++) {
		loop = new_loop();
		for (i = 0; i < WAITS; i++) {
			memwait_op_init(&ops[i], loop, count_ok, &called);
			ASSERT_EQ(MEMWAIT_PENDING,
				  memwait_wait32_async(&account->word, 0, NULL, 0, &ops[i]));
		}
		linger(round);
		if (round % 3 == 0) {
			ASSERT_LE(0, memwait_loop_dispatch(loop, MEMWAIT_ALL));
		} else if (round % 3 == 1) {
			read_all(loop);
		}
		ASSERT_EQ(0, memwait_loop_close(loop));
		ASSERT_LE(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	}
	__atomic_store_n(&account->end, 1, __ATOMIC_RELEASE);
	for (i = 0; i < NOTIFIERS; i++) {
		EXPECT_EQ(0, child_status(children[i]));
		EXPECT_EQ(0, runner_join(&threads[i]));
	}
	while (memwait_loop_dispatch(self->loop, MEMWAIT_ALL))
		;
	EXPECT_EQ(account->counted, called + stayed);
	TH_LOG("%llu notifies counted, %llu called back", (unsigned long long)account->counted,
	       (unsigned long long)called);
	for (i = 0; i < 2 * WAITS; i++)
		EXPECT_EQ(0, memwait_op_cancel(&stays[i]));
}

struct closing {
	memwait_op_t op;
	memwait_loop_t *loop;
	int err;
};

static void close_loop(memwait_op_t *op, int result, void *data)
{
	struct closing *closing = data;

	(void)op;
	(void)result;
	closing->err = memwait_loop_close(closing->loop);
}

/*
 * If a callback or another thread uses the loop, close fails and has no effect. After a stop the
 * close succeeds.
 */
USERLIB_TEST(L9_a_loop_in_use_is_not_closed)
{
	memwait_loop_t *loop = new_loop();
	struct closing closing = { .loop = loop };
	struct counted_op counted = counted_by(&counted, loop);
	uint32_t *word = self->shared;
	struct runner runner;

	memwait_op_init(&closing.op, loop, close_loop, &closing);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &counted.op));
	runner_start(&runner, run_loop, loop);
	runner_await_asleep(&runner);
	EXPECT_EQ(-EBUSY, memwait_loop_close(loop));
	EXPECT_EQ(1, memwait_op_pending(&counted.op));
	EXPECT_EQ(1, memwait_waiters(word, 0));
	ASSERT_EQ(0, memwait_loop_stop(loop));
	EXPECT_EQ(0, runner_join(&runner));

	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&word[1], 0, NULL, 0, &closing.op));
	ASSERT_EQ(1, memwait_notify(&word[1], 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(loop, MEMWAIT_ALL));
	EXPECT_EQ(-EBUSY, closing.err);
	EXPECT_EQ(1, memwait_op_pending(&counted.op));

	/* A callback of another loop can close this loop. */
	memwait_op_init(&closing.op, self->loop, close_loop, &closing);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&word[1], 0, NULL, 0, &closing.op));
	ASSERT_EQ(1, memwait_notify(&word[1], 1, 0));
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(0, closing.err);
	EXPECT_TRUE(is_ended(&counted));
	EXPECT_EQ(0, memwait_waiters(word, 0));
}

/*
 * Most operations are queued and some are completed. Close ends all of them, and no charge remains.
 */
USERLIB_TEST(L9_many_operations)
{
	const int many = 1000;
	struct counted_op *ops = calloc(many, sizeof(*ops));
	memwait_loop_t *loop = new_loop();
	uint32_t *word = self->shared;
	int i;

	for (i = 0; i < many; i++) {
		ops[i] = counted_by(&ops[i], loop);
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &ops[i].op));
	}
	ASSERT_EQ(100, memwait_notify(word, 100, 0));
	ASSERT_EQ(0, memwait_op_cancel(&ops[99].op));
	ASSERT_EQ(0, memwait_op_cancel(&ops[500].op));
	ASSERT_EQ(0, memwait_loop_close(loop));
	for (i = 0; i < many; i++)
		ASSERT_TRUE(is_ended(&ops[i]));
	EXPECT_EQ(0, memwait_waiters(word, 0));
	free(ops);
}

/* How to make a copy of the descriptor that stays open after the close. */
enum copied { BY_DUP, BY_FORK, IN_A_MESSAGE, WAYS_TO_COPY };

struct copy {
	int fd, sockets[2];
	pid_t child;
};

static void copy_make(struct copy *copy, enum copied how, int fd)
{
	*copy = (struct copy){ .fd = -1, .sockets = { -1, -1 } };
	if (how == BY_DUP) {
		copy->fd = dup(fd);
	} else if (how == BY_FORK) {
		copy->child = fork_child();
		if (!copy->child)
			stay();
	} else {
		must(socketpair(AF_UNIX, SOCK_STREAM, 0, copy->sockets));
		must(send_fd(copy->sockets[0], fd, 0));
	}
}

static bool copy_is_readable(const struct copy *copy)
{
	struct pollfd pfd = { .fd = copy->fd, .events = POLLIN };

	return poll(&pfd, 1, 0) > 0;
}

static void copy_end(struct copy *copy)
{
	if (copy->child)
		kill_child(copy->child);
	if (copy->fd >= 0)
		close(copy->fd);
	if (copy->sockets[0] >= 0) {
		close(copy->sockets[0]);
		close(copy->sockets[1]);
	}
}

/* Neither the operations nor the loop leave a waiter that could be notified. */
USERLIB_TEST(L9_L14_no_waiter_is_left_in_a_copied_descriptor)
{
	uint64_t before = mw_user_waits(self->fd);
	void *object = self->shared;
	memwait_loop_t *loop;
	enum copied how;
	enum state state;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(objects) * STATES * WAYS_TO_COPY; i++) {
		const struct way *way = objects[i / STATES / WAYS_TO_COPY].way;
		unsigned int kind = objects[i / STATES / WAYS_TO_COPY].kind;
		struct counted_op first, second;
		struct copy copy;

		if (!maker_can_wait(&objects[i / STATES / WAYS_TO_COPY]))
			continue;
		state = i / WAYS_TO_COPY % STATES;
		how = i % WAYS_TO_COPY;
		ASSERT_EQ(0, way->make(object, kind));
		loop = new_loop();
		first = counted_by(&first, loop);
		second = counted_by(&second, loop);
		ASSERT_EQ(EINPROGRESS, way->wait_async(object, &first.op));
		ASSERT_EQ(EINPROGRESS, way->wait_async(object, &second.op));
		copy_make(&copy, how, memwait_loop_fd(loop));
		if (state != QUEUED) {
			ASSERT_EQ(0, way->give(object));
		}
		if (state == READ)
			read_all(loop);
		ASSERT_EQ(0, memwait_loop_close(loop));
		EXPECT_EQ(before, mw_user_waits(self->fd)) {
			TH_LOG("%s, state %d, copy %d", objects[i / STATES / WAYS_TO_COPY].name,
			       state, how);
		}
		EXPECT_EQ(0, sleepers(way, object, kind));
		EXPECT_FALSE(copy_is_readable(&copy));
		copy_end(&copy);
		if (state == QUEUED) {
			ASSERT_EQ(0, way->give(object));
		}
		EXPECT_EQ(0, leave(way, object, way->wait(object)));
		EXPECT_EQ(0, way->destroy(object));
	}
}

/* The child closes its copy, and the parent's operation is still pending. */
USERLIB_TEST(L9_L1_a_child_does_not_end_operations)
{
	memwait_loop_t *loop = new_loop();
	struct counted_op counted = counted_by(&counted, loop);
	memwait_sem_t *sem = self->shared;

	must(memwait_sem_init(sem, 0, 0));
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &counted.op));
	EXPECT_EQ(0, child_status(run_in_child(memwait_loop_close(loop))));
	EXPECT_EQ(1, memwait_op_pending(&counted.op));
	ASSERT_EQ(0, memwait_sem_post(sem));
	ASSERT_EQ(0, dispatch_until(loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	EXPECT_EQ(0, memwait_loop_close(loop));
}

TEST_HARNESS_MAIN
