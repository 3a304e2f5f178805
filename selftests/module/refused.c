// SPDX-License-Identifier: GPL-2.0
/*
 * R31: a refused call changes no count that another call can observe. A call within its limits
 * never fails because another call was refused. A user makes these calls whose counts no other
 * process changes.
 */
#include <sys/mman.h>
#include <sys/mount.h>

#include "limits_test.h"

#define OWNERS		PARAMETERS "max_user_owners"

#define TRIES		20000	/* limit, unless the other process has been refused this often: */
#define LEAST_REFUSED	100
#define ROUNDS		SOME_OF(3000)

FIXTURE(refused)
{
};

FIXTURE_SETUP(refused)
{
	if (geteuid())
		SKIP(return, "needs root to set the limits");
}

FIXTURE_TEARDOWN(refused)
{
	EXPECT_EQ(0, restore_settings());
}

#define REFUSED_TEST(name)	TEST_F_TIMEOUT(refused, name, 300)

/* Maps a word of a new, empty file and closes the file. Returns NULL on failure. */
static uint32_t *page_of(int file, int protection)
{
	void *page = MAP_FAILED;

	if (file >= 0 && !ftruncate(file, 4096))
		page = mmap(NULL, 4096, protection, MAP_SHARED, file, 0);
	close(file);
	return page == MAP_FAILED ? NULL : page;
}

/*
 * One process repeats a call that is refused. A second process of the same user arms one wait and
 * cancels it, which is within the limits.
 */
struct pair {
	int (*attempt)(int fd, void *arg);
	int error;			/* error of each attempt */
	int armed, ready, stop, stopped;
	long refused, others;
	int enospc, wrong;
};

static void run_refused(struct pair *p, void *arg)
{
	int fd;

	become_nobody();
	fd = memwait_open(0);
	spin_until(__atomic_load_n(&p->armed, __ATOMIC_ACQUIRE));
	while (!__atomic_load_n(&p->stop, __ATOMIC_RELAXED)) {
		if (p->attempt(fd, arg) == p->error)
			add_one(&p->refused);
		else
			add_one(&p->others);
		__atomic_store_n(&p->ready, 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&p->stopped, 1, __ATOMIC_RELEASE);
	_exit(0);
}

static void run_modest(struct pair *p)
{
	uint32_t *words = private_page(4096);
	int fd, i, ret;
	uint64_t id;

	become_nobody();
	fd = memwait_open(0);
	__atomic_store_n(&p->armed, 1, __ATOMIC_RELEASE);
	spin_until(__atomic_load_n(&p->ready, __ATOMIC_ACQUIRE));
	for (i = 0; i < TRIES || counted(&p->refused) + counted(&p->others) <= LEAST_REFUSED; i++) {
		ret = mw_async(fd, words, 0, MEMWAIT_FOREVER, U32 | MEMWAIT_PRIVATE, 0, &id);
		if (ret == MEMWAIT_PENDING)
			p->wrong += mw_cancel(fd, id) != 0;
		else if (ret == -ENOSPC)
			p->enospc++;
		else
			p->wrong++;
	}
	/* The waits of this process must exist until the other process has stopped. */
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELAXED);
	spin_until(__atomic_load_n(&p->stopped, __ATOMIC_ACQUIRE));
	_exit(0);
}

static void refuse(struct __test_metadata *_metadata, struct pair pair, void *arg)
{
	struct pair *p = shared_page(4096);
	pid_t refused, modest;

	*p = pair;
	modest = fork_child();
	if (!modest)
		run_modest(p);
	refused = fork_child();
	if (!refused)
		run_refused(p, arg);
	EXPECT_EQ(0, child_status(modest));
	EXPECT_EQ(0, child_status(refused));
	TH_LOG("%d of %d calls were wrongly refused; %ld calls were rightly refused", p->enospc,
	       TRIES, p->refused);
	EXPECT_EQ(0, p->enospc);
	EXPECT_EQ(0, p->wrong);
	EXPECT_EQ(0, p->others);
	EXPECT_LT(LEAST_REFUSED, p->refused);
	munmap(p, 4096);
}

#define TOO_MANY	11	/* number of words, one more than the limit allows */

static int ask_for_too_many(int fd, void *arg)
{
	struct memwait_wait waits[TOO_MANY] = { 0 };
	struct memwait_async entry = { 0 };
	int i, ret;

	for (i = 0; i < TOO_MANY; i++) {
		waits[i].addr = (uintptr_t)arg;
		waits[i].flags = U32 | MEMWAIT_PRIVATE;
	}
	entry.any.waits = (uintptr_t)waits;
	entry.any.count = TOO_MANY;
	entry.any.flags = MEMWAIT_GROUP;
	entry.any.deadline = MEMWAIT_FOREVER;
	ret = mw_batch(fd, &entry, 1);
	return ret < 0 ? ret : entry.result;
}

REFUSED_TEST(R31_a_too_large_group_affects_no_other_call)
{
	ASSERT_EQ(0, set_limit(TOO_MANY - 1));
	refuse(_metadata, (struct pair) {
		.attempt = ask_for_too_many,
		.error = -ENOSPC,
	}, private_page(4096));
}

static int ask_read_only(int fd, void *arg)
{
	return mw_batch(fd, arg, 1);
}

REFUSED_TEST(R31_a_batch_with_unwritable_results_affects_no_other_call)
{
	struct memwait_async *entry = private_page(4096);

	entry->wait.addr = (uintptr_t)&entry[1];
	entry->wait.flags = U32 | MEMWAIT_PRIVATE;
	entry->wait.deadline = MEMWAIT_FOREVER;
	ASSERT_EQ(0, mprotect(entry, 4096, PROT_READ));
	ASSERT_EQ(0, set_limit(1 + PIN_WAITS));
	refuse(_metadata, (struct pair) {
		.attempt = ask_read_only,
		.error = -EFAULT,
	}, entry);
}

static int ask_for_pins(int fd, void *arg)
{
	int ret = ask_for_too_many(fd, arg);

	return mw_fdinfo(fd, "pins") ? -EBUSY : ret;
}

REFUSED_TEST(R31_a_wait_above_the_limit_pins_nothing)
{
	ASSERT_EQ(0, set_limit(TOO_MANY - 1));
	refuse(_metadata, (struct pair) {
		.attempt = ask_for_pins,
		.error = -ENOSPC,
	}, private_page(4096));
}

/* Two threads that use one context. */
struct racers {
	pthread_t thread;
	int arrived;		/* how often a thread has arrived */
	int (*attempt)(struct racers *racers, uint64_t *result);
	int fd;
	uint32_t *word;
	int errors[2];
	uint64_t results[2];
};

static int pin_word(struct racers *racers, uint64_t *id)
{
	return mw_async(racers->fd, racers->word, 0, MEMWAIT_FOREVER, U32, 0, id);
}

static int ask_for_id(struct racers *racers, uint64_t *id)
{
	struct memwait_owner owner = { .flags = MEMWAIT_OWNER_CONTEXT };
	int ret = xioctl(racers->fd, MEMWAIT_IOC_OWNER, &owner);

	*id = owner.id;
	return ret;
}

/*
 * Waits until the other thread has arrived as often as this thread. Then both run at the same time,
 * and neither has to be woken.
 */
static void meet(struct racers *racers)
{
	int both = (__atomic_fetch_add(&racers->arrived, 1, __ATOMIC_ACQ_REL) | 1) + 1;

	spin_until(__atomic_load_n(&racers->arrived, __ATOMIC_ACQUIRE) >= both);
}

static void *second_racer(void *arg)
{
	struct racers *racers = arg;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		meet(racers);
		racers->errors[1] = racers->attempt(racers, &racers->results[1]);
		meet(racers);
	}
	return NULL;
}

static void racers_start(struct racers *racers,
			 int (*attempt)(struct racers *racers, uint64_t *result))
{
	racers->attempt = attempt;
	racers->arrived = 0;
	if (pthread_create(&racers->thread, NULL, second_racer, racers))
		_exit(1);
}

static void racers_go(struct racers *racers)
{
	meet(racers);
	racers->errors[0] = racers->attempt(racers, &racers->results[0]);
	meet(racers);
}

/* The files are in a directory to which every user may write. */
static void run_pinners(int *wrong, const char *directory)
{
	struct racers racers;
	int i, t;

	become_nobody();
	racers.fd = memwait_open(0);
	racers_start(&racers, pin_word);
	for (i = 0; i < ROUNDS; i++) {
		racers.word = page_of(open(directory, O_TMPFILE | O_RDWR, 0600), PROT_READ);
		if (!racers.word)
			_exit(3);
		racers_go(&racers);
		for (t = 0; t < 2; t++) {
			if (racers.errors[t] != MEMWAIT_PENDING)
				++*wrong;
			else if (mw_cancel(racers.fd, racers.results[t]))
				_exit(2);
		}
		munmap(racers.word, 4096);
	}
	_exit(0);
}

/* Each thread either creates a pin or shares the other thread's pin. No file stays pinned. */
REFUSED_TEST(R31_two_threads_that_pin_one_file_leave_no_pin)
{
	char directory[] = "/tmp/memwait-pins-XXXXXX";
	int *wrong = shared_page(4096);
	pid_t pid;

	ASSERT_NE(NULL, mkdtemp(directory));
	ASSERT_EQ(0, mount("memwait", directory, "tmpfs", 0, "mode=1777"));
	pid = fork_child();
	if (!pid)
		run_pinners(wrong, directory);
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(0, *wrong);
	EXPECT_EQ(0, umount(directory));
	EXPECT_EQ(0, rmdir(directory));
	munmap(wrong, 4096);
}

static void run_askers(int *wrong)
{
	struct memwait_info info;
	struct racers racers;
	int i, keep;

	become_nobody();
	keep = memwait_open(0);
	racers_start(&racers, ask_for_id);
	for (i = 0; i < ROUNDS; i++) {
		racers.fd = memwait_open(0);
		racers_go(&racers);
		if (racers.errors[0] || racers.errors[1] || racers.results[0] != racers.results[1])
			++*wrong;
		close(racers.fd);
		do {
			if (mw_info(keep, &info))
				_exit(2);
		} while (info.user_owners);
	}
	_exit(0);
}

REFUSED_TEST(R33_two_threads_that_request_the_id_of_a_context_get_one)
{
	int *wrong = shared_page(4096);
	pid_t pid;

	ASSERT_EQ(0, change_number(OWNERS, 1));
	pid = fork_child();
	if (!pid)
		run_askers(wrong);
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(0, *wrong);
	munmap(wrong, 4096);
}

#define BIND	(MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND)

/* The results of MEMWAIT_OWNER_BIND, and the number of owners afterwards. */
struct binds {
	int used, bound, full;
	uint64_t owners_full;
	int read;		/* read by another process */
	int ready;
};

static void run_binder(struct binds *b)
{
	struct memwait_completion completion;
	int used, bound, fresh;
	pid_t pid;

	become_nobody();
	used = memwait_open(O_NONBLOCK);
	bound = memwait_open(O_NONBLOCK);
	fresh = memwait_open(O_NONBLOCK);
	if (mw_cancel(used, 1) != -ENOENT)
		_exit(1);
	pid = fork_child();
	if (!pid) {
		__atomic_store_n(&b->ready, mw_owner(bound, BIND, NULL) ?: 1, __ATOMIC_RELEASE);
		pause();
		_exit(0);
	}
	spin_until(__atomic_load_n(&b->ready, __ATOMIC_ACQUIRE));
	if (b->ready != 1)
		_exit(2);
	b->used = mw_owner(used, BIND, NULL);
	b->bound = mw_owner(bound, BIND, NULL);
	b->full = mw_owner(fresh, BIND, NULL);
	b->owners_full = mw_user_owners(used);
	kill_child(pid);
	pid = fork_child();
	if (!pid) {
		b->read = mw_read(fresh, &completion, 1);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	_exit(0);
}

REFUSED_TEST(R31_a_bind_that_is_refused_does_nothing)
{
	struct binds *b = shared_page(4096);
	pid_t pid;

	ASSERT_EQ(0, change_number(OWNERS, 1));
	pid = fork_child();
	if (!pid)
		run_binder(b);
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(-EBUSY, b->used);
	EXPECT_EQ(-EPERM, b->bound);
	EXPECT_EQ(-ENOSPC, b->full);
	EXPECT_EQ(1, b->owners_full);
	EXPECT_EQ(-EAGAIN, b->read);
	munmap(b, 4096);
}

/* A file that is mapped at words, and that only its path refers to otherwise. */
struct closed_file {
	char path[32];
	uint32_t *words;
};

static bool map_closed_file(struct closed_file *file)
{
	snprintf(file->path, sizeof(file->path), "/tmp/memwait-XXXXXX");
	file->words = page_of(mkstemp(file->path), PROT_READ | PROT_WRITE);
	return file->words;
}

/*
 * Unmaps the file, and takes a read lease, which is refused with EAGAIN while a reference to an
 * open file allows writing. Returns 0 or a negative errno.
 */
static int unmap_and_lease(struct closed_file *file)
{
	int path = open(file->path, O_RDONLY), err = 0;

	/* The mapping itself prevents a lease. */
	if (!fcntl(path, F_SETLEASE, F_RDLCK))
		err = -EBADF;
	else if (errno != EAGAIN)
		err = -ENOSYS;
	munmap(file->words, 4096);
	if (!err && fcntl(path, F_SETLEASE, F_RDLCK))
		err = -errno;
	close(path);
	unlink(file->path);
	return err;
}

REFUSED_TEST(R31_a_notify_many_that_cannot_write_its_results_releases_the_file)
{
	struct memwait_notify notifies[20];
	struct closed_file file;
	int fd = open_device(O_NONBLOCK), i, ret;

	ASSERT_TRUE(map_closed_file(&file));
	for (i = 0; i < 20; i++)
		notifies[i] = (struct memwait_notify) {
			.addr = (uintptr_t)(file.words + i), .count = 1, .flags = MEMWAIT_SIZE_U32,
		};
	EXPECT_EQ(-EFAULT, mw_notify_many(fd, notifies, 20, (uint32_t *)8));
	ret = unmap_and_lease(&file);
	close(fd);
	if (ret == -ENOSYS)
		SKIP(return, "no leases");
	EXPECT_EQ(0, ret);
}

REFUSED_TEST(R31_a_notify_wait_whose_notify_fails_releases_the_file)
{
	struct memwait_notify_wait arg = {
		.notify = { .addr = 8, .count = 1, .flags = MEMWAIT_SIZE_U32 },
		.wait = { .flags = MEMWAIT_SIZE_U32, .deadline = MEMWAIT_FOREVER },
	};
	int fd = open_device(O_NONBLOCK), ret;
	struct closed_file file;

	ASSERT_TRUE(map_closed_file(&file));
	arg.wait.addr = (uintptr_t)file.words;
	EXPECT_EQ(-EFAULT, xioctl(fd, MEMWAIT_IOC_NOTIFY_WAIT, &arg));
	ret = unmap_and_lease(&file);
	close(fd);
	if (ret == -ENOSYS)
		SKIP(return, "no leases");
	EXPECT_EQ(0, ret);
}

TEST_HARNESS_MAIN
