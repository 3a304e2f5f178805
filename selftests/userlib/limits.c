// SPDX-License-Identifier: GPL-2.0
/*
 * L2: an operation that was begun can be completed. A process that has no free descriptor can still
 * wake other threads, even if it has never woken a thread before.
 */
#include "userlib_test.h"
#include "refuse_test.h"

#include <sys/resource.h>

struct objects {
	union {
		memwait_mutex_t mutex;
		memwait_rwlock_t rwlock;
		memwait_barrier_t barrier;
		memwait_waitgroup_t group;
		memwait_event_t event;
		memwait_sem_t sem;
	};
	memwait_mutex_t other;
	memwait_cond_t cond;
	uint64_t open;
	uint64_t item;
	uint64_t channel[64];
};

static struct objects *shared;

static memwait_channel_t *channel(void)
{
	return (memwait_channel_t *)shared->channel;
}

/* Functions for the steps of the processes. */
#define STEP(name, call)	ADAPTER(name, void, call)

STEP(lock_mutex, memwait_mutex_lock(&shared->mutex))
STEP(trylock_mutex, memwait_mutex_trylock(&shared->mutex))
STEP(unlock_mutex, memwait_mutex_unlock(&shared->mutex))
STEP(lock_fair, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_FAIR) || lock_mutex())
STEP(lock_recursive, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_RECURSIVE) || lock_mutex())
STEP(lock_robust, memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST) || lock_mutex())
STEP(read_lock, memwait_rwlock_rdlock(&shared->rwlock))
STEP(try_read_lock, memwait_rwlock_tryrdlock(&shared->rwlock))
STEP(write_lock, memwait_rwlock_wrlock(&shared->rwlock))
STEP(try_write_lock, memwait_rwlock_trywrlock(&shared->rwlock))
STEP(unlock_rwlock, memwait_rwlock_unlock(&shared->rwlock))
STEP(init_sem, memwait_sem_init(&shared->sem, 0, 0))
STEP(wait_for_sem, memwait_sem_wait(&shared->sem))
STEP(post, memwait_sem_post(&shared->sem))
STEP(init_cond, memwait_cond_init(&shared->cond, 0))

static int wait_for_cond(void)
{
	int err = memwait_mutex_lock(&shared->other);

	while (!err && !__atomic_load_n(&shared->open, __ATOMIC_RELAXED))
		err = memwait_cond_wait(&shared->cond, &shared->other);
	return err ? err : memwait_mutex_unlock(&shared->other);
}

static int signal_cond(void)
{
	__atomic_store_n(&shared->open, 1, __ATOMIC_RELAXED);
	return memwait_cond_signal(&shared->cond);
}

static int broadcast_cond(void)
{
	__atomic_store_n(&shared->open, 1, __ATOMIC_RELAXED);
	return memwait_cond_broadcast(&shared->cond);
}

STEP(init_group, memwait_waitgroup_init(&shared->group, 0, 1))
STEP(add_to_group, memwait_waitgroup_add(&shared->group, 1))
STEP(wait_for_group, memwait_waitgroup_wait(&shared->group))
STEP(done, memwait_waitgroup_done(&shared->group))
STEP(init_event, memwait_event_init(&shared->event, 0))
STEP(wait_for_event, memwait_event_wait(&shared->event))
STEP(set_event, memwait_event_set(&shared->event))
STEP(init_barrier, memwait_barrier_init(&shared->barrier, 0, 2))

static int arrive_at_barrier(void)
{
	int err = memwait_barrier_wait(&shared->barrier);

	return err == MEMWAIT_BARRIER_SERIAL_THREAD ? 0 : err;
}

STEP(init_channel, memwait_channel_init(channel(), sizeof(shared->channel), 0,
					sizeof(uint64_t), 1))
STEP(send_to_channel, memwait_channel_send(channel(), &shared->item, sizeof(shared->item)))
STEP(fill_channel, init_channel() || send_to_channel())
STEP(receive, memwait_channel_recv(channel(), &shared->item, sizeof(shared->item)))
STEP(close_channel, memwait_channel_close(channel()))
STEP(receive_the_end, receive() != EPIPE)

/*
 * The step that another process makes later. Either it acquires the object, or it fails because a
 * waiter is ahead of it.
 */
STEP(visit_mutex, trylock_mutex() ? 0 : unlock_mutex())
STEP(visit_reading, try_read_lock() ? 0 : unlock_rwlock())
STEP(visit_writing, try_write_lock() ? 0 : unlock_rwlock())
STEP(visit_cond, memwait_cond_signal(&shared->cond))

/*
 * The first process calls @begin, another process @wait, and the first process @end. If @end could
 * not wake the waiter, @next is called after that.
 */
static const struct way {
	const char *name;
	int (*begin)(void);
	int (*wait)(void);
	int (*end)(void);
	int (*next)(void);
} ways[] = {
	{ "mutex", lock_mutex, lock_mutex, unlock_mutex, visit_mutex },
	{ "mutex, tried", trylock_mutex, lock_mutex, unlock_mutex, visit_mutex },
	{ "fair mutex", lock_fair, lock_mutex, unlock_mutex, visit_mutex },
	{ "recursive mutex", lock_recursive, lock_mutex, unlock_mutex, visit_mutex },
	{ "robust mutex", lock_robust, lock_mutex, unlock_mutex, visit_mutex },
	{ "reader", read_lock, write_lock, unlock_rwlock, visit_reading },
	{ "reader, tried", try_read_lock, write_lock, unlock_rwlock, visit_writing },
	{ "writer", write_lock, read_lock, unlock_rwlock, visit_reading },
	{ "writer, tried", try_write_lock, write_lock, unlock_rwlock, visit_writing },
	{ "semaphore", init_sem, wait_for_sem, post, post },
	{ "signal", init_cond, wait_for_cond, signal_cond, visit_cond },
	{ "broadcast", init_cond, wait_for_cond, broadcast_cond, visit_cond },
	{ "wait group", init_group, wait_for_group, done, done },
	{ "wait group, added to", add_to_group, wait_for_group, done, done },
	{ "event", init_event, wait_for_event, set_event, set_event },
	{ "barrier", init_barrier, arrive_at_barrier, arrive_at_barrier, arrive_at_barrier },
	{ "channel, sent to", init_channel, receive, send_to_channel, send_to_channel },
	{ "channel, received from", fill_channel, send_to_channel, receive, receive },
	{ "channel, closed", init_channel, receive_the_end, close_channel, close_channel },
};

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
 * Starts a process that calls @begin and suffers a loss, and a process that waits for the first
 * process. Returns when the first process is about to call @end.
 */
static void start_processes(struct __test_metadata *_metadata, struct processes *processes,
			    const struct way *way, enum loss loss)
{
	char c;

	memset(shared, 0, sizeof(*shared));
	ASSERT_EQ(0, pipe(processes->begun));
	ASSERT_EQ(0, pipe(processes->go));
	processes->first = fork_child();
	if (!processes->first) {
		if (way->begin() || write(processes->begun[1], "", 1) != 1 ||
		    read(processes->go[0], &c, 1) != 1 || lose(loss))
			_exit(100);
		_exit(way->end());
	}
	ASSERT_EQ(1, read(processes->begun[0], &c, 1));
	processes->waiter = run_in_child(way->wait());
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

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		TH_LOG("%s", ways[i].name);
		start_processes(_metadata, &processes, &ways[i], OPENING);
		EXPECT_EQ(0, child_status(processes.first));
		EXPECT_EQ(0, child_status(processes.waiter));
		close_pipes(&processes);
	}
}

/*
 * The first process calls @end and cannot wake the waiter. The next call, by another process, wakes
 * the waiter.
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
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		for (loss = DESCRIPTORS; loss < losses; loss++) {
			TH_LOG("%s, %d", ways[i].name, loss);
			start_processes(_metadata, &processes, &ways[i], loss);
			EXPECT_EQ(reasons[loss], child_status(processes.first));
			write_number(MAX_CONTEXTS, max_contexts);
			EXPECT_EQ(0, ways[i].next());
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
	ASSERT_EQ(0, memwait_waitgroup_init((memwait_waitgroup_t *)shared->channel, 0, 3));
	close_all();
	ASSERT_EQ(0, forbid_descriptors());
	/* This call detects that the device is lost. */
	EXPECT_EQ(EMFILE, wait_for_sem());
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(0, post());
		EXPECT_EQ(0, memwait_waitgroup_done((memwait_waitgroup_t *)shared->channel));
	}
	EXPECT_EQ(0, memwait_sem_getvalue(&shared->sem, &value));
	EXPECT_EQ(3, value);
	EXPECT_EQ(EINVAL, memwait_waitgroup_done((memwait_waitgroup_t *)shared->channel));
	/* No new operation can be begun. */
	EXPECT_EQ(EMFILE, memwait_waitgroup_add((memwait_waitgroup_t *)shared->channel, 1));
	EXPECT_EQ(EMFILE, wait_for_sem());
	EXPECT_EQ(EMFILE, lock_mutex());
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
			_exit(lock_mutex());
		}
		ASSERT_EQ(0, lock_mutex());
		__atomic_store_n(&shared->open, 1, __ATOMIC_RELEASE);
		/*
		 * Use the number of waiters, because the waiter may also sleep before its lock
		 * call.
		 */
		spin_until(memwait_waiters(sleep_word(&shared->mutex, kinds[way % 2]), 0) == 1);
		close_all();
		ASSERT_EQ(0, forbid_descriptors());
		EXPECT_EQ(EMFILE, unlock_mutex());
		EXPECT_EQ(EPERM, unlock_mutex());
		ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
		EXPECT_EQ(0, way / 2 ? trylock_mutex() : lock_mutex());
		EXPECT_EQ(0, unlock_mutex());
		EXPECT_EQ(0, child_status(waiter));
	}
}

/* An operation that could not be completed is not begun. */
TEST_F_TIMEOUT(limits, L2_a_process_without_descriptors_begins_nothing, 300)
{
	int value;
	size_t i;

	ASSERT_EQ(0, forbid_descriptors());
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		memset(shared, 0, sizeof(*shared));
		EXPECT_NE(0, ways[i].begin()) {
			TH_LOG("%s", ways[i].name);
		}
	}
	memset(shared, 0, sizeof(*shared));
	EXPECT_EQ(EMFILE, memwait_mutex_lock(&shared->mutex));
	EXPECT_EQ(0, memwait_mutex_destroy(&shared->mutex));
	EXPECT_EQ(EMFILE, memwait_sem_post(&shared->sem));
	EXPECT_EQ(0, memwait_sem_getvalue(&shared->sem, &value));
	EXPECT_EQ(0, value);
}

TEST_HARNESS_MAIN
