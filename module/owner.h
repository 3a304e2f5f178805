/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Identities, which are threads and contexts that have an id; and MEMWAIT_OWNED waiters, which are
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
 * @id_node: in the table of ids, until it is freed
 * @node: in the list of all, in the order of their creation
 * @user: the user that is charged, with a reference
 * @ended: set before @dead: the thread ended by itself, outside of all functions, see watch.c
 * @dead: clear while it lives
 * @who: the thread, only compared; %NULL for a context
 * @tid: the thread's id in the initial PID namespace; or 0
 * @pid: the process's id there; for a context, the id of the process that opened it
 * @who_node: in the table of living identities, until @dead is set
 * @lock: protects @watching and @turn
 * @watching: the first waiters of the words that watch it, by &memwait_owned.watched_node: ordered
 *	by &memwait_owned.user, and the waiters of one user in the order in which they came
 * @turn: the user of the word to which the death was reported last
 * @refs: once it is dead: one for the list of dead identities, and one for each thread that
 *	reports its death
 * @process: once it is dead: its process, only compared; %NULL: the process has nothing left to
 * report
 * @dead_node: in &memwait_user.dead, until it is reaped
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

/* The id that a wait names, or 0. */
static inline u64 memwait_named_id(const struct memwait_wait *wait)
{
	return memwait_size(wait->flags) == 8 ? wait->expected & MEMWAIT_OWNER_MASK : 0;
}

/**
 * struct memwait_owned - the only waiter of a wait with MEMWAIT_OWNED
 * @waiter: the waiter
 * @identity: the waiting thread or context
 * @wide: the word where it is queued has 64 bits, and so room for an owner's id; protected by the
 *	bucket's lock while queued
 * @others: a ring of the MEMWAIT_OWNED waiters of its word; from the first waiter on, in the order
 *	in which they joined or returned to their positions
 * @node: of the first waiter: in &memwait_bucket.watching
 * @watched: of the first waiter: the owner whose death they are notified of, or %NULL
 * @watched_node: with @watched: in its &memwait_identity.watching; also protected by its lock. As
 *	long as it is there, &memwait_waiter.bucket is set and does not change
 * @may_be_named: with @watched: the word may name it as its owner, so that its end matters as well
 * @user: with @watched: the user whose waiter has made the word watch the owner; the owner's own
 *	user if a waiter of that user has done so, too
 *
 * The members from @others on, in this list, are protected by the bucket's lock.
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
