// SPDX-License-Identifier: GPL-2.0
/*
 * L2: what is begun can be ended. A process that has no descriptor left wakes those who wait,
 * although it has never had to before.
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

/* What a process does, or waits for. */
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

static int come_to_barrier(void)
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

/* What another process does afterwards: it may get it, or come later than one that waits. */
STEP(visit_mutex, trylock_mutex() ? 0 : unlock_mutex())
STEP(visit_reading, try_read_lock() ? 0 : unlock_rwlock())
STEP(visit_writing, try_write_lock() ? 0 : unlock_rwlock())
STEP(visit_cond, memwait_cond_signal(&shared->cond))

/* One process begins, another one waits, and the first one ends it. @next: if it cannot wake. */
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
	{ "barrier", init_barrier, come_to_barrier, come_to_barrier, come_to_barrier },
	{ "channel, sent to", init_channel, receive, send_to_channel, send_to_channel },
	{ "channel, received from", fill_channel, send_to_channel, receive, receive },
	{ "channel, closed", init_channel, receive_the_end, close_channel, close_channel },
};

/* Of this process; what is open stays open. */
static int forbid_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return -1;
	limit.rlim_cur = 0;
	return setrlimit(RLIMIT_NOFILE, &limit);
}

/* No loop: the process must not have had the device before. */
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

/* What a process loses: the right to open more, or the device as well. */
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
		/* Others have used up what the user may have. */
		close_all();
		return write_number(MAX_CONTEXTS, 1);
	default:
		return refuse_call(SYS_ioctl, EPERM);
	}
}

struct scene {
	pid_t first, waiter;
	int begun[2], go[2];
};

/*
 * One process begins, and loses something; another one waits for it. Returns when the first is
 * about to end what it has begun.
 */
static void begin_scene(struct __test_metadata *_metadata, struct scene *scene,
			const struct way *way, enum loss loss)
{
	char c;

	memset(shared, 0, sizeof(*shared));
	ASSERT_EQ(0, pipe(scene->begun));
	ASSERT_EQ(0, pipe(scene->go));
	scene->first = fork_child();
	if (!scene->first) {
		if (way->begin() || write(scene->begun[1], "", 1) != 1 ||
		    read(scene->go[0], &c, 1) != 1 || lose(loss))
			_exit(100);
		_exit(way->end());
	}
	ASSERT_EQ(1, read(scene->begun[0], &c, 1));
	scene->waiter = run_in_child(way->wait());
	await_asleep(scene->waiter);
	ASSERT_EQ(1, write(scene->go[1], "", 1));
}

static void end_scene(struct scene *scene)
{
	close(scene->begun[0]);
	close(scene->begun[1]);
	close(scene->go[0]);
	close(scene->go[1]);
}

TEST_F_TIMEOUT(limits, L2_who_has_no_descriptor_left_wakes_others, 300)
{
	struct scene scene;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		TH_LOG("%s", ways[i].name);
		begin_scene(_metadata, &scene, &ways[i], OPENING);
		EXPECT_EQ(0, child_status(scene.first));
		EXPECT_EQ(0, child_status(scene.waiter));
		end_scene(&scene);
	}
}

/* The first one ends it, and cannot wake the one that waits. Then somebody else comes. */
TEST_F_TIMEOUT(limits, L2_what_wakes_nobody_is_made_up_for, 300)
{
	const int reasons[] = { 0, EMFILE, EMFILE, EPERM };
	long max_contexts = read_number(MAX_CONTEXTS);
	enum loss loss, losses = can_refuse() ? LOSSES : SECCOMP;
	struct scene scene;
	size_t i;

	/* This process has the device before others use up what there is. */
	ASSERT_EQ(0, memwait_available());
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		for (loss = DESCRIPTORS; loss < losses; loss++) {
			TH_LOG("%s, %d", ways[i].name, loss);
			begin_scene(_metadata, &scene, &ways[i], loss);
			EXPECT_EQ(reasons[loss], child_status(scene.first));
			write_number(MAX_CONTEXTS, max_contexts);
			EXPECT_EQ(0, ways[i].next());
			EXPECT_EQ(0, child_status(scene.waiter));
			end_scene(&scene);
		}
	}
}

/* What ends something is done, however often, and whoever waits finds that. */
TEST_F_TIMEOUT(limits, L2_posts_without_the_device_are_not_lost, 300)
{
	int value, i;

	ASSERT_EQ(0, memwait_sem_init(&shared->sem, 0, 0));
	ASSERT_EQ(0, memwait_waitgroup_init((memwait_waitgroup_t *)shared->channel, 0, 3));
	close_all();
	ASSERT_EQ(0, forbid_descriptors());
	/* So it finds that it has lost the device. */
	EXPECT_EQ(EMFILE, wait_for_sem());
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(0, post());
		EXPECT_EQ(0, memwait_waitgroup_done((memwait_waitgroup_t *)shared->channel));
	}
	EXPECT_EQ(0, memwait_sem_getvalue(&shared->sem, &value));
	EXPECT_EQ(3, value);
	EXPECT_EQ(EINVAL, memwait_waitgroup_done((memwait_waitgroup_t *)shared->channel));
	/* And nothing is begun. */
	EXPECT_EQ(EMFILE, memwait_waitgroup_add((memwait_waitgroup_t *)shared->channel, 1));
	EXPECT_EQ(EMFILE, wait_for_sem());
	EXPECT_EQ(EMFILE, lock_mutex());
}

/* It closes what is not its own, and can open nothing. The next one makes up for it. */
TEST_F_TIMEOUT(limits, L2_who_cannot_wake_leaves_it_to_the_next_one, 300)
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
		/* It may have slept before that, too. */
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

/* And what cannot be ended is not begun. */
TEST_F_TIMEOUT(limits, L2_who_has_no_descriptor_left_begins_nothing, 300)
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
