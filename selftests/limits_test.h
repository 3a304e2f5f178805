/* SPDX-License-Identifier: GPL-2.0 */
/* What tests of the limits need: who sets the module's limit, and is in a memory cgroup. */
#ifndef LIMITS_TEST_H
#define LIMITS_TEST_H

#include "async_test.h"

#define CGROUP		"/sys/fs/cgroup/memwait-test"

static inline long read_file(const char *path)
{
	char text[64] = { 0 };
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	return n > 0 ? atol(text) : -1;
}

/* The limit is the module's: it must be as before, however a test ends. */
FIXTURE(limits)
{
	int fd;
	uint32_t *word;
	uint64_t user_waits;
	long limit;
};

FIXTURE_SETUP(limits)
{
	self->fd = memwait_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->word = shared_page(4096);
	self->user_waits = mw_user_waits(self->fd);
	self->limit = read_file(LIMIT_PARAMETER);
	ASSERT_LT(0, self->limit);
	if (geteuid())
		SKIP(return, "needs root to set the limit");
}

FIXTURE_TEARDOWN(limits)
{
	int fd = memwait_open(0);

	set_limit(self->limit);
	EXPECT_EQ(self->limit, read_file(LIMIT_PARAMETER));
	close(self->fd);
	EXPECT_EQ(self->user_waits, mw_user_waits(fd));
	EXPECT_EQ(0, mw_waiters(fd, self->word, U32));
	close(fd);
}

#define LIMITS_TEST(name)	TEST_F_TIMEOUT(limits, name, 120)

static inline int enter_cgroup(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	return write_file(CGROUP "/cgroup.procs", pid);
}

static inline void leave_cgroup(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	write_file("/sys/fs/cgroup/cgroup.procs", pid);
	rmdir(CGROUP);
}

#endif /* LIMITS_TEST_H */
