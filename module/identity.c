// SPDX-License-Identifier: GPL-2.0-only
/*
 * Owners: the ids of threads and contexts, and which queues look to them.
 *
 * The kernel writes to no lock word. A program writes the owner's id into it, a waiter with
 * MEMWAIT_OWNED names that id, and is told when the owner has died.
 *
 * A queue looks to one owner at most: the one that is to do the next step for its waiters.
 *
 *	a waiter joins that names an owner	the queue looks to that owner
 *	a MEMWAIT_OWNED waiter is woken		the queue looks to that waiter's own thread or
 *						context
 *	the queue becomes empty			the queue looks to nobody
 *
 * It looks as well to the thread that has moved MEMWAIT_OWNED waiters to it last, if that has an
 * id.
 *
 * When an owner dies, the oldest MEMWAIT_OWNED waiter of each queue that looks to it gets
 * MEMWAIT_OWNER_DIED, and the queue looks to that waiter. This covers an owner that dies with the
 * lock, or between its store and its notify; and a waiter that dies between its wake-up and its
 * change of the word, or after it. It covers a thread that moves waiters, for a broadcast, and dies
 * before it has made sure that the word they were moved to will be notified; or that moves them to
 * where they are, and dies before it has changed other words, and woken them.
 *
 * A thread that takes the lock in between, without a system call, is not looked to. It need not be:
 * the waiter that is told, or that was woken, finds that thread's id in the word, and names it when
 * it waits again.
 *
 * How a death is seen. The kernel's tracepoints sched_process_exit and sched_process_exec run in
 * each thread that exits, or has executed another program. Their probes look the thread up in a
 * hash table. No clone(2) flag, vfork(2) or PID namespace hides a thread from them, and closed
 * descriptors do not matter. The exit of a thread comes before its parent can know by waitpid(2),
 * the exec before the first instruction of the new program. A thread that joins another one, or
 * waits for the exec of its vfork(2), may be sooner. A context dies with its last close.
 *
 * A process dies with the last of its threads, or executes another program. Its identity also dies
 * with the last context that is bound to it. It is known by its signal_struct, which all its
 * threads share, and no child. When the count of its living threads is 0, each of them has left its
 * last system call. Two threads may find that at once, so memwait_identity_mark_dead() says which
 * was first.
 *
 * A context that is bound ends with its process, even if others have copies of its descriptor: see
 * memwait_context_use() and memwait_context_end_some().
 *
 * The probes are called where locks that sleep on PREEMPT_RT must not be taken. So they only mark
 * the thread dead, and leave the rest to a work, see owner.c.
 *
 *	death				a waiter that names the owner
 *
 *	(1) set .dead			(1) lock the queue, compare the word
 *	(2) queue the work		(2) lock the owner
 *	(3) work: lock the owner	(3) load .dead: set: MEMWAIT_OWNER_DIED
 *	(4) look at its queues		(4) add the queue to the owner's
 *
 * Either the waiter locks the owner first, and the work finds the queue; or it locks the owner
 * after the work, and sees .dead: queueing a work orders what came before it.
 *
 * (A) A thread that is told of a death must see what the dead one wrote in user space. So setting
 * .dead is a store-release, and looking at it a load-acquire. An identity that is not there any
 * more has been drained by the work, after the death: a look-up that finds none needs a read
 * barrier.
 *
 * A waiter in a queue has a living owner of its own: its thread is in the kernel, or its context is
 * open. A notify makes the queue look to that owner before it takes the waiter out. So an identity
 * that the work has drained gets no queue again, and can be freed. Look-ups by id are under RCU.
 *
 * Ids count nanoseconds since boot when the module is loaded, and go up by one for each owner: a
 * module that is loaded again gives no id twice. A living thread that has an id keeps the module
 * loaded.
 *
 *	Lock order:	queue->lock -> memwait_context.lock -> memwait_identity.lock, two of the
 *			last by address -> memwait_living_lock
 *			memwait_new_lock -> memwait_identity.lock
 */
#include <linux/atomic.h>
#include <linux/err.h>
#include <linux/hashtable.h>
#include <linux/llist.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "context.h"
#include "identity.h"
#include "memwait.h"
#include "trace.h"

/*
 * task_struct or signal_struct -> living identity. No rhashtable: that disables softirqs on 6.1,
 * which a thread that must not sleep may not do with PREEMPT_RT.
 */
static DEFINE_HASHTABLE(memwait_living, 14);
static DEFINE_RAW_SPINLOCK(memwait_living_lock);	/* of those who change it, and of .dead */
/*
 * Of those who make one, so that two threads do not make two; and of those who decide to whom a
 * context belongs.
 */
static DEFINE_SPINLOCK(memwait_new_lock);
static DEFINE_XARRAY(memwait_identities);	/* id -> identity, until the work is done with it */
static atomic64_t memwait_last_id;

/* For the work that tells of deaths. */
struct memwait_deaths memwait_deaths;

/* Whether this kernel can tell of deaths; set when the module is loaded. */
bool memwait_has_owners __ro_after_init;

/* The process of a context that is nobody's in particular, and of one that has ended. */
static struct memwait_identity memwait_anybody;
struct memwait_identity memwait_nobody = { .dead = true };

/**
 * memwait_identity_of() - find the identity of a thread or a process
 * @who: the current thread, or its signal_struct; or a thread that is kept from exiting
 *
 * Context: any but interrupts; for a process, under RCU.
 *
 * Return: its identity, which lives as long as the thread does and keeps its id, or as long as the
 * process has contexts that are bound to it; or %NULL.
 */
struct memwait_identity *memwait_identity_of(const void *who)
{
	struct memwait_identity *identity;

	rcu_read_lock();
	hash_for_each_possible_rcu(memwait_living, identity, who_node, (unsigned long)who) {
		if (identity->who == who)
			break;
	}
	rcu_read_unlock();
	return identity;
}

/* An identity that nobody knows of, and that is not counted; or an ERR_PTR(). */
static struct memwait_identity *memwait_identity_alloc(struct memwait_context *context,
						       const void *who)
{
	struct memwait_identity *identity;
	int err;

	identity = kmalloc(sizeof(*identity), MEMWAIT_GFP);
	if (!identity)
		return ERR_PTR(-ENOMEM);
	identity->id = atomic64_inc_return(&memwait_last_id);
	identity->user = context->user;
	identity->call = 0;
	identity->dead = false;
	identity->who = who;
	identity->tid = who == current ? task_pid_nr(current) : 0;
	spin_lock_init(&identity->lock);
	INIT_LIST_HEAD(&identity->queues);
	INIT_LIST_HEAD(&identity->moved_to);
	INIT_LIST_HEAD(&identity->contexts);
	/* The table's own memory is not charged: other users are in it, too. */
	err = xa_reserve(&memwait_identities, identity->id, GFP_KERNEL);
	if (err) {
		kfree(identity);
		return ERR_PTR(err);
	}
	return identity;
}

/* Gives back an identity that nobody got to know of, or %NULL. */
static void memwait_identity_drop(struct memwait_identity *identity)
{
	if (!identity)
		return;
	xa_release(&memwait_identities, identity->id);
	kfree(identity);
}

/* Lets an identity be known, which is counted. */
static void memwait_identity_add(struct memwait_identity *identity,
				 struct memwait_context *context)
{
	lockdep_assert_held(&memwait_new_lock);
	refcount_inc(&identity->user->refs);
	__module_get(THIS_MODULE);	/* the caller's file keeps it loaded until then */
	/*
	 * A waiter can name an id that was not told yet, and then queues look to it: from now on it
	 * is there. The place was reserved.
	 */
	xa_store(&memwait_identities, identity->id, identity, GFP_NOWAIT);
	if (identity->who) {
		raw_spin_lock(&memwait_living_lock);
		hash_add_rcu(memwait_living, &identity->who_node, (unsigned long)identity->who);
		raw_spin_unlock(&memwait_living_lock);
	} else {
		WRITE_ONCE(context->id, identity->id);
		WRITE_ONCE(context->identity, identity);
	}
}

/**
 * memwait_identity_new() - give an id to a thread or a context, unless it has one
 * @context: by which it is asked for, and for whose user it is counted
 * @who: the current thread; or %NULL: the context
 *
 * Context: process context, may sleep.
 *
 * Return: the identity, maybe one that another thread has made meanwhile; or an ERR_PTR(): -ENOSPC:
 * over the user's limit; -ENOMEM.
 */
struct memwait_identity *memwait_identity_new(struct memwait_context *context, const void *who)
{
	struct memwait_identity *new, *identity;

	new = memwait_identity_alloc(context, who);
	if (IS_ERR(new))
		return new;

	/* What can fail is done: a count that another call has seen is not taken back. */
	spin_lock(&memwait_new_lock);
	identity = who ? memwait_identity_of(who) : context->identity;
	if (!identity && memwait_user_charge(context->user, MEMWAIT_OWNERS, 1)) {
		memwait_identity_add(new, context);
		swap(identity, new);
	}
	spin_unlock(&memwait_new_lock);
	memwait_identity_drop(new);
	return identity ?: ERR_PTR(-ENOSPC);
}

/* Decides that a context is anybody's, unless that was decided. */
static void memwait_identity_share(struct memwait_context *context)
{
	spin_lock(&memwait_new_lock);
	if (!context->process)
		WRITE_ONCE(context->process, &memwait_anybody);
	spin_unlock(&memwait_new_lock);
}

/**
 * memwait_context_use() - is this call the current process's to do?
 * @context: the context
 *
 * The first one decides that the context is anybody's, unless it has been bound.
 *
 * Context: process context.
 *
 * Return: 0; -EPERM: the context is bound to another process, which may have died.
 */
int memwait_context_use(struct memwait_context *context)
{
	struct memwait_identity *process = READ_ONCE(context->process);
	bool own;

	if (likely(process == &memwait_anybody))
		return 0;
	if (!process)
		memwait_identity_share(context);
	rcu_read_lock();
	process = READ_ONCE(context->process);
	/* Dead, and the same: the address has come to another process. */
	own = process == &memwait_anybody ||
	      (process->who == current->signal && !READ_ONCE(process->dead));
	rcu_read_unlock();
	return own ? 0 : -EPERM;
}

/* Locks the identity of the current process, if it has one that lives, or returns %NULL. */
static struct memwait_identity *memwait_lock_process(void)
{
	struct memwait_identity *process = memwait_identity_of(current->signal);

	if (!process)
		return NULL;
	spin_lock(&process->lock);
	/* It may have died with the last context that was bound to it. */
	if (READ_ONCE(process->dead)) {
		spin_unlock(&process->lock);
		return NULL;
	}
	__release(&process->lock);	/* sparse cannot follow */
	return process;
}

/*
 * Binds a context to the current process, and lets both have an identity. @new has one for each, of
 * which those that are used are set to %NULL. Counts all of them, or does nothing.
 */
static int memwait_bind(struct memwait_context *context, struct memwait_identity *new[2])
{
	struct memwait_identity *process = context->process;
	unsigned int nr;

	lockdep_assert_held(&memwait_new_lock);
	if (process == &memwait_anybody)
		return -EBUSY;
	if (process && (process->who != current->signal || READ_ONCE(process->dead)))
		return -EPERM;

	process = memwait_lock_process();
	nr = !process + !context->identity;
	if (nr && !memwait_user_charge(context->user, MEMWAIT_OWNERS, nr)) {
		if (process) {
			__acquire(&process->lock);
			spin_unlock(&process->lock);
		}
		return -ENOSPC;
	}
	if (!process) {
		process = new[0];
		new[0] = NULL;
		memwait_identity_add(process, context);
		spin_lock(&process->lock);
		__release(&process->lock);
	}
	if (!context->process) {
		list_add_tail(&context->process_node, &process->contexts);
		WRITE_ONCE(context->process, process);
	}
	__acquire(&process->lock);
	spin_unlock(&process->lock);
	if (!context->identity) {
		memwait_identity_add(new[1], context);
		new[1] = NULL;
	}
	return 0;
}

/**
 * memwait_identity_bind() - bind a context to the current process, and give it an id
 * @context: the context, whose user both are counted for
 *
 * The process has an identity as long as contexts are bound to it.
 *
 * Context: process context, may sleep.
 *
 * Return: 0; or, and then nothing was done, -EBUSY: it is anybody's; -EPERM: it is bound to another
 * process; -ENOSPC: over the user's limit; -ENOMEM.
 */
int memwait_identity_bind(struct memwait_context *context)
{
	struct memwait_identity *new[2];
	int err = 0, i;

	new[0] = memwait_identity_alloc(context, current->signal);
	new[1] = memwait_identity_alloc(context, NULL);
	for (i = 0; i < 2; i++) {
		if (IS_ERR(new[i])) {
			err = PTR_ERR(new[i]);
			new[i] = NULL;
		}
	}
	if (!err) {
		spin_lock(&memwait_new_lock);
		rcu_read_lock();
		err = memwait_bind(context, new);
		rcu_read_unlock();
		spin_unlock(&memwait_new_lock);
	}
	for (i = 0; i < 2; i++)
		memwait_identity_drop(new[i]);
	return err;
}

/* Marks an identity dead. Returns whether it was alive. */
static bool memwait_identity_mark_dead(struct memwait_identity *identity)
{
	bool alive;

	raw_spin_lock(&memwait_living_lock);
	alive = !identity->dead;
	if (alive && identity->who)
		hash_del_rcu(&identity->who_node);
	smp_store_release(&identity->dead, true);	/* (A) */
	raw_spin_unlock(&memwait_living_lock);
	return alive;
}

/**
 * memwait_identity_kill() - the thread has exited or executed a program, or the context has ended
 * @identity: of the current thread or its process, or of a context that the caller ends; kept by
 *	RCU, if another thread of the process may do the same
 *
 * Context: any but interrupts; takes no lock that sleeps on PREEMPT_RT.
 */
void memwait_identity_kill(struct memwait_identity *identity)
{
	if (!memwait_identity_mark_dead(identity))
		return;
	trace_memwait_owner_died(identity);
	llist_add(&identity->dead_llist, &memwait_deaths.dead);
	queue_work(memwait_deaths.queue, &memwait_deaths.work);
}

/**
 * memwait_identity_lock_queue() - lock one of the queues that look to a dead owner
 * @identity: dead
 *
 * Context: process context; takes the queue's lock, for memwait_queue_unlock().
 *
 * Return: the queue; or %NULL: none is left, and none will be added.
 */
struct memwait_queue *memwait_identity_lock_queue(struct memwait_identity *identity)
{
	struct memwait_queue *queue;

	/* RCU keeps the memory of the queue, see the top of queue.c. */
	rcu_read_lock();
	for (;;) {
		spin_lock(&identity->lock);
		queue = list_first_entry_or_null(&identity->queues, struct memwait_queue,
						 looks_to_node);
		if (!queue)
			queue = list_first_entry_or_null(&identity->moved_to, struct memwait_queue,
							 mover_node);
		spin_unlock(&identity->lock);
		if (!queue)
			break;
		spin_lock(&queue->lock);
		if (queue->looks_to == identity || queue->mover == identity) {
			/* As memwait_queue_find(). */
			__release(&queue->lock);
			break;
		}
		spin_unlock(&queue->lock);
	}
	rcu_read_unlock();
	return queue;
}

/**
 * memwait_identity_free() - free a dead identity to which no queue looks any more
 * @identity: memwait_identity_lock_queue() has returned %NULL for it
 *
 * Context: the work, process context.
 */
void memwait_identity_free(struct memwait_identity *identity)
{
	struct memwait_user *user = identity->user;

	xa_erase(&memwait_identities, identity->id);
	memwait_user_uncharge(user, MEMWAIT_OWNERS, 1);
	kfree_rcu(identity, rcu);
	memwait_user_put(user);
	module_put(THIS_MODULE);	/* to unload it waits for the work */
}

/**
 * memwait_queue_look_away() - let a queue look to no owner
 * @queue: the queue
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_look_away(struct memwait_queue *queue)
{
	struct memwait_identity *identity = queue->looks_to;

	lockdep_assert_held(&queue->lock);
	if (!identity)
		return;
	spin_lock(&identity->lock);
	list_del(&queue->looks_to_node);
	spin_unlock(&identity->lock);
	queue->looks_to = NULL;
}

/* Puts a queue, which is in no such list, into that of an owner: see memwait_queue_look_to(). */
static void memwait_queue_stand(struct memwait_queue *queue, struct memwait_identity *identity,
				const struct memwait_identity *waiter)
{
	lockdep_assert_held(&identity->lock);
	if (waiter->user == identity->user)
		list_add(&queue->looks_to_node, &identity->queues);
	else
		list_add_tail(&queue->looks_to_node, &identity->queues);
}

/**
 * memwait_queue_look_to() - let a queue look to an owner
 * @queue: the queue
 * @identity: the owner; kept by RCU, or because it lives
 * @waiter: the identity of the waiter by which the queue does
 *
 * Anybody can name an owner in any number of waits. So the queues of the owner's own user stand
 * before those of others, and are told first.
 *
 * Context: the queue's lock is held.
 *
 * Return: whether the owner lives; if not, the queue looks where it did.
 */
bool memwait_queue_look_to(struct memwait_queue *queue, struct memwait_identity *identity,
			   const struct memwait_identity *waiter)
{
	struct memwait_identity *old = queue->looks_to, *first, *second;
	bool alive;

	lockdep_assert_held(&queue->lock);
	if (smp_load_acquire(&identity->dead))	/* (A) */
		return false;
	if (old == identity)
		return true;

	if (!old) {
		spin_lock(&identity->lock);
		alive = !smp_load_acquire(&identity->dead);	/* (A) */
		if (likely(alive)) {
			memwait_queue_stand(queue, identity, waiter);
			queue->looks_to = identity;
		}
		spin_unlock(&identity->lock);
		return alive;
	}

	/* Both at once: if the new one dies now, the queue must not have forgotten the old one. */
	first = min(old, identity);
	second = max(old, identity);
	spin_lock(&first->lock);
	spin_lock_nested(&second->lock, SINGLE_DEPTH_NESTING);
	alive = !smp_load_acquire(&identity->dead);	/* (A) */
	if (likely(alive)) {
		list_del(&queue->looks_to_node);
		memwait_queue_stand(queue, identity, waiter);
		queue->looks_to = identity;
	}
	spin_unlock(&second->lock);
	spin_unlock(&first->lock);
	return alive;
}

/**
 * memwait_queue_forget_mover() - the thread that has moved waiters to a queue counts no more
 * @queue: the queue
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_forget_mover(struct memwait_queue *queue)
{
	struct memwait_identity *identity = queue->mover;

	lockdep_assert_held(&queue->lock);
	if (likely(!identity))
		return;
	spin_lock(&identity->lock);
	list_del(&queue->mover_node);
	spin_unlock(&identity->lock);
	queue->mover = NULL;
}

/**
 * memwait_queue_moved_by() - note the thread that has moved waiters to a queue
 * @queue: the queue
 * @identity: of the current thread
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_moved_by(struct memwait_queue *queue, struct memwait_identity *identity)
{
	lockdep_assert_held(&queue->lock);
	if (queue->mover == identity)
		return;
	memwait_queue_forget_mover(queue);
	spin_lock(&identity->lock);
	list_add_tail(&queue->mover_node, &identity->moved_to);
	spin_unlock(&identity->lock);
	queue->mover = identity;
}

/* The id that a wait names, or 0. */
static u64 memwait_named_id(const struct memwait_wait *wait)
{
	return memwait_size(wait->flags) == 8 ? wait->expected & MEMWAIT_OWNER_MASK : 0;
}

/**
 * memwait_queue_name_owner() - let a queue look to the owner that a waiter names, if it names one
 * @queue: the queue that it is about to join
 * @wait: what it waits for, with MEMWAIT_OWNED
 * @waiter: its own identity
 *
 * Context: the queue's lock is held.
 *
 * Return: whether that owner lives, or nobody is named.
 */
bool memwait_queue_name_owner(struct memwait_queue *queue, const struct memwait_wait *wait,
			      const struct memwait_identity *waiter)
{
	u64 id = memwait_named_id(wait);
	struct memwait_identity *identity;
	bool alive;

	if (!id)
		return true;
	rcu_read_lock();
	identity = xa_load(&memwait_identities, id);
	alive = identity && memwait_queue_look_to(queue, identity, waiter);
	rcu_read_unlock();
	if (!identity)
		smp_rmb();	/* (A) */
	return alive;
}

/**
 * memwait_names_the_dead() - is the owner dead that a waiter names?
 * @wait: what it waits for
 *
 * Context: any but interrupts.
 *
 * Return: whether it is; an id that was never given is that of a dead one.
 */
bool memwait_names_the_dead(const struct memwait_wait *wait)
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
	identity = xa_load(&memwait_identities, id);
	dead = !identity || smp_load_acquire(&identity->dead);	/* (A) */
	rcu_read_unlock();
	if (!identity)
		smp_rmb();	/* (A) */
	return dead;
}

/**
 * memwait_own_identity() - who a waiter with MEMWAIT_OWNED is
 * @flags: of the wait
 * @context: of an async wait; %NULL: the current thread waits
 * @identity: set to the identity; to %NULL without MEMWAIT_OWNED
 *
 * Context: process context.
 *
 * Return: 0; -EPERM: it has no id; -EOPNOTSUPP: this kernel cannot tell of deaths.
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

void __init memwait_identity_init(void)
{
	atomic64_set(&memwait_last_id, ktime_get_boottime_ns());
}

/* No thread has an id, nor is there a context. */
void memwait_identity_exit(void)
{
	xa_destroy(&memwait_identities);
}
