// SPDX-License-Identifier: GPL-2.0
/*
 * L2: a process that enters its sandbox after its first lock can use each kind of object. Inside
 * the sandbox the library needs the device's ioctls, and for loops read(2) and ppoll(2), but no
 * other system call.
 */
#include "objects_test.h"
#include "refuse_test.h"

enum form { BLOCKING, UNTIL, TOO_LATE, IN_A_LOOP, FORMS };

/* Memory that the processes share. */
static struct {
	char object[OBJECT_SIZE];	/* first, for its alignment */
	unsigned int round;	/* object and form; also the number of waits begun */
	unsigned int done;	/* the number of waits that have ended */
	int result;		/* result of the last wait that has ended */
	int call;		/* system call that was refused, or -1 */
} *shared;

static memwait_loop_t *loop;

static void refused(int signal, siginfo_t *info, void *context)
{
	shared->call = info->si_syscall;
	_exit(1);
}

/* The clock calls are allowed because the vDSO does not work on all machines. */
static const unsigned int allowed[] = {
	__NR_ioctl, __NR_read, __NR_ppoll, __NR_clock_gettime, __NR_exit_group,
#ifdef __NR_clock_gettime64
	__NR_clock_gettime64,
#endif
};

/* All other system calls raise a signal, handled by refused(), in all threads. */
static int enter_sandbox(void)
{
	const struct sigaction action = { .sa_sigaction = refused, .sa_flags = SA_SIGINFO };
	struct sock_filter filter[2 + 2 * ARRAY_SIZE(allowed)] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	struct sock_fprog program = { .len = ARRAY_SIZE(filter), .filter = filter };
	struct sock_filter *next = filter + 1;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(allowed); i++) {
		*next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
		*next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	*next = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
	return sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -1 :
	       (int)syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
			    &program);
}

static void await_change(unsigned int *word, unsigned int from)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == from)
		must(memwait_wait32(word, from, NULL, MEMWAIT_PRIVATE) < 0);
}

static void change(unsigned int *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_RELEASE);
	must(memwait_notify(word, 1, MEMWAIT_PRIVATE) < 0);
}

static int wait_in_loop(const struct way *way)
{
	struct counted_op counted = counted_by(&counted, loop);
	int err = way->wait_async(shared->object, &counted.op);

	if (err != EINPROGRESS)
		return err;
	err = memwait_op_wait(&counted.op, NULL);
	if (err)
		return -err;
	return counted.result == MEMWAIT_BARRIER_SERIAL_THREAD ? 0 : counted.result;
}

static int wait_as(enum form form, const struct way *way)
{
	struct timespec soon = in_time(CLOCK_MONOTONIC, 1);
	struct timespec late = in_time(CLOCK_REALTIME, 3600 * 1000);

	switch (form) {
	case BLOCKING:
		return way->wait(shared->object);
	case UNTIL:
		return way->wait_until(shared->object, CLOCK_REALTIME, &late);
	case TOO_LATE:
		return way->wait_until(shared->object, CLOCK_MONOTONIC, &soon);
	default:
		return wait_in_loop(way);
	}
}

/* A thread that must not end, because its end would need other system calls. */
static int wait_for_all(void *unused)
{
	unsigned int round;
	int result;

	for (round = 0; ; round++) {
		const struct way *way = objects[round / FORMS].way;

		await_change(&shared->round, round);
		result = wait_as(round % FORMS, way);
		shared->result = leave(way, shared->object, result);
		change(&shared->done);
	}
	return 0;
}

static bool wait_succeeds(enum form form, const struct way *way, unsigned int kind)
{
	unsigned int round = shared->round;
	int err = way->make(shared->object, kind);

	change(&shared->round);
	while (!err && form != TOO_LATE && !sleepers_within(shared->object, OBJECT_SIZE / 2, kind))
		;
	if (form == TOO_LATE)
		await_change(&shared->done, round);
	/* A participant whose wait timed out has not arrived at the barrier. */
	if (form != TOO_LATE || !way->meets)
		err = err ?: way->give(shared->object);
	await_change(&shared->done, round);
	return !err && shared->result == (form == TOO_LATE ? ETIMEDOUT : 0) &&
	       !way->destroy(shared->object);
}

/* Returns 0 when all rounds are done. */
static int run_all(void)
{
	memwait_mutex_t first = MEMWAIT_MUTEX_INIT;
	struct runner runner;
	unsigned int round;

	must(memwait_mutex_lock(&first) ?: memwait_mutex_unlock(&first));
	must(memwait_loop_new(&loop, 0));
	runner_start(&runner, wait_for_all, NULL);
	if (enter_sandbox())
		return 2;
	for (round = 0; round < FORMS * ARRAY_SIZE(objects); round++) {
		if (!wait_succeeds(round % FORMS, objects[round / FORMS].way,
				   objects[round / FORMS].kind))
			return 3;
	}
	return 0;
}

USERLIB_TEST(L2_after_the_first_lock_the_device_is_enough)
{
	unsigned int round;

	if (!can_refuse())
		SKIP(return, "this kernel has no seccomp");
	shared = self->shared;
	shared->call = -1;
	EXPECT_EQ(0, child_status(run_in_child(run_all())));
	round = shared->round - 1;
	EXPECT_EQ(-1, shared->call) {
		TH_LOG("%s, form %u", objects[round / FORMS].name, round % FORMS);
	}
	EXPECT_EQ(FORMS * ARRAY_SIZE(objects), shared->done) {
		TH_LOG("%s, form %u: %d", objects[round / FORMS].name, round % FORMS,
		       shared->result);
	}
}

TEST_HARNESS_MAIN
