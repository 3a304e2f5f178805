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
	if (free)
		bench_add("spread", "ratio", spread(work));
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

/* The part of each member, the numbers of members and of counting members, and the rest. */
#define PLAN(name, function, all, count, ...)					\
	static const struct plan name = {					\
		function, .members = all, .counting = count, __VA_ARGS__	\
	}

PLAN(mutex, lock_alone, 1, 1);
PLAN(mutex_2, lock_among_others, 2, 2);
PLAN(mutex_4, lock_among_others, 4, 4);
PLAN(mutex_8, lock_among_others, 8, 8);
PLAN(mutex_long_2, lock_among_others, 2, 2, .busy_work = BUSY_WORK);
PLAN(mutex_long_4, lock_among_others, 4, 4, .busy_work = BUSY_WORK);
PLAN(mutex_long_8, lock_among_others, 8, 8, .busy_work = BUSY_WORK);
PLAN(mutex_processes, lock_among_others, 2, 2, .processes = true);
PLAN(mutex_contended, lock_and_yield, 2, 2);
PLAN(mutex_contended_shared, lock_and_yield, 2, 2, .shared = true);
PLAN(robust_shared, lock_alone, 1, 1, .shared = true);
PLAN(robust_contended_4, lock_and_yield, 4, 4, .shared = true);
PLAN(robust_contended_processes, lock_and_yield, 2, 2, .processes = true);
PLAN(owner_killed, outlive_owners, 2, 1, .processes = true);
PLAN(cond, take_turns, 2, 2);
PLAN(cond_shared, take_turns, 2, 2, .shared = true);
PLAN(broadcast, wait_for_broadcast, MOST_MEMBERS, WAITERS);
PLAN(broadcast_unlocked, wait_for_broadcast, MOST_MEMBERS, WAITERS, .unlocked = true);
PLAN(broadcast_shared, wait_for_broadcast, MOST_MEMBERS, WAITERS, .shared = true);
PLAN(rwlock_4, read_and_write, 4, 4);
PLAN(sem, post_alone, 1, 1);
PLAN(sem_turns, take_turns_by_sem, 2, 2);
PLAN(sem_turns_shared, take_turns_by_sem, 2, 2, .shared = true);
PLAN(barrier, meet_at_barrier, MEETING, 1);
PLAN(barrier_shared, meet_at_barrier, MEETING, 1, .shared = true);
PLAN(channel_turns, return_message, 2, 2, .words = 1);
PLAN(channel_turns_shared, return_message, 2, 2, .words = 1, .shared = true);
PLAN(channel_stream, stream_messages, 2, 1, .words = MOST_WORDS);
PLAN(channel_stream_shared, stream_messages, 2, 1, .words = MOST_WORDS, .shared = true);

#define GLIBC(run, plan)	{ "glibc", run, PEER, 0, plan }
#define ADAPTIVE(run, plan)	{ "glibc adaptive", run, PEER, PTHREAD_MUTEX_ADAPTIVE_NP, plan }
#define OURS(run, plan)		{ "memwait", run, MEMWAIT, 0, plan }
#define FAIR(run, plan)		{ "memwait fair", run, MEMWAIT, MEMWAIT_MUTEX_FAIR, plan }
#define GLIBC_KILLED(plan)	{ "glibc robust", run, PEER, GLIBC_ROBUST, plan }
#define OURS_KILLED(plan)	{ "memwait robust", run, MEMWAIT, MEMWAIT_MUTEX_ROBUST, plan }
#define BOTH(plan)		{ GLIBC(run, plan), OURS(run, plan) }
#define AND_FAIR(plan)		{ GLIBC(run, plan), OURS(run, plan), FAIR(run, plan) }
#define MUTEXES(run, plan)	{ GLIBC(run, plan), ADAPTIVE(run, plan), OURS(run, plan) }
#define ALL_MUTEXES(run, plan)						\
	{								\
		GLIBC(run, plan), ADAPTIVE(run, plan), OURS(run, plan), FAIR(run, plan)	\
	}
#define ROBUST(plan)		{ GLIBC_KILLED(plan), OURS_KILLED(plan), OURS(run, plan) }
#define CHANNELS(plan)		{ { "pipe", run, PEER, 0, plan }, OURS(run, plan) }

FIXTURE_VARIANT_ADD(bench, mutex) { "ns", 500000, 1000, BOTH(&mutex) };
FIXTURE_VARIANT_ADD(bench, mutex_2) { "ns", 200000, 8000, ALL_MUTEXES(run_and_spread, &mutex_2) };
FIXTURE_VARIANT_ADD(bench, mutex_4) { "ns", 200000, 8000, ALL_MUTEXES(run_and_spread, &mutex_4) };
FIXTURE_VARIANT_ADD(bench, mutex_8) { "ns", 200000, 8000, MUTEXES(run_and_spread, &mutex_8) };
FIXTURE_VARIANT_ADD(bench, mutex_long_2) {
	"ns", 4000, 400, MUTEXES(run_and_spread, &mutex_long_2)
};

FIXTURE_VARIANT_ADD(bench, mutex_long_4) {
	"ns", 4000, 400, MUTEXES(run_and_spread, &mutex_long_4)
};

FIXTURE_VARIANT_ADD(bench, mutex_long_8) {
	"ns", 4000, 400, MUTEXES(run_and_spread, &mutex_long_8)
};

FIXTURE_VARIANT_ADD(bench, mutex_processes) { "ns", 200000, 8000, MUTEXES(run, &mutex_processes) };
FIXTURE_VARIANT_ADD(bench, mutex_contended) { "ns", 20000, 100, BOTH(&mutex_contended) };
FIXTURE_VARIANT_ADD(bench, mutex_contended_shared) {
	"ns", 20000, 100, BOTH(&mutex_contended_shared)
};

FIXTURE_VARIANT_ADD(bench, robust) { "ns", 500000, 1000, ROBUST(&mutex) };
FIXTURE_VARIANT_ADD(bench, robust_shared) { "ns", 500000, 1000, ROBUST(&robust_shared) };
FIXTURE_VARIANT_ADD(bench, robust_2) { "ns", 200000, 8000, ROBUST(&mutex_2) };
FIXTURE_VARIANT_ADD(bench, robust_4) { "ns", 200000, 8000, ROBUST(&mutex_4) };
FIXTURE_VARIANT_ADD(bench, robust_long_2) { "ns", 4000, 400, ROBUST(&mutex_long_2) };
FIXTURE_VARIANT_ADD(bench, robust_processes) { "ns", 200000, 8000, ROBUST(&mutex_processes) };
FIXTURE_VARIANT_ADD(bench, robust_contended) { "ns", 20000, 100, ROBUST(&mutex_contended) };
FIXTURE_VARIANT_ADD(bench, robust_contended_shared) {
	"ns", 20000, 100, ROBUST(&mutex_contended_shared)
};

FIXTURE_VARIANT_ADD(bench, robust_contended_4) { "ns", 20000, 100, ROBUST(&robust_contended_4) };
FIXTURE_VARIANT_ADD(bench, robust_contended_processes) {
	"ns", 20000, 100, ROBUST(&robust_contended_processes)
};

FIXTURE_VARIANT_ADD(bench, owner_killed) {
	"ns", 200, 10, { GLIBC_KILLED(&owner_killed), OURS_KILLED(&owner_killed) }
};

FIXTURE_VARIANT_ADD(bench, cond) { "ns", 10000, 100, AND_FAIR(&cond) };
FIXTURE_VARIANT_ADD(bench, cond_shared) { "ns", 10000, 100, BOTH(&cond_shared) };
FIXTURE_VARIANT_ADD(bench, broadcast) {
	"ns", 20 * WAITERS, 3 * WAITERS, {
		GLIBC(run, &broadcast), { "glibc unlocked", run, PEER, 0, &broadcast_unlocked },
		OURS(run, &broadcast), { "memwait unlocked", run, MEMWAIT, 0, &broadcast_unlocked },
	}
};

FIXTURE_VARIANT_ADD(bench, broadcast_shared) {
	"ns", 20 * WAITERS, 3 * WAITERS, BOTH(&broadcast_shared)
};

FIXTURE_VARIANT_ADD(bench, rwlock_4_90_10) { "ns", 100000, 4000, AND_FAIR(&rwlock_4) };
FIXTURE_VARIANT_ADD(bench, sem) { "ns", 500000, 1000, BOTH(&sem) };
FIXTURE_VARIANT_ADD(bench, sem_turns) { "ns", 10000, 100, BOTH(&sem_turns) };
FIXTURE_VARIANT_ADD(bench, sem_turns_shared) { "ns", 10000, 100, BOTH(&sem_turns_shared) };
FIXTURE_VARIANT_ADD(bench, barrier) { "ns", 1000, 20, BOTH(&barrier) };
FIXTURE_VARIANT_ADD(bench, barrier_shared) { "ns", 1000, 20, BOTH(&barrier_shared) };
FIXTURE_VARIANT_ADD(bench, channel_turns) { "ns", 10000, 100, CHANNELS(&channel_turns) };
FIXTURE_VARIANT_ADD(bench, channel_turns_shared) {
	"ns", 10000, 100, CHANNELS(&channel_turns_shared)
};

FIXTURE_VARIANT_ADD(bench, channel_stream) { "ns", 10000, 1000, CHANNELS(&channel_stream) };
FIXTURE_VARIANT_ADD(bench, channel_stream_shared) {
	"ns", 10000, 1000, CHANNELS(&channel_stream_shared)
};

TEST_HARNESS_MAIN
