// SPDX-License-Identifier: GPL-2.0
/*
 * If a loop is closed while an operation is pending, the operation must not hold anything. Thread 1
 * has the loop. The other threads wait for the same object as the operation, and must get it.
 */
#include <errno.h>

#include "../scenarios.h"

static memwait_channel_t *channel(void)
{
	return (memwait_channel_t *)shared->channel;
}

struct outcome {
	int calls;
	int result;
};

static void record(memwait_op_t *op, int result, void *data)
{
	struct outcome *outcome = data;

	(void)op;
	outcome->calls++;
	outcome->result = result;
}

/*
 * Begins an operation on @object, may dispatch, and closes the loop. Returns whether the operation
 * has acquired the object.
 */
static bool begin_and_close(int (*begin)(void *object, memwait_op_t *op), void *object)
{
	struct outcome outcome = { 0 };
	memwait_loop_t *loop;
	memwait_op_t op;
	int ret;

	CHECK(!memwait_loop_new(&loop, 0));
	CHECK(!memwait_op_init(&op, loop, record, &outcome));
	ret = begin(object, &op);
	CHECK(!ret || ret == EINPROGRESS);
	if (ret && sim_random(2))
		CHECK(memwait_loop_dispatch(loop, MEMWAIT_ALL) == outcome.calls);
	CHECK(!memwait_loop_close(loop));
	CHECK(!memwait_op_pending(&op) && !outcome.result && outcome.calls < 2);
	return !ret || outcome.calls;
}

static int begin_lock(void *mutex, memwait_op_t *op)
{
	return memwait_mutex_lock_async(mutex, op);
}

static void mutex_thread(unsigned int thread)
{
	if (thread == 1) {
		if (!begin_and_close(begin_lock, &shared->mutex))
			return;
	} else {
		CHECK(!memwait_mutex_lock(&shared->mutex));
	}
	shared->data++;
	done[thread] = 1;
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

static void mutex_finish(void)
{
	CHECK(shared->data == done_by_all());
	CHECK(!memwait_mutex_destroy(&shared->mutex));
}

static void mutex_set_up(unsigned int kind)
{
	CHECK(!memwait_mutex_init(&shared->mutex, kind));
}

SCENARIO("loop closed mutex", 3, mutex_set_up(0), mutex_thread, mutex_finish);
SCENARIO("loop closed private mutex", 3, mutex_set_up(PRIVATE), mutex_thread, mutex_finish);
SCENARIO("loop closed fair mutex", 3, mutex_set_up(FAIR), mutex_thread, mutex_finish);
SCENARIO("loop closed robust mutex", 3, mutex_set_up(ROBUST), mutex_thread, mutex_finish);

static int begin_read(void *lock, memwait_op_t *op)
{
	return memwait_rwlock_rdlock_async(lock, op);
}

static int begin_write(void *lock, memwait_op_t *op)
{
	return memwait_rwlock_wrlock_async(lock, op);
}

static void read_thread(unsigned int thread)
{
	if (thread == 1) {
		if (!begin_and_close(begin_read, &shared->rwlock))
			return;
		CHECK(shared->data <= 2);
	} else {
		CHECK(!memwait_rwlock_wrlock(&shared->rwlock));
		shared->data++;
	}
	CHECK(!memwait_rwlock_unlock(&shared->rwlock));
}

static void write_thread(unsigned int thread)
{
	if (thread == 1) {
		if (!begin_and_close(begin_write, &shared->rwlock))
			return;
		shared->data = 2;
	} else {
		CHECK(!memwait_rwlock_rdlock(&shared->rwlock));
		done[thread] = shared->data;
	}
	CHECK(!memwait_rwlock_unlock(&shared->rwlock));
}

static void read_finish(void)
{
	CHECK(shared->data == 2);
	CHECK(!memwait_rwlock_destroy(&shared->rwlock));
}

static void write_finish(void)
{
	CHECK(shared->data == 2 || !done_by_all());
	CHECK(!memwait_rwlock_destroy(&shared->rwlock));
}

static void rwlock_set_up(unsigned int kind)
{
	CHECK(!memwait_rwlock_init(&shared->rwlock, kind));
}

SCENARIO("loop closed reader", 3, rwlock_set_up(0), read_thread, read_finish);
SCENARIO("loop closed writer", 3, rwlock_set_up(0), write_thread, write_finish);
SCENARIO("loop closed fair reader", 3, rwlock_set_up(FAIR), read_thread, read_finish);
SCENARIO("loop closed fair writer", 3, rwlock_set_up(FAIR), write_thread, write_finish);
SCENARIO("loop closed preferred writer", 3, rwlock_set_up(WRITER), write_thread,
	 write_finish);
SCENARIO("loop closed robust writer", 3, rwlock_set_up(ROBUST), write_thread, write_finish);

static int begin_sem(void *sem, memwait_op_t *op)
{
	return memwait_sem_wait_async(sem, op);
}

/* There is one post, for thread 2. The operation either does not get it, or posts it again. */
static void sem_thread(unsigned int thread)
{
	if (thread == 2)
		CHECK(!memwait_sem_wait(&shared->sem));
	else if (!thread || begin_and_close(begin_sem, &shared->sem))
		CHECK(!memwait_sem_post(&shared->sem));
}

static void sem_finish(void)
{
	int value;

	CHECK(!memwait_sem_getvalue(&shared->sem, &value) && !value);
	CHECK(!memwait_sem_destroy(&shared->sem));
}

static void sem_set_up(unsigned int flags)
{
	CHECK(!memwait_sem_init(&shared->sem, flags, 0));
}

SCENARIO("loop closed sem", 3, sem_set_up(0), sem_thread, sem_finish);
SCENARIO("loop closed private sem", 3, sem_set_up(PRIVATE), sem_thread, sem_finish);
SCENARIO("loop closed fair sem", 3, sem_set_up(MEMWAIT_SEM_FAIR), sem_thread, sem_finish);

/* The item that the loop's thread has received or sends. */
static uint64_t item;

static int begin_receive(void *from, memwait_op_t *op)
{
	return memwait_channel_recv_async(from, &item, sizeof(item), op);
}

static int begin_send(void *to, memwait_op_t *op)
{
	return memwait_channel_send_async(to, &item, sizeof(item), op);
}

/* There is one item, for thread 2. The operation either does not receive it, or sends it again. */
static void receive_thread(unsigned int thread)
{
	uint64_t sent = 7;

	if (thread == 2) {
		CHECK(!memwait_channel_recv(channel(), &sent, sizeof(sent)) && sent == 7);
		return;
	}
	if (thread == 1) {
		if (!begin_and_close(begin_receive, channel()))
			return;
		sent = item;
	}
	CHECK(!memwait_channel_send(channel(), &sent, sizeof(sent)));
}

/* If the operation has sent its item, its own thread or thread 0 receives the item. */
static void send_thread(unsigned int thread)
{
	uint64_t sent = 8, received = 0;

	if (thread == 2) {
		CHECK(!memwait_channel_send(channel(), &sent, sizeof(sent)));
		return;
	}
	if (thread == 1) {
		item = 7;
		if (!begin_and_close(begin_send, channel()))
			return;
		done[2] = 7;
	}
	CHECK(!memwait_channel_recv(channel(), &received, sizeof(received)));
	done[thread] = (uint32_t)received;
}

static void channel_finish(void)
{
	CHECK(!memwait_channel_length(channel()));
	CHECK(!memwait_channel_destroy(channel()));
}

static void send_finish(void)
{
	CHECK(done[0] + done[1] == done[2] + 8);
	channel_finish();
}

static void channel_set_up(unsigned int flags)
{
	CHECK(!memwait_channel_init(channel(), sizeof(shared->channel), flags, sizeof(item), 1));
}

SCENARIO("loop closed receiver", 3, channel_set_up(0), receive_thread, channel_finish);
SCENARIO("loop closed private receiver", 3, channel_set_up(PRIVATE), receive_thread,
	 channel_finish);
SCENARIO("loop closed sender", 3, channel_set_up(0), send_thread, send_finish);
SCENARIO("loop closed private sender", 3, channel_set_up(PRIVATE), send_thread, send_finish);

static int begin_cond(void *cond, memwait_op_t *op)
{
	CHECK(!memwait_mutex_lock(&shared->mutex));
	return memwait_cond_wait_async(cond, &shared->mutex, op);
}

/* There is one signal, for thread 2. The operation either does not get it, or passes it on. */
static void cond_thread(unsigned int thread)
{
	if (thread == 1) {
		if (!begin_and_close(begin_cond, &shared->cond))
			return;
		CHECK(!memwait_cond_signal(&shared->cond));
		CHECK(!memwait_mutex_unlock(&shared->mutex));
		return;
	}
	CHECK(!memwait_mutex_lock(&shared->mutex));
	if (thread) {
		while (!shared->data)
			CHECK(!memwait_cond_wait(&shared->cond, &shared->mutex));
	} else {
		shared->data = 1;
		CHECK(!memwait_cond_signal(&shared->cond));
	}
	CHECK(!memwait_mutex_unlock(&shared->mutex));
}

static void cond_finish(void)
{
	CHECK(!memwait_cond_destroy(&shared->cond));
	CHECK(!memwait_mutex_destroy(&shared->mutex));
}

static void cond_set_up(unsigned int flags, unsigned int kind)
{
	CHECK(!memwait_cond_init(&shared->cond, flags));
	CHECK(!memwait_mutex_init(&shared->mutex, kind));
}

SCENARIO("loop closed cond", 3, cond_set_up(0, 0), cond_thread, cond_finish);
SCENARIO("loop closed private cond", 3, cond_set_up(PRIVATE, PRIVATE), cond_thread, cond_finish);
SCENARIO("loop closed cond, fair mutex", 3, cond_set_up(0, FAIR), cond_thread, cond_finish);
