// SPDX-License-Identifier: GPL-2.0
/* State that the threads of a process share: the process number, and the device's descriptor. */
#include "../scenarios.h"

/*
 * The process number; see device.h. This is the value of a child that has not determined its
 * number yet.
 */
extern _Atomic uint32_t *memwait_process;
uint32_t memwait_process_number(void);

static _Atomic uint32_t *before;

static void child_set_up(void)
{
	if (!before)
		before = memwait_process;
	memwait_process = &shared->flag;
}

static void child_thread(unsigned int thread)
{
	done[thread] = memwait_process_number();
	CHECK(memwait_process_number() == done[thread]);
}

static void child_finish(void)
{
	CHECK(done[0] && done[0] == done[1] && done[1] == done[2]);
	memwait_process = before;
}

SCENARIO("device child's number", 3, child_set_up(), child_thread, child_finish);

/* Each thread finds the device closed and opens it again. */
static void closed_set_up(void)
{
	CHECK(!memwait_sem_init(&shared->sem, 0, 0));
	device_close_all();
}

static void closed_thread(unsigned int thread)
{
	if (thread)
		CHECK(!memwait_sem_post(&shared->sem));
	else
		CHECK(!memwait_sem_wait(&shared->sem));
}

static void closed_two_wait_thread(unsigned int thread)
{
	if (thread < 2)
		CHECK(!memwait_sem_post(&shared->sem));
	else
		CHECK(!memwait_sem_wait(&shared->sem));
}

static void closed_finish(void)
{
	CHECK(device_descriptors() <= 1);
}

SCENARIO("device closed", 2, closed_set_up(), closed_thread, closed_finish);
SCENARIO("device closed for several", 4, closed_set_up(), closed_two_wait_thread, closed_finish);
