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
 * Each MEMWAIT_OWNED waiter brings a struct memwait_watch, that of a thread is kept in its
 * identity. The word uses the first one; those of the others are its spares. A waiter that leaves
 * takes a spare; the last one takes the word's own. So neither joining nor moving allocates. What a
 * waiter takes may be charged to another one's memory cgroup; each has as many as it brought.
 *
 *	death				a waiter that names the owner
 *
 *	(1) set .dead			(1) lock the bucket, compare the word
 *	(2) queue it for burial		(2) lock the owner
 *	(3) lock the owner		(3) load .dead: set: MEMWAIT_OWNER_DIED
 *	(4) look at its watches		(4) add the watch to the owner's
 *
 * If the waiter locks the owner first, the burial finds the watch. If the burial does, the waiter
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

static struct memwait_watch *to_watch(const struct rb_node *node)
{
	return rb_entry(node, struct memwait_watch, node);
}

static int memwait_watch_cmp(const void *key, const struct rb_node *node)
{
	return memwait_key_cmp(key, &to_watch(node)->key);
}

static bool memwait_watch_less(struct rb_node *new, const struct rb_node *node)
{
	return memwait_watch_cmp(&to_watch(new)->key, node) < 0;
}

/**
 * memwait_watch_find() - find the watch of a word
 * @bucket: the word's
 * @key: the word's key
 *
 * Context: the bucket's lock is held.
 *
 * Return: the watch, or %NULL: no MEMWAIT_OWNED waiter waits for the word.
 */
struct memwait_watch *memwait_watch_find(struct memwait_bucket *bucket,
					 const struct memwait_key *key)
{
	struct rb_node *node = rb_find(key, &bucket->watches, memwait_watch_cmp);

	lockdep_assert_held(&bucket->lock);
	return rb_entry_safe(node, struct memwait_watch, node);
}

/**
 * memwait_unwatch() - stop watching the owner that a word watches, if any
 * @watch: of the word
 *
 * Context: the bucket's lock is held.
 */
void memwait_unwatch(struct memwait_watch *watch)
{
	struct memwait_identity *identity = watch->watched;

	lockdep_assert_held(&watch->bucket->lock);
	if (!identity)
		return;
	spin_lock(&identity->lock);
	list_del(&watch->watched_node);
	spin_unlock(&identity->lock);
	watch->watched = NULL;
}

/* Adds a watch to an owner's list, see memwait_watch(). It is in no such list. */
static void memwait_watch_add(struct memwait_watch *watch, struct memwait_identity *identity,
			      const struct memwait_identity *waiter, bool may_be_named)
{
	lockdep_assert_held(&identity->lock);
	watch->own = waiter->user == identity->user;
	if (watch->own)
		list_add(&watch->watched_node, &identity->watches);
	else
		list_add_tail(&watch->watched_node, &identity->watches);
	watch->watched = identity;
	watch->may_be_named = may_be_named;
}

/*
 * Makes a word watch an owner, which RCU protects, or which is alive. @waiter: the identity of the
 * waiter that causes this. @may_be_named: the word may name the owner, so that its end is to be
 * told as well. Returns false if the owner is dead: the word watches whom it did before.
 *
 * Anybody can name an owner in any number of waits. So the words of the owner's own user stand
 * before those of others, are told first, and alone by a process that dies.
 */
static bool memwait_watch(struct memwait_watch *watch, struct memwait_identity *identity,
			  const struct memwait_identity *waiter, bool may_be_named)
{
	struct memwait_identity *old = watch->watched, *first, *second;
	bool alive;

	lockdep_assert_held(&watch->bucket->lock);
	if (smp_load_acquire(&identity->dead))	/* (G) */
		return false;
	if (old == identity && (watch->own || waiter->user != identity->user)) {
		watch->may_be_named |= may_be_named;
		return true;
	}
	if (old == identity) {
		spin_lock(&identity->lock);
		list_del(&watch->watched_node);
		memwait_watch_add(watch, identity, waiter, watch->may_be_named | may_be_named);
		spin_unlock(&identity->lock);
		return true;
	}

	if (!old) {
		spin_lock(&identity->lock);
		alive = !smp_load_acquire(&identity->dead);	/* (G) */
		if (likely(alive))
			memwait_watch_add(watch, identity, waiter, may_be_named);
		spin_unlock(&identity->lock);
		return alive;
	}

	/* One step: if the new owner dies now, the word must still watch the old one. */
	first = min(old, identity);
	second = max(old, identity);
	spin_lock(&first->lock);
	spin_lock_nested(&second->lock, SINGLE_DEPTH_NESTING);
	alive = !smp_load_acquire(&identity->dead);	/* (G) */
	if (likely(alive)) {
		list_del(&watch->watched_node);
		memwait_watch_add(watch, identity, waiter, may_be_named);
	}
	spin_unlock(&second->lock);
	spin_unlock(&first->lock);
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
	if (!list_is_singular(&owned->watch->owned))
		memwait_watch(owned->watch, owned->identity, owned->identity, waiter->may_be_named);
}

/**
 * memwait_watch_own() - add a waiter to the MEMWAIT_OWNED waiters of its word
 * @bucket: the word's
 * @waiter: in no such list; has a watch, and the number of its place or 0
 *
 * One that comes back to its place goes first or last: any waiter there can be told of a death,
 * since each then looks at the word.
 *
 * Context: the bucket's lock is held.
 */
void memwait_watch_own(struct memwait_bucket *bucket, struct memwait_waiter *waiter)
{
	struct memwait_watch *watch = memwait_watch_find(bucket, &waiter->word.key);
	struct memwait_owned *owned = to_owned(waiter);
	const struct memwait_owned *first;

	if (!watch) {
		watch = owned->watch;
		watch->key = waiter->word.key;
		watch->bucket = bucket;
		watch->spares = NULL;
		watch->watched = NULL;
		INIT_LIST_HEAD(&watch->owned);
		rb_add(&watch->node, &bucket->watches, memwait_watch_less);
	} else {
		owned->watch->next_spare = watch->spares;
		watch->spares = owned->watch;
		owned->watch = watch;
	}
	first = list_first_entry_or_null(&watch->owned, struct memwait_owned, node);
	if (waiter->number && first && waiter->number < first->waiter.number)
		list_add(&owned->node, &watch->owned);
	else
		list_add_tail(&owned->node, &watch->owned);
}

/**
 * memwait_watch_join() - a MEMWAIT_OWNED waiter is about to join the queue of its word
 * @bucket: the word's
 * @waiter: it has a watch
 * @wait: its arguments
 *
 * Context: the bucket's lock is held.
 *
 * Return: true; false: the owner that it names is dead. For memwait_watch_leave() either way.
 */
bool memwait_watch_join(struct memwait_bucket *bucket, struct memwait_waiter *waiter,
			const struct memwait_wait *wait)
{
	const struct memwait_owned *owned = to_owned(waiter);
	u64 id = memwait_named_id(wait);
	struct memwait_identity *identity;
	bool alive;

	waiter->may_be_named = memwait_size(wait->flags) == 8;
	memwait_watch_own(bucket, waiter);
	if (!id)
		return true;
	rcu_read_lock();
	identity = memwait_identity_find(id);
	alive = identity && memwait_watch(owned->watch, identity, owned->identity, true);
	rcu_read_unlock();
	if (!identity)
		smp_rmb();	/* (G) */
	return alive;
}

/**
 * memwait_watch_leave() - a MEMWAIT_OWNED waiter leaves the queue of its word
 * @bucket: the word's
 * @waiter: gets a watch that no word has
 *
 * Context: the bucket's lock is held.
 */
void memwait_watch_leave(struct memwait_bucket *bucket, struct memwait_waiter *waiter)
{
	struct memwait_owned *owned = to_owned(waiter);
	struct memwait_watch *watch = owned->watch, *spare = watch->spares;

	lockdep_assert_held(&bucket->lock);
	list_del(&owned->node);
	if (spare) {
		watch->spares = spare->next_spare;
		owned->watch = spare;
		return;
	}
	memwait_unwatch(watch);
	rb_erase(&watch->node, &bucket->watches);
}

/* One of the watches that watch a dead owner; @own: of the words of its user, or NULL. */
static struct memwait_watch *memwait_watch_first(struct memwait_identity *identity, bool own)
{
	struct memwait_watch *watch;

	lockdep_assert_held(&identity->lock);
	watch = list_first_entry_or_null(&identity->watches, struct memwait_watch, watched_node);
	return watch && (watch->own || !own) ? watch : NULL;
}

/**
 * memwait_watch_lock() - lock the bucket of a word that watches a dead owner
 * @identity: dead
 * @own: only words of its user
 *
 * Context: process context, may sleep; takes the lock of memwait_watch.bucket.
 *
 * Return: the watch; %NULL: no such word watches it, and none will.
 */
struct memwait_watch *memwait_watch_lock(struct memwait_identity *identity, bool own)
{
	struct memwait_bucket *bucket;
	struct memwait_watch *watch;
	bool same;

	for (;;) {
		spin_lock(&identity->lock);
		watch = memwait_watch_first(identity, own);
		bucket = watch ? watch->bucket : NULL;
		spin_unlock(&identity->lock);
		if (!watch)
			return NULL;
		memwait_bucket_let_others(bucket);
		memwait_bucket_lock(bucket);
		/* In the list it is alive, and stays there as long as the bucket is locked. */
		spin_lock(&identity->lock);
		same = memwait_watch_first(identity, own) == watch && watch->bucket == bucket;
		spin_unlock(&identity->lock);
		if (same)
			break;
		spin_unlock(&bucket->lock);
	}
	__release(&bucket->lock);	/* sparse cannot follow */
	return watch;
}
