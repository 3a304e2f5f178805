// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Spin model of deaths: locks whose users are killed at any point: between any two steps, asleep,
 * or woken but not running yet. ROBUST is owner.c, NORMAL lock.c, SEMAPHORE sem.c, BROADCAST and
 * SIGNAL cond.c. selftests/lint/spin runs each, and again with each MUTATION, which must fail.
 *
 * At rest, no thread sleeps although it could have what it waits for. The process monitor checks
 * this in every state, so it does not depend on later deaths.
 *
 * A step is one access to shared state, with the thread's private work around it. A system call is
 * one step: module/queue.pml and module/owner.pml model its parts. A compare-and-swap loop is one
 * step, its last round. A change of a word and its notify are two steps, between which other
 * threads run but the caller does not die (R38). Steps are sequentially consistent;
 * module/queue.pml models what processors reorder.
 */
#if defined(SEMAPHORE)
#define THREADS	5
#elif defined(ROBUST) && !defined(INHERITED)
#define THREADS	3
#else
#define THREADS	4
#endif
#ifndef DEATHS
#define DEATHS	2
#endif
/* How often a thread takes the lock. */
#ifdef ROUNDS
#elif defined(INHERITED) || defined(OPERATION) || defined(BROADCAST)
#define ROUNDS	1
#else
#define ROUNDS	2
#endif

#define NOBODY	0		/* thread numbers start at 1 */

/*
 * OK, OWNER_DIED, TIMED_OUT: the wait has ended in this way, and the thread has not continued.
 * IDLE: the thread has finished.
 */
mtype = { RUNNING, ASLEEP, OK, OWNER_DIED, TIMED_OUT, IDLE, DEAD };

mtype state[THREADS + 2] = RUNNING;	/* and that of the context */
bool in_change[THREADS + 1];	/* in a call that no death splits */
byte deaths;

#define IS_DEAD(t)	(state[t] == DEAD)

/*
 * The waiter that a thread is. The waits of an operation are those of a context, which dies with
 * the process, not with a thread.
 */
#ifdef OPERATION
#define CONTEXT		(THREADS + 1)
#define WAITS_AS(t)	((t) == 2 -> CONTEXT : (t))
#else
#define WAITS_AS(t)	(t)
#endif
#define WAS_WOKEN(how)	((how) == OK || (how) == OWNER_DIED)

/*
 * The kernel: a queue for the lock or semaphore, and one for the condition variable. All waits have
 * MEMWAIT_OWNED.
 */
#define LOCK	0
#define COND	1

chan queue[2] = [THREADS] of { byte };
byte watched[2];
byte queue_of[THREADS + 1];

/* Each of the following runs within a step. memwait_queue_unlock(): */
inline unwatch_if_empty(q)
{
	if
	:: empty(queue[q]) -> watched[q] = NOBODY
	:: nempty(queue[q])
	fi
}

/* Ends the oldest waiter's wait. memwait_queue_remove_claimed(): */
inline claim(q, t, result)
{
	queue[q]?t;
	state[t] = result;
#if defined(MUTATION_WOKEN_IS_NOT_WATCHED)
	watched[q] = (result == OK -> watched[q] : WAITS_AS(t));
#elif defined(MUTATION_TOLD_IS_NOT_WATCHED)
	watched[q] = (result == OK -> WAITS_AS(t) : NOBODY);
#else
	watched[q] = WAITS_AS(t);
#endif
	unwatch_if_empty(q);
	t = 0
}

/* MEMWAIT_IOC_NOTIFY */
inline notify(q, t)
{
	if
	:: nempty(queue[q]) -> claim(q, t, OK)
	:: empty(queue[q])
	fi
}

inline notify_all(q, t)
{
	do
	:: nempty(queue[q]) -> claim(q, t, OK)
	:: empty(queue[q]) -> break
	od
}

/* memwait_queue_leave() */
inline leave_queue(t)
{
	queue[queue_of[t]]??eval(t);
	unwatch_if_empty(queue_of[t])
}

/* memwait_queue_tell() by the work */
inline tell(q, t)
{
	claim(q, t, OWNER_DIED)
}

#define HAS_TO_TELL(q)	IS_DEAD(watched[q])

/*
 * MEMWAIT_IOC_WAIT while the word has the expected value, which names an owner or none; otherwise
 * the thread continues immediately. may_end: a deadline may have passed.
 */
inline sleep(q, is_expected, named, may_end)
{
	if
	:: !(is_expected)
	:: (is_expected) && IS_DEAD(named) -> state[me] = OWNER_DIED
	:: (is_expected) && !IS_DEAD(named) && may_end -> state[me] = TIMED_OUT
	:: (is_expected) && !IS_DEAD(named) ->
#ifndef MUTATION_NAMES_NOBODY
		watched[q] = (named == NOBODY -> watched[q] : named);
#endif
		queue[q]!me;
		queue_of[me] = q;
		state[me] = ASLEEP
	fi
}

/* The thread continues after its wait, if it waited. */
inline go_on()
{
	state[me] = RUNNING;
	queue_of[me] = 0
}

active proctype work()
{
	byte t;

end:	do
	:: atomic { HAS_TO_TELL(LOCK) -> tell(LOCK, t) }
	:: atomic { HAS_TO_TELL(COND) -> tell(COND, t) }
	od
}

#define MAY_DIE(v)	(deaths < DEATHS && state[v] != DEAD && state[v] != IDLE && !in_change[v])

/* A notified thread that is killed in the kernel passes the notify on; or it dies later. */
inline kill(v)
{
	if
	:: state[v] == ASLEEP -> leave_queue(v)
	:: state[v] == OK -> notify(queue_of[v], t)
	:: state[v] != ASLEEP
	fi;
	state[v] = DEAD;
	queue_of[v] = 0;
	deaths++
}

#ifndef SEMAPHORE
/* The holder, independent of the word: from the step that takes the lock to its release. */
byte holder;
byte word;
#endif
#ifdef OPERATION
bool has_answered;		/* thread 2 holds the lock, and its call has returned */
#endif

active proctype killer()
{
	byte t;

end:	do
	:: atomic { MAY_DIE(1) -> kill(1) }
#ifdef OPERATION
	:: atomic { MAY_DIE(2) -> kill(2); state[CONTEXT] = DEAD }
	/* A thread that dies alone does so outside calls of the library. */
	:: atomic { MAY_DIE(2) && has_answered -> kill(2); has_answered = false }
#else
	:: atomic { MAY_DIE(2) -> kill(2) }
#endif
	:: atomic { MAY_DIE(3) -> kill(3) }
#if THREADS > 3
	:: atomic { MAY_DIE(4) -> kill(4) }
#endif
#if THREADS > 4
	:: atomic { MAY_DIE(5) -> kill(5) }
#endif
	od
}

#ifdef ROBUST
/* An owner word. */
#define OWNER(w)	((w) & 7)
#define CONTENDED	8
#define INCONSISTENT	16
#define NOT_RECOVERABLE	INCONSISTENT
#define EOWNERDEAD	1

#define MAY_SLEEP(t)	false

bool broken;			/* the protected data */
bool not_recoverable;

/* A thread's next step. */
mtype = { NOTHING, TO_TRY, TO_LOCK, TO_ANSWER, TO_UNLOCK, TO_WAKE_ONE, TO_WAKE_ALL };

/* Within the step that takes the lock. */
inline take(result)
{
	assert(holder == NOBODY || IS_DEAD(holder));
	assert((result == EOWNERDEAD) == (holder != NOBODY));
	assert(!not_recoverable && (result == EOWNERDEAD || !broken));
	holder = me;
	broken = (result == EOWNERDEAD);
#ifdef OPERATION
	next = (me == 2 && next == TO_LOCK -> TO_ANSWER : TO_UNLOCK);
	has_answered = me == 2 && next == TO_UNLOCK
#else
	next = TO_UNLOCK
#endif
}

/* memwait_owner_try_or_inherit() up to the call of the kernel */
inline try()
{
	if
	:: word == 0 -> word = me; take(0)
	:: word == CONTENDED -> word = me | CONTENDED; take(0)
	:: word == NOT_RECOVERABLE -> next = NOTHING
	:: word != 0 && word != CONTENDED && word != NOT_RECOVERABLE ->
#ifdef MUTATION_TRYLOCK_DOES_NOT_ASK
		assert(!IS_DEAD(holder));
		next = NOTHING
#else
		seen = word
#endif
	fi
}

/* memwait_owner_is_dead(): a wait with a deadline that has passed */
inline ask()
{
	dead = word == seen && IS_DEAD(OWNER(seen));
	/* TO_TRY then returns EBUSY. */
	if
	:: next == TO_TRY && word == seen && !dead -> next = NOTHING; assert(!IS_DEAD(holder))
	:: else
	fi
}

inline inherit()
{
	if
	:: word == seen ->
		word = me | CONTENDED | INCONSISTENT;
		take(EOWNERDEAD)
	:: word != seen
	fi
}

inline lock_or_contend()
{
	if
	:: word == NOT_RECOVERABLE ->
#ifdef MUTATION_NOT_RECOVERABLE_IS_NOT_PASSED_ON
		next = NOTHING
#else
		next = (slept -> TO_WAKE_ALL : NOTHING)
#endif
	:: word == 0 || word == CONTENDED ->
#ifdef MUTATION_WOKEN_LOCKS_WITHOUT_CONTENDED
		word = me;
#else
		word = me | CONTENDED;
#endif
		take(0)
	:: word != 0 && word != CONTENDED && word != NOT_RECOVERABLE ->
		word = word | CONTENDED;
		seen = word
	fi
}

/*
 * memwait_owner_release(), possibly after memwait_owner_make_consistent(). It checked for sleepers
 * earlier, so the answer may be stale.
 */
inline unlock()
{
	assert(holder == me && OWNER(word) == me);
	if
	:: broken -> word = word & ~INCONSISTENT; broken = false
	:: true
	fi;
	next = (broken -> TO_WAKE_ALL : (word & CONTENDED -> TO_WAKE_ONE : NOTHING));
	if
	:: word = (broken -> NOT_RECOVERABLE : 0)
	:: next == TO_WAKE_ONE -> word = CONTENDED
	fi;
	not_recoverable = broken;
	holder = NOBODY
#ifdef OPERATION
	;
	has_answered = false
#endif
}

inline forget()
{
	seen = 0;
	slept = false;
	woken = false;
	dead = false;
	t = 0
}

proctype user(byte me; bool may_end)
{
	byte t, seen, rounds;
	bool slept, woken, dead;
	mtype next = NOTHING;

	{
loop:		do
		:: atomic {
			next == NOTHING && rounds < ROUNDS ->
			forget();
			rounds++;
			/* memwait_owner_lock() starts with a try, too */
			next = TO_TRY;
			try();
			if
			:: next == TO_TRY -> next = TO_LOCK; seen = 0
			:: true
			fi
		   }
		:: atomic {
			next == TO_TRY ->
			if
			:: seen == 0 -> try(); goto loop
			:: seen != 0 ->
				ask();
				if
				:: !dead -> seen = 0; goto loop
				:: dead
				fi
			fi
		   };
		   atomic { inherit(); seen = 0 }
		:: atomic {
			next == TO_LOCK && (state[me] == RUNNING || state[me] == OK) ->
			woken = woken || state[me] == OK;
			go_on();
			lock_or_contend();
			if
			:: next != TO_LOCK -> goto loop
			:: next == TO_LOCK
			fi
		   };
		   atomic { slept = true; sleep(LOCK, word == seen, OWNER(seen), may_end) }
		:: atomic {
			next == TO_LOCK && state[me] == OWNER_DIED ->
			woken = true;
			go_on();
#ifdef MUTATION_ANY_DEATH_IS_THE_OWNERS
			dead = true;
#else
			ask();
#endif
			if
			:: !dead -> goto loop
			:: dead
			fi
		   };
		   atomic { inherit() }
		:: atomic {
			may_end && state[me] == ASLEEP ->
			leave_queue(me);
			if
			:: state[me] = TIMED_OUT
			:: go_on()		/* EINTR */
			fi
		   }
		/* Gives up. Among woken threads only an operation can: memwait_owner_undo() */
		:: atomic {
			may_end && (state[me] == TIMED_OUT || WAS_WOKEN(state[me])) ->
			woken = woken || state[me] != TIMED_OUT;
			go_on();
			next = NOTHING;
			if
#ifndef MUTATION_GIVES_UP_WITH_ITS_WAKE_UP
			:: woken -> notify(LOCK, t)
#endif
			:: else
			fi
		   }
#ifdef OPERATION
		/* An operation holds the lock: the next waiter names this thread. */
		:: atomic {
			next == TO_ANSWER ->
#ifndef MUTATION_OPERATION_DOES_NOT_ANSWER
			notify(LOCK, t);
#endif
			has_answered = true;
			next = TO_UNLOCK
		   }
#endif
		:: atomic { next == TO_UNLOCK -> unlock() }
		:: atomic { next == TO_WAKE_ONE -> notify(LOCK, t); next = NOTHING }
		:: atomic { next == TO_WAKE_ALL -> notify_all(LOCK, t); next = NOTHING }
		:: atomic { next == NOTHING && rounds == ROUNDS -> forget(); state[me] = IDLE; break }
		od;
end_idle:	false
	} unless { state[me] == DEAD };
	d_step { forget(); rounds = 0; next = NOTHING }
}
#endif

#if defined(NORMAL) || defined(BROADCAST) || defined(SIGNAL)
/* A thread's next step; then: the one after the unlock. */
mtype = { TO_LOCK, TO_CONTEND, TO_ENTER, TO_UNLOCK, TO_WAKE, NOTHING };

bool reached[THREADS + 1];	/* it returns because of a signal */
byte nr_reached;		/* how many of those threads have unlocked */

/* A lock word. */
#define LOCKED		1
#define BOTH		3	/* and CONTENDED */

/* A holder that died leaves the lock locked, and the waiters asleep. */
#define IS_LOST		IS_DEAD(holder)

/* Within the step that takes the lock. */
inline take(value)
{
	assert(holder == NOBODY);
	word = value;
	holder = me;
	next = TO_UNLOCK
}

/* memwait_lock_try() */
inline try()
{
	if
	:: word == 0 -> take(LOCKED)
	:: word != 0 -> next = TO_CONTEND
	fi
}

/* An exchange, which takes a free lock. */
inline lock_or_contend()
{
	if
	:: word == 0 ->
#ifdef MUTATION_WOKEN_LOCKS_WITHOUT_CONTENDED
		take(LOCKED)
#else
		take(BOTH)
#endif
	:: word != 0 -> word = BOTH
	fi
}

/* memwait_lock_release(), and the change in memwait_lock_release_contended() */
inline unlock()
{
	assert(holder == me && word != 0);
	nr_reached = nr_reached + reached[me];
	reached[me] = false;
	next = (word == BOTH -> TO_WAKE : then);
#ifndef MUTATION_CHANGE_IN_TWO_CALLS
	in_change[me] = word == BOTH;
#endif
	word = 0;
	holder = NOBODY
}

/* A step of memwait_lock() or memwait_lock_release(). */
inline lock_step(may_end)
{
	if
	:: atomic { next == TO_LOCK -> try() }
	:: atomic {
		next == TO_CONTEND && (state[me] == RUNNING || WAS_WOKEN(state[me])) ->
		go_on();
		lock_or_contend();
		if
		:: next != TO_CONTEND -> goto end_loop
		:: next == TO_CONTEND
		fi
	   };
	   atomic { sleep(LOCK, word == BOTH, NOBODY, may_end) }
	:: atomic { next == TO_UNLOCK && then != TO_ENTER -> unlock() }
	:: atomic {
		next == TO_WAKE ->
		notify(LOCK, t);
		in_change[me] = false;
		next = then
	   }
	fi
}
#endif

#ifdef NORMAL
#define MAY_SLEEP(t)	IS_LOST

proctype user(byte me; bool may_end)
{
	byte t, rounds;
	mtype next = NOTHING;
	mtype then = NOTHING;

	{
end_loop:	do
		:: atomic { next == NOTHING && rounds < ROUNDS -> rounds++; try() }
		:: lock_step(may_end)
		:: atomic {
			may_end && state[me] == ASLEEP ->
			leave_queue(me);
			state[me] = TIMED_OUT
		   }
		:: atomic { state[me] == TIMED_OUT -> go_on(); next = NOTHING }
		/* An operation: memwait_lock_undo() */
		:: atomic {
			may_end && WAS_WOKEN(state[me]) ->
			go_on();
			next = NOTHING;
#ifndef MUTATION_GIVES_UP_WITH_ITS_WAKE_UP
			notify(LOCK, t)
#endif
		   }
		:: atomic { next == NOTHING && rounds == ROUNDS -> state[me] = IDLE; break }
		od;
end_idle:	false
	} unless { state[me] == DEAD };
	d_step { t = 0; rounds = 0; next = NOTHING }
}
#endif

#if defined(BROADCAST) || defined(SIGNAL)
mtype = { TO_SLEEP, TO_LOOK, TO_PASS_ON, TO_SIGNAL, TO_NOTIFY };

byte sequence = 1;
bool happened;			/* the awaited condition; the lock protects it */
byte happened_at;		/* the sequence of the broadcast */
byte has_read[THREADS + 1];	/* the sequence that it has read */

#define BROADCASTER	3
#define SIGNALLER	4

#ifndef SIGNALS
#define SIGNALS		0	/* besides the broadcast */
#endif

/*
 * A completed signal must have reached one of the waiters; a broadcast must have reached all, or
 * none.
 */
#ifdef BROADCAST
#define MAY_SLEEP(t)	(queue_of[t] == LOCK -> IS_LOST : has_read[t] >= happened_at)
#else
#define MAY_SLEEP(t)	(queue_of[t] == LOCK -> IS_LOST : \
			 IS_LOST || has_read[t] == sequence || \
			 state[SIGNALLER] != IDLE || nr_reached > 0)
#endif

/* memwait_cond_wait() */
proctype waiter(byte me; bool may_end)
{
	byte t;
	mtype next = TO_LOCK;
	mtype then = TO_ENTER;

	{
end_loop:	do
		:: lock_step(false)
		/* Instead of the unlock: enter(). The mutex is unlocked after it. */
		:: atomic {
			next == TO_UNLOCK && then == TO_ENTER ->
			then = (happened -> NOTHING : TO_SLEEP);
			has_read[me] = sequence
		   }
		:: atomic {
			next == TO_SLEEP && state[me] == RUNNING ->
			sleep(COND, sequence == has_read[me], NOBODY, may_end);
			/* The sequence has changed. */
			if
			:: state[me] == RUNNING -> reached[me] = true; next = TO_LOOK
			:: else
			fi
		   }
		:: atomic {
			next == TO_SLEEP && may_end && state[me] == ASLEEP ->
			leave_queue(me);
			if
			:: state[me] = TIMED_OUT
			:: go_on()		/* EINTR */
			fi
		   }
		/* memwait_mutex_take_again() */
		:: atomic {
			(next == TO_SLEEP && state[me] != ASLEEP && state[me] != RUNNING) ||
			next == TO_LOOK ->
			reached[me] = reached[me] || WAS_WOKEN(state[me]);
			go_on();
			then = NOTHING;
			next = TO_LOCK
		   }
		/* cancelled() */
		:: atomic {
			next == TO_SLEEP && may_end && state[me] != RUNNING ->
			if
			:: state[me] == ASLEEP -> leave_queue(me)
			:: else
			fi;
			go_on();
			next = TO_PASS_ON
		   }
		:: atomic {
			next == TO_PASS_ON ->
			next = TO_LOOK;
#ifndef MUTATION_GIVES_UP_WITH_ITS_WAKE_UP
			notify(COND, t)
#endif
		   }
		:: atomic { next == NOTHING -> state[me] = IDLE; break }
		od;
end_idle:	false
	} unless { state[me] == DEAD };
	d_step { t = 0; next = NOTHING; then = NOTHING }
}

/* memwait_cond_broadcast(), with the mutex or without */
proctype broadcaster(byte me)
{
	byte t;
	mtype next = TO_LOCK;
	mtype then = TO_ENTER;

	{
end_loop:	do
		:: lock_step(false)
		:: atomic {
			next == TO_UNLOCK && then == TO_ENTER ->
			happened = true;
			then = TO_SIGNAL;
			if
			:: next = TO_SIGNAL
			:: true
			fi
		   }
		:: atomic {
			next == TO_SIGNAL ->
			sequence++;
			happened_at = sequence;
#ifndef MUTATION_CHANGE_IN_TWO_CALLS
			in_change[me] = true;
#endif
			next = TO_NOTIFY
		   }
		:: atomic {
			next == TO_NOTIFY ->
#ifdef MUTATION_BROADCAST_WAKES_ONE
			notify(COND, t);
#else
			notify_all(COND, t);
#endif
			in_change[me] = false;
			next = (holder == me -> TO_UNLOCK : NOTHING);
			then = NOTHING
		   }
		:: atomic { next == NOTHING -> state[me] = IDLE; break }
		od;
end_idle:	false
	} unless { state[me] == DEAD };
	d_step { t = 0; next = NOTHING; then = NOTHING }
}

/* memwait_cond_signal(), with some locking in between */
proctype signaller(byte me; byte signals; byte locks)
{
	byte t;
	mtype next = NOTHING;
	mtype then = NOTHING;

	{
end_loop:	do
		:: lock_step(false)
		:: atomic { next == NOTHING && locks > 0 -> locks--; try() }
		:: atomic {
			next == NOTHING && signals > 0 ->
			signals--;
			sequence++;
#ifndef MUTATION_CHANGE_IN_TWO_CALLS
			in_change[me] = true;
#endif
			next = TO_NOTIFY
		   }
		:: atomic {
			next == TO_NOTIFY ->
			notify(COND, t);
			in_change[me] = false;
			next = NOTHING
		   }
		:: atomic { next == NOTHING && signals + locks == 0 -> state[me] = IDLE; break }
		od;
end_idle:	false
	} unless { state[me] == DEAD };
	d_step { t = 0; next = NOTHING; signals = 0; locks = 0 }
}
#endif

#ifdef SEMAPHORE
byte value;
byte waiting;			/* in a wait, or died in one */

#define MAY_SLEEP(t)	(value == 0)

mtype = { TO_TAKE, TO_WAKE_ONE, TO_PASS_ON, NOTHING };

proctype waiter(byte me; bool may_end)
{
	byte t;
	bool woken;
	mtype next = TO_TAKE;

	{
		/* take(), enter() */
		if
		:: atomic { value > 0 -> value--; next = NOTHING }
		:: atomic { value == 0 -> skip };
		   atomic { waiting++ }
		fi;
end_loop:	do
		/* take_and_leave() */
		:: atomic {
			next == TO_TAKE && (state[me] == RUNNING || WAS_WOKEN(state[me])) ->
			woken = WAS_WOKEN(state[me]);
			go_on();
			if
			:: value > 0 ->
				value--;
				waiting--;
#ifdef MUTATION_LEAVES_A_VALUE_BEHIND
				next = NOTHING;
#else
				next = (woken && value > 0 && waiting > 0 -> TO_WAKE_ONE : NOTHING);
#endif
				woken = false;
				goto end_loop
			:: value == 0
			fi
		   };
		   atomic { woken = false; sleep(LOCK, value == 0, NOBODY, may_end) }
		:: atomic { next == TO_WAKE_ONE -> notify(LOCK, t); next = NOTHING }
		:: atomic {
			may_end && state[me] == ASLEEP ->
			leave_queue(me);
			state[me] = TIMED_OUT
		   }
		:: atomic { state[me] == TIMED_OUT -> go_on(); waiting--; next = NOTHING }
		/* Cancelled: cancelled(), and wait_undo() of an operation */
		:: atomic {
			may_end && WAS_WOKEN(state[me]) ->
			go_on();
			waiting--;
#ifdef MUTATION_GIVES_UP_WITH_ITS_WAKE_UP
			next = NOTHING
#else
			next = TO_PASS_ON
#endif
		   }
		:: atomic { next == TO_PASS_ON && value > 0 -> next = TO_WAKE_ONE }
		:: atomic { next == TO_PASS_ON && value == 0 -> next = NOTHING }
		:: atomic { next == NOTHING -> state[me] = IDLE; break }
		od;
end_idle:	false
	} unless { state[me] == DEAD };
	d_step { t = 0; woken = false; next = NOTHING }
}

/* memwait_sem_post() and memwait_sem_trywait() */
proctype poster(byte me; byte posts; byte takes)
{
	byte t;

	{
		do
		:: atomic {
			posts > 0 && waiting == 0 ->
			posts--;
			value++
		   }
		:: atomic {
			posts > 0 && waiting > 0 ->
			posts--;
#ifndef MUTATION_CHANGE_IN_TWO_CALLS
			in_change[me] = true;
#endif
			value++
		   };
		   atomic { notify(LOCK, t); in_change[me] = false }
		:: atomic {
			takes > 0 ->
			takes--;
			value = (value > 0 -> value - 1 : 0)
		   }
		:: atomic { posts == 0 && takes == 0 -> state[me] = IDLE; break }
		od;
end_idle:	false
	} unless { state[me] == DEAD };
	d_step { t = 0; posts = 0; takes = 0 }
}
#endif

#define RESTS(t)	(state[t] == ASLEEP || state[t] == IDLE || state[t] == DEAD)
#define OVERSLEEPS(t)	(state[t] == ASLEEP && !MAY_SLEEP(t))

active proctype monitor()
{
end:	atomic {
		RESTS(1) && RESTS(2) && RESTS(3) &&
#if THREADS > 3
		RESTS(4) &&
#endif
#if THREADS > 4
		RESTS(5) &&
#endif
		!HAS_TO_TELL(LOCK) && !HAS_TO_TELL(COND) &&
		(OVERSLEEPS(1) || OVERSLEEPS(2) || OVERSLEEPS(3)
#if THREADS > 3
		 || OVERSLEEPS(4)
#endif
#if THREADS > 4
		 || OVERSLEEPS(5)
#endif
		) ->
		assert(false)
	}
}

init
{
	atomic {
#ifdef ROBUST
#ifdef INHERITED
		/* The lock's holder has already died. */
		state[4] = DEAD;
		holder = 4;
		word = 4;
#endif
#ifdef OPERATION
		state[CONTEXT] = IDLE;
#endif
		run user(1, false);
		run user(2, true);
		run user(3, false)
#elif defined(NORMAL)
		run user(1, false);
		run user(2, true);
		run user(3, false);
		run user(4, false)
#elif defined(SEMAPHORE)
		run waiter(1, false);
		run waiter(2, true);
		run waiter(3, false);
		run poster(4, 2, 0);
		run poster(5, 0, 2)
#elif defined(BROADCAST)
		run waiter(1, false);
		run waiter(2, true);
		run broadcaster(BROADCASTER);
		run signaller(SIGNALLER, SIGNALS, ROUNDS)
#elif defined(SIGNAL)
		run waiter(1, false);
		run waiter(2, true);
		run waiter(3, false);
		run signaller(SIGNALLER, 1, 0)
#endif
	}
}
