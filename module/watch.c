// SPDX-License-Identifier: GPL-2.0-only
/*
 * Watches: whose death the MEMWAIT_OWNED waiters of a word are told of.
 *
 * User space stores the owner's id in the lock word; the kernel never writes it. A MEMWAIT_OWNED
 * waiter names that id and is told when the owner dies.
 *
 * A word with MEMWAIT_OWNED waiters watches at most one owner (.watched), who must take the next
 * step for its waiters:
 *
 *	event				the word watches
 *
 *	a waiter names an owner		that owner
 *	a MEMWAIT_OWNED waiter is woken	that waiter's own thread or context
 *	the last such waiter leaves	nobody
 *
 * When an owner dies, the oldest MEMWAIT_OWNED waiter of each word that watches it gets
 * MEMWAIT_OWNER_DIED, and is watched from then on. It has had its turn: if it waits again it joins
 * at the end. This covers the death of
 *
 *	- an owner with the lock, or between its store and its notify;
 *	- a woken waiter, before or after it changes the word.
 *
 * A thread that takes the lock in between, without a system call, is not watched: the waiter that
 * was woken or told finds its id in the word, and names it in the next wait. A waiter that joins
 * after the last one was woken has looked at the word since, and finds what that one left there.
 *
 * An end is no death. A thread that calls exit(2), or gives up its id, has left every function that
 * it was in: it owes no step to any word, and is an owner only where a word names it. So its end is
 * told where it is watched as the owner of a word, or as a woken waiter of a 64-bit word, which may
 * name it by now (.may_be_named). All other words just stop watching it. A signal handler may call
 * exit_group(2) or execve(2) in the midst of a function, so these are deaths, as are closes of
 * contexts.
 *
 * The first MEMWAIT_OWNED waiter of a word keeps what the word watches. If it leaves, the next one
 * does: so neither joining nor moving allocates.
 *
 *	death				a waiter that names the owner
 *
 *	(1) set .dead			(1) lock the bucket, compare the word
 *	(2) queue it for burial		(2) lock the owner
 *	(3) lock the owner		(3) load .dead: set: MEMWAIT_OWNER_DIED
 *	(4) look who watches it		(4) add the word's first waiter to those
 *
 * If the waiter locks the owner first, the burial finds the word. If the burial does, the waiter
 * sees .dead: the lock of the list of the dead orders the store before the burial.
 *
 * A queued waiter's own identity lives: its thread is in the kernel, or its context is open. A
 * notify makes the word watch it before it removes the waiter. So a drained identity is watched by
 * no word again and can be freed.
 *
 *	Lock order:	bucket->lock -> memwait_context.lock -> memwait_identity.lock, two of the
 *			last by address
 */
#include <linux/minmax.h>

#include "owner.h"

static const struct memwait_key *memwait_watch_key(const struct rb_node *node)
{
	return &rb_entry(node, struct memwait_owned, node)->waiter.word.key;
}

static int memwait_watch_cmp(const void *key, const struct rb_node *node)
{
	return memwait_key_cmp(key, memwait_watch_key(node));
}

static bool memwait_watch_less(struct rb_node *new, const struct rb_node *node)
{
	return memwait_watch_cmp(memwait_watch_key(new), node) < 0;
}

/**
 * memwait_watch_find() - find the first MEMWAIT_OWNED waiter of a word
 * @bucket: the word's
 * @key: the word's key
 *
 * Context: the bucket's lock is held.
 *
 * Return: the waiter, which keeps what the word watches; or %NULL.
 */
struct memwait_owned *memwait_watch_find(struct memwait_bucket *bucket,
					 const struct memwait_key *key)
{
	struct rb_node *node = rb_find(key, &bucket->watching, memwait_watch_cmp);

	lockdep_assert_held(&bucket->lock);
	return rb_entry_safe(node, struct memwait_owned, node);
}

/**
 * memwait_unwatch() - stop watching the owner that a word watches, if any
 * @first: the word's first MEMWAIT_OWNED waiter
 *
 * Context: the bucket's lock is held.
 */
void memwait_unwatch(struct memwait_owned *first)
{
	struct memwait_identity *identity = first->watched;

	lockdep_assert_held(&first->waiter.bucket->lock);
	if (!identity)
		return;
	spin_lock(&identity->lock);
	list_del(&first->watched_node);
	spin_unlock(&identity->lock);
	first->watched = NULL;
}

/* Adds a first waiter to an owner's list, see memwait_watch(). It is in no such list. */
static void memwait_watch_add(struct memwait_owned *first, struct memwait_identity *identity,
			      const struct memwait_identity *waiter, bool may_be_named)
{
	lockdep_assert_held(&identity->lock);
	first->own = waiter->user == identity->user;
	if (first->own)
		list_add(&first->watched_node, &identity->watching);
	else
		list_add_tail(&first->watched_node, &identity->watching);
	first->watched = identity;
	first->may_be_named = may_be_named;
}

/*
 * Makes the word of a first waiter watch an owner, which RCU protects, or which is alive. @waiter:
 * the identity of the waiter that causes this. @may_be_named: the word may name the owner, so that
 * its end is to be told as well. Returns false if the owner is dead: the word watches whom it did
 * before.
 *
 * Anybody can name an owner in any number of waits. So the words of the owner's own user stand
 * before those of others, are told first, and alone by a process that dies.
 */
static bool memwait_watch(struct memwait_owned *first, struct memwait_identity *identity,
			  const struct memwait_identity *waiter, bool may_be_named)
{
	struct memwait_identity *old = first->watched, *lower, *upper;
	bool alive;

	lockdep_assert_held(&first->waiter.bucket->lock);
	if (smp_load_acquire(&identity->dead))	/* (G) */
		return false;
	if (old == identity && (first->own || waiter->user != identity->user)) {
		first->may_be_named |= may_be_named;
		return true;
	}
	if (old == identity) {
		spin_lock(&identity->lock);
		list_del(&first->watched_node);
		memwait_watch_add(first, identity, waiter, first->may_be_named | may_be_named);
		spin_unlock(&identity->lock);
		return true;
	}

	if (!old) {
		spin_lock(&identity->lock);
		alive = !smp_load_acquire(&identity->dead);	/* (G) */
		if (likely(alive))
			memwait_watch_add(first, identity, waiter, may_be_named);
		spin_unlock(&identity->lock);
		return alive;
	}

	/* One step: if the new owner dies now, the word must still watch the old one. */
	lower = min(old, identity);
	upper = max(old, identity);
	spin_lock(&lower->lock);
	spin_lock_nested(&upper->lock, SINGLE_DEPTH_NESTING);
	alive = !smp_load_acquire(&identity->dead);	/* (G) */
	if (likely(alive)) {
		list_del(&first->watched_node);
		memwait_watch_add(first, identity, waiter, may_be_named);
	}
	spin_unlock(&upper->lock);
	spin_unlock(&lower->lock);
	return alive;
}

/**
 * memwait_watch_claimed() - a MEMWAIT_OWNED waiter was notified, or told of a death
 * @waiter: still queued
 *
 * Context: the bucket's lock is held.
 */
void memwait_watch_claimed(struct memwait_waiter *waiter)
{
	struct memwait_owned *owned = to_owned(waiter);

	/* The identity is alive: its thread or context stays until the waiter is dequeued. */
	if (!list_empty(&owned->others))
		memwait_watch(memwait_watch_find(waiter->bucket, &waiter->word.key),
			      owned->identity, owned->identity, owned->wide);
}

/**
 * memwait_watch_own() - add a waiter to the MEMWAIT_OWNED waiters of its word
 * @waiter: in the queue of the word
 *
 * One that comes back to its place goes last: any waiter there can be told of a death, since each
 * then looks at the word.
 *
 * Context: the bucket's lock is held.
 *
 * Return: the first of them.
 */
struct memwait_owned *memwait_watch_own(struct memwait_waiter *waiter)
{
	struct memwait_owned *owned = to_owned(waiter), *first;

	first = memwait_watch_find(waiter->bucket, &waiter->word.key);
	INIT_LIST_HEAD(&owned->others);
	if (first) {
		list_add_tail(&owned->others, &first->others);
		RB_CLEAR_NODE(&owned->node);
		return first;
	}
	rb_add(&owned->node, &waiter->bucket->watching, memwait_watch_less);
	owned->watched = NULL;
	return owned;
}

/**
 * memwait_watch_join() - a MEMWAIT_OWNED waiter has joined the queue of its word
 * @waiter: the waiter
 * @wait: its arguments
 *
 * Context: the bucket's lock is held.
 *
 * Return: false if the owner that it names is dead: remove the waiter again.
 */
bool memwait_watch_join(struct memwait_waiter *waiter, const struct memwait_wait *wait)
{
	struct memwait_owned *owned = to_owned(waiter), *first = memwait_watch_own(waiter);
	u64 id = memwait_named_id(wait);
	struct memwait_identity *identity;
	bool alive;

	owned->wide = memwait_size(wait->flags) == 8;
	if (!id)
		return true;
	rcu_read_lock();
	identity = memwait_identity_find(id);
	alive = identity && memwait_watch(first, identity, owned->identity, true);
	rcu_read_unlock();
	if (!identity)
		smp_rmb();	/* (G) */
	return alive;
}

/* The first waiter of a word leaves: the next one keeps what the word watches. */
static void memwait_watch_inherit(struct memwait_owned *next, struct memwait_owned *first)
{
	struct memwait_identity *identity = first->watched;

	rb_replace_node(&first->node, &next->node, &first->waiter.bucket->watching);
	next->watched = identity;
	if (!identity)
		return;
	next->may_be_named = first->may_be_named;
	next->own = first->own;
	spin_lock(&identity->lock);
	list_replace(&first->watched_node, &next->watched_node);
	spin_unlock(&identity->lock);
}

/**
 * memwait_watch_leave() - a MEMWAIT_OWNED waiter leaves the queue of its word
 * @waiter: the waiter
 *
 * Context: the bucket's lock is held.
 */
void memwait_watch_leave(struct memwait_waiter *waiter)
{
	struct memwait_owned *owned = to_owned(waiter);
	const bool first = !RB_EMPTY_NODE(&owned->node);

	lockdep_assert_held(&waiter->bucket->lock);
	if (first && !list_empty(&owned->others)) {
		memwait_watch_inherit(list_next_entry(owned, others), owned);
	} else if (first) {
		memwait_unwatch(owned);
		rb_erase(&owned->node, &waiter->bucket->watching);
	}
	list_del(&owned->others);
}

/* The first waiter of a word that watches a dead owner; @own: of one of its user; or NULL. */
static struct memwait_owned *memwait_watch_first(struct memwait_identity *identity, bool own)
{
	struct memwait_owned *first;

	lockdep_assert_held(&identity->lock);
	first = list_first_entry_or_null(&identity->watching, struct memwait_owned, watched_node);
	return first && (first->own || !own) ? first : NULL;
}

/**
 * memwait_watch_lock() - lock the bucket of a word that watches a dead owner
 * @identity: dead
 * @own: only words of its user
 *
 * Context: process context, may sleep; takes the lock of memwait_waiter.bucket.
 *
 * Return: the word's first MEMWAIT_OWNED waiter; %NULL: no such word watches it, and none will.
 */
struct memwait_owned *memwait_watch_lock(struct memwait_identity *identity, bool own)
{
	struct memwait_bucket *bucket, *locked = NULL;
	struct memwait_owned *first;

	for (;;) {
		spin_lock(&identity->lock);
		first = memwait_watch_first(identity, own);
		bucket = first ? first->waiter.bucket : NULL;
		spin_unlock(&identity->lock);
		/* In the list it is queued, and stays there as long as the bucket is locked. */
		if (bucket == locked)
			return first;
		/* Else the word that was first has stopped watching: the list gets shorter. */
		if (locked) {
			__acquire(&locked->lock);	/* sparse cannot follow */
			spin_unlock(&locked->lock);
		}
		if (bucket) {
			memwait_bucket_let_others(bucket);
			memwait_bucket_lock(bucket);
			__release(&bucket->lock);
		}
		locked = bucket;
	}
}
