// SPDX-License-Identifier: GPL-2.0
/*
 * The meaning of the words of shared objects, which is the same in every 1.x release and in 32-bit
 * and 64-bit processes. If there is a build of this test for the other width, the second process
 * runs that build.
 */
#include "userlib_test.h"

#include <semaphore.h>
#include <sys/prctl.h>

/* Programs are compiled with these sizes, so they must not change. */
_Static_assert(sizeof(memwait_op_t) == 192 && sizeof(memwait_mutex_t) == 40 &&
	       sizeof(memwait_cond_t) == 48 && sizeof(memwait_sem_t) == 32 &&
	       sizeof(memwait_rwlock_t) == 56 && sizeof(memwait_barrier_t) == 32 &&
	       sizeof(memwait_waitgroup_t) == 32 && sizeof(memwait_event_t) == 4,
	       "sizes are an ABI");
/*
 * A struct that contains these objects has the same layout after its program was ported from
 * pthreads.
 */
#if __SIZEOF_POINTER__ == 8
_Static_assert(sizeof(memwait_mutex_t) == sizeof(pthread_mutex_t) &&
	       sizeof(memwait_cond_t) == sizeof(pthread_cond_t) &&
	       sizeof(memwait_sem_t) == sizeof(sem_t) &&
	       sizeof(memwait_rwlock_t) == sizeof(pthread_rwlock_t) &&
	       sizeof(memwait_barrier_t) >= sizeof(pthread_barrier_t), "glibc's sizes");
#endif
_Static_assert(_Alignof(memwait_mutex_t) == 8 && _Alignof(memwait_cond_t) == 8 &&
	       _Alignof(memwait_sem_t) == 8 && _Alignof(memwait_rwlock_t) == 8 &&
	       _Alignof(memwait_barrier_t) == 8 && _Alignof(memwait_waitgroup_t) == 8 &&
	       _Alignof(memwait_event_t) == 4, "and so are alignments");

static unsigned int first_difference(const void *object, const uint32_t *expected, size_t size)
{
	const uint32_t *words = object;
	unsigned int i;

	for (i = 0; i < size / 4; i++) {
		if (words[i] != expected[i]) {
			printf("# word %u is 0x%x, not 0x%x\n", i, words[i], expected[i]);
			return i;
		}
	}
	return UINT_MAX;
}

/* All words of an object, as on a little-endian machine; words that are not listed are 0. */
#define EXPECT_WORDS(object, ...)							\
({											\
	const uint32_t expected_[sizeof(*(object)) / 4] = { __VA_ARGS__ };		\
											\
	EXPECT_EQ(UINT_MAX, first_difference((object), expected_, sizeof(expected_)));	\
})

#define CONTENDED_ID	0x40000000U

USERLIB_TEST(words_of_mutexes)
{
	memwait_mutex_t *mutex = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	uint32_t low, high;
	uint64_t id;

	ASSERT_EQ(0, memwait_owner(&id));
	low = (uint32_t)id;
	high = (uint32_t)(id >> 32);

	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	EXPECT_WORDS(mutex, [0] = 0x100);
	ASSERT_EQ(EINPROGRESS, memwait_mutex_lock_async(mutex, &counted.op));
	EXPECT_WORDS(mutex, [0] = 0x300);
	ASSERT_EQ(0, memwait_op_cancel(&counted.op));
	ASSERT_EQ(0, memwait_mutex_unlock(mutex));
	EXPECT_WORDS(mutex, 0);

	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_FAIR | MEMWAIT_PRIVATE));
	EXPECT_WORDS(mutex, [2] = 0x84);
	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_RECURSIVE));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	EXPECT_WORDS(mutex, [0] = 0x100, [2] = 1, [4] = low, [5] = high, [6] = 2);
	ASSERT_EQ(0, memwait_mutex_init(mutex, MEMWAIT_MUTEX_ROBUST));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	EXPECT_WORDS(mutex, [0] = low, [1] = high, [2] = 8, [6] = 1);
	ASSERT_EQ(EINPROGRESS, memwait_mutex_lock_async(mutex, &counted.op));
	EXPECT_WORDS(mutex, [0] = low, [1] = high | CONTENDED_ID, [2] = 8, [6] = 1);
	ASSERT_EQ(0, memwait_op_cancel(&counted.op));
	ASSERT_EQ(0, memwait_mutex_unlock(mutex));
}

USERLIB_TEST(words_of_semaphores)
{
	memwait_sem_t *sem = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);

	ASSERT_EQ(0, memwait_sem_init(sem, MEMWAIT_PRIVATE, 5));
	EXPECT_WORDS(sem, [0] = 5, [2] = 0x80);
	ASSERT_EQ(0, memwait_sem_init(sem, 0, 5));
	EXPECT_WORDS(sem, [0] = 5);
	ASSERT_EQ(0, memwait_sem_init(sem, 0, 0));
	ASSERT_EQ(EINPROGRESS, memwait_sem_wait_async(sem, &counted.op));
	EXPECT_WORDS(sem, [1] = 1);
	ASSERT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_WORDS(sem, 0);
	ASSERT_EQ(0, memwait_sem_init(sem, MEMWAIT_SEM_FAIR, 5));
	EXPECT_WORDS(sem, [0] = 0x50000, [2] = 4);
}

USERLIB_TEST(words_of_condition_variables)
{
	memwait_cond_t *cond = self->shared;
	memwait_mutex_t *mutex = (memwait_mutex_t *)(cond + 1);
	static const memwait_cond_t initialised =
		MEMWAIT_COND_INIT_FLAGS(MEMWAIT_PRIVATE | MEMWAIT_COND_MONOTONIC);
	struct counted_op counted = counted_by(&counted, self->loop);

	ASSERT_EQ(0, memwait_cond_init(cond, MEMWAIT_PRIVATE));
	EXPECT_WORDS(cond, [4] = 0x80);
	ASSERT_EQ(0, memwait_cond_init(cond, MEMWAIT_PRIVATE | MEMWAIT_COND_MONOTONIC));
	EXPECT_WORDS(cond, [4] = 0x90);
	EXPECT_EQ(0, memcmp(cond, &initialised, sizeof(*cond)));
	ASSERT_EQ(0, memwait_cond_init(cond, 0));
	ASSERT_EQ(0, memwait_mutex_lock(mutex));
	ASSERT_EQ(EINPROGRESS, memwait_cond_wait_async(cond, mutex, &counted.op));
	EXPECT_WORDS(cond, [2] = 1, [3] = 1);
	ASSERT_EQ(0, memwait_cond_broadcast(cond));
	EXPECT_WORDS(cond, [0] = 2, [2] = 1, [3] = 1);
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_WORDS(cond, [0] = 2);
	EXPECT_EQ(0, counted.result);
	EXPECT_EQ(0, memwait_mutex_unlock(mutex));
}

USERLIB_TEST(words_of_read_write_locks)
{
	memwait_rwlock_t *rwlock = self->shared;

	ASSERT_EQ(0, memwait_rwlock_rdlock(rwlock));
	ASSERT_EQ(0, memwait_rwlock_rdlock(rwlock));
	EXPECT_WORDS(rwlock, [2] = 0x200);
	ASSERT_EQ(0, memwait_rwlock_init(rwlock, MEMWAIT_RWLOCK_PREFER_WRITER));
	ASSERT_EQ(0, memwait_rwlock_wrlock(rwlock));
	EXPECT_WORDS(rwlock, [0] = 0x100, [2] = 1, [6] = 0x10);
}

USERLIB_TEST(words_of_barriers)
{
	memwait_barrier_t *barrier = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);

	ASSERT_EQ(0, memwait_barrier_init(barrier, MEMWAIT_PRIVATE, 3));
	EXPECT_WORDS(barrier, [4] = 0x80, [6] = 3);
	ASSERT_EQ(0, memwait_barrier_init(barrier, 0, 3));
	ASSERT_EQ(EINPROGRESS, memwait_barrier_wait_async(barrier, &counted.op));
	EXPECT_WORDS(barrier, [0] = 8, [2] = 1, [3] = 1, [6] = 3);
	ASSERT_EQ(0, memwait_op_cancel(&counted.op));
	ASSERT_EQ(0, memwait_barrier_abort(barrier));
	EXPECT_WORDS(barrier, [0] = 22, [6] = 3);
	ASSERT_EQ(0, memwait_barrier_reset(barrier));
	EXPECT_WORDS(barrier, [0] = 24, [1] = 24, [6] = 3, [7] = 24);
}

USERLIB_TEST(words_of_wait_groups)
{
	memwait_waitgroup_t *group = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);

	ASSERT_EQ(0, memwait_waitgroup_init(group, 0, 4));
	EXPECT_WORDS(group, [0] = 4);
	ASSERT_EQ(EINPROGRESS, memwait_waitgroup_wait_async(group, &counted.op));
	EXPECT_WORDS(group, [0] = 0x40000004, [2] = 1, [3] = 1);
	ASSERT_EQ(0, memwait_waitgroup_add(group, -4));
	/* The next add begins generation 1. */
	ASSERT_EQ(0, memwait_waitgroup_add(group, 1));
	EXPECT_WORDS(group, [0] = 1, [1] = 1, [2] = 1, [3] = 1);
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
}

USERLIB_TEST(words_of_events)
{
	memwait_event_t *event = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);

	ASSERT_EQ(0, memwait_event_init(event, 0));
	ASSERT_EQ(EINPROGRESS, memwait_event_wait_async(event, &counted.op));
	EXPECT_WORDS(event, 0);
	ASSERT_EQ(0, memwait_event_set(event));
	ASSERT_EQ(0, memwait_event_set(event));
	EXPECT_WORDS(event, 1);
	ASSERT_EQ(0, memwait_event_clear(event));
	ASSERT_EQ(0, memwait_event_clear(event));
	EXPECT_WORDS(event, 2);
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	/* The number of changes wraps around, and the kind is unchanged. */
	event->reserved[0] = 0x8fffffff;
	ASSERT_EQ(0, memwait_event_clear(event));
	EXPECT_WORDS(event, 0x80000000);
	ASSERT_EQ(0, memwait_event_set(event));
	EXPECT_WORDS(event, 0x80000001);
}

USERLIB_TEST(words_of_channels)
{
	struct { uint32_t words[54]; } *words = self->shared;
	memwait_channel_t *channel = self->shared;
	const uint32_t item = 77;

	ASSERT_EQ(sizeof(*words), memwait_channel_size(sizeof(item), 3));
	ASSERT_EQ(0, memwait_channel_init(channel, sizeof(*words), MEMWAIT_PRIVATE, sizeof(item),
					  3));
	EXPECT_WORDS(words, [0] = 4, [1] = 3, [2] = 8, [4] = 0x80, [5] = 3, [6] = 1,
		     [24] = 0x80, [40] = 0x80);
	ASSERT_EQ(0, memwait_channel_send(channel, &item, sizeof(item)));
	EXPECT_WORDS(words, [0] = 4, [1] = 3, [2] = 8, [4] = 0x80, [5] = 3, [6] = 1,
		     [18] = 2, [24] = 0x80, [40] = 0x80, [48] = 77);
	ASSERT_EQ(0, memwait_channel_close(channel));
	EXPECT_WORDS(words, [0] = 4, [1] = 3, [2] = 8, [4] = 0x80, [5] = 3, [6] = 1,
		     [18] = 3, [24] = 0x80, [34] = 1, [40] = 0x80, [48] = 77);
}

/* One object of each kind, shared by two processes, at the same offsets in both builds. */
struct table {
	memwait_mutex_t mutexes[5];
	memwait_cond_t cond;
	memwait_sem_t sems[2];
	memwait_rwlock_t rwlock;
	memwait_barrier_t barrier;
	memwait_waitgroup_t group;
	memwait_event_t events[2];
	uint64_t channels[2][64];
	uint64_t word64;
	uint32_t word32;
	uint32_t turn;
	uint64_t counter, twin;
	uint32_t width[2];
};

#define ROUNDS	200

static const unsigned int kinds[] = {
	MEMWAIT_MUTEX_NORMAL, MEMWAIT_MUTEX_FAIR, MEMWAIT_MUTEX_RECURSIVE,
	MEMWAIT_MUTEX_ERRORCHECK, MEMWAIT_MUTEX_ROBUST,
};

#define CHECK(condition) do {								\
	if (!(condition)) {								\
		printf("# %zu bits: %s:%d: %s\n", 8 * sizeof(void *), __FILE__,		\
		       __LINE__, #condition);						\
		fflush(stdout);								\
		_exit(1);								\
	}										\
} while (0)

static int set_table(struct table *table)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		CHECK(!memwait_mutex_init(&table->mutexes[i], kinds[i]));
	CHECK(!memwait_barrier_init(&table->barrier, 0, 2));
	for (i = 0; i < 2; i++) {
		CHECK(!memwait_sem_init(&table->sems[i], 0, 0));
		CHECK(!memwait_channel_init((void *)table->channels[i], sizeof(table->channels[i]),
					    0, sizeof(uint64_t), 3));
	}
	return 0;
}

static int meet(struct table *table)
{
	int ret = memwait_barrier_wait(&table->barrier);

	CHECK(!ret || ret == MEMWAIT_BARRIER_SERIAL_THREAD);
	return 0;
}

static int use_mutexes(struct table *table)
{
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		for (j = 0; j < ROUNDS; j++) {
			CHECK(!memwait_mutex_lock(&table->mutexes[i]));
			CHECK(table->counter == table->twin);
			table->counter++;
			table->twin++;
			CHECK(!memwait_mutex_unlock(&table->mutexes[i]));
		}
		CHECK(!meet(table));
		CHECK(table->counter == 2 * ROUNDS * (i + 1));
		CHECK(!meet(table));
	}
	return 0;
}

static int use_rwlock(struct table *table)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		CHECK(!memwait_rwlock_wrlock(&table->rwlock));
		table->counter++;
		table->twin++;
		CHECK(!memwait_rwlock_unlock(&table->rwlock));
		CHECK(!memwait_rwlock_rdlock(&table->rwlock));
		CHECK(table->counter == table->twin);
		CHECK(!memwait_rwlock_unlock(&table->rwlock));
	}
	return meet(table);
}

/* In every other round the side waits with an operation of its loop. */
static int use_sems(struct table *table, int side, memwait_loop_t *loop)
{
	struct counted_op counted = { 0 };
	int i, ret, calls = 0;

	CHECK(!memwait_op_init(&counted.op, loop, count_call, &counted));
	for (i = 0; i < ROUNDS; i++) {
		CHECK(!memwait_sem_post(&table->sems[!side]));
		if (i % 2) {
			CHECK(!memwait_sem_wait(&table->sems[side]));
			continue;
		}
		ret = memwait_sem_wait_async(&table->sems[side], &counted.op);
		CHECK(!ret || ret == EINPROGRESS);
		if (ret)
			CHECK(!dispatch_until(loop, &counted.calls, ++calls));
		CHECK(!counted.result);
	}
	return meet(table);
}

static int use_cond(struct table *table, uint32_t side)
{
	memwait_mutex_t *mutex = &table->mutexes[0];
	int i;

	CHECK(!memwait_mutex_lock(mutex));
	for (i = 0; i < ROUNDS; i++) {
		while (table->turn != side)
			CHECK(!memwait_cond_wait(&table->cond, mutex));
		table->turn = !side;
		CHECK(!(i % 2 ? memwait_cond_signal(&table->cond) :
				memwait_cond_broadcast(&table->cond)));
	}
	CHECK(!memwait_mutex_unlock(mutex));
	return meet(table);
}

static int use_group(struct table *table, int side)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		if (side)
			CHECK(!memwait_waitgroup_add(&table->group, 2));
		CHECK(!meet(table));
		CHECK(!memwait_waitgroup_done(&table->group));
		CHECK(!memwait_waitgroup_wait(&table->group));
		CHECK(!meet(table));
	}
	return 0;
}

static int use_events(struct table *table, int side)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		CHECK(!memwait_event_set(&table->events[!side]));
		CHECK(!memwait_event_wait(&table->events[side]));
		CHECK(!memwait_event_clear(&table->events[side]));
		CHECK(!meet(table));
	}
	return 0;
}

static int use_channels(struct table *table, int side)
{
	memwait_channel_t *out = (void *)table->channels[side];
	memwait_channel_t *in = (void *)table->channels[!side];
	uint64_t i, item;

	for (i = 0; i < ROUNDS; i++) {
		item = i << 33 | (uint32_t)side;
		CHECK(!memwait_channel_send(out, &item, sizeof(item)));
		if (!i)
			continue;
		CHECK(!memwait_channel_recv(in, &item, sizeof(item)));
		CHECK(item == ((i - 1) << 33 | !side));
	}
	CHECK(!memwait_channel_close(out));
	CHECK(!memwait_channel_recv(in, &item, sizeof(item)) && item == ((i - 1) << 33 | !side));
	CHECK(memwait_channel_recv(in, &item, sizeof(item)) == EPIPE);
	return meet(table);
}

static int use_words(struct table *table, uint32_t side)
{
	uint64_t now64;
	uint32_t now;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		while ((now = __atomic_load_n(&table->word32, __ATOMIC_ACQUIRE)) % 2 != side)
			CHECK(memwait_wait32(&table->word32, now, NULL, 0) >= 0);
		CHECK(memwait_change_notify32(&table->word32, MEMWAIT_CHANGE_ADD, 1, 1, 0,
					      NULL) >= 0);
		while ((now64 = __atomic_load_n(&table->word64, __ATOMIC_ACQUIRE)) >> 40 != now)
			CHECK(memwait_wait64(&table->word64, now64, NULL, 0) >= 0);
		__atomic_store_n(&table->word64, (now64 & UINT32_MAX) | (now + 1ULL) << 40,
				 __ATOMIC_RELEASE);
		CHECK(memwait_notify(&table->word64, MEMWAIT_ALL, 0) >= 0);
	}
	return meet(table);
}

static int use_table(struct table *table, int side, memwait_loop_t *loop)
{
	table->width[side] = 8 * sizeof(void *);
	CHECK(!meet(table));
	if (use_mutexes(table) || use_rwlock(table) || use_sems(table, side, loop) ||
	    use_cond(table, side) || use_group(table, side) || use_events(table, side) ||
	    use_channels(table, side))
		return 1;
	return use_words(table, side);
}

/*
 * Runs in the other process, which gets the table as its standard input. The process dies while it
 * holds the robust mutex.
 */
static int run_other(void)
{
	struct table *table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED,
				   STDIN_FILENO, 0);
	memwait_loop_t *loop;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK(table != MAP_FAILED && !memwait_loop_new(&loop, 0));
	if (use_table(table, 1, loop))
		return 1;
	CHECK(!memwait_mutex_lock(&table->mutexes[4]));
	CHECK(!meet(table));
	fflush(stdout);
	_exit(0);
}

USERLIB_TEST(sharing_with_a_process_of_the_other_width)
{
	int memfd = memfd_create("table", 0);
	char path[PATH_MAX] = "";
	struct table *table;
	pid_t child;

	ASSERT_EQ(0, ftruncate(memfd, sizeof(*table)));
	table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	ASSERT_NE(MAP_FAILED, table);
	ASSERT_EQ(0, set_table(table));
	ASSERT_LT(0, readlink("/proc/self/exe", path, sizeof(path) - 16));
	strcat(path, ".other");
	fflush(stdout);
	child = fork_child();
	if (!child) {
		dup2(memfd, STDIN_FILENO);
		execl(path, path, "other", NULL);
		execl("/proc/self/exe", path, "other", NULL);
		_exit(1);
	}
	ASSERT_EQ(0, use_table(table, 0, self->loop));
	ASSERT_EQ(0, meet(table));
	EXPECT_EQ(EOWNERDEAD, memwait_mutex_lock(&table->mutexes[4]));
	EXPECT_EQ(0, memwait_mutex_consistent(&table->mutexes[4]));
	EXPECT_EQ(0, memwait_mutex_unlock(&table->mutexes[4]));
	EXPECT_EQ(0, child_status(child));
	printf("# %u bits and %u\n", table->width[0], table->width[1]);
	/* If the other build exists, it must have been used. */
	EXPECT_TRUE(access(path, X_OK) || table->width[0] != table->width[1]);
	munmap(table, sizeof(*table));
	close(memfd);
}

#define main harness_main
TEST_HARNESS_MAIN
#undef main

int main(int argc, char **argv)
{
	return argc == 2 && !strcmp(argv[1], "other") ? run_other() : harness_main(argc, argv);
}
