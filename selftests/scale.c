// SPDX-License-Identifier: GPL-2.0
/*
 * Does the cost of an operation grow with the number of waits on other words? Arms, notifies and
 * reaps async waits on words of its own while 0, 1, 10, ... others are pending, and prints time per
 * operation, as a ratio to none pending too, and kernel memory per pending wait. The tests check
 * that everything is counted right, not how long it takes.
 *
 * MEMWAIT_SCALE sets the greatest number of others: 10,000 by default; 1,000,000 takes about half
 * a minute in a VM and 250 MB.
 */
#include "memwait_fixture.h"

#define OWN	512		/* waits measured at a time */
#define ROUNDS	31		/* or 5 where the kernel checks itself, and is slow */
#define BATCH	256
#define READ	64

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The first round warms up and is thrown away. */
static uint64_t median(uint64_t *times, int rounds)
{
	qsort(times + 1, rounds - 1, sizeof(*times), compare);
	return times[1 + (rounds - 1) / 2];
}

static void arm_all(struct __test_metadata *_metadata, int fd, uint32_t *words, size_t from,
		    size_t n, bool timed)
{
	static struct memwait_async entries[BATCH];
	struct memwait_wait_async arg = { .waits = (uintptr_t)entries };
	uint64_t deadline = in_ms(36000000);
	size_t i;

	memset(entries, 0, sizeof(entries));
	while (n) {
		arg.count = n < BATCH ? n : BATCH;
		for (i = 0; i < arg.count; i++, from++) {
			entries[i].wait.addr = (uintptr_t)&words[from];
			entries[i].wait.deadline = timed ? deadline + from * 7919 % 1000003 :
							   MEMWAIT_FOREVER;
			entries[i].wait.flags = U32;
			entries[i].user_data = from;
		}
		ASSERT_EQ((int)arg.count, xioctl(fd, MEMWAIT_IOC_WAIT_ASYNC, &arg));
		n -= arg.count;
	}
}

static void notify_all(struct __test_metadata *_metadata, int fd, uint32_t *words, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		ASSERT_EQ(1, mw_notify(fd, &words[i], 1, U32));
}

/* In the order of the notifies, each once. */
static void reap_all(struct __test_metadata *_metadata, int fd, size_t from, size_t n)
{
	struct memwait_completion done[READ];
	int got, i;

	while (n) {
		got = mw_read(fd, done, n < READ ? n : READ);
		ASSERT_LT(0, got);
		for (i = 0; i < got; i++)
			ASSERT_EQ(from++, done[i].user_data);
		n -= got;
	}
}

/* Of the whole machine, in bytes: slabs, and the hash table, which is large. */
static long kernel_memory(void)
{
	return (read_number_of("/proc/meminfo", "Slab") +
		read_number_of("/proc/meminfo", "VmallocUsed")) * 1024;
}

static void measure(struct __test_metadata *_metadata, int fd, bool shared, bool timed)
{
	const char *text = getenv("MEMWAIT_SCALE");
	size_t most = text ? strtoul(text, NULL, 0) : 10000, pending = 0, others, bytes;
	int other = memwait_open(O_NONBLOCK), rounds = getenv("MEMWAIT_LOADS") ? 5 : ROUNDS, i;
	uint64_t arm[ROUNDS], notify[ROUNDS], reap[ROUNDS], t[4], sum, first = 0;
	long memory = kernel_memory();
	uint32_t *words, *own;

	bytes = (most + OWN) * sizeof(uint32_t);
	words = shared ? shared_page(bytes) : private_page(bytes);
	ASSERT_NE(NULL, words);
	memset(words, 0, bytes);
	own = words + most;

	TH_LOG("%s words, %s deadline; ns per operation, batches of %d",
	       shared ? "shared" : "private", timed ? "with" : "without", BATCH);
	TH_LOG("%10s %8s %8s %8s %8s", "others", "arm", "notify", "reap", "ratio");
	for (others = 0; others <= most; others = others ? others * 10 : 1) {
		arm_all(_metadata, other, words, pending, others - pending, timed);
		pending = others;
		for (i = 0; i < rounds; i++) {
			t[0] = now_ns(CLOCK_MONOTONIC);
			arm_all(_metadata, fd, own, 0, OWN, timed);
			t[1] = now_ns(CLOCK_MONOTONIC);
			notify_all(_metadata, fd, own, OWN);
			t[2] = now_ns(CLOCK_MONOTONIC);
			reap_all(_metadata, fd, 0, OWN);
			t[3] = now_ns(CLOCK_MONOTONIC);
			arm[i] = (t[1] - t[0]) / OWN;
			notify[i] = (t[2] - t[1]) / OWN;
			reap[i] = (t[3] - t[2]) / OWN;
		}
		sum = median(arm, rounds) + median(notify, rounds) + median(reap, rounds);
		if (!others)
			first = sum;
		TH_LOG("%10zu %8llu %8llu %8llu %8.2f", others,
		       (unsigned long long)median(arm, rounds),
		       (unsigned long long)median(notify, rounds),
		       (unsigned long long)median(reap, rounds), (double)sum / first);
	}
	TH_LOG("kernel memory (slabs and vmalloc): %.0f bytes per pending wait",
	       (double)(kernel_memory() - memory) / pending);

	/* One by one, and every one came once. */
	t[0] = now_ns(CLOCK_MONOTONIC);
	notify_all(_metadata, fd, words, pending);
	t[1] = now_ns(CLOCK_MONOTONIC);
	reap_all(_metadata, other, 0, pending);
	t[2] = now_ns(CLOCK_MONOTONIC);
	TH_LOG("all of them: notify %llu ns, reap %llu ns",
	       (unsigned long long)(t[1] - t[0]) / pending,
	       (unsigned long long)(t[2] - t[1]) / pending);
	EXPECT_FALSE(mw_readable(other));
	close(other);
	munmap(words, bytes);
}

TEST_F_TIMEOUT(memwait, R14_private_words, 3600)
{
	measure(_metadata, self->fd, false, false);
}

TEST_F_TIMEOUT(memwait, R14_private_words_with_deadlines, 3600)
{
	measure(_metadata, self->fd, false, true);
}

TEST_F_TIMEOUT(memwait, R14_shared_words, 3600)
{
	measure(_metadata, self->fd, true, false);
}

TEST_F_TIMEOUT(memwait, R14_shared_words_with_deadlines, 3600)
{
	measure(_metadata, self->fd, true, true);
}

TEST_HARNESS_MAIN
