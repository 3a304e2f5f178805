/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queues as a model for Spin: the protocol that the comments at the top of queue.c, group.h and
 * wait.c argue for, with their steps and names. selftests/lint/spin runs it, for each of the
 * scenarios at the end, and again with each MUTATION, which must be found. With FIXED, the queues
 * are there all the time: JOIN, PAIR and COME_AND_GO are about how they come and go, and the others
 * need not be. There is one processor, and it keeps one queue, so that they go as often as can be.
 *
 * Spin's memory is sequentially consistent. What processors do to the two stores that the barriers
 * (A) and (B) are for is modelled: a store to a word, and the insertion of a queue, is seen by
 * others at some later time, and a barrier waits for that. Release and acquire are modelled by the
 * order of steps, and mutations change the order.
 *
 * An invalid end state is a wake-up that was lost, or a deadlock; assertions are the rest.
 */
#define NONE	255
#define A	0
#define B	1

/*
 * So many objects: enough for spares of all, but in COME_AND_GO, where one may have to wait until
 * another is expelled.
 */
#if defined(JOIN) || defined(PAIR)
#define QUEUES	4
#else
#define QUEUES	3
#endif
#define ENTRIES	4	/* struct memwait_waiter: entry e is thread OWNER(e)'s */
#define SELF	254	/* MEMWAIT_CLAIMED_BY_ITSELF */

bit word[2];			/* in memory: 0 is what is expected */
bool storing[2];		/* 1 was stored to the word, not seen yet */
byte table[2] = NONE;		/* the hash table: key -> queue */
byte inserting[2] = NONE;	/* a queue that was inserted, not seen yet */

/* struct memwait_queue. They are SLAB_TYPESAFE_BY_RCU: what is free can be locked. */
bool locked[QUEUES];
byte key[QUEUES] = NONE;
bool kept[QUEUES];
bool used[QUEUES];
byte in_use;
byte kept_queue = NONE;		/* struct memwait_kept_queues */
chan waiters[QUEUES] = [ENTRIES] of { byte };

/* struct memwait_waiter */
byte queue[ENTRIES] = NONE;
byte word_of[ENTRIES];		/* .word.key */
bool exists[ENTRIES];		/* it is on the stack of its thread */
byte counted_on[ENTRIES];	/* the word by which it was notified; not in the module */

/* struct memwait_thread */
byte claimed[ENTRIES] = NONE;
bool woken[ENTRIES];

/* The accounts (R5): notifies that were counted, MEMWAIT_OKs seen, and those handed on. */
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

/* memwait_queue_lock(): q is NONE if there is none. */
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

/* memwait_queue_expel() */
inline queue_expel(q)
{
	assert(locked[q]);
	assert(used[q] && kept[q] && (table[key[q]] == q || inserting[key[q]] == q));
	kept[q] = false;
	if
#ifdef MUTATION_EXPELS_WITH_ITS_WAITERS
	:: true ->
#else
	:: len(waiters[q]) == 0 ->
#endif
		/* The bucket's lock comes free when the insertion is seen. */
		atomic { inserting[key[q]] == NONE -> table[key[q]] = NONE };
		key[q] = NONE;
		locked[q] = false;
		used[q] = false; in_use--
#ifndef MUTATION_EXPELS_WITH_ITS_WAITERS
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
		   queue_expel(other)
		:: atomic { locked[other] -> mine = kept_queue; kept_queue = other; other = mine };
		   if
#ifndef MUTATION_FORGETS_WHAT_COMES_BACK
		   :: other != NONE -> spin_lock(other); queue_expel(other)
#endif
		   :: else
		   fi
		fi
	fi
}

/* memwait_queue_unlock_only(): keep says what it returns. */
inline queue_unlock_only(q, keep)
{
	assert(locked[q]);
#ifdef FIXED
	keep = false;
	locked[q] = false
#else
	assert(key[q] != NONE);
#ifdef MUTATION_KEPT_TWICE
	keep = len(waiters[q]) == 0;
#else
	keep = len(waiters[q]) == 0 && !kept[q];
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
		inserting[k] == NONE		/* (B) smp_mb */
#else
		skip
#endif
	:: else -> key[q] = NONE; locked[q] = false
	fi
}

/* memwait_queue_lock_or_insert() */
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

/* memwait_queue_join(): ok says whether the word was equal. */
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
		:: equal -> waiters[q]!e; queue[e] = q
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
	:: q = queue[e];		/* (D) load-acquire */
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

/* memwait_group_leave() of the group of entry e, or of that alone. */
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

/*
 * memwait_queue_wake() on the locked queue q, and its threads' claims: memwait_thread_wake(). What
 * it has claimed is in woke[]. Whom others have claimed it takes out.
 */
inline queue_wake(q, k, count)
{
	do
	:: nr < count && len(waiters[q]) > 0 ->
		waiters[q]?e;
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
				queue[e] = NONE;
				counted_on[e] = k;
				woke[nr] = e;
				nr++
			}
		:: else ->
#ifdef MUTATION_LEAVES_BEFORE_LAST_ACCESS
			queue[e] = NONE;
			assert(exists[e])
#else
			assert(exists[e]);
			queue[e] = NONE		/* (D) store-release */
#endif
		fi
	:: else -> break
	od
}

/* memwait_wakes_finish(): memwait_wake_threads() */
inline wakes_finish()
{
	d_step {
		counted = counted + nr;
		i = 0
	};
	do
	:: i < nr ->
		e = woke[i];
#ifdef MUTATION_WOKEN_BEFORE_LAST_ACCESS
		woken[OWNER(e)] = true;
#endif
#ifdef GROUP
		if
		:: OWNER(e) == 0 -> queue_leave(0); queue_leave(1)
		:: else
		fi;
#endif
		assert(exists[e]);
#ifndef MUTATION_WOKEN_BEFORE_LAST_ACCESS
		woken[OWNER(e)] = true;		/* (C) store-release */
#endif
		i++
	:: else -> break
	od
}

/* memwait_queue_notify() */
inline queue_notify(k, count)
{
	nr = 0;
	queue_lock(k, q);
	if
	:: q != NONE ->
		queue_wake(q, k, count);
		queue_unlock(q)
	:: else
	fi;
	wakes_finish()
}

/*
 * memwait_wait_members(). timed: it may end by itself, by deadline or signal; mortal: it may die
 * with a notify that was counted. first and last are its entries.
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
	/* memwait_sleep() and memwait_thread_end() */
	if
	:: ok && woken[first]				/* (C) load-acquire */
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
	/* Whose reference it gives back, and where it hands its notify on. */
	assert(e == word_of[(won -> claimed[first] : first)]);
	assert(!won || e == counted_on[claimed[first]]);
	d_step {
		exists[first] = false;
		exists[last] = false
	};
	if
	:: won -> seen++
#ifndef MUTATION_DIES_WITH_ITS_NOTIFY
	:: won && mortal -> seen++; k = e; queue_notify(k, 1)
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
	};
	if
	:: claimed[t] == SELF
	:: else -> woken[t]
	fi
}

inline finished()
{
	running--
}

#define LOCALS byte q, spare, other, mine, e, i, nr, k; bool ok, equal, won, keep; byte woke[ENTRIES]

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
	queue_notify(on, count);
	finished()
}

#if defined(MOVE) || defined(PAIR) || defined(COME_AND_GO)
byte queues[4] = NONE, spares[4] = NONE;	/* [2 * requeuer + SOURCE or TARGET] */
#define SOURCE	0
#define TARGET	1

/* memwait_queue_lock_pair() and the move; the keys are source and target. */
proctype requeuer(byte source; byte target)
{
	LOCALS;
	byte base = 2 * source, depth, first, j;
	bool keep_target;

again:
#ifdef FIXED
	queues[base + SOURCE] = source;
	queues[base + TARGET] = target;
#else
	queues[base + SOURCE] = table[source];
	queues[base + TARGET] = table[target];
	i = 0;
	do
	:: i < 2 && queues[base + i] == NONE && spares[base + i] == NONE ->
		queue_alloc(q);
		spares[base + i] = q;
		goto again
	:: i < 2 && (queues[base + i] != NONE || spares[base + i] != NONE) -> i++
	:: i == 2 -> break
	od;
	if
	:: queues[base] != NONE && queues[base] == queues[base + 1] -> goto again
	:: else
	fi;
#endif
#ifdef MUTATION_LOCKS_IN_ANY_ORDER
	first = SOURCE;
#else
#ifdef MUTATION_NEW_QUEUE_FIRST
	first = (queues[base] != NONE -> TARGET : SOURCE);
#else
	first = (queues[base] == NONE ||
		 (queues[base + 1] != NONE && queues[base + 1] < queues[base]) -> TARGET : SOURCE);
#endif
#endif
	depth = 0;
	do
	:: depth == 2 -> break
	:: depth < 2 ->
		j = (depth == 0 -> first : 1 - first);
		k = (j == SOURCE -> source : target);
		q = queues[base + j];
		if
		:: q != NONE ->
			spin_lock(q);
#ifdef FIXED
			ok = true;
#else
			ok = key[q] == k;
#endif
			if
			:: !ok -> locked[q] = false
			:: else
			fi
		:: else ->
			spare = spares[base + j];
			queue_insert(spare, k, ok);
			if
			:: ok -> queues[base + j] = spare; spares[base + j] = NONE
			:: else
			fi
		fi;
		if
		:: !ok ->
			if
			:: depth == 1 -> q = queues[base + first]; queue_unlock(q)
			:: else
			fi;
			goto again
		:: else
		fi;
		depth++
	od;
	i = 0;
	do
	:: i < 2 ->
		d_step {
			if
			:: spares[base + i] != NONE ->
				used[spares[base + i]] = false;
				in_use--;
				spares[base + i] = NONE
			:: else
			fi;
			i++
		}
	:: else -> break
	od;

	/* memwait_queue_requeue() */
	nr = 0;
	if
	:: word[source] == 0 ->
		/* memwait_queue_move() */
		do
		:: len(waiters[queues[base]]) > 0 ->
			waiters[queues[base]]?e;
			assert(exists[e]);
			if
			:: claimed[OWNER(e)] != NONE -> queue[e] = NONE
			:: else ->
#ifdef MUTATION_IN_NO_QUEUE_WHILE_IT_MOVES
				queue[e] = NONE;
#endif
				waiters[queues[base + 1]]!e;
				queue[e] = queues[base + 1];
#ifndef MUTATION_MOVED_WAITER_KEEPS_ITS_WORD
				word_of[e] = target
#endif
			fi
		:: else -> break
		od
	:: else
	fi;
	q = queues[base + TARGET];
	queue_unlock_only(q, keep_target);
	q = queues[base + SOURCE];
	queue_unlock(q);
#ifndef FIXED
	q = queues[base + TARGET];
	if
	:: keep_target -> queue_keep(q)
	:: else
	fi;
#endif
	finished()
}
#endif

/* Nobody is left, nothing is left when the last context is closed, and the accounts agree. */
inline all_is_well()
{
	running == 0;
#ifndef FIXED
	/* memwait_queue_expel_all() */
	if
	:: kept_queue != NONE -> spin_lock(kept_queue); queue_expel(kept_queue)
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
		/* Two wait for a word that is stored and notified; another uses queues meanwhile. */
		running = 4;
		word_of[0] = A;
		word_of[1] = A;
		word_of[2] = B;
		run waiter(0, false, false);
		run waiter(1, false, false);
		run waiter(2, true, false);
		run notifier(A, true, 2)
#elif defined(CLAIM)
		/* Deadlines, signals and deaths against two notifies. */
		running = 4;
		run waiter(0, true, true);
		run waiter(1, true, false);
		run notifier(A, false, 1);
		run notifier(A, false, 1)
#elif defined(GROUP)
		/* A group waits for A and B, others for each of them, and each is notified. */
		running = 4;
		word_of[0] = A;
		word_of[1] = B;
		word_of[2] = B;
		run group(true);
		run waiter(2, true, false);
		run notifier(A, false, 1);
		run notifier(B, false, 1)
#elif defined(MOVE)
		/* One waits, is moved to and fro, and ends by notify, deadline or signal. */
		running = 4;
		word_of[0] = A;
		run waiter(0, true, false);
		run requeuer(A, B);
		run requeuer(B, A);
		run notifier(B, false, 1)
#elif defined(PAIR)
		/* Both lock both queues, which they make themselves. */
		running = 2;
		run requeuer(A, B);
		run requeuer(B, A)
#elif defined(COME_AND_GO)
		/* The queues come and go with their waiters. */
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
