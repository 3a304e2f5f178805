// SPDX-License-Identifier: GPL-2.0
/*
 * R30: waits of other users for the id of a process do not delay the death of the process. Tracing
 * shows which process completes the waits, because the kernel thread that completes the waits of
 * other users may run earlier or later.
 */
#include "async_test.h"
#include "limits_test.h"
#include "../patching_test.h"

#define TRACING		"/sys/kernel/tracing"
#define INSTANCE	TRACING "/instances/memwait-strangers"
#define ENABLE		INSTANCE "/events/memwait/memwait_async_complete/enable"

#define OWNED64		(MEMWAIT_SIZE_U64 | MEMWAIT_OWNED)
#define OTHER_WORDS	300	/* number of words on which the unrelated process waits */
#define OWN		20	/* words of the user, which is the first waiter of half of them */
#define ROUNDS		5	/* each round has its own shared memory */
#define DESCRIPTORS	5	/* open files of the device, which the dying process closes */

struct shared {
	uint64_t words[OTHER_WORDS];
	uint64_t id;
	int changes_user;	/* the process changes its user after opening the descriptors */
	int ready, armed, go, notified;
};

static void set_flag(int *flag)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static void await(const int *flag)
{
	sleep_until(__atomic_load_n(flag, __ATOMIC_ACQUIRE));
}

static void die(struct shared *shared)
{
	int i, fd = -1;

	/* With this priority, few kernel threads of the same CPU run in the meantime. */
	CHECK(!pin(1));
	for (i = 0; i < DESCRIPTORS; i++)
		fd = memwait_open(O_RDONLY);
	CHECK(!mw_owner(fd, 0, &shared->id));
	for (i = 0; i < OTHER_WORDS; i++)
		shared->words[i] = shared->id;
	if (shared->changes_user)
		become_nobody();
	set_flag(&shared->ready);
	await(&shared->go);
	_exit(0);
}

static int arm_words(int fd, struct shared *shared, int from, int to)
{
	int i;

	for (i = from; i < to; i++) {
		if (mw_async(fd, &shared->words[i], shared->id, MEMWAIT_FOREVER, OWNED64, i,
			     NULL) != MEMWAIT_PENDING)
			return -1;
	}
	return 0;
}

/* Reads until OWNER_DIED has arrived for each word on which this process is the first waiter. */
static void run_unrelated(struct shared *shared)
{
	struct memwait_completion done;
	int fd, i;

	become_nobody();
	fd = memwait_open(0);
	CHECK(!mw_owner(fd, MEMWAIT_OWNER_CONTEXT, NULL));
	CHECK(!arm_words(fd, shared, 0, OTHER_WORDS));
	set_flag(&shared->armed);
	for (i = 0; i < OTHER_WORDS - OWN / 2; i++) {
		CHECK(mw_read(fd, &done, 1) == 1);
		CHECK(done.result == MEMWAIT_OWNER_DIED);
	}
	set_flag(&shared->notified);
	stay();
}

/*
 * Returns how many completions a process has created according to the trace. *all is the total
 * number.
 */
static int recorded_by(pid_t pid, int *all)
{
	FILE *f = fopen(INSTANCE "/trace", "r");
	char line[512], name[32], *process;
	int nr = 0;

	*all = 0;
	snprintf(name, sizeof(name), "-%d ", pid);
	while (f && fgets(line, sizeof(line), f)) {
		if (line[0] == '#' || !strstr(line, ": memwait_async_complete"))
			continue;
		(*all)++;
		process = strstr(line, name);
		nr += process && process < strchr(line, '[');
	}
	if (f)
		fclose(f);
	return nr;
}

/* Returns how many waits the dying process completes. */
static int count_notified(struct __test_metadata *_metadata, int fd, struct shared *shared)
{
	struct memwait_completion done;
	pid_t pid, unrelated;
	int i, nr, all;

	pid = fork_child();
	if (!pid)
		die(shared);
	await(&shared->ready);
	EXPECT_EQ(0, arm_words(fd, shared, 0, OWN / 2));
	unrelated = fork_child();
	if (!unrelated)
		run_unrelated(shared);
	await(&shared->armed);
	EXPECT_EQ(0, arm_words(fd, shared, OWN / 2, OWN));
	mkdir(INSTANCE, 0700);
	EXPECT_EQ(0, write_number(ENABLE, 1));
	set_flag(&shared->go);
	EXPECT_EQ(0, child_status(pid));
	await(&shared->notified);
	EXPECT_EQ(0, write_number(ENABLE, 0));
	nr = recorded_by(pid, &all);
	TH_LOG("%d of %d completions were created by the process itself", nr, all);
	EXPECT_EQ(OTHER_WORDS, all);
	for (i = 0; i < OWN / 2; i++) {
		EXPECT_EQ(1, mw_read(fd, &done, 1));
		EXPECT_EQ(MEMWAIT_OWNER_DIED, done.result);
	}
	kill_child(unrelated);
	rmdir(INSTANCE);
	return nr;
}

LIMITS_TEST(R30_a_dying_process_notifies_only_its_own_user)
{
	struct shared *shared = map_memory((ROUNDS + 1) * sizeof(*shared),
					   MAP_SHARED | MAP_ANONYMOUS, -1);
	uint64_t offline;
	int nr, most = 0, round;

	if (access(TRACING "/events/memwait", F_OK))
		SKIP(return, "this kernel has no memwait events");
	if (mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL))
		SKIP(return, "this kernel does not report deaths");
	if (pin(1) || pin(0))
		SKIP(return, "needs SCHED_FIFO");
	if (change_setting(WORKQUEUE_CPUMASK, "1"))
		SKIP(return, "cannot bind kernel threads");
	if (!begin_patching(&offline))
		SKIP(return, "emulation with more than one processor");
	/* A kernel thread may be as fast as the dying process, but not in each round. */
	for (round = 0; round < ROUNDS && most < OWN; round++) {
		nr = count_notified(_metadata, self->fd, &shared[round]);
		EXPECT_GE(OWN, nr);
		if (nr > most)
			most = nr;
	}
	EXPECT_EQ(OWN, most);
	shared[ROUNDS].changes_user = 1;
	EXPECT_EQ(0, count_notified(_metadata, self->fd, &shared[ROUNDS]));
	end_patching(offline);
}

TEST_HARNESS_MAIN
