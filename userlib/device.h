/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The device: sleep and wake; owners, processes, deadlines: see device.c. */
#ifndef MEMWAIT_DEVICE_H
#define MEMWAIT_DEVICE_H

#include <time.h>

#include "internal.h"
#include "tsan.h"

/* An invalid time is an error only when it is needed, as in pthreads. */
struct memwait_deadline {
	uint64_t ns;
	uint32_t flags;		/* MEMWAIT_CLOCK_REALTIME or 0 */
	int error;		/* EINVAL, or 0 */
};

static const struct memwait_deadline memwait_never = { .ns = MEMWAIT_FOREVER };

/* Byte offset of the half of a 64-bit word that the kernel compares. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define MEMWAIT_UPPER_HALF	4
#else
#define MEMWAIT_UPPER_HALF	0
#endif
#define MEMWAIT_LOWER_HALF	(4 - MEMWAIT_UPPER_HALF)

static inline const volatile void *memwait_upper_half(_Atomic uint64_t *word)
{
	return (const volatile char *)word + MEMWAIT_UPPER_HALF;
}

static inline const volatile void *memwait_lower_half(_Atomic uint64_t *word)
{
	return (const volatile char *)word + MEMWAIT_LOWER_HALF;
}

/* Flags for waits on an object with @flags. Waiters of a shared object are notified of deaths. */
static inline uint32_t memwait_sleep_flags(uint32_t flags)
{
	return flags & MEMWAIT_PRIVATE ? MEMWAIT_PRIVATE : MEMWAIT_OWNED;
}

/*
 * True if a notify or a death ended the wait. If such a waiter leaves something, it wakes the next
 * waiter.
 */
static inline bool memwait_was_woken(int outcome)
{
	return outcome == MEMWAIT_OK || outcome == MEMWAIT_OWNER_DIED;
}

/* Additional outcome: the word has changed. */
#define MEMWAIT_CHANGED		INT_MAX

/* These return outcomes or negative error numbers, and preserve errno. */
int memwait_device_open(int flags);
int memwait_device_probe(int fd);
int memwait_device_ioctl(int fd, unsigned long command, void *argument);
int memwait_device_error(int ret);
int memwait_device_first(void);
int memwait_device(unsigned long command, void *argument);
int memwait_deadline_set(struct memwait_deadline *deadline, clockid_t clock,
			 const struct timespec *time);
int memwait_deadline_by(struct memwait_deadline *deadline, const struct timespec *timeout,
			unsigned int flags);
void memwait_deadline_after(struct memwait_deadline *deadline, clockid_t clock, uint32_t ms);
uint64_t memwait_deadline_left(const struct memwait_deadline *deadline);
int memwait_sleep(const volatile void *word, uint64_t expected, uint32_t flags,
		  const struct memwait_deadline *deadline);
int memwait_sleep_cancellable(const volatile void *wake, const volatile void *word,
			      uint64_t expected, uint32_t flags,
			      const struct memwait_deadline *deadline,
			      void (*cancelled)(void *argument), void *argument);
int memwait_device_notify(const volatile void *word, uint32_t count, uint32_t flags);
int memwait_wake(const volatile void *word, uint32_t count, uint32_t flags);
int memwait_wake_all(const volatile void *word, uint32_t flags);
int memwait_change(const volatile void *word, uint32_t operation, uint32_t operand, uint32_t count,
		   uint32_t flags, uint32_t *old);
int memwait_sleepers(const volatile void *word, uint32_t flags);
uint32_t memwait_process_number(void);

/*
 * The process's own context. Lower half: its descriptor; -1 before it is opened, after it was lost,
 * and under ThreadSanitizer. Upper half: how often it was lost, so that a reused number is not
 * taken for the previous descriptor.
 */
extern _Atomic uint64_t memwait_device_context __attribute__((__visibility__("hidden")));

/*
 * Functions that begin something open the device first, even if they need not wait: the same thread
 * may later have to wake waiters when it unlocks or posts, and cannot handle a failed open at that
 * point (no descriptor left, device not visible).
 */
static inline bool memwait_has_device(void)
{
#ifdef MEMWAIT_SEEN_BY_TSAN
	/* relaxed: only the kernel dereferences the number */
	return (int)(uint32_t)atomic_load_explicit(&memwait_device_context,
						   memory_order_relaxed) != -1;
#else
	/* The same, in two instructions: compilers do not fold an atomic load into a compare. */
	return *(const int *)memwait_lower_half(&memwait_device_context) != -1;
#endif
}

/* Returns 0 or an error. */
static inline int memwait_need_device(void)
{
	return memwait_has_device() ? 0 : memwait_device_first();
}

/*
 * Like memwait_need_device(), for functions that end something. If the process has closed the
 * device and cannot reopen it, they proceed, because most have no waiter to wake.
 */
static inline int memwait_need_device_once(void)
{
	/* relaxed: as in memwait_has_device() */
	return memwait_has_device() ||
	       atomic_load_explicit(&memwait_device_context, memory_order_relaxed) >> 32 ?
	       0 : memwait_device_first();
}

/*
 * The calling thread: its id, or its parent's id, or 0; and the process that the id belongs to.
 * Both are in one variable, because each thread-local variable costs a call in a shared library.
 */
struct memwait_self {
	uint64_t id;
	uint32_t process;
};

extern __thread struct memwait_self memwait_self __attribute__((__visibility__("hidden")));
/* The number of this process; 0 in a child that has no number yet. */
extern _Atomic uint32_t *memwait_process __attribute__((__visibility__("hidden")));

/* Id of the calling thread, or 0 if it has none yet. A parent's id does not count. */
static inline uint64_t memwait_known_id(void)
{
	/* relaxed: changes only in a child, before the child runs anything else */
	uint32_t process = atomic_load_explicit(memwait_process, memory_order_relaxed);

	return memwait_self.process == process ? memwait_self.id : 0;
}

uint64_t memwait_thread_id(void);
bool memwait_memory_is_private(const volatile void *memory);
bool memwait_may_spin(void);

#endif /* MEMWAIT_DEVICE_H */
