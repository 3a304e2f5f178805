// SPDX-License-Identifier: GPL-2.0
/* Read-write locks. */
#include <errno.h>
#include <time.h>

#include "../scenarios.h"

static void rwlock_set_up(unsigned int kind)
{
	CHECK(!memwait_rwlock_init(&shared->rwlock, kind));
}

static void rwlock_write(void)
{
	shared->data++;
	shared->more_data++;
}

static void rwlock_read(void)
{
	CHECK(shared->data == shared->more_data);
}

static void rwlock_thread(unsigned int thread)
{
	if (thread < 2) {
		CHECK(!memwait_rwlock_rdlock(&shared->rwlock));
		rwlock_read();
	} else {
		CHECK(!memwait_rwlock_wrlock(&shared->rwlock));
		rwlock_write();
	}
	CHECK(!memwait_rwlock_unlock(&shared->rwlock));
}

static void rwlock_writers_thread(unsigned int thread)
{
	rwlock_thread(thread ? 2 : 0);
}

static void rwlock_finish(void)
{
	CHECK(!memwait_rwlock_destroy(&shared->rwlock));
}

/*
 * Makes an unlock that cannot wake, but may be able to ask for sleepers, and then a call that
 * performs the wake-up.
 */
static void rwlock_owe(void)
{
	void (*const set)(bool) = sim_random(2) ? device_fails : device_cannot_wake;
	int ret;

	set(true);
	ret = memwait_rwlock_unlock(&shared->rwlock);
	CHECK(!ret || ret == EMFILE);
	set(false);
	ret = memwait_rwlock_tryrdlock(&shared->rwlock);
	CHECK(!ret || ret == EBUSY);
	if (ret)
		return;
	rwlock_read();
	CHECK(!memwait_rwlock_unlock(&shared->rwlock));
}

/* The last reader cannot wake the writer. The next call of this reader wakes the writer. */
static void rwlock_owed_thread(unsigned int thread)
{
	if (thread) {
		rwlock_thread(2);
		return;
	}
	CHECK(!memwait_rwlock_rdlock(&shared->rwlock));
	rwlock_read();
	rwlock_owe();
}

/* A reader that has passed the gate cannot wake the next waiter there. Another thread wakes it. */
static void rwlock_gate_owes_thread(unsigned int thread)
{
	int ret;

	if (!thread) {
		rwlock_thread(2);
		return;
	}
	device_fails(thread == 1);
	ret = memwait_rwlock_rdlock(&shared->rwlock);
	device_fails(false);
	CHECK(!ret || ret == EMFILE);
	if (ret)
		return;
	rwlock_read();
	CHECK(!memwait_rwlock_unlock(&shared->rwlock));
}

/*
 * A trylock cannot wake the next waiter at the gate. A reader that holds the lock wakes it, or the
 * thread itself does later.
 */
static void rwlock_try_owes_thread(unsigned int thread)
{
	int ret;

	if (thread != 1) {
		rwlock_thread(thread);
		return;
	}
	device_fails(true);
	ret = memwait_rwlock_trywrlock(&shared->rwlock);
	device_fails(false);
	CHECK(!ret || ret == EBUSY);
	if (!ret) {
		rwlock_write();
		CHECK(!memwait_rwlock_unlock(&shared->rwlock));
	} else if (!memwait_rwlock_tryrdlock(&shared->rwlock)) {
		rwlock_read();
		CHECK(!memwait_rwlock_unlock(&shared->rwlock));
	}
}

/* Like rwlock_try_owes_thread(), for a writer, with a reader and a writer behind it. */
static void rwlock_writer_owes_thread(unsigned int thread)
{
	if (thread) {
		rwlock_thread(thread);
		return;
	}
	CHECK(!memwait_rwlock_wrlock(&shared->rwlock));
	rwlock_write();
	rwlock_owe();
}

SCENARIO("rwlock owed", 3, rwlock_set_up(WRITER), rwlock_owed_thread, rwlock_finish);
SCENARIO("rwlock owed private", 3, rwlock_set_up(WRITER | PRIVATE), rwlock_owed_thread,
	 rwlock_finish);
SCENARIO("rwlock owed fair", 3, rwlock_set_up(FAIR), rwlock_owed_thread, rwlock_finish);
SCENARIO("rwlock owed robust", 3, rwlock_set_up(WRITER | ROBUST), rwlock_owed_thread,
	 rwlock_finish);
SCENARIO("rwlock owed prefer reader", 3, rwlock_set_up(READER), rwlock_owed_thread, rwlock_finish);
SCENARIO("rwlock gate owes", 4, rwlock_set_up(WRITER), rwlock_gate_owes_thread, rwlock_finish);
SCENARIO("rwlock try owes", 3, rwlock_set_up(WRITER), rwlock_try_owes_thread, rwlock_finish);
SCENARIO("rwlock writer owes", 3, rwlock_set_up(WRITER), rwlock_writer_owes_thread, rwlock_finish);
SCENARIO("rwlock writer owes fair", 3, rwlock_set_up(FAIR), rwlock_writer_owes_thread,
	 rwlock_finish);
SCENARIO("rwlock writer owes robust", 3, rwlock_set_up(WRITER | ROBUST), rwlock_writer_owes_thread,
	 rwlock_finish);
SCENARIO("rwlock writer owes prefer reader", 3, rwlock_set_up(READER), rwlock_writer_owes_thread,
	 rwlock_finish);

SCENARIO("rwlock", 3, rwlock_set_up(WRITER), rwlock_thread, rwlock_finish);
SCENARIO("rwlock two writers", 3, rwlock_set_up(WRITER), rwlock_writers_thread, rwlock_finish);
SCENARIO("rwlock private", 3, rwlock_set_up(WRITER | PRIVATE), rwlock_thread, rwlock_finish);
SCENARIO("rwlock fair", 3, rwlock_set_up(FAIR), rwlock_thread, rwlock_finish);
SCENARIO("rwlock robust", 3, rwlock_set_up(WRITER | ROBUST), rwlock_thread, rwlock_finish);

/* One thread locks twice for reading, whatever the writer waits for. */
static void rwlock_twice_thread(unsigned int thread)
{
	if (thread == 1)
		CHECK(!memwait_rwlock_rdlock(&shared->rwlock));
	rwlock_thread(thread);
	if (thread != 1)
		return;
	rwlock_read();
	CHECK(!memwait_rwlock_unlock(&shared->rwlock));
}

SCENARIO("rwlock prefer reader", 3, rwlock_set_up(READER), rwlock_twice_thread, rwlock_finish);
SCENARIO("rwlock prefer reader two writers", 3, rwlock_set_up(READER), rwlock_writers_thread,
	 rwlock_finish);
SCENARIO("rwlock prefer reader private", 3, rwlock_set_up(READER | PRIVATE), rwlock_twice_thread,
	 rwlock_finish);
SCENARIO("rwlock prefer reader robust", 3, rwlock_set_up(READER | ROBUST), rwlock_twice_thread,
	 rwlock_finish);

static void rwlock_try_thread(unsigned int thread)
{
	int ret;

	if (!thread) {
		rwlock_thread(0);
		return;
	}
	ret = thread == 1 ? memwait_rwlock_tryrdlock(&shared->rwlock) :
			    memwait_rwlock_trywrlock(&shared->rwlock);
	CHECK(!ret || ret == EBUSY);
	if (ret)
		return;
	if (thread == 1)
		rwlock_read();
	else
		rwlock_write();
	CHECK(!memwait_rwlock_unlock(&shared->rwlock));
}

SCENARIO("rwlock trylock", 3, rwlock_set_up(WRITER), rwlock_try_thread, rwlock_finish);

/* If destroy succeeds, the lock may be freed, together with the data that it protected. */
static void rwlock_destroyed_by(unsigned int thread, bool writes)
{
	if (!thread) {
		CHECK(!(writes ? memwait_rwlock_wrlock(&shared->rwlock) :
				 memwait_rwlock_rdlock(&shared->rwlock)));
		set_flag();
		if (writes)
			rwlock_write();
		else
			rwlock_read();
		CHECK(!memwait_rwlock_unlock(&shared->rwlock));
	} else if (wait_for_flag() && !memwait_rwlock_destroy(&shared->rwlock)) {
		rwlock_write();
		sim_free(&shared->rwlock, sizeof(shared->rwlock));
	}
}

static void rwlock_writer_destroyed_thread(unsigned int thread)
{
	rwlock_destroyed_by(thread, true);
}

static void rwlock_reader_destroyed_thread(unsigned int thread)
{
	rwlock_destroyed_by(thread, false);
}

SCENARIO("rwlock destroyed after a writer", 2, rwlock_set_up(WRITER),
	 rwlock_writer_destroyed_thread, no_finish);
SCENARIO("rwlock destroyed after a reader", 2, rwlock_set_up(WRITER),
	 rwlock_reader_destroyed_thread, no_finish);
SCENARIO("rwlock robust destroyed after a writer", 2, rwlock_set_up(WRITER | ROBUST),
	 rwlock_writer_destroyed_thread, no_finish);
SCENARIO("rwlock robust destroyed after a reader", 2, rwlock_set_up(WRITER | ROBUST),
	 rwlock_reader_destroyed_thread, no_finish);

/*
 * A writer cannot wake the thread that sleeps at the gate. That thread may destroy the lock as soon
 * as it has read, even if the writer is still in its call.
 */
static void rwlock_destroyed_owing_thread(unsigned int thread)
{
	int ret;

	if (!thread) {
		CHECK(!memwait_rwlock_wrlock(&shared->rwlock));
		set_flag();
		rwlock_write();
		device_fails(true);
		ret = memwait_rwlock_unlock(&shared->rwlock);
		device_fails(false);
		CHECK(!ret || ret == EMFILE);
		return;
	}
	if (!wait_for_flag())
		return;
	ret = memwait_rwlock_clockrdlock(&shared->rwlock, CLOCK_MONOTONIC, &soon);
	CHECK(!ret || ret == ETIMEDOUT);
	if (ret)
		return;
	rwlock_read();
	CHECK(!memwait_rwlock_unlock(&shared->rwlock));
	do
		ret = memwait_rwlock_destroy(&shared->rwlock);
	while (ret == EBUSY);
	CHECK(!ret);
	rwlock_write();
	sim_free(&shared->rwlock, sizeof(shared->rwlock));
}

SCENARIO("rwlock destroyed after a writer that owes", 2, rwlock_set_up(WRITER),
	 rwlock_destroyed_owing_thread, no_finish);
SCENARIO("rwlock fair destroyed after a writer that owes", 2, rwlock_set_up(FAIR),
	 rwlock_destroyed_owing_thread, no_finish);
SCENARIO("rwlock robust destroyed after a writer that owes", 2, rwlock_set_up(WRITER | ROBUST),
	 rwlock_destroyed_owing_thread, no_finish);

/* A writer dies. */
static void rwlock_death_set_up(void)
{
	rwlock_set_up(WRITER | ROBUST);
	device_mortal(2, 16);
}

static void rwlock_death_thread(unsigned int thread)
{
	int ret = thread ? memwait_rwlock_wrlock(&shared->rwlock) :
			   memwait_rwlock_rdlock(&shared->rwlock);

	if (ret == EOWNERDEAD) {
		CHECK(device_is_dead(2));
		shared->data = shared->more_data;
		CHECK(!memwait_rwlock_consistent(&shared->rwlock));
		rwlock_write();
	} else {
		CHECK(!ret);
		CHECK(shared->data == shared->more_data);
		if (thread) {
			shared->data++;
			step();
			shared->more_data++;
		}
	}
	CHECK(!memwait_rwlock_unlock(&shared->rwlock));
}

SCENARIO("rwlock death", 3, rwlock_death_set_up(), rwlock_death_thread, rwlock_finish);

static void rwlock_lost_thread(unsigned int thread)
{
	int ret = thread ? memwait_rwlock_wrlock(&shared->rwlock) :
			   memwait_rwlock_rdlock(&shared->rwlock);

	if (ret == ENOTRECOVERABLE) {
		CHECK(device_is_dead(2));
		return;
	}
	CHECK(!ret || ret == EOWNERDEAD);
	CHECK(!memwait_rwlock_unlock(&shared->rwlock));
}

SCENARIO("rwlock not recoverable", 3, rwlock_death_set_up(), rwlock_lost_thread, no_finish);

/*
 * A writer gets the gate from a dead writer and gives up because of readers. It leaves the lock to
 * the next writer.
 */
static void rwlock_abandoned_set_up(void)
{
	rwlock_set_up(WRITER | ROBUST);
	device_mortal(2, 8);
}

static void rwlock_abandoned_thread(unsigned int thread)
{
	unsigned int i;
	int ret;

	if (thread > 1) {
		rwlock_death_thread(thread);
		return;
	}
	if (!thread) {
		ret = memwait_rwlock_tryrdlock(&shared->rwlock);
		for (i = 0; i < 10; i++)
			step();
	} else {
		for (ret = EBUSY, i = 0; ret == EBUSY && i < 5; i++)
			ret = memwait_rwlock_trywrlock(&shared->rwlock);
	}
	if (ret == EBUSY)
		return;
	CHECK(!ret || ret == EOWNERDEAD);
	if (ret) {
		shared->data = shared->more_data;
		CHECK(!memwait_rwlock_consistent(&shared->rwlock));
	}
	if (ret || thread)
		rwlock_write();
	else
		rwlock_read();
	CHECK(!memwait_rwlock_unlock(&shared->rwlock));
}

SCENARIO("rwlock abandoned", 4, rwlock_abandoned_set_up(), rwlock_abandoned_thread, rwlock_finish);
