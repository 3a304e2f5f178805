// SPDX-License-Identifier: GPL-2.0
/*
 * All operations at the same time, with exact accounting. Processes with several threads randomly
 * wait, arm, notify, requeue, cancel, read, poll, fork, and close contexts or pass them to each
 * other. They use a few words, very short deadlines, and signals, while some of the words are
 * mapped and unmapped. Then all threads come to rest, and these conditions must hold:
 *
 * - each word has exactly the waiters that are known to wait on it;
 * - the sum of the results of all notifies is the number of OKs that were received;
 * - every pending wait has ended exactly once;
 * - no ordered wait is pending if a wait that was queued later was notified;
 * - no waiter waits on a word for a value that the word no longer has, if each change of the word
 *   was followed by a notify of all waiters;
 * - after a notify of all waiters no thread sleeps, and no wait is left, not even in the counts of
 *   the module.
 *
 * Then the threads continue. A second test closes contexts with pending waits, and has processes
 * that are killed, dump core or call execve(2). A notify that such a process received may be passed
 * on, or may find no next waiter. Therefore the number of notifies that are missing in a round must
 * not exceed the number that these processes could have received.
 *
 * Two more tests are storms of notifies from every CPU, on private and on shared words. Threads arm
 * batches of waits, and cancel half of them, while other threads notify all words. The sums must be
 * exact.
 *
 * The seed determines the choices of a thread; their effects also depend on the scheduler. On
 * failure the test prints the last calls of every thread. MEMWAIT_TORTURE_SECONDS sets the duration
 * of each of the first two tests, MEMWAIT_LOAD_SECONDS that of each storm, and MEMWAIT_TORTURE_SEED
 * the seed.
 */
#include "torture_calls_test.h"

static void pause_a_moment(void)
{
	usleep(1000);
}

/* Wakes all waiters of some words. At the end there must be no waiters. */
static void flush(struct worker *w, uint32_t from, uint32_t to)
{
	for (uint32_t word = from; word < to; word++)
		notify_all(w, word);
}

static cpu_set_t cpus;

/* Binds a notifying thread to a CPU, and in the next round to another CPU, if there are many. */
static void bind_in_storm(struct worker *w)
{
	int n = (w->number + PROCESSES * THREADS * shared->round) / 2 % CPU_COUNT(&cpus), cpu;

	for (cpu = 0; !CPU_ISSET(cpu, &cpus) || n--; cpu++)
		;
	bind_to(cpu);
}

/* Notifies all words, each word by one call, and then all words by one call. */
static void step_storm_notify(struct worker *w)
{
	uint32_t count = one_in(w, 3) ? MEMWAIT_ALL : 1, woken[STORM_WORDS] = { 0 }, i;
	struct memwait_notify notifies[STORM_WORDS];
	struct call *call;
	int ret;

	bind_in_storm(w);
	for (i = 0; i < STORM_WORDS; i++) {
		ret = notify(w, WORDS + i, count, U32);
		if (ret < 0)
			broken(w, "notify in a storm", ret, i);
		notifies[STORM_WORDS - 1 - i] = random_notify(w, WORDS + i, count);
	}
	call = begin(w, "notify many", 0, STORM_WORDS, count);
	call->result = mw_notify_many(w->fd, notifies, STORM_WORDS, woken);
	if (call->result != STORM_WORDS)
		broken(w, "notify many in a storm", call->result, STORM_WORDS);
	for (i = 0; i < STORM_WORDS; i++)
		w->record->notified += woken[i];
}

static void step_of_storm(struct worker *w)
{
	if (w->number % 2)
		return step_storm_notify(w);
	step_arm(w);
	/* A wait that cannot be cancelled has ended and has a completion. */
	if (one_in(w, 32))
		empty_context(w, w->own);
	else
		read_all(w, w->own);
}

/* All waits of the storm were cancelled or notified. */
static void check_calm(struct worker *w)
{
	uint32_t i;
	int ret;

	for (i = 0; i < STORM_WORDS; i++) {
		ret = notify(w, WORDS + i, MEMWAIT_ALL, U32);
		if (ret)
			broken(w, "a waiter is left after a storm", ret, i);
	}
}

static void count_own_waiters(struct worker *w)
{
	int i;

	for (i = 0; i < KINDS; i++)
		w->record->waiters[i] = mw_waiters(w->fd, address(w, OWN * KINDS + i), 0);
	w->record->own_strict = *(uint64_t *)address(w, OWN * KINDS + STRICT);
}

/*
 * Does the work of the first thread of a process while all threads come to rest: receives contexts,
 * reads the contexts of sleeping threads, counts the waiters of the process's own words, and wakes
 * them.
 */
static void rest_for_process(struct worker *w, uint32_t round)
{
	int i;

	step_receive(w);
	for (i = 0; i < OWN_CONTEXTS; i++) {
		/* A thread that has not come to rest may be closing the context. */
		if (!take_part_of_context(i))
			continue;
		read_all(w, i);
		put_context(i);
	}
	for (i = 1; i < THREADS && phase() == REST; i++) {
		struct record *record = w->record + i;

		if (__atomic_load_n(&record->nr_waiting, __ATOMIC_ACQUIRE))
			read_all(w, w->own + i);
	}
	if (phase() == FLUSH && w->record->flushed != round) {
		flush(w, OWN * KINDS, WORDS);
		__atomic_store_n(&w->record->flushed, round, __ATOMIC_RELEASE);
	}
	count_own_waiters(w);
}

/*
 * All pending waits that can be notified have been notified. Therefore all completions can be read
 * immediately.
 */
static void drain(struct worker *w, int number)
{
	struct slot *slots = shared->contexts[number].slots;
	int i;

	for (i = 0; i < SLOTS; i++) {
		if (slots[i].process == FORKED)
			cancel_slot(w, number, &slots[i]);
	}
	read_all(w, number);
	check_all_free(w, number, "passed over by a notify of all");
}

static void rest(struct worker *w)
{
	bool first = w->number % THREADS == 0;
	enum phase now;
	int i;

	while ((now = phase()) == REST || now == FLUSH) {
		if (is_storm())
			empty_context(w, w->own);
		else
			read_all(w, w->own);
		if (first)
			rest_for_process(w, shared->round);
		__atomic_store_n(&w->record->rested, shared->round, __ATOMIC_RELEASE);
		pause_a_moment();
	}
	if (now != DRAIN)
		return;
	end_place(w);
	drain(w, w->own);
	for (i = 0; first && i < OWN_CONTEXTS; i++) {
		if (shared->contexts[i].owner == process_number)
			drain(w, i);
	}
	if (first && is_storm())
		check_calm(w);
	if (first)
		count_own_waiters(w);
	__atomic_store_n(&w->record->drained, shared->round, __ATOMIC_RELEASE);
	while (phase() == DRAIN)
		pause_a_moment();
}

static void *work(void *arg)
{
	struct worker *w = arg;

	w->record->tid = gettid();
	while (phase() != STOP) {
		while (phase() == RUN && !w->record->broken)
			w->victim ? step_of_victim(w) : is_storm() ? step_of_storm(w) : step(w);
		if (w->victim || w->record->broken)
			pause();
		else
			rest(w);
	}
	return NULL;
}

static void new_worker(struct worker *w, int number, uint64_t round)
{
	w->record = &shared->records[number];
	w->number = number;
	w->own = OWN_CONTEXTS + number;
	w->victim = number >= PROCESSES * THREADS && number < WORKERS;
	w->no_own_words = w->victim;
	w->random = (shared->seed + number + 1 + round * 1000) * 0x9e3779b97f4a7c15ULL;
	w->fd = memwait_open(0);
	w->record->pid = getpid();
	__atomic_store_n(&w->record->tid, 0, __ATOMIC_RELEASE);
}

static void map_own_words(void)
{
	long size = sysconf(_SC_PAGESIZE);

	areas[OWN] = private_page(size);
	wild_areas[OWN] = private_page(size);
}

/* Each process maps the memfd at different addresses. */
static void map_memfd(int memfd)
{
	long size = sysconf(_SC_PAGESIZE);

	areas[MEMFD] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	areas[PLACES] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	wild_areas[MEMFD] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, wild_memfd, 0);
}

static void init_contexts(int process, struct worker *workers)
{
	pthread_rwlockattr_t attr;
	int i;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	for (i = 0; i < CONTEXTS + THREADS; i++) {
		int number = i < CONTEXTS ? process * CONTEXTS + i :
			     OWN_CONTEXTS + process * THREADS + i - CONTEXTS;
		struct context *context = &shared->contexts[number];

		pthread_rwlock_init(&context->lock, &attr);
		open_context(workers, number);
		__atomic_store_n(&context->owner, process, __ATOMIC_RELEASE);
	}
}

static pid_t start_process(int process, int memfd, uint64_t round)
{
	struct worker workers[THREADS] = { 0 };
	struct rlimit no_core = { 0 };
	pthread_t threads[THREADS];
	pid_t pid = fork_child();
	int i;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &no_core);
	handle(SIGUSR1, SA_RESTART);
	handle(SIGUSR2, 0);
	process_number = process;
	map_memfd(memfd);
	map_own_words();
	for (i = 0; i < THREADS; i++)
		new_worker(&workers[i], process * THREADS + i, round);
	init_contexts(process, workers);
	for (i = 0; i < THREADS; i++) {
		int err = pthread_create(&threads[i], NULL, work, &workers[i]);

		/* The first thread of a victim may already have ended the process. */
		if (err && workers[i].victim)
			_exit(0);
		else if (err)
			broken(&workers[i], "thread", err, 0);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

/* The test itself. */

static struct worker self_worker;
static pid_t pids[PROCESSES + VICTIMS];

static struct record *record_of(int number)
{
	return &shared->records[number];
}

static int process_of(int number)
{
	return number / THREADS;
}

/* Returns the known number of waiters of a word. An OWN word belongs to @process. */
static int known_waiters(int process, uint32_t word)
{
	int n = 0, i, j;
	uint32_t k;

	for (i = 0; i < PROCESSES * THREADS; i++) {
		struct record *record = record_of(i);

		for (k = 0; k < record->nr_waiting; k++)
			n += record->waiting[k] == word &&
			     (PLACE(word) != OWN || process_of(i) == process);
	}
	for (i = 0; i < ALL_CONTEXTS; i++) {
		for (j = 0; j < SLOTS; j++) {
			struct slot *slot = &shared->contexts[i].slots[j];

			for (k = 0; slot->state == PENDING && k < slot->nr; k++)
				n += slot->words[k] == word &&
				     (PLACE(word) != OWN || slot->process == process);
		}
	}
	return n;
}

static int waiters(int process, uint32_t word)
{
	if (PLACE(word) == OWN)
		return record_of(process * THREADS)->waiters[word - OWN * KINDS];
	return mw_waiters(self_worker.fd, address(&self_worker, word), 0);
}

/* Reports a wrong number of waiters. The waiters of all MOVING words are counted together. */
static const char *wrong_waiters(int64_t *is, int64_t *should_be)
{
	int64_t moving = 0, known_moving = 0;
	uint32_t word;
	int process;

	for (process = 0; process < PROCESSES; process++) {
		for (word = process ? OWN * KINDS : 0; word < WORDS; word++) {
			*is = waiters(process, word);
			*should_be = known_waiters(process, word);
			if (MOVES(word)) {
				moving += *is;
				known_moving += *should_be;
			} else if (*is != *should_be) {
				return HAS_KIND(word, WILD) ? "waiters of a wild word" :
							     "waiters of a word";
			}
		}
	}
	*is = moving;
	*should_be = known_moving;
	return moving == known_moving ? NULL : "waiters of words that move";
}

/* Reports a thread that neither has come to rest nor sleeps in a wait. */
static const char *restless(int64_t *a, int64_t *b)
{
	int i, j;

	for (i = 0; i < PROCESSES * THREADS; i++) {
		*a = i;
		*b = __atomic_load_n(&record_of(i)->rested, __ATOMIC_ACQUIRE);
		/*
		 * The order of the checks matters: if the thread is not forking, it is the thread
		 * itself that waits, and not a child.
		 */
		if (*b != shared->round &&
		    (!__atomic_load_n(&record_of(i)->nr_waiting, __ATOMIC_ACQUIRE) ||
		     thread_state(record_of(i)->tid) != 'S' ||
		     __atomic_load_n(&record_of(i)->forking, __ATOMIC_ACQUIRE)))
			return "a thread does not come to rest";
	}
	for (i = 0; i < ALL_CONTEXTS; i++) {
		*a = i;
		if (i < PROCESSES * CONTEXTS &&
		    __atomic_load_n(&shared->contexts[i].owner, __ATOMIC_ACQUIRE) == NOBODY)
			return "a context got lost";
		for (j = 0; j < SLOTS; j++) {
			struct slot *slot = &shared->contexts[i].slots[j];

			*b = slot->state;
			if (slot->state != FREE && (slot->state != PENDING || is_timed(slot)))
				return "a wait with a deadline does not end";
		}
	}
	return wrong_waiters(a, b);
}

static const char *asleep(int64_t *a, int64_t *b)
{
	int i;

	for (i = 0; i < PROCESSES * THREADS; i++) {
		*a = i;
		*b = record_of(i)->nr_waiting ? record_of(i)->waiting[0] : -1;
		if (__atomic_load_n(&record_of(i)->rested, __ATOMIC_ACQUIRE) != shared->round)
			return "a thread sleeps though all words were notified";
		if (i % THREADS == 0 &&
		    __atomic_load_n(&record_of(i)->flushed, __ATOMIC_ACQUIRE) != shared->round)
			return "a process does not wake its threads";
	}
	return NULL;
}

static const char *not_drained(int64_t *a, int64_t *b)
{
	int i;

	for (i = 0; i < PROCESSES * THREADS; i++) {
		*a = i;
		*b = 0;
		if (__atomic_load_n(&record_of(i)->drained, __ATOMIC_ACQUIRE) != shared->round)
			return "a thread does not empty its contexts";
	}
	return wrong_waiters(a, b);
}

static bool somebody_is_broken(void)
{
	int i;

	for (i = 0; i <= WORKERS; i++) {
		if (__atomic_load_n(&record_of(i)->broken, __ATOMIC_ACQUIRE))
			return true;
	}
	return false;
}

/*
 * Waits until @is_not returns NULL. Returns false if that takes too long, or if another error has
 * occurred.
 */
static bool await(const char *(*is_not)(int64_t *a, int64_t *b))
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE;
	const char *why;
	int64_t a, b;

	while ((why = is_not(&a, &b)) && !somebody_is_broken()) {
		if (now_ns(CLOCK_MONOTONIC) > end)
			broken(&self_worker, why, a, b);
		else
			pause_a_moment();
	}
	return !somebody_is_broken();
}

/*
 * Returns whether a waiter waits for a value that a STRICT word no longer has. Each change of such
 * a word is followed by a notify of all waiters.
 */
static bool has_missed(uint32_t word, int process, const struct memwait_wait *wait)
{
	uint64_t mask = ~0ULL >> (64 - (8U << (wait->flags & MEMWAIT_SIZE_MASK))), now;

	if (!HAS_KIND(word, STRICT) || process == FORKED)
		return false;
	now = PLACE(word) == OWN ? record_of(process * THREADS)->own_strict :
				   *(uint64_t *)(areas[PLACE(word)] + OFFSET(word));
	return (now ^ wait->expected) & mask;
}

/*
 * Called while all threads rest. Reports a waiter that a notify of all waiters has missed, or that
 * was overtaken.
 */
static void look_at_waiters(void)
{
	struct record *record;
	struct slot *slot;
	uint32_t k;
	int i, j;

	for (i = 0; i < PROCESSES * THREADS; i++) {
		record = record_of(i);
		for (k = 0; k < record->nr_waiting; k++) {
			if (has_missed(record->waiting[k], process_of(i), &record->waits[k]))
				broken(&self_worker, "a thread missed a notify", i,
				       record->waiting[k]);
		}
	}
	for (i = 0; i < ALL_CONTEXTS; i++) {
		for (j = 0; j < SLOTS; j++) {
			slot = &shared->contexts[i].slots[j];
			if (slot->state != PENDING)
				continue;
			for (k = 0; k < slot->nr; k++) {
				if (has_missed(slot->words[k], slot->process, &slot->waits[k]))
					broken(&self_worker, "an async wait missed a notify", i,
					       slot->words[k]);
			}
			if (slot->ticket &&
			    slot->ticket < shared->orders[slot->words[0]].last_notified)
				broken(&self_worker, "a later wait was notified", slot->ticket,
				       shared->orders[slot->words[0]].last_notified);
		}
	}
}

static void set_phase(enum phase next)
{
	__atomic_store_n(&shared->phase, next, __ATOMIC_RELEASE);
}

/*
 * Returns how many notifies a dead process may have received, and then forgets the state of the
 * process.
 */
static long forget_process(int process)
{
	long lost = 0;
	int i, j;

	for (i = process * THREADS; i < (process + 1) * THREADS; i++) {
		struct record *record = record_of(i);

		lost += !!record->nr_waiting + record->reading;
		record->nr_waiting = 0;
		record->reading = 0;
		record->tid = 0;
	}
	for (i = 0; i < ALL_CONTEXTS; i++) {
		struct context *context = &shared->contexts[i];

		if (context->owner != process)
			continue;
		context->owner = NOBODY;
		for (j = 0; j < SLOTS; j++) {
			lost += context->slots[j].state != FREE;
			context->slots[j].state = FREE;
		}
	}
	return lost;
}

static long end_process(int process)
{
	if (pids[process] > 0) {
		kill_child(pids[process]);
		pids[process] = 0;
	}
	return forget_process(process);
}

static long calls_of(int process)
{
	long calls = 0;
	int i;

	for (i = process * THREADS; i < (process + 1) * THREADS; i++)
		calls += record_of(i)->calls;
	return calls;
}

/*
 * Sends signals, notifies, and kills processes while the other processes run. A process is killed
 * only after it has made some calls. Returns how many notifies may be lost.
 */
static long disturb(int memfd, uint64_t end, uint64_t *deaths)
{
	static long calls_before[PROCESSES + VICTIMS];
	struct worker *w = &self_worker;
	long lost = 0;

	while (now_ns(CLOCK_MONOTONIC) < end && !somebody_is_broken()) {
		struct record *victim = record_of(draw(w) % WORKERS);
		int process = PROCESSES + draw(w) % VICTIMS;

		if (is_storm()) {
			pause_a_moment();
			continue;
		}
		if (victim->tid)
			syscall(SYS_tgkill, victim->pid, victim->tid,
				one_in(w, 2) ? SIGUSR1 : SIGUSR2);
		step_notify(w);
		pause_a_moment();
		if (shared->mode == EXACT || !one_in(w, 16) ||
		    (pids[process] > 0 && calls_of(process) == calls_before[process]))
			continue;
		lost += end_process(process);
		calls_before[process] = calls_of(process);
		pids[process] = start_process(process, memfd, ++*deaths);
	}
	return lost;
}

static long end_victims(void)
{
	long lost = 0;
	int i;

	for (i = PROCESSES; i < PROCESSES + VICTIMS; i++)
		lost += end_process(i);
	return lost;
}

static void report(struct __test_metadata *_metadata)
{
	int i, j;

	for (i = 0; i <= WORKERS; i++) {
		struct record *record = record_of(i);

		if (record->broken)
			TH_LOG("thread %d: %s", i, record->why);
	}
	for (i = 0; i <= WORKERS; i++) {
		struct record *record = record_of(i);

		for (j = 0; j < RECENT; j++) {
			struct call *call = &record->recent[(record->calls + j) % RECENT];

			if (call->what)
				TH_LOG("thread %d: %s: context %u, %lld, %lld: %lld", i, call->what,
				       call->context, (long long)call->a, (long long)call->b,
				       (long long)call->result);
		}
		for (j = 0; j < (int)record->nr_waiting; j++)
			TH_LOG("thread %d waits on %d", i, record->waiting[j]);
	}
}

/* Sums the counts of the first @threads threads. The last record is that of the test itself. */
static struct record sum_of(int threads)
{
	struct record sum = { 0 };
	int i;

	for (i = 0; i < threads; i++) {
		struct record *record = record_of(i);

		sum.calls += record->calls;
		sum.notified += record->notified;
		sum.thread_oks += record->thread_oks;
		sum.read_oks += record->read_oks;
		sum.watched_oks += record->watched_oks;
		sum.armed += record->armed;
		sum.timed_out += record->timed_out;
		sum.cancelled += record->cancelled;
		sum.closed_over += record->closed_over;
		sum.interrupted += record->interrupted;
	}
	return sum;
}

/*
 * The number of notifies must equal the number of OKs, except for the notifies that may have been
 * lost in this round. The number of waits must equal the number of ends exactly.
 */
static void account(long lost, uint64_t user_waits)
{
	static long missing_before, closed_over_before;
	struct record all = sum_of(WORKERS + 1), living = sum_of(PROCESSES * THREADS);
	long oks = all.thread_oks + all.read_oks + all.watched_oks;
	long ended = living.read_oks + living.timed_out + living.cancelled + living.closed_over;
	long missing = all.notified - oks - missing_before;

	if (missing < 0 || missing > lost + all.closed_over - closed_over_before)
		broken(&self_worker, "notifies without an OK in this round, permitted number",
		       missing, lost + all.closed_over - closed_over_before);
	missing_before += missing;
	closed_over_before = all.closed_over;
	if (living.armed != ended)
		broken(&self_worker, "numbers of armed and of ended waits", living.armed, ended);
	/*
	 * Kernel threads may still have to return the charges of contexts and files that they close
	 * or free.
	 */
	if (mw_await_user_waits(self_worker.fd, user_waits) != user_waits)
		broken(&self_worker, "waits of the user", mw_user_waits(self_worker.fd),
		       user_waits);
}

static void one_round(int memfd, uint64_t *deaths, uint64_t user_waits)
{
	long lost;

	shared->round++;
	set_phase(RUN);
	lost = disturb(memfd, now_ns(CLOCK_MONOTONIC) + ROUND, deaths);
	set_phase(REST);
	lost += end_victims();
	if (!await(restless))
		return;
	look_at_waiters();

	set_phase(FLUSH);
	flush(&self_worker, 0, OWN * KINDS);
	if (!await(asleep))
		return;

	set_phase(DRAIN);
	if (!await(not_drained))
		return;
	account(lost, user_waits);
}

static void totals(struct __test_metadata *_metadata, uint64_t deaths)
{
	struct record sum = sum_of(WORKERS + 1);

	TH_LOG("%u rounds, %ld calls, %ld interrupted; %llu processes died", shared->round - 1,
	       sum.calls, sum.interrupted, (unsigned long long)deaths);
	TH_LOG("notified %ld; OKs of threads %ld, of completions %ld, of persistent waits %ld",
	       sum.notified, sum.thread_oks, sum.read_oks, sum.watched_oks);
	TH_LOG("armed %ld, timed out %ld, cancelled %ld, ended by a close %ld", sum.armed,
	       sum.timed_out, sum.cancelled, sum.closed_over);
}

/* Returns whether the threads that this test needs have made any calls yet. */
static bool has_begun(void)
{
	if (is_storm())
		return true;
	if (shared->mode == EXACT)
		return record_of(0)->notified;
	return sum_of(WORKERS).calls > sum_of(PROCESSES * THREADS).calls;
}

static void torture(struct __test_metadata *_metadata, enum mode mode)
{
	const char *seed = getenv("MEMWAIT_TORTURE_SEED"), *seconds;
	uint64_t end, user_waits, deaths = 0;
	long size = sysconf(_SC_PAGESIZE);
	int memfd = memfd_create("words", MFD_CLOEXEC), i, status;
	bool failed;

	shared = shared_page(sizeof(*shared));
	shared->mode = mode;
	seconds = getenv(is_storm() ? "MEMWAIT_LOAD_SECONDS" : "MEMWAIT_TORTURE_SECONDS");
	shared->phase = DRAIN;
	shared->round = 1;
	shared->seed = seed ? strtoull(seed, NULL, 0) : now_ns(CLOCK_REALTIME);
	TH_LOG("seed %llu", (unsigned long long)shared->seed);

	ASSERT_EQ(0, sched_getaffinity(0, sizeof(cpus), &cpus));
	wild_memfd = memfd_create("wild", MFD_CLOEXEC);
	ASSERT_EQ(0, ftruncate(memfd, size) | ftruncate(wild_memfd, size));
	areas[INHERITED] = shared_page(size);
	wild_areas[INHERITED] = shared_page(size);
	map_memfd(memfd);
	for (i = 0; i < PROCESSES; i++)
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
					mail[i]));
	for (i = 0; i < ALL_CONTEXTS; i++)
		shared->contexts[i].owner = NOBODY;
	new_worker(&self_worker, WORKERS, 0);
	self_worker.no_own_words = true;
	user_waits = mw_await_user_waits(self_worker.fd, 0);

	memset(pids, 0, sizeof(pids));
	for (i = 0; i < PROCESSES; i++) {
		pids[i] = start_process(i, memfd, 0);
		ASSERT_LT(0, pids[i]);
	}
	await(not_drained);		/* waits until all threads are ready */
	end = now_ns(CLOCK_MONOTONIC) + (seconds ? atoi(seconds) : 5) * NSEC_PER_SEC;
	do {
		one_round(memfd, &deaths, user_waits);
	} while ((now_ns(CLOCK_MONOTONIC) < end || !has_begun()) && !somebody_is_broken());

	set_phase(STOP);
	failed = somebody_is_broken();
	EXPECT_FALSE(failed);
	if (failed)
		report(_metadata);
	for (i = 0; i < PROCESSES; i++) {
		if (failed)
			kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
		EXPECT_EQ(0, status);
		close(mail[i][0]);
		close(mail[i][1]);
	}
	end_victims();
	totals(_metadata, deaths);
	if (is_storm()) {
		EXPECT_LT(0, sum_of(WORKERS).read_oks);
		EXPECT_LT(0, sum_of(WORKERS).cancelled);
	}
	close(self_worker.fd);
}

FIXTURE(torture)
{
};

FIXTURE_SETUP(torture)
{
}

FIXTURE_TEARDOWN(torture)
{
}

TEST_F_TIMEOUT(torture, R5_every_notify_is_one_ok, 86400)
{
	torture(_metadata, EXACT);
}

TEST_F_TIMEOUT(torture, R25_close_and_death_pass_notifies_on, 86400)
{
	torture(_metadata, DEATHS);
}

TEST_F_TIMEOUT(torture, R5_storms_of_notifies_on_private_words, 86400)
{
	torture(_metadata, PRIVATE_STORM);
}

TEST_F_TIMEOUT(torture, R19_storms_of_notifies_on_shared_words, 86400)
{
	torture(_metadata, SHARED_STORM);
}

TEST_HARNESS_MAIN
