// SPDX-License-Identifier: GPL-2.0
/*
 * The locks of libmemwait compared with those of glibc, and its channels compared with pipes.
 *
 * All work is done by threads or processes that begin together. This includes work of a single
 * thread, because glibc omits atomic operations in a process that has never had a second thread.
 */
#include "locks_work.h"

static bool is_shared(const struct plan *plan)
{
	return plan->processes || plan->shared;
}

static size_t item_size(const struct plan *plan)
{
	return plan->words * sizeof(uint64_t);
}

static int open_channels(struct work *work, unsigned int flags)
{
	size_t item = item_size(work->plan), size = memwait_channel_size(item, SLOTS);
	int i, err = 0;

	for (i = 0; i < 2; i++) {
		err |= pipe2(work->pipes[i], O_CLOEXEC);
		work->channels[i] = is_shared(work->plan) ? shared_page(size) : private_page(size);
		err |= !work->channels[i];
		if (!err)
			err |= memwait_channel_init(work->channels[i], size, flags, item, SLOTS);
	}
	return err;
}

static int close_channels(struct work *work)
{
	size_t size = memwait_channel_size(item_size(work->plan), SLOTS);
	int i, err = 0;

	for (i = 0; i < 2; i++) {
		close(work->pipes[i][0]);
		close(work->pipes[i][1]);
		err |= memwait_channel_destroy(work->channels[i]);
		munmap(work->channels[i], size);
	}
	return err;
}

static int set_up_glibc(struct work *work)
{
	int pshared = is_shared(work->plan) ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE;
	int kind = work->library == PEER ? work->kind : PTHREAD_MUTEX_DEFAULT;
	pthread_barrierattr_t barrier;
	pthread_rwlockattr_t rwlock;
	pthread_mutexattr_t mutex;
	pthread_condattr_t cond;
	int i, err;

	err = pthread_mutexattr_init(&mutex);
	err |= pthread_mutexattr_settype(&mutex, kind & ~GLIBC_ROBUST);
	if (kind & GLIBC_ROBUST)
		err |= pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
	err |= pthread_mutexattr_setpshared(&mutex, pshared);
	err |= pthread_mutex_init(&work->glibc.mutex, &mutex);
	err |= pthread_condattr_init(&cond);
	err |= pthread_condattr_setpshared(&cond, pshared);
	for (i = 0; i < 2; i++) {
		err |= pthread_cond_init(&work->glibc.conds[i], &cond);
		err |= sem_init(&work->glibc.sems[i], pshared, !i);
	}
	err |= pthread_rwlockattr_init(&rwlock);
	err |= pthread_rwlockattr_setpshared(&rwlock, pshared);
	err |= pthread_rwlock_init(&work->glibc.rwlock, &rwlock);
	err |= pthread_barrierattr_init(&barrier);
	err |= pthread_barrierattr_setpshared(&barrier, pshared);
	err |= pthread_barrier_init(&work->glibc.barrier, &barrier, MEETING);
	return err;
}

/* Initialises the locks of both libraries, even if only one of them is used. */
static int set_up(struct work *work)
{
	unsigned int flags = is_shared(work->plan) ? 0 : MEMWAIT_PRIVATE;
	unsigned int kind = work->library == PEER ? 0 : work->kind;
	int i, err = set_up_glibc(work);

	err |= memwait_mutex_init(&work->ours.mutex, flags | kind);
	for (i = 0; i < 2; i++) {
		err |= memwait_cond_init(&work->ours.conds[i], flags);
		err |= memwait_sem_init(&work->ours.sems[i], flags, !i);
	}
	err |= memwait_rwlock_init(&work->ours.rwlock, flags | (kind & MEMWAIT_RWLOCK_FAIR));
	err |= memwait_barrier_init(&work->ours.barrier, flags, MEETING);
	if (work->plan->words)
		err |= open_channels(work, flags);
	return err;
}

static int tear_down(struct work *work)
{
	int i, err;

	err = pthread_mutex_destroy(&work->glibc.mutex);
	err |= memwait_mutex_destroy(&work->ours.mutex);
	for (i = 0; i < 2; i++) {
		err |= pthread_cond_destroy(&work->glibc.conds[i]);
		err |= memwait_cond_destroy(&work->ours.conds[i]);
		err |= sem_destroy(&work->glibc.sems[i]);
		err |= memwait_sem_destroy(&work->ours.sems[i]);
	}
	err |= pthread_rwlock_destroy(&work->glibc.rwlock);
	err |= memwait_rwlock_destroy(&work->ours.rwlock);
	err |= pthread_barrier_destroy(&work->glibc.barrier);
	err |= memwait_barrier_destroy(&work->ours.barrier);
	if (work->plan->words)
		err |= close_channels(work);
	return err;
}

static void *member_main(void *arg)
{
	struct member *member = arg;
	struct work *work = member->work;

	member->tid = gettid();
	__atomic_add_fetch(&work->ready, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&work->go, __ATOMIC_ACQUIRE))
		sched_yield();
	member->err = work->plan->part(work, (int)(member - work->members));
	return NULL;
}

static void start_member(struct member *member)
{
	pid_t process;

	if (!member->work->plan->processes) {
		if (pthread_create(&member->thread, NULL, member_main, member))
			abort();
		return;
	}
	process = fork();
	if (process < 0)
		abort();
	if (!process) {
		member_main(member);
		_exit(0);
	}
	member->process = process;
}

static int join_member(struct member *member)
{
	int status = 0;

	if (!member->work->plan->processes)
		pthread_join(member->thread, NULL);
	else if (waitpid(member->process, &status, 0) != member->process)
		return -1;
	return member->err | status;
}

/* Returns the duration of the round in ns. */
static uint64_t run_members(struct work *work, int *err)
{
	struct member *member, *end = work->members + work->plan->members;
	uint64_t start;

	for (member = work->members; member < end; member++) {
		member->work = work;
		member->random = member - work->members + 1;
		start_member(member);
	}
	while (__atomic_load_n(&work->ready, __ATOMIC_ACQUIRE) < work->plan->members)
		sched_yield();
	start = now_ns(CLOCK_MONOTONIC);
	__atomic_store_n(&work->go, true, __ATOMIC_RELEASE);
	for (member = work->members; member < end; member++)
		*err |= join_member(member);
	return work->ns ? work->ns : now_ns(CLOCK_MONOTONIC) - start;
}

/*
 * Returns how often the first member held the lock, divided by how often the last member held it.
 */
static double spread(const struct work *work)
{
	long count, most = 0, least = LONG_MAX;
	int i;

	for (i = 0; i < work->plan->members; i++) {
		count = work->members[i].count;
		if (count > most)
			most = count;
		if (count < least)
			least = count;
	}
	return (double)most / (double)(least ? least : 1);
}

/* @free: each member does as much as it can, instead of a fixed share. */
static double run_round(const struct contender *contender, long times, bool free)
{
	static _Alignas(4096) struct work in_process;
	const struct plan *plan = contender->how;
	struct work *work = is_shared(plan) ? shared_page(sizeof(*work)) : &in_process;
	long total = times / plan->counting * plan->counting, counted = 0;
	uint64_t ns;
	int err, i;

	if (!work)
		return BENCH_FAILED;
	memset(work, 0, sizeof(*work));
	work->library = contender->number;
	work->kind = (int)contender->flags;
	work->plan = plan;
	work->left = total;
	work->share = free ? total : times / plan->counting;
	err = set_up(work);
	if (err)
		return BENCH_FAILED;
	ns = run_members(work, &err);
	err |= tear_down(work);
	for (i = 0; i < plan->members; i++)
		counted += work->members[i].count;
	err |= work->left || counted != total;
	if (free) {
		bench_aside.name = "spread";
		bench_aside.unit = "ratio";
		bench_aside.figure = spread(work);
	}
	if (is_shared(plan))
		munmap(work, sizeof(*work));
	return err ? BENCH_FAILED : (double)ns / (double)total;
}

static double run(const struct contender *contender, long times)
{
	return run_round(contender, times, false);
}

/*
 * A second round measures how evenly the lock is distributed. On a single CPU this would only
 * reflect the distribution of time slices.
 */
static double run_and_spread(const struct contender *contender, long times)
{
	double figure = run_round(contender, times, false);

	if (!bench_alone() && run_round(contender, times, true) == BENCH_FAILED)
		return BENCH_FAILED;
	return figure;
}

#define CONTENDER(name, run, library, plan)	{ name, run, library, 0, plan }
#define ADAPTIVE(run, plan)	{ "glibc adaptive", run, PEER, PTHREAD_MUTEX_ADAPTIVE_NP, plan }
#define FAIR(run, plan)		{ "memwait fair", run, MEMWAIT, MEMWAIT_MUTEX_FAIR, plan }
#define ROBUST(plan)		{ "memwait robust", run, MEMWAIT, MEMWAIT_MUTEX_ROBUST, plan }
#define PEER_ROBUST(plan)	{ "glibc robust", run, PEER, GLIBC_ROBUST, plan }

static const struct plan mutex = { lock_alone, .members = 1, .counting = 1 };

FIXTURE_VARIANT_ADD(bench, mutex)
{
	.times = 500000, .check = 1000,
	.contenders = {
		CONTENDER("glibc", run, PEER, &mutex),
		CONTENDER("memwait", run, MEMWAIT, &mutex),
	},
};

static const struct plan mutex_2 = { lock_among_others, .members = 2, .counting = 2 };

FIXTURE_VARIANT_ADD(bench, mutex_2)
{
	.times = 200000, .check = 8000,
	.contenders = {
		CONTENDER("glibc", run_and_spread, PEER, &mutex_2),
		ADAPTIVE(run_and_spread, &mutex_2),
		CONTENDER("memwait", run_and_spread, MEMWAIT, &mutex_2),
		FAIR(run_and_spread, &mutex_2),
	},
};

static const struct plan mutex_4 = { lock_among_others, .members = 4, .counting = 4 };

FIXTURE_VARIANT_ADD(bench, mutex_4)
{
	.times = 200000, .check = 8000,
	.contenders = {
		CONTENDER("glibc", run_and_spread, PEER, &mutex_4),
		ADAPTIVE(run_and_spread, &mutex_4),
		CONTENDER("memwait", run_and_spread, MEMWAIT, &mutex_4),
		FAIR(run_and_spread, &mutex_4),
	},
};

static const struct plan mutex_8 = { lock_among_others, .members = 8, .counting = 8 };

FIXTURE_VARIANT_ADD(bench, mutex_8)
{
	.times = 200000, .check = 8000,
	.contenders = {
		CONTENDER("glibc", run_and_spread, PEER, &mutex_8),
		ADAPTIVE(run_and_spread, &mutex_8),
		CONTENDER("memwait", run_and_spread, MEMWAIT, &mutex_8),
	},
};

static const struct plan mutex_long_2 = {
	lock_among_others, .members = 2, .counting = 2, .busy_work = BUSY_WORK,
};

FIXTURE_VARIANT_ADD(bench, mutex_long_2)
{
	.times = 4000, .check = 400,
	.contenders = {
		CONTENDER("glibc", run_and_spread, PEER, &mutex_long_2),
		ADAPTIVE(run_and_spread, &mutex_long_2),
		CONTENDER("memwait", run_and_spread, MEMWAIT, &mutex_long_2),
	},
};

static const struct plan mutex_long_4 = {
	lock_among_others, .members = 4, .counting = 4, .busy_work = BUSY_WORK,
};

FIXTURE_VARIANT_ADD(bench, mutex_long_4)
{
	.times = 4000, .check = 400,
	.contenders = {
		CONTENDER("glibc", run_and_spread, PEER, &mutex_long_4),
		ADAPTIVE(run_and_spread, &mutex_long_4),
		CONTENDER("memwait", run_and_spread, MEMWAIT, &mutex_long_4),
	},
};

static const struct plan mutex_long_8 = {
	lock_among_others, .members = 8, .counting = 8, .busy_work = BUSY_WORK,
};

FIXTURE_VARIANT_ADD(bench, mutex_long_8)
{
	.times = 4000, .check = 400,
	.contenders = {
		CONTENDER("glibc", run_and_spread, PEER, &mutex_long_8),
		ADAPTIVE(run_and_spread, &mutex_long_8),
		CONTENDER("memwait", run_and_spread, MEMWAIT, &mutex_long_8),
	},
};

static const struct plan mutex_processes = {
	lock_among_others, .members = 2, .counting = 2, .processes = true,
};

FIXTURE_VARIANT_ADD(bench, mutex_processes)
{
	.times = 200000, .check = 8000,
	.contenders = {
		CONTENDER("glibc", run, PEER, &mutex_processes),
		ADAPTIVE(run, &mutex_processes),
		CONTENDER("memwait", run, MEMWAIT, &mutex_processes),
	},
};

static const struct plan mutex_contended = { lock_and_yield, .members = 2, .counting = 2 };

FIXTURE_VARIANT_ADD(bench, mutex_contended)
{
	.times = 20000, .check = 100,
	.contenders = {
		CONTENDER("glibc", run, PEER, &mutex_contended),
		CONTENDER("memwait", run, MEMWAIT, &mutex_contended),
	},
};

static const struct plan mutex_contended_shared = {
	lock_and_yield, .members = 2, .counting = 2, .shared = true,
};

FIXTURE_VARIANT_ADD(bench, mutex_contended_shared)
{
	.times = 20000, .check = 100,
	.contenders = {
		CONTENDER("glibc", run, PEER, &mutex_contended_shared),
		CONTENDER("memwait", run, MEMWAIT, &mutex_contended_shared),
	},
};

static const struct plan robust = { lock_alone, .members = 1, .counting = 1 };

FIXTURE_VARIANT_ADD(bench, robust)
{
	.times = 500000, .check = 1000,
	.contenders = {
		PEER_ROBUST(&robust),
		ROBUST(&robust),
		CONTENDER("memwait", run, MEMWAIT, &robust),
	},
};

static const struct plan robust_shared = {
	lock_alone, .members = 1, .counting = 1, .shared = true,
};

FIXTURE_VARIANT_ADD(bench, robust_shared)
{
	.times = 500000, .check = 1000,
	.contenders = {
		PEER_ROBUST(&robust_shared),
		ROBUST(&robust_shared),
		CONTENDER("memwait", run, MEMWAIT, &robust_shared),
	},
};

FIXTURE_VARIANT_ADD(bench, robust_2)
{
	.times = 200000, .check = 8000,
	.contenders = {
		PEER_ROBUST(&mutex_2),
		ROBUST(&mutex_2),
		CONTENDER("memwait", run, MEMWAIT, &mutex_2),
	},
};

FIXTURE_VARIANT_ADD(bench, robust_4)
{
	.times = 200000, .check = 8000,
	.contenders = {
		PEER_ROBUST(&mutex_4),
		ROBUST(&mutex_4),
		CONTENDER("memwait", run, MEMWAIT, &mutex_4),
	},
};

FIXTURE_VARIANT_ADD(bench, robust_long_2)
{
	.times = 4000, .check = 400,
	.contenders = {
		PEER_ROBUST(&mutex_long_2),
		ROBUST(&mutex_long_2),
		CONTENDER("memwait", run, MEMWAIT, &mutex_long_2),
	},
};

FIXTURE_VARIANT_ADD(bench, robust_processes)
{
	.times = 200000, .check = 8000,
	.contenders = {
		PEER_ROBUST(&mutex_processes),
		ROBUST(&mutex_processes),
		CONTENDER("memwait", run, MEMWAIT, &mutex_processes),
	},
};

FIXTURE_VARIANT_ADD(bench, robust_contended)
{
	.times = 20000, .check = 100,
	.contenders = {
		PEER_ROBUST(&mutex_contended),
		ROBUST(&mutex_contended),
		CONTENDER("memwait", run, MEMWAIT, &mutex_contended),
	},
};

FIXTURE_VARIANT_ADD(bench, robust_contended_shared)
{
	.times = 20000, .check = 100,
	.contenders = {
		PEER_ROBUST(&mutex_contended_shared),
		ROBUST(&mutex_contended_shared),
		CONTENDER("memwait", run, MEMWAIT, &mutex_contended_shared),
	},
};

static const struct plan robust_contended_4 = {
	lock_and_yield, .members = 4, .counting = 4, .shared = true,
};

FIXTURE_VARIANT_ADD(bench, robust_contended_4)
{
	.times = 20000, .check = 100,
	.contenders = {
		PEER_ROBUST(&robust_contended_4),
		ROBUST(&robust_contended_4),
		CONTENDER("memwait", run, MEMWAIT, &robust_contended_4),
	},
};

static const struct plan robust_contended_processes = {
	lock_and_yield, .members = 2, .counting = 2, .processes = true,
};

FIXTURE_VARIANT_ADD(bench, robust_contended_processes)
{
	.times = 20000, .check = 100,
	.contenders = {
		PEER_ROBUST(&robust_contended_processes),
		ROBUST(&robust_contended_processes),
		CONTENDER("memwait", run, MEMWAIT, &robust_contended_processes),
	},
};

static const struct plan owner_killed = {
	outlive_owners, .members = 2, .counting = 1, .processes = true,
};

FIXTURE_VARIANT_ADD(bench, owner_killed)
{
	.times = 200, .check = 10,
	.contenders = {
		PEER_ROBUST(&owner_killed),
		ROBUST(&owner_killed),
	},
};

static const struct plan cond = { take_turns, .members = 2, .counting = 2 };

FIXTURE_VARIANT_ADD(bench, cond)
{
	.times = 10000, .check = 100,
	.contenders = {
		CONTENDER("glibc", run, PEER, &cond),
		CONTENDER("memwait", run, MEMWAIT, &cond),
		FAIR(run, &cond),
	},
};

static const struct plan cond_shared = {
	take_turns, .members = 2, .counting = 2, .shared = true,
};

FIXTURE_VARIANT_ADD(bench, cond_shared)
{
	.times = 10000, .check = 100,
	.contenders = {
		CONTENDER("glibc", run, PEER, &cond_shared),
		CONTENDER("memwait", run, MEMWAIT, &cond_shared),
	},
};

static const struct plan broadcast = {
	wait_for_broadcast, .members = MOST_MEMBERS, .counting = WAITERS,
};

static const struct plan broadcast_unlocked = {
	wait_for_broadcast, .members = MOST_MEMBERS, .counting = WAITERS, .unlocked = true,
};

FIXTURE_VARIANT_ADD(bench, broadcast)
{
	.times = 20 * WAITERS, .check = 3 * WAITERS,
	.contenders = {
		CONTENDER("glibc", run, PEER, &broadcast),
		CONTENDER("glibc unlocked", run, PEER, &broadcast_unlocked),
		CONTENDER("memwait", run, MEMWAIT, &broadcast),
		CONTENDER("memwait unlocked", run, MEMWAIT, &broadcast_unlocked),
	},
};

static const struct plan broadcast_shared = {
	wait_for_broadcast, .members = MOST_MEMBERS, .counting = WAITERS, .shared = true,
};

FIXTURE_VARIANT_ADD(bench, broadcast_shared)
{
	.times = 20 * WAITERS, .check = 3 * WAITERS,
	.contenders = {
		CONTENDER("glibc", run, PEER, &broadcast_shared),
		CONTENDER("memwait", run, MEMWAIT, &broadcast_shared),
	},
};

static const struct plan rwlock_4 = { read_and_write, .members = 4, .counting = 4 };

FIXTURE_VARIANT_ADD(bench, rwlock_4_90_10)
{
	.times = 100000, .check = 4000,
	.contenders = {
		CONTENDER("glibc", run, PEER, &rwlock_4),
		CONTENDER("memwait", run, MEMWAIT, &rwlock_4),
		FAIR(run, &rwlock_4),
	},
};

static const struct plan sem = { post_alone, .members = 1, .counting = 1 };

FIXTURE_VARIANT_ADD(bench, sem)
{
	.times = 500000, .check = 1000,
	.contenders = {
		CONTENDER("glibc", run, PEER, &sem),
		CONTENDER("memwait", run, MEMWAIT, &sem),
	},
};

static const struct plan sem_turns = { take_turns_by_sem, .members = 2, .counting = 2 };

FIXTURE_VARIANT_ADD(bench, sem_turns)
{
	.times = 10000, .check = 100,
	.contenders = {
		CONTENDER("glibc", run, PEER, &sem_turns),
		CONTENDER("memwait", run, MEMWAIT, &sem_turns),
	},
};

static const struct plan sem_turns_shared = {
	take_turns_by_sem, .members = 2, .counting = 2, .shared = true,
};

FIXTURE_VARIANT_ADD(bench, sem_turns_shared)
{
	.times = 10000, .check = 100,
	.contenders = {
		CONTENDER("glibc", run, PEER, &sem_turns_shared),
		CONTENDER("memwait", run, MEMWAIT, &sem_turns_shared),
	},
};

static const struct plan barrier = { meet_at_barrier, .members = MEETING, .counting = 1 };

FIXTURE_VARIANT_ADD(bench, barrier)
{
	.times = 1000, .check = 20,
	.contenders = {
		CONTENDER("glibc", run, PEER, &barrier),
		CONTENDER("memwait", run, MEMWAIT, &barrier),
	},
};

static const struct plan barrier_shared = {
	meet_at_barrier, .members = MEETING, .counting = 1, .shared = true,
};

FIXTURE_VARIANT_ADD(bench, barrier_shared)
{
	.times = 1000, .check = 20,
	.contenders = {
		CONTENDER("glibc", run, PEER, &barrier_shared),
		CONTENDER("memwait", run, MEMWAIT, &barrier_shared),
	},
};

static const struct plan channel_turns = {
	return_message, .members = 2, .counting = 2, .words = 1,
};

FIXTURE_VARIANT_ADD(bench, channel_turns)
{
	.times = 10000, .check = 100,
	.contenders = {
		CONTENDER("pipe", run, PEER, &channel_turns),
		CONTENDER("memwait", run, MEMWAIT, &channel_turns),
	},
};

static const struct plan channel_turns_shared = {
	return_message, .members = 2, .counting = 2, .words = 1, .shared = true,
};

FIXTURE_VARIANT_ADD(bench, channel_turns_shared)
{
	.times = 10000, .check = 100,
	.contenders = {
		CONTENDER("pipe", run, PEER, &channel_turns_shared),
		CONTENDER("memwait", run, MEMWAIT, &channel_turns_shared),
	},
};

static const struct plan channel_stream = {
	stream_messages, .members = 2, .counting = 1, .words = MOST_WORDS,
};

FIXTURE_VARIANT_ADD(bench, channel_stream)
{
	.times = 10000, .check = 1000,
	.contenders = {
		CONTENDER("pipe", run, PEER, &channel_stream),
		CONTENDER("memwait", run, MEMWAIT, &channel_stream),
	},
};

static const struct plan channel_stream_shared = {
	stream_messages, .members = 2, .counting = 1, .words = MOST_WORDS, .shared = true,
};

FIXTURE_VARIANT_ADD(bench, channel_stream_shared)
{
	.times = 10000, .check = 1000,
	.contenders = {
		CONTENDER("pipe", run, PEER, &channel_stream_shared),
		CONTENDER("memwait", run, MEMWAIT, &channel_stream_shared),
	},
};

TEST_HARNESS_MAIN
