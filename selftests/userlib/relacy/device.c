// SPDX-License-Identifier: GPL-2.0
/*
 * The device for simulated threads: the driver of the model in ../quick/queue.h. It orders exactly
 * what the kernel orders.
 *
 * Threads die only by device_mortal(), so contexts end only when they are closed.
 *
 * The library is linked with --wrap for the system calls that it makes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <linux/memwait.h>

#include "device.h"

#define DEVICE		1000		/* the first descriptor */
#define NOW_NS		(DEVICE_NOW * 1000000000ULL)

#define CONTEXTS	8
#define THREADS		SIM_THREADS
#define WAITS		16
#define ENTRIES		16
#define WORDS		32
#define BUCKETS		8
#define COMPLETIONS	16

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

#define ORDERS_MEMORY	true
#define note		sim_note

struct order {
	struct sim_sync sync;
};

struct driver_thread {
	unsigned int life;		/* remaining steps of a mortal thread, or 0 */
	bool dies_of_it;
	bool dead, ended, asleep;
	bool fails;			/* all its calls fail */
	bool cannot_wake;		/* its calls that wake waiters fail */
	struct order death;
	jmp_buf end;
};

struct driver_wait {
};

struct driver_context {
};

struct driver_shared {
	unsigned int nr_threads;
	bool (*may_all_stop)(void);
	bool stopping;
	bool missing;
};

#include "../quick/queue.h"

static struct shared state;

/*
 * The lower half is the descriptor that the library has opened in this execution or in an earlier
 * one; see device.h.
 */
extern uint64_t memwait_device_context;

static void open_context(struct context *context)
{
	*context = (struct context){ .used = true, .last = &context->first };
}

void device_set_up(unsigned int nr)
{
	unsigned int i;

	shared = &state;
	memset(shared, 0, sizeof(*shared));
	set_up_queues();
	for (i = 0; i < CONTEXTS; i++)
		if ((uint32_t)memwait_device_context == DEVICE + i)
			open_context(&shared->contexts[i]);
	for (i = 0; i < nr; i++)
		shared->threads[i].used = true;
	shared->driver.nr_threads = nr;
}

void device_is_missing(void)
{
	shared->driver.missing = true;
}

void device_close_all(void)
{
	unsigned int i;

	for (i = 0; i < CONTEXTS; i++)
		shared->contexts[i].used = false;
}

unsigned int device_descriptors(void)
{
	unsigned int nr = 0, i;

	for (i = 0; i < CONTEXTS; i++)
		nr += shared->contexts[i].used;
	return nr;
}

static struct thread *current_thread(void)
{
	return &shared->threads[sim_thread()];
}

void device_fails(bool fails)
{
	current_thread()->driver.fails = fails;
}

void device_mortal(unsigned int thread, unsigned int steps)
{
	shared->threads[thread].driver.life = 1 + sim_random(steps);
	shared->threads[thread].driver.dies_of_it = sim_random(8);
}

void device_cannot_wake(bool cannot)
{
	current_thread()->driver.cannot_wake = cannot;
}

bool device_is_dead(unsigned int thread)
{
	return shared->threads[thread].driver.dead;
}

unsigned int device_sleepers(void)
{
	unsigned int nr = 0, i;

	for (i = 0; i < shared->driver.nr_threads; i++)
		nr += shared->threads[i].driver.asleep;
	return nr;
}

unsigned int device_sleepers_on(const void *word)
{
	struct key key, private_key;

	key_of(&key, (uintptr_t)word, 0);
	key_of(&private_key, (uintptr_t)word, MEMWAIT_PRIVATE);
	return (unsigned int)(count_waiters(&key) + count_waiters(&private_key));
}

void device_may_stop(bool (*may_stop)(void))
{
	shared->driver.may_all_stop = may_stop;
}

/* No other thread runs in the model, except in let_others_run() and sleep_on(). */

static void enter(void)
{
}

static void leave(void)
{
}

static void let_others_run(void)
{
	sim_step();
}

static void order_release(struct order *order)
{
	sim_release(&order->sync);
}

static void order_acquire(const struct order *order)
{
	sim_acquire(&order->sync);
}

static void no_room(const char *what)
{
	sim_fail("the model has too few %s", what);
	abort();
}

static int key_of(struct key *key, uint64_t address, uint32_t flags)
{
	*key = (struct key){ .space = flags & MEMWAIT_PRIVATE, .offset = address };
	return 0;
}

static int copy_in(void *to, uint64_t address, size_t size)
{
	memcpy(to, (void *)(uintptr_t)address, size);
	return 0;
}

/* The library's own words are not part of the simulation. */
static bool is_simulated(uint64_t address)
{
	return address - (uintptr_t)sim_memory < SIM_MEMORY;
}

static int load_word(uint64_t *value, uint64_t address, size_t size)
{
	if (is_simulated(address))
		*value = sim_peek((void *)(uintptr_t)address, size);
	else
		memcpy(value, (void *)(uintptr_t)address, size);
	return 0;
}

static int change_word(uint32_t *word, uint32_t operation, uint32_t operand, uint32_t *old)
{
	static const enum sim_operation operations[] = {
		SIM_SET, SIM_ADD, SIM_AND, SIM_OR, SIM_XOR,
	};

	*old = sim_change_u32(word, operations[operation], operand);
	sim_note("change %p: it was %x", (void *)word, *old);
	return 0;
}

static int check_access(uint64_t address, size_t size, bool write)
{
	return 0;
}

static uint64_t now(bool realtime)
{
	return NOW_NS;
}

static pid_t process(void)
{
	return 1;
}

static bool has_ended(struct thread *thread)
{
	if (thread->driver.dead && sim_is_running())
		order_acquire(&thread->driver.death);
	return thread->driver.dead;
}

static void let_fall_asleep(struct wait *wait)
{
}

static void wake_up(struct wait *wait)
{
	if (!wait->thread->driver.asleep)
		return;
	wait->thread->driver.asleep = false;
	sim_unpark((unsigned int)(wait->thread - shared->threads));
}

static void deadline_was_set(const struct wait *wait)
{
}

static void become_readable(struct context *context)
{
}

/* Ends the execution if no thread that could run is left. */
static void check_end(void)
{
	struct thread *threads = shared->threads;
	unsigned int i;

	if (!shared->driver.may_all_stop)
		return;
	for (i = 0; i < shared->driver.nr_threads; i++) {
		if (!threads[i].driver.asleep && !threads[i].driver.ended)
			return;
	}
	if (!shared->driver.may_all_stop())
		return;
	shared->driver.stopping = true;
	for (i = 0; i < shared->driver.nr_threads; i++) {
		if (threads[i].driver.asleep) {
			threads[i].driver.asleep = false;
			if (i != sim_thread())
				sim_unpark(i);
		}
	}
}

static void die(void)
{
	struct thread *thread = current_thread();

	sim_note("dies");
	thread->driver.dead = true;
	order_release(&thread->driver.death);
	end_waits_of(thread);
	report_death(thread->id, false);
	longjmp(thread->driver.end, 1);
}

/* The thread dies at its next step, and may die here. */
static bool dies_now(const struct thread *thread)
{
	return thread->driver.life == 1 && thread->driver.dies_of_it && sim_random(2);
}

/* See sim.h. */
void sim_user_step(void)
{
	struct thread *thread = current_thread();

	if (thread->driver.life && !--thread->driver.life && thread->driver.dies_of_it)
		die();
}

void device_thread(void (*function)(unsigned int thread), unsigned int number)
{
	if (!setjmp(shared->threads[number].driver.end))
		function(number);
	/*
	 * After longjmp() the variables have the values that they had at setjmp(). Therefore the
	 * thread is determined again.
	 */
	current_thread()->driver.ended = true;
	check_end();
}

/*
 * Sleeps until the waiter is woken, its time is over, or the thread dies. If the thread is killed
 * after a notify has counted it, die() passes the notify on.
 */
static int sleep_on(struct wait *wait, uint32_t *index)
{
	struct thread *thread = wait->thread;
	bool dies = dies_now(thread), woken;
	int ret = MEMWAIT_TIMED_OUT;

	thread->driver.asleep = true;
	check_end();
	woken = shared->driver.stopping ||
		sim_park(wait->deadline < NOW_NS + 1000000000 || dies);
	thread->driver.asleep = false;
	if (shared->driver.stopping)
		longjmp(thread->driver.end, 1);
	if (woken) {
		order_acquire(&wait->woken);
		ret = wait->outcome;
		*index = wait->index;
		dies = ret == MEMWAIT_OK && dies_now(thread);
	}
	if (dies)
		die();
	free_wait(wait);
	return ret;
}

/* The wrappers. */

/* While only one thread runs, no waiter can be woken, and the thread must not sleep. */
static int call_alone(unsigned long command, void *argument)
{
	const struct memwait_owner *owner = argument;

	switch (command) {
	case MEMWAIT_IOC_INFO:
		return info(argument);
	case MEMWAIT_IOC_OWNER:
		return owner->reserved ? -EINVAL : 0;
	case MEMWAIT_IOC_WAIT:
		return names_dead_owner(argument) ? MEMWAIT_OWNER_DIED : MEMWAIT_TIMED_OUT;
	}
	return 0;
}

static bool call_fails(unsigned long command)
{
	const struct driver_thread *thread = &current_thread()->driver;

	return thread->fails || (thread->cannot_wake && (command == MEMWAIT_IOC_NOTIFY ||
							 command == MEMWAIT_IOC_CHANGE_NOTIFY));
}

static struct context *context_of(int fd)
{
	if (fd < DEVICE || fd >= DEVICE + CONTEXTS || !shared->contexts[fd - DEVICE].used)
		return NULL;
	return &shared->contexts[fd - DEVICE];
}

static int call(struct context *context, unsigned long command, void *argument)
{
	const struct memwait_change *change = argument;

	if (!context)
		return -EBADF;
	if (!sim_is_running())
		return call_alone(command, argument);
	if (shared->driver.missing)
		return -ENODEV;
	if (call_fails(command))
		return -EMFILE;
	/* When the library opens the device, it tests for the ioctl with its own word. */
	if (command == MEMWAIT_IOC_CHANGE_NOTIFY && !is_simulated(change->notify.addr))
		return 0;
	return device_call(context, command, argument);
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
	step();
	return result(call(context_of(fd), command, argument));
}

/*
 * This step is omitted for threads whose calls fail, because it would only make executions longer.
 */
static void descriptor_step(void)
{
	if (sim_is_running() && !shared->driver.missing && !current_thread()->driver.fails)
		step();
}

int __wrap_open(const char *path, int flags, ...)
{
	int i = 0;

	descriptor_step();
	while (i < CONTEXTS && shared->contexts[i].used)
		i++;
	if (i == CONTEXTS)
		no_room("descriptors");
	open_context(&shared->contexts[i]);
	return DEVICE + i;
}

int __wrap_close(int fd)
{
	struct context *context;

	if (fd < DEVICE || fd >= DEVICE + CONTEXTS)
		return __real_close(fd);
	descriptor_step();
	context = context_of(fd);
	if (!context)
		return result(-EBADF);
	release_context(context);
	return 0;
}

ssize_t __wrap_read(int fd, void *buffer, size_t size)
{
	struct context *context;
	size_t n;

	if (fd < DEVICE || fd >= DEVICE + CONTEXTS)
		return __real_read(fd, buffer, size);
	step();
	context = context_of(fd);
	n = context ? take_completions(context, buffer, size / sizeof(struct memwait_completion)) :
		      0;
	errno = EAGAIN;
	return n ? (ssize_t)(n * sizeof(struct memwait_completion)) : -1;
}

/* Other threads may also run after the call, so its result may be out of date immediately. */
int __wrap_fstat(int fd, struct stat *st)
{
	bool is;

	descriptor_step();
	is = context_of(fd) && !shared->driver.missing &&
	     !(sim_is_running() && current_thread()->driver.fails);
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
