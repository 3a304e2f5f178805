// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The main job, on real input: count the words of a text in several processes that share a memfd.
 *
 *	producer --lines--> ring --> workers, which block in MEMWAIT_IOC_WAIT
 *				     --counts--> ring --> collector, a single-threaded epoll loop
 *
 * The collector never blocks on a word: it has an async wait on the second ring's word, and its
 * context's descriptor in the same epoll as a timerfd (progress) and a signalfd (children, ^C).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "demo.h"

#define MAX_WORKERS	64
#define FLUSH_WORDS	400	/* a worker sends its counts when it has so many words */

enum { COLLECTOR, PRODUCER, FIRST_WORKER };

struct shared {
	struct ring lines;
	struct ring counts;
	_Atomic uint64_t lines_in;
	_Atomic uint64_t lines_done;
	struct counts roles[FIRST_WORKER + MAX_WORKERS];
};

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

static int open_device(void)
{
	int fd = open("/dev/memwait", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0) {
		fprintf(stderr, "demo: /dev/memwait: %s (modprobe memwait?)\n", strerror(errno));
		exit(1);
	}
	return fd;
}

/* Each process maps the memfd anew, at an address of its own. */
static struct shared *map_shared(int memfd, size_t shift)
{
	char *place = mmap(NULL, sizeof(struct shared) + (shift << 16), PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct shared *shared;

	if (place == MAP_FAILED)
		die("mmap");
	shared = mmap(place + (shift << 16), sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_FIXED, memfd, 0);
	if (shared == MAP_FAILED)
		die("mmap of the memfd");
	return shared;
}

/* How much of the text goes into one slot: a line, or if it is long, up to the end of a word. */
static size_t next_piece(const char *text, size_t left)
{
	const char *newline = memchr(text, '\n', left);
	size_t length = newline ? (size_t)(newline - text) + 1 : left, cut;

	if (length <= SLOT_SIZE)
		return length;
	for (cut = SLOT_SIZE; cut > 0; cut--)
		if (!is_word(text[cut - 1]))
			return cut;
	return 0;
}

static void produce(int memfd, const char *text, size_t size)
{
	struct shared *shared = map_shared(memfd, PRODUCER);
	struct counts *counts = &shared->roles[PRODUCER];
	int fd = open_device();
	size_t at = 0, piece;

	while (at < size) {
		piece = next_piece(text + at, size - at);
		if (!piece) {
			/* main() has seen that there is none: the file must have changed. */
			fprintf(stderr, "demo: a word is longer than %d bytes\n", SLOT_SIZE);
			exit(1);
		}
		ring_put(fd, counts, &shared->lines, text + at, piece);
		at += piece;
		atomic_fetch_add_explicit(&shared->lines_in, 1, memory_order_relaxed);
	}
	ring_close(fd, counts, &shared->lines);
	exit(0);
}

/* A record of the second ring: how often, and the word. */
struct sender {
	int fd;
	struct counts *counts;
	struct ring *ring;
};

static void send_count(void *arg, const char *word, size_t length, uint64_t times)
{
	struct sender *sender = arg;
	char record[SLOT_SIZE];

	memcpy(record, &times, sizeof(times));
	memcpy(record + sizeof(times), word, length);
	ring_put(sender->fd, sender->counts, sender->ring, record, sizeof(times) + length);
}

static void work(int memfd, int number)
{
	struct shared *shared = map_shared(memfd, FIRST_WORKER + number);
	struct sender sender = {
		.fd = open_device(),
		.counts = &shared->roles[FIRST_WORKER + number],
		.ring = &shared->counts,
	};
	struct table *table = table_new();
	char line[SLOT_SIZE];
	uint32_t length;

	while (ring_get(sender.fd, sender.counts, &shared->lines, line, &length)) {
		table_add_text(table, line, length);
		atomic_fetch_add_explicit(&shared->lines_done, 1, memory_order_relaxed);
		if (table_words(table) >= FLUSH_WORDS) {
			table_each(table, send_count, &sender);
			table_clear(table);
		}
	}
	table_each(table, send_count, &sender);
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
	int fd;
	bool waiting;		/* the async wait is pending */
	uint64_t id;
	int children;
	bool quiet;
	uint64_t started;
};

/*
 * Takes what is there, and leaves an async wait behind: the loop's form of ring_get(). A record
 * that comes between the look and the wait has changed the word, and then nothing was queued.
 */
static void collect(struct collector *c)
{
	struct counts *counts = &c->shared->roles[COLLECTOR];
	struct ring *ring = &c->shared->counts;
	struct memwait_async entry;
	struct memwait_wait_async batch = { .waits = (uintptr_t)&entry, .count = 1 };
	char record[SLOT_SIZE];
	uint32_t length, filled;
	uint64_t times;

	for (;;) {
		filled = atomic_load_explicit(&ring->filled, memory_order_acquire);
		while (ring_try_get(ring, record, &length)) {
			memcpy(&times, record, sizeof(times));
			table_add(c->table, record + sizeof(times), length - sizeof(times), times);
			announce(c->fd, counts, &ring->freed, 1);
		}
		if (c->waiting)
			return;

		memset(&entry, 0, sizeof(entry));
		entry.wait.addr = (uintptr_t)&ring->filled;
		entry.wait.expected = filled;
		entry.wait.deadline = now() + 50000000;
		entry.wait.flags = MEMWAIT_SIZE_U32;
		if (ioctl(c->fd, MEMWAIT_IOC_WAIT_ASYNC, &batch) != 1)
			die("MEMWAIT_IOC_WAIT_ASYNC");
		if (entry.result == MEMWAIT_PENDING) {
			c->waiting = true;
			c->id = entry.id;
			counts->pending++;
			return;
		}
		counts->not_equal++;
	}
}

static void reap(struct collector *c)
{
	struct counts *counts = &c->shared->roles[COLLECTOR];
	struct memwait_completion done;

	while (read(c->fd, &done, sizeof(done)) == sizeof(done)) {
		if (done.id != c->id) {
			fprintf(stderr, "demo: a completion of no wait\n");
			exit(1);
		}
		if (done.result == MEMWAIT_OK)
			counts->ok++;
		else
			counts->timed_out++;
		c->waiting = false;
	}
	if (errno != EAGAIN)
		die("read /dev/memwait");
}

static void show_progress(struct collector *c)
{
	if (c->quiet)
		return;
	printf("%6.1f s  lines in %8" PRIu64 "  counted %8" PRIu64 "  words collected %9" PRIu64
	       "\n", (double)(now() - c->started) / 1e9,
	       (uint64_t)atomic_load_explicit(&c->shared->lines_in, memory_order_relaxed),
	       (uint64_t)atomic_load_explicit(&c->shared->lines_done, memory_order_relaxed),
	       table_total(c->table));
	fflush(stdout);
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

	watch(epoll, c->fd);
	watch(epoll, timer);
	watch(epoll, signals);
	timerfd_settime(timer, 0, &interval, NULL);
	collect(c);
	while (c->children) {
		n = epoll_wait(epoll, events, 3, -1);
		if (n < 0 && errno != EINTR)
			die("epoll_wait");
		for (i = 0; i < n; i++) {
			if (events[i].data.fd == c->fd) {
				reap(c);
				collect(c);
			} else if (events[i].data.fd == timer) {
				if (read(timer, &expirations, sizeof(expirations)) > 0)
					show_progress(c);
			} else {
				take_signal(c, signals);
			}
		}
	}
	/* All who put have ended: what is left is in the ring. */
	collect(c);
	if (c->waiting) {
		struct memwait_cancel cancel = { .id = c->id };

		if (ioctl(c->fd, MEMWAIT_IOC_CANCEL, &cancel) == 0) {
			c->shared->roles[COLLECTOR].cancelled++;
			c->waiting = false;
		} else {
			/* It has ended; its completion may be on its way. */
			while (c->waiting)
				reap(c);
		}
	}
	show_progress(c);
	close(epoll);
	close(timer);
	close(signals);
}

static void add_counts(struct counts *sum, const struct counts *counts)
{
	sum->notifies += counts->notifies;
	sum->woken += counts->woken;
	sum->ok += counts->ok;
	sum->not_equal += counts->not_equal;
	sum->timed_out += counts->timed_out;
}

static void print_counts(const char *role, const struct counts *counts)
{
	printf("  %-10s %9" PRIu64 " %9" PRIu64 " %9" PRIu64 " %9" PRIu64 " %9" PRIu64 "\n", role,
	       counts->notifies, counts->woken, counts->ok, counts->not_equal, counts->timed_out);
}

static bool report(struct collector *c, int workers, const struct table *expected)
{
	struct counts sum = { 0 }, all_workers = { 0 };
	bool good = true;
	int i;

	for (i = 0; i < workers; i++)
		add_counts(&all_workers, &c->shared->roles[FIRST_WORKER + i]);
	add_counts(&sum, &c->shared->roles[PRODUCER]);
	add_counts(&sum, &c->shared->roles[COLLECTOR]);
	add_counts(&sum, &all_workers);

	printf("\n%" PRIu64 " words, %zu distinct, in %.1f s. The most frequent:\n",
	       table_total(c->table), table_words(c->table), (double)(now() - c->started) / 1e9);
	table_print_most_frequent(c->table, 15);
	printf("\n  %-10s %9s %9s %9s %9s %9s\n", "", "notifies", "woken", "OK", "not equal",
	       "timed out");
	print_counts("producer", &c->shared->roles[PRODUCER]);
	print_counts("workers", &all_workers);
	print_counts("collector", &c->shared->roles[COLLECTOR]);
	print_counts("all", &sum);
	printf("  the collector's async waits: %" PRIu64 " queued, %" PRIu64 " cancelled\n\n",
	       c->shared->roles[COLLECTOR].pending, c->shared->roles[COLLECTOR].cancelled);

	if (sum.woken != sum.ok) {
		printf("demo: FAILED: %" PRIu64 " were woken, %" PRIu64 " saw OK\n", sum.woken,
		       sum.ok);
		good = false;
	} else {
		printf("demo: every waiter that a notify counted saw OK, and nobody else\n");
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
	const size_t longest = SLOT_SIZE - sizeof(uint64_t);
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
	c.fd = open_device();
	memfd = memfd_create("memwait-demo", MFD_CLOEXEC);
	if (memfd < 0 || ftruncate(memfd, sizeof(struct shared)))
		die("memfd");
	c.shared = map_shared(memfd, COLLECTOR);
	c.table = table_new();

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
	return report(&c, workers, expected) ? 0 : 1;
}
