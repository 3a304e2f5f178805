// SPDX-License-Identifier: GPL-2.0
/* memwait_op_undo(): an operation that has ended gives back what it received. */
#include "objects_test.h"

static void *second_object(void *shared)
{
	return (char *)shared + 1024;
}

/* Dispatches until the operation's callback has run @calls times. */
static int run_until(struct counted_op *counted, memwait_loop_t *loop, int calls)
{
	int ret = dispatch_until(loop, &counted->calls, calls);

	return ret ? ret : counted->result;
}

USERLIB_TEST(what_has_nothing_to_undo)
{
	memwait_op_t op;
	memwait_mutex_t *mutex = self->shared;
	memwait_event_t *event = second_object(self->shared);
	struct timespec past = in_time(CLOCK_MONOTONIC, -1);

	EXPECT_EQ(-EINVAL, memwait_op_undo(NULL));
	ASSERT_EQ(0, memwait_op_init(&op, self->loop, NULL, NULL));
	EXPECT_EQ(-EINVAL, memwait_op_undo(&op));

	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(EINPROGRESS, memwait_mutex_lock_async(mutex, &op));
	EXPECT_EQ(-EBUSY, memwait_op_undo(&op));
	EXPECT_EQ(1, memwait_op_pending(&op));
	ASSERT_EQ(0, memwait_op_cancel(&op));
	EXPECT_EQ(0, memwait_op_undo(&op));
	while (memwait_mutex_clocklock_async(mutex, CLOCK_MONOTONIC, &past, &op) == EINPROGRESS)
		ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(0, memwait_op_undo(&op));
	EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
	ASSERT_EQ(0, memwait_mutex_unlock(mutex));

	ASSERT_EQ(0, memwait_event_set(event));
	ASSERT_EQ(0, memwait_event_wait_async(event, &op));
	EXPECT_EQ(0, memwait_op_undo(&op));
	EXPECT_EQ(1, memwait_event_is_set(event));
}

/* Whether an undo of an operation that has acquired the object makes it available again. */
static bool has_undo(const struct object *object)
{
	return !object->way->lets_all_go && !object->way->meets && object->way != &send_way &&
	       object->way != &condition_way;
}

USERLIB_TEST(an_object_is_given_back_once)
{
	memwait_op_t op;
	const struct object *object;
	void *memory = self->shared;

	ASSERT_EQ(0, memwait_op_init(&op, self->loop, NULL, NULL));
	for_each_object(object, has_undo(object)) {
		const struct way *way = object->way;

		/* The operation has acquired the object without a callback. */
		TH_LOG("%s", object->name);
		ASSERT_EQ(0, way->make(memory, object->kind));
		ASSERT_EQ(0, way->give(memory));
		ASSERT_EQ(0, way->wait_async(memory, &op));
		EXPECT_EQ(0, memwait_op_undo(&op));
		ASSERT_EQ(0, way->try(memory));
		EXPECT_EQ(0, memwait_op_undo(&op));
		if (way == &mutex_way)
			EXPECT_EQ(1, memwait_mutex_is_held(memory));
		if (!way->together)
			EXPECT_NE(0, elsewhere(way->try, memory));
		EXPECT_EQ(0, leave(way, memory, 0));
		EXPECT_EQ(0, way->destroy(memory));
	}
}

USERLIB_TEST(an_object_passes_to_the_next_waiter)
{
	const struct object *object;
	void *memory = self->shared;

	for_each_object(object, has_undo(object) && maker_can_wait(object) && is_fifo(object)) {
		struct counted_op first = counted_by(&first, self->loop);
		struct counted_op second = counted_by(&second, self->loop);
		const struct way *way = object->way;

		TH_LOG("%s", object->name);
		ASSERT_EQ(0, way->make(memory, object->kind));
		ASSERT_EQ(EINPROGRESS, way->wait_async(memory, &first.op));
		ASSERT_EQ(EINPROGRESS, way->wait_async(memory, &second.op));
		ASSERT_EQ(0, way->give(memory));
		ASSERT_EQ(0, run_until(&first, self->loop, 1));
		EXPECT_EQ(0, second.calls);
		EXPECT_EQ(0, memwait_op_undo(&first.op));
		/* A received item is sent again by the same operation. */
		EXPECT_EQ(way == &receive_way ? 0 : -ECANCELED, memwait_op_wait(&first.op, NULL));
		ASSERT_EQ(0, run_until(&second, self->loop, 1));
		EXPECT_EQ(0, leave(way, memory, 0));
		EXPECT_EQ(0, way->destroy(memory));
	}
}

USERLIB_TEST(a_lock_for_reading_or_writing_is_unlocked)
{
	memwait_rwlock_t *rwlock = self->shared;
	memwait_op_t op;

	ASSERT_EQ(0, memwait_op_init(&op, self->loop, NULL, NULL));
	ASSERT_EQ(0, memwait_rwlock_wrlock_async(rwlock, &op));
	EXPECT_EQ(EBUSY, memwait_rwlock_tryrdlock(rwlock));
	EXPECT_EQ(0, memwait_op_undo(&op));
	ASSERT_EQ(0, memwait_rwlock_rdlock_async(rwlock, &op));
	EXPECT_EQ(EBUSY, memwait_rwlock_trywrlock(rwlock));
	EXPECT_EQ(0, memwait_op_undo(&op));
	EXPECT_EQ(0, memwait_rwlock_trywrlock(rwlock));
	EXPECT_EQ(0, memwait_rwlock_unlock(rwlock));
}

USERLIB_TEST(a_semaphore_is_posted)
{
	struct timespec past = in_time(CLOCK_MONOTONIC, -1);
	memwait_sem_t *sem = self->shared;
	memwait_op_t op;
	int value;

	ASSERT_EQ(0, memwait_sem_init(sem, 0, 3));
	ASSERT_EQ(0, memwait_op_init(&op, self->loop, NULL, NULL));
	ASSERT_EQ(0, memwait_sem_wait_async(sem, &op));
	EXPECT_EQ(0, memwait_op_undo(&op));
	ASSERT_EQ(0, memwait_sem_getvalue(sem, &value));
	EXPECT_EQ(3, value);

	/* An operation that has timed out has taken nothing. */
	ASSERT_EQ(0, memwait_sem_init(sem, 0, 0));
	while (memwait_sem_clockwait_async(sem, CLOCK_MONOTONIC, &past, &op) == EINPROGRESS)
		ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(0, memwait_op_undo(&op));
	ASSERT_EQ(0, memwait_sem_getvalue(sem, &value));
	EXPECT_EQ(0, value);
}

USERLIB_TEST(a_signal_passes_to_the_next_waiter)
{
	struct counted_op first = counted_by(&first, self->loop);
	struct counted_op second = counted_by(&second, self->loop);
	memwait_mutex_t *mutex = self->shared;
	memwait_cond_t *cond = second_object(self->shared);
	struct timespec soon = in_time(CLOCK_MONOTONIC, 1);

	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(EINPROGRESS, memwait_cond_wait_async(cond, mutex, &first.op));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(EINPROGRESS, memwait_cond_wait_async(cond, mutex, &second.op));
	ASSERT_EQ(0, memwait_cond_signal(cond));
	ASSERT_EQ(0, run_until(&first, self->loop, 1));
	EXPECT_EQ(0, second.calls);
	EXPECT_EQ(0, memwait_op_undo(&first.op));
	ASSERT_EQ(0, run_until(&second, self->loop, 1));

	/* An operation whose wait has timed out also holds the mutex. */
	ASSERT_EQ(EINPROGRESS, memwait_cond_clockwait_async(cond, mutex, CLOCK_MONOTONIC, &soon,
							    &first.op));
	ASSERT_EQ(ETIMEDOUT, run_until(&first, self->loop, 2));
	EXPECT_EQ(EBUSY, memwait_mutex_trylock(mutex));
	EXPECT_EQ(0, memwait_op_undo(&first.op));
	ASSERT_EQ(0, memwait_mutex_trylock(mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
}

USERLIB_TEST(a_notify_passes_to_the_next_waiter)
{
	struct counted_op first = counted_by(&first, self->loop);
	struct counted_op second = counted_by(&second, self->loop);
	uint32_t *words = self->shared;
	const struct memwait_wait group[] = {
		{ .addr = (uintptr_t)words, .flags = MEMWAIT_SIZE_U32 },
		{ .addr = (uintptr_t)(words + 1), .flags = MEMWAIT_SIZE_U32 },
	};

	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(words, 0, NULL, 0, &first.op));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(words, 0, NULL, 0, &second.op));
	ASSERT_EQ(1, memwait_notify(words, 1, 0));
	ASSERT_EQ(MEMWAIT_OK, run_until(&first, self->loop, 1));
	EXPECT_EQ(0, second.calls);
	EXPECT_EQ(0, memwait_op_undo(&first.op));
	ASSERT_EQ(MEMWAIT_OK, run_until(&second, self->loop, 1));

	/* The group wait ended because of the second word, so the undo notifies that word. */
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait_any_async(group, 2, NULL, 0, &first.op));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(words + 1, 0, NULL, 0, &second.op));
	ASSERT_EQ(1, memwait_notify(words + 1, 1, 0));
	ASSERT_EQ(MEMWAIT_OK, run_until(&first, self->loop, 2));
	EXPECT_EQ(1, second.calls);
	EXPECT_EQ(0, memwait_op_undo(&first.op));
	ASSERT_EQ(MEMWAIT_OK, run_until(&second, self->loop, 2));
}

USERLIB_TEST(an_item_is_sent_again)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	struct timespec past = in_time(CLOCK_MONOTONIC, -1);
	memwait_channel_t *channel = self->shared;
	uint32_t item, other = 2;
	memwait_op_t late;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 2));
	item = 1;
	ASSERT_EQ(0, memwait_channel_trysend(channel, &item, sizeof(item)));
	ASSERT_EQ(0, memwait_channel_trysend(channel, &other, sizeof(other)));
	item = 0;

	/* The channel has room: the item is queued behind the other item. */
	ASSERT_EQ(0, memwait_channel_recv_async(channel, &item, sizeof(item), &counted.op));
	EXPECT_EQ(1, item);
	EXPECT_EQ(0, memwait_op_undo(&counted.op));
	EXPECT_EQ(2, memwait_channel_length(channel));
	EXPECT_EQ(0, memwait_op_undo(&counted.op));
	ASSERT_EQ(0, memwait_channel_recv_async(channel, &item, sizeof(item), &counted.op));
	EXPECT_EQ(2, item);

	/* The channel has no room. */
	other = 3;
	ASSERT_EQ(0, memwait_channel_trysend(channel, &other, sizeof(other)));
	EXPECT_EQ(-EINPROGRESS, memwait_op_undo(&counted.op));
	EXPECT_EQ(-EBUSY, memwait_op_undo(&counted.op));
	ASSERT_EQ(0, memwait_channel_tryrecv(channel, &other, sizeof(other)));
	EXPECT_EQ(1, other);
	ASSERT_EQ(0, run_until(&counted, self->loop, 1));
	ASSERT_EQ(0, memwait_channel_tryrecv(channel, &other, sizeof(other)));
	EXPECT_EQ(3, other);
	ASSERT_EQ(0, memwait_channel_recv_async(channel, &item, sizeof(item), &counted.op));
	EXPECT_EQ(2, item);

	/* An operation that has timed out has received nothing. */
	ASSERT_EQ(0, memwait_op_init(&late, self->loop, NULL, NULL));
	while (memwait_channel_clockrecv_async(channel, &other, sizeof(other), CLOCK_MONOTONIC,
					       &past, &late) == EINPROGRESS)
		ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(0, memwait_op_undo(&late));
	EXPECT_EQ(0, memwait_channel_length(channel));

	/* No send is possible: the item remains with the caller. */
	ASSERT_EQ(0, memwait_channel_close(channel));
	EXPECT_EQ(-EPIPE, memwait_op_undo(&counted.op));
	EXPECT_EQ(2, item);
	EXPECT_EQ(0, memwait_op_undo(&counted.op));
}

/* Another thread or process cannot unlock a mutex that the caller of the callback owns. */
USERLIB_TEST(only_the_owner_undoes)
{
	static const unsigned int kinds[] = { MEMWAIT_MUTEX_ERRORCHECK, MEMWAIT_MUTEX_ROBUST };
	memwait_mutex_t *mutex = self->shared;
	memwait_op_t op;
	size_t i;
	pid_t pid;

	ASSERT_EQ(0, memwait_op_init(&op, self->loop, NULL, NULL));
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[i]));
		ASSERT_EQ(0, memwait_mutex_lock_async(mutex, &op));
		EXPECT_EQ(-EPERM, elsewhere(memwait_op_undo, &op));
		pid = fork_child();
		if (!pid)
			_exit(-memwait_op_undo(&op));
		EXPECT_EQ(EPERM, child_status(pid));
		EXPECT_EQ(1, memwait_mutex_is_held(mutex));
		EXPECT_EQ(0, memwait_op_undo(&op));
		EXPECT_EQ(0, memwait_mutex_is_held(mutex));
	}
	/* A mutex of this kind records no owner. */
	ASSERT_EQ(0, memwait_mutex_init(mutex, 0));
	ASSERT_EQ(0, memwait_mutex_lock_async(mutex, &op));
	pid = fork_child();
	if (!pid)
		_exit(-memwait_op_undo(&op));
	EXPECT_EQ(EPERM, child_status(pid));
	EXPECT_EQ(1, memwait_mutex_is_held(mutex));
	EXPECT_EQ(0, elsewhere(memwait_op_undo, &op));
	EXPECT_EQ(0, memwait_mutex_is_held(mutex));
}

static void die_with(int (*lock)(void *object), void *object)
{
	pid_t pid = fork_child();

	if (!pid)
		_exit(lock(object));
	must(child_status(pid));
}

static int lock_mutex(void *mutex)
{
	return memwait_mutex_lock(mutex);
}

static int lock_for_writing(void *rwlock)
{
	return memwait_rwlock_wrlock(rwlock);
}

/* An operation has received EOWNERDEAD and is undone. The next owner also receives EOWNERDEAD. */
USERLIB_TEST(a_death_is_reported_to_the_next_owner)
{
	struct counted_op first = counted_by(&first, self->loop);
	struct counted_op second = counted_by(&second, self->loop);
	memwait_mutex_t *mutex = self->shared;
	memwait_rwlock_t *rwlock = second_object(self->shared);

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	die_with(lock_mutex, mutex);
	ASSERT_EQ(EOWNERDEAD, memwait_mutex_lock_async(mutex, &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_mutex_lock_async(mutex, &second.op));
	EXPECT_EQ(-EPERM, elsewhere(memwait_op_undo, &first.op));
	EXPECT_EQ(0, memwait_op_undo(&first.op));
	ASSERT_EQ(EOWNERDEAD, run_until(&second, self->loop, 1));
	EXPECT_EQ(0, memwait_op_undo(&second.op));
	ASSERT_EQ(EOWNERDEAD, memwait_mutex_trylock(mutex));
	ASSERT_EQ(0, memwait_mutex_consistent(mutex));
	ASSERT_EQ(0, memwait_mutex_unlock(mutex));

	/* The mutex has been made consistent, and the undo unlocks it. */
	die_with(lock_mutex, mutex);
	ASSERT_EQ(EOWNERDEAD, memwait_mutex_lock_async(mutex, &first.op));
	ASSERT_EQ(0, memwait_mutex_consistent(mutex));
	EXPECT_EQ(0, memwait_op_undo(&first.op));
	ASSERT_EQ(0, memwait_mutex_trylock(mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, memwait_mutex_destroy(mutex));

	ASSERT_EQ(0, memwait_rwlock_init(rwlock, MEMWAIT_RWLOCK_ROBUST));
	die_with(lock_for_writing, rwlock);
	/* After EOWNERDEAD the lock is held for writing, even if a read lock was requested. */
	ASSERT_EQ(EOWNERDEAD, memwait_rwlock_rdlock_async(rwlock, &first.op));
	ASSERT_EQ(EINPROGRESS, memwait_rwlock_wrlock_async(rwlock, &second.op));
	EXPECT_EQ(0, memwait_op_undo(&first.op));
	ASSERT_EQ(EOWNERDEAD, run_until(&second, self->loop, 2));
	EXPECT_EQ(0, memwait_op_undo(&second.op));
	ASSERT_EQ(EOWNERDEAD, memwait_rwlock_tryrdlock(rwlock));
	ASSERT_EQ(0, memwait_rwlock_consistent(rwlock));
	ASSERT_EQ(0, memwait_rwlock_unlock(rwlock));
	ASSERT_EQ(0, memwait_rwlock_tryrdlock(rwlock));
	EXPECT_EQ(0, memwait_rwlock_unlock(rwlock));
	EXPECT_EQ(0, memwait_rwlock_destroy(rwlock));
}

static void undo_in_callback(memwait_op_t *op, int result, void *data)
{
	*(int *)data = result ? result : memwait_op_undo(op);
}

/* A callback may undo its operation. An operation can also be undone after its loop was closed. */
USERLIB_TEST(in_the_callback_and_after_the_loop)
{
	memwait_sem_t *sem = self->shared;
	memwait_loop_t *loop;
	memwait_op_t op;
	int ret = -1, value;

	ASSERT_EQ(0, memwait_op_init(&op, self->loop, undo_in_callback, &ret));
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &op));
	ASSERT_EQ(0, memwait_sem_post(sem));
	ASSERT_EQ(0, memwait_loop_run(self->loop, NULL, 0));
	EXPECT_EQ(0, ret);
	ASSERT_EQ(0, memwait_sem_getvalue(sem, &value));
	EXPECT_EQ(1, value);

	ASSERT_EQ(0, memwait_loop_new(&loop, 0));
	ASSERT_EQ(0, memwait_op_init(&op, loop, NULL, NULL));
	ASSERT_EQ(0, memwait_sem_wait_async(sem, &op));
	ASSERT_EQ(0, memwait_loop_close(loop));
	EXPECT_EQ(0, memwait_op_undo(&op));
	ASSERT_EQ(0, memwait_sem_getvalue(sem, &value));
	EXPECT_EQ(1, value);
}

TEST_HARNESS_MAIN
