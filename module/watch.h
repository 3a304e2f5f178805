/* SPDX-License-Identifier: GPL-2.0-only */
/* Whose death the waiters of a word are told of. See watch.c. */
#ifndef MEMWAIT_WATCH_H
#define MEMWAIT_WATCH_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/types.h>

#include "memwait.h"

struct memwait_identity;

/**
 * struct memwait_watch - what a word with MEMWAIT_OWNED waiters watches; or a spare
 * @node: in &memwait_bucket.watches
 * @next_spare: instead of @node: in @spares of the word's watch
 * @key: the word
 * @bucket: the word's
 * @owned: the word's MEMWAIT_OWNED waiters, oldest first; see memwait_watch_own()
 * @spares: one less than there are waiters in @owned
 * @watched: the owner whose death they are told of
 * @watched_node: in &memwait_identity.watches of @watched; also protected by its lock
 * @mover: the last thread that moved waiters here; its death is told as well
 * @mover_node: in &memwait_identity.moved_to of @mover; also protected by its lock
 * @may_be_named: the word may name @watched as its owner, so that its end matters, too
 *
 * Protected by the bucket's lock.
 */
struct memwait_watch {
	union {
		struct rb_node node;
		struct memwait_watch *next_spare;
	};
	struct memwait_key key;
	struct memwait_bucket *bucket;
	struct list_head owned;
	struct memwait_watch *spares;
	struct memwait_identity *watched;
	struct list_head watched_node;
	struct memwait_identity *mover;
	struct list_head mover_node;
	bool may_be_named;
};

struct memwait_watch *memwait_watch_find(struct memwait_bucket *bucket,
					 const struct memwait_key *key);
void memwait_forget_mover(struct memwait_watch *watch);
void memwait_watch_moved(struct memwait_watch *watch, struct memwait_identity *identity);
void memwait_let_go(struct memwait_watch *watch, const struct memwait_identity *identity);
struct memwait_watch *memwait_watch_lock(struct memwait_identity *identity);

#endif /* MEMWAIT_WATCH_H */
