// SPDX-License-Identifier: GPL-2.0
/*
 * R1, R5, R16, R19, R25: waits on several words, together with all operations that can run
 * concurrently.
 */
#include "any_test.h"

enum { WORDS = 4 };

/* The results for each of several words. */
struct tally {
	long oks[WORDS], notified[WORDS], timed_out, cancelled, not_equal, other;
};

static void add_tally(struct tally *sum, const struct tally *t)
{
	int i;

	for (i = 0; i < WORDS; i++) {
		sum->oks[i] += t->oks[i];
		sum->notified[i] += t->notified[i];
	}
	sum->timed_out += t->timed_out;
	sum->cancelled += t->cancelled;
	sum->not_equal += t->not_equal;
	sum->other += t->other;
}

struct racer {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int first, count;
	int *stop;
	struct tally tally;
};

static bool stopped(struct racer *r)
{
	return __atomic_load_n(r->stop, __ATOMIC_RELAXED);
}

static void *notify_words(void *arg)
{
	struct racer *r = arg;
	unsigned int i, n;

	for (n = r->first; !stopped(r); n++) {
		i = n * 7 / 3 % WORDS;
		r->tally.notified[i] += mw_notify(r->fd, r->word + i, 1 + n % 3, U32);
	}
	return NULL;
}

/*
 * Waits for the words in an order that depends on the thread, with duplicates: index i is word
 * (first + i) % WORDS.
 */
static void *wait_for_words(void *arg)
{
	struct racer *r = arg;
	struct memwait_wait waits[MOST];
	struct tally *t = &r->tally;
	uint32_t index;
	int i, ret;

	for (i = 0; i < r->count; i++)
		waits[i] = member(r->word + (r->first + i) % WORDS, 0, U32);
	for (i = 0; !stopped(r); i++) {
		ret = mw_wait_any(r->fd, waits, r->count, soon(i), 0, &index);
		if (ret == MEMWAIT_OK && index < (uint32_t)r->count)
			add_one(&t->oks[(r->first + index) % WORDS]);
		else if (ret == MEMWAIT_TIMED_OUT)
			add_one(&t->timed_out);
		else
			t->other++;
	}
	return NULL;
}

/*
 * For each word, the number of notifies equals the number of OKs with its index. The groups have
 * different sizes.
 */
MEMWAIT_TEST(R5_any_waits_and_notifies_of_all_words_race)
{
	struct racer racers[6] = { 0 };
	struct tally sum = { 0 };
	uint64_t end = in_ms(3000);
	int stop = 0, i;

	for (i = 0; i < 6; i++) {
		racers[i] = (struct racer) { .fd = self->fd, .word = self->word, .stop = &stop,
					     .first = i, .count = i == 5 ? 12 : 4 };
		ASSERT_EQ(0, pthread_create(&racers[i].thread, NULL,
					    i < 2 ? notify_words : wait_for_words, &racers[i]));
	}
	sleep_until(now_ns(CLOCK_MONOTONIC) >= end);
	/* The last racer waits for all words. */
	for (i = 0; i < WORDS; i++)
		await_counted(&racers[5].tally.oks[i]);
	await_counted(&racers[5].tally.timed_out);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 6; i++) {
		pthread_join(racers[i].thread, NULL);
		add_tally(&sum, &racers[i].tally);
	}
	for (i = 0; i < WORDS; i++) {
		EXPECT_EQ(sum.notified[i], sum.oks[i]);
		EXPECT_EQ(0, mw_waiters(self->fd, self->word + i, U32));
	}
	EXPECT_EQ(0, sum.other);
}

/* Counts the completions of groups. Each id must be pending and must occur only once. */
static void count_completions(int fd, struct tally *t)
{
	struct memwait_completion done[16];
	int i, n;

	while ((n = mw_read(fd, done, 16)) > 0) {
		for (i = 0; i < n; i++) {
			if (done[i].result == MEMWAIT_OK)
				t->oks[(done[i].user_data + done[i].index) % WORDS]++;
			else if (done[i].result == MEMWAIT_TIMED_OUT && !done[i].index)
				t->timed_out++;
			else
				t->other++;
		}
	}
}

static long ended(const struct tally *t)
{
	long sum = t->timed_out + t->cancelled + t->other;
	int i;

	for (i = 0; i < WORDS; i++)
		sum += t->oks[i];
	return sum;
}

/* Returns whether some waits were cancelled and some were notified, through each word. */
static bool each_way(const struct tally *t)
{
	int i = 0;

	while (i < WORDS && t->oks[i])
		i++;
	return i == WORDS && t->cancelled;
}

/*
 * The groups are large, so that notifies reach members that have joined while other members have
 * not.
 */
MEMWAIT_TEST(R19_group_arming_notify_deadline_and_cancel_race)
{
	static const int counts[] = { MOST, 4, 64, 9 };
	struct memwait_wait waits[MOST];
	struct racer racers[2] = { 0 };
	struct tally sum = { 0 };
	uint64_t end = in_ms(4000), id;
	long armed = 0, tries, late = 0;
	int stop = 0, i, ret;

	for (i = 0; i < 2; i++) {
		racers[i] = (struct racer) { .fd = self->fd, .word = self->word, .stop = &stop,
					     .first = i };
		ASSERT_EQ(0, pthread_create(&racers[i].thread, NULL, notify_words, &racers[i]));
	}
	for (tries = 0; now_ns(CLOCK_MONOTONIC) < end || !each_way(&sum); tries++) {
		uint64_t deadline = tries % 4 ? soon(tries) : FOREVER;

		for (i = 0; i < counts[tries % 4]; i++)
			waits[i] = member(self->word + (tries + i) % WORDS, 0, U32);
		ret = mw_group(self->fd, waits, counts[tries % 4], deadline, 0, tries, &id);
		if (ret == MEMWAIT_TIMED_OUT) {
			late++;
			continue;
		}
		ASSERT_EQ(MEMWAIT_PENDING, ret);
		armed++;
		if (armed % 3) {
			ret = mw_cancel(self->fd, id);
			ASSERT_TRUE(!ret || ret == -ENOENT);
			sum.cancelled += !ret;
		}
		count_completions(self->fd, &sum);
	}
	/* Wait for the end of the waits that have no deadline. */
	while (ended(&sum) < armed)
		count_completions(self->fd, &sum);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 2; i++) {
		pthread_join(racers[i].thread, NULL);
		add_tally(&sum, &racers[i].tally);
	}
	count_completions(self->fd, &sum);
	TH_LOG("%ld armed, %ld timed out, %ld cancelled, %ld late", armed, sum.timed_out,
	       sum.cancelled, late);
	EXPECT_EQ(armed, ended(&sum));
	EXPECT_EQ(0, sum.other);
	for (i = 0; i < WORDS; i++) {
		EXPECT_EQ(sum.notified[i], sum.oks[i]);
		EXPECT_EQ(0, mw_waiters(self->fd, self->word + i, U32));
	}
}

struct toggling {
	pthread_t thread;
	uint32_t *word;
	int stop;
};

static void *toggle(void *arg)
{
	struct toggling *t = arg;
	uint32_t i;

	for (i = 0; !__atomic_load_n(&t->stop, __ATOMIC_RELAXED); i++) {
		__atomic_store_n(t->word, i % 2, __ATOMIC_RELAXED);
		sched_yield();
	}
	return NULL;
}

/* The last word changes while the other words join their queues. */
MEMWAIT_TEST(R18_any_not_equal_while_joining_leaves_nothing_queued)
{
	const uint32_t last = MOST - 1;
	struct toggling t = { .word = self->word + last };
	struct memwait_wait waits[MOST];
	struct memwait_async entry;
	long differed = 0;
	uint32_t index;
	int i, ret;

	members(waits, self->word, MOST);
	ASSERT_EQ(0, pthread_create(&t.thread, NULL, toggle, &t));
	for (i = 0; i < SOME_OF(1000) || !differed; i++) {
		entry = group_entry(waits, MOST, FOREVER, 0, i);
		ASSERT_EQ(1, mw_batch(self->fd, &entry, 1));
		if (entry.result == MEMWAIT_NOT_EQUAL) {
			differed++;
			ASSERT_EQ(last, entry.any.index);
			ASSERT_EQ(0, entry.id);
		} else {
			ASSERT_EQ(MEMWAIT_PENDING, entry.result);
			ASSERT_EQ(UNTOUCHED, entry.any.index);
			ASSERT_EQ(0, mw_cancel(self->fd, entry.id));
		}
		ASSERT_EQ(0, mw_waiters(self->fd, self->word + i % MOST, U32));
		ret = mw_wait_any(self->fd, waits, MOST, now_ns(CLOCK_MONOTONIC) + 30000, 0,
				  &index);
		if (ret == MEMWAIT_NOT_EQUAL) {
			differed++;
			ASSERT_EQ(last, index);
		} else {
			ASSERT_EQ(MEMWAIT_TIMED_OUT, ret);
		}
		ASSERT_EQ(0, mw_waiters(self->fd, self->word + (i + 1) % MOST, U32));
	}
	__atomic_store_n(&t.stop, 1, __ATOMIC_RELAXED);
	pthread_join(t.thread, NULL);
	EXPECT_TRUE(nobody(self->fd, waits, MOST));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

struct notify_once {
	pthread_t thread;
	pthread_barrier_t *barrier;
	int fd;
	uint32_t *word;
	int rounds, counted;
};

static void *notify_each_round(void *arg)
{
	struct notify_once *n = arg;
	int i;

	for (i = 0; i < n->rounds; i++) {
		pthread_barrier_wait(n->barrier);
		n->counted += mw_notify(n->fd, n->word, 1, U32);
		pthread_barrier_wait(n->barrier);
	}
	return NULL;
}

/* Either the group was notified and its close passes the notify on, or it was closed before. */
MEMWAIT_TEST(R25_group_close_races_with_a_notify)
{
	const int rounds = SOME_OF(3000);
	struct notify_once n = { .fd = self->fd, .word = self->shared + 2, .rounds = rounds };
	struct memwait_completion done[2];
	struct memwait_wait waits[16];
	pthread_barrier_t barrier;
	uint64_t others;
	int i, fd;

	members(waits, self->shared, 16);
	pthread_barrier_init(&barrier, NULL, 2);
	n.barrier = &barrier;
	ASSERT_EQ(0, pthread_create(&n.thread, NULL, notify_each_round, &n));
	for (i = 0; i < rounds; i++) {
		fd = memwait_open(O_NONBLOCK);
		ASSERT_EQ(MEMWAIT_PENDING, mw_group(fd, waits, 16, FOREVER, 0, 0, NULL));
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared + 2, 2));
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared + 3, 0, FOREVER, U32, 3,
						    &others));
		pthread_barrier_wait(&barrier);
		close(fd);
		pthread_barrier_wait(&barrier);
		ASSERT_EQ(1, mw_read(self->fd, done, 2));
		ASSERT_EQ(2, done[0].user_data);
		ASSERT_EQ(0, mw_cancel(self->fd, others));
	}
	pthread_join(n.thread, NULL);
	EXPECT_EQ(rounds, n.counted);
	EXPECT_TRUE(nobody(self->fd, waits, 16));
}

/* R1: no event on one word is lost, whatever happens on the other words. */
struct rounds {
	int fd;			/* a separate blocking context, or a common context */
	bool async;
	uint32_t *word;		/* three questions, the answer, and words that never change */
	uint32_t rounds;
	long oks, notified;
};

/* Waits for any of the words, by WAIT_ANY or by an async wait. Returns the result. */
static int wait_once(struct rounds *r, const struct memwait_wait *waits, uint32_t count)
{
	struct memwait_completion done;
	int ret;

	if (!r->async)
		return mw_wait_any(r->fd, waits, count, FOREVER, 0, NULL);
	ret = mw_group(r->fd, waits, count, FOREVER, 0, 0, NULL);
	if (ret != MEMWAIT_PENDING)
		return ret;
	return mw_read(r->fd, &done, 1) == 1 ? done.result : -EIO;
}

static void *answer_rounds(void *arg)
{
	struct rounds *r = arg;
	uint32_t seen[3] = { 0 }, answered = 0, i, value;
	struct memwait_wait waits[64];
	bool found;
	int ret;

	while (answered < r->rounds) {
		found = false;
		members(waits, r->word + 1, 64);	/* does not include the answer */
		for (i = 0; i < 3; i++) {
			value = __atomic_load_n(r->word + i, __ATOMIC_ACQUIRE);
			if (value != seen[i]) {
				found = true;
				seen[i] = value;
				answered++;
				__atomic_store_n(r->word + 3, answered, __ATOMIC_RELEASE);
				r->notified += mw_notify(r->fd, r->word + 3, 1, U32);
			}
			waits[i] = member(r->word + i, seen[i], U32);
		}
		if (found)
			continue;
		ret = wait_once(r, waits, answered % 2 ? 64 : 3);
		if (ret < 0)
			abort();
		r->oks += ret == MEMWAIT_OK;
	}
	return NULL;
}

MEMWAIT_TEST(R1_any_no_wake_up_is_lost)
{
	struct rounds r;
	long oks, notified;
	pthread_t thread;
	uint32_t i, value;
	int ret, async;

	for (async = 0; async < 2; async++) {
		memset(self->word, 0, self->page);
		r = (struct rounds) { .fd = memwait_open(0), .async = async, .word = self->word,
				      .rounds = SOME_OF(20000) };
		oks = 0;
		notified = 0;
		ASSERT_EQ(0, pthread_create(&thread, NULL, answer_rounds, &r));
		for (i = 1; i <= r.rounds; i++) {
			__atomic_store_n(r.word + i * 5 / 3 % 3, i, __ATOMIC_RELEASE);
			notified += mw_notify(r.fd, r.word + i * 5 / 3 % 3, 1, U32);
			while ((value = __atomic_load_n(r.word + 3, __ATOMIC_ACQUIRE)) != i) {
				ret = mw_wait(r.fd, r.word + 3, value, FOREVER, U32);
				ASSERT_LE(0, ret);
				oks += ret == MEMWAIT_OK;
			}
		}
		pthread_join(thread, NULL);
		EXPECT_EQ(notified, r.oks);
		EXPECT_EQ(r.notified, oks);
		EXPECT_LT(0, oks);
		close(r.fd);
	}
}

static void *wait_with_struct(void *arg)
{
	struct any_waiter *w = arg;

	w->result = xioctl(w->fd, MEMWAIT_IOC_WAIT_ANY, w->waits);
	return NULL;
}

/* R5: a notify that was counted is an OK, for this waiter or for the next waiter. */
MEMWAIT_TEST(R5_any_a_notify_is_not_lost_if_the_index_cannot_be_written)
{
	struct memwait_wait_any *arg = private_page(self->page);
	struct memwait_completion done;
	struct memwait_wait waits[2];
	struct any_waiter w = { .fd = self->fd, .waits = (void *)arg };
	int oks;

	members(waits, self->word, 2);
	*arg = (struct memwait_wait_any) { .waits = (uintptr_t)waits, .deadline = FOREVER,
					   .count = 2 };
	ASSERT_EQ(0, pthread_create(&w.thread, NULL, wait_with_struct, &w));
	await_waiters(self->fd, self->word + 1, U32, 1);
	ASSERT_EQ(0, mprotect(arg, self->page, PROT_READ));
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 0));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	oks = any_join(&w) == MEMWAIT_OK;
	TH_LOG("WAIT_ANY: %d", w.result);
	oks += mw_read(self->fd, &done, 1) == 1;
	EXPECT_EQ(1, oks);
	mw_notify(self->fd, self->word, MEMWAIT_ALL, U32);
}

/* Notifies a word as soon as it has a waiter. Returns true if no completion has come yet. */
static int notify_first(void *arg)
{
	struct racer *r = arg;

	while (!mw_notify(r->fd, r->word, 1, U32))
		;
	return !mw_readable(r->fd);
}

/*
 * The group is notified before it has joined its other words. It completes later, and the kernel
 * must wake its pollers at that time.
 */
MEMWAIT_TEST(R22_an_edge_for_a_group_that_is_notified_while_it_joins)
{
	struct racer racer = { .fd = self->fd, .word = self->word };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(EPOLL_CLOEXEC), round;
	struct memwait_wait waits[MOST];
	uint64_t end = patience(10);
	struct runner notifier;
	bool came = false;

	if (has_one_processor())
		SKIP(return, "one processor: no thread can notify while the group joins");
	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event));
	members(waits, self->word, MOST);
	for (round = 0; !came && now_ns(CLOCK_MONOTONIC) < end; round++) {
		runner_race(&notifier, notify_first, &racer);
		linger(round);
		ASSERT_EQ(MEMWAIT_PENDING,
			  mw_group(self->fd, waits, MOST, FOREVER, 0, round, NULL));
		came = runner_join(&notifier);
		EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 0));
		EXPECT_COMPLETION(self->fd, round, MEMWAIT_OK);
	}
	EXPECT_TRUE(nobody(self->fd, waits, MOST));
	close(epoll);
	if (!came)
		SKIP(return, "no notify came while the group joined");
	TH_LOG("the notify came in round %d", round);
}

TEST_HARNESS_MAIN
