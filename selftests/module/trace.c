// SPDX-License-Identifier: GPL-2.0
/*
 * R37: tracepoints record exactly the events that happened. The order is not checked, because a
 * woken thread may record its event before the thread that woke it. R31: one test uses the events
 * to see an order.
 */
#include "async_test.h"
#include "../patching_test.h"
#include "several_test.h"
#include <stdarg.h>
#include <sys/sysmacros.h>

#define TRACING		"/sys/kernel/tracing"
#define INSTANCE	TRACING "/instances/memwait-test"
#define LINES		64
#define PRIVATE		(U32 | MEMWAIT_PRIVATE)

struct lines {
	int nr;
	char text[LINES][192];
};

FIXTURE(trace)
{
	int fd;
	int file;
	uint32_t *shared;	/* second page of the file and following pages */
	uint32_t *private;
	char name[64];		/* name of the file */
	long page;
	long context;
	uint64_t offline;	/* mask of CPU numbers */
	struct lines expected;
};

FIXTURE_SETUP(trace)
{
	struct stat st;

	if (access(TRACING "/events", F_OK))
		SKIP(return, "this kernel has no memwait events");
	ASSERT_EQ(0, access(TRACING "/events/memwait", F_OK));
	if (!begin_patching(&self->offline))
		SKIP(return, "emulation with more than one processor");

	self->page = sysconf(_SC_PAGESIZE);
	self->fd = open_device(O_NONBLOCK);
	self->file = new_file(2 * self->page);
	self->shared = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, self->file,
			    self->page);
	ASSERT_NE(MAP_FAILED, self->shared);
	self->private = private_page(self->page);
	ASSERT_EQ(0, fstat(self->file, &st));
	snprintf(self->name, sizeof(self->name), "%u:%u:%llu", major(st.st_dev),
		 minor(st.st_dev), (unsigned long long)st.st_ino);
	self->context = mw_fdinfo(self->fd, "context");
	ASSERT_LT(0, self->context);
	self->expected.nr = 0;
	mkdir(INSTANCE, 0700);
	ASSERT_EQ(0, write_number(INSTANCE "/events/memwait/enable", 1));
}

FIXTURE_TEARDOWN(trace)
{
	if (self->fd > 0)
		close(self->fd);
	rmdir(INSTANCE);
	end_patching(self->offline);
}

static int compare_lines(const void *a, const void *b)
{
	return strcmp(a, b);
}

/*
 * Disables the events. Returns false on failure. Otherwise stores the recorded lines without times.
 */
static bool recorded(struct lines *lines, uint64_t *waited)
{
	char line[512], *event, *time;
	FILE *f;

	lines->nr = 0;
	if (write_number(INSTANCE "/events/memwait/enable", 0))
		return false;
	f = fopen(INSTANCE "/trace", "r");
	while (f && fgets(line, sizeof(line), f)) {
		event = strstr(line, ": memwait_");
		if (!event || line[0] == '#')
			continue;
		line[strcspn(line, "\n")] = 0;
		time = strstr(event, " waited_ns=");
		if (time && waited)
			*waited = strtoull(time + strlen(" waited_ns="), NULL, 10);
		if (time)
			*time = 0;
		if (lines->nr < LINES)
			snprintf(lines->text[lines->nr++], sizeof(lines->text[0]), "%s",
				 event + strlen(": memwait_"));
	}
	if (f)
		fclose(f);
	return f;
}

/* Returns the name that a word of the file has in events. */
static const char *in_file(const char *name, uint64_t offset)
{
	static char text[4][112];
	static int next;
	char *one = text[next++ % 4];

	snprintf(one, sizeof(text[0]), "word=%s:0x%llx", name, (unsigned long long)offset);
	return one;
}

static const char *at_address(const void *address)
{
	char name[32];

	snprintf(name, sizeof(name), "0:0:%d", getpid());
	return in_file(name, (uintptr_t)address);
}

/* Adds an expected line. */
static void expect(struct lines *lines, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(lines->text[lines->nr++], sizeof(lines->text[0]), format, args);
	va_end(args);
}

#define EXPECT_EVENT(...)	expect(&self->expected, __VA_ARGS__)

#define EXPECT_RECORDED(waited)							\
({										\
	struct lines seen_;							\
	int i_;									\
	ASSERT_TRUE(recorded(&seen_, (waited)));				\
	EXPECT_EQ(self->expected.nr, seen_.nr);					\
	qsort(seen_.text, seen_.nr, sizeof(seen_.text[0]), compare_lines);	\
	qsort(self->expected.text, self->expected.nr,				\
	      sizeof(self->expected.text[0]), compare_lines);			\
	for (i_ = 0; i_ < self->expected.nr && i_ < seen_.nr; i_++)		\
		EXPECT_STREQ(self->expected.text[i_], seen_.text[i_]);		\
})

#define TRACE_TEST(name)	TEST_F_TIMEOUT(trace, name, 300)

TRACE_TEST(R37_a_wait_and_its_notify_are_recorded)
{
	struct waiter w = thread_at(self->fd, self->shared + 4);
	const char *word = in_file(self->name, self->page + 16);
	uint64_t began = now_ns(CLOCK_MONOTONIC), queued, notified, waited = 0;

	waiter_start(&w);
	queued = now_ns(CLOCK_MONOTONIC);
	usleep(20000);
	notified = now_ns(CLOCK_MONOTONIC);
	EXPECT_EQ(1, mw_notify(self->fd, self->shared + 4, 3, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));

	EXPECT_EVENT("wait_begin: %s words=1", word);
	EXPECT_EVENT("notify: %s count=3 woken=1 passed_on=0", word);
	EXPECT_EVENT("wait_end: %s result=0", word);
	EXPECT_RECORDED(&waited);
	EXPECT_LE(notified - queued, waited);
	EXPECT_GE(now_ns(CLOCK_MONOTONIC) - began, waited);
}

#define MMAP_LOCK	"/events/mmap_lock/mmap_lock_start_locking"

/*
 * Starts or stops recording. Enabling the event patches the kernel's code, which itself takes
 * mmap_lock.
 */
static bool record_mmap_locks(bool on)
{
	return !write_number(INSTANCE "/tracing_on", 0) &&
	       !write_number(INSTANCE MMAP_LOCK "/enable", on) &&
	       !write_number(INSTANCE "/tracing_on", on);
}

/* Returns how often this thread has taken mmap_lock while recording was on. */
static int count_mmap_locks(void)
{
	char line[512], name[32];
	int nr = 0;
	FILE *f;

	if (!record_mmap_locks(false))
		return -1;
	snprintf(name, sizeof(name), "-%d ", gettid());
	f = fopen(INSTANCE "/trace", "r");
	while (f && fgets(line, sizeof(line), f)) {
		if (line[0] != '#' && strstr(line, ": mmap_lock_start_locking") &&
		    strstr(line, name))
			nr++;
	}
	if (f)
		fclose(f);
	return nr;
}

static void use_private_word(struct __test_metadata *_metadata, int fd, uint32_t *word)
{
	int i;

	for (i = 0; i < 100; i++) {
		ASSERT_EQ(0, mw_notify(fd, word, 1, PRIVATE));
		ASSERT_EQ(MEMWAIT_NOT_EQUAL, mw_wait(fd, word, 1, MEMWAIT_FOREVER, PRIVATE));
		ASSERT_EQ(MEMWAIT_TIMED_OUT, mw_wait(fd, word, 0, in_ms(1), PRIVATE));
	}
}

TRACE_TEST(R9_private_takes_no_mmap_lock)
{
	if (access(TRACING MMAP_LOCK, F_OK))
		SKIP(return, "this kernel has no mmap_lock events");
	/* Access all memory that the test uses, so that it causes no page fault later. */
	*self->private = 0;
	use_private_word(_metadata, self->fd, self->private);
	ASSERT_EQ(0, count_mmap_locks());
	ASSERT_TRUE(record_mmap_locks(true));
	use_private_word(_metadata, self->fd, self->private);
	EXPECT_EQ(0, count_mmap_locks());
	/* Check that acquiring mmap_lock would have been recorded. */
	ASSERT_TRUE(record_mmap_locks(true));
	munmap(private_page(self->page), self->page);
	EXPECT_LT(0, count_mmap_locks());
}

TRACE_TEST(R37_a_private_word_is_named_by_its_process)
{
	const char *word = at_address(self->private + 1);

	EXPECT_EQ(0, mw_notify(self->fd, self->private + 1, 1, PRIVATE));
	EXPECT_EQ(0, mw_notify(self->fd, self->private + 1, 1, U32));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, self->private + 1, 0, in_ms(2000), U32));

	EXPECT_EVENT("notify: %s count=1 woken=0 passed_on=0", word);
	EXPECT_EVENT("notify: %s count=1 woken=0 passed_on=0", word);
	EXPECT_EVENT("wait_begin: %s words=1", word);
	EXPECT_EVENT("wait_end: %s result=2", word);
	EXPECT_RECORDED(NULL);
}

struct sharing {
	int fd;
	uint32_t *word;
};

static int notify_shared(void *arg)
{
	struct sharing *sharing = arg;

	return mw_notify(sharing->fd, sharing->word, 1, PRIVATE);
}

TRACE_TEST(R37_processes_that_share_memory_use_the_same_name)
{
	struct sharing sharing = { self->fd, self->private };
	char *stack = private_page(65536);
	pid_t child;

	child = clone(notify_shared, stack + 65536, CLONE_VM | SIGCHLD, &sharing);
	ASSERT_LT(0, child);
	EXPECT_EQ(0, child_status(child));
	EXPECT_EVENT("notify: %s count=1 woken=0 passed_on=0", at_address(self->private));
	EXPECT_RECORDED(NULL);
}

TRACE_TEST(R37_calls_that_do_not_wait_are_not_recorded)
{
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait(self->fd, self->shared, 1, MEMWAIT_FOREVER, U32));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, self->shared, 0, 0, U32));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL,
		  mw_async(self->fd, self->shared, 1, MEMWAIT_FOREVER, U32, 0, NULL));
	EXPECT_EQ(0, mw_notify(self->fd, self->shared, 0, U32));
	EXPECT_EQ(-EINVAL, mw_notify(self->fd, (char *)self->shared + 1, 1, U32));
	EXPECT_EQ(-ENOENT, mw_cancel(self->fd, 1));
	EXPECT_RECORDED(NULL);
}

TRACE_TEST(R37_requeue_and_many_notifies_are_recorded)
{
	const char *first = in_file(self->name, self->page);
	const char *second = in_file(self->name, self->page + 4);
	struct memwait_notify notifies[] = {
		{ .addr = (uintptr_t)self->shared, .count = 2, .flags = U32 },
		{ .addr = (uintptr_t)self->shared, .count = 0, .flags = U32 },
		{ .addr = (uintptr_t)(self->shared + 1), .count = 7, .flags = U32 },
	};
	struct waiter w[2];
	struct requeued out;
	int i;

	for (i = 0; i < 2; i++) {
		w[i] = thread_at(self->fd, self->shared);
		waiter_start(&w[i]);
		EXPECT_EVENT("wait_begin: %s words=1", first);
	}
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_requeue(self->fd, self->shared, 1, self->shared + 1, 1, 9,
						U32, &out));
	EXPECT_EQ(0, mw_requeue(self->fd, self->shared, 0, self->shared + 1, 1, 9, U32, &out));
	EXPECT_EVENT("requeue: %s target=0x%lx count=1 move=9 woken=1 moved=1", first,
		     self->page + 4);
	EXPECT_EVENT("wait_end: %s result=0", first);
	EXPECT_EQ(3, mw_notify_many(self->fd, notifies, 3, NULL));
	EXPECT_EVENT("notify: %s count=2 woken=0 passed_on=0", first);
	EXPECT_EVENT("notify: %s count=7 woken=1 passed_on=0", second);
	EXPECT_EVENT("wait_end: %s result=0", second);
	for (i = 0; i < 2; i++)
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[i]));
	EXPECT_RECORDED(NULL);
}

TRACE_TEST(R37_a_wait_on_several_words_begins_for_each_and_ends_once)
{
	struct memwait_wait waits[2] = {
		{ .addr = (uintptr_t)self->private, .flags = PRIVATE },
		{ .addr = (uintptr_t)self->shared, .flags = U32 },
	};
	const char *word = in_file(self->name, self->page);
	pid_t child;
	u_int index;

	child = fork_child();
	if (!child) {
		await_waiters(self->fd, self->shared, U32, 1);
		_exit(mw_notify(self->fd, self->shared, 1, U32) != 1);
	}
	EXPECT_EQ(MEMWAIT_OK, mw_wait_any(self->fd, waits, 2, MEMWAIT_FOREVER, 0, &index));
	EXPECT_EQ(1, index);
	EXPECT_EQ(0, child_status(child));
	EXPECT_EVENT("wait_begin: %s words=2", at_address(self->private));
	EXPECT_EVENT("wait_begin: %s words=2", word);
	EXPECT_EVENT("notify: %s count=1 woken=1 passed_on=0", word);
	EXPECT_EVENT("wait_end: %s result=0", word);
	EXPECT_RECORDED(NULL);
}

TRACE_TEST(R37_async_waits_are_recorded_from_arming_to_reading)
{
	const char *word = in_file(self->name, self->page);
	struct memwait_completion completion;
	char wait[3][160];
	uint64_t id[3];
	int i, ret;

	for (i = 0; i < 3; i++) {
		if (i < 2)
			ret = mw_async(self->fd, self->shared, 0, MEMWAIT_FOREVER, U32, 0x77 + i,
				       &id[i]);
		else	/* a wait that times out immediately is not recorded */
			ret = async_soon(self->fd, self->shared, 500, 0x77 + i, &id[i]);
		ASSERT_EQ(MEMWAIT_PENDING, ret);
		snprintf(wait[i], sizeof(wait[i]), "%s context=%ld id=0x%llx user_data=0x%x", word,
			 self->context, (unsigned long long)id[i], 0x77 + i);
		EXPECT_EVENT("async_arm: %s words=1", wait[i]);
	}
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EVENT("notify: %s count=1 woken=1 passed_on=0", word);
	EXPECT_EVENT("async_complete: %s result=0", wait[0]);
	EXPECT_EQ(1, mw_read(self->fd, &completion, 1));
	EXPECT_EVENT("async_read: %s result=0", wait[0]);
	EXPECT_EQ(0, mw_cancel(self->fd, id[1]));
	EXPECT_EVENT("cancel: %s words=1", wait[1]);
	sleep_until(mw_read(self->fd, &completion, 1) != -EAGAIN);
	EXPECT_EQ(MEMWAIT_TIMED_OUT, completion.result);
	EXPECT_EVENT("async_complete: %s result=2", wait[2]);
	EXPECT_EVENT("async_read: %s result=2", wait[2]);
	EXPECT_RECORDED(NULL);
}

TRACE_TEST(R37_a_close_records_cancelled_and_passed_on_waits)
{
	const char *word = in_file(self->name, self->page);
	struct memwait_wait words[2] = {
		{ .addr = (uintptr_t)self->private, .flags = PRIVATE },
		{ .addr = (uintptr_t)self->shared, .flags = U32 },
	};
	struct memwait_async group = {
		.any = { .waits = (uintptr_t)words, .count = 2, .deadline = MEMWAIT_FOREVER,
			 .flags = MEMWAIT_GROUP },
		.user_data = 0x99,
	};
	uint64_t id;

	ASSERT_EQ(1, mw_batch(self->fd, &group, 1));
	ASSERT_EQ(MEMWAIT_PENDING, group.result);
	ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared + 1, 0, MEMWAIT_FOREVER, U32,
					    0x88, &id));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	close(self->fd);
	self->fd = -1;
	EXPECT_EVENT("async_arm: %s context=%ld id=0x%llx user_data=0x99 words=2",
		     at_address(self->private), self->context, (unsigned long long)group.id);
	EXPECT_EVENT("async_complete: %s context=%ld id=0x%llx user_data=0x99 result=0", word,
		     self->context, (unsigned long long)group.id);
	EXPECT_EVENT("notify: %s count=1 woken=1 passed_on=0", word);
	EXPECT_EVENT("notify: %s count=1 woken=0 passed_on=1", word);
	word = in_file(self->name, self->page + 4);
	EXPECT_EVENT("async_arm: %s context=%ld id=0x%llx user_data=0x88 words=1", word,
		     self->context, (unsigned long long)id);
	EXPECT_EVENT("cancel: %s context=%ld id=0x%llx user_data=0x88 words=1", word,
		     self->context, (unsigned long long)id);
	EXPECT_RECORDED(NULL);
}

struct owner_thread {
	int fd;
	struct memwait_owner owner;
	int ret;
	pid_t tid;
};

static void *become_owner(void *arg)
{
	struct owner_thread *t = arg;

	t->tid = gettid();
	t->ret = xioctl(t->fd, MEMWAIT_IOC_OWNER, &t->owner);
	return NULL;
}

TRACE_TEST(R37_the_death_of_an_owner_is_recorded)
{
	struct owner_thread t = { .fd = self->fd };
	struct memwait_owner context = { .flags = MEMWAIT_OWNER_CONTEXT };
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, become_owner, &t));
	pthread_join(thread, NULL);
	if (t.ret == -EOPNOTSUPP)
		SKIP(return, "this kernel does not report deaths");
	ASSERT_EQ(0, t.ret);
	ASSERT_EQ(0, xioctl(self->fd, MEMWAIT_IOC_OWNER, &context));
	EXPECT_EQ((long)context.id, mw_fdinfo(self->fd, "owner"));
	/* A joined thread may not have exited completely yet. */
	sleep_until(!thread_state(t.tid));
	close(self->fd);
	self->fd = -1;
	EXPECT_EVENT("owner_died: owner=%llu tid=%d", (unsigned long long)t.owner.id, t.tid);
	EXPECT_EVENT("owner_died: owner=%llu tid=0", (unsigned long long)context.id);
	EXPECT_RECORDED(NULL);
}

/* Opens a context that belongs to another user, and arms waits that name an owner. */
static int arm_as(uid_t user, const uint64_t *words, int n, uint64_t owner)
{
	int fd, i;

	if (setresuid(user, user, 0))
		return -1;
	fd = memwait_open(0);
	if (setresuid(0, 0, 0) || fd < 0 || mw_owner(fd, MEMWAIT_OWNER_CONTEXT, NULL))
		return -1;
	for (i = 0; i < n; i++) {
		if (mw_async(fd, words + i, owner, MEMWAIT_FOREVER,
			     MEMWAIT_SIZE_U64 | MEMWAIT_OWNED | MEMWAIT_PRIVATE, user, NULL) !=
		    MEMWAIT_PENDING)
			return -1;
	}
	return fd;
}

/* One work item reports the death, and so the events are in its order. */
TRACE_TEST(R31_a_death_is_reported_to_the_users_in_turn)
{
	enum { USER = 65001, WORDS = 20 };
	uint64_t *words = (uint64_t *)self->private;
	int owner, first, second, i, lead = 0, reports = 0;
	struct lines lines;
	const char *user;
	uint64_t id;

	owner = memwait_open(0);
	ASSERT_LE(0, owner);
	i = mw_owner(owner, MEMWAIT_OWNER_CONTEXT, &id);
	if (i == -EOPNOTSUPP)
		SKIP(return, "this kernel does not report deaths");
	ASSERT_EQ(0, i);
	for (i = 0; i < 2 * WORDS; i++)
		words[i] = id;
	first = arm_as(USER, words, WORDS, id);
	second = arm_as(USER + 1, words + WORDS, WORDS, id);
	ASSERT_LE(0, first);
	ASSERT_LE(0, second);
	/* This deletes the events that have been recorded. */
	ASSERT_EQ(0, close(open(INSTANCE "/trace", O_WRONLY | O_TRUNC)));
	close(owner);
	sleep_until(mw_fdinfo(first, "completed") == WORDS &&
		    mw_fdinfo(second, "completed") == WORDS);
	ASSERT_TRUE(recorded(&lines, NULL));
	for (i = 0; i < lines.nr; i++) {
		user = strstr(lines.text[i], " user_data=");
		if (strncmp(lines.text[i], "async_complete: ", 16) || !user)
			continue;
		lead += strtol(user + strlen(" user_data="), NULL, 16) == USER ? 1 : -1;
		reports++;
		EXPECT_TRUE(lead >= -1 && lead <= 1);
	}
	EXPECT_EQ(2 * WORDS, reports);
	close(first);
	close(second);
}

TRACE_TEST(R37_disabled_events_record_nothing)
{
	struct lines lines;

	ASSERT_TRUE(recorded(&lines, NULL));
	EXPECT_EQ(0, mw_notify(self->fd, self->shared, 1, U32));
	ASSERT_TRUE(recorded(&lines, NULL));
	EXPECT_EQ(0, lines.nr);
}

TEST_HARNESS_MAIN
