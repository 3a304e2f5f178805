// SPDX-License-Identifier: GPL-2.0
/* R31: the counts when two calls race, and the user whose counts INFO shows. */
#include <linux/userfaultfd.h>

#include "limits_test.h"

/* A user id that no other process has. */
#define OTHER_USER	65000

#define ROUNDS		SOME_OF(3000)

struct meeting {
	int arrived;		/* how often a thread has arrived */
	int wrong;
};

/* Waits until the other thread has arrived as often as this thread, so that both run. */
static void meet(struct meeting *m)
{
	int both = (__atomic_fetch_add(&m->arrived, 1, __ATOMIC_ACQ_REL) | 1) + 1;

	spin_until(__atomic_load_n(&m->arrived, __ATOMIC_ACQUIRE) >= both);
}

static void count_wrong(struct meeting *m, int wrong)
{
	__atomic_add_fetch(&m->wrong, wrong, __ATOMIC_RELAXED);
}

static void open_at_once(struct meeting *m, bool stays)
{
	int i, fd, another;

	if (setgid(OTHER_USER) || setuid(OTHER_USER))
		_exit(99);
	for (i = 0; i < ROUNDS; i++) {
		meet(m);
		fd = memwait_open(0);
		meet(m);
		count_wrong(m, mw_user_contexts(fd) != 2);
		meet(m);
		if (!stays)
			close(fd);
		meet(m);
		if (stays) {
			/* To the kernel, the user is still the same. */
			another = memwait_open(0);
			count_wrong(m, mw_user_contexts(another) != 2);
			close(another);
			close(fd);
		}
	}
	_exit(0);
}

/*
 * The record of a user exists from the first open context to the last. Two simultaneous first opens
 * create one record.
 */
MEMWAIT_TEST(R31_two_simultaneous_first_opens_create_one_user)
{
	struct meeting *m = (void *)self->shared;
	pid_t pids[2];
	int i;

	if (geteuid())
		SKIP(return, "needs root to become another user");
	for (i = 0; i < 2; i++) {
		pids[i] = fork_child();
		if (!pids[i])
			open_at_once(m, i);
	}
	EXPECT_EQ(0, child_status(pids[0]));
	EXPECT_EQ(0, child_status(pids[1]));
	EXPECT_EQ(0, m->wrong);
}

/*
 * A thread that arms a wait whose result must be written to a page that is write-protected at
 * first.
 */
struct slow_entry {
	struct memwait_async *entry;
	int fd, result;
	int done;
};

static void *arm_slowly(void *arg)
{
	struct slow_entry *slow = arg;

	slow->result = mw_batch(slow->fd, slow->entry, 1);
	__atomic_store_n(&slow->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static int protect(int uffd, void *page, size_t size, bool protect)
{
	struct uffdio_writeprotect arg = {
		.range = { .start = (uintptr_t)page, .len = size },
		.mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};

	return ioctl(uffd, UFFDIO_WRITEPROTECT, &arg);
}

/* Write-protects the page. Returns a userfaultfd that reports writers, or -1. */
static int protect_page(void *page, size_t size)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	struct uffdio_register reg = {
		.range = { .start = (uintptr_t)page, .len = size },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (uffd >= 0 && (ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &reg) ||
			  protect(uffd, page, size, true))) {
		close(uffd);
		return -1;
	}
	return uffd;
}

static void run_slowly(uint32_t *word, int wait_in_vain)
{
	struct slow_entry slow = { .fd = memwait_open(O_NONBLOCK) };
	struct memwait_completion done;
	struct uffd_msg msg;
	pthread_t thread;
	uint64_t id;
	int uffd;

	slow.entry = private_page(4096);
	slow.entry->wait = (struct memwait_wait) { .addr = (uintptr_t)word,
						   .deadline = MEMWAIT_FOREVER, .flags = U32 };
	if (mw_async(slow.fd, word, 0, MEMWAIT_FOREVER, U32, 1, &id) != MEMWAIT_PENDING)
		_exit(1);
	uffd = protect_page(slow.entry, 4096);
	if (uffd < 0)
		_exit(77);
	if (pthread_create(&thread, NULL, arm_slowly, &slow) ||
	    read(uffd, &msg, sizeof(msg)) != sizeof(msg))
		_exit(2);
	if (mw_cancel(slow.fd, id) || mw_fdinfo(slow.fd, "pending") ||
	    mw_fdinfo(slow.fd, "pins"))
		_exit(3);
	protect(uffd, slow.entry, 4096, false);
	while (!__atomic_load_n(&slow.done, __ATOMIC_ACQUIRE) && wait_in_vain--)
		usleep(1000);
	if (!slow.done)
		_exit(4);
	if (slow.result != 1 || slow.entry->result != MEMWAIT_PENDING ||
	    mw_fdinfo(slow.fd, "pins") != 1)
		_exit(5);
	if (mw_notify(slow.fd, word, MEMWAIT_ALL, U32) != 1 || mw_read(slow.fd, &done, 1) != 1)
		_exit(6);
	_exit(mw_fdinfo(slow.fd, "pins") ? 7 : 0);
}

/*
 * The wait that created the pin ends while another wait, which creates its own pin, is being armed.
 */
MEMWAIT_TEST(R31_a_pin_ends_while_another_wait_is_being_armed)
{
	pid_t pid = fork_child();
	int ret;

	if (!pid)
		run_slowly(self->shared, 20000);
	ret = child_status(pid);
	if (ret == 77)
		SKIP(return, "no userfaultfd with write protection");
	EXPECT_EQ(0, ret);
}

/*
 * A group whose last word is the result field of its own entry. Therefore the word differs once the
 * result is written.
 */
struct refused_group {
	pthread_t thread;
	int fd, stop, rounds, wrong;
	uint32_t *word;
};

static void *arm_in_vain(void *arg)
{
	struct refused_group *group = arg;
	struct memwait_wait waits[MEMWAIT_GROUP_MAX];
	struct memwait_async entry;
	int i;

	for (i = 0; i < MEMWAIT_GROUP_MAX; i++)
		waits[i] = (struct memwait_wait) { .addr = (uintptr_t)group->word, .flags = U32 };
	waits[i - 1].addr = (uintptr_t)&entry.result;
	while (!__atomic_load_n(&group->stop, __ATOMIC_ACQUIRE)) {
		entry = (struct memwait_async) {
			.any = { .waits = (uintptr_t)waits, .count = MEMWAIT_GROUP_MAX,
				 .deadline = MEMWAIT_FOREVER, .flags = MEMWAIT_GROUP },
		};
		group->wrong += mw_batch(group->fd, &entry, 1) != 1 ||
				entry.result != MEMWAIT_NOT_EQUAL ||
				entry.any.index != MEMWAIT_GROUP_MAX - 1;
		__atomic_add_fetch(&group->rounds, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

MEMWAIT_TEST(R31_a_refused_group_leaves_nothing)
{
	struct refused_group group = { .fd = self->fd, .word = self->shared };
	uint64_t before = mw_user_waits(self->fd);

	ASSERT_EQ(0, pthread_create(&group.thread, NULL, arm_in_vain, &group));
	while (__atomic_load_n(&group.rounds, __ATOMIC_ACQUIRE) < ROUNDS)
		sched_yield();
	__atomic_store_n(&group.stop, 1, __ATOMIC_RELEASE);
	pthread_join(group.thread, NULL);
	EXPECT_EQ(before, mw_await_user_waits(self->fd, before));
	EXPECT_EQ(0, group.wrong);
	EXPECT_EQ(0, mw_fdinfo(self->fd, "pins"));
}

/*
 * INFO and fdinfo show the counts and limits of the user that opened the context, whichever user
 * calls, because these limits apply to calls through the context.
 */
MEMWAIT_TEST(R31_info_reports_the_user_that_opened_the_context)
{
	struct memwait_info mine, theirs;
	uint64_t ids[3];
	pid_t pid;
	int i;

	if (geteuid())
		SKIP(return, "needs root to become another user");
	for (i = 0; i < 3; i++)
		ASSERT_EQ(MEMWAIT_PENDING, mw_async(self->fd, self->shared + i, 0, MEMWAIT_FOREVER,
						    U32, i, &ids[i]));
	ASSERT_EQ(0, mw_info(self->fd, &mine));
	EXPECT_LE(self->user_waits + 3, mine.user_waits);
	pid = fork_child();
	if (!pid) {
		int fd;

		if (setgid(OTHER_USER) || setuid(OTHER_USER) || prctl(PR_SET_DUMPABLE, 1))
			_exit(99);
		fd = memwait_open(O_NONBLOCK);
		if (mw_info(fd, &theirs) || theirs.user_waits || theirs.user_owners ||
		    theirs.user_contexts != 1)
			_exit(1);
		if (mw_info(self->fd, &theirs) || memcmp(&mine, &theirs, sizeof(mine)))
			_exit(2);
		if (mw_fdinfo(self->fd, "pending") != 3 || mw_fdinfo(self->fd, "pins") != 1)
			_exit(3);
		if (mw_fdinfo(fd, "pending") || mw_fdinfo(fd, "pins"))
			_exit(4);
		/*
		 * If another user arms a wait in the context, it is charged to the user that opened
		 * the context.
		 */
		if (mw_arm(self->fd, self->shared, 3) != MEMWAIT_PENDING)
			_exit(5);
		if (mw_user_waits(fd) || mw_user_waits(self->fd) != mine.user_waits + 1)
			_exit(6);
		_exit(0);
	}
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(mine.user_waits + 1, mw_user_waits(self->fd));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, mw_cancel(self->fd, ids[i]));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
}

TEST_HARNESS_MAIN
