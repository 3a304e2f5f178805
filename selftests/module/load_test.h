/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers for tests with many threads, waits or words, which print measurements. */
#ifndef LOAD_TEST_H
#define LOAD_TEST_H

#include "limits_test.h"
#include "several_test.h"

static inline double seconds_since(uint64_t start)
{
	return (double)(now_ns(CLOCK_MONOTONIC) - start) / NSEC_PER_SEC;
}

/* Returns the value of a line of /proc/meminfo in bytes. */
static inline long memory_of(const char *name)
{
	return read_number_of("/proc/meminfo", name) * 1024;
}

#endif /* LOAD_TEST_H */
