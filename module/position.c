// SPDX-License-Identifier: GPL-2.0-only
/*
 * Queue positions of interrupted threads: how a thread retains its position.
 *
 * A signal, a stop, a tracer, cgroup.freeze or task work ends a thread's sleep with -ERESTARTSYS,
 * and the thread leaves its queues. The thread waits again when the system call is restarted, or
 * when the program calls again after EINTR. A record holds the thread's number in the queue of each
 * word (of the target, if the waiter was moved), and memwait_queue_join() puts the thread's waiter
 * back at that number. An absent thread has no waiter in a queue.
 *
 * A thread has at most one record, even if it waits with several contexts: if it had a record for
 * each context, it could overtake the same waiters once for each context. When a wait begins, it
 * takes the thread's record out of the tree. A wait on the same words joins at the recorded
 * positions, and puts the record back if the wait is interrupted again. If a wait on other words is
 * interrupted, its record replaces the old record. If a wait ends by a notify, the death of an
 * owner or a deadline, the record is freed. The record is put back unchanged after an error, and
 * after MEMWAIT_NOT_EQUAL, because a lock word that names its owner changes with each owner.
 *
 * The records are in trees by struct pid. A record has a reference to the struct pid of its thread,
 * so that a later thread with the same id is not taken for that thread. The hash of the thread's
 * struct pid chooses the tree. A wait without a record only looks at the root of its tree, and
 * takes a lock only if a thread with the same hash has a record.
 *
 * A record is also in a list of the context of its wait, and is charged to the context's user, one
 * for each word. If there is no memory, or the limit is exceeded, there is no record, and the
 * thread returns to the end of the queue. A dead thread's record stays charged until it is found:
 * whenever a record is added, the next two records of the same context are checked, and freed if
 * their threads are dead. The last close of a context frees all of its records.
 *
 * A record has no reference to a file, mm_struct or queue, so its key may later name a word of
 * another space. Therefore the inode's number and generation are also compared and, because of
 * private words, .self_exec_id.
 *
 * Only the kernel sets the numbers, so a thread can return only to its own position.
 *
 *	Lock order:	memwait_absent.lock -> memwait_context.lock
 */
#include <linux/signal.h>

#include "context.h"
#include "position.h"

/* Number of records that are checked when a record is added. */
#define MEMWAIT_POSITION_SWEEP	2

/**
 * struct memwait_inode_number - distinguishes a file from a later file at the same address
 * @ino: the inode's number; 0 for a private word
 * @generation: the inode's generation, or 0
 */
struct memwait_inode_number {
	u64 ino;
	u32 generation;
};

/**
 * struct memwait_queue_position - a thread's position in one queue
 * @key: key of the word, or of the target if the waiter was moved
 * @inode: inode of the word's file; zero for a private word
 * @number: number in the queue, not 0
 */
struct memwait_queue_position {
	struct memwait_key key;
	struct memwait_inode_number inode;
	u64 number;
};

/**
 * struct memwait_position - a record: the queue positions of a thread
 * @node: entry of &memwait_absent.positions; protected by &memwait_absent.lock
 * @context: context of the wait. While the record is in a tree, the context's lock protects this
 *	and @context_node
 * @context_node: entry of &memwait_context.positions
 * @pid: the thread, with a reference
 * @exec_id: the thread's .self_exec_id
 * @nr: length of @queues
 * @queues: one for each word of the wait
 */
struct memwait_position {
	struct rb_node node;
	struct memwait_context *context;
	struct list_head context_node;
	struct pid *pid;
	u64 exec_id;
	u32 nr;
	struct memwait_queue_position queues[];
};

struct memwait_absent memwait_absent[1 << MEMWAIT_ABSENT_BITS];

static struct memwait_position *memwait_position_at(const struct rb_node *node)
{
	return rb_entry(node, struct memwait_position, node);
}

static bool memwait_position_less(struct rb_node *new, const struct rb_node *node)
{
	return memwait_position_at(new)->pid < memwait_position_at(node)->pid;
}

static int memwait_position_cmp(const void *pid, const struct rb_node *node)
{
	const struct pid *of_node = memwait_position_at(node)->pid;

	return pid < (const void *)of_node ? -1 : pid > (const void *)of_node;
}

/* Takes a record out of its tree and its context. Afterwards the context may be freed. */
static void memwait_position_remove(struct memwait_absent *absent, struct memwait_position *record)
{
	struct memwait_context *context = record->context;

	lockdep_assert_held(&absent->lock);
	rb_erase(&record->node, &absent->positions);
	spin_lock(&context->lock);
	list_del(&record->context_node);
	context->nr_positions--;
	memwait_user_uncharge(context->user, MEMWAIT_POSITIONS, record->nr);
	spin_unlock(&context->lock);
}

/**
 * memwait_position_find() - take the current thread's record out of its tree
 * @absent: memwait_absent_of() the thread
 *
 * Context: process context.
 *
 * Return: the record, for memwait_position_free() or memwait_position_add(); or %NULL. The record
 * may be from a program that the thread executed earlier.
 */
struct memwait_position *memwait_position_find(struct memwait_absent *absent)
{
	struct memwait_position *record = NULL;
	struct rb_node *node;

	spin_lock(&absent->lock);
	node = rb_find(task_pid(current), &absent->positions, memwait_position_cmp);
	if (node) {
		record = memwait_position_at(node);
		memwait_position_remove(absent, record);
	}
	spin_unlock(&absent->lock);
	return record;
}

/**
 * memwait_position_free() - free a record
 * @record: a record that is in no tree
 *
 * Context: process context.
 */
void memwait_position_free(struct memwait_position *record)
{
	put_pid(record->pid);
	kfree(record);
}

static struct memwait_inode_number memwait_word_inode(const struct memwait_word *word)
{
	const struct inode *inode = word->file ? file_inode(word->file) : NULL;

	return (struct memwait_inode_number){
		.ino = inode ? inode->i_ino : 0,
		.generation = inode ? inode->i_generation : 0,
	};
}

static void memwait_queue_position_set(struct memwait_queue_position *position,
				       const struct memwait_waiter *waiter)
{
	position->key = waiter->word.key;
	position->inode = memwait_word_inode(&waiter->word);
	position->number = waiter->number;
}

static bool memwait_queue_position_is_of(const struct memwait_queue_position *position,
					 const struct memwait_waiter *waiter)
{
	struct memwait_inode_number inode = memwait_word_inode(&waiter->word);

	return !memwait_key_cmp(&waiter->word.key, &position->key) &&
	       inode.ino == position->inode.ino && inode.generation == position->inode.generation;
}

static void memwait_position_set(struct memwait_position *record, const struct memwait_group *group)
{
	u32 i;

	record->exec_id = READ_ONCE(current->self_exec_id);
	for (i = 0; i < group->nr; i++)
		memwait_queue_position_set(&record->queues[i], &group->waiters[i]);
}

/* Whether the record is of this program's wait on these words. */
static bool memwait_position_is_of(const struct memwait_position *record,
				   const struct memwait_group *group)
{
	u32 i;

	if (record->nr != group->nr || record->exec_id != READ_ONCE(current->self_exec_id))
		return false;
	for (i = 0; i < group->nr; i++) {
		if (!memwait_queue_position_is_of(&record->queues[i], &group->waiters[i]))
			return false;
	}
	return true;
}

/**
 * memwait_position_return() - let the current thread's waiters join at their old positions
 * @record: its record
 * @group: the thread's wait, whose waiters are in no queue. Their numbers are set if @record is
 *	from a wait on the same words
 *
 * Context: process context.
 */
void memwait_position_return(const struct memwait_position *record, struct memwait_group *group)
{
	u32 i;

	if (!memwait_position_is_of(record, group))
		return;
	for (i = 0; i < group->nr; i++)
		group->waiters[i].number = record->queues[i].number;
}

/**
 * memwait_position_record() - record the current thread's queue positions
 * @record: the thread's record, or %NULL; may be replaced by another record
 * @group: the interrupted wait, whose waiters are in no queue
 *
 * Context: process context, may sleep.
 */
void memwait_position_record(struct memwait_position **record, const struct memwait_group *group)
{
	struct memwait_position *new = *record;

	if (new && new->nr != group->nr) {
		memwait_position_free(new);
		new = NULL;
	}
	if (!new && !memwait_is_killed()) {
		new = kmalloc(struct_size(new, queues, group->nr), MEMWAIT_GFP);
		if (new) {
			new->nr = group->nr;
			new->pid = get_pid(task_pid(current));
		}
	}
	if (new)
		memwait_position_set(new, group);
	*record = new;
}

/*
 * Returns the next record of a context, and stores in *@absent the tree that contains it. Returns
 * NULL if there is none.
 */
static struct memwait_position *memwait_position_next(struct memwait_context *context,
						      struct memwait_absent **absent)
{
	struct memwait_position *record;

	spin_lock(&context->lock);
	record = list_first_entry_or_null(&context->positions, struct memwait_position,
					  context_node);
	*absent = record ? memwait_absent_of(record->pid) : NULL;
	spin_unlock(&context->lock);
	return record;
}

/*
 * Looks at the next record of a context, and frees it if its thread is dead or the context is
 * @closed. Returns false if the context has no record.
 */
static bool memwait_position_check(struct memwait_context *context, bool closed)
{
	struct memwait_absent *absent, *now;
	struct memwait_position *record = memwait_position_next(context, &absent);
	bool gone = false;

	if (!record)
		return false;
	spin_lock(&absent->lock);
	/* If this is still the next record, it stays in the list while the tree is locked. */
	if (memwait_position_next(context, &now) == record && now == absent) {
		gone = closed || !pid_has_task(record->pid, PIDTYPE_PID);
		if (gone) {
			memwait_position_remove(absent, record);
		} else {
			spin_lock(&context->lock);
			list_move_tail(&record->context_node, &context->positions);
			spin_unlock(&context->lock);
		}
	}
	spin_unlock(&absent->lock);
	if (gone)
		memwait_position_free(record);
	return true;
}

/**
 * memwait_position_add() - add the current thread's record, unless its user is over the limit
 * @context: context of the thread's call
 * @record: the record, in no tree
 *
 * Context: process context.
 */
void memwait_position_add(struct memwait_context *context, struct memwait_position *record)
{
	struct memwait_absent *absent = memwait_absent_of(record->pid);
	unsigned int nr;

	for (nr = 0; nr < MEMWAIT_POSITION_SWEEP && memwait_position_check(context, false); nr++)
		;
	if (!memwait_user_charge(context->user, MEMWAIT_POSITIONS, record->nr)) {
		memwait_position_free(record);
		return;
	}
	record->context = context;
	spin_lock(&absent->lock);
	rb_add(&record->node, &absent->positions, memwait_position_less);
	spin_lock(&context->lock);
	list_add_tail(&record->context_node, &context->positions);
	context->nr_positions++;
	spin_unlock(&context->lock);
	spin_unlock(&absent->lock);
}

/**
 * memwait_position_free_all() - free all records of a context
 * @context: closed
 *
 * Context: process context, may sleep.
 */
void memwait_position_free_all(struct memwait_context *context)
{
	while (memwait_position_check(context, true))
		cond_resched();
}

void __init memwait_position_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(memwait_absent); i++) {
		spin_lock_init(&memwait_absent[i].lock);
		memwait_absent[i].positions = RB_ROOT;
	}
}

/*
 * The effect of a pending signal on the current thread.
 */

/**
 * memwait_dies_of_signal() - the slow path of memwait_is_dying(), for a pending signal
 *
 * A thread dies if it was killed, or if a pending signal will dump core; the kernel has already
 * turned all other fatal signals into SIGKILL. A tracer may change or drop a signal, so a traced
 * thread counts as alive unless it was killed.
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

	sighand = rcu_dereference_protected(current->sighand, true);	/* current's is not freed */
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
