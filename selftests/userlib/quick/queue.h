/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The queues of /dev/memwait, as a model in user space: the checks of arguments, joining, notify,
 * requeue, change, groups, persistent waits, deaths of owners, completions. The model has two
 * drivers, which include this file: device.c runs it in real threads and processes, and
 * ../relacy/device.c in simulated threads.
 *
 * Before the include, a driver defines the numbers of objects (CONTEXTS, THREADS, WAITS, ENTRIES,
 * WORDS, BUCKETS, COMPLETIONS), its own parts of the structures (struct driver_...), struct order,
 * and note(), a printf() for the description of a failed execution. After the include, it defines
 * the functions that are declared below.
 *
 * The model has one lock, between enter() and leave(). The lock makes the functions atomic. The
 * kernel's memory ordering is modelled separately, because the simulation must order exactly the
 * same; see the top of module/queue.c. If ORDERS_MEMORY is true, a struct order of each queue, wait
 * and completion orders the threads that use it, by order_release() and order_acquire().
 *
 * A wait first compares the word, without a lock and without ordering anything. After that it locks
 * the word's queue, compares again, and joins. A notify of a word without waiters does not take the
 * lock. Because of the two full barriers, such a notify is ordered before a later wait, and the
 * later waiter sees everything that preceded the notify. The converse does not hold: the notify is
 * not ordered after any wait. A notify of a word that has a waiter takes the lock. Therefore a wait
 * is ordered after all earlier notifies, and a notify is ordered after earlier waits if there is a
 * waiter. A woken waiter is ordered after the notify, and reading a completion after the event that
 * created it.
 *
 * In the kernel several words share a bucket and its lock, and a notify takes the lock if any of
 * these words has a waiter. This only adds order. Therefore each word has its own queue and lock in
 * this model.
 *
 * The top of module/identity.c explains which threads a queue watches. A waiter that receives a
 * death notification is ordered after everything that the dead thread did.
 */
#ifndef QUEUE_H
#define QUEUE_H

/* The address space or file of a word, and the word's address or offset. */
struct key {
	uint64_t space, device, offset;
};

struct wait;

/* A wait's position in the queue of one word. */
struct entry {
	struct entry *next, *previous;	/* in the queue of .word, oldest first */
	struct entry *of_wait;		/* the next entry of the same wait; or of the free list */
	struct word *word;
	struct wait *wait;
	uint32_t index;			/* in the group */
	bool names_owner;		/* the word has 64 bits */
};

/* A word with waiters. If the model orders memory, words remain. */
struct word {
	struct word *next;		/* in its bucket or the free list */
	struct key key;
	struct entry *first, *last;
	uint64_t watched;		/* the id whose death is reported, or 0 */
	struct order lock;
};

/* A thread that waits or has an id. */
struct thread {
	uint64_t id;			/* as an owner, or 0 */
	bool used;
	struct driver_thread driver;
};

struct wait {
	struct wait *next;		/* in the list of used waits, or the free list */
	struct entry *entries;		/* NULL: not queued */
	struct thread *thread;		/* of a blocked thread, otherwise NULL */
	struct context *context;	/* of an async wait */
	struct key woken_at;		/* the word whose notify has ended the wait */
	uint64_t deadline, user_data, id;
	uint32_t index;
	int outcome;
	bool realtime, owned, persistent;
	struct completion *done;	/* unread, of a persistent wait; or NULL */
	struct order woken;
	struct driver_wait driver;
};

struct completion {
	struct memwait_completion what;
	struct completion *next;	/* unread of the same context, or the free list */
	struct key key;
	struct wait *wait;		/* if persistent */
	struct order made;
};

struct context {
	bool used, ended, was_used;
	uint64_t id;			/* as an owner, or 0 */
	pid_t bound;			/* to this process, or 0 */
	struct completion *first, **last;
	struct driver_context driver;
};

struct shared {
	uint64_t last_wait, last_owner;
	struct wait *used_waits, *free_waits;
	struct word *free_words;
	struct entry *free_entries;
	struct completion *free_completions;
	struct word *buckets[BUCKETS];
	struct context contexts[CONTEXTS];
	struct thread threads[THREADS];
	struct wait waits[WAITS];
	struct word words[WORDS];
	struct entry entries[ENTRIES];
	struct completion completions[COMPLETIONS];
	struct driver_shared driver;
};

static struct shared *shared;

/* The functions of the driver. */

static void enter(void);
static void leave(void);

/* In the kernel other threads may run at this point. */
static void let_others_run(void);

static void order_release(struct order *order);
static void order_acquire(const struct order *order);

static void __attribute__((noreturn)) no_room(const char *what);

/*
 * These functions return -EFAULT where an access would be a fault. The lock is held, except for
 * check_access() and copy_in().
 */
static int key_of(struct key *key, uint64_t address, uint32_t flags);
static int copy_in(void *to, uint64_t address, size_t size);
static int load_word(uint64_t *value, uint64_t address, size_t size);
static int change_word(uint32_t *word, uint32_t operation, uint32_t operand, uint32_t *old);
static int check_access(uint64_t address, size_t size, bool write);

static uint64_t now(bool realtime);
static pid_t process(void);
static struct thread *current_thread(void);

/* If a thread has ended, the caller is ordered after everything that the thread did. */
static bool has_ended(struct thread *thread);

/* Sleeps until the wait has ended, and frees it. Drops the lock. */
static int sleep_on(struct wait *wait, uint32_t *index);
static void wake_up(struct wait *wait);

/* Waits until the thread, which is queued, has fallen asleep. Does not drop the lock. */
static void let_fall_asleep(struct wait *wait);

static void deadline_was_set(const struct wait *wait);
static void become_readable(struct context *context);

/* Queues. */

static bool same_object(const struct key *a, const struct key *b)
{
	return a->space == b->space && a->device == b->device;
}

static bool same(const struct key *a, const struct key *b)
{
	return same_object(a, b) && a->offset == b->offset;
}

static unsigned int bucket_of(const struct key *key)
{
	return (unsigned int)((key->space * 31 + key->offset / 4 + key->offset / 4096) % BUCKETS);
}

static struct word *find_word(const struct key *key)
{
	struct word *word = shared->buckets[bucket_of(key)];

	while (word && !same(&word->key, key))
		word = word->next;
	return word;
}

static struct word *need_word(const struct key *key)
{
	struct word **bucket = &shared->buckets[bucket_of(key)], *word = find_word(key);

	if (word)
		return word;
	word = shared->free_words;
	if (!word)
		no_room("words");
	shared->free_words = word->next;
	*word = (struct word){ .next = *bucket, .key = *key };
	*bucket = word;
	return word;
}

static void lock_queue(const struct key *key)
{
	if (ORDERS_MEMORY)
		order_acquire(&need_word(key)->lock);
}

static void unlock_queue(const struct key *key)
{
	if (ORDERS_MEMORY)
		order_release(&need_word(key)->lock);
}

static struct entry *first_owned(const struct word *word)
{
	struct entry *entry = word->first;

	while (entry && !entry->wait->owned)
		entry = entry->next;
	return entry;
}

/* A word without waiters is forgotten, and one without MEMWAIT_OWNED waiters watches no owner. */
static void put_word(struct word *word)
{
	struct word **where = &shared->buckets[bucket_of(&word->key)];

	if (!first_owned(word))
		word->watched = 0;
	if (word->first || ORDERS_MEMORY)
		return;
	while (*where != word)
		where = &(*where)->next;
	*where = word->next;
	word->next = shared->free_words;
	shared->free_words = word;
}

static void append(struct word *word, struct entry *entry)
{
	entry->word = word;
	entry->next = NULL;
	entry->previous = word->last;
	*(word->last ? &word->last->next : &word->first) = entry;
	word->last = entry;
}

static void detach(struct entry *entry)
{
	struct word *word = entry->word;

	*(entry->next ? &entry->next->previous : &word->last) = entry->previous;
	*(entry->previous ? &entry->previous->next : &word->first) = entry->next;
}

static struct wait *new_wait(void)
{
	struct wait *wait = shared->free_waits;

	if (!wait)
		return NULL;
	shared->free_waits = wait->next;
	*wait = (struct wait){ .next = shared->used_waits };
	shared->used_waits = wait;
	return wait;
}

static bool add_entry(struct wait *wait, const struct key *key, uint32_t flags, uint32_t index)
{
	struct entry *entry = shared->free_entries;

	if (!entry)
		return false;
	shared->free_entries = entry->of_wait;
	*entry = (struct entry){
		.of_wait = wait->entries, .wait = wait, .index = index,
		.names_owner = (flags & MEMWAIT_SIZE_MASK) == MEMWAIT_SIZE_U64,
	};
	wait->entries = entry;
	append(need_word(key), entry);
	return true;
}

/* Removes a wait from all its queues. */
static void withdraw(struct wait *wait)
{
	struct entry *entry;
	struct word *word;
	struct key key;

	while ((entry = wait->entries)) {
		word = entry->word;
		key = word->key;
		lock_queue(&key);
		detach(entry);
		put_word(word);
		unlock_queue(&key);
		wait->entries = entry->of_wait;
		entry->of_wait = shared->free_entries;
		shared->free_entries = entry;
	}
}

static void free_wait(struct wait *wait)
{
	struct wait **where = &shared->used_waits;

	withdraw(wait);
	if (wait->done)
		wait->done->wait = NULL;
	while (*where != wait)
		where = &(*where)->next;
	*where = wait->next;
	wait->next = shared->free_waits;
	shared->free_waits = wait;
}

static struct completion *complete(struct wait *wait, int outcome, uint32_t index,
				   const struct key *key)
{
	struct completion *done = shared->free_completions;
	struct context *context = wait->context;

	if (!done)
		no_room("completions");
	shared->free_completions = done->next;
	*done = (struct completion){
		.what = {
			.user_data = wait->user_data, .id = wait->id, .result = outcome,
			.index = index, .count = outcome == MEMWAIT_OK,
		},
		.key = *key,
	};
	order_release(&done->made);
	*context->last = done;
	context->last = &done->next;
	become_readable(context);
	return done;
}

static uint64_t identity_of(const struct wait *wait)
{
	return wait->thread ? wait->thread->id : wait->context->id;
}

/* Ends a wait, at one of its entries if a notify or a death is the reason. */
static void end_wait(struct wait *wait, struct entry *at, int outcome)
{
	struct key key = { 0 };
	uint32_t index = 0;

	if (at) {
		key = at->word->key;
		index = outcome == MEMWAIT_OK ? at->index : 0;
		if (wait->owned)
			at->word->watched = identity_of(wait);
	}
	withdraw(wait);
	if (wait->context) {
		complete(wait, outcome, index, &key);
		free_wait(wait);
		return;
	}
	wait->outcome = outcome;
	wait->index = index;
	wait->woken_at = key;
	order_release(&wait->woken);
	wake_up(wait);
}

/* Counts a notify of a persistent wait, which moves to the end of the queue. */
static void count_notify(struct entry *entry)
{
	struct wait *wait = entry->wait;
	struct word *word = entry->word;

	detach(entry);
	append(word, entry);
	if (wait->done) {
		wait->done->what.count++;
		order_release(&wait->done->made);
		return;
	}
	wait->done = complete(wait, MEMWAIT_OK, 0, &word->key);
	wait->done->what.flags = MEMWAIT_MORE;
	wait->done->wait = wait;
}

static int count_waiters(const struct key *key)
{
	const struct word *word = find_word(key);
	const struct entry *entry;
	int n = 0;

	for (entry = word ? word->first : NULL; entry; entry = entry->next)
		n++;
	return n;
}

/* Returns how many waiters were woken. Waiters that join during the call are not. */
static int wake(const struct key *key, uint32_t count)
{
	int n = 0, most = count_waiters(key);
	struct word *word;

	if (most)
		lock_queue(key);
	while (n < most && (uint32_t)n < count && (word = find_word(key))) {
		if (word->first->wait->persistent)
			count_notify(word->first);
		else
			end_wait(word->first->wait, word->first, MEMWAIT_OK);
		n++;
	}
	/* A later wait is ordered after a notify that found no waiter. */
	unlock_queue(key);
	note("notified %llx: %d", (unsigned long long)key->offset, n);
	return n;
}

/* Owners. */

/* Ids look random, as in the module: no test may rely on their order. */
static uint64_t new_id(void)
{
	uint64_t id;

	do
		id = ++shared->last_owner * 0x9e3779b97f4a7c15ULL & MEMWAIT_OWNER_MASK;
	while (!id);
	return id;
}

static bool is_dead(uint64_t id)
{
	int i;

	for (i = 0; i < CONTEXTS; i++)
		if (shared->contexts[i].used && shared->contexts[i].id == id)
			return shared->contexts[i].ended;
	for (i = 0; i < THREADS; i++)
		if (shared->threads[i].used && shared->threads[i].id == id)
			return has_ended(&shared->threads[i]);
	return true;
}

/* Reports a death to each word that watches the owner. @ended: the thread has ended by itself. */
static void report_death(uint64_t id, bool ended)
{
	struct word *word, *next;
	struct entry *entry;
	struct key key;
	int i;

	for (i = 0; id && i < BUCKETS; i++) {
		for (word = shared->buckets[i]; word; word = next) {
			next = word->next;
			if (word->watched != id)
				continue;
			key = word->key;
			lock_queue(&key);
			word->watched = 0;
			entry = first_owned(word);
			if (entry && (!ended || entry->names_owner))
				end_wait(entry->wait, entry, MEMWAIT_OWNER_DIED);
			unlock_queue(&key);
		}
	}
}

/* Ends the waits of an ended thread. A notify that it has not used wakes the next waiter. */
static void end_waits_of(struct thread *thread)
{
	struct wait *wait, *next;

	for (wait = shared->used_waits; wait; wait = next) {
		next = wait->next;
		if (wait->thread != thread)
			continue;
		if (!wait->entries && wait->outcome == MEMWAIT_OK)
			wake(&wait->woken_at, 1);
		free_wait(wait);
		/* The notify may have ended @next. */
		next = shared->used_waits;
	}
}

static void free_completion(struct completion *done)
{
	done->next = shared->free_completions;
	shared->free_completions = done;
}

/*
 * Ends a context. Its waits wake no waiter; completions that were not read pass their notifies on.
 */
static void end_context(struct context *context)
{
	struct completion *done;
	struct wait *wait, *next;

	if (context->ended)
		return;
	context->ended = true;
	for (wait = shared->used_waits; wait; wait = next) {
		next = wait->next;
		if (wait->context == context)
			free_wait(wait);
	}
	while ((done = context->first)) {
		context->first = done->next;
		if (done->what.result == MEMWAIT_OK)
			wake(&done->key, 1);
		free_completion(done);
	}
	context->last = &context->first;
	report_death(context->id, false);
}

static void release_context(struct context *context)
{
	end_context(context);
	context->used = false;
}

/* Initialises the free lists of zeroed memory. */
static void set_up_queues(void)
{
	int i;

	for (i = WAITS - 1; i >= 0; i--) {
		shared->waits[i].next = shared->free_waits;
		shared->free_waits = &shared->waits[i];
	}
	for (i = ENTRIES - 1; i >= 0; i--) {
		shared->entries[i].of_wait = shared->free_entries;
		shared->free_entries = &shared->entries[i];
	}
	for (i = WORDS - 1; i >= 0; i--) {
		shared->words[i].next = shared->free_words;
		shared->free_words = &shared->words[i];
	}
	for (i = COMPLETIONS - 1; i >= 0; i--)
		free_completion(&shared->completions[i]);
}

/* The calls. */

#define MOST_BYTES	128		/* at least the size of the largest argument */
#define WORD_FLAGS	(MEMWAIT_SIZE_MASK | MEMWAIT_PRIVATE)

static int check(uint64_t address, uint32_t flags, uint32_t allowed)
{
	return flags & ~allowed || address % (1U << (flags & MEMWAIT_SIZE_MASK)) ? -EINVAL : 0;
}

/* Returns 0 if the word has the expected value, MEMWAIT_NOT_EQUAL, or an error. */
static int compare(uint64_t address, uint64_t expected, uint32_t flags)
{
	const size_t size = 1U << (flags & MEMWAIT_SIZE_MASK);
	const uint64_t mask = size < 8 ? (1ULL << 8 * size) - 1 : UINT64_MAX;
	uint64_t value = 0;
	int ret = load_word(&value, address, size);

	note("%llx is compared with %llx: it is %llx", (unsigned long long)address,
	     (unsigned long long)(expected & mask), (unsigned long long)value);
	return ret ? ret : (value ^ expected) & mask ? MEMWAIT_NOT_EQUAL : 0;
}

static bool has_passed(const struct wait *wait)
{
	return wait->deadline != MEMWAIT_FOREVER && wait->deadline <= now(wait->realtime);
}

/* Returns the owner that the value of the word names, or 0. */
static uint64_t owner_in(const struct memwait_wait *wait)
{
	if (!(wait->flags & MEMWAIT_OWNED) ||
	    (wait->flags & MEMWAIT_SIZE_MASK) != MEMWAIT_SIZE_U64)
		return 0;
	return wait->expected & MEMWAIT_OWNER_MASK;
}

static bool names_dead_owner(const struct memwait_wait *wait)
{
	return owner_in(wait) && is_dead(owner_in(wait));
}

/* Compares all words. Returns 0 if the caller must wait. */
static int begin(struct wait *wait, const struct memwait_wait *waits, uint32_t nr, uint32_t allowed,
		 struct key *keys, uint32_t *index)
{
	uint32_t i;
	int ret;

	for (i = 0; i < nr; i++) {
		ret = waits[i].reserved ? -EINVAL : check(waits[i].addr, waits[i].flags, allowed);
		if (ret)
			return ret;
	}
	if (wait->owned && !identity_of(wait))
		return -EPERM;
	for (i = 0; i < nr; i++) {
		ret = key_of(&keys[i], waits[i].addr, waits[i].flags);
		if (ret)
			return ret;
	}
	for (i = 0; i < nr; i++) {
		ret = compare(waits[i].addr, waits[i].expected, waits[i].flags);
		if (ret == MEMWAIT_NOT_EQUAL)
			*index = i;
		if (ret)
			return ret;
	}
	if (names_dead_owner(waits))
		return MEMWAIT_OWNER_DIED;
	return has_passed(wait) ? MEMWAIT_TIMED_OUT : 0;
}

/* Joins the queues of all words. Returns 0 if the caller must wait. */
static int join(struct wait *wait, const struct memwait_wait *waits, uint32_t nr,
		const struct key *keys, uint32_t *index)
{
	uint32_t i;
	int ret;

	let_others_run();
	for (i = 0; i < nr; i++) {
		lock_queue(&keys[i]);
		ret = compare(waits[i].addr, waits[i].expected, waits[i].flags);
		if (ret == MEMWAIT_NOT_EQUAL)
			*index = i;
		else if (!ret && names_dead_owner(&waits[i]))
			ret = MEMWAIT_OWNER_DIED;
		else if (!ret && !add_entry(wait, &keys[i], waits[i].flags, i))
			ret = -ENOSPC;
		else if (!ret && owner_in(&waits[i]))
			wait->entries->word->watched = owner_in(&waits[i]);
		unlock_queue(&keys[i]);
		if (ret)
			return ret;
	}
	if (wait->deadline != MEMWAIT_FOREVER)
		deadline_was_set(wait);
	return 0;
}

static int wait_thread(const struct memwait_wait *waits, uint32_t nr, uint64_t deadline,
		       uint32_t flags, uint32_t *index)
{
	struct key keys[MEMWAIT_GROUP_MAX];
	struct wait *wait;
	int ret;

	enter();
	wait = new_wait();
	if (!wait)
		no_room("waits");
	wait->thread = current_thread();
	wait->deadline = deadline;
	wait->realtime = flags & MEMWAIT_CLOCK_REALTIME;
	wait->owned = flags & MEMWAIT_OWNED;
	ret = begin(wait, waits, nr, WORD_FLAGS | MEMWAIT_CLOCK_REALTIME | MEMWAIT_OWNED, keys,
		    index);
	if (!ret)
		ret = join(wait, waits, nr, keys, index);
	if (!ret)
		return sleep_on(wait, index);
	free_wait(wait);
	leave();
	return ret;
}

static int wait_one(const struct memwait_wait *wait)
{
	uint32_t index;

	return wait_thread(wait, 1, wait->deadline, wait->flags, &index);
}

static int check_group(const struct memwait_wait_any *any, uint32_t allowed)
{
	return any->flags & ~allowed || any->reserved || !any->count ||
	       any->count > MEMWAIT_GROUP_MAX ? -EINVAL : 0;
}

static int wait_any(struct memwait_wait_any *any)
{
	struct memwait_wait waits[MEMWAIT_GROUP_MAX];
	uint32_t index = any->index, i;
	int ret;

	ret = check_group(any, MEMWAIT_CLOCK_REALTIME);
	if (ret)
		return ret;
	if (copy_in(waits, any->waits, any->count * sizeof(waits[0])))
		return -EFAULT;
	for (i = 0; i < any->count; i++)
		if (waits[i].flags & ~WORD_FLAGS)
			return -EINVAL;
	ret = wait_thread(waits, any->count, any->deadline, any->flags, &index);
	any->index = index;
	return ret;
}

static int notify(const struct memwait_notify *notify)
{
	struct key key;
	int ret = check(notify->addr, notify->flags, WORD_FLAGS);

	if (ret)
		return ret;
	enter();
	ret = key_of(&key, notify->addr, notify->flags);
	if (!ret)
		ret = wake(&key, notify->count);
	leave();
	return ret;
}

static int waiters(const struct memwait_notify *notify)
{
	struct entry *entry;
	struct word *word;
	struct key key;
	int n = 0;
	int ret = notify->count ? -EINVAL : check(notify->addr, notify->flags, WORD_FLAGS);

	if (ret)
		return ret;
	enter();
	ret = key_of(&key, notify->addr, notify->flags);
	if (!ret) {
		/* The kernel locks the bucket even if the word has no waiters. */
		lock_queue(&key);
		word = find_word(&key);
		for (entry = word ? word->first : NULL; entry; entry = entry->next) {
			if (entry->wait->thread)
				let_fall_asleep(entry->wait);
			n++;
		}
		unlock_queue(&key);
	}
	leave();
	return ret ? ret : n;
}

static int change_notify(struct memwait_change *change)
{
	const bool if_none_woken = change->operation & MEMWAIT_CHANGE_IF_NONE_WOKEN;
	const uint32_t operation = change->operation & ~MEMWAIT_CHANGE_IF_NONE_WOKEN;
	const uint32_t size = change->notify.flags & MEMWAIT_SIZE_MASK;
	uint32_t *word = (void *)(uintptr_t)(change->notify.addr & ~3ULL);
	struct key key;
	int ret = check(change->notify.addr, change->notify.flags, WORD_FLAGS), n = 0;

	if (ret || operation > MEMWAIT_CHANGE_XOR || change->reserved ||
	    (if_none_woken ? size > MEMWAIT_SIZE_U32 : size != MEMWAIT_SIZE_U32))
		return -EINVAL;
	enter();
	change->old = 0;
	ret = key_of(&key, change->notify.addr, change->notify.flags);
	if (!ret && if_none_woken) {
		lock_queue(&key);
		n = wake(&key, change->notify.count);
		if (!n)
			ret = change_word(word, operation, change->operand, &change->old);
		unlock_queue(&key);
	} else if (!ret) {
		ret = change_word(word, operation, change->operand, &change->old);
		let_others_run();
		if (!ret && change->notify.count)
			n = wake(&key, change->notify.count);
	}
	leave();
	return ret ? ret : n;
}

static int requeue(struct memwait_requeue *requeue)
{
	struct word *source, *target;
	struct entry *entry, *next;
	struct key from, to;
	int ret;

	ret = requeue->reserved ? -EINVAL : check(requeue->addr, requeue->flags, WORD_FLAGS);
	if (!ret)
		ret = check(requeue->target, requeue->flags, WORD_FLAGS);
	if (ret)
		return ret;
	requeue->woken = 0;
	requeue->moved = 0;
	enter();
	ret = key_of(&from, requeue->addr, requeue->flags);
	if (!ret)
		ret = key_of(&to, requeue->target, requeue->flags);
	if (!ret && !same_object(&from, &to))
		ret = -EXDEV;
	if (!ret) {
		lock_queue(&from);
		lock_queue(&to);
		ret = compare(requeue->addr, requeue->expected, requeue->flags);
		requeue->woken = ret ? 0 : (uint32_t)wake(&from, requeue->count);
		source = ret ? NULL : find_word(&from);
		for (entry = source ? source->first : NULL;
		     entry && requeue->moved < requeue->move; entry = next) {
			next = entry->next;
			if (entry->wait->persistent)
				continue;
			requeue->moved++;
			if (same(&from, &to))
				continue;
			target = need_word(&to);
			detach(entry);
			append(target, entry);
		}
		if (source)
			put_word(source);
		unlock_queue(&from);
		unlock_queue(&to);
	}
	leave();
	return ret;
}

static int notify_wait(struct memwait_notify_wait *both)
{
	int ret;

	if (both->state > MEMWAIT_NOTIFIED || both->wait.reserved)
		return -EINVAL;
	ret = check(both->wait.addr, both->wait.flags,
		    WORD_FLAGS | MEMWAIT_CLOCK_REALTIME | MEMWAIT_OWNED);
	if (!ret)
		ret = check(both->notify.addr, both->notify.flags, WORD_FLAGS);
	if (ret)
		return ret;
	if (!both->state) {
		ret = check_access(both->wait.addr, 1U << (both->wait.flags & MEMWAIT_SIZE_MASK),
				   false);
		if (!ret)
			ret = notify(&both->notify);
		if (ret < 0)
			return ret;
		both->notified = (uint32_t)ret;
		let_others_run();
	}
	both->state = 0;
	ret = wait_one(&both->wait);
	if (ret == -EINTR)
		both->state = MEMWAIT_NOTIFIED;
	return ret;
}

static int notify_many(const struct memwait_notify_many *many)
{
	struct memwait_notify one;
	uint32_t i;
	int ret;

	if (many->flags || many->count > INT32_MAX)
		return -EINVAL;
	for (i = 0; i < many->count; i++) {
		let_others_run();
		ret = copy_in(&one, many->notifies + i * sizeof(one), sizeof(one));
		if (!ret)
			ret = notify(&one);
		if (ret < 0)
			return i ? (int)i : ret;
		if (many->woken)
			((uint32_t *)(uintptr_t)many->woken)[i] = (uint32_t)ret;
	}
	return (int)i;
}

static int may_use(struct context *context)
{
	if (context->ended || (context->bound && context->bound != process()))
		return -EPERM;
	context->was_used = true;
	return 0;
}

static int owner(struct context *context, struct memwait_owner *owner)
{
	const uint32_t bind = MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND;
	struct thread *thread;
	int ret = 0;

	if (owner->reserved || (owner->flags & ~bind && owner->flags != MEMWAIT_OWNER_EXIT) ||
	    owner->flags == MEMWAIT_OWNER_BIND)
		return -EINVAL;
	enter();
	if (owner->flags & MEMWAIT_OWNER_CONTEXT) {
		if (owner->flags & MEMWAIT_OWNER_BIND && !context->bound) {
			if (context->was_used || context->id)
				ret = -EBUSY;
			else
				context->bound = process();
		} else if (owner->flags & MEMWAIT_OWNER_BIND) {
			ret = may_use(context);
		}
		if (!ret && !context->id)
			context->id = new_id();
		owner->id = context->id;
	} else {
		thread = current_thread();
		if (!thread->id && owner->flags != MEMWAIT_OWNER_EXIT)
			thread->id = new_id();
		owner->id = thread->id;
		if (owner->flags == MEMWAIT_OWNER_EXIT) {
			thread->id = 0;
			report_death(owner->id, true);
		}
	}
	leave();
	return ret;
}

static void arm(struct context *context, struct memwait_async *async)
{
	const bool group = async->wait.flags & MEMWAIT_GROUP;
	const uint32_t allowed = group ? WORD_FLAGS : WORD_FLAGS | MEMWAIT_CLOCK_REALTIME |
				 MEMWAIT_OWNED | MEMWAIT_PERSISTENT;
	struct memwait_wait waits[MEMWAIT_GROUP_MAX];
	struct key keys[MEMWAIT_GROUP_MAX];
	struct wait *wait;
	uint32_t nr = 1, index;
	int ret = async->reserved ? -EINVAL : 0;

	async->id = 0;
	waits[0] = async->wait;
	if (!ret && group) {
		nr = async->any.count;
		ret = check_group(&async->any, MEMWAIT_GROUP | MEMWAIT_CLOCK_REALTIME);
		if (!ret)
			ret = copy_in(waits, async->any.waits, nr * sizeof(waits[0]));
	} else if (async->wait.flags & MEMWAIT_OWNED && async->wait.flags & MEMWAIT_PERSISTENT) {
		ret = -EINVAL;
	}
	wait = ret ? NULL : new_wait();
	if (!wait) {
		async->result = ret ? ret : -ENOSPC;
		return;
	}
	wait->context = context;
	wait->deadline = async->wait.deadline;
	wait->realtime = async->wait.flags & MEMWAIT_CLOCK_REALTIME;
	wait->owned = async->wait.flags & MEMWAIT_OWNED;
	wait->persistent = async->wait.flags & MEMWAIT_PERSISTENT;
	wait->user_data = async->user_data;
	wait->id = ++shared->last_wait;
	ret = begin(wait, waits, nr, allowed, keys, &index);
	if (!ret)
		ret = join(wait, waits, nr, keys, &index);
	if (ret == MEMWAIT_NOT_EQUAL && group)
		async->any.index = index;
	if (ret) {
		free_wait(wait);
		async->result = ret;
		return;
	}
	async->id = wait->id;
	async->result = MEMWAIT_PENDING;
}

static int wait_async(struct context *context, const struct memwait_wait_async *batch)
{
	struct memwait_async async;
	uint32_t i;
	int ret;

	if (batch->entry_size != sizeof(async) || batch->count > INT32_MAX)
		return -EINVAL;
	enter();
	ret = may_use(context);
	for (i = 0; !ret && i < batch->count; i++) {
		ret = copy_in(&async, batch->waits + i * sizeof(async), sizeof(async));
		if (ret)
			break;
		arm(context, &async);
		((struct memwait_async *)(uintptr_t)batch->waits)[i] = async;
	}
	leave();
	return i ? (int)i : ret;
}

static int cancel(struct context *context, const struct memwait_cancel *cancel)
{
	struct wait *wait;
	int ret;

	enter();
	ret = may_use(context);
	if (!ret && (cancel->flags || cancel->reserved))
		ret = -EINVAL;
	if (!ret) {
		wait = shared->used_waits;
		while (wait && (wait->context != context || wait->id != cancel->id))
			wait = wait->next;
		if (wait && wait->done)
			wait->done->what.flags = 0;
		if (wait)
			free_wait(wait);
		else
			ret = -ENOENT;
	}
	leave();
	return ret;
}

/* Moves unread completions to @to. Called with the lock held. */
static size_t take_completions(struct context *context, struct memwait_completion *to, size_t most)
{
	struct completion *done;
	size_t n = 0;

	while (n < most && (done = context->first)) {
		order_acquire(&done->made);
		to[n++] = done->what;
		if (done->wait)
			done->wait->done = NULL;
		context->first = done->next;
		if (!context->first)
			context->last = &context->first;
		free_completion(done);
	}
	return n;
}

static int info(struct memwait_info *info)
{
	const struct wait *wait;
	int i;

	*info = (struct memwait_info){
		.features = MEMWAIT_FEATURE_WAIT_U64 | MEMWAIT_FEATURE_OWNERS,
		.max_group = MEMWAIT_GROUP_MAX, .max_user_waits = WAITS,
		.max_user_contexts = CONTEXTS, .max_user_owners = THREADS,
	};
	enter();
	for (wait = shared->used_waits; wait; wait = wait->next)
		info->user_waits += !!wait->context;
	for (i = 0; i < CONTEXTS; i++) {
		const struct completion *done;

		info->user_contexts += shared->contexts[i].used;
		info->user_owners += shared->contexts[i].used && shared->contexts[i].id;
		for (done = shared->contexts[i].first; done; done = done->next)
			info->user_waits += !done->wait;
	}
	for (i = 0; i < THREADS; i++)
		info->user_owners += shared->threads[i].used && shared->threads[i].id;
	leave();
	return 0;
}

static int device_call(struct context *context, unsigned long command, void *argument)
{
	int ret;

	if (_IOC_TYPE(command) != MEMWAIT_IOC_MAGIC || _IOC_SIZE(command) > MOST_BYTES)
		return -ENOTTY;
	ret = check_access((uintptr_t)argument, _IOC_SIZE(command), _IOC_DIR(command) & _IOC_READ);
	if (ret)
		return ret;
	switch (command) {
	case MEMWAIT_IOC_INFO:
		return info(argument);
	case MEMWAIT_IOC_WAIT:
		return wait_one(argument);
	case MEMWAIT_IOC_WAIT_ANY:
		return wait_any(argument);
	case MEMWAIT_IOC_NOTIFY:
		return notify(argument);
	case MEMWAIT_IOC_NOTIFY_MANY:
		return notify_many(argument);
	case MEMWAIT_IOC_WAITERS:
		return waiters(argument);
	case MEMWAIT_IOC_NOTIFY_WAIT:
		return notify_wait(argument);
	case MEMWAIT_IOC_REQUEUE:
		return requeue(argument);
	case MEMWAIT_IOC_CHANGE_NOTIFY:
		return change_notify(argument);
	case MEMWAIT_IOC_OWNER:
		return owner(context, argument);
	case MEMWAIT_IOC_WAIT_ASYNC:
		return wait_async(context, argument);
	case MEMWAIT_IOC_CANCEL:
		return cancel(context, argument);
	default:
		return -ENOTTY;
	}
}

static int result(int ret)
{
	if (ret >= 0)
		return ret;
	errno = -ret;
	return -1;
}

#endif /* QUEUE_H */
