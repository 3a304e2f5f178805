/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Contexts as a model for Spin: the life of an async wait, or group, as the top of async.c tells
 * it, with its steps and names: notify, deadline, cancel, read and close against each other, and
 * poll against a completion. selftests/lint/spin runs it as it does queue.pml.
 *
 * One context, one wait. Queues are there all the time, and only this wait is in them: how it comes
 * there is queue.pml's.
 */
#define NONE	255
#define SELF	254	/* MEMWAIT_CLAIMED_BY_ITSELF */

#ifdef GROUP
#define MEMBERS	2	/* each in a queue of its own */
#else
#define MEMBERS	1
#endif

mtype = { ARMING, QUEUED, CLAIMED, COMPLETED, FREED };
mtype = { OK, TIMED_OUT };

/* Queues, and who is in them. */
bool queue_locked[MEMBERS];
bool in_queue[MEMBERS];

/* struct memwait_async_wait, and of a group: group->claimed */
mtype state = ARMING;
mtype result;
byte claimed = NONE;
bool exists = true;		/* its memory */

/* struct memwait_context */
bool waits_locked;		/* memwait_context.lock */
bool has_index;			/* it is found in context->slots */
bool completed;			/* it is in context->completed */
byte nr_completed;
bool context_exists = true;
bool closing;
bool expiring;			/* the work item runs */

/* context->pollers: a poller, or a reader that blocks */
bool pollers_locked, polls, poller_woken;

byte rcu_readers;
byte counted, seen, passed_on, taken_back, timed_out;
byte running;

inline lock(l)
{
	atomic { !l -> l = true }
}

/* memwait_async_claim(), the context's lock is held. */
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

/* memwait_async_complete(), the context's lock is held. */
inline complete(how)
{
	assert(exists && (state == CLAIMED || state == ARMING));
	d_step {
		state = COMPLETED;
		result = how;
		completed = true;
		nr_completed++
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

/* memwait_async_leave() */
inline leave()
{
	queue_leave(0);
#ifdef GROUP
	queue_leave(1)
#endif
}

/* memwait_async_release(): the memory of a group goes a grace period later. */
inline release()
{
#ifndef MUTATION_FREED_WITHOUT_LEAVING
	leave();
#endif
	assert(exists);
	/* memwait_group_put(): what its words hold on to may go. */
	assert(!in_queue[0]);
#ifdef GROUP
	assert(!in_queue[1]);
#ifndef MUTATION_NO_GRACE_PERIOD
	rcu_readers == 0;
#endif
#endif
	state = FREED;
	exists = false
}

/*
 * memwait_async_retire(): whether its memory is freed, or kept for the next wait, makes no
 * difference to this one. Until then its id can be found.
 */
inline retire()
{
	lock(waits_locked);
	has_index = false;
	waits_locked = false
}

/* memwait_queue_notify() of the word of member m */
proctype notifier(byte m)
{
	bool won, done;

#ifndef MUTATION_NO_RCU_READER
	rcu_readers++;
#endif
	lock(queue_locked[m]);
	if
	:: in_queue[m] ->
		/* memwait_async_wake(), memwait_async_group_wake() */
		assert(exists);
		lock(waits_locked);
		claim(done);
		won = done;
#ifdef GROUP
		if
#ifdef MUTATION_CLAIMED_TWICE_WHILE_IT_ARMS
		:: !done && state == ARMING -> won = true
#else
		:: !done && state == ARMING && claimed == NONE -> won = true
#endif
		:: else
		fi;
#endif
		if
		:: won -> claimed = m; in_queue[m] = false; counted++
		:: else
		fi;
		if
		:: done -> complete(OK)
		:: else
		fi;
		waits_locked = false;
		if
		:: !won -> in_queue[m] = false		/* store-release, last access */
		:: else
		fi
	:: else
	fi;
	queue_locked[m] = false;

#ifdef GROUP
	/* memwait_leave_groups() */
	if
	:: done -> queue_leave(1 - m)
	:: else
	fi;
#endif
	if
	:: done -> context_wake()
	:: else
	fi;
#ifndef MUTATION_NO_RCU_READER
	rcu_readers--;
#endif
	running--
}

/* memwait_async_arm(), memwait_async_arm_group(); the last word may not be equal. */
proctype armer()
{
	bool notified, equal;

	lock(waits_locked);
	has_index = true;
	waits_locked = false;
#ifdef GROUP
	lock(queue_locked[0]);
	in_queue[0] = true;
	queue_locked[0] = false;
	lock(queue_locked[1]);
	if
	:: equal = true; in_queue[1] = true
	:: equal = false
	fi;
	queue_locked[1] = false;

	lock(waits_locked);
	notified = claimed != NONE;
	if
	:: equal && !notified -> state = QUEUED
	:: !equal && !notified -> claimed = SELF
	:: else
	fi;
	waits_locked = false;
	if
	:: !equal && !notified ->
		leave();
		lock(waits_locked);
		has_index = false;
		state = FREED;
		waits_locked = false;
		rcu_readers == 0;
		exists = false;
		taken_back++
	:: notified ->
		leave();
		lock(waits_locked);
#ifdef MUTATION_NOTIFIED_GROUP_IS_FORGOTTEN
		state = QUEUED;
#else
		complete(OK);
#endif
		waits_locked = false;
		context_wake()
	:: else
	fi;
#else
	/* memwait_queue_join() and memwait_async_joined() */
	lock(queue_locked[0]);
	in_queue[0] = true;
	lock(waits_locked);
	state = QUEUED;
	waits_locked = false;
	queue_locked[0] = false;
#endif
	running--
}

/* memwait_expire(), which the timer queues. */
proctype expirer()
{
	bool done;

	state != ARMING;	/* the timer is started then */
	/* hrtimer_cancel() and cancel_work_sync(): not once it is closing. */
	atomic {
		if
		:: !closing -> expiring = true
		:: else -> goto out
		fi
	};
	lock(waits_locked);
	claim(done);
	waits_locked = false;
	if
	:: done ->
		leave();
		lock(waits_locked);
		complete(TIMED_OUT);
		waits_locked = false;
		context_wake()
	:: else
	fi;
	expiring = false;
out:
	running--
}

/* memwait_cancel() */
proctype canceller()
{
	bool done, wait_for_work, found;

	lock(waits_locked);
	found = has_index && state != ARMING;	/* before, nobody knows the id */
	if
	:: found ->
		claim(done);
		wait_for_work = !done && state == CLAIMED
	:: else
	fi;
	waits_locked = false;
	if
#ifndef MUTATION_CANCEL_DOES_NOT_AWAIT_THE_DEADLINE
	:: wait_for_work -> !expiring		/* flush_work() */
#endif
	:: else
	fi;
	/* R23: ENOENT says that the completion is, or was, readable. */
	assert(done || !found || state == COMPLETED || state == FREED);
	if
	:: done -> release(); retire(); taken_back++
	:: else
	fi;
	running--
}

/* memwait_poll() and memwait_read(), until the wait has ended in one way or the other. */
proctype reader()
{
	bool ready, delivered;

	do
	:: taken_back + seen + timed_out == 1 -> break
	:: else ->
		/* poll_wait(), prepare_to_wait() */
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
		if
		:: ready
		:: else ->
			if
			:: poller_woken
			:: taken_back	/* of the model only: nobody waits for that */
			fi
		fi;
		polls = false;
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
			retire()
		:: else
		fi
	od;
	running--
}

/* memwait_release(): nobody calls the context any more, but notifies and its work item go on. */
proctype closer()
{
	bool done;

	closing = true;
	!expiring;
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
	/* Nobody completes anything now. */
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
#ifndef MUTATION_NO_GRACE_PERIOD
	rcu_readers == 0;
#endif
	context_exists = false;
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
		run armer();
		run expirer();
		run reader();
#ifdef CANCEL
		running++;
		run canceller()
#endif
#else
		/* It was armed before. */
		has_index = true;
		state = QUEUED;
		in_queue[0] = true;
#ifdef GROUP
		in_queue[1] = true;
#endif
		run expirer();
		run closer()
#endif
	};
	running == 0;
	assert(!exists);
	assert(counted == seen + passed_on);
	assert(counted + timed_out + taken_back == 1)
}
