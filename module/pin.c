// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pins, which hold the files and address spaces of async waits.
 *
 * Each word of an async wait has a reference to a pin, which holds the file or mm_struct. A context
 * remembers, without references, the last pin of a file and the last pin of an mm_struct that it
 * has used. A wait on a word of the same space shares that pin; any other wait creates a new pin.
 * There are therefore no more pins than words that are waited for, and most contexts have one pin.
 * As in a key, a file is identified by its address_space: the pin of the first file also serves all
 * other files with that address_space. A requeue does not change the space, and therefore not the
 * pin of the wait. A context caches the memory of one freed pin for the next pin, because waits
 * that are armed and read one after another need a new pin each.
 *
 * A pin counts as MEMWAIT_PIN_WAITS waits of its user from its allocation until it is freed.
 *
 * A pin holds the path and inode, not the open file. Therefore locks, leases and write access end
 * when user space closes the file, but umount fails with EBUSY.
 *
 * Putting a path may take a long time: the last put of an unlinked file frees all its pages, or
 * sends a request to a FUSE daemon, which may never answer. Therefore a call collects unused pins,
 * and puts them at its end, without locks. umount succeeds once close(2), cancel or read has
 * returned. Kernel threads and dying threads leave pins of files to a work item. Each user has its
 * own work item, so that a user delays only its own pins. The workqueue is not WQ_MEM_RECLAIM,
 * because the work item, like delayed_fput(), runs code of any file system. That code may need
 * memory, and may wait for a workqueue that is not WQ_MEM_RECLAIM either.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>

#include "compat.h"
#include "context.h"

static struct workqueue_struct *memwait_put_queue;

static struct inode *memwait_pin_inode(const struct memwait_pin *pin)
{
	return ((struct address_space *)(unsigned long)(pin->space & ~MEMWAIT_KEY_SHARED))->host;
}

/* Takes a new pin's references. @file: the file of the word; %NULL for a private word. */
static void memwait_pin_take(struct memwait_pin *pin, const struct file *file)
{
	const struct path *user_path;

	if (!file) {
		mmgrab(current->mm);
		return;
	}
	ihold(memwait_pin_inode(pin));
	pin->path = file->f_path;
	path_get(&pin->path);
	user_path = file_user_path(file);
	pin->user_path = user_path == &file->f_path ? (struct path){} : *user_path;
	path_get(&pin->user_path);
}

/*
 * Releases a pin that has no references. Caches the pin's memory for the next pin of @context;
 * frees the memory if @context is NULL. Mounts are put last, because they hold the inode's file
 * system.
 */
static void memwait_pin_free(struct memwait_pin *pin, struct memwait_user *user,
			     struct memwait_context *context)
{
	if (pin->space & MEMWAIT_KEY_SHARED) {
		iput(memwait_pin_inode(pin));
		path_put(&pin->path);
		path_put(&pin->user_path);
	} else {
		mmdrop((struct mm_struct *)(unsigned long)pin->space);
	}
	memwait_user_uncharge(user, MEMWAIT_WAITS, MEMWAIT_PIN_WAITS);
	/*
	 * xchg() is a full barrier, as in memwait_pin_get(): this use of the memory ends before the
	 * next use begins.
	 */
	if (context)
		pin = xchg(&context->pins.cached, pin);
	kfree(pin);
}

static void memwait_pins_free(struct memwait_user *user, struct memwait_context *context,
			      struct llist_head *unused)
{
	struct memwait_pin *pin, *next;

	llist_for_each_entry_safe(pin, next, llist_del_all(unused), node) {
		memwait_pin_free(pin, user, context);
		cond_resched();
	}
}

/**
 * memwait_pin_work() - free pins of files that threads have left
 * @work: the user's work item, which has a reference to the user
 *
 * Context: the work item, process context.
 */
void memwait_pin_work(struct work_struct *work)
{
	struct memwait_user *user = container_of(work, struct memwait_user, put_pins);

	memwait_pins_free(user, NULL, &user->left_pins);
	memwait_user_put(user);
	module_put(THIS_MODULE);	/* memwait_pin_exit() waits for the work item to end */
}

/*
 * Leaves unused pins of files to their user's work item, and frees unused pins of address spaces.
 * The caller has a reference to the user. Does not wait for a file system.
 */
static void memwait_pins_leave(struct memwait_user *user, struct llist_head *unused)
{
	struct llist_node *first = NULL, *last = NULL;
	struct memwait_pin *pin, *next;

	llist_for_each_entry_safe(pin, next, llist_del_all(unused), node) {
		if (!(pin->space & MEMWAIT_KEY_SHARED)) {
			memwait_pin_free(pin, user, NULL);
		} else {
			if (last)
				last->next = &pin->node;
			else
				first = &pin->node;
			last = &pin->node;
		}
		cond_resched();
	}
	if (!first)
		return;
	llist_add_batch(first, last, &user->left_pins);

	/* A work item that is queued already has both references and will see the pins. */
	refcount_inc(&user->refs);
	__module_get(THIS_MODULE);
	if (!queue_work(memwait_put_queue, &user->put_pins)) {
		module_put(THIS_MODULE);
		memwait_user_put(user);
	}
}

/**
 * memwait_pins_put() - free pins that no wait uses
 * @context: context of the pins
 * @unused: from memwait_pin_put()
 *
 * A dying thread leaves the pins to a work item, because other processes may wait for descriptors
 * that the thread has yet to close. A kernel thread also leaves them to a work item.
 *
 * Context: process context. The function may sleep forever. Therefore the caller must hold no lock,
 * and must have done everything that other threads wait for.
 */
void memwait_pins_put(struct memwait_context *context, struct llist_head *unused)
{
	if (unlikely(current->flags & (PF_KTHREAD | PF_EXITING)))
		memwait_pins_leave(context->user, unused);
	else
		memwait_pins_free(context->user, context, unused);
}

/**
 * memwait_pin_get() - get a remembered or new pin for a word of an async wait
 * @context: context of the wait
 * @word: from memwait_word_get() in the same task
 *
 * If another thread creates a pin for the same space at the same time, there are two pins for that
 * space.
 *
 * Context: process context, may sleep; takes the context's lock.
 *
 * Return: a reference to the pin, for memwait_pin_put(); or an ERR_PTR(): -ENOSPC, -ENOMEM.
 */
struct memwait_pin *memwait_pin_get(struct memwait_context *context,
				    const struct memwait_word *word)
{
	const u64 space = word->key.space;
	struct memwait_pin *pin;

	/*
	 * A remembered pin has references, because the context forgets a pin under the lock under
	 * which the last reference is dropped.
	 */
	spin_lock(&context->lock);
	pin = context->pins.last[space & MEMWAIT_KEY_SHARED];
	if (pin && pin->space == space)
		refcount_inc(&pin->refs);
	else
		pin = NULL;
	spin_unlock(&context->lock);
	if (pin)
		return pin;

	if (!memwait_user_charge(context->user, MEMWAIT_WAITS, MEMWAIT_PIN_WAITS))
		return ERR_PTR(-ENOSPC);
	pin = xchg(&context->pins.cached, NULL) ?: kmalloc(sizeof(*pin), MEMWAIT_GFP);
	if (!pin) {
		memwait_user_uncharge(context->user, MEMWAIT_WAITS, MEMWAIT_PIN_WAITS);
		return ERR_PTR(-ENOMEM);
	}
	pin->space = space;
	memwait_pin_take(pin, word->file);
	refcount_set(&pin->refs, 1);
	atomic_inc(&context->pins.nr);
	return pin;
}

/**
 * memwait_pin_put() - drop a reference to a pin
 * @pin: the pin
 * @context: the pin's context
 * @unused: receives the pin if this was its last reference, for memwait_pins_put()
 *
 * Context: process context; takes the context's lock.
 */
void memwait_pin_put(struct memwait_pin *pin, struct memwait_context *context,
		     struct llist_head *unused)
{
	if (!refcount_dec_and_lock(&pin->refs, &context->lock))
		return;
	__acquire(&context->lock);	/* for sparse */
	if (context->pins.last[pin->space & MEMWAIT_KEY_SHARED] == pin)
		context->pins.last[pin->space & MEMWAIT_KEY_SHARED] = NULL;
	spin_unlock(&context->lock);
	atomic_dec(&context->pins.nr);
	llist_add(&pin->node, unused);
}

/**
 * memwait_pin_init() - create the workqueue for pins
 *
 * Context: process context, may sleep.
 *
 * Return: 0 or -ENOMEM.
 */
int __init memwait_pin_init(void)
{
	memwait_put_queue = alloc_workqueue("memwait_put", WQ_UNBOUND, 0);
	return memwait_put_queue ? 0 : -ENOMEM;
}

void memwait_pin_exit(void)
{
	destroy_workqueue(memwait_put_queue);
}
