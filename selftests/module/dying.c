// SPDX-License-Identifier: GPL-2.0
/*
 * R35: processes that have begun to die and take a long time to do so. Either a tracer stops their
 * threads at the exit stop, or they dump core to a pipe that is not read. A dying process still has
 * all its descriptors and its memory.
 */
#include "owner_test.h"
#include "several_test.h"
#include <sys/ptrace.h>
#include <sys/utsname.h>

/* Stops a thread at its exit. If the test ends early, the thread is killed. */
#define HOLD	(PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL)

#define BIND	(MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND)

/* The kinds of waits of the dying process. */
enum { ONE_SHOT, TIMED, PERSISTENT, GROUP, OWNED, KINDS };

struct process_state {
	uint32_t words[KINDS];
	uint32_t second;	/* second word of the group */
	uint32_t completed;
	uint64_t owner;		/* id of a thread that is dying */
	uint64_t id;
	int tid;		/* thread id of the stopped thread */
	int result;
	int ready, go;
	int fd;
};

static void publish(int *flag, int value)
{
	__atomic_store_n(flag, value, __ATOMIC_RELEASE);
}

static int await(const int *flag)
{
	sleep_until(__atomic_load_n(flag, __ATOMIC_ACQUIRE));
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static int arm_kind(int fd, struct process_state *shared, int kind)
{
	struct memwait_wait members[2] = {
		{ .addr = (uintptr_t)&shared->second, .deadline = MEMWAIT_FOREVER, .flags = U32 },
		{ .addr = (uintptr_t)&shared->words[GROUP], .deadline = MEMWAIT_FOREVER,
		  .flags = U32 },
	};
	uint32_t flags = U32;

	if (kind == GROUP)
		return mw_group(fd, members, 2, MEMWAIT_FOREVER, 0, kind, NULL);
	if (kind == PERSISTENT)
		flags |= MEMWAIT_PERSISTENT;
	if (kind == OWNED)
		flags |= MEMWAIT_OWNED;
	return mw_async(fd, &shared->words[kind], 0,
			kind == TIMED ? in_ms(3600000) : MEMWAIT_FOREVER, flags, kind, NULL);
}

/*
 * Binds a context, arms a wait of each kind, and completes one more wait. Notifies must pass over
 * the armed waits.
 */
static int arm_all(struct process_state *shared)
{
	int fd = memwait_open(O_NONBLOCK), failed, kind;

	shared->fd = fd;
	failed = mw_owner(fd, BIND, NULL);
	for (kind = 0; kind < KINDS; kind++)
		failed |= arm_kind(fd, shared, kind) != MEMWAIT_PENDING;
	failed |= mw_arm(fd, &shared->completed, 1) != MEMWAIT_PENDING;
	return failed | (mw_notify(fd, &shared->completed, 1, U32) != 1);
}

/* How the process dies, and which thread is stopped. */
enum { EXITS_ITSELF, KILLED, TERMINATED, ABORTED, KILLED_BUT_ONE, KILLED_BUT_FIRST, DEATHS };

static void *bind_and_stay(void *arg)
{
	struct process_state *shared = arg;

	shared->result = arm_all(shared);
	store_id(&shared->owner, my_id(shared->fd));
	publish(&shared->tid, gettid());
	publish(&shared->ready, 1);
	stay();
}

static void *stay_too(void *arg)
{
	stay();
}

static void die_as(int death, struct process_state *shared)
{
	pthread_t thread;

	switch (death) {
	case KILLED_BUT_ONE:
		pthread_create(&thread, NULL, stay_too, NULL);
		pthread_create(&thread, NULL, bind_and_stay, shared);
		stay();
	case KILLED_BUT_FIRST:
		pthread_create(&thread, NULL, bind_and_stay, shared);
		pthread_exit(NULL);
	}
	shared->result = arm_all(shared);
	store_id(&shared->owner, my_id(shared->fd));
	publish(&shared->tid, gettid());
	publish(&shared->ready, 1);
	if (death == EXITS_ITSELF) {
		await(&shared->go);
		_exit(0);
	}
	stay();
}

/* Waits until the thread stops at its exit. Delivers the signal that kills the thread. */
static bool stops_at_its_end(pid_t tid)
{
	int status;

	while (waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status)) {
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8))
			return true;
		ptrace(PTRACE_CONT, tid, NULL, (void *)(long)WSTOPSIG(status));
	}
	return false;
}

/* With KILLED_BUT_FIRST the first thread must have exited. */
static void await_ready(struct process_state *shared, int death, pid_t pid)
{
	await(&shared->ready);
	sleep_until(death != KILLED_BUT_FIRST || thread_state(pid) == 'Z');
}

/*
 * Starts a process. When this function returns, the process is dying, until the thread shared->tid
 * is released.
 */
static pid_t start_dying(struct process_state *shared, int death)
{
	static const int signals[DEATHS] = { 0, SIGKILL, SIGTERM, SIGABRT, SIGKILL, SIGKILL };
	pid_t pid;

	memset(shared, 0, sizeof(*shared));
	pid = fork_child();
	if (!pid)
		die_as(death, shared);
	await_ready(shared, death, pid);
	if (ptrace(PTRACE_SEIZE, shared->tid, NULL, (void *)HOLD))
		abort();
	if (signals[death])
		kill(pid, signals[death]);
	publish(&shared->go, 1);
	if (!stops_at_its_end(shared->tid))
		abort();
	return pid;
}

static void let_go(pid_t pid, pid_t tid)
{
	ptrace(PTRACE_DETACH, tid, NULL, NULL);
	while (waitpid(pid, NULL, __WALL) == pid)
		;
}

static int notify_one(int fd, int way, const uint32_t *word)
{
	struct memwait_notify notify = { .addr = (uintptr_t)word, .count = 1, .flags = U32 };
	struct memwait_change change = { .notify = notify, .operation = MEMWAIT_CHANGE_OR };
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)word, .target = (uintptr_t)word, .count = 1, .flags = U32,
	};
	uint32_t woken = 0;

	switch (way) {
	case 0:
		return mw_notify(fd, word, 1, U32);
	case 1:
		return mw_notify_many(fd, &notify, 1, &woken) == 1 ? (int)woken : -1;
	case 2:
		return xioctl(fd, MEMWAIT_IOC_CHANGE_NOTIFY, &change);
	default:
		return xioctl(fd, MEMWAIT_IOC_REQUEUE, &requeue) ? -1 : (int)requeue.woken;
	}
}

OWNER_TEST(R35_a_notify_passes_over_the_waits_of_a_dying_process)
{
	struct process_state *shared = shared_page(self->page);
	int death, kind;
	pid_t pid;

	for (death = 0; death < DEATHS; death++) {
		uint64_t waits = mw_user_waits(self->fd);

		TH_LOG("how it dies: %d", death);
		pid = start_dying(shared, death);
		ASSERT_EQ(0, shared->result);
		for (kind = 0; kind < KINDS; kind++) {
			EXPECT_EQ(1, mw_waiters(self->fd, &shared->words[kind], U32));
			EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &shared->words[kind], kind));
			EXPECT_EQ(1, notify_one(self->fd, (death + kind) % 4,
						&shared->words[kind]));
			ASSERT_TRUE(mw_readable(self->fd));
			EXPECT_COMPLETION(self->fd, kind, MEMWAIT_OK);
			EXPECT_EQ(0, mw_notify(self->fd, &shared->words[kind], 1, U32));
		}
		/* The other word of the group has not been notified before. */
		EXPECT_EQ(0, mw_notify(self->fd, &shared->second, MEMWAIT_ALL, U32));

		/* A notify that was counted earlier is passed on when the process has exited. */
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &shared->completed, 9));
		EXPECT_FALSE(mw_readable(self->fd));
		let_go(pid, shared->tid);
		ASSERT_TRUE(mw_readable(self->fd));
		EXPECT_COMPLETION(self->fd, 9, MEMWAIT_OK);
		EXPECT_EQ(waits, mw_await_user_waits(self->fd, waits));
	}
}

/*
 * A thread that has taken a fatal signal counts as dead immediately, even if its exit takes a long
 * time.
 */
OWNER_TEST(R35_a_thread_that_takes_a_fatal_signal_is_dead)
{
	struct process_state *shared = shared_page(self->page);
	int death;
	pid_t pid;

	for (death = KILLED; death < DEATHS; death++) {
		TH_LOG("how it dies: %d", death);
		pid = start_dying(shared, death);
		ASSERT_FALSE(lives(self->fd, shared->owner));
		EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &shared->owner, shared->owner,
						      MEMWAIT_FOREVER, OWNED64));
		let_go(pid, shared->tid);
	}
}

static void take(int sig)
{
}

/* Handles signals that do not kill, including SIGTERM to the first process of a PID namespace. */
/* Raises a signal while it is blocked, because the kernel discards an ignored signal otherwise. */
static void raise_blocked(int sig)
{
	sigset_t set, before;

	sigemptyset(&set);
	sigaddset(&set, sig);
	sigprocmask(SIG_BLOCK, &set, &before);
	raise(sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Stops the process until a child continues it. */
static void stop_for_a_moment(void)
{
	pid_t self = getpid(), pid = fork_child();

	if (!pid) {
		await_state(self, 'T');
		kill(self, SIGCONT);
		_exit(0);
	}
	raise(SIGSTOP);
	child_status(pid);
}

static int survive(void *arg)
{
	static const int harmless[] = { SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGUSR1, SIGUSR2 };
	int fd = memwait_open(0);
	uint64_t id = my_id(fd);
	size_t i;

	signal(SIGUSR1, take);
	signal(SIGUSR2, SIG_IGN);
	for (i = 0; i < ARRAY_SIZE(harmless); i++) {
		raise(harmless[i]);
		raise_blocked(harmless[i]);
		if (!lives(fd, id))
			return 1 + i;
	}
	if (getpid() != 1) {
		stop_for_a_moment();
		return lives(fd, id) ? 0 : 99;
	}
	raise_blocked(SIGTERM);
	return lives(fd, id) ? 0 : 100;
}

OWNER_TEST(R35_a_thread_that_survives_its_signals_is_alive)
{
	char *stack = private_page(64 * self->page);
	int flags;
	pid_t pid;

	for (flags = 0; flags <= CLONE_NEWPID; flags += CLONE_NEWPID) {
		if (flags && geteuid())
			SKIP(break, "needs root");
		pid = clone(survive, stack + 64 * self->page, flags | SIGCHLD, NULL);
		ASSERT_LT(0, pid);
		EXPECT_EQ(0, child_status(pid));
	}
}

static int die_sharing(void *arg)
{
	struct process_state *shared = arg;

	shared->result = arm_all(shared);
	publish(&shared->tid, getpid());
	publish(&shared->ready, 1);
	stay();
}

/*
 * Another process shares the descriptor table, so the context outlives its process. Notifies pass
 * over the waits of the dead process while it is stopped, when it is a zombie, and when it has been
 * reaped.
 */
OWNER_TEST(R35_notifies_pass_over_a_dead_process_that_shared_its_descriptors)
{
	struct process_state *shared = shared_page(self->page);
	char *stack = private_page(64 * self->page);
	struct memwait_completion done;
	pid_t pid;
	int kind;

	pid = clone(die_sharing, stack + 64 * self->page, CLONE_FILES | SIGCHLD, shared);
	ASSERT_LT(0, pid);
	await(&shared->ready);
	ASSERT_EQ(0, shared->result);
	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, pid, NULL, (void *)HOLD));
	kill(pid, SIGKILL);
	ASSERT_TRUE(stops_at_its_end(pid));
	EXPECT_EQ(-EPERM, mw_read(shared->fd, &done, 1));
	for (kind = 0; kind < KINDS; kind++) {
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &shared->words[kind], kind));
		EXPECT_EQ(1, mw_notify(self->fd, &shared->words[kind], 1, U32));
		EXPECT_COMPLETION(self->fd, kind, MEMWAIT_OK);
		switch (kind) {
		case ONE_SHOT:
			ptrace(PTRACE_DETACH, pid, NULL, NULL);
			sleep_until(thread_state(pid) == 'Z');
			break;
		case TIMED:
			waitpid(pid, NULL, 0);
			break;
		}
	}
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &shared->completed, 9));
	EXPECT_EQ(-EPERM, mw_owner(shared->fd, BIND, NULL));
	EXPECT_FALSE(mw_readable(self->fd));
	close(shared->fd);
	EXPECT_COMPLETION(self->fd, 9, MEMWAIT_OK);
}

#define PATTERN	"/proc/sys/kernel/core_pattern"

static bool dumps(pid_t pid, pid_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
	return read_number_of(path, "CoreDumping") == 1;
}

/* The dump does not end, because its pipe is not read. */
OWNER_TEST(R35_a_process_that_dumps_core_is_dead)
{
	struct process_state *shared = shared_page(self->page);
	struct memwait_completion done;
	int death, kind;
	pid_t pid;

	if (change_setting(PATTERN, access("/bin/busybox", X_OK) ?
			   "|/bin/sleep 60" : "|/bin/busybox sleep 60"))
		SKIP(return, "needs root and core dumps");
	for (death = KILLED_BUT_ONE; death <= KILLED_BUT_FIRST; death++) {
		TH_LOG("how it dies: %d", death);
		memset(shared, 0, sizeof(*shared));
		pid = fork_child();
		if (!pid) {
			memset(private_page(1 << 20), 1, 1 << 20);
			die_as(death, shared);
		}
		await_ready(shared, death, pid);
		EXPECT_EQ(0, shared->result);
		kill(pid, SIGABRT);
		sleep_until(dumps(pid, shared->tid));
		for (kind = 0; kind < KINDS; kind++) {
			EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &shared->words[kind], kind));
			EXPECT_EQ(1, mw_notify(self->fd, &shared->words[kind], 1, U32));
			EXPECT_EQ(1, mw_read(self->fd, &done, 1));
			EXPECT_EQ(kind, done.user_data);
		}
		/* Each thread takes its signal soon, except the thread that dumps core. */
		EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &shared->owner, shared->owner,
						      patience(60), OWNED64));
		EXPECT_TRUE(dumps(pid, shared->tid));
		EXPECT_LE(128, kill_child(pid));
	}
}

/* Since Linux 6.10 the kernel reports that an execve(2) has reached the point of no return. */
static bool execs_are_told_early(void)
{
	struct utsname name;
	int major, minor;

	return !uname(&name) && sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 10));
}

static void *hold_up(void *arg)
{
	struct process_state *shared = arg;

	publish(&shared->tid, gettid());
	publish(&shared->ready, 1);
	stay();
}

/* execve(2) waits for another thread of its process, which is stopped at its exit. */
OWNER_TEST(R35_a_thread_in_the_middle_of_execve_is_dead)
{
	struct process_state *shared = shared_page(self->page);
	pthread_t thread;
	pid_t pid;

	if (!execs_are_told_early())
		SKIP(return, "needs Linux 6.10 or later");
	pid = fork_child();
	if (!pid) {
		store_id(&shared->owner, my_id(self->fd));
		pthread_create(&thread, NULL, hold_up, shared);
		await(&shared->go);
		execl("/bin/busybox", "true", NULL);
		execlp("true", "true", NULL);
		_exit(1);
	}
	await(&shared->ready);
	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, shared->tid, NULL, (void *)HOLD));
	publish(&shared->go, 1);
	ASSERT_TRUE(stops_at_its_end(shared->tid));
	ASSERT_FALSE(lives(self->fd, shared->owner));
	ptrace(PTRACE_DETACH, shared->tid, NULL, NULL);
	EXPECT_EQ(0, child_status(pid));
}

TEST_HARNESS_MAIN
