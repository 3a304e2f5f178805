// SPDX-License-Identifier: GPL-2.0-only
/*
 * Words, expected values and deadlines, as user space passes them.
 *
 * The key of a word in a shared mapping of a regular file is *(address_space, byte offset)*: all
 * processes that map the word share one queue, whatever address they map it at. The key of any
 * other word is *(mm, address)*. With MEMWAIT_PRIVATE the caller promises that no other address
 * space uses the word, and the kernel looks up no mapping.
 *
 * A waiter's key must not outlive its space, because another space could be allocated at the same
 * address and share the queue. Therefore a word of a shared mapping holds a reference to the file
 * of its vma. The mm of a private word is the caller's own mm, which lives for the whole call. An
 * async wait outlives the call, so its context pins the file's path and inode, or the mm_struct
 * (not its mappings, which end with the process), see pin.c. A sleeping thread has a reference to
 * the open file itself, like a thread in read(2). That reference ends with the system call, which
 * ends with the thread at the latest.
 *
 * A referenced object must not reference a memwait context; otherwise neither the object nor the
 * context would ever be freed. A regular file cannot reference a context. Files of devices and of
 * anonymous inodes might reference a context (an io_uring can register a context's file), and are
 * refused. Files that map another file's pages (Coda's) are also refused, because only the open
 * file prevents umount of the other file's file system.
 */
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/nsproxy.h>
#include <linux/sched/mm.h>
#include <linux/time_namespace.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "word.h"

static void memwait_word_set_private(struct memwait_word *word, unsigned long address)
{
	word->key.space = (unsigned long)current->mm;
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

	/* Do not check VM_SHARED, which is clear if the file was opened read-only. */
	if (!(vma->vm_flags & VM_MAYSHARE) || !vma->vm_file) {
		memwait_word_set_private(word, address);
		return 0;
	}

	inode = file_inode(vma->vm_file);
	if (!S_ISREG(inode->i_mode) || memwait_inode_is_anonymous(inode) ||
	    vma->vm_file->f_mapping->host != inode)
		return -EOPNOTSUPP;

	word->key.space = (unsigned long)vma->vm_file->f_mapping | MEMWAIT_KEY_SHARED;
	word->key.offset = ((u64)vma->vm_pgoff << PAGE_SHIFT) + (address - vma->vm_start);
	word->file = get_file(vma->vm_file);
	return 0;
}

/**
 * memwait_word_get() - find the key of a word
 * @word: filled in on success; put with memwait_word_put()
 * @addr: address of the word in the caller's address space, aligned
 * @flags: MEMWAIT_SIZE_* and MEMWAIT_PRIVATE
 *
 * Context: process context of the caller, may sleep. Takes the vma's lock or mmap_lock for reading,
 * except with MEMWAIT_PRIVATE.
 *
 * Return:
 * * 0
 * * -EFAULT: no such user address, or, without MEMWAIT_PRIVATE, no accessible mapping at this
 *   address
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

/**
 * memwait_compare() - does a word hold the expected value?
 * @addr: address of the word, aligned, access_ok()
 * @expected: compared on the word's size
 * @flags: MEMWAIT_SIZE_*
 *
 * Context: may fault and sleep, unless page faults are disabled.
 *
 * Return: 0 if it does; MEMWAIT_NOT_EQUAL; or -EFAULT.
 */
int memwait_compare(u64 addr, u64 expected, u32 flags)
{
	const void __user *word = u64_to_user_ptr(addr);
	bool equal = false;
	int err = -EFAULT;
	u64 value64;
	u32 value32;
	u16 value16;
	u8 value8;

	switch (flags & MEMWAIT_SIZE_MASK) {
	case MEMWAIT_SIZE_U8:
		err = get_user(value8, (const u8 __user *)word);
		equal = value8 == (u8)expected;
		break;
	case MEMWAIT_SIZE_U16:
		err = get_user(value16, (const u16 __user *)word);
		equal = value16 == (u16)expected;
		break;
	case MEMWAIT_SIZE_U32:
		err = get_user(value32, (const u32 __user *)word);
		equal = value32 == (u32)expected;
		break;
	case MEMWAIT_SIZE_U64:
		err = get_user(value64, (const u64 __user *)word);
		equal = value64 == expected;
		break;
	}
	if (err)
		return err;
	return equal ? 0 : MEMWAIT_NOT_EQUAL;
}

/**
 * memwait_expires() - convert a deadline from the caller's time namespace to host time
 * @deadline: the deadline, from user space
 * @flags: MEMWAIT_CLOCK_REALTIME or not
 *
 * Context: process context of the caller.
 *
 * Return: the host time; KTIME_MAX (292 years after time 0) means never.
 */
ktime_t memwait_expires(u64 deadline, u32 flags)
{
	ktime_t expires = min_t(u64, deadline, KTIME_MAX);

#ifdef CONFIG_TIME_NS
	if (expires != KTIME_MAX && !(flags & MEMWAIT_CLOCK_REALTIME)) {
		ktime_t offset =
			timespec64_to_ktime(current->nsproxy->time_ns->offsets.monotonic);

		if (offset > 0)
			expires = max_t(ktime_t, ktime_sub(expires, offset), 0);
		else if (offset < 0)
			expires = ktime_add_safe(expires, -offset);
	}
#endif
	return expires;
}
