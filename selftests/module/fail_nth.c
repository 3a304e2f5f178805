// SPDX-License-Identifier: GPL-2.0
/*
 * Failures of allocations and of copies from or to user space. In each call, fault injection causes
 * each possible failure once. The tests are skipped if the kernel has no fault injection.
 */
#include "several_test.h"

#define EFAULT_ONLY(ret)	((ret) == -EFAULT)
#define NO_ROOM(ret)		((ret) == -EFAULT || (ret) == -ENOMEM)

FIXTURE(fail)
{
	int fd;
	int nth;		/* /proc/thread-self/fail-nth */
	uint32_t *word;
	uint64_t user_waits;
};

/* A wait on a shared word pins the word's file, and a failed call must release the file. */
FIXTURE_VARIANT(fail)
{
	bool shared;
};

FIXTURE_VARIANT_ADD(fail, private_words)
{
	.shared = false,
};

FIXTURE_VARIANT_ADD(fail, shared_words)
{
	.shared = true,
};

#define DEBUG	"/sys/kernel/debug/"

static void set(const char *path, const char *value)
{
	if (write_file(path, value)) {
		perror(path);
		exit(KSFT_FAIL);
	}
}

/* Returns the descriptor of /proc/thread-self/fail-nth. */
static int start_failures(void)
{
	/* Failures include allocations that may sleep, and are not printed to the log. */
	set(DEBUG "failslab/ignore-gfp-wait", "N");
	set(DEBUG "failslab/verbose", "0");
	set(DEBUG "fail_page_alloc/ignore-gfp-wait", "N");
	set(DEBUG "fail_page_alloc/ignore-gfp-highmem", "N");
	set(DEBUG "fail_page_alloc/min-order", "0");
	set(DEBUG "fail_page_alloc/verbose", "0");
	set(DEBUG "fail_usercopy/verbose", "0");
	return open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
}

FIXTURE_SETUP(fail)
{
	self->nth = start_failures();
	ASSERT_LE(0, self->nth);
	self->fd = open_device(O_NONBLOCK);
	self->word = variant->shared ? shared_page(sysconf(_SC_PAGESIZE)) :
		private_page(sysconf(_SC_PAGESIZE));
	ASSERT_NE(NULL, self->word);
	*self->word = 0;
	self->user_waits = mw_user_waits(self->fd);
}

FIXTURE_TEARDOWN(fail)
{
	EXPECT_EQ(self->user_waits, mw_await_user_waits(self->fd, self->user_waits));
	close(self->fd);
	close(self->nth);
}

#define FAIL_TEST(name)	TEST_F_TIMEOUT(fail, name, 300)

/* Causes the n-th failure point that the calling thread reaches to fail. */
static void fail_nth(int nth, int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%d", n);

	if (pwrite(nth, text, len, 0) != len)
		abort();
}

/* Disables the injection. Returns whether a failure was injected. */
static bool has_failed(int nth)
{
	char text[16] = "";
	/* If this read itself fails, no failure had been injected before. */
	bool failed = pread(nth, text, sizeof(text) - 1, 0) > 0 && !strtol(text, NULL, 10);

	while (pwrite(nth, "0", 1, 0) < 0)
		;
	return failed;
}

/*
 * Repeats a call with the first failure point failing, then the second, until there are no more.
 * Some failure points belong to the rest of the kernel and are not reached each time, so one may be
 * missed. Each repetition uses a new context, for which the module has cached neither waits nor
 * pins.
 */
#define EACH_FAILURE(n, failed)	\
	for (n = 1, failed = true; failed && renew(&self->fd); n++)

#define WITH_FAILURE(n, failed, call) ({		\
	int ret_;					\
							\
	fail_nth(self->nth, n);				\
	ret_ = (call);					\
	failed = has_failed(self->nth);			\
	ret_;						\
})

FAIL_TEST(info_and_waiters)
{
	int n, ret, errors = 0;
	struct memwait_info info;
	bool failed;

	EACH_FAILURE(n, failed) {
		ret = WITH_FAILURE(n, failed, mw_info(self->fd, &info));
		EXPECT_TRUE(!ret || EFAULT_ONLY(ret));
		errors += ret < 0;
	}
	EXPECT_LT(0, errors);
	errors = 0;
	EACH_FAILURE(n, failed) {
		ret = WITH_FAILURE(n, failed, mw_waiters(self->fd, self->word, U32));
		EXPECT_TRUE(!ret || EFAULT_ONLY(ret));
		errors += ret < 0;
	}
	EXPECT_EQ(1, errors);
}

FAIL_TEST(open)
{
	int n, fd, users, errors;
	bool failed;

	for (users = 0; users < 2; users++) {
		errors = 0;
		for (n = 1, failed = true; failed; n++) {
			fd = WITH_FAILURE(n, failed, memwait_open(0));
			if (fd >= 0)
				close(fd);
			else
				EXPECT_TRUE(NO_ROOM(fd));
			errors += fd < 0;
		}
		EXPECT_LT(0, errors);
		/* Repeat the test as a user that has no other context. */
		ASSERT_EQ(0, setreuid(64003, -1));
	}
}

FAIL_TEST(R14_notify_does_not_fail_for_lack_of_memory)
{
	static const uint32_t flags[] = { U32, U32 | MEMWAIT_PRIVATE };
	struct memwait_completion done;
	struct memwait_wait waits[2];
	int i, n, ret, errors;
	struct any_waiter any;
	bool failed;

	members(waits, self->word, 2);
	/* A private notify does not find waiters of a shared word. */
	for (i = 0; i < (variant->shared ? 1 : 2); i++) {
		errors = 0;
		EACH_FAILURE(n, failed) {
			any = any_of(self->fd, waits, 2);
			any_start(&any);
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, 7));
			ASSERT_EQ(MEMWAIT_PENDING, mw_group(self->fd, waits, 2, FOREVER, 0, 8,
							    NULL));
			ret = WITH_FAILURE(n, failed, mw_notify(self->fd, self->word, 3,
								flags[i]));
			if (EFAULT_ONLY(ret)) {
				/* If the argument could not be copied, the call had no effect. */
				errors++;
				ret = mw_notify(self->fd, self->word, 3, flags[i]);
			}
			EXPECT_EQ(3, ret)
				TH_LOG("failure %d", n);
			EXPECT_EQ(MEMWAIT_OK, any_join(&any));
			EXPECT_EQ(1, mw_read(self->fd, &done, 1));
			EXPECT_EQ(1, mw_read(self->fd, &done, 1));
			EXPECT_EQ(0, mw_waiters(self->fd, self->word + 1, U32));
		}
		EXPECT_EQ(1, errors);
	}
}

FAIL_TEST(R14_notify_many_reports_what_was_done)
{
	enum { STEP = 16, WORDS = 20 };	/* more words than one step processes */
	struct memwait_completion done[WORDS];
	struct memwait_notify notifies[WORDS];
	uint32_t woken[WORDS];
	int n, i, ret, notified, errors = 0;
	bool failed;

	EACH_FAILURE(n, failed) {
		for (i = 0; i < WORDS; i++) {
			notifies[i] = (struct memwait_notify) {
				.addr = (uintptr_t)(self->word + i),
				.count = 1,
				.flags = U32,
			};
			ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word + i, i));
		}
		ret = WITH_FAILURE(n, failed, mw_notify_many(self->fd, notifies, WORDS, woken));
		EXPECT_TRUE((ret > 0 && ret <= WORDS) || EFAULT_ONLY(ret));
		errors += ret < WORDS;
		for (notified = 0; notified < WORDS; notified++) {
			if (mw_waiters(self->fd, self->word + notified, U32))
				break;
		}
		/* EFAULT can also mean that the results of a whole step could not be written. */
		EXPECT_TRUE(ret > 0 ? notified == ret : notified % STEP == 0 || notified == WORDS)
			TH_LOG("failure %d: %d, notified %d", n, ret, notified);
		for (i = notified; i < WORDS; i++)
			EXPECT_EQ(1, mw_waiters(self->fd, self->word + i, U32))
				TH_LOG("failure %d, word %d", n, i);
		EXPECT_EQ(notified ?: -EAGAIN, mw_read(self->fd, done, WORDS));
		for (i = notified; i < WORDS; i++)
			ASSERT_EQ(1, mw_notify(self->fd, self->word + i, 1, U32));
		if (notified < WORDS)
			ASSERT_LT(0, mw_read(self->fd, done, WORDS));
	}
	EXPECT_LT(0, errors);
}

/* Notifies a word continuously, so that waits on it end. */
struct notifying {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int stop;
};

static void *keep_notifying(void *arg)
{
	struct notifying *notifying = arg;

	while (!__atomic_load_n(&notifying->stop, __ATOMIC_RELAXED)) {
		mw_notify(notifying->fd, notifying->word, 1, U32);
		sched_yield();
	}
	return NULL;
}

static void notifying_start(struct notifying *notifying, int fd, uint32_t *word)
{
	*notifying = (struct notifying) { .fd = fd, .word = word };
	if (pthread_create(&notifying->thread, NULL, keep_notifying, notifying))
		abort();
}

static void notifying_stop(struct notifying *notifying)
{
	__atomic_store_n(&notifying->stop, 1, __ATOMIC_RELAXED);
	pthread_join(notifying->thread, NULL);
}

/* WAIT allocates nothing: only copying its arguments can fail. */
FAIL_TEST(wait_leaves_nothing_behind)
{
	struct notifying notifying;
	int n, ret, errors = 0;
	bool failed;

	EACH_FAILURE(n, failed) {
		notifying_start(&notifying, self->fd, self->word);
		ret = WITH_FAILURE(n, failed, mw_wait(self->fd, self->word, 0, FOREVER, U32));
		notifying_stop(&notifying);
		EXPECT_TRUE(ret == MEMWAIT_OK || ret == -EFAULT)
			TH_LOG("failure %d: %d", n, ret);
		EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));
		errors += ret < 0;
	}
	EXPECT_LT(0, errors);
}

FAIL_TEST(R16_wait_any_leaves_nothing_behind)
{
	static const int counts[] = { 3, 20 };
	struct memwait_wait waits[20];
	struct notifying notifying;
	int n, i, word, ret, errors;
	uint32_t index;
	bool failed;

	members(waits, self->word, 20);
	for (i = 0; i < 2; i++) {
		errors = 0;
		EACH_FAILURE(n, failed) {
			notifying_start(&notifying, self->fd, self->word + counts[i] - 1);
			ret = WITH_FAILURE(n, failed, mw_wait_any(self->fd, waits, counts[i],
								  FOREVER, 0, &index));
			notifying_stop(&notifying);
			EXPECT_TRUE(ret == MEMWAIT_OK || NO_ROOM(ret))
				TH_LOG("failure %d: %d", n, ret);
			for (word = 0; word < counts[i]; word++)
				EXPECT_EQ(0, mw_waiters(self->fd, self->word + word, U32));
			errors += ret < 0;
		}
		EXPECT_LT(1, errors);
	}
}

FAIL_TEST(R17_requeue_does_all_or_nothing)
{
	uint32_t *a = self->word, *b = self->word + 1;
	struct memwait_completion done;
	int n, ret, errors = 0;
	struct requeued out;
	bool failed;

	EACH_FAILURE(n, failed) {
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, a, 1));
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, a, 2));
		ret = WITH_FAILURE(n, failed, mw_requeue(self->fd, a, 0, b, 1, 1, U32, &out));
		EXPECT_TRUE(!ret || ret == -EFAULT)
			TH_LOG("failure %d: %d", n, ret);
		EXPECT_EQ(ret ? 2 : 0, mw_waiters(self->fd, a, U32));
		EXPECT_EQ(ret ? 0 : 1, mw_waiters(self->fd, b, U32));
		if (!ret) {
			EXPECT_EQ(1, out.woken);
			EXPECT_EQ(1, out.moved);
		}
		errors += ret < 0;
		EXPECT_EQ(ret ? 2 : 1, mw_notify(self->fd, a, 2, U32) +
				       mw_notify(self->fd, b, 2, U32));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	}
	EXPECT_LT(0, errors);
}

FAIL_TEST(R17_notify_wait_reports_whether_it_has_notified)
{
	uint32_t *a = self->word, *b = self->word + 1;
	struct memwait_completion done;
	struct notifying notifying;
	int n, ret, errors = 0;
	bool failed;

	EACH_FAILURE(n, failed) {
		struct memwait_notify_wait arg = {
			.notify = { .addr = (uintptr_t)a, .count = 1, .flags = U32 },
			.wait = { .addr = (uintptr_t)b, .deadline = FOREVER, .flags = U32 },
		};

		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, a, 1));
		notifying_start(&notifying, self->fd, b);
		ret = WITH_FAILURE(n, failed, xioctl(self->fd, MEMWAIT_IOC_NOTIFY_WAIT, &arg));
		notifying_stop(&notifying);
		EXPECT_TRUE(ret == MEMWAIT_OK || ret == -EFAULT)
			TH_LOG("failure %d: %d", n, ret);
		EXPECT_EQ(!arg.notified, mw_waiters(self->fd, a, U32));
		EXPECT_EQ(0, mw_waiters(self->fd, b, U32));
		errors += ret < 0;
		if (!arg.notified) {
			EXPECT_GT(0, ret);
			EXPECT_EQ(1, mw_notify(self->fd, a, 1, U32));
		}
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
	}
	EXPECT_LT(0, errors);
}

/* The batch has a wait, a wait with a deadline, and a group. */
FAIL_TEST(R24_wait_async_leaves_nothing_behind)
{
	struct memwait_completion done[3];
	struct memwait_async entries[3];
	struct memwait_wait waits[2];
	int n, i, ret, errors = 0;
	bool failed;

	members(waits, self->word + 2, 2);
	EACH_FAILURE(n, failed) {
		for (i = 0; i < 2; i++) {
			entries[i] = (struct memwait_async) {
				.wait = {
					.addr = (uintptr_t)(self->word + i),
					.deadline = i ? in_ms(HOUR) : FOREVER,
					.flags = U32,
				},
				.user_data = i,
			};
		}
		entries[2] = group_entry(waits, 2, in_ms(HOUR), 0, 2);
		ret = WITH_FAILURE(n, failed, mw_batch(self->fd, entries, 3));
		EXPECT_TRUE(ret > 0 || NO_ROOM(ret))
			TH_LOG("failure %d: %d", n, ret);
		errors += ret < 3;
		for (i = 0; i < 3; i++) {
			EXPECT_EQ(i < ret, mw_waiters(self->fd, self->word + i, U32))
				TH_LOG("failure %d, entry %d", n, i);
			EXPECT_EQ(i < ret, mw_notify(self->fd, self->word + i, 1, U32));
		}
		EXPECT_EQ(0, mw_waiters(self->fd, self->word + 3, U32));
		if (ret > 0)
			EXPECT_EQ(ret, mw_read(self->fd, done, 3));
		EXPECT_EQ(self->user_waits, mw_user_waits(self->fd));
	}
	EXPECT_LT(3, errors);
}

FAIL_TEST(R23_cancel_can_be_called_again)
{
	int n, ret, errors = 0;
	bool failed;
	uint64_t id;

	EACH_FAILURE(n, failed) {
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->word, 0, FOREVER, U32, 1,
						    &id));
		ret = WITH_FAILURE(n, failed, mw_cancel(self->fd, id));
		if (EFAULT_ONLY(ret)) {
			errors++;
			ret = mw_cancel(self->fd, id);
		}
		EXPECT_EQ(0, ret);
	}
	EXPECT_EQ(1, errors);
}

/* If records cannot be copied together, they are copied one by one, which hides one failure. */
FAIL_TEST(R21_read_loses_nothing)
{
	struct memwait_completion done[2];
	bool failed;
	int n;

	EACH_FAILURE(n, failed) {
		ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->word, n));
		ASSERT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		EXPECT_EQ(1, WITH_FAILURE(n, failed, mw_read(self->fd, done, 2)));
		EXPECT_EQ(n, done[0].user_data);
	}
	EXPECT_LT(2, n);
}

/*
 * R26: failures while the module is loaded. Only allocations made inside these functions fail,
 * because other functions that are called while the module is loaded, such as kmem_cache_create(),
 * print a trace when an allocation fails. The functions are recognised on the stack. With -Os,
 * tracepoint_probe_register_prio() replaces the second function. The module stays loaded.
 */
static const char *const failing[] = {
	"alloc_workqueue", "tracepoint_probe_register", "misc_register",
};

FIXTURE(load)
{
	int nth;
	int file;		/* MEMWAIT_KO */
};

static const char *const filtered[] = { "failslab", "fail_page_alloc", "fail_usercopy" };

static void set_filter(unsigned long start, unsigned long end)
{
	char path[64], number[32];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(filtered); i++) {
		snprintf(path, sizeof(path), DEBUG "%s/require-start", filtered[i]);
		snprintf(number, sizeof(number), "%#lx", start);
		set(path, number);
		snprintf(path, sizeof(path), DEBUG "%s/require-end", filtered[i]);
		snprintf(number, sizeof(number), "%#lx", end);
		set(path, number);
	}
}

/* Finds the address of a kernel function and the address of the next function. */
static bool find_function(const char *name, unsigned long *start, unsigned long *end)
{
	char *line = NULL, type, symbol[128];
	FILE *file = fopen("/proc/kallsyms", "r");
	unsigned long address;
	size_t size = 0;

	*start = 0;
	*end = ~0UL;
	/* The symbols need not be sorted: find the function, then the next higher address. */
	while (file && !*start && getline(&line, &size, file) > 0)
		if (sscanf(line, "%lx %c %127s", &address, &type, symbol) == 3 &&
		    !strcmp(symbol, name))
			*start = address;
	if (file)
		rewind(file);
	while (file && *start && getline(&line, &size, file) > 0) {
		address = strtoul(line, NULL, 16);
		if (address > *start && address < *end)
			*end = address;
	}
	free(line);
	if (file)
		fclose(file);
	return *start;
}

static int load_module(int file)
{
	return syscall(SYS_finit_module, file, "", 0) ? -errno : 0;
}

/* A process that has just died may hold a reference to the module for a moment. */
static int unload_module(void)
{
	uint64_t end = patience(30);
	int ret;

	sleep_until(!(ret = syscall(SYS_delete_module, "memwait", O_NONBLOCK)) ||
		    now_ns(CLOCK_MONOTONIC) >= end);
	return ret;
}

FIXTURE_SETUP(load)
{
	const char *path = getenv("MEMWAIT_KO");

	if (!path || access(DEBUG "failslab/require-start", W_OK))
		SKIP(return, "needs MEMWAIT_KO, and a filter for fault injection");
	self->file = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, self->file);
	self->nth = start_failures();
	ASSERT_LE(0, self->nth);
	ASSERT_EQ(0, unload_module());
}

FIXTURE_TEARDOWN(load)
{
	if (self->file) {
		set_filter(0, ~0UL);
		EXPECT_EQ(0, load_module(self->file));
	}
}

TEST_F_TIMEOUT(load, R26_a_load_that_fails_leaves_nothing, 600)
{
	unsigned long start, end;
	int i, n, ret, errors;
	bool failed;

	for (i = 0; i < (int)ARRAY_SIZE(failing); i++) {
		ASSERT_TRUE(find_function(failing[i], &start, &end));
		set_filter(start, end);
		errors = 0;
		for (n = 1, failed = true; failed; n++) {
			ret = WITH_FAILURE(n, failed, load_module(self->file));
			EXPECT_TRUE(!ret || ret == -ENOMEM)
				TH_LOG("%s, failure %d: %s", failing[i], n, strerror(-ret));
			EXPECT_EQ(!ret, !access("/dev/memwait", F_OK));
			errors += ret < 0;
			if (!ret)
				ASSERT_EQ(0, unload_module());
		}
		TH_LOG("%s: %d of %d injected failures caused an error", failing[i], errors, n - 2);
		EXPECT_LT(0, errors);
	}
}

int main(int argc, char **argv)
{
	if (access("/proc/thread-self/fail-nth", W_OK)) {
		printf("1..0 # SKIP the kernel has no fault injection\n");
		return KSFT_SKIP;
	}
	return test_harness_run(argc, argv);
}
