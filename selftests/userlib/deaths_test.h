/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Code that the processes of deaths.c run until they are killed. They record their state before and
 * after each call; see the top of deaths.c.
 */
#ifndef DEATHS_TEST_H
#define DEATHS_TEST_H

#include "userlib_test.h"
#include <stdarg.h>

#define HOT		(20 * NSEC_PER_MSEC)	/* how long most processes use the same lock */
#define MOST_THERE	4	/* limit of tokens, and of items in a queue or the channel */
#define MOST_ITEMS	131072			/* limit of items of one sender in one round */
#define TICKETS		3
#define POISON		UINT32_MAX		/* sender of an item that ends its receiver */

/* A lock and the data that it protects. */
struct guarded {
	_Alignas(512)
	union {
		memwait_mutex_t mutex;
		memwait_rwlock_t rwlock;
		memwait_sem_t sem;
		uint64_t word;
	};
	uint64_t one, two;	/* equal while the lock is free */
	uint64_t turns;		/* how often it was locked */
	uint64_t died;		/* how often EOWNERDEAD was returned */
	uint32_t inside;	/* 1 + slot of its owner */
	uint32_t ruined;	/* the lock was unlocked while inconsistent */
	/* Members that only queues use: */
	memwait_cond_t filled, freed;
	uint64_t made, taken;
	uint64_t items[MOST_THERE];
	uint32_t closed;
};

/* The objects from QUEUE on are used by producers and consumers. */
enum object {
	ROBUST,
	ROBUST_RECURSIVE,
	ROBUST_ERRORCHECK,
	ROBUST_RWLOCK,
	ROBUST_WORD,
	NORMAL,
	FAIR,
	TOKENS,
	QUEUE,
	ROBUST_QUEUE,
	OBJECTS
};

/* The state of an object from a process's point of view, recorded before and after each call. */
enum hand {
	FREE,
	TAKING,		/* may hold the object */
	HELD,
	WAITING,	/* waits for a condition; may hold the object */
	GIVING,		/* may still hold the object */
	RUINED,		/* has received ENOTRECOVERABLE */
};

enum change { NO_CHANGE, FILLED, FREED };

enum ticket { UNCLAIMED, CLAIMED, FINISHING, UNSURE, DONE };

#define TICKET(state, slot)	((state) | (uint32_t)(slot) << 8)
#define TICKET_STATE(ticket)	((ticket) & 0xff)
#define TICKET_SLOT(ticket)	((int)((ticket) >> 8))

#define MOST_SLOTS	32	/* number of processes; the slot after these is the test's own */

/*
 * The record of a process. The next process in the same slot continues with the members that are
 * marked "continued".
 */
struct record {
	_Alignas(64) pid_t pid;		/* 0: the process has exited */
	uint32_t steps;
	const char *doing, *form;
	uint32_t hands[OBJECTS];
	uint32_t unsignalled[OBJECTS];	/* a condition that is true but was not signalled */
	uint64_t arrived, returned;	/* clock values at the barrier; continued */
	uint64_t next;			/* item to send; continued */
	uint64_t sending;
	uint32_t receiving;
	uint32_t passed;		/* epochs of the wait group that have passed */
};

struct item {
	uint32_t sender;
	uint32_t check;
	uint64_t number;
};

struct shared {
	char channel[1024];		/* first, for its alignment */
	uint32_t phase;
	uint32_t broken;
	char why[256];
	uint64_t clock;			/* incremented by each reading */
	uint32_t tokens, queue_size, channel_size;	/* limits in this round */
	struct guarded objects[OBJECTS];
	memwait_barrier_t barrier;
	bool members[MOST_SLOTS];	/* of the barrier in this round */
	uint64_t meetings;
	memwait_waitgroup_t group;
	uint32_t epoch;
	uint32_t tickets[TICKETS];
	uint64_t items_sent, items_received;
	struct record records[MOST_SLOTS + 1];
	uint64_t sent[MOST_SLOTS][MOST_ITEMS / 64];
	uint64_t received[MOST_SLOTS][MOST_ITEMS / 64];
};

enum phase { RUN, STOP };

static struct shared *area;		/* mapped at a different address in each process */
static struct record *me;
static int my_slot = MOST_SLOTS;
static uint64_t my_random;
static memwait_loop_t *my_loop;
static struct counted_op my_op;
static uint64_t my_last[MOST_SLOTS];	/* last item received from each sender */

#define load(p)		__atomic_load_n(p, __ATOMIC_SEQ_CST)
#define store(p, v)	__atomic_store_n(p, v, __ATOMIC_SEQ_CST)
#define add(p, n)	__atomic_add_fetch(p, n, __ATOMIC_SEQ_CST)

static uint32_t draw(uint32_t n)
{
	return (next_random(&my_random) >> 32) % n;
}

static bool one_in(uint32_t n)
{
	return !draw(n);
}

static bool running(void)
{
	return load(&area->phase) == RUN;
}

/*
 * Records the first failure. Processes of the teams then stop, so that their state can be
 * inspected.
 */
static __printf(1, 2) void broken(const char *format, ...)
{
	uint32_t no = 0;
	va_list args;

	if (__atomic_compare_exchange_n(&area->broken, &no, 1, false, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST)) {
		va_start(args, format);
		vsnprintf(area->why, sizeof(area->why), format, args);
		va_end(args);
		store(&area->broken, 2);
	}
	while (my_slot != MOST_SLOTS)
		pause();
}

static void expect(int result, int expected, const char *what)
{
	if (result != expected)
		broken("%s is %d (%s)", what, result, strerror(result > 0 ? result : -result));
}

#define CHECK_OK(call)	expect(call, 0, #call)

static struct timespec soon_time(void)
{
	uint64_t ns = now_ns(CLOCK_MONOTONIC) + draw(2 * NSEC_PER_MSEC);

	return (struct timespec){ .tv_sec = ns / NSEC_PER_SEC, .tv_nsec = ns % NSEC_PER_SEC };
}

/* Lets other processes run; a process may be killed here. */
static void give_way(void)
{
	volatile uint32_t n = draw(64);

	if (one_in(4))
		sched_yield();
	while (one_in(2) && n)
		n--;
}

static void step(const char *doing, const char *form)
{
	me->doing = doing;
	me->form = form;
	store(&me->steps, me->steps + 1);
}

/* Returns the operation of this process's loop, for one call. */
static memwait_op_t *op_begin(void)
{
	my_op.calls = 0;
	return &my_op.op;
}

/*
 * Completes a call and returns its result. Sometimes cancels the operation, and then returns
 * ECANCELED.
 */
static int op_end(int ret)
{
	if (ret != EINPROGRESS)
		return ret;
	if (one_in(8)) {
		give_way();
		if (one_in(2) && memwait_loop_dispatch(my_loop, MEMWAIT_ALL) < 0)
			broken("dispatch");
		ret = ECANCELED;
		if (!memwait_op_cancel(&my_op.op))
			return ret;
	}
	ret = dispatch_until(my_loop, &my_op.calls, 1);
	if (ret)
		broken("dispatch: %d", ret);
	return my_op.result;
}

/* The ways to wait. */
enum form { TRY, UNTIL, ASYNC_UNTIL, ASYNC, BLOCK, FORMS };

static const char *const form_names[FORMS] = {
	"try", "until", "async, until", "async", "block"
};

static enum form draw_form(const char *doing)
{
	static const enum form forms[] = { TRY, UNTIL, ASYNC_UNTIL, ASYNC, ASYNC, BLOCK, BLOCK,
					   BLOCK };
	enum form how = forms[draw(ARRAY_SIZE(forms))];

	step(doing, form_names[how]);
	return how;
}

/* Calls the library function in the form @how. @try is the form that does not wait. */
#define CALL_IN_FORM(how, try, until, wait, time, op, ...)				\
({											\
	int ret_;									\
											\
	switch (how) {									\
	case TRY:									\
		ret_ = (try);								\
		break;									\
	case UNTIL:									\
		ret_ = until(__VA_ARGS__, CLOCK_MONOTONIC, time);			\
		break;									\
	case ASYNC_UNTIL:								\
		ret_ = until##_async(__VA_ARGS__, CLOCK_MONOTONIC, time, op);		\
		break;									\
	case ASYNC:									\
		ret_ = wait##_async(__VA_ARGS__, op);					\
		break;									\
	default:									\
		ret_ = wait(__VA_ARGS__);						\
	}										\
	ret_;										\
})

static int call_mutex(struct guarded *g, enum form how, const struct timespec *time,
		      memwait_op_t *op)
{
	return CALL_IN_FORM(how, memwait_mutex_trylock(&g->mutex), memwait_mutex_clocklock,
			    memwait_mutex_lock, time, op, &g->mutex);
}

static int call_writer(struct guarded *g, enum form how, const struct timespec *time,
		       memwait_op_t *op)
{
	return CALL_IN_FORM(how, memwait_rwlock_trywrlock(&g->rwlock), memwait_rwlock_clockwrlock,
			    memwait_rwlock_wrlock, time, op, &g->rwlock);
}

static int call_reader(struct guarded *g, enum form how, const struct timespec *time,
		       memwait_op_t *op)
{
	return CALL_IN_FORM(how, memwait_rwlock_tryrdlock(&g->rwlock), memwait_rwlock_clockrdlock,
			    memwait_rwlock_rdlock, time, op, &g->rwlock);
}

static int call_sem(struct guarded *g, enum form how, const struct timespec *time,
		    memwait_op_t *op)
{
	return CALL_IN_FORM(how, memwait_sem_trywait(&g->sem), memwait_sem_clockwait,
			    memwait_sem_wait, time, op, &g->sem);
}

/*
 * A lock built from word functions. The word contains the id of the owner, or 0, and the flag
 * CONTENDED.
 */
#define CONTENDED	(MEMWAIT_OWNER_MASK + 1)

static int wait_for_word(uint64_t *word, uint64_t old, enum form how, const struct timespec *time)
{
	const struct timespec past = { 0, 0 };
	int ret;

	switch (how) {
	case TRY:
		return memwait_wait64(word, old, &past, MEMWAIT_OWNED);
	case ASYNC:
	case ASYNC_UNTIL:
		ret = memwait_wait64_async(word, old, how == ASYNC ? NULL : time, MEMWAIT_OWNED,
					   op_begin());
		if (ret != MEMWAIT_PENDING)
			return ret;
		ret = op_end(EINPROGRESS);
		return ret == ECANCELED ? MEMWAIT_TIMED_OUT : ret;
	default:
		return memwait_wait64(word, old, how == UNTIL ? time : NULL, MEMWAIT_OWNED);
	}
}

static bool change_word(uint64_t *word, uint64_t *old, uint64_t new)
{
	return __atomic_compare_exchange_n(word, old, new, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

/*
 * This is the algorithm of owner.c in the library. If a woken process gives up, it wakes the next
 * process.
 */
static int call_word(struct guarded *g, enum form how, const struct timespec *time,
		     memwait_op_t *op)
{
	uint64_t old = 0, id;
	bool woken = false;
	int ret;

	CHECK_OK(memwait_owner(&id));
	if (change_word(&g->word, &old, id))
		return 0;
	for (;;) {
		if (!old && change_word(&g->word, &old, id | CONTENDED))
			return 0;
		if (!old || (!(old & CONTENDED) && !change_word(&g->word, &old, old | CONTENDED)))
			continue;
		old |= CONTENDED;
		ret = wait_for_word(&g->word, old, how, time);
		if (ret == MEMWAIT_TIMED_OUT || ret < 0)
			break;
		woken |= ret != MEMWAIT_NOT_EQUAL;
		/* A process has died, but not necessarily the owner. */
		if (ret == MEMWAIT_OWNER_DIED &&
		    wait_for_word(&g->word, old, TRY, NULL) == MEMWAIT_OWNER_DIED &&
		    change_word(&g->word, &old, id | CONTENDED)) {
			ret = EOWNERDEAD;
			return ret;
		}
		old = load(&g->word);
	}
	if (woken)
		memwait_notify(&g->word, 1, 0);
	return ret < 0 ? -ret : ETIMEDOUT;
}

static int unlock_word(struct guarded *g)
{
	if (__atomic_exchange_n(&g->word, 0, __ATOMIC_SEQ_CST) & CONTENDED)
		return memwait_notify(&g->word, 1, 0) < 0;
	return 0;
}

#define GIVE(name, call)	ADAPTER(name, struct guarded *g, call)

GIVE(unlock_mutex, memwait_mutex_unlock(&g->mutex))
GIVE(unlock_rwlock, memwait_rwlock_unlock(&g->rwlock))
GIVE(post, memwait_sem_post(&g->sem))
GIVE(make_mutex_consistent, memwait_mutex_consistent(&g->mutex))
GIVE(make_rwlock_consistent, memwait_rwlock_consistent(&g->rwlock))
GIVE(no_op, 0)

struct calls {
	int (*take)(struct guarded *g, enum form how, const struct timespec *time,
		    memwait_op_t *op);
	int (*give)(struct guarded *g);
	int (*make_consistent)(struct guarded *g);
};

static const struct calls mutex_calls = { call_mutex, unlock_mutex, make_mutex_consistent };
static const struct calls write_calls = { call_writer, unlock_rwlock, make_rwlock_consistent };
static const struct calls read_calls = { call_reader, unlock_rwlock, make_rwlock_consistent };
static const struct calls sem_calls = { call_sem, post, NULL };
static const struct calls word_calls = { call_word, unlock_word, no_op };

#define RECURSIVE_TOO	(MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_RECURSIVE)
#define ERRORCHECK_TOO	(MEMWAIT_MUTEX_ROBUST | MEMWAIT_MUTEX_ERRORCHECK)

static const struct kind {
	const char *name;
	const struct calls *calls;
	unsigned int flags;
	bool robust;
} kinds[OBJECTS] = {
	[ROBUST] = { "robust", &mutex_calls, MEMWAIT_MUTEX_ROBUST, true },
	[ROBUST_RECURSIVE] = { "robust, recursive", &mutex_calls, RECURSIVE_TOO, true },
	[ROBUST_ERRORCHECK] = { "robust, errorcheck", &mutex_calls, ERRORCHECK_TOO, true },
	[ROBUST_RWLOCK] = { "robust rwlock", &write_calls, MEMWAIT_RWLOCK_ROBUST, true },
	[ROBUST_WORD] = { "robust word", &word_calls, 0, true },
	[NORMAL] = { "normal", &mutex_calls, MEMWAIT_MUTEX_NORMAL, false },
	[FAIR] = { "fair", &mutex_calls, MEMWAIT_MUTEX_FAIR, false },
	[TOKENS] = { "semaphore", &sem_calls, 0, false },
	[QUEUE] = { "queue", &mutex_calls, MEMWAIT_MUTEX_NORMAL, false },
	[ROBUST_QUEUE] = { "robust queue", &mutex_calls, MEMWAIT_MUTEX_ROBUST, true },
};

static void put_hand(int o, enum hand hand)
{
	store(&me->hands[o], hand);
}

/*
 * Called when the lock was acquired with the result @ret. The data must be as the last owner left
 * it. EOWNERDEAD is recorded before the lock is recorded as held, so that the record of EOWNERDEAD
 * survives a death.
 */
static void enter(int o, int ret)
{
	struct guarded *g = &area->objects[o];

	if (ret && (ret != EOWNERDEAD || !kinds[o].robust))
		broken("%s: %s", kinds[o].name, strerror(ret));
	if (ret == EOWNERDEAD) {
		store(&g->died, g->died + 1);
		store(&g->two, g->one);
		store(&g->inside, 0);
		store(&g->ruined, 0);
	}
	put_hand(o, HELD);
	if (o == TOKENS) {
		add(&g->turns, 1);
		give_way();
		return;
	}
	if (g->inside || g->one != g->two)
		broken("%s: slot %d acquired it, but slot %d holds it; %llu, %llu", kinds[o].name,
		       my_slot, (int)g->inside - 1, (unsigned long long)g->one,
		       (unsigned long long)g->two);
	store(&g->inside, my_slot + 1);
	store(&g->one, g->one + 1);
	give_way();
	store(&g->two, g->two + 1);
	store(&g->inside, 0);
	store(&g->turns, g->turns + 1);
	if (ret == EOWNERDEAD && o == ROBUST_ERRORCHECK && one_in(4))
		store(&g->ruined, 1);
	else if (ret == EOWNERDEAD)
		expect(kinds[o].calls->make_consistent(g), 0, "consistent");
}

static void leave(int o)
{
	put_hand(o, GIVING);
	expect(kinds[o].calls->give(&area->objects[o]), 0, kinds[o].name);
	put_hand(o, FREE);
}

/* Called when the lock is held for reading, or for writing after EOWNERDEAD. */
static void enter_to_read(int o, int ret)
{
	struct guarded *g = &area->objects[o];

	if (ret == EOWNERDEAD) {
		enter(o, ret);
		return;
	}
	put_hand(o, HELD);
	expect(ret, 0, "read lock");
	if (load(&g->inside) || load(&g->one) != load(&g->two))
		broken("%s: held by a reader and by slot %d", kinds[o].name, (int)g->inside - 1);
	give_way();
	add(&g->turns, 1);
}

/* The lock is not recoverable. All its users must detect that. */
static void give_up_ruined(int o)
{
	struct guarded *g = &area->objects[o];

	if (!load(&g->ruined))
		broken("%s: not recoverable", kinds[o].name);
	add(&g->turns, 1);
	put_hand(o, RUINED);
}

static bool is_taken(int ret)
{
	return !ret || ret == EOWNERDEAD;
}

static bool has_given_up(int ret)
{
	return ret == EBUSY || ret == EAGAIN || ret == ETIMEDOUT || ret == ECANCELED;
}

static int take(int o, const struct calls *calls)
{
	struct guarded *g = &area->objects[o];
	struct timespec time = soon_time();
	int ret;

	put_hand(o, TAKING);
	ret = op_end(calls->take(g, draw_form(kinds[o].name), &time, op_begin()));
	if (has_given_up(ret))
		put_hand(o, FREE);
	else if (ret == ENOTRECOVERABLE)
		give_up_ruined(o);
	return ret;
}

static void lock_twice(int o)
{
	struct guarded *g = &area->objects[o];

	if (o == ROBUST_RECURSIVE) {
		CHECK_OK(memwait_mutex_lock(&g->mutex));
		give_way();
		CHECK_OK(memwait_mutex_unlock(&g->mutex));
	} else if (o == ROBUST_ERRORCHECK) {
		expect(memwait_mutex_lock(&g->mutex), EDEADLK, "locked twice");
	}
}

/*
 * Sometimes acquires a second lock, which follows the first lock in the list, so that no deadlock
 * can occur.
 */
static void use(int o, const struct calls *calls)
{
	int ret = take(o, calls);

	if (!is_taken(ret))
		return;
	if (calls == &read_calls)
		enter_to_read(o, ret);
	else
		enter(o, ret);
	if (one_in(8))
		lock_twice(o);
	if (one_in(8) && o + 1 < QUEUE && calls != &read_calls) {
		int other = o + 1 + draw(QUEUE - o - 1);

		if (load(&me->hands[other]) == FREE)
			use(other, kinds[other].calls);
	}
	leave(o);
}

struct in_callback {
	int object;
	int calls;
};

static void use_in_callback(memwait_op_t *op, int ret, void *data)
{
	struct in_callback *in = data;

	in->calls++;
	enter(in->object, ret);
	put_hand(in->object, GIVING);
}

/* The library unlocks the lock after the callback. */
static void execute(int o)
{
	struct in_callback in = { .object = o };
	memwait_op_t op;
	int ret;

	step(kinds[o].name, "execute");
	CHECK_OK(memwait_op_init(&op, my_loop, use_in_callback, &in));
	put_hand(o, TAKING);
	ret = memwait_mutex_execute_locked(&area->objects[o].mutex, &op);
	if (ret == EINPROGRESS)
		ret = dispatch_until(my_loop, &in.calls, 1);
	expect(ret, 0, "execute");
	put_hand(o, FREE);
}

static bool executes(int o)
{
	return o == ROBUST || o == NORMAL || o == FAIR;
}

/*
 * Most processes pick the same lock. A process continues to pick a ruined lock until it knows that
 * the lock is ruined.
 */
static int pick_lock(void)
{
	uint32_t o = now_ns(CLOCK_MONOTONIC) / HOT % QUEUE;

	if (load(&area->objects[ROBUST_ERRORCHECK].ruined))
		o = ROBUST_ERRORCHECK;
	return one_in(4) || load(&me->hands[o]) == RUINED ? draw(QUEUE) : o;
}

static void use_locks(int unused)
{
	while (running()) {
		int o = pick_lock();

		if (load(&me->hands[o]) == RUINED)
			sched_yield();
		else if (executes(o) && one_in(4))
			execute(o);
		else
			use(o, kinds[o].calls);
	}
}

static void read_locks(int o)
{
	while (running()) {
		use(o, &read_calls);
		sched_yield();
	}
}

#endif /* DEATHS_TEST_H */
