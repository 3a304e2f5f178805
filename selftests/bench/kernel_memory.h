/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel memory used by the objects that a bench has created. */
#ifndef BENCH_KERNEL_MEMORY_H
#define BENCH_KERNEL_MEMORY_H

#include "bench.h"

#include <glob.h>

/*
 * Returns the bytes in slabs and large tables of the whole machine. The figures of a memory cgroup
 * would not be sufficient, because much memory that the contenders use is not charged to any
 * cgroup.
 */
static inline double kernel_memory(void)
{
	/* Each CPU counts separately for some time. root can cause the counts to be added up. */
	write_file("/proc/sys/vm/stat_refresh", "1");
	return 1024.0 * ((double)read_number_of("/proc/meminfo", "Slab") +
			 (double)read_number_of("/proc/meminfo", "VmallocUsed"));
}

/* Makes slab caches free the objects that they cache for reuse. Needs root. */
static inline void shrink_slabs(void)
{
	glob_t caches;
	size_t i;

	if (!glob("/sys/kernel/slab/*/shrink", 0, NULL, &caches)) {
		for (i = 0; i < caches.gl_pathc; i++)
			write_file(caches.gl_pathv[i], "1");
		globfree(&caches);
	}
}

/*
 * Returns the unused bytes of the slabs. A few objects of another user can hold a large number of
 * slabs.
 */
static inline double free_in_slabs(void)
{
	FILE *f = fopen("/proc/slabinfo", "r");
	unsigned int active, all, size;
	double bytes = 0;
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %u %u %u", &active, &all, &size) == 3)
			bytes += (double)(all - active) * size;
	if (f)
		fclose(f);
	return bytes;
}

/*
 * Returns the memory in use once it no longer decreases. For example, replaced tables are freed
 * later.
 */
static inline double settled_kernel_memory(void)
{
	double now, before;

	if (!bench_measures())
		return kernel_memory();
	shrink_slabs();
	now = kernel_memory() - free_in_slabs();
	do {
		usleep(50000);
		before = now;
		shrink_slabs();
		now = kernel_memory() - free_in_slabs();
	} while (now < before - 65536);
	return now;
}

/*
 * The kernel frees the memory of rings and files some time after they were closed, which would
 * disturb the next contender. Waits, for a limited time, until hardly more memory is in use than
 * before. The time is limited because other programs also use memory.
 */
static inline void await_freed(double before)
{
	int tries = bench_measures() ? 300 : 1;

	while (kernel_memory() > before + 1048576 && --tries)
		usleep(10000);
}

#endif /* BENCH_KERNEL_MEMORY_H */
