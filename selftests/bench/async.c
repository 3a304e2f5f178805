// SPDX-License-Identifier: GPL-2.0
/*
 * Async waits: the cost of arming, notifying and reaping them, with and without other pending
 * waits; the cost of cancelling a wait before its deadline; and the memory that a pending wait
 * takes.
 *
 * memwait does a batch in three calls: it arms all waits, notifies all waits, and reads all
 * completions. io_uring is fastest with two calls. The first call submits the waits. The second
 * call submits the wakes, whose completions are not needed, and returns when the waits have
 * completed. A single wait is woken by futex(2), which was found to be two or three per cent
 * cheaper than a second submission; a third call then retrieves the completion. The other kind of
 * ring does not need the third call, because it posts completions whenever its thread leaves the
 * kernel, after any call.
 */
#include "futex_calls.h"
#include "io_uring.h"
#include "kernel_memory.h"

#define BATCH	256

/* Waits on separate words; the user data of a wait is the index of its word. */
struct waits {
	const struct side *side;
	long nr;
	uint32_t flags;		/* flags of memwait and of futex2 */
	uint64_t deadline;	/* deadline of the first wait; 0: no wait has a deadline */
	uint32_t *words;
	bool *armed;		/* the wait's completion has not been seen */
	uint64_t *ids;		/* for memwait */
	int fd;
	struct ring ring;
	double memory;		/* kernel memory before the waits were armed */
};

/* The functions of one interface. They act on the waits that begin with @from. */
struct side {
	bool (*open)(struct waits *waits);
	void (*close)(struct waits *waits);
	bool (*arm)(struct waits *waits, long from, int n);
	bool (*end)(struct waits *waits, long from, int n);	/* notifies and reaps */
	bool (*again)(struct waits *waits, long i);		/* cancels and arms again */
};

static uint32_t word_flags(const struct waits *waits)
{
	return waits->flags | MEMWAIT_SIZE_U32;
}

/* Returns a deadline far in the future. The deadlines are not in the order of arming. */
static uint64_t deadline_of(const struct waits *waits, long i)
{
	return waits->deadline + (uint64_t)i * 7919 % 1000003;
}

/* Each completion must come once, and only for a wait that is armed. */
static bool has_ended(struct waits *waits, uint64_t user_data)
{
	if (user_data >= (uint64_t)waits->nr || !waits->armed[user_data])
		return false;
	waits->armed[user_data] = false;
	return true;
}

static bool memwait_open_side(struct waits *waits)
{
	waits->fd = memwait_open(O_NONBLOCK);
	return waits->fd >= 0;
}

static void memwait_close_side(struct waits *waits)
{
	close(waits->fd);
}

static void memwait_fill(const struct waits *waits, struct memwait_async *entries, long from, int n)
{
	int i;

	for (i = 0; i < n; i++)
		entries[i] = (struct memwait_async) {
			.wait = {
				.addr = (uintptr_t)&waits->words[from + i],
				.deadline = waits->deadline ? deadline_of(waits, from + i) :
							      MEMWAIT_FOREVER,
				.flags = word_flags(waits),
			},
			.user_data = from + i,
		};
}

static bool memwait_note(struct waits *waits, const struct memwait_async *entries, long from, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		if (entries[i].result != MEMWAIT_PENDING)
			return false;
		waits->ids[from + i] = entries[i].id;
		waits->armed[from + i] = true;
	}
	return true;
}

static bool memwait_arm(struct waits *waits, long from, int n)
{
	static struct memwait_async entries[BATCH];

	memwait_fill(waits, entries, from, n);
	return bench_arm(waits->fd, entries, n) && memwait_note(waits, entries, from, n);
}

static bool memwait_notify(struct waits *waits, long from, int n)
{
	static struct memwait_notify notifies[BATCH];
	int i;

	if (n == 1)
		return mw_notify(waits->fd, &waits->words[from], 1, word_flags(waits)) == 1;
	for (i = 0; i < n; i++)
		notifies[i] = (struct memwait_notify) {
			.addr = (uintptr_t)&waits->words[from + i],
			.count = 1,
			.flags = word_flags(waits),
		};
	return bench_notify(waits->fd, notifies, n);
}

static bool have_ended(struct waits *waits, const struct memwait_completion *done, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (done[i].result != MEMWAIT_OK || !has_ended(waits, done[i].user_data))
			return false;
	return true;
}

static bool memwait_reap(struct waits *waits, int n)
{
	static struct memwait_completion done[BATCH];
	int got;

	for (; n; n -= got) {
		got = mw_read(waits->fd, done, n);
		if (got <= 0 || !have_ended(waits, done, got))
			return false;
	}
	return true;
}

static bool memwait_end(struct waits *waits, long from, int n)
{
	return memwait_notify(waits, from, n) && memwait_reap(waits, n);
}

static bool memwait_again(struct waits *waits, long i)
{
	return !mw_cancel(waits->fd, waits->ids[i]) && has_ended(waits, i) &&
	       memwait_arm(waits, i, 1);
}

static const struct side memwait_side = {
	.open = memwait_open_side,
	.close = memwait_close_side,
	.arm = memwait_arm,
	.end = memwait_end,
	.again = memwait_again,
};

/* The ring has room for a batch, including the deadlines of its waits. */
static bool ring_open_side(struct waits *waits)
{
	return ring_open(&waits->ring, 2 * BATCH, 2 * BATCH, IORING_SETUP_DEFER_TASKRUN);
}

static bool ring_open_cooperative(struct waits *waits)
{
	return ring_open(&waits->ring, 2 * BATCH, 2 * BATCH, IORING_SETUP_COOP_TASKRUN);
}

static void ring_close_side(struct waits *waits)
{
	ring_close(&waits->ring);
}

/* If a deadline is cancelled together with its wait, the deadline's completion is suppressed. */
static void ring_queue_waits(struct waits *waits, long from, int n)
{
	static struct __kernel_timespec deadlines[BATCH];
	struct io_uring_sqe *sqe;
	int i;

	for (i = 0; i < n; i++) {
		sqe = ring_wait(&waits->ring, &waits->words[from + i], 0, word_flags(waits),
				from + i);
		waits->armed[from + i] = true;
		if (!waits->deadline)
			continue;
		sqe->flags = IOSQE_IO_LINK;
		deadlines[i].tv_sec = deadline_of(waits, from + i) / NSEC_PER_SEC;
		deadlines[i].tv_nsec = deadline_of(waits, from + i) % NSEC_PER_SEC;
		sqe = ring_next(&waits->ring);
		sqe->opcode = IORING_OP_LINK_TIMEOUT;
		sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
		sqe->addr = (uintptr_t)&deadlines[i];
		sqe->len = 1;
		sqe->timeout_flags = IORING_TIMEOUT_ABS;
		sqe->user_data = waits->nr;
	}
}

static bool ring_arm(struct waits *waits, long from, int n)
{
	ring_queue_waits(waits, from, n);
	return ring_submit(&waits->ring, 0);
}

static bool ring_reap(struct waits *waits, int n, int result)
{
	const struct io_uring_cqe *cqe;
	int i;

	for (i = 0; i < n; i++) {
		cqe = ring_completion(&waits->ring);
		if (!cqe || cqe->res != result || !has_ended(waits, cqe->user_data))
			return false;
		ring_reaped(&waits->ring);
	}
	return true;
}

static bool ring_end(struct waits *waits, long from, int n)
{
	struct io_uring_sqe *sqe;
	int i;

	if (n == 1 && futex_wake(&waits->words[from], 1, waits->flags & MEMWAIT_PRIVATE) != 1)
		return false;
	for (i = 0; i < n && n > 1; i++) {
		sqe = ring_next(&waits->ring);
		sqe->opcode = RING_OP_FUTEX_WAKE;
		sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
		sqe->fd = (int)word_flags(waits);
		sqe->addr = (uintptr_t)&waits->words[from + i];
		sqe->addr2 = 1;
		sqe->addr3 = ~0U;
		sqe->user_data = waits->nr;
	}
	return ring_await(&waits->ring, n) && ring_reap(waits, n, 0) &&
	       !ring_completion(&waits->ring);
}

/* Makes one call, which returns when the cancelled wait has completed. */
static bool ring_again(struct waits *waits, long i)
{
	struct io_uring_sqe *sqe = ring_next(&waits->ring);

	sqe->opcode = IORING_OP_ASYNC_CANCEL;
	sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
	sqe->fd = -1;
	sqe->addr = i;
	sqe->user_data = waits->nr;
	ring_queue_waits(waits, i, 1);
	if (!ring_submit(&waits->ring, 1) || !ring_reap(waits, 1, -ECANCELED))
		return false;
	waits->armed[i] = true;
	return !ring_completion(&waits->ring);
}

static const struct side ring_side = {
	.open = ring_open_side,
	.close = ring_close_side,
	.arm = ring_arm,
	.end = ring_end,
	.again = ring_again,
};

static const struct side cooperative_side = {
	.open = ring_open_cooperative,
	.close = ring_close_side,
	.arm = ring_arm,
	.end = ring_end,
	.again = ring_again,
};

static void free_waits(struct waits *waits)
{
	munmap(waits->words, waits->nr * sizeof(uint32_t));
	free(waits->armed);
	free(waits->ids);
}

/* Returns 0, or a result for the contender. Accesses the words before the memory is measured. */
static double open_waits(struct waits *waits, const struct side *side, long nr, uint32_t flags,
			 bool timed)
{
	size_t size = nr * sizeof(uint32_t);

	memset(waits, 0, sizeof(*waits));
	waits->side = side;
	waits->nr = nr;
	waits->flags = flags;
	waits->deadline = timed ? in_ms(36000000) : 0;
	waits->words = flags & MEMWAIT_PRIVATE ? private_page(size) : shared_page(size);
	waits->armed = calloc(nr, sizeof(*waits->armed));
	waits->ids = calloc(nr, sizeof(*waits->ids));
	if (!waits->words || !waits->armed || !waits->ids)
		return BENCH_FAILED;
	memset(waits->words, 0, size);
	waits->memory = kernel_memory();
	if (!side->open(waits)) {
		free_waits(waits);
		return side == &memwait_side ? BENCH_FAILED : BENCH_ABSENT;
	}
	return 0;
}

static void close_waits(struct waits *waits)
{
	waits->side->close(waits);
	await_freed(waits->memory);
	free_waits(waits);
}

static int batch_at(const struct waits *waits, long from)
{
	return waits->nr - from < BATCH ? waits->nr - from : BATCH;
}

static bool arm_all(struct waits *waits)
{
	long i;

	for (i = 0; i < waits->nr; i += BATCH)
		if (!waits->side->arm(waits, i, batch_at(waits, i)))
			return false;
	return true;
}

static bool end_all(struct waits *waits)
{
	long i;

	for (i = 0; i < waits->nr; i += BATCH)
		if (!waits->side->end(waits, i, batch_at(waits, i)))
			return false;
	return true;
}

/*
 * Measures batches of @batch waits. The first batch is not measured, because the loop allocates
 * memory in that batch.
 */
static double batches(const struct side *side, int batch, uint32_t flags, long times)
{
	struct waits waits;
	double result = open_waits(&waits, side, batch, flags, false);
	uint64_t start;
	bool right;
	long i;

	if (result)
		return result;
	right = arm_all(&waits) && end_all(&waits);
	start = now_ns(CLOCK_MONOTONIC);
	for (i = 0; i < times && right; i += batch)
		right = side->arm(&waits, 0, batch) && side->end(&waits, 0, batch);
	result = bench_ns_each(start, i);
	close_waits(&waits);
	return right ? result : BENCH_FAILED;
}

static double run_batches(const struct contender *contender, long times)
{
	return batches(contender->how, contender->number, contender->flags, times);
}

/* Like batches(), while @number other waits are pending for each measured wait. */
static double run_with_others(const struct contender *contender, long times)
{
	struct waits others;
	double result;

	if (!contender->number)
		return batches(&memwait_side, BATCH, 0, times);
	/* The limit is not restored, because no other program uses the machine. */
	if (write_number("/sys/module/memwait/parameters/max_user_waits", INT_MAX))
		return BENCH_ABSENT;
	result = open_waits(&others, &memwait_side, contender->number * times, 0, false);
	if (result)
		return result;
	result = arm_all(&others) ? batches(&memwait_side, BATCH, 0, times) : BENCH_FAILED;
	close_waits(&others);
	return result;
}

#define TIMED	1

static double run_memory(const struct contender *contender, long times)
{
	struct waits waits;
	double result = open_waits(&waits, contender->how, times, contender->flags,
				   contender->number == TIMED), before;
	bool right;

	if (result)
		return result;
	before = settled_kernel_memory();
	right = arm_all(&waits);
	result = (settled_kernel_memory() - before) / (double)times;
	right = right && end_all(&waits);
	close_waits(&waits);
	return right ? result : BENCH_FAILED;
}

/*
 * The shortest time for which churn is measured. A few operations are too short for some
 * contenders.
 */
#define LEAST_CHURN	(100 * NSEC_PER_MSEC)

/*
 * Cancels a wait and arms it again, while @number timed waits are pending for each operation. If
 * @any is not set, the latest wait is used, which io_uring finds first in its list of all waits.
 * io_uring can identify a futex wait only by its user data.
 */
static double churn(const struct contender *contender, long times, bool any)
{
	struct waits waits;
	double result = open_waits(&waits, contender->how, contender->number * times,
				   contender->flags, true);
	uint64_t least = bench_measures() ? LEAST_CHURN : 0;
	uint64_t random = 1, start;
	bool right;
	long i = 0;

	if (result)
		return result;
	right = arm_all(&waits);
	start = now_ns(CLOCK_MONOTONIC);
	do {
		right = right && waits.side->again(&waits, any ?
						   (long)(next_random(&random) % waits.nr) :
						   waits.nr - 1);
	} while (right && (++i % times || bench_since(start) < least));
	result = bench_ns_each(start, i);
	right = right && end_all(&waits);
	close_waits(&waits);
	return right ? result : BENCH_FAILED;
}

static double run_churn(const struct contender *contender, long times)
{
	return churn(contender, times, false);
}

static double run_churn_any(const struct contender *contender, long times)
{
	return churn(contender, times, true);
}

#define RING(...)		{ "io_uring", __VA_ARGS__, &ring_side }
#define COOPERATIVE(...)	{ "io_uring coop", __VA_ARGS__, &cooperative_side }
#define MEMWAIT(...)		{ "memwait", __VA_ARGS__, &memwait_side }
#define BOTH(...)		{ RING(__VA_ARGS__), MEMWAIT(__VA_ARGS__) }
#define THREE(...)	{ RING(__VA_ARGS__), COOPERATIVE(__VA_ARGS__), MEMWAIT(__VA_ARGS__) }

FIXTURE_VARIANT_ADD(bench, async_1_private) {
	"ns", 10240, 512, THREE(run_batches, 1, MEMWAIT_PRIVATE)
};

FIXTURE_VARIANT_ADD(bench, async_16_private) {
	"ns", 10240, 512, THREE(run_batches, 16, MEMWAIT_PRIVATE)
};

FIXTURE_VARIANT_ADD(bench, async_256_private) {
	"ns", 10240, 512, THREE(run_batches, 256, MEMWAIT_PRIVATE)
};

FIXTURE_VARIANT_ADD(bench, async_1_shared) { "ns", 10240, 512, THREE(run_batches, 1, 0) };
FIXTURE_VARIANT_ADD(bench, async_16_shared) { "ns", 10240, 512, THREE(run_batches, 16, 0) };
FIXTURE_VARIANT_ADD(bench, async_256_shared) { "ns", 10240, 512, THREE(run_batches, 256, 0) };
/* There are a million waits, or some thousand if only counts are checked. */
FIXTURE_VARIANT_ADD(bench, async_others) {
	"ns", 25600, 256, {
		{ "none pending", run_with_others, 0, 0, NULL },
		{ "others pending", run_with_others, 40, 0, NULL },
	}
};

FIXTURE_VARIANT_ADD(bench, memory_private) {
	"B", 100000, 100, BOTH(run_memory, 0, MEMWAIT_PRIVATE)
};

FIXTURE_VARIANT_ADD(bench, memory_shared) { "B", 100000, 100, BOTH(run_memory, 0, 0) };
FIXTURE_VARIANT_ADD(bench, memory_timed_private) {
	"B", 100000, 100, BOTH(run_memory, TIMED, MEMWAIT_PRIVATE)
};

FIXTURE_VARIANT_ADD(bench, memory_timed_shared) { "B", 100000, 100, BOTH(run_memory, TIMED, 0) };
/* A hundred thousand waits are pending, or some hundred if only counts are checked. */
FIXTURE_VARIANT_ADD(bench, churn) { "ns", 10000, 10, BOTH(run_churn, 10, MEMWAIT_PRIVATE) };
FIXTURE_VARIANT_ADD(bench, churn_any) { "ns", 250, 2, BOTH(run_churn_any, 400, MEMWAIT_PRIVATE) };

TEST_HARNESS_MAIN
