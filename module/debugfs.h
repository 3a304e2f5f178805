/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lists of all waiters and of all ids. See debugfs.c.
 */
#ifndef MEMWAIT_DEBUGFS_H
#define MEMWAIT_DEBUGFS_H

#include <linux/init.h>
#include <linux/types.h>

struct memwait_queue;

#ifdef CONFIG_DEBUG_FS
u32 memwait_queue_markers(const struct memwait_queue *queue);
void memwait_debugfs_init(void);
void memwait_debugfs_exit(void);
#else
static inline u32 memwait_queue_markers(const struct memwait_queue *queue)
{
	return 0;
}

static inline void memwait_debugfs_init(void)
{
}

static inline void memwait_debugfs_exit(void)
{
}
#endif

#endif /* MEMWAIT_DEBUGFS_H */
