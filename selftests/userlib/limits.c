// SPDX-License-Identifier: GPL-2.0
/*
 * L2: an operation that was begun can be completed. A process that has no free descriptor can still
 * wake other threads, even if it has never woken a thread before.
 */
#include "objects_test.h"
#include "refuse_test.h"

#include <sys/resource.h>

struct shared {
	union {
		char memory[OBJECT_SIZE];	/* for any object */
		memwait_mutex_t mutex;
		memwait_sem_t sem;
	};
	memwait_waitgroup_t group;
	int open;
};

static struct shared *shared;

/* More ways to acquire an object, in zeroed memory. */
static int try_mutex(void *object, unsigned int kind)
{
	return memwait_mutex_trylock(object);
}

static int try_to_read(void *object, unsigned int kind)
{
	return memwait_rwlock_tryrdlock(object);
}

static int try_to_write(void *object, unsigned int kind)
{
	return memwait_rwlock_trywrlock(object);
}

static int add_to_group(void *object, unsigned int kind)
{
	return memwait_waitgroup_add(object, 1);
}

static int wait_for_condition(void *condition)
{
	return condition_wait(condition) ?: condition_give_back(condition);
}

static int signal_condition(void *object)
{
	struct condition *condition = object;

	__atomic_store_n(&condition->met, 1, __ATOMIC_RELAXED);
	return memwait_cond_signal(&condition->cond);
}

static int broadcast_condition(void *object)
{
	struct condition *condition = object;

	__atomic_store_n(&condition->met, 1, __ATOMIC_RELAXED);
	return memwait_cond_broadcast(&condition->cond);
}

static const struct way tried_mutex_way = MUTEX_WAY(try_mutex);
static const struct way tried_reader_way =
	RWLOCK_WAY(wrlock, .make = try_to_read, .opposite = &read_way);
static const struct way tried_writer_way = RWLOCK_WAY(rdlock, .make = try_to_write);
static const struct way added_way = {
	WAY(waitgroup, wait), .make = add_to_group, .give = CALL(memwait_waitgroup_done),
};

static const struct way signal_way = {
	.make = condition_make, .wait = wait_for_condition, .give = signal_condition,
};

static const struct way broadcast_way = {
	.make = condition_make, .wait = wait_for_condition, .give = broadcast_condition,
};

static const struct way closed_way = {
	.make = make_empty, .wait = receive_end, .give = CALL(memwait_channel_close),
};

static const struct object others[] = {
	OBJECT_INIT(tried_mutex, tried_mutex_way, 0)
	OBJECT_INIT(tried_reader, tried_reader_way, 0)
	OBJECT_INIT(tried_writer, tried_writer_way, 0)
	OBJECT_INIT(added_to_group, added_way, 0)
	OBJECT_INIT(signal, signal_way, 0)
	OBJECT_INIT(broadcast, broadcast_way, 0)
	OBJECT_INIT(closed_channel, closed_way, 0)
};

#define CASES	(ARRAY_SIZE(objects) + ARRAY_SIZE(others))

static const struct object *case_of(size_t i)
{
	return i < ARRAY_SIZE(objects) ? &objects[i] : &others[i - ARRAY_SIZE(objects)];
}

/* Whether processes can share the object, and can give it without locking a mutex. */
static bool can_be_given(const struct object *object)
{
	return !is_private(object) && object->way != &condition_way;
}

/*
 * The call that another process makes later, if the first process could not wake the waiter. A lock
 * is either acquired, or not because a waiter is ahead.
 */
static int make_next_call(const struct way *way)
{
	struct condition *condition = (struct condition *)shared->memory;

	if (way->make == condition_make)
		return memwait_cond_signal(&condition->cond);
	if (!way->give_back)
		return way->give(shared->memory);
	way = way->opposite ? way->opposite : way;
	return way->try(shared->memory) ? 0 : way->give_back(shared->memory);
}

/* Forbids new descriptors in this process. Open descriptors stay open. */
static int forbid_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return -1;
	limit.rlim_cur = 0;
	return setrlimit(RLIMIT_NOFILE, &limit);
}

/* The fixture has no loop, because the process must not have opened the device before. */
FIXTURE(limits)
{
};

FIXTURE_SETUP(limits)
{
	shared = shared_page(sizeof(*shared));
}

FIXTURE_TEARDOWN(limits)
{
	munmap(shared, sizeof(*shared));
}

/*
 * The loss that a process suffers. OPENING: it cannot open descriptors. DESCRIPTORS: it cannot open
 * descriptors, and the device is closed. CONTEXTS: the device is closed, and the limit of contexts
 * is reached. SECCOMP: all its ioctls are refused.
 */
enum loss { OPENING, DESCRIPTORS, CONTEXTS, SECCOMP, LOSSES };

static void close_all(void)
{
	int fd;

	for (fd = 3; fd < 64; fd++)
		close(fd);
}

#define MAX_CONTEXTS	"/sys/module/memwait/parameters/max_user_contexts"

static int lose(enum loss loss)
{
	switch (loss) {
	case OPENING:
		return forbid_descriptors();
	case DESCRIPTORS:
		close_all();
		return forbid_descriptors();
	case CONTEXTS:
		/* Other processes have used up the user's limit. */
		close_all();
		return write_number(MAX_CONTEXTS, 1);
	default:
		return refuse_call(SYS_ioctl, EPERM);
	}
}

struct processes {
	pid_t first, waiter;
	int begun[2], go[2];
};

/*
 * Starts a process that makes the object and suffers a loss, and a process that waits for the
 * object. Returns when the first process is about to give the object.
 */
static void start_processes(struct __test_metadata *_metadata, struct processes *processes,
			    const struct object *object, enum loss loss)
{
	const struct way *way = object->way;
	char c;

	memset(shared, 0, sizeof(*shared));
	ASSERT_EQ(0, pipe(processes->begun));
	ASSERT_EQ(0, pipe(processes->go));
	processes->first = fork_child();
	if (!processes->first) {
		if (way->make(shared->memory, object->kind) ||
		    write(processes->begun[1], "", 1) != 1 ||
		    read(processes->go[0], &c, 1) != 1 || lose(loss))
			_exit(100);
		_exit(way->give(shared->memory));
	}
	ASSERT_EQ(1, read(processes->begun[0], &c, 1));
	processes->waiter = run_in_child(way->wait(shared->memory));
	await_asleep(processes->waiter);
	ASSERT_EQ(1, write(processes->go[1], "", 1));
}

static void close_pipes(struct processes *processes)
{
	close(processes->begun[0]);
	close(processes->begun[1]);
	close(processes->go[0]);
	close(processes->go[1]);
}

TEST_F_TIMEOUT(limits, L2_a_process_without_descriptors_wakes_others, 300)
{
	struct processes processes;
	size_t i;

	for (i = 0; i < CASES; i++) {
		if (!can_be_given(case_of(i)))
			continue;
		TH_LOG("%s", case_of(i)->name);
		start_processes(_metadata, &processes, case_of(i), OPENING);
		EXPECT_EQ(0, child_status(processes.first));
		EXPECT_EQ(0, child_status(processes.waiter));
		close_pipes(&processes);
	}
}

/*
 * The first process gives the object and cannot wake the waiter. The next call, by another process,
 * wakes the waiter.
 */
TEST_F_TIMEOUT(limits, L2_the_next_call_does_a_missed_wake_up, 300)
{
	const int reasons[] = { 0, EMFILE, EMFILE, EPERM };
	long max_contexts = read_number(MAX_CONTEXTS);
	enum loss loss, losses = can_refuse() ? LOSSES : SECCOMP;
	struct processes processes;
	size_t i;

	/* Open the device in this process before other processes use up the limit. */
	ASSERT_EQ(0, memwait_available());
	for (i = 0; i < CASES; i++) {
		if (!can_be_given(case_of(i)))
			continue;
		for (loss = DESCRIPTORS; loss < losses; loss++) {
			TH_LOG("%s, %d", case_of(i)->name, loss);
			start_processes(_metadata, &processes, case_of(i), loss);
			EXPECT_EQ(reasons[loss], child_status(processes.first));
			write_number(MAX_CONTEXTS, max_contexts);
			EXPECT_EQ(0, make_next_call(case_of(i)->way));
			EXPECT_EQ(0, child_status(processes.waiter));
			close_pipes(&processes);
		}
	}
}

/* Each post takes effect, and waiters detect it. */
TEST_F_TIMEOUT(limits, L2_posts_without_the_device_are_not_lost, 300)
{
	int value, i;

	ASSERT_EQ(0, memwait_sem_init(&shared->sem, 0, 0));
	ASSERT_EQ(0, memwait_waitgroup_init(&shared->group, 0, 3));
	close_all();
	ASSERT_EQ(0, forbid_descriptors());
	/* This call detects that the device is lost. */
	EXPECT_EQ(EMFILE, memwait_sem_wait(&shared->sem));
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(0, memwait_sem_post(&shared->sem));
		EXPECT_EQ(0, memwait_waitgroup_done(&shared->group));
	}
	EXPECT_EQ(0, memwait_sem_getvalue(&shared->sem, &value));
	EXPECT_EQ(3, value);
	EXPECT_EQ(EINVAL, memwait_waitgroup_done(&shared->group));
	/* No new operation can be begun. */
	EXPECT_EQ(EMFILE, memwait_waitgroup_add(&shared->group, 1));
	EXPECT_EQ(EMFILE, memwait_sem_wait(&shared->sem));
	EXPECT_EQ(EMFILE, memwait_mutex_lock(&shared->mutex));
}

/*
 * The process closes the library's descriptor and cannot open another. The next lock wakes the
 * waiter.
 */
TEST_F_TIMEOUT(limits, L2_the_next_lock_does_a_missed_wake_up, 300)
{
	const unsigned int kinds[] = { MEMWAIT_MUTEX_NORMAL, MEMWAIT_MUTEX_FAIR };
	struct rlimit limit;
	pid_t waiter;
	int way;

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
	for (way = 0; way < 4; way++) {
		memset(shared, 0, sizeof(*shared));
		ASSERT_EQ(0, memwait_mutex_init(&shared->mutex, kinds[way % 2]));
		waiter = fork_child();
		if (!waiter) {
			spin_until(__atomic_load_n(&shared->open, __ATOMIC_ACQUIRE));
			_exit(memwait_mutex_lock(&shared->mutex));
		}
		ASSERT_EQ(0, memwait_mutex_lock(&shared->mutex));
		__atomic_store_n(&shared->open, 1, __ATOMIC_RELEASE);
		/*
		 * Use the number of waiters, because the waiter may also sleep before its lock
		 * call.
		 */
		spin_until(memwait_waiters(sleep_word(&shared->mutex, kinds[way % 2]), 0) == 1);
		close_all();
		ASSERT_EQ(0, forbid_descriptors());
		EXPECT_EQ(EMFILE, memwait_mutex_unlock(&shared->mutex));
		EXPECT_EQ(EPERM, memwait_mutex_unlock(&shared->mutex));
		ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
		EXPECT_EQ(0, way / 2 ? memwait_mutex_trylock(&shared->mutex) :
				      memwait_mutex_lock(&shared->mutex));
		EXPECT_EQ(0, memwait_mutex_unlock(&shared->mutex));
		EXPECT_EQ(0, child_status(waiter));
	}
}

/* An operation that could not be completed is not begun. */
TEST_F_TIMEOUT(limits, L2_a_process_without_descriptors_begins_nothing, 300)
{
	int value;
	size_t i;

	ASSERT_EQ(0, forbid_descriptors());
	for (i = 0; i < CASES; i++) {
		const struct object *object = case_of(i);

		memset(shared, 0, sizeof(*shared));
		EXPECT_NE(0, object->way->make(shared->memory, object->kind)) {
			TH_LOG("%s", object->name);
		}
		EXPECT_NE(0, object->way->wait(shared->memory)) {
			TH_LOG("%s", object->name);
		}
	}
	memset(shared, 0, sizeof(*shared));
	EXPECT_EQ(EMFILE, memwait_cond_init((memwait_cond_t *)shared->memory, 0));
	memset(shared, 0, sizeof(*shared));
	EXPECT_EQ(EMFILE, memwait_mutex_lock(&shared->mutex));
	EXPECT_EQ(0, memwait_mutex_destroy(&shared->mutex));
	EXPECT_EQ(EMFILE, memwait_sem_post(&shared->sem));
	EXPECT_EQ(0, memwait_sem_getvalue(&shared->sem, &value));
	EXPECT_EQ(0, value);
}

TEST_HARNESS_MAIN
