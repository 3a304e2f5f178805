/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spin model of the queues. The tops of queue.c, notify.c, requeue.c and wait.c describe the
 * protocol; the model has the same steps and names. selftests/lint/spin runs each scenario at the
 * end of this file, and then again with each MUTATION, with which the scenario must fail. A step of
 * a call claims one waiter. With SHARED, both words are in one bucket. The tree of a bucket is
 * modelled as a list for each word.
 *
 * Spin's memory is sequentially consistent. The model therefore delays the two stores that the
 * barriers (A) and (B) order. Other threads see a store to a word, or the store to .nr_waiters for
 * a first waiter, at some later time; a barrier waits until they see the store. The order of steps
 * models release and acquire; mutations change it.
 *
 * An invalid end state is a lost wake-up or a deadlock. Assertions detect all other errors.
 */
#if defined(STEPS) || defined(RETURNS)
#define IN_STEPS
#endif
#ifdef RETURNS
#define POSITION
#endif

#define NONE	255
#define A	0
#define B	1

#ifdef SHARED
#define BUCKET(k)	0
#else
#define BUCKET(k)	(k)
#endif
#define ENTRIES	4	/* struct memwait_waiter: entry e belongs to thread OWNER(e) */
#define SELF	254	/* MEMWAIT_CLAIMED_BY_ITSELF */

bit word[2];			/* in memory; 0 is the expected value */
bool storing[2];		/* a store of 1 to the word that is not visible yet */

/* struct memwait_bucket */
bool locked[2];
byte nr_waiters[2];
bool counting[2];		/* a count that is no longer 0, but not visible yet */
byte number[2];
chan waiters[2] = [ENTRIES] of { byte };	/* by word */

/* struct memwait_waiter */
byte bucket[ENTRIES] = NONE;
byte word_of[ENTRIES];		/* .word.key */
bool exists[ENTRIES];		/* on its thread's stack, or in a group's memory */
byte number_of[ENTRIES];
bool returns[ENTRIES];		/* was interrupted, and retains its number */
byte age[ENTRIES];		/* order in which the waits began, or 0; model only */
byte ages;
bool is_late[ENTRIES];		/* joined after the call of STEPS began; model only */
byte counted_on[ENTRIES];	/* the word that was notified; model only */

/* struct memwait_group */
byte claimed[ENTRIES] = NONE;

bool in_call;			/* the call of STEPS has begun */

/* For R5: number of notifies counted, and of MEMWAIT_OKs seen or passed on. */
byte counted, seen;
byte running;
byte handed;			/* calls of HAND that are over */

#ifdef GROUP
#define OWNER(e)	((e) < 2 -> 0 : (e))	/* entries 0 and 1 are a group */
#else
#define OWNER(e)	(e)
#endif

active proctype memory()
{
end:	do
	:: atomic { storing[A] -> word[A] = 1; storing[A] = false }
	:: atomic { storing[B] -> word[B] = 1; storing[B] = false }
	:: counting[0] -> counting[0] = false
	:: counting[1] -> counting[1] = false
	od
}

inline spin_lock(q)
{
	atomic { !locked[q] -> locked[q] = true }
}

inline spin_unlock(q)
{
	assert(locked[q]);
	locked[q] = false
}

/* the end of memwait_queue_join() */
inline queue_add(q, k, e)
{
#ifdef POSITION
	if
	:: returns[e] ->
		x = len(waiters[k]);
		put = false;
		do
		:: x == 0 -> break
		:: else ->
			waiters[k]?y;
			if
			:: !put && number_of[y] > number_of[e] -> waiters[k]!e; put = true
			:: else
			fi;
			waiters[k]!y;
			x--
		od;
		if
		:: !put -> waiters[k]!e
		:: else
		fi;
		x = 0; y = 0; put = false
	:: else ->
		number[q]++;
		number_of[e] = number[q];
		waiters[k]!e
	fi;
	if
	:: age[e] == 0 -> ages++; age[e] = ages
	:: else
	fi
#else
	waiters[k]!e;
#ifdef IN_STEPS
	number[q]++;
	number_of[e] = number[q]
#else
	skip
#endif
#endif
}

/* memwait_queue_join(); sets ok if the word is equal */
inline queue_join(e, k)
{
	q = BUCKET(k);
#ifdef MUTATION_COMPARE_BEFORE_LOCK
	equal = word[k] == 0;
#endif
	spin_lock(q);
	atomic {
		nr_waiters[q]++;
		counting[q] = counting[q] || nr_waiters[q] == 1
	};
#ifndef MUTATION_NO_BARRIER_B
	!counting[q];			/* (B) smp_mb */
#endif
#ifndef MUTATION_COMPARE_BEFORE_LOCK
	equal = word[k] == 0;
#endif
	atomic {
		if
		:: equal ->
			queue_add(q, k, e);
			bucket[e] = q;
			is_late[e] = in_call && !returns[e]
		:: else -> nr_waiters[q]--
		fi;
		ok = equal
	};
	spin_unlock(q)
}

/* memwait_queue_remove() */
inline queue_remove(q, e)
{
	d_step {
		k2 = word_of[e];
		assert(waiters[k2]??[eval(e)]);
		waiters[k2]??eval(e);
		nr_waiters[q]--
	}
}

/* memwait_queue_leave() */
inline queue_leave(e)
{
	do
	:: q = bucket[e];		/* (C) load-acquire */
	   if
	   :: q == NONE -> break
	   :: else
	   fi;
	   spin_lock(q);
#ifdef MUTATION_LEAVE_WITHOUT_SECOND_LOOK
	   if
	   :: bucket[e] != NONE
#else
	   if
	   :: bucket[e] == q
#endif
	      -> queue_remove(q, e);
	      bucket[e] = NONE;
	      spin_unlock(q);
	      break
	   :: else -> spin_unlock(q)
	   fi
	od
}

/* memwait_scan_next(): e, if covered */
inline look(k)
{
	d_step {
#ifdef RETURNS
		covered = false;
		x = len(waiters[k]);
		do
		:: x == 0 -> break
		:: else ->
			waiters[k]?y;
			waiters[k]!y;
			if
#ifndef MUTATION_COMES_TO_A_NUMBER_AGAIN
			:: !covered && !(returns[y] && number_of[y] <= reached) ->
#else
			:: !covered ->
#endif
				e = y;
				covered = true
			:: else
			fi;
			x--
		od;
		y = 0;
		covered = covered && number_of[e] <= limit;
#ifdef MUTATION_PASSES_ONE_THAT_WAITS_FOR_THE_NEXT_STEP
		reached = (covered -> number_of[e] : reached)
#endif
#else
		covered = len(waiters[k]) > 0;
#if defined(IN_STEPS) && !defined(MUTATION_NO_NUMBER)
		if
		:: covered -> waiters[k]?<e>; covered = number_of[e] <= limit
		:: else
		fi
#endif
#endif
	}
}

/*
 * memwait_scan_claim() of word k in the locked bucket q, with memwait_claim_thread(). Claims
 * waiters until nr == most. Removes waiters that were claimed already.
 */
inline scan_claim(q, k, most)
{
	do
	:: look(k);
	   if
	   :: nr == most || !covered -> break
	   :: else
	   fi;
#ifdef RETURNS
#ifndef MUTATION_PASSES_ONE_THAT_WAITS_FOR_THE_NEXT_STEP
		d_step {
			assert(number_of[e] > reached);
			reached = number_of[e]
		};
#endif
#else
		waiters[k]?<e>;
#endif
		assert(exists[e] && bucket[e] == q);
#ifdef MUTATION_CLAIM_IN_TWO_STEPS
		won = claimed[OWNER(e)] == NONE;
		if
		:: won -> claimed[OWNER(e)] = e
		:: else
		fi;
#else
		d_step {
			won = claimed[OWNER(e)] == NONE;
			if
			:: won -> claimed[OWNER(e)] = e
			:: else
			fi
		};
#endif
#ifdef MUTATION_NO_CLAIM
		won = true;
		claimed[OWNER(e)] = e;
#endif
		if
		:: won ->
			d_step {
#if defined(POSITION) && !defined(RETURNS)
				/* R12: each waiter behind this one began to wait later. */
				x = len(waiters[k]);
				do
				:: x == 0 -> break
				:: else ->
					waiters[k]?y;
					assert(y == e || age[y] > age[e]);
					waiters[k]!y;
					x--
				od;
				x = 0; y = 0;
#endif
#ifdef IN_STEPS
				assert(!of_all || !is_late[e]);
#endif
				counted_on[e] = k;
				nr++;
				counted++
			}
		:: else
		fi;
		queue_remove(q, e);
#ifdef MUTATION_LEAVES_BEFORE_LAST_ACCESS
		bucket[e] = NONE;
		assert(exists[e])
#else
		assert(exists[e]);
		bucket[e] = NONE		/* (C) store-release */
#endif
	od
}

/* memwait_ioc_notify(); with STEPS and RETURNS, in several steps */
inline notify(k, count)
{
	nr = 0;
	q = BUCKET(k);
	if
	:: nr_waiters[q] > 0 && !counting[q] ->
		spin_lock(q);
#ifdef IN_STEPS
		limit = number[q];
#ifdef RETURNS
		reached = 0;
#endif
		of_all = count > 1;
		in_call = in_call || of_all;
		do
		:: one = (nr < count -> nr + 1 : nr);
		   scan_claim(q, k, one);
		   look(k);
		   more = nr < count && covered;
		   spin_unlock(q);
		   if
		   :: !more -> break
		   :: else
		   fi;
		   spin_lock(q)
		od;
		in_call = in_call && !of_all
#else
		scan_claim(q, k, count);
		spin_unlock(q)
#endif
	:: else
	fi
}

/*
 * memwait_thread_wait(). timed: a deadline or signal may end the wait. mortal: the thread may die
 * with a counted notify. first and last are the thread's entries.
 */
inline wait(first, last, timed, mortal)
{
	d_step {
		exists[first] = true;
		exists[last] = true
	};
	/* memwait_group_join() */
	i = first;
	do
	:: queue_join(i, word_of[i]);
	   if
	   :: !ok || i == last -> break
	   :: else -> i++
	   fi
	od;
	/* memwait_thread_sleep() and memwait_thread_end() */
	if
	:: ok && claimed[first] != NONE
	:: ok && timed -> end_wait(first)
	:: !ok -> end_wait(first)
	fi;
	won = claimed[first] != SELF;
#ifdef MUTATION_NO_ACQUIRE_OF_QUEUE
	e = word_of[(won -> claimed[first] : first)];
#endif
	i = first;
	do
	::
#ifdef MUTATION_FORGETS_A_MEMBER
	   if
	   :: i == last -> queue_leave(i)
	   :: else
	   fi;
#else
	   queue_leave(i);
#endif
	   if
	   :: i == last -> break
	   :: else -> i++
	   fi
	od;
#ifndef MUTATION_NO_ACQUIRE_OF_QUEUE
	e = word_of[(won -> claimed[first] : first)];
#endif
	/* The word whose reference is put, and to which the notify is passed on. */
	assert(e == word_of[(won -> claimed[first] : first)]);
	assert(!won || e == counted_on[claimed[first]]);
	d_step {
		exists[first] = false;
		exists[last] = false
	};
	if
	:: won -> seen++
#ifndef MUTATION_DIES_WITH_ITS_NOTIFY
	:: won && mortal -> seen++; k = e; notify(k, 1)
#else
	:: won && mortal
#endif
	:: else
	fi
}

inline end_wait(t)
{
	atomic {
		if
		:: claimed[t] == NONE -> claimed[t] = SELF
		:: else
		fi
	}
}

inline finished()
{
	running--
}

#ifdef POSITION
#define POSITION_LOCALS	byte x, y, reached; bool put
#else
#define POSITION_LOCALS	bit unused
#endif
#define LOCALS	byte q, e, i, nr, k, k2, limit, one; \
	bool ok, equal, won, more, covered, of_all; POSITION_LOCALS

proctype waiter(byte self; bool timed; bool mortal)
{
	LOCALS;

	wait(self, self, timed, mortal);
	finished()
}

#ifdef GROUP
proctype group(bool timed)
{
	LOCALS;

	wait(0, 1, timed, false);
	finished()
}
#endif

#ifdef BOTH
/* Notifies two words in sequence. */
proctype twice(byte first; byte second)
{
	LOCALS;

	notify(first, 1);
	notify(second, 1);
	finished()
}
#endif

proctype notifier(byte on; bool stores; byte count)
{
	LOCALS;

	if
	:: stores -> storing[on] = true
	:: else
	fi;
#ifndef MUTATION_NO_BARRIER_A
	!storing[on];		/* (A) smp_mb */
#endif
	notify(on, count);
	finished()
}

#ifdef HAND
/* memwait_notify_or_change(): if no waiter was woken, stores 1 to the word as a permit. */
proctype hander(byte on)
{
	LOCALS;

	nr = 0;
	q = BUCKET(on);
#ifdef MUTATION_LOOKS_WITHOUT_THE_LOCK
	if
	:: nr_waiters[q] == 0 || counting[q] -> word[on] = 1; goto done
	:: else
	fi;
#endif
	spin_lock(q);
	scan_claim(q, on, 1);
#ifdef MUTATION_CHANGES_AFTER_THE_LOCK
	spin_unlock(q);
#endif
#ifdef MUTATION_CHANGES_TOO
	word[on] = 1;
#endif
	if
	:: nr == 0 -> word[on] = 1
	:: else
	fi;
#ifndef MUTATION_CHANGES_AFTER_THE_LOCK
	spin_unlock(q);
#endif
#ifdef MUTATION_LOOKS_WITHOUT_THE_LOCK
done:
#endif
	handed++;
	finished()
}
#endif

#ifdef STEPS
/* Notifies all waiters until the untimed waiter has been notified. */
proctype caller(byte on; byte count)
{
	LOCALS;

	do
	:: claimed[0] == NONE ->
		in_call = false;
		d_step { is_late[0] = false; is_late[1] = false; is_late[2] = false };
		notify(on, count)
	:: else -> break
	od;
	finished()
}
#endif

#ifdef POSITION
/*
 * A thread with its record: memwait_position_return(), memwait_position_record() and
 * memwait_position_free(). The thread may be interrupted and return. It waits until it is notified
 * and, without RETURNS, once more.
 */
proctype guest(byte self)
{
	LOCALS;

	wait(self, self, true, false);
	if
	:: !ok
	:: ok && !won ->
#ifndef MUTATION_POSITION_IS_LOST
		returns[self] = true;
#endif
		claimed[self] = NONE;
		wait(self, self, false, false);
	:: ok && won
	fi;
#ifndef RETURNS
#ifndef MUTATION_POSITION_IS_KEPT_FOR_EVER
	returns[self] = false;
#endif
	age[self] = 0;
	claimed[self] = NONE;
	wait(self, self, false, false);
#endif
	finished()
}

proctype host(byte on)
{
	LOCALS;

#ifdef RETURNS
	/* May notify all waiters in steps; then stores to the word, and notifies all waiters. */
	if
	:: notify(on, 3);
	   d_step { is_late[0] = false; is_late[1] = false; is_late[2] = false }
	:: skip
	fi;
	word[on] = 1;
	notify(on, 3);
#else
	/* Notifies until all threads are done. */
	do
	:: running > 1 -> notify(on, 1)
	:: running == 1 -> break
	od;
#endif
	finished()
}
#endif

#if defined(MOVE) || defined(AFTER) || defined(BOTH)
/* memwait_ioc_requeue(); the keys are source and target */
proctype requeuer(byte source; byte target)
{
	LOCALS;
	byte from, to;

	from = BUCKET(source);
	to = BUCKET(target);
	/* memwait_pair_lock() */
#ifdef MUTATION_LOCKS_IN_ANY_ORDER
	spin_lock(from);
	if
	:: from != to -> spin_lock(to)
	:: else
	fi;
#else
	if
	:: from == to -> spin_lock(from)
	:: from < to -> spin_lock(from); spin_lock(to)
	:: from > to -> spin_lock(to); spin_lock(from)
	fi;
#endif
	if
	:: word[source] == 0 ->
		/* memwait_scan_move() */
		do
		:: len(waiters[source]) > 0 ->
			waiters[source]?<e>;
			assert(exists[e]);
			if
			:: claimed[OWNER(e)] != NONE -> queue_remove(from, e); bucket[e] = NONE
			:: else ->
#ifdef MUTATION_IN_NO_QUEUE_WHILE_IT_MOVES
				bucket[e] = NONE;
#endif
#ifdef MUTATION_NOT_COUNTED_WHILE_IT_MOVES
				nr_waiters[from]--;
#endif
				atomic {
					if
					:: from != to ->
						nr_waiters[to]++;
						counting[to] = counting[to] ||
							       nr_waiters[to] == 1
					:: else
					fi
				};
#ifndef AFTER
				/*
				 * A store-release: the target's count is visible before the
				 * source's. The release does not order a later load, for which
				 * AFTER needs the barrier.
				 */
				!counting[to];
#endif
#ifndef MUTATION_NOT_COUNTED_WHILE_IT_MOVES
				nr_waiters[from] = nr_waiters[from] - (from != to);
#endif
				d_step { waiters[source]??eval(e); waiters[target]!e };
				bucket[e] = to;
				word_of[e] = target
			fi
		:: else -> break
		od;
#ifndef MUTATION_NO_BARRIER_AFTER_A_MOVE
		!counting[to]			/* (H) */
#endif
	:: else
	fi;
	if
	:: from != to -> spin_unlock(to)
	:: else
	fi;
	spin_unlock(from);
#ifdef AFTER
	/* A broadcaster: notifies the target if its word is free by now. */
	if
	:: word[target] == 1 -> notify(target, 1)
	:: else
	fi;
#endif
	finished()
}
#endif

#ifdef STEPS
/* Waits twice, so that one call could find this thread twice. */
proctype returner(byte self; byte again)
{
	LOCALS;

	wait(self, self, false, false);
	wait(again, again, true, false);
	finished()
}
#endif

/* No waiter is left, and the number of notifies counted is the number seen. */
inline all_is_well()
{
	running == 0;
	assert(counted == seen);
	assert(len(waiters[A]) == 0 && len(waiters[B]) == 0);
	assert(nr_waiters[0] == 0 && nr_waiters[1] == 0)
}

init
{
	atomic {
#if defined(JOIN)
		/*
		 * Two threads wait for a word that is stored and notified; a third waits for
		 * another word.
		 */
		running = 4;
		word_of[0] = A;
		word_of[1] = A;
		word_of[2] = B;
		run waiter(0, false, false);
		run waiter(1, false, false);
		run waiter(2, true, false);
		run notifier(A, true, 2)
#elif defined(STEPS)
		/* A call of several steps, and a waiter that returns. */
		running = 3;
		run returner(0, 2);
		run waiter(1, true, false);
		run caller(A, 3)
#elif defined(HAND)
		/* A permit goes to the waiter, or into the word, and not to both. */
		running = 2;
		word_of[0] = A;
		run waiter(0, false, false);
		run hander(A)
#elif defined(CLAIM)
		/* Deadlines, signals and deaths run concurrently with two notifies. */
		running = 4;
		run waiter(0, true, true);
		run waiter(1, true, false);
		run notifier(A, false, 1);
		run notifier(A, false, 1)
#elif defined(RETURNS)
		/*
		 * The first or second of three threads is interrupted and returns; all are
		 * notified.
		 */
		running = 4;
		if
		:: run guest(0); bucket[0] != NONE; run waiter(1, false, false); bucket[1] != NONE
		:: run waiter(1, false, false); bucket[1] != NONE; run guest(0); bucket[0] != NONE
		fi;
		run waiter(2, false, false);
		bucket[2] != NONE;
		run host(A)
#elif defined(POSITION)
		/*
		 * One thread is interrupted and returns; the others joined before, or join in
		 * between.
		 */
		running = 4;
		run guest(0);
		run waiter(1, false, false);
		run waiter(2, false, false);
		run host(A)
#elif defined(GROUP)
		/* A group waits for A and B, another thread for B; each word is notified. */
		running = 4;
		word_of[0] = A;
		word_of[1] = B;
		word_of[2] = B;
		run group(true);
		run waiter(2, true, false);
		run notifier(A, false, 1);
		run notifier(B, false, 1)
#elif defined(MOVE)
		/*
		 * A thread waits, is moved back and forth, and ends by notify, deadline or signal.
		 */
		running = 4;
		word_of[0] = A;
		run waiter(0, true, false);
		run requeuer(A, B);
		run requeuer(B, A);
		run notifier(B, false, 1)
#elif defined(BOTH)
		/* A thread waits and is moved; a notifier of both words must find it. */
		running = 3;
		word_of[0] = A;
		run waiter(0, false, false);
		bucket[0] != NONE;
		run requeuer(A, B);
		run twice(A, B)
#elif defined(AFTER)
		/* A thread is moved to a word that is stored and notified at the same time. */
		running = 3;
		word_of[0] = A;
		run waiter(0, false, false);
		bucket[0] != NONE;
		run requeuer(A, B);
		run notifier(B, true, 1)
#endif
	};
	all_is_well();
#ifdef HAND
	assert(handed == seen + word[A]);
#endif
	skip
}
