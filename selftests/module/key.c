// SPDX-License-Identifier: GPL-2.0
/*
 * R8 to R11: which addresses denote the same word, for every kind of memory, within a process and
 * between two processes.
 */
#include "async_test.h"
#include <linux/if_packet.h>
#include <linux/io_uring.h>
#include <sys/ipc.h>
#include <sys/shm.h>

#ifndef MFD_HUGETLB
#define MFD_HUGETLB	4U
#endif

/* Shared memory that is mapped at two addresses. */
struct area {
	uint32_t *a, *b;
	size_t size;
	int file;
};

static struct area map_twice(int file, size_t size)
{
	return (struct area) { map_shared(file, size), map_shared(file, size), size, file };
}

static void unmap(struct area *area)
{
	munmap(area->a, area->size);
	munmap(area->b, area->size);
	if (area->file >= 0)
		close(area->file);
}

/* Checks that this process and another process find and wake a waiter on @a through @b. */
static void expect_meet(struct __test_metadata *_metadata, int fd, uint32_t *a, uint32_t *b)
{
	struct waiter w = thread_at(fd, a);
	pid_t pid;

	waiter_start(&w);
	EXPECT_EQ(1, mw_waiters(fd, b, U32));
	EXPECT_EQ(0, mw_notify(fd, b + 1, 1, U32));
	EXPECT_EQ(1, mw_notify(fd, b, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));

	pid = run_in_child(mw_wait(fd, b, 0, MEMWAIT_FOREVER, U32));
	await_waiters(fd, a, U32, 1);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(fd, b, 3));
	EXPECT_EQ(2, mw_notify(fd, a, MEMWAIT_ALL, U32));
	EXPECT_EQ(0, child_status(pid));
	EXPECT_COMPLETION(fd, 3, MEMWAIT_OK);
}

static void expect_apart(struct __test_metadata *_metadata, int fd, uint32_t *a, uint32_t *b,
			 uint32_t flags_a, uint32_t flags_b)
{
	struct waiter w = { .fd = fd, .addr = a, .deadline = MEMWAIT_FOREVER, .flags = flags_a };

	waiter_start(&w);
	EXPECT_EQ(0, mw_waiters(fd, b, flags_b));
	EXPECT_EQ(0, mw_notify(fd, b, MEMWAIT_ALL, flags_b));
	EXPECT_EQ(1, mw_notify(fd, a, 1, flags_a));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

/* Tests a shared area and unmaps it. */
static void expect_shared(struct __test_metadata *_metadata, int fd, struct area area)
{
	const size_t words = area.size / sizeof(uint32_t);

	expect_meet(_metadata, fd, area.a, area.b);
	expect_meet(_metadata, fd, area.a + words - 2, area.b + words - 2);
	expect_apart(_metadata, fd, area.a, area.b + 1, U32, U32);
	/* If a shared word is wrongly passed with PRIVATE, its key differs from the shared key. */
	expect_apart(_metadata, fd, area.a, area.b, U32, U32 | MEMWAIT_PRIVATE);
	expect_apart(_metadata, fd, area.a, area.a, U32 | MEMWAIT_PRIVATE, U32);
	unmap(&area);
}

static int temporary_file(const char *dir, size_t size)
{
	char path[128];
	int file;

	snprintf(path, sizeof(path), "%s/memwait-XXXXXX", dir);
	file = mkstemp(path);
	if (file < 0)
		return file;
	unlink(path);
	if (ftruncate(file, size))
		abort();
	return file;
}

MEMWAIT_TEST(R8_memfd)
{
	expect_shared(_metadata, self->fd, map_twice(new_file(4 * self->page), 4 * self->page));
}

MEMWAIT_TEST(R8_tmpfs)
{
	int file = temporary_file("/dev/shm", self->page);

	expect_shared(_metadata, self->fd, map_twice(file, self->page));
}

MEMWAIT_TEST(R8_regular_file)
{
	/* The file system differs from tmpfs; it depends on where /var/tmp or / is. */
	int file = temporary_file("/var/tmp", self->page);

	if (file < 0)
		file = temporary_file("/", self->page);
	expect_shared(_metadata, self->fd, map_twice(file, self->page));
}

MEMWAIT_TEST(R8_sysv_shared_memory)
{
	int id = shmget(IPC_PRIVATE, self->page, IPC_CREAT | 0600);
	struct area area = { shmat(id, NULL, 0), shmat(id, NULL, 0), self->page, -1 };

	ASSERT_LE(0, id);
	EXPECT_EQ(0, shmctl(id, IPC_RMID, NULL));
	ASSERT_NE((void *)-1, area.a);
	ASSERT_NE((void *)-1, area.b);
	expect_shared(_metadata, self->fd, area);
}

MEMWAIT_TEST(R8_hugetlb)
{
	const size_t huge = 2 << 20;
	int file = memfd_create("memwait", MFD_HUGETLB);
	void *first;

	if (file < 0 || ftruncate(file, huge))
		SKIP(return, "no hugetlbfs");
	first = mmap(NULL, huge, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (first == MAP_FAILED)
		SKIP(return, "no free huge pages (vm.nr_hugepages)");
	munmap(first, huge);
	expect_shared(_metadata, self->fd, map_twice(file, huge));
}

/* mremap() with an old size of 0 creates a second mapping of anonymous memory. */
static void expect_anonymous_shared(struct __test_metadata *_metadata, int fd, int flags, int file)
{
	size_t size = sysconf(_SC_PAGESIZE);
	void *a = map_memory(size, MAP_SHARED | flags, file);
	void *b = mremap(a, 0, size, MREMAP_MAYMOVE);

	ASSERT_NE(MAP_FAILED, b);
	expect_shared(_metadata, fd, (struct area) { a, b, size, file });
}

MEMWAIT_TEST(R8_shared_anonymous)
{
	expect_anonymous_shared(_metadata, self->fd, MAP_ANONYMOUS, -1);
}

MEMWAIT_TEST(R8_dev_zero_shared)
{
	expect_anonymous_shared(_metadata, self->fd, 0, open("/dev/zero", O_RDWR));
}

MEMWAIT_TEST(R8_offsets_count_from_the_start_of_the_file)
{
	int file = temporary_file("/dev/shm", 4 * self->page);
	uint32_t *whole, *tail;

	whole = map_shared(file, 4 * self->page);
	tail = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 3 * self->page);
	ASSERT_NE(MAP_FAILED, tail);
	expect_meet(_metadata, self->fd, whole + 3 * self->page / 4 + 5, tail + 5);
	expect_apart(_metadata, self->fd, whole + 5, tail + 5, U32, U32);
	close(file);
}

MEMWAIT_TEST(R8_far_offsets_are_not_truncated)
{
	const off_t far = 1LL << 34;
	int file = new_file(0);
	uint32_t *near_word, *far_word;

	ASSERT_EQ(0, ftruncate(file, far + self->page));
	near_word = map_shared(file, self->page);
	far_word = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, file, far);
	ASSERT_NE(MAP_FAILED, far_word);
	expect_apart(_metadata, self->fd, near_word, far_word, U32, U32);
	close(file);
}

MEMWAIT_TEST(R8_two_files_share_no_words)
{
	int one = new_file(self->page), two = new_file(self->page);

	expect_apart(_metadata, self->fd, map_shared(one, self->page),
		     map_shared(two, self->page), U32, U32);
	close(one);
	close(two);
}

static void expect_one_file(struct __test_metadata *_metadata, int fd, int flags, int protection)
{
	size_t size = sysconf(_SC_PAGESIZE);
	int one = temporary_file("/dev/shm", size), two;
	uint32_t *a = map_shared(one, size), *b;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", one);
	two = open(path, flags);
	b = mmap(NULL, size, protection, MAP_SHARED, two, 0);
	ASSERT_NE(MAP_FAILED, b);
	expect_meet(_metadata, fd, a, b);
	expect_meet(_metadata, fd, b, a);
	close(one);
	close(two);
}

MEMWAIT_TEST(R8_two_opens_of_a_file_share_its_words)
{
	expect_one_file(_metadata, self->fd, O_RDWR, PROT_READ | PROT_WRITE);
}

MEMWAIT_TEST(R8_readers_and_writers_of_a_file_share_its_words)
{
	expect_one_file(_metadata, self->fd, O_RDONLY, PROT_READ);
}

MEMWAIT_TEST(R8_a_private_mapping_of_a_file_is_private)
{
	int file = temporary_file("/dev/shm", self->page);
	uint32_t *shared = map_shared(file, self->page);
	uint32_t *private = map_memory(self->page, MAP_PRIVATE, file);

	expect_apart(_metadata, self->fd, shared, private, U32, U32);
	/* The words are different both before and after the page is copied. */
	*private = 0;
	expect_apart(_metadata, self->fd, private, shared, U32, U32);
	close(file);
}

MEMWAIT_TEST(R9_private_memory_has_one_queue_with_and_without_the_flag)
{
	struct waiter w = { .fd = self->fd, .addr = self->word, .deadline = MEMWAIT_FOREVER };
	int i;

	for (i = 0; i < 4; i++) {
		w.flags = U32 | (i & 1 ? MEMWAIT_PRIVATE : 0);
		waiter_start(&w);
		EXPECT_EQ(1, mw_notify(self->fd, self->word, 1,
				       U32 | (i & 2 ? MEMWAIT_PRIVATE : 0)));
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	}
}

static void expect_refused(struct __test_metadata *_metadata, int fd, void *addr)
{
	EXPECT_EQ(-EOPNOTSUPP, mw_wait(fd, addr, 0, 0, U32));
	EXPECT_EQ(-EOPNOTSUPP, mw_wait(fd, addr, ~0U, in_ms(10), U32));
	EXPECT_EQ(-EOPNOTSUPP, mw_notify(fd, addr, 1, U32));
	EXPECT_EQ(-EOPNOTSUPP, mw_waiters(fd, addr, U32));
	EXPECT_EQ(-EOPNOTSUPP, mw_arm(fd, addr, 0));
}

MEMWAIT_TEST(R10_io_uring_is_refused)
{
	struct io_uring_params params = { 0 };
	int ring = syscall(SYS_io_uring_setup, 4, &params);
	void *addr;

	if (ring < 0)
		SKIP(return, "io_uring: %s", strerror(errno));
	addr = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		    IORING_OFF_SQ_RING);
	ASSERT_NE(MAP_FAILED, addr);
	expect_refused(_metadata, self->fd, addr);
	/* Nothing is pinned without a lookup, so no reference cycle can arise. */
	EXPECT_EQ(0, mw_notify(self->fd, addr, 1, U32 | MEMWAIT_PRIVATE));
	close(ring);
}

MEMWAIT_TEST(R10_device_memory_is_refused)
{
	/* /dev/mem maps the BIOS ROM even if it refuses to map system memory. */
	int mem = open("/dev/mem", O_RDONLY);
	void *addr;

	if (mem < 0)
		SKIP(return, "/dev/mem: %s", strerror(errno));
	addr = mmap(NULL, self->page, PROT_READ, MAP_SHARED, mem, 0xf0000);
	if (addr == MAP_FAILED)
		SKIP(return, "mapping /dev/mem: %s", strerror(errno));
	expect_refused(_metadata, self->fd, addr);
	munmap(addr, self->page);
	addr = mmap(NULL, self->page, PROT_READ, MAP_PRIVATE, mem, 0xf0000);
	if (addr != MAP_FAILED)
		expect_refused(_metadata, self->fd, addr);
	close(mem);
}

/* A socket is no regular file, but its buffers are ordinary memory. */
MEMWAIT_TEST(R10_a_buffer_of_a_socket_is_refused)
{
	struct tpacket_req ring = {
		.tp_block_size = self->page,
		.tp_block_nr = 1,
		.tp_frame_size = self->page,
		.tp_frame_nr = 1,
	};
	int file = socket(AF_PACKET, SOCK_RAW, 0);
	void *addr;

	if (file < 0 || setsockopt(file, SOL_PACKET, PACKET_RX_RING, &ring, sizeof(ring)))
		SKIP(return, "no packet sockets: %s", strerror(errno));
	addr = map_shared(file, self->page);
	expect_refused(_metadata, self->fd, addr);
	munmap(addr, self->page);
	close(file);
}

MEMWAIT_TEST(R10_secret_memory_is_refused)
{
	int file = syscall(SYS_memfd_secret, 0);
	void *addr;

	if (file < 0)
		SKIP(return, "memfd_secret: %s", strerror(errno));
	ASSERT_EQ(0, ftruncate(file, self->page));
	addr = map_shared(file, self->page);
	expect_refused(_metadata, self->fd, addr);
	close(file);
}

MEMWAIT_TEST(R11_fork_separates_private_words_but_not_shared_words)
{
	struct waiter w = thread_at(self->fd, self->word);
	pid_t pid;

	waiter_start(&w);
	pid = run_in_child(mw_notify(self->fd, self->word, MEMWAIT_ALL, U32) ||
			   mw_notify(self->fd, self->word, MEMWAIT_ALL,
				     U32 | MEMWAIT_PRIVATE));
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));

	w.addr = self->shared;
	waiter_start(&w);
	pid = run_in_child(mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	EXPECT_EQ(1, child_status(pid));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

static int notify_all(void *arg)
{
	struct waiter *w = arg;

	_exit(mw_notify(w->fd, w->addr, MEMWAIT_ALL, w->flags));
}

MEMWAIT_TEST(R11_processes_of_one_mm_share_private_words)
{
	struct waiter w = thread_at(self->fd, self->word);
	char *stack = private_page(16 * self->page);

	waiter_start(&w);
	EXPECT_EQ(1, child_status(clone(notify_all, stack + 16 * self->page,
					CLONE_VM | CLONE_VFORK | SIGCHLD, &w)));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

MEMWAIT_TEST(R11_munmap_during_a_wait)
{
	struct waiter w = { .fd = self->fd, .deadline = MEMWAIT_FOREVER };
	struct area area;

	/* A shared word can still be reached through its other mapping. */
	area = map_twice(temporary_file("/dev/shm", self->page), self->page);
	w.addr = area.a;
	w.flags = U32;
	waiter_start(&w);
	EXPECT_EQ(0, munmap(area.a, self->page));
	EXPECT_EQ(-EFAULT, mw_notify(self->fd, area.a, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, area.b, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	munmap(area.b, self->page);
	close(area.file);

	/* A private word can still be reached through its address. */
	w.addr = private_page(self->page);
	w.flags = U32 | MEMWAIT_PRIVATE;
	waiter_start(&w);
	EXPECT_EQ(0, munmap((void *)w.addr, self->page));
	EXPECT_EQ(1, mw_notify(self->fd, w.addr, 1, U32 | MEMWAIT_PRIVATE));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

MEMWAIT_TEST(R11_munmap_of_the_last_mapping_and_close_of_the_file)
{
	int file = temporary_file("/dev/shm", self->page);
	uint32_t *word = map_shared(file, self->page);
	uint64_t id;

	EXPECT_EQ(MEMWAIT_PENDING, mw_async(self->fd, word, 0, MEMWAIT_FOREVER, U32, 1, &id));
	EXPECT_EQ(0, munmap(word, self->page));
	EXPECT_EQ(0, close(file));
	EXPECT_EQ(0, mw_cancel(self->fd, id));
}

MEMWAIT_TEST(R11_mremap_during_a_wait)
{
	struct waiter w = thread_at(self->fd, self->shared);
	uint32_t *place = private_page(self->page), *moved;

	/* A shared word has the same key wherever it is mapped. */
	waiter_start(&w);
	moved = mremap(self->shared, self->page, self->page, MREMAP_MAYMOVE | MREMAP_FIXED, place);
	ASSERT_EQ(place, moved);
	EXPECT_EQ(1, mw_notify(self->fd, moved, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));

	/* A waiter on a private word stays at the old address, as with futex(2). */
	w.addr = private_page(self->page);
	place = private_page(self->page);
	waiter_start(&w);
	moved = mremap((void *)w.addr, self->page, self->page, MREMAP_MAYMOVE | MREMAP_FIXED,
		       place);
	ASSERT_EQ(place, moved);
	EXPECT_EQ(0, mw_notify(self->fd, moved, 1, U32));
	EXPECT_EQ(1, mw_notify(self->fd, w.addr, 1, U32 | MEMWAIT_PRIVATE));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

MEMWAIT_TEST(R11_truncate_during_a_wait)
{
	struct waiter w = { .fd = self->fd, .deadline = MEMWAIT_FOREVER, .flags = U32 };
	struct area area;

	area = map_twice(temporary_file("/dev/shm", self->page), self->page);
	w.addr = area.a;
	waiter_start(&w);
	EXPECT_EQ(0, ftruncate(area.file, 0));
	/* The word can no longer be read, so no new wait can begin. The waiter is still waiting. */
	EXPECT_EQ(-EFAULT, mw_wait(self->fd, area.b, 0, 0, U32));
	EXPECT_EQ(1, mw_notify(self->fd, area.b, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	unmap(&area);
}

struct execer {
	int fd;
	uint32_t *word;
};

static void *wait_forever(void *arg)
{
	struct execer *e = arg;

	mw_wait(e->fd, e->word, 0, MEMWAIT_FOREVER, U32);
	return NULL;
}

MEMWAIT_TEST(R11_exec_during_a_wait)
{
	struct execer e = { .fd = self->fd, .word = self->shared };
	pid_t pid = fork_child();

	if (!pid) {
		pthread_t thread;
		char *const argv[] = { "/proc/self/exe", "--no-such-option", NULL };
		int null = open("/dev/null", O_WRONLY);

		pthread_create(&thread, NULL, wait_forever, &e);
		await_waiters(self->fd, self->shared, U32, 1);
		dup2(null, 1);
		dup2(null, 2);
		execv(argv[0], argv);
		_exit(99);
	}
	EXPECT_NE(99, child_status(pid));
	EXPECT_EQ(0, mw_waiters(self->fd, self->shared, U32));
}

MEMWAIT_TEST(R11_exit_during_a_wait)
{
	struct execer e = { .fd = self->fd, .word = self->shared };
	pid_t pid = fork_child();

	if (!pid) {
		pthread_t thread;
		int i;

		for (i = 0; i < 4; i++)
			pthread_create(&thread, NULL, wait_forever, &e);
		await_waiters(self->fd, self->shared, U32, 4);
		_exit(0);
	}
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(0, mw_waiters(self->fd, self->shared, U32));
}

TEST_HARNESS_MAIN
