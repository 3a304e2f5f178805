/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom to wake: see wake.c. A waker claims a waiter by memwait_claim_waiter(), which records the
 * thread or context in struct memwait_wakes.
 */
#ifndef MEMWAIT_WAKE_H
#define MEMWAIT_WAKE_H

#include "queue.h"

/**
 * struct memwait_wakes - threads and contexts to wake after dropping the bucket's lock
 * @call: number of a call that may take several steps, or 0
 * @looked: waiters examined
 * @nr_tasks: length of @tasks
 * @nr_contexts: length of @contexts
 * @crowded: the last of @contexts has more than one poller
 * @tasks: claimed threads, and readers of contexts with new completions; a reference to each
 * @contexts: contexts with new completions and with pollers, a reference to each
 */
struct memwait_wakes {
	u64 call;
	unsigned int looked;
	unsigned int nr_tasks;
	unsigned int nr_contexts;
	bool crowded;
	struct task_struct *tasks[MEMWAIT_STEP_WAKES];
	struct memwait_context *contexts[MEMWAIT_STEP_POLLED];
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

u64 memwait_new_call(void);
void memwait_wakes_add_context(struct memwait_wakes *wakes, struct memwait_context *context);

#endif /* MEMWAIT_WAKE_H */
