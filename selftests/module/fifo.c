// SPDX-License-Identifier: GPL-2.0
/* R12: one strict FIFO queue, regardless of the kind and the priority of the waiters. */
#include "async_test.h"

MEMWAIT_TEST(R12_threads_are_woken_in_the_order_of_joining)
{
	struct waiter w[10];
	int i, j;

	for (i = 0; i < 10; i++) {
		w[i] = thread_at(self->fd, self->word);
		waiter_start(&w[i]);
	}
	for (i = 0; i < 10; i++) {
		EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[i]));
		for (j = i + 1; j < 10; j++)
			EXPECT_EQ(0, __atomic_load_n(&w[j].done, __ATOMIC_ACQUIRE));
	}
}

MEMWAIT_TEST(R12_async_waits_complete_in_the_order_of_joining)
{
	struct memwait_completion done[20];
	int i;

	for (i = 0; i < 20; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, i));
	EXPECT_EQ(5, mw_notify(self->fd, self->shared, 5, U32));
	EXPECT_EQ(15, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	EXPECT_EQ(20, mw_read(self->fd, done, 20));
	for (i = 0; i < 20; i++)
		EXPECT_EQ(i, done[i].user_data);
}

/* Threads of both scheduling classes and async waits of two contexts wait alternately. */
MEMWAIT_TEST(R12_threads_and_async_waits_share_one_queue)
{
	struct sched_param fifo = { .sched_priority = 10 };
	int other = open_device(O_NONBLOCK);
	struct waiter w[16];
	int i, j;

	for (i = 0; i < 16; i++) {
		w[i] = thread_at(self->fd, self->word);
		switch (i % 4) {
		case 0:
			waiter_start(&w[i]);
			break;
		case 1:
			EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, i));
			break;
		case 2:
			/* A real-time priority does not change the order. */
			waiter_start(&w[i]);
			if (geteuid() == 0)
				EXPECT_EQ(0, sched_setscheduler(w[i].tid, SCHED_FIFO, &fifo));
			break;
		case 3:
			EXPECT_EQ(MEMWAIT_PENDING, mw_async(other, self->word, 0,
							    in_ms(3600000), U32, i, NULL));
			break;
		}
	}
	for (i = 0; i < 16; i++) {
		EXPECT_EQ(16 - i, mw_waiters(self->fd, self->word, U32));
		EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		if (i % 2) {
			EXPECT_COMPLETION(i % 4 == 1 ? self->fd : other, i, MEMWAIT_OK);
		} else {
			EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[i]));
		}
		EXPECT_FALSE(mw_readable(self->fd));
		EXPECT_FALSE(mw_readable(other));
		for (j = i + 1; j < 16; j++)
			EXPECT_EQ(0, __atomic_load_n(&w[j].done, __ATOMIC_ACQUIRE));
	}
	close(other);
}

MEMWAIT_TEST(R12_a_waiter_that_left_keeps_no_position)
{
	struct memwait_completion done[3];
	uint64_t ids[5];
	int i;

	for (i = 0; i < 5; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER, U32,
						    i, &ids[i]));
	EXPECT_EQ(0, mw_cancel(self->fd, ids[0]));
	EXPECT_EQ(0, mw_cancel(self->fd, ids[2]));
	EXPECT_EQ(2, mw_notify(self->fd, self->word, 2, U32));
	EXPECT_EQ(2, mw_read(self->fd, done, 3));
	EXPECT_EQ(1, done[0].user_data);
	EXPECT_EQ(3, done[1].user_data);
	/* A wait that is armed again joins at the end. */
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 5));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(2, mw_read(self->fd, done, 3));
	EXPECT_EQ(4, done[0].user_data);
	EXPECT_EQ(5, done[1].user_data);
}

/*
 * A new wait joins at the end, even if it uses the memory of an earlier wait, regardless of how and
 * at which position the earlier wait ended.
 */
MEMWAIT_TEST(R12_a_timed_out_wait_leaves_no_position_to_later_waits)
{
	struct memwait_completion done[2];

	EXPECT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 1, 0, NULL));
	sleep_until(mw_read(self->fd, done, 1) != -EAGAIN);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done[0].result);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 1));
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, in_ms(3600000), U32, 2,
					    NULL));
	EXPECT_EQ(2, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(2, mw_read(self->fd, done, 2));
	EXPECT_EQ(1, done[0].user_data);
	EXPECT_EQ(2, done[1].user_data);
}

MEMWAIT_TEST(R12_processes_share_one_queue)
{
	struct {
		uint32_t word;
		int order[6], next;
	} *s = (void *)self->shared;
	pid_t pids[6];
	int i;

	for (i = 0; i < 6; i++) {
		pids[i] = fork_child();
		if (!pids[i]) {
			int ret = mw_wait(self->fd, &s->word, 0, MEMWAIT_FOREVER, U32);

			s->order[i] = __atomic_add_fetch(&s->next, 1, __ATOMIC_ACQ_REL);
			_exit(ret);
		}
		await_waiters(self->fd, &s->word, U32, i + 1);
	}
	for (i = 0; i < 6; i++) {
		EXPECT_EQ(1, mw_notify(self->fd, &s->word, 1, U32));
		EXPECT_EQ(0, child_status(pids[i]));
		EXPECT_EQ(i + 1, s->order[i]);
	}
}

TEST_HARNESS_MAIN
