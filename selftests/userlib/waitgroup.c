// SPDX-License-Identifier: GPL-2.0
/* Wait groups: waiters continue when the count has been zero, even if only for a moment. */
#include "ioctl_test.h"
#include "userlib_test.h"

#define ROUNDS	SOME_OF(2000)
#define WORKERS	4

struct shared {
	memwait_waitgroup_t group;
	long work[WORKERS];
};

struct part {
	struct shared *shared;
	int number;
};

/* Waiters sleep on the count, which is the lower half of the first word. */
static const void *count_of(memwait_waitgroup_t *group)
{
	return group;
}

/*
 * Set in the thread that calls memwait_waitgroup_done() once too often, and in the waiter whose
 * return is delayed once.
 */
static __thread bool is_too_many, is_delayed;

/* State of the surplus memwait_waitgroup_done(). */
static struct {
	memwait_waitgroup_t *group;
	struct runner waiter;
	int has_changed;
} surplus;

static int intercept(int fd, unsigned long request, void *argument)
{
	int ret;

	if (is_too_many && request == MEMWAIT_IOC_CHANGE_NOTIFY) {
		is_too_many = false;
		/* The correct call comes first and wakes the waiter. */
		if (memwait_waitgroup_done(surplus.group))
			return -1;
		ret = ioctl_of_kernel(fd, request, argument);
		__atomic_store_n(&surplus.has_changed, 1, __ATOMIC_RELEASE);
		await_waiters_or_done(fd, count_of(surplus.group), U32_SIZE, 1,
				      &surplus.waiter.done);
		return ret;
	}
	ret = ioctl_of_kernel(fd, request, argument);
	if (is_delayed && request == MEMWAIT_IOC_WAIT) {
		is_delayed = false;
		spin_until(__atomic_load_n(&surplus.has_changed, __ATOMIC_ACQUIRE));
	}
	return ret;
}

static int wait_with_delay(void *arg)
{
	is_delayed = true;
	return memwait_waitgroup_wait(arg);
}

/* A waiter sees the effect of a surplus memwait_waitgroup_done() before the call undoes it. */
USERLIB_TEST(R1_a_surplus_done_stops_no_waiter)
{
	memwait_waitgroup_t *group = self->shared;

	surplus.group = group;
	ASSERT_EQ(0, memwait_waitgroup_add(group, 1));
	runner_start(&surplus.waiter, wait_with_delay, group);
	await_waiters(self->fd, count_of(group), U32_SIZE, 1);
	is_too_many = true;
	EXPECT_EQ(EINVAL, memwait_waitgroup_done(group));
	EXPECT_EQ(1, surplus.has_changed);
	EXPECT_EQ(0, memwait_notify(count_of(group), MEMWAIT_ALL, 0));
	EXPECT_EQ(0, runner_join(&surplus.waiter));
	EXPECT_EQ(0, memwait_waitgroup_destroy(group));
}

USERLIB_TEST(R5_a_wait_group_counts)
{
	memwait_waitgroup_t *group = self->shared;

	EXPECT_EQ(0, memwait_waitgroup_wait(group));
	EXPECT_EQ(EINVAL, memwait_waitgroup_done(group));
	EXPECT_EQ(0, memwait_waitgroup_add(group, 2));
	EXPECT_EQ(EBUSY, memwait_waitgroup_destroy(group));
	EXPECT_EQ(EINVAL, memwait_waitgroup_add(group, -3));
	EXPECT_EQ(EINVAL, memwait_waitgroup_add(group, INT32_MIN));
	EXPECT_EQ(EOVERFLOW, memwait_waitgroup_add(group, INT32_MAX));
	EXPECT_EQ(0, memwait_waitgroup_add(group, 0));
	EXPECT_EQ(0, memwait_waitgroup_done(group));
	EXPECT_EQ(0, memwait_waitgroup_add(group, -1));
	EXPECT_EQ(0, memwait_waitgroup_wait(group));
	EXPECT_EQ(0, memwait_waitgroup_destroy(group));
	EXPECT_EQ(EINVAL, memwait_waitgroup_init(group, 0, MEMWAIT_WAITGROUP_MAX + 1U));
	EXPECT_EQ(EINVAL, memwait_waitgroup_init(NULL, 0, 0));
	EXPECT_EQ(EINVAL, memwait_waitgroup_add(NULL, 1));
	EXPECT_EQ(EINVAL, memwait_waitgroup_wait(NULL));
	EXPECT_EQ(EINVAL, memwait_waitgroup_destroy(NULL));
	EXPECT_EQ(EINVAL, memwait_waitgroup_wait_async(NULL, NULL));
}

static int work_and_be_done(void *arg)
{
	struct part *part = arg;

	part->shared->work[part->number] += part->number + 1;
	return memwait_waitgroup_done(&part->shared->group);
}

/* The results of the work are in plain memory, and are visible to threads that have waited. */
USERLIB_TEST(R1_a_wait_group_waits_for_threads_and_processes)
{
	struct shared *shared = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner runners[3];
	struct part parts[4];
	int round, ret, i;
	pid_t child = -1;

	for (round = 1; more_rounds(round, ROUNDS / 4); round++) {
		ASSERT_EQ(0, memwait_waitgroup_add(&shared->group, 3));
		for (i = 0; i < 3; i++) {
			parts[i] = (struct part){ shared, i };
			runner_start(&runners[i], work_and_be_done, &parts[i]);
		}
		if (round % 32 == 1) {
			ASSERT_EQ(0, memwait_waitgroup_add(&shared->group, 1));
			child = fork_child();
			parts[3] = (struct part){ shared, 3 };
			if (!child)
				_exit(work_and_be_done(&parts[3]));
		}
		if (round % 2) {
			ASSERT_EQ(0, memwait_waitgroup_wait(&shared->group));
		} else {
			counted.calls = 0;
			ret = memwait_waitgroup_wait_async(&shared->group, &counted.op);
			if (ret == EINPROGRESS) {
				ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
				ret = counted.result;
			}
			ASSERT_EQ(0, ret);
		}
		for (i = 0; i < 3; i++)
			ASSERT_EQ((i + 1L) * round, shared->work[i]);
		for (i = 0; i < 3; i++)
			ASSERT_EQ(0, runner_join(&runners[i]));
		if (round % 32 == 1) {
			ASSERT_EQ(0, child_status(child));
		}
		ASSERT_EQ(0, memwait_waitgroup_destroy(&shared->group));
	}
}

USERLIB_TEST(R1_waiters_continue_although_the_count_rises_again)
{
	memwait_waitgroup_t *group = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner runners[3];
	int i;

	ASSERT_EQ(0, memwait_waitgroup_add(group, 1));
	for (i = 0; i < 3; i++)
		runner_start(&runners[i], memwait_waitgroup_wait, group);
	await_waiters(self->fd, group, U32_SIZE, 3);
	ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(group, &counted.op));
	ASSERT_EQ(0, memwait_waitgroup_done(group));
	ASSERT_EQ(0, memwait_waitgroup_add(group, 1));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, runner_join(&runners[i]));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	EXPECT_EQ(0, memwait_waitgroup_done(group));
}

/*
 * The same waiters wait in several rounds, in two processes that map the groups at different
 * addresses.
 */
struct crossing {
	memwait_waitgroup_t group, back;
	int rounds, violations;
};

static int wait_and_answer(struct crossing *crossing)
{
	int i, err;

	for (i = 1; i <= ROUNDS; i++) {
		err = memwait_waitgroup_wait(&crossing->group);
		if (err)
			return 1;
		if (__atomic_load_n(&crossing->rounds, __ATOMIC_RELAXED) != i)
			__atomic_add_fetch(&crossing->violations, 1, __ATOMIC_RELAXED);
		/* Start the next round before the other process knows that this one has ended. */
		if (memwait_waitgroup_add(&crossing->group, 1) ||
		    memwait_waitgroup_done(&crossing->back))
			return 2;
	}
	return 0;
}

USERLIB_TEST(R8_processes_that_map_it_at_different_addresses)
{
	int memfd = new_file(4096), i, ret;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct crossing *crossing;
	pid_t child;

	crossing = map_shared(memfd, 4096);
	ASSERT_EQ(0, memwait_waitgroup_init(&crossing->group, 0, 1));
	child = run_remapped(memfd, crossing, CALL(wait_and_answer));
	for (i = 1; i <= ROUNDS; i++) {
		ASSERT_EQ(0, memwait_waitgroup_add(&crossing->back, 1));
		__atomic_store_n(&crossing->rounds, i, __ATOMIC_RELAXED);
		ASSERT_EQ(0, memwait_waitgroup_done(&crossing->group));
		if (i % 2) {
			ASSERT_EQ(0, memwait_waitgroup_wait(&crossing->back));
			continue;
		}
		counted.calls = 0;
		ret = memwait_waitgroup_wait_async(&crossing->back, &counted.op);
		if (ret == EINPROGRESS) {
			ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
			ret = counted.result;
		}
		ASSERT_EQ(0, ret);
	}
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(0, crossing->violations);
	EXPECT_EQ(0, memwait_waitgroup_destroy(&crossing->back));
	EXPECT_EQ(EBUSY, memwait_waitgroup_destroy(&crossing->group));
	munmap(crossing, 4096);
	close(memfd);
}

USERLIB_TEST(R2_the_largest_count)
{
	memwait_waitgroup_t initialised = MEMWAIT_WAITGROUP_INIT;
	memwait_waitgroup_t *group = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);

	EXPECT_EQ(0, memcmp(&initialised, group, sizeof(*group)));
	ASSERT_EQ(0, memwait_waitgroup_init(group, 0, MEMWAIT_WAITGROUP_MAX));
	EXPECT_EQ(EOVERFLOW, memwait_waitgroup_add(group, 1));
	/* A waiter does not change that limit. */
	ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(group, &counted.op));
	EXPECT_EQ(EBUSY, memwait_waitgroup_wait_async(group, &counted.op));
	EXPECT_EQ(EOVERFLOW, memwait_waitgroup_add(group, INT32_MAX));
	EXPECT_EQ(EINVAL, memwait_waitgroup_add(group, INT32_MIN));
	EXPECT_EQ(0, memwait_waitgroup_add(group, 1 - MEMWAIT_WAITGROUP_MAX));
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(EINVAL, memwait_waitgroup_add(group, -2));
	EXPECT_EQ(EBUSY, memwait_waitgroup_destroy(group));
	EXPECT_EQ(0, memwait_waitgroup_done(group));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	EXPECT_EQ(EINVAL, memwait_waitgroup_done(group));
	EXPECT_EQ(0, memwait_waitgroup_wait_async(group, &counted.op));
	EXPECT_EQ(0, memwait_waitgroup_destroy(group));
}

/*
 * The count rises immediately after it was zero, repeatedly. A count that is zero for a moment
 * releases all waiters.
 */
USERLIB_TEST(R1_a_count_that_rises_immediately_stops_no_waiter)
{
	memwait_waitgroup_t *group = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner runners[2];
	int round, i;

	ASSERT_EQ(0, memwait_waitgroup_init(group, 0, 1));
	for (round = 0; more_rounds(round, ROUNDS / 2); round++) {
		counted.calls = 0;
		for (i = 0; i < 2; i++)
			runner_start(&runners[i], memwait_waitgroup_wait, group);
		ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(group, &counted.op));
		await_waiters(self->fd, count_of(group), U32_SIZE, 3);
		ASSERT_EQ(0, memwait_waitgroup_done(group));
		ASSERT_EQ(0, memwait_waitgroup_add(group, 1));
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, runner_join(&runners[i]));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		ASSERT_EQ(0, counted.result);
		ASSERT_EQ(EBUSY, memwait_waitgroup_destroy(group));
	}
}

TEST_HARNESS_MAIN
