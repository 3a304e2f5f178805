// SPDX-License-Identifier: GPL-2.0
/* R1, R3, R5: blocking waits race with notifies. */
#include "../memwait_fixture.h"

static const uint32_t sizes[] = {
	MEMWAIT_SIZE_U8, MEMWAIT_SIZE_U16, MEMWAIT_SIZE_U32, MEMWAIT_SIZE_U64,
};

MEMWAIT_TEST(R1_no_wake_up_is_lost)
{
	const uint32_t rounds = SOME_OF(20000);
	struct {
		uint32_t ping, pong, oks, woken;
	} *s = (void *)self->shared;
	uint32_t i, value, oks = 0, *ping = &s->ping, *pong = &s->pong;
	int ret, notified = 0;
	pid_t pid;

	/*
	 * There are two processes with one word each. No wait has a deadline, because a deadline
	 * could hide a lost wake-up.
	 */
	pid = fork_child();
	if (!pid) {
		for (i = 1; i <= rounds; i++) {
			while ((value = __atomic_load_n(ping, __ATOMIC_ACQUIRE)) != i) {
				ret = mw_wait(self->fd, ping, value, MEMWAIT_FOREVER, U32);
				if (ret < 0)
					_exit(1);
				s->oks += ret == MEMWAIT_OK;
			}
			__atomic_store_n(pong, i, __ATOMIC_RELEASE);
			s->woken += mw_notify(self->fd, pong, 1, U32);
		}
		_exit(0);
	}
	for (i = 1; i <= rounds; i++) {
		__atomic_store_n(ping, i, __ATOMIC_RELEASE);
		notified += mw_notify(self->fd, ping, 1, U32);
		while ((value = __atomic_load_n(pong, __ATOMIC_ACQUIRE)) != i) {
			ret = mw_wait(self->fd, pong, value, MEMWAIT_FOREVER, U32);
			ASSERT_LE(0, ret);
			oks += ret == MEMWAIT_OK;
		}
	}
	EXPECT_EQ(0, child_status(pid));
	/* R5: the number of OKs of each process is the number of notifies of the other process. */
	EXPECT_EQ((uint32_t)notified, s->oks);
	EXPECT_EQ(s->woken, oks);
}

struct racer {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int *stop;
	long oks, notified, timed_out, other;
	int notifies;
};

static void *race(void *arg)
{
	struct racer *r = arg;

	while (!__atomic_load_n(r->stop, __ATOMIC_RELAXED)) {
		int ret;

		if (r->notifies) {
			r->notified += mw_notify(r->fd, r->word, 1 + r->notified % 3, U32);
			continue;
		}
		ret = mw_wait(r->fd, r->word, 0, soon(r->oks + r->timed_out), U32);
		if (ret == MEMWAIT_OK)
			add_one(&r->oks);
		else if (ret == MEMWAIT_TIMED_OUT)
			add_one(&r->timed_out);
		else
			r->other++;
	}
	return NULL;
}

MEMWAIT_TEST(R5_notify_and_deadline_race_for_one_waiter)
{
	struct racer racers[6] = { 0 };
	uint64_t end = in_ms(2000);
	long oks = 0, notified = 0;
	int stop = 0;
	size_t i;

	for (i = 0; i < 6; i++) {
		racers[i] = (struct racer) { .fd = self->fd, .word = self->word, .stop = &stop,
					     .notifies = i < 2 };
		ASSERT_EQ(0, pthread_create(&racers[i].thread, NULL, race, &racers[i]));
	}
	sleep_until(now_ns(CLOCK_MONOTONIC) >= end);
	for (i = 2; i < 6; i++) {
		await_counted(&racers[i].oks);
		await_counted(&racers[i].timed_out);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 6; i++) {
		pthread_join(racers[i].thread, NULL);
		oks += racers[i].oks;
		notified += racers[i].notified;
		EXPECT_EQ(0, racers[i].other);
	}
	EXPECT_EQ(notified, oks);
}

MEMWAIT_TEST(R3_waiters_of_all_sizes_share_the_queue_of_an_address)
{
	struct waiter w[4];
	size_t i;

	for (i = 0; i < 4; i++) {
		w[i] = (struct waiter) { .fd = self->fd, .addr = self->word,
					 .deadline = MEMWAIT_FOREVER, .flags = sizes[i] };
		waiter_start(&w[i]);
	}
	EXPECT_EQ(4, mw_waiters(self->fd, self->word, MEMWAIT_SIZE_U8));
	EXPECT_EQ(4, mw_notify(self->fd, self->word, MEMWAIT_ALL, MEMWAIT_SIZE_U64));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[i]));
}

TEST_HARNESS_MAIN
