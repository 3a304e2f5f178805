// SPDX-License-Identifier: GPL-2.0
/*
 * L8: condition variables, barriers, wait groups and channels can be destroyed when all have been
 * woken. Destroy waits for those that have not left yet, however long that takes, and refuses only
 * while somebody waits. The last reader of a read-write lock can destroy it, wherever the writer is
 * that has let it in; and who has received the last item can destroy the channel, wherever the
 * sender is.
 */
#include "death_test.h"
#include "ioctl_test.h"
#include <sys/ptrace.h>

/* As long as a waiter is kept from leaving: more than any limit that was there. */
#define KEPT_MS		LOAD(4000, 2500)

struct board {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	memwait_barrier_t barrier;
	memwait_waitgroup_t group;
	uint64_t channel[32];		/* with one slot */
	uint64_t item;
	int there;
};

/* Threads that have been woken, and are in their handler. */
static int in_handler, may_leave;

static void keep(int signal)
{
	__atomic_add_fetch(&in_handler, 1, __ATOMIC_RELEASE);
	sleep_until(get(&may_leave));
}

/* What can be destroyed, and has waiters. */
struct thing {
	int (*set_up)(struct board *board, unsigned int flags);
	int (*wait)(struct board *board);
	int (*wait_async)(struct board *board, memwait_op_t *op);
	int (*wake)(struct board *board);	/* all of them; does not wait */
	int (*destroy)(struct board *board);
};

static int set_up_cond(struct board *board, unsigned int flags)
{
	return memwait_mutex_init(&board->mutex, flags) ?: memwait_cond_init(&board->cond, flags);
}

static int wait_for_cond(struct board *board)
{
	int err = memwait_mutex_lock(&board->mutex);

	set(&board->there, 1);
	if (!err)
		err = memwait_cond_wait(&board->cond, &board->mutex);
	return err ? err : memwait_mutex_unlock(&board->mutex);
}

static int wait_for_cond_async(struct board *board, memwait_op_t *op)
{
	return memwait_mutex_lock(&board->mutex) ?:
	       memwait_cond_wait_async(&board->cond, &board->mutex, op);
}

#define BOARD_CALL(name, call)	ADAPTER(name, struct board *board, call)

BOARD_CALL(signal_cond, memwait_cond_signal(&board->cond))
BOARD_CALL(broadcast_cond, memwait_cond_broadcast(&board->cond))
BOARD_CALL(destroy_cond, memwait_cond_destroy(&board->cond))

static int set_up_barrier(struct board *board, unsigned int flags)
{
	return memwait_mutex_init(&board->mutex, flags) ?:
	       memwait_barrier_init(&board->barrier, flags, 2);
}

static int wait_at_barrier(struct board *board)
{
	set(&board->there, 1);
	return memwait_barrier_wait(&board->barrier);
}

static int wait_at_barrier_async(struct board *board, memwait_op_t *op)
{
	return memwait_barrier_wait_async(&board->barrier, op);
}

/* The last one to come does not wait. */
static int come_last(struct board *board)
{
	int ret = memwait_barrier_wait(&board->barrier);

	return ret == MEMWAIT_BARRIER_SERIAL_THREAD ? 0 : -1;
}

BOARD_CALL(destroy_barrier, memwait_barrier_destroy(&board->barrier))

static int set_up_group(struct board *board, unsigned int flags)
{
	return memwait_mutex_init(&board->mutex, flags) ?:
	       memwait_waitgroup_init(&board->group, flags, 1);
}

static int wait_for_group(struct board *board)
{
	set(&board->there, 1);
	return memwait_waitgroup_wait(&board->group);
}

static int wait_for_group_async(struct board *board, memwait_op_t *op)
{
	return memwait_waitgroup_wait_async(&board->group, op);
}

BOARD_CALL(be_done, memwait_waitgroup_done(&board->group))
BOARD_CALL(destroy_group, memwait_waitgroup_destroy(&board->group))

static memwait_channel_t *channel_of(struct board *board)
{
	return (memwait_channel_t *)board->channel;
}

static int set_up_empty(struct board *board, unsigned int flags)
{
	return memwait_mutex_init(&board->mutex, flags) ?:
	       memwait_channel_init(channel_of(board), sizeof(board->channel), flags, 8, 1);
}

static int set_up_full(struct board *board, unsigned int flags)
{
	return set_up_empty(board, flags) ?:
	       memwait_channel_send(channel_of(board), &board->item, sizeof(board->item));
}

/* Those that wait may come to the end of it. */
static int unless_closed(int err)
{
	return err == EPIPE ? 0 : err;
}

static int receive_it(struct board *board)
{
	uint64_t item;

	set(&board->there, 1);
	return unless_closed(memwait_channel_recv(channel_of(board), &item, sizeof(item)));
}

static int send_it(struct board *board)
{
	const uint64_t item = 1;

	set(&board->there, 1);
	return unless_closed(memwait_channel_send(channel_of(board), &item, sizeof(item)));
}

static int receive_async(struct board *board, memwait_op_t *op)
{
	return memwait_channel_recv_async(channel_of(board), &board->item, sizeof(board->item), op);
}

static int send_async(struct board *board, memwait_op_t *op)
{
	return memwait_channel_send_async(channel_of(board), &board->item, sizeof(board->item), op);
}

BOARD_CALL(try_to_receive, memwait_channel_tryrecv(channel_of(board), &board->item,
						   sizeof(board->item)))
BOARD_CALL(try_to_send, memwait_channel_trysend(channel_of(board), &board->item,
						sizeof(board->item)))
BOARD_CALL(close_channel, memwait_channel_close(channel_of(board)))
BOARD_CALL(destroy_channel, memwait_channel_destroy(channel_of(board)))

static const struct thing things[] = {
	{ set_up_cond, wait_for_cond, wait_for_cond_async, signal_cond, destroy_cond },
	{ set_up_cond, wait_for_cond, wait_for_cond_async, broadcast_cond, destroy_cond },
	{ set_up_barrier, wait_at_barrier, wait_at_barrier_async, come_last, destroy_barrier },
	{ set_up_group, wait_for_group, wait_for_group_async, be_done, destroy_group },
	{ set_up_empty, receive_it, receive_async, try_to_send, destroy_channel },
	{ set_up_empty, receive_it, receive_async, close_channel, destroy_channel },
	{ set_up_full, send_it, send_async, try_to_receive, destroy_channel },
	{ set_up_full, send_it, send_async, close_channel, destroy_channel },
};

static const unsigned int flags[] = { 0, MEMWAIT_PRIVATE };

struct use {
	const struct thing *thing;
	struct board *board;
};

static int wait_bound(void *arg)
{
	struct use *use = arg;

	return pin(0) ? -1 : use->thing->wait(use->board);
}

static int destroy_it(void *arg)
{
	struct use *use = arg;

	return use->thing->destroy(use->board);
}

/*
 * Wakes the waiter, which cannot run before it has got the signal as well: that stops it, or keeps
 * it in a handler, when the wait has ended and before it is back in the library.
 */
static int wake_and_keep(struct use *use, pid_t process, pid_t tid, int signal)
{
	int ret = pin(20);

	if (!ret)
		ret = use->thing->wake(use->board);
	if (!ret)
		ret = tgkill(process, tid, signal);
	return pin(0) ? -1 : ret;
}

static void await_waiting(struct board *board, pid_t tid)
{
	sleep_until(get(&board->there));
	await_asleep(tid);
}

/* A waiter that is kept, a thread or a process, and the one who destroys what it has waited for. */
struct scene {
	struct use use;
	struct runner waiter, destroyer;
	pid_t pid;
};

/* All begin to destroy, and wait; returns when no limit can end that any more. */
static void destroy_all(struct __test_metadata *_metadata, struct scene *scenes, size_t n)
{
	uint64_t end;
	size_t i;

	for (i = 0; i < n; i++) {
		runner_start(&scenes[i].destroyer, destroy_it, &scenes[i].use);
		runner_await_asleep(&scenes[i].destroyer);
	}
	/* A second was too long once; what is waited for here is that nothing happens. */
	end = in_ms(KEPT_MS);
	do {
		for (i = 0; i < n; i++)
			ASSERT_FALSE(runner_is_done(&scenes[i].destroyer));
		usleep(50000);
	} while (in_ms(0) < end);
}

/*
 * It is destroyed at last, when the waiter has been let go. The mutex can be destroyed when the
 * waiter has come back: a waiter that has left the condition variable still takes it.
 */
static void check_destroyed(struct __test_metadata *_metadata, struct scene *scene)
{
	EXPECT_EQ(0, runner_join(&scene->destroyer));
	EXPECT_EQ(0, scene->pid ? child_status(scene->pid) :
				  runner_join(&scene->waiter));
	EXPECT_EQ(0, memwait_mutex_destroy(&scene->use.board->mutex));
}

USERLIB_TEST(L8_a_thread_is_kept_in_a_signal_handler)
{
	struct sigaction action = { .sa_handler = keep };
	struct scene scenes[2 * ARRAY_SIZE(things)] = {};
	struct board *boards = self->shared;
	size_t i;

	sigaction(SIGUSR1, &action, NULL);
	for (i = 0; i < ARRAY_SIZE(scenes); i++) {
		struct scene *scene = &scenes[i];

		scene->use = (struct use) { &things[i / 2], &boards[i] };
		ASSERT_EQ(0, scene->use.thing->set_up(&boards[i], flags[i % 2]));
		runner_start(&scene->waiter, wait_bound, &scene->use);
		await_waiting(&boards[i], scene->waiter.tid);
		ASSERT_EQ(0, wake_and_keep(&scene->use, getpid(), scene->waiter.tid, SIGUSR1));
		sleep_until(get(&in_handler) > (int)i);
		EXPECT_FALSE(runner_is_done(&scene->waiter));
	}
	destroy_all(_metadata, scenes, ARRAY_SIZE(scenes));
	set(&may_leave, 1);
	for (i = 0; i < ARRAY_SIZE(scenes); i++)
		check_destroyed(_metadata, &scenes[i]);
}

/* A process that has been woken, and gets the signal before it is back in the library. */
static void start_process(struct __test_metadata *_metadata, struct scene *scene,
			  const struct thing *thing, struct board *board, int signal)
{
	scene->use = (struct use) { thing, board };
	ASSERT_EQ(0, thing->set_up(board, 0));
	scene->pid = run_in_child(wait_bound(&scene->use));
	await_waiting(board, scene->pid);
	ASSERT_EQ(0, wake_and_keep(&scene->use, scene->pid, scene->pid, signal));
}

USERLIB_TEST(L8_a_process_is_stopped)
{
	struct scene scenes[ARRAY_SIZE(things)];
	struct board *boards = self->shared;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(scenes); i++) {
		start_process(_metadata, &scenes[i], &things[i], &boards[i], SIGSTOP);
		sleep_until(thread_state(scenes[i].pid) == 'T');
	}
	destroy_all(_metadata, scenes, ARRAY_SIZE(scenes));
	for (i = 0; i < ARRAY_SIZE(scenes); i++) {
		kill(scenes[i].pid, SIGCONT);
		check_destroyed(_metadata, &scenes[i]);
	}
}

/* That it was refused has no effect. */
USERLIB_TEST(L8_it_is_refused_while_somebody_waits)
{
	struct board *board = self->shared;
	struct counted_op counted;
	struct runner waiter;
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(things); i++) {
		struct use use = { &things[i / 2], board };

		/* A thread. */
		memset(board, 0, sizeof(*board));
		ASSERT_EQ(0, use.thing->set_up(board, flags[i % 2]));
		runner_start(&waiter, wait_bound, &use);
		await_waiting(board, waiter.tid);
		EXPECT_EQ(EBUSY, destroy_it(&use));
		EXPECT_EQ(EBUSY, destroy_it(&use));
		EXPECT_FALSE(runner_is_done(&waiter));
		EXPECT_EQ(0, use.thing->wake(board));
		EXPECT_EQ(0, destroy_it(&use));
		EXPECT_EQ(0, runner_join(&waiter));

		/* An operation, which waits until its callback begins. */
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(0, use.thing->set_up(board, flags[i % 2]));
		ASSERT_EQ(EINPROGRESS, use.thing->wait_async(board, &counted.op));
		EXPECT_EQ(EBUSY, destroy_it(&use));
		EXPECT_EQ(0, use.thing->wake(board));
		EXPECT_EQ(EBUSY, destroy_it(&use));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, unless_closed(counted.result));
		EXPECT_EQ(0, destroy_it(&use));

		/* One that is taken back. */
		ASSERT_EQ(0, use.thing->set_up(board, flags[i % 2]));
		ASSERT_EQ(EINPROGRESS, use.thing->wait_async(board, &counted.op));
		EXPECT_EQ(EBUSY, destroy_it(&use));
		EXPECT_EQ(0, memwait_op_cancel(&counted.op));
		if (use.thing->wake == be_done) {
			EXPECT_EQ(EBUSY, destroy_it(&use));
			EXPECT_EQ(0, be_done(board));
		}
		EXPECT_EQ(0, destroy_it(&use));
	}
}

/* Of two that have waited, the one that comes back first destroys it, and unmaps it. */
struct last_use {
	struct board *board;
	int came;
};

static int wait_and_unmap(void *arg)
{
	struct last_use *use = arg;
	int ret = memwait_waitgroup_wait(&use->board->group);

	if (ret || __atomic_fetch_add(&use->came, 1, __ATOMIC_ACQ_REL))
		return ret;
	ret = memwait_waitgroup_destroy(&use->board->group);
	return munmap(use->board, 4096) ? -1 : ret;
}

USERLIB_TEST(L8_the_first_that_comes_back_unmaps_it)
{
	struct runner waiters[2];
	int round, i;

	for (round = 0; more_rounds(round, SOME_OF(500)); round++) {
		struct last_use use = { .board = shared_page(4096) };

		ASSERT_NE(NULL, use.board);
		ASSERT_EQ(0, memwait_waitgroup_init(&use.board->group, flags[round % 2], 1));
		for (i = 0; i < 2; i++)
			runner_start(&waiters[i], wait_and_unmap, &use);
		/* The count, which they sleep on, is where the group begins. */
		sleep_until(memwait_waiters(&use.board->group, flags[round % 2]) >= 2);
		ASSERT_EQ(0, memwait_waitgroup_done(&use.board->group));
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, runner_join(&waiters[i]));
	}
}

/* A waiter that is about to sleep, a broadcast that has begun, and what the waiter does then. */
struct meeting {
	struct board *board;
	int about_to_sleep, has_begun;
	struct runner waiter;
};

static struct meeting *meeting;
static __thread bool is_waiter;

/* Who has let one through, and is kept until that one has done all it can. */
static __thread struct runner *keeps_until;

static int let_through(int fd, unsigned long request, void *argument)
{
	struct runner *other = keeps_until;
	int ret = ioctl_of_kernel(fd, request, argument);

	if (request != MEMWAIT_IOC_CHANGE_NOTIFY || ret < 1)
		return ret;
	while (!runner_is_done(other) && thread_state(other->tid) != 'S')
		usleep(100);
	keeps_until = NULL;
	return ret;
}

/* One that stands still, before its next notify, or in a copy of what it cannot read. */
static int standing, goes_on;
static __thread bool stands_still;

static void stand_still(void)
{
	__atomic_add_fetch(&standing, 1, __ATOMIC_RELEASE);
	sleep_until(get(&goes_on));
}

static int intercept(int fd, unsigned long request, void *argument)
{
	bool waits = request == MEMWAIT_IOC_WAIT || request == MEMWAIT_IOC_NOTIFY_WAIT;

	if (stands_still &&
	    (request == MEMWAIT_IOC_CHANGE_NOTIFY || request == MEMWAIT_IOC_WAITERS)) {
		stands_still = false;
		stand_still();
	}
	if (keeps_until)
		return let_through(fd, request, argument);
	if (waits && is_waiter && !get(&meeting->about_to_sleep)) {
		set(&meeting->about_to_sleep, 1);
		/* No sleep, which would be taken for that of the library. */
		while (!get(&meeting->has_begun))
			sched_yield();
	}
	/* The sequence has been changed by now: the waiter is left to go as far as it gets. */
	if (meeting && !waits && !is_waiter && get(&meeting->about_to_sleep) &&
	    request != MEMWAIT_IOC_OWNER && !get(&meeting->has_begun)) {
		set(&meeting->has_begun, 1);
		while (!runner_is_done(&meeting->waiter) &&
		       thread_state(meeting->waiter.tid) != 'S')
			usleep(100);
	}
	return ioctl_of_kernel(fd, request, argument);
}

static int wait_and_unmap_cond(void *arg)
{
	struct board *board = arg;
	int ret;

	is_waiter = true;
	ret = wait_for_cond(board);
	if (!ret)
		ret = memwait_cond_destroy(&board->cond);
	return munmap(board, 4096) ? -1 : ret;
}

/* A waiter that has seen a broadcast's change returns, wherever the broadcaster is. */
USERLIB_TEST(L8_a_waiter_destroys_it_while_the_broadcaster_is_within)
{
	struct meeting now;
	int round;

	for (round = 0; round < 20; round++) {
		memset(&now, 0, sizeof(now));
		now.board = shared_page(4096);
		ASSERT_EQ(0, set_up_cond(now.board, flags[round % 2]));
		meeting = &now;
		runner_start(&now.waiter, wait_and_unmap_cond, now.board);
		await(&now.about_to_sleep);
		EXPECT_EQ(0, memwait_cond_broadcast(&now.board->cond));
		EXPECT_EQ(0, runner_join(&now.waiter));
		meeting = NULL;
	}
}

/* What one does with a channel and by which another gets through, who destroys and unmaps it. */
static const struct passing {
	int (*set_up)(struct board *board, unsigned int flags);
	int (*wait)(struct board *board);
	int (*wake)(struct board *board);
	int (*try)(struct board *board);
} passings[] = {
	{ set_up_empty, receive_it, send_it, try_to_receive },
	{ set_up_full, send_it, receive_it, try_to_send },
	{ set_up_empty, receive_it, close_channel, try_to_receive },
	{ set_up_full, send_it, close_channel, try_to_send },
};

struct passage {
	const struct passing *passing;
	struct board *board;
	struct runner waiter;
};

static int pass_and_unmap(void *arg)
{
	struct passage *passage = arg;
	int ret = passage->passing->wait(passage->board) ?: destroy_channel(passage->board);

	return munmap(passage->board, 4096) ? -1 : ret;
}

static int wake_and_be_kept(void *arg)
{
	struct passage *passage = arg;

	keeps_until = &passage->waiter;
	return passage->passing->wake(passage->board);
}

USERLIB_TEST(L8_who_is_let_through_destroys_a_channel)
{
	struct passage passage;
	struct runner waker;
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(passings); i++) {
		passage = (struct passage){ &passings[i / 2], shared_page(4096), { 0 } };
		ASSERT_EQ(0, passage.passing->set_up(passage.board, flags[i % 2]));
		runner_start(&passage.waiter, pass_and_unmap, &passage);
		runner_await_asleep(&passage.waiter);
		runner_start(&waker, wake_and_be_kept, &passage);
		EXPECT_EQ(0, runner_join(&waker));
		EXPECT_EQ(0, runner_join(&passage.waiter));
	}
}

/* Starts a process that does it instruction by instruction, until somebody can get through. */
static pid_t step_until_through(const struct passing *passing, struct board *board)
{
	pid_t pid = fork_child();
	int status;

	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(90);
		raise(SIGSTOP);
		_exit(passing->wake(board));
	}
	while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
		if (!unless_closed(passing->try(board)))
			return pid;
		ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
	}
	return -1;
}

/*
 * Killed there, it is not waited for: a lock that it had is taken over. One that was killed while
 * it closed the channel would be presumed dead, after ten seconds.
 */
USERLIB_TEST(L8_a_channel_is_destroyed_while_the_other_is_within)
{
	struct board *board = self->shared, freed;
	struct runner destroyer;
	bool waits, kills;
	size_t i;
	pid_t pid;

	memset(&freed, 0x5a, sizeof(freed));
	for (i = 0; i < 2 * ARRAY_SIZE(passings); i++) {
		const struct passing *passing = &passings[i / 2];

		kills = i % 2;
		if (kills && passing->wake == close_channel)
			continue;
		ASSERT_EQ(0, passing->set_up(board, 0));
		pid = step_until_through(passing, board);
		ASSERT_LT(0, pid);
		runner_start(&destroyer, destroy_channel, board);
		spin_until(runner_is_done(&destroyer) || thread_state(destroyer.tid) == 'S');
		/* Either it waits for the other, or that does nothing to it any more. */
		waits = !runner_is_done(&destroyer);
		if (!waits)
			*board = freed;
		if (kills) {
			EXPECT_EQ(128 + SIGKILL, kill_child(pid));
		} else {
			ASSERT_EQ(0, ptrace(PTRACE_CONT, pid, NULL, NULL));
			EXPECT_EQ(0, child_status(pid));
		}
		EXPECT_EQ(0, runner_join(&destroyer));
		if (!waits) {
			EXPECT_EQ(0, memcmp(board, &freed, sizeof(freed)));
		}
	}
}

static int unlock_in_steps(memwait_rwlock_t *lock)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) || memwait_rwlock_wrlock(lock))
		return 90;
	raise(SIGSTOP);
	return memwait_rwlock_unlock(lock);
}

/*
 * Starts a process that has the lock for writing, and has it unlock it instruction by instruction,
 * until there is a reader.
 */
static pid_t step_until_read(memwait_rwlock_t *lock)
{
	pid_t pid = fork_child();
	int status;

	if (!pid)
		_exit(unlock_in_steps(lock));
	while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
		if (!memwait_rwlock_tryrdlock(lock))
			return pid;
		ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
	}
	return -1;
}

USERLIB_TEST(L8_the_last_reader_destroys_it_while_the_writer_unlocks)
{
	const unsigned int kinds[] = { 0, MEMWAIT_RWLOCK_FAIR, MEMWAIT_RWLOCK_ROBUST };
	memwait_rwlock_t *lock = self->shared, freed;
	struct runner destroyer;
	bool waits;
	size_t i;
	pid_t pid;

	memset(&freed, 0x5a, sizeof(freed));
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		ASSERT_EQ(0, memwait_rwlock_init(lock, kinds[i]));
		pid = step_until_read(lock);
		ASSERT_LT(0, pid);
		ASSERT_EQ(0, memwait_rwlock_unlock(lock));
		runner_start(&destroyer, memwait_rwlock_destroy, lock);
		runner_await_asleep(&destroyer);
		/* Either it waits for the writer, or that does nothing to it any more. */
		waits = !runner_is_done(&destroyer);
		if (!waits)
			*lock = freed;
		ASSERT_EQ(0, ptrace(PTRACE_CONT, pid, NULL, NULL));
		EXPECT_EQ(0, child_status(pid));
		EXPECT_EQ(0, runner_join(&destroyer));
		if (!waits) {
			EXPECT_EQ(0, memcmp(lock, &freed, sizeof(freed)));
		}
	}
}

/* Children of which one destroys a channel, and each other one a lock. */
#define HEIRS	3

static struct {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	struct board board;
	struct runner sender;
	struct own_lock {
		memwait_rwlock_t lock;
		struct runner writer, next;
		int locked, may_unlock;
	} locks[HEIRS - 1];
} own;

static int wait_for_own(void *arg)
{
	(void)arg;
	return memwait_mutex_lock(&own.mutex) ?: memwait_cond_wait(&own.cond, &own.mutex) ?:
	       memwait_mutex_unlock(&own.mutex);
}

static int unlock_and_stand(void *arg)
{
	struct own_lock *of = arg;
	int ret = memwait_rwlock_wrlock(&of->lock);

	set(&of->locked, 1);
	sleep_until(get(&of->may_unlock));
	stands_still = true;
	return ret ?: memwait_rwlock_unlock(&of->lock);
}

static int write_after(void *arg)
{
	struct own_lock *of = arg;

	return memwait_rwlock_wrlock(&of->lock) ?: memwait_rwlock_unlock(&of->lock);
}

/* An item that is kept from the sender which copies it. */
static void *kept_item;

static void let_copy(int signal)
{
	stand_still();
	mprotect(kept_item, 4096, PROT_READ);
}

static int send_kept(void *arg)
{
	return memwait_channel_send(channel_of(arg), kept_item, 8);
}

/* Starts children of which each destroys a copy of what a thread stands still in. */
static void start_heirs(struct __test_metadata *_metadata, pid_t *heirs)
{
	const unsigned int kinds[] = { MEMWAIT_PRIVATE, MEMWAIT_PRIVATE | MEMWAIT_RWLOCK_ROBUST };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(own.locks); i++) {
		struct own_lock *of = &own.locks[i];

		/* Another waits at the gate, so that it is unlocked by a call. */
		ASSERT_EQ(0, memwait_rwlock_init(&of->lock, kinds[i]));
		runner_start(&of->writer, unlock_and_stand, of);
		await(&of->locked);
		runner_start(&of->next, write_after, of);
		runner_await_asleep(&of->next);
		set(&of->may_unlock, 1);
	}
	kept_item = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, kept_item);
	signal(SIGSEGV, let_copy);
	ASSERT_EQ(0, set_up_empty(&own.board, MEMWAIT_PRIVATE));
	runner_start(&own.sender, send_kept, &own.board);
	spin_until(get(&standing) == HEIRS);
	for (i = 0; i < HEIRS; i++) {
		heirs[i] = fork_child();
		if (!heirs[i])
			_exit(i < ARRAY_SIZE(own.locks) ?
			      memwait_rwlock_destroy(&own.locks[i].lock) :
			      destroy_channel(&own.board));
	}
}

static void end_heirs(struct __test_metadata *_metadata, const pid_t *heirs)
{
	size_t i;

	for (i = 0; i < HEIRS; i++)
		EXPECT_EQ(EBUSY, child_status(heirs[i]));
	set(&goes_on, 1);
	for (i = 0; i < ARRAY_SIZE(own.locks); i++) {
		EXPECT_EQ(0, runner_join(&own.locks[i].writer));
		EXPECT_EQ(0, runner_join(&own.locks[i].next));
	}
	EXPECT_EQ(0, runner_join(&own.sender));
}

/*
 * Those never leave; but of a robust lock's writer it is known that it is dead. Nor do a parent's
 * threads leave the copy that a child has of a private object, or unlock what they have in it.
 */
USERLIB_TEST(L8_it_does_not_wait_for_ever_for_those_that_were_killed)
{
	const unsigned int kinds[] = { 0, MEMWAIT_RWLOCK_ROBUST };
	struct runner destroyers[ARRAY_SIZE(kinds)];
	struct scene scenes[ARRAY_SIZE(things)];
	struct board *boards = self->shared;
	memwait_rwlock_t *locks = (void *)&boards[ARRAY_SIZE(things)];
	struct runner waiter;
	pid_t pid, child, heirs[HEIRS];
	size_t i;

	start_heirs(_metadata, heirs);
	ASSERT_EQ(0, memwait_mutex_init(&own.mutex, MEMWAIT_PRIVATE));
	ASSERT_EQ(0, memwait_cond_init(&own.cond, MEMWAIT_PRIVATE));
	runner_start(&waiter, wait_for_own, NULL);
	runner_await_asleep(&waiter);
	child = fork_child();
	if (!child)
		_exit(memwait_cond_destroy(&own.cond));
	for (i = 0; i < ARRAY_SIZE(scenes); i++) {
		start_process(_metadata, &scenes[i], &things[i], &boards[i], SIGKILL);
		EXPECT_EQ(128 + SIGKILL, child_status(scenes[i].pid));
		runner_start(&scenes[i].destroyer, destroy_it, &scenes[i].use);
		runner_await_asleep(&scenes[i].destroyer);
		EXPECT_FALSE(runner_is_done(&scenes[i].destroyer));
	}
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		ASSERT_EQ(0, memwait_rwlock_init(&locks[i], kinds[i]));
		pid = step_until_read(&locks[i]);
		ASSERT_LT(0, pid);
		ASSERT_EQ(0, memwait_rwlock_unlock(&locks[i]));
		runner_start(&destroyers[i], memwait_rwlock_destroy, &locks[i]);
		runner_await_asleep(&destroyers[i]);
		EXPECT_FALSE(runner_is_done(&destroyers[i]));
		EXPECT_EQ(128 + SIGKILL, kill_child(pid));
	}
	for (i = 0; i < ARRAY_SIZE(scenes); i++)
		EXPECT_EQ(EBUSY, runner_join(&scenes[i].destroyer));
	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		EXPECT_EQ(kinds[i] ? 0 : EBUSY, runner_join(&destroyers[i]));
	EXPECT_EQ(EBUSY, child_status(child));
	end_heirs(_metadata, heirs);
	EXPECT_EQ(0, memwait_cond_broadcast(&own.cond));
	EXPECT_EQ(0, runner_join(&waiter));
}

TEST_HARNESS_MAIN
