// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Uses each ioctl of /dev/memwait without the library: the examples in Documentation/memwait.rst,
 * and a test that they behave as that page says.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/memwait.h>

/* memwait.rst: MEMWAIT_IOC_INFO */
int can_name_owners(int fd)
{
	struct memwait_info info;

	return ioctl(fd, MEMWAIT_IOC_INFO, &info) == 0 && info.features & MEMWAIT_FEATURE_OWNERS;
}

/* memwait.rst: MEMWAIT_IOC_WAIT */
int wait_while_zero(int fd, _Atomic uint32_t *word)
{
	struct memwait_wait wait = {
		.addr = (uintptr_t)word,
		.expected = 0,
		.deadline = MEMWAIT_FOREVER,
		.flags = MEMWAIT_SIZE_U32,
	};

	while (*word == 0)
		if (ioctl(fd, MEMWAIT_IOC_WAIT, &wait) < 0 && errno != EINTR)
			return -errno;
	return 0;
}

/* memwait.rst: MEMWAIT_IOC_NOTIFY */
int set_to_one(int fd, _Atomic uint32_t *word)
{
	struct memwait_notify notify = {
		.addr = (uintptr_t)word,
		.count = MEMWAIT_ALL,
		.flags = MEMWAIT_SIZE_U32,
	};

	*word = 1;
	return ioctl(fd, MEMWAIT_IOC_NOTIFY, &notify);	/* how many it woke */
}

/* memwait.rst: MEMWAIT_IOC_WAITERS */
int count_waiters(int fd, _Atomic uint32_t *word)
{
	struct memwait_notify notify = { .addr = (uintptr_t)word, .flags = MEMWAIT_SIZE_U32 };

	return ioctl(fd, MEMWAIT_IOC_WAITERS, &notify);
}

/* memwait.rst: MEMWAIT_IOC_WAIT_ASYNC */
int begin_wait(int fd, _Atomic uint32_t *word, uint64_t user_data, uint64_t *id)
{
	struct memwait_async entry = {
		.wait = {
			.addr = (uintptr_t)word,
			.expected = 0,
			.deadline = MEMWAIT_FOREVER,
			.flags = MEMWAIT_SIZE_U32,
		},
		.user_data = user_data,
	};
	struct memwait_wait_async batch = {
		.waits = (uintptr_t)&entry,
		.count = 1,
		.entry_size = sizeof(entry),
	};

	if (ioctl(fd, MEMWAIT_IOC_WAIT_ASYNC, &batch) < 0)
		return -errno;
	*id = entry.id;
	return entry.result;	/* MEMWAIT_PENDING: a completion will come */
}

/* memwait.rst: MEMWAIT_GROUP */
int begin_wait_for_either(int fd, _Atomic uint32_t *first, _Atomic uint32_t *second,
			  uint64_t user_data)
{
	struct memwait_wait words[] = {
		{ .addr = (uintptr_t)first, .expected = 0, .flags = MEMWAIT_SIZE_U32 },
		{ .addr = (uintptr_t)second, .expected = 0, .flags = MEMWAIT_SIZE_U32 },
	};
	struct memwait_async entry = {
		.any = {
			.waits = (uintptr_t)words,
			.count = 2,
			.deadline = MEMWAIT_FOREVER,
			.flags = MEMWAIT_GROUP,
		},
		.user_data = user_data,
	};
	struct memwait_wait_async batch = {
		.waits = (uintptr_t)&entry,
		.count = 1,
		.entry_size = sizeof(entry),
	};

	return ioctl(fd, MEMWAIT_IOC_WAIT_ASYNC, &batch) < 0 ? -errno : entry.result;
}

/* memwait.rst: MEMWAIT_PERSISTENT */
int watch(int fd, _Atomic uint32_t *word, uint64_t user_data)
{
	struct memwait_async entry = {
		.wait = {
			.addr = (uintptr_t)word,
			.expected = *word,
			.deadline = MEMWAIT_FOREVER,
			.flags = MEMWAIT_SIZE_U32 | MEMWAIT_PERSISTENT,
		},
		.user_data = user_data,
	};
	struct memwait_wait_async batch = {
		.waits = (uintptr_t)&entry,
		.count = 1,
		.entry_size = sizeof(entry),
	};

	return ioctl(fd, MEMWAIT_IOC_WAIT_ASYNC, &batch) < 0 ? -errno : entry.result;
}

/* memwait.rst: MEMWAIT_IOC_CANCEL */
int cancel_wait(int fd, uint64_t id)
{
	struct memwait_cancel cancel = { .id = id };

	return ioctl(fd, MEMWAIT_IOC_CANCEL, &cancel) < 0 ? -errno : 0;
}

/* memwait.rst: read */
int read_completions(int fd, void (*handle)(const struct memwait_completion *))
{
	struct memwait_completion done[16];
	ssize_t size, i;

	while ((size = read(fd, done, sizeof(done))) > 0)
		for (i = 0; i < size / (ssize_t)sizeof(done[0]); i++)
			handle(&done[i]);
	return errno == EAGAIN ? 0 : -errno;	/* fd is O_NONBLOCK */
}

/* memwait.rst: MEMWAIT_IOC_WAIT_ANY */
int wait_for_either(int fd, _Atomic uint32_t *first, _Atomic uint32_t *second)
{
	struct memwait_wait words[] = {
		{ .addr = (uintptr_t)first, .expected = 0, .flags = MEMWAIT_SIZE_U32 },
		{ .addr = (uintptr_t)second, .expected = 0, .flags = MEMWAIT_SIZE_U32 },
	};
	struct memwait_wait_any any = {
		.waits = (uintptr_t)words,
		.count = 2,
		.deadline = MEMWAIT_FOREVER,
	};

	/* MEMWAIT_OK, or MEMWAIT_NOT_EQUAL */
	return ioctl(fd, MEMWAIT_IOC_WAIT_ANY, &any) < 0 ? -errno : (int)any.index;
}

/* memwait.rst: MEMWAIT_IOC_REQUEUE */
int broadcast(int fd, _Atomic uint32_t *condition, _Atomic uint32_t *mutex)
{
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)condition,
		.expected = *condition += 1,
		.target = (uintptr_t)mutex,
		.count = 1,
		.move = MEMWAIT_ALL,
		.flags = MEMWAIT_SIZE_U32,
	};

	/* MEMWAIT_NOT_EQUAL: a later broadcast wakes and moves them all */
	return ioctl(fd, MEMWAIT_IOC_REQUEUE, &requeue) < 0 ? -errno : (int)requeue.moved;
}

/* memwait.rst: MEMWAIT_IOC_NOTIFY_WAIT */
int hand_over(int fd, _Atomic uint32_t *theirs, _Atomic uint32_t *mine)
{
	struct memwait_notify_wait both = {
		.notify = { .addr = (uintptr_t)theirs, .count = 1, .flags = MEMWAIT_SIZE_U32 },
		.wait = {
			.addr = (uintptr_t)mine,
			.expected = 0,
			.deadline = MEMWAIT_FOREVER,
			.flags = MEMWAIT_SIZE_U32,
		},
	};

	*mine = 0;
	*theirs = 1;
	do {	/* after EINTR the kernel only waits; it does not notify again */
		if (ioctl(fd, MEMWAIT_IOC_NOTIFY_WAIT, &both) < 0 && errno != EINTR)
			return -errno;
	} while (*mine == 0);
	return 0;
}

/* memwait.rst: MEMWAIT_IOC_NOTIFY_MANY */
int notify_two(int fd, _Atomic uint32_t *first, _Atomic uint32_t *second)
{
	struct memwait_notify notifies[] = {
		{ .addr = (uintptr_t)first, .count = MEMWAIT_ALL, .flags = MEMWAIT_SIZE_U32 },
		{ .addr = (uintptr_t)second, .count = 1, .flags = MEMWAIT_SIZE_U32 },
	};
	uint32_t woken[2];
	struct memwait_notify_many many = {
		.notifies = (uintptr_t)notifies,
		.woken = (uintptr_t)woken,
		.count = 2,
	};

	if (ioctl(fd, MEMWAIT_IOC_NOTIFY_MANY, &many) != 2)
		return -1;
	return (int)(woken[0] + woken[1]);
}

/* memwait.rst: MEMWAIT_IOC_OWNER */
uint64_t my_id(int fd)
{
	struct memwait_owner owner = { .flags = 0 };

	return ioctl(fd, MEMWAIT_IOC_OWNER, &owner) < 0 ? 0 : owner.id;
}

/* memwait.rst: MEMWAIT_OWNED */
#define HAS_WAITERS	0x8000000000000000ULL

static int owner_is_dead(int fd, struct memwait_wait wait)
{
	wait.deadline = 0;	/* only looks */
	return ioctl(fd, MEMWAIT_IOC_WAIT, &wait) == MEMWAIT_OWNER_DIED;
}

/* 0: locked. -EOWNERDEAD: locked, but the last owner died while it held the lock. */
int lock(int fd, _Atomic uint64_t *word, uint64_t me)
{
	struct memwait_wait wait = {
		.addr = (uintptr_t)word,
		.deadline = MEMWAIT_FOREVER,
		.flags = MEMWAIT_SIZE_U64 | MEMWAIT_OWNED,
	};
	uint64_t seen = 0;
	int result;

	while (!atomic_compare_exchange_strong(word, &seen, me)) {
		if (seen & HAS_WAITERS ||
		    atomic_compare_exchange_strong(word, &seen, seen | HAS_WAITERS)) {
			seen |= HAS_WAITERS;
			wait.expected = seen;
			result = ioctl(fd, MEMWAIT_IOC_WAIT, &wait);
			if (result < 0 && errno != EINTR)
				return -errno;
			me |= HAS_WAITERS;	/* there may be others */
			if (result == MEMWAIT_OWNER_DIED && owner_is_dead(fd, wait) &&
			    atomic_compare_exchange_strong(word, &seen, me))
				return -EOWNERDEAD;
		}
		seen = 0;
	}
	return 0;
}

void unlock(int fd, _Atomic uint64_t *word)
{
	struct memwait_notify notify = {
		.addr = (uintptr_t)word,
		.count = 1,
		.flags = MEMWAIT_SIZE_U64,
	};

	if (atomic_exchange(word, 0) & HAS_WAITERS)
		ioctl(fd, MEMWAIT_IOC_NOTIFY, &notify);
}

/* memwait.rst: MEMWAIT_IOC_CHANGE_NOTIFY */
int add_one(int fd, _Atomic uint32_t *word, uint32_t *old)
{
	struct memwait_change change = {
		.notify = { .addr = (uintptr_t)word, .count = 1, .flags = MEMWAIT_SIZE_U32 },
		.operation = MEMWAIT_CHANGE_ADD,
		.operand = 1,
	};
	int woken = ioctl(fd, MEMWAIT_IOC_CHANGE_NOTIFY, &change);

	*old = change.old;
	return woken;
}

/* memwait.rst: the rest is not shown */
#define CHECK(expression)						\
do {									\
	if (!(expression)) {						\
		printf("line %d: not %s\n", __LINE__, #expression);	\
		exit(1);						\
	}								\
} while (0)

#define ROUNDS	100

static struct shared {
	_Atomic uint32_t first, second;
	_Atomic uint64_t lock;
} *shared;

static int fd;
static struct memwait_completion last;
static unsigned int completions;

static void handle(const struct memwait_completion *done)
{
	last = *done;
	completions++;
}

/* Reads all completions. Returns how many there were; the last completion is in last. */
static unsigned int read_all(void)
{
	completions = 0;
	CHECK(!read_completions(fd, handle));
	return completions;
}

static void await_waiters(_Atomic uint32_t *word, int count)
{
	while (count_waiters(fd, word) != count)
		sched_yield();
}

static void *wait_on_first(void *arg)
{
	CHECK(!wait_while_zero(fd, &shared->first));
	return arg;
}

static void *wait_on_both(void *arg)
{
	CHECK(wait_for_either(fd, &shared->first, &shared->second) == 1);
	return arg;
}

static void *take_turns(void *arg)
{
	int i;

	CHECK(!wait_while_zero(fd, &shared->first));
	for (i = 1; i < ROUNDS; i++)
		CHECK(!hand_over(fd, &shared->second, &shared->first));
	set_to_one(fd, &shared->second);
	return arg;
}

static void *lock_and_unlock(void *arg)
{
	uint64_t me = my_id(fd);
	int i;

	for (i = 0; i < ROUNDS; i++) {
		CHECK(!lock(fd, &shared->lock, me));
		shared->first++;	/* two steps, so that it needs the lock */
		sched_yield();
		shared->second = shared->first;
		unlock(fd, &shared->lock);
	}
	return arg;
}

static void threads_wait(void)
{
	pthread_t thread;
	int i;

	CHECK(!pthread_create(&thread, NULL, wait_on_first, NULL));
	await_waiters(&shared->first, 1);
	CHECK(set_to_one(fd, &shared->first) == 1);
	pthread_join(thread, NULL);

	shared->first = 0;
	CHECK(!pthread_create(&thread, NULL, wait_on_both, NULL));
	await_waiters(&shared->second, 1);
	CHECK(set_to_one(fd, &shared->second) == 1);
	pthread_join(thread, NULL);
	CHECK(wait_for_either(fd, &shared->first, &shared->second) == 1);

	shared->second = 0;
	CHECK(!pthread_create(&thread, NULL, take_turns, NULL));
	for (i = 0; i < ROUNDS; i++)
		CHECK(!hand_over(fd, &shared->first, &shared->second));
	pthread_join(thread, NULL);
	shared->first = 0;
	shared->second = 0;
}

static void loops_wait(void)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };
	uint64_t id;
	uint32_t old;

	CHECK(begin_wait(fd, &shared->first, 1, &id) == MEMWAIT_PENDING);
	CHECK(poll(&pollfd, 1, 0) == 0);
	CHECK(set_to_one(fd, &shared->first) == 1);
	CHECK(poll(&pollfd, 1, -1) == 1);
	CHECK(read_all() == 1 && last.user_data == 1 && last.id == id && last.count == 1);
	CHECK(begin_wait(fd, &shared->first, 1, &id) == MEMWAIT_NOT_EQUAL);

	shared->first = 0;
	CHECK(begin_wait(fd, &shared->first, 2, &id) == MEMWAIT_PENDING);
	CHECK(!cancel_wait(fd, id));
	CHECK(cancel_wait(fd, id) == -ENOENT && !read_all());

	CHECK(begin_wait_for_either(fd, &shared->first, &shared->second, 3) == MEMWAIT_PENDING);
	CHECK(notify_two(fd, &shared->first, &shared->second) == 1);
	CHECK(read_all() == 1 && last.user_data == 3 && last.index == 0);

	CHECK(watch(fd, &shared->first, 4) == MEMWAIT_PENDING);
	CHECK(add_one(fd, &shared->first, &old) == 1 && old == 0);
	CHECK(add_one(fd, &shared->first, &old) == 1 && old == 1);
	CHECK(read_all() == 1 && last.count == 2 && last.flags == MEMWAIT_MORE);
	CHECK(!cancel_wait(fd, last.id));

	shared->first = 0;
	CHECK(begin_wait(fd, &shared->first, 5, &id) == MEMWAIT_PENDING);
	CHECK(begin_wait(fd, &shared->first, 6, &id) == MEMWAIT_PENDING);
	CHECK(begin_wait(fd, &shared->first, 7, &id) == MEMWAIT_PENDING);
	CHECK(broadcast(fd, &shared->first, &shared->second) == 2);
	CHECK(read_all() == 1 && last.user_data == 5);
	CHECK(count_waiters(fd, &shared->second) == 2);
	CHECK(notify_two(fd, &shared->first, &shared->second) == 1);
	CHECK(read_all() == 1 && last.user_data == 6);
	CHECK(!cancel_wait(fd, id));

	shared->first = 0;
}

static void owners_die(void)
{
	uint64_t me = my_id(fd);
	pthread_t thread;
	pid_t child;
	int status;

	CHECK(me && me == my_id(fd));
	CHECK(!pthread_create(&thread, NULL, lock_and_unlock, NULL));
	lock_and_unlock(NULL);
	pthread_join(thread, NULL);
	CHECK(shared->first == 2 * ROUNDS && shared->second == 2 * ROUNDS);

	child = fork();
	if (!child)
		_exit(lock(fd, &shared->lock, my_id(fd)));
	CHECK(waitpid(child, &status, 0) == child && !status);
	CHECK(lock(fd, &shared->lock, me) == -EOWNERDEAD);
	unlock(fd, &shared->lock);
	CHECK(!lock(fd, &shared->lock, me));
}

int main(void)
{
	fd = open("/dev/memwait", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (fd < 0 || shared == MAP_FAILED) {
		perror("/dev/memwait");
		return 1;
	}
	threads_wait();
	loops_wait();
	if (can_name_owners(fd))
		owners_die();
	return 0;
}
