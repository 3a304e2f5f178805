// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Workers, which may be killed at any instruction, and how their unfinished changes are taken back.
 *
 * The mutex is robust. The next process that locks it gets EOWNERDEAD, and takes back the changes
 * that the dead process made under it: each change is recorded before it is made. One store
 * discards the records. Before this store no word of a piece has been counted; after it, all words
 * have been counted.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "demo.h"

/*
 * A process is killed between two instructions. All that it has written by then is visible to
 * processes that are notified of its death, so it is enough that the compiler preserves the order.
 */
static void keep_order(void)
{
	atomic_signal_fence(memory_order_seq_cst);
}

/* Changes a word of the shared memory so that the change can be taken back. */
static void set(struct shared *shared, uint64_t *word, uint64_t value)
{
	shared->undo[shared->changes] = (struct change) {
		.offset = (uint64_t)((char *)word - (char *)shared),
		.old = *word,
	};
	keep_order();
	shared->changes++;
	keep_order();
	*word = value;
}

/* After this store the changes are permanent. */
static void commit(struct shared *shared)
{
	keep_order();
	shared->changes = 0;
	keep_order();
}

/*
 * The mutex is locked, and its last owner died while it held the mutex. If this process also dies,
 * the next owner calls this function and continues.
 */
void recover(struct shared *shared)
{
	const struct change *change;

	shared->owners_died++;
	while (shared->changes) {
		change = &shared->undo[shared->changes - 1];
		*(uint64_t *)((char *)shared + change->offset) = change->old;
		shared->taken_back++;
		keep_order();
		shared->changes--;
		keep_order();
	}
	check(memwait_mutex_consistent(&shared->mutex), "memwait_mutex_consistent");
}

void lock(struct shared *shared)
{
	int error = memwait_mutex_lock(&shared->mutex);

	if (error == EOWNERDEAD)
		recover(shared);
	else
		check(error, "memwait_mutex_lock");
}

void unlock(struct shared *shared)
{
	check(memwait_mutex_unlock(&shared->mutex), "memwait_mutex_unlock");
}

static size_t split(const char *text, uint64_t piece, struct word *words)
{
	size_t at = place_at(piece), end = at + place_length(piece), n = 0;

	while (next_word(text, end, &at, &words[n]))
		n++;
	return n;
}

/* The caller holds the mutex. */
static void add_piece(struct shared *shared, const char *text, struct worker *self,
		      struct piece *piece, const struct word *words, size_t n)
{
	struct table *table = table_of(shared);
	struct entry *entry;
	size_t i;

	if (piece->counted) {
		shared->twice++;
		return;
	}
	for (i = 0; i < n; i++) {
		entry = table_find(table, text, &words[i]);
		if (!entry->times) {
			set(shared, &entry->place, words[i].place);
			set(shared, &table->words, table->words + 1);
		}
		set(shared, &entry->times, entry->times + 1);
	}
	set(shared, &table->total, table->total + n);
	set(shared, &self->pieces, self->pieces + 1);
	set(shared, &self->words, self->words + n);
	set(shared, &shared->counted, shared->counted + 1);
	set(shared, &piece->counted, 1);
	commit(shared);
}

_Noreturn void work(struct shared *shared, const char *text, struct worker *self)
{
	struct word words[PIECE_WORDS + 1];
	struct piece *piece;
	uint32_t number;
	size_t n;
	int error;

	for (;;) {
		self->doing = RECEIVING;
		error = memwait_channel_recv(channel_of(shared), &number, sizeof(number));
		if (error)
			break;
		self->doing = COUNTING;
		piece = &shared->pieces[number];
		n = split(text, piece->place, words);
		self->doing = LOCKING;
		lock(shared);
		self->doing = UPDATING;
		add_piece(shared, text, self, piece, words, n);
		self->doing = LOCKING;
		unlock(shared);
	}
	if (error != EPIPE)	/* closed, and empty */
		check(error, "memwait_channel_recv");
	exit(0);
}
