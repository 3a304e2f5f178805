// SPDX-License-Identifier: GPL-2.0
/* R24: many waits at the limit of a memory cgroup. */
#include "load_test.h"

#define SINGLES		65536	/* of either kind, more than fit into the cgroup */
#define GROUPS		512
#define RELEASED	10	/* number of notified waits, and of cancelled waits */

/*
 * The results of a child in a cgroup. All this memory is touched before the limit is set, because a
 * page fault that exceeds the limit kills the process. Therefore the child only records results,
 * and the parent checks them.
 */
struct confined {
	struct memwait_wait waits[GROUPS * MEMWAIT_GROUP_MAX];
	struct memwait_async entries[SINGLES], again[SINGLES];
	struct memwait_completion done[RELEASED];
	uint32_t words[SINGLES];
	uint32_t own[4];
	int count, words_each;
	long room;

	int armed, rearmed, rest;
	uint64_t user_waits, at_limit, after_release, at_end;
	int waiters, waiters_of_failed, notified, got, in_order, cancelled, enoent;
	int wait, wait_alone, wait_large, requeue, notify_nobody, fit, drained;
};

static void confined_entries(struct confined *c, struct memwait_async *entries)
{
	int i;

	for (i = 0; i < c->count; i++) {
		uint32_t *word = c->words + i * c->words_each;
		struct memwait_wait *waits = c->waits + i * c->words_each;

		if (c->words_each == 1) {
			entries[i] = (struct memwait_async) { .wait = member(word, 0, U32) };
			entries[i].wait.deadline = i % 2 ? FOREVER : in_ms(HOUR);
		} else {
			members(waits, word, c->words_each);
			entries[i] = group_entry(waits, c->words_each,
						 i % 2 ? FOREVER : in_ms(HOUR), 0, 0);
		}
		entries[i].user_data = i;
		entries[i].id = UNTOUCHED;
		entries[i].result = UNTOUCHED;
	}
}

/* Returns the number of waiters of all words of entries @from to @to. */
static int confined_waiters(struct confined *c, int fd, int from, int to)
{
	int i, sum = 0;

	for (i = from * c->words_each; i < to * c->words_each; i++)
		sum += mw_waiters(fd, &c->words[i], U32);
	return sum;
}

/* Notifies a group through its last word. */
static int confined_notify(struct confined *c, int fd, int i)
{
	return mw_notify(fd, &c->words[(i + 1) * c->words_each - 1], 1, U32);
}

static void confined_main(struct confined *c)
{
	int max = open(CGROUP "/memory.max", O_WRONLY), fd = memwait_open(O_NONBLOCK), i, ret;
	struct memwait_wait waits[MEMWAIT_GROUP_MAX];
	char limit[32];

	c->user_waits = mw_user_waits(fd);
	if (max < 0 || fd < 0 || enter_cgroup() || mlockall(MCL_CURRENT))
		_exit(1);
	/* This also touches the memory of errno. */
	if (mw_read(fd, c->done, 1) != -EAGAIN)
		_exit(2);
	snprintf(limit, sizeof(limit), "%ld", read_number(CGROUP "/memory.current") + c->room);
	if (write(max, limit, strlen(limit)) < 0)
		_exit(3);

	c->armed = mw_batch(fd, c->entries, c->count);
	if (c->armed < 4 * RELEASED || c->armed >= c->count)
		_exit(4);
	c->at_limit = mw_user_waits(fd);
	c->waiters = confined_waiters(c, fd, 0, c->armed);
	c->waiters_of_failed = confined_waiters(c, fd, c->armed, c->armed + 1);

	/* Calls that need no memory of the cgroup, or free some, succeed. */
	c->wait = mw_wait(fd, &c->words[0], 0, in_ms(1), U32);
	c->notify_nobody = mw_notify(fd, &c->own[1], 1, U32);

	/*
	 * Calls that need memory of the cgroup fail, but no process is killed because of these
	 * calls.
	 */
	members(waits, c->words, MEMWAIT_GROUP_MAX);
	c->wait_alone = mw_wait(fd, &c->own[0], 0, in_ms(1), U32);
	c->wait_large = mw_wait_any(fd, waits, MEMWAIT_GROUP_MAX, in_ms(1), 0, NULL);
	c->requeue = mw_requeue(fd, &c->own[0], 0, &c->own[1], 0, 0, U32, NULL);

	for (i = 0; i < RELEASED; i++)
		c->notified += confined_notify(c, fd, i);
	c->got = mw_read(fd, c->done, RELEASED);
	for (i = 0; i < c->got; i++)
		c->in_order += c->done[i].id == c->entries[i].id &&
			       c->done[i].user_data == (uint64_t)i &&
			       c->done[i].index == (uint32_t)c->words_each - 1 &&
			       c->done[i].result == MEMWAIT_OK;
	for (; i < 2 * RELEASED; i++) {
		c->cancelled += !mw_cancel(fd, c->entries[i].id);
		c->enoent += mw_cancel(fd, c->entries[i].id) == -ENOENT;
	}
	c->after_release = mw_user_waits(fd);

	/* The cgroup may get freed memory back a little later. */
	while (c->rearmed < RELEASED) {
		ret = mw_batch(fd, c->again + c->rearmed, RELEASED - c->rearmed);
		if (ret < 0 && ret != -ENOMEM)
			_exit(5);
		c->rearmed += ret < 0 ? 0 : ret;
	}
	/* The cgroup becomes full again, possibly after further waits. */
	c->rest = mw_batch(fd, c->again + c->armed, c->count - c->armed);
	if (c->rest >= c->count - c->armed)
		_exit(6);
	c->rest = c->rest < 0 ? 0 : c->rest;

	for (i = 0; i < c->armed + c->rest; i++)
		c->drained += confined_notify(c, fd, i);
	while ((ret = mw_read(fd, c->done, RELEASED)) > 0)
		c->fit += ret;
	c->at_end = mw_user_waits(fd);
	_exit(0);
}

static void confine(struct __test_metadata *_metadata, int count, int words_each)
{
	struct confined *c = shared_page(sizeof(*c));
	uint64_t start = now_ns(CLOCK_MONOTONIC);
	int i, status, armed, pending = 0, enomem = 0, untouched = 0;
	pid_t pid;

	ASSERT_GE(SINGLES, count * words_each);
	/* The parent allocates the shared memory, which is therefore charged to the parent. */
	memset(c, 0, sizeof(*c));
	c->count = count;
	c->words_each = words_each;
	c->room = LOAD(4L << 20, words_each == 1 ? 1L << 20 : 2L << 20);
	confined_entries(c, c->entries);
	confined_entries(c, c->again);

	pid = fork_child();
	if (!pid)
		confined_main(c);
	status = child_status(pid);
	EXPECT_EQ(0, read_number_of(CGROUP "/memory.events", "oom_kill"));
	EXPECT_LT(0, read_number_of(CGROUP "/memory.events", "max"));
	EXPECT_EQ(0, remove_cgroup(CGROUP));
	ASSERT_EQ(0, status);

	armed = c->armed;
	TH_LOG("%ld KB: %d waits on %d words each, then %d and %d again, %.1f s", c->room >> 10,
	       armed, words_each, c->rearmed, c->rest, seconds_since(start));
	for (i = 0; i < count; i++) {
		pending += c->entries[i].result == MEMWAIT_PENDING && c->entries[i].id;
		enomem += c->entries[i].result == -ENOMEM && !c->entries[i].id;
		untouched += c->entries[i].result == (int)UNTOUCHED &&
			     c->entries[i].id == UNTOUCHED;
	}
	EXPECT_EQ(-ENOMEM, c->entries[armed].result);
	EXPECT_EQ(armed, pending);
	EXPECT_EQ(1, enomem);
	EXPECT_EQ(count - armed - 1, untouched);
	EXPECT_EQ(c->user_waits + (uint64_t)armed * words_each + PIN_WAITS, c->at_limit);
	EXPECT_EQ(armed * words_each, c->waiters);
	EXPECT_EQ(0, c->waiters_of_failed);

	EXPECT_EQ(MEMWAIT_TIMED_OUT, c->wait);
	EXPECT_EQ(0, c->notify_nobody);
	/*
	 * The call may succeed if memory was freed in the meantime, for example by a memory
	 * checker.
	 */
	EXPECT_TRUE(c->wait_alone == -ENOMEM || c->wait_alone == MEMWAIT_TIMED_OUT);
	EXPECT_TRUE(c->wait_large == -ENOMEM || c->wait_large == MEMWAIT_TIMED_OUT);
	EXPECT_TRUE(c->requeue == -ENOMEM || !c->requeue);
	EXPECT_EQ(RELEASED, c->notified);
	EXPECT_EQ(RELEASED, c->got);
	EXPECT_EQ(RELEASED, c->in_order);
	EXPECT_EQ(RELEASED, c->cancelled);
	EXPECT_EQ(RELEASED, c->enoent);
	EXPECT_EQ(c->at_limit - 2 * RELEASED * words_each, c->after_release);

	EXPECT_EQ(RELEASED, c->rearmed);
	EXPECT_EQ(armed - RELEASED + c->rest, c->drained);
	EXPECT_EQ(c->drained, c->fit);
	EXPECT_EQ(c->user_waits, c->at_end);
	munmap(c, sizeof(*c));
}

LIMITS_TEST(R24_a_batch_is_cut_at_the_limit_of_the_cgroup)
{
	if (!make_cgroup())
		SKIP(return, "no memory cgroup v2 at /sys/fs/cgroup");
	confine(_metadata, SINGLES, 1);
}

LIMITS_TEST(R24_groups_are_cut_at_the_limit_of_the_cgroup)
{
	if (!make_cgroup())
		SKIP(return, "no memory cgroup v2 at /sys/fs/cgroup");
	confine(_metadata, GROUPS, MEMWAIT_GROUP_MAX);
}

TEST_HARNESS_MAIN
