// SPDX-License-Identifier: GPL-2.0
/* R18, R19, R23, and the deadlines of async waits. */
#include "several_test.h"

#define FOREVER	MEMWAIT_FOREVER

static struct memwait_async entry(const void *word, uint64_t expected, uint64_t deadline,
				  uint64_t user_data)
{
	return (struct memwait_async) {
		.wait = { .addr = (uintptr_t)word, .expected = expected, .deadline = deadline,
			  .flags = U32 },
		.user_data = user_data,
		.id = 0xccccccccccccccccULL,
		.result = 0x0ccccccc,
	};
}

/* Waits until there is a completion, then reads up to n. */
static int await(int fd, struct memwait_completion *done, int n)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	poll(&pfd, 1, 100000);
	return mw_read(fd, done, n);
}

MEMWAIT_TEST(R18_reports_an_outcome_for_each_entry)
{
	struct memwait_async e[] = {
		entry(self->word, 0, FOREVER, 10),
		entry(self->word, 1, FOREVER, 11),
		entry(self->word, 0, 0, 12),
		entry(self->word, 1, 0, 13),
		entry(self->shared, 0, in_ms(3600000), 14),
	};
	struct memwait_completion done[5];

	EXPECT_EQ(5, mw_batch(self->fd, e, 5));
	EXPECT_EQ(MEMWAIT_PENDING, e[0].result);
	EXPECT_NE(0, e[0].id);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, e[1].result);
	EXPECT_EQ(0, e[1].id);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, e[2].result);
	EXPECT_EQ(0, e[2].id);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, e[3].result);
	EXPECT_EQ(MEMWAIT_PENDING, e[4].result);
	EXPECT_NE(e[0].id, e[4].id);
	EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));

	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	memset(done, 0xcc, sizeof(done));
	EXPECT_EQ(2, mw_read(self->fd, done, 5));
	EXPECT_EQ(14, done[0].user_data);
	EXPECT_EQ(e[4].id, done[0].id);
	EXPECT_EQ(MEMWAIT_OK, done[0].result);
	EXPECT_EQ(0, done[0].index);
	EXPECT_EQ(1, done[0].count);
	EXPECT_EQ(0, done[0].flags);
	EXPECT_EQ(10, done[1].user_data);
	EXPECT_EQ(e[0].id, done[1].id);
}

MEMWAIT_TEST(R18_leaves_the_input_of_an_entry_alone)
{
	struct memwait_async e = entry(self->word, 0xaaaaaaaa00000000ULL, FOREVER, ~0ULL), was = e;

	EXPECT_EQ(1, mw_batch(self->fd, &e, 1));
	EXPECT_EQ(0, memcmp(&e.wait, &was.wait, sizeof(e.wait)));
	EXPECT_EQ(was.user_data, e.user_data);
	EXPECT_EQ(0, e.reserved);
	EXPECT_EQ(0, mw_cancel(self->fd, e.id));
}

MEMWAIT_TEST(R18_an_empty_batch_does_nothing)
{
	EXPECT_EQ(0, mw_batch(self->fd, NULL, 0));
	EXPECT_EQ(0, mw_batch(self->fd, (void *)-1UL, 0));
}

MEMWAIT_TEST(R18_a_bad_entry_ends_the_batch)
{
	struct memwait_async e[4];
	uint32_t *hole = private_page(self->page);
	int i, bad, error;

	EXPECT_EQ(0, mprotect(hole, self->page, PROT_NONE));
	for (bad = 0; bad < 4; bad++) {
		for (i = 0; i < 4; i++)
			e[i] = entry(self->word, 0, FOREVER, i);
		error = bad % 2 ? -EFAULT : -EINVAL;
		if (bad % 2)
			e[bad].wait.addr = (uintptr_t)hole;
		else
			e[bad].wait.addr++;
		EXPECT_EQ(bad ? bad : error, mw_batch(self->fd, e, 4));
		EXPECT_EQ(error, e[bad].result);
		EXPECT_EQ(0, e[bad].id);
		EXPECT_EQ(bad, mw_waiters(self->fd, self->word, U32));
		for (i = 0; i < bad; i++) {
			EXPECT_EQ(MEMWAIT_PENDING, e[i].result);
			EXPECT_EQ(0, mw_cancel(self->fd, e[i].id));
		}
		/* What comes behind was not looked at. */
		for (i = bad + 1; i < 4; i++)
			EXPECT_EQ(0x0ccccccc, e[i].result);
	}
}

MEMWAIT_TEST(R18_a_batch_that_leaves_memory)
{
	char *area = private_page(2 * self->page);
	struct memwait_async *e = (void *)(area + self->page - 3 * sizeof(*e));
	int i;

	ASSERT_EQ(0, munmap(area + self->page, self->page));
	for (i = 0; i < 3; i++)
		e[i] = entry(self->word, 0, FOREVER, i);
	EXPECT_EQ(3, mw_batch(self->fd, e, 4));
	EXPECT_EQ(3, mw_batch(self->fd, e, INT32_MAX));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, (void *)(area + self->page), 1));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, e + 1, 0) ?: -EFAULT);
	EXPECT_EQ(6, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R18_hostile_batches)
{
	struct memwait_async e = entry(self->word, 0, FOREVER, 0);

	EXPECT_EQ(-EINVAL, mw_batch(self->fd, &e, 1U << 31));
	EXPECT_EQ(-EINVAL, mw_batch(self->fd, &e, ~0U));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, NULL, 1));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, (void *)0xffff888000000000UL, INT32_MAX));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, (void *)-56UL, INT32_MAX));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, (void *)-1UL, 2));
	EXPECT_EQ(0x0ccccccc, e.result);
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

MEMWAIT_TEST(R18_an_entry_that_cannot_be_written_queues_nothing)
{
	struct memwait_async *e = private_page(self->page);

	e[0] = entry(self->word, 0, FOREVER, 0);
	ASSERT_EQ(0, mprotect(e, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, e, 1));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
	ASSERT_EQ(0, mprotect(e, self->page, PROT_READ | PROT_WRITE));
	e[0].wait.expected = 1;
	ASSERT_EQ(0, mprotect(e, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, e, 1));
}

MEMWAIT_TEST(R18_misaligned_and_kernel_words)
{
	EXPECT_EQ(-EINVAL, mw_async(self->fd, (char *)self->word + 2, 0, FOREVER, U32, 0, NULL));
	EXPECT_EQ(-EFAULT, mw_async(self->fd, (void *)0xffff888000000000UL, 0, FOREVER, U32, 0,
				    NULL));
	EXPECT_EQ(-EFAULT, mw_async(self->fd, (void *)0xffff888000000000UL, 0, FOREVER,
				    U32 | MEMWAIT_PRIVATE, 0, NULL));
	EXPECT_EQ(-EFAULT, mw_async(self->fd, NULL, 0, FOREVER, U32, 0, NULL));
}

MEMWAIT_TEST(R18_all_sizes)
{
	static const uint32_t sizes[] = { MEMWAIT_SIZE_U8, MEMWAIT_SIZE_U16, MEMWAIT_SIZE_U32,
					  MEMWAIT_SIZE_U64 };
	struct memwait_completion done[4];
	uint64_t *word = (uint64_t *)self->word;
	int i;

	*word = 0x1122334455667788ULL;
	for (i = 0; i < 4; i++) {
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, word, *word, FOREVER, sizes[i], i,
						    NULL));
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_async(self->fd, word, *word ^ 0x80, FOREVER,
						      sizes[i], i, NULL));
	}
	EXPECT_EQ(4, mw_notify(self->fd, word, MEMWAIT_ALL, MEMWAIT_SIZE_U8));
	EXPECT_EQ(4, mw_read(self->fd, done, 4));
}

MEMWAIT_TEST(R23_cancel_takes_a_pending_wait_back)
{
	uint64_t id;

	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 1, &id));
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(0, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
}

MEMWAIT_TEST(R23_cancel_after_the_end_is_enoent)
{
	struct memwait_completion done;
	uint64_t id;

	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 1, &id));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(id, done.id);
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));

	EXPECT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 5, 1, &id));
	EXPECT_EQ(1, await(self->fd, &done, 1));
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
}

struct busy {
	int fd;
	uint32_t *word;
	int stop;
};

static void *keep_queues_busy(void *arg)
{
	struct busy *busy = arg;
	int i;

	for (i = 0; !__atomic_load_n(&busy->stop, __ATOMIC_ACQUIRE); i++)
		mw_waiters(busy->fd, busy->word + i % 16, U32);
	return NULL;
}

/*
 * ENOENT says that the completion can be read, now: even while the deadline is just passing. So
 * many waits end together that there is time to meet the last one on its way.
 */
MEMWAIT_TEST(R23_cancel_races_with_the_deadline)
{
	enum { TOGETHER = 16 };
	const int rounds = getenv("MEMWAIT_LOADS") ? 200 : 2000;
	int round, ret, i, n, n_done, taken_back = 0, timed_out = 0;
	struct busy busy = { .fd = self->fd, .word = self->word };
	pthread_t threads[3];
	struct memwait_completion done[TOGETHER];
	uint64_t ids[TOGETHER], deadline;
	bool found;

	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, keep_queues_busy, &busy));
	for (round = 0; round < rounds; round++) {
		deadline = now_ns(CLOCK_MONOTONIC) + 200000;
		n = 0;
		for (i = 0; i < TOGETHER; i++) {
			ret = mw_async(self->fd, self->word + i, 0, deadline, U32, i, &ids[n]);
			n += ret == MEMWAIT_PENDING;
		}
		if (!n)
			continue;
		while (now_ns(CLOCK_MONOTONIC) < deadline + round % 64 * 1000)
			;
		ret = mw_cancel(self->fd, ids[n - 1]);
		n_done = mw_read(self->fd, done, TOGETHER);
		found = false;
		for (i = 0; i < n_done; i++)
			found |= done[i].id == ids[n - 1];
		if (ret) {
			timed_out++;
			ASSERT_EQ(-ENOENT, ret);
			ASSERT_TRUE(found);
		} else {
			taken_back++;
			ASSERT_FALSE(found);
		}
		for (i = 0; i < n - 1; i++)
			mw_cancel(self->fd, ids[i]);
		while (mw_read(self->fd, done, TOGETHER) > 0)
			;
	}
	__atomic_store_n(&busy.stop, 1, __ATOMIC_RELEASE);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	TH_LOG("%d taken back, %d timed out", taken_back, timed_out);
}

MEMWAIT_TEST(R23_ids_that_never_were_are_enoent)
{
	int other = memwait_open(O_NONBLOCK);
	uint64_t id;
	int bit;

	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, 0));
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, ~0ULL));
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 1, &id));
	for (bit = 0; bit < 64; bit++)
		EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id ^ 1ULL << bit));
	EXPECT_EQ(-ENOENT, mw_cancel(other, id));
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	close(other);
}

#define COMERS		4
#define COME		1500	/* together they are more than a context's table keeps */

/* One that arms waits on its own words and takes them back, at the same time as the others. */
struct comer {
	pthread_t thread;
	pthread_barrier_t *all_armed;
	uint32_t *words;
	int fd, rounds, wrong;
};

static void *come_and_go(void *arg)
{
	struct comer *comer = arg;
	struct memwait_async *entries = calloc(COME, sizeof(*entries));
	uint64_t *old = calloc(COME, sizeof(*old));
	int round, i;

	for (round = 0; round < comer->rounds; round++) {
		for (i = 0; i < COME; i++)
			entries[i] = entry(&comer->words[i], 0, FOREVER, i);
		comer->wrong += mw_batch(comer->fd, entries, COME) != COME;
		for (i = 0; i < COME; i++) {
			comer->wrong += entries[i].result != MEMWAIT_PENDING;
			comer->wrong += round && mw_cancel(comer->fd, old[i]) != -ENOENT;
		}
		/* The table goes out of use, and who is done first brings it into use again. */
		pthread_barrier_wait(comer->all_armed);
		for (i = 0; i < COME; i++) {
			old[i] = entries[i].id;
			comer->wrong += mw_cancel(comer->fd, old[i]) != 0;
		}
	}
	free(old);
	free(entries);
	return NULL;
}

MEMWAIT_TEST(R23_many_come_and_go_together)
{
	size_t size = COMERS * COME * sizeof(uint32_t);
	uint32_t *words = private_page(size);
	struct comer comers[COMERS];
	pthread_barrier_t all_armed;
	int i;

	ASSERT_NE(NULL, words);
	ASSERT_EQ(0, pthread_barrier_init(&all_armed, NULL, COMERS));
	for (i = 0; i < COMERS; i++) {
		comers[i] = (struct comer){
			.all_armed = &all_armed,
			.words = words + i * COME,
			.fd = self->fd,
			.rounds = getenv("MEMWAIT_LOADS") ? 3 : 20,
		};
		ASSERT_EQ(0, pthread_create(&comers[i].thread, NULL, come_and_go, &comers[i]));
	}
	for (i = 0; i < COMERS; i++) {
		pthread_join(comers[i].thread, NULL);
		EXPECT_EQ(0, comers[i].wrong);
	}
	EXPECT_EQ(0, context_count(self->fd, "pending"));
	pthread_barrier_destroy(&all_armed);
	munmap(words, size);
}

MEMWAIT_TEST(R23_ids_are_not_used_again)
{
	uint64_t id, last = 0, kept;
	int i;

	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 1, &kept));
	for (i = 0; i < 5000; i++) {
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 1, &id));
		ASSERT_NE(0, id);
		ASSERT_NE(kept, id);
		/* The one before is gone, even if this one has its place. */
		ASSERT_EQ(-ENOENT, mw_cancel(self->fd, last));
		ASSERT_EQ(0, mw_cancel(self->fd, id));
		last = id;
	}
	EXPECT_EQ(0, mw_cancel(self->fd, kept));
}

/* More than a context keeps of waits that have ended, of both kinds. */
#define PLACES	600

/* Waits that get the places of others are new ones, however those have ended. */
MEMWAIT_TEST(R23_a_wait_in_the_place_of_another)
{
	uint64_t ids[PLACES], before[PLACES] = {};
	struct memwait_completion done[PLACES];
	bool seen[PLACES];
	int round, i, n, got;

	for (round = 0; round < 4; round++) {
		for (i = 0; i < PLACES; i++) {
			uint64_t deadline = (i + round) % 3 ? FOREVER : in_ms(3600000);

			ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, deadline, U32,
							    round * PLACES + i, &ids[i]));
			/* The others that are pending are not touched by it. */
			ASSERT_EQ(-ENOENT, mw_cancel(self->fd, before[i]));
		}
		memset(seen, 0, sizeof(seen));
		if (round % 2) {
			for (i = 0; i < PLACES; i++)
				ASSERT_EQ(0, mw_cancel(self->fd, ids[i]));
		} else {
			ASSERT_EQ(PLACES, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
			for (got = 0; got < PLACES; got += n) {
				n = mw_read(self->fd, done, PLACES);
				ASSERT_LT(0, n);
				for (i = 0; i < n; i++) {
					int which = done[i].user_data - round * PLACES;

					ASSERT_TRUE(which >= 0 && which < PLACES && !seen[which]);
					ASSERT_EQ(ids[which], done[i].id);
					ASSERT_EQ(MEMWAIT_OK, done[i].result);
					seen[which] = true;
				}
			}
		}
		EXPECT_EQ(-EAGAIN, mw_read(self->fd, done, 1));
		EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
		EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
		memcpy(before, ids, sizeof(before));
	}
}

MEMWAIT_TEST(R4_async_time_outs_are_never_early)
{
	struct memwait_completion done[64];
	uint64_t deadlines[64], ms;
	int i, n, ret, seen = 0;

	for (i = 0; i < 64; i++) {
		clockid_t clock = i % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC;

		/* Out of order. */
		ms = 200 + i * 37 % 64;
		do {
			deadlines[i] = now_ns(clock) + ms * NSEC_PER_MSEC;
			ret = mw_async(self->fd, self->word, 0, deadlines[i],
				       U32 | (i % 2 ? MEMWAIT_CLOCK_REALTIME : 0), i, NULL);
			ms *= 2;
		} while (ret == MEMWAIT_TIMED_OUT);
		ASSERT_EQ(MEMWAIT_PENDING, ret);
	}
	while (seen < 64) {
		n = await(self->fd, done, 64);
		ASSERT_LT(0, n);
		for (i = 0; i < n; i++) {
			clockid_t clock = done[i].user_data % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC;

			EXPECT_EQ(MEMWAIT_TIMED_OUT, done[i].result);
			EXPECT_LE(deadlines[done[i].user_data], now_ns(clock));
		}
		seen += n;
	}
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

MEMWAIT_TEST(R4_async_deadlines_come_in_order)
{
	struct memwait_completion done;
	uint64_t ms = 500, base, id;
	int i, pending, cancelled;

	/* With later ones, until none has passed when all are armed. */
	do {
		ms *= 2;
		renew(&self->fd);
		base = in_ms(ms);
		pending = 0;
		for (i = 0; i < 50; i++)
			pending += mw_async(self->fd, self->word + i % 5, 0, base + i * 29 % 50,
					    U32, i * 29 % 50, NULL) == MEMWAIT_PENDING;
		/* Neither a cancelled one nor one without a deadline is in the way. */
		pending += mw_async(self->fd, self->word, 0, base - 1, U32, 99, &id) ==
			   MEMWAIT_PENDING;
		cancelled = !mw_cancel(self->fd, id);
	} while (in_ms(0) >= base - 1);
	ASSERT_EQ(51, pending);
	ASSERT_EQ(1, cancelled);
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 98, &id));
	for (i = 0; i < 50; i++) {
		ASSERT_EQ(1, await(self->fd, &done, 1));
		EXPECT_EQ(i, done.user_data);
	}
	EXPECT_EQ(0, mw_cancel(self->fd, id));
}

MEMWAIT_TEST(R4_an_earlier_deadline_that_comes_later_fires_first)
{
	struct memwait_completion done;
	uint64_t far, id;

	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, in_ms(3600000), U32, 1,
					    &far));
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 20, 2, &id));
	ASSERT_EQ(1, await(self->fd, &done, 1));
	EXPECT_EQ(2, done.user_data);
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 20, 3, &id));
	ASSERT_EQ(1, await(self->fd, &done, 1));
	EXPECT_EQ(3, done.user_data);
	EXPECT_EQ(0, mw_cancel(self->fd, far));
}

MEMWAIT_TEST(R4_the_next_deadline_fires_after_the_earliest_was_notified)
{
	struct memwait_completion done[2];
	uint64_t ms = 500, deadline;
	int woken, n;

	/* With later ones, until the first was notified, and read, before its deadline. */
	do {
		ms *= 2;
		renew(&self->fd);
		deadline = in_ms(ms);
		mw_async(self->fd, self->word, 0, deadline, U32, 1, NULL);
		mw_async(self->fd, self->word, 0, deadline + 100 * NSEC_PER_MSEC, U32, 2, NULL);
		woken = mw_notify(self->fd, self->word, 1, U32);
		n = mw_read(self->fd, done, 2);
	} while (in_ms(0) >= deadline);
	ASSERT_EQ(1, woken);
	ASSERT_EQ(1, n);
	ASSERT_EQ(1, done[0].user_data);
	ASSERT_EQ(1, await(self->fd, done, 2));
	EXPECT_EQ(2, done[0].user_data);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done[0].result);
}

/* Deadlines are ended by read(2): as many as there is room for, and the others by the next one. */
MEMWAIT_TEST(R30_deadlines_are_ended_by_their_reader)
{
	struct pollfd pfd = { .fd = self->fd, .events = POLLIN };
	struct memwait_completion done[5];
	int i, armed = 0, n;

	for (i = 0; i < 5; i++)
		armed += async_soon(self->fd, self->word, 5, i, NULL) == MEMWAIT_PENDING;
	ASSERT_EQ(5, armed);
	ASSERT_EQ(1, poll(&pfd, 1, -1));
	usleep(20000);		/* until all have passed, or it takes a reader longer */
	EXPECT_EQ(5, context_count(self->fd, "pending"));
	EXPECT_EQ(0, context_count(self->fd, "completed"));
	for (i = 0; i < 5; i += n) {
		ASSERT_EQ(1, poll(&pfd, 1, -1));
		n = mw_read(self->fd, done, 2);
		ASSERT_LT(0, n);
		ASSERT_GE(2, n);
		EXPECT_EQ(i, done[0].user_data);
		EXPECT_EQ(MEMWAIT_TIMED_OUT, done[0].result);
		EXPECT_EQ(5 - i - n, context_count(self->fd, "pending"));
		EXPECT_EQ(0, context_count(self->fd, "completed"));
	}
	EXPECT_EQ(0, poll(&pfd, 1, 0));
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, done, 5));
}

/* One whose deadline has passed takes no notify from those behind it, read or not. */
MEMWAIT_TEST(R30_a_notify_passes_over_what_is_overdue)
{
	int fd = memwait_open(O_NONBLOCK), group;
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct memwait_completion done;
	struct memwait_wait waits[2];
	uint64_t deadline;
	int ret;

	members(waits, self->word, 2);
	for (group = 0; group < 2; group++) {
		do {
			deadline = in_ms(5);
			ret = group ? mw_group(fd, waits, 2, deadline, 0, 7, NULL) :
				      mw_async(fd, self->word, 0, deadline, U32, 7, NULL);
		} while (ret == MEMWAIT_TIMED_OUT);
		ASSERT_EQ(MEMWAIT_PENDING, ret);
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER, U32,
						    8, NULL));
		ASSERT_EQ(1, poll(&pfd, 1, -1));
		EXPECT_EQ(2, mw_waiters(self->fd, self->word, U32));
		EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		ASSERT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(8, done.user_data);
		EXPECT_EQ(MEMWAIT_OK, done.result);
		ASSERT_EQ(1, mw_read(fd, &done, 1));
		EXPECT_EQ(7, done.user_data);
		EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
		EXPECT_EQ(0, done.count);
		EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
		EXPECT_EQ(0, mw_waiters(self->fd, self->word + 1, U32));
	}
	close(fd);
}

/* What is overdue and not read can be taken back: no completion comes. */
MEMWAIT_TEST(R23_cancel_of_what_is_overdue)
{
	struct pollfd pfd = { .fd = self->fd, .events = POLLIN };
	struct memwait_completion done;
	uint64_t id;

	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 5, 7, &id));
	ASSERT_EQ(1, poll(&pfd, 1, -1));
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	EXPECT_EQ(0, poll(&pfd, 1, 0));
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, &done, 1));
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
}

MEMWAIT_TEST(R4_async_realtime_deadlines_follow_the_clock)
{
	struct memwait_completion done;
	struct timespec ts;
	uint64_t id;

	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0,
					    now_ns(CLOCK_REALTIME) + 3600 * NSEC_PER_SEC,
					    U32 | MEMWAIT_CLOCK_REALTIME, 1, &id));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, in_ms(3600000), U32, 2,
					    NULL));
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += 7200;
	if (clock_settime(CLOCK_REALTIME, &ts)) {
		mw_notify(self->fd, self->word, MEMWAIT_ALL, U32);
		SKIP(return, "the clock cannot be set");
	}
	EXPECT_EQ(1, await(self->fd, &done, 1));
	EXPECT_EQ(id, done.id);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec -= 7200;
	clock_settime(CLOCK_REALTIME, &ts);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
}

MEMWAIT_TEST(R19_a_completion_survives_until_it_is_read)
{
	struct memwait_completion done[100];
	int i;

	for (i = 0; i < 100; i++) {
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, i,
						    NULL));
		ASSERT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	}
	ASSERT_EQ(100, mw_read(self->fd, done, 100));
	for (i = 0; i < 100; i++)
		EXPECT_EQ(i, done[i].user_data);
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, done, 100));
}

MEMWAIT_TEST(R19_one_notify_completes_waits_of_many_contexts)
{
	struct memwait_completion done;
	int fds[40], i, j;

	/* More contexts than one notify remembers to wake at its end, each with two waits. */
	for (i = 0; i < 40; i++) {
		fds[i] = memwait_open(O_NONBLOCK);
		ASSERT_LE(0, fds[i]);
	}
	for (j = 0; j < 2; j++)
		for (i = 0; i < 40; i++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_async(fds[i], self->shared, 0, FOREVER, U32,
							    j, NULL));
	ASSERT_EQ(80, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	for (i = 0; i < 40; i++) {
		for (j = 0; j < 2; j++) {
			EXPECT_TRUE(mw_readable(fds[i]));
			EXPECT_EQ(1, mw_read(fds[i], &done, 1));
			EXPECT_EQ(j, done.user_data);
		}
		close(fds[i]);
	}
}

struct arming {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int *stop;
	long notified;
};

static void *notify_hard(void *arg)
{
	struct arming *a = arg;

	while (!__atomic_load_n(a->stop, __ATOMIC_RELAXED))
		a->notified += mw_notify(a->fd, a->word, 1 + a->notified % 2, U32);
	return NULL;
}

/* R5, R19: each wait ends once, by notify, deadline or cancel, and each notify is one OK. */
MEMWAIT_TEST(R19_notify_deadline_and_cancel_race_for_one_wait)
{
	struct arming a[2] = { 0 };
	struct memwait_completion done[16];
	long tries = 0, armed = 0, oks = 0, timed_out = 0, cancelled = 0;
	uint64_t end = in_ms(3000), id;
	int stop = 0, i, n;

	for (i = 0; i < 2; i++) {
		a[i] = (struct arming) { .fd = self->fd, .word = self->word, .stop = &stop };
		ASSERT_EQ(0, pthread_create(&a[i].thread, NULL, notify_hard, &a[i]));
	}
	while (now_ns(CLOCK_MONOTONIC) < end || !oks || !cancelled) {
		int ret = mw_async(self->fd, self->word, 0, soon(tries++), U32, 0, &id);

		if (ret != MEMWAIT_PENDING) {
			ASSERT_EQ(MEMWAIT_TIMED_OUT, ret);
			continue;
		}
		armed++;
		if (armed % 3) {
			ret = mw_cancel(self->fd, id);
			ASSERT_TRUE(!ret || ret == -ENOENT);
			cancelled += !ret;
		}
		n = mw_read(self->fd, done, 16);
		for (i = 0; i < n; i++) {
			oks += done[i].result == MEMWAIT_OK;
			timed_out += done[i].result == MEMWAIT_TIMED_OUT;
		}
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 2; i++)
		pthread_join(a[i].thread, NULL);
	while (armed > oks + timed_out + cancelled) {
		n = await(self->fd, done, 16);
		ASSERT_LT(0, n);
		for (i = 0; i < n; i++) {
			oks += done[i].result == MEMWAIT_OK;
			timed_out += done[i].result == MEMWAIT_TIMED_OUT;
		}
	}
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, done, 16));
	EXPECT_EQ(armed, oks + timed_out + cancelled);
	EXPECT_EQ(a[0].notified + a[1].notified, oks);
}

MEMWAIT_TEST(R18_a_large_batch)
{
	const int count = 5000;
	struct memwait_async *e = private_page(count * sizeof(*e));
	struct memwait_completion *done = private_page(count * sizeof(*done));
	int i, pending = 0;

	for (i = 0; i < count; i++)
		e[i] = entry(self->word + i % 100, i % 3 == 1, i % 3 == 2 ? 1 : FOREVER, i);
	ASSERT_EQ(count, mw_batch(self->fd, e, count));
	for (i = 0; i < count; i++) {
		static const int results[] = { MEMWAIT_PENDING, MEMWAIT_NOT_EQUAL,
					       MEMWAIT_TIMED_OUT };

		ASSERT_EQ(results[i % 3], e[i].result);
		ASSERT_EQ(i % 3 == 0, e[i].id != 0);
		pending += e[i].result == MEMWAIT_PENDING;
	}
	EXPECT_EQ(self->user_waits + pending, mw_user_waits(self->fd));
	for (i = 0; i < 100; i++)
		pending -= mw_notify(self->fd, self->word + i, MEMWAIT_ALL, U32);
	EXPECT_EQ(0, pending);
	pending = mw_read(self->fd, done, count);
	EXPECT_EQ((count + 2) / 3, pending);
	for (i = 0; i < pending; i++)
		ASSERT_EQ(e[done[i].user_data].id, done[i].id);
}

MEMWAIT_TEST(R18_a_refused_word_ends_the_batch)
{
	struct memwait_async e[3];
	void *memory = MAP_FAILED;
	int mem = open("/dev/mem", O_RDONLY);

	if (mem >= 0)
		memory = mmap(NULL, self->page, PROT_READ, MAP_SHARED, mem, 0xf0000);
	if (memory == MAP_FAILED)
		SKIP(return, "/dev/mem: %s", strerror(errno));
	e[0] = entry(self->word, 0, FOREVER, 0);
	e[1] = entry(memory, 0, FOREVER, 1);
	e[2] = entry(self->word, 0, FOREVER, 2);
	EXPECT_EQ(1, mw_batch(self->fd, e, 3));
	EXPECT_EQ(-EOPNOTSUPP, e[1].result);
	EXPECT_EQ(0, e[1].id);
	EXPECT_EQ(-EOPNOTSUPP, mw_batch(self->fd, e + 1, 2));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	close(mem);
}

MEMWAIT_TEST(R18_reserved_fields_of_an_entry_end_the_batch)
{
	struct memwait_async e[2];
	int i, bit;

	for (i = 0; i < 2; i++) {
		for (bit = 0; bit < 32; bit++) {
			e[0] = entry(self->word, 0, FOREVER, 0);
			e[1] = e[0];
			*(i ? &e[1].reserved : &e[1].wait.reserved) = 1U << bit;
			ASSERT_EQ(1, mw_batch(self->fd, e, 2));
			ASSERT_EQ(-EINVAL, e[1].result);
			ASSERT_EQ(-EINVAL, mw_batch(self->fd, e + 1, 1));
			ASSERT_EQ(0, e[1].id);
			ASSERT_EQ(0, mw_cancel(self->fd, e[0].id));
		}
	}
}

MEMWAIT_TEST(R7_async_waits_fault_their_words_in)
{
	uint32_t *fresh = private_page(self->page), *read_only = private_page(self->page);
	uint32_t *dropped = shared_page(self->page), *words[] = { fresh, read_only, dropped };
	struct memwait_completion done[3];
	int i;

	ASSERT_EQ(0, mprotect(read_only, self->page, PROT_READ));
	*dropped = 0;
	ASSERT_EQ(0, madvise(dropped, self->page, MADV_DONTNEED));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, words[i], 0, FOREVER, U32, i, NULL));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(1, mw_notify(self->fd, words[i], 1, U32));
	EXPECT_EQ(3, mw_read(self->fd, done, 3));
}

struct armer {
	pthread_t thread;
	int fd;
	uint32_t *word;
	uint64_t ids[500];
};

static void *arm_many(void *arg)
{
	struct armer *a = arg;
	int i;

	for (i = 0; i < 500; i++) {
		if (mw_async(a->fd, a->word, 0, FOREVER, U32, i, &a->ids[i]) != MEMWAIT_PENDING)
			a->ids[i] = 0;
	}
	return NULL;
}

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The waits are the context's: they outlive their threads, and another one may end them. */
MEMWAIT_TEST(R19_threads_arm_in_one_context)
{
	static struct armer a[4];
	static uint64_t ids[2000];
	int i;

	for (i = 0; i < 4; i++) {
		a[i].fd = self->fd;
		a[i].word = self->word;
		ASSERT_EQ(0, pthread_create(&a[i].thread, NULL, arm_many, &a[i]));
	}
	for (i = 0; i < 4; i++) {
		pthread_join(a[i].thread, NULL);
		memcpy(ids + 500 * i, a[i].ids, sizeof(a[i].ids));
	}
	EXPECT_EQ(2000, mw_waiters(self->fd, self->word, U32));
	qsort(ids, 2000, sizeof(ids[0]), compare_ids);
	EXPECT_NE(0, ids[0]);
	for (i = 1; i < 2000; i++)
		ASSERT_LT(ids[i - 1], ids[i]);
	for (i = 0; i < 2000; i++)
		ASSERT_EQ(0, mw_cancel(self->fd, ids[i]));
}

struct collector {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int *stop;
	int n;
	struct memwait_completion done[20000];
};

/* Notifies and reads, as soon as there is something, and in the end what is left. */
static void *collect(void *arg)
{
	struct collector *c = arg;
	bool last;
	int n;

	do {
		last = __atomic_load_n(c->stop, __ATOMIC_ACQUIRE);
		mw_notify(c->fd, c->word, MEMWAIT_ALL, U32);
		n = mw_read(c->fd, c->done + c->n, ARRAY_SIZE(c->done) - c->n);
		c->n += n > 0 ? n : 0;
	} while (!last);
	return NULL;
}

/* A wait may complete, and be read, before the call that arms it has returned. */
MEMWAIT_TEST(R19_completions_are_read_while_the_batch_is_armed)
{
	static struct collector c;
	static struct memwait_async e[20000];
	static unsigned char seen[20000];
	int stop = 0, i, early = 0;

	memset(&c, 0, sizeof(c));
	c.fd = self->fd;
	c.word = self->word;
	c.stop = &stop;
	ASSERT_EQ(0, pthread_create(&c.thread, NULL, collect, &c));
	for (i = 0; i < 20000; i++)
		e[i] = entry(self->word, 0, FOREVER, i);
	for (i = 0; i < 20000; i += 2000) {
		ASSERT_EQ(2000, mw_batch(self->fd, e + i, 2000));
		early += __atomic_load_n(&c.n, __ATOMIC_RELAXED) > i;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(c.thread, NULL);
	TH_LOG("in %d of 10 batches some were read before the call returned", early);
	ASSERT_EQ(20000, c.n);
	for (i = 0; i < c.n; i++) {
		ASSERT_EQ(i, c.done[i].user_data);
		ASSERT_EQ(e[i].id, c.done[i].id);
		ASSERT_EQ(0, seen[i]++);
	}
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

MEMWAIT_TEST(R4_equal_async_deadlines_all_come)
{
	struct memwait_completion done[16];
	uint64_t deadline, ms = 500;
	unsigned char seen[100] = { 0 };
	int i, n, pending, count = 0;

	/* With a later one, until it has not passed when all are armed. */
	do {
		ms *= 2;
		renew(&self->fd);
		deadline = in_ms(ms);
		pending = 0;
		for (i = 0; i < 100; i++)
			pending += mw_async(self->fd, self->word + i, 0, deadline, U32, i, NULL) ==
				   MEMWAIT_PENDING;
	} while (in_ms(0) >= deadline);
	ASSERT_EQ(100, pending);
	while (count < 100) {
		n = await(self->fd, done, 16);
		ASSERT_LT(0, n);
		ASSERT_LE(deadline, now_ns(CLOCK_MONOTONIC));
		for (i = 0; i < n; i++) {
			ASSERT_EQ(MEMWAIT_TIMED_OUT, done[i].result);
			ASSERT_EQ(0, seen[done[i].user_data]++);
		}
		count += n;
	}
	EXPECT_FALSE(mw_readable(self->fd));
}

/* Deadlines that lie so close together that one might take them all at once. */
#define CLOSE_WAITS	1000
#define APART_NS	50000

MEMWAIT_TEST(R4_async_deadlines_close_together_are_not_early)
{
	struct memwait_completion done[64];
	uint64_t first, time, least = ~0ULL;
	int round, i, n, got, armed, early = 0;

	for (round = 0; round < 5; round++) {
		first = in_ms(100 << round);
		armed = 0;
		for (i = 0; i < CLOSE_WAITS; i++)
			armed += mw_async(self->fd, self->shared, 0, first + i * APART_NS, U32,
					  first + i * APART_NS, NULL) == MEMWAIT_PENDING;
		for (got = 0; got < armed; got += n > 0 ? n : 0) {
			n = mw_read(self->fd, done, 64);
			time = now_ns(CLOCK_MONOTONIC);
			ASSERT_TRUE(n > 0 || n == -EAGAIN);
			for (i = 0; i < n; i++) {
				ASSERT_EQ(MEMWAIT_TIMED_OUT, done[i].result);
				if (time < done[i].user_data)
					early++;
				else if (time - done[i].user_data < least)
					least = time - done[i].user_data;
			}
		}
	}
	TH_LOG("%d of %d early, the best of the others %ld ns late", early, 5 * CLOSE_WAITS,
	       (long)least);
	EXPECT_EQ(0, early);
}

MEMWAIT_TEST(R4_far_async_deadlines_are_never)
{
	static const uint64_t far[] = { INT64_MAX - 1, INT64_MAX, 1ULL << 63, (1ULL << 63) + 1,
					FOREVER - 1, FOREVER };
	struct memwait_completion done[2];
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(far); i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, far[i / 2],
						    U32 | (i % 2 ? MEMWAIT_CLOCK_REALTIME : 0), i,
						    NULL));
	/* They are not in the way of one that is near, nor taken for its like. */
	EXPECT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 20, 99, NULL));
	EXPECT_EQ(1, await(self->fd, done, 2));
	EXPECT_EQ(99, done[0].user_data);
	EXPECT_EQ((int)i, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R4_async_realtime_deadlines_are_put_off_by_a_step_back)
{
	struct memwait_completion done;
	uint64_t ms = 25, start, deadline;
	struct timespec ts;
	int ret;

	do {
		ms *= 2;
		start = now_ns(CLOCK_MONOTONIC);
		deadline = now_ns(CLOCK_REALTIME) + ms * NSEC_PER_MSEC;
		ret = mw_async(self->fd, self->word, 0, deadline, U32 | MEMWAIT_CLOCK_REALTIME, 1,
			       NULL);
	} while (ret == MEMWAIT_TIMED_OUT);
	ASSERT_EQ(MEMWAIT_PENDING, ret);
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec -= 3600;
	if (clock_settime(CLOCK_REALTIME, &ts)) {
		mw_notify(self->fd, self->word, 1, U32);
		SKIP(return, "the clock cannot be set");
	}
	/* If it had not passed before the step. */
	if (now_ns(CLOCK_REALTIME) < deadline - 1800 * NSEC_PER_SEC &&
	    now_ns(CLOCK_MONOTONIC) < start + ms * NSEC_PER_MSEC) {
		struct pollfd pfd = { .fd = self->fd, .events = POLLIN };

		EXPECT_EQ(0, poll(&pfd, 1, 4 * ms));
	}
	ts.tv_sec += 3600;
	clock_settime(CLOCK_REALTIME, &ts);
	EXPECT_EQ(1, await(self->fd, &done, 1));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
	EXPECT_LE(deadline, now_ns(CLOCK_REALTIME));
}

MEMWAIT_TEST(R4_async_deadlines_are_of_the_time_namespace)
{
	static const char * const offsets[] = { "monotonic 100000 0", "monotonic -3 0" };
	struct memwait_completion done;
	uint64_t deadline, ms;
	size_t i;
	int fd, ret;
	pid_t pid;

	for (i = 0; i < 2; i++) {
		pid = fork();
		if (!pid) {
			if (unshare(CLONE_NEWTIME))
				_exit(4);
			fd = open("/proc/self/timens_offsets", O_WRONLY);
			if (fd < 0 || write(fd, offsets[i], strlen(offsets[i])) < 0)
				_exit(4);
			close(fd);
			pid = fork();
			if (pid)
				_exit(child_status(pid));
			/* A deadline that is past is that in the namespace. */
			if (mw_async(self->fd, self->word, 0, now_ns(CLOCK_MONOTONIC) - 1, U32, 0,
				     NULL) != MEMWAIT_TIMED_OUT)
				_exit(1);
			ms = 500;
			do {
				deadline = in_ms(ms);
				ret = mw_async(self->fd, self->word, 0, deadline, U32, 1, NULL);
				ms *= 2;
			} while (ret == MEMWAIT_TIMED_OUT);
			if (ret != MEMWAIT_PENDING)
				_exit(2);
			if (await(self->fd, &done, 1) != 1 || done.user_data != 1)
				_exit(3);
			_exit(now_ns(CLOCK_MONOTONIC) < deadline ? 5 : 0);
		}
		pid = child_status(pid);
		if (pid == 4)
			SKIP(return, "no time namespaces");
		EXPECT_EQ(0, pid);
	}
}

MEMWAIT_TEST(R12_a_time_out_leaves_the_others_in_their_places)
{
	struct waiter w = { .fd = self->fd, .addr = self->word, .deadline = FOREVER,
			    .flags = U32 };
	struct memwait_completion done[3];

	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 1, NULL));
	waiter_start(&w);
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 20, 2, NULL));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 3, NULL));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 4, NULL));
	ASSERT_EQ(1, await(self->fd, done, 3));
	EXPECT_EQ(2, done[0].user_data);
	EXPECT_EQ(4, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(3, mw_notify(self->fd, self->word, 3, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	EXPECT_EQ(2, mw_read(self->fd, done, 3));
	EXPECT_EQ(1, done[0].user_data);
	EXPECT_EQ(3, done[1].user_data);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
}

TEST_HARNESS_MAIN
