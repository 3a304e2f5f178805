// SPDX-License-Identifier: GPL-2.0
/* <memwait/pthread.h>: a program written for pthreads has the behaviour that POSIX requires. */
#include "userlib_test.h"
#include "refuse_test.h"

#include <semaphore.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* The C library's functions, which a file that does not include the header uses. */
static int (*const other_setprotocol)(pthread_mutexattr_t *, int) = pthread_mutexattr_setprotocol;
static sem_t *(*const other_sem_open)(const char *, int, ...) = sem_open;
static int (*const other_sem_close)(sem_t *) = sem_close;
static int (*const other_sem_unlink)(const char *) = sem_unlink;

#include <memwait/pthread.h>

/* Initialisers of static variables, here as part of a larger initialiser. */
static struct {
	pthread_mutex_t mutex, recursive, errorcheck, adaptive;
	pthread_cond_t cond;
	pthread_rwlock_t rwlock, prefer_writer;
} set_up = {
	PTHREAD_MUTEX_INITIALIZER,
	PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
	PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
	PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
	PTHREAD_COND_INITIALIZER,
	PTHREAD_RWLOCK_INITIALIZER,
	PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP,
};

static int mutex_init(pthread_mutex_t *mutex, int type, int pshared, int robust)
{
	pthread_mutexattr_t attr;
	int err;

	pthread_mutexattr_init(&attr);
	err = pthread_mutexattr_settype(&attr, type) ?:
	      pthread_mutexattr_setpshared(&attr, pshared) ?:
	      pthread_mutexattr_setrobust(&attr, robust) ?:
	      pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_NONE) ?:
	      pthread_mutex_init(mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	return err;
}

static int rwlock_init(pthread_rwlock_t *rwlock, int kind, int pshared)
{
	pthread_rwlockattr_t attr;
	int err;

	pthread_rwlockattr_init(&attr);
	err = pthread_rwlockattr_setkind_np(&attr, kind) ?:
	      pthread_rwlockattr_setpshared(&attr, pshared) ?:
	      pthread_rwlock_init(rwlock, &attr);
	pthread_rwlockattr_destroy(&attr);
	return err;
}

static int cond_init(pthread_cond_t *cond, clockid_t clock, int pshared)
{
	pthread_condattr_t attr;
	int err;

	pthread_condattr_init(&attr);
	err = pthread_condattr_setclock(&attr, clock) ?:
	      pthread_condattr_setpshared(&attr, pshared) ?: pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	return err;
}

#define EXPECT_SAME(a, b)	EXPECT_EQ(0, memcmp((a), (b), sizeof(*(a))))

USERLIB_TEST(static_initialisers_match_init)
{
	pthread_mutex_t mutex;
	pthread_rwlock_t rwlock;
	pthread_cond_t cond;
	const pthread_cond_t monotonic =
		MEMWAIT_COND_INIT_FLAGS(MEMWAIT_PRIVATE | MEMWAIT_COND_MONOTONIC);
	const memwait_sem_t shared_sem = MEMWAIT_SEM_INIT(3);
	const memwait_sem_t private_sem = MEMWAIT_SEM_INIT_FLAGS(MEMWAIT_PRIVATE, 3);
	sem_t sem;

	ASSERT_EQ(0, pthread_mutex_init(&mutex, NULL));
	EXPECT_SAME(&mutex, &set_up.mutex);
	EXPECT_SAME(&mutex, &set_up.adaptive);
	ASSERT_EQ(0, mutex_init(&mutex, PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_PROCESS_PRIVATE, 0));
	EXPECT_SAME(&mutex, &set_up.mutex);
	ASSERT_EQ(0, mutex_init(&mutex, PTHREAD_MUTEX_RECURSIVE, PTHREAD_PROCESS_PRIVATE, 0));
	EXPECT_SAME(&mutex, &set_up.recursive);
	ASSERT_EQ(0, mutex_init(&mutex, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PROCESS_PRIVATE, 0));
	EXPECT_SAME(&mutex, &set_up.errorcheck);
	ASSERT_EQ(0, pthread_cond_init(&cond, NULL));
	EXPECT_SAME(&cond, &set_up.cond);
	ASSERT_EQ(0, cond_init(&cond, CLOCK_MONOTONIC, PTHREAD_PROCESS_PRIVATE));
	EXPECT_SAME(&cond, &monotonic);
	ASSERT_EQ(0, pthread_rwlock_init(&rwlock, NULL));
	EXPECT_SAME(&rwlock, &set_up.rwlock);
	ASSERT_EQ(0, rwlock_init(&rwlock, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, 0));
	EXPECT_SAME(&rwlock, &set_up.prefer_writer);
	ASSERT_EQ(0, rwlock_init(&rwlock, PTHREAD_RWLOCK_PREFER_WRITER_NP, 0));
	EXPECT_SAME(&rwlock, &set_up.rwlock);
	ASSERT_EQ(0, sem_init(&sem, 0, 3));
	EXPECT_SAME(&sem, &private_sem);
	ASSERT_EQ(0, sem_init(&sem, 1, 3));
	EXPECT_SAME(&sem, &shared_sem);
}

USERLIB_TEST(mutexes_have_their_types)
{
	const struct timespec past = { 0 }, later = in_time(CLOCK_MONOTONIC, 20);
	pthread_mutex_t *mutex = &set_up.errorcheck;

	EXPECT_EQ(0, pthread_mutex_lock(mutex));
	EXPECT_EQ(EDEADLK, pthread_mutex_lock(mutex));
	EXPECT_EQ(EBUSY, pthread_mutex_trylock(mutex));
	EXPECT_EQ(EPERM, elsewhere(pthread_mutex_unlock, mutex));
	EXPECT_EQ(EBUSY, pthread_mutex_destroy(mutex));
	EXPECT_EQ(0, pthread_mutex_unlock(mutex));
	EXPECT_EQ(EPERM, pthread_mutex_unlock(mutex));
	EXPECT_EQ(0, pthread_mutex_destroy(mutex));

	mutex = &set_up.recursive;
	EXPECT_EQ(0, pthread_mutex_lock(mutex));
	EXPECT_EQ(0, pthread_mutex_trylock(mutex));
	EXPECT_EQ(0, pthread_mutex_unlock(mutex));
	EXPECT_EQ(EBUSY, elsewhere(pthread_mutex_trylock, mutex));
	EXPECT_EQ(0, pthread_mutex_unlock(mutex));

	mutex = &set_up.mutex;
	EXPECT_EQ(0, pthread_mutex_timedlock(mutex, &past));
	EXPECT_EQ(ETIMEDOUT, pthread_mutex_timedlock(mutex, &past));
	EXPECT_EQ(ETIMEDOUT, pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &later));
	EXPECT_LE(later.tv_sec * 1000000000ULL + later.tv_nsec, now_ns(CLOCK_MONOTONIC));
	EXPECT_EQ(EINVAL, pthread_mutex_consistent(mutex));
	EXPECT_EQ(0, pthread_mutex_unlock(mutex));
}

USERLIB_TEST(L6_a_robust_mutex_reports_its_dead_owner)
{
	pthread_mutex_t *mutex = self->shared;
	int err;

	ASSERT_EQ(0, mutex_init(mutex, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PROCESS_SHARED,
				PTHREAD_MUTEX_ROBUST));
	EXPECT_EQ(0, elsewhere(pthread_mutex_lock, mutex));
	EXPECT_EQ(EOWNERDEAD, pthread_mutex_lock(mutex));
	EXPECT_EQ(0, pthread_mutex_consistent(mutex));
	EXPECT_EQ(EDEADLK, pthread_mutex_lock(mutex));
	EXPECT_EQ(0, pthread_mutex_unlock(mutex));
	EXPECT_EQ(0, elsewhere(pthread_mutex_lock, mutex));
	/* A thread that has been joined may exist for a moment longer. */
	do {
		err = pthread_mutex_trylock(mutex);
	} while (err == EBUSY);
	EXPECT_EQ(EOWNERDEAD, err);
	EXPECT_EQ(0, pthread_mutex_unlock(mutex));
	EXPECT_EQ(ENOTRECOVERABLE, pthread_mutex_lock(mutex));
	EXPECT_EQ(0, pthread_mutex_destroy(mutex));
}

/* Whether one of the object's words has the flag MEMWAIT_PRIVATE. */
static bool is_private(const void *object, size_t size)
{
	const uint32_t *words = object;
	size_t i;

	for (i = 0; i < size / 4; i++)
		if (words[i] & MEMWAIT_PRIVATE)
			return true;
	return false;
}

#define IS_PRIVATE(object)	is_private((object), sizeof(*(object)))

USERLIB_TEST(objects_are_private_unless_they_are_shared)
{
	pthread_barrierattr_t attr;
	pthread_barrier_t barrier;
	pthread_rwlock_t rwlock;
	pthread_mutex_t mutex;
	pthread_cond_t cond;

	ASSERT_EQ(0, mutex_init(&mutex, 0, PTHREAD_PROCESS_SHARED, 0));
	EXPECT_FALSE(IS_PRIVATE(&mutex));
	ASSERT_EQ(0, mutex_init(&mutex, 0, PTHREAD_PROCESS_PRIVATE, PTHREAD_MUTEX_ROBUST));
	EXPECT_TRUE(IS_PRIVATE(&mutex));
	ASSERT_EQ(0, cond_init(&cond, CLOCK_MONOTONIC, PTHREAD_PROCESS_SHARED));
	EXPECT_FALSE(IS_PRIVATE(&cond));
	ASSERT_EQ(0, cond_init(&cond, CLOCK_REALTIME, PTHREAD_PROCESS_PRIVATE));
	EXPECT_TRUE(IS_PRIVATE(&cond));
	ASSERT_EQ(0, rwlock_init(&rwlock, 0, PTHREAD_PROCESS_SHARED));
	EXPECT_FALSE(IS_PRIVATE(&rwlock));
	ASSERT_EQ(0, rwlock_init(&rwlock, 0, PTHREAD_PROCESS_PRIVATE));
	EXPECT_TRUE(IS_PRIVATE(&rwlock));
	ASSERT_EQ(0, pthread_barrier_init(&barrier, NULL, 1));
	EXPECT_TRUE(IS_PRIVATE(&barrier));
	pthread_barrierattr_init(&attr);
	ASSERT_EQ(0, pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
	ASSERT_EQ(0, pthread_barrier_init(&barrier, &attr, 1));
	EXPECT_FALSE(IS_PRIVATE(&barrier));
}

USERLIB_TEST(priority_protocols_are_not_supported)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t mutex;
	int n = 0;

	ASSERT_EQ(0, pthread_mutexattr_init(&attr));
	EXPECT_EQ(ENOTSUP, pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
	EXPECT_EQ(ENOTSUP, pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_PROTECT));
	EXPECT_EQ(EINVAL, pthread_mutexattr_setprotocol(&attr, 99));
	EXPECT_EQ(0, pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_NONE));
	EXPECT_EQ(0, pthread_mutex_init(&mutex, &attr));
	EXPECT_EQ(EINVAL, pthread_mutex_getprioceiling(&mutex, &n));
	EXPECT_EQ(EINVAL, pthread_mutex_setprioceiling(&mutex, 1, &n));

	ASSERT_EQ(0, other_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
	EXPECT_EQ(ENOTSUP, pthread_mutex_init(&mutex, &attr));
	ASSERT_EQ(0, other_setprotocol(&attr, PTHREAD_PRIO_PROTECT));
	EXPECT_EQ(ENOTSUP, pthread_mutex_init(&mutex, &attr));
}

static uint64_t ns_of(const struct timespec *ts)
{
	return (uint64_t)ts->tv_sec * 1000000000 + (uint64_t)ts->tv_nsec;
}

USERLIB_TEST(R4_timedwait_has_the_clock_of_its_condition_variable)
{
	static const int pshared[] = { PTHREAD_PROCESS_PRIVATE, PTHREAD_PROCESS_SHARED };
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	struct timespec soon, hour;
	pthread_cond_t cond;
	size_t i;

	ASSERT_EQ(0, pthread_mutex_lock(&mutex));
	for (i = 0; i < ARRAY_SIZE(pshared); i++) {
		ASSERT_EQ(0, cond_init(&cond, CLOCK_MONOTONIC, pshared[i]));
		soon = in_time(CLOCK_MONOTONIC, 50);
		EXPECT_EQ(ETIMEDOUT, pthread_cond_timedwait(&cond, &mutex, &soon));
		EXPECT_LE(ns_of(&soon), now_ns(CLOCK_MONOTONIC));
		soon = in_time(CLOCK_REALTIME, 50);
		EXPECT_EQ(ETIMEDOUT, pthread_cond_clockwait(&cond, &mutex, CLOCK_REALTIME, &soon));
		EXPECT_LE(ns_of(&soon), now_ns(CLOCK_REALTIME));
		EXPECT_EQ(0, pthread_cond_destroy(&cond));

		/*
		 * The deadline, which is in the future on one clock, is in the past on the other
		 * clock.
		 */
		ASSERT_EQ(0, cond_init(&cond, CLOCK_REALTIME, pshared[i]));
		soon = in_time(CLOCK_REALTIME, 50);
		EXPECT_EQ(ETIMEDOUT, pthread_cond_timedwait(&cond, &mutex, &soon));
		EXPECT_LE(ns_of(&soon), now_ns(CLOCK_REALTIME));
		hour = in_time(CLOCK_MONOTONIC, 3600 * 1000);
		EXPECT_EQ(ETIMEDOUT, pthread_cond_timedwait(&cond, &mutex, &hour));
		EXPECT_GT(ns_of(&hour), now_ns(CLOCK_MONOTONIC));
		EXPECT_EQ(0, pthread_cond_destroy(&cond));
	}
	EXPECT_EQ(0, pthread_mutex_unlock(&mutex));
	EXPECT_EQ(EINVAL, memwait_cond_init(&cond, MEMWAIT_COND_MONOTONIC << 1));
}

struct meeting {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	pthread_rwlock_t rwlock;
	pthread_barrier_t barrier;
	sem_t sem;
	int waiting, said;
};

static int wait_until_said(void *arg)
{
	struct meeting *meeting = arg;
	int err = pthread_mutex_lock(&meeting->mutex);

	meeting->waiting++;
	while (!err && !meeting->said)
		err = pthread_cond_wait(&meeting->cond, &meeting->mutex);
	return pthread_mutex_unlock(&meeting->mutex) ?: err;
}

static int write_locked(void *arg)
{
	struct meeting *meeting = arg;

	return pthread_rwlock_wrlock(&meeting->rwlock) ?: pthread_rwlock_unlock(&meeting->rwlock);
}

static int meet(void *arg)
{
	return pthread_barrier_wait(&((struct meeting *)arg)->barrier);
}

static int sem_wait_error(void *arg)
{
	return sem_wait(&((struct meeting *)arg)->sem) ? errno : 0;
}

static int lock_and_unlock_meeting(void *arg)
{
	struct meeting *meeting = arg;

	return pthread_mutex_lock(&meeting->mutex) ?: pthread_mutex_unlock(&meeting->mutex);
}

static long signals;

static void count_signal(int signal)
{
	add_one(&signals);
}

/* Returns when the thread's handler has run and the thread sleeps again or is done. */
static void interrupt(struct runner *runner)
{
	long before = counted(&signals);

	runner_await_asleep(runner);
	pthread_kill(runner->thread, SIGUSR1);
	spin_until(counted(&signals) != before);
	runner_await_asleep(runner);
}

static int handle(int flags)
{
	struct sigaction action = { .sa_handler = count_signal, .sa_flags = flags };

	return sigaction(SIGUSR1, &action, NULL);
}

USERLIB_TEST(R6_only_semaphores_are_interrupted)
{
	struct meeting meeting = {
		.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER,
		.rwlock = PTHREAD_RWLOCK_INITIALIZER,
	};
	struct timespec later = in_time(CLOCK_REALTIME, 3600 * 1000);
	struct runner runner;

	ASSERT_EQ(0, handle(0));
	ASSERT_EQ(0, pthread_barrier_init(&meeting.barrier, NULL, 2));
	ASSERT_EQ(0, sem_init(&meeting.sem, 0, 0));

	runner_start(&runner, sem_wait_error, (void *)&meeting);
	interrupt(&runner);
	EXPECT_EQ(EINTR, runner_join(&runner));
	ASSERT_EQ(0, handle(SA_RESTART));
	runner_start(&runner, sem_wait_error, (void *)&meeting);
	interrupt(&runner);
	EXPECT_FALSE(runner_is_done(&runner));
	ASSERT_EQ(0, sem_post(&meeting.sem));
	EXPECT_EQ(0, runner_join(&runner));

	ASSERT_EQ(0, handle(0));
	ASSERT_EQ(0, pthread_mutex_lock(&meeting.mutex));
	runner_start(&runner, lock_and_unlock_meeting, (void *)&meeting);
	interrupt(&runner);
	EXPECT_FALSE(runner_is_done(&runner));
	ASSERT_EQ(0, pthread_mutex_unlock(&meeting.mutex));
	EXPECT_EQ(0, runner_join(&runner));

	runner_start(&runner, wait_until_said, (void *)&meeting);
	interrupt(&runner);
	EXPECT_FALSE(runner_is_done(&runner));
	ASSERT_EQ(0, pthread_mutex_lock(&meeting.mutex));
	meeting.said = 1;
	ASSERT_EQ(0, pthread_cond_broadcast(&meeting.cond));
	ASSERT_EQ(0, pthread_mutex_unlock(&meeting.mutex));
	EXPECT_EQ(0, runner_join(&runner));

	ASSERT_EQ(0, pthread_rwlock_timedrdlock(&meeting.rwlock, &later));
	runner_start(&runner, write_locked, (void *)&meeting);
	interrupt(&runner);
	EXPECT_FALSE(runner_is_done(&runner));
	ASSERT_EQ(0, pthread_rwlock_unlock(&meeting.rwlock));
	EXPECT_EQ(0, runner_join(&runner));

	runner_start(&runner, meet, (void *)&meeting);
	interrupt(&runner);
	EXPECT_FALSE(runner_is_done(&runner));
	EXPECT_EQ(PTHREAD_BARRIER_SERIAL_THREAD, pthread_barrier_wait(&meeting.barrier));
	EXPECT_EQ(0, runner_join(&runner));
	EXPECT_EQ(0, pthread_barrier_destroy(&meeting.barrier));
	EXPECT_EQ(EINVAL, pthread_barrier_init(&meeting.barrier, NULL, 0));
}

USERLIB_TEST(read_write_locks)
{
	const struct timespec past = { 0 };
	struct meeting meeting;
	struct runner runner;
	pthread_rwlock_t *rwlock = &meeting.rwlock;

	ASSERT_EQ(0, rwlock_init(rwlock, PTHREAD_RWLOCK_PREFER_READER_NP, 0));
	EXPECT_EQ(0, pthread_rwlock_rdlock(rwlock));
	runner_start(&runner, write_locked, (void *)&meeting);
	runner_await_asleep(&runner);
	EXPECT_EQ(0, pthread_rwlock_tryrdlock(rwlock));
	EXPECT_EQ(0, pthread_rwlock_unlock(rwlock));
	EXPECT_EQ(0, pthread_rwlock_unlock(rwlock));
	EXPECT_EQ(0, runner_join(&runner));

	ASSERT_EQ(0, rwlock_init(rwlock, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, 0));
	EXPECT_EQ(0, pthread_rwlock_clockrdlock(rwlock, CLOCK_MONOTONIC, &past));
	runner_start(&runner, write_locked, (void *)&meeting);
	runner_await_asleep(&runner);
	EXPECT_EQ(EBUSY, pthread_rwlock_tryrdlock(rwlock));
	EXPECT_EQ(0, pthread_rwlock_unlock(rwlock));
	EXPECT_EQ(0, runner_join(&runner));

	EXPECT_EQ(0, pthread_rwlock_wrlock(rwlock));
	EXPECT_EQ(EBUSY, pthread_rwlock_trywrlock(rwlock));
	EXPECT_EQ(ETIMEDOUT, pthread_rwlock_timedrdlock(rwlock, &past));
	EXPECT_EQ(ETIMEDOUT, pthread_rwlock_timedwrlock(rwlock, &past));
	EXPECT_EQ(ETIMEDOUT, pthread_rwlock_clockrdlock(rwlock, CLOCK_MONOTONIC, &past));
	EXPECT_EQ(ETIMEDOUT, pthread_rwlock_clockwrlock(rwlock, CLOCK_MONOTONIC, &past));
	EXPECT_EQ(EBUSY, pthread_rwlock_destroy(rwlock));
	EXPECT_EQ(0, pthread_rwlock_unlock(rwlock));
	EXPECT_EQ(0, pthread_rwlock_destroy(rwlock));
}

/* The call returns -1 and sets errno. */
#define EXPECT_ERRNO(error, call)						\
({										\
	errno = 0;								\
	EXPECT_EQ(-1, call);							\
	EXPECT_EQ(error, errno);						\
})

USERLIB_TEST(semaphores_set_errno)
{
	const struct timespec past = { 0 }, bad = { .tv_nsec = 1000000000 };
	int value = -1;
	sem_t sem;

	EXPECT_ERRNO(EINVAL, sem_init(&sem, 0, SEM_VALUE_MAX + 1U));
	ASSERT_EQ(0, sem_init(&sem, 0, SEM_VALUE_MAX));
	EXPECT_ERRNO(EOVERFLOW, sem_post(&sem));
	ASSERT_EQ(0, sem_init(&sem, 0, 1));
	EXPECT_EQ(0, sem_wait(&sem));
	EXPECT_ERRNO(EAGAIN, sem_trywait(&sem));
	EXPECT_ERRNO(ETIMEDOUT, sem_timedwait(&sem, &past));
	EXPECT_ERRNO(ETIMEDOUT, sem_clockwait(&sem, CLOCK_MONOTONIC, &past));
	EXPECT_ERRNO(EINVAL, sem_timedwait(&sem, &bad));
	EXPECT_ERRNO(EINVAL, sem_clockwait(&sem, CLOCK_THREAD_CPUTIME_ID, &past));
	errno = 99;
	EXPECT_EQ(0, sem_post(&sem));
	EXPECT_EQ(0, sem_getvalue(&sem, &value));
	EXPECT_EQ(1, value);
	EXPECT_EQ(0, sem_trywait(&sem));
	EXPECT_EQ(0, sem_destroy(&sem));
	EXPECT_EQ(99, errno);
}

static char name[32];

static sem_t *open_new(int flags, mode_t mode, unsigned int value)
{
	snprintf(name, sizeof(name), "/test-%d", (int)getpid());
	return sem_open(name, O_CREAT | flags, mode, value);
}

static int value_of(sem_t *sem)
{
	int value = -1;

	sem_getvalue(sem, &value);
	return value;
}

USERLIB_TEST(named_semaphores_are_shared_by_name)
{
	char path[64];
	struct stat st;
	sem_t *sem;
	pid_t pid;

	umask(027);
	sem = open_new(O_EXCL, 0666, 1);
	ASSERT_NE(SEM_FAILED, sem);
	snprintf(path, sizeof(path), "/dev/shm/memwait-sem.%s", name + 1);
	ASSERT_EQ(0, stat(path, &st));
	EXPECT_EQ(0640, st.st_mode & 0777);
	EXPECT_EQ(SEM_FAILED, open_new(O_EXCL, 0666, 1));
	EXPECT_EQ(EEXIST, errno);
	/* The second open returns the same address, and the value is unchanged. */
	EXPECT_EQ(sem, open_new(0, 0666, 7));
	EXPECT_EQ(sem, sem_open(name, 0));
	EXPECT_EQ(sem, sem_open(name + 1, 0));
	EXPECT_EQ(1, value_of(sem));

	pid = fork_child();
	if (!pid) {
		for (int i = 0; i < 4; i++)
			if (sem_close(sem))
				_exit(1);
		sem = sem_open(name, 0);
		_exit(sem == SEM_FAILED || sem_wait(sem) || sem_wait(sem) || sem_post(sem));
	}
	await_waiters(self->fd, sem, 0, 1);
	EXPECT_EQ(0, sem_post(sem));
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(1, value_of(sem));

	/*
	 * The semaphore exists as long as it is open. A new semaphore of the same name is a
	 * different semaphore.
	 */
	EXPECT_EQ(0, sem_unlink(name));
	EXPECT_ERRNO(ENOENT, sem_unlink(name));
	EXPECT_EQ(SEM_FAILED, sem_open(name, 0));
	EXPECT_EQ(ENOENT, errno);
	EXPECT_NE(sem, open_new(0, 0600, 5));
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(0, sem_close(sem));
	EXPECT_ERRNO(EINVAL, sem_close(sem));
	sem = sem_open(name, 0);
	ASSERT_NE(SEM_FAILED, sem);
	EXPECT_EQ(5, value_of(sem));
	EXPECT_EQ(0, sem_unlink(name));
}

USERLIB_TEST(named_semaphores_are_refused)
{
	const char zeros[24] = { 0 };
	char path[64], *text;
	pid_t pid;
	FILE *f;

	EXPECT_EQ(SEM_FAILED, open_new(0, 0600, SEM_VALUE_MAX + 1U));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(SEM_FAILED, sem_open("/a/b", O_CREAT, 0600, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(SEM_FAILED, sem_open("/", O_CREAT, 0600, 0));
	EXPECT_EQ(EINVAL, errno);
	text = calloc(1, 4096);
	ASSERT_NE(NULL, text);
	memset(text, 'x', 4095);
	EXPECT_EQ(SEM_FAILED, sem_open(text, O_CREAT, 0600, 0));
	EXPECT_EQ(ENAMETOOLONG, errno);
	EXPECT_ERRNO(ENAMETOOLONG, sem_unlink(text));
	text[255 - strlen("memwait-sem.")] = 0;
	EXPECT_NE(SEM_FAILED, sem_open(text, O_CREAT, 0600, 0));
	EXPECT_EQ(0, sem_unlink(text));
	free(text);

	/* The file of that name does not contain a semaphore. */
	snprintf(path, sizeof(path), "/dev/shm/memwait-sem.%s", name + 1);
	f = fopen(path, "w");
	ASSERT_NE(NULL, f);
	ASSERT_EQ(1, fwrite(zeros, 24, 1, f));
	ASSERT_EQ(0, fflush(f));
	EXPECT_EQ(SEM_FAILED, sem_open(name, 0));
	EXPECT_EQ(EINVAL, errno);
	ASSERT_EQ(0, ftruncate(fileno(f), 8));
	EXPECT_EQ(SEM_FAILED, sem_open(name, O_CREAT, 0600, 0));
	EXPECT_EQ(EINVAL, errno);
	fclose(f);
	EXPECT_EQ(0, sem_unlink(name));
	ASSERT_EQ(0, symlink("/dev/null", path));
	EXPECT_EQ(SEM_FAILED, sem_open(name, 0));
	EXPECT_EQ(ELOOP, errno);
	EXPECT_EQ(0, sem_unlink(name));

	/* The semaphore belongs to another user. */
	EXPECT_NE(SEM_FAILED, open_new(O_EXCL, 0600, 1));
	pid = fork_child();
	if (!pid) {
		if (setuid(1))
			_exit(1);
		if (sem_open(name, 0) != SEM_FAILED || errno != EACCES)
			_exit(2);
		_exit(sem_unlink(name) != -1 || errno != EACCES);
	}
	EXPECT_EQ(0, child_status(pid));
	EXPECT_EQ(0, sem_unlink(name));
}

USERLIB_TEST(named_semaphores_are_not_the_c_librarys)
{
	sem_t *sem = open_new(O_EXCL, 0600, 1);
	void *other;

	ASSERT_NE(SEM_FAILED, sem);
	other = other_sem_open(name, O_CREAT | O_EXCL, 0600, 2);
	ASSERT_NE(NULL, other);
	EXPECT_EQ(0, sem_unlink(name));
	EXPECT_EQ(0, other_sem_close(other));
	EXPECT_EQ(0, other_sem_unlink(name));
}

/*
 * If several processes open the semaphore at the same time, it is created once and initialised
 * completely.
 */
USERLIB_TEST(named_semaphores_are_created_once)
{
	sem_t *sem;
	int i, n;

	for (n = 0; n < 20; n++) {
		pid_t pids[4];

		snprintf(name, sizeof(name), "/once-%d-%d", (int)getpid(), n);
		for (i = 0; i < 4; i++) {
			pids[i] = fork_child();
			if (pids[i])
				continue;
			sem = sem_open(name, O_CREAT, 0600, 3);
			_exit(sem == SEM_FAILED || sem_wait(sem) || sem_post(sem) || sem_post(sem));
		}
		for (i = 0; i < 4; i++)
			EXPECT_EQ(0, child_status(pids[i]));
		sem = sem_open(name, 0);
		ASSERT_NE(SEM_FAILED, sem);
		EXPECT_EQ(7, value_of(sem));
		EXPECT_EQ(0, sem_close(sem));
		EXPECT_EQ(0, sem_unlink(name));
	}
}

/* L0: behaviour without the device. */

static pthread_barrier_t barrier;
static sem_t some_sem = MEMWAIT_SEM_INIT_FLAGS(MEMWAIT_PRIVATE, 1);
static const struct timespec long_ago;

static void mutex_lock(void) { pthread_mutex_lock(&set_up.mutex); }
static void errorcheck_lock(void) { pthread_mutex_lock(&set_up.errorcheck); }
static void mutex_trylock(void) { pthread_mutex_trylock(&set_up.mutex); }
static void mutex_timedlock(void) { pthread_mutex_timedlock(&set_up.mutex, &long_ago); }
static void mutex_clocklock(void) { pthread_mutex_clocklock(&set_up.mutex, 0, &long_ago); }
static void rdlock(void) { pthread_rwlock_rdlock(&set_up.rwlock); }
static void tryrdlock(void) { pthread_rwlock_tryrdlock(&set_up.rwlock); }
static void timedrdlock(void) { pthread_rwlock_timedrdlock(&set_up.rwlock, &long_ago); }
static void clockrdlock(void) { pthread_rwlock_clockrdlock(&set_up.rwlock, 0, &long_ago); }
static void wrlock(void) { pthread_rwlock_wrlock(&set_up.rwlock); }
static void trywrlock(void) { pthread_rwlock_trywrlock(&set_up.rwlock); }
static void timedwrlock(void) { pthread_rwlock_timedwrlock(&set_up.rwlock, &long_ago); }
static void clockwrlock(void) { pthread_rwlock_clockwrlock(&set_up.rwlock, 0, &long_ago); }
static void barrier_wait(void) { pthread_barrier_wait(&barrier); }
static void cond_wait(void) { pthread_cond_wait(&set_up.cond, &set_up.mutex); }
static void sem_wait_only(void) { sem_wait(&some_sem); }
static void sem_trywait_only(void) { sem_trywait(&some_sem); }
static void sem_timedwait_only(void) { sem_timedwait(&some_sem, &long_ago); }
static void sem_clockwait_only(void) { sem_clockwait(&some_sem, 0, &long_ago); }

static void (*const getting_past[])(void) = {
	mutex_lock, errorcheck_lock, mutex_trylock, mutex_timedlock, mutex_clocklock, rdlock,
	tryrdlock, timedrdlock, clockrdlock, wrlock, trywrlock, timedwrlock, clockwrlock,
	barrier_wait, cond_wait, sem_wait_only, sem_trywait_only, sem_timedwait_only,
	sem_clockwait_only,
};

static bool is_aborted(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGABRT;
}

static int abort_silently(void)
{
	struct rlimit no_core = { 0 };
	int fd = open("/dev/null", O_WRONLY);

	return fd < 0 || dup2(fd, STDERR_FILENO) < 0 || setrlimit(RLIMIT_CORE, &no_core);
}

static void wait_for_nothing(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	const struct timespec hour = in_time(CLOCK_REALTIME, 3600 * 1000);

	pthread_cond_wait(cond, mutex);
	pthread_cond_timedwait(cond, mutex, &hour);
	pthread_cond_clockwait(cond, mutex, CLOCK_REALTIME, &hour);
}

/*
 * L0: EPERM means that the caller does not hold the mutex. An EPERM from a seccomp filter must not
 * be returned.
 */
USERLIB_TEST(L0_a_wait_that_a_sandbox_refuses_does_not_return)
{
	static const unsigned int errors[] = { EPERM, EACCES, EINVAL, EAGAIN, EBUSY, ETIMEDOUT };
	static const int types[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ERRORCHECK };
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	size_t i, type;

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		for (type = 0; type < ARRAY_SIZE(types); type++) {
			pid_t pid;

			ASSERT_EQ(0, mutex_init(&mutex, types[type], 0, 0));
			ASSERT_EQ(0, pthread_cond_init(&cond, NULL));
			pid = fork_child();
			if (!pid) {
				if (abort_silently() || pthread_mutex_lock(&mutex) ||
				    refuse_call(__NR_ioctl, errors[i]))
					_exit(1);
				wait_for_nothing(&cond, &mutex);
				_exit(0);
			}
			EXPECT_TRUE(is_aborted(pid))
				TH_LOG("error %u, type %d", errors[i], types[type]);
		}
	}
	EXPECT_EQ(EPERM, pthread_cond_wait(&cond, &mutex));
}

/* Returns 0 if each wait returned early with the mutex held. */
static int wait_without_memory(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	const struct timespec hour = in_time(CLOCK_REALTIME, 3600 * 1000);

	return pthread_mutex_lock(mutex) ?: refuse_call(__NR_ioctl, ENOMEM) ?:
	       pthread_cond_wait(cond, mutex) ?: pthread_cond_timedwait(cond, mutex, &hour) ?:
	       pthread_cond_clockwait(cond, mutex, CLOCK_REALTIME, &hour) ?:
	       pthread_mutex_unlock(mutex);
}

USERLIB_TEST(L5_a_wait_for_a_condition_without_memory_is_a_spurious_wake_up)
{
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int pshared;
	pid_t pid;

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	for (pshared = 0; pshared < 2; pshared++) {
		ASSERT_EQ(0, mutex_init(&mutex, PTHREAD_MUTEX_ERRORCHECK, pshared, 0));
		ASSERT_EQ(0, pthread_cond_init(&cond, NULL));
		pid = fork_child();
		if (!pid)
			_exit(abort_silently() || wait_without_memory(&cond, &mutex));
		EXPECT_EQ(0, child_status(pid));
	}
}

static void report(void *arg)
{
	/* The program was not aborted, because the thread was cancelled instead. */
	_exit(*(int *)arg);
}

static void *lock_when_cancelled(void *arg)
{
	int ret = 3;

	pthread_cleanup_push(report, &ret);
	pthread_cancel(pthread_self());
	pthread_mutex_lock(arg);
	pthread_cleanup_pop(0);
	return NULL;
}

/* L0, L5: a lock function is not a cancellation point, even if it fails. */
USERLIB_TEST(L0_a_cancelled_thread_aborts_too)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_t thread;
	pid_t pid;

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	ASSERT_EQ(0, pthread_mutex_lock(&mutex));
	pid = fork_child();
	if (!pid) {
		if (abort_silently() || refuse_call(__NR_ioctl, EACCES) ||
		    pthread_create(&thread, NULL, lock_when_cancelled, &mutex))
			_exit(1);
		pthread_join(thread, NULL);
		_exit(2);
	}
	EXPECT_TRUE(is_aborted(pid));
	ASSERT_EQ(0, pthread_mutex_unlock(&mutex));
}

FIXTURE(alone) {};
FIXTURE_SETUP(alone) {}
FIXTURE_TEARDOWN(alone) {}

TEST_F_TIMEOUT(alone, L0_callers_that_ignore_results_do_not_get_past_a_lock, 300)
{
	struct rlimit no_core = { 0 };
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	sem_t sem;
	int status;
	size_t i;

	ASSERT_EQ(0, unshare(CLONE_NEWNS));
	ASSERT_EQ(0, mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	ASSERT_EQ(0, mount("none", "/dev", "tmpfs", 0, NULL));
	ASSERT_EQ(0, setrlimit(RLIMIT_CORE, &no_core));

	EXPECT_EQ(ENOENT, pthread_mutex_init(&mutex, NULL));
	EXPECT_EQ(ENOENT, pthread_cond_init(&cond, NULL));
	EXPECT_EQ(ENOENT, pthread_barrier_init(&barrier, NULL, 1));
	EXPECT_ERRNO(ENOENT, sem_init(&sem, 0, 0));
	EXPECT_ERRNO(ENOENT, sem_post(&sem));
	EXPECT_EQ(EPERM, pthread_mutex_unlock(&mutex));
	for (i = 0; i < ARRAY_SIZE(getting_past); i++) {
		pid_t pid = fork_child();

		if (!pid) {
			dup2(open("/dev/null", O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
			/* The mutex is locked, as if the device had been available. */
			if (getting_past[i] == cond_wait)
				*(uint32_t *)&set_up.mutex = 0x100;
			getting_past[i]();
			_exit(0);
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
			TH_LOG("the function %zu returned", i);
	}
}

TEST_HARNESS_MAIN
