// SPDX-License-Identifier: GPL-2.0
/* Blocking waits: the comparison, sizes, deadlines, every kind of page. */
#include "../memwait_fixture.h"
#include <linux/userfaultfd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY	1
#endif

static const uint32_t sizes[] = {
	MEMWAIT_SIZE_U8, MEMWAIT_SIZE_U16, MEMWAIT_SIZE_U32, MEMWAIT_SIZE_U64,
};

MEMWAIT_TEST(R1_no_wake_up_is_lost)
{
	const uint32_t rounds = getenv("MEMWAIT_LOADS") ? 2000 : 20000;
	struct {
		uint32_t ping, pong, oks, woken;
	} *s = (void *)self->shared;
	uint32_t i, value, oks = 0, *ping = &s->ping, *pong = &s->pong;
	int ret, notified = 0;
	pid_t pid;

	/* Two processes, a word each; nobody waits with a deadline that could hide a lost one. */
	pid = fork_child();
	if (!pid) {
		for (i = 1; i <= rounds; i++) {
			while ((value = __atomic_load_n(ping, __ATOMIC_ACQUIRE)) != i) {
				ret = mw_wait(self->fd, ping, value, MEMWAIT_FOREVER, U32);
				if (ret < 0)
					_exit(1);
				s->oks += ret == MEMWAIT_OK;
			}
			__atomic_store_n(pong, i, __ATOMIC_RELEASE);
			s->woken += mw_notify(self->fd, pong, 1, U32);
		}
		_exit(0);
	}
	for (i = 1; i <= rounds; i++) {
		__atomic_store_n(ping, i, __ATOMIC_RELEASE);
		notified += mw_notify(self->fd, ping, 1, U32);
		while ((value = __atomic_load_n(pong, __ATOMIC_ACQUIRE)) != i) {
			ret = mw_wait(self->fd, pong, value, MEMWAIT_FOREVER, U32);
			ASSERT_LE(0, ret);
			oks += ret == MEMWAIT_OK;
		}
	}
	EXPECT_EQ(0, child_status(pid));
	/* R5: each side's OKs are the other side's notifies. */
	EXPECT_EQ((uint32_t)notified, s->oks);
	EXPECT_EQ(s->woken, oks);
}

struct racer {
	pthread_t thread;
	int fd;
	uint32_t *word;
	int *stop;
	long oks, notified, timed_out, other;
	int notifies;
};

static void *race(void *arg)
{
	struct racer *r = arg;

	while (!__atomic_load_n(r->stop, __ATOMIC_RELAXED)) {
		int ret;

		if (r->notifies) {
			r->notified += mw_notify(r->fd, r->word, 1 + r->notified % 3, U32);
			continue;
		}
		ret = mw_wait(r->fd, r->word, 0, soon(r->oks + r->timed_out), U32);
		if (ret == MEMWAIT_OK)
			add_one(&r->oks);
		else if (ret == MEMWAIT_TIMED_OUT)
			add_one(&r->timed_out);
		else
			r->other++;
	}
	return NULL;
}

MEMWAIT_TEST(R5_notify_and_deadline_race_for_one_waiter)
{
	struct racer racers[6] = { 0 };
	uint64_t end = in_ms(2000);
	long oks = 0, notified = 0;
	int stop = 0;
	size_t i;

	for (i = 0; i < 6; i++) {
		racers[i] = (struct racer) { .fd = self->fd, .word = self->word, .stop = &stop,
					     .notifies = i < 2 };
		ASSERT_EQ(0, pthread_create(&racers[i].thread, NULL, race, &racers[i]));
	}
	while (now_ns(CLOCK_MONOTONIC) < end)
		usleep(10000);
	for (i = 2; i < 6; i++) {
		await_counted(&racers[i].oks);
		await_counted(&racers[i].timed_out);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 6; i++) {
		pthread_join(racers[i].thread, NULL);
		oks += racers[i].oks;
		notified += racers[i].notified;
		EXPECT_EQ(0, racers[i].other);
	}
	EXPECT_EQ(notified, oks);
}

MEMWAIT_TEST(R2_arguments_come_before_access)
{
	EXPECT_EQ(-EINVAL, mw_wait(self->fd, (void *)1, 0, 0, U32));
	EXPECT_EQ(-EINVAL, mw_wait(self->fd, (void *)-3UL, 0, 0, U32));
	EXPECT_EQ(-EFAULT, mw_wait(self->fd, NULL, 0, 0, U32));
}

MEMWAIT_TEST(R2_access_comes_before_value_and_deadline)
{
	uint32_t *none = private_page(self->page);

	ASSERT_EQ(0, mprotect(none, self->page, PROT_NONE));
	EXPECT_EQ(-EFAULT, mw_wait(self->fd, none, 0, 0, U32));
	EXPECT_EQ(-EFAULT, mw_wait(self->fd, none, 0, 0, U32 | MEMWAIT_PRIVATE));
	ASSERT_EQ(0, munmap(none, self->page));
	EXPECT_EQ(-EFAULT, mw_wait(self->fd, none, 0, 0, U32));
	EXPECT_EQ(-EFAULT, mw_wait(self->fd, none, 0, 0, U32 | MEMWAIT_PRIVATE));
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
		struct memwait_wait arg = { .addr = addresses[i], .flags = U32 };

		EXPECT_EQ(-EFAULT, xioctl(self->fd, MEMWAIT_IOC_WAIT, &arg));
		arg.flags |= MEMWAIT_PRIVATE;
		EXPECT_EQ(-EFAULT, xioctl(self->fd, MEMWAIT_IOC_WAIT, &arg));
	}
}

MEMWAIT_TEST(R2_value_comes_before_a_deadline_in_the_past)
{
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait(self->fd, self->word, 1, 0, U32));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, self->word, 0, 0, U32));
	EXPECT_EQ(MEMWAIT_NOT_EQUAL,
		  mw_wait(self->fd, self->word, 1, now_ns(CLOCK_MONOTONIC) - 1, U32));
	EXPECT_EQ(MEMWAIT_TIMED_OUT,
		  mw_wait(self->fd, self->word, 0, now_ns(CLOCK_MONOTONIC) - 1, U32));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, self->word, 0, 1,
					     U32 | MEMWAIT_CLOCK_REALTIME));
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
		EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, word, value, 0, sizes[i]));
		/* The upper bits of expected are ignored. */
		EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, word, value | ~mask, 0, sizes[i]));
		for (bit = 0; bit < 8 << i; bit++)
			EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait(self->fd, word, value ^ 1ULL << bit, 0,
							     sizes[i]));
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
				  mw_wait(self->fd, addr, 0, 0, sizes[i]));
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
		EXPECT_EQ(MEMWAIT_TIMED_OUT,
			  mw_wait(self->fd, end - (1 << i), 0, in_ms(1), sizes[i]));
}

MEMWAIT_TEST(R3_waiters_of_all_sizes_share_the_queue_of_an_address)
{
	struct waiter w[4];
	size_t i;

	for (i = 0; i < 4; i++) {
		w[i] = (struct waiter) { .fd = self->fd, .addr = self->word,
					 .deadline = MEMWAIT_FOREVER, .flags = sizes[i] };
		waiter_start(&w[i]);
	}
	EXPECT_EQ(4, mw_waiters(self->fd, self->word, MEMWAIT_SIZE_U8));
	EXPECT_EQ(4, mw_notify(self->fd, self->word, MEMWAIT_ALL, MEMWAIT_SIZE_U64));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(MEMWAIT_OK, waiter_join(&w[i]));
}

MEMWAIT_TEST(R4_time_outs_are_never_early)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	int i;

	for (i = 0; i < 40; i++) {
		clockid_t clock = clocks[i % 2];
		uint32_t flags = U32 | (i % 2 ? MEMWAIT_CLOCK_REALTIME : 0);
		uint64_t deadline = now_ns(clock) + i * 500000ULL;

		EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, self->word, 0, deadline, flags));
		EXPECT_LE(deadline, now_ns(clock));
	}
}

/* Deadlines that lie so close together that one might take them all at once. */
#define SLEEPERS	32
#define APART_NS	50000

struct sleeper {
	pthread_t thread;
	int fd;
	uint32_t *word;
	uint64_t deadline, end;
	int result;
};

static void *sleep_until(void *arg)
{
	struct sleeper *s = arg;

	s->result = mw_wait(s->fd, s->word, 0, s->deadline, U32);
	s->end = now_ns(CLOCK_MONOTONIC);
	return NULL;
}

MEMWAIT_TEST(R4_threads_deadlines_close_together_are_not_early)
{
	struct sleeper s[SLEEPERS];
	uint64_t first;
	int round, i;

	for (round = 0; round < 5; round++) {
		first = in_ms(100);
		for (i = 0; i < SLEEPERS; i++) {
			s[i] = (struct sleeper) { .fd = self->fd, .word = self->shared,
						  .deadline = first + i * APART_NS };
			ASSERT_EQ(0, pthread_create(&s[i].thread, NULL, sleep_until, &s[i]));
		}
		for (i = 0; i < SLEEPERS; i++) {
			pthread_join(s[i].thread, NULL);
			EXPECT_EQ(MEMWAIT_TIMED_OUT, s[i].result);
			EXPECT_LE(s[i].deadline, s[i].end);
		}
	}
}

MEMWAIT_TEST(R4_far_deadlines_are_never)
{
	static const uint64_t deadlines[] = {
		MEMWAIT_FOREVER, MEMWAIT_FOREVER - 1, 1ULL << 63, (1ULL << 63) - 1,
		(1ULL << 63) - 2, 1ULL << 62,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(deadlines); i++) {
		struct waiter w = { .fd = self->fd, .addr = self->word, .deadline = deadlines[i],
				    .flags = U32 | (i % 2 ? MEMWAIT_CLOCK_REALTIME : 0) };

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
	struct waiter realtime = { .fd = self->fd, .addr = self->word, .flags = U32 |
				   MEMWAIT_CLOCK_REALTIME };
	struct waiter monotonic = { .fd = self->fd, .addr = self->word + 1, .flags = U32 };

	realtime.deadline = now_ns(CLOCK_REALTIME) + 3600 * NSEC_PER_SEC;
	monotonic.deadline = now_ns(CLOCK_MONOTONIC) + 3600 * NSEC_PER_SEC;
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

MEMWAIT_TEST(R4_deadlines_are_of_the_time_namespace)
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
				int ret = mw_wait(self->fd, self->word, 0, deadline, U32);
				uint64_t end = now_ns(CLOCK_MONOTONIC);

				/* Wrong by the offset: at once, or not for a day. */
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

/* Waits on a word that is made ready by others: it must read as 0 and be notifiable. */
#define EXPECT_WAITABLE(word_, flags_) do {						\
	struct waiter w_ = { .fd = self->fd, .addr = (word_), .deadline = MEMWAIT_FOREVER,	\
			     .flags = (flags_) };					\
	EXPECT_EQ(MEMWAIT_NOT_EQUAL, mw_wait(self->fd, (word_), 1, 0, (flags_)));	\
	waiter_start(&w_);								\
	EXPECT_EQ(1, mw_notify(self->fd, (word_), 1, (flags_)));			\
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w_));					\
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

	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, private, 0, 0, U32));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, shared, 0, 0, U32));
}

MEMWAIT_TEST(R7_pages_that_were_dropped_come_back)
{
	int i;

	for (i = 0; i < 200; i++) {
		EXPECT_EQ(0, madvise(self->word, self->page, MADV_DONTNEED));
		EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, self->word, 0,
						     now_ns(CLOCK_MONOTONIC) + 20000, U32));
	}
}

MEMWAIT_TEST(R7_pages_that_vanish_all_the_time)
{
	struct dropper d = { .page = self->word, .size = self->page, .times = INT_MAX };
	int i;

	/* The load under the queue's lock faults now and then, and everything starts anew. */
	ASSERT_EQ(0, pthread_create(&d.thread, NULL, drop_pages, &d));
	for (i = 0; i < 3000; i++)
		EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, self->word, 0,
						     now_ns(CLOCK_MONOTONIC) + 300000, U32));
	dropper_stop(&d);
}

MEMWAIT_TEST(R7_copy_on_write_after_fork)
{
	struct waiter w = { .fd = self->fd, .addr = self->word, .deadline = MEMWAIT_FOREVER,
			    .flags = U32 };
	pid_t pid;

	*self->word = 0;
	pid = run_in_child(pause());
	waiter_start(&w);
	self->word[1] = 1;	/* the parent's page moves away from the child's */
	EXPECT_EQ(1, mw_notify(self->fd, self->word, 1, U32));
	EXPECT_EQ(MEMWAIT_OK, waiter_join(&w));
	kill_child(pid);
}

MEMWAIT_TEST(R7_huge_pages)
{
	const size_t huge = 2 << 20;
	char *area = private_page(2 * huge);
	uint32_t *word = (uint32_t *)(((uintptr_t)area + huge - 1) & ~(huge - 1));

	ASSERT_NE(NULL, area);
	madvise(word, huge, MADV_HUGEPAGE);
	*word = 0;
	EXPECT_WAITABLE(word, U32);
	EXPECT_WAITABLE(word + huge / 8, U32 | MEMWAIT_PRIVATE);
	munmap(area, 2 * huge);
}

static void *serve_fault(void *arg)
{
	int uffd = *(int *)arg;
	struct uffd_msg msg;
	struct uffdio_zeropage zero;

	if (read(uffd, &msg, sizeof(msg)) != sizeof(msg))
		return NULL;
	zero.range.start = msg.arg.pagefault.address & ~(sysconf(_SC_PAGESIZE) - 1ULL);
	zero.range.len = sysconf(_SC_PAGESIZE);
	zero.mode = 0;
	ioctl(uffd, UFFDIO_ZEROPAGE, &zero);
	return NULL;
}

MEMWAIT_TEST(R7_userfaultfd)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	uint32_t *word = private_page(self->page);
	pthread_t server;
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (uffd < 0)
		SKIP(return, "userfaultfd: %s", strerror(errno));
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_API, &api));
	reg.range.start = (uintptr_t)word;
	reg.range.len = self->page;
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_REGISTER, &reg));
	ASSERT_EQ(0, pthread_create(&server, NULL, serve_fault, &uffd));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, word, 0, in_ms(1), U32));
	pthread_join(server, NULL);
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
	word = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	ASSERT_NE(MAP_FAILED, word);
	*word = 7;
	/* Out of the page table at least, so that the wait's load faults. */
	EXPECT_EQ(0, madvise(word, self->page, MADV_DONTNEED));
	EXPECT_EQ(MEMWAIT_TIMED_OUT, mw_wait(self->fd, word, 7, 0, U32));
	close(file);
}

TEST_HARNESS_MAIN
