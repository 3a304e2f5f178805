// SPDX-License-Identifier: GPL-2.0-only
/*
 * From a user address to the key of a word, and what keeps a key meaningful.
 *
 * A word of a shared mapping of a regular file is *(address_space, byte offset)*: every process
 * that maps it meets in one queue, wherever it maps it. Any other word is *(mm, address)*. With
 * MEMWAIT_PRIVATE the caller promises that nobody outside its address space uses the word, and no
 * mapping is looked at.
 *
 * A key must not outlive its owner, or waiters of another owner that is allocated at its address
 * would share its queue. A word of a shared mapping therefore carries a reference to the file of
 * its vma. The mm of a private word is the caller's own, which stays while the call lasts. An async
 * wait outlives the call, so its context pins the path of the file, and its inode, or the mm_struct
 * (not its mappings: nothing of the process is kept running), see user.c.
 *
 * A thread that sleeps keeps the open file itself, as one does that is blocked in read(2): it is
 * within a system call on it, which no process can leave behind.
 *
 * What is kept must never be able to keep a memwait context, or the two would keep each other alive
 * for ever. A regular file cannot. Files of anonymous inodes (an io_uring can have a context among
 * its registered files) and of devices might, and are refused. So are files that map the pages of
 * another one (Coda's), as nothing but the open file keeps that one's file system from umount.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "memwait.h"

static void memwait_word_set_private(struct memwait_word *word, unsigned long address)
{
	word->key.owner = (unsigned long)current->mm;
	word->key.offset = address;
	word->file = NULL;
}

static int memwait_word_from_vma(struct memwait_word *word, struct vm_area_struct *vma,
				 unsigned long address)
{
	struct inode *inode;

	if (!vma_is_accessible(vma))
		return -EFAULT;
	if (vma->vm_flags & (VM_IO | VM_PFNMAP))
		return -EOPNOTSUPP;

	/* VM_MAYSHARE: VM_SHARED is not set if the file was opened for reading only. */
	if (!(vma->vm_flags & VM_MAYSHARE) || !vma->vm_file) {
		memwait_word_set_private(word, address);
		return 0;
	}

	inode = file_inode(vma->vm_file);
	if (!S_ISREG(inode->i_mode) || memwait_inode_is_anonymous(inode) ||
	    vma->vm_file->f_mapping->host != inode)
		return -EOPNOTSUPP;

	word->key.owner = (unsigned long)vma->vm_file->f_mapping | MEMWAIT_KEY_SHARED;
	word->key.offset = ((u64)vma->vm_pgoff << PAGE_SHIFT) + (address - vma->vm_start);
	word->file = get_file(vma->vm_file);
	return 0;
}

/**
 * memwait_word_get() - find the key of a word
 * @word: filled in on success; given back with memwait_word_put()
 * @addr: address of the word in the caller's address space, aligned
 * @flags: MEMWAIT_SIZE_* and MEMWAIT_PRIVATE
 *
 * Context: process context of the caller, may sleep. Takes the vma's lock or mmap_lock for
 * reading, and neither with MEMWAIT_PRIVATE.
 *
 * Return:
 * * 0
 * * -EFAULT: no such user address, or, without MEMWAIT_PRIVATE, no accessible mapping there
 * * -EOPNOTSUPP: a mapping of a device, of an anonymous inode's file, or of another file's pages
 * * -EINTR: the task is being killed
 */
int memwait_word_get(struct memwait_word *word, u64 addr, u32 flags)
{
	unsigned long address = (unsigned long)addr;
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	bool vma_locked;
	int err;

	if (address != addr || !access_ok((void __user *)address, memwait_size(flags)))
		return -EFAULT;

	address = untagged_addr(address);
	if (flags & MEMWAIT_PRIVATE) {
		memwait_word_set_private(word, address);
		return 0;
	}

	vma = memwait_lock_vma(mm, address);
	vma_locked = vma;
	if (!vma_locked) {
		if (mmap_read_lock_killable(mm))
			return -EINTR;
		vma = vma_lookup(mm, address);
	}
	err = vma ? memwait_word_from_vma(word, vma, address) : -EFAULT;
	if (vma_locked)
		memwait_unlock_vma(vma);
	else
		mmap_read_unlock(mm);
	return err;
}
