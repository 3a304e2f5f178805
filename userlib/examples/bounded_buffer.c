// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Processes fill and empty a buffer in shared memory, written against pthreads. One producer dies
 * while it changes the buffer and holds the mutex, which is robust; another process repairs the
 * buffer. The Makefile builds it twice: as it is, and with -include memwait/pthread.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PLACES		8
#define PRODUCERS	3
#define CONSUMERS	2
#define ITEMS		500	/* of each producer */
#define VICTIM		1	/* dies while it adds its last item */

struct buffer {
	pthread_mutex_t mutex;
	pthread_cond_t not_empty, not_full;
	int items[PLACES];
	unsigned int first, used;
	int is_changing;	/* if set, @used is wrong by one */
	unsigned int before;	/* @used before the change */
	int ended;		/* producers */
	int deaths;
	long taken, sum;
};

static void fail(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, strerror(err));
	exit(1);
}

static void check(const char *what, int err)
{
	if (err)
		fail(what, err);
}

/* The mutex is locked; @err shows whether its previous owner has died. */
static void took(struct buffer *buffer, const char *what, int err)
{
	if (err == EOWNERDEAD) {
		if (buffer->is_changing)
			buffer->used = buffer->before;
		buffer->is_changing = 0;
		buffer->deaths++;
		buffer->ended++;
		pthread_cond_broadcast(&buffer->not_empty);
		err = pthread_mutex_consistent(&buffer->mutex);
	}
	check(what, err);
}

static void lock(struct buffer *buffer)
{
	took(buffer, "lock", pthread_mutex_lock(&buffer->mutex));
}

/*
 * If all processes wait, none detects that the owner of the mutex has died. Therefore each waiter
 * checks every second.
 */
static void wait_for(struct buffer *buffer, pthread_cond_t *cond)
{
	struct timespec deadline;
	int err;

	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec++;
	err = pthread_cond_timedwait(cond, &buffer->mutex, &deadline);
	took(buffer, "wait", err == ETIMEDOUT ? 0 : err);
}

static void put(struct buffer *buffer, int item, int dies)
{
	lock(buffer);
	while (buffer->used == PLACES)
		wait_for(buffer, &buffer->not_full);
	buffer->before = buffer->used;
	buffer->is_changing = 1;
	buffer->used++;
	if (dies)
		kill(getpid(), SIGKILL);
	buffer->items[(buffer->first + buffer->used - 1) % PLACES] = item;
	buffer->is_changing = 0;
	check("signal", pthread_cond_signal(&buffer->not_empty));
	check("unlock", pthread_mutex_unlock(&buffer->mutex));
}

/* Returns 0 when all producers have ended. */
static int get(struct buffer *buffer)
{
	int item = 0;

	lock(buffer);
	while (!buffer->used && buffer->ended < PRODUCERS)
		wait_for(buffer, &buffer->not_empty);
	if (buffer->used) {
		item = buffer->items[buffer->first];
		buffer->first = (buffer->first + 1) % PLACES;
		buffer->used--;
		buffer->taken++;
		buffer->sum += item;
		check("signal", pthread_cond_signal(&buffer->not_full));
	}
	check("unlock", pthread_mutex_unlock(&buffer->mutex));
	return item;
}

static void produce(struct buffer *buffer, int number)
{
	int i;

	for (i = 1; i <= ITEMS; i++)
		put(buffer, number * ITEMS + i, number == VICTIM && i == ITEMS);
	lock(buffer);
	buffer->ended++;
	check("broadcast", pthread_cond_broadcast(&buffer->not_empty));
	check("unlock", pthread_mutex_unlock(&buffer->mutex));
}

static struct buffer *make_buffer(void)
{
	struct buffer *buffer = mmap(NULL, sizeof(*buffer), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t mutexattr;
	pthread_condattr_t condattr;

	if (buffer == MAP_FAILED)
		fail("mmap", errno);
	pthread_mutexattr_init(&mutexattr);
	check("type", pthread_mutexattr_settype(&mutexattr, PTHREAD_MUTEX_ERRORCHECK));
	check("robust", pthread_mutexattr_setrobust(&mutexattr, PTHREAD_MUTEX_ROBUST));
	check("pshared", pthread_mutexattr_setpshared(&mutexattr, PTHREAD_PROCESS_SHARED));
	check("mutex", pthread_mutex_init(&buffer->mutex, &mutexattr));
	pthread_mutexattr_destroy(&mutexattr);

	pthread_condattr_init(&condattr);
	check("clock", pthread_condattr_setclock(&condattr, CLOCK_MONOTONIC));
	check("pshared", pthread_condattr_setpshared(&condattr, PTHREAD_PROCESS_SHARED));
	check("not_empty", pthread_cond_init(&buffer->not_empty, &condattr));
	check("not_full", pthread_cond_init(&buffer->not_full, &condattr));
	pthread_condattr_destroy(&condattr);
	return buffer;
}

/* Starts a process that begins when the gate opens. The process opens the gate by name. */
static pid_t start(const char *gate, struct buffer *buffer, int producer)
{
	pid_t pid = fork();
	sem_t *sem;

	if (pid)
		return pid;
	sem = sem_open(gate, 0);
	if (sem == SEM_FAILED)
		fail("sem_open", errno);
	while (sem_wait(sem) == -1)
		if (errno != EINTR)
			fail("sem_wait", errno);
	sem_close(sem);
	if (producer >= 0)
		produce(buffer, producer);
	else
		while (get(buffer))
			;
	_exit(0);
}

int main(void)
{
	struct buffer *buffer = make_buffer();
	int i, status, killed = 0, bad = 0;
	struct timespec now;
	char gate[64];
	sem_t *sem;

	snprintf(gate, sizeof(gate), "/gate-%d", (int)getpid());
	sem = sem_open(gate, O_CREAT | O_EXCL, 0600, 0);
	if (sem == SEM_FAILED)
		fail("sem_open", errno);
	for (i = 0; i < PRODUCERS + CONSUMERS; i++)
		if (start(gate, buffer, i < PRODUCERS ? i : -1) < 0)
			fail("fork", errno);
	for (i = 0; i < PRODUCERS + CONSUMERS; i++)
		if (sem_post(sem))
			fail("sem_post", errno);
	while (wait(&status) > 0) {
		killed += WIFSIGNALED(status);
		bad |= WIFEXITED(status) && WEXITSTATUS(status);
	}
	clock_gettime(CLOCK_REALTIME, &now);
	printf("closed gate: %s\n", sem_timedwait(sem, &now) ? strerror(errno) : "open");
	printf("relock: %d\n", (lock(buffer), pthread_mutex_lock(&buffer->mutex)) == EDEADLK);
	pthread_mutex_unlock(&buffer->mutex);
	printf("another's: %d\n", pthread_mutex_unlock(&buffer->mutex) == EPERM);
	printf("%ld items, sum %ld, %d killed, %d found dead\n", buffer->taken, buffer->sum, killed,
	       buffer->deaths);
	bad |= sem_close(sem) | sem_unlink(gate) | pthread_cond_destroy(&buffer->not_empty) |
	       pthread_cond_destroy(&buffer->not_full) | pthread_mutex_destroy(&buffer->mutex);
	return bad || buffer->taken != PRODUCERS * ITEMS - 1 || killed != 1 || buffer->deaths != 1;
}
