/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The ABI of /dev/memwait: wait for, and notify, a word of memory.
 *
 * The semantics are those of ECMAScript's Atomics.wait, Atomics.waitAsync and Atomics.notify;
 * WebAssembly's memory.atomic.wait returns the same numbers for the outcomes OK, NOT_EQUAL and
 * TIMED_OUT. All structs have the same layout for 32-bit and 64-bit callers.
 *
 * The struct of an ioctl may grow at its end: its size is part of the ioctl number. An element of
 * an array of struct memwait_async may grow as well: memwait_wait_async.entry_size is its size.
 * In both cases a field that an old caller does not pass counts as zero, and a field that an old
 * kernel does not know must be zero, or the call fails with E2BIG. struct memwait_wait, struct
 * memwait_notify, struct memwait_wait_any within struct memwait_async, and struct
 * memwait_completion never grow.
 */
#ifndef _UAPI_LINUX_MEMWAIT_H
#define _UAPI_LINUX_MEMWAIT_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Outcomes: return values of the ioctls, and the result of entries and completions. */
#define MEMWAIT_OK		0	/* counted by a notify */
#define MEMWAIT_NOT_EQUAL	1	/* the word did not hold the expected value */
#define MEMWAIT_TIMED_OUT	2	/* the deadline passed first */
#define MEMWAIT_PENDING		3	/* an async wait was queued */
#define MEMWAIT_OWNER_DIED	4	/* the owner, or a waiter that was woken before, has died */

/* Flags. The sizes and PRIVATE have futex2's values (FUTEX2_SIZE_U8 ... FUTEX2_PRIVATE). */
#define MEMWAIT_SIZE_U8		0x0
#define MEMWAIT_SIZE_U16	0x1
#define MEMWAIT_SIZE_U32	0x2
#define MEMWAIT_SIZE_U64	0x3
#define MEMWAIT_SIZE_MASK	0x3
#define MEMWAIT_PRIVATE		0x80	/* all users of the word share this address space */
#define MEMWAIT_CLOCK_REALTIME	0x100	/* the deadline is of CLOCK_REALTIME, not _MONOTONIC */
#define MEMWAIT_GROUP		0x200	/* an async wait on several words */
#define MEMWAIT_OWNED		0x800	/* a wait that is told of deaths */

/* Flags of memwait_owner. */
#define MEMWAIT_OWNER_CONTEXT	0x1	/* the id of this context, not of the calling thread */
#define MEMWAIT_OWNER_EXIT	0x2	/* the thread's id is to die now */
#define MEMWAIT_OWNER_BIND	0x4	/* with _CONTEXT: it ends with the calling process */

/* Which bits of a 64-bit word are the id of its owner, to a wait with MEMWAIT_OWNED. */
#define MEMWAIT_OWNER_MASK	((1ULL << 62) - 1)

/* Operations of memwait_change. */
#define MEMWAIT_CHANGE_SET	0	/* word = operand */
#define MEMWAIT_CHANGE_ADD	1	/* word += operand */
#define MEMWAIT_CHANGE_AND	2	/* word &= operand */
#define MEMWAIT_CHANGE_OR	3	/* word |= operand */
#define MEMWAIT_CHANGE_XOR	4	/* word ^= operand */

/* In memwait_notify_wait.state: the notify has been done. */
#define MEMWAIT_NOTIFIED	1

#define MEMWAIT_FOREVER		(~0ULL)	/* as a deadline: never */
#define MEMWAIT_ALL		(~0U)	/* as a count: every waiter */
#define MEMWAIT_GROUP_MAX	128	/* most words of a group */

/* Bits of memwait_info.features: what one kernel has and another may lack. */
#define MEMWAIT_FEATURE_WAIT_U64	0x1	/* MEMWAIT_SIZE_U64: not on 32-bit kernels */
#define MEMWAIT_FEATURE_OWNERS		0x2	/* MEMWAIT_IOC_OWNER, MEMWAIT_OWNED: not on 32-bit
						 * kernels, nor without tracepoints
						 */

/**
 * struct memwait_info - what this kernel offers, and the limits in force
 * @features: MEMWAIT_FEATURE_* bits
 * @max_user_waits: most async waits that one user may have, pending or not yet read; a group counts
 *	as many as it has words (module parameter max_user_waits)
 * @user_waits: how many of them the user that opened this context has now; out of date at once
 * @max_group: most words of a group, MEMWAIT_GROUP_MAX
 * @reserved: 0
 * @max_user_contexts: most contexts that one user may have open (module parameter
 *	max_user_contexts)
 * @user_contexts: how many of them the user has now
 * @max_user_pins: most files and address spaces that the async waits of one user may keep alive,
 *	counted once for each context (module parameter max_user_pins)
 * @user_pins: how many of them the user has now
 * @max_user_owners: most ids of threads and contexts, of the dead ones until their waiters have
 *	been told (module parameter max_user_owners)
 * @user_owners: how many of them the user has now
 *
 * The limits are those of the user that opened the context. A user namespace that was not made by
 * root brings no limits of its own: its users count as the user that made it.
 */
struct memwait_info {
	__u64 features;
	__u64 max_user_waits;
	__u64 user_waits;
	__u32 max_group;
	__u32 reserved;
	__u64 max_user_contexts;
	__u64 user_contexts;
	__u64 max_user_pins;
	__u64 user_pins;
	__u64 max_user_owners;
	__u64 user_owners;
};

/**
 * struct memwait_wait - a word, the value it is expected to hold, and until when to wait
 * @addr: address of the word, a multiple of its size
 * @expected: wait only while the word holds this value; compared on the word's size, the upper
 *	bits are ignored
 * @deadline: absolute, in nanoseconds, of CLOCK_MONOTONIC as the caller's time namespace shows
 *	it, or of CLOCK_REALTIME by flag; MEMWAIT_FOREVER: never
 * @flags: MEMWAIT_SIZE_*, MEMWAIT_PRIVATE, MEMWAIT_CLOCK_REALTIME, MEMWAIT_OWNED
 * @reserved: 0
 *
 * With MEMWAIT_OWNED the lower 62 bits of @expected name the owner of a 64-bit word, or nobody if
 * they are 0; a smaller word names no owner. If that owner is dead, the outcome is
 * MEMWAIT_OWNER_DIED at once. If it dies later, or if a waiter dies that was woken before with
 * MEMWAIT_OK or MEMWAIT_OWNER_DIED, the oldest MEMWAIT_OWNED waiter of the word gets
 * MEMWAIT_OWNER_DIED. It looks at the word, and calls again: the kernel never writes to the word.
 * Of several waiters that were woken, only the last one is known.
 */
struct memwait_wait {
	__u64 addr;
	__u64 expected;
	__u64 deadline;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct memwait_notify - a word, and how many of its waiters to wake
 * @addr: address of the word, a multiple of its size
 * @count: wake at most so many, the oldest first; 0: none; MEMWAIT_ALL: all.
 *	0 for MEMWAIT_IOC_WAITERS
 * @flags: MEMWAIT_SIZE_*, MEMWAIT_PRIVATE. The size only says how @addr is aligned: waiters of
 *	every size at @addr stand in one queue
 */
struct memwait_notify {
	__u64 addr;
	__u32 count;
	__u32 flags;
};

/**
 * struct memwait_wait_any - waits on several words at once
 * @waits: address of an array of struct memwait_wait: words of any sizes, shared and private, the
 *	same one more than once if need be. Their deadlines are not used; their flags are
 *	MEMWAIT_SIZE_* and MEMWAIT_PRIVATE
 * @count: length of the array, 1 to MEMWAIT_GROUP_MAX
 * @reserved: 0
 * @deadline: of the whole group, as in struct memwait_wait
 * @flags: 0 or MEMWAIT_CLOCK_REALTIME; within struct memwait_async MEMWAIT_GROUP besides
 * @index: out: with MEMWAIT_OK the word that was notified, with MEMWAIT_NOT_EQUAL the first word
 *	that differs; otherwise left alone
 *
 * One notify ends the wait, and no other notify counts it, on whichever word. @deadline and @flags
 * stand where they do in struct memwait_wait.
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
 * @wait: what to wait for
 * @any: the same for a group, that is a wait on several words of which the first to be notified
 *	ends it. @any.flags has MEMWAIT_GROUP. @any.index is written for MEMWAIT_NOT_EQUAL only; of
 *	MEMWAIT_OK the completion tells it
 * @user_data: returned in the completion, as it is
 * @id: out: names the pending wait for MEMWAIT_IOC_CANCEL; never 0 for a pending one, and not
 *	used again in this context for 2^40 waits. 0 if nothing was queued
 * @result: out: MEMWAIT_PENDING, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT, MEMWAIT_OWNER_DIED, or a
 *	negative errno
 * @reserved: 0
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
 * @count: its length, at most INT_MAX
 * @entry_size: the size of an element, sizeof(struct memwait_async)
 */
struct memwait_wait_async {
	__u64 waits;
	__u32 count;
	__u32 entry_size;
};

/**
 * struct memwait_completion - an async wait that has ended, as read(2) returns it
 * @user_data: as given with the wait
 * @id: as returned by MEMWAIT_IOC_WAIT_ASYNC
 * @result: MEMWAIT_OK, MEMWAIT_TIMED_OUT or MEMWAIT_OWNER_DIED
 * @index: of a group that is MEMWAIT_OK: the word that was notified; otherwise 0
 * @count: how many notifies have counted the wait: 1 with MEMWAIT_OK, otherwise 0
 * @flags: 0
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
 * struct memwait_cancel - takes a pending async wait back
 * @id: as returned by MEMWAIT_IOC_WAIT_ASYNC on the same context
 * @flags: 0
 * @reserved: 0
 */
struct memwait_cancel {
	__u64 id;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct memwait_requeue - wakes some waiters of a word and moves others to another word
 * @addr: address of the word, a multiple of its size
 * @expected: do it only while the word holds this value
 * @target: address of the word whose queue the moved waiters join, at its end and in their order;
 *	a multiple of the size. It is not read. May be @addr itself, and is of the same object: of
 *	the same file if @addr is in a shared mapping of a file; otherwise, and with
 *	MEMWAIT_PRIVATE, of the caller's address space. If not: EXDEV, and nothing is done
 * @count: wake at most so many, the oldest first; MEMWAIT_ALL: all
 * @move: move at most so many more; MEMWAIT_ALL: all
 * @flags: MEMWAIT_SIZE_*, MEMWAIT_PRIVATE, for both words
 * @reserved: 0
 * @woken: out: how many were woken
 * @moved: out: how many were moved
 *
 * The comparison, and the waking and moving of the first waiters, are one step with respect to all
 * other operations on both words. Further waiters may be woken and moved in later steps, with other
 * calls in between; no waiter that joined after the call began is among them. A moved waiter keeps
 * its deadline, and its id; of a group, the one word moves, and keeps its index. A thread that a
 * signal interrupts after it was moved, and that goes on waiting, begins again at its own word.
 *
 * If a moved waiter has MEMWAIT_OWNED, the waiters of @target that have it are told of the death of
 * the calling thread as well, if that has an id: the oldest one gets MEMWAIT_OWNER_DIED. That lasts
 * until another thread moves such waiters there, or @target has no waiters any more.
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
 * @notify: done first
 * @wait: done then; may be the same word
 * @notified: out: how many @notify woke; set before the wait begins, and left alone if @state is
 *	MEMWAIT_NOTIFIED
 * @state: 0. Out: MEMWAIT_NOTIFIED when a signal has interrupted the wait (EINTR). The call can
 *	be repeated with that: it sets @state to 0, does not notify, and goes on waiting
 *
 * The arguments of both are looked at before anything is done.
 */
struct memwait_notify_wait {
	struct memwait_notify notify;
	struct memwait_wait wait;
	__u32 notified;
	__u32 state;
};

/**
 * struct memwait_notify_many - notifies several words
 * @notifies: address of an array of struct memwait_notify, done in their order
 * @woken: address of an array of __u32 that gets how many each of them woke; or 0
 * @count: length of the arrays, at most INT_MAX
 * @flags: 0
 *
 * An event loop that gets completions of many of them is woken a few times, not for each of them.
 * A signal ends the call between two notifies; it returns how many it has done.
 */
struct memwait_notify_many {
	__u64 notifies;
	__u64 woken;
	__u32 count;
	__u32 flags;
};

/**
 * struct memwait_owner - an id by which a word can say who has it
 * @id: out: not 0, within MEMWAIT_OWNER_MASK, never used again while the machine is up, and the
 *	same number in every namespace. With MEMWAIT_OWNER_EXIT the id that was ended, or 0
 * @flags: 0: the id of the calling thread, the same by whichever context, until the thread exits,
 *	or executes another program; MEMWAIT_OWNER_CONTEXT: the id of this context, until its last
 *	close; MEMWAIT_OWNER_EXIT: ends the id of the calling thread;
 *	MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND: binds the context to the calling process first
 * @reserved: 0
 *
 * The first call makes the id. It counts for the user that opened the context. A child of fork(2)
 * begins without one.
 *
 * A context that is bound ends with its process, when that exits, is killed, or executes another
 * program, even if other processes have copies of the descriptor: pending waits end without waking
 * anyone, what was completed with MEMWAIT_OK and not read goes on to the next waiters, and the
 * context's id dies. poll(2) reports EPOLLHUP and EPOLLERR then. To other processes, before that
 * and after it, WAIT_ASYNC, CANCEL and read(2) say EPERM, and so does MEMWAIT_OWNER_BIND. The
 * process counts as one more owner as long as it has such contexts. EBUSY: the context has served
 * one of these calls, or has been given an id, without being bound.
 */
struct memwait_owner {
	__u64 id;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct memwait_change - changes a word, then notifies it
 * @notify: the word, of 32 bits, and how many of its waiters to wake; 0: none
 * @operation: MEMWAIT_CHANGE_*: one atomic operation, a full barrier
 * @operand: of the operation
 * @old: out: what the word held before, written when all is done
 * @reserved: 0
 *
 * No signal comes in between, nor does SIGKILL: if the word is changed, its waiters are woken.
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
