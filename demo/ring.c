// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A bounded ring in shared memory whose users sleep in MEMWAIT_IOC_WAIT.
 *
 * Whoever takes a slot moves head (or tail) by compare-and-swap, which divides the slots; the
 * slot's sequence number says when its content is there: stored with release after the content,
 * loaded with acquire before.
 *
 * Sleeping: read the word (@filled, say), look whether there is something to take, and if there is
 * not, wait as long as the word has the value that was read. Whoever fills a slot changes the word
 * afterwards and then notifies. So either the look sees the slot, or the wait sees the new value,
 * or the notify sees the waiter. The word is loaded with acquire and changed with release for that.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>

#include "demo.h"

bool ring_try_put(struct ring *ring, const void *data, uint32_t length)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	for (;;) {
		struct slot *slot = &ring->slots[head % SLOTS];
		uint32_t free = head / SLOTS * 2;
		int32_t ahead = atomic_load_explicit(&slot->sequence, memory_order_acquire) - free;

		if (ahead < 0)
			return false;	/* full: not emptied since the last lap */
		if (ahead > 0) {
			head = atomic_load_explicit(&ring->head, memory_order_relaxed);
			continue;	/* another producer was faster */
		}
		if (atomic_compare_exchange_weak_explicit(&ring->head, &head, head + 1,
							  memory_order_relaxed,
							  memory_order_relaxed)) {
			memcpy(slot->data, data, length);
			slot->length = length;
			atomic_store_explicit(&slot->sequence, free + 1, memory_order_release);
			return true;
		}
	}
}

bool ring_try_get(struct ring *ring, void *data, uint32_t *length)
{
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	for (;;) {
		struct slot *slot = &ring->slots[tail % SLOTS];
		uint32_t full = tail / SLOTS * 2 + 1;
		int32_t ahead = atomic_load_explicit(&slot->sequence, memory_order_acquire) - full;

		if (ahead < 0)
			return false;	/* empty */
		if (ahead > 0) {
			tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
			continue;
		}
		if (atomic_compare_exchange_weak_explicit(&ring->tail, &tail, tail + 1,
							  memory_order_relaxed,
							  memory_order_relaxed)) {
			*length = slot->length;
			memcpy(data, slot->data, slot->length);
			atomic_store_explicit(&slot->sequence, full + 1, memory_order_release);
			return true;
		}
	}
}

/* Changes a word that others may wait on, and wakes so many of them. */
void announce(int fd, struct counts *counts, _Atomic uint32_t *word, uint32_t count)
{
	struct memwait_notify notify = {
		.addr = (uintptr_t)word,
		.count = count,
		.flags = MEMWAIT_SIZE_U32,
	};
	int woken;

	atomic_fetch_add_explicit(word, 1, memory_order_release);
	woken = ioctl(fd, MEMWAIT_IOC_NOTIFY, &notify);
	if (woken < 0)
		die("MEMWAIT_IOC_NOTIFY");
	counts->notifies++;
	counts->woken += woken;
}

/* Blocks while the word has this value; not for ever, to show what a deadline does. */
static void wait_on(int fd, struct counts *counts, _Atomic uint32_t *word, uint32_t value)
{
	struct memwait_wait wait = {
		.addr = (uintptr_t)word,
		.expected = value,
		.deadline = now() + 20000000,
		.flags = MEMWAIT_SIZE_U32,
	};

	switch (ioctl(fd, MEMWAIT_IOC_WAIT, &wait)) {
	case MEMWAIT_OK:
		counts->ok++;
		break;
	case MEMWAIT_NOT_EQUAL:
		counts->not_equal++;
		break;
	case MEMWAIT_TIMED_OUT:
		counts->timed_out++;
		break;
	default:
		if (errno != EINTR)
			die("MEMWAIT_IOC_WAIT");
	}
}

void ring_put(int fd, struct counts *counts, struct ring *ring, const void *data, uint32_t length)
{
	for (;;) {
		uint32_t freed = atomic_load_explicit(&ring->freed, memory_order_acquire);

		if (ring_try_put(ring, data, length))
			break;
		wait_on(fd, counts, &ring->freed, freed);
	}
	announce(fd, counts, &ring->filled, 1);
}

/* Returns false when the ring is closed and empty. */
bool ring_get(int fd, struct counts *counts, struct ring *ring, void *data, uint32_t *length)
{
	for (;;) {
		uint32_t filled = atomic_load_explicit(&ring->filled, memory_order_acquire);
		bool closed = atomic_load_explicit(&ring->closed, memory_order_acquire);

		if (ring_try_get(ring, data, length))
			break;
		if (closed)
			return false;
		wait_on(fd, counts, &ring->filled, filled);
	}
	announce(fd, counts, &ring->freed, 1);
	return true;
}

void ring_close(int fd, struct counts *counts, struct ring *ring)
{
	atomic_store_explicit(&ring->closed, 1, memory_order_release);
	announce(fd, counts, &ring->filled, MEMWAIT_ALL);
}
