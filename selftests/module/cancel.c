// SPDX-License-Identifier: GPL-2.0
/* R23: async waits that are cancelled. */
#include "several_test.h"

MEMWAIT_TEST(R23_cancel_withdraws_a_pending_wait)
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
	EXPECT_EQ(1, await_completions(self->fd, &done, 1));
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
}

#define TOGETHER	64

/* A thread that calls read(2) once in each round, which ends overdue waits. */
struct round_reader {
	pthread_t thread;
	int fd, begun, reads, ended;
	int got;
	struct memwait_completion done[TOGETHER];
};

static void *read_each_round(void *arg)
{
	struct round_reader *r = arg;
	int round, begun;

	for (round = 1; ; round++) {
		spin_until((begun = __atomic_load_n(&r->begun, __ATOMIC_ACQUIRE)) != round - 1);
		if (begun < 0)
			return NULL;
		__atomic_store_n(&r->reads, round, __ATOMIC_RELEASE);
		r->got = mw_read(r->fd, r->done, TOGETHER);
		__atomic_store_n(&r->ended, round, __ATOMIC_RELEASE);
	}
}

/*
 * A wait has a completion if and only if CANCEL fails with ENOENT, even while another thread ends
 * overdue waits. The reader begins with the first wait, the canceller with the last.
 */
MEMWAIT_TEST(R23_cancel_races_with_the_deadline)
{
	int round, i, n, got, taken_back = 0, timed_out = 0, results[TOGETHER];
	struct pollfd pfd = { .fd = self->fd, .events = POLLIN };
	struct round_reader r = { .fd = self->fd };
	struct memwait_completion done[TOGETHER];
	const int rounds = SOME_OF(2000);
	uint64_t ids[TOGETHER], deadline, ns;
	int read[TOGETHER];

	ASSERT_EQ(0, pthread_create(&r.thread, NULL, read_each_round, &r));
	for (round = 1; round <= rounds || !taken_back || !timed_out; round++) {
		for (n = 0, ns = 100000; !n; ns *= 2) {
			deadline = now_ns(CLOCK_MONOTONIC) + ns;
			for (i = 0; i < TOGETHER; i++)
				n += mw_async(self->fd, self->word + i, 0, deadline, U32, n,
					      &ids[n]) == MEMWAIT_PENDING;
		}
		ASSERT_EQ(1, poll(&pfd, 1, -1));
		memset(read, 0, sizeof(read));
		__atomic_store_n(&r.begun, round, __ATOMIC_RELEASE);
		if (round % 2)
			spin_until(__atomic_load_n(&r.reads, __ATOMIC_ACQUIRE) == round);
		linger(round / 2 % 12);
		for (i = n - 1; i >= 0; i--)
			results[i] = mw_cancel(self->fd, ids[i]);
		spin_until(__atomic_load_n(&r.ended, __ATOMIC_ACQUIRE) == round);
		for (i = 0; i < r.got; i++)
			read[r.done[i].user_data]++;
		while ((got = mw_read(self->fd, done, TOGETHER)) > 0) {
			for (i = 0; i < got; i++)
				read[done[i].user_data]++;
		}
		for (i = 0; i < n; i++) {
			ASSERT_EQ(results[i], read[i] ? -ENOENT : 0);
			ASSERT_GE(1, read[i]);
			taken_back += !read[i];
			timed_out += read[i];
		}
	}
	__atomic_store_n(&r.begun, -1, __ATOMIC_RELEASE);
	pthread_join(r.thread, NULL);
	TH_LOG("%d cancelled, %d timed out", taken_back, timed_out);
}

MEMWAIT_TEST(R23_ids_that_never_existed_are_enoent)
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

/*
 * An id is not reused, however often the memory of a wait is reused. The first and the last wait
 * stay pending.
 */
MEMWAIT_TEST(R18_an_id_is_not_reused)
{
	enum { TIMES = 2000 };
	uint64_t ids[TIMES], before, behind;
	int i, j;

	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 1, &before));
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 1, &ids[0]));
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 1, &behind));
	for (i = 0; i < TIMES; i++) {
		if (i)
			ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32,
							    1, &ids[i]));
		ASSERT_NE(0, ids[i]);
		ASSERT_NE(before, ids[i]);
		ASSERT_NE(behind, ids[i]);
		for (j = 0; j < i; j++)
			ASSERT_NE(ids[j], ids[i]);
		if (i)
			ASSERT_EQ(-ENOENT, mw_cancel(self->fd, ids[i - 1]));
		ASSERT_EQ(0, mw_cancel(self->fd, ids[i]));
	}
	EXPECT_EQ(0, mw_cancel(self->fd, before));
	EXPECT_EQ(0, mw_cancel(self->fd, behind));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

#define CANCELLERS		4
#define EACH		1500	/* waits of each thread; many more than a context caches */

/* A thread that arms and cancels waits on its own words, concurrently with the other threads. */
struct canceller {
	pthread_t thread;
	pthread_barrier_t *all_armed;
	uint32_t *words;
	int fd, rounds, wrong;
};

static void *arm_and_cancel(void *arg)
{
	struct canceller *canceller = arg;
	struct memwait_async *entries = calloc(EACH, sizeof(*entries));
	uint64_t *old = calloc(EACH, sizeof(*old));
	int round, i;

	for (round = 0; round < canceller->rounds; round++) {
		for (i = 0; i < EACH; i++)
			entries[i] = wait_entry(&canceller->words[i], 0, FOREVER, i);
		canceller->wrong += mw_batch(canceller->fd, entries, EACH) != EACH;
		for (i = 0; i < EACH; i++) {
			canceller->wrong += entries[i].result != MEMWAIT_PENDING;
			canceller->wrong += round && mw_cancel(canceller->fd, old[i]) != -ENOENT;
		}
		/*
		 * All threads have armed their waits. The first thread that finishes cancelling
		 * arms waits again while the others are still cancelling.
		 */
		pthread_barrier_wait(canceller->all_armed);
		for (i = 0; i < EACH; i++) {
			old[i] = entries[i].id;
			canceller->wrong += mw_cancel(canceller->fd, old[i]) != 0;
		}
	}
	free(old);
	free(entries);
	return NULL;
}

MEMWAIT_TEST(R23_many_waits_are_armed_and_cancelled_concurrently)
{
	size_t size = CANCELLERS * EACH * sizeof(uint32_t);
	uint32_t *words = private_page(size);
	struct canceller comers[CANCELLERS];
	pthread_barrier_t all_armed;
	int i;

	ASSERT_EQ(0, pthread_barrier_init(&all_armed, NULL, CANCELLERS));
	for (i = 0; i < CANCELLERS; i++) {
		comers[i] = (struct canceller){
			.all_armed = &all_armed,
			.words = words + i * EACH,
			.fd = self->fd,
			.rounds = LOAD(20, 3),
		};
		ASSERT_EQ(0, pthread_create(&comers[i].thread, NULL, arm_and_cancel, &comers[i]));
	}
	for (i = 0; i < CANCELLERS; i++) {
		pthread_join(comers[i].thread, NULL);
		EXPECT_EQ(0, comers[i].wrong);
	}
	EXPECT_EQ(0, mw_fdinfo(self->fd, "pending"));
	pthread_barrier_destroy(&all_armed);
	munmap(words, size);
}

/* More than the number of ended waits that a context caches, of either kind. */
#define PLACES	600

/* A wait that reuses the memory of another is a new wait, however the earlier wait has ended. */
MEMWAIT_TEST(R23_a_wait_that_reuses_the_memory_of_another)
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
			/* The other pending waits are not affected. */
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

/* A wait that is overdue but was not read can be cancelled: there is no completion. */
MEMWAIT_TEST(R23_cancel_of_an_overdue_wait)
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

TEST_HARNESS_MAIN
