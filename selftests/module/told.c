// SPDX-License-Identifier: GPL-2.0
/*
 * R12, R34: an end is no death, and a waiter that is told of a death has had its turn. Threads that
 * end are told to no waiter but those of words that name them; processes that are killed are.
 */
#include "owner_test.h"
#include "signal_test.h"
#include <linux/seccomp.h>
#include <sys/prctl.h>

#define SMALL(board)	(&(board)->small)

/* Several waiters on a word that names nobody, of which the first is notified. */
static void start_crowd(int fd, struct owned_waiter *w, int n, const void *addr, uint32_t size)
{
	int i;

	for (i = 0; i < n; i++) {
		w[i] = (struct owned_waiter) { .fd = fd, .addr = addr, .stays = 1,
					       .flags = size | MEMWAIT_OWNED };
		owned_waiter_start(&w[i]);
	}
}

OWNER_TEST(R34_the_end_of_a_woken_thread_is_told_to_nobody)
{
	struct board *board = self->board;
	struct owned_waiter w[8];
	uint32_t size;
	int i;

	for (size = MEMWAIT_SIZE_U8; size <= MEMWAIT_SIZE_U32; size++) {
		start_crowd(self->fd, w, 8, &board->word, size);
		for (i = 0; i < 8; i++) {
			EXPECT_EQ(8 - i, mw_waiters(self->fd, &board->word, size));
			EXPECT_EQ(1, mw_notify(self->fd, &board->word, 1, size));
			/* The next in line, and it is counted. */
			EXPECT_EQ(MEMWAIT_OK, owned_waiter_result(&w[i]));
			owned_waiter_join(&w[i]);
			/* All that its end does has been done then. */
			mw_await_owners(self->fd, self->owners + 7 - i);
		}
	}
}

static void *give_up_id(void *arg)
{
	struct owned_waiter *w = arg;

	owned_waiter_main(w);
	store_id(&w->id, mw_owner(w->fd, MEMWAIT_OWNER_EXIT, NULL) ? 1 : 0);
	return NULL;
}

OWNER_TEST(R34_the_end_of_an_id_is_told_to_nobody)
{
	struct board *board = self->board;
	struct owned_waiter w[2] = {
		{ .fd = self->fd, .addr = SMALL(board), .flags = OWNED32 },
	};

	ASSERT_EQ(0, pthread_create(&w[0].thread, NULL, give_up_id, &w[0]));
	await_waiters(self->fd, SMALL(board), U32, 1);
	start_crowd(self->fd, &w[1], 1, SMALL(board), U32);
	EXPECT_EQ(1, mw_notify(self->fd, SMALL(board), 1, U32));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_join(&w[0]));
	EXPECT_EQ(0, w[0].id);
	mw_await_owners(self->fd, self->owners + 1);
	EXPECT_EQ(1, mw_waiters(self->fd, SMALL(board), U32));
	EXPECT_EQ(1, mw_notify(self->fd, SMALL(board), 1, U32));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_join(&w[1]));
}

/* It has the lock by then: the word names it, and its waiters named somebody else. */
OWNER_TEST(R34_the_end_of_a_woken_thread_is_told_where_words_name_owners)
{
	struct board *board = self->board;
	struct owned_waiter w[2];

	start_crowd(self->fd, w, 2, &board->word, U64);
	EXPECT_EQ(1, mw_notify(self->fd, &board->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_result(&w[0]));
	owned_waiter_join(&w[0]);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w[1]));
}

/* Who was woken before on the whole word is not the one that ends. */
OWNER_TEST(R34_the_end_of_a_thread_that_was_woken_on_half_a_word_is_told_to_nobody)
{
	struct board *board = self->board;
	struct owned_waiter w[3];

	start_crowd(self->fd, w, 1, &board->word, U64);
	start_crowd(self->fd, &w[1], 2, &board->word, U32);
	EXPECT_EQ(1, mw_notify(self->fd, &board->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_result(&w[0]));
	EXPECT_EQ(1, mw_notify(self->fd, &board->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_result(&w[1]));
	owned_waiter_join(&w[1]);
	mw_await_owners(self->fd, self->owners + 2);
	EXPECT_EQ(1, mw_waiters(self->fd, &board->word, U64));
	EXPECT_EQ(1, mw_notify(self->fd, &board->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_join(&w[2]));
	owned_waiter_join(&w[0]);
}

/* Who was woken on half a word may have the whole one by now, as one that comes later finds. */
OWNER_TEST(R34_the_end_of_a_thread_that_is_named_after_it_was_woken_is_told)
{
	struct board *board = self->board;
	struct owned_waiter w[3];

	start_crowd(self->fd, w, 2, &board->word, U32);
	EXPECT_EQ(1, mw_notify(self->fd, &board->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_result(&w[0]));
	board->word = await_id(&w[0].id);
	w[2] = (struct owned_waiter) { .fd = self->fd, .addr = &board->word, .stays = 1,
				       .expected = board->word, .flags = OWNED64 };
	owned_waiter_start(&w[2]);
	owned_waiter_join(&w[0]);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w[1]));
	mw_await_owners(self->fd, self->owners + 1);
	EXPECT_EQ(1, mw_notify(self->fd, &board->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_join(&w[2]));
}

static void *wait_on_half_of_own_word(void *arg)
{
	struct owned_waiter *w = arg;
	struct board *board = (struct board *)w->addr;

	board->word = my_id(w->fd);
	w->result = mw_wait(w->fd, &board->word, (uint32_t)board->word, MEMWAIT_FOREVER, OWNED32);
	return NULL;
}

static void wait_as_stranger(struct board *board)
{
	int fd;

	if (setgid(65534) || setuid(65534))
		_exit(1);
	fd = memwait_open(0);
	my_id(fd);
	_exit(mw_wait(fd, &board->word, board->word, MEMWAIT_FOREVER, OWNED64) !=
	      MEMWAIT_OWNER_DIED);
}

/* Nor is it forgotten who is named, and then is woken on half of the word. */
OWNER_TEST(R34_the_end_of_a_thread_that_a_stranger_has_named_is_told)
{
	struct board *board = self->board;
	struct owned_waiter w = { .fd = self->fd, .addr = board };
	pid_t stranger;

	if (geteuid())
		SKIP(return, "needs root to become another user");
	ASSERT_EQ(0, pthread_create(&w.thread, NULL, wait_on_half_of_own_word, &w));
	await_waiters(self->fd, &board->word, U64, 1);
	stranger = fork_child();
	if (!stranger)
		wait_as_stranger(board);
	await_waiters(self->fd, &board->word, U64, 2);
	EXPECT_EQ(1, mw_notify(self->fd, &board->word, 1, U64));
	pthread_join(w.thread, NULL);
	EXPECT_EQ(MEMWAIT_OK, w.result);
	EXPECT_EQ(0, child_status(stranger));
}

/* How a woken thread dies that has not called exit(2). */
enum death { KILLED, KILLED_ALONE, EXIT_GROUP, OTHERS_EXIT_GROUP, EXECUTES_ITSELF, OTHER_EXECUTES,
	     DEATHS };

struct dying {
	enum death how;
	int fd;
	struct board *board;
};

static void run_other_program(void)
{
	execl("/bin/busybox", "sleep", "1000", NULL);
	execlp("sleep", "sleep", "1000", NULL);
}

static void *wait_and_die(void *arg)
{
	struct dying *dying = arg;

	my_id(dying->fd);
	dying->board->result[0] = mw_wait(dying->fd, SMALL(dying->board), 0, MEMWAIT_FOREVER,
					  OWNED32);
	__atomic_store_n(&dying->board->go, 1, __ATOMIC_RELEASE);
	/* The kernel ends a thread alone that is confined so and makes another call. */
	if (dying->how == KILLED_ALONE && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		syscall(SYS_getppid);
	if (dying->how == KILLED_ALONE)
		kill(getpid(), SIGKILL);	/* a kernel without that */
	if (dying->how == EXIT_GROUP)
		_exit(0);
	if (dying->how == EXECUTES_ITSELF)
		run_other_program();
	for (;;)
		pause();
	return NULL;
}

static void dying_process(struct dying *dying)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, wait_and_die, dying))
		_exit(1);
	sleep_until(__atomic_load_n(&dying->board->go, __ATOMIC_ACQUIRE));
	if (dying->how == OTHERS_EXIT_GROUP)
		_exit(0);
	if (dying->how == OTHER_EXECUTES)
		run_other_program();
	for (;;)
		pause();
}

OWNER_TEST(R34_all_other_deaths_of_a_woken_thread_are_told)
{
	struct board *board = self->board;
	struct dying dying = { .fd = self->fd, .board = board };
	struct owned_waiter w;
	pid_t pid;

	for (dying.how = 0; dying.how < DEATHS; dying.how++) {
		TH_LOG("death %d", dying.how);
		board->go = 0;
		pid = fork();
		if (!pid)
			dying_process(&dying);
		await_waiters(self->fd, SMALL(board), U32, 1);
		start_crowd(self->fd, &w, 1, SMALL(board), U32);
		EXPECT_EQ(1, mw_notify(self->fd, SMALL(board), 1, U32));
		sleep_until(__atomic_load_n(&board->go, __ATOMIC_ACQUIRE));
		EXPECT_EQ(MEMWAIT_OK, board->result[0]);
		if (dying.how == KILLED)
			kill(pid, SIGKILL);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w));
		kill_child(pid);
	}
}

/* An async wait on the small word, behind the others. */
#define ARM(user_data)	\
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, SMALL(self->board), user_data))

#define EXPECT_NEXT_IS(n)								\
	do {										\
		EXPECT_EQ(1, mw_notify(self->fd, SMALL(self->board), 1, U32));		\
		EXPECT_COMPLETION(self->fd, n, MEMWAIT_OK);				\
	} while (0)

/* A child that waits before the others. */
static pid_t start_first(int fd, struct board *board, const uint32_t *word)
{
	return owned_child_start(fd, &board->children[0], word, 0, OWNED32);
}

/* It is notified and dies, which the next waiter is told. */
static void end_first(int fd, struct board *board, const uint32_t *word, pid_t pid)
{
	if (mw_notify(fd, word, 1, U32) != 1 ||
	    owned_child_result(&board->children[0], 1) != MEMWAIT_OK)
		abort();
	kill_child(pid);
}

/* A thread that waits, maybe is interrupted and comes back, is told of a death, and waits again. */
struct told_thread {
	pthread_t thread;
	pid_t tid;
	int fd;
	struct board *board;
	int interrupted, told, again, result;
};

static int wait_small(const struct told_thread *t)
{
	return mw_wait(t->fd, SMALL(t->board), 0, MEMWAIT_FOREVER, OWNED32);
}

static void *wait_twice(void *arg)
{
	struct told_thread *t = arg;

	my_id(t->fd);
	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	t->result = wait_small(t);
	if (t->result == -EINTR) {
		t->interrupted = 1;
		t->result = wait_small(t);
	}
	__atomic_store_n(&t->told, 1, __ATOMIC_RELEASE);
	sleep_until(__atomic_load_n(&t->again, __ATOMIC_ACQUIRE));
	if (t->result == MEMWAIT_OWNER_DIED)
		t->result = wait_small(t);
	return NULL;
}

/* Whoever was told has had its turn, also if it had a place from an interruption before. */
OWNER_TEST(R12_a_thread_that_was_told_joins_at_the_end)
{
	struct board *board = self->board;
	int interrupted;
	pid_t first;

	handle(SIGUSR1, 0);
	for (interrupted = 0; interrupted < 2; interrupted++) {
		struct told_thread t = { .fd = self->fd, .board = board };

		first = start_first(self->fd, board, SMALL(board));
		ASSERT_EQ(0, pthread_create(&t.thread, NULL, wait_twice, &t));
		await_waiters(self->fd, SMALL(board), U32, 2);
		if (interrupted) {
			interrupt_thread(t.thread, t.tid);
			await_waiters(self->fd, SMALL(board), U32, 2);
		}
		end_first(self->fd, board, SMALL(board), first);
		sleep_until(__atomic_load_n(&t.told, __ATOMIC_ACQUIRE));
		EXPECT_EQ(interrupted, t.interrupted);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, t.result);
		EXPECT_EQ(0, mw_fdinfo(self->fd, "places"));
		ARM(1);
		__atomic_store_n(&t.again, 1, __ATOMIC_RELEASE);
		await_waiters(self->fd, SMALL(board), U32, 2);
		EXPECT_NEXT_IS(1);
		EXPECT_EQ(1, mw_notify(self->fd, SMALL(board), 1, U32));
		pthread_join(t.thread, NULL);
		EXPECT_EQ(MEMWAIT_OK, t.result);
	}
}

/* Told by one death after the other, each goes on and one of them is told of the next. */
OWNER_TEST(R35_many_deaths_strand_nobody)
{
	struct board *board = self->board;
	struct child_result *children = board->children;
	pid_t first = start_first(self->fd, board, SMALL(board)), victim, pids[2];
	int i;

	pids[0] = owned_child_start(self->fd, &children[1], SMALL(board), 0, OWNED32);
	pids[1] = owned_child_start(self->fd, &children[2], SMALL(board), 0, OWNED32);
	end_first(self->fd, board, SMALL(board), first);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_child_result(&children[1], 1));
	/* It dies as well, as one that was told, and the second is told. */
	kill_child(pids[0]);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_child_result(&children[2], 1));
	victim = owned_child_start(self->fd, &children[1], SMALL(board), 0, OWNED32);
	__atomic_store_n(&children[2].again, 1, __ATOMIC_RELEASE);
	await_waiters(self->fd, SMALL(board), U32, 2);
	EXPECT_EQ(1, mw_notify(self->fd, SMALL(board), 1, U32));
	EXPECT_EQ(MEMWAIT_OK, owned_child_result(&children[1], 1));
	/* Woken and dead before it has done anything: who came back behind it is told. */
	kill_child(victim);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_child_result(&children[2], 2));
	for (i = 0; i < 3; i++)
		ARM(i);
	for (i = 0; i < 3; i++)
		EXPECT_NEXT_IS(i);
	kill_child(pids[1]);
}

/* The field of the id is the kernel's alone: the old one gives an event loop no place either. */
OWNER_TEST(R12_an_event_loop_that_was_told_joins_at_the_end)
{
	struct board *board = self->board;
	struct memwait_async entry = {
		.wait = { .addr = (uintptr_t)SMALL(board), .deadline = MEMWAIT_FOREVER,
			  .flags = OWNED32 },
		.user_data = 7,
	};
	struct memwait_completion done;
	uint64_t old;
	pid_t first;

	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	first = start_first(self->fd, board, SMALL(board));
	EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
	EXPECT_EQ(MEMWAIT_PENDING, entry.result);
	end_first(self->fd, board, SMALL(board), first);
	sleep_until(mw_readable(self->fd));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(MEMWAIT_OWNER_DIED, done.result);
	EXPECT_EQ(7, done.user_data);
	old = done.id;
	EXPECT_EQ(old, entry.id);
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, old));
	ARM(1);
	EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
	EXPECT_EQ(MEMWAIT_PENDING, entry.result);
	EXPECT_NE(old, entry.id);
	EXPECT_NEXT_IS(1);
	EXPECT_NEXT_IS(7);
}

/*
 * A waiter of high priority need not wait for a kernel thread. Here all are on one processor, which
 * those get when the dying process has left it: as a zombie, with its descriptors closed.
 */
OWNER_TEST(R30_a_dying_process_tells_of_its_death)
{
	struct board *board = self->board;
	pid_t pid;

	if (change_setting(WORKQUEUE_CPUMASK, "1"))
		SKIP(return, "needs root to bind kernel threads");
	ASSERT_EQ(0, pin(20));
	pid = fork_child();
	if (!pid) {
		int fd = memwait_open(0);

		if (pin(10))
			_exit(1);
		store_id(&board->id, my_id(fd));
		sleep_until(__atomic_load_n(&board->go, __ATOMIC_ACQUIRE));
		await_waiters(fd, &board->word, U64, 1);
		_exit(0);
	}
	board->word = await_id(&board->id);
	__atomic_store_n(&board->go, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &board->word, board->id, MEMWAIT_FOREVER,
					      OWNED64));
	EXPECT_NE('Z', thread_state(pid));
	EXPECT_EQ(0, pin(0));
	EXPECT_EQ(0, child_status(pid));
}

TEST_HARNESS_MAIN
