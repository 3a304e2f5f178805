// SPDX-License-Identifier: GPL-2.0
/* R25: lifetimes of contexts, processes and words, and notifies whose completions were not read. */
#include "async_test.h"
#include <linux/io_uring.h>
#include <sys/un.h>

#define FOREVER	MEMWAIT_FOREVER

MEMWAIT_TEST(R25_close_ends_pending_waits_without_waking_any_waiter)
{
	int fd = memwait_open(O_NONBLOCK), i;

	for (i = 0; i < 10; i++) {
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(fd, self->shared + i % 2, 0,
						    i % 3 ? FOREVER : in_ms(3600000), U32, i,
						    NULL));
	}
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 1));
	close(fd);
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, self->shared + 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
}

/* Arms n waits and completes them with OK, without reading the completions. */
static void arm_and_complete(struct __test_metadata *_metadata, int fd, uint32_t *word, int n)
{
	int i;

	for (i = 0; i < n; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(fd, word, i));
	EXPECT_EQ(n, mw_notify(fd, word, n, U32));
}

MEMWAIT_TEST(R25_unread_oks_are_passed_on_to_the_next_waiters)
{
	struct waiter w = { .fd = self->fd, .deadline = FOREVER, .flags = U32 };
	uint32_t *words[] = { self->word, self->shared };
	struct memwait_completion done[4];
	int i;

	for (i = 0; i < 2; i++) {
		int fd = memwait_open(O_NONBLOCK);

		arm_and_complete(_metadata, fd, words[i], 2);
		w.addr = words[i];
		waiter_start(&w);
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, words[i], 7));
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, words[i], 8));
		EXPECT_EQ(0, mw_read(self->fd, done, 4) == 1);
		close(fd);
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
		EXPECT_EQ(1, mw_read(self->fd, done, 4));
		EXPECT_EQ(7, done[0].user_data);
		EXPECT_EQ(MEMWAIT_OK, done[0].result);
		EXPECT_EQ(1, mw_waiters(self->fd, words[i], U32));
		EXPECT_EQ(1, mw_notify(self->fd, words[i], 1, U32));
		EXPECT_EQ(1, mw_read(self->fd, done, 4));
	}
}

MEMWAIT_TEST(R25_each_notify_is_passed_on_at_its_own_word)
{
	int fd = memwait_open(O_NONBLOCK), i;
	struct memwait_completion done[8];

	for (i = 0; i < 4; i++)
		arm_and_complete(_metadata, fd, self->shared + i, 1);
	for (i = 0; i < 4; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared + i, i));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared + 9, 9));
	close(fd);
	EXPECT_EQ(4, mw_read(self->fd, done, 8));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(i, done[i].user_data);
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared + 9, U32));
}

MEMWAIT_TEST(R25_read_completions_are_not_passed_on)
{
	struct memwait_completion done[4];
	int fd = memwait_open(O_NONBLOCK);

	arm_and_complete(_metadata, fd, self->shared, 3);
	EXPECT_EQ(2, mw_read(fd, done, 2));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 0));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 1));
	close(fd);
	EXPECT_EQ(1, mw_read(self->fd, done, 4));
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared, U32));
}

MEMWAIT_TEST(R25_unread_timeouts_are_not_passed_on)
{
	int fd = memwait_open(O_NONBLOCK);

	EXPECT_EQ(MEMWAIT_PENDING, async_soon(fd, self->shared, 20, 0, NULL));
	spin_until(mw_readable(fd));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 1));
	close(fd);
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared, U32));
}

/*
 * A wait that a notify found overdue is a completion. When its context is closed, nothing is passed
 * on for that wait.
 */
MEMWAIT_TEST(R25_overdue_waits_found_by_a_notify_pass_nothing_on)
{
	int fd = memwait_open(O_NONBLOCK);

	ASSERT_EQ(MEMWAIT_PENDING, async_soon(fd, self->word, 5, 1, NULL));
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 2));
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 3));
	spin_until(mw_readable(fd));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_COMPLETION(self->fd, 2, MEMWAIT_OK);
	EXPECT_EQ(1, mw_fdinfo(fd, "completed"));
	close(fd);
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_COMPLETION(self->fd, 3, MEMWAIT_OK);
}

MEMWAIT_TEST(R25_nothing_is_passed_on_to_the_closing_context_itself)
{
	int fd = memwait_open(O_NONBLOCK);

	arm_and_complete(_metadata, fd, self->shared, 1);
	/*
	 * This wait is older than the wait of the other context, but its own context is being
	 * closed.
	 */
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->shared, 5));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 6));
	close(fd);
	EXPECT_COMPLETION(self->fd, 6, MEMWAIT_OK);
}

MEMWAIT_TEST(R25_a_notify_is_passed_on_repeatedly)
{
	int fds[10], i;

	for (i = 0; i < 10; i++) {
		fds[i] = memwait_open(O_NONBLOCK);
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(fds[i], self->shared, i));
	}
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 77));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	for (i = 0; i < 10; i++) {
		EXPECT_TRUE(mw_readable(fds[i]));
		EXPECT_FALSE(mw_readable(self->fd));
		close(fds[i]);
	}
	EXPECT_COMPLETION(self->fd, 77, MEMWAIT_OK);
}

MEMWAIT_TEST(R25_a_killed_process_loses_no_notify)
{
	int i;

	for (i = 0; i < 20; i++) {
		pid_t pid = fork_child();

		if (!pid) {
			int fd = memwait_open(O_NONBLOCK);

			mw_arm(fd, self->shared, 0);
			stay();
		}
		await_waiters(self->fd, self->shared, U32, 1);
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, i));
		if (i % 2)
			kill(pid, SIGKILL);
		EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
		EXPECT_EQ(128 + SIGKILL, kill_child(pid));
		EXPECT_COMPLETION(self->fd, i, MEMWAIT_OK);
	}
}

MEMWAIT_TEST(R22_a_context_is_inherited_over_fork)
{
	struct memwait_completion done[2];
	pid_t pid;

	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 1));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word + 1, 2));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	pid = fork_child();
	if (!pid) {
		/*
		 * The child can read the parent's completion, but cannot notify the parent's
		 * private words.
		 */
		if (mw_read(self->fd, done, 2) != 1 || done[0].user_data != 1)
			_exit(1);
		if (mw_notify(self->fd, self->word + 1, 1, U32))
			_exit(2);
		_exit(0);
	}
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, done, 2));
	/* The exit of the child did not close the context. */
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 1, 1, U32));
	EXPECT_EQ(1, mw_read(self->fd, done, 2));
	EXPECT_EQ(2, done[0].user_data);
}

MEMWAIT_TEST(R22_a_context_is_passed_over_a_socket)
{
	int sockets[2], fd;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	pid = fork_child();
	if (!pid) {
		fd = memwait_open(O_NONBLOCK);
		if (mw_arm(fd, self->shared, 5) != MEMWAIT_PENDING ||
		    mw_arm(fd, self->word, 6) != MEMWAIT_PENDING)
			_exit(1);
		_exit(send_fd(sockets[1], fd, 0) ? 2 : 0);
	}
	fd = receive_fd(sockets[0], NULL);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, child_status(pid));
	/*
	 * The submitter has exited. The shared word still exists; the private word belongs to no
	 * process.
	 */
	EXPECT_EQ(0, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_TRUE(mw_readable(fd));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	EXPECT_COMPLETION(fd, 5, MEMWAIT_OK);
	close(fd);
	close(sockets[0]);
	close(sockets[1]);
}

MEMWAIT_TEST(R11_private_words_of_a_dead_process_time_out)
{
	pid_t pid = run_in_child(async_soon(self->fd, self->word, 1000, 6, NULL));

	EXPECT_EQ(MEMWAIT_PENDING, child_status(pid));
	spin_until(mw_readable(self->fd));
	EXPECT_COMPLETION(self->fd, 6, MEMWAIT_TIMED_OUT);
}

MEMWAIT_TEST(R11_exec_with_an_inherited_context)
{
	int fd = open("/dev/memwait", O_RDWR | O_NONBLOCK);	/* without O_CLOEXEC */
	pid_t pid;

	ASSERT_LE(0, fd);
	pid = fork_child();
	if (!pid) {
		char *const argv[] = { "/proc/self/exe", "--no-such-option", NULL };
		int null = open("/dev/null", O_WRONLY);

		mw_arm(fd, self->word, 1);
		mw_arm(fd, self->shared, 2);
		dup2(null, 1);
		dup2(null, 2);
		execv(argv[0], argv);
		_exit(99);
	}
	EXPECT_NE(99, child_status(pid));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_COMPLETION(fd, 2, MEMWAIT_OK);
	close(fd);
}

/*
 * Closes two contexts that wait on one word, closes the file, and unmaps the word, in every order.
 */
MEMWAIT_TEST(R11_everything_may_be_closed_in_any_order)
{
	int order[4], round, i;

	for (round = 0; round < 4 * 4 * 4 * 4; round++) {
		int fds[2] = { memwait_open(O_NONBLOCK), memwait_open(O_NONBLOCK) };
		int file = memfd_create("memwait", 0), seen = 0;
		uint32_t *word;

		for (i = 0; i < 4; i++) {
			order[i] = round >> (2 * i) & 3;
			seen |= 1 << order[i];
		}
		if (seen != 15 || file < 0 || ftruncate(file, self->page)) {
			close(fds[0]);
			close(fds[1]);
			close(file);
			continue;
		}
		word = map_shared(file, self->page);
		for (i = 0; i < 4; i++)
			EXPECT_EQ(MEMWAIT_PENDING, i < 2 ?
				  mw_arm(fds[i % 2], word, i) :
				  async_soon(fds[i % 2], word, 1, i, NULL));
		EXPECT_LE(1, mw_notify(fds[0], word, 1, U32));
		for (i = 0; i < 4; i++) {
			switch (order[i]) {
			case 0:
			case 1:
				close(fds[order[i]]);
				break;
			case 2:
				close(file);
				break;
			case 3:
				munmap(word, self->page);
				break;
			}
		}
	}
}

MEMWAIT_TEST(R25_notifies_are_passed_on_in_the_order_of_completion)
{
	struct memwait_completion done[4];
	int fd = memwait_open(O_NONBLOCK), i;

	/*
	 * These words are private. Their waits complete in an order that differs from the order in
	 * which the next waits are armed.
	 */
	arm_and_complete(_metadata, fd, self->word + 1, 1);
	arm_and_complete(_metadata, fd, self->word, 1);
	arm_and_complete(_metadata, fd, self->word + 2, 1);
	for (i = 0; i < 3; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word + i, 0, FOREVER,
						    U32 | MEMWAIT_PRIVATE, i, NULL));
	close(fd);
	EXPECT_EQ(3, mw_read(self->fd, done, 4));
	EXPECT_EQ(1, done[0].user_data);
	EXPECT_EQ(0, done[1].user_data);
	EXPECT_EQ(2, done[2].user_data);
}

MEMWAIT_TEST(R25_a_copy_of_the_descriptor_keeps_everything)
{
	struct memwait_completion done[4];
	int fd = memwait_open(O_NONBLOCK), copy = dup(fd);

	arm_and_complete(_metadata, fd, self->shared, 1);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->shared + 1, 7));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 8));
	close(fd);
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared + 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared + 1, 1, U32));
	EXPECT_EQ(2, mw_read(copy, done, 4));
	close(copy);
	EXPECT_FALSE(mw_readable(self->fd));
}

MEMWAIT_TEST(R22_a_context_that_was_passed_is_used_by_its_receiver)
{
	struct memwait_completion done;
	int sockets[2], fd, fd_of_child;
	uint32_t *word = self->word;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, word, 1));
	pid = fork_child();
	if (!pid) {
		/*
		 * The wait is armed in the sender's context, on a word in the receiver's memory:
		 * the key is determined by the process that submits the wait.
		 */
		fd = receive_fd(sockets[1], NULL);
		if (mw_arm(fd, word, 2) != MEMWAIT_PENDING || mw_waiters(fd, word, U32) != 1)
			_exit(1);
		if (mw_notify(fd, word, MEMWAIT_ALL, U32) != 1)
			_exit(2);
		if (mw_read(fd, &done, 1) != 1 || done.user_data != 2)
			_exit(3);
		_exit(0);
	}
	/* Use a separate context, because the child inherits the fixture's context in any case. */
	fd_of_child = open_device(O_NONBLOCK);
	EXPECT_EQ(0, send_fd(sockets[0], fd_of_child, 0));
	EXPECT_EQ(0, child_status(pid));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_FALSE(mw_readable(fd_of_child));
	EXPECT_EQ(1, mw_notify(self->fd, word, MEMWAIT_ALL, U32));
	EXPECT_EQ(0, mw_fdinfo(fd_of_child, "pending"));
	close(fd_of_child);
	close(sockets[0]);
	close(sockets[1]);
}

MEMWAIT_TEST(R25_a_context_that_was_never_received_is_closed)
{
	int sockets[2], fd = memwait_open(O_NONBLOCK);

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	arm_and_complete(_metadata, fd, self->shared, 1);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->shared + 1, 1));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 2));
	ASSERT_EQ(0, send_fd(sockets[0], fd, 0));
	close(fd);
	close(sockets[0]);
	/* The context exists while it is in transit. */
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared + 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	close(sockets[1]);
	spin_until(mw_readable(self->fd));
	EXPECT_COMPLETION(self->fd, 2, MEMWAIT_OK);
	EXPECT_EQ(0, mw_waiters(self->fd, self->shared + 1, U32));
}

/* Waits until a kernel thread has finished closing a context. */
static void await_closed(int fd, uint64_t user_waits)
{
	spin_until(mw_user_waits(fd) == user_waits);
}

MEMWAIT_TEST(R25_sockets_in_a_cycle_lose_no_notify)
{
	int sockets[2], fd = memwait_open(O_NONBLOCK);

	/*
	 * Only the garbage collector of Unix sockets closes the context, when another socket is
	 * closed later.
	 */
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	arm_and_complete(_metadata, fd, self->shared, 1);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 2));
	ASSERT_EQ(0, send_fd(sockets[0], fd, 0));
	ASSERT_EQ(0, send_fd(sockets[0], sockets[1], 0));
	close(fd);
	close(sockets[0]);
	close(sockets[1]);
	while (!mw_readable(self->fd)) {
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
		close(sockets[0]);
		close(sockets[1]);
	}
	EXPECT_COMPLETION(self->fd, 2, MEMWAIT_OK);
	await_closed(self->fd, self->user_waits);
}

MEMWAIT_TEST(R11_private_words_of_a_dead_process_stay_until_cancelled)
{
	uint64_t *ids = (uint64_t *)(self->shared + 16);
	pid_t pid = fork_child();
	int i;

	if (!pid) {
		for (i = 0; i < 2; i++) {
			if (mw_async(self->fd, self->word, 0, FOREVER,
				     U32 | (i ? MEMWAIT_PRIVATE : 0), i, &ids[i]) !=
			    MEMWAIT_PENDING)
				_exit(1);
		}
		if (mw_arm(self->fd, self->word + 1, 5) != MEMWAIT_PENDING ||
		    mw_notify(self->fd, self->word + 1, 1, U32) != 1)
			_exit(2);
		_exit(0);
	}
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(2, mw_fdinfo(self->fd, "pending"));
	EXPECT_COMPLETION(self->fd, 5, MEMWAIT_OK);

	/* No later process has these words, even if its mm is at the same address in the kernel. */
	for (i = 0; i < 100; i++) {
		pid = run_in_child(mw_notify(self->fd, self->word, MEMWAIT_ALL, U32) ?:
				   mw_notify(self->fd, self->word, MEMWAIT_ALL,
					     U32 | MEMWAIT_PRIVATE));
		ASSERT_EQ(0, child_status(pid));
	}
	EXPECT_EQ(0, mw_cancel(self->fd, ids[0]));
	EXPECT_EQ(0, mw_cancel(self->fd, ids[1]));
	EXPECT_EQ(0, mw_fdinfo(self->fd, "pending"));
}

MEMWAIT_TEST(R11_private_words_are_unreachable_after_exec)
{
	struct memwait_completion done;
	int status;
	pid_t pid = fork_child();

	if (!pid) {
		char *const argv[] = { "/proc/self/exe", "--no-such-option", NULL };
		int null = open("/dev/null", O_WRONLY);

		fcntl(self->fd, F_SETFD, 0);
		arm_and_complete(_metadata, self->fd, self->word + 1, 1);
		mw_arm(self->fd, self->word, 5);
		dup2(null, 1);
		dup2(null, 2);
		execv(argv[0], argv);
		_exit(99);
	}
	status = child_status(pid);
	EXPECT_LT(status, 99);
	EXPECT_EQ(1, mw_fdinfo(self->fd, "pending"));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(0, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R11_no_other_file_gets_the_key_of_a_closed_file)
{
	int i, file = new_file(self->page);
	uint32_t *word;
	uint64_t id;

	word = map_shared(file, self->page);
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, word, 0, FOREVER, U32, 1, &id));
	munmap(word, self->page);
	close(file);
	/* If the inode had been freed, a new file would probably reuse it. */
	for (i = 0; i < 500; i++) {
		file = new_file(self->page);
		word = map_shared(file, self->page);
		ASSERT_EQ(0, mw_notify(self->fd, word, MEMWAIT_ALL, U32));
		munmap(word, self->page);
		close(file);
	}
	EXPECT_EQ(0, mw_cancel(self->fd, id));
}

MEMWAIT_TEST(R11_munmap_during_a_pending_wait)
{
	uint32_t *word = private_page(self->page);
	struct memwait_completion done;
	uint64_t seen;

	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, word, 1));
	EXPECT_EQ(MEMWAIT_PENDING, async_soon(self->fd, word, 50, 2, NULL));
	ASSERT_EQ(0, munmap(word, self->page));
	EXPECT_EQ(-EFAULT, mw_notify(self->fd, word, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32 | MEMWAIT_PRIVATE));
	/* The deadline may have expired first. */
	for (seen = 0; seen != 3; seen |= done.user_data) {
		spin_until(mw_readable(self->fd));
		ASSERT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(done.user_data == 1 ? MEMWAIT_OK : MEMWAIT_TIMED_OUT, done.result);
	}
	EXPECT_EQ(0, mw_waiters(self->fd, word, U32 | MEMWAIT_PRIVATE));
}

MEMWAIT_TEST(R11_a_waiting_thread_outlives_its_descriptor)
{
	struct waiter w = thread_at(memwait_open(0), self->word);

	waiter_start(&w);
	close(w.fd);
	EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

struct racer {
	pthread_t thread;
	pthread_barrier_t *barrier;
	int *fd;
	int own_fd, rounds;
	uint32_t *word;
	long notified;
};

static void *notify_once_a_round(void *arg)
{
	struct racer *r = arg;
	int i;

	for (i = 0; i < r->rounds; i++) {
		pthread_barrier_wait(r->barrier);
		r->notified += mw_notify(r->own_fd, r->word, 1, U32);
		pthread_barrier_wait(r->barrier);
	}
	return NULL;
}

/*
 * One notify races with one close. The waits of the closing context are at the head of the queue,
 * and a wait of another context is behind them. In either order the other wait gets the notify,
 * either directly or because it is passed on.
 */
MEMWAIT_TEST(R25_a_notify_that_races_with_close_is_not_lost)
{
	pthread_barrier_t barrier;
	struct racer r = { .barrier = &barrier, .own_fd = memwait_open(0), .rounds = 1000,
			   .word = self->shared };
	struct memwait_completion done[2];
	int round, fd, i;

	pthread_barrier_init(&barrier, NULL, 2);
	ASSERT_EQ(0, pthread_create(&r.thread, NULL, notify_once_a_round, &r));
	for (round = 0; round < r.rounds; round++) {
		fd = memwait_open(O_NONBLOCK);
		for (i = 0; i < round % 8; i++)
			EXPECT_EQ(MEMWAIT_PENDING, mw_async(fd, self->shared, 0,
							    i % 2 ? FOREVER : in_ms(1000000), U32,
							    i, NULL));
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, round));
		pthread_barrier_wait(&barrier);
		close(fd);
		pthread_barrier_wait(&barrier);
		EXPECT_EQ(round + 1, r.notified);
		ASSERT_EQ(1, mw_read(self->fd, done, 2));
		ASSERT_EQ(round, done[0].user_data);
		ASSERT_EQ(MEMWAIT_OK, done[0].result);
	}
	pthread_join(r.thread, NULL);
	EXPECT_EQ(0, mw_waiters(self->fd, self->shared, U32));
	close(r.own_fd);
	pthread_barrier_destroy(&barrier);
}

static void *arm_once_a_round(void *arg)
{
	struct racer *r = arg;
	int i;

	for (i = 0; i < r->rounds; i++) {
		pthread_barrier_wait(r->barrier);
		mw_async(*r->fd, r->word, 0, i % 2 ? FOREVER : in_ms(1000000), U32, i, NULL);
		pthread_barrier_wait(r->barrier);
	}
	return NULL;
}

/* The wait is armed before the context is closed, or it is not armed at all. */
MEMWAIT_TEST(R25_close_races_with_arming)
{
	pthread_barrier_t barrier;
	int round, fd;
	struct racer r = { .barrier = &barrier, .fd = &fd, .rounds = 1000, .word = self->shared };

	pthread_barrier_init(&barrier, NULL, 2);
	ASSERT_EQ(0, pthread_create(&r.thread, NULL, arm_once_a_round, &r));
	for (round = 0; round < r.rounds; round++) {
		fd = memwait_open(O_NONBLOCK);
		pthread_barrier_wait(&barrier);
		close(fd);
		pthread_barrier_wait(&barrier);
		ASSERT_EQ(0, mw_waiters(self->fd, self->shared, U32));
	}
	pthread_join(r.thread, NULL);
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
	pthread_barrier_destroy(&barrier);
}

static void *arm_and_close(void *arg)
{
	struct racer *r = arg;
	unsigned int i;
	int fd;

	for (;;) {
		fd = memwait_open(O_NONBLOCK);
		for (i = 0; i < 8; i++)
			mw_arm(fd, r->word, i);
		close(fd);
	}
	return NULL;
}

/*
 * A process that arms, closes and never reads is killed at an arbitrary instruction. Another waiter
 * gets all notifies.
 */
MEMWAIT_TEST(R25_a_process_killed_at_any_point_loses_no_notify)
{
	struct memwait_completion done[64];
	struct racer r = { .word = self->shared };
	int round, i, n, notified;
	pthread_t thread;
	pid_t pid;

	for (round = 0; round < 50; round++) {
		pid = fork_child();
		if (!pid) {
			for (i = 0; i < 2; i++)
				pthread_create(&thread, NULL, arm_and_close, &r);
			arm_and_close(&r);
		}
		spin_until(mw_waiters(self->fd, self->shared, U32));
		for (i = 0; i < 64; i++)
			EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, i));
		for (i = notified = 0; i < 64; i++) {
			if (i == round)
				kill(pid, SIGKILL);
			notified += mw_notify(self->fd, self->shared, 1, U32);
		}
		EXPECT_EQ(128 + SIGKILL, child_status(pid));
		EXPECT_EQ(64, notified);
		for (n = 0; n < 64; n += i) {
			i = mw_read(self->fd, done, 64);
			ASSERT_LT(0, i);
		}
		ASSERT_EQ(0, mw_waiters(self->fd, self->shared, U32));
	}
}

/*
 * The process is killed while it sleeps in read(2). It must not consume a notify that comes at that
 * time.
 */
MEMWAIT_TEST(R25_a_reader_that_is_killed_loses_no_notify)
{
	struct memwait_completion done;
	int *ready = (int *)(self->shared + 64);
	int round, passed_on = 0, ret, fd;
	pid_t pid;

	for (round = 0; round < 200; round++) {
		*ready = 0;
		pid = fork_child();
		if (!pid) {
			fd = memwait_open(0);
			if (mw_arm(fd, self->shared, 0) != MEMWAIT_PENDING)
				_exit(1);
			__atomic_store_n(ready, gettid(), __ATOMIC_RELEASE);
			mw_read(fd, &done, 1);
			_exit(0);
		}
		spin_until(__atomic_load_n(ready, __ATOMIC_ACQUIRE));
		await_asleep(pid);
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 0));
		kill(pid, SIGKILL);
		ASSERT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
		ret = child_status(pid);
		/*
		 * The process was dead before the notify, or it passed on the notify, which it
		 * could not read.
		 */
		ASSERT_EQ(128 + SIGKILL, ret);
		ASSERT_EQ(1, mw_read(self->fd, &done, 1));
		passed_on++;
	}
	EXPECT_EQ(200, passed_on);
}

MEMWAIT_TEST(R25_a_context_that_io_uring_holds_is_closed_with_the_ring)
{
	struct io_uring_params params = { 0 };
	int ring = syscall(SYS_io_uring_setup, 4, &params), fd = memwait_open(O_NONBLOCK);

	if (ring < 0)
		SKIP(return, "io_uring: %s", strerror(errno));
	ASSERT_EQ(0, syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &fd, 1));
	arm_and_complete(_metadata, fd, self->shared, 1);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->shared + 1, 1));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 2));
	close(fd);
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared + 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	close(ring);
	spin_until(mw_readable(self->fd));
	EXPECT_COMPLETION(self->fd, 2, MEMWAIT_OK);
	await_closed(self->fd, self->user_waits);
	EXPECT_EQ(0, mw_waiters(self->fd, self->shared + 1, U32));
}

/*
 * Returns the number of objects of a kind that the kernel has allocated; or -1 if it is not known.
 * The debug kernel, which looks for leaks itself, counts freed objects for a long time, because
 * KASAN retains them.
 */
static long objects(const char *kind)
{
	bool is_debug = !access("/sys/kernel/debug/kmemleak", F_OK);
	FILE *list = is_debug ? NULL : fopen("/proc/slabinfo", "r");
	char line[200], name[64];
	long found = -1, nr;

	while (list && fgets(line, sizeof(line), list)) {
		if (sscanf(line, "%63s %ld", name, &nr) == 2 && !strcmp(name, kind))
			found = nr;
	}
	if (list)
		fclose(list);
	return found;
}

#define ENDED	600	/* threads or processes */

/* The kernel frees objects a little later, and some of the memory stays in its caches. */
static bool are_freed(const char *kind, long before)
{
	int tries;

	for (tries = 0; tries < 100 && objects(kind) >= before + ENDED / 2; tries++)
		usleep(100000);
	return objects(kind) < before + ENDED / 2;
}

/* A notify refers to the threads that it wakes. */
MEMWAIT_TEST(R31_woken_threads_are_freed_when_they_have_ended)
{
	long before = objects("task_struct");
	int i;

	if (before < 0)
		SKIP(return, "needs root and /proc/slabinfo, without KASAN");
	for (i = 0; i < ENDED; i++) {
		struct waiter w = thread_at(self->fd, self->word);

		waiter_start(&w);
		ASSERT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		ASSERT_EQ(MEMWAIT_OK, waiter_join(&w));
	}
	EXPECT_TRUE(are_freed("task_struct", before));
}

/* A pending wait on a private word refers to the address space. */
MEMWAIT_TEST(R31_address_spaces_are_freed_with_the_last_wait)
{
	long before = objects("mm_struct");
	int i;

	if (before < 0)
		SKIP(return, "needs root and /proc/slabinfo, without KASAN");
	for (i = 0; i < ENDED; i++) {
		pid_t pid = fork_child();

		if (!pid) {
			uint64_t id;

			_exit(mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER, U32, 0, &id) !=
			      MEMWAIT_PENDING || mw_cancel(self->fd, id));
		}
		ASSERT_EQ(0, child_status(pid));
	}
	EXPECT_TRUE(are_freed("mm_struct", before));
}

TEST_HARNESS_MAIN
