/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tests that enable tracepoints make the kernel patch its code. An emulator may fail if code is
 * patched while another CPU runs it. Therefore all other CPUs are taken offline on emulators.
 */
#ifndef PATCHING_TEST_H
#define PATCHING_TEST_H

#include "memwait_test.h"

static inline bool is_emulated(void)
{
	char line[256];
	bool emulated = false;
	FILE *f = fopen("/proc/cpuinfo", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (strstr(line, "QEMU TCG"))
			emulated = true;
	}
	if (f)
		fclose(f);
	return emulated;
}

static inline int set_online(int cpu, int online)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	return write_number(path, online);
}

/*
 * Stores in *offline the CPUs that must be brought back online. Returns whether the test can
 * continue.
 */
static inline bool begin_patching(uint64_t *offline)
{
	int cpu;

	*offline = 0;
	if (!is_emulated())
		return true;
	for (cpu = 1; cpu < sysconf(_SC_NPROCESSORS_CONF); cpu++) {
		if (!set_online(cpu, 0))
			*offline |= 1ULL << cpu;
	}
	return sysconf(_SC_NPROCESSORS_ONLN) == 1;
}

static inline void end_patching(uint64_t offline)
{
	int cpu;

	for (cpu = 1; cpu < 64; cpu++) {
		if (offline & 1ULL << cpu)
			set_online(cpu, 1);
	}
}

#endif /* PATCHING_TEST_H */
