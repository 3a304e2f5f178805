// SPDX-License-Identifier: GPL-2.0
/* L3, L5: a waiter for a condition that is cancelled passes the signal on, and holds the mutex. */
#include "cond_test.h"
#include "death_test.h"

USERLIB_TEST(L3_cancel_in_any_state_passes_the_signal_on)
{
	struct monitor *monitor = self->shared;
	struct queued first, behind;
	unsigned int fair;
	int state;

	for (fair = 0; fair <= MEMWAIT_MUTEX_FAIR; fair += MEMWAIT_MUTEX_FAIR) {
		for (state = 0; state < 4; state++) {
			monitor_init(monitor, fair);
			first = (struct queued){ .monitor = monitor, .number = 1 };
			behind = (struct queued){ .monitor = monitor, .number = 2 };
			ASSERT_EQ(EINPROGRESS, queue_by_loop(&first, self->loop));
			runner_start(&behind.runner, wait_in_queue, &behind);
			await_sleeping(self->fd, monitor, 2);
			switch (state) {
			case 0:	/* waits for the signal */
				break;
			case 1:	/* was signalled, but has not been dispatched */
				ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
				break;
			case 2:	/* waits for the mutex */
			case 3:	/* holds the mutex, but has not been dispatched */
				ASSERT_EQ(0, memwait_mutex_lock(&monitor->mutex));
				ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
				ASSERT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
				await_waiters(self->fd, sleep_word(&monitor->mutex, fair), 0, 1);
				if (state == 3) {
					ASSERT_EQ(0, memwait_mutex_unlock(&monitor->mutex));
				}
				break;
			}
			ASSERT_EQ(0, memwait_op_cancel(&first.op));
			ASSERT_EQ(-ENOENT, memwait_op_cancel(&first.op));
			if (state == 0) {
				ASSERT_EQ(0, memwait_cond_signal(&monitor->cond));
			}
			if (state == 2) {
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
	struct queued first, behind;
	struct runner signaller;
	int round, taken_back = 0, called = 0;

	for (round = 0; more_rounds(round, ROUNDS) || !taken_back; round++) {
		monitor_init(monitor, round % 2 ? MEMWAIT_MUTEX_FAIR : 0);
		first = (struct queued){ .monitor = monitor, .number = 1 };
		behind = (struct queued){ .monitor = monitor, .number = 2 };
		ASSERT_EQ(EINPROGRESS, queue_by_loop(&first, self->loop));
		runner_start(&behind.runner, wait_in_queue, &behind);
		await_sleeping(self->fd, monitor, 2);
		runner_race(&signaller, memwait_cond_signal, &monitor->cond);
		if (round % 3)
			memwait_loop_dispatch(self->loop, MEMWAIT_ALL);
		if (!memwait_op_cancel(&first.op)) {
			/* The only signal went to the remaining waiter. */
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
	TH_LOG("%d cancelled, %d called back", taken_back, called);
}

USERLIB_TEST(L5_a_cancelled_thread_holds_the_mutex_in_its_handler)
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

/* Is cancelled at the first point at which the wait can be cancelled. */
static int wait_when_tickets_are_given(void *arg)
{
	struct monitor *monitor = arg;

	must(memwait_mutex_lock(&monitor->mutex));
	set(&monitor->waiting, 1);
	await(&monitor->tickets);
	pthread_cancel(pthread_self());
	pthread_cleanup_push(handler, monitor);
	must(memwait_cond_wait(&monitor->cond, &monitor->mutex));
	pthread_cleanup_pop(1);
	return 0;
}

/* If both are private, a wait unlocks the mutex by the system call in which it sleeps. */
USERLIB_TEST(L5_a_wait_cancelled_before_it_sleeps_wakes_the_next_for_the_mutex)
{
	const unsigned int kinds[] = { 0, MEMWAIT_MUTEX_FAIR, MEMWAIT_PRIVATE };
	struct monitor *monitor = self->shared;
	struct runner cancelled, behind;
	int i;

	for (i = 0; i < 3; i++) {
		monitor_init(monitor, MEMWAIT_MUTEX_ERRORCHECK | kinds[i]);
		runner_start(&cancelled, wait_when_tickets_are_given, monitor);
		await(&monitor->waiting);
		runner_start(&behind, lock_and_unlock, &monitor->mutex);
		await_waiters(self->fd, sleep_word(&monitor->mutex, kinds[i]),
			      kinds[i] & MEMWAIT_PRIVATE, 1);
		set(&monitor->tickets, 1);
		pthread_join(cancelled.thread, NULL);
		EXPECT_EQ(0, cancelled.done);
		EXPECT_EQ(1, monitor->locked_in_handler);
		EXPECT_EQ(0, runner_join(&behind));
		EXPECT_EQ(0, memwait_cond_destroy(&monitor->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&monitor->mutex));
	}
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
			/*
			 * The first waiter has taken the ticket. The second waiter needs another
			 * ticket.
			 */
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
