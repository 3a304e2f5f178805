// SPDX-License-Identifier: GPL-2.0
/* R20, R21: read(2). */
#include "async_test.h"
#include "fault_test.h"
#include "signal_test.h"
#include <sys/uio.h>

#define RECORD	sizeof(struct memwait_completion)

static void complete(struct __test_metadata *_metadata, int fd, uint32_t *word, int from, int n)
{
	int i;

	for (i = from; i < from + n; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, word, i));
	ASSERT_EQ(n, mw_notify(fd, word, MEMWAIT_ALL, U32));
}

MEMWAIT_TEST(R20_completions_are_read_in_the_order_of_creation)
{
	struct memwait_completion done[12];
	int i;

	for (i = 0; i < 4; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word + i, i));
	/* The order differs from the order of arming and from that of the addresses. */
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 2, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(2, mw_read(self->fd, done, 12));
	EXPECT_EQ(2, done[0].user_data);
	EXPECT_EQ(0, done[1].user_data);

	/* A timeout becomes a completion when it is read. */
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word + 4, 10, 4, NULL));
	spin_until(mw_readable(self->fd));
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 3, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 1, 1, U32));
	EXPECT_EQ(3, mw_read(self->fd, done, 12));
	EXPECT_EQ(3, done[0].user_data);
	EXPECT_EQ(1, done[1].user_data);
	EXPECT_EQ(4, done[2].user_data);
}

MEMWAIT_TEST(R21_whole_records_only)
{
	char buffer[4 * RECORD];
	ssize_t n;

	complete(_metadata, self->fd, self->word, 0, 4);
	memset(buffer, 0xcc, sizeof(buffer));
	n = read(self->fd, buffer, 2 * RECORD + RECORD - 1);
	EXPECT_EQ(2 * RECORD, n);
	EXPECT_EQ((char)0xcc, buffer[2 * RECORD]);
	n = read(self->fd, buffer, sizeof(buffer));
	EXPECT_EQ(2 * RECORD, n);
}

MEMWAIT_TEST(R21_a_buffer_smaller_than_one_record_is_einval)
{
	char buffer[RECORD];
	size_t size;

	complete(_metadata, self->fd, self->word, 0, 1);
	for (size = 0; size < RECORD; size++) {
		EXPECT_EQ(-1, read(self->fd, buffer, size));
		EXPECT_EQ(EINVAL, errno);
	}
	EXPECT_EQ(RECORD, read(self->fd, buffer, RECORD));
}

MEMWAIT_TEST(R21_a_nonblocking_read_without_completions_is_eagain)
{
	struct memwait_completion done;

	EXPECT_EQ(-EAGAIN, mw_read(self->fd, &done, 1));
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 0));
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, &done, 1));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
}

MEMWAIT_TEST(R21_many_records_in_one_call)
{
	static struct memwait_completion done[1000];
	int i;

	complete(_metadata, self->fd, self->word, 0, 1000);
	EXPECT_EQ(1000, mw_read(self->fd, done, 1000));
	for (i = 0; i < 1000; i++)
		EXPECT_EQ(i, done[i].user_data);
}

/* The vector is treated as one buffer. */
MEMWAIT_TEST(R21_readv_returns_what_is_there)
{
	struct memwait_completion done[3];
	struct iovec each[2] = { { &done[0], RECORD }, { &done[1], RECORD } };
	struct iovec across[3] = { { done, 10 }, { (char *)done + 10, 30 },
				   { (char *)done + 40, 3 * RECORD - 40 } };
	int fd = memwait_open(0);

	complete(_metadata, fd, self->word, 0, 1);
	/* A read of the second record would block. */
	EXPECT_EQ(RECORD, readv(fd, each, 2));
	EXPECT_EQ(0, done[0].user_data);

	complete(_metadata, fd, self->word, 1, 5);
	EXPECT_EQ(3 * RECORD, readv(fd, across, 3));
	EXPECT_EQ(1, done[0].user_data);
	EXPECT_EQ(2, done[1].user_data);
	EXPECT_EQ(3, done[2].user_data);
	EXPECT_EQ(MEMWAIT_OK, done[2].result);
	each[1].iov_len = RECORD - 1;
	EXPECT_EQ(RECORD, readv(fd, each, 2));
	EXPECT_EQ(4, done[0].user_data);
	each[0].iov_len = 1;
	each[1].iov_base = (char *)done + 1;
	EXPECT_EQ(RECORD, readv(fd, each, 2));
	EXPECT_EQ(5, done[0].user_data);
	each[1].iov_len = RECORD - 2;
	EXPECT_EQ(-1, readv(fd, each, 2));
	EXPECT_EQ(EINVAL, errno);
	close(fd);
}

MEMWAIT_TEST(R21_readv_into_a_hole_loses_nothing)
{
	char *hole = private_page(self->page);
	struct memwait_completion done[4];
	struct iovec io[2] = { { done, 0 }, { hole, 2 * RECORD } };
	size_t whole;

	ASSERT_EQ(0, mprotect(hole, self->page, PROT_NONE));
	complete(_metadata, self->fd, self->word, 0, 4);
	/* Before the hole, @whole records and a part of another record fit. */
	for (whole = 0; whole < 3; whole++) {
		memset(done, 0xcc, sizeof(done));
		io[0].iov_len = whole * RECORD + 6;
		if (whole) {
			EXPECT_EQ(whole * RECORD, readv(self->fd, io, 2));
		} else {
			EXPECT_EQ(-1, readv(self->fd, io, 2));
			EXPECT_EQ(EFAULT, errno);
		}
		if (whole == 1)
			EXPECT_EQ(0, done[0].user_data);
		if (whole == 2)
			EXPECT_EQ(2, done[1].user_data);
	}
	EXPECT_EQ(1, mw_read(self->fd, done, 4));
	EXPECT_EQ(3, done[0].user_data);
	munmap(hole, self->page);
}

/* Reads one record with preadv2(2) and RWF_NOWAIT. Returns the number of records or -errno. */
static int read_nowait(int fd, struct memwait_completion *done)
{
	struct iovec io = { done, RECORD };
	ssize_t size = preadv2(fd, &io, 1, -1, RWF_NOWAIT);

	return size < 0 ? -errno : (int)(size / RECORD);
}

MEMWAIT_TEST(R21_rwf_nowait_is_like_o_nonblock)
{
	struct memwait_completion done;
	int fd = memwait_open(0);

	EXPECT_EQ(-EAGAIN, read_nowait(fd, &done));
	complete(_metadata, fd, self->word, 3, 1);
	EXPECT_EQ(1, read_nowait(fd, &done));
	EXPECT_EQ(3, done.user_data);
	EXPECT_EQ(-EAGAIN, read_nowait(fd, &done));
	close(fd);
}

MEMWAIT_TEST(R21_blocks_until_there_is_a_completion)
{
	int fd = memwait_open(0);
	struct reader r;

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->word, 5));
	reader_start(&r, fd);
	EXPECT_EQ(0, runner_is_done(&r.runner));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(1, runner_join(&r.runner));
	EXPECT_EQ(5, r.done.user_data);

	/* A timeout also wakes the reader. */
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(fd, self->word, 50, 6, NULL));
	EXPECT_EQ(1, mw_read(fd, &r.done, 1));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, r.done.result);
	close(fd);
}

static void nothing(int sig)
{
}

MEMWAIT_TEST(R21_is_interrupted_by_signals)
{
	struct sigaction sa = { .sa_handler = nothing };
	int fd = memwait_open(0);
	struct reader r;

	sigaction(SIGUSR1, &sa, NULL);
	reader_start(&r, fd);
	pthread_kill(r.runner.thread, SIGUSR1);
	EXPECT_EQ(-EINTR, runner_join(&r.runner));

	sa.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &sa, NULL);
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->word, 5));
	reader_start(&r, fd);
	pthread_kill(r.runner.thread, SIGUSR1);
	runner_await_asleep(&r.runner);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(1, runner_join(&r.runner));
	close(fd);
}

MEMWAIT_TEST(R21_a_fault_part_way_loses_nothing)
{
	char *area = private_page(2 * self->page);
	struct memwait_completion done[40];
	int room, n, i;

	ASSERT_EQ(0, munmap(area + self->page, self->page));
	for (room = 0; room < 20; room++) {
		complete(_metadata, self->fd, self->word, 0, 20);
		/* Before the hole, @room records and half of another record fit. */
		n = read(self->fd, area + self->page - room * RECORD - RECORD / 2, 40 * RECORD);
		if (room) {
			EXPECT_EQ((int)(room * RECORD), n);
			memcpy(done, area + self->page - room * RECORD - RECORD / 2, room * RECORD);
		} else {
			EXPECT_EQ(-1, n);
			EXPECT_EQ(EFAULT, errno);
		}
		EXPECT_EQ(20 - room, mw_read(self->fd, done + room, 40 - room));
		for (i = 0; i < 20; i++)
			EXPECT_EQ(i, done[i].user_data);
	}
}

MEMWAIT_TEST(R21_hostile_buffers)
{
	struct memwait_completion done;
	char *none = private_page(self->page);
	void *buffers[] = { NULL, (void *)0xffff888000000000UL, (void *)-24UL, none };
	size_t i;

	ASSERT_EQ(0, mprotect(none, self->page, PROT_READ));
	complete(_metadata, self->fd, self->word, 0, 1);
	for (i = 0; i < 4; i++) {
		EXPECT_EQ(-1, read(self->fd, buffers[i], RECORD));
		EXPECT_EQ(EFAULT, errno);
	}
	EXPECT_TRUE(mw_readable(self->fd));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
}

struct sharer {
	pthread_t thread;
	int fd;
	unsigned char *seen;
	long n;
};

static void *read_many(void *arg)
{
	struct memwait_completion done[7];
	struct sharer *s = arg;
	int i, n;

	for (;;) {
		n = mw_read(s->fd, done, 7);
		for (i = 0; i < n; i++) {
			if (done[i].user_data == ~0ULL)
				return NULL;
			__atomic_add_fetch(&s->seen[done[i].user_data], 1, __ATOMIC_RELAXED);
			s->n++;
		}
		if (n < 0)
			return NULL;
	}
}

MEMWAIT_TEST(R22_several_readers_share_the_completions)
{
	static unsigned char seen[3000];
	struct sharer readers[4];
	int fd = memwait_open(0), i;
	long sum = 0;

	memset(seen, 0, sizeof(seen));
	for (i = 0; i < 4; i++) {
		readers[i] = (struct sharer) { .fd = fd, .seen = seen };
		ASSERT_EQ(0, pthread_create(&readers[i].thread, NULL, read_many, &readers[i]));
	}
	for (i = 0; i < 3000; i++) {
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->word, i));
		if (i % 5 == 4)
			ASSERT_EQ(5, mw_notify(fd, self->word, MEMWAIT_ALL, U32));
	}
	/* Each completion ends one reader. */
	for (i = 0; i < 4; i++) {
		struct memwait_info info;

		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->word, ~0ULL));
		ASSERT_EQ(1, mw_notify(fd, self->word, 1, U32));
		do {
			mw_info(fd, &info);
			sched_yield();
		} while (info.user_waits != self->user_waits);
	}
	for (i = 0; i < 4; i++) {
		pthread_join(readers[i].thread, NULL);
		sum += readers[i].n;
	}
	EXPECT_EQ(3000, sum);
	for (i = 0; i < 3000; i++)
		EXPECT_EQ(1, seen[i]);
	close(fd);
}

/* Waits until the thread has left its CPU and the kernel has counted the context switch. */
static void await_switched_out(pid_t tid)
{
	char path[64], line[16];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/syscall", tid);
	do {
		sched_yield();
		fd = open(path, O_RDONLY);
		n = fd < 0 ? 0 : read(fd, line, sizeof(line));
		close(fd);
	} while (n > 0 && line[0] == 'r');	/* "running" */
}

static long switches(pid_t tid)
{
	char path[64], line[128];
	long n = -1;
	FILE *f;

	await_switched_out(tid);
	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
			break;
	if (f)
		fclose(f);
	return n;
}

#define READERS	32

static int readers_done(struct reader *readers)
{
	int i, n = 0;

	for (i = 0; i < READERS; i++)
		n += runner_is_done(&readers[i].runner);
	return n;
}

/*
 * A completion must wake one reader; otherwise the cost of a notify would grow with the number of
 * readers.
 */
MEMWAIT_TEST(R22_a_completion_wakes_one_reader)
{
	static struct reader readers[READERS];
	int fd = memwait_open(0), i;
	long before[READERS];

	for (i = 0; i < READERS; i++)
		reader_start(&readers[i], fd);
	for (i = 0; i < READERS; i++) {
		before[i] = switches(readers[i].runner.tid);
		ASSERT_LT(0, before[i]);
	}
	complete(_metadata, fd, self->word, 0, 1);
	spin_until(readers_done(readers));
	for (i = 0; i < READERS; i++)
		if (!runner_is_done(&readers[i].runner))
			EXPECT_EQ(before[i], switches(readers[i].runner.tid));
	EXPECT_EQ(1, readers_done(readers));

	/* One notify completes all waits. Each reader takes one completion. */
	complete(_metadata, fd, self->word, 1, READERS - 1);
	for (i = 0; i < READERS; i++)
		EXPECT_EQ(1, runner_join(&readers[i].runner));
	EXPECT_FALSE(mw_readable(fd));
	close(fd);
}

/* If a woken reader does not read, because of a signal, it wakes another reader. */
MEMWAIT_TEST(R22_an_interrupted_reader_takes_no_wake_up_with_it)
{
	const struct sigaction action = { .sa_handler = nothing };
	struct reader readers[3];
	int fd = memwait_open(0), round, i, got, interrupted;

	sigaction(SIGUSR1, &action, NULL);
	for (round = 0; round < LOAD(300, 60); round++) {
		for (i = 0; i < 3; i++)
			reader_start(&readers[i], fd);
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->word, round));
		if (round % 2)
			pthread_kill(readers[0].runner.thread, SIGUSR1);
		ASSERT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		if (round % 2 == 0)
			pthread_kill(readers[0].runner.thread, SIGUSR1);
		/*
		 * The reader has returned with or without the completion. If it has no completion,
		 * another reader gets the completion.
		 */
		got = runner_join(&readers[0].runner) == 1;
		interrupted = readers[0].runner.result == -EINTR;
		ASSERT_EQ(1, got + interrupted);
		while (!got)
			for (i = 1; i < 3; i++)
				got += runner_is_done(&readers[i].runner);
		ASSERT_EQ(1, got);
		complete(_metadata, fd, self->word, 0, interrupted ? 1 : 2);
		for (i = 1; i < 3; i++)
			ASSERT_EQ(1, runner_join(&readers[i].runner));
	}
	close(fd);
}

/* As above, for a reader that a deadline has woken. */
MEMWAIT_TEST(R22_an_interrupted_reader_takes_no_deadline_with_it)
{
	const struct sigaction action = { .sa_handler = nothing };
	struct reader readers[2];
	int fd = memwait_open(0), round, i, got, interrupted;

	sigaction(SIGUSR1, &action, NULL);
	for (round = 0; round < LOAD(300, 60); round++) {
		for (i = 0; i < 2; i++)
			reader_start(&readers[i], fd);
		ASSERT_EQ(MEMWAIT_PENDING, async_soon(fd, self->word, 1, round, NULL));
		spin_until(round % 2 || mw_readable(fd) || runner_is_done(&readers[0].runner));
		pthread_kill(readers[0].runner.thread, SIGUSR1);
		got = runner_join(&readers[0].runner) == 1;
		interrupted = readers[0].runner.result == -EINTR;
		ASSERT_EQ(1, got + interrupted);
		if (got)
			complete(_metadata, fd, self->word, 0, 1);
		ASSERT_EQ(1, runner_join(&readers[1].runner));
	}
	close(fd);
}

/*
 * A timer wakes one reader for all expired deadlines. A reader that has read wakes the next reader.
 */
MEMWAIT_TEST(R22_deadlines_that_expire_together_wake_one_reader_each)
{
	struct reader readers[3];
	int fd = memwait_open(0), pending = 0, i;
	uint64_t deadline;

	for (i = 0; i < 3; i++)
		reader_start(&readers[i], fd);
	deadline = in_ms(50);
	for (i = 0; i < 3; i++)
		pending += mw_async(fd, self->word, 0, deadline, U32, i, NULL) == MEMWAIT_PENDING;
	/* On a busy machine the deadline may pass while the waits are armed. */
	if (pending < 3)
		complete(_metadata, fd, self->shared, 0, 3 - pending);
	for (i = 0; i < 3; i++)
		EXPECT_EQ(1, runner_join(&readers[i].runner));
	EXPECT_FALSE(mw_readable(fd));
	close(fd);
}

struct busy_poller {
	pthread_t thread;
	int fd, stop;
};

static void *poll_forever(void *arg)
{
	struct busy_poller *l = arg;

	while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE))
		mw_readable(l->fd);
	return NULL;
}

MEMWAIT_TEST(R22_a_poller_takes_no_deadline_from_a_reader)
{
	struct busy_poller busy_pollers[3];
	int fd = memwait_open(0), i;
	struct reader reader;

	for (i = 0; i < 3; i++) {
		busy_pollers[i] = (struct busy_poller) { .fd = fd };
		ASSERT_EQ(0, pthread_create(&busy_pollers[i].thread, NULL, poll_forever,
					    &busy_pollers[i]));
	}
	for (i = 0; i < 200; i++) {
		reader_start(&reader, fd);
		ASSERT_EQ(MEMWAIT_PENDING, async_soon(fd, self->word, 1, i, NULL));
		ASSERT_EQ(1, runner_join(&reader.runner));
		ASSERT_EQ(MEMWAIT_TIMED_OUT, reader.done.result);
	}
	for (i = 0; i < 3; i++) {
		__atomic_store_n(&busy_pollers[i].stop, 1, __ATOMIC_RELEASE);
		pthread_join(busy_pollers[i].thread, NULL);
	}
	close(fd);
}

MEMWAIT_TEST(R21_reads_no_more_than_there_is)
{
	struct memwait_completion done;
	volatile size_t size = 1UL << 30;	/* volatile hides the size from compiler warnings */

	/* The buffer has room for one record, and one record is available. */
	complete(_metadata, self->fd, self->word, 7, 1);
	EXPECT_EQ(RECORD, read(self->fd, &done, size));
	EXPECT_EQ(7, done.user_data);
	EXPECT_EQ(-1, read(self->fd, &done, size));
	EXPECT_EQ(EAGAIN, errno);
}

MEMWAIT_TEST(R21_o_nonblock_can_be_changed)
{
	struct memwait_completion done;
	int fd = memwait_open(0);

	EXPECT_EQ(0, fcntl(fd, F_SETFL, O_NONBLOCK));
	EXPECT_EQ(-EAGAIN, mw_read(fd, &done, 1));
	close(fd);
}

MEMWAIT_TEST(R21_a_blocked_reader_outlives_its_descriptor)
{
	int fd = memwait_open(0);
	struct reader r;

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->word, 5));
	reader_start(&r, fd);
	close(fd);
	/* The read is still in progress, so this close was not the last. */
	EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(1, runner_join(&r.runner));
	EXPECT_EQ(5, r.done.user_data);
}

MEMWAIT_TEST(R21_a_killed_reader_consumes_nothing)
{
	struct memwait_completion done;
	int fd = memwait_open(0);
	pid_t pid;

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->word, 5));
	pid = fork_child();
	if (!pid) {
		raise(SIGSTOP);
		_exit(mw_read(fd, &done, 1));
	}
	ASSERT_EQ(pid, waitpid(pid, NULL, WUNTRACED));
	kill(pid, SIGCONT);
	await_asleep(pid);
	EXPECT_EQ(128 + SIGKILL, kill_child(pid));
	EXPECT_EQ(1, mw_notify(fd, self->word, 1, U32));
	EXPECT_COMPLETION(fd, 5, MEMWAIT_OK);
	close(fd);
}

/*
 * The first records were copied long before the process is killed in a page fault on the rest of
 * the buffer. Until the call returns, these records count as unread.
 */
MEMWAIT_TEST(R25_a_reader_killed_in_a_later_fault_consumes_nothing)
{
	struct memwait_completion done[64];
	char *pages = private_page(2 * self->page);
	int uffd = hold_page(pages + self->page, self->page), epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	uint32_t *faults = self->shared + 1;
	struct reader r;
	pid_t pid;
	int i;

	if (uffd < 0)
		SKIP(return, "userfaultfd: %s", strerror(-uffd));
	close(uffd);
	complete(_metadata, self->fd, self->shared, 0, 64);
	pid = fork_child();
	if (!pid) {
		uffd = hold_page(pages + self->page, self->page);
		/* 40 of 64 records fit before the second page. */
		reader_start_into(&r, self->fd, (void *)(pages + self->page - 40 * RECORD), 64);
		await_fault(uffd);
		__atomic_store_n(faults, 1, __ATOMIC_RELEASE);
		for (;;)
			pause();
	}
	sleep_until(__atomic_load_n(faults, __ATOMIC_ACQUIRE));
	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event));
	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 0));
	EXPECT_EQ(0, epoll_wait(epoll, &event, 1, 0));
	EXPECT_EQ(128 + SIGKILL, kill_child(pid));
	/* Other readers find these records unread. */
	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 0));
	EXPECT_TRUE(mw_readable(self->fd));
	EXPECT_EQ(64, mw_read(self->fd, done, 64));
	for (i = 0; i < 64; i++)
		EXPECT_EQ(i, done[i].user_data);
	close(epoll);
	munmap(pages, 2 * self->page);
}

/*
 * If a notify is counted while a reader copies the completion, it produces a new edge when the
 * reader has finished.
 */
MEMWAIT_TEST(R22_R32_a_notify_during_a_read_gets_an_edge)
{
	struct memwait_completion done, *buffer = private_page(self->page);
	int uffd = hold_page(buffer, self->page), epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct reader slow;
	uint64_t id;

	if (uffd < 0)
		SKIP(return, "userfaultfd: %s", strerror(-uffd));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER,
					    U32 | MEMWAIT_PERSISTENT, 7, &id));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	reader_start_into(&slow, self->fd, buffer, 1);
	await_fault(uffd);
	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event));
	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 0));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(0, epoll_wait(epoll, &event, 1, 0));
	EXPECT_EQ(0, bring_page(uffd, buffer, self->page));
	EXPECT_EQ(1, runner_join(&slow.runner));
	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 0));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(7, done.user_data);
	EXPECT_EQ(1, done.count);
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	close(epoll);
	close(uffd);
	munmap(buffer, self->page);
}

struct poller {
	pthread_t thread;
	int fd, epoll;
	int polling, edges, refused, got;
};

/* Receives each edge and reads immediately. Preempts the thread that has woken it. */
static void *take_edges(void *arg)
{
	struct poller *p = arg;
	struct memwait_completion done;
	struct iovec buffer = { &done, sizeof(done) };
	struct epoll_event event;

	if (pin(10))
		p->refused = -1;
	__atomic_store_n(&p->polling, gettid(), __ATOMIC_RELEASE);
	while (!p->got && epoll_wait(p->epoll, &event, 1, -1) == 1) {
		p->edges++;
		if (preadv2(p->fd, &buffer, 1, -1, RWF_NOWAIT) > 0)
			p->got = 1;
		else
			p->refused++;
	}
	return NULL;
}

/*
 * If a reader makes a completion readable again, it has released its lock when it wakes other
 * readers.
 */
MEMWAIT_TEST(R28_a_poller_that_a_reader_wakes_can_read)
{
	struct memwait_completion *buffer = private_page(self->page);
	int uffd = hold_page(buffer, self->page);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct poller p = { .fd = self->fd, .epoll = epoll_create1(EPOLL_CLOEXEC) };
	struct reader slow;
	uint64_t id;

	if (uffd < 0)
		SKIP(return, "userfaultfd: %s", strerror(-uffd));
	if (pin(1) || pin(0))
		SKIP(return, "needs SCHED_FIFO");
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER,
					    U32 | MEMWAIT_PERSISTENT, 7, &id));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	reader_start_into(&slow, self->fd, buffer, 1);
	await_fault(uffd);
	ASSERT_EQ(0, epoll_ctl(p.epoll, EPOLL_CTL_ADD, self->fd, &event));
	EXPECT_EQ(1, epoll_wait(p.epoll, &event, 1, 0));
	ASSERT_EQ(0, pthread_create(&p.thread, NULL, take_edges, &p));
	sleep_until(__atomic_load_n(&p.polling, __ATOMIC_ACQUIRE));
	await_asleep(p.polling);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(0, bring_page(uffd, buffer, self->page));
	EXPECT_EQ(1, runner_join(&slow.runner));
	pthread_join(p.thread, NULL);
	EXPECT_EQ(0, p.refused);
	EXPECT_EQ(1, p.edges);
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	close(p.epoll);
	close(uffd);
	munmap(buffer, self->page);
}

struct many {
	int fd;
	struct memwait_notify *notifies;
};

static int notify_17(struct many *m)
{
	return mw_notify_many(m->fd, m->notifies, 17, NULL);
}

/*
 * One call ends two waits. In the meantime a reader takes the completion of the first wait: the
 * call is in a page fault on its last entry, and the reader in a page fault on its buffer. The
 * reader will return without the second completion, which must therefore produce a new edge.
 */
MEMWAIT_TEST(R22_a_completion_during_a_read_gets_an_edge)
{
	char *pages = private_page(2 * self->page), *second = pages + self->page;
	struct memwait_completion *buffer = private_page(self->page);
	struct many many = { self->fd, (struct memwait_notify *)second - 16 };
	int held = hold_page(second, self->page), uffd = hold_page(buffer, self->page), epoll;
	struct memwait_notify last = { (uintptr_t)(self->shared + 1), 1, U32 };
	struct uffdio_copy copy = { .dst = (uintptr_t)second, .len = self->page };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct memwait_completion done[2];
	struct runner notifier;
	struct reader slow;
	void *last_page;

	if (held < 0 || uffd < 0)
		SKIP(return, "userfaultfd: %s", strerror(held < 0 ? -held : -uffd));
	many.notifies[0] = (struct memwait_notify) { (uintptr_t)self->shared, 1, U32 };
	last_page = private_page(self->page);
	memcpy(last_page, &last, sizeof(last));
	copy.src = (uintptr_t)last_page;
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 0));
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared + 1, 1));
	epoll = epoll_create1(EPOLL_CLOEXEC);
	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event));

	runner_start(&notifier, notify_17, &many);
	await_fault(held);
	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 0));
	reader_start_into(&slow, self->fd, buffer, 16);
	await_fault(uffd);
	EXPECT_EQ(0, ioctl(held, UFFDIO_COPY, &copy));
	EXPECT_EQ(17, runner_join(&notifier));
	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, 0));
	EXPECT_EQ(0, bring_page(uffd, buffer, self->page));
	EXPECT_EQ(1, runner_join(&slow.runner));
	EXPECT_EQ(0, buffer[0].user_data);
	EXPECT_EQ(1, mw_read(self->fd, done, 2));
	EXPECT_EQ(1, done[0].user_data);
	close(epoll);
	close(held);
	close(uffd);
	munmap(pages, 2 * self->page);
	munmap(last_page, self->page);
	munmap(buffer, self->page);
}

/* A reader in a page fault on its buffer blocks only other reads. */
MEMWAIT_TEST(R21_a_reader_in_a_page_fault_blocks_no_other_calls)
{
	struct memwait_completion done, *buffer = private_page(self->page);
	int uffd = hold_page(buffer, self->page), fd = memwait_open(0), read;
	struct reader r;
	uint64_t id;

	if (uffd < 0)
		SKIP(return, "userfaultfd: %s", strerror(-uffd));
	complete(_metadata, fd, self->shared, 0, 3);
	reader_start_into(&r, fd, buffer, 64);
	await_fault(uffd);

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->word, 7));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(fd, self->word, 0, MEMWAIT_FOREVER, U32, 8, &id));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(0, mw_cancel(fd, id));
	EXPECT_TRUE(mw_readable(fd));
	EXPECT_EQ(-EAGAIN, read_nowait(fd, &done));

	EXPECT_EQ(0, bring_page(uffd, buffer, self->page));
	read = runner_join(&r.runner);
	/* The fourth completion came in the meantime, possibly too late for this read. */
	if (read == 3)
		read += mw_read(fd, buffer + 3, 1);
	EXPECT_EQ(4, read);
	EXPECT_EQ(0, buffer[0].user_data);
	EXPECT_EQ(2, buffer[2].user_data);
	EXPECT_EQ(7, buffer[3].user_data);
	close(fd);
	close(uffd);
}

/* A reader in a page fault on its buffer, and a second reader that must not block. */
MEMWAIT_TEST(R21_a_nonblocking_read_does_not_wait_for_a_reader_in_a_page_fault)
{
	struct memwait_completion done[4], *buffer = private_page(self->page);
	int uffd = hold_page(buffer, self->page), i;
	struct reader slow, quick;

	if (uffd < 0)
		SKIP(return, "userfaultfd: %s", strerror(-uffd));
	for (i = 0; i < 3; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, i));
	ASSERT_EQ(3, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	reader_start_into(&slow, self->fd, buffer, 4);
	await_fault(uffd);

	reader_start_into(&quick, self->fd, done, 4);
	EXPECT_TRUE(await_flag(&quick.runner.done, 60));
	EXPECT_FALSE(runner_is_done(&slow.runner));
	EXPECT_EQ(0, bring_page(uffd, buffer, self->page));
	EXPECT_EQ(3, runner_join(&slow.runner));
	EXPECT_EQ(-EAGAIN, runner_join(&quick.runner));
	close(uffd);
	munmap(buffer, self->page);
}

/*
 * A loop that polls for edges has received the edge of completions that it could not read, because
 * another reader was in a page fault. The loop must receive another edge.
 */
MEMWAIT_TEST(R22_a_refused_reader_gets_an_edge)
{
	struct memwait_completion done, *buffer = private_page(self->page);
	int uffd = hold_page(buffer, self->page), epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct reader slow;

	if (uffd < 0)
		SKIP(return, "userfaultfd: %s", strerror(-uffd));
	complete(_metadata, self->fd, self->shared, 0, 1);
	reader_start_into(&slow, self->fd, buffer, 1);
	await_fault(uffd);

	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event));
	complete(_metadata, self->fd, self->shared, 1, 1);
	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, poll_patience(10)));
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, &done, 1));
	EXPECT_EQ(0, epoll_wait(epoll, &event, 1, 0));
	EXPECT_EQ(0, bring_page(uffd, buffer, self->page));
	EXPECT_EQ(1, runner_join(&slow.runner));
	EXPECT_EQ(1, epoll_wait(epoll, &event, 1, poll_patience(10)));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	close(epoll);
	close(uffd);
	munmap(buffer, self->page);
}

struct notifier {
	pthread_t thread;
	int fd;
	uint32_t *words;
	int turns;
};

static void *notify_in_turn(void *arg)
{
	struct notifier *n = arg;
	int i;

	for (i = 0; i < n->turns; i++)
		mw_notify(n->fd, n->words + i % 8, 3, U32);
	return NULL;
}

/*
 * Concurrent completions of two threads have one order. In this order, the waits of each word keep
 * their own order.
 */
MEMWAIT_TEST(R20_completions_of_a_word_keep_their_order)
{
	static struct memwait_completion done[8 * 300];
	int last[8] = { 0 }, i, n, word, seen = 0;
	struct notifier notifiers[2];

	for (i = 0; i < 8 * 300; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word + i % 8, i));
	for (i = 0; i < 2; i++) {
		notifiers[i] = (struct notifier) { .fd = self->fd, .words = self->word,
						   .turns = 8 * 50 };
		ASSERT_EQ(0, pthread_create(&notifiers[i].thread, NULL, notify_in_turn,
					    &notifiers[i]));
	}
	while (seen < 8 * 300) {
		n = mw_read(self->fd, done + seen, 5);
		ASSERT_TRUE(n > 0 || n == -EAGAIN);
		seen += n > 0 ? n : 0;
	}
	for (i = 0; i < 2; i++)
		pthread_join(notifiers[i].thread, NULL);
	for (i = 0; i < 8 * 300; i++) {
		word = done[i].user_data % 8;
		ASSERT_EQ(word + 8 * last[word]++, done[i].user_data);
	}
}

/* A real-time reader on the notifier's CPU. */
struct prompt_reader {
	pthread_t thread;
	pid_t tid;
	int fd, n, got, error;
};

static void *read_promptly(void *arg)
{
	struct memwait_completion done[4];
	struct prompt_reader *r = arg;
	int ret;

	r->error = pin(20);
	__atomic_store_n(&r->tid, gettid(), __ATOMIC_RELEASE);
	while (!r->error && r->got < r->n) {
		ret = mw_read(r->fd, done, 4);
		if (ret < 0)
			r->error = ret;
		else
			__atomic_add_fetch(&r->got, ret, __ATOMIC_ACQ_REL);
	}
	return NULL;
}

#define STEPS		10
#define IN_A_STEP	64

/*
 * A notify of many waits wakes a context only once until the context is read. If the context was
 * read between two steps, the notify wakes it again.
 */
MEMWAIT_TEST(R21_a_reader_that_is_faster_than_a_notify_gets_everything)
{
	struct prompt_reader r = { .fd = memwait_open(0), .n = STEPS };
	uint64_t end;
	int i;

	if (geteuid())
		SKIP(return, "needs root for real-time threads");
	for (i = 0; i < STEPS * IN_A_STEP; i++) {
		int fd = i % IN_A_STEP ? self->fd : r.fd;

		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, self->shared, i));
	}
	ASSERT_EQ(0, pthread_create(&r.thread, NULL, read_promptly, &r));
	spin_until(__atomic_load_n(&r.tid, __ATOMIC_ACQUIRE));
	ASSERT_EQ(0, r.error);
	await_asleep(r.tid);
	ASSERT_EQ(0, pin(0));
	EXPECT_EQ(STEPS * IN_A_STEP, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	/* The reader runs before the notifier, unless the kernel throttles real-time threads. */
	end = patience(60);
	sleep_until(__atomic_load_n(&r.got, __ATOMIC_ACQUIRE) >= STEPS ||
		    now_ns(CLOCK_MONOTONIC) >= end);
	EXPECT_EQ(STEPS, r.got);
	/* Further completions end the read if the reader is still asleep. */
	if (r.got < STEPS)
		complete(_metadata, r.fd, self->word, 0, STEPS);
	pthread_join(r.thread, NULL);
	EXPECT_EQ(0, r.error);
	close(r.fd);
}

TEST_HARNESS_MAIN
