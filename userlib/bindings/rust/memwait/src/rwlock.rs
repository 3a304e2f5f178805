// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, Error};
use crate::event_loop::Handle;
use crate::memory::{Ref, Shareable};
use crate::operation::{Operation, Wait};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::raw::{c_int, c_uint};

/// A read-write lock for threads and futures. Its layout is that of C's `memwait_rwlock_t` followed
/// by a `T`, as in a `#[repr(C)]` struct. If a thread or process dies while it holds the lock, the
/// lock stays locked.
#[repr(C)]
pub struct RwLock<T> {
    raw: UnsafeCell<memwait_rwlock_t>,
    data: UnsafeCell<T>,
}

// SAFETY: it returns several &T, or one &mut T.
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}
// SAFETY: it has C's layout, followed by that of T.
unsafe impl<T: Shareable> Shareable for RwLock<T> {}

impl<T> RwLock<T> {
    /// Readers are preferred: a writer may wait forever.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock::of_kind(MEMWAIT_RWLOCK_PREFER_READER, value)
    }

    /// The lock is acquired in FIFO order. A thread must not lock it for reading twice.
    pub const fn fair(value: T) -> RwLock<T> {
        RwLock::of_kind(MEMWAIT_RWLOCK_FAIR, value)
    }

    /// Writers are preferred. A thread must not read-lock it twice.
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

    /// Only this process uses the lock, which costs less.
    #[must_use]
    pub fn private(mut self) -> RwLock<T> {
        self.raw.get_mut().reserved[4] |= MEMWAIT_PRIVATE;
        self
    }

    /// Locks for reading. Blocks while a writer holds the lock, or precedes this reader.
    pub fn read(&self) -> Result<ReadGuard<T, &RwLock<T>>, Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_rwlock_rdlock(self.raw.get()) })?;
        Ok(ReadGuard::new(self))
    }

    /// Like the function without `_until`, with a deadline. `ETIMEDOUT`: the deadline has passed.
    pub fn read_until(
        &self,
        deadline: impl Into<Deadline>,
    ) -> Result<ReadGuard<T, &RwLock<T>>, Error> {
        let time = deadline.into();

        // SAFETY: the object is valid.
        check(unsafe { memwait_rwlock_clockrdlock(self.raw.get(), time.clock, &time.time) })?;
        Ok(ReadGuard::new(self))
    }

    /// Locks for reading without blocking. `None`: this is not possible now.
    pub fn try_read(&self) -> Result<Option<ReadGuard<T, &RwLock<T>>>, Error> {
        // SAFETY: the object is valid.
        let err = unsafe { memwait_rwlock_tryrdlock(self.raw.get()) };

        Ok(crate::error::check_try(err, EBUSY)?.then(|| ReadGuard::new(self)))
    }

    /// Locks for writing. Blocks while the lock is held.
    pub fn write(&self) -> Result<WriteGuard<T, &RwLock<T>>, Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_rwlock_wrlock(self.raw.get()) })?;
        Ok(WriteGuard::new(self))
    }

    /// Like the function without `_until`, with a deadline. `ETIMEDOUT`: the deadline has passed.
    pub fn write_until(
        &self,
        deadline: impl Into<Deadline>,
    ) -> Result<WriteGuard<T, &RwLock<T>>, Error> {
        let time = deadline.into();

        // SAFETY: the object is valid.
        check(unsafe { memwait_rwlock_clockwrlock(self.raw.get(), time.clock, &time.time) })?;
        Ok(WriteGuard::new(self))
    }

    /// Locks for writing without blocking. `None`: the lock is held.
    pub fn try_write(&self) -> Result<Option<WriteGuard<T, &RwLock<T>>>, Error> {
        // SAFETY: the object is valid.
        let err = unsafe { memwait_rwlock_trywrlock(self.raw.get()) };

        Ok(crate::error::check_try(err, EBUSY)?.then(|| WriteGuard::new(self)))
    }

    /// The data. No lock is needed, because the reference is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// Returns the data.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: Send + Sync + 'static> Ref<RwLock<T>> {
    /// Waits in the same FIFO queue as the threads that use the lock.
    pub fn read_async(&self, on: &Handle) -> Operation<Reading<T>> {
        Operation::new(on, Reading(self.clone()))
    }

    /// Waits in the same FIFO queue as the threads that use the lock.
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
        /// `P` is a `&` or [`Ref`] to the lock. The lock has no owner, so the guard may leave its
        /// thread. In a child process a guard of the parent must be forgotten, because it
        /// would unlock the parent's lock.
        #[must_use = "the lock is unlocked when the guard is dropped"]
        pub struct $guard<T, P: Deref<Target = RwLock<T>>> {
            place: P,
            // The guard is Send if `place` is, which needs a Sync lock.
            data: PhantomData<fn(T) -> T>,
        }

        // SAFETY: a shared reference to it gives a shared reference to the data.
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
                // SAFETY: the guard holds it.
                unsafe { memwait_rwlock_unlock(self.place.raw.get()) };
            }
        }

        impl<T, P: Deref<Target = RwLock<T>>> Deref for $guard<T, P> {
            type Target = T;

            fn deref(&self) -> &T {
                // SAFETY: there is no writer while the guard exists.
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
    /// The lock, held for reading, and access to its data.
    ReadGuard
}

guard! {
    /// The lock, held for writing, and access to its data.
    WriteGuard
}

impl<T, P: Deref<Target = RwLock<T>>> DerefMut for WriteGuard<T, P> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock exclusively.
        unsafe { &mut *self.place.data.get() }
    }
}

macro_rules! locking {
    ($kind:ident, $guard:ident, $clocklock:ident) => {
        /// The operation that locks a read-write lock.
        pub struct $kind<T: 'static>(Ref<RwLock<T>>);

        // SAFETY: the future's share prevents the lock from moving, and the lock has no owner.
        unsafe impl<T: Send + Sync + 'static> Wait for $kind<T> {
            type Output = Result<$guard<T, Ref<RwLock<T>>>, Error>;

            unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
                let (clock, time) = Deadline::until(deadline);

                // SAFETY: the caller guarantees this.
                unsafe { $clocklock(self.0.raw.get(), clock, time, op) }
            }

            fn output(&self, result: c_int, _: bool) -> Self::Output {
                check(result)?;
                Ok($guard::new(self.0.clone()))
            }
        }
    };
}

locking!(Reading, ReadGuard, memwait_rwlock_clockrdlock_async);
locking!(Writing, WriteGuard, memwait_rwlock_clockwrlock_async);
