/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The library. Each file calls only files below it:
 *
 *	cond.c
 *	mutex.c, rwlock.c, channel.c
 *	sem.c, barrier.c, waitgroup.c, event.c
 *	users.c			callers within an object that is being destroyed
 *	gate.h			locks of either kind below; inline functions
 *	owner.c			owner words: locks that know their owner
 *	lock.c			lock words
 *	word.c			the program's own words
 *	object.h		kinds of objects, forms of functions; inline
 *	error.c			errors in words; the version
 *	loop.c			loops and operations
 *	device.c		the device: sleep, wake; owners, processes, deadlines
 *
 * Each file includes only headers of files below it, and the header of its own name.
 *
 * The file that changes a word describes the word's shared bits and invariants at its top.
 * MEMWAIT_INVARIANT() checks them.
 *
 * Death. A process can be killed at any instruction. A free lock, a pending post or an unread item
 * of a shared object must still reach a waiter (see also owner.c). Two rules ensure this:
 *
 *	memwait_change() changes a word and notifies in one system call. It is used wherever there
 *	may be sleepers.
 *
 *	Sleeps are MEMWAIT_OWNED: if a woken thread dies, the next waiter gets MEMWAIT_OWNER_DIED,
 *	and handles it like MEMWAIT_OK. The kernel watches only the thread that was woken last. So a
 *	woken thread that leaves something for another waiter wakes that waiter.
 *
 * Private objects need neither rule, because all their threads die together.
 *
 * Words are shared unless MEMWAIT_PRIVATE was passed to init. Each object stores this flag, because
 * the library cannot find out whether the object's memory is shared. A function that must not touch
 * the object after its atomic operation reads the flag first.
 *
 * Kinds. Each object has a word for its kind or flags, including MEMWAIT_PRIVATE, and a spare word;
 * an event, which is a single word, has four bits for them. If a bit is set that this library does
 * not know, the object belongs to a later library: EINVAL. Fast paths detect such a bit with their
 * test for the common kind. The rest of an object is padding. A library that uses the padding also
 * sets a bit of the kind, so no check of the padding is needed.
 *
 * A notify may reach a word whose object no longer exists, because a waiter that the change
 * released has unmapped it. EFAULT is then ignored. If the address is reused, a waiter there gets a
 * stray MEMWAIT_OK. So all waiters, here and in programs with their own words, recheck their word,
 * as with futex(2). A waiter of a fair lock cannot always tell a stray wake-up from a handover. It
 * therefore sleeps on a byte that no other object notifies; see lock.c.
 *
 * A notify counted for a waiter that does not use it passes to the next waiter. The kernel does
 * this when a thread dies within a wait. The library does it when a cancelled operation has
 * completed with MEMWAIT_OK or MEMWAIT_OWNER_DIED, and when a thread is cancelled in its sleep. It
 * is possible that no notify was counted for a cancelled thread; the extra wake-up is harmless.
 */
#ifndef MEMWAIT_INTERNAL_H
#define MEMWAIT_INTERNAL_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Only the functions of this header are exported. */
#pragma GCC visibility push(default)
#include "memwait.h"
#pragma GCC visibility pop

/* Processes share the words: no atomic may be built from a process-local lock. */
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64 bits are changed by one instruction");

/* Checked in debug builds, and in the simulation, which has its own definition. */
#if defined(MEMWAIT_DEBUG) && !defined(MEMWAIT_INVARIANT)
#undef NDEBUG
#include <assert.h>
#define MEMWAIT_INVARIANT(condition)	assert(condition)
#elif !defined(MEMWAIT_INVARIANT)
#define MEMWAIT_INVARIANT(condition)	((void)(0 && (condition)))
#endif

#endif /* MEMWAIT_INTERNAL_H */
