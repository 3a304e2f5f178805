// SPDX-License-Identifier: GPL-2.0
/*
 * R33: each way in which the owner of a thread or a context dies, and events that do not count as a
 * death.
 */
#include "owner_test.h"
#include <sys/ptrace.h>

OWNER_TEST(R33_every_end_of_a_thread_is_reported)
{
	struct shared *shared = self->shared;
	int how;

	for (how = 0; how < ENDS; how++) {
		pid_t pid = start_owner(shared, how);
		struct owned_waiter w = { .fd = self->fd, .addr = &shared->word,
					  .expected = shared->id, .flags = OWNED64 };

		TH_LOG("how it ends: %d", how);
		shared->word = shared->id;
		EXPECT_TRUE(lives(self->fd, shared->id));
		owned_waiter_start(&w);
		if (how == IS_KILLED)
			kill(pid, SIGKILL);
		__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w));
		EXPECT_FALSE(lives(self->fd, shared->id));
		kill(pid, SIGKILL);
		ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	}
}

/* When waitpid(2) has returned, a waiter has also been notified of the death. */
OWNER_TEST(R34_a_reaped_child_is_dead_immediately)
{
	struct shared *shared = self->shared;
	int i;

	for (i = 0; i < LOAD(200, 40); i++) {
		pid_t pid = start_owner(shared, i % 2 ? EXITS : IS_KILLED);

		__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
		kill(pid, SIGKILL);
		ASSERT_EQ(pid, waitpid(pid, NULL, 0));
		ASSERT_FALSE(lives(self->fd, shared->id));
	}
}

OWNER_TEST(R33_a_joined_thread_is_dead_while_its_process_lives)
{
	struct owned_waiter w = { .fd = self->fd, .stays = 1 };
	struct owned_waiter waits = { .fd = self->fd, .addr = &self->shared->word,
				      .flags = OWNED64 };

	ASSERT_EQ(0, pthread_create(&w.thread, NULL, publish_id, &w));
	self->shared->word = await_id(&w.id);
	waits.expected = w.id;
	owned_waiter_start(&waits);
	EXPECT_TRUE(lives(self->fd, w.id));
	owned_waiter_join(&w);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&waits));
	EXPECT_TRUE(lives(self->fd, self->id));
}

OWNER_TEST(R33_a_child_of_fork_has_no_id_and_does_not_end_that_of_its_parent)
{
	struct shared *shared = self->shared;
	pid_t pid = fork_child();

	if (!pid) {
		shared->result[0] = mw_wait(self->fd, &shared->word, 0, 0, OWNED64);
		shared->id = my_id(self->fd);
		_exit(0);
	}
	ASSERT_EQ(0, child_status(pid));
	EXPECT_EQ(-EPERM, shared->result[0]);
	EXPECT_NE(0, shared->id);
	EXPECT_NE(self->id, shared->id);
	EXPECT_FALSE(lives(self->fd, shared->id));
	EXPECT_TRUE(lives(self->fd, self->id));
	EXPECT_EQ(self->id, my_id(self->fd));
}

static int vfork_child(void *arg)
{
	struct shared *shared = arg;

	shared->result[0] = mw_wait(shared->result[1], &shared->word, 0, 0, OWNED64);
	shared->id = my_id(shared->result[1]);
	return 0;
}

OWNER_TEST(R33_a_child_of_vfork_has_a_separate_id)
{
	char *stack = private_page(16 * self->page);
	struct shared *shared = self->shared;
	pid_t pid;

	shared->result[1] = self->fd;
	pid = clone(vfork_child, stack + 16 * self->page, CLONE_VM | CLONE_VFORK | SIGCHLD, shared);
	ASSERT_LT(0, pid);
	ASSERT_EQ(0, child_status(pid));
	EXPECT_EQ(-EPERM, shared->result[0]);
	EXPECT_NE(self->id, shared->id);
	EXPECT_FALSE(lives(self->fd, shared->id));
	EXPECT_TRUE(lives(self->fd, self->id));
}

OWNER_TEST(R33_closing_descriptors_is_not_a_death)
{
	struct shared *shared = self->shared;
	pid_t pid = fork_child();

	if (!pid) {
		int fd = memwait_open(0);

		store_id(&shared->id, my_id(fd));
		/* Close all descriptors, as a daemon does. */
		for (fd = 0; fd < 256; fd++)
			close(fd);
		__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
		pause();
		_exit(0);
	}
	await_id(&shared->id);
	sleep_until(__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE));
	shared->word = shared->id;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, &shared->word, shared->id, in_ms(20),
					     OWNED64));
	kill(pid, SIGKILL);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &shared->word, shared->id, MEMWAIT_FOREVER,
					      OWNED64));
	waitpid(pid, NULL, 0);
}

OWNER_TEST(R33_a_context_dies_with_its_last_descriptor)
{
	struct shared *shared = self->shared;
	int fd = memwait_open(0), copy;
	uint64_t id;
	pid_t pid;

	ASSERT_EQ(0, mw_owner(fd, MEMWAIT_OWNER_CONTEXT, &id));
	copy = dup(fd);
	close(fd);
	EXPECT_TRUE(lives(self->fd, id));
	pid = run_in_child(pause());
	close(copy);
	/* The child still has a copy of the context. */
	shared->word = id;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, &shared->word, id, in_ms(20), OWNED64));
	kill(pid, SIGKILL);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &shared->word, id, MEMWAIT_FOREVER,
					      OWNED64));
	waitpid(pid, NULL, 0);
}

OWNER_TEST(R33_ids_mean_the_same_in_every_pid_namespace)
{
	struct shared *shared = self->shared;
	pid_t pids[2];
	int i;

	if (geteuid())
		SKIP(return, "needs root for PID namespaces");
	for (i = 0; i < 2; i++) {
		int space = i;

		pids[i] = fork_child();
		if (!pids[i]) {
			pid_t first;

			if (unshare(CLONE_NEWPID))
				_exit(1);
			first = fork_child();
			if (!first) {
				uint64_t *ids = (uint64_t *)(shared + 1);
				int fd = memwait_open(0);

				if (getpid() != 1)
					_exit(1);
				store_id(&ids[space], my_id(fd));
				sleep_until(__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE));
				/*
				 * Check that the other owner, which has the same thread id, is
				 * alive.
				 */
				shared->result[space] = lives(fd, await_id(&ids[!space]));
				_exit(0);
			}
			_exit(child_status(first));
		}
	}
	EXPECT_NE(await_id((uint64_t *)(shared + 1)), await_id((uint64_t *)(shared + 1) + 1));
	/* Both owners exist until both have made their checks, so both are alive here. */
	EXPECT_TRUE(lives(self->fd, ((uint64_t *)(shared + 1))[0]));
	EXPECT_TRUE(lives(self->fd, ((uint64_t *)(shared + 1))[1]));
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(0, child_status(pids[0]));
	EXPECT_EQ(0, child_status(pids[1]));
	EXPECT_EQ(1, shared->result[0] | shared->result[1]);
	EXPECT_FALSE(lives(self->fd, ((uint64_t *)(shared + 1))[0]));
	EXPECT_FALSE(lives(self->fd, ((uint64_t *)(shared + 1))[1]));
}

OWNER_TEST(R33_ptrace_is_not_a_death)
{
	struct shared *shared = self->shared;
	pid_t pid = start_owner(shared, IS_KILLED);
	int status;

	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, pid, NULL, NULL));
	ASSERT_EQ(0, ptrace(PTRACE_INTERRUPT, pid, NULL, NULL));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	shared->word = shared->id;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, &shared->word, shared->id, in_ms(20),
					     OWNED64));
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, pid, NULL, NULL));
	EXPECT_TRUE(lives(self->fd, shared->id));
	kill(pid, SIGKILL);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &shared->word, shared->id, MEMWAIT_FOREVER,
					      OWNED64));
	waitpid(pid, NULL, 0);
}

#define CGROUP	"/sys/fs/cgroup/memwait-owner"

OWNER_TEST(R33_an_oom_kill_is_a_death)
{
	struct shared *shared = self->shared;
	pid_t pid;

	if (mkdir(CGROUP, 0755) || read_number(CGROUP "/memory.current") < 0) {
		rmdir(CGROUP);
		SKIP(return, "no memory cgroup v2 at /sys/fs/cgroup");
	}
	pid = fork_child();
	if (!pid) {
		int fd = memwait_open(0);

		if (write_number(CGROUP "/cgroup.procs", getpid()) ||
		    write_number(CGROUP "/memory.max", 16 << 20))
			_exit(1);
		store_id(&shared->id, my_id(fd));
		sleep_until(__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE));
		for (;;)
			memset(private_page(1 << 20), 1, 1 << 20);
	}
	shared->word = await_id(&shared->id);
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &shared->word, shared->word,
					      MEMWAIT_FOREVER, OWNED64));
	EXPECT_EQ(128 + SIGKILL, child_status(pid));
	EXPECT_EQ(0, remove_cgroup(CGROUP));
}

TEST_HARNESS_MAIN
