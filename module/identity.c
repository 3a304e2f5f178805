// SPDX-License-Identifier: GPL-2.0-only
/*
 * Owners: the ids of threads and contexts, and how their deaths are detected. See watch.c for the
 * words that watch them.
 *
 * Probes on tracepoints run in the dying thread, when it takes a fatal signal, exits or executes a
 * program, and look the thread up in a hash table, see owner.c. No clone(2) flag, vfork(2), PID
 * namespace or closed descriptor hides a thread from the probes. The exit probe runs before
 * waitpid(2) returns in the parent, and the exec probe runs before the new program's first
 * instruction. A thread that joins the dying thread, or whose vfork(2) child executes a program,
 * may continue before the probe runs. A context dies when it ends, see file.c.
 *
 * The probes must not take locks that sleep on PREEMPT_RT. The probes only mark the identity dead;
 * owner.c reaps it later.
 *
 * (G) A thread that is notified of a death must see what the dead thread wrote in user space.
 * Therefore .dead is set by a store-release and read by a load-acquire. An identity that is not
 * found may have been reaped after its death, so a failed look-up needs a read barrier.
 *
 * Look-ups by id are protected by RCU.
 *
 * Ids are random numbers. Therefore an id reveals neither other ids nor how many there are, and a
 * lock word that still contains the id of a dead thread does not name a living thread.
 *
 * An identity is inserted into the table of ids before it lives, marked dead, because an insertion
 * can fail, and the charge must come last. An identity stays in the table until it is freed. An
 * identity that was looked up is used under RCU, or while a word watches it. An identity is freed
 * after a grace period, and its node is used for nothing else. Insertion and removal disable
 * softirqs on 6.1, so both are done in process context with no raw lock held.
 *
 *	Lock order:	bucket->lock -> memwait_context.lock -> memwait_identity.lock, two of the
 *			last by address -> memwait_identities_lock
 */
#include <linux/err.h>
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/rculist.h>
#include <linux/rhashtable.h>
#include <linux/sched/task.h>

#include "context.h"
#include "owner.h"
#include "trace.h"

/*
 * task_struct -> living identity. Not an rhashtable, which on 6.1 disables softirqs; on PREEMPT_RT,
 * code that must not sleep cannot do that.
 */
static DEFINE_HASHTABLE(memwait_threads, 14);
/*
 * Serializes the creation of identities, so that no thread or context gets two. Also serializes
 * changes of the table above, of the list of all identities, and of the users' lists of dead
 * identities. All users share the lock, so it is raw: on PREEMPT_RT a preempted holder of a
 * sleeping lock would delay all other users. The lock is taken with interrupts disabled, because a
 * probe runs under siglock, which interrupts take.
 */
static DEFINE_RAW_SPINLOCK(memwait_identities_lock);
static LIST_HEAD(memwait_all);

/*
 * Number of dead identities among which memwait_identity_dead() searches for an identity of the
 * dying process.
 */
#define MEMWAIT_DEATHS	64

static const struct rhashtable_params memwait_identity_params = {
	.key_len = sizeof(u64),
	.key_offset = offsetof(struct memwait_identity, id),
	.head_offset = offsetof(struct memwait_identity, id_node),
	.min_size = 256,	/* avoids constant resizing on an idle machine */
	.automatic_shrinking = true,
};

static struct rhashtable memwait_identities;	/* id -> identity, until it is freed */

struct workqueue_struct *memwait_reap_queue;

/* Whether this kernel reports deaths. Set at module load. */
bool memwait_has_owners __ro_after_init;

/* memwait_binding.table of a context that is not bound, and never will be. */
char memwait_unbound;

/**
 * memwait_identity_of() - find the identity of a thread
 * @who: the current thread, or a thread that cannot exit during the call
 *
 * Context: any but interrupts.
 *
 * Return: the identity, which is valid until the thread exits, executes a program or ends its id;
 * or %NULL.
 */
struct memwait_identity *memwait_identity_of(const struct task_struct *who)
{
	struct memwait_identity *identity;

	rcu_read_lock();
	hash_for_each_possible_rcu(memwait_threads, identity, who_node, (unsigned long)who) {
		if (identity->who == who)
			break;
	}
	rcu_read_unlock();
	return identity;
}

/**
 * memwait_identity_begin_walk() - begin a walk over all identities, the latest first
 * @marker: the walk's marker, zeroed. Identities that are created later come after the marker
 *
 * Context: process context.
 */
void memwait_identity_begin_walk(struct memwait_identity *marker)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&memwait_identities_lock, flags);
	list_add_tail(&marker->node, &memwait_all);
	raw_spin_unlock_irqrestore(&memwait_identities_lock, flags);
}

/**
 * memwait_identity_next() - find the next identity, dead or alive
 * @marker: the walk's marker, which is moved before the identity
 *
 * Context: process context; under RCU.
 *
 * Return: the identity, or %NULL.
 */
struct memwait_identity *memwait_identity_next(struct memwait_identity *marker)
{
	struct memwait_identity *identity = marker;
	unsigned long flags;

	raw_spin_lock_irqsave(&memwait_identities_lock, flags);
	list_for_each_entry_continue_reverse(identity, &memwait_all, node) {
		if (identity->id)
			break;
	}
	if (list_entry_is_head(identity, &memwait_all, node))
		identity = NULL;
	else
		list_move_tail(&marker->node, &identity->node);
	raw_spin_unlock_irqrestore(&memwait_identities_lock, flags);
	return identity;
}

/**
 * memwait_identity_end_walk() - end a walk over all identities
 * @marker: the walk's marker
 *
 * Context: process context.
 */
void memwait_identity_end_walk(struct memwait_identity *marker)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&memwait_identities_lock, flags);
	list_del(&marker->node);
	raw_spin_unlock_irqrestore(&memwait_identities_lock, flags);
}

/**
 * memwait_identity_find() - look an identity up by id
 * @id: the id, from user space
 *
 * Context: any but interrupts; under RCU.
 *
 * Return: the identity, dead or alive; or %NULL.
 */
struct memwait_identity *memwait_identity_find(u64 id)
{
	return rhashtable_lookup(&memwait_identities, &id, memwait_identity_params);
}

/*
 * Assigns an identity an id that no other identity has, and inserts the identity into the table of
 * ids. All users share the table, whose memory is not charged to a memory cgroup. Returns 0 or a
 * negative errno.
 */
static int memwait_identity_insert(struct memwait_identity *identity)
{
	int err;

	do {
		identity->id = get_random_u64() & MEMWAIT_OWNER_MASK ?: 1;
		err = rhashtable_lookup_insert_fast(&memwait_identities, &identity->id_node,
						    memwait_identity_params);
	} while (err == -EEXIST);
	return err;
}

/*
 * Allocates an identity, which is not charged and does not live yet. Returns an ERR_PTR() on error.
 */
static struct memwait_identity *memwait_identity_alloc(struct memwait_context *context,
						       const struct task_struct *who)
{
	struct memwait_identity *identity;

	identity = kmalloc(sizeof(*identity), MEMWAIT_GFP);
	if (!identity)
		return ERR_PTR(-ENOMEM);
	identity->user = context->user;
	identity->ended = false;
	identity->dead = true;
	identity->who = who;
	identity->tid = who ? task_pid_nr(current) : 0;
	identity->pid = who ? task_tgid_nr(current) : context->pid;
	spin_lock_init(&identity->lock);
	identity->watching = RB_ROOT;
	identity->turn = 0;
	if (memwait_identity_insert(identity)) {
		kfree(identity);
		return ERR_PTR(-ENOMEM);
	}
	return identity;
}

/* Frees an identity that is in no list, or %NULL. */
static void memwait_identity_drop(struct memwait_identity *identity)
{
	if (!identity)
		return;
	rhashtable_remove_fast(&memwait_identities, &identity->id_node, memwait_identity_params);
	kfree_rcu(identity, rcu);
}

/*
 * Returns 0; if the user is over the limit, returns -EAGAIN if the user has dead identities,
 * otherwise -ENOSPC.
 */
static int memwait_identity_charge(struct memwait_user *user)
{
	lockdep_assert_held(&memwait_identities_lock);
	if (memwait_user_charge(user, MEMWAIT_OWNERS, 1))
		return 0;
	return list_empty(&user->dead) ? -ENOSPC : -EAGAIN;
}

/* Makes an identity live. The identity has been charged. */
static void memwait_identity_add(struct memwait_identity *identity,
				 struct memwait_context *context)
{
	lockdep_assert_held(&memwait_identities_lock);
	refcount_inc(&identity->user->refs);
	__module_get(THIS_MODULE);	/* the caller's file has a reference as well */
	list_add_tail(&identity->node, &memwait_all);
	/* The barrier is for waiters that see the id in a word. */
	smp_store_mb(identity->dead, false);
	if (identity->who) {
		hash_add_rcu(memwait_threads, &identity->who_node, (unsigned long)identity->who);
	} else {
		WRITE_ONCE(context->id, identity->id);
		WRITE_ONCE(context->identity, identity);
	}
}

/**
 * memwait_identity_new() - give an id to a thread or a context that has none
 * @context: the caller's, whose user is charged
 * @who: the current thread; %NULL: the context
 *
 * Context: process context, may sleep.
 *
 * Return: the identity, which another thread may just have created; or an ERR_PTR(): -ENOSPC: over
 * the user's limit; -EAGAIN: over the limit until dead identities are reaped; -ENOMEM.
 */
struct memwait_identity *memwait_identity_new(struct memwait_context *context,
					      const struct task_struct *who)
{
	struct memwait_identity *new, *identity;
	unsigned long flags;
	int err = 0;

	new = memwait_identity_alloc(context, who);
	if (IS_ERR(new))
		return new;

	/* Charge last: a charge that another call has seen must not be taken back. */
	raw_spin_lock_irqsave(&memwait_identities_lock, flags);
	identity = who ? memwait_identity_of(who) : context->identity;
	if (!identity)
		err = memwait_identity_charge(context->user);
	if (!identity && !err) {
		memwait_identity_add(new, context);
		swap(identity, new);
	}
	raw_spin_unlock_irqrestore(&memwait_identities_lock, flags);
	memwait_identity_drop(new);
	return err ? ERR_PTR(err) : identity;
}

/**
 * memwait_identity_bind() - bind a context to the current process, and give the context an id
 * @context: the context, whose user is charged
 *
 * Context: process context, may sleep; a full barrier if it binds the context.
 *
 * Return: 0; or, with nothing done, -EBUSY: any process may use the context; -EPERM: the context is
 * bound to another process, or has ended; -ENOSPC: over the user's limit; -EAGAIN: over the limit
 * until dead identities are reaped; -ENOMEM.
 */
int memwait_identity_bind(struct memwait_context *context)
{
	fl_owner_t table = smp_load_acquire(&context->binding.table);	/* before .process */
	struct memwait_identity *new;
	unsigned long flags;
	int err = 0;

	if (table)
		return table == &memwait_unbound ? -EBUSY :
		       memwait_context_is_own(context) ? 0 : -EPERM;
	new = memwait_identity_alloc(context, NULL);
	if (IS_ERR(new))
		return PTR_ERR(new);
	spin_lock(&context->lock);
	raw_spin_lock_irqsave(&memwait_identities_lock, flags);
	if (context->binding.table == &memwait_unbound) {
		err = -EBUSY;
	} else if (context->binding.table) {
		err = memwait_context_is_own(context) ? 0 : -EPERM;
	} else {
		err = memwait_identity_charge(context->user);
		if (!err) {
			memwait_identity_add(new, context);
			new = NULL;
			WRITE_ONCE(context->binding.process, get_pid(task_tgid(current)));
			/* after .process */
			smp_store_release(&context->binding.table, current->files);
			smp_mb();	/* see the top of file.c */
		}
	}
	raw_spin_unlock_irqrestore(&memwait_identities_lock, flags);
	spin_unlock(&context->lock);
	memwait_identity_drop(new);
	return err;
}

/**
 * memwait_identity_kill() - mark an identity dead, and leave it to be reaped
 * @identity: identity of the current thread, or of a context that the caller ends
 * @ended: the identity ends by itself, which is reported only to words that may name it
 *
 * Context: any but interrupts; takes no lock that sleeps on PREEMPT_RT.
 */
void memwait_identity_kill(struct memwait_identity *identity, bool ended)
{
	struct memwait_user *user = identity->user;
	unsigned long flags;

	/* Trace first: once the identity is in the list, it may be reaped and freed. */
	trace_memwait_owner_died(identity);
	raw_spin_lock_irqsave(&memwait_identities_lock, flags);
	if (identity->who)
		hash_del_rcu(&identity->who_node);
	identity->ended = ended;
	identity->process = current->signal;
	smp_store_release(&identity->dead, true);	/* (G) */
	refcount_set(&identity->refs, 1);
	list_add(&identity->dead_node, &user->dead);
	/*
	 * The identity has a reference to the user until the lock is dropped; the work item takes
	 * the lock.
	 */
	if (queue_work(memwait_reap_queue, &user->reap))
		refcount_inc(&user->refs);
	raw_spin_unlock_irqrestore(&memwait_identities_lock, flags);
}

/**
 * memwait_identity_put() - put a reference to a dead identity
 * @identity: a dead identity; the last put frees it
 *
 * Context: process context.
 */
void memwait_identity_put(struct memwait_identity *identity)
{
	struct memwait_user *user = identity->user;

	if (!refcount_dec_and_test(&identity->refs))
		return;
	memwait_identity_drop(identity);
	memwait_user_put(user);
	module_put(THIS_MODULE);	/* module unload waits for the work */
}

/**
 * memwait_identity_dead() - find a dead identity of a user, to report its death
 * @user: the user
 * @own: true: find, among the first MEMWAIT_DEATHS identities in the list, an identity that the
 *	current process has yet to report; false: find the first identity
 *
 * The latest death comes first in the list. The identity that is found is moved to the end: any
 * user can name it in any number of waits, so reporting its death may take many steps.
 *
 * Context: process context.
 *
 * Return: the identity, for memwait_identity_put(); %NULL: there is none.
 */
struct memwait_identity *memwait_identity_dead(struct memwait_user *user, bool own)
{
	struct memwait_identity *identity, *found = NULL;
	unsigned int nr = 0;
	unsigned long flags;

	raw_spin_lock_irqsave(&memwait_identities_lock, flags);
	list_for_each_entry(identity, &user->dead, dead_node) {
		found = !own || identity->process == current->signal ? identity : NULL;
		if (found || ++nr == MEMWAIT_DEATHS)
			break;
	}
	if (found) {
		refcount_inc(&found->refs);
		list_move_tail(&found->dead_node, &user->dead);
	}
	raw_spin_unlock_irqrestore(&memwait_identities_lock, flags);
	return found;
}

/**
 * memwait_identity_reported() - note that no word watches a dead identity any more
 * @identity: from memwait_identity_dead()
 * @own: as for memwait_identity_dead(). true: words of other users may still watch the identity;
 *	false: the identity is reaped
 *
 * Context: process context.
 */
void memwait_identity_reported(struct memwait_identity *identity, bool own)
{
	unsigned long flags;
	bool reaps;

	raw_spin_lock_irqsave(&memwait_identities_lock, flags);
	identity->process = NULL;
	/* Another thread may have reaped the identity already. */
	reaps = !own && !list_empty(&identity->dead_node);
	if (reaps) {
		list_del(&identity->node);
		list_del_init(&identity->dead_node);
		memwait_user_uncharge(identity->user, MEMWAIT_OWNERS, 1);
	}
	raw_spin_unlock_irqrestore(&memwait_identities_lock, flags);
	if (reaps)
		memwait_identity_put(identity);		/* the list's reference */
}

/**
 * memwait_names_dead_owner() - does a wait name a dead owner?
 * @wait: its arguments
 *
 * Context: any but interrupts.
 *
 * Return: whether it does. An id that was never assigned counts as dead.
 */
bool memwait_names_dead_owner(const struct memwait_wait *wait)
{
	struct memwait_identity *identity;
	bool dead;
	u64 id;

	if (likely(!(wait->flags & MEMWAIT_OWNED)))
		return false;
	id = memwait_named_id(wait);
	if (!id)
		return false;
	rcu_read_lock();
	identity = memwait_identity_find(id);
	dead = !identity || smp_load_acquire(&identity->dead);	/* (G) */
	rcu_read_unlock();
	if (!identity)
		smp_rmb();	/* (G) */
	return dead;
}

/**
 * memwait_own_identity() - find the identity of a waiter with MEMWAIT_OWNED
 * @flags: flags of the wait
 * @context: context of an async wait; %NULL: the current thread waits
 * @identity: set to the identity; to %NULL without MEMWAIT_OWNED
 *
 * Context: process context.
 *
 * Return: 0; -EPERM: the thread or context has no id; -EOPNOTSUPP: this kernel does not report
 * deaths.
 */
int memwait_own_identity(u32 flags, struct memwait_context *context,
			 struct memwait_identity **identity)
{
	*identity = NULL;
	if (likely(!(flags & MEMWAIT_OWNED)))
		return 0;
	if (!memwait_has_owners)
		return -EOPNOTSUPP;
	*identity = context ? READ_ONCE(context->identity) : memwait_identity_of(current);
	return *identity ? 0 : -EPERM;
}

/**
 * memwait_identity_init() - create the table of ids
 *
 * Context: process context, may sleep.
 *
 * Return: 0; or a negative errno.
 */
int __init memwait_identity_init(void)
{
	return rhashtable_init(&memwait_identities, &memwait_identity_params);
}

/* Called when no thread has an id and no context exists. */
void memwait_identity_exit(void)
{
	rhashtable_destroy(&memwait_identities);
}
