/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spin model of the deaths of owners. The top of watch.c has the argument; the model has the same
 * steps and names. The model covers which owner a word watches, the work item that reports a death
 * (with OTHER, also another thread that reports the death), and when an identity may be freed. A
 * thread may be killed at any step where the kernel allows this: not under a lock, and not within a
 * notify. With ENDS, a thread may also end by itself when it has done its work, or while it holds a
 * lock. selftests/lint/spin runs the model.
 *
 * With LOCK or TWO, the word of a queue names the owner of a lock. A user waits if the lock is
 * taken. A user that is notified of a death takes over the lock, provided that the owner has died.
 * An unlock stores 0 and notifies one waiter. With MOVE, a thread moves waiters and notifies one
 * waiter; each woken waiter notifies the next.
 *
 * All waiters are MEMWAIT_OWNED. The first waiter of a word stores what the word watches, and may
 * be freed when it has left its queue. From then on the identity's list must contain the next
 * waiter of the word, or no waiter of the word.
 *
 * A critical section that accesses only data that its lock protects is one step, including the
 * locking and unlocking.
 */
#define NOBODY	0	/* thread numbers start at 1 */
#define A	0
#define B	1
#define THREADS	3
#define QUEUES	2
#ifndef DEATHS
#define DEATHS	2
#endif
#ifndef ROUNDS
#define ROUNDS	1
#endif

mtype = { PENDING, OK, OWNER_DIED, NOT_EQUAL, BY_ITSELF };	/* of a wait */
mtype = { RUNS, SLEEPS, IDLE, EXITED };				/* of a thread */

byte word[QUEUES];		/* LOCK, TWO: the owner, or 0 */

/* For each word: struct memwait_bucket, and members of the first struct memwait_owned */
bool locked[QUEUES];
chan waiters[QUEUES] = [THREADS] of { byte };
byte watched[QUEUES];
bool may_be_named[QUEUES];

/* A thread's struct memwait_identity; .watches has a bit for each word. */
bool identity_locked[THREADS + 1];
byte watches[THREADS + 1];
bool ended[THREADS + 1];
bool dead[THREADS + 1];
bool in_work[THREADS + 1];	/* queued for the work item */
bool reported[THREADS + 1];		/* out of the list of dead identities */
byte refs[THREADS + 1] = 1;	/* once it is dead */
bool erased[THREADS + 1];	/* look-ups no longer find it */
bool freed[THREADS + 1];
byte readers;			/* RCU read-side sections that look identities up */

/* struct memwait_waiter, and its group's .claimed */
byte queue[THREADS + 1];	/* queue number + 1, or 0 */
byte word_of[THREADS + 1];
mtype claimed[THREADS + 1] = PENDING;

mtype state[THREADS + 1] = RUNS;
bool in_kernel[THREADS + 1];
bool killed[THREADS + 1];
byte deaths;

#define BIT(q)		(1 << (q))

/* Whether the words that threads wait for have 64 bits and name owners. */
#if defined(MOVE) || defined(MUTATION_A_WOKEN_WAITER_IS_NO_OWNER)
#define NAMES_OWNERS	false
#else
#define NAMES_OWNERS	true
#endif

inline spin_lock(lock)
{
	atomic { !lock -> lock = true }
}

/* memwait_unwatch() */
inline unwatch(q)
{
	atomic {
		!identity_locked[watched[q]] ->
		assert(watched[q] == NOBODY || !freed[watched[q]]);
		watches[watched[q]] = watches[watched[q]] & ~BIT(q);
		watched[q] = NOBODY
	}
}

/* memwait_watch(), which returns alive */
inline watch(q, i, named)
{
	if
	:: atomic {
		dead[i] || watched[q] == i ->
		alive = !dead[i];
		may_be_named[q] = may_be_named[q] || (alive && named)
	   }
	:: !dead[i] && watched[q] != i ->
		unwatch(q);
		atomic {
			!identity_locked[i] -> identity_locked[i] = true;
			assert(!freed[i]);
#ifdef MUTATION_NO_SECOND_LOOK_AT_DEAD
			alive = true
#else
			alive = !dead[i]
#endif
		};
		d_step {
			if
			:: alive ->
				watches[i] = watches[i] | BIT(q);
				watched[q] = i;
				may_be_named[q] = named
			:: !alive
			fi;
			identity_locked[i] = false
		}
	fi
}

/* memwait_watch_leave() of the last waiter, and unlock */
inline queue_unlock(q)
{
	do
#ifndef MUTATION_WATCHES_ON_WHEN_EMPTY
	:: empty(waiters[q]) && watched[q] != NOBODY -> unwatch(q)
#endif
	:: atomic {
		else ->
		/* The last waiter may be freed from now on. */
		assert(nempty(waiters[q]) ||
		       ((watches[1] | watches[2] | watches[3]) & BIT(q)) == 0);
		locked[q] = false;
		break
	   }
	od
}

/* Claims and removes the oldest pending waiter of a locked queue. */
inline claim(q, result)
{
	do
	:: atomic { empty(waiters[q]) -> won = false; break }
	:: d_step {
		nempty(waiters[q]) ->
		waiters[q]?<t>;
		won = claimed[t] == PENDING;
		claimed[t] = (won -> result : claimed[t])
#ifdef MUTATION_ONE_THAT_HAS_ENDED_IS_TOLD
		;
		won = true
#endif
	   };
	   if
	   /* memwait_queue_remove() */
	   :: atomic { !won -> waiters[q]?t; queue[t] = 0; t = 0 }
	   /* memwait_queue_remove_claimed(): last access to the waiter, see (C) in queue.c */
	   :: won ->
#if !defined(MUTATION_WOKEN_IS_NOT_WATCHED) && !defined(MUTATION_WATCHES_ONE_THAT_IS_OUT)
		/* memwait_watch_claimed() */
		if
		:: len(waiters[q]) > 1 -> watch(q, t, NAMES_OWNERS); assert(alive)
		:: else
		fi;
#endif
		d_step { waiters[q]?t; queue[t] = 0 };
#ifdef MUTATION_WATCHES_ONE_THAT_IS_OUT
		watch(q, t, NAMES_OWNERS);
#endif
		atomic { t = 0; break }
	   fi
	od
}

/* memwait_ioc_notify() of one waiter; the caller cannot die during the call */
inline notify(q)
{
	atomic { !locked[q] -> locked[q] = true; in_kernel[me] = true };
	claim(q, OK);
	queue_unlock(q);
	in_kernel[me] = false
}

/*
 * MEMWAIT_IOC_WAIT with MEMWAIT_OWNED. named: the owner that the expected value names, or NOBODY.
 * may_end: there is a deadline.
 */
inline wait(q, expected, named, may_end)
{
	/* memwait_queue_join() */
	atomic {
		!locked[q] -> locked[q] = true;
		in_kernel[me] = true;
		how = (word[q] == expected -> OK : NOT_EQUAL)
	};
	/* memwait_watch_join() */
	if
#ifndef MUTATION_NAMES_NOBODY
	:: how == OK && named != NOBODY ->
		atomic {
#ifndef MUTATION_LOOKS_UP_WITHOUT_RCU
			readers++;
#endif
			alive = !erased[named]
		};
		if
		:: alive -> watch(q, named, true)
		:: !alive
		fi;
		d_step {
			how = (alive -> OK : OWNER_DIED);
#ifndef MUTATION_LOOKS_UP_WITHOUT_RCU
			readers--
#endif
		}
#endif
	:: else
	fi;
	if
	:: how == NOT_EQUAL -> queue_unlock(q)
	:: atomic {
		how != NOT_EQUAL ->
		claimed[me] = PENDING;
		state[me] = (how == OK -> SLEEPS : RUNS);
		word_of[me] = q;
		waiters[q]!me;
		queue[me] = (q) + 1;
		locked[q] = false
	   };
	   /*
	    * memwait_thread_sleep(), memwait_queue_leave(); queue.pml models waiters that
	    * are moved at the same time
	    */
end_asleep: do
	   :: atomic {
		claimed[me] == PENDING && (killed[me] || may_end || how == OWNER_DIED) ->
		claimed[me] = (how == OWNER_DIED -> OWNER_DIED : BY_ITSELF)
	      }
	   :: atomic {
		claimed[me] != PENDING && queue[me] != 0 && !locked[queue[me] - 1] ->
		p = queue[me] - 1;
		locked[p] = true;
		waiters[p]??eval(me);
		queue[me] = 0
	      };
	      queue_unlock(p)
	   :: atomic {
		claimed[me] != PENDING && queue[me] == 0 ->
		how = claimed[me];
		state[me] = RUNS;
		break
	      }
	   od;
	   /* memwait_pass_on() */
	   p = word_of[me];
	   if
	   :: how == OK && killed[me] -> notify(p)
	   :: else
	   fi;
	   p = 0
	fi;
	in_kernel[me] = false
}

#ifdef MOVE
#define MOVER	3
/* No waiter is notified of the death of the thread that moves waiters. */
#define MAY_SLEEP(t)	(state[MOVER] == EXITED && !has_notified)

bool has_notified;
#else
#define MAY_SLEEP(t)	false
#endif

#define LOCALS	byte t, p, seen; bool alive, won; mtype how

/* A thread ends, or dies, outside the kernel. */
inline die()
{
#ifdef MUTATION_A_KILL_IS_AN_END
	ended[me] = true;
#endif
#ifdef MUTATION_DEAD_AFTER_THE_WORK_IS_QUEUED
	in_work[me] = true;
	dead[me] = true;
#else
	dead[me] = true;	/* (1) */
	in_work[me] = true;	/* (2) */
#endif
	d_step { t = 0; p = 0; seen = 0; alive = false; won = false; how = 0; state[me] = EXITED }
}

#define KILLED	(killed[me] && !in_kernel[me])

/* The thread does nothing more, or calls exit(2). */
inline idle()
{
	if
	:: ended[me]
#ifdef ENDS
	:: !ended[me] -> ended[me] = true
#endif
	:: !ended[me] ->
		state[me] = IDLE;
end_idle:
		false
	fi
}

#ifndef MOVE
/* Locks and unlocks, or gives up. */
proctype user(byte me; byte q; byte rounds; bool may_end)
{
	LOCALS;

	{
		do
		:: rounds == 0 -> break
		:: atomic {
			rounds > 0 ->
			rounds--;
			seen = word[q];
			word[q] = (seen == 0 -> me : seen)
		   };
		   do
		   :: seen == 0 -> break
		   :: seen != 0 ->
			wait(q, seen, seen, may_end);
			atomic {
				/* Notified of the owner's death: takes over the lock. */
				if
				:: how == BY_ITSELF -> break
				:: how == OWNER_DIED && word[q] == seen && dead[seen] -> seen = 0
				:: else -> seen = word[q]
				fi;
				word[q] = (seen == 0 -> me : seen)
			}
		   od;
		   if
		   :: how == BY_ITSELF -> how = 0
		   :: else ->
			assert(word[q] == me);
			if
			:: word[q] = 0; notify(q)
#ifdef ENDS
			/* exit(2) while it holds the lock */
			:: ended[me] = true; rounds = 0
#endif
			fi
		   fi
		od;
		idle()
	} unless { KILLED };
	die();
	rounds = 0
}

/* Holds both locks from the start and unlocks neither. */
proctype owner(byte me)
{
	LOCALS;

end_has_both:
	KILLED;
	die()
}
#endif

#ifdef MOVE
proctype waiter(byte me)
{
	LOCALS;

	{
		wait(A, 0, NOBODY, false);
		if
		:: how == NOT_EQUAL
		:: how != NOT_EQUAL ->
			notify(B)
		fi;
		idle()
	} unless { KILLED };
	die()
}

/* memwait_ioc_requeue() of all waiters, after a change of the word */
inline requeue()
{
	atomic { !locked[A] -> locked[A] = true; in_kernel[me] = true };
	spin_lock(locked[B]);
	/* memwait_scan_move() */
	d_step {
		do
		:: nempty(waiters[A]) ->
			waiters[A]?t;
			waiters[B]!t;
			queue[t] = B + 1;
			word_of[t] = B
		:: empty(waiters[A]) -> break
		od;
		t = 0
	};
	queue_unlock(B);
	queue_unlock(A);
	in_kernel[me] = false
}

proctype requeuer(byte me)
{
	LOCALS;

	{
		word[A] = 1;
		requeue();
		notify(B);
		has_notified = true;
		idle()
	} unless { KILLED };
	die()
}
#endif

/* memwait_report_death() of d, to the end */
inline report_death()
{
	do
	::
		/* memwait_watch_lock() */
		atomic {
			!identity_locked[d] ->
			assert(!freed[d]);
			if
			:: watches[d] != 0 -> q = (watches[d] & BIT(A) -> A : B)
			:: watches[d] == 0 -> break
			fi
#ifdef MUTATION_LOCKS_A_QUEUE_UNDER_AN_IDENTITY
			;
			identity_locked[d] = true
#endif
		};
		spin_lock(locked[q]);
#ifdef MUTATION_LOCKS_A_QUEUE_UNDER_AN_IDENTITY
		identity_locked[d] = false;
#endif
		if
#ifdef MUTATION_DOES_NOT_LOOK_AGAIN
		:: true ->
#else
		:: watched[q] == d ->
#endif
			assert(watched[q] == d);
			if
#ifdef MUTATION_AN_END_IS_TOLD_TO_NOBODY
			:: ended[d] ->
#else
			:: ended[d] && !may_be_named[q] ->
#endif
				unwatch(q)
			:: else ->
				/* memwait_watch_report() */
				claim(q, OWNER_DIED);
				if
				:: !won -> unwatch(q)
				:: won
				fi
			fi;
			queue_unlock(q)
#ifndef MUTATION_DOES_NOT_LOOK_AGAIN
		:: watched[q] != d -> locked[q] = false
#endif
		fi
#ifdef MUTATION_TELLS_ONE_QUEUE
		;
		break
#endif
	od;
}

/* memwait_identity_reported(), and memwait_identity_put() of one or two references */
inline reap()
{
	atomic {
		if
		:: !reported[d] -> reported[d] = true; refs[d]--
		:: reported[d]
		fi
	};
	if
	:: atomic { refs[d] > 1 -> refs[d]--; d = 0; q = 0 }
	:: atomic { refs[d] == 1 -> refs[d] = 0; erased[d] = true };
	   d_step { readers == 0 -> freed[d] = true; in_work[d] = false; d = 0; q = 0 }
	fi
}

/* memwait_identity_dead() */
#define IS_FOUND(i)	(in_work[i] && !reported[i])

/* memwait_reap_work() */
active proctype work()
{
	byte d, q, t;
	bool alive, won;

end:	do
	:: atomic {
		if
		:: IS_FOUND(1) -> d = 1
		:: IS_FOUND(2) -> d = 2
		:: IS_FOUND(3) -> d = 3
		fi;
		refs[d]++
	   };
	   report_death();
	   reap()
	od
}

#ifdef OTHER
/* A thread that is over the limit of ids, or a dying process, reports thread 1's death */
active proctype other()
{
	byte d, q, t;
	bool alive, won;

end:	atomic {
		IS_FOUND(1) -> d = 1;
#ifndef MUTATION_NO_REFERENCE_TO_THE_DEAD
		refs[1]++
#endif
	};
	report_death();
#ifndef MUTATION_NO_REFERENCE_TO_THE_DEAD
	reap()
#endif
}
#endif

#define MAY_DIE(t)	(deaths < DEATHS && !killed[t] && state[t] != IDLE)

active proctype killer()
{
end:	do
	:: atomic { MAY_DIE(1) -> killed[1] = true; deaths++ }
	:: atomic { MAY_DIE(2) -> killed[2] = true; deaths++ }
	:: atomic { MAY_DIE(3) -> killed[3] = true; deaths++ }
	od
}

#define RESTS(t)	((state[t] == SLEEPS && claimed[t] == PENDING && !killed[t]) || \
			 state[t] == IDLE || (state[t] == EXITED && !in_work[t]))
#define OVERSLEEPS(t)	(state[t] == SLEEPS && !MAY_SLEEP(t))

/*
 * Fails if all threads are at rest, and one of them sleeps although what it waits for is available.
 */
active proctype monitor()
{
end:	atomic {
		RESTS(1) && RESTS(2) && RESTS(3) &&
		(OVERSLEEPS(1) || OVERSLEEPS(2) || OVERSLEEPS(3)) ->
		assert(false)
	}
}

init
{
	atomic {
#if defined(LOCK)
		run user(1, A, ROUNDS, false);
		run user(2, A, ROUNDS, true);
		run user(3, A, ROUNDS, false)
#elif defined(TWO)
		word[A] = 1;
		word[B] = 1;
		run owner(1);
		run user(2, A, ROUNDS, false);
		run user(3, B, ROUNDS, false)
#elif defined(MOVE)
		run waiter(1);
		run waiter(2);
		run requeuer(MOVER)
#endif
	}
}
