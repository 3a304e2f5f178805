// SPDX-License-Identifier: GPL-2.0
/* R33, R34: ids of owners, and the death notifications of waiters. */
#include "owner_test.h"
#include "several_test.h"

#define OWNER_LIMIT	"/sys/module/memwait/parameters/max_user_owners"

OWNER_TEST(R33_a_thread_has_the_same_id_in_each_context)
{
	int other = memwait_open(0);

	EXPECT_EQ(0, self->id & ~MEMWAIT_OWNER_MASK);
	EXPECT_EQ(self->id, my_id(self->fd));
	EXPECT_EQ(self->id, my_id(other));
	close(other);
	EXPECT_EQ(self->id, my_id(self->fd));
	EXPECT_EQ(self->owners, mw_user_owners(self->fd));
}

OWNER_TEST(R33_a_context_has_a_separate_id)
{
	int other = memwait_open(0);
	uint64_t one, two, again;

	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, &one));
	ASSERT_EQ(0, mw_owner(other, MEMWAIT_OWNER_CONTEXT, &two));
	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, &again));
	EXPECT_EQ(one, again);
	EXPECT_NE(one, two);
	EXPECT_NE(one, self->id);
	EXPECT_NE(0, one);
	EXPECT_EQ(self->owners + 2, mw_user_owners(self->fd));
	EXPECT_TRUE(lives(self->fd, two));
	close(other);
	EXPECT_FALSE(lives(self->fd, two));
	EXPECT_TRUE(lives(self->fd, one));
}

/* Ids are distinct. An id reveals nothing about the next id. */
OWNER_TEST(R33_no_id_is_reused)
{
	struct owned_waiter w = { .fd = self->fd };
	uint64_t ids[501] = { self->id };
	int i, ascending = 0;
	pthread_t thread;

	for (i = 1; i <= 500; i++) {
		ASSERT_EQ(0, pthread_create(&thread, NULL, publish_id, &w));
		pthread_join(thread, NULL);
		ids[i] = w.id;
		EXPECT_NE(0, w.id);
		EXPECT_EQ(0, w.id & ~MEMWAIT_OWNER_MASK);
		ascending += ids[i] > ids[i - 1];
	}
	/* The bounds are ten standard deviations from the mean. */
	EXPECT_LT(186, ascending);
	EXPECT_GT(314, ascending);
	qsort(ids, ARRAY_SIZE(ids), sizeof(ids[0]), compare_numbers);
	for (i = 1; i <= 500; i++)
		EXPECT_LT(1 << 16, ids[i] - ids[i - 1]);
	mw_await_owners(self->fd, self->owners);
}

OWNER_TEST(R33_bad_arguments)
{
	struct memwait_owner arg = { 0 };
	int bit;

	for (bit = 2; bit < 32; bit++)
		EXPECT_EQ(-EINVAL, mw_owner(self->fd, 1U << bit, NULL));
	EXPECT_EQ(-EINVAL, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_EXIT, NULL));
	for (bit = 0; bit < 32; bit++) {
		arg.reserved = 1U << bit;
		EXPECT_EQ(-EINVAL, xioctl(self->fd, MEMWAIT_IOC_OWNER, &arg));
	}
}

/* If the id cannot be written to the caller, no new id remains, and an existing id stays valid. */
OWNER_TEST(R31_an_id_that_cannot_be_written_is_not_created)
{
	struct memwait_owner *arg = (struct memwait_owner *)self->shared;
	static const uint32_t flags[] = { 0, MEMWAIT_OWNER_CONTEXT, MEMWAIT_OWNER_EXIT };
	int fd = memwait_open(O_NONBLOCK), i;
	pid_t pid;

	for (i = 0; i < 3; i++) {
		memset(arg, 0, sizeof(*arg));
		arg->flags = flags[i];
		ASSERT_EQ(0, mprotect(self->shared, self->page, PROT_READ));
		EXPECT_EQ(-EFAULT, xioctl(fd, MEMWAIT_IOC_OWNER, arg));
		/* This thread has an id; a child has no id. */
		pid = run_in_child(xioctl(fd, MEMWAIT_IOC_OWNER, arg) != -EFAULT);
		EXPECT_EQ(0, child_status(pid));
		EXPECT_EQ(self->owners, mw_user_owners(self->fd));
		ASSERT_EQ(0, mprotect(self->shared, self->page, PROT_READ | PROT_WRITE));
	}
	EXPECT_TRUE(lives(self->fd, self->id));
	close(fd);
}

OWNER_TEST(R34_a_waiter_without_an_id_is_eperm)
{
	struct memwait_notify_wait both = {
		.notify = { .addr = (uintptr_t)&self->shared->go, .count = 1, .flags = U32 },
		.wait = { .addr = (uintptr_t)&self->shared->word, .flags = OWNED64 },
	};
	struct waiter w = thread_at(self->fd, &self->shared->go);
	uint64_t id;

	/* The thread has an id, but the context has no id yet. */
	EXPECT_EQ(-EPERM, mw_async(self->fd, &self->shared->word, 0, 0, OWNED64, 0, NULL));
	EXPECT_EQ(-EPERM, mw_async(self->fd, &self->shared->word, 1, 0, OWNED64, 0, NULL));
	EXPECT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, &id));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_async(self->fd, &self->shared->word, 0, 0, OWNED64, 0,
					      NULL));

	EXPECT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_EXIT, &id));
	EXPECT_EQ(self->id, id);
	EXPECT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_EXIT, &id));
	EXPECT_EQ(0, id);
	EXPECT_EQ(-EPERM, mw_wait(self->fd, &self->shared->word, 0, 0, OWNED64));
	EXPECT_EQ(-EPERM, mw_wait(self->fd, &self->shared->word, 1, 0, OWNED64));
	EXPECT_EQ(-EPERM, mw_wait(self->fd, NULL, 1, 0, OWNED64));
	EXPECT_EQ(-EINVAL, mw_wait(self->fd, &self->shared->go, 0, 0, OWNED64));

	/* The failed call did not notify either. */
	waiter_start(&w);
	EXPECT_EQ(-EPERM, xioctl(self->fd, MEMWAIT_IOC_NOTIFY_WAIT, &both));
	EXPECT_EQ(1, mw_waiters(self->fd, &self->shared->go, U32));
	EXPECT_EQ(1, mw_notify(self->fd, &self->shared->go, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	EXPECT_NE(0, my_id(self->fd));
}

OWNER_TEST(R34_value_then_owner_then_deadline)
{
	uint64_t *word = &self->shared->word;

	*word = 1;	/* no owner has this id, with near certainty */
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait(self->fd, word, 2, 0, OWNED64));
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, word, 1, 0, OWNED64));
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, word, 1, MEMWAIT_FOREVER, OWNED64));
	*word = self->id;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, word, *word, 0, OWNED64));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, word, *word, in_ms(1), OWNED64));
	*word = 0;
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, word, 0, 0, OWNED64));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, word, 0, in_ms(1), OWNED64));
}

OWNER_TEST(R34_the_upper_two_bits_belong_to_the_program)
{
	uint64_t *word = &self->shared->word;
	uint64_t bits;

	for (bits = 0; bits < 4; bits++) {
		*word = self->id | bits << 62;
		EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, word, *word, 0, OWNED64));
		EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait(self->fd, word, *word ^ 1ULL << 62, 0,
						     OWNED64));
		*word = bits << 62;
		EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, word, *word, 0, OWNED64));
		*word = 1 | bits << 62;
		EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, word, *word, 0, OWNED64));
	}
}

OWNER_TEST(R34_invented_ids_belong_to_dead_owners)
{
	static const uint64_t ids[] = { 1, 2, 1ULL << 32, 1ULL << 61, MEMWAIT_OWNER_MASK };
	uint64_t *word = &self->shared->word;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		*word = ids[i];
		EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, word, *word, MEMWAIT_FOREVER,
						      OWNED64));
	}
	*word = ~0ULL;
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, word, *word, MEMWAIT_FOREVER, OWNED64));
	*word = self->id + 1000000;	/* no owner has this id, with near certainty */
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_wait(self->fd, word, *word, MEMWAIT_FOREVER, OWNED64));
	EXPECT_EQ(0, mw_waiters(self->fd, word, U64));
}

#define JOINING	256

/* A context that ends while waits that name it join their queues. */
struct ending {
	int fd;
	uint64_t when;
};

static int end_context(struct ending *ending)
{
	while (now_ns(CLOCK_MONOTONIC) < ending->when)
		;
	return close(ending->fd);
}

/* Arms a wait on each word, while the context that the words name ends. */
static void arm_while_owner_ends(struct memwait_async *entries, const uint64_t *words, int fd,
				 struct ending *ending, uint64_t *random)
{
	static uint64_t duration = 1;
	struct runner runner;
	uint64_t begun;
	int i;

	for (i = 0; i < JOINING; i++) {
		entries[i] = (struct memwait_async) {
			.wait = member(&words[i], words[i], OWNED64),
		};
		entries[i].wait.deadline = MEMWAIT_FOREVER;
	}
	runner_create(&runner, CALL_WITH(end_context, ending), ending, 0);
	begun = now_ns(CLOCK_MONOTONIC);
	ending->when = begun + next_random(random) % duration;
	runner_release(&runner);
	if (mw_batch(fd, entries, JOINING) != JOINING)
		abort();
	duration = now_ns(CLOCK_MONOTONIC) - begun;
	if (runner_join(&runner))
		abort();
}

/*
 * Waits see that their owner is alive, and join while it dies. Each of them ends with OWNER_DIED,
 * either immediately or later, and leaves its queue.
 */
OWNER_TEST(R34_an_owner_dies_while_waits_join)
{
	static struct memwait_completion completions[JOINING];
	static struct memwait_async entries[JOINING];
	static uint64_t words[JOINING];
	uint64_t random = 88172645463325252ULL, end = in_ms(LOAD(2000, 500)), id;
	struct pollfd pfd = { .fd = self->fd, .events = POLLIN };
	int i, j, ended, pending, divided = 0, rounds = 0;

	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	while (now_ns(CLOCK_MONOTONIC) < end || (!divided && !has_one_processor())) {
		struct ending ending = { .fd = memwait_open(0) };

		ASSERT_EQ(0, mw_owner(ending.fd, MEMWAIT_OWNER_CONTEXT, &id));
		for (i = 0; i < JOINING; i++)
			words[i] = id;
		arm_while_owner_ends(entries, words, self->fd, &ending, &random);

		/* The waits before the death are pending. */
		for (pending = 0; pending < JOINING; pending++)
			if (entries[pending].result != MEMWAIT_PENDING)
				break;
		for (i = pending; i < JOINING; i++)
			ASSERT_EQ(MEMWAIT_OWNER_DIED, entries[i].result);
		if (pending < JOINING)
			ASSERT_EQ(0, mw_waiters(self->fd, &words[pending], U64));
		for (ended = 0; ended < pending; ended += i) {
			ASSERT_EQ(1, poll(&pfd, 1, poll_patience(20)));
			i = mw_read(self->fd, completions, JOINING);
			ASSERT_LT(0, i);
			for (j = 0; j < i; j++)
				ASSERT_EQ(MEMWAIT_OWNER_DIED, completions[j].result);
		}
		divided += pending && pending < JOINING;
		rounds++;
	}
	TH_LOG("%d rounds; in %d of them the owner died during the batch", rounds, divided);
}

/* A smaller word cannot contain an id, whatever its value is. */
OWNER_TEST(R34_a_smaller_word_names_no_owner)
{
	uint32_t size;

	self->shared->word = 0x0101010101010101;
	for (size = MEMWAIT_SIZE_U8; size <= MEMWAIT_SIZE_U32; size++)
		EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, &self->shared->word, 0x01010101, 0,
						     size | MEMWAIT_OWNED));
}

OWNER_TEST(R34_only_the_oldest_owned_waiter_gets_owner_died)
{
	struct shared *shared = self->shared;
	pid_t pid = start_owner(shared, IS_KILLED);
	struct waiter plain = { .fd = self->fd, .addr = &shared->word, .expected = shared->id,
				.deadline = MEMWAIT_FOREVER, .flags = U64 };
	struct owned_waiter w[3];
	int i;

	shared->word = shared->id;
	waiter_start(&plain);
	for (i = 0; i < 3; i++) {
		w[i] = (struct owned_waiter) { .fd = self->fd, .addr = &shared->word, .stays = 1,
					       .expected = shared->id, .flags = OWNED64 };
		owned_waiter_start(&w[i]);
	}
	kill_child(pid);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_result(&w[0]));
	EXPECT_EQ(3, mw_waiters(self->fd, &shared->word, U64));

	/* Each notified waiter dies, and the next waiter receives OWNER_DIED. */
	for (i = 1; i < 3; i++) {
		owned_waiter_join(&w[i - 1]);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_result(&w[i]));
		EXPECT_EQ(3 - i, mw_waiters(self->fd, &shared->word, U64));
	}
	owned_waiter_join(&w[2]);
	EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&plain));
}

/* Tests words of every size. None of the words names an owner. */
OWNER_TEST(R34_a_waiter_that_was_woken_and_dies_passes_the_word_on)
{
	struct shared *shared = self->shared;
	uint32_t size;
	pid_t pids[3];
	int i;

	for (size = MEMWAIT_SIZE_U8; size <= MEMWAIT_SIZE_U64; size++) {
		for (i = 0; i < 3; i++)
			pids[i] = owned_child_start(self->fd, &shared->children[i], &shared->word,
						    0, size | MEMWAIT_OWNED);
		EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, size));
		EXPECT_EQ(MEMWAIT_OK, owned_child_result(&shared->children[0], 1));
		EXPECT_EQ(2, mw_waiters(self->fd, &shared->word, size));
		kill_child(pids[0]);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_child_result(&shared->children[1], 1));
		EXPECT_EQ(1, mw_waiters(self->fd, &shared->word, size));
		/*
		 * This waiter received OWNER_DIED and, instead of dying, wakes the next waiter.
		 * After that the word watches the next waiter.
		 */
		EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, size));
		EXPECT_EQ(MEMWAIT_OK, owned_child_result(&shared->children[2], 1));
		kill_child(pids[1]);
		kill_child(pids[2]);
	}
}

/*
 * The next waiter names a thread that became the owner in the meantime. Only the death of this
 * thread matters.
 */
OWNER_TEST(R34_the_latest_named_owner_counts)
{
	struct shared *shared = self->shared;
	pid_t old = start_owner(shared, IS_KILLED), new;
	struct owned_waiter w[2];
	uint64_t id = shared->id;

	shared->word = id;
	w[0] = (struct owned_waiter) { .fd = self->fd, .addr = &shared->word, .stays = 1,
				       .expected = id, .flags = OWNED64 };
	owned_waiter_start(&w[0]);
	new = start_owner(shared, IS_KILLED);
	shared->word = shared->id;
	w[1] = w[0];
	w[1].expected = shared->id;
	owned_waiter_start(&w[1]);
	kill_child(old);
	while (lives(self->fd, id))
		;
	EXPECT_EQ(2, mw_waiters(self->fd, &shared->word, U64));
	kill_child(new);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_result(&w[0]));
	EXPECT_EQ(1, mw_waiters(self->fd, &shared->word, U64));
	owned_waiter_join(&w[0]);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w[1]));
}

OWNER_TEST(R34_an_event_loop_gets_owner_died)
{
	struct shared *shared = self->shared;
	pid_t pid = start_owner(shared, IS_KILLED);
	struct pollfd pfd = { .fd = self->fd, .events = POLLIN };
	struct memwait_completion done;
	uint64_t id;

	shared->word = shared->id;
	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, &id));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, &shared->word, shared->id, MEMWAIT_FOREVER,
					    OWNED64, 42, NULL));
	kill_child(pid);
	ASSERT_EQ(1, poll(&pfd, 1, poll_patience(100)));
	ASSERT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(MEMWAIT_OWNER_DIED, done.result);
	EXPECT_EQ(42, done.user_data);
	EXPECT_EQ(0, done.count);
	EXPECT_EQ(0, done.index);
	EXPECT_EQ(0, done.flags);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, mw_async(self->fd, &shared->word, shared->id,
					       MEMWAIT_FOREVER, OWNED64, 42, NULL));
}

/*
 * An event loop received OWNER_DIED and did not read it, or read it and did not act. Its close
 * counts as a death, which is reported to the next waiter.
 */
OWNER_TEST(R34_a_loop_that_got_owner_died_and_closes_passes_the_word_on)
{
	struct shared *shared = self->shared;
	struct memwait_completion done;
	int reads;

	for (reads = 0; reads < 2; reads++) {
		pid_t pid = start_owner(shared, IS_KILLED);
		struct owned_waiter w = { .fd = self->fd, .addr = &shared->word,
					  .expected = shared->id, .flags = OWNED64 };
		int loop = memwait_open(0);

		shared->word = shared->id;
		ASSERT_EQ(0, mw_owner(loop, MEMWAIT_OWNER_CONTEXT, NULL));
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(loop, &shared->word, shared->id,
						    in_ms(1000000), OWNED64, 1, NULL));
		owned_waiter_start(&w);
		kill_child(pid);
		spin_until(mw_readable(loop));
		EXPECT_EQ(1, mw_waiters(self->fd, &shared->word, U64));
		if (reads)
			EXPECT_EQ(1, mw_read(loop, &done, 1));
		close(loop);
		EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w));
	}
}

OWNER_TEST(R34_a_moved_waiter_gets_the_deaths_of_the_target)
{
	struct shared *shared = self->shared;
	pid_t pid = start_owner(shared, IS_KILLED);
	struct owned_waiter stays = { .fd = self->fd, .addr = &shared->word, .stays = 1,
				      .expected = shared->id, .flags = OWNED64 };
	struct owned_waiter moved = { .fd = self->fd, .addr = &shared->result, .flags = OWNED64 };
	struct memwait_requeue arg = {
		.addr = (uintptr_t)&shared->result,
		.target = (uintptr_t)&shared->word,
		.move = 1,
		.flags = U64,
	};

	shared->word = shared->id;
	owned_waiter_start(&stays);
	owned_waiter_start(&moved);
	ASSERT_EQ(0, xioctl(self->fd, MEMWAIT_IOC_REQUEUE, &arg));
	ASSERT_EQ(1, arg.moved);
	kill_child(pid);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_result(&stays));
	EXPECT_EQ(1, mw_waiters(self->fd, &shared->word, U64));
	owned_waiter_join(&stays);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&moved));
}

static int move_all(int fd, const void *addr, const void *target)
{
	struct memwait_requeue arg = {
		.addr = (uintptr_t)addr,
		.target = (uintptr_t)target,
		.move = MEMWAIT_ALL,
		.flags = U32,
	};
	int ret = xioctl(fd, MEMWAIT_IOC_REQUEUE, &arg);

	return ret ? ret : (int)arg.moved;
}

/*
 * If waiters are moved to the word on which they already wait, they are still notified of the death
 * of the owner that they watch.
 */
OWNER_TEST(R34_waiters_moved_to_their_own_word_get_owner_died)
{
	struct shared *shared = self->shared;
	struct child_result *children = shared->children;
	pid_t pids[2];
	int i;

	for (i = 0; i < 2; i++)
		pids[i] = owned_child_start(self->fd, &children[i], &shared->small, 0, OWNED32);
	EXPECT_EQ(1, mw_notify(self->fd, &shared->small, 1, U32));
	EXPECT_EQ(1, move_all(self->fd, &shared->small, &shared->small));
	EXPECT_EQ(MEMWAIT_OK, owned_child_result(&children[0], 1));
	kill_child(pids[0]);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_child_result(&children[1], 1));
	kill_child(pids[1]);
}

/* A later waiter can name the current owner even if that owner belongs to another user. */
OWNER_TEST(R34_a_waiter_of_another_user_can_name_the_owner)
{
	struct shared *shared = self->shared;
	pid_t old = start_owner(shared, IS_KILLED), new, unrelated;
	struct owned_waiter w = { .fd = self->fd, .addr = &shared->word, .expected = shared->id,
				  .flags = OWNED64 };

	if (geteuid()) {
		kill_child(old);
		SKIP(return, "needs root to become another user");
	}
	shared->word = shared->id;
	owned_waiter_start(&w);
	new = start_owner(shared, IS_KILLED);
	shared->word = shared->id;
	unrelated = fork_child();
	if (!unrelated) {
		int fd;

		if (setgid(65534) || setuid(65534))
			_exit(1);
		fd = memwait_open(0);
		my_id(fd);
		mw_wait(fd, &shared->word, shared->word, MEMWAIT_FOREVER, OWNED64);
		pause();
	}
	await_waiters(self->fd, &shared->word, U64, 2);
	kill_child(new);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w));
	kill_child(unrelated);
	kill_child(old);
}

OWNER_TEST(R34_cancelled_and_late_waiters_are_passed_over)
{
	struct shared *shared = self->shared;
	pid_t pid = start_owner(shared, IS_KILLED);
	struct owned_waiter w = { .fd = self->fd, .addr = &shared->word, .expected = shared->id,
				  .flags = OWNED64 };
	uint64_t id;

	shared->word = shared->id;
	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, &shared->word, shared->id, MEMWAIT_FOREVER,
					    OWNED64, 0, &id));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, &shared->word, shared->id, in_ms(2),
					     OWNED64));
	owned_waiter_start(&w);
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	kill_child(pid);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, owned_waiter_join(&w));
	EXPECT_FALSE(mw_readable(self->fd));
}

/* The word names no owner, so it watches no owner yet. */
OWNER_TEST(R34_the_first_waiter_leaves_a_word_before_an_owner_is_watched)
{
	struct shared *shared = self->shared;
	pid_t pid = start_owner(shared, IS_KILLED);
	struct owned_waiter w = { .fd = self->fd, .addr = &shared->word, .expected = shared->id,
				  .flags = OWNED64 };
	struct memwait_completion done;
	uint64_t first;

	shared->word = 0;
	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, &shared->word, 0, MEMWAIT_FOREVER, OWNED64,
					    1, &first));
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, &shared->word, 0, MEMWAIT_FOREVER, OWNED64,
					    2, NULL));
	EXPECT_EQ(0, mw_cancel(self->fd, first));
	shared->word = shared->id;
	owned_waiter_start(&w);
	kill_child(pid);
	/* Now the second waiter is the oldest waiter. */
	sleep_until(mw_readable(self->fd));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(MEMWAIT_OWNER_DIED, done.result);
	EXPECT_EQ(2, done.user_data);
	EXPECT_EQ(1, mw_notify(self->fd, &shared->word, 1, U64));
	EXPECT_EQ(MEMWAIT_OK, owned_waiter_join(&w));
}

OWNER_TEST(R31_owners_are_limited)
{
	struct owned_waiter w = { .fd = self->fd };
	pthread_t thread;
	int fd;

	if (geteuid())
		SKIP(return, "needs root to set the limit");
	ASSERT_EQ(0, change_number(OWNER_LIMIT, self->owners + 1));
	fd = memwait_open(0);
	EXPECT_EQ(0, mw_owner(fd, MEMWAIT_OWNER_CONTEXT, NULL));
	EXPECT_EQ(-ENOSPC, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	EXPECT_EQ(self->id, my_id(self->fd));
	w.id = 1;
	ASSERT_EQ(0, pthread_create(&thread, NULL, publish_id, &w));
	pthread_join(thread, NULL);
	EXPECT_EQ(0, w.id);
	close(fd);
	/* The id counts until the waiters of its words have been notified of the death. */
	mw_await_owners(self->fd, self->owners);
	EXPECT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
}

/* The limit applies to living owners. The next thread gets an id, however fast threads end. */
OWNER_TEST(R31_dead_owners_do_not_count_against_the_limit)
{
	struct owned_waiter w = { .fd = self->fd };
	int i, refused = 0;
	pthread_t thread;

	if (geteuid())
		SKIP(return, "needs root to set the limit");
	/* No kernel thread runs in the meantime. */
	ASSERT_EQ(0, pin(10));
	/* The exit of a joined thread may not have been processed yet. */
	ASSERT_EQ(0, change_number(OWNER_LIMIT, self->owners + 4));
	for (i = 0; i < LOAD(2000, 400); i++) {
		w.id = 0;
		ASSERT_EQ(0, pthread_create(&thread, NULL, publish_id, &w));
		pthread_join(thread, NULL);
		refused += !w.id;
	}
	EXPECT_EQ(0, refused);
}

OWNER_TEST(R26_a_thread_with_an_id_holds_the_module)
{
	long before = settled_references(self->fd);
	struct owned_waiter w = { .fd = memwait_open(0), .stays = 1 };

	if (before < 0)
		SKIP(return, "the module is built in");
	ASSERT_EQ(0, pthread_create(&w.thread, NULL, publish_id, &w));
	await_id(&w.id);
	close(w.fd);
	EXPECT_LT(before, read_number(REFCNT));
	owned_waiter_join(&w);
	sleep_until(read_number(REFCNT) == before);
}

/*
 * R35: threads lock, unlock and are killed at random, and the remaining threads continue. The word
 * names its owner. A thread that finds the word locked sets the top bit and waits.
 */
#define CONTENDED	(MEMWAIT_OWNER_MASK + 1)
#define LOCKERS		4

static int lock_word(int fd, uint64_t *word, uint64_t me)
{
	uint64_t old = 0;
	int ret = MEMWAIT_OK;

	if (__atomic_compare_exchange_n(word, &old, me, false, __ATOMIC_ACQUIRE,
					__ATOMIC_RELAXED))
		return 0;
	for (;;) {
		uint64_t owner = old & MEMWAIT_OWNER_MASK;

		/*
		 * The lock is free, or its owner is dead. Acquire it as contended, because other
		 * threads may be waiting.
		 */
		if (!owner || ret == MEMWAIT_OWNER_DIED) {
			if (__atomic_compare_exchange_n(word, &old, me | CONTENDED, false,
							__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
				return owner ? EOWNERDEAD : 0;
			ret = MEMWAIT_OK;
			continue;
		}
		if (!(old & CONTENDED) &&
		    !__atomic_compare_exchange_n(word, &old, old | CONTENDED, false,
						 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		old |= CONTENDED;
		ret = mw_wait(fd, word, old, MEMWAIT_FOREVER, OWNED64);
		/* The reported death may not be that of the owner. Check the current owner. */
		if (ret == MEMWAIT_OWNER_DIED) {
			old = __atomic_load_n(word, __ATOMIC_RELAXED);
			if (old & MEMWAIT_OWNER_MASK)
				ret = mw_wait(fd, word, old, 0, OWNED64);
		} else {
			old = __atomic_load_n(word, __ATOMIC_RELAXED);
		}
	}
}

static void unlock_word(int fd, uint64_t *word)
{
	if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) & CONTENDED)
		mw_notify(fd, word, 1, U64);
}

struct locked {
	uint64_t word;
	uint64_t inside;	/* id of the thread that holds the lock */
	uint64_t turns;
	uint64_t recovered;
	uint64_t broken;
};

static void lock_forever(struct locked *l)
{
	int fd = memwait_open(0);
	uint64_t me = my_id(fd);

	for (;;) {
		if (lock_word(fd, &l->word, me) == EOWNERDEAD)
			l->recovered++;
		else if (l->inside)
			l->broken++;
		l->inside = me;
		l->turns++;
		if (l->inside != me)
			l->broken++;
		l->inside = 0;
		unlock_word(fd, &l->word);
	}
}

OWNER_TEST(R35_a_lock_survives_its_owners)
{
	struct locked *l = (struct locked *)(self->shared + 1);
	uint64_t random = 2463534242ULL, end = in_ms(LOAD(5000, 1000)), turns;
	struct timespec pause = { 0, 0 };
	pid_t pids[LOCKERS];
	int i, deaths = 0;

	for (i = 0; i < LOCKERS; i++) {
		pids[i] = fork_child();
		if (!pids[i])
			lock_forever(l);
	}
	while (deaths < LOAD(100, 30) || now_ns(CLOCK_MONOTONIC) < end ||
	       !__atomic_load_n(&l->recovered, __ATOMIC_RELAXED)) {
		pause.tv_nsec = next_random(&random) % 3000000;
		nanosleep(&pause, NULL);
		i = next_random(&random) % LOCKERS;
		kill_child(pids[i]);
		deaths++;
		/* The other threads continue: a new turn begins after the death. */
		turns = __atomic_load_n(&l->turns, __ATOMIC_ACQUIRE);
		spin_until(__atomic_load_n(&l->turns, __ATOMIC_ACQUIRE) != turns);
		pids[i] = fork_child();
		if (!pids[i])
			lock_forever(l);
	}
	for (i = 0; i < LOCKERS; i++)
		kill_child(pids[i]);
	TH_LOG("%d kills, %llu of them of the owner, %llu turns", deaths,
	       (unsigned long long)l->recovered, (unsigned long long)l->turns);
	EXPECT_EQ(0, l->broken);
	EXPECT_LT(0, l->recovered);
}

/*
 * R29: an owner of a million locks dies. Its waiters are notified in steps, each of them once. On
 * kernels with debugging there are fewer locks, which still take several work items.
 */
OWNER_TEST(R29_a_million_words_of_one_owner)
{
	const int n = LOAD(1 << 20, 1 << 12), batch = 1024;
	struct shared *shared = self->shared;
	struct memwait_async *entries = calloc(batch, sizeof(*entries));
	struct memwait_completion *done = calloc(batch, sizeof(*done));
	uint64_t *words, start, id;
	int i, j, got, armed = 0;
	pid_t pid;

	words = private_page(n * sizeof(*words));
	ASSERT_TRUE(geteuid() || !set_limit(n));
	ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL));
	pid = start_owner(shared, IS_KILLED);
	id = shared->id;
	while (armed < n) {
		/*
		 * The previous call may have done only a part of a batch. Therefore the last batch
		 * may be smaller.
		 */
		for (j = 0; j < batch && armed + j < n; j++) {
			words[armed + j] = id;
			entries[j].wait = (struct memwait_wait) {
				.addr = (uintptr_t)&words[armed + j],
				.expected = id,
				.deadline = MEMWAIT_FOREVER,
				.flags = OWNED64,
			};
			entries[j].user_data = armed + j;
		}
		got = mw_batch(self->fd, entries, j);
		armed += got > 0 ? got : 0;
		/* The machine may have too little memory for all waits. */
		if (got == -ENOSPC || got == -ENOMEM)
			break;
		ASSERT_LT(0, got);
	}
	ASSERT_LT(batch, armed);
	kill_child(pid);
	start = now_ns(CLOCK_MONOTONIC);
	for (i = 0; i < armed; i += got) {
		struct pollfd pfd = { .fd = self->fd, .events = POLLIN };

		ASSERT_EQ(1, poll(&pfd, 1, poll_patience(200)));
		got = mw_read(self->fd, done, batch);
		ASSERT_LT(0, got);
		for (j = 0; j < got; j++) {
			ASSERT_EQ(MEMWAIT_OWNER_DIED, done[j].result);
			ASSERT_EQ(id, words[done[j].user_data]);
			words[done[j].user_data] = 0;
		}
	}
	TH_LOG("%d waiters were notified of the death in %llu ms", armed,
	       (unsigned long long)((now_ns(CLOCK_MONOTONIC) - start) / NSEC_PER_MSEC));
	munmap(words, n * sizeof(*words));
	free(entries);
	free(done);
}

TEST_HARNESS_MAIN
