// SPDX-License-Identifier: GPL-2.0-only
/*
 * Helpers of enabled tracepoints. A disabled tracepoint is a patched-out jump.
 */
#include <linux/ktime.h>
#include <linux/sched.h>

#include "context.h"
#include "group.h"
#include "memwait.h"
#include "trace_wait.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

/**
 * memwait_async_key() - key of the word that an async wait is about
 * @wait: its pins are held
 *
 * Context: any but interrupts.
 *
 * Return: the key; of a group, that of the notified word or else of the first.
 */
const struct memwait_key *memwait_async_key(struct memwait_async_waiter *wait)
{
	struct memwait_member *member;

	if (!memwait_async_is_group(wait))
		return &wait->waiter.word.key;
	member = READ_ONCE(to_group(wait)->group.claimed);
	if (!member || member == MEMWAIT_CLAIMED_BY_ITSELF)
		member = to_group(wait)->members;
	return &member->waiter.word.key;
}

/**
 * __memwait_trace_begin() - memwait_trace_begin() with tracing enabled
 * @group: the words
 *
 * Context: process context.
 */
void __memwait_trace_begin(struct memwait_group *group)
{
	u32 i;

	for (i = 0; i < group->nr; i++)
		trace_memwait_wait_begin(&group->members[i].waiter.word.key, group->nr);
	group->begun = ktime_get_ns();
}

/**
 * __memwait_trace_end() - memwait_trace_end() with tracing enabled
 * @group: the words
 * @index: see memwait_trace_end()
 * @result: see memwait_trace_end()
 *
 * Context: process context.
 */
void __memwait_trace_end(const struct memwait_group *group, u32 index, int result)
{
	const struct memwait_member *member = READ_ONCE(group->claimed);

	if (!member || member == MEMWAIT_CLAIMED_BY_ITSELF)
		member = &group->members[index];
	trace_memwait_wait_end(&member->waiter.word.key, result,
			       group->begun ? ktime_get_ns() - group->begun : 0);
}
