/* SPDX-License-Identifier: GPL-2.0 */
/* The steps of a thread of the torture test. */
#ifndef TORTURE_CALLS_TEST_H
#define TORTURE_CALLS_TEST_H

#include "torture_test.h"
#include <sys/prctl.h>

static void step_wait(struct worker *w)
{
	uint8_t word = random_word(w);
	struct memwait_wait wait = random_wait(w, word);
	struct call *call = begin(w, "wait", 0, word, wait.expected);

	will_wait(w, &word, &wait, 1);
	call->result = xioctl(w->fd, MEMWAIT_IOC_WAIT, &wait);
	has_waited(w, call->result, wait.deadline);
	if (call->result < 0 && call->result != -EINTR && !is_allowed(word, call->result))
		broken(w, "wait", call->result, word);
}

static void step_wait_any(struct worker *w)
{
	uint32_t nr = 1 + draw(w) % MOST_WORDS, index;
	struct memwait_wait waits[MOST_WORDS];
	uint64_t deadline = random_deadline(w);
	uint8_t words[MOST_WORDS];
	bool wild = false;
	struct call *call;
	uint32_t i;

	for (i = 0; i < nr; i++) {
		words[i] = random_word(w);
		waits[i] = random_wait(w, words[i]);
		wild |= HAS_KIND(words[i], WILD);
	}
	call = begin(w, "wait any", 0, words[0], nr);
	will_wait(w, words, waits, nr);
	call->result = mw_wait_any(w->fd, waits, nr, deadline, 0, &index);
	has_waited(w, call->result, deadline);
	if ((call->result == MEMWAIT_OK || call->result == MEMWAIT_NOT_EQUAL) && index >= nr)
		broken(w, "wait any: index", index, nr);
	if (call->result < 0 && call->result != -EINTR && !(wild && call->result == -EFAULT))
		broken(w, "wait any", call->result, nr);
}

/*
 * May change the word. Returns how many waiters the caller must wake. Sets *to to the new value if
 * a STRICT word was changed, otherwise to 0.
 */
static uint32_t change(struct worker *w, uint32_t word, uint64_t *to)
{
	bool strict = HAS_KIND(word, STRICT);
	uint64_t new;

	*to = 0;
	if (HAS_KIND(word, WILD) || !one_in(w, 3))
		return one_in(w, 8) ? MEMWAIT_ALL : draw(w) % 4;
	new = __atomic_add_fetch((uint64_t *)address(w, word), 1, __ATOMIC_RELAXED);
	if (strict)
		*to = new;
	return strict || one_in(w, 8) ? MEMWAIT_ALL : draw(w) % 4;
}

/* Notifies, and counts the woken waiters. The caller checks for errors. */
static int notify(struct worker *w, uint32_t word, uint32_t count, uint32_t flags)
{
	struct call *call = begin(w, "notify", 0, word, count);

	call->result = mw_notify(w->fd, address(w, word), count, flags);
	if (call->result > 0)
		w->record->notified += call->result;
	return call->result;
}

static void notify_all(struct worker *w, uint32_t word)
{
	int ret = notify(w, word, MEMWAIT_ALL, 0);

	if (ret < 0)
		broken(w, "notify all", ret, word);
}

/*
 * Like notify(), by CHANGE_NOTIFY with an operation that does not change the word. The operation is
 * done first, or only if no waiter was woken.
 */
static int change_notify(struct worker *w, uint32_t word, uint32_t count, uint32_t flags)
{
	struct memwait_change change = {
		.notify = {
			.addr = (uintptr_t)address(w, word),
			.count = count,
			.flags = (flags & MEMWAIT_PRIVATE) | MEMWAIT_SIZE_U32,
		},
		.operation = MEMWAIT_CHANGE_OR | (one_in(w, 2) ? MEMWAIT_CHANGE_IF_NONE_WOKEN : 0),
	};
	struct call *call = begin(w, "change notify", 0, word, count);

	call->result = xioctl(w->fd, MEMWAIT_IOC_CHANGE_NOTIFY, &change);
	if (call->result > 0)
		w->record->notified += call->result;
	return call->result;
}

static void step_notify(struct worker *w)
{
	uint32_t word = random_word(w);
	uint64_t to, count = change(w, word, &to);
	uint32_t flags = random_flags(w, word);
	int ret = one_in(w, 4) ? change_notify(w, word, count, flags) :
				 notify(w, word, count, flags);

	settle(word, to);
	if (ret < 0 && !is_allowed(word, ret))
		broken(w, "notify", ret, word);
}

static void step_notify_many(struct worker *w)
{
	struct memwait_notify notifies[BATCH];
	uint32_t words[BATCH], woken[BATCH] = { 0 }, count = 1 + draw(w) % BATCH, i;
	uint64_t to[BATCH];
	struct call *call;

	for (i = 0; i < count; i++) {
		/*
		 * A WILD word could end the call with an error before a changed word is notified.
		 */
		do {
			words[i] = random_word(w);
		} while (HAS_KIND(words[i], WILD));
		notifies[i] = random_notify(w, words[i], change(w, words[i], &to[i]));
	}
	call = begin(w, "notify many", 0, count, 0);
	/* A signal may end the call, but only after the first notify. */
	for (i = 0; i < count; i += call->result) {
		call->result = mw_notify_many(w->fd, notifies + i, count - i, woken + i);
		if (call->result <= 0 || call->result > count - i)
			broken(w, "notify many", call->result, count);
	}
	for (i = 0; i < count; i++) {
		settle(words[i], to[i]);
		w->record->notified += woken[i];
	}
}

static void step_notify_wait(struct worker *w)
{
	uint32_t word = random_word(w);
	uint64_t to, count = change(w, word, &to);
	uint8_t waited = random_word(w);
	struct memwait_notify_wait arg = {
		.notify = random_notify(w, word, count),
		.wait = random_wait(w, waited),
	};
	struct call *call = begin(w, "notify wait", 0, word, waited);
	bool again;

	will_wait(w, &waited, &arg.wait, 1);
	do {
		call->result = xioctl(w->fd, MEMWAIT_IOC_NOTIFY_WAIT, &arg);
		again = call->result == -EINTR;
		if (again && arg.state != MEMWAIT_NOTIFIED)
			broken(w, "notify wait does not report its notify", 0, 0);
	} while (again);
	has_waited(w, call->result, arg.wait.deadline);
	w->record->notified += arg.notified;
	if (call->result >= 0) {
		settle(word, to);
		return;
	}
	if (!is_allowed(word, call->result) && !is_allowed(waited, call->result))
		broken(w, "notify wait", call->result, word);
	/* The word has changed, but the call may have failed to notify it. */
	if (HAS_KIND(word, STRICT))
		notify_all(w, word);
}

/*
 * Repeatedly changes a STRICT word or waits for it, so that changes happen at every step of a wait.
 * The deadlines are shorter than the time to the next change, because a later change would hide a
 * missed notify.
 */
static void step_storm(struct worker *w)
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + 20 * NSEC_PER_MSEC, to;
	uint8_t word = draw(w) % OWN * KINDS + STRICT;
	struct memwait_completion done;
	bool notifies = one_in(w, 3);
	struct memwait_wait wait;
	int ret;

	while (phase() == RUN && now_ns(CLOCK_MONOTONIC) < end) {
		if (notifies) {
			to = __atomic_add_fetch((uint64_t *)address(w, word), 1, __ATOMIC_RELAXED);
			notify_all(w, word);
			settle(word, to);
			usleep(500);
			continue;
		}
		w->record->calls++;
		wait = random_wait(w, word);
		wait.deadline = now_ns(CLOCK_MONOTONIC) + NSEC_PER_MSEC / 5;
		ret = mw_async(w->fd, address(w, word), wait.expected, wait.deadline, wait.flags, 0,
			       NULL);
		if (ret < 0)
			broken(w, "arm", ret, word);
		if (ret != MEMWAIT_PENDING)
			continue;
		w->record->armed++;
		do {
			ret = mw_read(w->fd, &done, 1);
		} while (ret == -EINTR);
		if (ret != 1) {
			broken(w, "read", ret, word);
		} else if (done.result == MEMWAIT_OK) {
			w->record->read_oks++;
		} else {
			w->record->timed_out++;
			check_time_out(w, wait.deadline);
			check_missed(w, process_number, &word, &wait, 1, wait.deadline);
		}
	}
}

static void step_requeue(struct worker *w)
{
	uint32_t places = w->no_own_words ? OWN : PLACES;
	uint32_t word = draw(w) % places * KINDS + MOVING + draw(w) % 2;
	uint32_t place = one_in(w, 16) ? draw(w) % places : PLACE(word);
	uint32_t target = place * KINDS + MOVING + draw(w) % 2;
	uint32_t flags = draw(w) % 4;
	struct requeued out = { 0 };
	struct call *call = begin(w, "requeue", 0, word, target);

	if (PLACE(word) == OWN && PLACE(target) == OWN && one_in(w, 2))
		flags |= MEMWAIT_PRIVATE;
	call->result = mw_requeue(w->fd, address(w, word), value(w, word), address(w, target),
				  w->victim ? 0 : draw(w) % 3,
				  one_in(w, 8) ? MEMWAIT_ALL : draw(w) % 4, flags, &out);
	if (!call->result && PLACE(target) == PLACE(word))
		w->record->notified += out.woken;
	else if (call->result != (PLACE(target) == PLACE(word) ? MEMWAIT_NOT_EQUAL : -EXDEV))
		broken(w, "requeue", call->result, word);
}

static void put_context(int number)
{
	pthread_rwlock_unlock(&shared->contexts[number].lock);
}

/*
 * Read-locks a context while its waits are used. Fails if the context belongs to another process.
 */
static bool take_part_of_context(int number)
{
	struct context *context = &shared->contexts[number];

	if (pthread_rwlock_tryrdlock(&context->lock))
		return false;
	if (context->owner == process_number)
		return true;
	put_context(number);
	return false;
}

static int take_context(struct worker *w)
{
	uint32_t number = draw(w) % OWN_CONTEXTS;
	struct context *context = &shared->contexts[number];

	/* A child must not use contexts that threads share. */
	if (w->child || is_storm() ||
	    __atomic_load_n(&context->owner, __ATOMIC_ACQUIRE) != process_number)
		number = w->own;
	return take_part_of_context(number) ? (int)number : -1;
}

static bool is_timed(const struct slot *slot)
{
	return slot->deadline != MEMWAIT_FOREVER;
}

static bool become(struct slot *slot, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&slot->state, &from, to, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_ACQUIRE);
}

/*
 * Changes the state of a slot to @to. If the completion has arrived in the meantime, changes it to
 * FREE.
 */
static void let_go(struct worker *w, struct slot *slot, uint32_t from, uint32_t to)
{
	if (!become(slot, from, to) && !become(slot, ENDED, FREE))
		broken(w, "a wait's state", slot->state, from);
}

static struct slot *slot_of(const struct memwait_async *entry)
{
	return &shared->contexts[entry->user_data >> 32].slots[entry->user_data >> 16 & 0xffff];
}

static uint64_t user_data(int number, uint32_t slot)
{
	return (uint64_t)number << 32 | slot << 16 |
	       shared->contexts[number].slots[slot].generation;
}

/*
 * Takes a slot and fills in its entry with one word, with @ordered if it is not 0, or with a group.
 * Returns false if the slot is in use.
 */
static bool prepare(struct worker *w, int number, struct memwait_async *entry,
		    struct memwait_wait *waits, uint8_t ordered)
{
	uint32_t i = draw(w) % SLOTS, tries = is_storm() ? SLOTS : 1, j;
	uint64_t deadline = one_in(w, 2) ? MEMWAIT_FOREVER : soon_of(w);
	struct slot *slots = shared->contexts[number].slots, *slot;

	for (; !become(&slots[i], FREE, ARMING); i = (i + 1) % SLOTS) {
		if (!--tries)
			return false;
	}
	slot = &slots[i];
	slot->generation++;
	slot->id = 0;
	slot->ticket = 0;
	slot->process = w->child ? FORKED : process_number;
	slot->nr = !ordered && one_in(w, 4) ? 1 + draw(w) % ASYNC_WORDS : 1;
	for (j = 0; j < slot->nr; j++) {
		/*
		 * A child may arm waits on its own words, because a deadline or a cancel ends these
		 * waits.
		 */
		slot->words[j] = ordered ?: w->child ? draw(w) % WORDS : random_word(w);
		waits[j] = random_wait(w, slot->words[j]);
	}
	memcpy(slot->waits, waits, slot->nr * sizeof(*waits));
	slot->deadline = deadline;
	if (ordered)
		slot->ticket = ++shared->orders[ordered].tickets;
	if (slot->nr > 1 || (!ordered && one_in(w, 16)))
		*entry = group_entry(waits, slot->nr, deadline, 0, 0);
	else
		*entry = (struct memwait_async) { .wait = waits[0] };
	entry->wait.deadline = deadline;
	entry->user_data = user_data(number, i);
	entry->result = UNTOUCHED;
	return true;
}

static void lock_order(struct order *order)
{
	spin_until(!__atomic_exchange_n(&order->lock, 1, __ATOMIC_ACQUIRE));
}

static void unlock_order(struct order *order)
{
	__atomic_store_n(&order->lock, 0, __ATOMIC_RELEASE);
}

static void cancel_slot(struct worker *w, int number, struct slot *slot)
{
	struct call *call;

	if (!become(slot, PENDING, CANCELLING))
		return;
	call = begin(w, "cancel", number, slot - shared->contexts[number].slots, slot->id);
	call->result = mw_cancel(fds[number], slot->id);
	if (call->result == -ENOENT) {
		let_go(w, slot, CANCELLING, PENDING);
	} else if (call->result) {
		broken(w, "cancel", call->result, slot->id);
	} else {
		w->record->cancelled++;
		if (!become(slot, CANCELLING, FREE))
			broken(w, "cancelled and completed", slot->id, 0);
	}
}

/*
 * Arms waits on any words, or on one ordered word. In a storm every wait becomes pending, and half
 * of the waits are then cancelled, the newest first.
 */
static void step_arm(struct worker *w)
{
	bool may_lock = !w->victim && !w->child && !is_storm();
	uint8_t ordered = may_lock && one_in(w, 3) ? draw(w) % OWN * KINDS + ORDERED : 0;
	uint32_t most = is_storm() ? STORM_BATCH : 1 + draw(w) % BATCH, n = 0, i, j;
	struct memwait_wait waits[STORM_BATCH][ASYNC_WORDS];
	struct memwait_async entries[STORM_BATCH];
	int number = take_context(w), done;
	struct call *call;

	if (number < 0)
		return;
	if (ordered)
		lock_order(&shared->orders[ordered]);
	while (n < most && prepare(w, number, &entries[n], waits[n], ordered))
		n++;
	call = begin(w, "arm", number, n, ordered);
	call->result = mw_batch(fds[number], entries, n);
	if (ordered)
		unlock_order(&shared->orders[ordered]);

	/*
	 * The first failure ends the batch. A signal also ends it if at least one wait is armed,
	 * even while the next entry is retried because its page is missing.
	 */
	done = call->result < 0 ? 0 : call->result;
	for (i = 0; i < n; i++) {
		struct slot *slot = slot_of(&entries[i]);
		int result = entries[i].result;
		bool wild = false;

		for (j = 0; j < slot->nr; j++)
			wild |= HAS_KIND(slot->words[j], WILD);
		if ((int)i < done ? result < MEMWAIT_NOT_EQUAL || result > MEMWAIT_PENDING :
		    (int)i > done || (done && result == UNTOUCHED) ? result != UNTOUCHED :
		    (!wild || result != -EFAULT) && (!done || result != -EINTR))
			broken(w, "arm", result, i);
		if (is_storm() && result != MEMWAIT_PENDING)
			broken(w, "arm in a storm", result, i);
		if (result == MEMWAIT_TIMED_OUT)
			check_time_out(w, slot->deadline);
		if (result == MEMWAIT_PENDING) {
			slot->id = entries[i].id;
			if (!slot->id)
				broken(w, "a pending wait has no id", number, i);
			w->record->armed++;
			let_go(w, slot, ARMING, PENDING);
		} else if (!become(slot, ARMING, FREE)) {
			broken(w, "completion of a wait that was never pending", slot->state, 0);
		}
	}
	if (call->result < 0 && (call->result != -EFAULT || !n))
		broken(w, "arm", call->result, n);
	for (i = n; is_storm() && i--;) {
		if (one_in(w, 2))
			cancel_slot(w, number, slot_of(&entries[i]));
	}
	put_context(number);
}

static void step_cancel(struct worker *w)
{
	int number = take_context(w);

	if (number < 0)
		return;
	cancel_slot(w, number, &shared->contexts[number].slots[draw(w) % SLOTS]);
	put_context(number);
}

static void was_notified(struct order *order, uint64_t ticket)
{
	uint64_t last = __atomic_load_n(&order->last_notified, __ATOMIC_RELAXED);

	while (ticket > last &&
	       !__atomic_compare_exchange_n(&order->last_notified, &last, ticket, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* The thread that arms or cancels the wait may release the slot concurrently. */
static void end_slot(struct worker *w, struct slot *slot)
{
	uint32_t state;

	do {
		state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
		if (state == FREE || state == ENDED)
			return broken(w, "ended twice", state, slot->id);
	} while (!become(slot, state, state == PENDING ? FREE : ENDED));
}

static void completed(struct worker *w, const struct memwait_completion *done)
{
	uint32_t number = done->user_data >> 32, i = done->user_data >> 16 & 0xffff;
	struct slot *slot;

	if (number >= ALL_CONTEXTS || i >= SLOTS || user_data(number, i) != done->user_data) {
		broken(w, "completion of an unknown wait", done->user_data, done->id);
		return;
	}
	slot = &shared->contexts[number].slots[i];
	if (slot->id && slot->id != done->id)
		broken(w, "completion's id", done->id, slot->id);
	if (done->index >= (done->result == MEMWAIT_OK ? slot->nr : 1))
		broken(w, "completion's index", done->index, slot->nr);
	if (done->result == MEMWAIT_OK) {
		w->record->read_oks++;
		if (slot->ticket)
			was_notified(&shared->orders[slot->words[0]], slot->ticket);
	} else if (done->result == MEMWAIT_TIMED_OUT && is_timed(slot)) {
		w->record->timed_out++;
		check_time_out(w, slot->deadline);
		check_missed(w, slot->process, slot->words, slot->waits, slot->nr, slot->deadline);
	} else {
		broken(w, "completion's result", done->result, is_timed(slot));
	}
	end_slot(w, slot);
}

/* Returns the number of completions read, or a negative errno. */
static int read_context(struct worker *w, int number, uint32_t most)
{
	struct memwait_completion done[STORM_BATCH];
	struct call *call = begin(w, "read", number, most, 0);
	int i;

	__atomic_store_n(&w->record->reading, most, __ATOMIC_RELEASE);
	call->result = mw_read(fds[number], done, most);
	for (i = 0; i < call->result; i++)
		completed(w, &done[i]);
	__atomic_store_n(&w->record->reading, 0, __ATOMIC_RELEASE);
	if (call->result < 0 && call->result != -EAGAIN &&
	    (call->result != -EINTR || is_storm()))
		broken(w, "read", call->result, number);
	return call->result;
}

static void step_read(struct worker *w)
{
	int number = take_context(w);

	if (number < 0)
		return;
	read_context(w, number, 1 + draw(w) % BATCH);
	put_context(number);
}

/*
 * Only the worker itself reads its own context. Therefore the completion that it waits for must
 * arrive.
 */
static void step_poll(struct worker *w)
{
	struct epoll_event event = { .events = EPOLLIN | (one_in(w, 2) ? EPOLLET : 0) };
	struct pollfd pfd = { .fd = fds[w->own], .events = POLLIN };
	struct slot *slots = shared->contexts[w->own].slots;
	bool comes = false;
	struct call *call;
	int epoll, ret, i;

	for (i = 0; i < SLOTS; i++)
		comes |= is_timed(&slots[i]) && slots[i].state == PENDING;
	if (!comes)
		return;
	switch (draw(w) % 3) {
	case 0:
		fcntl(pfd.fd, F_SETFL, O_RDWR);
		while (read_context(w, w->own, BATCH) == -EINTR)
			;
		fcntl(pfd.fd, F_SETFL, O_RDWR | O_NONBLOCK);
		return;
	case 1:
		call = begin(w, "poll", w->own, 0, 0);
		ret = TEMP_FAILURE_RETRY(poll(&pfd, 1, PATIENCE / NSEC_PER_MSEC));
		break;
	default:
		call = begin(w, "epoll", w->own, event.events, 0);
		epoll = epoll_create1(EPOLL_CLOEXEC);
		epoll_ctl(epoll, EPOLL_CTL_ADD, pfd.fd, &event);
		ret = TEMP_FAILURE_RETRY(epoll_wait(epoll, &event, 1, PATIENCE / NSEC_PER_MSEC));
		close(epoll);
	}
	call->result = ret;
	if (ret != 1)
		broken(w, "a deadline has passed, but there is nothing to read", ret, w->own);
}

/* Reads until no completion is left. */
static void read_all(struct worker *w, int number)
{
	int ret;

	do {
		ret = read_context(w, number, is_storm() ? STORM_BATCH : BATCH);
	} while (ret > 0 || ret == -EINTR);
}

static void check_all_free(struct worker *w, int number, const char *why)
{
	struct slot *slots = shared->contexts[number].slots;
	int i;

	for (i = 0; i < SLOTS; i++) {
		if (slots[i].state != FREE)
			broken(w, why, slots[i].state, slots[i].id);
	}
}

/* Cancels all waits of a locked context, and reads the completions of the waits that had ended. */
static void empty_context(struct worker *w, int number)
{
	struct slot *slots = shared->contexts[number].slots;
	int i;

	for (i = 0; i < SLOTS; i++)
		cancel_slot(w, number, &slots[i]);
	read_all(w, number);
	check_all_free(w, number, "neither cancelled nor read");
}

static void open_context(struct worker *w, int number)
{
	fds[number] = memwait_open(O_NONBLOCK);
	if (fds[number] < 0)
		broken(w, "open", fds[number], number);
}

/* Write-locks a context. */
static bool take_all_of_context(int number)
{
	struct context *context = &shared->contexts[number];

	if (context->owner != process_number || pthread_rwlock_trywrlock(&context->lock))
		return false;
	if (context->owner == process_number)
		return true;
	put_context(number);
	return false;
}

static void step_close(struct worker *w)
{
	int number = one_in(w, 2) ? w->own : (int)(draw(w) % ALL_CONTEXTS), i;
	struct slot *slots = shared->contexts[number].slots;
	struct call *call;

	if ((number >= OWN_CONTEXTS && number != w->own) || !take_all_of_context(number))
		return;
	if (shared->mode == EXACT)
		empty_context(w, number);
	call = begin(w, "close", number, 0, 0);
	for (i = 0; i < SLOTS; i++)
		w->record->closed_over += slots[i].state != FREE;
	call->result = close(fds[number]);
	for (i = 0; i < SLOTS; i++)
		slots[i].state = FREE;
	open_context(w, number);
	put_context(number);
}

/* Sends a context, with its waits, to another process. */
static void step_pass(struct worker *w)
{
	int to = draw(w) % PROCESSES, number = draw(w) % OWN_CONTEXTS;
	struct call *call;

	if (to == process_number || !take_all_of_context(number))
		return;
	call = begin(w, "pass", number, to, 0);
	shared->contexts[number].owner = NOBODY;
	call->result = send_fd(mail[to][0], fds[number], number);
	if (!call->result)
		close(fds[number]);
	else
		shared->contexts[number].owner = process_number;
	put_context(number);
}

static void step_receive(struct worker *w)
{
	int number, fd = receive_fd(mail[process_number][1], &number);
	struct context *context;

	if (fd < 0)
		return;
	context = &shared->contexts[number];
	pthread_rwlock_wrlock(&context->lock);
	fds[number] = fd;
	__atomic_store_n(&context->owner, process_number, __ATOMIC_RELEASE);
	put_context(number);
	begin(w, "receive", number, fd, 0)->result = 0;
}

/* Changes the mapping of a WILD word and undoes the change. */
static void step_wild(struct worker *w)
{
	int both = PROT_READ | PROT_WRITE, fixed = MAP_FIXED | MAP_ANONYMOUS | MAP_PRIVATE;
	uint32_t place = draw(w) % PLACES, what = draw(w) % 4;
	char *page = wild_areas[place];
	long size = sysconf(_SC_PAGESIZE);
	struct call *call = begin(w, "page", 0, place, what);
	bool failed = false;

	pthread_mutex_lock(&wild_lock);
	switch (what) {
	case 0:
		failed = mprotect(page, size, PROT_NONE) || mprotect(page, size, both);
		break;
	case 1:
		failed = madvise(page, size, place == OWN ? MADV_DONTNEED : MADV_REMOVE);
		break;
	case 2:
		/*
		 * A new mapping replaces the old one, because another thread's stack could use a
		 * hole.
		 */
		if (place == INHERITED)
			break;
		failed = mmap(page, size, PROT_NONE, fixed, -1, 0) != page;
		if (place == OWN)
			failed |= mmap(page, size, both, fixed, -1, 0) != page;
		else
			failed |= mmap(page, size, both, MAP_FIXED | MAP_SHARED, wild_memfd,
				       0) != page;
		break;
	case 3:
		failed = ftruncate(wild_memfd, 0) || ftruncate(wild_memfd, size);
		break;
	}
	pthread_mutex_unlock(&wild_lock);
	call->result = failed ? -errno : 0;
	if (failed)
		broken(w, "page", -errno, what);
}

static void some_steps_of_a_child(struct worker *w);

/*
 * Forks a child that inherits the contexts. The child uses its parent's context while the parent
 * waits.
 */
static void step_fork(struct worker *w)
{
	struct call *call = begin(w, "fork", 0, 0, 0);
	int status = -1;
	pid_t pid;

	__atomic_store_n(&w->record->forking, true, __ATOMIC_RELEASE);
	pid = fork();
	if (!pid) {
		some_steps_of_a_child(w);
		end_place(w);
		_exit(0);
	}
	if (pid > 0)
		TEMP_FAILURE_RETRY(waitpid(pid, &status, 0));
	__atomic_store_n(&w->record->forking, false, __ATOMIC_RELEASE);
	call->result = status;
	if (status)
		broken(w, "fork", pid, status);
}

/*
 * Runs in a child. The child arms waits, reports that it has armed them, and closes its context on
 * request.
 */
static void wait_to_end(int to_parent, uint32_t *word, int n)
{
	int fd = memwait_open(0), i;
	char byte = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 0; i < n; i++)
		mw_arm(fd, word, 0);
	i = write(to_parent, &byte, 1) == 1 && read(to_parent, &byte, 1) == 1;
	close(fd);
	_exit(!i);
}

/*
 * If a context is closed or its process is killed, no unread notify is lost while other waiters
 * exist. This is checked exactly, on a word that no other thread uses.
 */
static void step_pass_on(struct worker *w)
{
	uint32_t *word = (uint32_t *)(areas[INHERITED] + PASS_ON + w->number * 8);
	int n = 1 + draw(w) % BATCH, notified = draw(w) % (n + 1), sockets[2], next, ret, i;
	struct call *call = begin(w, "pass on", 0, n, notified);
	struct memwait_completion done[BATCH];
	bool kills = one_in(w, 2);
	pid_t pid;
	char byte;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		return broken(w, "socketpair", errno, 0);
	pid = fork();
	if (!pid)
		wait_to_end(sockets[1], word, n);
	if (pid < 0)
		return broken(w, "fork", errno, 0);
	TEMP_FAILURE_RETRY(read(sockets[0], &byte, 1));
	next = memwait_open(O_NONBLOCK);
	for (i = 0; i < n; i++)
		mw_arm(next, word, i);
	ret = mw_notify(w->fd, word, notified, MEMWAIT_SIZE_U32);
	if (kills)
		kill(pid, SIGKILL);
	else if (write(sockets[0], &byte, 1) != 1)
		broken(w, "write", errno, 0);
	TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));

	call->result = mw_read(next, done, BATCH);
	if (ret != notified || call->result != (notified ?: -EAGAIN))
		broken(w, "not passed on", call->result, notified);
	for (i = 0; i < call->result; i++) {
		if (done[i].user_data != (uint64_t)i)
			broken(w, "passed on to another waiter first", done[i].user_data, i);
	}
	/*
	 * No wait may stay pending, because another thread's child may have inherited the context.
	 */
	ret = mw_notify(w->fd, word, MEMWAIT_ALL, MEMWAIT_SIZE_U32);
	i = mw_read(next, done, BATCH);
	if (ret != n - notified || i != (ret ?: -EAGAIN))
		broken(w, "wrong number of notifies left for other waiters", ret, i);
	close(next);
	close(sockets[0]);
	close(sockets[1]);
}

/* Ends the process while its other threads run. */
static void step_end(struct worker *w)
{
	begin(w, "end", 0, 0, 0);
	switch (draw(w) % 4) {
	case 0:
		abort();
	case 1:
		execl("/bin/true", "true", NULL);
		break;
	case 2:
		raise(SIGKILL);
	}
	_exit(0);
}

static void step_to_an_end(struct worker *w)
{
	return one_in(w, 4) ? step_end(w) : step_wild(w);
}

/* A step and its relative frequency. */
struct share {
	unsigned int share;
	void (*step)(struct worker *w);
};

static void take_one_of(struct worker *w, const struct share *steps, unsigned int all)
{
	unsigned int n = draw(w) % all;

	for (; n >= steps->share; steps++)
		n -= steps->share;
	steps->step(w);
}

static void step_of_victim(struct worker *w)
{
	static const struct share steps[] = {
		{ 15, step_wait }, { 7, step_wait_any }, { 20, step_arm }, { 6, step_cancel },
		{ 8, step_read }, { 3, step_requeue }, { 2, step_poll }, { 2, step_close },
		{ 1, step_to_an_end },
	};

	take_one_of(w, steps, 64);
}

/*
 * Reads the notifies that a persistent wait has counted. Returns whether the wait may count more
 * notifies, which it cannot after its deadline.
 */
static bool read_watched(struct worker *w, bool cancelled)
{
	struct memwait_completion done;
	bool timed_out;
	int ret;

	do {
		ret = mw_read(w->fd, &done, 1);
	} while (ret == -EINTR);
	if (ret != 1) {
		broken(w, "read of a persistent wait", ret, 0);
		return false;
	}
	w->record->watched_oks += done.count;
	timed_out = done.result == MEMWAIT_TIMED_OUT;
	if (timed_out != !done.count ||
	    ((done.flags & MEMWAIT_MORE) && (cancelled || timed_out)))
		broken(w, "count and flags of a persistent wait", done.count, done.flags);
	w->record->timed_out += timed_out;
	return !timed_out;
}

/*
 * Performs a persistent wait from beginning to end, while other threads notify and requeue the
 * word.
 */
static void step_watch(struct worker *w)
{
	uint8_t word = draw(w) % (w->no_own_words ? OWN : PLACES) * KINDS + draw(w) % WILD;
	struct memwait_wait wait = random_wait(w, word);
	uint64_t end = in_ms(5), id;
	bool armed = true;
	int ret;

	/* The number of notifies that were counted before a process was killed is not known. */
	if (w->victim || w->child)
		return;
	wait.deadline = one_in(w, 2) ? MEMWAIT_FOREVER : in_ms(draw(w) % 4);
	ret = mw_async(w->fd, address(w, word), wait.expected, wait.deadline,
		       (wait.flags & ~MEMWAIT_CLOCK_REALTIME) | MEMWAIT_PERSISTENT, 0, &id);
	if (ret < 0)
		broken(w, "arm a persistent wait", ret, word);
	if (ret != MEMWAIT_PENDING)
		return;
	w->record->armed++;
	while (armed && phase() == RUN && now_ns(CLOCK_MONOTONIC) < end) {
		if (one_in(w, 3))
			step_notify(w);
		if (one_in(w, 2) && mw_readable(w->fd))
			armed = read_watched(w, false);
	}
	if (armed && !mw_cancel(w->fd, id)) {
		w->record->cancelled++;
		if (mw_readable(w->fd))
			read_watched(w, true);
		armed = false;
	}
	while (armed)
		armed = read_watched(w, false);
	if (mw_readable(w->fd))
		broken(w, "completion of an ended wait", word, 0);
}

static void step_fork_sometimes(struct worker *w)
{
	if (one_in(w, 4))
		step_fork(w);
}

static void step(struct worker *w)
{
	static const struct share steps[] = {
		{ 2, step_storm }, { 2, step_watch }, { 16, step_notify }, { 6, step_notify_many },
		{ 10, step_wait }, { 10, step_wait_any }, { 8, step_notify_wait },
		{ 8, step_requeue }, { 26, step_arm }, { 12, step_cancel }, { 14, step_read },
		{ 4, step_poll }, { 2, step_wild }, { 2, step_receive }, { 2, step_pass },
		{ 2, step_close }, { 1, step_pass_on }, { 1, step_fork_sometimes },
	};

	take_one_of(w, steps, 128);
}

static void some_steps_of_a_child(struct worker *w)
{
	static const struct share steps[] = {
		{ 1, step_notify }, { 1, step_wait }, { 1, step_wait_any }, { 1, step_requeue },
		{ 1, step_cancel }, { 1, step_read }, { 2, step_arm },
	};
	int n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	w->child = true;
	w->no_own_words = true;
	for (n = 0; n < KINDS; n++) {
		int strangers = mw_waiters(w->fd, address(w, OWN * KINDS + n), 0);

		/*
		 * A negative result is not an error, because the fork() may have happened while the
		 * page was inaccessible.
		 */
		if (strangers > 0)
			broken(w, "a new process has waiters", strangers, n);
	}
	for (n = 0; n < 12; n++)
		take_one_of(w, steps, 8);
}

#endif /* TORTURE_CALLS_TEST_H */
