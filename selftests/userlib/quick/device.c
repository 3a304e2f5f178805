// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for /dev/memwait in user space, without root, for a program and its children. The
 * queues are in memory that all these processes share, under one lock. The program is linked with
 * --wrap for the calls that reach the device; a program that defines ioctl() or read() itself makes
 * the calls by syscall(2).
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

/* The address space or file of a word, and the word's address or offset. */
struct key {
	uint64_t space, device, offset;
};

struct wait;

/* A wait's place in the queue of one word. */
struct entry {
	struct entry *next, *previous;	/* in the queue of .word, oldest first */
	struct entry *of_wait;		/* the next entry of the same wait; or of the free list */
	struct word *word;		/* NULL: not queued */
	struct wait *wait;
	uint32_t index;			/* in the group */
	bool names_owner;		/* the word has 64 bits */
};

/* A word with waiters. */
struct word {
	struct word *next;		/* in its bucket or the free list */
	struct key key;
	struct entry *first, *last;
	uint64_t watched;		/* the id whose death is reported, or 0 */
};

/* A thread that waits or has an id. */
struct thread {
	pthread_mutex_t alive;		/* owned by the thread until it ends */
	uint64_t id;			/* as an owner, or 0 */
	pid_t tid;
	bool used;
	bool ended;			/* by itself, without its process */
};

struct wait {
	struct wait *next;		/* in the list of used waits, or the free list */
	struct entry *entries;
	struct thread *thread;		/* of a blocked thread, otherwise NULL */
	struct context *context;	/* of an async wait */
	struct key woken_at;		/* the word whose notify has ended the wait */
	uint64_t deadline, user_data, id;
	uint32_t woken;			/* futex */
	uint32_t index;
	int outcome;
	bool used, realtime, owned, persistent, asleep;
	struct completion *done;	/* unread, of a persistent wait; or NULL */
};

struct completion {
	struct memwait_completion what;
	struct completion *next;	/* unread of the same context, or the free list */
	struct key key;
	struct wait *wait;		/* if persistent */
};

struct context {
	bool used, ended, was_used;
	bool readable;			/* there is a byte in the pipe */
	ino_t inode;
	uint64_t id;			/* as an owner, or 0 */
	pid_t bound;			/* to this process, or 0 */
	struct completion *first, **last;
};

struct shared {
	uint32_t lock, kick;
	uint32_t most_threads, most_contexts;	/* used at any time */
	pid_t keeper;
	uint64_t last_wait, last_owner, last_space;
	bool has_deadlines;
	struct wait *used_waits, *free_waits;
	struct word *free_words;
	struct entry *free_entries;
	struct completion *free_completions;
	struct word *buckets[BUCKETS];
	struct context contexts[CONTEXTS];
	struct thread threads[THREADS];
	struct wait waits[WAITS];
	struct word words[WORDS];
	struct entry entries[ENTRIES];
	struct completion completions[COMPLETIONS];
};

static struct shared *shared;

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

/*
 * All signals are blocked while the lock is held: a handler may make any call, or end the thread.
 * Waiting threads spin: to a test, a thread that sleeps is one that waits for a word. A thread that
 * was killed with the lock loses it.
 */
static void lock(uint64_t *signals)
{
	const uint64_t all = UINT64_MAX;
	const uint32_t self = (uint32_t)__real_syscall(SYS_gettid);
	unsigned int tries = 0;
	uint32_t owner = 0;

	__real_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, signals, SIGNALS);
	while (!__atomic_compare_exchange_n(&shared->lock, &owner, self, false, __ATOMIC_ACQUIRE,
					    __ATOMIC_RELAXED)) {
		__real_syscall(SYS_sched_yield);
		if (!(++tries % 4096)) {
			if (process_has_ended((pid_t)owner))
				__atomic_compare_exchange_n(&shared->lock, &owner, 0, false,
							    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
		}
		owner = 0;
	}
}

static void unlock(const uint64_t *signals)
{
	__atomic_store_n(&shared->lock, 0, __ATOMIC_RELEASE);
	__real_syscall(SYS_rt_sigprocmask, SIG_SETMASK, signals, NULL, SIGNALS);
}

static void kick_keeper(void)
{
	__atomic_add_fetch(&shared->kick, 1, __ATOMIC_RELEASE);
	futex(&shared->kick, FUTEX_WAKE, 1, NULL);
}

/* Mappings. All functions from here on are called with the lock held, unless they say otherwise. */

static void parse_mapping(char *line)
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
	static char text[65536];
	size_t used = 0;
	char *line, *end;
	ssize_t n;
	int fd;

	mappings.nr = 0;
	mappings.read_generation = __atomic_load_n(&mappings.generation, __ATOMIC_ACQUIRE);
	fd = (int)__real_syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while ((n = __real_syscall(SYS_read, fd, text + used, sizeof(text) - 1 - used)) > 0) {
		used += (size_t)n;
		text[used] = 0;
		for (line = text; (end = strchr(line, '\n')); line = end + 1) {
			*end = 0;
			parse_mapping(line);
		}
		used -= (size_t)(line - text);
		memmove(text, line, used);
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
	pid_t pid = (pid_t)__real_syscall(SYS_getpid);

	if (mappings.pid == pid)
		return;
	mappings.pid = pid;
	mappings.space = ++shared->last_space;
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

static bool same(const struct key *a, const struct key *b)
{
	return a->space == b->space && a->device == b->device && a->offset == b->offset;
}

static bool same_object(const struct key *a, const struct key *b)
{
	return a->space == b->space && a->device == b->device;
}

static int check(uint64_t address, uint32_t flags, uint32_t allowed)
{
	return flags & ~allowed || address % (1U << (flags & MEMWAIT_SIZE_MASK)) ? -EINVAL : 0;
}

/* Reads @size bytes of the process, and fails where an access would be a fault. */
static int read_memory(void *to, uint64_t address, size_t size)
{
	struct iovec here = { to, size }, there = { (void *)(uintptr_t)address, size };

	return __real_syscall(SYS_process_vm_readv, __real_syscall(SYS_getpid), &here, 1, &there, 1,
			      0) == (long)size ? 0 : -EFAULT;
}

/* Returns 0 if the word has the expected value, MEMWAIT_NOT_EQUAL, or an error. */
static int compare(uint64_t address, uint64_t expected, uint32_t flags)
{
	const size_t size = 1U << (flags & MEMWAIT_SIZE_MASK);
	uint64_t value = 0, mask = size < 8 ? (1ULL << 8 * size) - 1 : UINT64_MAX;
	uint32_t half;
	uint16_t quarter;
	uint8_t byte;
	int ret;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	switch (size) {
	case 1:
		ret = read_memory(&byte, address, 1);
		value = byte;
		break;
	case 2:
		ret = read_memory(&quarter, address, 2);
		value = quarter;
		break;
	case 4:
		ret = read_memory(&half, address, 4);
		value = half;
		break;
	default:
		ret = read_memory(&value, address, 8);
	}
	return ret ? ret : (value ^ expected) & mask ? MEMWAIT_NOT_EQUAL : 0;
}

/* Queues. */

static unsigned int bucket_of(const struct key *key)
{
	return (unsigned int)((key->space * 31 + key->offset / 4 + key->offset / 4096) % BUCKETS);
}

static struct word *find_word(const struct key *key)
{
	struct word *word = shared->buckets[bucket_of(key)];

	while (word && !same(&word->key, key))
		word = word->next;
	return word;
}

static struct word *need_word(const struct key *key)
{
	struct word **bucket = &shared->buckets[bucket_of(key)], *word = find_word(key);

	if (word)
		return word;
	word = shared->free_words;
	if (!word)
		abort();
	shared->free_words = word->next;
	*word = (struct word){ .next = *bucket, .key = *key };
	*bucket = word;
	return word;
}

static struct entry *first_owned(const struct word *word)
{
	struct entry *entry = word->first;

	while (entry && !entry->wait->owned)
		entry = entry->next;
	return entry;
}

/* A word without waiters is forgotten, and one without MEMWAIT_OWNED waiters watches no owner. */
static void put_word(struct word *word)
{
	struct word **where = &shared->buckets[bucket_of(&word->key)];

	if (!first_owned(word))
		word->watched = 0;
	if (word->first)
		return;
	while (*where != word)
		where = &(*where)->next;
	*where = word->next;
	word->next = shared->free_words;
	shared->free_words = word;
}

static void append(struct word *word, struct entry *entry)
{
	entry->word = word;
	entry->next = NULL;
	entry->previous = word->last;
	*(word->last ? &word->last->next : &word->first) = entry;
	word->last = entry;
}

static void detach(struct entry *entry)
{
	struct word *word = entry->word;

	*(entry->next ? &entry->next->previous : &word->last) = entry->previous;
	*(entry->previous ? &entry->previous->next : &word->first) = entry->next;
	entry->word = NULL;
}

static struct wait *new_wait(void)
{
	struct wait *wait = shared->free_waits;

	if (!wait)
		return NULL;
	shared->free_waits = wait->next;
	*wait = (struct wait){ .next = shared->used_waits, .used = true };
	shared->used_waits = wait;
	return wait;
}

static bool add_entry(struct wait *wait, const struct key *key, uint32_t flags, uint32_t index)
{
	struct entry *entry = shared->free_entries;

	if (!entry)
		return false;
	shared->free_entries = entry->of_wait;
	*entry = (struct entry){
		.of_wait = wait->entries, .wait = wait, .index = index,
		.names_owner = (flags & MEMWAIT_SIZE_MASK) == MEMWAIT_SIZE_U64,
	};
	wait->entries = entry;
	append(need_word(key), entry);
	return true;
}

static bool is_queued(const struct wait *wait)
{
	return wait->entries;
}

/* Removes a wait from all its queues. */
static void withdraw(struct wait *wait)
{
	struct entry *entry;
	struct word *word;

	while ((entry = wait->entries)) {
		word = entry->word;
		detach(entry);
		put_word(word);
		wait->entries = entry->of_wait;
		entry->of_wait = shared->free_entries;
		shared->free_entries = entry;
	}
}

static void free_wait(struct wait *wait)
{
	struct wait **where = &shared->used_waits;

	withdraw(wait);
	if (wait->done)
		wait->done->wait = NULL;
	while (*where != wait)
		where = &(*where)->next;
	*where = wait->next;
	wait->used = false;
	wait->next = shared->free_waits;
	shared->free_waits = wait;
}

/* Opens the writer of a context's pipe. */
static int open_writer(const struct context *context)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", shared->keeper,
		 FIRST_WRITER + (int)(context - shared->contexts));
	return (int)__real_syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
}

/* Makes the pipe readable or not. */
static void set_readable(struct context *context, bool readable, int fd)
{
	char byte = 0;
	int end = fd;

	if (context->readable == readable)
		return;
	if (readable) {
		end = open_writer(context);
		if (end < 0)
			return;
		__real_syscall(SYS_write, end, &byte, 1);
		__real_syscall(SYS_close, end);
	} else {
		__real_syscall(SYS_read, end, &byte, 1);
	}
	context->readable = readable;
}

static struct completion *complete(struct wait *wait, int outcome, uint32_t index,
				   const struct key *key)
{
	struct completion *done = shared->free_completions;
	struct context *context = wait->context;

	if (!done)
		abort();
	shared->free_completions = done->next;
	*done = (struct completion){
		.what = {
			.user_data = wait->user_data, .id = wait->id, .result = outcome,
			.index = index, .count = outcome == MEMWAIT_OK,
		},
	};
	if (key)
		done->key = *key;
	*context->last = done;
	context->last = &done->next;
	set_readable(context, true, -1);
	return done;
}

static uint64_t identity_of(const struct wait *wait)
{
	return wait->thread ? wait->thread->id : wait->context->id;
}

/* Ends a wait, at one of its entries if a notify or a death is the reason. */
static void end_wait(struct wait *wait, struct entry *at, int outcome)
{
	struct key key = { 0 };
	uint32_t index = 0;

	if (at) {
		key = at->word->key;
		index = outcome == MEMWAIT_OK ? at->index : 0;
		if (wait->owned)
			at->word->watched = identity_of(wait);
	}
	withdraw(wait);
	if (wait->context) {
		complete(wait, outcome, index, &key);
		free_wait(wait);
		return;
	}
	wait->outcome = outcome;
	wait->index = index;
	wait->woken_at = key;
	__atomic_store_n(&wait->woken, 1, __ATOMIC_RELEASE);
	futex(&wait->woken, FUTEX_WAKE, 1, NULL);
}

/* Counts a notify of a persistent wait, which moves to the end of the queue. */
static void count_notify(struct entry *entry)
{
	struct wait *wait = entry->wait;
	struct word *word = entry->word;

	detach(entry);
	append(word, entry);
	if (wait->done) {
		wait->done->what.count++;
		return;
	}
	wait->done = complete(wait, MEMWAIT_OK, 0, &word->key);
	wait->done->what.flags = MEMWAIT_MORE;
	wait->done->wait = wait;
}

static int count_waiters(const struct key *key)
{
	const struct word *word = find_word(key);
	const struct entry *entry;
	int n = 0;

	for (entry = word ? word->first : NULL; entry; entry = entry->next)
		n++;
	return n;
}

/* Returns how many waiters were woken. Waiters that join during the call are not. */
static int wake(const struct key *key, uint32_t count)
{
	struct word *word = find_word(key);
	int n = 0, most = word ? count_waiters(key) : 0;

	while (n < most && (uint32_t)n < count && (word = find_word(key))) {
		if (word->first->wait->persistent)
			count_notify(word->first);
		else
			end_wait(word->first->wait, word->first, MEMWAIT_OK);
		n++;
	}
	return n;
}

/* Owners. */

/* Ids look random, as in the module: no test may rely on their order. */
static uint64_t new_id(void)
{
	uint64_t id;

	do
		id = ++shared->last_owner * 0x9e3779b97f4a7c15ULL & MEMWAIT_OWNER_MASK;
	while (!id);
	return id;
}

static bool has_ended(struct thread *thread)
{
	return __atomic_load_n((uint32_t *)&thread->alive.__data.__lock, __ATOMIC_ACQUIRE) &
	       FUTEX_OWNER_DIED;
}

static bool is_dead(uint64_t id)
{
	int i;

	for (i = 0; i < CONTEXTS; i++)
		if (shared->contexts[i].used && shared->contexts[i].id == id)
			return shared->contexts[i].ended;
	for (i = 0; i < THREADS; i++)
		if (shared->threads[i].used && shared->threads[i].id == id)
			return has_ended(&shared->threads[i]);
	return true;
}

/* Reports a death to each word that watches the owner. @ended: the thread has ended by itself. */
static void report_death(uint64_t id, bool ended)
{
	struct word *word, *next;
	struct entry *entry;
	int i;

	for (i = 0; id && i < BUCKETS; i++) {
		for (word = shared->buckets[i]; word; word = next) {
			next = word->next;
			if (word->watched != id)
				continue;
			word->watched = 0;
			entry = first_owned(word);
			if (entry && (!ended || entry->names_owner))
				end_wait(entry->wait, entry, MEMWAIT_OWNER_DIED);
		}
	}
}

/* A child has the pointer of the thread that forked it. */
static void thread_ends(void *argument)
{
	struct thread *thread = argument;

	if (thread->tid == (pid_t)__real_syscall(SYS_gettid))
		thread->ended = true;
}

static struct thread *need_thread(void)
{
	pid_t pid = (pid_t)__real_syscall(SYS_getpid);
	pthread_mutexattr_t attributes;
	struct thread *thread = shared->threads;

	if (own_thread && own_process == pid)
		return own_thread;
	while (thread < &shared->threads[THREADS] && thread->used)
		thread++;
	if (thread == &shared->threads[THREADS])
		abort();
	*thread = (struct thread){ .used = true, .tid = (pid_t)__real_syscall(SYS_gettid) };
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&thread->alive, &attributes);
	pthread_mutex_lock(&thread->alive);
	pthread_setspecific(thread_end, thread);
	if (shared->most_threads <= thread - shared->threads)
		shared->most_threads = (uint32_t)(thread - shared->threads) + 1;
	own_thread = thread;
	own_process = pid;
	kick_keeper();
	return thread;
}

/* Removes the waits of an ended thread. A notify that it has not used wakes the next waiter. */
static void reap_thread(struct thread *thread)
{
	struct wait *wait, *next;

	for (wait = shared->used_waits; wait; wait = next) {
		next = wait->next;
		if (wait->thread != thread)
			continue;
		if (!is_queued(wait) && wait->outcome == MEMWAIT_OK)
			wake(&wait->woken_at, 1);
		free_wait(wait);
		/* The notify may have ended @next. */
		next = shared->used_waits;
	}
	thread->used = false;
	report_death(thread->id, thread->ended);
}

/*
 * Ends a context. Its waits wake no waiter; completions that were not read pass their notifies on.
 */
static void end_context(struct context *context)
{
	struct completion *done;
	struct wait *wait, *next;

	if (context->ended)
		return;
	context->ended = true;
	for (wait = shared->used_waits; wait; wait = next) {
		next = wait->next;
		if (wait->context == context)
			free_wait(wait);
	}
	while ((done = context->first)) {
		context->first = done->next;
		if (done->what.result == MEMWAIT_OK)
			wake(&done->key, 1);
		done->next = shared->free_completions;
		shared->free_completions = done;
	}
	context->last = &context->first;
	report_death(context->id, false);
}

static bool has_reader(const struct context *context)
{
	const struct timespec immediately = { 0 };
	struct pollfd pfd = { .fd = open_writer(context) };

	if (pfd.fd < 0)
		return true;
	poll_one(&pfd, &immediately);
	__real_syscall(SYS_close, pfd.fd);
	return !(pfd.revents & POLLERR);
}

static void release_context(struct context *context)
{
	end_context(context);
	context->used = false;
}

/*
 * Finds ended threads and contexts. A killed process has no wait any more when its parent knows of
 * its death, so each call does this first. @all: even contexts that have never had a wait.
 */
static void catch_up(bool all)
{
	const pid_t self = (pid_t)__real_syscall(SYS_getpid);
	struct context *context;
	uint32_t i;

	for (i = 0; i < shared->most_threads; i++)
		if (shared->threads[i].used && has_ended(&shared->threads[i]))
			reap_thread(&shared->threads[i]);
	for (i = 0; i < shared->most_contexts; i++) {
		context = &shared->contexts[i];
		if (!context->used || (!all && !context->was_used) || context->bound == self)
			continue;
		if (!has_reader(context))
			release_context(context);
		else if (context->bound && !context->ended && process_has_ended(context->bound))
			end_context(context);
	}
}

/* The keeper. */

static bool has_passed(const struct wait *wait)
{
	return wait->deadline != MEMWAIT_FOREVER && wait->deadline <= now(wait->realtime);
}

/* Ends overdue waits. Returns the time until the next deadline, or UINT64_MAX. */
static uint64_t end_overdue(void)
{
	uint64_t least = UINT64_MAX, left;
	struct wait *wait, *next;

	for (wait = shared->used_waits; wait; wait = next) {
		next = wait->next;
		if (wait->deadline == MEMWAIT_FOREVER || !is_queued(wait))
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
	uint64_t signals, left;
	uint32_t kicks;

	for (;;) {
		kicks = __atomic_load_n(&shared->kick, __ATOMIC_ACQUIRE);
		lock(&signals);
		catch_up(true);
		left = end_overdue();
		if (shared->most_threads + shared->most_contexts && left > TICK_NS)
			left = TICK_NS;
		unlock(&signals);
		time.tv_sec = (time_t)(left / 1000000000);
		time.tv_nsec = (long)(left % 1000000000);
		futex(&shared->kick, FUTEX_WAIT, kicks, left == UINT64_MAX ? NULL : &time);
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
		shared->contexts[i].inode = st.st_ino;
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
	int i;

	drop_capabilities();
	shared = __real_mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shared == MAP_FAILED)
		abort();
	shared->keeper = getpid();
	for (i = WAITS - 1; i >= 0; i--) {
		shared->waits[i].next = shared->free_waits;
		shared->free_waits = &shared->waits[i];
	}
	for (i = ENTRIES - 1; i >= 0; i--) {
		shared->entries[i].of_wait = shared->free_entries;
		shared->free_entries = &shared->entries[i];
	}
	for (i = WORDS - 1; i >= 0; i--) {
		shared->words[i].next = shared->free_words;
		shared->free_words = &shared->words[i];
	}
	for (i = COMPLETIONS - 1; i >= 0; i--) {
		shared->completions[i].next = shared->free_completions;
		shared->free_completions = &shared->completions[i];
	}
	make_pipes();
	pthread_key_create(&thread_end, thread_ends);
	pthread_atfork(NULL, NULL, close_writers);
	/* The keeper takes no signal. */
	__real_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &signals, SIGNALS);
	if (pthread_create(&thread, NULL, keep, NULL))
		abort();
	__real_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &signals, NULL, SIGNALS);
}

/* The calls. These functions take the lock. */

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
		if (shared->contexts[i].inode == st.st_ino)
			return &shared->contexts[i];
	return NULL;
}

static void enter(uint64_t *signals)
{
	lock(signals);
	catch_up(false);
}

/* Compares all words. Returns 0 if the caller must wait. */
static int begin(struct wait *wait, const struct memwait_wait *waits, uint32_t nr, uint32_t allowed,
		 struct key *keys, uint32_t *index)
{
	uint64_t id;
	uint32_t i;
	int ret;

	for (i = 0; i < nr; i++) {
		ret = waits[i].reserved ? -EINVAL : check(waits[i].addr, waits[i].flags, allowed);
		if (ret)
			return ret;
	}
	if (wait->owned && !identity_of(wait))
		return -EPERM;
	for (i = 0; i < nr; i++) {
		ret = key_of(&keys[i], waits[i].addr, waits[i].flags);
		if (ret)
			return ret;
	}
	for (i = 0; i < nr; i++) {
		ret = compare(waits[i].addr, waits[i].expected, waits[i].flags);
		if (ret == MEMWAIT_NOT_EQUAL)
			*index = i;
		if (ret)
			return ret;
	}
	id = waits->expected & MEMWAIT_OWNER_MASK;
	if (wait->owned && (waits->flags & MEMWAIT_SIZE_MASK) == MEMWAIT_SIZE_U64 && id &&
	    is_dead(id))
		return MEMWAIT_OWNER_DIED;
	return has_passed(wait) ? MEMWAIT_TIMED_OUT : 0;
}

/* Joins the queues of all words. Returns 0 or an error. */
static int join(struct wait *wait, const struct memwait_wait *waits, uint32_t nr,
		const struct key *keys)
{
	uint32_t i;

	for (i = 0; i < nr; i++)
		if (!add_entry(wait, &keys[i], waits[i].flags, i))
			return -ENOSPC;
	if (wait->owned && wait->entries->names_owner && waits->expected & MEMWAIT_OWNER_MASK)
		wait->entries->word->watched = waits->expected & MEMWAIT_OWNER_MASK;
	if (wait->deadline != MEMWAIT_FOREVER)
		kick_keeper();
	return 0;
}

/* volatile: pthread_cleanup_push() may use setjmp(). */
struct sleep {
	struct wait *volatile wait;
};

/* Runs when the wait has ended, and when the thread is cancelled. */
static void __attribute__((noinline)) end_sleep(void *argument)
{
	struct sleep *sleep = argument;
	uint64_t signals;

	lock(&signals);
	if (sleep->wait)
		free_wait(sleep->wait);
	sleep->wait = NULL;
	unlock(&signals);
}

/*
 * Sleeps until the wait has ended or a signal ends it. The caller may have enabled asynchronous
 * cancellation.
 */
static int sleep_on(struct wait *wait, uint32_t *index, const uint64_t *signals)
{
	struct sleep sleep = { .wait = wait };
	uint64_t blocked;
	volatile int ret = 0;	/* as in struct sleep */

	/* The lock is held. */
	pthread_cleanup_push(end_sleep, &sleep);
	wait->asleep = true;
	unlock(signals);
	while (!__atomic_load_n(&wait->woken, __ATOMIC_ACQUIRE)) {
		if (futex(&wait->woken, FUTEX_WAIT, 0, NULL) && errno == EINTR) {
			ret = -EINTR;
			break;
		}
	}
	lock(&blocked);
	if (!is_queued(wait)) {
		ret = wait->outcome;
		*index = wait->index;
	}
	free_wait(wait);
	sleep.wait = NULL;
	unlock(&blocked);
	pthread_cleanup_pop(0);
	return ret;
}

static int wait_thread(const struct memwait_wait *waits, uint32_t nr, uint64_t deadline,
		       uint32_t flags, uint32_t *index)
{
	struct key keys[MEMWAIT_GROUP_MAX];
	struct wait *wait;
	uint64_t signals;
	int ret;

	enter(&signals);
	wait = new_wait();
	if (!wait)
		abort();
	wait->thread = need_thread();
	wait->deadline = deadline;
	wait->realtime = flags & MEMWAIT_CLOCK_REALTIME;
	wait->owned = flags & MEMWAIT_OWNED;
	ret = begin(wait, waits, nr, MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE | MEMWAIT_CLOCK_REALTIME |
		    MEMWAIT_OWNED, keys, index);
	if (!ret)
		ret = join(wait, waits, nr, keys);
	if (!ret)
		return sleep_on(wait, index, &signals);
	free_wait(wait);
	unlock(&signals);
	return ret;
}

static int wait_one(const struct memwait_wait *wait)
{
	uint32_t index;

	return wait_thread(wait, 1, wait->deadline, wait->flags, &index);
}

static int check_group(const struct memwait_wait_any *any, uint32_t allowed)
{
	return any->flags & ~allowed || any->reserved || !any->count ||
	       any->count > MEMWAIT_GROUP_MAX ? -EINVAL : 0;
}

static int wait_any(struct memwait_wait_any *any)
{
	struct memwait_wait waits[MEMWAIT_GROUP_MAX];
	uint32_t index = any->index, i;
	int ret;

	ret = check_group(any, MEMWAIT_CLOCK_REALTIME);
	if (ret)
		return ret;
	if (read_memory(waits, any->waits, any->count * sizeof(waits[0])))
		return -EFAULT;
	for (i = 0; i < any->count; i++)
		if (waits[i].flags & ~(MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE))
			return -EINVAL;
	ret = wait_thread(waits, any->count, any->deadline, any->flags, &index);
	any->index = index;
	return ret;
}

#define WORD_FLAGS	(MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE)

static int notify(const struct memwait_notify *notify)
{
	uint64_t signals;
	struct key key;
	int ret = check(notify->addr, notify->flags, WORD_FLAGS);

	if (ret)
		return ret;
	enter(&signals);
	ret = key_of(&key, notify->addr, notify->flags);
	if (!ret)
		ret = wake(&key, notify->count);
	unlock(&signals);
	return ret;
}

/*
 * A waiter is counted when its thread sleeps: before, a signal that a test sends because of the
 * count would not end the wait.
 */
static int waiters(const struct memwait_notify *notify)
{
	struct entry *entry;
	struct word *word;
	uint64_t signals;
	struct key key;
	int n = 0;
	int ret = notify->count ? -EINVAL : check(notify->addr, notify->flags, WORD_FLAGS);

	if (ret)
		return ret;
	enter(&signals);
	ret = key_of(&key, notify->addr, notify->flags);
	word = ret ? NULL : find_word(&key);
	for (entry = word ? word->first : NULL; entry; entry = entry->next) {
		if (entry->wait->thread && entry->wait->asleep) {
			if (state_of(entry->wait->thread->tid) != 'R')
				entry->wait->asleep = false;
		}
		n += !entry->wait->thread || !entry->wait->asleep;
	}
	unlock(&signals);
	return ret ? ret : n;
}

static int change_notify(struct memwait_change *change)
{
	const bool if_none_woken = change->operation & MEMWAIT_CHANGE_IF_NONE_WOKEN;
	const uint32_t operation = change->operation & ~MEMWAIT_CHANGE_IF_NONE_WOKEN;
	const uint32_t size = change->notify.flags & MEMWAIT_SIZE_MASK;
	uint32_t *word = (void *)(uintptr_t)(change->notify.addr & ~3ULL);
	uint32_t probe;
	uint64_t signals;
	struct key key;
	int ret = check(change->notify.addr, change->notify.flags, WORD_FLAGS), n = 0;

	if (ret || operation > MEMWAIT_CHANGE_XOR || change->reserved ||
	    (if_none_woken ? size > MEMWAIT_SIZE_U32 : size != MEMWAIT_SIZE_U32))
		return -EINVAL;
	enter(&signals);
	ret = key_of(&key, change->notify.addr, change->notify.flags);
	if (!ret && if_none_woken)
		n = wake(&key, change->notify.count);
	change->old = 0;
	if (!ret && !n) {
		if (!range_of((uintptr_t)word, true) || read_memory(&probe, (uintptr_t)word, 4))
			ret = -EFAULT;
		else
			change->old = stress_change(word, operation, change->operand);
	}
	if (!ret && !if_none_woken)
		n = wake(&key, change->notify.count);
	unlock(&signals);
	return ret ? ret : n;
}

static int requeue(struct memwait_requeue *requeue)
{
	struct word *source, *target;
	struct entry *entry, *next;
	uint64_t signals;
	struct key from, to;
	int ret;

	ret = requeue->reserved ? -EINVAL : check(requeue->addr, requeue->flags, WORD_FLAGS);
	if (!ret)
		ret = check(requeue->target, requeue->flags, WORD_FLAGS);
	if (ret)
		return ret;
	requeue->woken = 0;
	requeue->moved = 0;
	enter(&signals);
	ret = key_of(&from, requeue->addr, requeue->flags);
	if (!ret)
		ret = key_of(&to, requeue->target, requeue->flags);
	if (!ret && !same_object(&from, &to))
		ret = -EXDEV;
	if (!ret)
		ret = compare(requeue->addr, requeue->expected, requeue->flags);
	if (!ret) {
		requeue->woken = (uint32_t)wake(&from, requeue->count);
		source = find_word(&from);
		for (entry = source ? source->first : NULL;
		     entry && requeue->moved < requeue->move; entry = next) {
			next = entry->next;
			if (entry->wait->persistent)
				continue;
			requeue->moved++;
			if (same(&from, &to))
				continue;
			target = need_word(&to);
			detach(entry);
			append(target, entry);
		}
		if (source)
			put_word(source);
	}
	unlock(&signals);
	return ret;
}

static int notify_wait(struct memwait_notify_wait *both)
{
	int ret;

	if (both->state > MEMWAIT_NOTIFIED || both->wait.reserved)
		return -EINVAL;
	ret = check(both->wait.addr, both->wait.flags,
		    WORD_FLAGS | MEMWAIT_CLOCK_REALTIME | MEMWAIT_OWNED);
	if (!ret)
		ret = check(both->notify.addr, both->notify.flags, WORD_FLAGS);
	if (ret)
		return ret;
	if (!both->state) {
		ret = compare(both->wait.addr, both->wait.expected, both->wait.flags);
		if (ret >= 0)
			ret = notify(&both->notify);
		if (ret < 0)
			return ret;
		both->notified = (uint32_t)ret;
	}
	both->state = 0;
	ret = wait_one(&both->wait);
	if (ret == -EINTR)
		both->state = MEMWAIT_NOTIFIED;
	return ret;
}

static int notify_many(const struct memwait_notify_many *many)
{
	struct memwait_notify one;
	uint32_t i;
	int ret;

	if (many->flags || many->count > INT32_MAX)
		return -EINVAL;
	for (i = 0; i < many->count; i++) {
		ret = read_memory(&one, many->notifies + i * sizeof(one), sizeof(one));
		if (!ret)
			ret = notify(&one);
		if (ret < 0)
			return i ? (int)i : ret;
		if (many->woken)
			((uint32_t *)(uintptr_t)many->woken)[i] = (uint32_t)ret;
	}
	return (int)i;
}

static int may_use(struct context *context)
{
	if (context->ended || (context->bound && context->bound != getpid()))
		return -EPERM;
	context->was_used = true;
	return 0;
}

static int owner(struct context *context, struct memwait_owner *owner)
{
	const uint32_t bind = MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND;
	struct thread *thread;
	uint64_t signals;
	int ret = 0;

	if (owner->reserved || (owner->flags & ~bind && owner->flags != MEMWAIT_OWNER_EXIT) ||
	    owner->flags == MEMWAIT_OWNER_BIND)
		return -EINVAL;
	enter(&signals);
	if (owner->flags & MEMWAIT_OWNER_CONTEXT) {
		if (owner->flags & MEMWAIT_OWNER_BIND && !context->bound) {
			if (context->was_used || context->id)
				ret = -EBUSY;
			else
				context->bound = getpid();
		} else if (owner->flags & MEMWAIT_OWNER_BIND) {
			ret = may_use(context);
		}
		if (!ret && !context->id)
			context->id = new_id();
		owner->id = context->id;
	} else {
		thread = need_thread();
		if (!thread->id && owner->flags != MEMWAIT_OWNER_EXIT)
			thread->id = new_id();
		owner->id = thread->id;
		if (owner->flags == MEMWAIT_OWNER_EXIT) {
			thread->id = 0;
			report_death(owner->id, true);
		}
	}
	unlock(&signals);
	return ret;
}

static void arm(struct context *context, struct memwait_async *async)
{
	const bool group = async->wait.flags & MEMWAIT_GROUP;
	const uint32_t allowed = group ? WORD_FLAGS : WORD_FLAGS | MEMWAIT_CLOCK_REALTIME |
				 MEMWAIT_OWNED | MEMWAIT_PERSISTENT;
	struct memwait_wait waits[MEMWAIT_GROUP_MAX] = { async->wait };
	struct key keys[MEMWAIT_GROUP_MAX];
	struct wait *wait;
	uint32_t nr = 1, index;
	int ret = async->reserved ? -EINVAL : 0;

	async->id = 0;
	if (!ret && group) {
		nr = async->any.count;
		ret = check_group(&async->any, MEMWAIT_GROUP | MEMWAIT_CLOCK_REALTIME);
		if (!ret)
			ret = read_memory(waits, async->any.waits, nr * sizeof(waits[0]));
	} else if (async->wait.flags & MEMWAIT_OWNED && async->wait.flags & MEMWAIT_PERSISTENT) {
		ret = -EINVAL;
	}
	wait = ret ? NULL : new_wait();
	if (!wait) {
		async->result = ret ? ret : -ENOSPC;
		return;
	}
	wait->context = context;
	wait->deadline = async->wait.deadline;
	wait->realtime = async->wait.flags & MEMWAIT_CLOCK_REALTIME;
	wait->owned = async->wait.flags & MEMWAIT_OWNED;
	wait->persistent = async->wait.flags & MEMWAIT_PERSISTENT;
	wait->user_data = async->user_data;
	ret = begin(wait, waits, nr, allowed, keys, &index);
	if (ret == MEMWAIT_NOT_EQUAL && group)
		async->any.index = index;
	if (!ret)
		ret = join(wait, waits, nr, keys);
	if (ret) {
		free_wait(wait);
		async->result = ret;
		return;
	}
	wait->id = ++shared->last_wait;
	async->id = wait->id;
	async->result = MEMWAIT_PENDING;
}

static int wait_async(struct context *context, const struct memwait_wait_async *batch)
{
	struct memwait_async async;
	uint64_t signals;
	uint32_t i;
	int ret;

	if (batch->entry_size != sizeof(async) || batch->count > INT32_MAX)
		return -EINVAL;
	enter(&signals);
	ret = may_use(context);
	for (i = 0; !ret && i < batch->count; i++) {
		ret = read_memory(&async, batch->waits + i * sizeof(async), sizeof(async));
		if (ret)
			break;
		arm(context, &async);
		((struct memwait_async *)(uintptr_t)batch->waits)[i] = async;
	}
	unlock(&signals);
	return i ? (int)i : ret;
}

static int cancel(struct context *context, const struct memwait_cancel *cancel)
{
	struct wait *wait;
	uint64_t signals;
	int ret;

	enter(&signals);
	ret = may_use(context);
	if (!ret && (cancel->flags || cancel->reserved))
		ret = -EINVAL;
	if (!ret) {
		wait = shared->used_waits;
		while (wait && (wait->context != context || wait->id != cancel->id))
			wait = wait->next;
		if (wait && wait->done)
			wait->done->what.flags = 0;
		if (wait)
			free_wait(wait);
		else
			ret = -ENOENT;
	}
	unlock(&signals);
	return ret;
}

static int info(struct memwait_info *info)
{
	const struct wait *wait;
	uint64_t signals;
	int i;

	*info = (struct memwait_info){
		.features = MEMWAIT_FEATURE_WAIT_U64 | MEMWAIT_FEATURE_OWNERS,
		.max_group = MEMWAIT_GROUP_MAX, .max_user_waits = WAITS,
		.max_user_contexts = CONTEXTS, .max_user_owners = THREADS,
	};
	enter(&signals);
	for (wait = shared->used_waits; wait; wait = wait->next)
		info->user_waits += !!wait->context;
	for (i = 0; i < CONTEXTS; i++) {
		const struct completion *done;

		info->user_contexts += shared->contexts[i].used;
		info->user_owners += shared->contexts[i].used && shared->contexts[i].id;
		for (done = shared->contexts[i].first; done; done = done->next)
			info->user_waits += !done->wait;
	}
	for (i = 0; i < THREADS; i++)
		info->user_owners += shared->threads[i].used && shared->threads[i].id;
	unlock(&signals);
	return 0;
}

/* Returns an error if the argument cannot be read or written. */
static int probe(unsigned long command, const void *argument)
{
	char copy[128];
	uint64_t signals;
	int ret;

	ret = read_memory(copy, (uintptr_t)argument, _IOC_SIZE(command));
	if (ret || !(_IOC_DIR(command) & _IOC_READ))
		return ret;
	enter(&signals);
	ret = range_of((uintptr_t)argument, true) ? 0 : -EFAULT;
	unlock(&signals);
	return ret;
}

static int device_call(struct context *context, unsigned long command, void *argument)
{
	int ret;

	if (_IOC_TYPE(command) != MEMWAIT_IOC_MAGIC || _IOC_SIZE(command) > 128)
		return -ENOTTY;
	ret = probe(command, argument);
	if (ret)
		return ret;
	switch (command) {
	case MEMWAIT_IOC_INFO:
		return info(argument);
	case MEMWAIT_IOC_WAIT:
		return wait_one(argument);
	case MEMWAIT_IOC_WAIT_ANY:
		return wait_any(argument);
	case MEMWAIT_IOC_NOTIFY:
		return notify(argument);
	case MEMWAIT_IOC_NOTIFY_MANY:
		return notify_many(argument);
	case MEMWAIT_IOC_WAITERS:
		return waiters(argument);
	case MEMWAIT_IOC_NOTIFY_WAIT:
		return notify_wait(argument);
	case MEMWAIT_IOC_REQUEUE:
		return requeue(argument);
	case MEMWAIT_IOC_CHANGE_NOTIFY:
		return change_notify(argument);
	case MEMWAIT_IOC_OWNER:
		return owner(context, argument);
	case MEMWAIT_IOC_WAIT_ASYNC:
		return wait_async(context, argument);
	case MEMWAIT_IOC_CANCEL:
		return cancel(context, argument);
	default:
		return -ENOTTY;
	}
}

static int result(int ret)
{
	if (ret >= 0)
		return ret;
	errno = -ret;
	return -1;
}

static ssize_t read_context(struct context *context, int fd, void *buffer, size_t size)
{
	const size_t most = size / sizeof(struct memwait_completion);
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct memwait_completion *to = buffer;
	struct completion *done;
	uint64_t signals;
	size_t n = 0;
	int ret;

	if (!most)
		return -EINVAL;
	do {
		enter(&signals);
		ret = may_use(context);
		while (!ret && n < most && (done = context->first)) {
			to[n++] = done->what;
			if (done->wait)
				done->wait->done = NULL;
			context->first = done->next;
			if (!context->first)
				context->last = &context->first;
			done->next = shared->free_completions;
			shared->free_completions = done;
		}
		/* If completions are left, an edge-triggered epoll must see another edge. */
		if (!ret)
			set_readable(context, false, fd);
		if (!ret && context->first)
			set_readable(context, true, -1);
		unlock(&signals);
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
	uint64_t signals;
	int fd = -EMFILE;

	lock(&signals);
	catch_up(true);
	while (context < &shared->contexts[CONTEXTS] && context->used)
		context++;
	if (context < &shared->contexts[CONTEXTS]) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", shared->keeper,
			 FIRST_WRITER + (int)(context - shared->contexts));
		fd = (int)__real_syscall(SYS_openat, AT_FDCWD, path,
					 O_RDONLY | (flags & ~O_ACCMODE));
		if (fd < 0)
			fd = -errno;
	}
	if (fd >= 0) {
		/* A byte may be left of the previous context. */
		if (context->readable)
			set_readable(context, false, fd);
		*context = (struct context){ .used = true, .inode = context->inode };
		context->last = &context->first;
		if (shared->most_contexts <= context - shared->contexts)
			shared->most_contexts = (uint32_t)(context - shared->contexts) + 1;
		kick_keeper();
	}
	unlock(&signals);
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
	int ret = __real_close(fd);
	uint64_t signals;

	if (context) {
		enter(&signals);
		if (context->used && !has_reader(context))
			release_context(context);
		unlock(&signals);
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
