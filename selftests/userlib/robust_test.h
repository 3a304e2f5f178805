/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Definitions shared by the tests of robust locks: the fixture, and the memory that the processes
 * share.
 */
#ifndef ROBUST_TEST_H
#define ROBUST_TEST_H

#include "death_test.h"

#define HOUR		(3600 * 1000)	/* in ms */
#define HALF_A_MINUTE	30000		/* in ms; longer than any test takes */

/* A private object can be used only by the threads of this process. */
static inline bool can_be_used_by(unsigned int kind, int how)
{
	return !(kind & MEMWAIT_PRIVATE) || how == THREAD_ENDS;
}

/*
 * All shared objects are in one page, so that a condition variable and its mutex are in the same
 * page.
 */
struct shared {
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
	struct shared *shared;	/* in shared memory */
	uint64_t id;		/* of this thread */
	int fd;
};

FIXTURE_SETUP(robust)
{
	struct memwait_info info;

	self->fd = open_device(0);
	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel does not report deaths");
	self->shared = shared_page(sizeof(*self->shared));
	mw_await_owners(self->fd, 0);
	ASSERT_EQ(0, memwait_owner(&self->id));
	ASSERT_EQ(0, memwait_loop_new(&self->loop, 0));
}

FIXTURE_TEARDOWN(robust)
{
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
	EXPECT_EQ(0, memwait_loop_close(self->loop));
	/* The dead owners have been freed. */
	mw_await_owners(self->fd, 1);
	close(self->fd);
}

#define ROBUST_TEST(name)	TEST_F_TIMEOUT(robust, name, 300)

#endif /* ROBUST_TEST_H */
