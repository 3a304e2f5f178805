// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* What results mean in words, and which version of the library it is. */
#include <string.h>

#include "internal.h"

/* What an error means, if that is not what strerror(3) says; otherwise NULL. */
const char *memwait_own_words(unsigned int number)
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

const char *memwait_strerror(int result)
{
	unsigned int number = result < 0 ? -(unsigned int)result : (unsigned int)result;
	const char *words = memwait_own_words(number);

	/* strerror() of a known number returns a constant string. */
	return words ? words : strerror((int)number);
}

unsigned int memwait_version(void)
{
	return MEMWAIT_VERSION;
}
