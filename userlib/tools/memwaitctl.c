// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * memwaitctl: shows waiters, their words and their owners; lets shell scripts wait and notify. See
 * memwaitctl(8).
 *
 * Waits and notifies use the device. Waiters and users are listed from debugfs, events from
 * tracefs. The path of a word's file is taken from the maps of a process that waits for the word.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <linux/magic.h>
#include <linux/memwait.h>

#define DEVICE		"/dev/memwait"
#define QUEUES		"/sys/kernel/debug/memwait/queues"
#define IDS		"/sys/kernel/debug/memwait/ids"
#define USERS		"/sys/kernel/debug/memwait/users"
#define LIMITS		"/sys/module/memwait/parameters/max_user_"
#define VERSION_FILE	"/sys/module/memwait/version"
#define TRACING		"/sys/kernel/tracing"

#define ONE_SECOND	1000000000ULL

enum {
	EXIT_NO = 1,		/* not equal, none woken, no waiters, deadlock */
	EXIT_TIMED_OUT = 2,
	EXIT_NO_DEVICE = 3,
	EXIT_ERROR = 4,
	EXIT_USAGE = 64,
};

static const char usage_text[] =
	"Usage: memwaitctl info\n"
	"       memwaitctl list [--json] [--word FILE:OFFSET] [--pid PID]\n"
	"       memwaitctl owners [--all]\n"
	"       memwaitctl users\n"
	"       memwaitctl top [--interval SECONDS] [--count N]\n"
	"       memwaitctl wait [--size BYTES] [--timeout SECONDS] FILE OFFSET VALUE\n"
	"       memwaitctl notify FILE OFFSET [COUNT|all]\n";

static _Noreturn void __attribute__((format(printf, 2, 3)))
fail(int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("memwaitctl: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(status);
}

static _Noreturn void usage(void)
{
	fputs(usage_text, stderr);
	exit(EXIT_USAGE);
}

static void *allocate(void *old, size_t nr, size_t size)
{
	void *new = reallocarray(old, nr, size);

	if (!new)
		fail(EXIT_ERROR, "out of memory");
	return new;
}

static char *copy_text(const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		fail(EXIT_ERROR, "out of memory");
	return copy;
}

/*
 * Length in bytes of the first UTF-8 character. 0: a control character or an invalid byte, which
 * must be escaped.
 */
static size_t printable(const char *text)
{
	static const uint32_t least[] = { 0, 0, 0xa0, 0x800, 0x10000 };
	const unsigned char *byte = (const unsigned char *)text;
	uint32_t character;
	size_t nr, i;

	if (*byte < 0x80)
		return *byte >= 0x20 && *byte != 0x7f;
	if (*byte < 0xc0 || *byte >= 0xf8)
		return 0;
	nr = *byte >= 0xf0 ? 4 : *byte >= 0xe0 ? 3 : 2;
	character = *byte & (0x7fU >> nr);
	for (i = 1; i < nr; i++) {
		if ((byte[i] & 0xc0) != 0x80)
			return 0;
		character = character << 6 | (byte[i] & 0x3f);
	}
	if (character < least[nr] || character > 0x10ffff ||
	    (character >= 0xd800 && character < 0xe000))
		return 0;
	return nr;
}

/* Escapes unprintable bytes of foreign names in octal for a terminal, as the kernel does. */
static const char *plain(const char *text, char *copy, size_t size)
{
	size_t used = 0, nr;

	while (*text && used + 5 <= size) {
		nr = printable(text);
		if (nr) {
			memcpy(copy + used, text, nr);
			text += nr;
			used += nr;
		} else {
			used += (size_t)snprintf(copy + used, 5, "\\%03o", (unsigned char)*text++);
		}
	}
	copy[used] = 0;
	return copy;
}

/* Parses a number in C syntax. */
static uint64_t number(const char *text, const char *what)
{
	uint64_t value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || *end || text[0] < '0' || text[0] > '9')
		fail(EXIT_USAGE, "%s: invalid value %s", what, text);
	return value;
}

/* Parses seconds; returns nanoseconds. */
static uint64_t seconds(const char *text, const char *what)
{
	double value;
	char *end;

	value = strtod(text, &end);
	if (end == text || *end || !(value >= 0) || value > 1e9)
		fail(EXIT_USAGE, "%s: invalid value %s", what, text);
	return (uint64_t)(value * (double)ONE_SECOND);
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * ONE_SECOND + (uint64_t)ts.tv_nsec;
}

/* The device */

/* Explains a negative error number from opening the device. */
static const char *device_hint(int error)
{
	switch (-error) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return "the module is not loaded (modprobe memwait), or a container lacks " DEVICE;
	case EACCES:
	case EPERM:
		return "denied by the mode of the file or the device rules of a container";
	case EMFILE:
		return "too many open files, or the user's limit max_user_contexts is reached";
	case ENOTTY:
		return "it belongs to another driver";
	case ENOSYS:
		return "the loaded module is too old (rmmod memwait, then modprobe memwait)";
	default:
		return "";
	}
}

/* Returns a descriptor and the result of INFO, or a negative errno. */
static int device_open(struct memwait_info *info)
{
	struct memwait_change change = { .reserved = 1 };
	int fd = open(DEVICE, O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	memset(info, 0, sizeof(*info));
	/* Like libmemwait: EINVAL shows that the call exists. */
	if (!ioctl(fd, MEMWAIT_IOC_INFO, info)) {
		ioctl(fd, MEMWAIT_IOC_CHANGE_NOTIFY, &change);
		if (errno == EINVAL)
			return fd;
		if (errno == ENOTTY)
			errno = ENOSYS;
	}
	err = -errno;
	close(fd);
	return err;
}

static int device(void)
{
	struct memwait_info info;
	int fd = device_open(&info);

	if (fd < 0)
		fail(EXIT_NO_DEVICE, DEVICE ": %s: %s", strerror(-fd), device_hint(fd));
	return fd;
}

static void read_line(const char *path, char *line, int size)
{
	FILE *f = fopen(path, "r");

	if (!f || !fgets(line, size, f))
		snprintf(line, (size_t)size, "unknown");
	line[strcspn(line, "\n")] = 0;
	if (f)
		fclose(f);
}

static void show_limit(const char *what, uint64_t used, uint64_t limit)
{
	printf("%-14s%" PRIu64 " / %" PRIu64 "\n", what, used, limit);
}

static int do_info(int argc, char **argv)
{
	struct memwait_info info;
	char version[64];
	struct stat st;
	int fd;

	(void)argv;
	if (argc != 1)
		usage();
	read_line(VERSION_FILE, version, sizeof(version));
	printf("module:       %s\n", version);
	if (!stat(DEVICE, &st))
		printf("device:       " DEVICE ", %u:%u, mode %04o\n", major(st.st_rdev),
		       minor(st.st_rdev), st.st_mode & 07777);
	fd = device_open(&info);
	if (fd < 0) {
		printf("usable:       no: %s: %s\n", strerror(-fd), device_hint(fd));
		return EXIT_NO_DEVICE;
	}
	printf("usable:       yes\n");
	printf("features:    %s%s\n",
	       info.features & MEMWAIT_FEATURE_WAIT_U64 ? " words of 64 bits" : "",
	       info.features & MEMWAIT_FEATURE_OWNERS ? ", owners" : "");
	printf("limits of this user (used / maximum):\n");
	show_limit("  async waits", info.user_waits, info.max_user_waits);
	show_limit("  contexts", info.user_contexts, info.max_user_contexts);
	show_limit("  owners", info.user_owners, info.max_user_owners);
	printf("words in one wait: at most %u\n", info.max_group);
	close(fd);
	return 0;
}

/* Words */

struct mapped {
	void *page;
	char *word;
};

/* Maps the word in a file read-only. */
static struct mapped map_word(const char *file, uint64_t offset, unsigned int size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct mapped mapped;
	struct statfs fs;
	struct stat st;
	int fd = open(file, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) || fstatfs(fd, &fs))
		fail(EXIT_ERROR, "%s: %s", file, strerror(errno));
	if (offset % size)
		fail(EXIT_USAGE, "OFFSET must be a multiple of %u", size);
	if (offset > (uint64_t)INT64_MAX - size || offset + size > (uint64_t)st.st_size)
		fail(EXIT_ERROR, "%s: OFFSET is beyond the end of the file", file);
	if ((uint32_t)fs.f_type == HUGETLBFS_MAGIC)
		page = (uint64_t)fs.f_bsize;
	mapped.page = mmap(NULL, (size_t)page, PROT_READ, MAP_SHARED, fd,
			   (off_t)(offset - offset % page));
	if (mapped.page == MAP_FAILED)
		fail(EXIT_ERROR, "%s: %s", file, strerror(errno));
	close(fd);
	mapped.word = (char *)mapped.page + offset % page;
	return mapped;
}

static uint32_t size_flag(uint64_t size)
{
	switch (size) {
	case 1:
		return MEMWAIT_SIZE_U8;
	case 2:
		return MEMWAIT_SIZE_U16;
	case 4:
		return MEMWAIT_SIZE_U32;
	case 8:
		return MEMWAIT_SIZE_U64;
	default:
		fail(EXIT_USAGE, "--size must be 1, 2, 4 or 8");
	}
}

static int do_wait(int argc, char **argv)
{
	static const struct option options[] = {
		{ "size", required_argument, NULL, 's' },
		{ "timeout", required_argument, NULL, 't' },
		{ 0 }
	};
	struct memwait_wait wait = { .deadline = MEMWAIT_FOREVER };
	uint64_t size = 4, span;
	int option, ret;

	while ((option = getopt_long(argc, argv, "+s:t:", options, NULL)) != -1) {
		if (option == 's') {
			size = number(optarg, "--size");
		} else if (option == 't') {
			span = seconds(optarg, "--timeout");
			wait.deadline = now() + span;
		} else {
			usage();
		}
	}
	if (argc - optind != 3)
		usage();
	wait.flags = size_flag(size);
	wait.expected = number(argv[optind + 2], "VALUE");
	if (size < 8 && wait.expected >> 8 * size)
		fail(EXIT_USAGE, "VALUE does not fit into %u bytes", (unsigned int)size);
	wait.addr = (uintptr_t)map_word(argv[optind], number(argv[optind + 1], "OFFSET"),
					(unsigned int)size).word;
	ret = ioctl(device(), MEMWAIT_IOC_WAIT, &wait);
	switch (ret) {
	case MEMWAIT_OK:
		return 0;
	case MEMWAIT_NOT_EQUAL:
		return EXIT_NO;
	case MEMWAIT_TIMED_OUT:
		return EXIT_TIMED_OUT;
	default:
		fail(EXIT_ERROR, "%s: %s", argv[optind], strerror(errno));
	}
}

static int do_notify(int argc, char **argv)
{
	struct memwait_notify notify = { .count = 1, .flags = MEMWAIT_SIZE_U8 };
	uint64_t count;
	int ret;

	if (argc < 3 || argc > 4)
		usage();
	if (argc == 4 && !strcmp(argv[3], "all")) {
		notify.count = MEMWAIT_ALL;
	} else if (argc == 4) {
		count = number(argv[3], "COUNT");
		if (count > MEMWAIT_ALL)
			fail(EXIT_USAGE, "COUNT is too large");
		notify.count = (uint32_t)count;
	}
	notify.addr = (uintptr_t)map_word(argv[1], number(argv[2], "OFFSET"), 1).word;
	ret = ioctl(device(), MEMWAIT_IOC_NOTIFY, &notify);
	if (ret < 0)
		fail(EXIT_ERROR, "%s: %s", argv[1], strerror(errno));
	printf("%d\n", ret);
	return ret ? 0 : EXIT_NO;
}

/* Waiters */

enum { WORD, KIND, PID, TID, CONTEXT, ID, WAITED, LEFT, SELF, OWNER, OWNER_TID, COMMAND, COLUMNS };

static const char * const column_names[COLUMNS] = {
	"word", "kind", "pid", "tid", "context", "id", "waited_ms", "left_ms", "self", "owner",
	"owner_tid", "command",
};

struct row {
	char *line;
	char *column[COLUMNS];
};

struct rows {
	size_t nr;
	struct row *row;
};

/* Returns the number in a column, or 0. */
static uint64_t value(const struct row *row, int column)
{
	return strtoull(row->column[column], NULL, 10);
}

#define MOST_COLUMNS	32

/* Splits a line of a list at its tabs. Returns the number of fields. */
static int split_fields(char *line, char **field)
{
	int nr = 0;

	line[strcspn(line, "\n")] = 0;
	while (line && nr < MOST_COLUMNS)
		field[nr++] = strsep(&line, "\t");
	return nr;
}

/* Splits a line in the header's column order. Returns false if a column is missing. */
static bool split(struct row *row, const int *order, int nr)
{
	char *field[MOST_COLUMNS];
	int nr_fields = split_fields(row->line, field), i;

	memset(row->column, 0, sizeof(row->column));
	for (i = 0; i < nr && i < nr_fields; i++) {
		if (order[i] >= 0)
			row->column[order[i]] = field[i];
	}
	for (i = 0; i < COLUMNS; i++) {
		if (!row->column[i])
			return false;
	}
	return true;
}

static int read_header(char *line, int *order)
{
	char *field[MOST_COLUMNS];
	int nr = split_fields(line, field), k, i;

	for (k = 0; k < nr; k++) {
		order[k] = -1;
		for (i = 0; i < COLUMNS; i++) {
			if (!strcmp(field[k], column_names[i]))
				order[k] = i;
		}
	}
	return nr;
}

static FILE *open_list(const char *path)
{
	FILE *f = fopen(path, "r");

	if (!f)
		fail(EXIT_ERROR, "%s: %s: %s", path, strerror(errno), errno == ENOENT ?
		     "the module is not loaded, or debugfs is not mounted" :
		     "only root can read it");
	return f;
}

static struct rows read_queues(void)
{
	struct rows rows = { 0 };
	size_t size = 0, room = 0;
	int order[MOST_COLUMNS], nr = 0;
	char *line = NULL;
	FILE *f = open_list(QUEUES);

	while (getline(&line, &size, f) > 0) {
		if (!nr) {
			nr = read_header(line, order);
			continue;
		}
		if (rows.nr == room) {
			room = room ? 2 * room : 64;
			rows.row = allocate(rows.row, room, sizeof(*rows.row));
		}
		rows.row[rows.nr].line = copy_text(line);
		if (split(&rows.row[rows.nr], order, nr))
			rows.nr++;
		else
			free(rows.row[rows.nr].line);
	}
	if (ferror(f))
		fail(EXIT_ERROR, QUEUES ": %s", strerror(errno));
	free(line);
	fclose(f);
	return rows;
}

static void free_rows(struct rows *rows)
{
	size_t i;

	for (i = 0; i < rows->nr; i++)
		free(rows->row[i].line);
	free(rows->row);
}

/*
 * Parses a line of /proc/PID/maps. Stores the device and inode in @name, in the notation of words.
 * Returns the file's path, or NULL.
 */
static const char *parse_map(char *line, char *name, size_t size)
{
	char *rest = line, *field[5];
	unsigned long maj, min;
	int i;

	line[strcspn(line, "\n")] = 0;
	for (i = 0; i < 5; i++) {
		field[i] = strsep(&rest, " ");
		if (!field[i])
			return NULL;
	}
	maj = strtoul(field[3], &rest, 16);
	if (*rest != ':')
		return NULL;
	min = strtoul(rest + 1, NULL, 16);
	snprintf(name, size, "%lu:%lu:%s", maj, min, field[4]);
	rest = field[4] + strlen(field[4]) + 1;
	rest += strspn(rest, " ");
	return *rest ? rest : NULL;
}

/* Cache: a file's name in words, and its path or NULL. */
struct file {
	char *name;
	char *path;
};

static struct file *files;
static size_t nr_files;

/* Returns the path of a word's file from the maps of its waiter's process, or NULL. */
static const char *path_of(const struct row *row)
{
	char name[64], found[64], maps[64], *line = NULL;
	const char *word = row->column[WORD], *path = NULL, *end = strrchr(word, ':');
	size_t size = 0, i;
	FILE *f;

	if (!end || !strncmp(word, "0:0:", 4))
		return NULL;
	snprintf(name, sizeof(name), "%.*s", (int)(end - word), word);
	for (i = 0; i < nr_files; i++) {
		if (!strcmp(files[i].name, name))
			return files[i].path;
	}
	snprintf(maps, sizeof(maps), "/proc/%s/maps", row->column[PID]);
	f = fopen(maps, "r");
	while (f && !path && getline(&line, &size, f) > 0) {
		path = parse_map(line, found, sizeof(found));
		if (path && strcmp(found, name))
			path = NULL;
	}
	if (f)
		fclose(f);
	files = allocate(files, nr_files + 1, sizeof(*files));
	files[nr_files].name = copy_text(name);
	files[nr_files].path = path ? copy_text(path) : NULL;
	free(line);
	return files[nr_files++].path;
}

static const char *offset_of(const struct row *row)
{
	const char *end = strrchr(row->column[WORD], ':');

	return end ? end + 1 : "";
}

/* Formats a word, with the path of its file if the path is known. */
static void word_text(const struct row *row, char *text, size_t size)
{
	const char *path = path_of(row);
	char copy[4096];

	if (path)
		snprintf(text, size, "%s:%s", plain(path, copy, sizeof(copy)), offset_of(row));
	else if (!strncmp(row->column[WORD], "0:0:", 4))
		snprintf(text, size, "process %s", row->column[WORD] + 4);
	else
		snprintf(text, size, "%s", row->column[WORD]);
}

/* Converts FILE:OFFSET to the kernel's name of the word. */
static void name_word(const char *given, char *name, size_t size)
{
	char *file = copy_text(given), *colon = strrchr(file, ':'), *line = NULL, start[32];
	size_t length = 0;
	uint64_t offset;
	FILE *f;

	if (!colon)
		fail(EXIT_USAGE, "--word: %s is not FILE:OFFSET", given);
	*colon = 0;
	offset = number(colon + 1, "OFFSET");
	snprintf(start, sizeof(start), "%08lx-", (unsigned long)map_word(file, offset, 1).page);
	f = fopen("/proc/self/maps", "r");
	while (f && getline(&line, &length, f) > 0) {
		if (!strncmp(line, start, strlen(start)) && parse_map(line, name, size)) {
			snprintf(name + strlen(name), size - strlen(name), ":0x%" PRIx64, offset);
			fclose(f);
			free(line);
			free(file);
			return;
		}
	}
	fail(EXIT_ERROR, "%s: not found in /proc/self/maps", file);
}

static void json_text(const char *text)
{
	size_t nr;

	putchar('"');
	while (*text) {
		nr = printable(text);
		if (!nr) {
			printf("\\u%04x", (unsigned char)*text++);
			continue;
		}
		if (*text == '"' || *text == '\\')
			putchar('\\');
		fwrite(text, 1, nr, stdout);
		text += nr;
	}
	putchar('"');
}

static void json_row(const struct row *row, bool first)
{
	const char *path = path_of(row);
	int i;

	printf("%s\n  {", first ? "" : ",");
	for (i = 0; i < COLUMNS; i++) {
		printf("%s\"%s\": ", i ? ", " : "", column_names[i]);
		if (!strcmp(row->column[i], "-"))
			printf("null");
		else if (i == WORD || i == KIND || i == COMMAND)
			json_text(row->column[i]);
		else
			printf("%s", row->column[i]);
	}
	printf(", \"path\": ");
	if (path)
		json_text(path);
	else
		printf("null");
	printf(", \"offset\": ");
	json_text(offset_of(row));
	printf("}");
}

static int do_list(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "word", required_argument, NULL, 'w' },
		{ "pid", required_argument, NULL, 'p' },
		{ 0 }
	};
	char word[96] = "", text[4096], command[64];
	bool json = false, any = false, by_pid = false;
	struct rows rows;
	uint64_t pid = 0;
	int option;
	size_t i;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'j') {
			json = true;
		} else if (option == 'w') {
			name_word(optarg, word, sizeof(word));
		} else if (option == 'p') {
			pid = number(optarg, "--pid");
			by_pid = true;
		} else {
			usage();
		}
	}
	if (argc != optind)
		usage();
	rows = read_queues();
	if (json)
		printf("[");
	for (i = 0; i < rows.nr; i++) {
		const struct row *row = &rows.row[i];

		if ((*word && strcmp(word, row->column[WORD])) ||
		    (by_pid && value(row, PID) != pid))
			continue;
		if (json) {
			json_row(row, !any);
		} else {
			if (!any)
				printf("%-7s %7s %7s %-15s %10s %10s  %s\n", "KIND", "PID", "TID",
				       "COMMAND", "WAITED_MS", "LEFT_MS", "WORD");
			word_text(row, text, sizeof(text));
			printf("%-7s %7s %7s %-15s %10s %10s  %s\n", row->column[KIND],
			       row->column[PID], row->column[TID],
			       plain(row->column[COMMAND], command, sizeof(command)),
			       row->column[WAITED], row->column[LEFT], text);
		}
		any = true;
	}
	if (json)
		printf("%s]\n", any ? "\n" : "");
	free_rows(&rows);
	return any ? 0 : EXIT_NO;
}

/* Owners */

/* Returns the row of the thread with owner id @id that waits for another owner, or NULL. */
static const struct row *waits_as(const struct rows *rows, uint64_t id)
{
	size_t i;

	for (i = 0; i < rows->nr; i++) {
		if (id && value(&rows->row[i], SELF) == id && value(&rows->row[i], TID) &&
		    value(&rows->row[i], OWNER))
			return &rows->row[i];
	}
	return NULL;
}

/*
 * Returns true if a thread waits, directly or through other threads, for itself. A thread waits for
 * one owner at a time, so there is one chain. @least: the lowest id in the cycle, so that each
 * cycle is reported once.
 */
static bool is_deadlocked(const struct rows *rows, const struct row *row, uint64_t *least)
{
	uint64_t self = value(row, SELF), id = value(row, OWNER);
	size_t steps;

	*least = self;
	for (steps = 0; steps <= rows->nr && self; steps++) {
		if (id == self)
			return true;
		if (id < *least)
			*least = id;
		row = waits_as(rows, id);
		if (!row)
			return false;
		id = value(row, OWNER);
	}
	return false;
}

/* Returns true if the same thread is still waiting on the same word for the same owner. */
static bool waits_still(const struct rows *rows, const struct row *row)
{
	const struct row *later = waits_as(rows, value(row, SELF));

	return later && !strcmp(later->column[WORD], row->column[WORD]) &&
	       value(later, OWNER) == value(row, OWNER) &&
	       value(later, WAITED) >= value(row, WAITED);
}

static void show_waiter(const struct row *row)
{
	char text[4096], command[64];

	word_text(row, text, sizeof(text));
	plain(row->column[COMMAND], command, sizeof(command));
	if (value(row, TID))
		printf("  thread %s (%s, process %s)", row->column[TID], command,
		       row->column[PID]);
	else
		printf("  context %s (%s, process %s)", row->column[CONTEXT], command,
		       row->column[PID]);
	printf(" has waited %s ms for %s\n", row->column[WAITED], text);
}

static void show_owner(const struct row *row)
{
	char path[64], command[64], copy[64];

	if (!value(row, OWNER_TID)) {
		printf("owner %s (a context):\n", row->column[OWNER]);
		return;
	}
	snprintf(path, sizeof(path), "/proc/%s/comm", row->column[OWNER_TID]);
	read_line(path, command, sizeof(command));
	printf("owner %s (thread %s, %s):\n", row->column[OWNER], row->column[OWNER_TID],
	       plain(command, copy, sizeof(copy)));
}

/* Reports the cycle that starts at @row. Returns false if the cycle no longer exists. */
static bool show_deadlock(const struct rows *rows, const struct rows *later, const struct row *row)
{
	const struct row *first = row;

	do {
		if (!waits_still(later, row))
			return false;
		row = waits_as(rows, value(row, OWNER));
	} while (row != first);
	printf("deadlock:\n");
	do {
		show_waiter(row);
		printf("    held by thread %s\n", row->column[OWNER_TID]);
		row = waits_as(rows, value(row, OWNER));
	} while (row != first);
	return true;
}

/* Lists all ids. Each id prevents the module from being unloaded. */
static int show_all(void)
{
	char *line = NULL, *field[MOST_COLUMNS], command[64];
	FILE *f = open_list(IDS);
	size_t size = 0;
	int lines;

	for (lines = 0; getline(&line, &size, f) > 0; lines++) {
		if (split_fields(line, field) < 5)
			fail(EXIT_ERROR, IDS ": unknown format");
		if (lines == 1)
			printf("%-7s %7s %7s %-15s  %s\n", "KIND", "PID", "TID", "COMMAND", "ID");
		if (lines)
			printf("%-7s %7s %7s %-15s  %s\n", field[1], field[2], field[3],
			       plain(field[4], command, sizeof(command)), field[0]);
	}
	if (ferror(f))
		fail(EXIT_ERROR, IDS ": %s", strerror(errno));
	free(line);
	fclose(f);
	return lines > 1 ? 0 : EXIT_NO;
}

static int do_owners(int argc, char **argv)
{
	static const struct option options[] = {
		{ "all", no_argument, NULL, 'a' },
		{ 0 }
	};
	const struct timespec pause = { .tv_nsec = 100000000 };
	bool deadlock = false, any = false, told;
	struct rows rows, later;
	int option;
	uint64_t least;
	size_t i, k;

	option = getopt_long(argc, argv, "", options, NULL);
	if ((option != -1 && option != 'a') || argc != optind)
		usage();
	if (option == 'a')
		return show_all();
	/* Read the list twice, because only a persistent cycle is a deadlock. */
	rows = read_queues();
	nanosleep(&pause, NULL);
	later = read_queues();
	for (i = 0; i < rows.nr; i++) {
		if (!value(&rows.row[i], OWNER))
			continue;
		any = true;
		told = false;
		for (k = 0; k < i && !told; k++)
			told = value(&rows.row[k], OWNER) == value(&rows.row[i], OWNER);
		if (told)
			continue;
		show_owner(&rows.row[i]);
		for (k = i; k < rows.nr; k++) {
			if (value(&rows.row[k], OWNER) == value(&rows.row[i], OWNER))
				show_waiter(&rows.row[k]);
		}
	}
	if (!any)
		printf("no waiter names an owner\n");
	for (i = 0; i < rows.nr; i++) {
		const struct row *row = waits_as(&rows, value(&rows.row[i], SELF));

		if (row == &rows.row[i] && is_deadlocked(&rows, row, &least) &&
		    least == value(row, SELF) && show_deadlock(&rows, &later, row))
			deadlock = true;
	}
	free_rows(&rows);
	free_rows(&later);
	return deadlock ? EXIT_NO : 0;
}

/* Users */

static void show_fields(char **field, int nr)
{
	int i;

	for (i = 0; i < nr; i++)
		printf("%s%10s", i ? " " : "", field[i]);
	putchar('\n');
}

/* Shows the limit of each column that has a limit, and then the names of the columns. */
static void show_limits(char **name, int nr)
{
	char path[96], limit[32], *c;
	int i;

	printf("%10s", "limit");
	for (i = 1; i < nr; i++) {
		snprintf(path, sizeof(path), LIMITS "%s", name[i]);
		if (access(path, R_OK))
			snprintf(limit, sizeof(limit), "-");
		else
			read_line(path, limit, sizeof(limit));
		printf(" %10s", limit);
	}
	putchar('\n');
	for (i = 0; i < nr; i++) {
		for (c = name[i]; *c; c++)
			*c = (char)toupper((unsigned char)*c);
	}
	show_fields(name, nr);
}

static int do_users(int argc, char **argv)
{
	char *header = NULL, *line = NULL, *name[MOST_COLUMNS], *field[MOST_COLUMNS];
	size_t header_size = 0, size = 0;
	bool any = false;
	int nr = 0;
	FILE *f;

	(void)argv;
	if (argc != 1)
		usage();
	f = open_list(USERS);
	if (getline(&header, &header_size, f) > 0)
		nr = split_fields(header, name);
	while (getline(&line, &size, f) > 0) {
		if (!any)
			show_limits(name, nr);
		show_fields(field, split_fields(line, field));
		any = true;
	}
	if (ferror(f))
		fail(EXIT_ERROR, USERS ": %s", strerror(errno));
	free(header);
	free(line);
	fclose(f);
	return any ? 0 : EXIT_NO;
}

/* Events */

struct word_use {
	char word[96];
	uint64_t notifies;
	uint64_t woken;
	uint64_t waits;
	uint64_t waited_ns;
	uint64_t longest_ns;
};

static char instance[96];
static int events = -1;
static volatile sig_atomic_t stopped;

/* rmdir() fails while trace_pipe is open. */
static void remove_instance(void)
{
	if (events >= 0)
		close(events);
	rmdir(instance);
}

static void stop(int sig)
{
	(void)sig;
	stopped = 1;
}

static void set_event(const char *event)
{
	char path[192];
	int fd;

	snprintf(path, sizeof(path), "%s/events/memwait/%s/enable", instance, event);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "1", 1) != 1)
		fail(EXIT_ERROR, "%s: %s", path, strerror(errno));
	close(fd);
}

static void open_events(void)
{
	struct sigaction action = { .sa_handler = stop };
	char path[128];

	/*
	 * No signal may end the program before it has removed the instance, which would continue to
	 * record.
	 */
	sigaction(SIGHUP, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGPIPE, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	snprintf(instance, sizeof(instance), TRACING "/instances/memwaitctl-%d", getpid());
	if (mkdir(instance, 0700))
		fail(EXIT_ERROR, "%s: %s: tracefs is not mounted, or the user is not root",
		     instance, strerror(errno));
	atexit(remove_instance);
	snprintf(path, sizeof(path), "%s/trace_pipe", instance);
	events = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (events < 0)
		fail(EXIT_ERROR, "%s: %s", path, strerror(errno));
	set_event("memwait_notify");
	set_event("memwait_wait_end");
	set_event("memwait_async_complete");
}

static struct word_use *find_use(struct word_use **uses, size_t *nr, const char *word)
{
	size_t length = strcspn(word, " "), i;

	for (i = 0; i < *nr; i++) {
		if (!strncmp((*uses)[i].word, word, length) && !(*uses)[i].word[length])
			return &(*uses)[i];
	}
	*uses = allocate(*uses, *nr + 1, sizeof(**uses));
	memset(&(*uses)[*nr], 0, sizeof(**uses));
	snprintf((*uses)[*nr].word, sizeof((*uses)[*nr].word), "%.*s", (int)length, word);
	return &(*uses)[(*nr)++];
}

static uint64_t field(const char *event, const char *name)
{
	const char *at = strstr(event, name);

	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* Parses a trace line. It begins with a process name, which may contain anything. */
static void count_event(struct word_use **uses, size_t *nr, const char *line)
{
	const char *event = NULL, *next = line, *word;
	struct word_use *use;
	uint64_t waited;

	while ((next = strstr(next, ": memwait_")))
		event = next++;
	word = event ? strstr(event, " word=") : NULL;
	if (!word)
		return;
	use = find_use(uses, nr, word + strlen(" word="));
	if (!strncmp(event, ": memwait_notify:", 17)) {
		use->notifies++;
		use->woken += field(event, " woken=");
		return;
	}
	waited = field(event, " waited_ns=");
	use->waits++;
	use->waited_ns += waited;
	if (waited > use->longest_ns)
		use->longest_ns = waited;
}

static int compare_uses(const void *a, const void *b)
{
	const struct word_use *one = a, *two = b;
	uint64_t first = one->notifies + one->waits, second = two->notifies + two->waits;

	return first < second ? 1 : -(first > second);
}

static void show_uses(struct word_use *uses, size_t nr, bool clear)
{
	size_t i;

	if (clear)
		printf("\033[H\033[2J");
	qsort(uses, nr, sizeof(*uses), compare_uses);
	printf("%10s %10s %10s %12s %12s  %s\n", "NOTIFIES", "WOKEN", "WAITS", "WAITED_MS",
	       "LONGEST_MS", "WORD");
	for (i = 0; i < nr && i < 20; i++)
		printf("%10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %12.3f %12.3f  %s\n",
		       uses[i].notifies, uses[i].woken, uses[i].waits,
		       (double)uses[i].waited_ns / 1e6, (double)uses[i].longest_ns / 1e6,
		       uses[i].word);
	fflush(stdout);
}

/* Reads recorded events until @until. */
static void read_events(struct word_use **uses, size_t *nr, uint64_t until)
{
	static char buffer[65536];
	static size_t length;
	const struct timespec pause = { .tv_nsec = 20000000 };
	char *line, *end;
	ssize_t n;

	while (!stopped && now() < until) {
		n = read(events, buffer + length, sizeof(buffer) - 1 - length);
		if (n <= 0) {
			/* poll() on trace_pipe returns late. */
			nanosleep(&pause, NULL);
			continue;
		}
		length += (size_t)n;
		buffer[length] = 0;
		for (line = buffer; (end = strchr(line, '\n')); line = end + 1) {
			*end = 0;
			count_event(uses, nr, line);
		}
		length = strlen(line);
		if (length == sizeof(buffer) - 1)
			length = 0;
		memmove(buffer, line, length);
	}
}

static int do_top(int argc, char **argv)
{
	static const struct option options[] = {
		{ "interval", required_argument, NULL, 'i' },
		{ "count", required_argument, NULL, 'c' },
		{ 0 }
	};
	uint64_t interval = 2 * ONE_SECOND, count = UINT64_MAX, i;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'i')
			interval = seconds(optarg, "--interval");
		else if (option == 'c')
			count = number(optarg, "--count");
		else
			usage();
	}
	if (argc != optind || !interval)
		usage();
	open_events();
	for (i = 0; i < count && !stopped && !ferror(stdout); i++) {
		struct word_use *uses = NULL;
		size_t nr = 0;

		read_events(&uses, &nr, now() + interval);
		show_uses(uses, nr, isatty(STDOUT_FILENO));
		free(uses);
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} commands[] = {
		{ "info", do_info },
		{ "list", do_list },
		{ "owners", do_owners },
		{ "users", do_users },
		{ "top", do_top },
		{ "wait", do_wait },
		{ "notify", do_notify },
		{ NULL, NULL },
	};
	int status;
	size_t i;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		fputs(usage_text, stdout);
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		puts("memwaitctl " VERSION);
		return 0;
	}
	for (i = 0; argc > 1 && commands[i].name; i++) {
		if (!strcmp(argv[1], commands[i].name)) {
			status = commands[i].run(argc - 1, argv + 1);
			if (fflush(stdout) || ferror(stdout))
				fail(EXIT_ERROR, "standard output: write error");
			return status;
		}
	}
	usage();
}
