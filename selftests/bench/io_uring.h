/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A ring of one thread, set up as its documentation recommends. Only this thread submits.
 * Completions are posted when the thread asks for them or, with the other kind of ring, whenever
 * the thread leaves the kernel. The ring's descriptor is registered, and submissions are taken in
 * array order. Every kernel whose rings support futex waits supports all of this.
 */
#ifndef BENCH_IO_URING_H
#define BENCH_IO_URING_H

#include <linux/io_uring.h>

#include "bench.h"

/* Older versions of <linux/io_uring.h> do not define these constants. */
#define RING_SETUP_NO_SQARRAY	0x10000
#define RING_OP_FUTEX_WAIT	51
#define RING_OP_FUTEX_WAKE	52

#define RING_OPS		64	/* the operations above have smaller numbers */

struct ring {
	int fd;
	struct io_uring_rsrc_update registered;
	uint32_t *sq_tail, *cq_head, *cq_tail;
	uint32_t sq_mask, cq_mask;
	uint32_t tail;			/* end of the queued submissions */
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	void *rings;
	size_t rings_size, sqes_size;
};

static inline int ring_register(struct ring *ring, unsigned int what, void *arg, unsigned int nr)
{
	return (int)syscall(__NR_io_uring_register, ring->fd, what, arg, nr);
}

static inline bool ring_has_futexes(struct ring *ring)
{
	struct io_uring_probe *probe = calloc(1, sizeof(*probe) + RING_OPS * sizeof(probe->ops[0]));
	bool has = probe && !ring_register(ring, IORING_REGISTER_PROBE, probe, RING_OPS) &&
		   (probe->ops[RING_OP_FUTEX_WAKE].flags & IO_URING_OP_SUPPORTED);

	free(probe);
	return has;
}

/* Closes the ring. Pending requests are cancelled. */
static inline void ring_close(struct ring *ring)
{
	if (ring->sqes != MAP_FAILED)
		munmap(ring->sqes, ring->sqes_size);
	if (ring->rings != MAP_FAILED)
		munmap(ring->rings, ring->rings_size);
	if (ring->registered.offset != ~0U) {
		ring->registered.data = 0;
		ring_register(ring, IORING_UNREGISTER_RING_FDS, &ring->registered, 1);
	}
	close(ring->fd);
}

/*
 * Opens a ring that has room for @submissions submissions and @completions unseen completions.
 * @task_work: IORING_SETUP_DEFER_TASKRUN or IORING_SETUP_COOP_TASKRUN. Returns false if this kernel
 * does not support it.
 */
static inline bool ring_open(struct ring *ring, uint32_t submissions, uint32_t completions,
			     uint32_t task_work)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_SINGLE_ISSUER | task_work | RING_SETUP_NO_SQARRAY |
			 IORING_SETUP_CQSIZE,
		.cq_entries = completions,
	};
	char *rings;

	memset(ring, 0, sizeof(*ring));
	ring->fd = (int)syscall(__NR_io_uring_setup, submissions, &params);
	if (ring->fd < 0)
		return false;

	ring->rings_size = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	ring->rings = mmap(NULL, ring->rings_size, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
	ring->sqes_size = params.sq_entries * sizeof(struct io_uring_sqe);
	ring->sqes = mmap(NULL, ring->sqes_size, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
	ring->registered.offset = ~0U;
	ring->registered.data = ring->fd;
	if (ring->rings == MAP_FAILED || ring->sqes == MAP_FAILED || !ring_has_futexes(ring) ||
	    ring_register(ring, IORING_REGISTER_RING_FDS, &ring->registered, 1) != 1) {
		ring_close(ring);
		return false;
	}

	rings = ring->rings;
	ring->sq_tail = (uint32_t *)(rings + params.sq_off.tail);
	ring->sq_mask = *(uint32_t *)(rings + params.sq_off.ring_mask);
	ring->cq_head = (uint32_t *)(rings + params.cq_off.head);
	ring->cq_tail = (uint32_t *)(rings + params.cq_off.tail);
	ring->cq_mask = *(uint32_t *)(rings + params.cq_off.ring_mask);
	ring->cqes = (struct io_uring_cqe *)(rings + params.cq_off.cqes);
	return true;
}

/*
 * Returns the next submission. The caller must not queue more submissions than the ring has room
 * for.
 */
static inline struct io_uring_sqe *ring_next(struct ring *ring)
{
	struct io_uring_sqe *sqe = &ring->sqes[ring->tail++ & ring->sq_mask];

	memset(sqe, 0, sizeof(*sqe));
	return sqe;
}

/* The flags are those of futex2, which have the same values as those of memwait. */
static inline struct io_uring_sqe *ring_wait(struct ring *ring, const uint32_t *word,
					     uint32_t expected, uint32_t flags, uint64_t user_data)
{
	struct io_uring_sqe *sqe = ring_next(ring);

	sqe->opcode = RING_OP_FUTEX_WAIT;
	sqe->fd = (int)flags;
	sqe->addr = (uintptr_t)word;
	sqe->addr2 = expected;
	sqe->addr3 = ~0U;
	sqe->user_data = user_data;
	return sqe;
}

/* Submits all queued submissions, and returns when there are @completions completions. */
static inline bool ring_submit(struct ring *ring, uint32_t completions)
{
	uint32_t queued = ring->tail - *ring->sq_tail;

	__atomic_store_n(ring->sq_tail, ring->tail, __ATOMIC_RELEASE);
	return syscall(__NR_io_uring_enter, ring->registered.offset, queued, completions,
		       IORING_ENTER_REGISTERED_RING | (completions ? IORING_ENTER_GETEVENTS : 0),
		       NULL, 0) == (long)queued;
}

/* Like ring_submit(), but makes no call if nothing is queued and the completions are available. */
static inline bool ring_await(struct ring *ring, uint32_t completions)
{
	if (ring->tail == *ring->sq_tail &&
	    __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE) - *ring->cq_head >= completions)
		return true;
	return ring_submit(ring, completions);
}

/* Returns the oldest completion, valid until ring_reaped(), or NULL. */
static inline const struct io_uring_cqe *ring_completion(struct ring *ring)
{
	if (*ring->cq_head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE))
		return NULL;
	return &ring->cqes[*ring->cq_head & ring->cq_mask];
}

static inline void ring_reaped(struct ring *ring)
{
	__atomic_store_n(ring->cq_head, *ring->cq_head + 1, __ATOMIC_RELEASE);
}

#endif /* BENCH_IO_URING_H */
