// SPDX-License-Identifier: GPL-2.0
/*
 * R2 to R4, R6, R7: properties that all ways to wait for a word have in common: the order of
 * checks, sizes, deadlines, signals, and every kind of page.
 */
#include "any_test.h"
#include "fault_test.h"

static const uint32_t sizes[] = {
	MEMWAIT_SIZE_U8, MEMWAIT_SIZE_U16, MEMWAIT_SIZE_U32, MEMWAIT_SIZE_U64,
};

/* Words that no test notifies. */
static uint32_t quiet[MOST];

/* Builds a group of n words whose last word is the tested word. */
static void behind_others(struct memwait_wait *waits, int n, const volatile void *addr,
			  uint64_t expected, uint32_t flags)
{
	members(waits, quiet, n - 1);
	waits[n - 1] = member(addr, expected, flags & ~MEMWAIT_CLOCK_REALTIME);
}

static int wait_any_of(int n, int fd, const volatile void *addr, uint64_t expected,
		       uint64_t deadline, uint32_t flags)
{
	struct memwait_wait waits[MOST];
	uint32_t index;
	bool told;
	int ret;

	behind_others(waits, n, addr, expected, flags);
	ret = mw_wait_any(fd, waits, n, deadline, flags & MEMWAIT_CLOCK_REALTIME, &index);
	told = ret == MEMWAIT_OK || ret == MEMWAIT_NOT_EQUAL;
	return index == (told ? (uint32_t)n - 1 : UNTOUCHED) ? ret : -EPROTO;
}

static int wait_any_of_one(int fd, const volatile void *addr, uint64_t expected,
			   uint64_t deadline, uint32_t flags)
{
	return wait_any_of(1, fd, addr, expected, deadline, flags);
}

static int wait_any_of_most(int fd, const volatile void *addr, uint64_t expected,
			    uint64_t deadline, uint32_t flags)
{
	return wait_any_of(MOST, fd, addr, expected, deadline, flags);
}

/* Notifies a word that has no waiter, and then waits. */
static int notify_wait(int fd, const volatile void *addr, uint64_t expected, uint64_t deadline,
		       uint32_t flags)
{
	struct memwait_notify_wait arg = {
		.notify = { .addr = (uintptr_t)quiet, .count = 1, .flags = U32 },
		.wait = { .addr = (uintptr_t)addr, .expected = expected, .deadline = deadline,
			  .flags = flags },
		.notified = UNTOUCHED,
	};
	struct memwait_notify_wait was = arg;
	int ret = xioctl(fd, MEMWAIT_IOC_NOTIFY_WAIT, &arg);

	/*
	 * A refused call writes nothing. Any other call writes @notified and, after EINTR, @state.
	 */
	was.notified = ret == -EINVAL || ret == -EFAULT ? UNTOUCHED : 0;
	was.state = ret == -EINTR ? MEMWAIT_NOTIFIED : 0;
	return memcmp(&arg, &was, sizeof(arg)) ? -EPROTO : ret;
}

/* Arms the entry in a separate context and reads its completion. */
static int arm_and_read(struct memwait_async *entry, uint32_t index)
{
	struct memwait_completion done = { .result = UNTOUCHED };
	int fd = memwait_open(0), ret = mw_batch(fd, entry, 1);

	if (ret > 0)
		ret = entry->result;
	if (ret == MEMWAIT_PENDING) {
		ret = mw_read(fd, &done, 1);
		if (ret == 1)
			ret = done.result;
		if (ret == MEMWAIT_OK && (done.index != index || done.id != entry->id))
			ret = -EPROTO;
	}
	close(fd);
	return ret;
}

static int async(int fd, const volatile void *addr, uint64_t expected, uint64_t deadline,
		 uint32_t flags)
{
	struct memwait_async entry = wait_entry((const void *)addr, expected, deadline, 1);

	entry.wait.flags = flags;
	return arm_and_read(&entry, 0);
}

static int async_group(int fd, const volatile void *addr, uint64_t expected, uint64_t deadline,
		       uint32_t flags)
{
	struct memwait_wait waits[SMALL + 1];
	struct memwait_async entry = group_entry(waits, SMALL + 1, deadline,
						 flags & MEMWAIT_CLOCK_REALTIME, 1);

	behind_others(waits, SMALL + 1, addr, expected, flags);
	return arm_and_read(&entry, SMALL);
}

FIXTURE_VARIANT(memwait)
{
	int (*wait)(int fd, const volatile void *addr, uint64_t expected, uint64_t deadline,
		    uint32_t flags);
	bool compares_once;	/* a restart does not compare again */
};

FIXTURE_VARIANT_ADD(memwait, wait) { .wait = mw_wait };
FIXTURE_VARIANT_ADD(memwait, any_of_one) { .wait = wait_any_of_one };
FIXTURE_VARIANT_ADD(memwait, any_of_most) { .wait = wait_any_of_most };
FIXTURE_VARIANT_ADD(memwait, notify_wait) { .wait = notify_wait };
FIXTURE_VARIANT_ADD(memwait, async) { .wait = async, .compares_once = true };
FIXTURE_VARIANT_ADD(memwait, group) { .wait = async_group, .compares_once = true };

/* Waits in the variant's way, in this thread or in another thread. */
#define WAIT(...)	(variant->wait(self->fd, __VA_ARGS__))

#define THREAD(word_, deadline_)							\
	((struct waiter) { .wait = variant->wait, .fd = self->fd, .addr = (word_),	\
			   .deadline = (deadline_), .flags = U32 })

MEMWAIT_TEST(R2_arguments_come_before_access)
{
	EXPECT_EQ(-EINVAL, WAIT((void *)1, 0, 0, U32));
	EXPECT_EQ(-EINVAL, WAIT((void *)-3UL, 0, 0, U32));
	EXPECT_EQ(-EFAULT, WAIT(NULL, 0, 0, U32));
}

MEMWAIT_TEST(R2_access_comes_before_value_and_deadline)
{
	uint32_t *none = private_page(self->page);

	ASSERT_EQ(0, mprotect(none, self->page, PROT_NONE));
	EXPECT_EQ(-EFAULT, WAIT(none, 0, 0, U32));
	EXPECT_EQ(-EFAULT, WAIT(none, 0, 0, U32 | MEMWAIT_PRIVATE));
	ASSERT_EQ(0, munmap(none, self->page));
	EXPECT_EQ(-EFAULT, WAIT(none, 0, 0, U32));
	EXPECT_EQ(-EFAULT, WAIT(none, 0, 0, U32 | MEMWAIT_PRIVATE));
	EXPECT_EQ(0, mw_waiters(self->fd, none, U32 | MEMWAIT_PRIVATE));
}

MEMWAIT_TEST(R2_kernel_addresses_are_efault)
{
	static const uint64_t addresses[] = {
		0xffff888000000000ULL, 0xffffffff81000000ULL, 0xfffffffffffffff8ULL,
		0x8000000000000000ULL, 0x00007ffffffff000ULL,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(addresses); i++) {
		void *word = (void *)(uintptr_t)addresses[i];

		if ((uintptr_t)word != addresses[i])
			continue;	/* a 32-bit program cannot express this address */
		EXPECT_EQ(-EFAULT, WAIT(word, 0, 0, U32));
		EXPECT_EQ(-EFAULT, WAIT(word, 0, 0, U32 | MEMWAIT_PRIVATE));
	}
}

MEMWAIT_TEST(R2_value_comes_before_a_deadline_in_the_past)
{
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, WAIT(self->word, 1, 0, U32));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, WAIT(self->word, 0, 0, U32));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, WAIT(self->word, 1, now_ns(CLOCK_MONOTONIC) - 1, U32));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, WAIT(self->word, 0, now_ns(CLOCK_MONOTONIC) - 1, U32));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, WAIT(self->word, 0, 1, U32 | MEMWAIT_CLOCK_REALTIME));
}

MEMWAIT_TEST(R3_compares_exactly_the_bits_of_the_size)
{
	uint64_t *word = (uint64_t *)self->word, value, mask;
	size_t i;
	int bit;

	*word = 0x8182838485868788ULL;
	for (i = 0; i < 4; i++) {
		mask = ~0ULL >> (64 - (8 << i));
		value = *word & mask;
		EXPECT_EQ(MEMWAIT_TIMED_OUT, WAIT(word, value, 0, sizes[i]));
		/* The upper bits of the expected value are ignored. */
		EXPECT_EQ(MEMWAIT_TIMED_OUT, WAIT(word, value | ~mask, 0, sizes[i]));
		for (bit = 0; bit < 8 << i; bit++)
			EXPECT_EQ(MEMWAIT_NOT_EQUAL, WAIT(word, value ^ 1ULL << bit, 0, sizes[i]));
	}
}

MEMWAIT_TEST(R3_misaligned_addresses_are_einval)
{
	size_t i, offset;

	for (i = 0; i < 4; i++) {
		for (offset = 0; offset < 8; offset++) {
			char *addr = (char *)self->word + offset;
			bool aligned = offset % (1 << i) == 0;

			EXPECT_EQ(aligned ? MEMWAIT_TIMED_OUT : -EINVAL,
				  WAIT(addr, 0, 0, sizes[i]));
			EXPECT_EQ(aligned ? 0 : -EINVAL, mw_notify(self->fd, addr, 1, sizes[i]));
			EXPECT_EQ(aligned ? 0 : -EINVAL, mw_notify(self->fd, addr, 0, sizes[i]));
		}
	}
}

MEMWAIT_TEST(R3_words_at_the_end_of_a_page)
{
	char *end = (char *)self->word + self->page;
	size_t i;

	for (i = 0; i < 4; i++)
		EXPECT_EQ(MEMWAIT_TIMED_OUT, WAIT(end - (1 << i), 0, in_ms(1), sizes[i]));
}

MEMWAIT_TEST(R4_timeouts_are_never_early)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	int i;

	for (i = 0; i < 20; i++) {
		clockid_t clock = clocks[i % 2];
		uint32_t flags = U32 | (i % 2 ? MEMWAIT_CLOCK_REALTIME : 0);
		uint64_t deadline = now_ns(clock) + i * 500000ULL;

		EXPECT_EQ(MEMWAIT_TIMED_OUT, WAIT(self->word, 0, deadline, flags));
		EXPECT_LE(deadline, now_ns(clock));
	}
}

/* The deadlines are so close together that the kernel might expire them together. */
#define SLEEPERS	32
#define APART_NS	50000

struct sleeper {
	struct waiter waiter;
	uint64_t end;
};

static void *sleep_and_look(void *arg)
{
	struct sleeper *s = arg;

	waiter_main(&s->waiter);
	s->end = now_ns(CLOCK_MONOTONIC);
	return NULL;
}

MEMWAIT_TEST(R4_threads_deadlines_close_together_are_not_early)
{
	struct sleeper s[SLEEPERS];
	uint64_t first;
	int round, i;

	for (round = 0; round < 2; round++) {
		first = in_ms(100);
		for (i = 0; i < SLEEPERS; i++) {
			s[i].waiter = THREAD(self->shared, first + i * APART_NS);
			ASSERT_EQ(0, pthread_create(&s[i].waiter.thread, NULL, sleep_and_look,
						    &s[i]));
		}
		for (i = 0; i < SLEEPERS; i++) {
			EXPECT_EQ(MEMWAIT_TIMED_OUT, waiter_join(&s[i].waiter));
			EXPECT_LE(s[i].waiter.deadline, s[i].end);
		}
	}
}

MEMWAIT_TEST(R4_far_deadlines_do_not_expire)
{
	static const uint64_t deadlines[] = {
		MEMWAIT_FOREVER, MEMWAIT_FOREVER - 1, 1ULL << 63, (1ULL << 63) - 1,
		(1ULL << 63) - 2, 1ULL << 62,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(deadlines); i++) {
		struct waiter w = THREAD(self->word, deadlines[i]);

		w.flags |= i % 2 ? MEMWAIT_CLOCK_REALTIME : 0;
		waiter_start(&w);
		await_asleep(w.tid);
		EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	}
}

static int step_realtime(int64_t seconds)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += seconds;
	return clock_settime(CLOCK_REALTIME, &ts);
}

MEMWAIT_TEST(R4_realtime_deadlines_follow_the_clock)
{
	struct waiter realtime = THREAD(self->word, now_ns(CLOCK_REALTIME) + 3600 * NSEC_PER_SEC);
	struct waiter monotonic = THREAD(self->word + 1, in_ms(HOUR));

	realtime.flags |= MEMWAIT_CLOCK_REALTIME;
	waiter_start(&realtime);
	waiter_start(&monotonic);
	if (step_realtime(7200)) {
		mw_notify(self->fd, self->word, 1, U32);
		mw_notify(self->fd, self->word + 1, 1, U32);
		SKIP(return, "the clock cannot be set");
	}
	EXPECT_EQ(MEMWAIT_TIMED_OUT, waiter_join(&realtime));
	EXPECT_EQ(0, step_realtime(-7200));
	EXPECT_EQ(1, mw_notify(self->fd, self->word + 1, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&monotonic));
}

MEMWAIT_TEST(R4_deadlines_use_the_time_namespace)
{
	static const long offsets[] = { 100000, -3 };
	size_t i;

	for (i = 0; i < 2; i++) {
		pid_t pid = fork_child();

		if (!pid) {
			char text[64];
			int n = snprintf(text, sizeof(text), "monotonic %ld 0", offsets[i]);
			int fd;

			if (unshare(CLONE_NEWTIME))
				_exit(4);
			fd = open("/proc/self/timens_offsets", O_WRONLY);
			if (fd < 0 || write(fd, text, n) != n)
				_exit(4);
			close(fd);
			pid = fork_child();
			if (!pid) {
				uint64_t start = now_ns(CLOCK_MONOTONIC);
				uint64_t deadline = start + 50 * NSEC_PER_MSEC;
				int ret = WAIT(self->word, 0, deadline, U32);
				uint64_t end = now_ns(CLOCK_MONOTONIC);

				/*
				 * With a wrong offset the wait would end immediately or last a day.
				 */
				_exit(ret != MEMWAIT_TIMED_OUT ? 1 : end < deadline ? 2 : 0);
			}
			_exit(child_status(pid));
		}
		pid = child_status(pid);
		if (pid == 4)
			SKIP(return, "no time namespaces");
		EXPECT_EQ(0, pid);
	}
}

/* The wait may be the first access to the word, which must read as 0. */
#define EXPECT_NOTIFIED(word_, flags_) do {						\
	struct waiter w_ = THREAD((word_), MEMWAIT_FOREVER);				\
											\
	w_.flags = (flags_);								\
	waiter_start(&w_);								\
	EXPECT_EQ(1, mw_notify(self->fd, w_.addr, 1, w_.flags));			\
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w_));					\
} while (0)

/* The tests below prepare a word in various ways: it must read as 0 and be notifiable. */
#define EXPECT_WAITABLE(word_, flags_) do {						\
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, WAIT((word_), 1, 0, (flags_)));			\
	EXPECT_NOTIFIED((word_), (flags_));						\
} while (0)

MEMWAIT_TEST(R7_read_only_memory)
{
	EXPECT_EQ(0, mprotect(self->word, self->page, PROT_READ));
	EXPECT_WAITABLE(self->word, U32);
	EXPECT_WAITABLE(self->word, U32 | MEMWAIT_PRIVATE);
	EXPECT_EQ(0, mprotect(self->shared, self->page, PROT_READ));
	EXPECT_WAITABLE(self->shared, U32);
}

MEMWAIT_TEST(R7_untouched_pages_are_faulted_in)
{
	uint32_t *private = private_page(self->page), *shared = shared_page(self->page);

	EXPECT_EQ(MEMWAIT_TIMED_OUT, WAIT(private, 0, 0, U32));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, WAIT(shared, 0, 0, U32));
	EXPECT_NOTIFIED(private_page(self->page), U32);
	private = private_page(self->page);
	ASSERT_EQ(0, mprotect(private, self->page, PROT_READ));
	EXPECT_NOTIFIED(private, U32);
}

MEMWAIT_TEST(R7_pages_that_were_dropped_come_back)
{
	int i;

	for (i = 0; i < 50; i++) {
		EXPECT_EQ(0, madvise(self->word, self->page, MADV_DONTNEED));
		EXPECT_EQ(MEMWAIT_TIMED_OUT,
			  WAIT(self->word, 0, now_ns(CLOCK_MONOTONIC) + 20000, U32));
	}
	*self->shared = 0;
	ASSERT_EQ(0, madvise(self->shared, self->page, MADV_DONTNEED));
	EXPECT_NOTIFIED(self->shared, U32);
}

/*
 * The load that the kernel makes under the queue's lock faults, and the wait starts again. This
 * ends when no more pages are dropped.
 */
MEMWAIT_TEST(R7_pages_that_vanish_repeatedly)
{
	struct dropper d = { .page = self->word, .size = self->page };
	int i;

	ASSERT_EQ(0, pthread_create(&d.thread, NULL, drop_pages, &d));
	for (i = 0; i < SOME_OF(1000); i++) {
		__atomic_store_n(&d.times, i % 64, __ATOMIC_RELAXED);
		EXPECT_EQ(MEMWAIT_TIMED_OUT,
			  WAIT(self->word, 0, now_ns(CLOCK_MONOTONIC) + 300000, U32));
	}
	dropper_stop(&d);
}

MEMWAIT_TEST(R7_copy_on_write_after_fork)
{
	struct waiter w = THREAD(self->word, MEMWAIT_FOREVER);
	pid_t pid;

	*self->word = 0;
	pid = run_in_child(pause());
	waiter_start(&w);
	self->word[1] = 1;	/* copy on write: the parent's page now differs from the child's */
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	kill_child(pid);
}

MEMWAIT_TEST(R7_huge_pages)
{
	const size_t huge = 2 << 20;
	char *area = private_page(2 * huge);
	uint32_t *word = (uint32_t *)(((uintptr_t)area + huge - 1) & ~(huge - 1));

	madvise(word, huge, MADV_HUGEPAGE);
	*word = 0;
	EXPECT_WAITABLE(word, U32);
	EXPECT_WAITABLE(word + huge / 8, U32 | MEMWAIT_PRIVATE);
	munmap(area, 2 * huge);
}

MEMWAIT_TEST(R7_userfaultfd)
{
	uint32_t *word = private_page(self->page);
	int uffd = hold_page(word, self->page);
	struct waiter w = THREAD(word, MEMWAIT_FOREVER);

	if (uffd < 0)
		SKIP(return, "userfaultfd: %s", strerror(-uffd));
	ASSERT_EQ(0, pthread_create(&w.thread, NULL, waiter_main, &w));
	await_fault(uffd);
	EXPECT_EQ(0, bring_page(uffd, word, self->page));
	await_waiters(self->fd, word, U32, 1);
	EXPECT_EQ(1, mw_notify(self->fd, word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	close(uffd);
}

MEMWAIT_TEST(R7_file_pages_that_are_not_mapped_yet)
{
	char path[] = "/tmp/memwait-XXXXXX";
	int file = mkstemp(path);
	uint32_t *word;

	ASSERT_LE(0, file);
	unlink(path);
	ASSERT_EQ(0, ftruncate(file, self->page));
	word = map_shared(file, self->page);
	*word = 7;
	/* The page is at least removed from the page table, so that the load of the wait faults. */
	EXPECT_EQ(0, madvise(word, self->page, MADV_DONTNEED));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, WAIT(word, 7, 0, U32));
	close(file);
}

MEMWAIT_TEST(R6_a_handled_signal_interrupts)
{
	struct waiter w = THREAD(self->word, MEMWAIT_FOREVER);

	handle(SIGUSR1, 0);
	waiter_start(&w);
	interrupt_thread(w.thread, w.tid);
	EXPECT_EQ(-EINTR, waiter_join(&w));
	EXPECT_EQ(0, mw_waiters(self->fd, self->word, U32));

	w = THREAD(self->word, in_ms(3600000));
	waiter_start(&w);
	interrupt_thread(w.thread, w.tid);
	EXPECT_EQ(-EINTR, waiter_join(&w));
}

MEMWAIT_TEST(R6_sa_restart_continues_the_wait)
{
	struct waiter w = THREAD(self->word, MEMWAIT_FOREVER);
	int i;

	handle(SIGUSR1, SA_RESTART);
	waiter_start(&w);
	for (i = 0; i < 5; i++) {
		interrupt_thread(w.thread, w.tid);
		await_waiters(self->fd, self->word, U32, 1);
	}
	EXPECT_EQ(5, handled);
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

MEMWAIT_TEST(R6_sa_restart_keeps_the_deadline)
{
	uint64_t ms = 150;
	struct waiter w;

	handle(SIGUSR1, SA_RESTART);
	do {
		w = THREAD(self->word, in_ms(ms *= 2));
		waiter_start(&w);
		/* If each restart began a new timeout, the wait would not end. */
		interrupt_until(w.thread, &w.done);
		EXPECT_EQ(MEMWAIT_TIMED_OUT, waiter_join(&w));
		EXPECT_LE(w.deadline, now_ns(CLOCK_MONOTONIC));
	} while (!handled);
}

MEMWAIT_TEST(R6_sa_restart_compares_again)
{
	struct waiter w = THREAD(self->word, MEMWAIT_FOREVER);

	handle(SIGUSR1, SA_RESTART);
	waiter_start(&w);
	*self->word = 1;
	interrupt_thread(w.thread, w.tid);
	if (variant->compares_once) {
		EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	}
	EXPECT_EQ(variant->compares_once ? MEMWAIT_OK : MEMWAIT_NOT_EQUAL, waiter_join(&w));
}

MEMWAIT_TEST(R6_stop_and_continue_do_not_end_a_wait)
{
	pid_t pid = run_in_child(WAIT(self->shared, 0, MEMWAIT_FOREVER, U32));

	await_waiters(self->fd, self->shared, U32, 1);
	kill(pid, SIGSTOP);
	ASSERT_EQ(pid, waitpid(pid, NULL, WUNTRACED));
	/* On PREEMPT_RT a stopped thread may still be waiting for a kernel lock. */
	await_state(pid, 'T');
	kill(pid, SIGCONT);
	await_waiters(self->fd, self->shared, U32, 1);
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EQ(0, child_status(pid));
}

MEMWAIT_TEST(R6_ignored_signals_do_not_end_a_wait)
{
	struct waiter w = THREAD(self->word, MEMWAIT_FOREVER);
	int i;

	signal(SIGUSR1, SIG_IGN);
	waiter_start(&w);
	await_asleep(w.tid);
	for (i = 0; i < 100; i++)
		pthread_kill(w.thread, SIGUSR1);
	EXPECT_EQ(1, mw_waiters(self->fd, self->word, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
}

MEMWAIT_TEST(R6_a_killed_thread_leaves_immediately)
{
	pid_t pid = run_in_child(WAIT(self->shared, 0, MEMWAIT_FOREVER, U32));

	await_waiters(self->fd, self->shared, U32, 1);
	EXPECT_EQ(128 + SIGKILL, kill_child(pid));
	EXPECT_EQ(0, mw_waiters(self->fd, self->shared, U32));
	EXPECT_EQ(0, mw_notify(self->fd, self->shared, 1, U32));
}

MEMWAIT_TEST(R6_a_killed_thread_leaves_from_the_middle_of_the_queue)
{
	struct waiter before = THREAD(self->shared, MEMWAIT_FOREVER), after = before;
	pid_t pid;

	waiter_start(&before);
	pid = run_in_child(WAIT(self->shared, 0, MEMWAIT_FOREVER, U32));
	await_waiters(self->fd, self->shared, U32, 2);
	waiter_start(&after);
	EXPECT_EQ(128 + SIGKILL, kill_child(pid));
	EXPECT_EQ(2, mw_notify(self->fd, self->shared, MEMWAIT_ALL, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&before));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&after));
}

/* Forks a process that exits with 10 times the number of handled signals, plus the outcome. */
static pid_t fork_victim(struct waiter w)
{
	pid_t pid = fork_child();

	if (!pid) {
		become_victim();
		waiter_main(&w);
		_exit(10 * handled + w.result);
	}
	await_waiters(w.fd, w.addr, U32, 1);
	return pid;
}

MEMWAIT_TEST(R6_a_notify_for_a_dying_thread_is_passed_on)
{
	/* SIGKILL, a signal that kills by default, and two signals that dump core. */
	static const int signals[] = { SIGKILL, SIGTERM, SIGQUIT, SIGSEGV };
	cpu_set_t cpus;
	size_t i;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	sched_getaffinity(0, sizeof(cpus), &cpus);
	for (i = 0; i < ARRAY_SIZE(signals); i++) {
		struct waiter next = THREAD(self->shared, MEMWAIT_FOREVER);
		pid_t victim = fork_victim(THREAD(self->shared, MEMWAIT_FOREVER));

		waiter_start(&next);
		EXPECT_EQ(1, signal_and_notify(self->fd, self->shared, victim, signals[i]));
		EXPECT_EQ(128 + signals[i], child_status(victim));
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&next));
		EXPECT_EQ(0, mw_waiters(self->fd, self->shared, U32));
	}
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

MEMWAIT_TEST(R6_a_notify_for_a_dying_thread_is_passed_on_to_an_async_wait)
{
	pid_t victim;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	victim = fork_victim(THREAD(self->shared, MEMWAIT_FOREVER));
	EXPECT_EQ(MEMWAIT_PENDING, mw_arm(self->fd, self->shared, 9));
	EXPECT_EQ(1, signal_and_notify(self->fd, self->shared, victim, SIGKILL));
	EXPECT_EQ(128 + SIGKILL, child_status(victim));
	EXPECT_COMPLETION(self->fd, 9, MEMWAIT_OK);
}

MEMWAIT_TEST(R6_a_counted_notify_takes_precedence_over_a_handled_signal)
{
	struct waiter next = THREAD(self->shared, MEMWAIT_FOREVER);
	pid_t victim;

	if (geteuid())
		SKIP(return, "needs root for SCHED_FIFO");
	/* The handler runs after the wait has returned OK. By default, the signal dumps core. */
	handle(SIGQUIT, 0);
	victim = fork_victim(THREAD(self->shared, MEMWAIT_FOREVER));
	waiter_start(&next);
	EXPECT_EQ(1, signal_and_notify(self->fd, self->shared, victim, SIGQUIT));
	EXPECT_EQ(10 + MEMWAIT_OK, child_status(victim));
	EXPECT_EQ(1, mw_waiters(self->fd, self->shared, U32));
	EXPECT_EQ(1, mw_notify(self->fd, self->shared, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&next));
}

TEST_HARNESS_MAIN
