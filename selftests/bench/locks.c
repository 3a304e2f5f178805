// SPDX-License-Identifier: GPL-2.0
/*
 * The locks of libmemwait beside glibc's, and its channels beside pipes.
 *
 * Whatever is done is done by threads, or processes, that begin together; also what one does alone:
 * in a process that has never had a second thread glibc leaves out atomic operations.
 */
#include "bench.h"

#include <memwait.h>
#include <semaphore.h>

#define WAITERS		64	/* of a broadcast */
#define MOST_MEMBERS	(WAITERS + 1)
#define MEETING		8	/* at the barrier */
#define SLOTS		1024	/* of a channel: as many of the largest messages as a pipe takes */
#define MOST_WORDS	8	/* of a message */
#define TOIL		450	/* about 5 microseconds */

/* Of which library the locks are: the peer's, which is glibc or a pipe, or ours. */
enum { PEER, MEMWAIT };

/* Added to a type of glibc's. */
#define GLIBC_ROBUST	0x100

struct work;

struct plan {
	/* What each member does. Returns something other than 0 if a call has failed. */
	int (*part)(struct work *work, int me);
	int members;
	int counting;		/* how many of them count operations */
	int toil;		/* how long to work with the mutex, and then without */
	int words;		/* of a message */
	bool processes;
	bool shared;		/* the locks are, as those of processes */
	bool unlocked;		/* the mutex is, when it is broadcast */
};

struct member {
	_Alignas(64) struct work *work;
	pthread_t thread;
	pid_t process, tid;
	uint64_t random;
	long count;
	int err;
};

/*
 * As in any program: what is used together lies together, beginning with a cache line of its own.
 * All locks are in one page.
 */
struct work {
	struct {
		_Alignas(64) pthread_mutex_t mutex;
		pthread_cond_t conds[2];

		_Alignas(64) pthread_rwlock_t rwlock;
		_Alignas(64) pthread_barrier_t barrier;
		_Alignas(64) sem_t sems[2];
	} glibc;
	struct {
		_Alignas(64) memwait_mutex_t mutex;
		memwait_cond_t conds[2];

		_Alignas(64) memwait_rwlock_t rwlock;
		_Alignas(64) memwait_barrier_t barrier;
		_Alignas(64) memwait_sem_t sems[2];
	} ours;

	_Alignas(64) long left;		/* operations to be done */
	long written[2];
	int turn;
	int there;
	uint64_t begun, ended, ns;	/* if not all of the time counts */

	_Alignas(64) int library;
	int kind;			/* of the library's mutex, and of our rwlock */
	const struct plan *plan;
	long share;			/* most operations of each member that counts */
	int pipes[2][2];
	memwait_channel_t *channels[2];
	int ready;
	bool go;
	struct member members[MOST_MEMBERS];
};

static inline int lock(struct work *work)
{
	return work->library == PEER ? pthread_mutex_lock(&work->glibc.mutex) :
				       memwait_mutex_lock(&work->ours.mutex);
}

static inline int unlock(struct work *work)
{
	return work->library == PEER ? pthread_mutex_unlock(&work->glibc.mutex) :
				       memwait_mutex_unlock(&work->ours.mutex);
}

static int wait_for(struct work *work, int which)
{
	return work->library == PEER ?
		pthread_cond_wait(&work->glibc.conds[which], &work->glibc.mutex) :
		memwait_cond_wait(&work->ours.conds[which], &work->ours.mutex);
}

static int wake_one(struct work *work, int which)
{
	return work->library == PEER ? pthread_cond_signal(&work->glibc.conds[which]) :
				       memwait_cond_signal(&work->ours.conds[which]);
}

static int wake_all(struct work *work, int which)
{
	return work->library == PEER ? pthread_cond_broadcast(&work->glibc.conds[which]) :
				       memwait_cond_broadcast(&work->ours.conds[which]);
}

static int post(struct work *work, int which)
{
	return work->library == PEER ? sem_post(&work->glibc.sems[which]) :
				       memwait_sem_post(&work->ours.sems[which]);
}

static int take(struct work *work, int which)
{
	return work->library == PEER ? sem_wait(&work->glibc.sems[which]) :
				       memwait_sem_wait(&work->ours.sems[which]);
}

/* The mutex */

/* Does what takes the same time whoever does it, and however often it is interrupted. */
static inline void toil(uint64_t *random, int times)
{
	for (; times; times--)
		next_random(random);
}

static int lock_alone(struct work *work, int me)
{
	long *count = &work->members[me].count;
	int err = 0;

	/* Two loops: to ask which library it is would count here. */
	for (; work->library == PEER && *count < work->share; ++*count) {
		err |= pthread_mutex_lock(&work->glibc.mutex);
		work->left--;
		err |= pthread_mutex_unlock(&work->glibc.mutex);
	}
	for (; work->library != PEER && *count < work->share; ++*count) {
		err |= memwait_mutex_lock(&work->ours.mutex);
		work->left--;
		err |= memwait_mutex_unlock(&work->ours.mutex);
	}
	return err;
}

static int lock_among_others(struct work *work, int me)
{
	struct member *member = &work->members[me];
	int times = work->plan->toil, err = 0;
	long left, count = 0;

	do {
		err |= lock(work);
		left = work->left;
		if (left) {
			work->left = left - 1;
			count++;
		}
		toil(&member->random, times);
		err |= unlock(work);
		toil(&member->random, times);
	} while (left > 1 && count < work->share);
	member->count = count;
	return err;
}

/*
 * Whoever has it lets the others run, who come to sleep for it; and once more when it is unlocked.
 * So on one processor, too, each has to wait each time, and each unlock has somebody to wake.
 */
static int lock_and_yield(struct work *work, int me)
{
	long *count = &work->members[me].count;
	int err = 0;

	for (; *count < work->share; ++*count) {
		err |= lock(work);
		work->left--;
		sched_yield();
		err |= unlock(work);
		sched_yield();
	}
	return err;
}

static int make_consistent(struct work *work)
{
	return work->library == PEER ? pthread_mutex_consistent(&work->glibc.mutex) :
				       memwait_mutex_consistent(&work->ours.mutex);
}

/* A process that has the mutex when this returns, and for ever. */
static pid_t start_owner(struct work *work)
{
	pid_t process = fork();

	if (!process) {
		__atomic_store_n(&work->there, lock(work) ? -1 : 1, __ATOMIC_RELEASE);
		for (;;)
			pause();
	}
	while (process > 0 && !__atomic_load_n(&work->there, __ATOMIC_ACQUIRE))
		sched_yield();
	return process;
}

/* The time is that from the kill until the one who waits has the mutex. */
static int kill_owners(struct work *work)
{
	struct member *heir = &work->members[1];
	int err = 0, i;

	for (i = 1; i <= work->share && !err; i++) {
		pid_t owner = start_owner(work);

		err |= owner < 0 || work->there < 0;
		work->there = 0;
		__atomic_store_n(&work->turn, err ? -1 : i, __ATOMIC_RELEASE);
		await_asleep(heir->tid);
		work->begun = now_ns(CLOCK_MONOTONIC);
		kill(owner, SIGKILL);
		waitpid(owner, NULL, 0);
		while (!err && counted(&heir->count) < i)
			sched_yield();
		work->ns += work->ended - work->begun;
	}
	return err;
}

static int outlive_owners(struct work *work, int me)
{
	long *count = &work->members[me].count;
	int turn, err = 0;

	if (!me)
		return kill_owners(work);
	while (*count < work->share) {
		do {
			sched_yield();
			turn = __atomic_load_n(&work->turn, __ATOMIC_ACQUIRE);
		} while (turn >= 0 && turn <= *count);
		if (turn < 0)
			return -1;
		err |= lock(work) != EOWNERDEAD;
		work->ended = now_ns(CLOCK_MONOTONIC);
		work->left--;
		err |= make_consistent(work);
		err |= unlock(work);
		add_one(count);
	}
	return err;
}

/* The condition variable: each player has one, and is signalled while the mutex is locked. */
static int take_turns(struct work *work, int me)
{
	long *count = &work->members[me].count;
	int err = lock(work);

	for (; *count < work->share; ++*count) {
		while (work->turn != me && !err)
			err |= wait_for(work, me);
		work->turn = !me;
		work->left--;
		err |= wake_one(work, !me);
	}
	return err | unlock(work);
}

/* What is waited for in a broadcast. */
enum { TO_BE_LET_GO, ALL_ARE_THERE };

/* The time is that from the broadcast until the last waiter has the mutex. */
static int let_all_go(struct work *work)
{
	int err = lock(work), i;

	while (work->there != WAITERS && !err)
		err |= wait_for(work, ALL_ARE_THERE);
	while (work->turn < work->share && !err) {
		/* They have unlocked the mutex: if they sleep now, then for the broadcast. */
		err |= unlock(work);
		for (i = 1; i <= WAITERS; i++)
			await_asleep(work->members[i].tid);
		err |= lock(work);

		work->there = 0;
		work->turn++;
		work->begun = now_ns(CLOCK_MONOTONIC);
		if (work->plan->unlocked)
			err |= unlock(work);
		err |= wake_all(work, TO_BE_LET_GO);
		if (work->plan->unlocked)
			err |= lock(work);
		while (work->there != WAITERS && !err)
			err |= wait_for(work, ALL_ARE_THERE);
		work->ns += work->ended - work->begun;
	}
	return err | unlock(work);
}

static int wait_for_broadcast(struct work *work, int me)
{
	long *count = &work->members[me].count;
	int err;

	if (!me)
		return let_all_go(work);
	err = lock(work);
	for (;;) {
		if (++work->there == WAITERS) {
			work->ended = now_ns(CLOCK_MONOTONIC);
			err |= wake_one(work, ALL_ARE_THERE);
		}
		if (*count == work->share)
			break;
		while (work->turn == *count && !err)
			err |= wait_for(work, TO_BE_LET_GO);
		++*count;
		work->left--;
	}
	return err | unlock(work);
}

/* The read-write lock */

static int read_lock(struct work *work)
{
	return work->library == PEER ? pthread_rwlock_rdlock(&work->glibc.rwlock) :
				       memwait_rwlock_rdlock(&work->ours.rwlock);
}

static int write_lock(struct work *work)
{
	return work->library == PEER ? pthread_rwlock_wrlock(&work->glibc.rwlock) :
				       memwait_rwlock_wrlock(&work->ours.rwlock);
}

static int unlock_rwlock(struct work *work)
{
	return work->library == PEER ? pthread_rwlock_unlock(&work->glibc.rwlock) :
				       memwait_rwlock_unlock(&work->ours.rwlock);
}

/* Each tenth time it writes two numbers, which are the same for who reads them. */
static int read_and_write(struct work *work, int me)
{
	long *count = &work->members[me].count;
	int err = 0;

	while (*count < work->share) {
		if (++*count % 10) {
			err |= read_lock(work);
			err |= work->written[0] != work->written[1];
		} else {
			err |= write_lock(work);
			work->written[0]++;
			work->left -= 10;
			work->written[1]++;
		}
		err |= unlock_rwlock(work);
	}
	return err;
}

/* The semaphore */

static int post_alone(struct work *work, int me)
{
	long *count = &work->members[me].count;
	int err = 0;

	/* As in lock_alone(). */
	for (; work->library == PEER && *count < work->share; ++*count) {
		err |= sem_post(&work->glibc.sems[1]);
		err |= sem_wait(&work->glibc.sems[1]);
		work->left--;
	}
	for (; work->library != PEER && *count < work->share; ++*count) {
		err |= memwait_sem_post(&work->ours.sems[1]);
		err |= memwait_sem_wait(&work->ours.sems[1]);
		work->left--;
	}
	return err;
}

/* The first semaphore is 1 in the beginning. */
static int take_turns_by_sem(struct work *work, int me)
{
	long *count = &work->members[me].count;
	int err = 0;

	for (; *count < work->share; ++*count) {
		err |= take(work, me);
		work->left--;
		err |= post(work, !me);
	}
	return err;
}

/* The barrier: a round is counted by the one to whom the barrier says so. */
static int meet_at_barrier(struct work *work, int me)
{
	struct member *member = &work->members[me];
	int ret, err = 0;
	long i;

	for (i = 0; i < work->share && !err; i++) {
		if (work->library == PEER)
			ret = pthread_barrier_wait(&work->glibc.barrier);
		else
			ret = memwait_barrier_wait(&work->ours.barrier);
		if (ret == PTHREAD_BARRIER_SERIAL_THREAD) {
			member->count++;
			work->left--;
		} else {
			err |= ret;
		}
	}
	return err;
}

_Static_assert(PTHREAD_BARRIER_SERIAL_THREAD == MEMWAIT_BARRIER_SERIAL_THREAD, "the same");

/* Channels: @which is the way that a message goes. */

static int send_words(struct work *work, int which, const uint64_t *message)
{
	ssize_t size = work->plan->words * (ssize_t)sizeof(*message);

	if (work->library == PEER)
		return write(work->pipes[which][1], message, size) != size;
	return memwait_channel_send(work->channels[which], message);
}

static int receive_words(struct work *work, int which, uint64_t *message)
{
	ssize_t size = work->plan->words * (ssize_t)sizeof(*message);

	if (work->library == PEER)
		return read(work->pipes[which][0], message, size) != size;
	return memwait_channel_recv(work->channels[which], message);
}

/* The message says how often it has been sent. */
static int return_message(struct work *work, int me)
{
	long *count = &work->members[me].count;
	uint64_t sent = 0;
	int err = 0;

	for (; *count < work->share && !err; ++*count) {
		if (me || *count)
			err |= receive_words(work, !me, &sent);
		sent++;
		err |= send_words(work, me, &sent);
	}
	if (!me) {
		err |= receive_words(work, !me, &sent);
		work->left -= (long)sent;
	}
	return err;
}

/* The second counts what the first sends. */
static int stream_messages(struct work *work, int me)
{
	uint64_t message[MOST_WORDS] = { 0 }, sum = 0, sums = 0;
	int last = work->plan->words - 1, err = 0;
	long i;

	for (i = 0; i < work->share && !err; i++) {
		if (!me) {
			message[0] = i;
			message[last] = ~message[0];
			err |= send_words(work, 0, message);
		} else {
			err |= receive_words(work, 0, message);
			sum += message[0] + 1;
			sums += message[0] + message[last] + 1;
		}
	}
	if (me) {
		work->members[me].count = i;
		work->left -= i;
		err |= sums || sum != (uint64_t)i * (i + 1) / 2;
	}
	return err;
}

/* The rounds */

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
			err |= memwait_channel_init(work->channels[i], flags, item, SLOTS);
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

/* The locks are both libraries', whichever is used. */
static int set_up(struct work *work)
{
	unsigned int flags = is_shared(work->plan) ? 0 : MEMWAIT_PRIVATE;
	unsigned int kind = work->library == PEER ? 0 : work->kind;
	int i, err = set_up_glibc(work);

	err |= memwait_mutex_init(&work->ours.mutex, flags | kind);
	for (i = 0; i < 2; i++) {
		err |= memwait_cond_init(&work->ours.conds[i], flags);
		err |= memwait_sem_init(&work->ours.sems[i], is_shared(work->plan), !i);
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

/* Returns how long it took, in ns. */
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

/* How many times as often as the last one the first one had the lock. */
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

/* @free: each member does as much as it gets, instead of its share. */
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
 * With another round, in which the lock says who has it how often. On one processor that would be
 * whoever had how many slices of time.
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
	lock_among_others, .members = 2, .counting = 2, .toil = TOIL,
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
	lock_among_others, .members = 4, .counting = 4, .toil = TOIL,
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
	lock_among_others, .members = 8, .counting = 8, .toil = TOIL,
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
