/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lists of all waiters and of all ids. See debugfs.c.
 */
#ifndef MEMWAIT_DEBUGFS_H
#define MEMWAIT_DEBUGFS_H

#include <linux/init.h>

#ifdef CONFIG_DEBUG_FS
void memwait_debugfs_init(void);
void memwait_debugfs_exit(void);
#else
static inline void memwait_debugfs_init(void)
{
}

static inline void memwait_debugfs_exit(void)
{
}
#endif

#endif /* MEMWAIT_DEBUGFS_H */
