// SPDX-License-Identifier: GPL-2.0
/* R23: async waits that are taken back. */
#include "several_test.h"

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
	EXPECT_EQ(1, await_completions(self->fd, &done, 1));
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
}

#define TOGETHER	64

/* A thread that reads once in each round, and ends what is overdue. */
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
 * There is a completion exactly if the cancel says ENOENT, also while another thread just ends what
 * is overdue: it begins with the first, and who cancels with the last.
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

/* However often the memory of a wait serves another one; and the waits before and behind stay. */
MEMWAIT_TEST(R18_an_id_is_not_used_again)
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
			entries[i] = wait_entry(&comer->words[i], 0, FOREVER, i);
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

	ASSERT_EQ(0, pthread_barrier_init(&all_armed, NULL, COMERS));
	for (i = 0; i < COMERS; i++) {
		comers[i] = (struct comer){
			.all_armed = &all_armed,
			.words = words + i * COME,
			.fd = self->fd,
			.rounds = LOAD(20, 3),
		};
		ASSERT_EQ(0, pthread_create(&comers[i].thread, NULL, come_and_go, &comers[i]));
	}
	for (i = 0; i < COMERS; i++) {
		pthread_join(comers[i].thread, NULL);
		EXPECT_EQ(0, comers[i].wrong);
	}
	EXPECT_EQ(0, mw_fdinfo(self->fd, "pending"));
	pthread_barrier_destroy(&all_armed);
	munmap(words, size);
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

TEST_HARNESS_MAIN
