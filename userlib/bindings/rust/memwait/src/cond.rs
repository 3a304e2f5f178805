// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, Error};
use crate::memory::{Ref, Shareable};
use crate::mutex::{guarded, Mutex, MutexGuard, Place, TOKEN};
use crate::operation::{Operation, Wait};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::os::raw::{c_int, c_uint};

/// A condition variable, for threads and futures with a [`Mutex`](crate::Mutex) or a
/// [`RobustMutex`](crate::RobustMutex). A wait may end without a notify: check the condition again.
/// Its layout is that of C's `memwait_cond_t`.
#[repr(transparent)]
pub struct Condvar {
    raw: UnsafeCell<memwait_cond_t>,
}

// SAFETY: any thread may call the condition variable's functions.
unsafe impl Sync for Condvar {}
// SAFETY: it has the layout of the C type.
unsafe impl Shareable for Condvar {}

impl Condvar {
    /// A condition variable without waiters.
    #[must_use]
    pub const fn new() -> Condvar {
        Condvar {
            raw: UnsafeCell::new(memwait_cond_t { reserved: [0; 12] }),
        }
    }

    /// Only this process uses the condition variable, which costs less.
    #[must_use]
    pub fn private(mut self) -> Condvar {
        self.raw.get_mut().reserved[4] = MEMWAIT_PRIVATE;
        self
    }

    /// Unlocks the mutex, waits, and locks the mutex again. If an error is returned, the guard no
    /// longer exists, and the mutex is unlocked.
    pub fn wait<T, P: Place<T>>(
        &self,
        guard: MutexGuard<T, P>,
    ) -> Result<MutexGuard<T, P>, P::Failure> {
        // SAFETY: both are valid, and the mutex is locked.
        let err = unsafe { memwait_cond_wait(self.raw.get(), guard.raw()) };

        after(guard.into_place(), err, is_unable(err)).map(|(guard, _)| guard)
    }

    /// Like [`wait`](Condvar::wait), with a deadline. Also returns whether the deadline has passed.
    #[allow(clippy::type_complexity)]
    pub fn wait_until<T, P: Place<T>>(
        &self,
        guard: MutexGuard<T, P>,
        deadline: impl Into<Deadline>,
    ) -> Result<(MutexGuard<T, P>, bool), P::Failure> {
        let time = deadline.into();
        // SAFETY: both are valid, and the mutex is locked.
        let err =
            unsafe { memwait_cond_clockwait(self.raw.get(), guard.raw(), time.clock, &time.time) };

        after(guard.into_place(), err, is_unable(err))
    }

    /// Wakes the oldest waiter.
    pub fn notify_one(&self) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_cond_signal(self.raw.get()) })
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_cond_broadcast(self.raw.get()) })
    }

    /// Wakes at most `count` waiters, oldest first.
    pub fn notify(&self, count: u32) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_cond_notify(self.raw.get(), count as c_uint) })
    }
}

impl Ref<Condvar> {
    /// The future returns the guard, and whether its deadline (if any) has passed. The mutex stays
    /// locked until the future is first polled. The future may therefore be moved to another thread
    /// only if the guard may be moved.
    pub fn wait_async<T: Send + 'static, P: Place<T> + Clone + 'static>(
        &self,
        guard: MutexGuard<T, P>,
        on: &P::On,
    ) -> Operation<Waiting<T, P>> {
        let waiting = Waiting {
            cond: self.clone(),
            place: guard.into_place(),
            in_its_thread: PhantomData,
        };

        Operation::new(on.as_ref(), waiting)
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Condvar").finish_non_exhaustive()
    }
}

/// Whether `err` is an error, not an outcome. If begin() returned it, the mutex is still locked.
fn is_unable(err: c_int) -> bool {
    !matches!(err, 0 | ETIMEDOUT | EOWNERDEAD | ENOTRECOVERABLE)
}

/// The result of a wait. `is_locked`: the mutex is locked despite an error.
#[allow(clippy::type_complexity)]
fn after<T, P: Place<T>>(
    place: P,
    err: c_int,
    is_locked: bool,
) -> Result<(MutexGuard<T, P>, bool), P::Failure> {
    match err {
        0 | ETIMEDOUT => guarded(place, 0).map(|guard| (guard, err == ETIMEDOUT)),
        err if is_locked => {
            drop(guarded(place, 0));
            Err(P::failed(Error::new(err), TOKEN))
        }
        err => guarded(place, err).map(|guard| (guard, false)),
    }
}

/// The operation of `Condvar::wait_async()`.
pub struct Waiting<T, P> {
    cond: Ref<Condvar>,
    place: P,
    in_its_thread: PhantomData<*mut T>,
}

// SAFETY: the mutex has no owner.
unsafe impl<T: Send + 'static> Send for Waiting<T, Ref<Mutex<T>>> {}

// SAFETY: the future's shares prevent both from moving. If give_back() runs in the loop's thread
// instead, it unlocks a mutex that has no owner.
unsafe impl<T: Send + 'static, P: Place<T> + Clone + 'static> Wait for Waiting<T, P> {
    type Output = Result<(MutexGuard<T, P>, bool), P::Failure>;

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let (clock, time) = Deadline::until(deadline);
        let cond = self.cond.raw.get();
        let mutex = self.place.mutex(TOKEN).raw();

        // SAFETY: the caller guarantees this; not_begun() has not run, so the mutex is locked.
        unsafe { memwait_cond_clockwait_async(cond, mutex, clock, time, op) }
    }

    fn output(&self, result: c_int, at_once: bool) -> Self::Output {
        after(self.place.clone(), result, at_once && is_unable(result))
    }

    fn not_begun(&self) {
        drop(guarded(self.place.clone(), 0));
    }
}
