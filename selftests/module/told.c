// SPDX-License-Identifier: GPL-2.0
/*
 * R12, R34: the end of a thread does not count as a death, and a waiter that received OWNER_DIED
 * has had its turn. When a thread ends, only waiters of words that name the thread are notified.
 * When a process is killed, other waiters are also notified.
 */
#include "owner_test.h"
#include "signal_test.h"
#include <linux/seccomp.h>
#include <sys/prctl.h>

#define SMALL(shared)	(&(shared)->small)

/* Starts several waiters on a word that names no owner. */
static void start_waiters(int fd, struct owned_waiter *w, int n, const void *addr, uint32_t size)
{
	int i;

	for (i = 0; i < n; i++) {
		w[i] = (struct owned_waiter) { .fd = fd, .addr = addr, .stays = 1,
					       .flags = size | MEMWAIT_OWNED };
		owned_waiter_start(&w[i]);
	}
}

OWNER_TEST(R34_the_end_of_a_woken_thread_is_not_reported)
{
	struct shared *shared = self->shared;
	struct owned_waiter w[8];
	uint32_t size;
	int i;

	for (size = MEMWAIT_SIZE_U8; size <= MEMWAIT_SIZE_U32; size++) {
		start_waiters(self->fd, w, 8, &shared->word, size);
		for (i = 0; i < 8; i++) {
			EXPECT_EQ(8 - i, mw_waiters(self->fd, &shared->word, size));
			EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, size));
			/* The next waiter in the queue is notified and counted. */
			EXPECT_EQ(MEMWAIT_OK, owned_waiter_result(&w[i]));
			owned_waiter_join(&w[i]);
			/* At this time the end of the thread has had all its effects. */
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

OWNER_TEST(R34_the_end_of_an_id_is_not_reported)
{
	struct shared *shared = self->shared;
	struct owned_waiter w[2] = {
		{ .fd = self->fd, .addr = SMALL(shared), .flags = OWNED32 },
	};

	ASSERT_EQ(0, pthread_create(&w[0].thread, NULL, give_up_id, &w[0]));
	await_waiters(self->fd, SMALL(shared), U32, 1);
	start_waiters(self->fd, &w[1], 1, SMALL(shared), U32);
	EXPECT_EQ(1, mw_notify(self->fd, SMALL(shared), 1, U32));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_join(&w[0]));
	EXPECT_EQ(0, w[0].id);
	mw_await_owners(self->fd, self->owners + 1);
	EXPECT_EQ(1, mw_waiters(self->fd, SMALL(shared), U32));
	EXPECT_EQ(1, mw_notify(self->fd, SMALL(shared), 1, U32));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_join(&w[1]));
}

/*
 * The woken thread holds the lock at its end: the word names this thread, although the waiters of
 * the word named another owner.
 */
OWNER_TEST(R34_the_end_of_a_woken_thread_is_reported_if_the_word_names_it)
{
	struct shared *shared = self->shared;
	struct owned_waiter w[2];

	start_waiters(self->fd, w, 2, &shared->word, U64);
	EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_result(&w[0]));
	owned_waiter_join(&w[0]);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w[1]));
}

/* The first waiter of a word, which is cancelled, stores that the word names the owner. */
OWNER_TEST(R34_the_end_of_an_owner_is_reported_when_its_first_waiter_has_left)
{
	struct shared *shared = self->shared;
	struct owned_waiter w = { .fd = self->fd, .addr = &shared->word, .flags = OWNED64 };
	int loop = memwait_open(O_NONBLOCK);
	uint64_t wait;
	pthread_t owner;

	ASSERT_EQ(0, pthread_create(&owner, NULL, exit_thread, shared));
	shared->word = await_id(&shared->id);
	w.expected = shared->word;
	ASSERT_EQ(0, mw_owner(loop, MEMWAIT_OWNER_CONTEXT, NULL));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(loop, &shared->word, shared->word, MEMWAIT_FOREVER,
					    OWNED64, 1, &wait));
	owned_waiter_start(&w);
	EXPECT_EQ(0, mw_cancel(loop, wait));
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
	pthread_join(owner, NULL);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w));
	close(loop);
}

/* As above, for a thread that waited on half a word and was moved to the word that names it. */
OWNER_TEST(R34_the_end_of_a_thread_that_was_moved_to_a_lock_word_is_reported)
{
	struct shared *shared = self->shared;
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)&shared->id, .target = (uintptr_t)&shared->word,
		.move = 1, .flags = U64,
	};
	struct owned_waiter w[2];

	start_waiters(self->fd, w, 1, &shared->id, U32);
	EXPECT_EQ(0, xioctl(self->fd, MEMWAIT_IOC_REQUEUE, &requeue));
	EXPECT_EQ(1, requeue.moved);
	start_waiters(self->fd, &w[1], 1, &shared->word, U64);
	EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_result(&w[0]));
	shared->word = await_id(&w[0].id);
	owned_waiter_join(&w[0]);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w[1]));
}

/* The waiter that was woken earlier on the whole word is not the thread that ends. */
OWNER_TEST(R34_the_end_of_a_thread_woken_on_half_a_word_is_not_reported)
{
	struct shared *shared = self->shared;
	struct owned_waiter w[3];

	start_waiters(self->fd, w, 1, &shared->word, U64);
	start_waiters(self->fd, &w[1], 2, &shared->word, U32);
	EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_result(&w[0]));
	EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_result(&w[1]));
	owned_waiter_join(&w[1]);
	mw_await_owners(self->fd, self->owners + 2);
	EXPECT_EQ(1, mw_waiters(self->fd, &shared->word, U64));
	EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_join(&w[2]));
	owned_waiter_join(&w[0]);
}

/*
 * A thread that was woken on half a word may own the whole word at its end. A later waiter detects
 * this.
 */
OWNER_TEST(R34_the_end_of_a_thread_named_after_its_wake_up_is_reported)
{
	struct shared *shared = self->shared;
	struct owned_waiter w[3];

	start_waiters(self->fd, w, 2, &shared->word, U32);
	EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_result(&w[0]));
	shared->word = await_id(&w[0].id);
	w[2] = (struct owned_waiter) { .fd = self->fd, .addr = &shared->word, .stays = 1,
				       .expected = shared->word, .flags = OWNED64 };
	owned_waiter_start(&w[2]);
	owned_waiter_join(&w[0]);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w[1]));
	mw_await_owners(self->fd, self->owners + 1);
	EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_join(&w[2]));
}

static void *wait_on_half_of_own_word(void *arg)
{
	struct owned_waiter *w = arg;
	struct shared *shared = (struct shared *)w->addr;

	shared->word = my_id(w->fd);
	w->result = mw_wait(w->fd, &shared->word, (uint32_t)shared->word, MEMWAIT_FOREVER, OWNED32);
	return NULL;
}

static void wait_as_unrelated(struct shared *shared)
{
	int fd;

	if (setgid(65534) || setuid(65534))
		_exit(1);
	fd = memwait_open(0);
	my_id(fd);
	_exit(mw_wait(fd, &shared->word, shared->word, MEMWAIT_FOREVER, OWNED64) !=
	      MEMWAIT_OWNER_DIED);
}

/*
 * The kernel remembers the owner that a word names even if the owner is woken on half of the word
 * afterwards.
 */
OWNER_TEST(R34_the_end_of_a_thread_named_by_another_user_is_reported)
{
	struct shared *shared = self->shared;
	struct owned_waiter w = { .fd = self->fd, .addr = shared };
	pid_t unrelated;

	if (geteuid())
		SKIP(return, "needs root to become another user");
	ASSERT_EQ(0, pthread_create(&w.thread, NULL, wait_on_half_of_own_word, &w));
	await_waiters(self->fd, &shared->word, U64, 1);
	unrelated = fork_child();
	if (!unrelated)
		wait_as_unrelated(shared);
	await_waiters(self->fd, &shared->word, U64, 2);
	EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, U64));
	pthread_join(w.thread, NULL);
	EXPECT_EQ(MEMWAIT_OK, w.result);
	EXPECT_EQ(0, child_status(unrelated));
}

/* How a woken thread dies without a call of exit(2). */
enum death { KILLED, KILLED_ALONE, EXIT_GROUP, OTHERS_EXIT_GROUP, EXECUTES_ITSELF, OTHER_EXECUTES,
	     DEATHS };

struct dying {
	enum death how;
	int fd;
	struct shared *shared;
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
	dying->shared->result[0] = mw_wait(dying->fd, SMALL(dying->shared), 0, MEMWAIT_FOREVER,
					   OWNED32);
	__atomic_store_n(&dying->shared->go, 1, __ATOMIC_RELEASE);
	/*
	 * In strict seccomp mode, any other system call makes the kernel kill only the calling
	 * thread.
	 */
	if (dying->how == KILLED_ALONE && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		syscall(SYS_getppid);
	if (dying->how == KILLED_ALONE)
		kill(getpid(), SIGKILL);	/* for kernels without strict seccomp mode */
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
	sleep_until(__atomic_load_n(&dying->shared->go, __ATOMIC_ACQUIRE));
	if (dying->how == OTHERS_EXIT_GROUP)
		_exit(0);
	if (dying->how == OTHER_EXECUTES)
		run_other_program();
	for (;;)
		pause();
}

OWNER_TEST(R34_all_other_deaths_of_a_woken_thread_are_reported)
{
	struct shared *shared = self->shared;
	struct dying dying = { .fd = self->fd, .shared = shared };
	struct owned_waiter w;
	pid_t pid;

	for (dying.how = 0; dying.how < DEATHS; dying.how++) {
		TH_LOG("how it dies: %d", dying.how);
		shared->go = 0;
		pid = fork();
		if (!pid)
			dying_process(&dying);
		await_waiters(self->fd, SMALL(shared), U32, 1);
		start_waiters(self->fd, &w, 1, SMALL(shared), U32);
		EXPECT_EQ(1, mw_notify(self->fd, SMALL(shared), 1, U32));
		sleep_until(__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE));
		EXPECT_EQ(MEMWAIT_OK, shared->result[0]);
		if (dying.how == KILLED)
			kill(pid, SIGKILL);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w));
		kill_child(pid);
	}
}

/* Arms an async wait on the small word, behind the other waiters. */
#define ARM(user_data)	\
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, SMALL(self->shared), user_data))

#define EXPECT_NEXT_IS(n)								\
	do {										\
		EXPECT_EQ(1, mw_notify(self->fd, SMALL(self->shared), 1, U32));		\
		EXPECT_COMPLETION(self->fd, n, MEMWAIT_OK);				\
	} while (0)

/* Forks a child that waits as the first waiter. */
static pid_t start_first(int fd, struct shared *shared, const uint32_t *word)
{
	return owned_child_start(fd, &shared->children[0], word, 0, OWNED32);
}

/* Notifies the child and kills it. Its death is reported to the next waiter. */
static void end_first(int fd, struct shared *shared, const uint32_t *word, pid_t pid)
{
	if (mw_notify(fd, word, 1, U32) != 1 ||
	    owned_child_result(&shared->children[0], 1) != MEMWAIT_OK)
		abort();
	kill_child(pid);
}

/* A thread that waits, may be interrupted and return, receives OWNER_DIED, and waits again. */
struct returning_thread {
	pthread_t thread;
	pid_t tid;
	int fd;
	struct shared *shared;
	int interrupted, saw_death, again, result;
};

static int wait_small(const struct returning_thread *t)
{
	return mw_wait(t->fd, SMALL(t->shared), 0, MEMWAIT_FOREVER, OWNED32);
}

static void *wait_twice(void *arg)
{
	struct returning_thread *t = arg;

	my_id(t->fd);
	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	t->result = wait_small(t);
	if (t->result == -EINTR) {
		t->interrupted = 1;
		t->result = wait_small(t);
	}
	__atomic_store_n(&t->saw_death, 1, __ATOMIC_RELEASE);
	sleep_until(__atomic_load_n(&t->again, __ATOMIC_ACQUIRE));
	if (t->result == MEMWAIT_OWNER_DIED)
		t->result = wait_small(t);
	return NULL;
}

/*
 * A waiter that received OWNER_DIED has had its turn, even if it had retained a queue position
 * after an interruption.
 */
OWNER_TEST(R12_a_thread_that_got_owner_died_joins_at_the_end)
{
	struct shared *shared = self->shared;
	int interrupted;
	pid_t first;

	handle(SIGUSR1, 0);
	for (interrupted = 0; interrupted < 2; interrupted++) {
		struct returning_thread t = { .fd = self->fd, .shared = shared };

		first = start_first(self->fd, shared, SMALL(shared));
		ASSERT_EQ(0, pthread_create(&t.thread, NULL, wait_twice, &t));
		await_waiters(self->fd, SMALL(shared), U32, 2);
		if (interrupted) {
			interrupt_thread(t.thread, t.tid);
			await_waiters(self->fd, SMALL(shared), U32, 2);
		}
		end_first(self->fd, shared, SMALL(shared), first);
		sleep_until(__atomic_load_n(&t.saw_death, __ATOMIC_ACQUIRE));
		EXPECT_EQ(interrupted, t.interrupted);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, t.result);
		EXPECT_EQ(0, mw_fdinfo(self->fd, "places"));
		ARM(1);
		__atomic_store_n(&t.again, 1, __ATOMIC_RELEASE);
		await_waiters(self->fd, SMALL(shared), U32, 2);
		EXPECT_NEXT_IS(1);
		EXPECT_EQ(1, mw_notify(self->fd, SMALL(shared), 1, U32));
		pthread_join(t.thread, NULL);
		EXPECT_EQ(MEMWAIT_OK, t.result);
	}
}

/*
 * After each of several deaths the notified waiter continues. One of the waiters is notified of the
 * next death.
 */
OWNER_TEST(R35_after_many_deaths_some_waiter_continues)
{
	struct shared *shared = self->shared;
	struct child_result *children = shared->children;
	pid_t first = start_first(self->fd, shared, SMALL(shared)), victim, pids[2];
	int i;

	pids[0] = owned_child_start(self->fd, &children[1], SMALL(shared), 0, OWNED32);
	pids[1] = owned_child_start(self->fd, &children[2], SMALL(shared), 0, OWNED32);
	end_first(self->fd, shared, SMALL(shared), first);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_child_result(&children[1], 1));
	/* The waiter that received OWNER_DIED also dies, and the second waiter is notified. */
	kill_child(pids[0]);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_child_result(&children[2], 1));
	victim = owned_child_start(self->fd, &children[1], SMALL(shared), 0, OWNED32);
	__atomic_store_n(&children[2].again, 1, __ATOMIC_RELEASE);
	await_waiters(self->fd, SMALL(shared), U32, 2);
	EXPECT_EQ(1, mw_notify(self->fd, SMALL(shared), 1, U32));
	EXPECT_EQ(MEMWAIT_OK, owned_child_result(&children[1], 1));
	/*
	 * A waiter was woken and dies before it has acted. The waiter that returned behind it is
	 * notified.
	 */
	kill_child(victim);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_child_result(&children[2], 2));
	for (i = 0; i < 3; i++)
		ARM(i);
	for (i = 0; i < 3; i++)
		EXPECT_NEXT_IS(i);
	kill_child(pids[1]);
}

/*
 * Only the kernel writes the id of an entry. Therefore an old id gives an event loop no queue
 * position either.
 */
OWNER_TEST(R12_an_event_loop_that_got_owner_died_joins_at_the_end)
{
	struct shared *shared = self->shared;
	struct memwait_async entry = {
		.wait = { .addr = (uintptr_t)SMALL(shared), .deadline = MEMWAIT_FOREVER,
			  .flags = OWNED32 },
		.user_data = 7,
	};
	struct memwait_completion done;
	uint64_t old;
	pid_t first;

	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	first = start_first(self->fd, shared, SMALL(shared));
	EXPECT_EQ(1, mw_batch(self->fd, &entry, 1));
	EXPECT_EQ(MEMWAIT_PENDING, entry.result);
	end_first(self->fd, shared, SMALL(shared), first);
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
 * A waiter of high priority need not wait for a kernel thread. In this test all threads run on one
 * CPU. The kernel threads get the CPU only after the dying process has left it, as a zombie with
 * its descriptors closed.
 */
OWNER_TEST(R30_a_dying_process_reports_its_death)
{
	struct shared *shared = self->shared;
	pid_t pid;

	if (change_setting(WORKQUEUE_CPUMASK, "1"))
		SKIP(return, "needs root to bind kernel threads");
	ASSERT_EQ(0, pin(20));
	pid = fork_child();
	if (!pid) {
		int fd = memwait_open(0);

		if (pin(10))
			_exit(1);
		store_id(&shared->id, my_id(fd));
		sleep_until(__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE));
		await_waiters(fd, &shared->word, U64, 1);
		_exit(0);
	}
	shared->word = await_id(&shared->id);
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, &shared->word, shared->id, MEMWAIT_FOREVER,
					      OWNED64));
	EXPECT_NE('Z', thread_state(pid));
	EXPECT_EQ(0, pin(0));
	EXPECT_EQ(0, child_status(pid));
}

TEST_HARNESS_MAIN
