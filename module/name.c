// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a word is called outside of the kernel, in tracepoints and in debugfs.
 *
 * A key has addresses of kernel objects in it, which nobody is to see. A word of a file is called
 * by the file's device and inode, as /proc/PID/maps calls it, and its offset; a private word by
 * device 0, which no file has, the id of its process, and its address.
 *
 * Names are made in atomic context, and without a reference of their own. That is safe where
 * another one holds the word meanwhile: the system call that has looked it up; its waiter, while
 * that stands in a queue and the queue is locked; or the pin of an async wait that the caller owns,
 * or whose context is locked, and that has not been given back: memwait_async_end() does that, for
 * the owner of a wait that has ended. Then there is a reference to the inode that the address_space
 * belongs to, or to a file of it; or to the mm_struct, which need not have a process any more.
 */
#include <linux/fs.h>
#include <linux/mm_types.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>

#include "memwait.h"
#include "name.h"

/*
 * The process that an address space belongs to, as the initial PID namespace calls it; 0: none. Not
 * the current one, if that can be helped: it may be one of several that share the address space, as
 * a child of vfork(2), and all are to call it alike.
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
 * @key: the word's key; what it names is held, see the top of the file
 *
 * Context: any but interrupts.
 */
void memwait_name(struct memwait_name *name, const struct memwait_key *key)
{
	const struct inode *inode;

	/* A waiter that was claimed may be moved meanwhile, to a word of the same owner. */
	name->offset = READ_ONCE(key->offset);
	if (key->owner & MEMWAIT_KEY_SHARED) {
		inode = ((struct address_space *)(unsigned long)
			 (key->owner & ~MEMWAIT_KEY_SHARED))->host;
		name->dev = inode->i_sb->s_dev;
		name->ino = inode->i_ino;
	} else {
		name->dev = 0;
		name->ino = memwait_mm_process((struct mm_struct *)(unsigned long)key->owner);
	}
}
