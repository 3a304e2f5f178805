// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, check_try, Error};
use crate::event_loop::Handle;
use crate::memory::{Ref, Shareable};
use crate::operation::{Operation, Wait};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::os::raw::c_int;

/// A counting semaphore for threads and futures. Its layout is that of C's `memwait_sem_t`.
#[repr(transparent)]
pub struct Semaphore {
    raw: UnsafeCell<memwait_sem_t>,
}

// SAFETY: any thread may call the semaphore's functions.
unsafe impl Sync for Semaphore {}
// SAFETY: it has the layout of the C type.
unsafe impl Shareable for Semaphore {}

impl Semaphore {
    /// The maximum value, except for [`fair`](Semaphore::fair) semaphores.
    pub const MAX: u32 = MEMWAIT_SEM_VALUE_MAX;
    /// The maximum value of a [`fair`](Semaphore::fair) semaphore: 32767.
    pub const FAIR_MAX: u32 = MEMWAIT_SEM_FAIR_VALUE_MAX;

    /// # Panics
    /// If `value` is above [`MAX`](Semaphore::MAX).
    #[must_use]
    pub const fn new(value: u32) -> Semaphore {
        assert!(value <= Semaphore::MAX, "too large for a semaphore");
        Semaphore {
            raw: UnsafeCell::new(memwait_sem_t {
                reserved: [value as u64, 0, 0, 0],
            }),
        }
    }

    /// A semaphore whose posts are handed to the oldest waiter. It is slower.
    ///
    /// # Panics
    /// If `value` is above [`FAIR_MAX`](Semaphore::FAIR_MAX).
    #[must_use]
    pub const fn fair(value: u32) -> Semaphore {
        assert!(
            value <= Semaphore::FAIR_MAX,
            "too large for a fair semaphore"
        );
        // Like MEMWAIT_SEM_INIT_FLAGS().
        let shift = if cfg!(target_endian = "little") { 16 } else { 0 };
        Semaphore {
            raw: UnsafeCell::new(memwait_sem_t {
                reserved: [(value as u64) << shift, MEMWAIT_SEM_FAIR as u64, 0, 0],
            }),
        }
    }

    /// Only this process uses the semaphore, which costs less.
    #[must_use]
    pub fn private(mut self) -> Semaphore {
        self.raw.get_mut().reserved[1] |= MEMWAIT_PRIVATE as u64;
        self
    }

    /// Blocks until the value is not 0, and subtracts 1.
    pub fn acquire(&self) -> Result<(), Error> {
        loop {
            // SAFETY: the object is valid.
            match unsafe { memwait_sem_wait(self.raw.get()) } {
                EINTR => {}
                err => return check(err),
            }
        }
    }

    /// Like the function without `_until`, with a deadline. `ETIMEDOUT`: the deadline has passed.
    pub fn acquire_until(&self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        let time = deadline.into();

        loop {
            // SAFETY: the object is valid.
            match unsafe { memwait_sem_clockwait(self.raw.get(), time.clock, &time.time) } {
                EINTR => {}
                err => return check(err),
            }
        }
    }

    /// Subtracts 1 from the value. Returns false if the value is 0.
    pub fn try_acquire(&self) -> Result<bool, Error> {
        // SAFETY: the object is valid.
        check_try(unsafe { memwait_sem_trywait(self.raw.get()) }, EAGAIN)
    }

    /// The same as [`post`](Semaphore::post).
    pub fn release(&self) -> Result<(), Error> {
        self.post()
    }

    /// Adds 1, and wakes a waiter. `EOVERFLOW`: the value is [`MAX`](Semaphore::MAX), or
    /// [`FAIR_MAX`](Semaphore::FAIR_MAX) for a fair semaphore.
    pub fn post(&self) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_sem_post(self.raw.get()) })
    }

    /// The value now. It may change immediately.
    pub fn value(&self) -> Result<u32, Error> {
        let mut value = 0;

        // SAFETY: the object is valid.
        check(unsafe { memwait_sem_getvalue(self.raw.get(), &mut value) })?;
        Ok(value as u32)
    }
}

impl Ref<Semaphore> {
    /// Waits in the same FIFO queue as the threads that acquire the semaphore.
    pub fn acquire_async(&self, on: &Handle) -> Operation<Acquiring> {
        Operation::new(on, Acquiring(self.clone()))
    }
}

impl std::fmt::Debug for Semaphore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("Semaphore")
            .field(&self.value())
            .finish()
    }
}

/// The operation of `Semaphore::acquire_async()`.
pub struct Acquiring(Ref<Semaphore>);

// SAFETY: the future's share prevents the semaphore from moving, and the semaphore has no owner.
unsafe impl Wait for Acquiring {
    type Output = Result<(), Error>;

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let (clock, time) = Deadline::until(deadline);

        // SAFETY: the caller guarantees this.
        unsafe { memwait_sem_clockwait_async(self.0.raw.get(), clock, time, op) }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        check(result)
    }
}
