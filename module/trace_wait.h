/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints of a thread's wait. Disabled, they cost no time and read no clock.
 */
#ifndef MEMWAIT_TRACE_WAIT_H
#define MEMWAIT_TRACE_WAIT_H

#include "group.h"
#include "trace.h"

void __memwait_trace_begin(struct memwait_group *group);
void __memwait_trace_end(const struct memwait_group *group, u32 index, int result);

/**
 * memwait_trace_begin() - current thread is about to join its queues
 * @group: the words
 *
 * Context: process context.
 */
static __always_inline void memwait_trace_begin(struct memwait_group *group)
{
	group->begun = 0;
	if (trace_memwait_wait_begin_enabled() || trace_memwait_wait_end_enabled())
		__memwait_trace_begin(group);
}

/**
 * memwait_trace_end() - current thread has left its queues
 * @group: the words
 * @index: word that @result is about, if none was notified
 * @result: an outcome or a negative errno
 *
 * Context: process context.
 */
static __always_inline void memwait_trace_end(const struct memwait_group *group, u32 index,
					      int result)
{
	if (trace_memwait_wait_end_enabled())
		__memwait_trace_end(group, index, result);
}

#endif /* MEMWAIT_TRACE_WAIT_H */
