/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Threads and processes that come to their end, in every way there is, while they have a lock; and
 * what those that outlive them need.
 */
#ifndef DEATH_TEST_H
#define DEATH_TEST_H

#include "userlib_test.h"

#include <sys/resource.h>

/* What threads and processes tell each other. */
static inline int get(const int *number)
{
	return __atomic_load_n(number, __ATOMIC_ACQUIRE);
}

static inline void set(int *number, int value)
{
	__atomic_store_n(number, value, __ATOMIC_RELEASE);
}

static inline void await(const int *number)
{
	sleep_until(get(number));
}

/* Until nothing is left of a thread, and nobody can take it for alive. */
static inline void await_gone(pid_t tid)
{
	sleep_until(!thread_state(tid));
}

/* In a child. */
static inline int in_child(int (*function)(void *), void *arg)
{
	pid_t pid = fork_child();

	if (!pid) {
		const struct rlimit none = { 0 };

		setrlimit(RLIMIT_CORE, &none);
		_exit(function(arg));
	}
	return child_status(pid);
}

/* How an owner comes to its end. */
enum {
	THREAD_ENDS,		/* one of this process, which lives on */
	IS_KILLED,		/* a process, as all that follow */
	EXITS,
	LEADER_ENDS,		/* it has another thread */
	EXECUTES,		/* another program, in which it lives on */
	ENDS
};

/* One that has a lock, and ends with it. */
struct owner {
	int how;
	struct hold *hold;
	struct runner runner;
	pid_t pid;
	int pipe[2];		/* the program that is executed writes to it */
};

/* In memory that it shares with who has started it. */
struct hold {
	int (*lock)(void *object);
	void *object;
	int times;		/* that it locks it */
	int result;		/* of the last time */
	int has_it, let_go;
};

static inline int hold_it(void *arg)
{
	struct hold *hold = arg;
	int i;

	for (i = 0; i < hold->times; i++)
		hold->result = hold->lock(hold->object);
	set(&hold->has_it, 1);
	await(&hold->let_go);
	return hold->result;
}

static inline void *outlive(void *arg)
{
	pause();
	return NULL;
}

static inline void end_process(struct owner *owner)
{
	pthread_t thread;

	switch (owner->how) {
	case LEADER_ENDS:
		pthread_create(&thread, NULL, outlive, NULL);
		hold_it(owner->hold);
		pthread_exit(NULL);
		break;
	case EXECUTES:
		hold_it(owner->hold);
		dup2(owner->pipe[1], STDOUT_FILENO);
		execl("/bin/sh", "sh", "-c", "echo here; exec sleep 1000", NULL);
		_exit(1);
	}
	hold_it(owner->hold);
	_exit(0);
}

/* It locks it so many times, which may take a while. */
static inline void owner_begin(struct owner *owner, struct hold *hold, int how,
			       int (*lock)(void *object), void *object, int times)
{
	memset(hold, 0, sizeof(*hold));
	hold->lock = lock;
	hold->object = object;
	hold->times = times;
	owner->how = how;
	owner->hold = hold;
	if (how == THREAD_ENDS) {
		runner_start(&owner->runner, hold_it, hold);
		return;
	}
	if (pipe2(owner->pipe, O_CLOEXEC))
		abort();
	owner->pid = fork_child();
	if (!owner->pid)
		end_process(owner);
}

/* Returns what locking has said, the last time. */
static inline int owner_result(struct owner *owner)
{
	await(&owner->hold->has_it);
	return owner->hold->result;
}

static inline int owner_start(struct owner *owner, struct hold *hold, int how,
			      int (*lock)(void *object), void *object)
{
	owner_begin(owner, hold, how, lock, object, 1);
	return owner_result(owner);
}

/* Returns when it has come to its end, as far as it does. */
static inline void owner_end(struct owner *owner)
{
	char here;

	if (owner->how != IS_KILLED)
		set(&owner->hold->let_go, 1);
	switch (owner->how) {
	case THREAD_ENDS:
		runner_join(&owner->runner);
		await_gone(owner->runner.tid);
		break;
	case IS_KILLED:
		kill_child(owner->pid);
		break;
	case EXITS:
		waitpid(owner->pid, NULL, 0);
		break;
	case LEADER_ENDS:
		sleep_until(thread_state(owner->pid) == 'Z');
		break;
	case EXECUTES:
		if (read(owner->pipe[0], &here, 1) != 1)
			abort();
		break;
	}
}

/* What has been left of its process. */
static inline void owner_reap(struct owner *owner)
{
	if (owner->how == THREAD_ENDS)
		return;
	close(owner->pipe[0]);
	close(owner->pipe[1]);
	if (owner->how == EXECUTES || owner->how == LEADER_ENDS)
		kill_child(owner->pid);
}

/* The same at once. */
static inline void owner_end_and_reap(struct owner *owner)
{
	owner_end(owner);
	owner_reap(owner);
}

#endif /* DEATH_TEST_H */
