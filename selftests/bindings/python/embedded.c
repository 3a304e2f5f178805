// SPDX-License-Identifier: GPL-2.0-only
/*
 * This library is preloaded into Python. It runs main() in another thread, like a program that
 * embeds Python in a thread. The first thread of the process, which receives the signals, waits
 * until main() returns.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

typedef int (*main_t)(int argc, char **argv, char **envp);
typedef int (*start_t)(main_t main, int argc, char **argv, void (*init)(void), void (*fini)(void),
		       void (*rtld_fini)(void), void *stack_end);

static struct {
	main_t main;
	int argc;
	char **argv;
	char **envp;
	int status;
} real;

static void *run(void *unused)
{
	real.status = real.main(real.argc, real.argv, real.envp);
	return unused;
}

static int main_in_thread(int argc, char **argv, char **envp)
{
	pthread_t thread;

	real.argc = argc;
	real.argv = argv;
	real.envp = envp;
	if (pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, NULL))
		abort();
	return real.status;
}

int __libc_start_main(main_t main, int argc, char **argv, void (*init)(void), void (*fini)(void),
		      void (*rtld_fini)(void), void *stack_end)
{
	start_t next;

	*(void **)&next = dlsym(RTLD_NEXT, "__libc_start_main");
	real.main = main;
	return next(main_in_thread, argc, argv, init, fini, rtld_fini, stack_end);
}
