// SPDX-License-Identifier: GPL-2.0
/* The device and its ioctls as an interface: layouts, sizes, numbers, reserved bits, bad input. */
#include "memwait_fixture.h"
#include <stddef.h>
#include <sys/utsname.h>

_Static_assert(sizeof(struct memwait_info) == 32, "ABI");
_Static_assert(sizeof(struct memwait_wait) == 32, "ABI");
_Static_assert(offsetof(struct memwait_wait, flags) == 24, "ABI");
_Static_assert(sizeof(struct memwait_notify) == 16, "ABI");
_Static_assert(offsetof(struct memwait_notify, flags) == 12, "ABI");
_Static_assert(sizeof(struct memwait_async) == 56, "ABI");
_Static_assert(offsetof(struct memwait_async, id) == 40, "ABI");
_Static_assert(sizeof(struct memwait_wait_async) == 16, "ABI");
_Static_assert(sizeof(struct memwait_completion) == 24, "ABI");
_Static_assert(sizeof(struct memwait_cancel) == 16, "ABI");
_Static_assert(sizeof(struct memwait_wait_any) == 32, "ABI");
_Static_assert(sizeof(struct memwait_requeue) == 48, "ABI");
_Static_assert(sizeof(struct memwait_notify_wait) == 56, "ABI");
_Static_assert(sizeof(struct memwait_notify_many) == 24, "ABI");
_Static_assert(offsetof(struct memwait_async, index) == 52, "ABI");
_Static_assert(offsetof(struct memwait_completion, index) == 20, "ABI");
_Static_assert(offsetof(struct memwait_completion, reserved) == 20, "ABI");

#define NR_IOCTLS	10

static const struct {
	unsigned long cmd;
	size_t size;
} ioctls[NR_IOCTLS] = {
	{ MEMWAIT_IOC_INFO, sizeof(struct memwait_info) },
	{ MEMWAIT_IOC_WAIT, sizeof(struct memwait_wait) },
	{ MEMWAIT_IOC_NOTIFY, sizeof(struct memwait_notify) },
	{ MEMWAIT_IOC_WAIT_ASYNC, sizeof(struct memwait_wait_async) },
	{ MEMWAIT_IOC_CANCEL, sizeof(struct memwait_cancel) },
	{ MEMWAIT_IOC_WAIT_ANY, sizeof(struct memwait_wait_any) },
	{ MEMWAIT_IOC_REQUEUE, sizeof(struct memwait_requeue) },
	{ MEMWAIT_IOC_NOTIFY_WAIT, sizeof(struct memwait_notify_wait) },
	{ MEMWAIT_IOC_WAITERS, sizeof(struct memwait_notify) },
	{ MEMWAIT_IOC_NOTIFY_MANY, sizeof(struct memwait_notify_many) },
};

static unsigned long resized(unsigned long cmd, size_t size)
{
	return _IOC(_IOC_DIR(cmd), _IOC_TYPE(cmd), _IOC_NR(cmd), size);
}

MEMWAIT_TEST(info_reports_version_features_and_limits)
{
	struct memwait_info info;
	struct utsname name;

	ASSERT_EQ(0, mw_info(self->fd, &info));
	EXPECT_EQ(MEMWAIT_ABI_VERSION, info.abi_version);
	/* A program of 32 bits may run on a kernel of 64, and is told so by uname(2). */
	ASSERT_EQ(0, uname(&name));
	EXPECT_EQ(!!strstr(name.machine, "64"), !!(info.features & MEMWAIT_FEATURE_WAIT_U64));
	EXPECT_LT(0, info.max_user_waits);
	EXPECT_EQ(self->user_waits, info.user_waits);
	EXPECT_EQ(MEMWAIT_GROUP_MAX, info.max_wait_any);
	EXPECT_EQ(MEMWAIT_FEATURE_WAIT_ANY | MEMWAIT_FEATURE_REQUEUE |
		  MEMWAIT_FEATURE_NOTIFY_WAIT | MEMWAIT_FEATURE_NOTIFY_MANY,
		  info.features & ~MEMWAIT_FEATURE_WAIT_U64);
}

MEMWAIT_TEST(info_of_a_longer_struct_is_filled_with_zeros)
{
	unsigned char info[sizeof(struct memwait_info) + 16];
	size_t i;

	memset(info, 0xcc, sizeof(info));
	ASSERT_EQ(0, xioctl(self->fd, resized(MEMWAIT_IOC_INFO, sizeof(info)), info));
	for (i = sizeof(struct memwait_info); i < sizeof(info); i++)
		EXPECT_EQ(0, info[i]);
}

MEMWAIT_TEST(a_shorter_struct_is_einval)
{
	unsigned char arg[64] = { 0 };
	int i;

	for (i = 0; i < NR_IOCTLS; i++) {
		EXPECT_EQ(-EINVAL, xioctl(self->fd, resized(ioctls[i].cmd, ioctls[i].size - 4),
					  arg));
		EXPECT_EQ(-EINVAL, xioctl(self->fd, resized(ioctls[i].cmd, 0), arg));
	}
}

MEMWAIT_TEST(a_longer_struct_is_accepted_if_the_rest_is_zero)
{
	struct {
		struct memwait_notify notify;
		uint64_t more[2];
	} arg = { .notify = { .addr = (uintptr_t)self->word, .count = 1, .flags = U32 } };
	unsigned long cmd = resized(MEMWAIT_IOC_NOTIFY, sizeof(arg));

	EXPECT_EQ(0, xioctl(self->fd, cmd, &arg));
	arg.more[1] = 1ULL << 63;
	EXPECT_EQ(-E2BIG, xioctl(self->fd, cmd, &arg));
}

MEMWAIT_TEST(each_longer_struct_with_something_unknown_is_e2big)
{
	unsigned char arg[128];
	int i;

	for (i = 1; i < NR_IOCTLS; i++) {
		memset(arg, 0, sizeof(arg));
		arg[ioctls[i].size + 7] = 1;
		EXPECT_EQ(-E2BIG, xioctl(self->fd, resized(ioctls[i].cmd, ioctls[i].size + 8),
					 arg));
	}
}

MEMWAIT_TEST(wrong_direction_is_enotty)
{
	unsigned char arg[64] = { 0 };
	unsigned int dir;
	int i;

	for (i = 0; i < NR_IOCTLS; i++) {
		for (dir = 0; dir < 4; dir++) {
			if (dir == _IOC_DIR(ioctls[i].cmd))
				continue;
			EXPECT_EQ(-ENOTTY, xioctl(self->fd,
						  _IOC(dir, MEMWAIT_IOC_MAGIC,
						       _IOC_NR(ioctls[i].cmd), ioctls[i].size),
						  arg));
		}
	}
}

MEMWAIT_TEST(unknown_numbers_and_types_are_enotty)
{
	unsigned char arg[64] = { 0 };
	unsigned int nr, dir;

	for (nr = _IOC_NR(MEMWAIT_IOC_NOTIFY_MANY) + 1; nr < 256; nr++) {
		for (dir = 0; dir < 4; dir++)
			EXPECT_EQ(-ENOTTY, xioctl(self->fd, _IOC(dir, MEMWAIT_IOC_MAGIC, nr, 32),
						  arg));
	}
	EXPECT_EQ(-ENOTTY, xioctl(self->fd, _IOW('N', 1, struct memwait_wait), arg));
}

MEMWAIT_TEST(unreadable_arguments_are_efault)
{
	char *hole = private_page(2 * self->page);
	int i;

	ASSERT_EQ(0, munmap(hole + self->page, self->page));
	for (i = 0; i < NR_IOCTLS; i++) {
		EXPECT_EQ(-EFAULT, xioctl(self->fd, ioctls[i].cmd, NULL));
		EXPECT_EQ(-EFAULT, xioctl(self->fd, ioctls[i].cmd, (void *)~0xfffUL));
		EXPECT_EQ(-EFAULT, xioctl(self->fd, ioctls[i].cmd, hole + self->page - 8));
	}
	EXPECT_EQ(0, mprotect(hole, self->page, PROT_NONE));
	for (i = 0; i < NR_IOCTLS; i++)
		EXPECT_EQ(-EFAULT, xioctl(self->fd, ioctls[i].cmd, hole));
}

MEMWAIT_TEST(info_into_read_only_memory_is_efault)
{
	EXPECT_EQ(0, mprotect(self->word, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, xioctl(self->fd, MEMWAIT_IOC_INFO, self->word));
}

MEMWAIT_TEST(each_unknown_flag_of_wait_is_einval)
{
	const uint32_t known = MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE | MEMWAIT_CLOCK_REALTIME;
	int bit;

	for (bit = 0; bit < 32; bit++) {
		uint32_t flag = 1U << bit;

		if (flag & known)
			continue;
		EXPECT_EQ(-EINVAL, mw_wait(self->fd, self->word, 0, 0, U32 | flag));
		EXPECT_EQ(-EINVAL, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER, U32 | flag,
					    0, NULL));
	}
}

MEMWAIT_TEST(each_unknown_flag_of_notify_is_einval)
{
	int bit;

	for (bit = 0; bit < 32; bit++) {
		uint32_t flag = 1U << bit;

		if (flag & (MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE))
			continue;
		EXPECT_EQ(-EINVAL, mw_notify(self->fd, self->word, 1, U32 | flag));
		EXPECT_EQ(-EINVAL, mw_notify(self->fd, self->word, 0, U32 | flag));
		EXPECT_EQ(-EINVAL, mw_waiters(self->fd, self->word, U32 | flag));
	}
}

MEMWAIT_TEST(reserved_fields_are_einval)
{
	struct memwait_wait wait = { .addr = (uintptr_t)self->word, .flags = U32 };
	struct memwait_async entry = { .wait = wait };
	struct memwait_wait_async batch = { .waits = (uintptr_t)&entry, .count = 1 };
	struct memwait_cancel cancel = { .id = 1 };
	int bit;

	for (bit = 0; bit < 32; bit++) {
		wait.reserved = 1U << bit;
		EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_WAIT, &wait));

		entry.wait.reserved = 1U << bit;
		EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_WAIT_ASYNC, &batch));
		EXPECT_EQ(-EINVAL, entry.result);
		entry.wait.reserved = 0;
		entry.reserved = 1U << bit;
		EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_WAIT_ASYNC, &batch));
		entry.reserved = 0;
		batch.flags = 1U << bit;
		EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_WAIT_ASYNC, &batch));
		batch.flags = 0;

		cancel.flags = 1U << bit;
		EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_CANCEL, &cancel));
		cancel.flags = 0;
		cancel.reserved = 1U << bit;
		EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_CANCEL, &cancel));
		cancel.reserved = 0;
	}
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

MEMWAIT_TEST(fds_of_another_kind_do_not_know_the_ioctls)
{
	struct memwait_info info;
	int null = open("/dev/null", O_RDWR);
	int pipes[2];

	ASSERT_EQ(0, pipe(pipes));
	EXPECT_EQ(-ENOTTY, mw_info(null, &info));
	EXPECT_EQ(-ENOTTY, mw_info(pipes[0], &info));
	EXPECT_EQ(-EBADF, mw_info(-1, &info));
	close(null);
	close(pipes[0]);
	close(pipes[1]);
}

MEMWAIT_TEST(anybody_may_open_the_device)
{
	struct stat st;
	pid_t pid;

	ASSERT_EQ(0, stat("/dev/memwait", &st));
	EXPECT_TRUE(S_ISCHR(st.st_mode));
	EXPECT_EQ(0666, st.st_mode & 07777);

	pid = fork();
	if (!pid) {
		int fd;

		if (getuid() == 0 && (setgid(65534) || setuid(65534)))
			_exit(1);
		fd = memwait_open(0);
		if (fd < 0 || mw_notify(fd, self->word, 1, U32) ||
		    mw_async(fd, self->word, 0, MEMWAIT_FOREVER, U32, 1, NULL) != MEMWAIT_PENDING ||
		    mw_notify(fd, self->word, 1, U32) != 1)
			_exit(2);
		_exit(0);
	}
	EXPECT_EQ(0, child_status(pid));
}

MEMWAIT_TEST(a_descriptor_for_reading_serves_every_ioctl)
{
	int fd = open("/dev/memwait", O_RDONLY | O_NONBLOCK);
	struct memwait_completion done;

	ASSERT_LE(0, fd);
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(fd, self->word, 0, MEMWAIT_FOREVER, U32, 1, NULL));
	EXPECT_EQ(1, mw_notify(fd, self->word, 1, U32));
	EXPECT_EQ(1, mw_read(fd, &done, 1));
	close(fd);
}

MEMWAIT_TEST(the_device_does_not_write_seek_or_map)
{
	struct memwait_completion record = { 0 };

	EXPECT_EQ(-1, write(self->fd, &record, sizeof(record)));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, lseek(self->fd, 0, SEEK_SET));
	EXPECT_EQ(ESPIPE, errno);
	EXPECT_EQ(-1, pread(self->fd, &record, sizeof(record), 0));
	EXPECT_EQ(ESPIPE, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, self->page, PROT_READ, MAP_SHARED, self->fd, 0));
	EXPECT_EQ(ENODEV, errno);
}

static long read_fdinfo(int fd, const char *name)
{
	char path[64], line[128], *value = NULL;
	long number = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		value = strchr(line, ':');
		if (value && !strncmp(line, name, strlen(name)) &&
		    line + strlen(name) == value)
			number = strtol(value + 1, NULL, 10);
	}
	if (f)
		fclose(f);
	return number;
}

MEMWAIT_TEST(fdinfo_counts_pending_and_completed)
{
	struct memwait_completion done[4];
	int i;

	EXPECT_EQ(0, read_fdinfo(self->fd, "pending"));
	EXPECT_EQ(0, read_fdinfo(self->fd, "completed"));
	for (i = 0; i < 5; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER, U32,
						    i, NULL));
	EXPECT_EQ(5, read_fdinfo(self->fd, "pending"));
	EXPECT_EQ(3, mw_notify(self->fd, self->word, 3, U32));
	EXPECT_EQ(2, read_fdinfo(self->fd, "pending"));
	EXPECT_EQ(3, read_fdinfo(self->fd, "completed"));
	EXPECT_EQ(2, mw_read(self->fd, done, 2));
	EXPECT_EQ(1, read_fdinfo(self->fd, "completed"));
	EXPECT_EQ(2, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(3, mw_read(self->fd, done, 4));
	EXPECT_EQ(0, read_fdinfo(self->fd, "pending"));
	EXPECT_EQ(0, read_fdinfo(self->fd, "completed"));
}

TEST_HARNESS_MAIN
