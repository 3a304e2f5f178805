/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers for tests of owners: a fixture, ids, and threads that wait for an owner. */
#ifndef OWNER_TEST_H
#define OWNER_TEST_H

#include "async_test.h"

#define U64	MEMWAIT_SIZE_U64
#define OWNED64	(U64 | MEMWAIT_OWNED)
#define OWNED32	(U32 | MEMWAIT_OWNED)

/* Memory that a test shares with its children. */
struct shared {
	uint64_t word;		/* may contain an id of an owner */
	uint32_t small;		/* cannot contain an id */
	uint32_t go;
	uint64_t id;
	int result[4];
	struct child_result {
		int result;
		int done;
		int again;	/* a child that received OWNER_DIED may wait again */
	} children[4];
};

/* Returns the id of the calling thread, or 0. */
static inline uint64_t my_id(int fd)
{
	uint64_t id;

	return mw_owner(fd, 0, &id) ? 0 : id;
}

static inline int64_t load_id(const uint64_t *id)
{
	return __atomic_load_n(id, __ATOMIC_ACQUIRE);
}

static inline uint64_t await_id(const uint64_t *id)
{
	sleep_until(load_id(id));
	return load_id(id);
}

static inline void store_id(uint64_t *to, uint64_t id)
{
	__atomic_store_n(to, id, __ATOMIC_RELEASE);
}

/* A thread that has an id, waits once and stores the result. */
struct owned_waiter {
	pthread_t thread;
	int fd;
	const void *addr;
	uint64_t expected;
	uint32_t flags;
	uint64_t id;
	int result;
	int done;
	int stays;		/* the thread ends when this member becomes 0 */
};

static inline void *owned_waiter_main(void *arg)
{
	struct owned_waiter *w = arg;

	store_id(&w->id, my_id(w->fd));
	w->result = mw_wait(w->fd, w->addr, w->expected, MEMWAIT_FOREVER, w->flags);
	__atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
	sleep_until(!__atomic_load_n(&w->stays, __ATOMIC_ACQUIRE));
	return NULL;
}

static inline void owned_waiter_start(struct owned_waiter *w)
{
	uint32_t flags = w->flags & ~MEMWAIT_OWNED;
	int before = mw_waiters(w->fd, w->addr, flags);

	w->done = 0;
	w->id = 0;
	if (pthread_create(&w->thread, NULL, owned_waiter_main, w))
		abort();
	await_waiters_or_done(w->fd, w->addr, flags, before + 1, &w->done);
}

static inline int owned_waiter_result(struct owned_waiter *w)
{
	sleep_until(__atomic_load_n(&w->done, __ATOMIC_ACQUIRE));
	return w->result;
}

static inline int owned_waiter_join(struct owned_waiter *w)
{
	__atomic_store_n(&w->stays, 0, __ATOMIC_RELEASE);
	pthread_join(w->thread, NULL);
	return w->result;
}

/*
 * Like owned_waiter_main(), in a process. The process exists until it is killed, because the end of
 * a thread does not count as a death. After OWNER_DIED it waits again when it is allowed to.
 */
static inline void owned_child_main(int fd, struct child_result *child, const void *addr,
				    uint64_t expected, uint32_t flags)
{
	my_id(fd);
	child->result = mw_wait(fd, addr, expected, MEMWAIT_FOREVER, flags);
	__atomic_store_n(&child->done, 1, __ATOMIC_RELEASE);
	sleep_until(__atomic_load_n(&child->again, __ATOMIC_ACQUIRE));
	child->result = mw_wait(fd, addr, expected, MEMWAIT_FOREVER, flags);
	__atomic_store_n(&child->done, 2, __ATOMIC_RELEASE);
	pause();
}

static inline pid_t owned_child_start(int fd, struct child_result *child, const void *addr,
				      uint64_t expected, uint32_t flags)
{
	int before = mw_waiters(fd, addr, flags & ~MEMWAIT_OWNED);
	pid_t pid;

	memset(child, 0, sizeof(*child));
	pid = fork_child();
	if (!pid) {
		owned_child_main(fd, child, addr, expected, flags);
		_exit(0);
	}
	await_waiters_or_done(fd, addr, flags & ~MEMWAIT_OWNED, before + 1, &child->done);
	return pid;
}

static inline int owned_child_result(struct child_result *child, int waits)
{
	sleep_until(__atomic_load_n(&child->done, __ATOMIC_ACQUIRE) >= waits);
	return child->result;
}

FIXTURE(owner)
{
	int fd;
	long page;
	struct shared *shared;
	uint64_t id;
	uint64_t owners;	/* number of owners, including this thread */
};

FIXTURE_SETUP(owner)
{
	struct memwait_info info;

	self->fd = open_device(O_NONBLOCK);
	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel does not report deaths");
	self->page = sysconf(_SC_PAGESIZE);
	self->shared = shared_page(self->page);
	mw_await_owners(self->fd, 0);
	self->id = my_id(self->fd);
	ASSERT_NE(0, self->id);
	self->owners = 1;
}

FIXTURE_TEARDOWN(owner)
{
	int fd = memwait_open(0);

	close(self->fd);
	mw_await_owners(fd, self->owners);
	EXPECT_EQ(0, mw_owner(fd, MEMWAIT_OWNER_EXIT, NULL));
	EXPECT_EQ(0, restore_settings());
	close(fd);
}

#define OWNER_TEST(name)	TEST_F_TIMEOUT(owner, name, 300)

/* Returns whether the kernel considers the id to be the id of a living owner. */
static inline bool lives(int fd, uint64_t id)
{
	uint64_t word = id;
	int ret = mw_wait(fd, &word, id, 0, OWNED64);

	return ret == MEMWAIT_TIMED_OUT ? true : ret == MEMWAIT_OWNER_DIED ? false : (abort(), 0);
}

static inline void *publish_id(void *arg)
{
	struct owned_waiter *w = arg;

	store_id(&w->id, my_id(w->fd));
	sleep_until(!__atomic_load_n(&w->stays, __ATOMIC_ACQUIRE));
	return NULL;
}

#define REFCNT	"/sys/module/memwait/refcnt"

/*
 * Returns the number of references to the module, or -1. Before that, waits until the references of
 * dead owners have been dropped, which happens after these owners have stopped counting against the
 * limit. If another process is using the device, this wait ends at a time limit.
 */
static inline long settled_references(int fd)
{
	uint64_t end = patience(20);
	long known = mw_user_contexts(fd) + mw_user_owners(fd);

	sleep_until(read_number(REFCNT) <= known || now_ns(CLOCK_MONOTONIC) >= end);
	return read_number(REFCNT);
}

/* The ways in which an owner ends in its own process, after it has published its id. */
enum { EXITS, IS_KILLED, EXECUTES, THREAD_EXECUTES, THREAD_EXITS, LEADER_EXITS, SAYS_SO, ENDS };

static inline void *execute(void *arg)
{
	struct shared *shared = arg;
	int fd = memwait_open(0);

	shared->id = my_id(fd);
	sleep_until(__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE));
	execl("/bin/busybox", "sleep", "1000", NULL);
	execlp("sleep", "sleep", "1000", NULL);
	return NULL;
}

static inline void *exit_thread(void *arg)
{
	struct shared *shared = arg;
	int fd = memwait_open(0);

	store_id(&shared->id, my_id(fd));
	sleep_until(__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE));
	return NULL;
}

static inline void *outlive(void *arg)
{
	pause();
	return NULL;
}

static inline void end_as(int how, struct shared *shared)
{
	int fd = memwait_open(0);
	pthread_t thread;

	switch (how) {
	case THREAD_EXECUTES:
		pthread_create(&thread, NULL, execute, shared);
		pause();
		break;
	case THREAD_EXITS:
		pthread_create(&thread, NULL, exit_thread, shared);
		pthread_join(thread, NULL);
		pause();
		break;
	case LEADER_EXITS:
		pthread_create(&thread, NULL, outlive, NULL);
		break;
	case EXECUTES:
		execute(shared);
		break;
	}
	store_id(&shared->id, my_id(fd));
	if (how == IS_KILLED)
		pause();
	sleep_until(__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE));
	if (how == SAYS_SO) {
		mw_owner(fd, MEMWAIT_OWNER_EXIT, NULL);
		pause();
	}
	if (how == LEADER_EXITS)
		pthread_exit(NULL);
}

static inline pid_t start_owner(struct shared *shared, int how)
{
	pid_t pid;

	shared->id = 0;
	shared->go = 0;
	pid = fork_child();
	if (!pid) {
		end_as(how, shared);
		_exit(0);
	}
	await_id(&shared->id);
	return pid;
}

#endif /* OWNER_TEST_H */
