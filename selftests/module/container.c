// SPDX-License-Identifier: GPL-2.0
/* R8, R33: a process in a container, set up as container engines do, and a process outside. */
#include "../memwait_fixture.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* The namespaces that engines create for a container. Another test covers the user namespace. */
#define NAMESPACES	(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS | \
			 CLONE_NEWCGROUP)
#define NOBODY		65534

/* Exit statuses of the first process in the container. Other statuses are error numbers. */
#define NO_DEVICE	10
#define BROKEN		20

/* Like the default profile of container engines, forbids io_uring and new namespaces. */
static int deny(void)
{
	static const unsigned int denied[] = { SYS_io_uring_setup, SYS_io_uring_enter,
					       SYS_io_uring_register, SYS_unshare };
	struct sock_filter filter[2 * 4 + 2];
	struct sock_fprog program = { .filter = filter };
	unsigned int i;

	filter[program.len++] = (struct sock_filter)
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (i = 0; i < 4; i++) {
		filter[program.len++] = (struct sock_filter)
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied[i], 0, 1);
		filter[program.len++] = (struct sock_filter)
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	}
	filter[program.len++] = (struct sock_filter)
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Changes the root to an empty directory, which contains only the device if @device is set. */
static int enter_root(bool device)
{
	char root[] = "/tmp/container-XXXXXX", path[64];
	int fd;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || !mkdtemp(root) ||
	    mount("tmpfs", root, "tmpfs", 0, "mode=755"))
		return -1;
	snprintf(path, sizeof(path), "%s/dev", root);
	if (mkdir(path, 0755))
		return -1;
	if (device) {
		snprintf(path, sizeof(path), "%s/dev/memwait", root);
		fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
		if (fd < 0 || close(fd) || mount("/dev/memwait", path, NULL, MS_BIND, NULL))
			return -1;
	}
	return chroot(root) || chdir("/");
}

/*
 * The first process in the container. It waits for two words of the file, by a call and by poll(2),
 * and notifies the third word.
 */
static int live_inside(int memory, long page)
{
	uint32_t *words = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	struct memwait_completion done;
	struct pollfd pfd = { .events = POLLIN };
	int fd = memwait_open(0);

	if (fd == -ENOENT)
		return NO_DEVICE;
	if (fd < 0 || words == MAP_FAILED || getpid() != 1)
		return BROKEN;
	if (syscall(SYS_io_uring_setup, 1, NULL) != -1 || errno != EPERM)
		return BROKEN + 1;
	if (mw_arm(fd, &words[1], 7) != MEMWAIT_PENDING)
		return BROKEN + 2;
	if (mw_wait(fd, &words[0], 0, MEMWAIT_FOREVER, U32) != MEMWAIT_OK)
		return BROKEN + 3;
	pfd.fd = fd;
	if (poll(&pfd, 1, -1) != 1 || mw_read(fd, &done, 1) != 1 || done.user_data != 7)
		return BROKEN + 4;
	return mw_notify(fd, &words[2], 1, U32) == 1 ? 0 : BROKEN + 5;
}

/*
 * Forks the container. The exit status of the child is that of the first process in the container.
 */
static pid_t start_container(int memory, long page, bool device)
{
	pid_t pid = fork(), first;

	if (pid)
		return pid;
	if (unshare(NAMESPACES))
		_exit(BROKEN);
	first = fork_child();
	if (first)
		_exit(child_status(first));
	if (enter_root(device) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY) || deny())
		_exit(BROKEN);
	_exit(live_inside(memory, page));
}

MEMWAIT_TEST(R8_a_container_and_its_host_share_words_of_a_file)
{
	int memory = new_file(self->page);
	struct waiter w = { .fd = self->fd, .deadline = MEMWAIT_FOREVER, .flags = U32 };
	uint32_t *words;
	pid_t pid;

	if (geteuid())
		SKIP(return, "needs root for namespaces");
	if (prctl(PR_GET_SECCOMP))
		SKIP(return, "needs CONFIG_SECCOMP_FILTER");
	words = map_shared(memory, (size_t)self->page);
	w.addr = &words[2];
	waiter_start(&w);

	pid = start_container(memory, self->page, true);
	/*
	 * A child that has failed is not a waiter, and the test does not wait for such a child.
	 */
	sleep_until(mw_waiters(self->fd, words, U32) == 1 || waitpid(pid, NULL, WNOHANG));
	ASSERT_EQ(1, mw_waiters(self->fd, words, U32));
	EXPECT_EQ(1, mw_notify(self->fd, &words[0], MEMWAIT_ALL, U32));
	EXPECT_EQ(1, mw_notify(self->fd, &words[1], MEMWAIT_ALL, U32));
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	munmap(words, (size_t)self->page);
	close(memory);
}

MEMWAIT_TEST(R8_open_fails_in_a_container_without_the_device)
{
	int memory = new_file(self->page);

	if (geteuid())
		SKIP(return, "needs root for namespaces");
	if (prctl(PR_GET_SECCOMP))
		SKIP(return, "needs CONFIG_SECCOMP_FILTER");
	EXPECT_EQ(NO_DEVICE, child_status(start_container(memory, self->page, false)));
	close(memory);
}

TEST_HARNESS_MAIN
