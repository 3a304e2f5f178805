// SPDX-License-Identifier: GPL-2.0
/*
 * A bound context ends with its process, or when the process has closed it, even while another
 * process has a copy of the descriptor.
 */
#include "async_test.h"
#include <sys/epoll.h>

#define FOREVER	MEMWAIT_FOREVER
#define BIND	(MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND)

/* Flags by which two processes synchronise, and the words of their waits. */
struct shared {
	uint32_t pending, completed;
	uint64_t owned;
	uint64_t id, cancelled;
	int ready, go;
	int result;
};

static void set_flag(int *flag)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static void await(const int *flag)
{
	sleep_until(__atomic_load_n(flag, __ATOMIC_ACQUIRE));
}

/* How the process that has bound the context ends. CLOSES_IT: the process closes the context. */
enum { EXITS, IS_KILLED, EXECUTES, THREAD_EXECUTES, LAST_THREAD_EXITS, CLOSES_IT, ENDS };

static void *execute(void *arg)
{
	await(arg);
	execl("/bin/busybox", "sleep", "1000", NULL);
	execlp("sleep", "sleep", "1000", NULL);
	return NULL;
}

static void *outlive(void *arg)
{
	await(arg);
	usleep(1000);
	return NULL;
}

static void end_as(int how, int fd, int *go)
{
	pthread_t thread;

	switch (how) {
	case IS_KILLED:
		pause();
		break;
	case EXECUTES:
		execute(go);
		break;
	case THREAD_EXECUTES:
		pthread_create(&thread, NULL, execute, go);
		pause();
		break;
	case LAST_THREAD_EXITS:
		pthread_create(&thread, NULL, outlive, go);
		pthread_exit(NULL);
		break;
	case CLOSES_IT:
		await(go);
		close(fd);
		pause();
		break;
	}
	await(go);
}

/*
 * Forks a child that binds @fd and arms waits in that context: two pending waits, one of them with
 * a deadline, a wait that has been notified, and a wait for the death of the context itself.
 */
static pid_t start_maker(struct shared *shared, int fd, int how)
{
	pid_t pid;

	memset(shared, 0, sizeof(*shared));
	pid = fork();
	if (pid)
		return pid;
	shared->result = mw_owner(fd, BIND, &shared->id);
	shared->owned = shared->id;
	shared->result |= mw_async(fd, &shared->pending, 0, FOREVER, U32, 1, &shared->cancelled) !=
			  MEMWAIT_PENDING;
	shared->result |= mw_async(fd, &shared->pending, 0, in_ms(3600000), U32, 2, NULL) !=
			  MEMWAIT_PENDING;
	shared->result |= mw_arm(fd, &shared->completed, 3) != MEMWAIT_PENDING;
	shared->result |= mw_async(fd, &shared->owned, shared->id, FOREVER,
				   MEMWAIT_SIZE_U64 | MEMWAIT_OWNED, 4, NULL) != MEMWAIT_PENDING;
	shared->result |= mw_notify(fd, &shared->completed, 1, U32) != 1;
	set_flag(&shared->ready);
	end_as(how, fd, &shared->go);
	_exit(0);
}

/* Another process can query the context and its id, but can neither arm, cancel nor read. */
static void expect_refused(struct __test_metadata *_metadata, int fd, struct shared *shared)
{
	struct memwait_completion done[4];
	uint64_t id = 0;

	EXPECT_EQ(-EPERM, mw_arm(fd, &shared->pending, 9));
	EXPECT_EQ(-EPERM, mw_cancel(fd, shared->cancelled));
	EXPECT_EQ(-EPERM, mw_read(fd, done, 4));
	EXPECT_EQ(-EPERM, mw_owner(fd, BIND, NULL));
	EXPECT_EQ(0, mw_owner(fd, MEMWAIT_OWNER_CONTEXT, &id));
	EXPECT_EQ(shared->id, id);
	/* Calls that need no state of the context still succeed. */
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait(fd, &shared->pending, 1, FOREVER, U32));
	EXPECT_EQ(0, mw_notify(fd, &shared->id, 1, U32));
}

static void await_counts_gone(int fd)
{
	sleep_until(!mw_fdinfo(fd, "pending") && !mw_fdinfo(fd, "completed"));
}

MEMWAIT_TEST(L10_a_bound_context_ends_with_its_process)
{
	struct shared *shared = (void *)self->shared;
	struct epoll_event event = { .events = EPOLLET }, events[2];
	struct memwait_completion done[4];
	int how, fd, epoll;
	pid_t pid;

	for (how = 0; how < ENDS; how++) {
		TH_LOG("how it ends: %d", how);
		fd = open_device(O_NONBLOCK);
		pid = start_maker(shared, fd, how);
		ASSERT_LT(0, pid);
		await(&shared->ready);
		ASSERT_EQ(0, shared->result);
		epoll = epoll_create1(EPOLL_CLOEXEC);
		ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
		EXPECT_EQ(0, epoll_wait(epoll, events, 2, 0));
		EXPECT_TRUE(mw_readable(fd));
		EXPECT_EQ(3, mw_fdinfo(fd, "pending"));
		EXPECT_EQ(1, mw_fdinfo(fd, "completed"));
		expect_refused(_metadata, fd, shared);

		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &shared->pending, 5));
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &shared->completed, 6));
		EXPECT_EQ(3, mw_waiters(self->fd, &shared->pending, U32));
		if (how == IS_KILLED)
			kill(pid, SIGKILL);
		set_flag(&shared->go);

		EXPECT_EQ(1, epoll_wait(epoll, events, 2, -1));
		EXPECT_EQ(EPOLLERR | EPOLLHUP, events[0].events);
		await_counts_gone(fd);
		/*
		 * The unread notify was passed to the next waiter, and no other waiter was woken.
		 */
		sleep_until(mw_readable(self->fd));
		EXPECT_EQ(1, mw_read(self->fd, done, 4));
		EXPECT_EQ(6, done[0].user_data);
		EXPECT_EQ(MEMWAIT_OK, done[0].result);
		EXPECT_EQ(1, mw_waiters(self->fd, &shared->pending, U32));
		EXPECT_EQ(0, mw_waiters(self->fd, &shared->owned, MEMWAIT_SIZE_U64));
		EXPECT_EQ(1, mw_notify(self->fd, &shared->pending, MEMWAIT_ALL, U32));
		EXPECT_EQ(1, mw_read(self->fd, done, 4));
		EXPECT_EQ(5, done[0].user_data);
		expect_refused(_metadata, fd, shared);
		kill_child(pid);
		close(epoll);
		close(fd);
	}
}

#define POLLERS	200

/* A poller may return twice: the context may have ended before the poller was woken. */
MEMWAIT_TEST(L10_all_pollers_are_woken_by_the_end)
{
	struct epoll_event event = { .events = EPOLLET }, events[POLLERS];
	struct shared *shared = (void *)self->shared;
	uint64_t end = patience(20);
	bool told[POLLERS];
	int fds[POLLERS], how, epoll, i, n, sum;
	pid_t pid;

	for (how = EXITS; how <= CLOSES_IT; how += CLOSES_IT - EXITS) {
		fds[0] = open_device(O_NONBLOCK);
		pid = start_maker(shared, fds[0], how);
		ASSERT_LT(0, pid);
		await(&shared->ready);
		ASSERT_EQ(0, shared->result);
		epoll = epoll_create1(EPOLL_CLOEXEC);
		for (i = 0; i < POLLERS; i++) {
			if (i)
				fds[i] = dup(fds[0]);
			event.data.u32 = i;
			ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event));
			told[i] = false;
		}
		EXPECT_EQ(0, epoll_wait(epoll, events, POLLERS, 0));
		set_flag(&shared->go);
		for (sum = 0; sum < POLLERS && now_ns(CLOCK_MONOTONIC) < end; ) {
			n = epoll_wait(epoll, events, POLLERS, 1000);
			for (i = 0; i < n; i++) {
				EXPECT_EQ(EPOLLERR | EPOLLHUP, events[i].events);
				sum += !told[events[i].data.u32];
				told[events[i].data.u32] = true;
			}
		}
		EXPECT_EQ(POLLERS, sum);
		kill_child(pid);
		close(epoll);
		for (i = 0; i < POLLERS; i++)
			close(fds[i]);
	}
}

MEMWAIT_TEST(L10_waits_have_ended_after_waitpid)
{
	static const int ways[] = { EXITS, IS_KILLED, LAST_THREAD_EXITS };
	struct shared *shared = (void *)self->shared;
	int round, fd;
	pid_t pid;

	for (round = 0; round < LOAD(100, 15); round++) {
		fd = open_device(O_NONBLOCK);
		pid = start_maker(shared, fd, ways[round % ARRAY_SIZE(ways)]);
		ASSERT_LT(0, pid);
		await(&shared->ready);
		ASSERT_EQ(0, shared->result);
		if (ways[round % ARRAY_SIZE(ways)] == IS_KILLED)
			kill(pid, SIGKILL);
		set_flag(&shared->go);
		ASSERT_LE(0, child_status(pid));
		ASSERT_EQ(0, mw_fdinfo(fd, "pending"));
		ASSERT_EQ(0, mw_fdinfo(fd, "completed"));
		ASSERT_EQ(0, mw_waiters(self->fd, &shared->pending, U32));
		close(fd);
	}
}

/*
 * The id of the context dies with the process: a waiter that named it as the owner gets OWNER_DIED.
 */
MEMWAIT_TEST(L10_the_id_of_a_bound_context_dies_with_its_process)
{
	struct shared *shared = (void *)self->shared;
	int fd = memwait_open(O_NONBLOCK);
	pid_t pid = start_maker(shared, fd, IS_KILLED);
	uint64_t word;

	ASSERT_LT(0, pid);
	await(&shared->ready);
	ASSERT_EQ(0, shared->result);
	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	ASSERT_EQ(0, mw_owner(self->fd, 0, NULL));
	word = shared->id;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, &word, word, 0,
					     MEMWAIT_SIZE_U64 | MEMWAIT_OWNED));
	kill(pid, SIGKILL);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &word, word, FOREVER,
					      MEMWAIT_SIZE_U64 | MEMWAIT_OWNED));
	ASSERT_LE(0, child_status(pid));
	close(fd);
}

static void *return_at_once(void *arg)
{
	*(pid_t *)arg = gettid();
	return NULL;
}

struct by_vfork {
	int fd;
	struct shared *shared;
	int result;
};

static int use_by_vfork(void *arg)
{
	struct by_vfork *child = arg;

	child->result = mw_arm(child->fd, &child->shared->pending, 9);
	return 0;
}

/*
 * The context outlives the threads and children of its process, even children that share memory or
 * descriptors. It belongs only to its process, even if another process shares the descriptor table.
 */
MEMWAIT_TEST(L10_R35_a_bound_context_outlives_threads_and_children)
{
	static const int shares[] = {
		CLONE_VM | CLONE_VFORK, CLONE_VM | CLONE_FILES | CLONE_FS,
		CLONE_VM | CLONE_FILES | CLONE_SIGHAND,
	};
	struct shared *shared = (void *)self->shared;
	struct memwait_completion done[2];
	char *stack = private_page(16 * self->page);
	struct by_vfork child = { .shared = shared };
	pthread_t thread;
	pid_t pid, tid;
	size_t i;

	child.fd = memwait_open(O_NONBLOCK);
	ASSERT_EQ(0, mw_owner(child.fd, BIND, NULL));
	EXPECT_EQ(0, mw_owner(child.fd, BIND, NULL));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(child.fd, &shared->pending, 1));
	for (i = 0; i < ARRAY_SIZE(shares); i++) {
		child.result = 0;
		pid = clone(use_by_vfork, stack + 16 * self->page, shares[i] | SIGCHLD, &child);
		ASSERT_LT(0, pid);
		ASSERT_EQ(0, child_status(pid));
		EXPECT_EQ(-EPERM, child.result);
	}
	pid = fork();
	if (!pid)
		_exit(0);
	ASSERT_EQ(0, child_status(pid));
	pid = vfork();
	if (!pid) {
		execl("/bin/busybox", "true", NULL);
		execlp("true", "true", NULL);
		_exit(1);
	}
	ASSERT_EQ(0, child_status(pid));
	ASSERT_EQ(0, pthread_create(&thread, NULL, return_at_once, &tid));
	pthread_join(thread, NULL);
	/* The kernel reports the end of the thread a little later. */
	sleep_until(!thread_state(tid));
	EXPECT_EQ(1, mw_waiters(self->fd, &shared->pending, U32));
	EXPECT_EQ(1, mw_notify(self->fd, &shared->pending, 1, U32));
	EXPECT_EQ(1, mw_read(child.fd, done, 2));
	EXPECT_EQ(1, done[0].user_data);
	close(child.fd);
}

MEMWAIT_TEST(L10_a_bound_context_ends_with_the_last_descriptor_of_its_process)
{
	struct shared *shared = (void *)self->shared;
	int fd = memwait_open(O_NONBLOCK), fds[40], other[2], i;
	uint64_t seed = 1;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, other));
	ASSERT_EQ(0, mw_owner(fd, BIND, NULL));
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fd, &shared->pending, 1));
	for (i = 0; i < (int)ARRAY_SIZE(fds); i++) {
		fds[i] = i % 2 ? dup(fd) : fcntl(fd, F_DUPFD_CLOEXEC, 500 + 3 * i);
		ASSERT_LE(0, fds[i]);
	}
	pid = fork_child();
	if (!pid) {
		/* In this child, close() must have no effect on the context. */
		close(fd);
		for (i = 0; i < (int)ARRAY_SIZE(fds) - 1; i++)
			close(fds[i]);
		set_flag(&shared->ready);
		pause();
	}
	await(&shared->ready);
	close(fd);
	for (i = ARRAY_SIZE(fds); i > 1; i--) {
		int last = next_random(&seed) % i;

		if (i % 3 == 0)
			ASSERT_EQ(fds[last], dup2(other[0], fds[last]));
		ASSERT_EQ(0, i % 3 == 1 ? syscall(SYS_close_range, fds[last], fds[last], 0) :
					  close(fds[last]));
		fds[last] = fds[i - 1];
		ASSERT_EQ(1, mw_waiters(self->fd, &shared->pending, U32));
	}
	EXPECT_EQ(1, mw_fdinfo(fds[0], "pending"));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(fds[0], &shared->pending, 2));
	EXPECT_EQ(fds[0], dup2(other[0], fds[0]));
	EXPECT_EQ(0, mw_waiters(self->fd, &shared->pending, U32));
	kill_child(pid);
	close(fds[0]);
	close(other[0]);
	close(other[1]);
}

/* A descriptor without close-on-exec passes the context to the new program. */
MEMWAIT_TEST(L10_exec_passes_a_bound_context_to_the_new_program)
{
	struct shared *shared = (void *)self->shared;
	int fd = memwait_open(O_NONBLOCK), out[2];
	pid_t pid;
	char byte;

	ASSERT_EQ(0, pipe(out));
	pid = fork_child();
	if (!pid) {
		if (mw_owner(fd, BIND, NULL) || fcntl(fd, F_SETFD, 0) ||
		    mw_arm(fd, &shared->pending, 1) != MEMWAIT_PENDING)
			_exit(1);
		dup2(out[1], 1);
		execl("/bin/busybox", "sh", "-c", "echo; exec sleep 1000", NULL);
		execlp("sh", "sh", "-c", "echo; exec sleep 1000", NULL);
		_exit(1);
	}
	ASSERT_EQ(1, read(out[0], &byte, 1));
	EXPECT_EQ(1, mw_fdinfo(fd, "pending"));
	EXPECT_EQ(1, mw_waiters(self->fd, &shared->pending, U32));
	kill_child(pid);
	EXPECT_EQ(0, mw_waiters(self->fd, &shared->pending, U32));
	EXPECT_EQ(0, mw_fdinfo(fd, "pending"));
	close(fd);
	close(out[0]);
	close(out[1]);
}

/*
 * As with other files, a call in progress completes even if another thread has closed the
 * descriptor.
 */
MEMWAIT_TEST(L10_a_bound_context_ends_after_a_call_in_progress)
{
	struct shared *shared = (void *)self->shared;
	struct reader reader = { .fd = memwait_open(0) };
	struct pollfd pfd = { .fd = reader.fd };
	int copies[2];
	pid_t pid;

	ASSERT_EQ(0, pipe(copies));
	pid = fork_child();
	if (!pid) {
		/* This child holds a copy until the other end of the socket pair is closed. */
		close(copies[1]);
		_exit(read(copies[0], &(char){ 0 }, 1) || poll(&pfd, 1, 0) != 1 ||
		      pfd.revents != (POLLERR | POLLHUP) ||
		      mw_read(reader.fd, &reader.done, 1) != -EPERM);
	}
	ASSERT_EQ(0, mw_owner(reader.fd, BIND, NULL));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(reader.fd, &shared->pending, 1));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(reader.fd, &shared->completed, 2));
	reader_start(&reader, reader.fd);
	close(reader.fd);
	EXPECT_EQ(1, mw_waiters(self->fd, &shared->pending, U32));
	EXPECT_EQ(1, mw_notify(self->fd, &shared->completed, 1, U32));
	EXPECT_EQ(1, runner_join(&reader.runner));
	EXPECT_EQ(2, reader.done.user_data);
	EXPECT_EQ(0, mw_waiters(self->fd, &shared->pending, U32));
	close(copies[1]);
	EXPECT_EQ(0, child_status(pid));
	close(copies[0]);
}

#define RACES	SOME_OF(300)

struct caller {
	struct runner runner;
	int fd;
	uint32_t *word;
};

ADAPTER(arm_one, struct caller *caller, mw_arm(caller->fd, caller->word, 1))
ADAPTER(bind_one, struct caller *caller, mw_owner(caller->fd, BIND, NULL))

/*
 * A close races with a bind or with arming. In either order, nothing is armed or bound afterwards.
 */
MEMWAIT_TEST(L10_a_bound_context_is_closed_while_it_is_bound_or_armed)
{
	struct shared *shared = (void *)self->shared;
	uint64_t before = mw_user_owners(self->fd);
	int round, copies[2], times = 0;
	pid_t pid;

	for (round = 0; round < RACES; round++) {
		struct caller caller = { .word = &shared->pending };

		caller.fd = open_device(O_NONBLOCK);
		ASSERT_EQ(0, pipe(copies));
		pid = fork_child();
		if (!pid) {
			close(copies[1]);
			_exit(read(copies[0], &(char){ 0 }, 1));
		}
		if (round % 2)
			ASSERT_EQ(0, mw_owner(caller.fd, BIND, NULL));
		runner_start(&caller.runner, round % 2 ? arm_one : bind_one, &caller);
		usleep(next_random(&(uint64_t){ round + 1 }) % 100);
		close(caller.fd);
		times += runner_join(&caller.runner) == (round % 2 ? MEMWAIT_PENDING : 0);
		EXPECT_EQ(0, mw_waiters(self->fd, &shared->pending, U32));
		sleep_until(mw_user_owners(self->fd) <= before);
		close(copies[0]);
		close(copies[1]);
		EXPECT_EQ(0, child_status(pid));
	}
	TH_LOG("%d of %d calls came before the close", times, RACES);
}

/*
 * A context that was used cannot be bound, because another process may still be within such a call.
 */
MEMWAIT_TEST(L10_a_used_context_cannot_be_bound)
{
	struct memwait_completion done;
	int call, fd;

	for (call = 0; call < 4; call++) {
		fd = open_device(O_NONBLOCK);
		EXPECT_EQ(0, mw_notify(fd, self->shared, 1, U32));
		switch (call) {
		case 0:
			EXPECT_EQ(-EAGAIN, mw_read(fd, &done, 1));
			break;
		case 1:
			EXPECT_EQ(MEMWAIT_NOT_EQUAL,
				  mw_async(fd, self->shared, 1, FOREVER, U32, 1, NULL));
			break;
		case 2:
			EXPECT_EQ(-ENOENT, mw_cancel(fd, 1));
			break;
		case 3:
			EXPECT_EQ(0, mw_owner(fd, MEMWAIT_OWNER_CONTEXT, NULL));
			break;
		}
		EXPECT_EQ(-EBUSY, mw_owner(fd, BIND, NULL));
		EXPECT_EQ(-EAGAIN, mw_read(fd, &done, 1));
		close(fd);
	}
	EXPECT_EQ(-EINVAL, mw_owner(self->fd, MEMWAIT_OWNER_BIND, NULL));
	EXPECT_EQ(-EINVAL, mw_owner(self->fd, BIND | MEMWAIT_OWNER_EXIT, NULL));
	EXPECT_EQ(-EINVAL, mw_owner(self->fd, MEMWAIT_OWNER_EXIT | MEMWAIT_OWNER_BIND, NULL));
}

/* Each context has an id; the process itself needs no id. */
MEMWAIT_TEST(L10_bound_contexts_count_until_their_process_closes_them)
{
	uint64_t before = mw_user_owners(self->fd);
	int round, i, fds[3];

	for (round = 0; round < 3; round++) {
		for (i = 0; i < 3; i++) {
			fds[i] = memwait_open(O_NONBLOCK);
			ASSERT_EQ(0, mw_owner(fds[i], BIND, NULL));
			EXPECT_GE(before + 1 + i, mw_user_owners(self->fd));
		}
		for (i = 0; i < 3; i++)
			close(fds[i]);
		sleep_until(mw_user_owners(self->fd) <= before);
	}
}

/*
 * The reader reads fdinfo of a context while the context ends. It may be preempted anywhere, and
 * continue after everything has ended and the memory of the id has been freed.
 */
#define READS	LOAD(40, 8)

struct fdinfo_reader {
	int fd;			/* the context's file in fdinfo */
	int stop;
	long reads;
	int failed;
};

static void *read_fdinfo(void *arg)
{
	struct sched_param none = { 0 };
	struct fdinfo_reader *reader = arg;
	char text[512];

	reader->failed = bind_to(1) || sched_setscheduler(0, SCHED_IDLE, &none);
	while (!__atomic_load_n(&reader->stop, __ATOMIC_RELAXED)) {
		reader->failed |= pread(reader->fd, text, sizeof(text), 0) <= 0;
		add_one(&reader->reads);
	}
	return NULL;
}

struct preempter {
	int go, stop, failed;
};

/* Preempts every other task on that CPU, from @go until @stop is set. */
static void *preempt(void *arg)
{
	struct sched_param first = { .sched_priority = 10 };
	struct preempter *preempter = arg;

	preempter->failed = bind_to(1) || sched_setscheduler(0, SCHED_FIFO, &first);
	await(&preempter->go);
	while (!__atomic_load_n(&preempter->stop, __ATOMIC_ACQUIRE))
		;
	return NULL;
}

static void become_bound(int fd, struct shared *shared)
{
	shared->result = mw_owner(fd, BIND, NULL);
	set_flag(&shared->ready);
	while (1)
		pause();
}

MEMWAIT_TEST(L10_fdinfo_of_a_bound_context_is_read_while_it_ends)
{
	struct shared *shared = (void *)self->shared;
	uint64_t before = mw_user_owners(self->fd);
	pthread_t reading, driving;
	int round, fd;
	char path[64];
	pid_t pid;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || geteuid())
		SKIP(return, "needs root and two processors");
	ASSERT_EQ(0, bind_to(0));
	for (round = 0; round < READS; round++) {
		struct fdinfo_reader reader = { 0 };
		struct preempter preempter = { 0 };

		fd = open_device(O_NONBLOCK);
		memset(shared, 0, sizeof(*shared));
		pid = fork();
		if (!pid)
			become_bound(fd, shared);
		await(&shared->ready);
		ASSERT_EQ(0, shared->result);
		snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
		reader.fd = open(path, O_RDONLY);
		ASSERT_LE(0, reader.fd);
		ASSERT_EQ(0, pthread_create(&reading, NULL, read_fdinfo, &reader));
		ASSERT_EQ(0, pthread_create(&driving, NULL, preempt, &preempter));
		await_counted(&reader.reads);

		set_flag(&preempter.go);
		usleep(1000);
		kill_child(pid);
		sleep_until(mw_user_owners(self->fd) <= before);
		/* The kernel delays the freeing for seconds unless memory is scarce. */
		EXPECT_EQ(0, write_number("/proc/sys/vm/drop_caches", 2));
		usleep(200000);
		set_flag(&preempter.stop);
		set_flag(&reader.stop);
		pthread_join(driving, NULL);
		pthread_join(reading, NULL);
		EXPECT_EQ(0, reader.failed);
		EXPECT_EQ(0, preempter.failed);
		close(reader.fd);
		close(fd);
	}
}

#define WAITS	300

/*
 * The last close races with the end of the context, at any stage of the end. The process may be
 * killed while it closes its own copy.
 */
MEMWAIT_TEST(L10_a_bound_context_is_closed_while_it_ends)
{
	struct shared *shared = (void *)self->shared;
	int fd, round, i;
	pid_t pid;

	for (round = 0; round < SOME_OF(100); round++) {
		fd = open_device(O_NONBLOCK);
		memset(shared, 0, sizeof(*shared));
		pid = fork_child();
		if (!pid) {
			shared->result = mw_owner(fd, BIND, NULL);
			for (i = 0; i < 2 * WAITS; i++)
				mw_arm(fd, i % 2 ? &shared->completed : &shared->pending, i);
			mw_notify(fd, &shared->completed, MEMWAIT_ALL, U32);
			set_flag(&shared->ready);
			if (round % 2) {
				await(&shared->go);
				close(fd);
			}
			pause();
		}
		await(&shared->ready);
		ASSERT_EQ(0, shared->result);
		EXPECT_EQ(WAITS, mw_waiters(self->fd, &shared->pending, U32));
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &shared->completed, round));
		set_flag(&shared->go);
		usleep(next_random(&(uint64_t){ round + 2 }) % 1000);
		kill(pid, SIGKILL);
		usleep(next_random(&(uint64_t){ round + 1 }) % 3000);
		close(fd);
		ASSERT_LE(0, child_status(pid));
		sleep_until(!mw_waiters(self->fd, &shared->pending, U32));
		EXPECT_EQ(0, mw_waiters(self->fd, &shared->completed, U32));
		sleep_until(mw_readable(self->fd));
		EXPECT_EQ(1, mw_read(self->fd, &(struct memwait_completion){ 0 }, 1));
	}
}

#define THREADS	4
#define CONTEXTS	32

struct binders {
	int fds[THREADS][CONTEXTS];
	pthread_barrier_t start;
	int failed;
};

struct binder {
	struct binders *all;
	int number;
};

static void *bind_all(void *arg)
{
	struct binder *binder = arg;
	int i;

	pthread_barrier_wait(&binder->all->start);
	for (i = 0; i < CONTEXTS; i++) {
		/* This context may be both the first and the last that the process opens. */
		int fd = memwait_open(O_NONBLOCK);

		if (fd < 0 || mw_owner(fd, BIND, NULL))
			__atomic_store_n(&binder->all->failed, 1, __ATOMIC_RELAXED);
		close(fd);
		if (mw_owner(binder->all->fds[binder->number][i], BIND, NULL))
			__atomic_store_n(&binder->all->failed, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/*
 * Several threads bind contexts at the same time, and each may be the first thread of the process
 * to do so. All contexts must belong to this process.
 */
MEMWAIT_TEST(L10_threads_bind_at_the_same_time)
{
	struct binder binders[THREADS];
	struct binders all = { .failed = 0 };
	struct shared *shared = (void *)self->shared;
	pthread_t threads[THREADS];
	int round, i, j;
	pid_t pid;

	for (round = 0; round < 10; round++) {
		memset(shared, 0, sizeof(*shared));
		for (i = 0; i < THREADS * CONTEXTS; i++) {
			all.fds[i / CONTEXTS][i % CONTEXTS] = memwait_open(O_NONBLOCK);
			ASSERT_LE(0, all.fds[i / CONTEXTS][i % CONTEXTS]);
		}
		pid = fork_child();
		if (!pid) {
			pthread_barrier_init(&all.start, NULL, THREADS);
			for (i = 0; i < THREADS; i++) {
				binders[i] = (struct binder){ &all, i };
				pthread_create(&threads[i], NULL, bind_all, &binders[i]);
			}
			for (i = 0; i < THREADS; i++)
				pthread_join(threads[i], NULL);
			shared->result = all.failed;
			set_flag(&shared->ready);
			pause();
		}
		await(&shared->ready);
		EXPECT_EQ(0, shared->result);
		kill_child(pid);
		for (i = 0; i < THREADS; i++) {
			for (j = 0; j < CONTEXTS; j++) {
				struct pollfd pfd = { .fd = all.fds[i][j] };

				/*
				 * poll() does not wait: when waitpid(2) has returned, the process
				 * is dead.
				 */
				EXPECT_EQ(1, poll(&pfd, 1, 0));
				EXPECT_EQ(POLLERR | POLLHUP, pfd.revents);
				close(pfd.fd);
			}
		}
	}
}

struct first_user {
	int fd;
	unsigned int round, done;
	int cancelled;
};

static void spin_for(unsigned int turns)
{
	while (turns--)
		__asm__ volatile("" ::: "memory");
}

/* Uses each new context immediately. Round 0 ends the thread. */
static void *use_first(void *arg)
{
	struct first_user *user = arg;
	unsigned int round, last = 0;

	for (;;) {
		spin_until((round = __atomic_load_n(&user->round, __ATOMIC_ACQUIRE)) != last);
		if (!round)
			return NULL;
		spin_for(round % 61 * 16);
		user->cancelled = mw_cancel(user->fd, 1);
		last = round;
		__atomic_store_n(&user->done, round, __ATOMIC_RELEASE);
	}
}

/*
 * The bind races with the first use. In either order, the context is either bound or usable by all.
 */
MEMWAIT_TEST(L10_a_binding_races_with_the_first_use)
{
	struct first_user user = { .round = 0 };
	unsigned int round, least = SOME_OF(10000), bound = 0, refused = 0;
	pthread_t thread;
	int ret;

	ASSERT_EQ(0, pthread_create(&thread, NULL, use_first, &user));
	for (round = 1; round < least || (!has_one_processor() && !(bound && refused)); round++) {
		user.fd = open_device(O_NONBLOCK);
		__atomic_store_n(&user.round, round, __ATOMIC_RELEASE);
		spin_for(round % 67 * 16);
		ret = mw_owner(user.fd, BIND, NULL);
		spin_until(__atomic_load_n(&user.done, __ATOMIC_ACQUIRE) == round);
		ASSERT_EQ(-ENOENT, user.cancelled);
		if (ret)
			ASSERT_EQ(-EBUSY, ret);
		bound += !ret;
		refused += !!ret;
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(user.fd, self->word, 1));
		ASSERT_EQ(1, mw_notify(user.fd, self->word, 1, U32));
		close(user.fd);
	}
	__atomic_store_n(&user.round, 0, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	TH_LOG("the bind came first %u times, the use %u times", bound, refused);
}

#define STORMS		LOAD(60, 15)
#define STORM_CONTEXTS	6
#define STORM_WAITS	40
#define NOTIFIED	25

struct storm {
	struct shared *shared;
	int fds[STORM_CONTEXTS];
	int stop;		/* ends watch() */
	uint64_t seed;
};

static unsigned int draw(struct storm *storm, unsigned int n)
{
	return next_random(&storm->seed) % n;
}

/* Binds all contexts, arms waits in them (some of which are notified), and closes some of them. */
static void *bind_and_arm(void *arg)
{
	struct storm *storm = arg;
	struct shared *shared = storm->shared;
	int i, j, failed = 0;
	uint32_t *word;

	for (i = 0; i < STORM_CONTEXTS; i++) {
		failed |= mw_owner(storm->fds[i], BIND, NULL);
		for (j = 0; j < STORM_WAITS; j++) {
			word = j % 2 ? &shared->completed : &shared->pending;
			failed |= mw_async(storm->fds[i], word, 0,
					   j % 3 ? FOREVER : in_ms(3600000), U32, j, NULL) !=
				  MEMWAIT_PENDING;
		}
	}
	if (failed)
		__atomic_store_n(&shared->result, 1, __ATOMIC_RELAXED);
	return NULL;
}

/*
 * Runs in a process that shares the descriptor table: closes some descriptors at arbitrary times.
 */
static int close_some(void *arg)
{
	struct storm *storm = arg;
	int i;

	await(&storm->shared->go);
	for (i = 0; i < STORM_CONTEXTS; i++) {
		usleep(draw(storm, 300));
		if (draw(storm, 2))
			close(storm->fds[i]);
	}
	usleep(draw(storm, 2000));
	return 0;
}

/* The process that binds the contexts. It may share its descriptors with another process. */
static void run_storm(struct storm *storm)
{
	struct shared *shared = storm->shared;
	char *stack = private_page(65536);
	pthread_t threads[2];
	int i, how = draw(storm, 6);

	for (i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, bind_and_arm, storm);
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < NOTIFIED; i++)
		shared->result |= mw_notify(storm->fds[0], &shared->completed, 1, U32) != 1;
	if (draw(storm, 2))
		clone(close_some, stack + 65536, CLONE_FILES | SIGCHLD, storm);
	set_flag(&shared->ready);
	end_as(how, storm->fds[0], &shared->go);
	_exit(0);
}

/* Repeatedly reads fdinfo of the contexts and the list of all waiters. */
static void *watch(void *arg)
{
	struct storm *storm = arg;
	char text[4096];
	int i, list;

	while (!__atomic_load_n(&storm->stop, __ATOMIC_RELAXED)) {
		list = open("/sys/kernel/debug/memwait/queues", O_RDONLY);
		for (i = 0; i < STORM_CONTEXTS; i++) {
			mw_fdinfo(storm->fds[i], "owner");
			mw_readable(storm->fds[i]);
			mw_waiters(storm->fds[i], &storm->shared->pending, U32);
			if (list >= 0 && read(list, text, 300) < 0)
				break;
		}
		if (list >= 0)
			close(list);
	}
	return NULL;
}

/* Each notify arrives once, however the process ends and whichever process closes descriptors. */
MEMWAIT_TEST(L10_contexts_are_bound_passed_and_closed_at_random)
{
	struct shared *shared = (void *)self->shared;
	uint64_t waits = mw_user_waits(self->fd);
	struct memwait_completion done[NOTIFIED + 1];
	struct storm storm = { .shared = shared, .seed = 1 };
	int round, i, got, all = 2 * STORM_CONTEXTS * STORM_WAITS / 2;
	pid_t pid, other;
	pthread_t thread;

	for (round = 0; round < STORMS; round++) {
		memset(shared, 0, sizeof(*shared));
		for (i = 0; i < STORM_CONTEXTS; i++) {
			storm.fds[i] = open_device(O_NONBLOCK);
		}
		storm.seed = round + 1;
		pid = fork();
		if (!pid)
			run_storm(&storm);
		other = fork();
		if (!other)
			_exit(close_some(&storm));
		await(&shared->ready);
		ASSERT_EQ(0, shared->result);
		ASSERT_EQ(all, mw_waiters(self->fd, &shared->pending, U32));
		for (i = 0; i <= NOTIFIED; i++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &shared->completed, i));
		storm.stop = 0;
		ASSERT_EQ(0, pthread_create(&thread, NULL, watch, &storm));
		set_flag(&shared->go);
		usleep(draw(&storm, 1000));
		kill(pid, SIGKILL);
		usleep(draw(&storm, 2000));
		set_flag(&storm.stop);
		pthread_join(thread, NULL);
		for (i = 0; i < STORM_CONTEXTS; i++) {
			usleep(draw(&storm, 200));
			close(storm.fds[i]);
		}
		ASSERT_LE(0, child_status(pid));
		ASSERT_EQ(0, child_status(other));

		while (mw_waiters(self->fd, &shared->pending, U32) ||
		       mw_waiters(self->fd, &shared->completed, U32) != 1)
			usleep(100);
		for (got = 0; got < NOTIFIED; got += i) {
			i = mw_read(self->fd, done, NOTIFIED + 1);
			ASSERT_LT(0, i);
		}
		EXPECT_EQ(NOTIFIED, got);
		EXPECT_EQ(1, mw_fdinfo(self->fd, "pending"));
		EXPECT_EQ(1, mw_notify(self->fd, &shared->completed, 2, U32));
		EXPECT_EQ(1, mw_read(self->fd, done, 2));
		mw_await_owners(self->fd, 0);
		EXPECT_EQ(waits, mw_await_user_waits(self->fd, waits));
	}
}

TEST_HARNESS_MAIN
