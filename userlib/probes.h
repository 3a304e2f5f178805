/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * USDT probes of locks, for systemtap, bpftrace, perf and gdb. The provider is libmemwait. Names
 * and arguments match glibc's where glibc has them. Each probe is one nop and a note in the
 * library's file. Built without <sys/sdt.h> (systemtap-sdt-dev), the library has no probes.
 */
#ifndef MEMWAIT_PROBES_H
#define MEMWAIT_PROBES_H

#if defined(__has_include)
#if __has_include("sys/sdt.h")
#define MEMWAIT_HAS_PROBES
#endif
#endif

#ifdef MEMWAIT_HAS_PROBES
#include <sys/sdt.h>
#define MEMWAIT_PROBE1(name, one)		STAP_PROBE1(libmemwait, name, one)
#define MEMWAIT_PROBE2(name, one, two)		STAP_PROBE2(libmemwait, name, one, two)
#define MEMWAIT_PROBE3(name, one, two, three)	STAP_PROBE3(libmemwait, name, one, two, three)
#else
#define MEMWAIT_PROBE1(name, one)		((void)#name, (void)(one))
#define MEMWAIT_PROBE2(name, one, two)		((void)#name, (void)(one), (void)(two))
#define MEMWAIT_PROBE3(name, one, two, three)	\
	((void)#name, (void)(one), (void)(two), (void)(three))
#endif

#endif /* MEMWAIT_PROBES_H */
