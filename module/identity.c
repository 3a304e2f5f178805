// SPDX-License-Identifier: GPL-2.0-only
/*
 * Owners: the ids of threads and contexts, and which owner each queue watches.
 *
 * User space stores the owner's id in the lock word; the kernel never writes it. A MEMWAIT_OWNED
 * waiter names that id and is told when the owner dies.
 *
 * A queue watches at most one owner (.watched), who must take the next step for its waiters:
 *
 *	event				the queue watches
 *
 *	a waiter names an owner		that owner
 *	a MEMWAIT_OWNED waiter is woken	that waiter's own thread or context
 *	the queue becomes empty		nobody
 *
 * It also watches the thread that last moved MEMWAIT_OWNED waiters to it (.mover), if that has an
 * id.
 *
 * When an owner dies, the oldest MEMWAIT_OWNED waiter of each queue that watches it gets
 * MEMWAIT_OWNER_DIED, and is watched from then on. It keeps its place, see place.c. This covers the
 * death of
 *
 *	- an owner with the lock, or between its store and its notify;
 *	- a woken waiter, before or after it changes the word;
 *	- a broadcaster, before it ensures a notify of the word it moved waiters to;
 *	- a thread that requeued a word to itself, before it has changed other words and woken
 *	  the waiters.
 *
 * A thread that takes the lock in between, without a system call, is not watched: the waiter that
 * was woken or told finds its id in the word, and names it in the next wait.
 *
 * An end is no death. A thread that calls exit(2), or gives up its id, has left every function that
 * it was in: it owes no step to any queue, and is an owner only where a word names it. So its end
 * is told in queues that watch it as the owner of a word, or as a woken waiter of a 64-bit word,
 * which may name it by now (.may_be_named). All others just stop watching it. A signal handler may
 * call exit_group(2) or execve(2) in the midst of a function, so these are deaths, as are closes of
 * contexts.
 *
 * Probes on the tracepoints sched_process_exit and sched_process_exec run in the dying thread and
 * look it up in a hash table. No clone(2) flag, vfork(2), PID namespace or closed descriptor hides
 * a thread. The exit probe runs before waitpid(2) returns in the parent, the exec probe before the
 * new program's first instruction. A thread that joins the dying one, or whose vfork(2) child
 * executes a program, may run on before the probe. A context dies with its last close.
 *
 * A process dies when its last thread exits or it executes another program. Its identity also dies
 * with the last context bound to it. It is known by its signal_struct, which its threads share and
 * its children do not. At signal->live == 0 each thread has left its last system call. Two threads
 * may both see 0: memwait_identity_mark_dead() returns true to one.
 *
 * A bound context ends with its process, whoever else holds a descriptor: see the top of context.c.
 *
 * The probes must not take locks that sleep on PREEMPT_RT. They mark the identity dead and leave it
 * to be buried, see owner.c.
 *
 *	death				a waiter that names the owner
 *
 *	(1) set .dead			(1) lock the queue, compare the word
 *	(2) queue it for burial		(2) lock the owner
 *	(3) lock the owner		(3) load .dead: set: MEMWAIT_OWNER_DIED
 *	(4) look at its queues		(4) add the queue to the owner's
 *
 * If the waiter locks the owner first, the burial finds the queue. If the burial does, the waiter
 * sees .dead: llist_add() and llist_del_all() order the store before the burial.
 *
 * (D) A thread that is told of a death must see what the dead thread wrote in user space. So .dead
 * is set by a store-release and read by a load-acquire. A missing identity was drained by the work,
 * after the death: a failed look-up needs a read barrier.
 *
 * A queued waiter's own identity lives: its thread is in the kernel, or its context is open. A
 * notify makes the queue watch it before it removes the waiter. So a drained identity gets no queue
 * again and can be freed. Look-ups by id are under RCU.
 *
 * Ids start at the nanoseconds since boot at module load and go up by one: a reloaded module reuses
 * none. A living thread with an id keeps the module loaded.
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
 * task_struct or signal_struct -> living identity. Not an rhashtable: on 6.1 that disables
 * softirqs, which a context that must not sleep cannot do on PREEMPT_RT.
 */
static DEFINE_HASHTABLE(memwait_living, 14);
static DEFINE_RAW_SPINLOCK(memwait_living_lock);	/* for table changes and .dead */
/*
 * Serializes the creation of identities, so that no thread, process or context gets two, and the
 * decision which process a context belongs to.
 */
static DEFINE_SPINLOCK(memwait_new_lock);
static DEFINE_XARRAY(memwait_identities);	/* id -> identity, until the work has drained it */
static atomic64_t memwait_last_id;

struct workqueue_struct *memwait_bury_queue;

/* Whether this kernel reports deaths. Set at module load. */
bool memwait_has_owners __ro_after_init;

/* memwait_context.process of a context that any process may use, and of one that has ended. */
static struct memwait_identity memwait_anybody;
struct memwait_identity memwait_nobody = { .dead = true };

/**
 * memwait_identity_of() - find the identity of a thread or a process
 * @who: the current thread or its signal_struct, or a thread that cannot exit meanwhile
 *
 * Context: any but interrupts; under RCU for a process.
 *
 * Return: the identity, or %NULL. A thread's stays valid until the thread exits, executes a program
 * or gives up its id; a process's while contexts are bound to the process.
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

/**
 * memwait_identity_next() - find the next identity, dead or alive
 * @id: its least id; set to its id
 *
 * Context: any but interrupts; under RCU.
 *
 * Return: the identity, or %NULL.
 */
struct memwait_identity *memwait_identity_next(u64 *id)
{
	struct memwait_identity *identity;
	unsigned long index = *id;

	identity = xa_find(&memwait_identities, &index, ULONG_MAX, XA_PRESENT);
	*id = index;
	return identity;
}

/* Allocates an identity, unpublished and not charged. Returns it or an ERR_PTR(). */
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
	identity->ended = false;
	identity->dead = false;
	identity->who = who;
	identity->tid = who == current ? task_pid_nr(current) : 0;
	identity->pid = who ? task_tgid_nr(current) : context->pid;
	spin_lock_init(&identity->lock);
	INIT_LIST_HEAD(&identity->queues);
	INIT_LIST_HEAD(&identity->moved_to);
	INIT_LIST_HEAD(&identity->contexts);
	/* Not charged to the memory cgroup: all users share the table. */
	err = xa_reserve(&memwait_identities, identity->id, GFP_KERNEL);
	if (err) {
		kfree(identity);
		return ERR_PTR(err);
	}
	return identity;
}

/* Frees an unpublished identity, or %NULL. */
static void memwait_identity_drop(struct memwait_identity *identity)
{
	if (!identity)
		return;
	xa_release(&memwait_identities, identity->id);
	kfree(identity);
}

/* Publishes an identity that has been charged. */
static void memwait_identity_add(struct memwait_identity *identity,
				 struct memwait_context *context)
{
	lockdep_assert_held(&memwait_new_lock);
	refcount_inc(&identity->user->refs);
	__module_get(THIS_MODULE);	/* the caller's file holds a reference until here */
	/*
	 * Waiters can guess the id, so queues may watch the identity from here on. Does not fail:
	 * memwait_identity_alloc() reserved the entry.
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
 * @context: the caller's, whose user is charged
 * @who: the current thread; %NULL: the context
 *
 * Context: process context, may sleep.
 *
 * Return: the identity, possibly one that another thread has just made; or an ERR_PTR(): -ENOSPC:
 * over the user's limit; -ENOMEM.
 */
struct memwait_identity *memwait_identity_new(struct memwait_context *context, const void *who)
{
	struct memwait_identity *new, *identity;

	new = memwait_identity_alloc(context, who);
	if (IS_ERR(new))
		return new;

	/* Charge last: a charge that another call has seen must not be taken back. */
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

/* Lets any process use a context that belongs to none yet. */
static void memwait_identity_share(struct memwait_context *context)
{
	spin_lock(&memwait_new_lock);
	if (!context->process)
		WRITE_ONCE(context->process, &memwait_anybody);
	spin_unlock(&memwait_new_lock);
}

/**
 * memwait_context_use() - may the current process use this context?
 * @context: the context
 *
 * The first call on an unbound context decides that any process may use it.
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
	/* .dead: a new process may have got the address of the dead one's signal_struct. */
	own = process == &memwait_anybody ||
	      (process->who == current->signal && !READ_ONCE(process->dead));
	rcu_read_unlock();
	return own ? 0 : -EPERM;
}

/* Locks the current process's identity. Returns it, or %NULL if it has no living one. */
static struct memwait_identity *memwait_lock_process(void)
{
	struct memwait_identity *process = memwait_identity_of(current->signal);

	if (!process)
		return NULL;
	spin_lock(&process->lock);
	/* It may have died with the last context bound to it. */
	if (READ_ONCE(process->dead)) {
		spin_unlock(&process->lock);
		return NULL;
	}
	__release(&process->lock);	/* sparse cannot follow */
	return process;
}

/*
 * Binds a context to the current process, and gives both an identity. Takes what is missing from
 * @new, one for each, and sets the entries it takes to %NULL. Charges all of them or does nothing.
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
 * @context: the context, whose user is charged for both identities
 *
 * The process keeps its identity while contexts are bound to it.
 *
 * Context: process context, may sleep.
 *
 * Return: 0; or, with nothing done, -EBUSY: any process may use the context; -EPERM: it is bound to
 * another process; -ENOSPC: over the user's limit; -ENOMEM.
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
static bool memwait_identity_mark_dead(struct memwait_identity *identity, bool ended)
{
	bool alive;

	raw_spin_lock(&memwait_living_lock);
	alive = !identity->dead;
	if (alive && identity->who)
		hash_del_rcu(&identity->who_node);
	if (alive)
		identity->ended = ended;
	smp_store_release(&identity->dead, true);	/* (D) */
	raw_spin_unlock(&memwait_living_lock);
	return alive;
}

/**
 * memwait_identity_kill() - mark an identity dead, and leave it to be buried
 * @identity: of the current thread or its process, or of a context that the caller ends; protected
 *	by RCU if another thread of the process may call this, too
 * @ended: it ends by itself, which only waiters that name it are told of
 *
 * Context: any but interrupts; takes no lock that sleeps on PREEMPT_RT. The full barriers of the
 * exchanges of .bereaved, here and in owner.c, order them and the accesses to .newly_dead.
 */
void memwait_identity_kill(struct memwait_identity *identity, bool ended)
{
	struct memwait_user *user = identity->user;

	if (!memwait_identity_mark_dead(identity, ended))
		return;
	trace_memwait_owner_died(identity);
	/* Once in the list, the identity may be buried and freed, and its user with it. */
	rcu_read_lock();
	llist_add(&identity->dead_llist, &user->newly_dead);
	if (!xchg(&user->bereaved, true) && refcount_inc_not_zero(&user->refs))
		queue_work(memwait_bury_queue, &user->bury);
	rcu_read_unlock();
}

/**
 * memwait_identity_lock_queue() - lock one of the queues that watch a dead owner
 * @identity: dead
 *
 * Those to which it moved waiters come first: only itself can have added them, while anybody can
 * name it in any number of waits.
 *
 * Context: process context; takes the queue's lock, for memwait_queue_unlock().
 *
 * Return: the queue; %NULL: none is left, and none will be added.
 */
struct memwait_queue *memwait_identity_lock_queue(struct memwait_identity *identity)
{
	struct memwait_queue *queue;

	/* RCU protects the queue's memory, see the top of queue.c. */
	rcu_read_lock();
	for (;;) {
		spin_lock(&identity->lock);
		queue = list_first_entry_or_null(&identity->moved_to, struct memwait_queue,
						 mover_node);
		if (!queue)
			queue = list_first_entry_or_null(&identity->queues, struct memwait_queue,
							 watched_node);
		spin_unlock(&identity->lock);
		if (!queue)
			break;
		spin_lock(&queue->lock);
		if (queue->watched == identity || queue->mover == identity) {
			/* See memwait_queue_find(). */
			__release(&queue->lock);
			break;
		}
		spin_unlock(&queue->lock);
	}
	rcu_read_unlock();
	return queue;
}

/**
 * memwait_identity_free() - free a dead identity that no queue watches
 * @identity: memwait_identity_lock_queue() has returned %NULL for it
 *
 * Context: process context; .dead_lock of the identity's user is held.
 */
void memwait_identity_free(struct memwait_identity *identity)
{
	struct memwait_user *user = identity->user;

	xa_erase(&memwait_identities, identity->id);
	memwait_user_uncharge(user, MEMWAIT_OWNERS, 1);
	kfree_rcu(identity, rcu);
	memwait_user_put(user);
	module_put(THIS_MODULE);	/* module unload waits for the work */
}

/**
 * memwait_queue_unwatch() - stop watching an owner
 * @queue: the queue
 *
 * Context: the queue's lock is held.
 */
void memwait_queue_unwatch(struct memwait_queue *queue)
{
	struct memwait_identity *identity = queue->watched;

	lockdep_assert_held(&queue->lock);
	if (!identity)
		return;
	spin_lock(&identity->lock);
	list_del(&queue->watched_node);
	spin_unlock(&identity->lock);
	queue->watched = NULL;
}

/* Adds a queue to an owner's list, see memwait_queue_watch(). The queue is in no such list. */
static void memwait_queue_stand(struct memwait_queue *queue, struct memwait_identity *identity,
				const struct memwait_identity *waiter)
{
	lockdep_assert_held(&identity->lock);
	if (waiter->user == identity->user)
		list_add(&queue->watched_node, &identity->queues);
	else
		list_add_tail(&queue->watched_node, &identity->queues);
}

/**
 * memwait_queue_watch() - watch an owner
 * @queue: the queue
 * @identity: the owner; protected by RCU, or alive
 * @waiter: the identity of the waiter that causes this
 * @may_be_named: the word may name @identity, so that its end is to be told as well
 *
 * Anybody can name an owner in any number of waits. So the queues of the owner's own user stand
 * before those of others, and are told first.
 *
 * Context: the queue's lock is held.
 *
 * Return: true; false: the owner is dead, and the queue watches whom it did before.
 */
bool memwait_queue_watch(struct memwait_queue *queue, struct memwait_identity *identity,
			 const struct memwait_identity *waiter, bool may_be_named)
{
	struct memwait_identity *old = queue->watched, *first, *second;
	bool alive;

	lockdep_assert_held(&queue->lock);
	if (smp_load_acquire(&identity->dead))	/* (D) */
		return false;
	if (old == identity) {
		queue->may_be_named |= may_be_named;
		return true;
	}

	if (!old) {
		spin_lock(&identity->lock);
		alive = !smp_load_acquire(&identity->dead);	/* (D) */
		if (likely(alive)) {
			memwait_queue_stand(queue, identity, waiter);
			queue->watched = identity;
			queue->may_be_named = may_be_named;
		}
		spin_unlock(&identity->lock);
		return alive;
	}

	/* One step: if the new owner dies now, the queue must still watch the old one. */
	first = min(old, identity);
	second = max(old, identity);
	spin_lock(&first->lock);
	spin_lock_nested(&second->lock, SINGLE_DEPTH_NESTING);
	alive = !smp_load_acquire(&identity->dead);	/* (D) */
	if (likely(alive)) {
		list_del(&queue->watched_node);
		memwait_queue_stand(queue, identity, waiter);
		queue->watched = identity;
		queue->may_be_named = may_be_named;
	}
	spin_unlock(&second->lock);
	spin_unlock(&first->lock);
	return alive;
}

/**
 * memwait_queue_forget_mover() - stop watching the thread that moved waiters here
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
 * memwait_queue_moved_by() - watch the thread that has moved waiters to a queue
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
 * memwait_queue_name_owner() - watch the owner that a waiter names, if any
 * @queue: the queue that the waiter is about to join
 * @wait: its arguments, with MEMWAIT_OWNED
 * @waiter: its own identity
 *
 * Context: the queue's lock is held.
 *
 * Return: true: the owner is alive, or the wait names none; false: it is dead.
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
	alive = identity && memwait_queue_watch(queue, identity, waiter, true);
	rcu_read_unlock();
	if (!identity)
		smp_rmb();	/* (D) */
	return alive;
}

/**
 * memwait_names_the_dead() - does a wait name a dead owner?
 * @wait: its arguments
 *
 * Context: any but interrupts.
 *
 * Return: whether it does. An id that was never given counts as dead.
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
	dead = !identity || smp_load_acquire(&identity->dead);	/* (D) */
	rcu_read_unlock();
	if (!identity)
		smp_rmb();	/* (D) */
	return dead;
}

/**
 * memwait_own_identity() - find the identity of a waiter with MEMWAIT_OWNED
 * @flags: of the wait
 * @context: of an async wait; %NULL: the current thread waits
 * @identity: set to the identity; to %NULL without MEMWAIT_OWNED
 *
 * Context: process context.
 *
 * Return: 0; -EPERM: it has no id; -EOPNOTSUPP: this kernel does not report deaths.
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

/* No thread has an id, and no context exists. */
void memwait_identity_exit(void)
{
	xa_destroy(&memwait_identities);
}
