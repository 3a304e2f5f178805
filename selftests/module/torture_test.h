/* SPDX-License-Identifier: GPL-2.0 */
/* The state of the torture test: words, contexts, records, and the operations on them. */
#ifndef TORTURE_TEST_H
#define TORTURE_TEST_H

#include "several_test.h"

#define PROCESSES	3		/* processes that are not killed; the first numbers */
#define VICTIMS		2		/* number of processes that are killed */
#define THREADS		4
#define WORKERS		((PROCESSES + VICTIMS) * THREADS)
#define CONTEXTS	2		/* number for each process; each thread has one more */
#define OWN_CONTEXTS	((PROCESSES + VICTIMS) * CONTEXTS)	/* the threads' contexts follow */
#define ALL_CONTEXTS	(OWN_CONTEXTS + WORKERS)
#define SLOTS		64		/* number of waits of a context */
#define BATCH		8
#define STORM_BATCH	32
#define MOST_WORDS	12		/* maximum number of words of a thread's group */
#define ASYNC_WORDS	4		/* words of an async group */
#define RECENT		12		/* number of recorded calls of a thread */
#define ROUND		NSEC_PER_SEC
#define PATIENCE	(90 * NSEC_PER_SEC * slowness())
#define NOBODY		-1
#define SETTLED		64		/* number of recorded changes of a STRICT word */
#define PASS_ON		1024		/* from this offset on there is one word for each thread */
#define STORM_AT	2048		/* offset of the words of a storm */
#define STORM_WORDS	64		/* their numbers begin with WORDS */
#define FORKED		255		/* a forked child, in place of a process number */

/*
 * Events that may happen to a word, in addition to waits and notifies.
 *
 * STRICT: the word changes; each change is followed by a notify of all waiters.
 *
 * ORDERED: the word changes; waits are armed under a lock, and each wait has a ticket.
 *
 * MOVING: the word changes; waiters are moved to and from it.
 *
 * WILD: the page of the word is replaced, unmapped, protected or dropped, and its file is
 * truncated; the word is always 0.
 */
enum kind { STRICT, ORDERED, MOVING, MOVING_TOO, WILD, KINDS };

/*
 * The location of a word: in a memfd that is mapped twice, in memory shared over fork(2), or in the
 * process's own memory.
 */
enum place { MEMFD, INHERITED, OWN, PLACES };

#define WORDS		(PLACES * KINDS)
#define HAS_KIND(w, kind_)	((w) % KINDS == (kind_))
#define MOVES(w)	(HAS_KIND(w, MOVING) || HAS_KIND(w, MOVING_TOO))
#define PLACE(w)	((enum place)((w) / KINDS))
#define OFFSET(w)	((w) % KINDS * 8)	/* the same in all places */

enum state {
	FREE,
	ARMING,		/* the arming call has not returned */
	PENDING,
	CANCELLING,
	ENDED,		/* the wait completed while ARMING or CANCELLING */
};

struct slot {
	uint32_t state;
	uint16_t generation;
	uint8_t process, nr;
	uint8_t words[ASYNC_WORDS];
	struct memwait_wait waits[ASYNC_WORDS];
	uint64_t id, ticket, deadline;
};

struct context {
	pthread_rwlock_t lock;		/* write-locked to close the context or to pass it on */
	int owner;			/* the process, or NOBODY while the context is in transit */
	struct slot slots[SLOTS];
};

/* State of an ORDERED word. A thread that holds the lock draws a ticket and queues a wait. */
struct order {
	_Alignas(8) uint64_t last_notified;	/* aligned on i386, for compare-and-exchange */
	uint64_t tickets;
	uint32_t lock;
};

/* The time when a notify of all waiters returned after a STRICT word had changed to this value. */
struct settled {
	uint64_t value, at;
};

struct call {
	const char *what;
	uint32_t context;
	uint64_t a, b;
	int64_t result;
};

/* A thread's state that other threads and processes see. */
struct record {
	pid_t pid, tid;
	uint32_t rested, drained, flushed;	/* the latest round in which the thread did this */
	uint32_t nr_waiting;		/* number of words of the current call */
	bool forking;			/* a child makes the calls */
	uint32_t reading;		/* size of the current read */
	uint8_t waiting[MOST_WORDS];
	struct memwait_wait waits[MOST_WORDS];
	int waiters[KINDS];		/* of the process's own words, when all threads rest */
	uint64_t own_strict;		/* value of the process's own STRICT word */
	long notified, thread_oks, read_oks, watched_oks;
	long timed_out, cancelled, armed, closed_over, interrupted;
	long calls;
	uint32_t broken;
	char why[128];
	struct call recent[RECENT];
};

enum phase { RUN, REST, FLUSH, DRAIN, STOP };

/*
 * EXACT: contexts are emptied before they are closed, and no process dies.
 *
 * DEATHS: contexts are closed with pending waits, and processes die.
 *
 * The storms: on private or shared words, half of the threads only notify, and the other half only
 * arm, cancel and read. No signal is sent.
 */
enum mode { EXACT, DEATHS, PRIVATE_STORM, SHARED_STORM };

struct shared {
	uint32_t phase, round;
	enum mode mode;
	uint64_t seed;
	struct order orders[OWN * KINDS];
	struct settled settled[PROCESSES + VICTIMS][PLACES][SETTLED];	/* [0] for shared words */
	struct record records[WORKERS + 1];	/* the last record is that of the test itself */
	struct context contexts[ALL_CONTEXTS];
};

/* Shared by the threads of a process. */
static struct shared *shared;
static char *areas[PLACES + 1];		/* the last is the second address of MEMFD */
static char *wild_areas[PLACES];	/* one page each, for operations on whole pages */
static int wild_memfd;
static int mail[PROCESSES][2];		/* datagram sockets by which contexts are sent */
static int fds[ALL_CONTEXTS];
static int process_number;
static pthread_mutex_t wild_lock = PTHREAD_MUTEX_INITIALIZER;

struct worker {
	struct record *record;
	uint64_t random;
	int number;
	int fd;			/* for calls that may use any context */
	int own;		/* number of the thread's own context */
	bool victim;		/* the process will be killed; it wakes no waiter */
	bool child;		/* a child process, which makes only some steps */
	bool no_own_words;	/* no thread lives long enough to wait on own words */
};

static uint32_t draw(struct worker *w)
{
	return next_random(&w->random) >> 32;
}

static bool one_in(struct worker *w, uint32_t n)
{
	return draw(w) % n == 0;
}

static uint32_t phase(void)
{
	return __atomic_load_n(&shared->phase, __ATOMIC_ACQUIRE);
}

static bool is_storm(void)
{
	return shared->mode >= PRIVATE_STORM;
}

static void broken(struct worker *w, const char *why, int64_t a, int64_t b)
{
	if (w->record->broken)
		return;
	snprintf(w->record->why, sizeof(w->record->why), "%s (%lld, %lld)", why, (long long)a,
		 (long long)b);
	__atomic_store_n(&w->record->broken, 1, __ATOMIC_RELEASE);
}

static struct call *begin(struct worker *w, const char *what, uint32_t context, uint64_t a,
			  uint64_t b)
{
	struct call *call = &w->record->recent[w->record->calls++ % RECENT];

	*call = (struct call) { .what = what, .context = context, .a = a, .b = b, .result = -1000 };
	return call;
}

static uint32_t random_word(struct worker *w)
{
	if (is_storm())
		return WORDS + draw(w) % STORM_WORDS;
	return draw(w) % (w->no_own_words ? OWN * KINDS : WORDS);
}

/* Returns an address of the word. A word in the memfd has two addresses. */
static char *address(struct worker *w, uint32_t word)
{
	if (word >= WORDS)
		return areas[shared->mode == SHARED_STORM ? INHERITED : OWN] + STORM_AT +
		       (word - WORDS) * sizeof(uint32_t);
	if (HAS_KIND(word, WILD))
		return wild_areas[PLACE(word)];
	return areas[PLACE(word) == MEMFD && one_in(w, 2) ? PLACES : PLACE(word)] + OFFSET(word);
}

static uint32_t random_flags(struct worker *w, uint32_t word)
{
	if (is_storm())
		return U32;
	return draw(w) % 4 | (PLACE(word) == OWN && one_in(w, 2) ? MEMWAIT_PRIVATE : 0);
}

/* Returns the word's value, which may be stale. A WILD word must not be read. */
static uint64_t value(struct worker *w, uint32_t word)
{
	if (is_storm())
		return 0;
	if (one_in(w, 32))
		return 0x5555555555555555;
	return HAS_KIND(word, WILD) ? 0 :
		__atomic_load_n((uint64_t *)address(w, word), __ATOMIC_RELAXED);
}

static uint64_t soon_of(struct worker *w)
{
	return is_storm() ? in_ms(HOUR) : now_ns(CLOCK_MONOTONIC) + draw(w) % (2 * NSEC_PER_MSEC);
}

/* The first thread of a process never waits forever, because it wakes the other threads. */
static uint64_t random_deadline(struct worker *w)
{
	bool may_stay = w->number % THREADS && !w->child;

	return may_stay && one_in(w, 3) ? MEMWAIT_FOREVER : soon_of(w);
}

static bool is_allowed(uint32_t word, int ret)
{
	return ret == -EFAULT && HAS_KIND(word, WILD);
}

static struct settled *settled(int process, uint32_t word, uint64_t value_)
{
	if (PLACE(word) != OWN)
		process = 0;
	return &shared->settled[process][PLACE(word)][value_ % SETTLED];
}

/* Records that all waiters for an older value of a STRICT word have been notified. */
static void settle(uint32_t word, uint64_t value_)
{
	struct settled *s = settled(process_number, word, value_);

	if (!value_)
		return;
	__atomic_store_n(&s->value, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&s->at, now_ns(CLOCK_MONOTONIC), __ATOMIC_RELEASE);
	__atomic_store_n(&s->value, value_, __ATOMIC_RELEASE);
}

static void check_time_out(struct worker *w, uint64_t deadline)
{
	uint64_t now = now_ns(CLOCK_MONOTONIC);

	if (now < deadline)
		broken(w, "timed out early", now, deadline);
}

/*
 * Checks a pending wait that has timed out: it is an error if its word had changed, and all waiters
 * had been notified, before the deadline. Small words are excluded, because they may wrap to the
 * same value. Waits of threads are excluded, because they may have begun after the deadline.
 */
static void check_missed(struct worker *w, int process, const uint8_t *words,
			 const struct memwait_wait *waits, uint32_t nr, uint64_t deadline)
{
	struct settled *s;
	uint64_t at;
	uint32_t i;

	for (i = 0; i < nr; i++) {
		if (!HAS_KIND(words[i], STRICT) || process == FORKED ||
		    (waits[i].flags & MEMWAIT_SIZE_MASK) < MEMWAIT_SIZE_U32)
			continue;
		s = settled(process, words[i], waits[i].expected + 1);
		at = __atomic_load_n(&s->at, __ATOMIC_ACQUIRE);
		if (__atomic_load_n(&s->value, __ATOMIC_ACQUIRE) == waits[i].expected + 1 &&
		    at == __atomic_load_n(&s->at, __ATOMIC_ACQUIRE) && at < deadline)
			broken(w, "timed out after it had missed a notify", words[i],
			       waits[i].expected);
	}
}

/* Publishes the words of a wait. */
static void will_wait(struct worker *w, const uint8_t *words, const struct memwait_wait *waits,
		      uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		w->record->waiting[i] = words[i];
		w->record->waits[i] = waits[i];
	}
	__atomic_store_n(&w->record->nr_waiting, nr, __ATOMIC_RELEASE);
}

static void has_waited(struct worker *w, int ret, uint64_t deadline)
{
	if (ret == MEMWAIT_OK)
		w->record->thread_oks++;
	else if (ret == -EINTR)
		w->record->interrupted++;
	else if (ret == MEMWAIT_TIMED_OUT)
		check_time_out(w, deadline);
	/* This store comes last, so that an OK is counted even if the process is killed. */
	__atomic_store_n(&w->record->nr_waiting, 0, __ATOMIC_RELEASE);
}

/* Makes a wait that times out immediately. This ends the queue position of an interrupted wait. */
static void end_place(struct worker *w)
{
	uint32_t word = 0;

	if (mw_wait(w->fd, &word, 0, 1, MEMWAIT_SIZE_U32) != MEMWAIT_TIMED_OUT)
		broken(w, "a deadline has passed", 0, 0);
}

static struct memwait_wait random_wait(struct worker *w, uint32_t word)
{
	return (struct memwait_wait) {
		.addr = (uintptr_t)address(w, word),
		.expected = value(w, word),
		.deadline = random_deadline(w),
		.flags = random_flags(w, word),
	};
}

static struct memwait_notify random_notify(struct worker *w, uint32_t word, uint32_t count)
{
	return (struct memwait_notify) {
		.addr = (uintptr_t)address(w, word),
		.count = count,
		.flags = random_flags(w, word),
	};
}

#endif /* TORTURE_TEST_H */
