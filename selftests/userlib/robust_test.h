/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of robust locks share: the fixture, and a board for all that dies. */
#ifndef ROBUST_TEST_H
#define ROBUST_TEST_H

#include "death_test.h"

#define HOUR		(3600 * 1000)	/* in ms */
#define HALF_A_MINUTE	30000		/* the same: more than anything here takes */

/* What is private is had by threads of this process only. */
static inline bool can_be_had_by(unsigned int kind, int how)
{
	return !(kind & MEMWAIT_PRIVATE) || how == THREAD_ENDS;
}

/* All that is shared lies in one page, as a condition variable and its mutex like it. */
struct board {
	memwait_mutex_t mutex, other;
	memwait_cond_t cond;
	memwait_rwlock_t rwlock;
	memwait_barrier_t barrier;
	memwait_sem_t sem;
	struct hold holds[3];
	uint64_t id;
	struct timespec until;
	long counter;
	int inside, violations;
	int there, go;
	int result;
	uint64_t channel[128];
};

FIXTURE(robust)
{
	memwait_loop_t *loop;
	struct board *board;	/* shared */
	uint64_t id;		/* of this thread */
	int fd;
};

FIXTURE_SETUP(robust)
{
	struct memwait_info info;

	self->fd = open_device(0);
	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel cannot tell of deaths");
	self->board = shared_page(sizeof(*self->board));
	mw_await_owners(self->fd, 0);
	ASSERT_EQ(0, memwait_owner(&self->id));
	ASSERT_EQ(0, memwait_loop_new(&self->loop, 0));
}

FIXTURE_TEARDOWN(robust)
{
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
	EXPECT_EQ(0, memwait_loop_close(self->loop));
	/* Whoever has died is forgotten. */
	mw_await_owners(self->fd, 1);
	close(self->fd);
}

#define ROBUST_TEST(name)	TEST_F_TIMEOUT(robust, name, 300)

#endif /* ROBUST_TEST_H */
