/* SPDX-License-Identifier: GPL-2.0 */
/* Makes a seccomp filter refuse system calls, as in a sandbox. */
#ifndef REFUSE_TEST_H
#define REFUSE_TEST_H

#include "userlib_test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

/* Whether the kernel supports seccomp filters. */
static inline bool can_refuse(void)
{
	return !prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
}

static inline int refuse_by(struct sock_filter *filter, unsigned short len)
{
	struct sock_fprog program = { .len = len, .filter = filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -1 :
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* After this call, the system call fails with @error in the calling thread. */
static inline int refuse_call(unsigned int call, unsigned int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	return refuse_by(filter, ARRAY_SIZE(filter));
}

/* Offset of the lower half of a 64-bit argument, which a filter reads in two halves. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LOWER_HALF	0
#else
#define LOWER_HALF	4
#endif

/* Like refuse_call(), for one ioctl. */
static inline int refuse_ioctl(unsigned int command, unsigned int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args[1]) + LOWER_HALF),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, command, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	return refuse_by(filter, ARRAY_SIZE(filter));
}

#endif /* REFUSE_TEST_H */
