// SPDX-License-Identifier: GPL-2.0
/*
 * L8: a condition variable, barrier, wait group or channel can be destroyed when all its waiters
 * have been woken. Destroy waits until they have left, however long that takes, and fails only if a
 * waiter is still waiting. The last reader of a read-write lock can destroy the lock even if the
 * writer before it has not returned from its unlock. The receiver of the last item can destroy the
 * channel even if the sender has not returned from its call.
 */
#include "death_test.h"
#include "ioctl_test.h"
#include <sys/ptrace.h>

/* How long a waiter is prevented from leaving: longer than any time limit of destroy. */
#define KEPT_MS		LOAD(4000, 2500)

struct objects {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	memwait_barrier_t barrier;
	memwait_waitgroup_t group;
	uint64_t channel[32];		/* one slot */
	uint64_t item;
	int there;
};

/* Threads that have been woken and are in their signal handler. */
static int in_handler, may_leave;

static void wait_in_handler(int signal)
{
	__atomic_add_fetch(&in_handler, 1, __ATOMIC_RELEASE);
	sleep_until(get(&may_leave));
}

/* An object that can be destroyed while it has waiters. */
struct thing {
	int (*set_up)(struct objects *objects, unsigned int flags);
	int (*wait)(struct objects *objects);
	int (*wait_async)(struct objects *objects, memwait_op_t *op);
	int (*wake)(struct objects *objects);	/* wakes all waiters; does not wait */
	int (*destroy)(struct objects *objects);
};

static int set_up_cond(struct objects *objects, unsigned int flags)
{
	return memwait_mutex_init(&objects->mutex, flags) ?:
	       memwait_cond_init(&objects->cond, flags);
}

static int wait_for_cond(struct objects *objects)
{
	int err = memwait_mutex_lock(&objects->mutex);

	set(&objects->there, 1);
	if (!err)
		err = memwait_cond_wait(&objects->cond, &objects->mutex);
	return err ? err : memwait_mutex_unlock(&objects->mutex);
}

static int wait_for_cond_async(struct objects *objects, memwait_op_t *op)
{
	return memwait_mutex_lock(&objects->mutex) ?:
	       memwait_cond_wait_async(&objects->cond, &objects->mutex, op);
}

#define OBJECTS_CALL(name, call)	ADAPTER(name, struct objects *objects, call)

OBJECTS_CALL(signal_cond, memwait_cond_signal(&objects->cond))
OBJECTS_CALL(broadcast_cond, memwait_cond_broadcast(&objects->cond))
OBJECTS_CALL(destroy_cond, memwait_cond_destroy(&objects->cond))

static int set_up_barrier(struct objects *objects, unsigned int flags)
{
	return memwait_mutex_init(&objects->mutex, flags) ?:
	       memwait_barrier_init(&objects->barrier, flags, 2);
}

static int wait_at_barrier(struct objects *objects)
{
	set(&objects->there, 1);
	return memwait_barrier_wait(&objects->barrier);
}

static int wait_at_barrier_async(struct objects *objects, memwait_op_t *op)
{
	return memwait_barrier_wait_async(&objects->barrier, op);
}

/* The last arrival does not wait. */
static int arrive_last(struct objects *objects)
{
	int ret = memwait_barrier_wait(&objects->barrier);

	return ret == MEMWAIT_BARRIER_SERIAL_THREAD ? 0 : -1;
}

OBJECTS_CALL(destroy_barrier, memwait_barrier_destroy(&objects->barrier))

static int set_up_group(struct objects *objects, unsigned int flags)
{
	return memwait_mutex_init(&objects->mutex, flags) ?:
	       memwait_waitgroup_init(&objects->group, flags, 1);
}

static int wait_for_group(struct objects *objects)
{
	set(&objects->there, 1);
	return memwait_waitgroup_wait(&objects->group);
}

static int wait_for_group_async(struct objects *objects, memwait_op_t *op)
{
	return memwait_waitgroup_wait_async(&objects->group, op);
}

OBJECTS_CALL(be_done, memwait_waitgroup_done(&objects->group))
OBJECTS_CALL(destroy_group, memwait_waitgroup_destroy(&objects->group))

static memwait_channel_t *channel_of(struct objects *objects)
{
	return (memwait_channel_t *)objects->channel;
}

static int set_up_empty(struct objects *objects, unsigned int flags)
{
	return memwait_mutex_init(&objects->mutex, flags) ?:
	       memwait_channel_init(channel_of(objects), sizeof(objects->channel), flags, 8, 1);
}

static int set_up_full(struct objects *objects, unsigned int flags)
{
	return set_up_empty(objects, flags) ?:
	       memwait_channel_send(channel_of(objects), &objects->item, sizeof(objects->item));
}

/* Waiters may find the channel closed. */
static int unless_closed(int err)
{
	return err == EPIPE ? 0 : err;
}

static int receive_it(struct objects *objects)
{
	uint64_t item;

	set(&objects->there, 1);
	return unless_closed(memwait_channel_recv(channel_of(objects), &item, sizeof(item)));
}

static int send_it(struct objects *objects)
{
	const uint64_t item = 1;

	set(&objects->there, 1);
	return unless_closed(memwait_channel_send(channel_of(objects), &item, sizeof(item)));
}

static int receive_async(struct objects *objects, memwait_op_t *op)
{
	return memwait_channel_recv_async(channel_of(objects), &objects->item,
					  sizeof(objects->item), op);
}

static int send_async(struct objects *objects, memwait_op_t *op)
{
	return memwait_channel_send_async(channel_of(objects), &objects->item,
					  sizeof(objects->item), op);
}

OBJECTS_CALL(try_to_receive, memwait_channel_tryrecv(channel_of(objects), &objects->item,
						     sizeof(objects->item)))
OBJECTS_CALL(try_to_send, memwait_channel_trysend(channel_of(objects), &objects->item,
						  sizeof(objects->item)))
OBJECTS_CALL(close_channel, memwait_channel_close(channel_of(objects)))
OBJECTS_CALL(destroy_channel, memwait_channel_destroy(channel_of(objects)))

static const struct thing things[] = {
	{ set_up_cond, wait_for_cond, wait_for_cond_async, signal_cond, destroy_cond },
	{ set_up_cond, wait_for_cond, wait_for_cond_async, broadcast_cond, destroy_cond },
	{ set_up_barrier, wait_at_barrier, wait_at_barrier_async, arrive_last, destroy_barrier },
	{ set_up_group, wait_for_group, wait_for_group_async, be_done, destroy_group },
	{ set_up_empty, receive_it, receive_async, try_to_send, destroy_channel },
	{ set_up_empty, receive_it, receive_async, close_channel, destroy_channel },
	{ set_up_full, send_it, send_async, try_to_receive, destroy_channel },
	{ set_up_full, send_it, send_async, close_channel, destroy_channel },
};

static const unsigned int flags[] = { 0, MEMWAIT_PRIVATE };

struct use {
	const struct thing *thing;
	struct objects *objects;
};

static int wait_bound(void *arg)
{
	struct use *use = arg;

	return pin(0) ? -1 : use->thing->wait(use->objects);
}

static int destroy_it(void *arg)
{
	struct use *use = arg;

	return use->thing->destroy(use->objects);
}

/*
 * Wakes the waiter and sends it a signal before it can run. The wait ends, but before the waiter is
 * back in the library, the signal stops it or makes it block in a handler.
 */
static int wake_and_keep(struct use *use, pid_t process, pid_t tid, int signal)
{
	int ret = pin(20);

	if (!ret)
		ret = use->thing->wake(use->objects);
	if (!ret)
		ret = tgkill(process, tid, signal);
	return pin(0) ? -1 : ret;
}

static void await_waiting(struct objects *objects, pid_t tid)
{
	sleep_until(get(&objects->there));
	await_asleep(tid);
}

/*
 * A waiter (a thread or a process) that is prevented from leaving, and the thread that destroys its
 * object.
 */
struct attempt {
	struct use use;
	struct runner waiter, destroyer;
	pid_t pid;
};

/*
 * Starts all destroyers and checks that they wait. Returns after a time that is longer than any
 * time limit of destroy.
 */
static void destroy_all(struct __test_metadata *_metadata, struct attempt *attempts, size_t n)
{
	uint64_t end;
	size_t i;

	for (i = 0; i < n; i++) {
		runner_start(&attempts[i].destroyer, destroy_it, &attempts[i].use);
		runner_await_asleep(&attempts[i].destroyer);
	}
	/* No destroyer may return during this time. */
	end = in_ms(KEPT_MS);
	do {
		for (i = 0; i < n; i++)
			ASSERT_FALSE(runner_is_done(&attempts[i].destroyer));
		usleep(50000);
	} while (in_ms(0) < end);
}

/*
 * Destroy succeeds when the waiter has been released. The mutex cannot be destroyed before the
 * waiter has returned, because a waiter that has left the condition variable still locks the mutex.
 */
static void check_destroyed(struct __test_metadata *_metadata, struct attempt *attempt)
{
	EXPECT_EQ(0, runner_join(&attempt->destroyer));
	EXPECT_EQ(0, attempt->pid ? child_status(attempt->pid) :
				  runner_join(&attempt->waiter));
	EXPECT_EQ(0, memwait_mutex_destroy(&attempt->use.objects->mutex));
}

USERLIB_TEST(L8_destroy_waits_for_a_thread_in_a_signal_handler)
{
	struct sigaction action = { .sa_handler = wait_in_handler };
	struct attempt attempts[2 * ARRAY_SIZE(things)] = {};
	struct objects *sets = self->shared;
	size_t i;

	sigaction(SIGUSR1, &action, NULL);
	for (i = 0; i < ARRAY_SIZE(attempts); i++) {
		struct attempt *attempt = &attempts[i];

		attempt->use = (struct use) { &things[i / 2], &sets[i] };
		ASSERT_EQ(0, attempt->use.thing->set_up(&sets[i], flags[i % 2]));
		runner_start(&attempt->waiter, wait_bound, &attempt->use);
		await_waiting(&sets[i], attempt->waiter.tid);
		ASSERT_EQ(0, wake_and_keep(&attempt->use, getpid(), attempt->waiter.tid, SIGUSR1));
		sleep_until(get(&in_handler) > (int)i);
		EXPECT_FALSE(runner_is_done(&attempt->waiter));
	}
	destroy_all(_metadata, attempts, ARRAY_SIZE(attempts));
	set(&may_leave, 1);
	for (i = 0; i < ARRAY_SIZE(attempts); i++)
		check_destroyed(_metadata, &attempts[i]);
}

/*
 * Starts a process that waits, wakes it, and sends it the signal before it is back in the library.
 */
static void start_process(struct __test_metadata *_metadata, struct attempt *attempt,
			  const struct thing *thing, struct objects *objects, int signal)
{
	attempt->use = (struct use) { thing, objects };
	ASSERT_EQ(0, thing->set_up(objects, 0));
	attempt->pid = run_in_child(wait_bound(&attempt->use));
	await_waiting(objects, attempt->pid);
	ASSERT_EQ(0, wake_and_keep(&attempt->use, attempt->pid, attempt->pid, signal));
}

USERLIB_TEST(L8_destroy_waits_for_a_stopped_process)
{
	struct attempt attempts[ARRAY_SIZE(things)];
	struct objects *sets = self->shared;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(attempts); i++) {
		start_process(_metadata, &attempts[i], &things[i], &sets[i], SIGSTOP);
		sleep_until(thread_state(attempts[i].pid) == 'T');
	}
	destroy_all(_metadata, attempts, ARRAY_SIZE(attempts));
	for (i = 0; i < ARRAY_SIZE(attempts); i++) {
		kill(attempts[i].pid, SIGCONT);
		check_destroyed(_metadata, &attempts[i]);
	}
}

/* The process has made an ioctl that waits. */
static bool has_waited;

/* Runs in a child process. Returns 0 if destroy fails with EBUSY and does not wait. */
static int destroy_copy(const struct use *use)
{
	has_waited = false;
	return destroy_it((void *)use) != EBUSY || has_waited;
}

/* The child has no thread that could leave the copy. */
USERLIB_TEST(L8_destroy_of_a_copy_in_a_child_does_not_wait)
{
	struct objects *objects = private_page(sizeof(*objects));
	struct runner waiter;
	size_t i;

	ASSERT_NE(NULL, objects);
	for (i = 0; i < 2 * ARRAY_SIZE(things); i++) {
		struct use use = { &things[i / 2], objects };

		memset(objects, 0, sizeof(*objects));
		ASSERT_EQ(0, use.thing->set_up(objects, flags[i % 2]));
		runner_start(&waiter, wait_bound, &use);
		await_waiting(objects, waiter.tid);
		EXPECT_EQ(0, child_status(run_in_child(destroy_copy(&use))));
		EXPECT_EQ(0, use.thing->wake(objects));
		EXPECT_EQ(0, runner_join(&waiter));
		EXPECT_EQ(0, destroy_it(&use));
	}
}

USERLIB_TEST(L8_destroy_in_a_child_waits_for_threads_of_its_parent)
{
	struct sigaction action = { .sa_handler = wait_in_handler };
	struct objects *objects = self->shared;
	struct runner waiter;
	int kept = 0;
	size_t i;

	sigaction(SIGUSR1, &action, NULL);
	for (i = 0; i < ARRAY_SIZE(things); i++) {
		struct use use = { &things[i], objects };
		pid_t pid;

		memset(objects, 0, sizeof(*objects));
		set(&may_leave, 0);
		ASSERT_EQ(0, use.thing->set_up(objects, 0));
		runner_start(&waiter, wait_bound, &use);
		await_waiting(objects, waiter.tid);
		ASSERT_EQ(0, wake_and_keep(&use, getpid(), waiter.tid, SIGUSR1));
		sleep_until(get(&in_handler) > kept);
		kept = get(&in_handler);
		pid = run_in_child(destroy_it(&use));
		await_asleep(pid);
		set(&may_leave, 1);
		EXPECT_EQ(0, child_status(pid));
		EXPECT_EQ(0, runner_join(&waiter));
	}
}

/* A destroy that fails has no effect. */
USERLIB_TEST(L8_destroy_fails_while_there_is_a_waiter)
{
	struct objects *objects = self->shared;
	struct counted_op counted;
	struct runner waiter;
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(things); i++) {
		struct use use = { &things[i / 2], objects };

		/* The waiter is a thread. */
		memset(objects, 0, sizeof(*objects));
		ASSERT_EQ(0, use.thing->set_up(objects, flags[i % 2]));
		runner_start(&waiter, wait_bound, &use);
		await_waiting(objects, waiter.tid);
		EXPECT_EQ(EBUSY, destroy_it(&use));
		EXPECT_EQ(EBUSY, destroy_it(&use));
		EXPECT_FALSE(runner_is_done(&waiter));
		EXPECT_EQ(0, use.thing->wake(objects));
		EXPECT_EQ(0, destroy_it(&use));
		EXPECT_EQ(0, runner_join(&waiter));

		/* The waiter is an operation, which counts as waiting until its callback begins. */
		memset(&counted, 0, sizeof(counted));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(0, use.thing->set_up(objects, flags[i % 2]));
		ASSERT_EQ(EINPROGRESS, use.thing->wait_async(objects, &counted.op));
		EXPECT_EQ(EBUSY, destroy_it(&use));
		EXPECT_EQ(0, use.thing->wake(objects));
		EXPECT_EQ(EBUSY, destroy_it(&use));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(0, unless_closed(counted.result));
		EXPECT_EQ(0, destroy_it(&use));

		/* The waiter is an operation that is cancelled. */
		ASSERT_EQ(0, use.thing->set_up(objects, flags[i % 2]));
		ASSERT_EQ(EINPROGRESS, use.thing->wait_async(objects, &counted.op));
		EXPECT_EQ(EBUSY, destroy_it(&use));
		EXPECT_EQ(0, memwait_op_cancel(&counted.op));
		if (use.thing->wake == be_done) {
			EXPECT_EQ(EBUSY, destroy_it(&use));
			EXPECT_EQ(0, be_done(objects));
		}
		EXPECT_EQ(0, destroy_it(&use));
	}
}

/* Two waiters. The first waiter that returns destroys the group and unmaps it. */
struct last_use {
	struct objects *objects;
	int came;
};

static int wait_and_unmap(void *arg)
{
	struct last_use *use = arg;
	int ret = memwait_waitgroup_wait(&use->objects->group);

	if (ret || __atomic_fetch_add(&use->came, 1, __ATOMIC_ACQ_REL))
		return ret;
	ret = memwait_waitgroup_destroy(&use->objects->group);
	return munmap(use->objects, 4096) ? -1 : ret;
}

USERLIB_TEST(L8_the_first_waiter_to_return_unmaps_it)
{
	struct runner waiters[2];
	int round, i;

	for (round = 0; more_rounds(round, SOME_OF(500)); round++) {
		struct last_use use = { .objects = shared_page(4096) };

		ASSERT_NE(NULL, use.objects);
		ASSERT_EQ(0, memwait_waitgroup_init(&use.objects->group, flags[round % 2], 1));
		for (i = 0; i < 2; i++)
			runner_start(&waiters[i], wait_and_unmap, &use);
		/* The waiters sleep on the count, which is at the start of the group. */
		sleep_until(memwait_waiters(&use.objects->group, flags[round % 2]) >= 2);
		ASSERT_EQ(0, memwait_waitgroup_done(&use.objects->group));
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, runner_join(&waiters[i]));
	}
}

/*
 * A waiter that is about to sleep, and a broadcast that has begun. The waiter continues once the
 * broadcast has changed the sequence.
 */
struct meeting {
	struct objects *objects;
	int about_to_sleep, has_begun;
	struct runner waiter;
};

static struct meeting *meeting;
static __thread bool is_waiter;

/*
 * Set in a thread whose call has woken another thread: the call is stalled until the other thread
 * is done or sleeps.
 */
static __thread struct runner *stalls_until;

static int ioctl_and_stall(int fd, unsigned long request, void *argument)
{
	struct runner *other = stalls_until;
	int ret = ioctl_of_kernel(fd, request, argument);

	if (request != MEMWAIT_IOC_CHANGE_NOTIFY || ret < 1)
		return ret;
	while (!runner_is_done(other) && thread_state(other->tid) != 'S')
		usleep(100);
	stalls_until = NULL;
	return ret;
}

/*
 * Threads that are stalled before their next notify, or in a copy from memory that they cannot
 * read.
 */
static int stalled, may_continue;
static __thread bool stalls;

static void stall(void)
{
	__atomic_add_fetch(&stalled, 1, __ATOMIC_RELEASE);
	sleep_until(get(&may_continue));
}

static int intercept(int fd, unsigned long request, void *argument)
{
	bool waits = request == MEMWAIT_IOC_WAIT || request == MEMWAIT_IOC_NOTIFY_WAIT;

	has_waited = has_waited || waits;
	if (stalls &&
	    (request == MEMWAIT_IOC_CHANGE_NOTIFY || request == MEMWAIT_IOC_WAITERS)) {
		stalls = false;
		stall();
	}
	if (stalls_until)
		return ioctl_and_stall(fd, request, argument);
	if (waits && is_waiter && !get(&meeting->about_to_sleep)) {
		set(&meeting->about_to_sleep, 1);
		/*
		 * This loop does not sleep, because a sleep here would look like the library's
		 * sleep.
		 */
		while (!get(&meeting->has_begun))
			sched_yield();
	}
	/*
	 * The broadcast has changed the sequence, and is stalled here until the waiter is done or
	 * sleeps.
	 */
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
	struct objects *objects = arg;
	int ret;

	is_waiter = true;
	ret = wait_for_cond(objects);
	if (!ret)
		ret = memwait_cond_destroy(&objects->cond);
	return munmap(objects, 4096) ? -1 : ret;
}

/* A waiter that sees the new sequence returns, even if the broadcaster has not returned. */
USERLIB_TEST(L8_a_waiter_destroys_it_during_the_broadcast)
{
	struct meeting now;
	int round;

	for (round = 0; round < 20; round++) {
		memset(&now, 0, sizeof(now));
		now.objects = shared_page(4096);
		ASSERT_EQ(0, set_up_cond(now.objects, flags[round % 2]));
		meeting = &now;
		runner_start(&now.waiter, wait_and_unmap_cond, now.objects);
		await(&now.about_to_sleep);
		EXPECT_EQ(0, memwait_cond_broadcast(&now.objects->cond));
		EXPECT_EQ(0, runner_join(&now.waiter));
		meeting = NULL;
	}
}

/* A call on a channel that wakes another thread, which then destroys and unmaps the channel. */
static const struct passing {
	int (*set_up)(struct objects *objects, unsigned int flags);
	int (*wait)(struct objects *objects);
	int (*wake)(struct objects *objects);
	int (*try)(struct objects *objects);
} passings[] = {
	{ set_up_empty, receive_it, send_it, try_to_receive },
	{ set_up_full, send_it, receive_it, try_to_send },
	{ set_up_empty, receive_it, close_channel, try_to_receive },
	{ set_up_full, send_it, close_channel, try_to_send },
};

struct passage {
	const struct passing *passing;
	struct objects *objects;
	struct runner waiter;
};

static int pass_and_unmap(void *arg)
{
	struct passage *passage = arg;
	int ret = passage->passing->wait(passage->objects) ?: destroy_channel(passage->objects);

	return munmap(passage->objects, 4096) ? -1 : ret;
}

static int wake_and_stall(void *arg)
{
	struct passage *passage = arg;

	stalls_until = &passage->waiter;
	return passage->passing->wake(passage->objects);
}

USERLIB_TEST(L8_a_thread_that_was_let_through_destroys_a_channel)
{
	struct passage passage;
	struct runner waker;
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(passings); i++) {
		passage = (struct passage){ &passings[i / 2], shared_page(4096), { 0 } };
		ASSERT_EQ(0, passage.passing->set_up(passage.objects, flags[i % 2]));
		runner_start(&passage.waiter, pass_and_unmap, &passage);
		runner_await_asleep(&passage.waiter);
		runner_start(&waker, wake_and_stall, &passage);
		EXPECT_EQ(0, runner_join(&waker));
		EXPECT_EQ(0, runner_join(&passage.waiter));
	}
}

/* Starts a process that makes this call in single steps until a call of the other side succeeds. */
static pid_t step_until_through(const struct passing *passing, struct objects *objects)
{
	pid_t pid = fork_child();
	int status;

	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(90);
		raise(SIGSTOP);
		_exit(passing->wake(objects));
	}
	while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
		if (!unless_closed(passing->try(objects)))
			return pid;
		ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
	}
	return -1;
}

/*
 * If the process were killed at this point, destroy would not wait for it, because a lock that it
 * held is taken over. If it were killed in a close of the channel, destroy would presume it dead
 * only after ten seconds.
 */
USERLIB_TEST(L8_a_channel_is_destroyed_during_the_others_call)
{
	struct objects *objects = self->shared, freed;
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
		ASSERT_EQ(0, passing->set_up(objects, 0));
		pid = step_until_through(passing, objects);
		ASSERT_LT(0, pid);
		runner_start(&destroyer, destroy_channel, objects);
		spin_until(runner_is_done(&destroyer) || thread_state(destroyer.tid) == 'S');
		/*
		 * Either destroy waits for the process, or the process no longer accesses the
		 * channel.
		 */
		waits = !runner_is_done(&destroyer);
		if (!waits)
			*objects = freed;
		if (kills) {
			EXPECT_EQ(128 + SIGKILL, kill_child(pid));
		} else {
			ASSERT_EQ(0, ptrace(PTRACE_CONT, pid, NULL, NULL));
			EXPECT_EQ(0, child_status(pid));
		}
		EXPECT_EQ(0, runner_join(&destroyer));
		if (!waits) {
			EXPECT_EQ(0, memcmp(objects, &freed, sizeof(freed)));
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
 * Starts a process that holds the lock for writing and unlocks it in single steps until a reader
 * acquires the lock.
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
		/*
		 * Either destroy waits for the writer, or the writer no longer accesses the lock.
		 */
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

/* One child destroys a channel, and each other child destroys a lock. */
#define CHILDREN	3

static struct {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	struct objects objects;
	struct runner sender;
	struct own_lock {
		memwait_rwlock_t lock;
		struct runner writer, next;
		int locked, may_unlock;
	} locks[CHILDREN - 1];
} own;

static int wait_for_own(void *arg)
{
	(void)arg;
	return memwait_mutex_lock(&own.mutex) ?: memwait_cond_wait(&own.cond, &own.mutex) ?:
	       memwait_mutex_unlock(&own.mutex);
}

/* Returns 0 after a wait whose deadline has passed. */
static int wait_for_nothing(void)
{
	struct timespec passed = { 0 };
	memwait_mutex_t mutex = MEMWAIT_MUTEX_INIT;
	memwait_cond_t cond = MEMWAIT_COND_INIT;

	return memwait_mutex_lock(&mutex) ?:
	       memwait_cond_timedwait(&cond, &mutex, &passed) != ETIMEDOUT;
}

static int unlock_and_stall(void *arg)
{
	struct own_lock *of = arg;
	int ret = memwait_rwlock_wrlock(&of->lock);

	set(&of->locked, 1);
	sleep_until(get(&of->may_unlock));
	stalls = true;
	return ret ?: memwait_rwlock_unlock(&of->lock);
}

static int write_after(void *arg)
{
	struct own_lock *of = arg;

	return memwait_rwlock_wrlock(&of->lock) ?: memwait_rwlock_unlock(&of->lock);
}

/* The sender cannot read this item, which stalls the sender while it copies the item. */
static void *unreadable_item;

static void let_copy(int signal)
{
	stall();
	mprotect(unreadable_item, 4096, PROT_READ);
}

static int send_unreadable(void *arg)
{
	return memwait_channel_send(channel_of(arg), unreadable_item, 8);
}

/*
 * Starts children. Each child destroys its copy of an object in which a thread of the parent is
 * stalled.
 */
static void start_children(struct __test_metadata *_metadata, pid_t *children)
{
	const unsigned int kinds[] = { MEMWAIT_PRIVATE, MEMWAIT_PRIVATE | MEMWAIT_RWLOCK_ROBUST };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(own.locks); i++) {
		struct own_lock *of = &own.locks[i];

		/* Another thread waits at the gate, so that the unlock makes a system call. */
		ASSERT_EQ(0, memwait_rwlock_init(&of->lock, kinds[i]));
		runner_start(&of->writer, unlock_and_stall, of);
		await(&of->locked);
		runner_start(&of->next, write_after, of);
		runner_await_asleep(&of->next);
		set(&of->may_unlock, 1);
	}
	unreadable_item = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, unreadable_item);
	signal(SIGSEGV, let_copy);
	ASSERT_EQ(0, set_up_empty(&own.objects, MEMWAIT_PRIVATE));
	runner_start(&own.sender, send_unreadable, &own.objects);
	spin_until(get(&stalled) == CHILDREN);
	for (i = 0; i < CHILDREN; i++) {
		children[i] = fork_child();
		if (!children[i])
			_exit(i < ARRAY_SIZE(own.locks) ?
			      memwait_rwlock_destroy(&own.locks[i].lock) :
			      destroy_channel(&own.objects));
	}
}

static void join_children(struct __test_metadata *_metadata, const pid_t *children)
{
	size_t i;

	for (i = 0; i < CHILDREN; i++)
		EXPECT_EQ(EBUSY, child_status(children[i]));
	set(&may_continue, 1);
	for (i = 0; i < ARRAY_SIZE(own.locks); i++) {
		EXPECT_EQ(0, runner_join(&own.locks[i].writer));
		EXPECT_EQ(0, runner_join(&own.locks[i].next));
	}
	EXPECT_EQ(0, runner_join(&own.sender));
}

/*
 * Killed waiters never leave, but the death of a robust lock's writer is known. The parent's
 * threads never leave a child's copy of a private object, and never unlock the copy. A child that
 * has waited itself cannot distinguish its own threads from the parent's.
 */
USERLIB_TEST(L8_destroy_does_not_wait_forever_for_killed_waiters)
{
	const unsigned int kinds[] = { 0, MEMWAIT_RWLOCK_ROBUST };
	struct runner destroyers[ARRAY_SIZE(kinds)];
	struct attempt attempts[ARRAY_SIZE(things)];
	struct objects *sets = self->shared;
	memwait_rwlock_t *locks = (void *)&sets[ARRAY_SIZE(things)];
	struct runner waiter;
	pid_t pid, child, children[CHILDREN];
	size_t i;

	start_children(_metadata, children);
	ASSERT_EQ(0, memwait_mutex_init(&own.mutex, MEMWAIT_PRIVATE));
	ASSERT_EQ(0, memwait_cond_init(&own.cond, MEMWAIT_PRIVATE));
	runner_start(&waiter, wait_for_own, NULL);
	runner_await_asleep(&waiter);
	child = fork_child();
	if (!child)
		_exit(wait_for_nothing() ? 90 : memwait_cond_destroy(&own.cond));
	for (i = 0; i < ARRAY_SIZE(attempts); i++) {
		start_process(_metadata, &attempts[i], &things[i], &sets[i], SIGKILL);
		EXPECT_EQ(128 + SIGKILL, child_status(attempts[i].pid));
		runner_start(&attempts[i].destroyer, destroy_it, &attempts[i].use);
		runner_await_asleep(&attempts[i].destroyer);
		EXPECT_FALSE(runner_is_done(&attempts[i].destroyer));
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
	for (i = 0; i < ARRAY_SIZE(attempts); i++)
		EXPECT_EQ(EBUSY, runner_join(&attempts[i].destroyer));
	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		EXPECT_EQ(kinds[i] ? 0 : EBUSY, runner_join(&destroyers[i]));
	EXPECT_EQ(EBUSY, child_status(child));
	join_children(_metadata, children);
	EXPECT_EQ(0, memwait_cond_broadcast(&own.cond));
	EXPECT_EQ(0, runner_join(&waiter));
}

TEST_HARNESS_MAIN
