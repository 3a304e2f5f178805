/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The work of the members in a round of locks, with libmemwait or with the library with which it is
 * compared.
 */
#ifndef LOCKS_WORK_H
#define LOCKS_WORK_H

#include "bench.h"

#include <memwait.h>
#include <semaphore.h>

#define WAITERS		64	/* number of waiters of a broadcast */
#define MOST_MEMBERS	(WAITERS + 1)
#define MEETING		8	/* number of members that meet at the barrier */
#define SLOTS		1024	/* of a channel; a pipe takes as many large messages */
#define MOST_WORDS	8	/* limit of words in a message */
#define BUSY_WORK		450	/* about 5 microseconds */

/*
 * The library of the locks: PEER is the library for comparison (glibc or a pipe), MEMWAIT is ours.
 */
enum { PEER, MEMWAIT };

/* Added to a glibc mutex type. */
#define GLIBC_ROBUST	0x100

struct work;

struct plan {
	/* The work of each member. Returns nonzero if a call has failed. */
	int (*part)(struct work *work, int me);
	int members;
	int counting;		/* number of members that count operations */
	int busy_work;		/* length of the work with the mutex held, and then without it */
	int words;		/* number of words of a message */
	bool processes;
	bool shared;		/* locks are process-shared */
	bool unlocked;		/* the mutex is not held during the broadcast */
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
 * As in any program, data that is used together is adjacent and begins at a cache line. All locks
 * are in one page.
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

	_Alignas(64) long left;		/* number of operations to be done */
	long written[2];
	int turn;
	int there;
	uint64_t begun, ended, ns;	/* used if only a part of the time counts */

	_Alignas(64) int library;
	int kind;			/* kind of the library's mutex, and of our rwlock */
	const struct plan *plan;
	long share;			/* operations of each counting member, at most */
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

/* Does work that takes the same time for each thread, even if the thread is interrupted often. */
static inline void busy_work(uint64_t *random, int times)
{
	for (; times; times--)
		next_random(random);
}

static int lock_alone(struct work *work, int me)
{
	long *count = &work->members[me].count;
	int err = 0;

	/*
	 * There are two loops, because a check of the library inside the loop would affect the
	 * measurement.
	 */
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
	int times = work->plan->busy_work, err = 0;
	long left, count = 0;

	do {
		err |= lock(work);
		left = work->left;
		if (left) {
			work->left = left - 1;
			count++;
		}
		busy_work(&member->random, times);
		err |= unlock(work);
		busy_work(&member->random, times);
	} while (left > 1 && count < work->share);
	member->count = count;
	return err;
}

/*
 * The owner yields, so that the other threads run and sleep on the mutex. It yields again after it
 * has unlocked the mutex. Therefore each thread must wait each time, and each unlock must wake a
 * thread, even on one CPU.
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

/*
 * Forks a process. When this function returns, the process holds the mutex, which it never unlocks.
 */
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

/* Measures the time from the kill until the waiter holds the mutex. */
static int kill_owners(struct work *work)
{
	struct member *next = &work->members[1];
	int err = 0, i;

	for (i = 1; i <= work->share && !err; i++) {
		pid_t owner = start_owner(work);

		err |= owner < 0 || work->there < 0;
		work->there = 0;
		__atomic_store_n(&work->turn, err ? -1 : i, __ATOMIC_RELEASE);
		await_asleep(next->tid);
		work->begun = now_ns(CLOCK_MONOTONIC);
		kill(owner, SIGKILL);
		waitpid(owner, NULL, 0);
		while (!err && counted(&next->count) < i)
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

/* Each member has its own condition variable, which is signalled while the mutex is locked. */
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

/* The two conditions of a broadcast. */
enum { TO_BE_LET_GO, ALL_ARE_THERE };

/* Measures the time from the broadcast until the last waiter holds the mutex. */
static int let_all_go(struct work *work)
{
	int err = lock(work), i;

	while (work->there != WAITERS && !err)
		err |= wait_for(work, ALL_ARE_THERE);
	while (work->turn < work->share && !err) {
		/*
		 * The waiters have unlocked the mutex. If they are asleep now, they are waiting for
		 * the broadcast.
		 */
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

/* Every tenth operation writes two numbers, which must be equal for all readers. */
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

	/* There are two loops for the same reason as in lock_alone(). */
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

/* The first semaphore has the initial value 1. */
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

/* The member that gets SERIAL_THREAD counts the round at the barrier. */
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

/* Channels: @which is the direction of a message. */

static int send_words(struct work *work, int which, const uint64_t *message)
{
	ssize_t size = work->plan->words * (ssize_t)sizeof(*message);

	if (work->library == PEER)
		return write(work->pipes[which][1], message, size) != size;
	return memwait_channel_send(work->channels[which], message, (size_t)size);
}

static int receive_words(struct work *work, int which, uint64_t *message)
{
	ssize_t size = work->plan->words * (ssize_t)sizeof(*message);

	if (work->library == PEER)
		return read(work->pipes[which][0], message, size) != size;
	return memwait_channel_recv(work->channels[which], message, (size_t)size);
}

/* The message contains how often it has been sent. */
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

/* The second member counts the messages that the first member sends. */
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

#endif /* LOCKS_WORK_H */
