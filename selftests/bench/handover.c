// SPDX-License-Identifier: GPL-2.0
/*
 * Handover between two threads and between two processes, compared with futex(2), futex2, eventfd,
 * pipe and ntsync. A second group of works has peers that wait on several words, compared with
 * futex_waitv(2).
 */
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "bench.h"
#include "futex_calls.h"

#define MOST_WORDS	64

/* These are from <linux/ntsync.h>, which older systems do not have. */
struct ntsync_event_args {
	__u32 manual, signaled;
};

struct ntsync_wait_args {
	__u64 timeout, objs;
	__u32 count, index, flags, owner, alert, pad;
};

#define NTSYNC_IOC_WAIT_ANY	_IOWR('N', 0x82, struct ntsync_wait_args)
#define NTSYNC_IOC_CREATE_EVENT	_IOW('N', 0x87, struct ntsync_event_args)
#define NTSYNC_IOC_EVENT_SET	_IOR('N', 0x88, __u32)

/* The CPUs on which the peers run: two different CPUs, if there are two; one CPU; or any CPU. */
enum places { APART, TOGETHER, ANYWHERE };

/*
 * Shared by both peers. Each peer waits on all of its words and is notified through the last of
 * them.
 */
struct shared {
	uint32_t words[2][MOST_WORDS];
	long turns;		/* number of turns; the peer that has the turn counts */
	pid_t second;		/* PID, set when the second peer is ready */
};

/*
 * State of one peer. Arguments that are passed by address are built once, before the measurement.
 */
struct peer {
	const struct way *way;
	struct shared *shared;
	int number;
	enum places places;
	long times;		/* number of turns of this peer */
	uint32_t *mine, *others;	/* words that are 1 if it is their peer's turn */
	uint32_t private, words;
	int device;		/* descriptor of memwait or ntsync, or -1 */
	int in, out;		/* where this peer is notified, where it notifies the other */
	union {
		struct futex_waitv waitv[MOST_WORDS];
		struct {
			struct memwait_notify notify;
			struct memwait_wait wait;
			struct memwait_notify_wait both;
			struct memwait_wait members[MOST_WORDS];
			struct memwait_wait_any any;
			struct memwait_async async;
		};
		struct {
			struct ntsync_wait_args event_wait;
			__u32 event, before;
		};
	};
};

struct way {
	/*
	 * Opens the objects that both peers use. Returns 0, BENCH_FAILED or BENCH_ABSENT. May be
	 * NULL.
	 */
	double (*open)(struct peer *peers);
	/* May be NULL. */
	void (*prepare)(struct peer *peer);
	/* Passes the turn to the other peer. */
	bool (*notify)(struct peer *peer);
	/* Waits for the turn. */
	bool (*wait)(struct peer *peer);
	/* Passes the turn and waits for the next one. */
	bool (*pass)(struct peer *peer);
};

static bool notify_and_wait(struct peer *peer)
{
	return peer->way->notify(peer) && peer->way->wait(peer);
}

static void give(struct peer *peer)
{
	__atomic_store_n(peer->others, 1, __ATOMIC_RELEASE);
}

static bool has_turn(struct peer *peer)
{
	return __atomic_load_n(peer->mine, __ATOMIC_ACQUIRE);
}

static void take(struct peer *peer)
{
	__atomic_store_n(peer->mine, 0, __ATOMIC_RELAXED);
}

static bool notify_by_futex(struct peer *peer)
{
	give(peer);
	return futex_wake(peer->others, 1, peer->private) >= 0;
}

static bool wait_by_futex(struct peer *peer)
{
	while (!has_turn(peer)) {
		if (futex_wait(peer->mine, 0, peer->private) < 0 && errno != EAGAIN)
			return false;
	}
	take(peer);
	return true;
}

static const struct way by_futex = {
	.notify = notify_by_futex,
	.wait = wait_by_futex,
	.pass = notify_and_wait,
};

static double open_futex2(struct peer *peers)
{
	(void)peers;
	return futex2_is_there() ? 0 : BENCH_ABSENT;
}

static bool notify_by_futex2(struct peer *peer)
{
	give(peer);
	return futex2_wake(peer->others, 1, peer->private) >= 0;
}

static bool wait_by_futex2(struct peer *peer)
{
	while (!has_turn(peer)) {
		if (futex2_wait(peer->mine, 0, peer->private) < 0 && errno != EAGAIN)
			return false;
	}
	take(peer);
	return true;
}

static const struct way by_futex2 = {
	.open = open_futex2,
	.notify = notify_by_futex2,
	.wait = wait_by_futex2,
	.pass = notify_and_wait,
};

static uint32_t *word_of(struct peer *peer, uint32_t i)
{
	return peer->mine - (peer->words - 1) + i;
}

static void prepare_waitv(struct peer *peer)
{
	uint32_t i;

	for (i = 0; i < peer->words; i++)
		peer->waitv[i] = (struct futex_waitv) {
			.uaddr = (uintptr_t)word_of(peer, i),
			.flags = FUTEX_32 | peer->private,
		};
}

static bool wait_by_waitv(struct peer *peer)
{
	long ret;

	while (!has_turn(peer)) {
		ret = syscall(SYS_futex_waitv, peer->waitv, peer->words, 0, NULL, 0);
		if (ret < 0 ? errno != EAGAIN : ret != (long)peer->words - 1)
			return false;
	}
	take(peer);
	return true;
}

static const struct way by_waitv = {
	.prepare = prepare_waitv,
	.notify = notify_by_futex,
	.wait = wait_by_waitv,
	.pass = notify_and_wait,
};

static double open_memwait(struct peer *peers)
{
	peers[0].device = memwait_open(0);
	return peers[0].device < 0 ? BENCH_FAILED : 0;
}

static void prepare_memwait(struct peer *peer)
{
	uint32_t flags = MEMWAIT_SIZE_U32 | peer->private, i;

	peer->notify = (struct memwait_notify) {
		.addr = (uintptr_t)peer->others,
		.count = 1,
		.flags = flags,
	};
	peer->wait = (struct memwait_wait) {
		.addr = (uintptr_t)peer->mine,
		.deadline = MEMWAIT_FOREVER,
		.flags = flags,
	};
	peer->both = (struct memwait_notify_wait) {
		.notify = peer->notify,
		.wait = peer->wait,
	};
	for (i = 0; i < peer->words; i++)
		peer->members[i] = (struct memwait_wait) {
			.addr = (uintptr_t)word_of(peer, i),
			.flags = flags,
		};
	peer->any = (struct memwait_wait_any) {
		.waits = (uintptr_t)peer->members,
		.deadline = MEMWAIT_FOREVER,
		.count = peer->words,
	};
}

static bool notify_by_memwait(struct peer *peer)
{
	give(peer);
	return ioctl(peer->device, MEMWAIT_IOC_NOTIFY, &peer->notify) >= 0;
}

static bool wait_by_memwait(struct peer *peer)
{
	while (!has_turn(peer)) {
		if (ioctl(peer->device, MEMWAIT_IOC_WAIT, &peer->wait) < 0)
			return false;
	}
	take(peer);
	return true;
}

static bool notify_wait(struct peer *peer)
{
	give(peer);
	return ioctl(peer->device, MEMWAIT_IOC_NOTIFY_WAIT, &peer->both) >= 0 &&
	       wait_by_memwait(peer);
}

static bool wait_any(struct peer *peer)
{
	while (!has_turn(peer)) {
		if (ioctl(peer->device, MEMWAIT_IOC_WAIT_ANY, &peer->any) < 0 ||
		    peer->any.index != peer->words - 1)
			return false;
	}
	take(peer);
	return true;
}

static const struct way by_memwait = {
	.open = open_memwait,
	.prepare = prepare_memwait,
	.notify = notify_by_memwait,
	.wait = wait_by_memwait,
	.pass = notify_and_wait,
};

static const struct way by_notify_wait = {
	.open = open_memwait,
	.prepare = prepare_memwait,
	.notify = notify_by_memwait,
	.wait = wait_by_memwait,
	.pass = notify_wait,
};

static const struct way by_wait_any = {
	.open = open_memwait,
	.prepare = prepare_memwait,
	.notify = notify_by_memwait,
	.wait = wait_any,
	.pass = notify_and_wait,
};

/* Each peer has its own context. */
static double open_contexts(struct peer *peers)
{
	int i;

	for (i = 0; i < 2; i++)
		peers[i].in = memwait_open(0);
	peers[0].device = memwait_open(0);
	return peers[0].device < 0 || peers[0].in < 0 || peers[1].in < 0 ? BENCH_FAILED : 0;
}

static void prepare_async(struct peer *peer)
{
	prepare_memwait(peer);
	peer->async = (struct memwait_async) { .wait = peer->wait };
}

static bool wait_by_async(struct peer *peer)
{
	struct memwait_completion completion;

	while (!has_turn(peer)) {
		if (!bench_arm(peer->in, &peer->async, 1))
			return false;
		if (peer->async.result == MEMWAIT_PENDING &&
		    read(peer->in, &completion, sizeof(completion)) != sizeof(completion))
			return false;
	}
	take(peer);
	return true;
}

static const struct way by_async = {
	.open = open_contexts,
	.prepare = prepare_async,
	.notify = notify_by_memwait,
	.wait = wait_by_async,
	.pass = notify_and_wait,
};

static double open_eventfds(struct peer *peers)
{
	int i;

	for (i = 0; i < 2; i++) {
		peers[i].in = eventfd(0, EFD_CLOEXEC);
		peers[!i].out = peers[i].in;
	}
	return peers[0].in < 0 || peers[1].in < 0 ? BENCH_FAILED : 0;
}

static bool notify_by_eventfd(struct peer *peer)
{
	uint64_t value = 1;

	return write(peer->out, &value, sizeof(value)) == sizeof(value);
}

static bool wait_by_eventfd(struct peer *peer)
{
	uint64_t value;

	return read(peer->in, &value, sizeof(value)) == sizeof(value);
}

static const struct way by_eventfd = {
	.open = open_eventfds,
	.notify = notify_by_eventfd,
	.wait = wait_by_eventfd,
	.pass = notify_and_wait,
};

static double open_pipes(struct peer *peers)
{
	int fds[2], i;

	for (i = 0; i < 2; i++) {
		if (pipe2(fds, O_CLOEXEC))
			return BENCH_FAILED;
		peers[i].in = fds[0];
		peers[!i].out = fds[1];
	}
	return 0;
}

static bool notify_by_pipe(struct peer *peer)
{
	char byte = 0;

	return write(peer->out, &byte, 1) == 1;
}

static bool wait_by_pipe(struct peer *peer)
{
	char byte;

	return read(peer->in, &byte, 1) == 1;
}

static const struct way by_pipe = {
	.open = open_pipes,
	.notify = notify_by_pipe,
	.wait = wait_by_pipe,
	.pass = notify_and_wait,
};

static double open_ntsync(struct peer *peers)
{
	struct ntsync_event_args event = { 0 };
	int i;

	peers[0].device = open("/dev/ntsync", O_RDWR | O_CLOEXEC);
	if (peers[0].device < 0)
		return BENCH_ABSENT;
	for (i = 0; i < 2; i++) {
		peers[i].in = ioctl(peers[0].device, NTSYNC_IOC_CREATE_EVENT, &event);
		peers[!i].out = peers[i].in;
	}
	return peers[0].in < 0 || peers[1].in < 0 ? BENCH_FAILED : 0;
}

static void prepare_ntsync(struct peer *peer)
{
	peer->event = peer->in;
	peer->event_wait = (struct ntsync_wait_args) {
		.timeout = ~0ULL,
		.objs = (uintptr_t)&peer->event,
		.count = 1,
		.owner = peer->number + 1,
	};
}

static bool notify_by_ntsync(struct peer *peer)
{
	return !ioctl(peer->out, NTSYNC_IOC_EVENT_SET, &peer->before);
}

static bool wait_by_ntsync(struct peer *peer)
{
	return !ioctl(peer->device, NTSYNC_IOC_WAIT_ANY, &peer->event_wait);
}

static const struct way by_ntsync = {
	.open = open_ntsync,
	.prepare = prepare_ntsync,
	.notify = notify_by_ntsync,
	.wait = wait_by_ntsync,
	.pass = notify_and_wait,
};

/* The CPUs for peers that are bound. Peers that are not bound may run on one CPU or on two. */
static struct {
	int numbers[2], nr;
	cpu_set_t allowed;
} processors;

/* This function must be called before any thread is bound. */
static void find_processors(void)
{
	int cpu;

	processors.nr = 0;
	if (sched_getaffinity(0, sizeof(processors.allowed), &processors.allowed))
		return;
	for (cpu = 0; cpu < CPU_SETSIZE && processors.nr < 2; cpu++) {
		if (CPU_ISSET(cpu, &processors.allowed))
			processors.numbers[processors.nr++] = cpu;
	}
}

static void take_place(const struct peer *peer)
{
	if (peer->places == ANYWHERE)
		sched_setaffinity(0, sizeof(processors.allowed), &processors.allowed);
	else if (processors.nr == 2)
		bind_to(processors.numbers[peer->places == APART ? peer->number : 0]);
}

static bool count(struct peer *peer, long i)
{
	return peer->shared->turns++ == 2 * i + peer->number;
}

static bool run_first(struct peer *peer)
{
	long i;

	for (i = 0; i < peer->times; i++) {
		if (!count(peer, i) || !peer->way->pass(peer))
			return false;
	}
	return true;
}

/* Waits for the first turn and passes the last turn back, so that both peers end. */
static bool run_second(struct peer *peer)
{
	long i;

	take_place(peer);
	__atomic_store_n(&peer->shared->second, gettid(), __ATOMIC_RELEASE);
	if (!peer->way->wait(peer))
		return false;
	for (i = 0; i < peer->times - 1; i++) {
		if (!count(peer, i) || !peer->way->pass(peer))
			return false;
	}
	return count(peer, i) && peer->way->notify(peer);
}

/* If this peer has failed, the first peer would wait forever. */
static void *peer_thread(void *peer)
{
	if (!run_second(peer))
		abort();
	return NULL;
}

static void peer_process(struct peer *peer, pid_t first)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!run_second(peer))
		kill(first, SIGABRT);
	_exit(0);
}

/* Returns the time from the moment at which the second peer sleeps to the end, or 0 on failure. */
static uint64_t time_of(struct peer *peer)
{
	pid_t second;
	uint64_t start;

	take_place(peer);
	while (!(second = __atomic_load_n(&peer->shared->second, __ATOMIC_ACQUIRE)))
		sched_yield();
	await_asleep(second);
	start = now_ns(CLOCK_MONOTONIC);
	return run_first(peer) ? bench_since(start) : 0;
}

/* If the first peer fails, the second thread continues to exist until the test ends. */
static uint64_t among_threads(struct peer *peers)
{
	pthread_t second;
	uint64_t ns;

	if (pthread_create(&second, NULL, peer_thread, &peers[1]))
		abort();
	ns = time_of(&peers[0]);
	if (ns)
		pthread_join(second, NULL);
	return ns;
}

static uint64_t among_processes(struct peer *peers)
{
	pid_t first = getpid(), second = fork();
	uint64_t ns;
	int status;

	if (second < 0)
		return 0;
	if (!second)
		peer_process(&peers[1], first);
	ns = time_of(&peers[0]);
	if (!ns)
		kill(second, SIGKILL);
	if (waitpid(second, &status, 0) != second || status)
		ns = 0;
	return ns;
}

static void close_all(struct peer *peers)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (peers[i].out >= 0 && peers[i].out != peers[!i].in)
			close(peers[i].out);
		if (peers[i].in >= 0)
			close(peers[i].in);
	}
	if (peers[0].device >= 0)
		close(peers[0].device);
}

static double hand_over(const struct contender *contender, long times, bool processes,
			enum places places)
{
	static struct peer peers[2];
	const struct way *way = contender->how;
	size_t size = sizeof(struct shared);
	struct shared *shared = processes ? shared_page(size) : private_page(size);
	uint64_t ns = 0;
	double figure;
	long turns;
	int i;

	if (!shared)
		return BENCH_FAILED;
	if (!processors.nr)
		find_processors();
	for (i = 0; i < 2; i++)
		peers[i] = (struct peer) {
			.way = way,
			.shared = shared,
			.number = i,
			.places = places,
			.times = times,
			.mine = &shared->words[i][contender->number - 1],
			.others = &shared->words[!i][contender->number - 1],
			.private = contender->flags,
			.words = contender->number,
			.device = -1,
			.in = -1,
			.out = -1,
		};
	figure = way->open ? way->open(peers) : 0;
	if (figure == 0) {
		peers[1].device = peers[0].device;
		for (i = 0; i < 2 && way->prepare; i++)
			way->prepare(&peers[i]);
		ns = processes ? among_processes(peers) : among_threads(peers);
		figure = ns ? (double)ns / (double)(2 * times) : BENCH_FAILED;
		if (!ns)
			return figure;
	}
	turns = shared->turns;
	close_all(peers);
	munmap(shared, size);
	return ns && turns != 2 * times ? BENCH_FAILED : figure;
}

static double threads(const struct contender *contender, long times)
{
	return hand_over(contender, times, false, APART);
}

static double processes(const struct contender *contender, long times)
{
	return hand_over(contender, times, true, APART);
}

static double threads_together(const struct contender *contender, long times)
{
	return hand_over(contender, times, false, TOGETHER);
}

static double threads_anywhere(const struct contender *contender, long times)
{
	return hand_over(contender, times, false, ANYWHERE);
}

static double processes_anywhere(const struct contender *contender, long times)
{
	return hand_over(contender, times, true, ANYWHERE);
}

/* The contenders, with the number of their words and whether the words are private. */
#define FUTEX(run, flags)	{ "futex", run, 1, flags, &by_futex }
#define FUTEX2(run, flags)	{ "futex2", run, 1, flags, &by_futex2 }
#define MEMWAIT(run, flags)	{ "memwait", run, 1, flags, &by_memwait }
#define NOTIFY_WAIT(run, flags)	{ "NOTIFY_WAIT", run, 1, flags, &by_notify_wait }
#define ASYNC(run)		{ "ASYNC and read", run, 1, MEMWAIT_PRIVATE, &by_async }
#define EVENTFD(run)		{ "eventfd", run, 1, 0, &by_eventfd }
#define PIPE(run)		{ "pipe", run, 1, 0, &by_pipe }
#define NTSYNC(run)		{ "ntsync", run, 1, 0, &by_ntsync }
#define THREADS(run)							\
	{								\
		FUTEX(run, MEMWAIT_PRIVATE), MEMWAIT(run, MEMWAIT_PRIVATE),	\
		NOTIFY_WAIT(run, MEMWAIT_PRIVATE), ASYNC(run), EVENTFD(run)	\
	}
#define ANY(number)							\
	{								\
		{ "futex_waitv", threads, number, MEMWAIT_PRIVATE, &by_waitv },	\
		{ "WAIT_ANY", threads, number, MEMWAIT_PRIVATE, &by_wait_any }	\
	}

FIXTURE_VARIANT_ADD(bench, threads) {
	"ns", 4000, 20, {
		FUTEX(threads, MEMWAIT_PRIVATE), FUTEX2(threads, MEMWAIT_PRIVATE),
		MEMWAIT(threads, MEMWAIT_PRIVATE), NOTIFY_WAIT(threads, MEMWAIT_PRIVATE),
		ASYNC(threads), EVENTFD(threads), PIPE(threads), NTSYNC(threads),
	}
};

FIXTURE_VARIANT_ADD(bench, processes) {
	"ns", 4000, 20, {
		FUTEX(processes, 0), FUTEX2(processes, 0), MEMWAIT(processes, 0),
		NOTIFY_WAIT(processes, 0), EVENTFD(processes), PIPE(processes), NTSYNC(processes),
	}
};

FIXTURE_VARIANT_ADD(bench, threads_together) { "ns", 4000, 20, THREADS(threads_together) };
FIXTURE_VARIANT_ADD(bench, threads_anywhere) { "ns", 4000, 20, THREADS(threads_anywhere) };
FIXTURE_VARIANT_ADD(bench, processes_anywhere) {
	"ns", 4000, 20, {
		FUTEX(processes_anywhere, 0), MEMWAIT(processes_anywhere, 0),
		NOTIFY_WAIT(processes_anywhere, 0), EVENTFD(processes_anywhere),
	}
};

FIXTURE_VARIANT_ADD(bench, any_8) { "ns", 1000, 20, ANY(8) };
FIXTURE_VARIANT_ADD(bench, any_64) { "ns", 500, 20, ANY(MOST_WORDS) };

TEST_HARNESS_MAIN
