// SPDX-License-Identifier: GPL-2.0
/* R5, R17, R25: requeue, together with all operations that can run concurrently. */
#include "requeue_test.h"

enum { WORDS = 3 };

struct racer {
	pthread_t thread;
	int fd;
	uint32_t *words[WORDS];
	int first;
	int *stop;
	long oks, notified, moved, timed_out, interrupted, other;
};

static bool stopped(struct racer *r)
{
	return __atomic_load_n(r->stop, __ATOMIC_RELAXED);
}

/* Moves all waiters from one word to the next, in a circle, in one of the two directions. */
static void *move_around(void *arg)
{
	struct racer *r = arg;
	struct requeued out;
	int i, step = r->first % 2 ? 1 : WORDS - 1;

	for (i = r->first; !stopped(r); i += step) {
		if (mw_requeue(r->fd, r->words[i % WORDS], 0, r->words[(i + step) % WORDS], 0,
			       MEMWAIT_ALL, U32, &out) || out.woken)
			r->other++;
		else
			__atomic_add_fetch(&r->moved, out.moved, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void start(struct racer *r, const struct racer *like, int i, void *(*body)(void *))
{
	*r = *like;
	r->first = i;
	if (pthread_create(&r->thread, NULL, body, r))
		abort();
}

/* R17: moves from A to B race with moves from B to A. No thread hangs, and no waiter is lost. */
MEMWAIT_TEST(R17_requeue_in_opposite_directions)
{
	struct racer r[2], like = { .fd = self->fd };
	struct waiter w[4];
	struct memwait_wait waits[2];
	struct any_waiter any;
	uint32_t *word;
	uint64_t end;
	int stop, i, round, total;

	like.stop = &stop;
	/* The first round has two words, and the second round has three shared words. */
	for (round = 0; round < 2; round++) {
		word = round ? self->shared : self->word;
		for (i = 0; i < WORDS; i++)
			like.words[i] = word + (round || i < 2 ? i : 0);
		stop = 0;
		for (i = 0; i < 4; i++) {
			w[i] = thread_at(self->fd, word);
			waiter_start(&w[i]);
		}
		ASSERT_TRUE(arm_all(self->fd, word, "abcdefghij"));
		waits[0] = member(word + 9, 0, U32);
		waits[1] = member(word, 0, U32);
		any = any_of(self->fd, waits, 2);
		any_start(&any);
		ASSERT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 2, FOREVER, 0, 'k', NULL));
		end = in_ms(1500);
		for (i = 0; i < 2; i++)
			start(&r[i], &like, i, move_around);
		while (now_ns(CLOCK_MONOTONIC) < end || !counted(&r[0].moved) ||
		       !counted(&r[1].moved))
			usleep(10000);
		__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
		for (i = 0; i < 2; i++) {
			pthread_join(r[i].thread, NULL);
			EXPECT_EQ(0, r[i].other);
		}
		TH_LOG("%ld and %ld moved", r[0].moved, r[1].moved);
		EXPECT_EQ(2, mw_waiters(self->fd, word + 9, U32));
		total = 0;
		for (i = 0; i < WORDS; i++)
			total += mw_notify(self->fd, like.words[i], MEMWAIT_ALL, U32);
		EXPECT_EQ(16, total);
		for (i = 0; i < 4; i++)
			EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[i]));
		EXPECT_EQ(MEMWAIT_OK, any_join(&any));
		EXPECT_EQ(1, any.index);
		EXPECT_EQ(11, strlen(names(self->fd)));
		EXPECT_EQ(0, mw_waiters(self->fd, word + 9, U32));
	}
}

static void *requeue_hard(void *arg)
{
	struct racer *r = arg;
	struct requeued out;
	unsigned int n;

	for (n = r->first; !stopped(r); n++) {
		uint32_t *from = r->words[n % WORDS], *to = r->words[n / 3 % WORDS];

		if (mw_requeue(r->fd, from, 0, to, n % 5 == 0, n % 7, U32, &out))
			r->other++;
		r->notified += out.woken;
		r->moved += out.moved;
	}
	return NULL;
}

static void *notify_hard(void *arg)
{
	struct racer *r = arg;
	unsigned int n;

	for (n = r->first; !stopped(r); n++)
		r->notified += mw_notify(r->fd, r->words[n % WORDS], 1 + n % 2, U32);
	return NULL;
}

static void *wait_hard(void *arg)
{
	struct racer *r = arg;
	struct memwait_wait waits[WORDS];
	unsigned int n;
	uint32_t index;
	int i, ret;

	for (n = r->first; !stopped(r); n++) {
		uint64_t deadline = soon(n);

		for (i = 0; i < WORDS; i++)
			waits[i] = member(r->words[(n + i) % WORDS], 0, U32);
		ret = n % 2 ? mw_wait(r->fd, r->words[n % WORDS], 0, deadline, U32) :
			      mw_wait_any(r->fd, waits, WORDS, deadline, 0, &index);
		if (ret == MEMWAIT_OK)
			r->oks++;
		else if (ret == MEMWAIT_TIMED_OUT)
			r->timed_out++;
		else if (ret == -EINTR)
			add_one(&r->interrupted);
		else
			r->other++;
	}
	/*
	 * An interrupted wait may have left a queue position, which is counted. Another wait ends
	 * this position.
	 */
	if (mw_wait(r->fd, r->words[0], 0, 1, U32) != MEMWAIT_TIMED_OUT)
		r->other++;
	return NULL;
}

/* Counts the ends of async waits. Each id must occur once. */
static void count_completions(struct __test_metadata *_metadata, int fd, unsigned char *seen,
			      struct racer *sum)
{
	struct memwait_completion done[16];
	int i, n;

	while ((n = mw_read(fd, done, 16)) > 0) {
		for (i = 0; i < n; i++) {
			ASSERT_EQ(0, seen[done[i].user_data]++);
			sum->oks += done[i].result == MEMWAIT_OK;
			sum->timed_out += done[i].result == MEMWAIT_TIMED_OUT;
		}
	}
}

static bool was_interrupted(const struct racer *r, int n)
{
	long interrupted = 0;

	while (n--)
		interrupted += counted(&r[n].interrupted);
	return interrupted;
}

/* R5: requeues, deadlines, cancels, signals and notifies race for the same waiters. */
MEMWAIT_TEST(R5_requeue_races_with_everything)
{
	enum { MOVERS = 2, NOTIFIERS = 1, WAITERS = 3, ALL = MOVERS + NOTIFIERS + WAITERS };
	struct racer r[ALL], sum = { .fd = self->fd }, like = sum;
	static unsigned char seen[1 << 20];
	long armed, tries, ended = 0, cancelled = 0, interrupted = 0;
	uint64_t end = in_ms(5000), id;
	struct memwait_wait waits[WORDS];
	int stop = 0, i, ret;

	handle(SIGUSR1, 0);
	like.stop = &stop;
	for (i = 0; i < WORDS; i++) {
		like.words[i] = self->shared + i;
		waits[i] = member(like.words[i], 0, U32);
	}
	for (i = 0; i < ALL; i++)
		start(&r[i], &like, i, i < MOVERS ? requeue_hard :
			i < MOVERS + NOTIFIERS ? notify_hard : wait_hard);
	armed = 0;
	for (tries = 0; armed < 1 << 20; tries++) {
		uint64_t deadline = soon(tries);

		ret = tries % 2 ? mw_async(self->fd, like.words[tries % WORDS], 0, deadline, U32,
					   armed, &id) :
				  mw_group(self->fd, waits, WORDS, deadline, 0, armed, &id);
		if (ret == MEMWAIT_TIMED_OUT)
			continue;
		ASSERT_EQ(MEMWAIT_PENDING, ret);
		armed++;
		if (armed % 3 == 0) {
			ret = mw_cancel(self->fd, id);
			ASSERT_TRUE(!ret || ret == -ENOENT);
			cancelled += !ret;
			if (!ret)
				ASSERT_EQ(0, seen[armed - 1]++);
		}
		if (tries % 16 == 0)
			pthread_kill(r[ALL - 1 - tries / 16 % WAITERS].thread, SIGUSR1);
		count_completions(_metadata, self->fd, seen, &sum);
		if (now_ns(CLOCK_MONOTONIC) >= end && was_interrupted(r, ALL) && sum.oks &&
		    sum.timed_out && cancelled)
			break;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < ALL; i++)
		pthread_join(r[i].thread, NULL);
	/* The remaining waits have deadlines. */
	do {
		count_completions(_metadata, self->fd, seen, &sum);
		ended = sum.oks + sum.timed_out + cancelled;
	} while (ended < armed);
	EXPECT_EQ(armed, ended);
	TH_LOG("%ld armed, %ld OK, %ld cancelled", armed, sum.oks, cancelled);
	for (i = 0; i < ALL; i++) {
		sum.oks += r[i].oks;
		sum.notified += r[i].notified;
		sum.moved += r[i].moved;
		interrupted += r[i].interrupted;
		EXPECT_EQ(0, r[i].other);
	}
	TH_LOG("%ld notified, %ld moved, %ld interrupted", sum.notified, sum.moved, interrupted);
	EXPECT_EQ(sum.notified, sum.oks);
	EXPECT_LT(0, sum.notified);
	EXPECT_LT(0, sum.moved);
	EXPECT_LT(0, sum.timed_out);
	EXPECT_LT(0, cancelled);
	EXPECT_LT(0, interrupted);
	for (i = 0; i < WORDS; i++)
		EXPECT_EQ(0, mw_waiters(self->fd, like.words[i], U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

struct mover {
	int fd, stop;
	uint32_t *words, most;
	long moved;
};

static int move_back_and_forth(struct mover *m)
{
	struct requeued out;
	int i;

	for (i = 0; !__atomic_load_n(&m->stop, __ATOMIC_RELAXED); i++) {
		if (mw_requeue(m->fd, &m->words[i % 2], 0, &m->words[1 - i % 2], 0, m->most, U32,
			       &out))
			return -1;
		__atomic_add_fetch(&m->moved, out.moved, __ATOMIC_RELAXED);
	}
	return 0;
}

/*
 * Returns how many waiters two words have together. On PREEMPT_RT the second call may sleep for a
 * lock that the mover holds, and a move may happen between the two calls. In this case the number
 * of waiters of the first word has changed, and the calls are repeated.
 */
static int waiters_of_both(int fd, uint32_t *words)
{
	int first, sum;

	do {
		first = mw_waiters(fd, &words[0], U32);
		sum = first + mw_waiters(fd, &words[1], U32);
	} while (mw_waiters(fd, &words[0], U32) != first);
	return sum;
}

/*
 * R17: the move is one step. A thread on the same CPU, which runs as soon as the mover can be
 * preempted, finds each waiter in exactly one of the two queues. Some calls move all waiters, other
 * calls some of them.
 */
MEMWAIT_TEST(R17_requeue_is_one_step)
{
	enum { MOVED = 8 };
	const uint32_t most[] = { MEMWAIT_ALL, MOVED / 2 };
	struct memwait_completion done[MOVED];
	struct runner runner;
	int looks, i, j;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	for (i = 0; i < 2; i++) {
		struct mover m = { .fd = self->fd, .words = self->shared, .most = most[i] };

		for (j = 0; j < MOVED; j++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &m.words[0], j));
		ASSERT_EQ(0, pin(0));
		runner_start(&runner, move_back_and_forth, &m);
		ASSERT_EQ(0, pin(20));
		for (looks = 0; looks < SOME_OF(20000) || !counted(&m.moved); looks++) {
			usleep(1 << looks % 11);
			ASSERT_EQ(MOVED, waiters_of_both(self->fd, m.words));
		}
		__atomic_store_n(&m.stop, 1, __ATOMIC_RELAXED);
		EXPECT_EQ(0, runner_join(&runner));
		TH_LOG("%ld moved", m.moved);
		EXPECT_LT(0, m.moved);
		EXPECT_EQ(MOVED, mw_notify(self->fd, &m.words[0], MEMWAIT_ALL, U32) +
			  mw_notify(self->fd, &m.words[1], MEMWAIT_ALL, U32));
		EXPECT_EQ(MOVED, mw_read(self->fd, done, MOVED));
	}
	EXPECT_EQ(0, pin(0));
}

struct closing {
	pthread_t thread;
	pthread_barrier_t *barrier;
	int fd, rounds;
	uint32_t *a, *b;
	int counted;
};

static void *requeue_each_round(void *arg)
{
	struct closing *c = arg;
	int i;

	for (i = 0; i < c->rounds; i++) {
		pthread_barrier_wait(c->barrier);
		if (mw_requeue(c->fd, c->a, 0, c->b, 0, MEMWAIT_ALL, U32, NULL))
			abort();
		c->counted += mw_notify(c->fd, c->b, 1, U32);
		pthread_barrier_wait(c->barrier);
	}
	return NULL;
}

/* The close comes before the move, before the notify or after it. In each case one OK arrives. */
MEMWAIT_TEST(R25_requeue_and_notify_race_with_the_close_of_the_owner)
{
	const int rounds = SOME_OF(3000);
	struct closing c = { .fd = self->fd, .rounds = rounds, .a = self->shared,
			     .b = self->shared + 16 };
	struct memwait_wait waits[2];
	pthread_barrier_t barrier;
	int i, fd;

	members(waits, self->shared, 2);
	pthread_barrier_init(&barrier, NULL, 2);
	c.barrier = &barrier;
	ASSERT_EQ(0, pthread_create(&c.thread, NULL, requeue_each_round, &c));
	for (i = 0; i < rounds; i++) {
		fd = memwait_open(O_NONBLOCK);
		ASSERT_EQ(MEMWAIT_PENDING, i % 2 ? arm(fd, c.a, 'x') :
			  mw_group(fd, waits, 2, FOREVER, 0, 'x', NULL));
		ASSERT_EQ(MEMWAIT_PENDING, arm(self->fd, c.a, 'a'));
		pthread_barrier_wait(&barrier);
		close(fd);
		pthread_barrier_wait(&barrier);
		ASSERT_STREQ("a", names(self->fd));
		ASSERT_EQ(0, mw_waiters(self->fd, c.b, U32));
	}
	pthread_join(c.thread, NULL);
	EXPECT_EQ(rounds, c.counted);
}

TEST_HARNESS_MAIN
