// SPDX-License-Identifier: GPL-2.0
/*
 * Words compared with futexes: calls that find no waiter and need not wait; and hashing, waking and
 * requeueing, as in `perf bench futex`.
 */
#include <sys/eventfd.h>

#include "bench.h"
#include "futex_calls.h"

#define SLEEPERS	64
#define HASHED		1024	/* number of words of each thread */
#define EXPECTED	1234	/* value that waits expect; the words are 0 */

/*
 * The arguments of one call of a contender. Arguments that are passed by address are built once, as
 * in a well-written program.
 */
struct call {
	uint32_t *word, *target;
	uint32_t number;	/* expected value, or number of waiters to wake or move */
	uint32_t private;
	int fd;
	union {
		struct memwait_wait wait;
		struct memwait_notify notify;
		struct memwait_requeue requeue;
	};
};

struct way {
	bool (*is_there)(void);		/* NULL: the interface always exists */
	long (*wait)(struct call *call);	/* returns an outcome */
	long (*wake)(struct call *call);	/* returns the number of woken waiters */
	long (*move)(struct call *call);	/* returns the number of moved waiters */
	long (*count)(struct call *call);	/* number of threads asleep on the word of @call */
};

static long outcome(long ret)
{
	return ret < 0 && errno == EAGAIN ? MEMWAIT_NOT_EQUAL : ret;
}

static long wait_by_futex(struct call *call)
{
	return outcome(futex_wait(call->word, call->number, call->private));
}

static long wake_by_futex(struct call *call)
{
	return futex_wake(call->word, call->number, call->private);
}

static long requeue(uint32_t *word, uint32_t *target, uint32_t number, uint32_t private)
{
	return syscall(SYS_futex, word, FUTEX_CMP_REQUEUE | private, 0, (unsigned long)number,
		       target, 0);
}

static long move_by_futex(struct call *call)
{
	return requeue(call->word, call->target, call->number, call->private);
}

/* If a waiter is moved to its own word, it stays in its position and is counted. */
static long count_by_futex(struct call *call)
{
	return requeue(call->word, call->word, INT_MAX, call->private);
}

static long wait_by_futex2(struct call *call)
{
	return outcome(futex2_wait(call->word, call->number, call->private));
}

static long wake_by_futex2(struct call *call)
{
	return futex2_wake(call->word, call->number, call->private);
}

static long wait_by_memwait(struct call *call)
{
	return ioctl(call->fd, MEMWAIT_IOC_WAIT, &call->wait);
}

static long wake_by_memwait(struct call *call)
{
	return ioctl(call->fd, MEMWAIT_IOC_NOTIFY, &call->notify);
}

static long move_by_memwait(struct call *call)
{
	long ret = ioctl(call->fd, MEMWAIT_IOC_REQUEUE, &call->requeue);

	return ret ? -1 : (long)call->requeue.moved;
}

static long count_by_memwait(struct call *call)
{
	return mw_waiters(call->fd, call->word, call->wait.flags);
}

static const struct way by_futex = {
	.wait = wait_by_futex,
	.wake = wake_by_futex,
	.move = move_by_futex,
	.count = count_by_futex,
};

static const struct way by_futex2 = {
	.is_there = futex2_is_there,
	.wait = wait_by_futex2,
	.wake = wake_by_futex2,
};

static const struct way by_memwait = {
	.wait = wait_by_memwait,
	.wake = wake_by_memwait,
	.move = move_by_memwait,
	.count = count_by_memwait,
};

/* State of a run. */
struct table {
	const struct way *way;
	uint32_t private;
	int fd;
	int processors;
	uint32_t *words;	/* the value of all words is 0 */
	size_t size;
	long turn;		/* how often the sleepers have slept */
};

static struct call call_wait(const struct table *table, uint32_t *word, uint32_t expected)
{
	return (struct call) {
		.word = word,
		.number = expected,
		.private = table->private,
		.fd = table->fd,
		.wait = {
			.addr = (uintptr_t)word,
			.expected = expected,
			.deadline = MEMWAIT_FOREVER,
			.flags = MEMWAIT_SIZE_U32 | table->private,
		},
	};
}

static struct call call_wake(const struct table *table, uint32_t *word, uint32_t number)
{
	return (struct call) {
		.word = word,
		.number = number,
		.private = table->private,
		.fd = table->fd,
		.notify = {
			.addr = (uintptr_t)word,
			.count = number,
			.flags = MEMWAIT_SIZE_U32 | table->private,
		},
	};
}

static struct call call_move(const struct table *table, uint32_t *word, uint32_t *target,
			     uint32_t number)
{
	return (struct call) {
		.word = word,
		.target = target,
		.number = number,
		.private = table->private,
		.fd = table->fd,
		.requeue = {
			.addr = (uintptr_t)word,
			.target = (uintptr_t)target,
			.move = number,
			.flags = MEMWAIT_SIZE_U32 | table->private,
		},
	};
}

/* Sets up a table and runs a work on it. */
static double with_table(const struct contender *contender, long times,
			 double (*work)(struct table *table, int number, long times))
{
	struct table table = { .way = contender->how, .private = contender->flags };
	double figure = BENCH_FAILED;

	if (table.way->is_there && !table.way->is_there())
		return BENCH_ABSENT;
	table.fd = memwait_open(0);
	table.processors = sysconf(_SC_NPROCESSORS_ONLN);
	table.size = table.processors * HASHED * sizeof(uint32_t);
	table.words = table.private ? private_page(table.size) : shared_page(table.size);
	if (table.fd >= 0 && table.words) {
		memset(table.words, 0, table.size);
		figure = work(&table, contender->number, times);
	}
	if (table.words)
		munmap(table.words, table.size);
	if (table.fd >= 0)
		close(table.fd);
	return figure;
}

/* Returns the duration, or 0 if a call did not return @result. */
static uint64_t repeat(long (*function)(struct call *call), struct call *call, long result,
		       long times)
{
	uint64_t start = now_ns(CLOCK_MONOTONIC);
	bool wrong = false;
	long i;

	for (i = 0; i < times; i++)
		wrong |= function(call) != result;
	start = bench_since(start);
	return wrong ? 0 : start;
}

static double ns_each(uint64_t ns, long times)
{
	return ns ? (double)ns / (double)times : BENCH_FAILED;
}

static double notify_work(struct table *table, int number, long times)
{
	struct call call = call_wake(table, table->words, number);

	return ns_each(repeat(table->way->wake, &call, 0, times), times);
}

static double notify_nobody(const struct contender *contender, long times)
{
	return with_table(contender, times, notify_work);
}

static double not_equal_work(struct table *table, int number, long times)
{
	struct call call = call_wait(table, table->words, number);

	return ns_each(repeat(table->way->wait, &call, MEMWAIT_NOT_EQUAL, times), times);
}

static double not_equal(const struct contender *contender, long times)
{
	return with_table(contender, times, not_equal_work);
}

/* Waits until @n threads have arrived. */
static void meet(int *there, int n)
{
	__atomic_add_fetch(there, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(there, __ATOMIC_ACQUIRE) < n)
		sched_yield();
}

/* A worker thread. There are as many threads as CPUs, or fewer if there is not enough work. */
struct worker {
	pthread_t thread;
	const struct table *table;
	int processor, workers;
	int *there;
	struct call call;
	long times;
	uint64_t ns;		/* result; 0 after an error */
};

/* Returns the sum of the times, or 0 after an error. */
static uint64_t work_together(struct worker *workers, int n, const struct table *table,
			      void *(*function)(void *worker))
{
	int there = 0, i;
	bool wrong = false;
	uint64_t sum = 0;

	for (i = 0; i < n; i++) {
		workers[i].table = table;
		workers[i].processor = i;
		workers[i].workers = n;
		workers[i].there = &there;
		if (pthread_create(&workers[i].thread, NULL, function, &workers[i]))
			abort();
	}
	for (i = 0; i < n; i++) {
		pthread_join(workers[i].thread, NULL);
		wrong |= !workers[i].ns;
		sum += workers[i].ns;
	}
	return wrong ? 0 : sum;
}

static void *hash_words(void *arg)
{
	struct worker *worker = arg;
	uint32_t *words = worker->call.word;
	bool wrong = false;
	uint64_t start;
	long i;

	bind_to(worker->processor);
	meet(worker->there, worker->workers);
	start = now_ns(CLOCK_MONOTONIC);
	for (i = 0; i < worker->times; i++) {
		worker->call.word = &words[i % HASHED];
		worker->call.wait.addr = (uintptr_t)worker->call.word;
		wrong |= worker->table->way->wait(&worker->call) != MEMWAIT_NOT_EQUAL;
	}
	worker->ns = wrong ? 0 : bench_since(start);
	return NULL;
}

static double hash_work(struct table *table, int number, long times)
{
	struct worker *workers = calloc(table->processors, sizeof(*workers));
	uint64_t sum;
	int i;

	if (!workers)
		return BENCH_FAILED;
	for (i = 0; i < table->processors; i++) {
		workers[i].call = call_wait(table, table->words + i * HASHED, number);
		workers[i].times = times;
	}
	sum = work_together(workers, table->processors, table, hash_words);
	free(workers);
	return ns_each(sum, times * table->processors);
}

static double hash(const struct contender *contender, long times)
{
	return with_table(contender, times, hash_work);
}

/* Threads that sleep on the first word of a table. */
struct sleepers;

struct sleeper {
	struct sleepers *all;
	pthread_t thread;
	pid_t tid;
};

struct sleepers {
	struct table *table;
	struct sleeper each[SLEEPERS];
	struct call call;
	long times;
	int gate;		/* woken threads wait here until they may sleep again */
	int awake;		/* counts wake-ups */
	bool failed;
};

static void *sleep_often(void *arg)
{
	struct sleeper *sleeper = arg;
	struct sleepers *all = sleeper->all;
	struct call call = all->call;
	uint64_t one;
	long i;

	bind_to((int)(sleeper - all->each) % all->table->processors);
	__atomic_store_n(&sleeper->tid, gettid(), __ATOMIC_RELEASE);
	for (i = 0; i < all->times; i++) {
		if (read(all->gate, &one, sizeof(one)) != sizeof(one) ||
		    all->table->way->wait(&call) != MEMWAIT_OK) {
			__atomic_store_n(&all->failed, true, __ATOMIC_RELEASE);
			break;
		}
		__atomic_add_fetch(&all->awake, 1, __ATOMIC_ACQ_REL);
	}
	return NULL;
}

/* Opens the gate. Returns when all threads sleep, or false on failure. */
static bool let_all_sleep(struct sleepers *all)
{
	uint64_t n = SLEEPERS;
	int i;

	if (write(all->gate, &n, sizeof(n)) != sizeof(n))
		return false;
	while (all->table->way->count(&all->call) != SLEEPERS) {
		if (__atomic_load_n(&all->failed, __ATOMIC_ACQUIRE))
			return false;
		sched_yield();
	}
	for (i = 0; i < SLEEPERS; i++)
		await_asleep(__atomic_load_n(&all->each[i].tid, __ATOMIC_ACQUIRE));
	return true;
}

/*
 * Does a work @times times on all sleepers. After a failure it does not wait for the sleepers,
 * because the test and therefore the threads end.
 */
static double on_sleepers(struct table *table, int number, long times,
			  uint64_t (*work)(struct table *table, int number))
{
	static struct sleepers all;
	uint64_t sum = 0, ns;
	long i;
	int n;

	memset(&all, 0, sizeof(all));
	all.table = table;
	all.call = call_wait(table, table->words, 0);
	all.times = times;
	all.gate = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	for (n = 0; n < SLEEPERS; n++) {
		all.each[n].all = &all;
		if (pthread_create(&all.each[n].thread, NULL, sleep_often, &all.each[n]))
			abort();
	}
	for (i = 1; i <= times; i++) {
		if (!let_all_sleep(&all))
			return BENCH_FAILED;
		table->turn = i;
		ns = work(table, number);
		if (!ns)
			return BENCH_FAILED;
		sum += ns;
		while (__atomic_load_n(&all.awake, __ATOMIC_ACQUIRE) != i * SLEEPERS) {
			if (__atomic_load_n(&all.failed, __ATOMIC_ACQUIRE))
				return BENCH_FAILED;
			sched_yield();
		}
	}
	for (n = 0; n < SLEEPERS; n++)
		pthread_join(all.each[n].thread, NULL);
	close(all.gate);
	return ns_each(sum, times * SLEEPERS);
}

static uint64_t wake_all(struct table *table, int number)
{
	struct call call = call_wake(table, table->words, number);

	return repeat(table->way->wake, &call, number, SLEEPERS / number);
}

static double wake_work(struct table *table, int number, long times)
{
	return on_sleepers(table, number, times, wake_all);
}

/* @number: how many threads each call wakes. */
static double wake(const struct contender *contender, long times)
{
	return with_table(contender, times, wake_work);
}

static void *wake_share(void *arg)
{
	struct worker *worker = arg;

	bind_to(worker->processor);
	meet(worker->there, worker->workers);
	worker->ns = repeat(worker->table->way->wake, &worker->call, worker->call.number, 1);
	return NULL;
}

static uint64_t wake_in_parallel(struct table *table, int number)
{
	struct worker workers[SLEEPERS];
	int n = table->processors < number ? table->processors : number, i;

	for (i = 0; i < n; i++)
		workers[i].call = call_wake(table, table->words, number * (i + 1) / n -
								 number * i / n);
	return work_together(workers, n, table, wake_share);
}

static double parallel_work(struct table *table, int number, long times)
{
	return on_sleepers(table, number, times, wake_in_parallel);
}

static double parallel_wakers(const struct contender *contender, long times)
{
	return with_table(contender, times, parallel_work);
}

/*
 * Uses a different target each time. With a futex it depends on chance whether the target is in the
 * same bucket as the first word. If it is, moving a single waiter costs much more, and moving all
 * waiters much less.
 */
static uint64_t move_all(struct table *table, int number)
{
	uint32_t *target = table->words + 1 + table->turn % (HASHED - 1);
	struct call move = call_move(table, table->words, target, number);
	struct call end = call_wake(table, target, INT_MAX);
	uint64_t ns = repeat(table->way->move, &move, number, SLEEPERS / number);

	return table->way->wake(&end) == SLEEPERS ? ns : 0;
}

static double move_work(struct table *table, int number, long times)
{
	return on_sleepers(table, number, times, move_all);
}

/* @number: how many threads each call moves. */
static double move(const struct contender *contender, long times)
{
	return with_table(contender, times, move_work);
}

/* A thread that maps and unmaps a page repeatedly. */
struct mapper {
	pthread_t thread;
	long mappings;
	int stop;
};

static void *map_and_unmap(void *arg)
{
	struct mapper *mapper = arg;
	size_t size = sysconf(_SC_PAGESIZE);
	bool alone = bench_alone();
	char *page;

	while (!__atomic_load_n(&mapper->stop, __ATOMIC_RELAXED)) {
		page = private_page(size);
		if (!page)
			abort();
		*(volatile char *)page = 1;
		munmap(page, size);
		add_one(&mapper->mappings);
		if (alone)
			sched_yield();
	}
	return NULL;
}

#define AT_ONCE	50

/*
 * Measures only the time of the waits, even on one CPU. There is always a mapping between two
 * waits.
 */
static double mapping_work(struct table *table, int number, long times)
{
	struct call call = call_wait(table, table->words, number);
	struct mapper mapper = { 0 };
	uint64_t sum = 0, ns = 1;
	long seen = 0, i;

	if (pthread_create(&mapper.thread, NULL, map_and_unmap, &mapper))
		abort();
	for (i = 0; i < times && ns; i += AT_ONCE) {
		while (counted(&mapper.mappings) == seen)
			sched_yield();
		seen = counted(&mapper.mappings);
		ns = repeat(table->way->wait, &call, MEMWAIT_NOT_EQUAL, AT_ONCE);
		sum += ns;
	}
	__atomic_store_n(&mapper.stop, 1, __ATOMIC_RELAXED);
	pthread_join(mapper.thread, NULL);
	return ns ? ns_each(sum, i) : BENCH_FAILED;
}

static double mapping(const struct contender *contender, long times)
{
	return with_table(contender, times, mapping_work);
}

#define FUTEX(...)	{ "futex", __VA_ARGS__, &by_futex }
#define FUTEX2(...)	{ "futex2", __VA_ARGS__, &by_futex2 }
#define MEMWAIT(...)	{ "memwait", __VA_ARGS__, &by_memwait }
#define BOTH(...)	{ FUTEX(__VA_ARGS__), MEMWAIT(__VA_ARGS__) }
#define THREE(...)	{ FUTEX(__VA_ARGS__), FUTEX2(__VA_ARGS__), MEMWAIT(__VA_ARGS__) }

FIXTURE_VARIANT_ADD(bench, notify_nobody_private) {
	"ns", 30000, 100, THREE(notify_nobody, 1, MEMWAIT_PRIVATE)
};

FIXTURE_VARIANT_ADD(bench, notify_nobody_shared) { "ns", 30000, 100, THREE(notify_nobody, 1, 0) };
FIXTURE_VARIANT_ADD(bench, not_equal_private) {
	"ns", 30000, 100, THREE(not_equal, EXPECTED, MEMWAIT_PRIVATE)
};

FIXTURE_VARIANT_ADD(bench, not_equal_shared) { "ns", 30000, 100, THREE(not_equal, EXPECTED, 0) };
FIXTURE_VARIANT_ADD(bench, hash_private) {
	"ns", 20 * HASHED, HASHED, BOTH(hash, EXPECTED, MEMWAIT_PRIVATE)
};

FIXTURE_VARIANT_ADD(bench, hash_shared) { "ns", 20 * HASHED, HASHED, BOTH(hash, EXPECTED, 0) };
FIXTURE_VARIANT_ADD(bench, wake_64) { "ns", 20, 2, BOTH(wake, 1, MEMWAIT_PRIVATE) };
FIXTURE_VARIANT_ADD(bench, wake_all_64) { "ns", 20, 2, BOTH(wake, SLEEPERS, MEMWAIT_PRIVATE) };
FIXTURE_VARIANT_ADD(bench, parallel_wakers) {
	"ns", 20, 2, BOTH(parallel_wakers, SLEEPERS, MEMWAIT_PRIVATE)
};

FIXTURE_VARIANT_ADD(bench, requeue_64) { "ns", 20, 2, BOTH(move, 1, MEMWAIT_PRIVATE) };
FIXTURE_VARIANT_ADD(bench, requeue_all_64) { "ns", 20, 2, BOTH(move, SLEEPERS, MEMWAIT_PRIVATE) };
FIXTURE_VARIANT_ADD(bench, mapping) { "ns", 20000, 200, BOTH(mapping, EXPECTED, MEMWAIT_PRIVATE) };

TEST_HARNESS_MAIN
