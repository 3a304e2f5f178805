/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * ThreadSanitizer of a program sees only code that was built for it, not the atomics of this
 * library. So a call that releases or acquires something says so, if the program was built with
 * ThreadSanitizer: the two functions are weak, and there only then. Pairs of calls name an address,
 * which is not accessed.
 *
 * Fast paths say nothing, and cost nothing: in such a program the device never seems open to them
 * (memwait_has_device()). Only unlocking asks.
 *
 * A library that is itself built for ThreadSanitizer needs none of this, and shows what is missing.
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

#ifdef MEMWAIT_SEEN_BY_TSAN
#define memwait_tsan_runs()		false
#define memwait_tsan_acquire(object)	((void)(object))
#define memwait_tsan_release(object)	((void)(object))
#else
void __tsan_acquire(void *address) __attribute__((__weak__, __visibility__("default")));
void __tsan_release(void *address) __attribute__((__weak__, __visibility__("default")));

static inline bool memwait_tsan_runs(void)
{
	return __builtin_expect(__tsan_release != 0, 0);
}

static inline void memwait_tsan_acquire(const volatile void *object)
{
	if (__builtin_expect(__tsan_acquire != 0, 0))
		__tsan_acquire((void *)(uintptr_t)object);
}

static inline void memwait_tsan_release(const volatile void *object)
{
	if (memwait_tsan_runs())
		__tsan_release((void *)(uintptr_t)object);
}
#endif

#endif /* MEMWAIT_TSAN_H */
