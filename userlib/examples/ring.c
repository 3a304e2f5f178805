// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A broadcast ring in shared memory: one writer, readers in other processes, items of any length.
 * A reader may be a thread or an event loop. Readers may join and die at any time.
 *
 * Each process has a seat: a word with the position up to which the process has put or got bytes,
 * and a robust mutex that the process holds while it lives. A reader waits for the writer's word.
 * If the ring is full, the writer waits for the word of the slowest reader, until its deadline.
 *
 * Wake-ups: a waiter sets the bit WAITED in the word by compare-and-swap, and then waits while the
 * word has the value that includes the bit. The owner of the seat advances its word by an exchange.
 * All these are atomic operations on one word, so they have one order:
 * - The exchange comes after the compare-and-swap. It returns the bit, and the owner notifies. The
 *   kernel compares the word after it has queued the waiter: either the notify finds the waiter, or
 *   the wait ends immediately because the word has changed.
 * - The exchange comes first. The compare-and-swap fails, and the waiter looks again.
 * An owner makes no system call if the bit is not set. The bit of a waiter that has died or timed
 * out causes one superfluous notify. Positions have 62 bits and do not wrap, so no value of a word
 * comes back.
 *
 * A reader advances its word when it has got a quarter of the ring or finds the ring empty, not for
 * each item. The writer therefore sleeps at most once for each quarter and each reader, and may see
 * up to a quarter less room than there is.
 *
 * Order: bytes are copied before the exchange that announces them (release), and after the load
 * that finds them (acquire). The writer announces an item, and a reader announces free space.
 *
 * Joining: a reader stores its position, and then loads the writer's word again; the writer stores
 * its word, and then loads the positions for its next item. Both orders are store, load: they need
 * sequential consistency, C's default for atomics. If the reader finds its own position in the
 * writer's word, the writer sees the reader before it puts an item after the one that it may be
 * putting now. Otherwise the reader tries again.
 *
 * Deaths: a process that dies may have advanced its word and not yet notified. Another process gets
 * its mutex, sets the bit GONE, and notifies, whether WAITED is set or not; so does a process that
 * takes the seat again. The writer does not wait for a dead reader. An item that a dead writer was
 * putting does not exist, because the word has not advanced.
 *
 * ring.py in bindings/python/examples does the same in Python.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memwait.h>

#define DATA	4096	/* bytes */
#define GONE	1ULL	/* the seat is free, or its process is dead */
#define WAITED	2ULL	/* the word may have waiters */
#define SHIFT	2	/* a word is position << SHIFT | bits */

enum { THREAD, LOOP, SLOW, LATE, READERS, WRITER = READERS, SEATS };

struct seat {
	alignas(64) _Atomic uint64_t word;
	memwait_mutex_t life;
};

static struct ring {
	struct seat seats[SEATS];
	memwait_barrier_t start;
	char data[DATA];
} *ring;

struct writer {
	uint64_t at;
	uint64_t limit;		/* no reader needs the bytes below limit - DATA */
};

struct reader {
	struct seat *seat;
	uint64_t at;
	uint64_t end;		/* the position of the writer, when the reader last looked */
	uint64_t stored;	/* the position in the reader's word */
};

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

/* For the process in the seat. */
static void advance(struct seat *seat, uint64_t at)
{
	if (atomic_exchange(&seat->word, at << SHIFT) & WAITED)
		memwait_notify(&seat->word, MEMWAIT_ALL, 0);
}

/*
 * Waits while the word has the value that was seen; or, if there is an operation, begins to wait
 * and returns MEMWAIT_PENDING.
 */
static int await_change(struct seat *seat, uint64_t seen, const struct timespec *deadline,
			memwait_op_t *op)
{
	uint64_t waited = seen | WAITED;

	if (seen != waited && !atomic_compare_exchange_strong(&seat->word, &seen, waited))
		return MEMWAIT_NOT_EQUAL;
	if (op)
		return memwait_wait64_async(&seat->word, waited, deadline, 0, op);
	return memwait_wait64(&seat->word, waited, deadline, 0);
}

/* Returns 0, MEMWAIT_TIMED_OUT if a living reader has left no room by then, or a negative error. */
static int await_room(struct writer *writer, uint64_t end, const struct timespec *deadline)
{
	uint64_t seen, limit = writer->at + DATA;
	int i, result;

	for (i = 0; i < READERS; i++) {
		struct seat *seat = &ring->seats[i];

		while (!((seen = seat->word) & GONE) && end > (seen >> SHIFT) + DATA) {
			result = await_change(seat, seen, deadline, NULL);
			if (result < 0 || result == MEMWAIT_TIMED_OUT)
				return result;
		}
		if (!(seen & GONE) && (seen >> SHIFT) + DATA < limit)
			limit = (seen >> SHIFT) + DATA;
	}
	writer->limit = limit;
	return 0;
}

/* Returns the result of await_room(). */
static int put(struct writer *writer, const void *item, uint32_t length,
	       const struct timespec *deadline)
{
	uint64_t end = writer->at + sizeof(length) + length;
	int result = end > writer->limit ? await_room(writer, end, deadline) : 0;

	if (result)
		return result;
	copy_in(writer->at, &length, sizeof(length));
	copy_in(writer->at + sizeof(length), item, length);
	writer->at = end;
	advance(&ring->seats[WRITER], end);
	return 0;
}

/*
 * Returns the length; 0 after the last item of a writer that has gone; or a negative error. With an
 * operation, returns -EINPROGRESS if there is no item: the callback will run, and tries again.
 */
static int get(struct reader *reader, void *item, memwait_op_t *op)
{
	struct seat *writer = &ring->seats[WRITER];
	uint32_t length;
	int result;

	while (reader->at == reader->end) {
		uint64_t seen = writer->word;

		reader->end = seen >> SHIFT;
		if (reader->at != reader->end)
			break;
		if (seen & GONE)
			return 0;
		/* Otherwise an item as long as the ring would never find room. */
		if (reader->stored != reader->at)
			advance(reader->seat, reader->stored = reader->at);
		result = await_change(writer, seen, NULL, op);
		if (result == MEMWAIT_PENDING)
			return -EINPROGRESS;
		if (result < 0)
			return result;
	}
	copy_out(reader->at, &length, sizeof(length));
	copy_out(reader->at + sizeof(length), item, length);
	reader->at += sizeof(length) + length;
	if (reader->at - reader->stored >= DATA / 4)
		advance(reader->seat, reader->stored = reader->at);
	return length;
}

/* Locks the mutex of a seat, whose last owner may be dead. There is nothing to repair. */
static void take(struct seat *seat)
{
	int err = memwait_mutex_lock(&seat->life);

	if (err == EOWNERDEAD)
		err = memwait_mutex_consistent(&seat->life);
	if (err)
		_exit(1);
}

/* The function of a thread that waits for the deaths of the processes in a seat. */
static void *watch(void *data)
{
	struct seat *seat = data;
	uint64_t seen;

	for (;;) {
		/* A process takes the mutex before it clears GONE. */
		while ((seen = seat->word) & GONE)
			if (await_change(seat, seen, NULL, NULL) < 0)
				_exit(1);
		take(seat);
		atomic_fetch_or(&seat->word, GONE);
		memwait_notify(&seat->word, MEMWAIT_ALL, 0);
		memwait_mutex_unlock(&seat->life);
	}
}

static void watch_all(struct seat *seat, int count)
{
	pthread_t thread;

	for (; count; count--)
		if (pthread_create(&thread, NULL, watch, seat++))
			_exit(1);
}

/* This thread owns the mutex of the seat, so its end counts as the death of the process. */
static void join(struct reader *reader, struct seat *seat)
{
	_Atomic uint64_t *word = &ring->seats[WRITER].word;

	reader->seat = seat;
	take(seat);
	do {
		reader->at = *word >> SHIFT;
		advance(seat, reader->at);
	} while (*word >> SHIFT != reader->at);
	reader->end = reader->at;
	reader->stored = reader->at;
	memwait_notify(&seat->word, MEMWAIT_ALL, 0);
	watch_all(&ring->seats[WRITER], 1);
}

/* The rest is a program that tests the ring. */
#define ITEMS	20000
#define LONGEST	(DATA - 2 * sizeof(uint32_t))

struct item {
	uint32_t number;
	unsigned char bytes[LONGEST];	/* all equal */
};

/* Some items fill the ring. */
static uint32_t bytes_of(uint32_t number)
{
	return number % 500 ? number * 7 % 200 : LONGEST;
}

static int write_all(pid_t slow)
{
	struct writer writer = { .at = 0 };
	struct timespec deadline;
	struct item item;
	bool refused = false;
	uint32_t i;
	int result;

	take(&ring->seats[WRITER]);
	advance(&ring->seats[WRITER], 0);
	watch_all(ring->seats, READERS);
	result = memwait_barrier_wait(&ring->start);
	if (result && result != MEMWAIT_BARRIER_SERIAL_THREAD)
		return 1;
	for (i = 0; i < ITEMS; i++) {
		item.number = i;
		memset(item.bytes, i, bytes_of(i));
		do {
			clock_gettime(CLOCK_MONOTONIC, &deadline);
			deadline.tv_sec++;
			result = put(&writer, &item, sizeof(i) + bytes_of(i),
				     refused ? NULL : &deadline);
			if (result == MEMWAIT_TIMED_OUT) {
				kill(slow, SIGKILL);
				refused = true;
			}
		} while (result == MEMWAIT_TIMED_OUT);
		if (result)
			return 1;
	}
	if (!refused || await_room(&writer, writer.at + sizeof(item), NULL))
		return 1;
	/* During a put. */
	copy_in(writer.at, &item, sizeof(item));
	return raise(SIGKILL);
}

static bool is_item(const struct item *item, uint32_t length, uint32_t number)
{
	uint32_t i;

	if (item->number != number || length != sizeof(number) + bytes_of(number))
		return false;
	for (i = 0; i < bytes_of(number); i++)
		if (item->bytes[i] != (unsigned char)number)
			return false;
	return true;
}

static void again(memwait_op_t *op, int result, void *failed)
{
	(void)op;
	*(bool *)failed = result;
}

static int read_all(int me)
{
	struct pollfd fd = { .events = POLLIN };
	struct reader reader;
	memwait_loop_t *loop;
	struct item item;
	memwait_op_t op;
	uint32_t next = 0, count = 0;
	bool failed = false;
	int length, err = 0;

	join(&reader, &ring->seats[me]);
	if (me != LATE)
		err = memwait_barrier_wait(&ring->start);
	if ((err && err != MEMWAIT_BARRIER_SERIAL_THREAD) ||
	    memwait_loop_new(&loop, 0) || memwait_op_init(&op, loop, again, &failed))
		return 1;
	fd.fd = memwait_loop_fd(loop);
	while ((length = get(&reader, &item, me == LOOP ? &op : NULL))) {
		if (length == -EINPROGRESS) {
			if (poll(&fd, 1, -1) < 0 || memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0)
				return 1;
			if (memwait_op_pending(&op) || failed)
				return 1;
			continue;
		}
		/* A reader that joins late begins with any item. */
		if (me == LATE && !count && length > 0)
			next = item.number;
		if (length < 0 || !is_item(&item, length, next))
			return 1;
		next++;
		count++;
		if (me == SLOW && count == ITEMS / 2)
			raise(SIGSTOP);
		if (me == LATE && count == 50) {
			/* Before the notify. */
			atomic_exchange(&reader.seat->word, reader.at << SHIFT);
			raise(SIGKILL);
		}
	}
	return me == LATE ? count && next != ITEMS : next != ITEMS || count != ITEMS;
}

static bool has_got_all(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

/*
 * One reader stops, and the writer kills it when the ring is full. Readers that join late are
 * killed at any time. Finally the writer dies.
 */
int main(void)
{
	pid_t pids[SEATS], ended;
	int i, status, killed = 0;

	ring = mmap(NULL, sizeof(*ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ring == MAP_FAILED || memwait_barrier_init(&ring->start, 0, READERS + 1))
		return 1;
	for (i = 0; i < SEATS; i++) {
		ring->seats[i].word = GONE;
		if (memwait_mutex_init(&ring->seats[i].life, MEMWAIT_MUTEX_ROBUST))
			return 1;
	}
	for (i = 0; i < SEATS; i++) {
		if (i == LATE)
			continue;
		pids[i] = fork();
		if (pids[i] < 0)
			return 1;
		if (!pids[i])
			_exit(i == WRITER ? write_all(pids[SLOW]) : read_all(i));
	}
	i = memwait_barrier_wait(&ring->start);
	if (i && i != MEMWAIT_BARRIER_SERIAL_THREAD)
		return 1;
	do {
		pids[LATE] = fork();
		if (pids[LATE] < 0)
			return 1;
		if (!pids[LATE])
			_exit(read_all(LATE));
		usleep(1 << rand() % 17);
		kill(pids[LATE], SIGKILL);
		if (waitpid(pids[LATE], &status, 0) != pids[LATE] ||
		    (WIFEXITED(status) && WEXITSTATUS(status)))
			return 1;
		killed += WIFSIGNALED(status);
		ended = waitpid(pids[WRITER], &status, WNOHANG);
	} while (!ended);
	if (ended != pids[WRITER] || !WIFSIGNALED(status) || !killed)
		return 1;
	if (!has_got_all(pids[THREAD]) || !has_got_all(pids[LOOP]) || has_got_all(pids[SLOW]))
		return 1;
	printf("2 readers got all of %d items; late ones, a slow one and the writer were killed\n",
	       ITEMS);
	return 0;
}
