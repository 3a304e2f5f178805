/* SPDX-License-Identifier: GPL-2.0 */
/*
 * In a test that includes this file, the test's intercept() receives all ioctls, including those of
 * the library, and can call ioctl_of_kernel().
 */
#ifndef IOCTL_TEST_H
#define IOCTL_TEST_H

#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

static int intercept(int fd, unsigned long request, void *argument);

static inline int ioctl_of_kernel(int fd, unsigned long request, void *argument)
{
	return (int)syscall(SYS_ioctl, fd, request, argument);
}

int ioctl(int fd, unsigned long request, ...)
{
	void *argument;
	va_list list;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	return intercept(fd, request, argument);
}

#endif /* IOCTL_TEST_H */
