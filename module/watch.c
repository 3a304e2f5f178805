// SPDX-License-Identifier: GPL-2.0-only
/*
 * Watches: which owner's death is reported to the MEMWAIT_OWNED waiters of a word.
 *
 * User space stores the owner's id in the lock word; the kernel never writes the word. A
 * MEMWAIT_OWNED waiter names that id and is notified when the owner dies.
 *
 * A word with MEMWAIT_OWNED waiters watches at most one owner (.watched): the thread or context
 * that must act before the waiters can proceed:
 *
 *	event				the word watches
 *
 *	a waiter names an owner		that owner
 *	a MEMWAIT_OWNED waiter is woken	that waiter's own thread or context
 *	the last such waiter leaves	no owner
 *
 * When an owner dies, the oldest MEMWAIT_OWNED waiter of each word that watches the owner gets
 * MEMWAIT_OWNER_DIED, and the word then watches that waiter. If that waiter waits again, it joins
 * the end of the queue. This covers the death of
 *
 *	- an owner that holds the lock, or is between its store and its notify;
 *	- a woken waiter, before or after it changes the word.
 *
 * A thread that takes the lock without a system call, before a woken waiter does, is not watched.
 * However, the waiter that was woken or notified of a death finds that thread's id in the word, and
 * names the thread in its next wait. A waiter that joins after the last waiter was woken has
 * compared the word since, and finds what the woken waiter left there.
 *
 * An end is not a death. A thread that calls exit(2), or gives up its id, has left every function
 * that uses a word. No word needs a further step of this thread, and the thread owns only words
 * that name the thread. Therefore the end is reported only to words that watch the thread as their
 * owner, and to 64-bit words that watch it as a woken waiter, because these words may now name the
 * thread (.may_be_named). All other words just stop watching the thread. A signal handler may call
 * exit_group(2) or execve(2) in the middle of such a function, so these calls are deaths. The close
 * of a context is also a death.
 *
 * The first MEMWAIT_OWNED waiter of a word stores what the word watches. When that waiter leaves,
 * the next such waiter takes this over, so neither joining nor moving allocates memory.
 *
 *	death				a waiter that names the owner
 *
 *	(1) set .dead			(1) lock the bucket, compare the word
 *	(2) queue it to be reaped	(2) lock the owner
 *	(3) lock the owner		(3) load .dead: set: MEMWAIT_OWNER_DIED
 *	(4) find words that watch it	(4) add the word's first waiter to them
 *
 * If the waiter locks the owner first, the report of the death finds the word. If the report locks
 * the owner first, the waiter sees .dead set, because the lock of the list of dead identities
 * orders the store to .dead before the report.
 *
 * A queued waiter's own identity lives, because its thread is in the kernel, or its context is
 * open. A notify makes the word watch that identity before it dequeues the waiter. Therefore, once
 * no word watches a dead identity, no word will watch the identity again, and it can be freed.
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
 * @bucket: the word's bucket
 * @key: the word's key
 *
 * Context: the bucket's lock is held.
 *
 * Return: the waiter, which stores what the word watches; or %NULL.
 */
struct memwait_owned *memwait_watch_find(struct memwait_bucket *bucket,
					 const struct memwait_key *key)
{
	struct rb_node *node = rb_find(key, &bucket->watching, memwait_watch_cmp);

	lockdep_assert_held(&bucket->lock);
	return rb_entry_safe(node, struct memwait_owned, node);
}

/**
 * memwait_unwatch() - make a word stop watching its owner, if any
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
	rb_erase(&first->watched_node, &identity->watching);
	spin_unlock(&identity->lock);
	first->watched = NULL;
}

static struct memwait_owned *memwait_watching(const struct rb_node *node)
{
	return rb_entry(node, struct memwait_owned, watched_node);
}

static bool memwait_watching_less(struct rb_node *new, const struct rb_node *node)
{
	return memwait_watching(new)->user < memwait_watching(node)->user;
}

/* Lets memwait_rb_after() find the first waiter whose user is not below *@user. */
static int memwait_watching_cmp(const void *user, const struct rb_node *node)
{
	return memwait_watching(node)->user < *(const u64 *)user ? 1 : -1;
}

static uid_t memwait_identity_user(const struct memwait_identity *identity)
{
	return __kuid_val(identity->user->uid);
}

/* Adds a first waiter to an owner's tree, see memwait_watch(). The waiter is in no such tree. */
static void memwait_watch_add(struct memwait_owned *first, struct memwait_identity *identity,
			      const struct memwait_identity *waiter, bool may_be_named)
{
	lockdep_assert_held(&identity->lock);
	first->user = memwait_identity_user(waiter);
	rb_add(&first->watched_node, &identity->watching, memwait_watching_less);
	first->watched = identity;
	first->may_be_named = may_be_named;
}

/*
 * Makes the word of a first waiter watch an owner. The owner must be protected by RCU, or be alive.
 * @waiter: the identity of the waiter that causes this. @may_be_named: the word may name the owner,
 * so the end of the owner must be reported as well. Returns false if the owner is dead; the word
 * then watches the same owner as before.
 *
 * Any user can name an owner in any number of waits. The death is therefore reported first to the
 * words of the owner's own user (by a dying process only to those), and then to words of the other
 * users, one word of each user in turn.
 */
static bool memwait_watch(struct memwait_owned *first, struct memwait_identity *identity,
			  const struct memwait_identity *waiter, bool may_be_named)
{
	struct memwait_identity *old = first->watched, *lower, *upper;
	bool alive;

	lockdep_assert_held(&first->waiter.bucket->lock);
	if (smp_load_acquire(&identity->dead))	/* (G) */
		return false;
	if (old == identity && (waiter->user != identity->user ||
				first->user == memwait_identity_user(identity))) {
		first->may_be_named |= may_be_named;
		return true;
	}
	if (old == identity) {
		spin_lock(&identity->lock);
		rb_erase(&first->watched_node, &identity->watching);
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

	/*
	 * Both locks are held: if the new owner has died, the word must still watch the old owner.
	 */
	lower = min(old, identity);
	upper = max(old, identity);
	spin_lock(&lower->lock);
	spin_lock_nested(&upper->lock, SINGLE_DEPTH_NESTING);
	alive = !smp_load_acquire(&identity->dead);	/* (G) */
	if (likely(alive)) {
		rb_erase(&first->watched_node, &old->watching);
		memwait_watch_add(first, identity, waiter, may_be_named);
	}
	spin_unlock(&upper->lock);
	spin_unlock(&lower->lock);
	return alive;
}

/**
 * memwait_watch_claimed() - handle the claim of a MEMWAIT_OWNED waiter by a notify or a death
 * @waiter: still queued
 *
 * Context: the bucket's lock is held.
 */
void memwait_watch_claimed(struct memwait_waiter *waiter)
{
	struct memwait_owned *owned = memwait_owned_of(waiter);

	/* The identity is alive: its thread or context cannot end before the waiter is dequeued. */
	if (!list_empty(&owned->others))
		memwait_watch(memwait_watch_find(waiter->bucket, &waiter->word.key),
			      owned->identity, owned->identity, owned->wide);
}

/**
 * memwait_watch_own() - add a waiter to the MEMWAIT_OWNED waiters of its word
 * @waiter: a waiter in the queue of the word
 *
 * A waiter that returns to its queue position becomes the last of these waiters. Their order does
 * not matter: any of them can be notified of a death, because each then checks the word.
 *
 * Context: the bucket's lock is held.
 *
 * Return: the first of these waiters.
 */
struct memwait_owned *memwait_watch_own(struct memwait_waiter *waiter)
{
	struct memwait_owned *owned = memwait_owned_of(waiter), *first;

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
 * memwait_watch_join() - handle a MEMWAIT_OWNED waiter that has joined the queue of its word
 * @waiter: the waiter
 * @wait: its arguments
 *
 * Context: the bucket's lock is held.
 *
 * Return: false if the owner that @wait names is dead.
 */
bool memwait_watch_join(struct memwait_waiter *waiter, const struct memwait_wait *wait)
{
	struct memwait_owned *owned = memwait_owned_of(waiter), *first = memwait_watch_own(waiter);
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

/* The first waiter of a word leaves; the next waiter then stores what the word watches. */
static void memwait_watch_replace(struct memwait_owned *next, struct memwait_owned *first)
{
	struct memwait_identity *identity = first->watched;

	rb_replace_node(&first->node, &next->node, &first->waiter.bucket->watching);
	next->watched = identity;
	if (!identity)
		return;
	next->may_be_named = first->may_be_named;
	next->user = first->user;
	spin_lock(&identity->lock);
	rb_replace_node(&first->watched_node, &next->watched_node, &identity->watching);
	spin_unlock(&identity->lock);
}

/**
 * memwait_watch_leave() - handle a MEMWAIT_OWNED waiter that leaves the queue of its word
 * @waiter: the waiter
 *
 * Context: the bucket's lock is held.
 */
void memwait_watch_leave(struct memwait_waiter *waiter)
{
	struct memwait_owned *owned = memwait_owned_of(waiter);
	const bool first = !RB_EMPTY_NODE(&owned->node);

	lockdep_assert_held(&waiter->bucket->lock);
	if (first && !list_empty(&owned->others)) {
		memwait_watch_replace(list_next_entry(owned, others), owned);
	} else if (first) {
		memwait_unwatch(owned);
		rb_erase(&owned->node, &waiter->bucket->watching);
	}
	list_del(&owned->others);
}

/*
 * Returns the first of the waiters that watch an owner and whose user is not below @user, or NULL.
 */
static struct memwait_owned *memwait_watching_from(const struct memwait_identity *identity,
						   u64 user)
{
	struct rb_node *node;

	node = memwait_rb_after(&user, &identity->watching, memwait_watching_cmp);
	return node ? memwait_watching(node) : NULL;
}

/*
 * Returns the first waiter of the word to which a dead owner's death is reported next: a word of
 * the owner's user, or, unless @own, of the user whose turn it is. Returns NULL if there is none.
 */
static struct memwait_owned *memwait_watch_first(const struct memwait_identity *identity, bool own)
{
	const uid_t user = memwait_identity_user(identity);
	struct memwait_owned *first;

	lockdep_assert_held(&identity->lock);
	first = memwait_watching_from(identity, user);
	if (own || (first && first->user == user))
		return first && first->user == user ? first : NULL;
	return memwait_watching_from(identity, (u64)identity->turn + 1) ?:
	       memwait_watching_from(identity, 0);
}

/**
 * memwait_watch_lock() - lock the bucket of a word that watches a dead owner
 * @identity: dead
 * @own: only words of the identity's user
 *
 * Context: process context, may sleep; takes the lock of memwait_waiter.bucket.
 *
 * Return: the word's first MEMWAIT_OWNED waiter; %NULL: no such word watches the identity, and none
 * will.
 */
struct memwait_owned *memwait_watch_lock(struct memwait_identity *identity, bool own)
{
	struct memwait_bucket *bucket, *locked = NULL;
	struct memwait_owned *first;

	for (;;) {
		spin_lock(&identity->lock);
		first = memwait_watch_first(identity, own);
		bucket = first ? first->waiter.bucket : NULL;
		if (first && bucket == locked)
			identity->turn = first->user;
		spin_unlock(&identity->lock);
		/* A waiter in the tree is queued, and stays queued while its bucket is locked. */
		if (bucket == locked)
			return first;
		/*
		 * Otherwise the word that was first has stopped watching, or another thread has
		 * reported the death to the user whose turn it was. In both cases the tree has
		 * become smaller.
		 */
		if (locked) {
			__acquire(&locked->lock);	/* sparse cannot follow this */
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
