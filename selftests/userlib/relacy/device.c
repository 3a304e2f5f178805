// SPDX-License-Identifier: GPL-2.0
/*
 * A model of the device for simulated threads. It orders exactly what the kernel orders; see the
 * top of module/queue.c.
 *
 * A wait first compares the word, without a lock and without ordering anything. After that it locks
 * the word's queue, compares again, and joins. A notify of a word without waiters does not take the
 * lock. Because of the two full barriers, such a notify is ordered before a later wait, and the
 * later waiter sees everything that preceded the notify. The converse does not hold: the notify is
 * not ordered after any wait. A notify of a word that has a waiter takes the lock. Therefore a wait
 * is ordered after all earlier notifies, and a notify is ordered after earlier waits if there is a
 * waiter. A woken waiter is ordered after the notify.
 *
 * In the kernel several words share a bucket and its lock, and a notify takes the lock if any of
 * these words has a waiter. This only adds order. Therefore each word has its own queue and lock in
 * this model.
 *
 * Async waits are in the same queues. Reading a completion is ordered after the event that created
 * it. The model has async waits only for loops that are closed normally: the ids of loops do not
 * own any word.
 *
 * The top of module/identity.c explains which threads a queue watches. A waiter that receives a
 * death notification is ordered after everything that the dead thread did.
 *
 * The library is linked with --wrap for the system calls that it makes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <linux/memwait.h>

#include "device.h"

#define DEVICE		1000		/* the first descriptor */
#define DESCRIPTORS	8
#define QUEUES		16
#define FIRST_ID	0x100		/* id of the first thread */
#define NO_THREAD		(-1)
#define ASYNC_WAITS	8		/* limit of simultaneous async waits */

int __wrap_open(const char *path, int flags, ...);
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_fstat(int fd, struct stat *st);
ssize_t __wrap_read(int fd, void *buffer, size_t size);
ssize_t __real_read(int fd, void *buffer, size_t size);
int __wrap_ioctl(int fd, unsigned long command, void *argument);
long __wrap_sysconf(int name);
pid_t __wrap_gettid(void);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

struct queue;

struct waiter {
	struct queue *queue;		/* NULL: not queued */
	int outcome;			/* valid when the waiter is not queued */
	uintptr_t word;			/* the word whose queue the waiter has left */
	bool owned;
	bool is_async;			/* part of a struct async, otherwise of a struct thread */
	struct sim_sync woken;		/* set by the thread that dequeued the waiter */
};

struct async {
	struct waiter waiter;
	uint64_t id;			/* 0: unused */
	uint64_t user_data;
	uint64_t completed;		/* number of its completion; 0: still queued */
	int fd;
};

struct thread {
	struct waiter waiter;
	unsigned int life;		/* remaining steps of a mortal thread, or 0 */
	bool dies_of_it;
	bool has_id, dead, ended, asleep;
	bool fails;			/* all its calls fail */
	bool cannot_wake;		/* its calls that wake waiters fail */
	struct sim_sync death;
	jmp_buf end;
};

struct queue {
	uintptr_t word;
	unsigned int nr;
	struct waiter *waiters[SIM_THREADS + ASYNC_WAITS];	/* oldest first */
	int watched;			/* the watched thread, or NOBODY */
	struct sim_sync lock;
};

static struct thread threads[SIM_THREADS];
static unsigned int nr_threads;
static struct queue queues[QUEUES];
static unsigned int nr_queues;
static bool (*may_all_stop)(void);
static bool stopping;
static bool missing;
static bool is_open[DESCRIPTORS];
static struct async asyncs[ASYNC_WAITS];
static uint64_t last_id, last_completion;

/*
 * The lower half is the descriptor that the library has opened in this execution or in an earlier
 * one; see device.h.
 */
extern uint64_t memwait_device_context;

void device_set_up(unsigned int nr)
{
	int i;

	for (i = 0; i < DESCRIPTORS; i++)
		is_open[i] = (uint32_t)memwait_device_context == DEVICE + (unsigned int)i;
	memset(threads, 0, sizeof(threads));
	memset(queues, 0, sizeof(queues));
	memset(asyncs, 0, sizeof(asyncs));
	nr_threads = nr;
	nr_queues = 0;
	may_all_stop = NULL;
	stopping = false;
	missing = false;
}

void device_is_missing(void)
{
	missing = true;
}

void device_close_all(void)
{
	memset(is_open, 0, sizeof(is_open));
}

unsigned int device_descriptors(void)
{
	unsigned int nr = 0, i;

	for (i = 0; i < DESCRIPTORS; i++)
		nr += is_open[i];
	return nr;
}

void device_fails(bool fails)
{
	threads[sim_thread()].fails = fails;
}

void device_mortal(unsigned int thread, unsigned int steps)
{
	threads[thread].life = 1 + sim_random(steps);
	threads[thread].dies_of_it = sim_random(8);
}

static struct thread *current(void)
{
	return &threads[sim_thread()];
}

void device_cannot_wake(bool cannot)
{
	threads[sim_thread()].cannot_wake = cannot;
}

static bool call_fails(unsigned long command)
{
	return current()->fails || (current()->cannot_wake && (command == MEMWAIT_IOC_NOTIFY ||
							    command == MEMWAIT_IOC_CHANGE_NOTIFY));
}

static unsigned int number_of(const struct thread *thread)
{
	return (unsigned int)(thread - threads);
}

static struct thread *thread_of(struct waiter *waiter)
{
	return (struct thread *)((char *)waiter - offsetof(struct thread, waiter));
}

static struct queue *queue_of(uintptr_t word)
{
	unsigned int i;

	for (i = 0; i < nr_queues; i++) {
		if (queues[i].word == word)
			return &queues[i];
	}
	if (nr_queues == QUEUES)
		sim_fail("more words than the model has queues");
	queues[i].word = word;
	queues[i].watched = NO_THREAD;
	nr_queues++;
	return &queues[i];
}

bool device_is_dead(unsigned int thread)
{
	return threads[thread].dead;
}

unsigned int device_sleepers(void)
{
	unsigned int nr = 0, i;

	for (i = 0; i < nr_threads; i++)
		nr += threads[i].asleep;
	return nr;
}

unsigned int device_sleepers_on(const void *word)
{
	return queue_of((uintptr_t)word)->nr;
}

void device_may_stop(bool (*may_stop)(void))
{
	may_all_stop = may_stop;
}

/* No other thread runs between lock() and unlock(). */
static void lock(struct queue *queue)
{
	sim_acquire(&queue->lock);
}

static void unlock(struct queue *queue)
{
	if (!queue->nr)
		queue->watched = NO_THREAD;
	sim_release(&queue->lock);
}

/* This function and the next two functions are called with the queue locked. */
static void dequeue(struct waiter *waiter)
{
	struct queue *queue = waiter->queue;
	unsigned int i = 0;

	while (queue->waiters[i] != waiter)
		i++;
	for (queue->nr--; i < queue->nr; i++)
		queue->waiters[i] = queue->waiters[i + 1];
	waiter->queue = NULL;
}

static void append(struct queue *queue, struct waiter *waiter)
{
	queue->waiters[queue->nr++] = waiter;
	waiter->queue = queue;
}

static void wake(struct waiter *waiter, int outcome)
{
	struct thread *thread = waiter->is_async ? NULL : thread_of(waiter);

	if (waiter->owned)
		waiter->queue->watched = thread ? (int)number_of(thread) : NO_THREAD;
	waiter->word = waiter->queue->word;
	dequeue(waiter);
	waiter->outcome = outcome;
	sim_release(&waiter->woken);
	if (!thread)
		((struct async *)waiter)->completed = ++last_completion;
	if (thread && thread->asleep) {
		thread->asleep = false;
		sim_unpark(number_of(thread));
	}
}

static void change_word(struct memwait_change *change)
{
	static const enum sim_operation operations[] = {
		SIM_SET, SIM_ADD, SIM_AND, SIM_OR, SIM_XOR,
	};
	uint64_t word = change->notify.addr & ~3ULL;

	change->old = sim_change_u32((void *)(uintptr_t)word,
				     operations[change->operation & ~MEMWAIT_CHANGE_IF_NONE_WOKEN],
				     change->operand);
	sim_note("change %llx: it was %x", (unsigned long long)word, change->old);
}

/* If @change is not NULL and no waiter is woken, performs the change under the lock. */
static unsigned int notify_or_change(uint64_t word, uint32_t count, struct memwait_change *change)
{
	struct queue *queue = queue_of(word);
	unsigned int woken = 0;

	if (queue->nr || change)
		lock(queue);
	while (queue->nr && woken < count) {
		wake(queue->waiters[0], MEMWAIT_OK);
		woken++;
	}
	if (change && !woken)
		change_word(change);
	/* A later wait is ordered after a notify that found no waiter. */
	unlock(queue);
	sim_note("notified %llx: %u", (unsigned long long)word, woken);
	return woken;
}

static unsigned int notify(uint64_t word, uint32_t count)
{
	return notify_or_change(word, count, NULL);
}

/*
 * Notifies the oldest waiter that has asked for death notifications. After that the queue watches
 * this waiter.
 */
static void notify_of_death(struct queue *queue, int thread)
{
	unsigned int i = 0;

	if (queue->watched != thread)
		return;
	lock(queue);
	while (i < queue->nr && !queue->waiters[i]->owned)
		i++;
	if (i < queue->nr)
		wake(queue->waiters[i], MEMWAIT_OWNER_DIED);
	else
		queue->watched = NO_THREAD;
	unlock(queue);
}

/* Ends the execution if no thread that could run is left. */
static void check_end(void)
{
	unsigned int i;

	if (!may_all_stop)
		return;
	for (i = 0; i < nr_threads; i++) {
		if (!threads[i].asleep && !threads[i].ended)
			return;
	}
	if (!may_all_stop())
		return;
	stopping = true;
	for (i = 0; i < nr_threads; i++) {
		if (threads[i].asleep) {
			threads[i].asleep = false;
			if (i != sim_thread())
				sim_unpark(i);
		}
	}
}

static void die(void)
{
	struct thread *thread = current();
	unsigned int i;

	sim_note("dies");
	thread->dead = true;
	sim_release(&thread->death);
	for (i = 0; i < nr_queues; i++)
		notify_of_death(&queues[i], (int)number_of(thread));
	longjmp(thread->end, 1);
}

/* See sim.h. */
void sim_user_step(void)
{
	struct thread *thread = current();

	if (thread->life && !--thread->life && thread->dies_of_it)
		die();
}

void device_thread(void (*function)(unsigned int thread), unsigned int number)
{
	struct thread *thread = &threads[number];

	if (!setjmp(thread->end))
		function(number);
	/*
	 * After longjmp() the variables have the values that they had at setjmp(). Therefore the
	 * thread is determined again.
	 */
	threads[sim_thread()].ended = true;
	check_end();
}

static bool is_dead_owner(uint64_t id)
{
	return id && (id < FIRST_ID || id >= FIRST_ID + SIM_THREADS ||
		      threads[id - FIRST_ID].dead);
}

static uint64_t named_by(const struct memwait_wait *wait)
{
	if (!(wait->flags & MEMWAIT_OWNED) ||
	    (wait->flags & MEMWAIT_SIZE_MASK) != MEMWAIT_SIZE_U64)
		return 0;
	return wait->expected & MEMWAIT_OWNER_MASK;
}

/*
 * The result is ordered after everything that the dead thread did. An id that never existed orders
 * nothing.
 */
static int owner_has_died(uint64_t id)
{
	if (id >= FIRST_ID && id < FIRST_ID + SIM_THREADS)
		sim_acquire(&threads[id - FIRST_ID].death);
	return MEMWAIT_OWNER_DIED;
}

static bool is_equal(const struct memwait_wait *wait)
{
	size_t size = 1U << (wait->flags & MEMWAIT_SIZE_MASK);
	const unsigned char *word = (void *)(uintptr_t)wait->addr;
	/* The library's own word of a loop is not part of the simulation. */
	uint64_t value = word >= sim_memory && word < sim_memory + SIM_MEMORY ?
			 sim_peek(word, size) : *(const uint32_t *)word;
	uint64_t expected = size == 8 ? wait->expected : (uint32_t)wait->expected;

	sim_note("wait for %llx while it is %llx: it is %llx", (unsigned long long)wait->addr,
		 (unsigned long long)expected, (unsigned long long)value);
	return value == expected;
}

/* Sleeps until the waiter is woken, its time is over, or the thread dies. */
static int sleep_in(struct waiter *waiter, bool timed)
{
	struct thread *thread = current();
	bool dies = thread->life == 1 && thread->dies_of_it && sim_random(2);
	struct queue *queue;
	bool woken;

	thread->asleep = true;
	check_end();
	woken = stopping || sim_park(timed || dies);
	thread->asleep = false;
	if (stopping)
		longjmp(thread->end, 1);
	if (!woken) {
		queue = waiter->queue;
		lock(queue);
		dequeue(waiter);
		unlock(queue);
		if (dies)
			die();
		return MEMWAIT_TIMED_OUT;
	}
	sim_acquire(&waiter->woken);
	return waiter->outcome;
}

/* Queues a waiter, which may have an id. Returns MEMWAIT_PENDING, or the outcome. */
static int join(struct waiter *waiter, const struct memwait_wait *wait, bool has_id)
{
	uint64_t now = DEVICE_NOW * 1000000000ULL;
	uint64_t owner = named_by(wait);
	struct queue *queue;

	if (wait->flags & MEMWAIT_OWNED && !has_id)
		return -EPERM;
	if (!is_equal(wait))
		return MEMWAIT_NOT_EQUAL;
	if (is_dead_owner(owner))
		return owner_has_died(owner);
	if (wait->deadline <= now)
		return MEMWAIT_TIMED_OUT;

	sim_step();
	queue = queue_of(wait->addr);
	lock(queue);
	if (!is_equal(wait)) {
		unlock(queue);
		return MEMWAIT_NOT_EQUAL;
	}
	if (is_dead_owner(owner)) {
		unlock(queue);
		return owner_has_died(owner);
	}
	memset(waiter, 0, sizeof(*waiter));
	waiter->owned = wait->flags & MEMWAIT_OWNED;
	append(queue, waiter);
	if (owner)
		queue->watched = (int)(owner - FIRST_ID);
	unlock(queue);
	return MEMWAIT_PENDING;
}

static int wait_on(const struct memwait_wait *wait)
{
	struct thread *thread = current();
	uint64_t now = DEVICE_NOW * 1000000000ULL;
	int ret = join(&thread->waiter, wait, thread->has_id);

	if (ret != MEMWAIT_PENDING)
		return ret;
	return sleep_in(&thread->waiter, wait->deadline < now + 1000000000);
}

/* Accepts one wait without a deadline. */
static int wait_async(int fd, const struct memwait_wait_async *batch)
{
	struct memwait_async *entry = (void *)(uintptr_t)batch->waits;
	struct async *async = asyncs;

	while (async < asyncs + ASYNC_WAITS && async->id)
		async++;
	if (async == asyncs + ASYNC_WAITS) {
		sim_fail("more async waits than the model has");
		return -ENOSPC;
	}
	entry->result = join(&async->waiter, &entry->wait, true);
	if (entry->result == MEMWAIT_PENDING) {
		/* No other thread has run since the wait was queued. */
		async->waiter.is_async = true;
		async->id = ++last_id;
		async->user_data = entry->user_data;
		async->completed = 0;
		async->fd = fd;
		entry->id = async->id;
	}
	return 1;
}

static void leave(struct async *async)
{
	struct queue *queue = async->waiter.queue;

	lock(queue);
	dequeue(&async->waiter);
	unlock(queue);
	async->id = 0;
}

static int cancel(int fd, const struct memwait_cancel *cancel)
{
	struct async *async;

	for (async = asyncs; async < asyncs + ASYNC_WAITS; async++) {
		if (async->id == cancel->id && async->fd == fd && !async->completed) {
			leave(async);
			return 0;
		}
	}
	return -ENOENT;
}

/* The completion to be read next, or NULL. */
static struct async *next_completed(int fd)
{
	struct async *async, *next = NULL;

	for (async = asyncs; async < asyncs + ASYNC_WAITS; async++) {
		if (async->id && async->completed && async->fd == fd &&
		    (!next || async->completed < next->completed))
			next = async;
	}
	return next;
}

static size_t read_completions(int fd, struct memwait_completion *completions, size_t most)
{
	struct async *async;
	size_t n;

	for (n = 0; n < most; n++) {
		async = next_completed(fd);
		if (!async)
			break;
		sim_acquire(&async->waiter.woken);
		completions[n] = (struct memwait_completion){
			.user_data = async->user_data,
			.id = async->id,
			.result = async->waiter.outcome,
			.count = async->waiter.outcome == MEMWAIT_OK,
		};
		async->id = 0;
	}
	return n;
}

/* Closes a context. Notifies that were not read are passed on. */
static void close_context(int fd)
{
	struct async *async;

	for (async = asyncs; async < asyncs + ASYNC_WAITS; async++) {
		if (!async->id || async->fd != fd)
			continue;
		if (!async->completed) {
			leave(async);
			continue;
		}
		async->id = 0;
		if (async->waiter.outcome == MEMWAIT_OK)
			notify(async->waiter.word, 1);
	}
}

/* Like wait_on(). If the thread is killed after a notify has counted it, passes the notify on. */
static int wait_or_die(const struct memwait_wait *wait)
{
	struct thread *thread = current();
	int ret = wait_on(wait);

	if (ret == MEMWAIT_OK && thread->life == 1 && thread->dies_of_it && sim_random(2)) {
		notify(thread->waiter.word, 1);
		die();
	}
	return ret;
}

static int change_notify(struct memwait_change *change)
{
	const unsigned char *word = (void *)(uintptr_t)change->notify.addr;

	/* When the library opens the device, it tests for the ioctl with its own word. */
	if (word < sim_memory || word >= sim_memory + SIM_MEMORY)
		return 0;
	if (change->operation & MEMWAIT_CHANGE_IF_NONE_WOKEN)
		return (int)notify_or_change(change->notify.addr, change->notify.count, change);
	change_word(change);
	sim_step();
	return change->notify.count ? (int)notify(change->notify.addr, change->notify.count) : 0;
}

static int waiters(const struct memwait_notify *argument)
{
	struct queue *queue = queue_of(argument->addr);

	/* The kernel locks the bucket even if the word has no queue. */
	lock(queue);
	unlock(queue);
	return (int)queue->nr;
}

static int notify_many(const struct memwait_notify_many *many)
{
	const struct memwait_notify *notifies = (const void *)(uintptr_t)many->notifies;
	uint32_t *woken = (uint32_t *)(uintptr_t)many->woken;
	uint32_t i, nr;

	for (i = 0; i < many->count; i++) {
		sim_step();
		nr = notify(notifies[i].addr, notifies[i].count);
		if (woken)
			woken[i] = nr;
	}
	return (int)i;
}

static int info(struct memwait_info *info)
{
	*info = (struct memwait_info){
		.features = MEMWAIT_FEATURE_WAIT_U64 | MEMWAIT_FEATURE_OWNERS,
		.max_group = MEMWAIT_GROUP_MAX,
	};
	return 0;
}

static int call_device(int fd, unsigned long command, void *argument)
{
	struct memwait_notify_wait *both = argument;
	struct memwait_notify *one = argument;
	struct memwait_owner *owner = argument;

	switch (command) {
	case MEMWAIT_IOC_INFO:
		return info(argument);
	case MEMWAIT_IOC_WAIT:
		return wait_or_die(argument);
	case MEMWAIT_IOC_NOTIFY:
		return (int)notify(one->addr, one->count);
	case MEMWAIT_IOC_NOTIFY_WAIT:
		both->notified = notify(both->notify.addr, both->notify.count);
		sim_step();
		return wait_or_die(&both->wait);
	case MEMWAIT_IOC_NOTIFY_MANY:
		return notify_many(argument);
	case MEMWAIT_IOC_WAITERS:
		return waiters(argument);
	case MEMWAIT_IOC_CHANGE_NOTIFY:
		return change_notify(argument);
	case MEMWAIT_IOC_WAIT_ASYNC:
		return wait_async(fd, argument);
	case MEMWAIT_IOC_CANCEL:
		return cancel(fd, argument);
	case MEMWAIT_IOC_OWNER:
		if (owner->flags & MEMWAIT_OWNER_CONTEXT) {
			owner->id = FIRST_ID + SIM_THREADS + (uint64_t)fd;
			return 0;
		}
		current()->has_id = true;
		owner->id = FIRST_ID + sim_thread();
		return 0;
	}
	sim_fail("the model has no call %lx", command);
	return -ENOTTY;
}

/* While only one thread runs, no waiter can be woken, and the thread must not sleep. */
static int call_alone(unsigned long command, void *argument)
{
	const struct memwait_wait *wait = argument;

	if (command == MEMWAIT_IOC_INFO)
		return info(argument);
	if (command != MEMWAIT_IOC_WAIT)
		return 0;
	return is_dead_owner(named_by(wait)) ? MEMWAIT_OWNER_DIED : MEMWAIT_TIMED_OUT;
}

/* Returns whether the library only tests whether the module has an ioctl. */
static bool is_invalid(unsigned long command, const void *argument)
{
	const struct memwait_owner *owner = argument;

	return command == MEMWAIT_IOC_OWNER && owner->reserved;
}

static bool is_descriptor(int fd)
{
	return fd >= DEVICE && fd < DEVICE + DESCRIPTORS && is_open[fd - DEVICE];
}

static int call(int fd, unsigned long command, void *argument)
{
	if (!is_descriptor(fd))
		return -EBADF;
	if (sim_is_running() && missing)
		return -ENODEV;
	if (sim_is_running() && call_fails(command))
		return -EMFILE;
	if (is_invalid(command, argument))
		return -EINVAL;
	return sim_is_running() ? call_device(fd, command, argument) :
				  call_alone(command, argument);
}

static void step(void)
{
	if (sim_is_running()) {
		sim_step();
		sim_user_step();
	}
}

int __wrap_ioctl(int fd, unsigned long command, void *argument)
{
	int ret;

	step();
	ret = call(fd, command, argument);
	if (ret < 0) {
		errno = -ret;
		return -1;
	}
	return ret;
}

/*
 * This step is omitted for threads whose calls fail, because it would only make executions longer.
 */
static void descriptor_step(void)
{
	if (sim_is_running() && !missing && !current()->fails)
		step();
}

int __wrap_open(const char *path, int flags, ...)
{
	int i = 0;

	descriptor_step();
	while (i < DESCRIPTORS && is_open[i])
		i++;
	if (i == DESCRIPTORS) {
		sim_fail("more descriptors than the model has");
		errno = EMFILE;
		return -1;
	}
	is_open[i] = true;
	return DEVICE + i;
}

int __wrap_close(int fd)
{
	if (fd < DEVICE || fd >= DEVICE + DESCRIPTORS)
		return __real_close(fd);
	descriptor_step();
	if (!is_descriptor(fd)) {
		errno = EBADF;
		return -1;
	}
	close_context(fd);
	is_open[fd - DEVICE] = false;
	return 0;
}

ssize_t __wrap_read(int fd, void *buffer, size_t size)
{
	size_t n;

	if (fd < DEVICE || fd >= DEVICE + DESCRIPTORS)
		return __real_read(fd, buffer, size);
	step();
	n = read_completions(fd, buffer, size / sizeof(struct memwait_completion));
	errno = EAGAIN;
	return n ? (ssize_t)(n * sizeof(struct memwait_completion)) : -1;
}

/* Other threads may also run after the call, so its result may be out of date immediately. */
int __wrap_fstat(int fd, struct stat *st)
{
	bool is;

	descriptor_step();
	is = is_descriptor(fd) && !missing && !(sim_is_running() && current()->fails);
	descriptor_step();
	memset(st, 0, sizeof(*st));
	st->st_mode = S_IFCHR;
	st->st_rdev = DEVICE;
	errno = EBADF;
	return is ? 0 : -1;
}

/* Reports one CPU, because spinning would only make executions longer. */
long __wrap_sysconf(int name)
{
	return 1;
}

pid_t __wrap_gettid(void)
{
	return (pid_t)sim_thread() + 1;
}

/*
 * Returns the current time. For a waiter that has lost too often, returns a time that is much
 * later.
 */
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	time->tv_sec = DEVICE_NOW;
	time->tv_nsec = sim_is_running() && sim_random(2) ? 2000000 : 0;
	return 0;
}
