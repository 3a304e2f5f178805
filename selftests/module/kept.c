// SPDX-License-Identifier: GPL-2.0
/*
 * R11: a pending async wait references the file (its path), not the open file. When user space
 * closes the file, locks, leases and write access end; only the file system stays busy. The tests
 * run on several file systems.
 */
#include "async_test.h"
#include "signal_test.h"
#include <linux/fs.h>
#include <sys/file.h>
#include <linux/io_uring.h>
#include <linux/membarrier.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/vfs.h>

#define FOREVER	MEMWAIT_FOREVER
#define BIND	(MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND)

enum kind { TMPFS, UNLINKED, EXT4, OVERLAY, MEMFD };

/*
 * A file of which only the path is open.
 *
 * @base: a directory where a tmpfs is mounted, with everything that the file system at @dir needs
 *
 * @file: the file, opened with O_PATH. A child inherits it and can execute the file through it
 */
struct place {
	char base[32], dir[40], path[48];
	int file;
};

static bool mount_kind(enum kind kind, const char *base, const char *dir)
{
	static const char make[] =
		"truncate -s 4M %s && mkfs.ext4 -q -O ^has_journal %s >/dev/null 2>&1";
	char disk[100], text[300];

	if (mount("memwait", base, "tmpfs", 0, NULL) || mkdir(dir, 0755))
		return false;
	switch (kind) {
	case EXT4:
		snprintf(disk, sizeof(disk), "%s/disk", base);
		snprintf(text, sizeof(text), make, disk, disk);
		if (system(text))
			return false;
		snprintf(text, sizeof(text), "mount -t ext4 -o loop %s %s", disk, dir);
		return !system(text);
	case OVERLAY:
		snprintf(text, sizeof(text), "mkdir %s/lower %s/upper %s/work", base, base, base);
		if (system(text))
			return false;
		snprintf(text, sizeof(text), "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work",
			 base, base, base);
		return !mount("memwait", dir, "overlay", 0, text);
	default:
		return !mount("memwait", dir, "tmpfs", 0, NULL);
	}
}

/* Opens the file to which the descriptor @file refers again. */
static int reopen(int file, int flags)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	return open(path, flags);
}

/* Returns 0 or a negative errno: -ENODEV if this machine does not support the file system. */
static int make_place(struct place *place, enum kind kind, long page)
{
	int file;

	place->file = -1;
	snprintf(place->base, sizeof(place->base), "/tmp/memwait-XXXXXX");
	if (!mkdtemp(place->base))
		return -errno;
	snprintf(place->dir, sizeof(place->dir), "%s/dir", place->base);
	snprintf(place->path, sizeof(place->path), "%s/file", place->dir);
	if (kind != MEMFD && !mount_kind(kind, place->base, place->dir))
		return -ENODEV;
	file = kind == MEMFD ? memfd_create("kept", 0) :
			       open(place->path, O_RDWR | O_CREAT, 0700);
	if (file < 0 || ftruncate(file, 2 * page))
		return -errno;
	place->file = reopen(file, O_PATH);
	close(file);
	if (kind == UNLINKED && unlink(place->path))
		return -errno;
	return place->file < 0 ? -errno : 0;
}

static void close_place(struct place *place)
{
	close(place->file);
	place->file = -1;
}

static int remove_place(struct place *place)
{
	close_place(place);
	umount2(place->dir, MNT_DETACH);
	umount2(place->base, MNT_DETACH);
	return rmdir(place->base);
}

FIXTURE(kept)
{
	int fd;
	struct place place;
};

FIXTURE_VARIANT(kept)
{
	enum kind kind;
};

FIXTURE_VARIANT_ADD(kept, tmpfs) { .kind = TMPFS };
FIXTURE_VARIANT_ADD(kept, unlinked) { .kind = UNLINKED };
FIXTURE_VARIANT_ADD(kept, ext4) { .kind = EXT4 };
FIXTURE_VARIANT_ADD(kept, overlay) { .kind = OVERLAY };
FIXTURE_VARIANT_ADD(kept, memfd) { .kind = MEMFD };

FIXTURE_SETUP(kept)
{
	int err = make_place(&self->place, variant->kind, sysconf(_SC_PAGESIZE));

	if (err == -ENODEV)
		SKIP(return, "no such file system");
	ASSERT_EQ(0, err);
	self->fd = open_device(O_NONBLOCK);
}

FIXTURE_TEARDOWN(kept)
{
	close(self->fd);
	EXPECT_EQ(0, remove_place(&self->place));
}

#define KEPT_TEST(name)	TEST_F_TIMEOUT(kept, name, 300)

static uint32_t *map(int file, long page, int prot)
{
	uint32_t *word = mmap(NULL, page, prot, MAP_SHARED, file, page);

	return word == MAP_FAILED ? NULL : word;
}

/*
 * Opens the file and arms a wait through this open file. In user space only the returned descriptor
 * and the wait refer to the open file afterwards.
 */
static int arm(int fd, int file, int flags, uint64_t *id)
{
	int opened = reopen(file, flags);
	long page = sysconf(_SC_PAGESIZE);
	uint32_t *word = map(opened, page, PROT_READ);
	int ret;

	if (opened < 0 || !word)
		return -1;
	ret = mw_async(fd, word, 0, FOREVER, U32, 1, id);
	munmap(word, page);
	return ret == MEMWAIT_PENDING ? opened : -1;
}

/* Checks that the wait is still pending, and notifies it through another open file. */
static void expect_notified(struct __test_metadata *_metadata, int fd, int file)
{
	struct memwait_completion done;
	int opened = reopen(file, O_RDONLY);
	long page = sysconf(_SC_PAGESIZE);
	uint32_t *word = map(opened, page, PROT_READ);

	ASSERT_NE(NULL, word);
	EXPECT_FALSE(mw_readable(fd));
	EXPECT_EQ(1, mw_notify(fd, word, MEMWAIT_ALL, U32));
	EXPECT_EQ(1, mw_read(fd, &done, 1));
	EXPECT_EQ(MEMWAIT_OK, done.result);
	EXPECT_EQ(0, mw_fdinfo(fd, "pins"));
	munmap(word, page);
	close(opened);
}

KEPT_TEST(R11_flock_ends_with_its_descriptor)
{
	int opened = arm(self->fd, self->place.file, O_RDWR, NULL);
	int other = reopen(self->place.file, O_RDWR);

	ASSERT_LE(0, opened);
	ASSERT_EQ(0, flock(opened, LOCK_EX));
	EXPECT_EQ(-1, flock(other, LOCK_EX | LOCK_NB));
	close(opened);
	EXPECT_EQ(0, flock(other, LOCK_EX | LOCK_NB));
	close(other);
	expect_notified(_metadata, self->fd, self->place.file);
}

KEPT_TEST(R11_ofd_lock_ends_with_its_descriptor)
{
	int opened = arm(self->fd, self->place.file, O_RDWR, NULL);
	int other = reopen(self->place.file, O_RDWR);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	ASSERT_LE(0, opened);
	ASSERT_EQ(0, fcntl(opened, F_OFD_SETLK, &lock));
	EXPECT_EQ(-1, fcntl(other, F_OFD_SETLK, &lock));
	close(opened);
	EXPECT_EQ(0, fcntl(other, F_OFD_SETLK, &lock));
	close(other);
	expect_notified(_metadata, self->fd, self->place.file);
}

/* Tests a lease on the closed file, and a lease that only another open file had prevented. */
KEPT_TEST(R11_lease_ends_with_its_descriptor)
{
	int opened = arm(self->fd, self->place.file, O_RDONLY, NULL), other;

	signal(SIGIO, SIG_IGN);		/* sent when an open breaks the lease */
	ASSERT_LE(0, opened);
	if (fcntl(opened, F_SETLEASE, F_RDLCK))
		SKIP(return, "no leases: %s", strerror(errno));
	EXPECT_EQ(F_RDLCK, fcntl(opened, F_GETLEASE));
	close(opened);
	other = reopen(self->place.file, O_WRONLY | O_NONBLOCK);
	EXPECT_LE(0, other);
	close(other);
	expect_notified(_metadata, self->fd, self->place.file);

	opened = arm(self->fd, self->place.file, O_RDWR, NULL);
	ASSERT_LE(0, opened);
	other = reopen(self->place.file, O_RDONLY);
	EXPECT_EQ(-1, fcntl(other, F_SETLEASE, F_RDLCK));
	EXPECT_EQ(-1, fcntl(other, F_SETLEASE, F_WRLCK));
	close(opened);
	EXPECT_EQ(0, fcntl(other, F_SETLEASE, F_RDLCK));
	EXPECT_EQ(0, fcntl(other, F_SETLEASE, F_UNLCK));
	EXPECT_EQ(0, fcntl(other, F_SETLEASE, F_WRLCK));
	close(other);
	expect_notified(_metadata, self->fd, self->place.file);
}

/* Executes the file in a child. Returns the child's exit status, or 100 plus the error number. */
static int execute(int file)
{
	char name[] = "kept", *argv[] = { name, NULL }, *envp[] = { NULL };
	pid_t pid = fork();

	if (!pid) {
		syscall(SYS_execveat, file, "", argv, envp, AT_EMPTY_PATH);
		_exit(100 + errno);
	}
	return child_status(pid);
}

KEPT_TEST(R11_file_can_be_executed_when_it_is_closed)
{
	static const char program[] = "#!/bin/true\n";
	int opened = arm(self->fd, self->place.file, O_RDWR, NULL);

	ASSERT_LE(0, opened);
	ASSERT_EQ(sizeof(program) - 1, pwrite(opened, program, sizeof(program) - 1, 0));
	ASSERT_EQ(0, fchmod(opened, 0700));
	EXPECT_EQ(100 + ETXTBSY, execute(self->place.file));
	close(opened);
	EXPECT_EQ(0, execute(self->place.file));
	expect_notified(_metadata, self->fd, self->place.file);
}

KEPT_TEST(R11_inotify_reports_the_close_of_a_writer_immediately)
{
	int opened = arm(self->fd, self->place.file, O_RDWR, NULL);
	int inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	struct inotify_event event = { 0 };
	char path[40];

	ASSERT_LE(0, opened);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", self->place.file);
	ASSERT_LE(0, inotify_add_watch(inotify, path, IN_CLOSE_WRITE));
	EXPECT_EQ(-1, read(inotify, &event, sizeof(event)));
	close(opened);
	EXPECT_EQ(sizeof(event), read(inotify, &event, sizeof(event)));
	EXPECT_EQ(IN_CLOSE_WRITE, event.mask);
	close(inotify);
	expect_notified(_metadata, self->fd, self->place.file);
}

/* Waits until @word is @value. Does not wait forever, because the peer may hang. */
static bool await(const uint32_t *word, uint32_t value)
{
	uint64_t end = patience(60);

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
		if (now_ns(CLOCK_MONOTONIC) > end)
			return false;
		usleep(1000);
	}
	return true;
}

/* Tests of file systems that are mounted for the test. */
FIXTURE(mounted)
{
	int fd;
	long page;
	uint32_t *shared;
	struct place place;
};

FIXTURE_VARIANT(mounted)
{
	enum kind kind;
};

FIXTURE_VARIANT_ADD(mounted, tmpfs) { .kind = TMPFS };
FIXTURE_VARIANT_ADD(mounted, ext4) { .kind = EXT4 };
FIXTURE_VARIANT_ADD(mounted, overlay) { .kind = OVERLAY };

FIXTURE_SETUP(mounted)
{
	int err;

	self->page = sysconf(_SC_PAGESIZE);
	err = make_place(&self->place, variant->kind, self->page);
	if (err == -ENODEV)
		SKIP(return, "no such file system");
	ASSERT_EQ(0, err);
	self->shared = shared_page(self->page);
	self->fd = open_device(O_NONBLOCK);
}

FIXTURE_TEARDOWN(mounted)
{
	close(self->fd);
	EXPECT_EQ(0, remove_place(&self->place));
}

#define MOUNTED_TEST(name)	TEST_F_TIMEOUT(mounted, name, 300)

MOUNTED_TEST(R11_mount_can_become_read_only_when_the_file_is_closed)
{
	int opened = arm(self->fd, self->place.file, O_RDWR, NULL);

	ASSERT_LE(0, opened);
	EXPECT_EQ(-1, mount(NULL, self->place.dir, NULL, MS_REMOUNT | MS_RDONLY, NULL));
	EXPECT_EQ(EBUSY, errno);
	close(opened);
	EXPECT_EQ(0, mount(NULL, self->place.dir, NULL, MS_REMOUNT | MS_RDONLY, NULL));
	expect_notified(_metadata, self->fd, self->place.file);
}

/* Arms a wait and closes everything else. Returns whether the file system is busy after that. */
static bool is_kept(int fd, struct place *place, uint64_t *id)
{
	int opened = arm(fd, place->file, O_RDWR, id);

	close(opened);
	close_place(place);
	return opened >= 0 && umount(place->dir) && errno == EBUSY;
}

MOUNTED_TEST(R11_umount_is_busy_until_the_wait_is_cancelled)
{
	uint64_t id;

	ASSERT_TRUE(is_kept(self->fd, &self->place, &id));
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	EXPECT_EQ(0, umount(self->place.dir));
}

MOUNTED_TEST(R11_umount_is_busy_until_the_context_is_closed)
{
	ASSERT_TRUE(is_kept(self->fd, &self->place, NULL));
	ASSERT_TRUE(renew(&self->fd));
	EXPECT_EQ(0, umount(self->place.dir));
}

/* The waits end by a notify or by a deadline. */
MOUNTED_TEST(R11_umount_is_busy_until_completions_are_read)
{
	int opened = reopen(self->place.file, O_RDWR), i;
	uint32_t *word = map(opened, self->page, PROT_READ);
	struct memwait_completion done;

	ASSERT_NE(NULL, word);
	ASSERT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, word, 0));
	ASSERT_EQ(1, mw_notify(self->fd, word, 1, U32));
	ASSERT_EQ(MEMWAIT_PENDING, async_soon(self->fd, word + 1, 5, 1, NULL));
	munmap(word, self->page);
	close(opened);
	close_place(&self->place);
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(-1, umount(self->place.dir));
		EXPECT_EQ(EBUSY, errno);
		sleep_until(mw_read(self->fd, &done, 1) == 1);
	}
	EXPECT_EQ(0, umount(self->place.dir));
}

/* R17: a requeue that fails, for any reason, leaves no reference to either file. */
MOUNTED_TEST(R11_umount_is_not_busy_after_a_requeue_that_was_refused)
{
	int opened = reopen(self->place.file, O_RDWR);
	uint32_t *word = map(opened, self->page, PROT_READ), *hole = private_page(self->page);
	uint32_t *words[] = { word, self->shared, word, hole, hole, word, word, word + 1 };
	struct memwait_requeue requeue = { .move = 1, .flags = U32 };
	static const int errors[] = { -EXDEV, -EFAULT, -EFAULT, MEMWAIT_NOT_EQUAL };
	size_t i;

	ASSERT_NE(NULL, word);
	ASSERT_EQ(0, mprotect(hole, self->page, PROT_NONE));
	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		requeue.addr = (uintptr_t)words[2 * i];
		requeue.target = (uintptr_t)words[2 * i + 1];
		requeue.expected = errors[i] == MEMWAIT_NOT_EQUAL;
		EXPECT_EQ(errors[i], xioctl(self->fd, MEMWAIT_IOC_REQUEUE, &requeue));
	}
	requeue.addr = (uintptr_t)self->shared;
	requeue.target = (uintptr_t)word;
	EXPECT_EQ(-EXDEV, xioctl(self->fd, MEMWAIT_IOC_REQUEUE, &requeue));
	munmap(word, self->page);
	munmap(hole, self->page);
	close(opened);
	close_place(&self->place);
	EXPECT_EQ(0, umount(self->place.dir));
}

MOUNTED_TEST(R11_lazy_umount_during_a_pending_wait)
{
	int opened = reopen(self->place.file, O_RDWR);
	uint32_t *word = map(opened, self->page, PROT_READ);
	struct memwait_completion done;

	ASSERT_NE(NULL, word);
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, word, 1));
	close(opened);
	close_place(&self->place);
	EXPECT_EQ(0, umount2(self->place.dir, MNT_DETACH));
	EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));
	munmap(word, self->page);
	/* Now only the wait pins the file system. */
	EXPECT_EQ(1, mw_read(self->fd, &done, 1));
}

/*
 * Tests the waits of a bound context after its process has died, while another process has a copy
 * of the context's descriptor.
 */
MOUNTED_TEST(R11_umount_is_busy_until_the_process_has_died)
{
	int bound = memwait_open(O_NONBLOCK);
	pid_t pid;

	if (mw_owner(self->fd, 0, NULL) == -EOPNOTSUPP)
		SKIP(return, "this kernel does not report deaths");
	pid = fork();
	if (!pid) {
		if (mw_owner(bound, BIND, NULL))
			_exit(1);
		if (!is_kept(bound, &self->place, NULL))
			_exit(2);
		__atomic_store_n(self->shared, 1, __ATOMIC_RELEASE);
		for (;;)
			pause();
	}
	close_place(&self->place);
	ASSERT_TRUE(await(self->shared, 1));
	EXPECT_EQ(-1, umount(self->place.dir));
	kill(pid, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, child_status(pid));
	while (umount(self->place.dir))
		ASSERT_EQ(EBUSY, errno);
	close(bound);
}

static uint64_t free_bytes(const char *dir)
{
	struct statfs statfs_of;

	return statfs(dir, &statfs_of) ? 0 : statfs_of.f_bfree * statfs_of.f_bsize;
}

MOUNTED_TEST(R11_unlinked_file_is_freed_with_its_last_wait)
{
	const size_t size = 1 << 20;
	uint64_t before, id;
	void *memory;
	int opened;

	before = free_bytes(self->place.dir);
	opened = arm(self->fd, self->place.file, O_RDWR, &id);
	ASSERT_LE(0, opened);
	memory = calloc(1, size);
	EXPECT_EQ(size, pwrite(opened, memory, size, 2 * self->page));
	free(memory);
	EXPECT_EQ(0, unlink(self->place.path));
	close(opened);
	close_place(&self->place);
	EXPECT_GE(before - size, free_bytes(self->place.dir));
	EXPECT_EQ(0, mw_cancel(self->fd, id));
	EXPECT_LE(before, free_bytes(self->place.dir));
}

/*
 * A disk whose file system can be frozen. The memory of an unlinked file cannot be freed until the
 * file system is thawed, as with a network file system whose server does not answer. A thread that
 * frees the file blocks until that time.
 */
FIXTURE(disk)
{
	int fd, root;
	uint32_t *shared;
	struct place place;
};

FIXTURE_SETUP(disk)
{
	long page = sysconf(_SC_PAGESIZE);
	int err = make_place(&self->place, EXT4, page);

	if (err == -ENODEV)
		SKIP(return, "no ext4");
	ASSERT_EQ(0, err);
	close_place(&self->place);
	self->root = open(self->place.dir, O_RDONLY | O_CLOEXEC);
	self->shared = shared_page(page);
	self->fd = open_device(O_NONBLOCK);
}

FIXTURE_TEARDOWN(disk)
{
	ioctl(self->root, FITHAW, 0);	/* the file system may still be frozen */
	close(self->root);
	close(self->fd);
	EXPECT_EQ(0, remove_place(&self->place));
}

/* Arms a wait on a file to which nothing else in this process refers. */
static bool arm_alone(int fd, const char *path)
{
	int file = open(path, O_PATH), opened = arm(fd, file, O_RDWR, NULL);

	close(opened);
	close(file);
	return opened >= 0;
}

/* Unlinks the file, and freezes the file system so that the file cannot be freed. */
static bool freeze(int root, const char *path)
{
	return !unlink(path) && !ioctl(root, FIFREEZE, 0);
}

/* Waits for the next completion of @fd, for a limited time. */
static int read_next(int fd, struct memwait_completion *done)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	poll(&pfd, 1, poll_patience(60));
	return mw_read(fd, done, 1);
}

/* Waits for the death of the owner whose id is in @word. */
static int arm_owned(int fd, const uint64_t *word, uint64_t user_data)
{
	return mw_async(fd, word, *word, FOREVER, MEMWAIT_SIZE_U64 | MEMWAIT_OWNED, user_data,
			NULL);
}

/*
 * R25, R35: a close passes on unread notifies and reports the death of the context before it frees
 * a file. A process that dies does not free the file itself, because it may have to close other
 * contexts.
 */
static void check_close(struct __test_metadata *_metadata, int own, int root, const char *path,
			uint32_t *shared, bool dies)
{
	uint64_t *owned = (uint64_t *)(shared + 4);
	struct memwait_completion done;
	pid_t pid;

	pid = fork();
	if (!pid) {
		int fd = memwait_open(O_NONBLOCK);

		if (mw_owner(fd, MEMWAIT_OWNER_CONTEXT, owned))
			_exit(3);
		if (mw_arm(fd, shared, 1) != MEMWAIT_PENDING)
			_exit(1);
		if (!arm_alone(fd, path))
			_exit(2);
		__atomic_store_n(shared + 1, 1, __ATOMIC_RELEASE);
		if (!await(shared + 1, 2))
			_exit(4);
		close(fd);
		_exit(0);
	}
	ASSERT_TRUE(await(shared + 1, 1));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(own, shared, 2));
	EXPECT_EQ(1, mw_notify(own, shared, 1, U32));
	EXPECT_EQ(MEMWAIT_PENDING, arm_owned(own, owned, 3));
	ASSERT_TRUE(freeze(root, path));

	if (dies)
		kill(pid, SIGKILL);
	else
		__atomic_store_n(shared + 1, 2, __ATOMIC_RELEASE);
	EXPECT_EQ(1, read_next(own, &done));
	EXPECT_EQ(2, done.user_data);
	EXPECT_EQ(1, read_next(own, &done));
	EXPECT_EQ(3, done.user_data);
	EXPECT_EQ(MEMWAIT_OWNER_DIED, done.result);
	if (dies) {
		EXPECT_EQ(128 + SIGKILL, child_status(pid));
	} else {
		EXPECT_EQ(0, waitpid(pid, NULL, WNOHANG));
	}
	spin_until(mw_user_waits(own) == PIN_WAITS);

	EXPECT_EQ(0, ioctl(root, FITHAW, 0));
	if (!dies) {
		EXPECT_EQ(0, child_status(pid));
	}
	EXPECT_EQ(0, mw_await_user_waits(own, 0));
}

TEST_F_TIMEOUT(disk, R25_notifies_are_passed_on_before_a_file_is_freed, 300)
{
	if (mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL) == -EOPNOTSUPP)
		SKIP(return, "this kernel does not report deaths");
	check_close(_metadata, self->fd, self->root, self->place.path, self->shared, false);
}

TEST_F_TIMEOUT(disk, R25_a_dying_process_does_not_wait_until_a_file_is_freed, 300)
{
	if (mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL) == -EOPNOTSUPP)
		SKIP(return, "this kernel does not report deaths");
	check_close(_metadata, self->fd, self->root, self->place.path, self->shared, true);
}

/*
 * Forks a process with a wait on a file, in a context that io_uring also references. When shared[1]
 * is set, the process exits, and a kernel thread closes the context.
 */
static pid_t start_left(const char *path, uint32_t *shared)
{
	pid_t pid = fork();
	int fd, ring;

	if (pid)
		return pid;
	fd = memwait_open(O_NONBLOCK);
	ring = syscall(SYS_io_uring_setup, 1, &(struct io_uring_params) { 0 });
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &fd, 1))
		_exit(1);
	if (!arm_alone(fd, path))
		_exit(2);
	__atomic_store_n(shared, 1, __ATOMIC_RELEASE);
	await(shared + 1, 1);
	_exit(0);
}

static bool has_io_uring(void)
{
	int ring = syscall(SYS_io_uring_setup, 1, &(struct io_uring_params) { 0 });

	close(ring);
	return ring >= 0;
}

/*
 * R30: a kernel thread that other users need never frees a file. R31: the file is counted until it
 * has been freed.
 */
TEST_F_TIMEOUT(disk, R30_deaths_are_reported_while_a_file_cannot_be_freed, 300)
{
	uint64_t *word = (uint64_t *)(self->shared + 4);
	struct memwait_completion done;
	pid_t pid, owner;

	if (mw_owner(self->fd, MEMWAIT_OWNER_CONTEXT, NULL) == -EOPNOTSUPP || !has_io_uring())
		SKIP(return, "this kernel does not report deaths, or has no io_uring");
	pid = start_left(self->place.path, self->shared);
	ASSERT_TRUE(await(self->shared, 1));
	ASSERT_TRUE(freeze(self->root, self->place.path));
	EXPECT_EQ(1 + PIN_WAITS, mw_user_waits(self->fd));
	__atomic_store_n(self->shared + 1, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(0, child_status(pid));
	sleep_until(mw_user_contexts(self->fd) <= 1);

	owner = fork();
	if (!owner) {
		int fd = memwait_open(0);

		if (mw_owner(fd, 0, word))
			_exit(1);
		__atomic_store_n(self->shared + 2, 1, __ATOMIC_RELEASE);
		for (;;)
			pause();
	}
	ASSERT_TRUE(await(self->shared + 2, 1));
	EXPECT_EQ(MEMWAIT_PENDING, arm_owned(self->fd, word, 4));
	kill(owner, SIGKILL);
	EXPECT_EQ(1, read_next(self->fd, &done));
	EXPECT_EQ(MEMWAIT_OWNER_DIED, done.result);
	EXPECT_EQ(128 + SIGKILL, child_status(owner));
	EXPECT_EQ(PIN_WAITS, mw_await_user_waits(self->fd, PIN_WAITS));

	EXPECT_EQ(0, ioctl(self->root, FITHAW, 0));
	sleep_until(!mw_user_waits(self->fd));
}

#define LEFT	3

/*
 * R31: kernel threads hand over more files to be freed while the first file is being freed. All
 * charges are returned, and the user and the module are released.
 */
TEST_F_TIMEOUT(disk, R31_files_that_kernel_threads_defer_are_released, 300)
{
	long before = read_number("/sys/module/memwait/refcnt"), after = 0, tries;
	pid_t pids[LEFT];
	char path[64];
	int i;

	if (!has_io_uring())
		SKIP(return, "no io_uring");
	for (i = 0; i < LEFT; i++) {
		snprintf(path, sizeof(path), "%s/left%d", self->place.dir, i);
		close(open(path, O_RDWR | O_CREAT, 0600));
		EXPECT_EQ(0, truncate(path, 2 * sysconf(_SC_PAGESIZE)));
		pids[i] = start_left(path, self->shared + 2 * i);
		ASSERT_TRUE(await(self->shared + 2 * i, 1));
		EXPECT_EQ(0, unlink(path));
	}
	ASSERT_TRUE(freeze(self->root, self->place.path));
	for (i = 0; i < LEFT; i++) {
		__atomic_store_n(self->shared + 2 * i + 1, 1, __ATOMIC_RELEASE);
		EXPECT_EQ(0, child_status(pids[i]));
		sleep_until(mw_user_contexts(self->fd) <= LEFT - (uint64_t)i);
		/* Give the kernel thread time to block while it frees the file. */
		usleep(100000);
	}
	EXPECT_EQ(LEFT * PIN_WAITS, mw_await_user_waits(self->fd, LEFT * PIN_WAITS));

	EXPECT_EQ(0, ioctl(self->root, FITHAW, 0));
	for (tries = 0; tries < 20000; tries++) {
		after = read_number("/sys/module/memwait/refcnt");
		if (!mw_user_waits(self->fd) && after <= before)
			break;
		usleep(1000);
	}
	EXPECT_EQ(0, mw_user_waits(self->fd));
	EXPECT_GE(before, after);
}

/* A thread that frees the file of its wait, and may block there. */
struct freer {
	struct runner runner;
	int fd;
	uint64_t id;		/* id of the wait to cancel; 0: the thread reads the completion */
};

static int free_file(struct freer *freer)
{
	struct memwait_completion done;

	return freer->id ? mw_cancel(freer->fd, freer->id) : mw_read(freer->fd, &done, 1);
}

/*
 * Creates the file and arms a wait on it. If @read is set, notifies the wait. Returns the wait's
 * id.
 */
static uint64_t arm_on_file(int fd, const char *path, bool read)
{
	int file = open(path, O_RDWR | O_CREAT, 0600), opened;
	long page = sysconf(_SC_PAGESIZE);
	uint32_t *word;
	uint64_t id;

	if (file < 0 || ftruncate(file, 2 * page))
		return 0;
	opened = arm(fd, file, O_RDWR, &id);
	word = map(file, page, PROT_READ);
	if (opened < 0 || !word || (read && mw_notify(fd, word, 1, U32) != 1))
		return 0;
	munmap(word, page);
	close(opened);
	close(file);
	return id;
}

/*
 * L10, R28: if a call blocks while it frees a file, no waiter for the end of the context is
 * delayed.
 */
TEST_F_TIMEOUT(disk, L10_a_bound_context_ends_while_a_call_frees_a_file, 300)
{
	struct freer freer;
	uint64_t end, id;
	int read;

	for (read = 0; read < 2; read++) {
		freer = (struct freer) { .fd = memwait_open(O_NONBLOCK) };
		if (mw_owner(freer.fd, BIND, NULL) == -EOPNOTSUPP)
			SKIP(return, "this kernel does not report deaths");
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(freer.fd, self->shared, 1));
		id = arm_on_file(freer.fd, self->place.path, read);
		ASSERT_NE(0, id);
		freer.id = read ? 0 : id;
		ASSERT_TRUE(freeze(self->root, self->place.path));
		runner_start(&freer.runner, free_file, &freer);
		/*
		 * If the thread slept anywhere else, the wait would not have been removed yet, and
		 * its pin would still exist.
		 */
		sleep_until(mw_fdinfo(freer.fd, "pins") == 1 &&
			    thread_state(freer.runner.tid) == 'D');
		close(freer.fd);
		end = patience(20);
		while (mw_waiters(self->fd, self->shared, U32) && now_ns(CLOCK_MONOTONIC) < end)
			usleep(100);
		EXPECT_EQ(0, mw_waiters(self->fd, self->shared, U32));
		EXPECT_FALSE(runner_is_done(&freer.runner));

		EXPECT_EQ(0, ioctl(self->root, FITHAW, 0));
		EXPECT_EQ(read, runner_join(&freer.runner));
	}
}

/* Creates files until the only inode left is the one of the test's own file. */
static void use_up_inodes(const char *dir)
{
	char path[80];
	int i, file;

	for (i = 0;; i++) {
		snprintf(path, sizeof(path), "%s/other%d", dir, i);
		file = open(path, O_RDWR | O_CREAT, 0600);
		if (file < 0)
			return;
		close(file);
	}
}

/*
 * Maps a word of a file to which nothing else refers. If *@number is 0, stores the file's inode
 * number there; otherwise fails if the inode number differs.
 */
static uint64_t *make_word(const char *path, ino_t *number)
{
	int file = open(path, O_RDWR | O_CREAT, 0600);
	long page = sysconf(_SC_PAGESIZE);
	void *word = MAP_FAILED;
	struct stat of;

	if (file >= 0 && !ftruncate(file, page) && !fstat(file, &of) &&
	    (!*number || *number == of.st_ino)) {
		*number = of.st_ino;
		word = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	}
	close(file);
	return word == MAP_FAILED ? NULL : word;
}

/*
 * Replaces the file by another file. The kernel reuses the most recently freed memory first, so the
 * new inode usually has the same address.
 */
static uint64_t *replace_word(uint64_t *word, const char *path, ino_t *number)
{
	int i;

	munmap(word, sysconf(_SC_PAGESIZE));
	unlink(path);
	/* Wait until the inode has been freed, after a grace period. */
	for (i = 0; i < 3; i++) {
		syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
		usleep(10000);
	}
	return make_word(path, number);
}

/* A thread that waits, is interrupted, and waits again when it is allowed to. */
struct returning_thread {
	pthread_t thread;
	pid_t tid;
	int fd, away, back;
	uint64_t *word;
	int result;
};

static void *come_back(void *arg)
{
	struct returning_thread *t = arg;

	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	t->result = mw_wait(t->fd, t->word, 0, FOREVER, U32);
	__atomic_store_n(&t->away, 1, __ATOMIC_RELEASE);
	sleep_until(__atomic_load_n(&t->back, __ATOMIC_ACQUIRE));
	if (t->result == -EINTR)
		t->result = mw_wait(t->fd, t->word, 0, FOREVER, U32);
	return NULL;
}

#define REPLACED	20

/*
 * R12: a queue position belongs to the queue of a word. It does not belong to a later word that has
 * the same inode number and address.
 */
TEST_F_TIMEOUT(disk, R12_a_position_is_not_valid_for_a_file_with_the_same_number, 300)
{
	struct memwait_completion done;
	uint64_t *word;
	ino_t number = 0;
	int round;

	handle(SIGUSR1, 0);
	ASSERT_EQ(0, bind_to(0));
	use_up_inodes(self->place.dir);
	word = make_word(self->place.path, &number);
	for (round = 0; round < REPLACED; round++) {
		struct returning_thread t = { .fd = self->fd, .word = word };

		ASSERT_NE(NULL, word);
		ASSERT_EQ(0, pthread_create(&t.thread, NULL, come_back, &t));
		await_waiters(self->fd, word, U32, 1);
		interrupt_thread(t.thread, t.tid);
		sleep_until(__atomic_load_n(&t.away, __ATOMIC_ACQUIRE));
		word = replace_word(word, self->place.path, &number);
		ASSERT_NE(NULL, word);
		t.word = word;
		EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, word, 1));
		__atomic_store_n(&t.back, 1, __ATOMIC_RELEASE);
		await_waiters(self->fd, word, U32, 2);
		EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));
		EXPECT_EQ(1, mw_read(self->fd, &done, 1));
		EXPECT_EQ(1, mw_notify(self->fd, word, MEMWAIT_ALL, U32));
		pthread_join(t.thread, NULL);
		EXPECT_EQ(MEMWAIT_OK, t.result);
		mw_read(self->fd, &done, 1);
	}
}

TEST_HARNESS_MAIN
