// SPDX-License-Identifier: GPL-2.0
/* L10: descriptors that the program has closed and whose numbers were reused. */
#include "userlib_test.h"

#include <sys/eventfd.h>

/*
 * Returns the number of the device descriptor that the library has opened for the process, or -1.
 */
static int library_number(int own, memwait_loop_t *loop)
{
	struct stat device, st;
	int fd;

	if (fstat(own, &device))
		return -1;
	for (fd = 3; fd < 256; fd++) {
		if (fd != own && fd != memwait_loop_fd(loop) && !fstat(fd, &st) &&
		    st.st_rdev == device.st_rdev && st.st_ino == device.st_ino)
			return fd;
	}
	return -1;
}

/* Files that may get the number. Each type returns a different error for an unknown ioctl. */
enum { NOTHING, EPOLL, URANDOM, EVENTFD, NULL_DEVICE, LARGE_FILE, PIPE, THINGS };

static int open_thing(int thing)
{
	int ends[2], fd;

	switch (thing) {
	case EPOLL:
		return epoll_create1(EPOLL_CLOEXEC);
	case URANDOM:
		return open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	case EVENTFD:
		return eventfd(1, EFD_CLOEXEC);
	case NULL_DEVICE:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case LARGE_FILE:
		/* A 32-bit fstat() fails for this file. */
		fd = memfd_create("large", MFD_CLOEXEC);
		return ftruncate(fd, 5LL << 30) ? -1 : fd;
	default:
		/* The read end of a pipe that contains data. */
		if (pipe(ends) || write(ends[1], "pipe", 4) != 4)
			return -1;
		close(ends[1]);
		return ends[0];
	}
}

/* Replaces the descriptor by another file, and stores the file's status in *st. */
static int replace(int number, int thing, struct stat *st)
{
	int fd;

	if (thing == NOTHING)
		return close(number);
	fd = open_thing(thing);
	if (fd < 0 || dup2(fd, number) != number)
		return -1;
	close(fd);
	return fstat(number, st);
}

/* Whether the file still exists, unchanged. */
static bool is_untouched(int number, int thing, const struct stat *was)
{
	char buffer[64];
	struct stat st;

	if (thing == NOTHING)
		return true;
	if (fstat(number, &st) || st.st_ino != was->st_ino || st.st_dev != was->st_dev)
		return false;
	if (thing == PIPE)
		return read(number, buffer, sizeof(buffer)) == 4;
	if (thing == EVENTFD)
		return read(number, buffer, 8) == 8 && buffer[0] == 1;
	return true;
}

USERLIB_TEST(L10_the_devices_number_is_another_file)
{
	const struct timespec none = { 0, 0 };
	memwait_mutex_t *mutex = self->shared;
	memwait_sem_t *sem = (memwait_sem_t *)(mutex + 1);
	uint32_t *word = (uint32_t *)(sem + 1);
	struct runner runner;
	struct stat st;
	int thing, way, number;

	ASSERT_EQ(0, memwait_sem_init(sem, 0, 0));
	for (thing = 0; thing < THINGS; thing++) {
		for (way = 0; way < 4; way++) {
			/* These calls use the library's own descriptor of the device. */
			ASSERT_EQ(0, memwait_mutex_lock(mutex));
			runner_start(&runner, way == 2 ? CALL(memwait_sem_wait) : lock_and_unlock,
				     way == 2 ? (void *)sem : mutex);
			runner_await_asleep(&runner);
			ASSERT_EQ(0, memwait_notify(word, 1, 0));
			number = library_number(self->fd, self->loop);
			ASSERT_LE(0, number);
			ASSERT_EQ(0, replace(number, thing, &st));
			if (way == 0) {
				EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait32(word, 0, &none, 0));
			} else if (way == 1) {
				EXPECT_EQ(0, memwait_notify(word, 1, 0));
			} else if (way == 2) {
				EXPECT_EQ(ETIMEDOUT, memwait_sem_timedwait(sem, &none));
			}
			EXPECT_EQ(0, memwait_mutex_unlock(mutex));
			if (way == 2) {
				EXPECT_EQ(0, memwait_sem_post(sem));
			}
			EXPECT_EQ(0, runner_join(&runner));
			EXPECT_TRUE(is_untouched(number, thing, &st)) {
				TH_LOG("thing %d, way %d", thing, way);
			}
			if (thing != NOTHING)
				close(number);
		}
	}
	EXPECT_EQ(0, memwait_sem_destroy(sem));
}

USERLIB_TEST(L10_a_loops_number_is_another_file)
{
	struct counted_op counted;
	uint32_t *word = self->shared;
	memwait_loop_t *loop;
	struct stat st;
	int thing, number;

	for (thing = 0; thing < THINGS; thing++) {
		counted = (struct counted_op){ 0 };
		ASSERT_EQ(0, memwait_loop_new(&loop, 0));
		memwait_op_init(&counted.op, loop, count_call, &counted);
		ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &counted.op));
		number = memwait_loop_fd(loop);
		ASSERT_EQ(0, replace(number, thing, &st));
		EXPECT_EQ(-EBADF, memwait_loop_dispatch(loop, MEMWAIT_ALL));
		EXPECT_EQ(-EBADF, memwait_loop_run(loop, NULL, 0));
		EXPECT_EQ(0, memwait_op_cancel(&counted.op));
		EXPECT_EQ(-EBADF, memwait_wait32_async(word, 0, NULL, 0, &counted.op));
		EXPECT_EQ(0, counted.calls);
		EXPECT_EQ(0, memwait_loop_close(loop));
		EXPECT_TRUE(is_untouched(number, thing, &st)) {
			TH_LOG("thing %d", thing);
		}
		if (thing != NOTHING)
			close(number);
	}
}

/* Both descriptors are open files of the device. */
USERLIB_TEST(L10_a_loops_number_is_another_loops)
{
	struct counted_op lost = { 0 }, counted = { 0 };
	uint32_t *word = self->shared;
	memwait_mutex_t *mutex = self->shared + sizeof(*word) * 2;
	memwait_loop_t *old, *new;
	int number;

	ASSERT_EQ(0, memwait_loop_new(&old, 0));
	memwait_op_init(&lost.op, old, count_call, &lost);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &lost.op));
	number = memwait_loop_fd(old);
	close(number);
	ASSERT_EQ(0, memwait_loop_new(&new, 0));
	ASSERT_EQ(number, memwait_loop_fd(new));
	memwait_op_init(&counted.op, new, count_call, &counted);
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(word, 0, NULL, 0, &counted.op));
	EXPECT_EQ(1, memwait_notify(word, MEMWAIT_ALL, 0));
	EXPECT_EQ(-EBADF, memwait_loop_dispatch(old, MEMWAIT_ALL));
	EXPECT_EQ(0, memwait_op_cancel(&lost.op));
	/* If the operation were armed in the other loop, its callback would be lost. */
	EXPECT_EQ(-EBADF, memwait_wait32_async(word, 0, NULL, 0, &lost.op));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	EXPECT_EQ(EBADF, memwait_mutex_lock_async(mutex, &lost.op));
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
	EXPECT_EQ(0, memwait_loop_close(old));
	EXPECT_EQ(1, memwait_loop_dispatch(new, MEMWAIT_ALL));
	EXPECT_EQ(0, lost.calls);
	EXPECT_EQ(1, counted.calls);
	EXPECT_EQ(0, memwait_loop_close(new));
}

/* Closes all descriptors, and lets the library open the device again. */
static int open_without_streams(void)
{
	int fd;

	for (fd = 0; fd < 100; fd++)
		close(fd);
	if (memwait_available())
		return 1;
	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			return 2;
	}
	return 0;
}

USERLIB_TEST(L10_the_device_does_not_become_a_standard_stream)
{
	EXPECT_EQ(0, child_status(run_in_child(open_without_streams())));
}

TEST_HARNESS_MAIN
