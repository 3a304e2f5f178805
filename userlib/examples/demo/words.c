// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Counting words: runs of letters, digits and underscores, in lower case. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "demo.h"

bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* Finds the next word between *@at and @end, and moves *@at to the end of the word. */
bool next_word(const char *text, size_t end, size_t *at, struct word *word)
{
	uint32_t hash = 2166136261;	/* FNV-1a */
	size_t begin = *at, i;

	while (begin < end && !is_word(text[begin]))
		begin++;
	for (i = begin; i < end && is_word(text[i]); i++)
		hash = (hash ^ (uint32_t)tolower((unsigned char)text[i])) * 16777619;
	*word = (struct word) { place_of(begin, i - begin), hash };
	*at = i;
	return i > begin;
}

size_t table_bytes(size_t size)
{
	return sizeof(struct table) + size * sizeof(struct entry);
}

static bool is_same(const char *text, uint64_t a, uint64_t b)
{
	return place_length(a) == place_length(b) &&
	       !strncasecmp(text + place_at(a), text + place_at(b), place_length(a));
}

/* Returns the entry of the word, or the free entry for it. */
struct entry *table_find(struct table *table, const char *text, const struct word *word)
{
	uint64_t i = word->hash % table->size;

	while (table->entries[i].times && !is_same(text, table->entries[i].place, word->place))
		i = i + 1 == table->size ? 0 : i + 1;
	return &table->entries[i];
}

static struct word word_at(const char *text, uint64_t place)
{
	size_t at = place_at(place);
	struct word word;

	next_word(text, at + place_length(place), &at, &word);
	return word;
}

static struct table *table_new(size_t size)
{
	struct table *table = calloc(1, table_bytes(size));

	if (!table)
		die("calloc");
	table->size = size;
	return table;
}

static struct table *table_grow(struct table *table, const char *text)
{
	struct table *larger = table_new(2 * table->size);
	struct entry *entry;
	struct word word;

	for (entry = table->entries; entry < table->entries + table->size; entry++) {
		if (!entry->times)
			continue;
		word = word_at(text, entry->place);
		*table_find(larger, text, &word) = *entry;
	}
	larger->words = table->words;
	larger->total = table->total;
	free(table);
	return larger;
}

/* Counts the words in a single process. At least half of the table's entries are free. */
struct table *table_of_text(const char *text, size_t size)
{
	struct table *table = table_new(1024);
	struct entry *entry;
	struct word word;
	size_t at = 0;

	while (next_word(text, size, &at, &word)) {
		if (2 * table->words == table->size)
			table = table_grow(table, text);
		entry = table_find(table, text, &word);
		table->words += !entry->times;
		table->total++;
		entry->place = word.place;
		entry->times++;
	}
	return table;
}

/* For qsort_r(): sorts by frequency, the highest first, then by word. */
static int compare(const void *a, const void *b, void *text)
{
	const struct entry *x = a, *y = b;
	size_t x_length = place_length(x->place), y_length = place_length(y->place);
	int order;

	if (x->times != y->times)
		return x->times < y->times ? 1 : -1;
	order = strncasecmp((char *)text + place_at(x->place), (char *)text + place_at(y->place),
			    x_length < y_length ? x_length : y_length);
	return order ? order : (x_length > y_length) - (x_length < y_length);
}

static void print_entry(const char *text, const struct entry *entry)
{
	size_t i;

	printf("  %8" PRIu64 "  ", entry->times);
	for (i = 0; i < place_length(entry->place); i++)
		putchar(tolower((unsigned char)text[place_at(entry->place) + i]));
	printf("\n");
}

void table_print_most_frequent(const struct table *table, const char *text, size_t most)
{
	struct entry *list = calloc(table->words + 1, sizeof(*list));
	size_t i, n = 0;

	if (!list)
		die("calloc");
	for (i = 0; i < table->size && n < table->words; i++)
		if (table->entries[i].times)
			list[n++] = table->entries[i];
	qsort_r(list, n, sizeof(*list), compare, (void *)text);
	for (i = 0; i < n && i < most; i++)
		print_entry(text, &list[i]);
	free(list);
}

bool table_equal(const struct table *a, struct table *b, const char *text)
{
	const struct entry *entry;
	struct word word;

	for (entry = a->entries; entry < a->entries + a->size; entry++) {
		if (!entry->times)
			continue;
		word = word_at(text, entry->place);
		if (table_find(b, text, &word)->times != entry->times)
			return false;
	}
	return a->words == b->words && a->total == b->total;
}
