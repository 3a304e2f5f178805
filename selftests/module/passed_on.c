// SPDX-License-Identifier: GPL-2.0
/* R25, R32: to whom the notifies of a context go that nobody has read, and that this has an end. */
#include "several_test.h"

/* A word's waits in the context that ends, in what order others wait there, and what those get. */
static const struct line {
	const char *name;
	int own;		/* waits with MEMWAIT_PERSISTENT */
	int group;		/* and a group */
	int counted;		/* notifies of all */
	const char *others;	/* o: one shot, p: persistent */
	int got[4];
} lines[] = {
	{ "nobody", 2, 0, 5, "", { 0 } },
	{ "one for each", 1, 0, 5, "oo", { 1, 1 } },
	{ "a persistent one takes the rest", 1, 0, 5, "opo", { 1, 3, 1 } },
	{ "the first of two", 1, 0, 9, "oppo", { 1, 6, 1, 1 } },
	{ "of several waits, once", 3, 0, 4, "opo", { 1, 10, 1 } },
	{ "fewer than wait", 1, 0, 2, "oopo", { 1, 1 } },
	{ "with a group", 1, 1, 2, "po", { 2, 1 } },
};

struct others {
	int fd;
	struct runner runner;
	uint32_t *word;
	long oks, looks;
	int stop;
};

static int watch(int fd, const uint32_t *word, uint64_t user_data)
{
	return mw_async(fd, word, 0, FOREVER, U32 | MEMWAIT_PERSISTENT, user_data, NULL);
}

/* All notifies of a line are counted by one context, which nobody reads, and then by nobody. */
static int count_line(int fd, const struct line *line, uint32_t *word)
{
	struct memwait_wait of_group = member(word, 0, U32);
	int i, failed = 0;

	for (i = 0; i < line->own; i++)
		failed |= watch(fd, word, i) != MEMWAIT_PENDING;
	if (line->group)
		failed |= mw_group(fd, &of_group, 1, FOREVER, 0, i, NULL) != MEMWAIT_PENDING;
	for (i = 0; i < line->counted; i++)
		failed |= mw_notify(fd, word, MEMWAIT_ALL, U32) != line->own + (line->group && !i);
	return failed;
}

MEMWAIT_TEST(R25_R32_the_unread_goes_to_those_who_wait_now)
{
	uint32_t *words = self->shared;
	struct memwait_completion done;
	int got[ARRAY_SIZE(lines)][4] = { 0 };
	int fd = memwait_open(O_NONBLOCK), n;
	size_t i, j;

	/* One context has the waits of all lines, in turns. */
	for (i = 0; i < ARRAY_SIZE(lines); i++)
		ASSERT_EQ(0, count_line(fd, &lines[i], &words[i]));
	for (j = 0; j < 4; j++) {
		for (i = 0; i < ARRAY_SIZE(lines); i++) {
			if (strlen(lines[i].others) <= j)
				continue;
			ASSERT_EQ(MEMWAIT_PENDING, lines[i].others[j] == 'p' ?
				  watch(self->fd, &words[i], i * 4 + j) :
				  mw_arm(self->fd, &words[i], i * 4 + j));
		}
	}
	close(fd);
	while ((n = mw_read(self->fd, &done, 1)) == 1) {
		EXPECT_EQ(MEMWAIT_OK, done.result);
		got[done.user_data / 4][done.user_data % 4] += done.count;
	}
	EXPECT_EQ(-EAGAIN, n);
	for (i = 0; i < ARRAY_SIZE(lines); i++) {
		TH_LOG("%s", lines[i].name);
		for (j = 0; j < 4; j++)
			EXPECT_EQ(lines[i].got[j], got[i][j]);
	}
}

/* Joins again whenever it is notified. */
static int join_again(struct others *others)
{
	struct memwait_completion done[16];
	int n, i;

	while (!__atomic_load_n(&others->stop, __ATOMIC_ACQUIRE)) {
		n = mw_read(others->fd, done, 16);
		add_one(&others->looks);
		for (i = 0; i < n; i++) {
			others->oks++;
			if (mw_arm(others->fd, others->word, 0) != MEMWAIT_PENDING)
				return -1;
		}
	}
	return 0;
}

ADAPTER(rejoin, struct others *others, join_again(others))

#define OWN	5000	/* so that it takes a while */
#define TIMES	5
#define OTHERS	3

/* Who joins again gets no more than who does not, or the close would last as long as he goes on. */
MEMWAIT_TEST(R25_who_joins_again_does_not_hold_up_the_end_of_a_context)
{
	struct others others = { .fd = memwait_open(O_NONBLOCK), .word = self->shared };
	int fd = memwait_open(O_NONBLOCK), i;

	for (i = 0; i < OWN; i++)
		ASSERT_EQ(MEMWAIT_PENDING, watch(fd, others.word, i));
	for (i = 0; i < TIMES; i++)
		ASSERT_EQ(OWN, mw_notify(fd, others.word, MEMWAIT_ALL, U32));
	for (i = 0; i < OTHERS; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(others.fd, others.word, i));
	runner_start(&others.runner, rejoin, &others);
	await_counted(&others.looks);
	close(fd);
	/* All are read, and are back. */
	await_waiters(self->fd, others.word, U32, OTHERS);
	__atomic_store_n(&others.stop, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(0, runner_join(&others.runner));
	EXPECT_EQ(OTHERS, others.oks);
	close(others.fd);
}

TEST_HARNESS_MAIN
