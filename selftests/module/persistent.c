// SPDX-License-Identifier: GPL-2.0
/* R32: async waits that notifies do not end. */
#include "async_test.h"
#include <sys/epoll.h>

#define FOREVER		MEMWAIT_FOREVER
#define HOUR		3600000
#define PERSISTENT	(U32 | MEMWAIT_PERSISTENT)

/* Arms a persistent wait. Returns the result of mw_async(). */
static int watch(int fd, const volatile void *word, uint64_t user_data, uint64_t *id)
{
	return mw_async(fd, word, 0, FOREVER, PERSISTENT, user_data, id);
}

#define EXPECT_READ(fd_, user_data_, id_, result_, count_, flags_) do {			\
	struct memwait_completion done_;						\
											\
	ASSERT_EQ(1, mw_read((fd_), &done_, 1));					\
	EXPECT_EQ((user_data_), done_.user_data);					\
	EXPECT_EQ((id_), done_.id);							\
	EXPECT_EQ((result_), done_.result);						\
	EXPECT_EQ(0, done_.index);							\
	EXPECT_EQ((count_), done_.count);						\
	EXPECT_EQ((flags_), done_.flags);						\
} while (0)

#define EXPECT_NOTHING(fd_) do {							\
	struct memwait_completion done_;						\
											\
	EXPECT_FALSE(mw_readable(fd_));							\
	EXPECT_EQ(-EAGAIN, mw_read((fd_), &done_, 1));					\
} while (0)

MEMWAIT_TEST(R32_the_wait_stays_armed_and_counts)
{
	uint64_t id;
	int i, n;

	ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, self->word, 7, &id));
	for (n = 1; n < 5; n++) {
		EXPECT_NOTHING(self->fd);
		for (i = 0; i < n; i++) {
			EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
			EXPECT_TRUE(mw_readable(self->fd));
			EXPECT_EQ(1, mw_fdinfo(self->fd, "completed"));
			EXPECT_EQ(1, mw_fdinfo(self->fd, "pending"));
		}
		EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));
		EXPECT_EQ(self->user_waits + 1 + PIN_WAITS, mw_user_waits(self->fd));
		EXPECT_READ(self->fd, 7, id, MEMWAIT_OK, n, MEMWAIT_MORE);
	}
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
	EXPECT_EQ(0, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
	EXPECT_NOTHING(self->fd);
}

MEMWAIT_TEST(R32_one_notify_counts_the_wait_once)
{
	uint64_t ids[3];
	int i;

	for (i = 0; i < 3; i++)
		ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, self->shared, i, &ids[i]));
	EXPECT_EQ(3, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	EXPECT_EQ(3, mw_notify(self->fd, self->shared, 100, U32));
	EXPECT_EQ(2, mw_notify(self->fd, self->shared, 2, U32));
	for (i = 0; i < 3; i++)
		EXPECT_READ(self->fd, i, ids[i], MEMWAIT_OK, i < 2 ? 3 : 2, MEMWAIT_MORE);
	EXPECT_NOTHING(self->fd);
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, mw_cancel(self->fd, ids[i]));
}

/*
 * There are more waiters than one step visits. One of them is a thread, and some are waits that a
 * notify ends.
 */
MEMWAIT_TEST(R32_a_notify_of_many_counts_each_once)
{
	const int many = 300;
	struct memwait_completion *done = private_page(many * sizeof(*done));
	uint64_t *ids = private_page(many * sizeof(*ids));
	struct waiter w = thread_at(self->fd, self->word);
	int i;

	for (i = 0; i < many; i++) {
		ASSERT_EQ(MEMWAIT_PENDING,
			  mw_async(self->fd, self->word, 0, FOREVER, i % 3 ? PERSISTENT : U32, i,
				   &ids[i]));
		if (i == many / 2)
			waiter_start(&w);
	}
	EXPECT_EQ(many + 1, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	ASSERT_EQ(many, mw_read(self->fd, done, many));
	for (i = 0; i < many; i++) {
		ASSERT_EQ(i, done[i].user_data);
		ASSERT_EQ(1, done[i].count);
		ASSERT_EQ(i % 3 ? MEMWAIT_MORE : 0, done[i].flags);
	}
	EXPECT_EQ(many - many / 3, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	close(self->fd);
	self->fd = memwait_open(O_NONBLOCK);
}

MEMWAIT_TEST(R32_a_notify_moves_the_wait_to_the_end_of_its_queue)
{
	uint64_t a, b, other;

	ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, self->word, 1, &a));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 2, &other));
	ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, self->word, 3, &b));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_READ(self->fd, 1, a, MEMWAIT_OK, 1, MEMWAIT_MORE);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_READ(self->fd, 2, other, MEMWAIT_OK, 1, 0);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_READ(self->fd, 3, b, MEMWAIT_OK, 1, MEMWAIT_MORE);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_READ(self->fd, 1, a, MEMWAIT_OK, 1, MEMWAIT_MORE);
	EXPECT_EQ(0, mw_cancel(self->fd, a));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 2, U32));
	EXPECT_READ(self->fd, 3, b, MEMWAIT_OK, 1, MEMWAIT_MORE);
	EXPECT_EQ(0, mw_cancel(self->fd, b));
}

MEMWAIT_TEST(R32_cancel_keeps_an_existing_completion)
{
	uint64_t id;

	ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, self->word, 5, &id));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
	EXPECT_EQ(0, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
	EXPECT_READ(self->fd, 5, id, MEMWAIT_OK, 2, 0);
	EXPECT_NOTHING(self->fd);
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

/*
 * Arms a wait with a deadline and notifies it before the deadline. If the notify produces an edge
 * on @epoll, consumes that edge. The edge of the timer comes later. Returns the deadline.
 */
static uint64_t watch_and_notify(int fd, int epoll, const volatile void *word, uint64_t *id)
{
	struct memwait_completion done;
	struct epoll_event event;
	uint64_t ms = 20, deadline;

	for (;; ms *= 2) {
		deadline = in_ms(ms);
		if (mw_async(fd, word, 0, deadline, PERSISTENT, 9, id) != MEMWAIT_PENDING)
			continue;
		mw_notify(fd, word, 1, U32);
		epoll_wait(epoll, &event, 1, 0);
		if (now_ns(CLOCK_MONOTONIC) < deadline)
			return deadline;
		mw_cancel(fd, *id);
		mw_read(fd, &done, 1);
	}
}

MEMWAIT_TEST(R32_a_deadline_is_one_more_completion)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(EPOLL_CLOEXEC), i;
	struct memwait_completion done[2];
	uint64_t id;

	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event));
	for (i = 0; i < 3; i++) {
		watch_and_notify(self->fd, epoll, self->word, &id);
		if (i == 0)
			EXPECT_READ(self->fd, 9, id, MEMWAIT_OK, 1, MEMWAIT_MORE);
		/* This is the edge of the timer: the deadline has also passed for poll and read. */
		EXPECT_EQ(1, epoll_wait(epoll, &event, 1, -1));
		/* A read ends an overdue wait if it has room for the completion. */
		if (i == 1)
			EXPECT_READ(self->fd, 9, id, MEMWAIT_OK, 1, MEMWAIT_MORE);
		if (i == 2) {
			ASSERT_EQ(1, mw_read(self->fd, done, 2));
			EXPECT_EQ(MEMWAIT_OK, done[0].result);
			EXPECT_EQ(1, done[0].count);
			EXPECT_EQ(MEMWAIT_MORE, done[0].flags);
			EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
		}
		EXPECT_TRUE(mw_readable(self->fd));
		EXPECT_EQ(0, mw_notify(self->fd, self->word, 1, U32));
		EXPECT_READ(self->fd, 9, id, MEMWAIT_TIMED_OUT, 0, 0);
		EXPECT_NOTHING(self->fd);
		EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
		EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
	}
	close(epoll);
}

/* The wait was notified and is overdue now. The next notify goes to the waiters behind it. */
MEMWAIT_TEST(R32_an_overdue_wait_is_passed_over)
{
	uint64_t id, deadline = watch_and_notify(self->fd, -1, self->word, &id);
	struct memwait_completion done[2];

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 2));
	sleep_until(now_ns(CLOCK_MONOTONIC) > deadline);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 2, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
	EXPECT_READ(self->fd, 9, id, MEMWAIT_OK, 1, MEMWAIT_MORE);
	EXPECT_TRUE(mw_readable(self->fd));
	EXPECT_EQ(2, mw_read(self->fd, done, 2));
	EXPECT_NOTHING(self->fd);
}

MEMWAIT_TEST(R32_R25_close_passes_on_one_notify)
{
	int other = memwait_open(O_NONBLOCK), i;
	struct memwait_completion done[8];
	uint64_t id;

	ASSERT_EQ(MEMWAIT_PENDING, watch(other, self->shared, 0, &id));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_READ(other, 0, id, MEMWAIT_OK, 1, MEMWAIT_MORE);
	for (i = 0; i < 3; i++)
		EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	for (i = 0; i < 5; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, i));
	close(other);
	ASSERT_EQ(1, mw_read(self->fd, done, 8));
	EXPECT_EQ(0, done[0].user_data);
	EXPECT_EQ(4, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	EXPECT_EQ(4, mw_read(self->fd, done, 8));
}

/* All notifies were read, so no notify has to be passed on. */
MEMWAIT_TEST(R32_R25_close_passes_on_nothing_that_was_read)
{
	int other = memwait_open(O_NONBLOCK);
	uint64_t id, next;

	ASSERT_EQ(MEMWAIT_PENDING, watch(other, self->shared, 0, &id));
	ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, self->shared, 1, &next));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_READ(other, 0, id, MEMWAIT_OK, 1, MEMWAIT_MORE);
	close(other);
	EXPECT_NOTHING(self->fd);
	EXPECT_EQ(0, mw_cancel(self->fd, next));
}

/* The wait was cancelled before its completion was read. */
MEMWAIT_TEST(R32_R25_close_passes_on_one_notify_of_a_cancelled_wait)
{
	int other = memwait_open(O_NONBLOCK), i;
	struct memwait_completion done[8];
	uint64_t id;

	ASSERT_EQ(MEMWAIT_PENDING, watch(other, self->shared, 0, &id));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EQ(0, mw_cancel(other, id));
	for (i = 0; i < 3; i++)
		ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, self->shared, i, NULL));
	close(other);
	ASSERT_EQ(1, mw_read(self->fd, done, 8));
	EXPECT_EQ(0, done[0].user_data);
	EXPECT_EQ(1, done[0].count);
	close(self->fd);
	self->fd = memwait_open(O_NONBLOCK);
}

MEMWAIT_TEST(R32_the_word_is_compared_when_the_wait_is_armed)
{
	uint64_t id;

	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_async(self->fd, self->word, 1, FOREVER, PERSISTENT, 0,
					      NULL));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_async(self->fd, self->word, 1, 0, PERSISTENT, 0, NULL));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_async(self->fd, self->word, 0, 0, PERSISTENT, 0, NULL));
	ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, self->word, 1, &id));
	*self->word = 3;
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_READ(self->fd, 1, id, MEMWAIT_OK, 1, MEMWAIT_MORE);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_READ(self->fd, 1, id, MEMWAIT_OK, 1, MEMWAIT_MORE);
	EXPECT_EQ(0, mw_cancel(self->fd, id));
}

MEMWAIT_TEST(R32_only_async_waits_on_one_word_can_be_persistent)
{
	struct memwait_wait wait = { .addr = (uintptr_t)self->word, .flags = PERSISTENT };
	struct memwait_wait_any any = { .waits = (uintptr_t)&wait, .count = 1 };
	struct memwait_notify_wait both = {
		.notify = { .addr = (uintptr_t)self->word, .flags = U32 },
		.wait = wait,
	};
	struct memwait_async entry = {
		.any = { .waits = (uintptr_t)&wait, .count = 1, .deadline = FOREVER,
			 .flags = MEMWAIT_GROUP },
	};
	uint64_t id;

	EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_WAIT, &wait));
	EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_WAIT_ANY, &any));
	EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_NOTIFY_WAIT, &both));
	EXPECT_EQ(-EINVAL, mw_batch(self->fd, &entry, 1));
	wait.flags = U32;
	entry.any.flags = MEMWAIT_GROUP | MEMWAIT_PERSISTENT;
	EXPECT_EQ(-EINVAL, mw_batch(self->fd, &entry, 1));
	EXPECT_EQ(-EINVAL, mw_notify(self->fd, self->word, 1, PERSISTENT));
	/* The flag is also invalid for OWNED waits, whose owner must check the word each time. */
	if (!mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, &id))
		EXPECT_EQ(-EINVAL, mw_async(self->fd, self->word, 0, FOREVER,
					    PERSISTENT | MEMWAIT_OWNED, 0, NULL));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

MEMWAIT_TEST(R22_R32_an_edge_comes_with_the_first_notify_after_a_read)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(0), i, round;
	uint64_t id;

	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event));
	ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, self->word, 0, &id));
	for (round = 0; round < 3; round++) {
		EXPECT_EQ(0, epoll_wait(epoll, &event, 1, 0));
		for (i = 0; i < 3; i++)
			EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 0));
		EXPECT_EQ(0, epoll_wait(epoll, &event, 1, 0));
		EXPECT_READ(self->fd, 0, id, MEMWAIT_OK, 3, MEMWAIT_MORE);
	}
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	close(epoll);
}

/* Arms the waits of @kinds in this order (o: a notify ends the wait, p: persistent). */
static int arm_kinds(int fd, const uint32_t *word, const char *kinds, uint64_t *ids)
{
	int i, failed = 0;

	for (i = 0; kinds[i]; i++)
		failed |= mw_async(fd, word, 0, FOREVER, kinds[i] == 'p' ? PERSISTENT : U32, i,
				   &ids[i]) != MEMWAIT_PENDING;
	return failed;
}

/* Notifies all waiters of a word. Returns whether exactly the waits of the kind @kind are woken. */
static bool wakes_kind(int fd, const uint32_t *word, const char *kinds, char kind)
{
	struct memwait_completion done;
	int i;

	mw_notify(fd, word, MEMWAIT_ALL, U32);
	for (i = 0; kinds[i]; i++) {
		if (kinds[i] == kind &&
		    (mw_read(fd, &done, 1) != 1 || done.user_data != (uint64_t)i))
			return false;
	}
	return mw_read(fd, &done, 1) == -EAGAIN;
}

/*
 * The word is the only word in its bucket or shares the bucket. The requeue takes one step or
 * several.
 */
MEMWAIT_TEST(R17_R32_requeue_passes_over_persistent_waits)
{
	char many[150] = "";
	const char *const kinds[] = { "p", "pp", "op", "po", "opo", "pop", "ooppo", many };
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)self->word,
		.target = (uintptr_t)(self->word + 1),
		.move = MEMWAIT_ALL,
		.flags = U32,
	};
	uint64_t ids[sizeof(many)];
	size_t i, j, moved;

	for (i = 0; i < sizeof(many) - 1; i++)
		many[i] = i % 5 ? 'o' : 'p';
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		TH_LOG("%s", kinds[i]);
		ASSERT_EQ(0, arm_kinds(self->fd, self->word, kinds[i], ids));
		for (j = 0, moved = 0; kinds[i][j]; j++)
			moved += kinds[i][j] == 'o';
		EXPECT_EQ(0, xioctl(self->fd, MEMWAIT_IOC_REQUEUE, &requeue));
		EXPECT_EQ(0, requeue.woken);
		EXPECT_EQ(moved, requeue.moved);
		EXPECT_EQ(j - moved, mw_waiters(self->fd, self->word, U32));
		EXPECT_EQ(moved, mw_waiters(self->fd, self->word + 1, U32));
		EXPECT_TRUE(wakes_kind(self->fd, self->word + 1, kinds[i], 'o'));
		EXPECT_TRUE(wakes_kind(self->fd, self->word, kinds[i], 'p'));
		for (j = 0; kinds[i][j]; j++)
			EXPECT_EQ(kinds[i][j] == 'p' ? 0 : -ENOENT, mw_cancel(self->fd, ids[j]));
	}
}

/* A limited number of waiters is moved. Persistent waits between them are not counted. */
MEMWAIT_TEST(R17_R32_persistent_waits_do_not_count_as_moved)
{
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)self->word,
		.target = (uintptr_t)(self->word + 1),
		.count = 1,
		.move = 2,
		.flags = U32,
	};
	uint64_t ids[6];
	int i;

	ASSERT_EQ(0, arm_kinds(self->fd, self->word, "popoop", ids));
	EXPECT_EQ(0, xioctl(self->fd, MEMWAIT_IOC_REQUEUE, &requeue));
	/*
	 * The first waiter was woken, and is queued again behind all waiters that the call visits.
	 */
	EXPECT_EQ(1, requeue.woken);
	EXPECT_EQ(2, requeue.moved);
	EXPECT_READ(self->fd, 0, ids[0], MEMWAIT_OK, 1, MEMWAIT_MORE);
	EXPECT_EQ(2, mw_notify(self->fd, self->word + 1, MEMWAIT_ALL, U32));
	EXPECT_READ(self->fd, 1, ids[1], MEMWAIT_OK, 1, 0);
	EXPECT_READ(self->fd, 3, ids[3], MEMWAIT_OK, 1, 0);
	for (i = 0; i < 6; i++)
		EXPECT_EQ(i == 1 || i == 3 ? -ENOENT : 0, mw_cancel(self->fd, ids[i]));
}

/* Completions that a read could not copy stay unread, and so do later completions. */
MEMWAIT_TEST(R21_R32_a_read_that_faults_loses_nothing)
{
	struct memwait_completion *done = private_page(2 * self->page);
	const int fit = 3, all = 5;
	uint64_t ids[5];
	int i;

	ASSERT_EQ(0, mprotect((char *)done + self->page, self->page, PROT_NONE));
	done = (void *)((char *)done + self->page - fit * sizeof(*done));
	for (i = 0; i < all; i++)
		ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, self->word + i, i, &ids[i]));
	for (i = 0; i < all; i++)
		EXPECT_EQ(1, mw_notify(self->fd, self->word + i, 1, U32));
	EXPECT_EQ(fit, mw_read(self->fd, done, all));
	EXPECT_EQ(-EFAULT, mw_read(self->fd, done + fit, all));
	for (i = 0; i < all; i++)
		EXPECT_EQ(1, mw_notify(self->fd, self->word + i, 1, U32));
	EXPECT_READ(self->fd, 3, ids[3], MEMWAIT_OK, 2, MEMWAIT_MORE);
	EXPECT_READ(self->fd, 4, ids[4], MEMWAIT_OK, 2, MEMWAIT_MORE);
	for (i = 0; i < fit; i++)
		EXPECT_READ(self->fd, i, ids[i], MEMWAIT_OK, 1, MEMWAIT_MORE);
	EXPECT_NOTHING(self->fd);
	for (i = 0; i < all; i++)
		EXPECT_EQ(0, mw_cancel(self->fd, ids[i]));
}

#define WORDS		4
#define NOTIFIERS	3

struct storm {
	int fd;
	uint32_t *words;
	int stop;
	long counted;
};

static void *notify_at_random(void *arg)
{
	struct storm *storm = arg;
	unsigned int n;
	int ret;

	for (n = 0; !__atomic_load_n(&storm->stop, __ATOMIC_ACQUIRE); n++) {
		ret = mw_notify(storm->fd, storm->words + n % WORDS, n % 7 ? 1 : MEMWAIT_ALL, U32);
		if (ret < 0)
			break;
		__atomic_fetch_add(&storm->counted, ret, __ATOMIC_RELAXED);
	}
	return NULL;
}

/*
 * Each counted notify is reported once, whichever event a read races with. Waits end and are armed
 * again.
 */
MEMWAIT_TEST(R5_R32_counted_notifies_are_reported)
{
	struct storm storm = { .fd = memwait_open(0), .words = self->shared };
	uint64_t ids[2 * WORDS], end = in_ms(3000);
	struct memwait_completion done[3];
	pthread_t threads[NOTIFIERS];
	long reported = 0, ended = 0;
	int i, n, round;

	for (i = 0; i < 2 * WORDS; i++)
		ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, storm.words + i % WORDS, i, &ids[i]));
	for (i = 0; i < NOTIFIERS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, notify_at_random, &storm));
	for (round = 0; now_ns(CLOCK_MONOTONIC) < end || round < 1000; round++) {
		n = mw_read(self->fd, done, 3);
		ASSERT_TRUE(n > 0 || n == -EAGAIN);
		for (i = 0; i < n; i++) {
			ASSERT_EQ(MEMWAIT_OK, done[i].result);
			ASSERT_LT(0, done[i].count);
			reported += done[i].count;
			ended += !done[i].flags;
		}
		i = round % (2 * WORDS);
		if (round % 5)
			continue;
		ASSERT_EQ(0, mw_cancel(self->fd, ids[i]));
		ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, storm.words + i % WORDS, i, &ids[i]));
	}
	__atomic_store_n(&storm.stop, 1, __ATOMIC_RELEASE);
	for (i = 0; i < NOTIFIERS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < 2 * WORDS; i++)
		EXPECT_EQ(0, mw_cancel(self->fd, ids[i]));
	while ((n = mw_read(self->fd, done, 3)) > 0) {
		for (i = 0; i < n; i++) {
			reported += done[i].count;
			EXPECT_EQ(0, done[i].flags);
		}
	}
	TH_LOG("%d reads, %ld notifies reported, %ld ends reported", round, reported, ended);
	EXPECT_EQ(storm.counted, reported);
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
	close(storm.fd);
}

/*
 * A process is killed before or anywhere inside a read. One notify is passed on unless the process
 * has read all notifies. The last record in its memory may belong to a read that has returned but
 * was not recorded yet, or to a read that was killed and has consumed nothing. Few processes are
 * killed between these instructions.
 */
#define KILLED	60

MEMWAIT_TEST(R25_R32_a_killed_reader_loses_nothing)
{
	struct {
		uint32_t word;
		int ready, returned;	/* @returned: how many records were read */
		struct memwait_completion done[20 + KILLED];
	} *s = shared_page(2 * self->page);
	struct memwait_completion done;
	long counted, reported, last, passed;
	int round, n, fd, between = 0;
	bool all_read;
	uint64_t id;
	pid_t pid;

	for (round = 0; round < KILLED; round++) {
		memset(s, 0, sizeof(*s));
		pid = fork();
		if (!pid) {
			fd = memwait_open(0);
			if (watch(fd, &s->word, 0, NULL) != MEMWAIT_PENDING)
				_exit(1);
			__atomic_store_n(&s->ready, 1, __ATOMIC_RELEASE);
			while (round % 2)
				pause();
			for (n = 0; mw_read(fd, &s->done[n], 1) == 1; n++)
				__atomic_store_n(&s->returned, n + 1, __ATOMIC_RELEASE);
			_exit(2);
		}
		sleep_until(__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE));
		close(self->fd);
		self->fd = memwait_open(O_NONBLOCK);
		for (counted = 0; counted < 20 + round; counted++)
			EXPECT_EQ(1, mw_notify(self->fd, &s->word, 1, U32));
		ASSERT_EQ(MEMWAIT_PENDING, watch(self->fd, &s->word, 1, &id));
		kill_child(pid);
		reported = 0;
		passed = 0;
		for (n = 0; n < s->returned; n++)
			reported += s->done[n].count;
		last = s->done[n].count;
		while ((n = mw_read(self->fd, &done, 1)) == 1)
			passed += done.count;
		EXPECT_EQ(-EAGAIN, n);
		TH_LOG("%ld counted: %ld read, %ld in between, %ld passed on", counted, reported,
		       last, passed);
		all_read = reported == counted;
		EXPECT_GE(1, passed);
		if (passed == all_read) {
			EXPECT_EQ(0, passed);
			EXPECT_EQ(counted, reported + last);
			between++;
		}
		EXPECT_EQ(0, mw_cancel(self->fd, id));
	}
	TH_LOG("%d of %d were killed between the read and its record", between, KILLED / 2);
	EXPECT_GT(KILLED / 6, between);
	munmap(s, 2 * self->page);
}

TEST_HARNESS_MAIN
