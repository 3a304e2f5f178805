// SPDX-License-Identifier: GPL-2.0
/*
 * R12, R34: an end is no death, and a waiter that is told of a death keeps its place. Threads that
 * end are told to no waiter but those of words that name them; processes that are killed are.
 */
#include "owner_test.h"
#include "signal_test.h"
#include "../timing_test.h"
#include <linux/falloc.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
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

struct mover {
	int fd;
	void *from, *to;
	int moved;
};

static void *move_and_end(void *arg)
{
	struct mover *mover = arg;
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)mover->from, .target = (uintptr_t)mover->to,
		.move = MEMWAIT_ALL, .flags = U32,
	};

	if (!my_id(mover->fd) || xioctl(mover->fd, MEMWAIT_IOC_REQUEUE, &requeue))
		abort();
	mover->moved = requeue.moved;
	return NULL;
}

OWNER_TEST(R34_the_end_of_a_thread_that_moved_waiters_is_told_to_nobody)
{
	struct board *board = self->board;
	struct mover mover = { .fd = self->fd, .from = SMALL(board) };
	struct owned_waiter w[3];
	pthread_t thread;
	int round, i;

	for (round = 0; round < 2; round++) {
		mover.to = round ? mover.from : &board->result[2];
		start_crowd(self->fd, w, 3, mover.from, U32);
		ASSERT_EQ(0, pthread_create(&thread, NULL, move_and_end, &mover));
		pthread_join(thread, NULL);
		EXPECT_EQ(3, mover.moved);
		mw_await_owners(self->fd, self->owners + 3);
		for (i = 0; i < 3; i++) {
			EXPECT_EQ(3 - i, mw_waiters(self->fd, mover.to, U32));
			EXPECT_EQ(1, mw_notify(self->fd, mover.to, 1, U32));
			EXPECT_EQ(MEMWAIT_OK, owned_waiter_join(&w[i]));
		}
	}
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

/* A thread that waits, is told of a death, and waits again; between the two it may do more. */
struct told_thread {
	pthread_t thread;
	int fd;
	struct board *board;
	void (*between)(struct told_thread *t);
	int told, again, result;
};

static void *wait_twice(void *arg)
{
	struct told_thread *t = arg;

	my_id(t->fd);
	t->result = mw_wait(t->fd, SMALL(t->board), 0, MEMWAIT_FOREVER, OWNED32);
	if (t->between)
		t->between(t);
	__atomic_store_n(&t->told, 1, __ATOMIC_RELEASE);
	sleep_until(__atomic_load_n(&t->again, __ATOMIC_ACQUIRE));
	if (t->result == MEMWAIT_OWNER_DIED)
		t->result = mw_wait(t->fd, SMALL(t->board), 0, MEMWAIT_FOREVER, OWNED32);
	return NULL;
}

/* The thread is told of a death, and stands between the waits 1 and 2, or is to stand there. */
static void tell_thread(int fd, struct told_thread *t, struct board *board)
{
	pid_t first = start_first(fd, board, SMALL(board));

	t->fd = fd;
	t->board = board;
	if (pthread_create(&t->thread, NULL, wait_twice, t))
		abort();
	await_waiters(fd, SMALL(board), U32, 2);
	end_first(fd, board, SMALL(board), first);
	sleep_until(__atomic_load_n(&t->told, __ATOMIC_ACQUIRE));
}

static void come_back(struct told_thread *t, int waiters)
{
	__atomic_store_n(&t->again, 1, __ATOMIC_RELEASE);
	await_waiters(t->fd, SMALL(t->board), U32, waiters);
}

OWNER_TEST(R12_a_thread_that_was_told_keeps_its_place)
{
	struct told_thread t = { 0 };

	tell_thread(self->fd, &t, self->board);
	ARM(1);
	ARM(2);
	EXPECT_EQ(1, mw_fdinfo(self->fd, "places"));
	come_back(&t, 3);
	EXPECT_EQ(1, mw_notify(self->fd, SMALL(self->board), 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	pthread_join(t.thread, NULL);
	EXPECT_EQ(MEMWAIT_OK, t.result);
	EXPECT_EQ(0, mw_fdinfo(self->fd, "places"));
	EXPECT_NEXT_IS(1);
	EXPECT_NEXT_IS(2);
}

/* It asks whether an owner lives, finds another value, and a bad address. */
static void look(struct told_thread *t)
{
	if (mw_wait(t->fd, SMALL(t->board), 0, 0, OWNED32) != MEMWAIT_TIMED_OUT ||
	    mw_wait(t->fd, SMALL(t->board), 1, MEMWAIT_FOREVER, OWNED32) != MEMWAIT_NOT_EQUAL ||
	    mw_wait(t->fd, &t->board->word, 0, 0, OWNED64) != MEMWAIT_TIMED_OUT ||
	    mw_wait(t->fd, NULL, 0, MEMWAIT_FOREVER, OWNED64) != -EFAULT)
		abort();
}

OWNER_TEST(R12_to_look_costs_no_place)
{
	struct told_thread t = { .between = look };

	tell_thread(self->fd, &t, self->board);
	ARM(1);
	come_back(&t, 2);
	EXPECT_EQ(1, mw_notify(self->fd, SMALL(self->board), 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	pthread_join(t.thread, NULL);
	EXPECT_EQ(MEMWAIT_OK, t.result);
	EXPECT_NEXT_IS(1);
}

/* Any wait in between that was over, if only by its deadline, ends the place. */
static void wait_elsewhere(struct told_thread *t)
{
	if (mw_wait(t->fd, &t->board->word, 0, in_ms(1), U64) != MEMWAIT_TIMED_OUT)
		abort();
}

/* So does one of the same word whose deadline has passed, but for 0. */
static void give_up(struct told_thread *t)
{
	if (mw_wait(t->fd, SMALL(t->board), 0, 1, OWNED32) != MEMWAIT_TIMED_OUT)
		abort();
}

#define EXPECT_PLACE_ENDED_BY(function)							\
	do {										\
		struct told_thread t = { .between = (function) };			\
											\
		tell_thread(self->fd, &t, self->board);					\
		EXPECT_EQ(0, mw_fdinfo(self->fd, "places"));				\
		ARM(1);									\
		come_back(&t, 2);							\
		EXPECT_NEXT_IS(1);							\
		EXPECT_EQ(1, mw_notify(self->fd, SMALL(self->board), 1, U32));		\
		pthread_join(t.thread, NULL);						\
		EXPECT_EQ(MEMWAIT_OK, t.result);					\
	} while (0)

OWNER_TEST(R12_another_wait_ends_the_place)
{
	EXPECT_PLACE_ENDED_BY(wait_elsewhere);
}

OWNER_TEST(R12_a_passed_deadline_ends_the_place)
{
	EXPECT_PLACE_ENDED_BY(give_up);
}

/* Told again and again, by one death after the other: it never falls behind. */
OWNER_TEST(R12_many_deaths_demote_nobody)
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
	for (i = 0; i < 3; i++)
		ARM(i);
	__atomic_store_n(&children[2].again, 1, __ATOMIC_RELEASE);
	await_waiters(self->fd, SMALL(board), U32, 5);
	EXPECT_EQ(1, mw_notify(self->fd, SMALL(board), 1, U32));
	EXPECT_EQ(MEMWAIT_OK, owned_child_result(&children[2], 2));
	EXPECT_EQ(1, mw_notify(self->fd, SMALL(board), 1, U32));
	EXPECT_EQ(MEMWAIT_OK, owned_child_result(&children[1], 1));
	kill_child(victim);
	for (i = 0; i < 3; i++)
		EXPECT_NEXT_IS(i);
	kill_child(pids[1]);
}

/*
 * Event loops. A wait that was told is armed again with the id that it had, in the field that
 * receives the new one.
 */
static int arm_again(int fd, const void *addr, uint64_t expected, uint64_t user_data, uint64_t *id)
{
	struct memwait_async entry = {
		.wait = { .addr = (uintptr_t)addr, .expected = expected,
			  .deadline = MEMWAIT_FOREVER, .flags = OWNED32 },
		.user_data = user_data,
		.id = *id,
	};
	int ret = mw_batch(fd, &entry, 1);

	*id = entry.id;
	return ret < 0 ? ret : entry.result;
}

/* Arms an owned wait, and has it told. Returns its id, which has been read. */
static uint64_t tell_loop(struct __test_metadata *_metadata, int fd, struct board *board,
			  const uint32_t *word, uint64_t user_data)
{
	pid_t first = start_first(fd, board, word);
	struct memwait_completion done;
	uint64_t id = 0;

	EXPECT_EQ(MEMWAIT_PENDING, arm_again(fd, word, 0, user_data, &id));
	end_first(fd, board, word, first);
	sleep_until(mw_readable(fd));
	EXPECT_EQ(1, mw_read(fd, &done, 1));
	EXPECT_EQ(MEMWAIT_OWNER_DIED, done.result);
	EXPECT_EQ(user_data, done.user_data);
	EXPECT_EQ(id, done.id);
	return id;
}

OWNER_TEST(R12_an_event_loop_that_was_told_keeps_its_place)
{
	struct board *board = self->board;
	uint64_t old, id;

	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	id = tell_loop(_metadata, self->fd, board, SMALL(board), 7);
	EXPECT_EQ(1, mw_fdinfo(self->fd, "places"));
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, id));
	ARM(1);
	ARM(2);
	/* Another value ends nothing, nor does another word. */
	old = id;
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, arm_again(self->fd, SMALL(board), 1, 7, &id));
	EXPECT_EQ(0, id);
	id = old;
	EXPECT_EQ(MEMWAIT_PENDING, arm_again(self->fd, &board->result[2], 0, 8, &id));
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	id = old;
	EXPECT_EQ(MEMWAIT_PENDING, arm_again(self->fd, SMALL(board), 0, 9, &id));
	EXPECT_NE(old, id);
	EXPECT_EQ(0, mw_fdinfo(self->fd, "places"));
	EXPECT_NEXT_IS(9);
	EXPECT_NEXT_IS(1);
	EXPECT_NEXT_IS(2);
}

/* A call that cannot write its entry has done nothing, and the id names the wait still. */
OWNER_TEST(R12_a_loop_that_was_told_keeps_its_place_if_its_call_fails)
{
	struct board *board = self->board;
	long page = sysconf(_SC_PAGESIZE);
	struct memwait_async *entry = private_page(page);
	uint64_t id;

	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	id = tell_loop(_metadata, self->fd, board, SMALL(board), 7);
	ARM(1);
	entry->wait = (struct memwait_wait) { .addr = (uintptr_t)SMALL(board), .flags = OWNED32,
					      .deadline = MEMWAIT_FOREVER };
	entry->user_data = 8;
	entry->id = id;
	ASSERT_EQ(0, mprotect(entry, page, PROT_READ));
	EXPECT_EQ(-EFAULT, mw_batch(self->fd, entry, 1));
	EXPECT_EQ(1, mw_waiters(self->fd, SMALL(board), U32));
	EXPECT_EQ(1, mw_fdinfo(self->fd, "places"));
	EXPECT_EQ(MEMWAIT_PENDING, arm_again(self->fd, SMALL(board), 0, 9, &id));
	EXPECT_NEXT_IS(9);
	EXPECT_NEXT_IS(1);
	munmap(entry, page);
}

/* Without its id, with one that is used up, and after it was taken back, it is a new wait. */
OWNER_TEST(R12_an_event_loop_names_the_wait_that_comes_back)
{
	struct board *board = self->board;
	uint64_t old, id = 0;

	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	old = tell_loop(_metadata, self->fd, board, SMALL(board), 7);
	ARM(1);
	EXPECT_EQ(MEMWAIT_PENDING, arm_again(self->fd, SMALL(board), 0, 2, &id));
	id = old;
	EXPECT_EQ(MEMWAIT_PENDING, arm_again(self->fd, SMALL(board), 0, 3, &id));
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	EXPECT_EQ(MEMWAIT_PENDING, arm_again(self->fd, SMALL(board), 0, 4, &id));
	id = old;
	EXPECT_EQ(MEMWAIT_PENDING, arm_again(self->fd, SMALL(board), 0, 5, &id));
	EXPECT_NEXT_IS(1);
	EXPECT_NEXT_IS(2);
	EXPECT_NEXT_IS(4);
	EXPECT_NEXT_IS(5);
}

/* A record is kept for as many as two reads of a loop give it, and for no more: the first goes. */
/* A word and an entry whose pages come when they are missed. */
struct missed {
	int uffd, file;
	pid_t caller;
	uint32_t *word;
	struct memwait_async *entry, copy;
	bool once;
};

static bool watch_page(int uffd, void *page)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)page, 4096 },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	return !ioctl(uffd, UFFDIO_REGISTER, &reg);
}

/* When the entry is written the word has gone again, and a signal comes. */
static void *bring_pages(void *arg)
{
	struct missed *m = arg;
	struct uffd_msg msg;
	char page[4096];

	while (read(m->uffd, &msg, sizeof(msg)) == sizeof(msg)) {
		uintptr_t at = msg.arg.pagefault.address & ~4095UL;
		struct uffdio_zeropage zero = { .range = { at, 4096 } };
		struct uffdio_copy copy = { .dst = at, .src = (uintptr_t)page, .len = 4096 };

		if (at == (uintptr_t)m->word) {
			if (!m->once)
				madvise(m->entry, 4096, MADV_DONTNEED);
			m->once = true;
			ioctl(m->uffd, UFFDIO_ZEROPAGE, &zero);
			continue;
		}
		fallocate(m->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
		syscall(SYS_tgkill, getpid(), m->caller, SIGUSR1);
		memset(page, 0, sizeof(page));
		memcpy(page, &m->copy, sizeof(m->copy));
		ioctl(m->uffd, UFFDIO_COPY, &copy);
	}
	return NULL;
}

OWNER_TEST(R12_a_loop_that_was_told_keeps_its_place_if_its_call_restarts)
{
	struct board *board = self->board;
	struct uffdio_api api = { .api = UFFD_API };
	struct memwait_completion done;
	pthread_t thread;
	struct missed m = {
		.uffd = syscall(SYS_userfaultfd, O_CLOEXEC),
		.file = new_file(4096),
		.caller = gettid(),
		.entry = private_page(4096),
	};
	pid_t first;

	if (m.uffd < 0)
		SKIP(return, "no userfaultfd");
	handle(SIGUSR1, 0);
	m.word = map_shared(m.file, 4096);
	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));

	first = owned_child_start(self->fd, &board->children[0], m.word, 0, OWNED32);
	*m.entry = (struct memwait_async) {
		.wait = {
			.addr = (uintptr_t)m.word,
			.deadline = MEMWAIT_FOREVER,
			.flags = OWNED32,
		},
		.user_data = 1,
	};
	ASSERT_EQ(1, mw_batch(self->fd, m.entry, 1));
	ASSERT_EQ(1, mw_notify(self->fd, m.word, 1, U32));
	ASSERT_EQ(MEMWAIT_OK, owned_child_result(&board->children[0], 1));
	kill_child(first);
	sleep_until(mw_readable(self->fd));
	ASSERT_EQ(1, mw_read(self->fd, &done, 1));
	ASSERT_EQ(MEMWAIT_OWNER_DIED, done.result);
	/* It joins while the other one is away. */
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, m.word, 2));

	m.copy = *m.entry;
	ASSERT_EQ(0, ioctl(m.uffd, UFFDIO_API, &api));
	ASSERT_TRUE(watch_page(m.uffd, m.word) && watch_page(m.uffd, m.entry));
	ASSERT_EQ(0, fallocate(m.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
	ASSERT_EQ(0, pthread_create(&thread, NULL, bring_pages, &m));
	EXPECT_EQ(1, mw_batch(self->fd, m.entry, 1));
	EXPECT_EQ(MEMWAIT_PENDING, m.entry->result);
	EXPECT_EQ(1, handled);
	EXPECT_EQ(1, mw_notify(self->fd, m.word, 1, U32));
	EXPECT_COMPLETION(self->fd, 1, MEMWAIT_OK);
	EXPECT_EQ(1, mw_notify(self->fd, m.word, 1, U32));
	pthread_cancel(thread);
	pthread_join(thread, NULL);
}

OWNER_TEST(R31_what_a_told_loop_keeps_is_bounded)
{
	enum { MOST = 256, MORE = 300 };
	struct board *board = self->board;
	uint64_t *words = shared_page(MORE * sizeof(*words)), ids[MORE];
	struct memwait_completion done[MORE], next;
	pid_t pid = start_owner(board, IS_KILLED);
	uint64_t first, last;
	int i, got;

	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	for (i = 0; i < MORE; i++) {
		words[i] = board->id;
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, &words[i], board->id,
						    MEMWAIT_FOREVER, OWNED64, i, &ids[i]));
	}
	kill_child(pid);
	for (i = 0; i < MORE; i += got) {
		sleep_until(mw_readable(self->fd));
		got = mw_read(self->fd, &done[i], MORE - i);
		ASSERT_LT(0, got);
	}
	EXPECT_EQ(MOST, mw_fdinfo(self->fd, "places"));
	first = done[0].user_data;
	last = done[MORE - 1].user_data;
	for (i = 0; i < MORE; i++)
		words[i] = 0;
	/* The last has a place, and the first has none. */
	for (i = 0; i < 2; i++) {
		uint64_t which = i ? first : last;
		struct memwait_async entry = {
			.wait = { .addr = (uintptr_t)&words[which], .flags = OWNED64,
				  .deadline = MEMWAIT_FOREVER },
			.user_data = 1,
			.id = ids[which],
		};

		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, &words[which], 0, MEMWAIT_FOREVER,
						    U64, 2, NULL));
		EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
		EXPECT_EQ(1, mw_notify(self->fd, &words[which], 1, U64));
		EXPECT_EQ(1, mw_read(self->fd, &next, 1));
		EXPECT_EQ(i ? 2 : 1, next.user_data);
	}
	EXPECT_EQ(MOST - 1, mw_fdinfo(self->fd, "places"));
	munmap(words, MORE * sizeof(*words));
}

/* A record keeps no file: a word of another file at the same address is another word. */
OWNER_TEST(R12_a_told_loop_comes_back_to_the_same_file)
{
	struct board *board = self->board;
	uint32_t *word;
	uint64_t id;
	int round, i;

	ASSERT_EQ(0, bind_to(0));
	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	for (round = 0; round < 10; round++) {
		word = shared_page(self->page);
		id = tell_loop(_metadata, self->fd, board, word, 1);
		munmap(word, self->page);
		for (i = 0; i < 3; i++) {
			syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
			usleep(10000);
		}
		word = shared_page(self->page);
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, word, 2));
		EXPECT_EQ(MEMWAIT_PENDING, arm_again(self->fd, word, 0, 3, &id));
		for (i = 2; i <= 3; i++) {
			EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));
			EXPECT_COMPLETION(self->fd, i, MEMWAIT_OK);
		}
		munmap(word, self->page);
	}
}

#define RUNTIME		"/proc/sys/kernel/sched_rt_runtime_us"
#define SPINNERS	8

/* A thread that leaves its processor to no kernel thread of normal priority. */
struct spinner {
	pthread_t thread;
	int processor;
	int spins, stop, too_late;
};

static int set_priority(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	return sched_setscheduler(0, priority ? SCHED_FIFO : SCHED_OTHER, &param);
}

static void *spin(void *arg)
{
	struct spinner *spinner = arg;
	uint64_t end = in_ms(5000);

	if (bind_to(spinner->processor) || set_priority(5))
		abort();
	__atomic_store_n(&spinner->spins, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&spinner->stop, __ATOMIC_ACQUIRE)) {
		if (now_ns(CLOCK_MONOTONIC) > end) {
			__atomic_store_n(&spinner->too_late, 1, __ATOMIC_RELEASE);
			break;
		}
	}
	return NULL;
}

static long set_runtime(long runtime)
{
	FILE *f = fopen(RUNTIME, "w");

	return !f || fprintf(f, "%ld", runtime) < 0 || fclose(f) ? -errno : 0;
}

/* A waiter of high priority need not wait for a kernel thread. */
OWNER_TEST(R30_a_dying_process_tells_of_its_death)
{
	struct board *board = self->board;
	struct spinner spinners[SPINNERS] = { 0 };
	long runtime = read_number(RUNTIME);
	int i, n = sysconf(_SC_NPROCESSORS_ONLN), late = 0;
	pid_t pid;

	if (geteuid() || n > SPINNERS)
		SKIP(return, "needs root, and few processors");
	ASSERT_EQ(0, set_runtime(-1));
	ASSERT_EQ(0, set_priority(10));
	board->go = 0;
	board->id = 0;
	pid = fork();
	if (!pid) {
		int fd = memwait_open(0);

		store_id(&board->id, my_id(fd));
		sleep_until(__atomic_load_n(&board->go, __ATOMIC_ACQUIRE));
		await_waiters(fd, &board->word, U64, 1);
		_exit(0);
	}
	board->word = await_id(&board->id);
	for (i = 0; i < n; i++) {
		spinners[i].processor = i;
		ASSERT_EQ(0, pthread_create(&spinners[i].thread, NULL, spin, &spinners[i]));
		sleep_until(__atomic_load_n(&spinners[i].spins, __ATOMIC_ACQUIRE));
	}
	__atomic_store_n(&board->go, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &board->word, board->id, MEMWAIT_FOREVER,
					      OWNED64));
	for (i = 0; i < n; i++)
		__atomic_store_n(&spinners[i].stop, 1, __ATOMIC_RELEASE);
	for (i = 0; i < n; i++) {
		pthread_join(spinners[i].thread, NULL);
		late += spinners[i].too_late;
	}
	EXPECT_IN_TIME(!late);
	EXPECT_EQ(0, set_priority(0));
	EXPECT_EQ(0, set_runtime(runtime));
	waitpid(pid, NULL, 0);
}

TEST_HARNESS_MAIN
