// SPDX-License-Identifier: GPL-2.0
/* R16, R18, R23 to R25: async waits on several words (MEMWAIT_GROUP). */
#include "any_test.h"

MEMWAIT_TEST(R4_group_timeouts)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct memwait_wait waits[MOST];
	struct memwait_completion done;
	uint64_t deadlines[40], ids[40], ms;
	int i, n, ret;

	members(waits, self->word, MOST);
	for (i = 0; i < 40; i++) {
		n = group_sizes[i % ARRAY_SIZE(group_sizes)];
		/* The deadlines are not in the order of arming. */
		ms = 300 + i * 29 % 40;
		do {
			deadlines[i] = now_ns(clocks[i % 2]) + ms * NSEC_PER_MSEC;
			ret = mw_group(self->fd, waits, n, deadlines[i],
				       i % 2 ? MEMWAIT_CLOCK_REALTIME : 0, i, &ids[i]);
			ms *= 2;
		} while (ret == MEMWAIT_TIMED_OUT);
		ASSERT_EQ(MEMWAIT_PENDING, ret);
	}
	for (i = 0; i < 40; i++) {
		memset(&done, 0xcc, sizeof(done));
		ASSERT_EQ(1, await_completions(self->fd, &done, 1));
		ASSERT_GT(40, done.user_data);
		EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
		EXPECT_EQ(0, done.index);
		EXPECT_EQ(ids[done.user_data], done.id);
		EXPECT_LE(deadlines[done.user_data], now_ns(clocks[done.user_data % 2]));
		ids[done.user_data] = 0;
	}
	EXPECT_TRUE(nobody(self->fd, waits, MOST));
	EXPECT_FALSE(mw_readable(self->fd));
}

MEMWAIT_TEST(R18_group_counts)
{
	static const uint32_t counts[] = { 0, MOST + 1, 1U << 31, ~0U };
	struct memwait_wait waits[MOST + 1];
	size_t i;

	members(waits, self->word, MOST + 1);
	for (i = 0; i < ARRAY_SIZE(counts); i++)
		EXPECT_EQ(-EINVAL, mw_group(self->fd, waits, counts[i], FOREVER, 0, 0, NULL));
	EXPECT_TRUE(nobody(self->fd, waits, MOST + 1));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

MEMWAIT_TEST(R18_group_index_of_an_entry)
{
	struct memwait_wait waits[3];
	struct memwait_async entry, was;
	uint32_t index[] = { 0, 1, ~0U };
	size_t i;

	members(waits, self->word, 3);
	for (i = 0; i < 3; i++) {
		/* The kernel leaves @index unchanged unless a word differed. */
		entry = group_entry(waits, 3, FOREVER, 0, 77);
		entry.any.index = index[i];
		was = entry;
		EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
		EXPECT_EQ(MEMWAIT_PENDING, entry.result);
		EXPECT_EQ(0, memcmp(&entry.any, &was.any, sizeof(entry.any)));
		EXPECT_EQ(77, entry.user_data);
		EXPECT_EQ(0, mw_cancel(self->fd, entry.id));
		EXPECT_TRUE(nobody(self->fd, waits, 3));

		entry = group_entry(waits, 3, 0, 0, 77);
		entry.any.index = index[i];
		EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
		EXPECT_EQ(MEMWAIT_TIMED_OUT, entry.result);
		EXPECT_EQ(index[i], entry.any.index);
		EXPECT_EQ(0, entry.id);

		waits[2].expected = 1;
		entry = group_entry(waits, 3, 0, 0, 77);
		entry.any.index = index[i];
		EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, entry.result);
		EXPECT_EQ(2, entry.any.index);
		EXPECT_EQ(0, entry.id);
		waits[2].expected = 0;
	}
}

MEMWAIT_TEST(R18_groups_and_single_waits_in_one_batch)
{
	struct memwait_completion done[6];
	struct memwait_wait waits[3];
	struct memwait_async e[6];
	int i, bad;

	members(waits, self->word, 3);
	for (bad = 1; bad < 6; bad++) {
		for (i = 0; i < 6; i++) {
			e[i] = group_entry(waits, 3, FOREVER, 0, i);
			if (i % 2) {
				e[i].wait = member(self->word, 0, U32);
				e[i].wait.deadline = FOREVER;
			}
		}
		e[bad].wait.flags |= 1U << 20;
		EXPECT_EQ(bad, mw_batch(self->fd, e, 6));
		EXPECT_EQ(-EINVAL, e[bad].result);
		EXPECT_EQ(0, e[bad].id);
		if (bad < 5)
			EXPECT_EQ(UNTOUCHED, (uint32_t)e[bad + 1].result);
		EXPECT_EQ(bad, mw_waiters(self->fd, self->word, U32));
		EXPECT_EQ((bad + 1) / 2, mw_waiters(self->fd, self->word + 2, U32));
		EXPECT_EQ(self->user_waits + (bad + 1) / 2 * 3 + bad / 2 + PIN_WAITS,
			  mw_user_waits(self->fd));
		EXPECT_EQ(bad, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
		EXPECT_EQ(bad, mw_read(self->fd, done, 6));
		for (i = 0; i < bad; i++) {
			EXPECT_EQ(i, done[i].user_data);
			EXPECT_EQ(e[i].id, done[i].id);
			EXPECT_EQ(0, done[i].index);
		}
	}
}

MEMWAIT_TEST(R18_group_entries_that_cannot_be_written_queue_nothing)
{
	struct memwait_async *entry = private_page(self->page);
	struct memwait_wait waits[3];

	members(waits, self->word, 3);
	*entry = group_entry(waits, 3, FOREVER, 0, 0);
	ASSERT_EQ(0, mprotect(entry, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, entry, 1));
	waits[1].expected = 1;
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, entry, 1));
	EXPECT_TRUE(nobody(self->fd, waits, 3));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

MEMWAIT_TEST(R23_group_cancel)
{
	struct memwait_wait waits[MOST];
	struct memwait_completion done;
	uint64_t id, other;
	size_t i;

	members(waits, self->word, MOST);
	for (i = 0; i < ARRAY_SIZE(group_sizes); i++) {
		uint32_t n = group_sizes[i];

		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, n, i % 2 ? FOREVER :
						    in_ms(HOUR), 0, 1, &id));
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, n, FOREVER, 0, 2, &other));
		EXPECT_NE(id, other);
		EXPECT_EQ(0, mw_cancel(self->fd, id));
		EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
		EXPECT_EQ(1, waiters_of(self->fd, &waits[n - 1]));
		EXPECT_EQ(1, mw_notify(self->fd, self->word + n - 1, MEMWAIT_ALL, U32));
		EXPECT_EQ(-ENOENT, mw_cancel(self->fd, other));
		EXPECT_COMPLETION(self->fd, 2, MEMWAIT_OK);
		EXPECT_EQ(-ENOENT, mw_cancel(self->fd, other));
		EXPECT_TRUE(nobody(self->fd, waits, n));

		EXPECT_EQ(MEMWAIT_PENDING, group_soon(self->fd, waits, n, 5, 3, &id));
		EXPECT_EQ(1, await_completions(self->fd, &done, 1));
		EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
	}
}

MEMWAIT_TEST(R24_group_counts_as_many_waits_as_words)
{
	struct memwait_wait waits[MOST];
	struct memwait_completion done;
	uint64_t id, user_waits = self->user_waits;
	size_t i;
	int fd;

	members(waits, self->word, MOST);
	for (i = 0; i < ARRAY_SIZE(group_sizes); i++) {
		uint32_t n = group_sizes[i];

		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, n, FOREVER, 0, 1, &id));
		EXPECT_EQ(user_waits + n + PIN_WAITS, mw_user_waits(self->fd));
		EXPECT_EQ(0, mw_cancel(self->fd, id));
		EXPECT_EQ(user_waits, mw_user_waits(self->fd));

		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, n, FOREVER, 0, 1, &id));
		EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		EXPECT_EQ(user_waits + n + PIN_WAITS, mw_user_waits(self->fd));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(user_waits, mw_user_waits(self->fd));

		EXPECT_EQ(MEMWAIT_PENDING, group_soon(self->fd, waits, n, 5, 1, &id));
		spin_until(mw_readable(self->fd));
		EXPECT_EQ(user_waits + n + PIN_WAITS, mw_user_waits(self->fd));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(user_waits, mw_user_waits(self->fd));

		fd = memwait_open(O_NONBLOCK);
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, n, FOREVER, 0, 1, &id));
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, n, FOREVER, 0, 1, &id));
		EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		EXPECT_EQ(user_waits + 2 * n + PIN_WAITS, mw_user_waits(self->fd));
		close(fd);
		EXPECT_EQ(user_waits, mw_user_waits(self->fd));
	}
	/* Neither waits of threads nor entries that do not wait are counted. */
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, MOST, in_ms(1), 0, NULL));
	waits[1].expected = 1;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_group(self->fd, waits, MOST, FOREVER, 0, 0, NULL));
	EXPECT_EQ(user_waits, mw_user_waits(self->fd));
}

MEMWAIT_TEST(R25_group_close_ends_pending_groups_without_waking_any_waiter)
{
	struct memwait_wait waits[MOST];
	int fd = memwait_open(O_NONBLOCK), i;

	members(waits, self->shared, MOST);
	for (i = 0; i < 5; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, group_sizes[i], i % 2 ? FOREVER :
						    in_ms(HOUR), 0, i, NULL));
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, MOST, FOREVER, 0, 5, NULL));
	close(fd);
	for (i = 0; i < MOST; i++)
		EXPECT_EQ(1, waiters_of(self->fd, &waits[i]));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R25_group_an_unread_ok_is_passed_on_at_the_notified_word)
{
	struct memwait_wait waits[MOST];
	struct memwait_completion done[4];
	uint32_t i;
	int fd;

	for (i = 0; i < MOST; i++)
		waits[i] = member(i % 2 ? self->word + i : self->shared + i, 0, U32);
	for (i = 0; i < MOST; i += 1 + i / 4) {
		uint32_t before = (i + MOST - 1) % MOST, after = (i + 1) % MOST;

		fd = memwait_open(O_NONBLOCK);
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, MOST, FOREVER, 0, 0, NULL));
		/* A notify is not passed on to another group of the same context. */
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, MOST, FOREVER, 0, 0, NULL));
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, word_of(&waits[before]), 1));
		EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, &waits[i], 1, FOREVER, 0, 2, NULL));
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, word_of(&waits[after]), 3));
		EXPECT_EQ(1, mw_notify(self->fd, word_of(&waits[i]), 1, U32));
		EXPECT_FALSE(mw_readable(self->fd));
		close(fd);
		ASSERT_EQ(1, mw_read(self->fd, done, 4));
		EXPECT_EQ(2, done[0].user_data);
		EXPECT_EQ(MEMWAIT_OK, done[0].result);
		EXPECT_EQ(1, mw_notify(self->fd, word_of(&waits[before]), MEMWAIT_ALL, U32));
		EXPECT_EQ(1, mw_notify(self->fd, word_of(&waits[after]), MEMWAIT_ALL, U32));
		EXPECT_EQ(2, mw_read(self->fd, done, 4));
		EXPECT_TRUE(nobody(self->fd, waits, MOST));
	}
}

MEMWAIT_TEST(R25_group_read_and_timed_out_waits_pass_nothing_on)
{
	struct memwait_wait waits[3];
	struct memwait_completion done;
	int fd = memwait_open(O_NONBLOCK), i;

	members(waits, self->shared, 3);
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, 3, FOREVER, 0, 0, NULL));
	EXPECT_EQ(1, mw_notify(fd, self->shared + 1, 1, U32));
	EXPECT_EQ(1, mw_read(fd, &done, 1));
	EXPECT_EQ(MEMWAIT_PENDING, group_soon(fd, waits, 3, 5, 0, NULL));
	spin_until(mw_readable(fd));
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, FOREVER, 0, 0, NULL));
	close(fd);
	EXPECT_FALSE(mw_readable(self->fd));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(1, waiters_of(self->fd, &waits[i]));
}

MEMWAIT_TEST(R25_group_of_a_process_that_dies_unread)
{
	struct memwait_wait waits[3];
	struct any_waiter w;
	pid_t pid;
	int fd;

	members(waits, self->shared, 3);
	pid = fork_child();
	if (!pid) {
		fd = memwait_open(0);
		if (mw_group(fd, waits, 3, FOREVER, 0, 0, NULL) != MEMWAIT_PENDING)
			_exit(1);
		pause();
	}
	await_waiters(self->fd, self->shared + 2, U32, 1);
	w = any_of(self->fd, waits, 3);
	any_start(&w);
	EXPECT_EQ(1, mw_notify(self->fd, self->shared + 1, 1, U32));
	EXPECT_EQ(0, __atomic_load_n(&w.done, __ATOMIC_ACQUIRE));
	EXPECT_EQ(128 + SIGKILL, kill_child(pid));
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	EXPECT_EQ(1, w.index);
	EXPECT_TRUE(nobody(self->fd, waits, 3));
}

FIXTURE(group_limit)
{
	int fd;
	uint32_t *word;
	uint64_t user_waits;
};

FIXTURE_SETUP(group_limit)
{
	self->fd = open_device(O_NONBLOCK);
	self->word = private_page(sysconf(_SC_PAGESIZE));
	self->user_waits = mw_user_waits(self->fd);
	if (geteuid())
		SKIP(return, "needs root to set the limit");
}

FIXTURE_TEARDOWN(group_limit)
{
	EXPECT_EQ(0, restore_settings());
	close(self->fd);
}

TEST_F_TIMEOUT(group_limit, R24_group_beyond_the_limit_is_enospc, 300)
{
	struct memwait_wait waits[MOST];
	struct memwait_completion done;
	struct memwait_async e[3];
	uint64_t id;
	int i;

	members(waits, self->word, MOST);
	ASSERT_EQ(0, set_limit(self->user_waits + 10 + PIN_WAITS));
	EXPECT_EQ(-ENOSPC, mw_group(self->fd, waits, 11, FOREVER, 0, 0, &id));
	EXPECT_EQ(0, id);
	EXPECT_EQ(-ENOSPC, mw_group(self->fd, waits, MOST, FOREVER, 0, 0, NULL));
	EXPECT_TRUE(nobody(self->fd, waits, MOST));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 10, FOREVER, 0, 0, &id));
	EXPECT_EQ(-ENOSPC, mw_group(self->fd, waits, 1, FOREVER, 0, 0, NULL));
	EXPECT_EQ(-ENOSPC, mw_arm(self->fd, self->word, 0));
	EXPECT_EQ(0, mw_cancel(self->fd, id));

	/* Two groups of four waits fit. After that there is no room for a third group. */
	for (i = 0; i < 3; i++)
		e[i] = group_entry(waits, 4, FOREVER, 0, i);
	EXPECT_EQ(2, mw_batch(self->fd, e, 3));
	EXPECT_EQ(-ENOSPC, e[2].result);
	EXPECT_EQ(0, e[2].id);
	EXPECT_EQ(UNTOUCHED, e[2].any.index);
	EXPECT_EQ(self->user_waits + 8 + PIN_WAITS, mw_user_waits(self->fd));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(2, waiters_of(self->fd, &waits[i]));
	/* Entries that do not wait, and waits of threads, are not counted. */
	waits[2].expected = 1;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_group(self->fd, waits, 4, FOREVER, 0, 0, NULL));
	waits[2].expected = 0;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_group(self->fd, waits, 4, 0, 0, 0, NULL));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait_any(self->fd, waits, MOST, in_ms(1), 0, NULL));
	/* A completion counts until it is read. */
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(-ENOSPC, mw_group(self->fd, waits, 4, FOREVER, 0, 0, NULL));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 4, FOREVER, 0, 0, NULL));
}

TEST_HARNESS_MAIN
