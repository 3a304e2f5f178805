// SPDX-License-Identifier: GPL-2.0
/*
 * A fuzzer of /dev/memwait: programs of random calls, right and wrong ones, run by threads that
 * share contexts and words, while mappings go away and come back, and signals arrive.
 *
 * A program is up to CALLS calls. Each has a kind (struct kind below) and arguments, which are
 * bytes: what a byte means depends on the argument's type, and is mostly an index into a small set
 * of interesting values. A child runs each program; whatever becomes of it, the parent is safe.
 *
 * Where the kernel has KCOV, a program that reaches an edge in the module (two of its points one
 * after another) that none has reached before joins the corpus, and new programs are made by
 * changing those. Elsewhere each program is new.
 *
 * What is checked: a call returns what Documentation/memwait.rst says, writes nothing but the
 * fields that are documented as written, and a time-out is not early; an uninterrupted call ends
 * by its deadline or by a signal; a program leaves no waiter and no charge behind, and no new
 * taint in the kernel. The kernel's own checkers are the rest.
 *
 * MEMWAIT_FUZZ_SECONDS	how long (20)
 * MEMWAIT_FUZZ_SEED	of the random numbers; it is printed
 * MEMWAIT_FUZZ_REPLAY	a program in the form in which one that failed is printed: runs that
 */
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
#define LIMIT_MS	60000	/* that long a program may take, on the slowest machine */
#define USER_DATA	0x6d656d7761697400ULL

struct call {
	uint8_t kind;
	uint8_t thread;
	uint8_t flip;		/* which bit of the structs is wrong; 0: none */
	uint8_t arg[ARGS];
};

struct program {
	uint8_t nr;
	uint8_t threads;	/* 1 to THREADS */
	uint8_t same;		/* each thread runs all calls */
	uint8_t restart;	/* the first signals have SA_RESTART */
	uint8_t end;		/* 1: the process ends as soon as one thread has */
	uint8_t pace;		/* how often a thread that waits is interrupted */
	struct call calls[CALLS];
};

/* What the parent and all children share. */
static struct shared {
	int failed;
	char failure[512];
	uint64_t ids[16];		/* of async waits, the last ones */
	uint32_t nr_ids;
	uint64_t owner;			/* an id that was given to a thread or a context */
	uint64_t calls;
	uint64_t points;		/* of the module that were reached */
	uint64_t edges;
	uint64_t news;			/* edges that this program was the first to reach */
	uint64_t programs;
	uint64_t corpus;
	char ring[RING][TEXT];		/* the last programs */
	uint8_t reached[1 << 20];	/* by offset in the module's text */
	uint8_t edge[1 << 18];		/* by hash */
} *shared;

/* Keeps the first failure. */
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
 * The memory that words lie in, at fixed addresses. The parent maps it, a child may change it as it
 * likes.
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

/* The file that a region is a mapping of, or -1. */
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

/* Puts a region back as it was, or with something else there if kind is another one. */
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
	/* Where there are no huge pages, or no secret ones, the region stays empty. */
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

/* What programs have done to the files. The parent touches none of these mappings. */
static void reset_regions(void)
{
	static const int files[] = { SHARED, FILE_SHARED, HUGE_SHARED };
	size_t i;
	int fd;

	for (i = 0; i < COUNT_OF(files); i++) {
		fd = region_file[files[i]];
		if (fd >= 0 && (ftruncate(fd, 0) || ftruncate(fd, region_size(files[i]))))
			fail("the file of a region cannot be set back");
	}
}

/*
 * A thread of a program. Its arguments lie in its area: a page for the struct of the call, one for
 * an array, two for the arrays of groups, one more, and nothing behind that. What a call must not
 * change is found by comparing with a copy.
 */
#define AREA		(5 * PAGE)
#define STRUCT_AT	1024
#define WOKEN_AT	3072
#define ARRAY_AT	PAGE
#define GROUP_AT	(2 * PAGE)

struct thread {
	const struct program *program;
	int nr;
	bool forked;		/* this is the child that a program has forked */
	bool alone;		/* nobody else uses its contexts */
	int left;		/* calls until it ends */
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
static int scratch_fd;		/* to copy without faults */
static pthread_barrier_t begin;

/* Coverage */

#define KCOV_INIT_TRACE		_IOR('c', 1, unsigned long)
#define KCOV_ENABLE		_IO('c', 100)
#define KCOV_TRACE_PC		0
#define KCOV_POINTS		16384

static uint64_t text_start, text_size;

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

/* Contexts have descriptors that nothing else can get. */
#define CONTEXTS	4
#define CONTEXT_FD	100
#define EPOLL_FD	110

static int context(uint8_t value)
{
	return CONTEXT_FD + value % CONTEXTS;
}

/* Gives the descriptor another number. */
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

/* Values of arguments */

static const uint64_t values[] = { 0, 1, 0xff, 0x100000000ULL, ~0ULL, 0x1234 };
static const uint32_t counts[] = { 1, MEMWAIT_ALL, 0, 2, 3, 0x7fffffff, 0x80000000 };
static const uint32_t nrs[] = { 1, 2, 3, 4, 8, 9, 128, 0, 129, 0x7fffffff, 0x80000000, ~0U };
static const uint32_t flag_sets[] = {
	MEMWAIT_SIZE_U32,
	MEMWAIT_SIZE_U32 | MEMWAIT_PRIVATE,
	MEMWAIT_SIZE_U8,
	MEMWAIT_SIZE_U16,
	MEMWAIT_SIZE_U64,
	MEMWAIT_SIZE_U32 | MEMWAIT_CLOCK_REALTIME,
	MEMWAIT_SIZE_U64 | MEMWAIT_PRIVATE | MEMWAIT_CLOCK_REALTIME,
	MEMWAIT_SIZE_U64 | MEMWAIT_OWNED,
	MEMWAIT_SIZE_U32 | MEMWAIT_OWNED,
	MEMWAIT_GROUP,
	MEMWAIT_GROUP | MEMWAIT_CLOCK_REALTIME,
	MEMWAIT_SIZE_U32 | 0x400,
	MEMWAIT_SIZE_U8 | MEMWAIT_PRIVATE,
	MEMWAIT_SIZE_U32 | MEMWAIT_GROUP,
	0x4, 0x40, 0x800, 0x80000000, ~0U,
};

static const char *const deadline_names[] = {
	"forever", "0", "past", "+100us", "+500us", "+5ms", "max-1", "max", "max+1", "forever-1",
	"+20ms",
};

#define PICK(array, value)	((array)[(value) % COUNT_OF(array)])

static clockid_t clock_of(uint32_t flags)
{
	return flags & MEMWAIT_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
}

static uint64_t deadline_of(uint8_t value, uint32_t flags)
{
	uint64_t now = now_ns(clock_of(flags));

	switch (value % COUNT_OF(deadline_names)) {
	case 1:
		return 0;
	case 2:
		return now - NSEC_PER_MSEC;
	case 3:
		return now + 100000;
	case 4:
		return now + 500000;
	case 5:
		return now + 5 * NSEC_PER_MSEC;
	case 6:
		return INT64_MAX - 1;
	case 7:
		return INT64_MAX;
	case 8:
		return (uint64_t)INT64_MAX + 1;
	case 9:
		return ~0ULL - 1;
	case 10:
		return now + 20 * NSEC_PER_MSEC;
	default:
		return MEMWAIT_FOREVER;
	}
}

static uint64_t id_of(uint8_t value)
{
	uint64_t id = __atomic_load_n(&shared->ids[value % 16], __ATOMIC_RELAXED);

	switch (value / 16) {
	case 13:
		return 0;
	case 14:
		return id + (1 << 24);
	case 15:
		return ~0ULL;
	default:
		return id;
	}
}

/* Some are the id of an owner, alive or dead. */
static uint64_t value_of(uint8_t byte)
{
	return byte % 8 == 7 ? __atomic_load_n(&shared->owner, __ATOMIC_RELAXED) :
			       PICK(values, byte);
}

static void keep_id(uint64_t id)
{
	uint32_t i = __atomic_fetch_add(&shared->nr_ids, 1, __ATOMIC_RELAXED);

	__atomic_store_n(&shared->ids[i % 16], id, __ATOMIC_RELAXED);
}

/*
 * Where an argument lies. Only of one in the area can it be told what the call has done to it: in
 * the regions others may change it, or take it away.
 */
enum { NORMAL, AT_END, CUT, IN_REGION, NOWHERE, IN_KERNEL, IN_READ_ONLY, PLACES };

static const char *const place_names[] = {
	"normal", "at-end", "cut", "in-region", "null", "kernel", "in-read-only",
};

static bool in_area(const struct thread *t, uint64_t at)
{
	return at - (uintptr_t)t->area < AREA;
}

/* Copies even to where nothing is mapped. */
static void copy_to(struct thread *t, uint64_t to, const void *from, size_t size)
{
	off_t offset = (t - threads) * 4 * PAGE + (t->forked ? 2 * PAGE : 0);
	ssize_t ret = pwrite(scratch_fd, from, size, offset);

	if (ret == (ssize_t)size)
		ret = pread(scratch_fd, (void *)(uintptr_t)to, size, offset);
}

static uint64_t place(struct thread *t, uint8_t how, const void *arg, size_t size, size_t normal)
{
	uint8_t *at = t->area + normal;
	uint64_t elsewhere;

	switch (how % PLACES) {
	case AT_END:
		at = t->area + AREA - size;
		break;
	case CUT:
		at = t->area + AREA - size / 2;
		break;
	case IN_REGION:
		/* Nobody else may see a struct, for it says where the call writes. */
		elsewhere = (uintptr_t)region(SHARED) +
			    (normal == STRUCT_AT ? 64UL + (t->nr + t->forked * THREADS) * 128 :
						   PAGE + 64);
		copy_to(t, elsewhere, arg, size);
		return elsewhere;
	case NOWHERE:
		return 0;
	case IN_KERNEL:
		return 0xffff888000100000ULL;
	case IN_READ_ONLY:
		/* The same file as above: where only words are, and no other thread's struct. */
		return (uintptr_t)region(READ_ONLY) + 8;
	}
	if (at + size > t->area + AREA)
		size = t->area + AREA - at;
	memcpy(at, arg, size);
	return (uintptr_t)at;
}

static void flip_bit(uint64_t at, size_t from, size_t size, uint8_t flip)
{
	size_t bit = from * 8 + flip * 37 % ((size - from) * 8);

	((uint8_t *)(uintptr_t)at)[bit / 8] ^= 1 << bit % 8;
}

/* Before a call: what is there must stay. */
static void remember(struct thread *t)
{
	memcpy(t->copy, t->area, AREA);
}

/* After it: but this may have changed. */
static void may_change(struct thread *t, uint64_t at, size_t size)
{
	size_t offset = at - (uintptr_t)t->area;

	if (!in_area(t, at))
		return;
	if (offset + size > AREA)
		size = AREA - offset;
	memcpy(t->copy + offset, t->area + offset, size);
}

static const char *call_name(const struct thread *t);

#define CHECK(t, condition) do {						\
	if (!(condition))							\
		fail("%s returned %ld: not so: %s", call_name(t), (t)->ret, #condition); \
} while (0)

static void compare_area(struct thread *t)
{
	size_t i;

	if (!memcmp(t->copy, t->area, AREA))
		return;
	for (i = 0; i < AREA && t->copy[i] == t->area[i]; i++)
		;
	fail("%s returned %ld and wrote to byte %zu of the area: %02x, was %02x", call_name(t),
	     t->ret, i, t->area[i], t->copy[i]);
}

/* The size in the ioctl's number. */
static size_t size_of(uint8_t value, size_t known)
{
	switch (value % 8) {
	case 5:
		return known - 8;
	case 6:
		return value & 8 ? 0 : 16383;
	case 7:
		return known + 8;
	default:
		return known;
	}
}

/*
 * An ioctl: its struct is placed, may have a bit flipped from byte flip_from on (what lies before
 * that says where the call writes), and what follows it is zero, or not. Returns where it lies.
 */
static uint64_t issue(struct thread *t, unsigned long cmd, const void *arg, size_t known,
		      size_t flip_from)
{
	const struct call *c = t->call;
	size_t size = size_of(c->arg[1], known);
	uint8_t how = c->arg[2] % PLACES;
	uint64_t at;

	if (size > known && how == NORMAL)
		memset(t->area + STRUCT_AT, c->arg[1] & 16 ? 0xff : 0, known + 8);
	if (size > known && how == AT_END)
		how = NORMAL;
	at = place(t, how, arg, known, STRUCT_AT);
	if (c->flip && c->flip < 128 && (how == NORMAL || how == AT_END) && flip_from < known)
		flip_bit(at, flip_from, known, c->flip);
	remember(t);
	cmd = (cmd & ~((unsigned long)_IOC_SIZEMASK << _IOC_SIZESHIFT)) | size << _IOC_SIZESHIFT;
	coverage_begin(t);
	t->ret = ioctl(context(c->arg[0]), cmd, at);
	if (t->ret < 0)
		t->ret = -errno;
	coverage_end(t);
	return at;
}

/* The struct as it was when the call began, or NULL if that cannot be known. */
static const void *passed(const struct thread *t, uint64_t at)
{
	uint8_t how = t->call->arg[2] % PLACES;

	return how == NORMAL || how == AT_END ? t->copy + (at - (uintptr_t)t->area) : NULL;
}

/* A time-out is never early. */
static void check_deadline(struct thread *t, uint64_t deadline, uint32_t flags)
{
	uint64_t now = now_ns(clock_of(flags));

	if (deadline > now)
		fail("%s timed out %llu ns early", call_name(t),
		     (unsigned long long)(deadline - now));
}

/* Calls. What they return is compared with the kind's errors by the caller. */

static void do_info(struct thread *t)
{
	static const struct memwait_info nothing;
	uint64_t at = issue(t, MEMWAIT_IOC_INFO, &nothing, sizeof(nothing), sizeof(nothing));
	size_t size = size_of(t->call->arg[1], sizeof(nothing)), i;
	const struct memwait_info *info = (void *)(uintptr_t)at;

	if (!passed(t, at)) {
		may_change(t, at, size);
		return;
	}
	CHECK(t, t->ret != -EFAULT);
	if (t->ret)
		return;
	may_change(t, at, size);
	CHECK(t, info->max_group == MEMWAIT_GROUP_MAX);
	CHECK(t, !info->reserved);
	for (i = sizeof(*info); i < size; i++)
		CHECK(t, !((uint8_t *)info)[i]);
}

static struct memwait_wait wait_arg(const uint8_t *arg)
{
	uint32_t flags = PICK(flag_sets, arg[3]);

	return (struct memwait_wait) {
		.addr = word_at(arg[0]),
		.expected = value_of(arg[1]),
		.deadline = deadline_of(arg[2], flags),
		.flags = flags,
	};
}

static struct memwait_notify notify_arg(const uint8_t *arg)
{
	return (struct memwait_notify) {
		.addr = word_at(arg[0]),
		.count = PICK(counts, arg[1]),
		.flags = PICK(flag_sets, arg[2]),
	};
}

static void do_wait(struct thread *t)
{
	struct memwait_wait arg = wait_arg(t->call->arg + 3);
	uint64_t at = issue(t, MEMWAIT_IOC_WAIT, &arg, sizeof(arg), 0);
	const struct memwait_wait *was = passed(t, at);

	if (was && t->ret == MEMWAIT_TIMED_OUT)
		check_deadline(t, was->deadline, was->flags);
}

static void do_notify(struct thread *t)
{
	struct memwait_notify arg = notify_arg(t->call->arg + 3);
	uint64_t at = issue(t, MEMWAIT_IOC_NOTIFY, &arg, sizeof(arg), 0);
	const struct memwait_notify *was = passed(t, at);

	CHECK(t, t->ret <= 0 || !was || t->ret <= was->count);
}

static void do_waiters(struct thread *t)
{
	struct memwait_notify arg = notify_arg(t->call->arg + 3);

	/* Mostly right. */
	if (t->call->arg[4] < 224)
		arg.count = 0;
	issue(t, MEMWAIT_IOC_WAITERS, &arg, sizeof(arg), 0);
}

static void do_cancel(struct thread *t)
{
	struct memwait_cancel arg = { .id = id_of(t->call->arg[3]) };
	uint64_t at = issue(t, MEMWAIT_IOC_CANCEL, &arg, sizeof(arg), 0);

	CHECK(t, t->ret != -EFAULT || !passed(t, at));
}

/* Words in a row, or one of them again and again. */
static void make_group(struct memwait_wait *waits, uint32_t nr, uint8_t word, uint8_t value,
		       uint8_t flags)
{
	uint32_t step = flags & 0x80 ? 0 : 8, i;

	for (i = 0; i < nr; i++) {
		waits[i] = (struct memwait_wait) {
			.addr = word_at(word) + i * step,
			.expected = value_of(value),
			.flags = PICK(flag_sets, flags) & ~MEMWAIT_GROUP,
		};
		if (i % 3 == 2)
			waits[i].addr = word_at(word ^ 1);
	}
}

#define ENTRIES	4

/* The entry of a batch that the call has left off at says why, unless it cannot. */
static void check_entry(struct thread *t, const struct memwait_async *entry,
			const struct memwait_async *was, bool failed)
{
	bool grouped = was->wait.flags & MEMWAIT_GROUP;

	may_change(t, (uintptr_t)&entry->id, sizeof(entry->id));
	may_change(t, (uintptr_t)&entry->result, sizeof(entry->result));
	if (grouped)
		may_change(t, (uintptr_t)&entry->any.index, sizeof(entry->any.index));
	if (failed) {
		CHECK(t, entry->id == 0);
		CHECK(t, entry->result == -EINVAL || entry->result == -EFAULT ||
		      entry->result == -EOPNOTSUPP || entry->result == -ENOSPC ||
		      entry->result == -ENOMEM || entry->result == -EPERM);
		CHECK(t, t->ret > 0 || t->ret == entry->result);
		return;
	}
	CHECK(t, entry->result >= MEMWAIT_NOT_EQUAL && entry->result <= MEMWAIT_OWNER_DIED);
	CHECK(t, entry->result != MEMWAIT_OWNER_DIED || (was->wait.flags & MEMWAIT_OWNED));
	CHECK(t, !entry->id == (entry->result != MEMWAIT_PENDING));
	if (entry->id)
		keep_id(entry->id);
	if (entry->result == MEMWAIT_TIMED_OUT)
		check_deadline(t, was->wait.deadline, was->wait.flags);
	if (grouped)
		CHECK(t, entry->result == MEMWAIT_NOT_EQUAL ?
			 entry->any.index < was->any.count : entry->any.index == was->any.index);
}

static void do_wait_async(struct thread *t)
{
	const struct call *c = t->call;
	struct memwait_async entries[ENTRIES] = { 0 }, before[ENTRIES];
	struct memwait_wait_async arg = {
		.count = PICK(nrs, c->arg[3]),
		.entry_size = sizeof(entries[0]),
	};
	struct memwait_wait group[MEMWAIT_GROUP_MAX];
	const struct memwait_wait_async *was;
	const struct memwait_async *entry;
	uint32_t i, nr;

	for (i = 0; i < ENTRIES; i++) {
		const uint8_t *a = c->arg + 4 + i % 2 * 4;

		entries[i] = (struct memwait_async) {
			.wait = wait_arg(a),
			.user_data = USER_DATA | i,
		};
		if (!(entries[i].wait.flags & MEMWAIT_GROUP))
			continue;
		nr = PICK(nrs, a[1]);
		make_group(group, nr > MEMWAIT_GROUP_MAX ? MEMWAIT_GROUP_MAX : nr, a[0], a[1] / 16,
			   a[3] & 0x80);
		entries[i].any = (struct memwait_wait_any) {
			.waits = place(t, i == 3 ? (uint8_t)CUT : (uint8_t)NORMAL, group,
				       sizeof(group), GROUP_AT + i % 2 * PAGE),
			.count = nr,
			.deadline = entries[i].wait.deadline,
			.flags = entries[i].wait.flags,
			.index = a[2],
		};
	}
	/* As few as are asked for: the area ends behind them. */
	nr = arg.count < ENTRIES ? arg.count : ENTRIES;
	arg.waits = place(t, c->arg[2] / PLACES, entries, nr * sizeof(entries[0]), ARRAY_AT);
	if (c->flip >= 128 && nr && c->arg[2] / PLACES % PLACES == NORMAL)
		flip_bit(arg.waits, 0, nr * sizeof(entries[0]), c->flip);
	was = passed(t, issue(t, MEMWAIT_IOC_WAIT_ASYNC, &arg, sizeof(arg), 8));
	if (!in_area(t, arg.waits))
		return;
	/* With another size of the elements they are others, and lie elsewhere. */
	if (was && was->entry_size != sizeof(entries[0])) {
		may_change(t, arg.waits, AREA);
		return;
	}

	/* The copy changes as the entries are looked at. */
	memcpy(before, t->copy + (arg.waits - (uintptr_t)t->area),
	       sizeof(before) < AREA - (arg.waits - (uintptr_t)t->area) ? sizeof(before) :
	       AREA - (arg.waits - (uintptr_t)t->area));
	entry = (const void *)(uintptr_t)arg.waits;
	nr = t->ret < 0 ? 0 : t->ret;
	for (i = 0; i < nr && i < ENTRIES; i++)
		check_entry(t, &entry[i], &before[i], false);
	if (i < ENTRIES && in_area(t, (uintptr_t)&entry[i + 1] - 1) &&
	    memcmp(&entry[i], &before[i], sizeof(before[i])))
		check_entry(t, &entry[i], &before[i], true);
	/* Beyond those that were made there may be more, if the count was a large one. */
	for (i = ENTRIES; i <= nr; i++)
		may_change(t, (uintptr_t)&entry[i].id, 16);
	/* Cut by the end of the area. */
	if (c->arg[2] / PLACES % PLACES == CUT)
		may_change(t, arg.waits, AREA);
}

static void do_wait_any(struct thread *t)
{
	const struct call *c = t->call;
	struct memwait_wait waits[MEMWAIT_GROUP_MAX];
	struct memwait_wait_any arg = {
		.count = PICK(nrs, c->arg[3]),
		.deadline = deadline_of(c->arg[6], PICK(flag_sets, c->arg[8])),
		.index = 0x5a5a5a5a,
	}, *now;
	const struct memwait_wait_any *was;
	uint32_t nr = arg.count < MEMWAIT_GROUP_MAX ? arg.count : MEMWAIT_GROUP_MAX;
	uint64_t at;

	arg.flags = c->arg[8] % 8 == 5 ? PICK(flag_sets, c->arg[8] / 8) :
		    PICK(flag_sets, c->arg[8]) & MEMWAIT_CLOCK_REALTIME;
	make_group(waits, nr, c->arg[4], c->arg[5], c->arg[7]);
	arg.waits = place(t, c->arg[2] / PLACES, waits, nr * sizeof(waits[0]), ARRAY_AT);
	if (c->flip >= 128 && nr && c->arg[2] / PLACES % PLACES == NORMAL)
		flip_bit(arg.waits, 0, nr * sizeof(waits[0]), c->flip);
	at = issue(t, MEMWAIT_IOC_WAIT_ANY, &arg, sizeof(arg), 0);
	was = passed(t, at);
	now = (void *)(uintptr_t)at;
	if (!was) {
		may_change(t, at + offsetof(struct memwait_wait_any, index), sizeof(now->index));
		return;
	}
	if (t->ret == MEMWAIT_TIMED_OUT)
		check_deadline(t, was->deadline, was->flags);
	if (t->ret == MEMWAIT_OK || t->ret == MEMWAIT_NOT_EQUAL) {
		CHECK(t, now->index < was->count);
		may_change(t, (uintptr_t)&now->index, sizeof(now->index));
	}
}

static void do_requeue(struct thread *t)
{
	const struct call *c = t->call;
	struct memwait_requeue arg = {
		.addr = word_at(c->arg[3]),
		.expected = value_of(c->arg[4]),
		.target = word_at(c->arg[5]),
		.count = PICK(counts, c->arg[6]),
		.move = PICK(counts, c->arg[7]),
		.flags = PICK(flag_sets, c->arg[8]),
		.woken = 0x5a5a5a5a,
		.moved = 0x5a5a5a5a,
	};
	uint64_t at = issue(t, MEMWAIT_IOC_REQUEUE, &arg, sizeof(arg), 0);
	const struct memwait_requeue *was = passed(t, at), *now = (void *)(uintptr_t)at;

	if (was && t->ret >= 0) {
		CHECK(t, now->woken <= was->count);
		CHECK(t, now->moved <= was->move);
		CHECK(t, t->ret == MEMWAIT_OK || (!now->woken && !now->moved));
	}
	if (t->ret != -EINVAL && t->ret != -E2BIG)
		may_change(t, at + offsetof(struct memwait_requeue, woken), 8);
}

static void do_notify_wait(struct thread *t)
{
	struct memwait_notify_wait arg = {
		.notify = notify_arg(t->call->arg + 3),
		.wait = wait_arg(t->call->arg + 6),
		.notified = 0x5a5a5a5a,
	};
	uint64_t at = issue(t, MEMWAIT_IOC_NOTIFY_WAIT, &arg, sizeof(arg), 0);
	const struct memwait_notify_wait *now = (void *)(uintptr_t)at, *was = passed(t, at);

	if (!was) {
		may_change(t, at + offsetof(struct memwait_notify_wait, notified), 8);
		return;
	}
	if (t->ret == -EINTR)
		CHECK(t, now->state == MEMWAIT_NOTIFIED);
	else if (t->ret >= 0)
		CHECK(t, !now->state);
	else if (t->ret != -EBADF)	/* closed before a restart, which then does not get here */
		CHECK(t, !now->state || now->state == was->state);
	if (t->ret == MEMWAIT_TIMED_OUT)
		check_deadline(t, was->wait.deadline, was->wait.flags);
	if (now->notified != was->notified) {
		CHECK(t, !was->state);
		CHECK(t, now->notified <= was->notify.count);
	}
	may_change(t, (uintptr_t)&now->notified, 8);
}

#define NOTIFIES	24	/* more than the module does at a time */

static void do_notify_many(struct thread *t)
{
	const struct call *c = t->call;
	struct memwait_notify notifies[NOTIFIES];
	struct memwait_notify_many arg = { .count = PICK(nrs, c->arg[3]) };
	uint32_t woken[NOTIFIES], i, nr;
	const uint32_t *now;

	for (i = 0; i < NOTIFIES; i++)
		notifies[i] = notify_arg(c->arg + 4 + i % 2 * 3);
	memset(woken, 0x5a, sizeof(woken));
	if (arg.count > NOTIFIES && arg.count <= MEMWAIT_GROUP_MAX)
		arg.count = NOTIFIES;
	nr = arg.count < NOTIFIES ? arg.count : NOTIFIES;
	arg.notifies = place(t, c->arg[2] / PLACES, notifies, nr * sizeof(notifies[0]), ARRAY_AT);
	if (c->flip >= 128 && nr && c->arg[2] / PLACES % PLACES == NORMAL)
		flip_bit(arg.notifies, 0, nr * sizeof(notifies[0]), c->flip);
	/* Not where the notifies or the struct may be. */
	if (c->arg[10] % PLACES == AT_END || c->arg[10] % PLACES == CUT)
		arg.woken = place(t, NORMAL, woken, nr * sizeof(woken[0]), WOKEN_AT);
	else
		arg.woken = place(t, c->arg[10], woken, nr * sizeof(woken[0]), WOKEN_AT);
	issue(t, MEMWAIT_IOC_NOTIFY_MANY, &arg, sizeof(arg), 16);
	if (!in_area(t, arg.woken) || t->ret <= 0)
		return;
	now = (const void *)(uintptr_t)arg.woken;
	may_change(t, arg.woken, t->ret * sizeof(now[0]));
	for (i = 0; i < NOTIFIES && i < t->ret && in_area(t, arg.notifies) &&
	     c->arg[2] / PLACES % PLACES == NORMAL; i++) {
		const struct memwait_notify *was =
			(const void *)(t->copy + (arg.notifies - (uintptr_t)t->area));

		CHECK(t, now[i] <= was[i].count);
	}
}

static void do_owner(struct thread *t)
{
	static const uint32_t flags[] = {
		0, 0, MEMWAIT_OWNER_CONTEXT, MEMWAIT_OWNER_EXIT, 3, 4,
	};
	struct memwait_owner arg = { .flags = PICK(flags, t->call->arg[3]) };
	uint64_t at = issue(t, MEMWAIT_IOC_OWNER, &arg, sizeof(arg), 8);
	const struct memwait_owner *now = (void *)(uintptr_t)at;

	if (!passed(t, at) || t->ret) {
		CHECK(t, t->ret != -EFAULT || !passed(t, at));
		may_change(t, at, t->ret ? 0 : sizeof(now->id));
		return;
	}
	may_change(t, at, sizeof(now->id));
	CHECK(t, !(now->id & ~MEMWAIT_OWNER_MASK));
	if (now->id)
		__atomic_store_n(&shared->owner, now->id, __ATOMIC_RELAXED);
}

static void do_change_notify(struct thread *t)
{
	struct memwait_change arg = {
		.notify = notify_arg(t->call->arg + 3),
		.operation = t->call->arg[6] % 6,
		.operand = value_of(t->call->arg[7]),
		.old = 0x5a5a5a5a,
	};
	uint64_t at = issue(t, MEMWAIT_IOC_CHANGE_NOTIFY, &arg, sizeof(arg), 8);
	const struct memwait_change *was = passed(t, at);

	CHECK(t, t->ret <= 0 || !was || t->ret <= was->notify.count);
	if (t->ret != -EINVAL && t->ret != -E2BIG)
		may_change(t, at + offsetof(struct memwait_change, old), sizeof(arg.old));
}

/* Any number, direction and size. */
static void do_raw(struct thread *t)
{
	static const uint8_t bytes[64];
	const struct call *c = t->call;
	uint8_t type = c->arg[4] % 8 ? MEMWAIT_IOC_MAGIC : c->arg[4], nr = c->arg[5] % 16;

	issue(t, _IOC(c->arg[3] % 4, type, nr, 0), bytes, sizeof(bytes), 0);
	/* It may be one that there is, or one that any file has: those write. */
	if (type == MEMWAIT_IOC_MAGIC && nr > _IOC_NR(MEMWAIT_IOC_CHANGE_NOTIFY))
		CHECK(t, t->ret == -ENOTTY || t->ret == -EBADF);
	else
		remember(t);
}

static void check_completion(struct thread *t, const struct memwait_completion *done)
{
	/* The user data may be any: a bit of it may have been flipped on its way in. */
	CHECK(t, done->id);
	CHECK(t, done->result == MEMWAIT_OK || done->result == MEMWAIT_TIMED_OUT ||
	      done->result == MEMWAIT_OWNER_DIED);
	CHECK(t, done->index < (done->result == MEMWAIT_OK ? MEMWAIT_GROUP_MAX : 1));
}

#define RECORDS	40

static void do_read(struct thread *t)
{
	static const uint8_t nothing[RECORDS * sizeof(struct memwait_completion)];
	static const size_t sizes[] = {
		sizeof(struct memwait_completion), 4 * sizeof(struct memwait_completion),
		sizeof(nothing), 100, sizeof(struct memwait_completion) - 1, 0,
	};
	const struct call *c = t->call;
	size_t size = PICK(sizes, c->arg[1]), done;
	uint64_t at = place(t, c->arg[2], nothing, size, ARRAY_AT);
	struct iovec iov[2] = {
		{ (void *)(uintptr_t)at, size / 2 },
		{ (void *)(uintptr_t)(at + size / 2), size - size / 2 },
	};

	remember(t);
	coverage_begin(t);
	if (c->arg[3] & 1)
		t->ret = readv(context(c->arg[0]), iov, 2);
	else
		t->ret = read(context(c->arg[0]), (void *)(uintptr_t)at, size);
	if (t->ret < 0)
		t->ret = -errno;
	coverage_end(t);
	if (t->ret < 0) {
		/* It may have come to the end of the area with the second half of a record. */
		if (t->ret == -EFAULT)
			may_change(t, at, size);
		return;
	}
	CHECK(t, t->ret <= (long)size && !(t->ret % sizeof(struct memwait_completion)));
	if (!in_area(t, at) || c->arg[2] % PLACES == CUT) {
		may_change(t, at, size);
		return;
	}
	may_change(t, at, t->ret);
	for (done = 0; (long)done < t->ret; done += sizeof(struct memwait_completion))
		check_completion(t, (void *)(uintptr_t)(at + done));
}

static void do_poll(struct thread *t)
{
	static const short events[] = { POLLIN, POLLIN | POLLRDNORM, POLLOUT, 0, -1 };
	const struct call *c = t->call;
	struct pollfd pfd = { .fd = context(c->arg[0]), .events = PICK(events, c->arg[1]) };

	coverage_begin(t);
	t->ret = poll(&pfd, 1, c->arg[2] % 4 == 3 ? 3 : 0);
	if (t->ret < 0)
		t->ret = -errno;
	coverage_end(t);
	CHECK(t, t->ret <= 0 || (pfd.revents & POLLNVAL) ||
	      !(pfd.revents & ~(POLLIN | POLLRDNORM)));
	/* A read that faults takes nothing away, and EAGAIN would be a lie of one of the two. */
	mprotect(region(NO_ACCESS), region_size(NO_ACCESS), PROT_NONE);
	if (t->alone && t->ret > 0 && (pfd.revents & POLLIN)) {
		t->ret = read(context(c->arg[0]), region(NO_ACCESS),
			      sizeof(struct memwait_completion));
		CHECK(t, t->ret < 0 && (errno == EFAULT || errno == EINTR || errno == EBADF));
		t->ret = 0;
	}
}

static void do_epoll_ctl(struct thread *t)
{
	static const uint32_t events[] = {
		EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLEXCLUSIVE,
	};
	static const int ops[] = { EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL };
	const struct call *c = t->call;
	struct epoll_event event = { .events = PICK(events, c->arg[1]) };

	if (fcntl(EPOLL_FD, F_GETFD) < 0)
		settle(epoll_create1(EPOLL_CLOEXEC), EPOLL_FD);
	coverage_begin(t);
	t->ret = epoll_ctl(EPOLL_FD, PICK(ops, c->arg[2]), context(c->arg[0]), &event);
	if (t->ret < 0)
		t->ret = -errno;
	coverage_end(t);
}

static void do_epoll_wait(struct thread *t)
{
	struct epoll_event events[CONTEXTS];

	coverage_begin(t);
	t->ret = epoll_wait(EPOLL_FD, events, CONTEXTS, t->call->arg[0] % 4 == 3 ? 3 : 0);
	if (t->ret < 0)
		t->ret = -errno;
	coverage_end(t);
}

static int open_context(int to, int flags)
{
	return settle(open("/dev/memwait", flags | O_CLOEXEC), to);
}

static void do_open(struct thread *t)
{
	static const int flags[] = { O_RDWR | O_NONBLOCK, O_RDWR, O_RDONLY, O_WRONLY | O_NONBLOCK };

	coverage_begin(t);
	t->ret = open_context(context(t->call->arg[0]), PICK(flags, t->call->arg[1]));
	coverage_end(t);
}

static void do_dup(struct thread *t)
{
	int from = context(t->call->arg[0]), to = context(t->call->arg[1]);

	coverage_begin(t);
	t->ret = dup2(from, to);
	if (t->ret < 0)
		t->ret = -errno;
	coverage_end(t);
}

static void do_close(struct thread *t)
{
	coverage_begin(t);
	t->ret = close(context(t->call->arg[0])) ? -errno : 0;
	coverage_end(t);
}

static void do_fdinfo(struct thread *t)
{
	char path[64], text[512];
	int fd;

	snprintf(path, sizeof(path), "/proc/thread-self/fdinfo/%d", context(t->call->arg[0]));
	coverage_begin(t);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	t->ret = fd < 0 ? -1 : read(fd, text, sizeof(text));
	if (t->ret < 0)
		t->ret = -errno;
	if (fd >= 0)
		close(fd);
	coverage_end(t);
}

static void do_store(struct thread *t)
{
	uint64_t value = value_of(t->call->arg[1]);

	copy_to(t, word_at(t->call->arg[0]), &value, 1 << t->call->arg[2] % 4);
}

/* What a program does to mappings and files may fail: that is the kernel's business. */
static void do_map(struct thread *t)
{
	static const int protections[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE };
	const struct call *c = t->call;
	int i = c->arg[0] % REGIONS, other = c->arg[1] % REGIONS, file = region_file[i];
	size_t size = c->arg[2] & 1 ? PAGE : region_size(i), at = c->arg[2] & 2 ? PAGE : 0;

	switch (c->arg[3] % 8) {
	case 0:
		munmap((uint8_t *)region(i) + at, size);
		break;
	case 1:
		/* Another one's size would reach into the next region. */
		map_region(i, i != HUGE_SHARED && other == HUGE_SHARED ? i : other);
		break;
	case 2:
		mprotect((uint8_t *)region(i) + at, size, PICK(protections, c->arg[1]));
		break;
	case 3:
		madvise(region(i), size, MADV_DONTNEED);
		break;
	case 4:
		mremap(region(i), size, size, MREMAP_MAYMOVE | MREMAP_FIXED, region(other));
		break;
	case 5:
		t->ret = file < 0 ? 0 : ftruncate(file, c->arg[1] & 1 ? region_size(i) : at);
		break;
	case 6:
		if (file >= 0)
			fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, PAGE);
		break;
	default:
		map_region(i, i);
		break;
	}
	t->ret = 0;
}

/* The forked process runs some of the calls that follow, and ends. */
static void do_fork(struct thread *t)
{
	pid_t pid;

	t->ret = 0;
	if (t->forked)
		return;
	t->alone = false;
	pid = fork();
	if (pid)
		return;
	t->forked = true;
	t->kcov = NULL;
	t->left = 1 + t->call->arg[0] % 4;
}

static void do_signal(struct thread *t)
{
	struct thread *to = &threads[t->call->arg[0] % t->program->threads];

	syscall(SYS_tgkill, getpid(), __atomic_load_n(&to->tid, __ATOMIC_ACQUIRE),
		t->call->arg[1] & 1 ? SIGUSR1 : SIGALRM);
	t->ret = 0;
}

static void do_pause(struct thread *t)
{
	struct timespec ts = { .tv_nsec = t->call->arg[0] % 4 * 300000 };

	if (ts.tv_nsec)
		nanosleep(&ts, NULL);
	else
		sched_yield();
}

/* What an argument's byte means. */
enum type {
	NONE, CONTEXT, SIZE, PLACE, WORD, VALUE, DEADLINE, FLAGS, NR, COUNT, ID, REGION, NUMBER,
};

/* Errors beside EBADF, which any call gets whose descriptor another thread has closed. */
#define ERRORS	12

struct kind {
	const char *name;
	void (*function)(struct thread *t);
	uint8_t weight;
	long most;		/* the greatest result */
	int errors[ERRORS];
	uint8_t args[ARGS];
};

#define ANY_RESULT	INT32_MAX

static const struct kind kinds[] = {
	{ "info", do_info, 3, 0, { EFAULT, EINVAL }, { CONTEXT, SIZE, PLACE } },
	{ "wait", do_wait, 10, MEMWAIT_OWNER_DIED,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, EINTR, ENOMEM, EPERM },
	  { CONTEXT, SIZE, PLACE, WORD, VALUE, DEADLINE, FLAGS } },
	{ "notify", do_notify, 14, ANY_RESULT, { EFAULT, EINVAL, E2BIG, EOPNOTSUPP },
	  { CONTEXT, SIZE, PLACE, WORD, COUNT, FLAGS } },
	{ "wait_async", do_wait_async, 20, ANY_RESULT,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, ENOSPC, ENOMEM, EPERM },
	  { CONTEXT, SIZE, PLACE, NR,
	    WORD, VALUE, DEADLINE, FLAGS, WORD, VALUE, DEADLINE, FLAGS } },
	{ "cancel", do_cancel, 10, 0, { EFAULT, EINVAL, E2BIG, ENOENT },
	  { CONTEXT, SIZE, PLACE, ID } },
	{ "wait_any", do_wait_any, 8, MEMWAIT_TIMED_OUT,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, EINTR, ENOMEM },
	  { CONTEXT, SIZE, PLACE, NR, WORD, VALUE, DEADLINE, FLAGS, FLAGS } },
	{ "requeue", do_requeue, 10, MEMWAIT_NOT_EQUAL,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, ENOMEM, EXDEV },
	  { CONTEXT, SIZE, PLACE, WORD, VALUE, WORD, COUNT, COUNT, FLAGS } },
	{ "notify_wait", do_notify_wait, 8, MEMWAIT_OWNER_DIED,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, EINTR, ENOMEM, EPERM },
	  { CONTEXT, SIZE, PLACE, WORD, COUNT, FLAGS, WORD, VALUE, DEADLINE, FLAGS } },
	{ "waiters", do_waiters, 3, ANY_RESULT, { EFAULT, EINVAL, E2BIG, EOPNOTSUPP },
	  { CONTEXT, SIZE, PLACE, WORD, COUNT, FLAGS } },
	{ "notify_many", do_notify_many, 10, ANY_RESULT, { EFAULT, EINVAL, E2BIG, EOPNOTSUPP },
	  { CONTEXT, SIZE, PLACE, NR, WORD, COUNT, FLAGS, WORD, COUNT, FLAGS, PLACE } },
	{ "owner", do_owner, 8, 0, { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, ENOSPC, ENOMEM },
	  { CONTEXT, SIZE, PLACE, NUMBER } },
	{ "change_notify", do_change_notify, 8, ANY_RESULT,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, EINTR },
	  { CONTEXT, SIZE, PLACE, WORD, COUNT, FLAGS, NUMBER, VALUE } },
	{ "raw", do_raw, 2, ANY_RESULT,
	  { EFAULT, EINVAL, E2BIG, ENOTTY, ENOENT, EOPNOTSUPP, EINTR, ENOMEM },
	  { CONTEXT, SIZE, PLACE, NUMBER, NUMBER, NUMBER } },
	{ "read", do_read, 12, ANY_RESULT, { EINVAL, EAGAIN, EINTR, EFAULT },
	  { CONTEXT, NUMBER, PLACE, NUMBER } },
	{ "poll", do_poll, 6, 1, { EINTR }, { CONTEXT, NUMBER, NUMBER } },
	{ "epoll_ctl", do_epoll_ctl, 3, 0, { EEXIST, ENOENT, EINVAL },
	  { CONTEXT, NUMBER, NUMBER } },
	{ "epoll_wait", do_epoll_wait, 3, CONTEXTS, { EINTR }, { NUMBER } },
	{ "open", do_open, 4, ANY_RESULT, { EBUSY }, { CONTEXT, NUMBER } },
	{ "dup", do_dup, 3, ANY_RESULT, { EBUSY }, { CONTEXT, CONTEXT } },
	{ "close", do_close, 3, 0, { 0 }, { CONTEXT } },
	{ "fdinfo", do_fdinfo, 1, ANY_RESULT, { ENOENT }, { CONTEXT } },
	{ "store", do_store, 8, 0, { 0 }, { WORD, VALUE, NUMBER } },
	{ "map", do_map, 10, 0, { 0 }, { REGION, REGION, NUMBER, NUMBER } },
	{ "fork", do_fork, 1, 0, { 0 }, { NUMBER } },
	{ "signal", do_signal, 4, 0, { 0 }, { NUMBER, NUMBER } },
	{ "pause", do_pause, 3, 0, { 0 }, { NUMBER } },
};

#define KINDS	COUNT_OF(kinds)

static const char *call_name(const struct thread *t)
{
	return kinds[t->call->kind].name;
}

/* read(2) and readv(2) of a descriptor that is not open for reading are EBADF, too. */
static void check_result(struct thread *t)
{
	const struct kind *kind = &kinds[t->call->kind];
	int i;

	if (t->ret >= 0) {
		if (t->ret > kind->most)
			fail("%s returned %ld", kind->name, t->ret);
		return;
	}
	if (t->ret == -EBADF && kind->args[0] != NONE)
		return;
	for (i = 0; i < ERRORS; i++) {
		if (kind->errors[i] && t->ret == -kind->errors[i])
			return;
	}
	fail("%s failed with %s, which is not documented", kind->name, strerrorname_np(-t->ret));
}

/* Running a program */

static void run_call(struct thread *t, const struct call *call)
{
	t->call = call;
	t->ret = 0;
	/* Neither zero nor what another thread, or an earlier call, would leave. */
	memset(t->area, 0xa5 ^ t->nr, AREA);
	remember(t);
	kinds[call->kind].function(t);
	check_result(t);
	compare_area(t);
	__atomic_add_fetch(&shared->calls, 1, __ATOMIC_RELAXED);
}

static void *thread_main(void *arg)
{
	struct thread *t = arg;
	const struct program *p = t->program;
	uint64_t one = 1;
	sigset_t set;
	int i;

	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	if (t->kcov && ioctl(t->kcov_fd, KCOV_ENABLE, KCOV_TRACE_PC)) {
		fail("KCOV cannot be enabled: %s", strerrorname_np(errno));
		t->kcov = NULL;
	}
	pthread_barrier_wait(&begin);
	for (i = 0; i < p->nr; i++) {
		if (!p->same && p->calls[i].thread % p->threads != t->nr)
			continue;
		run_call(t, &p->calls[i]);
		if (t->forked && !t->left--)
			_exit(0);
	}
	if (t->forked)
		_exit(0);
	if (write(done_fd, &one, sizeof(one)) < 0)
		abort();
	return NULL;
}

static void ignore_signal(int sig)
{
	(void)sig;
}

/* The child: runs the threads, and interrupts those that wait. */
static void run_child(const struct program *p, unsigned int number)
{
	struct sigaction sa = { .sa_handler = ignore_signal };
	static const int paces[] = { 1, 3, 12 };
	int i, running = p->threads, round;
	struct pollfd pfd;
	char name[16];
	uint64_t n;
	sigset_t set;

	/* The kernel names it in what it reports. */
	snprintf(name, sizeof(name), "fuzz-%u", number);
	prctl(PR_SET_NAME, name);
	setpgid(0, 0);
	sigaction(SIGALRM, &sa, NULL);
	sa.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &sa, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);

	if (open_context(CONTEXT_FD, O_RDWR | O_NONBLOCK) < 0 ||
	    open_context(CONTEXT_FD + 1, O_RDWR) < 0)
		fail("the device cannot be opened");
	done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_barrier_init(&begin, NULL, p->threads);
	for (i = 0; i < p->threads; i++) {
		threads[i].program = p;
		threads[i].nr = i;
		threads[i].alone = p->threads == 1;
		if (pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]))
			abort();
	}
	pfd = (struct pollfd) { .fd = done_fd, .events = POLLIN };
	for (round = 0; running; round++) {
		if (poll(&pfd, 1, PICK(paces, p->pace)) == 1) {
			if (read(done_fd, &n, sizeof(n)) == sizeof(n))
				running -= n;
			if (p->end == 1)
				break;
			continue;
		}
		/* A handler with SA_RESTART ends no call, so the other signal follows. */
		for (i = 0; i < p->threads; i++)
			syscall(SYS_tgkill, getpid(),
				__atomic_load_n(&threads[i].tid, __ATOMIC_ACQUIRE),
				p->restart && round < 3 ? SIGUSR1 : SIGALRM);
	}
	_exit(0);
}

static long taint(void)
{
	return read_number("/proc/sys/kernel/tainted");
}

/* Whoever waits on the words of the files still is found by waking all. */
static void check_waiters(int fd)
{
	static const int files[] = { SHARED, FILE_SHARED, ANON_SHARED, HUGE_SHARED };
	struct memwait_notify notifies[COUNT_OF(files) * COUNT_OF(offsets)];
	uint32_t woken[COUNT_OF(notifies)], n = 0;
	size_t i, j;
	int ret;

	for (i = 0; i < COUNT_OF(files); i++) {
		if (files[i] == HUGE_SHARED && region_file[HUGE_SHARED] < 0)
			continue;
		for (j = 0; j < COUNT_OF(offsets); j++)
			notifies[n++] = (struct memwait_notify) {
				.addr = (uintptr_t)region(files[i]) + offsets[j],
				.count = MEMWAIT_ALL,
			};
	}
	/* A signal ends the call between two entries. */
	for (i = 0; i < n && !shared->failed; i += ret) {
		ret = mw_notify_many(fd, notifies + i, n - i, woken + i);
		if (ret <= 0)
			fail("the words cannot be looked at from %zu on: %d", i, ret);
	}
	for (i = 0; i < n && !shared->failed; i++) {
		if (woken[i])
			fail("%u waiters are left at %s+%u", woken[i],
			     region_names[files[i / COUNT_OF(offsets)]],
			     offsets[i % COUNT_OF(offsets)]);
	}
}

/* Runs one program to its end, and looks at what it has left. */
static void run_program(int fd, const struct program *p, unsigned int number)
{
	uint64_t before = mw_user_waits(fd), until;
	long tainted = taint();
	struct pollfd pfd;
	pid_t pid;

	reset_regions();
	memset(shared->ids, 0, sizeof(shared->ids));
	shared->nr_ids = 0;
	shared->news = 0;
	pid = fork();
	if (!pid)
		run_child(p, number);
	if (pid < 0) {
		fail("fork: %s", strerrorname_np(errno));
		return;
	}
	setpgid(pid, pid);
	pfd = (struct pollfd) { .fd = syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	if (poll(&pfd, 1, LIMIT_MS) != 1)
		fail("does not end: a call sleeps in spite of signals");
	close(pfd.fd);
	kill(-pid, SIGKILL);
	/* Those that it has forked, too. */
	while (waitpid(-1, NULL, 0) > 0)
		;

	/* All are dead, but the last reference to a file may be given back by a kernel thread. */
	until = in_ms(LIMIT_MS);
	while (mw_user_waits(fd) != before && now_ns(CLOCK_MONOTONIC) < until)
		sched_yield();
	if (mw_user_waits(fd) != before)
		fail("user_waits is %llu, was %llu", (unsigned long long)mw_user_waits(fd),
		     (unsigned long long)before);
	check_waiters(fd);
	if (taint() != tainted)
		fail("the kernel has complained: see its log");
	shared->programs++;
}

/* Making programs */

static uint8_t random_arg(enum type type)
{
	switch (type) {
	case CONTEXT:
		return rnd(8) ? rnd(2) : rnd(CONTEXTS);
	case SIZE:
		return rnd(16) ? 0 : rnd(256);
	case PLACE:
		/* Of the struct, and in larger steps of an array. */
		return (rnd(12) ? NORMAL : rnd(PLACES)) + PLACES * (rnd(12) ? NORMAL : rnd(PLACES));
	case WORD:
		return rnd(3) ? rnd(3) + 16 * rnd(3) : rnd(256);
	case VALUE:
		return rnd(4) ? 0 : rnd(256);
	case FLAGS:
		return rnd(3) ? rnd(2) : rnd(256);
	case NR:
		return rnd(4) ? rnd(4) : rnd(256);
	case COUNT:
		return rnd(3) ? rnd(2) : rnd(256);
	case ID:
		return rnd(8) ? rnd(4) : rnd(256);
	default:
		return rnd(256);
	}
}

static struct call random_call(void)
{
	struct call c = { .thread = rnd(256) };
	uint32_t i, total = 0, at;

	for (i = 0; i < KINDS; i++)
		total += kinds[i].weight;
	at = rnd(total);
	while (at >= kinds[c.kind].weight)
		at -= kinds[c.kind++].weight;
	for (i = 0; i < ARGS && kinds[c.kind].args[i] != NONE; i++)
		c.arg[i] = random_arg(kinds[c.kind].args[i]);
	if (!rnd(40))
		c.flip = rnd(256);
	/* An entry that is a group, and of how many words. */
	if (kinds[c.kind].function == do_wait_async && !rnd(3)) {
		c.arg[5] = rnd(7);
		c.arg[7] = 7 + rnd(2);
	}
	return c;
}

static void random_options(struct program *p)
{
	p->threads = 1 + rnd(THREADS);
	p->same = !rnd(4);
	p->restart = rnd(2);
	p->end = !rnd(8);
	p->pace = rnd(3);
}

static struct program random_program(void)
{
	struct program p = { .nr = 1 + rnd(CALLS) };
	int i;

	random_options(&p);
	for (i = 0; i < p.nr; i++)
		p.calls[i] = random_call();
	return p;
}

static void insert_call(struct program *p, struct call c)
{
	int at;

	if (p->nr == CALLS)
		return;
	at = rnd(p->nr + 1);
	memmove(&p->calls[at + 1], &p->calls[at], (p->nr - at) * sizeof(c));
	p->calls[at] = c;
	p->nr++;
}

static void remove_call(struct program *p, int at)
{
	if (p->nr == 1)
		return;
	p->nr--;
	memmove(&p->calls[at], &p->calls[at + 1], (p->nr - at) * sizeof(p->calls[0]));
	memset(&p->calls[p->nr], 0, sizeof(p->calls[0]));
}

/* Another one's end follows a beginning of this one. */
static void splice_programs(struct program *p, const struct program *other)
{
	int at = rnd(p->nr), from = rnd(other->nr), n = other->nr - from;

	if (n > CALLS - at)
		n = CALLS - at;
	memmove(&p->calls[at], &other->calls[from], n * sizeof(p->calls[0]));
	p->nr = at + n;
	memset(&p->calls[p->nr], 0, (CALLS - p->nr) * sizeof(p->calls[0]));
}

static void mutate(struct program *p, const struct program *other)
{
	struct call *c = &p->calls[rnd(p->nr)];
	uint32_t i;

	switch (rnd(12)) {
	case 0:
	case 1:
	case 2:
		insert_call(p, random_call());
		break;
	case 3:
	case 4:
		remove_call(p, rnd(p->nr));
		break;
	case 5:
		insert_call(p, *c);
		break;
	case 6:
		splice_programs(p, other);
		break;
	case 7:
		random_options(p);
		break;
	case 8:
		c->thread = rnd(256);
		break;
	case 9:
		c->flip = rnd(256);
		break;
	default:
		for (i = 0; i < ARGS && kinds[c->kind].args[i] != NONE; i++)
			;
		i = rnd(i);
		c->arg[i] = random_arg(kinds[c->kind].args[i]);
		break;
	}
}

/* The printed form */

static void print_program(const struct program *p, char *text, size_t size)
{
	size_t n = snprintf(text, size, "%u.%u.%u.%u.%u", p->threads, p->same, p->restart, p->end,
			    p->pace);
	int i, j;

	for (i = 0; i < p->nr; i++) {
		const struct call *c = &p->calls[i];

		n += snprintf(text + n, size - n, ",%s.%u.%u", kinds[c->kind].name, c->thread,
			      c->flip);
		for (j = 0; j < ARGS && kinds[c->kind].args[j] != NONE; j++)
			n += snprintf(text + n, size - n, ".%u", c->arg[j]);
	}
}

/* Returns false if it is not the text of a program. */
static bool read_program(const char *text, struct program *p)
{
	char copy[TEXT], *rest = copy, *word;
	int i, n;

	memset(p, 0, sizeof(*p));
	snprintf(copy, sizeof(copy), "%s", text);
	word = strsep(&rest, ",");
	if (sscanf(word, "%hhu.%hhu.%hhu.%hhu.%hhu", &p->threads, &p->same, &p->restart, &p->end,
		   &p->pace) != 5 || p->threads < 1 || p->threads > THREADS)
		return false;
	while ((word = strsep(&rest, ","))) {
		struct call *c = &p->calls[p->nr];
		char *name = strsep(&word, ".");

		while (c->kind < KINDS && strcmp(kinds[c->kind].name, name))
			c->kind++;
		if (c->kind == KINDS || p->nr == CALLS || !word ||
		    sscanf(word, "%hhu.%hhu%n", &c->thread, &c->flip, &n) != 2)
			return false;
		word += n;
		for (i = 0; i < ARGS && sscanf(word, ".%hhu%n", &c->arg[i], &n) == 1; i++)
			word += n;
		if (*word)
			return false;
		p->nr++;
	}
	return p->nr;
}

static void describe_arg(enum type type, uint8_t value)
{
	uint64_t address;

	switch (type) {
	case CONTEXT:
		printf(" context%u", value % CONTEXTS);
		break;
	case SIZE:
		printf(" size%+ld", (long)size_of(value, 64) - 64);
		break;
	case PLACE:
		printf(" %s/%s", place_names[value % PLACES], place_names[value / PLACES % PLACES]);
		break;
	case WORD:
		address = word_at(value);
		if ((value & 15) < REGIONS)
			printf(" %s+%u", region_names[value & 15], offsets[value >> 4]);
		else
			printf(" %#llx", (unsigned long long)address);
		break;
	case VALUE:
		printf(" =%#llx", (unsigned long long)value_of(value));
		break;
	case DEADLINE:
		printf(" until:%s", PICK(deadline_names, value));
		break;
	case FLAGS:
		printf(" flags:%#x", PICK(flag_sets, value));
		break;
	case NR:
		printf(" nr:%u", PICK(nrs, value));
		break;
	case COUNT:
		printf(" count:%u", PICK(counts, value));
		break;
	case ID:
		printf(" id%u/%u", value % 16, value / 16);
		break;
	case REGION:
		printf(" %s", region_names[value % REGIONS]);
		break;
	default:
		printf(" %u", value);
		break;
	}
}

static void describe(const struct program *p)
{
	int i, j;

	printf("# %u threads%s%s%s\n", p->threads, p->same ? ", each runs all calls" : "",
	       p->restart ? ", SA_RESTART" : "", p->end ? ", ends with the first thread" : "");
	for (i = 0; i < p->nr; i++) {
		const struct call *c = &p->calls[i];

		printf("#   thread %u: %s", c->thread % p->threads, kinds[c->kind].name);
		for (j = 0; j < ARGS && kinds[c->kind].args[j] != NONE; j++)
			describe_arg(kinds[c->kind].args[j], c->arg[j]);
		if (c->flip)
			printf(", flip %u", c->flip);
		printf("\n");
	}
}

/* The loop */

static uint64_t seconds_wanted(void)
{
	const char *text = getenv("MEMWAIT_FUZZ_SECONDS");

	return text ? strtoull(text, NULL, 10) : 20;
}

static void report(uint64_t start)
{
	uint64_t ms = (now_ns(CLOCK_MONOTONIC) - start) / NSEC_PER_MSEC + 1;

	printf("# %llu s: %llu programs, %.1f/s, %llu calls; corpus %llu, edges %llu, PCs %llu\n",
	       (unsigned long long)ms / 1000, (unsigned long long)shared->programs,
	       shared->programs * 1000.0 / ms, (unsigned long long)shared->calls,
	       (unsigned long long)shared->corpus, (unsigned long long)shared->edges,
	       (unsigned long long)shared->points);
	fflush(stdout);
}

/* Numbers may differ. */
static bool is_same_failure(const char *a, const char *b)
{
	size_t n = strcspn(a, "0123456789");

	return n == strcspn(b, "0123456789") && !strncmp(a, b, n);
}

/* Fewer calls of a program that has failed, if it still fails like that. Two minutes at most. */
static void shrink(int fd, struct program *p)
{
	uint64_t end = in_ms(120000);
	char failure[sizeof(shared->failure)];
	struct program smaller;
	int at, i;

	memcpy(failure, shared->failure, sizeof(failure));
	for (at = p->nr - 1; at >= 0 && p->nr > 1; at--) {
		smaller = *p;
		remove_call(&smaller, at);
		for (i = 0; i < 10 && now_ns(CLOCK_MONOTONIC) < end; i++) {
			shared->failed = 0;
			run_program(fd, &smaller, 0);
			if (shared->failed && is_same_failure(shared->failure, failure)) {
				*p = smaller;
				break;
			}
		}
	}
	memcpy(shared->failure, failure, sizeof(failure));
	shared->failed = 1;
}

static struct program corpus[CORPUS];

static struct program next_program(void)
{
	struct program p;
	int n;

	if (!shared->corpus || !rnd(5))
		return random_program();
	p = corpus[rnd(shared->corpus)];
	for (n = rnd(5); n >= 0; n--)
		mutate(&p, &corpus[rnd(shared->corpus)]);
	return p;
}

static void fuzz(const struct program *replay)
{
	uint64_t start = now_ns(CLOCK_MONOTONIC), end, next;
	int fd = memwait_open(0);
	unsigned int number = 0;
	long tainted = taint();
	struct program p;
	char text[TEXT];

	end = start + seconds_wanted() * NSEC_PER_SEC;
	next = start + 30 * NSEC_PER_SEC;
	while (now_ns(CLOCK_MONOTONIC) < end && !shared->failed) {
		p = replay ? *replay : next_program();
		/* Before it is run: then it can be told even if the fuzzer dies. */
		print_program(&p, shared->ring[number % RING], TEXT);
		run_program(fd, &p, number++);
		if (shared->news && !replay)
			corpus[shared->corpus < CORPUS ? shared->corpus++ : rnd(CORPUS)] = p;
		if (now_ns(CLOCK_MONOTONIC) >= next) {
			report(start);
			next += 30 * NSEC_PER_SEC;
		}
	}
	report(start);
	if (!shared->failed)
		return;
	printf("# failed: %s\n# MEMWAIT_FUZZ_REPLAY=%s\n", shared->failure,
	       shared->ring[(number - 1) % RING]);
	fflush(stdout);
	describe(&p);
	fflush(stdout);
	/* That the kernel has complained, it says only once. */
	if (taint() != tainted)
		return;
	shrink(fd, &p);
	print_program(&p, text, sizeof(text));
	printf("# without what is not needed for that:\n# MEMWAIT_FUZZ_REPLAY=%s\n", text);
	describe(&p);
}

FIXTURE(fuzz)
{
	bool coverage;
};

FIXTURE_SETUP(fuzz)
{
	const char *text = getenv("MEMWAIT_FUZZ_SEED");
	int i;

	shared = shared_page(sizeof(*shared));
	ASSERT_NE(NULL, shared);
	seed = text ? strtoull(text, NULL, 0) : now_ns(CLOCK_REALTIME);
	if (!seed)
		seed = 1;
	ASSERT_EQ(0, prctl(PR_SET_CHILD_SUBREAPER, 1));
	for (i = 0; i < THREADS; i++) {
		/* Nothing is mapped behind an area. */
		threads[i].area = private_page(AREA + PAGE);
		ASSERT_NE(NULL, threads[i].area);
		ASSERT_EQ(0, mprotect(threads[i].area + AREA, PAGE, PROT_NONE));
	}
	scratch_fd = memfd_create("scratch", MFD_CLOEXEC);
	ASSERT_LE(0, scratch_fd);
}

FIXTURE_TEARDOWN(fuzz)
{
}

/* What cannot be read back cannot be replayed. */
TEST_F_TIMEOUT(fuzz, a_program_is_read_as_it_was_printed, 300)
{
	struct program p, copy;
	char text[TEXT];
	int i, j;

	for (i = 0; i < 1000; i++) {
		p = random_program();
		for (j = rnd(20); j; j--)
			mutate(&p, &p);
		print_program(&p, text, sizeof(text));
		ASSERT_LT(strlen(text), sizeof(text) - 1);
		ASSERT_TRUE(read_program(text, &copy))
			TH_LOG("%s", text);
		ASSERT_EQ(0, memcmp(&p, &copy, sizeof(p)));
	}
}

/* Its end is that of the time that was asked for, or a failure. */
TEST_F_TIMEOUT(fuzz, programs_get_documented_answers_and_leave_nothing, 1000000)
{
	const char *text = getenv("MEMWAIT_FUZZ_REPLAY");
	struct program replay;
	int status = 0, i;
	pid_t pid;

	ASSERT_EQ(0, open_regions());
	self->coverage = open_coverage();
	if (text)
		ASSERT_TRUE(read_program(text, &replay));
	printf("# MEMWAIT_FUZZ_SEED=%#llx, %s\n", (unsigned long long)seed,
	       self->coverage ? "guided by coverage" : "no KCOV: grammar only");
	if (!self->coverage) {
		for (i = 0; i < THREADS; i++)
			threads[i].kcov = NULL;
	}
	fflush(stdout);

	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		fuzz(text ? &replay : NULL);
		fflush(stdout);
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	if (status) {
		TH_LOG("the fuzzer has died, status %#x; the last programs:", status);
		for (i = 0; i < RING; i++)
			TH_LOG("%s", shared->ring[i]);
	}
	EXPECT_EQ(0, status);
	EXPECT_FALSE(shared->failed)
		TH_LOG("%s", shared->failure);
	EXPECT_LT(0, shared->programs);
	if (self->coverage)
		EXPECT_LT(0, shared->edges);
}

TEST_HARNESS_MAIN
