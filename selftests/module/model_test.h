/* SPDX-License-Identifier: GPL-2.0 */
/* The model that the module is compared with: a list of waiters for each word. */
#ifndef MODEL_TEST_H
#define MODEL_TEST_H

#include "async_test.h"

#define STEPS		1000000		/* limited by SECONDS, but at least LEAST_STEPS */
#define LEAST_STEPS	20000
#define SECONDS		LOAD(20, 8)
#define EPISODE		500
#define CONTEXTS	3
#define ENTRIES		16		/* number of entries in a batch */
#define MOST_MEMBERS	16384		/* limit in one episode */
#define MOST_READ	40
#define READ_SIZES	(MOST_READ * sizeof(struct memwait_completion) + 1)
#define RECENT		32		/* number of waits that CANCEL may choose from */
#define MANY		-1
#define LATER		0x4000000000000000ULL	/* 146 years: a deadline, not MEMWAIT_FOREVER */
#define UNKNOWN_FLAG	0x40

/* Areas of 16 bytes. SHARED and AGAIN are two mappings of one memfd. */
enum area { PRIVATE, SHARED, AGAIN, AREAS };

#define AREA_SIZE	16

/* A word and its arguments. */
struct entry {
	uint8_t area, offset;
	uint8_t flags;			/* MEMWAIT_SIZE_*, MEMWAIT_PRIVATE */
	uint8_t unequal;		/* 0: expects the current value; else the differing bit */
	bool bad;			/* has an unknown flag */
	bool realtime;
	uint64_t deadline;		/* never in the near future */
	uint32_t count;			/* for notifies */
	bool group;			/* an async wait on the words of the next entries */
	uint8_t words;			/* the number of words; the first entry follows the last */
};

struct step {
	const struct kind *kind;
	uint8_t context;
	uint8_t nr;			/* number of entries, for kinds with an array */
	bool bad;			/* a reserved field is not 0 */
	bool other;			/* NOTIFY_WAIT: MEMWAIT_NOTIFIED; NOTIFY_MANY: NULL */
	uint32_t number;		/* READ: bytes; CANCEL: index of a wait; STORE: value */
	struct entry entries[ENTRIES];
};

/* The object that waits of a context pin: a file or an address space. */
struct pin {
	bool shared;
	int refs;
};

struct member {
	struct wait *wait;
	int index;
	struct queue *queue;		/* NULL: not queued */
	struct pin *pin;
};

struct queue {
	int nr;
	struct member *members[MOST_MEMBERS];	/* oldest first */
};

struct wait {
	struct context *context;	/* NULL: closed */
	uint64_t user_data, id;
	enum { PENDING, COMPLETED, CANCELLED, READ_OUT } state;
	struct member *members;
	int nr;
	int index;			/* the notified member */
	struct queue *queue;		/* queue of the notified member */
};

struct context {
	int fd;
	int pending, nr, next;
	struct wait *completed[MOST_MEMBERS];	/* unread from @next on */
	struct pin *last[2];		/* of the last waits on private and shared words */
	int nr_pins;
};

/* Deliberate mistakes, which the comparison must find. */
enum mistake { NO_MISTAKE, MOVES_BACKWARDS, MOVES_TO_HEAD, INDEX_OF_FIRST, PASSES_NOTHING_ON,
	       GROUP_KEEPS_PLACES, MISTAKES };

struct model {
	enum mistake mistake;
	uint8_t *memory[AREAS];
	int watch;			/* a separate context */
	struct memwait_info info;	/* INFO before the first wait */
	int sizes;

	/* Since the start of the episode: */
	struct queue queues[4 * AREA_SIZE];
	struct context contexts[CONTEXTS];
	struct wait waits[MOST_MEMBERS];
	struct member members[MOST_MEMBERS];
	struct pin pins[MOST_MEMBERS];
	int nr_waits, nr_members, nr_pins;
	uint64_t user_waits;
	const char *doing;
	char difference[256];

	/* Counts since the start of the test, which show that the test compared something: */
	long woken, groups_woken, moved, cancelled, read, passed_on;
};

static void check(struct model *m, const char *what, int64_t module, int64_t model)
{
	if (module != model && !m->difference[0])
		snprintf(m->difference, sizeof(m->difference), "%s: %s: module %lld, model %lld",
			 m->doing, what, (long long)module, (long long)model);
}

/* Checks that the module has written nothing else. */
static void check_same(struct model *m, const char *what, const void *module, const void *model,
		       size_t size)
{
	check(m, what, memcmp(module, model, size), 0);
}

static bool is_shared(const struct entry *e)
{
	return e->area != PRIVATE && !(e->flags & MEMWAIT_PRIVATE);
}

/* Both addresses of a shared word have one queue, except with MEMWAIT_PRIVATE. */
static struct queue *queue_of(struct model *m, const struct entry *e)
{
	int kind = e->area;

	if (kind != PRIVATE)
		kind = is_shared(e) ? SHARED : kind + 1;
	return &m->queues[kind * AREA_SIZE + e->offset];
}

static bool is_valid(const struct entry *e)
{
	return !e->bad && e->offset % (1 << (e->flags & MEMWAIT_SIZE_MASK)) == 0;
}

static void leave(struct member *member)
{
	struct queue *q = member->queue;
	int i;

	if (!q)
		return;
	for (i = 0; q->members[i] != member; i++)
		;
	q->nr--;
	memmove(&q->members[i], &q->members[i + 1], (q->nr - i) * sizeof(q->members[0]));
	member->queue = NULL;
}

static void leave_all(struct wait *w)
{
	for (int i = 0; i < w->nr; i++)
		leave(&w->members[i]);
}

static void join(struct member *member, struct queue *q, int at)
{
	memmove(&q->members[at + 1], &q->members[at], (q->nr - at) * sizeof(q->members[0]));
	q->members[at] = member;
	q->nr++;
	member->queue = q;
}

/* Returns the number of woken waiters. */
static uint32_t notify(struct model *m, struct queue *q, uint32_t count)
{
	uint32_t woken;

	for (woken = 0; woken < count && q->nr; woken++) {
		struct member *member = q->members[0];
		struct wait *w = member->wait;

		if (m->mistake != GROUP_KEEPS_PLACES || w->state == COMPLETED)
			leave_all(w);
		else
			leave(member);
		if (w->state != PENDING)
			continue;
		w->state = COMPLETED;
		w->index = m->mistake == INDEX_OF_FIRST ? 0 : member->index;
		w->queue = q;
		w->context->pending--;
		w->context->completed[w->context->nr++] = w;
		m->groups_woken += w->nr > 1;
	}
	m->woken += woken;
	return woken;
}

/* Returns the number of moved waiters. */
static uint32_t move(struct model *m, struct queue *from, struct queue *to, uint32_t count)
{
	static struct member *moving[MOST_MEMBERS];
	uint32_t nr = count < (uint32_t)from->nr ? count : (uint32_t)from->nr;
	uint32_t i;

	m->moved += nr;
	/* If both words have the same queue, the waiters do not move. */
	if (from == to)
		return nr;
	for (i = 0; i < nr; i++) {
		moving[i] = from->members[0];
		leave(moving[i]);
	}
	for (i = 0; i < nr; i++)
		join(m->mistake == MOVES_BACKWARDS ? moving[nr - 1 - i] : moving[i], to,
		     m->mistake == MOVES_TO_HEAD ? (int)i : to->nr);
	return nr;
}

static struct wait *find_wait(struct model *m, struct context *c, uint64_t id)
{
	for (int i = 0; i < m->nr_waits; i++) {
		if (m->waits[i].context == c && m->waits[i].id == id)
			return &m->waits[i];
	}
	return NULL;
}

/* Returns the pin of the context's last wait on a shared or private word. */
static struct pin *pin_of(struct model *m, struct context *c, bool shared)
{
	struct pin *pin = c->last[shared];

	if (!pin) {
		pin = &m->pins[m->nr_pins++];
		*pin = (struct pin) { .shared = shared };
		c->nr_pins++;
		m->user_waits += PIN_WAITS;
	}
	return pin;
}

/* The words of one wait share one pin of each kind. */
static void pin_words(struct model *m, struct context *c, struct wait *w,
		      const struct entry **words)
{
	int i, first;

	for (i = 0; i < w->nr; i++) {
		for (first = 0; is_shared(words[first]) != is_shared(words[i]); first++)
			;
		w->members[i].pin = first < i ? w->members[first].pin :
						pin_of(m, c, is_shared(words[i]));
		w->members[i].pin->refs++;
	}
	for (i = 0; i < w->nr; i++)
		c->last[w->members[i].pin->shared] = w->members[i].pin;
	m->user_waits += w->nr;
}

static void unpin_words(struct model *m, struct wait *w)
{
	struct context *c = w->context;

	for (int i = 0; i < w->nr; i++) {
		struct pin *pin = w->members[i].pin;

		if (--pin->refs)
			continue;
		m->user_waits -= PIN_WAITS;
		c->nr_pins--;
		if (c->last[pin->shared] == pin)
			c->last[pin->shared] = NULL;
	}
	m->user_waits -= w->nr;
}

/* Adds a pending wait on words[0], words[1], ... */
static void arm(struct model *m, struct context *c, uint64_t user_data, uint64_t id,
		const struct entry **words, int nr)
{
	struct wait *w = &m->waits[m->nr_waits];

	check(m, "an id that is 0 or was used before", !id || find_wait(m, c, id), 0);
	*w = (struct wait) {
		.context = c,
		.user_data = user_data,
		.id = id,
		.state = PENDING,
		.members = &m->members[m->nr_members],
		.nr = nr,
	};
	for (int i = 0; i < nr; i++) {
		struct queue *q = queue_of(m, words[i]);

		w->members[i] = (struct member) { .wait = w, .index = i };
		join(&w->members[i], q, q->nr);
	}
	pin_words(m, c, w, words);
	m->nr_waits++;
	m->nr_members += nr;
	c->pending++;
}

/* Returns the result that R2 requires; sets *index for MEMWAIT_NOT_EQUAL. */
static int outcome(const struct entry **words, int nr, uint64_t deadline, uint32_t *index)
{
	int i;

	for (i = 0; i < nr; i++) {
		if (!is_valid(words[i]))
			return -EINVAL;
	}
	for (i = 0; i < nr; i++) {
		if (words[i]->unequal) {
			*index = i;
			return MEMWAIT_NOT_EQUAL;
		}
	}
	return deadline < LATER ? MEMWAIT_TIMED_OUT : MEMWAIT_PENDING;
}

#endif /* MODEL_TEST_H */
