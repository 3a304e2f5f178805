// SPDX-License-Identifier: GPL-2.0
/* Read-write locks: readers together, writers alone, nobody for ever outside. */
#include "userlib_test.h"

#define ROUNDS	(getenv("MEMWAIT_LOADS") ? 200 : 2000)

struct shared {
	memwait_rwlock_t lock;
	int readers, writers, violations, most_readers;
	long a, b;
	int stop, begin;
};

static void read_it(struct shared *shared)
{
	int readers = __atomic_add_fetch(&shared->readers, 1, __ATOMIC_ACQ_REL);

	if (__atomic_load_n(&shared->writers, __ATOMIC_ACQUIRE) || shared->a != shared->b)
		__atomic_add_fetch(&shared->violations, 1, __ATOMIC_RELAXED);
	if (readers > shared->most_readers)
		__atomic_store_n(&shared->most_readers, readers, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&shared->readers, 1, __ATOMIC_ACQ_REL);
}

static void write_it(struct shared *shared)
{
	if (__atomic_add_fetch(&shared->writers, 1, __ATOMIC_ACQ_REL) != 1 ||
	    __atomic_load_n(&shared->readers, __ATOMIC_ACQUIRE))
		__atomic_add_fetch(&shared->violations, 1, __ATOMIC_RELAXED);
	shared->a++;
	shared->b++;
	__atomic_sub_fetch(&shared->writers, 1, __ATOMIC_ACQ_REL);
}

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

	(void)op;
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

USERLIB_TEST(threads_processes_and_a_loop)
{
	int memfd = memfd_create("rwlock", MFD_CLOEXEC), i, ret;
	struct user_op users[2] = { 0 };
	struct runner runners[2];
	struct shared *shared;
	pid_t children[2];

	ASSERT_EQ(0, ftruncate(memfd, 4096));
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	ASSERT_NE(MAP_FAILED, shared);
	for (i = 0; i < 2; i++) {
		children[i] = fork();
		ASSERT_LE(0, children[i]);
		if (!children[i]) {
			void *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd,
					   0);

			munmap(shared, 4096);
			_exit(use_often(other));
		}
	}
	for (i = 0; i < 2; i++)
		runner_start(&runners[i], use_often, shared);
	for (i = 0; i < 2; i++) {
		users[i].shared = shared;
		memwait_op_init(&users[i].op, self->loop, use_by_callback, &users[i]);
		ret = begin_use(&users[i]);
		if (ret != EINPROGRESS)
			use_by_callback(&users[i].op, ret, &users[i]);
	}
	ASSERT_EQ(0, memwait_loop_run(self->loop));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, runner_join(&runners[i]));
		EXPECT_EQ(0, userlib_child_status(children[i]));
		EXPECT_EQ(0, users[i].error);
	}
	EXPECT_EQ(6L * ROUNDS / 5, shared->a);
	EXPECT_EQ(0, shared->violations);
	EXPECT_EQ(EPERM, memwait_rwlock_unlock(&shared->lock));
	EXPECT_EQ(0, memwait_rwlock_destroy(&shared->lock));
	munmap(shared, 4096);
	close(memfd);
}

USERLIB_TEST(try_and_errors)
{
	memwait_rwlock_t *lock = self->shared;

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
	EXPECT_EQ(EINVAL, memwait_rwlock_init(NULL, 0));
	EXPECT_EQ(EINVAL, memwait_rwlock_rdlock(NULL));
	EXPECT_EQ(EINVAL, memwait_rwlock_tryrdlock(NULL));
	EXPECT_EQ(EINVAL, memwait_rwlock_wrlock(NULL));
	EXPECT_EQ(EINVAL, memwait_rwlock_trywrlock(NULL));
	EXPECT_EQ(EINVAL, memwait_rwlock_unlock(NULL));
	EXPECT_EQ(EINVAL, memwait_rwlock_destroy(NULL));
	EXPECT_EQ(EINVAL, memwait_rwlock_rdlock_async(NULL, NULL));
	EXPECT_EQ(EINVAL, memwait_rwlock_wrlock_async(lock, NULL));
}

USERLIB_TEST(times)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	memwait_rwlock_t *lock = self->shared;
	struct counted_op counted = { 0 };
	struct timespec time;
	int i, writer, ret;

	memwait_op_init(&counted.op, self->loop, count_call, &counted);
	/* Held by a writer, then by a reader, who only keeps writers out. */
	for (writer = 1; writer >= 0; writer--) {
		ASSERT_EQ(0, writer ? memwait_rwlock_wrlock(lock) : memwait_rwlock_rdlock(lock));
		for (i = 0; i < 2; i++) {
			time = in_time(clocks[i], 10);
			EXPECT_EQ(ETIMEDOUT, memwait_rwlock_clockwrlock(lock, clocks[i], &time));
			if (writer) {
				EXPECT_EQ(ETIMEDOUT,
					  memwait_rwlock_clockrdlock(lock, clocks[i], &time));
			}
			counted.calls = 0;
			time = in_time(clocks[i], 10);
			ret = memwait_rwlock_clockwrlock_async(lock, clocks[i], &time,
							       &counted.op);
			if (ret == EINPROGRESS) {
				ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
				ret = counted.result;
			}
			EXPECT_EQ(ETIMEDOUT, ret);
			time = (struct timespec){ 0, -1 };
			EXPECT_EQ(EINVAL, memwait_rwlock_clockwrlock(lock, clocks[i], &time));
		}
		time = in_time(CLOCK_REALTIME, -1);
		EXPECT_EQ(ETIMEDOUT, memwait_rwlock_timedwrlock(lock, &time));
		if (writer) {
			EXPECT_EQ(ETIMEDOUT, memwait_rwlock_timedrdlock(lock, &time));
			EXPECT_EQ(ETIMEDOUT, memwait_rwlock_clockrdlock_async(lock, CLOCK_REALTIME,
									      &time,
									      &counted.op));
		} else {
			/* A writer that has given up lets readers in again. */
			EXPECT_EQ(0, memwait_rwlock_tryrdlock(lock));
			EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		}
		ASSERT_EQ(0, memwait_rwlock_unlock(lock));
		ASSERT_EQ(0, memwait_rwlock_destroy(lock));
	}
}

static int write_once(void *arg)
{
	struct shared *shared = arg;
	int err = memwait_rwlock_wrlock(&shared->lock);

	if (err)
		return err;
	write_it(shared);
	return memwait_rwlock_unlock(&shared->lock);
}

static int read_once(void *arg)
{
	struct shared *shared = arg;
	int err = memwait_rwlock_rdlock(&shared->lock);

	if (err)
		return err;
	read_it(shared);
	return memwait_rwlock_unlock(&shared->lock);
}

USERLIB_TEST(a_waiting_writer_comes_before_later_readers)
{
	struct shared *shared = self->shared;
	struct runner writer, reader;

	ASSERT_EQ(0, memwait_rwlock_rdlock(&shared->lock));
	runner_start(&writer, write_once, shared);
	/* The writer sleeps on the state, which is the second word. */
	await_waiters(self->fd, (uint32_t *)&shared->lock + 1, U32_SIZE, 1);
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

static int read_on_and_on(void *arg)
{
	struct shared *shared = arg;

	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE))
		if (read_once(shared))
			return -1;
	return 0;
}

static int write_on_and_on(void *arg)
{
	struct shared *shared = arg;

	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE))
		if (write_once(shared))
			return -1;
	return 0;
}

USERLIB_TEST(neither_readers_nor_writers_starve)
{
	struct shared *shared = self->shared;
	struct runner busy[3];
	int writers, i;

	for (writers = 0; writers < 2; writers++) {
		memset(shared, 0, sizeof(*shared));
		for (i = 0; i < 3; i++)
			runner_start(&busy[i], writers ? write_on_and_on : read_on_and_on, shared);
		for (i = 0; i < 200; i++)
			ASSERT_EQ(0, writers ? read_once(shared) : write_once(shared));
		__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
		for (i = 0; i < 3; i++)
			EXPECT_EQ(0, runner_join(&busy[i]));
		EXPECT_EQ(0, shared->violations);
	}
}

USERLIB_TEST(readers_are_inside_together)
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

static int unlock_at_once(void *arg)
{
	struct shared *shared = arg;

	while (!__atomic_load_n(&shared->begin, __ATOMIC_ACQUIRE))
		;
	return memwait_rwlock_unlock(&shared->lock);
}

/* Readers and writers that are cancelled at the gate, or waiting for readers to leave. */
USERLIB_TEST(L3_cancel_races_with_unlock)
{
	struct shared *shared = self->shared;
	struct counted_op counted = { 0 };
	struct runner unlocker, behind;
	int round, held, wanted, ret, taken_back = 0;

	for (round = 0; round < ROUNDS; round++) {
		memset(shared, 0, sizeof(*shared));
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		held = round % 2;
		wanted = round / 2 % 2;
		if (held) {
			ASSERT_EQ(0, memwait_rwlock_wrlock(&shared->lock));
		} else {
			ASSERT_EQ(0, memwait_rwlock_rdlock(&shared->lock));
		}
		ret = wanted || !held ?
			memwait_rwlock_wrlock_async(&shared->lock, &counted.op) :
			memwait_rwlock_rdlock_async(&shared->lock, &counted.op);
		ASSERT_EQ(EINPROGRESS, ret);
		runner_start(&behind, round % 3 ? write_once : read_once, shared);
		await_waiters(self->fd, &shared->lock, U32_SIZE, held ? 2 : 1);
		runner_start(&unlocker, unlock_at_once, shared);
		__atomic_store_n(&shared->begin, 1, __ATOMIC_RELEASE);
		if (round % 5 > 2)
			memwait_loop_dispatch(self->loop);
		if (!memwait_op_cancel(&counted.op)) {
			taken_back++;
			ASSERT_EQ(0, counted.calls);
		} else {
			ASSERT_EQ(1, counted.calls);
			ASSERT_EQ(0, counted.result);
			ASSERT_EQ(0, memwait_rwlock_unlock(&shared->lock));
		}
		ASSERT_EQ(0, runner_join(&unlocker));
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, shared->violations);
		ASSERT_EQ(0, memwait_rwlock_destroy(&shared->lock));
	}
	EXPECT_LT(0, taken_back);
	TH_LOG("%d of %d taken back", taken_back, round);
}

USERLIB_TEST(a_writer_that_is_killed_while_it_waits_for_the_gate)
{
	struct shared *shared = self->shared;
	struct runner behind;
	pid_t child;
	int i;

	for (i = 0; i < 20; i++) {
		memset(shared, 0, sizeof(*shared));
		ASSERT_EQ(0, memwait_rwlock_wrlock(&shared->lock));
		child = fork();
		ASSERT_LE(0, child);
		if (!child)
			_exit(write_once(shared));
		await_waiters(self->fd, &shared->lock, U32_SIZE, 1);
		runner_start(&behind, write_once, shared);
		await_waiters(self->fd, &shared->lock, U32_SIZE, 2);
		kill(child, SIGKILL);
		ASSERT_EQ(128 + SIGKILL, userlib_child_status(child));
		ASSERT_EQ(0, memwait_rwlock_unlock(&shared->lock));
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, memwait_rwlock_destroy(&shared->lock));
	}
}

TEST_HARNESS_MAIN
