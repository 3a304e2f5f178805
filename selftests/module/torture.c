// SPDX-License-Identifier: GPL-2.0
/*
 * Everything at once, with exact accounting. Processes of several threads wait, arm, notify, move,
 * cancel, read, poll, fork, and close contexts or pass them to each other, at random, on a few
 * words, with deadlines near zero and signals in between, while mappings of some of the words come
 * and go. Then all of them come to rest, and everything must add up:
 *
 * - each word has just the waiters that are known to wait on it;
 * - the sum of what the notifies returned is the number of OKs that were seen;
 * - every wait that was pending has ended once;
 * - of waits queued one after the other, none is pending when a later one was notified;
 * - nobody waits on a word for a value that it no longer holds, if each change of it was followed
 *   by a notify of all;
 * - a notify of all lets nobody sleep, and then nothing is left, in the module's count neither.
 *
 * Then they go on. In a second test contexts are closed as they are, and there are processes that
 * are killed, dump core or call execve(2). A notify that one of them had may be passed on, or find
 * nobody to be passed on to. So in no round may more be missing than they could have had.
 *
 * A thread's choices follow from the seed, what comes of them also from the scheduler. On failure
 * the last calls of every thread are printed. MEMWAIT_TORTURE_SECONDS sets the length of each test,
 * MEMWAIT_TORTURE_SEED the seed.
 */
#include "several_test.h"
#include <sys/prctl.h>

#define PROCESSES	3		/* that live, and after them those that are killed */
#define VICTIMS		2
#define THREADS		4
#define WORKERS		((PROCESSES + VICTIMS) * THREADS)
#define CONTEXTS	2		/* of a process; and each thread has one of its own */
#define OWN_CONTEXTS	((PROCESSES + VICTIMS) * CONTEXTS)	/* from here on */
#define ALL_CONTEXTS	(OWN_CONTEXTS + WORKERS)
#define SLOTS		64		/* waits of a context */
#define BATCH		8
#define MOST_WORDS	12		/* of a thread's group: more than fit on its stack */
#define ASYNC_WORDS	4		/* of an async group */
#define RECENT		12		/* calls of a thread that are remembered */
#define ROUND		NSEC_PER_SEC
#define PATIENCE	(90 * NSEC_PER_SEC)
#define NOBODY		-1
#define SETTLED		64		/* changes of a STRICT word that are remembered */
#define PASS_ON		1024		/* from there on, a word for each thread */
#define FORKED		255		/* instead of a process: a child of one */

/*
 * What may happen to a word, apart from waits and notifies.
 *
 * STRICT: it changes, and every change is followed by a notify of all.
 * ORDERED: it changes; who arms a wait does so under a lock, and draws a ticket.
 * MOVING: it changes, and waiters are moved to and from it.
 * WILD: its mapping is replaced, unmapped, protected, dropped, its file truncated; it is always 0.
 */
enum kind { STRICT, ORDERED, MOVING, MOVING_TOO, WILD, KINDS };

/* Where it is: in a memfd that is mapped twice, in memory from before fork(), in its own memory. */
enum place { MEMFD, INHERITED, OWN, PLACES };

#define WORDS		(PLACES * KINDS)
#define HAS_KIND(w, kind_)	((w) % KINDS == (kind_))
#define MOVES(w)	(HAS_KIND(w, MOVING) || HAS_KIND(w, MOVING_TOO))
#define PLACE(w)	((enum place)((w) / KINDS))
#define OFFSET(w)	((w) % KINDS * 8)	/* the same in all places: keys differ by more */

enum state {
	FREE,
	ARMING,		/* who arms it is not back yet */
	PENDING,
	CANCELLING,
	ENDED,		/* its completion came while it was ARMING or CANCELLING */
};

/* An async wait. */
struct slot {
	uint32_t state;
	uint16_t generation;
	uint8_t process, nr;
	uint8_t words[ASYNC_WORDS];
	struct memwait_wait waits[ASYNC_WORDS];
	uint64_t id, ticket, deadline;
};

struct context {
	pthread_rwlock_t lock;		/* for writing: to close it, or pass it on */
	int owner;			/* the process, or NOBODY while it is passed on */
	struct slot slots[SLOTS];
};

/* Of an ORDERED word: who holds the lock draws a ticket and queues a wait. */
struct order {
	_Alignas(8) uint64_t last_notified;	/* on i386 too: it is compared and exchanged */
	uint64_t tickets;
	uint32_t lock;
};

/* When the notify of all returned that followed the change of a STRICT word to this value. */
struct settled {
	uint64_t value, at;
};

struct call {
	const char *what;
	uint32_t context;
	uint64_t a, b;
	int64_t result;
};

/* All that others see of a thread. */
struct record {
	pid_t pid, tid;
	uint32_t rested, drained, flushed;	/* in which round */
	uint32_t nr_waiting;		/* words of the call that it is in */
	bool forking;			/* a child makes its calls */
	uint32_t reading;		/* completions that its read may return */
	uint8_t waiting[MOST_WORDS];
	struct memwait_wait waits[MOST_WORDS];
	int waiters[KINDS];		/* of the process's own words, at rest */
	uint64_t own_strict;		/* and what the STRICT one holds */
	long notified, thread_oks, read_oks, timed_out, cancelled, armed, closed_over, interrupted;
	long calls;
	uint32_t broken;
	char why[128];
	struct call recent[RECENT];
};

enum phase { RUN, REST, FLUSH, DRAIN, STOP };

struct shared {
	uint32_t phase, round;
	bool exact;
	uint64_t seed;
	struct order orders[OWN * KINDS];
	struct settled settled[PROCESSES + VICTIMS][PLACES][SETTLED];	/* of shared words in [0] */
	struct record records[WORKERS + 1];	/* the last one is that of the test itself */
	struct context contexts[ALL_CONTEXTS];
};

/* What the threads of a process have in common. */
static struct shared *shared;
static char *areas[PLACES + 1];		/* MEMFD's second address is the last one */
static char *wild_areas[PLACES];	/* a page each, for what happens to whole pages */
static int wild_memfd;
static int mail[PROCESSES][2];		/* datagram sockets, for contexts */
static int fds[ALL_CONTEXTS];
static int process_number;
static pthread_mutex_t wild_lock = PTHREAD_MUTEX_INITIALIZER;

struct worker {
	struct record *record;
	uint64_t random;
	int number;
	int fd;			/* for what is not about a context */
	int own;		/* number of its own context */
	bool victim;		/* its process is going to be killed: it wakes nobody */
	bool child;		/* a process of its own, for some steps */
	bool no_own_words;	/* nobody who is there for long could wait on them */
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
	return draw(w) % (w->no_own_words ? OWN * KINDS : WORDS);
}

/* Its address here: a word of the memfd has two. */
static char *address(struct worker *w, uint32_t word)
{
	if (HAS_KIND(word, WILD))
		return wild_areas[PLACE(word)];
	return areas[PLACE(word) == MEMFD && one_in(w, 2) ? PLACES : PLACE(word)] + OFFSET(word);
}

static uint32_t random_flags(struct worker *w, uint32_t word)
{
	return draw(w) % 4 | (PLACE(word) == OWN && one_in(w, 2) ? MEMWAIT_PRIVATE : 0);
}

/* What the word holds, or held a moment ago; a wild one may not be touched. */
static uint64_t value(struct worker *w, uint32_t word)
{
	if (one_in(w, 32))
		return 0x5555555555555555;
	return HAS_KIND(word, WILD) ? 0 :
		__atomic_load_n((uint64_t *)address(w, word), __ATOMIC_RELAXED);
}

static uint64_t soon_of(struct worker *w)
{
	return now_ns(CLOCK_MONOTONIC) + draw(w) % (2 * NSEC_PER_MSEC);
}

/* The first thread of a process goes on by itself, and wakes the others. */
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

/* All who waited for less than the value of a STRICT word have been notified by now. */
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
 * A wait that was pending has timed out: not after its word had changed and all were notified. A
 * small word may have come back to the same value. (Of a thread nobody knows whether it was pending
 * or came so late that it did not even begin to wait.)
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
			broken(w, "timed out, and has missed a notify", words[i],
			       waits[i].expected);
	}
}

/* Words that are waited for, for the others to see. */
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
	/* Only now, lest an OK be forgotten when the process is killed. */
	__atomic_store_n(&w->record->nr_waiting, 0, __ATOMIC_RELEASE);
}

/* A wait that is over at once: with it ends the place of one that was interrupted. */
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

static void step_wait(struct worker *w)
{
	uint8_t word = random_word(w);
	struct memwait_wait wait = random_wait(w, word);
	struct call *call = begin(w, "wait", 0, word, wait.expected);

	will_wait(w, &word, &wait, 1);
	call->result = xioctl(w->fd, MEMWAIT_IOC_WAIT, &wait);
	has_waited(w, call->result, wait.deadline);
	if (call->result < 0 && call->result != -EINTR && !is_allowed(word, call->result))
		broken(w, "wait", call->result, word);
}

static void step_wait_any(struct worker *w)
{
	uint32_t nr = 1 + draw(w) % MOST_WORDS, index;
	struct memwait_wait waits[MOST_WORDS];
	uint64_t deadline = random_deadline(w);
	uint8_t words[MOST_WORDS];
	bool wild = false;
	struct call *call;
	uint32_t i;

	for (i = 0; i < nr; i++) {
		words[i] = random_word(w);
		waits[i] = random_wait(w, words[i]);
		wild |= HAS_KIND(words[i], WILD);
	}
	call = begin(w, "wait any", 0, words[0], nr);
	will_wait(w, words, waits, nr);
	call->result = mw_wait_any(w->fd, waits, nr, deadline, 0, &index);
	has_waited(w, call->result, deadline);
	if ((call->result == MEMWAIT_OK || call->result == MEMWAIT_NOT_EQUAL) && index >= nr)
		broken(w, "wait any: index", index, nr);
	if (call->result < 0 && call->result != -EINTR && !(wild && call->result == -EFAULT))
		broken(w, "wait any", call->result, nr);
}

/*
 * Changes the word, perhaps. Returns how many to wake then. *to is what a STRICT one has become, or
 * 0: it has not changed.
 */
static uint32_t change(struct worker *w, uint32_t word, uint64_t *to)
{
	bool strict = HAS_KIND(word, STRICT);
	uint64_t new;

	*to = 0;
	if (HAS_KIND(word, WILD) || !one_in(w, 3))
		return one_in(w, 8) ? MEMWAIT_ALL : draw(w) % 4;
	new = __atomic_add_fetch((uint64_t *)address(w, word), 1, __ATOMIC_RELAXED);
	if (strict)
		*to = new;
	return strict || one_in(w, 8) ? MEMWAIT_ALL : draw(w) % 4;
}

/* Counts what it has woken. What it returns is the caller's to judge if it is an error. */
static int notify(struct worker *w, uint32_t word, uint32_t count, uint32_t flags)
{
	struct call *call = begin(w, "notify", 0, word, count);

	call->result = mw_notify(w->fd, address(w, word), count, flags);
	if (call->result > 0)
		w->record->notified += call->result;
	return call->result;
}

static void notify_all(struct worker *w, uint32_t word)
{
	int ret = notify(w, word, MEMWAIT_ALL, 0);

	if (ret < 0)
		broken(w, "notify all", ret, word);
}

static void step_notify(struct worker *w)
{
	uint32_t word = random_word(w);
	uint64_t to, count = change(w, word, &to);
	int ret = notify(w, word, count, random_flags(w, word));

	settle(word, to);
	if (ret < 0 && !is_allowed(word, ret))
		broken(w, "notify", ret, word);
}

static void step_notify_many(struct worker *w)
{
	struct memwait_notify notifies[BATCH];
	uint32_t words[BATCH], woken[BATCH] = { 0 }, count = 1 + draw(w) % BATCH, i;
	uint64_t to[BATCH];
	struct call *call;

	for (i = 0; i < count; i++) {
		/* Nothing that would stop it before words that have changed. */
		do {
			words[i] = random_word(w);
		} while (HAS_KIND(words[i], WILD));
		notifies[i] = (struct memwait_notify) {
			.addr = (uintptr_t)address(w, words[i]),
			.count = change(w, words[i], &to[i]),
			.flags = random_flags(w, words[i]),
		};
	}
	call = begin(w, "notify many", 0, count, 0);
	/* A signal may end it, but not before it has done some. */
	for (i = 0; i < count; i += call->result) {
		call->result = mw_notify_many(w->fd, notifies + i, count - i, woken + i);
		if (call->result <= 0 || call->result > count - i)
			broken(w, "notify many", call->result, count);
	}
	for (i = 0; i < count; i++) {
		settle(words[i], to[i]);
		w->record->notified += woken[i];
	}
}

static void step_notify_wait(struct worker *w)
{
	uint32_t word = random_word(w);
	uint64_t to, count = change(w, word, &to);
	uint8_t waited = random_word(w);
	struct memwait_notify_wait arg = {
		.notify = {
			.addr = (uintptr_t)address(w, word),
			.count = count,
			.flags = random_flags(w, word),
		},
		.wait = random_wait(w, waited),
	};
	struct call *call = begin(w, "notify wait", 0, word, waited);
	bool again;

	will_wait(w, &waited, &arg.wait, 1);
	do {
		call->result = xioctl(w->fd, MEMWAIT_IOC_NOTIFY_WAIT, &arg);
		again = call->result == -EINTR;
		if (again && arg.state != MEMWAIT_NOTIFIED)
			broken(w, "notify wait does not say that it has notified", 0, 0);
	} while (again);
	has_waited(w, call->result, arg.wait.deadline);
	w->record->notified += arg.notified;
	if (call->result >= 0) {
		settle(word, to);
		return;
	}
	if (!is_allowed(word, call->result) && !is_allowed(waited, call->result))
		broken(w, "notify wait", call->result, word);
	/* It may have done nothing, but the word has changed. */
	if (HAS_KIND(word, STRICT))
		notify_all(w, word);
}

/*
 * Changes a STRICT word, or waits for it, again and again, so that a change comes between all steps
 * of a wait. Time-outs come before the next change, which would make good for a missed notify.
 */
static void step_storm(struct worker *w)
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + 20 * NSEC_PER_MSEC, to;
	uint8_t word = draw(w) % OWN * KINDS + STRICT;
	struct memwait_completion done;
	bool notifies = one_in(w, 3);
	struct memwait_wait wait;
	int ret;

	while (phase() == RUN && now_ns(CLOCK_MONOTONIC) < end) {
		if (notifies) {
			to = __atomic_add_fetch((uint64_t *)address(w, word), 1, __ATOMIC_RELAXED);
			notify_all(w, word);
			settle(word, to);
			usleep(500);
			continue;
		}
		w->record->calls++;
		wait = random_wait(w, word);
		wait.deadline = now_ns(CLOCK_MONOTONIC) + NSEC_PER_MSEC / 5;
		ret = mw_async(w->fd, address(w, word), wait.expected, wait.deadline, wait.flags, 0,
			       NULL);
		if (ret < 0)
			broken(w, "arm", ret, word);
		if (ret != MEMWAIT_PENDING)
			continue;
		w->record->armed++;
		do {
			ret = mw_read(w->fd, &done, 1);
		} while (ret == -EINTR);
		if (ret != 1) {
			broken(w, "read", ret, word);
		} else if (done.result == MEMWAIT_OK) {
			w->record->read_oks++;
		} else {
			w->record->timed_out++;
			check_time_out(w, wait.deadline);
			check_missed(w, process_number, &word, &wait, 1, wait.deadline);
		}
	}
}

static void step_requeue(struct worker *w)
{
	uint32_t places = w->no_own_words ? OWN : PLACES;
	uint32_t word = draw(w) % places * KINDS + MOVING + draw(w) % 2;
	uint32_t place = one_in(w, 16) ? draw(w) % places : PLACE(word);
	uint32_t target = place * KINDS + MOVING + draw(w) % 2;
	uint32_t flags = draw(w) % 4;
	struct requeued out = { 0 };
	struct call *call = begin(w, "requeue", 0, word, target);

	if (PLACE(word) == OWN && PLACE(target) == OWN && one_in(w, 2))
		flags |= MEMWAIT_PRIVATE;
	call->result = mw_requeue(w->fd, address(w, word), value(w, word), address(w, target),
				  w->victim ? 0 : draw(w) % 3,
				  one_in(w, 8) ? MEMWAIT_ALL : draw(w) % 4, flags, &out);
	if (!call->result && PLACE(target) == PLACE(word))
		w->record->notified += out.woken;
	else if (call->result != (PLACE(target) == PLACE(word) ? MEMWAIT_NOT_EQUAL : -EXDEV))
		broken(w, "requeue", call->result, word);
}

static void put_context(int number)
{
	pthread_rwlock_unlock(&shared->contexts[number].lock);
}

/* Locks a context, if this process has it, for as long as its waits are looked at. */
static bool take_part_of_context(int number)
{
	struct context *context = &shared->contexts[number];

	if (pthread_rwlock_tryrdlock(&context->lock))
		return false;
	if (context->owner == process_number)
		return true;
	put_context(number);
	return false;
}

static int take_context(struct worker *w)
{
	uint32_t number = draw(w) % OWN_CONTEXTS;
	struct context *context = &shared->contexts[number];

	/* A child has no part in what becomes of contexts that threads share. */
	if (w->child || __atomic_load_n(&context->owner, __ATOMIC_ACQUIRE) != process_number)
		number = w->own;
	return take_part_of_context(number) ? (int)number : -1;
}

static bool is_timed(const struct slot *slot)
{
	return slot->deadline != MEMWAIT_FOREVER;
}

static bool become(struct slot *slot, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&slot->state, &from, to, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_ACQUIRE);
}

/* Who has kept a slot lets go of it: with @to, unless its completion has come meanwhile. */
static void let_go(struct worker *w, struct slot *slot, uint32_t from, uint32_t to)
{
	if (!become(slot, from, to) && !become(slot, ENDED, FREE))
		broken(w, "a wait's state", slot->state, from);
}

static uint64_t user_data(int number, uint32_t slot)
{
	return (uint64_t)number << 32 | slot << 16 |
	       shared->contexts[number].slots[slot].generation;
}

/*
 * Takes a slot and fills in its entry, of one word or of a group; of the ordered word, if one is
 * given. Returns false if the slot is in use.
 */
static bool prepare(struct worker *w, int number, struct memwait_async *entry,
		    struct memwait_wait *waits, uint8_t ordered)
{
	uint32_t i = draw(w) % SLOTS;
	struct slot *slot = &shared->contexts[number].slots[i];
	uint64_t deadline = one_in(w, 2) ? MEMWAIT_FOREVER : soon_of(w);
	uint32_t j;

	if (!become(slot, FREE, ARMING))
		return false;
	slot->generation++;
	slot->id = 0;
	slot->ticket = 0;
	slot->process = w->child ? FORKED : process_number;
	slot->nr = !ordered && one_in(w, 4) ? 1 + draw(w) % ASYNC_WORDS : 1;
	for (j = 0; j < slot->nr; j++) {
		/* A child may arm on its own words: then deadline or cancel ends the wait. */
		slot->words[j] = ordered ?: w->child ? draw(w) % WORDS : random_word(w);
		waits[j] = random_wait(w, slot->words[j]);
	}
	memcpy(slot->waits, waits, slot->nr * sizeof(*waits));
	slot->deadline = deadline;
	if (ordered)
		slot->ticket = ++shared->orders[ordered].tickets;
	if (slot->nr > 1 || (!ordered && one_in(w, 16)))
		*entry = group_entry(waits, slot->nr, deadline, 0, 0);
	else
		*entry = (struct memwait_async) { .wait = waits[0] };
	entry->wait.deadline = deadline;
	entry->user_data = user_data(number, i);
	entry->result = UNTOUCHED;
	return true;
}

static void lock_order(struct order *order)
{
	while (__atomic_exchange_n(&order->lock, 1, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void unlock_order(struct order *order)
{
	__atomic_store_n(&order->lock, 0, __ATOMIC_RELEASE);
}

/* Arms some waits on any words, or on one ordered word. */
static void step_arm(struct worker *w)
{
	bool may_lock = !w->victim && !w->child;
	uint8_t ordered = may_lock && one_in(w, 3) ? draw(w) % OWN * KINDS + ORDERED : 0;
	uint32_t most = 1 + draw(w) % BATCH, n = 0, i, j;
	struct memwait_wait waits[BATCH][ASYNC_WORDS];
	struct memwait_async entries[BATCH];
	int number = take_context(w), done;
	struct call *call;

	if (number < 0)
		return;
	if (ordered)
		lock_order(&shared->orders[ordered]);
	while (n < most && prepare(w, number, &entries[n], waits[n], ordered))
		n++;
	call = begin(w, "arm", number, n, ordered);
	call->result = mw_batch(fds[number], entries, n);
	if (ordered)
		unlock_order(&shared->orders[ordered]);

	/* The first one that fails ends the batch. So does a signal, once one is armed. */
	done = call->result < 0 ? 0 : call->result;
	for (i = 0; i < n; i++) {
		struct slot *slot =
			&shared->contexts[number].slots[entries[i].user_data >> 16 & 0xffff];
		int result = entries[i].result;
		bool wild = false;

		for (j = 0; j < slot->nr; j++)
			wild |= HAS_KIND(slot->words[j], WILD);
		if ((int)i < done ? result < MEMWAIT_NOT_EQUAL || result > MEMWAIT_PENDING :
		    (int)i > done || (done && result == UNTOUCHED) ? result != UNTOUCHED :
		    !wild || result != -EFAULT)
			broken(w, "arm", result, i);
		if (result == MEMWAIT_TIMED_OUT)
			check_time_out(w, slot->deadline);
		if (result == MEMWAIT_PENDING) {
			slot->id = entries[i].id;
			w->record->armed++;
			let_go(w, slot, ARMING, PENDING);
		} else if (!become(slot, ARMING, FREE)) {
			broken(w, "completion of what was never pending", slot->state, 0);
		}
	}
	if (call->result < 0 && (call->result != -EFAULT || !n))
		broken(w, "arm", call->result, n);
	put_context(number);
}

static void cancel_slot(struct worker *w, int number, struct slot *slot)
{
	struct call *call;

	if (!become(slot, PENDING, CANCELLING))
		return;
	call = begin(w, "cancel", number, slot - shared->contexts[number].slots, slot->id);
	call->result = mw_cancel(fds[number], slot->id);
	if (call->result == -ENOENT) {
		let_go(w, slot, CANCELLING, PENDING);
	} else if (call->result) {
		broken(w, "cancel", call->result, slot->id);
	} else {
		w->record->cancelled++;
		if (!become(slot, CANCELLING, FREE))
			broken(w, "cancelled and completed", slot->id, 0);
	}
}

static void step_cancel(struct worker *w)
{
	int number = take_context(w);

	if (number < 0)
		return;
	cancel_slot(w, number, &shared->contexts[number].slots[draw(w) % SLOTS]);
	put_context(number);
}

static void was_notified(struct order *order, uint64_t ticket)
{
	uint64_t last = __atomic_load_n(&order->last_notified, __ATOMIC_RELAXED);

	while (ticket > last &&
	       !__atomic_compare_exchange_n(&order->last_notified, &last, ticket, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* Whoever keeps the slot, to arm or to cancel, may let go of it at the same time. */
static void end_slot(struct worker *w, struct slot *slot)
{
	uint32_t state;

	do {
		state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
		if (state == FREE || state == ENDED)
			return broken(w, "ended twice", state, slot->id);
	} while (!become(slot, state, state == PENDING ? FREE : ENDED));
}

static void completed(struct worker *w, const struct memwait_completion *done)
{
	uint32_t number = done->user_data >> 32, i = done->user_data >> 16 & 0xffff;
	struct slot *slot;

	if (number >= ALL_CONTEXTS || i >= SLOTS || user_data(number, i) != done->user_data) {
		broken(w, "completion of no wait", done->user_data, done->id);
		return;
	}
	slot = &shared->contexts[number].slots[i];
	if (slot->id && slot->id != done->id)
		broken(w, "completion's id", done->id, slot->id);
	if (done->index >= (done->result == MEMWAIT_OK ? slot->nr : 1))
		broken(w, "completion's index", done->index, slot->nr);
	if (done->result == MEMWAIT_OK) {
		w->record->read_oks++;
		if (slot->ticket)
			was_notified(&shared->orders[slot->words[0]], slot->ticket);
	} else if (done->result == MEMWAIT_TIMED_OUT && is_timed(slot)) {
		w->record->timed_out++;
		check_time_out(w, slot->deadline);
		check_missed(w, slot->process, slot->words, slot->waits, slot->nr, slot->deadline);
	} else {
		broken(w, "completion's result", done->result, is_timed(slot));
	}
	end_slot(w, slot);
}

/* Returns how many completions it has read, or a negative errno. */
static int read_context(struct worker *w, int number, uint32_t most)
{
	struct memwait_completion done[BATCH];
	struct call *call = begin(w, "read", number, most, 0);
	int i;

	__atomic_store_n(&w->record->reading, most, __ATOMIC_RELEASE);
	call->result = mw_read(fds[number], done, most);
	for (i = 0; i < call->result; i++)
		completed(w, &done[i]);
	__atomic_store_n(&w->record->reading, 0, __ATOMIC_RELEASE);
	if (call->result < 0 && call->result != -EAGAIN && call->result != -EINTR)
		broken(w, "read", call->result, number);
	return call->result;
}

static void step_read(struct worker *w)
{
	int number = take_context(w);

	if (number < 0)
		return;
	read_context(w, number, 1 + draw(w) % BATCH);
	put_context(number);
}

/* Nobody else reads a worker's own context: what it waits for there must come. */
static void step_poll(struct worker *w)
{
	struct epoll_event event = { .events = EPOLLIN | (one_in(w, 2) ? EPOLLET : 0) };
	struct pollfd pfd = { .fd = fds[w->own], .events = POLLIN };
	struct slot *slots = shared->contexts[w->own].slots;
	bool comes = false;
	struct call *call;
	int epoll, ret, i;

	for (i = 0; i < SLOTS; i++)
		comes |= is_timed(&slots[i]) && slots[i].state == PENDING;
	if (!comes)
		return;
	switch (draw(w) % 3) {
	case 0:
		fcntl(pfd.fd, F_SETFL, O_RDWR);
		while (read_context(w, w->own, BATCH) == -EINTR)
			;
		fcntl(pfd.fd, F_SETFL, O_RDWR | O_NONBLOCK);
		return;
	case 1:
		call = begin(w, "poll", w->own, 0, 0);
		ret = TEMP_FAILURE_RETRY(poll(&pfd, 1, PATIENCE / NSEC_PER_MSEC));
		break;
	default:
		call = begin(w, "epoll", w->own, event.events, 0);
		epoll = epoll_create1(EPOLL_CLOEXEC);
		epoll_ctl(epoll, EPOLL_CTL_ADD, pfd.fd, &event);
		ret = TEMP_FAILURE_RETRY(epoll_wait(epoll, &event, 1, PATIENCE / NSEC_PER_MSEC));
		close(epoll);
	}
	call->result = ret;
	if (ret != 1)
		broken(w, "a deadline has passed, and there is nothing to read", ret, w->own);
}

/* Reads all that there is to read. */
static void read_all(struct worker *w, int number)
{
	int ret;

	do {
		ret = read_context(w, number, BATCH);
	} while (ret > 0 || ret == -EINTR);
}

static void check_all_free(struct worker *w, int number, const char *why)
{
	struct slot *slots = shared->contexts[number].slots;
	int i;

	for (i = 0; i < SLOTS; i++) {
		if (slots[i].state != FREE)
			broken(w, why, slots[i].state, slots[i].id);
	}
}

/* Cancels all waits of a context that nobody else uses now, and reads what has ended before. */
static void empty_context(struct worker *w, int number)
{
	struct slot *slots = shared->contexts[number].slots;
	int i;

	for (i = 0; i < SLOTS; i++)
		cancel_slot(w, number, &slots[i]);
	read_all(w, number);
	check_all_free(w, number, "neither cancelled nor read");
}

static void open_context(struct worker *w, int number)
{
	fds[number] = memwait_open(O_NONBLOCK);
	if (fds[number] < 0)
		broken(w, "open", fds[number], number);
}

/* Takes a context that nobody else uses now. */
static bool take_all_of_context(int number)
{
	struct context *context = &shared->contexts[number];

	if (context->owner != process_number || pthread_rwlock_trywrlock(&context->lock))
		return false;
	if (context->owner == process_number)
		return true;
	put_context(number);
	return false;
}

static void step_close(struct worker *w)
{
	int number = one_in(w, 2) ? w->own : (int)(draw(w) % ALL_CONTEXTS), i;
	struct slot *slots = shared->contexts[number].slots;
	struct call *call;

	if ((number >= OWN_CONTEXTS && number != w->own) || !take_all_of_context(number))
		return;
	if (shared->exact)
		empty_context(w, number);
	call = begin(w, "close", number, 0, 0);
	for (i = 0; i < SLOTS; i++)
		w->record->closed_over += slots[i].state != FREE;
	call->result = close(fds[number]);
	for (i = 0; i < SLOTS; i++)
		slots[i].state = FREE;
	open_context(w, number);
	put_context(number);
}

/* Sends a context to another process, with its waits. */
static void step_pass(struct worker *w)
{
	int to = draw(w) % PROCESSES, number = draw(w) % OWN_CONTEXTS;
	struct call *call;

	if (to == process_number || !take_all_of_context(number))
		return;
	call = begin(w, "pass", number, to, 0);
	shared->contexts[number].owner = NOBODY;
	call->result = send_fd(mail[to][0], fds[number], number);
	if (!call->result)
		close(fds[number]);
	else
		shared->contexts[number].owner = process_number;
	put_context(number);
}

static void step_receive(struct worker *w)
{
	int number, fd = receive_fd(mail[process_number][1], &number);
	struct context *context;

	if (fd < 0)
		return;
	context = &shared->contexts[number];
	pthread_rwlock_wrlock(&context->lock);
	fds[number] = fd;
	__atomic_store_n(&context->owner, process_number, __ATOMIC_RELEASE);
	put_context(number);
	begin(w, "receive", number, fd, 0)->result = 0;
}

/* Does something to the page of a wild word, and undoes it. */
static void step_wild(struct worker *w)
{
	int both = PROT_READ | PROT_WRITE, fixed = MAP_FIXED | MAP_ANONYMOUS | MAP_PRIVATE;
	uint32_t place = draw(w) % PLACES, what = draw(w) % 4;
	char *page = wild_areas[place];
	long size = sysconf(_SC_PAGESIZE);
	struct call *call = begin(w, "page", 0, place, what);
	bool failed = false;

	pthread_mutex_lock(&wild_lock);
	switch (what) {
	case 0:
		failed = mprotect(page, size, PROT_NONE) || mprotect(page, size, both);
		break;
	case 1:
		failed = madvise(page, size, place == OWN ? MADV_DONTNEED : MADV_REMOVE);
		break;
	case 2:
		/* Unmaps what was there; a hole might be filled by another thread's stack. */
		if (place == INHERITED)
			break;
		failed = mmap(page, size, PROT_NONE, fixed, -1, 0) != page;
		if (place == OWN)
			failed |= mmap(page, size, both, fixed, -1, 0) != page;
		else
			failed |= mmap(page, size, both, MAP_FIXED | MAP_SHARED, wild_memfd,
				       0) != page;
		break;
	case 3:
		failed = ftruncate(wild_memfd, 0) || ftruncate(wild_memfd, size);
		break;
	}
	pthread_mutex_unlock(&wild_lock);
	call->result = failed ? -errno : 0;
	if (failed)
		broken(w, "page", -errno, what);
}

static void some_steps_of_a_child(struct worker *w);

/* A process that has inherited the contexts, and uses its parent's own one while that waits. */
static void step_fork(struct worker *w)
{
	struct call *call = begin(w, "fork", 0, 0, 0);
	int status = -1;
	pid_t pid;

	__atomic_store_n(&w->record->forking, true, __ATOMIC_RELEASE);
	pid = fork();
	if (!pid) {
		some_steps_of_a_child(w);
		end_place(w);
		_exit(0);
	}
	if (pid > 0)
		TEMP_FAILURE_RETRY(waitpid(pid, &status, 0));
	__atomic_store_n(&w->record->forking, false, __ATOMIC_RELEASE);
	call->result = status;
	if (status)
		broken(w, "fork", pid, status);
}

/* A process that arms some waits, tells that it has, and closes its context when it is told to. */
static void wait_to_end(int to_parent, uint32_t *word, int n)
{
	int fd = memwait_open(0), i;
	char byte = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 0; i < n; i++)
		mw_async(fd, word, 0, MEMWAIT_FOREVER, MEMWAIT_SIZE_U32, 0, NULL);
	i = write(to_parent, &byte, 1) == 1 && read(to_parent, &byte, 1) == 1;
	close(fd);
	_exit(!i);
}

/*
 * Of the notifies that a context has got, and nobody has read, none is lost when it is closed, or
 * its process killed, while others wait: on a word that nobody else uses, exactly.
 */
static void step_pass_on(struct worker *w)
{
	uint32_t *word = (uint32_t *)(areas[INHERITED] + PASS_ON + w->number * 8);
	int n = 1 + draw(w) % BATCH, notified = draw(w) % (n + 1), sockets[2], heir, ret, i;
	struct call *call = begin(w, "pass on", 0, n, notified);
	struct memwait_completion done[BATCH];
	bool kills = one_in(w, 2);
	pid_t pid;
	char byte;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		return broken(w, "socketpair", errno, 0);
	pid = fork();
	if (!pid)
		wait_to_end(sockets[1], word, n);
	if (pid < 0)
		return broken(w, "fork", errno, 0);
	TEMP_FAILURE_RETRY(read(sockets[0], &byte, 1));
	heir = memwait_open(O_NONBLOCK);
	for (i = 0; i < n; i++)
		mw_async(heir, word, 0, MEMWAIT_FOREVER, MEMWAIT_SIZE_U32, i, NULL);
	ret = mw_notify(w->fd, word, notified, MEMWAIT_SIZE_U32);
	if (kills)
		kill(pid, SIGKILL);
	else if (write(sockets[0], &byte, 1) != 1)
		broken(w, "write", errno, 0);
	TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));

	call->result = mw_read(heir, done, BATCH);
	if (ret != notified || call->result != (notified ?: -EAGAIN))
		broken(w, "not passed on", call->result, notified);
	for (i = 0; i < call->result; i++) {
		if (done[i].user_data != (uint64_t)i)
			broken(w, "passed on to somebody else first", done[i].user_data, i);
	}
	/* Nothing is left pending: a child of another thread may have inherited the heir. */
	ret = mw_notify(w->fd, word, MEMWAIT_ALL, MEMWAIT_SIZE_U32);
	i = mw_read(heir, done, BATCH);
	if (ret != n - notified || i != (ret ?: -EAGAIN))
		broken(w, "not left for others", ret, i);
	close(heir);
	close(sockets[0]);
	close(sockets[1]);
}

/* Ends the process in the middle of what its other threads do. */
static void step_end(struct worker *w)
{
	begin(w, "end", 0, 0, 0);
	switch (draw(w) % 4) {
	case 0:
		abort();
	case 1:
		execl("/bin/true", "true", NULL);
		break;
	case 2:
		raise(SIGKILL);
	}
	_exit(0);
}

static void step_of_victim(struct worker *w)
{
	switch (draw(w) % 64) {
	case 0 ... 14:
		return step_wait(w);
	case 15 ... 21:
		return step_wait_any(w);
	case 22 ... 41:
		return step_arm(w);
	case 42 ... 47:
		return step_cancel(w);
	case 48 ... 55:
		return step_read(w);
	case 56 ... 58:
		return step_requeue(w);
	case 59 ... 60:
		return step_poll(w);
	case 61 ... 62:
		return step_close(w);
	case 63:
		return one_in(w, 4) ? step_end(w) : step_wild(w);
	}
}

static void step(struct worker *w)
{
	switch (draw(w) % 128) {
	case 0 ... 1:
		return step_storm(w);
	case 2 ... 19:
		return step_notify(w);
	case 20 ... 25:
		return step_notify_many(w);
	case 26 ... 35:
		return step_wait(w);
	case 36 ... 45:
		return step_wait_any(w);
	case 46 ... 53:
		return step_notify_wait(w);
	case 54 ... 61:
		return step_requeue(w);
	case 62 ... 87:
		return step_arm(w);
	case 88 ... 99:
		return step_cancel(w);
	case 100 ... 113:
		return step_read(w);
	case 114 ... 117:
		return step_poll(w);
	case 118 ... 119:
		return step_wild(w);
	case 120 ... 121:
		return step_receive(w);
	case 122 ... 123:
		return step_pass(w);
	case 124 ... 125:
		return step_close(w);
	case 126:
		return step_pass_on(w);
	case 127:
		if (one_in(w, 4))
			step_fork(w);
	}
}

static void some_steps_of_a_child(struct worker *w)
{
	int n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	w->child = true;
	w->no_own_words = true;
	for (n = 0; n < KINDS; n++) {
		int strangers = mw_waiters(w->fd, address(w, OWN * KINDS + n), 0);

		/* A page that was fork()ed in an unlucky moment cannot be looked at. */
		if (strangers > 0)
			broken(w, "somebody waits in a new process", strangers, n);
	}
	for (n = 0; n < 12; n++) {
		switch (draw(w) % 8) {
		case 0:
			step_notify(w);
			break;
		case 1:
			step_wait(w);
			break;
		case 2:
			step_wait_any(w);
			break;
		case 3:
			step_requeue(w);
			break;
		case 4:
			step_cancel(w);
			break;
		case 5:
			step_read(w);
			break;
		default:
			step_arm(w);
		}
	}
}

static void pause_a_moment(void)
{
	usleep(1000);
}

/* Wakes whoever waits on some words; in the end nobody does. */
static void flush(struct worker *w, uint32_t from, uint32_t to)
{
	for (uint32_t word = from; word < to; word++)
		notify_all(w, word);
}

static void count_own_waiters(struct worker *w)
{
	int i;

	for (i = 0; i < KINDS; i++)
		w->record->waiters[i] = mw_waiters(w->fd, address(w, OWN * KINDS + i), 0);
	w->record->own_strict = *(uint64_t *)address(w, OWN * KINDS + STRICT);
}

/*
 * What the first thread of a process does for it while all come to rest: receives contexts, reads
 * those of threads that sleep, counts the waiters of the process's own words, and wakes them.
 */
static void rest_for_process(struct worker *w, uint32_t round)
{
	int i;

	step_receive(w);
	for (i = 0; i < OWN_CONTEXTS; i++) {
		/* A thread that has not come to rest may be closing it. */
		if (!take_part_of_context(i))
			continue;
		read_all(w, i);
		put_context(i);
	}
	for (i = 1; i < THREADS && phase() == REST; i++) {
		struct record *record = w->record + i;

		if (__atomic_load_n(&record->nr_waiting, __ATOMIC_ACQUIRE))
			read_all(w, w->own + i);
	}
	if (phase() == FLUSH && w->record->flushed != round) {
		flush(w, OWN * KINDS, WORDS);
		__atomic_store_n(&w->record->flushed, round, __ATOMIC_RELEASE);
	}
	count_own_waiters(w);
}

/* What was pending, and could be, has been notified by now: all can be read, and at once. */
static void drain(struct worker *w, int number)
{
	struct slot *slots = shared->contexts[number].slots;
	int i;

	for (i = 0; i < SLOTS; i++) {
		if (slots[i].process == FORKED)
			cancel_slot(w, number, &slots[i]);
	}
	read_all(w, number);
	check_all_free(w, number, "passed over by a notify of all");
}

static void rest(struct worker *w)
{
	bool first = w->number % THREADS == 0;
	enum phase now;
	int i;

	while ((now = phase()) == REST || now == FLUSH) {
		read_all(w, w->own);
		if (first)
			rest_for_process(w, shared->round);
		__atomic_store_n(&w->record->rested, shared->round, __ATOMIC_RELEASE);
		pause_a_moment();
	}
	if (now != DRAIN)
		return;
	end_place(w);
	drain(w, w->own);
	for (i = 0; first && i < OWN_CONTEXTS; i++) {
		if (shared->contexts[i].owner == process_number)
			drain(w, i);
	}
	if (first)
		count_own_waiters(w);
	__atomic_store_n(&w->record->drained, shared->round, __ATOMIC_RELEASE);
	while (phase() == DRAIN)
		pause_a_moment();
}

static void *work(void *arg)
{
	struct worker *w = arg;

	w->record->tid = gettid();
	while (phase() != STOP) {
		while (phase() == RUN && !w->record->broken)
			w->victim ? step_of_victim(w) : step(w);
		if (w->victim || w->record->broken)
			pause();
		else
			rest(w);
	}
	return NULL;
}

static void new_worker(struct worker *w, int number, uint64_t round)
{
	w->record = &shared->records[number];
	w->number = number;
	w->own = OWN_CONTEXTS + number;
	w->victim = number >= PROCESSES * THREADS && number < WORKERS;
	w->no_own_words = w->victim;
	w->random = (shared->seed + number + 1 + round * 1000) * 0x9e3779b97f4a7c15ULL;
	w->fd = memwait_open(0);
	w->record->pid = getpid();
	__atomic_store_n(&w->record->tid, 0, __ATOMIC_RELEASE);
}

static void map_own_words(void)
{
	long size = sysconf(_SC_PAGESIZE);

	areas[OWN] = private_page(size);
	wild_areas[OWN] = private_page(size);
}

/* Each process has the words of the memfd at addresses of its own. */
static void map_memfd(int memfd)
{
	long size = sysconf(_SC_PAGESIZE);

	areas[MEMFD] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	areas[PLACES] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	wild_areas[MEMFD] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, wild_memfd, 0);
}

static void init_contexts(int process, struct worker *workers)
{
	pthread_rwlockattr_t attr;
	int i;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	for (i = 0; i < CONTEXTS + THREADS; i++) {
		int number = i < CONTEXTS ? process * CONTEXTS + i :
			     OWN_CONTEXTS + process * THREADS + i - CONTEXTS;
		struct context *context = &shared->contexts[number];

		pthread_rwlock_init(&context->lock, &attr);
		open_context(workers, number);
		__atomic_store_n(&context->owner, process, __ATOMIC_RELEASE);
	}
}

static pid_t start_process(int process, int memfd, uint64_t round)
{
	struct worker workers[THREADS] = { 0 };
	struct rlimit no_core = { 0 };
	pthread_t threads[THREADS];
	pid_t pid = fork();
	int i;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &no_core);
	handle(SIGUSR1, SA_RESTART);
	handle(SIGUSR2, 0);
	process_number = process;
	map_memfd(memfd);
	map_own_words();
	for (i = 0; i < THREADS; i++)
		new_worker(&workers[i], process * THREADS + i, round);
	init_contexts(process, workers);
	for (i = 0; i < THREADS; i++) {
		int err = pthread_create(&threads[i], NULL, work, &workers[i]);

		/* A victim's first thread may have ended it by now. */
		if (err && workers[i].victim)
			_exit(0);
		else if (err)
			broken(&workers[i], "thread", err, 0);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

/* The test itself. */

static struct worker self_worker;
static pid_t pids[PROCESSES + VICTIMS];

static struct record *record_of(int number)
{
	return &shared->records[number];
}

static int process_of(int number)
{
	return number / THREADS;
}

/* What is known of the waiters of a word: of an OWN one in this process. */
static int known_waiters(int process, uint32_t word)
{
	int n = 0, i, j;
	uint32_t k;

	for (i = 0; i < PROCESSES * THREADS; i++) {
		struct record *record = record_of(i);

		for (k = 0; k < record->nr_waiting; k++)
			n += record->waiting[k] == word &&
			     (PLACE(word) != OWN || process_of(i) == process);
	}
	for (i = 0; i < ALL_CONTEXTS; i++) {
		for (j = 0; j < SLOTS; j++) {
			struct slot *slot = &shared->contexts[i].slots[j];

			for (k = 0; slot->state == PENDING && k < slot->nr; k++)
				n += slot->words[k] == word &&
				     (PLACE(word) != OWN || slot->process == process);
		}
	}
	return n;
}

static int waiters(int process, uint32_t word)
{
	if (PLACE(word) == OWN)
		return record_of(process * THREADS)->waiters[word - OWN * KINDS];
	return mw_waiters(self_worker.fd, address(&self_worker, word), 0);
}

/* Says what is wrong, as far as it concerns the words; waiters that move are counted together. */
static const char *wrong_waiters(int64_t *is, int64_t *should_be)
{
	int64_t moving = 0, known_moving = 0;
	uint32_t word;
	int process;

	for (process = 0; process < PROCESSES; process++) {
		for (word = process ? OWN * KINDS : 0; word < WORDS; word++) {
			*is = waiters(process, word);
			*should_be = known_waiters(process, word);
			if (MOVES(word)) {
				moving += *is;
				known_moving += *should_be;
			} else if (*is != *should_be) {
				return HAS_KIND(word, WILD) ? "waiters of a wild word" :
							     "waiters of a word";
			}
		}
	}
	*is = moving;
	*should_be = known_moving;
	return moving == known_moving ? NULL : "waiters of words that move";
}

/* Has everybody come to rest, but for those who sleep in a wait? */
static const char *restless(int64_t *a, int64_t *b)
{
	int i, j;

	for (i = 0; i < PROCESSES * THREADS; i++) {
		*a = i;
		*b = __atomic_load_n(&record_of(i)->rested, __ATOMIC_ACQUIRE);
		/* In this order: a child of it makes no calls, so it is the thread that waits. */
		if (*b != shared->round &&
		    (!__atomic_load_n(&record_of(i)->nr_waiting, __ATOMIC_ACQUIRE) ||
		     thread_state(record_of(i)->tid) != 'S' ||
		     __atomic_load_n(&record_of(i)->forking, __ATOMIC_ACQUIRE)))
			return "a thread does not come to rest";
	}
	for (i = 0; i < ALL_CONTEXTS; i++) {
		*a = i;
		if (i < PROCESSES * CONTEXTS &&
		    __atomic_load_n(&shared->contexts[i].owner, __ATOMIC_ACQUIRE) == NOBODY)
			return "a context got lost";
		for (j = 0; j < SLOTS; j++) {
			struct slot *slot = &shared->contexts[i].slots[j];

			*b = slot->state;
			if (slot->state != FREE && (slot->state != PENDING || is_timed(slot)))
				return "a wait with a deadline does not end";
		}
	}
	return wrong_waiters(a, b);
}

static const char *asleep(int64_t *a, int64_t *b)
{
	int i;

	for (i = 0; i < PROCESSES * THREADS; i++) {
		*a = i;
		*b = record_of(i)->nr_waiting ? record_of(i)->waiting[0] : -1;
		if (__atomic_load_n(&record_of(i)->rested, __ATOMIC_ACQUIRE) != shared->round)
			return "a thread sleeps though all words were notified";
		if (i % THREADS == 0 &&
		    __atomic_load_n(&record_of(i)->flushed, __ATOMIC_ACQUIRE) != shared->round)
			return "a process does not wake its threads";
	}
	return NULL;
}

static const char *not_drained(int64_t *a, int64_t *b)
{
	int i;

	for (i = 0; i < PROCESSES * THREADS; i++) {
		*a = i;
		*b = 0;
		if (__atomic_load_n(&record_of(i)->drained, __ATOMIC_ACQUIRE) != shared->round)
			return "a thread does not empty its contexts";
	}
	return wrong_waiters(a, b);
}

static bool somebody_is_broken(void)
{
	int i;

	for (i = 0; i <= WORKERS; i++) {
		if (__atomic_load_n(&record_of(i)->broken, __ATOMIC_ACQUIRE))
			return true;
	}
	return false;
}

/* Waits for a state. Returns false if it does not come, or something else has gone wrong. */
static bool await(const char *(*is_not)(int64_t *a, int64_t *b))
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE;
	const char *why;
	int64_t a, b;

	while ((why = is_not(&a, &b)) && !somebody_is_broken()) {
		if (now_ns(CLOCK_MONOTONIC) > end)
			broken(&self_worker, why, a, b);
		else
			pause_a_moment();
	}
	return !somebody_is_broken();
}

/* A STRICT word changes before a notify of all only: does somebody wait for what it is no more? */
static bool has_missed(uint32_t word, int process, const struct memwait_wait *wait)
{
	uint64_t mask = ~0ULL >> (64 - (8U << (wait->flags & MEMWAIT_SIZE_MASK))), now;

	if (!HAS_KIND(word, STRICT) || process == FORKED)
		return false;
	now = PLACE(word) == OWN ? record_of(process * THREADS)->own_strict :
				   *(uint64_t *)(areas[PLACE(word)] + OFFSET(word));
	return (now ^ wait->expected) & mask;
}

/* All rest: has a waiter been missed by a notify of all, or overtaken? */
static void look_at_waiters(void)
{
	struct record *record;
	struct slot *slot;
	uint32_t k;
	int i, j;

	for (i = 0; i < PROCESSES * THREADS; i++) {
		record = record_of(i);
		for (k = 0; k < record->nr_waiting; k++) {
			if (has_missed(record->waiting[k], process_of(i), &record->waits[k]))
				broken(&self_worker, "a thread has missed a notify", i,
				       record->waiting[k]);
		}
	}
	for (i = 0; i < ALL_CONTEXTS; i++) {
		for (j = 0; j < SLOTS; j++) {
			slot = &shared->contexts[i].slots[j];
			if (slot->state != PENDING)
				continue;
			for (k = 0; k < slot->nr; k++) {
				if (has_missed(slot->words[k], slot->process, &slot->waits[k]))
					broken(&self_worker, "an async wait has missed a notify", i,
					       slot->words[k]);
			}
			if (slot->ticket &&
			    slot->ticket < shared->orders[slot->words[0]].last_notified)
				broken(&self_worker, "overtaken", slot->ticket,
				       shared->orders[slot->words[0]].last_notified);
		}
	}
}

static void set_phase(enum phase next)
{
	__atomic_store_n(&shared->phase, next, __ATOMIC_RELEASE);
}

/* What a process that has died may have had of notifies; then all of it is forgotten. */
static long forget_process(int process)
{
	long lost = 0;
	int i, j;

	for (i = process * THREADS; i < (process + 1) * THREADS; i++) {
		struct record *record = record_of(i);

		lost += !!record->nr_waiting + record->reading;
		record->nr_waiting = 0;
		record->reading = 0;
		record->tid = 0;
	}
	for (i = 0; i < ALL_CONTEXTS; i++) {
		struct context *context = &shared->contexts[i];

		if (context->owner != process)
			continue;
		context->owner = NOBODY;
		for (j = 0; j < SLOTS; j++) {
			lost += context->slots[j].state != FREE;
			context->slots[j].state = FREE;
		}
	}
	return lost;
}

static long end_process(int process)
{
	if (pids[process] > 0) {
		kill(pids[process], SIGKILL);
		waitpid(pids[process], NULL, 0);
		pids[process] = 0;
	}
	return forget_process(process);
}

static long calls_of(int process)
{
	long calls = 0;
	int i;

	for (i = process * THREADS; i < (process + 1) * THREADS; i++)
		calls += record_of(i)->calls;
	return calls;
}

/*
 * Signals, notifies, and deaths, while the others run. Who is to die has done something before.
 * Returns how many notifies may be lost.
 */
static long disturb(int memfd, uint64_t end, uint64_t *deaths)
{
	static long calls_before[PROCESSES + VICTIMS];
	struct worker *w = &self_worker;
	long lost = 0;

	while (now_ns(CLOCK_MONOTONIC) < end && !somebody_is_broken()) {
		struct record *victim = record_of(draw(w) % WORKERS);
		int process = PROCESSES + draw(w) % VICTIMS;

		if (victim->tid)
			syscall(SYS_tgkill, victim->pid, victim->tid,
				one_in(w, 2) ? SIGUSR1 : SIGUSR2);
		step_notify(w);
		pause_a_moment();
		if (shared->exact || !one_in(w, 16) ||
		    (pids[process] > 0 && calls_of(process) == calls_before[process]))
			continue;
		lost += end_process(process);
		calls_before[process] = calls_of(process);
		pids[process] = start_process(process, memfd, ++*deaths);
	}
	return lost;
}

static long end_victims(void)
{
	long lost = 0;
	int i;

	for (i = PROCESSES; i < PROCESSES + VICTIMS; i++)
		lost += end_process(i);
	return lost;
}

static void report(struct __test_metadata *_metadata)
{
	int i, j;

	for (i = 0; i <= WORKERS; i++) {
		struct record *record = record_of(i);

		if (record->broken)
			TH_LOG("thread %d: %s", i, record->why);
	}
	for (i = 0; i <= WORKERS; i++) {
		struct record *record = record_of(i);

		for (j = 0; j < RECENT; j++) {
			struct call *call = &record->recent[(record->calls + j) % RECENT];

			if (call->what)
				TH_LOG("thread %d: %s: context %u, %lld, %lld: %lld", i, call->what,
				       call->context, (long long)call->a, (long long)call->b,
				       (long long)call->result);
		}
		for (j = 0; j < (int)record->nr_waiting; j++)
			TH_LOG("thread %d waits on %d", i, record->waiting[j]);
	}
}

/* The counts of the first threads; the last record is that of the test itself. */
static struct record sum_of(int threads)
{
	struct record sum = { 0 };
	int i;

	for (i = 0; i < threads; i++) {
		struct record *record = record_of(i);

		sum.calls += record->calls;
		sum.notified += record->notified;
		sum.thread_oks += record->thread_oks;
		sum.read_oks += record->read_oks;
		sum.armed += record->armed;
		sum.timed_out += record->timed_out;
		sum.cancelled += record->cancelled;
		sum.closed_over += record->closed_over;
		sum.interrupted += record->interrupted;
	}
	return sum;
}

/*
 * Notifies and OKs must be as many, but for those that may have been lost in this round; waits and
 * their ends exactly.
 */
static void account(long lost, uint64_t user_waits)
{
	static long missing_before, closed_over_before;
	struct record all = sum_of(WORKERS + 1), living = sum_of(PROCESSES * THREADS);
	long oks = all.thread_oks + all.read_oks;
	long ended = living.read_oks + living.timed_out + living.cancelled + living.closed_over;
	long missing = all.notified - oks - missing_before;

	if (missing < 0 || missing > lost + all.closed_over - closed_over_before)
		broken(&self_worker, "notified without an OK in this round, and may have been",
		       missing, lost + all.closed_over - closed_over_before);
	missing_before += missing;
	closed_over_before = all.closed_over;
	if (living.armed != ended)
		broken(&self_worker, "armed, and ended", living.armed, ended);
	if (mw_user_waits(self_worker.fd) != user_waits)
		broken(&self_worker, "waits of the user", mw_user_waits(self_worker.fd),
		       user_waits);
}

static void one_round(int memfd, uint64_t *deaths, uint64_t user_waits)
{
	long lost;

	shared->round++;
	set_phase(RUN);
	lost = disturb(memfd, now_ns(CLOCK_MONOTONIC) + ROUND, deaths);
	set_phase(REST);
	lost += end_victims();
	if (!await(restless))
		return;
	look_at_waiters();

	set_phase(FLUSH);
	flush(&self_worker, 0, OWN * KINDS);
	if (!await(asleep))
		return;

	set_phase(DRAIN);
	if (!await(not_drained))
		return;
	account(lost, user_waits);
}

static void totals(struct __test_metadata *_metadata, uint64_t deaths)
{
	struct record sum = sum_of(WORKERS + 1);

	TH_LOG("%u rounds, %ld calls, %ld interrupted; %llu processes died", shared->round - 1,
	       sum.calls, sum.interrupted, (unsigned long long)deaths);
	TH_LOG("notified %ld, OKs of threads %ld, of completions %ld", sum.notified, sum.thread_oks,
	       sum.read_oks);
	TH_LOG("armed %ld, timed out %ld, cancelled %ld, closed over %ld", sum.armed, sum.timed_out,
	       sum.cancelled, sum.closed_over);
}

/* Have those who matter in this test done anything? */
static bool has_begun(bool exact)
{
	if (exact)
		return record_of(0)->notified;
	return sum_of(WORKERS).calls > sum_of(PROCESSES * THREADS).calls;
}

static void torture(struct __test_metadata *_metadata, bool exact)
{
	const char *seconds = getenv("MEMWAIT_TORTURE_SECONDS");
	const char *seed = getenv("MEMWAIT_TORTURE_SEED");
	uint64_t end, user_waits, deaths = 0;
	long size = sysconf(_SC_PAGESIZE);
	int memfd = memfd_create("words", MFD_CLOEXEC), i, status;
	bool failed;

	shared = shared_page(sizeof(*shared));
	ASSERT_NE(NULL, shared);
	shared->exact = exact;
	shared->phase = DRAIN;
	shared->round = 1;
	shared->seed = seed ? strtoull(seed, NULL, 0) : now_ns(CLOCK_REALTIME);
	TH_LOG("seed %llu", (unsigned long long)shared->seed);

	wild_memfd = memfd_create("wild", MFD_CLOEXEC);
	ASSERT_EQ(0, ftruncate(memfd, size) | ftruncate(wild_memfd, size));
	areas[INHERITED] = shared_page(size);
	wild_areas[INHERITED] = shared_page(size);
	map_memfd(memfd);
	for (i = 0; i < PROCESSES; i++)
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
					mail[i]));
	for (i = 0; i < ALL_CONTEXTS; i++)
		shared->contexts[i].owner = NOBODY;
	new_worker(&self_worker, WORKERS, 0);
	self_worker.no_own_words = true;
	user_waits = mw_user_waits(self_worker.fd);

	memset(pids, 0, sizeof(pids));
	for (i = 0; i < PROCESSES; i++) {
		pids[i] = start_process(i, memfd, 0);
		ASSERT_LT(0, pids[i]);
	}
	await(not_drained);		/* which is the same as ready, now */
	end = now_ns(CLOCK_MONOTONIC) + (seconds ? atoi(seconds) : 5) * NSEC_PER_SEC;
	do {
		one_round(memfd, &deaths, user_waits);
	} while ((now_ns(CLOCK_MONOTONIC) < end || !has_begun(exact)) && !somebody_is_broken());

	set_phase(STOP);
	failed = somebody_is_broken();
	EXPECT_FALSE(failed);
	if (failed)
		report(_metadata);
	for (i = 0; i < PROCESSES; i++) {
		if (failed)
			kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
		EXPECT_EQ(0, status);
		close(mail[i][0]);
		close(mail[i][1]);
	}
	end_victims();
	totals(_metadata, deaths);
	close(self_worker.fd);
}

FIXTURE(torture)
{
};

FIXTURE_SETUP(torture)
{
}

FIXTURE_TEARDOWN(torture)
{
}

TEST_F_TIMEOUT(torture, R5_every_notify_is_one_ok, 86400)
{
	torture(_metadata, true);
}

TEST_F_TIMEOUT(torture, R25_close_and_death_pass_notifies_on, 86400)
{
	torture(_metadata, false);
}

TEST_HARNESS_MAIN
