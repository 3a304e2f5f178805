/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What five programs share, in one file that each maps: a fair mutex, what it guards, and a
 * channel. The programs in Python, JavaScript and Rust have the same numbers.
 */
#ifndef TOGETHER_H
#define TOGETHER_H

#include <stdint.h>

enum {
	MUTEX = 0,		/* a memwait_mutex_t */
	HOLDER = 128,		/* uint8_t: a letter for who has the mutex, or 0 */
	TURNS = 132,		/* uint32_t */
	LOG = 256,		/* a letter for each turn */
	CHANNEL = 1024,		/* a memwait_channel_t of ITEM bytes */
	SIZE = 4096,

	ITEM = 8,
	CAPACITY = 2,
	PLAYERS = 5,
	ROUNDS = 10,		/* of each player */
	HOLD_MS = 2,		/* meanwhile the others queue up */
};

/* With the mutex locked. Returns false if somebody else has it as well. */
static inline bool turn_begins(char *memory, char letter)
{
	uint32_t *turns = (uint32_t *)(void *)(memory + TURNS);

	if (memory[HOLDER])
		return false;
	memory[HOLDER] = letter;
	memory[LOG + (*turns)++] = letter;
	return true;
}

static inline bool turn_ends(char *memory, char letter)
{
	if (memory[HOLDER] != letter)
		return false;
	memory[HOLDER] = 0;
	return true;
}

#endif
