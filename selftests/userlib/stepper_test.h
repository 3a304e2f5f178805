/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Death at each instruction (L6, L7). A process, the victim, executes one function of the library
 * in single steps under ptrace(2) and is killed. The first victim is killed before the first
 * instruction, the next victim after it, and so on, until a victim has returned from the function.
 * Other processes, the helpers, share the objects and may be asleep when the victim dies. After
 * each death the test checks that the helpers continue as they should.
 *
 * All calls of helpers have a deadline. The deadline is far away, but nearer once a failure was
 * found. It is a failure if the deadline of a helper passes while the helper waits for an object
 * that is free.
 *
 * A victim that will die after the 300th instruction is not stepped through instructions that
 * earlier victims have executed. It runs to a breakpoint at one of the last of these instructions.
 */
#ifndef STEPPER_TEST_H
#define STEPPER_TEST_H

#include "userlib_test.h"
#include <elf.h>
#include <linux/audit.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>

#define HELPERS		4
#define PATIENCE_MS	(20000 * slowness())
#define PATIENCE_LOST	1000	/* in milliseconds, like PATIENCE_MS */
#define MOST_STEPS	10000

/* The context of a loop has an id. */
#define IDS_OF_A_LOOP	1
#define MOST_REPORTS	4
#define MOST_FAILURES	400

/* All objects are in one page. */
struct objects {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	memwait_sem_t sem;
	memwait_rwlock_t rwlock;
	memwait_barrier_t barrier;
	memwait_waitgroup_t group;
	memwait_event_t event;
	uint64_t channel[64];
	uint64_t item[HELPERS + 1];	/* received items; the last item is the victim's */
	uint64_t received;		/* received by the test while the victim sleeps */
	int called_back;		/* result that the callback received */
	int inside;			/* threads that hold the mutex or rwlock */
	int violations;
	int owner_died;			/* how often EOWNERDEAD was returned */
	int lost;			/* how often ENOTRECOVERABLE was returned */
	int serials;			/* how often SERIAL_THREAD was returned */
	int begun, finished;		/* set by the victim */
	int result;			/* of the victim's operation */
};

#define VICTIM	HELPERS

struct stepper;
struct machine;

typedef int (*helper_function)(struct objects *objects, int me);

/* A request to a helper. Functions have the same address in all processes. */
struct request {
	helper_function function;
	int result;
	int busy;
};

/* Data in memory that all processes share. */
struct shared {
	union {
		struct objects objects;
		char page[4096];
	};
	struct objects copy;
	struct objects before;		/* the objects before the last step */
	struct objects at_death;
	struct request requests[HELPERS];
	int loops[HELPERS + 1];		/* number of ids of each process's loop */
	long patience;			/* in milliseconds */
	unsigned int kind;
};

static struct shared *shared;

_Static_assert(sizeof(shared->objects) <= sizeof(shared->page), "the objects fit");

/*
 * @prepare: initialises the objects before each victim; run by the test
 * @approach: run by the victim, at full speed
 * @before: helpers that sleep when the victim begins; unused entries are NULL
 * @begin: run by the victim, at full speed, when the helpers of @before sleep
 * @operation: run by the victim, in single steps
 * @behind: helpers that start when the victim sleeps or is dead, after those of @before
 * @release: run by the test when the victim sleeps or is dead: lets the sleepers continue
 * @check: run after the death; returns what is wrong, or NULL
 */
struct scenario {
	const char *name;
	unsigned int kind;		/* of the mutex or rwlock */
	int number;			/* parameter of the functions */
	bool without_id;		/* the victim gets an id in the operation, or never */
	int (*prepare)(struct stepper *stepper);
	int (*approach)(struct objects *objects);
	helper_function before[HELPERS];
	int (*begin)(struct objects *objects);
	int (*operation)(struct objects *objects);
	helper_function behind[HELPERS];
	int (*release)(struct stepper *stepper);
	const char *(*check)(struct stepper *stepper);
};

/* Results of earlier victims for an instruction. */
struct step {
	unsigned long at;	/* program counter after the instruction, or 0 */
	bool sleeps;		/* a victim sleeps in this instruction */
	bool matters;		/* its effect is visible to other processes */
};

struct helper {
	pid_t pid;
	int fd;		/* a pipe, with a byte for each request */
};

struct stepper {
	const struct scenario *scenario;
	struct helper helpers[HELPERS];
	int device;
	uint64_t owners;	/* owners of processes that are alive */
	pid_t victim;
	const struct machine *machine;
	bool followed;		/* the helpers of @behind have started */
	int releases;		/* how often @release was called */
	struct step *trace;
	int deaths;
	int failures;
	char where[400];	/* ranges of instructions that failed */
	int from, to;		/* the last of these ranges */
	char said[256];
};

/* Stores a description of the failure and returns it. */
#define say(stepper, ...)							\
	(snprintf((stepper)->said, sizeof((stepper)->said), __VA_ARGS__), (stepper)->said)

static inline bool ended(void)
{
	return shared->objects.finished;
}

/* Returns the deadline of all waits. */
static inline struct timespec last_moment(void)
{
	return in_time(CLOCK_MONOTONIC, shared->patience);
}

/*
 * Returns when the dead process's id has been freed, which happens after all notifications of its
 * death. A helper that is still asleep after that is not waiting for such a notification.
 */
static inline void await_death_notified(struct stepper *stepper)
{
	uint64_t deadline = in_ms(PATIENCE_MS), most = stepper->owners;
	int i;

	for (i = 0; i <= HELPERS; i++)
		most += shared->loops[i];
	spin_until(mw_user_owners(stepper->device) <= most || now_ns(CLOCK_MONOTONIC) >= deadline);
}

/* Helpers */

static inline void helper_main(int me, int fd)
{
	struct request *request = &shared->requests[me];
	uint64_t id;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (memwait_owner(&id))
		_exit(1);
	__atomic_store_n(&request->busy, 0, __ATOMIC_RELEASE);
	while (read(fd, &byte, 1) == 1) {
		request->result = request->function(&shared->objects, me);
		__atomic_store_n(&request->busy, 0, __ATOMIC_RELEASE);
	}
	_exit(0);
}

static inline void helper_fork(struct stepper *stepper, int me)
{
	int pipes[2];

	__atomic_store_n(&shared->requests[me].busy, 1, __ATOMIC_RELEASE);
	if (pipe2(pipes, O_CLOEXEC))
		abort();
	stepper->helpers[me].pid = fork();
	if (!stepper->helpers[me].pid) {
		close(pipes[1]);
		helper_main(me, pipes[0]);
	}
	close(pipes[0]);
	stepper->helpers[me].fd = pipes[1];
	if (stepper->helpers[me].pid < 0)
		abort();
	spin_until(!__atomic_load_n(&shared->requests[me].busy, __ATOMIC_ACQUIRE));
	stepper->owners++;
}

/* Kills a helper in any state, and returns when its death has been notified. */
static inline void helper_kill(struct stepper *stepper, int me)
{
	kill_child(stepper->helpers[me].pid);
	close(stepper->helpers[me].fd);
	stepper->owners--;
	shared->loops[me] = 0;
	await_death_notified(stepper);
}

static inline bool helper_is_busy(int me)
{
	return __atomic_load_n(&shared->requests[me].busy, __ATOMIC_ACQUIRE);
}

/*
 * Whether the helper sleeps in the library, that is, in ioctl(2) or poll(2). State S alone is not
 * enough: a thread that was preempted just before it sleeps in read(2) for its request is also in
 * this state. The kernel reports the system call only of a thread that has left its CPU.
 */
static inline bool helper_is_asleep(struct stepper *stepper, int me)
{
	char path[64], line[128] = "", *end;
	long call;
	FILE *file;

	if (!helper_is_busy(me) || thread_state(stepper->helpers[me].pid) != 'S')
		return false;
	snprintf(path, sizeof(path), "/proc/%d/syscall", stepper->helpers[me].pid);
	file = fopen(path, "r");
	if (!file)
		return false;
	/* The file may contain "running". */
	call = strtol(fgets(line, sizeof(line), file) ? line : "", &end, 10);
	fclose(file);
	return end != line && call >= 0 && call != SYS_read && helper_is_busy(me);
}

static inline void helper_start(struct stepper *stepper, int me, helper_function function)
{
	struct request *request = &shared->requests[me];

	request->function = function;
	request->result = -1;
	__atomic_store_n(&request->busy, 1, __ATOMIC_RELEASE);
	if (write(stepper->helpers[me].fd, "", 1) != 1)
		abort();
}

/* Returns when the helper sleeps in its function, or has returned from it. */
static inline void helper_await_asleep(struct stepper *stepper, int me)
{
	spin_until(!helper_is_busy(me) || helper_is_asleep(stepper, me));
}

static inline void helper_run_to_sleep(struct stepper *stepper, int me, helper_function function)
{
	helper_start(stepper, me, function);
	helper_await_asleep(stepper, me);
}

/* Replaces helpers that have not finished. */
static inline void helpers_retire(struct stepper *stepper)
{
	int i;

	for (i = 0; i < HELPERS; i++) {
		if (!helper_is_busy(i))
			continue;
		helper_kill(stepper, i);
		helper_fork(stepper, i);
	}
}

static inline int helpers_busy(void)
{
	int i, n = 0;

	for (i = 0; i < HELPERS; i++)
		n += helper_is_busy(i);
	return n;
}

static inline bool helpers_are_asleep(struct stepper *stepper)
{
	int i;

	for (i = 0; i < HELPERS; i++) {
		if (helper_is_busy(i) && !helper_is_asleep(stepper, i))
			return false;
	}
	return true;
}

/* Returns when no helper can continue at present. */
static inline void helpers_await_asleep(struct stepper *stepper)
{
	spin_until(helpers_are_asleep(stepper));
}

/*
 * Returns how many helpers were started in @function since the victim began and have not returned.
 */
static inline int helpers_waiting(helper_function function)
{
	int i, n = 0;

	for (i = 0; i < HELPERS; i++)
		n += helper_is_busy(i) && shared->requests[i].function == function;
	return n;
}

/* Returns how many helpers have returned @result from @function. */
static inline int helpers_done(helper_function function, int result)
{
	int i, n = 0;

	for (i = 0; i < HELPERS; i++)
		n += !helper_is_busy(i) && shared->requests[i].function == function &&
		     shared->requests[i].result == result;
	return n;
}

/*
 * Returns a copy of the objects, for inspecting locks without changing them. The objects are plain
 * data, so they can be copied. While all helpers sleep, no other process changes the objects.
 */
static inline struct objects *copied(void)
{
	memcpy(&shared->copy, &shared->objects, sizeof(shared->copy));
	return &shared->copy;
}

/*
 * Returns true when all helpers have finished. Returns false when the unfinished helpers are asleep
 * and @in_vain reports that the object that they wait for is not available. Otherwise the deadlines
 * of the helpers end the loop.
 */
static inline bool settle(struct stepper *stepper, bool (*in_vain)(void))
{
	while (helpers_busy()) {
		sched_yield();
		if (!in_vain || !helpers_are_asleep(stepper))
			continue;
		copied();
		/* A helper may have continued in the meantime. */
		if (helpers_busy() && helpers_are_asleep(stepper) && in_vain())
			return false;
	}
	return true;
}

/* Helpers that have finished must have succeeded, and no two may have held the lock together. */
static inline const char *so_far_well(struct stepper *stepper)
{
	int i;

	for (i = 0; i < HELPERS; i++) {
		struct request *request = &shared->requests[i];

		if (request->function && !helper_is_busy(i) && request->result)
			return say(stepper, "helper %d: %s (%d)", i,
				   request->result > 0 ? strerror(request->result) : "wrong",
				   request->result);
	}
	return shared->objects.violations ? "two held the lock together" : NULL;
}

/* Like so_far_well(), but all helpers must also have finished. */
static inline const char *all_well(struct stepper *stepper)
{
	int i;

	for (i = 0; i < HELPERS; i++) {
		if (helper_is_busy(i))
			return say(stepper, "helper %d still sleeps", i);
	}
	return so_far_well(stepper);
}

/* Starts the helpers of @behind, if they were not started before. */
static inline void start_followers(struct stepper *stepper)
{
	int i;

	for (i = 0; i < HELPERS && !stepper->followed; i++) {
		if (stepper->scenario->behind[i])
			helper_run_to_sleep(stepper, i, stepper->scenario->behind[i]);
	}
	stepper->followed = true;
}

static inline int release(struct stepper *stepper)
{
	stepper->releases++;
	return stepper->scenario->release(stepper);
}

/* Releases the followers of a victim that died before it slept. */
static inline int release_at_last(struct stepper *stepper)
{
	return stepper->releases || !stepper->scenario->release ? 0 : release(stepper);
}

/* The victim */

static inline void victim_main(const struct scenario *scenario)
{
	const struct rlimit none = { 0 };
	struct objects *objects = &shared->objects;
	uint64_t id;

	setrlimit(RLIMIT_CORE, &none);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) ||
	    (!scenario->without_id && memwait_owner(&id)))
		_exit(90);
	if (scenario->approach && scenario->approach(objects))
		_exit(91);
	kill(getpid(), SIGSTOP);
	if (scenario->begin) {
		if (scenario->begin(objects))
			_exit(92);
		kill(getpid(), SIGSTOP);
	}
	__atomic_store_n(&objects->begun, 1, __ATOMIC_RELEASE);
	objects->result = scenario->operation(objects);
	__atomic_store_n(&objects->finished, 1, __ATOMIC_RELEASE);
	pause();
	_exit(93);
}

enum stepped { STOPPED, ASLEEP, GONE };

/*
 * A step is much faster than reading /proc. Therefore the victim's state is read only at intervals.
 */
static inline enum stepped victim_await_stop(struct stepper *stepper, bool may_sleep)
{
	unsigned int looks;
	int status;

	for (looks = 1; !waitpid(stepper->victim, &status, WNOHANG); looks++) {
		if (may_sleep && !(looks % 64) && thread_state(stepper->victim) == 'S')
			return ASLEEP;
		sched_yield();
	}
	return WIFSTOPPED(status) ? STOPPED : GONE;
}

static inline enum stepped victim_step(struct stepper *stepper)
{
	if (ptrace(PTRACE_SINGLESTEP, stepper->victim, NULL, NULL))
		return GONE;
	return victim_await_stop(stepper, true);
}

/*
 * Properties of a machine. On an unknown machine the test steps through all instructions.
 * @counter: index of the program counter among the registers
 * @stop: an instruction that stops the process with a signal to its tracer
 * @behind: distance of the program counter from @stop after the signal
 * @calls: instructions that are system calls
 */
struct machine {
	uint32_t arch;
	int counter;
	unsigned int behind;
	unsigned long stop, stop_mask;
	unsigned long calls[3], call_mask;
};

static const struct machine machines[] = {
	{ AUDIT_ARCH_X86_64, 16, 1, 0xcc, 0xff, { 0x050f }, 0xffff },
	{ AUDIT_ARCH_I386, 12, 1, 0xcc, 0xff, { 0x80cd, 0x340f, 0x050f }, 0xffff },
	{ AUDIT_ARCH_AARCH64, 32, 0, 0xd4200000, 0xffffffff, { 0xd4000001 }, 0xffffffff },
};

/*
 * Returns the victim's program counter and sets @machine. If the kernel does not report the
 * registers, returns 0 and sets @machine to NULL.
 */
static inline unsigned long victim_at(struct stepper *stepper)
{
	struct __ptrace_syscall_info info = { 0 };
	unsigned int i;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, stepper->victim, (void *)sizeof(info), &info) < 0)
		return 0;
	for (i = 0; i < ARRAY_SIZE(machines) && !stepper->machine; i++) {
		if (machines[i].arch == info.arch)
			stepper->machine = &machines[i];
	}
	return info.instruction_pointer;
}

static inline bool victim_move(struct stepper *stepper, unsigned long to)
{
	unsigned long registers[64];
	struct iovec iov = { registers, sizeof(registers) };

	if (ptrace(PTRACE_GETREGSET, stepper->victim, (void *)NT_PRSTATUS, &iov))
		return false;
	registers[stepper->machine->counter] = to;
	return !ptrace(PTRACE_SETREGSET, stepper->victim, (void *)NT_PRSTATUS, &iov);
}

/* Returns the code at this address, which is the same in this process. */
static inline unsigned long code_at(unsigned long at)
{
	unsigned long code;

	memcpy(&code, (const void *)at, sizeof(code));
	return code;
}

/*
 * Returns the last instruction to which the victim can run after @done instructions; from there it
 * is stepped. Earlier victims executed that instruction exactly once and did not sleep before it.
 * Returns @done if there is no such instruction.
 */
static inline int victim_can_run_to(struct stepper *stepper, int done, int most)
{
	struct step *trace = stepper->trace;
	int to, i;

	if (!stepper->machine)
		return done;
	for (to = done; to < most && trace[to + 1].at && !trace[to + 1].sleeps; to++)
		;
	for (; to > done + 1; to--) {
		for (i = done; i < to && trace[i].at != trace[to].at; i++)
			;
		if (i == to)
			return to;
	}
	return done;
}

/* Runs to a breakpoint. ptrace(2) makes a private copy of the code for the victim. */
static inline bool victim_run(struct stepper *stepper, int to)
{
	const struct machine *machine = stepper->machine;
	const unsigned long at = stepper->trace[to].at, code = code_at(at);
	const unsigned long stop = (code & ~machine->stop_mask) | machine->stop;

	return !ptrace(PTRACE_POKETEXT, stepper->victim, (void *)at, (void *)stop) &&
	       !ptrace(PTRACE_CONT, stepper->victim, NULL, NULL) &&
	       victim_await_stop(stepper, true) == STOPPED &&
	       victim_at(stepper) == at + machine->behind &&
	       !ptrace(PTRACE_POKETEXT, stepper->victim, (void *)at, (void *)code) &&
	       victim_move(stepper, at);
}

/* One victim: when it is killed, and its behaviour. */
struct life {
	int steps;		/* number of instructions after which it is killed */
	bool asleep;		/* killed while it sleeps in the last instruction */
	bool has_slept;		/* it slept in the last instruction */
	bool has_ended;
	bool is_first;		/* this victim records which instructions matter */
};

static inline bool is_system_call(struct stepper *stepper, unsigned long at)
{
	const struct machine *machine = stepper->machine;
	unsigned int i;

	for (i = 0; machine && i < ARRAY_SIZE(machine->calls); i++) {
		if ((code_at(at) & machine->call_mask) == machine->calls[i])
			return true;
	}
	return !machine;
}

/* Whether the effect of this step is visible to other processes. */
static inline bool step_matters(struct stepper *stepper, const struct step *step)
{
	bool matters = step->sleeps || is_system_call(stepper, step[-1].at) ||
		       memcmp(&shared->before, &shared->objects, sizeof(shared->before));

	memcpy(&shared->before, &shared->objects, sizeof(shared->before));
	return matters;
}

/*
 * Steps from the start of the operation to the death. Returns a description of what is wrong, or
 * NULL.
 */
static inline const char *victim_walk(struct stepper *stepper, struct life *life)
{
	enum stepped stepped;
	int i = 0, to;

	stepper->trace[0].at = victim_at(stepper);
	memcpy(&shared->before, &shared->objects, sizeof(shared->before));
	while (i < life->steps && !ended()) {
		to = victim_can_run_to(stepper, i, life->steps - 1);
		if (to > i) {
			if (!victim_run(stepper, to))
				return say(stepper, "the victim does not reach instruction %d", to);
			i = to;
			continue;
		}
		stepped = victim_step(stepper);
		i++;
		if (stepped == ASLEEP) {
			stepper->trace[i].sleeps = true;
			start_followers(stepper);
			if (i == life->steps) {
				life->has_slept = true;
				if (life->asleep)
					break;
			}
			if (!stepper->scenario->release)
				return "the victim sleeps forever";
			if (release(stepper))
				return "the victim could not be released";
			stepped = victim_await_stop(stepper, false);
			/* This makes the order the same for each victim. */
			helpers_await_asleep(stepper);
		}
		if (stepped == GONE)
			return "the victim is gone";
		stepper->trace[i].at = victim_at(stepper);
		if (life->is_first)
			stepper->trace[i].matters = step_matters(stepper, &stepper->trace[i]);
	}
	life->has_ended = ended();
	return NULL;
}

/* Starts the helpers and the victim. Returns when they have reached their initial state. */
static inline const char *victim_begin(struct stepper *stepper)
{
	const struct scenario *scenario = stepper->scenario;
	int i;

	if (victim_await_stop(stepper, false) != STOPPED)
		return "the victim did not start";
	ptrace(PTRACE_SETOPTIONS, stepper->victim, NULL, (void *)PTRACE_O_EXITKILL);
	for (i = 0; i < HELPERS; i++) {
		if (scenario->before[i])
			helper_run_to_sleep(stepper, i, scenario->before[i]);
	}
	if (scenario->begin) {
		ptrace(PTRACE_CONT, stepper->victim, NULL, NULL);
		if (victim_await_stop(stepper, false) != STOPPED)
			return "the victim did not reach its operation";
	}
	while (!shared->objects.begun) {
		if (victim_step(stepper) != STOPPED)
			return "the victim does not begin its operation";
	}
	return NULL;
}

static inline const char *one_victim(struct stepper *stepper, struct life *life)
{
	const struct scenario *scenario = stepper->scenario;
	const char *wrong;

	memset(&shared->objects, 0, sizeof(shared->objects));
	memset(shared->requests, 0, sizeof(shared->requests));
	stepper->followed = false;
	stepper->releases = 0;
	if (scenario->prepare(stepper)) {
		life->has_ended = true;
		return "the objects could not be made";
	}
	stepper->victim = fork();
	if (!stepper->victim)
		victim_main(scenario);
	if (stepper->victim < 0)
		return "fork failed";
	stepper->owners++;
	wrong = victim_begin(stepper);
	if (!wrong)
		wrong = victim_walk(stepper, life);
	kill_child(stepper->victim);
	stepper->owners--;
	shared->loops[VICTIM] = 0;
	await_death_notified(stepper);
	memcpy(&shared->at_death, &shared->objects, sizeof(shared->at_death));
	return wrong ? wrong : scenario->check(stepper);
}

static inline void dump(const char *name, const void *object, size_t size)
{
	const uint64_t *words = object;
	char line[300];
	size_t i, at = 0;
	bool any = false;

	for (i = 0; i < size / sizeof(*words) && i < 16; i++) {
		at += snprintf(line + at, sizeof(line) - at, " %llx", (unsigned long long)words[i]);
		any |= words[i];
	}
	if (any)
		ksft_print_msg("    %s:%s\n", name, line);
}

static inline void dump_objects(const struct objects *objects)
{
	dump("mutex", &objects->mutex, sizeof(objects->mutex));
	dump("cond", &objects->cond, sizeof(objects->cond));
	dump("sem", &objects->sem, sizeof(objects->sem));
	dump("rwlock", &objects->rwlock, sizeof(objects->rwlock));
	dump("barrier", &objects->barrier, sizeof(objects->barrier));
	dump("group", &objects->group, sizeof(objects->group));
	dump("channel", objects->channel, sizeof(objects->channel));
	dump("channel + 128", &objects->channel[16], sizeof(objects->channel) - 128);
}

static inline void report_range(struct stepper *stepper)
{
	size_t at = strlen(stepper->where);

	if (stepper->failures)
		snprintf(stepper->where + at, sizeof(stepper->where) - at, " %d-%d", stepper->from,
			 stepper->to);
}

/* Prints the first failures in full, and the others as ranges of instructions. */
static inline void report(struct stepper *stepper, const struct life *life, const char *wrong)
{
	if (stepper->failures && life->steps > stepper->to + 1)
		report_range(stepper);
	if (!stepper->failures || life->steps > stepper->to + 1)
		stepper->from = life->steps;
	stepper->to = life->steps;
	stepper->failures++;
	shared->patience = PATIENCE_LOST;
	if (stepper->from != life->steps && stepper->failures > MOST_REPORTS)
		return;
	ksft_print_msg("%s: killed %s instruction %d%s, at %lx: %s\n", stepper->scenario->name,
		       life->asleep ? "asleep in" : "after", life->steps,
		       life->has_ended ? ", its last" : "", stepper->trace[life->steps].at, wrong);
	if (stepper->failures > 2 && stepper->from != life->steps)
		return;
	ksft_print_msg("  at its death:\n");
	dump_objects(&shared->at_death);
	ksft_print_msg("  now:\n");
	dump_objects(&shared->objects);
}

/* Instructions and deaths of all scenarios; shared because each test is a process. */
static unsigned long *total;

__attribute__((constructor))
static void share_total(void)
{
	total = shared_page(4096);
}

/*
 * On slow machines victims die only after every n-th instruction, and after each instruction whose
 * effect is visible to other processes (a change of an object, or a system call).
 */
static inline int stride(void)
{
	const char *text = getenv("MEMWAIT_STEPS");

	return text && atoi(text) > 1 ? atoi(text) : 1;
}

static inline void one_death(struct stepper *stepper, struct life *life)
{
	const char *wrong = one_victim(stepper, life);

	stepper->deaths++;
	if (wrong)
		report(stepper, life, wrong);
	helpers_retire(stepper);
}

/* Returns the number of failures. */
static inline int step_through(struct stepper *stepper, const struct scenario *scenario)
{
	uint64_t start = now_ns(CLOCK_MONOTONIC);
	struct life life = { .steps = MOST_STEPS, .is_first = true };
	int n, every = stride();

	memset(stepper->trace, 0, (MOST_STEPS + 1) * sizeof(*stepper->trace));
	stepper->scenario = scenario;
	shared->kind = scenario->kind;
	shared->patience = PATIENCE_MS;
	if (every > 1)
		one_death(stepper, &life);
	for (n = 0; n < MOST_STEPS && stepper->failures < MOST_FAILURES; n++) {
		if (n % every && stepper->trace[n].at && !stepper->trace[n].matters)
			continue;
		life = (struct life) { .steps = n };
		one_death(stepper, &life);
		if (life.has_ended)
			break;
		if (life.has_slept) {
			life = (struct life) { .steps = n, .asleep = true };
			one_death(stepper, &life);
		}
	}
	ksft_print_msg("%s: %d instructions, %d deaths, %d ms\n", scenario->name, n,
		       stepper->deaths, (int)((now_ns(CLOCK_MONOTONIC) - start) / NSEC_PER_MSEC));
	if (stepper->failures) {
		report_range(stepper);
		ksft_print_msg("%s: %d of these deaths harmed others, after instruction%s\n",
			       scenario->name, stepper->failures, stepper->where);
	}
	total[0] += n;
	total[1] += stepper->deaths;
	return stepper->failures + !life.has_ended;
}

FIXTURE(stepper)
{
	struct stepper stepper;
	int fd;
	uint64_t user_waits;
};

/*
 * Performs the actions that the library performs only once in a process, so that victims do not
 * repeat them.
 */
static inline void warm_up(struct objects *objects)
{
	struct timespec past = { 0 };

	memset(objects, 0, sizeof(*objects));
	if (memwait_mutex_lock(&objects->mutex) ||
	    memwait_mutex_clocklock(&objects->mutex, CLOCK_MONOTONIC, &past) != ETIMEDOUT)
		abort();
}

/* Returns false if there is no ptrace() or no single-stepping. */
static inline bool can_step(void)
{
	bool can;
	pid_t pid = fork();

	if (!pid) {
		if (!ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			kill(getpid(), SIGSTOP);
		_exit(0);
	}
	can = waitpid(pid, NULL, WUNTRACED) == pid &&
	      !ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
	kill_child(pid);
	return can;
}

FIXTURE_SETUP(stepper)
{
	uint64_t id;
	int i;

	self->fd = open_device(0);
	if (memwait_owner(&id))
		SKIP(return, "this kernel does not report deaths");
	if (!can_step())
		SKIP(return, "single-stepping is not available");
	self->user_waits = mw_user_waits(self->fd);
	shared = shared_page(sizeof(*shared));
	/* Shared memory, so that the victim does not copy it. */
	self->stepper.trace = shared_page((MOST_STEPS + 1) * sizeof(struct step));
	/* All processes run on one CPU, so that a step need not wait until another CPU wakes up. */
	ASSERT_EQ(0, bind_to(0));
	mw_await_owners(self->fd, 1);
	warm_up(&shared->objects);
	self->stepper.device = self->fd;
	self->stepper.owners = mw_user_owners(self->fd);
	for (i = 0; i < HELPERS; i++)
		helper_fork(&self->stepper, i);
}

FIXTURE_TEARDOWN(stepper)
{
	int i;

	for (i = 0; i < HELPERS; i++)
		helper_kill(&self->stepper, i);
	EXPECT_EQ(self->user_waits, mw_await_user_waits(self->fd, self->user_waits));
	munmap(shared, sizeof(*shared));
	munmap(self->stepper.trace, (MOST_STEPS + 1) * sizeof(struct step));
	close(self->fd);
}

/* A function that makes one call. The victim and the test's process use it. */
#define OPERATION(name, call)	ADAPTER(name, struct objects *objects, call)
#define STEPPER_CALL(name, call)	ADAPTER(name, struct stepper *stepper, call)

/* The arguments after @text initialise the struct scenario. */
#define STEPPER_TEST(id, text, ...)							\
	static const struct scenario id##_scenario = { .name = text, __VA_ARGS__ };	\
	TEST_F_TIMEOUT(stepper, id, 300)						\
	{										\
		EXPECT_EQ(0, step_through(&self->stepper, &id##_scenario));		\
	}

#define NORMAL			MEMWAIT_MUTEX_NORMAL
#define RECURSIVE		MEMWAIT_MUTEX_RECURSIVE
#define ERRORCHECK		MEMWAIT_MUTEX_ERRORCHECK
#define FAIR			MEMWAIT_MUTEX_FAIR
#define ROBUST			MEMWAIT_MUTEX_ROBUST

/* Flags in a scenario's number. */
enum {
	TAKES = 0x1,		/* if the function returns, the lock is held */
	GIVES = 0x2,		/* if the function returns, the lock is free */
	WAS_DEAD = 0x4,		/* the lock's owner died before; the next owner gets EOWNERDEAD */
	IS_MENDED = 0x8,	/* with WAS_DEAD: no EOWNERDEAD after the last instruction */
	FOR_READING = 0x10,
	WITH_MUTEX = 0x20,	/* the signaller holds the mutex */
	BY_BROADCAST = 0x40,
	TWICE = 0x80,		/* when it is first released, the test holds the mutex */
};

#endif /* STEPPER_TEST_H */
