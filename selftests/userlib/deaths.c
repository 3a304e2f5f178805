// SPDX-License-Identifier: GPL-2.0
/*
 * Processes are killed at any instruction, and their effects are counted exactly. The processes use
 * one object of each kind in shared memory, which each process maps at a different address. They
 * block, try, give up, and wait in loops. They are killed at random times, one after another, and
 * replaced. No more may be lost than the killed processes held:
 *
 * - a ROBUST lock reports each owner that died while it held the lock, and no other owner; if the
 *   lock cannot be recovered, all waiters get ENOTRECOVERABLE; the data is as the last owner left
 *   it;
 * - any other mutex stays locked if its owner died, and the test unlocks it; a free mutex is
 *   acquired by its waiters;
 * - the value of a semaphore is the number of posts minus the number of waits that returned;
 * - producers and consumers wait for conditions, and no process sleeps while it could proceed;
 * - each item that was sent is received once, in the order of its sender, unless a killed process
 *   held it; a channel never loses capacity, and after it is closed all users end;
 * - no process passes a barrier before all have arrived, or a wait group before all are done; after
 *   that all processes pass.
 *
 * Each process records in shared memory what it is about to do, and then that it has done it.
 * Therefore only the call in which it dies is uncertain. Every other second all processes end, and
 * the accounts must balance. The test also fails if processes could make progress with an object
 * and none does. In this case it prints the words of the object and the state of each process.
 *
 * MEMWAIT_DEATHS_SECONDS sets the duration, and MEMWAIT_DEATHS_SEED the seed of all random choices
 * (the scheduler adds further randomness). MEMWAIT_DEATHS_ONLY is a list of the teams that run.
 */
#include "deaths_book_test.h"

/*
 * If the channel is empty, sends an item that ends its receiver. The test itself receives such an
 * item at the end if no receiver is left.
 */
static void poison_receivers(void)
{
	struct item item = { .sender = POISON };
	int ret;

	if (memwait_channel_length(channel()))
		return;
	ret = memwait_channel_trysend(channel(), &item, sizeof(item));
	if (ret != EAGAIN && ret != EBUSY)
		expect(ret, 0, "poison");
}

/* Whether a process that does this work is alive. */
static bool has_team(void (*work)(int object), int object)
{
	int slot;

	for (slot = 0; slot < slots; slot++) {
		if (is_alive(slot) && slot_team[slot]->work == work &&
		    slot_team[slot]->object == object)
			return true;
	}
	return false;
}

static bool is_being_taken(int o)
{
	int slot;

	for (slot = 0; slot < slots; slot++) {
		if (load(&record_of(slot)->hands[o]) == TAKING)
			return true;
	}
	return false;
}

static bool queue_can_progress(int o)
{
	uint64_t there = load(&area->objects[o].made) - load(&area->objects[o].taken);

	return there ? has_team(consume, o) || (there < area->queue_size && has_team(produce, o)) :
		       has_team(produce, o);
}

static bool can_transfer(void)
{
	bool sends = false, receives = false;
	size_t there = memwait_channel_length(channel());
	int slot;

	for (slot = 0; slot < slots; slot++) {
		void (*work)(int object) = slot_team[slot]->work;

		if (!is_alive(slot))
			continue;
		receives |= work == juggle || work == receive_items;
		sends |= (work == juggle || work == send_items) &&
			 load(&record_of(slot)->next) < MOST_ITEMS;
	}
	return (there && receives) || (there < area->channel_size && sends);
}

static bool can_meet(void)
{
	return members && members_left() == members;
}

/* The epoch can end if all its tickets are done, or if a process that completes them is present. */
static bool can_pass(void)
{
	int slot;

	if (!all_done() && !has_team(help, 0))
		return false;
	for (slot = 0; slot < slots; slot++) {
		if (is_alive(slot) && slot_team[slot]->helps)
			return true;
	}
	return false;
}

/* Returns whether processes that use this object can and must proceed. */
static bool is_due(int watch)
{
	switch (watch) {
	case USE_QUEUE:
		return queue_can_progress(QUEUE);
	case USE_ROBUST_QUEUE:
		return queue_can_progress(ROBUST_QUEUE);
	case CHANNEL:
		return can_transfer();
	case BARRIER:
		return can_meet();
	case GROUP:
		return can_pass();
	default:
		return is_being_taken(watch);
	}
}

static uint64_t progress_of(int watch)
{
	struct guarded *objects = area->objects;

	switch (watch) {
	case USE_QUEUE:
		return load(&objects[QUEUE].made) + load(&objects[QUEUE].taken);
	case USE_ROBUST_QUEUE:
		return load(&objects[ROBUST_QUEUE].made) + load(&objects[ROBUST_QUEUE].taken);
	case CHANNEL:
		return load(&area->items_sent) + load(&area->items_received);
	case BARRIER:
		return load(&area->meetings);
	case GROUP:
		return load(&area->epoch);
	default:
		return load(&objects[watch].turns);
	}
}

static const char *name_of(int watch)
{
	static const char *const names[] = { "queue", "robust queue", "channel", "barrier",
					     "wait group" };

	return watch < OBJECTS ? kinds[watch].name : names[watch - OBJECTS];
}

/*
 * Checks the progress with all objects. While all processes end, let_them_end() checks the time
 * instead.
 */
static void watch_all(void)
{
	uint64_t now = now_ns(CLOCK_MONOTONIC);
	int i;

	for (i = 0; i < WATCHES; i++) {
		struct watch *watch = &watches[i];
		uint64_t progress = progress_of(i);

		if (progress != watch->progress || !watch->since) {
			watch->progress = progress;
			watch->since = now;
		} else if (now - watch->since > PATIENCE && running() && is_due(i)) {
			broken("%s: no progress", name_of(i));
		}
	}
}

static void tend(void)
{
	watch_all();
	settle_doubt(NORMAL);
	settle_doubt(FAIR);
	settle_doubt(QUEUE);
	settle_tokens();
	renew_ruined(ROBUST_ERRORCHECK);
	tend_group();
}

static bool continues(uint64_t end)
{
	return now_ns(CLOCK_MONOTONIC) < end && !load(&area->broken);
}

static void pause_a_moment(void)
{
	struct timespec time = { .tv_nsec = NSEC_PER_MSEC / 10 + draw(5 * NSEC_PER_MSEC) };

	/* Half of the pauses are short, so that there are many pauses. */
	if (one_in(2))
		time.tv_nsec /= 10;
	nanosleep(&time, NULL);
}

/*
 * After a death all processes that can proceed must do so before a new process starts, because the
 * new process might wake processes that sleep by mistake.
 */
static void await_progress(void)
{
	uint64_t before[WATCHES];
	int i;

	for (i = 0; i < WATCHES; i++)
		before[i] = progress_of(i);
	for (i = 0; i < WATCHES; i++) {
		while (progress_of(i) == before[i] && is_due(i) && !load(&area->broken)) {
			reap();
			tend();
			sched_yield();
		}
	}
}

static void let_them_run(void)
{
	uint64_t least = deaths + ROUND_DEATHS, end;
	int slot;

	store(&area->phase, RUN);
	for (slot = 0; slot < slots; slot++) {
		if (present[slot])
			start_process(slot);
	}
	end = now_ns(CLOCK_MONOTONIC) + ROUND;
	while (continues(end) || (deaths < least && !load(&area->broken))) {
		pause_a_moment();
		slot = kill_one();
		if (slot >= 0 && one_in(3))
			await_progress();
		if (slot >= 0 && !load(&area->broken))
			start_process(slot);
		reap();
		tend();
	}
}

/* All processes end by themselves, except some processes that are killed during this time. */
static void let_them_end(void)
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE;
	bool closes = rounds % 2;

	store(&area->phase, STOP);
	if (closes)
		close_channel();
	while (reap() && !load(&area->broken)) {
		if (one_in(4))
			kill_one();
		tend();
		close_queue(QUEUE);
		close_queue(ROBUST_QUEUE);
		arrive_for_members();
		if (!closes)
			poison_receivers();
		if (!continues(end))
			broken("not all processes ended");
		pause_a_moment();
	}
}

static void account_for_lock(int o)
{
	struct guarded *g = &area->objects[o];
	struct book *book = &books[o];
	int ret;

	if (!kinds[o].robust && left_of(g, o)) {
		if (!book->doubted)
			broken("%s: locked, but no process holds it", kinds[o].name);
		unlock_for_dead_process(o);
	}
	ret = kinds[o].calls->take(g, TRY, NULL, NULL);
	if (ret == ENOTRECOVERABLE) {
		expect(g->ruined, 1, "not recoverable");
	} else {
		enter(o, ret);
		store(&g->ruined, 0);
		if (ret == EOWNERDEAD && o == ROBUST_ERRORCHECK)
			kinds[o].calls->make_consistent(g);
		leave(o);
	}
	if (kinds[o].robust && (g->died < book->sure || g->died > book->sure + book->maybe))
		broken("%s: %llu died with it, %llu maybe; %llu times EOWNERDEAD", kinds[o].name,
		       (unsigned long long)book->sure, (unsigned long long)book->maybe,
		       (unsigned long long)g->died);
	CHECK_OK(destroy(o));
}

static void account_for_tokens(void)
{
	struct guarded *g = &area->objects[TOKENS];
	struct book *book = &books[TOKENS];
	uint64_t there = area->tokens + book->posted;
	unsigned int value;

	CHECK_OK(memwait_sem_getvalue(&g->sem, (int *)&value));
	if (value > there || value + book->maybe < there)
		broken("semaphore: %u of %llu, and %llu may have died with one", value,
		       (unsigned long long)there, (unsigned long long)book->maybe);
	CHECK_OK(memwait_sem_destroy(&g->sem));
}

static void account_for_queue(int o)
{
	struct guarded *g = &area->objects[o];

	account_for_lock(o);
	if (g->made - g->taken > area->queue_size)
		broken("%s: %llu made, %llu taken", kinds[o].name, (unsigned long long)g->made,
		       (unsigned long long)g->taken);
}

/* The capacity of the channel is unchanged. */
static void fill_channel(void)
{
	struct item item = { .sender = POISON };
	uint32_t i;

	for (i = 0; i < area->channel_size; i++)
		CHECK_OK(memwait_channel_trysend(channel(), &item, sizeof(item)));
	expect(memwait_channel_trysend(channel(), &item, sizeof(item)), EAGAIN,
	       "one more than there is room");
	for (i = 0; i < area->channel_size; i++)
		CHECK_OK(memwait_channel_tryrecv(channel(), &item, sizeof(item)));
}

static void account_for_channel(bool closed)
{
	uint64_t lost = 0, unsure = 0;
	struct item item;
	size_t i;
	int slot, ret;

	while (!(ret = memwait_channel_tryrecv(channel(), &item, sizeof(item))))
		has_received(ret, &item);
	expect(ret, closed ? EPIPE : EAGAIN, "the end of what was sent");
	if (!closed)
		fill_channel();
	for (slot = 0; slot < MOST_SLOTS; slot++) {
		for (i = 0; i < MOST_ITEMS / 64; i++) {
			uint64_t sent = area->sent[slot][i], received = area->received[slot][i];

			lost += __builtin_popcountll(sent & ~received);
			unsure += __builtin_popcountll(received & ~sent);
		}
	}
	if (lost > may_have_received || unsure > may_have_sent)
		broken("channel: %llu lost, %llu died with one in hand; %llu arrived, %llu unsure",
		       (unsigned long long)lost, (unsigned long long)may_have_received,
		       (unsigned long long)unsure, (unsigned long long)may_have_sent);
	all_lost += lost;
	all_unsure += unsure;
}

static void close_books(void)
{
	int o;

	for (o = 0; o < OBJECTS; o++) {
		struct guarded *g = &area->objects[o];
		struct book *book = &books[o];

		book->all_sure += book->sure;
		book->all_maybe += book->maybe;
		book->all_owners_died += g->died;
		book->all_turns += g->turns;
		book->sure = 0;
		book->maybe = 0;
		book->doubted = false;
		book->posted = 0;
	}
	may_have_sent = 0;
	may_have_received = 0;
}

/* Chooses how many processes of each team run in this round. */
static void draw_teams(void)
{
	int slot = 0, i, n, there;

	members = 0;
	for (i = 0; slot < slots; i++) {
		const struct team *team = slot_team[slot];

		there = team->least + draw(team->most - team->least + 1);
		for (n = 0; n < team->most; n++, slot++) {
			present[slot] = n < there;
			area->members[slot] = present[slot] && team->meets;
			members += area->members[slot];
		}
	}
}

/* Initialises all objects except those that continue from the last round. */
static void begin_round(void)
{
	int o, slot;

	area->tokens = 1 + draw(2);
	area->queue_size = 1 + draw(MOST_THERE);
	area->channel_size = 1 + draw(MOST_THERE);
	draw_teams();
	for (o = 0; o < OBJECTS; o++) {
		struct guarded *g = &area->objects[o];

		memset(g, 0, sizeof(*g));
		CHECK_OK(init(o));
		CHECK_OK(memwait_cond_init(&g->filled, 0));
		CHECK_OK(memwait_cond_init(&g->freed, 0));
	}
	memset(my_last, 0, sizeof(my_last));
	memset(area->sent, 0, sizeof(area->sent));
	memset(area->received, 0, sizeof(area->received));
	for (slot = 0; slot < slots; slot++)
		record_of(slot)->next = 1;
	CHECK_OK(memwait_channel_init(channel(), sizeof(area->channel), 0, sizeof(struct item),
				      area->channel_size));
	if (members)
		CHECK_OK(memwait_barrier_init(&area->barrier, 0, members));
	CHECK_OK(memwait_waitgroup_init(&area->group, 0, 0));
	begin_tickets();
	area->epoch++;
	memset(watches, 0, sizeof(watches));
	rounds++;
}

static void one_round(void)
{
	const struct timespec past = { 0 };
	int o;

	begin_round();
	let_them_run();
	if (!load(&area->broken))
		let_them_end();
	if (load(&area->broken))
		return;
	cancel_arrivals();
	tend_group();
	for (o = 0; o < TOKENS; o++)
		account_for_lock(o);
	account_for_tokens();
	account_for_queue(QUEUE);
	account_for_queue(ROBUST_QUEUE);
	account_for_channel(rounds % 2);
	/*
	 * The barrier and the wait group cannot be destroyed, because processes that were killed in
	 * their wait have not left.
	 */
	CHECK_OK(memwait_waitgroup_timedwait(&area->group, &past));
	close_books();
}

/* Formats the object as 32-bit words. */
static const char *words_of(const void *object, size_t size)
{
	static char text[512];
	const uint32_t *words = object;
	size_t i, n = 0;

	text[0] = 0;
	for (i = 0; i < size / 4 && n < sizeof(text) - 10; i++)
		n += snprintf(text + n, sizeof(text) - n, " %x", words[i]);
	return text;
}

static void report_object(struct __test_metadata *_metadata, int o)
{
	struct guarded *g = &area->objects[o];

	TH_LOG("%s:%s; %d waiters, %d on the upper half", kinds[o].name, words_of(&g->mutex, 32),
	       memwait_waiters(sleep_word(&g->mutex, kinds[o].flags), 0),
	       memwait_waiters(&g->mutex.reserved[1], 0));
	TH_LOG("  %llu turns, %llu %llu, inside %d, ruined %d", (unsigned long long)g->turns,
	       (unsigned long long)g->one, (unsigned long long)g->two, (int)g->inside - 1,
	       g->ruined);
	TH_LOG("  EOWNERDEAD %llu, sure %llu, maybe %llu%s", (unsigned long long)g->died,
	       (unsigned long long)books[o].sure, (unsigned long long)books[o].maybe,
	       books[o].doubted ? ", in doubt" : "");
	if (o < QUEUE)
		return;
	TH_LOG("  %llu made, %llu taken, closed %d", (unsigned long long)g->made,
	       (unsigned long long)g->taken, g->closed);
	TH_LOG("  filled:%s; %d waiters", words_of(&g->filled, sizeof(g->filled)),
	       memwait_waiters(&g->filled, 0));
	TH_LOG("  freed:%s; %d waiters", words_of(&g->freed, sizeof(g->freed)),
	       memwait_waiters(&g->freed, 0));
}

static void report_process(struct __test_metadata *_metadata, int slot)
{
	struct record *record = record_of(slot);

	if (!present[slot])
		return;
	TH_LOG("slot %d, %s: %s, %s: %c; hands%s", slot, slot_team[slot]->name, record->doing,
	       record->form, is_alive(slot) ? thread_state(record->pid) : '-',
	       words_of(record->hands, sizeof(record->hands)));
	TH_LOG("  arrived %llu, returned %llu, sends %llu, receives %d, passed %d",
	       (unsigned long long)record->arrived, (unsigned long long)record->returned,
	       (unsigned long long)record->sending, record->receiving, record->passed);
}

static void report(struct __test_metadata *_metadata)
{
	int i;

	TH_LOG("%s", area->why);
	for (i = 0; i < WATCHES; i++)
		TH_LOG("%s: progress %llu, none for %llu ms", name_of(i),
		       (unsigned long long)watches[i].progress,
		       (unsigned long long)((now_ns(CLOCK_MONOTONIC) - watches[i].since) /
					    NSEC_PER_MSEC));
	for (i = 0; i < OBJECTS; i++)
		report_object(_metadata, i);
	TH_LOG("channel:%s; length %d", words_of(channel(), 192),
	       (int)memwait_channel_length(channel()));
	for (i = 64; i < 192; i += 4) {
		int waiters = memwait_waiters(area->channel + i, 0);

		if (waiters)
			TH_LOG("  %d waiters at %d", waiters, i);
	}
	TH_LOG("barrier of %d:%s; %d and %d waiters", members,
	       words_of(&area->barrier, sizeof(area->barrier)), memwait_waiters(&area->barrier, 0),
	       memwait_waiters((char *)&area->barrier + 4, 0));
	TH_LOG("wait group:%s; %d and %d waiters; epoch %d",
	       words_of(&area->group, sizeof(area->group)), memwait_waiters(&area->group, 0),
	       memwait_waiters((char *)&area->group + 4, 0), area->epoch);
	TH_LOG("tickets:%s", words_of(area->tickets, sizeof(area->tickets)));
	for (i = 0; i < slots; i++)
		report_process(_metadata, i);
}

static void totals(struct __test_metadata *_metadata)
{
	int o;

	TH_LOG("%llu deaths in %llu rounds", (unsigned long long)deaths,
	       (unsigned long long)rounds);
	for (o = 0; o < OBJECTS; o++)
		TH_LOG("%s: %llu turns; died with it: %llu, maybe %llu; EOWNERDEAD %llu, left %llu",
		       kinds[o].name, (unsigned long long)books[o].all_turns,
		       (unsigned long long)books[o].all_sure,
		       (unsigned long long)books[o].all_maybe,
		       (unsigned long long)books[o].all_owners_died,
		       (unsigned long long)books[o].left_locked);
	TH_LOG("ruined and initialised again: %llu", (unsigned long long)ruins);
	TH_LOG("channel: %llu sent, %llu received, %llu lost, %llu sent by dead processes",
	       (unsigned long long)area->items_sent, (unsigned long long)area->items_received,
	       (unsigned long long)all_lost, (unsigned long long)all_unsure);
	TH_LOG("barrier: %llu passed; wait group: %d epochs, %llu died while done",
	       (unsigned long long)area->meetings, area->epoch, (unsigned long long)unsure_of);
}

/* @only is a comma-separated list. An entry may be a prefix of several names. */
static bool is_asked_for(const char *only, const char *name)
{
	const char *p = only;

	while (p && *p) {
		size_t n = strcspn(p, ",");

		if (!strncmp(p, name, n))
			return true;
		p += n + (p[n] == ',');
	}
	return !only;
}

static void fill_slots(void)
{
	const char *only = getenv("MEMWAIT_DEATHS_ONLY");
	size_t i;
	int n;

	for (i = 0; i < ARRAY_SIZE(teams); i++) {
		for (n = 0; n < teams[i].most && is_asked_for(only, teams[i].name); n++)
			slot_team[slots++] = &teams[i];
	}
}

/* Owners of dead processes are counted until their waiters have been notified. */
static bool await_owners(int fd, uint64_t n)
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE;

	sleep_until(mw_user_owners(fd) == n || now_ns(CLOCK_MONOTONIC) >= end);
	return mw_user_owners(fd) == n;
}

TEST_F_TIMEOUT(userlib, L6_L7_death_at_any_instruction, 86400)
{
	const char *seconds = getenv("MEMWAIT_DEATHS_SECONDS");
	const char *given = getenv("MEMWAIT_DEATHS_SEED");
	uint64_t end = in_ms(1000 * (seconds ? atoi(seconds) : 5));
	struct memwait_info info;
	uint64_t id;
	int slot;

	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel does not report deaths");
	seed = given ? strtoull(given, NULL, 0) : now_ns(CLOCK_REALTIME);
	my_random = seed | 1;
	TH_LOG("seed %llu", (unsigned long long)seed);
	my_loop = self->loop;
	mw_await_owners(self->fd, 1);		/* the owner of the loop */
	ASSERT_EQ(0, memwait_owner(&id));
	fill_slots();
	ASSERT_LE(slots, MOST_SLOTS);
	ASSERT_GE(sizeof(area->channel),
		  memwait_channel_size(sizeof(struct item), MOST_THERE));
	memfd = new_file(sizeof(*area));
	map_area();
	ASSERT_NE(MAP_FAILED, area);
	me = record_of(MOST_SLOTS);
	for (slot = 0; slot < slots; slot++)
		EXPECT_EQ(0, memwait_op_init(&arrivals[slot].op, my_loop, count_call,
					     &arrivals[slot]));
	do {
		one_round();
	} while (continues(end));

	EXPECT_EQ(0, area->broken);
	if (area->broken) {
		report(_metadata);
		close_books();
	}
	for (slot = 0; slot < slots; slot++) {
		if (!is_alive(slot))
			continue;
		kill(record_of(slot)->pid, SIGKILL);
		waitpid(record_of(slot)->pid, NULL, 0);
	}
	totals(_metadata);
	for (slot = 0; slot < slots; slot++)
		memwait_op_cancel(&arrivals[slot].op);
	EXPECT_TRUE(await_owners(self->fd, 2));
	munmap(area, sizeof(*area));
	close(memfd);
}

TEST_HARNESS_MAIN
