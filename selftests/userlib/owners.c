// SPDX-License-Identifier: GPL-2.0
/*
 * Word functions: ids of threads, waits that receive death notifications, and change-and-notify
 * functions.
 */
#include "death_test.h"

FIXTURE(owners)
{
	memwait_loop_t *loop;
	uint64_t *word;		/* in shared memory */
	struct hold *hold;	/* in shared memory */
	uint64_t id;		/* of this thread */
	long page;
	int fd;
};

FIXTURE_SETUP(owners)
{
	struct memwait_info info;
	char *shared;

	self->fd = open_device(0);
	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel does not report deaths");
	self->page = sysconf(_SC_PAGESIZE);
	shared = shared_page(2 * self->page);
	self->word = (uint64_t *)shared;
	self->hold = (struct hold *)(shared + self->page);
	ASSERT_EQ(0, memwait_owner(&self->id));
	ASSERT_EQ(0, memwait_loop_new(&self->loop, 0));
}

FIXTURE_TEARDOWN(owners)
{
	EXPECT_EQ(0, memwait_waiters(self->word, 0));
	EXPECT_EQ(0, memwait_loop_pending(self->loop));
	EXPECT_EQ(0, memwait_loop_close(self->loop));
	close(self->fd);
}

#define OWNERS_TEST(name)	TEST_F_TIMEOUT(owners, name, 300)

/* Returns the id that the kernel reports. */
static uint64_t id_of_ioctl(int fd)
{
	struct memwait_owner arg = { 0 };

	return xioctl(fd, MEMWAIT_IOC_OWNER, &arg) ? 0 : arg.id;
}

/* Writes the thread's id to the word, as the owner of a lock does. */
static int write_id(void *word)
{
	uint64_t id;
	int ret = memwait_owner(&id);

	if (!ret)
		__atomic_store_n((uint64_t *)word, id, __ATOMIC_RELEASE);
	return ret;
}

OWNERS_TEST(R33_an_id_stays_the_same)
{
	uint64_t id = 0;
	int i;

	EXPECT_EQ(-EINVAL, memwait_owner(NULL));
	EXPECT_NE(0, self->id);
	EXPECT_EQ(0, self->id & ~MEMWAIT_OWNER_MASK);
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(0, memwait_owner(&id));
		EXPECT_EQ(self->id, id);
	}
	EXPECT_EQ(self->id, id_of_ioctl(self->fd));
}

OWNERS_TEST(R33_each_thread_and_each_process_has_its_own_id)
{
	uint64_t ids[ENDS + 1] = { self->id };
	struct owner owner;
	int how, before;

	for (how = 0; how < ENDS; how++) {
		ASSERT_EQ(0, owner_start(&owner, self->hold, how, write_id, self->word));
		ids[how + 1] = *self->word;
		EXPECT_NE(0, ids[how + 1]);
		for (before = 0; before <= how; before++)
			EXPECT_NE(ids[before], ids[how + 1]);
		owner_end_and_reap(&owner);
	}
	EXPECT_EQ(self->id, id_of_ioctl(self->fd));
}

/* A child has its own id, whether or not its parent had an id. */
static int fork_with_id(void *arg)
{
	uint64_t *ids = arg;
	pid_t pid;

	if (ids[0] && write_id(&ids[1]))
		return 1;
	pid = run_in_child(write_id(&ids[2]));
	if (child_status(pid) || write_id(&ids[3]))
		return 2;
	return 0;
}

OWNERS_TEST(R33_a_child_has_its_own_id)
{
	int asks_before;

	for (asks_before = 0; asks_before < 2; asks_before++) {
		memset(self->word, 0, 4 * sizeof(uint64_t));
		self->word[0] = asks_before;
		EXPECT_EQ(0, in_child(fork_with_id, self->word));
		EXPECT_NE(0, self->word[2]);
		EXPECT_NE(self->id, self->word[2]);
		EXPECT_NE(self->word[3], self->word[2]);
		EXPECT_NE(self->id, self->word[3]);
		if (asks_before) {
			EXPECT_EQ(self->word[1], self->word[3]);
		}
	}
}

/* Returns the result of a wait for a word that names an owner. */
static int look(const uint64_t *word)
{
	const struct timespec none = { 0, 0 };

	return memwait_wait64(word, *word, &none, MEMWAIT_OWNED);
}

OWNERS_TEST(R34_a_wait_reports_whether_the_owner_lives)
{
	const struct timespec none = { 0, 0 };
	struct owner owner;
	uint64_t bits;
	int how;

	for (how = 0; how < ENDS; how++) {
		ASSERT_EQ(0, owner_start(&owner, self->hold, how, write_id, self->word));
		EXPECT_EQ(MEMWAIT_TIMED_OUT, look(self->word));
		owner_end(&owner);
		for (bits = 0; bits < 4; bits++) {
			*self->word = (*self->word & MEMWAIT_OWNER_MASK) | bits << 62;
			EXPECT_EQ(MEMWAIT_OWNER_DIED, look(self->word)) {
				TH_LOG("end %d", how);
			}
			EXPECT_EQ(MEMWAIT_OWNER_DIED, memwait_wait64(self->word, *self->word, NULL,
								     MEMWAIT_OWNED));
			EXPECT_EQ(MEMWAIT_OWNER_DIED,
				  memwait_wait64(self->word, *self->word, NULL,
						 MEMWAIT_OWNED | MEMWAIT_PRIVATE));
			/* A wait without MEMWAIT_OWNED is not notified of deaths. */
			EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait64(self->word, *self->word, &none,
								    0));
			EXPECT_EQ(MEMWAIT_NOT_EQUAL, memwait_wait64(self->word, *self->word + 1,
								    NULL, MEMWAIT_OWNED));
		}
		owner_reap(&owner);
	}
	*self->word = self->id;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, look(self->word));
	*self->word = 0;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, look(self->word));
	*self->word = self->id + 1000000;
	EXPECT_EQ(MEMWAIT_OWNER_DIED, look(self->word));
}

/* A thread or child needs no id before its first wait. */
static int look_without_id(void *word)
{
	return look(word);
}

OWNERS_TEST(R34_a_waiter_needs_no_id_before)
{
	*self->word = self->id;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, elsewhere(look_without_id, self->word));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, in_child(look_without_id, self->word));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, look(self->word));
}

struct word_wait {
	uint64_t *word;
	uint64_t expected;
	int size;
	bool notifies;		/* the notify is made by notify_wait */
	unsigned int flags;
};

static int wait_sized(void *arg)
{
	struct word_wait *wait = arg;

	if (wait->notifies)
		return memwait_notify_wait64(wait->word + 1, 1, wait->word, wait->expected, NULL,
					     wait->flags, NULL);
	switch (wait->size) {
	case MEMWAIT_SIZE_U8:
		return memwait_wait8(wait->word, wait->expected, NULL, wait->flags);
	case MEMWAIT_SIZE_U16:
		return memwait_wait16(wait->word, wait->expected, NULL, wait->flags);
	case MEMWAIT_SIZE_U32:
		return memwait_wait32(wait->word, wait->expected, NULL, wait->flags);
	default:
		return memwait_wait64(wait->word, wait->expected, NULL, wait->flags);
	}
}

static int arm_sized(struct word_wait *wait, memwait_op_t *op)
{
	switch (wait->size) {
	case MEMWAIT_SIZE_U8:
		return memwait_wait8_async(wait->word, wait->expected, NULL, wait->flags, op);
	case MEMWAIT_SIZE_U16:
		return memwait_wait16_async(wait->word, wait->expected, NULL, wait->flags, op);
	case MEMWAIT_SIZE_U32:
		return memwait_wait32_async(wait->word, wait->expected, NULL, wait->flags, op);
	default:
		return memwait_wait64_async(wait->word, wait->expected, NULL, wait->flags, op);
	}
}

/*
 * First the owner dies. Then each waiter that was notified dies without a reaction, one after
 * another.
 */
OWNERS_TEST(R34_the_oldest_waiter_is_notified)
{
	struct counted_op counted = counted_by(&counted, self->loop);
	struct word_wait wait = { .word = self->word, .size = MEMWAIT_SIZE_U64,
				  .flags = MEMWAIT_OWNED };
	struct word_wait both = wait;
	struct runner runners[2];
	struct owner owner;

	both.notifies = true;
	ASSERT_EQ(0, owner_start(&owner, self->hold, IS_KILLED, write_id, self->word));
	wait.expected = *self->word;
	both.expected = *self->word;
	runner_start(&runners[0], wait_sized, &wait);
	await_waiters(self->fd, self->word, 0, 1);
	runner_start(&runners[1], wait_sized, &both);
	await_waiters(self->fd, self->word, 0, 2);
	ASSERT_EQ(MEMWAIT_PENDING, arm_sized(&wait, &counted.op));
	owner_end_and_reap(&owner);
	/*
	 * The first waiter is notified and its thread ends. Then the second waiter is notified, and
	 * so on.
	 */
	EXPECT_EQ(MEMWAIT_OWNER_DIED, runner_join(&runners[0]));
	EXPECT_EQ(MEMWAIT_OWNER_DIED, runner_join(&runners[1]));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(MEMWAIT_OWNER_DIED, counted.result);
	/* If the owner is dead already, the call itself returns MEMWAIT_OWNER_DIED. */
	EXPECT_EQ(MEMWAIT_OWNER_DIED, arm_sized(&wait, &counted.op));
	EXPECT_EQ(0, memwait_op_pending(&counted.op));
	EXPECT_EQ(1, counted.calls);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, elsewhere(wait_sized, &both));
}

/* Forks a process that waits and exits with the result. */
static pid_t fork_waiter(int fd, struct word_wait *wait, int waiters)
{
	pid_t pid = run_in_child(wait_sized(wait));

	await_waiters(fd, wait->word, 0, waiters);
	return pid;
}

/*
 * A small word cannot contain an owner id, but a woken waiter that dies is replaced. exit(3) counts
 * as a death.
 */
OWNERS_TEST(R34_the_next_waiter_is_notified_of_a_woken_waiters_death)
{
	struct counted_op counted = { 0 };
	struct word_wait wait = { .word = self->word, .expected = 1, .flags = MEMWAIT_OWNED };
	pid_t pids[2];

	for (wait.size = MEMWAIT_SIZE_U8; wait.size <= MEMWAIT_SIZE_U32; wait.size++) {
		/*
		 * The operation is initialised again: otherwise the waiter, which was notified,
		 * would return to its queue position.
		 */
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		*self->word = 0x0101010101010101;
		wait.expected = *self->word;
		pids[0] = fork_waiter(self->fd, &wait, 1);
		pids[1] = fork_waiter(self->fd, &wait, 2);
		counted.calls = 0;
		ASSERT_EQ(MEMWAIT_PENDING, arm_sized(&wait, &counted.op));
		EXPECT_EQ(1, memwait_notify(self->word, 1, 0));
		EXPECT_EQ(MEMWAIT_OK, child_status(pids[0]));
		EXPECT_EQ(MEMWAIT_OWNER_DIED, child_status(pids[1]));
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(MEMWAIT_OWNER_DIED, counted.result);
	}
}

OWNERS_TEST(R34_a_cancelled_operation_passes_the_notification_on)
{
	struct word_wait wait = { .word = self->word, .size = MEMWAIT_SIZE_U64,
				  .flags = MEMWAIT_OWNED };
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner runner;
	struct owner owner;
	int ret;

	ASSERT_EQ(0, owner_start(&owner, self->hold, IS_KILLED, write_id, self->word));
	wait.expected = *self->word;
	ASSERT_EQ(MEMWAIT_PENDING, arm_sized(&wait, &counted.op));
	runner_start(&runner, wait_sized, &wait);
	await_waiters(self->fd, self->word, 0, 2);
	owner_end_and_reap(&owner);
	await_waiters(self->fd, self->word, 0, 1);
	EXPECT_EQ(0, memwait_op_cancel(&counted.op));
	ret = runner_join(&runner);
	EXPECT_TRUE(ret == MEMWAIT_OK || ret == MEMWAIT_OWNER_DIED);
	EXPECT_EQ(0, counted.calls);
}

OWNERS_TEST(R34_waits_that_cannot_be_owned)
{
	struct memwait_wait waits[2] = {
		{ .addr = (uintptr_t)self->word, .flags = MEMWAIT_SIZE_U64 },
		{ .addr = (uintptr_t)(self->word + 1), .flags = MEMWAIT_SIZE_U64 | MEMWAIT_OWNED },
	};
	const struct timespec none = { 0, 0 };
	struct counted_op counted = counted_by(&counted, self->loop);

	EXPECT_EQ(-EINVAL, memwait_wait_any(waits, 1, &none, MEMWAIT_OWNED, NULL));
	EXPECT_EQ(-EINVAL, memwait_wait_any(waits, 2, &none, 0, NULL));
	EXPECT_EQ(-EINVAL, memwait_wait_any_async(waits, 1, &none, MEMWAIT_OWNED, &counted.op));
	EXPECT_EQ(-EINVAL, memwait_wait_any_async(waits, 2, &none, 0, &counted.op));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, memwait_wait_any(waits, 1, &none, 0, NULL));
	EXPECT_EQ(-EINVAL, memwait_notify(self->word, 1, MEMWAIT_OWNED));
	EXPECT_EQ(-EINVAL, memwait_waiters(self->word, MEMWAIT_OWNED));
	EXPECT_EQ(-EINVAL, memwait_requeue64(self->word, 0, self->word + 1, 1, 1, MEMWAIT_OWNED,
					     NULL, NULL));
	EXPECT_EQ(-EINVAL, memwait_change_notify32(self->word, MEMWAIT_CHANGE_SET, 0, 1,
						   MEMWAIT_OWNED, NULL));
	EXPECT_EQ(-EINVAL, memwait_wait64((char *)self->word + 4, 0, &none, MEMWAIT_OWNED));
	EXPECT_EQ(-EFAULT, memwait_wait64(NULL, 0, &none, MEMWAIT_OWNED));
	EXPECT_EQ(0, memwait_op_pending(&counted.op));
}

OWNERS_TEST(R38_each_operation)
{
	static const struct {
		unsigned int operation;
		uint32_t before, operand, after;
	} cases[] = {
		{ MEMWAIT_CHANGE_SET, 7, 12, 12 },
		{ MEMWAIT_CHANGE_ADD, 7, 12, 19 },
		{ MEMWAIT_CHANGE_ADD, 7, -8U, UINT32_MAX },
		{ MEMWAIT_CHANGE_ADD, UINT32_MAX, 1, 0 },
		{ MEMWAIT_CHANGE_AND, 0xff00ff00, 0x0ff00ff1, 0x0f000f00 },
		{ MEMWAIT_CHANGE_OR, 0xff00ff00, 0x0ff00ff1, 0xfff0fff1 },
		{ MEMWAIT_CHANGE_XOR, 0xff00ff00, 0x0ff00ff1, 0xf0f0f0f1 },
	};
	static const unsigned int flags[] = { 0, MEMWAIT_PRIVATE };
	uint32_t *word = (uint32_t *)self->word;
	uint32_t old;
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
		word[0] = cases[i / 2].before;
		word[1] = 0x12345678;
		EXPECT_EQ(0, memwait_change_notify32(word, cases[i / 2].operation,
						     cases[i / 2].operand, MEMWAIT_ALL,
						     flags[i % 2], &old));
		EXPECT_EQ(cases[i / 2].before, old);
		EXPECT_EQ(cases[i / 2].after, word[0]);
		EXPECT_EQ(0x12345678, word[1]);
	}
	EXPECT_EQ(0, memwait_change_notify32(word, MEMWAIT_CHANGE_SET, 5, 0, 0, NULL));
	EXPECT_EQ(5, word[0]);
}

OWNERS_TEST(R38_wakes_up_to_count)
{
	uint32_t *word = (uint32_t *)self->word;
	struct word_wait wait = { .word = self->word, .size = MEMWAIT_SIZE_U32 };
	struct runner runners[4];
	unsigned int private;
	int i;

	for (private = 0; private <= MEMWAIT_PRIVATE; private += MEMWAIT_PRIVATE) {
		*word = 0;
		wait.flags = private;
		for (i = 0; i < 4; i++) {
			runner_start(&runners[i], wait_sized, &wait);
			await_waiters(self->fd, word, private, i + 1);
		}
		EXPECT_EQ(0, memwait_change_notify32(word, MEMWAIT_CHANGE_ADD, 1, 0, private,
						     NULL));
		EXPECT_EQ(1, memwait_change_notify32(word, MEMWAIT_CHANGE_ADD, 1, 1, private,
						     NULL));
		EXPECT_EQ(MEMWAIT_OK, runner_join(&runners[0]));
		EXPECT_EQ(3, memwait_waiters(word, private));
		EXPECT_EQ(3, memwait_change_notify32(word, MEMWAIT_CHANGE_ADD, 1, MEMWAIT_ALL,
						     private, NULL));
		for (i = 1; i < 4; i++)
			EXPECT_EQ(MEMWAIT_OK, runner_join(&runners[i]));
		EXPECT_EQ(3, *word);
	}
}

OWNERS_TEST(R38_a_refused_call_changes_nothing)
{
	uint32_t *word = (uint32_t *)self->word;
	struct word_wait wait = { .word = self->word, .expected = 7, .size = MEMWAIT_SIZE_U32 };
	struct runner runner;
	uint32_t old = 99;
	unsigned int bit;
	int i;

	word[0] = 7;
	word[1] = 7;
	runner_start(&runner, wait_sized, &wait);
	await_waiters(self->fd, word, 0, 1);
	EXPECT_EQ(-EINVAL, memwait_change_notify32(word, MEMWAIT_CHANGE_XOR + 1, 1, 1, 0, &old));
	EXPECT_EQ(-EINVAL, memwait_change_notify32(word, ~0U, 1, 1, 0, &old));
	for (i = 1; i < 4; i++)
		EXPECT_EQ(-EINVAL, memwait_change_notify32((char *)word + i, MEMWAIT_CHANGE_SET, 1,
							   1, 0, &old));
	for (bit = 1; bit; bit <<= 1) {
		if (bit == MEMWAIT_PRIVATE)
			continue;
		EXPECT_EQ(-EINVAL, memwait_change_notify32(word, MEMWAIT_CHANGE_SET, 1, 1, bit,
							   &old));
	}
	EXPECT_EQ(-EFAULT, memwait_change_notify32(NULL, MEMWAIT_CHANGE_SET, 1, 1, 0, &old));
	EXPECT_EQ(-EFAULT, memwait_change_notify32(NULL, MEMWAIT_CHANGE_SET, 1, 1, MEMWAIT_PRIVATE,
						   &old));
	ASSERT_EQ(0, mprotect(word, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, memwait_change_notify32(word, MEMWAIT_CHANGE_SET, 1, 1, 0, &old));
	EXPECT_EQ(-EFAULT, memwait_change_notify32(word, MEMWAIT_CHANGE_SET, 1, 1, MEMWAIT_PRIVATE,
						   &old));
	ASSERT_EQ(0, mprotect(word, self->page, PROT_READ | PROT_WRITE));
	EXPECT_EQ(99, old);
	EXPECT_EQ(7, word[0]);
	EXPECT_EQ(7, word[1]);
	EXPECT_EQ(1, memwait_waiters(word, 0));
	EXPECT_FALSE(runner_is_done(&runner));
	EXPECT_EQ(1, memwait_change_notify32(word, MEMWAIT_CHANGE_SET, 1, 1, 0, NULL));
	EXPECT_EQ(MEMWAIT_OK, runner_join(&runner));
}

TEST_HARNESS_MAIN
