// SPDX-License-Identifier: GPL-2.0
/* Read-write locks: several readers or one writer hold the lock, and no waiter starves. */
#include "rwlock_test.h"

static int use_often(void *arg)
{
	struct shared *shared = arg;
	int i, err;

	for (i = 0; i < ROUNDS; i++) {
		if (i % 5) {
			err = memwait_rwlock_rdlock(&shared->lock);
			if (err)
				return err;
			read_it(shared);
		} else {
			err = memwait_rwlock_wrlock(&shared->lock);
			if (err)
				return err;
			write_it(shared);
		}
		err = memwait_rwlock_unlock(&shared->lock);
		if (err)
			return err;
	}
	return 0;
}

struct user_op {
	struct shared *shared;
	memwait_op_t op;
	int rounds, error;
};

static int begin_use(struct user_op *user)
{
	if (user->rounds % 5)
		return memwait_rwlock_rdlock_async(&user->shared->lock, &user->op);
	return memwait_rwlock_wrlock_async(&user->shared->lock, &user->op);
}

static void use_by_callback(memwait_op_t *op, int result, void *data)
{
	struct user_op *user = data;

	while (!result) {
		if (user->rounds % 5)
			read_it(user->shared);
		else
			write_it(user->shared);
		result = memwait_rwlock_unlock(&user->shared->lock);
		if (result || ++user->rounds == ROUNDS)
			break;
		result = begin_use(user);
	}
	if (result != EINPROGRESS)
		user->error = result;
}

static void use_by_all(struct __test_metadata *_metadata, memwait_loop_t *loop, unsigned int kind)
{
	int memfd = new_file(4096), i, ret;
	struct user_op users[2] = { 0 };
	struct runner runners[2];
	struct shared *shared;
	pid_t children[2];

	shared = map_shared(memfd, 4096);
	ASSERT_EQ(0, memwait_rwlock_init(&shared->lock, kind));
	for (i = 0; i < 2; i++)
		children[i] = run_remapped(memfd, shared, use_often);
	for (i = 0; i < 2; i++)
		runner_start(&runners[i], use_often, shared);
	for (i = 0; i < 2; i++) {
		users[i].shared = shared;
		memwait_op_init(&users[i].op, loop, use_by_callback, &users[i]);
		ret = begin_use(&users[i]);
		if (ret != EINPROGRESS)
			use_by_callback(&users[i].op, ret, &users[i]);
	}
	ASSERT_EQ(0, memwait_loop_run(loop, NULL, 0));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, runner_join(&runners[i]));
		EXPECT_EQ(0, child_status(children[i]));
		EXPECT_EQ(0, users[i].error);
	}
	EXPECT_EQ(6L * ROUNDS / 5, shared->a);
	EXPECT_EQ(0, shared->violations);
	EXPECT_EQ(EPERM, memwait_rwlock_unlock(&shared->lock));
	EXPECT_EQ(0, memwait_rwlock_destroy(&shared->lock));
	munmap(shared, 4096);
	close(memfd);
}

USERLIB_TEST(L0_threads_processes_and_a_loop_share_a_lock)
{
	use_by_all(_metadata, self->loop, 0);
	use_by_all(_metadata, self->loop, MEMWAIT_RWLOCK_FAIR);
	use_by_all(_metadata, self->loop, MEMWAIT_RWLOCK_PREFER_WRITER);
	use_by_all(_metadata, self->loop, MEMWAIT_RWLOCK_ROBUST);
	use_by_all(_metadata, self->loop, MEMWAIT_RWLOCK_PREFER_WRITER | MEMWAIT_RWLOCK_ROBUST);
}

USERLIB_TEST(L0_try_and_errors)
{
	memwait_rwlock_t *lock = self->shared;

	EXPECT_EQ(0, memwait_rwlock_init(lock, MEMWAIT_RWLOCK_FAIR));
	EXPECT_EQ(EINVAL, memwait_rwlock_init(lock, MEMWAIT_RWLOCK_FAIR | 2));
	EXPECT_EQ(EINVAL, memwait_rwlock_init(lock, MEMWAIT_RWLOCK_FAIR |
					      MEMWAIT_RWLOCK_PREFER_WRITER));
	ASSERT_EQ(0, memwait_rwlock_init(lock, 0));
	EXPECT_EQ(EPERM, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_rdlock(lock));
	EXPECT_EQ(0, memwait_rwlock_tryrdlock(lock));
	EXPECT_EQ(EBUSY, memwait_rwlock_trywrlock(lock));
	EXPECT_EQ(EBUSY, memwait_rwlock_destroy(lock));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_trywrlock(lock));
	EXPECT_EQ(EBUSY, memwait_rwlock_tryrdlock(lock));
	EXPECT_EQ(EBUSY, memwait_rwlock_trywrlock(lock));
	EXPECT_EQ(EBUSY, memwait_rwlock_destroy(lock));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(EPERM, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_destroy(lock));
	EXPECT_EQ(EINVAL, memwait_rwlock_init(lock, 1));
	EXPECT_EQ(EINVAL, memwait_rwlock_tryrdlock(NULL));
	EXPECT_EQ(EINVAL, memwait_rwlock_trywrlock(NULL));
}

USERLIB_TEST(R12_a_waiting_writer_comes_before_later_readers)
{
	struct shared *shared = self->shared;
	struct runner writer, reader;

	ASSERT_EQ(0, memwait_rwlock_init(&shared->lock, MEMWAIT_RWLOCK_PREFER_WRITER));
	ASSERT_EQ(0, memwait_rwlock_rdlock(&shared->lock));
	runner_start(&writer, write_once, shared);
	/* The writer sleeps on the state, which follows the 64 bits of the gate. */
	await_waiters(self->fd, (uint32_t *)&shared->lock + 2, U32_SIZE, 1);
	EXPECT_EQ(EBUSY, memwait_rwlock_tryrdlock(&shared->lock));
	runner_start(&reader, read_once, shared);
	await_waiters(self->fd, &shared->lock, U32_SIZE, 1);
	EXPECT_EQ(0, shared->a);
	ASSERT_EQ(0, memwait_rwlock_unlock(&shared->lock));
	EXPECT_EQ(0, runner_join(&writer));
	EXPECT_EQ(0, runner_join(&reader));
	EXPECT_EQ(0, shared->violations);
	EXPECT_EQ(0, memwait_rwlock_destroy(&shared->lock));
}

static int read_often(void *arg)
{
	struct shared *shared = arg;

	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE))
		if (read_once(shared))
			return -1;
	return 0;
}

static int write_often(void *arg)
{
	struct shared *shared = arg;

	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE))
		if (write_once(shared))
			return -1;
	return 0;
}

USERLIB_TEST(R12_fair_neither_readers_nor_writers_starve)
{
	struct shared *shared = self->shared;
	struct runner busy[3];
	int writers, i;

	for (writers = 0; writers < 2; writers++) {
		memset(shared, 0, sizeof(*shared));
		ASSERT_EQ(0, memwait_rwlock_init(&shared->lock, MEMWAIT_RWLOCK_FAIR));
		for (i = 0; i < 3; i++)
			runner_start(&busy[i], writers ? write_often : read_often, shared);
		for (i = 0; i < 200; i++)
			ASSERT_EQ(0, writers ? read_once(shared) : write_once(shared));
		__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
		for (i = 0; i < 3; i++)
			EXPECT_EQ(0, runner_join(&busy[i]));
		EXPECT_EQ(0, shared->violations);
	}
}

USERLIB_TEST(L0_readers_hold_the_lock_together)
{
	memwait_rwlock_t *lock = self->shared;
	struct counted_op counted[4] = { 0 };
	int i;

	ASSERT_EQ(0, memwait_rwlock_wrlock(lock));
	for (i = 0; i < 4; i++) {
		memwait_op_init(&counted[i].op, self->loop, count_call, &counted[i]);
		ASSERT_EQ(EINPROGRESS, memwait_rwlock_rdlock_async(lock, &counted[i].op));
	}
	ASSERT_EQ(0, memwait_rwlock_unlock(lock));
	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, dispatch_until(self->loop, &counted[i].calls, 1));
	EXPECT_EQ(EBUSY, memwait_rwlock_trywrlock(lock));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(EPERM, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_destroy(lock));
}

/* Returns only if all three threads hold the lock at the same time. */
static int read_with_two_others(void *arg)
{
	struct shared *shared = arg;
	int err = memwait_rwlock_rdlock(&shared->lock);

	if (err)
		return err;
	__atomic_add_fetch(&shared->readers, 1, __ATOMIC_ACQ_REL);
	spin_until(__atomic_load_n(&shared->readers, __ATOMIC_ACQUIRE) >= 3);
	return memwait_rwlock_unlock(&shared->lock);
}

USERLIB_TEST(L0_three_threads_read_at_the_same_time)
{
	struct shared *shared = self->shared;
	struct runner runners[3];
	int held, i;

	/* First the readers find the lock free. In the second round they sleep at the gate. */
	for (held = 0; held < 2; held++) {
		memset(shared, 0, sizeof(*shared));
		if (held) {
			ASSERT_EQ(0, memwait_rwlock_wrlock(&shared->lock));
		}
		for (i = 0; i < 3; i++)
			runner_start(&runners[i], read_with_two_others, shared);
		if (held) {
			await_waiters(self->fd, gate_of(&shared->lock), U32_SIZE, 3);
			EXPECT_EQ(0, shared->readers);
			ASSERT_EQ(0, memwait_rwlock_unlock(&shared->lock));
		}
		for (i = 0; i < 3; i++)
			EXPECT_EQ(0, runner_join(&runners[i]));
		EXPECT_EQ(EPERM, memwait_rwlock_unlock(&shared->lock));
		EXPECT_EQ(0, memwait_rwlock_destroy(&shared->lock));
	}
}

USERLIB_TEST(R2_more_errors)
{
	memwait_rwlock_t *lock = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct timespec time = { 0, 1000000000 };
	memwait_rwlock_t initialised = MEMWAIT_RWLOCK_INIT;

	EXPECT_EQ(0, memcmp(&initialised, lock, sizeof(*lock)));

	/* The deadline is not needed and therefore not checked. */
	EXPECT_EQ(0, memwait_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &time));
	EXPECT_EQ(0, memwait_rwlock_clockrdlock_async(lock, CLOCK_MONOTONIC, &time,
						      &counted.op));
	/* The deadline is needed. */
	EXPECT_EQ(EINVAL, memwait_rwlock_clockwrlock_async(lock, CLOCK_MONOTONIC, &time,
							   &counted.op));
	EXPECT_EQ(0, memwait_rwlock_tryrdlock(lock));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, &time));
	EXPECT_EQ(EINVAL, memwait_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &time));
	EXPECT_EQ(EINVAL, memwait_rwlock_clockrdlock_async(lock, CLOCK_MONOTONIC, &time,
							   &counted.op));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_destroy(lock));
	EXPECT_EQ(0, counted.calls);

	/* The lock has the maximum number of readers. */
	memset((uint32_t *)lock + 2, 0xff, sizeof(uint32_t));
	*(unsigned char *)((uint32_t *)lock + 2) = 0;
	EXPECT_EQ(EAGAIN, memwait_rwlock_rdlock(lock));
	EXPECT_EQ(EAGAIN, memwait_rwlock_tryrdlock(lock));
	EXPECT_EQ(EAGAIN, memwait_rwlock_rdlock_async(lock, &counted.op));
	EXPECT_EQ(EBUSY, memwait_rwlock_trywrlock(lock));
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_tryrdlock(lock));
	EXPECT_EQ(EAGAIN, memwait_rwlock_tryrdlock(lock));
}

USERLIB_TEST(L3_readers_enter_when_the_waiting_writer_has_timed_out)
{
	struct timed timed = { .shared = self->shared, .clock = CLOCK_MONOTONIC };
	memwait_rwlock_t *lock = &timed.shared->lock;
	struct runner writer, reader;

	ASSERT_EQ(0, memwait_rwlock_rdlock(lock));
	timed.time = in_time(CLOCK_MONOTONIC, 20);
	runner_start(&writer, write_timed, &timed);
	runner_start(&reader, read_once, timed.shared);
	/* The first reader holds the lock during the whole test. */
	EXPECT_EQ(ETIMEDOUT, runner_join(&writer));
	EXPECT_EQ(0, runner_join(&reader));
	EXPECT_EQ(0, timed.shared->a);
	EXPECT_EQ(0, memwait_rwlock_unlock(lock));
	EXPECT_EQ(0, memwait_rwlock_destroy(lock));
}

/* Tickets record the order in which visitors acquired the lock. */
struct visitor {
	struct shared *shared;
	memwait_op_t op;
	bool writes;
	int *tickets;
	int ticket, error, done;
};

static void visit(memwait_op_t *op, int result, void *data)
{
	struct visitor *visitor = data;

	visitor->done = 1;
	visitor->error = result;
	if (result)
		return;
	visitor->ticket = __atomic_add_fetch(visitor->tickets, 1, __ATOMIC_ACQ_REL);
	if (visitor->writes)
		write_it(visitor->shared);
	else
		read_it(visitor->shared);
	visitor->error = memwait_rwlock_unlock(&visitor->shared->lock);
}

static int visit_as_thread(void *arg)
{
	struct visitor *visitor = arg;

	visit(NULL, visitor->writes ? memwait_rwlock_wrlock(&visitor->shared->lock) :
	      memwait_rwlock_rdlock(&visitor->shared->lock), visitor);
	return visitor->error;
}

USERLIB_TEST(R12_fair_operations_and_threads_enter_in_fifo_order)
{
	/* A reader that comes after a writer gets the lock after the writer. */
	static const bool writes[] = { false, true, true, false, true, false };
	struct visitor visitors[ARRAY_SIZE(writes)];
	struct runner runners[ARRAY_SIZE(writes)];
	int n = ARRAY_SIZE(writes), round, i, ret, tickets;
	struct shared *shared = self->shared;

	/*
	 * In the first round visitors with an even number are threads, in the second round those
	 * with an odd number.
	 */
	for (round = 0; round < 2; round++) {
		tickets = 0;
		ASSERT_EQ(0, memwait_rwlock_init(&shared->lock, MEMWAIT_RWLOCK_FAIR));
		ASSERT_EQ(0, memwait_rwlock_wrlock(&shared->lock));
		memset(visitors, 0, sizeof(visitors));
		for (i = 0; i < n; i++) {
			visitors[i].shared = shared;
			visitors[i].writes = writes[i];
			visitors[i].tickets = &tickets;
			memwait_op_init(&visitors[i].op, self->loop, visit, &visitors[i]);
			if (i % 2 == round) {
				runner_start(&runners[i], visit_as_thread, &visitors[i]);
			} else {
				ret = writes[i] ?
					memwait_rwlock_wrlock_async(&shared->lock,
								    &visitors[i].op) :
					memwait_rwlock_rdlock_async(&shared->lock,
								    &visitors[i].op);
				ASSERT_EQ(EINPROGRESS, ret);
			}
			await_waiters(self->fd, sleep_word(gate_of(&shared->lock),
							   MEMWAIT_RWLOCK_FAIR), 0, i + 1);
		}
		ASSERT_EQ(0, memwait_rwlock_unlock(&shared->lock));
		for (i = 0; i < n; i++) {
			if (i % 2 == round) {
				EXPECT_EQ(0, runner_join(&runners[i]));
			} else {
				ASSERT_EQ(0, dispatch_until(self->loop, &visitors[i].done, 1));
				EXPECT_EQ(0, visitors[i].error);
			}
		}
		/* No two readers are adjacent, so the position of each visitor is determined. */
		for (i = 0; i < n; i++)
			EXPECT_EQ(i + 1, visitors[i].ticket);
		EXPECT_EQ(0, shared->violations);
		EXPECT_EQ(0, memwait_rwlock_destroy(&shared->lock));
	}
}

/* Kinds that prefer readers. */
static const unsigned int preferring[] = {
	MEMWAIT_RWLOCK_PREFER_READER,
	MEMWAIT_RWLOCK_PREFER_READER | MEMWAIT_PRIVATE,
	MEMWAIT_RWLOCK_PREFER_READER | MEMWAIT_RWLOCK_ROBUST,
};

static void await_sleepers(const void *word, unsigned int kind, int n)
{
	spin_until(memwait_waiters(word, kind & MEMWAIT_PRIVATE) == n);
}

USERLIB_TEST(L0_a_thread_reads_several_times_while_writers_wait)
{
	struct counted_op reader = counted_by(&reader, self->loop);
	struct counted_op writer = counted_by(&writer, self->loop);
	struct shared *shared = self->shared;
	memwait_rwlock_t *lock = &shared->lock;
	struct runner writers[2], other;
	struct timespec time;
	size_t i;
	int n;

	for (i = 0; i < ARRAY_SIZE(preferring); i++) {
		memset(shared, 0, sizeof(*shared));
		writer.calls = 0;
		ASSERT_EQ(0, memwait_rwlock_init(lock, preferring[i]));
		ASSERT_EQ(0, memwait_rwlock_rdlock(lock));
		for (n = 0; n < 2; n++)
			runner_start(&writers[n], write_once, shared);
		ASSERT_EQ(EINPROGRESS, memwait_rwlock_wrlock_async(lock, &writer.op));
		await_sleepers(state_of(lock), preferring[i], 3);

		EXPECT_EQ(0, memwait_rwlock_rdlock(lock));
		EXPECT_EQ(0, memwait_rwlock_tryrdlock(lock));
		time = in_time(CLOCK_MONOTONIC, 3600 * 1000);
		EXPECT_EQ(0, memwait_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &time));
		EXPECT_EQ(0, memwait_rwlock_rdlock_async(lock, &reader.op));
		EXPECT_EQ(EBUSY, memwait_rwlock_trywrlock(lock));
		time = in_time(CLOCK_MONOTONIC, 10);
		EXPECT_EQ(ETIMEDOUT, memwait_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, &time));
		EXPECT_EQ(EBUSY, memwait_rwlock_destroy(lock));
		runner_start(&other, read_once, shared);
		EXPECT_EQ(0, runner_join(&other));

		/* The last unlock lets all writers in, one after another. */
		for (n = 0; n < 5; n++)
			EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		ASSERT_EQ(0, dispatch_until(self->loop, &writer.calls, 1));
		EXPECT_EQ(0, writer.result);
		EXPECT_EQ(EBUSY, memwait_rwlock_tryrdlock(lock));
		EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		for (n = 0; n < 2; n++)
			EXPECT_EQ(0, runner_join(&writers[n]));
		EXPECT_EQ(2, shared->a);
		EXPECT_EQ(0, shared->violations);
		EXPECT_EQ(EPERM, memwait_rwlock_unlock(lock));
		EXPECT_EQ(0, memwait_rwlock_destroy(lock));
	}
}

/* The reader sleeps at the gate, behind a writer that waits for readers. */
USERLIB_TEST(L0_a_reader_behind_a_waiting_writer_gets_in)
{
	struct counted_op writer = counted_by(&writer, self->loop);
	struct shared *shared = self->shared;
	memwait_rwlock_t *lock = &shared->lock;
	struct runner reader;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(preferring); i++) {
		memset(shared, 0, sizeof(*shared));
		writer.calls = 0;
		ASSERT_EQ(0, memwait_rwlock_init(lock, preferring[i]));
		ASSERT_EQ(0, memwait_rwlock_wrlock(lock));
		ASSERT_EQ(EINPROGRESS, memwait_rwlock_wrlock_async(lock, &writer.op));
		runner_start(&reader, read_once, shared);
		await_sleepers(gate_of(lock), preferring[i], 2);
		/* This unlock wakes the writer. */
		ASSERT_EQ(0, memwait_rwlock_unlock(lock));
		ASSERT_EQ(0, memwait_rwlock_rdlock(lock));
		EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		EXPECT_EQ(0, runner_join(&reader));
		EXPECT_EQ(0, writer.calls);
		EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		ASSERT_EQ(0, dispatch_until(self->loop, &writer.calls, 1));
		EXPECT_EQ(0, writer.result);
		EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		EXPECT_EQ(0, memwait_rwlock_destroy(lock));
	}
}

/* Writers that give up, are cancelled or die while they wait for readers leave nothing behind. */
USERLIB_TEST(L3_L7_a_writer_that_waits_for_preferred_readers_gives_up)
{
	struct counted_op late = counted_by(&late, self->loop);
	struct counted_op writer = counted_by(&writer, self->loop);
	struct shared *shared = self->shared;
	memwait_rwlock_t *lock = &shared->lock;
	struct timespec time;
	pid_t child;
	size_t i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(preferring); i++) {
		memset(shared, 0, sizeof(*shared));
		late.calls = 0;
		ASSERT_EQ(0, memwait_rwlock_init(lock, preferring[i]));
		ASSERT_EQ(0, memwait_rwlock_rdlock(lock));
		if (!(preferring[i] & MEMWAIT_PRIVATE)) {
			child = run_in_child(write_once(shared));
			await_sleepers(state_of(lock), preferring[i], 1);
			ASSERT_EQ(128 + SIGKILL, kill_child(child));
		}
		ASSERT_EQ(EINPROGRESS, memwait_rwlock_wrlock_async(lock, &writer.op));
		do {
			time = in_time(CLOCK_MONOTONIC, 20);
			ret = memwait_rwlock_clockwrlock_async(lock, CLOCK_MONOTONIC, &time,
							       &late.op);
		} while (ret == ETIMEDOUT);	/* the deadline has passed on a slow machine */
		ASSERT_EQ(EINPROGRESS, ret);
		ASSERT_EQ(0, dispatch_until(self->loop, &late.calls, 1));
		EXPECT_EQ(ETIMEDOUT, late.result);
		EXPECT_EQ(0, memwait_op_cancel(&writer.op));
		/* This writer has been woken. */
		ASSERT_EQ(EINPROGRESS, memwait_rwlock_wrlock_async(lock, &writer.op));
		EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		EXPECT_EQ(0, memwait_op_cancel(&writer.op));
		EXPECT_EQ(0, writer.calls);
		EXPECT_EQ(0, memwait_rwlock_trywrlock(lock));
		EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		EXPECT_EQ(0, memwait_rwlock_destroy(lock));
	}
}

TEST_HARNESS_MAIN
