// SPDX-License-Identifier: GPL-2.0
/* R28, R30, R31: deaths of owners that many waits name, and deaths that take a long time. */
#include "hostile_test.h"

/*
 * R30, R31: any user can name any owner, in as many waits as the limit allows. The death is
 * nevertheless reported first to the waits of the owner's own user. After that it is reported in
 * turn to one wait of each other user.
 */
#define NAMED_BY_OTHERS	200000

struct naming {
	int ready, stop;
	long reported;
};

static int arm_owned(int fd, const uint64_t *words, int n, uint64_t id)
{
	static struct memwait_async e[BATCH];
	int armed = 0, some, i;

	while (armed < n) {
		struct memwait_wait_async arg = BATCH_OF(e, n - armed < BATCH ? n - armed : BATCH);

		some = arg.count;
		memset(e, 0, sizeof(e));
		for (i = 0; i < some; i++) {
			e[i].wait.addr = (uintptr_t)&words[armed + i];
			e[i].wait.expected = id;
			e[i].wait.deadline = MEMWAIT_FOREVER;
			e[i].wait.flags = MEMWAIT_SIZE_U64 | MEMWAIT_OWNED;
		}
		if (xioctl(fd, MEMWAIT_IOC_WAIT_ASYNC, &arg) != some ||
		    e[some - 1].result != MEMWAIT_PENDING)
			break;
		armed += some;
	}
	return armed;
}

static void name_owner(struct naming *n, uint64_t id)
{
	struct memwait_owner owner = { .flags = MEMWAIT_OWNER_CONTEXT };
	int many = how_many_waits(NAMED_BY_OTHERS), fd, i;
	uint64_t *words = private_page(many * sizeof(*words));

	if (setresuid(NOBODY, NOBODY, NOBODY))
		_exit(1);
	for (i = 0; i < many; i++)
		words[i] = id;
	fd = memwait_open(O_NONBLOCK);
	if (xioctl(fd, MEMWAIT_IOC_OWNER, &owner) || arm_owned(fd, words, many, id) != many)
		_exit(2);
	store(&n->ready, 1);
	while (!load(&n->stop))
		usleep(1000);
	n->reported = mw_fdinfo(fd, "completed");
	_exit(0);
}

struct watcher {
	pthread_t thread;
	int fd;
	uint64_t *word;
	int result;
};

static void *wait_for_owner(void *arg)
{
	struct memwait_owner owner = { 0 };
	struct watcher *b = arg;

	b->result = xioctl(b->fd, MEMWAIT_IOC_OWNER, &owner) ? :
		    mw_wait(b->fd, b->word, *b->word, MEMWAIT_FOREVER,
			    MEMWAIT_SIZE_U64 | MEMWAIT_OWNED);
	return NULL;
}

/* Forks the owner, as @user unless @user is 0. Returns when the owner's id is in *@id. */
static pid_t start_named(int fd, uid_t user, uint64_t *id)
{
	struct memwait_owner owner = { 0 };
	pid_t pid = fork_child();

	if (pid) {
		sleep_until(__atomic_load_n(id, __ATOMIC_ACQUIRE));
		return pid;
	}
	if (user && setresuid(user, user, user))
		_exit(1);
	if (user)
		fd = memwait_open(O_NONBLOCK);
	if (xioctl(fd, MEMWAIT_IOC_OWNER, &owner))
		_exit(2);
	__atomic_store_n(id, owner.id, __ATOMIC_RELEASE);
	stay();
}

/*
 * Another user names the owner in many waits, and then a thread of root names the owner. @user: the
 * user of the owner; 0: root.
 */
static void report_to_root(struct __test_metadata *_metadata, int fd, uint64_t *id, uid_t user)
{
	struct naming *n = shared_page(4096);
	struct watcher watcher = { .fd = fd, .word = id };
	int many = allow_many_waits(NAMED_BY_OTHERS);
	pid_t dying, naming;

	*id = 0;
	dying = start_named(fd, user, id);
	naming = fork_child();
	if (!naming)
		name_owner(n, *id);
	EXPECT_TRUE(await_flag(&n->ready, 60));
	ASSERT_EQ(0, pthread_create(&watcher.thread, NULL, wait_for_owner, &watcher));
	await_waiters(fd, id, MEMWAIT_SIZE_U64, 1);
	kill(dying, SIGKILL);
	pthread_join(watcher.thread, NULL);
	store(&n->stop, 1);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, watcher.result);
	EXPECT_EQ(0, child_status(naming));
	TH_LOG("reported to %ld of %d waits of another user first", n->reported, many);
	/* The reports are counted shortly after the death; this delay must be short. */
	EXPECT_IN_TIME(many / 2 > n->reported);
	waitpid(dying, NULL, 0);
	munmap(n, 4096);
}

LIMITS_TEST(R31_a_death_is_reported_first_to_the_owners_user_and_fairly_to_others)
{
	struct memwait_info info;

	if (geteuid())
		SKIP(return, "needs root to become another user");
	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel does not report deaths");
	report_to_root(_metadata, self->fd, (uint64_t *)self->word, 0);
	report_to_root(_metadata, self->fd, (uint64_t *)self->word, NOBODY - 1);
}

/*
 * R28, R30: low-priority processes of one user die with many waits, and are preempted while they
 * end these waits. Then an owner of another user dies. Its death must be reported while these
 * processes are preempted.
 */
#define SLOW_ROUNDS	3
#define SLOW_DEATHS	8
#define SLOW_WAITS	15000

struct preempter {
	pthread_t thread;
	int begin[2];		/* a pipe */
	int reported, in_time, failed;
};

/* Prevents all other threads from running on the CPU until the death has been reported. */
static void *preempt(void *arg)
{
	struct preempter *preempter = arg;
	uint64_t end;
	char byte;

	/*
	 * The thread runs for at most 800 ms, because the kernel reserves a part of each second for
	 * other threads.
	 */
	preempter->failed = bind_to(1) || set_fifo(10) || read(preempter->begin[0], &byte, 1) != 1;
	end = now() + 800 * NSEC_PER_MSEC;
	while (!load(&preempter->reported) && now() < end)
		;
	preempter->in_time = load(&preempter->reported);
	return NULL;
}

static void die_slowly(int *ready, const uint32_t *word)
{
	struct memwait_owner owner = { .flags = MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND };
	int fd, many = how_many_waits(SLOW_WAITS);

	become_nobody();
	fd = memwait_open(O_NONBLOCK);
	if (xioctl(fd, MEMWAIT_IOC_OWNER, &owner) || bind_to(1) || set_idle() ||
	    arm_many(fd, word, many, MEMWAIT_FOREVER, NULL) != many)
		_exit(1);
	store(ready, 1);
	while (1)
		pause();
}

static void die_as_owner(int *ready, int fd, uint64_t *word)
{
	struct memwait_owner owner = { 0 };

	if (xioctl(fd, MEMWAIT_IOC_OWNER, &owner))
		_exit(1);
	*word = owner.id;
	store(ready, 1);
	while (1)
		pause();
}

MEMWAIT_TEST(R28_slow_exits_delay_no_other_death)
{
	int *ready = shared_page(4096), many = how_many_waits(SLOW_WAITS), round, i;
	uint64_t *word = (uint64_t *)self->shared;
	uint32_t *waits = self->shared + 4;
	struct watcher watcher = { .fd = self->fd, .word = word };
	pid_t slow[SLOW_DEATHS], owner;
	struct memwait_info info;

	if (processors() < 2 || geteuid())
		SKIP(return, "needs root and two processors");
	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel does not report deaths");
	ASSERT_EQ(0, bind_to(0));
	for (round = 0; round < SLOW_ROUNDS; round++) {
		struct preempter preempter = { 0 };

		memset(ready, 0, (SLOW_DEATHS + 1) * sizeof(*ready));
		for (i = 0; i < SLOW_DEATHS; i++) {
			slow[i] = fork_child();
			if (!slow[i])
				die_slowly(&ready[i], waits + i);
		}
		owner = fork_child();
		if (!owner)
			die_as_owner(&ready[i], self->fd, word);
		for (i = 0; i <= SLOW_DEATHS; i++)
			ASSERT_TRUE(await_flag(&ready[i], 60));
		ASSERT_EQ(0, pthread_create(&watcher.thread, NULL, wait_for_owner, &watcher));
		await_waiters(self->fd, word, MEMWAIT_SIZE_U64, 1);
		ASSERT_EQ(0, pipe(preempter.begin));
		ASSERT_EQ(0, pthread_create(&preempter.thread, NULL, preempt, &preempter));

		for (i = 0; i < SLOW_DEATHS; i++)
			kill(slow[i], SIGKILL);
		for (i = 0; i < SLOW_DEATHS; i++) {
			while (mw_waiters(self->fd, waits + i, U32) == many)
				sched_yield();
		}
		ASSERT_EQ(1, write(preempter.begin[1], "", 1));
		kill(owner, SIGKILL);
		pthread_join(watcher.thread, NULL);
		store(&preempter.reported, 1);
		pthread_join(preempter.thread, NULL);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, watcher.result);
		EXPECT_EQ(0, preempter.failed);
		EXPECT_IN_TIME(preempter.in_time);
		EXPECT_EQ(128 + SIGKILL, child_status(owner));
		for (i = 0; i < SLOW_DEATHS; i++) {
			EXPECT_EQ(128 + SIGKILL, child_status(slow[i]));
			EXPECT_EQ(0, mw_waiters(self->fd, waits + i, U32));
		}
		close(preempter.begin[0]);
		close(preempter.begin[1]);
	}
	munmap(ready, 4096);
}

TEST_HARNESS_MAIN
