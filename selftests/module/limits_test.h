/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers for tests of the module's limits and of memory cgroups. */
#ifndef LIMITS_TEST_H
#define LIMITS_TEST_H

#include <sys/prctl.h>

#include "async_test.h"

#define PARAMETERS	"/sys/module/memwait/parameters/"
#define CGROUP		"/sys/fs/cgroup/memwait-test"

/* A user id that only the tests use. */
#define NOBODY		65534

static inline void become_nobody(void)
{
	if (setgid(NOBODY) || setuid(NOBODY))
		_exit(99);
	prctl(PR_SET_DUMPABLE, 1);	/* makes /proc/self belong to the process again */
}

/* A check in a child, which exits if it fails. */
#define CHECK(condition)						\
	do {								\
		if (!(condition)) {					\
			fprintf(stderr, "# line %d: %s\n", __LINE__, #condition); \
			_exit(1);					\
		}							\
	} while (0)

FIXTURE(limits)
{
	int fd;
	uint32_t *word;
	uint64_t user_waits;
};

FIXTURE_SETUP(limits)
{
	self->fd = open_device(O_NONBLOCK);
	self->word = shared_page(4096);
	self->user_waits = mw_user_waits(self->fd);
	if (geteuid())
		SKIP(return, "needs root to set the limit");
}

FIXTURE_TEARDOWN(limits)
{
	int fd = memwait_open(0);

	EXPECT_EQ(0, restore_settings());
	close(self->fd);
	EXPECT_EQ(self->user_waits, mw_await_user_waits(fd, self->user_waits));
	EXPECT_EQ(0, mw_waiters(fd, self->word, U32));
	close(fd);
}

#define LIMITS_TEST(name)	TEST_F_TIMEOUT(limits, name, 300)

/* Returns false if the memory controller of cgroup v2 is not available. */
static inline bool make_cgroup(void)
{
	rmdir(CGROUP);	/* a killed test may have left it */
	if (!mkdir(CGROUP, 0755) && read_number(CGROUP "/memory.current") >= 0)
		return true;
	rmdir(CGROUP);
	return false;
}

static inline int enter_cgroup(void)
{
	return write_number(CGROUP "/cgroup.procs", getpid());
}

static inline void leave_cgroup(void)
{
	write_number("/sys/fs/cgroup/cgroup.procs", getpid());
	remove_cgroup(CGROUP);
}

#endif /* LIMITS_TEST_H */
