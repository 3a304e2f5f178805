// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The main job, on real input: count the words of a text in several processes that share a memfd.
 *
 *	producer --lines--> channel --> workers, which block in memwait_channel_recv()
 *					--counts--> channel --> collector, an epoll loop
 *
 * The collector never blocks on any of it: it receives by memwait_channel_recv_async(), waits for
 * the last worker by memwait_waitgroup_wait_async(), and reads what all have done so far, for its
 * progress lines, by memwait_mutex_execute_locked(). The loop's descriptor is in one epoll with a
 * timerfd (progress) and a signalfd (children, ^C).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memwait.h>

#include "demo.h"

#define MAX_WORKERS	64
#define FLUSH_WORDS	400	/* a worker sends its counts when it has so many words */

#define ITEMS		64	/* in a channel */
#define ITEM_SIZE	248

enum { COLLECTOR, PRODUCER, FIRST_WORKER };

/* What goes through a channel: a line, or how often a word has come, and the word. */
struct item {
	uint64_t times;
	uint32_t length;
	char text[ITEM_SIZE];
};

/* What a role has done. */
struct done {
	uint64_t lines;
	uint64_t words;
};

struct shared {
	memwait_mutex_t mutex;		/* fair; protects the next two */
	struct done produced;
	struct done counted[MAX_WORKERS];
	memwait_waitgroup_t workers;
	size_t counts_at;		/* where the second channel begins */
};

static memwait_channel_t *lines_of(struct shared *shared)
{
	return (memwait_channel_t *)((char *)shared + 4096);
}

static memwait_channel_t *counts_of(struct shared *shared)
{
	return (memwait_channel_t *)((char *)shared + shared->counts_at);
}

/* A page for what is above, then the channels. */
static size_t channel_span(void)
{
	return (memwait_channel_size(sizeof(struct item), ITEMS) + 4095) / 4096 * 4096;
}

static size_t shared_size(void)
{
	return 4096 + 2 * channel_span();
}

void die(const char *what)
{
	fprintf(stderr, "demo: %s: %s\n", what, strerror(errno));
	exit(1);
}

uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* The library's functions return error numbers. */
static void check(int error, const char *what)
{
	if (error) {
		errno = error;
		die(what);
	}
}

/* Each process maps the memfd anew, at an address of its own. */
static struct shared *map_shared(int memfd, size_t shift)
{
	char *place = mmap(NULL, shared_size() + (shift << 16), PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct shared *shared;

	if (place == MAP_FAILED)
		die("mmap");
	shared = mmap(place + (shift << 16), shared_size(), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_FIXED, memfd, 0);
	if (shared == MAP_FAILED)
		die("mmap of the memfd");
	return shared;
}

/* How much of the text goes into one item: a line, or if it is long, up to the end of a word. */
static size_t next_piece(const char *text, size_t left)
{
	const char *newline = memchr(text, '\n', left);
	size_t length = newline ? (size_t)(newline - text) + 1 : left, cut;

	if (length <= ITEM_SIZE)
		return length;
	for (cut = ITEM_SIZE; cut > 0; cut--)
		if (!is_word(text[cut - 1]))
			return cut;
	return 0;
}

static void add_done(struct shared *shared, struct done *done, uint64_t lines, uint64_t words)
{
	check(memwait_mutex_lock(&shared->mutex), "memwait_mutex_lock");
	done->lines += lines;
	done->words += words;
	check(memwait_mutex_unlock(&shared->mutex), "memwait_mutex_unlock");
}

static void produce(int memfd, const char *text, size_t size)
{
	struct shared *shared = map_shared(memfd, PRODUCER);
	struct item item = { 0 };
	size_t at = 0;

	while (at < size) {
		item.length = (uint32_t)next_piece(text + at, size - at);
		if (!item.length) {
			/* main() has seen that there is none: the file must have changed. */
			fprintf(stderr, "demo: a word is longer than %d bytes\n", ITEM_SIZE);
			exit(1);
		}
		memcpy(item.text, text + at, item.length);
		check(memwait_channel_send(lines_of(shared), &item), "memwait_channel_send");
		at += item.length;
		add_done(shared, &shared->produced, 1, 0);
	}
	check(memwait_channel_close(lines_of(shared)), "memwait_channel_close");
	exit(0);
}

static void send_count(void *arg, const char *word, size_t length, uint64_t times)
{
	struct item item = { .times = times, .length = (uint32_t)length };

	memcpy(item.text, word, length);
	check(memwait_channel_send(arg, &item), "memwait_channel_send");
}

static void work(int memfd, int number)
{
	struct shared *shared = map_shared(memfd, FIRST_WORKER + number);
	struct table *table = table_new();
	uint64_t words;
	struct item item;
	int error;

	while (!(error = memwait_channel_recv(lines_of(shared), &item))) {
		words = table_total(table);
		table_add_text(table, item.text, item.length);
		add_done(shared, &shared->counted[number], 1, table_total(table) - words);
		if (table_words(table) >= FLUSH_WORDS) {
			table_each(table, send_count, counts_of(shared));
			table_clear(table);
		}
	}
	if (error != EPIPE)	/* closed, and empty */
		check(error, "memwait_channel_recv");
	table_each(table, send_count, counts_of(shared));
	check(memwait_waitgroup_done(&shared->workers), "memwait_waitgroup_done");
	exit(0);
}

static pid_t start(int memfd, int role, const char *text, size_t size)
{
	pid_t parent = getpid(), pid;
	sigset_t none;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		exit(1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGINT, SIG_IGN);	/* ^C is for the collector, who ends the others */
	if (role == PRODUCER)
		produce(memfd, text, size);
	work(memfd, role - FIRST_WORKER);
	return 0;
}

struct collector {
	struct shared *shared;
	struct table *table;
	memwait_loop_t *loop;
	memwait_op_t receive, all_done, progress;
	struct item item;	/* that is received next */
	uint64_t at_once, waited;
	int workers, children;
	bool quiet, finished;
	uint64_t started;
};

/* Takes what is there, and leaves an operation behind for what comes. */
static void collect(struct collector *c, int error)
{
	while (!error) {
		table_add(c->table, c->item.text, c->item.length, c->item.times);
		error = memwait_channel_recv_async(counts_of(c->shared), &c->item, &c->receive);
		c->at_once += !error;
	}
	if (error == EINPROGRESS)
		c->waited++;
	else if (error == EPIPE)
		c->finished = true;
	else
		check(error, "memwait_channel_recv_async");
}

static void received(memwait_op_t *op, int result, void *data)
{
	(void)op;
	collect(data, result);
}

/* The last worker has sent its last count. */
static void workers_done(memwait_op_t *op, int result, void *data)
{
	struct collector *c = data;

	(void)op;
	check(result, "memwait_waitgroup_wait_async");
	check(memwait_channel_close(counts_of(c->shared)), "memwait_channel_close");
}

/* Runs with the mutex locked. */
static void show_progress(memwait_op_t *op, int result, void *data)
{
	struct collector *c = data;
	uint64_t lines = 0;
	int i;

	(void)op;
	check(result, "memwait_mutex_execute_locked");
	for (i = 0; i < c->workers; i++)
		lines += c->shared->counted[i].lines;
	printf("%6.1f s  lines in %8" PRIu64 "  counted %8" PRIu64 "  words collected %9" PRIu64
	       "\n", (double)(now() - c->started) / 1e9, c->shared->produced.lines, lines,
	       table_total(c->table));
	fflush(stdout);
}

static void ask_for_progress(struct collector *c)
{
	int error;

	if (c->quiet)
		return;
	error = memwait_mutex_execute_locked(&c->shared->mutex, &c->progress);
	/* EBUSY: the one before still waits for the mutex. */
	if (error != EINPROGRESS && error != EBUSY)
		check(error, "memwait_mutex_execute_locked");
}

static void take_signal(struct collector *c, int signals)
{
	struct signalfd_siginfo info;
	int status;

	while (read(signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGCHLD) {
			printf("demo: stopped by a signal\n");
			exit(130);	/* the children die with their parent */
		}
		while (waitpid(-1, &status, WNOHANG) > 0) {
			c->children--;
			if (!WIFEXITED(status) || WEXITSTATUS(status)) {
				fprintf(stderr, "demo: a child has failed\n");
				exit(1);
			}
		}
	}
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (fd < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		die("epoll");
}

static void run_loop(struct collector *c, const sigset_t *mask)
{
	struct itimerspec interval = { { 0, 100000000 }, { 0, 100000000 } };
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int signals = signalfd(-1, mask, SFD_CLOEXEC | SFD_NONBLOCK);
	int epoll = epoll_create1(EPOLL_CLOEXEC), i, n;
	struct epoll_event events[3];
	uint64_t expirations;

	watch(epoll, memwait_loop_fd(c->loop));
	watch(epoll, timer);
	watch(epoll, signals);
	timerfd_settime(timer, 0, &interval, NULL);

	n = memwait_waitgroup_wait_async(&c->shared->workers, &c->all_done);
	if (n == EINPROGRESS)
		n = 0;
	else if (!n)
		workers_done(&c->all_done, 0, c);
	check(n, "memwait_waitgroup_wait_async");
	n = memwait_channel_recv_async(counts_of(c->shared), &c->item, &c->receive);
	c->at_once += !n;
	collect(c, n);

	while (c->children || !c->finished || memwait_loop_pending(c->loop)) {
		n = epoll_wait(epoll, events, 3, -1);
		if (n < 0 && errno != EINTR)
			die("epoll_wait");
		for (i = 0; i < n; i++) {
			if (events[i].data.fd == timer) {
				if (read(timer, &expirations, sizeof(expirations)) > 0)
					ask_for_progress(c);
			} else if (events[i].data.fd == signals) {
				take_signal(c, signals);
			} else if (memwait_loop_dispatch(c->loop) < 0) {
				die("memwait_loop_dispatch");
			}
		}
	}
	ask_for_progress(c);
	close(epoll);
	close(timer);
	close(signals);
}

static void print_done(const char *role, int number, const struct done *done)
{
	printf("  %-9s %2d  %8" PRIu64 " lines  %9" PRIu64 " words\n", role, number, done->lines,
	       done->words);
}

static bool report(struct collector *c, const struct table *expected)
{
	struct done sum = { 0 };
	bool good = true;
	int i;

	printf("\n%" PRIu64 " words, %zu distinct, in %.1f s. The most frequent:\n",
	       table_total(c->table), table_words(c->table), (double)(now() - c->started) / 1e9);
	table_print_most_frequent(c->table, 15);
	printf("\n");
	for (i = 0; i < c->workers; i++) {
		print_done("worker", i + 1, &c->shared->counted[i]);
		sum.lines += c->shared->counted[i].lines;
		sum.words += c->shared->counted[i].words;
	}
	printf("  The collector received %" PRIu64 " counts at once, and waited %" PRIu64
	       " times in its loop\n\n", c->at_once, c->waited);

	if (sum.lines != c->shared->produced.lines || sum.words != table_total(c->table)) {
		printf("demo: FAILED: %" PRIu64 " lines produced, %" PRIu64 " lines and %" PRIu64
		       " words counted\n", c->shared->produced.lines, sum.lines, sum.words);
		good = false;
	} else {
		printf("demo: every line was counted once, and every count was collected once\n");
	}
	if (!table_equal(c->table, expected)) {
		printf("demo: FAILED: a single process counts %" PRIu64 " words, %zu distinct\n",
		       table_total(expected), table_words(expected));
		good = false;
	} else {
		printf("demo: the result is that of a single process\n");
	}
	return good;
}

static const char *read_text(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *text;

	if (fd < 0 || fstat(fd, &st))
		die(path);
	*size = st.st_size;
	if (!*size)
		return "";
	text = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (text == MAP_FAILED)
		die(path);
	close(fd);
	return text;
}

static void check_text(const char *text, size_t size)
{
	const size_t longest = ITEM_SIZE;
	size_t i, run = 0;

	for (i = 0; i < size; i++) {
		run = is_word(text[i]) ? run + 1 : 0;
		if (run > longest) {
			fprintf(stderr, "demo: the text has a word of more than %zu bytes\n",
				longest);
			exit(1);
		}
	}
}

static void set_up(struct collector *c, struct shared *shared)
{
	c->shared = shared;
	shared->counts_at = 4096 + channel_span();
	check(memwait_mutex_init(&shared->mutex, MEMWAIT_MUTEX_FAIR), "memwait_mutex_init");
	check(memwait_waitgroup_init(&shared->workers, 0, (unsigned int)c->workers),
	      "memwait_waitgroup_init");
	check(memwait_channel_init(lines_of(shared), 0, sizeof(struct item), ITEMS),
	      "memwait_channel_init");
	check(memwait_channel_init(counts_of(shared), 0, sizeof(struct item), ITEMS),
	      "memwait_channel_init");
	check(memwait_op_init(&c->receive, c->loop, received, c), "memwait_op_init");
	check(memwait_op_init(&c->all_done, c->loop, workers_done, c), "memwait_op_init");
	check(memwait_op_init(&c->progress, c->loop, show_progress, c), "memwait_op_init");
}

int main(int argc, char **argv)
{
	struct collector c = { 0 };
	struct table *expected;
	int workers = 3, memfd, option, i;
	const char *text;
	sigset_t mask;
	size_t size;

	while ((option = getopt(argc, argv, "w:q")) != -1) {
		if (option == 'w')
			workers = atoi(optarg);
		else if (option == 'q')
			c.quiet = true;
		else
			workers = 0;
	}
	if (optind != argc - 1 || workers < 1 || workers > MAX_WORKERS) {
		fprintf(stderr, "Usage: %s [-w WORKERS] [-q] TEXT\n", argv[0]);
		return 2;
	}
	text = read_text(argv[optind], &size);
	check_text(text, size);
	check(memwait_loop_new(&c.loop), "/dev/memwait (modprobe memwait?)");
	memfd = memfd_create("memwait-demo", MFD_CLOEXEC);
	if (memfd < 0 || ftruncate(memfd, (off_t)shared_size()))
		die("memfd");
	c.table = table_new();
	c.workers = workers;
	set_up(&c, map_shared(memfd, COLLECTOR));

	/* Before the first child, whose end must not be missed. */
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigprocmask(SIG_BLOCK, &mask, NULL);

	printf("Counting the words of %s (%zu bytes): a producer, %d workers, a collector\n",
	       argv[optind], size, workers);
	c.started = now();
	for (i = 0; i < workers; i++)
		start(memfd, FIRST_WORKER + i, NULL, 0);
	start(memfd, PRODUCER, text, size);
	c.children = workers + 1;
	run_loop(&c, &mask);

	expected = table_new();
	table_add_text(expected, text, size);
	return report(&c, expected) ? 0 : 1;
}
