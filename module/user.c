// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts, limits and pins, which bound what a user can make the kernel hold.
 *
 * Resources count for the user that opened the context. Their memory is charged to the memory
 * cgroup of the requesting thread. A charge over the limit changes nothing. A call charges first
 * and gives back what it does not need in the end: only other calls of the same user can see that.
 *
 * Each async wait has a reference to a pin, which holds the file or mm_struct. A context remembers,
 * without references, the pin of a file and the pin of an mm_struct that it has used last: a wait
 * on a word of the same space shares the pin, any other wait makes a new pin. So there are no more
 * pins than waits, and most contexts have one. A file is identified by its address_space, as in the
 * key: the first file represents all others of that address_space. A requeue does not change the
 * space, so the wait keeps its pin. A context caches the memory of one freed pin for the next pin:
 * where waits are armed and read one by one, each has a pin of its own.
 *
 * A pin counts as MEMWAIT_PIN_WAITS waits of its user from its allocation until it is freed.
 *
 * A pin holds the path and inode, not the open file. Locks, leases and write access end when user
 * space closes the file, but umount gets EBUSY.
 *
 * Putting a path may take long: the last put of an unlinked file frees all its pages, or asks a
 * FUSE daemon, which may never answer. So a call collects unused pins and puts them last, without
 * locks. umount succeeds once close(2), cancel or read returns. A kernel thread, and a dying
 * thread, leaves pins of files to a work of the pins' user, so that a user delays only its own
 * pins. The workqueue is not WQ_MEM_RECLAIM: like delayed_fput(), the work runs the code of any
 * file system, which may need memory, and wait for a workqueue that is not WQ_MEM_RECLAIM either.
 */
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/user_namespace.h>

#include "compat.h"
#include "context.h"

/* ULONG_MAX: not set at load time. */
unsigned long memwait_limits[MEMWAIT_LIMITS] = {
	[0 ... MEMWAIT_LIMITS - 1] = ULONG_MAX,
};

/*
 * The default limit is one per 2^n bytes of memory. On 64 bits a wait with a deadline takes 200
 * bytes, a context with its file and a cached pin 820 bytes, an identity 280 bytes, a cached wait
 * 200, a record of an interrupted thread 100; a wait with MEMWAIT_OWNED 88 more. Together that is
 * about a twentieth of the memory. But a pin may be the last reference to 1.6 KiB of a closed file
 * plus its contents, or to up to 12 KiB of a dead process. Because each pin counts as
 * MEMWAIT_PIN_WAITS waits, these take up to another twelfth. Such a record also holds its thread's
 * struct pid. Each new record frees those of up to two dead threads, so a context has hardly more
 * of these than threads have lived at the same time.
 */
static const u8 memwait_memory_each[MEMWAIT_LIMITS] __initconst = {
	[MEMWAIT_WAITS] = 14,
	[MEMWAIT_CONTEXTS] = 18,
	[MEMWAIT_OWNERS] = 16,
	[MEMWAIT_CACHED_WAITS] = 17,
};

/* Smaller machines get the limits of this much memory. */
#define MEMWAIT_LEAST_MEMORY	(256ULL << 20)

/*
 * Users, by uid. All users share the lock, which is therefore raw: on PREEMPT_RT a thread that was
 * preempted while it held a sleeping lock would hold up all others.
 */
static struct rb_root memwait_users = RB_ROOT;
static DEFINE_RAW_SPINLOCK(memwait_users_lock);
/* kmalloc() would round the size up to 512 bytes. */
struct kmem_cache *memwait_owned_cache;
static struct workqueue_struct *memwait_put_queue;

static work_func_t memwait_user_reap __ro_after_init;

static void memwait_put_left(struct work_struct *work);

/**
 * memwait_limits_init() - set the limits left unset at load time
 *
 * Context: process context.
 */
void __init memwait_limits_init(void)
{
	enum memwait_resource i;
	struct sysinfo info;
	u64 memory;

	si_meminfo(&info);
	memory = (u64)(info.totalram - info.totalhigh) * info.mem_unit;
	memory = max_t(u64, memory, MEMWAIT_LEAST_MEMORY);
	for (i = 0; i < MEMWAIT_LIMITS; i++) {
		if (memwait_limits[i] == ULONG_MAX)
			memwait_limits[i] = memory >> memwait_memory_each[i];
	}
}

/*
 * The user to charge for the current thread. A user namespace gives no fresh limits: in a namespace
 * that an ordinary user created, that user is charged; in a namespace that root created, each
 * mapped user is charged.
 */
static kuid_t memwait_current_user(void)
{
	const struct user_namespace *ns;
	kuid_t uid = current_uid();

	for (ns = current_user_ns(); ns != &init_user_ns; ns = ns->parent) {
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			uid = ns->owner;
	}
	return uid;
}

/**
 * memwait_user_is_own() - is this the user to charge for the current thread?
 * @user: the user
 *
 * Context: process context.
 *
 * Return: true if so.
 */
bool memwait_user_is_own(const struct memwait_user *user)
{
	return uid_eq(user->uid, memwait_current_user());
}

static struct memwait_user *memwait_user_at(const struct rb_node *node)
{
	return rb_entry(node, struct memwait_user, node);
}

static int memwait_user_cmp(const void *uid, const struct rb_node *node)
{
	const kuid_t *a = uid, b = memwait_user_at(node)->uid;

	return uid_lt(*a, b) ? -1 : uid_gt(*a, b);
}

static int memwait_user_cmp_node(struct rb_node *new, const struct rb_node *node)
{
	return memwait_user_cmp(&memwait_user_at(new)->uid, node);
}

/* Gets the user with an id; or, if there is none, adds @new, unless that is NULL, and gets it. */
static struct memwait_user *memwait_user_find(kuid_t uid, struct memwait_user *new)
{
	struct memwait_user *user = new;
	struct rb_node *node;

	raw_spin_lock(&memwait_users_lock);
	if (new)
		node = rb_find_add(&new->node, &memwait_users, memwait_user_cmp_node);
	else
		node = rb_find(&uid, &memwait_users, memwait_user_cmp);
	if (node) {
		user = memwait_user_at(node);
		refcount_inc(&user->refs);
	}
	raw_spin_unlock(&memwait_users_lock);
	return user;
}

/**
 * memwait_user_get() - get the user to charge for the current thread
 *
 * Context: process context, may sleep.
 *
 * Return: the user, for memwait_user_put(); %NULL if there is no memory.
 */
struct memwait_user *memwait_user_get(void)
{
	kuid_t uid = memwait_current_user();
	struct memwait_user *user, *new;

	user = memwait_user_find(uid, NULL);
	if (user)
		return user;

	/* Without the lock: reclaim in the caller's memory cgroup may take long. */
	new = kzalloc(sizeof(*new), MEMWAIT_GFP);
	if (!new)
		return NULL;
	new->uid = uid;
	refcount_set(&new->refs, 1);
	INIT_LIST_HEAD(&new->dead);
	INIT_WORK(&new->reap, memwait_user_reap);
	init_llist_head(&new->left_pins);
	INIT_WORK(&new->put_pins, memwait_put_left);

	user = memwait_user_find(uid, new);
	if (user != new)
		kfree(new);
	return user;
}

/**
 * memwait_user_put() - put a user
 * @user: from memwait_user_get()
 *
 * Context: any but interrupts.
 */
void memwait_user_put(struct memwait_user *user)
{
	enum memwait_resource i;
	bool last;

	/* Like refcount_dec_and_lock(), which cannot take a raw lock. */
	if (refcount_dec_not_one(&user->refs))
		return;
	raw_spin_lock(&memwait_users_lock);
	last = refcount_dec_and_test(&user->refs);
	if (last)
		rb_erase(&user->node, &memwait_users);
	raw_spin_unlock(&memwait_users_lock);
	if (!last)
		return;
	for (i = 0; i < MEMWAIT_RESOURCES; i++)
		WARN_ON_ONCE(atomic_long_read(&user->used[i]));
	kfree(user);
}

/* Takes a new pin's references. @file is the word's, or %NULL. */
static void memwait_pin_take(struct memwait_pin *pin, const struct file *file)
{
	const struct path *user_path;

	if (!file) {
		mmgrab(current->mm);
		return;
	}
	ihold(memwait_pin_inode(pin));
	pin->path = file->f_path;
	path_get(&pin->path);
	user_path = file_user_path(file);
	pin->user_path = user_path == &file->f_path ? (struct path){} : *user_path;
	path_get(&pin->user_path);
}

/*
 * Frees a pin without references, or caches its memory for the next pin of @context, unless that is
 * NULL. Mounts are put last, because they hold the inode's file system.
 */
static void memwait_pin_free(struct memwait_pin *pin, struct memwait_user *user,
			     struct memwait_context *context)
{
	if (pin->space & MEMWAIT_KEY_SHARED) {
		iput(memwait_pin_inode(pin));
		path_put(&pin->path);
		path_put(&pin->user_path);
	} else {
		mmdrop((struct mm_struct *)(unsigned long)pin->space);
	}
	memwait_user_uncharge(user, MEMWAIT_WAITS, MEMWAIT_PIN_WAITS);
	/*
	 * A full barrier, as in memwait_pin_get(): this use of the memory ends before the next
	 * begins.
	 */
	if (context)
		pin = xchg(&context->cached_pin, pin);
	kfree(pin);
}

static void memwait_pins_free(struct memwait_user *user, struct memwait_context *context,
			      struct llist_head *unused)
{
	struct memwait_pin *pin, *next;

	llist_for_each_entry_safe(pin, next, llist_del_all(unused), node) {
		memwait_pin_free(pin, user, context);
		cond_resched();
	}
}

static void memwait_put_left(struct work_struct *work)
{
	struct memwait_user *user = container_of(work, struct memwait_user, put_pins);

	memwait_pins_free(user, NULL, &user->left_pins);
	memwait_user_put(user);
	module_put(THIS_MODULE);	/* memwait_user_exit() waits for the rest */
}

/*
 * Leaves pins of files that no wait uses to the work of their user, to whom the caller holds a
 * reference, and frees those of address spaces. Does not wait for a file system.
 */
static void memwait_pins_leave(struct memwait_user *user, struct llist_head *unused)
{
	struct llist_node *first = NULL, *last = NULL;
	struct memwait_pin *pin, *next;

	llist_for_each_entry_safe(pin, next, llist_del_all(unused), node) {
		if (!(pin->space & MEMWAIT_KEY_SHARED)) {
			memwait_pin_free(pin, user, NULL);
		} else {
			if (last)
				last->next = &pin->node;
			else
				first = &pin->node;
			last = &pin->node;
		}
		cond_resched();
	}
	if (!first)
		return;
	llist_add_batch(first, last, &user->left_pins);

	/* If the work is queued already, it has both references and will see the pins. */
	refcount_inc(&user->refs);
	__module_get(THIS_MODULE);
	if (!queue_work(memwait_put_queue, &user->put_pins)) {
		module_put(THIS_MODULE);
		memwait_user_put(user);
	}
}

/**
 * memwait_pins_put() - free pins that no wait uses
 * @context: of the pins
 * @unused: from memwait_pin_put()
 *
 * A dying thread leaves them to a work, because others wait for descriptors that it has yet to
 * close; so does a kernel thread.
 *
 * Context: process context. It may sleep forever: the caller holds no lock, and has done everything
 * that others wait for.
 */
void memwait_pins_put(struct memwait_context *context, struct llist_head *unused)
{
	if (unlikely(current->flags & (PF_KTHREAD | PF_EXITING)))
		memwait_pins_leave(context->user, unused);
	else
		memwait_pins_free(context->user, context, unused);
}

/**
 * memwait_pin_get() - get a pin for a word of an async wait: a pin of its context, or a new pin
 * @context: of the wait
 * @word: from memwait_word_get() in the same task
 *
 * If another thread makes a pin of the same space at the same time, there are two.
 *
 * Context: process context, may sleep; takes the context's lock.
 *
 * Return: a reference to the pin, for memwait_pin_put(); or an ERR_PTR(): -ENOSPC, -ENOMEM.
 */
struct memwait_pin *memwait_pin_get(struct memwait_context *context,
				    const struct memwait_word *word)
{
	const u64 space = word->key.space;
	struct memwait_pin *pin;

	/*
	 * A remembered pin has references: the last is dropped, and the pin forgotten, under the
	 * lock.
	 */
	spin_lock(&context->lock);
	pin = *memwait_pin_last(context, space);
	if (pin && pin->space == space)
		refcount_inc(&pin->refs);
	else
		pin = NULL;
	spin_unlock(&context->lock);
	if (pin)
		return pin;

	if (!memwait_user_charge(context->user, MEMWAIT_WAITS, MEMWAIT_PIN_WAITS))
		return ERR_PTR(-ENOSPC);
	pin = xchg(&context->cached_pin, NULL) ?: kmalloc(sizeof(*pin), MEMWAIT_GFP);
	if (!pin) {
		memwait_user_uncharge(context->user, MEMWAIT_WAITS, MEMWAIT_PIN_WAITS);
		return ERR_PTR(-ENOMEM);
	}
	pin->space = space;
	memwait_pin_take(pin, word->file);
	refcount_set(&pin->refs, 1);
	atomic_inc(&context->nr_pins);
	return pin;
}

/**
 * memwait_pin_put() - drop a reference to a pin
 * @pin: the pin
 * @context: whose pin it is
 * @unused: gets the pin with its last reference, for memwait_pins_put()
 *
 * Context: process context; takes the context's lock.
 */
void memwait_pin_put(struct memwait_pin *pin, struct memwait_context *context,
		     struct llist_head *unused)
{
	if (!refcount_dec_and_lock(&pin->refs, &context->lock))
		return;
	__acquire(&context->lock);	/* for sparse */
	if (*memwait_pin_last(context, pin->space) == pin)
		*memwait_pin_last(context, pin->space) = NULL;
	spin_unlock(&context->lock);
	atomic_dec(&context->nr_pins);
	llist_add(&pin->node, unused);
}

/**
 * memwait_user_init() - create the cache and the workqueue that users need
 * @reap: the function of a user's work, see owner.c
 *
 * Context: process context, may sleep.
 *
 * Return: 0 or -ENOMEM.
 */
int __init memwait_user_init(work_func_t reap)
{
	memwait_user_reap = reap;
	memwait_put_queue = alloc_workqueue("memwait_put", WQ_UNBOUND, 0);
	if (!memwait_put_queue)
		return -ENOMEM;
	memwait_owned_cache = kmem_cache_create("memwait_owned",
						sizeof(struct memwait_async_waiter) +
						sizeof(struct memwait_owned), 0, 0, NULL);
	if (memwait_owned_cache)
		return 0;
	destroy_workqueue(memwait_put_queue);
	return -ENOMEM;
}

void memwait_user_exit(void)
{
	destroy_workqueue(memwait_put_queue);
	kmem_cache_destroy(memwait_owned_cache);
}
