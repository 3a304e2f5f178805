// SPDX-License-Identifier: GPL-2.0
/* Events. */
#include <errno.h>
#include <time.h>

#include "../scenarios.h"

static void event_set_up(unsigned int flags)
{
	CHECK(!memwait_event_init(&shared->event, flags));
}

static void event_finish(void)
{
	CHECK(!memwait_event_destroy(&shared->event));
}

/* There are two waiters. */
static void event_thread(unsigned int thread)
{
	if (thread) {
		CHECK(!memwait_event_wait(&shared->event));
		CHECK(shared->data);
		return;
	}
	shared->data = 1;
	CHECK(!memwait_event_set(&shared->event));
}

SCENARIO("event", 3, event_set_up(0), event_thread, event_finish);
SCENARIO("event private", 3, event_set_up(PRIVATE), event_thread, event_finish);

/* A thread that clears the event before it looks for work misses no work. */
static void event_work_thread(unsigned int thread)
{
	if (thread) {
		atomic_fetch_add_explicit(&shared->step, 1, memory_order_relaxed);
		CHECK(!memwait_event_set(&shared->event));
		return;
	}
	do {
		CHECK(!memwait_event_wait(&shared->event));
		CHECK(!memwait_event_clear(&shared->event));
	} while (atomic_load_explicit(&shared->step, memory_order_relaxed) < 2);
}

SCENARIO("event work", 3, event_set_up(0), event_work_thread, event_finish);

/*
 * If a thread has seen the event set and then finds it unset, it sees everything that was done
 * before the clear.
 */
static void event_cleared_thread(unsigned int thread)
{
	int ret;

	if (!thread) {
		CHECK(!memwait_event_set(&shared->event));
		shared->data = 1;
		CHECK(!memwait_event_clear(&shared->event));
		return;
	}
	ret = memwait_event_clockwait(&shared->event, CLOCK_MONOTONIC, &soon);
	CHECK(!ret || ret == ETIMEDOUT);
	if (!ret && !memwait_event_is_set(&shared->event))
		CHECK(shared->data);
}

SCENARIO("event cleared", 2, event_set_up(0), event_cleared_thread, event_finish);

static void event_set_set_up(unsigned int flags)
{
	event_set_up(flags);
	/* The device changes words only while threads run. */
	shared->event.reserved[0] = 1;
}

/*
 * The event is already set, and is set again before two clears. Each clear sees what the sets
 * announce.
 */
static void event_clears_thread(unsigned int thread)
{
	if (!thread) {
		atomic_fetch_add_explicit(&shared->step, 1, memory_order_relaxed);
		CHECK(!memwait_event_set(&shared->event));
		return;
	}
	CHECK(!memwait_event_clear(&shared->event));
	if (thread == 2)
		shared->data = atomic_load_explicit(&shared->step, memory_order_relaxed);
}

static void event_clears_finish(void)
{
	_Atomic uint32_t *word = (_Atomic uint32_t *)&shared->event;

	/*
	 * The event has changed twice. If the second set had come after a clear, it would have
	 * changed three times.
	 */
	CHECK(atomic_load_explicit(word, memory_order_relaxed) != 2 || shared->data);
	event_finish();
}

SCENARIO("event clears", 3, event_set_set_up(0), event_clears_thread, event_clears_finish);

/* If a set cannot wake the waiters, it still sets the event, and the next set wakes the waiters. */
static void event_owed_thread(unsigned int thread)
{
	int ret;

	if (thread) {
		CHECK(!memwait_event_wait(&shared->event));
		CHECK(shared->data);
		return;
	}
	shared->data = 1;
	device_fails(true);
	ret = memwait_event_set(&shared->event);
	CHECK(!ret || ret == EMFILE);
	device_fails(false);
	CHECK(!memwait_event_set(&shared->event));
}

SCENARIO("event owed", 3, event_set_up(0), event_owed_thread, event_finish);

static void event_timed_thread(unsigned int thread)
{
	int ret;

	if (!thread) {
		shared->data = 1;
		CHECK(!memwait_event_set(&shared->event));
		CHECK(!memwait_event_clear(&shared->event));
		return;
	}
	ret = memwait_event_clockwait(&shared->event, CLOCK_MONOTONIC, &soon);
	CHECK(!ret || ret == ETIMEDOUT);
	if (!ret)
		CHECK(shared->data);
}

/* The set may come after the deadline. */
SCENARIO("event deadline", 2, event_set_up(0), event_timed_thread, event_finish);
