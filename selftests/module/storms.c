// SPDX-License-Identifier: GPL-2.0
/* R5, R19: storms of notifies from every CPU, for MEMWAIT_LOAD_SECONDS. */
#include "load_test.h"

#define STORM_WORDS	64
#define STORM_BATCH	32
#define STORM_SLOTS	512
#define MOST_CPUS	64

struct storm {
	uint32_t *words;
	int stop_arming, stop_notifying;
};

struct storm_thread {
	struct storm *storm;
	pthread_t thread;
	int cpu;
	uint64_t random;
	uint64_t ids[STORM_SLOTS];	/* ids of pending waits; user_data is the slot */
	long notified, calls, armed, oks, cancelled, wrong;
};

static void *storm_notify(void *arg)
{
	struct storm_thread *t = arg;
	struct memwait_notify notifies[STORM_WORDS];
	uint32_t woken[STORM_WORDS];
	int fd = memwait_open(O_NONBLOCK), i, ret;

	bind_to(t->cpu);
	while (!__atomic_load_n(&t->storm->stop_notifying, __ATOMIC_RELAXED)) {
		uint32_t count = t->calls % 3 ? 1 : MEMWAIT_ALL;

		for (i = 0; i < STORM_WORDS; i++) {
			ret = mw_notify(fd, &t->storm->words[i], count, U32);
			if (ret < 0)
				t->wrong++;
			else
				t->notified += ret;
			notifies[i] = (struct memwait_notify) {
				.addr = (uintptr_t)&t->storm->words[STORM_WORDS - 1 - i],
				.count = count,
				.flags = U32,
			};
		}
		t->wrong += mw_notify_many(fd, notifies, STORM_WORDS, woken) != STORM_WORDS;
		for (i = 0; i < STORM_WORDS; i++)
			t->notified += woken[i];
		t->calls++;
	}
	close(fd);
	return NULL;
}

static void storm_cancel(struct storm_thread *t, int fd, uint32_t slot)
{
	int ret;

	if (!t->ids[slot])
		return;
	ret = mw_cancel(fd, t->ids[slot]);
	if (!ret) {
		t->ids[slot] = 0;
		t->cancelled++;
	} else {
		t->wrong += ret != -ENOENT;
	}
}

/* Arms a batch of waits and cancels half of them, the newest first. */
static void storm_arm(struct storm_thread *t, int fd)
{
	struct memwait_async entries[STORM_BATCH];
	uint32_t slot = next_random(&t->random);
	int i, nr = 0;

	memset(entries, 0, sizeof(entries));
	for (i = 0; i < STORM_SLOTS && nr < STORM_BATCH; i++, slot++) {
		if (t->ids[slot % STORM_SLOTS])
			continue;
		entries[nr].wait.addr = (uintptr_t)&t->storm->words[next_random(&t->random) %
								    STORM_WORDS];
		entries[nr].wait.deadline = nr % 2 ? FOREVER : in_ms(HOUR);
		entries[nr].wait.flags = U32;
		entries[nr].user_data = slot % STORM_SLOTS;
		nr++;
	}
	t->wrong += mw_batch(fd, entries, nr) != nr;
	t->armed += nr;
	for (i = 0; i < nr; i++) {
		t->wrong += entries[i].result != MEMWAIT_PENDING || !entries[i].id;
		t->ids[entries[i].user_data] = entries[i].id;
	}
	while (nr--) {
		if (next_random(&t->random) % 2)
			storm_cancel(t, fd, entries[nr].user_data);
	}
}

static void storm_read(struct storm_thread *t, int fd)
{
	struct memwait_completion done[STORM_BATCH];
	int got, i;

	do {
		got = mw_read(fd, done, STORM_BATCH);
		for (i = 0; i < got; i++) {
			if (done[i].user_data >= STORM_SLOTS || done[i].result != MEMWAIT_OK ||
			    !done[i].id || t->ids[done[i].user_data] != done[i].id) {
				t->wrong++;
				continue;
			}
			t->ids[done[i].user_data] = 0;
			t->oks++;
		}
	} while (got == STORM_BATCH);
	t->wrong += got < 0 && got != -EAGAIN;
}

static void *storm_wait(void *arg)
{
	struct storm_thread *t = arg;
	int fd = memwait_open(O_NONBLOCK), i;

	while (!__atomic_load_n(&t->storm->stop_arming, __ATOMIC_RELAXED)) {
		storm_arm(t, fd);
		storm_read(t, fd);
	}
	/* If a wait cannot be cancelled, it has ended and has a completion. */
	for (i = 0; i < STORM_SLOTS; i++)
		storm_cancel(t, fd, i);
	storm_read(t, fd);
	for (i = 0; i < STORM_SLOTS; i++)
		t->wrong += !!t->ids[i];
	close(fd);
	return NULL;
}

/* Lists the CPUs on which this process may run. */
static int list_cpus(int *cpus)
{
	cpu_set_t set;
	int cpu, nr = 0;

	sched_getaffinity(0, sizeof(set), &set);
	for (cpu = 0; cpu < CPU_SETSIZE && nr < MOST_CPUS; cpu++) {
		if (CPU_ISSET(cpu, &set))
			cpus[nr++] = cpu;
	}
	return nr;
}

static void storm(struct __test_metadata *_metadata, int fd, uint32_t *words)
{
	static struct storm_thread notifiers[MOST_CPUS], waiters[MOST_CPUS];
	const char *text = getenv("MEMWAIT_LOAD_SECONDS");
	struct storm storm = { .words = words };
	struct storm_thread sum = { 0 };
	int cpus[MOST_CPUS], nr = list_cpus(cpus), i;

	ASSERT_LT(0, nr);
	memset(notifiers, 0, sizeof(notifiers));
	memset(waiters, 0, sizeof(waiters));
	for (i = 0; i < nr; i++) {
		notifiers[i].storm = &storm;
		waiters[i].storm = &storm;
		notifiers[i].cpu = cpus[i];
		waiters[i].random = i + 1;
		ASSERT_EQ(0, pthread_create(&notifiers[i].thread, NULL, storm_notify,
					    &notifiers[i]));
		ASSERT_EQ(0, pthread_create(&waiters[i].thread, NULL, storm_wait, &waiters[i]));
	}
	sleep(text ? atoi(text) : 5);
	__atomic_store_n(&storm.stop_arming, 1, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++)
		pthread_join(waiters[i].thread, NULL);
	__atomic_store_n(&storm.stop_notifying, 1, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++) {
		pthread_join(notifiers[i].thread, NULL);
		sum.notified += notifiers[i].notified;
		sum.calls += notifiers[i].calls * (STORM_WORDS + 1);
		sum.armed += waiters[i].armed;
		sum.oks += waiters[i].oks;
		sum.cancelled += waiters[i].cancelled;
		sum.wrong += notifiers[i].wrong + waiters[i].wrong;
	}
	TH_LOG("%d processors: %ld calls, notified %ld; armed %ld, OK %ld, cancelled %ld", nr,
	       sum.calls, sum.notified, sum.armed, sum.oks, sum.cancelled);
	EXPECT_EQ(0, sum.wrong);
	EXPECT_EQ(sum.notified, sum.oks);
	EXPECT_EQ(sum.armed, sum.oks + sum.cancelled);
	EXPECT_LT(0, sum.oks);
	EXPECT_LT(0, sum.cancelled);
	for (i = 0; i < STORM_WORDS; i++)
		EXPECT_EQ(0, mw_notify(fd, &words[i], MEMWAIT_ALL, U32));
}

TEST_F_TIMEOUT(memwait, R5_storms_of_notifies_on_private_words, 86400)
{
	storm(_metadata, self->fd, self->word);
}

TEST_F_TIMEOUT(memwait, R19_storms_of_notifies_on_shared_words, 86400)
{
	storm(_metadata, self->fd, self->shared);
}

TEST_HARNESS_MAIN
