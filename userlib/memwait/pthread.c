// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The functions to which <memwait/pthread.h> maps the pthreads names. Attribute objects are those
 * of the C library.
 *
 * Pthreads programs often do not check the result of a lock, because a pthreads mutex that is used
 * correctly never fails. Here a lock may fail: without the device, over a limit, or because of a
 * seccomp filter. If a lock or a wait fails for a reason that POSIX does not know, the function
 * therefore aborts the process: otherwise the thread would continue without the lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "own_words.h"

#define MEMWAIT_PTHREAD_NO_NAMES
#pragma GCC visibility push(default)
#include "memwait/pthread.h"
#pragma GCC visibility pop

/*
 * Appends to the message of give_up(), and returns its new end. Locking is not a cancellation
 * point, and signal handlers may call some of these functions. Therefore this code uses neither
 * stdio nor strerror(3).
 */
static char *append(char *end, const char *text)
{
	while (*text)
		*end++ = *text++;
	return end;
}

static char *append_number(char *end, unsigned int number)
{
	char digits[11], *digit = &digits[10];

	*digit = 0;
	do {
		*--digit = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	return append(end, digit);
}

__attribute__((__noreturn__))
static void give_up(const char *function, int err)
{
	const char *words = memwait_own_words((unsigned int)err);
	char line[256], *end = line;
	ssize_t written;
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	end = append(end, "libmemwait: ");
	end = append(end, function);
	end = append(end, "(): no wait on /dev/memwait: ");
	end = append(end, words ? words : "error ");
	if (!words)
		end = append_number(end, (unsigned int)err);
	end = append(end, "; see memwait_pthread(7)\n");
	written = write(STDERR_FILENO, line, (size_t)(end - line));
	(void)written;
	abort();
}

/* The errors of each function that pthreads programs expect; each list ends with 0. */
static const int of_lock[] = { EAGAIN, EDEADLK, ENOTRECOVERABLE, EOWNERDEAD, 0 };
static const int of_trylock[] = { EAGAIN, EBUSY, ENOTRECOVERABLE, EOWNERDEAD, 0 };
static const int of_timedlock[] = {
	EAGAIN, EDEADLK, EINVAL, ENOTRECOVERABLE, EOWNERDEAD, ETIMEDOUT, 0
};
static const int of_cond_wait[] = { ENOTRECOVERABLE, EOWNERDEAD, 0 };
static const int of_cond_timedwait[] = { EINVAL, ENOTRECOVERABLE, EOWNERDEAD, ETIMEDOUT, 0 };
static const int of_barrier[] = { PTHREAD_BARRIER_SERIAL_THREAD, 0 };
static const int of_sem_wait[] = { EINTR, 0 };
static const int of_sem_trywait[] = { EAGAIN, 0 };
static const int of_sem_timedwait[] = { EINTR, EINVAL, ETIMEDOUT, 0 };

/* Not inlined, because it has a line of text on the stack, and most calls succeed. */
__attribute__((__noinline__, __cold__))
static int known_error(int err, const int *errors, const char *function)
{
	for (; *errors; errors++)
		if (*errors == err)
			return err;
	give_up(function, err);
}

/* Returns @err if it is 0 or among @errors; otherwise aborts the process. */
static inline int known(int err, const int *errors, const char *function)
{
	return err ? known_error(err, errors, function) : 0;
}

/* Mutexes */

int memwait_pthread_mutexattr_setprotocol(pthread_mutexattr_t *attr, int protocol)
{
	if (protocol == PTHREAD_PRIO_INHERIT || protocol == PTHREAD_PRIO_PROTECT)
		return ENOTSUP;
	return pthread_mutexattr_setprotocol(attr, protocol);
}

/*
 * POSIX specifies EINVAL for a mutex with the protocol PTHREAD_PRIO_NONE, and all mutexes of
 * libmemwait have this protocol.
 */
int memwait_pthread_mutex_getprioceiling(const memwait_mutex_t *mutex, int *ceiling)
{
	(void)mutex;
	(void)ceiling;
	return EINVAL;
}

int memwait_pthread_mutex_setprioceiling(memwait_mutex_t *mutex, int ceiling, int *old)
{
	(void)mutex;
	(void)ceiling;
	(void)old;
	return EINVAL;
}

static unsigned int private_unless(int pshared)
{
	return pshared == PTHREAD_PROCESS_SHARED ? 0 : MEMWAIT_PRIVATE;
}

int memwait_pthread_mutex_init(memwait_mutex_t *mutex, const pthread_mutexattr_t *attr)
{
	int type = PTHREAD_MUTEX_NORMAL, pshared = PTHREAD_PROCESS_PRIVATE;
	int robust = PTHREAD_MUTEX_STALLED, protocol = PTHREAD_PRIO_NONE;
	unsigned int kind = MEMWAIT_MUTEX_NORMAL;

	if (attr && (pthread_mutexattr_gettype(attr, &type) ||
		     pthread_mutexattr_getpshared(attr, &pshared) ||
		     pthread_mutexattr_getrobust(attr, &robust) ||
		     pthread_mutexattr_getprotocol(attr, &protocol)))
		return EINVAL;
	/* The attribute object may come from a file that does not include the header. */
	if (protocol != PTHREAD_PRIO_NONE)
		return ENOTSUP;
	if (type == PTHREAD_MUTEX_RECURSIVE)
		kind = MEMWAIT_MUTEX_RECURSIVE;
	else if (type == PTHREAD_MUTEX_ERRORCHECK)
		kind = MEMWAIT_MUTEX_ERRORCHECK;
	if (robust == PTHREAD_MUTEX_ROBUST)
		kind |= MEMWAIT_MUTEX_ROBUST;
	return memwait_mutex_init(mutex, kind | private_unless(pshared));
}

int memwait_pthread_mutex_lock(memwait_mutex_t *mutex)
{
	return known(memwait_mutex_lock(mutex), of_lock, "pthread_mutex_lock");
}

int memwait_pthread_mutex_trylock(memwait_mutex_t *mutex)
{
	return known(memwait_mutex_trylock(mutex), of_trylock, "pthread_mutex_trylock");
}

int memwait_pthread_mutex_timedlock(memwait_mutex_t *mutex, const struct timespec *abstime)
{
	return known(memwait_mutex_timedlock(mutex, abstime), of_timedlock,
		     "pthread_mutex_timedlock");
}

int memwait_pthread_mutex_clocklock(memwait_mutex_t *mutex, clockid_t clock,
				    const struct timespec *abstime)
{
	return known(memwait_mutex_clocklock(mutex, clock, abstime), of_timedlock,
		     "pthread_mutex_clocklock");
}

/* Condition variables */

int memwait_pthread_cond_init(memwait_cond_t *cond, const pthread_condattr_t *attr)
{
	int pshared = PTHREAD_PROCESS_PRIVATE;
	clockid_t clock = CLOCK_REALTIME;

	if (attr && (pthread_condattr_getpshared(attr, &pshared) ||
		     pthread_condattr_getclock(attr, &clock)))
		return EINVAL;
	if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
		return ENOTSUP;
	return memwait_cond_init(cond, private_unless(pshared) |
				       (clock == CLOCK_MONOTONIC ? MEMWAIT_COND_MONOTONIC : 0));
}

/*
 * Returns EPERM only if the caller does not hold the mutex: a seccomp filter may cause EPERM for a
 * caller that holds it. ENOMEM: the caller could not sleep, and holds the mutex again, as after any
 * spurious wake-up.
 */
static inline int known_of_cond(int err, memwait_mutex_t *mutex, const int *errors,
				const char *function)
{
	if (err == EPERM && !memwait_mutex_is_held(mutex))
		return err;
	if (err == ENOMEM)
		return 0;
	return known(err, errors, function);
}

int memwait_pthread_cond_wait(memwait_cond_t *cond, memwait_mutex_t *mutex)
{
	return known_of_cond(memwait_cond_wait(cond, mutex), mutex, of_cond_wait,
			     "pthread_cond_wait");
}

int memwait_pthread_cond_timedwait(memwait_cond_t *cond, memwait_mutex_t *mutex,
				   const struct timespec *abstime)
{
	return known_of_cond(memwait_cond_timedwait(cond, mutex, abstime), mutex, of_cond_timedwait,
			     "pthread_cond_timedwait");
}

int memwait_pthread_cond_clockwait(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
				   const struct timespec *abstime)
{
	return known_of_cond(memwait_cond_clockwait(cond, mutex, clock, abstime), mutex,
			     of_cond_timedwait, "pthread_cond_clockwait");
}

/* Read-write locks */

/*
 * glibc has three kinds, of which the second behaves like the first; other C libraries have no
 * kinds.
 */
static int rwlock_kind(const pthread_rwlockattr_t *attr)
{
#ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
	int kind;

	if (!pthread_rwlockattr_getkind_np(attr, &kind) &&
	    kind == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP)
		return MEMWAIT_RWLOCK_PREFER_WRITER;
#endif
	(void)attr;
	return MEMWAIT_RWLOCK_PREFER_READER;
}

int memwait_pthread_rwlock_init(memwait_rwlock_t *rwlock, const pthread_rwlockattr_t *attr)
{
	unsigned int kind = MEMWAIT_RWLOCK_PREFER_READER;
	int pshared = PTHREAD_PROCESS_PRIVATE;

	if (attr && pthread_rwlockattr_getpshared(attr, &pshared))
		return EINVAL;
	if (attr)
		kind = (unsigned int)rwlock_kind(attr);
	return memwait_rwlock_init(rwlock, kind | private_unless(pshared));
}

int memwait_pthread_rwlock_rdlock(memwait_rwlock_t *rwlock)
{
	return known(memwait_rwlock_rdlock(rwlock), of_lock, "pthread_rwlock_rdlock");
}

int memwait_pthread_rwlock_tryrdlock(memwait_rwlock_t *rwlock)
{
	return known(memwait_rwlock_tryrdlock(rwlock), of_trylock, "pthread_rwlock_tryrdlock");
}

int memwait_pthread_rwlock_timedrdlock(memwait_rwlock_t *rwlock, const struct timespec *abstime)
{
	return known(memwait_rwlock_timedrdlock(rwlock, abstime), of_timedlock,
		     "pthread_rwlock_timedrdlock");
}

int memwait_pthread_rwlock_clockrdlock(memwait_rwlock_t *rwlock, clockid_t clock,
				       const struct timespec *abstime)
{
	return known(memwait_rwlock_clockrdlock(rwlock, clock, abstime),
		     of_timedlock, "pthread_rwlock_clockrdlock");
}

int memwait_pthread_rwlock_wrlock(memwait_rwlock_t *rwlock)
{
	return known(memwait_rwlock_wrlock(rwlock), of_lock, "pthread_rwlock_wrlock");
}

int memwait_pthread_rwlock_trywrlock(memwait_rwlock_t *rwlock)
{
	return known(memwait_rwlock_trywrlock(rwlock), of_trylock, "pthread_rwlock_trywrlock");
}

int memwait_pthread_rwlock_timedwrlock(memwait_rwlock_t *rwlock, const struct timespec *abstime)
{
	return known(memwait_rwlock_timedwrlock(rwlock, abstime), of_timedlock,
		     "pthread_rwlock_timedwrlock");
}

int memwait_pthread_rwlock_clockwrlock(memwait_rwlock_t *rwlock, clockid_t clock,
				       const struct timespec *abstime)
{
	return known(memwait_rwlock_clockwrlock(rwlock, clock, abstime),
		     of_timedlock, "pthread_rwlock_clockwrlock");
}

/* Barriers */

int memwait_pthread_barrier_init(memwait_barrier_t *barrier, const pthread_barrierattr_t *attr,
				 unsigned int count)
{
	int pshared = PTHREAD_PROCESS_PRIVATE;

	if (attr && pthread_barrierattr_getpshared(attr, &pshared))
		return EINVAL;
	return memwait_barrier_init(barrier, private_unless(pshared), count);
}

int memwait_pthread_barrier_wait(memwait_barrier_t *barrier)
{
	return known(memwait_barrier_wait(barrier), of_barrier, "pthread_barrier_wait");
}

/* Semaphores */

static int by_errno(int err)
{
	if (!err)
		return 0;
	errno = err;
	return -1;
}

int memwait_pthread_sem_init(memwait_sem_t *sem, int pshared, unsigned int value)
{
	return by_errno(memwait_sem_init(sem, pshared ? 0 : MEMWAIT_PRIVATE, value));
}

int memwait_pthread_sem_destroy(memwait_sem_t *sem)
{
	return by_errno(memwait_sem_destroy(sem));
}

int memwait_pthread_sem_wait(memwait_sem_t *sem)
{
	return by_errno(known(memwait_sem_wait(sem), of_sem_wait, "sem_wait"));
}

int memwait_pthread_sem_trywait(memwait_sem_t *sem)
{
	return by_errno(known(memwait_sem_trywait(sem), of_sem_trywait, "sem_trywait"));
}

int memwait_pthread_sem_timedwait(memwait_sem_t *sem, const struct timespec *abstime)
{
	return by_errno(known(memwait_sem_timedwait(sem, abstime), of_sem_timedwait,
			       "sem_timedwait"));
}

int memwait_pthread_sem_clockwait(memwait_sem_t *sem, clockid_t clock,
				  const struct timespec *abstime)
{
	return by_errno(known(memwait_sem_clockwait(sem, clock, abstime), of_sem_timedwait,
			       "sem_clockwait"));
}

int memwait_pthread_sem_post(memwait_sem_t *sem)
{
	return by_errno(memwait_sem_post(sem));
}

int memwait_pthread_sem_getvalue(memwait_sem_t *sem, int *value)
{
	return by_errno(memwait_sem_getvalue(sem, value));
}

/*
 * Named semaphores are files. A file gets its name only once it is complete. A process maps each
 * file once.
 */

#define DIRECTORY	"/dev/shm/"
#define PREFIX		"memwait-sem."

/* Distinguishes the file from files of other programs and of other versions. */
#define MAGIC		0x314d4553U	/* "SEM1" */

struct named {
	memwait_sem_t sem;
	uint32_t magic;
	uint32_t reserved;
};

struct mapped {
	struct mapped *next;
	struct named *named;
	dev_t device;
	ino_t inode;
	unsigned int opened;
};

/* A mutex of the C library. */
static pthread_mutex_t mapped_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct mapped *all_mapped;

/* Returns 0 or an error. */
static int path_of(const char *name, char *path, size_t size)
{
	size_t slashes = strspn(name, "/");

	name += slashes;
	if (!*name || strchr(name, '/'))
		return EINVAL;
	if (strlen(name) > NAME_MAX - strlen(PREFIX))
		return ENAMETOOLONG;
	snprintf(path, size, DIRECTORY PREFIX "%s", name);
	return 0;
}

/*
 * Maps the semaphore in a file, or finds it mapped. The caller holds the mutex. Returns 0 or an
 * error.
 */
static int map(int fd, memwait_sem_t **sem)
{
	struct mapped *mapped;
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return errno;
	if (!S_ISREG(st.st_mode) || st.st_size != sizeof(struct named))
		return EINVAL;
	for (mapped = all_mapped; mapped; mapped = mapped->next)
		if (mapped->device == st.st_dev && mapped->inode == st.st_ino)
			break;
	if (!mapped) {
		mapped = calloc(1, sizeof(*mapped));
		if (!mapped)
			return ENOMEM;
		mapped->device = st.st_dev;
		mapped->inode = st.st_ino;
		mapped->named = mmap(NULL, sizeof(struct named), PROT_READ | PROT_WRITE, MAP_SHARED,
				     fd, 0);
		err = mapped->named == MAP_FAILED ? errno : 0;
		if (!err && mapped->named->magic != MAGIC) {
			munmap(mapped->named, sizeof(struct named));
			err = EINVAL;
		}
		if (err) {
			free(mapped);
			return err;
		}
		mapped->next = all_mapped;
		all_mapped = mapped;
	}
	mapped->opened++;
	*sem = &mapped->named->sem;
	return 0;
}

/* The caller holds the mutex. */
static int let_go(memwait_sem_t *sem)
{
	struct mapped **link, *mapped;

	for (link = &all_mapped; *link; link = &(*link)->next)
		if (&(*link)->named->sem == sem)
			break;
	mapped = *link;
	if (!mapped)
		return EINVAL;
	if (!--mapped->opened) {
		*link = mapped->next;
		munmap(mapped->named, sizeof(struct named));
		free(mapped);
	}
	return 0;
}

static int open_existing(const char *path, memwait_sem_t **sem)
{
	int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	int err;

	if (fd < 0)
		return errno;
	err = map(fd, sem);
	close(fd);
	return err;
}

/* EEXIST: @path exists. */
static int create(const char *path, mode_t mode, unsigned int value, memwait_sem_t **sem)
{
	char self[64];
	struct named named = { .magic = MAGIC };
	int err, fd;

	err = memwait_sem_init(&named.sem, 0, value);
	if (err)
		return err;
	/*
	 * The file has no name at first, so that a killed process leaves nothing behind. linkat()
	 * names it.
	 */
	fd = open(DIRECTORY, O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
	if (fd < 0)
		return errno;
	if (write(fd, &named, sizeof(named)) != sizeof(named))
		err = ENOSPC;
	if (!err)
		err = map(fd, sem);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (!err && linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW)) {
		err = errno;
		let_go(*sem);
	}
	close(fd);
	return err;
}

/*
 * The three functions below are not cancellation points, because a cancelled thread would leave the
 * mutex locked.
 */
static int begin(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&mapped_mutex);
	return state;
}

static int end(int state, int err)
{
	pthread_mutex_unlock(&mapped_mutex);
	pthread_setcancelstate(state, NULL);
	return by_errno(err);
}

memwait_sem_t *memwait_pthread_sem_open(const char *name, int flags, ...)
{
	char path[sizeof(DIRECTORY) + NAME_MAX];
	memwait_sem_t *sem = NULL;
	unsigned int value = 0;
	mode_t mode = 0;
	va_list args;
	int err, state;

	if (flags & O_CREAT) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		value = va_arg(args, unsigned int);
		va_end(args);
	}
	state = begin();
	err = path_of(name, path, sizeof(path));
	if (err)
		goto out;
	/* Other processes may create or remove the file between open_existing() and create(). */
	do {
		err = flags & O_CREAT && flags & O_EXCL ? ENOENT : open_existing(path, &sem);
		if (err != ENOENT || !(flags & O_CREAT))
			break;
		err = create(path, mode, value, &sem);
	} while (err == EEXIST && !(flags & O_EXCL));
out:
	return end(state, err) ? NULL : sem;
}

int memwait_pthread_sem_close(memwait_sem_t *sem)
{
	int state = begin();

	return end(state, let_go(sem));
}

int memwait_pthread_sem_unlink(const char *name)
{
	char path[sizeof(DIRECTORY) + NAME_MAX];
	int state = begin();
	int err = path_of(name, path, sizeof(path));

	if (!err && unlink(path))
		/* POSIX specifies only EACCES for a lack of permission. */
		err = errno == EPERM ? EACCES : errno;
	return end(state, err == EINVAL ? ENOENT : err);
}
