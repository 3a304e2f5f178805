/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the module share. Data flows one way:
 * ioctl (main.c) -> key (key.c) -> queue (queue.c) -> thread (wait.c) or async wait (async.c).
 */
#ifndef MEMWAIT_H
#define MEMWAIT_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/ktime.h>
#include <linux/types.h>
#include <uapi/linux/memwait.h>

struct file;
struct memwait_context;
struct memwait_queue;
struct memwait_wakes;
struct memwait_waiter;

/**
 * struct memwait_key - what identifies a word
 * @owner: the address_space of a shared mapping, with MEMWAIT_KEY_SHARED set, or the mm_struct;
 *	0: a queue that died
 * @offset: in bytes, within the address_space; or the address within the mm
 *
 * Two keys are the same if, and only if, they name the same word, for as long as something keeps
 * @owner from being freed and used again: see struct memwait_word.
 */
struct memwait_key {
	u64 owner;
	u64 offset;
};

#define MEMWAIT_KEY_SHARED	1ULL

/**
 * struct memwait_word - a key together with what keeps it meaningful
 * @key: the word's key
 * @file: a reference to the file of a shared mapping. It is the file rather than the inode so
 *	that umount finds the file system busy instead of torn. %NULL for a private word, which
 *	lives as long as the caller's mm, or longer by memwait_word_keep().
 */
struct memwait_word {
	struct memwait_key key;
	struct file *file;
};

/**
 * struct memwait_waiter_ops - what differs between a thread and an async wait
 * @joined: the waiter was put into its queue. May be %NULL.
 * @wake: a notify has come to this waiter. Either claims it, takes it out of its queue by
 *	memwait_queue_remove() and returns true: the notify is spent. Or leaves it alone and
 *	returns false: somebody else has ended the wait already and is about to take it out.
 *
 * Context: both are called under the lock of the waiter's queue.
 */
struct memwait_waiter_ops {
	void (*joined)(struct memwait_waiter *waiter);
	bool (*wake)(struct memwait_waiter *waiter, struct memwait_wakes *wakes);
};

/**
 * struct memwait_waiter - an entry of a queue
 * @node: in the queue's list; protected by the queue's lock. Once claimed and removed, it is the
 *	claimer's to use
 * @queue: the queue that it is in, or %NULL; written under the queue's lock
 * @ops: what to do with it
 * @word: what it waits on; not changed while it is queued
 */
struct memwait_waiter {
	struct list_head node;
	struct memwait_queue *queue;
	const struct memwait_waiter_ops *ops;
	struct memwait_word word;
};

/* Contexts that one notify can wake at its end; beyond that they are woken one by one. */
#define MEMWAIT_WAKES_CONTEXTS	8

/**
 * struct memwait_wakes - whom to wake once the queue's lock has been dropped
 * @threads: claimed waiters of sleeping threads, by &memwait_waiter.node
 * @contexts: contexts that got completions
 * @nr_contexts: how many of them there are
 */
struct memwait_wakes {
	struct list_head threads;
	struct memwait_context *contexts[MEMWAIT_WAKES_CONTEXTS];
	unsigned int nr_contexts;
};

/* key.c */
int memwait_word_get(struct memwait_word *word, u64 addr, u32 flags);
void memwait_word_put(struct memwait_word *word);
void memwait_word_keep(struct memwait_word *word);
void memwait_word_drop(struct memwait_word *word);

static inline unsigned int memwait_size(u32 flags)
{
	return 1U << (flags & MEMWAIT_SIZE_MASK);
}

/* queue.c */
int memwait_compare(u64 addr, u64 expected, u32 flags);
int memwait_queue_join(struct memwait_waiter *waiter, const struct memwait_wait *wait, gfp_t gfp);
bool memwait_queue_leave(struct memwait_waiter *waiter);
void memwait_queue_remove(struct memwait_waiter *waiter);
int memwait_queue_notify(const struct memwait_key *key, u32 count);
int memwait_queue_waiters(const struct memwait_key *key);
int memwait_queue_init(void);
void memwait_queue_exit(void);

/* wait.c */
int memwait_prepare(const struct memwait_wait *wait, struct memwait_word *word, ktime_t *expires);
int memwait_wait(const struct memwait_wait *wait);
void memwait_wake_threads(struct list_head *threads);

static inline clockid_t memwait_clock(u32 flags)
{
	return flags & MEMWAIT_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
}

/* async.c */
extern const struct file_operations memwait_fops;
extern unsigned long memwait_max_user_waits;
int memwait_wait_async(struct memwait_context *context, const struct memwait_wait_async *batch);
int memwait_cancel(struct memwait_context *context, const struct memwait_cancel *cancel);
unsigned long memwait_context_user_waits(struct memwait_context *context);
void memwait_context_wake(struct memwait_context *context);
int memwait_async_init(void);
void memwait_async_exit(void);

/* main.c */
long memwait_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

#endif /* MEMWAIT_H */
