/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What the files of the demo share: the counting of words. */
#ifndef DEMO_H
#define DEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
