// SPDX-License-Identifier: GPL-2.0
/* R24, R31: which user is charged for a pending wait, and what happens at the limit. */
#include "limits_test.h"
#include "several_test.h"

LIMITS_TEST(R24_beyond_the_limit_is_enospc)
{
	struct memwait_completion done[16];
	uint64_t ids[10], id;
	int i;

	ASSERT_EQ(0, set_limit(self->user_waits + 10 + PIN_WAITS));
	for (i = 0; i < 10; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER, U32,
						    i, &ids[i]));
	EXPECT_EQ(self->user_waits + 10 + PIN_WAITS, mw_user_waits(self->fd));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(-ENOSPC, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER, U32, 0, &id));
	EXPECT_EQ(0, id);
	EXPECT_EQ(10, mw_waiters(self->fd, self->word, U32));
	/* An entry that does not wait needs no room. */
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_async(self->fd, self->word, 1, MEMWAIT_FOREVER, U32, 0,
					      NULL));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_async(self->fd, self->word, 0, 0, U32, 0, NULL));

	/* A cancelled wait makes room immediately. A completed wait makes room when it is read. */
	EXPECT_EQ(0, mw_cancel(self->fd, ids[3]));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 10));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(-ENOSPC, mw_arm(self->fd, self->word, 0));
	EXPECT_EQ(1, mw_read(self->fd, done, 16));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 11));
}

LIMITS_TEST(R24_a_batch_is_cut_at_the_limit)
{
	struct memwait_async e[8];
	struct memwait_wait_async arg = {
		.waits = (uintptr_t)e,
		.count = 8,
		.entry_size = sizeof(e[0]),
	};
	int i;

	memset(e, 0, sizeof(e));
	for (i = 0; i < 8; i++) {
		e[i].wait.addr = (uintptr_t)self->word;
		e[i].wait.deadline = MEMWAIT_FOREVER;
		e[i].wait.flags = U32;
	}
	ASSERT_EQ(0, set_limit(self->user_waits + 5 + PIN_WAITS));
	EXPECT_EQ(5, xioctl(self->fd, MEMWAIT_IOC_WAIT_ASYNC, &arg));
	EXPECT_EQ(-ENOSPC, e[5].result);
	EXPECT_EQ(0, e[5].id);
	EXPECT_EQ(5, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(-ENOSPC, xioctl(self->fd, MEMWAIT_IOC_WAIT_ASYNC, &arg));
	EXPECT_EQ(-ENOSPC, e[0].result);
}

LIMITS_TEST(R24_the_limit_applies_per_user_not_per_context)
{
	int other = memwait_open(O_NONBLOCK);
	pid_t pid;

	ASSERT_EQ(0, set_limit(self->user_waits + 2 * (1 + PIN_WAITS)));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 0));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(other, self->word, 0));
	EXPECT_EQ(-ENOSPC, mw_arm(self->fd, self->word, 0));
	EXPECT_EQ(-ENOSPC, mw_arm(other, self->word, 0));

	pid = fork_child();
	if (!pid) {
		int fd;

		if (setuid(65534))
			_exit(1);
		fd = memwait_open(O_NONBLOCK);
		if (mw_user_waits(fd))
			_exit(2);
		if (mw_arm(fd, self->word, 0) != MEMWAIT_PENDING)
			_exit(3);
		/* Waits in a context are charged to the user that opened the context. */
		if (mw_arm(other, self->word, 0) != -ENOSPC)
			_exit(4);
		_exit(0);
	}
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(2, mw_waiters(self->fd, self->word, U32));
	close(other);
}

#define USERS	"/sys/kernel/debug/memwait/users"

struct usage {
	unsigned int uid;
	long waits, contexts, owners, cached, positions, refused;
};

/* Finds the line of a user. Returns false if there is none, or if the list is not in order. */
static bool find_user(unsigned int uid, struct usage *usage)
{
	FILE *list = fopen(USERS, "r");
	struct usage row = { 0 };
	bool found = false, first = true;
	unsigned int last = 0;
	char header[80];

	if (!list)
		return false;
	if (!fgets(header, sizeof(header), list) ||
	    strcmp(header, "uid\twaits\tcontexts\towners\tcached\tpositions\trefused\n"))
		goto out;
	while (fscanf(list, "%u\t%ld\t%ld\t%ld\t%ld\t%ld\t%ld\n", &row.uid, &row.waits,
		      &row.contexts, &row.owners, &row.cached, &row.positions,
		      &row.refused) == 7) {
		if (!first && row.uid <= last) {
			found = false;
			break;
		}
		first = false;
		last = row.uid;
		if (row.uid == uid) {
			*usage = row;
			found = true;
		}
	}
out:
	fclose(list);
	return found;
}

LIMITS_TEST(R37_root_sees_what_each_user_uses)
{
	struct usage usage, root;
	int ready[2], end[2];
	char c = 0;
	pid_t pid;

	if (access(USERS, R_OK))
		SKIP(return, "debugfs is not mounted");
	ASSERT_EQ(0, pipe(ready));
	ASSERT_EQ(0, pipe(end));
	ASSERT_TRUE(find_user(getuid(), &root));
	EXPECT_EQ(self->user_waits, root.waits);
	EXPECT_FALSE(find_user(NOBODY, &usage));
	ASSERT_EQ(0, set_limit(self->user_waits + 2 + PIN_WAITS));
	pid = fork_child();
	if (!pid) {
		uint64_t id;
		int fd;

		become_nobody();
		fd = memwait_open(O_NONBLOCK);
		CHECK(memwait_open(O_NONBLOCK) >= 0);
		CHECK(!mw_owner(fd, MEMWAIT_OWNER_CONTEXT, &id));
		CHECK(!access("/proc/self", R_OK) && access(USERS, R_OK));
		CHECK(mw_arm(fd, self->word, 0) == MEMWAIT_PENDING);
		while (mw_arm(fd, self->word, 0) == MEMWAIT_PENDING)
			;
		CHECK(mw_arm(fd, self->word, 0) == -ENOSPC);
		CHECK(mw_arm(fd, self->word, 0) == -ENOSPC);
		CHECK(write(ready[1], &c, 1) == 1);
		CHECK(read(end[0], &c, 1) == 1);
		_exit(0);
	}
	ASSERT_EQ(1, read(ready[0], &c, 1));
	ASSERT_TRUE(find_user(NOBODY, &usage));
	EXPECT_EQ(self->user_waits + 2 + PIN_WAITS, usage.waits);
	EXPECT_EQ(2, usage.contexts);
	EXPECT_EQ(1, usage.owners);
	EXPECT_EQ(3, usage.refused);
	EXPECT_EQ(0, usage.positions);
	/* The requests of one user do not change the line of another user. */
	ASSERT_TRUE(find_user(getuid(), &usage));
	EXPECT_EQ(root.refused, usage.refused);
	EXPECT_EQ(root.waits, usage.waits);
	ASSERT_EQ(1, write(end[1], &c, 1));
	EXPECT_EQ(0, child_status(pid));
	/* The user is freed with its last id, which a work item reaps. */
	sleep_until(!find_user(NOBODY, &usage));
}

LIMITS_TEST(R31_a_context_caches_few_ended_waits)
{
	enum { WAITS = 2000, MOST = 512 };
	struct memwait_completion done[16];
	struct usage before, after;
	int i, n;

	if (access(USERS, R_OK))
		SKIP(return, "debugfs is not mounted");
	ASSERT_TRUE(find_user(getuid(), &before));
	for (i = 0; i < WAITS; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, i));
	EXPECT_EQ(WAITS, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	for (i = 0; i < WAITS; i += n) {
		n = mw_read(self->fd, done, 16);
		ASSERT_LT(0, n);
	}
	ASSERT_TRUE(find_user(getuid(), &after));
	EXPECT_LT(before.cached, after.cached);
	EXPECT_GE(before.cached + MOST, after.cached);
	EXPECT_TRUE(renew(&self->fd));
	ASSERT_TRUE(find_user(getuid(), &after));
	EXPECT_EQ(before.cached, after.cached);
}

/* Waits beyond the limit of cached waits are freed. No call fails, so nothing is refused. */
LIMITS_TEST(R31_a_wait_that_is_not_cached_is_not_refused)
{
	enum { CONTEXTS = 200, WAITS = 256 };
	struct memwait_completion done[WAITS];
	struct usage before, after, last;
	int fds[CONTEXTS], i, j;

	if (access(USERS, R_OK))
		SKIP(return, "debugfs is not mounted");
	ASSERT_TRUE(find_user(getuid(), &before));
	after = before;
	for (i = 0; i < CONTEXTS; i++) {
		last = after;
		fds[i] = memwait_open(O_NONBLOCK);
		ASSERT_LE(0, fds[i]);
		for (j = 0; j < WAITS; j++)
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(fds[i], self->word, j));
		ASSERT_EQ(WAITS, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
		ASSERT_EQ(WAITS, mw_read(fds[i], done, WAITS));
		ASSERT_TRUE(find_user(getuid(), &after));
		if (i && after.cached == last.cached)
			break;
	}
	EXPECT_EQ(before.refused, after.refused);
	for (j = 0; j < i; j++)
		close(fds[j]);
	if (i == CONTEXTS)
		SKIP(return, "this machine has too much memory to reach the limit");
	close(fds[i]);
}

LIMITS_TEST(R24_a_lower_limit_does_not_end_existing_waits)
{
	struct memwait_completion done[4];
	int i;

	for (i = 0; i < 4; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, i));
	ASSERT_EQ(0, set_limit(0));
	EXPECT_EQ(-ENOSPC, mw_arm(self->fd, self->word, 0));
	EXPECT_EQ(4, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(4, mw_read(self->fd, done, 4));
	/* Waits of threads are not counted. */
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, self->word, 0, in_ms(1), U32));
}

#define MANY	20000

LIMITS_TEST(R24_waits_are_charged_to_the_memory_cgroup)
{
	static uint32_t words[MANY];
	long before, after;
	int i;

	if (!make_cgroup())
		SKIP(return, "no memory cgroup v2 at /sys/fs/cgroup");
	memset(words, 0, sizeof(words));
	ASSERT_EQ(0, enter_cgroup());
	before = read_number(CGROUP "/memory.current");
	for (i = 0; i < MANY; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, &words[i], i));
	after = read_number(CGROUP "/memory.current");
	/*
	 * A wait takes 192 bytes on 64 bits. The lower bound shows that this memory is charged. The
	 * upper bound leaves room for debug options that enlarge each allocation.
	 */
	EXPECT_LT(before + MANY * 120L, after);
	EXPECT_GT(before + MANY * 500L, after);
	close(self->fd);
	self->fd = memwait_open(O_NONBLOCK);
	leave_cgroup();
}

static long charged(void)
{
	return read_number(CGROUP "/memory.current");
}

#define FILES	4000

/* Opens many files. Returns the increase of the memory charge, or -1. */
static long open_many(const char *path, int *fds)
{
	long before = charged();
	int i;

	for (i = 0; i < FILES; i++) {
		fds[i] = open(path, O_RDWR | O_CLOEXEC);
		if (fds[i] < 0)
			return -1;
	}
	return charged() - before;
}

static void close_many(const int *fds)
{
	int i;

	for (i = 0; i < FILES; i++)
		close(fds[i]);
}

/* The memory of contexts (in excess of other files) and of ids is charged. */
LIMITS_TEST(R31_contexts_and_owners_are_charged_to_the_memory_cgroup)
{
	struct rlimit many = { 2 * FILES + 100, 2 * FILES + 100 };
	static int fds[FILES], other_fds[FILES];
	long others, contexts, before;
	int i, err = 0;

	if (!make_cgroup())
		SKIP(return, "no memory cgroup v2 at /sys/fs/cgroup");
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &many));
	ASSERT_EQ(0, change_number(PARAMETERS "max_user_contexts", FILES + 100));
	ASSERT_EQ(0, change_number(PARAMETERS "max_user_owners", FILES + 100));
	/* The kernel charges memory for each CPU ahead of time. */
	ASSERT_EQ(0, bind_to(0));
	ASSERT_EQ(0, enter_cgroup());
	/* Memory that is touched for the first time is charged too, perhaps as a huge page. */
	memset(fds, 0, sizeof(fds));
	memset(other_fds, 0, sizeof(other_fds));
	/*
	 * The other files stay open, because the kernel frees the memory of closed files later:
	 * during the second measurement.
	 */
	others = open_many("/dev/null", other_fds);
	ASSERT_LE(0, others);
	contexts = open_many("/dev/memwait", fds);
	TH_LOG("%ld bytes for each context, %ld for each other file", contexts / FILES,
	       others / FILES);
	EXPECT_LT(others + FILES * 200L, contexts);
	before = charged();
	for (i = 0; i < FILES; i++) {
		err = mw_owner(fds[i], MEMWAIT_OWNER_CONTEXT, NULL);
		if (err)
			break;
	}
	TH_LOG("%ld bytes for each owner", (charged() - before) / FILES);
	EXPECT_TRUE(i == FILES || (!i && err == -EOPNOTSUPP));
	if (i)
		EXPECT_LT(before + FILES * 80L, charged());
	close_many(other_fds);
	close_many(fds);
	leave_cgroup();
}

#define THREADS	200

struct interrupted {
	pthread_t thread;
	int fd;
	pid_t tid;
	uint32_t *words;
	pthread_barrier_t *barrier;
	int results[2];
};

/* The thread uses its stack before the measurement begins. */
static void *be_interrupted_twice(void *arg)
{
	struct memwait_wait waits[MEMWAIT_GROUP_MAX];
	struct interrupted *t = arg;

	members(waits, t->words, MEMWAIT_GROUP_MAX);
	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	t->results[0] = mw_wait(t->fd, t->words, 0, FOREVER, U32);
	pthread_barrier_wait(t->barrier);
	pthread_barrier_wait(t->barrier);
	t->results[1] = mw_wait_any(t->fd, waits, MEMWAIT_GROUP_MAX, FOREVER, 0, NULL);
	pthread_barrier_wait(t->barrier);
	pthread_barrier_wait(t->barrier);
	return NULL;
}

LIMITS_TEST(R31_positions_are_charged_to_the_memory_cgroup)
{
	static struct interrupted t[THREADS];
	long before = 0, after = 0;
	pthread_barrier_t barrier;
	int round, i;

	if (!make_cgroup())
		SKIP(return, "no memory cgroup v2 at /sys/fs/cgroup");
	ASSERT_EQ(0, set_limit(self->user_waits + THREADS * (MEMWAIT_GROUP_MAX + PIN_WAITS)));
	handle(SIGUSR1, 0);
	ASSERT_EQ(0, bind_to(0));
	ASSERT_EQ(0, enter_cgroup());
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (i = 0; i < THREADS; i++) {
		t[i] = (struct interrupted) { .fd = self->fd, .words = self->word,
					      .barrier = &barrier };
		ASSERT_EQ(0, pthread_create(&t[i].thread, NULL, be_interrupted_twice, &t[i]));
	}
	for (round = 0; round < 2; round++) {
		await_waiters(self->fd, self->word, U32, THREADS);
		for (i = 0; i < THREADS; i++)
			interrupt_thread(t[i].thread, t[i].tid);
		pthread_barrier_wait(&barrier);
		EXPECT_EQ(THREADS, mw_fdinfo(self->fd, "places"));
		before = after;
		after = charged();
		pthread_barrier_wait(&barrier);
	}
	TH_LOG("%ld bytes for each queue position", (after - before) / THREADS);
	EXPECT_LT(before + THREADS * MEMWAIT_GROUP_MAX * 20L, after);
	for (i = 0; i < THREADS; i++) {
		pthread_join(t[i].thread, NULL);
		EXPECT_EQ(-EINTR, t[i].results[0]);
		EXPECT_EQ(-EINTR, t[i].results[1]);
	}
	leave_cgroup();
}

#define LEFT		4000
#define TOGETHER	64	/* number of waits armed in one call; the first stays pending */

/*
 * A user that cancels most of its waits may arm as many new waits. Therefore the cancelled waits
 * must not use memory.
 */
LIMITS_TEST(R31_a_remaining_wait_holds_no_memory_of_cancelled_waits)
{
	const int left = LOAD(LEFT, LEFT / 16);
	static struct memwait_async entries[TOGETHER];
	static uint64_t ids[LEFT][TOGETHER];
	long before, after;
	int i, j;

	if (!make_cgroup())
		SKIP(return, "no memory cgroup v2 at /sys/fs/cgroup");
	ASSERT_EQ(0, set_limit(self->user_waits + left * TOGETHER + PIN_WAITS));
	memset(ids, 0xcc, sizeof(ids));
	for (j = 0; j < TOGETHER; j++)
		entries[j].wait = (struct memwait_wait) { .addr = (uintptr_t)self->word,
							  .deadline = MEMWAIT_FOREVER,
							  .flags = U32 };
	/* The kernel charges memory for each CPU ahead of time. */
	ASSERT_EQ(0, bind_to(0));
	ASSERT_EQ(0, enter_cgroup());
	before = read_number(CGROUP "/memory.current");
	for (i = 0; i < left; i++) {
		ASSERT_EQ(TOGETHER, mw_batch(self->fd, entries, TOGETHER));
		for (j = 0; j < TOGETHER; j++)
			ids[i][j] = entries[j].id;
	}
	for (i = 0; i < left; i++) {
		for (j = 1; j < TOGETHER; j++)
			ASSERT_EQ(0, mw_cancel(self->fd, ids[i][j]));
	}
	after = read_number(CGROUP "/memory.current");
	EXPECT_EQ(left, mw_waiters(self->fd, self->word, U32));
	TH_LOG("%ld bytes for each remaining wait", (after - before) / left);
	/*
	 * This includes the memory that the context caches for reuse and the pages that are charged
	 * ahead of time.
	 */
	EXPECT_GT(before + left * 450L + (256 << 10), after);
	close(self->fd);
	self->fd = memwait_open(O_NONBLOCK);
	leave_cgroup();
}

LIMITS_TEST(R24_at_the_limit_of_the_cgroup_arming_fails_and_the_rest_works)
{
	int i, ret = MEMWAIT_PENDING, max, waiters, notified, got;
	struct memwait_completion done[4] = { 0 };
	static uint32_t words[1 << 18];
	uint64_t user_waits;
	char limit[32];

	if (!make_cgroup())
		SKIP(return, "no memory cgroup v2 at /sys/fs/cgroup");
	memset(words, 0, sizeof(words));
	ASSERT_EQ(0, enter_cgroup());
	snprintf(limit, sizeof(limit), "%ld", read_number(CGROUP "/memory.current") + (4 << 20));
	max = open(CGROUP "/memory.max", O_WRONLY);
	ASSERT_LE(0, max);
	/*
	 * At the limit a page fault would kill the process. Therefore all memory that is used later
	 * is touched now, including errno.
	 */
	EXPECT_EQ(-EAGAIN, mw_read(self->fd, done, 4));
	EXPECT_EQ(0, mw_notify(self->fd, &words[0], 1, U32));
	EXPECT_EQ(-EFAULT, mw_arm(self->fd, NULL, 0));
	ASSERT_LT(0, write(max, limit, strlen(limit)));
	for (i = 0; i < 1 << 18 && ret == MEMWAIT_PENDING; i++)
		ret = mw_arm(self->fd, &words[i], i);
	user_waits = mw_user_waits(self->fd);
	waiters = mw_waiters(self->fd, &words[i - 1], U32);
	notified = mw_notify(self->fd, &words[0], 1, U32);
	got = mw_read(self->fd, done, 4);
	ASSERT_LT(0, write(max, "max", 3));
	close(max);

	EXPECT_EQ(-ENOMEM, ret);
	EXPECT_EQ(self->user_waits + i - 1 + PIN_WAITS, user_waits);
	EXPECT_EQ(0, waiters);
	EXPECT_EQ(1, notified);
	EXPECT_EQ(1, got);
	close(self->fd);
	self->fd = memwait_open(O_NONBLOCK);
	leave_cgroup();
}

struct armer {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int armed, refused, other;
};

static void *arm_beyond(void *arg)
{
	struct armer *a = arg;
	int i, ret;

	for (i = 0; i < 500; i++) {
		ret = mw_arm(a->fd, a->word, i);
		if (ret == MEMWAIT_PENDING)
			a->armed++;
		else if (ret == -ENOSPC)
			a->refused++;
		else
			a->other++;
	}
	return NULL;
}

LIMITS_TEST(R24_threads_cannot_race_past_the_limit)
{
	struct armer a[4] = { 0 };
	int i, armed = 0;

	ASSERT_EQ(0, set_limit(self->user_waits + 777 + 3 * PIN_WAITS));
	for (i = 0; i < 4; i++) {
		a[i].fd = i % 2 ? self->fd : memwait_open(O_NONBLOCK);
		a[i].word = self->word;
		/* Therefore each of the three contexts has a pin. */
		if (i < 3)
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(a[i].fd, self->word, 0));
	}
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, pthread_create(&a[i].thread, NULL, arm_beyond, &a[i]));
	}
	for (i = 0; i < 4; i++) {
		pthread_join(a[i].thread, NULL);
		armed += a[i].armed;
		EXPECT_EQ(0, a[i].other);
	}
	EXPECT_EQ(777 - 3, armed);
	EXPECT_EQ(777, mw_waiters(self->fd, self->word, U32));
	for (i = 0; i < 4; i += 2)
		close(a[i].fd);
	EXPECT_EQ(self->user_waits + a[1].armed + a[3].armed + 1 + PIN_WAITS,
		  mw_user_waits(self->fd));
}

LIMITS_TEST(R24_a_timeout_is_counted_until_it_is_read)
{
	struct memwait_completion done;

	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, self->word, 5, 0, NULL));
	spin_until(mw_readable(self->fd));
	EXPECT_EQ(self->user_waits + 1 + PIN_WAITS, mw_user_waits(self->fd));
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

LIMITS_TEST(R24_an_entry_that_fails_is_not_counted)
{
	uint32_t *hole = private_page(4096);

	ASSERT_EQ(0, mprotect(hole, 4096, PROT_NONE));
	EXPECT_EQ(-EFAULT, mw_arm(self->fd, hole, 0));
	EXPECT_EQ(-EFAULT, mw_async(self->fd, hole, 0, MEMWAIT_FOREVER, U32 | MEMWAIT_PRIVATE, 0,
				    NULL));
	EXPECT_EQ(-EINVAL, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER, ~0U, 0, NULL));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_async(self->fd, self->word, 1, in_ms(1000), U32, 0, NULL));
	EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
}

/* A subordinate user id, as newuidmap(1) maps it. In the namespace it is user 0. */
#define SUBORDINATE	100000

/*
 * Enters a new user namespace, whose maps the parent writes, and becomes user 0 in it. Exits with
 * 77 if this is not possible.
 */
static void enter_namespace(int parent)
{
	char c = 0;

	if (unshare(CLONE_NEWUSER))
		_exit(77);
	if (write(parent, &c, 1) != 1 || read(parent, &c, 1) != 1 || setresuid(0, 0, 0))
		_exit(98);
}

/* Forks a child that calls enter_namespace(*parent). Returns 0 in the child. */
static pid_t fork_into_namespace(int *parent)
{
	int ends[2], map;
	char path[64], c;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return -1;
	pid = fork_child();
	if (!pid) {
		*parent = ends[1];
		close(ends[0]);
		return 0;
	}
	close(ends[1]);
	/* If the child has ended, its exit status shows why. */
	if (read(ends[0], &c, 1) == 1) {
		/* A process whose group is not mapped could not create a nested namespace. */
		snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
		if (write_file(path, "0 0 65536"))
			kill(pid, SIGKILL);
		snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
		map = open(path, O_WRONLY);
		if (dprintf(map, "0 %d 2\n", SUBORDINATE) > 0 && write(ends[0], &c, 1) != 1)
			kill(pid, SIGKILL);
		close(map);
	}
	close(ends[0]);
	return pid;
}

/* Arms up to n waits in a context that stays open. Returns how many waits were armed. */
static int arm_some(uint32_t *word, int n)
{
	int fd = memwait_open(0), i;

	for (i = 0; i < n; i++)
		if (mw_arm(fd, word, 0) != MEMWAIT_PENDING)
			break;
	return i;
}

/* All users of the user namespaces that a user creates are counted as that user. */
LIMITS_TEST(R31_a_user_namespace_has_no_limit_of_its_own)
{
	int parent, ret;
	pid_t pid;

	ASSERT_EQ(0, set_limit(20 + 3 * PIN_WAITS));
	pid = fork_into_namespace(&parent);
	if (!pid) {
		become_nobody();
		CHECK(arm_some(self->word, 10) == 10);
		enter_namespace(parent);
		CHECK(arm_some(self->word, 5) == 5);
		CHECK(!setresuid(1, 1, 1));
		CHECK(arm_some(self->word, 6) == 5);
		/* With nested namespaces the creator of the outermost namespace counts. */
		CHECK(!unshare(CLONE_NEWUSER));
		CHECK(arm_some(self->word, 1) == 0);
		_exit(0);
	}
	ret = child_status(pid);
	if (ret == 77)
		SKIP(return, "no user namespaces");
	EXPECT_EQ(0, ret);
}

LIMITS_TEST(R31_users_of_a_namespace_of_root_have_separate_limits)
{
	int parent, ret;
	pid_t pid;

	ASSERT_EQ(0, set_limit(20 + PIN_WAITS));
	pid = fork_into_namespace(&parent);
	if (!pid) {
		CHECK(arm_some(self->word, 10) == 10);
		enter_namespace(parent);
		CHECK(arm_some(self->word, 21) == 20);
		CHECK(!setresuid(1, 1, 1));
		CHECK(arm_some(self->word, 21) == 20);
		_exit(0);
	}
	ret = child_status(pid);
	if (ret == 77)
		SKIP(return, "no user namespaces");
	EXPECT_EQ(0, ret);
}

TEST_HARNESS_MAIN
