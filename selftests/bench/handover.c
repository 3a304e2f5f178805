// SPDX-License-Identifier: GPL-2.0
/*
 * Handing over from thread to thread and from process to process, beside futex(2), futex2, eventfd,
 * pipe and ntsync; and the same where each waits on several words, beside futex_waitv(2).
 */
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "bench.h"
#include "futex_calls.h"

#define MOST_WORDS	64

/* Of <linux/ntsync.h>, which older systems do not have. */
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

/* Of the players: each has a processor of its own, if there are two; both have one; or any. */
enum places { APART, TOGETHER, ANYWHERE };

/* What both players see: each has words of its own, waits on all, and is told by the last. */
struct board {
	uint32_t words[2][MOST_WORDS];
	long turns;		/* counted by who has the turn */
	pid_t second;		/* set when the second player is ready */
};

/* What a player has by itself. What it passes by address is built once, before the game. */
struct player {
	const struct way *way;
	struct board *board;
	int number;
	enum places places;
	long times;		/* it has the turn */
	uint32_t *mine, *others;	/* words that are 1 when their player has the turn */
	uint32_t private, words;
	int device;		/* memwait or ntsync; or -1, as are these */
	int in, out;		/* where it is told, and where it tells the other one */
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
	/* Gets what both players use; returns 0, BENCH_FAILED or BENCH_ABSENT. NULL: nothing. */
	double (*open)(struct player *players);
	/* NULL: nothing. */
	void (*prepare)(struct player *player);
	/* Gives the turn away. */
	bool (*tell)(struct player *player);
	/* Returns when it is here. */
	bool (*wait)(struct player *player);
	/* Both. */
	bool (*pass)(struct player *player);
};

static bool tell_and_wait(struct player *player)
{
	return player->way->tell(player) && player->way->wait(player);
}

static void give(struct player *player)
{
	__atomic_store_n(player->others, 1, __ATOMIC_RELEASE);
}

static bool has_turn(struct player *player)
{
	return __atomic_load_n(player->mine, __ATOMIC_ACQUIRE);
}

static void take(struct player *player)
{
	__atomic_store_n(player->mine, 0, __ATOMIC_RELAXED);
}

static bool tell_by_futex(struct player *player)
{
	give(player);
	return futex_wake(player->others, 1, player->private) >= 0;
}

static bool wait_by_futex(struct player *player)
{
	while (!has_turn(player)) {
		if (futex_wait(player->mine, 0, player->private) < 0 && errno != EAGAIN)
			return false;
	}
	take(player);
	return true;
}

static const struct way by_futex = {
	.tell = tell_by_futex,
	.wait = wait_by_futex,
	.pass = tell_and_wait,
};

static double open_futex2(struct player *players)
{
	(void)players;
	return futex2_is_there() ? 0 : BENCH_ABSENT;
}

static bool tell_by_futex2(struct player *player)
{
	give(player);
	return futex2_wake(player->others, 1, player->private) >= 0;
}

static bool wait_by_futex2(struct player *player)
{
	while (!has_turn(player)) {
		if (futex2_wait(player->mine, 0, player->private) < 0 && errno != EAGAIN)
			return false;
	}
	take(player);
	return true;
}

static const struct way by_futex2 = {
	.open = open_futex2,
	.tell = tell_by_futex2,
	.wait = wait_by_futex2,
	.pass = tell_and_wait,
};

static uint32_t *word_of(struct player *player, uint32_t i)
{
	return player->mine - (player->words - 1) + i;
}

static void prepare_waitv(struct player *player)
{
	uint32_t i;

	for (i = 0; i < player->words; i++)
		player->waitv[i] = (struct futex_waitv) {
			.uaddr = (uintptr_t)word_of(player, i),
			.flags = FUTEX_32 | player->private,
		};
}

static bool wait_by_waitv(struct player *player)
{
	long ret;

	while (!has_turn(player)) {
		ret = syscall(SYS_futex_waitv, player->waitv, player->words, 0, NULL, 0);
		if (ret < 0 ? errno != EAGAIN : ret != (long)player->words - 1)
			return false;
	}
	take(player);
	return true;
}

static const struct way by_waitv = {
	.prepare = prepare_waitv,
	.tell = tell_by_futex,
	.wait = wait_by_waitv,
	.pass = tell_and_wait,
};

static double open_memwait(struct player *players)
{
	players[0].device = memwait_open(0);
	return players[0].device < 0 ? BENCH_FAILED : 0;
}

static void prepare_memwait(struct player *player)
{
	uint32_t flags = MEMWAIT_SIZE_U32 | player->private, i;

	player->notify = (struct memwait_notify) {
		.addr = (uintptr_t)player->others,
		.count = 1,
		.flags = flags,
	};
	player->wait = (struct memwait_wait) {
		.addr = (uintptr_t)player->mine,
		.deadline = MEMWAIT_FOREVER,
		.flags = flags,
	};
	player->both = (struct memwait_notify_wait) {
		.notify = player->notify,
		.wait = player->wait,
	};
	for (i = 0; i < player->words; i++)
		player->members[i] = (struct memwait_wait) {
			.addr = (uintptr_t)word_of(player, i),
			.flags = flags,
		};
	player->any = (struct memwait_wait_any) {
		.waits = (uintptr_t)player->members,
		.deadline = MEMWAIT_FOREVER,
		.count = player->words,
	};
}

static bool tell_by_memwait(struct player *player)
{
	give(player);
	return ioctl(player->device, MEMWAIT_IOC_NOTIFY, &player->notify) >= 0;
}

static bool wait_by_memwait(struct player *player)
{
	while (!has_turn(player)) {
		if (ioctl(player->device, MEMWAIT_IOC_WAIT, &player->wait) < 0)
			return false;
	}
	take(player);
	return true;
}

static bool notify_wait(struct player *player)
{
	give(player);
	return ioctl(player->device, MEMWAIT_IOC_NOTIFY_WAIT, &player->both) >= 0 &&
	       wait_by_memwait(player);
}

static bool wait_any(struct player *player)
{
	while (!has_turn(player)) {
		if (ioctl(player->device, MEMWAIT_IOC_WAIT_ANY, &player->any) < 0 ||
		    player->any.index != player->words - 1)
			return false;
	}
	take(player);
	return true;
}

static const struct way by_memwait = {
	.open = open_memwait,
	.prepare = prepare_memwait,
	.tell = tell_by_memwait,
	.wait = wait_by_memwait,
	.pass = tell_and_wait,
};

static const struct way by_notify_wait = {
	.open = open_memwait,
	.prepare = prepare_memwait,
	.tell = tell_by_memwait,
	.wait = wait_by_memwait,
	.pass = notify_wait,
};

static const struct way by_wait_any = {
	.open = open_memwait,
	.prepare = prepare_memwait,
	.tell = tell_by_memwait,
	.wait = wait_any,
	.pass = tell_and_wait,
};

/* Each has a context of its own. */
static double open_contexts(struct player *players)
{
	int i;

	for (i = 0; i < 2; i++)
		players[i].in = memwait_open(0);
	players[0].device = memwait_open(0);
	return players[0].device < 0 || players[0].in < 0 || players[1].in < 0 ? BENCH_FAILED : 0;
}

static void prepare_async(struct player *player)
{
	prepare_memwait(player);
	player->async = (struct memwait_async) { .wait = player->wait };
}

static bool wait_by_async(struct player *player)
{
	struct memwait_completion completion;

	while (!has_turn(player)) {
		if (!bench_arm(player->in, &player->async, 1))
			return false;
		if (player->async.result == MEMWAIT_PENDING &&
		    read(player->in, &completion, sizeof(completion)) != sizeof(completion))
			return false;
	}
	take(player);
	return true;
}

static const struct way by_async = {
	.open = open_contexts,
	.prepare = prepare_async,
	.tell = tell_by_memwait,
	.wait = wait_by_async,
	.pass = tell_and_wait,
};

static double open_eventfds(struct player *players)
{
	int i;

	for (i = 0; i < 2; i++) {
		players[i].in = eventfd(0, EFD_CLOEXEC);
		players[!i].out = players[i].in;
	}
	return players[0].in < 0 || players[1].in < 0 ? BENCH_FAILED : 0;
}

static bool tell_by_eventfd(struct player *player)
{
	uint64_t value = 1;

	return write(player->out, &value, sizeof(value)) == sizeof(value);
}

static bool wait_by_eventfd(struct player *player)
{
	uint64_t value;

	return read(player->in, &value, sizeof(value)) == sizeof(value);
}

static const struct way by_eventfd = {
	.open = open_eventfds,
	.tell = tell_by_eventfd,
	.wait = wait_by_eventfd,
	.pass = tell_and_wait,
};

static double open_pipes(struct player *players)
{
	int fds[2], i;

	for (i = 0; i < 2; i++) {
		if (pipe2(fds, O_CLOEXEC))
			return BENCH_FAILED;
		players[i].in = fds[0];
		players[!i].out = fds[1];
	}
	return 0;
}

static bool tell_by_pipe(struct player *player)
{
	char byte = 0;

	return write(player->out, &byte, 1) == 1;
}

static bool wait_by_pipe(struct player *player)
{
	char byte;

	return read(player->in, &byte, 1) == 1;
}

static const struct way by_pipe = {
	.open = open_pipes,
	.tell = tell_by_pipe,
	.wait = wait_by_pipe,
	.pass = tell_and_wait,
};

static double open_ntsync(struct player *players)
{
	struct ntsync_event_args event = { 0 };
	int i;

	players[0].device = open("/dev/ntsync", O_RDWR | O_CLOEXEC);
	if (players[0].device < 0)
		return BENCH_ABSENT;
	for (i = 0; i < 2; i++) {
		players[i].in = ioctl(players[0].device, NTSYNC_IOC_CREATE_EVENT, &event);
		players[!i].out = players[i].in;
	}
	return players[0].in < 0 || players[1].in < 0 ? BENCH_FAILED : 0;
}

static void prepare_ntsync(struct player *player)
{
	player->event = player->in;
	player->event_wait = (struct ntsync_wait_args) {
		.timeout = ~0ULL,
		.objs = (uintptr_t)&player->event,
		.count = 1,
		.owner = player->number + 1,
	};
}

static bool tell_by_ntsync(struct player *player)
{
	return !ioctl(player->out, NTSYNC_IOC_EVENT_SET, &player->before);
}

static bool wait_by_ntsync(struct player *player)
{
	return !ioctl(player->device, NTSYNC_IOC_WAIT_ANY, &player->event_wait);
}

static const struct way by_ntsync = {
	.open = open_ntsync,
	.prepare = prepare_ntsync,
	.tell = tell_by_ntsync,
	.wait = wait_by_ntsync,
	.pass = tell_and_wait,
};

/* For players that are bound: left alone they are on one processor or on two, as it comes. */
static struct {
	int numbers[2], nr;
	cpu_set_t allowed;
} processors;

/* To be called while nobody is bound. */
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

static void take_place(const struct player *player)
{
	if (player->places == ANYWHERE)
		sched_setaffinity(0, sizeof(processors.allowed), &processors.allowed);
	else if (processors.nr == 2)
		bind_to(processors.numbers[player->places == APART ? player->number : 0]);
}

static bool count(struct player *player, long i)
{
	return player->board->turns++ == 2 * i + player->number;
}

static bool play_first(struct player *player)
{
	long i;

	for (i = 0; i < player->times; i++) {
		if (!count(player, i) || !player->way->pass(player))
			return false;
	}
	return true;
}

/* It waits for its first turn, and gives the last one back, so that both players end. */
static bool play_second(struct player *player)
{
	long i;

	take_place(player);
	__atomic_store_n(&player->board->second, gettid(), __ATOMIC_RELEASE);
	if (!player->way->wait(player))
		return false;
	for (i = 0; i < player->times - 1; i++) {
		if (!count(player, i) || !player->way->pass(player))
			return false;
	}
	return count(player, i) && player->way->tell(player);
}

/* Without it the first player would wait for ever. */
static void *play_thread(void *player)
{
	if (!play_second(player))
		abort();
	return NULL;
}

static void play_process(struct player *player, pid_t first)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!play_second(player))
		kill(first, SIGABRT);
	_exit(0);
}

/* Returns the time of the game, from when the second player sleeps; or 0 if it failed. */
static uint64_t time_of(struct player *player)
{
	pid_t second;
	uint64_t start;

	take_place(player);
	while (!(second = __atomic_load_n(&player->board->second, __ATOMIC_ACQUIRE)))
		sched_yield();
	await_asleep(second);
	start = now_ns(CLOCK_MONOTONIC);
	return play_first(player) ? bench_since(start) : 0;
}

/* If the first player fails, the second one is left to the end of the test. */
static uint64_t among_threads(struct player *players)
{
	pthread_t second;
	uint64_t ns;

	if (pthread_create(&second, NULL, play_thread, &players[1]))
		abort();
	ns = time_of(&players[0]);
	if (ns)
		pthread_join(second, NULL);
	return ns;
}

static uint64_t among_processes(struct player *players)
{
	pid_t first = getpid(), second = fork();
	uint64_t ns;
	int status;

	if (second < 0)
		return 0;
	if (!second)
		play_process(&players[1], first);
	ns = time_of(&players[0]);
	if (!ns)
		kill(second, SIGKILL);
	if (waitpid(second, &status, 0) != second || status)
		ns = 0;
	return ns;
}

static void close_all(struct player *players)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (players[i].out >= 0 && players[i].out != players[!i].in)
			close(players[i].out);
		if (players[i].in >= 0)
			close(players[i].in);
	}
	if (players[0].device >= 0)
		close(players[0].device);
}

static double hand_over(const struct contender *contender, long times, bool processes,
			enum places places)
{
	static struct player players[2];
	const struct way *way = contender->how;
	size_t size = sizeof(struct board);
	struct board *board = processes ? shared_page(size) : private_page(size);
	uint64_t ns = 0;
	double figure;
	long turns;
	int i;

	if (!board)
		return BENCH_FAILED;
	if (!processors.nr)
		find_processors();
	for (i = 0; i < 2; i++)
		players[i] = (struct player) {
			.way = way,
			.board = board,
			.number = i,
			.places = places,
			.times = times,
			.mine = &board->words[i][contender->number - 1],
			.others = &board->words[!i][contender->number - 1],
			.private = contender->flags,
			.words = contender->number,
			.device = -1,
			.in = -1,
			.out = -1,
		};
	figure = way->open ? way->open(players) : 0;
	if (figure == 0) {
		players[1].device = players[0].device;
		for (i = 0; i < 2 && way->prepare; i++)
			way->prepare(&players[i]);
		ns = processes ? among_processes(players) : among_threads(players);
		figure = ns ? (double)ns / (double)(2 * times) : BENCH_FAILED;
		if (!ns)
			return figure;
	}
	turns = board->turns;
	close_all(players);
	munmap(board, size);
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

/* Of each contender the number of words, and whether they are private. */
FIXTURE_VARIANT_ADD(bench, threads)
{
	.times = 4000,
	.check = 20,
	.contenders = {
		{ "futex", threads, 1, MEMWAIT_PRIVATE, &by_futex },
		{ "futex2", threads, 1, MEMWAIT_PRIVATE, &by_futex2 },
		{ "memwait", threads, 1, MEMWAIT_PRIVATE, &by_memwait },
		{ "NOTIFY_WAIT", threads, 1, MEMWAIT_PRIVATE, &by_notify_wait },
		{ "ASYNC and read", threads, 1, MEMWAIT_PRIVATE, &by_async },
		{ "eventfd", threads, 1, 0, &by_eventfd },
		{ "pipe", threads, 1, 0, &by_pipe },
		{ "ntsync", threads, 1, 0, &by_ntsync },
	},
};

FIXTURE_VARIANT_ADD(bench, processes)
{
	.times = 4000,
	.check = 20,
	.contenders = {
		{ "futex", processes, 1, 0, &by_futex },
		{ "futex2", processes, 1, 0, &by_futex2 },
		{ "memwait", processes, 1, 0, &by_memwait },
		{ "NOTIFY_WAIT", processes, 1, 0, &by_notify_wait },
		{ "eventfd", processes, 1, 0, &by_eventfd },
		{ "pipe", processes, 1, 0, &by_pipe },
		{ "ntsync", processes, 1, 0, &by_ntsync },
	},
};

FIXTURE_VARIANT_ADD(bench, threads_together)
{
	.times = 4000,
	.check = 20,
	.contenders = {
		{ "futex", threads_together, 1, MEMWAIT_PRIVATE, &by_futex },
		{ "memwait", threads_together, 1, MEMWAIT_PRIVATE, &by_memwait },
		{ "NOTIFY_WAIT", threads_together, 1, MEMWAIT_PRIVATE, &by_notify_wait },
		{ "ASYNC and read", threads_together, 1, MEMWAIT_PRIVATE, &by_async },
		{ "eventfd", threads_together, 1, 0, &by_eventfd },
	},
};

FIXTURE_VARIANT_ADD(bench, threads_anywhere)
{
	.times = 4000,
	.check = 20,
	.contenders = {
		{ "futex", threads_anywhere, 1, MEMWAIT_PRIVATE, &by_futex },
		{ "memwait", threads_anywhere, 1, MEMWAIT_PRIVATE, &by_memwait },
		{ "NOTIFY_WAIT", threads_anywhere, 1, MEMWAIT_PRIVATE, &by_notify_wait },
		{ "ASYNC and read", threads_anywhere, 1, MEMWAIT_PRIVATE, &by_async },
		{ "eventfd", threads_anywhere, 1, 0, &by_eventfd },
	},
};

FIXTURE_VARIANT_ADD(bench, processes_anywhere)
{
	.times = 4000,
	.check = 20,
	.contenders = {
		{ "futex", processes_anywhere, 1, 0, &by_futex },
		{ "memwait", processes_anywhere, 1, 0, &by_memwait },
		{ "NOTIFY_WAIT", processes_anywhere, 1, 0, &by_notify_wait },
		{ "eventfd", processes_anywhere, 1, 0, &by_eventfd },
	},
};

FIXTURE_VARIANT_ADD(bench, any_8)
{
	.times = 1000,
	.check = 20,
	.contenders = {
		{ "futex_waitv", threads, 8, MEMWAIT_PRIVATE, &by_waitv },
		{ "WAIT_ANY", threads, 8, MEMWAIT_PRIVATE, &by_wait_any },
	},
};

FIXTURE_VARIANT_ADD(bench, any_64)
{
	.times = 500,
	.check = 20,
	.contenders = {
		{ "futex_waitv", threads, MOST_WORDS, MEMWAIT_PRIVATE, &by_waitv },
		{ "WAIT_ANY", threads, MOST_WORDS, MEMWAIT_PRIVATE, &by_wait_any },
	},
};

TEST_HARNESS_MAIN
