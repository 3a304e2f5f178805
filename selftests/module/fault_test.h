/* SPDX-License-Identifier: GPL-2.0 */
/* Pages that are not there until a test brings them, by userfaultfd(2). */
#ifndef FAULT_TEST_H
#define FAULT_TEST_H

#include <linux/userfaultfd.h>

#include "../memwait_fixture.h"

/* Returns a descriptor, or a negative errno. The page must not have been touched. */
static inline int hold_page(void *page, size_t size)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { (uintptr_t)page, size },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg))
		abort();
	return fd;
}

/* Returns when somebody needs the page. */
static inline void await_fault(int fd)
{
	struct uffd_msg msg;

	if (read(fd, &msg, sizeof(msg)) != sizeof(msg) || msg.event != UFFD_EVENT_PAGEFAULT)
		abort();
}

/* A page of zeros. */
static inline int bring_page(int fd, void *page, size_t size)
{
	struct uffdio_zeropage zero = { .range = { (uintptr_t)page, size } };

	return ioctl(fd, UFFDIO_ZEROPAGE, &zero);
}

#endif /* FAULT_TEST_H */
