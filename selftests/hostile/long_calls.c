// SPDX-License-Identifier: GPL-2.0
/* R29: calls on very long arrays respond to signals and to the freezer. */
#include "hostile_test.h"
#include <linux/falloc.h>
#include <linux/userfaultfd.h>
#include <sys/prctl.h>

/*
 * R29: calls on very long arrays. The arrays are mapped in such a way that they use hardly any
 * memory.
 */
#define LONG_ARRAY	1000000000U
#define LONG_BATCH	100000000U
#define CHUNK		40960	/* after so many entries an entry is at a page start again */

struct long_call {
	int started, returned, result;
};

/* All entries have the count 0. */
static int call_notify_many(int fd, uint32_t *word)
{
	size_t size = (size_t)LONG_ARRAY * sizeof(struct memwait_notify);
	void *array = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			   0);

	return array == MAP_FAILED ? -ENOMEM : mw_notify_many(fd, array, LONG_ARRAY, NULL);
}

/* The result of all entries is NOT_EQUAL. The array maps the same part of a file repeatedly. */
static int call_wait_async(int fd, uint32_t *word)
{
	size_t size = CHUNK * sizeof(struct memwait_async), offset;
	size_t total = LONG_BATCH / CHUNK * size;
	struct memwait_wait_async arg = BATCH_OF(0, LONG_BATCH / CHUNK * CHUNK);
	int memory = memfd_create("entries", 0), i;
	struct memwait_async *e;
	char *array;

	array = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (array == MAP_FAILED || ftruncate(memory, size))
		return -ENOMEM;
	for (offset = 0; offset < total; offset += size) {
		if (mmap(array + offset, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			 memory, 0) == MAP_FAILED)
			return -ENOMEM;
	}
	e = (void *)array;
	for (i = 0; i < CHUNK; i++) {
		e[i].wait.addr = (uintptr_t)word;
		e[i].wait.expected = 1;
		e[i].wait.deadline = MEMWAIT_FOREVER;
		e[i].wait.flags = U32;
	}
	arg.waits = (uintptr_t)array;
	return xioctl(fd, MEMWAIT_IOC_WAIT_ASYNC, &arg);
}

/* Returns the CPU time that a process has spent in the kernel, in ticks. */
static long system_time(pid_t pid)
{
	char path[64], line[1024], *p;
	long ticks = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	p = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	if (f)
		fclose(f);
	if (p)
		sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %ld", &ticks);
	return ticks;
}

/* Starts the call. Returns when the call has worked in the kernel for some time. */
static pid_t start_long_call(struct long_call *c, int fd, uint32_t *word,
			     int (*call)(int fd, uint32_t *word))
{
	pid_t pid = fork_child();
	long before;

	if (!pid) {
		handle(SIGUSR1, 0);
		store(&c->started, 1);
		c->result = call(fd, word);
		store(&c->returned, 1);
		_exit(0);
	}
	while (!load(&c->started))
		usleep(1000);
	before = system_time(pid);
	/* Mapping the array takes much less time. */
	while (!load(&c->returned) && system_time(pid) < before + 100)
		usleep(10000);
	return pid;
}

static void signal_long_call(struct __test_metadata *_metadata, int fd, uint32_t *word,
			     int (*call)(int fd, uint32_t *word), int whole)
{
	struct long_call *c = shared_page(4096);
	pid_t pid = start_long_call(c, fd, word, call);
	uint64_t start = now(), took;
	int status;
	bool gone;

	kill(pid, SIGUSR1);
	gone = await_gone(pid, &status, 60);
	took = now() - start;
	TH_LOG("a signal ended the call %s %ld ms, with %d of %d entries done",
	       gone ? "after" : "not within", in_millis(took), c->result, whole);
	EXPECT_TRUE(gone);
	EXPECT_WITHIN_MS(10000, took);
	if (gone) {
		EXPECT_LT(0, c->result);
		EXPECT_GT(whole, c->result);
	} else {
		EXPECT_WITHIN_MS(5000, kill_and_time(pid));
	}
	munmap(c, 4096);
}

MEMWAIT_TEST(R29_a_long_notify_many_responds_to_signals)
{
	signal_long_call(_metadata, self->fd, self->shared, call_notify_many, LONG_ARRAY);
}

MEMWAIT_TEST(R29_a_long_batch_responds_to_signals)
{
	signal_long_call(_metadata, self->fd, self->shared, call_wait_async,
			 LONG_BATCH / CHUNK * CHUNK);
}

static void freeze_long_call(struct __test_metadata *_metadata, int fd, uint32_t *word,
			     int (*call)(int fd, uint32_t *word), int whole)
{
	struct long_call *c = shared_page(4096);
	uint64_t start, took, end;
	bool frozen = false, gone;
	int status;
	pid_t pid;

	rmdir(BOX);	/* a killed test may have left it */
	if (mkdir(BOX, 0755) || read_number(BOX "/cgroup.freeze")) {
		rmdir(BOX);
		SKIP(return, "no cgroup v2 at /sys/fs/cgroup");
	}
	pid = start_long_call(c, fd, word, call);
	EXPECT_EQ(0, write_number(BOX "/cgroup.procs", pid));
	start = now();
	end = patience(60);
	EXPECT_EQ(0, write_number(BOX "/cgroup.freeze", 1));
	while (!frozen && now() < end) {
		frozen = read_number_of(BOX "/cgroup.events", "frozen") == 1;
		usleep(1000);
	}
	took = now() - start;
	TH_LOG("%s %ld ms", frozen ? "frozen after" : "not frozen within", in_millis(took));
	EXPECT_TRUE(frozen);
	EXPECT_WITHIN_MS(10000, took);
	EXPECT_FALSE(load(&c->returned));
	EXPECT_EQ(0, write_number(BOX "/cgroup.freeze", 0));
	if (frozen) {
		/* The call continues, or returns the number of entries done before the signal. */
		kill(pid, SIGUSR1);
		gone = await_gone(pid, &status, 60);
		EXPECT_TRUE(gone);
		if (gone) {
			EXPECT_LT(0, c->result);
			EXPECT_GT(whole, c->result);
		}
		if (!gone)
			kill_child(pid);
	} else {
		kill_child(pid);
	}
	EXPECT_EQ(0, remove_cgroup(BOX));
	munmap(c, 4096);
}

MEMWAIT_TEST(R29_a_long_notify_many_freezes)
{
	freeze_long_call(_metadata, self->fd, self->shared, call_notify_many, LONG_ARRAY);
}

MEMWAIT_TEST(R29_a_long_batch_freezes)
{
	freeze_long_call(_metadata, self->fd, self->shared, call_wait_async,
			 LONG_BATCH / CHUNK * CHUNK);
}

/*
 * R7, R29: the two words of a group are never resident at the same time. Therefore the call starts
 * again, until the signal handler ends this.
 */
struct pages {
	int file, uffd;
	char *start;
};

static int *both_may_stay;

static void let_both_stay(int sig)
{
	store(both_may_stay, 1);
}

/* Resolves each fault on one of two pages by removing the other page. */
static void exchange_pages(const struct pages *pages)
{
	struct uffd_msg msg;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(pages->uffd, &msg, sizeof(msg)) == sizeof(msg)) {
		long missed = msg.arg.pagefault.address - (uintptr_t)pages->start < 4096 ? 0 : 4096;
		struct uffdio_zeropage zero = {
			.range = { (uintptr_t)pages->start + missed, 4096 },
		};

		if (!load(both_may_stay) &&
		    fallocate(pages->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			      4096 - missed, 4096))
			break;
		ioctl(pages->uffd, UFFDIO_ZEROPAGE, &zero);
	}
	_exit(1);
}

/* The process that resolves the faults continues while this process is frozen. */
static int call_group(int fd, uint32_t *word)
{
	const struct sigaction stay = { .sa_handler = let_both_stay };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	struct memwait_wait waits[2];
	struct pages pages;
	uint64_t id;
	int ret;

	both_may_stay = shared_page(4096);
	pages.file = memfd_create("pages", 0);
	pages.uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (ftruncate(pages.file, 2 * 4096L) || ioctl(pages.uffd, UFFDIO_API, &api) ||
	    sigaction(SIGUSR1, &stay, NULL))
		return -EIO;
	pages.start = mmap(NULL, 2 * 4096L, PROT_READ, MAP_SHARED, pages.file, 0);
	reg.range.start = (uintptr_t)pages.start;
	reg.range.len = 2 * 4096L;
	if (pages.start == MAP_FAILED || ioctl(pages.uffd, UFFDIO_REGISTER, &reg))
		return -EIO;
	if (!fork_child())
		exchange_pages(&pages);
	waits[0] = member(pages.start, 0, U32);
	waits[1] = member(pages.start + 4096, 0, U32);
	ret = mw_group(fd, waits, 2, MEMWAIT_FOREVER, 0, 0, &id);
	return ret == MEMWAIT_PENDING ? 1 + mw_cancel(fd, id) : ret;
}

static bool has_userfaultfd(void)
{
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);

	close(uffd);
	return uffd >= 0;
}

MEMWAIT_TEST(R29_a_group_that_never_joins_responds_to_signals)
{
	if (!has_userfaultfd())
		SKIP(return, "no userfaultfd");
	signal_long_call(_metadata, self->fd, self->shared, call_group, 2);
}

MEMWAIT_TEST(R29_a_group_that_never_joins_freezes)
{
	if (!has_userfaultfd())
		SKIP(return, "no userfaultfd");
	freeze_long_call(_metadata, self->fd, self->shared, call_group, 2);
}

MEMWAIT_TEST(R28_a_group_that_never_joins_can_be_killed)
{
	struct long_call *c = shared_page(4096);
	pid_t pid;

	if (!has_userfaultfd())
		SKIP(return, "no userfaultfd");
	pid = start_long_call(c, self->fd, self->shared, call_group);
	EXPECT_EQ(0, load(&c->returned));
	EXPECT_WITHIN_MS(5000, kill_and_time(pid));
	munmap(c, 4096);
}

TEST_HARNESS_MAIN
