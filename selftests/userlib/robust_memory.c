// SPDX-License-Identifier: GPL-2.0
/* L6: mutexes in memory that is read-only or that no longer exists. */
#include "robust_mutex_test.h"

struct mapped {
	memwait_mutex_t *mutex;	/* in a writable mapping */
	memwait_mutex_t *read_only;
	int memfd;
};

static bool map_mutex(struct mapped *mapped)
{
	mapped->memfd = memfd_create("mutex", MFD_CLOEXEC);
	if (mapped->memfd < 0 || ftruncate(mapped->memfd, 4096))
		return false;
	mapped->mutex = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mapped->memfd, 0);
	mapped->read_only = mmap(NULL, 4096, PROT_READ, MAP_SHARED, mapped->memfd, 0);
	return mapped->mutex != MAP_FAILED && mapped->read_only != MAP_FAILED;
}

static void unmap_mutex(struct mapped *mapped)
{
	munmap(mapped->mutex, 4096);
	munmap(mapped->read_only, 4096);
	close(mapped->memfd);
}

/*
 * Locking writes to the mutex. The program itself gets the fault, which must not affect other
 * processes.
 */
ROBUST_TEST(L6_a_mutex_in_read_only_memory)
{
	struct getting getting;
	struct runner runner;
	struct mapped mapped;
	struct owner owner;
	struct timespec none = { 0, 0 };
	uint64_t word;
	uint32_t old = 7;

	ASSERT_TRUE(map_mutex(&mapped));
	ASSERT_EQ(0, memwait_mutex_init(mapped.mutex, MEMWAIT_MUTEX_ROBUST));
	EXPECT_EQ(128 + SIGSEGV, in_child(lock_it, mapped.read_only));
	EXPECT_EQ(128 + SIGSEGV, in_child(trylock_it, mapped.read_only));
	EXPECT_EQ(0, memwait_mutex_lock(mapped.mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mapped.mutex));

	/* The call fails while another thread waits. The waiting thread is not affected. */
	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, lock_it, mapped.mutex));
	getting_init(&getting, self->loop, mapped.mutex, LOCK);
	runner_start(&runner, get_and_give_back, &getting);
	await_waiters(self->fd, mapped.mutex, 0, 1);
	EXPECT_EQ(128 + SIGSEGV, in_child(lock_it, mapped.read_only));
	/* Word functions on read-only memory: a wait reads, a change writes. */
	word = *word_of(mapped.read_only);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait64(mapped.read_only, word, &none, MEMWAIT_OWNED));
	EXPECT_EQ(-EFAULT, memwait_change_notify32(mapped.read_only, MEMWAIT_CHANGE_SET, 0,
						   MEMWAIT_ALL, 0, &old));
	EXPECT_EQ(7, old);
	EXPECT_EQ(1, memwait_waiters(mapped.mutex, 0));
	EXPECT_EQ(word, *word_of(mapped.mutex));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EOWNERDEAD, runner_join(&runner));
	EXPECT_EQ(0, getting.given_back);
	EXPECT_EQ(0, memwait_mutex_destroy(mapped.mutex));
	unmap_mutex(&mapped);
}

static int wait_for_mutex(void *arg)
{
	const struct rlimit none = { 0 };

	setrlimit(RLIMIT_CORE, &none);
	return memwait_mutex_lock(arg);
}

static int wait_for_mutex_a_moment(void *mutex)
{
	struct timespec soon = in_time(CLOCK_MONOTONIC, 100);

	return memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon);
}

/* An access to the memory raises SIGBUS, and a call of the device returns EFAULT. */
ROBUST_TEST(L6_a_mutex_in_a_file_that_was_truncated)
{
	struct timespec none = { 0, 0 };
	struct mapped mapped;
	struct owner owner;
	uint32_t old = 7;
	uint64_t word;
	pid_t pid;

	ASSERT_TRUE(map_mutex(&mapped));
	ASSERT_EQ(0, memwait_mutex_init(mapped.mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, owner_start(&owner, self->shared->holds, IS_KILLED, lock_it, mapped.mutex));
	word = *word_of(mapped.mutex);
	pid = run_in_child(wait_for_mutex(mapped.mutex));
	await_waiters(self->fd, mapped.mutex, 0, 1);
	ASSERT_EQ(0, ftruncate(mapped.memfd, 0));

	EXPECT_EQ(-EFAULT, memwait_wait64(mapped.mutex, word, &none, MEMWAIT_OWNED));
	EXPECT_EQ(-EFAULT, memwait_change_notify32(mapped.mutex, MEMWAIT_CHANGE_ADD, 1, 1, 0,
						   &old));
	EXPECT_EQ(7, old);
	EXPECT_EQ(128 + SIGBUS, in_child(lock_it, mapped.mutex));
	EXPECT_EQ(128 + SIGBUS, in_child(unlock_it, mapped.mutex));
	EXPECT_EQ(128 + SIGBUS, in_child(trylock_it, mapped.mutex));
	/* The waiter is notified of the death and then reads the mutex. */
	owner_end_and_reap(&owner);
	EXPECT_EQ(128 + SIGBUS, child_status(pid));

	/* The file is extended again, with zeros. */
	ASSERT_EQ(0, ftruncate(mapped.memfd, 4096));
	ASSERT_EQ(0, memwait_mutex_init(mapped.mutex, MEMWAIT_MUTEX_ROBUST));
	EXPECT_EQ(0, memwait_mutex_lock(mapped.mutex));
	EXPECT_EQ(ETIMEDOUT, in_child(wait_for_mutex_a_moment, mapped.mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mapped.mutex));
	EXPECT_EQ(0, elsewhere(lock_and_unlock, mapped.mutex));
	unmap_mutex(&mapped);
}

TEST_HARNESS_MAIN
