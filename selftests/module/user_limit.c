// SPDX-License-Identifier: GPL-2.0
/* R24: two users, one of which is at the limit. */
#include "load_test.h"

#define USER_A		64001
#define USER_B		64002
#define USER_THREADS	4
#define USER_BATCH	8
#define USER_FILLS	200	/* how often a thread reaches the limit before a check */

struct users {
	uint32_t words[USER_BATCH + 1];	/* the last word is for waits that stay */
	int limit, rounds;
	int stop;
	long armed, refused, cancelled, rounds_done, checked, wrong;
	pthread_barrier_t barrier;	/* of user A's threads */
	bool last;
};

struct user_thread {
	struct users *users;
	pthread_t thread;
	int fd;
	bool first;
	uint64_t random;
	struct {
		uint64_t id;
		int words;
	} *waits;		/* has room for the limit */
	int nr;
	long held;		/* number of words of these waits */
};

/* Arms single waits and, as the last entry, a group of all words. Returns false at the limit. */
static bool user_arm(struct user_thread *t)
{
	struct users *u = t->users;
	struct memwait_async entries[USER_BATCH];
	struct memwait_wait waits[USER_BATCH];
	int i, ret, nr = 1 + next_random(&t->random) % USER_BATCH;

	members(waits, u->words, USER_BATCH);
	for (i = 0; i < nr; i++) {
		entries[i] = (struct memwait_async) { .wait = waits[i] };
		entries[i].wait.deadline = FOREVER;
	}
	if (nr == USER_BATCH)
		entries[nr - 1] = group_entry(waits, USER_BATCH, FOREVER, 0, 0);

	ret = mw_batch(t->fd, entries, nr);
	if (ret < nr && entries[ret < 0 ? 0 : ret].result != -ENOSPC)
		__atomic_add_fetch(&u->wrong, 1, __ATOMIC_RELAXED);
	for (i = 0; i < ret; i++) {
		t->waits[t->nr].id = entries[i].id;
		t->waits[t->nr].words = entries[i].wait.flags & MEMWAIT_GROUP ? USER_BATCH : 1;
		t->held += t->waits[t->nr++].words;
	}
	__atomic_add_fetch(&u->armed, ret < 0 ? 0 : ret, __ATOMIC_RELAXED);
	return ret == nr;
}

static void user_cancel(struct user_thread *t, int nr)
{
	struct users *u = t->users;

	while (nr-- && t->nr) {
		t->nr--;
		t->held -= t->waits[t->nr].words;
		if (mw_cancel(t->fd, t->waits[t->nr].id))
			__atomic_add_fetch(&u->wrong, 1, __ATOMIC_RELAXED);
		__atomic_add_fetch(&u->cancelled, 1, __ATOMIC_RELAXED);
	}
}

/*
 * Called while the other threads of A are idle. Compares the waits that these threads hold with the
 * count, which must not exceed the limit. After that uses up the room that was too small for a
 * group.
 */
static void user_check(struct user_thread *t)
{
	struct users *u = t->users;
	long held = 2 * (1 + PIN_WAITS);	/* charge of the waits that stay */
	int i, ret;

	for (i = 0; i < USER_THREADS; i++)
		held += t[i].held;
	u->wrong += held > u->limit || mw_user_waits(t->fd) != (uint64_t)held;
	for (;;) {
		ret = mw_async(t->fd, u->words, 0, FOREVER, U32, 0, &t->waits[t->nr].id);
		if (ret != MEMWAIT_PENDING)
			break;
		t->waits[t->nr++].words = 1;
		t->held++;
		held++;
	}
	u->wrong += ret != -ENOSPC || held != u->limit;
	u->checked++;
	u->last = __atomic_load_n(&u->stop, __ATOMIC_RELAXED);
}

/* Arms waits until the limit is reached. */
static void user_fill(struct user_thread *t)
{
	while (user_arm(t))
		;
	__atomic_add_fetch(&t->users->refused, 1, __ATOMIC_RELAXED);
}

/*
 * All threads reach the limit again and again, while other threads cancel waits. A charge that is
 * lost stays lost, so the first thread checks only from time to time.
 */
static void *user_main(void *arg)
{
	struct user_thread *t = arg;
	struct users *u = t->users;
	int i;

	for (;;) {
		for (i = 0; i < USER_FILLS; i++) {
			user_fill(t);
			user_cancel(t, 1 + next_random(&t->random) % USER_BATCH);
		}
		user_fill(t);
		pthread_barrier_wait(&u->barrier);
		if (t->first)
			user_check(t);
		pthread_barrier_wait(&u->barrier);
		if (u->last)
			return NULL;
	}
}

/* Ends the process and stops the other process, which must not wait for this one. */
static void user_exit(struct users *u, int status)
{
	__atomic_store_n(&u->stop, 1, __ATOMIC_RELAXED);
	_exit(status);
}

/* Becomes a user that has no waits yet. Returns a context, or ends the process on failure. */
static int become_user(struct users *u, uid_t uid)
{
	int fd;

	if (setgid(uid) || setuid(uid))
		user_exit(u, 1);
	fd = memwait_open(O_NONBLOCK);
	if (fd < 0 || mw_user_waits(fd))
		user_exit(u, 2);
	return fd;
}

/*
 * User A reaches the limit with many threads and two contexts. After B has ended, A stays exactly
 * at the limit.
 */
static void user_a(struct users *u)
{
	struct user_thread t[USER_THREADS];
	int i, other, ret, fd = become_user(u, USER_A);

	other = memwait_open(O_NONBLOCK);
	/* Therefore both contexts have a pin. */
	if (mw_arm(fd, &u->words[USER_BATCH], 0) != MEMWAIT_PENDING ||
	    mw_arm(other, &u->words[USER_BATCH], 0) != MEMWAIT_PENDING)
		user_exit(u, 10);
	if (pthread_barrier_init(&u->barrier, NULL, USER_THREADS))
		user_exit(u, 3);
	for (i = 0; i < USER_THREADS; i++) {
		t[i] = (struct user_thread) {
			.users = u,
			.fd = i % 2 ? other : fd,
			.first = !i,
			.random = i + 1,
			.waits = calloc(u->limit + USER_BATCH, sizeof(*t[i].waits)),
		};
		if (pthread_create(&t[i].thread, NULL, user_main, &t[i]))
			user_exit(u, 3);
	}
	for (i = 0; i < USER_THREADS; i++)
		pthread_join(t[i].thread, NULL);

	/* After a cancel further waits can be armed. */
	for (i = 0; i < USER_THREADS && !t[i].nr; i++)
		;
	if (i == USER_THREADS)
		user_exit(u, 6);
	ret = t[i].waits[t[i].nr - 1].words;
	user_cancel(&t[i], 1);
	while (ret--) {
		if (mw_arm(other, u->words, 0) != MEMWAIT_PENDING)
			user_exit(u, 7);
	}
	if (mw_arm(fd, u->words, 0) != -ENOSPC)
		user_exit(u, 8);
	if (mw_user_waits(fd) != (uint64_t)u->limit)
		user_exit(u, 9);
	user_exit(u, 0);
}

/* User B has one thread and can use its whole limit in each round. */
static void user_b(struct users *u)
{
	struct memwait_async *entries = calloc(u->limit + 1, sizeof(*entries));
	int i, ret, fd = become_user(u, USER_B), again, most = u->limit - PIN_WAITS;

	if (!entries)
		user_exit(u, 3);
	while (!__atomic_load_n(&u->refused, __ATOMIC_RELAXED)) {
		if (__atomic_load_n(&u->stop, __ATOMIC_RELAXED))
			user_exit(u, 8);
		sched_yield();
	}
	while (u->rounds_done < u->rounds) {
		for (i = 0; i <= most; i++) {
			entries[i] = (struct memwait_async) {
				.wait = member(&u->words[i % USER_BATCH], 0, U32),
			};
			entries[i].wait.deadline = FOREVER;
		}
		if (mw_batch(fd, entries, most + 1) != most)
			user_exit(u, 4);
		if (entries[most].result != -ENOSPC || mw_user_waits(fd) != (uint64_t)u->limit)
			user_exit(u, 5);
		if (u->rounds_done++ % 2) {
			again = memwait_open(O_NONBLOCK);
			close(fd);
			fd = again;
		} else {
			for (i = 0; i < most; i++) {
				ret = mw_cancel(fd, entries[i].id);
				if (ret)
					user_exit(u, 6);
			}
		}
		if (mw_user_waits(fd))
			user_exit(u, 7);
	}
	user_exit(u, 0);
}

LIMITS_TEST(R24_a_user_at_the_limit_and_another_one)
{
	struct users *u = shared_page(sizeof(*u));
	uint64_t start = now_ns(CLOCK_MONOTONIC);
	pid_t a, b;

	u->limit = LOAD(2000, 500);
	u->rounds = LOAD(100, 50);
	ASSERT_EQ(0, set_limit(u->limit));
	a = fork_child();
	if (!a)
		user_a(u);
	b = fork_child();
	if (!b)
		user_b(u);
	EXPECT_EQ(0, child_status(b));
	EXPECT_EQ(0, child_status(a));
	TH_LOG("limit %d, %.1f s: user A armed %ld, cancelled %ld, was refused %ld times,",
	       u->limit, seconds_since(start), u->armed, u->cancelled, u->refused);
	TH_LOG("and was exactly at the limit %ld times; user B %ld times", u->checked,
	       u->rounds_done);
	EXPECT_EQ(0, u->wrong);
	EXPECT_LT(0, u->refused);
	EXPECT_EQ(u->rounds, u->rounds_done);
	EXPECT_LT(0, u->checked);
	EXPECT_EQ(0, mw_waiters(self->fd, u->words, U32));
	munmap(u, sizeof(*u));
}

TEST_HARNESS_MAIN
