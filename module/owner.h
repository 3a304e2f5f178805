/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Identities of the threads and contexts that have an id, and MEMWAIT_OWNED waiters, which are
 * notified of deaths. See identity.c, watch.c and owner.c.
 */
#ifndef MEMWAIT_OWNER_H
#define MEMWAIT_OWNER_H

#include <linux/fs.h>
#include <linux/rcupdate.h>
#include <linux/rhashtable-types.h>

#include "queue.h"
#include "user.h"

/**
 * struct memwait_identity - a thread or a context that has an id
 * @id: its id; 0: a marker of debugfs.c
 * @id_node: entry of the table of ids, until the identity is freed
 * @node: entry of the list of all identities, in order of creation
 * @user: the user that is charged, with a reference
 * @ended: set before @dead if the thread ended by itself, which is not a death: see watch.c
 * @dead: clear while the identity lives
 * @who: the thread, only for comparison; %NULL for a context
 * @tid: the thread's id in the initial PID namespace, or 0
 * @pid: the process's PID in that namespace; for a context, the PID of the process that opened it
 * @who_node: entry of the table of living identities, until @dead is set
 * @lock: protects @watching and @turn
 * @watching: tree of the first waiters of the words that watch the identity, by
 *	&memwait_owned.watched_node; ordered by &memwait_owned.user and, for the same user, by the
 *	time of insertion
 * @turn: the user of the word to which the death was reported last
 * @refs: once the identity is dead: one for the list of dead identities, and one for each thread
 *	that reports the death
 * @process: once the identity is dead: its process, only for comparison; %NULL: the process has
 *	nothing more to report
 * @dead_node: entry of &memwait_user.dead, until the identity is reaped
 * @rcu: frees it
 */
struct memwait_identity {
	u64 id;
	struct rhash_head id_node;
	struct list_head node;
	struct memwait_user *user;
	bool ended;
	bool dead;
	const struct task_struct *who;
	pid_t tid;
	pid_t pid;
	struct hlist_node who_node;
	spinlock_t lock;	/* see the top of identity.c */
	struct rb_root watching;
	uid_t turn;
	refcount_t refs;
	const struct signal_struct *process;
	union {
		struct list_head dead_node;
		struct rcu_head rcu;
	};
};

extern bool memwait_has_owners;
extern char memwait_unbound;
extern struct workqueue_struct *memwait_reap_queue;
struct memwait_identity *memwait_identity_of(const struct task_struct *who);
struct memwait_identity *memwait_identity_find(u64 id);
void memwait_identity_begin_walk(struct memwait_identity *marker);
struct memwait_identity *memwait_identity_next(struct memwait_identity *marker);
void memwait_identity_end_walk(struct memwait_identity *marker);
struct memwait_identity *memwait_identity_new(struct memwait_context *context,
					      const struct task_struct *who);
int memwait_identity_bind(struct memwait_context *context);
void memwait_identity_kill(struct memwait_identity *identity, bool ended);
struct memwait_identity *memwait_identity_dead(struct memwait_user *user, bool own);
void memwait_identity_reported(struct memwait_identity *identity, bool own);
void memwait_identity_put(struct memwait_identity *identity);
int memwait_identity_init(void);
void memwait_identity_exit(void);

bool memwait_names_dead_owner(const struct memwait_wait *wait);
int memwait_own_identity(u32 flags, struct memwait_context *context,
			 struct memwait_identity **identity);

/* Returns the id that a wait names, or 0. */
static inline u64 memwait_named_id(const struct memwait_wait *wait)
{
	return memwait_size(wait->flags) == 8 ? wait->expected & MEMWAIT_OWNER_MASK : 0;
}

/**
 * struct memwait_owned - the only waiter of a wait with MEMWAIT_OWNED
 * @waiter: the waiter
 * @identity: the waiting thread or context
 * @wide: the waiter is queued for a word of 64 bits, which can therefore contain an owner's
 *	id; protected by the bucket's lock while queued
 * @others: circular list of the MEMWAIT_OWNED waiters of its word. The list begins with the first
 *	waiter, and has the order in which these waiters joined or returned to their positions
 * @node: for the first waiter: in &memwait_bucket.watching
 * @watched: for the first waiter: the owner that the word watches, or %NULL
 * @watched_node: if @watched is set: in &memwait_identity.watching of @watched; also protected by
 *	the lock of @watched. While it is in that tree, &memwait_waiter.bucket is set and does not
 *	change
 * @may_be_named: if @watched is set: the word may name @watched as its owner, so that an end of
 *	@watched is reported as well
 * @user: if @watched is set: the user whose waiter has made the word watch @watched; or the user of
 *	@watched if a waiter of that user has also done so
 *
 * The bucket's lock protects the members from @others to the end of this list.
 */
struct memwait_owned {
	struct memwait_waiter waiter;
	struct memwait_identity *identity;
	bool wide;
	bool may_be_named;
	uid_t user;
	struct list_head others;
	struct rb_node node;
	struct memwait_identity *watched;
	struct rb_node watched_node;
};

static inline struct memwait_owned *memwait_owned_of(struct memwait_waiter *waiter)
{
	return container_of(waiter, struct memwait_owned, waiter);
}

/* watch.c */
bool memwait_watch_join(struct memwait_waiter *waiter, const struct memwait_wait *wait);
void memwait_watch_leave(struct memwait_waiter *waiter);
struct memwait_owned *memwait_watch_own(struct memwait_waiter *waiter);
void memwait_watch_claimed(struct memwait_waiter *waiter);
struct memwait_owned *memwait_watch_find(struct memwait_bucket *bucket,
					 const struct memwait_key *key);
void memwait_unwatch(struct memwait_owned *first);
struct memwait_owned *memwait_watch_lock(struct memwait_identity *identity, bool own);

/* owner.c */
int memwait_ioc_owner(struct file *file, const struct memwait_owner *owner,
		      struct memwait_owner __user *user);
void memwait_reap_work(struct work_struct *work);
int memwait_close_descriptor(struct file *file, fl_owner_t id);
int memwait_owner_init(void);
void memwait_owner_exit(void);

#endif /* MEMWAIT_OWNER_H */
