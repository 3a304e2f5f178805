/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Operations, and what each kind of operation stores in them: see loop.c. */
#ifndef MEMWAIT_LOOP_H
#define MEMWAIT_LOOP_H

#include "device.h"

struct memwait_op;

/*
 * The data of an operation whose callback is about to run, copied: once the loop is unlocked,
 * memwait_op_cancel() reports that the callback has begun, and the program may free the operation.
 */
struct memwait_call {
	memwait_callback_t callback;
	memwait_op_t *op;
	void *data;
	void *object;
	int result;
};

/* Values passed to and returned by steps, besides the kernel's outcomes. */
#define MEMWAIT_OP_BEGIN	(INT_MIN + 1)	/* the first step, before any wait */
#define MEMWAIT_OP_WAITS	INT_MIN		/* from a step: a wait was armed */
#define MEMWAIT_OP_TAKEN_BACK	(-1)		/* to undo: no notify was counted */

/*
 * Methods of an operation. @step and @undo are called with the loop locked and must not block.
 * @step: begins, or continues after a wait. @outcome: MEMWAIT_OP_BEGIN, MEMWAIT_OK,
 *	MEMWAIT_TIMED_OUT or, for a MEMWAIT_OWNED wait, MEMWAIT_OWNER_DIED. Returns MEMWAIT_OP_WAITS
 *	or the operation's result
 * @undo: optional; releases everything that the operation holds. @outcome: MEMWAIT_OK if a notify
 *	was counted for the current wait, MEMWAIT_OWNER_DIED if a death was reported, or
 *	MEMWAIT_OP_TAKEN_BACK
 * @end: optional; called instead of memwait_call_back(), which it calls. Called without the loop's
 *	lock, even if the first step has acquired the object
 * @give_back: optional; for memwait_op_undo(), which has checked that the operation has ended with
 *	.outcome. Returns 0, EINPROGRESS (another step of the operation is pending), or an error
 *	number of either sign
 * @epipe: what EPIPE means, for memwait_op_strerror(); NULL: the operation does not return it
 * @has_outcomes: the result is an outcome or a negative error number, as for word functions
 * @goes_on: the wait is MEMWAIT_PERSISTENT, and MEMWAIT_OK does not end the operation. @step
 *	reports .count, and @undo passes .count to other waiters
 */
struct memwait_op_kind {
	int (*step)(struct memwait_op *op, int outcome);
	void (*undo)(struct memwait_op *op, int outcome);
	void (*end)(const struct memwait_call *call);
	int (*give_back)(struct memwait_op *op);
	const char *epipe;
	bool has_outcomes;
	bool goes_on;
};

enum memwait_op_state {
	MEMWAIT_OP_IDLE,
	MEMWAIT_OP_QUEUED,	/* its wait is in the kernel */
	MEMWAIT_OP_READY,	/* completion read; in the loop's list */
	MEMWAIT_OP_CALLED,	/* .goes_on is set, and its callback runs */
};

/* A wait for the end of a generation of a barrier or wait group. See users.c. */
struct memwait_round {
	const volatile void *word;		/* sleep on this, */
	uint64_t expected;			/* while it has this value */
	uint32_t flags;				/* of the wait */
	uint32_t generation;
	uint32_t epoch;				/* of a barrier, both */
	int tries;
};

/* The state of a waiter for a lock, see lock.c. */
struct memwait_turn {
	uint32_t woken;				/* number of wake-ups */
	bool gives_way;				/* sleeps though the lock is free */
};

/* A send or receive that may have to wait, see channel.c. */
struct memwait_transfer {
	struct memwait_channel *channel;
	struct side *other;			/* the side it waits for */
	const struct memwait_deadline *deadline;	/* for locks; NULL: does not sleep */
	struct side *busy;			/* without @deadline: whose lock was not free */
	const struct memwait_op *op;		/* or NULL */
	bool sending;
	bool is_user;				/* is counted as a user of its side */
	bool waits;				/* is counted at the other side */
	bool woken;				/* by a notify, and has not tried since then */
	bool settled;				/* no sender that missed CLOSED is left */
};

struct memwait_op {
	memwait_loop_t *loop;
	memwait_callback_t callback;
	void *data;
	const struct memwait_op_kind *kind;
	struct memwait_op *next, *previous;	/* in the loop's list */
	uint64_t id;				/* the id of its wait in the kernel */
	uint32_t index;				/* of the group's word that ended the wait */
	_Atomic int state;
	int outcome;				/* of the completion */
	uint32_t count;				/* with .goes_on: notifies not reported yet */
	uint32_t told;				/* notifies that its callback reports */
	bool armed;				/* the kernel may have a completion for it */
	bool cancelled;				/* since it last began, or undone */
	uint32_t process;			/* that began it last */
	struct memwait_deadline deadline;

	/* Used by the kinds. */
	void *object;
	void *with;				/* an item, or a condition variable's mutex */
	int phase;
	struct memwait_turn turn;
	union {
		struct {
			uint64_t expected;
			uint32_t flags;
		} word;
		struct {
			uint32_t count;
			uint32_t flags;		/* copy, valid after leaving the object */
			int result;
		} cond;
		struct memwait_round round;
		struct memwait_transfer transfer;
		struct {
			uint64_t owner;		/* of a robust gate */
			int gate;		/* result of locking the gate */
		} rwlock;
	};
};

_Static_assert(sizeof(struct memwait_op) <= sizeof(memwait_op_t), "the operation fits");

int memwait_op_take(memwait_op_t *public_op, struct memwait_op **op);
int memwait_op_start(struct memwait_op *op);
void memwait_call_back(const struct memwait_call *call);
int memwait_op_begin(memwait_op_t *public_op, const struct memwait_op_kind *kind, void *object,
		     void *with, const struct memwait_deadline *deadline);
int memwait_op_begin_until(memwait_op_t *public_op, const struct memwait_op_kind *kind,
			   void *object, void *with, clockid_t clock,
			   const struct timespec *time);
bool memwait_op_has_id(const struct memwait_op *op);
int memwait_op_arm(struct memwait_op *op, const volatile void *word, uint64_t expected,
		   uint32_t flags);

/*
 * Waits while a word is @expected. Without @op sleeps until @deadline; with @op arms it, with its
 * own deadline. Returns an outcome or a negative error number; MEMWAIT_PENDING: armed.
 */
static inline int memwait_await(struct memwait_op *op, const volatile void *word,
				uint64_t expected, uint32_t flags,
				const struct memwait_deadline *deadline)
{
	return op ? memwait_op_arm(op, word, expected, flags) :
		    memwait_sleep(word, expected, flags, deadline);
}

/* True if a wait failed with an error other than -EINTR. */
static inline bool memwait_has_failed(int outcome)
{
	return outcome < 0 && outcome != -EINTR && outcome != MEMWAIT_OP_BEGIN;
}

/* True if a lock result means that the lock is held. */
static inline bool memwait_has_locked(int ret)
{
	return !ret || ret == EOWNERDEAD;
}

#endif /* MEMWAIT_LOOP_H */
