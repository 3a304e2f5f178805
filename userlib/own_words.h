/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#ifndef MEMWAIT_OWN_WORDS_H
#define MEMWAIT_OWN_WORDS_H

#include <errno.h>
#include <stddef.h>

/*
 * Describes an error number that has a special meaning in this library; returns NULL if the text of
 * strerror(3) is right. Async-signal-safe. Both libraries include this file, because the text is
 * not part of libmemwait's interface.
 */
static inline const char *memwait_own_words(unsigned int number)
{
	switch (number) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return "/dev/memwait does not exist, or its module is not loaded";
	case EPERM:
		return "Not permitted for this thread or process, or /dev/memwait is denied";
	case EACCES:
		return "No permission to open /dev/memwait";
	case ENOTTY:
		return "/dev/memwait belongs to another driver";
	case ENOSYS:
		return "The memwait module is older than libmemwait";
	case ENOSPC:
		return "The user's limit of waits or owner ids is reached";
	case EMFILE:
		return "Too many open files, or the user's limit max_user_contexts is reached";
	case EOPNOTSUPP:
		return "Not supported by this kernel, or for this memory";
	case EINPROGRESS:
		return "The operation is pending: its callback will run";
	case ETIMEDOUT:
		return "The deadline passed";
	case EPIPE:
		return "The channel is closed, or the barrier was aborted or reset";
	case EMSGSIZE:
		return "The size differs from that of the channel's items";
	case EXDEV:
		return "The words are in different files";
	default:
		return NULL;
	}
}

#endif /* MEMWAIT_OWN_WORDS_H */
