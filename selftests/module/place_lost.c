// SPDX-License-Identifier: GPL-2.0
/* R12: threads that have no queue position to which they can return, or that have lost it. */
#include "several_test.h"
#include <linux/membarrier.h>

/* Flags by which an interrupted process and its parent synchronise. */
struct shared {
	uint32_t word;
	int away;		/* the process was interrupted */
	int come_back;		/* the process may call again */
};

static bool set(const int *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void set_flag(int *flag)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static void send_away(struct shared *shared, pid_t pid)
{
	await_asleep(pid);
	kill(pid, SIGUSR1);
	spin_until(set(&shared->away));
}

#define ARM(word, user_data)								\
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, word, user_data))

/*
 * Checks that the async wait is the older of two waiters. The other waiter is a process or thread.
 */
#define EXPECT_LAST(word)								\
	do {										\
		struct memwait_completion done;						\
											\
		EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));			\
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));				\
		EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));			\
	} while (0)

/*
 * The environment variable by which an executed program receives the descriptors of device and
 * memory.
 */
#define PROGRAM	"MEMWAIT_PLACE_LOST"

/* Runs in an executed program: performs the second wait. */
__attribute__((constructor)) static void wait_in_new_program(void)
{
	const char *descriptors = getenv(PROGRAM), *second;
	uint32_t *word;

	if (!descriptors)
		return;
	second = strchr(descriptors, ',');
	word = second ? mmap(NULL, 4096, PROT_READ, MAP_SHARED, atoi(second + 1), 0) : MAP_FAILED;
	_exit(word == MAP_FAILED ? 98 : mw_wait(atoi(descriptors), word, 0, FOREVER, U32));
}

static void execute_when_interrupted(int fd, int memory, struct shared *shared)
{
	char *const argv[] = { "/proc/self/exe", NULL };
	char descriptors[64];
	char *const envp[] = { descriptors, NULL };

	/* The program inherits these copies, which are without close-on-exec. */
	snprintf(descriptors, sizeof(descriptors), PROGRAM "=%d,%d", dup(fd), dup(memory));
	handle(SIGUSR1, 0);
	if (mw_wait(fd, &shared->word, 0, FOREVER, U32) != -EINTR)
		_exit(97);
	set_flag(&shared->away);
	sleep_until(set(&shared->come_back));
	execve(argv[0], argv, envp);
	_exit(96);
}

MEMWAIT_TEST(R12_an_executed_program_has_no_position)
{
	int memory = new_file(self->page);
	struct shared *shared;
	pid_t pid;

	shared = map_shared(memory, self->page);
	pid = fork_child();
	if (!pid)
		execute_when_interrupted(self->fd, memory, shared);
	await_waiters(self->fd, &shared->word, U32, 1);
	send_away(shared, pid);
	ARM(&shared->word, 1);
	set_flag(&shared->come_back);
	await_waiters(self->fd, &shared->word, U32, 2);
	EXPECT_LAST(&shared->word);
	EXPECT_EQ(MEMWAIT_OK, child_status(pid));
	munmap(shared, self->page);
	close(memory);
}

/* A thread that waits on three words, and then on other words. */
struct any_thread {
	pthread_t thread;
	pid_t tid;
	int fd;
	struct memwait_wait first[3], second[3];
	int away, come_back, result;
};

static void *wait_any_twice(void *arg)
{
	struct any_thread *t = arg;

	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	t->result = mw_wait_any(t->fd, t->first, 3, FOREVER, 0, NULL);
	if (t->result != -EINTR)
		return NULL;
	set_flag(&t->away);
	spin_until(set(&t->come_back));
	t->result = mw_wait_any(t->fd, t->second, 3, FOREVER, 0, NULL);
	return NULL;
}

/* A queue position belongs to all words in their order. It is lost if one word differs. */
MEMWAIT_TEST(R12_a_position_is_lost_if_one_word_differs)
{
	static const int others[][3] = { { 3, 1, 2 }, { 0, 3, 2 }, { 0, 1, 3 }, { 0, 2, 1 } };
	size_t i, j, same;

	handle(SIGUSR1, 0);
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		struct any_thread t = { .fd = self->fd };

		members(t.first, self->shared, 3);
		for (j = 0; j < 3; j++)
			t.second[j] = member(self->shared + others[i][j], 0, U32);
		ASSERT_EQ(0, pthread_create(&t.thread, NULL, wait_any_twice, &t));
		await_waiters(self->fd, self->shared + 2, U32, 1);
		interrupt_thread(t.thread, t.tid);
		spin_until(set(&t.away));
		/* Find a word that has the same index in both calls. */
		for (same = 0; others[i][same] != (int)same; same++)
			;
		ARM(self->shared + same, 1);
		set_flag(&t.come_back);
		for (j = 0; j < 3; j++)
			await_waiters(self->fd, self->shared + others[i][j], U32,
				      1 + ((size_t)others[i][j] == same));
		EXPECT_LAST(self->shared + same);
		pthread_join(t.thread, NULL);
		EXPECT_EQ(MEMWAIT_OK, t.result);
	}
}

/* A thread that waits on a word, is interrupted, and waits again. */
struct returning_thread {
	pthread_t thread;
	pid_t tid;
	int fd;
	uint32_t *word;		/* may change before the second wait */
	bool late;		/* the thread has another wait first, which times out */
	int away, come_back, timed, result;
};

static void *come_back(void *arg)
{
	struct returning_thread *t = arg;

	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	t->result = mw_wait(t->fd, t->word, 0, FOREVER, U32);
	if (t->result != -EINTR)
		return NULL;
	if (t->late)
		t->timed = mw_wait(t->fd, t->word, 0, in_ms(1), U32);
	set_flag(&t->away);
	spin_until(set(&t->come_back));
	t->result = mw_wait(t->fd, t->word, 0, FOREVER, U32);
	return NULL;
}

/* Returns when the thread has left the queue. */
static void interrupt_once(struct returning_thread *t)
{
	handle(SIGUSR1, 0);
	if (pthread_create(&t->thread, NULL, come_back, t))
		abort();
	await_waiters(t->fd, t->word, U32, 1);
	interrupt_thread(t->thread, t->tid);
	spin_until(set(&t->away));
}

MEMWAIT_TEST(R12_a_position_is_lost_by_a_timeout)
{
	struct returning_thread t = { .fd = self->fd, .word = self->shared, .late = true };

	interrupt_once(&t);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, t.timed);
	EXPECT_EQ(0, mw_fdinfo(self->fd, "places"));
	ARM(t.word, 1);
	set_flag(&t.come_back);
	await_waiters(self->fd, t.word, U32, 2);
	EXPECT_LAST(t.word);
	pthread_join(t.thread, NULL);
	EXPECT_EQ(MEMWAIT_OK, t.result);
}

/* Files of tmpfs have random generation numbers. Files of hugetlbfs have only inode numbers. */
static const struct {
	unsigned int flags;
	size_t size;
} files[] = { { 0, 4096 }, { MFD_HUGETLB, 2 << 20 } };

/* Maps the first word of a file to which nothing else refers. Returns NULL on failure. */
static uint32_t *file_word(size_t kind)
{
	int file = memfd_create("memwait", MFD_CLOEXEC | files[kind].flags);
	uint32_t *word = MAP_FAILED;

	if (file >= 0 && !ftruncate(file, files[kind].size))
		word = mmap(NULL, files[kind].size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	return word == MAP_FAILED ? NULL : word;
}

/*
 * A queue position does not pin its file. After the file has been freed, a new file may be
 * allocated at the same kernel address, and its word then has the same key. The kernel reuses the
 * most recently freed memory first, so this happens to most of these files.
 */
MEMWAIT_TEST(R12_a_position_is_lost_with_its_file)
{
	size_t kind;
	int round, i;

	ASSERT_EQ(0, bind_to(0));
	for (round = 0; round < 20 * (int)ARRAY_SIZE(files); round++) {
		struct returning_thread t = { .fd = self->fd };

		kind = round / 20;
		t.word = file_word(kind);
		if (!t.word && kind)
			SKIP(return, "no huge pages (vm.nr_hugepages)");
		ASSERT_NE(NULL, t.word);
		interrupt_once(&t);
		munmap(t.word, files[kind].size);
		/* Wait until the file has been freed, after a grace period. */
		for (i = 0; i < 3; i++) {
			syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
			usleep(10000);
		}
		t.word = file_word(kind);
		ASSERT_NE(NULL, t.word);
		ARM(t.word, 1);
		set_flag(&t.come_back);
		await_waiters(self->fd, t.word, U32, 2);
		EXPECT_LAST(t.word);
		pthread_join(t.thread, NULL);
		EXPECT_EQ(MEMWAIT_OK, t.result);
		munmap(t.word, files[kind].size);
	}
}

#define CONTEXTS	4
#define TURNS		8

/*
 * A thread that waits on a word through one context after another. It begins each wait when it is
 * allowed to.
 */
struct turns {
	pthread_t thread;
	pid_t tid;
	int fds[TURNS];
	struct memwait_wait waits[TURNS];
	int more[TURNS];	/* number of further words, for WAIT_ANY, or 0 */
	int nr, go, done, results[TURNS];
};

static int take_turn(struct turns *t, int i)
{
	struct memwait_wait waits[3];

	if (!t->more[i])
		return xioctl(t->fds[i], MEMWAIT_IOC_WAIT, &t->waits[i]);
	members(waits, (uint32_t *)(uintptr_t)t->waits[i].addr, 1 + t->more[i]);
	return mw_wait_any(t->fds[i], waits, 1 + t->more[i], FOREVER, 0, NULL);
}

static void *wait_by_turns(void *arg)
{
	struct turns *t = arg;
	int i;

	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	for (i = 0; i < t->nr; i++) {
		spin_until(__atomic_load_n(&t->go, __ATOMIC_ACQUIRE) > i);
		t->results[i] = take_turn(t, i);
		__atomic_store_n(&t->done, i + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Starts the thread's next wait on a word that has @others other waiters. */
static void turn_begin(struct turns *t, int fd, uint32_t *word, int others)
{
	__atomic_store_n(&t->go, t->go + 1, __ATOMIC_RELEASE);
	await_waiters(fd, word, U32, others + 1);
}

static int turn_end(struct turns *t)
{
	spin_until(__atomic_load_n(&t->done, __ATOMIC_ACQUIRE) == t->go);
	return t->results[t->go - 1];
}

static int turn_interrupted(struct turns *t, int fd, uint32_t *word)
{
	turn_begin(t, fd, word, 0);
	interrupt_thread(t->thread, t->tid);
	return turn_end(t);
}

static int count_places(const int *fds)
{
	int i, sum = 0;

	for (i = 0; i < CONTEXTS; i++)
		sum += mw_fdinfo(fds[i], "places");
	return sum;
}

/*
 * If a thread had a position in each context, it could overtake the same waiters once for each
 * context.
 */
MEMWAIT_TEST(R12_a_thread_has_one_position_in_all_contexts)
{
	struct turns t = { .nr = TURNS };
	uint32_t *word = self->shared;
	int fds[CONTEXTS], i;

	handle(SIGUSR1, 0);
	for (i = 0; i < CONTEXTS; i++)
		fds[i] = memwait_open(0);
	for (i = 0; i < TURNS; i++) {
		t.fds[i] = fds[i % CONTEXTS];
		t.waits[i] = member(word, 0, U32);
		t.waits[i].deadline = FOREVER;
	}
	ASSERT_EQ(0, pthread_create(&t.thread, NULL, wait_by_turns, &t));
	for (i = 0; i < CONTEXTS; i++) {
		EXPECT_EQ(-EINTR, turn_interrupted(&t, self->fd, word));
		EXPECT_EQ(1, mw_fdinfo(fds[i], "places"));
		EXPECT_EQ(1, count_places(fds));
	}
	/* The thread returns to its position through a context other than the last. */
	ARM(word, 1);
	turn_begin(&t, self->fd, word, 1);
	EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, turn_end(&t));
	EXPECT_FALSE(mw_readable(self->fd));
	EXPECT_EQ(0, count_places(fds));
	/* The thread had no other position. */
	for (i = CONTEXTS + 1; i < TURNS; i++) {
		turn_begin(&t, self->fd, word, 1);
		EXPECT_LAST(word);
		EXPECT_EQ(MEMWAIT_OK, turn_end(&t));
		ARM(word, i);
	}
	pthread_join(t.thread, NULL);
	for (i = 0; i < CONTEXTS; i++)
		close(fds[i]);
}

/*
 * The position is lost by a wait on another word through any context, and by closing the context of
 * the last wait.
 */
MEMWAIT_TEST(R12_a_position_is_lost_in_all_contexts)
{
	struct turns t = { .nr = 5 };
	uint32_t *word = self->shared;
	int i, first = memwait_open(0);

	handle(SIGUSR1, 0);
	for (i = 0; i < t.nr; i++) {
		t.fds[i] = i % 3 ? self->fd : first;
		t.waits[i] = member(word, 0, U32);
		t.waits[i].deadline = FOREVER;
	}
	t.waits[1] = member(word + 1, 0, U32);
	t.waits[1].deadline = 1;
	ASSERT_EQ(0, pthread_create(&t.thread, NULL, wait_by_turns, &t));

	EXPECT_EQ(-EINTR, turn_interrupted(&t, self->fd, word));
	turn_begin(&t, self->fd, word, -1);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, turn_end(&t));
	EXPECT_EQ(0, mw_fdinfo(first, "places"));
	ARM(word, 1);
	turn_begin(&t, self->fd, word, 1);
	EXPECT_LAST(word);
	EXPECT_EQ(MEMWAIT_OK, turn_end(&t));

	EXPECT_EQ(-EINTR, turn_interrupted(&t, self->fd, word));
	EXPECT_EQ(1, mw_fdinfo(first, "places"));
	close(first);
	ARM(word, 1);
	turn_begin(&t, self->fd, word, 1);
	EXPECT_LAST(word);
	EXPECT_EQ(MEMWAIT_OK, turn_end(&t));
	pthread_join(t.thread, NULL);
}

/* After that the position belongs to the new wait, even if its first word is the same. */
MEMWAIT_TEST(R12_a_position_is_lost_by_a_wait_for_fewer_or_more_words)
{
	static const int more[][2] = { { 2, 0 }, { 0, 2 } };
	uint32_t *word = self->shared;
	size_t i;
	int j;

	handle(SIGUSR1, 0);
	for (i = 0; i < ARRAY_SIZE(more); i++) {
		struct turns t = { .nr = 3 };

		for (j = 0; j < t.nr; j++) {
			t.fds[j] = self->fd;
			t.waits[j] = member(word, 0, U32);
			t.waits[j].deadline = FOREVER;
			t.more[j] = more[i][!!j];
		}
		ASSERT_EQ(0, pthread_create(&t.thread, NULL, wait_by_turns, &t));
		EXPECT_EQ(-EINTR, turn_interrupted(&t, self->fd, word));
		ARM(word, 1);
		turn_begin(&t, self->fd, word, 1);
		interrupt_thread(t.thread, t.tid);
		EXPECT_EQ(-EINTR, turn_end(&t));
		ARM(word, 2);
		turn_begin(&t, self->fd, word, 2);
		EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));
		EXPECT_COMPLETION(self->fd, 1, MEMWAIT_OK);
		EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));
		EXPECT_FALSE(mw_readable(self->fd));
		EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));
		EXPECT_COMPLETION(self->fd, 2, MEMWAIT_OK);
		EXPECT_EQ(MEMWAIT_OK, turn_end(&t));
		pthread_join(t.thread, NULL);
	}
}

#define CLOSES	300

/*
 * A thread that leaves a queue position in one context, and immediately waits through another
 * context.
 */
struct leaver {
	pthread_t thread;
	pid_t tid;
	int fd, other;
	uint32_t *word;
	int go, away, wrong;
};

static void *leave_places(void *arg)
{
	struct leaver *l = arg;
	int i;

	__atomic_store_n(&l->tid, gettid(), __ATOMIC_RELEASE);
	for (i = 1; i <= CLOSES; i++) {
		spin_until(__atomic_load_n(&l->go, __ATOMIC_ACQUIRE) == i);
		l->wrong += mw_wait(l->other, l->word, 0, FOREVER, U32) != -EINTR;
		__atomic_store_n(&l->away, i, __ATOMIC_RELEASE);
		l->wrong += mw_wait(l->fd, l->word, 0, 1, U32) != MEMWAIT_TIMED_OUT;
	}
	return NULL;
}

MEMWAIT_TEST(R31_contexts_are_closed_while_positions_in_them_end)
{
	struct leaver l = { .fd = self->fd, .word = self->shared };
	int i;

	handle(SIGUSR1, 0);
	ASSERT_EQ(0, pthread_create(&l.thread, NULL, leave_places, &l));
	for (i = 1; i <= CLOSES; i++) {
		l.other = memwait_open(0);
		__atomic_store_n(&l.go, i, __ATOMIC_RELEASE);
		await_waiters(self->fd, l.word, U32, 1);
		pthread_kill(l.thread, SIGUSR1);
		spin_until(__atomic_load_n(&l.away, __ATOMIC_ACQUIRE) == i);
		close(l.other);
	}
	pthread_join(l.thread, NULL);
	EXPECT_EQ(0, l.wrong);
	EXPECT_EQ(0, mw_fdinfo(self->fd, "places"));
}

TEST_HARNESS_MAIN
