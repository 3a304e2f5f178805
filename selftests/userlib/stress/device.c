// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for /dev/memwait in user space, for one process. ThreadSanitizer and valgrind run on
 * machines without the module, and cannot observe the kernel in any case.
 *
 * The stress program is linked with --wrap for the calls that the library makes to the device. A
 * context is an eventfd, so that poll() works without a change, and a list of completions.
 *
 * All memory ordering in this file must be hidden from ThreadSanitizer. Otherwise it would
 * attribute this ordering to the library and miss real races. Therefore this file is built without
 * ThreadSanitizer. For synchronisation it uses futexes and direct system calls. It uses neither
 * pthreads nor read() and write(), because their interceptors also order memory.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/memwait.h>

#define CONTEXTS	64
#define WAITERS		4096

int __real_open(const char *path, int flags, ...);
int __real_ioctl(int fd, unsigned long command, void *argument);
ssize_t __real_read(int fd, void *buffer, size_t size);
int __real_close(int fd);

/* The kernel's atomic operation on a word; see change.c. */
uint32_t stress_change(uint32_t *word, uint32_t operation, uint32_t operand);

int __wrap_open(const char *path, int flags, ...);
int __wrap_ioctl(int fd, unsigned long command, void *argument);
ssize_t __wrap_read(int fd, void *buffer, size_t size);
int __wrap_close(int fd);

struct waiter {
	struct waiter *next, *previous;	/* in the queue of all words, oldest first */
	uint64_t word;
	uint64_t deadline;
	bool realtime;
	uint32_t woken;			/* for a thread: the futex on which it sleeps */
	struct context *context;	/* for an async wait, otherwise NULL */
	uint64_t user_data, id;
	bool used;
	bool persistent;
	struct memwait_completion *done;	/* unread, of a persistent wait; or NULL */
};

struct context {
	int fd;				/* descriptor; 0: unused */
	uint64_t id;			/* id as an owner, or 0 */
	struct memwait_completion done[WAITERS];
	unsigned int first, count;	/* indices into the ring buffer */
};

static struct waiter queue = { .next = &queue, .previous = &queue };
static struct context contexts[CONTEXTS];
static struct waiter pool[WAITERS];
static uint64_t last_id, last_owner;
static uint32_t the_lock;
static bool timer_runs;

static long futex(uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL,
		       FUTEX_BITSET_MATCH_ANY);
}

static void lock(void)
{
	while (__atomic_exchange_n(&the_lock, 2, __ATOMIC_ACQUIRE))
		futex(&the_lock, FUTEX_WAIT, 2, NULL);
}

static void unlock(void)
{
	__atomic_store_n(&the_lock, 0, __ATOMIC_RELEASE);
	futex(&the_lock, FUTEX_WAKE, 1, NULL);
}

static uint64_t now(bool realtime)
{
	struct timespec time;

	syscall(SYS_clock_gettime, realtime ? CLOCK_REALTIME : CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static struct context *context_of(int fd)
{
	int i;

	for (i = 0; fd > 0 && i < CONTEXTS; i++)
		if (contexts[i].fd == fd)
			return &contexts[i];
	return NULL;
}

static void append(struct waiter *waiter)
{
	waiter->next = &queue;
	waiter->previous = queue.previous;
	waiter->previous->next = waiter;
	queue.previous = waiter;
}

static void detach(struct waiter *waiter)
{
	waiter->next->previous = waiter->previous;
	waiter->previous->next = waiter->next;
	waiter->next = NULL;
}

static struct memwait_completion *complete(struct waiter *waiter, int result)
{
	struct context *context = waiter->context;
	const uint64_t one = 1;
	struct memwait_completion *done =
		&context->done[(context->first + context->count++) % WAITERS];

	*done = (struct memwait_completion){
		.user_data = waiter->user_data, .id = waiter->id, .result = result,
		.count = result == MEMWAIT_OK,
	};
	waiter->used = waiter->persistent;
	syscall(SYS_write, context->fd, &one, sizeof(one));
	return done;
}

/* Counts a notify of a persistent wait. */
static void count(struct waiter *waiter)
{
	detach(waiter);
	append(waiter);
	if (waiter->done) {
		waiter->done->count++;
		return;
	}
	waiter->done = complete(waiter, MEMWAIT_OK);
	waiter->done->flags = MEMWAIT_MORE;
}

/* The completion has been read. Therefore the next notify creates another completion. */
static void detach_completion(const struct memwait_completion *done)
{
	int slot;

	for (slot = 0; slot < WAITERS; slot++)
		if (pool[slot].used && pool[slot].done == done)
			pool[slot].done = NULL;
}

static bool has_passed(const struct waiter *waiter)
{
	return waiter->deadline != MEMWAIT_FOREVER && waiter->deadline <= now(waiter->realtime);
}

/* Ends overdue async waits. Checks their deadlines ten thousand times a second. */
static void *timer(void *unused)
{
	const struct timespec tick = { 0, 100000 };
	struct waiter *waiter, *next;

	for (;;) {
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &tick, NULL);
		lock();
		for (waiter = queue.next; waiter != &queue; waiter = next) {
			next = waiter->next;
			if (waiter->context && has_passed(waiter)) {
				detach(waiter);
				complete(waiter, MEMWAIT_TIMED_OUT);
			}
		}
		unlock();
	}
	return unused;
}

static void need_timer(void)
{
	pthread_t thread;

	if (timer_runs)
		return;
	timer_runs = true;
	pthread_create(&thread, NULL, timer, NULL);
	pthread_detach(thread);
}

static bool is_equal(const struct memwait_wait *wait)
{
	void *word = (void *)(uintptr_t)wait->addr;

	switch (wait->flags & MEMWAIT_SIZE_MASK) {
	case MEMWAIT_SIZE_U8:
		return __atomic_load_n((uint8_t *)word, __ATOMIC_SEQ_CST) ==
		       (uint8_t)wait->expected;
	case MEMWAIT_SIZE_U16:
		return __atomic_load_n((uint16_t *)word, __ATOMIC_SEQ_CST) ==
		       (uint16_t)wait->expected;
	case MEMWAIT_SIZE_U32:
		return __atomic_load_n((uint32_t *)word, __ATOMIC_SEQ_CST) ==
		       (uint32_t)wait->expected;
	default:
		return __atomic_load_n((uint64_t *)word, __ATOMIC_SEQ_CST) == wait->expected;
	}
}

/* As in shared memory, private and shared waits for the same word have different keys. */
static uint64_t key_of(uint64_t addr, uint32_t flags)
{
	return flags & MEMWAIT_PRIVATE ? addr | 1ULL << 63 : addr;
}

/* Performs all checks before the wait. Returns 0 if the caller must wait. */
static int prepare(struct waiter *waiter, const struct memwait_wait *wait)
{
	if (wait->addr % (1U << (wait->flags & MEMWAIT_SIZE_MASK)))
		return -EINVAL;
	if (wait->addr < 4096)
		return -EFAULT;
	if (!is_equal(wait))
		return MEMWAIT_NOT_EQUAL;
	waiter->word = key_of(wait->addr, wait->flags);
	waiter->deadline = wait->deadline;
	waiter->realtime = wait->flags & MEMWAIT_CLOCK_REALTIME;
	return has_passed(waiter) ? MEMWAIT_TIMED_OUT : 0;
}

static int wait_for(const struct memwait_wait *wait)
{
	struct waiter waiter = { 0 };
	struct timespec time = {
		(time_t)(wait->deadline / 1000000000), (long)(wait->deadline % 1000000000),
	};
	bool forever = wait->deadline == MEMWAIT_FOREVER || wait->deadline > INT64_MAX;
	int operation = FUTEX_WAIT_BITSET, ret;
	long err = 0;

	if (wait->flags & MEMWAIT_CLOCK_REALTIME)
		operation |= FUTEX_CLOCK_REALTIME;
	lock();
	ret = prepare(&waiter, wait);
	if (!ret)
		append(&waiter);
	unlock();
	if (ret)
		return ret;
	while (!__atomic_load_n(&waiter.woken, __ATOMIC_ACQUIRE)) {
		err = futex(&waiter.woken, operation, 0, forever ? NULL : &time);
		if (err && errno != EAGAIN)
			break;
	}
	err = err ? errno : 0;
	lock();
	if (waiter.next) {
		detach(&waiter);
		ret = err == ETIMEDOUT ? MEMWAIT_TIMED_OUT : -EINTR;
	}
	unlock();
	return ret;
}

/* Called with the lock held. */
static int wake(const struct memwait_notify *notify, bool only_count)
{
	struct waiter *waiter, *next, *last = queue.previous;
	int n = 0;

	/* Persistent waits are moved to the end of the queue, behind @last. */
	for (waiter = queue.next; waiter != &queue; waiter = next) {
		next = waiter == last ? &queue : waiter->next;
		if (waiter->word != key_of(notify->addr, notify->flags))
			continue;
		if (!only_count) {
			if ((uint32_t)n == notify->count)
				break;
			if (waiter->persistent) {
				count(waiter);
				n++;
				continue;
			}
			detach(waiter);
			if (waiter->context) {
				complete(waiter, MEMWAIT_OK);
			} else {
				/* The thread may exit as soon as it can acquire the lock. */
				__atomic_store_n(&waiter->woken, 1, __ATOMIC_RELEASE);
				futex(&waiter->woken, FUTEX_WAKE, 1, NULL);
			}
		}
		n++;
	}
	return n;
}

static int notify(const struct memwait_notify *notify, bool only_count)
{
	int n;

	if (notify->addr < 4096)
		return -EFAULT;
	lock();
	n = wake(notify, only_count);
	unlock();
	return n;
}

static int change_notify(struct memwait_change *change)
{
	bool if_none_woken = change->operation & MEMWAIT_CHANGE_IF_NONE_WOKEN;
	int n = 0;

	if (change->notify.addr < 4096)
		return -EFAULT;
	lock();
	if (if_none_woken)
		n = wake(&change->notify, false);
	change->old = n ? 0 : stress_change((uint32_t *)(uintptr_t)(change->notify.addr & ~3ULL),
					    change->operation & ~MEMWAIT_CHANGE_IF_NONE_WOKEN,
					    change->operand);
	if (!if_none_woken)
		n = wake(&change->notify, false);
	unlock();
	return n;
}

/* No process dies in this program, so an owner needs only an id. */
static int owner(struct context *context, struct memwait_owner *owner)
{
	static __thread uint64_t id;
	uint64_t *where = owner->flags & MEMWAIT_OWNER_CONTEXT ? &context->id : &id;

	if (owner->reserved)
		return -EINVAL;
	lock();
	if (!*where)
		*where = ++last_owner;
	unlock();
	owner->id = *where;
	return 0;
}

static int requeue(struct memwait_requeue *requeue)
{
	const struct memwait_wait wait = {
		.addr = requeue->addr, .expected = requeue->expected, .flags = requeue->flags,
	};
	const struct memwait_notify count = {
		.addr = requeue->addr, .count = requeue->count, .flags = requeue->flags,
	};
	struct waiter *waiter, *next, *last;

	if (requeue->addr < 4096 || requeue->target < 4096)
		return -EFAULT;
	lock();
	if (!is_equal(&wait)) {
		unlock();
		return MEMWAIT_NOT_EQUAL;
	}
	requeue->woken = (uint32_t)wake(&count, false);
	last = queue.previous;
	for (waiter = queue.next; waiter != &queue && requeue->moved < requeue->move;
	     waiter = next) {
		next = waiter == last ? &queue : waiter->next;
		if (waiter->word != key_of(requeue->addr, requeue->flags))
			continue;
		detach(waiter);
		waiter->word = key_of(requeue->target, requeue->flags);
		append(waiter);
		requeue->moved++;
	}
	unlock();
	return 0;
}

static int notify_wait(struct memwait_notify_wait *both)
{
	int ret;

	if (!both->state) {
		ret = notify(&both->notify, false);
		if (ret < 0)
			return ret;
		both->notified = (uint32_t)ret;
	}
	both->state = 0;
	ret = wait_for(&both->wait);
	if (ret == -EINTR)
		both->state = MEMWAIT_NOTIFIED;
	return ret;
}

static int wait_async(struct context *context, const struct memwait_wait_async *batch)
{
	struct memwait_async *entries = (void *)(uintptr_t)batch->waits;
	uint32_t i, slot;

	lock();
	for (i = 0; i < batch->count; i++) {
		struct memwait_async *entry = &entries[i];
		struct waiter waiter = { .context = context, .user_data = entry->user_data };

		entry->id = 0;
		entry->result = prepare(&waiter, &entry->wait);
		if (entry->result)
			continue;
		for (slot = 0; slot < WAITERS && pool[slot].used; slot++)
			;
		if (slot == WAITERS) {
			entry->result = -ENOSPC;
			continue;
		}
		pool[slot] = waiter;
		pool[slot].used = true;
		pool[slot].persistent = entry->wait.flags & MEMWAIT_PERSISTENT;
		pool[slot].id = ++last_id;
		append(&pool[slot]);
		if (waiter.deadline != MEMWAIT_FOREVER)
			need_timer();
		entry->id = last_id;
		entry->result = MEMWAIT_PENDING;
	}
	unlock();
	return (int)i;
}

static int cancel(struct context *context, uint64_t id)
{
	int slot, ret = -ENOENT;

	lock();
	for (slot = 0; slot < WAITERS; slot++) {
		if (pool[slot].used && pool[slot].id == id && pool[slot].context == context) {
			detach(&pool[slot]);
			pool[slot].used = false;
			if (pool[slot].done)
				pool[slot].done->flags = 0;
			ret = 0;
		}
	}
	unlock();
	return ret;
}

int __wrap_ioctl(int fd, unsigned long command, void *argument)
{
	struct context *context = context_of(fd);
	int ret = -ENOTTY, state;

	if (!context)
		return __real_ioctl(fd, command, argument);
	/*
	 * The library enables cancellation in its waits. The thread must not be cancelled in this
	 * function.
	 */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	switch (command) {
	case MEMWAIT_IOC_INFO:
		memset(argument, 0, sizeof(struct memwait_info));
		((struct memwait_info *)argument)->max_group = MEMWAIT_GROUP_MAX;
		ret = 0;
		break;
	case MEMWAIT_IOC_WAIT:
		ret = wait_for(argument);
		break;
	case MEMWAIT_IOC_NOTIFY:
	case MEMWAIT_IOC_WAITERS:
		ret = notify(argument, command == MEMWAIT_IOC_WAITERS);
		break;
	case MEMWAIT_IOC_NOTIFY_WAIT:
		ret = notify_wait(argument);
		break;
	case MEMWAIT_IOC_REQUEUE:
		ret = requeue(argument);
		break;
	case MEMWAIT_IOC_CHANGE_NOTIFY:
		ret = change_notify(argument);
		break;
	case MEMWAIT_IOC_OWNER:
		ret = owner(context, argument);
		break;
	case MEMWAIT_IOC_WAIT_ASYNC:
		ret = wait_async(context, argument);
		break;
	case MEMWAIT_IOC_CANCEL:
		ret = cancel(context, ((struct memwait_cancel *)argument)->id);
		break;
	}
	pthread_setcancelstate(state, NULL);
	if (ret >= 0)
		return ret;
	errno = -ret;
	return -1;
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list arguments;
	int i, mode;

	if (strcmp(path, "/dev/memwait")) {
		va_start(arguments, flags);
		mode = va_arg(arguments, int);
		va_end(arguments);
		return __real_open(path, flags, mode);
	}
	lock();
	for (i = 0; i < CONTEXTS && contexts[i].fd; i++)
		;
	if (i < CONTEXTS) {
		contexts[i].id = 0;
		contexts[i].first = 0;
		contexts[i].count = 0;
		contexts[i].fd = (int)syscall(SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC);
	}
	unlock();
	if (i < CONTEXTS)
		return contexts[i].fd;
	errno = EMFILE;
	return -1;
}

ssize_t __wrap_read(int fd, void *buffer, size_t size)
{
	struct context *context = context_of(fd);
	struct memwait_completion *done = buffer;
	size_t n = 0, most = size / sizeof(*done);
	static unsigned int reads;
	uint64_t value;

	if (!context)
		return __real_read(fd, buffer, size);
	lock();
	/* Every third read stops after 16 records. The module does this if a signal is pending. */
	if (!(++reads % 3) && most > 16)
		most = 16;
	while (n < most && context->count) {
		if (context->done[context->first % WAITERS].flags)
			detach_completion(&context->done[context->first % WAITERS]);
		done[n++] = context->done[context->first++ % WAITERS];
		context->count--;
	}
	if (!context->count)
		syscall(SYS_read, context->fd, &value, sizeof(value));
	unlock();
	if (n)
		return (ssize_t)(n * sizeof(*done));
	errno = EAGAIN;
	return -1;
}

int __wrap_close(int fd)
{
	struct context *context = context_of(fd);
	int slot;

	if (!context)
		return __real_close(fd);
	lock();
	for (slot = 0; slot < WAITERS; slot++) {
		if (pool[slot].used && pool[slot].context == context) {
			detach(&pool[slot]);
			pool[slot].used = false;
		}
	}
	context->fd = 0;
	unlock();
	return (int)syscall(SYS_close, fd);
}
