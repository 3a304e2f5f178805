/* SPDX-License-Identifier: GPL-2.0 */
/* Pages that do not exist until a test provides them through userfaultfd(2). */
#ifndef FAULT_TEST_H
#define FAULT_TEST_H

#include <linux/userfaultfd.h>

#include "../memwait_fixture.h"

/* Returns a userfaultfd, or a negative errno. The page must not have been touched. */
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

/* Causes each store to an existing page to block. Returns a userfaultfd, or a negative errno. */
static inline int hold_stores(void *page, size_t size)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	struct uffdio_register reg = {
		.range = { (uintptr_t)page, size },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	struct uffdio_writeprotect protect = {
		.range = { (uintptr_t)page, size },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC), err = 0;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg) ||
	    ioctl(fd, UFFDIO_WRITEPROTECT, &protect))
		err = -errno;
	if (err)
		close(fd);
	return err ?: fd;
}

static inline int let_store(int fd, void *page, size_t size)
{
	struct uffdio_writeprotect allow = { .range = { (uintptr_t)page, size } };

	return ioctl(fd, UFFDIO_WRITEPROTECT, &allow);
}

/* Returns when a thread faults on the page. */
static inline void await_fault(int fd)
{
	struct uffd_msg msg;

	if (read(fd, &msg, sizeof(msg)) != sizeof(msg) || msg.event != UFFD_EVENT_PAGEFAULT)
		abort();
}

/* Resolves the fault with a page of zeros. */
static inline int bring_page(int fd, void *page, size_t size)
{
	struct uffdio_zeropage zero = { .range = { (uintptr_t)page, size } };

	return ioctl(fd, UFFDIO_ZEROPAGE, &zero);
}

#endif /* FAULT_TEST_H */
