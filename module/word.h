/* SPDX-License-Identifier: GPL-2.0-only */
/* Words, their keys, values and deadlines: see word.c. */
#ifndef MEMWAIT_WORD_H
#define MEMWAIT_WORD_H

#include <linux/align.h>
#include <linux/file.h>
#include <linux/timekeeping.h>
#include <uapi/linux/memwait.h>

/**
 * struct memwait_key - identifies a word
 * @space: for a word of a shared mapping, the address_space, with MEMWAIT_KEY_SHARED set; for any
 *	other word, the mm_struct
 * @offset: byte offset in the address_space, or address in the mm
 *
 * Equal keys name the same word as long as a reference prevents @space from being freed and reused:
 * see struct memwait_word.
 */
struct memwait_key {
	u64 space;
	u64 offset;
};

#define MEMWAIT_KEY_SHARED	1ULL

/**
 * struct memwait_word - a key with the reference that keeps it valid
 * @key: the word's key
 * @file: for a system call or a blocked thread: the file of a shared mapping; %NULL for a private
 *	word, and after the file has been put. Put with memwait_word_put()
 * @pin: for an async wait: put with memwait_pin_put()
 *
 * The reference is to an open file, not to an inode, so that umount gets EBUSY.
 */
struct memwait_word {
	struct memwait_key key;
	union {
		struct file *file;
		struct memwait_pin *pin;
	};
};

/* Flags of a word, of a wait that has its own deadline, and of an async wait. */
#define MEMWAIT_WORD_FLAGS	(MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE)
#define MEMWAIT_WAIT_FLAGS	(MEMWAIT_WORD_FLAGS | MEMWAIT_CLOCK_REALTIME | MEMWAIT_OWNED)
#define MEMWAIT_ASYNC_FLAGS	(MEMWAIT_WAIT_FLAGS | MEMWAIT_PERSISTENT)

enum memwait_async_clock { MEMWAIT_MONOTONIC, MEMWAIT_REALTIME, MEMWAIT_CLOCKS };

static inline u8 memwait_async_clock(u32 flags)
{
	return flags & MEMWAIT_CLOCK_REALTIME ? MEMWAIT_REALTIME : MEMWAIT_MONOTONIC;
}

static inline ktime_t memwait_now(int clock)
{
	return clock == MEMWAIT_REALTIME ? ktime_get_real() : ktime_get();
}

static inline bool memwait_has_passed(ktime_t expires, int clock)
{
	return expires != KTIME_MAX && expires <= memwait_now(clock);
}

int memwait_compare(u64 addr, u64 expected, u32 flags);
ktime_t memwait_expires(u64 deadline, u32 flags);
int memwait_word_get(struct memwait_word *word, u64 addr, u32 flags);

/**
 * memwait_is_address() - is the address of an array valid on this kernel?
 * @addr: the address, from user space
 *
 * Context: any.
 *
 * Return: false if a 32-bit kernel would truncate it.
 */
static inline bool memwait_is_address(u64 addr)
{
	return (unsigned long)addr == addr;
}

static inline unsigned int memwait_size(u32 flags)
{
	return 1U << (flags & MEMWAIT_SIZE_MASK);
}

/**
 * memwait_check() - check address and flags of a word
 * @addr: address of the word
 * @flags: flags of the word
 * @known: allowed flags
 *
 * Context: any.
 *
 * Return: 0, or -EINVAL: unknown flag or misaligned address.
 */
static inline int memwait_check(u64 addr, u32 flags, u32 known)
{
	if ((flags & ~known) || !IS_ALIGNED(addr, memwait_size(flags)))
		return -EINVAL;
	return 0;
}

/**
 * memwait_check_wait() - check a word that will be compared
 * @wait: copied from user space
 * @known: allowed flags
 *
 * Context: any.
 *
 * Return: 0, -EINVAL; or -EOPNOTSUPP: 64 bits on a 32-bit kernel.
 */
static inline int memwait_check_wait(const struct memwait_wait *wait, u32 known)
{
	int ret = memwait_check(wait->addr, wait->flags, known);

	if (ret || wait->reserved)
		return -EINVAL;
	if (!IS_ENABLED(CONFIG_64BIT) && memwait_size(wait->flags) == 8)
		return -EOPNOTSUPP;
	return 0;
}

/* Puts the file of a word, if the word has a file that was not put yet. */
static inline void memwait_word_put(struct memwait_word *word)
{
	if (word->file)
		fput(word->file);
	word->file = NULL;
}

/* Orders keys. Returns a value below, equal to or above 0. */
static __always_inline int memwait_key_cmp(const struct memwait_key *a, const struct memwait_key *b)
{
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	if (a->space != b->space)
		return a->space < b->space ? -1 : 1;
	return 0;
}

#endif /* MEMWAIT_WORD_H */
