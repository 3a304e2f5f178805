/* SPDX-License-Identifier: GPL-2.0 */
/* What several tests of async waits need beside the fixture. */
#ifndef ASYNC_TEST_H
#define ASYNC_TEST_H

#include "memwait_fixture.h"

/*
 * Arms a wait for 0 whose deadline is so near that a slow machine may find it past, and then takes
 * another one.
 */
static inline int async_soon(int fd, const volatile void *addr, uint64_t ms, uint64_t user_data,
			     uint64_t *id)
{
	int ret;

	do {
		ret = mw_async(fd, addr, 0, in_ms(ms), U32, user_data, id);
	} while (ret == MEMWAIT_TIMED_OUT);
	return ret;
}

/* A count of the context in its fdinfo: "pending" or "completed". */
static inline long context_count(int fd, const char *name)
{
	char path[64], line[128];
	size_t n = strlen(name);
	long count = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, name, n) && line[n] == ':')
			count = strtol(line + n + 1, NULL, 10);
	}
	if (f)
		fclose(f);
	return count;
}

/* Returns 0, or a negative errno. */
static inline int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), ret;

	if (fd < 0)
		return -errno;
	ret = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

#define LIMIT_PARAMETER	"/sys/module/memwait/parameters/max_user_waits"

/* The limit is the module's: whoever sets it puts it back, however a test ends. */
static inline int set_limit(uint64_t limit)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)limit);
	return write_file(LIMIT_PARAMETER, text);
}

#endif /* ASYNC_TEST_H */
