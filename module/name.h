/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Names of words. See name.c.
 */
#ifndef MEMWAIT_NAME_H
#define MEMWAIT_NAME_H

#include <linux/types.h>

struct memwait_key;

/**
 * struct memwait_name - what a word is called outside of the kernel
 * @ino: of a file its inode; of a private word its process, or 0 if that has ended
 * @offset: of a file in bytes; of a private word its address
 * @dev: of a file its device; of a private word 0
 */
struct memwait_name {
	u64 ino;
	u64 offset;
	dev_t dev;
};

void memwait_name(struct memwait_name *name, const struct memwait_key *key);

#endif /* MEMWAIT_NAME_H */
