// SPDX-License-Identifier: GPL-2.0-only
/*
 * Places: what a thread keeps of a wait that was interrupted, or told of a death.
 *
 * A signal, a stop, a tracer, cgroup.freeze or task work ends a thread's sleep with -ERESTARTSYS,
 * and the thread leaves its queues. It comes back by a restart, or calls again after EINTR. A
 * thread that gets MEMWAIT_OWNER_DIED looks at the word, and waits again unless it finds what it
 * waits for: the death of another must not cost it its place. A record holds the thread's number in
 * the queue of each word (of the target, if the waiter was moved), and memwait_queue_join() puts
 * it back there. An absent thread has nothing in a queue.
 *
 * A record belongs to a thread and a context. A wait that ends so creates it; the next such end of
 * the same wait updates it, one of another wait replaces it. A notify and a deadline that end a
 * wait drop it. An error does not, nor does a call that cannot have waited: MEMWAIT_NOT_EQUAL, as a
 * lock word that names its owner changes with each owner; and a deadline of 0, by which a thread
 * looks whether an owner lives.
 *
 * What an async wait keeps is in the memory of the wait, see alloc.c.
 *
 * Records are charged, one for each word. Without memory or over the limit there is none, and the
 * wait begins at the end of the queue. An uninterrupted wait costs one look at an empty table.
 *
 * A record keeps no file, mm_struct or queue alive, so its key may come to name another owner. So
 * the inode's number and generation are compared, too, and for private words' sake .self_exec_id.
 *
 * The table is indexed by thread id. A record holds its struct pid, so no later thread with the
 * same id is taken for its thread. A living thread alone changes or frees its record. A dead
 * thread's record stays charged until a sweep: each new record looks at the next two in the table
 * and frees those of dead threads. The last close frees all, when no thread is in a call. Look-ups
 * are under RCU, as a sweep may free a dead thread's record with the same index; the struct pid
 * of that is at another address than the caller's.
 *
 * Only the kernel sets the numbers: a thread returns to where it stood, and nowhere else.
 *
 * Lock order: the table's lock is taken with no other held.
 */
#include <linux/fs.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "context.h"
#include "group.h"
#include "memwait.h"

/* Records of other threads that a new one looks at. */
#define MEMWAIT_PLACE_SWEEP	2

/**
 * struct memwait_stand - where a thread stood in one queue
 * @key: of the word; of the target if the waiter was moved
 * @inode: of a shared mapping
 * @number: in the queue, not 0
 */
struct memwait_stand {
	struct memwait_key key;
	struct memwait_inode_number inode;
	u64 number;
};

/**
 * struct memwait_place - the place of a thread
 * @pid: the thread, with a reference
 * @exec_id: the thread's .self_exec_id
 * @rcu: frees it
 * @nr: length of @stands
 * @stands: one for each word of the wait
 */
struct memwait_place {
	struct pid *pid;
	u64 exec_id;
	struct rcu_head rcu;
	u32 nr;
	struct memwait_stand stands[];
};

static unsigned long memwait_place_index(void)
{
	return task_pid_nr(current);
}

/* Frees a record that has been removed from the table. */
static void memwait_place_free(struct memwait_context *context, struct memwait_place *place)
{
	memwait_user_uncharge(context->user, MEMWAIT_PLACES, place->nr);
	put_pid(place->pid);
	kfree_rcu(place, rcu);
}

/* The current thread's record, valid until the thread changes it; or NULL. */
static struct memwait_place *memwait_place_find(struct memwait_context *context)
{
	struct memwait_place *place;

	rcu_read_lock();
	place = xa_load(&context->places, memwait_place_index());
	if (place && (place->pid != task_pid(current) ||
		      place->exec_id != READ_ONCE(current->self_exec_id)))
		place = NULL;
	rcu_read_unlock();
	return place;
}

static void memwait_stand_set(struct memwait_stand *stand, const struct memwait_waiter *waiter)
{
	stand->key = waiter->word.key;
	stand->inode = memwait_word_inode(&waiter->word);
	stand->number = waiter->number;
}

static bool memwait_stand_is_of(const struct memwait_stand *stand,
				const struct memwait_waiter *waiter)
{
	return memwait_word_is_same(&waiter->word, &stand->key, &stand->inode);
}

/* Whether the record is of a wait on these words. */
static bool memwait_place_is_of(const struct memwait_place *place,
				const struct memwait_group *group)
{
	u32 i;

	if (place->nr != group->nr)
		return false;
	for (i = 0; i < group->nr; i++) {
		if (!memwait_stand_is_of(&place->stands[i], &group->members[i].waiter))
			return false;
	}
	return true;
}

/**
 * memwait_place_join() - join the queues of the current thread's words, at its place if it has one
 * @context: of its call
 * @group: see memwait_group_join()
 * @waits: see memwait_group_join()
 * @index: see memwait_group_join()
 *
 * Context: process context, may sleep; takes queues' locks, one at a time.
 *
 * Return: 0, or the error of memwait_queue_join() for the first member that could not join.
 */
int memwait_place_join(struct memwait_context *context, struct memwait_group *group,
		       const struct memwait_wait *waits, u32 *index)
{
	struct memwait_place *place = memwait_place_find(context);
	struct memwait_waiter *waiter;
	int ret;
	u32 i;

	if (place && !memwait_place_is_of(place, group))
		place = NULL;
	for (i = 0; i < group->nr; i++) {
		waiter = &group->members[i].waiter;
		waiter->number = place ? place->stands[i].number : 0;
		ret = memwait_queue_join(waiter, &waits[i]);
		if (ret) {
			*index = i;
			return ret;
		}
	}
	return 0;
}

/* Looks at the next records, and frees those of dead threads. */
static void memwait_places_sweep(struct memwait_context *context)
{
	struct memwait_place *place;
	unsigned int nr;

	lockdep_assert_held(&context->places.xa_lock);
	for (nr = 0; nr < MEMWAIT_PLACE_SWEEP; nr++) {
		place = xa_find_after(&context->places, &context->next_place, ULONG_MAX,
				      XA_PRESENT);
		if (!place) {
			context->next_place = 0;
			break;
		}
		if (pid_has_task(place->pid, PIDTYPE_PID))
			continue;
		__xa_erase(&context->places, context->next_place);
		memwait_place_free(context, place);
	}
}

/**
 * memwait_place_drop() - drop the current thread's place
 * @context: of its call
 *
 * Context: process context.
 */
void memwait_place_drop(struct memwait_context *context)
{
	struct memwait_place *place = memwait_place_find(context);

	if (!place)
		return;
	xa_erase(&context->places, memwait_place_index());
	memwait_place_free(context, place);
}

/**
 * memwait_place_note() - record where the current thread stood
 * @context: of its call
 * @group: the words of its wait, which was interrupted or told of a death; no member is queued
 *
 * Context: process context, may sleep.
 */
void memwait_place_note(struct memwait_context *context, const struct memwait_group *group)
{
	struct memwait_place *old, *place = memwait_place_find(context);
	u32 i;

	if (place && place->nr != group->nr) {
		memwait_place_drop(context);
		place = NULL;
	}
	if (place) {
		for (i = 0; i < group->nr; i++)
			memwait_stand_set(&place->stands[i], &group->members[i].waiter);
		return;
	}

	if (memwait_is_killed())
		return;
	place = kmalloc(struct_size(place, stands, group->nr), MEMWAIT_GFP);
	if (!place)
		return;
	place->pid = get_pid(task_pid(current));
	place->exec_id = READ_ONCE(current->self_exec_id);
	place->nr = group->nr;
	for (i = 0; i < group->nr; i++)
		memwait_stand_set(&place->stands[i], &group->members[i].waiter);

	xa_lock(&context->places);
	memwait_places_sweep(context);
	xa_unlock(&context->places);
	/* Replaces the record of a dead thread with the same id, or of an earlier program. */
	old = xa_store(&context->places, memwait_place_index(), place, MEMWAIT_GFP);
	if (xa_is_err(old))
		goto free;
	if (old)
		memwait_place_free(context, old);
	/* Charge last: a charge that another call has seen must not be taken back. */
	if (memwait_user_charge(context->user, MEMWAIT_PLACES, group->nr))
		return;
	xa_erase(&context->places, memwait_place_index());
free:
	put_pid(place->pid);
	kfree(place);
}

/**
 * memwait_places_free() - free all records of a context
 * @context: closed
 *
 * Context: process context, may sleep.
 */
void memwait_places_free(struct memwait_context *context)
{
	struct memwait_place *place;
	unsigned long index;

	/* xa_destroy() alone would free a whole table with interrupts disabled. */
	xa_for_each(&context->places, index, place) {
		xa_erase(&context->places, index);
		memwait_place_free(context, place);
		cond_resched();
	}
	xa_destroy(&context->places);
}
