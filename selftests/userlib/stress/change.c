// SPDX-License-Identifier: GPL-2.0
/*
 * The function by which the stand-in of the device changes a word. It is built with the same flags
 * as the library, because ThreadSanitizer must see these atomics exactly where it sees the
 * library's atomics.
 */
#include <stdint.h>

#include <linux/memwait.h>

uint32_t stress_change(uint32_t *word, uint32_t operation, uint32_t operand);

uint32_t stress_change(uint32_t *word, uint32_t operation, uint32_t operand)
{
	switch (operation) {
	case MEMWAIT_CHANGE_SET:
		return __atomic_exchange_n(word, operand, __ATOMIC_SEQ_CST);
	case MEMWAIT_CHANGE_ADD:
		return __atomic_fetch_add(word, operand, __ATOMIC_SEQ_CST);
	case MEMWAIT_CHANGE_AND:
		return __atomic_fetch_and(word, operand, __ATOMIC_SEQ_CST);
	case MEMWAIT_CHANGE_OR:
		return __atomic_fetch_or(word, operand, __ATOMIC_SEQ_CST);
	default:
		return __atomic_fetch_xor(word, operand, __ATOMIC_SEQ_CST);
	}
}
