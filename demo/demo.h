/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What the files of the demo share: the ring in shared memory, and the counting of words. */
#ifndef DEMO_H
#define DEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/memwait.h>

#define SLOTS		64	/* a power of two */
#define SLOT_SIZE	248

/* What a process did with /dev/memwait; in shared memory, each process writes its own. */
struct counts {
	uint64_t notifies;	/* MEMWAIT_IOC_NOTIFY calls */
	uint64_t woken;		/* the sum of what they returned */
	uint64_t ok, not_equal, timed_out, pending, cancelled;
};

/*
 * A bounded queue for several producers and consumers. Each slot has a sequence number: 2 * lap
 * when it is free for that lap, 2 * lap + 1 when it is full. @filled and @freed are the words that
 * one waits on; they change after each change of a slot.
 */
struct slot {
	_Atomic uint32_t sequence;
	uint32_t length;
	char data[SLOT_SIZE];
};

struct ring {
	_Atomic uint32_t head;		/* next slot to fill */
	_Atomic uint32_t tail;		/* next slot to empty */
	_Atomic uint32_t filled;
	_Atomic uint32_t freed;
	_Atomic uint32_t closed;	/* nothing will be put any more */
	struct slot slots[SLOTS];
};

bool ring_try_put(struct ring *ring, const void *data, uint32_t length);
bool ring_try_get(struct ring *ring, void *data, uint32_t *length);
void ring_put(int fd, struct counts *counts, struct ring *ring, const void *data, uint32_t length);
bool ring_get(int fd, struct counts *counts, struct ring *ring, void *data, uint32_t *length);
void ring_close(int fd, struct counts *counts, struct ring *ring);
void announce(int fd, struct counts *counts, _Atomic uint32_t *word, uint32_t count);

uint64_t now(void);
_Noreturn void die(const char *what);

/* A table of words and how often they came. */
struct table;

typedef void (*table_visit)(void *arg, const char *word, size_t length, uint64_t times);

struct table *table_new(void);
void table_add(struct table *table, const char *word, size_t length, uint64_t times);
void table_add_text(struct table *table, const char *text, size_t length);
uint64_t table_total(const struct table *table);
size_t table_words(const struct table *table);
void table_each(const struct table *table, table_visit visit, void *arg);
void table_print_most_frequent(const struct table *table, size_t most);
bool table_equal(const struct table *a, const struct table *b);
void table_clear(struct table *table);
bool is_word(char c);

#endif /* DEMO_H */
