/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Death at each instruction (L6, L7). A process, the victim, executes one function of the library
 * instruction by instruction, as its tracer bids, and is killed: the first one before the first
 * instruction, the next one after that, and so on until one has returned from the function. What
 * the function changes and whom it wakes is shared with helpers, other processes, that may be
 * asleep by then. After each death a check says whether they go on as they should.
 *
 * Everything that a helper does has a deadline, which is far away; where something has been found
 * wrong before, nearer. A helper that waits for what is free may never see it pass.
 *
 * A victim that is to die after the 300th instruction need not be stepped through those that others
 * have gone before it: up to one of the last it runs, to a breakpoint.
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
#define PATIENCE_LOST	1000	/* in milliseconds, both */
#define MOST_STEPS	10000

/* A loop's context has an id, and so has the process that it ends with. */
#define IDS_OF_A_LOOP	2
#define MOST_REPORTS	4
#define MOST_FAILURES	400

/* In one page, as a condition variable moves its waiters to a mutex only if that is near. */
struct objects {
	memwait_mutex_t mutex;
	memwait_cond_t cond;
	memwait_sem_t sem;
	memwait_rwlock_t rwlock;
	memwait_barrier_t barrier;
	memwait_waitgroup_t group;
	memwait_event_t event;
	uint64_t channel[64];
	uint64_t item[HELPERS + 1];	/* received; the last one is the victim's */
	uint64_t received;		/* by the test, meanwhile */
	int called_back;		/* the result */
	int inside;			/* the mutex or rwlock */
	int violations;
	int owner_died;			/* how many were told so */
	int lost;			/* how many were told that it is not recoverable */
	int serials;			/* how many were the barrier's last */
	int begun, finished;		/* by the victim */
	int result;			/* of what the victim did */
};

#define VICTIM	HELPERS

struct stage;
struct machine;

typedef int (*helper_function)(struct objects *objects, int me);

/* What a helper is asked for. Functions are at the same address in all processes. */
struct request {
	helper_function function;
	int result;
	int busy;
};

/* In memory that all processes share. */
struct scene {
	union {
		struct objects objects;
		char page[4096];
	};
	struct objects copy;
	struct objects before;		/* a step */
	struct objects at_death;
	struct request requests[HELPERS];
	int loops[HELPERS + 1];		/* ids of their loops */
	long patience;			/* in milliseconds */
	unsigned int kind;
};

static struct scene *scene;

_Static_assert(sizeof(scene->objects) <= sizeof(scene->page), "the objects fit");

/*
 * @prepare: makes the objects, before each victim; by the test
 * @approach: by the victim, at full speed
 * @before: helpers that sleep when the victim begins; the rest of them is NULL
 * @begin: by the victim, at full speed, when those of @before sleep
 * @operation: by the victim, instruction by instruction
 * @behind: helpers that come when the victim has fallen asleep, or is dead; after those of @before
 * @release: by the test, when the victim sleeps, or is dead: lets those who sleep go on
 * @check: says what is wrong, or NULL, after the death
 */
struct scenario {
	const char *name;
	unsigned int kind;		/* of the mutex or rwlock */
	int number;			/* what the scenarios of a kind differ by */
	bool without_id;		/* the victim gets one by the operation, if at all */
	int (*prepare)(struct stage *stage);
	int (*approach)(struct objects *objects);
	helper_function before[HELPERS];
	int (*begin)(struct objects *objects);
	int (*operation)(struct objects *objects);
	helper_function behind[HELPERS];
	int (*release)(struct stage *stage);
	const char *(*check)(struct stage *stage);
};

/* What the victims before this one have shown of each instruction. */
struct step {
	unsigned long at;	/* where it was after it, or 0 */
	bool sleeps;		/* in it */
	bool matters;		/* others can see what it has done */
};

struct helper {
	pid_t pid;
	int fd;		/* a byte for each request */
};

struct stage {
	const struct scenario *scenario;
	struct helper helpers[HELPERS];
	int device;
	uint64_t owners;	/* how many of the living may have an id */
	pid_t victim;
	const struct machine *machine;
	bool followed;		/* @behind have come */
	int releases;		/* how often it was let go on */
	struct step *trace;
	int deaths;
	int failures;
	char where[400];	/* which instructions */
	int from, to;		/* the last ones of them */
	char said[256];
};

/* What is wrong, in words. */
#define say(stage, ...)								\
	(snprintf((stage)->said, sizeof((stage)->said), __VA_ARGS__), (stage)->said)

static inline bool ended(void)
{
	return scene->objects.finished;
}

/* Until when whoever waits has patience. */
static inline struct timespec last_moment(void)
{
	return in_time(CLOCK_MONOTONIC, scene->patience);
}

/*
 * The id of a dead process has gone when all have been told that are to be told of its death. So
 * one that sleeps by then does not just wait for that.
 */
static inline void await_death_told(struct stage *stage)
{
	uint64_t deadline = in_ms(PATIENCE_MS), most = stage->owners;
	int i;

	for (i = 0; i <= HELPERS; i++)
		most += scene->loops[i];
	spin_until(mw_user_owners(stage->device) <= most || now_ns(CLOCK_MONOTONIC) >= deadline);
}

/* Helpers */

static inline void helper_main(int me, int fd)
{
	struct request *request = &scene->requests[me];
	uint64_t id;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (memwait_owner(&id))
		_exit(1);
	__atomic_store_n(&request->busy, 0, __ATOMIC_RELEASE);
	while (read(fd, &byte, 1) == 1) {
		request->result = request->function(&scene->objects, me);
		__atomic_store_n(&request->busy, 0, __ATOMIC_RELEASE);
	}
	_exit(0);
}

static inline void helper_fork(struct stage *stage, int me)
{
	int pipes[2];

	__atomic_store_n(&scene->requests[me].busy, 1, __ATOMIC_RELEASE);
	if (pipe2(pipes, O_CLOEXEC))
		abort();
	stage->helpers[me].pid = fork();
	if (!stage->helpers[me].pid) {
		close(pipes[1]);
		helper_main(me, pipes[0]);
	}
	close(pipes[0]);
	stage->helpers[me].fd = pipes[1];
	if (stage->helpers[me].pid < 0)
		abort();
	spin_until(!__atomic_load_n(&scene->requests[me].busy, __ATOMIC_ACQUIRE));
	stage->owners++;
}

/* Ends a helper, whatever it does or has, and returns when that has been told. */
static inline void helper_kill(struct stage *stage, int me)
{
	kill_child(stage->helpers[me].pid);
	close(stage->helpers[me].fd);
	stage->owners--;
	scene->loops[me] = 0;
	await_death_told(stage);
}

static inline bool helper_is_busy(int me)
{
	return __atomic_load_n(&scene->requests[me].busy, __ATOMIC_ACQUIRE);
}

/*
 * Whether it sleeps in the library, which does that in ioctl(2) and poll(2). The state alone does
 * not tell: a thread that is about to read its request, and is preempted on the way, is in state S
 * as well. The kernel tells the system call only of a thread that has left its processor.
 */
static inline bool helper_is_asleep(struct stage *stage, int me)
{
	char path[64], line[128] = "", *end;
	long call;
	FILE *file;

	if (!helper_is_busy(me) || thread_state(stage->helpers[me].pid) != 'S')
		return false;
	snprintf(path, sizeof(path), "/proc/%d/syscall", stage->helpers[me].pid);
	file = fopen(path, "r");
	if (!file)
		return false;
	/* "running" is no number. */
	call = strtol(fgets(line, sizeof(line), file) ? line : "", &end, 10);
	fclose(file);
	return end != line && call >= 0 && call != SYS_read && helper_is_busy(me);
}

static inline void helper_start(struct stage *stage, int me, helper_function function)
{
	struct request *request = &scene->requests[me];

	request->function = function;
	request->result = -1;
	__atomic_store_n(&request->busy, 1, __ATOMIC_RELEASE);
	if (write(stage->helpers[me].fd, "", 1) != 1)
		abort();
}

/* Returns when it sleeps in what it was asked for, or has done it. */
static inline void helper_await_asleep(struct stage *stage, int me)
{
	spin_until(!helper_is_busy(me) || helper_is_asleep(stage, me));
}

static inline void helper_run_to_sleep(struct stage *stage, int me, helper_function function)
{
	helper_start(stage, me, function);
	helper_await_asleep(stage, me);
}

/* Those who are in the midst of something are replaced. */
static inline void helpers_retire(struct stage *stage)
{
	int i;

	for (i = 0; i < HELPERS; i++) {
		if (!helper_is_busy(i))
			continue;
		helper_kill(stage, i);
		helper_fork(stage, i);
	}
}

static inline int helpers_busy(void)
{
	int i, n = 0;

	for (i = 0; i < HELPERS; i++)
		n += helper_is_busy(i);
	return n;
}

static inline bool helpers_are_asleep(struct stage *stage)
{
	int i;

	for (i = 0; i < HELPERS; i++) {
		if (helper_is_busy(i) && !helper_is_asleep(stage, i))
			return false;
	}
	return true;
}

/* Returns when they have done what they can do now. */
static inline void helpers_await_asleep(struct stage *stage)
{
	spin_until(helpers_are_asleep(stage));
}

/* How many were asked for @function since the victim began, and have not done it. */
static inline int helpers_within(helper_function function)
{
	int i, n = 0;

	for (i = 0; i < HELPERS; i++)
		n += helper_is_busy(i) && scene->requests[i].function == function;
	return n;
}

/* How many of them have returned @result. */
static inline int helpers_done(helper_function function, int result)
{
	int i, n = 0;

	for (i = 0; i < HELPERS; i++)
		n += !helper_is_busy(i) && scene->requests[i].function == function &&
		     scene->requests[i].result == result;
	return n;
}

/*
 * What lock words say without touching them: they are plain data, and a copy of them is as good.
 * The helpers sleep; so whatever the copy gives, nobody else is about to take.
 */
static inline struct objects *copied(void)
{
	memcpy(&scene->copy, &scene->objects, sizeof(scene->copy));
	return &scene->copy;
}

/*
 * Returns true when all helpers have done what they were asked for, and false when those who have
 * not sleep, and @in_vain: what they wait for is not to be had. Their deadlines end it otherwise.
 */
static inline bool settle(struct stage *stage, bool (*in_vain)(void))
{
	while (helpers_busy()) {
		sched_yield();
		if (!in_vain || !helpers_are_asleep(stage))
			continue;
		copied();
		/* Somebody may have gone on meanwhile. */
		if (helpers_busy() && helpers_are_asleep(stage) && in_vain())
			return false;
	}
	return true;
}

/* What a helper has done must have come out well, and nobody be inside together with another. */
static inline const char *so_far_well(struct stage *stage)
{
	int i;

	for (i = 0; i < HELPERS; i++) {
		struct request *request = &scene->requests[i];

		if (request->function && !helper_is_busy(i) && request->result)
			return say(stage, "helper %d: %s (%d)", i,
				   request->result > 0 ? strerror(request->result) : "wrong",
				   request->result);
	}
	return scene->objects.violations ? "two were inside" : NULL;
}

/* And by now all have done it. */
static inline const char *all_well(struct stage *stage)
{
	int i;

	for (i = 0; i < HELPERS; i++) {
		if (helper_is_busy(i))
			return say(stage, "helper %d still sleeps", i);
	}
	return so_far_well(stage);
}

/* Those of the scenario who come behind the victim; but once. */
static inline void followers_come(struct stage *stage)
{
	int i;

	for (i = 0; i < HELPERS && !stage->followed; i++) {
		if (stage->scenario->behind[i])
			helper_run_to_sleep(stage, i, stage->scenario->behind[i]);
	}
	stage->followed = true;
}

static inline int release(struct stage *stage)
{
	stage->releases++;
	return stage->scenario->release(stage);
}

/* For the followers of one that did not live to be let go on. */
static inline int release_at_last(struct stage *stage)
{
	return stage->releases || !stage->scenario->release ? 0 : release(stage);
}

/* The victim */

static inline void victim_main(const struct scenario *scenario)
{
	const struct rlimit none = { 0 };
	struct objects *objects = &scene->objects;
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

/* Looks at its state in /proc now and then only, as a step is much faster than that. */
static inline enum stepped victim_await_stop(struct stage *stage, bool may_sleep)
{
	unsigned int looks;
	int status;

	for (looks = 1; !waitpid(stage->victim, &status, WNOHANG); looks++) {
		if (may_sleep && !(looks % 64) && thread_state(stage->victim) == 'S')
			return ASLEEP;
		sched_yield();
	}
	return WIFSTOPPED(status) ? STOPPED : GONE;
}

static inline enum stepped victim_step(struct stage *stage)
{
	if (ptrace(PTRACE_SINGLESTEP, stage->victim, NULL, NULL))
		return GONE;
	return victim_await_stop(stage, true);
}

/*
 * What one has to know of a machine; without that all is stepped.
 * @counter: which of its registers is the program counter
 * @stop: an instruction that stops a process, by a signal to its tracer
 * @behind: how far behind it the process is then
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

/* Where it is, and on what machine. 0, or NULL, if the kernel does not say. */
static inline unsigned long victim_at(struct stage *stage)
{
	struct __ptrace_syscall_info info = { 0 };
	unsigned int i;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, stage->victim, (void *)sizeof(info), &info) < 0)
		return 0;
	for (i = 0; i < ARRAY_SIZE(machines) && !stage->machine; i++) {
		if (machines[i].arch == info.arch)
			stage->machine = &machines[i];
	}
	return info.instruction_pointer;
}

static inline bool victim_move(struct stage *stage, unsigned long to)
{
	unsigned long registers[64];
	struct iovec iov = { registers, sizeof(registers) };

	if (ptrace(PTRACE_GETREGSET, stage->victim, (void *)NT_PRSTATUS, &iov))
		return false;
	registers[stage->machine->counter] = to;
	return !ptrace(PTRACE_SETREGSET, stage->victim, (void *)NT_PRSTATUS, &iov);
}

/* The code there: it is the same in this process. */
static inline unsigned long code_at(unsigned long at)
{
	unsigned long code;

	memcpy(&code, (const void *)at, sizeof(code));
	return code;
}

/*
 * Up to where it can run, after @done instructions, in order to be stepped from there: victims
 * before it have come by there, once, and slept nowhere between. @done if nowhere.
 */
static inline int victim_can_run_to(struct stage *stage, int done, int most)
{
	struct step *trace = stage->trace;
	int to, i;

	if (!stage->machine)
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

/* By a breakpoint. Its code is its own, as that of any process that is debugged. */
static inline bool victim_run(struct stage *stage, int to)
{
	const struct machine *machine = stage->machine;
	const unsigned long at = stage->trace[to].at, code = code_at(at);
	const unsigned long stop = (code & ~machine->stop_mask) | machine->stop;

	return !ptrace(PTRACE_POKETEXT, stage->victim, (void *)at, (void *)stop) &&
	       !ptrace(PTRACE_CONT, stage->victim, NULL, NULL) &&
	       victim_await_stop(stage, true) == STOPPED &&
	       victim_at(stage) == at + machine->behind &&
	       !ptrace(PTRACE_POKETEXT, stage->victim, (void *)at, (void *)code) &&
	       victim_move(stage, at);
}

/* One victim: how far it comes, and what came of it. */
struct life {
	int steps;		/* after how many it is to be killed */
	bool asleep;		/* it is to be killed while it sleeps in the last one of them */
	bool has_slept;		/* it has slept in the last one */
	bool has_ended;
	bool is_first;		/* it is to show what there is */
};

static inline bool is_system_call(struct stage *stage, unsigned long at)
{
	const struct machine *machine = stage->machine;
	unsigned int i;

	for (i = 0; machine && i < ARRAY_SIZE(machine->calls); i++) {
		if ((code_at(at) & machine->call_mask) == machine->calls[i])
			return true;
	}
	return !machine;
}

/* Whether others can see what this step, after the one before, has done. */
static inline bool step_matters(struct stage *stage, const struct step *step)
{
	bool matters = step->sleeps || is_system_call(stage, step[-1].at) ||
		       memcmp(&scene->before, &scene->objects, sizeof(scene->before));

	memcpy(&scene->before, &scene->objects, sizeof(scene->before));
	return matters;
}

/* From its begin to its death. Returns what is wrong, or NULL. */
static inline const char *victim_walk(struct stage *stage, struct life *life)
{
	enum stepped stepped;
	int i = 0, to;

	stage->trace[0].at = victim_at(stage);
	memcpy(&scene->before, &scene->objects, sizeof(scene->before));
	while (i < life->steps && !ended()) {
		to = victim_can_run_to(stage, i, life->steps - 1);
		if (to > i) {
			if (!victim_run(stage, to))
				return say(stage, "the victim does not come to instruction %d", to);
			i = to;
			continue;
		}
		stepped = victim_step(stage);
		i++;
		if (stepped == ASLEEP) {
			stage->trace[i].sleeps = true;
			followers_come(stage);
			if (i == life->steps) {
				life->has_slept = true;
				if (life->asleep)
					break;
			}
			if (!stage->scenario->release)
				return "the victim sleeps for good";
			if (release(stage))
				return "the victim could not be released";
			stepped = victim_await_stop(stage, false);
			/* Always in the same order. */
			helpers_await_asleep(stage);
		}
		if (stepped == GONE)
			return "the victim is gone";
		stage->trace[i].at = victim_at(stage);
		if (life->is_first)
			stage->trace[i].matters = step_matters(stage, &stage->trace[i]);
	}
	life->has_ended = ended();
	return NULL;
}

/* All are where they should be when the victim begins. */
static inline const char *victim_begin(struct stage *stage)
{
	const struct scenario *scenario = stage->scenario;
	int i;

	if (victim_await_stop(stage, false) != STOPPED)
		return "the victim has not come";
	ptrace(PTRACE_SETOPTIONS, stage->victim, NULL, (void *)PTRACE_O_EXITKILL);
	for (i = 0; i < HELPERS; i++) {
		if (scenario->before[i])
			helper_run_to_sleep(stage, i, scenario->before[i]);
	}
	if (scenario->begin) {
		ptrace(PTRACE_CONT, stage->victim, NULL, NULL);
		if (victim_await_stop(stage, false) != STOPPED)
			return "the victim has not begun";
	}
	while (!scene->objects.begun) {
		if (victim_step(stage) != STOPPED)
			return "the victim does not begin";
	}
	return NULL;
}

static inline const char *one_victim(struct stage *stage, struct life *life)
{
	const struct scenario *scenario = stage->scenario;
	const char *wrong;

	memset(&scene->objects, 0, sizeof(scene->objects));
	memset(scene->requests, 0, sizeof(scene->requests));
	stage->followed = false;
	stage->releases = 0;
	if (scenario->prepare(stage)) {
		life->has_ended = true;
		return "the objects could not be made";
	}
	stage->victim = fork();
	if (!stage->victim)
		victim_main(scenario);
	if (stage->victim < 0)
		return "no process";
	stage->owners++;
	wrong = victim_begin(stage);
	if (!wrong)
		wrong = victim_walk(stage, life);
	kill_child(stage->victim);
	stage->owners--;
	scene->loops[VICTIM] = 0;
	await_death_told(stage);
	memcpy(&scene->at_death, &scene->objects, sizeof(scene->at_death));
	return wrong ? wrong : scenario->check(stage);
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

static inline void report_range(struct stage *stage)
{
	size_t at = strlen(stage->where);

	if (stage->failures)
		snprintf(stage->where + at, sizeof(stage->where) - at, " %d-%d", stage->from,
			 stage->to);
}

/* The first ones in full, the others as ranges of instructions. */
static inline void report(struct stage *stage, const struct life *life, const char *wrong)
{
	if (stage->failures && life->steps > stage->to + 1)
		report_range(stage);
	if (!stage->failures || life->steps > stage->to + 1)
		stage->from = life->steps;
	stage->to = life->steps;
	stage->failures++;
	scene->patience = PATIENCE_LOST;
	if (stage->from != life->steps && stage->failures > MOST_REPORTS)
		return;
	ksft_print_msg("%s: killed %s instruction %d%s, at %lx: %s\n", stage->scenario->name,
		       life->asleep ? "asleep in" : "after", life->steps,
		       life->has_ended ? ", its last" : "", stage->trace[life->steps].at, wrong);
	if (stage->failures > 2 && stage->from != life->steps)
		return;
	ksft_print_msg("  at its death:\n");
	dump_objects(&scene->at_death);
	ksft_print_msg("  now:\n");
	dump_objects(&scene->objects);
}

/* How many instructions all scenarios have had: each test is a process of its own. */
static unsigned long *total;

__attribute__((constructor))
static void share_total(void)
{
	total = shared_page(4096);
}

/*
 * Where all takes long, not each instruction is followed by a death, but each so-manieth, and those
 * that change something which others can see: an object, or by a system call.
 */
static inline int stride(void)
{
	const char *text = getenv("MEMWAIT_STEPS");

	return text && atoi(text) > 1 ? atoi(text) : 1;
}

static inline void one_death(struct stage *stage, struct life *life)
{
	const char *wrong = one_victim(stage, life);

	stage->deaths++;
	if (wrong)
		report(stage, life, wrong);
	helpers_retire(stage);
}

/* Returns how often something was wrong. */
static inline int step_through(struct stage *stage, const struct scenario *scenario)
{
	uint64_t start = now_ns(CLOCK_MONOTONIC);
	struct life life = { .steps = MOST_STEPS, .is_first = true };
	int n, every = stride();

	memset(stage->trace, 0, (MOST_STEPS + 1) * sizeof(*stage->trace));
	stage->scenario = scenario;
	scene->kind = scenario->kind;
	scene->patience = PATIENCE_MS;
	if (every > 1)
		one_death(stage, &life);
	for (n = 0; n < MOST_STEPS && stage->failures < MOST_FAILURES; n++) {
		if (n % every && stage->trace[n].at && !stage->trace[n].matters)
			continue;
		life = (struct life) { .steps = n };
		one_death(stage, &life);
		if (life.has_ended)
			break;
		if (life.has_slept) {
			life = (struct life) { .steps = n, .asleep = true };
			one_death(stage, &life);
		}
	}
	ksft_print_msg("%s: %d instructions, %d deaths, %d ms\n", scenario->name, n, stage->deaths,
		       (int)((now_ns(CLOCK_MONOTONIC) - start) / NSEC_PER_MSEC));
	if (stage->failures) {
		report_range(stage);
		ksft_print_msg("%s: %d of these deaths were fatal to others, after instruction%s\n",
			       scenario->name, stage->failures, stage->where);
	}
	total[0] += n;
	total[1] += stage->deaths;
	return stage->failures + !life.has_ended;
}

FIXTURE(stepper)
{
	struct stage stage;
	int fd;
	uint64_t user_waits;
};

/* What the library does but once in a process has been done when the victim is forked. */
static inline void warm_up(struct objects *objects)
{
	struct timespec past = { 0 };

	memset(objects, 0, sizeof(*objects));
	if (memwait_mutex_lock(&objects->mutex) ||
	    memwait_mutex_clocklock(&objects->mutex, CLOCK_MONOTONIC, &past) != ETIMEDOUT)
		abort();
}

/* Where there is no ptrace(), or no single steps. */
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
		SKIP(return, "this kernel cannot tell of deaths");
	if (!can_step())
		SKIP(return, "processes cannot be stepped through here");
	self->user_waits = mw_user_waits(self->fd);
	scene = shared_page(sizeof(*scene));
	/* Shared, as a victim need not have a copy. */
	self->stage.trace = shared_page((MOST_STEPS + 1) * sizeof(struct step));
	/* A step need not wait for another processor to come to itself. */
	ASSERT_EQ(0, bind_to(0));
	mw_await_owners(self->fd, 1);
	warm_up(&scene->objects);
	self->stage.device = self->fd;
	self->stage.owners = mw_user_owners(self->fd);
	for (i = 0; i < HELPERS; i++)
		helper_fork(&self->stage, i);
}

FIXTURE_TEARDOWN(stepper)
{
	int i;

	for (i = 0; i < HELPERS; i++)
		helper_kill(&self->stage, i);
	EXPECT_EQ(self->user_waits, mw_await_user_waits(self->fd, self->user_waits));
	munmap(scene, sizeof(*scene));
	munmap(self->stage.trace, (MOST_STEPS + 1) * sizeof(struct step));
	close(self->fd);
}

/* One call of the victim, and of the test's process. */
#define OPERATION(name, call)	ADAPTER(name, struct objects *objects, call)
#define STAGE_CALL(name, call)	ADAPTER(name, struct stage *stage, call)

/* What follows the name is a struct scenario's. */
#define STEPPER_TEST(id, text, ...)							\
	static const struct scenario id##_scenario = { .name = text, __VA_ARGS__ };	\
	TEST_F_TIMEOUT(stepper, id, 300)						\
	{										\
		EXPECT_EQ(0, step_through(&self->stage, &id##_scenario));		\
	}

#define NORMAL			MEMWAIT_MUTEX_NORMAL
#define RECURSIVE		MEMWAIT_MUTEX_RECURSIVE
#define ERRORCHECK		MEMWAIT_MUTEX_ERRORCHECK
#define FAIR			MEMWAIT_MUTEX_FAIR
#define ROBUST			MEMWAIT_MUTEX_ROBUST

/* What a scenario's number says of its end, or of its begin. */
enum {
	TAKES = 0x1,		/* whoever returns from the function has the lock */
	GIVES = 0x2,		/* nobody has */
	WAS_DEAD = 0x4,		/* its owner has died before: the next one is to hear of it, */
	IS_MENDED = 0x8,	/* unless the last instruction was executed */
	FOR_READING = 0x10,
	WITH_MUTEX = 0x20,	/* a condition is signalled by who has the mutex */
	BY_BROADCAST = 0x40,
	TWICE = 0x80,		/* when it is let go on first, the mutex is the test's */
};

#endif /* STEPPER_TEST_H */
