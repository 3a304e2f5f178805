/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#ifndef MEMWAIT_OWN_WORDS_H
#define MEMWAIT_OWN_WORDS_H

#include <errno.h>
#include <stddef.h>

/*
 * What an error means, if that is not what strerror(3) says; otherwise NULL. Signal handlers may
 * call it. Each library has its own, for the interface has none.
 */
static inline const char *memwait_own_words(unsigned int number)
{
	switch (number) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return "No /dev/memwait, or its module is not loaded";
	case EPERM:
		return "Not allowed to this thread or process, or /dev/memwait to its container";
	case EACCES:
		return "No permission for /dev/memwait";
	case ENOTTY:
		return "/dev/memwait is not memwait's";
	case ENOSYS:
		return "The module of /dev/memwait is older than libmemwait";
	case ENOSPC:
		return "Limit of the user's waits or ids at /dev/memwait reached";
	case EOPNOTSUPP:
		return "Not supported by this kernel, or for this memory";
	case EINPROGRESS:
		return "The operation is pending: its callback will run";
	case ETIMEDOUT:
		return "Deadline passed";
	case EPIPE:
		return "Channel closed";
	case EXDEV:
		return "Words of different files";
	default:
		return NULL;
	}
}

#endif /* MEMWAIT_OWN_WORDS_H */
