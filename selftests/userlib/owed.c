// SPDX-License-Identifier: GPL-2.0
/*
 * L2: a wake-up that fails, for example because the program has closed the descriptor and can open
 * no other. Either the call had no effect, or the object records the owed wake-up, and the next
 * operation wakes the waiters.
 */
#include "userlib_test.h"
#include "ioctl_test.h"

/*
 * All ioctls of this thread fail, or all except INFO, so that the library still finds the device.
 */
static __thread bool fails, answers_info;
/* All ioctls that wake a waiter fail. */
static __thread bool cannot_wake;
/* All ioctls that make a thread wait fail. */
static __thread bool cannot_wait;
/* After the notify of this thread, and after the end of @unmapped_by, the page is unmapped. */
static __thread void *unmapped;
static struct runner unmapped_by;
/* The ioctl that gives a thread an id fails. */
static __thread bool cannot_identify;
/* The thread is stalled after one ioctl, and then cannot wake any waiter. */
static __thread int *stalls;
static __thread unsigned long stalls_after;
/* The thread is stalled before its first wait: it sets the flag to 2 and waits until it is 0. */
static __thread int *stalls_before_wait;

static int intercept(int fd, unsigned long request, void *argument)
{
	bool allowed = true;
	int ret;

	if (stalls_before_wait && request == MEMWAIT_IOC_WAIT) {
		__atomic_store_n(stalls_before_wait, 2, __ATOMIC_RELEASE);
		spin_until(!__atomic_load_n(stalls_before_wait, __ATOMIC_ACQUIRE));
		stalls_before_wait = NULL;
	}
	if (stalls && request == stalls_after) {
		ret = ioctl_of_kernel(fd, request, argument);
		spin_until(!__atomic_load_n(stalls, __ATOMIC_ACQUIRE));
		stalls = NULL;
		cannot_wake = true;
		return ret;
	}
	if (unmapped && request == MEMWAIT_IOC_NOTIFY) {
		ioctl_of_kernel(fd, request, argument);
		sleep_until(runner_is_done(&unmapped_by));
		munmap(unmapped, 4096);
		unmapped = NULL;
	}
	if (cannot_identify && request == MEMWAIT_IOC_OWNER)
		allowed = ((struct memwait_owner *)argument)->flags;
	if (cannot_identify ? allowed :
	    cannot_wait ? request != MEMWAIT_IOC_WAIT :
	    cannot_wake ? request != MEMWAIT_IOC_NOTIFY && request != MEMWAIT_IOC_CHANGE_NOTIFY :
			  !fails || (answers_info && request == MEMWAIT_IOC_INFO))
		return ioctl_of_kernel(fd, request, argument);
	errno = EMFILE;
	return -1;
}

static const unsigned int kinds[] = {
	MEMWAIT_MUTEX_NORMAL, MEMWAIT_PRIVATE,
	MEMWAIT_MUTEX_FAIR, MEMWAIT_MUTEX_FAIR | MEMWAIT_PRIVATE,
	MEMWAIT_MUTEX_RECURSIVE, MEMWAIT_MUTEX_ERRORCHECK | MEMWAIT_PRIVATE,
	MEMWAIT_MUTEX_ROBUST, MEMWAIT_MUTEX_ROBUST | MEMWAIT_PRIVATE,
};

/* Does the next operation on the mutex, which acquires the mutex. */
static int lock_next(memwait_mutex_t *mutex, int how, memwait_loop_t *loop)
{
	struct timespec later = in_time(CLOCK_MONOTONIC, 3600 * 1000);
	struct counted_op counted = { 0 };
	int ret;

	switch (how) {
	case 0:
		return memwait_mutex_lock(mutex);
	case 1:
		return memwait_mutex_trylock(mutex);
	case 2:
		return memwait_mutex_clocklock(mutex, CLOCK_MONOTONIC, &later);
	default:
		memwait_op_init(&counted.op, loop, count_call, &counted);
		ret = memwait_mutex_lock_async(mutex, &counted.op);
		if (ret == EINPROGRESS)
			ret = dispatch_until(loop, &counted.calls, 1) ?: counted.result;
		return ret;
	}
}

USERLIB_TEST(L2_the_next_operation_does_an_unlocks_missed_wake_up)
{
	memwait_mutex_t *mutex = self->shared;
	struct runner waiters[2];
	int ret, how;
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		for (how = 0; how < 4; how++) {
			ASSERT_EQ(0, memwait_mutex_init(mutex, kinds[i]));
			ASSERT_EQ(0, memwait_mutex_lock(mutex));
			for (j = 0; j < ARRAY_SIZE(waiters); j++) {
				runner_start(&waiters[j], lock_and_unlock, mutex);
				while (memwait_waiters(sleep_word(mutex, kinds[i]),
						       kinds[i] & MEMWAIT_PRIVATE) <= (int)j)
					usleep(100);
			}
			fails = true;
			ret = memwait_mutex_unlock(mutex);
			fails = false;
			EXPECT_EQ(EMFILE, ret);
			TH_LOG("kind 0x%x, by operation %d", kinds[i], how);
			EXPECT_EQ(0, lock_next(mutex, how, self->loop));
			EXPECT_EQ(0, memwait_mutex_unlock(mutex));
			for (j = 0; j < ARRAY_SIZE(waiters); j++)
				EXPECT_EQ(0, runner_join(&waiters[j]));
			EXPECT_EQ(0, memwait_mutex_destroy(mutex));
		}
	}
}

USERLIB_TEST(L2_the_next_operation_does_a_cond_waits_missed_wake_up)
{
	struct {
		memwait_mutex_t mutex;
		memwait_cond_t cond;
	} *both = self->shared;
	struct runner waiter;
	size_t i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		TH_LOG("kind 0x%x", kinds[i]);
		ASSERT_EQ(0, memwait_mutex_init(&both->mutex, kinds[i]));
		ASSERT_EQ(0, memwait_cond_init(&both->cond, kinds[i] & MEMWAIT_PRIVATE));
		ASSERT_EQ(0, memwait_mutex_lock(&both->mutex));
		runner_start(&waiter, lock_and_unlock, &both->mutex);
		sleep_until(memwait_waiters(sleep_word(&both->mutex, kinds[i]),
					    kinds[i] & MEMWAIT_PRIVATE));
		fails = true;
		ret = memwait_cond_wait(&both->cond, &both->mutex);
		fails = false;
		EXPECT_EQ(EMFILE, ret);
		EXPECT_EQ(0, memwait_mutex_unlock(&both->mutex));
		EXPECT_EQ(0, runner_join(&waiter));
		EXPECT_EQ(0, memwait_cond_destroy(&both->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&both->mutex));
	}
}

/* The ioctl that counts the waiters succeeds, and the ioctl that wakes them fails. */
USERLIB_TEST(L2_the_next_operation_does_a_robust_unlocks_missed_wake_up)
{
	memwait_mutex_t *mutex = self->shared;
	struct runner waiter;
	int how;

	for (how = 0; how < 8; how++) {
		unsigned int kind = MEMWAIT_MUTEX_ROBUST | (how / 4 ? MEMWAIT_PRIVATE : 0);

		TH_LOG("kind 0x%x, by operation %d", kind, how % 4);
		ASSERT_EQ(0, memwait_mutex_init(mutex, kind));
		ASSERT_EQ(0, memwait_mutex_lock(mutex));
		runner_start(&waiter, lock_and_unlock, mutex);
		sleep_until(memwait_waiters(mutex, kind & MEMWAIT_PRIVATE));
		cannot_wake = true;
		EXPECT_EQ(EMFILE, memwait_mutex_unlock(mutex));
		cannot_wake = false;
		EXPECT_EQ(0, lock_next(mutex, how % 4, self->loop));
		EXPECT_EQ(0, memwait_mutex_unlock(mutex));
		EXPECT_EQ(0, runner_join(&waiter));
		EXPECT_EQ(0, memwait_mutex_destroy(mutex));
	}
}

/*
 * The mutex was unlocked while inconsistent. The next caller that detects that it is not
 * recoverable wakes all other waiters.
 */
USERLIB_TEST(L2_the_next_lock_wakes_waiters_of_a_mutex_not_recoverable)
{
	memwait_mutex_t *mutex = self->shared;
	struct runner waiters[2];
	int i;

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	if (!fork_child())
		_exit(memwait_mutex_lock(mutex));
	wait(NULL);
	ASSERT_EQ(EOWNERDEAD, memwait_mutex_lock(mutex));
	for (i = 0; i < 2; i++) {
		runner_start(&waiters[i], memwait_mutex_lock, mutex);
		sleep_until(memwait_waiters(mutex, 0) > i);
	}
	cannot_wake = true;
	EXPECT_EQ(EMFILE, memwait_mutex_unlock(mutex));
	cannot_wake = false;
	EXPECT_EQ(ENOTRECOVERABLE, memwait_mutex_lock(mutex));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(ENOTRECOVERABLE, runner_join(&waiters[i]));
	EXPECT_EQ(0, memwait_mutex_destroy(mutex));
}

/* A loop has its own descriptor, so an operation may work although the thread cannot wait. */
USERLIB_TEST(L2_an_operation_gets_eownerdead_where_its_thread_cannot_wait)
{
	memwait_mutex_t *mutex = self->shared;

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(0, memwait_mutex_unlock(mutex));
	if (!fork_child())
		_exit(memwait_mutex_lock(mutex));
	wait(NULL);
	cannot_wait = true;
	EXPECT_EQ(EOWNERDEAD, lock_next(mutex, 3, self->loop));
	cannot_wait = false;
	EXPECT_EQ(0, memwait_mutex_consistent(mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
}

/* The next owner may free the mutex before the notify of the previous owner. */
USERLIB_TEST(L8_an_unlock_succeeds_although_the_memory_is_gone)
{
	memwait_mutex_t *mutex = shared_page(4096);

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	runner_start(&unmapped_by, lock_and_unlock, mutex);
	await_waiters(self->fd, mutex, U32_SIZE, 1);
	unmapped = mutex;
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	EXPECT_EQ(NULL, unmapped);
	EXPECT_EQ(0, runner_join(&unmapped_by));
}

static int dispatch_without_id(void *loop)
{
	cannot_identify = true;
	return memwait_loop_dispatch(loop, MEMWAIT_ALL);
}

struct beginning {
	memwait_mutex_t *mutex;
	memwait_op_t *op;
};

static int begin_lock(struct beginning *beginning)
{
	return memwait_mutex_lock_async(beginning->mutex, beginning->op);
}

/* Only a thread with an id can own the mutex. The wake-up of the operation passes to the thread. */
USERLIB_TEST(L2_an_operation_that_cannot_own_the_mutex_passes_it_on)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	memwait_mutex_t *mutex = self->shared;
	struct beginning beginning = { mutex, &counted.op };
	struct runner behind;

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_RECURSIVE));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	/* Another thread begins it: for this thread the mutex is recursive. */
	ASSERT_EQ(EINPROGRESS, elsewhere(begin_lock, &beginning));
	runner_start(&behind, lock_and_unlock, mutex);
	await_waiters(self->fd, mutex, U32_SIZE, 2);
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	EXPECT_EQ(1, elsewhere(dispatch_without_id, self->loop));
	EXPECT_EQ(EMFILE, counted.result);
	EXPECT_EQ(0, runner_join(&behind));
	EXPECT_EQ(0, memwait_mutex_destroy(mutex));
}

USERLIB_TEST(L2_a_post_that_cannot_wake_is_not_done)
{
	memwait_sem_t *sem = self->shared;
	struct runner waiters[2];
	int pshared, value, i;

	for (pshared = 0; pshared < 2; pshared++) {
		ASSERT_EQ(0, memwait_sem_init(sem, pshared ? 0 : MEMWAIT_PRIVATE, 0));
		for (i = 0; i < 2; i++) {
			runner_start(&waiters[i], memwait_sem_wait, sem);
			sleep_until(memwait_waiters(sem, pshared ? 0 : MEMWAIT_PRIVATE) > i);
		}
		fails = true;
		EXPECT_EQ(EMFILE, memwait_sem_post(sem));
		fails = false;
		EXPECT_EQ(0, memwait_sem_getvalue(sem, &value));
		EXPECT_EQ(0, value);
		EXPECT_EQ(0, memwait_sem_post(sem));
		EXPECT_EQ(0, memwait_sem_post(sem));
		for (i = 0; i < 2; i++)
			EXPECT_EQ(0, runner_join(&waiters[i]));
		EXPECT_EQ(0, memwait_sem_destroy(sem));
	}
}

/* Later posts reach the maximum, and not one less. */
USERLIB_TEST(L2_a_failed_post_of_a_fair_semaphore_does_not_count)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	memwait_sem_t *sem = self->shared;
	int i, value;

	ASSERT_EQ(0, memwait_sem_init(sem, MEMWAIT_SEM_FAIR, 0));
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &counted.op));
	cannot_wake = true;
	EXPECT_EQ(EMFILE, memwait_sem_post(sem));
	cannot_wake = false;
	ASSERT_EQ(0, memwait_op_cancel(&counted.op));
	for (i = 0; i < MEMWAIT_SEM_FAIR_VALUE_MAX; i++)
		ASSERT_EQ(0, memwait_sem_post(sem));
	EXPECT_EQ(EOVERFLOW, memwait_sem_post(sem));
	ASSERT_EQ(0, memwait_sem_getvalue(sem, &value));
	EXPECT_EQ(MEMWAIT_SEM_FAIR_VALUE_MAX, value);
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

static int wait_and_be_stalled(memwait_sem_t *sem, int *flag)
{
	stalls = flag;
	stalls_after = MEMWAIT_IOC_WAIT;
	return memwait_sem_wait(sem);
}

/*
 * Two posts wake two waiters, and the kernel watches only the second. The first waiter dies before
 * it takes its post. The second waiter finds that a post is left, and wakes the third.
 */
USERLIB_TEST(L7_a_post_of_a_waiter_that_died_reaches_another)
{
	int *flag = (int *)((char *)self->shared + 4096), i, value;
	memwait_sem_t *sem = self->shared;
	struct runner waiters[2];
	pid_t child;

	ASSERT_EQ(0, memwait_sem_init(sem, 0, 0));
	*flag = 1;
	child = run_in_child(wait_and_be_stalled(sem, flag));
	await_waiters(self->fd, sem, U32_SIZE, 1);
	for (i = 0; i < 2; i++) {
		runner_start(&waiters[i], memwait_sem_wait, sem);
		await_waiters(self->fd, sem, U32_SIZE, 2 + i);
	}
	EXPECT_EQ(0, memwait_sem_post(sem));
	await_waiters(self->fd, sem, U32_SIZE, 2);
	EXPECT_EQ(0, memwait_sem_post(sem));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, runner_join(&waiters[i]));
	EXPECT_EQ(128 + SIGKILL, kill_child(child));
	ASSERT_EQ(0, memwait_sem_getvalue(sem, &value));
	EXPECT_EQ(0, value);
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

/* The event is set, and the next set wakes the waiters. */
USERLIB_TEST(L2_the_next_set_does_an_events_missed_wake_up)
{
	memwait_event_t *event = self->shared;
	struct runner waiters[2];
	unsigned int flags;
	int i;

	for (flags = 0; flags <= MEMWAIT_PRIVATE; flags += MEMWAIT_PRIVATE) {
		ASSERT_EQ(0, memwait_event_init(event, flags));
		for (i = 0; i < 2; i++) {
			runner_start(&waiters[i], memwait_event_wait, event);
			sleep_until(memwait_waiters(event, flags) > i);
		}
		fails = true;
		answers_info = true;
		EXPECT_EQ(EMFILE, memwait_event_set(event));
		fails = false;
		EXPECT_EQ(1, memwait_event_is_set(event));
		EXPECT_EQ(0, memwait_event_wait(event));
		EXPECT_EQ(0, memwait_event_set(event));
		for (i = 0; i < 2; i++)
			EXPECT_EQ(0, runner_join(&waiters[i]));
		EXPECT_EQ(0, memwait_event_destroy(event));
	}
}

static const unsigned int rwlock_kinds[] = {
	MEMWAIT_RWLOCK_PREFER_READER, MEMWAIT_RWLOCK_PREFER_READER | MEMWAIT_PRIVATE,
	MEMWAIT_RWLOCK_PREFER_WRITER, MEMWAIT_RWLOCK_PREFER_WRITER | MEMWAIT_PRIVATE,
	MEMWAIT_RWLOCK_FAIR, MEMWAIT_RWLOCK_FAIR | MEMWAIT_PRIVATE,
	MEMWAIT_RWLOCK_ROBUST, MEMWAIT_RWLOCK_ROBUST | MEMWAIT_RWLOCK_PREFER_WRITER,
};

ADAPTER(read_and_unlock, void *arg, memwait_rwlock_rdlock(arg) ?: memwait_rwlock_unlock(arg))
ADAPTER(write_and_unlock, void *arg, memwait_rwlock_wrlock(arg) ?: memwait_rwlock_unlock(arg))

/* The next operation. A call that does not wait may fail because waiters are ahead of it. */
enum { READ, TRY_READ, READ_TIMED, READ_ASYNC, WRITE, TRY_WRITE, WRITE_TIMED, WRITE_ASYNC, WAYS };

static int use_rwlock(memwait_rwlock_t *lock, int way, memwait_loop_t *loop)
{
	struct timespec later = in_time(CLOCK_MONOTONIC, 3600 * 1000);
	struct counted_op counted = { 0 };
	int ret;

	switch (way) {
	case READ:
		ret = memwait_rwlock_rdlock(lock);
		break;
	case TRY_READ:
		ret = memwait_rwlock_tryrdlock(lock);
		break;
	case READ_TIMED:
		ret = memwait_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &later);
		break;
	case WRITE:
		ret = memwait_rwlock_wrlock(lock);
		break;
	case TRY_WRITE:
		ret = memwait_rwlock_trywrlock(lock);
		break;
	case WRITE_TIMED:
		ret = memwait_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, &later);
		break;
	default:
		memwait_op_init(&counted.op, loop, count_call, &counted);
		ret = way == READ_ASYNC ? memwait_rwlock_rdlock_async(lock, &counted.op) :
					  memwait_rwlock_wrlock_async(lock, &counted.op);
		if (ret == EINPROGRESS)
			ret = dispatch_until(loop, &counted.calls, 1) ?: counted.result;
	}
	if (ret == EBUSY && (way == TRY_READ || way == TRY_WRITE))
		return 0;
	return ret ? ret : memwait_rwlock_unlock(lock);
}

USERLIB_TEST(L2_the_next_operation_does_a_rwlock_unlocks_missed_wake_up)
{
	memwait_rwlock_t *lock = self->shared;
	struct runner waiters[2];
	int way, again, ret;
	bool write;
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(rwlock_kinds); i++) {
		for (way = 0; way < 4 * WAYS; way++) {
			write = way >= 2 * WAYS;
			TH_LOG("kind 0x%x, way %d", rwlock_kinds[i], way);
			ASSERT_EQ(0, memwait_rwlock_init(lock, rwlock_kinds[i]));
			ASSERT_EQ(0, write ? memwait_rwlock_wrlock(lock) :
					     memwait_rwlock_rdlock(lock));
			for (j = 0; j < ARRAY_SIZE(waiters); j++) {
				runner_start(&waiters[j], write && j ? read_and_unlock :
								       write_and_unlock, lock);
				runner_await_asleep(&waiters[j]);
			}
			fails = true;
			answers_info = way / WAYS % 2;
			EXPECT_EQ(EMFILE, memwait_rwlock_unlock(lock));
			/*
			 * If a call cannot wake waiters either, it leaves the wake-up to the next
			 * call.
			 */
			for (again = TRY_READ; way / WAYS % 2 && again < WAYS; again++) {
				if (again == TRY_READ || again == TRY_WRITE) {
					ret = use_rwlock(lock, again, self->loop);
					EXPECT_TRUE(!ret || ret == EMFILE);
				}
			}
			fails = false;
			EXPECT_EQ(0, use_rwlock(lock, way % WAYS, self->loop));
			for (j = 0; j < ARRAY_SIZE(waiters); j++)
				EXPECT_EQ(0, runner_join(&waiters[j]));
			/* No wake-up is owed any longer. */
			EXPECT_EQ(0, memwait_rwlock_trywrlock(lock));
			EXPECT_EQ(0, memwait_rwlock_unlock(lock));
			EXPECT_EQ(0, memwait_rwlock_destroy(lock));
		}
	}
}

/*
 * The library can ask for sleepers, but cannot wake them. Later, a reader that does not take the
 * gate wakes them.
 */
USERLIB_TEST(L2_a_writer_that_can_only_ask_for_sleepers_owes_them_a_wake_up)
{
	memwait_rwlock_t *lock = self->shared;
	struct runner waiter;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rwlock_kinds); i++) {
		TH_LOG("kind 0x%x", rwlock_kinds[i]);
		ASSERT_EQ(0, memwait_rwlock_init(lock, rwlock_kinds[i]));
		ASSERT_EQ(0, memwait_rwlock_wrlock(lock));
		runner_start(&waiter, read_and_unlock, lock);
		runner_await_asleep(&waiter);
		cannot_wake = true;
		EXPECT_EQ(EMFILE, memwait_rwlock_unlock(lock));
		cannot_wake = false;
		EXPECT_EQ(0, memwait_rwlock_rdlock(lock));
		EXPECT_EQ(0, memwait_rwlock_unlock(lock));
		EXPECT_EQ(0, runner_join(&waiter));
		EXPECT_EQ(0, memwait_rwlock_destroy(lock));
	}
}

/* A waiter that was not woken is still waiting, and a lock with a waiter is not destroyed. */
USERLIB_TEST(L2_a_read_write_lock_that_owes_a_wake_up_is_busy)
{
	memwait_rwlock_t *lock = self->shared;
	struct runner writer;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rwlock_kinds); i++) {
		TH_LOG("kind 0x%x", rwlock_kinds[i]);
		ASSERT_EQ(0, memwait_rwlock_init(lock, rwlock_kinds[i]));
		ASSERT_EQ(0, memwait_rwlock_rdlock(lock));
		runner_start(&writer, write_and_unlock, lock);
		runner_await_asleep(&writer);
		fails = true;
		EXPECT_EQ(EMFILE, memwait_rwlock_unlock(lock));
		EXPECT_EQ(EMFILE, memwait_rwlock_destroy(lock));
		fails = false;
		EXPECT_EQ(EBUSY, memwait_rwlock_destroy(lock));
		EXPECT_EQ(0, runner_join(&writer));
		EXPECT_EQ(0, memwait_rwlock_destroy(lock));
	}
}

USERLIB_TEST(L2_a_done_that_cannot_wake_is_not_done)
{
	memwait_waitgroup_t *group = self->shared;
	struct runner waiters[2];
	unsigned int flags;
	int i;

	answers_info = true;
	for (flags = 0; flags <= MEMWAIT_PRIVATE; flags += MEMWAIT_PRIVATE) {
		ASSERT_EQ(0, memwait_waitgroup_init(group, flags, 1));
		for (i = 0; i < 2; i++) {
			runner_start(&waiters[i], memwait_waitgroup_wait, group);
			runner_await_asleep(&waiters[i]);
		}
		fails = true;
		EXPECT_EQ(EMFILE, memwait_waitgroup_done(group));
		EXPECT_EQ(EBUSY, memwait_waitgroup_destroy(group));
		/* Calls that have no waiter to wake still succeed. */
		EXPECT_EQ(0, memwait_waitgroup_add(group, 1));
		EXPECT_EQ(0, memwait_waitgroup_done(group));
		EXPECT_EQ(EMFILE, memwait_waitgroup_done(group));
		fails = false;
		EXPECT_EQ(0, memwait_waitgroup_done(group));
		for (i = 0; i < 2; i++)
			EXPECT_EQ(0, runner_join(&waiters[i]));
		EXPECT_EQ(0, memwait_waitgroup_destroy(group));
	}
}

static int meet(void *arg)
{
	int ret = memwait_barrier_wait(arg);

	return ret == MEMWAIT_BARRIER_SERIAL_THREAD ? 0 : ret;
}

/* The participant has not arrived, and can call again. */
USERLIB_TEST(L2_a_last_arrival_that_cannot_wake_has_not_arrived)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = { 0 };
	struct runner waiters[2];
	int way, i;

	for (way = 0; way < 8; way++) {
		TH_LOG("way %d", way);
		ASSERT_EQ(0, memwait_barrier_init(barrier, way & 1 ? MEMWAIT_PRIVATE : 0, 3));
		for (i = 0; i < 2; i++) {
			runner_start(&waiters[i], meet, barrier);
			runner_await_asleep(&waiters[i]);
		}
		fails = !(way & 4);
		cannot_wake = way & 4;
		answers_info = true;
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		for (i = 0; i < 3; i++) {
			EXPECT_EQ(EMFILE, way & 2 ?
				  memwait_barrier_wait_async(barrier, &counted.op) :
				  memwait_barrier_wait(barrier));
		}
		fails = false;
		cannot_wake = false;
		EXPECT_EQ(0, meet(barrier));
		for (i = 0; i < 2; i++)
			EXPECT_EQ(0, runner_join(&waiters[i]));
		EXPECT_EQ(0, counted.calls);
		EXPECT_EQ(0, memwait_barrier_destroy(barrier));
	}
}

struct both {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
};

static int wait_once(void *arg)
{
	struct both *both = arg;
	int ret = memwait_mutex_lock(&both->mutex) ?: memwait_cond_wait(&both->cond, &both->mutex);

	return ret ? ret : memwait_mutex_unlock(&both->mutex);
}

/* The next operation. */
enum { SIGNAL, BROADCAST, WAIT, WAIT_ASYNC, DESTROY, COND_WAYS };

static int use_cond(struct both *both, int way, memwait_loop_t *loop)
{
	struct timespec soon = in_time(CLOCK_MONOTONIC, 1);
	struct counted_op counted = { 0 };
	int ret = 0;

	if (way == WAIT || way == WAIT_ASYNC)
		ret = memwait_mutex_lock(&both->mutex);
	if (ret)
		return ret;
	switch (way) {
	case SIGNAL:
		return memwait_cond_signal(&both->cond);
	case BROADCAST:
		return memwait_cond_broadcast(&both->cond);
	case WAIT:
		ret = memwait_cond_clockwait(&both->cond, &both->mutex, CLOCK_MONOTONIC, &soon);
		ret = ret == ETIMEDOUT ? 0 : ret;
		return ret ? ret : memwait_mutex_unlock(&both->mutex);
	case WAIT_ASYNC:
		memwait_op_init(&counted.op, loop, count_call, &counted);
		ret = memwait_cond_wait_async(&both->cond, &both->mutex, &counted.op);
		return ret == EINPROGRESS ? memwait_op_cancel(&counted.op) : ret;
	default:
		return memwait_cond_destroy(&both->cond);
	}
}

USERLIB_TEST(L2_the_next_call_does_a_signals_missed_wake_up)
{
	struct both *both = self->shared;
	struct runner waiters[2];
	unsigned int flags;
	int way, n, i;

	for (n = 0; n < 4 * COND_WAYS; n++) {
		way = n % COND_WAYS;
		flags = n / COND_WAYS % 2 ? MEMWAIT_PRIVATE : 0;
		TH_LOG("flags 0x%x, %s, way %d", flags, n < 2 * COND_WAYS ? "signal" : "broadcast",
		       way);
		ASSERT_EQ(0, memwait_mutex_init(&both->mutex, flags));
		ASSERT_EQ(0, memwait_cond_init(&both->cond, flags));
		for (i = 0; i < 2; i++) {
			runner_start(&waiters[i], wait_once, both);
			runner_await_asleep(&waiters[i]);
		}
		fails = true;
		answers_info = true;
		if (n < 2 * COND_WAYS) {
			EXPECT_EQ(EMFILE, memwait_cond_signal(&both->cond));
		} else {
			EXPECT_EQ(EMFILE, memwait_cond_broadcast(&both->cond));
		}
		/* If a call cannot wake waiters either, it leaves the wake-up to the next call. */
		EXPECT_EQ(EMFILE, memwait_cond_signal(&both->cond));
		EXPECT_EQ(EMFILE, memwait_cond_destroy(&both->cond));
		fails = false;
		EXPECT_EQ(0, use_cond(both, way, self->loop));
		for (i = 0; i < 2; i++)
			EXPECT_EQ(0, runner_join(&waiters[i]));
		EXPECT_EQ(0, memwait_cond_destroy(&both->cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&both->mutex));
	}
}

/* A thread that has unlocked the mutex and is about to sleep. */
struct late_sleeper {
	struct both both;
	int still;
};

static int sleep_late(void *arg)
{
	struct late_sleeper *late = arg;
	struct timespec end = in_time(CLOCK_MONOTONIC, 20 * 1000);
	int ret;

	must(memwait_mutex_lock(&late->both.mutex));
	stalls_before_wait = &late->still;
	ret = memwait_cond_clockwait(&late->both.cond, &late->both.mutex, CLOCK_MONOTONIC, &end);
	must(memwait_mutex_unlock(&late->both.mutex));
	return ret;
}

/* A call that comes before the thread sleeps performs the owed wake-up. */
USERLIB_TEST(L2_a_missed_wake_up_reaches_a_waiter_about_to_sleep)
{
	static const struct timespec past;
	struct late_sleeper *late = self->shared;
	struct runner sleeper;
	unsigned int flags;
	int n;

	for (n = 0; n < 4; n++) {
		flags = n & 1 ? MEMWAIT_PRIVATE : 0;
		ASSERT_EQ(0, memwait_mutex_init(&late->both.mutex, flags));
		ASSERT_EQ(0, memwait_cond_init(&late->both.cond, flags));
		__atomic_store_n(&late->still, 1, __ATOMIC_RELEASE);
		runner_start(&sleeper, sleep_late, late);
		sleep_until(__atomic_load_n(&late->still, __ATOMIC_ACQUIRE) == 2);
		fails = true;
		EXPECT_EQ(EMFILE, n & 2 ? memwait_cond_broadcast(&late->both.cond) :
					  memwait_cond_signal(&late->both.cond));
		fails = false;
		ASSERT_EQ(0, memwait_mutex_lock(&late->both.mutex));
		EXPECT_EQ(ETIMEDOUT, memwait_cond_clockwait(&late->both.cond, &late->both.mutex,
							    CLOCK_MONOTONIC, &past));
		ASSERT_EQ(0, memwait_mutex_unlock(&late->both.mutex));
		__atomic_store_n(&late->still, 0, __ATOMIC_RELEASE);
		EXPECT_EQ(0, runner_join(&sleeper));
		EXPECT_EQ(0, memwait_cond_destroy(&late->both.cond));
		EXPECT_EQ(0, memwait_mutex_destroy(&late->both.mutex));
	}
}

/* A thread that is stalled after it has slept. */
struct leaver {
	memwait_waitgroup_t group;
	int still;
};

static int wait_and_stall(void *arg)
{
	struct leaver *leaver = arg;

	stalls_after = MEMWAIT_IOC_WAIT;
	stalls = &leaver->still;
	return memwait_waitgroup_wait(&leaver->group);
}

/* The last waiter leaves and cannot wake the destroyer, which sleeps until it checks by itself. */
USERLIB_TEST(L8_destroy_notices_a_last_waiter_that_cannot_wake_it)
{
	struct leaver *leaver = self->shared;
	struct runner waiter, destroyer;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, memwait_waitgroup_init(&leaver->group, i ? 0 : MEMWAIT_PRIVATE, 1));
		leaver->still = 1;
		runner_start(&waiter, wait_and_stall, leaver);
		runner_await_asleep(&waiter);
		EXPECT_EQ(0, memwait_waitgroup_done(&leaver->group));
		runner_start(&destroyer, memwait_waitgroup_destroy, &leaver->group);
		runner_await_asleep(&destroyer);
		__atomic_store_n(&leaver->still, 0, __ATOMIC_RELEASE);
		EXPECT_EQ(0, runner_join(&waiter));
		EXPECT_EQ(0, runner_join(&destroyer));
	}
}

#define CAPACITY	2

struct transfer {
	memwait_channel_t *channel;
	int still;			/* state of the stalled thread */
	uint64_t item;
};

static int send_one(void *arg)
{
	struct transfer *transfer = arg;

	return memwait_channel_send(transfer->channel, &transfer->item, sizeof(transfer->item));
}

static int receive_one(void *arg)
{
	struct transfer *transfer = arg;

	return memwait_channel_recv(transfer->channel, &transfer->item, sizeof(transfer->item));
}

/* Initialises an empty or full channel, with a thread that waits for the other side. */
static int begin_waiting(memwait_channel_t *channel, unsigned int flags, bool full,
			 struct runner *waiter, struct transfer *transfer)
{
	int ret = memwait_channel_init(channel, SHARED_SIZE, flags, sizeof(uint64_t), CAPACITY);
	uint64_t i;

	for (i = 1; full && i <= CAPACITY; i++)
		ret = ret ?: memwait_channel_send(channel, &i, sizeof(i));
	*transfer = (struct transfer){ .channel = channel, .item = CAPACITY + 1 };
	runner_start(waiter, full ? send_one : receive_one, transfer);
	runner_await_asleep(waiter);
	return ret;
}

/*
 * If the waiters cannot be notified, the call has no effect. After that another thread makes the
 * same call.
 */
USERLIB_TEST(L2_a_send_or_receive_that_cannot_wake_is_not_done)
{
	memwait_channel_t *channel = self->shared;
	struct transfer transfer;
	struct runner waiter;
	uint64_t item;
	bool full;
	int way;

	for (way = 0; way < 8; way++) {
		TH_LOG("way %d", way);
		full = way & 2;
		ASSERT_EQ(0, begin_waiting(channel, way & 1 ? MEMWAIT_PRIVATE : 0, full, &waiter,
					   &transfer));
		fails = way & 4;
		answers_info = true;
		cannot_wake = !fails;
		item = 1;
		EXPECT_EQ(EMFILE, full ? memwait_channel_recv(channel, &item, sizeof(item)) :
					 memwait_channel_send(channel, &item, sizeof(item)));
		EXPECT_EQ(EMFILE, full ? memwait_channel_tryrecv(channel, &item, sizeof(item)) :
					 memwait_channel_trysend(channel, &item, sizeof(item)));
		EXPECT_EQ(full ? CAPACITY : 0, memwait_channel_length(channel));
		fails = false;
		cannot_wake = false;
		item = 2;
		EXPECT_EQ(0, full ? memwait_channel_recv(channel, &item, sizeof(item)) :
				    memwait_channel_send(channel, &item, sizeof(item)));
		EXPECT_EQ(0, runner_join(&waiter));
		EXPECT_EQ(full ? 1 : 2, full ? item : transfer.item);
		EXPECT_EQ(full ? CAPACITY : 0, memwait_channel_length(channel));
		EXPECT_EQ(0, memwait_channel_destroy(channel));
	}
}

/* Makes the next call, on either side. Returns its result on a closed channel. */
static int use_channel(memwait_channel_t *channel, int way, memwait_loop_t *loop)
{
	struct timespec soon = in_time(CLOCK_MONOTONIC, 1);
	struct counted_op counted = { 0 };
	uint64_t item = 9;
	int ret;

	switch (way) {
	case 0:
		return memwait_channel_trysend(channel, &item, sizeof(item));
	case 1:
		return memwait_channel_tryrecv(channel, &item, sizeof(item));
	case 2:
		return memwait_channel_clockrecv(channel, &item, sizeof(item), CLOCK_MONOTONIC,
						 &soon);
	case 3:
		return memwait_channel_close(channel);
	default:
		memwait_op_init(&counted.op, loop, count_call, &counted);
		ret = memwait_channel_send_async(channel, &item, sizeof(item), &counted.op);
		return ret == EINPROGRESS ? memwait_op_cancel(&counted.op) : ret;
	}
}

#define CHANNEL_WAYS	5

USERLIB_TEST(L2_the_next_call_does_a_closes_missed_wake_up)
{
	memwait_channel_t *channel = self->shared;
	struct transfer transfer;
	struct runner waiter;
	int n, way, ret;
	uint64_t item;
	bool full;

	for (n = 0; n < 4 * CHANNEL_WAYS; n++) {
		way = n % CHANNEL_WAYS;
		full = n / CHANNEL_WAYS & 2;
		TH_LOG("%s, way %d", full ? "full" : "empty", way);
		ASSERT_EQ(0, begin_waiting(channel, n / CHANNEL_WAYS & 1 ? MEMWAIT_PRIVATE : 0,
					   full, &waiter, &transfer));
		/*
		 * If receivers wait, the failed close has no effect. If senders wait, the channel
		 * is closed although the call fails, and a later call wakes the senders.
		 */
		cannot_wake = true;
		EXPECT_EQ(EMFILE, memwait_channel_close(channel));
		cannot_wake = false;
		if (full) {
			ret = use_channel(channel, way, self->loop);
			EXPECT_EQ(way >= 1 && way <= 3 ? 0 : EPIPE, ret);
			EXPECT_EQ(EPIPE, runner_join(&waiter));
			while (!memwait_channel_tryrecv(channel, &item, sizeof(item)))
				;
		} else {
			item = 7;
			EXPECT_EQ(0, memwait_channel_send(channel, &item, sizeof(item)));
			EXPECT_EQ(0, runner_join(&waiter));
			EXPECT_EQ(7, transfer.item);
			EXPECT_EQ(0, memwait_channel_close(channel));
		}
		EXPECT_EQ(EPIPE, memwait_channel_tryrecv(channel, &item, sizeof(item)));
		EXPECT_EQ(0, memwait_channel_destroy(channel));
	}
}

static int send_and_stall(void *arg)
{
	struct transfer *transfer = arg;

	stalls_after = MEMWAIT_IOC_CHANGE_NOTIFY;
	stalls = &transfer->still;
	return send_one(transfer);
}

static int receive_and_stall(void *arg)
{
	struct transfer *transfer = arg;

	stalls_after = MEMWAIT_IOC_CHANGE_NOTIFY;
	stalls = &transfer->still;
	return receive_one(transfer);
}

/* The next thread of the same side sleeps on the channel's lock. */
USERLIB_TEST(L2_the_next_call_does_a_channel_locks_missed_wake_up)
{
	memwait_channel_t *channel = self->shared;
	struct transfer transfer, still, next;
	struct runner waiter, first, second;
	unsigned int flags;
	size_t lock;
	int n, way;
	bool full;

	for (n = 0; n < 4 * CHANNEL_WAYS; n++) {
		way = n % CHANNEL_WAYS;
		flags = n / CHANNEL_WAYS & 1 ? MEMWAIT_PRIVATE : 0;
		full = n / CHANNEL_WAYS & 2;
		lock = full ? 128 : 64;
		TH_LOG("flags 0x%x, %s, way %d", flags, full ? "full" : "empty", way);
		ASSERT_EQ(0, begin_waiting(channel, flags, full, &waiter, &transfer));
		still = (struct transfer){ .channel = channel, .still = 1, .item = 1 };
		next = (struct transfer){ .channel = channel, .item = 2 };
		runner_start(&first, full ? receive_and_stall : send_and_stall, &still);
		EXPECT_EQ(0, runner_join(&waiter));
		runner_start(&second, full ? receive_one : send_one, &next);
		sleep_until(memwait_waiters((char *)channel + lock, flags));
		__atomic_store_n(&still.still, 0, __ATOMIC_RELEASE);
		/* The call has taken effect nevertheless. */
		EXPECT_EQ(0, runner_join(&first));
		use_channel(channel, way, self->loop);
		runner_join(&second);
		EXPECT_EQ(0, memwait_channel_destroy(channel));
	}
}

/*
 * A waiter that was woken for an item or a free slot gives up while another waiter sleeps and the
 * channel is full or empty.
 */
USERLIB_TEST(L2_the_next_call_does_a_wake_up_not_passed_on_in_a_channel)
{
	memwait_channel_t *channel = self->shared;
	struct transfer transfer;
	struct runner waiter;
	unsigned int flags;
	uint64_t item;
	bool full;
	int way, ret;

	for (way = 0; way < 4; way++) {
		struct counted_op counted = { 0 };
		uint64_t taken = 8;

		flags = way & 1 ? MEMWAIT_PRIVATE : 0;
		full = way & 2;
		TH_LOG("way %d", way);
		ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, flags, sizeof(item), 1));
		item = 1;
		ASSERT_EQ(0, full ? memwait_channel_send(channel, &item, sizeof(item)) : 0);
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(EINPROGRESS,
			  full ? memwait_channel_send_async(channel, &taken, sizeof(taken),
							    &counted.op) :
				 memwait_channel_recv_async(channel, &taken, sizeof(taken),
							    &counted.op));
		transfer = (struct transfer){ .channel = channel, .item = 2 };
		runner_start(&waiter, full ? send_one : receive_one, &transfer);
		runner_await_asleep(&waiter);
		ASSERT_EQ(0, full ? memwait_channel_recv(channel, &item, sizeof(item)) :
				    memwait_channel_send(channel, &item, sizeof(item)));
		cannot_wake = true;
		EXPECT_EQ(0, memwait_op_cancel(&counted.op));
		cannot_wake = false;
		/* This call gets no item or slot until the other waiter has got it. */
		ret = full ? memwait_channel_tryrecv(channel, &item, sizeof(item)) :
			     memwait_channel_trysend(channel, &item, sizeof(item));
		EXPECT_TRUE(!ret || ret == EAGAIN);
		EXPECT_EQ(0, runner_join(&waiter));
		EXPECT_EQ(full == !!ret, memwait_channel_length(channel));
		EXPECT_EQ(0, memwait_channel_destroy(channel));
	}
}

TEST_HARNESS_MAIN
