/* SPDX-License-Identifier: GPL-2.0 */
/* The book of the deaths test: who is there, what the dead leave, what is done in their place. */
#ifndef DEATHS_BOOK_TEST_H
#define DEATHS_BOOK_TEST_H

#include "deaths_trades_test.h"
#include <sys/prctl.h>

#define ROUND		(2 * NSEC_PER_SEC)
#define ROUND_DEATHS	20		/* at least, on a slow machine */
#define PATIENCE	(60 * NSEC_PER_SEC * slowness())
#define LULL		(5 * NSEC_PER_MSEC)	/* until a lock is suspected to be a dead one's */

struct team {
	const char *name;
	void (*work)(int object);
	int object;
	int least, most;	/* so many are there in a round */
	bool locks, meets, helps;
	bool is_spared;		/* a reader that dies is a reader for ever */
};

static const struct team teams[] = {
	{ "lockers", use_locks, 0, 2, 5, .locks = true },
	{ "readers", read_locks, ROBUST_RWLOCK, 0, 2, .is_spared = true },
	{ "producers", produce, QUEUE, 1, 2, .locks = false },
	{ "consumers", consume, QUEUE, 1, 2, .locks = false },
	{ "robust producers", produce, ROBUST_QUEUE, 1, 2, .locks = false },
	{ "robust consumers", consume, ROBUST_QUEUE, 1, 2, .locks = false },
	{ "senders", send_items, 0, 1, 2, .locks = false },
	{ "receivers", receive_items, 0, 1, 2, .locks = false },
	{ "members", meet, 0, 2, 4, .meets = true },
	{ "helpers", help, 0, 1, 3, .helps = true },
	{ "jugglers", juggle, 0, 0, 2, .locks = true, .meets = true, .helps = true },
};

/* Deaths with a lock, and with one maybe: since the last account. */
static struct book {
	uint64_t sure, maybe;
	uint64_t all_sure, all_maybe, all_told, all_turns;
	/* Of what is not robust: whether it may be a dead one's, as long as there was no turn. */
	bool doubted;
	uint64_t doubted_at, left_locked;
	uint64_t posted;	/* tokens, in the place of the dead */
} books[OBJECTS];

enum { TRADE = OBJECTS, ROBUST_TRADE, CHANNEL, BARRIER, GROUP, WATCHES };

static struct watch {
	uint64_t progress, since;
} watches[WATCHES];

static const struct team *slot_team[MOST_SLOTS];
static bool present[MOST_SLOTS];	/* in this round */
static int slots, members, memfd;
static uint64_t births, deaths, rounds, ruins;
static uint64_t may_have_sent, may_have_received, unsure_of, all_lost, all_unsure;
static struct counted_op stand_ins[MOST_SLOTS];
static uint64_t seed;

static struct record *record_of(int slot)
{
	return &area->records[slot];
}

static bool lives(int slot)
{
	return record_of(slot)->pid;
}

static void map_area(void)
{
	void *old = area, *hint = NULL;

	/* Somewhere else, if there is room. */
	if (old)
		hint = (void *)((uintptr_t)old - (2 + draw(1000)) * (sizeof(*area) / 4096 * 4096));
	area = mmap(hint, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (old)
		munmap(old, sizeof(*area));
}

static void live(int slot)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	my_random = (seed + births) * 0x9e3779b97f4a7c15ULL | 1;
	map_area();
	if (area == MAP_FAILED || memwait_loop_new(&my_loop, 0) ||
	    memwait_op_init(&my_op.op, my_loop, count_call, &my_op))
		_exit(2);
	memset(my_last, 0, sizeof(my_last));
	my_slot = slot;
	me = record_of(slot);
	slot_team[slot]->work(slot_team[slot]->object);
	_exit(0);
}

static void start_process(int slot)
{
	struct record *record = record_of(slot);
	pid_t pid;

	births++;
	if (!record->returned && slot_team[slot]->meets)
		record->returned = stamp();
	record->passed = 0;
	record->steps = 0;
	record->doing = "to start";
	record->form = "";
	pid = fork();
	if (!pid)
		live(slot);
	if (pid < 0)
		broken("fork");
	store(&record->pid, pid > 0 ? pid : 0);
}

/*
 * Bits of a mutex, in its second byte. HANDED, of a fair one in place of LOCKED: the next that is
 * notified there has it. See lock.c.
 */
#define HANDED	4
#define LOCKED	1

static uint32_t left_of(const struct guarded *g, int o)
{
	const unsigned int taken = o == FAIR ? LOCKED | HANDED : LOCKED;
	int value;

	/* A free one may be kept for those that wait. */
	if (o != TOKENS)
		return ((const unsigned char *)&g->mutex)[1] & taken;
	memwait_sem_getvalue((memwait_sem_t *)&g->sem, &value);
	return !value;
}

/*
 * Whether it is taken, and no living process has it. A process that has just got it, and has not
 * written that down, does not sleep. If it is free now and then, the second look finds it so, or
 * finds a turn, or the process that has it.
 */
static bool is_left_locked(int o)
{
	struct guarded *g = &area->objects[o];
	uint64_t turns = load(&g->turns);
	int look, slot;

	for (look = 0; look < 2; look++) {
		if (!left_of(g, o))
			return false;
		for (slot = 0; slot < slots; slot++) {
			uint32_t hand = load(&record_of(slot)->hands[o]);

			if (!lives(slot) || hand == FREE || hand == RUINED)
				continue;
			if (hand == HELD || hand == GIVING ||
			    thread_state(record_of(slot)->pid) != 'S')
				return false;
		}
	}
	return turns == load(&g->turns);
}

/*
 * Unlocks it in the place of a dead process. If that has set HANDED, a fair mutex is handed over as
 * it would have done. With a queue a signal may be lost.
 */
static void unlock_for_the_dead(int o)
{
	struct guarded *g = &area->objects[o];
	unsigned char *byte;

	store(&g->two, g->one);
	store(&g->inside, 0);
	byte = (unsigned char *)&g->mutex + 1;
	if (o == FAIR && __atomic_load_n(byte, __ATOMIC_RELAXED) & HANDED) {
		if (memwait_notify(byte, 1, 0) == 1)
			return;
		__atomic_fetch_xor(byte, HANDED | LOCKED, __ATOMIC_RELAXED);
	}
	expect(kinds[o].calls->give(g), 0, kinds[o].name);
	if (o == QUEUE) {
		CHECK_OK(memwait_cond_broadcast(&g->filled));
		CHECK_OK(memwait_cond_broadcast(&g->freed));
	}
}

static void settle_doubt(int o)
{
	struct book *book = &books[o];
	uint64_t turns = load(&area->objects[o].turns);

	if (!book->doubted)
		return;
	if (turns != book->doubted_at) {
		book->doubted = false;
		return;
	}
	if (now_ns(CLOCK_MONOTONIC) - watches[o].since < LULL || !is_left_locked(o))
		return;
	book->doubted = false;
	book->left_locked++;
	unlock_for_the_dead(o);
}

/* If all tokens are gone, and all processes wait for them: the dead have had them. */
static void settle_tokens(void)
{
	struct book *book = &books[TOKENS];
	uint32_t i;

	if (now_ns(CLOCK_MONOTONIC) - watches[TOKENS].since < LULL || !is_left_locked(TOKENS))
		return;
	if (book->maybe < area->tokens + book->posted)
		broken("semaphore: nothing left of %u and %llu, and %llu may have died with one",
		       area->tokens, (unsigned long long)book->posted,
		       (unsigned long long)book->maybe);
	for (i = 0; i < area->tokens; i++)
		CHECK_OK(memwait_sem_post(&area->objects[TOKENS].sem));
	book->posted += area->tokens;
	book->left_locked++;
}

static void bury_hand(int o, enum hand hand)
{
	struct book *book = &books[o];
	bool sure = hand == HELD;

	if (hand == FREE || hand == RUINED)
		return;
	book->sure += sure;
	book->maybe += !sure;
	if (kinds[o].robust)
		return;
	if (o == TOKENS) {
		if (sure)
			CHECK_OK(memwait_sem_post(&area->objects[o].sem));
	} else if (sure) {
		unlock_for_the_dead(o);
	} else {
		book->doubted = true;
		book->doubted_at = load(&area->objects[o].turns);
	}
}

static void bury_tickets(int slot)
{
	int i;

	for (i = 0; i < TICKETS; i++) {
		uint32_t ticket = load(&area->tickets[i]);

		if (TICKET_SLOT(ticket) != slot)
			continue;
		if (TICKET_STATE(ticket) == CLAIMED) {
			store(&area->tickets[i], TICKET(FINISHING, MOST_SLOTS));
			CHECK_OK(memwait_waitgroup_done(&area->group));
			store(&area->tickets[i], TICKET(DONE, MOST_SLOTS));
		} else if (TICKET_STATE(ticket) == FINISHING) {
			unsure_of++;
			store(&area->tickets[i], TICKET(UNSURE, MOST_SLOTS));
		}
	}
}

/* What a process had when it died, as it has written it down. */
static void bury(int slot)
{
	struct record *record = record_of(slot);
	int o;

	store(&record->pid, 0);
	if (record->arrived > record->returned)
		store(&record->returned, stamp());
	if (record->sending) {
		may_have_sent++;
		record->next = record->sending + 1;
		record->sending = 0;
	}
	may_have_received += record->receiving;
	record->receiving = 0;
	bury_tickets(slot);
	for (o = 0; o < OBJECTS; o++) {
		bury_hand(o, record->hands[o]);
		record->hands[o] = FREE;
	}
	/* The signal that was to come. */
	for (o = 0; o < OBJECTS; o++) {
		struct guarded *g = &area->objects[o];

		if (record->tells[o])
			CHECK_OK(memwait_cond_signal(cond_of(g, record->tells[o])));
		record->tells[o] = NOBODY;
	}
}

static void has_ended(int slot, int status)
{
	broken("slot %d has ended with %x, in \"%s, %s\"", slot, status, record_of(slot)->doing,
	       record_of(slot)->form);
}

/* Changes whenever the process writes something down. */
static uint64_t trace_of(const struct record *record)
{
	uint64_t trace = load(&record->steps) + load(&record->arrived) + load(&record->returned) +
			 load(&record->sending) + load(&record->receiving);
	int o;

	for (o = 0; o < OBJECTS; o++)
		trace = trace * 31 + load(&record->hands[o]) + load(&record->tells[o]);
	return trace;
}

/* Until the process has written something down, and a bit longer: it is in a call by then. */
static void await_trace(const struct record *record)
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + NSEC_PER_MSEC / 4;
	uint64_t trace = trace_of(record);
	volatile uint32_t n = draw(1024);

	while (trace_of(record) == trace && now_ns(CLOCK_MONOTONIC) < end)
		;
	while (n)
		n--;
}

/* Most of those that die have done something. Returns the slot, or -1. */
static int kill_one(void)
{
	int slot = draw(slots), status;

	if (!lives(slot) || slot_team[slot]->is_spared ||
	    (!load(&record_of(slot)->steps) && !one_in(8)))
		return -1;
	if (one_in(2))
		await_trace(record_of(slot));
	kill(record_of(slot)->pid, SIGKILL);
	if (waitpid(record_of(slot)->pid, &status, 0) < 0 || (status && status != SIGKILL))
		has_ended(slot, status);
	bury(slot);
	deaths++;
	return slot;
}

/* Buries those that have ended by themselves. Returns how many are left. */
static int reap(void)
{
	int slot, status, living = 0;

	for (slot = 0; slot < slots; slot++) {
		if (!lives(slot))
			continue;
		if (waitpid(record_of(slot)->pid, &status, WNOHANG) <= 0) {
			living++;
			continue;
		}
		if (status || running())
			has_ended(slot, status);
		bury(slot);
	}
	return living;
}

static int init(int o)
{
	struct guarded *g = &area->objects[o];

	if (o == ROBUST_WORD)
		return 0;
	if (o == TOKENS)
		return memwait_sem_init(&g->sem, 0, area->tokens);
	if (o == ROBUST_RWLOCK)
		return memwait_rwlock_init(&g->rwlock, kinds[o].flags);
	return memwait_mutex_init(&g->mutex, kinds[o].flags);
}

/* Nobody uses it any more. That some have died while they did is no obstacle. */
static int destroy(int o)
{
	struct guarded *g = &area->objects[o];

	if (o == ROBUST_WORD)
		return 0;
	if (o == TOKENS)
		return memwait_sem_destroy(&g->sem);
	if (o == ROBUST_RWLOCK)
		return memwait_rwlock_destroy(&g->rwlock);
	return memwait_mutex_destroy(&g->mutex);
}

/* Once all that use it have been told that it is not recoverable, it is made anew. */
static void renew_ruined(int o)
{
	struct guarded *g = &area->objects[o];
	int slot;

	if (!load(&g->ruined))
		return;
	for (slot = 0; slot < slots; slot++) {
		if (present[slot] && slot_team[slot]->locks &&
		    load(&record_of(slot)->hands[o]) != RUINED)
			return;
	}
	expect(kinds[o].calls->take(g, TRY, NULL, NULL), ENOTRECOVERABLE, "what is ruined");
	CHECK_OK(destroy(o));
	CHECK_OK(init(o));
	store(&g->ruined, 0);
	for (slot = 0; slot < slots; slot++)
		store(&record_of(slot)->hands[o], FREE);
	ruins++;
}

/* Some have died while they called done: it has happened, or has not. */
static void settle_tickets(void)
{
	uint64_t unsure = 0, not_done = 0;
	int i, ret;

	for (i = 0; i < TICKETS; i++)
		unsure += TICKET_STATE(area->tickets[i]) == UNSURE;
	if (!unsure)
		return;
	while (!(ret = memwait_waitgroup_done(&area->group)))
		not_done++;
	expect(ret, EINVAL, "one too many");
	if (not_done > unsure)
		broken("wait group: %llu are missing, and %llu may be",
		       (unsigned long long)not_done, (unsigned long long)unsure);
	for (i = 0; i < TICKETS; i++)
		store(&area->tickets[i], TICKET(DONE, MOST_SLOTS));
}

static void begin_tickets(void)
{
	int i;

	CHECK_OK(memwait_waitgroup_add(&area->group, TICKETS));
	for (i = 0; i < TICKETS; i++)
		store(&area->tickets[i], TICKET(UNCLAIMED, 0));
}

static bool all_done(void)
{
	int i;

	for (i = 0; i < TICKETS; i++) {
		uint32_t state = TICKET_STATE(load(&area->tickets[i]));

		if (state != DONE && state != UNSURE)
			return false;
	}
	settle_tickets();
	return true;
}

/* Once all processes have passed the end of an epoch, the next one begins. */
static void tend_group(void)
{
	static uint32_t stopped;
	int slot;

	/* There may be nobody left to claim them. */
	if (!running())
		claim_tickets();
	if (!all_done())
		return;
	for (slot = 0; slot < slots; slot++) {
		if (lives(slot) && slot_team[slot]->helps &&
		    load(&record_of(slot)->passed) != area->epoch)
			return;
	}
	if (running())
		begin_tickets();
	else if (stopped == area->epoch)
		return;
	store(&area->epoch, area->epoch + 1);
	stopped = area->epoch;
	if (memwait_notify(&area->epoch, MEMWAIT_ALL, 0) < 0)
		broken("notify");
}

static int members_left(void)
{
	int slot, left = 0;

	for (slot = 0; slot < slots; slot++)
		left += area->members[slot] && lives(slot);
	return left;
}

/* The test itself arrives in the place of each member that is gone, as long as others are left. */
static void stand_in(void)
{
	int slot, ret;

	if (memwait_loop_dispatch(my_loop, MEMWAIT_ALL) < 0)
		broken("dispatch");
	for (slot = 0; slot < slots && members_left(); slot++) {
		struct record *record = record_of(slot);

		if (!area->members[slot] || lives(slot) ||
		    memwait_op_pending(&stand_ins[slot].op))
			continue;
		store(&record->arrived, stamp());
		ret = memwait_barrier_wait_async(&area->barrier, &stand_ins[slot].op);
		if (ret == MEMWAIT_BARRIER_SERIAL_THREAD)
			store(&record->returned, stamp());
		else if (ret)
			expect(ret, EINPROGRESS, "barrier");
	}
}

static void stand_down(void)
{
	int slot;

	for (slot = 0; slot < slots; slot++) {
		memwait_op_cancel(&stand_ins[slot].op);
		record_of(slot)->arrived = 0;
		record_of(slot)->returned = 0;
	}
}

/* No more will come: told with the lock held, so that once is enough. */
static void close_queue(int o)
{
	struct guarded *g = &area->objects[o];
	int ret;

	if (g->closed)
		return;
	ret = memwait_mutex_trylock(&g->mutex);
	if (ret == EBUSY)
		return;
	enter_queue(o, ret);
	store(&g->closed, 1);
	leave(o);
	CHECK_OK(memwait_cond_broadcast(&g->filled));
	CHECK_OK(memwait_cond_broadcast(&g->freed));
}

/* Half the time another process begins to close it, and is killed. */
static void close_channel(void)
{
	struct timespec time = { .tv_nsec = draw(NSEC_PER_MSEC) };
	pid_t pid;

	if (one_in(2)) {
		pid = fork_child();
		if (!pid) {
			memwait_channel_close(channel());
			_exit(0);
		}
		nanosleep(&time, NULL);
		kill_child(pid);
	}
	CHECK_OK(memwait_channel_close(channel()));
}

#endif /* DEATHS_BOOK_TEST_H */
