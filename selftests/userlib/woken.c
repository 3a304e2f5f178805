// SPDX-License-Identifier: GPL-2.0
/* Waiters that die after they were woken, for each object, and waiters that die at a barrier. */
#include "robust_test.h"

/* An object that a thread can wait for. */
struct thing {
	const char *name;
	unsigned int kind;
	int (*set_up)(struct shared *shared, unsigned int kind);
	int (*take)(struct shared *shared);	/* waits, for at most half a minute */
	int (*give)(struct shared *shared);	/* wakes one waiter */
};

static const struct timespec *deadline(void)
{
	static __thread struct timespec time;

	time = in_time(CLOCK_MONOTONIC, HALF_A_MINUTE);
	return &time;
}

#define SHARED_CALL(name, call)	ADAPTER(name, struct shared *shared, call)

static int set_up_mutex(struct shared *shared, unsigned int kind)
{
	return memwait_mutex_init(&shared->mutex, kind) ?: memwait_mutex_lock(&shared->mutex);
}

SHARED_CALL(take_mutex, memwait_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, deadline()))
SHARED_CALL(give_mutex, memwait_mutex_unlock(&shared->mutex))

static int set_up_rwlock(struct shared *shared, unsigned int kind)
{
	return memwait_rwlock_init(&shared->rwlock, kind) ?: memwait_rwlock_wrlock(&shared->rwlock);
}

SHARED_CALL(take_rwlock, memwait_rwlock_clockwrlock(&shared->rwlock, CLOCK_MONOTONIC, deadline()))
SHARED_CALL(take_to_read, memwait_rwlock_clockrdlock(&shared->rwlock, CLOCK_MONOTONIC, deadline()))
SHARED_CALL(give_rwlock, memwait_rwlock_unlock(&shared->rwlock))

static int set_up_sem(struct shared *shared, unsigned int kind)
{
	return memwait_sem_init(&shared->sem, 0, 0);
}

SHARED_CALL(take_sem, memwait_sem_clockwait(&shared->sem, CLOCK_MONOTONIC, deadline()))
SHARED_CALL(give_sem, memwait_sem_post(&shared->sem))

/* The channel is empty in one half of the cases, and full in the other half. */
static memwait_channel_t *channel_of(struct shared *shared)
{
	return (memwait_channel_t *)shared->channel;
}

static int set_up_channel(struct shared *shared, unsigned int full)
{
	const uint64_t item = 1;

	if (memwait_channel_init(channel_of(shared), sizeof(shared->channel), 0, sizeof(item), 1))
		return -1;
	return full ? memwait_channel_send(channel_of(shared), &item, sizeof(item)) : 0;
}

static int receive(struct shared *shared)
{
	uint64_t item;

	return memwait_channel_clockrecv(channel_of(shared), &item, sizeof(item), CLOCK_MONOTONIC,
					 deadline());
}

static int send_item(struct shared *shared)
{
	const uint64_t item = 1;

	return memwait_channel_clocksend(channel_of(shared), &item, sizeof(item), CLOCK_MONOTONIC,
					 deadline());
}

static int set_up_cond(struct shared *shared, unsigned int kind)
{
	return memwait_mutex_init(&shared->mutex, kind) ?: memwait_cond_init(&shared->cond, 0);
}

static int wait_for_cond(struct shared *shared)
{
	int err = memwait_mutex_lock(&shared->mutex);

	if (!err)
		err = memwait_cond_clockwait(&shared->cond, &shared->mutex, CLOCK_MONOTONIC,
					     deadline());
	return err ? err : memwait_mutex_unlock(&shared->mutex);
}

SHARED_CALL(signal_cond, memwait_cond_signal(&shared->cond))

static const struct thing things[] = {
	{ "mutex", MEMWAIT_MUTEX_NORMAL, set_up_mutex, take_mutex, give_mutex },
	{ "recursive mutex", MEMWAIT_MUTEX_RECURSIVE, set_up_mutex, take_mutex, give_mutex },
	{ "robust mutex", MEMWAIT_MUTEX_ROBUST, set_up_mutex, take_mutex, give_mutex },
	{ "rwlock, writers", 0, set_up_rwlock, take_rwlock, give_rwlock },
	{ "rwlock, readers", 0, set_up_rwlock, take_to_read, give_rwlock },
	{ "robust rwlock", MEMWAIT_RWLOCK_ROBUST, set_up_rwlock, take_rwlock, give_rwlock },
	{ "semaphore", 0, set_up_sem, take_sem, give_sem },
	{ "channel, receivers", 0, set_up_channel, receive, send_item },
	{ "channel, senders", 1, set_up_channel, send_item, receive },
	{ "condition", MEMWAIT_MUTEX_NORMAL, set_up_cond, wait_for_cond, signal_cond },
	{ "condition, robust", MEMWAIT_MUTEX_ROBUST, set_up_cond, wait_for_cond, signal_cond },
};

/*
 * The first of two waiters is woken and is stopped before it returns to its program. The notify has
 * counted this waiter, which can do nothing for the second waiter. Then the first waiter is killed.
 */
ROBUST_TEST(L7_a_woken_waiter_dies)
{
	struct shared *shared = self->shared;
	pid_t pids[2];
	size_t i;
	int j;

	for (i = 0; i < ARRAY_SIZE(things); i++) {
		const struct thing *thing = &things[i];

		memset(shared, 0, sizeof(*shared));
		ASSERT_EQ(0, thing->set_up(shared, thing->kind));
		for (j = 0; j < 2; j++) {
			pids[j] = run_in_child(!j && pin(0) ? 100 : thing->take(shared));
			await_asleep(pids[j]);
		}
		ASSERT_EQ(0, pin(20));
		EXPECT_EQ(0, thing->give(shared));
		kill(pids[0], SIGSTOP);
		ASSERT_EQ(0, pin(0));
		sleep_until(strchr("TZ", thread_state(pids[0])));
		/*
		 * The process has already ended: the scheduler occasionally gives ordinary threads
		 * a time slice, in spite of real-time threads.
		 */
		if (thread_state(pids[0]) == 'Z') {
			for (j = 0; j < 2; j++)
				kill_child(pids[j]);
			i--;
			continue;
		}
		EXPECT_EQ('S', thread_state(pids[1]));
		EXPECT_EQ(128 + SIGKILL, kill_child(pids[0]));
		EXPECT_EQ(0, child_status(pids[1])) {
			TH_LOG("%s", thing->name);
		}
	}
}

/* Barriers: a participant that died while it waited is not counted. */

static int meet(void *arg)
{
	struct shared *shared = arg;

	return memwait_barrier_clockwait(&shared->barrier, CLOCK_MONOTONIC, deadline());
}

/* Returns whether a call returned because all had arrived. Counts SERIAL_THREAD. */
static bool met(int ret, int *serial)
{
	*serial += ret == MEMWAIT_BARRIER_SERIAL_THREAD;
	return !ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD;
}

ROBUST_TEST(L7_a_waiter_at_a_barrier_dies)
{
	struct shared *shared = self->shared;
	struct runner runners[2];
	struct timespec soon;
	int deaths, i, serial;
	pid_t pid;

	for (deaths = 1; deaths <= 3; deaths++) {
		ASSERT_EQ(0, memwait_barrier_init(&shared->barrier, 0, 3));
		runner_start(&runners[0], meet, shared);
		runner_await_asleep(&runners[0]);
		/*
		 * The processes arrive one after another. In total, more processes arrive than the
		 * barrier takes.
		 */
		for (i = 0; i < deaths; i++) {
			pid = run_in_child(meet(shared));
			await_asleep(pid);
			EXPECT_FALSE(runner_is_done(&runners[0]));
			EXPECT_EQ(128 + SIGKILL, kill_child(pid));
		}
		/* This is only the second living participant, so its wait times out. */
		soon = in_time(CLOCK_MONOTONIC, 20);
		EXPECT_EQ(ETIMEDOUT, memwait_barrier_clockwait(&shared->barrier, CLOCK_MONOTONIC,
							       &soon));
		EXPECT_FALSE(runner_is_done(&runners[0]));
		runner_start(&runners[1], meet, shared);
		runner_await_asleep(&runners[1]);
		EXPECT_FALSE(runner_is_done(&runners[1]));
		serial = 0;
		EXPECT_TRUE(met(meet(shared), &serial));
		for (i = 0; i < 2; i++)
			EXPECT_TRUE(met(runner_join(&runners[i]), &serial));
		EXPECT_EQ(1, serial);
	}
}

TEST_HARNESS_MAIN
