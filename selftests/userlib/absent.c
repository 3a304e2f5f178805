// SPDX-License-Identifier: GPL-2.0
/*
 * L2: functions without the device. Functions that might have to wait or wake fail immediately and
 * return the reason. L0: no caller gets past a lock that it does not hold, even if the device was
 * available before.
 */
#include "objects_test.h"
#include "refuse_test.h"

#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

/* The error that open(2) returns for /dev/memwait while the device is hidden. */
static int absent;

/* Returns an unregistered character device major number for local use, or 0. */
static unsigned int unused_major(void)
{
	FILE *f = fopen("/proc/devices", "r");
	bool used[256] = { false };
	unsigned int major;
	char line[128];

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f) && strncmp(line, "Block", 5)) {
		major = (unsigned int)strtoul(line, NULL, 10);
		if (major < 256)
			used[major] = true;
	}
	fclose(f);
	for (major = 254; major && used[major]; major--)
		;
	return major;
}

/* State of /dev/memwait: missing, a node without a driver, or another device that can be opened. */
enum what { NOTHING, UNDRIVEN, NULL_DEVICE, URANDOM };

/* Hides /dev from this process, before the library has opened the device. */
static int hide_device(enum what what)
{
	const int errors[] = { ENOENT, ENXIO, ENOTTY, ENOTTY };
	const dev_t numbers[] = { 0, makedev(unused_major(), 0), makedev(1, 3), makedev(1, 9) };

	absent = errors[what];
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/dev", "tmpfs", 0, NULL))
		return -1;
	if (what == NOTHING)
		return 0;
	return numbers[what] ? mknod("/dev/memwait", S_IFCHR | 0666, numbers[what]) : -1;
}

static int refuse(unsigned int call)
{
	absent = EPERM;
	return refuse_call(call, EPERM);
}

/* Returns the number that the next descriptor will get. */
static int next_number(void)
{
	int fd = dup(STDERR_FILENO);

	close(fd);
	return fd;
}

/* Memory for each object. */
static char __attribute__((aligned(64))) memories[ARRAY_SIZE(objects)][OBJECT_SIZE];

static void *memory_of(const struct object *object)
{
	return memories[object - objects];
}

static int result_of_destroy(const struct object *object)
{
	/* The group's count is not 0. Only the device knows about waiters for an event. */
	return object->way == &group_way ? EBUSY : object->way == &event_way ? absent : 0;
}

/* Functions that might have to wait or wake always fail, even if there is no waiter. */
static void check_object(struct __test_metadata *_metadata, const struct object *object)
{
	struct timespec later = in_time(CLOCK_MONOTONIC, 3600 * 1000);
	struct timespec later_today = in_time(CLOCK_REALTIME, 3600 * 1000);
	const struct way *way = object->way;
	void *memory = memory_of(object);

	EXPECT_EQ(absent, way->make(memory, object->kind));
	EXPECT_EQ(absent, way->wait(memory));
	EXPECT_EQ(absent, elsewhere(way->wait, memory));
	if (way->try)
		EXPECT_EQ(absent, way->try(memory));
	EXPECT_EQ(absent, way->wait_timed(memory, &later_today));
	EXPECT_EQ(absent, way->wait_until(memory, CLOCK_MONOTONIC, &later));
	/* No thread holds a lock. */
	EXPECT_EQ(way->give_back ? EPERM : absent, way->give(memory));
	if (way == &mutex_way)
		EXPECT_EQ(EINVAL, memwait_mutex_consistent(memory));
	EXPECT_EQ(result_of_destroy(object), way->destroy(memory));
}

static void check_all(struct __test_metadata *_metadata)
{
	int next = next_number();
	memwait_mutex_t zeroed = MEMWAIT_MUTEX_INIT;
	memwait_cond_t cond = MEMWAIT_COND_INIT;
	memwait_waitgroup_t group = MEMWAIT_WAITGROUP_INIT;
	memwait_event_t event = MEMWAIT_EVENT_INIT;
	const struct object *object;
	memwait_barrier_t barrier;
	memwait_loop_t *loop = NULL;
	memwait_sem_t sem;
	uint32_t word = 0;
	struct timespec later = in_time(CLOCK_MONOTONIC, 3600 * 1000);
	struct timespec later_today = in_time(CLOCK_REALTIME, 3600 * 1000);
	uint64_t wide = 0, id;
	int value, i;

	EXPECT_EQ(-absent, memwait_available());
	EXPECT_EQ(-absent, memwait_loop_new(&loop, 0));
	EXPECT_EQ(NULL, loop);
	EXPECT_EQ(-absent, memwait_wait32(&word, 0, NULL, 0));
	EXPECT_EQ(-absent, memwait_wait32(&word, 0, &later, 0));
	EXPECT_EQ(-absent, memwait_wait8(&word, 0, NULL, MEMWAIT_PRIVATE));
	EXPECT_EQ(-absent, memwait_wait16(&word, 0, NULL, 0));
	EXPECT_EQ(-absent, memwait_wait64(&wide, 0, NULL, 0));
	EXPECT_EQ(-absent, memwait_wait64(&wide, 0, NULL, MEMWAIT_OWNED));
	EXPECT_EQ(-absent, memwait_notify(&word, 1, 0));
	EXPECT_EQ(-absent, memwait_notify(&word, MEMWAIT_ALL, MEMWAIT_PRIVATE));
	EXPECT_EQ(-absent, memwait_waiters(&word, 0));
	EXPECT_EQ(-absent, memwait_change_notify32(&word, MEMWAIT_CHANGE_ADD, 1, 1, 0, NULL));
	EXPECT_EQ(0, word);
	EXPECT_EQ(-absent, memwait_owner(&id));

	for_each_object(object, object->way != &condition_way)
		check_object(_metadata, object);

	EXPECT_EQ(absent, memwait_mutex_lock(&zeroed));
	EXPECT_EQ(EPERM, memwait_mutex_unlock(&zeroed));

	EXPECT_EQ(absent, memwait_cond_init(&cond, 0));
	EXPECT_EQ(absent, memwait_cond_signal(&cond));
	EXPECT_EQ(absent, memwait_cond_broadcast(&cond));
	EXPECT_EQ(absent, memwait_cond_notify(&cond, 1));
	EXPECT_EQ(EPERM, memwait_cond_wait(&cond, &zeroed));
	EXPECT_EQ(0, memwait_cond_destroy(&cond));

	EXPECT_EQ(absent, memwait_sem_init(&sem, 0, 1));
	EXPECT_EQ(absent, memwait_sem_wait(&sem));
	EXPECT_EQ(absent, memwait_sem_clockwait(&sem, CLOCK_MONOTONIC, &later));
	EXPECT_EQ(absent, memwait_sem_timedwait(&sem, &later_today));
	EXPECT_EQ(absent, memwait_sem_trywait(&sem));
	EXPECT_EQ(absent, memwait_sem_post(&sem));
	/* Nothing was consumed, and nothing was posted. */
	EXPECT_EQ(0, memwait_sem_getvalue(&sem, &value));
	EXPECT_EQ(1, value);
	EXPECT_EQ(0, memwait_sem_destroy(&sem));

	EXPECT_EQ(absent, memwait_barrier_init(&barrier, 0, 1));
	EXPECT_EQ(absent, memwait_barrier_wait(&barrier));
	EXPECT_EQ(absent, memwait_barrier_init(&barrier, 0, 2));
	/*
	 * A participant that cannot wait does not count as arrived, so the second participant is
	 * not the last.
	 */
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(absent, memwait_barrier_wait(&barrier));
		EXPECT_EQ(absent, memwait_barrier_timedwait(&barrier, &later_today));
	}
	EXPECT_EQ(0, memwait_barrier_destroy(&barrier));

	EXPECT_EQ(absent, memwait_waitgroup_wait(&group));
	EXPECT_EQ(absent, memwait_waitgroup_init(&group, 0, 1));
	EXPECT_EQ(absent, memwait_waitgroup_add(&group, 1));
	EXPECT_EQ(absent, memwait_waitgroup_done(&group));
	EXPECT_EQ(EBUSY, memwait_waitgroup_destroy(&group));

	EXPECT_EQ(absent, memwait_event_set(&event));
	EXPECT_EQ(0, memwait_event_is_set(&event));
	EXPECT_EQ(0, memwait_event_clear(&event));

	for (i = 0; i < 2; i++) {
		EXPECT_EQ(absent, make_empty(memories, i ? MEMWAIT_PRIVATE : 0));
		EXPECT_EQ(0, memwait_channel_length((memwait_channel_t *)memories));
		EXPECT_EQ(absent, memwait_channel_close((memwait_channel_t *)memories));
		EXPECT_EQ(0, memwait_channel_destroy((memwait_channel_t *)memories));
	}
	EXPECT_EQ(-absent, memwait_available());
	/* No descriptor is left open. */
	EXPECT_EQ(next, next_number());
}

/* The fixture exists only for the tests' time limit. */
FIXTURE(absent)
{
};

FIXTURE_SETUP(absent)
{
}

FIXTURE_TEARDOWN(absent)
{
}

TEST_F_TIMEOUT(absent, L2_without_a_node, 300)
{
	ASSERT_EQ(0, hide_device(NOTHING));
	check_all(_metadata);
}

TEST_F_TIMEOUT(absent, L2_with_a_node_without_a_driver, 300)
{
	ASSERT_EQ(0, hide_device(UNDRIVEN));
	check_all(_metadata);
}

TEST_F_TIMEOUT(absent, L10_with_a_device_without_ioctls, 300)
{
	ASSERT_EQ(0, hide_device(NULL_DEVICE));
	check_all(_metadata);
}

TEST_F_TIMEOUT(absent, L10_with_a_device_with_other_ioctls, 300)
{
	ASSERT_EQ(0, hide_device(URANDOM));
	check_all(_metadata);
}

/*
 * The node can only be read, as in a container started with --device /dev/memwait:/dev/memwait:r.
 */
TEST_F_TIMEOUT(absent, L2_a_node_that_can_only_be_read, 300)
{
	memwait_mutex_t mutex = MEMWAIT_MUTEX_INIT;
	memwait_loop_t *loop = NULL;
	struct stat device;

	ASSERT_EQ(0, stat("/dev/memwait", &device));
	ASSERT_EQ(0, hide_device(NOTHING));
	ASSERT_EQ(0, mknod("/dev/memwait", S_IFCHR | 0444, device.st_rdev));
	ASSERT_EQ(0, chmod("/dev/memwait", 0444));
	ASSERT_EQ(0, setresuid(65534, 65534, 65534));
	ASSERT_EQ(-1, access("/dev/memwait", W_OK));
	EXPECT_EQ(0, memwait_available());
	EXPECT_EQ(0, memwait_mutex_lock(&mutex));
	EXPECT_EQ(0, memwait_mutex_unlock(&mutex));
	EXPECT_EQ(0, memwait_loop_new(&loop, 0));
	EXPECT_EQ(0, memwait_loop_close(loop));
}

/* The device is opened at first need; an earlier failure does not prevent a later attempt. */
TEST_F_TIMEOUT(absent, L2_the_device_becomes_available_later, 300)
{
	struct timespec soon = in_time(CLOCK_REALTIME, 5);
	memwait_loop_t *loop = NULL;
	struct stat device;
	memwait_sem_t sem;

	ASSERT_EQ(0, stat("/dev/memwait", &device));
	ASSERT_EQ(0, hide_device(NOTHING));
	ASSERT_EQ(ENOENT, memwait_sem_init(&sem, MEMWAIT_PRIVATE, 0));
	EXPECT_EQ(ENOENT, memwait_sem_timedwait(&sem, &soon));
	EXPECT_EQ(-ENOENT, memwait_loop_new(&loop, 0));
	EXPECT_EQ(-ENOENT, memwait_available());
	ASSERT_EQ(0, mknod("/dev/memwait", S_IFCHR | 0666, device.st_rdev));
	EXPECT_EQ(0, memwait_available());
	EXPECT_EQ(ETIMEDOUT, memwait_sem_timedwait(&sem, &soon));
	EXPECT_EQ(0, memwait_loop_new(&loop, 0));
	EXPECT_EQ(0, memwait_loop_close(loop));
	EXPECT_EQ(0, memwait_sem_destroy(&sem));
}

TEST_F_TIMEOUT(absent, L0_open_is_refused, 300)
{
	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	ASSERT_EQ(0, refuse(__NR_openat));
	check_all(_metadata);
}

TEST_F_TIMEOUT(absent, L0_an_ioctl_is_refused, 300)
{
	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	ASSERT_EQ(0, refuse(__NR_ioctl));
	check_all(_metadata);
}

/*
 * Error numbers that have another meaning as the result of a lock or an operation, or that report
 * an invalid argument.
 */
static const unsigned int meaningful[] = {
	EAGAIN, EBUSY, EDEADLK, EINPROGRESS, ENOTRECOVERABLE, EOWNERDEAD, EPIPE, ETIMEDOUT,
};

/* If a thread has several filters, the last filter determines the error. */
TEST_F_TIMEOUT(absent, L0_errors_of_open_are_not_mistaken_for_results_of_locks, 300)
{
	static const unsigned int others[] = { EINTR, EINVAL };
	size_t i;

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	absent = EIO;
	for (i = 0; i < ARRAY_SIZE(meaningful); i++) {
		ASSERT_EQ(0, refuse_call(__NR_openat, meaningful[i]));
		check_all(_metadata);
	}
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		ASSERT_EQ(0, refuse_call(__NR_openat, others[i]));
		check_all(_metadata);
	}
}

static const unsigned int later_ioctls[] = {
	MEMWAIT_IOC_OWNER, MEMWAIT_IOC_CHANGE_NOTIFY,
};

/*
 * Runs in a child, because a filter is permanent. @error: the filter's error; @expected: the error
 * that the library returns.
 */
static void check_without(struct __test_metadata *_metadata, unsigned int command,
			  unsigned int error, int expected)
{
	pid_t child = fork_child();

	if (!child) {
		absent = expected;
		ASSERT_EQ(0, refuse_ioctl(command, error));
		check_all(_metadata);
		_exit(!__test_passed(_metadata));
	}
	EXPECT_EQ(0, child_status(child));
}

/*
 * A module that is older than the library, and still loaded after an upgrade of the library, is
 * refused when the device is opened.
 */
TEST_F_TIMEOUT(absent, L2_an_older_module, 300)
{
	size_t i;

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	for (i = 0; i < ARRAY_SIZE(later_ioctls); i++)
		check_without(_metadata, later_ioctls[i], ENOTTY, ENOSYS);
}

TEST_F_TIMEOUT(absent, L0_a_later_ioctl_is_refused, 300)
{
	size_t i;

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	for (i = 0; i < ARRAY_SIZE(later_ioctls); i++)
		check_without(_metadata, later_ioctls[i], EPERM, EPERM);
}

ADAPTER(trylock, void *arg, memwait_mutex_trylock(arg))

/* This includes the error that the kernel returns to a thread without an id. */
TEST_F_TIMEOUT(absent, L2_a_wait_that_is_refused_is_not_repeated, 300)
{
	memwait_mutex_t mutex = { 0 }, robust;
	memwait_cond_t cond = { 0 };

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	ASSERT_EQ(0, memwait_mutex_init(&robust, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_mutex_lock(&robust));
	ASSERT_EQ(0, memwait_mutex_lock(&mutex));
	ASSERT_EQ(0, refuse_ioctl(MEMWAIT_IOC_WAIT, EPERM));
	EXPECT_EQ(EPERM, memwait_cond_wait(&cond, &mutex));
	EXPECT_EQ(EPERM, memwait_mutex_lock(&mutex));
	EXPECT_EQ(EPERM, elsewhere(trylock, &robust));
	EXPECT_EQ(0, memwait_mutex_unlock(&robust));
	EXPECT_EQ(0, memwait_mutex_unlock(&mutex));
}

TEST_F_TIMEOUT(absent, L0_memwait_available_reports_the_reason, 300)
{
	struct rlimit limit;
	int n = next_number();

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = (rlim_t)n;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	EXPECT_EQ(-EMFILE, memwait_available());
	limit.rlim_cur = (rlim_t)n + 1;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	EXPECT_EQ(0, memwait_available());
	/* The process has opened the device, and does not close it. */
	EXPECT_EQ(0, memwait_available());
	limit.rlim_cur = (rlim_t)n + 2;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	EXPECT_EQ(n + 1, next_number());
}

/* The refused call, and its error. */
struct refused {
	unsigned int call, error;
};

/*
 * Tries to acquire the objects, which another thread holds, or which are not ready. Returns how
 * many calls succeeded although they must fail.
 */
static int try_in_a_sandbox(void *arg)
{
	struct refused *refused = arg;
	struct timespec soon = in_time(CLOCK_MONOTONIC, 1);
	const struct object *object;
	struct condition *condition;
	int in = 0;

	if (refuse_call(refused->call, refused->error))
		return -1;
	for_each_object(object, true) {
		const struct way *way = object->way;
		void *memory = memory_of(object);

		if (way != &condition_way) {
			in += way->try && !way->try(memory);
			in += !way->wait_until(memory, CLOCK_MONOTONIC, &soon);
			in += refused->call == __NR_ioctl && !way->wait(memory);
			continue;
		}
		/* If the caller can acquire the free mutex, it holds the mutex. */
		condition = memory;
		if (memwait_mutex_lock(&condition->mutex))
			continue;
		in += !memwait_cond_clockwait(&condition->cond, &condition->mutex, CLOCK_MONOTONIC,
					      &soon);
		in += memwait_mutex_trylock(&condition->mutex) != EBUSY;
		in += memwait_mutex_unlock(&condition->mutex) != 0;
	}
	return in;
}

TEST_F_TIMEOUT(absent, L0_no_lock_is_acquired_in_a_sandbox, 300)
{
	static const unsigned int calls[] = { __NR_openat, __NR_ioctl };
	const struct object *object;
	struct refused refused;
	size_t i;

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	for_each_object(object, true)
		ASSERT_EQ(0, object->way->make(memory_of(object), object->kind));
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		refused = (struct refused){ .call = calls[i], .error = EPERM };
		EXPECT_EQ(0, elsewhere(try_in_a_sandbox, &refused));
	}
	for (i = 0; i < ARRAY_SIZE(meaningful); i++) {
		refused.error = meaningful[i];
		EXPECT_EQ(0, elsewhere(try_in_a_sandbox, &refused))
			TH_LOG("error %u", meaningful[i]);
	}
	/* The holders are not affected. */
	for_each_object(object, object->way->give_back)
		EXPECT_EQ(0, object->way->give(memory_of(object)));
}

static int is_refused(void *sem)
{
	struct timespec soon = in_time(CLOCK_MONOTONIC, 1);
	int ret = refuse(__NR_ioctl);

	return ret ? ret : memwait_sem_clockwait(sem, CLOCK_MONOTONIC, &soon);
}

/*
 * Threads that may not use the device, because of a filter, do not make it unavailable to others
 * and leave no descriptor open.
 */
TEST_F_TIMEOUT(absent, L10_a_refused_thread_costs_no_descriptor, 300)
{
	memwait_sem_t sem;
	struct timespec soon;
	int i, next;

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	ASSERT_EQ(0, memwait_sem_init(&sem, MEMWAIT_PRIVATE, 0));
	next = next_number();
	for (i = 0; i < 5; i++) {
		EXPECT_EQ(EPERM, elsewhere(is_refused, &sem));
		soon = in_time(CLOCK_REALTIME, 1);
		EXPECT_EQ(ETIMEDOUT, memwait_sem_timedwait(&sem, &soon));
		EXPECT_EQ(next, next_number());
	}
	EXPECT_EQ(0, memwait_sem_destroy(&sem));
}

TEST_HARNESS_MAIN
