// SPDX-License-Identifier: GPL-2.0
/* L0, L1, L6: which thread of which process owns a mutex, and ids that no thread has. */
#include "robust_mutex_test.h"

/* Only user space can have written these values. */
ROBUST_TEST(L6_ids_that_do_not_exist)
{
	const uint64_t contended = 1ULL << 62, inconsistent = 1ULL << 63;
	const uint64_t dead[] = {
		1, self->id + 1000000, 1ULL << 61, MEMWAIT_OWNER_MASK,
		self->id + 1000000 + contended, MEMWAIT_OWNER_MASK | contended,
		self->id + 1000000 + inconsistent, UINT64_MAX,
	};
	memwait_mutex_t *mutex = &self->shared->mutex;
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

		/* The word contains the id of another living thread, which holds another mutex. */
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[kind]));
		ASSERT_EQ(0, memwait_mutex_init(&self->shared->other, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, owner_start(&owner, self->shared->holds, THREAD_ENDS, lock_it,
					 &self->shared->other));
		*word = *word_of(&self->shared->other);
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

	/*
	 * Both flag bits are set and there is no id: the mutex has no owner, and no thread can
	 * unlock it. A wait still ends at its deadline.
	 */
	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	*word = contended | inconsistent;
	soon = in_time(CLOCK_MONOTONIC, 5);
	EXPECT_EQ(ETIMEDOUT, memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon));
	EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
	EXPECT_EQ(EPERM, memwait_mutex_unlock(mutex));
	/* The mutex is free, but its last owner could not wake the next waiter. */
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

/* Runs a function as the first process and thread of a new PID namespace. */
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

static int lock_twice_and_visit(struct shared *shared, bool twice)
{
	int err = memwait_mutex_lock(&shared->mutex);

	if (!err && twice)
		err = memwait_mutex_lock(&shared->mutex);
	if (err)
		return err;
	visit(shared);
	err = memwait_mutex_unlock(&shared->mutex);
	if (!err && twice)
		err = memwait_mutex_unlock(&shared->mutex);
	return err;
}

static int meet_in_mutex(struct shared *shared)
{
	int i, err = 0;

	for (i = 0; i < ROUNDS && !err; i++)
		err = lock_twice_and_visit(shared, shared->result);
	return err;
}

static int hold_mutex_in_namespace(void *arg)
{
	struct shared *shared = arg;

	if (memwait_mutex_lock(&shared->mutex))
		return 1;
	set(&shared->there, 1);
	await(&shared->go);
	if (memwait_mutex_unlock(&shared->mutex))
		return 2;
	return meet_in_mutex(shared);
}

static int lock_mutex_in_namespace(void *arg)
{
	struct shared *shared = arg;
	struct timespec soon = in_time(CLOCK_MONOTONIC, 10);

	if (memwait_mutex_trylock(&shared->mutex) != EBUSY)
		return 1;
	if (memwait_mutex_unlock(&shared->mutex) != EPERM)
		return 2;
	if (memwait_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &soon) != ETIMEDOUT)
		return 3;
	set(&shared->go, 1);
	return meet_in_mutex(shared);
}

/* Both threads have the id 1 in their namespaces. */
ROBUST_TEST(L6_namespaces_with_equal_thread_ids)
{
	struct shared *shared = self->shared;
	pid_t pids[2];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(owners_matter); i++) {
		memset(shared, 0, sizeof(*shared));
		ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, owners_matter[i]));
		shared->result = !!(owners_matter[i] & MEMWAIT_MUTEX_RECURSIVE);
		pids[0] = fork_first_process(hold_mutex_in_namespace, shared);
		await(&shared->there);
		pids[1] = fork_first_process(lock_mutex_in_namespace, shared);
		EXPECT_EQ(0, child_status(pids[1])) {
			TH_LOG("kind %x", owners_matter[i]);
			set(&shared->go, 1);
		}
		EXPECT_EQ(0, child_status(pids[0]));
		EXPECT_EQ(2L * ROUNDS, shared->counter);
		EXPECT_EQ(0, shared->violations);
	}
}

static int check_child(void *arg)
{
	struct shared *shared = arg;
	struct timespec soon = in_time(CLOCK_MONOTONIC, -1);
	uint64_t id;

	if (memwait_owner(&id) || id == shared->id)
		return 1;
	if (memwait_mutex_unlock(&shared->mutex) != EPERM)
		return 2;
	if (memwait_mutex_trylock(&shared->mutex) != EBUSY)
		return 3;
	if (memwait_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &soon) != ETIMEDOUT)
		return 4;
	if (memwait_mutex_lock(&shared->other) || memwait_mutex_unlock(&shared->other))
		return 5;
	/* The parent unlocks the mutex. */
	set(&shared->there, 1);
	return memwait_mutex_lock(&shared->mutex) || memwait_mutex_unlock(&shared->mutex) ? 6 : 0;
}

ROBUST_TEST(L1_a_child_does_not_own_what_its_parent_has_locked)
{
	struct shared *shared = self->shared;
	pid_t pid;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(owners_matter); i++) {
		ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, owners_matter[i]));
		ASSERT_EQ(0, memwait_mutex_init(&shared->other, owners_matter[i]));
		ASSERT_EQ(0, memwait_mutex_lock(&shared->mutex));
		shared->id = self->id;
		shared->there = 0;
		pid = run_in_child(check_child(shared));
		await_waiters(self->fd, sleep_word(&shared->mutex, owners_matter[i]), 0, 1);
		EXPECT_EQ(0, memwait_mutex_unlock(&shared->mutex));
		EXPECT_EQ(0, child_status(pid)) {
			TH_LOG("kind %x", owners_matter[i]);
		}
		EXPECT_EQ(0, memwait_mutex_lock(&shared->mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(&shared->mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(&shared->mutex));
	}
}

ROBUST_TEST(L1_a_childs_death_leaves_its_parents_mutex_alone)
{
	struct shared *shared = self->shared;
	struct owner owner;

	ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_mutex_init(&shared->other, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_mutex_lock(&shared->mutex));
	ASSERT_EQ(0, owner_start(&owner, shared->holds, IS_KILLED, lock_it, &shared->other));
	owner_end_and_reap(&owner);
	EXPECT_EQ(EBUSY, elsewhere(trylock_it, &shared->mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(&shared->mutex));
	EXPECT_EQ(EOWNERDEAD, memwait_mutex_lock(&shared->other));
	EXPECT_EQ(0, memwait_mutex_consistent(&shared->other));
	EXPECT_EQ(0, memwait_mutex_unlock(&shared->other));
}

static int lock_until(void *arg)
{
	struct shared *shared = arg;

	return memwait_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &shared->until);
}

/*
 * A thread holds the lock, which it acquired without a system call. One waiter has announced this
 * owner to the kernel. The owner dies between the two steps of its unlock. After the first step,
 * the waiter acquires the lock at its deadline. No other waiter has announced the new owner, but
 * the new owner was the last thread that a notify woke.
 */
ROBUST_TEST(L6_the_death_of_an_owner_since_its_deadline_is_notified)
{
	const uint64_t contended = 1ULL << 62;
	struct shared *shared = self->shared;
	struct hold *late = &shared->holds[0], *next = &shared->holds[1];
	uint64_t *word = word_of(&shared->mutex);
	struct owner owner, waiters[2];
	int ms, err = ETIMEDOUT;

	ASSERT_EQ(0, memwait_mutex_init(&shared->other, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, owner_start(&owner, &shared->holds[2], IS_KILLED, lock_it, &shared->other));
	/* Repeat if the deadline passed too early. */
	for (ms = 100; err == ETIMEDOUT; ms *= 2) {
		ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST));
		ASSERT_EQ(0, memwait_mutex_lock(&shared->mutex));
		shared->until = in_time(CLOCK_MONOTONIC, ms);
		owner_begin(&waiters[0], late, IS_KILLED, lock_until, shared, 1);
		await_waiters_or_done(self->fd, word, 0, 1, &late->locked);
		owner_begin(&waiters[1], next, IS_KILLED, lock_it, &shared->mutex, 1);
		await_waiters_or_done(self->fd, word, 0, 2, &late->locked);
		__atomic_store_n(word, *word_of(&shared->other) | contended, __ATOMIC_RELEASE);
		EXPECT_EQ(1, mw_notify(self->fd, word, 1, 0));
		await_waiters_or_done(self->fd, word, 0, 2, &late->locked);
		__atomic_store_n(word, contended, __ATOMIC_RELEASE);
		err = owner_result(&waiters[0]);
		if (err != ETIMEDOUT)
			break;
		owner_end_and_reap(&waiters[0]);
		owner_end_and_reap(&waiters[1]);
	}
	EXPECT_EQ(0, err);
	owner_end_and_reap(&owner);
	EXPECT_FALSE(get(&next->locked));
	owner_end_and_reap(&waiters[0]);
	EXPECT_TRUE(await_flag(&next->locked, 30));
	EXPECT_EQ(EOWNERDEAD, next->result);
	owner_end_and_reap(&waiters[1]);
}

/* The owner died before it woke any waiter. The waiter that is notified wakes the others. */
ROBUST_TEST(L6_a_waiter_that_finds_it_not_recoverable_wakes_all)
{
	struct shared *shared = self->shared;
	struct owner owner, waiters[2];
	int i;

	ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, owner_start(&owner, &shared->holds[2], IS_KILLED, lock_it, &shared->mutex));
	for (i = 0; i < 2; i++) {
		owner_begin(&waiters[i], &shared->holds[i], IS_KILLED, lock_it, &shared->mutex, 1);
		await_waiters(self->fd, &shared->mutex, 0, i + 1);
	}
	__atomic_store_n(word_of(&shared->mutex), 1ULL << 63, __ATOMIC_RELEASE);
	owner_end_and_reap(&owner);
	for (i = 0; i < 2; i++) {
		EXPECT_TRUE(await_flag(&shared->holds[i].locked, 30));
		EXPECT_EQ(ENOTRECOVERABLE, shared->holds[i].result);
	}
	/*
	 * The other waiters end only now, because the death of the first waiter would notify the
	 * second.
	 */
	for (i = 0; i < 2; i++)
		owner_end_and_reap(&waiters[i]);
}

#define OWNER_LIMIT	"/sys/module/memwait/parameters/max_user_owners"

/*
 * A thread that cannot get an id cannot own a mutex of a kind that records its owner. It can wait
 * for a NORMAL mutex, but receives no death notifications.
 */
ROBUST_TEST(L0_locks_over_the_limit_of_owners)
{
	long limit = read_number(OWNER_LIMIT);
	struct shared *shared = self->shared;
	struct getting getting;
	struct runner runner;
	size_t i;

	if (geteuid())
		SKIP(return, "needs root to set the limit");
	ASSERT_LT(0, limit);
	EXPECT_EQ(0, change_number(OWNER_LIMIT, mw_user_owners(self->fd)));
	for (i = 0; i < ARRAY_SIZE(owners_matter); i++) {
		EXPECT_EQ(0, memwait_mutex_init(&shared->mutex, owners_matter[i]));
		EXPECT_EQ(ENOSPC, elsewhere(lock_it, &shared->mutex));
		EXPECT_EQ(ENOSPC, elsewhere(trylock_it, &shared->mutex));
		EXPECT_EQ(EPERM, elsewhere(unlock_it, &shared->mutex));
		/* The thread without an id did not lock the mutex. This thread has an id. */
		EXPECT_EQ(0, memwait_mutex_lock(&shared->mutex));
		EXPECT_EQ(ENOSPC, elsewhere(lock_it, &shared->mutex));
		EXPECT_EQ(EPERM, elsewhere(unlock_it, &shared->mutex));
		/*
		 * A thread without an id cannot ask whether the owner of a ROBUST mutex is alive.
		 */
		EXPECT_EQ(owners_matter[i] & MEMWAIT_MUTEX_ROBUST ? ENOSPC : EBUSY,
			  elsewhere(destroy_it, &shared->mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(&shared->mutex));
		EXPECT_EQ(0, memwait_mutex_destroy(&shared->mutex));
	}
	EXPECT_EQ(0, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_NORMAL));
	EXPECT_EQ(0, memwait_mutex_lock(&shared->mutex));
	getting_init(&getting, self->loop, &shared->mutex, CLOCKLOCK);
	getting.ms = HALF_A_MINUTE;
	runner_start(&runner, get_and_give_back, &getting);
	runner_await_asleep(&runner);
	EXPECT_EQ(0, memwait_mutex_unlock(&shared->mutex));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, getting.given_back);
	EXPECT_EQ(0, change_number(OWNER_LIMIT, limit));
	EXPECT_EQ(0, elsewhere(lock_and_unlock, &shared->mutex));
}

TEST_HARNESS_MAIN
