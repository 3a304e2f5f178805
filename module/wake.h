/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads and contexts to wake, see wake.c. memwait_claim_waiter() claims a waiter, and records its
 * thread or context in struct memwait_wakes.
 */
#ifndef MEMWAIT_WAKE_H
#define MEMWAIT_WAKE_H

#include <linux/mutex.h>
#include <linux/rcuwait.h>
#include <linux/wait.h>

#include "queue.h"

/**
 * struct memwait_wakes - threads and contexts to wake after dropping the bucket's lock
 * @call: number of a call that may take several steps, or 0
 * @looked: waiters examined
 * @nr_tasks: length of @tasks
 * @nr_contexts: length of @contexts
 * @crowded: the last context in @contexts has more than one poller
 * @tasks: claimed threads, and readers of contexts with new completions, with a reference to each
 * @contexts: contexts with new completions and with pollers, with a reference to each
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
 * @node: entry of &memwait_completions.readers, until the reader is woken for a completion or
 *	leaves
 * @task: the thread
 * @woken: the reader was taken out of the list. Once this is set, only the thread itself uses the
 *	other members
 */
struct memwait_reader {
	struct list_head node;
	struct task_struct *task;
	bool woken;
};

/**
 * struct memwait_completions - the completions of a context, their readers and pollers
 * @list: completions, oldest first, by &memwait_async_waiter.node; entries leave the head of the
 *	list, or rejoin it there, only under @read_lock or when the context ends
 * @readers: threads that block in read(2), by &memwait_reader.node, oldest first
 * @nr: length of @list; poll and read load it without the lock
 * @due: set when a timer fires; cleared by a check that finds no passed deadline; not protected
 * @refused: a non-blocking reader did not get @read_lock; not protected
 * @woken_by: last multi-step call that woke the context; 0 once a read has looked at @list
 * @pollers: pollers by poll(2) and epoll(7); has its own lock
 * @first_reader: the first of @readers
 * @read_lock: serializes readers, so that a page fault neither loses nor reorders completions
 *
 * The context's lock protects the other members.
 */
struct memwait_completions {
	struct list_head list;
	struct list_head readers;
	unsigned int nr;
	bool due;
	bool refused;
	u64 woken_by;
	wait_queue_head_t pollers;
	struct rcuwait first_reader;
	struct mutex read_lock;		/* outermost */
};

u64 memwait_new_call(void);
void memwait_wakes_add_context(struct memwait_wakes *wakes, struct memwait_context *context);

#endif /* MEMWAIT_WAKE_H */
