// SPDX-License-Identifier: GPL-2.0
/*
 * Handing over from thread to thread, and waiting for one of several words, beside futex(2),
 * futex_waitv(2), eventfd and ntsync: that all of them count right is tested, what they cost is
 * printed. MEMWAIT_SCALE and a hundred are the turns of a round.
 */
#include <linux/futex.h>
#include <sys/eventfd.h>

#include "memwait_test.h"

#define ROUNDS		7	/* the first is thrown away */
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

/* Two players; each has words of its own, of which it waits on all and is told by the last. */
struct game;

struct kind {
	const char *name;
	/* Gives the turn to @other, and returns when @me has it. */
	bool (*pass)(struct game *game, int me, int other);
};

struct game {
	const struct kind *kind;
	long turns;			/* of each player */
	int words;
	uint32_t word[2][MOST_WORDS];
	int memwait, ntsync;
	int fds[2];			/* eventfds, or ntsync's events */
	long counter;
	bool failed;
};

static void give(struct game *game, int player)
{
	__atomic_store_n(&game->word[player][game->words - 1], 1, __ATOMIC_RELEASE);
}

static bool has_turn(struct game *game, int player)
{
	return __atomic_load_n(&game->word[player][game->words - 1], __ATOMIC_ACQUIRE);
}

static void take(struct game *game, int player)
{
	__atomic_store_n(&game->word[player][game->words - 1], 0, __ATOMIC_RELAXED);
}

static uint32_t *told_by(struct game *game, int player)
{
	return &game->word[player][game->words - 1];
}

static long futex(uint32_t *word, int operation, uint32_t value)
{
	return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static bool pass_by_futex(struct game *game, int me, int other)
{
	give(game, other);
	futex(told_by(game, other), FUTEX_WAKE, 1);
	while (!has_turn(game, me))
		futex(told_by(game, me), FUTEX_WAIT, 0);
	take(game, me);
	return true;
}

static bool pass_by_futex_waitv(struct game *game, int me, int other)
{
	struct futex_waitv waits[MOST_WORDS] = { 0 };
	int i;

	give(game, other);
	futex(told_by(game, other), FUTEX_WAKE, 1);
	while (!has_turn(game, me)) {
		for (i = 0; i < game->words; i++) {
			waits[i].uaddr = (uintptr_t)&game->word[me][i];
			waits[i].flags = FUTEX_32 | FUTEX_PRIVATE_FLAG;
		}
		syscall(SYS_futex_waitv, waits, game->words, 0, NULL, 0);
	}
	take(game, me);
	return true;
}

#define FLAGS	(MEMWAIT_SIZE_U32 | MEMWAIT_PRIVATE)

static bool pass_by_two_calls(struct game *game, int me, int other)
{
	give(game, other);
	if (mw_notify(game->memwait, told_by(game, other), 1, FLAGS) < 0)
		return false;
	while (!has_turn(game, me))
		if (mw_wait(game->memwait, told_by(game, me), 0, MEMWAIT_FOREVER, FLAGS) < 0)
			return false;
	take(game, me);
	return true;
}

static bool pass_by_notify_wait(struct game *game, int me, int other)
{
	struct memwait_notify_wait both = {
		.notify = { (uintptr_t)told_by(game, other), 1, FLAGS },
		.wait = { (uintptr_t)told_by(game, me), 0, MEMWAIT_FOREVER, FLAGS, 0 },
	};

	give(game, other);
	if (xioctl(game->memwait, MEMWAIT_IOC_NOTIFY_WAIT, &both) < 0)
		return false;
	while (!has_turn(game, me))
		if (mw_wait(game->memwait, told_by(game, me), 0, MEMWAIT_FOREVER, FLAGS) < 0)
			return false;
	take(game, me);
	return true;
}

static bool pass_by_wait_any(struct game *game, int me, int other)
{
	struct memwait_wait waits[MOST_WORDS];
	struct memwait_wait_any any = {
		.waits = (uintptr_t)waits,
		.deadline = MEMWAIT_FOREVER,
		.count = game->words,
	};
	int i;

	give(game, other);
	if (mw_notify(game->memwait, told_by(game, other), 1, FLAGS) < 0)
		return false;
	while (!has_turn(game, me)) {
		for (i = 0; i < game->words; i++)
			waits[i] = (struct memwait_wait){
				.addr = (uintptr_t)&game->word[me][i], .flags = FLAGS,
			};
		if (xioctl(game->memwait, MEMWAIT_IOC_WAIT_ANY, &any) < 0)
			return false;
	}
	take(game, me);
	return true;
}

static bool pass_by_eventfd(struct game *game, int me, int other)
{
	uint64_t value = 1;

	return write(game->fds[other], &value, sizeof(value)) == sizeof(value) &&
	       read(game->fds[me], &value, sizeof(value)) == sizeof(value);
}

static bool pass_by_ntsync(struct game *game, int me, int other)
{
	uint32_t object = game->fds[me], before;
	struct ntsync_wait_args args = {
		.timeout = ~0ULL,
		.objs = (uintptr_t)&object,
		.count = 1,
		.owner = me + 1,
	};

	return !ioctl(game->fds[other], NTSYNC_IOC_EVENT_SET, &before) &&
	       !ioctl(game->ntsync, NTSYNC_IOC_WAIT_ANY, &args);
}

/* What is counted is counted by who has the turn. */
static void pass(struct game *game, int me, long times)
{
	for (; times; times--) {
		if (!game->kind->pass(game, me, !me))
			game->failed = true;
		game->counter++;
	}
}

static void *play_first(void *arg)
{
	struct game *game = arg;

	pass(game, 0, game->turns);
	return NULL;
}

/* Waits for its first turn, and gives the last one back, so that both players end. */
static void *play_second(void *arg)
{
	struct game *game = arg;
	uint32_t object = game->fds[1], before;
	struct ntsync_wait_args wait = {
		.timeout = ~0ULL, .objs = (uintptr_t)&object, .count = 1, .owner = 2,
	};
	uint64_t value = 1;

	if (game->kind->pass == pass_by_eventfd)
		game->failed |= read(game->fds[1], &value, sizeof(value)) != sizeof(value);
	else if (game->kind->pass == pass_by_ntsync)
		game->failed |= ioctl(game->ntsync, NTSYNC_IOC_WAIT_ANY, &wait) != 0;
	else
		while (!has_turn(game, 1))
			sched_yield();
	take(game, 1);

	pass(game, 1, game->turns - 1);

	give(game, 0);
	if (game->kind->pass == pass_by_eventfd)
		game->failed |= write(game->fds[0], &value, sizeof(value)) != sizeof(value);
	else if (game->kind->pass == pass_by_ntsync)
		game->failed |= ioctl(game->fds[0], NTSYNC_IOC_EVENT_SET, &before) != 0;
	futex(told_by(game, 0), FUTEX_WAKE, 1);
	mw_notify(game->memwait, told_by(game, 0), 1, FLAGS);
	return NULL;
}

/* Returns the time of one hand-over in ns; -1: something failed; -2: there is no such kind here. */
static double run_round(const struct kind *kind, int words, long turns)
{
	static struct game game;
	struct ntsync_event_args event = { 0 };
	pthread_t threads[2];
	uint64_t start;
	int i;

	memset(&game, 0, sizeof(game));
	game.kind = kind;
	game.turns = turns;
	game.words = words;
	game.ntsync = -1;
	game.memwait = memwait_open(0);
	if (kind->pass == pass_by_ntsync) {
		game.ntsync = open("/dev/ntsync", O_RDWR | O_CLOEXEC);
		if (game.ntsync < 0) {
			close(game.memwait);
			return -2;
		}
	}
	for (i = 0; i < 2; i++)
		game.fds[i] = game.ntsync < 0 ? eventfd(0, EFD_CLOEXEC) :
						ioctl(game.ntsync, NTSYNC_IOC_CREATE_EVENT, &event);

	start = now_ns(CLOCK_MONOTONIC);
	pthread_create(&threads[0], NULL, play_first, &game);
	pthread_create(&threads[1], NULL, play_second, &game);
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	start = now_ns(CLOCK_MONOTONIC) - start;

	for (i = 0; i < 2; i++)
		close(game.fds[i]);
	close(game.memwait);
	if (game.ntsync >= 0)
		close(game.ntsync);
	if (game.failed || game.counter != 2 * turns - 1)
		return -1;
	return (double)start / (double)(2 * turns);
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

#define MOST_KINDS	5

/* Interleaved, so that what disturbs a round disturbs all; ratios to the first kind. */
static int compare(const char *what, const struct kind *kinds, int n, int words, long turns)
{
	double times[MOST_KINDS][ROUNDS], median[MOST_KINDS];
	int round, kind;

	for (round = 0; round < ROUNDS; round++) {
		for (kind = 0; kind < n; kind++) {
			times[kind][round] = run_round(&kinds[kind], words, turns);
			if (times[kind][round] == -1)
				return -1;
		}
	}
	for (kind = 0; kind < n; kind++) {
		qsort(times[kind] + 1, ROUNDS - 1, sizeof(double), compare_doubles);
		median[kind] = times[kind][ROUNDS / 2];
		if (median[kind] == -2) {
			printf("# %-24s %-16s not there\n", what, kinds[kind].name);
			continue;
		}
		printf("# %-24s %-16s %8.0f ns, ratio %5.2f (%.2f to %.2f)\n", what,
		       kinds[kind].name, median[kind], median[kind] / median[0],
		       times[kind][1] / median[0], times[kind][ROUNDS - 1] / median[0]);
	}
	fflush(stdout);
	return 0;
}

static long turns(void)
{
	const char *scale = getenv("MEMWAIT_SCALE");

	return scale ? atol(scale) + 100 : 500;
}

FIXTURE(compare)
{
};

FIXTURE_SETUP(compare)
{
}

FIXTURE_TEARDOWN(compare)
{
}

TEST_F_TIMEOUT(compare, R17_hand_over, 250)
{
	const struct kind kinds[] = {
		{ "futex, two calls", pass_by_futex },
		{ "NOTIFY and WAIT", pass_by_two_calls },
		{ "NOTIFY_WAIT", pass_by_notify_wait },
		{ "eventfd", pass_by_eventfd },
		{ "ntsync", pass_by_ntsync },
	};

	ASSERT_EQ(0, compare("hand-over", kinds, ARRAY_SIZE(kinds), 1, turns()));
}

TEST_F_TIMEOUT(compare, R16_one_of_several_words, 250)
{
	const struct kind kinds[] = {
		{ "futex_waitv", pass_by_futex_waitv },
		{ "WAIT_ANY", pass_by_wait_any },
	};
	const int words[] = { 1, 8, 64 };
	char what[32];

	for (int i = 0; i < (int)ARRAY_SIZE(words); i++) {
		snprintf(what, sizeof(what), "wait for one of %d words", words[i]);
		ASSERT_EQ(0, compare(what, kinds, ARRAY_SIZE(kinds), words[i], turns()));
	}
}

TEST_HARNESS_MAIN
