// SPDX-License-Identifier: GPL-2.0
/*
 * An event loop that waits for many words. Four notifiers notify random words, one by one or in
 * batches. The loop uses an eventfd or a pipe for each word, the futex waits of io_uring, or
 * memwait, whose waits either end with each notify or are persistent. The notifiers are processes
 * that share memory with the loop. For private words they are threads of the loop's process.
 *
 * Each word is a counter. A notifier adds one to the word and then wakes the loop. Whenever the
 * loop is woken, it reads how much was added, and the total must be complete. In addition to the
 * time for a notify, the bench prints the number of turns of the loop for each notify, because the
 * scheduling affects the amount of work.
 */
#include "futex_calls.h"
#include "io_uring.h"
#include "kernel_memory.h"

#include <sys/eventfd.h>
#include <sys/resource.h>

#define WORDS		10000
#define NOTIFIERS		4
#define BATCH		256	/* number of events, completions and waits in one call */
#define LARGEST_BATCH	16	/* maximum number of words in one call of a notifier */

/* Memory that the notifiers and the loop share. */
struct shared {
	pthread_barrier_t ready, over;
	uint32_t words[WORDS];
	long woken;		/* sum of the results of all notifies */
};

struct loop {
	const struct kind *kind;
	struct shared *shared;
	int words;
	int batch;		/* number of words in one call of a notifier */
	uint32_t flags;		/* flags of the words: MEMWAIT_PRIVATE or 0 */
	uint32_t seen_of[WORDS];
	long seen;		/* the sum of @seen_of */
	long ended;		/* number of counted notifies */
	long turns;
	int epoll;
	int fd;
	int eventfds[WORDS];	/* eventfds, or the read ends of the pipes */
	int pipes[WORDS];	/* the write ends of the pipes */
	struct ring ring;
};

struct kind {
	/* Returns false if this machine does not have the interface. */
	bool (*open)(struct loop *loop);
	void (*close)(struct loop *loop);
	/* Prepares every word. */
	bool (*arm_all)(struct loop *loop);
	/* Waits for events, and processes a batch of them. */
	bool (*turn)(struct loop *loop);
	/*
	 * Called by a notifier. Returns the number of waits that it has woken, or a negative
	 * number.
	 */
	int (*wake)(struct loop *loop, const int *words, int n);
	/* Processes the events that arrived after the loop had seen all additions. */
	bool (*drain)(struct loop *loop);
};

/* Reads how much was added to a word. Returns the value of the word. */
static uint32_t look(struct loop *loop, int word)
{
	uint32_t value = __atomic_load_n(&loop->shared->words[word], __ATOMIC_SEQ_CST);

	loop->seen += value - loop->seen_of[word];
	loop->seen_of[word] = value;
	return value;
}

/*
 * A closed ring may leave task work to its thread. This task work interrupts epoll_wait() like a
 * signal.
 */
static int await_events(struct loop *loop, struct epoll_event *events, int room)
{
	return (int)TEMP_FAILURE_RETRY(epoll_wait(loop->epoll, events, room, 60000));
}

/* There is one eventfd for each word. It is never read, so each write is a new edge. */

static const struct kind eventfd_kind;

static bool eventfd_open_all(struct loop *loop)
{
	struct rlimit files = { 3 * WORDS, 3 * WORDS }, before;

	if (getrlimit(RLIMIT_NOFILE, &before))
		return false;
	if (before.rlim_cur < files.rlim_cur) {
		if (before.rlim_max > files.rlim_max)
			files.rlim_max = before.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &files))
			return false;
	}
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	return loop->epoll >= 0;
}

static bool eventfd_arm_all(struct loop *loop)
{
	struct epoll_event event = {
		.events = loop->kind == &eventfd_kind ? EPOLLIN | EPOLLET : EPOLLIN,
	};
	int i;

	for (i = 0; i < loop->words; i++) {
		loop->eventfds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		event.data.u32 = i;
		if (loop->eventfds[i] < 0 ||
		    epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->eventfds[i], &event))
			return false;
	}
	return true;
}

static void eventfd_close_all(struct loop *loop)
{
	int i;

	close(loop->epoll);
	for (i = 0; i < loop->words; i++)
		close(loop->eventfds[i]);
}

static bool eventfd_turn(struct loop *loop)
{
	struct epoll_event events[BATCH];
	int i, n = await_events(loop, events, BATCH);

	for (i = 0; i < n; i++)
		look(loop, events[i].data.u32);
	return n > 0;
}

/* Polls level-triggered, as most programs do. Therefore the eventfd must be read. */
static bool eventfd_turn_and_read(struct loop *loop)
{
	struct epoll_event events[BATCH];
	int i, n = await_events(loop, events, BATCH);
	uint64_t count;

	for (i = 0; i < n; i++) {
		if (read(loop->eventfds[events[i].data.u32], &count, sizeof(count)) < 0)
			return false;
		look(loop, events[i].data.u32);
	}
	return n > 0;
}

static int eventfd_wake(struct loop *loop, const int *words, int n)
{
	uint64_t one = 1;
	int i;

	for (i = 0; i < n; i++) {
		if (write(loop->eventfds[words[i]], &one, sizeof(one)) != sizeof(one))
			return -1;
	}
	return 0;
}

static bool eventfd_drain(struct loop *loop)
{
	(void)loop;
	return true;
}

static const struct kind eventfd_kind = {
	.open = eventfd_open_all,
	.close = eventfd_close_all,
	.arm_all = eventfd_arm_all,
	.turn = eventfd_turn,
	.wake = eventfd_wake,
	.drain = eventfd_drain,
};

static const struct kind eventfd_read_kind = {
	.open = eventfd_open_all,
	.close = eventfd_close_all,
	.arm_all = eventfd_arm_all,
	.turn = eventfd_turn_and_read,
	.wake = eventfd_wake,
	.drain = eventfd_drain,
};

/*
 * There is a pipe for each word. The loop must read the pipe, because the pipe would become full.
 */

static bool pipe_arm_all(struct loop *loop)
{
	struct epoll_event event = { .events = EPOLLIN };
	int i, ends[2];

	for (i = 0; i < loop->words; i++) {
		if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
			return false;
		loop->eventfds[i] = ends[0];
		loop->pipes[i] = ends[1];
		event.data.u32 = i;
		if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, ends[0], &event))
			return false;
	}
	return true;
}

static void pipe_close_all(struct loop *loop)
{
	int i;

	eventfd_close_all(loop);
	for (i = 0; i < loop->words; i++)
		close(loop->pipes[i]);
}

static bool pipe_turn(struct loop *loop)
{
	struct epoll_event events[BATCH];
	int i, n = await_events(loop, events, BATCH);
	char bytes[4096];

	for (i = 0; i < n; i++) {
		if (read(loop->eventfds[events[i].data.u32], bytes, sizeof(bytes)) <= 0)
			return false;
		look(loop, events[i].data.u32);
	}
	return n > 0;
}

/* If the pipe is full, no write is needed, because the loop has not read the pipe yet. */
static int pipe_wake(struct loop *loop, const int *words, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		if (write(loop->pipes[words[i]], "", 1) != 1 && errno != EAGAIN)
			return -1;
	}
	return 0;
}

static const struct kind pipe_kind = {
	.open = eventfd_open_all,
	.close = pipe_close_all,
	.arm_all = pipe_arm_all,
	.turn = pipe_turn,
	.wake = pipe_wake,
	.drain = eventfd_drain,
};

/* There is one context for all words. It is in an epoll set, as in any loop. */

static bool memwait_open_loop(struct loop *loop)
{
	struct epoll_event event = { .events = EPOLLIN };

	loop->fd = memwait_open(O_NONBLOCK);
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	return loop->fd >= 0 && !epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->fd, &event);
}

static void memwait_close_loop(struct loop *loop)
{
	close(loop->epoll);
	close(loop->fd);
}

/* Arms words. If a word has changed in the meantime, it is read again. */
static bool memwait_arm(struct loop *loop, int *words, int n)
{
	struct memwait_async entries[BATCH];
	int i, left;

	for (; n; n = left) {
		for (i = 0; i < n; i++)
			entries[i] = (struct memwait_async) {
				.wait = {
					.addr = (uintptr_t)&loop->shared->words[words[i]],
					.expected = look(loop, words[i]),
					.deadline = MEMWAIT_FOREVER,
					.flags = MEMWAIT_SIZE_U32 | loop->flags,
				},
				.user_data = words[i],
			};
		if (!bench_arm(loop->fd, entries, n))
			return false;
		for (i = left = 0; i < n; i++) {
			if (entries[i].result == MEMWAIT_NOT_EQUAL)
				words[left++] = words[i];
			else if (entries[i].result != MEMWAIT_PENDING)
				return false;
		}
	}
	return true;
}

static bool memwait_arm_all(struct loop *loop)
{
	int words[BATCH], i, n;

	for (i = 0; i < loop->words; ) {
		for (n = 0; n < BATCH && i < loop->words; n++)
			words[n] = i++;
		if (!memwait_arm(loop, words, n))
			return false;
	}
	return true;
}

static bool memwait_turn(struct loop *loop)
{
	struct memwait_completion done[BATCH];
	struct epoll_event event;
	int words[BATCH], i, n;

	if (await_events(loop, &event, 1) != 1)
		return false;
	n = mw_read(loop->fd, done, BATCH);
	if (n <= 0)
		return false;
	loop->ended += n;
	for (i = 0; i < n; i++)
		words[i] = (int)done[i].user_data;
	return memwait_arm(loop, words, n);
}

static int memwait_wake(struct loop *loop, const int *words, int n)
{
	struct memwait_notify notifies[LARGEST_BATCH];
	uint32_t woken[LARGEST_BATCH];
	int i, sum = 0;

	if (n == 1)
		return mw_notify(loop->fd, &loop->shared->words[*words], 1,
				 MEMWAIT_SIZE_U32 | loop->flags);
	for (i = 0; i < n; i++)
		notifies[i] = (struct memwait_notify) {
			.addr = (uintptr_t)&loop->shared->words[words[i]],
			.count = 1,
			.flags = MEMWAIT_SIZE_U32 | loop->flags,
		};
	if (mw_notify_many(loop->fd, notifies, n, woken) != n)
		return -1;
	for (i = 0; i < n; i++)
		sum += woken[i];
	return sum;
}

static bool memwait_drain(struct loop *loop)
{
	struct memwait_completion done[BATCH];
	int n;

	while ((n = mw_read(loop->fd, done, BATCH)) > 0)
		loop->ended += n;
	return n == -EAGAIN;
}

static const struct kind memwait_kind = {
	.open = memwait_open_loop,
	.close = memwait_close_loop,
	.arm_all = memwait_arm_all,
	.turn = memwait_turn,
	.wake = memwait_wake,
	.drain = memwait_drain,
};

/* As above with persistent waits: each word is armed once. */

static bool persistent_arm_all(struct loop *loop)
{
	struct memwait_async entries[BATCH];
	int i, n;

	for (i = 0; i < loop->words; i += n) {
		for (n = 0; n < BATCH && i + n < loop->words; n++)
			entries[n] = (struct memwait_async) {
				.wait = {
					.addr = (uintptr_t)&loop->shared->words[i + n],
					.deadline = MEMWAIT_FOREVER,
					.flags = MEMWAIT_SIZE_U32 | MEMWAIT_PERSISTENT |
						 loop->flags,
				},
				.user_data = i + n,
			};
		if (!bench_arm(loop->fd, entries, n) || entries[n - 1].result != MEMWAIT_PENDING)
			return false;
	}
	return true;
}

static bool persistent_read(struct loop *loop)
{
	struct memwait_completion done[BATCH];
	int i, n = mw_read(loop->fd, done, BATCH);

	for (i = 0; i < n; i++) {
		loop->ended += done[i].count;
		look(loop, (int)done[i].user_data);
	}
	return n > 0;
}

static bool persistent_turn(struct loop *loop)
{
	struct epoll_event event;

	return await_events(loop, &event, 1) == 1 && persistent_read(loop);
}

static bool persistent_drain(struct loop *loop)
{
	while (persistent_read(loop))
		;
	return true;
}

static const struct kind persistent_kind = {
	.open = memwait_open_loop,
	.close = memwait_close_loop,
	.arm_all = persistent_arm_all,
	.turn = persistent_turn,
	.wake = memwait_wake,
	.drain = persistent_drain,
};

/* The loop waits in the ring itself, and the notifiers wake the loop by futex(2). */

static bool ring_open_loop(struct loop *loop)
{
	return ring_open(&loop->ring, BATCH, 2 * WORDS, IORING_SETUP_DEFER_TASKRUN);
}

static void ring_close_loop(struct loop *loop)
{
	ring_close(&loop->ring);
}

static void ring_arm(struct loop *loop, int word)
{
	ring_wait(&loop->ring, &loop->shared->words[word], look(loop, word),
		  MEMWAIT_SIZE_U32 | loop->flags, word);
}

static bool ring_arm_all(struct loop *loop)
{
	int i;

	for (i = 0; i < loop->words; i++) {
		ring_arm(loop, i);
		if ((i + 1) % BATCH == 0 && !ring_submit(&loop->ring, 0))
			return false;
	}
	return ring_submit(&loop->ring, 0);
}

/* If a word has changed since it was read, its wait completes with EAGAIN. */
static bool ring_turn(struct loop *loop)
{
	const struct io_uring_cqe *cqe;
	int i;

	if (!ring_submit(&loop->ring, 1))
		return false;
	for (i = 0; i < BATCH; i++) {
		cqe = ring_completion(&loop->ring);
		if (!cqe)
			break;
		if (cqe->res && cqe->res != -EAGAIN)
			return false;
		loop->ended += !cqe->res;
		ring_arm(loop, (int)cqe->user_data);
		ring_reaped(&loop->ring);
	}
	return true;
}

static int ring_wake(struct loop *loop, const int *words, int n)
{
	int i, sum = 0, ret = 0;

	for (i = 0; i < n && ret >= 0; i++) {
		ret = (int)futex_wake(&loop->shared->words[words[i]], 1, loop->flags);
		sum += ret;
	}
	return ret < 0 ? ret : sum;
}

/*
 * Submits the waits that were queued last, and a request that completes immediately, so that the
 * call does not block. A ring posts only some completions at a time.
 */
static bool ring_drain(struct loop *loop)
{
	const struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	bool more;

	do {
		sqe = ring_next(&loop->ring);
		sqe->opcode = IORING_OP_NOP;
		sqe->user_data = WORDS;
		if (!ring_submit(&loop->ring, 1))
			return false;
		for (more = false; (cqe = ring_completion(&loop->ring)); ring_reaped(&loop->ring)) {
			if (cqe->user_data != WORDS) {
				loop->ended += !cqe->res;
				more = true;
			}
		}
	} while (more);
	return true;
}

static const struct kind ring_kind = {
	.open = ring_open_loop,
	.close = ring_close_loop,
	.arm_all = ring_arm_all,
	.turn = ring_turn,
	.wake = ring_wake,
	.drain = ring_drain,
};

struct notifier {
	struct loop *loop;
	int number;
	long times;
	pid_t pid;
	pthread_t thread;
};

/* Returns whether all calls succeeded. */
static bool notify_random_words(const struct notifier *notifier)
{
	struct loop *loop = notifier->loop;
	uint64_t random = notifier->number + 1;
	int words[LARGEST_BATCH], n, ret = 0;
	long woken = 0, times = notifier->times;

	pthread_barrier_wait(&loop->shared->ready);
	for (; times > 0 && ret >= 0; times -= loop->batch) {
		for (n = 0; n < loop->batch && n < times; n++) {
			words[n] = (int)(next_random(&random) % loop->words);
			__atomic_add_fetch(&loop->shared->words[words[n]], 1, __ATOMIC_SEQ_CST);
		}
		ret = loop->kind->wake(loop, words, n);
		woken += ret;
	}
	__atomic_add_fetch(&loop->shared->woken, woken, __ATOMIC_RELAXED);
	/* Closing the inherited descriptors takes time, which must not be measured. */
	pthread_barrier_wait(&loop->shared->over);
	return ret >= 0;
}

static void *notify_in_thread(void *notifier)
{
	return notify_random_words(notifier) ? notifier : NULL;
}

static bool start_notifier(struct notifier *notifier)
{
	if (notifier->loop->flags & MEMWAIT_PRIVATE)
		return !pthread_create(&notifier->thread, NULL, notify_in_thread, notifier);
	notifier->pid = fork();
	if (!notifier->pid)
		_exit(!notify_random_words(notifier));
	return notifier->pid > 0;
}

static bool join_notifier(struct notifier *notifier)
{
	void *result;
	int status;

	if (notifier->loop->flags & MEMWAIT_PRIVATE)
		return !pthread_join(notifier->thread, &result) && result;
	return waitpid(notifier->pid, &status, 0) == notifier->pid && !status;
}

static struct shared *new_shared(uint32_t flags)
{
	struct shared *shared = flags & MEMWAIT_PRIVATE ? private_page(sizeof(*shared)) :
							  shared_page(sizeof(*shared));
	pthread_barrierattr_t attributes;

	if (!shared)
		return NULL;
	memset(shared, 0, sizeof(*shared));
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->ready, &attributes, NOTIFIERS + 1);
	pthread_barrier_init(&shared->over, &attributes, NOTIFIERS + 1);
	pthread_barrierattr_destroy(&attributes);
	return shared;
}

/* Returns whether all additions were seen and each counted notify has ended a wait. */
static bool everything_was_seen(const struct loop *loop, long times)
{
	long sum = 0;
	int i;

	for (i = 0; i < WORDS; i++)
		sum += loop->shared->words[i];
	return sum == times && loop->seen == times && loop->ended == loop->shared->woken;
}

/* A flag of a work, in addition to MEMWAIT_PRIVATE. */
#define BY_BATCHES	0x1

static double run_loop(struct loop *loop, long times)
{
	struct notifier notifiers[NOTIFIERS];
	bool right;
	double result;
	uint64_t start;
	int i;

	if (!loop->kind->arm_all(loop))
		return BENCH_FAILED;
	for (i = 0; i < NOTIFIERS; i++) {
		notifiers[i] = (struct notifier){
			.loop = loop, .number = i, .times = times / NOTIFIERS,
		};
		if (!start_notifier(&notifiers[i]))
			abort();
	}

	pthread_barrier_wait(&loop->shared->ready);
	start = now_ns(CLOCK_MONOTONIC);
	do {
		right = loop->kind->turn(loop);
		loop->turns++;
	} while (right && loop->seen < times);
	result = bench_ns_each(start, times);
	bench_add("turns", "", (double)loop->turns / (double)times);

	pthread_barrier_wait(&loop->shared->over);
	for (i = 0; i < NOTIFIERS; i++)
		right &= join_notifier(&notifiers[i]);
	right &= loop->kind->drain(loop);
	return right && everything_was_seen(loop, times) ? result : BENCH_FAILED;
}

static double run_memory(struct loop *loop, long times)
{
	double before = settled_kernel_memory();

	if (!loop->kind->arm_all(loop))
		return BENCH_FAILED;
	return (settled_kernel_memory() - before) / (double)times;
}

static double with_loop(const struct contender *contender, int words, uint32_t flags, long times,
			double (*run)(struct loop *loop, long times))
{
	static struct loop loop;
	double memory = kernel_memory(), result = BENCH_ABSENT;

	memset(&loop, 0, sizeof(loop));
	loop.kind = contender->how;
	loop.words = words;
	loop.batch = flags & BY_BATCHES ? LARGEST_BATCH : 1;
	loop.flags = flags & MEMWAIT_PRIVATE;
	loop.shared = new_shared(loop.flags);
	if (!loop.shared)
		return BENCH_FAILED;
	if (loop.kind->open(&loop)) {
		result = run(&loop, times);
		loop.kind->close(&loop);
		await_freed(memory);
	} else if (loop.kind == &memwait_kind || loop.kind == &persistent_kind) {
		result = BENCH_FAILED;
	}
	munmap(loop.shared, sizeof(*loop.shared));
	return result;
}

static double run_loop_of(const struct contender *contender, long times)
{
	int words = contender->number;

	return with_loop(contender, bench_measures() || words < 100 ? words : 100,
			 contender->flags, times, run_loop);
}

static double run_memory_of(const struct contender *contender, long times)
{
	return with_loop(contender, (int)times, 0, times, run_memory);
}

#define LOOP(words, flags)							\
	{									\
		{ "eventfd", run_loop_of, words, flags, &eventfd_kind },	\
		{ "eventfd read", run_loop_of, words, flags, &eventfd_read_kind },	\
		{ "pipe", run_loop_of, words, flags, &pipe_kind },		\
		{ "io_uring", run_loop_of, words, flags, &ring_kind },		\
		{ "memwait", run_loop_of, words, flags, &memwait_kind },	\
		{ "persistent", run_loop_of, words, flags, &persistent_kind }	\
	}

FIXTURE_VARIANT_ADD(bench, loop) { "ns", 20000, 2000, LOOP(WORDS, 0) };
FIXTURE_VARIANT_ADD(bench, loop_1000) { "ns", 20000, 2000, LOOP(1000, 0) };
FIXTURE_VARIANT_ADD(bench, loop_10) { "ns", 20000, 2000, LOOP(10, 0) };
FIXTURE_VARIANT_ADD(bench, loop_private) { "ns", 20000, 2000, LOOP(WORDS, MEMWAIT_PRIVATE) };
FIXTURE_VARIANT_ADD(bench, loop_private_1000) { "ns", 20000, 2000, LOOP(1000, MEMWAIT_PRIVATE) };
FIXTURE_VARIANT_ADD(bench, loop_private_10) { "ns", 20000, 2000, LOOP(10, MEMWAIT_PRIVATE) };
FIXTURE_VARIANT_ADD(bench, loop_batch) { "ns", 20000, 2000, LOOP(WORDS, BY_BATCHES) };
FIXTURE_VARIANT_ADD(bench, loop_batch_1000) { "ns", 20000, 2000, LOOP(1000, BY_BATCHES) };
FIXTURE_VARIANT_ADD(bench, loop_batch_10) { "ns", 20000, 2000, LOOP(10, BY_BATCHES) };
FIXTURE_VARIANT_ADD(bench, loop_memory) {
	"B", WORDS, 100, {
		{ "eventfd", run_memory_of, 0, 0, &eventfd_kind },
		{ "memwait", run_memory_of, 0, 0, &memwait_kind },
		{ "persistent", run_memory_of, 0, 0, &persistent_kind },
	}
};

TEST_HARNESS_MAIN
