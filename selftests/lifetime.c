// SPDX-License-Identifier: GPL-2.0
/* What outlives what: contexts, processes, words, and notifies that nobody has read (R25). */
#include "memwait_fixture.h"
#include <sys/un.h>

#define FOREVER	MEMWAIT_FOREVER

MEMWAIT_TEST(R25_close_ends_pending_waits_and_wakes_nobody)
{
	int fd = memwait_open(O_NONBLOCK), i;

	for (i = 0; i < 10; i++) {
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(fd, self->shared + i % 2, 0,
						    i % 3 ? FOREVER : in_ms(3600000), U32, i,
						    NULL));
	}
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, FOREVER, U32, 1, NULL));
	close(fd);
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, self->shared + 1, U32));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
}

/* Two completions with OK that are not read; two others wait behind. */
static void arm_and_complete(struct __test_metadata *_metadata, int fd, uint32_t *word, int n)
{
	int i;

	for (i = 0; i < n; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(fd, word, 0, FOREVER, U32, i, NULL));
	EXPECT_EQ(n, mw_notify(fd, word, n, U32));
}

MEMWAIT_TEST(R25_unread_oks_go_on_to_the_next_waiters)
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
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, words[i], 0, FOREVER, U32, 7, NULL));
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, words[i], 0, FOREVER, U32, 8, NULL));
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

MEMWAIT_TEST(R25_each_goes_on_to_its_own_word)
{
	int fd = memwait_open(O_NONBLOCK), i;
	struct memwait_completion done[8];

	for (i = 0; i < 4; i++)
		arm_and_complete(_metadata, fd, self->shared + i, 1);
	for (i = 0; i < 4; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared + i, 0, FOREVER, U32, i,
						    NULL));
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared + 9, 0, FOREVER, U32, 9, NULL));
	close(fd);
	EXPECT_EQ(4, mw_read(self->fd, done, 8));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(i, done[i].user_data);
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared + 9, U32));
}

MEMWAIT_TEST(R25_what_was_read_does_not_go_on)
{
	struct memwait_completion done[4];
	int fd = memwait_open(O_NONBLOCK);

	arm_and_complete(_metadata, fd, self->shared, 3);
	EXPECT_EQ(2, mw_read(fd, done, 2));
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, FOREVER, U32, 0, NULL));
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, FOREVER, U32, 1, NULL));
	close(fd);
	EXPECT_EQ(1, mw_read(self->fd, done, 4));
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared, U32));
}

MEMWAIT_TEST(R25_unread_time_outs_do_not_go_on)
{
	int fd = memwait_open(O_NONBLOCK);

	EXPECT_EQ(MEMWAIT_PENDING, mw_async(fd, self->shared, 0, in_ms(20), U32, 0, NULL));
	while (!mw_readable(fd))
		sched_yield();
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, FOREVER, U32, 1, NULL));
	close(fd);
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared, U32));
}

MEMWAIT_TEST(R25_not_to_a_pending_wait_of_the_closing_context)
{
	int fd = memwait_open(O_NONBLOCK);
	struct memwait_completion done;

	arm_and_complete(_metadata, fd, self->shared, 1);
	/* Older than the other context's, but it is closed too. */
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(fd, self->shared, 0, FOREVER, U32, 5, NULL));
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, FOREVER, U32, 6, NULL));
	close(fd);
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(6, done.user_data);
}

MEMWAIT_TEST(R25_goes_on_as_often_as_needed)
{
	struct memwait_completion done;
	int fds[10], i;

	for (i = 0; i < 10; i++) {
		fds[i] = memwait_open(O_NONBLOCK);
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(fds[i], self->shared, 0, FOREVER, U32, i,
						    NULL));
	}
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, FOREVER, U32, 77, NULL));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	for (i = 0; i < 10; i++) {
		EXPECT_TRUE(mw_readable(fds[i]));
		EXPECT_FALSE(mw_readable(self->fd));
		close(fds[i]);
	}
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(77, done.user_data);
}

MEMWAIT_TEST(R25_a_killed_process_swallows_no_notify)
{
	struct memwait_completion done;
	int i;

	for (i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (!pid) {
			int fd = memwait_open(O_NONBLOCK);

			mw_async(fd, self->shared, 0, FOREVER, U32, 0, NULL);
			for (;;)
				pause();
		}
		await_waiters(self->fd, self->shared, U32, 1);
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared, 0, FOREVER, U32, i,
						    NULL));
		if (i % 2)
			kill(pid, SIGKILL);
		EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
		kill(pid, SIGKILL);
		EXPECT_EQ(128 + SIGKILL, child_status(pid));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(i, done.user_data);
	}
}

MEMWAIT_TEST(R22_a_context_is_kept_over_fork)
{
	struct memwait_completion done[2];
	pid_t pid;

	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 1, NULL));
	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word + 1, 0, FOREVER, U32, 2, NULL));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	pid = fork();
	if (!pid) {
		/* The parent's completion is the child's to read, its private words are not. */
		if (mw_read(self->fd, done, 2) != 1 || done[0].user_data != 1)
			_exit(1);
		if (mw_notify(self->fd, self->word + 1, 1, U32))
			_exit(2);
		_exit(0);
	}
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, done, 2));
	/* The child's exit was not the last close. */
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 1, 1, U32));
	EXPECT_EQ(1, mw_read(self->fd, done, 2));
	EXPECT_EQ(2, done[0].user_data);
}

static int send_fd(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&msg);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(int));
	return sendmsg(socket, &msg, 0) == 1 ? 0 : -1;
}

static int receive_fd(int socket)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	int fd = -1;

	if (recvmsg(socket, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	return fd;
}

MEMWAIT_TEST(R22_a_context_is_passed_over_a_socket)
{
	struct memwait_completion done;
	int sockets[2], fd;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	pid = fork();
	if (!pid) {
		fd = memwait_open(O_NONBLOCK);
		if (mw_async(fd, self->shared, 0, FOREVER, U32, 5, NULL) != MEMWAIT_PENDING ||
		    mw_async(fd, self->word, 0, FOREVER, U32, 6, NULL) != MEMWAIT_PENDING)
			_exit(1);
		_exit(send_fd(sockets[1], fd) ? 2 : 0);
	}
	fd = receive_fd(sockets[0]);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, child_status(pid));
	/* Its submitter is gone. The shared word is there; the private one is nobody's. */
	EXPECT_EQ(0, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_TRUE(mw_readable(fd));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	EXPECT_EQ(1, mw_read(fd, &done, 1));
	EXPECT_EQ(5, done.user_data);
	close(fd);
	close(sockets[0]);
	close(sockets[1]);
}

MEMWAIT_TEST(R11_private_words_of_a_dead_process_time_out)
{
	struct memwait_completion done;
	pid_t pid = fork();

	if (!pid)
		_exit(mw_async(self->fd, self->word, 0, in_ms(300), U32, 6, NULL) !=
		      MEMWAIT_PENDING);
	EXPECT_EQ(0, child_status(pid));
	while (!mw_readable(self->fd))
		sched_yield();
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(6, done.user_data);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, done.result);
}

MEMWAIT_TEST(R11_exec_with_a_context_that_is_kept)
{
	int fd = open("/dev/memwait", O_RDWR | O_NONBLOCK);	/* no O_CLOEXEC */
	struct memwait_completion done;
	pid_t pid;

	ASSERT_LE(0, fd);
	pid = fork();
	if (!pid) {
		char *const argv[] = { "/proc/self/exe", "--no-such-option", NULL };
		int null = open("/dev/null", O_WRONLY);

		mw_async(fd, self->word, 0, FOREVER, U32, 1, NULL);
		mw_async(fd, self->shared, 0, FOREVER, U32, 2, NULL);
		dup2(null, 1);
		dup2(null, 2);
		execv(argv[0], argv);
		_exit(99);
	}
	EXPECT_NE(99, child_status(pid));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EQ(1, mw_read(fd, &done, 1));
	EXPECT_EQ(2, done.user_data);
	close(fd);
}

/* Closes and unmaps a context, another one that waits on the same word, the file, its mapping. */
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
		word = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		ASSERT_NE(MAP_FAILED, word);
		for (i = 0; i < 4; i++)
			EXPECT_EQ(MEMWAIT_PENDING, mw_async(fds[i % 2], word, 0,
							    i < 2 ? FOREVER : in_ms(1), U32, i,
							    NULL));
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

struct closer {
	pthread_t thread;
	uint32_t *word;
	int *stop;
	long notified;
};

static void *notify_all_the_time(void *arg)
{
	struct closer *c = arg;
	int fd = memwait_open(0);

	while (!__atomic_load_n(c->stop, __ATOMIC_RELAXED))
		c->notified += mw_notify(fd, c->word, 1, U32);
	close(fd);
	return NULL;
}

/* A waiter that is always there gets what the contexts that are closed before it have got. */
MEMWAIT_TEST(R25_close_races_with_notify)
{
	struct memwait_completion done[64];
	struct closer c = { .word = self->shared };
	uint64_t end = in_ms(2000);
	int stop = 0, i, n;
	long seen = 0;

	c.stop = &stop;
	ASSERT_EQ(0, pthread_create(&c.thread, NULL, notify_all_the_time, &c));
	while (now_ns(CLOCK_MONOTONIC) < end) {
		int fd = memwait_open(O_NONBLOCK);

		for (i = 0; i < 4; i++)
			mw_async(fd, self->shared, 0, i ? FOREVER : in_ms(1), U32, i, NULL);
		close(fd);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(c.thread, NULL);
	EXPECT_EQ(0, mw_waiters(self->fd, self->shared, U32));

	/* And the same where somebody stands behind: nothing is lost. */
	for (i = 0; i < 32; i++)
		EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, i,
						    NULL));
	for (i = 0; i < 32; i++) {
		int fd = memwait_open(O_NONBLOCK);

		seen += mw_notify(fd, self->word, 1, U32);
		close(fd);
	}
	n = mw_read(self->fd, done, 64);
	EXPECT_EQ(32, seen);
	EXPECT_EQ(32, n);
}

TEST_HARNESS_MAIN
