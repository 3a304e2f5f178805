/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Names of words. See name.c.
 */
#ifndef MEMWAIT_NAME_H
#define MEMWAIT_NAME_H

#include <linux/types.h>

struct memwait_key;

/**
 * struct memwait_name - name of a word outside the kernel
 * @ino: the file's inode; of a private word the process, or 0 if it has ended or is not known
 * @offset: byte offset in the file; of a private word the address
 * @dev: the file's device; of a private word 0
 */
struct memwait_name {
	u64 ino;
	u64 offset;
	dev_t dev;
};

void memwait_name(struct memwait_name *name, const struct memwait_key *key);

#endif /* MEMWAIT_NAME_H */
