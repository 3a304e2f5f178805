// SPDX-License-Identifier: GPL-2.0
/* R13, R28: who requeues for ever, and waiters who come back at once. */
#include "hostile_test.h"

/* Who moves all waits to and fro for ever, now alone on his processor, now driven out of it. */
#define MEETINGS	21

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
 * How late a thread's time-outs are, and how long notifies take, beside the mover. With PREEMPT_RT
 * the mover may be preempted while it has the lock, and then has three thousandths of its processor
 * until it gives the lock back; or it takes the lock again before a thread that waited for it runs.
 */
static void meet_mover(struct __test_metadata *_metadata, int fd, uint32_t *word, const char *how)
{
	long median = is_preempt_rt() ? 5000 : 40, worst = is_preempt_rt() ? 60000 : 3000;
	uint64_t late[MEETINGS], took[MEETINGS], time;
	int i, ret;

	for (i = 0; i < MEETINGS; i++) {
		time = in_ms(20);
		ret = mw_wait(fd, word, 0, time, U32);
		late[i] = now() - time;
		EXPECT_TRUE(ret == MEMWAIT_TIMED_OUT || ret == MEMWAIT_OK);
		time = now();
		EXPECT_LE(0, mw_notify(fd, word, 1, U32));
		took[i] = now() - time;
	}
	qsort(late, MEETINGS, sizeof(late[0]), compare_numbers);
	qsort(took, MEETINGS, sizeof(took[0]), compare_numbers);
	TH_LOG("%s: time-out late by %ld us (median) to %ld us, notify of one %ld us to %ld us",
	       how, (long)late[MEETINGS / 2] / 1000, (long)late[MEETINGS - 1] / 1000,
	       (long)took[MEETINGS / 2] / 1000, (long)took[MEETINGS - 1] / 1000);
	EXPECT_WITHIN_MS(median, late[MEETINGS / 2]);
	EXPECT_WITHIN_MS(median, took[MEETINGS / 2]);
	EXPECT_WITHIN_MS(worst, late[MEETINGS - 1]);
	EXPECT_WITHIN_MS(worst, took[MEETINGS - 1]);
}

LIMITS_TEST(R28_who_requeues_for_ever_holds_up_nobody)
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
	meet_mover(_metadata, self->fd, self->word, "the mover alone");
	spinner = fork_spinner(0, m);
	meet_mover(_metadata, self->fd, self->word, "the mover driven out");
	store(&m->stop, 1);
	EXPECT_EQ(0, child_status(spinner));
	EXPECT_EQ(0, waitpid(mover, NULL, WNOHANG));
	death = kill_and_time(mover);
	TH_LOG("the mover's death: %ld ms", in_millis(death));
	EXPECT_WITHIN_MS(2000, death);
	munmap(m, 4096);
}

/* R13: those who come back at once, while a call has many others to do. */
#define COMING_BACK	8
#define OTHERS		20000

struct returner {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int *stop;
	uint64_t deadline;	/* from now on, or 0: never */
};

static void *come_back(void *arg)
{
	struct returner *r = arg;

	while (!load(r->stop))
		mw_wait(r->fd, r->word, 0, r->deadline ? now() + r->deadline : MEMWAIT_FOREVER,
			U32);
	return NULL;
}

static void start_returners(struct __test_metadata *_metadata, struct returner *r, int fd,
			    uint32_t *word, int *stop, uint64_t deadline)
{
	int i;

	for (i = 0; i < COMING_BACK; i++) {
		r[i] = (struct returner) { .fd = fd, .word = word, .stop = stop,
					   .deadline = deadline };
		ASSERT_EQ(0, pthread_create(&r[i].thread, NULL, come_back, &r[i]));
	}
}

static void stop_returners(struct returner *r, int fd, uint32_t *word, int *stop)
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

MEMWAIT_TEST(R13_who_comes_back_is_not_notified_twice_by_one_call)
{
	struct memwait_completion done[BATCH];
	struct returner r[COMING_BACK];
	int stop = 0, i, ret, got, n;
	uint64_t start;

	start_returners(_metadata, r, self->fd, self->shared, &stop, 0);
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
	stop_returners(r, self->fd, self->shared, &stop);
}

MEMWAIT_TEST(R13_a_requeue_to_the_same_word_ends)
{
	struct returner r[COMING_BACK];
	int stop = 0, i, ret;
	uint64_t start;

	ASSERT_EQ(OTHERS, arm_many(self->fd, self->shared, OTHERS, MEMWAIT_FOREVER, NULL));
	start_returners(_metadata, r, self->fd, self->shared, &stop, 50000);
	for (i = 0; i < 20; i++) {
		start = now();
		ret = requeue_all(self->fd, self->shared, self->shared);
		EXPECT_LE(OTHERS, ret);
		EXPECT_GE(OTHERS + COMING_BACK, ret);
		EXPECT_WITHIN_MS(5000, now() - start);
	}
	/* Those who come back have joined behind the others, for whom nobody reads. */
	stop_returners(r, self->fd, self->shared, &stop);
}

TEST_HARNESS_MAIN
