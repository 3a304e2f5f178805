/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Contexts, async waits and pins. See claim.c for the protocol.
 */
#ifndef MEMWAIT_CONTEXT_H
#define MEMWAIT_CONTEXT_H

#include <linux/hash.h>
#include <linux/hrtimer.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/path.h>
#include <linux/pid.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/rcuwait.h>
#include <linux/timerqueue.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "memwait.h"
#include "owner.h"

/* Resources counted per user. */
enum memwait_resource {
	/* Async waits until cancelled or read, one for each word of a group; pins. */
	MEMWAIT_WAITS,
	MEMWAIT_CONTEXTS,
	MEMWAIT_OWNERS,		/* threads and contexts that have an id */
	MEMWAIT_CACHED_WAITS,	/* ended waits cached for reuse */
	MEMWAIT_LIMITS,		/* number of resources with a limit of their own */
	/* Words of interrupted threads; the limit is that of MEMWAIT_WAITS. */
	MEMWAIT_POSITIONS = MEMWAIT_LIMITS,
	MEMWAIT_RESOURCES,
};

/**
 * struct memwait_user - shared by the contexts of one user
 * @node: in the tree of users
 * @uid: the user
 * @refs: one per context and identity; drops to 0 under the lock of the tree of users
 * @used: usage per resource
 * @left_pins: pins of files, left by threads that must not sleep forever, see memwait_pins_leave()
 * @put_pins: puts @left_pins; holds a reference to the user while queued
 * @dead: dead identities that are not reaped yet; protected by the lock of identity.c
 * @reap: reports the deaths, see owner.c; holds a reference while it is queued or runs
 */
struct memwait_user {
	struct rb_node node;
	kuid_t uid;
	refcount_t refs;
	atomic_long_t used[MEMWAIT_RESOURCES];
	struct llist_head left_pins;
	struct work_struct put_pins;
	struct list_head dead;
	struct work_struct reap;
};

/**
 * struct memwait_pin - holds a file or mm_struct for async waits of a context
 * @node: list of unused pins
 * @space: as in a key: an address_space, with a reference to its inode; or an mm_struct, with a
 *	reference to it
 * @path: for an address_space: the path of the mapped file
 * @user_path: path that user space opened, if the file system opened another file underneath
 * @refs: one per word of a wait; returns to 0 under the context's lock
 */
struct memwait_pin {
	struct llist_node node;
	u64 space;
	struct path path;
	struct path user_path;
	refcount_t refs;
};

/* Completions that a read takes in one lock section. A shorter read shows that none are left. */
#define MEMWAIT_CHUNK	16

/* A pin counts as so many waits, see user.c. */
#define MEMWAIT_PIN_WAITS	8

enum memwait_state {
	MEMWAIT_ARMING,		/* not pending yet; its waiters may be queued */
	MEMWAIT_QUEUED,		/* pending */
	MEMWAIT_CLAIMED,	/* ended by cancel or close, or about to complete */
	MEMWAIT_COMPLETED,	/* in context->completed */
	MEMWAIT_CACHED,		/* in context->caches; has an old id */
};

/**
 * struct memwait_async_waiter - an async wait, later its completion
 * @node: of a completion: in context->completed
 * @user_data: for the completion
 * @next_cached: list of cached waits
 * @id: for completion and cancel
 * @numbered: in &memwait_context.waits, even while it is cached
 * @count: notifies that counted the wait and were not reported by a completion that was read
 * @reading: with MEMWAIT_PERSISTENT: notifies that the present reader reports; protected by
 *	@read_lock of the context
 * @group: the wait
 */
struct memwait_async_waiter {
	struct list_head node;
	union {
		u64 user_data;
		struct memwait_async_waiter *next_cached;
	};
	u64 id;
	struct rb_node numbered;
	u32 count;
	u32 reading;
	struct memwait_group group;	/* the last member: it has the waiters */
};

/**
 * struct memwait_cache - ended waits that a context caches
 * @first: last freed, chained by &memwait_async_waiter.next_cached
 * @nr: length
 */
struct memwait_cache {
	struct memwait_async_waiter *first;
	unsigned int nr;
};

/**
 * struct memwait_reader - a thread that blocks in read(2)
 * @node: in &memwait_context.readers, until it is woken for a completion or leaves
 * @task: the thread
 * @woken: the reader was taken out of the list. Once this is set, only the thread uses the rest
 */
struct memwait_reader {
	struct list_head node;
	struct task_struct *task;
	bool woken;
};

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

/* user.c */
extern unsigned long memwait_limits[MEMWAIT_LIMITS];
extern struct kmem_cache *memwait_owned_cache;
void memwait_limits_init(void);
struct memwait_user *memwait_user_get(void);
void memwait_user_put(struct memwait_user *user);
bool memwait_user_is_own(const struct memwait_user *user);
struct memwait_pin *memwait_pin_get(struct memwait_context *context,
				    const struct memwait_word *word);
void memwait_pin_put(struct memwait_pin *pin, struct memwait_context *context,
		     struct llist_head *unused);
void memwait_pins_put(struct memwait_context *context, struct llist_head *unused);
int memwait_user_init(work_func_t reap);
void memwait_user_exit(void);

/* context.c */
struct memwait_context *memwait_context_alloc(void);
void memwait_context_free(struct memwait_context *context);
int memwait_context_init(void);
void memwait_context_exit(void);

/**
 * memwait_user_charge() - charge a resource to a user
 * @user: the user
 * @resource: the resource
 * @n: amount
 *
 * Context: any.
 *
 * Return: false if over the limit; nothing is charged then.
 */
static inline bool memwait_user_charge(struct memwait_user *user, enum memwait_resource resource,
				       unsigned long n)
{
	unsigned long limit = READ_ONCE(memwait_limits[resource == MEMWAIT_POSITIONS ?
						       MEMWAIT_WAITS : resource]);
	long used = atomic_long_read(&user->used[resource]);

	do {
		if (n > limit || used > limit - n)
			return false;
	} while (!atomic_long_try_cmpxchg(&user->used[resource], &used, used + n));
	return true;
}

static inline void memwait_user_uncharge(struct memwait_user *user,
					 enum memwait_resource resource, unsigned long n)
{
	atomic_long_sub(n, &user->used[resource]);
}

/* The pointer to a context's last pin of a file, or of an mm_struct. */
static __always_inline struct memwait_pin **memwait_pin_last(struct memwait_context *context,
							     u64 space)
{
	return &context->last_pins[space & MEMWAIT_KEY_SHARED];
}

static inline struct inode *memwait_pin_inode(const struct memwait_pin *pin)
{
	return ((struct address_space *)(unsigned long)(pin->space & ~MEMWAIT_KEY_SHARED))->host;
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

static inline struct memwait_async_waiter *memwait_async_of(struct memwait_group *group)
{
	return container_of(group, struct memwait_async_waiter, group);
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
void memwait_wakes_add_context(struct memwait_wakes *wakes, struct memwait_context *context);
void memwait_context_wake_pollers(struct memwait_context *context);
void memwait_context_wake(struct memwait_context *context);
void memwait_context_unlock_and_wake(struct memwait_context *context)
	__releases(&context->lock);

/* claim.c */
bool memwait_async_claim(struct memwait_async_waiter *wait);
bool memwait_async_list(struct memwait_async_waiter *wait);
void memwait_async_complete(struct memwait_async_waiter *wait, u8 result);
void memwait_async_remember(struct memwait_async_waiter *wait);
int memwait_async_joined(struct memwait_group *group);

/* alloc.c */
struct memwait_async_waiter *memwait_async_alloc(struct memwait_context *context, u32 nr,
						 bool owned);
struct memwait_async_waiter *memwait_async_find(struct memwait_context *context, u64 id);
struct memwait_async_waiter *memwait_async_after(struct memwait_context *context, u64 id);
void memwait_async_free(struct memwait_context *context, struct memwait_async_waiter **waits,
			unsigned int nr);
void memwait_async_free_all(struct memwait_context *context);

/* async.c */
void memwait_async_end(struct memwait_async_waiter *wait, struct llist_head *unused);
void memwait_async_end_all(struct memwait_context *context, struct llist_head *unused);
int memwait_ioc_cancel(struct memwait_context *context, const struct memwait_cancel *cancel,
		       struct llist_head *unused);
bool memwait_is_due(struct memwait_context *context);
void memwait_expire(struct memwait_context *context, size_t room);
void memwait_expire_open(struct memwait_context *context);
void memwait_expire_close(struct memwait_context *context);

/* arm.c */
int memwait_ioc_wait_async(struct memwait_context *context, const struct memwait_wait_async *batch);

/* position.c */

#define MEMWAIT_ABSENT_BITS	10

/**
 * struct memwait_absent - threads of one hash that are away from their waits
 * @lock: protects the rest
 * @positions: their records, by struct pid
 */
struct memwait_absent {
	spinlock_t lock;	/* see the top of position.c */
	struct rb_root positions;
};

struct memwait_position;
extern struct memwait_absent memwait_absent[1 << MEMWAIT_ABSENT_BITS];
struct memwait_position *memwait_position_find(struct memwait_absent *absent);
void memwait_position_return(const struct memwait_position *record, struct memwait_group *group);
void memwait_position_record(struct memwait_position **record, const struct memwait_group *group);
void memwait_position_add(struct memwait_context *context, struct memwait_position *record);
void memwait_position_free(struct memwait_position *record);
void memwait_position_free_all(struct memwait_context *context);
void memwait_position_init(void);

static inline struct memwait_absent *memwait_absent_of(const struct pid *pid)
{
	return &memwait_absent[hash_ptr(pid, MEMWAIT_ABSENT_BITS)];
}

/* memwait_position_find() for the current thread. Only the thread itself adds its record. */
static __always_inline struct memwait_position *memwait_position_take(void)
{
	struct memwait_absent *absent = memwait_absent_of(task_pid(current));

	return likely(RB_EMPTY_ROOT(&absent->positions)) ? NULL : memwait_position_find(absent);
}

/* owner.c */
int memwait_ioc_owner(struct file *file, const struct memwait_owner *owner,
		      struct memwait_owner __user *user);
void memwait_reap_work(struct work_struct *work);
int memwait_close_descriptor(struct file *file, fl_owner_t id);
int memwait_owner_init(void);
void memwait_owner_exit(void);

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

#endif /* MEMWAIT_CONTEXT_H */
