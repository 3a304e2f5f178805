/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The layout of the file that all five programs map: a fair mutex, the data that it guards, and a
 * channel. The programs in Python, JavaScript and Rust repeat these numbers.
 */
#ifndef TOGETHER_H
#define TOGETHER_H

#include <stdint.h>

enum {
	MUTEX = 0,		/* a memwait_mutex_t */
	HOLDER = 128,		/* uint8_t: the letter of the program that holds the mutex, or 0 */
	TURNS = 132,		/* uint32_t */
	LOG = 256,		/* a letter for each turn */
	CHANNEL = 1024,		/* a memwait_channel_t of ITEM bytes */
	SIZE = 4096,

	ITEM = 8,
	CAPACITY = 2,
	PLAYERS = 5,
	ROUNDS = 10,		/* turns of each program */
	HOLD_MS = 2,		/* time of a turn, in which the others queue up */
};

/* Must be called with the mutex locked. Returns false if another program also holds the mutex. */
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
