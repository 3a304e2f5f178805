// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tracepoints, and the names of words in tracepoints and debugfs.
 *
 * A key contains kernel addresses, which must not leak. A word in a file is named by the file's
 * device and inode, as in /proc/PID/maps, and by its offset. A private word is named by device 0
 * (which no file has), PID and address.
 *
 * Names are built in atomic context, without taking references. The word must be held by one of
 * these:
 *
 *	- the system call that looked the word up,
 *	- a waiter in a queue, while the queue is locked, or
 *	- the pin of an async wait, until memwait_async_end() puts the pin, if the caller owns the
 *	  wait or its context is locked.
 *
 * Each of these holds the address_space's inode, a file of the inode, or the mm_struct. The process
 * of the mm_struct may no longer exist.
 */
#include <linux/mm_types.h>

#define CREATE_TRACE_POINTS
#include "trace.h"

/*
 * Returns the PID, in the initial namespace, of an mm's process, or 0 if there is none. Prefers
 * mm->owner to current, because processes that share an mm, as after vfork(2), must get the same
 * name.
 */
static pid_t memwait_mm_process(const struct mm_struct *mm)
{
	const struct task_struct *task;
	pid_t pid;

	rcu_read_lock();
#ifdef CONFIG_MEMCG
	task = rcu_dereference(mm->owner);
#else
	task = mm == current->mm ? current : NULL;
#endif
	pid = task ? task->tgid : 0;
	rcu_read_unlock();
	return pid;
}

/**
 * memwait_name() - find the name of a word
 * @name: filled in
 * @key: the word's key; its space is held, see the top of this file
 *
 * Context: any but interrupts.
 */
void memwait_name(struct memwait_name *name, const struct memwait_key *key)
{
	const struct inode *inode;

	/* A requeue may concurrently move a claimed waiter to another word in the same space. */
	name->offset = READ_ONCE(key->offset);
	if (key->space & MEMWAIT_KEY_SHARED) {
		inode = ((struct address_space *)(unsigned long)
			 (key->space & ~MEMWAIT_KEY_SHARED))->host;
		name->dev = inode->i_sb->s_dev;
		name->ino = inode->i_ino;
	} else {
		name->dev = 0;
		name->ino = memwait_mm_process((struct mm_struct *)(unsigned long)key->space);
	}
}

/**
 * memwait_async_key() - key of the word of an async wait
 * @wait: its pins are held
 *
 * Context: any but interrupts.
 *
 * Return: the key of the notified word or, if no word was notified, of the first word.
 */
const struct memwait_key *memwait_async_key(struct memwait_async_waiter *wait)
{
	const struct memwait_waiter *waiter = memwait_group_notified(&wait->group);

	return waiter ? &waiter->word.key : &wait->group.waiters->word.key;
}
