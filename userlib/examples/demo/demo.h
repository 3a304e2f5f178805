/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What the files of the demo share. */
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

/* Where in the text something is, and how long: 32 bits each. Words of 64 bits are easy to undo. */
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

/* A table of words and how often they came, without pointers: so it can be in shared memory. */
struct table {
	uint64_t size;		/* of entries[] */
	uint64_t words;
	uint64_t total;
	struct entry {
		uint64_t times;	/* 0: it is free */
		uint64_t place;	/* of one of them in the text */
	} entries[];
};

bool is_word(char c);
bool next_word(const char *text, size_t end, size_t *at, struct word *word);
size_t table_bytes(size_t size);
struct entry *table_find(struct table *table, const char *text, const struct word *word);
struct table *table_of_text(const char *text, size_t size);
void table_print_most_frequent(const struct table *table, const char *text, size_t most);
bool table_equal(const struct table *a, struct table *b, const char *text);

/* worker.c: what the processes do with their shared memory */

#define MAX_WORKERS	64
#define PIECE_SIZE	1024		/* some lines; longer ones are cut between two words */
#define PIECE_WORDS	(PIECE_SIZE / 2)
#define PIECE_CHANGES	(3 * PIECE_WORDS + 5)

/* What a worker is doing: its death leaves that as it is. */
enum doing { STARTING, RECEIVING, COUNTING, LOCKING, UPDATING, DOINGS };

struct worker {
	_Atomic enum doing doing;
	uint64_t pieces;		/* that it has counted; guarded by the mutex */
	uint64_t words;			/* likewise */
};

struct piece {
	uint64_t place;
	uint64_t counted;		/* 0 or 1; guarded by the mutex */
};

/* A word of the shared memory, and what it held before. */
struct change {
	uint64_t offset;
	uint64_t old;
};

struct shared {
	/* Where they are, from here. */
	size_t channel_at;
	size_t table_at;

	/* Guards what follows, and the table. */
	memwait_mutex_t mutex;
	uint64_t counted;		/* pieces */
	uint64_t changes;		/* how many are in undo[] */
	struct change undo[PIECE_CHANGES];

	/* How often it came to that. */
	uint64_t owners_died;
	uint64_t taken_back;		/* changes */
	uint64_t twice;			/* a piece came that had been counted */

	struct worker workers[MAX_WORKERS];
	struct piece pieces[];
};

/* Of numbers of pieces, from the supervisor to the workers. */
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
