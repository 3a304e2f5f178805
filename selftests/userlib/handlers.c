// SPDX-License-Identifier: GPL-2.0
/*
 * L12: functions that a signal handler may call. The test sends the signal at each system call of
 * the library, because the thread may hold a lock of the library at that time.
 */
#include "userlib_test.h"
#include "ioctl_test.h"

static void (*handle)(void);
static int calls_left = -1;	/* system calls until the signal; negative: there is no signal */
static int handled;

static void on_signal(int number)
{
	int saved = errno;

	handle();
	/* The functions must not change errno. */
	if (errno != saved)
		abort();
	handled++;
}

static void may_be_interrupted(void)
{
	if (calls_left >= 0 && !calls_left--)
		raise(SIGUSR1);
}

static int intercept(int fd, unsigned long request, void *argument)
{
	int ret;

	may_be_interrupted();
	ret = ioctl_of_kernel(fd, request, argument);
	may_be_interrupted();
	return ret;
}

pid_t gettid(void)
{
	pid_t tid;

	may_be_interrupted();
	tid = (pid_t)syscall(SYS_gettid);
	may_be_interrupted();
	return tid;
}

ssize_t read(int fd, void *buffer, size_t size)
{
	ssize_t ret;

	may_be_interrupted();
	ret = syscall(SYS_read, fd, buffer, size);
	may_be_interrupted();
	return ret;
}

int poll(struct pollfd *fds, nfds_t nr, int timeout)
{
	struct timespec time = { timeout / 1000, timeout % 1000 * 1000000L };

	may_be_interrupted();
	return ppoll(fds, nr, timeout < 0 ? NULL : &time, NULL);
}

/* Sends the signal at the @call-th system call from now. */
static void interrupt_at(int call, void (*handler)(void))
{
	handle = handler;
	handled = 0;
	calls_left = call;
	signal(SIGUSR1, on_signal);
}

static memwait_loop_t *loop_to_stop;

static void stop_it(void)
{
	if (memwait_loop_stop(loop_to_stop))
		abort();
}

struct busy {
	memwait_op_t op;
	uint32_t *word;
	int calls, calls_after;	/* calls of its callback, in total and after the signal */
	int most;		/* number of calls after which the operation does not begin again */
};

/*
 * Begins the operation again and completes it immediately, so that the loop performs all its steps.
 */
static void repeat(memwait_op_t *op, int result, void *data)
{
	struct busy *busy = data;

	busy->calls++;
	busy->calls_after += handled;
	if (busy->calls >= busy->most)
		return;
	if (memwait_wait32_async(busy->word, 0, NULL, 0, op) != MEMWAIT_PENDING ||
	    memwait_notify(busy->word, 1, 0) != 1)
		abort();
}

#define CALLS	60

USERLIB_TEST(L12_stop_in_a_handler_at_any_system_call)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	struct busy busy = { .word = self->shared };
	/* The minimum number of system calls that the loop makes before it sleeps. */
	static const struct {
		int most, calls;
	} loops[] = { { CALLS, CALLS }, { 2, 8 }, { 1, 4 } };
	uint32_t *word = self->shared;
	int call, waits;
	size_t i;

	loop_to_stop = self->loop;
	/*
	 * One operation stays pending, so that only the stop ends a run or a wait for the
	 * operation.
	 */
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word + 1, 0, NULL, 0, &counted.op));
	memwait_op_init(&busy.op, self->loop, repeat, &busy);
	for (i = 0; i < 2 * ARRAY_SIZE(loops); i++) {
		waits = i % 2;
		for (call = 0; call < loops[i / 2].calls; call++) {
			busy.calls = 0;
			busy.calls_after = 0;
			busy.most = loops[i / 2].most;
			ASSERT_EQ(MEMWAIT_PENDING,
				  memwait_wait32_async(word, 0, NULL, 0, &busy.op));
			ASSERT_EQ(1, memwait_notify(word, 1, 0));
			interrupt_at(call, stop_it);
			ASSERT_EQ(waits ? -EINTR : 0, waits ? memwait_op_wait(&counted.op, NULL) :
							      run_loop(self->loop));
			ASSERT_EQ(1, handled);
			EXPECT_GE(1, busy.calls_after);
			if (memwait_op_pending(&busy.op)) {
				ASSERT_EQ(0, memwait_op_cancel(&busy.op));
			}
		}
	}
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, counted.calls);
	/* All stops have had their effect. */
	EXPECT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_FALSE(mw_readable(memwait_loop_fd(self->loop)));
}

/* The interrupted thread begins and cancels an operation while other threads sleep in the loop. */
USERLIB_TEST(L12_stop_in_a_handler_reaches_other_threads)
{
	struct counted_op other = counted_by(&other, self->loop);
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner runners[2];
	uint32_t *word = self->shared;
	int call, i;

	loop_to_stop = self->loop;
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word + 1, 0, NULL, 0, &counted.op));
	for (call = 0; call < 6; call++) {
		for (i = 0; i < 2; i++) {
			runner_start(&runners[i], run_loop, self->loop);
			runner_await_asleep(&runners[i]);
		}
		interrupt_at(call, stop_it);
		while (!handled) {
			ASSERT_EQ(MEMWAIT_PENDING,
				  memwait_wait32_async(word, 0, NULL, 0, &other.op));
			ASSERT_EQ(0, memwait_op_cancel(&other.op));
			ASSERT_EQ(0, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
		}
		for (i = 0; i < 2; i++)
			EXPECT_EQ(0, runner_join(&runners[i]));
	}
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(0, other.calls);
}

struct objects {
	memwait_sem_t sem;
	memwait_cond_t cond;
	memwait_mutex_t mutex;
	memwait_waitgroup_t group;
	memwait_event_t event;
	uint32_t word;
};

static struct objects *objects;

/* Calls all functions that post and notify. */
static void post_and_notify(void)
{
	struct memwait_notify notify = { .addr = (uintptr_t)&objects->word, .count = 1 };

	if (memwait_sem_post(&objects->sem) || memwait_cond_signal(&objects->cond) ||
	    memwait_cond_notify(&objects->cond, 2) || memwait_cond_broadcast(&objects->cond) ||
	    memwait_waitgroup_done(&objects->group) || memwait_event_set(&objects->event) ||
	    memwait_event_clear(&objects->event) || memwait_notify(&objects->word, 1, 0) < 0 ||
	    memwait_notify_many(&notify, 1, NULL) != 1 ||
	    memwait_change_notify32(&objects->word, MEMWAIT_CHANGE_ADD, 1, 1, 0, NULL) < 0)
		abort();
}

/* Waits for each of the objects with a deadline, and uses them. */
static void use_objects(struct __test_metadata *_metadata, memwait_op_t *op)
{
	const struct timespec past = { 0, 0 };
	int ret;

	ret = memwait_sem_timedwait(&objects->sem, &past);
	EXPECT_TRUE(!ret || ret == ETIMEDOUT);
	if (!ret)
		EXPECT_EQ(0, memwait_sem_post(&objects->sem));
	ASSERT_EQ(0, memwait_mutex_lock(&objects->mutex));
	ret = memwait_cond_timedwait(&objects->cond, &objects->mutex, &past);
	EXPECT_TRUE(!ret || ret == ETIMEDOUT);
	ASSERT_EQ(0, memwait_mutex_unlock(&objects->mutex));
	ret = memwait_waitgroup_timedwait(&objects->group, &past);
	EXPECT_EQ(ETIMEDOUT, ret);
	ret = memwait_event_timedwait(&objects->event, &past);
	EXPECT_TRUE(!ret || ret == ETIMEDOUT);
	ret = memwait_sem_wait_async(&objects->sem, op);
	if (ret == EINPROGRESS) {
		EXPECT_EQ(0, memwait_op_cancel(op));
	} else {
		EXPECT_EQ(0, ret);
		EXPECT_EQ(0, memwait_sem_post(&objects->sem));
	}
}

USERLIB_TEST(L12_posts_and_notifies_in_a_handler_at_any_system_call)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	int call, value;

	objects = self->shared;
	ASSERT_EQ(0, memwait_sem_init(&objects->sem, 0, 0));
	ASSERT_EQ(0, memwait_waitgroup_init(&objects->group, 0, CALLS + 2));
	for (call = 0; call < CALLS; call++) {
		interrupt_at(call, post_and_notify);
		while (!handled)
			use_objects(_metadata, &counted.op);
	}
	EXPECT_EQ(0, counted.calls);
	EXPECT_EQ(0, memwait_sem_getvalue(&objects->sem, &value));
	EXPECT_EQ(CALLS, value);
	EXPECT_EQ(CALLS, objects->word);
	EXPECT_EQ(2 * CALLS, objects->event.reserved[0]);
	EXPECT_EQ(0, memwait_waitgroup_add(&objects->group, -2));
	EXPECT_EQ(0, memwait_waitgroup_destroy(&objects->group));
	EXPECT_EQ(0, memwait_cond_destroy(&objects->cond));
	EXPECT_EQ(0, memwait_sem_destroy(&objects->sem));
}

static pid_t forked;

static void fork_here(void)
{
	forked = fork_child();
}

struct forking {
	int call;			/* number of the system call in which it forks */
	uint64_t *parents;		/* id of the parent, for the child */
};

/* Returns whether the child has an id of its own. */
static bool has_own_id(uint64_t id, const uint64_t *parents)
{
	uint64_t again;

	sleep_until(__atomic_load_n(parents, __ATOMIC_ACQUIRE));
	return id != *parents && !memwait_owner(&again) && id == again;
}

/*
 * The signal handler forks inside memwait_owner(); the parent and the child both return from it,
 * with different ids.
 */
static int get_id(void *arg)
{
	struct forking *forking = arg;
	uint64_t id;

	interrupt_at(forking->call, fork_here);
	if (memwait_owner(&id))
		return -1;
	if (!forked)
		_exit(!has_own_id(id, forking->parents));
	__atomic_store_n(forking->parents, id, __ATOMIC_RELEASE);
	return child_status(forked);
}

/*
 * The handler forks during the lock call. Both processes return from the call; each has its own
 * copy of the mutex.
 */
static int fork_while_locking(void *arg)
{
	struct forking *forking = arg;
	memwait_mutex_t mutex;
	int ret = memwait_mutex_init(&mutex, MEMWAIT_MUTEX_ERRORCHECK);

	if (ret)
		return ret;
	interrupt_at(forking->call, fork_here);
	ret = memwait_mutex_lock(&mutex) ?: memwait_mutex_unlock(&mutex);
	if (!forked)
		_exit(ret);
	return ret ?: child_status(forked);
}

USERLIB_TEST(L10_a_handler_forks_within_a_call)
{
	int (* const functions[])(void *) = { get_id, fork_while_locking };
	struct forking forking = { .parents = self->shared };
	struct runner runner;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		for (forking.call = 0; forking.call < 2; forking.call++) {
			*forking.parents = 0;
			/* A new thread has no id yet. */
			runner_start(&runner, functions[i], &forking);
			EXPECT_EQ(0, runner_join(&runner)) {
				TH_LOG("function %zu, call %d", i, forking.call);
			}
			EXPECT_EQ(1, handled);
		}
	}
}

static int lock_and_unlock_there(void *arg)
{
	memwait_mutex_t *mutex = arg;
	int ret = memwait_mutex_lock(mutex) ?: memwait_mutex_unlock(mutex);

	if (!forked)
		_exit(ret);
	return ret ?: child_status(forked);
}

/* The kernel restarts the call in both processes with the parent's id. */
USERLIB_TEST(L10_a_handler_forks_within_a_sleep)
{
	const unsigned int kinds[] = { MEMWAIT_MUTEX_NORMAL, MEMWAIT_MUTEX_ROBUST };
	const struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	memwait_mutex_t *mutex = self->shared;
	struct runner runner;
	size_t i;

	handle = fork_here;
	ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		forked = -1;
		handled = 0;
		ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[i]));
		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		runner_start(&runner, lock_and_unlock_there, mutex);
		runner_await_asleep(&runner);
		ASSERT_EQ(0, pthread_kill(runner.thread, SIGUSR1));
		spin_until(__atomic_load_n(&handled, __ATOMIC_ACQUIRE));
		ASSERT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, runner_join(&runner));
	}
}

TEST_HARNESS_MAIN
