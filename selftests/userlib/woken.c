// SPDX-License-Identifier: GPL-2.0
/* Waiters that die: the one that was woken, of each thing to wait for; and those at a barrier. */
#include "robust_test.h"

/* Something to wait for. */
struct thing {
	const char *name;
	unsigned int kind;
	int (*set_up)(struct board *board, unsigned int kind);
	int (*take)(struct board *board);	/* waits, at most half a minute */
	int (*give)(struct board *board);	/* wakes one */
};

static const struct timespec *at_last(void)
{
	static __thread struct timespec time;

	time = in_time(CLOCK_MONOTONIC, HALF_A_MINUTE);
	return &time;
}

#define BOARD_CALL(name, call)	ADAPTER(name, struct board *board, call)

static int set_up_mutex(struct board *board, unsigned int kind)
{
	return memwait_mutex_init(&board->mutex, kind) ?: memwait_mutex_lock(&board->mutex);
}

BOARD_CALL(take_mutex, memwait_mutex_clocklock(&board->mutex, CLOCK_MONOTONIC, at_last()))
BOARD_CALL(give_mutex, memwait_mutex_unlock(&board->mutex))

static int set_up_rwlock(struct board *board, unsigned int kind)
{
	return memwait_rwlock_init(&board->rwlock, kind) ?: memwait_rwlock_wrlock(&board->rwlock);
}

BOARD_CALL(take_rwlock, memwait_rwlock_clockwrlock(&board->rwlock, CLOCK_MONOTONIC, at_last()))
BOARD_CALL(take_to_read, memwait_rwlock_clockrdlock(&board->rwlock, CLOCK_MONOTONIC, at_last()))
BOARD_CALL(give_rwlock, memwait_rwlock_unlock(&board->rwlock))

static int set_up_sem(struct board *board, unsigned int kind)
{
	return memwait_sem_init(&board->sem, 0, 0);
}

BOARD_CALL(take_sem, memwait_sem_clockwait(&board->sem, CLOCK_MONOTONIC, at_last()))
BOARD_CALL(give_sem, memwait_sem_post(&board->sem))

/* Half of it is to be filled, and half of it is to be emptied. */
static memwait_channel_t *channel_of(struct board *board)
{
	return (memwait_channel_t *)board->channel;
}

static int set_up_channel(struct board *board, unsigned int full)
{
	const uint64_t item = 1;

	if (memwait_channel_init(channel_of(board), sizeof(board->channel), 0, sizeof(item), 1))
		return -1;
	return full ? memwait_channel_send(channel_of(board), &item, sizeof(item)) : 0;
}

static int receive(struct board *board)
{
	uint64_t item;

	return memwait_channel_clockrecv(channel_of(board), &item, sizeof(item), CLOCK_MONOTONIC,
					 at_last());
}

static int send_item(struct board *board)
{
	const uint64_t item = 1;

	return memwait_channel_clocksend(channel_of(board), &item, sizeof(item), CLOCK_MONOTONIC,
					 at_last());
}

static int set_up_cond(struct board *board, unsigned int kind)
{
	return memwait_mutex_init(&board->mutex, kind) ?: memwait_cond_init(&board->cond, 0);
}

static int wait_for_cond(struct board *board)
{
	int err = memwait_mutex_lock(&board->mutex);

	if (!err)
		err = memwait_cond_clockwait(&board->cond, &board->mutex, CLOCK_MONOTONIC,
					     at_last());
	return err ? err : memwait_mutex_unlock(&board->mutex);
}

BOARD_CALL(signal_cond, memwait_cond_signal(&board->cond))

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
 * The first of two that wait is woken, and stopped before it is back in its program: it has been
 * counted, and can do nothing for the other one. Then it is killed.
 */
ROBUST_TEST(L7_who_was_woken_dies)
{
	struct board *board = self->board;
	pid_t pids[2];
	size_t i;
	int j;

	for (i = 0; i < ARRAY_SIZE(things); i++) {
		const struct thing *thing = &things[i];

		memset(board, 0, sizeof(*board));
		ASSERT_EQ(0, thing->set_up(board, thing->kind));
		for (j = 0; j < 2; j++) {
			pids[j] = run_in_child(!j && pin(0) ? 100 : thing->take(board));
			await_asleep(pids[j]);
		}
		ASSERT_EQ(0, pin(20));
		EXPECT_EQ(0, thing->give(board));
		kill(pids[0], SIGSTOP);
		ASSERT_EQ(0, pin(0));
		sleep_until(strchr("TZ", thread_state(pids[0])));
		/* The scheduler has let it run: it gives ordinary threads a share now and then. */
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

/* Barriers: who died while it waited is not counted. */

static int meet(void *arg)
{
	struct board *board = arg;

	return memwait_barrier_clockwait(&board->barrier, CLOCK_MONOTONIC, at_last());
}

/* Who meets, and who of them saw that they have met. */
static bool met(int ret, int *serial)
{
	*serial += ret == MEMWAIT_BARRIER_SERIAL_THREAD;
	return !ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD;
}

ROBUST_TEST(L7_who_waits_at_a_barrier_dies)
{
	struct board *board = self->board;
	struct runner runners[2];
	struct timespec soon;
	int deaths, i, serial;
	pid_t pid;

	for (deaths = 1; deaths <= 3; deaths++) {
		ASSERT_EQ(0, memwait_barrier_init(&board->barrier, 0, 3));
		runner_start(&runners[0], meet, board);
		runner_await_asleep(&runners[0]);
		/* One after another, so that all who arrive are too many. */
		for (i = 0; i < deaths; i++) {
			pid = run_in_child(meet(board));
			await_asleep(pid);
			EXPECT_FALSE(runner_is_done(&runners[0]));
			EXPECT_EQ(128 + SIGKILL, kill_child(pid));
		}
		/* With this one they are two. */
		soon = in_time(CLOCK_MONOTONIC, 20);
		EXPECT_EQ(ETIMEDOUT, memwait_barrier_clockwait(&board->barrier, CLOCK_MONOTONIC,
							       &soon));
		EXPECT_FALSE(runner_is_done(&runners[0]));
		runner_start(&runners[1], meet, board);
		runner_await_asleep(&runners[1]);
		EXPECT_FALSE(runner_is_done(&runners[1]));
		serial = 0;
		EXPECT_TRUE(met(meet(board), &serial));
		for (i = 0; i < 2; i++)
			EXPECT_TRUE(met(runner_join(&runners[i]), &serial));
		EXPECT_EQ(1, serial);
	}
}

TEST_HARNESS_MAIN
