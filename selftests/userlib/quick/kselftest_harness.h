/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The macros of the kernel's test harness that the tests of the library use, for machines without a
 * kernel source; see Documentation/dev-tools/kselftest.rst in the kernel for their meaning. Each
 * test runs in its own process, and in a process group of its own, which is killed at the end.
 *
 * A program prints TAP. With -l it prints the names of its tests instead. The environment variable
 * QUICK_LIMIT is the time limit of a test in seconds. QUICK_SKIP has lines of a test's name and a
 * reason. With QUICK_STOP the program ends after the first failure.
 */
#ifndef QUICK_HARNESS_H
#define QUICK_HARNESS_H

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define __printf(a, b)	__attribute__((format(printf, a, b)))

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))

/* The part of a running test that is shared with its children. */
struct __test_metadata {
	const char *name;
	jmp_buf end;
	bool may_end;		/* .end is set: the fixture is set up */
	bool failed, skipped, trigger;
	char reason[256];
};

static inline bool __test_passed(const struct __test_metadata *metadata)
{
	return !metadata->failed;
}

struct quick_variant {
	struct quick_variant *next;
	const char *fixture, *name;
	const void *data;
};

struct quick_test {
	struct quick_test *next;
	const char *fixture, *name;
	void (*run)(struct __test_metadata *_metadata, const void *variant);
};

static struct quick_test *quick_tests, **quick_last_test = &quick_tests;
static struct quick_variant *quick_variants, **quick_last_variant = &quick_variants;

#define ksft_print_msg(...)	(printf("# "), printf(__VA_ARGS__))

#define TH_LOG(format, ...)							\
	fprintf(stderr, "# %s:%d:%s: " format "\n", __FILE__, __LINE__, _metadata->name,	\
		##__VA_ARGS__)

#define SKIP(statement, ...) do {						\
	snprintf(_metadata->reason, sizeof(_metadata->reason), __VA_ARGS__);	\
	_metadata->skipped = true;						\
	statement;								\
} while (0)

#define FIXTURE_DATA(fixture)		struct fixture_##fixture
#define FIXTURE_VARIANT(fixture)	struct variant_of_##fixture
#define FIXTURE(fixture)		FIXTURE_VARIANT(fixture); FIXTURE_DATA(fixture)

#define QUICK_PARAMETERS(fixture)							\
	struct __test_metadata __attribute__((unused)) *_metadata,			\
	FIXTURE_DATA(fixture) __attribute__((unused)) *self,				\
	const FIXTURE_VARIANT(fixture) __attribute__((unused)) *variant

#define FIXTURE_SETUP(fixture)								\
	static void __attribute__((unused)) fixture##_setup(QUICK_PARAMETERS(fixture))
#define FIXTURE_TEARDOWN(fixture)							\
	static void __attribute__((unused)) fixture##_teardown(QUICK_PARAMETERS(fixture))

#define FIXTURE_VARIANT_ADD(fixture_, name_)						\
	static const FIXTURE_VARIANT(fixture_) fixture_##_##name_##_data;		\
	static void __attribute__((constructor)) add_##fixture_##_##name_(void)		\
	{										\
		static struct quick_variant it = {					\
			.fixture = #fixture_, .name = #name_,				\
			.data = &fixture_##_##name_##_data,				\
		};									\
											\
		*quick_last_variant = &it;						\
		quick_last_variant = &it.next;						\
	}										\
	static const FIXTURE_VARIANT(fixture_) fixture_##_##name_##_data =

/* As in the kernel, the fixture is torn down even if an assertion of the test has failed. */
#define TEST_F_TIMEOUT(fixture_, name_, timeout)					\
	static void fixture_##_##name_(QUICK_PARAMETERS(fixture_));			\
	static void run_##fixture_##_##name_(struct __test_metadata *_metadata,		\
					     const void *variant)			\
	{										\
		static FIXTURE_DATA(fixture_) self;					\
											\
		fixture_##_setup(_metadata, &self, variant);				\
		if (_metadata->failed || _metadata->skipped)				\
			return;								\
		_metadata->may_end = true;						\
		if (!setjmp(_metadata->end))						\
			fixture_##_##name_(_metadata, &self, variant);			\
		_metadata->may_end = false;						\
		fixture_##_teardown(_metadata, &self, variant);				\
	}										\
	static void __attribute__((constructor)) add_##fixture_##_##name_##_test(void)	\
	{										\
		static struct quick_test it = {						\
			.fixture = #fixture_, .name = #name_,				\
			.run = run_##fixture_##_##name_,				\
		};									\
											\
		*quick_last_test = &it;							\
		quick_last_test = &it.next;						\
	}										\
	static void fixture_##_##name_(QUICK_PARAMETERS(fixture_))

#define TEST_F(fixture, name)	TEST_F_TIMEOUT(fixture, name, 30)

/* After a failure the statement that follows the macro runs, and an assertion ends the test. */
static inline void quick_bail(struct __test_metadata *_metadata, bool is_assertion)
{
	_metadata->trigger = false;
	if (!is_assertion)
		return;
	if (!_metadata->may_end)
		_exit(1);
	longjmp(_metadata->end, 1);
}

#define QUICK_FAIL_UNLESS(condition, is_assertion, ...)				\
	if (!(condition)) {							\
		TH_LOG(__VA_ARGS__);						\
		_metadata->failed = true;					\
		_metadata->trigger = true;					\
	}									\
} while (0);									\
for (; _metadata->trigger; quick_bail(_metadata, is_assertion))

#define QUICK_COMPARE(a, operator, b, is_assertion) do {				\
	__typeof__(a) a_ = (a);								\
	__typeof__(b) b_ = (b);								\
											\
	QUICK_FAIL_UNLESS(a_ operator b_, is_assertion,					\
			  "expected %s (%lld) " #operator " %s (%lld)", #a,		\
			  (long long)(intptr_t)a_, #b, (long long)(intptr_t)b_)

#define QUICK_COMPARE_TEXT(a, operator, b, is_assertion) do {				\
	const char *a_ = (a), *b_ = (b);						\
											\
	QUICK_FAIL_UNLESS(strcmp(a_, b_) operator 0, is_assertion,			\
			  "expected '%s' " #operator " '%s'", a_, b_)

#define EXPECT_EQ(a, b)		QUICK_COMPARE(a, ==, b, false)
#define EXPECT_NE(a, b)		QUICK_COMPARE(a, !=, b, false)
#define EXPECT_LT(a, b)		QUICK_COMPARE(a, <, b, false)
#define EXPECT_LE(a, b)		QUICK_COMPARE(a, <=, b, false)
#define EXPECT_GT(a, b)		QUICK_COMPARE(a, >, b, false)
#define EXPECT_GE(a, b)		QUICK_COMPARE(a, >=, b, false)
#define EXPECT_TRUE(b)		QUICK_COMPARE(0, !=, b, false)
#define EXPECT_FALSE(b)		QUICK_COMPARE(0, ==, b, false)
#define EXPECT_STREQ(a, b)	QUICK_COMPARE_TEXT(a, ==, b, false)
#define EXPECT_STRNE(a, b)	QUICK_COMPARE_TEXT(a, !=, b, false)
#define ASSERT_EQ(a, b)		QUICK_COMPARE(a, ==, b, true)
#define ASSERT_NE(a, b)		QUICK_COMPARE(a, !=, b, true)
#define ASSERT_LT(a, b)		QUICK_COMPARE(a, <, b, true)
#define ASSERT_LE(a, b)		QUICK_COMPARE(a, <=, b, true)
#define ASSERT_GT(a, b)		QUICK_COMPARE(a, >, b, true)
#define ASSERT_GE(a, b)		QUICK_COMPARE(a, >=, b, true)
#define ASSERT_TRUE(b)		QUICK_COMPARE(0, !=, b, true)
#define ASSERT_FALSE(b)		QUICK_COMPARE(0, ==, b, true)
#define ASSERT_STREQ(a, b)	QUICK_COMPARE_TEXT(a, ==, b, true)

/* Copies the reason why the test must be skipped. Returns whether there is a reason. */
static inline bool quick_must_skip(const char *name, char *reason, size_t size)
{
	const char *line = getenv("QUICK_SKIP");
	size_t length = strlen(name);

	for (; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
		if (!strncmp(line, name, length) && line[length] == ' ') {
			line += length + 1;
			length = strcspn(line, "\n");
			snprintf(reason, size, "%.*s", (int)length, line);
			return true;
		}
	}
	return false;
}

/* Waits for the test. Returns its status, or -1 if the time is up. Kills all that is left of it. */
static inline int quick_await(pid_t pid)
{
	const char *limit = getenv("QUICK_LIMIT");
	const struct timespec time = { limit ? atoi(limit) : 30, 0 };
	siginfo_t info = { 0 };
	sigset_t set;
	int status;

	/* SIGCHLD is blocked since main(). */
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid) {
		if (sigtimedwait(&set, NULL, &time) < 0 && errno == EAGAIN)
			break;
	}
	kill(-pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid || !info.si_pid)
		return -1;
	return status;
}

/* Runs a test. Returns whether it passed, or was skipped. */
static inline bool quick_run(const struct quick_test *test, const struct quick_variant *variant,
			     unsigned int number, struct __test_metadata *metadata)
{
	struct timespec begin, end;
	int status = 0;
	bool passed;
	pid_t pid;

	memset(metadata, 0, sizeof(*metadata));
	metadata->name = test->name;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	metadata->skipped = quick_must_skip(test->name, metadata->reason,
					    sizeof(metadata->reason));
	if (!metadata->skipped) {
		fflush(NULL);
		pid = fork();
		if (!pid) {
			setpgid(0, 0);
			test->run(metadata, variant ? variant->data : NULL);
			exit(0);
		}
		status = quick_await(pid);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	passed = !status && !metadata->failed;
	printf("%sok %u %s%s%s.%s%s%s", passed ? "" : "not ", number, test->fixture,
	       variant ? "." : "", variant ? variant->name : "", test->name,
	       metadata->skipped && passed ? " # SKIP " : "",
	       metadata->skipped && passed ? metadata->reason : "");
	if (status == -1)
		printf(" # the time is up");
	else if (status)
		printf(" # status 0x%x", (unsigned int)status);
	printf(" # %.3f s\n", (double)(end.tv_sec - begin.tv_sec) +
	       (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
	fflush(stdout);
	return passed;
}

/* Arguments: the names of the tests to run; none: all tests. */
static inline int test_harness_run(int argc, char **argv)
{
	struct __test_metadata *metadata = mmap(NULL, sizeof(*metadata), PROT_READ | PROT_WRITE,
						MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool list = argc > 1 && !strcmp(argv[1], "-l");
	const struct quick_variant *variant;
	const struct quick_test *test;
	unsigned int number = 0, i;
	int failures = 0;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (test = quick_tests; test; test = test->next) {
		for (i = 1; i < (unsigned int)argc && strcmp(argv[i], test->name); i++)
			;
		if (list)
			puts(test->name);
		if (list || (argc > 1 && i == (unsigned int)argc))
			continue;
		variant = quick_variants;
		do {
			while (variant && strcmp(variant->fixture, test->fixture))
				variant = variant->next;
			failures += !quick_run(test, variant, ++number, metadata);
			if (failures && getenv("QUICK_STOP"))
				return 1;
			for (variant = variant ? variant->next : NULL;
			     variant && strcmp(variant->fixture, test->fixture);
			     variant = variant->next)
				;
		} while (variant);
	}
	if (!list)
		printf("1..%u\n", number);
	return failures > 0;
}

#define TEST_HARNESS_MAIN			\
int main(int argc, char **argv)			\
{						\
	return test_harness_run(argc, argv);	\
}

#endif /* QUICK_HARNESS_H */
