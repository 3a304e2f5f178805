// SPDX-License-Identifier: GPL-2.0
/* L10: a child owns no object and is not the creator of any loop, however the child was created. */
#include "userlib_test.h"

static pid_t raw_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

/* raw_clone() runs no pthread_atfork() handlers, like _Fork(). */
static pid_t (* const makers[])(void) = { fork, raw_clone };

static const unsigned int kinds[] = {
	MEMWAIT_MUTEX_RECURSIVE, MEMWAIT_MUTEX_ERRORCHECK, MEMWAIT_MUTEX_ROBUST,
	MEMWAIT_MUTEX_RECURSIVE | MEMWAIT_PRIVATE, MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_PRIVATE,
	MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_RECURSIVE,
};

struct objects {
	memwait_mutex_t mutexes[ARRAY_SIZE(kinds)];
	memwait_rwlock_t rwlock;
	uint32_t word;
};

/* Makes calls that must not succeed in a child. Returns the number of wrong results. */
static int check_child(struct objects *objects, memwait_loop_t *loop, struct counted_op *counted,
		       uint64_t parent)
{
	uint64_t id = parent;
	int wrong = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		wrong += memwait_mutex_trylock(&objects->mutexes[i]) != EBUSY;
		wrong += memwait_mutex_unlock(&objects->mutexes[i]) != EPERM;
	}
	wrong += memwait_rwlock_unlock(&objects->rwlock) != EPERM;
	wrong += memwait_owner(&id) || id == parent;
	wrong += memwait_loop_dispatch(loop, MEMWAIT_ALL) != -EPERM;
	wrong += memwait_loop_run(loop, NULL, 0) != -EPERM;
	wrong += memwait_loop_stop(loop) != -EPERM;
	wrong += memwait_op_cancel(&counted->op) != -EPERM;
	wrong += memwait_loop_close(loop) != 0;
	/* The child can create loops of its own. */
	if (memwait_loop_new(&loop, 0))
		return wrong + 1;
	wrong += memwait_loop_dispatch(loop, MEMWAIT_ALL) != 0;
	wrong += memwait_loop_close(loop) != 0;
	return wrong;
}

USERLIB_TEST(L10_a_child_is_not_its_parent)
{
	struct objects *objects = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	size_t i, maker, second_maker;
	uint64_t id;
	pid_t child, grandchild;

	ASSERT_EQ(0, memwait_owner(&id));
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		ASSERT_EQ(0, memwait_mutex_init(&objects->mutexes[i], kinds[i]));
		ASSERT_EQ(0, memwait_mutex_lock(&objects->mutexes[i]));
	}
	ASSERT_EQ(0, memwait_rwlock_init(&objects->rwlock, MEMWAIT_RWLOCK_ROBUST));
	ASSERT_EQ(0, memwait_rwlock_wrlock(&objects->rwlock));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&objects->word, 0, NULL, 0, &counted.op));
	ASSERT_EQ(1, memwait_notify(&objects->word, 1, 0));
	for (maker = 0; maker < ARRAY_SIZE(makers); maker++) {
		child = makers[maker]();
		ASSERT_LE(0, child);
		if (!child)
			_exit(check_child(objects, self->loop, &counted, id));
		EXPECT_EQ(0, child_status(child));

		/* Create children of a child that has called no function of the library. */
		for (second_maker = 0; second_maker < ARRAY_SIZE(makers); second_maker++) {
			child = makers[maker]();
			ASSERT_LE(0, child);
			if (!child) {
				grandchild = makers[second_maker]();
				if (!grandchild)
					_exit(check_child(objects, self->loop, &counted, id));
				_exit(child_status(grandchild) ||
				      check_child(objects, self->loop, &counted, id));
			}
			EXPECT_EQ(0, child_status(child));
		}
	}
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, counted.calls);
	EXPECT_EQ(0, memwait_rwlock_unlock(&objects->rwlock));
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		EXPECT_EQ(0, memwait_mutex_unlock(&objects->mutexes[i]));
		EXPECT_EQ(0, memwait_mutex_destroy(&objects->mutexes[i]));
	}
}

struct helped {
	memwait_mutex_t mutex;
	memwait_sem_t sem;
	int ready;
	pid_t helper;
};

/*
 * Runs in a process, which waits in a loop. Its child continues to exist with copies of its
 * descriptors.
 */
static void wait_with_helper(struct helped *helped, pid_t (*make)(void))
{
	struct counted_op lock = { 0 }, get = { 0 }, word = { 0 };
	static uint32_t never;
	memwait_loop_t *loop;
	pid_t helper;

	if (memwait_loop_new(&loop, 0))
		return;
	memwait_op_init(&lock.op, loop, count_call, &lock);
	memwait_op_init(&get.op, loop, count_call, &get);
	memwait_op_init(&word.op, loop, count_call, &word);
	if (memwait_mutex_lock_async(&helped->mutex, &lock.op) != EINPROGRESS ||
	    memwait_sem_wait_async(&helped->sem, &get.op) != EINPROGRESS ||
	    memwait_wait32_async(&never, 0, NULL, 0, &word.op) != MEMWAIT_PENDING)
		return;
	helper = make();
	if (helper) {
		helped->helper = helper;
		__atomic_store_n(&helped->ready, 1, __ATOMIC_RELEASE);
	}
	stay();
}

static int lock_helped(void *arg)
{
	struct helped *helped = arg;

	return memwait_mutex_lock(&helped->mutex) ?: memwait_mutex_unlock(&helped->mutex);
}

static int wait_helped(void *arg)
{
	struct helped *helped = arg;

	return memwait_sem_wait(&helped->sem);
}

USERLIB_TEST(L10_a_loop_ends_with_its_process_although_a_child_has_copies)
{
	const unsigned int kind[] = { 0, MEMWAIT_MUTEX_FAIR, MEMWAIT_MUTEX_ROBUST };
	struct helped *helped = self->shared;
	struct runner locks, waits;
	pid_t pid;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(makers) * ARRAY_SIZE(kind); i++) {
		helped->ready = 0;
		ASSERT_EQ(0, memwait_mutex_init(&helped->mutex, kind[i / ARRAY_SIZE(makers)]));
		ASSERT_EQ(0, memwait_sem_init(&helped->sem, 0, 0));
		ASSERT_EQ(0, memwait_mutex_lock(&helped->mutex));
		pid = fork_child();
		if (!pid) {
			wait_with_helper(helped, makers[i % ARRAY_SIZE(makers)]);
			_exit(1);
		}
		ASSERT_LT(0, pid);
		sleep_until(__atomic_load_n(&helped->ready, __ATOMIC_ACQUIRE));
		runner_start(&locks, lock_helped, helped);
		runner_await_asleep(&locks);
		runner_start(&waits, wait_helped, helped);
		runner_await_asleep(&waits);
		ASSERT_EQ(128 + SIGKILL, kill_child(pid));

		/*
		 * The dead process was first in the queues: its locks and posts pass to living
		 * waiters.
		 */
		EXPECT_EQ(0, memwait_mutex_unlock(&helped->mutex));
		EXPECT_EQ(0, memwait_sem_post(&helped->sem));
		EXPECT_EQ(0, runner_join(&locks));
		EXPECT_EQ(0, runner_join(&waits));
		EXPECT_EQ(0, memwait_sem_destroy(&helped->sem));
		EXPECT_EQ(0, memwait_mutex_destroy(&helped->mutex));
		/* The child also has copies of this loop's descriptors. */
		kill(helped->helper, SIGKILL);
		sleep_until(!strchr("RSDt", thread_state(helped->helper) ?: 'X'));
	}
}

TEST_HARNESS_MAIN
