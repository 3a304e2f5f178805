// SPDX-License-Identifier: GPL-2.0
/*
 * R37: the list of all ids in debugfs: the contents of each line, the completeness of the list, and
 * the users that hold the module.
 */
#include "owner_test.h"
#include <sys/prctl.h>
#include <sys/resource.h>

#define IDS	"/sys/kernel/debug/memwait/ids"
#define BIND	(MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND)

struct row {
	unsigned long long id;
	char kind[16];
	int pid;
	char tid[16];
	char command[80];
};

/* Reads the next line of the list. Returns false at the end of the list. */
static bool next_row(FILE *list, struct row *row)
{
	return fscanf(list, "%llu\t%15[^\t]\t%d\t%15[^\t]\t%79[^\n]\n", &row->id, row->kind,
		      &row->pid, row->tid, row->command) == 5;
}

/* Opens the list with a buffer of @piece bytes and skips its header. */
static FILE *list_ids(size_t piece)
{
	FILE *list = fopen(IDS, "r");
	char header[80];

	if (!list)
		return NULL;
	setvbuf(list, NULL, _IOFBF, piece);
	if (fgets(header, sizeof(header), list) &&
	    !strcmp(header, "id\tkind\tpid\ttid\tcommand\n"))
		return list;
	fclose(list);
	return NULL;
}

static bool find_id(uint64_t id, struct row *row)
{
	FILE *list = list_ids(4096);
	bool found = false;

	while (list && !found && next_row(list, row))
		found = row->id == id;
	if (list)
		fclose(list);
	return found;
}

static long count_ids(void)
{
	FILE *list = list_ids(4096);
	struct row row;
	long nr = 0;

	if (!list)
		return -1;
	while (next_row(list, &row))
		nr++;
	fclose(list);
	return nr;
}

/* Forks a process that has an id and no open file of the device. */
static pid_t start_holder(int fd, uint64_t *id)
{
	pid_t child = fork();

	if (child)
		return child;
	prctl(PR_SET_NAME, "a holder\t");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	*id = my_id(fd);
	close(fd);
	store_id(id + 1, 1);
	pause();
	_exit(1);
}

FIXTURE(ids)
{
	int fd;
};

FIXTURE_SETUP(ids)
{
	struct memwait_info info;

	if (access("/sys/kernel/debug/clear_warn_once", F_OK))
		SKIP(return, "no debugfs");
	self->fd = open_device(0);
	ASSERT_EQ(0, mw_info(self->fd, &info));
	if (!(info.features & MEMWAIT_FEATURE_OWNERS))
		SKIP(return, "this kernel does not report deaths");
	ASSERT_EQ(0, access(IDS, R_OK));
}

FIXTURE_TEARDOWN(ids)
{
	if (self->fd >= 0)
		close(self->fd);
}

#define IDS_TEST(name)	TEST_F_TIMEOUT(ids, name, 300)

IDS_TEST(R37_an_id_is_listed_while_its_owner_lives)
{
	struct owned_waiter w = { .fd = self->fd, .stays = 1 };
	uint64_t id;
	char tid[32];
	struct row row;

	prctl(PR_SET_NAME, "a\\n id");
	id = my_id(self->fd);
	ASSERT_TRUE(find_id(id, &row));
	EXPECT_STREQ("thread", row.kind);
	EXPECT_EQ(getpid(), row.pid);
	snprintf(tid, sizeof(tid), "%d", getpid());
	EXPECT_STREQ(tid, row.tid);
	EXPECT_STREQ("a\\134n\\040id", row.command);

	ASSERT_EQ(0, pthread_create(&w.thread, NULL, publish_id, &w));
	await_id(&w.id);
	ASSERT_TRUE(find_id(w.id, &row));
	EXPECT_STREQ("thread", row.kind);
	EXPECT_EQ(getpid(), row.pid);
	EXPECT_STRNE(tid, row.tid);
	owned_waiter_join(&w);
	/* The kernel reports the end of the thread a little later. */
	sleep_until(!thread_state(atoi(row.tid)));
	EXPECT_FALSE(find_id(w.id, &row));
	EXPECT_TRUE(find_id(id, &row));
	EXPECT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_EXIT, NULL));
	EXPECT_FALSE(find_id(id, &row));
}

IDS_TEST(R37_contexts_with_an_id_are_listed)
{
	long before = count_ids();
	uint64_t id;
	struct row row;

	ASSERT_EQ(0, mw_owner(self->fd, BIND, &id));
	ASSERT_TRUE(find_id(id, &row));
	EXPECT_STREQ("context", row.kind);
	EXPECT_EQ(getpid(), row.pid);
	EXPECT_STREQ("-", row.tid);
	EXPECT_EQ(before + 1, count_ids());
	close(self->fd);
	self->fd = -1;
	sleep_until(count_ids() == before);
}

/* Returns how many ids of a process are listed. */
static long count_ids_of(pid_t pid)
{
	FILE *list = list_ids(4096);
	struct row row;
	long nr = 0;

	while (list && next_row(list, &row))
		nr += row.pid == pid;
	if (list)
		fclose(list);
	return nr;
}

/* A process ends with so many ids that the kernel takes some time to remove them. */
IDS_TEST(R37_ids_of_a_dead_process_are_not_listed)
{
	enum { ROUNDS = 10, EACH_ROUND = 900 };
	int round, i;
	pid_t pid;

	for (round = 0; round < ROUNDS; round++) {
		pid = fork_child();
		if (!pid) {
			for (i = 0; i < EACH_ROUND; i++) {
				if (mw_owner(memwait_open(0), MEMWAIT_OWNER_CONTEXT, NULL))
					_exit(1);
			}
			_exit(0);
		}
		ASSERT_EQ(0, child_status(pid));
		EXPECT_EQ(0, count_ids_of(pid));
	}
}

/*
 * Returns whether each reference to the module is a line of the list or one of @contexts open
 * files.
 */
static bool all_are_named(long contexts)
{
	uint64_t end = patience(20);

	/* References of exited threads and processes are dropped a little later. */
	while (read_number(REFCNT) != count_ids() + contexts) {
		if (now_ns(CLOCK_MONOTONIC) > end)
			return false;
		usleep(1000);
	}
	return true;
}

IDS_TEST(R26_the_holders_of_the_module_are_listed)
{
	uint64_t *ids = shared_page(sysconf(_SC_PAGESIZE)), id;
	struct row row;
	pid_t child;
	long others;

	if (access(REFCNT, R_OK))
		SKIP(return, "the module cannot be unloaded");
	mw_await_owners(self->fd, 0);
	others = settled_references(self->fd) - count_ids();
	ASSERT_LE(1, others);

	/*
	 * A thread with an id holds the module even when its last file, which lsof could show, has
	 * been closed.
	 */
	child = start_holder(self->fd, ids);
	await_id(&ids[1]);
	id = ids[0];
	EXPECT_TRUE(all_are_named(others));
	close(self->fd);
	self->fd = -1;
	EXPECT_TRUE(all_are_named(others - 1));
	EXPECT_EQ(-1, syscall(SYS_delete_module, "memwait", O_NONBLOCK));
	EXPECT_EQ(EWOULDBLOCK, errno);
	ASSERT_TRUE(find_id(id, &row));
	EXPECT_EQ(child, row.pid);
	EXPECT_STREQ("a\\040holder\\011", row.command);
	kill(child, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, child_status(child));
	EXPECT_TRUE(all_are_named(others - 1));
	EXPECT_FALSE(find_id(id, &row));

	self->fd = open_device(0);
	ASSERT_EQ(0, mw_owner(self->fd, BIND, &id));
	EXPECT_TRUE(all_are_named(others));
	close(self->fd);
	self->fd = -1;
	EXPECT_TRUE(all_are_named(others - 1));
}

struct churn {
	pthread_t thread;
	int fd;
	int stop;
	long rounds;
};

static void *make_id(void *arg)
{
	my_id(((struct churn *)arg)->fd);
	return NULL;
}

/* Starts threads one after another. Each thread gets an id and ends. */
static void *churn_main(void *arg)
{
	struct churn *churn = arg;
	pthread_t thread;

	while (!__atomic_load_n(&churn->stop, __ATOMIC_RELAXED)) {
		if (pthread_create(&thread, NULL, make_id, churn))
			abort();
		pthread_join(thread, NULL);
		add_one(&churn->rounds);
	}
	return NULL;
}

#define MANY	1500

IDS_TEST(R37_many_ids_are_listed_while_others_come_and_go)
{
	static const size_t pieces[] = { 4096, 100 };
	const struct rlimit many = { MANY + 100, MANY + 100 };
	struct churn churn = { .fd = self->fd };
	static unsigned char seen[MANY];
	static uint64_t ids[MANY];
	static int fds[MANY];
	uint64_t *found;
	struct row row;
	FILE *list;
	size_t p;
	int i;

	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &many));
	for (i = 0; i < MANY; i++) {
		fds[i] = open_device(0);
		ASSERT_EQ(0, mw_owner(fds[i], MEMWAIT_OWNER_CONTEXT, &ids[i]));
	}
	qsort(ids, MANY, sizeof(ids[0]), compare_numbers);
	ASSERT_EQ(0, pthread_create(&churn.thread, NULL, churn_main, &churn));
	await_counted(&churn.rounds);
	for (p = 0; p < 2; p++) {
		memset(seen, 0, sizeof(seen));
		list = list_ids(pieces[p]);
		ASSERT_NE(NULL, list);
		while (next_row(list, &row)) {
			uint64_t id = row.id;

			found = bsearch(&id, ids, MANY, sizeof(ids[0]), compare_numbers);
			if (found)
				seen[found - ids]++;
		}
		fclose(list);
		for (i = 0; i < MANY && seen[i] == 1; i++)
			;
		EXPECT_EQ(MANY, i);
	}
	__atomic_store_n(&churn.stop, 1, __ATOMIC_RELAXED);
	pthread_join(churn.thread, NULL);
	for (i = 0; i < MANY; i++)
		close(fds[i]);
}

#define LIVING	500
#define TRIES	65536

/* Returns how many ids around @id are alive, as an unprivileged user sees it. */
static int find_neighbours(uint64_t id)
{
	uint64_t word;
	int fd, i, found = 0;

	if (setgid(1234) || setuid(1234))
		return -1;
	fd = memwait_open(0);
	my_id(fd);
	for (i = 1; i <= TRIES / 2; i++) {
		word = (id + i) & MEMWAIT_OWNER_MASK;
		found += mw_wait(fd, &word, word, 0, OWNED64) != MEMWAIT_OWNER_DIED;
		word = (id - i) & MEMWAIT_OWNER_MASK;
		found += mw_wait(fd, &word, word, 0, OWNED64) != MEMWAIT_OWNER_DIED;
	}
	word = id;
	return mw_wait(fd, &word, word, 0, OWNED64) == MEMWAIT_TIMED_OUT ? found : -1;
}

IDS_TEST(R33_an_id_does_not_help_to_find_others)
{
	uint64_t id = 0;
	int i, *found = shared_page(4096), fds[LIVING];
	pid_t child;

	for (i = 0; i < LIVING; i++) {
		fds[i] = open_device(0);
		ASSERT_EQ(0, mw_owner(fds[i], MEMWAIT_OWNER_CONTEXT, &id));
	}
	child = fork();
	if (!child) {
		*found = find_neighbours(id);
		_exit(0);
	}
	EXPECT_EQ(0, child_status(child));
	EXPECT_EQ(0, *found);
	for (i = 0; i < LIVING; i++)
		close(fds[i]);
	munmap(found, 4096);
}

#define DRAWN	400

IDS_TEST(R33_every_bit_of_an_id_is_random)
{
	int ones[64] = { 0 }, i, bit;
	uint64_t id;

	for (i = 0; i < DRAWN; i++) {
		id = my_id(self->fd);
		ASSERT_EQ(0, id & ~MEMWAIT_OWNER_MASK);
		ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_EXIT, NULL));
		for (bit = 0; bit < 64; bit++)
			ones[bit] += id >> bit & 1;
	}
	/* The bounds are ten standard deviations from the mean. */
	for (bit = 0; MEMWAIT_OWNER_MASK >> bit; bit++) {
		EXPECT_LT(DRAWN / 4, ones[bit]);
		EXPECT_GT(3 * DRAWN / 4, ones[bit]);
	}
}

#define RELOADS	5
#define EACH	300

/* Reloads the module, like module_load.sh. */
static bool reload(void)
{
	return !syscall(SYS_delete_module, "memwait", O_NONBLOCK) &&
	       !system("insmod \"$MEMWAIT_KO\" 2>/dev/null || modprobe memwait");
}

IDS_TEST(R33_no_id_is_reused_by_a_reloaded_module)
{
	static uint64_t ids[RELOADS * EACH];
	int round, i;

	for (round = 0; round < RELOADS; round++) {
		for (i = 0; i < EACH; i++) {
			ids[round * EACH + i] = my_id(self->fd);
			ASSERT_EQ(0, mw_owner(self->fd, MEMWAIT_OWNER_EXIT, NULL));
		}
		close(self->fd);
		self->fd = -1;
		for (i = 0; !reload(); i++) {
			/* References of exited threads are dropped a little later. */
			if (errno != EWOULDBLOCK || i == 1000)
				SKIP(return, "the module cannot be unloaded");
			usleep(10000);
		}
		self->fd = open_device(0);
	}
	qsort(ids, round * EACH, sizeof(ids[0]), compare_numbers);
	for (i = 1; i < round * EACH; i++)
		EXPECT_NE(ids[i - 1], ids[i]);
}

IDS_TEST(R37_only_root_reads_the_list)
{
	pid_t child = fork();

	if (!child) {
		if (setgid(1234) || setuid(1234))
			_exit(1);
		_exit(open(IDS, O_RDONLY) != -1 || errno != EACCES);
	}
	EXPECT_EQ(0, child_status(child));
}

#define NEW	3
#define READS	100

IDS_TEST(R29_reading_the_list_ends_while_ids_are_created)
{
	int list = open(IDS, O_RDONLY), fds[NEW * READS], reads, i, nr = 0;
	char line[64];
	ssize_t ret = 1;

	ASSERT_LE(0, list);
	for (reads = 0; reads < READS && ret > 0; reads++) {
		for (i = 0; i < NEW; i++) {
			fds[nr] = open_device(0);
			EXPECT_EQ(0, mw_owner(fds[nr++], MEMWAIT_OWNER_CONTEXT, NULL));
		}
		ret = read(list, line, sizeof(line));
	}
	EXPECT_EQ(0, ret);
	TH_LOG("%d reads", reads);
	while (nr)
		close(fds[--nr]);
	close(list);
}

TEST_HARNESS_MAIN
