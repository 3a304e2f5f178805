/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel uses for what a bench has set up. */
#ifndef BENCH_KERNEL_MEMORY_H
#define BENCH_KERNEL_MEMORY_H

#include "bench.h"

#include <glob.h>

/*
 * Slabs and large tables of the whole machine, in bytes. A memory cgroup would not do: much of what
 * the peers use is not charged to any.
 */
static inline double kernel_memory(void)
{
	/* Each processor counts for itself for a while; root can have it added up. */
	write_file("/proc/sys/vm/stat_refresh", "1");
	return 1024.0 * ((double)read_number_of("/proc/meminfo", "Slab") +
			 (double)read_number_of("/proc/meminfo", "VmallocUsed"));
}

/* Has caches let go of objects that they keep for later. Needs root. */
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

/* What is not used of the slabs: a few objects of somebody else can keep very many of them. */
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
 * What is used of it, when that does not become less any more: tables that were replaced, for
 * example, are freed later.
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
 * The kernel frees what a ring had, and files, some time after they were closed, and that would
 * disturb who comes next. Waits until there is hardly more in use than before; but not for ever,
 * for others use some, too.
 */
static inline void await_freed(double before)
{
	int tries = bench_measures() ? 300 : 1;

	while (kernel_memory() > before + 1048576 && --tries)
		usleep(10000);
}

#endif /* BENCH_KERNEL_MEMORY_H */
