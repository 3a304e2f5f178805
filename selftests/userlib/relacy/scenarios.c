// SPDX-License-Identifier: GPL-2.0
/* Functions that the scenarios share. */
#include "scenarios.h"

uint32_t done[SIM_THREADS];

const struct timespec soon = { .tv_sec = DEVICE_NOW, .tv_nsec = 1 };

uint32_t done_by_all(void)
{
	uint32_t sum = 0;
	unsigned int i;

	for (i = 0; i < SIM_THREADS; i++)
		sum += done[i];
	return sum;
}

unsigned int deaths(void)
{
	unsigned int nr = 0, i;

	for (i = 0; i < SIM_THREADS; i++)
		nr += device_is_dead(i);
	return nr;
}

void step(void)
{
	atomic_store_explicit(&shared->step, 1, memory_order_relaxed);
}

void set_flag(void)
{
	atomic_store_explicit(&shared->flag, 1, memory_order_release);
}

bool wait_for_flag(void)
{
	unsigned int i;

	for (i = 0; i < 10; i++) {
		if (atomic_load_explicit(&shared->flag, memory_order_acquire))
			return true;
	}
	return false;
}

void no_finish(void)
{
}
