// SPDX-License-Identifier: GPL-2.0-only
/*
 * Notify and requeue: what claims waiters, in steps, and wakes them.
 *
 * A step claims, under the queue's lock, as many waiters as struct memwait_wakes has room for. It
 * takes a reference to each thread, context and group, and has done with the waiter itself when it
 * drops the lock. What it wakes afterwards may have left its wait by then, for its deadline or by
 * SIGKILL, or may have been closed: it gets a wake-up too many, which every sleeper can bear.
 *
 * A waiter must not depend on its notifier's being scheduled. From the claim until the wake-up the
 * notifier is not preempted, therefore. With PREEMPT_RT it can be, because locks may sleep there; a
 * claimed thread then still meets its deadline and dies of SIGKILL, as a thread that futex(2) is
 * about to wake. Only the other members of a group are taken out of their queues later: until then
 * a notify passes over them. The memory of the group, which is its owner's, stays as long, although
 * the owner may have left it. So the words of groups fill a step, and a notifier that is not
 * scheduled keeps less than MEMWAIT_STEP + MEMWAIT_GROUP_MAX of them.
 *
 * A context may have any number of pollers, which are woken with interrupts disabled. So a step
 * wakes MEMWAIT_STEP of them at once, which its contexts share: the first 4 of each at least. The
 * others are woken afterwards, where the notifier may be preempted.
 *
 * Between two steps the call lets others run. It ends early only if its thread is killed: a notify
 * of all waiters that stopped for a signal would leave some asleep, and its caller could not tell.
 * A notify that belongs to a change of the word does not even end then.
 * It is bounded all the same, as it does not touch waiters that joined after it began.
 */
#include <linux/atomic.h>
#include <linux/freezer.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/poll.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "context.h"
#include "group.h"
#include "identity.h"
#include "memwait.h"
#include "trace.h"

/* What ends a call early, and what it stops for. */
enum memwait_call_kind {
	MEMWAIT_CALL,		/* SIGKILL ends it; it stops for the freezer */
	MEMWAIT_CALL_SURE,	/* it stops for the freezer */
	MEMWAIT_CALL_PASSES_ON,	/* nothing: it is for a thread or a context that has ended */
};

/**
 * struct memwait_call - how far a notify or requeue has come
 * @count: wake at most so many
 * @woken: so many were woken
 * @move: move at most so many
 * @moved: so many were moved
 * @number: waiters with a greater one have joined after the call began
 * @reached: the number of the last one that it has looked at: it goes on from there
 * @kind: what ends it early
 * @kept: as memwait_queue_unlock()
 * @wakes: of the present step
 */
struct memwait_call {
	u32 count;
	u32 woken;
	u32 move;
	u32 moved;
	u64 number;
	u64 reached;
	enum memwait_call_kind kind;
	struct memwait_kept_queues *kept;
	struct memwait_wakes wakes;
};

enum { SOURCE, TARGET };	/* of requeue */

static atomic64_t memwait_nr_calls;

/**
 * memwait_new_call() - number a call that may wake a context more than once
 *
 * Context: any.
 *
 * Return: a number that no other call has, not 0.
 */
u64 memwait_new_call(void)
{
	return atomic64_inc_return(&memwait_nr_calls);
}

/* Returns whether it was the only one to be woken. */
static bool memwait_poller_wake(struct wait_queue_entry *poller, __poll_t events)
{
	unsigned int flags = poller->flags;
	int ret = poller->func(poller, TASK_NORMAL, 0, poll_to_key(events));

	return ret < 0 || (ret && (flags & WQ_FLAG_EXCLUSIVE));
}

/* Of what pollers are woken. */
static __poll_t memwait_context_events(const struct memwait_context *context)
{
	__poll_t events = EPOLLIN | EPOLLRDNORM;

	if (unlikely(memwait_context_has_ended(context)))
		events |= EPOLLERR | EPOLLHUP;
	return events;
}

/**
 * memwait_context_wake_first() - wake a reader and the first pollers of a context
 * @context: the context
 * @most: how many pollers
 *
 * Context: any.
 *
 * Return: whether memwait_context_wake_rest() is needed.
 */
bool memwait_context_wake_first(struct memwait_context *context, unsigned int most)
{
	__poll_t events = memwait_context_events(context);
	struct wait_queue_entry *poller, *next;
	unsigned int nr = 0;
	unsigned long flags;
	bool more = false;

	spin_lock_irqsave(&context->pollers.lock, flags);
	list_for_each_entry_safe(poller, next, &context->pollers.head, entry) {
		more = nr++ == most;
		if (more || memwait_poller_wake(poller, events))
			break;
	}
	spin_unlock_irqrestore(&context->pollers.lock, flags);
	memwait_context_wake_reader(context);
	return more;
}

/* A place in the list of pollers: passed over by every other walk. */
static int memwait_no_poller(struct wait_queue_entry *entry, unsigned int mode, int flags,
			     void *key)
{
	return 0;
}

/**
 * memwait_context_wake_rest() - wake all pollers of a context in steps; the first ones once more
 * @context: the context. Pollers that are added meanwhile look by themselves
 *
 * Context: process context, may sleep.
 */
void memwait_context_wake_rest(struct memwait_context *context)
{
	__poll_t events = memwait_context_events(context);
	struct wait_queue_head *pollers = &context->pollers;
	struct wait_queue_entry place = { .func = memwait_no_poller };
	struct wait_queue_entry end = { .func = memwait_no_poller };
	struct wait_queue_entry *poller;
	unsigned int nr = 0;

	spin_lock_irq(&pollers->lock);
	list_add(&place.entry, &pollers->head);
	list_add_tail(&end.entry, &pollers->head);
	while ((poller = list_next_entry(&place, entry)) != &end) {
		list_move(&place.entry, &poller->entry);
		if (memwait_poller_wake(poller, events))
			break;
		if (++nr % MEMWAIT_STEP == 0) {
			spin_unlock_irq(&pollers->lock);
			cond_resched();
			spin_lock_irq(&pollers->lock);
		}
	}
	list_del(&place.entry);
	list_del(&end.entry);
	spin_unlock_irq(&pollers->lock);
}

/**
 * memwait_context_wake() - wake the pollers and a reader of a context
 * @context: the caller has a reference
 *
 * Context: process context, may sleep.
 */
void memwait_context_wake(struct memwait_context *context)
{
	if (memwait_context_wake_first(context, MEMWAIT_STEP))
		memwait_context_wake_rest(context);
}

static void memwait_step_begin(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
}

/* Wakes what was claimed since memwait_step_begin(); no queue's lock is held. */
static void memwait_step_end(struct memwait_call *call)
{
	struct memwait_wakes *wakes = &call->wakes;
	struct memwait_context *context;
	unsigned int i, more = 0;

	for (i = 0; i < wakes->nr_tasks; i++) {
		wake_up_process(wakes->tasks[i]);
		put_task_struct(wakes->tasks[i]);
	}
	for (i = 0; i < wakes->nr_contexts; i++) {
		context = wakes->contexts[i];
		if (unlikely(memwait_context_wake_first(context,
							MEMWAIT_STEP / wakes->nr_contexts)))
			wakes->contexts[more++] = context;
		else
			memwait_context_put(context);
	}
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
	for (i = 0; i < more; i++) {
		memwait_context_wake_rest(wakes->contexts[i]);
		memwait_context_put(wakes->contexts[i]);
	}
	wakes->looked = 0;
	wakes->nr_tasks = 0;
	wakes->nr_contexts = 0;
	if (unlikely(wakes->groups))
		memwait_group_leave_all(&wakes->groups, call->kept);
}

static bool memwait_wakes_are_full(const struct memwait_wakes *wakes)
{
	return wakes->looked >= MEMWAIT_STEP || wakes->nr_tasks == MEMWAIT_STEP_WAKES ||
	       wakes->nr_contexts == MEMWAIT_STEP_WAKES;
}

static void memwait_call_init(struct memwait_call *call, u32 count, u32 move,
			      struct memwait_kept_queues *kept)
{
	call->count = count;
	call->woken = 0;
	call->move = move;
	call->moved = 0;
	call->kind = MEMWAIT_CALL;
	call->kept = kept;
	call->wakes.call = 0;
	call->wakes.looked = 0;
	call->wakes.nr_tasks = 0;
	call->wakes.nr_contexts = 0;
	call->wakes.groups = NULL;
}

/* The call's first look at a locked queue: these waiters are its own to claim or move. */
static void memwait_call_start(struct memwait_call *call, const struct memwait_queue *queue)
{
	call->number = queue->number;
	call->reached = 0;
	if (unlikely(min(call->count, queue->nr_waiters) > MEMWAIT_STEP_WAKES) &&
	    !call->wakes.call)
		call->wakes.call = memwait_new_call();
}

/* The oldest waiter, if it has joined before the call began; or NULL. */
static struct memwait_waiter *memwait_call_next(const struct memwait_call *call,
						struct memwait_queue *queue)
{
	struct memwait_waiter *waiter = memwait_queue_oldest(queue, call->reached);

	return waiter && waiter->number <= call->number ? waiter : NULL;
}

/*
 * Claims some of the oldest waiters of a locked queue. Takes those out that have been claimed by
 * others. Returns whether there may be more to do.
 */
static bool memwait_call_claim(struct memwait_call *call, struct memwait_queue *queue)
{
	struct memwait_waiter *waiter;
	enum memwait_claim claim;

	lockdep_assert_held(&queue->lock);
	while (call->woken < call->count) {
		waiter = memwait_call_next(call, queue);
		if (!waiter)
			break;
		if (memwait_wakes_are_full(&call->wakes))
			return true;
		call->wakes.looked++;
		call->reached = waiter->number;
		claim = waiter->ops->claim(waiter, MEMWAIT_OK, &call->wakes);
		if (likely(claim == MEMWAIT_NOTIFIED_IT))
			call->woken++;
		else if (claim == MEMWAIT_NOT_CLAIMED)
			memwait_queue_remove(waiter);
	}
	return false;
}

/*
 * Before the lock of the first step is dropped: the call will come back for older waiters. A call
 * that does so because of groups gets its number here, so it may wake a context twice.
 */
static void memwait_call_hold(struct memwait_call *call, struct memwait_queue *queue)
{
	lockdep_assert_held(&queue->lock);
	queue->nr_calls++;
	if (!call->wakes.call)
		call->wakes.call = memwait_new_call();
}

/* Between two steps. Returns whether to go on. */
static bool memwait_call_pause(const struct memwait_call *call)
{
	cond_resched();
	if (call->kind == MEMWAIT_CALL_PASSES_ON)
		return true;
	try_to_freeze();
	return call->kind == MEMWAIT_CALL_SURE || !memwait_is_killed();
}

/* The steps after the first one, of a notify that holds the queue. */
static void memwait_notify_rest(struct memwait_call *call, struct memwait_queue *queue)
{
	bool more;

	do {
		more = memwait_call_pause(call);
		memwait_step_begin();
		spin_lock(&queue->lock);
		__release(&queue->lock);	/* as memwait_queue_find() */
		more = more && memwait_call_claim(call, queue);
		if (!more)
			queue->nr_calls--;
		memwait_queue_unlock(queue, call->kept);
		memwait_step_end(call);
	} while (more);
}

/* Not inline: a notify that finds no waiter, as most do, must not pay for the frame of this one. */
static noinline u32 memwait_notify_locked(struct memwait_queue *queue, u32 count,
					  enum memwait_call_kind kind,
					  struct memwait_kept_queues *kept)
{
	struct memwait_call call __uninitialized;
	bool more;

	memwait_call_init(&call, count, 0, kept);
	call.kind = kind;
	memwait_call_start(&call, queue);
	more = memwait_call_claim(&call, queue);
	if (more)
		memwait_call_hold(&call, queue);
	memwait_step_begin();
	memwait_queue_unlock(queue, kept);
	memwait_step_end(&call);
	if (more)
		memwait_notify_rest(&call, queue);
	return call.woken;
}

static __always_inline int __memwait_notify(const struct memwait_key *key, u32 count,
					    enum memwait_call_kind kind,
					    struct memwait_kept_queues *kept)
{
	struct memwait_queue *queue;

	smp_mb();	/* (A) pairs with (B), see the top of queue.c */

	queue = memwait_queue_find(key);
	if (!queue)
		return 0;
	if (!queue->nr_waiters) {
		memwait_queue_unlock(queue, kept);
		return 0;
	}
	return memwait_notify_locked(queue, count, kind, kept);
}

/* Not inline: while it is not traced, a notify is not to pay for it. */
static noinline int memwait_notify_traced(const struct memwait_key *key, u32 count,
					  enum memwait_call_kind kind,
					  struct memwait_kept_queues *kept)
{
	int woken = __memwait_notify(key, count, kind, kept);

	trace_memwait_notify(key, count, woken, kind == MEMWAIT_CALL_PASSES_ON);
	return woken;
}

static __always_inline int memwait_notify_call(const struct memwait_key *key, u32 count,
					       enum memwait_call_kind kind,
					       struct memwait_kept_queues *kept)
{
	if (trace_memwait_notify_enabled())
		return memwait_notify_traced(key, count, kind, kept);
	return __memwait_notify(key, count, kind, kept);
}

/**
 * memwait_notify() - wake the oldest waiters of a word
 * @key: the word's key; held by the caller
 * @count: at most so many, not 0
 * @kept: as memwait_queue_unlock()
 *
 * Allocates nothing and does not look at the word.
 *
 * Context: process context, may sleep; takes the queue's lock.
 *
 * Return: how many were woken: each of them, and no other waiter, will see MEMWAIT_OK.
 */
int memwait_notify(const struct memwait_key *key, u32 count, struct memwait_kept_queues *kept)
{
	return memwait_notify_call(key, count, MEMWAIT_CALL, kept);
}

/**
 * memwait_notify_surely() - memwait_notify() that no signal ends, not even SIGKILL
 * @key: the word's key; held by the caller
 * @count: at most so many, not 0
 * @kept: as memwait_queue_unlock()
 *
 * Context: process context, may sleep; takes the queue's lock.
 *
 * Return: how many were woken.
 */
int memwait_notify_surely(const struct memwait_key *key, u32 count,
			  struct memwait_kept_queues *kept)
{
	return memwait_notify_call(key, count, MEMWAIT_CALL_SURE, kept);
}

/**
 * memwait_pass_on() - give a notify to the next waiter, for one that has ended
 * @key: the word's key; held by the caller
 * @kept: as memwait_queue_unlock()
 *
 * As memwait_notify(), but neither the death of the current thread nor the freezer ends it.
 *
 * Context: process context, may sleep; takes the queue's lock.
 */
void memwait_pass_on(const struct memwait_key *key, struct memwait_kept_queues *kept)
{
	memwait_notify_call(key, 1, MEMWAIT_CALL_PASSES_ON, kept);
}

/*
 * Tells the oldest waiter with MEMWAIT_OWNED that the owner has died to which a locked queue looks.
 * The queue looks to that waiter then, or to nobody if there is none; or, if the step is full,
 * where it did.
 */
static void memwait_queue_tell(struct memwait_queue *queue, struct memwait_identity *identity,
			       struct memwait_wakes *wakes)
{
	struct memwait_waiter *waiter;
	enum memwait_claim claim;

	lockdep_assert_held(&queue->lock);
	while (!memwait_wakes_are_full(wakes)) {
		waiter = list_first_entry_or_null(&queue->owned, struct memwait_waiter,
						  owned_node);
		if (!waiter) {
			memwait_queue_look_away(queue);
			memwait_queue_forget_mover(queue);
			break;
		}
		wakes->looked++;
		claim = waiter->ops->claim(waiter, MEMWAIT_OWNER_DIED, wakes);
		if (claim == MEMWAIT_NOTIFIED_IT) {
			if (queue->mover == identity)
				memwait_queue_forget_mover(queue);
			break;
		}
		if (claim == MEMWAIT_NOT_CLAIMED)
			memwait_queue_remove(waiter);
	}
}

/**
 * memwait_tell_of_death() - one step of telling waiters that an owner has died
 * @identity: the owner
 *
 * Context: process context, may sleep; takes the locks of queues that look to it.
 *
 * Return: whether there may be more to do; if not, no queue looks to the owner, and none will.
 */
bool memwait_tell_of_death(struct memwait_identity *identity)
{
	struct memwait_call call __uninitialized;
	struct memwait_queue *queue = NULL;
	unsigned int nr;

	memwait_call_init(&call, 0, 0, NULL);
	call.wakes.call = identity->call;
	memwait_step_begin();
	for (nr = 0; nr < MEMWAIT_STEP && !memwait_wakes_are_full(&call.wakes); nr++) {
		queue = memwait_identity_lock_queue(identity);
		if (!queue)
			break;
		memwait_queue_tell(queue, identity, &call.wakes);
		memwait_queue_unlock(queue, NULL);
	}
	memwait_step_end(&call);
	return queue;
}

/**
 * memwait_notify_many() - wake the oldest waiters of several words
 * @words: the words; held by the caller
 * @counts: for each word, at most so many; set to how many were woken
 * @nr: how many words, few enough for one step
 * @number: of the call, from memwait_new_call(), or 0 if this is all of it
 * @kept: as memwait_queue_unlock()
 *
 * As many calls of memwait_notify(), but a context is woken once for all of its completions, unless
 * it has been read in between.
 *
 * Context: process context, may sleep; takes the queues' locks, one at a time.
 */
void memwait_notify_many(const struct memwait_word *words, u32 *counts, unsigned int nr,
			 u64 number, struct memwait_kept_queues *kept)
{
	struct memwait_call call __uninitialized;
	struct memwait_queue *queue;
	unsigned int i;
	bool more;

	smp_mb();	/* (A) pairs with (B) */

	memwait_call_init(&call, 0, 0, kept);
	call.wakes.call = number;
	memwait_step_begin();
	for (i = 0; i < nr; i++) {
		queue = counts[i] ? memwait_queue_find(&words[i].key) : NULL;
		call.count = counts[i];
		call.woken = 0;
		if (!queue)
			goto done;
		memwait_call_start(&call, queue);
		more = memwait_call_claim(&call, queue);
		if (more)
			memwait_call_hold(&call, queue);
		memwait_queue_unlock(queue, kept);
		if (more || memwait_wakes_are_full(&call.wakes)) {
			memwait_step_end(&call);
			if (more)
				memwait_notify_rest(&call, queue);
			else if (!call.wakes.call)
				call.wakes.call = memwait_new_call();
			memwait_step_begin();
		}
done:
		if (call.count)
			trace_memwait_notify(&words[i].key, call.count, call.woken, false);
		counts[i] = call.woken;
	}
	memwait_step_end(&call);
}

/*
 * Moves some of the oldest waiters of one locked queue to the end of another one. Those that are
 * told of deaths look to the calling thread as well from then on, if it has an id: it has moved
 * them, and is to see to it that they are woken. Returns whether there may be more to do.
 */
static bool memwait_call_move(struct memwait_call *call, struct memwait_queue *queues[2],
			      const struct memwait_key *target)
{
	struct memwait_queue *from = queues[SOURCE], *to = queues[TARGET];
	struct memwait_waiter *waiter;
	struct memwait_identity *caller;
	unsigned int looked = 0;
	bool more = false, owned = false;

	lockdep_assert_held(&from->lock);
	lockdep_assert_held(&to->lock);
	while (call->moved < call->move) {
		waiter = memwait_call_next(call, from);
		if (!waiter)
			break;
		if (looked++ == MEMWAIT_STEP) {
			more = true;
			break;
		}
		call->reached = waiter->number;
		if (!waiter->ops->is_pending(waiter)) {
			memwait_queue_remove(waiter);
			continue;
		}
		memwait_queue_move(waiter, to);
		if (waiter->identity) {
			list_move_tail(&waiter->owned_node, &to->owned);
			owned = true;
		}
		waiter->word.key = *target;
		call->moved++;
	}
	if (owned) {
		caller = memwait_identity_of(current);
		if (caller)
			memwait_queue_moved_by(to, caller);
	}
	return more;
}

/* The steps after the first one, of a requeue that holds both queues. */
static void memwait_requeue_rest(struct memwait_call *call, struct memwait_queue *queues[2],
				 const struct memwait_key *target)
{
	bool more;

	do {
		more = memwait_call_pause(call);
		memwait_step_begin();
		memwait_queue_lock_pair(queues);
		more = more && (memwait_call_claim(call, queues[SOURCE]) ||
				memwait_call_move(call, queues, target));
		if (!more) {
			queues[SOURCE]->nr_calls--;
			queues[TARGET]->nr_calls--;
		}
		memwait_queue_unlock_pair(queues, call->kept);
		memwait_step_end(call);
	} while (more);
}

/**
 * memwait_requeue() - wake waiters of a word and move others to another word
 * @requeue: as it came from user space, checked; woken and moved are set if the result is 0
 * @source: of the word that is compared; held by the caller
 * @target: of the word that they are moved to, or the same; of the same owner, so that what keeps
 *	the one word for a waiter keeps the other
 * @kept: as memwait_queue_unlock()
 *
 * The comparison and the first waiters are one step with respect to all other operations on both
 * words.
 *
 * Context: process context, may sleep; takes the queues' locks.
 *
 * Return:
 * * 0
 * * MEMWAIT_NOT_EQUAL: the word holds another value; nothing was done
 * * -EAGAIN: the word's page must be faulted in first: compare it once outside and try again
 * * -ENOMEM: a word that has no waiters needs a queue for a moment
 */
int memwait_requeue(struct memwait_requeue *requeue, const struct memwait_key *source,
		    const struct memwait_key *target, struct memwait_kept_queues *kept)
{
	struct memwait_call call __uninitialized;
	struct memwait_queue *queues[2];
	bool more = false;
	int ret;

	ret = memwait_queue_find_pair(queues, source, target, kept);
	if (ret)
		return ret;

	memwait_call_init(&call, requeue->count, requeue->move, kept);
	pagefault_disable();
	ret = memwait_compare(requeue->addr, requeue->expected, requeue->flags);
	pagefault_enable();
	if (!ret) {
		memwait_call_start(&call, queues[SOURCE]);
		more = memwait_call_claim(&call, queues[SOURCE]) ||
		       memwait_call_move(&call, queues, target);
	}
	if (more) {
		memwait_call_hold(&call, queues[SOURCE]);
		queues[TARGET]->nr_calls++;
	}
	memwait_step_begin();
	memwait_queue_unlock_pair(queues, kept);
	memwait_step_end(&call);
	if (more)
		memwait_requeue_rest(&call, queues, target);
	requeue->woken = call.woken;
	requeue->moved = call.moved;
	if (!ret)
		trace_memwait_requeue(source, target, requeue);
	return ret == -EFAULT ? -EAGAIN : ret;
}
