// SPDX-License-Identifier: GPL-2.0-only
/*
 * Places: what a thread that was interrupted keeps of its wait.
 *
 * A signal, a stop, a tracer, cgroup.freeze or work of the kernel ends the sleep of a thread with
 * -ERESTARTSYS, and the thread leaves its queue. It comes back by a restart, or by its own call
 * after EINTR. A record has the number at which it stood in the queue of each of its words, and it
 * returns there: see memwait_queue_return(). The record of a waiter that was moved names its
 * target. While the thread is away nothing of it is in a queue.
 *
 * A record belongs to a thread and a context. It is made when a wait is interrupted, and changed
 * when the same wait is interrupted again. Any other end of a wait by that context ends the record,
 * as an interruption on other words does; an error before there is a wait does not.
 * MEMWAIT_NOT_EQUAL is no wait: a lock word that names its owner has a new value for each of them,
 * and would take the place away.
 *
 * Records are counted, one for each word. Without memory, or at the limit, there is none: the wait
 * begins at the end of the queue. A wait that is not interrupted pays one look at an empty table.
 *
 * A record keeps no file, mm_struct or queue, so its key may name another owner by now. Therefore
 * the inode's number and generation are compared as well, and for a private word the program that
 * the thread executes, by .self_exec_id.
 *
 * The table is indexed by thread id. A record has a reference to its struct pid, so it is not taken
 * for that of a later thread with the same id. Only its thread changes it, or ends it while the
 * thread lives. The record of a dead thread stays, counted: each new record looks at the next two
 * in the table, and ends those of dead threads. The last close ends all, when no thread is in a
 * call. Look-ups are under RCU, as the record of a dead thread may be ended meanwhile. That one has
 * another pid, at another address as long as the record is in the table.
 *
 * Only the kernel makes these numbers: a thread returns to where it stood, and nowhere else.
 *
 * Lock order: the lock of the table is taken with no other held.
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

/* Records of others that a new one looks at. */
#define MEMWAIT_PLACE_SWEEP	2

/**
 * struct memwait_stand - where a thread stood
 * @key: of the word, the waiter's target if it was moved
 * @ino: of a shared mapping: the inode's number; or 0
 * @generation: and its generation
 * @number: in the queue, not 0
 */
struct memwait_stand {
	struct memwait_key key;
	u64 ino;
	u32 generation;
	u64 number;
};

/**
 * struct memwait_place - the place of a thread that was interrupted
 * @pid: the thread, with a reference
 * @exec_id: of the program that it executed
 * @rcu: frees it
 * @nr: length of @stands
 * @stands: for each word of the wait
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

/* Ends a record that is in the table no more. */
static void memwait_place_free(struct memwait_context *context, struct memwait_place *place)
{
	memwait_user_uncharge(context->user, MEMWAIT_PLACES, place->nr);
	put_pid(place->pid);
	kfree_rcu(place, rcu);
}

/* The record of the current thread, which stays until the thread changes it; or NULL. */
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
	const struct inode *inode = waiter->word.file ? file_inode(waiter->word.file) : NULL;

	stand->key = waiter->word.key;
	stand->ino = inode ? inode->i_ino : 0;
	stand->generation = inode ? inode->i_generation : 0;
	stand->number = waiter->number;
}

static bool memwait_stand_is_of(const struct memwait_stand *stand,
				const struct memwait_waiter *waiter)
{
	struct memwait_stand other;

	memwait_stand_set(&other, waiter);
	return stand->key.owner == other.key.owner && stand->key.offset == other.key.offset &&
	       stand->ino == other.ino && stand->generation == other.generation;
}

/* Whether these are the words of the wait that was interrupted. */
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
 * @group: as memwait_group_join()
 * @waits: as there
 * @index: as there
 *
 * Context: process context, may sleep; takes queues' locks, one at a time.
 *
 * Return: as memwait_group_join().
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
		group->returned[i].waiter = waiter;
		ret = memwait_queue_return(waiter, &waits[i], &context->user->kept);
		if (ret) {
			*index = i;
			return ret;
		}
	}
	return 0;
}

/* Ends some records of threads that have died. */
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
 * memwait_place_drop() - the current thread has no place to return to any more
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
 * memwait_place_note() - note where the current thread stood
 * @context: of its call
 * @group: the words of its wait, which was interrupted; in no queue any more
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
	/* Instead of a dead thread's with the same id, or of that of another program. */
	old = xa_store(&context->places, memwait_place_index(), place, MEMWAIT_GFP);
	if (xa_is_err(old))
		goto free;
	if (old)
		memwait_place_free(context, old);
	/* Last, lest it be taken back when others have seen it. */
	if (memwait_user_charge(context->user, MEMWAIT_PLACES, group->nr))
		return;
	xa_erase(&context->places, memwait_place_index());
free:
	put_pid(place->pid);
	kfree(place);
}

/**
 * memwait_places_free() - end all records of a context
 * @context: closed
 *
 * Context: process context, may sleep.
 */
void memwait_places_free(struct memwait_context *context)
{
	struct memwait_place *place;
	unsigned long index;

	/* xa_destroy() would free a whole table with interrupts disabled. */
	xa_for_each(&context->places, index, place) {
		xa_erase(&context->places, index);
		memwait_place_free(context, place);
		cond_resched();
	}
	xa_destroy(&context->places);
}
