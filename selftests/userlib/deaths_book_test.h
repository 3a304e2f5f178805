/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The accounts of the deaths test: which processes run, what the dead processes held, and which
 * actions the test performs instead of the dead processes.
 */
#ifndef DEATHS_BOOK_TEST_H
#define DEATHS_BOOK_TEST_H

#include "deaths_work_test.h"
#include <sys/prctl.h>

#define ROUND		(2 * NSEC_PER_SEC)
#define ROUND_DEATHS	20		/* minimum, for slow machines */
#define PATIENCE	(60 * NSEC_PER_SEC * slowness())
#define LULL		(5 * NSEC_PER_MSEC)	/* until a lock is suspected */

struct team {
	const char *name;
	void (*work)(int object);
	int object;
	int least, most;	/* number of processes in a round */
	bool locks, meets, helps;
	bool never_killed;		/* a reader that dies would count as a reader forever */
};

static const struct team teams[] = {
	{ "lockers", use_locks, 0, 2, 5, .locks = true },
	{ "readers", read_locks, ROBUST_RWLOCK, 0, 2, .never_killed = true },
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

/*
 * Counts since the last account: deaths of processes that held a lock, and of processes that may
 * have held it.
 */
static struct book {
	uint64_t sure, maybe;
	uint64_t all_sure, all_maybe, all_owners_died, all_turns;
	/*
	 * For locks that are not robust: a dead process may hold the lock until another process
	 * acquires it.
	 */
	bool doubted;
	uint64_t doubted_at, left_locked;
	uint64_t posted;	/* tokens that the test posted for dead processes */
} books[OBJECTS];

enum { USE_QUEUE = OBJECTS, USE_ROBUST_QUEUE, CHANNEL, BARRIER, GROUP, WATCHES };

static struct watch {
	uint64_t progress, since;
} watches[WATCHES];

static const struct team *slot_team[MOST_SLOTS];
static bool present[MOST_SLOTS];	/* slots used in this round */
static int slots, members, memfd;
static uint64_t births, deaths, rounds, ruins;
static uint64_t may_have_sent, may_have_received, unsure_of, all_lost, all_unsure;
static struct counted_op arrivals[MOST_SLOTS];
static uint64_t seed;

static struct record *record_of(int slot)
{
	return &area->records[slot];
}

static bool is_alive(int slot)
{
	return record_of(slot)->pid;
}

static void map_area(void)
{
	void *old = area, *hint = NULL;

	/* Map the memory at another address, if there is room. */
	if (old)
		hint = (void *)((uintptr_t)old - (2 + draw(1000)) * (sizeof(*area) / 4096 * 4096));
	area = mmap(hint, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (old)
		munmap(old, sizeof(*area));
}

static void run_team_member(int slot)
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
		run_team_member(slot);
	if (pid < 0)
		broken("fork");
	store(&record->pid, pid > 0 ? pid : 0);
}

/*
 * Bits in the second byte of a mutex. A FAIR mutex can have HANDED instead of LOCKED: the next
 * waiter that is notified holds it. See lock.c.
 */
#define HANDED	4
#define LOCKED	1

static uint32_t left_of(const struct guarded *g, int o)
{
	const unsigned int taken = o == FAIR ? LOCKED | HANDED : LOCKED;
	int value;

	/* A free mutex may be reserved for waiters. */
	if (o != TOKENS)
		return ((const unsigned char *)&g->mutex)[1] & taken;
	memwait_sem_getvalue((memwait_sem_t *)&g->sem, &value);
	return !value;
}

/*
 * Whether the lock is held, but by no living process. A process that has acquired the lock, but has
 * not recorded this yet, is not asleep. If the lock is free at times, the second look finds it
 * free, or finds another acquisition, or finds the process that holds it.
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

			if (!is_alive(slot) || hand == FREE || hand == RUINED)
				continue;
			if (hand == HELD || hand == GIVING ||
			    thread_state(record_of(slot)->pid) != 'S')
				return false;
		}
	}
	return turns == load(&g->turns);
}

/*
 * Unlocks a lock that a dead process held. A FAIR mutex with HANDED set is handed over, as the dead
 * process would have done. A queue may have lost a signal.
 */
static void unlock_for_dead_process(int o)
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
	unlock_for_dead_process(o);
}

/* If no token is left and all processes wait for tokens, dead processes held the tokens. */
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

static void account_for_hand(int o, enum hand hand)
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
		unlock_for_dead_process(o);
	} else {
		book->doubted = true;
		book->doubted_at = load(&area->objects[o].turns);
	}
}

static void account_for_tickets(int slot)
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

/* Accounts for everything that a process held when it died, according to its record. */
static void account_for_death(int slot)
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
	account_for_tickets(slot);
	for (o = 0; o < OBJECTS; o++) {
		account_for_hand(o, record->hands[o]);
		record->hands[o] = FREE;
	}
	/* Send the signal that the process did not send. */
	for (o = 0; o < OBJECTS; o++) {
		struct guarded *g = &area->objects[o];

		if (record->unsignalled[o])
			CHECK_OK(memwait_cond_signal(cond_of(g, record->unsignalled[o])));
		record->unsignalled[o] = NO_CHANGE;
	}
}

static void has_ended(int slot, int status)
{
	broken("slot %d ended with status %x, in \"%s, %s\"", slot, status, record_of(slot)->doing,
	       record_of(slot)->form);
}

/* Returns a value that changes whenever the process records something. */
static uint64_t trace_of(const struct record *record)
{
	uint64_t trace = load(&record->steps) + load(&record->arrived) + load(&record->returned) +
			 load(&record->sending) + load(&record->receiving);
	int o;

	for (o = 0; o < OBJECTS; o++)
		trace = trace * 31 + load(&record->hands[o]) + load(&record->unsignalled[o]);
	return trace;
}

/* Returns shortly after the process has recorded something, when the process is inside a call. */
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

/* Kills a process, usually after it has made some calls. Returns the slot, or -1. */
static int kill_one(void)
{
	int slot = draw(slots), status;

	if (!is_alive(slot) || slot_team[slot]->never_killed ||
	    (!load(&record_of(slot)->steps) && !one_in(8)))
		return -1;
	if (one_in(2))
		await_trace(record_of(slot));
	kill(record_of(slot)->pid, SIGKILL);
	if (waitpid(record_of(slot)->pid, &status, 0) < 0 || (status && status != SIGKILL))
		has_ended(slot, status);
	account_for_death(slot);
	deaths++;
	return slot;
}

/* Reaps processes that have exited. Returns how many are left. */
static int reap(void)
{
	int slot, status, living = 0;

	for (slot = 0; slot < slots; slot++) {
		if (!is_alive(slot))
			continue;
		if (waitpid(record_of(slot)->pid, &status, WNOHANG) <= 0) {
			living++;
			continue;
		}
		if (status || running())
			has_ended(slot, status);
		account_for_death(slot);
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

/*
 * No process uses the object any longer. Processes that died while they used the object must not
 * prevent its destruction.
 */
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

/* Initialises a ruined lock again, once all users have received ENOTRECOVERABLE. */
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

/*
 * Processes may have died in their call of memwait_waitgroup_done(), before or after the call took
 * effect.
 */
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
		broken("wait group: %llu are missing, %llu are uncertain",
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

/* Begins the next epoch once all processes have passed the end of the last one. */
static void tend_group(void)
{
	static uint32_t stopped;
	int slot;

	/* Possibly no process that claims tickets is left. */
	if (!running())
		claim_tickets();
	if (!all_done())
		return;
	for (slot = 0; slot < slots; slot++) {
		if (is_alive(slot) && slot_team[slot]->helps &&
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
		left += area->members[slot] && is_alive(slot);
	return left;
}

/* The test itself arrives for each member that has exited, as long as other members are left. */
static void arrive_for_members(void)
{
	int slot, ret;

	if (memwait_loop_dispatch(my_loop, MEMWAIT_ALL) < 0)
		broken("dispatch");
	for (slot = 0; slot < slots && members_left(); slot++) {
		struct record *record = record_of(slot);

		if (!area->members[slot] || is_alive(slot) ||
		    memwait_op_pending(&arrivals[slot].op))
			continue;
		store(&record->arrived, stamp());
		ret = memwait_barrier_wait_async(&area->barrier, &arrivals[slot].op);
		if (ret == MEMWAIT_BARRIER_SERIAL_THREAD)
			store(&record->returned, stamp());
		else if (ret)
			expect(ret, EINPROGRESS, "barrier");
	}
}

static void cancel_arrivals(void)
{
	int slot;

	for (slot = 0; slot < slots; slot++) {
		memwait_op_cancel(&arrivals[slot].op);
		record_of(slot)->arrived = 0;
		record_of(slot)->returned = 0;
	}
}

/*
 * Marks the queue as finished. The broadcast is sent with the lock held, so one broadcast is
 * sufficient.
 */
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

/* In half of the rounds another process begins to close the channel and is killed. */
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
