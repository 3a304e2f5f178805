// SPDX-License-Identifier: GPL-2.0-only
/*
 * Deadlines, as user space gives them.
 */
#include <linux/ktime.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <linux/time_namespace.h>
#include <linux/timekeeping.h>

#include "memwait.h"

/**
 * memwait_expires() - a deadline of the caller's time namespace as a time of the host
 * @deadline: as it came from user space
 * @flags: MEMWAIT_CLOCK_REALTIME or not
 *
 * Context: process context of the caller.
 *
 * Return: the time; KTIME_MAX, which is reached in 292 years, for never.
 */
ktime_t memwait_expires(u64 deadline, u32 flags)
{
	ktime_t expires = min_t(u64, deadline, KTIME_MAX);

#ifdef CONFIG_TIME_NS
	if (expires != KTIME_MAX && memwait_clock(flags) == CLOCK_MONOTONIC) {
		ktime_t offset =
			timespec64_to_ktime(current->nsproxy->time_ns->offsets.monotonic);

		if (offset > 0)
			expires = max_t(ktime_t, ktime_sub(expires, offset), 0);
		else if (offset < 0)
			expires = ktime_add_safe(expires, -offset);
	}
#endif
	return expires;
}

/**
 * memwait_has_passed() - is it too late to wait?
 * @expires: from memwait_expires()
 * @flags: MEMWAIT_CLOCK_REALTIME or not
 *
 * Context: any.
 *
 * Return: whether the time has come.
 */
bool memwait_has_passed(ktime_t expires, u32 flags)
{
	if (expires == KTIME_MAX)
		return false;
	return expires <= (flags & MEMWAIT_CLOCK_REALTIME ? ktime_get_real() : ktime_get());
}
