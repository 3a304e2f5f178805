// SPDX-License-Identifier: GPL-2.0-only
/*
 * Spin model of blocked readers: context.c and memwait_context_wake() in notify.c. Readers are exclusive waiters. A
 * completion wakes one of them, and a reader that drops read_lock while completions are left wakes
 * the next. Several completions may share one wake-up. No reader sleeps while something is unread.
 *
 * Each reader reads one record. A signal may interrupt reader 0 anywhere. The wait queue follows
 * wait_event_interruptible_exclusive(), but a wake-up may pick any entry, not only the oldest. A
 * reader that is interrupted while it waits for read_lock wakes nobody: the lock's holder checks
 * after it has unlocked.
 *
 * Mutations: NEXT_IS_NOT_WOKEN, LOOKS_BEFORE_IT_WAITS, WOKEN_READER_IS_INTERRUPTED.
 */
#define READERS		3
#define COMPLETIONS	3

byte nr_completed, left;	/* left: readers that have returned */
bool read_lock;
bool waits[READERS];		/* in context->readers */
bool signal;			/* pending for reader 0 */

/* memwait_context_wake_reader() */
inline wake_reader()
{
	if
	:: atomic { waits[0] -> waits[0] = false }
	:: atomic { waits[1] -> waits[1] = false }
	:: atomic { waits[2] -> waits[2] = false }
	:: atomic { !waits[0] && !waits[1] && !waits[2] -> skip }
	fi
}

proctype notifier()
{
	byte n = 0;

	do
	:: n < COMPLETIONS -> nr_completed++; n++; wake_reader()
	:: n + 1 < COMPLETIONS -> nr_completed++; nr_completed++; n = n + 2; wake_reader()
	:: n == COMPLETIONS -> break
	od
}

proctype interrupter()
{
	signal = true
}

#define interrupted	(me == 0 && signal)

proctype reader(byte me)
{
	bool got = false, ends;

	do
	::
		/* mutex_lock_interruptible(): a signal counts only if the lock is contended */
		if
		:: atomic { !read_lock -> read_lock = true }
		:: read_lock ->
			if
			:: atomic { !read_lock -> read_lock = true }
			:: interrupted -> goto out
			fi
		fi;
		if
		:: nr_completed > 0 -> nr_completed--; got = true
		:: else
		fi;
		/* memwait_read_unlock() */
		read_lock = false;
#ifndef MUTATION_NEXT_IS_NOT_WOKEN
		if
		:: nr_completed > 0 -> wake_reader()
		:: else
		fi;
#endif
		if
		:: got -> goto out
		:: else
		fi;

		/* wait_event_interruptible_exclusive() */
		do
		::
#ifdef MUTATION_LOOKS_BEFORE_IT_WAITS
			if
			:: nr_completed > 0 -> break
			:: else
			fi;
#endif
			/* prepare_to_wait_event(), under the wait queue's lock */
			atomic { ends = interrupted; waits[me] = !ends };
#ifdef MUTATION_WOKEN_READER_IS_INTERRUPTED
			if
			:: ends -> goto out
			:: else
			fi;
#endif
#ifndef MUTATION_LOOKS_BEFORE_IT_WAITS
			if
			:: nr_completed > 0 -> break
			:: else
			fi;
#endif
			if
			:: ends -> goto out
			:: else
			fi;
end_asleep:
			if
			:: !waits[me]
			:: interrupted
			fi
		od;
		waits[me] = false
	od;
out:
	left++
}

init {
	atomic {
		run reader(0);
		run reader(1);
		run reader(2);
		run notifier();
		run interrupter()
	}
end_all:
	timeout -> assert(nr_completed == 0 || left == READERS)
}
