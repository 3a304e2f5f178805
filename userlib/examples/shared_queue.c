// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * SharedQueue: a queue that consists of a mutex and two condition variables, in memory that two
 * processes map at different addresses. The receiver blocks; the sender either blocks or is an
 * event loop.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memwait.h>

#define PLACES	8
#define ITEMS	10000

struct shared_queue {
	memwait_mutex_t mutex;
	memwait_cond_t not_full;
	memwait_cond_t not_empty;
	int items[PLACES];
	unsigned int first, count;
};

static int send_item(struct shared_queue *queue, int item)
{
	int err = memwait_mutex_lock(&queue->mutex);

	while (!err && queue->count == PLACES)
		err = memwait_cond_wait(&queue->not_full, &queue->mutex);
	if (err)
		return err;
	queue->items[(queue->first + queue->count++) % PLACES] = item;
	err = memwait_cond_signal(&queue->not_empty);
	memwait_mutex_unlock(&queue->mutex);
	return err;
}

static int receive_item(struct shared_queue *queue, int *item)
{
	int err = memwait_mutex_lock(&queue->mutex);

	while (!err && !queue->count)
		err = memwait_cond_wait(&queue->not_empty, &queue->mutex);
	if (err)
		return err;
	*item = queue->items[queue->first];
	queue->first = (queue->first + 1) % PLACES;
	queue->count--;
	err = memwait_cond_signal(&queue->not_full);
	memwait_mutex_unlock(&queue->mutex);
	return err;
}

static struct shared_queue *map(int memfd)
{
	void *memory = mmap(NULL, sizeof(struct shared_queue), PROT_READ | PROT_WRITE, MAP_SHARED,
			    memfd, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* Checks that all items come, in order. */
static int receive_all(struct shared_queue *queue)
{
	int i, item;

	for (i = 0; i < ITEMS; i++)
		if (receive_item(queue, &item) || item != i)
			return 1;
	printf("received %d items in order\n", i);
	fflush(stdout);
	return 0;
}

int main(void)
{
	int memfd = memfd_create("shared-queue", MFD_CLOEXEC), status = 1, i;
	struct shared_queue *queue, *other;

	/* Zeroed memory is an unlocked mutex and condition variables without waiters. */
	if (memfd < 0 || ftruncate(memfd, sizeof(*queue)))
		return 1;
	queue = map(memfd);
	other = map(memfd);
	if (!queue || !other)
		return 1;
	switch (fork()) {
	case -1:
		return 1;
	case 0:
		munmap(queue, sizeof(*queue));
		_exit(receive_all(other));
	}
	munmap(other, sizeof(*other));
	for (i = 0; i < ITEMS; i++)
		if (send_item(queue, i))
			return 1;
	wait(&status);
	return status ? 1 : 0;
}
