// SPDX-License-Identifier: GPL-2.0
/*
 * R34, R12: a thread or process that ends after its turn does not change how many of the other
 * waiters return. The end of a thread does not change their order either, and wakes no waiter.
 */
#include "objects_test.h"

#include <sys/prctl.h>

#define FIRST_UNUSED_USER	60000	/* the first of the users that have no process */
#define WORKERS	8
#define ITEMS	64

/* How a worker ends after its turn. The first three values are ends of threads. */
enum end { RETURNS, EXITS_THREAD, IS_CANCELLED, EXITS, IS_KILLED, EXECUTES, ENDS };

struct worker {
	struct shared *shared;	/* set for threads */
	pthread_t thread;
	pid_t pid;		/* set for processes */
	pid_t tid;
	int number;
	int go;			/* the worker may release the lock and end */
	int released;
	long switches;
};

struct shared {
	union {
		char memory[OBJECT_SIZE];
		struct condition condition;
	};
	const struct object *object;
	enum end end;
	int n_order;
	int order[ITEMS];
	struct worker workers[ITEMS];
};

static bool is_condition(const struct shared *shared)
{
	return shared->object->way == &condition_way;
}

static bool is_lock(const struct shared *shared)
{
	return shared->object->way->give_back && !is_condition(shared);
}

static bool is_thread(const struct shared *shared)
{
	return shared->end <= IS_CANCELLED;
}

static bool set(const int *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void raise_flag(int *flag)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static int shared_init(struct shared *shared, const struct object *object, enum end end)
{
	memset(shared, 0, sizeof(*shared));
	memset(shared->order, -1, sizeof(shared->order));
	shared->object = object;
	shared->end = end;
	return object->way->make(shared->memory, object->kind);
}

/*
 * A worker's turn. @met is the number of signals that no waiter has used yet. The test counts the
 * returns from waits, so waits are not repeated. Only a process repeats its wait for a condition
 * variable, because this wait may return when another process dies.
 */
static int turn(struct shared *shared)
{
	struct condition *condition = &shared->condition;
	int ret;

	if (!is_condition(shared))
		return shared->object->way->wait(shared->memory);
	ret = memwait_mutex_lock(&condition->mutex);
	do {
		if (!ret)
			ret = memwait_cond_wait(&condition->cond, &condition->mutex);
	} while (!ret && !condition->met && !is_thread(shared));
	if (ret || !condition->met--)
		return -1;
	return memwait_mutex_unlock(&condition->mutex);
}

static int release(struct shared *shared)
{
	return is_lock(shared) ? shared->object->way->give_back(shared->memory) : 0;
}

/* Lets the next worker have its turn. */
static int serve(struct shared *shared)
{
	struct condition *condition = &shared->condition;
	int ret;

	if (!is_condition(shared))
		return shared->object->way->give(shared->memory);
	ret = memwait_mutex_lock(&condition->mutex);
	if (ret)
		return ret;
	condition->met++;
	ret = memwait_cond_signal(&condition->cond);
	return ret ? ret : memwait_mutex_unlock(&condition->mutex);
}

static void work(struct shared *shared, struct worker *worker)
{
	__atomic_store_n(&worker->tid, gettid(), __ATOMIC_RELEASE);
	if (turn(shared))
		abort();
	__atomic_store_n(&shared->order[__atomic_fetch_add(&shared->n_order, 1, __ATOMIC_ACQ_REL)],
			 worker->number, __ATOMIC_RELEASE);
	sleep_until(set(&worker->go));
	if (release(shared))
		abort();
	raise_flag(&worker->released);
	if (shared->end == EXITS_THREAD)
		pthread_exit(NULL);
	while (shared->end == IS_CANCELLED || shared->end == IS_KILLED)
		pause();
	if (shared->end == EXECUTES) {
		execl("/bin/busybox", "true", NULL);
		execlp("true", "true", NULL);
	}
}

static void *work_as_thread(void *arg)
{
	struct worker *worker = arg;

	work(worker->shared, worker);
	return NULL;
}

static void worker_start(struct shared *shared, int i)
{
	struct worker *worker = &shared->workers[i];
	pid_t pid;

	worker->shared = shared;
	worker->number = i;
	if (is_thread(shared)) {
		if (pthread_create(&worker->thread, NULL, work_as_thread, worker))
			abort();
	} else {
		pid = fork_child();
		if (!pid) {
			work(shared, worker);
			_exit(0);
		}
		worker->pid = pid;
	}
	spin_until(__atomic_load_n(&worker->tid, __ATOMIC_ACQUIRE));
	await_asleep(worker->tid);
}

static void worker_end(struct shared *shared, int i)
{
	struct worker *worker = &shared->workers[i];

	raise_flag(&worker->go);
	spin_until(set(&worker->released));
	if (is_thread(shared)) {
		if (shared->end == IS_CANCELLED)
			pthread_cancel(worker->thread);
		pthread_join(worker->thread, NULL);
	} else {
		if (shared->end == IS_KILLED)
			kill(worker->pid, SIGKILL);
		child_status(worker->pid);
	}
}

/*
 * A thread in state S may not have left its CPU yet. Its context switch is counted when it leaves.
 * From that time /proc shows the system call in which the thread sleeps.
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

/* Waits for turn @number and returns the worker that had it. */
static int had_turn(struct shared *shared, int number)
{
	spin_until(__atomic_load_n(&shared->order[number], __ATOMIC_ACQUIRE) >= 0);
	return shared->order[number];
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

static bool has_had_turn(const struct shared *shared, int worker)
{
	int i, n = __atomic_load_n(&shared->n_order, __ATOMIC_ACQUIRE);

	for (i = 0; i < n && shared->order[i] != worker; i++)
		;
	return i < n;
}

/*
 * Returns when all effects of an end have happened and, of the first @nr workers, those that have
 * not had their turn are asleep. The caller and @workers workers have an id, and no other process
 * of this user has an id.
 */
static void settle(int fd, struct shared *shared, int nr, int workers)
{
	int i;

	mw_await_owners(fd, 1 + workers);
	for (i = 0; i < nr; i++) {
		if (has_had_turn(shared, i))
			continue;
		await_asleep(shared->workers[i].tid);
		if (is_thread(shared))
			spin_until(has_left_processor(&shared->workers[i]));
	}
}

/* Whether waiters in several processes acquire the object one after another, in FIFO order. */
static bool has_turns(const struct object *object)
{
	return is_fifo(object) && !is_private(object) && !dead_excludes(object) &&
	       !object->way->meets;
}

static void ends_as(struct __test_metadata *_metadata, int fd, struct shared *shared, enum end end)
{
	const struct object *object;
	int i, j;

	for_each_object(object, has_turns(object)) {
		ASSERT_EQ(0, shared_init(shared, object, end));
		for (i = 0; i < WORKERS; i++)
			worker_start(shared, i);
		settle(fd, shared, WORKERS, WORKERS);
		for (i = 0; i < WORKERS; i++)
			shared->workers[i].switches = switches(&shared->workers[i]);
		for (i = 0; i < WORKERS; i++) {
			if (!is_lock(shared) || !i)
				ASSERT_EQ(0, serve(shared));
			worker_end(shared, had_turn(shared, i));
			/* When a worker unlocks a lock, the next worker has its turn. */
			while (is_lock(shared) && i + 1 < WORKERS &&
			       __atomic_load_n(&shared->n_order, __ATOMIC_ACQUIRE) == i + 1)
				sched_yield();
			settle(fd, shared, WORKERS, WORKERS - 1 - i);
			if (!is_lock(shared))
				ASSERT_EQ(i + 1, shared->n_order) TH_LOG("%s", object->name);
			for (j = 0; is_thread(shared) && j < WORKERS; j++) {
				if (has_had_turn(shared, j))
					continue;
				EXPECT_EQ(shared->workers[j].switches,
					  switches(&shared->workers[j]))
					TH_LOG("%s: end %d woke %d", object->name, i, j);
			}
		}
		ASSERT_EQ(WORKERS, shared->n_order);
		for (i = 0; is_thread(shared) && i < WORKERS; i++)
			EXPECT_EQ(i, shared->order[i]) TH_LOG("%s", object->name);
	}
}

FIXTURE(ends)
{
	struct shared *shared;
	int fd;
};

/* Runs as a separate user, so that only the test's owners are counted. */
FIXTURE_SETUP(ends)
{
	uint64_t id;

	if (!geteuid())
		ASSERT_EQ(0, setuid(FIRST_UNUSED_USER + getpid() % 5000));
	/* Make the test the owner of its files in /proc again. */
	ASSERT_EQ(0, prctl(PR_SET_DUMPABLE, 1));
	self->fd = memwait_open(0);
	ASSERT_LE(0, self->fd);
	self->shared = shared_page(sizeof(*self->shared));
	ASSERT_NE(NULL, self->shared);
	if (memwait_owner(&id))
		SKIP(return, "this kernel does not report deaths");
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

static const struct object a_condition = { .name = "condition", .way = &condition_way };

/*
 * Many threads wait at the same time. As many waiters return as were signalled, and the ends of the
 * threads do not change that.
 */
ENDS_TEST(R34_a_few_signals_to_many_threads_that_end)
{
	struct shared *shared = self->shared;
	int i, round;

	for (round = 0; round < 3; round++) {
		ASSERT_EQ(0, shared_init(shared, &a_condition, RETURNS));
		for (i = 0; i < ITEMS; i++)
			worker_start(shared, i);
		for (i = 0; i < 5; i++)
			ASSERT_EQ(0, serve(shared));
		for (i = 0; i < 5; i++)
			worker_end(shared, had_turn(shared, i));
		settle(self->fd, shared, 0, ITEMS - 5);
		EXPECT_EQ(5, shared->n_order);
		EXPECT_EQ(ITEMS - 5, memwait_waiters(&shared->condition.cond, 0));
		ASSERT_EQ(0, memwait_mutex_lock(&shared->condition.mutex));
		shared->condition.met = ITEMS - 5;
		ASSERT_EQ(0, memwait_cond_broadcast(&shared->condition.cond));
		ASSERT_EQ(0, memwait_mutex_unlock(&shared->condition.mutex));
		for (i = 5; i < ITEMS; i++) {
			worker_end(shared, had_turn(shared, i));
		}
	}
}

/* A waiter that is killed before it holds the mutex passes its signal to the next waiter. */
ENDS_TEST(R34_a_signal_of_a_dead_waiter_passes_to_the_next)
{
	struct shared *shared = self->shared;
	int i;

	ASSERT_EQ(0, shared_init(shared, &a_condition, EXITS));
	for (i = 0; i < 3; i++)
		worker_start(shared, i);
	/* The first waiter is woken, waits for the mutex, and is killed in that wait. */
	ASSERT_EQ(0, memwait_mutex_lock(&shared->condition.mutex));
	shared->condition.met = 1;
	ASSERT_EQ(0, memwait_cond_signal(&shared->condition.cond));
	await_waiters(self->fd, &shared->condition.mutex, U32_SIZE, 1);
	kill_child(shared->workers[0].pid);
	await_waiters(self->fd, &shared->condition.mutex, U32_SIZE, 1);
	ASSERT_EQ(0, memwait_mutex_unlock(&shared->condition.mutex));
	spin_until(__atomic_load_n(&shared->n_order, __ATOMIC_ACQUIRE));
	settle(self->fd, shared, 0, 2);
	EXPECT_EQ(1, memwait_waiters(&shared->condition.cond, 0));
	EXPECT_EQ(1, shared->n_order);
	ASSERT_EQ(0, serve(shared));
	worker_end(shared, 1);
	worker_end(shared, 2);
	EXPECT_EQ(1, shared->order[0]);
	EXPECT_EQ(2, shared->order[1]);
}

TEST_HARNESS_MAIN
