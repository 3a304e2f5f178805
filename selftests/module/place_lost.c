// SPDX-License-Identifier: GPL-2.0
/* R12: who has no place to come back to, or has lost it. */
#include "several_test.h"
#include <linux/membarrier.h>

/* What a process that was interrupted, and its parent, tell each other. */
struct board {
	uint32_t word;
	int away;		/* it was interrupted */
	int come_back;		/* it may call again */
};

static bool set(const int *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void tell(int *flag)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static void send_away(struct board *board, pid_t pid)
{
	await_asleep(pid);
	kill(pid, SIGUSR1);
	spin_until(set(&board->away));
}

#define ARM(word, user_data)								\
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, word, user_data))

/* The async wait is the oldest of two, and the other one is that of a process or thread. */
#define EXPECT_LAST(word)								\
	do {										\
		struct memwait_completion done;						\
											\
		EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));			\
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));				\
		EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));			\
	} while (0)

/* What the program is, of which another process has executed this one: fd, memory, and flags. */
#define PROGRAM	"MEMWAIT_PLACE_LOST"

/* The second wait, of a program that was executed. */
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

static void execute_when_interrupted(int fd, int memory, struct board *board)
{
	char *const argv[] = { "/proc/self/exe", NULL };
	char descriptors[64];
	char *const envp[] = { descriptors, NULL };

	/* Copies, which the program inherits. */
	snprintf(descriptors, sizeof(descriptors), PROGRAM "=%d,%d", dup(fd), dup(memory));
	handle(SIGUSR1, 0);
	if (mw_wait(fd, &board->word, 0, FOREVER, U32) != -EINTR)
		_exit(97);
	tell(&board->away);
	sleep_until(set(&board->come_back));
	execve(argv[0], argv, envp);
	_exit(96);
}

MEMWAIT_TEST(R12_a_program_that_is_executed_has_no_place)
{
	int memory = new_file(self->page);
	struct board *board;
	pid_t pid;

	board = map_shared(memory, self->page);
	pid = fork_child();
	if (!pid)
		execute_when_interrupted(self->fd, memory, board);
	await_waiters(self->fd, &board->word, U32, 1);
	send_away(board, pid);
	ARM(&board->word, 1);
	tell(&board->come_back);
	await_waiters(self->fd, &board->word, U32, 2);
	EXPECT_LAST(&board->word);
	EXPECT_EQ(MEMWAIT_OK, child_status(pid));
	munmap(board, self->page);
	close(memory);
}

/* A thread that waits on three words, and then on others. */
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
	tell(&t->away);
	spin_until(set(&t->come_back));
	t->result = mw_wait_any(t->fd, t->second, 3, FOREVER, 0, NULL);
	return NULL;
}

/* The place is that of all words, in their order: it is lost if one of them is another one. */
MEMWAIT_TEST(R12_a_place_is_lost_with_one_other_word)
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
		/* A word that both calls have in the same place. */
		for (same = 0; others[i][same] != (int)same; same++)
			;
		ARM(self->shared + same, 1);
		tell(&t.come_back);
		for (j = 0; j < 3; j++)
			await_waiters(self->fd, self->shared + others[i][j], U32,
				      1 + ((size_t)others[i][j] == same));
		EXPECT_LAST(self->shared + same);
		pthread_join(t.thread, NULL);
		EXPECT_EQ(MEMWAIT_OK, t.result);
	}
}

/* A thread that waits on a word, is interrupted, and waits again. */
struct twice {
	pthread_t thread;
	pid_t tid;
	int fd;
	uint32_t *word;		/* may be another one when it comes back */
	bool late;		/* it has a wait in between, which times out */
	int away, come_back, timed, result;
};

static void *come_back(void *arg)
{
	struct twice *t = arg;

	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	t->result = mw_wait(t->fd, t->word, 0, FOREVER, U32);
	if (t->result != -EINTR)
		return NULL;
	if (t->late)
		t->timed = mw_wait(t->fd, t->word, 0, in_ms(1), U32);
	tell(&t->away);
	spin_until(set(&t->come_back));
	t->result = mw_wait(t->fd, t->word, 0, FOREVER, U32);
	return NULL;
}

/* Returns when it has left. */
static void interrupt_once(struct twice *t)
{
	handle(SIGUSR1, 0);
	if (pthread_create(&t->thread, NULL, come_back, t))
		abort();
	await_waiters(t->fd, t->word, U32, 1);
	interrupt_thread(t->thread, t->tid);
	spin_until(set(&t->away));
}

MEMWAIT_TEST(R12_a_place_is_lost_with_a_time_out)
{
	struct twice t = { .fd = self->fd, .word = self->shared, .late = true };

	interrupt_once(&t);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, t.timed);
	EXPECT_EQ(0, mw_fdinfo(self->fd, "places"));
	ARM(t.word, 1);
	tell(&t.come_back);
	await_waiters(self->fd, t.word, U32, 2);
	EXPECT_LAST(t.word);
	pthread_join(t.thread, NULL);
	EXPECT_EQ(MEMWAIT_OK, t.result);
}

/* The first word of a file that nothing else refers to. */
static uint32_t *file_word(void)
{
	int file = new_file(4096);
	uint32_t *word = map_shared(file, 4096);

	close(file);
	return word;
}

/*
 * A place keeps no file: when the file has gone, another one may come to its address, and that of
 * its pages. As the kernel gives back last what it takes first, most of these do.
 */
MEMWAIT_TEST(R12_a_place_is_lost_with_its_file)
{
	int round, i;

	ASSERT_EQ(0, bind_to(0));
	for (round = 0; round < 20; round++) {
		struct twice t = { .fd = self->fd, .word = file_word() };

		interrupt_once(&t);
		munmap(t.word, 4096);
		/* Until it has been freed, after a grace period. */
		for (i = 0; i < 3; i++) {
			syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
			usleep(10000);
		}
		t.word = file_word();
		ARM(t.word, 1);
		tell(&t.come_back);
		await_waiters(self->fd, t.word, U32, 2);
		EXPECT_LAST(t.word);
		pthread_join(t.thread, NULL);
		EXPECT_EQ(MEMWAIT_OK, t.result);
		munmap(t.word, 4096);
	}
}

TEST_HARNESS_MAIN
