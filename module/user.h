/* SPDX-License-Identifier: GPL-2.0-only */
/* Users, the resources that they use, and the limits: see user.c. */
#ifndef MEMWAIT_USER_H
#define MEMWAIT_USER_H

#include <linux/gfp.h>
#include <linux/llist.h>
#include <linux/refcount.h>
#include <linux/rbtree.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>

/*
 * Allocations are charged to the caller's memory cgroup, and fail at its limit instead of invoking
 * the OOM killer.
 */
#define MEMWAIT_GFP		(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL)

/* Resources counted per user. */
enum memwait_resource {
	/* Async waits until they are cancelled or read, one for each word of a group; and pins. */
	MEMWAIT_WAITS,
	MEMWAIT_CONTEXTS,
	MEMWAIT_OWNERS,		/* threads and contexts that have an id */
	MEMWAIT_CACHED_WAITS,	/* ended waits cached for reuse */
	MEMWAIT_LIMITS,		/* number of resources that have their own limit */
	/* Words in the records of interrupted threads; MEMWAIT_WAITS has the limit. */
	MEMWAIT_POSITIONS = MEMWAIT_LIMITS,
	MEMWAIT_RESOURCES,
};

/**
 * struct memwait_user - a user, shared by all contexts of the user
 * @node: entry of the tree of users
 * @uid: the user
 * @refs: one per context and identity; drops to 0 under the lock of the tree of users
 * @used: usage per resource
 * @refused: how many charges of waits, contexts and owners have failed
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
	atomic_long_t refused;
	struct llist_head left_pins;
	struct work_struct put_pins;
	struct list_head dead;
	struct work_struct reap;
};

/**
 * struct memwait_usage - what a user uses, for debugfs
 * @uid: the user
 * @used: usage per resource
 * @refused: see &memwait_user.refused
 */
struct memwait_usage {
	kuid_t uid;
	long used[MEMWAIT_RESOURCES];
	long refused;
};

extern unsigned long memwait_limits[MEMWAIT_LIMITS];
bool memwait_user_next(u64 least, struct memwait_usage *usage);
struct memwait_user *memwait_user_get(void);
void memwait_user_put(struct memwait_user *user);
bool memwait_user_is_own(const struct memwait_user *user);
void memwait_user_init(work_func_t reap, work_func_t put_pins);

/**
 * memwait_user_charge() - charge a resource to a user
 * @user: the user
 * @resource: the resource
 * @n: amount
 *
 * Context: any.
 *
 * Return: false if the charge would exceed the limit; nothing is charged then.
 */
static inline bool memwait_user_charge(struct memwait_user *user, enum memwait_resource resource,
				       unsigned long n)
{
	unsigned long limit = READ_ONCE(memwait_limits[resource == MEMWAIT_POSITIONS ?
						       MEMWAIT_WAITS : resource]);
	long used = atomic_long_read(&user->used[resource]);

	do {
		if (n > limit || used > limit - n) {
			if (resource < MEMWAIT_CACHED_WAITS)
				atomic_long_inc(&user->refused);
			return false;
		}
	} while (!atomic_long_try_cmpxchg(&user->used[resource], &used, used + n));
	return true;
}

static inline void memwait_user_uncharge(struct memwait_user *user,
					 enum memwait_resource resource, unsigned long n)
{
	atomic_long_sub(n, &user->used[resource]);
}

#endif /* MEMWAIT_USER_H */
