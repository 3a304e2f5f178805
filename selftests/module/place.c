// SPDX-License-Identifier: GPL-2.0
/* R12: a thread that is interrupted and returns to its words retains its queue position. */
#include "signal_test.h"
#include <linux/io_uring.h>
#include <sys/ptrace.h>

#define BOX	"/sys/fs/cgroup/memwait-place"

/* How the thread of a test waits and returns. */
enum way {
	RESTARTS,		/* because of SA_RESTART */
	CALLS_AGAIN,		/* after EINTR */
	ANY_RESTARTS,		/* WAIT_ANY on three words, the tested word last */
	ANY_CALLS_AGAIN,
	NOTIFY_WAIT_RESTARTS,
	NOTIFY_WAIT_CALLS_AGAIN,
	OWNED_RESTARTS,
	OWNED_CALLS_AGAIN,
};

struct thread {
	pthread_t thread;
	pid_t tid;
	int fd;
	uint64_t *words;	/* three words; the thread waits on the last of them */
	enum way way;
	uint32_t *second;	/* the word of the second call, if it differs */
	int away;		/* the thread has received EINTR */
	int come_back;		/* the thread may call again */
	uint64_t expected;	/* value that the second call expects */
	int result;
	int done;
};

static int wait_once(struct thread *t, uint64_t expected)
{
	struct memwait_wait waits[3];
	struct memwait_notify_wait both = {
		.notify = { .addr = (uintptr_t)&t->words[0], .count = 1, .flags = U32 },
		.wait = { .addr = (uintptr_t)&t->words[2], .expected = expected, .flags = U32,
			  .deadline = MEMWAIT_FOREVER },
	};
	struct memwait_wait_any any = {
		.waits = (uintptr_t)waits, .count = 3, .deadline = MEMWAIT_FOREVER,
	};
	int i;

	for (i = 0; i < 3; i++)
		waits[i] = (struct memwait_wait) { .addr = (uintptr_t)&t->words[i],
						   .expected = i == 2 ? expected : 0,
						   .flags = U32 };
	switch (t->way) {
	case RESTARTS:
	case CALLS_AGAIN:
		return mw_wait(t->fd, &t->words[2], expected, MEMWAIT_FOREVER, U32);
	case ANY_RESTARTS:
	case ANY_CALLS_AGAIN:
		return xioctl(t->fd, MEMWAIT_IOC_WAIT_ANY, &any);
	case NOTIFY_WAIT_RESTARTS:
	case NOTIFY_WAIT_CALLS_AGAIN:
		return xioctl(t->fd, MEMWAIT_IOC_NOTIFY_WAIT, &both);
	case OWNED_RESTARTS:
	case OWNED_CALLS_AGAIN:
		return mw_wait(t->fd, &t->words[2], expected, MEMWAIT_FOREVER,
			       MEMWAIT_SIZE_U64 | MEMWAIT_OWNED);
	}
	return -EINVAL;
}

static void *thread_main(void *arg)
{
	struct thread *t = arg;
	uint64_t id;

	if (t->way == OWNED_RESTARTS || t->way == OWNED_CALLS_AGAIN)
		mw_owner(t->fd, 0, &id);
	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	t->result = wait_once(t, 0);
	while (t->result == -EINTR) {
		__atomic_store_n(&t->away, 1, __ATOMIC_RELEASE);
		spin_until(__atomic_load_n(&t->come_back, __ATOMIC_ACQUIRE));
		t->result = t->second ?
			    mw_wait(t->fd, t->second, 0, MEMWAIT_FOREVER, U32) :
			    wait_once(t, t->expected);
	}
	__atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void thread_start(struct thread *t)
{
	int before = mw_waiters(t->fd, &t->words[2], U32);

	if (pthread_create(&t->thread, NULL, thread_main, t))
		abort();
	await_waiters(t->fd, &t->words[2], U32, before + 1);
}

static int thread_join(struct thread *t)
{
	pthread_join(t->thread, NULL);
	return t->result;
}

/* Interrupts the thread. Returns when the thread has received EINTR and is in no queue. */
static void send_away(struct thread *t)
{
	interrupt_thread(t->thread, t->tid);
	spin_until(__atomic_load_n(&t->away, __ATOMIC_ACQUIRE));
}

static void call_back(struct thread *t)
{
	__atomic_store_n(&t->come_back, 1, __ATOMIC_RELEASE);
}

static struct thread one(int fd, uint64_t *words, enum way way)
{
	return (struct thread) { .fd = fd, .words = words, .way = way };
}

FIXTURE(place)
{
	int fd;
	uint64_t *words;
	uint64_t user_waits;
};

FIXTURE_SETUP(place)
{
	self->fd = open_device(O_NONBLOCK);
	self->words = shared_page(sysconf(_SC_PAGESIZE));
	self->user_waits = mw_user_waits(self->fd);
}

FIXTURE_TEARDOWN(place)
{
	int fd = memwait_open(0);

	close(self->fd);
	EXPECT_EQ(self->user_waits, mw_await_user_waits(fd, self->user_waits));
	close(fd);
}

FIXTURE_VARIANT(place)
{
	enum way way;
};

FIXTURE_VARIANT_ADD(place, wait) { .way = RESTARTS };
FIXTURE_VARIANT_ADD(place, wait_any) { .way = ANY_RESTARTS };
FIXTURE_VARIANT_ADD(place, notify_wait) { .way = NOTIFY_WAIT_RESTARTS };
FIXTURE_VARIANT_ADD(place, owned) { .way = OWNED_RESTARTS };

#define PLACE_TEST(name)	TEST_F_TIMEOUT(place, name, 300)

/* Arms an async wait on the word, behind the other waiters. */
#define ARM(user_data)	\
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &self->words[2], user_data))

PLACE_TEST(R12_a_restarted_wait_keeps_its_position)
{
	struct thread t = one(self->fd, self->words, variant->way);
	int i;

	handle(SIGUSR1, SA_RESTART);
	ARM(1);
	thread_start(&t);
	ARM(2);
	for (i = 0; i < 5; i++) {
		interrupt_thread(t.thread, t.tid);
		await_waiters(self->fd, &self->words[2], U32, 3);
	}
	EXPECT_EQ(1, mw_notify(self->fd, &self->words[2], 1, U32));
	EXPECT_COMPLETION(self->fd, 1, MEMWAIT_OK);
	EXPECT_EQ(1, mw_notify(self->fd, &self->words[2], 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, &self->words[2], 1, U32));
	EXPECT_COMPLETION(self->fd, 2, MEMWAIT_OK);
	EXPECT_EQ(MEMWAIT_OK, thread_join(&t));
}

PLACE_TEST(R12_a_second_call_after_eintr_keeps_the_position)
{
	struct thread t = one(self->fd, self->words, variant->way + 1);

	handle(SIGUSR1, 0);
	thread_start(&t);
	ARM(1);
	ARM(2);
	send_away(&t);
	/* While the thread is away, a notify passes over it, and it is not counted as a waiter. */
	EXPECT_EQ(2, mw_waiters(self->fd, &self->words[2], U32));
	EXPECT_EQ(1, mw_fdinfo(self->fd, "places"));
	EXPECT_EQ(self->user_waits + 2 + PIN_WAITS, mw_user_waits(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, &self->words[2], 1, U32));
	EXPECT_COMPLETION(self->fd, 1, MEMWAIT_OK);
	ARM(3);
	call_back(&t);
	await_waiters(self->fd, &self->words[2], U32, 3);
	EXPECT_EQ(1, mw_notify(self->fd, &self->words[2], 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(2, mw_notify(self->fd, &self->words[2], MEMWAIT_ALL, U32));
	EXPECT_COMPLETION(self->fd, 2, MEMWAIT_OK);
	EXPECT_COMPLETION(self->fd, 3, MEMWAIT_OK);
	EXPECT_EQ(MEMWAIT_OK, thread_join(&t));
	/* The record of the queue position is released. */
	EXPECT_EQ(0, mw_fdinfo(self->fd, "places"));
}

PLACE_TEST(R12_a_position_outlives_the_queue)
{
	struct thread t = one(self->fd, self->words, variant->way + 1);
	uint32_t *others = shared_page(1 << 14);
	uint64_t id;
	int i;

	handle(SIGUSR1, 0);
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, &self->words[2], 0, MEMWAIT_FOREVER,
						    U32, 0, &id));
		EXPECT_EQ(0, mw_cancel(self->fd, id));
	}
	thread_start(&t);
	send_away(&t);
	/* In the meantime the word has no waiter, and many other words get and lose a waiter. */
	for (i = 0; i < 1024; i++) {
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, &others[i], 0, MEMWAIT_FOREVER, U32,
						    0, &id));
		EXPECT_EQ(0, mw_cancel(self->fd, id));
	}
	ARM(1);
	ARM(2);
	call_back(&t);
	await_waiters(self->fd, &self->words[2], U32, 3);
	EXPECT_EQ(1, mw_notify(self->fd, &self->words[2], 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(2, mw_notify(self->fd, &self->words[2], MEMWAIT_ALL, U32));
	EXPECT_EQ(MEMWAIT_OK, thread_join(&t));
	munmap(others, 1 << 14);
}

/* The word may have had another value in the meantime: only a wait ends a queue position. */
PLACE_TEST(R12_not_equal_keeps_the_position)
{
	struct thread t = one(self->fd, self->words, variant->way + 1);

	handle(SIGUSR1, 0);
	t.expected = 7;
	thread_start(&t);
	ARM(1);
	send_away(&t);
	call_back(&t);
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, thread_join(&t));
	EXPECT_EQ(1, mw_fdinfo(self->fd, "places"));
	EXPECT_EQ(1, mw_notify(self->fd, &self->words[2], MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R12_a_position_is_lost_by_another_wait)
{
	uint64_t *words = (uint64_t *)self->shared;
	struct thread t = one(self->fd, words, CALLS_AGAIN);
	uint32_t *other = (uint32_t *)&words[4];

	handle(SIGUSR1, 0);
	thread_start(&t);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &words[2], 1));
	send_away(&t);
	/* The thread first waits on another word, and then on the first word again. */
	t.second = other;
	__atomic_store_n(&t.away, 0, __ATOMIC_RELEASE);
	call_back(&t);
	await_waiters(self->fd, other, U32, 1);
	__atomic_store_n(&t.come_back, 0, __ATOMIC_RELEASE);
	send_away(&t);
	t.second = NULL;
	call_back(&t);
	await_waiters(self->fd, &words[2], U32, 2);
	EXPECT_EQ(1, mw_notify(self->fd, &words[2], 1, U32));
	EXPECT_TRUE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, &words[2], 1, U32));
	EXPECT_EQ(MEMWAIT_OK, thread_join(&t));
}

MEMWAIT_TEST(R12_a_moved_waiter_keeps_its_position_at_the_target)
{
	uint64_t *words = (uint64_t *)self->shared;
	struct thread t = one(self->fd, words, CALLS_AGAIN);
	uint32_t *target = (uint32_t *)&words[4];
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)&words[2], .target = (uintptr_t)target, .move = 1, .flags = U32,
	};

	handle(SIGUSR1, 0);
	thread_start(&t);
	EXPECT_EQ(0, xioctl(self->fd, MEMWAIT_IOC_REQUEUE, &requeue));
	EXPECT_EQ(1, mw_waiters(self->fd, target, U32));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, target, 1));
	t.second = target;
	send_away(&t);
	call_back(&t);
	await_waiters(self->fd, target, U32, 2);
	EXPECT_EQ(1, mw_notify(self->fd, target, 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, target, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, thread_join(&t));
}

/*
 * Waiters that have returned to their position are moved like other waiters: in their order, to the
 * end of the queue.
 */
MEMWAIT_TEST(R12_a_thread_that_has_returned_is_moved_in_order)
{
	uint64_t *words = (uint64_t *)self->shared;
	struct thread t = one(self->fd, words, RESTARTS);
	uint32_t *target = (uint32_t *)&words[4];
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)&words[2], .target = (uintptr_t)target, .move = 1, .flags = U32,
	};

	handle(SIGUSR1, SA_RESTART);
	thread_start(&t);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &words[2], 1));
	interrupt_thread(t.thread, t.tid);
	await_waiters(self->fd, &words[2], U32, 2);
	EXPECT_EQ(0, xioctl(self->fd, MEMWAIT_IOC_REQUEUE, &requeue));
	EXPECT_EQ(0, xioctl(self->fd, MEMWAIT_IOC_REQUEUE, &requeue));
	EXPECT_EQ(1, mw_notify(self->fd, target, 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, target, 1, U32));
	EXPECT_TRUE(mw_readable(self->fd));
	EXPECT_EQ(MEMWAIT_OK, thread_join(&t));
}

#define TRACING	"/sys/kernel/tracing"
#define PROBE	"memwait_place_test/looks"
#define WAITS	100
#define OTHERS	4

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_APPEND);
	bool written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return written;
}

/* Returns how often the module has searched for a record while it held a lock. */
static long count_looks(void)
{
	FILE *f = fopen(TRACING "/kprobe_profile", "r");
	char name[80];
	long hits, looks = -1;

	while (f && fscanf(f, "%79s %ld %*d", name, &hits) == 2) {
		if (!strcmp(name, "looks"))
			looks = hits;
	}
	if (f)
		fclose(f);
	return looks;
}

static int wait_often(void *arg)
{
	struct thread *t = arg;
	int i;

	for (i = 0; i < WAITS; i++) {
		if (mw_wait(t->fd, &t->words[4], 0, 1, U32) != MEMWAIT_TIMED_OUT)
			return -1;
	}
	return 0;
}

/*
 * A thread that stays away costs other threads nothing, except a few threads whose records are in
 * the same tree.
 */
MEMWAIT_TEST(R31_an_interrupted_thread_costs_others_no_lock)
{
	uint64_t *words = (uint64_t *)self->shared;
	struct thread t = one(self->fd, words, CALLS_AGAIN);
	struct runner others[OTHERS];
	int i;

	if (access(TRACING "/kprobe_events", W_OK))
		SKIP(return, "no kprobes");
	ASSERT_TRUE(write_text(TRACING "/kprobe_events",
			       "p:" PROBE " memwait:memwait_position_find"));
	EXPECT_TRUE(write_text(TRACING "/events/" PROBE "/enable", "1"));
	handle(SIGUSR1, 0);
	thread_start(&t);
	send_away(&t);
	EXPECT_EQ(1, mw_fdinfo(self->fd, "places"));
	for (i = 0; i < OTHERS; i++)
		runner_start(&others[i], wait_often, &t);
	for (i = 0; i < OTHERS; i++)
		EXPECT_EQ(0, runner_join(&others[i]));
	EXPECT_GE(WAITS, count_looks());
	call_back(&t);
	await_waiters(self->fd, &words[2], U32, 1);
	EXPECT_LE(1, count_looks());
	EXPECT_EQ(1, mw_notify(self->fd, &words[2], 1, U32));
	EXPECT_EQ(MEMWAIT_OK, thread_join(&t));
	EXPECT_TRUE(write_text(TRACING "/events/" PROBE "/enable", "0"));
	EXPECT_TRUE(write_text(TRACING "/kprobe_events", "-:" PROBE));
}

#define MANY	40

/* The threads return in the reverse order. Other waiters are behind them. */
MEMWAIT_TEST(R12_many_threads_return_to_their_order)
{
	uint64_t *words = (uint64_t *)self->shared;
	struct thread t[MANY];
	int i, j;

	handle(SIGUSR1, 0);
	for (i = 0; i < MANY; i++) {
		t[i] = one(self->fd, words, CALLS_AGAIN);
		thread_start(&t[i]);
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &words[2], i));
	}
	for (i = 0; i < MANY; i++)
		send_away(&t[i]);
	for (i = MANY; i--;) {
		call_back(&t[i]);
		await_waiters(self->fd, &words[2], U32, 2 * MANY - i);
	}
	for (i = 0; i < MANY; i++) {
		EXPECT_EQ(1, mw_notify(self->fd, &words[2], 1, U32));
		EXPECT_EQ(MEMWAIT_OK, thread_join(&t[i]));
		EXPECT_FALSE(mw_readable(self->fd));
		for (j = i + 1; j < MANY; j++)
			EXPECT_EQ(0, __atomic_load_n(&t[j].done, __ATOMIC_ACQUIRE));
		EXPECT_EQ(1, mw_notify(self->fd, &words[2], 1, U32));
		EXPECT_COMPLETION(self->fd, i, MEMWAIT_OK);
	}
}

/* There are more waiters than one step wakes, and other waiters between some of them. */
MEMWAIT_TEST(R13_all_that_have_returned_are_woken)
{
	uint64_t *words = (uint64_t *)self->shared;
	struct memwait_completion done[MANY];
	struct thread t[MANY];
	int i;

	handle(SIGUSR1, 0);
	for (i = 0; i < MANY; i++) {
		t[i] = one(self->fd, words, CALLS_AGAIN);
		thread_start(&t[i]);
		if (i % 4 == 0)
			EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &words[2], i));
	}
	for (i = 0; i < MANY; i++) {
		send_away(&t[i]);
		call_back(&t[i]);
	}
	await_waiters(self->fd, &words[2], U32, MANY + MANY / 4);
	EXPECT_EQ(MANY + MANY / 4, mw_notify(self->fd, &words[2], MEMWAIT_ALL, U32));
	for (i = 0; i < MANY; i++)
		EXPECT_EQ(MEMWAIT_OK, thread_join(&t[i]));
	EXPECT_EQ(MANY / 4, mw_read(self->fd, done, MANY));
}

/* Starts threads one after another and ends each of them while it is away from a queue. */
static void leave_places(struct __test_metadata *_metadata, int fd, uint64_t *words, int n)
{
	struct thread t;

	while (n--) {
		t = one(fd, words, CALLS_AGAIN);
		t.expected = 7;
		thread_start(&t);
		send_away(&t);
		call_back(&t);
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, thread_join(&t));
		/* A joined thread may not have exited completely yet. */
		sleep_until(!thread_state(t.tid));
	}
}

MEMWAIT_TEST(R12_positions_of_exited_threads_do_not_accumulate)
{
	handle(SIGUSR1, 0);
	leave_places(_metadata, self->fd, (uint64_t *)self->shared, 50);
	EXPECT_LT(0, mw_fdinfo(self->fd, "places"));
	EXPECT_GE(10, mw_fdinfo(self->fd, "places"));
}

#define ALIVE	8

/* The records do not accumulate even if other threads that are away are still alive. */
MEMWAIT_TEST(R12_positions_of_exited_threads_do_not_accumulate_among_others)
{
	uint64_t *words = (uint64_t *)self->shared;
	struct thread alive[ALIVE];
	int i;

	handle(SIGUSR1, 0);
	for (i = 0; i < ALIVE; i++) {
		alive[i] = one(self->fd, words, CALLS_AGAIN);
		alive[i].expected = 7;
		thread_start(&alive[i]);
		send_away(&alive[i]);
	}
	EXPECT_EQ(ALIVE, mw_fdinfo(self->fd, "places"));
	leave_places(_metadata, self->fd, words, 100);
	EXPECT_LE(ALIVE, mw_fdinfo(self->fd, "places"));
	EXPECT_GE(4 * ALIVE, mw_fdinfo(self->fd, "places"));
	for (i = 0; i < ALIVE; i++) {
		call_back(&alive[i]);
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, thread_join(&alive[i]));
	}
}

/*
 * A position counts as one wait for each of its words. Positions of a closed context no longer
 * count.
 */
MEMWAIT_TEST(R31_positions_of_a_user_are_limited_like_waits)
{
	uint64_t *words = (uint64_t *)self->shared;
	struct thread t[4];
	int round, fd, i;

	if (change_number("/sys/module/memwait/parameters/max_user_waits", 5))
		SKIP(return, "needs root to set a limit");
	handle(SIGUSR1, 0);
	for (round = 0; round < 3; round++) {
		fd = memwait_open(O_NONBLOCK);
		for (i = 0; i < 4; i++) {
			/*
			 * The calls have three words, one, three and one. There is no room for the
			 * position of the third call.
			 */
			t[i] = one(fd, words, i % 2 ? CALLS_AGAIN : ANY_CALLS_AGAIN);
			t[i].expected = 7;
			thread_start(&t[i]);
			send_away(&t[i]);
			EXPECT_EQ(i < 2 ? i + 1 : i, mw_fdinfo(fd, "places"));
		}
		for (i = 0; i < 4; i++) {
			call_back(&t[i]);
			EXPECT_EQ(MEMWAIT_NOT_EQUAL, thread_join(&t[i]));
		}
		close(fd);
	}
}

static pid_t fork_first(int fd, const uint32_t *word)
{
	pid_t pid = fork();

	if (!pid)
		_exit(mw_wait(fd, word, 0, MEMWAIT_FOREVER, U32));
	await_waiters(fd, word, U32, 1);
	return pid;
}

MEMWAIT_TEST(R12_a_stopped_thread_keeps_its_position)
{
	pid_t pid = fork_first(self->fd, self->shared);

	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 1));
	kill(pid, SIGSTOP);
	ASSERT_EQ(pid, waitpid(pid, NULL, WUNTRACED));
	kill(pid, SIGCONT);
	await_waiters(self->fd, self->shared, U32, 2);
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	EXPECT_EQ(0, child_status(pid));
}

MEMWAIT_TEST(R12_a_traced_thread_keeps_its_position)
{
	pid_t pid = fork_first(self->fd, self->shared);

	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 1));
	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, pid, NULL, NULL));
	ASSERT_EQ(0, ptrace(PTRACE_INTERRUPT, pid, NULL, NULL));
	ASSERT_LE(0, child_status(pid));
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared, U32));
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, pid, NULL, NULL));
	await_waiters(self->fd, self->shared, U32, 2);
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	EXPECT_EQ(0, child_status(pid));
}

MEMWAIT_TEST(R12_a_thread_frozen_by_its_cgroup_keeps_its_position)
{
	bool frozen = false;
	pid_t pid;

	rmdir(BOX);	/* a killed test may have left it */
	if (mkdir(BOX, 0755) || read_number(BOX "/cgroup.freeze")) {
		rmdir(BOX);
		SKIP(return, "no cgroup v2 at /sys/fs/cgroup");
	}
	pid = fork_first(self->fd, self->shared);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 1));
	EXPECT_EQ(0, write_number(BOX "/cgroup.procs", pid));
	EXPECT_EQ(0, write_number(BOX "/cgroup.freeze", 1));
	while (!frozen)
		frozen = read_number_of(BOX "/cgroup.events", "frozen") == 1;
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared, U32));
	EXPECT_EQ(0, write_number(BOX "/cgroup.freeze", 0));
	await_waiters(self->fd, self->shared, U32, 2);
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(0, remove_cgroup(BOX));
}

/* An io_uring with a poll request of the current thread. Also counts completed requests. */
struct ring {
	int fd;
	const uint32_t *done;
};

static void *map_ring(int fd, size_t size, off_t offset)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
}

/* Returns 0 or an errno. */
static int ring_poll(struct ring *ring, int fd)
{
	struct io_uring_params params = { 0 };
	struct io_uring_sqe *sqes;
	uint32_t *sq, *cq;

	ring->fd = syscall(SYS_io_uring_setup, 1, &params);
	if (ring->fd < 0)
		return errno;
	sq = map_ring(ring->fd, params.sq_off.array + sizeof(*sq), IORING_OFF_SQ_RING);
	cq = map_ring(ring->fd, params.cq_off.cqes, IORING_OFF_CQ_RING);
	sqes = map_ring(ring->fd, sizeof(*sqes), IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || sqes == MAP_FAILED)
		return errno;
	ring->done = &cq[params.cq_off.tail / sizeof(*cq)];
	*sqes = (struct io_uring_sqe) { .opcode = IORING_OP_POLL_ADD, .fd = fd,
					.poll32_events = POLLIN };
	sq[params.sq_off.array / sizeof(*sq)] = 0;
	__atomic_store_n(&sq[params.sq_off.tail / sizeof(*sq)], 1, __ATOMIC_RELEASE);
	return syscall(SYS_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0) == 1 ? 0 : errno;
}

struct ring_thread {
	struct waiter waiter;
	struct ring ring;
	int polled, err;
};

static void *ring_thread_main(void *arg)
{
	struct ring_thread *t = arg;

	t->err = ring_poll(&t->ring, t->polled);
	return t->err ? NULL : waiter_main(&t->waiter);
}

/* Task work interrupts the thread without a signal. Otherwise the request would not complete. */
MEMWAIT_TEST(R12_a_thread_that_runs_io_uring_task_work_keeps_its_position)
{
	struct ring_thread t = { .waiter = thread_at(self->fd, self->shared) };
	int fds[2], ring = syscall(SYS_io_uring_setup, 1, &(struct io_uring_params) { 0 });

	if (ring < 0)
		SKIP(return, "io_uring: %s", strerror(errno));
	close(ring);
	ASSERT_EQ(0, pipe(fds));
	t.polled = fds[0];
	ASSERT_EQ(0, pthread_create(&t.waiter.thread, NULL, ring_thread_main, &t));
	await_waiters(self->fd, self->shared, U32, 1);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 1));
	await_asleep(t.waiter.tid);
	EXPECT_EQ(0, __atomic_load_n(t.ring.done, __ATOMIC_ACQUIRE));
	EXPECT_EQ(1, write(fds[1], "", 1));
	spin_until(__atomic_load_n(t.ring.done, __ATOMIC_ACQUIRE));
	await_waiters(self->fd, self->shared, U32, 2);
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	pthread_join(t.waiter.thread, NULL);
	EXPECT_EQ(0, t.err);
	EXPECT_EQ(MEMWAIT_OK, t.waiter.result);
	close(t.ring.fd);
	close(fds[0]);
	close(fds[1]);
}

static void *execute(void *arg)
{
	struct thread *t = arg;

	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	t->result = wait_once(t, 0);
	__atomic_store_n(&t->away, 1, __ATOMIC_RELEASE);
	spin_until(__atomic_load_n(&t->come_back, __ATOMIC_ACQUIRE));
	execl("/bin/busybox", "sleep", "1000", NULL);
	execlp("sleep", "sleep", "1000", NULL);
	_exit(99);
}

/*
 * Two threads have queue positions. The second thread executes a program, and is the main thread
 * from that time on.
 */
static void interrupt_both_and_execute(int fd, uint64_t *words)
{
	struct thread second = one(fd, words, CALLS_AGAIN);

	handle(SIGUSR1, 0);
	if (pthread_create(&second.thread, NULL, execute, &second))
		_exit(98);
	await_waiters(fd, &words[2], U32, 1);
	send_away(&second);
	if (mw_wait(fd, &words[2], 0, MEMWAIT_FOREVER, U32) != -EINTR)
		_exit(97);
	call_back(&second);
	for (;;)
		pause();
}

/* Causes a record to be created and freed, so that the kernel checks other records. */
static void interrupt_one(int fd, uint64_t *words)
{
	struct thread t = one(fd, words, CALLS_AGAIN);

	thread_start(&t);
	send_away(&t);
	call_back(&t);
	await_waiters(fd, &words[2], U32, 1);
	mw_notify(fd, &words[2], 1, U32);
	thread_join(&t);
}

MEMWAIT_TEST(R12_positions_end_after_an_exec_by_another_thread)
{
	uint64_t *words = (uint64_t *)self->shared;
	int fds[2], i;
	char c;
	pid_t pid;

	handle(SIGUSR1, 0);
	ASSERT_EQ(0, pipe2(fds, O_CLOEXEC));
	pid = fork();
	if (!pid)
		interrupt_both_and_execute(self->fd, words);
	close(fds[1]);
	spin_until(mw_fdinfo(self->fd, "places") == 1);
	await_waiters(self->fd, &words[2], U32, 1);
	await_asleep(pid);
	kill(pid, SIGUSR1);
	/* Wait until the program runs. */
	ASSERT_EQ(0, read(fds[0], &c, 1));
	EXPECT_EQ(2, mw_fdinfo(self->fd, "places"));
	/* No thread has the second thread's id any more. */
	for (i = 0; i < 4; i++)
		interrupt_one(self->fd, words);
	EXPECT_EQ(1, mw_fdinfo(self->fd, "places"));
	kill_child(pid);
	for (i = 0; i < 4; i++)
		interrupt_one(self->fd, words);
	EXPECT_EQ(0, mw_fdinfo(self->fd, "places"));
	close(fds[0]);
}

TEST_HARNESS_MAIN
