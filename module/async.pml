/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spin model of a context and an async wait for one or several words. The top of claim.c describes
 * the states of a wait; the model has the same steps and names. Notify, deadline, cancel, read and
 * close run concurrently. A poll runs concurrently with a completion (claim.c, wake.c) and with the
 * timer (async.c). selftests/lint/spin runs the model.
 *
 * There is one context with one wait. The queues always exist and contain only this wait. queue.pml
 * models how a waiter joins.
 */
#define NONE	255
#define SELF	254	/* MEMWAIT_CLAIMED_BY_ITSELF */

#ifdef GROUP
#define MEMBERS	2	/* each in its own queue */
#else
#define MEMBERS	1
#endif
#define LAST	(MEMBERS - 1)

mtype = { ARMING, QUEUED, CLAIMED, COMPLETED, FREED };
mtype = { OK, TIMED_OUT };

/* Queues, and the members in them. */
bool queue_locked[MEMBERS];
bool in_queue[MEMBERS];

/* struct memwait_async_waiter, including its struct memwait_group */
mtype state = ARMING;
mtype result;
byte claimed = NONE;
bool exists = true;		/* its memory */

/* struct memwait_context */
bool waits_locked;		/* memwait_context.lock */
bool has_index;			/* it is in context->waits.tree */
bool completed;			/* it is in context->completions.list */
byte nr_completed;
bool context_exists = true;
byte context_refs = 1;		/* the file's */
bool closing;
bool due;
bool passed;			/* the deadline has passed; the module reads the clock instead */
bool timer_started, timer_runs;

/* context->completions.pollers; read.pml models readers that block */
bool pollers_locked, polls, poller_woken;

byte counted, seen, passed_on, taken_back, timed_out;
byte running;

inline lock(l)
{
	atomic { !l -> l = true }
}

/* memwait_async_claim(), under the context's lock */
inline claim(done)
{
#ifdef MUTATION_NO_CLAIM
	done = state != ARMING;
#else
	done = state == QUEUED;
#endif
	if
	:: done -> state = CLAIMED
	:: else
	fi
}

/* memwait_async_complete(), under the context's lock */
inline complete(how)
{
	assert(exists && !completed && (state == CLAIMED || state == ARMING));
	d_step {
		state = COMPLETED;
		result = how;
		completed = true;
		nr_completed++
	}
}

/* memwait_context_put() */
inline context_put()
{
	d_step {
		context_refs--;
		context_exists = context_refs > 0
	}
}

/* memwait_context_wake() */
inline context_wake()
{
	assert(context_exists);
#ifndef MUTATION_NO_WAKE_UP
	lock(pollers_locked);
	if
	:: polls -> poller_woken = true
	:: else
	fi;
	pollers_locked = false
#endif
}

/* memwait_queue_leave() */
inline queue_leave(member)
{
	assert(exists);
	if
	:: in_queue[member] ->
		lock(queue_locked[member]);
		in_queue[member] = false;
		queue_locked[member] = false
	:: else			/* load-acquire: see queue.pml */
	fi
}

/* memwait_group_leave() */
inline leave()
{
	queue_leave(0);
#ifdef GROUP
	queue_leave(1)
#endif
}

/* memwait_async_end(), and the release of the memory */
inline release()
{
#ifndef MUTATION_FREED_WITHOUT_LEAVING
	leave();
#endif
	assert(exists);
	/* The words' pins may go after this. */
	assert(!in_queue[0]);
#ifdef GROUP
	assert(!in_queue[1]);
#endif
	state = FREED;
	exists = false
}

/*
 * memwait_async_free(): until here the wait can be found by its id. The model does not distinguish
 * whether the memory is freed or cached for another wait.
 */
inline free_wait()
{
	lock(waits_locked);
	has_index = false;
	waits_locked = false
}

/* memwait_ioc_notify() of the word of member m */
proctype notifier(byte m)
{
	bool won, done, overdue;

	lock(queue_locked[m]);
	if
	:: in_queue[m] ->
		/* memwait_claim_async() */
		assert(exists);
#ifndef GROUP
		assert(state != ARMING);
#endif
		lock(waits_locked);
		claim(done);
		won = done;
		if
#ifdef MUTATION_CLAIMED_TWICE_WHILE_IT_ARMS
		:: !done && state == ARMING -> won = true
#else
		:: !done && state == ARMING && claimed == NONE -> won = true
#endif
		:: else
		fi;
		if
		:: won ->
			claimed = m;
			in_queue[m] = false;
			overdue = done && passed;	/* memwait_async_is_overdue() */
#ifdef MUTATION_OVERDUE_ONE_IS_COUNTED
			counted++
#else
			counted = counted + 1 - overdue
#endif
		:: else
		fi;
		if
		:: done ->
			if
			:: overdue -> complete(TIMED_OUT)
			:: else -> complete(OK)
			fi;
#ifndef MUTATION_NO_REFERENCE_TO_CONTEXT
			context_refs++
#endif
		:: else
		fi;
		waits_locked = false;
		if
		:: !won -> assert(exists); in_queue[m] = false	/* store-release, last access */
		:: else
		fi
	:: else
	fi;
	queue_locked[m] = false;

	/* memwait_step_end() */
	if
	:: done ->
		context_wake();
#ifndef MUTATION_NO_REFERENCE_TO_CONTEXT
		context_put();
#endif
#if defined(GROUP) && defined(MUTATION_CLAIMER_TAKES_OUT_THE_REST)
		queue_leave(1 - m)
#endif
	:: else
	fi;
	running--
}

/* memwait_arm(); the last word may be unequal */
proctype armer()
{
	bool pending, notified, equal;

	lock(waits_locked);
	has_index = true;
	waits_locked = false;
#ifdef GROUP
	lock(queue_locked[0]);
	in_queue[0] = true;
	queue_locked[0] = false;
#endif
	lock(queue_locked[LAST]);
	if
	:: equal = true;
		in_queue[LAST] = true;
		/* memwait_async_joined() */
#ifdef MUTATION_QUEUED_AFTER_IT_JOINED
		queue_locked[LAST] = false;
#endif
		lock(waits_locked);
		if
		:: claimed == NONE -> state = QUEUED; pending = true
		:: else
		fi;
		waits_locked = false
	:: equal = false
	fi;
	queue_locked[LAST] = false;

	/* memwait_arm_end() */
	if
	:: !pending ->
		lock(waits_locked);
		notified = claimed != NONE;
		if
		:: !notified -> claimed = SELF
		:: else
		fi;
		waits_locked = false;
		leave();
		lock(waits_locked);
		if
		:: notified ->
#ifdef MUTATION_NOTIFIED_GROUP_IS_FORGOTTEN
			state = QUEUED
#else
			complete(OK)
#endif
		:: else ->
			assert(!equal);
			has_index = false;
			state = FREED
		fi;
		waits_locked = false;
		if
		:: notified -> context_wake()
		:: else -> exists = false; taken_back++
		fi
	:: else
	fi;
	running--
}

/* memwait_timer_fired(), once for each start of the timer */
proctype timer()
{
	state != ARMING;	/* arming starts the timer */
	timer_started = true;
	do
	::
		/* hrtimer_cancel() */
		atomic {
			if
			:: closing || exists == false -> goto out
			:: !closing && timer_started -> timer_started = false; timer_runs = true
			fi
		};
		passed = true;
		due = true;
		context_wake();
		timer_runs = false
	od;
out:
	running--
}

/* memwait_is_due() */
inline is_due(is)
{
	lock(waits_locked);
	is = state == QUEUED && passed;
	if
	:: !is ->
		due = false;
#ifndef MUTATION_TIMER_IS_NOT_STARTED_AGAIN
		timer_started = timer_started || state == QUEUED
#endif
	:: else
	fi;
	waits_locked = false
}

/* memwait_expire_one() */
inline expire()
{
	lock(waits_locked);
	done = false;
	if
	:: passed -> claim(done)
	:: else
	fi;
#ifdef MUTATION_DEADLINE_IN_TWO_STEPS
	waits_locked = false;
	lock(waits_locked);
#endif
	if
	:: done -> complete(TIMED_OUT)
	:: else
	fi;
	waits_locked = false;
	if
	:: done -> leave()
	:: else
	fi
}

/* memwait_ioc_cancel() */
proctype canceller()
{
	bool done, found;

	lock(waits_locked);
	found = has_index && state != ARMING;	/* ARMING: the id has not been returned yet */
	if
	:: found -> claim(done)
	:: else
	fi;
	/* R23: if cancel returns ENOENT, the completion is or was readable. */
	assert(done || !found || state == COMPLETED || state == FREED);
	waits_locked = false;
	if
	:: done -> release(); free_wait(); taken_back++
	:: else
	fi;
	running--
}

/* memwait_poll() and memwait_read_iter(), until the wait has ended in any way */
proctype reader()
{
	bool ready, delivered, done;

	do
	:: taken_back + seen + timed_out == 1 -> break
	:: else ->
		/* poll_wait() */
#ifdef MUTATION_LOOKS_BEFORE_IT_POLLS
		ready = nr_completed != 0;
#endif
		lock(pollers_locked);
		polls = true;
		poller_woken = false;
		pollers_locked = false;
#ifndef MUTATION_LOOKS_BEFORE_IT_POLLS
		ready = nr_completed != 0;
#endif
#ifndef MUTATION_POLL_IGNORES_DEADLINES
		if
		:: !ready && due -> is_due(ready)
		:: else
		fi;
#endif
		if
		:: ready
		:: else ->
			if
			:: poller_woken
			:: taken_back	/* model only: ends the loop */
			fi
		fi;
		polls = false;
		/* memwait_read_iter() */
		if
		:: due -> expire(); is_due(ready)
		:: else
		fi;
		/* memwait_read_some() */
		lock(waits_locked);
		delivered = completed;
		waits_locked = false;
		if
		:: delivered ->
			lock(waits_locked);
			completed = false;
			nr_completed--;
			waits_locked = false;
			if
			:: result == OK -> seen++
			:: else -> timed_out++
			fi;
			release();
			free_wait()
		:: else
		fi
	od;
	running--
}

/* memwait_release(): no ioctl and no read is in progress, but notifies may be */
proctype closer()
{
	bool done;

	closing = true;
	!timer_runs;		/* hrtimer_cancel() */
	lock(waits_locked);
	if
	:: has_index -> claim(done)
	:: else
	fi;
	if
	:: done -> has_index = false
	:: else
	fi;
	waits_locked = false;
	if
	:: done -> release(); taken_back++
	:: else
	fi;
	/* Nothing can complete after this. */
	if
	:: completed ->
		if
		:: result == OK ->
#ifndef MUTATION_CLOSE_FORGETS_WHAT_WAS_NOT_READ
			passed_on++
#else
			skip
#endif
		:: else -> timed_out++
		fi;
		release()
	:: else
	fi;
	context_put();
	running--
}

init
{
	atomic {
		running = 3;
		run notifier(0);
#ifdef GROUP
		running++;
		run notifier(1);
#endif
#ifdef READ
		running++;
#if !defined(GROUP) && !defined(CANCEL)
		/* The timer may have fired for an earlier wait. */
		if
		:: due = true
		:: skip
		fi;
#endif
		run armer();
		run timer();
		run reader();
#ifdef CANCEL
		running++;
		run canceller()
#endif
#else
		/* The wait is armed already. */
		has_index = true;
		state = QUEUED;
		in_queue[0] = true;
#ifdef GROUP
		in_queue[1] = true;
#endif
		run timer();
		run closer()
#endif
	};
	running == 0;
	assert(!exists);
	assert(counted == seen + passed_on);
	assert(counted + timed_out + taken_back == 1)
}
