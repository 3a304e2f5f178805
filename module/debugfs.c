// SPDX-License-Identifier: GPL-2.0-only
/*
 * debugfs, for root. memwait/ids: all living ids, one per line. The walk looks the next id up for
 * each line, so it keeps nothing between two lines.
 *
 * memwait/queues: all waiters, one per line.
 *
 * A waiter that stays in its queue from the first read(2) to the last is listed exactly once. A
 * waiter that joins, leaves or moves meanwhile may be listed, missing, or listed twice.
 *
 * The walk first gathers the keys of all queues with waiters. A queue that keeps a waiter stays in
 * the hash table, but a resize moves queues between two tables. The gathering holds the table's
 * mutex, as a resize does. It may sleep: nobody else takes that mutex. A queue that is freed and
 * reused for another word may lead the walk into another bucket. The nulls marker tells which
 * bucket has ended, and the walk restarts its bucket, as look-ups do. Reuse within a bucket only
 * leads back to known keys.
 *
 * The walk then looks each key up and notes MEMWAIT_WALK_STEP waiters per lock section. Between two
 * steps the queue has two markers: one behind the noted waiters, one behind the waiter that was
 * last when the walk came, so that new waiters cannot hold the walk up. A marker is a waiter that
 * is not pending and cannot be claimed. A notify or requeue dequeues each marker it meets and does
 * not count it. Both start at the oldest waiter, and dequeue each waiter they meet or move it to
 * the end. So if a marker is gone, all waiters before it are gone. The walk then continues at the
 * oldest waiter or, without the end marker, has finished the queue.
 *
 * Waiters that have returned to their places are in a tree by number. The walk notes them first and
 * remembers the last number.
 *
 * MEMWAIT_IOC_WAITERS does not count markers.
 *
 *	Lock order:	queue->lock -> memwait_walks_lock
 */
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/rcupdate.h>
#include <linux/rhashtable.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>

#include "context.h"
#include "debugfs.h"
#include "identity.h"
#include "memwait.h"
#include "name.h"

/* Waiters noted per lock section. */
#define MEMWAIT_WALK_STEP	16

/* Initial room for keys; doubles when full. */
#define MEMWAIT_WALK_KEYS	256

/**
 * struct memwait_line - what is shown of a waiter
 * @word: name of the word
 * @waiter: the waiter
 * @since: when it joined its first queue, in jiffies
 * @self: its own owner id, or 0
 * @owner: owner that its queue watches, or 0
 * @owner_tid: thread of @owner, or 0
 */
struct memwait_line {
	struct memwait_name word;
	struct memwait_description waiter;
	u32 since;
	u64 self;
	u64 owner;
	pid_t owner_tid;
};

/**
 * struct memwait_walk - an open file
 * @node: in memwait_walks
 * @gathered: @keys is complete
 * @keys: of the queues that had waiters
 * @nr_keys: length of @keys
 * @max_keys: room in @keys
 * @next_key: current queue
 * @begun: a step along the list of that queue was made
 * @last_number: last number given in that queue when the walk came
 * @returned: returned waiters are noted up to this number
 * @place: marker behind the noted waiters; like @end queued or not, under the queue's lock
 * @end: marker behind the rest
 * @next_line: first of @lines not shown yet
 * @nr_lines: length of @lines
 * @lines: of the last step
 */
struct memwait_walk {
	struct list_head node;
	bool gathered;
	struct memwait_key *keys;
	size_t nr_keys;
	size_t max_keys;
	size_t next_key;
	bool begun;
	u64 last_number;
	u64 returned;
	struct memwait_waiter place;
	struct memwait_waiter end;
	unsigned int next_line;
	unsigned int nr_lines;
	struct memwait_line lines[MEMWAIT_WALK_STEP];
};

static LIST_HEAD(memwait_walks);
static DEFINE_SPINLOCK(memwait_walks_lock);
static struct dentry *memwait_debugfs;

static enum memwait_claim memwait_marker_claim(struct memwait_waiter *waiter, u8 result,
					       struct memwait_wakes *wakes)
{
	return MEMWAIT_NOT_CLAIMED;
}

static bool memwait_marker_is_pending(const struct memwait_waiter *waiter)
{
	return false;
}

static const struct memwait_waiter_ops memwait_marker_ops = {
	.claim = memwait_marker_claim,
	.is_pending = memwait_marker_is_pending,
};

/**
 * memwait_queue_markers() - count the markers among a queue's waiters
 * @queue: the queue
 *
 * Context: the queue's lock is held.
 *
 * Return: the number of markers.
 */
u32 memwait_queue_markers(const struct memwait_queue *queue)
{
	struct memwait_walk *walk;
	u32 nr = 0;

	lockdep_assert_held(&queue->lock);
	if (likely(list_empty(&memwait_walks)))
		return 0;
	spin_lock(&memwait_walks_lock);
	list_for_each_entry(walk, &memwait_walks, node) {
		nr += READ_ONCE(walk->place.queue) == queue;
		nr += READ_ONCE(walk->end.queue) == queue;
	}
	spin_unlock(&memwait_walks_lock);
	return nr;
}

static int memwait_walk_grow(struct memwait_walk *walk)
{
	size_t max = walk->max_keys ? 2 * walk->max_keys : MEMWAIT_WALK_KEYS;
	struct memwait_key *keys = kvmalloc_array(max, sizeof(*keys), GFP_KERNEL_ACCOUNT);

	if (!keys)
		return -ENOMEM;
	if (walk->nr_keys)
		memcpy(keys, walk->keys, walk->nr_keys * sizeof(*keys));
	kvfree(walk->keys);
	walk->keys = keys;
	walk->max_keys = max;
	return 0;
}

/* Adds a queue's key unless it is in @keys from @first on. Returns false if there is no room. */
static bool memwait_walk_add(struct memwait_walk *walk, size_t first,
			     const struct memwait_queue *queue)
{
	struct memwait_key key = {
		.owner = READ_ONCE(queue->key.owner),
		.offset = READ_ONCE(queue->key.offset),
	};
	size_t i;

	/* A queue being freed may have any key: then the look-up finds no queue. */
	if (!key.owner || !READ_ONCE(queue->nr_waiters))
		return true;
	for (i = first; i < walk->nr_keys; i++) {
		if (walk->keys[i].owner == key.owner && walk->keys[i].offset == key.offset)
			return true;
	}
	if (walk->nr_keys == walk->max_keys)
		return false;
	walk->keys[walk->nr_keys++] = key;
	return true;
}

static int memwait_walk_gather_bucket(struct memwait_walk *walk, struct bucket_table *table,
				      unsigned int hash)
{
	size_t first = walk->nr_keys;
	struct memwait_queue *queue;
	struct rhash_head *head;
	bool room, whole;
	int err = 0;

	do {
		walk->nr_keys = first;
		room = true;
		rcu_read_lock();
		rht_for_each_rcu(head, table, hash) {
			queue = container_of(head, struct memwait_queue, node);
			room = memwait_walk_add(walk, first, queue);
			if (!room)
				break;
		}
		whole = room && head == RHT_NULLS_MARKER(rht_bucket(table, hash));
		rcu_read_unlock();
		if (!room)
			err = memwait_walk_grow(walk);
		else if (!whole)
			cond_resched();
	} while (!err && !whole);
	return err;
}

static int memwait_walk_gather(struct memwait_walk *walk)
{
	struct rhashtable *queues = &memwait_queues;
	struct bucket_table *table;
	unsigned int hash;
	int err;

	if (mutex_lock_killable(&queues->mutex))
		return -EINTR;
	walk->nr_keys = 0;
	err = walk->keys ? 0 : memwait_walk_grow(walk);
	table = rht_dereference(queues->tbl, queues);
	while (table && !err) {
		for (hash = 0; hash < table->size && !err; hash++) {
			err = memwait_walk_gather_bucket(walk, table, hash);
			if (memwait_is_killed())
				err = -EINTR;
			cond_resched();
		}
		/* Inserts go to the newest table; with the mutex held nothing moves. */
		table = rht_dereference(table->future_tbl, queues);
	}
	mutex_unlock(&queues->mutex);
	walk->gathered = !err;
	return err;
}

/* Enqueues a marker behind a waiter of the locked queue. */
static void memwait_marker_put(struct memwait_waiter *marker, struct memwait_queue *queue,
			       const struct memwait_waiter *behind)
{
	lockdep_assert_held(&queue->lock);
	marker->number = behind->number;
	list_add(&marker->node, (struct list_head *)&behind->node);
	queue->nr_waiters++;
	WRITE_ONCE(marker->queue, queue);
}

static void memwait_walk_note(struct memwait_walk *walk, const struct memwait_queue *queue,
			      const struct memwait_waiter *waiter)
{
	struct memwait_line *line = &walk->lines[walk->nr_lines];

	lockdep_assert_held(&queue->lock);
	if (!waiter->ops->is_pending(waiter))
		return;
	memset(line, 0, sizeof(*line));
	memwait_name(&line->word, &waiter->word.key);
	waiter->ops->describe(waiter, &line->waiter);
	line->since = waiter->since;
	line->self = waiter->identity ? waiter->identity->id : 0;
	/* .watched is freed only after all queues stopped watching it, under their locks. */
	line->owner = queue->watched ? queue->watched->id : 0;
	line->owner_tid = queue->watched ? queue->watched->tid : 0;
	walk->nr_lines++;
}

/*
 * Notes some returned waiters. Returns whether there may be more. Ignores numbers given after the
 * walk came to the queue.
 */
static bool memwait_walk_returned(struct memwait_walk *walk, struct memwait_queue *queue)
{
	struct memwait_waiter *waiter;
	unsigned int nr;

	lockdep_assert_held(&queue->lock);
	if (!walk->last_number)
		walk->last_number = queue->number;
	for (nr = 0; nr < MEMWAIT_WALK_STEP; nr++) {
		waiter = memwait_queue_next_returned(queue, walk->returned);
		if (!waiter || waiter->number > walk->last_number)
			return false;
		memwait_walk_note(walk, queue, waiter);
		walk->returned = waiter->number;
	}
	return true;
}

/* One step in a locked queue. Returns whether another one is needed. */
static bool memwait_walk_queue(struct memwait_walk *walk, struct memwait_queue *queue)
{
	struct memwait_waiter *waiter, *last = NULL;
	unsigned int nr = 0;

	lockdep_assert_held(&queue->lock);
	if (!walk->begun && memwait_walk_returned(walk, queue))
		return true;
	if (walk->nr_lines && !walk->begun && !list_empty(&queue->waiters))
		return true;
	if (walk->begun && READ_ONCE(walk->end.queue) != queue) {
		if (READ_ONCE(walk->place.queue) == queue)
			memwait_queue_remove(&walk->place);
		return false;
	}
	waiter = list_first_entry(&queue->waiters, struct memwait_waiter, node);
	if (READ_ONCE(walk->place.queue) == queue) {
		waiter = list_next_entry(&walk->place, node);
		memwait_queue_remove(&walk->place);
	}
	list_for_each_entry_from(waiter, &queue->waiters, node) {
		if (waiter == &walk->end) {
			memwait_queue_remove(&walk->end);
			return false;
		}
		if (nr++ == MEMWAIT_WALK_STEP)
			break;
		memwait_walk_note(walk, queue, waiter);
		last = waiter;
	}
	if (list_entry_is_head(waiter, &queue->waiters, node))
		return false;
	if (!walk->begun)
		memwait_marker_put(&walk->end, queue,
				   list_last_entry(&queue->waiters, struct memwait_waiter, node));
	memwait_marker_put(&walk->place, queue, last);
	walk->begun = true;
	return true;
}

/* Notes more waiters. Returns -ENOENT if there are none. */
static int memwait_walk_step(struct memwait_walk *walk)
{
	struct memwait_queue *queue;
	bool more;

	walk->next_line = 0;
	walk->nr_lines = 0;
	while (walk->next_key < walk->nr_keys) {
		queue = memwait_queue_find(&walk->keys[walk->next_key]);
		more = queue && memwait_walk_queue(walk, queue);
		if (queue)
			memwait_queue_unlock(queue, NULL);
		if (!more) {
			walk->begun = false;
			walk->last_number = 0;
			walk->returned = 0;
			walk->next_key++;
		}
		if (walk->nr_lines)
			return 0;
		if (memwait_is_killed())
			return -EINTR;
		cond_resched();
	}
	return -ENOENT;
}

static void *memwait_walk_line(struct memwait_walk *walk)
{
	int err;

	if (walk->next_line == walk->nr_lines) {
		err = memwait_walk_step(walk);
		if (err)
			return err == -ENOENT ? NULL : ERR_PTR(err);
	}
	return &walk->lines[walk->next_line];
}

/* The file cannot seek: the next line is the first that was not shown. */
static void *memwait_walk_start(struct seq_file *seq, loff_t *pos)
{
	struct memwait_walk *walk = seq->private;
	int err;

	if (!walk->gathered) {
		err = memwait_walk_gather(walk);
		if (err)
			return ERR_PTR(err);
	}
	return *pos ? memwait_walk_line(walk) : SEQ_START_TOKEN;
}

static void *memwait_walk_next(struct seq_file *seq, void *line, loff_t *pos)
{
	struct memwait_walk *walk = seq->private;

	++*pos;
	if (line != SEQ_START_TOKEN)
		walk->next_line++;
	return memwait_walk_line(walk);
}

static void memwait_walk_stop(struct seq_file *seq, void *line)
{
}

static void memwait_show_number(struct seq_file *seq, u64 number)
{
	if (number)
		seq_printf(seq, "\t%llu", number);
	else
		seq_puts(seq, "\t-");
}

static int memwait_walk_show(struct seq_file *seq, void *shown)
{
	const struct memwait_line *line = shown;
	const struct memwait_description *waiter = &line->waiter;
	s64 left;

	if (shown == SEQ_START_TOKEN) {
		seq_puts(seq, "word\tkind\tpid\ttid\tcontext\tid\twaited_ms\tleft_ms\tself\towner\t"
			 "owner_tid\tcommand\n");
		return 0;
	}
	seq_printf(seq, "%u:%u:%llu:0x%llx\t%s\t%d", MAJOR(line->word.dev),
		   MINOR(line->word.dev), line->word.ino, line->word.offset, waiter->kind,
		   waiter->pid);
	memwait_show_number(seq, waiter->tid);
	memwait_show_number(seq, waiter->context);
	memwait_show_number(seq, waiter->id);
	seq_printf(seq, "\t%u", jiffies_to_msecs((u32)jiffies - line->since));
	if (waiter->expires == KTIME_MAX) {
		seq_puts(seq, "\t-");
	} else {
		left = ktime_ms_delta(waiter->expires, memwait_now(waiter->clock));
		seq_printf(seq, "\t%lld", left);
	}
	memwait_show_number(seq, line->self);
	memwait_show_number(seq, line->owner);
	memwait_show_number(seq, line->owner_tid);
	seq_putc(seq, '\t');
	seq_escape(seq, waiter->command, " \t\n\\");
	seq_putc(seq, '\n');
	return 0;
}

static const struct seq_operations memwait_walk_ops = {
	.start = memwait_walk_start,
	.next = memwait_walk_next,
	.stop = memwait_walk_stop,
	.show = memwait_walk_show,
};

static int memwait_walk_open(struct inode *inode, struct file *file)
{
	struct memwait_walk *walk;

	walk = __seq_open_private(file, &memwait_walk_ops, sizeof(*walk));
	if (!walk)
		return -ENOMEM;
	walk->place.ops = &memwait_marker_ops;
	walk->end.ops = &memwait_marker_ops;
	spin_lock(&memwait_walks_lock);
	list_add(&walk->node, &memwait_walks);
	spin_unlock(&memwait_walks_lock);
	return nonseekable_open(inode, file);
}

static int memwait_walk_release(struct inode *inode, struct file *file)
{
	struct memwait_walk *walk = ((struct seq_file *)file->private_data)->private;

	memwait_queue_leave(&walk->place, NULL);
	memwait_queue_leave(&walk->end, NULL);
	spin_lock(&memwait_walks_lock);
	list_del(&walk->node);
	spin_unlock(&memwait_walks_lock);
	kvfree(walk->keys);
	return seq_release_private(inode, file);
}

static const struct file_operations memwait_walk_fops = {
	.owner = THIS_MODULE,
	.open = memwait_walk_open,
	.read = seq_read,
	.release = memwait_walk_release,
};

/**
 * struct memwait_ids - an open list of ids, and its present line
 * @id: least id of the present line
 * @kind: what has it
 * @pid: the process
 * @tid: the thread, or 0
 * @command: name of the thread; or of the process, if it lives
 */
struct memwait_ids {
	u64 id;
	const char *kind;
	pid_t pid;
	pid_t tid;
	char command[TASK_COMM_LEN];
};

/* Notes an identity, if it lives. Returns whether it does. */
static bool memwait_ids_note(struct memwait_ids *ids, const struct memwait_identity *identity)
{
	struct task_struct *task;

	if (READ_ONCE(identity->dead))
		return false;
	ids->kind = identity->tid ? "thread" : identity->who ? "process" : "context";
	ids->pid = identity->pid;
	ids->tid = identity->tid;
	ids->command[0] = 0;
	task = pid_task(find_pid_ns(ids->tid ?: ids->pid, &init_pid_ns), PIDTYPE_PID);
	if (task)
		get_task_comm(ids->command, task);
	return true;
}

/* Each look at an identity is an RCU section of its own: any number may be dead. */
static void *memwait_ids_line(struct memwait_ids *ids)
{
	struct memwait_identity *identity;
	bool noted;

	for (;; ids->id++) {
		rcu_read_lock();
		identity = memwait_identity_next(&ids->id);
		noted = identity && memwait_ids_note(ids, identity);
		rcu_read_unlock();
		if (!identity)
			return NULL;
		if (noted)
			return ids;
		if (memwait_is_killed())
			return ERR_PTR(-EINTR);
		cond_resched();
	}
}

static void *memwait_ids_start(struct seq_file *seq, loff_t *pos)
{
	return *pos ? memwait_ids_line(seq->private) : SEQ_START_TOKEN;
}

static void *memwait_ids_next(struct seq_file *seq, void *line, loff_t *pos)
{
	struct memwait_ids *ids = seq->private;

	++*pos;
	if (line != SEQ_START_TOKEN)
		ids->id++;
	return memwait_ids_line(ids);
}

static int memwait_ids_show(struct seq_file *seq, void *line)
{
	const struct memwait_ids *ids = line;

	if (line == SEQ_START_TOKEN) {
		seq_puts(seq, "id\tkind\tpid\ttid\tcommand\n");
		return 0;
	}
	seq_printf(seq, "%llu\t%s\t%d", ids->id, ids->kind, ids->pid);
	memwait_show_number(seq, ids->tid);
	seq_putc(seq, '\t');
	seq_escape(seq, ids->command[0] ? ids->command : "-", " \t\n\\");
	seq_putc(seq, '\n');
	return 0;
}

static const struct seq_operations memwait_ids_ops = {
	.start = memwait_ids_start,
	.next = memwait_ids_next,
	.stop = memwait_walk_stop,
	.show = memwait_ids_show,
};

static int memwait_ids_open(struct inode *inode, struct file *file)
{
	return seq_open_private(file, &memwait_ids_ops, sizeof(struct memwait_ids)) ?:
	       nonseekable_open(inode, file);
}

static const struct file_operations memwait_ids_fops = {
	.owner = THIS_MODULE,
	.open = memwait_ids_open,
	.read = seq_read,
	.release = seq_release_private,
};

/**
 * memwait_debugfs_init() - create the debugfs files
 *
 * Context: process context, may sleep.
 */
void __init memwait_debugfs_init(void)
{
	memwait_debugfs = debugfs_create_dir("memwait", NULL);
	debugfs_create_file("queues", 0400, memwait_debugfs, NULL, &memwait_walk_fops);
	debugfs_create_file("ids", 0400, memwait_debugfs, NULL, &memwait_ids_fops);
}

/**
 * memwait_debugfs_exit() - remove the debugfs files
 *
 * Context: process context, may sleep.
 */
void memwait_debugfs_exit(void)
{
	debugfs_remove(memwait_debugfs);
}
