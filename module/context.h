/* SPDX-License-Identifier: GPL-2.0-only */
/* Contexts: see context.c for the object, and file.c for the open file. */
#ifndef MEMWAIT_CONTEXT_H
#define MEMWAIT_CONTEXT_H

#include <linux/pid.h>
#include <linux/poll.h>

#include "async.h"
#include "pin.h"

/**
 * struct memwait_binding - the process to which a context is bound: see file.c
 * @process: for a bound context: its process, with a reference, until @table has no descriptor of
 *	the context left. Written under the context's lock
 * @table: %NULL: not decided; &memwait_unbound: every process that has the file may use the
 *	context; &memwait_closed: closed by its process; otherwise the files_struct of @process; the
 *	close of its last descriptor of the context ends the context. Set once from %NULL, and to
 *	&memwait_closed, under the context's lock
 * @uses: one for each call of @process in progress, and one until @process has closed the context;
 *	0: the context has ended
 * @descriptor: number of the descriptor in @table that is looked at first
 */
struct memwait_binding {
	struct pid *process;
	fl_owner_t table;
	refcount_t uses;
	unsigned int descriptor;
};

/**
 * struct memwait_context - an open file of /dev/memwait
 * @refs: one for the file, and one for each notify that will wake the context
 * @lock: protects @waits, @positions, @nr_positions, and other members whose descriptions say so
 * @completions: completions of its async waits, and their readers and pollers
 * @binding: the process to which it is bound
 * @waits: its async waits
 * @pins: pins of its async waits
 * @positions: records of interrupted threads; a record that was checked for a dead thread moves to
 *	the end; see position.c
 * @nr_positions: length of @positions
 * @pid: PID of the opening process, in the initial PID namespace; for tracing and debugfs
 * @user: the user that opened the context, and is charged
 * @identity: owner identity, if any; set once, %NULL again after its end
 * @id: id of @identity; not cleared when the identity ends
 * @number: random; this and @command are for tracing and debugfs
 * @command: name of the opening thread
 *
 * A notify uses only the members from @refs up to the beginning of @waits.
 */
struct memwait_context {
	refcount_t refs;
	spinlock_t lock;	/* see the top of claim.c */
	struct memwait_completions completions;
	struct memwait_binding binding;
	struct memwait_waits waits;
	struct memwait_pins pins;
	struct list_head positions;
	unsigned int nr_positions;
	pid_t pid;
	struct memwait_user *user;
	struct memwait_identity *identity;
	u64 id;
	u64 number;
	char command[TASK_COMM_LEN];
};

/* context.c */
extern struct kmem_cache *memwait_owned_cache;
struct memwait_context *memwait_context_alloc(void);
void memwait_context_free(struct memwait_context *context);
int memwait_context_init(void);
void memwait_context_exit(void);

/* read.c */
ssize_t memwait_read_iter(struct kiocb *iocb, struct iov_iter *to);

/* file.c */
int memwait_context_use(struct memwait_context *context);
void memwait_context_unuse(struct memwait_context *context);
int memwait_ioc_info(struct memwait_context *context, void __user *arg, size_t size);
int memwait_open(struct inode *inode, struct file *file);
int memwait_flush(struct file *file, fl_owner_t id);
int memwait_release(struct inode *inode, struct file *file);
__poll_t memwait_poll(struct file *file, poll_table *table);
void memwait_show_fdinfo(struct seq_file *seq, struct file *file);

static inline void memwait_context_put(struct memwait_context *context)
{
	if (refcount_dec_and_test(&context->refs))
		memwait_context_free(context);
}

/* Takes a blocked reader out of the list. The context's lock is held. */
static inline void memwait_reader_remove(struct memwait_context *context,
					 struct memwait_reader *reader)
{
	const struct memwait_reader *first;

	lockdep_assert_held(&context->lock);
	list_del(&reader->node);
	first = list_first_entry_or_null(&context->completions.readers, struct memwait_reader,
					 node);
	rcu_assign_pointer(context->completions.first_reader.task, first ? first->task : NULL);
}

/*
 * Wakes the first blocked reader, which then checks whether there is something to read: see wake.c.
 */
static inline void memwait_context_wake_reader(struct memwait_context *context)
{
	rcuwait_wake_up(&context->completions.first_reader);	/* its barrier is (E) */
}

/*
 * Whether a context is bound to the current process. The context has a reference to the struct pid
 * of its process, so the comparison is safe.
 */
static inline bool memwait_context_is_own(const struct memwait_context *context)
{
	return READ_ONCE(context->binding.process) == task_tgid(current);
}

/* Whether a context was bound to a process that has closed it. */
static inline bool memwait_context_has_ended(const struct memwait_context *context)
{
	return !refcount_read(&context->binding.uses);
}

/* Whether there is a completion, or a deadline to check. */
static inline bool memwait_context_is_readable(const struct memwait_context *context)
{
	return READ_ONCE(context->completions.nr) || READ_ONCE(context->completions.due);
}

/* wake.c */
void memwait_context_wake_pollers(struct memwait_context *context);
void memwait_context_wake(struct memwait_context *context);
void memwait_context_unlock_and_wake(struct memwait_context *context)
	__releases(&context->lock);

#endif /* MEMWAIT_CONTEXT_H */
