// SPDX-License-Identifier: GPL-2.0
/* What the threads of a process have in common: its number, and the descriptor of the device. */
#include "../scenarios.h"

/* See internal.h: the number is that of a child that has not asked for it. */
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

SCENARIO("device child's number", 3, child_set_up, child_thread, child_finish);
