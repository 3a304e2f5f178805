/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints. See Documentation/tracing.rst for their use.
 *
 * Tracepoints and debugfs name a word of a file by device, inode and offset, and a private word by
 * 0:0, PID and address. trace.c builds these names, and describes why that is safe.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM memwait

#if !defined(MEMWAIT_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define MEMWAIT_TRACE_H

#include <linux/kdev_t.h>
#include <linux/tracepoint.h>

#include "context.h"
#include "owner.h"

#ifndef MEMWAIT_TRACE_HELPERS
#define MEMWAIT_TRACE_HELPERS

/**
 * struct memwait_name - name of a word outside the kernel
 * @ino: the file's inode; for a private word the PID, or 0 if the process has ended or is not known
 * @offset: byte offset in the file; for a private word the address
 * @dev: the file's device; for a private word 0
 */
struct memwait_name {
	u64 ino;
	u64 offset;
	dev_t dev;
};

void memwait_name(struct memwait_name *name, const struct memwait_key *key);
const struct memwait_key *memwait_async_key(struct memwait_async_waiter *wait);

/* debugfs.c */
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
#endif

/* Fields dev, ino and offset. */
#define MEMWAIT_WORD_FMT "word=%u:%u:%llu:0x%llx"

TRACE_EVENT(memwait_wait_begin,

	TP_PROTO(const struct memwait_key *key, u32 words),

	TP_ARGS(key, words),

	TP_STRUCT__entry(
		__field(u64, ino)
		__field(u64, offset)
		__field(dev_t, dev)
		__field(u32, words)
	),

	TP_fast_assign(
		struct memwait_name name;

		memwait_name(&name, key);
		__entry->dev = name.dev;
		__entry->ino = name.ino;
		__entry->offset = name.offset;
		__entry->words = words;
	),

	TP_printk(MEMWAIT_WORD_FMT " words=%u",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino, __entry->offset,
		  __entry->words)
);

TRACE_EVENT(memwait_wait_end,

	TP_PROTO(const struct memwait_key *key, int result, u64 waited_ns),

	TP_ARGS(key, result, waited_ns),

	TP_STRUCT__entry(
		__field(u64, ino)
		__field(u64, offset)
		__field(dev_t, dev)
		__field(int, result)
		__field(u64, waited_ns)
	),

	TP_fast_assign(
		struct memwait_name name;

		memwait_name(&name, key);
		__entry->dev = name.dev;
		__entry->ino = name.ino;
		__entry->offset = name.offset;
		__entry->result = result;
		__entry->waited_ns = waited_ns;
	),

	TP_printk(MEMWAIT_WORD_FMT " result=%d waited_ns=%llu",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino, __entry->offset,
		  __entry->result, __entry->waited_ns)
);

TRACE_EVENT(memwait_notify,

	TP_PROTO(const struct memwait_key *key, u32 count, u32 woken, bool passed_on),

	TP_ARGS(key, count, woken, passed_on),

	TP_STRUCT__entry(
		__field(u64, ino)
		__field(u64, offset)
		__field(dev_t, dev)
		__field(u32, count)
		__field(u32, woken)
		__field(u32, passed_on)
	),

	TP_fast_assign(
		struct memwait_name name;

		memwait_name(&name, key);
		__entry->dev = name.dev;
		__entry->ino = name.ino;
		__entry->offset = name.offset;
		__entry->count = count;
		__entry->woken = woken;
		__entry->passed_on = passed_on;
	),

	TP_printk(MEMWAIT_WORD_FMT " count=%u woken=%u passed_on=%u",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino, __entry->offset,
		  __entry->count, __entry->woken, __entry->passed_on)
);

TRACE_EVENT(memwait_requeue,

	TP_PROTO(const struct memwait_key *source, const struct memwait_key *target,
		 const struct memwait_requeue *requeue),

	TP_ARGS(source, target, requeue),

	TP_STRUCT__entry(
		__field(u64, ino)
		__field(u64, offset)
		__field(u64, target)
		__field(dev_t, dev)
		__field(u32, count)
		__field(u32, move)
		__field(u32, woken)
		__field(u32, moved)
	),

	TP_fast_assign(
		struct memwait_name name;

		memwait_name(&name, source);
		__entry->dev = name.dev;
		__entry->ino = name.ino;
		__entry->offset = name.offset;
		__entry->target = target->offset;
		__entry->count = requeue->count;
		__entry->move = requeue->move;
		__entry->woken = requeue->woken;
		__entry->moved = requeue->moved;
	),

	TP_printk(MEMWAIT_WORD_FMT " target=0x%llx count=%u move=%u woken=%u moved=%u",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino, __entry->offset,
		  __entry->target, __entry->count, __entry->move, __entry->woken, __entry->moved)
);

/* An async wait that is pending or was cancelled. */
DECLARE_EVENT_CLASS(memwait_async_waiter,

	TP_PROTO(struct memwait_async_waiter *wait),

	TP_ARGS(wait),

	TP_STRUCT__entry(
		__field(u64, ino)
		__field(u64, offset)
		__field(u64, context)
		__field(u64, id)
		__field(u64, user_data)
		__field(dev_t, dev)
		__field(u32, words)
	),

	TP_fast_assign(
		struct memwait_name name;

		memwait_name(&name, memwait_async_key(wait));
		__entry->dev = name.dev;
		__entry->ino = name.ino;
		__entry->offset = name.offset;
		__entry->context = wait->group.context->number;
		__entry->id = wait->id;
		__entry->user_data = wait->user_data;
		__entry->words = wait->group.nr;
	),

	TP_printk(MEMWAIT_WORD_FMT " context=%llu id=0x%llx user_data=0x%llx words=%u",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino, __entry->offset,
		  __entry->context, __entry->id, __entry->user_data, __entry->words)
);

DEFINE_EVENT(memwait_async_waiter, memwait_async_arm,

	TP_PROTO(struct memwait_async_waiter *wait),

	TP_ARGS(wait)
);

DEFINE_EVENT(memwait_async_waiter, memwait_cancel,

	TP_PROTO(struct memwait_async_waiter *wait),

	TP_ARGS(wait)
);

DECLARE_EVENT_CLASS(memwait_completion,

	TP_PROTO(struct memwait_async_waiter *wait),

	TP_ARGS(wait),

	TP_STRUCT__entry(
		__field(u64, ino)
		__field(u64, offset)
		__field(u64, context)
		__field(u64, id)
		__field(u64, user_data)
		__field(dev_t, dev)
		__field(int, result)
	),

	TP_fast_assign(
		struct memwait_name name;

		memwait_name(&name, memwait_async_key(wait));
		__entry->dev = name.dev;
		__entry->ino = name.ino;
		__entry->offset = name.offset;
		__entry->context = wait->group.context->number;
		__entry->id = wait->id;
		__entry->user_data = wait->user_data;
		__entry->result = wait->group.result;
	),

	TP_printk(MEMWAIT_WORD_FMT " context=%llu id=0x%llx user_data=0x%llx result=%d",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino, __entry->offset,
		  __entry->context, __entry->id, __entry->user_data, __entry->result)
);

DEFINE_EVENT(memwait_completion, memwait_async_complete,

	TP_PROTO(struct memwait_async_waiter *wait),

	TP_ARGS(wait)
);

DEFINE_EVENT(memwait_completion, memwait_async_read,

	TP_PROTO(struct memwait_async_waiter *wait),

	TP_ARGS(wait)
);

/* Recorded by the thread that dies or closes the context. tid: 0 if the owner is not a thread. */
TRACE_EVENT(memwait_owner_died,

	TP_PROTO(const struct memwait_identity *identity),

	TP_ARGS(identity),

	TP_STRUCT__entry(
		__field(u64, owner)
		__field(pid_t, tid)
	),

	TP_fast_assign(
		__entry->owner = identity->id;
		__entry->tid = identity->tid;
	),

	TP_printk("owner=%llu tid=%d", __entry->owner, __entry->tid)
);

#endif /* MEMWAIT_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
