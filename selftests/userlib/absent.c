// SPDX-License-Identifier: GPL-2.0
/* L2: without the device. What needs no kernel works, all else returns an error, at once. */
#include "userlib_test.h"

#include <sys/mount.h>
#include <sys/sysmacros.h>

/*
 * Takes /dev away from this process, before the library has opened anything: @node is what
 * /dev/memwait is then, a device that nobody drives, or nothing.
 */
static int hide_device(bool node)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/dev", "tmpfs", 0, NULL))
		return -1;
	/* 240 to 254 are for local use. */
	return node ? mknod("/dev/memwait", S_IFCHR | 0666, makedev(254, 254)) : 0;
}

static bool is_absent(int err)
{
	return err == ENOENT || err == ENODEV || err == ENXIO;
}

static int try_elsewhere(int (*function)(void *), void *arg)
{
	struct runner runner;

	runner_start(&runner, function, arg);
	return runner_join(&runner);
}

static int lock_it(void *arg)
{
	return memwait_mutex_lock(arg);
}

static void check_all(struct __test_metadata *_metadata, bool node)
{
	memwait_mutex_t mutex, fair;
	memwait_cond_t cond = MEMWAIT_COND_INIT;
	memwait_rwlock_t rwlock = MEMWAIT_RWLOCK_INIT;
	memwait_waitgroup_t group = MEMWAIT_WAITGROUP_INIT;
	memwait_channel_t *channel;
	memwait_barrier_t barrier;
	memwait_loop_t *loop = NULL;
	memwait_sem_t sem;
	uint32_t word = 0;
	uint64_t item = 1;
	struct timespec later = in_time(CLOCK_MONOTONIC, 3600 * 1000);
	uint64_t start = now_ns(CLOCK_MONOTONIC);

	ASSERT_EQ(0, hide_device(node));

	EXPECT_TRUE(is_absent(memwait_loop_new(&loop)));
	EXPECT_EQ(NULL, loop);
	EXPECT_TRUE(is_absent(-memwait_wait32(&word, 0, NULL, 0)));
	EXPECT_TRUE(is_absent(-memwait_notify(&word, 1, 0)));
	EXPECT_TRUE(is_absent(-memwait_waiters(&word, 0)));

	memwait_mutex_init(&mutex, 0);
	memwait_mutex_init(&fair, MEMWAIT_MUTEX_FAIR);
	EXPECT_EQ(0, memwait_mutex_lock(&mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(&mutex));
	EXPECT_EQ(0, memwait_mutex_lock(&mutex));
	EXPECT_TRUE(is_absent(try_elsewhere(lock_it, &mutex)));
	EXPECT_TRUE(is_absent(memwait_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &later)));
	EXPECT_EQ(EBUSY, memwait_mutex_trylock(&mutex));
	/* Somebody may wait, in a process that has the device: this one cannot tell him. */
	EXPECT_TRUE(is_absent(memwait_mutex_unlock(&mutex)));
	EXPECT_EQ(0, memwait_mutex_lock(&mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(&mutex));
	EXPECT_EQ(0, memwait_mutex_lock(&fair));
	EXPECT_TRUE(is_absent(try_elsewhere(lock_it, &fair)));
	EXPECT_TRUE(is_absent(memwait_mutex_unlock(&fair)));
	EXPECT_EQ(0, memwait_mutex_trylock(&fair));
	EXPECT_EQ(0, memwait_mutex_unlock(&fair));

	EXPECT_EQ(0, memwait_cond_signal(&cond));
	EXPECT_EQ(0, memwait_mutex_lock(&mutex));
	EXPECT_TRUE(is_absent(memwait_cond_wait(&cond, &mutex)));
	EXPECT_TRUE(is_absent(memwait_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &later)));
	EXPECT_EQ(EBUSY, memwait_mutex_trylock(&mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(&mutex));
	EXPECT_EQ(0, memwait_cond_destroy(&cond));

	EXPECT_EQ(0, memwait_sem_init(&sem, 1, 1));
	EXPECT_EQ(0, memwait_sem_wait(&sem));
	EXPECT_TRUE(is_absent(memwait_sem_wait(&sem)));
	EXPECT_TRUE(is_absent(memwait_sem_clockwait(&sem, CLOCK_MONOTONIC, &later)));
	EXPECT_EQ(0, memwait_sem_post(&sem));
	EXPECT_EQ(0, memwait_sem_trywait(&sem));
	EXPECT_EQ(0, memwait_sem_destroy(&sem));

	EXPECT_EQ(0, memwait_rwlock_rdlock(&rwlock));
	EXPECT_TRUE(is_absent(memwait_rwlock_wrlock(&rwlock)));
	EXPECT_EQ(0, memwait_rwlock_tryrdlock(&rwlock));
	EXPECT_EQ(0, memwait_rwlock_unlock(&rwlock));
	EXPECT_EQ(0, memwait_rwlock_unlock(&rwlock));
	EXPECT_EQ(0, memwait_rwlock_wrlock(&rwlock));
	EXPECT_TRUE(is_absent(memwait_rwlock_rdlock(&rwlock)));
	EXPECT_TRUE(is_absent(memwait_rwlock_unlock(&rwlock)));
	EXPECT_EQ(0, memwait_rwlock_trywrlock(&rwlock));
	EXPECT_EQ(0, memwait_rwlock_unlock(&rwlock));

	EXPECT_EQ(0, memwait_barrier_init(&barrier, 0, 1));
	EXPECT_EQ(MEMWAIT_BARRIER_SERIAL_THREAD, memwait_barrier_wait(&barrier));
	EXPECT_EQ(0, memwait_barrier_init(&barrier, 0, 2));
	EXPECT_TRUE(is_absent(memwait_barrier_wait(&barrier)));
	EXPECT_EQ(0, memwait_barrier_destroy(&barrier));

	EXPECT_EQ(0, memwait_waitgroup_wait(&group));
	EXPECT_EQ(0, memwait_waitgroup_add(&group, 1));
	EXPECT_TRUE(is_absent(memwait_waitgroup_wait(&group)));
	EXPECT_TRUE(is_absent(memwait_waitgroup_done(&group)));
	EXPECT_EQ(0, memwait_waitgroup_wait(&group));

	channel = aligned_alloc(64, (memwait_channel_size(8, 1) + 63) / 64 * 64);
	ASSERT_NE(NULL, channel);
	EXPECT_EQ(0, memwait_channel_init(channel, 8, 1));
	EXPECT_TRUE(is_absent(memwait_channel_recv(channel, &item)));
	EXPECT_EQ(0, memwait_channel_send(channel, &item));
	EXPECT_TRUE(is_absent(memwait_channel_send(channel, &item)));
	EXPECT_EQ(0, memwait_channel_recv(channel, &item));
	EXPECT_EQ(0, memwait_channel_close(channel));
	EXPECT_EQ(EPIPE, memwait_channel_recv(channel, &item));
	EXPECT_EQ(0, memwait_channel_destroy(channel));
	free(channel);

	/* All of that is not a matter of waiting. */
	EXPECT_GT(30 * NSEC_PER_SEC, now_ns(CLOCK_MONOTONIC) - start);
}

TEST(L2_without_a_node)
{
	check_all(_metadata, false);
}

TEST(L2_with_a_node_that_nobody_drives)
{
	check_all(_metadata, true);
}

TEST_HARNESS_MAIN
