// SPDX-License-Identifier: GPL-2.0
/* L0, L1, L6: who is the owner of a mutex, in which process, and who is nobody. */
#include "robust_mutex_test.h"

/* What nobody but user space can have written there. */
ROBUST_TEST(L6_ids_that_were_made_up)
{
	const uint64_t contended = 1ULL << 62, inconsistent = 1ULL << 63;
	const uint64_t dead[] = {
		1, self->id + 1000000, 1ULL << 61, MEMWAIT_OWNER_MASK,
		self->id + 1000000 + contended, MEMWAIT_OWNER_MASK | contended,
		self->id + 1000000 + inconsistent, UINT64_MAX,
	};
	memwait_mutex_t *mutex = &self->board->mutex;
	uint64_t *word = word_of(mutex);
	struct getting getting;
	struct timespec soon;
	struct owner owner;
	int kind, way;
	size_t i;

	for (kind = 0; kind < KINDS; kind++) {
		for (i = 0; i < ARRAY_SIZE(dead); i++) {
			for (way = 0; way < WAYS; way++) {
				ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
				*word = dead[i];
				getting_init(&getting, self->loop, mutex, way);
				EXPECT_EQ(EOWNERDEAD, get_and_give_back(&getting)) {
					TH_LOG("kind %x, %llx, way %d", kinds[kind],
					       (unsigned long long)dead[i], way);
				}
				EXPECT_EQ(0, getting.given_back);
				EXPECT_EQ(0, *word & MEMWAIT_OWNER_MASK);
			}
			*word = dead[i];
			EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
			EXPECT_EQ(0, memwait_mutex_destroy(mutex));
		}

		/* Another living thread's, which has another mutex. */
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		ASSERT_EQ(0, memwait_mutex_init(&self->board->other, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, owner_start(&owner, self->board->holds, THREAD_ENDS, lock_it,
					 &self->board->other));
		*word = *word_of(&self->board->other);
		EXPECT_EQ(0, *word & ~MEMWAIT_OWNER_MASK);
		EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
		EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
		EXPECT_EQ(EBUSY, memwait_mutex_destroy(mutex));
		soon = in_time(CLOCK_MONOTONIC, 5);
		EXPECT_EQ(ETIMEDOUT, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon));
		owner_end(&owner);
		EXPECT_EQ(EOWNERDEAD, memwait_mutex_lock(mutex));
		EXPECT_EQ(0, memwait_mutex_consistent(mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	}

	/* Both bits without an id: it is nobody's, and nobody unlocks it. A deadline is kept. */
	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	*word = contended | inconsistent;
	soon = in_time(CLOCK_MONOTONIC, 5);
	EXPECT_EQ(ETIMEDOUT, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon));
	EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
	EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
	/* It is free, and its last owner could not wake the next one. */
	*word = contended;
	EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, memwait_mutex_trylock(mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, *word);
}

static const unsigned int owners_matter[] = {
	MEMWAIT_MUTEX_RECURSIVE,
	MEMWAIT_MUTEX_ERRORCHECK,
	MEMWAIT_MUTEX_RECURSIVE | MEMWAIT_MUTEX_FAIR,
	MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_MUTEX_FAIR,
	MEMWAIT_MUTEX_ROBUST,
	MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_RECURSIVE,
	MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_ERRORCHECK,
};

/* Runs a function as the first process, and thread, of a PID namespace of its own. */
static pid_t fork_first_process(int (*function)(void *arg), void *arg)
{
	pid_t pid = fork_child();

	if (pid)
		return pid;
	if (unshare(CLONE_NEWPID))
		_exit(100);
	pid = run_in_child(getpid() != 1 || gettid() != 1 ? 101 : function(arg));
	_exit(child_status(pid));
}

static int lock_twice_and_visit(struct board *board, bool twice)
{
	int err = memwait_mutex_lock(&board->mutex);

	if (!err && twice)
		err = memwait_mutex_lock(&board->mutex);
	if (err)
		return err;
	visit(board);
	err = memwait_mutex_unlock(&board->mutex);
	if (!err && twice)
		err = memwait_mutex_unlock(&board->mutex);
	return err;
}

static int meet_in_mutex(struct board *board)
{
	int i, err = 0;

	for (i = 0; i < ROUNDS && !err; i++)
		err = lock_twice_and_visit(board, board->result);
	return err;
}

static int be_first_and_have_it(void *arg)
{
	struct board *board = arg;

	if (memwait_mutex_lock(&board->mutex))
		return 1;
	set(&board->there, 1);
	await(&board->go);
	if (memwait_mutex_unlock(&board->mutex))
		return 2;
	return meet_in_mutex(board);
}

static int be_first_and_want_it(void *arg)
{
	struct board *board = arg;
	struct timespec soon = in_time(CLOCK_MONOTONIC, 10);

	if (memwait_mutex_trylock(&board->mutex) != EBUSY)
		return 1;
	if (memwait_mutex_unlock(&board->mutex) != EPERM)
		return 2;
	if (memwait_mutex_clocklock(&board->mutex, CLOCK_MONOTONIC, &soon) != ETIMEDOUT)
		return 3;
	set(&board->go, 1);
	return meet_in_mutex(board);
}

/* Both are thread 1. */
ROBUST_TEST(L6_namespaces_with_equal_thread_ids)
{
	struct board *board = self->board;
	pid_t pids[2];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(owners_matter); i++) {
		memset(board, 0, sizeof(*board));
		ASSERT_EQ(0, memwait_mutex_init(&board->mutex, owners_matter[i]));
		board->result = !!(owners_matter[i] & MEMWAIT_MUTEX_RECURSIVE);
		pids[0] = fork_first_process(be_first_and_have_it, board);
		await(&board->there);
		pids[1] = fork_first_process(be_first_and_want_it, board);
		EXPECT_EQ(0, child_status(pids[1])) {
			TH_LOG("kind %x", owners_matter[i]);
			set(&board->go, 1);
		}
		EXPECT_EQ(0, child_status(pids[0]));
		EXPECT_EQ(2L * ROUNDS, board->counter);
		EXPECT_EQ(0, board->violations);
	}
}

static int be_a_child(void *arg)
{
	struct board *board = arg;
	struct timespec soon = in_time(CLOCK_MONOTONIC, -1);
	uint64_t id;

	if (memwait_owner(&id) || id == board->id)
		return 1;
	if (memwait_mutex_unlock(&board->mutex) != EPERM)
		return 2;
	if (memwait_mutex_trylock(&board->mutex) != EBUSY)
		return 3;
	if (memwait_mutex_clocklock(&board->mutex, CLOCK_MONOTONIC, &soon) != ETIMEDOUT)
		return 4;
	if (memwait_mutex_lock(&board->other) || memwait_mutex_unlock(&board->other))
		return 5;
	/* The parent unlocks it. */
	set(&board->there, 1);
	return memwait_mutex_lock(&board->mutex) || memwait_mutex_unlock(&board->mutex) ? 6 : 0;
}

ROBUST_TEST(L1_a_child_does_not_own_what_its_parent_has_locked)
{
	struct board *board = self->board;
	pid_t pid;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(owners_matter); i++) {
		ASSERT_EQ(0, memwait_mutex_init(&board->mutex, owners_matter[i]));
		ASSERT_EQ(0, memwait_mutex_init(&board->other, owners_matter[i]));
		ASSERT_EQ(0, memwait_mutex_lock(&board->mutex));
		board->id = self->id;
		board->there = 0;
		pid = run_in_child(be_a_child(board));
		await_waiters(self->fd, sleep_word(&board->mutex, owners_matter[i]), 0, 1);
		EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
		EXPECT_EQ(0, child_status(pid)) {
			TH_LOG("kind %x", owners_matter[i]);
		}
		EXPECT_EQ(0, memwait_mutex_lock(&board->mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
	}
}

/* A child that dies does not take with it what its parent has. */
ROBUST_TEST(L1_who_dies_is_the_owner_and_nobody_else)
{
	struct board *board = self->board;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_mutex_init(&board->other, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_mutex_lock(&board->mutex));
	ASSERT_EQ(0, owner_start(&owner, board->holds, IS_KILLED, lock_it, &board->other));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EBUSY, elsewhere(trylock_it, &board->mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
	EXPECT_EQ(EOWNERDEAD, memwait_mutex_lock(&board->other));
	EXPECT_EQ(0, memwait_mutex_consistent(&board->other));
	EXPECT_EQ(0, memwait_mutex_unlock(&board->other));
}

static int lock_until(void *arg)
{
	struct board *board = arg;

	return memwait_mutex_clocklock(&board->mutex, CLOCK_MONOTONIC, &board->until);
}

/*
 * A thread takes the lock without a system call, one waiter names it, and it dies between the two
 * steps of its unlock: after the first one that waiter gets the lock at its deadline. No waiter
 * names it, but it was the last one to be woken.
 */
ROBUST_TEST(L6_who_gets_the_lock_at_a_deadline_has_an_heir)
{
	const uint64_t contended = 1ULL << 62;
	struct board *board = self->board;
	struct hold *late = &board->holds[0], *next = &board->holds[1];
	uint64_t *word = word_of(&board->mutex);
	struct owner owner, waiters[2];
	int ms, err = ETIMEDOUT;

	ASSERT_EQ(0, memwait_mutex_init(&board->other, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, owner_start(&owner, &board->holds[2], IS_KILLED, lock_it, &board->other));
	/* Again, if the deadline came before its time. */
	for (ms = 100; err == ETIMEDOUT; ms *= 2) {
		ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, memwait_mutex_lock(&board->mutex));
		board->until = in_time(CLOCK_MONOTONIC, ms);
		owner_begin(&waiters[0], late, IS_KILLED, lock_until, board, 1);
		await_waiters_or_done(self->fd, word, 0, 1, &late->has_it);
		owner_begin(&waiters[1], next, IS_KILLED, lock_it, &board->mutex, 1);
		await_waiters_or_done(self->fd, word, 0, 2, &late->has_it);
		__atomic_store_n(word, *word_of(&board->other) | contended, __ATOMIC_RELEASE);
		EXPECT_EQ(1, mw_notify(self->fd, word, 1, 0));
		await_waiters_or_done(self->fd, word, 0, 2, &late->has_it);
		__atomic_store_n(word, contended, __ATOMIC_RELEASE);
		err = owner_result(&waiters[0]);
		if (err != ETIMEDOUT)
			break;
		owner_end_and_reap(&waiters[0]);
		owner_end_and_reap(&waiters[1]);
	}
	EXPECT_EQ(0, err);
	owner_end_and_reap(&owner);
	EXPECT_FALSE(get(&next->has_it));
	owner_end_and_reap(&waiters[0]);
	EXPECT_TRUE(await_flag(&next->has_it, 30));
	EXPECT_EQ(EOWNERDEAD, next->result);
	owner_end_and_reap(&waiters[1]);
}

/* The owner dies before it has woken anybody: the waiter that is told wakes the others. */
ROBUST_TEST(L6_who_finds_it_lost_tells_all)
{
	struct board *board = self->board;
	struct owner owner, waiters[2];
	int i;

	ASSERT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, owner_start(&owner, &board->holds[2], IS_KILLED, lock_it, &board->mutex));
	for (i = 0; i < 2; i++) {
		owner_begin(&waiters[i], &board->holds[i], IS_KILLED, lock_it, &board->mutex, 1);
		await_waiters(self->fd, &board->mutex, 0, i + 1);
	}
	__atomic_store_n(word_of(&board->mutex), 1ULL << 63, __ATOMIC_RELEASE);
	owner_end_and_reap(&owner);
	for (i = 0; i < 2; i++) {
		EXPECT_TRUE(await_flag(&board->holds[i].has_it, 30));
		EXPECT_EQ(ENOTRECOVERABLE, board->holds[i].result);
	}
	/* Not before: the next one is told of the death of the one that was told. */
	for (i = 0; i < 2; i++)
		owner_end_and_reap(&waiters[i]);
}

#define OWNER_LIMIT	"/sys/module/memwait/parameters/max_user_owners"

/*
 * A thread that can have no id cannot say what it owns, and gets no mutex for which that counts. It
 * waits for one that is NORMAL, and is told of no death.
 */
ROBUST_TEST(L0_over_the_limit_of_owners)
{
	long limit = read_number(OWNER_LIMIT);
	struct board *board = self->board;
	struct getting getting;
	struct runner runner;
	size_t i;

	if (geteuid())
		SKIP(return, "needs root to set the limit");
	ASSERT_LT(0, limit);
	EXPECT_EQ(0, change_number(OWNER_LIMIT, mw_user_owners(self->fd)));
	for (i = 0; i < ARRAY_SIZE(owners_matter); i++) {
		EXPECT_EQ(0, memwait_mutex_init(&board->mutex, owners_matter[i]));
		EXPECT_EQ(ENOSPC, elsewhere(lock_it, &board->mutex));
		EXPECT_EQ(ENOSPC, elsewhere(trylock_it, &board->mutex));
		EXPECT_EQ(EPERM, elsewhere(unlock_it, &board->mutex));
		/* It was not locked; this thread has an id. */
		EXPECT_EQ(0, memwait_mutex_lock(&board->mutex));
		EXPECT_EQ(ENOSPC, elsewhere(lock_it, &board->mutex));
		EXPECT_EQ(EPERM, elsewhere(unlock_it, &board->mutex));
		/* It cannot ask whether the owner of a ROBUST one lives. */
		EXPECT_EQ(owners_matter[i] & MEMWAIT_MUTEX_ROBUST ? ENOSPC : EBUSY,
			  elsewhere(destroy_it, &board->mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(&board->mutex));
	}
	EXPECT_EQ(0, memwait_mutex_init(&board->mutex, MEMWAIT_MUTEX_NORMAL));
	EXPECT_EQ(0, memwait_mutex_lock(&board->mutex));
	getting_init(&getting, self->loop, &board->mutex, CLOCKLOCK);
	getting.ms = HALF_A_MINUTE;
	runner_start(&runner, get_and_give_back, &getting);
	runner_await_asleep(&runner);
	EXPECT_EQ(0, memwait_mutex_unlock(&board->mutex));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, getting.given_back);
	EXPECT_EQ(0, change_number(OWNER_LIMIT, limit));
	EXPECT_EQ(0, elsewhere(lock_and_unlock, &board->mutex));
}

TEST_HARNESS_MAIN
