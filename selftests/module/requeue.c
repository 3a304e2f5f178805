// SPDX-License-Identifier: GPL-2.0
/*
 * R17, R12: waiters that are moved to another word, and events that happen to these waiters on that
 * word.
 */
#include "requeue_test.h"
#include <sys/time.h>

/* A PRIVATE target is not looked up, so it need not be mapped. */
MEMWAIT_TEST(R9_requeue_to_an_unmapped_private_word)
{
	uint32_t *a = self->word, *hole = hole_page();
	struct requeued out;

	ASSERT_TRUE(arm_all(self->fd, a, "abc"));
	EXPECT_EQ(0, mw_requeue(self->fd, a, 0, hole, 1, 1, U32 | MEMWAIT_PRIVATE, &out));
	EXPECT_EQ(1, out.woken);
	EXPECT_EQ(1, out.moved);
	EXPECT_STREQ("a", names(self->fd));
	EXPECT_EQ(1, mw_waiters(self->fd, hole, U32 | MEMWAIT_PRIVATE));
	EXPECT_EQ(1, mw_notify(self->fd, hole, 1, U32 | MEMWAIT_PRIVATE));
	EXPECT_STREQ("b", names(self->fd));
	EXPECT_STREQ("c", notify_names(self->fd, a));
}

MEMWAIT_TEST(R17_requeue_compares)
{
	uint32_t *a = self->word, *b = self->word + 2;
	uint64_t *word = (void *)a, value = 0x8182838485868788ULL, mask;
	struct requeued out;
	uint32_t size;
	int bit;

	for (size = 0; size < 4; size++) {
		mask = ~0ULL >> (64 - (8 << size));
		for (bit = 0; bit < 64; bit++) {
			*word = 0;
			ASSERT_TRUE(arm_all(self->fd, a, "abc"));
			*word = value ^ 1ULL << bit;
			if (1ULL << bit & mask) {
				EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_requeue(self->fd, a, value, b, 1, 1,
									size, &out));
				EXPECT_EQ(0, out.woken);
				EXPECT_EQ(0, out.moved);
				EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
				EXPECT_STREQ("abc", notify_names(self->fd, a));
			} else {
				/*
				 * In the word and in the expected value, bits above the size are
				 * ignored.
				 */
				EXPECT_EQ(0, mw_requeue(self->fd, a, value, b, 1, 1, size, &out));
				EXPECT_EQ(1, out.woken);
				EXPECT_EQ(1, out.moved);
				EXPECT_STREQ("ab", notify_names(self->fd, b));
				EXPECT_STREQ("c", notify_names(self->fd, a));
			}
		}
	}
	/*
	 * The call compares the word even if it has no waiter to wake or move. The value of the
	 * target does not matter.
	 */
	*word = 0;
	*b = 1;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_requeue(self->fd, a, 1, b, 0, 0, U32, &out));
	EXPECT_EQ(0, mw_requeue(self->fd, a, 0, b, 0, 0, U32, &out));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_requeue(self->fd, a, 1, a, 0, 0, U32, &out));
	EXPECT_EQ(0, out.woken);
	EXPECT_EQ(0, out.moved);
}

/* Waking and moving */

MEMWAIT_TEST(R17_requeue_wakes_the_oldest_and_moves_the_next)
{
	uint32_t *a = self->word, *b = self->word + 1;

	ASSERT_TRUE(arm_all(self->fd, a, "abcdefgh"));
	ASSERT_TRUE(arm_all(self->fd, b, "xy"));
	EXPECT_REQUEUED(0, 0, a, b, 0, 0);
	EXPECT_EQ(8, mw_waiters(self->fd, a, U32));
	EXPECT_REQUEUED(2, 3, a, b, 2, 3);
	EXPECT_STREQ("ab", names(self->fd));
	EXPECT_EQ(3, mw_waiters(self->fd, a, U32));
	EXPECT_EQ(5, mw_waiters(self->fd, b, U32));
	EXPECT_REQUEUED(0, 1, a, b, 0, 1);
	EXPECT_REQUEUED(1, 0, a, b, 1, 0);
	EXPECT_STREQ("g", names(self->fd));
	/* A later waiter is queued behind the moved waiters. */
	EXPECT_EQ(MEMWAIT_PENDING, arm(self->fd, b, 'z'));
	EXPECT_STREQ("xycdefz", notify_names(self->fd, b));
	EXPECT_STREQ("h", notify_names(self->fd, a));
}

MEMWAIT_TEST(R17_requeue_with_counts_above_the_number_of_waiters)
{
	uint32_t *a = self->word, *b = self->word + 1;

	ASSERT_TRUE(arm_all(self->fd, a, "abc"));
	EXPECT_REQUEUED(0, 3, a, b, 0, MEMWAIT_ALL);
	EXPECT_EQ(0, mw_waiters(self->fd, a, U32));
	EXPECT_REQUEUED(1, 2, b, a, 1, 1000);
	EXPECT_STREQ("a", names(self->fd));
	EXPECT_REQUEUED(2, 0, a, b, MEMWAIT_ALL, MEMWAIT_ALL);
	EXPECT_STREQ("bc", names(self->fd));
	/* Neither word has a waiter. */
	EXPECT_REQUEUED(0, 0, a, b, MEMWAIT_ALL, MEMWAIT_ALL);
	EXPECT_REQUEUED(0, 0, a, b, 1, 1);
	EXPECT_REQUEUED(0, 0, a, a, 1, 1);
	ASSERT_TRUE(arm_all(self->fd, b, "xy"));
	EXPECT_REQUEUED(0, 0, a, b, MEMWAIT_ALL, MEMWAIT_ALL);
	EXPECT_STREQ("xy", notify_names(self->fd, b));
	EXPECT_EQ(0, mw_waiters(self->fd, a, U32));
}

MEMWAIT_TEST(R17_requeue_to_the_same_word)
{
	uint32_t *a = self->word;

	ASSERT_TRUE(arm_all(self->fd, a, "abcdef"));
	EXPECT_REQUEUED(1, 2, a, a, 1, 2);
	EXPECT_STREQ("a", names(self->fd));
	EXPECT_EQ(5, mw_waiters(self->fd, a, U32));
	/* The waiters are counted as moved and stay in their positions. */
	EXPECT_EQ(2, mw_notify(self->fd, a, 2, U32));
	EXPECT_STREQ("bc", names(self->fd));
	EXPECT_REQUEUED(0, 3, a, a, 0, MEMWAIT_ALL);
	EXPECT_REQUEUED(0, 1, a, a, 0, 1);
	EXPECT_STREQ("def", notify_names(self->fd, a));
}

/* A word that is mapped at two addresses is the same word. */
MEMWAIT_TEST(R17_requeue_to_the_same_word_of_a_file)
{
	uint32_t *one, *two;

	ASSERT_EQ(0, map_twice(self->page, &one, &two));
	ASSERT_TRUE(arm_all(self->fd, one, "abcd"));
	EXPECT_REQUEUED(1, 1, one, two, 1, 1);
	EXPECT_STREQ("a", names(self->fd));
	EXPECT_EQ(3, mw_waiters(self->fd, one, U32));
	EXPECT_STREQ("bcd", notify_names(self->fd, two));
	/* Two different words of one file are different words. */
	ASSERT_TRUE(arm_all(self->fd, one, "ab"));
	EXPECT_REQUEUED(0, 1, two, two + 1, 0, 1);
	EXPECT_STREQ("a", notify_names(self->fd, one + 1));
	EXPECT_STREQ("b", notify_names(self->fd, two));
}

MEMWAIT_TEST(R3_requeue_moves_waiters_of_all_sizes)
{
	uint32_t *a = self->word, *b = self->word + 2;
	uint32_t size;
	int i;

	for (size = 0; size < 4; size++) {
		for (i = 0; i < 8; i++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, a, 0, FOREVER, i % 4, 'a' + i,
							    NULL));
		EXPECT_EQ(0, mw_requeue(self->fd, a, 0, b, 1, 5, size, NULL));
		EXPECT_STREQ("a", names(self->fd));
		EXPECT_STREQ("bcdef", notify_names(self->fd, b));
		EXPECT_STREQ("gh", notify_names(self->fd, a));
	}
	/*
	 * The address of the target must be aligned for the size of the call, but not for the sizes
	 * of the waiters.
	 */
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, a, 0, FOREVER, MEMWAIT_SIZE_U64, 'x', NULL));
	EXPECT_EQ(0, mw_requeue(self->fd, a, 0, (char *)b + 3, 0, 1, MEMWAIT_SIZE_U8, NULL));
	EXPECT_EQ(1, mw_notify(self->fd, (char *)b + 3, 1, MEMWAIT_SIZE_U8));
	EXPECT_STREQ("x", names(self->fd));
}

/* Threads, async waits and groups of both kinds are moved in the order in which they joined. */
MEMWAIT_TEST(R12_requeue_keeps_the_order_of_all_kinds)
{
	uint32_t *a = self->word, *b = self->word + 9, *c = self->word + 1;
	int other = memwait_open(O_NONBLOCK), i;
	struct memwait_wait waits[2];
	struct any_waiter any;
	struct waiter w[2];

	waits[0] = member(c, 0, U32);
	waits[1] = member(a, 0, U32);
	w[0] = thread_at(self->fd, a);
	waiter_start(&w[0]);
	ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, a, 'a'));
	any = any_of(self->fd, waits, 2);
	any_start(&any);
	ASSERT_EQ(MEMWAIT_PENDING, mw_group(other, waits, 2, FOREVER, 0, 'b', NULL));
	w[1] = thread_at(self->fd, a);
	waiter_start(&w[1]);
	ASSERT_EQ(MEMWAIT_PENDING, arm(other, a, 'c'));
	ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, b, 'x'));

	EXPECT_REQUEUED(0, 6, a, b, 0, MEMWAIT_ALL);
	EXPECT_EQ(0, mw_notify(self->fd, a, MEMWAIT_ALL, U32));
	for (i = 0; i < 7; i++) {
		EXPECT_EQ(7 - i, mw_waiters(self->fd, b, U32));
		EXPECT_EQ(i < 4 ? 2 : i == 4, mw_waiters(self->fd, c, U32));
		EXPECT_EQ(1, mw_notify(self->fd, b, 1, U32));
		EXPECT_STREQ(i == 0 ? "x" : i == 2 ? "a" : "", names(self->fd));
		EXPECT_STREQ(i == 4 ? "b" : i == 6 ? "c" : "", names(other));
		if (i == 1)
			EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[0]));
		if (i == 3)
			EXPECT_EQ(MEMWAIT_OK, any_join(&any));
		if (i == 5)
			EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[1]));
	}
	EXPECT_EQ(1, any.index);
	close(other);
}

MEMWAIT_TEST(R12_requeue_many)
{
	const int count = 3000;
	struct memwait_completion *done = private_page(count * sizeof(*done));
	uint32_t *a = self->word, *b = self->word + 1;
	int i, left = count, before = 0;

	for (i = 0; i < count; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, a, 0, i % 2 ? FOREVER : in_ms(HOUR),
						    U32, i, NULL));
	EXPECT_EQ(self->user_waits + count + PIN_WAITS, mw_user_waits(self->fd));
	for (i = 1; left; i++) {
		EXPECT_EQ(0, mw_requeue(self->fd, a, 0, b, 0, i, U32, NULL));
		left -= i < left ? i : left;
		ASSERT_EQ(left, mw_waiters(self->fd, a, U32));
		ASSERT_EQ(count - left, mw_waiters(self->fd, b, U32));
		before++;
	}
	EXPECT_EQ(self->user_waits + count + PIN_WAITS, mw_user_waits(self->fd));
	EXPECT_REQUEUED(0, count, b, a, 0, MEMWAIT_ALL);
	EXPECT_EQ(count, mw_notify(self->fd, a, MEMWAIT_ALL, U32));
	ASSERT_EQ(count, mw_read(self->fd, done, count));
	for (i = 0; i < count; i++)
		ASSERT_EQ(i, done[i].user_data);
	EXPECT_EQ(77, before);	/* 1 + 2 + ... + 77 is the first sum that is large enough */
}

/*
 * Moves as many waiters as one step moves, one fewer, and one more. The target has no waiter or one
 * waiter.
 */
MEMWAIT_TEST(R12_requeue_all_of_few_or_many)
{
	static const int counts[] = { 1, 2, 63, 64, 65, 200 };
	struct memwait_completion done[201];
	uint32_t *a = self->word, *b = self->word + 1;
	int i, before, count;
	uint64_t id;

	for (i = 0; i < 2 * (int)ARRAY_SIZE(counts); i++) {
		count = counts[i / 2];
		before = i % 2;
		if (before)
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, b, 0));
		for (int j = 0; j < count; j++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, a, 0, FOREVER, U32,
							    before + j, j ? NULL : &id));
		EXPECT_REQUEUED(0, count, a, b, 0, MEMWAIT_ALL);
		EXPECT_EQ(0, mw_waiters(self->fd, a, U32));
		EXPECT_EQ(before + count, mw_waiters(self->fd, b, U32));
		EXPECT_EQ(0, mw_cancel(self->fd, id));
		EXPECT_EQ(before + count - 1, mw_notify(self->fd, b, MEMWAIT_ALL, U32));
		ASSERT_EQ(before + count - 1, count > 1 || before ?
			  mw_read(self->fd, done, ARRAY_SIZE(done)) : 0);
		for (int j = 0; j < before + count - 1; j++)
			ASSERT_EQ(j < before ? 0 : j + 1, done[j].user_data);
	}
}

MEMWAIT_TEST(R17_requeue_again_and_again)
{
	uint32_t *word[3] = { self->shared, self->shared + 1, self->shared + 2 };
	struct waiter w = thread_at(self->fd, word[0]);
	int i;

	waiter_start(&w);
	ASSERT_TRUE(arm_all(self->fd, word[0], "abc"));
	for (i = 0; i < 300; i++) {
		EXPECT_REQUEUED(0, 4, word[i % 3], word[(i + 1) % 3], 0, MEMWAIT_ALL);
		EXPECT_EQ(0, mw_waiters(self->fd, word[i % 3], U32));
		EXPECT_EQ(4, mw_waiters(self->fd, word[(i + 1) % 3], U32));
	}
	EXPECT_EQ(1, mw_notify(self->fd, word[0], 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	EXPECT_STREQ("abc", notify_names(self->fd, word[0]));
}

/* So many words that some of them share a bucket. */
MEMWAIT_TEST(R17_requeue_leaves_the_waiters_of_other_words)
{
	enum { WORDS = 1500, MOVES = 300 };
	uint32_t *words = private_page((WORDS + MOVES) * sizeof(*words)), *targets = words + WORDS;
	struct requeued requeued;
	int i;

	for (i = 0; i < WORDS; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, words + i, i));
	for (i = 0; i < MOVES; i++) {
		ASSERT_EQ(0, mw_requeue(self->fd, words + i, 0, targets + i, 0, MEMWAIT_ALL, U32,
					&requeued));
		ASSERT_EQ(1, requeued.moved);
	}
	for (i = 0; i < WORDS + MOVES; i++)
		ASSERT_EQ(i >= MOVES, mw_notify(self->fd, words + i, MEMWAIT_ALL, U32));
	for (i = 0; i < WORDS; i++)
		ASSERT_EQ(1, mw_read(self->fd, &(struct memwait_completion) { 0 }, 1));
}

MEMWAIT_TEST(R17_requeue_waits_of_several_contexts)
{
	uint32_t *a = self->word, *b = self->word + 1;
	int fds[20], i;

	for (i = 0; i < 20; i++) {
		fds[i] = open_device(O_NONBLOCK);
		ASSERT_EQ(MEMWAIT_PENDING, arm(fds[i], a, 'a' + i));
	}
	/* There are more contexts than one step can collect. */
	EXPECT_REQUEUED(10, 10, a, b, 10, 10);
	for (i = 0; i < 20; i++)
		EXPECT_EQ(i < 10, mw_readable(fds[i]));
	EXPECT_EQ(10, mw_notify(self->fd, b, MEMWAIT_ALL, U32));
	for (i = 0; i < 20; i++) {
		char name[2] = { 'a' + i, 0 };

		EXPECT_STREQ(name, names(fds[i]));
		close(fds[i]);
	}
}

/* R17: words of two objects */

/*
 * If a waiter were moved to another file, it would receive a reference to a file that it never
 * used, possibly the last reference. Therefore both words must belong to one object; otherwise the
 * call fails and has no effect.
 */
MEMWAIT_TEST(R17_requeue_to_another_object_is_exdev)
{
	uint32_t *other = shared_page(self->page), *hole = hole_page(), *a, *b;
	uint32_t *words[] = { self->word, self->shared, other };
	struct waiter w;
	int from, to, n;

	for (from = 0; from < 3; from++) {
		a = words[from];
		w = thread_at(self->fd, a);
		waiter_start(&w);
		ASSERT_TRUE(arm_all(self->fd, a, "ab"));
		for (to = 0; to < 3; to++) {
			struct requeued out = { 7, 7 };

			b = words[to] + 1;
			if (to == from)
				continue;
			for (n = 0; n < 2; n++) {
				/*
				 * The call makes this check before the comparison and after the
				 * access to both words.
				 */
				EXPECT_EQ(-EXDEV, mw_requeue(self->fd, a, n, b, n, n, U32, &out));
				EXPECT_EQ(-EXDEV, mw_requeue(self->fd, a, 0, b, 1, 2, U32, &out));
				EXPECT_EQ(-EFAULT, mw_requeue(self->fd, a, n, hole, n, n, U32,
							      NULL));
			}
			EXPECT_EQ(0, out.woken);
			EXPECT_EQ(0, out.moved);
			EXPECT_EQ(3, mw_waiters(self->fd, a, U32));
			EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
		}
		EXPECT_EQ(1, mw_notify(self->fd, a, 1, U32));
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
		EXPECT_STREQ("ab", notify_names(self->fd, a));
	}
	munmap(other, self->page);
}

/* One object is a file at two addresses through two open files, or all private memory of one mm. */
MEMWAIT_TEST(R17_requeue_within_an_object)
{
	int file = new_file(2 * self->page), again;
	uint32_t *here, *there, *elsewhere = private_page(self->page);
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	again = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, again);
	here = map_shared(file, self->page);
	there = mmap(NULL, self->page, PROT_READ, MAP_SHARED, again, self->page);
	ASSERT_NE(MAP_FAILED, there);
	ASSERT_TRUE(arm_all(self->fd, here, "ab"));
	EXPECT_REQUEUED(1, 1, here, there, 1, 1);
	EXPECT_STREQ("a", names(self->fd));
	EXPECT_STREQ("b", notify_names(self->fd, there));
	munmap(here, self->page);
	munmap(there, self->page);
	close(again);
	close(file);

	ASSERT_TRUE(arm_all(self->fd, self->word, "ab"));
	EXPECT_REQUEUED(1, 1, self->word, elsewhere, 1, 1);
	EXPECT_STREQ("a", names(self->fd));
	EXPECT_STREQ("b", notify_names(self->fd, elsewhere));
	munmap(elsewhere, self->page);
}

/*
 * With PRIVATE both words are words of the caller's address space, whatever is mapped at the
 * addresses.
 */
MEMWAIT_TEST(R9_requeue_private_words_of_two_files)
{
	uint32_t *other = shared_page(self->page);
	uint32_t flags = U32 | MEMWAIT_PRIVATE;
	struct requeued out;

	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, FOREVER, flags, 'a', NULL));
	EXPECT_EQ(0, mw_requeue(self->fd, self->shared, 0, other, 0, 1, flags, &out));
	EXPECT_EQ(1, out.moved);
	EXPECT_EQ(1, mw_notify(self->fd, other, 1, flags));
	EXPECT_STREQ("a", names(self->fd));
	munmap(other, self->page);
}

/* A process moves the waiters and exits. The waiters stay on the word to which they were moved. */
MEMWAIT_TEST(R11_requeue_by_a_process_that_exits)
{
	struct waiter timed = thread_at(self->fd, self->shared), interrupted = timed;
	uint32_t *target = self->shared + 1;
	struct memwait_completion done;
	uint64_t pending;
	pid_t pid;

	handle(SIGUSR1, 0);
	waiter_start(&interrupted);
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, FOREVER, U32, 8, &pending));
	/*
	 * If these two waits expire before the requeue, they are not moved, which does not affect
	 * the test.
	 */
	timed.deadline = in_ms(1500);
	waiter_start(&timed);
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->shared, 1500, 7, NULL));
	pid = run_in_child(mw_requeue(self->fd, self->shared, 0, target, 0, MEMWAIT_ALL, U32,
				      NULL));
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(0, mw_waiters(self->fd, self->shared, U32));
	interrupt_thread(interrupted.thread, interrupted.tid);
	EXPECT_EQ(-EINTR, waiter_join(&interrupted));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, waiter_join(&timed));
	EXPECT_EQ(1, await_completions(self->fd, &done, 1));
	EXPECT_EQ(7, done.user_data);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
	EXPECT_EQ(1, mw_waiters(self->fd, target, U32));
	EXPECT_EQ(0, mw_cancel(self->fd, pending));
}

MEMWAIT_TEST(R11_requeue_then_unmap)
{
	uint32_t *from = shared_page(2 * self->page), *to = from + self->page / sizeof(*from);
	struct waiter w = thread_at(self->fd, from);
	pid_t pid;

	waiter_start(&w);
	ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, from, 'a'));
	pid = fork_child();
	if (!pid) {
		await_waiters(self->fd, to, U32, 2);
		__atomic_store_n(self->shared, 1, __ATOMIC_RELEASE);
		await_waiters(self->fd, self->shared + 1, U32, 1);
		_exit(mw_notify(self->fd, to, MEMWAIT_ALL, U32));
	}
	EXPECT_REQUEUED(0, 2, from, to, 0, MEMWAIT_ALL);
	spin_until(__atomic_load_n(self->shared, __ATOMIC_ACQUIRE));
	EXPECT_EQ(0, munmap(from, self->page));
	EXPECT_EQ(0, munmap(to, self->page));
	ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, self->shared + 1, 'b'));
	EXPECT_EQ(2, child_status(pid));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	EXPECT_STREQ("a", names(self->fd));
	EXPECT_STREQ("b", notify_names(self->fd, self->shared + 1));
}

MEMWAIT_TEST(R7_requeue_faults_the_word_in)
{
	uint32_t *from = self->word, *to = private_page(self->page);
	int i;

	for (i = 0; i < 100; i++) {
		ASSERT_TRUE(arm_all(self->fd, from, "abc"));
		ASSERT_EQ(0, madvise(from, self->page, MADV_DONTNEED));
		EXPECT_REQUEUED(1, 1, from, to, 1, 1);
		EXPECT_STREQ("a", names(self->fd));
		/* The kernel never accesses the target. */
		EXPECT_STREQ("b", notify_names(self->fd, to));
		EXPECT_STREQ("c", notify_names(self->fd, from));
	}
	ASSERT_TRUE(arm_all(self->fd, from, "abc"));
	EXPECT_EQ(0, mprotect(from, self->page, PROT_READ));
	EXPECT_EQ(0, mprotect(to, self->page, PROT_READ));
	EXPECT_REQUEUED(1, 1, from, to, 1, 1);
	EXPECT_STREQ("ab", notify_names(self->fd, to));
	EXPECT_STREQ("c", notify_names(self->fd, from));
}

/*
 * REQUEUE does not block. Therefore no signal interrupts it, even while it retries because of a
 * page fault.
 */
MEMWAIT_TEST(R17_requeue_is_not_interrupted)
{
	struct itimerval once = { 0 };
	struct dropper d = { .page = self->word, .size = self->page };
	sigset_t alarm;
	int i;

	handle(SIGALRM, 0);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	ASSERT_EQ(0, pthread_create(&d.thread, NULL, drop_pages, &d));
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	for (i = 0; i < SOME_OF(10000) || !handled; i++) {
		/*
		 * Each round has one signal and a limited number of drops, so that a slow machine
		 * makes progress.
		 */
		once.it_value.tv_usec = 1 + i % 128;
		setitimer(ITIMER_REAL, &once, NULL);
		__atomic_store_n(&d.times, i % 16, __ATOMIC_RELAXED);
		ASSERT_EQ(0, mw_requeue(self->fd, self->word, 0, self->word + 1, 1, 1, U32, NULL));
	}
	dropper_stop(&d);
}

/* Groups */

MEMWAIT_TEST(R16_requeue_a_member_keeps_its_index_and_the_others_stay)
{
	uint32_t *a = self->word, *b = self->word + 1, *c = self->word + 2, *d = self->word + 9;
	struct memwait_completion done;
	struct memwait_wait waits[3];
	struct any_waiter w;
	int i;

	members(waits, self->word, 3);
	for (i = 0; i < 3; i++) {
		w = any_of(self->fd, waits, 3);
		any_start(&w);
		ASSERT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, FOREVER, 0, i, NULL));
		EXPECT_REQUEUED(0, 2, b, d, 0, MEMWAIT_ALL);
		EXPECT_EQ(2, mw_waiters(self->fd, a, U32));
		EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
		EXPECT_EQ(2, mw_waiters(self->fd, c, U32));
		EXPECT_EQ(2, mw_waiters(self->fd, d, U32));
		EXPECT_EQ(0, mw_notify(self->fd, b, MEMWAIT_ALL, U32));
		/* The group is notified through the moved member or through another member. */
		EXPECT_EQ(2, mw_notify(self->fd, i == 0 ? a : i == 1 ? d : c, MEMWAIT_ALL, U32));
		EXPECT_EQ(MEMWAIT_OK, any_join(&w));
		EXPECT_EQ((uint32_t)i, w.index);
		memset(&done, 0xcc, sizeof(done));
		ASSERT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(MEMWAIT_OK, done.result);
		EXPECT_EQ((uint32_t)i, done.index);
		EXPECT_EQ(0, mw_waiters(self->fd, a, U32));
		EXPECT_EQ(0, mw_waiters(self->fd, c, U32));
		EXPECT_EQ(0, mw_waiters(self->fd, d, U32));
	}
}

MEMWAIT_TEST(R16_requeue_all_members_to_one_word)
{
	uint32_t *d = self->word + 9;
	struct memwait_completion done;
	struct memwait_wait waits[3];
	struct any_waiter w;
	int i;

	members(waits, self->word, 3);
	w = any_of(self->fd, waits, 3);
	any_start(&w);
	ASSERT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 3, FOREVER, 0, 1, NULL));
	/* Move the last member first. */
	for (i = 2; i >= 0; i--)
		EXPECT_REQUEUED(0, 2, self->word + i, d, 0, MEMWAIT_ALL);
	EXPECT_EQ(6, mw_waiters(self->fd, d, U32));
	ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, d, 'a'));
	EXPECT_EQ(1, mw_notify(self->fd, d, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	EXPECT_EQ(2, w.index);
	EXPECT_EQ(4, mw_waiters(self->fd, d, U32));
	/*
	 * A requeue also wakes a group only once, and does not move the group's remaining members.
	 */
	EXPECT_REQUEUED(1, 1, d, self->word, 1, MEMWAIT_ALL);
	EXPECT_EQ(0, mw_waiters(self->fd, d, U32));
	EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));
	ASSERT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(2, done.index);
	EXPECT_STREQ("a", notify_names(self->fd, self->word));
}

/* The members of a woken group that are still queued are neither woken, moved nor counted. */
MEMWAIT_TEST(R16_requeue_passes_over_a_woken_group)
{
	uint32_t *a = self->word, *b = self->word + 1;
	struct memwait_wait waits[4];
	struct any_waiter w;
	int i;

	for (i = 0; i < 4; i++)
		waits[i] = member(a, 0, U32);
	w = any_of(self->fd, waits, 4);
	any_start(&w);
	ASSERT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 4, FOREVER, 0, 1, NULL));
	ASSERT_TRUE(arm_all(self->fd, a, "abc"));
	EXPECT_EQ(11, mw_waiters(self->fd, a, U32));
	EXPECT_REQUEUED(3, 1, a, b, 3, 1);
	EXPECT_EQ(MEMWAIT_OK, any_join(&w));
	EXPECT_EQ(0, w.index);
	EXPECT_COMPLETION(self->fd, 1, MEMWAIT_OK);
	EXPECT_STREQ("a", names(self->fd));
	EXPECT_STREQ("b", notify_names(self->fd, b));
	EXPECT_STREQ("c", notify_names(self->fd, a));
}

/* Deadlines, cancel, close */

MEMWAIT_TEST(R4_requeue_keeps_the_deadlines_of_threads)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	uint32_t *a = self->shared, *b = self->shared + 16;
	struct memwait_wait waits[2];
	struct requeued requeued;
	struct any_waiter any;
	struct waiter w[4];
	uint64_t ms = 500;
	int i;

	waits[0] = member(self->word + 5, 0, U32);
	waits[1] = member(a, 0, U32);
	/* Retry with later deadlines until all waits are moved before their deadlines. */
	do {
		ms *= 2;
		for (i = 0; i < 4; i++) {
			w[i] = thread_at(self->fd, a);
			w[i].deadline = now_ns(clocks[i % 2]) + (ms + i * 10) * NSEC_PER_MSEC;
			w[i].flags |= i % 2 ? MEMWAIT_CLOCK_REALTIME : 0;
			waiter_start(&w[i]);
		}
		any = any_of(self->fd, waits, 2);
		any.deadline = in_ms(ms);
		any_start(&any);
		ASSERT_EQ(0, mw_requeue(self->fd, a, 0, b, 0, MEMWAIT_ALL, U32, &requeued));
		for (i = 0; i < 4; i++) {
			EXPECT_EQ(MEMWAIT_TIMED_OUT, waiter_join(&w[i]));
			EXPECT_LE(w[i].deadline, now_ns(clocks[i % 2]));
		}
		EXPECT_EQ(MEMWAIT_TIMED_OUT, any_join(&any));
		EXPECT_LE(any.deadline, now_ns(CLOCK_MONOTONIC));
	} while (requeued.moved != 5);
	EXPECT_EQ(0, mw_waiters(self->fd, a, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word + 5, U32));
}

MEMWAIT_TEST(R4_requeue_keeps_the_deadlines_of_async_waits)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	uint32_t *a = self->shared, *b = self->shared + 16;
	struct memwait_completion done;
	struct memwait_wait waits[2];
	uint64_t deadlines[9], ids[9], ms = 500;
	struct requeued requeued;
	int i;

	members(waits, a, 2);
	/* Retry with later deadlines until all waits are moved before their deadlines. */
	do {
		ms *= 2;
		renew(&self->fd);
		for (i = 0; i < 9; i++) {
			uint32_t realtime = i % 2 ? MEMWAIT_CLOCK_REALTIME : 0;

			/* The deadlines are not in the order of arming. */
			deadlines[i] = now_ns(clocks[i % 2]) + (ms + i * 5 % 9) * NSEC_PER_MSEC;
			if (i % 3)
				mw_async(self->fd, a, 0, deadlines[i], U32 | realtime, i, &ids[i]);
			else
				mw_group(self->fd, waits, 2, deadlines[i], realtime, i, &ids[i]);
		}
		ASSERT_EQ(0, mw_requeue(self->fd, a, 0, b, 0, MEMWAIT_ALL, U32, &requeued));
	} while (requeued.moved != 9);
	for (i = 0; i < 9; i++) {
		ASSERT_EQ(1, await_completions(self->fd, &done, 1));
		ASSERT_GT(9, done.user_data);
		EXPECT_EQ(ids[done.user_data], done.id);
		EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
		EXPECT_LE(deadlines[done.user_data], now_ns(clocks[done.user_data % 2]));
		ids[done.user_data] = 0;
	}
	EXPECT_EQ(0, mw_waiters(self->fd, a, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, a + 1, U32));
}

MEMWAIT_TEST(R23_requeue_then_cancel)
{
	uint32_t *a = self->shared, *b = self->shared + 16;
	struct memwait_wait waits[2];
	uint64_t ids[6];
	int i;

	waits[0] = member(a + 1, 0, U32);
	waits[1] = member(a, 0, U32);
	for (i = 0; i < 6; i++) {
		uint64_t deadline = i % 2 ? FOREVER : in_ms(HOUR);

		ASSERT_EQ(MEMWAIT_PENDING,
			  i % 3 ? mw_async(self->fd, a, 0, deadline, U32, 'a' + i, &ids[i]) :
				  mw_group(self->fd, waits, 2, deadline, 0, 'a' + i, &ids[i]));
	}
	EXPECT_REQUEUED(0, 5, a, b, 0, 5);
	for (i = 1; i < 6; i += 2)
		EXPECT_EQ(0, mw_cancel(self->fd, ids[i]));
	EXPECT_EQ(3, mw_waiters(self->fd, b, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, a, U32));
	EXPECT_EQ(1, mw_waiters(self->fd, a + 1, U32));
	EXPECT_STREQ("ace", notify_names(self->fd, b));
	for (i = 0; i < 6; i++)
		EXPECT_EQ(-ENOENT, mw_cancel(self->fd, ids[i]));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

MEMWAIT_TEST(R25_requeue_then_close)
{
	uint32_t *a = self->shared, *b = self->shared + 16;
	struct memwait_wait waits[2];
	int fd = memwait_open(O_NONBLOCK);

	members(waits, a, 2);
	ASSERT_TRUE(arm_all(fd, a, "ab"));
	ASSERT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, 2, FOREVER, 0, 'c', NULL));
	ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, a, 'd'));
	EXPECT_REQUEUED(0, 4, a, b, 0, MEMWAIT_ALL);
	close(fd);
	EXPECT_EQ(1, mw_waiters(self->fd, b, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, a + 1, U32));
	EXPECT_STREQ("", names(self->fd));
	EXPECT_STREQ("d", notify_names(self->fd, b));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

/*
 * An unread OK is passed on at the word where the wait was notified. This word differs from the
 * word where the wait was armed.
 */
MEMWAIT_TEST(R25_requeue_an_unread_ok_is_passed_on_at_the_target)
{
	struct memwait_wait waits[2];
	uint32_t *a, *b;
	int i, fd;

	for (i = 0; i < 4; i++) {
		a = i % 2 ? self->shared : self->word;
		b = a + 1;
		fd = memwait_open(O_NONBLOCK);
		waits[0] = member(self->word + 5, 0, U32);
		waits[1] = member(a, 0, U32);
		ASSERT_EQ(MEMWAIT_PENDING, i < 2 ? arm(fd, a, 'x') :
			  mw_group(fd, waits, 2, FOREVER, 0, 'x', NULL));
		EXPECT_REQUEUED(0, 1, a, b, 0, 1);
		ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, a, 'a'));
		ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, self->word + 5, 'b'));
		ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, b, 'c'));
		EXPECT_EQ(1, mw_notify(self->fd, b, 1, U32));
		EXPECT_STREQ("", names(self->fd));
		close(fd);
		EXPECT_STREQ("c", names(self->fd));
		EXPECT_STREQ("a", notify_names(self->fd, a));
		EXPECT_STREQ("b", notify_names(self->fd, self->word + 5));

		/* If the requeue itself has woken the wait, its OK is passed on at the old word. */
		fd = memwait_open(O_NONBLOCK);
		ASSERT_EQ(MEMWAIT_PENDING, arm(fd, a, 'x'));
		ASSERT_TRUE(arm_all(self->fd, a, "ab"));
		EXPECT_REQUEUED(1, 1, a, b, 1, 1);
		close(fd);
		EXPECT_STREQ("b", names(self->fd));
		EXPECT_STREQ("a", notify_names(self->fd, b));
	}
}

/* A thread that changes the word during a requeue, and checks which waiters are still queued. */
struct changer {
	pthread_barrier_t barrier;
	uint32_t *word;
	int fd;
	int pause;		/* delay before the change, in us */
	bool stop;
	int found;
};

static void *change_it(void *arg)
{
	struct changer *c = arg;
	int i;

	for (i = 0;; i++) {
		pthread_barrier_wait(&c->barrier);
		if (c->stop)
			return NULL;
		linger(i);
		usleep(c->pause);
		__atomic_store_n(c->word, 1, __ATOMIC_SEQ_CST);
		c->found = mw_waiters(c->fd, c->word, U32);
		pthread_barrier_wait(&c->barrier);
	}
}

/* The number of waiters that one step visits. */
#define STEP	64

/*
 * Arms as many waits as one step visits. Returns when all of them are overdue and none has ended.
 */
static void fill_a_step(struct __test_metadata *_metadata, int fd, uint32_t *word)
{
	struct memwait_completion done[STEP];
	struct memwait_async entries[STEP];
	int i, ms, pending;

	for (ms = 3;; ms *= 2) {
		memset(entries, 0, sizeof(entries));
		for (i = 0; i < STEP; i++) {
			entries[i].wait.addr = (uintptr_t)word;
			entries[i].wait.flags = U32;
			entries[i].wait.deadline = in_ms(ms);
		}
		ASSERT_EQ(STEP, mw_batch(fd, entries, STEP));
		for (i = pending = 0; i < STEP; i++)
			pending += entries[i].result == MEMWAIT_PENDING;
		while (now_ns(CLOCK_MONOTONIC) <= entries[STEP - 1].wait.deadline)
			usleep(500);
		if (pending == STEP)
			return;
		while (mw_read(fd, done, STEP) > 0)
			;
	}
}

/* The first waiters are overdue, and fill the first step. */
MEMWAIT_TEST(R17_the_first_wake_up_is_one_step_with_the_comparison)
{
	struct memwait_completion completions[STEP];
	struct changer c = { .word = self->word };
	int i, ret, woken = 0, refused = 0;
	struct requeued out;
	pthread_t thread;

	c.fd = memwait_open(O_NONBLOCK);
	ASSERT_LE(0, c.fd);
	pthread_barrier_init(&c.barrier, NULL, 2);
	ASSERT_EQ(0, pthread_create(&thread, NULL, change_it, &c));
	/* The race is repeated until both outcomes have occurred. */
	for (i = 0; i < SOME_OF(3000) || !woken || !refused; i++) {
		*self->word = 0;
		fill_a_step(_metadata, self->fd, self->word);
		ASSERT_EQ(MEMWAIT_PENDING, arm(c.fd, self->word, 'x'));
		c.pause = woken ? 0 : 10 * i;
		pthread_barrier_wait(&c.barrier);
		usleep(refused ? 0 : 10 * i);
		ret = mw_requeue(self->fd, self->word, 0, self->word + 2, 1, 0, U32, &out);
		pthread_barrier_wait(&c.barrier);
		woken += !ret && out.woken;
		refused += ret == MEMWAIT_NOT_EQUAL;
		/* The wait behind the overdue waits is woken only while the word is 0. */
		EXPECT_TRUE(ret ? ret == MEMWAIT_NOT_EQUAL && !out.woken && c.found :
				  out.woken == 1 && !c.found);
		EXPECT_EQ(ret ? 1 : 0, mw_notify(self->fd, self->word, 1, U32));
		ASSERT_EQ(1, mw_read(c.fd, completions, STEP));
		while (mw_read(self->fd, completions, STEP) > 0)
			;
	}
	c.stop = true;
	pthread_barrier_wait(&c.barrier);
	pthread_join(thread, NULL);
	TH_LOG("%d woken, %d refused", woken, refused);
	close(c.fd);
}

TEST_HARNESS_MAIN
