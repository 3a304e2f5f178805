/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers for tests of signals and of threads that die while they wait, on top of the fixture. */
#ifndef SIGNAL_TEST_H
#define SIGNAL_TEST_H

#include "../memwait_fixture.h"
#include <sys/resource.h>

static volatile sig_atomic_t handled;

static inline void count_signal(int sig)
{
	handled++;
}

static inline void handle(int sig, int flags)
{
	struct sigaction sa = { .sa_handler = count_signal, .sa_flags = flags };

	handled = 0;
	sigaction(sig, &sa, NULL);
}

/* Interrupts a sleeping thread. Returns when its handler has run. */
static inline void interrupt_thread(pthread_t thread, pid_t tid)
{
	int before = handled;

	await_asleep(tid);
	pthread_kill(thread, SIGUSR1);
	spin_until(handled != before);
}

/* Interrupts a thread repeatedly until it is done. */
static inline void interrupt_until(pthread_t thread, const int *done)
{
	while (!__atomic_load_n(done, __ATOMIC_ACQUIRE)) {
		pthread_kill(thread, SIGUSR1);
		usleep(20000);
	}
}

/* Continuously sends SIGUSR1 to one thread, or alternately to two threads. */
struct signal_storm {
	pthread_t thread;
	pthread_t targets[2];
	int stop;
};

static inline void *send_signals(void *arg)
{
	struct signal_storm *storm = arg;
	int i;

	for (i = 0; !__atomic_load_n(&storm->stop, __ATOMIC_RELAXED); i++) {
		pthread_kill(storm->targets[i % 2], SIGUSR1);
		sched_yield();
	}
	return NULL;
}

/* Returns 0 or an error number. */
static inline int signal_storm_start(struct signal_storm *storm, pthread_t one, pthread_t other)
{
	*storm = (struct signal_storm){ .targets = { one, other } };
	return pthread_create(&storm->thread, NULL, send_signals, storm);
}

static inline void signal_storm_stop(struct signal_storm *storm)
{
	__atomic_store_n(&storm->stop, 1, __ATOMIC_RELAXED);
	pthread_join(storm->thread, NULL);
}

/*
 * Signals and then notifies a child. The child is bound to the same CPU and cannot run between the
 * two calls, so the notify counts it. Returns the result of the notify.
 */
static inline int signal_and_notify(int fd, const volatile void *word, pid_t victim, int sig)
{
	int ret;

	if (pin(20))
		abort();
	kill(victim, sig);
	ret = mw_notify(fd, word, 1, U32);
	pin(0);
	return ret;
}

/* Prepares a child for signal_and_notify(). */
static inline void become_victim(void)
{
	struct rlimit none = { 0 };

	setrlimit(RLIMIT_CORE, &none);
	if (pin(0))
		_exit(99);
}

/* Forks a child for signal_and_notify() that waits forever. */
static inline pid_t fork_waiter(int fd, const uint32_t *word)
{
	pid_t pid = fork_child();

	if (!pid) {
		become_victim();
		_exit(mw_wait(fd, word, 0, MEMWAIT_FOREVER, U32));
	}
	await_waiters(fd, word, U32, 1);
	return pid;
}

#endif /* SIGNAL_TEST_H */
