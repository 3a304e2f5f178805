// SPDX-License-Identifier: GPL-2.0
/*
 * A fuzzer of /dev/memwait. It runs programs of random calls, valid and invalid, in threads that
 * share contexts and words. At the same time memory is unmapped and mapped again, and signals
 * arrive.
 *
 * A program has up to CALLS calls. Each call has a kind (struct kind below) and arguments, which
 * are bytes. The meaning of a byte depends on the type of the argument; usually it is an index into
 * a small set of interesting values. Each program runs in a child, so that it cannot damage
 * the parent.
 *
 * If the kernel has KCOV, a program is added to the corpus if it is the first to reach some edge in
 * the module (two consecutive code points), and new programs are made by changing programs of the
 * corpus. Without KCOV each program is random.
 *
 * The fuzzer checks that a call returns what Documentation/memwait.rst says and writes only the
 * fields that are documented as outputs; that no timeout comes early; that a call ends by its
 * deadline or by a signal; and that a program leaves behind no waiter, no charge and no new taint
 * of the kernel. The kernel's own checkers detect other errors.
 *
 * MEMWAIT_FUZZ_SECONDS	duration (20, or 10 with MEMWAIT_LOADS)
 * MEMWAIT_FUZZ_SEED	seed of the random numbers; it is printed
 * MEMWAIT_FUZZ_REPLAY	a program in the form that is printed for a failure: runs only this program
 */
#include "calls_test.h"

/* Running a program */

static void run_call(struct thread *t, const struct call *call)
{
	t->call = call;
	t->ret = 0;
	/*
	 * The value is neither zero nor a value that another thread or an earlier call would leave.
	 */
	memset(t->area, 0xa5 ^ t->nr, AREA);
	remember(t);
	kinds[call->kind].function(t);
	check_result(t);
	compare_area(t);
	__atomic_add_fetch(&shared->calls, 1, __ATOMIC_RELAXED);
}

static void *thread_main(void *arg)
{
	struct thread *t = arg;
	const struct program *p = t->program;
	uint64_t one = 1;
	sigset_t set;
	int i;

	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	if (t->kcov && ioctl(t->kcov_fd, KCOV_ENABLE, KCOV_TRACE_PC)) {
		fail("KCOV cannot be enabled: %s", strerrorname_np(errno));
		t->kcov = NULL;
	}
	pthread_barrier_wait(&begin);
	for (i = 0; i < p->nr; i++) {
		if (!p->same && p->calls[i].thread % p->threads != t->nr)
			continue;
		run_call(t, &p->calls[i]);
		if (t->forked && !t->left--)
			_exit(0);
	}
	if (t->forked)
		_exit(0);
	if (write(done_fd, &one, sizeof(one)) < 0)
		abort();
	return NULL;
}

static void ignore_signal(int sig)
{
}

/* Runs in the child: runs the threads, and interrupts threads that wait. */
static void run_child(const struct program *p, unsigned int number)
{
	struct sigaction sa = { .sa_handler = ignore_signal };
	static const int paces[] = { 1, 3, 12 };
	int i, running = p->threads, round;
	struct pollfd pfd;
	char name[16];
	uint64_t n;
	sigset_t set;

	/* The kernel includes this name in its reports. */
	snprintf(name, sizeof(name), "fuzz-%u", number);
	prctl(PR_SET_NAME, name);
	setpgid(0, 0);
	sigaction(SIGALRM, &sa, NULL);
	sa.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &sa, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);

	if (open_context(CONTEXT_FD, O_RDWR | O_NONBLOCK) < 0 ||
	    open_context(CONTEXT_FD + 1, O_RDWR) < 0)
		fail("the device cannot be opened");
	done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_barrier_init(&begin, NULL, p->threads);
	for (i = 0; i < p->threads; i++) {
		threads[i].program = p;
		threads[i].nr = i;
		threads[i].alone = p->threads == 1;
		if (pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]))
			abort();
	}
	pfd = (struct pollfd) { .fd = done_fd, .events = POLLIN };
	for (round = 0; running; round++) {
		if (poll(&pfd, 1, PICK(paces, p->pace)) == 1) {
			if (read(done_fd, &n, sizeof(n)) == sizeof(n))
				running -= n;
			if (p->end == 1)
				break;
			continue;
		}
		/*
		 * A handler with SA_RESTART does not end a call. Therefore later signals do not
		 * restart calls.
		 */
		for (i = 0; i < p->threads; i++)
			syscall(SYS_tgkill, getpid(),
				__atomic_load_n(&threads[i].tid, __ATOMIC_ACQUIRE),
				p->restart && round < 3 ? SIGUSR1 : SIGALRM);
	}
	_exit(0);
}

static long taint(void)
{
	return read_number("/proc/sys/kernel/tainted");
}

/* Checks that the words of the files have no waiter, by waking all waiters. */
static void check_waiters(int fd)
{
	static const int files[] = { SHARED, FILE_SHARED, ANON_SHARED, HUGE_SHARED };
	struct memwait_notify notifies[COUNT_OF(files) * COUNT_OF(offsets)];
	uint32_t woken[COUNT_OF(notifies)], n = 0;
	size_t i, j;
	int ret;

	for (i = 0; i < COUNT_OF(files); i++) {
		if (files[i] == HUGE_SHARED && region_file[HUGE_SHARED] < 0)
			continue;
		for (j = 0; j < COUNT_OF(offsets); j++)
			notifies[n++] = (struct memwait_notify) {
				.addr = (uintptr_t)region(files[i]) + offsets[j],
				.count = MEMWAIT_ALL,
			};
	}
	/* A signal may end the call between two entries. */
	for (i = 0; i < n && !shared->failed; i += ret) {
		ret = mw_notify_many(fd, notifies + i, n - i, woken + i);
		if (ret <= 0)
			fail("the words cannot be checked from %zu on: %d", i, ret);
	}
	for (i = 0; i < n && !shared->failed; i++) {
		if (woken[i])
			fail("%u waiters are left at %s+%u", woken[i],
			     region_names[files[i / COUNT_OF(offsets)]],
			     offsets[i % COUNT_OF(offsets)]);
	}
}

/* Runs one program to its end, and then checks what it has left behind. */
static void run_program(int fd, const struct program *p, unsigned int number)
{
	uint64_t before = mw_user_waits(fd), until;
	long tainted = taint();
	struct pollfd pfd;
	pid_t pid;

	reset_regions();
	memset(shared->ids, 0, sizeof(shared->ids));
	shared->nr_ids = 0;
	shared->news = 0;
	pid = fork();
	if (!pid)
		run_child(p, number);
	if (pid < 0) {
		fail("fork: %s", strerrorname_np(errno));
		return;
	}
	setpgid(pid, pid);
	pfd = (struct pollfd) { .fd = syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	if (poll(&pfd, 1, 1000 * LIMIT_S * slowness()) != 1)
		fail("does not end: a call sleeps despite signals");
	close(pfd.fd);
	kill(-pid, SIGKILL);
	/* This also reaps the processes that the program has forked. */
	while (waitpid(-1, NULL, 0) > 0)
		;

	/*
	 * All processes are dead, but a kernel thread may still have to drop the last reference to
	 * a file.
	 */
	until = patience(LIMIT_S);
	while (mw_user_waits(fd) != before && now_ns(CLOCK_MONOTONIC) < until)
		sched_yield();
	if (mw_user_waits(fd) != before)
		fail("user_waits is %llu, was %llu", (unsigned long long)mw_user_waits(fd),
		     (unsigned long long)before);
	check_waiters(fd);
	if (taint() != tainted)
		fail("the kernel has reported a problem: see its log");
	shared->programs++;
}

/* Making programs */

static uint8_t random_arg(enum type type)
{
	switch (type) {
	case CONTEXT:
		return rnd(8) ? rnd(2) : rnd(CONTEXTS);
	case SIZE:
		return rnd(16) ? 0 : rnd(256);
	case PLACE:
		/*
		 * The location of the struct, and, multiplied by PLACES, the location of an array.
		 */
		return (rnd(12) ? NORMAL : rnd(PLACES)) + PLACES * (rnd(12) ? NORMAL : rnd(PLACES));
	case WORD:
		return rnd(3) ? rnd(3) + 16 * rnd(3) : rnd(256);
	case VALUE:
		return rnd(4) ? 0 : rnd(256);
	case FLAGS:
		return rnd(3) ? rnd(2) : rnd(256);
	case NR:
		return rnd(4) ? rnd(4) : rnd(256);
	case COUNT:
		return rnd(3) ? rnd(2) : rnd(256);
	case ID:
		return rnd(8) ? rnd(4) : rnd(256);
	default:
		return rnd(256);
	}
}

static struct call random_call(void)
{
	struct call c = { .thread = rnd(256) };
	uint32_t i, total = 0, at;

	for (i = 0; i < KINDS; i++)
		total += kinds[i].weight;
	at = rnd(total);
	while (at >= kinds[c.kind].weight)
		at -= kinds[c.kind++].weight;
	for (i = 0; i < ARGS && kinds[c.kind].args[i] != NONE; i++)
		c.arg[i] = random_arg(kinds[c.kind].args[i]);
	if (!rnd(40))
		c.flip = rnd(256);
	/* An entry that is a group, and the number of its words. */
	if (kinds[c.kind].function == do_wait_async && !rnd(3)) {
		c.arg[5] = rnd(7);
		c.arg[7] = 7 + rnd(2);
	}
	return c;
}

static void random_options(struct program *p)
{
	p->threads = 1 + rnd(THREADS);
	p->same = !rnd(4);
	p->restart = rnd(2);
	p->end = !rnd(8);
	p->pace = rnd(3);
}

static struct program random_program(void)
{
	struct program p = { .nr = 1 + rnd(CALLS) };
	int i;

	random_options(&p);
	for (i = 0; i < p.nr; i++)
		p.calls[i] = random_call();
	return p;
}

static void insert_call(struct program *p, struct call c)
{
	int at;

	if (p->nr == CALLS)
		return;
	at = rnd(p->nr + 1);
	memmove(&p->calls[at + 1], &p->calls[at], (p->nr - at) * sizeof(c));
	p->calls[at] = c;
	p->nr++;
}

static void remove_call(struct program *p, int at)
{
	if (p->nr == 1)
		return;
	p->nr--;
	memmove(&p->calls[at], &p->calls[at + 1], (p->nr - at) * sizeof(p->calls[0]));
	memset(&p->calls[p->nr], 0, sizeof(p->calls[0]));
}

/* Replaces the end of a program by the end of another program. */
static void splice_programs(struct program *p, const struct program *other)
{
	int at = rnd(p->nr), from = rnd(other->nr), n = other->nr - from;

	if (n > CALLS - at)
		n = CALLS - at;
	memmove(&p->calls[at], &other->calls[from], n * sizeof(p->calls[0]));
	p->nr = at + n;
	memset(&p->calls[p->nr], 0, (CALLS - p->nr) * sizeof(p->calls[0]));
}

static void mutate(struct program *p, const struct program *other)
{
	struct call *c = &p->calls[rnd(p->nr)];
	uint32_t i;

	switch (rnd(12)) {
	case 0:
	case 1:
	case 2:
		insert_call(p, random_call());
		break;
	case 3:
	case 4:
		remove_call(p, rnd(p->nr));
		break;
	case 5:
		insert_call(p, *c);
		break;
	case 6:
		splice_programs(p, other);
		break;
	case 7:
		random_options(p);
		break;
	case 8:
		c->thread = rnd(256);
		break;
	case 9:
		c->flip = rnd(256);
		break;
	default:
		for (i = 0; i < ARGS && kinds[c->kind].args[i] != NONE; i++)
			;
		i = rnd(i);
		c->arg[i] = random_arg(kinds[c->kind].args[i]);
		break;
	}
}

/* The printed form */

static void print_program(const struct program *p, char *text, size_t size)
{
	size_t n = snprintf(text, size, "%u.%u.%u.%u.%u", p->threads, p->same, p->restart, p->end,
			    p->pace);
	int i, j;

	for (i = 0; i < p->nr; i++) {
		const struct call *c = &p->calls[i];

		n += snprintf(text + n, size - n, ",%s.%u.%u", kinds[c->kind].name, c->thread,
			      c->flip);
		for (j = 0; j < ARGS && kinds[c->kind].args[j] != NONE; j++)
			n += snprintf(text + n, size - n, ".%u", c->arg[j]);
	}
}

/* Returns false if the text does not contain a program. */
static bool read_program(const char *text, struct program *p)
{
	char copy[TEXT], *rest = copy, *word;
	int i, n;

	memset(p, 0, sizeof(*p));
	snprintf(copy, sizeof(copy), "%s", text);
	word = strsep(&rest, ",");
	if (sscanf(word, "%hhu.%hhu.%hhu.%hhu.%hhu", &p->threads, &p->same, &p->restart, &p->end,
		   &p->pace) != 5 || p->threads < 1 || p->threads > THREADS)
		return false;
	while ((word = strsep(&rest, ","))) {
		struct call *c = &p->calls[p->nr];
		char *name = strsep(&word, ".");

		while (c->kind < KINDS && strcmp(kinds[c->kind].name, name))
			c->kind++;
		if (c->kind == KINDS || p->nr == CALLS || !word ||
		    sscanf(word, "%hhu.%hhu%n", &c->thread, &c->flip, &n) != 2)
			return false;
		word += n;
		for (i = 0; i < ARGS && sscanf(word, ".%hhu%n", &c->arg[i], &n) == 1; i++)
			word += n;
		if (*word)
			return false;
		p->nr++;
	}
	return p->nr;
}

static void describe_arg(enum type type, uint8_t value)
{
	uint64_t address;

	switch (type) {
	case CONTEXT:
		printf(" context%u", value % CONTEXTS);
		break;
	case SIZE:
		printf(" size%+ld", (long)size_of(value, 64) - 64);
		break;
	case PLACE:
		printf(" %s/%s", place_names[value % PLACES], place_names[value / PLACES % PLACES]);
		break;
	case WORD:
		address = word_at(value);
		if ((value & 15) < REGIONS)
			printf(" %s+%u", region_names[value & 15], offsets[value >> 4]);
		else
			printf(" %#llx", (unsigned long long)address);
		break;
	case VALUE:
		printf(" =%#llx", (unsigned long long)value_of(value));
		break;
	case DEADLINE:
		printf(" until:%s", PICK(deadline_names, value));
		break;
	case FLAGS:
		printf(" flags:%#x", PICK(flag_sets, value));
		break;
	case NR:
		printf(" nr:%u", PICK(nrs, value));
		break;
	case COUNT:
		printf(" count:%u", PICK(counts, value));
		break;
	case ID:
		printf(" id%u/%u", value % 16, value / 16);
		break;
	case REGION:
		printf(" %s", region_names[value % REGIONS]);
		break;
	default:
		printf(" %u", value);
		break;
	}
}

static void describe(const struct program *p)
{
	int i, j;

	printf("# %u threads%s%s%s\n", p->threads, p->same ? ", each runs all calls" : "",
	       p->restart ? ", SA_RESTART" : "", p->end ? ", ends with the first thread" : "");
	for (i = 0; i < p->nr; i++) {
		const struct call *c = &p->calls[i];

		printf("#   thread %u: %s", c->thread % p->threads, kinds[c->kind].name);
		for (j = 0; j < ARGS && kinds[c->kind].args[j] != NONE; j++)
			describe_arg(kinds[c->kind].args[j], c->arg[j]);
		if (c->flip)
			printf(", flip %u", c->flip);
		printf("\n");
	}
}

/* The loop */

static uint64_t seconds_wanted(void)
{
	const char *text = getenv("MEMWAIT_FUZZ_SECONDS");

	return text ? strtoull(text, NULL, 10) : LOAD(20, 10);
}

static void report(uint64_t start)
{
	uint64_t ms = (now_ns(CLOCK_MONOTONIC) - start) / NSEC_PER_MSEC + 1;

	printf("# %llu s: %llu programs, %.1f/s, %llu calls; corpus %llu, edges %llu, PCs %llu\n",
	       (unsigned long long)ms / 1000, (unsigned long long)shared->programs,
	       shared->programs * 1000.0 / ms, (unsigned long long)shared->calls,
	       (unsigned long long)shared->corpus, (unsigned long long)shared->edges,
	       (unsigned long long)shared->points);
	fflush(stdout);
}

/* Compares the texts up to the first digit in each. */
static bool is_same_failure(const char *a, const char *b)
{
	size_t n = strcspn(a, "0123456789");

	return n == strcspn(b, "0123456789") && !strncmp(a, b, n);
}

/*
 * Removes calls from a failing program as long as it fails in the same way. Takes at most two
 * minutes.
 */
static void shrink(int fd, struct program *p)
{
	uint64_t end = in_ms(120000);
	char failure[sizeof(shared->failure)];
	struct program smaller;
	int at, i;

	memcpy(failure, shared->failure, sizeof(failure));
	for (at = p->nr - 1; at >= 0 && p->nr > 1; at--) {
		smaller = *p;
		remove_call(&smaller, at);
		for (i = 0; i < 10 && now_ns(CLOCK_MONOTONIC) < end; i++) {
			shared->failed = 0;
			run_program(fd, &smaller, 0);
			if (shared->failed && is_same_failure(shared->failure, failure)) {
				*p = smaller;
				break;
			}
		}
	}
	memcpy(shared->failure, failure, sizeof(failure));
	shared->failed = 1;
}

static struct program corpus[CORPUS];

static struct program next_program(void)
{
	struct program p;
	int n;

	if (!shared->corpus || !rnd(5))
		return random_program();
	p = corpus[rnd(shared->corpus)];
	for (n = rnd(5); n >= 0; n--)
		mutate(&p, &corpus[rnd(shared->corpus)]);
	return p;
}

static void fuzz(const struct program *replay)
{
	uint64_t start = now_ns(CLOCK_MONOTONIC), end, next;
	int fd = memwait_open(0);
	unsigned int number = 0;
	long tainted = taint();
	struct program p;
	char text[TEXT];

	/* A kernel thread may still have to return the charges of a program that has just ended. */
	mw_await_user_waits(fd, 0);
	end = start + seconds_wanted() * NSEC_PER_SEC;
	next = start + 30 * NSEC_PER_SEC;
	while (now_ns(CLOCK_MONOTONIC) < end && !shared->failed) {
		p = replay ? *replay : next_program();
		/*
		 * The program is recorded before it runs, so that it can be printed even if the
		 * fuzzer dies.
		 */
		print_program(&p, shared->ring[number % RING], TEXT);
		run_program(fd, &p, number++);
		if (shared->news && !replay)
			corpus[shared->corpus < CORPUS ? shared->corpus++ : rnd(CORPUS)] = p;
		if (now_ns(CLOCK_MONOTONIC) >= next) {
			report(start);
			next += 30 * NSEC_PER_SEC;
		}
	}
	report(start);
	if (!shared->failed)
		return;
	printf("# failed: %s\n# MEMWAIT_FUZZ_REPLAY=%s\n", shared->failure,
	       shared->ring[(number - 1) % RING]);
	fflush(stdout);
	describe(&p);
	fflush(stdout);
	/* The kernel is tainted only once. Therefore a shorter program would not fail. */
	if (taint() != tainted)
		return;
	shrink(fd, &p);
	print_program(&p, text, sizeof(text));
	printf("# reduced to the calls that are needed:\n# MEMWAIT_FUZZ_REPLAY=%s\n", text);
	describe(&p);
}

FIXTURE(fuzz)
{
	bool coverage;
};

FIXTURE_SETUP(fuzz)
{
	const char *text = getenv("MEMWAIT_FUZZ_SEED");
	int i;

	shared = shared_page(sizeof(*shared));
	ASSERT_NE(NULL, shared);
	seed = text ? strtoull(text, NULL, 0) : now_ns(CLOCK_REALTIME);
	if (!seed)
		seed = 1;
	ASSERT_EQ(0, prctl(PR_SET_CHILD_SUBREAPER, 1));
	for (i = 0; i < THREADS; i++) {
		/* No memory is mapped behind an area. */
		threads[i].area = private_page(AREA + PAGE);
		ASSERT_NE(NULL, threads[i].area);
		ASSERT_EQ(0, mprotect(threads[i].area + AREA, PAGE, PROT_NONE));
	}
	scratch_fd = memfd_create("scratch", MFD_CLOEXEC);
	ASSERT_LE(0, scratch_fd);
}

FIXTURE_TEARDOWN(fuzz)
{
}

/* A program that cannot be read back cannot be replayed. */
TEST_F_TIMEOUT(fuzz, a_printed_program_can_be_read_back, 300)
{
	struct program p, copy;
	char text[TEXT];
	int i, j;

	for (i = 0; i < 1000; i++) {
		p = random_program();
		for (j = rnd(20); j; j--)
			mutate(&p, &p);
		print_program(&p, text, sizeof(text));
		ASSERT_LT(strlen(text), sizeof(text) - 1);
		ASSERT_TRUE(read_program(text, &copy))
			TH_LOG("%s", text);
		ASSERT_EQ(0, memcmp(&p, &copy, sizeof(p)));
	}
}

/* The test ends at the requested time, or after a failure. */
TEST_F_TIMEOUT(fuzz, programs_get_documented_results_and_leave_nothing_behind, 1000000)
{
	const char *text = getenv("MEMWAIT_FUZZ_REPLAY");
	struct program replay;
	int status = 0, i;
	pid_t pid;

	ASSERT_EQ(0, open_regions());
	self->coverage = open_coverage();
	if (text)
		ASSERT_TRUE(read_program(text, &replay));
	printf("# MEMWAIT_FUZZ_SEED=%#llx, %s\n", (unsigned long long)seed,
	       self->coverage ? "guided by coverage" : "no KCOV: grammar only");
	if (!self->coverage) {
		for (i = 0; i < THREADS; i++)
			threads[i].kcov = NULL;
	}
	fflush(stdout);

	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		fuzz(text ? &replay : NULL);
		fflush(stdout);
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	if (status) {
		TH_LOG("the fuzzer died with status %#x; the latest programs:", status);
		for (i = 0; i < RING; i++)
			TH_LOG("%s", shared->ring[i]);
	}
	EXPECT_EQ(0, status);
	EXPECT_FALSE(shared->failed)
		TH_LOG("%s", shared->failure);
	EXPECT_LT(0, shared->programs);
	if (self->coverage)
		EXPECT_LT(0, shared->edges);
}

TEST_HARNESS_MAIN
