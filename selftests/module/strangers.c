// SPDX-License-Identifier: GPL-2.0
/*
 * R30: what others do with the id of a process does not make its death slow. Who tells whom is seen
 * by tracing, as the kernel thread that tells the others may be sooner or later.
 */
#include "async_test.h"
#include "limits_test.h"
#include "../patching_test.h"

#define TRACING		"/sys/kernel/tracing"
#define INSTANCE	TRACING "/instances/memwait-strangers"
#define ENABLE		INSTANCE "/events/memwait/memwait_async_complete/enable"

#define OWNED64		(MEMWAIT_SIZE_U64 | MEMWAIT_OWNED)
#define STRANGERS	300	/* words on which a stranger waits */
#define OWN		20	/* of these, where the user waits too; of half of them first */
#define ROUNDS		5	/* of which one shows it; each has a scene */
#define DESCRIPTORS	5	/* of the device, that the process closes when it dies */

struct scene {
	uint64_t words[STRANGERS];
	uint64_t id;
	int changes_user;	/* the user of its descriptors is then another one */
	int ready, armed, go, told;
};

static void tell(int *flag)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static void await(const int *flag)
{
	sleep_until(__atomic_load_n(flag, __ATOMIC_ACQUIRE));
}

static void die(struct scene *scene)
{
	int i, fd = -1;

	/* So few kernel threads come in between, which are bound to that processor, too. */
	CHECK(!pin(1));
	for (i = 0; i < DESCRIPTORS; i++)
		fd = memwait_open(O_RDONLY);
	CHECK(!mw_owner(fd, 0, &scene->id));
	for (i = 0; i < STRANGERS; i++)
		scene->words[i] = scene->id;
	if (scene->changes_user)
		become_nobody();
	tell(&scene->ready);
	await(&scene->go);
	_exit(0);
}

static int arm_words(int fd, struct scene *scene, int from, int to)
{
	int i;

	for (i = from; i < to; i++) {
		if (mw_async(fd, &scene->words[i], scene->id, MEMWAIT_FOREVER, OWNED64, i, NULL) !=
		    MEMWAIT_PENDING)
			return -1;
	}
	return 0;
}

/* Reads until it was told of all words where it is the first. */
static void be_stranger(struct scene *scene)
{
	struct memwait_completion done;
	int fd, i;

	become_nobody();
	fd = memwait_open(0);
	CHECK(!mw_owner(fd, MEMWAIT_OWNER_CONTEXT, NULL));
	CHECK(!arm_words(fd, scene, 0, STRANGERS));
	tell(&scene->armed);
	for (i = 0; i < STRANGERS - OWN / 2; i++) {
		CHECK(mw_read(fd, &done, 1) == 1);
		CHECK(done.result == MEMWAIT_OWNER_DIED);
	}
	tell(&scene->told);
	stay();
}

/* How many completions a process has made, by what was recorded; and all. */
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

/* Returns how many waits the process completes that dies. */
static int count_told(struct __test_metadata *_metadata, int fd, struct scene *scene)
{
	struct memwait_completion done;
	pid_t pid, stranger;
	int i, nr, all;

	pid = fork_child();
	if (!pid)
		die(scene);
	await(&scene->ready);
	EXPECT_EQ(0, arm_words(fd, scene, 0, OWN / 2));
	stranger = fork_child();
	if (!stranger)
		be_stranger(scene);
	await(&scene->armed);
	EXPECT_EQ(0, arm_words(fd, scene, OWN / 2, OWN));
	mkdir(INSTANCE, 0700);
	EXPECT_EQ(0, write_number(ENABLE, 1));
	tell(&scene->go);
	EXPECT_EQ(0, child_status(pid));
	await(&scene->told);
	EXPECT_EQ(0, write_number(ENABLE, 0));
	nr = recorded_by(pid, &all);
	TH_LOG("%d of %d by the process itself", nr, all);
	EXPECT_EQ(STRANGERS, all);
	for (i = 0; i < OWN / 2; i++) {
		EXPECT_EQ(1, mw_read(fd, &done, 1));
		EXPECT_EQ(MEMWAIT_OWNER_DIED, done.result);
	}
	kill_child(stranger);
	rmdir(INSTANCE);
	return nr;
}

LIMITS_TEST(R30_a_dying_process_tells_its_own_user_only)
{
	struct scene *scene = map_memory((ROUNDS + 1) * sizeof(*scene),
					 MAP_SHARED | MAP_ANONYMOUS, -1);
	uint64_t offline;
	int nr, most = 0, round;

	if (access(TRACING "/events/memwait", F_OK))
		SKIP(return, "this kernel has no events");
	if (mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL))
		SKIP(return, "this kernel cannot tell of deaths");
	if (pin(1) || pin(0))
		SKIP(return, "needs SCHED_FIFO");
	if (change_setting(WORKQUEUE_CPUMASK, "1"))
		SKIP(return, "kernel threads cannot be bound");
	if (!begin_patching(&offline))
		SKIP(return, "emulated, and more than one processor");
	/* A kernel thread may be as quick; not each time. */
	for (round = 0; round < ROUNDS && most < OWN; round++) {
		nr = count_told(_metadata, self->fd, &scene[round]);
		EXPECT_GE(OWN, nr);
		if (nr > most)
			most = nr;
	}
	EXPECT_EQ(OWN, most);
	scene[ROUNDS].changes_user = 1;
	EXPECT_EQ(0, count_told(_metadata, self->fd, &scene[ROUNDS]));
	end_patching(offline);
}

TEST_HARNESS_MAIN
