// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Programs that share only the name of a file. The first program creates the file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memwait.h>

static const char name[] = "/dev/shm/howto_programs";

struct shared {
	memwait_mutex_t mutex;
	int turns;
};

static struct shared *map(int fd)
{
	void *memory = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* The file gets its name when its contents are initialised, unless another program was faster. */
static int create(void)
{
	int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), err;
	struct shared *shared;
	char path[32];

	shared = fd < 0 || ftruncate(fd, sizeof(*shared)) ? NULL : map(fd);
	if (!shared || memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_ROBUST))
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW) && errno != EEXIST;
	munmap(shared, sizeof(*shared));
	close(fd);
	return err;
}

static int take_turn(struct shared *shared)
{
	int err = memwait_mutex_lock(&shared->mutex);

	if (err == EOWNERDEAD)	/* the mutex is locked; repair the dead owner's data here */
		err = memwait_mutex_consistent(&shared->mutex);
	if (err)
		return err;
	shared->turns++;
	return memwait_mutex_unlock(&shared->mutex);
}

int main(void)
{
	int fd, i, children, status;
	struct shared *shared;

	unlink(name);	/* left by a run that was killed */
	for (children = 0; children < 2 && fork(); children++)
		;	/* as if the program was started three times */
	fd = open(name, O_RDWR | O_CLOEXEC);
	if (fd < 0 && !create())
		fd = open(name, O_RDWR | O_CLOEXEC);
	shared = fd < 0 ? NULL : map(fd);
	for (i = 0; i < 1000; i++)
		if (!shared || take_turn(shared))
			return 1;
	if (children < 2)
		return 0;
	while (wait(&status) > 0)
		if (status)
			return 1;
	printf("%d turns\n", shared->turns);
	return unlink(name) ? 1 : 0;
}
