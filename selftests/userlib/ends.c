// SPDX-License-Identifier: GPL-2.0
/*
 * R34, R12: whoever ends after its turn changes nothing for how many come back of those who wait
 * on; and if it is a thread that ends, it does not change their order, and none is woken for it.
 */
#include "userlib_test.h"

#include <sys/prctl.h>

#define NOBODY	60000	/* the first of the users that have no process */
#define WORKERS	8
#define ITEMS	64

enum kind { SEM, COND, CHANNEL, MUTEX, RECURSIVE, ROBUST, ROBUST_COND, RWLOCK, KINDS };

/* What a worker does after its turn. The first three are ends of threads. */
enum end { RETURNS, EXITS_THREAD, IS_CANCELLED, EXITS, IS_KILLED, EXECUTES, ENDS };

struct worker {
	struct scene *scene;	/* of threads */
	pthread_t thread;
	pid_t pid;		/* of a process */
	pid_t tid;
	int number;
	int go;			/* it may release what it has, and end */
	int released;
	long switches;
};

struct scene {
	memwait_sem_t sem;
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	memwait_rwlock_t rwlock;
	enum kind kind;
	enum end end;
	int signalled;		/* by signals of the condition variable, not used yet */
	int n_order;
	int order[ITEMS];
	struct worker workers[ITEMS];
	uint64_t channel[256];
};

static memwait_channel_t *channel_of(struct scene *scene)
{
	return (memwait_channel_t *)scene->channel;
}

static bool is_lock(const struct scene *scene)
{
	return scene->kind == MUTEX || scene->kind == RECURSIVE || scene->kind == ROBUST ||
	       scene->kind == RWLOCK;
}

static bool is_thread(const struct scene *scene)
{
	return scene->end <= IS_CANCELLED;
}

static bool set(const int *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void tell(int *flag)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static int scene_init(struct scene *scene, enum kind kind, enum end end)
{
	static const unsigned int kinds[KINDS] = {
		[RECURSIVE] = MEMWAIT_MUTEX_RECURSIVE,
		[ROBUST] = MEMWAIT_MUTEX_ROBUST,
		[ROBUST_COND] = MEMWAIT_MUTEX_ROBUST,
	};

	memset(scene, 0, sizeof(*scene));
	memset(scene->order, -1, sizeof(scene->order));
	scene->kind = kind;
	scene->end = end;
	if (memwait_sem_init(&scene->sem, 0, 0) || memwait_cond_init(&scene->cond, 0) ||
	    memwait_mutex_init(&scene->mutex, kinds[kind]) ||
	    memwait_rwlock_init(&scene->rwlock, 0) ||
	    memwait_channel_init(channel_of(scene), sizeof(scene->channel), 0, sizeof(int),
				 WORKERS))
		return -1;
	if (kind == RWLOCK)
		return memwait_rwlock_wrlock(&scene->rwlock);
	return is_lock(scene) ? memwait_mutex_lock(&scene->mutex) : 0;
}

/*
 * A turn of a worker: no loop, as it counts what brings it back. But a wait for a condition may
 * return for the death of a process.
 */
static int turn(struct scene *scene)
{
	int ret, item;

	switch (scene->kind) {
	case SEM:
		return memwait_sem_wait(&scene->sem);
	case CHANNEL:
		return memwait_channel_recv(channel_of(scene), &item, sizeof(item));
	case RWLOCK:
		return memwait_rwlock_wrlock(&scene->rwlock);
	case COND:
	case ROBUST_COND:
		ret = memwait_mutex_lock(&scene->mutex);
		do {
			if (!ret)
				ret = memwait_cond_wait(&scene->cond, &scene->mutex);
		} while (!ret && !scene->signalled && !is_thread(scene));
		if (ret || !scene->signalled--)
			return -1;
		return memwait_mutex_unlock(&scene->mutex);
	default:
		return memwait_mutex_lock(&scene->mutex);
	}
}

static void release(struct scene *scene)
{
	if (scene->kind == RWLOCK)
		memwait_rwlock_unlock(&scene->rwlock);
	else if (is_lock(scene))
		memwait_mutex_unlock(&scene->mutex);
}

/* What lets the first worker, or each of them if it is no lock, have its turn. */
static int serve(struct scene *scene)
{
	int item = 0, ret;

	switch (scene->kind) {
	case SEM:
		return memwait_sem_post(&scene->sem);
	case COND:
	case ROBUST_COND:
		ret = memwait_mutex_lock(&scene->mutex);
		if (ret)
			return ret;
		scene->signalled++;
		ret = memwait_cond_signal(&scene->cond);
		return ret ? ret : memwait_mutex_unlock(&scene->mutex);
	case CHANNEL:
		return memwait_channel_send(channel_of(scene), &item, sizeof(item));
	default:
		release(scene);
		return 0;
	}
}

static void work(struct scene *scene, struct worker *worker)
{
	__atomic_store_n(&worker->tid, gettid(), __ATOMIC_RELEASE);
	if (turn(scene))
		abort();
	__atomic_store_n(&scene->order[__atomic_fetch_add(&scene->n_order, 1, __ATOMIC_ACQ_REL)],
			 worker->number, __ATOMIC_RELEASE);
	sleep_until(set(&worker->go));
	release(scene);
	tell(&worker->released);
	if (scene->end == EXITS_THREAD)
		pthread_exit(NULL);
	while (scene->end == IS_CANCELLED || scene->end == IS_KILLED)
		pause();
	if (scene->end == EXECUTES) {
		execl("/bin/busybox", "true", NULL);
		execlp("true", "true", NULL);
	}
}

static void *work_as_thread(void *arg)
{
	struct worker *worker = arg;

	work(worker->scene, worker);
	return NULL;
}

static void worker_start(struct scene *scene, int i)
{
	struct worker *worker = &scene->workers[i];
	pid_t pid;

	worker->scene = scene;
	worker->number = i;
	if (is_thread(scene)) {
		if (pthread_create(&worker->thread, NULL, work_as_thread, worker))
			abort();
	} else {
		pid = fork_child();
		if (!pid) {
			work(scene, worker);
			_exit(0);
		}
		worker->pid = pid;
	}
	spin_until(__atomic_load_n(&worker->tid, __ATOMIC_ACQUIRE));
	await_asleep(worker->tid);
}

static void worker_end(struct scene *scene, int i)
{
	struct worker *worker = &scene->workers[i];

	tell(&worker->go);
	spin_until(set(&worker->released));
	if (is_thread(scene)) {
		if (scene->end == IS_CANCELLED)
			pthread_cancel(worker->thread);
		pthread_join(worker->thread, NULL);
	} else {
		if (scene->end == IS_KILLED)
			kill(worker->pid, SIGKILL);
		child_status(worker->pid);
	}
}

/*
 * A thread in state S may not have left its processor yet, and that is counted when it does. Only
 * then does the kernel tell which system call it sleeps in.
 */
static bool has_left_processor(const struct worker *worker)
{
	char path[64], line[16] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", worker->tid);
	f = fopen(path, "r");
	if (!f || !fgets(line, sizeof(line), f))
		line[0] = 0;
	if (f)
		fclose(f);
	return line[0] >= '0' && line[0] <= '9';
}

/* The worker that had the turn of that number, once it has had it. */
static int had_turn(struct scene *scene, int number)
{
	spin_until(__atomic_load_n(&scene->order[number], __ATOMIC_ACQUIRE) >= 0);
	return scene->order[number];
}

static long switches(const struct worker *worker)
{
	char path[64], line[128];
	long n = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", worker->tid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "voluntary_ctxt_switches: %ld", &n);
	if (f)
		fclose(f);
	return n;
}

static bool has_had_turn(const struct scene *scene, int worker)
{
	int i, n = __atomic_load_n(&scene->n_order, __ATOMIC_ACQUIRE);

	for (i = 0; i < n && scene->order[i] != worker; i++)
		;
	return i < n;
}

/*
 * All that an end does has been done, and of the first @nr workers those sleep that wait for their
 * turn. The caller and @workers workers have an id, and no other process of this user.
 */
static void settle(int fd, struct scene *scene, int nr, int workers)
{
	int i;

	mw_await_owners(fd, 1 + workers);
	for (i = 0; i < nr; i++) {
		if (has_had_turn(scene, i))
			continue;
		await_asleep(scene->workers[i].tid);
		if (is_thread(scene))
			spin_until(has_left_processor(&scene->workers[i]));
	}
}

static void ends_as(struct __test_metadata *_metadata, int fd, struct scene *scene, enum end end)
{
	enum kind kind;
	int i, j;

	for (kind = 0; kind < KINDS; kind++) {
		ASSERT_EQ(0, scene_init(scene, kind, end));
		for (i = 0; i < WORKERS; i++)
			worker_start(scene, i);
		settle(fd, scene, WORKERS, WORKERS);
		for (i = 0; i < WORKERS; i++)
			scene->workers[i].switches = switches(&scene->workers[i]);
		for (i = 0; i < WORKERS; i++) {
			if (!is_lock(scene) || !i)
				ASSERT_EQ(0, serve(scene));
			worker_end(scene, had_turn(scene, i));
			/* Of a lock the next has its turn then. */
			while (is_lock(scene) && i + 1 < WORKERS &&
			       __atomic_load_n(&scene->n_order, __ATOMIC_ACQUIRE) == i + 1)
				sched_yield();
			settle(fd, scene, WORKERS, WORKERS - 1 - i);
			if (!is_lock(scene))
				ASSERT_EQ(i + 1, scene->n_order) TH_LOG("kind %d", kind);
			for (j = 0; is_thread(scene) && j < WORKERS; j++) {
				if (has_had_turn(scene, j))
					continue;
				EXPECT_EQ(scene->workers[j].switches, switches(&scene->workers[j]))
					TH_LOG("kind %d: end %d woke %d", kind, i, j);
			}
		}
		ASSERT_EQ(WORKERS, scene->n_order);
		for (i = 0; is_thread(scene) && i < WORKERS; i++)
			EXPECT_EQ(i, scene->order[i]) TH_LOG("kind %d", kind);
	}
}

FIXTURE(ends)
{
	struct scene *shared;
	int fd;
};

/* As a user of its own, whose owners are those of the test: what others have does not count. */
FIXTURE_SETUP(ends)
{
	uint64_t id;

	if (!geteuid())
		ASSERT_EQ(0, setuid(NOBODY + getpid() % 5000));
	/* Its files in /proc are its own again. */
	ASSERT_EQ(0, prctl(PR_SET_DUMPABLE, 1));
	self->fd = memwait_open(0);
	ASSERT_LE(0, self->fd);
	self->shared = shared_page(sizeof(*self->shared));
	ASSERT_NE(NULL, self->shared);
	if (memwait_owner(&id))
		SKIP(return, "this kernel cannot tell of deaths");
}

FIXTURE_TEARDOWN(ends)
{
	munmap(self->shared, sizeof(*self->shared));
	close(self->fd);
}

#define ENDS_TEST(name)	TEST_F_TIMEOUT(ends, name, 300)

ENDS_TEST(R34_threads_that_return)
{
	ends_as(_metadata, self->fd, self->shared, RETURNS);
}

ENDS_TEST(R34_threads_that_exit)
{
	ends_as(_metadata, self->fd, self->shared, EXITS_THREAD);
}

ENDS_TEST(R34_threads_that_are_cancelled)
{
	ends_as(_metadata, self->fd, self->shared, IS_CANCELLED);
}

ENDS_TEST(R34_processes_that_exit)
{
	ends_as(_metadata, self->fd, self->shared, EXITS);
}

ENDS_TEST(R34_processes_that_are_killed)
{
	ends_as(_metadata, self->fd, self->shared, IS_KILLED);
}

ENDS_TEST(R34_processes_that_execute)
{
	ends_as(_metadata, self->fd, self->shared, EXECUTES);
}

/* Many at once: as many as were signalled come back, whatever these do then. */
ENDS_TEST(R34_a_few_signals_to_many_threads_that_end)
{
	struct scene *scene = self->shared;
	int i, round;

	for (round = 0; round < 3; round++) {
		ASSERT_EQ(0, scene_init(scene, COND, RETURNS));
		for (i = 0; i < ITEMS; i++)
			worker_start(scene, i);
		for (i = 0; i < 5; i++)
			ASSERT_EQ(0, serve(scene));
		for (i = 0; i < 5; i++)
			worker_end(scene, had_turn(scene, i));
		settle(self->fd, scene, 0, ITEMS - 5);
		EXPECT_EQ(5, scene->n_order);
		EXPECT_EQ(ITEMS - 5, memwait_waiters(&scene->cond, 0));
		ASSERT_EQ(0, memwait_mutex_lock(&scene->mutex));
		scene->signalled = ITEMS - 5;
		ASSERT_EQ(0, memwait_cond_broadcast(&scene->cond));
		ASSERT_EQ(0, memwait_mutex_unlock(&scene->mutex));
		for (i = 5; i < ITEMS; i++) {
			worker_end(scene, had_turn(scene, i));
		}
	}
}

/* A waiter that was killed before it had the mutex has lost its signal to the next. */
ENDS_TEST(R34_a_signal_of_a_dead_waiter_goes_to_the_next)
{
	struct scene *scene = self->shared;
	int i;

	ASSERT_EQ(0, scene_init(scene, COND, EXITS));
	for (i = 0; i < 3; i++)
		worker_start(scene, i);
	/* It is woken, waits for the mutex, and is killed there. */
	ASSERT_EQ(0, memwait_mutex_lock(&scene->mutex));
	scene->signalled = 1;
	ASSERT_EQ(0, memwait_cond_signal(&scene->cond));
	await_waiters(self->fd, &scene->mutex, U32_SIZE, 1);
	kill_child(scene->workers[0].pid);
	await_waiters(self->fd, &scene->mutex, U32_SIZE, 1);
	ASSERT_EQ(0, memwait_mutex_unlock(&scene->mutex));
	spin_until(__atomic_load_n(&scene->n_order, __ATOMIC_ACQUIRE));
	settle(self->fd, scene, 0, 2);
	EXPECT_EQ(1, memwait_waiters(&scene->cond, 0));
	EXPECT_EQ(1, scene->n_order);
	ASSERT_EQ(0, serve(scene));
	worker_end(scene, 1);
	worker_end(scene, 2);
	EXPECT_EQ(1, scene->order[0]);
	EXPECT_EQ(2, scene->order[1]);
}

TEST_HARNESS_MAIN
