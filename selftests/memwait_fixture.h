/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A fixture with one context, one private page and one shared page, which checks that a test leaves
 * nothing behind. Tests time out after five minutes, because the slowest VM needs seconds where
 * native hardware needs milliseconds.
 */
#ifndef MEMWAIT_FIXTURE_H
#define MEMWAIT_FIXTURE_H

#include "memwait_test.h"

#define U32	MEMWAIT_SIZE_U32

FIXTURE(memwait)
{
	int fd;
	uint32_t *word;		/* private */
	uint32_t *shared;
	long page;
	uint64_t user_waits;
};

FIXTURE_SETUP(memwait)
{
	/* A shell lets its background jobs ignore this signal. */
	signal(SIGQUIT, SIG_DFL);
	self->page = sysconf(_SC_PAGESIZE);
	self->fd = open_device(O_NONBLOCK);
	self->word = private_page(self->page);
	self->shared = shared_page(self->page);
	self->user_waits = mw_user_waits(self->fd);
}

FIXTURE_TEARDOWN(memwait)
{
	int fd = memwait_open(0);

	EXPECT_EQ(0, restore_settings());
	EXPECT_EQ(0, mw_waiters(fd, self->word, U32 | MEMWAIT_PRIVATE));
	close(self->fd);
	EXPECT_EQ(self->user_waits, mw_await_user_waits(fd, self->user_waits));
	close(fd);
}

/* Checks that the next completion of @fd_ has @user_data_ and @result_. */
#define EXPECT_COMPLETION(fd_, user_data_, result_) do {				\
	struct memwait_completion done_;						\
											\
	ASSERT_EQ(1, mw_read((fd_), &done_, 1));					\
	EXPECT_EQ((user_data_), done_.user_data);					\
	EXPECT_EQ((result_), done_.result);						\
} while (0)

#define MEMWAIT_TEST(name)	TEST_F_TIMEOUT(memwait, name, 300)

#endif /* MEMWAIT_FIXTURE_H */
