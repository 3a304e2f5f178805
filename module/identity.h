/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What has an id: a thread, a process or a context. See identity.c.
 */
#ifndef MEMWAIT_IDENTITY_H
#define MEMWAIT_IDENTITY_H

#include <linux/list.h>
#include <linux/llist.h>
#include <linux/rcupdate.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "memwait.h"

struct memwait_user;

/**
 * struct memwait_identity - a thread, a process or a context that has an id
 * @id: its id
 * @user: for which it is counted, with a reference
 * @call: the number of the call, of many steps, by which waiters are told of its death; or 0
 * @dead: set once, before it is added to the dead
 * @who: the task_struct of the thread, or the signal_struct of the process, only compared; %NULL:
 *	of a context
 * @tid: the thread, as the initial PID namespace calls it; or 0
 * @who_node: in the table of those, until it is dead
 * @lock: protects the next three
 * @queues: the queues that look to it, by &memwait_queue.looks_to_node
 * @moved_to: the queues that look to it as the thread that has moved waiters there, by
 *	&memwait_queue.mover_node
 * @contexts: of a process: those that end with it, by &memwait_context.process_node
 * @dead_llist: among the dead that the work has not seen yet
 * @dead_node: in &memwait_user.dead; of the work
 * @rcu: frees it
 */
struct memwait_identity {
	u64 id;
	struct memwait_user *user;
	u64 call;
	bool dead;
	const void *who;
	pid_t tid;
	struct hlist_node who_node;
	spinlock_t lock;	/* see the top of identity.c */
	struct list_head queues;
	struct list_head moved_to;
	struct list_head contexts;
	union {
		struct llist_node dead_llist;
		struct list_head dead_node;
		struct rcu_head rcu;
	};
};

/**
 * struct memwait_deaths - what the work in owner.c is given
 * @dead: identities that have died, the last one first
 * @queue: of the work
 * @work: tells waiters of the deaths
 */
struct memwait_deaths {
	struct llist_head dead;
	struct workqueue_struct *queue;
	struct work_struct work;
};

extern bool memwait_has_owners;
extern struct memwait_identity memwait_nobody;
extern struct memwait_deaths memwait_deaths;
struct memwait_identity *memwait_identity_of(const void *who);
struct memwait_identity *memwait_identity_new(struct memwait_context *context, const void *who);
int memwait_context_use(struct memwait_context *context);
int memwait_identity_bind(struct memwait_context *context);
void memwait_identity_kill(struct memwait_identity *identity);
struct memwait_queue *memwait_identity_lock_queue(struct memwait_identity *identity);
void memwait_identity_free(struct memwait_identity *identity);
void memwait_identity_init(void);
void memwait_identity_exit(void);

#endif /* MEMWAIT_IDENTITY_H */
