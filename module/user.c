// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a user can make the kernel keep: counts, limits, and pins.
 *
 * Each resource is counted for the user that opened the context, and charged to the memory cgroup
 * of the thread that asks for it. A charge that is over the limit changes nothing, so that it
 * cannot make another one fail.
 *
 * A word of an async wait outlives the system call, and so does what its key names. A context pins
 * a file, or an mm_struct, once, however many of its waits are on words of it: files that were
 * closed count against no RLIMIT_NOFILE, and the mm_struct of a dead process against nothing. Of a
 * file it is the address_space that counts, as in the key; the file that came first stands for all
 * others of the same address_space. A requeue moves a wait to a word of the same owner only, so
 * that the wait keeps its pin.
 *
 * Lock order: queue->lock -> memwait_context.lock; queue->lock -> memwait_users.xa_lock.
 */
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "context.h"
#include "memwait.h"

unsigned long memwait_limits[MEMWAIT_RESOURCES] = {
	[MEMWAIT_WAITS] = 1UL << 20,
	[MEMWAIT_CONTEXTS] = 1UL << 14,
	[MEMWAIT_PINS] = 1UL << 14,
	[MEMWAIT_OWNERS] = 1UL << 18,
	[MEMWAIT_SPARES] = 1UL << 16,
};

static DEFINE_XARRAY(memwait_users);	/* uid -> struct memwait_user */

/*
 * The user that answers for the current thread. User namespaces give no fresh limits: in one that
 * was made by an ordinary user, it is that user. One that was made by root maps users that root has
 * given, and each of them counts.
 */
static kuid_t memwait_current_user(void)
{
	const struct user_namespace *ns;
	kuid_t uid = current_uid();

	for (ns = current_user_ns(); ns != &init_user_ns; ns = ns->parent) {
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			uid = ns->owner;
	}
	return uid;
}

/**
 * memwait_user_get() - find the user of the current thread
 *
 * Context: process context, may sleep.
 *
 * Return: the user, for memwait_user_put(); or %NULL: there is no memory.
 */
struct memwait_user *memwait_user_get(void)
{
	kuid_t uid = memwait_current_user();
	struct memwait_user *user, *new;

	/* Without the lock: it may take as long as the caller's memory cgroup has it. */
	new = kzalloc(sizeof(*new), MEMWAIT_GFP);
	if (!new)
		return NULL;
	new->uid = uid;
	refcount_set(&new->refs, 1);
	INIT_LIST_HEAD(&new->dead);

	xa_lock(&memwait_users);
	/* The table's own memory is not charged: other users are in it, too. */
	user = __xa_cmpxchg(&memwait_users, __kuid_val(uid), NULL, new, GFP_KERNEL);
	if (!user)
		swap(user, new);
	else if (!xa_is_err(user))
		refcount_inc(&user->refs);
	else
		user = NULL;
	xa_unlock(&memwait_users);
	kfree(new);
	return user;
}

/**
 * memwait_user_put() - give a user back
 * @user: from memwait_user_get()
 *
 * Context: any but interrupts.
 */
void memwait_user_put(struct memwait_user *user)
{
	enum memwait_resource i;

	if (!refcount_dec_and_lock(&user->refs, &memwait_users.xa_lock))
		return;
	__acquire(&memwait_users.xa_lock);	/* sparse cannot follow */
	__xa_erase(&memwait_users, __kuid_val(user->uid));
	xa_unlock(&memwait_users);
	for (i = 0; i < MEMWAIT_RESOURCES; i++)
		WARN_ON_ONCE(atomic_long_read(&user->used[i]));
	kfree(user);
}

static int memwait_pin_compare_owner(u64 owner, const struct rb_node *node)
{
	const struct memwait_pin *pin = rb_entry(node, struct memwait_pin, node);

	return owner < pin->owner ? -1 : owner > pin->owner;
}

static int memwait_pin_find_cmp(const void *key, const struct rb_node *node)
{
	return memwait_pin_compare_owner(*(const u64 *)key, node);
}

static int memwait_pin_add_cmp(struct rb_node *new, const struct rb_node *node)
{
	return memwait_pin_compare_owner(rb_entry(new, struct memwait_pin, node)->owner, node);
}

/* The pin of an owner that a context has, or %NULL. */
static struct memwait_pin *memwait_pin_find(struct memwait_context *context, u64 owner)
{
	lockdep_assert_held(&context->lock);
	return rb_entry_safe(rb_find(&owner, &context->pins, memwait_pin_find_cmp),
			     struct memwait_pin, node);
}

/* The pin is referred to by nothing, and in no tree. */
static void memwait_pin_free(struct memwait_pin *pin, struct memwait_context *context)
{
	if (pin->file)
		fput(pin->file);
	else
		mmdrop((struct mm_struct *)(unsigned long)pin->owner);
	memwait_user_uncharge(context->user, MEMWAIT_PINS, 1);
	kfree(pin);
}

/* For the first wait of a context on a word of its owner. Returns the pin, or an ERR_PTR(). */
static struct memwait_pin *memwait_pin_new(struct memwait_word *word,
					   struct memwait_context *context)
{
	struct memwait_pin *pin, *other = NULL;
	struct rb_node *node;

	if (!memwait_user_charge(context->user, MEMWAIT_PINS, 1))
		return ERR_PTR(-ENOSPC);
	pin = kmalloc(sizeof(*pin), MEMWAIT_GFP);
	if (!pin) {
		memwait_user_uncharge(context->user, MEMWAIT_PINS, 1);
		return ERR_PTR(-ENOMEM);
	}
	pin->owner = word->key.owner;
	pin->file = word->file;
	if (!pin->file)
		mmgrab(current->mm);
	refcount_set(&pin->refs, 1);

	spin_lock(&context->lock);
	node = rb_find_add(&pin->node, &context->pins, memwait_pin_add_cmp);
	if (node) {
		other = rb_entry(node, struct memwait_pin, node);
		refcount_inc(&other->refs);
	} else {
		context->nr_pins++;
	}
	spin_unlock(&context->lock);
	if (!other)
		return pin;

	memwait_pin_free(pin, context);
	return other;
}

/**
 * memwait_word_pin() - let a word outlive the system call that looked it up
 * @word: from memwait_word_get(), in the same task. On success it has a pin, for memwait_pin_put(),
 *	and no file any more
 * @context: of the async wait
 *
 * Context: process context, may sleep; takes the context's lock.
 *
 * Return: 0; -ENOSPC: over the user's limit; or -ENOMEM.
 */
int memwait_word_pin(struct memwait_word *word, struct memwait_context *context)
{
	struct memwait_pin *pin;

	spin_lock(&context->lock);
	pin = memwait_pin_find(context, word->key.owner);
	if (pin)
		refcount_inc(&pin->refs);
	spin_unlock(&context->lock);
	if (pin) {
		memwait_word_put(word);
	} else {
		pin = memwait_pin_new(word, context);
		if (IS_ERR(pin))
			return PTR_ERR(pin);
	}
	word->pin = pin;
	return 0;
}

/**
 * memwait_pin_put() - give a pin back
 * @pin: from memwait_word_pin()
 * @context: as there
 *
 * Context: process context; takes the context's lock.
 */
void memwait_pin_put(struct memwait_pin *pin, struct memwait_context *context)
{
	if (!refcount_dec_and_lock(&pin->refs, &context->lock))
		return;
	__acquire(&context->lock);	/* sparse cannot follow */
	rb_erase(&pin->node, &context->pins);
	context->nr_pins--;
	spin_unlock(&context->lock);
	memwait_pin_free(pin, context);
}

/**
 * memwait_context_free() - free a context whose last reference is gone
 * @context: closed; it has no waits and no pins
 *
 * Context: any but interrupts.
 */
void memwait_context_free(struct memwait_context *context)
{
	memwait_user_put(context->user);
	kfree(context);
}
