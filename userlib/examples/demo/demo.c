// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Several processes that share a memfd count the words in a text, while some of them die. A
 * supervisor kills the workers at random and starts new workers, and the result is the same as the
 * result of a single process.
 *
 *	supervisor,      --pieces of the text-->  channel  -->  workers,    --words-->  table,
 *	an epoll loop						which block		with a mutex
 *
 * The state that a killed worker leaves behind, and how the other workers continue:
 *
 *	The mutex is robust. The next process that locks it gets EOWNERDEAD, and takes back the
 *	changes that the dead worker had begun in the table, see worker.c.
 *
 *	A piece that the worker had received is lost; the channel continues to work. For each piece,
 *	the table records whether it has been counted. When the channel is empty, the supervisor
 *	sends all other pieces again. It need not know which worker had received them, or whether a
 *	living worker is still counting one of them: a piece that is sent twice is counted once.
 *
 * The supervisor never blocks on any of these: it sends with memwait_channel_send_async(), and
 * looks at the table with memwait_mutex_execute_locked(). The loop's descriptor is in one epoll set
 * with two timers, one to look and one to kill, and a signalfd (children, ^C).
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

#include "demo.h"

#define ITEMS		64		/* in the channel; an item is the number of a piece */
#define LOOK_NS		100000000	/* 0.1 s */
#define KILL_NS		2000000		/* a kill is late by at most this time */
#define STUCK_S		60		/* after this time without a new piece, the demo fails */

static const char *const doings[DOINGS] = {
	[STARTING] = "had just been started",
	[RECEIVING] = "waited in the channel, or received a piece",
	[COUNTING] = "had a piece in hand, and split it into words",
	[LOCKING] = "had a piece in hand, and locked the mutex, waited for it, or unlocked it",
	[UPDATING] = "had a piece in hand, and the mutex, and changed the table",
};

struct supervisor {
	const char *text;
	size_t text_size;
	struct table *alone;		/* counted by a single process */
	int memfd;
	struct shared *shared;
	size_t shared_size;

	memwait_loop_t *loop;
	memwait_op_t look, send;
	uint32_t *to_send;		/* numbers of pieces */
	uint32_t pieces, planned, next;
	uint64_t sent, again;

	int workers, living;
	pid_t pids[MAX_WORKERS];
	bool dying[MAX_WORKERS];
	int timer, kill_timer;
	bool kill_is_due;
	unsigned int deaths, kills, died[DOINGS];

	bool quiet, finished;
	uint64_t seen;
	struct timespec started;
};

void die(const char *what)
{
	fprintf(stderr, "demo: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The library's functions return error numbers. */
void check(int error, const char *what)
{
	if (error) {
		errno = error;
		die(what);
	}
}

/* Each process maps the memfd at its own address. */
static struct shared *map_shared(const struct supervisor *s, size_t shift)
{
	char *place = mmap(NULL, s->shared_size + (shift << 16), PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct shared *shared;

	if (place == MAP_FAILED)
		die("mmap");
	shared = mmap(place + (shift << 16), s->shared_size, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_FIXED, s->memfd, 0);
	if (shared == MAP_FAILED)
		die("mmap of the memfd");
	return shared;
}

static void start(struct supervisor *s, int slot)
{
	pid_t parent = getpid(), pid;
	struct shared *shared;
	sigset_t none;

	s->shared->workers[slot].doing = STARTING;
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid) {
		s->pids[slot] = pid;
		s->dying[slot] = false;
		s->living++;
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		exit(1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGINT, SIG_IGN);	/* ^C is for the supervisor, which ends the workers */
	shared = map_shared(s, (size_t)slot + 1);
	work(shared, s->text, &shared->workers[slot]);
}

static double seconds(const struct supervisor *s)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - s->started.tv_sec) +
	       (double)(now.tv_nsec - s->started.tv_nsec) / 1e9;
}

/* The deaths are spread evenly over the pieces, but their moments are random. */
static void time_to_kill(struct supervisor *s)
{
	struct itimerspec once = { .it_value.tv_nsec = 1 + random() % KILL_NS };

	if (s->kill_is_due || s->kills == s->deaths || s->finished ||
	    s->sent * s->deaths < (uint64_t)s->pieces * (s->kills + 1))
		return;
	s->kill_is_due = true;
	timerfd_settime(s->kill_timer, 0, &once, NULL);
}

static void kill_one(struct supervisor *s)
{
	int slot = (int)(random() % s->workers);

	s->kill_is_due = false;
	if (s->finished)
		return;
	if (!s->dying[slot]) {
		kill(s->pids[slot], SIGKILL);
		s->dying[slot] = true;
		s->kills++;
	}
	time_to_kill(s);
}

/* The caller holds the mutex. Pieces that have not been counted must be sent. */
static void plan(struct supervisor *s)
{
	uint32_t i;

	s->next = 0;
	s->planned = 0;
	for (i = 0; i < s->pieces; i++)
		if (!s->shared->pieces[i].counted)
			s->to_send[s->planned++] = i;
}

/* Sends while there is room. Then begins an operation that sends when there is room again. */
static void send_pieces(struct supervisor *s)
{
	int error = 0;

	while (!error && s->next < s->planned) {
		error = memwait_channel_send_async(channel_of(s->shared),
						   &s->to_send[s->next++], sizeof(*s->to_send),
						   &s->send);
		s->sent++;
	}
	if (error != EINPROGRESS)
		check(error, "memwait_channel_send_async");
	time_to_kill(s);
}

static void has_sent(memwait_op_t *op, int result, void *data)
{
	(void)op;
	check(result, "memwait_channel_send_async");
	send_pieces(data);
}

/* Runs with the mutex locked. */
static void look(memwait_op_t *op, int result, void *data)
{
	struct supervisor *s = data;
	struct shared *shared = s->shared;

	(void)op;
	if (result == EOWNERDEAD)
		recover(shared);
	else
		check(result, "memwait_mutex_execute_locked");
	if (s->seen != shared->counted)
		alarm(STUCK_S);
	s->seen = shared->counted;
	if (!s->quiet) {
		printf("%6.1f s  pieces sent %8" PRIu64 "  counted %8" PRIu64 "  words %9" PRIu64
		       "  killed %4u\n", seconds(s), s->sent, s->seen,
		       table_of(shared)->total, s->kills);
		fflush(stdout);
	}
	if (s->finished)
		return;
	if (s->seen >= s->pieces) {
		s->finished = true;
		check(memwait_channel_close(channel_of(shared)), "memwait_channel_close");
	} else if (s->next == s->planned && !memwait_op_pending(&s->send) &&
		   !memwait_channel_length(channel_of(shared))) {
		/* Missing pieces were lost, except for pieces that living workers are counting. */
		plan(s);
		s->again += s->planned;
		send_pieces(s);
	}
}

static void ask_to_look(struct supervisor *s)
{
	int error = memwait_mutex_execute_locked(&s->shared->mutex, &s->look);

	/* EBUSY: the previous operation is still waiting for the mutex. */
	if (error != EINPROGRESS && error != EBUSY)
		check(error, "memwait_mutex_execute_locked");
}

static void dispatch(struct supervisor *s)
{
	int ret = memwait_loop_dispatch(s->loop, MEMWAIT_ALL);

	check(ret < 0 ? -ret : 0, "memwait_loop_dispatch");
}

static int slot_of(const struct supervisor *s, pid_t pid)
{
	int slot = 0;

	while (s->pids[slot] != pid)
		slot++;
	return slot;
}

static void bury(struct supervisor *s, int slot, int status)
{
	s->living--;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
		s->died[s->shared->workers[slot].doing]++;
		if (!s->finished)
			start(s, slot);
	} else if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "demo: a worker has failed\n");
		exit(1);
	}
}

static void take_signal(struct supervisor *s, int signals)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGALRM) {
			printf("demo: FAILED: nothing has been counted for %d s\n", STUCK_S);
			exit(1);
		}
		if (info.ssi_signo != SIGCHLD) {
			printf("demo: stopped by a signal\n");
			exit(130);	/* the children die with their parent */
		}
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			bury(s, slot_of(s, pid), status);
	}
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (fd < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		die("epoll");
}

static void run_loop(struct supervisor *s, int signals)
{
	struct itimerspec interval = { { 0, LOOK_NS }, { 0, LOOK_NS } };
	int epoll = epoll_create1(EPOLL_CLOEXEC), i, n;
	struct epoll_event events[4];
	uint64_t expirations;

	watch(epoll, memwait_loop_fd(s->loop));
	watch(epoll, s->timer);
	watch(epoll, s->kill_timer);
	watch(epoll, signals);
	timerfd_settime(s->timer, 0, &interval, NULL);
	send_pieces(s);
	while (s->living || memwait_loop_pending(s->loop)) {
		n = epoll_wait(epoll, events, 4, -1);
		if (n < 0 && errno != EINTR)
			die("epoll_wait");
		for (i = 0; i < n; i++) {
			int fd = events[i].data.fd;

			if (fd == signals)
				take_signal(s, signals);
			else if (fd == memwait_loop_fd(s->loop))
				dispatch(s);
			else if (read(fd, &expirations, sizeof(expirations)) < 0)
				continue;
			else if (fd == s->timer)
				ask_to_look(s);
			else
				kill_one(s);
		}
	}
	close(epoll);
}

static bool expect(bool good, const char *what)
{
	printf("demo: %s%s\n", good ? "" : "FAILED: not so: ", what);
	return good;
}

static bool report(struct supervisor *s)
{
	struct shared *shared = s->shared;
	struct table *table = table_of(shared);
	uint64_t pieces = 0, words = 0;
	unsigned int deaths = 0;
	bool good;
	int i;

	/* The last worker may have died while it held the mutex. */
	lock(shared);
	printf("\n%" PRIu64 " words, %" PRIu64 " distinct, in %.1f s. The most frequent:\n",
	       table->total, table->words, seconds(s));
	table_print_most_frequent(table, s->text, 15);
	printf("\n");
	for (i = 0; i < s->workers; i++) {
		printf("  worker  %2d  %8" PRIu64 " pieces  %9" PRIu64 " words\n", i + 1,
		       shared->workers[i].pieces, shared->workers[i].words);
		pieces += shared->workers[i].pieces;
		words += shared->workers[i].words;
	}
	for (i = 0; i < DOINGS; i++)
		deaths += s->died[i];
	printf("\n%u workers were killed, and others started in their place:\n", deaths);
	for (i = 0; i < DOINGS; i++)
		printf("  %8u  %s\n", s->died[i], doings[i]);
	printf("The mutex was found with a dead owner %" PRIu64 " times (EOWNERDEAD): %" PRIu64
	       " changes were taken back.\n", shared->owners_died, shared->taken_back);
	printf("%" PRIu64 " pieces were sent again, of which %" PRIu64 " had not been lost.\n\n",
	       s->again, shared->twice);

	good = expect(shared->owners_died >= s->died[UPDATING] && shared->owners_died <= deaths,
		      "each death with the mutex was told to the next who locked it");
	good &= expect(pieces == s->pieces && words == table->total,
		       "every piece was counted once");
	good &= expect(table_equal(s->alone, table, s->text),
		       "the result is that of a single process");
	unlock(shared);
	return good;
}

static void read_text(struct supervisor *s, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		die(path);
	if (st.st_size > UINT32_MAX) {
		errno = EFBIG;
		die(path);
	}
	s->text_size = (size_t)st.st_size;
	s->text = "";
	if (s->text_size)
		s->text = mmap(NULL, s->text_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (s->text == MAP_FAILED)
		die(path);
	close(fd);
}

/*
 * Returns the length of the lines that fit; if the first line is too long, of the words that fit.
 */
static size_t piece_length(const char *text, size_t left)
{
	size_t length = left < PIECE_SIZE ? left : PIECE_SIZE, words;
	const char *newline = memrchr(text, '\n', length);

	if (left == length)
		return length;
	if (newline)
		return (size_t)(newline - text) + 1;
	for (words = length; words > 0; words--)
		if (!is_word(text[words - 1]))
			return words;
	fprintf(stderr, "demo: the text has a word of more than %d bytes\n", PIECE_SIZE);
	exit(1);
}

/* Returns the number of pieces; stores them unless @pieces is NULL. */
static uint32_t split_text(const char *text, size_t size, struct piece *pieces)
{
	size_t at, length;
	uint32_t n = 0;

	for (at = 0; at < size; at += length) {
		length = piece_length(text + at, size - at);
		if (pieces)
			pieces[n].place = place_of(at, length);
		n++;
	}
	return n;
}

static size_t aligned(size_t size)
{
	return (size + 63) / 64 * 64;
}

static void set_up(struct supervisor *s)
{
	size_t channel_at, table_at;

	/* This also shows how large the table must be. */
	s->alone = table_of_text(s->text, s->text_size);
	s->pieces = split_text(s->text, s->text_size, NULL);
	channel_at = aligned(sizeof(struct shared) + s->pieces * sizeof(struct piece));
	table_at = channel_at + aligned(memwait_channel_size(sizeof(uint32_t), ITEMS));
	s->shared_size = table_at + table_bytes(s->alone->size);
	s->memfd = memfd_create("memwait-demo", MFD_CLOEXEC);
	if (s->memfd < 0 || ftruncate(s->memfd, (off_t)s->shared_size))
		die("memfd");
	s->shared = map_shared(s, 0);
	s->shared->channel_at = channel_at;
	s->shared->table_at = table_at;
	split_text(s->text, s->text_size, s->shared->pieces);
	table_of(s->shared)->size = s->alone->size;
	s->to_send = calloc(s->pieces + 1, sizeof(*s->to_send));
	if (!s->to_send)
		die("calloc");
	plan(s);

	check(-memwait_loop_new(&s->loop, 0), "/dev/memwait (modprobe memwait?)");
	check(memwait_mutex_init(&s->shared->mutex, MEMWAIT_MUTEX_ROBUST), "memwait_mutex_init");
	check(memwait_channel_init(channel_of(s->shared), table_at - channel_at, 0,
				   sizeof(uint32_t), ITEMS),
	      "memwait_channel_init");
	check(-memwait_op_init(&s->look, s->loop, look, s), "memwait_op_init");
	check(-memwait_op_init(&s->send, s->loop, has_sent, s), "memwait_op_init");
	s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	s->kill_timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	clock_gettime(CLOCK_MONOTONIC, &s->started);
	srandom((unsigned int)s->started.tv_nsec);
}

/* Set up before the first child is started, so that no child's end is missed. */
static int catch_signals(void)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGALRM);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	return signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
	struct supervisor s = { .workers = 3, .deaths = 200 };
	int option, signals, i;

	while ((option = getopt(argc, argv, "w:d:q")) != -1) {
		if (option == 'w')
			s.workers = atoi(optarg);
		else if (option == 'd')
			s.deaths = (unsigned int)atoi(optarg);
		else if (option == 'q')
			s.quiet = true;
		else
			s.workers = 0;
	}
	if (optind != argc - 1 || s.workers < 1 || s.workers > MAX_WORKERS) {
		fprintf(stderr, "Usage: %s [-w WORKERS] [-d DEATHS] [-q] TEXT\n", argv[0]);
		return 2;
	}
	read_text(&s, argv[optind]);
	set_up(&s);
	signals = catch_signals();
	alarm(STUCK_S);

	printf("Counting the words of %s (%zu bytes, %u pieces): %d workers, %u are to die\n",
	       argv[optind], s.text_size, s.pieces, s.workers, s.deaths);
	for (i = 0; i < s.workers; i++)
		start(&s, i);
	run_loop(&s, signals);
	return report(&s) ? 0 : 1;
}
