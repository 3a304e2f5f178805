// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts and limits, which bound the kernel resources that a user can use.
 *
 * Resources count against the limits of the user that opened the context. Their memory is charged
 * to the memory cgroup of the requesting thread. A charge that would exceed the limit fails and
 * changes nothing. A call first charges the maximum that it may need, and uncharges the rest before
 * it returns. Only other calls of the same user can observe the difference.
 */
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "user.h"

/* ULONG_MAX: not set at load time. */
unsigned long memwait_limits[MEMWAIT_LIMITS] = { [0 ... MEMWAIT_LIMITS - 1] = ULONG_MAX };

/*
 * The default limit is one per 2^n bytes of memory. On a 64-bit kernel a wait with a deadline takes
 * 200 bytes, a context with its file and a cached pin 820 bytes, an identity 280 bytes, a cached
 * wait 200 bytes, and a record of an interrupted thread 100 bytes; a wait with MEMWAIT_OWNED takes
 * 88 more bytes. At the limits, these together take about a twentieth of the memory. In addition, a
 * pin may be the last reference to 1.6 KiB of a closed file plus its contents, or to up to 12 KiB
 * of a dead process. Because each pin counts as MEMWAIT_PIN_WAITS waits, these take up to another
 * twelfth. A record of an interrupted thread also holds the thread's struct pid. Each new record
 * frees the records of up to two dead threads, so a context has hardly more records than threads
 * have lived at the same time.
 */
static const u8 memwait_memory_each[MEMWAIT_LIMITS] __initconst = {
	[MEMWAIT_WAITS] = 14,
	[MEMWAIT_CONTEXTS] = 18,
	[MEMWAIT_OWNERS] = 16,
	[MEMWAIT_CACHED_WAITS] = 17,
};

/* A machine with less memory gets the same limits as a machine with this much memory. */
#define MEMWAIT_LEAST_MEMORY	(256ULL << 20)

/*
 * Users, by uid. All users share the lock, which is therefore raw: on PREEMPT_RT a thread that was
 * preempted while it held a sleeping lock would delay all other users.
 */
static struct rb_root memwait_users = RB_ROOT;
static DEFINE_RAW_SPINLOCK(memwait_users_lock);
static work_func_t memwait_user_reap __ro_after_init, memwait_user_put_pins __ro_after_init;

/**
 * memwait_user_init() - set the limits left unset at load time
 * @reap: function of &memwait_user.reap, see owner.c
 * @put_pins: function of &memwait_user.put_pins, see pin.c
 *
 * Context: process context.
 */
void __init memwait_user_init(work_func_t reap, work_func_t put_pins)
{
	enum memwait_resource i;
	struct sysinfo info;
	u64 memory;

	memwait_user_reap = reap;
	memwait_user_put_pins = put_pins;
	si_meminfo(&info);
	memory = (u64)(info.totalram - info.totalhigh) * info.mem_unit;
	memory = max_t(u64, memory, MEMWAIT_LEAST_MEMORY);
	for (i = 0; i < MEMWAIT_LIMITS; i++) {
		if (memwait_limits[i] == ULONG_MAX)
			memwait_limits[i] = memory >> memwait_memory_each[i];
	}
}

/*
 * Returns the user to charge for the current thread. A user namespace does not provide new limits.
 * In a namespace that an ordinary user created, that user is charged; in a namespace that root
 * created, a user counts as the user to which it is mapped.
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

/* Gets the user with a uid. If there is none, adds and gets @new, unless @new is NULL. */
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

	/*
	 * Allocate without the lock, because reclaim in the caller's memory cgroup may take a long
	 * time.
	 */
	new = kzalloc(sizeof(*new), MEMWAIT_GFP);
	if (!new)
		return NULL;
	new->uid = uid;
	refcount_set(&new->refs, 1);
	INIT_LIST_HEAD(&new->dead);
	INIT_WORK(&new->reap, memwait_user_reap);
	init_llist_head(&new->left_pins);
	INIT_WORK(&new->put_pins, memwait_user_put_pins);

	user = memwait_user_find(uid, new);
	if (user != new)
		kfree(new);
	return user;
}

/**
 * memwait_user_next() - describe the user with the next uid
 * @least: the lowest uid to consider
 * @usage: set to the usage of the first user from @least on
 *
 * Context: process context.
 *
 * Return: false if there is no such user.
 */
bool memwait_user_next(u64 least, struct memwait_usage *usage)
{
	struct memwait_user *user = NULL;
	struct rb_node *node;
	enum memwait_resource i;

	raw_spin_lock(&memwait_users_lock);
	node = memwait_users.rb_node;
	while (node) {
		if (__kuid_val(memwait_user_at(node)->uid) >= least) {
			user = memwait_user_at(node);
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	if (user) {
		usage->uid = user->uid;
		for (i = 0; i < MEMWAIT_RESOURCES; i++)
			usage->used[i] = atomic_long_read(&user->used[i]);
		usage->refused = atomic_long_read(&user->refused);
	}
	raw_spin_unlock(&memwait_users_lock);
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

	/* Like refcount_dec_and_lock(), which does not support raw locks. */
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
