/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spin model of blocked readers: memwait_read_block() in read.c, and wake.c. A notifier that adds a
 * completion takes the first reader out of the list. A timer, or a reader that finds something left
 * to read, wakes the first reader and leaves it in the list. No reader may sleep while a completion
 * is unread, or while a deadline has passed.
 *
 * Each reader reads one record. A signal may interrupt reader 0 anywhere. A reader that is
 * interrupted while it waits for read_lock wakes no other reader, because the lock's holder checks
 * after it has unlocked. There is one wait with a deadline, and a poller that checks whether the
 * deadline has passed.
 */
#ifdef CROWD
#define READERS		3
#else
#define READERS		2	/* and the deadline */
#endif
#define COMPLETIONS	2
#define NONE		255

byte nr_completed, left;	/* left: readers that have returned */
bool read_lock, locked;		/* locked: memwait_context.lock */
chan readers = [READERS] of { byte };	/* memwait_completions.readers */
bool woken[READERS];
bool runs[READERS];		/* a reader that blocks was woken, or is not asleep yet */
bool signal;			/* pending for reader 0 */
bool due, armed = true;		/* armed: the wait with the deadline is pending */

#define readable	(nr_completed > 0 || due)

inline lock()
{
	atomic { !locked -> locked = true }
}

/* memwait_context_wake_reader() */
inline wake_reader(first)
{
	atomic {
		if
		:: readers?[first] -> readers?<first>
		:: empty(readers) -> first = NONE
		fi
	};
	if
	:: first != NONE -> runs[first] = true
	:: else
	fi;
	first = NONE
}

/* memwait_wakes_add_context(), memwait_step_end() */
proctype notifier()
{
	byte n, first;

	do
	:: n < COMPLETIONS ->
		n++;
		lock();
		nr_completed++;
		first = NONE;
		if
		:: nempty(readers) -> readers?first; woken[first] = true
		:: empty(readers)
		fi;
		locked = false;
		if
		:: first != NONE -> runs[first] = true
		:: else
		fi
	:: break
	od
}

/* memwait_timer_fired() */
proctype timer()
{
	byte first;

	due = true;
	wake_reader(first)
}

/* memwait_poll() */
proctype poller()
{
	if
	:: due ->
		lock();
#ifdef MUTATION_DUE_IS_CLEARED_FOR_A_MOMENT
		due = false;
		due = armed;
#else
		due = armed;
#endif
		locked = false
	:: else
	fi
}

proctype interrupter()
{
	signal = true
}

#define interrupted	(me == 0 && signal)

proctype reader(byte me)
{
	bool got, ends;
	byte first;

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
		/* memwait_expire() */
		if
		:: due ->
			lock();
			nr_completed = nr_completed + armed;
			armed = false;
			due = false;
			locked = false
		:: else
		fi;
		lock();
		got = nr_completed > 0;
		nr_completed = nr_completed - got;
		locked = false;
		/* memwait_read_unlock() */
		read_lock = false;
#ifndef MUTATION_NEXT_IS_NOT_WOKEN
		if
		:: readable -> wake_reader(first)
		:: else
		fi;
#endif
		if
		:: got -> goto out
		:: else
		fi;

		/* memwait_read_block() */
		lock();
		woken[me] = false;
		readers!me;
		locked = false;
		do
		::
#ifdef MUTATION_LOOKS_BEFORE_IT_WAITS
			if
			:: woken[me] || readable -> ends = false; break
			:: else
			fi;
			runs[me] = false;
#else
			runs[me] = false;
			if
			:: woken[me] || readable -> ends = false; break
			:: else
			fi;
#endif
			if
			:: interrupted -> ends = true; break
			:: else
			fi;
end_asleep:
			if
			:: runs[me]
			:: interrupted
			fi
		od;
#ifdef MUTATION_WOKEN_READER_IS_INTERRUPTED
		if
		:: woken[me] && interrupted -> goto out
		:: else
		fi;
#endif
		lock();
		if
		:: woken[me] -> ends = false
		:: else -> readers??eval(me)
		fi;
		locked = false;
		if
		:: ends ->
#ifndef MUTATION_INTERRUPTED_ONE_WAKES_NOBODY
			if
			:: readable -> wake_reader(first)
			:: else
			fi;
#endif
			goto out
		:: else
		fi
	od;
out:
	left++
}

init {
	atomic {
		run reader(0);
		run reader(1);
#ifdef CROWD
		run reader(2);
#else
		run timer();
		run poller();
#endif
		run notifier();
		run interrupter()
	}
end_all:
	timeout -> assert((nr_completed == 0 && !due) || left == READERS)
}
