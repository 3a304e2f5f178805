/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * ThreadSanitizer sees only code that was built for it, not the atomics in this library. Therefore
 * a call that releases or acquires something reports this to ThreadSanitizer, if the program was
 * built with it: ThreadSanitizer's two functions are weak symbols, which are defined only in such a
 * program. A release and its acquire name the same address, which is not accessed.
 *
 * Fast paths do not report anything, so the reports cost nothing there: in such a program the fast
 * paths are not taken, because memwait_has_device() is false. Only unlocking has to check.
 *
 * A library that is itself built with ThreadSanitizer needs none of this; ThreadSanitizer then sees
 * its atomics.
 *
 * Valgrind's helgrind and drd get the same reports by client requests: instructions that do nothing
 * outside valgrind. These tools also see the library's own accesses, and report its atomics as
 * races: memwait.supp suppresses these reports. A library built without valgrind's headers reports
 * nothing to them.
 */
#ifndef MEMWAIT_TSAN_H
#define MEMWAIT_TSAN_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MEMWAIT_SEEN_BY_TSAN
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define MEMWAIT_SEEN_BY_TSAN
#endif

/* Helgrind and drd ignore each other's requests. */
#if defined(__has_include)
#if __has_include("valgrind/drd.h") && __has_include("valgrind/helgrind.h")
#define MEMWAIT_HAS_VALGRIND
#include <valgrind/drd.h>
#include <valgrind/helgrind.h>

static inline bool memwait_runs_on_valgrind(void)
{
	return RUNNING_ON_VALGRIND;
}

static inline void memwait_valgrind_acquire(const volatile void *object)
{
	VALGRIND_DO_CLIENT_REQUEST_STMT(_VG_USERREQ__HG_USERSO_RECV_POST, object, 0, 0, 0, 0);
	VALGRIND_DO_CLIENT_REQUEST_STMT(VG_USERREQ__DRD_ANNOTATE_HAPPENS_AFTER, object, 0, 0, 0,
					0);
}

static inline void memwait_valgrind_release(const volatile void *object)
{
	VALGRIND_DO_CLIENT_REQUEST_STMT(_VG_USERREQ__HG_USERSO_SEND_PRE, object, 0, 0, 0, 0);
	VALGRIND_DO_CLIENT_REQUEST_STMT(VG_USERREQ__DRD_ANNOTATE_HAPPENS_BEFORE, object, 0, 0, 0,
					0);
}
#endif
#endif

#ifndef MEMWAIT_HAS_VALGRIND
static inline bool memwait_runs_on_valgrind(void)
{
	return false;
}

static inline void memwait_valgrind_acquire(const volatile void *object)
{
	(void)object;
}

static inline void memwait_valgrind_release(const volatile void *object)
{
	(void)object;
}
#endif

#ifdef MEMWAIT_SEEN_BY_TSAN
#define memwait_tsan_runs()		false
#define memwait_tsan_acquire(object)	((void)(object))
#define memwait_tsan_release(object)	((void)(object))
#else
void __tsan_acquire(void *address) __attribute__((__weak__, __visibility__("default")));
void __tsan_release(void *address) __attribute__((__weak__, __visibility__("default")));

/* Set in device.c before anything runs. Weak, because the simulation is built without device.c. */
__attribute__((__weak__, __visibility__("hidden"))) bool memwait_on_valgrind;

static inline bool memwait_tsan_runs(void)
{
	return __builtin_expect(memwait_on_valgrind || __tsan_release != 0, 0);
}

static inline void memwait_tsan_acquire(const volatile void *object)
{
	if (__builtin_expect(__tsan_acquire != 0, 0))
		__tsan_acquire((void *)(uintptr_t)object);
	if (__builtin_expect(memwait_on_valgrind, 0))
		memwait_valgrind_acquire(object);
}

static inline void memwait_tsan_release(const volatile void *object)
{
	if (__builtin_expect(__tsan_release != 0, 0))
		__tsan_release((void *)(uintptr_t)object);
	if (__builtin_expect(memwait_on_valgrind, 0))
		memwait_valgrind_release(object);
}
#endif

#endif /* MEMWAIT_TSAN_H */
