// SPDX-License-Identifier: GPL-2.0
/* R28, R30, R31: deaths that many wait for, or that take long. */
#include "hostile_test.h"

/*
 * R30, R31: anybody can name any owner, in as many waits as he may have. Those of the owner's user
 * are told of its death all the same before that has been told to others.
 */
#define NAMED_BY_OTHERS	200000

struct naming {
	int ready, stop;
	long told;
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
	n->told = mw_fdinfo(fd, "completed");
	_exit(0);
}

struct bereaved {
	pthread_t thread;
	int fd;
	uint64_t *word;
	int result;
};

static void *wait_for_owner(void *arg)
{
	struct memwait_owner owner = { 0 };
	struct bereaved *b = arg;

	b->result = xioctl(b->fd, MEMWAIT_IOC_OWNER, &owner) ? :
		    mw_wait(b->fd, b->word, *b->word, MEMWAIT_FOREVER,
			    MEMWAIT_SIZE_U64 | MEMWAIT_OWNED);
	return NULL;
}

LIMITS_TEST(R31_an_owner_that_others_name_is_told_of_at_once)
{
	struct memwait_owner owner = { 0 };
	struct naming *n = shared_page(4096);
	uint64_t *id = (uint64_t *)self->word;
	struct bereaved bereaved = { .fd = self->fd, .word = id };
	struct memwait_info info;
	int ready[2], many = allow_many_waits(NAMED_BY_OTHERS);
	pid_t dying, naming;
	char byte;

	if (geteuid())
		SKIP(return, "needs root to be another user");
	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel cannot tell of deaths");
	ASSERT_EQ(0, pipe(ready));
	dying = fork_child();
	if (!dying) {
		if (xioctl(self->fd, MEMWAIT_IOC_OWNER, &owner))
			_exit(1);
		*id = owner.id;
		if (write(ready[1], "", 1) != 1)
			_exit(2);
		pause();
		_exit(0);
	}
	ASSERT_EQ(1, read(ready[0], &byte, 1));
	naming = fork_child();
	if (!naming)
		name_owner(n, *id);
	EXPECT_TRUE(await_flag(&n->ready, 60));
	/* The last one to name it. */
	ASSERT_EQ(0, pthread_create(&bereaved.thread, NULL, wait_for_owner, &bereaved));
	await_waiters(self->fd, id, MEMWAIT_SIZE_U64, 1);
	kill(dying, SIGKILL);
	pthread_join(bereaved.thread, NULL);
	store(&n->stop, 1);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, bereaved.result);
	EXPECT_EQ(0, child_status(naming));
	TH_LOG("told to %ld of %d others before", n->told, many);
	/* Counted a moment later, which must not be long. */
	EXPECT_IN_TIME(many / 2 > n->told);
	waitpid(dying, NULL, 0);
	close(ready[0]);
	close(ready[1]);
	munmap(n, 4096);
}

/*
 * R28, R30: one kernel thread tells of all deaths, and ends what was bound to processes. Processes
 * of no importance die with many waits, and are driven out while they end them. Then another user's
 * owner dies.
 */
#define SLOW_ROUNDS	3
#define SLOW_DEATHS	8
#define SLOW_WAITS	15000

struct driver {
	pthread_t thread;
	int begin[2];		/* a pipe */
	int told, in_time, failed;
};

/* Lets nothing else run on the processor, until the other one was told. */
static void *drive_out(void *arg)
{
	struct driver *driver = arg;
	uint64_t end;
	char byte;

	/* No longer than 800 ms: the kernel lets others run for some of each second. */
	driver->failed = bind_to(1) || set_fifo(10) || read(driver->begin[0], &byte, 1) != 1;
	end = now() + 800 * NSEC_PER_MSEC;
	while (!load(&driver->told) && now() < end)
		;
	driver->in_time = load(&driver->told);
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
	struct bereaved bereaved = { .fd = self->fd, .word = word };
	pid_t slow[SLOW_DEATHS], owner;
	struct memwait_info info;

	if (processors() < 2 || geteuid())
		SKIP(return, "needs root, and two processors");
	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel cannot tell of deaths");
	ASSERT_EQ(0, bind_to(0));
	for (round = 0; round < SLOW_ROUNDS; round++) {
		struct driver driver = { 0 };

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
		ASSERT_EQ(0, pthread_create(&bereaved.thread, NULL, wait_for_owner, &bereaved));
		await_waiters(self->fd, word, MEMWAIT_SIZE_U64, 1);
		ASSERT_EQ(0, pipe(driver.begin));
		ASSERT_EQ(0, pthread_create(&driver.thread, NULL, drive_out, &driver));

		for (i = 0; i < SLOW_DEATHS; i++)
			kill(slow[i], SIGKILL);
		for (i = 0; i < SLOW_DEATHS; i++) {
			while (mw_waiters(self->fd, waits + i, U32) == many)
				sched_yield();
		}
		ASSERT_EQ(1, write(driver.begin[1], "", 1));
		kill(owner, SIGKILL);
		pthread_join(bereaved.thread, NULL);
		store(&driver.told, 1);
		pthread_join(driver.thread, NULL);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, bereaved.result);
		EXPECT_EQ(0, driver.failed);
		EXPECT_IN_TIME(driver.in_time);
		EXPECT_EQ(128 + SIGKILL, child_status(owner));
		for (i = 0; i < SLOW_DEATHS; i++) {
			EXPECT_EQ(128 + SIGKILL, child_status(slow[i]));
			EXPECT_EQ(0, mw_waiters(self->fd, waits + i, U32));
		}
		close(driver.begin[0]);
		close(driver.begin[1]);
	}
	munmap(ready, 4096);
}

TEST_HARNESS_MAIN
