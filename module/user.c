// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a user can make the kernel keep: counts, limits and pins.
 *
 * Resources count for the user that opened the context. Their memory is charged to the memory
 * cgroup of the requesting thread. A charge over the limit changes nothing. A call charges first
 * and gives back what it does not need in the end: only other calls of the same user can see that.
 *
 * Each async wait has a reference to a pin, which keeps the file or mm_struct. A context remembers
 * the pins of a file and of an mm_struct that it has used last, without references: a wait on a
 * word of the same space shares it, any other makes a pin of its own. So there are no more pins
 * than waits, and most contexts have one. A file is its address_space, as in the key: the first
 * file stands for all others of that address_space. A requeue keeps the space, so the wait keeps
 * its pin. A context keeps the memory of one freed pin for the next one: where waits are armed and
 * read one by one, each has a pin of its own.
 *
 * A pin counts as MEMWAIT_PIN_WAITS waits of its user, from when it is made until it is freed.
 *
 * A pin keeps the path and inode, not the open file. Locks, leases and write access end when user
 * space closes the file, but umount gets EBUSY.
 *
 * Putting a path may take long: the last put of an unlinked file frees all its pages, or asks a
 * FUSE daemon, which may never answer. So a call collects unused pins and puts them last, without
 * locks. umount succeeds once close(2), cancel or read returns. A kernel thread, and a thread that
 * dies, leaves pins of files to a work of their user, so that a user delays only its own pins. The
 * workqueue is no WQ_MEM_RECLAIM: like delayed_fput() the work runs the code of any file system,
 * which may need memory, and wait for a workqueue that is none either. WAIT_ASYNC leaves the file
 * of a wait that was not armed to the work, too: another thread may have unmapped and closed the
 * file since.
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
 * bytes, a context with its file and a spare pin 820 bytes, an identity 280 bytes, a spare 200, a
 * place 100; a wait or spare with MEMWAIT_OWNED 80 more. Together that is about a twentieth of the
 * memory. But a pin may be all that keeps 1.6 KiB of a closed file plus its contents, or up to 12
 * KiB of a dead process. As each counts as MEMWAIT_PIN_WAITS waits, these are another twelfth. A
 * place keeps its thread's struct pid, too. Each new place frees those of two dead threads, so a
 * context has hardly more of these than threads have lived at once.
 */
static const u8 memwait_memory_each[MEMWAIT_LIMITS] __initconst = {
	[MEMWAIT_WAITS] = 14,
	[MEMWAIT_CONTEXTS] = 18,
	[MEMWAIT_OWNERS] = 16,
	[MEMWAIT_SPARES] = 17,
};

/* Smaller machines get the limits of this much memory. */
#define MEMWAIT_LEAST_MEMORY	(256ULL << 20)

static DEFINE_XARRAY(memwait_users);	/* uid -> struct memwait_user */
/* kmalloc() would round the sizes up to 1 KiB, and 512 bytes. */
static struct kmem_cache *memwait_context_cache;
struct kmem_cache *memwait_owned_cache;
static struct workqueue_struct *memwait_put_queue;

static work_func_t memwait_bury __ro_after_init;

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
 * The user to charge for the current thread. A user namespace gives no fresh limits: in one that an
 * ordinary user created, that user is charged. In one that root created, each mapped user is
 * charged.
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
 * memwait_user_is_own() - is a user the one to charge for the current thread?
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

/**
 * memwait_user_get() - get the current thread's user
 *
 * Context: process context, may sleep.
 *
 * Return: the user, for memwait_user_put(); or %NULL: no memory.
 */
static struct memwait_user *memwait_user_get(void)
{
	kuid_t uid = memwait_current_user();
	struct memwait_user *user, *new;

	xa_lock(&memwait_users);
	user = xa_load(&memwait_users, __kuid_val(uid));
	if (user)
		refcount_inc(&user->refs);
	xa_unlock(&memwait_users);
	if (user)
		return user;

	/* Without the lock: reclaim in the caller's memory cgroup may take long. */
	new = kzalloc(sizeof(*new), MEMWAIT_GFP);
	if (!new)
		return NULL;
	new->uid = uid;
	refcount_set(&new->refs, 1);
	INIT_LIST_HEAD(&new->dead);
	INIT_WORK(&new->bury, memwait_bury);
	init_llist_head(&new->left_pins);
	INIT_WORK(&new->put_pins, memwait_put_left);

	xa_lock(&memwait_users);
	/* Uncharged: the table is shared with other users. */
	user = __xa_cmpxchg(&memwait_users, __kuid_val(uid), NULL, new, GFP_KERNEL);
	if (!user)
		swap(user, new);
	else if (!xa_is_err(user))
		refcount_inc(&user->refs);
	else
		user = NULL;
	xa_unlock(&memwait_users);
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

	if (!refcount_dec_and_lock(&user->refs, &memwait_users.xa_lock))
		return;
	__acquire(&memwait_users.xa_lock);	/* for sparse */
	__xa_erase(&memwait_users, __kuid_val(user->uid));
	xa_unlock(&memwait_users);
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
 * Frees a pin without references, or keeps its memory for the next one of @context, if any. Mounts
 * go last: they keep the inode's file system.
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
	/* A full barrier, as where it is taken: this use of the memory is over before the next. */
	if (context)
		pin = xchg(&context->spare_pin, pin);
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

/**
 * memwait_pins_leave() - leave pins of files that no wait uses to the work of their user
 * @user: of the pins' context; caller holds a reference
 * @unused: from memwait_pin_put(); those of address spaces are freed at once
 *
 * Context: process context, may sleep, but does not wait for a file system.
 */
void memwait_pins_leave(struct memwait_user *user, struct llist_head *unused)
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
 * A thread that dies leaves them, as others wait for what it has yet to close, and so does a kernel
 * thread.
 *
 * Context: process context. It may sleep forever: hold no lock, and leave nothing to do that others
 * wait for.
 */
void memwait_pins_put(struct memwait_context *context, struct llist_head *unused)
{
	if (unlikely(current->flags & (PF_KTHREAD | PF_EXITING)))
		memwait_pins_leave(context->user, unused);
	else
		memwait_pins_free(context->user, context, unused);
}

/**
 * memwait_pin_get() - get a pin for a word of an async wait: that of its context, or a new one
 * @context: of the wait
 * @word: from memwait_word_get() in the same task
 *
 * Another thread may make one of the same space meanwhile; then there are two.
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

	/* No pin here is without references: it gets there under the lock. */
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
	pin = xchg(&context->spare_pin, NULL) ?: kmalloc(sizeof(*pin), MEMWAIT_GFP);
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
 * @unused: gets the pin with its last reference, for memwait_pins_put() or memwait_pins_leave()
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
 * memwait_context_alloc() - allocate a context that belongs to the caller's user
 *
 * Context: process context, may sleep.
 *
 * Return: the context, zeroed but for its user and one reference; %NULL if there is no memory.
 */
struct memwait_context *memwait_context_alloc(void)
{
	struct memwait_context *context;

	context = kmem_cache_zalloc(memwait_context_cache, MEMWAIT_GFP);
	if (!context)
		return NULL;
	refcount_set(&context->refs, 1);
	context->user = memwait_user_get();
	if (context->user)
		return context;
	kmem_cache_free(memwait_context_cache, context);
	return NULL;
}

/**
 * memwait_context_free() - free a context
 * @context: after its last put, or not opened; it has no waits and no pins
 *
 * Context: any but interrupts.
 */
void memwait_context_free(struct memwait_context *context)
{
	memwait_user_put(context->user);
	kfree(context->spare_pin);
	kmem_cache_free(memwait_context_cache, context);
}

/**
 * memwait_user_init() - make what users need
 * @bury: of a user, see owner.c
 *
 * Context: process context, may sleep.
 *
 * Return: 0 or -ENOMEM.
 */
int __init memwait_user_init(work_func_t bury)
{
	memwait_bury = bury;
	memwait_put_queue = alloc_workqueue("memwait_put", WQ_UNBOUND, 0);
	if (!memwait_put_queue)
		return -ENOMEM;
	memwait_context_cache = KMEM_CACHE(memwait_context, 0);
	memwait_owned_cache = kmem_cache_create("memwait_owned",
						sizeof(struct memwait_async_waiter) +
						sizeof(struct memwait_owned), 0, 0, NULL);
	if (memwait_context_cache && memwait_owned_cache)
		return 0;
	memwait_user_exit();
	return -ENOMEM;
}

void memwait_user_exit(void)
{
	destroy_workqueue(memwait_put_queue);
	kmem_cache_destroy(memwait_context_cache);	/* or NULL, both */
	kmem_cache_destroy(memwait_owned_cache);
}
