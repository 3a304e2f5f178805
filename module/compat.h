/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The only file with kernel version checks. Each shim names the version that needs it.
 */
#ifndef MEMWAIT_COMPAT_H
#define MEMWAIT_COMPAT_H

#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/version.h>
#include <linux/wait.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void hrtimer_setup(struct hrtimer *timer,
				 enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

/*
 * Added in 6.8. On older kernels the compiler initializes all stack variables, if the kernel is
 * configured this way.
 */
#ifndef __uninitialized
#define __uninitialized
#endif

/* lock_vma_under_rcu() came with 6.4; 7.2 is the first supported kernel that exports it. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0) && defined(CONFIG_PER_VMA_LOCK)
static inline struct vm_area_struct *memwait_lock_vma(struct mm_struct *mm, unsigned long address)
{
	return lock_vma_under_rcu(mm, address);
}

static inline void memwait_unlock_vma(struct vm_area_struct *vma)
{
	vma_end_read(vma);
}
#else
static inline struct vm_area_struct *memwait_lock_vma(struct mm_struct *mm, unsigned long address)
{
	return NULL;
}

static inline void memwait_unlock_vma(struct vm_area_struct *vma)
{
}
#endif

/*
 * Since 6.8, the file that overlayfs opens for a mapping has two paths: the path in the layer, and
 * the path that user space opened. Before 6.8 the file has only the latter path; a reference to
 * that path also holds the layers.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
static inline const struct path *file_user_path(const struct file *file)
{
	return &file->f_path;
}
#endif

/*
 * Since 6.16 the sched_process_exit probe has an argument that says whether the whole process is
 * dead.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
#define MEMWAIT_EXIT_HAS_GROUP_DEAD
#endif

/*
 * Since 6.10 the kernel reports an execve(2) before the exec is done, at a point where it can only
 * succeed or kill the process.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define MEMWAIT_HAS_PREPARE_EXEC
#endif

/*
 * Wakes a thread, like wake_up_process(). The current thread is about to sleep, so the scheduler
 * may run the woken thread on this CPU. Since 6.6 default_wake_function() accepts WF_CURRENT_CPU in
 * addition to WF_SYNC. Modules cannot see the values of these flags. The values are the same in all
 * kernels up to 7.3, and not known for later kernels.
 */
static inline void memwait_wake_up_here(struct task_struct *task)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0) && LINUX_VERSION_CODE < KERNEL_VERSION(7, 4, 0)
	const int wf_sync = 0x10, wf_current_cpu = 0x40;
	struct wait_queue_entry entry = { .private = task };

	default_wake_function(&entry, TASK_NORMAL, wf_sync | wf_current_cpu, NULL);
#else
	wake_up_process(task);
#endif
}

/*
 * Before 6.16 an anonymous inode had no file type, so S_ISREG sufficed to exclude it. However,
 * secretmem set S_IFREG; its inodes are refused on every kernel.
 */
static inline bool memwait_inode_is_anonymous(const struct inode *inode)
{
#ifdef S_ANON_INODE
	if (inode->i_flags & S_ANON_INODE)
		return true;
#endif
	return inode->i_sb->s_magic == ANON_INODE_FS_MAGIC ||
	       inode->i_sb->s_magic == SECRETMEM_MAGIC;
}

#endif /* MEMWAIT_COMPAT_H */
