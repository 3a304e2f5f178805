// SPDX-License-Identifier: GPL-2.0
/* R13, R28: a thread that requeues forever, and waiters that return immediately. */
#include "hostile_test.h"

/*
 * A thread that moves all waits back and forth forever. It either has a CPU to itself or is
 * preempted.
 */
#define SAMPLES	21

struct mover {
	int running, stop;
};

static pid_t fork_spinner(int cpu, struct mover *m)
{
	pid_t pid = fork_child();

	if (!pid) {
		bind_to(cpu);
		while (!load(&m->stop))
			;
		_exit(0);
	}
	return pid;
}

/*
 * Measures, while the mover runs, how late a thread's timeouts are and how long notifies take. On
 * PREEMPT_RT the mover may be preempted while it holds the lock, and then it has 0.3 % of its CPU
 * until it releases the lock. The mover may also take the lock again before a thread that waited
 * for the lock runs.
 */
static void measure_beside_mover(struct __test_metadata *_metadata, int fd, uint32_t *word,
				 const char *how)
{
	long median = is_preempt_rt() ? 5000 : 40, worst = is_preempt_rt() ? 60000 : 3000;
	uint64_t late[SAMPLES], took[SAMPLES], time;
	int i, ret;

	for (i = 0; i < SAMPLES; i++) {
		time = in_ms(20);
		ret = mw_wait(fd, word, 0, time, U32);
		late[i] = now() - time;
		EXPECT_TRUE(ret == MEMWAIT_TIMED_OUT || ret == MEMWAIT_OK);
		time = now();
		EXPECT_LE(0, mw_notify(fd, word, 1, U32));
		took[i] = now() - time;
	}
	qsort(late, SAMPLES, sizeof(late[0]), compare_numbers);
	qsort(took, SAMPLES, sizeof(took[0]), compare_numbers);
	TH_LOG("%s: timeouts late by %ld us (median) to %ld us, notifies take %ld us to %ld us",
	       how, (long)late[SAMPLES / 2] / 1000, (long)late[SAMPLES - 1] / 1000,
	       (long)took[SAMPLES / 2] / 1000, (long)took[SAMPLES - 1] / 1000);
	EXPECT_WITHIN_MS(median, late[SAMPLES / 2]);
	EXPECT_WITHIN_MS(median, took[SAMPLES / 2]);
	EXPECT_WITHIN_MS(worst, late[SAMPLES - 1]);
	EXPECT_WITHIN_MS(worst, took[SAMPLES - 1]);
}

LIMITS_TEST(R28_endless_requeueing_delays_no_other_thread)
{
	struct mover *m = shared_page(4096);
	int n = allow_many_waits(MANY_WAITS);
	pid_t mover, spinner;
	uint64_t death;

	if (processors() < 2)
		SKIP(return, "needs two processors");
	ASSERT_EQ(0, bind_to(1));
	ASSERT_EQ(n, arm_many(self->fd, self->word, n, MEMWAIT_FOREVER, NULL));
	mover = fork_child();
	if (!mover) {
		if (bind_to(0) || set_idle())
			_exit(1);
		for (;;) {
			if (requeue_all(self->fd, self->word, self->word + 1) < 0 ||
			    requeue_all(self->fd, self->word + 1, self->word) < 0)
				_exit(2);
			store(&m->running, 1);
		}
	}
	EXPECT_TRUE(await_flag(&m->running, 30));
	measure_beside_mover(_metadata, self->fd, self->word, "the mover alone");
	spinner = fork_spinner(0, m);
	measure_beside_mover(_metadata, self->fd, self->word, "the mover preempted");
	store(&m->stop, 1);
	EXPECT_EQ(0, child_status(spinner));
	EXPECT_EQ(0, waitpid(mover, NULL, WNOHANG));
	death = kill_and_time(mover);
	TH_LOG("killing the mover took %ld ms", in_millis(death));
	EXPECT_WITHIN_MS(2000, death);
	munmap(m, 4096);
}

/* R13: waiters that return immediately while a call has many other waiters to process. */
#define COMING_BACK	8
#define OTHERS		20000

struct returning_thread {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int *stop;
	uint64_t deadline;	/* relative to the present time; 0: no deadline */
};

static void *come_back(void *arg)
{
	struct returning_thread *r = arg;

	while (!load(r->stop))
		mw_wait(r->fd, r->word, 0, r->deadline ? now() + r->deadline : MEMWAIT_FOREVER,
			U32);
	return NULL;
}

static void start_returning(struct __test_metadata *_metadata, struct returning_thread *r, int fd,
			    uint32_t *word, int *stop, uint64_t deadline)
{
	int i;

	for (i = 0; i < COMING_BACK; i++) {
		r[i] = (struct returning_thread) { .fd = fd, .word = word, .stop = stop,
						   .deadline = deadline };
		ASSERT_EQ(0, pthread_create(&r[i].thread, NULL, come_back, &r[i]));
	}
}

static void stop_returning(struct returning_thread *r, int fd, uint32_t *word, int *stop)
{
	int i;

	store(stop, 1);
	for (i = 0; i < COMING_BACK; i++) {
		while (pthread_tryjoin_np(r[i].thread, NULL)) {
			mw_notify(fd, word, MEMWAIT_ALL, U32);
			usleep(1000);
		}
	}
}

MEMWAIT_TEST(R13_a_returning_waiter_is_not_notified_twice_by_one_call)
{
	struct memwait_completion done[BATCH];
	struct returning_thread r[COMING_BACK];
	int stop = 0, i, ret, got, n;
	uint64_t start;

	start_returning(_metadata, r, self->fd, self->shared, &stop, 0);
	await_waiters(self->fd, self->shared, U32, COMING_BACK);
	for (i = 0; i < 5; i++) {
		ASSERT_EQ(OTHERS, arm_many(self->fd, self->shared, OTHERS, MEMWAIT_FOREVER, NULL));
		await_waiters(self->fd, self->shared, U32, OTHERS + COMING_BACK);
		start = now();
		ret = mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32);
		EXPECT_EQ(OTHERS + COMING_BACK, ret);
		EXPECT_WITHIN_MS(5000, now() - start);
		for (got = 0; got < OTHERS; got += n) {
			n = mw_read(self->fd, done, BATCH);
			ASSERT_LT(0, n);
		}
		await_waiters(self->fd, self->shared, U32, COMING_BACK);
	}
	stop_returning(r, self->fd, self->shared, &stop);
}

MEMWAIT_TEST(R13_a_requeue_to_the_same_word_ends)
{
	struct returning_thread r[COMING_BACK];
	int stop = 0, i, ret;
	uint64_t start;

	ASSERT_EQ(OTHERS, arm_many(self->fd, self->shared, OTHERS, MEMWAIT_FOREVER, NULL));
	start_returning(_metadata, r, self->fd, self->shared, &stop, 50000);
	for (i = 0; i < 20; i++) {
		start = now();
		ret = requeue_all(self->fd, self->shared, self->shared);
		EXPECT_LE(OTHERS, ret);
		EXPECT_GE(OTHERS + COMING_BACK, ret);
		EXPECT_WITHIN_MS(5000, now() - start);
	}
	/*
	 * The returning threads are queued behind the other waits, whose completions are never
	 * read.
	 */
	stop_returning(r, self->fd, self->shared, &stop);
}

TEST_HARNESS_MAIN
