/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * ABI of /dev/memwait: wait on, and notify, a word of memory.
 *
 * The semantics are those of ECMAScript's Atomics.wait, Atomics.waitAsync and Atomics.notify.
 * MEMWAIT_OK, MEMWAIT_NOT_EQUAL and MEMWAIT_TIMED_OUT have the values that WebAssembly's
 * memory.atomic.wait returns. All structs have the same layout for 32-bit and 64-bit callers.
 *
 * An ioctl struct may grow at its end, because the ioctl number contains the size of the struct.
 * struct memwait_async, which is an array element, may also grow; memwait_wait_async.entry_size is
 * its size. In both cases a field that an old caller does not pass reads as zero. A field that an
 * old kernel does not know must be zero; otherwise the call fails with E2BIG. These structs never
 * grow: memwait_wait, memwait_notify, memwait_wait_any within memwait_async, memwait_completion.
 */
#ifndef _UAPI_LINUX_MEMWAIT_H
#define _UAPI_LINUX_MEMWAIT_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Outcomes: returned by ioctls, and the result of entries and completions. */
#define MEMWAIT_OK		0	/* notified */
#define MEMWAIT_NOT_EQUAL	1	/* the word had a different value */
#define MEMWAIT_TIMED_OUT	2	/* the deadline passed */
#define MEMWAIT_PENDING		3	/* async wait queued */
#define MEMWAIT_OWNER_DIED	4	/* the owner, or a waiter woken earlier, died */

/*
 * Flags. The sizes and MEMWAIT_PRIVATE have futex2's values (FUTEX2_SIZE_U8, FUTEX2_PRIVATE ...).
 */
#define MEMWAIT_SIZE_U8		0x0
#define MEMWAIT_SIZE_U16	0x1
#define MEMWAIT_SIZE_U32	0x2
#define MEMWAIT_SIZE_U64	0x3
#define MEMWAIT_SIZE_MASK	0x3
#define MEMWAIT_PRIVATE		0x80	/* all users of the word share one address space */
#define MEMWAIT_CLOCK_REALTIME	0x100	/* the deadline is on CLOCK_REALTIME */
#define MEMWAIT_GROUP		0x200	/* async wait on several words */
#define MEMWAIT_PERSISTENT	0x400	/* async wait that a notify does not end */
#define MEMWAIT_OWNED		0x800	/* the wait also ends with OWNER_DIED */
#define MEMWAIT_LIBRARY_FLAGS	0xffff0000U	/* reserved for libraries; EINVAL */

/* Flags of memwait_owner. */
#define MEMWAIT_OWNER_CONTEXT	0x1	/* this context's id, not the thread's */
#define MEMWAIT_OWNER_EXIT	0x2	/* end the calling thread's id */
#define MEMWAIT_OWNER_BIND	0x4	/* with _CONTEXT: bind the context to this process */

/* The bits of a 64-bit word that hold its owner's id, for MEMWAIT_OWNED waits. */
#define MEMWAIT_OWNER_MASK	((1ULL << 62) - 1)

/* Operations of memwait_change. */
#define MEMWAIT_CHANGE_SET	0	/* word = operand */
#define MEMWAIT_CHANGE_ADD	1	/* word += operand */
#define MEMWAIT_CHANGE_AND	2	/* word &= operand */
#define MEMWAIT_CHANGE_OR	3	/* word |= operand */
#define MEMWAIT_CHANGE_XOR	4	/* word ^= operand */

/*
 * Added to an operation: the word is changed only if no waiter was woken. See struct
 * memwait_change.
 */
#define MEMWAIT_CHANGE_IF_NONE_WOKEN	0x100

/* memwait_notify_wait.state: the notify is done. */
#define MEMWAIT_NOTIFIED	1

/* memwait_completion.flags: another completion of this wait may follow. */
#define MEMWAIT_MORE		0x1

#define MEMWAIT_FOREVER		(~0ULL)	/* deadline: never */
#define MEMWAIT_ALL		(~0U)	/* count: every waiter */
#define MEMWAIT_GROUP_MAX	128	/* max. words in a group */

/* memwait_info.features: features that some kernels lack. */
#define MEMWAIT_FEATURE_WAIT_U64	0x1	/* MEMWAIT_SIZE_U64: not on 32-bit kernels */
#define MEMWAIT_FEATURE_OWNERS		0x2	/* MEMWAIT_IOC_OWNER, MEMWAIT_OWNED: not on 32-bit
						 * kernels, nor without tracepoints
						 */

/**
 * struct memwait_info - features of this kernel, limits and usage
 * @features: MEMWAIT_FEATURE_* bits
 * @max_user_waits: max. async waits per user, pending or unread; a group counts once per word, and
 *	each file or address space that a context holds for its waits counts as 8 waits (module
 *	parameter max_user_waits)
 * @user_waits: the user's current async waits, counted in the same way; may be stale on return
 * @max_group: max. words in a group, MEMWAIT_GROUP_MAX
 * @reserved: 0
 * @max_user_contexts: max. open contexts per user (module parameter max_user_contexts)
 * @user_contexts: the user's current contexts
 * @max_user_owners: max. thread and context ids per user; a dead id counts until its waiters have
 *	been notified (module parameter max_user_owners)
 * @user_owners: the user's current ids
 *
 * The limits and the usage are those of the user that opened the context. All users in a user
 * namespace that was not created by root count as the user that created it.
 */
struct memwait_info {
	__u64 features;
	__u64 max_user_waits;
	__u64 user_waits;
	__u32 max_group;
	__u32 reserved;
	__u64 max_user_contexts;
	__u64 user_contexts;
	__u64 max_user_owners;
	__u64 user_owners;
};

/**
 * struct memwait_wait - word, expected value and deadline of a wait
 * @addr: address of the word, aligned to its size
 * @expected: wait only while the word holds this value; bits above the word's size are ignored
 * @deadline: absolute time in ns, on CLOCK_MONOTONIC of the caller's time namespace or, with
 *	MEMWAIT_CLOCK_REALTIME, on CLOCK_REALTIME; MEMWAIT_FOREVER: no deadline
 * @flags: MEMWAIT_SIZE_*, MEMWAIT_PRIVATE, MEMWAIT_CLOCK_REALTIME, MEMWAIT_OWNED
 * @reserved: 0
 *
 * With MEMWAIT_OWNED the lower 62 bits of a 64-bit @expected are the owner's id, 0 for no owner. A
 * word smaller than 64 bits names no owner. If the owner is dead, the wait returns
 * MEMWAIT_OWNER_DIED immediately. If the owner dies later, or if a waiter dies after it was woken
 * with MEMWAIT_OK or MEMWAIT_OWNER_DIED, the word's oldest MEMWAIT_OWNED waiter gets
 * MEMWAIT_OWNER_DIED. The kernel watches only the last woken waiter, and only while other
 * MEMWAIT_OWNED waiters are queued. A thread that calls exit(2) ends, but does not die. Its end is
 * reported only to waiters of a 64-bit word that may name the thread. The kernel never writes to
 * the word. A waiter that gets MEMWAIT_OWNER_DIED must check the word. If it waits again, it joins
 * the end of the queue.
 *
 * A call with @deadline 0 never waits.
 */
struct memwait_wait {
	__u64 addr;
	__u64 expected;
	__u64 deadline;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct memwait_notify - a word and how many waiters to wake
 * @addr: address of the word, aligned to its size
 * @count: max. waiters to wake, oldest first; MEMWAIT_ALL: all. Must be 0 for MEMWAIT_IOC_WAITERS
 * @flags: MEMWAIT_SIZE_*, MEMWAIT_PRIVATE. The size determines only the alignment of @addr; waiters
 *	of all sizes at @addr share one queue
 */
struct memwait_notify {
	__u64 addr;
	__u32 count;
	__u32 flags;
};

/**
 * struct memwait_wait_any - wait until one of several words is notified
 * @waits: address of an array of struct memwait_wait. The words may have different sizes, some may
 *	be private and others shared, and a word may occur twice. The entries' deadlines are
 *	ignored; their flags are MEMWAIT_SIZE_* and MEMWAIT_PRIVATE
 * @count: array length, 1 to MEMWAIT_GROUP_MAX
 * @reserved: 0
 * @deadline: deadline of the whole group, as in struct memwait_wait
 * @flags: 0 or MEMWAIT_CLOCK_REALTIME; also MEMWAIT_GROUP within struct memwait_async
 * @index: out: for MEMWAIT_OK, index of the notified word; for MEMWAIT_NOT_EQUAL, index of the
 *	first word that differs; otherwise unchanged
 *
 * The first notify of any of the words ends the wait; later notifies do not count this wait.
 * @deadline and @flags have the same offsets as in struct memwait_wait.
 */
struct memwait_wait_any {
	__u64 waits;
	__u32 count;
	__u32 reserved;
	__u64 deadline;
	__u32 flags;
	__u32 index;
};

/**
 * struct memwait_async - one async wait of a batch
 * @wait: wait on one word
 * @any: wait on a group; @any.flags contains MEMWAIT_GROUP. @any.index is written only for
 *	MEMWAIT_NOT_EQUAL; for MEMWAIT_OK the completion contains the index
 * @user_data: copied to the completion
 * @id: out: 0 if nothing was queued. If the wait is pending, a nonzero id for MEMWAIT_IOC_CANCEL,
 *	which is valid once this call has returned, and is not reused in this context for the next
 *	2^56 waits
 * @result: out: MEMWAIT_PENDING, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT, MEMWAIT_OWNER_DIED, or a
 *	negative errno
 * @reserved: 0
 *
 * With MEMWAIT_PERSISTENT in @wait.flags a notify does not end the wait, but moves it to the end of
 * its queue. One completion counts all notifies that arrive until the completion is read. The word
 * is compared only when the wait is armed. The wait ends when MEMWAIT_IOC_CANCEL cancels it, when
 * its deadline passes, or when its context ends. If the context ends before all counted notifies
 * have been read, one notify is passed to the next waiter. MEMWAIT_PERSISTENT cannot be combined
 * with MEMWAIT_GROUP or MEMWAIT_OWNED.
 */
struct memwait_async {
	union {
		struct memwait_wait wait;
		struct memwait_wait_any any;
	};
	__u64 user_data;
	__u64 id;
	__s32 result;
	__u32 reserved;
};

/**
 * struct memwait_wait_async - a batch of async waits
 * @waits: address of an array of struct memwait_async
 * @count: array length, at most INT_MAX
 * @entry_size: sizeof(struct memwait_async)
 */
struct memwait_wait_async {
	__u64 waits;
	__u32 count;
	__u32 entry_size;
};

/**
 * struct memwait_completion - an ended or notified async wait, returned by read(2)
 * @user_data: from struct memwait_async
 * @id: from MEMWAIT_IOC_WAIT_ASYNC
 * @result: MEMWAIT_OK, MEMWAIT_TIMED_OUT or MEMWAIT_OWNER_DIED
 * @index: for a group with MEMWAIT_OK: index of the notified word; otherwise 0
 * @count: with MEMWAIT_OK, the number of notifies that counted the wait: 1 or, with
 *	MEMWAIT_PERSISTENT, the number since the previous completion was read. Otherwise 0
 * @flags: MEMWAIT_MORE: another completion of this wait may follow (only with MEMWAIT_PERSISTENT)
 */
struct memwait_completion {
	__u64 user_data;
	__u64 id;
	__s32 result;
	__u32 index;
	__u32 count;
	__u32 flags;
};

/**
 * struct memwait_cancel - cancels a pending async wait
 * @id: from MEMWAIT_IOC_WAIT_ASYNC on the same context
 * @flags: 0
 * @reserved: 0
 */
struct memwait_cancel {
	__u64 id;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct memwait_requeue - wakes waiters of a word, and moves more waiters to another word
 * @addr: address of the word, aligned to its size
 * @expected: do nothing unless the word holds this value
 * @target: address of the word whose queue the moved waiters join, at the end and in order. The
 *	address must be aligned to the size; the word is never read. If @target equals @addr, no
 *	waiter changes its position, but @moved counts the waiters. Both words must belong to the
 *	same file if @addr is in a shared file mapping; otherwise, and with MEMWAIT_PRIVATE, both
 *	must belong to the caller's mm. If they do not, the call fails with EXDEV and does nothing
 * @count: max. waiters to wake, oldest first; MEMWAIT_ALL: all
 * @move: max. waiters to move after these; MEMWAIT_ALL: all
 * @flags: MEMWAIT_SIZE_*, MEMWAIT_PRIVATE, for both words
 * @reserved: 0
 * @woken: out: number of waiters woken
 * @moved: out: number of waiters moved
 *
 * The call checks the word and wakes and moves the first waiters in one step, which is atomic with
 * respect to all other operations on both words. More waiters may be woken and moved in later
 * steps, with other calls in between; waiters that joined after the call began are never woken or
 * moved.
 *
 * A moved waiter retains its deadline and its id. If the waiter belongs to a group, only this word
 * of the group moves, and the word's index in the group does not change. If a signal interrupts a
 * moved thread and the wait is then restarted, the thread waits on its original word. Waits with
 * MEMWAIT_PERSISTENT are never moved.
 *
 * A moved waiter with MEMWAIT_OWNED is no longer notified of the death of the owner that it named.
 * Like the other waiters of @target, it is notified of the deaths of owners that waits on @target
 * named. The death of the caller is not reported.
 */
struct memwait_requeue {
	__u64 addr;
	__u64 expected;
	__u64 target;
	__u32 count;
	__u32 move;
	__u32 flags;
	__u32 reserved;
	__u32 woken;
	__u32 moved;
};

/**
 * struct memwait_notify_wait - notifies one word, then waits on another
 * @notify: the notify, which is done first
 * @wait: the wait, which follows; may name the same word
 * @notified: out: number of waiters that @notify woke; written before the wait, unchanged if @state
 *	is MEMWAIT_NOTIFIED
 * @state: 0. Out: MEMWAIT_NOTIFIED if a signal interrupted the wait (EINTR). A call with
 *	MEMWAIT_NOTIFIED sets @state to 0, skips the notify and waits
 *
 * The arguments of the notify and of the wait are checked before anything is done.
 */
struct memwait_notify_wait {
	struct memwait_notify notify;
	struct memwait_wait wait;
	__u32 notified;
	__u32 state;
};

/**
 * struct memwait_notify_many - notifies several words
 * @notifies: address of an array of struct memwait_notify, processed in order
 * @woken: address of an array of __u32 for the number of waiters that each notify woke; or 0
 * @count: length of the arrays, at most INT_MAX
 * @flags: 0
 *
 * An event loop that receives completions from many of the notifies is woken a few times, not once
 * for each notify. A signal ends the call between two steps of 16 notifies; the call then returns
 * the number of words that were notified.
 */
struct memwait_notify_many {
	__u64 notifies;
	__u64 woken;
	__u32 count;
	__u32 flags;
};

/**
 * struct memwait_owner - an id that marks a word's owner
 * @id: out: nonzero, within MEMWAIT_OWNER_MASK, random, the same in every namespace. With
 *	MEMWAIT_OWNER_EXIT: the id that ended, or 0
 * @flags: 0: the calling thread's id, which is the same from any context, and is valid until the
 *	thread exits or executes another program; MEMWAIT_OWNER_CONTEXT: this context's id, valid
 *	until the last close; MEMWAIT_OWNER_EXIT: ends the calling thread's id;
 *	MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND: first binds the context to the calling process
 * @reserved: 0
 *
 * The first call allocates the id and counts it for the user that opened the context. A child
 * process created by fork(2) starts without an id.
 *
 * A bound context ends when its process dies, or has closed all its descriptors of the context,
 * even if other processes have copies of them. The context's pending waits end without waking any
 * waiter. The notifies of unread completions with MEMWAIT_OK are passed to the next waiters. The
 * death of the context's id is reported. Once the context has ended, poll(2) reports EPOLLHUP and
 * EPOLLERR. A descriptor that execve(2) does not close passes the context to the new program.
 * Processes that share a descriptor table count as one process for this purpose.
 *
 * In other processes WAIT_ASYNC, CANCEL, read(2) and MEMWAIT_OWNER_BIND fail with EPERM. Once the
 * context has ended, these calls fail with EPERM in every process. MEMWAIT_OWNER_BIND fails with
 * EBUSY if the context was used for one of these calls, or got an id, before it was bound.
 */
struct memwait_owner {
	__u64 id;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct memwait_change - changes a word, then notifies it
 * @notify: a 32-bit word, and max. waiters to wake, which may be 0
 * @operation: MEMWAIT_CHANGE_*; atomic, and a full barrier
 * @operand: operand of @operation
 * @old: out: the word's previous value, written last
 * @reserved: 0
 *
 * No signal, not even SIGKILL, can end the call between the change and the notify. If the word is
 * changed, its waiters are woken.
 *
 * With MEMWAIT_CHANGE_IF_NONE_WOKEN the notify comes first. The word is changed only if no waiter
 * was woken; otherwise @old is 0. Notify and change are one step with respect to waits on the word:
 * a concurrent waiter is either woken or sees the change. @notify may then name a word of 8 or 16
 * bits; the operation applies to the aligned 32 bits that contain it.
 */
struct memwait_change {
	struct memwait_notify notify;
	__u32 operation;
	__u32 operand;
	__u32 old;
	__u32 reserved;
};

#define MEMWAIT_IOC_MAGIC	0xD8

#define MEMWAIT_IOC_INFO	_IOR(MEMWAIT_IOC_MAGIC, 0x00, struct memwait_info)
#define MEMWAIT_IOC_WAIT	_IOW(MEMWAIT_IOC_MAGIC, 0x01, struct memwait_wait)
#define MEMWAIT_IOC_NOTIFY	_IOW(MEMWAIT_IOC_MAGIC, 0x02, struct memwait_notify)
#define MEMWAIT_IOC_WAIT_ASYNC	_IOW(MEMWAIT_IOC_MAGIC, 0x03, struct memwait_wait_async)
#define MEMWAIT_IOC_CANCEL	_IOW(MEMWAIT_IOC_MAGIC, 0x04, struct memwait_cancel)
#define MEMWAIT_IOC_WAIT_ANY	_IOWR(MEMWAIT_IOC_MAGIC, 0x05, struct memwait_wait_any)
#define MEMWAIT_IOC_REQUEUE	_IOWR(MEMWAIT_IOC_MAGIC, 0x06, struct memwait_requeue)
#define MEMWAIT_IOC_NOTIFY_WAIT	_IOWR(MEMWAIT_IOC_MAGIC, 0x07, struct memwait_notify_wait)
#define MEMWAIT_IOC_WAITERS	_IOW(MEMWAIT_IOC_MAGIC, 0x08, struct memwait_notify)
#define MEMWAIT_IOC_NOTIFY_MANY	_IOW(MEMWAIT_IOC_MAGIC, 0x09, struct memwait_notify_many)
#define MEMWAIT_IOC_OWNER	_IOWR(MEMWAIT_IOC_MAGIC, 0x0A, struct memwait_owner)
#define MEMWAIT_IOC_CHANGE_NOTIFY	_IOWR(MEMWAIT_IOC_MAGIC, 0x0B, struct memwait_change)

#endif /* _UAPI_LINUX_MEMWAIT_H */
