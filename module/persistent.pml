/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spin model of an async wait with MEMWAIT_PERSISTENT: how notifies are counted, read and passed
 * on. The top of claim.c has the argument; the model has the same steps and names. Notifies run
 * concurrently with a reader, and with cancel, the deadline or the last close. selftests/lint/spin
 * runs each scenario, and then again with each MUTATION, with which the scenario must fail.
 *
 * There is one wait, which is armed, and is the only one in its queue. async.pml models the rest of
 * a context.
 */
#ifndef NOTIFIES
#define NOTIFIES	3
#endif

mtype = { QUEUED, CLAIMED, COMPLETED, FREED };
mtype = { OK, TIMED_OUT };
mtype = { NOWHERE, COMPLETIONS, TAKEN };

bool bucket_locked, in_queue = true;
bool locked;			/* memwait_context.lock */
bool read_locked;
bool polls, woken;		/* a reader that waits for a completion */

mtype state = QUEUED;
mtype result = OK;
mtype list = NOWHERE;
bool listed;
byte count, reading;

byte counted, reported, passed_on, merged, timed_out;
byte notifies = NOTIFIES;
bool closed;
byte running;

inline lock(l)
{
	atomic { !l -> l = true }
}

inline wake()
{
	woken = polls
}

/* memwait_async_list() */
inline async_list(new)
{
	new = !listed;
	if
	:: new -> listed = true; list = COMPLETIONS
	:: else
	fi
}

/* memwait_async_complete() */
inline complete(how)
{
	d_step { assert(state == CLAIMED); state = COMPLETED; result = how; async_list(new) }
}

inline leave()
{
	lock(bucket_locked);
	in_queue = false;
	bucket_locked = false
}

inline free_wait()
{
	assert(state != FREED && !in_queue && list != COMPLETIONS);
	state = FREED
}

/* memwait_ioc_notify(), and memwait_async_count() */
proctype notifier()
{
	bool new, edge;

	do
	:: atomic { notifies > 0 -> notifies-- };
		edge = false;
		lock(bucket_locked);
		if
		:: in_queue ->
			lock(locked);
			assert(state != FREED);
			d_step {
				if
				:: state == QUEUED ->
					count++;
					counted++;
#ifdef MUTATION_COUNTS_WITHOUT_LISTING
					new = false
#else
					async_list(new)
#endif
					;
					edge = new
				:: else
				fi;
				new = false
			};
			locked = false
		:: else
		fi;
		bucket_locked = false;
		if
		:: edge -> wake()
		:: else
		fi
	:: notifies == 0 -> break
	od;
	running--
}

/* memwait_read_now(), until the wait is freed or, if nothing ends it, all notifies are reported */
proctype reader()
{
	bool new, more, dies;
	byte copied;
	mtype how;

	do
	:: state == FREED || closed -> break
#ifdef READ
	:: reported == NOTIFIES -> break
#endif
	:: else ->
		polls = true;
		woken = list == COMPLETIONS;
		if
		:: woken
		:: state == FREED || closed
#ifdef READ
		:: reported == NOTIFIES
#endif
		fi;
		polls = false;
		lock(read_locked);
		/* memwait_read_some() */
		lock(locked);
		new = list == COMPLETIONS;
		copied = count;
		how = (count > 0 -> OK : result);
		locked = false;
		if
		:: new ->
			lock(locked);
			d_step {
				assert(list == COMPLETIONS);
				list = TAKEN;
#ifdef MUTATION_TAKES_MORE_THAN_IT_COPIED
				count = 0;
#else
				count = count - copied;
#endif
				reading = copied
			};
			locked = false;
			if
			/* memwait_unread(), and memwait_read_put_back() */
			:: !dies ->
				dies = true;
				lock(locked);
				d_step {
#ifndef MUTATION_THE_DEAD_READ
					count = count + reading;
#endif
					list = COMPLETIONS
				};
				locked = false;
				wake()
			/* memwait_read_settle() */
			:: true ->
				reported = reported + copied;
				if
				:: how == TIMED_OUT -> timed_out++
				:: else
				fi;
				more = false;
				lock(locked);
				d_step {
					if
#ifdef MUTATION_NOTIFIES_HIDE_THE_DEADLINE
					:: count > 0 || state != COMPLETED ->
#else
					:: count > 0 || state != COMPLETED ||
					   (reading > 0 && result == TIMED_OUT) ->
#endif
						list = NOWHERE;
						listed = false;
						if
#ifdef MUTATION_FORGETS_WHAT_CAME_MEANWHILE
						:: state == COMPLETED -> async_list(more)
#else
						:: count > 0 || state == COMPLETED -> async_list(more)
#endif
						:: else
						fi
					:: else
					fi
				};
				locked = false;
				if
				:: more -> wake()
				:: else
				fi;
				/* memwait_read_free() */
				if
				:: list == TAKEN ->
					list = NOWHERE;
					free_wait()
				:: else
				fi
			fi
		:: else
		fi;
		read_locked = false
	od;
	running--
}

#ifdef CANCEL
/* memwait_ioc_cancel(), and memwait_async_withdraw() */
proctype canceller()
{
	bool new, was_listed;

	lock(locked);
	state = CLAIMED;
	locked = false;
	leave();
	lock(locked);
#ifdef MUTATION_FREES_WHAT_IS_LISTED
	was_listed = false;
#else
	was_listed = listed;
#endif
	if
	:: was_listed -> complete(OK)
	:: else
	fi;
	locked = false;
	if
	:: !was_listed -> free_wait()
	:: else
	fi;
	running--
}
#endif

#ifdef DEADLINE
/* memwait_expire_one(), by another reader */
proctype expirer()
{
	bool new;

	lock(read_locked);
	lock(locked);
	state = CLAIMED;
	complete(TIMED_OUT);
	locked = false;
	leave();
	read_locked = false;
	wake();
	running--
}
#endif

#ifdef CLOSE
/* memwait_async_end_all(), when no reader is left */
proctype closer()
{
	bool new;

	lock(read_locked);
	closed = true;
	lock(locked);
	state = CLAIMED;
	locked = false;
	leave();
	lock(locked);
	new = listed;
	if
	:: new -> complete(OK)
	:: else
	fi;
	locked = false;
	if
	:: list == COMPLETIONS ->
		list = NOWHERE;
#ifdef MUTATION_PASSES_ON_ALL
		passed_on = count;
#else
		passed_on = (count > 0 -> 1 : 0);
#endif
		merged = count;
		count = 0
	:: else
	fi;
	free_wait();
	read_locked = false;
	running--
}
#endif

init
{
	atomic {
		running = 3;
		run notifier();
		run notifier();
		run reader();
#ifdef CANCEL
		running++;
		run canceller()
#endif
#ifdef DEADLINE
		running++;
		run expirer()
#endif
#ifdef CLOSE
		running++;
		run closer()
#endif
	};
	running == 0;
	/* One notify is passed on for all notifies that were not read. */
	assert(counted == reported + merged);
	assert(passed_on == (merged > 0 -> 1 : 0));
#ifdef DEADLINE
	assert(timed_out == 1);
#endif
#ifndef READ
	assert(state == FREED)
#endif
}
