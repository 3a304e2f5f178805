// SPDX-License-Identifier: GPL-2.0
/* memwaitctl: its output and its exit status. */
#include "../memwait_fixture.h"
#include "../patching_test.h"
#include "../timing_test.h"
#include "refuse_test.h"
#include <memwait.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/vfs.h>

#define TOOL	"PATH=$PATH:../../userlib/tools memwaitctl "

/* The output of a command, including standard error, and its exit status. */
struct output {
	int status;
	char text[16384];
};

static void run(struct output *output, const char *format, ...)
{
	char command[512] = TOOL;
	size_t used = strlen(command), length;
	va_list args;
	FILE *f;
	int status;

	va_start(args, format);
	vsnprintf(command + used, sizeof(command) - used, format, args);
	va_end(args);
	strncat(command, " 2>&1", sizeof(command) - strlen(command) - 1);
	fflush(stdout);
	f = popen(command, "r");
	length = f ? fread(output->text, 1, sizeof(output->text) - 1, f) : 0;
	output->text[length] = 0;
	status = f ? pclose(f) : -1;
	output->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define EXPECT_SAYS(output, part)							\
({											\
	EXPECT_NE(NULL, strstr((output)->text, (part)))					\
		TH_LOG("\"%s\" is not in: %s", (part), (output)->text);			\
})

FIXTURE(tool)
{
	int fd;
	char file[64];
	uint32_t *words;
	long page;
	pid_t children[4];
	int nr;
};

FIXTURE_SETUP(tool)
{
	struct output output;
	int file;

	run(&output, "--help");
	if (output.status)
		SKIP(return, "memwaitctl is not installed");
	self->nr = 0;
	self->page = sysconf(_SC_PAGESIZE);
	self->fd = open_device(0);
	snprintf(self->file, sizeof(self->file), "/dev/shm/memwaitctl-test-%d", getpid());
	file = open(self->file, O_RDWR | O_CREAT | O_TRUNC, 0644);
	ASSERT_LE(0, file);
	ASSERT_EQ(0, ftruncate(file, 2 * self->page));
	self->words = map_shared(file, 2 * self->page);
	close(file);
}

FIXTURE_TEARDOWN(tool)
{
	int i;

	for (i = 0; i < self->nr; i++)
		kill_child(self->children[i]);
	unlink(self->file);
}

#define TOOL_TEST(name)	TEST_F_TIMEOUT(tool, name, 300)

TOOL_TEST(R37_info_shows_whether_the_device_can_be_used)
{
	struct output output;
	struct stat st;
	pid_t child;

	/* The contexts of earlier processes have been closed. */
	sleep_until(mw_user_contexts(self->fd) == 1);
	run(&output, "info");
	EXPECT_EQ(0, output.status);
	EXPECT_SAYS(&output, "usable:       yes\n");
	EXPECT_SAYS(&output, "contexts    2 / ");

	ASSERT_EQ(0, stat("/dev/memwait", &st));
	ASSERT_EQ(0, chmod("/dev/memwait", 0600));
	child = fork_child();
	if (!child) {
		if (setgid(1234) || setuid(1234))
			_exit(99);
		run(&output, "info");
		_exit(!strstr(output.text, "usable:       no: Permission denied: ") ||
		      output.status != 3);
	}
	EXPECT_EQ(0, child_status(child));
	ASSERT_EQ(0, chmod("/dev/memwait", st.st_mode & 07777));
}

TOOL_TEST(R37_info_reports_an_older_module)
{
	struct output output;
	pid_t child;

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	child = fork_child();
	if (!child) {
		if (refuse_ioctl(MEMWAIT_IOC_CHANGE_NOTIFY, ENOTTY))
			_exit(99);
		run(&output, "info");
		_exit(!strstr(output.text, "usable:       no: ") ||
		      !strstr(output.text, "the loaded module is too old") || output.status != 3);
	}
	EXPECT_EQ(0, child_status(child));
}

TOOL_TEST(R37_a_script_waits_and_notifies)
{
	uint32_t *word = self->words + self->page / sizeof(uint32_t) + 2;
	unsigned long offset = self->page + 8;
	struct output output;
	pid_t child = fork_child();

	if (!child) {
		run(&output, "wait %s %lu 0", self->file, offset);
		_exit(output.status);
	}
	await_waiters(self->fd, word, MEMWAIT_SIZE_U32, 1);
	run(&output, "notify %s 0x%lx", self->file, offset);
	EXPECT_EQ(0, output.status);
	EXPECT_STREQ("1\n", output.text);
	EXPECT_EQ(0, child_status(child));

	run(&output, "notify %s %lu all", self->file, offset);
	EXPECT_EQ(1, output.status);
	EXPECT_STREQ("0\n", output.text);
	run(&output, "wait %s %lu 7", self->file, offset);
	EXPECT_EQ(1, output.status);
	run(&output, "wait --timeout 0.05 %s %lu 0", self->file, offset);
	EXPECT_EQ(2, output.status);
	*word = 0x1234;
	run(&output, "wait --size 2 --timeout 0.05 %s %lu 0x1234", self->file, offset);
	EXPECT_EQ(2, output.status);
	run(&output, "wait --size 1 --timeout 0.05 %s %lu 0x34", self->file, offset);
	EXPECT_EQ(2, output.status);
	run(&output, "wait --size 8 --timeout 0.05 %s %lu 0x1234", self->file, offset);
	EXPECT_EQ(2, output.status);
}

TOOL_TEST(R37_a_word_of_a_large_file)
{
	static const long long offsets[] = { 2LL << 30, 4LL << 30, 5LL << 30 };
	struct output output;
	uint32_t *word;
	int file, i;

	file = open(self->file, O_RDWR);
	ASSERT_LE(0, file);
	ASSERT_EQ(0, ftruncate(file, 6LL << 30));
	for (i = 0; i < 3; i++) {
		word = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, file, offsets[i]);
		ASSERT_NE(MAP_FAILED, word);
		word[1] = 17 + i;
		run(&output, "wait --timeout 0.05 %s %lld %d", self->file, offsets[i] + 4, 17 + i);
		EXPECT_EQ(2, output.status)
			TH_LOG("at %lld: %s", offsets[i], output.text);
		run(&output, "wait %s %lld 0", self->file, offsets[i] + 4);
		EXPECT_EQ(1, output.status);
		run(&output, "notify %s %lld", self->file, offsets[i] + 4);
		EXPECT_EQ(1, output.status);
		munmap(word, self->page);
	}
	close(file);
}

TOOL_TEST(R37_wrong_arguments_have_another_exit_status_than_failures)
{
	static const char * const wrong[] = {
		"", "nothing", "list more", "wait", "wait %s 0", "wait %s 2 0", "wait %s 0 x",
		"wait --size 3 %s 0 0", "wait --size 1 %s 0 256", "wait --timeout -1 %s 0 0",
		"notify %s", "notify %s 0 -1", "notify %s 0 4294967296", "list --word x",
		"top --interval 0", "owners all", "owners --all --all",
		"wait --size 8 %s 0 ' -1'",
	};
	struct output output;
	char command[256];
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const char *file = strstr(wrong[i], "%s");

		snprintf(command, sizeof(command), "%.*s%s%s",
			 (int)(file ? file - wrong[i] : (long)strlen(wrong[i])), wrong[i],
			 file ? self->file : "", file ? file + 2 : "");
		run(&output, "%s", command);
		EXPECT_EQ(64, output.status)
			TH_LOG("memwaitctl %s", command);
	}
	run(&output, "wait /nowhere 0 0");
	EXPECT_EQ(4, output.status);
	run(&output, "wait %s %ld 0", self->file, 2 * self->page);
	EXPECT_EQ(4, output.status);
	run(&output, "info >/dev/full");
	EXPECT_EQ(4, output.status);
}

TOOL_TEST(R37_list_shows_the_file_of_a_word)
{
	struct waiter w = { .fd = self->fd, .addr = self->words + 4, .flags = MEMWAIT_SIZE_U32,
			    .deadline = MEMWAIT_FOREVER };
	struct output output;
	char expected[256];

	waiter_start(&w);
	run(&output, "list");
	EXPECT_EQ(0, output.status);
	snprintf(expected, sizeof(expected), "%s:0x10\n", self->file);
	EXPECT_SAYS(&output, expected);
	run(&output, "list --word %s:16 --pid %d", self->file, getpid());
	EXPECT_EQ(0, output.status);
	EXPECT_SAYS(&output, expected);
	run(&output, "list --word %s:20", self->file);
	EXPECT_EQ(1, output.status);
	EXPECT_STREQ("", output.text);
	run(&output, "list --pid 1");
	EXPECT_EQ(1, output.status);

	run(&output, "list --json --word %s:0x10", self->file);
	EXPECT_EQ(0, output.status);
	snprintf(expected, sizeof(expected), "\"kind\": \"thread\", \"pid\": %d, \"tid\": %d, ",
		 getpid(), w.tid);
	EXPECT_SAYS(&output, expected);
	snprintf(expected, sizeof(expected), "\"path\": \"%s\", \"offset\": \"0x10\"}\n]\n",
		 self->file);
	EXPECT_SAYS(&output, expected);
	EXPECT_SAYS(&output, "\"left_ms\": null");
	run(&output, "list --json --word %s:20", self->file);
	EXPECT_EQ(1, output.status);
	EXPECT_STREQ("[]\n", output.text);

	EXPECT_EQ(1, mw_notify(self->fd, w.addr, 1, MEMWAIT_SIZE_U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

/* Two mutexes, which two processes lock in different order. */
struct locks {
	memwait_mutex_t mutex[2];
	uint32_t locked[2];
};

static pid_t lock_both(struct locks *locks, int first, bool second)
{
	pid_t child = fork_child();

	if (child)
		return child;
	if (memwait_mutex_lock(&locks->mutex[first]))
		_exit(1);
	__atomic_store_n(&locks->locked[first], 1, __ATOMIC_SEQ_CST);
	sleep_until(__atomic_load_n(&locks->locked[!first], __ATOMIC_SEQ_CST) || !second);
	if (second && memwait_mutex_lock(&locks->mutex[!first]))
		_exit(1);
	stay();
}

TOOL_TEST(R37_owners_distinguishes_a_deadlock_from_a_wait)
{
	struct locks *locks = (struct locks *)self->words;
	struct output output;
	char expected[64];
	int i;

	for (i = 0; i < 2; i++) {
		int err = memwait_mutex_init(&locks->mutex[i], MEMWAIT_MUTEX_ROBUST);

		if (err == EOPNOTSUPP || err == ENOTSUP)
			SKIP(return, "this kernel does not report deaths");
		ASSERT_EQ(0, err);
	}
	self->children[self->nr++] = lock_both(locks, 0, true);
	sleep_until(__atomic_load_n(&locks->locked[0], __ATOMIC_SEQ_CST));
	run(&output, "owners");
	EXPECT_EQ(0, output.status);
	EXPECT_STREQ("no waiter names an owner\n", output.text);

	/* The first process holds a lock and does not wait. A third process waits for this lock. */
	self->children[self->nr++] = fork_child();
	if (!self->children[1])
		_exit(memwait_mutex_lock(&locks->mutex[0]));
	snprintf(expected, sizeof(expected), "(thread %d, ", self->children[0]);
	do
		run(&output, "owners");
	while (!output.status && !strstr(output.text, expected));
	EXPECT_EQ(0, output.status);
	snprintf(expected, sizeof(expected), "  thread %d (", self->children[1]);
	EXPECT_SAYS(&output, expected);
	EXPECT_SAYS(&output, self->file);

	self->children[self->nr++] = lock_both(locks, 1, true);
	do
		run(&output, "owners");
	while (!output.status);
	EXPECT_EQ(1, output.status);
	EXPECT_SAYS(&output, "deadlock:\n");
	for (i = 0; i < 3; i += 2) {
		snprintf(expected, sizeof(expected), "held by thread %d\n",
			 self->children[i]);
		EXPECT_SAYS(&output, expected);
	}

	/* The output for the cycle does not contain a waiter outside the cycle. */
	snprintf(expected, sizeof(expected), "held by thread %d\n",
		 self->children[1]);
	EXPECT_EQ(NULL, strstr(output.text, expected));
}

/* A thread that has an id but no open device. lsof cannot find such a thread. */
TOOL_TEST(R37_owners_lists_all_that_pin_the_module)
{
	int *go = (int *)self->words;
	struct output output;
	char expected[128];
	struct memwait_info info;
	pid_t child;

	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel does not report deaths");
	child = fork_child();
	if (!child) {
		uint64_t id = 0;

		prctl(PR_SET_NAME, "a\tholder \033");
		if (mw_owner(self->fd, 0, &id) || close(self->fd))
			_exit(1);
		go[1] = id >> 32;
		go[2] = id;
		__atomic_store_n(go, 1, __ATOMIC_RELEASE);
		pause();
	}
	self->children[self->nr++] = child;
	ASSERT_TRUE(await_flag(go, 60));
	snprintf(expected, sizeof(expected), "thread  %7d %7d %-15s  %llu\n", child, child,
		 "a\\011holder\\040\\033", (unsigned long long)(uint32_t)go[1] << 32 |
		 (uint32_t)go[2]);
	run(&output, "owners --all");
	EXPECT_EQ(0, output.status);
	EXPECT_SAYS(&output, "KIND        PID     TID COMMAND          ID\n");
	EXPECT_SAYS(&output, expected);
	/* No thread waits for this thread. */
	run(&output, "owners");
	EXPECT_EQ(0, output.status);
	snprintf(expected, sizeof(expected), "thread %d", child);
	EXPECT_EQ(NULL, strstr(output.text, expected));

	EXPECT_EQ(128 + SIGKILL, kill_child(child));
	self->nr--;
	snprintf(expected, sizeof(expected), " %d ", child);
	/* A kernel thread frees the identity of the child later. */
	do
		run(&output, "owners --all");
	while (strstr(output.text, expected));
}

TOOL_TEST(R37_users_shows_who_used_up_a_limit)
{
	struct output output;
	char line[96];
	pid_t child;

	child = fork_child();
	if (!child) {
		int fd;

		if (setgid(1234) || setuid(1234))
			_exit(1);
		fd = open_device(0);
		if (mw_arm(fd, self->words, 0) != MEMWAIT_PENDING)
			_exit(2);
		__atomic_store_n(&self->words[1], 1, __ATOMIC_RELEASE);
		pause();
	}
	self->children[self->nr++] = child;
	ASSERT_TRUE(await_flag((int *)&self->words[1], 60));
	run(&output, "users");
	EXPECT_EQ(0, output.status);
	EXPECT_SAYS(&output, "     limit ");
	EXPECT_SAYS(&output, "       UID      WAITS   CONTEXTS     OWNERS     CACHED  POSITIONS ");
	EXPECT_SAYS(&output, "         0 ");
	snprintf(line, sizeof(line), "%10d %10d %10d %10d %10d %10d %10d\n", 1234, 9, 1, 0, 0, 0,
		 0);
	EXPECT_SAYS(&output, line);
	run(&output, "users 1234");
	EXPECT_EQ(64, output.status);
}

TOOL_TEST(R37_top_counts_waits_and_notifies)
{
	struct output output;
	uint64_t offline;
	unsigned int waits, notifies, others;
	char *next;
	pid_t child;

	if (!begin_patching(&offline))
		SKIP(return, "several CPUs under emulation");
	child = fork_child();
	if (!child) {
		/*
		 * The child waits for 20 ms and notifies, repeatedly. The process's name looks like
		 * the name of an event.
		 */
		prctl(PR_SET_NAME, "x: memwait_x");
		for (;;) {
			mw_wait(self->fd, self->words, 0, in_ms(20), MEMWAIT_SIZE_U32);
			mw_notify(self->fd, self->words + 1, 1, MEMWAIT_SIZE_U32);
		}
	}
	self->children[self->nr++] = child;
	run(&output, "top --interval 2 --count 1 | awk '%s %s %s'", "$6 ~ /:0x0$/ { w = $3 }",
	    "$6 ~ /:0x4$/ { n = $1; o = $3 }", "END { print w, n, o }");
	end_patching(offline);
	EXPECT_EQ(0, output.status);
	waits = strtoul(output.text, &next, 10);
	notifies = strtoul(next, &next, 10);
	others = strtoul(next, NULL, 10);
	EXPECT_IN_TIME(notifies >= 3);
	EXPECT_EQ(0, others);
	EXPECT_IN_TIME(waits >= 3);
	EXPECT_GE(100, waits);
	/*
	 * The command removes the tracing instance that it created, even if its output is not read.
	 */
	run(&output, "top --interval 0.1 | true");
	run(&output, "--help >/dev/null; ls /sys/kernel/tracing/instances");
	EXPECT_STREQ("", output.text);
}

/*
 * The name of a process may contain any character, including those that harm a terminal or a JSON
 * parser.
 */
TOOL_TEST(R37_names_that_are_not_printable)
{
	struct output output;
	pid_t child = fork_child();

	if (!child) {
		prctl(PR_SET_NAME, "\033[2J\x7f\xff\xc2\x9b\xc3\xa9");
		_exit(mw_wait(self->fd, self->words, 0, MEMWAIT_FOREVER, MEMWAIT_SIZE_U32));
	}
	self->children[self->nr++] = child;
	await_waiters(self->fd, self->words, MEMWAIT_SIZE_U32, 1);
	run(&output, "list --pid %d", child);
	EXPECT_EQ(0, output.status);
	EXPECT_SAYS(&output, "\\033[2J\\177\\377\\302\\233\xc3\xa9 ");
	run(&output, "list --json --pid %d", child);
	EXPECT_EQ(0, output.status);
	EXPECT_SAYS(&output, "\"command\": \"\\u001b[2J\\u007f\\u00ff\\u00c2\\u009b\xc3\xa9\"");
	run(&output, "list --pid 0");
	EXPECT_EQ(1, output.status);
}

TOOL_TEST(R37_a_word_in_a_huge_page)
{
	static const char file[] = "/tmp/huge/words", pages[] = "/proc/sys/vm/nr_hugepages";
	long before = read_number(pages);
	struct output output;
	struct statfs fs;
	int fd, status;
	char *words;
	pid_t child;

	mkdir("/tmp/huge", 0755);
	if (mount("none", "/tmp/huge", "hugetlbfs", 0, NULL))
		SKIP(return, "no hugetlbfs");
	if (before < 2)
		write_number(pages, 2);
	fd = open(file, O_RDWR | O_CREAT, 0600);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, fstatfs(fd, &fs));
	ASSERT_EQ(0, ftruncate(fd, 2 * fs.f_bsize));
	words = mmap(NULL, 2 * fs.f_bsize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (words != MAP_FAILED) {
		child = fork_child();
		if (!child) {
			run(&output, "wait %s %ld 0", file, fs.f_bsize + 8192);
			_exit(output.status);
		}
		do {
			usleep(1000);
			run(&output, "list --word %s:%ld", file, fs.f_bsize + 8192);
		} while (output.status == 1);
		EXPECT_EQ(0, output.status);
		run(&output, "notify %s %ld", file, fs.f_bsize + 8192);
		EXPECT_STREQ("1\n", output.text);
		EXPECT_EQ(0, child_status(child));
		munmap(words, 2 * fs.f_bsize);
	}
	unlink(file);
	status = umount("/tmp/huge");
	write_number(pages, before);
	EXPECT_EQ(0, status);
	if (words == MAP_FAILED)
		SKIP(return, "no huge pages");
}

TEST_HARNESS_MAIN
