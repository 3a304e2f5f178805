// SPDX-License-Identifier: GPL-2.0
/*
 * R5, R12, R16 to R20, R23, R25: random non-blocking calls have exactly the results of a simple
 * model. The model has a list of waiters for each word, oldest first. The lists contain single and
 * group async waits. Words are private or shared, are mapped at two addresses, and have all sizes.
 *
 * The steps are generated in advance, in episodes that begin with an empty state. All objects that
 * a step refers to exist, whichever steps precede it. When the module and the model differ, steps
 * can therefore be removed as long as a difference remains. The test prints the remaining steps.
 *
 * MEMWAIT_MODEL_SEED and MEMWAIT_MODEL_STEPS set the seed and the number of steps.
 */
#include "model_test.h"

/* Arguments for the module. */

static uintptr_t address(struct model *m, const struct entry *e)
{
	return (uintptr_t)(m->memory[e->area] + e->offset);
}

static uint32_t flags(const struct entry *e)
{
	return e->flags | (e->bad ? UNKNOWN_FLAG : 0);
}

/* The bits above the word's size are not zero and must be ignored. */
static uint64_t expected(struct model *m, const struct entry *e)
{
	int size = 1 << (e->flags & MEMWAIT_SIZE_MASK);
	uint64_t value;

	memcpy(&value, m->memory[e->area] + (e->offset & -size), sizeof(value));
	if (e->unequal)
		value ^= 1ULL << (e->unequal % (8 * size));
	return size == 8 ? value : value ^ 1ULL << 8 * size;
}

static struct memwait_wait wait_of(struct model *m, const struct entry *e, uint64_t deadline)
{
	return (struct memwait_wait) {
		.addr = address(m, e),
		.expected = expected(m, e),
		.deadline = deadline,
		.flags = flags(e) | (e->realtime ? MEMWAIT_CLOCK_REALTIME : 0),
	};
}

static struct memwait_notify notify_of(struct model *m, const struct entry *e)
{
	return (struct memwait_notify) {
		.addr = address(m, e),
		.count = e->count,
		.flags = flags(e),
	};
}

/* The words of a group, which are in the entries that begin with @first. */
static void group_of(struct model *m, const struct step *s, int first, int nr,
		     struct memwait_wait *waits, const struct entry **words)
{
	for (int i = 0; i < nr; i++) {
		words[i] = &s->entries[(first + i) % ENTRIES];
		waits[i] = wait_of(m, words[i], words[i]->deadline);
		waits[i].flags &= ~MEMWAIT_CLOCK_REALTIME;
	}
}

/* The steps. Waits that would block have a deadline in the past. */

static void step_wait(struct model *m, struct context *c, const struct step *s)
{
	const struct entry *e = &s->entries[0];
	struct memwait_wait arg = wait_of(m, e, 1);
	uint32_t index;

	arg.reserved = s->bad;
	check(m, "returned", xioctl(c->fd, MEMWAIT_IOC_WAIT, &arg),
	      s->bad ? -EINVAL : outcome(&e, 1, 0, &index));
}

static void step_wait_any(struct model *m, struct context *c, const struct step *s)
{
	const struct entry *e = &s->entries[0], *words[MEMWAIT_GROUP_MAX + 1];
	struct memwait_wait waits[MEMWAIT_GROUP_MAX + 1];
	struct memwait_wait_any got = {
		.waits = (uintptr_t)waits,
		.deadline = 1,
		.count = e->words,
		.flags = e->realtime ? MEMWAIT_CLOCK_REALTIME : 0,
		.index = 0xcccccccc,
		.reserved = s->bad,
	};
	struct memwait_wait_any want = got;
	int ret = -EINVAL;

	group_of(m, s, 1, e->words, waits, words);
	if (!s->bad && e->words && e->words <= MEMWAIT_GROUP_MAX)
		ret = outcome(words, e->words, 0, &want.index);
	check(m, "returned", xioctl(c->fd, MEMWAIT_IOC_WAIT_ANY, &got), ret);
	check(m, "index", got.index, want.index);
	check_same(m, "struct", &got, &want, sizeof(got));
}

static void step_notify_wait(struct model *m, struct context *c, const struct step *s)
{
	const struct entry *e = &s->entries[0], *next = &s->entries[1];
	struct memwait_notify_wait got = {
		.notify = notify_of(m, e),
		.wait = wait_of(m, next, 1),
		.notified = 0xcccccccc,
		.state = s->bad ? 1 + s->bad : s->other,
	};
	struct memwait_notify_wait want = got;
	int ret = -EINVAL;
	uint32_t index;

	if (!s->bad && is_valid(e) && is_valid(next)) {
		if (!s->other)
			want.notified = notify(m, queue_of(m, e), e->count);
		want.state = 0;
		ret = outcome(&next, 1, 0, &index);
	} else {
		want = got;
	}
	check(m, "returned", xioctl(c->fd, MEMWAIT_IOC_NOTIFY_WAIT, &got), ret);
	check(m, "notified", got.notified, want.notified);
	check_same(m, "struct", &got, &want, sizeof(got));
}

static void step_notify(struct model *m, struct context *c, const struct step *s)
{
	const struct entry *e = &s->entries[0];
	struct memwait_notify arg = notify_of(m, e);

	check(m, "returned", xioctl(c->fd, MEMWAIT_IOC_NOTIFY, &arg),
	      is_valid(e) ? (int)notify(m, queue_of(m, e), e->count) : -EINVAL);
}

static void step_notify_many(struct model *m, struct context *c, const struct step *s)
{
	struct memwait_notify notifies[2 * ENTRIES];
	uint32_t got[2 * ENTRIES], want[2 * ENTRIES];
	struct memwait_notify_many arg = {
		.notifies = (uintptr_t)notifies,
		.woken = s->other ? 0 : (uintptr_t)got,
		.count = s->number % 8 ? s->nr : 2 * s->nr,
		.flags = s->bad,
	};
	uint32_t i;
	int ret = 0;

	memset(got, 0xcc, sizeof(got));
	memset(want, 0xcc, sizeof(want));
	for (i = 0; i < arg.count; i++)
		notifies[i] = notify_of(m, &s->entries[i % ENTRIES]);
	for (i = 0; i < arg.count && !s->bad; i++) {
		const struct entry *e = &s->entries[i % ENTRIES];
		uint32_t woken;

		if (!is_valid(e))
			break;
		woken = notify(m, queue_of(m, e), e->count);
		if (!s->other)
			want[i] = woken;
		ret++;
	}
	if (s->bad || (!ret && arg.count))
		ret = -EINVAL;
	check(m, "returned", xioctl(c->fd, MEMWAIT_IOC_NOTIFY_MANY, &arg), ret);
	for (i = 0; i < arg.count; i++)
		check(m, "one of woken", got[i], want[i]);
	check_same(m, "woken", got, want, sizeof(got));
}

static void step_waiters(struct model *m, struct context *c, const struct step *s)
{
	const struct entry *e = &s->entries[0];
	struct memwait_notify arg = notify_of(m, e);

	arg.count = s->bad;
	check(m, "returned", xioctl(c->fd, MEMWAIT_IOC_WAITERS, &arg),
	      !s->bad && is_valid(e) ? queue_of(m, e)->nr : -EINVAL);
}

/* The flags of the first word apply to both words. */
static void step_requeue(struct model *m, struct context *c, const struct step *s)
{
	const struct entry *e = &s->entries[0];
	struct entry target = s->entries[1];
	struct memwait_requeue got = {
		.addr = address(m, e),
		.expected = expected(m, e),
		.target = address(m, &target),
		.count = e->count,
		.move = target.count,
		.flags = flags(e),
		.reserved = s->bad,
		.woken = 0xcccccccc,
		.moved = 0xcccccccc,
	};
	struct memwait_requeue want = got;
	int ret = -EINVAL;

	target.flags = e->flags;
	target.bad = e->bad;
	if (!s->bad && is_valid(e) && is_valid(&target)) {
		ret = is_shared(e) != is_shared(&target) ? -EXDEV :
		      e->unequal ? MEMWAIT_NOT_EQUAL : 0;
		want.woken = ret ? 0 : notify(m, queue_of(m, e), e->count);
		want.moved = ret ? 0 : move(m, queue_of(m, e), queue_of(m, &target), target.count);
	}
	check(m, "returned", xioctl(c->fd, MEMWAIT_IOC_REQUEUE, &got), ret);
	check(m, "woken", got.woken, want.woken);
	check(m, "moved", got.moved, want.moved);
	check_same(m, "struct", &got, &want, sizeof(got));
}

static void step_wait_async(struct model *m, struct context *c, const struct step *s)
{
	static struct memwait_wait waits[ENTRIES][MEMWAIT_GROUP_MAX + 1];
	static const struct entry *words[ENTRIES][MEMWAIT_GROUP_MAX + 1];
	struct memwait_async got[ENTRIES] = { 0 }, want[ENTRIES];
	struct memwait_wait_async arg = {
		.waits = (uintptr_t)got,
		.count = s->nr,
		.entry_size = s->bad ? sizeof(got[0]) - 1 : sizeof(got[0]),
	};
	int i, ret, result = 0;

	if (m->nr_members + ENTRIES * MEMWAIT_GROUP_MAX > MOST_MEMBERS)
		return;

	for (i = 0; i < s->nr; i++) {
		const struct entry *e = &s->entries[i];
		uint32_t flags;

		words[i][0] = e;
		got[i].wait = wait_of(m, e, e->deadline);
		if (e->group) {
			group_of(m, s, i + 1, e->words, waits[i], words[i]);
			flags = got[i].wait.flags & (MEMWAIT_CLOCK_REALTIME | UNKNOWN_FLAG);
			got[i].any = (struct memwait_wait_any) {
				.waits = (uintptr_t)waits[i],
				.count = e->words,
				.deadline = got[i].wait.deadline,
				.flags = flags | MEMWAIT_GROUP,
				.index = 0xcccccccc,
			};
		}
		got[i].user_data = 0x100000000ULL * s->context + m->nr_waits + i;
		got[i].id = 0xccccccccccccccccULL;
		got[i].result = 0x0ccccccc;
	}
	memcpy(want, got, sizeof(want));
	ret = xioctl(c->fd, MEMWAIT_IOC_WAIT_ASYNC, &arg);

	for (i = 0; i < s->nr && !s->bad; i++) {
		const struct entry *e = &s->entries[i];
		int nr = e->group ? e->words : 1;
		uint32_t index = 0;

		if (e->group && (e->bad || !nr || nr > MEMWAIT_GROUP_MAX))
			result = -EINVAL;
		else
			result = outcome(words[i], nr, e->deadline, &index);
		want[i].result = result;
		want[i].id = result == MEMWAIT_PENDING ? got[i].id : 0;
		if (e->group && result == MEMWAIT_NOT_EQUAL)
			want[i].any.index = index;
		check(m, "result of an entry", got[i].result, result);
		if (e->group)
			check(m, "index of an entry", got[i].any.index, want[i].any.index);
		if (result == MEMWAIT_PENDING)
			arm(m, c, got[i].user_data, got[i].id, words[i], nr);
		if (result < 0)
			break;
	}
	check(m, "returned", ret, s->bad ? -EINVAL : i ?: result);
	check_same(m, "entries", got, want, sizeof(got));
}

static void step_cancel(struct model *m, struct context *c, const struct step *s)
{
	struct memwait_cancel arg = { .reserved = s->bad };
	int back = s->number % RECENT;	/* a recent wait, whose id may belong to another context */
	struct wait *w;
	int ret;

	if (back < m->nr_waits)
		arg.id = m->waits[m->nr_waits - 1 - back].id;
	else
		arg.id = s->number;
	w = find_wait(m, c, arg.id);
	if (s->bad)
		ret = -EINVAL;
	else
		ret = w && w->state == PENDING ? 0 : -ENOENT;
	check(m, "returned", xioctl(c->fd, MEMWAIT_IOC_CANCEL, &arg), ret);
	if (ret)
		return;
	leave_all(w);
	w->state = CANCELLED;
	c->pending--;
	unpin_words(m, w);
	m->cancelled++;
}

static void step_read(struct model *m, struct context *c, const struct step *s)
{
	struct memwait_completion got[MOST_READ], want[MOST_READ];
	size_t size = s->number % READ_SIZES;
	int room = size / sizeof(got[0]), nr = c->nr - c->next;
	ssize_t ret;
	int i;

	memset(got, 0xcc, sizeof(got));
	memset(want, 0xcc, sizeof(want));
	ret = read(c->fd, got, size);
	if (ret < 0)
		ret = -errno;
	if (nr > room)
		nr = room;
	if (!nr) {
		check(m, "returned", ret, room ? -EAGAIN : -EINVAL);
		return;
	}
	check(m, "returned", ret, nr * sizeof(got[0]));
	for (i = 0; i < nr; i++) {
		struct wait *w = c->completed[c->next++];

		want[i] = (struct memwait_completion) {
			.user_data = w->user_data,
			.id = w->id,
			.result = MEMWAIT_OK,
			.index = w->index,
			.count = 1,
		};
		check(m, "user_data of a completion", got[i].user_data, want[i].user_data);
		check(m, "result of a completion", got[i].result, want[i].result);
		check(m, "index of a completion", got[i].index, want[i].index);
		w->state = READ_OUT;
		unpin_words(m, w);
		m->read++;
	}
	check_same(m, "completions", got, want, sizeof(got));
}

static void step_look(struct model *m, struct context *c, const struct step *s)
{
	struct memwait_info info, want = m->info;

	for (int i = 0; i < CONTEXTS; i++)
		check(m, "readable", mw_readable(m->contexts[i].fd),
		      m->contexts[i].next < m->contexts[i].nr);
	want.user_waits += m->user_waits;
	check(m, "INFO returned", mw_info(c->fd, &info), 0);
	check(m, "user_waits", info.user_waits, want.user_waits);
	want.user_contexts += CONTEXTS;
	check_same(m, "INFO", &info, &want, sizeof(info));
}

/* Stores through one mapping a value that will be compared through another. */
static void step_store(struct model *m, struct context *c, const struct step *s)
{
	const struct entry *e = &s->entries[0];

	memcpy(m->memory[e->area] + (e->offset & -4), &s->number, sizeof(s->number));
}

static void open_context(struct model *m, struct context *c)
{
	c->pending = 0;
	c->nr = 0;
	c->next = 0;
	c->last[0] = NULL;
	c->last[1] = NULL;
	c->nr_pins = 0;
	c->fd = memwait_open(O_NONBLOCK);
	check(m, "open failed", c->fd < 0, 0);
}

/*
 * First all waits leave their queues. Then unread notifies are passed on, in the order of the
 * completions. Consecutive completions of one word are passed on together.
 */
static void close_context(struct model *m, struct context *c)
{
	struct queue *last = NULL;
	int i, unread = 0;

	close(c->fd);
	for (i = 0; i < m->nr_waits; i++) {
		struct wait *w = &m->waits[i];

		if (w->context != c)
			continue;
		leave_all(w);
		if (w->state == PENDING || w->state == COMPLETED)
			unpin_words(m, w);
		w->context = NULL;
	}
	for (i = c->next; i < c->nr && m->mistake != PASSES_NOTHING_ON; i++) {
		struct queue *queue = c->completed[i]->queue;

		/* The queue is NULL for a wait that has timed out. */
		if (!queue)
			continue;
		if (last && last != queue) {
			m->passed_on += notify(m, last, unread);
			unread = 0;
		}
		last = queue;
		unread++;
	}
	if (last)
		m->passed_on += notify(m, last, unread);
}

static void step_reopen(struct model *m, struct context *c, const struct step *s)
{
	close_context(m, c);
	open_context(m, c);
}

static const struct kind {
	const char *name;
	int weight;			/* relative frequency */
	void (*step)(struct model *m, struct context *c, const struct step *s);
	int words;			/* number of words, or MANY */
	bool counts;			/* each word has a count */
} kinds[] = {
	{ "WAIT", 4, step_wait, 1, false },
	{ "WAIT_ANY", 4, step_wait_any, 1, false },
	{ "NOTIFY_WAIT", 8, step_notify_wait, 2, true },
	{ "NOTIFY", 14, step_notify, 1, true },
	{ "NOTIFY_MANY", 5, step_notify_many, MANY, true },
	{ "WAITERS", 8, step_waiters, 1, false },
	{ "REQUEUE", 14, step_requeue, 2, true },
	{ "WAIT_ASYNC", 24, step_wait_async, MANY, false },
	{ "CANCEL", 8, step_cancel, 0, false },
	{ "READ", 8, step_read, 0, false },
	{ "LOOK", 4, step_look, 0, false },
	{ "STORE", 4, step_store, 1, false },
	{ "REOPEN", 2, step_reopen, 0, false },
};

/* Wakes and reads the remaining waits one by one, to check their order. */
static void empty_queues(struct model *m)
{
	struct step all = { .number = READ_SIZES - 1 };
	struct step one = { 0 }, none = { 0 };

	for (int i = 0; i < 4 * AREA_SIZE; i++) {
		struct entry e = {
			.area = i < 2 * AREA_SIZE ? i / AREA_SIZE : i / AREA_SIZE - 1,
			.offset = i % AREA_SIZE,
			.flags = i < 2 * AREA_SIZE ? 0 : MEMWAIT_PRIVATE,
		};

		if (e.offset % 8 && !m->queues[i].nr)
			continue;
		none.entries[0] = e;
		step_waiters(m, &m->contexts[0], &none);
		e.count = 1;
		one.entries[0] = e;
		while (m->queues[i].nr && !m->difference[0]) {
			step_notify(m, &m->contexts[0], &one);
			for (int j = 0; j < CONTEXTS; j++)
				step_read(m, &m->contexts[j], &all);
		}
	}
}

/*
 * Returns the number of steps after which there was a difference (which may show only at the end),
 * or 0.
 */
static int run(struct model *m, const struct step *steps, int nr)
{
	struct memwait_info info;
	int i, done = 0;

	for (i = 0; i < 4 * AREA_SIZE; i++)
		m->queues[i].nr = 0;
	m->nr_waits = 0;
	m->nr_members = 0;
	m->nr_pins = 0;
	m->user_waits = 0;
	m->difference[0] = 0;
	memset(m->memory[PRIVATE], 0, 2 * AREA_SIZE);
	memset(m->memory[SHARED], 0, 2 * AREA_SIZE);
	for (i = 0; i < CONTEXTS; i++)
		open_context(m, &m->contexts[i]);

	while (done < nr && !m->difference[0]) {
		const struct step *s = &steps[done++];

		m->doing = s->kind->name;
		s->kind->step(m, &m->contexts[s->context], s);
	}
	m->doing = "afterwards";
	if (!m->difference[0])
		empty_queues(m);
	for (i = 0; i < CONTEXTS; i++) {
		struct context *c = &m->contexts[i];

		check(m, "pending in fdinfo", mw_fdinfo(c->fd, "pending"), c->pending);
		check(m, "completed in fdinfo", mw_fdinfo(c->fd, "completed"), c->nr - c->next);
	}
	for (i = 0; i < CONTEXTS; i++)
		close_context(m, &m->contexts[i]);
	check(m, "INFO at the end", mw_info(m->watch, &info), 0);
	check_same(m, "INFO at the end", &info, &m->info, sizeof(info));
	return m->difference[0] ? done : 0;
}

/* Generating steps. */

/* Derives a number below n from a random number. */
static uint32_t take(uint64_t *bits, uint32_t n)
{
	uint32_t number = *bits % n;

	*bits /= n;
	return number;
}

/*
 * Uses few words, so that several waiters have the same word. Most words are valid and equal,
 * because a group needs all of its words to be valid and equal.
 */
static void make_entry(struct model *m, struct entry *e, uint64_t *random, int areas)
{
	static const uint32_t counts[] = { 0, 1, 1, 1, 1, 1, 2, 3, 4, 7, INT32_MAX, MEMWAIT_ALL };
	static const uint64_t deadlines[] = { 0, 1, LATER, LATER, LATER + 1, LATER + 2 };
	static const uint8_t words[] = { 0, 9, 32, MEMWAIT_GROUP_MAX, MEMWAIT_GROUP_MAX + 1 };
	uint64_t bits = next_random(random);

	e->area = take(&bits, areas);
	e->offset = 8 * take(&bits, 2);
	if (!take(&bits, 64))
		e->offset += take(&bits, 8);
	e->flags = take(&bits, m->sizes) | (take(&bits, 4) ? 0 : MEMWAIT_PRIVATE);
	e->unequal = take(&bits, 24) ? 0 : take(&bits, 256);
	e->bad = !take(&bits, 128);
	e->count = counts[take(&bits, ARRAY_SIZE(counts))];

	bits = next_random(random);
	e->realtime = !take(&bits, 4);
	e->deadline = MEMWAIT_FOREVER;
	if (!take(&bits, 3))
		e->deadline = deadlines[take(&bits, ARRAY_SIZE(deadlines))];
	e->group = !take(&bits, 3);
	e->words = 1 + take(&bits, 4);
	if (!take(&bits, 32))
		e->words = words[take(&bits, ARRAY_SIZE(words))];
}

static void make_steps(struct model *m, struct step *steps, uint64_t *random)
{
	uint64_t bits = next_random(random);
	int areas = 1 + take(&bits, AREAS), weights = 0, i, j, pick;

	for (i = 0; i < (int)ARRAY_SIZE(kinds); i++)
		weights += kinds[i].weight;
	for (i = 0; i < EPISODE; i++) {
		struct step *s = &steps[i];

		bits = next_random(random);
		pick = take(&bits, weights);
		for (j = 0; pick >= kinds[j].weight; j++)
			pick -= kinds[j].weight;
		s->kind = &kinds[j];
		s->context = take(&bits, CONTEXTS);
		s->nr = take(&bits, 4) ? take(&bits, 4) : take(&bits, ENTRIES + 1);
		s->bad = !take(&bits, 64);
		s->other = !take(&bits, 4);
		s->number = next_random(random) >> 32;
		for (j = 0; j < ENTRIES; j++)
			make_entry(m, &s->entries[j], random, areas);
	}
}

/* Shortening a sequence of steps that produces a difference. */

static int try_without(struct model *m, struct step *steps, int nr, int at, int count)
{
	static struct step fewer[EPISODE];
	int done;

	memcpy(fewer, steps, at * sizeof(steps[0]));
	memcpy(&fewer[at], &steps[at + count], (nr - at - count) * sizeof(steps[0]));
	done = run(m, fewer, nr - count);
	if (!m->difference[0])
		return -1;
	memcpy(steps, fewer, done * sizeof(steps[0]));
	return done;
}

/*
 * Applies the simplification number @way to a step. Returns false if there are no more
 * simplifications.
 */
static bool simplify(struct step *s, int way)
{
	int i = way / 3, nr = s->kind->words;
	struct entry *e = &s->entries[i];

	/* The words of a group may be in any of the entries. */
	if (nr == MANY || s->kind->step == step_wait_any)
		nr = ENTRIES;
	if (i == nr)
		return false;
	switch (way % 3) {
	case 0:
		if (i < s->nr) {
			s->nr--;
			memmove(e, e + 1, (ENTRIES - 1 - i) * sizeof(*e));
		}
		break;
	case 1:
		s->other = false;
		e->group = false;
		e->flags = MEMWAIT_SIZE_U8;
		break;
	case 2:
		e->words /= 2;
		break;
	}
	return true;
}

/* Removes and simplifies steps while a difference remains. Returns how many steps remain. */
static int shrink(struct model *m, struct step *steps, int nr)
{
	uint64_t end = m->mistake ? ~0ULL : in_ms(SECONDS * 1000);
	int chunk, at, fewer, way;
	bool again = true;

	if (run(m, steps, nr) != nr)
		return nr;		/* the difference is not reproducible */
	while (again && nr && in_ms(0) < end) {
		again = false;
		for (chunk = nr; chunk; chunk /= 2) {
			for (at = 0; at + chunk <= nr && in_ms(0) < end; ) {
				fewer = try_without(m, steps, nr, at, chunk);
				if (fewer < 0) {
					at += chunk;
				} else {
					nr = fewer;
					again = true;
				}
			}
		}
		for (at = 0; at < nr; at++) {
			struct step before = steps[at];

			for (way = 0; simplify(&steps[at], way) && in_ms(0) < end; way++) {
				if (!memcmp(&before, &steps[at], sizeof(before)))
					continue;
				if (run(m, steps, nr) == nr) {
					before = steps[at];
					again = true;
					way--;		/* the simplification may apply again */
				} else {
					steps[at] = before;
				}
			}
		}
	}
	run(m, steps, nr);		/* to set m->difference */
	return nr;
}

static void print_word(const struct entry *e)
{
	static const char *const areas[] = { "private", "shared", "again" };

	fprintf(TH_LOG_STREAM, " %s+%d:%d%s%s%s", areas[e->area], e->offset,
		8 << (e->flags & MEMWAIT_SIZE_MASK), e->flags & MEMWAIT_PRIVATE ? "(private)" : "",
		e->unequal ? "(unequal)" : "", e->bad ? "(bad)" : "");
}

static void print_step(const struct step *s)
{
	bool any = s->kind->step == step_wait_any, async = s->kind->step == step_wait_async;
	int nr = s->kind->words == MANY ? s->nr : s->kind->words;

	fprintf(TH_LOG_STREAM, "#   context %d: %s%s%s", s->context, s->kind->name,
		s->bad ? " (bad)" : "", s->other ? " (other)" : "");
	if (s->kind->step == step_read)
		fprintf(TH_LOG_STREAM, " %zu bytes", s->number % READ_SIZES);
	if (s->kind->step == step_cancel)
		fprintf(TH_LOG_STREAM, " the %u-th wait from the last", s->number % RECENT);
	for (int i = 0; i < nr; i++) {
		const struct entry *e = &s->entries[i];

		fprintf(TH_LOG_STREAM, i ? "," : "");
		if (any || (async && e->group)) {
			fprintf(TH_LOG_STREAM, " %d words%s:", e->words, e->bad ? "(bad)" : "");
			for (int j = 0; j < e->words && j < ENTRIES; j++)
				print_word(&s->entries[(i + 1 + j) % ENTRIES]);
		} else {
			print_word(e);
		}
		if (async && e->deadline != MEMWAIT_FOREVER)
			fprintf(TH_LOG_STREAM, e->deadline < LATER ? " until now" : " until later");
		if (s->kind->counts)
			fprintf(TH_LOG_STREAM, " count %d", (int)e->count);
	}
	fprintf(TH_LOG_STREAM, "\n");
}

/*
 * Runs episodes until @steps steps are done or there is a difference. Returns 0, or the length of
 * the shortest sequence with a difference, which is printed.
 */
static int compare(struct __test_metadata *_metadata, struct model *m, uint64_t seed, long steps)
{
	static struct step episode[EPISODE];
	uint64_t random = (seed + 1) * 0x9e3779b97f4a7c15ULL ?: 1;
	uint64_t end = in_ms(SECONDS * 1000);
	long done;
	int nr = 0;

	for (done = 0; done < steps && !nr; done += EPISODE) {
		if (done >= LEAST_STEPS && in_ms(0) > end)
			break;
		make_steps(m, episode, &random);
		nr = run(m, episode, EPISODE);
	}
	TH_LOG("seed %llu, %ld steps", (unsigned long long)seed, done);
	if (nr) {
		TH_LOG("%s after %d steps of the last episode", m->difference, nr);
		nr = shrink(m, episode, nr);
		TH_LOG("%s after these %d steps:", m->difference, nr);
		for (int i = 0; i < nr; i++)
			print_step(&episode[i]);
	}
	return nr;
}

static struct model *make_model(struct __test_metadata *_metadata, void *private)
{
	static struct model model;
	struct model *m = &model;
	int fd = new_file(4096);

	m->memory[PRIVATE] = private;
	m->memory[SHARED] = map_shared(fd, 4096);
	m->memory[AGAIN] = map_shared(fd, 4096);
	close(fd);
	m->watch = open_device(0);
	ASSERT_EQ(0, mw_info(m->watch, &m->info));
	m->sizes = m->info.features & MEMWAIT_FEATURE_WAIT_U64 ? 4 : 3;
	return m;
}

TEST_F_TIMEOUT(memwait, R5_the_module_behaves_like_a_simple_model, 86400)
{
	struct model *m = make_model(_metadata, self->word);
	const char *seed = getenv("MEMWAIT_MODEL_SEED"), *steps = getenv("MEMWAIT_MODEL_STEPS");

	ASSERT_EQ(0, compare(_metadata, m, seed ? strtoull(seed, NULL, 0) : now_ns(CLOCK_REALTIME),
			     steps ? strtol(steps, NULL, 0) : STEPS));
	TH_LOG("woken %ld, including groups %ld, moved %ld, cancelled %ld, read %ld, passed on %ld",
	       m->woken, m->groups_woken, m->moved, m->cancelled, m->read, m->passed_on);
	EXPECT_LT(0, m->groups_woken);
	EXPECT_LT(m->groups_woken, m->woken);
	EXPECT_LT(0, m->moved);
	EXPECT_LT(0, m->cancelled);
	EXPECT_LT(0, m->read);
	EXPECT_LT(0, m->passed_on);
	close(m->watch);
}

/* A mistake may cause a difference only after several steps. */
TEST_F_TIMEOUT(memwait, R5_a_mistake_of_the_model_is_found, 600)
{
	struct model *m = make_model(_metadata, self->word);

	for (m->mistake = NO_MISTAKE + 1; m->mistake < MISTAKES;
	     m->mistake += LOAD(1, 3)) {
		int nr;

		TH_LOG("mistake %d", m->mistake);
		nr = compare(_metadata, m, m->mistake, 100 * EPISODE);
		EXPECT_LT(0, nr);
		EXPECT_GE(12, nr);
	}
	close(m->watch);
}

TEST_HARNESS_MAIN
