// SPDX-License-Identifier: GPL-2.0-only
/*
 * Contexts: async waits, their deadlines, and the completions that read(2) returns. async.pml is a
 * model of it.
 *
 * One lock per context, memwait_context.lock, protects the context and the state of each of its
 * waits. It nests inside the lock of a queue. A wait passes through
 *
 *	MEMWAIT_ARMING -> MEMWAIT_QUEUED -> MEMWAIT_CLAIMED -> MEMWAIT_COMPLETED -> retired by read
 *	     |                                   |                  ^
 *	     +-> retired, not queued             +-> retired by     |
 *	     |                                       cancel, close  |
 *	     +-> a group that was notified while it joined ---------+
 *
 * Whoever moves it from QUEUED to CLAIMED, under the lock, ends the wait and nobody else does:
 *
 *	notify	 holds the queue's lock too: takes it out of the queue and completes it in one step
 *	deadline memwait_expire() claims some, takes them out of their queues, completes them
 *	cancel	 claims it, takes it out, retires it; if a deadline has claimed it, waits until it
 *		 is completed, so that ENOENT says that the completion is there
 *	close	 as cancel, for all; then passes on what was completed with OK and never read
 *
 * The memory of a completion is that of its wait, so a notify needs none. A wait that is retired is
 * freed, or, some of them for each context, kept with its index for the next wait, which makes no
 * difference to anybody: none but its context knows of it any more.
 *
 * A group (see group.h) is one wait with several members. A notify may come while they are still
 * joining: it claims the group by memwait_async_group.claimed, and who arms the group completes it
 * when done. Once the group is QUEUED, the notify completes it at once, and takes the other members
 * out after it has dropped its own queue's lock. By then the completion may have been read: whoever
 * frees a group takes its members out as well, whichever of the two is first, and frees it a grace
 * period later.
 *
 * poll against a completion:
 *
 *	poll					notify, deadline
 *	add to context->pollers (its lock)	add to context->completed
 *	load context->nr_completed		wake_up(&context->pollers) (its lock)
 *
 * Either poll was first, and is woken, or its load comes after the store, by the lock of pollers.
 * A waker that has left the context's lock holds no reference to the context: it stays in an RCU
 * read-side section until it has woken the pollers, and the context is freed a grace period after
 * its close.
 *
 * A notify wakes a context once, for all the completions that it has made, and holds no lock then:
 * as many pollers as somebody likes may be registered with it. It remembers some contexts on its
 * stack, and chains further ones by memwait_context.owed. That has room for one notify, which is
 * named by .owed_by, and takes its name away, under the context's lock, before it wakes. Whoever
 * finds another one there wakes at once, lest he have to wait until that one runs; but only so many
 * times, and then leaves it to that one, whose wake-up comes after the completions of both.
 */
#include <linux/fs.h>
#include <linux/generic-radix-tree.h>
#include <linux/hrtimer.h>
#include <linux/mutex.h>
#include <linux/nospec.h>
#include <linux/poll.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timerqueue.h>
#include <linux/uaccess.h>
#include <linux/uio.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "compat.h"
#include "group.h"
#include "memwait.h"

/*
 * An id is the wait's index in context->slots in the low bits, and how many waits the context had
 * seen in the others: it comes again after 2^40 waits. Index 0 is not used, nor is id 0.
 */
#define MEMWAIT_ID_INDEX_BITS	24
#define MEMWAIT_ID_INDEX_MASK	((1UL << MEMWAIT_ID_INDEX_BITS) - 1)

/* A table of more slots than these is given back when none is used. */
#define MEMWAIT_KEPT_SLOTS	4096

/* Retired waits of each kind that a context keeps, at most. */
#define MEMWAIT_MAX_SPARES	256

/* One deadline queue for each clock. */
enum { MEMWAIT_MONOTONIC, MEMWAIT_REALTIME, MEMWAIT_CLOCKS };

/* Expired waits that are taken out, or completions that are read, between two lockings. */
#define MEMWAIT_CHUNK	16

enum memwait_state {
	MEMWAIT_ARMING,		/* has an index; not in a queue yet */
	MEMWAIT_QUEUED,		/* pending */
	MEMWAIT_CLAIMED,	/* ended, by the one who claimed it */
	MEMWAIT_COMPLETED,	/* in context->completed */
	MEMWAIT_SPARE,		/* in context->spares, with its index and a former id */
};

/**
 * struct memwait_user - what the contexts of one user share
 * @uid: the user
 * @contexts: how many contexts there are; protected by memwait_users_lock
 * @waits: how many async waits they have, until cancelled or read
 */
struct memwait_user {
	kuid_t uid;
	unsigned int contexts;
	atomic_long_t waits;
};

/*
 * A table of waits by their index, protected by the context's lock. A slot that is free, and was
 * used before, has the index of the next such slot, or 0, made odd, which no pointer is.
 *
 * It grows without the context's lock, as that needs memory, and by one thread at a time: kernels
 * before 6.11 corrupt a tree that several extend. What is there already does not change by that.
 */
struct memwait_slots {
	GENRADIX(unsigned long)tree;
	u32 free;	/* the first free one that was used before, or 0 */
	u32 used;	/* how many hold a wait, spares included */
	u32 nr;		/* the highest index that was ever used */
	struct mutex growing;	/* outside of the context's lock */
};

/**
 * struct memwait_spares - retired waits that a context keeps, by &memwait_async_wait.next_spare
 * @first: the last one that was retired
 * @nr: how many
 */
struct memwait_spares {
	struct memwait_async_wait *first;
	unsigned int nr;
};

/**
 * struct memwait_context - an open file of /dev/memwait
 * @lock: protects all up to @owed_by
 * @slots: index -> struct memwait_async_wait, and how to make it larger
 * @completed: ended waits in the order of their ending, by &memwait_waiter.node; only a reader,
 *	who holds @read_lock, takes them from the head, or puts them back there
 * @nr_pending: how many are in a queue, and not claimed
 * @nr_completed: length of @completed; poll and read look at it without the lock
 * @nr_armed: for the ids
 * @spares: of waits without a deadline, and with one
 * @deadlines: waits with a deadline, the earliest first
 * @timers: run at the earliest of @deadlines, or before
 * @closing: @timers are not to be started again
 * @owed_by: the notify that has chained the context, and is going to wake @pollers; or %NULL
 * @owed: in memwait_wakes.more_contexts of @owed_by, and nobody else's
 * @expire_work: ends the waits whose deadline has passed; queued by @timers
 * @pollers: readers and pollers
 * @read_lock: one reader at a time, so that a fault cannot lose or reorder completions
 * @user: who opened it, and is charged
 * @rcu: see the top of the file
 */
struct memwait_context {
	spinlock_t lock;	/* see the top of the file */
	struct memwait_slots slots;
	struct list_head completed;
	unsigned int nr_pending;
	unsigned int nr_completed;
	u64 nr_armed;
	struct memwait_spares spares[2];
	struct timerqueue_head deadlines[MEMWAIT_CLOCKS];
	struct hrtimer timers[MEMWAIT_CLOCKS];
	bool closing;
	struct memwait_wakes *owed_by;

	struct list_head owed;
	struct work_struct expire_work;
	wait_queue_head_t pollers;
	struct mutex read_lock;		/* outside of all others */
	struct memwait_user *user;
	struct rcu_head rcu;
};

/**
 * struct memwait_async_wait - an async wait, and later its completion
 * @waiter: its entry in the queue; later in the context's list of completions
 * @context: where it was armed
 * @user_data: for the completion
 * @next_spare: in the context's list of spares
 * @id: for the completion and for cancel; 0: it has no index yet
 * @result: of the completion
 * @state: an enum memwait_state; protected by the context's lock
 * @realtime: which of the context's deadline queues it is in
 * @timed: it has a deadline, and is embedded in a struct memwait_timed_wait
 * @grouped: it is embedded in a struct memwait_async_group
 */
struct memwait_async_wait {
	struct memwait_waiter waiter;
	struct memwait_context *context;
	union {
		u64 user_data;
		struct memwait_async_wait *next_spare;
	};
	u64 id;
	s32 result;
	u8 state;
	bool realtime;
	bool timed;
	bool grouped;
};

/**
 * struct memwait_timed_wait - an async wait with a deadline
 * @wait: the wait
 * @deadline: in the context's queue of deadlines while the wait is pending
 */
struct memwait_timed_wait {
	struct memwait_async_wait wait;
	struct timerqueue_node deadline;
};

/**
 * struct memwait_async_group - an async wait on several words
 * @timed: the wait, with a deadline or not; its waiter is in no queue
 * @rcu: see the top of the file
 * @woken: in memwait_wakes.groups of the notify that has claimed it
 * @nr: how many words
 * @claimed: the member that was notified, or %NULL; or MEMWAIT_CLAIMED_BY_ITSELF while it leaves
 *	because it could not join; protected by the context's lock
 * @members: one for each word
 */
struct memwait_async_group {
	struct memwait_timed_wait timed;
	struct rcu_head rcu;
	struct list_head woken;
	u32 nr;
	struct memwait_member *claimed;
	struct memwait_member members[];
};

unsigned long memwait_max_user_waits = 1UL << 20;

static DEFINE_MUTEX(memwait_users_lock);
static DEFINE_XARRAY(memwait_users);	/* uid -> struct memwait_user */
static unsigned int memwait_nr_contexts;	/* protected by memwait_users_lock */

static struct kmem_cache *memwait_async_cache;
static struct kmem_cache *memwait_timed_cache;
static struct workqueue_struct *memwait_expire_queue;

static struct memwait_async_wait *to_async(struct memwait_waiter *waiter)
{
	return container_of(waiter, struct memwait_async_wait, waiter);
}

static struct timerqueue_node *memwait_deadline(struct memwait_async_wait *wait)
{
	return &container_of(wait, struct memwait_timed_wait, wait)->deadline;
}

static struct memwait_async_group *to_group(struct memwait_async_wait *wait)
{
	return container_of(wait, struct memwait_async_group, timed.wait);
}

/* Users */

static struct memwait_user *memwait_user_get(kuid_t uid)
{
	struct memwait_user *user, *new;

	/* Without the lock: it may take as long as the caller's memory cgroup has it. */
	new = kzalloc(sizeof(*new), MEMWAIT_GFP);
	if (!new)
		return NULL;
	new->uid = uid;

	mutex_lock(&memwait_users_lock);
	user = xa_load(&memwait_users, __kuid_val(uid));
	/* Not charged: other users are in it, too. */
	if (!user && !xa_err(xa_store(&memwait_users, __kuid_val(uid), new, GFP_KERNEL)))
		swap(user, new);
	if (user) {
		user->contexts++;
		memwait_nr_contexts++;
	}
	mutex_unlock(&memwait_users_lock);
	kfree(new);
	return user;
}

/* Returns whether there are no contexts any more. */
static bool memwait_user_put(struct memwait_user *user)
{
	bool last;

	mutex_lock(&memwait_users_lock);
	if (!--user->contexts) {
		WARN_ON_ONCE(atomic_long_read(&user->waits));
		xa_erase(&memwait_users, __kuid_val(user->uid));
		kfree(user);
	}
	last = !--memwait_nr_contexts;
	mutex_unlock(&memwait_users_lock);
	return last;
}

unsigned long memwait_context_user_waits(struct memwait_context *context)
{
	return atomic_long_read(&context->user->waits);
}

/* Waits */

/* How many waits it counts as. */
static u32 memwait_async_words(struct memwait_async_wait *wait)
{
	return wait->grouped ? to_group(wait)->nr : 1;
}

/* Counts a wait against the limit of its user. */
static int memwait_async_charge(struct memwait_async_wait *wait)
{
	struct memwait_user *user = wait->context->user;
	u32 words = memwait_async_words(wait);

	if (atomic_long_add_return(words, &user->waits) > READ_ONCE(memwait_max_user_waits)) {
		atomic_long_sub(words, &user->waits);
		return -ENOSPC;
	}
	return 0;
}

static void memwait_async_uncharge(struct memwait_async_wait *wait)
{
	atomic_long_sub(memwait_async_words(wait), &wait->context->user->waits);
}

static_assert(offsetof(struct memwait_timed_wait, wait) == 0);
static_assert(offsetof(struct memwait_async_group, timed) == 0);

/* Frees the memory of a wait that is not counted any more. */
static void memwait_async_free(struct memwait_async_wait *wait)
{
	if (wait->grouped)
		kfree_rcu(to_group(wait), rcu);
	else
		kmem_cache_free(wait->timed ? memwait_timed_cache : memwait_async_cache, wait);
}

/* Takes a claimed wait out of its queue, or queues. */
static void memwait_async_leave(struct memwait_async_wait *wait)
{
	if (wait->grouped)
		memwait_group_leave(to_group(wait)->members, to_group(wait)->nr);
	else
		memwait_queue_leave(&wait->waiter);
}

/*
 * Gives all back that an ended wait has, but its index. It may be in queues still: whoever notified
 * a group may be about to take its other members out.
 */
static void memwait_async_release(struct memwait_async_wait *wait)
{
	memwait_async_leave(wait);
	if (wait->grouped)
		memwait_group_put(to_group(wait)->members, to_group(wait)->nr);
	else
		memwait_word_put(&wait->waiter.word);
	memwait_async_uncharge(wait);
}

/* The word by which a wait was notified. */
static const struct memwait_word *memwait_async_word(struct memwait_async_wait *wait)
{
	return wait->grouped ? &to_group(wait)->claimed->waiter.word : &wait->waiter.word;
}

/* The wait that has an index, or NULL. */
static struct memwait_async_wait *memwait_async_find(struct memwait_context *context, u32 index)
{
	struct memwait_slots *slots = &context->slots;
	unsigned long slot = 0;

	lockdep_assert_held(&context->lock);
	/* In a cancel it comes from user space: nothing beyond is to be read speculatively. */
	if (index && index <= slots->nr)
		slot = *genradix_ptr(&slots->tree, array_index_nospec(index, slots->nr + 1));
	return slot & 1 ? NULL : (struct memwait_async_wait *)slot;
}

/* Takes the index away from a wait. */
static void memwait_async_erase(struct memwait_async_wait *wait)
{
	struct memwait_slots *slots = &wait->context->slots;
	u32 index = wait->id & MEMWAIT_ID_INDEX_MASK;

	lockdep_assert_held(&wait->context->lock);
	*genradix_ptr(&slots->tree, index) = (unsigned long)slots->free << 1 | 1;
	slots->free = index;
	slots->used--;
}

/* Whether there is something to give back. */
static bool memwait_slots_idle(struct memwait_context *context)
{
	lockdep_assert_held(&context->lock);
	return context->slots.nr > MEMWAIT_KEPT_SLOTS &&
	       context->slots.used == context->spares[false].nr + context->spares[true].nr;
}

static void memwait_spares_free(struct memwait_spares *spares)
{
	struct memwait_async_wait *wait;

	while ((wait = spares->first)) {
		spares->first = wait->next_spare;
		memwait_async_free(wait);
	}
}

/* Gives the table's memory back, unless it has come into use again. */
static void memwait_slots_trim(struct memwait_context *context)
{
	struct memwait_slots *slots = &context->slots;
	struct memwait_spares spares[2] = {};
	typeof(slots->tree) idle;

	genradix_init(&idle);
	mutex_lock(&slots->growing);
	spin_lock(&context->lock);
	if (memwait_slots_idle(context)) {
		swap(context->spares[false], spares[false]);
		swap(context->spares[true], spares[true]);
		swap(slots->tree, idle);
		slots->free = 0;
		slots->used = 0;
		slots->nr = 0;
	}
	spin_unlock(&context->lock);
	mutex_unlock(&slots->growing);
	genradix_free(&idle);
	memwait_spares_free(&spares[false]);
	memwait_spares_free(&spares[true]);
}

/* Returns whether a wait that is retired is kept; if not, the caller is to free it. */
static bool memwait_async_keep(struct memwait_async_wait *wait)
{
	struct memwait_spares *spares = &wait->context->spares[wait->timed];

	lockdep_assert_held(&wait->context->lock);
	if (wait->grouped || spares->nr == MEMWAIT_MAX_SPARES) {
		memwait_async_erase(wait);
		return false;
	}
	WRITE_ONCE(wait->state, MEMWAIT_SPARE);
	wait->next_spare = spares->first;
	spares->first = wait;
	spares->nr++;
	return true;
}

/* Retires waits that have nothing any more but an index, and frees those that are not kept. */
static void memwait_async_retire_some(struct memwait_context *context,
				      struct memwait_async_wait **waits, unsigned int nr)
{
	unsigned int i;
	bool idle;

	spin_lock(&context->lock);
	for (i = 0; i < nr; i++) {
		if (memwait_async_keep(waits[i]))
			waits[i] = NULL;
	}
	idle = memwait_slots_idle(context);
	spin_unlock(&context->lock);
	for (i = 0; i < nr; i++) {
		if (waits[i])
			memwait_async_free(waits[i]);
	}
	if (idle)
		memwait_slots_trim(context);
}

/* Retires a wait, which may have no index yet. */
static void memwait_async_retire(struct memwait_async_wait *wait)
{
	if (wait->id)
		memwait_async_retire_some(wait->context, &wait, 1);
	else
		memwait_async_free(wait);
}

/* Whoever gets true has ended the wait, and takes it on from there. */
static bool memwait_async_claim(struct memwait_async_wait *wait)
{
	struct memwait_context *context = wait->context;

	lockdep_assert_held(&context->lock);
	if (wait->state != MEMWAIT_QUEUED)
		return false;
	WRITE_ONCE(wait->state, MEMWAIT_CLAIMED);
	context->nr_pending--;
	if (wait->timed)
		timerqueue_del(&context->deadlines[wait->realtime], memwait_deadline(wait));
	return true;
}

/* Turns a claimed wait, which is in no queue, into a completion. */
static void memwait_async_complete(struct memwait_async_wait *wait, s32 result)
{
	struct memwait_context *context = wait->context;

	lockdep_assert_held(&context->lock);
	WRITE_ONCE(wait->state, MEMWAIT_COMPLETED);
	wait->result = result;
	list_add_tail(&wait->waiter.node, &context->completed);
	WRITE_ONCE(context->nr_completed, context->nr_completed + 1);
}

/* From now on it is pending. */
static void memwait_async_queued(struct memwait_async_wait *wait)
{
	struct memwait_context *context = wait->context;

	lockdep_assert_held(&context->lock);
	WRITE_ONCE(wait->state, MEMWAIT_QUEUED);
	context->nr_pending++;
	if (wait->timed) {
		struct timerqueue_node *deadline = memwait_deadline(wait);

		if (timerqueue_add(&context->deadlines[wait->realtime], deadline))
			hrtimer_start(&context->timers[wait->realtime], deadline->expires,
				      HRTIMER_MODE_ABS);
	}
}

static void memwait_async_joined(struct memwait_waiter *waiter)
{
	struct memwait_async_wait *wait = to_async(waiter);
	struct memwait_context *context = wait->context;

	spin_lock(&context->lock);
	memwait_async_queued(wait);
	spin_unlock(&context->lock);
}

/* Not inline: it is rare. */
static noinline void memwait_wakes_add_more(struct memwait_wakes *wakes,
					    struct memwait_context *context)
{
	struct memwait_wakes *owed_by;

	spin_lock(&context->lock);
	owed_by = context->owed_by;
	if (!owed_by) {
		context->owed_by = wakes;
		list_add_tail(&context->owed, &wakes->more_contexts);
	}
	spin_unlock(&context->lock);
	if (owed_by && owed_by != wakes && wakes->nr_at_once < MEMWAIT_WAKES_AT_ONCE) {
		wakes->nr_at_once++;
		memwait_context_wake(context);
	}
}

/* Remembers to wake a context that has got a completion. */
static void memwait_wakes_add(struct memwait_wakes *wakes, struct memwait_context *context)
{
	unsigned int i;

	for (i = 0; i < wakes->nr_contexts; i++) {
		if (wakes->contexts[i] == context)
			return;
	}
	if (i < MEMWAIT_WAKES_CONTEXTS)
		wakes->contexts[wakes->nr_contexts++] = context;
	else
		memwait_wakes_add_more(wakes, context);
}

static bool memwait_async_wake(struct memwait_waiter *waiter, struct memwait_wakes *wakes)
{
	struct memwait_async_wait *wait = to_async(waiter);
	struct memwait_context *context = wait->context;

	spin_lock(&context->lock);
	if (!memwait_async_claim(wait)) {
		spin_unlock(&context->lock);
		return false;
	}
	memwait_queue_remove(waiter);
	memwait_async_complete(wait, MEMWAIT_OK);
	spin_unlock(&context->lock);

	memwait_wakes_add(wakes, context);
	return true;
}

static bool memwait_async_is_pending(const struct memwait_waiter *waiter)
{
	const struct memwait_async_wait *wait =
		container_of(waiter, struct memwait_async_wait, waiter);

	return READ_ONCE(wait->state) == MEMWAIT_QUEUED;
}

static const struct memwait_waiter_ops memwait_async_ops = {
	.joined = memwait_async_joined,
	.wake = memwait_async_wake,
	.is_pending = memwait_async_is_pending,
};

static bool memwait_async_group_wake(struct memwait_waiter *waiter, struct memwait_wakes *wakes)
{
	struct memwait_member *member = to_member(waiter);
	struct memwait_async_group *group = member->owner;
	struct memwait_async_wait *wait = &group->timed.wait;
	struct memwait_context *context = wait->context;
	bool completed, claimed;

	spin_lock(&context->lock);
	completed = memwait_async_claim(wait);
	claimed = completed || (wait->state == MEMWAIT_ARMING && !group->claimed);
	if (claimed) {
		WRITE_ONCE(group->claimed, member);
		memwait_queue_remove(waiter);
	}
	if (completed) {
		memwait_async_complete(wait, MEMWAIT_OK);
		list_add_tail(&group->woken, &wakes->groups);
	}
	spin_unlock(&context->lock);

	if (completed)
		memwait_wakes_add(wakes, context);
	return claimed;
}

static bool memwait_async_group_is_pending(const struct memwait_waiter *waiter)
{
	const struct memwait_async_group *group = to_member(waiter)->owner;

	return READ_ONCE(group->timed.wait.state) <= MEMWAIT_QUEUED && !READ_ONCE(group->claimed);
}

static const struct memwait_waiter_ops memwait_async_group_ops = {
	.wake = memwait_async_group_wake,
	.is_pending = memwait_async_group_is_pending,
};

/**
 * memwait_leave_groups() - take the other members of claimed groups out of their queues
 * @groups: the groups, by &memwait_async_group.woken
 *
 * Context: within the RCU read-side section in which they were claimed; no queue's lock is held.
 */
void memwait_leave_groups(struct list_head *groups)
{
	struct memwait_async_group *group, *next;

	list_for_each_entry_safe(group, next, groups, woken)
		memwait_group_leave(group->members, group->nr);
}

/**
 * memwait_context_wake() - wake the readers and pollers of a context
 * @context: may be closed already
 *
 * Context: within the RCU read-side section in which a completion was made, or with something
 * else that keeps @context.
 */
void memwait_context_wake(struct memwait_context *context)
{
	wake_up_poll(&context->pollers, EPOLLIN | EPOLLRDNORM);
}

/**
 * memwait_wake_owed() - wake the readers and pollers of chained contexts
 * @contexts: of the caller's struct memwait_wakes; nothing of it is valid any more afterwards
 *
 * Context: within the RCU read-side section in which completions were made; no queue's lock is
 * held.
 */
void memwait_wake_owed(struct list_head *contexts)
{
	struct memwait_context *context, *next;

	list_for_each_entry_safe(context, next, contexts, owed) {
		spin_lock(&context->lock);
		context->owed_by = NULL;	/* from now on others may chain it */
		spin_unlock(&context->lock);
		memwait_context_wake(context);
	}
}

/* Deadlines */

static enum hrtimer_restart memwait_timer_fired(struct memwait_context *context)
{
	/* An interrupt must take no lock of ours: the rest is done in process context. */
	queue_work(memwait_expire_queue, &context->expire_work);
	return HRTIMER_NORESTART;
}

static enum hrtimer_restart memwait_monotonic_fired(struct hrtimer *timer)
{
	return memwait_timer_fired(container_of(timer, struct memwait_context,
						timers[MEMWAIT_MONOTONIC]));
}

static enum hrtimer_restart memwait_realtime_fired(struct hrtimer *timer)
{
	return memwait_timer_fired(container_of(timer, struct memwait_context,
						timers[MEMWAIT_REALTIME]));
}

/* Claims some waits whose deadline has passed; if there are fewer, starts the timer anew. */
static unsigned int memwait_claim_expired(struct memwait_context *context, int clock, ktime_t now,
					  struct memwait_async_wait **expired)
{
	struct timerqueue_node *next;
	unsigned int nr = 0;

	spin_lock(&context->lock);
	while (nr < MEMWAIT_CHUNK) {
		next = timerqueue_getnext(&context->deadlines[clock]);
		if (!next)
			break;
		if (next->expires > now) {
			if (!context->closing)
				hrtimer_start(&context->timers[clock], next->expires,
					      HRTIMER_MODE_ABS);
			break;
		}
		expired[nr] = &container_of(next, struct memwait_timed_wait, deadline)->wait;
		memwait_async_claim(expired[nr]);
		nr++;
	}
	spin_unlock(&context->lock);
	return nr;
}

static void memwait_expire(struct work_struct *work)
{
	struct memwait_context *context =
		container_of(work, struct memwait_context, expire_work);
	struct memwait_async_wait *expired[MEMWAIT_CHUNK];
	unsigned int nr, i;
	int clock;

	for (clock = 0; clock < MEMWAIT_CLOCKS; clock++) {
		do {
			ktime_t now = clock == MEMWAIT_REALTIME ? ktime_get_real() : ktime_get();

			nr = memwait_claim_expired(context, clock, now, expired);
			if (!nr)
				break;
			for (i = 0; i < nr; i++)
				memwait_async_leave(expired[i]);

			spin_lock(&context->lock);
			for (i = 0; i < nr; i++)
				memwait_async_complete(expired[i], MEMWAIT_TIMED_OUT);
			spin_unlock(&context->lock);
			memwait_context_wake(context);
			cond_resched();
		} while (nr == MEMWAIT_CHUNK);
	}
}

/* MEMWAIT_IOC_WAIT_ASYNC */

static void memwait_async_set_id(struct memwait_async_wait *wait, u32 index)
{
	wait->id = ++wait->context->nr_armed << MEMWAIT_ID_INDEX_BITS | index;
}

/* Gives the wait a slot, and its id. */
static int memwait_async_number(struct memwait_async_wait *wait)
{
	struct memwait_context *context = wait->context;
	struct memwait_slots *slots = &context->slots;
	unsigned long *slot;
	u32 index;

	for (;;) {
		spin_lock(&context->lock);
		index = slots->free ?: slots->nr + 1;
		/* The table may be growing: this slot is there by now, or it is not. */
		slot = data_race(genradix_ptr(&slots->tree, index));
		if (slot)
			break;
		spin_unlock(&context->lock);
		if (index > MEMWAIT_ID_INDEX_MASK)
			return -ENOSPC;
		mutex_lock(&slots->growing);
		slot = genradix_ptr_alloc(&slots->tree, index, MEMWAIT_GFP);
		mutex_unlock(&slots->growing);
		if (!slot)
			return -ENOMEM;
	}
	slots->used++;
	if (slots->free)
		slots->free = *slot >> 1;
	else
		slots->nr = index;
	*slot = (unsigned long)wait;
	memwait_async_set_id(wait, index);
	spin_unlock(&context->lock);
	return 0;
}

/* Tells user space what became of an entry: id, result and index stand side by side. */
static int memwait_async_report(struct memwait_async __user *entry, const struct memwait_async *arg)
{
	if (put_user(arg->id, &entry->id) || put_user(arg->result, &entry->result))
		return -EFAULT;
	/* Of a single wait it is reserved. */
	if ((arg->wait.flags & MEMWAIT_GROUP) && put_user(arg->index, &entry->index))
		return -EFAULT;
	return 0;
}

/*
 * Gives a wait all that it needs before it is queued: it is counted, has an id, and the user's copy
 * says PENDING, for afterwards it would be too late to find that it cannot be written. Returns 0 or
 * a negative errno; then the wait is not counted, and the caller is to retire it.
 */
static int memwait_async_announce(struct memwait_async_wait *wait, struct memwait_async *arg,
				  struct memwait_async __user *entry)
{
	int err;

	err = memwait_async_charge(wait);
	if (err)
		return err;
	if (!wait->id)
		err = memwait_async_number(wait);
	if (!err) {
		arg->id = wait->id;
		arg->result = MEMWAIT_PENDING;
		err = memwait_async_report(entry, arg);
	}
	if (err)
		memwait_async_uncharge(wait);
	return err;
}

/* What does not change while a wait is used again and again; it has no index. */
static void memwait_async_construct(struct memwait_async_wait *wait,
				    struct memwait_context *context, bool timed, bool grouped)
{
	wait->context = context;
	wait->id = 0;
	wait->state = MEMWAIT_ARMING;
	wait->timed = timed;
	wait->grouped = grouped;
}

static void memwait_async_init_wait(struct memwait_async_wait *wait,
				    const struct memwait_async *arg, ktime_t expires)
{
	wait->user_data = arg->user_data;
	wait->realtime = arg->wait.flags & MEMWAIT_CLOCK_REALTIME;
	wait->waiter.queue = NULL;
	if (wait->timed) {
		timerqueue_init(memwait_deadline(wait));
		memwait_deadline(wait)->expires = expires;
	}
}

/* A wait on one word: a spare one, which has an id, or a new one, or %NULL. */
static struct memwait_async_wait *memwait_async_alloc(struct memwait_context *context, bool timed)
{
	struct memwait_spares *spares = &context->spares[timed];
	struct memwait_async_wait *wait;

	spin_lock(&context->lock);
	wait = spares->first;
	if (wait) {
		spares->first = wait->next_spare;
		spares->nr--;
		memwait_async_set_id(wait, wait->id & MEMWAIT_ID_INDEX_MASK);
		WRITE_ONCE(wait->state, MEMWAIT_ARMING);
	}
	spin_unlock(&context->lock);
	if (wait)
		return wait;

	wait = kmem_cache_alloc(timed ? memwait_timed_cache : memwait_async_cache, MEMWAIT_GFP);
	if (wait)
		memwait_async_construct(wait, context, timed, false);
	return wait;
}

/*
 * Arms one wait on one word. Returns an outcome or a negative errno; only after MEMWAIT_PENDING
 * nothing needs to be reported any more.
 */
static int memwait_async_arm(struct memwait_context *context, struct memwait_async *arg,
			     struct memwait_async __user *entry)
{
	struct memwait_async_wait *wait = NULL;
	struct memwait_word word;
	ktime_t expires;
	int ret;

	if (arg->reserved)
		return -EINVAL;
	ret = memwait_check_wait(&arg->wait, MEMWAIT_WAIT_FLAGS);
	if (ret)
		return ret;
	expires = memwait_expires(arg->wait.deadline, arg->wait.flags);

	do {
		ret = memwait_word_get(&word, arg->wait.addr, arg->wait.flags);
		if (ret)
			break;
		ret = memwait_compare(arg->wait.addr, arg->wait.expected, arg->wait.flags);
		if (!ret && memwait_has_passed(expires, arg->wait.flags))
			ret = MEMWAIT_TIMED_OUT;
		if (ret)
			goto put_word;

		if (!wait) {
			wait = memwait_async_alloc(context, expires != KTIME_MAX);
			if (!wait) {
				ret = -ENOMEM;
				goto put_word;
			}
			memwait_async_init_wait(wait, arg, expires);
			wait->waiter.ops = &memwait_async_ops;
			ret = memwait_async_announce(wait, arg, entry);
			if (ret) {
				memwait_async_retire(wait);
				wait = NULL;
				goto put_word;
			}
		}

		memwait_word_keep(&word);
		wait->waiter.word = word;
		ret = memwait_queue_join(&wait->waiter, &arg->wait, MEMWAIT_GFP);
		if (!ret)
			return MEMWAIT_PENDING;	/* by now others may have ended and freed it */
put_word:
		memwait_word_put(&word);
		ret = memwait_queue_retry(ret);
	} while (ret == -EAGAIN);

	if (wait) {
		memwait_async_uncharge(wait);
		memwait_async_retire(wait);
	}
	return ret;
}

/*
 * Puts the members of an announced group into their queues. Returns MEMWAIT_PENDING if the group is
 * pending, or has been notified on the way: then it has its completion. Otherwise what
 * memwait_group_join() says, and the group is in no queue.
 */
static int memwait_async_group_join(struct memwait_async_group *group,
				    const struct memwait_wait *waits, u32 *index)
{
	struct memwait_async_wait *wait = &group->timed.wait;
	struct memwait_context *context = wait->context;
	bool notified;
	int ret;

	ret = memwait_group_join(group->members, waits, group->nr, MEMWAIT_GFP, index);

	spin_lock(&context->lock);
	notified = group->claimed;
	if (!ret && !notified)
		memwait_async_queued(wait);
	else if (!notified)
		WRITE_ONCE(group->claimed, MEMWAIT_CLAIMED_BY_ITSELF);
	spin_unlock(&context->lock);
	if (!ret && !notified)
		return MEMWAIT_PENDING;		/* by now others may have ended and freed it */

	memwait_group_leave(group->members, group->nr);
	if (!notified)
		return ret;

	spin_lock(&context->lock);
	memwait_async_complete(wait, MEMWAIT_OK);
	spin_unlock(&context->lock);
	memwait_context_wake(context);
	return MEMWAIT_PENDING;
}

/* As memwait_async_arm(), for a group. @arg gets the index of a word that is not equal. */
static int memwait_async_arm_group(struct memwait_context *context, struct memwait_async *arg,
				   struct memwait_async __user *entry)
{
	struct memwait_async_group *group;
	struct memwait_wait *waits;
	bool announced = false;
	ktime_t expires;
	u32 nr, i;
	int ret;

	arg->index = 0;
	if ((arg->wait.flags & ~(MEMWAIT_GROUP | MEMWAIT_CLOCK_REALTIME)) || arg->wait.reserved)
		return -EINVAL;
	if (!arg->wait.expected || arg->wait.expected > MEMWAIT_GROUP_MAX)
		return -EINVAL;
	nr = arg->wait.expected;

	waits = kmalloc_array(nr, sizeof(*waits), MEMWAIT_GFP);
	group = kmalloc(struct_size(group, members, nr), MEMWAIT_GFP);
	if (!waits || !group) {
		ret = -ENOMEM;
		goto free;
	}
	ret = memwait_group_copy(waits, arg->wait.addr, nr);
	if (ret)
		goto free;

	expires = memwait_expires(arg->wait.deadline, arg->wait.flags);
	memwait_async_construct(&group->timed.wait, context, expires != KTIME_MAX, true);
	memwait_async_init_wait(&group->timed.wait, arg, expires);
	group->nr = nr;

	do {
		ret = memwait_group_get(group->members, waits, nr);
		if (ret)
			break;
		ret = memwait_group_compare(waits, nr, &arg->index);
		if (!ret && memwait_has_passed(expires, arg->wait.flags))
			ret = MEMWAIT_TIMED_OUT;
		if (ret)
			goto put_words;

		if (!announced) {
			ret = memwait_async_announce(&group->timed.wait, arg, entry);
			if (ret)
				goto put_words;
			announced = true;
		}
		group->claimed = NULL;
		for (i = 0; i < nr; i++) {
			memwait_word_keep(&group->members[i].waiter.word);
			group->members[i].waiter.ops = &memwait_async_group_ops;
			group->members[i].waiter.queue = NULL;
			group->members[i].owner = group;
		}
		ret = memwait_async_group_join(group, waits, &arg->index);
		if (ret == MEMWAIT_PENDING) {
			kfree(waits);
			return ret;
		}
put_words:
		memwait_group_put(group->members, nr);
		ret = memwait_queue_retry(ret);
	} while (ret == -EAGAIN);

	if (announced)
		memwait_async_uncharge(&group->timed.wait);
	memwait_async_retire(&group->timed.wait);
	group = NULL;
free:
	kfree(group);
	kfree(waits);
	return ret;
}

/**
 * memwait_wait_async() - MEMWAIT_IOC_WAIT_ASYNC
 * @context: the caller's
 * @batch: as it came from user space
 *
 * Context: process context, may sleep, never waits for a word.
 *
 * Return: how many entries were processed, or a negative errno if the first one failed.
 */
int memwait_wait_async(struct memwait_context *context, const struct memwait_wait_async *batch)
{
	struct memwait_async __user *entries = u64_to_user_ptr(batch->waits);
	struct memwait_async arg __uninitialized;
	u32 i;
	int ret;

	if (batch->flags || batch->count > INT_MAX)
		return -EINVAL;

	for (i = 0; i < batch->count; i++) {
		if (copy_from_user(&arg, &entries[i], sizeof(arg)))
			return i ?: -EFAULT;

		if (arg.wait.flags & MEMWAIT_GROUP)
			ret = memwait_async_arm_group(context, &arg, &entries[i]);
		else
			ret = memwait_async_arm(context, &arg, &entries[i]);
		if (ret != MEMWAIT_PENDING) {
			arg.id = 0;
			arg.result = ret;
			if (ret != MEMWAIT_NOT_EQUAL)
				arg.index = 0;
			if (memwait_async_report(&entries[i], &arg))
				ret = -EFAULT;
		}
		if (ret < 0)
			return i ?: ret;

		if (memwait_is_killed())
			return i + 1;
		cond_resched();
	}
	return i;
}

/**
 * memwait_cancel() - MEMWAIT_IOC_CANCEL
 * @context: the caller's
 * @cancel: as it came from user space
 *
 * Context: process context, may sleep.
 *
 * Return: 0: there will be no completion; -ENOENT: the wait has ended, and its completion can be
 * read, or was read, or the wait never was; -EINVAL.
 */
int memwait_cancel(struct memwait_context *context, const struct memwait_cancel *cancel)
{
	struct memwait_async_wait *wait;
	bool claimed = false, expiring = false;

	if (cancel->flags || cancel->reserved)
		return -EINVAL;

	spin_lock(&context->lock);
	wait = memwait_async_find(context, cancel->id & MEMWAIT_ID_INDEX_MASK);
	if (wait && wait->id == cancel->id) {
		claimed = memwait_async_claim(wait);
		/* By a deadline, or another cancel, then there is nothing to wait for. */
		expiring = !claimed && wait->state == MEMWAIT_CLAIMED;
	}
	spin_unlock(&context->lock);
	if (expiring)
		flush_work(&context->expire_work);
	if (!claimed)
		return -ENOENT;

	memwait_async_release(wait);
	memwait_async_retire(wait);
	return 0;
}

/* The file */

static int memwait_open(struct inode *inode, struct file *file)
{
	struct memwait_context *context;

	context = kzalloc(sizeof(*context), MEMWAIT_GFP);
	if (!context)
		return -ENOMEM;
	context->user = memwait_user_get(current_uid());
	if (!context->user) {
		kfree(context);
		return -ENOMEM;
	}

	spin_lock_init(&context->lock);
	genradix_init(&context->slots.tree);
	mutex_init(&context->slots.growing);
	INIT_LIST_HEAD(&context->completed);
	timerqueue_init_head(&context->deadlines[MEMWAIT_MONOTONIC]);
	timerqueue_init_head(&context->deadlines[MEMWAIT_REALTIME]);
	hrtimer_setup(&context->timers[MEMWAIT_MONOTONIC], memwait_monotonic_fired,
		      CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	hrtimer_setup(&context->timers[MEMWAIT_REALTIME], memwait_realtime_fired,
		      CLOCK_REALTIME, HRTIMER_MODE_ABS);
	INIT_WORK(&context->expire_work, memwait_expire);
	init_waitqueue_head(&context->pollers);
	mutex_init(&context->read_lock);
	file->private_data = context;
	file->f_mode |= FMODE_NOWAIT;

	/* stream_open(): without a file position, readers do not wait for each other in read(2). */
	return stream_open(inode, file);
}

static int memwait_release(struct inode *inode, struct file *file)
{
	struct memwait_context *context = file->private_data;
	struct memwait_async_wait *wait, *next;
	bool claimed;
	u32 index;

	spin_lock(&context->lock);
	context->closing = true;
	spin_unlock(&context->lock);
	hrtimer_cancel(&context->timers[MEMWAIT_MONOTONIC]);
	hrtimer_cancel(&context->timers[MEMWAIT_REALTIME]);
	cancel_work_sync(&context->expire_work);

	/* First leave every queue, lest what is passed on below come back to this context. */
	for (index = 1; index <= context->slots.nr; index++) {
		spin_lock(&context->lock);
		wait = memwait_async_find(context, index);
		claimed = wait && memwait_async_claim(wait);
		spin_unlock(&context->lock);
		if (claimed) {
			memwait_async_release(wait);
			memwait_async_free(wait);
		}
		cond_resched();
	}

	/* What was counted and never read goes on to the next waiter. */
	list_for_each_entry_safe(wait, next, &context->completed, waiter.node) {
		if (wait->result == MEMWAIT_OK)
			memwait_queue_notify(&memwait_async_word(wait)->key, 1);
		memwait_async_release(wait);
		memwait_async_free(wait);
		cond_resched();
	}

	memwait_spares_free(&context->spares[false]);
	memwait_spares_free(&context->spares[true]);
	genradix_free(&context->slots.tree);
	if (memwait_user_put(context->user))
		memwait_queue_expel_all();
	kfree_rcu(context, rcu);
	return 0;
}

/* Copies records out. Returns how many of them are there as a whole. */
static unsigned int memwait_copy_records(const struct memwait_completion *records, unsigned int nr,
					 struct iov_iter *to)
{
	size_t bytes = copy_to_iter(records, nr * sizeof(*records), to);
	unsigned int copied = bytes / sizeof(*records);

	/* Before a hole it may have copied more than it says: then one by one. */
	while (copied < nr) {
		iov_iter_revert(to, bytes % sizeof(*records));
		bytes = copy_to_iter(&records[copied], sizeof(*records), to);
		if (bytes < sizeof(*records)) {
			iov_iter_revert(to, bytes);
			break;
		}
		copied++;
	}
	return copied;
}

/*
 * Moves some of the oldest completions to the end of @taken. Copies out first: what user space did
 * not get stays where it is. Returns how many, or -EFAULT.
 */
static int memwait_read_some(struct memwait_context *context, struct iov_iter *to,
			     struct list_head *taken)
{
	struct memwait_completion records[MEMWAIT_CHUNK] __uninitialized;
	struct memwait_async_wait *wait, *waits[MEMWAIT_CHUNK] __uninitialized;
	unsigned int room = min_t(size_t, iov_iter_count(to) / sizeof(records[0]), MEMWAIT_CHUNK);
	unsigned int nr = 0;
	LIST_HEAD(copied);

	lockdep_assert_held(&context->read_lock);

	spin_lock(&context->lock);
	list_for_each_entry(wait, &context->completed, waiter.node) {
		if (nr == room)
			break;
		records[nr].user_data = wait->user_data;
		records[nr].id = wait->id;
		records[nr].result = wait->result;
		records[nr].index = 0;
		if (wait->grouped && wait->result == MEMWAIT_OK)
			records[nr].index = to_group(wait)->claimed - to_group(wait)->members;
		waits[nr++] = wait;
	}
	spin_unlock(&context->lock);
	if (!nr)
		return 0;

	nr = memwait_copy_records(records, nr, to);
	if (!nr)
		return -EFAULT;

	spin_lock(&context->lock);
	list_cut_position(&copied, &context->completed, &waits[nr - 1]->waiter.node);
	WRITE_ONCE(context->nr_completed, context->nr_completed - nr);
	spin_unlock(&context->lock);
	list_splice_tail(&copied, taken);
	return nr;
}

/* Puts back what nobody will see, for another reader, or for close to hand it on. */
static void memwait_unread(struct memwait_context *context, struct list_head *taken,
			   unsigned int nr)
{
	lockdep_assert_held(&context->read_lock);

	spin_lock(&context->lock);
	list_splice(taken, &context->completed);
	WRITE_ONCE(context->nr_completed, context->nr_completed + nr);
	spin_unlock(&context->lock);
	memwait_context_wake(context);
}

static void memwait_async_retire_all(struct memwait_context *context, struct list_head *taken)
{
	struct memwait_async_wait *wait, *next, *waits[MEMWAIT_CHUNK] __uninitialized;
	unsigned int nr = 0;

	list_for_each_entry_safe(wait, next, taken, waiter.node) {
		memwait_async_release(wait);
		waits[nr++] = wait;
		if (nr == MEMWAIT_CHUNK || list_entry_is_head(next, taken, waiter.node)) {
			memwait_async_retire_some(context, waits, nr);
			nr = 0;
			cond_resched();
		}
	}
}

/* @nowait: as @nonblocking, and does not wait for other readers' page faults either. */
static ssize_t memwait_read_to(struct memwait_context *context, struct iov_iter *to,
			       bool nonblocking, bool nowait)
{
	const size_t size = sizeof(struct memwait_completion);
	unsigned int nr = 0;
	LIST_HEAD(taken);
	bool dying;
	int ret;

	if (iov_iter_count(to) < size)
		return -EINVAL;

	for (;;) {
		if (!mutex_trylock(&context->read_lock)) {
			if (nowait)
				return -EAGAIN;
			if (mutex_lock_interruptible(&context->read_lock))
				return -ERESTARTSYS;
		}
		do {
			ret = memwait_read_some(context, to, &taken);
			if (ret <= 0)
				break;
			nr += ret;
			cond_resched();
		} while (iov_iter_count(to) >= size && !signal_pending(current));
		/* Asked after the last fault, for all that was read. */
		dying = nr && memwait_is_dying();
		if (dying)
			memwait_unread(context, &taken, nr);
		mutex_unlock(&context->read_lock);
		if (dying)
			return -ERESTARTSYS;
		if (nr) {
			memwait_async_retire_all(context, &taken);
			return nr * size;
		}
		if (ret)
			return ret;

		if (nonblocking || nowait)
			return -EAGAIN;
		/* Only the very first one is worth blocking for. */
		ret = wait_event_interruptible(context->pollers,
					       READ_ONCE(context->nr_completed));
		if (ret)
			return ret;
	}
}

/* For read(2): the kernel takes twice as many instructions to get to read_iter. */
static ssize_t memwait_read(struct file *file, char __user *buf, size_t size, loff_t *pos)
{
	struct iov_iter to;

	iov_iter_ubuf(&to, ITER_DEST, buf, size);
	return memwait_read_to(file->private_data, &to, file->f_flags & O_NONBLOCK, false);
}

/* For readv(2), whose segments are one buffer, and io_uring. */
static ssize_t memwait_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct file *file = iocb->ki_filp;

	return memwait_read_to(file->private_data, to, file->f_flags & O_NONBLOCK,
			       iocb->ki_flags & IOCB_NOWAIT);
}

static __poll_t memwait_poll(struct file *file, poll_table *table)
{
	struct memwait_context *context = file->private_data;

	poll_wait(file, &context->pollers, table);
	return READ_ONCE(context->nr_completed) ? EPOLLIN | EPOLLRDNORM : 0;
}

#ifdef CONFIG_PROC_FS
static void memwait_show_fdinfo(struct seq_file *seq, struct file *file)
{
	struct memwait_context *context = file->private_data;
	unsigned int pending, completed;

	spin_lock(&context->lock);
	pending = context->nr_pending;
	completed = context->nr_completed;
	spin_unlock(&context->lock);
	seq_printf(seq, "pending:\t%u\ncompleted:\t%u\n", pending, completed);
}
#endif

const struct file_operations memwait_fops = {
	.owner = THIS_MODULE,
	.open = memwait_open,
	.release = memwait_release,
	.read = memwait_read,
	.read_iter = memwait_read_iter,
	.poll = memwait_poll,
	.unlocked_ioctl = memwait_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
#ifdef CONFIG_PROC_FS
	.show_fdinfo = memwait_show_fdinfo,
#endif
};

int __init memwait_async_init(void)
{
	memwait_async_cache = KMEM_CACHE(memwait_async_wait, 0);
	memwait_timed_cache = KMEM_CACHE(memwait_timed_wait, 0);
	memwait_expire_queue = alloc_workqueue("memwait", WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (memwait_async_cache && memwait_timed_cache && memwait_expire_queue)
		return 0;

	memwait_async_exit();
	return -ENOMEM;
}

void memwait_async_exit(void)
{
	if (memwait_expire_queue)
		destroy_workqueue(memwait_expire_queue);
	kmem_cache_destroy(memwait_timed_cache);
	kmem_cache_destroy(memwait_async_cache);
	xa_destroy(&memwait_users);	/* what a store that failed may have left */
}
