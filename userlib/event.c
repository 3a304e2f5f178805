// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Events: a flag, and waiters that sleep until the flag is set. An event has 32 bits, which
 * programs in any language can map.
 *
 *	bits 0 to 27	how often it has been set and cleared; if bit 0 is 1, it is set
 *	bits 28 to 31	its kind: the flags of init, shifted
 *
 * Invariants:
 *	Each set of an event that is not set, and each clear of an event that is set, adds one.
 *	Nothing else changes the word.
 *	A waiter sleeps only while the word has the even value that the waiter saw first.
 *
 * A woken waiter that finds another value knows that the event was set, whether or not it has been
 * cleared since; if it finds the same value, the notify was not meant for this wait. Therefore a
 * clear immediately after a set does not prevent any waiter from returning. Only a waiter that does
 * not run during a multiple of 2^28 changes is mistaken, and sleeps until the next set.
 *
 * Order. The work that a thread did before it set the event is visible to all waiters that this set
 * releases, and to a thread that clears the event. A set is a read-modify-write of the word and a
 * full barrier, even if the event was set already: if a clear reads the set's value, the clear
 * acquires it; if not, the set comes later and the event stays set. With a load instead, a consumer
 * could clear the event and miss the work that the set announces. Clears are also
 * read-modify-writes, so a waiter that finds a later value acquires all sets before it.
 *
 * Death. A set and its notify are one system call, which a kill cannot split. The call notifies
 * even if the event was already set: an earlier call may have failed, or a program that changes the
 * word itself may have died between change and notify. All waiters are woken, so waiters that die
 * or give up have nothing to pass on.
 *
 * A woken waiter reads the word once more, but is not counted as a user: the word has no room for a
 * count.
 */
#include "object.h"

struct event {
	_Atomic uint32_t word;
};

_Static_assert(sizeof(struct event) == sizeof(memwait_event_t), "the event is a word");

#define SET		1U
#define COUNT		0x0fffffffU
#define KIND_SHIFT	24
#define PRIVATE		((uint32_t)MEMWAIT_PRIVATE << KIND_SHIFT)

static struct event *to_event(memwait_event_t *event)
{
	return (struct event *)event;
}

static uint32_t event_flags_of(uint32_t word)
{
	return word >> KIND_SHIFT & MEMWAIT_PRIVATE;
}

static uint32_t load(const struct event *event)
{
	/* acquire: pairs with memwait_event_set() */
	return atomic_load_explicit(&event->word, memory_order_acquire);
}

/* Returns false if @event is NULL or of an unknown kind. */
static bool load_valid(const struct event *event, uint32_t *word)
{
	if (!event)
		return false;
	*word = load(event);
	return !(*word & ~(COUNT | PRIVATE));
}

int memwait_event_init(memwait_event_t *event, unsigned int flags)
{
	if (!event || (flags & ~(unsigned int)MEMWAIT_PRIVATE))
		return EINVAL;
	atomic_init(&to_event(event)->word, flags << KIND_SHIFT);
	return memwait_need_device();
}

int memwait_event_destroy(memwait_event_t *public_event)
{
	struct event *event = to_event(public_event);
	uint32_t word;
	int ret;

	if (!load_valid(event, &word))
		return EINVAL;
	ret = memwait_sleepers(event, event_flags_of(word));
	return ret > 0 ? EBUSY : -ret;
}

int memwait_event_is_set(const memwait_event_t *public_event)
{
	const struct event *event = (const struct event *)public_event;
	uint32_t word;

	if (!load_valid(event, &word))
		return -EINVAL;
	memwait_tsan_acquire(event);
	return (int)(word & SET);
}

int memwait_event_set(memwait_event_t *public_event)
{
	struct event *event = to_event(public_event);
	uint32_t word;
	int ret;

	if (!load_valid(event, &word))
		return EINVAL;
	ret = memwait_need_device_once();
	if (ret)
		return ret;
	memwait_tsan_release(event);
	ret = memwait_change(event, MEMWAIT_CHANGE_OR, SET, MEMWAIT_ALL,
			     event_flags_of(word), NULL);
	if (ret >= 0)
		return 0;
	/* No waiter was woken: the next set wakes the waiters. release: pairs with load() */
	atomic_fetch_or_explicit(&event->word, SET, memory_order_release);
	return -ret;
}

int memwait_event_clear(memwait_event_t *public_event)
{
	struct event *event = to_event(public_event);
	uint32_t word;

	if (!load_valid(event, &word))
		return EINVAL;
	memwait_tsan_release(event);
	/*
	 * acq_rel: sees the setters' work; and a thread that finds the event not set sees what this
	 * thread did earlier. acquire: sees the setters' work, if another thread has cleared the
	 * event
	 */
	while (word & SET &&
	       !atomic_compare_exchange_weak_explicit(&event->word, &word,
						      (word & ~COUNT) | ((word + 1) & COUNT),
						      memory_order_acq_rel, memory_order_acquire))
		;
	memwait_tsan_acquire(event);
	return 0;
}

/* Waits as a thread (@op is NULL) or an operation that saw @seen; @outcome: of the last wait. */
static int event_wait_after(struct event *event, struct memwait_op *op,
			    const struct memwait_deadline *deadline, uint32_t seen, int outcome)
{
	while (outcome != MEMWAIT_PENDING) {
		/*
		 * Check once more after the deadline: this thread may have been woken without
		 * having run since.
		 */
		if (seen & SET || load(event) != seen) {
			memwait_tsan_acquire(event);
			return 0;
		}
		if (outcome == MEMWAIT_TIMED_OUT)
			return ETIMEDOUT;
		if (memwait_has_failed(outcome))
			return -outcome;
		outcome = memwait_await(op, event, seen, MEMWAIT_SIZE_U32 | event_flags_of(seen),
					deadline);
	}
	return MEMWAIT_OP_WAITS;
}

static int event_wait_until(memwait_event_t *public_event, const struct memwait_deadline *deadline)
{
	struct event *event = to_event(public_event);
	uint32_t word;
	int ret;

	if (!load_valid(event, &word))
		return EINVAL;
	ret = memwait_need_device();
	return ret ? ret : event_wait_after(event, NULL, deadline, word, MEMWAIT_OP_BEGIN);
}

static int event_wait_step(struct memwait_op *op, int outcome)
{
	struct event *event = op->object;
	uint32_t word;

	if (outcome == MEMWAIT_OP_BEGIN) {
		if (!load_valid(event, &word))
			return EINVAL;
		op->word.expected = word;
	}
	return event_wait_after(event, op, NULL, (uint32_t)op->word.expected, outcome);
}

/* All waiters are woken: there is nothing to pass on. */
static const struct memwait_op_kind event_wait_kind = { .step = event_wait_step };

MEMWAIT_DEFINE_OBJECT_WAITS(event, wait, memwait_event_t)
