/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spin model of the queues: the protocol argued for at the top of queue.c, notify.c, requeue.c,
 * group.c and wait.c, with its steps and names. selftests/lint/spin runs each scenario at the end
 * of this file, and again with each MUTATION, which must fail. With FIXED, queues always exist:
 * only JOIN, PLACE, HELD, PAIR and COME_AND_GO need queues that come and go. One user keeps one
 * queue, so that queues go as often as possible. A step of a call claims one waiter.
 *
 * Spin's memory is sequentially consistent. The two stores that the barriers (A) and (B) order are
 * modelled as delayed: others see a store to a word, or the insertion of a queue, at some later
 * time, and a barrier waits for that. The order of steps models release and acquire; mutations
 * change it.
 *
 * An invalid end state is a lost wake-up or a deadlock. Assertions find the rest.
 */
#if defined(STEPS) || defined(HELD) || defined(RETURNS)
#define IN_STEPS
#endif
#ifdef RETURNS
#define PLACE
#endif

#define NONE	255
#define A	0
#define B	1

/*
 * Enough objects for everybody's spare, except in COME_AND_GO, where a thread may have to wait
 * until another queue is evicted.
 */
#if defined(JOIN) || defined(PAIR)
#define QUEUES	4
#else
#define QUEUES	3
#endif
#define ENTRIES	4	/* struct memwait_waiter: entry e is thread OWNER(e)'s */
#define SELF	254	/* MEMWAIT_CLAIMED_BY_ITSELF */

bit word[2];			/* in memory; 0 is the expected value */
bool storing[2];		/* 1 was stored to the word, not visible yet */
byte table[2] = NONE;		/* the hash table: key -> queue */
byte inserting[2] = NONE;	/* an inserted queue, not visible yet */

/* struct memwait_queue. SLAB_TYPESAFE_BY_RCU: a free queue can be locked. */
bool locked[QUEUES];
byte key[QUEUES] = NONE;
bool kept[QUEUES];
bool used[QUEUES];
byte calls[QUEUES];		/* .nr_calls */
byte number[QUEUES];
byte last_number;		/* memwait_last_number */
byte in_use;
byte kept_queue = NONE;		/* struct memwait_kept_queues */
chan waiters[QUEUES] = [ENTRIES] of { byte };

/* struct memwait_waiter */
byte queue[ENTRIES] = NONE;
byte word_of[ENTRIES];		/* .word.key */
bool exists[ENTRIES];		/* on its thread's stack, or in a group's memory */
byte number_of[ENTRIES];
bool returns[ENTRIES];		/* was interrupted, and keeps its number */
byte age[ENTRIES];		/* when the wait began, or 0; model only */
byte ages;
bool is_late[ENTRIES];		/* joined after the call of STEPS began; model only */
byte counted_on[ENTRIES];	/* the word that was notified; model only */

/* struct memwait_group */
byte claimed[ENTRIES] = NONE;
byte refs;			/* of the allocated group */

bool in_call;			/* the call of STEPS has begun */

/* Accounts (R5): notifies counted, MEMWAIT_OKs seen or passed on. */
byte counted, seen;
byte running;

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
	:: atomic { inserting[A] != NONE -> table[A] = inserting[A]; inserting[A] = NONE }
	:: atomic { inserting[B] != NONE -> table[B] = inserting[B]; inserting[B] = NONE }
	od
}

inline spin_lock(q)
{
	atomic { !locked[q] -> locked[q] = true }
}

/* memwait_queue_find(): q is NONE if there is none */
inline queue_lock(k, q)
{
#ifdef FIXED
	q = k;
	spin_lock(q)
#else
	do
	:: q = table[k];
	   if
	   :: q == NONE -> break
	   :: else
	   fi;
	   spin_lock(q);
#ifdef MUTATION_NO_SECOND_LOOK_AT_KEY
	   break
#else
	   if
	   :: key[q] == k -> break
	   :: else -> locked[q] = false
	   fi
#endif
	od
#endif
}

/* memwait_queue_evict() */
inline queue_evict(q)
{
	assert(locked[q]);
	assert(used[q] && kept[q] && (table[key[q]] == q || inserting[key[q]] == q));
	kept[q] = false;
	if
#ifdef MUTATION_EVICTS_WITH_ITS_WAITERS
	:: true ->
#else
	:: len(waiters[q]) == 0 && calls[q] == 0 ->
#endif
#ifndef MUTATION_NUMBERS_BEGIN_ANEW
		last_number = (number[q] > last_number -> number[q] : last_number);
#endif
		/* The bucket's lock is released when the insertion is visible. */
		atomic { inserting[key[q]] == NONE -> table[key[q]] = NONE };
		key[q] = NONE;
		locked[q] = false;
		used[q] = false; in_use--
#ifndef MUTATION_EVICTS_WITH_ITS_WAITERS
	:: else -> locked[q] = false
#endif
	fi
}

/* memwait_queue_keep() */
inline queue_keep(q)
{
	atomic { other = kept_queue; kept_queue = q };	/* xchg */
	if
	:: other == NONE
	:: other != NONE ->
		if
		:: atomic { !locked[other] -> locked[other] = true };	/* spin_trylock() */
		   queue_evict(other)
		:: atomic { locked[other] -> mine = kept_queue; kept_queue = other; other = mine };
		   if
#ifndef MUTATION_FORGETS_WHAT_COMES_BACK
		   :: other != NONE -> spin_lock(other); queue_evict(other)
#endif
		   :: else
		   fi
		fi
	fi
}

/* memwait_queue_unlock_only(), which returns keep */
inline queue_unlock_only(q, keep)
{
	assert(locked[q]);
#ifdef FIXED
	keep = false;
	locked[q] = false
#else
	assert(key[q] != NONE);
#ifdef MUTATION_KEPT_TWICE
	keep = len(waiters[q]) == 0 && calls[q] == 0;
#else
	keep = len(waiters[q]) == 0 && calls[q] == 0 && !kept[q];
#endif
	if
	:: keep -> kept[q] = true
	:: else
	fi;
	locked[q] = false
#endif
}

/* memwait_queue_unlock() */
inline queue_unlock(q)
{
	queue_unlock_only(q, keep);
#ifndef FIXED
	if
	:: keep -> queue_keep(q)
	:: else
	fi
#endif
}

inline queue_alloc(q)
{
	atomic {
		in_use < QUEUES ->
		in_use++;
		q = 0;
		do
		:: used[q] -> q++
		:: else -> break
		od;
		used[q] = true
	}
}

/* memwait_queue_insert() */
inline queue_insert(q, k, inserted)
{
	spin_lock(q);
	assert(!kept[q]);
	key[q] = k;
	atomic {
		inserting[k] == NONE ->		/* the bucket's lock */
		inserted = table[k] == NONE;
		if
		:: inserted -> inserting[k] = q
		:: else
		fi
	};
	if
	:: inserted ->
#ifndef MUTATION_NO_BARRIER_B
		inserting[k] == NONE;		/* (B) smp_mb */
#endif
#ifdef MUTATION_NUMBERS_BEGIN_ANEW
		number[q] = 0
#else
		number[q] = (last_number > number[q] -> last_number : number[q])
#endif
	:: else -> key[q] = NONE; locked[q] = false
	fi
}

/* memwait_queue_find_or_insert() */
inline queue_lock_or_insert(k, q)
{
#ifdef FIXED
	queue_lock(k, q)
#else
	spare = NONE;
	do
	:: queue_lock(k, q);
	   if
	   :: q != NONE -> break
	   :: else
	   fi;
	   if
	   :: spare == NONE -> queue_alloc(spare)
	   :: else
	   fi;
	   queue_insert(spare, k, ok);
	   if
	   :: ok -> q = spare; spare = NONE; break
	   :: else
	   fi
	od;
	if
	:: spare != NONE -> used[spare] = false; in_use--; spare = NONE
	:: else
	fi
#endif
}

/* memwait_queue_append() or memwait_queue_return(): one list stands for the module's two */
inline queue_append(q, e)
{
#ifdef PLACE
	if
	:: returns[e] ->
		x = len(waiters[q]);
		put = false;
		do
		:: x == 0 -> break
		:: else ->
			waiters[q]?y;
			if
			:: !put && number_of[y] > number_of[e] -> waiters[q]!e; put = true
			:: else
			fi;
			waiters[q]!y;
			x--
		od;
		if
		:: !put -> waiters[q]!e
		:: else
		fi;
		x = 0; y = 0; put = false
	:: else ->
		number[q]++;
		number_of[e] = number[q];
		waiters[q]!e
	fi;
	if
	:: age[e] == 0 -> ages++; age[e] = ages
	:: else
	fi
#else
	waiters[q]!e;
#ifdef IN_STEPS
	number[q]++;
	number_of[e] = number[q]
#else
	skip
#endif
#endif
}

/* memwait_queue_join(): ok if the word is equal */
inline queue_join(e, k)
{
#ifdef MUTATION_COMPARE_BEFORE_LOCK
	equal = word[k] == 0;
#endif
	queue_lock_or_insert(k, q);
#ifndef MUTATION_COMPARE_BEFORE_LOCK
	equal = word[k] == 0;
#endif
	atomic {
		if
		:: equal ->
			queue_append(q, e);
			queue[e] = q;
			is_late[e] = in_call && !returns[e]
		:: else
		fi;
		ok = equal
	};
	queue_unlock(q)
}

/* memwait_queue_leave() */
inline queue_leave(e)
{
	do
	:: q = queue[e];		/* (C) load-acquire */
	   if
	   :: q == NONE -> break
	   :: else
	   fi;
	   spin_lock(q);
#ifdef MUTATION_LEAVE_WITHOUT_SECOND_LOOK
	   if
	   :: queue[e] != NONE
#else
	   if
	   :: queue[e] == q
#endif
	      -> waiters[q]??[eval(e)] -> waiters[q]??eval(e);
	      queue[e] = NONE;
	      queue_unlock(q);
	      break
	   :: else -> locked[q] = false
	   fi
	od
}

/* memwait_group_leave() for the group of entry e, or memwait_queue_leave() for e alone */
inline group_leave(e)
{
#ifdef GROUP
	if
	:: OWNER(e) == 0 -> queue_leave(0); queue_leave(1)
	:: else -> queue_leave(e)
	fi
#else
	queue_leave(e)
#endif
}

/* memwait_call_next(): e, if covered */
inline look(q)
{
	d_step {
#ifdef RETURNS
		covered = false;
		x = len(waiters[q]);
		do
		:: x == 0 -> break
		:: else ->
			waiters[q]?y;
			waiters[q]!y;
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
		covered = len(waiters[q]) > 0;
#if defined(IN_STEPS) && !defined(MUTATION_NO_NUMBER)
		if
		:: covered -> waiters[q]?<e>; covered = number_of[e] <= limit
		:: else
		fi
#endif
#endif
	}
}

/*
 * memwait_call_claim() on the locked queue q, with memwait_thread_claim(). Claims until nr is most.
 * woken_group marks a claimed group, to which the notifier has a reference. A waiter that something
 * else has claimed is removed.
 */
inline call_claim(q, k, most)
{
	do
	:: look(q);
	   if
	   :: nr == most || !covered -> break
	   :: else
	   fi;
#ifdef RETURNS
		d_step {
			waiters[q]??eval(e);
#ifndef MUTATION_PASSES_ONE_THAT_WAITS_FOR_THE_NEXT_STEP
			assert(number_of[e] > reached);
			reached = number_of[e]
#endif
		};
#else
		waiters[q]?e;
#endif
		assert(exists[e] && queue[e] == q);
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
#if defined(PLACE) && !defined(RETURNS)
				/* R12: each waiter behind it began to wait later. */
				x = len(waiters[q]);
				do
				:: x == 0 -> break
				:: else ->
					waiters[q]?y;
					assert(age[y] > age[e]);
					waiters[q]!y;
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
			};
#ifdef GROUP
			if
			:: OWNER(e) == 0 ->
				woken_group = true;
#ifndef MUTATION_NO_REFERENCE_TO_GROUP
				refs++
#endif
			:: else
			fi
#endif
		:: else
		fi;
#ifdef MUTATION_LEAVES_BEFORE_LAST_ACCESS
		queue[e] = NONE;
		assert(exists[e])
#else
		assert(exists[e]);
		queue[e] = NONE		/* (C) store-release */
#endif
	od
}

/* memwait_group_put() */
inline group_put()
{
	d_step {
		refs--;
		if
		:: refs == 0 -> exists[0] = false; exists[1] = false
		:: else
		fi
	}
}

/* memwait_step_end(): removes a claimed group's members; wake-ups are by reference */
inline step_end()
{
#ifdef GROUP
	if
	:: woken_group ->
		assert(exists[0] && exists[1]);
		queue_leave(0);
		assert(exists[1]);
		queue_leave(1);
#ifndef MUTATION_NO_REFERENCE_TO_GROUP
		group_put();
#endif
		woken_group = false
	:: else
	fi
#else
	skip
#endif
}

/* memwait_notify(); in STEPS, HELD and RETURNS also memwait_notify_rest() */
inline notify(k, count)
{
	nr = 0;
	queue_lock(k, q);
	if
	:: q != NONE ->
#ifdef IN_STEPS
		limit = number[q];
#ifdef RETURNS
		reached = 0;
#endif
		of_all = count > 1;
		in_call = in_call || of_all;
		held = false;
		do
		:: one = (nr < count -> nr + 1 : nr);
		   call_claim(q, k, one);
		   look(q);
		   more = nr < count && covered;
		   if
		   :: more && !held ->
			held = true;
#ifndef MUTATION_NOT_HELD
			calls[q]++
#endif
		   :: !more && held ->
#ifndef MUTATION_NOT_HELD
			calls[q]--
#endif
		   :: else
		   fi;
		   queue_unlock(q);
		   if
		   :: !more -> break
		   :: else
		   fi;
		   spin_lock(q);
#ifndef FIXED
		   assert(used[q] && key[q] == k)
#endif
		od;
		in_call = in_call && !of_all
#else
		call_claim(q, k, count);
		queue_unlock(q)
#endif
	:: else
	fi;
	step_end()
}

/*
 * memwait_thread_wait(). timed: a deadline or signal may end it. mortal: it may die with a counted
 * notify. first and last are its entries.
 */
inline wait(first, last, timed, mortal)
{
	d_step {
		exists[first] = true;
		exists[last] = true;
		refs = (first == last -> refs : 1)
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
	/* memwait_sleep() and memwait_thread_end() */
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
	if
	:: first == last -> exists[first] = false
	:: else -> group_put()
	fi;
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

#ifdef PLACE
#define PLACE_LOCALS	byte x, y, reached; bool put
#else
#define PLACE_LOCALS	bit unused
#endif
#define LOCALS	byte q, spare, other, mine, e, i, nr, k, limit, one; \
	bool ok, equal, won, keep, more, held, covered, of_all, woken_group; PLACE_LOCALS

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

#if defined(HELD) || (defined(PLACE) && !defined(FIXED))
/* A waiter whose word is not equal: its queue is idle immediately, and is kept. */
proctype passer(byte on)
{
	LOCALS;

	queue_lock_or_insert(on, q);
	queue_unlock(q);
	finished()
}
#endif

#ifdef STEPS
/* Notifies all until the untimed waiter has been notified. */
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

#ifdef PLACE
/*
 * A thread with its record: memwait_place_join(), memwait_place_note() and memwait_place_drop(). It
 * may be interrupted and come back. It waits until it is notified and, with FIXED, once more.
 */
proctype guest(byte self)
{
	LOCALS;

	wait(self, self, true, false);
	if
	:: !ok
	:: ok && !won ->
#ifndef MUTATION_PLACE_IS_LOST
		returns[self] = true;
#endif
		claimed[self] = NONE;
		wait(self, self, false, false);
	:: ok && won
	fi;
#if defined(FIXED) && !defined(RETURNS)
#ifndef MUTATION_PLACE_IS_KEPT_FOR_EVER
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
	/* May notify all in steps; stores, and notifies all. */
	if
	:: notify(on, 3);
	   d_step { is_late[0] = false; is_late[1] = false; is_late[2] = false }
	:: skip
	fi;
	word[on] = 1;
	notify(on, 3);
#else
	/* Notifies until all are done. */
	do
	:: running > 1 -> notify(on, 1)
	:: running == 1 -> break
	od;
#endif
	finished()
}
#endif

#if defined(MOVE) || defined(PAIR) || defined(COME_AND_GO)
/* memwait_pair_find() and the move; the keys are source and target */
proctype requeuer(byte source; byte target)
{
	LOCALS;
	byte from, to;
	bool keep_target, both;

	queue_lock_or_insert(source, from);
	/* memwait_queue_try_find() */
	both = false;
#ifdef FIXED
	to = target;
#else
	to = table[target];
#endif
	if
	:: to == NONE
	:: to != NONE ->
		if
		:: atomic { !locked[to] -> locked[to] = true };
#ifdef FIXED
		   both = true
#else
		   both = key[to] == target;
		   if
		   :: !both -> locked[to] = false
		   :: else
		   fi
#endif
		:: atomic { locked[to] -> skip }
		fi
	fi;
	if
	:: both
	:: else ->
		calls[from]++;
		q = from;
		queue_unlock(q);
		queue_lock_or_insert(target, to);
		calls[to]++;
		q = to;
		queue_unlock(q);
		/* memwait_pair_lock() */
#ifdef MUTATION_LOCKS_IN_ANY_ORDER
		spin_lock(from);
		spin_lock(to);
#else
		if
		:: from < to -> spin_lock(from); spin_lock(to)
		:: else -> spin_lock(to); spin_lock(from)
		fi;
#endif
		calls[from]--;
		calls[to]--
	fi;

	/* memwait_requeue() */
	if
	:: word[source] == 0 ->
		/* memwait_call_move() */
		do
		:: len(waiters[from]) > 0 ->
			waiters[from]?e;
			assert(exists[e]);
			if
			:: claimed[OWNER(e)] != NONE -> queue[e] = NONE
			:: else ->
#ifdef MUTATION_IN_NO_QUEUE_WHILE_IT_MOVES
				queue[e] = NONE;
#endif
				waiters[to]!e;
				queue[e] = to;
#ifndef MUTATION_MOVED_WAITER_KEEPS_ITS_WORD
				word_of[e] = target
#endif
			fi
		:: else -> break
		od
	:: else
	fi;
	queue_unlock_only(to, keep_target);
	q = from;
	queue_unlock(q);
#ifndef FIXED
	q = to;
	if
	:: keep_target -> queue_keep(q)
	:: else
	fi;
#endif
	finished()
}
#endif

#ifdef STEPS
/* Waits twice, so that a call could meet it twice. */
proctype returner(byte self; byte again)
{
	LOCALS;

	wait(self, self, false, false);
	wait(again, again, true, false);
	finished()
}
#endif

/* No waiter is left, no queue is left after the last close, and the accounts agree. */
inline all_is_well()
{
	running == 0;
#ifndef FIXED
	/* memwait_queue_evict_all() */
	if
	:: kept_queue != NONE -> spin_lock(kept_queue); queue_evict(kept_queue)
	:: else
	fi;
#endif
	assert(counted == seen);
	assert(table[A] == NONE && table[B] == NONE);
	assert(len(waiters[0]) == 0 && len(waiters[1]) == 0 && len(waiters[2]) == 0);
	assert(in_use == 0)
}

init
{
	atomic {
#if defined(JOIN)
		/* Two wait for a word that is stored and notified; another thread uses queues. */
		running = 4;
		word_of[0] = A;
		word_of[1] = A;
		word_of[2] = B;
		run waiter(0, false, false);
		run waiter(1, false, false);
		run waiter(2, true, false);
		run notifier(A, true, 2)
#elif defined(STEPS)
		/* A call of several steps, and a waiter that comes back. */
		running = 3;
		run returner(0, 2);
		run waiter(1, true, false);
		run caller(A, 3)
#elif defined(HELD)
		/* The waiters leave the queue between two steps, and another queue is kept. */
		running = 4;
		word_of[0] = A;
		word_of[1] = A;
		run waiter(0, true, false);
		run waiter(1, true, false);
		run passer(B);
		run notifier(A, false, 2)
#elif defined(CLAIM)
		/* Deadlines, signals and deaths against two notifies. */
		running = 4;
		run waiter(0, true, true);
		run waiter(1, true, false);
		run notifier(A, false, 1);
		run notifier(A, false, 1)
#elif defined(RETURNS)
		/* The first or second of three is interrupted and returns; all are notified. */
		running = 4;
		if
		:: run guest(0); queue[0] != NONE; run waiter(1, false, false); queue[1] != NONE
		:: run waiter(1, false, false); queue[1] != NONE; run guest(0); queue[0] != NONE
		fi;
		run waiter(2, false, false);
		queue[2] != NONE;
		run host(A)
#elif defined(PLACE)
		/* One is interrupted and returns; others are there or come meanwhile. */
		running = 4;
		run guest(0);
		run waiter(1, false, false);
#ifdef FIXED
		run waiter(2, false, false);
#else
		run passer(B);
#endif
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
		/* One waits, is moved back and forth, and ends by notify, deadline or signal. */
		running = 4;
		word_of[0] = A;
		run waiter(0, true, false);
		run requeuer(A, B);
		run requeuer(B, A);
		run notifier(B, false, 1)
#elif defined(PAIR)
		/* Both lock both queues, and insert them. */
		running = 2;
		run requeuer(A, B);
		run requeuer(B, A)
#elif defined(COME_AND_GO)
		/* Queues come and go with their waiters. */
		running = 3;
		word_of[0] = A;
		word_of[1] = B;
		run waiter(0, true, false);
		run waiter(1, true, false);
		run requeuer(A, B)
#endif
	};
	all_is_well()
}
