// SPDX-License-Identifier: GPL-2.0
/*
 * R2, R3, R10: every kind of invalid argument, in every ioctl. A call that is refused has no
 * effect: its argument is unchanged, existing waiters are still waiting, and no waiter was added.
 */
#include <stddef.h>

#include "any_test.h"

/* The argument of an ioctl, with room for a longer struct, and the arrays to which it points. */
struct block {
	union {
		struct memwait_wait wait;
		struct memwait_notify notify;
		struct memwait_wait_async batch;
		struct memwait_cancel cancel;
		struct memwait_wait_any any;
		struct memwait_requeue requeue;
		struct memwait_notify_wait both;
		struct memwait_notify_many many;
		struct memwait_change change;
		unsigned char bytes[128];
	};
	struct memwait_wait waits[2];
	struct memwait_notify notifies[2];
	struct memwait_async entry;
};

#define AT(member)	offsetof(struct block, member)
#define LONGER		32	/* bytes that later versions may add */

/*
 * A word in the arguments: the offset of its address, the offset of its flags, and its valid flags.
 */
struct word {
	size_t addr, flags;
	uint32_t known;
	enum { IS_READ, IS_LOOKED_UP, IS_IGNORED } use;
};

FIXTURE_VARIANT(memwait)
{
	unsigned long cmd;
	/*
	 * Writes valid arguments. Word @a has a waiter and its value is 0. No other word has a
	 * waiter or the value 0.
	 */
	void (*fill)(struct block *block, uint32_t *a, uint32_t *b, uint64_t id);
	int result;			/* result of a call with valid arguments */
	struct word words[2];
	size_t flags;			/* offset of the flags of the call itself */
	uint32_t known_flags;
	size_t reserved[4];
	size_t results[2];		/* outputs; zeroed or not if a word is refused */
};

#define FILL(name)									\
	static void name(struct block *block, uint32_t *a, uint32_t *b, uint64_t id)

#define WORD_FLAGS	(MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE)
#define WAIT_FLAGS	(WORD_FLAGS | MEMWAIT_CLOCK_REALTIME | MEMWAIT_OWNED)

FILL(fill_wait)
{
	block->wait = (struct memwait_wait) { .addr = (uintptr_t)b, .deadline = FOREVER,
					      .flags = U32 };
}

FIXTURE_VARIANT_ADD(memwait, wait)
{
	.cmd = MEMWAIT_IOC_WAIT, .fill = fill_wait, .result = MEMWAIT_NOT_EQUAL,
	.words = { { AT(wait.addr), AT(wait.flags), WAIT_FLAGS, IS_READ } },
	.reserved = { AT(wait.reserved) },
};

FILL(fill_notify)
{
	block->notify = (struct memwait_notify) { .addr = (uintptr_t)a, .count = 1, .flags = U32 };
}

FIXTURE_VARIANT_ADD(memwait, notify)
{
	.cmd = MEMWAIT_IOC_NOTIFY, .fill = fill_notify, .result = 1,
	.words = { { AT(notify.addr), AT(notify.flags), WORD_FLAGS, IS_LOOKED_UP } },
};

FILL(fill_waiters)
{
	fill_notify(block, a, b, id);
	block->notify.count = 0;
}

FIXTURE_VARIANT_ADD(memwait, notify_none)
{
	.cmd = MEMWAIT_IOC_NOTIFY, .fill = fill_waiters, .result = 0,
	.words = { { AT(notify.addr), AT(notify.flags), WORD_FLAGS, IS_IGNORED } },
};

FIXTURE_VARIANT_ADD(memwait, waiters)
{
	.cmd = MEMWAIT_IOC_WAITERS, .fill = fill_waiters, .result = 1,
	.words = { { AT(notify.addr), AT(notify.flags), WORD_FLAGS, IS_LOOKED_UP } },
};

FILL(fill_async)
{
	block->batch = (struct memwait_wait_async) { .waits = (uintptr_t)&block->entry, .count = 1,
						     .entry_size = sizeof(block->entry) };
	block->entry = wait_entry(b, 0, FOREVER, 7);
}

FIXTURE_VARIANT_ADD(memwait, async)
{
	.cmd = MEMWAIT_IOC_WAIT_ASYNC, .fill = fill_async, .result = 1,
	.words = { { AT(entry.wait.addr), AT(entry.wait.flags), WAIT_FLAGS | MEMWAIT_PERSISTENT,
		     IS_READ } },
	.reserved = { AT(entry.wait.reserved), AT(entry.reserved) },
};

FILL(fill_group)
{
	fill_async(block, a, b, id);
	members(block->waits, b, 2);
	block->entry = group_entry(block->waits, 2, FOREVER, 0, 7);
}

#define WORDS_OF_GROUP	{ { AT(waits[0].addr), AT(waits[0].flags), WORD_FLAGS, IS_READ },	\
			  { AT(waits[1].addr), AT(waits[1].flags), WORD_FLAGS, IS_READ } }

FIXTURE_VARIANT_ADD(memwait, group)
{
	.cmd = MEMWAIT_IOC_WAIT_ASYNC, .fill = fill_group, .result = 1,
	.words = WORDS_OF_GROUP,
	.flags = AT(entry.any.flags), .known_flags = MEMWAIT_GROUP | MEMWAIT_CLOCK_REALTIME,
	.reserved = { AT(waits[0].reserved), AT(waits[1].reserved), AT(entry.any.reserved),
		      AT(entry.reserved) },
};

FILL(fill_any)
{
	members(block->waits, b, 2);
	block->any = (struct memwait_wait_any) { .waits = (uintptr_t)block->waits, .count = 2,
						 .deadline = FOREVER, .index = UNTOUCHED };
}

FIXTURE_VARIANT_ADD(memwait, wait_any)
{
	.cmd = MEMWAIT_IOC_WAIT_ANY, .fill = fill_any, .result = MEMWAIT_NOT_EQUAL,
	.words = WORDS_OF_GROUP,
	.flags = AT(any.flags), .known_flags = MEMWAIT_CLOCK_REALTIME,
	.reserved = { AT(waits[0].reserved), AT(waits[1].reserved), AT(any.reserved) },
};

FILL(fill_requeue)
{
	block->requeue = (struct memwait_requeue) {
		.addr = (uintptr_t)a, .target = (uintptr_t)(b + 1), .count = 1, .move = 1,
		.flags = U32, .woken = UNTOUCHED, .moved = UNTOUCHED,
	};
}

#define WORDS_OF_REQUEUE {									\
	{ AT(requeue.addr), AT(requeue.flags), WORD_FLAGS, IS_READ },				\
	{ AT(requeue.target), AT(requeue.flags), WORD_FLAGS, IS_LOOKED_UP },			\
}

FIXTURE_VARIANT_ADD(memwait, requeue)
{
	.cmd = MEMWAIT_IOC_REQUEUE, .fill = fill_requeue, .result = MEMWAIT_OK,
	.words = WORDS_OF_REQUEUE,
	.reserved = { AT(requeue.reserved) },
	.results = { AT(requeue.woken), AT(requeue.moved) },
};

/* A call with valid arguments that has no waiter to wake or move. */
FILL(fill_requeue_none)
{
	fill_requeue(block, a, b, id);
	block->requeue.expected = 1;
	block->requeue.count = 0;
	block->requeue.move = 0;
}

FIXTURE_VARIANT_ADD(memwait, requeue_none)
{
	.cmd = MEMWAIT_IOC_REQUEUE, .fill = fill_requeue_none, .result = MEMWAIT_NOT_EQUAL,
	.words = WORDS_OF_REQUEUE,
	.reserved = { AT(requeue.reserved) },
	.results = { AT(requeue.woken), AT(requeue.moved) },
};

FILL(fill_notify_wait)
{
	block->both = (struct memwait_notify_wait) {
		.notify = { .addr = (uintptr_t)a, .count = 1, .flags = U32 },
		.wait = { .addr = (uintptr_t)b, .deadline = FOREVER, .flags = U32 },
		.notified = UNTOUCHED,
	};
}

FIXTURE_VARIANT_ADD(memwait, notify_wait)
{
	.cmd = MEMWAIT_IOC_NOTIFY_WAIT, .fill = fill_notify_wait, .result = MEMWAIT_NOT_EQUAL,
	.words = {
		{ AT(both.notify.addr), AT(both.notify.flags), WORD_FLAGS, IS_LOOKED_UP },
		{ AT(both.wait.addr), AT(both.wait.flags), WAIT_FLAGS, IS_READ },
	},
	.flags = AT(both.state), .known_flags = MEMWAIT_NOTIFIED,
	.reserved = { AT(both.wait.reserved) },
};

FILL(fill_notify_none_wait)
{
	fill_notify_wait(block, a, b, id);
	block->both.notify.count = 0;
}

FIXTURE_VARIANT_ADD(memwait, notify_none_wait)
{
	.cmd = MEMWAIT_IOC_NOTIFY_WAIT, .fill = fill_notify_none_wait,
	.result = MEMWAIT_NOT_EQUAL,
	.words = {
		{ AT(both.notify.addr), AT(both.notify.flags), WORD_FLAGS, IS_IGNORED },
		{ AT(both.wait.addr), AT(both.wait.flags), WAIT_FLAGS, IS_READ },
	},
	.flags = AT(both.state), .known_flags = MEMWAIT_NOTIFIED,
};

FILL(fill_many)
{
	block->notifies[0] = (struct memwait_notify) { (uintptr_t)a, 1, U32 };
	block->many = (struct memwait_notify_many) { .notifies = (uintptr_t)block->notifies,
						     .count = 1 };
}

FIXTURE_VARIANT_ADD(memwait, notify_many)
{
	.cmd = MEMWAIT_IOC_NOTIFY_MANY, .fill = fill_many, .result = 1,
	.words = { { AT(notifies[0].addr), AT(notifies[0].flags), WORD_FLAGS, IS_LOOKED_UP } },
	.reserved = { AT(many.flags) },
};

FILL(fill_cancel)
{
	block->cancel = (struct memwait_cancel) { .id = id };
}

FIXTURE_VARIANT_ADD(memwait, cancel)
{
	.cmd = MEMWAIT_IOC_CANCEL, .fill = fill_cancel, .result = 0,
	.reserved = { AT(cancel.flags), AT(cancel.reserved) },
};

FILL(fill_change)
{
	block->change = (struct memwait_change) {
		.notify = { .addr = (uintptr_t)a, .count = 1, .flags = U32 },
		.operation = MEMWAIT_CHANGE_ADD, .operand = 1, .old = UNTOUCHED,
	};
}

FIXTURE_VARIANT_ADD(memwait, change)
{
	.cmd = MEMWAIT_IOC_CHANGE_NOTIFY, .fill = fill_change, .result = 1,
	.words = { { AT(change.notify.addr), AT(change.notify.flags), MEMWAIT_PRIVATE, IS_READ } },
	.reserved = { AT(change.reserved) },
	.results = { AT(change.old) },
};

/* The state for a series of calls. Each call begins with valid arguments and a waiter on @a. */
struct calls {
	unsigned long cmd;
	void (*fill)(struct block *block, uint32_t *a, uint32_t *b, uint64_t id);
	const size_t *results;
	int fd;
	struct block *block;
	uint32_t *a, *b;
};

#define CALLS	((struct calls) { variant->cmd, variant->fill, variant->results, self->fd,	\
				  private_page(self->page), self->word + 2, self->word + 3 })

static uint32_t *u32_at(struct calls *c, size_t offset)
{
	return (uint32_t *)((char *)c->block + offset);
}

static void begin(struct calls *c)
{
	struct memwait_completion done[4];
	uint64_t id;

	mw_notify(c->fd, c->a, MEMWAIT_ALL, U32);
	mw_notify(c->fd, c->b + 1, MEMWAIT_ALL, U32);
	mw_read(c->fd, done, 4);
	memset(c->a, 1, 64);	/* no waiter expects this value, in any size */
	*c->a = 0;
	memset(c->block, 0, sizeof(*c->block));
	if (mw_async(c->fd, c->a, 0, FOREVER, U32, 1, &id) != MEMWAIT_PENDING)
		abort();
	c->fill(c->block, c->a, c->b, id);
}

static void begin_with(struct calls *c, const struct word *word, uint64_t addr, uint32_t flags)
{
	begin(c);
	memcpy((char *)c->block + word->addr, &addr, sizeof(addr));
	*u32_at(c, word->flags) = flags;
}

static int call(struct calls *c)
{
	return xioctl(c->fd, c->cmd, c->block);
}

/* Expects @error and no effect. A failure message shows @what and @number. */
static void refuse(struct __test_metadata *_metadata, struct calls *c, unsigned long cmd,
		   int error, const char *what, uint64_t number)
{
	struct block was = *c->block;
	int i;

	/* The kernel writes the results of each entry that it has examined. */
	if (cmd == MEMWAIT_IOC_WAIT_ASYNC) {
		was.entry.id = 0;
		was.entry.result = error;
	}
	EXPECT_EQ(error, xioctl(c->fd, cmd, c->block)) {
		TH_LOG("%s %#llx", what, (unsigned long long)number);
	}
	for (i = 0; i < 2 && c->results[i]; i++)
		if ((error == -EFAULT || error == -EOPNOTSUPP) && !*u32_at(c, c->results[i]))
			memset((char *)&was + c->results[i], 0, sizeof(uint32_t));
	EXPECT_EQ(0, memcmp(&was, c->block, sizeof(was))) {
		TH_LOG("%s %#llx: the kernel wrote to the argument", what,
		       (unsigned long long)number);
	}
	EXPECT_EQ(0, *c->a);
	EXPECT_EQ(1, mw_waiters(c->fd, c->a, U32));
	EXPECT_EQ(0, mw_waiters(c->fd, c->b, U32));
	EXPECT_EQ(0, mw_waiters(c->fd, c->b + 1, U32));
}

#define REFUSE(error, what, number)							\
	refuse(_metadata, &c, variant->cmd, error, what, number)

#define for_each_word(word)								\
	for (word = variant->words; word < variant->words + 2 && word->known; word++)

MEMWAIT_TEST(R2_valid_arguments_are_accepted)
{
	struct calls c = CALLS;

	begin(&c);
	EXPECT_EQ(variant->result, call(&c));
}

MEMWAIT_TEST(R2_each_unknown_flag_is_einval)
{
	const struct word *word;
	struct calls c = CALLS;
	int bit;

	EXPECT_EQ(0, variant->known_flags & MEMWAIT_LIBRARY_FLAGS);
	for_each_word(word)
		EXPECT_EQ(0, word->known & MEMWAIT_LIBRARY_FLAGS);
	for (bit = 0; bit < 32; bit++) {
		for_each_word(word) {
			begin(&c);
			*u32_at(&c, word->flags) ^= 1U << bit;
			if (!(1U << bit & word->known))
				REFUSE(-EINVAL, "flag of a word", 1U << bit);
		}
		begin(&c);
		*u32_at(&c, variant->flags) ^= 1U << bit;
		if (variant->known_flags && !(1U << bit & variant->known_flags))
			REFUSE(-EINVAL, "flag of the call", 1U << bit);
	}
}

MEMWAIT_TEST(R2_each_reserved_bit_is_einval)
{
	struct calls c = CALLS;
	int i, bit;

	for (i = 0; i < 4 && variant->reserved[i]; i++) {
		for (bit = 0; bit < 32; bit++) {
			begin(&c);
			*u32_at(&c, variant->reserved[i]) = 1U << bit;
			REFUSE(-EINVAL, "reserved bit", 1U << bit);
		}
	}
}

MEMWAIT_TEST(R3_misaligned_words_are_einval)
{
	const struct word *word;
	struct calls c = CALLS;
	uint32_t size, offset;

	for_each_word(word) {
		for (size = 0; size < 4; size++) {
			if (size != U32 && !(word->known & MEMWAIT_SIZE_MASK))
				continue;
			for (offset = 0; offset < 8; offset++) {
				begin_with(&c, word, (uintptr_t)(c.a + 8) + offset, size);
				if (offset % (1 << size))
					REFUSE(-EINVAL, "offset", offset);
				else
					EXPECT_LE(0, call(&c));
			}
		}
	}
}

/*
 * NOTIFY_MANY and WAIT_ASYNC process their words one after another, so these calls have one word
 * here.
 */
MEMWAIT_TEST(R2_arguments_of_all_words_come_before_access_to_any)
{
	const struct word *bad, *word;
	struct calls c = CALLS;

	for_each_word(bad) {
		begin(&c);
		for_each_word(word)
			memset((char *)c.block + word->addr, 0, sizeof(uint64_t));
		*u32_at(&c, bad->addr) = 2;
		REFUSE(-EINVAL, "word", bad - variant->words);
	}
}

MEMWAIT_TEST(R2_unmapped_words_are_efault)
{
	const uint64_t addresses[] = {
		0, (uintptr_t)hole_page(), (uintptr_t)private_page(self->page),
		0xffff888000000000ULL, 0xfffffffffffffffcULL,
	};
	const struct word *word;
	struct calls c = CALLS;
	size_t i;

	ASSERT_EQ(0, munmap((void *)(uintptr_t)addresses[2], self->page));
	for_each_word(word) {
		if (word->use == IS_IGNORED)
			continue;
		for (i = 0; i < ARRAY_SIZE(addresses); i++) {
			begin_with(&c, word, addresses[i], U32);
			REFUSE(-EFAULT, "address", addresses[i]);
			begin_with(&c, word, addresses[i], U32 | MEMWAIT_PRIVATE);
			/* A PRIVATE word is not looked up, so a bad address is not detected. */
			if (word->use == IS_READ || i >= 3)
				REFUSE(-EFAULT, "private address", addresses[i]);
			else
				EXPECT_LE(0, call(&c));
		}
	}
}

MEMWAIT_TEST(R10_words_of_devices_are_refused)
{
	void *device = device_word();
	const struct word *word;
	struct calls c = CALLS;

	if (!device)
		SKIP(return, "no /dev/mem");
	for_each_word(word) {
		if (word->use == IS_IGNORED)
			continue;
		begin_with(&c, word, (uintptr_t)device, U32);
		REFUSE(-EOPNOTSUPP, "word", word - variant->words);
	}
}

/*
 * The call fails before it has any effect and before it checks anything else, including whether it
 * would have to wait.
 */
MEMWAIT_TEST(R2_structs_that_cannot_be_written_are_efault)
{
	bool is_written = _IOC_DIR(variant->cmd) & _IOC_READ;
	struct calls c = CALLS;
	uint32_t value;

	if (variant->cmd == MEMWAIT_IOC_WAIT_ASYNC)
		SKIP(return, "another test covers results of entries");
	for (value = is_written ? 0 : 1; value < 2; value++) {
		begin(&c);
		*c.b = value;
		ASSERT_EQ(0, mprotect(c.block, self->page, PROT_READ));
		if (is_written)
			REFUSE(-EFAULT, "value", value);
		else
			EXPECT_EQ(variant->result, call(&c));
		ASSERT_EQ(0, mprotect(c.block, self->page, PROT_READ | PROT_WRITE));
	}
}

MEMWAIT_TEST(structs_of_other_sizes)
{
	const unsigned long cmd = variant->cmd & ~IOCSIZE_MASK;
	const size_t known = _IOC_SIZE(variant->cmd);
	struct calls c = CALLS;
	size_t size;

	for (size = 0; size < known; size++) {
		begin(&c);
		refuse(_metadata, &c, cmd | size << IOCSIZE_SHIFT, -EINVAL, "size", size);
	}
	for (size = known; size <= known + LONGER; size++) {
		begin(&c);
		EXPECT_EQ(variant->result, xioctl(c.fd, cmd | size << IOCSIZE_SHIFT, c.block));
	}
	begin(&c);
	c.block->bytes[known + LONGER - 1] = 0x80;
	refuse(_metadata, &c, cmd | (known + LONGER) << IOCSIZE_SHIFT, -E2BIG, "size", size);
}

TEST_HARNESS_MAIN
