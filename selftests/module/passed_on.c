// SPDX-License-Identifier: GPL-2.0
/* R25, R32: which waiters get the unread notifies of a closed context, and how many. */
#include "several_test.h"

/*
 * The number of waits of the closed context on a word, the other waiters of the word, and the
 * number of notifies that each of the other waiters gets.
 */
static const struct line {
	const char *name;
	int own;		/* number of waits with MEMWAIT_PERSISTENT */
	int group;		/* also a group wait */
	int counted;		/* number of notifies with count MEMWAIT_ALL */
	const char *others;	/* o: one-shot, p: persistent */
	int got[4];
} lines[] = {
	{ "no waiter", 2, 0, 5, "", { 0 } },
	{ "one, however often it was notified", 1, 0, 5, "oo", { 1 } },
	{ "one for each", 3, 0, 2, "opo", { 1, 1, 1 } },
	{ "a persistent wait is queued again", 5, 0, 1, "opo", { 1, 3, 1 } },
	{ "fewer than wait", 3, 0, 4, "oppo", { 1, 1, 1 } },
	{ "one of a group", 1, 1, 2, "po", { 1, 1 } },
};

static int watch(int fd, const uint32_t *word, uint64_t user_data)
{
	return mw_async(fd, word, 0, FOREVER, U32 | MEMWAIT_PERSISTENT, user_data, NULL);
}

/* Arms the waits of a line in one context and notifies them. Their completions are never read. */
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

MEMWAIT_TEST(R25_R32_unread_notifies_go_to_current_waiters)
{
	uint32_t *words = self->shared;
	struct memwait_completion done;
	int got[ARRAY_SIZE(lines)][4] = { 0 };
	int fd = memwait_open(O_NONBLOCK), n;
	size_t i, j;

	/* One context has the waits of all lines. The notifies of the lines alternate. */
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

#define OWN	2000
#define TIMES	50

/* The words alternate, so consecutive completions belong to different words. */
MEMWAIT_TEST(R25_a_close_passes_on_one_notify_for_each_wait)
{
	uint32_t *words = self->shared;
	struct memwait_completion done;
	int fd = memwait_open(O_NONBLOCK), i, j;

	for (i = 0; i < OWN; i++)
		ASSERT_EQ(MEMWAIT_PENDING, watch(fd, &words[i % 2], i));
	for (i = 0; i < OWN; i++)
		ASSERT_EQ(1, mw_notify(fd, &words[i % 2], 1, U32));
	for (i = 0; i < TIMES; i++) {
		for (j = 0; j < 2; j++)
			ASSERT_EQ(OWN / 2, mw_notify(fd, &words[j], MEMWAIT_ALL, U32));
	}
	for (j = 0; j < 2; j++)
		ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, &words[j], j));
	close(fd);
	for (j = 0; j < 2; j++) {
		ASSERT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(j, done.user_data);
		EXPECT_EQ(OWN / 2, done.count);
	}
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, &done, 1));
}

TEST_HARNESS_MAIN
