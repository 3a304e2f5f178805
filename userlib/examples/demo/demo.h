/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Declarations that the files of the demo share. */
#ifndef DEMO_H
#define DEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <memwait.h>

/* demo.c */
_Noreturn void die(const char *what);
void check(int error, const char *what);

/* words.c: counting words */

/*
 * An offset in the text and a length, of 32 bits each: a change of one 64-bit word is easy to undo.
 */
static inline uint64_t place_of(size_t at, size_t length)
{
	return (uint64_t)at << 32 | length;
}

static inline size_t place_at(uint64_t place)
{
	return place >> 32;
}

static inline size_t place_length(uint64_t place)
{
	return place & UINT32_MAX;
}

struct word {
	uint64_t place;
	uint32_t hash;
};

/* A table of words and their frequencies, without pointers, so that it can be in shared memory. */
struct table {
	uint64_t size;		/* of entries[] */
	uint64_t words;
	uint64_t total;
	struct entry {
		uint64_t times;	/* 0: it is free */
		uint64_t place;	/* of one occurrence in the text */
	} entries[];
};

bool is_word(char c);
bool next_word(const char *text, size_t end, size_t *at, struct word *word);
size_t table_bytes(size_t size);
struct entry *table_find(struct table *table, const char *text, const struct word *word);
struct table *table_of_text(const char *text, size_t size);
void table_print_most_frequent(const struct table *table, const char *text, size_t most);
bool table_equal(const struct table *a, struct table *b, const char *text);

/* worker.c: the workers and their shared memory */

#define MAX_WORKERS	64
#define PIECE_SIZE	1024		/* some lines; a long line is split between two words */
#define PIECE_WORDS	(PIECE_SIZE / 2)
#define PIECE_CHANGES	(3 * PIECE_WORDS + 5)

/* The state of a worker, which survives its death. */
enum doing { STARTING, RECEIVING, COUNTING, LOCKING, UPDATING, DOINGS };

struct worker {
	_Atomic enum doing doing;
	uint64_t pieces;		/* that the worker has counted; protected by the mutex */
	uint64_t words;			/* likewise */
};

struct piece {
	uint64_t place;
	uint64_t counted;		/* 0 or 1; protected by the mutex */
};

/* A word of the shared memory, and its value before the change. */
struct change {
	uint64_t offset;
	uint64_t old;
};

struct shared {
	/* Offsets of the channel and the table from the start of this struct. */
	size_t channel_at;
	size_t table_at;

	/* Protects the members below, and the table. */
	memwait_mutex_t mutex;
	uint64_t counted;		/* pieces */
	uint64_t changes;		/* how many are in undo[] */
	struct change undo[PIECE_CHANGES];

	/* Statistics of deaths. */
	uint64_t owners_died;
	uint64_t taken_back;		/* changes */
	uint64_t twice;			/* received pieces that had already been counted */

	struct worker workers[MAX_WORKERS];
	struct piece pieces[];
};

/* A channel of numbers of pieces, from the supervisor to the workers. */
static inline memwait_channel_t *channel_of(struct shared *shared)
{
	return (memwait_channel_t *)((char *)shared + shared->channel_at);
}

static inline struct table *table_of(struct shared *shared)
{
	return (struct table *)((char *)shared + shared->table_at);
}

void lock(struct shared *shared);
void unlock(struct shared *shared);
void recover(struct shared *shared);
_Noreturn void work(struct shared *shared, const char *text, struct worker *self);

#endif /* DEMO_H */
