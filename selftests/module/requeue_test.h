/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers for tests of requeue, on top of several_test.h. */
#ifndef REQUEUE_TEST_H
#define REQUEUE_TEST_H

#include "several_test.h"

/* Arms an async wait that is named by a letter. */
static inline int arm(int fd, const uint32_t *word, char name)
{
	return mw_arm(fd, word, name);
}

/* Arms one wait for each letter. */
static inline bool arm_all(int fd, const uint32_t *word, const char *names)
{
	for (; *names; names++) {
		if (arm(fd, word, *names) != MEMWAIT_PENDING)
			return false;
	}
	return true;
}

/* Reads completions. Returns their names in order, '!' for a result other than OK. */
static inline const char *names(int fd)
{
	static char text[65];
	struct memwait_completion done[64];
	int i, n = mw_read(fd, done, 64);

	for (i = 0; i < n; i++)
		text[i] = done[i].result == MEMWAIT_OK ? (char)done[i].user_data : '!';
	text[n > 0 ? n : 0] = 0;
	return text;
}

/* Notifies all waiters of a word. Returns their names in order. */
static inline const char *notify_names(int fd, const uint32_t *word)
{
	mw_notify(fd, word, MEMWAIT_ALL, U32);
	return names(fd);
}

/* Requeues with the usual arguments and checks the three results. */
#define EXPECT_REQUEUED(woken_, moved_, from_, to_, count_, move_) do {			\
	struct requeued out_;								\
											\
	EXPECT_EQ(0, mw_requeue(self->fd, (from_), 0, (to_), (count_), (move_), U32, &out_));	\
	EXPECT_EQ((uint32_t)(woken_), out_.woken);					\
	EXPECT_EQ((uint32_t)(moved_), out_.moved);					\
} while (0)

#endif /* REQUEUE_TEST_H */
