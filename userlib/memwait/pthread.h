/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Ports a pthreads program to libmemwait: include this header after all others, or with the
 * compiler option -include, and build with the flags that pkg-config memwait-pthread prints. See
 * memwait_pthread(7) for each name and each difference.
 *
 * Mutexes, condition variables, read-write locks, barriers and semaphores become libmemwait's.
 * Attribute objects, threads, keys and spin locks remain the C library's. In C++, std::mutex and
 * similar classes do not change either.
 *
 * Functions return the results that POSIX specifies. If a lock or a wait fails for a reason that
 * POSIX does not know, such as a missing device, the process is aborted. Therefore even a program
 * that ignores results never gets past a lock that it does not hold.
 */
#ifndef MEMWAIT_PTHREAD_H
#define MEMWAIT_PTHREAD_H

/*
 * The headers of the C++ library use the C library's names: include these headers before the names
 * change.
 */
#if defined(__cplusplus) && __cplusplus < 201103L
#include <fstream>
#ifdef __GLIBCXX__
#include <ext/concurrence.h>
#endif
#elif defined(__cplusplus)
#include <condition_variable>
#include <mutex>
#if __cplusplus >= 201402L
#include <shared_mutex>
#endif
#if __cplusplus >= 202002L
#include <semaphore>
#endif
#endif

#include <pthread.h>
#include <semaphore.h>

#include <memwait.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The POSIX names below are defined as these functions. Programs use the POSIX names. */

/* Priority protocols fail with ENOTSUP. */
int memwait_pthread_mutexattr_setprotocol(pthread_mutexattr_t *attr, int protocol);
int memwait_pthread_mutex_getprioceiling(const memwait_mutex_t *mutex, int *ceiling);
int memwait_pthread_mutex_setprioceiling(memwait_mutex_t *mutex, int ceiling, int *old);

int memwait_pthread_mutex_init(memwait_mutex_t *mutex, const pthread_mutexattr_t *attr);
int memwait_pthread_mutex_lock(memwait_mutex_t *mutex);
int memwait_pthread_mutex_trylock(memwait_mutex_t *mutex);
int memwait_pthread_mutex_timedlock(memwait_mutex_t *mutex, const struct timespec *abstime);
int memwait_pthread_mutex_clocklock(memwait_mutex_t *mutex, clockid_t clock,
				    const struct timespec *abstime);

int memwait_pthread_cond_init(memwait_cond_t *cond, const pthread_condattr_t *attr);
int memwait_pthread_cond_wait(memwait_cond_t *cond, memwait_mutex_t *mutex);
int memwait_pthread_cond_timedwait(memwait_cond_t *cond, memwait_mutex_t *mutex,
				   const struct timespec *abstime);
int memwait_pthread_cond_clockwait(memwait_cond_t *cond, memwait_mutex_t *mutex, clockid_t clock,
				   const struct timespec *abstime);

/* In old language modes the C library's header declares no read-write locks and barriers. */
#ifdef PTHREAD_RWLOCK_INITIALIZER
int memwait_pthread_rwlock_init(memwait_rwlock_t *rwlock, const pthread_rwlockattr_t *attr);
#endif
int memwait_pthread_rwlock_rdlock(memwait_rwlock_t *rwlock);
int memwait_pthread_rwlock_tryrdlock(memwait_rwlock_t *rwlock);
int memwait_pthread_rwlock_timedrdlock(memwait_rwlock_t *rwlock, const struct timespec *abstime);
int memwait_pthread_rwlock_clockrdlock(memwait_rwlock_t *rwlock, clockid_t clock,
				       const struct timespec *abstime);
int memwait_pthread_rwlock_wrlock(memwait_rwlock_t *rwlock);
int memwait_pthread_rwlock_trywrlock(memwait_rwlock_t *rwlock);
int memwait_pthread_rwlock_timedwrlock(memwait_rwlock_t *rwlock, const struct timespec *abstime);
int memwait_pthread_rwlock_clockwrlock(memwait_rwlock_t *rwlock, clockid_t clock,
				       const struct timespec *abstime);

#ifdef PTHREAD_BARRIER_SERIAL_THREAD
int memwait_pthread_barrier_init(memwait_barrier_t *barrier, const pthread_barrierattr_t *attr,
				 unsigned int count);
#endif
int memwait_pthread_barrier_wait(memwait_barrier_t *barrier);

/* These return -1 and set errno on errors. */
int memwait_pthread_sem_init(memwait_sem_t *sem, int pshared, unsigned int value);
int memwait_pthread_sem_destroy(memwait_sem_t *sem);
int memwait_pthread_sem_wait(memwait_sem_t *sem);
int memwait_pthread_sem_trywait(memwait_sem_t *sem);
int memwait_pthread_sem_timedwait(memwait_sem_t *sem, const struct timespec *abstime);
int memwait_pthread_sem_clockwait(memwait_sem_t *sem, clockid_t clock,
				  const struct timespec *abstime);
int memwait_pthread_sem_post(memwait_sem_t *sem);
int memwait_pthread_sem_getvalue(memwait_sem_t *sem, int *value);
memwait_sem_t *memwait_pthread_sem_open(const char *name, int flags, ...);
int memwait_pthread_sem_close(memwait_sem_t *sem);
int memwait_pthread_sem_unlink(const char *name);

#ifdef __cplusplus
}
#endif

/* The library's own source uses both sets of names. */
#ifndef MEMWAIT_PTHREAD_NO_NAMES

#undef PTHREAD_MUTEX_INITIALIZER
#undef PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP
#undef PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP
#undef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
#undef PTHREAD_COND_INITIALIZER
#undef PTHREAD_RWLOCK_INITIALIZER
#undef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#undef SEM_VALUE_MAX
#undef SEM_FAILED

#define PTHREAD_MUTEX_INITIALIZER	MEMWAIT_MUTEX_INIT_KIND(MEMWAIT_PRIVATE)
#define PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP						\
	MEMWAIT_MUTEX_INIT_KIND(MEMWAIT_PRIVATE | MEMWAIT_MUTEX_RECURSIVE)
#define PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP						\
	MEMWAIT_MUTEX_INIT_KIND(MEMWAIT_PRIVATE | MEMWAIT_MUTEX_ERRORCHECK)
#define PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP	PTHREAD_MUTEX_INITIALIZER
#define PTHREAD_COND_INITIALIZER	MEMWAIT_COND_INIT_FLAGS(MEMWAIT_PRIVATE)
#define PTHREAD_RWLOCK_INITIALIZER	MEMWAIT_RWLOCK_INIT_KIND(MEMWAIT_PRIVATE)
#define PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP				\
	MEMWAIT_RWLOCK_INIT_KIND(MEMWAIT_PRIVATE | MEMWAIT_RWLOCK_PREFER_WRITER)
#define SEM_VALUE_MAX			MEMWAIT_SEM_VALUE_MAX
#define SEM_FAILED			((memwait_sem_t *)0)

#define pthread_mutex_t			memwait_mutex_t
#define pthread_cond_t			memwait_cond_t
#define pthread_rwlock_t		memwait_rwlock_t
#define pthread_barrier_t		memwait_barrier_t
#define sem_t				memwait_sem_t

#define pthread_mutexattr_setprotocol	memwait_pthread_mutexattr_setprotocol
#define pthread_mutex_getprioceiling	memwait_pthread_mutex_getprioceiling
#define pthread_mutex_setprioceiling	memwait_pthread_mutex_setprioceiling

#define pthread_mutex_init		memwait_pthread_mutex_init
#define pthread_mutex_destroy		memwait_mutex_destroy
#define pthread_mutex_lock		memwait_pthread_mutex_lock
#define pthread_mutex_trylock		memwait_pthread_mutex_trylock
#define pthread_mutex_timedlock		memwait_pthread_mutex_timedlock
#define pthread_mutex_clocklock		memwait_pthread_mutex_clocklock
#define pthread_mutex_unlock		memwait_mutex_unlock
#define pthread_mutex_consistent	memwait_mutex_consistent
#define pthread_mutex_consistent_np	memwait_mutex_consistent

#define pthread_cond_init		memwait_pthread_cond_init
#define pthread_cond_destroy		memwait_cond_destroy
#define pthread_cond_wait		memwait_pthread_cond_wait
#define pthread_cond_timedwait		memwait_pthread_cond_timedwait
#define pthread_cond_clockwait		memwait_pthread_cond_clockwait
#define pthread_cond_signal		memwait_cond_signal
#define pthread_cond_broadcast		memwait_cond_broadcast

#define pthread_rwlock_init		memwait_pthread_rwlock_init
#define pthread_rwlock_destroy		memwait_rwlock_destroy
#define pthread_rwlock_rdlock		memwait_pthread_rwlock_rdlock
#define pthread_rwlock_tryrdlock	memwait_pthread_rwlock_tryrdlock
#define pthread_rwlock_timedrdlock	memwait_pthread_rwlock_timedrdlock
#define pthread_rwlock_clockrdlock	memwait_pthread_rwlock_clockrdlock
#define pthread_rwlock_wrlock		memwait_pthread_rwlock_wrlock
#define pthread_rwlock_trywrlock	memwait_pthread_rwlock_trywrlock
#define pthread_rwlock_timedwrlock	memwait_pthread_rwlock_timedwrlock
#define pthread_rwlock_clockwrlock	memwait_pthread_rwlock_clockwrlock
#define pthread_rwlock_unlock		memwait_rwlock_unlock

#define pthread_barrier_init		memwait_pthread_barrier_init
#define pthread_barrier_destroy		memwait_barrier_destroy
#define pthread_barrier_wait		memwait_pthread_barrier_wait

#define sem_init			memwait_pthread_sem_init
#define sem_destroy			memwait_pthread_sem_destroy
#define sem_wait			memwait_pthread_sem_wait
#define sem_trywait			memwait_pthread_sem_trywait
#define sem_timedwait			memwait_pthread_sem_timedwait
#define sem_clockwait			memwait_pthread_sem_clockwait
#define sem_post			memwait_pthread_sem_post
#define sem_getvalue			memwait_pthread_sem_getvalue
#define sem_open			memwait_pthread_sem_open
#define sem_close			memwait_pthread_sem_close
#define sem_unlink			memwait_pthread_sem_unlink

#endif /* MEMWAIT_PTHREAD_NO_NAMES */

#endif /* MEMWAIT_PTHREAD_H */
