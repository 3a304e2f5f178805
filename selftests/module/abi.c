// SPDX-License-Identifier: GPL-2.0
/*
 * The device and its ioctls as an interface: layouts, sizes, numbers, reserved bits, invalid input.
 */
#include "../memwait_fixture.h"
#include <stddef.h>
#include <sys/utsname.h>

#define SIZE(type, size)		_Static_assert(sizeof(struct type) == (size), #type)
#define PLACE(type, member, offset) \
	_Static_assert(offsetof(struct type, member) == (offset), #type "." #member)
#define SAME(name, value)		_Static_assert((name) == (value), #name)

SIZE(memwait_wait, 32);
PLACE(memwait_wait, addr, 0);
PLACE(memwait_wait, expected, 8);
PLACE(memwait_wait, deadline, 16);
PLACE(memwait_wait, flags, 24);
PLACE(memwait_wait, reserved, 28);

SIZE(memwait_notify, 16);
PLACE(memwait_notify, addr, 0);
PLACE(memwait_notify, count, 8);
PLACE(memwait_notify, flags, 12);

SIZE(memwait_wait_any, 32);
PLACE(memwait_wait_any, waits, 0);
PLACE(memwait_wait_any, count, 8);
PLACE(memwait_wait_any, reserved, 12);
PLACE(memwait_wait_any, deadline, 16);
PLACE(memwait_wait_any, flags, 24);
PLACE(memwait_wait_any, index, 28);

SIZE(memwait_async, 56);
PLACE(memwait_async, wait, 0);
PLACE(memwait_async, any, 0);
PLACE(memwait_async, user_data, 32);
PLACE(memwait_async, id, 40);
PLACE(memwait_async, result, 48);
PLACE(memwait_async, reserved, 52);

SIZE(memwait_wait_async, 16);
PLACE(memwait_wait_async, waits, 0);
PLACE(memwait_wait_async, count, 8);
PLACE(memwait_wait_async, entry_size, 12);

SIZE(memwait_completion, 32);
PLACE(memwait_completion, user_data, 0);
PLACE(memwait_completion, id, 8);
PLACE(memwait_completion, result, 16);
PLACE(memwait_completion, index, 20);
PLACE(memwait_completion, count, 24);
PLACE(memwait_completion, flags, 28);

SIZE(memwait_cancel, 16);
PLACE(memwait_cancel, id, 0);
PLACE(memwait_cancel, flags, 8);
PLACE(memwait_cancel, reserved, 12);

SIZE(memwait_requeue, 48);
PLACE(memwait_requeue, addr, 0);
PLACE(memwait_requeue, expected, 8);
PLACE(memwait_requeue, target, 16);
PLACE(memwait_requeue, count, 24);
PLACE(memwait_requeue, move, 28);
PLACE(memwait_requeue, flags, 32);
PLACE(memwait_requeue, reserved, 36);
PLACE(memwait_requeue, woken, 40);
PLACE(memwait_requeue, moved, 44);

SIZE(memwait_notify_wait, 56);
PLACE(memwait_notify_wait, notify, 0);
PLACE(memwait_notify_wait, wait, 16);
PLACE(memwait_notify_wait, notified, 48);
PLACE(memwait_notify_wait, state, 52);

SIZE(memwait_notify_many, 24);
PLACE(memwait_notify_many, notifies, 0);
PLACE(memwait_notify_many, woken, 8);
PLACE(memwait_notify_many, count, 16);
PLACE(memwait_notify_many, flags, 20);

SIZE(memwait_owner, 16);
PLACE(memwait_owner, id, 0);
PLACE(memwait_owner, flags, 8);
PLACE(memwait_owner, reserved, 12);

SIZE(memwait_change, 32);
PLACE(memwait_change, notify, 0);
PLACE(memwait_change, operation, 16);
PLACE(memwait_change, operand, 20);
PLACE(memwait_change, old, 24);
PLACE(memwait_change, reserved, 28);

SIZE(memwait_info, 64);
PLACE(memwait_info, features, 0);
PLACE(memwait_info, max_user_waits, 8);
PLACE(memwait_info, user_waits, 16);
PLACE(memwait_info, max_group, 24);
PLACE(memwait_info, reserved, 28);
PLACE(memwait_info, max_user_contexts, 32);
PLACE(memwait_info, user_contexts, 40);
PLACE(memwait_info, max_user_owners, 48);
PLACE(memwait_info, user_owners, 56);

/* The size of struct memwait_info in the first version of the ABI. */
#define INFO_LEAST	32

SAME(MEMWAIT_OK, 0);
SAME(MEMWAIT_NOT_EQUAL, 1);
SAME(MEMWAIT_TIMED_OUT, 2);
SAME(MEMWAIT_PENDING, 3);
SAME(MEMWAIT_OWNER_DIED, 4);
SAME(MEMWAIT_SIZE_U8, 0);
SAME(MEMWAIT_SIZE_U16, 1);
SAME(MEMWAIT_SIZE_U32, 2);
SAME(MEMWAIT_SIZE_U64, 3);
SAME(MEMWAIT_PRIVATE, 0x80);
SAME(MEMWAIT_CLOCK_REALTIME, 0x100);
SAME(MEMWAIT_GROUP, 0x200);
SAME(MEMWAIT_PERSISTENT, 0x400);
SAME(MEMWAIT_OWNED, 0x800);
SAME(MEMWAIT_LIBRARY_FLAGS, 0xffff0000);
SAME(MEMWAIT_MORE, 0x1);
SAME(MEMWAIT_OWNER_CONTEXT, 1);
SAME(MEMWAIT_OWNER_EXIT, 2);
SAME(MEMWAIT_OWNER_BIND, 4);
SAME(MEMWAIT_OWNER_MASK, 0x3fffffffffffffffULL);
SAME(MEMWAIT_CHANGE_SET, 0);
SAME(MEMWAIT_CHANGE_ADD, 1);
SAME(MEMWAIT_CHANGE_AND, 2);
SAME(MEMWAIT_CHANGE_OR, 3);
SAME(MEMWAIT_CHANGE_XOR, 4);
SAME(MEMWAIT_CHANGE_IF_NONE_WOKEN, 0x100);
SAME(MEMWAIT_NOTIFIED, 1);
SAME(MEMWAIT_FOREVER, 0xffffffffffffffffULL);
SAME(MEMWAIT_ALL, 0xffffffffU);
SAME(MEMWAIT_GROUP_MAX, 128);
SAME(MEMWAIT_FEATURE_WAIT_U64, 1);
SAME(MEMWAIT_FEATURE_OWNERS, 2);
SAME(MEMWAIT_IOC_INFO, 0x8040d800);
SAME(MEMWAIT_IOC_WAIT, 0x4020d801);
SAME(MEMWAIT_IOC_NOTIFY, 0x4010d802);
SAME(MEMWAIT_IOC_WAIT_ASYNC, 0x4010d803);
SAME(MEMWAIT_IOC_CANCEL, 0x4010d804);
SAME(MEMWAIT_IOC_WAIT_ANY, 0xc020d805);
SAME(MEMWAIT_IOC_REQUEUE, 0xc030d806);
SAME(MEMWAIT_IOC_NOTIFY_WAIT, 0xc038d807);
SAME(MEMWAIT_IOC_WAITERS, 0x4010d808);
SAME(MEMWAIT_IOC_NOTIFY_MANY, 0x4018d809);
SAME(MEMWAIT_IOC_OWNER, 0xc010d80a);
SAME(MEMWAIT_IOC_CHANGE_NOTIFY, 0xc020d80b);

#define NR_IOCTLS	12

#define STRUCT(cmd_, type, least_)	{ cmd_, sizeof(struct type), least_ }

static const struct {
	unsigned long cmd;
	size_t size, least;
} ioctls[NR_IOCTLS] = {
	STRUCT(MEMWAIT_IOC_INFO, memwait_info, INFO_LEAST),
	STRUCT(MEMWAIT_IOC_WAIT, memwait_wait, sizeof(struct memwait_wait)),
	STRUCT(MEMWAIT_IOC_NOTIFY, memwait_notify, sizeof(struct memwait_notify)),
	STRUCT(MEMWAIT_IOC_WAIT_ASYNC, memwait_wait_async, sizeof(struct memwait_wait_async)),
	STRUCT(MEMWAIT_IOC_CANCEL, memwait_cancel, sizeof(struct memwait_cancel)),
	STRUCT(MEMWAIT_IOC_WAIT_ANY, memwait_wait_any, sizeof(struct memwait_wait_any)),
	STRUCT(MEMWAIT_IOC_REQUEUE, memwait_requeue, sizeof(struct memwait_requeue)),
	STRUCT(MEMWAIT_IOC_NOTIFY_WAIT, memwait_notify_wait, sizeof(struct memwait_notify_wait)),
	STRUCT(MEMWAIT_IOC_WAITERS, memwait_notify, sizeof(struct memwait_notify)),
	STRUCT(MEMWAIT_IOC_NOTIFY_MANY, memwait_notify_many, sizeof(struct memwait_notify_many)),
	STRUCT(MEMWAIT_IOC_OWNER, memwait_owner, sizeof(struct memwait_owner)),
	STRUCT(MEMWAIT_IOC_CHANGE_NOTIFY, memwait_change, sizeof(struct memwait_change)),
};

static unsigned long resized(unsigned long cmd, size_t size)
{
	return _IOC(_IOC_DIR(cmd), _IOC_TYPE(cmd), _IOC_NR(cmd), size);
}

MEMWAIT_TEST(info_reports_features_and_limits)
{
	struct memwait_info info;
	struct utsname name;

	ASSERT_EQ(0, mw_info(self->fd, &info));
	/* A 32-bit program may run on a 64-bit kernel; uname(2) shows which kernel it is. */
	ASSERT_EQ(0, uname(&name));
	EXPECT_EQ(!!strstr(name.machine, "64"), !!(info.features & MEMWAIT_FEATURE_WAIT_U64));
	EXPECT_LT(0, info.max_user_waits);
	EXPECT_EQ(self->user_waits, info.user_waits);
	EXPECT_EQ(MEMWAIT_GROUP_MAX, info.max_group);
	EXPECT_EQ(0, info.reserved);
	EXPECT_EQ(!!strstr(name.machine, "64"), !!(info.features & MEMWAIT_FEATURE_OWNERS));
	EXPECT_EQ(0, info.features & ~(MEMWAIT_FEATURE_WAIT_U64 | MEMWAIT_FEATURE_OWNERS));
	EXPECT_LT(0, info.max_user_contexts);
	EXPECT_LE(1, info.user_contexts);
	EXPECT_GE(info.max_user_contexts, info.user_contexts);
	EXPECT_LT(0, info.max_user_owners);
	EXPECT_GE(info.max_user_owners, info.user_owners);
}

MEMWAIT_TEST(info_fills_a_shorter_struct)
{
	unsigned char info[sizeof(struct memwait_info)], whole[sizeof(info)];
	size_t size, i;

	ASSERT_EQ(0, mw_info(self->fd, (struct memwait_info *)whole));
	for (size = INFO_LEAST; size < sizeof(info); size += 4) {
		memset(info, 0xcc, sizeof(info));
		ASSERT_EQ(0, xioctl(self->fd, resized(MEMWAIT_IOC_INFO, size), info));
		EXPECT_EQ(0, memcmp(info, whole, size));
		for (i = size; i < sizeof(info); i++)
			EXPECT_EQ(0xcc, info[i]);
	}
}

MEMWAIT_TEST(info_zeroes_the_rest_of_a_longer_struct)
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
		EXPECT_EQ(-EINVAL, xioctl(self->fd, resized(ioctls[i].cmd, ioctls[i].least - 4),
					  arg));
		EXPECT_EQ(-EINVAL, xioctl(self->fd, resized(ioctls[i].cmd, 0), arg));
	}
}

MEMWAIT_TEST(each_longer_struct_with_unknown_data_is_e2big)
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

	for (nr = _IOC_NR(MEMWAIT_IOC_CHANGE_NOTIFY) + 1; nr < 256; nr++) {
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

/* An array element with fields that a later version may add. */
struct longer_async {
	struct memwait_async entry;
	uint64_t more[2];
};

static void longer_entries(struct longer_async *e, uint32_t *word, int n)
{
	int i;

	memset(e, 0, n * sizeof(*e));
	for (i = 0; i < n; i++) {
		e[i].entry.wait.addr = (uintptr_t)(word + i);
		e[i].entry.wait.deadline = MEMWAIT_FOREVER;
		e[i].entry.wait.flags = U32;
		e[i].entry.user_data = i;
	}
}

MEMWAIT_TEST(elements_may_be_longer_if_the_rest_is_zero)
{
	struct longer_async e[3];
	struct memwait_completion done[3];
	struct memwait_wait_async arg = {
		.waits = (uintptr_t)e,
		.count = 3,
		.entry_size = sizeof(e[0]),
	};
	int i;

	longer_entries(e, self->word, 3);
	EXPECT_EQ(3, xioctl(self->fd, MEMWAIT_IOC_WAIT_ASYNC, &arg));
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(MEMWAIT_PENDING, e[i].entry.result);
		EXPECT_EQ(0, e[i].more[0] | e[i].more[1]);
		EXPECT_EQ(1, mw_notify(self->fd, self->word + i, 1, U32));
	}
	ASSERT_EQ(3, mw_read(self->fd, done, 3));
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(i, done[i].user_data);
		EXPECT_EQ(e[i].entry.id, done[i].id);
	}
}

MEMWAIT_TEST(an_element_with_unknown_data_is_e2big)
{
	struct longer_async e[3];
	struct memwait_wait_async arg = {
		.waits = (uintptr_t)e,
		.count = 3,
		.entry_size = sizeof(e[0]),
	};

	longer_entries(e, self->word, 3);
	e[0].more[1] = 1ULL << 63;
	EXPECT_EQ(-E2BIG, xioctl(self->fd, MEMWAIT_IOC_WAIT_ASYNC, &arg));
	EXPECT_EQ(-E2BIG, e[0].entry.result);
	EXPECT_EQ(0, e[0].entry.id);
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));

	/* The invalid element ends the batch. */
	longer_entries(e, self->word, 3);
	e[1].more[0] = 1;
	EXPECT_EQ(1, xioctl(self->fd, MEMWAIT_IOC_WAIT_ASYNC, &arg));
	EXPECT_EQ(MEMWAIT_PENDING, e[0].entry.result);
	EXPECT_EQ(-E2BIG, e[1].entry.result);
	EXPECT_EQ(0, e[2].entry.result);
	EXPECT_EQ(0, mw_waiters(self->fd, self->word + 1, U32));
	EXPECT_EQ(0, mw_cancel(self->fd, e[0].entry.id));
}

MEMWAIT_TEST(an_invalid_element_size_is_refused_before_anything_is_done)
{
	struct longer_async e[1];
	struct memwait_wait_async arg = { .waits = (uintptr_t)e, .count = 1 };
	uint32_t sizes[] = { 0, 1, 55, 1U << 31, ~0U };
	size_t i;

	longer_entries(e, self->word, 1);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		arg.entry_size = sizes[i];
		EXPECT_EQ(sizes[i] < sizeof(struct memwait_async) ? -EINVAL : -E2BIG,
			  xioctl(self->fd, MEMWAIT_IOC_WAIT_ASYNC, &arg));
		EXPECT_EQ(0, e[0].entry.result);
	}
	arg.entry_size = 0;
	arg.count = 0;
	EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_WAIT_ASYNC, &arg));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
}

MEMWAIT_TEST(a_completion_counts_its_notifies)
{
	struct memwait_completion done[2];
	struct pollfd pfd = { .fd = self->fd, .events = POLLIN };

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 1));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	memset(done, 0xcc, sizeof(done));
	ASSERT_EQ(1, mw_read(self->fd, done, 1));
	EXPECT_EQ(MEMWAIT_OK, done[0].result);
	EXPECT_EQ(1, done[0].count);
	EXPECT_EQ(0, done[0].flags);
	while (mw_async(self->fd, self->word, 0, in_ms(20), U32, 2, NULL) != MEMWAIT_PENDING)
		;
	ASSERT_EQ(1, poll(&pfd, 1, poll_patience(100)));
	memset(done, 0xcc, sizeof(done));
	ASSERT_EQ(1, mw_read(self->fd, done, 1));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done[0].result);
	EXPECT_EQ(0, done[0].count);
	EXPECT_EQ(0, done[0].flags);
	EXPECT_EQ(0, done[0].index);
}

MEMWAIT_TEST(other_files_do_not_support_the_ioctls)
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

MEMWAIT_TEST(every_user_may_open_the_device)
{
	struct stat st;
	pid_t pid;

	ASSERT_EQ(0, stat("/dev/memwait", &st));
	EXPECT_TRUE(S_ISCHR(st.st_mode));
	EXPECT_EQ(0666, st.st_mode & 07777);

	pid = fork_child();
	if (!pid) {
		int fd;

		if (getuid() == 0 && (setgid(65534) || setuid(65534)))
			_exit(1);
		fd = memwait_open(0);
		if (fd < 0 || mw_notify(fd, self->word, 1, U32) ||
		    mw_arm(fd, self->word, 1) != MEMWAIT_PENDING ||
		    mw_notify(fd, self->word, 1, U32) != 1)
			_exit(2);
		_exit(0);
	}
	EXPECT_EQ(0, child_status(pid));
}

MEMWAIT_TEST(a_read_only_descriptor_suffices_for_every_ioctl)
{
	int fd = open("/dev/memwait", O_RDONLY | O_NONBLOCK);
	struct memwait_completion done;

	ASSERT_LE(0, fd);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->word, 1));
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

MEMWAIT_TEST(fdinfo_counts_pending_and_completed)
{
	struct memwait_completion done[4];
	int i;

	EXPECT_EQ(0, mw_fdinfo(self->fd, "pending"));
	EXPECT_EQ(0, mw_fdinfo(self->fd, "completed"));
	for (i = 0; i < 5; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, i));
	EXPECT_EQ(5, mw_fdinfo(self->fd, "pending"));
	EXPECT_EQ(3, mw_notify(self->fd, self->word, 3, U32));
	EXPECT_EQ(2, mw_fdinfo(self->fd, "pending"));
	EXPECT_EQ(3, mw_fdinfo(self->fd, "completed"));
	EXPECT_EQ(2, mw_read(self->fd, done, 2));
	EXPECT_EQ(1, mw_fdinfo(self->fd, "completed"));
	EXPECT_EQ(2, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(3, mw_read(self->fd, done, 4));
	EXPECT_EQ(0, mw_fdinfo(self->fd, "pending"));
	EXPECT_EQ(0, mw_fdinfo(self->fd, "completed"));
}

TEST_HARNESS_MAIN
