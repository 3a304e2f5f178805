// SPDX-License-Identifier: GPL-2.0
/* R33: each way in which a thread or a context ends, and what is no end. */
#include "owner_test.h"
#include <sys/ptrace.h>

OWNER_TEST(R33_every_end_of_a_thread_is_told)
{
	struct board *board = self->board;
	int how;

	for (how = 0; how < ENDS; how++) {
		pid_t pid = start_owner(board, how);
		struct owned_waiter w = { .fd = self->fd, .addr = &board->word,
					  .expected = board->id, .flags = OWNED64 };

		TH_LOG("end %d", how);
		board->word = board->id;
		EXPECT_TRUE(lives(self->fd, board->id));
		owned_waiter_start(&w);
		if (how == IS_KILLED)
			kill(pid, SIGKILL);
		__atomic_store_n(&board->go, 1, __ATOMIC_RELEASE);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w));
		EXPECT_FALSE(lives(self->fd, board->id));
		kill(pid, SIGKILL);
		ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	}
}

/* What a parent knows by waitpid(2), a waiter knows too. */
OWNER_TEST(R34_a_child_that_was_waited_for_is_dead_at_once)
{
	struct board *board = self->board;
	int i;

	for (i = 0; i < LOAD(200, 40); i++) {
		pid_t pid = start_owner(board, i % 2 ? EXITS : IS_KILLED);

		__atomic_store_n(&board->go, 1, __ATOMIC_RELEASE);
		kill(pid, SIGKILL);
		ASSERT_EQ(pid, waitpid(pid, NULL, 0));
		ASSERT_FALSE(lives(self->fd, board->id));
	}
}

OWNER_TEST(R33_a_thread_that_was_joined_is_dead_and_its_process_lives)
{
	struct owned_waiter w = { .fd = self->fd, .stays = 1 };
	struct owned_waiter waits = { .fd = self->fd, .addr = &self->board->word,
				      .flags = OWNED64 };

	ASSERT_EQ(0, pthread_create(&w.thread, NULL, tell_id, &w));
	self->board->word = await_id(&w.id);
	waits.expected = w.id;
	owned_waiter_start(&waits);
	EXPECT_TRUE(lives(self->fd, w.id));
	owned_waiter_join(&w);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&waits));
	EXPECT_TRUE(lives(self->fd, self->id));
}

OWNER_TEST(R33_a_child_of_fork_is_nobodys_owner_and_does_not_end_its_parents)
{
	struct board *board = self->board;
	pid_t pid = fork_child();

	if (!pid) {
		board->result[0] = mw_wait(self->fd, &board->word, 0, 0, OWNED64);
		board->id = my_id(self->fd);
		_exit(0);
	}
	ASSERT_EQ(0, child_status(pid));
	EXPECT_EQ(-EPERM, board->result[0]);
	EXPECT_NE(0, board->id);
	EXPECT_NE(self->id, board->id);
	EXPECT_FALSE(lives(self->fd, board->id));
	EXPECT_TRUE(lives(self->fd, self->id));
	EXPECT_EQ(self->id, my_id(self->fd));
}

static int vfork_child(void *arg)
{
	struct board *board = arg;

	board->result[0] = mw_wait(board->result[1], &board->word, 0, 0, OWNED64);
	board->id = my_id(board->result[1]);
	return 0;
}

OWNER_TEST(R33_a_child_of_vfork_has_an_id_of_its_own)
{
	char *stack = private_page(16 * self->page);
	struct board *board = self->board;
	pid_t pid;

	board->result[1] = self->fd;
	pid = clone(vfork_child, stack + 16 * self->page, CLONE_VM | CLONE_VFORK | SIGCHLD, board);
	ASSERT_LT(0, pid);
	ASSERT_EQ(0, child_status(pid));
	EXPECT_EQ(-EPERM, board->result[0]);
	EXPECT_NE(self->id, board->id);
	EXPECT_FALSE(lives(self->fd, board->id));
	EXPECT_TRUE(lives(self->fd, self->id));
}

OWNER_TEST(R33_closed_descriptors_are_no_death)
{
	struct board *board = self->board;
	pid_t pid = fork_child();

	if (!pid) {
		int fd = memwait_open(0);

		store_id(&board->id, my_id(fd));
		/* As a daemon does. */
		for (fd = 0; fd < 256; fd++)
			close(fd);
		__atomic_store_n(&board->go, 1, __ATOMIC_RELEASE);
		pause();
		_exit(0);
	}
	await_id(&board->id);
	sleep_until(__atomic_load_n(&board->go, __ATOMIC_ACQUIRE));
	board->word = board->id;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, &board->word, board->id, in_ms(20),
					     OWNED64));
	kill(pid, SIGKILL);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &board->word, board->id, MEMWAIT_FOREVER,
					      OWNED64));
	waitpid(pid, NULL, 0);
}

OWNER_TEST(R33_a_context_dies_with_its_last_descriptor)
{
	struct board *board = self->board;
	int fd = memwait_open(0), copy;
	uint64_t id;
	pid_t pid;

	ASSERT_EQ(0, mw_owner(fd, MEMWAIT_OWNER_CONTEXT, &id));
	copy = dup(fd);
	close(fd);
	EXPECT_TRUE(lives(self->fd, id));
	pid = run_in_child(pause());
	close(copy);
	/* The child has it. */
	board->word = id;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, &board->word, id, in_ms(20), OWNED64));
	kill(pid, SIGKILL);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &board->word, id, MEMWAIT_FOREVER,
					      OWNED64));
	waitpid(pid, NULL, 0);
}

OWNER_TEST(R33_ids_mean_the_same_in_every_pid_namespace)
{
	struct board *board = self->board;
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
				uint64_t *ids = (uint64_t *)(board + 1);
				int fd = memwait_open(0);

				if (getpid() != 1)
					_exit(1);
				store_id(&ids[space], my_id(fd));
				sleep_until(__atomic_load_n(&board->go, __ATOMIC_ACQUIRE));
				/* Sees the other alive, whose thread id is the same. */
				board->result[space] = lives(fd, await_id(&ids[!space]));
				_exit(0);
			}
			_exit(child_status(first));
		}
	}
	EXPECT_NE(await_id((uint64_t *)(board + 1)), await_id((uint64_t *)(board + 1) + 1));
	/* Both are there until both have looked: this one is alive, too. */
	EXPECT_TRUE(lives(self->fd, ((uint64_t *)(board + 1))[0]));
	EXPECT_TRUE(lives(self->fd, ((uint64_t *)(board + 1))[1]));
	__atomic_store_n(&board->go, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(0, child_status(pids[0]));
	EXPECT_EQ(0, child_status(pids[1]));
	EXPECT_EQ(1, board->result[0] | board->result[1]);
	EXPECT_FALSE(lives(self->fd, ((uint64_t *)(board + 1))[0]));
	EXPECT_FALSE(lives(self->fd, ((uint64_t *)(board + 1))[1]));
}

OWNER_TEST(R33_a_debugger_is_no_death)
{
	struct board *board = self->board;
	pid_t pid = start_owner(board, IS_KILLED);
	int status;

	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, pid, NULL, NULL));
	ASSERT_EQ(0, ptrace(PTRACE_INTERRUPT, pid, NULL, NULL));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	board->word = board->id;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, &board->word, board->id, in_ms(20),
					     OWNED64));
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, pid, NULL, NULL));
	EXPECT_TRUE(lives(self->fd, board->id));
	kill(pid, SIGKILL);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &board->word, board->id, MEMWAIT_FOREVER,
					      OWNED64));
	waitpid(pid, NULL, 0);
}

#define CGROUP	"/sys/fs/cgroup/memwait-owner"

OWNER_TEST(R33_the_oom_killer_is_one)
{
	struct board *board = self->board;
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
		store_id(&board->id, my_id(fd));
		sleep_until(__atomic_load_n(&board->go, __ATOMIC_ACQUIRE));
		for (;;)
			memset(private_page(1 << 20), 1, 1 << 20);
	}
	board->word = await_id(&board->id);
	__atomic_store_n(&board->go, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &board->word, board->word,
					      MEMWAIT_FOREVER, OWNED64));
	EXPECT_EQ(128 + SIGKILL, child_status(pid));
	EXPECT_EQ(0, remove_cgroup(CGROUP));
}

TEST_HARNESS_MAIN
