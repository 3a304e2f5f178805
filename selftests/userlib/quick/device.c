// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for /dev/memwait in user space, without root, for a program and its children: the
 * driver of the model in queue.h for real threads and processes. The queues are in memory that all
 * these processes share, under one lock. The program is linked with --wrap for the calls that reach
 * the device; a program that defines ioctl() or read() itself makes the calls by syscall(2).
 *
 * A context is a pipe, whose reader is the descriptor that the program gets: poll() needs no
 * change, the inode finds the context from any copy of the descriptor, and the pipe has no reader
 * any more when the last copy is closed or its last process has died. The keeper, a thread of the
 * program, holds the writers. Other processes open these through /proc. Unread completions are one
 * byte in the pipe.
 *
 * A thread that waits, or has an id, has a robust mutex of its own. When the thread ends or is
 * killed, even with its process, the kernel marks the mutex before a parent can know it.
 *
 * The keeper ends waits at their deadlines, and looks for contexts and threads that have ended. A
 * thread waits by FUTEX_WAIT without a timeout, so that signals end or continue the wait as they do
 * in the module.
 *
 * The stress program runs on this file under ThreadSanitizer and valgrind, which would attribute
 * all memory ordering of this file to the library, and miss real races. Therefore this file is
 * built without ThreadSanitizer, and calls no function that these tools replace on memory that
 * several threads use: it makes system calls directly, and orders memory by atomics and futexes.
 * With ONE_PROCESS, the program does not fork, has no signal handler, makes no invalid call, and
 * does not look at the states of its threads. The stand-in then makes fewer system calls, so that
 * the tools see as many rounds as possible.
 *
 * The stand-in does not have limits, tracing, fdinfo, time namespaces and positions of interrupted
 * threads, and its descriptors do not survive execve(2).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <linux/memwait.h>

#ifndef ONE_PROCESS
#define ONE_PROCESS	false
#endif

#define CONTEXTS	96
#define THREADS		1024
#define WAITS		16384
#define ENTRIES		32768
#define WORDS		16384
#define BUCKETS		1024
#define COMPLETIONS	16384
#define RANGES		2048
#define SIGNALS		8		/* sizeof(sigset_t) of the kernel */
#define FIRST_WRITER	800		/* lowest descriptor of the keeper's */
#define TICK_NS		1000000		/* between two looks for deaths */

int __real_open(const char *path, int flags, ...);
int __real_close(int fd);
int __real_fstat(int fd, struct stat *st);
int __real_munmap(void *address, size_t size);
int __real_mprotect(void *address, size_t size, int protection);
void *__real_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__real_mremap(void *address, size_t size, size_t new_size, int flags, ...);
long __real_syscall(long number, ...);

int __wrap_open(const char *path, int flags, ...);
int __wrap_close(int fd);
int __wrap_fstat(int fd, struct stat *st);
int __wrap_munmap(void *address, size_t size);
int __wrap_mprotect(void *address, size_t size, int protection);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mremap(void *address, size_t size, size_t new_size, int flags, ...);
long __wrap_syscall(long number, ...);

/* The kernel's atomic operation on a word; see ../stress/change.c. */
uint32_t stress_change(uint32_t *word, uint32_t operation, uint32_t operand);

/* The lock orders more than the kernel does. */
#define ORDERS_MEMORY	false
#define note(...)	do { } while (0)

struct order {
};

struct driver_thread {
	pthread_mutex_t alive;		/* owned by the thread until it ends */
	pid_t tid;
	bool ended;			/* by itself, without its process */
};

struct driver_wait {
	uint32_t woken;			/* futex */
	bool falls_asleep;		/* it has not been seen asleep */
};

struct driver_context {
	bool readable;			/* there is a byte in the pipe */
	ino_t inode;
};

struct driver_shared {
	uint32_t lock, kick;
	uint32_t most_threads, most_contexts;	/* used at any time */
	pid_t keeper;
	uint64_t last_space;
	uint64_t next_look;		/* of the keeper */
};

#include "queue.h"

/* A mapping of this process. */
struct range {
	uint64_t start, end, offset, device, inode;
	bool readable, writable, is_shared;
};

/* Known mappings; valid in the process .pid. */
static struct {
	pid_t pid;
	uint64_t space;
	uint32_t generation, read_generation;
	unsigned int nr;
	struct range ranges[RANGES];
} mappings;

static __thread struct thread *own_thread;
static __thread pid_t own_process;	/* of .own_thread */
static __thread uint64_t own_signals;	/* blocked before lock() */
static pthread_key_t thread_end;

static long futex(uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
	return __real_syscall(SYS_futex, word, operation, value, timeout, NULL,
			      FUTEX_BITSET_MATCH_ANY);
}

/* poll() may be a program's own. */
static long poll_one(struct pollfd *pfd, const struct timespec *timeout)
{
	struct timespec left;

	if (timeout)
		left = *timeout;
	return __real_syscall(SYS_ppoll, pfd, 1, timeout ? &left : NULL, NULL, SIGNALS);
}

static pid_t process(void)
{
	if (ONE_PROCESS)
		return shared->driver.keeper;
	return (pid_t)__real_syscall(SYS_getpid);
}

static uint64_t now(bool realtime)
{
	struct timespec time;

	clock_gettime(realtime ? CLOCK_REALTIME : CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Returns the state of a thread in /proc, or 0 if the thread does not exist. */
static char state_of(pid_t tid)
{
	char path[32], line[512] = "", *name;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	fd = (int)__real_syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ESRCH ? 0 : 'R';
	n = __real_syscall(SYS_read, fd, line, sizeof(line) - 1);
	__real_syscall(SYS_close, fd);
	name = n > 0 ? strrchr(line, ')') : NULL;
	return name ? name[2] : 0;
}

static bool process_has_ended(pid_t pid)
{
	char state = state_of(pid);

	return !state || state == 'Z' || state == 'X';
}

static bool take_lock(uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&shared->driver.lock, &from, to, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

/*
 * All signals are blocked while the lock is held: a handler may make any call, or end the thread.
 * Waiting threads spin: to a test, a thread that sleeps is one that waits for a word. A thread that
 * was killed with the lock loses it.
 */
static void lock(void)
{
	const uint64_t all = UINT64_MAX;
	unsigned int tries = 0;
	uint32_t self, owner;

	if (ONE_PROCESS) {
		if (take_lock(0, 1))
			return;
		while (__atomic_exchange_n(&shared->driver.lock, 2, __ATOMIC_ACQUIRE))
			futex(&shared->driver.lock, FUTEX_WAIT, 2, NULL);
		return;
	}
	__real_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &own_signals, SIGNALS);
	self = (uint32_t)__real_syscall(SYS_gettid);
	while (!take_lock(0, self)) {
		owner = __atomic_load_n(&shared->driver.lock, __ATOMIC_RELAXED);
		__real_syscall(SYS_sched_yield);
		if (!(++tries % 4096) && owner && process_has_ended((pid_t)owner))
			take_lock(owner, 0);
	}
}

static void leave(void)
{
	uint32_t was = __atomic_exchange_n(&shared->driver.lock, 0, __ATOMIC_RELEASE);

	if (ONE_PROCESS && was == 2)
		futex(&shared->driver.lock, FUTEX_WAKE, 1, NULL);
	if (!ONE_PROCESS)
		__real_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &own_signals, NULL, SIGNALS);
}

/* The real lock orders memory, and real threads run. */

static void order_release(struct order *order)
{
}

static void order_acquire(const struct order *order)
{
}

static void let_others_run(void)
{
}

static void no_room(const char *what)
{
	fprintf(stderr, "quick: not enough %s\n", what);
	abort();
}

static void kick_keeper(void)
{
	__atomic_add_fetch(&shared->driver.kick, 1, __ATOMIC_RELEASE);
	futex(&shared->driver.kick, FUTEX_WAKE, 1, NULL);
}

/* Mappings. All functions from here on are called with the lock held, unless they say otherwise. */

static void parse_mapping(const char *line)
{
	struct range *range = &mappings.ranges[mappings.nr];
	unsigned long long start, end, offset, inode;
	unsigned int major, minor;
	char permissions[5];

	if (mappings.nr == RANGES || sscanf(line, "%llx-%llx %4s %llx %x:%x %llu", &start, &end,
					    permissions, &offset, &major, &minor, &inode) != 7)
		return;
	*range = (struct range){
		.start = start, .end = end, .offset = offset,
		.device = (uint64_t)major << 32 | minor, .inode = inode,
		.readable = permissions[0] == 'r', .writable = permissions[1] == 'w',
		.is_shared = permissions[3] == 's' && inode,
	};
	mappings.nr++;
}

static void read_mappings(void)
{
	/* Not static: a checker sees sscanf() read the line. The end of a long path is cut off. */
	char text[1024], line[128];
	size_t used = 0;
	ssize_t n, i;
	int fd;

	mappings.nr = 0;
	mappings.read_generation = __atomic_load_n(&mappings.generation, __ATOMIC_ACQUIRE);
	fd = (int)__real_syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while ((n = __real_syscall(SYS_read, fd, text, sizeof(text))) > 0) {
		for (i = 0; i < n; i++) {
			if (text[i] == '\n') {
				line[used] = 0;
				parse_mapping(line);
				used = 0;
			} else if (used < sizeof(line) - 1) {
				line[used++] = text[i];
			}
		}
	}
	__real_syscall(SYS_close, fd);
}

static const struct range *known_range_of(uint64_t address)
{
	unsigned int i;

	for (i = 0; i < mappings.nr; i++)
		if (address - mappings.ranges[i].start <
		    mappings.ranges[i].end - mappings.ranges[i].start)
			return &mappings.ranges[i];
	return NULL;
}

/* A process that has forked has its own address space. */
static void know_process(void)
{
	pid_t pid = process();

	if (mappings.pid == pid)
		return;
	mappings.pid = pid;
	mappings.space = ++shared->driver.last_space;
	mappings.nr = 0;
}

static bool is_accessible(const struct range *range, bool write)
{
	return range && range->readable && (range->writable || !write);
}

/*
 * Returns the mapping of an address, or NULL if an access would be a fault. The C library maps
 * stacks and changes their protection without the wrappers of this file, so what is known is tried
 * again before it is a fault.
 */
static const struct range *range_of(uint64_t address, bool write)
{
	const struct range *range = NULL;

	if (mappings.read_generation == __atomic_load_n(&mappings.generation, __ATOMIC_ACQUIRE))
		range = known_range_of(address);
	if (!is_accessible(range, write)) {
		read_mappings();
		range = known_range_of(address);
	}
	return is_accessible(range, write) ? range : NULL;
}

static int key_of(struct key *key, uint64_t address, uint32_t flags)
{
	const struct range *range;

	know_process();
	*key = (struct key){ .space = mappings.space, .offset = address };
	if (flags & MEMWAIT_PRIVATE)
		return 0;
	if (ONE_PROCESS) {
		key->space = 0;
		return 0;
	}
	range = range_of(address, false);
	if (!range)
		return -EFAULT;
	if (range->is_shared) {
		/* An inode number of a file is smaller than the number of an address space. */
		key->space = range->inode | 1ULL << 63;
		key->device = range->device;
		key->offset = address - range->start + range->offset;
	}
	return 0;
}

/* Reads @size bytes of the process, and fails where an access would be a fault. */
static int copy_in(void *to, uint64_t address, size_t size)
{
	struct iovec here = { to, size }, there = { (void *)(uintptr_t)address, size };

	return __real_syscall(SYS_process_vm_readv, __real_syscall(SYS_getpid), &here, 1, &there, 1,
			      0) == (long)size ? 0 : -EFAULT;
}

/* A word is read in one access, which is not torn. */
static int load_word(uint64_t *value, uint64_t address, size_t size)
{
	void *word = (void *)(uintptr_t)address;
	char *to = (char *)value;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!ONE_PROCESS) {
		if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
			to += sizeof(*value) - size;
		return copy_in(to, address, size);
	}
	*value = size == 1 ? __atomic_load_n((uint8_t *)word, __ATOMIC_SEQ_CST) :
		 size == 2 ? __atomic_load_n((uint16_t *)word, __ATOMIC_SEQ_CST) :
		 size == 4 ? __atomic_load_n((uint32_t *)word, __ATOMIC_SEQ_CST) :
			     __atomic_load_n((uint64_t *)word, __ATOMIC_SEQ_CST);
	return 0;
}

static int change_word(uint32_t *word, uint32_t operation, uint32_t operand, uint32_t *old)
{
	uint32_t probe;

	if (!ONE_PROCESS && !range_of((uintptr_t)word, true))
		return -EFAULT;
	if (!ONE_PROCESS && copy_in(&probe, (uintptr_t)word, sizeof(probe)))
		return -EFAULT;
	*old = stress_change(word, operation, operand);
	return 0;
}

static int check_access(uint64_t address, size_t size, bool write)
{
	char copy[MOST_BYTES];
	int ret = ONE_PROCESS ? 0 : copy_in(copy, address, size);

	if (ONE_PROCESS || ret || !write)
		return ret;
	enter();
	ret = range_of(address, true) ? 0 : -EFAULT;
	leave();
	return ret;
}

/* Contexts. */

/* Opens the writer of a context's pipe, unless this is the process of the keeper. */
static int open_writer(const struct context *context)
{
	int fd = FIRST_WRITER + (int)(context - shared->contexts);
	char path[64];

	if (process() == shared->driver.keeper)
		return fd;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", shared->driver.keeper, fd);
	return (int)__real_syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
}

static void close_writer(int fd)
{
	if (process() != shared->driver.keeper)
		__real_syscall(SYS_close, fd);
}

/* Makes the pipe readable or not. */
static void set_readable(struct context *context, bool readable, int fd)
{
	char byte = 0;
	int end = fd;

	if (context->driver.readable == readable)
		return;
	if (readable) {
		end = open_writer(context);
		if (end < 0)
			return;
		__real_syscall(SYS_write, end, &byte, 1);
		close_writer(end);
	} else {
		__real_syscall(SYS_read, end, &byte, 1);
	}
	context->driver.readable = readable;
}

static void become_readable(struct context *context)
{
	set_readable(context, true, -1);
}

/* Threads. */

static bool has_ended(struct thread *thread)
{
	return __atomic_load_n((uint32_t *)&thread->driver.alive.__data.__lock, __ATOMIC_ACQUIRE) &
	       FUTEX_OWNER_DIED;
}

/*
 * Locks a robust mutex like pthread_mutex_lock(), whose call the checkers would see. The C library
 * links its list in both directions.
 */
static void lock_alive(pthread_mutex_t *mutex, pid_t tid)
{
	__pthread_list_t *own = &mutex->__data.__list, *next;
	struct robust_list_head *head;
	size_t size;

	if (__real_syscall(SYS_get_robust_list, 0, &head, &size))
		abort();
	mutex->__data.__lock = tid;
	/* The child of a fork that is not the C library's has no list, and no death is noticed. */
	if (!head)
		return;
	own->__next = (void *)head->list.next;
	own->__prev = (void *)&head->list;
	next = (void *)((char *)own->__next - offsetof(__pthread_list_t, __next));
	next->__prev = (void *)&own->__next;
	__atomic_store_n(&head->list.next, (void *)&own->__next, __ATOMIC_RELEASE);
}

/* A child has the pointer of the thread that forked it. */
static void thread_ends(void *argument)
{
	struct thread *thread = argument;

	if (thread->driver.tid == (pid_t)__real_syscall(SYS_gettid))
		thread->driver.ended = true;
}

static void wake_up(struct wait *wait)
{
	__atomic_store_n(&wait->driver.woken, 1, __ATOMIC_RELEASE);
	futex(&wait->driver.woken, FUTEX_WAKE, 1, NULL);
}

/*
 * Before the thread sleeps, a signal that a test sends because of the number of waiters would not
 * end the wait. The thread may not fall asleep, because a signal has just ended the wait.
 */
static void let_fall_asleep(struct wait *wait)
{
	unsigned int tries;

	for (tries = 0; !ONE_PROCESS && wait->driver.falls_asleep && tries < 10000; tries++) {
		__real_syscall(SYS_sched_yield);
		wait->driver.falls_asleep = state_of(wait->thread->driver.tid) == 'R';
	}
	wait->driver.falls_asleep = false;
}

/* The keeper sleeps until the earliest deadline that it knows. */
static void deadline_was_set(const struct wait *wait)
{
	if (wait->realtime || wait->deadline < shared->driver.next_look)
		kick_keeper();
}

static struct thread *current_thread(void)
{
	pid_t pid = process();
	struct thread *thread = shared->threads;

	if (own_thread && own_process == pid)
		return own_thread;
	while (thread < &shared->threads[THREADS] && thread->used)
		thread++;
	if (thread == &shared->threads[THREADS])
		no_room("threads");
	*thread = (struct thread){ .used = true };
	thread->driver.tid = (pid_t)__real_syscall(SYS_gettid);
	lock_alive(&thread->driver.alive, thread->driver.tid);
	pthread_setspecific(thread_end, thread);
	if (shared->driver.most_threads <= thread - shared->threads)
		shared->driver.most_threads = (uint32_t)(thread - shared->threads) + 1;
	own_thread = thread;
	own_process = pid;
	kick_keeper();
	return thread;
}

static void reap_thread(struct thread *thread)
{
	end_waits_of(thread);
	thread->used = false;
	report_death(thread->id, thread->driver.ended);
}

/* Finding ended threads and contexts, and overdue waits. */

static bool has_reader(const struct context *context)
{
	const struct timespec immediately = { 0 };
	struct pollfd pfd = { .fd = open_writer(context) };

	if (pfd.fd < 0)
		return true;
	poll_one(&pfd, &immediately);
	close_writer(pfd.fd);
	return !(pfd.revents & POLLERR);
}

/*
 * Finds ended threads and contexts. A killed process has no wait any more when its parent knows of
 * its death, so each call does this first. @all: even contexts that have never had a wait.
 */
static void catch_up(bool all)
{
	const pid_t self = process();
	struct context *context;
	uint32_t i;

	for (i = 0; i < shared->driver.most_threads; i++)
		if (shared->threads[i].used && has_ended(&shared->threads[i]))
			reap_thread(&shared->threads[i]);
	for (i = 0; !ONE_PROCESS && i < shared->driver.most_contexts; i++) {
		context = &shared->contexts[i];
		if (!context->used || (!all && !context->was_used) || context->bound == self)
			continue;
		if (!has_reader(context))
			release_context(context);
		else if (context->bound && !context->ended && process_has_ended(context->bound))
			end_context(context);
	}
}

/* Ends overdue waits. Returns the time until the next deadline, or UINT64_MAX. */
static uint64_t end_overdue(void)
{
	uint64_t least = UINT64_MAX, left;
	struct wait *wait, *next;

	for (wait = shared->used_waits; wait; wait = next) {
		next = wait->next;
		if (wait->deadline == MEMWAIT_FOREVER || !wait->entries)
			continue;
		if (has_passed(wait)) {
			end_wait(wait, NULL, MEMWAIT_TIMED_OUT);
			continue;
		}
		left = wait->deadline - now(wait->realtime);
		if (left < least)
			least = left;
	}
	return least;
}

static void *keep(void *unused)
{
	struct timespec time = { 0 };
	uint64_t left;
	uint32_t kicks;

	for (;;) {
		kicks = __atomic_load_n(&shared->driver.kick, __ATOMIC_ACQUIRE);
		lock();
		catch_up(true);
		left = end_overdue();
		if (!ONE_PROCESS && left > TICK_NS &&
		    shared->driver.most_threads + shared->driver.most_contexts)
			left = TICK_NS;
		shared->driver.next_look = left == UINT64_MAX ? left : now(false) + left;
		leave();
		time.tv_sec = (time_t)(left / 1000000000);
		time.tv_nsec = (long)(left % 1000000000);
		futex(&shared->driver.kick, FUTEX_WAIT, kicks, left == UINT64_MAX ? NULL : &time);
	}
	return unused;
}

/* A context needs a pipe of its own, because a reader may still hold the previous pipe. */
static void make_pipes(void)
{
	struct stat st;
	int fds[2], i;

	for (i = 0; i < CONTEXTS; i++) {
		if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) || __real_syscall(SYS_fstat, fds[0], &st) ||
		    dup3(fds[1], FIRST_WRITER + i, O_CLOEXEC) < 0)
			abort();
		__real_close(fds[0]);
		__real_close(fds[1]);
		shared->contexts[i].driver.inode = st.st_ino;
	}
}

static void close_writers(void)
{
	__real_syscall(SYS_close_range, FIRST_WRITER, FIRST_WRITER + CONTEXTS - 1, 0);
}

/*
 * Some tests set the clock, mount file systems or use real-time priorities if they may. That is
 * harmless in a VM. Here they must change nothing on the machine, even if root runs them.
 */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	if (__real_syscall(SYS_capset, &header, none))
		abort();
}

static void __attribute__((constructor(102))) set_up(void)
{
	uint64_t all = UINT64_MAX, signals;
	pthread_t thread;

	drop_capabilities();
	shared = __real_mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shared == MAP_FAILED)
		abort();
	shared->driver.keeper = getpid();
	set_up_queues();
	make_pipes();
	pthread_key_create(&thread_end, thread_ends);
	pthread_atfork(NULL, NULL, close_writers);
	/* The keeper takes no signal. */
	__real_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &signals, SIGNALS);
	if (pthread_create(&thread, NULL, keep, NULL))
		abort();
	pthread_detach(thread);
	__real_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &signals, NULL, SIGNALS);
}

/* Returns the context of a descriptor, or NULL. Without the lock. */
static struct context *context_of(int fd)
{
	int saved = errno, i;
	struct stat st;

	if (!shared || fd < 0 || __real_syscall(SYS_fstat, fd, &st) || !S_ISFIFO(st.st_mode)) {
		errno = saved;
		return NULL;
	}
	for (i = 0; i < CONTEXTS; i++)
		if (shared->contexts[i].driver.inode == st.st_ino)
			return &shared->contexts[i];
	return NULL;
}

/* The calls. These functions take the lock. */

static void enter(void)
{
	lock();
	catch_up(false);
}

/* volatile: pthread_cleanup_push() may use setjmp(). */
struct sleep {
	struct wait *volatile wait;
};

/* Runs when the wait has ended, and when the thread is cancelled. */
static void __attribute__((noinline)) end_sleep(void *argument)
{
	struct sleep *sleep = argument;

	lock();
	if (sleep->wait)
		free_wait(sleep->wait);
	sleep->wait = NULL;
	leave();
}

/*
 * Sleeps until the wait has ended or a signal ends it. The caller may have enabled asynchronous
 * cancellation.
 */
static int sleep_on(struct wait *wait, uint32_t *index)
{
	struct sleep sleep = { .wait = wait };
	volatile int ret = 0;	/* as in struct sleep */

	/* The lock is held. */
	pthread_cleanup_push(end_sleep, &sleep);
	wait->driver.falls_asleep = true;
	leave();
	while (!__atomic_load_n(&wait->driver.woken, __ATOMIC_ACQUIRE)) {
		if (futex(&wait->driver.woken, FUTEX_WAIT, 0, NULL) && errno == EINTR) {
			ret = -EINTR;
			break;
		}
	}
	lock();
	if (!wait->entries) {
		ret = wait->outcome;
		*index = wait->index;
	}
	free_wait(wait);
	sleep.wait = NULL;
	leave();
	pthread_cleanup_pop(0);
	return ret;
}

static ssize_t read_context(struct context *context, int fd, void *buffer, size_t size)
{
	static unsigned int reads;
	size_t most = size / sizeof(struct memwait_completion);
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct memwait_completion *to = buffer;
	size_t n = 0;
	int ret;

	if (!most)
		return -EINVAL;
	do {
		enter();
		ret = may_use(context);
		/*
		 * Every third read stops after 16 records. The module does this if a signal is
		 * pending.
		 */
		if (!(++reads % 3) && most > 16)
			most = 16;
		if (!ret)
			n = take_completions(context, to, most);
		/* If completions are left, an edge-triggered epoll must see another edge. */
		if (!ret)
			set_readable(context, false, fd);
		if (!ret && context->first)
			set_readable(context, true, -1);
		leave();
		if (ret || n)
			break;
		if (__real_syscall(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK)
			return -EAGAIN;
		if (poll_one(&pfd, NULL) < 0)
			return -errno;
	} while (true);
	return ret ? ret : (ssize_t)(n * sizeof(*to));
}

static int open_context(int flags)
{
	struct context *context = shared->contexts;
	char path[64];
	int fd = -EMFILE;

	lock();
	catch_up(true);
	while (context < &shared->contexts[CONTEXTS] && context->used)
		context++;
	if (context < &shared->contexts[CONTEXTS]) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", shared->driver.keeper,
			 FIRST_WRITER + (int)(context - shared->contexts));
		fd = (int)__real_syscall(SYS_openat, AT_FDCWD, path,
					 O_RDONLY | (flags & ~O_ACCMODE));
		if (fd < 0)
			fd = -errno;
	}
	if (fd >= 0) {
		/* A byte may be left of the previous context. */
		if (context->driver.readable)
			set_readable(context, false, fd);
		*context = (struct context){
			.used = true, .last = &context->first,
			.driver.inode = context->driver.inode,
		};
		if (shared->driver.most_contexts <= context - shared->contexts)
			shared->driver.most_contexts = (uint32_t)(context - shared->contexts) + 1;
		kick_keeper();
	}
	leave();
	return fd;
}

/* The wrappers. */

/* A program's own ioctl() and read() replace these. */
int __attribute__((__weak__)) ioctl(int fd, unsigned long command, ...)
{
	void *argument;
	va_list list;

	va_start(list, command);
	argument = va_arg(list, void *);
	va_end(list);
	return (int)__wrap_syscall(SYS_ioctl, fd, command, argument);
}

ssize_t __attribute__((__weak__)) read(int fd, void *buffer, size_t size)
{
	static ssize_t (*real_read)(int fd, void *buffer, size_t size);
	struct context *context = context_of(fd);

	if (context)
		return __wrap_syscall(SYS_read, fd, buffer, size);
	if (!real_read)
		real_read = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
	return real_read(fd, buffer, size);
}

long __wrap_syscall(long number, ...)
{
	struct context *context;
	long arguments[6];
	va_list list;
	int i;

	va_start(list, number);
	for (i = 0; i < 6; i++)
		arguments[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_ioctl || number == SYS_read) {
		context = context_of((int)arguments[0]);
		if (context && number == SYS_ioctl)
			return result(device_call(context, (unsigned long)arguments[1],
						  (void *)arguments[2]));
		if (context) {
			ssize_t n = read_context(context, (int)arguments[0], (void *)arguments[1],
						 (size_t)arguments[2]);

			return n < 0 ? result((int)n) : n;
		}
	}
	return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
			      arguments[4], arguments[5]);
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list arguments;
	int mode;

	va_start(arguments, flags);
	mode = va_arg(arguments, int);
	va_end(arguments);
	if (strcmp(path, "/dev/memwait"))
		return __real_open(path, flags, mode);
	return result(open_context(flags));
}

int __wrap_fstat(int fd, struct stat *st)
{
	int ret = __real_fstat(fd, st);

	if (!ret && context_of(fd)) {
		st->st_mode = S_IFCHR | 0666;
		st->st_rdev = makedev(10, 1);
	}
	return ret;
}

/* The last close of a context ends it before this function returns. */
int __wrap_close(int fd)
{
	struct context *context = context_of(fd);
	int ret;

	ret = context ? (int)__real_syscall(SYS_close, fd) : __real_close(fd);
	if (context) {
		enter();
		if (context->used && !has_reader(context))
			release_context(context);
		leave();
	}
	return ret;
}

int __wrap_open64(const char *path, int flags, ...) __attribute__((alias("__wrap_open")));

static void mappings_change(void)
{
	__atomic_add_fetch(&mappings.generation, 1, __ATOMIC_RELEASE);
}

void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	void *p = __real_mmap(address, size, protection, flags, fd, offset);

	mappings_change();
	return p;
}

void *__wrap_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset)
	__attribute__((alias("__wrap_mmap")));

void *__wrap_mremap(void *address, size_t size, size_t new_size, int flags, ...)
{
	va_list list;
	void *to;

	va_start(list, flags);
	to = va_arg(list, void *);
	va_end(list);
	to = __real_mremap(address, size, new_size, flags, to);
	mappings_change();
	return to;
}

int __wrap_munmap(void *address, size_t size)
{
	int ret = __real_munmap(address, size);

	mappings_change();
	return ret;
}

int __wrap_mprotect(void *address, size_t size, int protection)
{
	int ret = __real_mprotect(address, size, protection);

	mappings_change();
	return ret;
}
