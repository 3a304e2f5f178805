/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Threads and processes that end in each possible way while they hold a lock, and helpers for the
 * tests that check the survivors.
 */
#ifndef DEATH_TEST_H
#define DEATH_TEST_H

#include "userlib_test.h"

#include <sys/resource.h>

/* Accessors of flags and numbers that threads and processes share. */
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

/* Returns when the thread no longer exists. */
static inline void await_gone(pid_t tid)
{
	sleep_until(!thread_state(tid));
}

/* Runs a function in a child and returns the child's exit status. */
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

/* The ways in which an owner ends. */
enum {
	THREAD_ENDS,		/* a thread of this process, which continues */
	IS_KILLED,		/* a process, like all that follow */
	EXITS,
	LEADER_ENDS,		/* the process has another thread */
	EXECUTES,		/* the process executes another program */
	ENDS
};

/* A thread or process that acquires a lock and ends while it holds the lock. */
struct owner {
	int how;
	struct hold *hold;
	struct runner runner;
	pid_t pid;
	int pipe[2];		/* the executed program writes to this pipe */
};

/* The state of an owner, in memory that the owner shares with the test. */
struct hold {
	int (*lock)(void *object);
	void *object;
	int times;		/* how often the owner locks the object */
	int result;		/* result of the last lock call */
	int locked, may_end;
};

static inline int hold_it(void *arg)
{
	struct hold *hold = arg;
	int i;

	for (i = 0; i < hold->times; i++)
		hold->result = hold->lock(hold->object);
	set(&hold->locked, 1);
	await(&hold->may_end);
	return hold->result;
}

static inline void *stay_alive(void *arg)
{
	pause();
	return NULL;
}

static inline void end_process(struct owner *owner)
{
	pthread_t thread;

	switch (owner->how) {
	case LEADER_ENDS:
		pthread_create(&thread, NULL, stay_alive, NULL);
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

/* Starts an owner, which locks the object @times times. Does not wait for the lock. */
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

/* Returns the result of the owner's last lock call. */
static inline int owner_result(struct owner *owner)
{
	await(&owner->hold->locked);
	return owner->hold->result;
}

static inline int owner_start(struct owner *owner, struct hold *hold, int how,
			      int (*lock)(void *object), void *object)
{
	owner_begin(owner, hold, how, lock, object, 1);
	return owner_result(owner);
}

/* Ends the owner and returns when it has ended. */
static inline void owner_end(struct owner *owner)
{
	char here;

	if (owner->how != IS_KILLED)
		set(&owner->hold->may_end, 1);
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

/* Reaps the owner's process. */
static inline void owner_reap(struct owner *owner)
{
	if (owner->how == THREAD_ENDS)
		return;
	close(owner->pipe[0]);
	close(owner->pipe[1]);
	if (owner->how == EXECUTES || owner->how == LEADER_ENDS)
		kill_child(owner->pid);
}

static inline void owner_end_and_reap(struct owner *owner)
{
	owner_end(owner);
	owner_reap(owner);
}

#endif /* DEATH_TEST_H */
