/* SPDX-License-Identifier: GPL-2.0 */
/* The state of the fuzzer: programs, regions of memory, threads, coverage. */
#ifndef FUZZ_TEST_H
#define FUZZ_TEST_H

#include "../memwait_test.h"

#include <stdarg.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#define CALLS		30
#define ARGS		12
#define THREADS		3
#define PAGE		4096UL
#define CORPUS		4096
#define RING		16
#define TEXT		4096
#define LIMIT_S		60	/* limit of a program's time, see patience() */
#define USER_DATA	0x6d656d7761697400ULL

struct call {
	uint8_t kind;
	uint8_t thread;
	uint8_t flip;		/* the bit of the structs that is flipped; 0: none */
	uint8_t arg[ARGS];
};

struct program {
	uint8_t nr;
	uint8_t threads;	/* 1 to THREADS */
	uint8_t same;		/* each thread runs all calls */
	uint8_t restart;	/* the first signals have SA_RESTART */
	uint8_t end;		/* 1: the process ends as soon as one thread has ended */
	uint8_t pace;		/* how often a waiting thread is interrupted */
	struct call calls[CALLS];
};

/* Memory that the parent and all children share. */
static struct shared {
	int failed;
	char failure[512];
	uint64_t ids[16];		/* ids of the latest async waits */
	uint32_t nr_ids;
	uint64_t owner;			/* the id of a thread or a context */
	uint64_t calls;
	uint64_t points;		/* number of code points of the module that were reached */
	uint64_t edges;
	uint64_t news;			/* number of edges that this program reached first */
	uint64_t programs;
	uint64_t corpus;
	char ring[RING][TEXT];		/* the latest programs */
	uint8_t reached[1 << 20];	/* index: offset in the module's text */
	uint8_t edge[1 << 18];		/* index: hash of an edge */
} *shared;

/* Stores the first failure. */
static __printf(1, 2) void fail(const char *format, ...)
{
	va_list args;

	if (__atomic_exchange_n(&shared->failed, 1, __ATOMIC_ACQ_REL))
		return;
	va_start(args, format);
	vsnprintf(shared->failure, sizeof(shared->failure), format, args);
	va_end(args);
}

static uint64_t seed;

static uint32_t rnd(uint32_t below)
{
	return (uint32_t)(next_random(&seed) >> 32) % below;
}

/*
 * The memory that contains the words, at fixed addresses. The parent maps it, and a child may
 * change the mappings.
 */
#define REGIONS_BASE	0x20000000UL
#define REGION_STEP	0x400000UL
#define HUGE		0x200000UL

enum {
	PRIVATE, SHARED, SHARED_TWICE, READ_ONLY, NO_ACCESS, FILE_SHARED, FILE_PRIVATE, ANON_SHARED,
	HUGE_SHARED, SECRET, UNMAPPED, REGIONS,
};

static const char *const region_names[] = {
	"private", "shared", "shared-twice", "read-only", "no-access", "file", "file-private",
	"anonymous-shared", "huge", "secret", "unmapped",
};

/* The file that a region maps, or -1. */
static int region_file[REGIONS] = { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 };

static const uint16_t offsets[16] = {
	0, 4, 8, 16, 1, 2, 3, 12, PAGE - 8, PAGE - 4, PAGE - 2, PAGE - 1, PAGE, PAGE + 4,
	2 * PAGE - 8, 2 * PAGE - 1,
};

static const uint64_t special_addresses[] = {
	0, 0x7fffffffe000ULL, 0x7ffffffffffcULL, 0x8000000000000000ULL, 0xffff888000000000ULL,
	0xfffffffffffffff8ULL, 0x0100000020000000ULL,
};

#define COUNT_OF(array)	(sizeof(array) / sizeof((array)[0]))

static void *region(int i)
{
	return (void *)(REGIONS_BASE + i * REGION_STEP);
}

static size_t region_size(int i)
{
	return i == HUGE_SHARED ? HUGE : 2 * PAGE;
}

static uint64_t word_at(uint8_t value)
{
	int i = value & 15;

	if (i < REGIONS)
		return (uintptr_t)region(i) + offsets[value >> 4];
	return special_addresses[(value >> 4) % COUNT_OF(special_addresses)];
}

/*
 * Maps a region again, either as it was or, if @kind differs from @i, as a region of another kind.
 */
static void map_region(int i, int kind)
{
	int prot = PROT_READ | PROT_WRITE, flags = MAP_FIXED | MAP_SHARED, file = region_file[kind];

	switch (kind) {
	case UNMAPPED:
		munmap(region(i), region_size(i));
		return;
	case NO_ACCESS:
		prot = PROT_NONE;
		flags = MAP_FIXED | MAP_PRIVATE;
		break;
	case PRIVATE:
	case FILE_PRIVATE:
		flags = MAP_FIXED | MAP_PRIVATE;
		break;
	case READ_ONLY:
		prot = PROT_READ;
		break;
	}
	if (file < 0)
		flags |= MAP_ANONYMOUS;
	/* If the kernel has no huge pages or no secret memory, the region stays empty. */
	if (file < 0 && (kind == HUGE_SHARED || kind == SECRET))
		return;
	mmap(region(i), region_size(kind), prot, flags, file, 0);
}

static int file_of(int fd, size_t size)
{
	if (fd >= 0 && ftruncate(fd, size)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int open_regions(void)
{
	int memfd = file_of(memfd_create("fuzz", MFD_CLOEXEC), 2 * PAGE), i;
	char path[] = "/tmp/memwait-fuzz-XXXXXX";
	int file = mkstemp(path);

	unlink(path);
	region_file[SHARED] = memfd;
	region_file[SHARED_TWICE] = memfd;
	region_file[READ_ONLY] = memfd;
	region_file[FILE_SHARED] = file_of(file, 2 * PAGE);
	region_file[FILE_PRIVATE] = file;
	region_file[HUGE_SHARED] = file_of(memfd_create("fuzz", MFD_CLOEXEC | MFD_HUGETLB), HUGE);
	region_file[SECRET] = file_of(syscall(SYS_memfd_secret, O_CLOEXEC), 2 * PAGE);
	for (i = 0; i < REGIONS; i++)
		map_region(i, i);
	return memfd < 0 || file < 0 ? -1 : 0;
}

/* Restores the files that programs may have changed. The parent does not access these mappings. */
static void reset_regions(void)
{
	static const int files[] = { SHARED, FILE_SHARED, HUGE_SHARED };
	size_t i;
	int fd;

	for (i = 0; i < COUNT_OF(files); i++) {
		fd = region_file[files[i]];
		if (fd >= 0 && (ftruncate(fd, 0) || ftruncate(fd, region_size(files[i]))))
			fail("the file of a region cannot be restored");
	}
}

/*
 * A thread of a program. Its arguments are in its area, which has a page for the struct of the
 * call, a page for an array, two pages for the arrays of groups, and one more page. No memory is
 * mapped behind the area. To find forbidden changes by a call, the area is compared with a copy.
 */
#define AREA		(5 * PAGE)
#define STRUCT_AT	1024
#define WOKEN_AT	3072
#define ARRAY_AT	PAGE
#define GROUP_AT	(2 * PAGE)

struct thread {
	const struct program *program;
	int nr;
	bool forked;		/* true in a child that a program has forked */
	bool alone;		/* no other thread uses its contexts */
	int left;		/* number of calls until the thread ends */
	pthread_t thread;
	pid_t tid;
	uint8_t *area;
	uint8_t copy[AREA];
	uint64_t *kcov;
	int kcov_fd;
	const struct call *call;
	long ret;
};

static struct thread threads[THREADS];
static int done_fd;		/* each thread adds 1 when it ends */
static int scratch_fd;		/* a file for copying without faults */
static pthread_barrier_t begin;

/* Coverage */

#define KCOV_INIT_TRACE		_IOR('c', 1, unsigned long)
#define KCOV_ENABLE		_IO('c', 100)
#define KCOV_TRACE_PC		0
#define KCOV_POINTS		16384

static uint64_t text_start;
static unsigned long text_size;

static bool open_coverage(void)
{
	char line[256];
	int i;
	FILE *f;

	f = fopen("/sys/module/memwait/sections/.text", "r");
	if (!f || !fgets(line, sizeof(line), f))
		line[0] = 0;
	if (f)
		fclose(f);
	text_start = strtoull(line, NULL, 16);
	f = fopen("/proc/modules", "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "memwait %lu", &text_size);
	if (f)
		fclose(f);
	if (text_size > sizeof(shared->reached))
		text_size = sizeof(shared->reached);
	for (i = 0; i < THREADS; i++)
		threads[i].kcov_fd = -1;
	if (!text_start || !text_size)
		return false;

	for (i = 0; i < THREADS; i++) {
		struct thread *t = &threads[i];

		t->kcov_fd = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);
		if (t->kcov_fd < 0 || ioctl(t->kcov_fd, KCOV_INIT_TRACE, KCOV_POINTS))
			return false;
		t->kcov = mmap(NULL, KCOV_POINTS * sizeof(uint64_t), PROT_READ | PROT_WRITE,
			       MAP_SHARED, t->kcov_fd, 0);
		if (t->kcov == MAP_FAILED)
			return false;
	}
	return true;
}

static void coverage_begin(struct thread *t)
{
	if (t->kcov)
		__atomic_store_n(&t->kcov[0], 0, __ATOMIC_RELAXED);
}

static void coverage_end(struct thread *t)
{
	uint64_t n, i, offset, last = 0, hash;

	if (!t->kcov)
		return;
	n = __atomic_load_n(&t->kcov[0], __ATOMIC_RELAXED);
	for (i = 1; i <= n; i++) {
		offset = t->kcov[i] - text_start;
		if (offset >= text_size)
			continue;
		if (!__atomic_exchange_n(&shared->reached[offset], 1, __ATOMIC_RELAXED))
			__atomic_add_fetch(&shared->points, 1, __ATOMIC_RELAXED);
		hash = ((last * 0x9e3779b97f4a7c15ULL) ^ (offset * 0xc2b2ae3d27d4eb4fULL)) >> 46;
		if (!shared->edge[hash] &&
		    !__atomic_exchange_n(&shared->edge[hash], 1, __ATOMIC_RELAXED)) {
			__atomic_add_fetch(&shared->edges, 1, __ATOMIC_RELAXED);
			__atomic_add_fetch(&shared->news, 1, __ATOMIC_RELAXED);
		}
		last = offset;
	}
}

/* Makes a system call, whose result or negative errno is the result of the thread's call. */
#define TRY(t, system_call) do {		\
	coverage_begin(t);			\
	(t)->ret = (system_call);		\
	if ((t)->ret < 0)			\
		(t)->ret = -errno;		\
	coverage_end(t);			\
} while (0)

/* Contexts have descriptor numbers that no other file can get. */
#define CONTEXTS	4
#define CONTEXT_FD	100
#define EPOLL_FD	110

static int context(uint8_t value)
{
	return CONTEXT_FD + value % CONTEXTS;
}

/* Moves the descriptor to another number. */
static int settle(int fd, int to)
{
	int ret;

	if (fd < 0)
		return -errno;
	ret = dup3(fd, to, O_CLOEXEC);
	if (ret < 0)
		ret = -errno;
	close(fd);
	return ret;
}

#endif /* FUZZ_TEST_H */
