// SPDX-License-Identifier: GPL-2.0
/* R31: contexts, and objects that only waits pin, are counted for each user and limited. */
#include "limits_test.h"
#include "several_test.h"
#include <sys/resource.h>

/*
 * These limits are module parameters. The teardown restores them however a test ends. Each test
 * lowers a limit for a child with another user id, so that no other process is affected.
 */
#define SHARING_WAITS		50
#define FILES		50
#define SPACES		100
/* The charge of a wait and of the object that it pins. */
#define WAIT_AND_PIN		(1 + PIN_WAITS)
/* Room for a wait on each of FILES files, and SHARING_WAITS waits on one more file. */
#define LIMIT		(SHARING_WAITS + PIN_WAITS + FILES * WAIT_AND_PIN)
#define CONTEXTS	50

FIXTURE(counts)
{
	int fd;
	uint32_t *word;
};

FIXTURE_SETUP(counts)
{
	self->fd = open_device(O_NONBLOCK);
	self->word = shared_page(4096);
	if (geteuid())
		SKIP(return, "needs root to set the limits");
}

FIXTURE_TEARDOWN(counts)
{
	EXPECT_EQ(0, restore_settings());
	close(self->fd);
}

#define COUNTS_TEST(name)	TEST_F_TIMEOUT(counts, name, 300)

COUNTS_TEST(R24_R31_info_reports_the_limits_in_force)
{
	struct memwait_info info;

	ASSERT_EQ(0, mw_info(self->fd, &info));
	EXPECT_EQ((uint64_t)read_number(LIMIT_PARAMETER), info.max_user_waits);
	ASSERT_EQ(0, set_limit(1234));
	ASSERT_EQ(0, change_number(PARAMETERS "max_user_contexts", 567));
	ASSERT_EQ(0, mw_info(self->fd, &info));
	EXPECT_EQ(1234, info.max_user_waits);
	EXPECT_EQ(567, info.max_user_contexts);
	EXPECT_LE(1, info.user_contexts);
}

/* Arms a wait on a new file. After that only the wait pins the file. */
static int pin_file(int fd, uint64_t *id)
{
	int memory = new_file(4096), ret;
	void *word = map_shared(memory, 4096);

	close(memory);
	ret = mw_async(fd, word, 0, MEMWAIT_FOREVER, U32, 0, id);
	munmap(word, 4096);
	return ret;
}

/* An object that only a wait pins is released together with the wait. */
static void run_pinner(uint32_t *word)
{
	struct rlimit few = { 32, 32 };
	struct memwait_completion done[4];
	uint64_t ids[FILES], id;
	int fd, i;

	become_nobody();
	CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	fd = memwait_open(O_NONBLOCK);
	/* All waits of a context on the same file share one pin. */
	for (i = 0; i < SHARING_WAITS; i++)
		CHECK(mw_arm(fd, word + i, i) == MEMWAIT_PENDING);
	CHECK(mw_fdinfo(fd, "pins") == 1);
	CHECK(mw_user_waits(fd) == SHARING_WAITS + PIN_WAITS);
	for (i = 0; i < FILES; i++)
		CHECK(pin_file(fd, &ids[i]) == MEMWAIT_PENDING);
	CHECK(mw_fdinfo(fd, "pins") == FILES + 1);
	CHECK(mw_user_waits(fd) == LIMIT);
	for (i = 0; i < 3; i++)
		CHECK(pin_file(fd, &id) == -ENOSPC);
	CHECK(id == 0);
	CHECK(mw_fdinfo(fd, "pins") == FILES + 1);
	CHECK(mw_user_waits(fd) == LIMIT);
	/* A cancelled wait makes room for a new one. */
	CHECK(!mw_cancel(fd, ids[FILES - 7]));
	CHECK(mw_fdinfo(fd, "pins") == FILES);
	CHECK(mw_user_waits(fd) == LIMIT - WAIT_AND_PIN);
	CHECK(pin_file(fd, &ids[FILES - 7]) == MEMWAIT_PENDING);
	CHECK(pin_file(fd, &id) == -ENOSPC);

	/* The pin of a file is released when the completion of its last wait is read. */
	for (i = 0; i < SHARING_WAITS; i++)
		CHECK(mw_notify(fd, word + i, 1, U32) == 1);
	while ((i = mw_read(fd, done, 4)) > 0)
		;
	CHECK(i == -EAGAIN);
	CHECK(mw_fdinfo(fd, "pins") == FILES);
	for (i = 0; i < FILES; i++)
		CHECK(!mw_cancel(fd, ids[i]));
	CHECK(mw_user_waits(fd) == 0);
	CHECK(mw_fdinfo(fd, "pins") == 0);

	/* Closing the context also releases everything. */
	for (i = 0; i < LIMIT / WAIT_AND_PIN; i++)
		CHECK(pin_file(fd, &id) == MEMWAIT_PENDING);
	CHECK(pin_file(fd, &id) == -ENOSPC);
	CHECK(renew(&fd));
	CHECK(mw_user_waits(fd) == 0);
	_exit(0);
}

COUNTS_TEST(R31_files_that_only_waits_pin_are_counted_with_them)
{
	pid_t pid;

	ASSERT_EQ(0, set_limit(LIMIT));
	pid = fork_child();
	if (!pid)
		run_pinner(self->word);
	EXPECT_EQ(0, child_status(pid));
}

/* The words of a group share one pin for each file, in any order of the words. */
COUNTS_TEST(R31_a_group_pins_each_file_once)
{
	uint32_t *words[3] = { self->word, private_page(4096), shared_page(4096) };
	struct memwait_wait waits[9] = { 0 };
	struct memwait_async entry = {
		.any = { .waits = (uintptr_t)waits, .count = 9, .deadline = MEMWAIT_FOREVER,
			 .flags = MEMWAIT_GROUP },
	};
	uint64_t before = mw_user_waits(self->fd), id;
	int i;

	for (i = 0; i < 9; i++) {
		waits[i].addr = (uintptr_t)(words[i % 3] + i);
		waits[i].flags = U32;
	}
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, words[2], 0, MEMWAIT_FOREVER, U32, 0, &id));
	EXPECT_EQ(1, mw_fdinfo(self->fd, "pins"));
	ASSERT_EQ(1, mw_batch(self->fd, &entry, 1));
	ASSERT_EQ(MEMWAIT_PENDING, entry.result);
	EXPECT_EQ(3, mw_fdinfo(self->fd, "pins"));
	EXPECT_EQ(before + 1 + 9 + 3 * PIN_WAITS, mw_user_waits(self->fd));
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	EXPECT_EQ(3, mw_fdinfo(self->fd, "pins"));
	EXPECT_EQ(0, mw_cancel(self->fd, entry.id));
	EXPECT_EQ(0, mw_fdinfo(self->fd, "pins"));
	EXPECT_EQ(before, mw_user_waits(self->fd));
}

/* An event loop waits on shared words and on its own private word. */
COUNTS_TEST(R31_alternating_shared_and_private_words_need_two_pins)
{
	uint64_t before = mw_user_waits(self->fd);
	uint32_t *own = private_page(4096);
	int i;

	for (i = 0; i < 100; i++) {
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word + i, 0));
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, own + i, 0, MEMWAIT_FOREVER,
						    U32 | MEMWAIT_PRIVATE, 0, NULL));
	}
	EXPECT_EQ(2, mw_fdinfo(self->fd, "pins"));
	EXPECT_EQ(before + 200 + 2 * PIN_WAITS, mw_user_waits(self->fd));
	ASSERT_TRUE(renew(&self->fd));
	EXPECT_EQ(before, mw_user_waits(self->fd));
}

struct refused {
	int fd;
	uint32_t *word;
	int stop;
	long calls;
};

/* Each call fails, because the kernel cannot write the result. */
static void *arm_in_vain(void *arg)
{
	struct refused *r = arg;
	struct memwait_async *entry = private_page(4096);

	entry->wait = (struct memwait_wait) {
		.addr = (uintptr_t)r->word,
		.deadline = MEMWAIT_FOREVER,
		.flags = U32,
	};
	mprotect(entry, 4096, PROT_READ);
	while (!__atomic_load_n(&r->stop, __ATOMIC_RELAXED))
		if (mw_batch(r->fd, entry, 1) == -EFAULT)
			add_one(&r->calls);
	return NULL;
}

COUNTS_TEST(R31_a_refused_call_refunds_its_charge)
{
	uint64_t before = mw_user_waits(self->fd), end, id;
	uint32_t *other = shared_page(4096);
	struct refused r = { .fd = self->fd, .word = other };
	pthread_t thread;

	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 0));
	ASSERT_EQ(0, pthread_create(&thread, NULL, arm_in_vain, &r));
	end = in_ms(2000);
	while (now_ns(CLOCK_MONOTONIC) < end || !counted(&r.calls)) {
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, other, 0, MEMWAIT_FOREVER, U32, 0,
						    &id));
		ASSERT_EQ(0, mw_cancel(self->fd, id));
	}
	__atomic_store_n(&r.stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	EXPECT_EQ(before + 1 + PIN_WAITS, mw_user_waits(self->fd));
	EXPECT_EQ(1, mw_fdinfo(self->fd, "pins"));
}

/*
 * The second file exceeds the limit. After that the counts are unchanged, and a call within the
 * limit succeeds.
 */
COUNTS_TEST(R31_a_call_that_was_refused_leaves_no_count)
{
	uint32_t *words[2] = { shared_page(4096), shared_page(4096) };
	struct memwait_wait both[2] = { member(words[0], 0, U32), member(words[1], 0, U32) };
	uint64_t before = mw_user_waits(self->fd), id;
	int i;

	ASSERT_EQ(0, set_limit(before + 2 + 2 * PIN_WAITS - 1));
	for (i = 0; i < 300; i++) {
		ASSERT_EQ(-ENOSPC, mw_group(self->fd, both, 2, MEMWAIT_FOREVER, 0, 0, NULL));
		ASSERT_EQ(before, mw_user_waits(self->fd));
		ASSERT_EQ(0, mw_fdinfo(self->fd, "pins"));
		ASSERT_EQ(-ENOSPC, mw_group(self->fd, both, 2, MEMWAIT_FOREVER, 0, 0, NULL));
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, words[0], 0, MEMWAIT_FOREVER, U32, 0,
						    &id));
		ASSERT_EQ(0, mw_cancel(self->fd, id));
	}
	for (i = 0; i < 2; i++)
		munmap(words[i], 4096);
}

/* Each child arms a wait on its own private word and exits. */
static int pin_space(int fd)
{
	pid_t pid = fork_child();

	if (!pid) {
		uint32_t *word = private_page(4096);
		int ret = mw_async(fd, word, 0, MEMWAIT_FOREVER, U32 | MEMWAIT_PRIVATE, 0, NULL);

		_exit(ret == MEMWAIT_PENDING ? 0 : ret == -ENOSPC ? 77 : 1);
	}
	return child_status(pid);
}

static void run_space_pinner(void)
{
	int fd, i;

	become_nobody();
	fd = memwait_open(O_NONBLOCK);
	for (i = 0; i < SPACES; i++)
		CHECK(pin_space(fd) == 0);
	CHECK(mw_fdinfo(fd, "pins") == SPACES);
	for (i = 0; i < 3; i++)
		CHECK(pin_space(fd) == 77);
	CHECK(mw_fdinfo(fd, "pins") == SPACES);
	CHECK(mw_user_waits(fd) == SPACES * WAIT_AND_PIN);
	CHECK(renew(&fd));
	CHECK(mw_user_waits(fd) == 0);
	_exit(0);
}

COUNTS_TEST(R31_address_spaces_of_dead_processes_are_counted_with_waits)
{
	pid_t pid;

	ASSERT_EQ(0, set_limit(SPACES * WAIT_AND_PIN));
	pid = fork_child();
	if (!pid)
		run_space_pinner();
	EXPECT_EQ(0, child_status(pid));
}

static void run_opener(void)
{
	int fds[CONTEXTS], i;

	become_nobody();
	for (i = 0; i < CONTEXTS; i++) {
		fds[i] = memwait_open(0);
		CHECK(fds[i] >= 0);
	}
	CHECK(mw_user_contexts(fds[0]) == CONTEXTS);
	for (i = 0; i < 3; i++)
		CHECK(memwait_open(0) == -EMFILE);
	CHECK(mw_user_contexts(fds[0]) == CONTEXTS);
	close(fds[3]);
	CHECK(mw_user_contexts(fds[0]) == CONTEXTS - 1);
	CHECK(memwait_open(0) >= 0);
	CHECK(memwait_open(0) == -EMFILE);
	_exit(0);
}

COUNTS_TEST(R31_contexts_are_counted)
{
	pid_t pid;
	int i;

	ASSERT_EQ(0, change_number(PARAMETERS "max_user_contexts", CONTEXTS));
	/*
	 * The second round succeeds, because the contexts of the dead process have been released.
	 */
	for (i = 0; i < 2; i++) {
		pid = fork_child();
		if (!pid)
			run_opener();
		EXPECT_EQ(0, child_status(pid));
	}
}

/*
 * If a move created a pin, a process could use up the limit of another user. Moves within a file,
 * as by a condition variable, would leave the other user's waits with a pin for each context that
 * moved them, until the user reads the completions.
 */
COUNTS_TEST(R31_a_move_within_a_file_creates_no_pin)
{
	int mover = open_device(O_NONBLOCK), elsewhere = new_file(4096);
	struct memwait_requeue requeue = {
		.addr = (uintptr_t)self->word,
		.target = (uintptr_t)(self->word + 1),
		.move = 1,
		.flags = U32,
	};
	uint32_t *other;

	other = map_shared(elsewhere, 4096);
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 0));
	EXPECT_EQ(0, xioctl(mover, MEMWAIT_IOC_REQUEUE, &requeue));
	EXPECT_EQ(1, requeue.moved);
	EXPECT_EQ(1, mw_fdinfo(self->fd, "pins"));
	EXPECT_EQ(0, mw_fdinfo(mover, "pins"));
	EXPECT_EQ(1, mw_waiters(self->fd, self->word + 1, U32));

	/* If the mover chooses another file, that file is not pinned for any user. */
	requeue.addr = (uintptr_t)(self->word + 1);
	requeue.target = (uintptr_t)other;
	EXPECT_EQ(-EXDEV, xioctl(mover, MEMWAIT_IOC_REQUEUE, &requeue));
	EXPECT_EQ(1, mw_waiters(self->fd, self->word + 1, U32));
	EXPECT_EQ(1, mw_fdinfo(self->fd, "pins"));
	EXPECT_EQ(0, mw_fdinfo(mover, "pins"));
	close(mover);
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 1, 1, U32));
	munmap(other, 4096);
	close(elsewhere);
}

TEST_HARNESS_MAIN
