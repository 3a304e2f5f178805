/* SPDX-License-Identifier: GPL-2.0-only */
/* Pins hold the files and address spaces of async waits: see pin.c. */
#ifndef MEMWAIT_PIN_H
#define MEMWAIT_PIN_H

#include <linux/path.h>

#include "user.h"
#include "word.h"

struct memwait_context;

/* The number of waits that a pin counts as, see pin.c. */
#define MEMWAIT_PIN_WAITS	8

/**
 * struct memwait_pin - holds a file or mm_struct for async waits of a context
 * @node: list of unused pins
 * @space: space as in a key; the pin has a reference to the inode of the address_space, or to the
 *	mm_struct
 * @path: for an address_space: the path of the mapped file
 * @user_path: path that user space opened, if the file system opened another file underneath
 * @refs: one per word of a wait; returns to 0 under the context's lock
 */
struct memwait_pin {
	struct llist_node node;
	u64 space;
	struct path path;
	struct path user_path;
	refcount_t refs;
};

/**
 * struct memwait_pins - the pins of a context
 * @last: the pin of the last wait on a private word and, with index MEMWAIT_KEY_SHARED, the pin of
 *	the last wait on a word of a file; or %NULL. These pointers hold no references; protected by
 *	the context's lock
 * @cached: memory of a freed pin for the next pin, or %NULL; changed by xchg()
 * @nr: number of pins that are in use
 */
struct memwait_pins {
	struct memwait_pin *last[2];
	struct memwait_pin *cached;
	atomic_t nr;
};

struct memwait_pin *memwait_pin_get(struct memwait_context *context,
				    const struct memwait_word *word);
void memwait_pin_put(struct memwait_pin *pin, struct memwait_context *context,
		     struct llist_head *unused);
void memwait_pins_put(struct memwait_context *context, struct llist_head *unused);
void memwait_pin_work(struct work_struct *work);
int memwait_pin_init(void);
void memwait_pin_exit(void);

#endif /* MEMWAIT_PIN_H */
