/* SPDX-License-Identifier: GPL-2.0 */
/* futex(2) and futex2: the C library has no functions for them. */
#ifndef FUTEX_CALLS_H
#define FUTEX_CALLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/futex.h>

/* Older headers than those of Linux 6.7 do not have these. */
#ifndef SYS_futex_wake
#define SYS_futex_wake	454
#define SYS_futex_wait	455
#endif

#ifndef FUTEX2_SIZE_U32
#define FUTEX2_SIZE_U32	0x02
#endif

/* @private: 0 or FUTEX_PRIVATE_FLAG, which equals FUTEX2_PRIVATE and MEMWAIT_PRIVATE */
static inline long futex_wake(uint32_t *word, uint32_t count, uint32_t private)
{
	return syscall(SYS_futex, word, FUTEX_WAKE | private, count, NULL, NULL, 0);
}

static inline long futex_wait(uint32_t *word, uint32_t expected, uint32_t private)
{
	return syscall(SYS_futex, word, FUTEX_WAIT | private, expected, NULL, NULL, 0);
}

static inline long futex2_wake(uint32_t *word, uint32_t count, uint32_t private)
{
	return syscall(SYS_futex_wake, word, (unsigned long)FUTEX_BITSET_MATCH_ANY, count,
		       FUTEX2_SIZE_U32 | private);
}

static inline long futex2_wait(uint32_t *word, uint32_t expected, uint32_t private)
{
	return syscall(SYS_futex_wait, word, (unsigned long)expected,
		       (unsigned long)FUTEX_BITSET_MATCH_ANY, FUTEX2_SIZE_U32 | private, NULL, 0);
}

static inline bool futex2_is_there(void)
{
	uint32_t word = 0;

	return !futex2_wake(&word, 1, FUTEX_PRIVATE_FLAG);
}

#endif /* FUTEX_CALLS_H */
