// SPDX-License-Identifier: GPL-2.0-only
/*
 * This library is preloaded into Node.js, to test results that arrive while a worker is being
 * terminated. The file $MEMWAIT_LATE has three words in shared memory.
 *
 * If the first word is 1, a thread that is about to take a result from the library sets the word to
 * 2 and waits until it is 3. While the second word is not 0, MEMWAIT_IOC_WAIT_ASYNC fails with
 * ENOSPC. The third word is a number n: the next n calls of memwait_channel_trysend() fail with
 * EBUSY, as if another thread were sending.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#include <linux/memwait.h>
#include <memwait.h>

static _Atomic int *word;	/* three consecutive words */

__attribute__((constructor)) static void begin(void)
{
	const char *name = getenv("MEMWAIT_LATE");
	int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	word = mmap(NULL, 3 * sizeof(*word), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (word == MAP_FAILED)
		word = NULL;
}

static void stop(void)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	int armed = 1;

	/* seq_cst (all in this file): like Atomics in the test */
	if (!word || !atomic_compare_exchange_strong(word, &armed, 2))
		return;
	while (atomic_load(word) != 3)
		nanosleep(&ms, NULL);
}

int memwait_loop_dispatch(memwait_loop_t *loop, unsigned int most)
{
	int (*next)(memwait_loop_t *loop, unsigned int most);

	stop();
	*(void **)&next = dlsym(RTLD_NEXT, "memwait_loop_dispatch");
	return next(loop, most);
}

int memwait_channel_tryrecv(memwait_channel_t *channel, void *item, size_t size)
{
	int (*next)(memwait_channel_t *channel, void *item, size_t size);

	stop();
	*(void **)&next = dlsym(RTLD_NEXT, "memwait_channel_tryrecv");
	return next(channel, item, size);
}

int memwait_channel_trysend(memwait_channel_t *channel, const void *item, size_t size)
{
	int (*next)(memwait_channel_t *channel, const void *item, size_t size);

	/* seq_cst: as above. One thread counts down. */
	if (word && atomic_load(&word[2]) > 0) {
		atomic_fetch_sub(&word[2], 1);
		return EBUSY;
	}
	*(void **)&next = dlsym(RTLD_NEXT, "memwait_channel_trysend");
	return next(channel, item, size);
}

int ioctl(int fd, unsigned long command, ...)
{
	int (*next)(int fd, unsigned long command, void *argument);
	void *argument;
	va_list list;

	va_start(list, command);
	argument = va_arg(list, void *);
	va_end(list);
	/* seq_cst: as above */
	if (command == MEMWAIT_IOC_WAIT_ASYNC && word && atomic_load(&word[1])) {
		errno = ENOSPC;
		return -1;
	}
	*(void **)&next = dlsym(RTLD_NEXT, "ioctl");
	return next(fd, command, argument);
}
