// SPDX-License-Identifier: GPL-2.0
/*
 * The broadcast ring of userlib/examples/ring.c with several ways to wait. This program includes
 * the example and replaces the two functions by which its threads wait and wake. All ways therefore
 * use the same ring, including its bit WAITED, and detect deaths by memwait's robust mutexes.
 *
 * The writer puts messages at a steady pace; then none; then messages as fast as they are read.
 * Then it kills a reader, puts more messages, and kills itself. The other readers must get all
 * messages.
 */
#include <linux/perf_event.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <memwait.h>

#include "bench.h"
#include "futex_calls.h"

struct way {
	/* Waits until the word may differ from @seen. Returns 0 or a negative error number. */
	int (*wait)(const volatile void *word, uint64_t seen);
	/* Wakes all threads that wait for the word. */
	void (*wake)(const volatile void *word);
	bool loop;		/* readers are event loops */
	bool eventfds;		/* each process has an eventfd */
	bool spares;		/* no reader is killed */
};

static const struct way *way;

/* A thread that waits while GONE is set waits for another process, which never takes the seat. */
#define memwait_wait64(word, seen, ...)	\
	((seen) & GONE ? (stay(), 0) : way->wait(word, seen))
#define memwait_notify(word, ...)	way->wake(word)
#define main	example_main
#include "../../userlib/examples/ring.c"
#undef memwait_wait64
#undef memwait_notify
#undef main

#define PACED		1000	/* maximum number of messages at a steady pace */
#define PAUSE_US	2000
#define BURST		3	/* messages without a pause, for each message at that pace */

struct message {
	uint32_t number;
	uint64_t sent;
	char rest[184];
};

static size_t length_of(uint32_t number)
{
	return sizeof(struct message) - number % sizeof(((struct message *)0)->rest);
}

/* Memory that all processes share, in addition to the ring. */
static struct shared {
	pid_t pids[SEATS];	/* of the readers, and then of the writer */
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	double paced, idle;	/* load of all processes, in per cent of one CPU */
	double burst;		/* time for a message, in us */
	double calls;		/* of all processes for a message, except the pause */
	double files;		/* descriptors of a reader */
	uint64_t latencies[READERS * PACED];	/* in ns */
} *shared;

static int readers;
static long paced;		/* number of messages at a steady pace */
static int me;			/* the seat of this process */
static int eventfds[SEATS];	/* -1: this process does not have this eventfd */

static bool has_changed(const volatile void *word, uint64_t seen)
{
	return __atomic_load_n((const volatile uint64_t *)word, __ATOMIC_SEQ_CST) != seen;
}

static int wait_by_memwait(const volatile void *word, uint64_t seen)
{
	return memwait_wait64(word, seen, NULL, 0);
}

static void wake_by_memwait(const volatile void *word)
{
	memwait_notify(word, MEMWAIT_ALL, 0);
}

static int wait_by_yield(const volatile void *word, uint64_t seen)
{
	while (!has_changed(word, seen))
		sched_yield();
	return 0;
}

static void wake_nobody(const volatile void *word)
{
}

static int wait_by_eventfd(const volatile void *word, uint64_t seen)
{
	uint64_t count;

	return read(eventfds[me], &count, sizeof(count)) < 0 ? -errno : 0;
}

/* Readers wait for the writer's word, and the writer waits for the word of a reader. */
static void wake_by_eventfd(const volatile void *word)
{
	bool to_readers = word == &ring->seats[WRITER].word;
	uint64_t one = 1;
	int i;

	for (i = to_readers ? 0 : WRITER; i < (to_readers ? WRITER : SEATS); i++)
		if (eventfds[i] >= 0 && write(eventfds[i], &one, sizeof(one)) < 0)
			abort();
}

static int wait_by_cond(const volatile void *word, uint64_t seen)
{
	int err = pthread_mutex_lock(&shared->mutex);

	while (!err && !has_changed(word, seen))
		err = pthread_cond_wait(&shared->cond, &shared->mutex);
	return -(err ?: pthread_mutex_unlock(&shared->mutex));
}

static void wake_by_cond(const volatile void *word)
{
	pthread_mutex_lock(&shared->mutex);
	pthread_cond_broadcast(&shared->cond);
	pthread_mutex_unlock(&shared->mutex);
}

/* A futex has 32 bits: the lower half of the word on a little-endian machine. It always changes. */
static int wait_by_futex(const volatile void *word, uint64_t seen)
{
	long ret = futex_wait((uint32_t *)word, (uint32_t)seen, 0);

	return ret < 0 && errno != EAGAIN && errno != EINTR ? -errno : 0;
}

static void wake_by_futex(const volatile void *word)
{
	futex_wake((uint32_t *)word, INT_MAX, 0);
}

static const struct way by_thread = { .wait = wait_by_memwait, .wake = wake_by_memwait };
static const struct way by_yield = { .wait = wait_by_yield, .wake = wake_nobody };
static const struct way by_futex = { .wait = wait_by_futex, .wake = wake_by_futex };
/* In some versions of glibc the death of a waiter blocks pthread_cond_broadcast() forever. */
static const struct way by_cond = { .wait = wait_by_cond, .wake = wake_by_cond, .spares = true };

static const struct way by_loop = {
	.wait = wait_by_memwait,
	.wake = wake_by_memwait,
	.loop = true,
};

static const struct way by_eventfd = {
	.wait = wait_by_eventfd,
	.wake = wake_by_eventfd,
	.eventfds = true,
};

static void meet(void)
{
	int err = memwait_barrier_wait(&ring->start);

	if (err && err != MEMWAIT_BARRIER_SERIAL_THREAD)
		abort();
}

/*
 * Returns the number of descriptors for the way and the loop. The other ways use memwait's device
 * only to start and to detect deaths.
 */
static int count_files(void)
{
	char path[32], link[32];
	int fd, count = 0;
	ssize_t n;

	for (fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, link, sizeof(link));
		if (n == 12 && !memcmp(link, "/dev/memwait", 12))
			count += way->wake == wake_by_memwait;
		else
			count += n > 10 && !memcmp(link, "anon_inode", 10);
	}
	return count;
}

static bool read_messages(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct message message;
	struct reader reader;
	memwait_loop_t *loop = NULL;
	memwait_op_t op;
	bool failed = false;
	int i, length, epoll = -1;
	long count = 0;

	for (i = 0; i < readers; i++) {
		if (i != me && eventfds[i] >= 0) {
			close(eventfds[i]);
			eventfds[i] = -1;
		}
	}
	meet();		/* the writer has taken its seat */
	join(&reader, &ring->seats[me]);
	if (way->loop) {
		epoll = epoll_create1(EPOLL_CLOEXEC);
		if (memwait_loop_new(&loop, 0) || memwait_op_init(&op, loop, again, &failed) ||
		    epoll_ctl(epoll, EPOLL_CTL_ADD, memwait_loop_fd(loop), &event))
			return false;
	}
	shared->files = count_files();
	meet();
	while ((length = get(&reader, &message, way->loop ? &op : NULL))) {
		if (length == -EINPROGRESS) {
			if (epoll_wait(epoll, &event, 1, -1) < 0 ||
			    memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0 || failed)
				return false;
			continue;
		}
		if (length != (int)length_of(count) || message.number != count)
			return false;
		if (count < paced)
			shared->latencies[me * paced + count] =
				now_ns(CLOCK_MONOTONIC) - message.sent;
		count++;
	}
	/* The thread that watches the writer must not hold shared->mutex when this process ends. */
	take(&ring->seats[WRITER]);
	return count == paced * (1 + BURST + 1);
}

static bool put_messages(struct writer *writer, uint32_t *number, long times, useconds_t pause)
{
	struct message message = { 0 };

	for (; times; times--) {
		message.number = (*number)++;
		message.sent = now_ns(CLOCK_MONOTONIC);
		if (put(writer, &message, length_of(message.number), NULL))
			return false;
		if (pause)
			usleep(pause);
	}
	return true;
}

/* Waits until all readers have found the ring empty. They wait again, or will soon. */
static void await_readers(const struct writer *writer)
{
	int i;

	for (i = 0; i < readers; i++)
		sleep_until(ring->seats[i].word >> SHIFT == writer->at);
}

/* Returns the load since the last call. */
static double load(void)
{
	static uint64_t used_before, before;
	uint64_t now = now_ns(CLOCK_MONOTONIC), used = 0;
	clockid_t clock;
	double result;
	int i;

	for (i = 0; i <= readers; i++) {
		if (clock_getcpuclockid(shared->pids[i], &clock))
			abort();
		used += now_ns(clock);
	}
	result = 100.0 * (double)(used - used_before) / (double)(now - before);
	used_before = used;
	before = now;
	return result;
}

/*
 * Opens a counter of the system calls of all processes that this process forks from now on. Returns
 * -1 if this process may not use tracefs.
 */
static int open_counter(void)
{
	long event = read_number("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id");
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attributes),
		.config = event,
		.inherit = true,
	};

	return event < 0 ? -1 : (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0UL);
}

static uint64_t read_counter(int counter)
{
	uint64_t count = 0;

	if (counter >= 0 && read(counter, &count, sizeof(count)) != sizeof(count))
		abort();
	return count;
}

static bool write_messages(int counter)
{
	struct writer writer = { .at = 0 };
	uint64_t calls, start;
	uint32_t number = 0;

	take(&ring->seats[WRITER]);
	advance(&ring->seats[WRITER], 0);
	meet();
	meet();		/* the readers have taken their seats */
	watch_all(ring->seats, readers);
	calls = read_counter(counter);
	load();
	if (!put_messages(&writer, &number, paced, PAUSE_US))
		return false;
	shared->calls = (double)(read_counter(counter) - calls) / (double)paced - 1;
	shared->paced = load();

	await_readers(&writer);
	load();
	usleep(paced * 1000);
	shared->idle = load();

	start = now_ns(CLOCK_MONOTONIC);
	if (!put_messages(&writer, &number, BURST * paced, 0))
		return false;
	shared->burst = bench_ns_each(start, BURST * paced) / 1000;
	await_readers(&writer);
	if (readers > 1 && !way->spares)
		kill(shared->pids[0], SIGKILL);
	return put_messages(&writer, &number, paced, 0) && raise(SIGKILL);
}

static int run_process(int number, int counter)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	me = number < readers ? number : WRITER;
	shared->pids[number] = getpid();
	return !(me == WRITER ? write_messages(counter) : read_messages());
}

/* Returns whether all processes ended as they should. @counter: -1, or a counter of calls. */
static bool run_processes(long times, int counter)
{
	pid_t pids[SEATS];
	bool right = true, killed;
	int i;

	paced = times;
	if (memwait_barrier_init(&ring->start, 0, readers + 1))
		return false;
	for (i = 0; i < SEATS; i++) {
		ring->seats[i].word = GONE;
		if (memwait_mutex_init(&ring->seats[i].life, MEMWAIT_MUTEX_ROBUST))
			return false;
		eventfds[i] = -1;
		if (way->eventfds && (i < readers || i == WRITER))
			eventfds[i] = eventfd(0, EFD_CLOEXEC);
	}
	for (i = 0; i <= readers; i++)
		pids[i] = run_in_child(run_process(i, counter));
	for (i = 0; i <= readers; i++) {
		killed = i == readers || (!i && readers > 1 && !way->spares);
		right &= child_status(pids[i]) == (killed ? 128 + SIGKILL : 0);
	}
	for (i = 0; i < SEATS; i++)
		if (eventfds[i] >= 0)
			close(eventfds[i]);
	return right;
}

static bool set_up(void)
{
	pthread_mutexattr_t mutex;
	pthread_condattr_t cond;

	if (!ring)
		ring = shared_page(sizeof(*ring));
	if (!shared)
		shared = shared_page(sizeof(*shared));
	memset(ring, 0, sizeof(*ring));
	memset(shared, 0, sizeof(*shared));
	return !pthread_mutexattr_init(&mutex) && !pthread_condattr_init(&cond) &&
	       !pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED) &&
	       !pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED) &&
	       !pthread_mutex_init(&shared->mutex, &mutex) &&
	       !pthread_cond_init(&shared->cond, &cond);
}

static double run_ring(const struct contender *contender, long times)
{
	size_t latencies = times * contender->number;

	way = contender->how;
	readers = contender->number;
	if (!set_up() || !run_processes(times, -1))
		return BENCH_FAILED;
	qsort(shared->latencies, latencies, sizeof(shared->latencies[0]), compare_numbers);
	bench_result = "p50";
	bench_add("p99", "us", (double)shared->latencies[latencies * 99 / 100] / 1000);
	bench_add("paced", "%", shared->paced);
	bench_add("idle", "%", shared->idle);
	bench_add("burst", "us", shared->burst);
	bench_add("files", "files", shared->files);
	return (double)shared->latencies[latencies / 2] / 1000;
}

/*
 * Counting takes time, so it is a work of its own. The counter stays open: when it is opened or
 * closed, the kernel patches its scheduler, which may fail under emulation.
 */
static double count_calls(const struct contender *contender, long times)
{
	static int counter = -1;

	if (counter < 0)
		counter = open_counter();
	if (counter < 0)
		return BENCH_ABSENT;
	way = contender->how;
	readers = contender->number;
	return set_up() && run_processes(times, counter) ? shared->calls : BENCH_FAILED;
}

#define WAYS(run, readers)						\
	{								\
		{ "memwait threads", run, readers, 0, &by_thread },	\
		{ "memwait loop", run, readers, 0, &by_loop },		\
		{ "sched_yield", run, readers, 0, &by_yield },		\
		{ "an eventfd each", run, readers, 0, &by_eventfd },	\
		{ "pthread_cond", run, readers, 0, &by_cond },		\
		{ "futex", run, readers, 0, &by_futex },		\
	}

FIXTURE_VARIANT_ADD(bench, c_ring_1) { "us", PACED, 20, WAYS(run_ring, 1) };
FIXTURE_VARIANT_ADD(bench, c_ring_3) { "us", PACED, 20, WAYS(run_ring, 3) };
FIXTURE_VARIANT_ADD(bench, c_ring_calls_1) { "calls", PACED / 5, 20, WAYS(count_calls, 1) };
FIXTURE_VARIANT_ADD(bench, c_ring_calls_3) { "calls", PACED / 5, 20, WAYS(count_calls, 3) };

TEST_HARNESS_MAIN
