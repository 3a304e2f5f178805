/* SPDX-License-Identifier: GPL-2.0-only */
/* Contexts: see context.c for the object, and file.c for the open file. */
#ifndef MEMWAIT_CONTEXT_H
#define MEMWAIT_CONTEXT_H

#include <linux/hrtimer.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/poll.h>
#include <linux/rcuwait.h>

#include "async.h"
#include "pin.h"

/**
 * struct memwait_context - an open file of /dev/memwait
 * @refs: one of the file, one per notify that will wake the context
 * @lock: protects all up to @timers
 * @waits: by id; see alloc.c
 * @completed: completions, oldest first, by &memwait_async_waiter.node; entries leave or rejoin
 *	the head only under @read_lock or when the context ends
 * @readers: threads that block in read(2), by &memwait_reader.node, oldest first
 * @nr_pending: waits queued and not claimed
 * @nr_completed: length of @completed; poll and read load it without @lock
 * @process: of a bound context: its process, with a reference, until its table has closed the
 *	context. Written under @lock
 * @nr_numbered: counter for ids
 * @woken_by: last multi-step call that woke the context, if no read has looked at @completed since
 * @caches: waits for one word, without and with MEMWAIT_OWNED
 * @positions: records of interrupted threads; a record moves to the end when it is checked for a
 *	dead thread; see position.c
 * @nr_positions: length of @positions
 * @last_pins: the pins of the last wait on a private word and of the last wait on a word of a file,
 * or %NULL; without references
 * @cached_pin: memory of a freed pin for the next pin, or %NULL; not protected by a lock
 * @nr_pins: number of its pins that are in use
 * @deadlines: earliest first
 * @timers: fire at the earliest of @deadlines, or before
 * @due: a timer has fired and @deadlines was not checked since, or the check found a passed
 *	deadline
 * @pollers: of poll(2) and epoll(7)
 * @first_reader: the first of @readers; written under @lock
 * @read_lock: serializes readers, so a fault neither loses nor reorders completions
 * @refused: a non-blocking reader did not get @read_lock
 * @user: the user that opened the context, and is charged
 * @identity: owner identity, if any; set once, %NULL again after its end
 * @id: the id of @identity, which stays after its end
 * @table: %NULL: undecided; &memwait_unbound: serves every process that has the file;
 *	&memwait_closed: closed by its process; otherwise the files_struct whose last descriptor of
 *	the context ends it. Set once from %NULL, and to &memwait_closed, under @lock
 * @uses: one per call of its process, and one until the process has closed it; 0: ended
 * @descriptor: the number at which to look first for a descriptor in @table
 * @number: random; this and the next two are for tracing and debugfs
 * @pid: opening process, in the initial PID namespace
 * @command: opening thread's name
 */
struct memwait_context {
	refcount_t refs;
	spinlock_t lock;	/* see the top of claim.c */
	struct rb_root waits;
	struct list_head completed;
	struct list_head readers;
	unsigned int nr_pending;
	unsigned int nr_completed;
	struct pid *process;
	u64 nr_numbered;
	u64 woken_by;
	struct memwait_cache caches[2];
	struct list_head positions;
	unsigned int nr_positions;
	struct memwait_pin *last_pins[2];
	struct memwait_pin *cached_pin;
	atomic_t nr_pins;
	struct timerqueue_head deadlines[MEMWAIT_CLOCKS];
	struct hrtimer timers[MEMWAIT_CLOCKS];

	bool due;
	wait_queue_head_t pollers;
	struct rcuwait first_reader;
	struct mutex read_lock;		/* outermost */
	bool refused;
	struct memwait_user *user;
	struct memwait_identity *identity;
	u64 id;
	fl_owner_t table;
	refcount_t uses;
	unsigned int descriptor;
	u64 number;
	pid_t pid;
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

/* The pointer to a context's last pin of a file, or of an mm_struct. */
static __always_inline struct memwait_pin **memwait_pin_last(struct memwait_context *context,
							     u64 space)
{
	return &context->last_pins[space & MEMWAIT_KEY_SHARED];
}

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
	first = list_first_entry_or_null(&context->readers, struct memwait_reader, node);
	rcu_assign_pointer(context->first_reader.task, first ? first->task : NULL);
}

/* Wakes the first blocked reader, which looks whether there is something to read: see wake.c. */
static inline void memwait_context_wake_reader(struct memwait_context *context)
{
	rcuwait_wake_up(&context->first_reader);	/* its barrier is (E) */
}

/* Whether a context is bound to the current process. The context holds the process's struct pid. */
static inline bool memwait_context_is_own(const struct memwait_context *context)
{
	return READ_ONCE(context->process) == task_tgid(current);
}

/* Whether a context was bound, and its process has closed it. */
static inline bool memwait_context_has_ended(const struct memwait_context *context)
{
	return !refcount_read(&context->uses);
}

/* Whether there is a completion, or a deadline to check. */
static inline bool memwait_context_is_readable(const struct memwait_context *context)
{
	return READ_ONCE(context->nr_completed) || READ_ONCE(context->due);
}

/* wake.c */
void memwait_context_wake_pollers(struct memwait_context *context);
void memwait_context_wake(struct memwait_context *context);
void memwait_context_unlock_and_wake(struct memwait_context *context)
	__releases(&context->lock);

#endif /* MEMWAIT_CONTEXT_H */
