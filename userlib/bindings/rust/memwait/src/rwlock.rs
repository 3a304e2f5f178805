// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, Error};
use crate::event::{Handle, Operation, Wait};
use crate::memory::{Ref, Shareable};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::raw::{c_int, c_uint};

/// A read-write lock for threads and futures. Its layout is C's `memwait_rwlock_t`, and then a `T`,
/// as `#[repr(C)]` has them. What dies with it leaves it locked.
#[repr(C)]
pub struct RwLock<T> {
    raw: UnsafeCell<memwait_rwlock_t>,
    data: UnsafeCell<T>,
}

// SAFETY: it gives out a &T to many, or a &mut T to one.
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}
// SAFETY: C's layout, then that of T.
unsafe impl<T: Shareable> Shareable for RwLock<T> {}

impl<T> RwLock<T> {
    /// Readers go first: a writer may wait for ever.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock::of_kind(MEMWAIT_RWLOCK_PREFER_READER, value)
    }

    /// In the order of arrival. A thread must not read-lock it twice.
    pub const fn fair(value: T) -> RwLock<T> {
        RwLock::of_kind(MEMWAIT_RWLOCK_FAIR, value)
    }

    /// Writers go first. A thread must not read-lock it twice.
    pub const fn prefer_writer(value: T) -> RwLock<T> {
        RwLock::of_kind(MEMWAIT_RWLOCK_PREFER_WRITER, value)
    }

    const fn of_kind(kind: c_uint, value: T) -> RwLock<T> {
        RwLock {
            raw: UnsafeCell::new(memwait_rwlock_t {
                reserved: [0, 0, 0, 0, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            }),
            data: UnsafeCell::new(value),
        }
    }

    /// For this process only.
    #[must_use]
    pub fn private(mut self) -> RwLock<T> {
        self.raw.get_mut().reserved[4] |= MEMWAIT_PRIVATE;
        self
    }

    /// Blocks until it can be read.
    pub fn read(&self) -> Result<ReadGuard<T, &RwLock<T>>, Error> {
        // SAFETY: it is there.
        check(unsafe { memwait_rwlock_rdlock(self.raw.get()) })?;
        Ok(ReadGuard::new(self))
    }

    /// `ETIMEDOUT`: the time has come.
    pub fn read_until(
        &self,
        deadline: impl Into<Deadline>,
    ) -> Result<ReadGuard<T, &RwLock<T>>, Error> {
        let time = deadline.into();

        // SAFETY: it is there.
        check(unsafe { memwait_rwlock_clockrdlock(self.raw.get(), time.clock, &time.time) })?;
        Ok(ReadGuard::new(self))
    }

    /// `None`: it cannot be read now.
    pub fn try_read(&self) -> Result<Option<ReadGuard<T, &RwLock<T>>>, Error> {
        // SAFETY: it is there.
        let err = unsafe { memwait_rwlock_tryrdlock(self.raw.get()) };

        Ok(crate::error::check_try(err, EBUSY)?.then(|| ReadGuard::new(self)))
    }

    /// Blocks until it is free.
    pub fn write(&self) -> Result<WriteGuard<T, &RwLock<T>>, Error> {
        // SAFETY: it is there.
        check(unsafe { memwait_rwlock_wrlock(self.raw.get()) })?;
        Ok(WriteGuard::new(self))
    }

    /// `ETIMEDOUT`: the time has come.
    pub fn write_until(
        &self,
        deadline: impl Into<Deadline>,
    ) -> Result<WriteGuard<T, &RwLock<T>>, Error> {
        let time = deadline.into();

        // SAFETY: it is there.
        check(unsafe { memwait_rwlock_clockwrlock(self.raw.get(), time.clock, &time.time) })?;
        Ok(WriteGuard::new(self))
    }

    /// `None`: it is not free.
    pub fn try_write(&self) -> Result<Option<WriteGuard<T, &RwLock<T>>>, Error> {
        // SAFETY: it is there.
        let err = unsafe { memwait_rwlock_trywrlock(self.raw.get()) };

        Ok(crate::error::check_try(err, EBUSY)?.then(|| WriteGuard::new(self)))
    }

    /// No lock is needed: nothing else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// What it guards.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: Send + Sync + 'static> Ref<RwLock<T>> {
    /// Waits in one queue with the threads that lock it.
    pub fn read_async(&self, on: &Handle) -> Operation<Reading<T>> {
        Operation::new(on, Reading(self.clone()))
    }

    /// Waits in one queue with the threads that lock it.
    pub fn write_async(&self, on: &Handle) -> Operation<Writing<T>> {
        Operation::new(on, Writing(self.clone()))
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RwLock").finish_non_exhaustive()
    }
}

macro_rules! guard {
    ($(#[$doc:meta])* $guard:ident) => {
        $(#[$doc])*
        /// `P` is a `&` or [`Ref`] to the lock, which has no owner: it may leave its thread. In a
        /// child of `fork(2)` a guard of the parent must be forgotten, as it would unlock the
        /// parent's lock.
        #[must_use = "it unlocks when it is dropped"]
        pub struct $guard<T, P: Deref<Target = RwLock<T>>> {
            place: P,
            // Send where `place` is, and so the lock Sync.
            data: PhantomData<fn(T) -> T>,
        }

        // SAFETY: a shared reference to it is one to the data.
        unsafe impl<T: Sync, P: Deref<Target = RwLock<T>>> Sync for $guard<T, P> {}

        impl<T, P: Deref<Target = RwLock<T>>> $guard<T, P> {
            fn new(place: P) -> $guard<T, P> {
                $guard {
                    place,
                    data: PhantomData,
                }
            }
        }

        impl<T, P: Deref<Target = RwLock<T>>> Drop for $guard<T, P> {
            fn drop(&mut self) {
                // SAFETY: it was locked.
                unsafe { memwait_rwlock_unlock(self.place.raw.get()) };
            }
        }

        impl<T, P: Deref<Target = RwLock<T>>> Deref for $guard<T, P> {
            type Target = T;

            fn deref(&self) -> &T {
                // SAFETY: nothing writes while it is locked.
                unsafe { &*self.place.data.get() }
            }
        }

        impl<T: fmt::Debug, P: Deref<Target = RwLock<T>>> fmt::Debug for $guard<T, P> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(formatter)
            }
        }
    };
}

guard! {
    /// The lock for reading, and its data.
    ReadGuard
}

guard! {
    /// The lock for writing, and its data.
    WriteGuard
}

impl<T, P: Deref<Target = RwLock<T>>> DerefMut for WriteGuard<T, P> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nothing else has the lock.
        unsafe { &mut *self.place.data.get() }
    }
}

macro_rules! locking {
    ($kind:ident, $guard:ident, $lock:ident, $clocklock:ident) => {
        /// To lock it.
        pub struct $kind<T: 'static>(Ref<RwLock<T>>);

        // SAFETY: the share in the lock keeps it in place; it has no owner.
        unsafe impl<T: Send + Sync + 'static> Wait for $kind<T> {
            type Output = Result<$guard<T, Ref<RwLock<T>>>, Error>;

            unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
                let raw = self.0.raw.get();

                // SAFETY: the caller's promise.
                unsafe {
                    match deadline {
                        None => $lock(raw, op),
                        Some(time) => $clocklock(raw, time.clock, &time.time, op),
                    }
                }
            }

            fn output(&self, result: c_int, _: bool) -> Self::Output {
                check(result)?;
                Ok($guard::new(self.0.clone()))
            }

            fn give_back(&self, result: c_int) {
                drop(self.output(result, false));
            }
        }
    };
}

locking!(
    Reading,
    ReadGuard,
    memwait_rwlock_rdlock_async,
    memwait_rwlock_clockrdlock_async
);
locking!(
    Writing,
    WriteGuard,
    memwait_rwlock_wrlock_async,
    memwait_rwlock_clockwrlock_async
);
