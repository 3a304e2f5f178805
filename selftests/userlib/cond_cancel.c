// SPDX-License-Identifier: GPL-2.0
/* L3, L5: who is cancelled at a condition variable passes the signal on, and has the mutex. */
#include "cond_test.h"

USERLIB_TEST(L3_cancel_at_every_stage_passes_the_signal_on)
{
	struct monitor *monitor = self->shared;
	struct standing first, behind;
	unsigned int fair;
	int stage;

	for (fair = 0; fair <= MEMWAIT_MUTEX_FAIR; fair += MEMWAIT_MUTEX_FAIR) {
		for (stage = 0; stage < 4; stage++) {
			monitor_init(monitor, fair);
			first = (struct standing){ .monitor = monitor, .number = 1 };
			behind = (struct standing){ .monitor = monitor, .number = 2 };
			ASSERT_EQ(EINPROGRESS, stand_with_loop(&first, self->loop));
			runner_start(&behind.runner, stand_in_line, &behind);
			await_sleeping(self->fd, monitor, 2);
			switch (stage) {
			case 0:	/* waits for the signal */
				break;
			case 1:	/* has it, but was not dispatched */
				ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
				break;
			case 2:	/* waits for the mutex */
			case 3:	/* has it, but was not dispatched */
				ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
				ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
				ASSERT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
				await_waiters(self->fd, sleep_word(&monitor->mutex, fair), 0, 1);
				if (stage == 3) {
					ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
				}
				break;
			}
			ASSERT_EQ(0, memwait_op_cancel(&first.op));
			ASSERT_EQ(-ENOENT, memwait_op_cancel(&first.op));
			if (stage == 0) {
				ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
			}
			if (stage == 2) {
				ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
			}
			EXPECT_EQ(0, runner_join(&behind.runner));
			EXPECT_EQ(0, first.called);
			EXPECT_EQ(0, memwait_loop_pending(self->loop));
			EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
			EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
		}
	}
}

USERLIB_TEST(L3_cancel_races_with_signal)
{
	struct monitor *monitor = self->shared;
	struct standing first, behind;
	struct runner signaller;
	int round, taken_back = 0, called = 0;

	for (round = 0; more_rounds(round, ROUNDS) || !taken_back; round++) {
		monitor_init(monitor, round % 2 ? MEMWAIT_MUTEX_FAIR : 0);
		first = (struct standing){ .monitor = monitor, .number = 1 };
		behind = (struct standing){ .monitor = monitor, .number = 2 };
		ASSERT_EQ(EINPROGRESS, stand_with_loop(&first, self->loop));
		runner_start(&behind.runner, stand_in_line, &behind);
		await_sleeping(self->fd, monitor, 2);
		runner_race(&signaller, memwait_cond_signal, &monitor->cond);
		if (round % 3)
			memwait_loop_dispatch(self->loop, MEMWAIT_ALL);
		if (!memwait_op_cancel(&first.op)) {
			/* The one signal is for the one that is left. */
			taken_back++;
			ASSERT_EQ(0, first.called);
		} else {
			called++;
			ASSERT_EQ(1, first.called);
			ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		}
		ASSERT_EQ(0, runner_join(&signaller));
		ASSERT_EQ(0, runner_join(&behind.runner));
		ASSERT_EQ(0, memwait_cond_destroy(&monitor->cond));
		ASSERT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
	TH_LOG("%d taken back, %d called back", taken_back, called);
}

USERLIB_TEST(L5_a_cancelled_thread_has_the_mutex_in_its_handler)
{
	struct monitor *monitor = self->shared;
	struct runner runner;

	monitor_init(monitor, MEMWAIT_MUTEX_ERRORCHECK);
	runner_start(&runner, wait_to_be_cancelled, monitor);
	await_sleeping(self->fd, monitor, 1);
	ASSERT_EQ(0, pthread_cancel(runner.thread));
	pthread_join(runner.thread, NULL);
	EXPECT_EQ(0, runner.done);
	EXPECT_EQ(1, monitor->locked_in_handler);
	EXPECT_EQ(0, memwait_mutex_trylock(&monitor->mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
}

USERLIB_TEST(L5_cancellation_races_with_signal)
{
	struct monitor *monitor = self->shared;
	struct runner cancelled, behind, signaller;
	int round, were_cancelled = 0;

	for (round = 0; more_rounds(round, ROUNDS) || !were_cancelled; round++) {
		monitor_init(monitor, MEMWAIT_MUTEX_ERRORCHECK |
			     (round % 2 ? MEMWAIT_MUTEX_FAIR : 0));
		runner_start(&cancelled, wait_to_be_cancelled, monitor);
		if (round % 4)
			await_sleeping(self->fd, monitor, 1);
		else
			await_waiting(monitor, 1);
		runner_start(&behind, take_ticket, monitor);
		await_waiting(monitor, 2);
		give_tickets(monitor, 1);
		runner_race(&signaller, memwait_cond_signal, &monitor->cond);
		ASSERT_EQ(0, pthread_cancel(cancelled.thread));
		pthread_join(cancelled.thread, NULL);
		ASSERT_EQ(0, runner_join(&signaller));
		if (cancelled.done) {
			/* It has taken the ticket: here is one for the other. */
			give_tickets(monitor, 1);
			ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
		} else {
			were_cancelled++;
			ASSERT_EQ(1, monitor->locked_in_handler);
		}
		ASSERT_EQ(0, runner_join(&behind));
		ASSERT_EQ(0, monitor->tickets);
		ASSERT_EQ(0, memwait_cond_destroy(&monitor->cond));
		ASSERT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
	TH_LOG("%d of %d cancelled", were_cancelled, round);
}

TEST_HARNESS_MAIN
