// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A broadcast ring in shared memory: one writer, readers in other processes, items of any length.
 *
 * Each process has a seat: a word that says how many bytes the process has put or got, and a robust
 * mutex that the process holds while it lives. A reader waits for the writer's word; if the ring is
 * full, the writer waits for the word of the slowest reader, until its deadline.
 *
 * Order: a word is stored after the copy that it announces (release), and loaded before the copy
 * that relies on it (acquire). The writer announces that an item is there, and a reader announces
 * that an item's space is free. C's default order for atomics is stronger than that.
 *
 * Wake-ups: each store is followed by a notify, and a wait ends immediately if the word no longer
 * has the value that was seen.
 *
 * Deaths: if a process dies between the store and the notify, or earlier, another process gets its
 * mutex, sets the bit GONE in the dead process's word, and notifies. An item that a dead writer was
 * putting does not exist, because the word has not advanced. The writer does not wait for a dead
 * reader.
 *
 * ring.py in bindings/python/examples does the same in Python, with tasks.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memwait.h>

#define READERS	3
#define WRITER	READERS
#define SLOW	(READERS - 1)
#define DATA	4096	/* bytes */
#define ITEMS	2000
#define LONGEST	200
#define GONE	1ULL

/* A seat is taken once, by one process. */
struct seat {
	alignas(64) _Atomic uint64_t word;	/* position << 1 | GONE; 63 bits do not wrap */
	memwait_mutex_t life;
};

static struct ring {
	struct seat seats[READERS + 1];
	memwait_barrier_t start;
	char data[DATA];
} *ring;

static void copy_in(uint64_t at, const void *from, size_t length)
{
	size_t first = DATA - at % DATA < length ? DATA - at % DATA : length;

	memcpy(ring->data + at % DATA, from, first);
	memcpy(ring->data, (const char *)from + first, length - first);
}

static void copy_out(uint64_t at, void *to, size_t length)
{
	size_t first = DATA - at % DATA < length ? DATA - at % DATA : length;

	memcpy(to, ring->data + at % DATA, first);
	memcpy((char *)to + first, ring->data, length - first);
}

/* The function of a thread that waits for the death of a process. */
static void *watch(void *data)
{
	struct seat *seat = data;
	int err = memwait_mutex_lock(&seat->life);

	/*
	 * The position of a dead process is that of its last whole item: there is nothing to
	 * repair.
	 */
	if (err == EOWNERDEAD)
		err = memwait_mutex_consistent(&seat->life);
	if (err)
		_exit(1);
	memwait_mutex_unlock(&seat->life);
	atomic_fetch_or(&seat->word, GONE);
	memwait_notify(&seat->word, MEMWAIT_ALL, 0);
	return NULL;
}

/*
 * Takes a seat. When all seats are taken, watches the other seats. This thread owns the seat's
 * mutex, so its end counts as the death of the process.
 */
static bool sit(struct seat *mine, struct seat *first, int count)
{
	pthread_t thread;
	int err = memwait_mutex_lock(&mine->life);

	if (!err)
		err = memwait_barrier_wait(&ring->start);
	if (err && err != MEMWAIT_BARRIER_SERIAL_THREAD)
		return false;
	for (; count; count--)
		if (pthread_create(&thread, NULL, watch, first++))
			return false;
	return true;
}

static void advance(struct seat *seat, uint64_t at)
{
	atomic_store(&seat->word, at << 1);
	memwait_notify(&seat->word, MEMWAIT_ALL, 0);
}

/* Returns 0, MEMWAIT_TIMED_OUT if a living reader has left no room by then, or a negative error. */
static int await_room(uint64_t end, const struct timespec *deadline)
{
	uint64_t seen;
	int i, result;

	for (i = 0; i < READERS; i++) {
		while (!((seen = ring->seats[i].word) & GONE) && end - (seen >> 1) > DATA) {
			result = memwait_wait64(&ring->seats[i].word, seen, deadline, 0);
			if (result < 0 || result == MEMWAIT_TIMED_OUT)
				return result;
		}
	}
	return 0;
}

/* Returns the result of await_room(). */
static int put(uint64_t *at, const void *item, uint32_t length, const struct timespec *deadline)
{
	uint64_t end = *at + sizeof(length) + length;
	int result = await_room(end, deadline);

	if (result)
		return result;
	copy_in(*at, &length, sizeof(length));
	copy_in(*at + sizeof(length), item, length);
	*at = end;
	advance(&ring->seats[WRITER], end);
	return 0;
}

/* Returns the length; 0 after the last item of a writer that has gone; or a negative error. */
static int get(int me, uint64_t *at, void *item)
{
	struct seat *writer = &ring->seats[WRITER];
	uint32_t length;
	uint64_t seen;
	int err;

	while ((seen = writer->word) >> 1 == *at) {
		if (seen & GONE)
			return 0;
		err = memwait_wait64(&writer->word, seen, NULL, 0);
		if (err < 0)
			return err;
	}
	copy_out(*at, &length, sizeof(length));
	copy_out(*at + sizeof(length), item, length);
	*at += sizeof(length) + length;
	advance(&ring->seats[me], *at);
	return length;
}

static int write_all(pid_t slow)
{
	struct timespec deadline;
	char item[LONGEST];
	int i, result, refused = 0;
	uint64_t at = 0;

	if (!sit(&ring->seats[WRITER], ring->seats, READERS))
		return 1;
	for (i = 0; i < ITEMS; i++) {
		memset(item, i, sizeof(item));
		do {
			clock_gettime(CLOCK_MONOTONIC, &deadline);
			deadline.tv_sec++;
			result = put(&at, item, 1 + i % LONGEST, &deadline);
			if (result == MEMWAIT_TIMED_OUT && !refused++)
				kill(slow, SIGKILL);
		} while (result == MEMWAIT_TIMED_OUT);
		if (result)
			return 1;
	}
	if (!refused || await_room(at + sizeof(item), NULL))
		return 1;
	/* During a put. */
	copy_in(at, item, sizeof(item));
	return raise(SIGKILL);
}

static int read_all(int me)
{
	char item[LONGEST];
	uint64_t at = 0;
	int length, i;

	if (!sit(&ring->seats[me], &ring->seats[WRITER], 1))
		return 1;
	for (i = 0; (length = get(me, &at, item)) > 0; i++) {
		if (length != 1 + i % LONGEST || item[0] != (char)i || item[length - 1] != (char)i)
			return 1;
		if (me == SLOW && i == ITEMS / 2)
			raise(SIGSTOP);
	}
	return length || i != ITEMS;
}

/* One reader stops, and the writer kills it when the ring is full. Finally the writer dies. */
int main(void)
{
	int i, status, whole = 0, killed = 0;
	pid_t pids[READERS + 1];

	ring = mmap(NULL, sizeof(*ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ring == MAP_FAILED || memwait_barrier_init(&ring->start, 0, READERS + 1))
		return 1;
	for (i = 0; i <= READERS; i++)
		if (memwait_mutex_init(&ring->seats[i].life, MEMWAIT_MUTEX_ROBUST))
			return 1;
	for (i = 0; i <= READERS; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			return 1;
		if (!pids[i])
			_exit(i == WRITER ? write_all(pids[SLOW]) : read_all(i));
	}
	while (wait(&status) > 0) {
		whole += WIFEXITED(status) && !WEXITSTATUS(status);
		killed += WIFSIGNALED(status);
	}
	printf("%d readers got all of %d items; the slow one and the writer were killed\n",
	       whole, ITEMS);
	return whole == READERS - 1 && killed == 2 ? 0 : 1;
}
