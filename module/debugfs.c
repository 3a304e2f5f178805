// SPDX-License-Identifier: GPL-2.0-only
/*
 * debugfs files, for root. memwait/ids lists all living ids, one per line, newest first. The walk
 * has a marker in the list of identities, and moves away from the end at which new identities are
 * added, so the walk ends.
 *
 * memwait/users lists all users with an open context or an id, one per line, ordered by uid.
 *
 * memwait/queues lists all waiters, one per line.
 *
 * A waiter that stays in its queue from the first read(2) to the last is listed exactly once. A
 * waiter that joins, leaves or moves during that time may or may not be listed; a waiter that moves
 * may be listed twice.
 *
 * The walk goes through the buckets, and records MEMWAIT_WALK_STEP waiters per lock section. The
 * next lock section continues after the key and number of the last waiter, whether or not that
 * waiter is still queued. In each bucket the walk skips waiters that joined after the walk had
 * reached the bucket, so these waiters cannot prolong the walk; however, each word that was added
 * since then costs a search.
 */
#include <linux/debugfs.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/seq_file.h>

#include "context.h"
#include "owner.h"
#include "trace.h"

/* Waiters recorded per lock section. */
#define MEMWAIT_WALK_STEP	16

/**
 * struct memwait_description - a waiter as shown to root
 * @kind: thread, any (thread on several words), async, or group (async wait on several words)
 * @pid: PID of the process that waits or opened the context
 * @tid: the thread, or 0
 * @context: number of the context, or 0
 * @id: id of the async wait, or 0
 * @expires: deadline; KTIME_MAX: never
 * @clock: an enum memwait_async_clock
 * @command: name of the thread that waits or opened the context
 */
struct memwait_description {
	const char *kind;
	pid_t pid;
	pid_t tid;
	u64 context;
	u64 id;
	ktime_t expires;
	int clock;
	char command[TASK_COMM_LEN];
};

/**
 * struct memwait_line - the line of a waiter
 * @word: name of the word
 * @waiter: the waiter
 * @since: when it joined its first queue, in jiffies
 * @self: owner id of the thread or context that waits, or 0
 * @owner: owner that its word watches, or 0
 * @owner_tid: thread id of @owner, or 0
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
 * struct memwait_walk - a walk through the queues, one for each open file
 * @bucket: index of the present bucket
 * @last_number: .number of the bucket when the walk reached it
 * @begun: the walk has reached @bucket
 * @key: key of the waiter that was looked at last
 * @number: number of that waiter
 * @next_line: first of @lines not shown yet
 * @nr_lines: length of @lines
 * @lines: lines of the last step
 */
struct memwait_walk {
	unsigned int bucket;
	u64 last_number;
	bool begun;
	struct memwait_key key;
	u64 number;
	unsigned int next_line;
	unsigned int nr_lines;
	struct memwait_line lines[MEMWAIT_WALK_STEP];
};

static struct dentry *memwait_debugfs;

static void memwait_describe_thread(const struct memwait_group *group,
				    struct memwait_description *description)
{
	description->kind = group->nr == 1 ? "thread" : "any";
	description->pid = task_tgid_nr(group->task);
	description->tid = task_pid_nr(group->task);
	get_task_comm(description->command, group->task);
}

static void memwait_describe_async(const struct memwait_async_waiter *wait,
				   struct memwait_description *description)
{
	description->kind = wait->group.nr > 1 ? "group" :
			    wait->group.persistent ? "persistent" : "async";
	description->pid = wait->group.context->pid;
	description->context = wait->group.context->number;
	description->id = wait->id;
	strscpy(description->command, wait->group.context->command, sizeof(description->command));
}

/* Describes a wait that was pending. The lock of the bucket of one of its waiters is held. */
static void memwait_describe(struct memwait_group *group, struct memwait_description *description)
{
	description->expires = group->deadline.expires;
	description->clock = group->clock;
	if (group->async)
		memwait_describe_async(memwait_async_of(group), description);
	else
		memwait_describe_thread(group, description);
}

static void memwait_walk_note(struct memwait_walk *walk, struct memwait_bucket *bucket,
			      struct memwait_waiter *waiter)
{
	struct memwait_line *line = &walk->lines[walk->nr_lines];
	const struct memwait_owned *first;

	if (!memwait_group_is_pending(memwait_group_of(waiter)))
		return;
	memset(line, 0, sizeof(*line));
	memwait_name(&line->word, &waiter->word.key);
	memwait_describe(memwait_group_of(waiter), &line->waiter);
	line->since = waiter->since;
	line->self = waiter->owned ? memwait_owned_of(waiter)->identity->id : 0;
	/* .watched is freed only when no word watches it; .watched changes under buckets' locks. */
	first = memwait_watch_find(bucket, &waiter->word.key);
	if (first && first->watched) {
		line->owner = first->watched->id;
		line->owner_tid = first->watched->tid;
	}
	walk->nr_lines++;
}

/* Does one step in a locked bucket. Returns whether another step is needed. */
static bool memwait_walk_bucket(struct memwait_walk *walk, struct memwait_bucket *bucket)
{
	struct memwait_waiter *waiter;
	unsigned int nr;

	lockdep_assert_held(&bucket->lock);
	if (!walk->begun) {
		walk->begun = true;
		walk->last_number = bucket->number;
		walk->key = (struct memwait_key){};
		walk->number = 0;
	}
	waiter = memwait_bucket_next(bucket, &walk->key, walk->number);
	for (nr = 0; waiter && nr < MEMWAIT_WALK_STEP; nr++) {
		walk->key = waiter->word.key;
		walk->number = waiter->number;
		if (waiter->number <= walk->last_number)
			memwait_walk_note(walk, bucket, waiter);
		else
			walk->number = U64_MAX;	/* skip to the next word */
		waiter = memwait_bucket_next(bucket, &walk->key, walk->number);
	}
	return waiter;
}

/* Records more waiters. Returns -ENOENT if there are none. */
static int memwait_walk_step(struct memwait_walk *walk)
{
	struct memwait_bucket *bucket;
	bool more;

	walk->next_line = 0;
	walk->nr_lines = 0;
	while (walk->bucket <= memwait_bucket_mask) {
		bucket = &memwait_buckets[walk->bucket];
		memwait_bucket_let_others(bucket);
		memwait_bucket_lock(bucket);
		more = memwait_walk_bucket(walk, bucket);
		spin_unlock(&bucket->lock);
		if (!more) {
			walk->begun = false;
			walk->bucket++;
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

/* The file does not support seeking: the next line is the first line that was not shown. */
static void *memwait_walk_start(struct seq_file *seq, loff_t *pos)
{
	return *pos ? memwait_walk_line(seq->private) : SEQ_START_TOKEN;
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
	return seq_open_private(file, &memwait_walk_ops, sizeof(struct memwait_walk)) ?:
	       nonseekable_open(inode, file);
}

static const struct file_operations memwait_walk_fops = {
	.owner = THIS_MODULE,
	.open = memwait_walk_open,
	.read = seq_read,
	.release = seq_release_private,
};

/**
 * struct memwait_ids - a walk through the ids, one for each open file
 * @marker: the walk's marker
 * @id: id of the current line; 0: there is no line
 * @kind: thread or context
 * @pid: the process
 * @tid: the thread, or 0
 * @command: name of the thread; for a context, name of the process, if it lives
 */
struct memwait_ids {
	struct memwait_identity marker;
	u64 id;
	const char *kind;
	pid_t pid;
	pid_t tid;
	char command[TASK_COMM_LEN];
};

/* Records an identity, if it lives. */
static void memwait_ids_note(struct memwait_ids *ids, const struct memwait_identity *identity)
{
	struct task_struct *task;

	if (READ_ONCE(identity->dead))
		return;
	ids->id = identity->id;
	ids->kind = identity->who ? "thread" : "context";
	ids->pid = identity->pid;
	ids->tid = identity->tid;
	ids->command[0] = 0;
	task = pid_task(find_pid_ns(ids->tid ?: ids->pid, &init_pid_ns), PIDTYPE_PID);
	if (task)
		get_task_comm(ids->command, task);
}

/*
 * Looks at each identity in a separate RCU section, because any number of identities may be dead.
 */
static void *memwait_ids_line(struct memwait_ids *ids)
{
	struct memwait_identity *identity;

	while (!ids->id) {
		rcu_read_lock();
		identity = memwait_identity_next(&ids->marker);
		if (identity)
			memwait_ids_note(ids, identity);
		rcu_read_unlock();
		if (!identity)
			return NULL;
		if (memwait_is_killed())
			return ERR_PTR(-EINTR);
		cond_resched();
	}
	return ids;
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
		ids->id = 0;
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
	struct memwait_ids *ids = __seq_open_private(file, &memwait_ids_ops, sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	memwait_identity_begin_walk(&ids->marker);
	return nonseekable_open(inode, file);
}

static int memwait_ids_release(struct inode *inode, struct file *file)
{
	struct memwait_ids *ids = ((struct seq_file *)file->private_data)->private;

	memwait_identity_end_walk(&ids->marker);
	return seq_release_private(inode, file);
}

static const struct file_operations memwait_ids_fops = {
	.owner = THIS_MODULE,
	.open = memwait_ids_open,
	.read = seq_read,
	.release = memwait_ids_release,
};

/**
 * struct memwait_users_walk - a walk through the users, one for each open file
 * @next: lowest uid that was not shown yet
 * @usage: the current line
 */
struct memwait_users_walk {
	u64 next;
	struct memwait_usage usage;
};

static void *memwait_users_line(struct memwait_users_walk *walk)
{
	return memwait_user_next(walk->next, &walk->usage) ? walk : NULL;
}

static void *memwait_users_start(struct seq_file *seq, loff_t *pos)
{
	return *pos ? memwait_users_line(seq->private) : SEQ_START_TOKEN;
}

static void *memwait_users_next(struct seq_file *seq, void *line, loff_t *pos)
{
	struct memwait_users_walk *walk = seq->private;

	++*pos;
	if (line != SEQ_START_TOKEN)
		walk->next = (u64)__kuid_val(walk->usage.uid) + 1;
	return memwait_users_line(walk);
}

static int memwait_users_show(struct seq_file *seq, void *line)
{
	const struct memwait_users_walk *walk = line;
	const long *used = walk->usage.used;

	if (line == SEQ_START_TOKEN) {
		seq_puts(seq, "uid\twaits\tcontexts\towners\tcached\tpositions\trefused\n");
		return 0;
	}
	seq_printf(seq, "%u\t%ld\t%ld\t%ld\t%ld\t%ld\t%ld\n",
		   from_kuid_munged(seq_user_ns(seq), walk->usage.uid), used[MEMWAIT_WAITS],
		   used[MEMWAIT_CONTEXTS], used[MEMWAIT_OWNERS], used[MEMWAIT_CACHED_WAITS],
		   used[MEMWAIT_POSITIONS], walk->usage.refused);
	return 0;
}

static const struct seq_operations memwait_users_ops = {
	.start = memwait_users_start,
	.next = memwait_users_next,
	.stop = memwait_walk_stop,
	.show = memwait_users_show,
};

static int memwait_users_open(struct inode *inode, struct file *file)
{
	return seq_open_private(file, &memwait_users_ops, sizeof(struct memwait_users_walk)) ?:
	       nonseekable_open(inode, file);
}

static const struct file_operations memwait_users_fops = {
	.owner = THIS_MODULE,
	.open = memwait_users_open,
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
	debugfs_create_file("users", 0400, memwait_debugfs, NULL, &memwait_users_fops);
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
