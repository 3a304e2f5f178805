// SPDX-License-Identifier: GPL-2.0-only
/*
 * Places: what a thread keeps of a wait that was interrupted.
 *
 * A signal, a stop, a tracer, cgroup.freeze or task work ends a thread's sleep with -ERESTARTSYS,
 * and the thread leaves its queues. It comes back by a restart, or calls again after EINTR. A
 * record holds the thread's number in the queue of each word (of the target, if the waiter was
 * moved), and memwait_queue_join() puts it back there. An absent thread has nothing in a queue.
 *
 * A record belongs to a thread and a context. An interrupted wait creates it; the next interruption
 * of the same wait updates it, one of another wait replaces it. What else ends a wait drops it: a
 * notify, the death of an owner, a deadline. An error does not, nor does MEMWAIT_NOT_EQUAL, as a
 * lock word that names its owner changes with each owner.
 *
 * Records are charged, one for each word. Without memory or over the limit there is none, and the
 * wait begins at the end of the queue. An uninterrupted wait costs one look at the number of
 * records.
 *
 * A record keeps no file, mm_struct or queue alive, so its key may come to name another owner. So
 * the inode's number and generation are compared, too, and for private words' sake .self_exec_id.
 *
 * The records are in a tree by struct pid, to which a record holds a reference: so no later thread
 * with the same id is taken for its thread. A living thread alone changes or frees its record. A
 * dead thread's record stays charged until a sweep: each new record looks at the next two in the
 * tree and frees those of dead threads. The last close frees all, when no thread is in a call.
 *
 * Only the kernel sets the numbers: a thread returns to where it stood, and nowhere else.
 *
 * Lock order: the tree's lock is taken with no other held.
 */
#include <linux/pid.h>
#include <linux/signal.h>

#include "context.h"

/* Records of other threads that a new one looks at. */
#define MEMWAIT_PLACE_SWEEP	2

/**
 * struct memwait_inode_number - tells a file from a later one at the same address
 * @ino: the inode's number; 0 for a private word
 * @generation: the inode's generation, or 0
 */
struct memwait_inode_number {
	u64 ino;
	u32 generation;
};

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
 * @node: in &memwait_context.places
 * @pid: the thread, with a reference
 * @exec_id: the thread's .self_exec_id
 * @nr: length of @stands
 * @stands: one for each word of the wait
 */
struct memwait_place {
	struct rb_node node;
	struct pid *pid;
	u64 exec_id;
	u32 nr;
	struct memwait_stand stands[];
};

static struct memwait_place *memwait_place_at(const struct rb_node *node)
{
	return rb_entry(node, struct memwait_place, node);
}

static bool memwait_place_less(struct rb_node *new, const struct rb_node *node)
{
	return memwait_place_at(new)->pid < memwait_place_at(node)->pid;
}

static int memwait_place_cmp(const void *pid, const struct rb_node *node)
{
	const struct pid *of_node = memwait_place_at(node)->pid;

	return pid < (const void *)of_node ? -1 : pid > (const void *)of_node;
}

/* The record of the first thread above @pid, or NULL. */
static struct memwait_place *memwait_place_after(const struct memwait_context *context,
						 const struct pid *pid)
{
	struct rb_node *node;

	lockdep_assert_held(&context->places_lock);
	node = memwait_rb_after(pid, &context->places, memwait_place_cmp);
	return node ? memwait_place_at(node) : NULL;
}

/* The current thread's record, which may be of a program before this; valid until it changes it. */
static struct memwait_place *memwait_place_find(struct memwait_context *context)
{
	struct rb_node *node;

	spin_lock(&context->places_lock);
	node = rb_find(task_pid(current), &context->places, memwait_place_cmp);
	spin_unlock(&context->places_lock);
	return node ? memwait_place_at(node) : NULL;
}

static void memwait_place_remove(struct memwait_context *context, struct memwait_place *place)
{
	lockdep_assert_held(&context->places_lock);
	rb_erase(&place->node, &context->places);
	WRITE_ONCE(context->nr_places, context->nr_places - 1);
}

/* Frees a record that is in no tree. */
static void memwait_place_free(struct memwait_context *context, struct memwait_place *place)
{
	memwait_user_uncharge(context->user, MEMWAIT_PLACES, place->nr);
	put_pid(place->pid);
	kfree(place);
}

static struct memwait_inode_number memwait_word_inode(const struct memwait_word *word)
{
	const struct inode *inode = word->file ? file_inode(word->file) : NULL;

	return (struct memwait_inode_number){
		.ino = inode ? inode->i_ino : 0,
		.generation = inode ? inode->i_generation : 0,
	};
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
	struct memwait_inode_number inode = memwait_word_inode(&waiter->word);

	return !memwait_key_cmp(&waiter->word.key, &stand->key) && inode.ino == stand->inode.ino &&
	       inode.generation == stand->inode.generation;
}

static void memwait_place_set(struct memwait_place *place, const struct memwait_group *group)
{
	u32 i;

	place->exec_id = READ_ONCE(current->self_exec_id);
	for (i = 0; i < group->nr; i++)
		memwait_stand_set(&place->stands[i], &group->members[i].waiter);
}

/* Whether the record is of this program's wait on these words. */
static bool memwait_place_is_of(const struct memwait_place *place,
				const struct memwait_group *group)
{
	u32 i;

	if (place->nr != group->nr || place->exec_id != READ_ONCE(current->self_exec_id))
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
 * Context: process context, may sleep; takes buckets' locks, one at a time.
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

	lockdep_assert_held(&context->places_lock);
	for (nr = 0; nr < MEMWAIT_PLACE_SWEEP; nr++) {
		place = memwait_place_after(context, context->next_place);
		context->next_place = place ? place->pid : NULL;
		if (!place)
			break;
		if (pid_has_task(place->pid, PIDTYPE_PID))
			continue;
		memwait_place_remove(context, place);
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
	spin_lock(&context->places_lock);
	memwait_place_remove(context, place);
	spin_unlock(&context->places_lock);
	memwait_place_free(context, place);
}

/* Adds a record, unless the user is over its limit. */
static bool memwait_place_add(struct memwait_context *context, struct memwait_place *place)
{
	bool charged;

	spin_lock(&context->places_lock);
	memwait_places_sweep(context);
	charged = memwait_user_charge(context->user, MEMWAIT_PLACES, place->nr);
	if (charged) {
		rb_add(&place->node, &context->places, memwait_place_less);
		WRITE_ONCE(context->nr_places, context->nr_places + 1);
	}
	spin_unlock(&context->places_lock);
	return charged;
}

/**
 * memwait_place_note() - record where the current thread stood
 * @context: of its call
 * @group: the words of its wait, which was interrupted; no member is queued
 *
 * Context: process context, may sleep.
 */
void memwait_place_note(struct memwait_context *context, const struct memwait_group *group)
{
	struct memwait_place *place = memwait_place_find(context);

	if (place && place->nr != group->nr) {
		memwait_place_drop(context);
		place = NULL;
	}
	if (place) {
		memwait_place_set(place, group);
		return;
	}

	if (memwait_is_killed())
		return;
	place = kmalloc(struct_size(place, stands, group->nr), MEMWAIT_GFP);
	if (!place)
		return;
	place->nr = group->nr;
	memwait_place_set(place, group);
	place->pid = get_pid(task_pid(current));
	if (memwait_place_add(context, place))
		return;
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
	struct memwait_place *place, *next;

	rbtree_postorder_for_each_entry_safe(place, next, &context->places, node) {
		memwait_place_free(context, place);
		cond_resched();
	}
}

/*
 * The effect of a pending signal on the current thread.
 */

/**
 * memwait_dies_of_signal() - memwait_is_dying() of a thread with a pending signal
 *
 * A thread dies if it was killed, or if a pending signal will dump core; all other fatal signals
 * already look like SIGKILL. A tracer may change or drop a signal, so a traced thread counts as
 * alive unless it was killed.
 *
 * Context: process context.
 *
 * Return: whether the thread will die.
 */
bool memwait_dies_of_signal(void)
{
	struct sighand_struct *sighand;
	bool dying = false;
	sigset_t pending;
	int sig;

	if (memwait_is_killed())
		return true;
	if (READ_ONCE(current->ptrace) || (READ_ONCE(current->signal->flags) & SIGNAL_UNKILLABLE))
		return false;

	sighand = rcu_dereference_protected(current->sighand, true);	/* current's stays */
	spin_lock_irq(&sighand->siglock);
	sigorsets(&pending, &current->pending.signal, &current->signal->shared_pending.signal);
	sigandnsets(&pending, &pending, &current->blocked);
	for (sig = 1; sig < SIGRTMIN; sig++) {
		if (sigismember(&pending, sig) && sig_kernel_coredump(sig) &&
		    sighand->action[sig - 1].sa.sa_handler == SIG_DFL)
			dying = true;
	}
	spin_unlock_irq(&sighand->siglock);
	return dying;
}
