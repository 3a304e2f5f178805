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
 * wait outlives the call, so its context pins the file, or the mm_struct (not its mappings: nothing
 * of the process is kept running), see user.c.
 *
 * What is kept must never be able to keep a memwait context, or the two would keep each other alive
 * for ever. A regular file cannot. Files of anonymous inodes (an io_uring can have a context among
 * its registered files) and of devices might, and are refused.
 */
#include <linux/file.h>
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
	word->object = NULL;
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
	if (!S_ISREG(inode->i_mode) || memwait_inode_is_anonymous(inode))
		return -EOPNOTSUPP;

	word->key.owner = (unsigned long)vma->vm_file->f_mapping | MEMWAIT_KEY_SHARED;
	word->key.offset = ((u64)vma->vm_pgoff << PAGE_SHIFT) + (address - vma->vm_start);
	word->object = get_file(vma->vm_file);
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
 * * -EOPNOTSUPP: a mapping of a device or of an anonymous inode's file
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

static bool memwait_key_is_shared(const struct memwait_key *key)
{
	return key->owner & MEMWAIT_KEY_SHARED;
}

/**
 * memwait_object_put() - let go of what keeps a word, for memwait_word_put() and pins
 * @key: of the word
 * @object: its file or mm_struct
 *
 * Context: any but interrupts. With a spinlock held only as memwait_word_move() does.
 */
void memwait_object_put(const struct memwait_key *key, void *object)
{
	if (memwait_key_is_shared(key))
		fput(object);
	else
		mmdrop(object);
}

/**
 * memwait_word_move() - make the word of a blocked thread the same as another
 * @word: of a thread that the caller moves; its word was the caller's too
 * @target: the other word, from memwait_word_get() in the same task
 *
 * What keeps one word of an owner keeps all of them. A thread that is moved to a word of another
 * owner may be of another process, so that its word needs a reference from now on.
 *
 * Context: the queues of both words are locked. fput() does not sleep, and the mm of a private word
 * is the caller's own, so that its last reference is not here.
 */
void memwait_word_move(struct memwait_word *word, const struct memwait_word *target)
{
	struct memwait_word old = *word;

	word->key = target->key;
	if (old.key.owner == target->key.owner)
		return;
	if (memwait_key_is_shared(&word->key)) {
		word->object = get_file(target->object);
	} else {
		mmgrab(current->mm);
		word->object = current->mm;
	}
	memwait_word_put(&old);
}
