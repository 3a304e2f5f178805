/* SPDX-License-Identifier: GPL-2.0 */
/* The values and the locations of arguments. */
#ifndef ARGUMENTS_TEST_H
#define ARGUMENTS_TEST_H

#include "fuzz_test.h"

static const uint64_t values[] = { 0, 1, 0xff, 0x100000000ULL, ~0ULL, 0x1234 };
static const uint32_t counts[] = { 1, MEMWAIT_ALL, 0, 2, 3, 0x7fffffff, 0x80000000 };
static const uint32_t nrs[] = { 1, 2, 3, 4, 8, 9, 128, 0, 129, 0x7fffffff, 0x80000000, ~0U };
static const uint32_t flag_sets[] = {
	MEMWAIT_SIZE_U32,
	MEMWAIT_SIZE_U32 | MEMWAIT_PRIVATE,
	MEMWAIT_SIZE_U8,
	MEMWAIT_SIZE_U16,
	MEMWAIT_SIZE_U64,
	MEMWAIT_SIZE_U32 | MEMWAIT_CLOCK_REALTIME,
	MEMWAIT_SIZE_U64 | MEMWAIT_PRIVATE | MEMWAIT_CLOCK_REALTIME,
	MEMWAIT_SIZE_U32 | MEMWAIT_PERSISTENT,
	MEMWAIT_SIZE_U64 | MEMWAIT_OWNED,
	MEMWAIT_SIZE_U32 | MEMWAIT_OWNED,
	MEMWAIT_GROUP,
	MEMWAIT_GROUP | MEMWAIT_CLOCK_REALTIME,
	MEMWAIT_SIZE_U32 | 0x1000,
	MEMWAIT_SIZE_U8 | MEMWAIT_PRIVATE,
	MEMWAIT_SIZE_U32 | MEMWAIT_GROUP,
	0x4, 0x40, 0x800, 0x80000000, ~0U,
};

static const char *const deadline_names[] = {
	"forever", "0", "past", "+100us", "+500us", "+5ms", "max-1", "max", "max+1", "forever-1",
	"+20ms",
};

#define PICK(array, value)	((array)[(value) % COUNT_OF(array)])

static clockid_t clock_of(uint32_t flags)
{
	return flags & MEMWAIT_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
}

static uint64_t deadline_of(uint8_t value, uint32_t flags)
{
	uint64_t now = now_ns(clock_of(flags));

	switch (value % COUNT_OF(deadline_names)) {
	case 1:
		return 0;
	case 2:
		return now - NSEC_PER_MSEC;
	case 3:
		return now + 100000;
	case 4:
		return now + 500000;
	case 5:
		return now + 5 * NSEC_PER_MSEC;
	case 6:
		return INT64_MAX - 1;
	case 7:
		return INT64_MAX;
	case 8:
		return (uint64_t)INT64_MAX + 1;
	case 9:
		return ~0ULL - 1;
	case 10:
		return now + 20 * NSEC_PER_MSEC;
	default:
		return MEMWAIT_FOREVER;
	}
}

static uint64_t id_of(uint8_t value)
{
	uint64_t id = __atomic_load_n(&shared->ids[value % 16], __ATOMIC_RELAXED);

	switch (value / 16) {
	case 13:
		return 0;
	case 14:
		return id + (1 << 24);
	case 15:
		return ~0ULL;
	default:
		return id;
	}
}

/* Some of the values are the id of an owner, which may be alive or dead. */
static uint64_t value_of(uint8_t byte)
{
	return byte % 8 == 7 ? __atomic_load_n(&shared->owner, __ATOMIC_RELAXED) :
			       PICK(values, byte);
}

static void keep_id(uint64_t id)
{
	uint32_t i = __atomic_fetch_add(&shared->nr_ids, 1, __ATOMIC_RELAXED);

	__atomic_store_n(&shared->ids[i % 16], id, __ATOMIC_RELAXED);
}

/*
 * The location of an argument. The effects of a call can be checked only for an argument in the
 * area, because other threads may change or unmap the regions.
 */
enum { NORMAL, AT_END, CUT, IN_REGION, NOWHERE, IN_KERNEL, IN_READ_ONLY, PLACES };

static const char *const place_names[] = {
	"normal", "at-end", "cut", "in-region", "null", "kernel", "in-read-only",
};

static bool in_area(const struct thread *t, uint64_t at)
{
	return at - (uintptr_t)t->area < AREA;
}

/* Copies, even if no memory is mapped at the target. */
static void copy_to(struct thread *t, uint64_t to, const void *from, size_t size)
{
	off_t offset = (t - threads) * 4 * PAGE + (t->forked ? 2 * PAGE : 0);
	ssize_t ret = pwrite(scratch_fd, from, size, offset);

	if (ret == (ssize_t)size)
		ret = pread(scratch_fd, (void *)(uintptr_t)to, size, offset);
}

static uint64_t place(struct thread *t, uint8_t how, const void *arg, size_t size, size_t normal)
{
	uint8_t *at = t->area + normal;
	uint64_t elsewhere;

	switch (how % PLACES) {
	case AT_END:
		at = t->area + AREA - size;
		break;
	case CUT:
		at = t->area + AREA - size / 2;
		break;
	case IN_REGION:
		/*
		 * No other thread may see a struct, because a struct determines where the call
		 * writes.
		 */
		elsewhere = (uintptr_t)region(SHARED) +
			    (normal == STRUCT_AT ? 64UL + (t->nr + t->forked * THREADS) * 128 :
						   PAGE + 64);
		copy_to(t, elsewhere, arg, size);
		return elsewhere;
	case NOWHERE:
		return 0;
	case IN_KERNEL:
		return 0xffff888000100000ULL;
	case IN_READ_ONLY:
		/*
		 * This is the same file as above. It contains only words, and no struct of another
		 * thread.
		 */
		return (uintptr_t)region(READ_ONLY) + 8;
	}
	if (at + size > t->area + AREA)
		size = t->area + AREA - at;
	memcpy(at, arg, size);
	return (uintptr_t)at;
}

static void flip_bit(uint64_t at, size_t from, size_t size, uint8_t flip)
{
	size_t bit = from * 8 + flip * 37 % ((size - from) * 8);

	((uint8_t *)(uintptr_t)at)[bit / 8] ^= 1 << bit % 8;
}

/* Places the array of a call, and may flip a bit of it. */
static uint64_t place_array(struct thread *t, const void *array, size_t size)
{
	const struct call *c = t->call;
	uint64_t at = place(t, c->arg[2] / PLACES, array, size, ARRAY_AT);

	if (c->flip >= 128 && size && c->arg[2] / PLACES % PLACES == NORMAL)
		flip_bit(at, 0, size, c->flip);
	return at;
}

/* Called before a call: saves the memory that must not change. */
static void remember(struct thread *t)
{
	memcpy(t->copy, t->area, AREA);
}

/* Called after a call: excludes memory that may have changed. */
static void may_change(struct thread *t, uint64_t at, size_t size)
{
	size_t offset = at - (uintptr_t)t->area;

	if (!in_area(t, at))
		return;
	if (offset + size > AREA)
		size = AREA - offset;
	memcpy(t->copy + offset, t->area + offset, size);
}

static const char *call_name(const struct thread *t);

#define CHECK(t, condition) do {						\
	if (!(condition))							\
		fail("%s returned %ld: expected %s", call_name(t), (t)->ret, #condition); \
} while (0)

static void compare_area(struct thread *t)
{
	size_t i;

	if (!memcmp(t->copy, t->area, AREA))
		return;
	for (i = 0; i < AREA && t->copy[i] == t->area[i]; i++)
		;
	fail("%s returned %ld and wrote to byte %zu of the area: %02x, was %02x", call_name(t),
	     t->ret, i, t->area[i], t->copy[i]);
}

/* Returns the size to be put into the ioctl number. */
static size_t size_of(uint8_t value, size_t known)
{
	switch (value % 8) {
	case 5:
		return known - 8;
	case 6:
		return value & 8 ? 0 : 16383;
	case 7:
		return known + 8;
	default:
		return known;
	}
}

/*
 * Issues an ioctl. Writes its struct, and may flip a bit at or after byte @flip_from; the bytes
 * before that determine where the call writes. Sets the memory behind the struct to zero, or to
 * another value. Returns the address of the struct.
 */
static uint64_t issue(struct thread *t, unsigned long cmd, const void *arg, size_t known,
		      size_t flip_from)
{
	const struct call *c = t->call;
	size_t size = size_of(c->arg[1], known);
	uint8_t how = c->arg[2] % PLACES;
	uint64_t at;

	if (size > known && how == NORMAL)
		memset(t->area + STRUCT_AT, c->arg[1] & 16 ? 0xff : 0, known + 8);
	if (size > known && how == AT_END)
		how = NORMAL;
	at = place(t, how, arg, known, STRUCT_AT);
	if (c->flip && c->flip < 128 && (how == NORMAL || how == AT_END) && flip_from < known)
		flip_bit(at, flip_from, known, c->flip);
	remember(t);
	cmd = (cmd & ~((unsigned long)_IOC_SIZEMASK << _IOC_SIZESHIFT)) | size << _IOC_SIZESHIFT;
	TRY(t, ioctl(context(c->arg[0]), cmd, at));
	return at;
}

/* Returns the struct as it was when the call began, or NULL if that is not known. */
static const void *passed(const struct thread *t, uint64_t at)
{
	uint8_t how = t->call->arg[2] % PLACES;

	return how == NORMAL || how == AT_END ? t->copy + (at - (uintptr_t)t->area) : NULL;
}

/* Checks that a timeout did not come early. */
static void check_deadline(struct thread *t, uint64_t deadline, uint32_t flags)
{
	uint64_t now = now_ns(clock_of(flags));

	if (deadline > now)
		fail("%s timed out %llu ns early", call_name(t),
		     (unsigned long long)(deadline - now));
}

#endif /* ARGUMENTS_TEST_H */
