// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Counting words: runs of letters, digits and underscores, in lower case. */
#include <ctype.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo.h"

struct counted {
	char *word;
	size_t length;
	uint64_t times;
};

struct table {
	void *root;		/* of tsearch(3) */
	uint64_t total;
	size_t words;
};

static int compare_words(const void *a, const void *b)
{
	const struct counted *x = a, *y = b;
	size_t common = x->length < y->length ? x->length : y->length;
	int order = memcmp(x->word, y->word, common);

	return order ? order : (x->length > y->length) - (x->length < y->length);
}

struct table *table_new(void)
{
	struct table *table = calloc(1, sizeof(*table));

	if (!table)
		die("calloc");
	return table;
}

void table_add(struct table *table, const char *word, size_t length, uint64_t times)
{
	struct counted key = { .word = (char *)word, .length = length }, *entry;
	struct counted **found = tfind(&key, &table->root, compare_words);

	table->total += times;
	if (found) {
		(*found)->times += times;
		return;
	}
	entry = malloc(sizeof(*entry));
	if (!entry)
		die("malloc");
	entry->word = malloc(length);
	if (!entry->word)
		die("malloc");
	memcpy(entry->word, word, length);
	entry->length = length;
	entry->times = times;
	if (!tsearch(entry, &table->root, compare_words))
		die("tsearch");
	table->words++;
}

bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* The text is not cut within a word. */
void table_add_text(struct table *table, const char *text, size_t length)
{
	size_t i, start, capacity = 0;
	char *word = NULL;

	for (i = 0; i < length;) {
		if (!is_word(text[i])) {
			i++;
			continue;
		}
		for (start = i; i < length && is_word(text[i]); i++) {
			if (i - start == capacity) {
				capacity = capacity ? 2 * capacity : 64;
				word = realloc(word, capacity);
				if (!word)
					die("realloc");
			}
			word[i - start] = tolower((unsigned char)text[i]);
		}
		table_add(table, word, i - start, 1);
	}
	free(word);
}

uint64_t table_total(const struct table *table)
{
	return table->total;
}

size_t table_words(const struct table *table)
{
	return table->words;
}

/* twalk_r() hands an argument through, which twalk() does not. */
struct walk {
	table_visit visit;
	void *arg;
};

static void visit_node(const void *node, VISIT which, void *closure)
{
	const struct counted *entry = *(const struct counted *const *)node;
	const struct walk *walk = closure;

	if (which == postorder || which == leaf)
		walk->visit(walk->arg, entry->word, entry->length, entry->times);
}

void table_each(const struct table *table, table_visit visit, void *arg)
{
	struct walk walk = { visit, arg };

	twalk_r(table->root, visit_node, &walk);
}

struct list {
	struct counted *entries;
	size_t n;
};

static void append(void *arg, const char *word, size_t length, uint64_t times)
{
	struct list *list = arg;

	list->entries[list->n++] = (struct counted) { (char *)word, length, times };
}

static struct list to_list(const struct table *table)
{
	struct list list = { .entries = calloc(table->words + 1, sizeof(struct counted)) };

	if (!list.entries)
		die("calloc");
	table_each(table, append, &list);
	return list;
}

static int compare_times(const void *a, const void *b)
{
	const struct counted *x = a, *y = b;

	return x->times == y->times ? compare_words(a, b) : x->times < y->times ? 1 : -1;
}

void table_print_most_frequent(const struct table *table, size_t most)
{
	struct list list = to_list(table);
	size_t i;

	qsort(list.entries, list.n, sizeof(*list.entries), compare_times);
	for (i = 0; i < list.n && i < most; i++)
		printf("  %8" PRIu64 "  %.*s\n", list.entries[i].times, (int)list.entries[i].length,
		       list.entries[i].word);
	free(list.entries);
}

bool table_equal(const struct table *a, const struct table *b)
{
	struct list x = to_list(a), y = to_list(b);
	bool equal = a->total == b->total && x.n == y.n;
	size_t i;

	/* Both come in the order of the words. */
	for (i = 0; equal && i < x.n; i++)
		equal = !compare_words(&x.entries[i], &y.entries[i]) &&
			x.entries[i].times == y.entries[i].times;
	free(x.entries);
	free(y.entries);
	return equal;
}

static void free_counted(void *node)
{
	struct counted *entry = node;

	free(entry->word);
	free(entry);
}

void table_clear(struct table *table)
{
	tdestroy(table->root, free_counted);
	table->root = NULL;
	table->total = 0;
	table->words = 0;
}
