// SPDX-License-Identifier: GPL-2.0
/*
 * R37: the list of all waiters in debugfs: the contents of each line, and completeness during
 * concurrent calls.
 */
#include "async_test.h"
#include "several_test.h"
#include <sched.h>
#include <sys/prctl.h>

#define QUEUES		"/sys/kernel/debug/memwait/queues"
#define OWNED64		(MEMWAIT_SIZE_U64 | MEMWAIT_OWNED)

enum { WORD, KIND, PID, TID, CONTEXT, ID, WAITED, LEFT, SELF, OWNER, OWNER_TID, COMMAND, COLUMNS };

struct row {
	char text[256];
	char *column[COLUMNS];
};

/* The list, read in pieces. */
struct list {
	int fd;
	size_t piece;
	size_t length;
	size_t at;
	char buffer[4096];
};

static int list_open(struct list *list, size_t piece)
{
	list->fd = open(QUEUES, O_RDONLY);
	list->piece = piece;
	list->length = 0;
	list->at = 0;
	return list->fd < 0 ? -errno : 0;
}

/* Reads the next line. Returns whether there was a line. */
static bool list_next(struct list *list, struct row *row)
{
	size_t length = 0;
	char *next = row->text;
	ssize_t n;
	int i;

	for (;;) {
		if (list->at == list->length) {
			n = read(list->fd, list->buffer, list->piece);
			if (n <= 0)
				return false;
			list->length = (size_t)n;
			list->at = 0;
		}
		row->text[length] = list->buffer[list->at++];
		if (row->text[length] == '\n')
			break;
		if (++length == sizeof(row->text))
			return false;
	}
	row->text[length] = 0;
	for (i = 0; i < COLUMNS; i++)
		row->column[i] = strsep(&next, "\t");
	return row->column[COMMAND] && !next;
}

/* Finds the line of a waiter of this process by the word and the value of one column. */
static bool find_row(struct row *row, const char *word, int column, const char *value)
{
	struct list list;
	bool found = false;
	int pid = getpid();

	if (list_open(&list, sizeof(list.buffer)))
		return false;
	while (!found && list_next(&list, row))
		found = !strcmp(row->column[WORD], word) && atoi(row->column[PID]) == pid &&
			!strcmp(row->column[column], value);
	close(list.fd);
	return found;
}

static void private_name(char *name, size_t size, const void *address)
{
	snprintf(name, size, "0:0:%d:0x%lx", getpid(), (unsigned long)address);
}

static void text_of(char *text, uint64_t number)
{
	snprintf(text, 32, "%llu", (unsigned long long)number);
}

FIXTURE(queues)
{
	int fd;
	uint32_t *word;
	char name[64];
	long page;
};

FIXTURE_SETUP(queues)
{
	if (access("/sys/kernel/debug/clear_warn_once", F_OK))
		SKIP(return, "no debugfs");
	ASSERT_EQ(0, access(QUEUES, R_OK));
	self->page = sysconf(_SC_PAGESIZE);
	self->fd = open_device(O_NONBLOCK);
	self->word = private_page(256 * self->page);
	private_name(self->name, sizeof(self->name), self->word);
}

FIXTURE_TEARDOWN(queues)
{
	if (self->fd >= 0)
		close(self->fd);
}

#define QUEUES_TEST(name)	TEST_F_TIMEOUT(queues, name, 300)

QUEUES_TEST(R37_a_waiting_thread_is_listed)
{
	struct waiter w = { .fd = self->fd, .addr = self->word, .flags = U32,
			    .deadline = in_ms(1000000) };
	struct waiter forever = { .fd = self->fd, .addr = self->word + 1, .flags = U32,
				  .deadline = MEMWAIT_FOREVER };
	struct list list;
	char tid[32], name[64];
	struct row row;

	ASSERT_EQ(0, list_open(&list, sizeof(list.buffer)));
	ASSERT_TRUE(list_next(&list, &row));
	EXPECT_STREQ("word", row.column[WORD]);
	EXPECT_STREQ("command", row.column[COMMAND]);
	close(list.fd);

	prctl(PR_SET_NAME, "a thread\n");
	waiter_start(&w);
	waiter_start(&forever);
	text_of(tid, w.tid);
	/* The waiting time, in jiffies, increases. It may lag behind the clock. */
	do {
		ASSERT_TRUE(find_row(&row, self->name, TID, tid));
	} while (atol(row.column[WAITED]) < 40);
	EXPECT_STREQ("thread", row.column[KIND]);
	EXPECT_STREQ("-", row.column[CONTEXT]);
	EXPECT_STREQ("-", row.column[ID]);
	EXPECT_GT(300000, atol(row.column[WAITED]));
	EXPECT_LT(600000, atol(row.column[LEFT]));
	EXPECT_GT(1000000, atol(row.column[LEFT]));
	EXPECT_STREQ("-", row.column[SELF]);
	EXPECT_STREQ("-", row.column[OWNER]);
	EXPECT_STREQ("-", row.column[OWNER_TID]);
	EXPECT_STREQ("a\\040thread\\012", row.column[COMMAND]);

	text_of(tid, forever.tid);
	private_name(name, sizeof(name), self->word + 1);
	ASSERT_TRUE(find_row(&row, name, TID, tid));
	EXPECT_STREQ("-", row.column[LEFT]);

	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 1, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&forever));
	text_of(tid, w.tid);
	EXPECT_FALSE(find_row(&row, self->name, TID, tid));
}

/*
 * The second and later waits reuse the memory of an earlier wait. While the kernel's jiffies lag
 * behind the clock, the listed time may be too long, so the test tries several times.
 */
QUEUES_TEST(R37_the_waiting_time_begins_when_the_wait_joins)
{
	bool right = false;
	uint64_t id, start;
	struct row row;
	char text[32];
	int i;

	for (i = 0; i < 20 && !right; i++) {
		start = now_ns(CLOCK_MONOTONIC);
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER, U32,
						    0, &id));
		text_of(text, id);
		ASSERT_TRUE(find_row(&row, self->name, ID, text));
		right = i && atol(row.column[WAITED]) * NSEC_PER_MSEC <=
			     now_ns(CLOCK_MONOTONIC) - start + 20 * NSEC_PER_MSEC;
		ASSERT_EQ(0, mw_cancel(self->fd, id));
		usleep(100000);
	}
	EXPECT_TRUE(right);
}

QUEUES_TEST(R37_async_waits_and_groups_are_listed)
{
	uint32_t *shared = shared_page(self->page);
	struct memwait_wait words[2] = {
		{ .addr = (uintptr_t)self->word, .flags = U32 },
		{ .addr = (uintptr_t)shared, .flags = U32 },
	};
	struct memwait_async group = {
		.any = { .waits = (uintptr_t)words, .count = 2, .deadline = in_ms(1000000),
			 .flags = MEMWAIT_GROUP },
	};
	char id[32], context[32], name[96], line[256] = "";
	unsigned int major_number, minor_number;
	unsigned long long inode;
	uint64_t number;
	int fields;
	struct row row;
	FILE *maps;

	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, MEMWAIT_FOREVER, U32, 7,
					    &number));
	ASSERT_EQ(1, mw_batch(self->fd, &group, 1));
	text_of(context, mw_fdinfo(self->fd, "context"));
	text_of(id, number);
	ASSERT_TRUE(find_row(&row, self->name, ID, id));
	EXPECT_STREQ("async", row.column[KIND]);
	EXPECT_STREQ(context, row.column[CONTEXT]);
	EXPECT_STREQ("-", row.column[TID]);
	EXPECT_STREQ("-", row.column[LEFT]);

	text_of(id, group.id);
	ASSERT_TRUE(find_row(&row, self->name, ID, id));
	EXPECT_STREQ("group", row.column[KIND]);
	EXPECT_LT(600000, atol(row.column[LEFT]));

	/* For a word of a file, the line has the device and inode of /proc/PID/maps. */
	snprintf(name, sizeof(name), "%lx-", (unsigned long)shared);
	maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof(line), maps) && strncmp(line, name, strlen(name)))
		;
	fclose(maps);
	fields = sscanf(line, "%*s %*s %*s %x:%x %llu", &major_number, &minor_number, &inode);
	ASSERT_EQ(3, fields);
	snprintf(name, sizeof(name), "%u:%u:%llu:0x0", major_number, minor_number, inode);
	ASSERT_TRUE(find_row(&row, name, ID, id));
	EXPECT_STREQ("group", row.column[KIND]);

	EXPECT_EQ(1, mw_notify(self->fd, shared, 1, U32));
	EXPECT_FALSE(find_row(&row, name, ID, id));
	EXPECT_FALSE(find_row(&row, self->name, ID, id));
}

QUEUES_TEST(R37_a_thread_that_waits_for_several_words_is_listed_for_each)
{
	struct memwait_wait words[2];
	struct any_waiter w = { .fd = self->fd, .waits = words, .count = 2, .deadline = FOREVER };
	char tid[32], name[64];
	struct row row;

	members(words, self->word, 2);
	any_start(&w);
	text_of(tid, w.tid);
	ASSERT_TRUE(find_row(&row, self->name, TID, tid));
	EXPECT_STREQ("any", row.column[KIND]);
	private_name(name, sizeof(name), self->word + 1);
	ASSERT_TRUE(find_row(&row, name, TID, tid));
	EXPECT_STREQ("any", row.column[KIND]);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	pthread_join(w.thread, NULL);
	EXPECT_EQ(MEMWAIT_OK, w.result);
}

QUEUES_TEST(R37_a_persistent_wait_is_listed_with_its_realtime_deadline)
{
	uint64_t deadline = now_ns(CLOCK_REALTIME) + 1000000 * NSEC_PER_MSEC, number;
	char id[32];
	struct row row;

	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, deadline,
					    U32 | MEMWAIT_PERSISTENT | MEMWAIT_CLOCK_REALTIME, 1,
					    &number));
	text_of(id, number);
	ASSERT_TRUE(find_row(&row, self->name, ID, id));
	EXPECT_STREQ("persistent", row.column[KIND]);
	EXPECT_LT(600000, atol(row.column[LEFT]));
	EXPECT_GT(1000001, atol(row.column[LEFT]));
	/* A notify does not end the wait. */
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_TRUE(find_row(&row, self->name, ID, id));
	EXPECT_EQ(0, mw_cancel(self->fd, number));
	EXPECT_FALSE(find_row(&row, self->name, ID, id));
}

struct owned {
	int fd;
	uint64_t *word;
	uint64_t id;
	pid_t tid;
	int result;
};

static void *wait_owned(void *arg)
{
	struct owned *o = arg;
	struct memwait_owner owner = { 0 };

	o->result = xioctl(o->fd, MEMWAIT_IOC_OWNER, &owner);
	o->id = owner.id;
	o->tid = gettid();
	if (!o->result)
		o->result = mw_wait(o->fd, o->word, *o->word, MEMWAIT_FOREVER, OWNED64);
	return NULL;
}

QUEUES_TEST(R37_a_line_names_the_owner)
{
	struct memwait_owner owner = { 0 };
	struct owned o = { .fd = self->fd, .word = (uint64_t *)self->word };
	char tid[32], expected[32];
	pthread_t thread;
	struct row row;
	int ret = xioctl(self->fd, MEMWAIT_IOC_OWNER, &owner);

	if (ret == -EOPNOTSUPP)
		SKIP(return, "this kernel does not report deaths");
	ASSERT_EQ(0, ret);
	*o.word = owner.id | 1ULL << 63;
	ASSERT_EQ(0, pthread_create(&thread, NULL, wait_owned, &o));
	await_waiters(self->fd, o.word, MEMWAIT_SIZE_U64, 1);
	text_of(tid, o.tid);
	ASSERT_TRUE(find_row(&row, self->name, TID, tid));
	text_of(expected, owner.id);
	EXPECT_STREQ(expected, row.column[OWNER]);
	text_of(expected, gettid());
	EXPECT_STREQ(expected, row.column[OWNER_TID]);
	text_of(expected, o.id);
	EXPECT_STREQ(expected, row.column[SELF]);
	EXPECT_EQ(1, mw_notify(self->fd, o.word, 1, MEMWAIT_SIZE_U64));
	pthread_join(thread, NULL);
	EXPECT_EQ(MEMWAIT_OK, o.result);
}

/* Arms n waits, one on each word or all on the first word. Their ids are consecutive. */
static bool arm_many(int fd, uint32_t *words, int n, bool one)
{
	int i;

	for (i = 0; i < n; i++) {
		if (mw_arm(fd, words + (one ? 0 : i), (uint64_t)i) != MEMWAIT_PENDING)
			return false;
	}
	return true;
}

/*
 * Reads the rest of the list. Counts the lines of a context in @seen, by the index of the wait,
 * which is above the lower 8 bits of its id.
 */
static int count_lines(struct list *list, long context, unsigned char *seen, int n)
{
	struct row row;
	int nr = 0;
	unsigned long index;

	while (list_next(list, &row)) {
		if (atol(row.column[CONTEXT]) != context)
			continue;
		index = strtoull(row.column[ID], NULL, 10) >> 8;
		if (index && index <= (unsigned long)n && seen[index - 1] < 255)
			seen[index - 1]++;
		nr++;
	}
	return nr;
}

static int count_of(const unsigned char *seen, int n, int times)
{
	int i, nr = 0;

	for (i = 0; i < n; i++)
		nr += seen[i] == times;
	return nr;
}

struct churn {
	pthread_t thread;
	uint32_t *words;
	int n;
	bool joins;		/* the thread also joins and leaves the first word */
	int stop;
	long rounds;
};

/*
 * Arms many waits and closes their context, so that the trees of waiters grow and shrink. With
 * @joins, also joins and leaves the first word's queue.
 */
static void *churn_main(void *arg)
{
	struct churn *churn = arg;

	while (!__atomic_load_n(&churn->stop, __ATOMIC_RELAXED)) {
		int fd = memwait_open(O_NONBLOCK);

		if (churn->joins)
			mw_wait(fd, churn->words, 0, in_ms(1), U32);
		arm_many(fd, churn->words + churn->n, churn->n, false);
		if (churn->joins)
			arm_many(fd, churn->words, 8, true);
		close(fd);
		add_one(&churn->rounds);
	}
	return NULL;
}

static void run_churn(struct churn *churn)
{
	churn->rounds = 0;
	churn->stop = 0;
	if (pthread_create(&churn->thread, NULL, churn_main, churn))
		abort();
	await_counted(&churn->rounds);
}

static void stop_churn(struct churn *churn)
{
	__atomic_store_n(&churn->stop, 1, __ATOMIC_RELAXED);
	pthread_join(churn->thread, NULL);
}

#define MANY	8000

QUEUES_TEST(R37_many_words_are_listed_while_others_come_and_go)
{
	struct churn churn = { .words = self->word, .n = MANY };
	long context = mw_fdinfo(self->fd, "context");
	unsigned char *seen = malloc(MANY);
	struct list list;
	int i;

	ASSERT_TRUE(arm_many(self->fd, self->word, MANY, false));
	run_churn(&churn);
	for (i = 0; i < 5; i++) {
		memset(seen, 0, MANY);
		ASSERT_EQ(0, list_open(&list, sizeof(list.buffer)));
		EXPECT_EQ(MANY, count_lines(&list, context, seen, MANY));
		EXPECT_EQ(MANY, count_of(seen, MANY, 1));
		close(list.fd);
	}
	stop_churn(&churn);
	free(seen);
}

QUEUES_TEST(R37_many_waiters_of_a_word_are_listed_while_others_come_and_go)
{
	struct churn churn = { .words = self->word, .n = 100, .joins = true };
	long context = mw_fdinfo(self->fd, "context");
	unsigned char *seen = calloc(1, MANY);
	int other = memwait_open(O_NONBLOCK), nr, standing = MANY - 2000;
	struct list list;
	struct row row;

	/*
	 * The first waiters are notified, and are moved to the end, while the list is read in
	 * pieces.
	 */
	ASSERT_TRUE(arm_many(self->fd, self->word, MANY, true));
	run_churn(&churn);
	ASSERT_EQ(0, list_open(&list, 100));
	for (nr = 0; nr < 20; nr++) {
		ASSERT_TRUE(list_next(&list, &row));
		EXPECT_EQ(100, mw_notify(other, self->word, 100, U32));
	}
	count_lines(&list, context, seen, MANY);
	EXPECT_EQ(standing, count_of(seen + 2000, standing, 1));
	close(list.fd);
	stop_churn(&churn);
	close(other);
	free(seen);
}

QUEUES_TEST(R37_waiters_that_are_not_moved_are_listed)
{
	long context = mw_fdinfo(self->fd, "context");
	unsigned char *seen = calloc(1, MANY);
	struct requeued out;
	struct list list;
	struct row row;
	int nr;

	ASSERT_TRUE(arm_many(self->fd, self->word, 1000, true));
	ASSERT_EQ(0, list_open(&list, 100));
	for (nr = 0; nr < 9; nr++) {
		ASSERT_TRUE(list_next(&list, &row));
		ASSERT_EQ(0, mw_requeue(self->fd, self->word, 0, self->word, 0, 100, U32, &out));
		EXPECT_EQ(100, out.moved);
	}
	count_lines(&list, context, seen, MANY);
	EXPECT_EQ(100, count_of(seen + 900, 100, 1));
	close(list.fd);
	free(seen);
}

/* There are as many waits as a user may have, up to 100,000, a tenth of them on one word. */
QUEUES_TEST(R37_a_long_list_is_complete)
{
	int n = LOAD(100000, 5000);
	long context = mw_fdinfo(self->fd, "context");
	struct memwait_info info;
	unsigned char *seen;
	struct list list;

	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (info.max_user_waits < (uint64_t)n)
		n = info.max_user_waits / 10 * 10;
	seen = calloc(n, 1);
	ASSERT_TRUE(arm_many(self->fd, self->word, n / 10, true));
	ASSERT_TRUE(arm_many(self->fd, self->word + 1, n - n / 10, false));
	ASSERT_EQ(0, list_open(&list, sizeof(list.buffer)));
	EXPECT_EQ(n, count_lines(&list, context, seen, n));
	close(list.fd);
	EXPECT_EQ(n, count_of(seen, n, 1));
	free(seen);
}

QUEUES_TEST(R37_a_reader_of_the_list_does_not_affect_waiters)
{
	struct list lists[3];
	struct row row;
	int i;

	ASSERT_TRUE(arm_many(self->fd, self->word, 1000, true));
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, list_open(&lists[i], 4096));
		ASSERT_TRUE(list_next(&lists[i], &row));
		ASSERT_TRUE(list_next(&lists[i], &row));
		EXPECT_EQ(1000, mw_waiters(self->fd, self->word, U32));
	}
	EXPECT_EQ(900, mw_notify(self->fd, self->word, 900, U32));
	EXPECT_EQ(100, mw_waiters(self->fd, self->word, U32));
	close(lists[0].fd);
	EXPECT_EQ(100, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(100, mw_notify(self->fd, self->word, MEMWAIT_ALL, U32));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(0, mw_notify(self->fd, self->word, 1, U32));
	while (list_next(&lists[1], &row))
		;
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
	/* The word may disappear while a reader is in the middle of the list. */
	close(self->fd);
	self->fd = memwait_open(O_NONBLOCK);
	ASSERT_EQ(0, munmap(self->word, 256 * self->page));
	for (i = 1; i < 3; i++)
		close(lists[i].fd);
}

QUEUES_TEST(R37_only_root_reads_the_list)
{
	pid_t child = fork();

	if (!child) {
		if (setgid(1234) || setuid(1234))
			_exit(1);
		_exit(open(QUEUES, O_RDONLY) != -1 || errno != EACCES);
	}
	EXPECT_EQ(0, child_status(child));
}

QUEUES_TEST(R37_a_reader_holds_the_module)
{
	struct list list;
	int fd;

	ASSERT_EQ(0, list_open(&list, 4096));
	close(self->fd);
	self->fd = -1;
	EXPECT_EQ(-1, syscall(SYS_delete_module, "memwait", O_NONBLOCK));
	EXPECT_EQ(EWOULDBLOCK, errno);
	close(list.fd);
	fd = memwait_open(0);
	EXPECT_LE(0, fd);
	close(fd);
}

TEST_HARNESS_MAIN
